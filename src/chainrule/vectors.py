"""Functions of several numbers at a time, each a short program of the op table's operations.

Lists and arrays of Values or numbers come in. A function of a vector that gives one number gives a
Value or a float; one that gives a vector or a matrix gives lists for lists, and an array for an
array. Being ordinary scalar code, they differentiate to any order and compile with the function
that calls them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.core.backend import Value
from chainrule.core.functions import exp, log, ramp, safe_sqrt, sigmoid, softplus, sqrt

__all__ = [
    "cholesky",
    "cumsum",
    "det",
    "interp",
    "logsumexp",
    "norm",
    "safe_norm",
    "smooth_max",
    "smooth_step",
    "solve",
    "stop_gradient",
]


def stop_gradient(x: Any) -> Any:
    """The same numbers without their history: a derivative takes them for constants.

    Takes a Value, a number, or lists, tuples, dicts and arrays of them.

    >>> from chainrule import grad, stop_gradient
    >>> grad(lambda x: x * stop_gradient(x))(3.0)
    3.0
    """
    if isinstance(x, Value):
        return Value(x.data)
    if isinstance(x, np.ndarray):
        return _like(x, [stop_gradient(y) for y in x.ravel().tolist()], x.shape)
    if isinstance(x, dict):
        return {key: stop_gradient(y) for key, y in x.items()}
    return type(x)([stop_gradient(y) for y in x]) if type(x) in (list, tuple) else x


# --- vectors --------------------------------------------------------------------------------------


def logsumexp(xs: Any) -> Any:
    """ln(eˣ¹ + eˣ² + …); the largest is subtracted first, so that nothing overflows.

    >>> from chainrule import logsumexp
    >>> round(logsumexp([1000.0, 1000.0]), 6)
    1000.693147
    """
    items = _items(xs, "logsumexp")
    largest = max(_data(x) for x in items)
    return log(sum(exp(x - largest) for x in items)) + largest


def norm(xs: Any) -> Any:
    """The Euclidean length, √(x₁² + x₂² + …), of a vector.

    >>> from chainrule import norm
    >>> norm([3.0, 4.0])
    5.0
    """
    return sqrt(_sum_of_squares(xs, "norm"))


def safe_norm(xs: Any) -> Any:
    """``norm``, whose derivatives at the origin are 0, of second order too.

    >>> from chainrule import hessian, safe_norm
    >>> hessian(safe_norm)([0.0, 0.0]).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    return safe_sqrt(_sum_of_squares(xs, "safe_norm"))


def _sum_of_squares(xs: Any, name: str) -> Any:
    return sum(x * x for x in _items(xs, name))


def cumsum(xs: Any) -> Any:
    """The running sums x₁, x₁ + x₂, …

    >>> from chainrule import cumsum
    >>> cumsum([1.0, 2.0, 3.0])
    [1.0, 3.0, 6.0]
    """
    sums: list[Any] = []
    total: Any = 0.0
    for x in _items(xs, "cumsum"):
        total = total + x
        sums.append(total)
    return _like(xs, sums)


def interp(x: Any, xs: Any, ys: Any) -> Any:
    """The line through the points (xs, ys) at x, as numpy's ``interp``: level beyond both ends.

    ``xs`` are increasing numbers; ``x`` and the ``ys`` may be Values. At a point of the table the
    derivative by x is that to its right. Each call takes an operation for every point, whichever
    is used, so that a compiled table has no branches.

    >>> from chainrule import grad, interp
    >>> interp(1.5, [0.0, 1.0, 2.0], [0.0, 10.0, 30.0])
    20.0
    >>> grad(interp)(1.5, [0.0, 1.0, 2.0], [0.0, 10.0, 30.0])
    20.0
    """
    if isinstance(x, (list, tuple, np.ndarray)):
        return _like(x, [interp(one, xs, ys) for one in x])
    places, heights = _items(xs, "interp"), _items(ys, "interp")
    if len(places) != len(heights):
        raise ValueError(f"interp needs as many xs as ys, got {len(places)} and {len(heights)}")
    y = heights[0]
    for left, right, low, high in zip(
        places[:-1], places[1:], heights[:-1], heights[1:], strict=True
    ):
        if not left < right:
            raise ValueError(f"interp needs increasing xs, got {_data(left)} before {_data(right)}")
        y = y + (high - low) * ramp((x - left) / (right - left))
    return y


# --- smooth steps ---------------------------------------------------------------------------------


def smooth_step(x: Any, width: Any = 1.0) -> Any:
    """0 far below 0, 1 far above it, and a rise of about ``width`` between: sigmoid(x / width).

    A payoff that jumps has no useful derivative; smoothed over a width that is small beside the
    numbers at hand, it has.

    >>> from chainrule import smooth_step
    >>> smooth_step(0.0), round(smooth_step(0.2, width=0.1), 4)
    (0.5, 0.8808)
    """
    return sigmoid(x / width)


def smooth_max(a: Any, b: Any, width: Any = 1.0) -> Any:
    """The larger of two numbers, rounded off over ``width``; its derivative is ``smooth_step``.

    It is above the larger one by width·ln 2 where they are equal, and by less everywhere else.

    >>> from chainrule import smooth_max
    >>> round(smooth_max(3.0, 1.0, width=0.1), 6), round(smooth_max(0.0, 0.0, width=0.1), 6)
    (3.0, 0.069315)
    """
    return b + width * softplus((a - b) / width)


# --- small matrices -------------------------------------------------------------------------------


