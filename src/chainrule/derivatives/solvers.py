"""Derivatives through solvers: ``implicit_root``, ``fixed_point``, and ``checkpoint``.

The root of g(x, p) = 0 depends on p by the implicit-function rule, dx/dp = -(∂g/∂p) / (∂g/∂x),
however it was found. So the search runs on plain numbers, and two of Newton's steps over Values
follow it. The first makes the derivative of first order right, the second those up to the third;
the number stays what it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from chainrule.core import errors
from chainrule.core.backend import Value, modes, no_grad, topological_order
from chainrule.derivatives.backward import gradients, recording
from chainrule.derivatives.transforms import is_differentiated_again
from chainrule.vectors import _data, _items, _like, solve

__all__ = ["SolverError", "checkpoint", "fixed_point", "implicit_root"]


class SolverError(ArithmeticError):
    """No root was found; the message has the last number and what is left of the equation.

    >>> from chainrule import SolverError, implicit_root
    >>> try:
    ...     implicit_root(lambda x: 0.0 * x + 1.0, 2.0)
    ... except SolverError as error:
    ...     print(error)
    implicit_root: the derivative by x is 0 at 2.0
    """


Vector = list[Any]
Equations = Callable[[Vector], Vector]


def implicit_root(
    g: Callable[..., Any],
    x0: Any,
    *args: Any,
    tolerance: float = 1e-12,
    steps: int = 100,
) -> Any:
    """The x with ``g(x, *args) == 0``, differentiable by the Values in ``args`` and around ``g``.

    ``x`` is a number, or a list or an array of them: then ``g`` gives as many. It is found by
    Newton's method from ``x0``, with shorter steps where a whole one leads further away. The search
    ends where a step is below ``tolerance``, relative to x; after so many ``steps`` it raises
    ``SolverError``. Derivatives are right up to the third order.

    >>> from chainrule import grad, hessian, implicit_root
    >>> def root(a):
    ...     return implicit_root(lambda x, a: x * x * x - a, 1.0, a)
    >>> round(root(8.0), 9), round(grad(root)(8.0), 9), round(hessian(root)(8.0), 9)
    (2.0, 0.083333333, -0.006944444)
    """
    equations = _equations(g, x0, args, "implicit_root")
    found = _search(equations, _numbers(x0, "implicit_root"), tolerance, steps)
    return _shaped(x0, _attached(equations, found))


def fixed_point(
    f: Callable[..., Any],
    x0: Any,
    *args: Any,
    tolerance: float = 1e-12,
    steps: int = 1000,
) -> Any:
    """The x with ``f(x, *args) == x``, by applying ``f`` again and again from ``x0``.

    It ends where x changes by less than ``tolerance``, relative to its size; derivatives are those
    of ``implicit_root``: no derivative is taken of the repetitions.

    >>> from chainrule import cos, fixed_point, grad
    >>> def balance(a):
    ...     return fixed_point(lambda x, a: cos(a * x), 0.5, a)
    >>> round(balance(1.0), 9), round(grad(balance)(1.0), 6)
    (0.739085133, -0.297474)
    """
    found = _numbers(x0, "fixed_point")
    apply = _equations(f, x0, args, "fixed_point")
    for _ in range(steps):
        with no_grad():
            after = [_data(y) for y in apply([Value(x) for x in found])]
        change, size = _largest(after, found), _largest(after)
        found = after
        if change <= tolerance * (1.0 + size):
            break
    else:
        raise SolverError(f"fixed_point changes by {change:g} after {steps} steps, at {found}")
    return _shaped(x0, _attached(lambda xs: _differences(xs, apply(xs)), found))


def _differences(xs: Vector, ys: Vector) -> Vector:
    return [x - y for x, y in zip(xs, ys, strict=True)]


def _numbers(x0: Any, name: str) -> Vector:
    """The numbers to start from, as a list."""
    several = isinstance(x0, (list, tuple, np.ndarray))
    found = [_data(x) for x in (_items(x0, name) if several else [x0])]
    for x in found:
        if not errors.is_real(x):
            raise TypeError(
                f"{name} starts from a number or a list of them, not {errors.describe(x)}"
            )
    return [x * 1.0 for x in found]


def _equations(g: Callable[..., Any], x0: Any, args: Sequence[Any], name: str) -> Equations:
    """``g`` as a function of a list that gives as many numbers."""
    several = isinstance(x0, (list, tuple, np.ndarray))

    def equations(xs: Vector) -> Vector:
        given = _like(x0, list(xs)) if several else xs[0]
        result = g(given, *args)
        found = _items(result, name) if several else [result]
        if len(found) != len(xs):
            raise ValueError(f"{name}: {len(xs)} unknowns need as many equations, got {len(found)}")
        return found

    return equations


def _shaped(x0: Any, found: Vector) -> Any:
    return _like(x0, found) if isinstance(x0, (list, tuple, np.ndarray)) else found[0]


def _largest(xs: Vector, others: Vector | None = None) -> Any:
    """The largest of |x|, or of the differences."""
    sizes = [abs(x) for x in (xs if others is None else _differences(xs, others))]
    largest = sizes[0]
    for size in sizes[1:]:
        largest = max(largest, size)
    return largest


def _slopes(equations: Equations, xs: Vector, create_graph: bool) -> tuple[Vector, list[Vector]]:
    """The residuals, and the matrix of their derivatives by x, as numbers or as Values."""
    residuals = [y if isinstance(y, Value) else Value(y) for y in equations(xs)]
    return residuals, [gradients(y, xs, create_graph) for y in residuals]


def _search(equations: Equations, start: Vector, tolerance: float, steps: int) -> Vector:
    """Newton's method on numbers, a step halved until what is left of the equations is less."""
    found = start
    for _ in range(steps):
        with recording():
            residuals, slopes = _slopes(equations, [Value(x) for x in found], False)
        left = [y.data for y in residuals]
        size = _largest(left)
        if size == 0.0:
            return found
        try:
            step = solve(slopes, left)
        except ZeroDivisionError:
            raise SolverError(
                f"implicit_root: the derivative by x is 0 at {_shown(found)}"
            ) from None
        if not _largest(step) > tolerance * (1.0 + _largest(found)):
            return _differences(found, step)
        found = _shortened(equations, found, step, size)
    raise SolverError(
        f"implicit_root has {_shown(left)} left after {steps} steps, at {_shown(found)}"
    )