def solve(a: Any, b: Any, assume_a: str = "gen") -> Any:
    """The x with a·x = b, for a square matrix and a vector, or a matrix of columns.

    For small systems: n³/3 operations on single numbers. Rows are exchanged so that pivots are
    large; where they come in many orders, a compiled function has one recording for all of them.
    With ``assume_a="pos"``, for a symmetric positive definite matrix, ``cholesky`` does it without.

    >>> from chainrule import solve
    >>> solve([[2.0, 1.0], [1.0, 3.0]], [3.0, 5.0])
    [0.8, 1.4]
    """
    matrix = _square(a, "solve")
    columns = [[x] if not _is_vector(x) else _items(x, "solve") for x in _items(b, "solve")]
    if len(columns) != len(matrix):
        raise ValueError(
            f"solve: {len(matrix)} equations need as many right sides, got {len(columns)}"
        )
    if assume_a == "pos":
        found = _solve_positive(matrix, columns)
    elif assume_a == "gen":
        found = _back_substituted(*_eliminated(matrix, columns)[:2])
    else:
        raise ValueError(f'assume_a is "gen" or "pos", not {assume_a!r}')
    one = not _is_vector(b[0])
    return _like(b, [row[0] for row in found] if one else found)


def det(a: Any) -> Any:
    """The determinant of a square matrix.

    >>> from chainrule import det
    >>> det([[2.0, 1.0], [1.0, 3.0]])
    5.0
    """
    matrix, _, sign = _eliminated(_square(a, "det"), None)
    product = matrix[0][0]
    for k in range(1, len(matrix)):
        product = product * matrix[k][k]
    return product if sign > 0 else -product


def cholesky(a: Any) -> Any:
    """The lower triangular L with L·Lᵀ = a, of a symmetric positive definite matrix.

    Only the lower triangle of ``a`` is read. Where ``a`` is not positive definite, the square root
    of a number that is not positive raises.

    >>> from chainrule import cholesky
    >>> cholesky([[4.0, 2.0], [2.0, 5.0]])
    [[2.0, 0.0], [1.0, 2.0]]
    """
    return _like(a, _cholesky(_square(a, "cholesky")))


def _cholesky(matrix: list[list[Any]]) -> list[list[Any]]:
    size = len(matrix)
    lower: list[list[Any]] = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i + 1):
            rest = matrix[i][j]
            for k in range(j):
                rest = rest - lower[i][k] * lower[j][k]
            lower[i][j] = sqrt(rest) if i == j else rest / lower[j][j]
    return lower


def _solve_positive(matrix: list[list[Any]], columns: list[list[Any]]) -> list[list[Any]]:
    lower, size = _cholesky(matrix), len(matrix)
    found = [list(row) for row in columns]
    for i in range(size):
        for c in range(len(found[0])):
            rest = found[i][c]
            for k in range(i):
                rest = rest - lower[i][k] * found[k][c]
            found[i][c] = rest / lower[i][i]
    upper = [[lower[j][i] for j in range(size)] for i in range(size)]
    return _back_substituted(upper, found)


def _eliminated(
    matrix: list[list[Any]], columns: list[list[Any]] | None
) -> tuple[list[list[Any]], list[list[Any]], int]:
    """Gauss's elimination: an upper triangle, its right sides, the sign of the row exchanges."""
    rows = [list(row) for row in matrix]
    sides = [list(row) for row in columns] if columns is not None else [[] for _ in rows]
    size, sign = len(rows), 1
    for k in range(size - 1):
        pivot = k
        for i in range(k + 1, size):
            if abs(_data(rows[i][k])) > abs(_data(rows[pivot][k])):
                pivot = i
        if pivot != k:
            rows[k], rows[pivot] = rows[pivot], rows[k]
            sides[k], sides[pivot] = sides[pivot], sides[k]
            sign = -sign
        if columns is None and _data(rows[k][k]) == 0.0:
            continue  # singular: the rest of the column is 0 too
        for i in range(k + 1, size):
            factor = rows[i][k] / rows[k][k]
            rows[i] = rows[i][: k + 1] + [
                rows[i][j] - factor * rows[k][j] for j in range(k + 1, size)
            ]
            sides[i] = [x - factor * y for x, y in zip(sides[i], sides[k], strict=True)]
    return rows, sides, sign


def _back_substituted(upper: list[list[Any]], sides: list[list[Any]]) -> list[list[Any]]:
    size = len(upper)
    found: list[list[Any]] = [[] for _ in range(size)]
    for i in reversed(range(size)):
        row = []
        for c, rest in enumerate(sides[i]):
            for k in range(i + 1, size):
                rest = rest - upper[i][k] * found[k][c]
            row.append(rest / upper[i][i])
        found[i] = row
    return found


# --- lists and arrays -----------------------------------------------------------------------------


def _data(x: Any) -> Any:
    return x.data if isinstance(x, Value) else x


def _is_vector(x: Any) -> bool:
    return isinstance(x, (list, tuple, np.ndarray))


def _items(xs: Any, name: str) -> list[Any]:
    if not _is_vector(xs):
        raise TypeError(f"{name} takes a list or an array, not a {type(xs).__name__}")
    if len(xs) == 0:
        raise ValueError(f"{name} of nothing: the list is empty")
    return xs.tolist() if isinstance(xs, np.ndarray) else list(xs)


def _square(a: Any, name: str) -> list[list[Any]]:
    rows = [_items(row, name) for row in _items(a, name)]
    for row in rows:
        if len(row) != len(rows):
            raise ValueError(f"{name} takes a square matrix, got {len(rows)} rows of {len(row)}")
    return rows


def _like(original: Any, found: Any, shape: tuple[int, ...] | None = None) -> Any:
    """A list for a list, an array for an array."""
    if not isinstance(original, np.ndarray):
        return found
    array = np.array(found, dtype=object)
    if not any(isinstance(x, Value) for x in array.ravel()):
        array = array.astype(float)
    return array if shape is None else array.reshape(shape)