def _shortened(equations: Equations, found: Vector, step: Vector, size: Any) -> Vector:
    """The point a step further, or half of it, or a quarter, …"""
    for _ in range(40):
        after = _differences(found, step)
        try:
            with no_grad():
                left = _largest([_data(y) for y in equations([Value(x) for x in after])])
        except ArithmeticError:  # beyond what the equations are defined for
            left = math.inf
        except ValueError:
            left = math.inf
        if left < size:
            return after
        step = [0.5 * s for s in step]
    return after  # as near as numbers come


def _shown(xs: Vector) -> Any:
    """Numbers for a message; while a compiled function is recorded they are not known."""
    if modes.recorder is not None:
        return "some number" if len(xs) == 1 else "some numbers"
    return xs[0] if len(xs) == 1 else xs


def _attached(equations: Equations, found: Vector) -> Vector:
    """The numbers as Values with the derivatives of the root; as they are if no Value is near."""
    with no_grad():
        if not any(isinstance(y, Value) for y in equations(found)):
            return found
    with recording():
        xs: Vector = [Value(x) for x in found]
        for _ in range(2):
            residuals, slopes = _slopes(equations, xs, True)
            xs = _differences(xs, solve(slopes, residuals))
    return xs


# --- memory ---------------------------------------------------------------------------------------


def checkpoint(f: Callable[..., Any]) -> Callable[..., Any]:
    """``f``, whose graph is not kept: a call's results keep their derivatives by its arguments.

    In a long recurrence the graph of every step stays in memory until the backward pass. Wrapped,
    each step is computed twice and differentiated at once, and what stays are the derivatives of
    its results by the Values that went in: few numbers where a step has few of both. ``f`` takes
    Values, numbers, and lists or arrays of them, and returns a Value, or a list or tuple of Values.
    Compiled functions, and derivatives of higher order, take ``f`` as it is.

    >>> from chainrule import Value, checkpoint, sin, topological_order
    >>> @checkpoint
    ... def step(x, a):
    ...     return sin(a * x) * x + sin(x)
    >>> a = Value(0.5)
    >>> x = Value(1.0)
    >>> for _ in range(100):
    ...     x = step(x, a)
    >>> len(topological_order(x))
    102
    """

    @wraps(f)
    def light(*args: Any) -> Any:
        if modes.recorder is not None or is_differentiated_again() or not modes.grad:
            return f(*args)
        given = [x for x in _flat(args) if isinstance(x, Value)]
        first, inputs = _run(f, args)
        second, _ = _run(f, args)
        results = first if isinstance(first, (list, tuple)) else [first]
        again = second if isinstance(second, (list, tuple)) else [second]
        outside = _outside(results, again)
        made = [_condensed(y, inputs, given, outside) for y in results]
        return type(first)(made) if isinstance(first, (list, tuple)) else made[0]

    return light


def _flat(x: Any) -> list[Any]:
    if isinstance(x, (list, tuple)):
        return [y for item in x for y in _flat(item)]
    return list(x.flat) if isinstance(x, np.ndarray) else [x]


def _run(f: Callable[..., Any], args: Any) -> tuple[Any, list[Value]]:
    """``f`` with fresh leaves in place of its Values, and these leaves."""
    leaves: list[Value] = []

    def fresh(x: Any) -> Any:
        if isinstance(x, Value):
            leaves.append(Value(x.data, label=x.label))
            return leaves[-1]
        if isinstance(x, (list, tuple)):
            return type(x)([fresh(y) for y in x])
        return _like(x, [fresh(y) for y in x.flat], x.shape) if isinstance(x, np.ndarray) else x

    return f(*[fresh(x) for x in args]), leaves


def _outside(results: Sequence[Any], again: Sequence[Any]) -> list[Value]:
    """The Values that ``f`` took from elsewhere: those which both of its runs have in common."""
    runs = [
        {id(v): v for y in ys if isinstance(y, Value) for v in topological_order(y)}
        for ys in (results, again)
    ]
    common = [v for key, v in runs[0].items() if key in runs[1]]
    below = {id(c) for v in common for c in v.children}
    inner = [v for key, v in runs[0].items() if key not in runs[1]]
    used = {id(c) for v in inner for c in v.children} | {id(y) for y in results}
    return [v for v in common if id(v) in used or id(v) not in below]


def _condensed(
    y: Any, inputs: Sequence[Value], given: Sequence[Value], outside: Sequence[Value]
) -> Any:
    """One result as a node whose children are what went in."""
    if not isinstance(y, Value) or any(y is v for v in outside):
        return y
    slopes = y._gradients([*inputs, *outside], True)
    kept = [(v, s) for v, s in zip([*given, *outside], slopes, strict=True) if s]
    if not kept:
        return Value(y.data, label=y.label)
    nodes, numbers = zip(*kept, strict=True)
    return Value(y.data, nodes, numbers, op="checkpoint")
