"""Rows exchanged by an integer that numbers decide, as pivots are: one recording, eager's numbers.

The recording exchanges items and leaves the lists where they are. Whoever could tell that apart,
because he has one of the lists, must get what he would get in Python.
"""

import random

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.compiler.runtime import branching
from chainrule.compiler.runtime.variants import Path

pytestmark = pytest.mark.usefixtures("unchecked")


def matrix(rng, n, ties):
    """Numbers that are often equal, up to their signs, or not; near no pole."""
    some = [-2.0, -1.0, 1.0, 2.0, 3.0]
    while True:
        made = [[rng.choice(some) if ties else rng.gauss(0, 1) for _ in range(n)] for _ in range(n)]
        if abs(np.linalg.det(made)) > 0.1:
            return made


def calls(count, n=3, ties=True):
    rng = random.Random(23)
    for k in range(count):
        yield matrix(rng, n, ties and k % 3 == 2), [rng.gauss(0, 1) for _ in range(n)]


def outcome(f, arguments):
    try:
        value, gradient = f(*arguments)
    except Exception as error:
        return type(error), str(error)
    return value, [np.ravel(g).tolist() for g in gradient]


def compared(f, count=40, n=3, adapt=lambda *x: x, ties=True, **options):
    """The function compiled, after calls that all gave eager's numbers."""
    fast, eager = chainrule.compile(f, on_fallback="eager", **options), chainrule.value_and_grad(f)
    for arguments in calls(count, n, ties):
        arguments = adapt(*arguments)
        wanted, found = outcome(eager, arguments), outcome(fast.value_and_grad, arguments)
        assert type(found[0]) is type(wanted[0]), (found, wanted)
        if isinstance(wanted[0], type):
            assert found == wanted
            continue
        assert found[0] == pytest.approx(wanted[0], rel=1e-9, abs=1e-12)
        for a, b in zip(found[1], wanted[1], strict=True):
            assert a == pytest.approx(b, rel=1e-7, abs=1e-9)
    return fast


def weighed(rows):
    """A number that tells the places of all items from each other."""
    return sum((i * 7 + j + 1) * x * x * x for i, row in enumerate(rows) for j, x in enumerate(row))


# --- elimination as people write it ---------------------------------------------------------------


def by_key(A, b):
    n = len(b)
    M = [[*row, x] for row, x in zip(A, b, strict=True)]
    for k in range(n):
        p = max(range(k, n), key=lambda i: abs(M[i][k]))
        M[k], M[p] = M[p], M[k]
        for i in range(k + 1, n):
            f = M[i][k] / M[k][k]
            for j in range(k, n + 1):
                M[i][j] = M[i][j] - f * M[k][j]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (M[i][n] - sum(M[i][j] * x[j] for j in range(i + 1, n))) / M[i][i]
    return sum(v * v for v in x)


def by_comparing(A, b):
    n = len(b)
    A, b = [row[:] for row in A], b[:]
    for k in range(n):
        p = k
        for i in range(k + 1, n):
            if abs(A[i][k]) > abs(A[p][k]):
                p = i
        if p != k:
            A[k], A[p] = A[p], A[k]
            b[k], b[p] = b[p], b[k]
        if A[k][k] == 0:
            raise ValueError("singular")
        for i in range(k + 1, n):
            f = A[i][k] / A[k][k]
            for j in range(k, n):
                A[i][j] -= f * A[k][j]
            b[i] -= f * b[k]
    x = [0.0] * n
    for i in range(n - 1, -1, -1):
        s = b[i]
        for j in range(i + 1, n):
            s -= A[i][j] * x[j]
        x[i] = s / A[i][i]
    return sum(v * v for v in x)


def determinant(A, b):
    n, M, det = len(A), [list(row) for row in A], 1.0
    for c in range(n):
        best, p = abs(M[c][c]), c
        for r in range(c + 1, n):
            if abs(M[r][c]) > best:
                best, p = abs(M[r][c]), r
        if best < 1e-12:
            return 0.0 * M[0][0]
        if p != c:
            tmp = M[c]
            M[c] = M[p]
            M[p] = tmp
            det = -det
        det = det * M[c][c]
        for r in range(c + 1, n):
            f = M[r][c] / M[c][c]
            for k in range(c, n):
                M[r][k] = M[r][k] - f * M[c][k]
    return det


def jordan(A, b):
    n = len(b)
    M = [[*row, x] for row, x in zip(A, b, strict=True)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(M[r][i]))
        M[i], M[pivot] = M[pivot], M[i]
        d = M[i][i]
        M[i] = [x / d for x in M[i]]
        for j in range(n):
            if j != i:
                f = M[j][i]
                M[j] = [a - f * c for a, c in zip(M[j], M[i], strict=True)]
    return sum(M[i][n] ** 2 for i in range(n))


def whenever_it_is_larger(A, b):
    n = len(b)
    A, b = [row[:] for row in A], list(b)
    for k in range(n):
        for i in range(k + 1, n):
            if abs(A[i][k]) > abs(A[k][k]):
                A[k], A[i] = A[i], A[k]
                b[k], b[i] = b[i], b[k]
        for i in range(k + 1, n):
            f = A[i][k] / A[k][k]
            b[i] = b[i] - f * b[k]
            for j in range(k, n):
                A[i][j] = A[i][j] - f * A[k][j]
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            b[i] = b[i] - A[i][j] * b[j]
        b[i] = b[i] / A[i][i]
    return sum(v * v for v in b)


def with_a_permutation(A, b):
    """LU in place; the right side is permuted afterwards."""
    n = len(A)
    LU, perm = [row[:] for row in A], list(range(n))
    for k in range(n):
        p = k
        for i in range(k + 1, n):
            if abs(LU[i][k]) > abs(LU[p][k]):
                p = i
        LU[k], LU[p] = LU[p], LU[k]
        perm[k], perm[p] = perm[p], perm[k]
        for i in range(k + 1, n):
            LU[i][k] = LU[i][k] / LU[k][k]
            for j in range(k + 1, n):
                LU[i][j] = LU[i][j] - LU[i][k] * LU[k][j]
    y = [0.0] * n
    for i in range(n):
        y[i] = b[perm[i]] - sum(LU[i][j] * y[j] for j in range(i))
    for i in reversed(range(n)):
        y[i] = (y[i] - sum(LU[i][j] * y[j] for j in range(i + 1, n))) / LU[i][i]
    return sum(v * v for v in y)


def items_one_by_one(A, b):
    n = len(b)
    M = [[*row, x] for row, x in zip(A, b, strict=True)]
    for k in range(n):
        p = max(range(k, n), key=lambda i: abs(M[i][k]))
        for j in range(n + 1):
            M[k][j], M[p][j] = M[p][j], M[k][j]
        for i in range(k + 1, n):
            f = M[i][k] / M[k][k]
            for j in range(k, n + 1):
                M[i][j] = M[i][j] - f * M[k][j]
    return weighed([row[i:] for i, row in enumerate(M)])


def inverse(A, b):
    n = len(A)
    M = [row[:] + [1.0 if i == j else 0.0 for j in range(n)] for i, row in enumerate(A)]
    for c in range(n):
        p = max(range(c, n), key=lambda r: abs(M[r][c]))
        M[c], M[p] = M[p], M[c]
        d = M[c][c]
        for j in range(2 * n):
            M[c][j] = M[c][j] / d
        for r in range(n):
            if r != c:
                f = M[r][c]
                for j in range(2 * n):
                    M[r][j] = M[r][j] - f * M[c][j]
    return sum(x * y for row, y in zip(M, b, strict=True) for x in row[n:])


def by_a_third_name(A, b):
    M = [row[:] for row in A]
    p = largest(M, 0)
    t = M[0]
    M[0] = M[p]
    M[p] = t
    p = largest(M, 1)
    t = M[1]
    M[1] = M[p]
    M[p] = t
    return weighed(M)


def by_the_library(A, b):
    return sum(x * x for x in chainrule.solve(A, b)) + chainrule.det(A)


class Solver:
    """Its matrix is an attribute."""

    def __init__(self, rows):
        self.rows, self.order = [list(row) for row in rows], list(range(len(rows)))

    def swap(self, a, b):
        rows = self.rows
        rows[a], rows[b] = rows[b], rows[a]
        self.order[a], self.order[b] = self.order[b], self.order[a]

    def reduce(self):
        n = len(self.rows)
        for k in range(n):
            self.swap(k, max(range(k, n), key=lambda i: abs(self.rows[i][k])))
            for i in range(k + 1, n):
                f = self.rows[i][k] / self.rows[k][k]
                self.rows[i] = [x - f * y for x, y in zip(self.rows[i], self.rows[k], strict=True)]


def of_an_object(A, b):
    solver = Solver(A)
    solver.reduce()
    return sum(solver.rows[k][k] * b[i] for k, i in enumerate(solver.order))


ELIMINATION = [
    *(by_key, by_comparing, determinant, jordan, whenever_it_is_larger, with_a_permutation),
    *(items_one_by_one, inverse, by_a_third_name, by_the_library, of_an_object),
]


@pytest.mark.parametrize("f", ELIMINATION, ids=lambda f: f.__name__)
def test_one_recording_serves_all_orders_of_pivots(f):
    fast = compared(f, 120, 4, ties=False)
    counts = fast.dispatch.counts
    assert counts.traces <= 5
    assert counts.eager == 0
    if f not in (by_comparing, determinant, by_the_library):  # which ask for a pivot of 0
        assert " inputs, 0 guards" in fast.report()
    compared(f, 60)


def test_a_matrix_without_a_pivot_raises_what_eager_raises():
    fast = compared(by_comparing, 60)
    for A in ([[0.0] * 3] * 3, [[0.0, 1.0, 2.0]] * 3, [[1.0, 2.0, 4.0]] * 3):
        with pytest.raises(ValueError, match="singular"):
            fast.value_and_grad([list(row) for row in A], [1.0, 2.0, 3.0])


def test_machine_code_knows_how_little_rounding_may_decide_after_many_steps():
    fast, eager = chainrule.compile(by_key, lift=True), chainrule.value_and_grad(by_key)
    paths = []
    for arguments in calls(20, 12, False):
        value, gradient = fast.value_and_grad(*arguments)
        paths.append(fast.dispatch.last)
        wanted = eager(*arguments)
        assert value == pytest.approx(wanted[0], rel=1e-8)
        assert np.ravel(gradient) == pytest.approx(np.ravel(wanted[1]), rel=1e-6, abs=1e-8)
    assert paths[8:].count(Path.MACHINE) >= 11


@pytest.mark.parametrize("f", ELIMINATION, ids=lambda f: f.__name__)
def test_numbers_that_are_no_parameters_may_be_exchanged(f):
    fast = compared(lambda b, A: f(A, b), 60, 3, lambda A, b: (b, A))
    assert fast.dispatch.counts.eager <= 60


# --- arrays ---------------------------------------------------------------------------------------


def as_arrays(A, b):
    return np.array(A), np.array(b)


def augmented(A, b):
    n = len(b)
    M = np.concatenate([A, b.reshape(-1, 1)], axis=1)
    for k in range(n):
        p = k + np.argmax(np.abs(M[k:, k]))
        M[[k, p]] = M[[p, k]]
        for i in range(k + 1, n):
            M[i, k:] = M[i, k:] - M[i, k] / M[k, k] * M[k, k:]
    return (M * M).sum() + M[0, 0] * M[1, n]


def in_parts(A, b):
    A, b, n = A.copy(), A[0].copy(), len(b)
    for k in range(n):
        p = int(np.abs(A[k:, k]).argmax()) + k
        A[[k, p], k:] = A[[p, k], k:]
        b[[k, p]] = b[[p, k]]
        for i in range(k + 1, n):
            f = A[i, k] / A[k, k]
            A[i, k:] -= f * A[k, k:]
            b[i] -= f * b[k]
    return (A * A).sum() + (b * b * b).sum()


def with_views(A, b):
    M = A.copy()
    row, column, part = M[0], M[:, 1], M[1:]
    p = max(range(3), key=lambda i: abs(M[i, 0]))
    M[[0, p]] = M[[p, 0]]
    part[0, 0] = b[0] * 3
    row[2] = b[1]
    return (M**3).sum() + row[1] * 5 + column[2] * 7 + part[1, 1] * 11


def copied_rows(A, b):
    M = A.copy()[()]
    M[()] = A
    p = np.argmin(np.abs(M[:, 1]))
    rows = M[[p, 0, p]]
    rows[0, 0] = b[0] * 3
    M[[2, p]] = rows[1:]
    return (M**3).sum() + (rows * b).sum()


def the_same_row_several_times(A, b):
    M = A.copy()
    p = np.argmax(A[:, 2] * A[:, 2])
    M[[p, 0, p]] = M[[0, 1, 2]]
    return ((M**3) * np.arange(1.0, 4.0)).sum() + M[0, 1] * M[1, 2]


ARRAYS = [augmented, in_parts, with_views, copied_rows, the_same_row_several_times]


@pytest.mark.parametrize("f", ARRAYS, ids=lambda f: f.__name__)
def test_rows_of_arrays_are_exchanged(f):
    fast = compared(f, 60, 3, as_arrays, ties=False)
    assert fast.dispatch.counts.traces <= 5
    assert fast.dispatch.counts.eager == 0
    assert " inputs, 0 guards" in fast.report()
    compared(f, 40, 3, as_arrays)
    compared(lambda b, A: f(A, b), 40, 3, lambda A, b: as_arrays(b, A))


def of_data(w, A, b):
    A, b, n = A * 1.0, b * 1.0, len(b)
    for k in range(n):
        p = k + np.argmax(np.abs(A[k:, k]))
        A[[k, p]] = A[[p, k]]
        b[[k, p]] = b[[p, k]]
        for i in range(k + 1, n):
            f = A[i, k] / A[k, k]
            A[i, k:] = A[i, k:] - f * A[k, k:]
            b[i] = b[i] - f * b[k]
    return w[0] * (A * A).sum() + w[1] * (b**3).sum()


def test_rows_of_data_are_exchanged():
    fast = compared(of_data, 60, 3, lambda A, b: ([1.0, 2.0], *as_arrays(A, b)), ties=False)
    assert fast.dispatch.counts.traces <= 5
    assert fast.dispatch.counts.eager == 0


# --- who could tell -------------------------------------------------------------------------------


def largest(M, k):
    return max(range(k, len(M)), key=lambda i: abs(M[i][k]))


def copied(A):
    return [row[:] for row in A]


def another_name(A, b):
    M = copied(A)
    kept = M[0]
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    M[0][1] = b[0] * 5
    return weighed(M) + kept[1] * 100 + kept[0]


def another_list(A, b):
    M = copied(A)
    other = [M[1], M[0], M[2]]
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    M[0][1] = b[0] * 5
    return weighed(M) + 10 * weighed(other)


def a_copy_of_the_list(A, b):
    M = copied(A)
    other = M[:]
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    M[1][1] = b[0] * 5
    return weighed(M) + 10 * weighed(other)


def another_name_for_all(A, b):
    M = copied(A)
    other = M
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    other[1][1] = b[0] * 5
    return weighed(M) + 10 * weighed(other)


def the_same_row_twice(A, b):
    row = [x * 2 for x in A[0]]
    M = [row, A[1][:], row]
    del row
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    M[0][1] = b[0] * 5
    return weighed(M)


def rows_times_a_number(A, b):
    M = [[b[0], b[1], b[2]]] * 3
    M[1] = A[1][:]
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    M[2][1] = b[0] * 5
    return weighed(M)


def a_closure(A, b):
    M = copied(A)
    first = M[0]
    get = lambda: first[1]  # noqa: E731
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    M[0][1] = b[0] * 5
    return weighed(M) + 100 * get()


def an_iterator_of_a_row(A, b):
    M = copied(A)
    items = iter(M[0])
    x = next(items)
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    return weighed(M) + 100 * next(items) + x


def a_generator(A, b):
    M = copied(A)
    items = (x * 2 for x in M[0])
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    return weighed(M) + 100 * next(items)


def an_iterator_of_rows(A, b):
    M = copied(A)
    rows = iter(M)
    first = next(rows)
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    M[0][1] = b[0] * 5
    return weighed(M) + 100 * sum(next(rows)) + first[1]


def in_a_loop_over_rows(A, b):
    M, total = copied(A), 0.0
    for k, row in enumerate(M):
        p = largest(M, k)
        M[k], M[p] = M[p], M[k]
        M[k][2] = b[0] * (k + 2)
        total = total + row[0] * (k + 1) + row[2] * 3
    return weighed(M) + total


def in_a_tuple(A, b):
    M = copied(A)
    pair = M[1], b[0]
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    M[1][0] = b[1] * 3
    return weighed(M) + pair[0][0] * 50


def which_list_it_is(A, b):
    M = copied(A)
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    row = M[1]
    return weighed(M) + (A[0][0] if row is M[1] else b[0]) + (b[1] if M[0] is M[2] else b[2])


def which_list_it_was(A, b):
    M = copied(A)
    first = M[0]
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    return weighed(M) + (A[0][0] if first is M[0] else b[0])


def who_holds_it_in_a_helper(A, b):
    M = copied(A)
    row = M[2]

    def swap(rows):
        p = largest(rows, 0)
        rows[0], rows[p] = rows[p], rows[0]
        rows[0][1] = b[0] * 4

    swap(M)
    return weighed(M) + 100 * row[1]


def swapped_in_a_helper(A, b):
    M = copied(A)

    def swap(rows, k):
        p = largest(rows, k)
        rows[k], rows[p] = rows[p], rows[k]

    swap(M, 0)
    swap(M, 1)
    M[0][1] = M[0][1] * b[0]
    return weighed(M)


def a_name_that_a_side_gives(A, b):
    M = copied(A)
    row = M[0]
    if b[0] > 0:
        row = M[1]
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    row[2] = b[1] * 3
    return weighed(M)


def in_a_side_by_both(A, b):
    M = copied(A)
    if b[0] > 0:
        M[0], M[1] = M[1], M[0]
        M[0][0] = M[0][0] * 2
    else:
        M[2], M[1] = M[1], M[2]
    if b[1] > 0:
        if b[2] > 0:
            M[0], M[2] = M[2], M[0]
        M[1], M[0] = M[0], M[1]
    return weighed(M)


def in_a_side_with_another_name(A, b):
    M = copied(A)
    row = M[0]
    if b[0] > 0:
        M[0], M[1] = M[1], M[0]
        M[0][0] = b[1] * 2
    row[1] = b[2] * 3
    return weighed(M)


def a_row_that_a_side_makes(A, b):
    M = copied(A)
    if b[0] > 0:
        M[1] = [x * 2 for x in M[0]]
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    if b[1] > 0:
        M[1] = M[2]
    p = largest(M, 1)
    M[1], M[p] = M[p], M[1]
    M[1][0] = b[2] * 7
    return weighed(M)


def of_other_lengths(A, b):
    M = [row[: k + 1] for k, row in enumerate(A)]
    p = max(range(3), key=lambda i: abs(M[i][0]))
    M[0], M[p] = M[p], M[0]
    return weighed(M) + len(M[0]) * b[0]


def of_nested_lists(A, b):
    M = [[[x], x] for x in A[0]]
    p = max(range(3), key=lambda i: abs(M[i][1]))
    M[0], M[p] = M[p], M[0]
    M[0][0][0] = b[0]
    return sum(x * (k + 1) + y[0] * (k + 5) for k, (y, x) in enumerate(M))


def of_other_things(A, b):
    M = [[x, None if k else "one", k] for k, x in enumerate(A[0])]
    p = max(range(3), key=lambda i: abs(M[i][0]))
    M[0], M[p] = M[p], M[0]
    return sum(x * (k + 1) * (2 if y is None else 3) + z for k, (x, y, z) in enumerate(M))


def of_integers_and_numbers(A, b):
    M = [[x, int(i == j)] for i in range(3) for j, x in enumerate(A[0]) if i == j]
    p = max(range(3), key=lambda i: abs(M[i][0]))
    M[0], M[p] = M[p], M[0]
    return sum(x * (k + 1) + y * b[k] * isinstance(y, int) for k, (x, y) in enumerate(M))


def whether_it_is_a_value(A, b):
    M = [[A[0][0], 0.0], [A[1][0], A[1][1]], [A[2][0], 2]]
    p = max(range(3), key=lambda i: abs(M[i][0]))
    M[0], M[p] = M[p], M[0]
    return sum(row[0] * (k + 1) * (2 + isinstance(row[1], Value)) for k, row in enumerate(M))


def which_value_it_is(A, b):
    M = copied(A)
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    return weighed(M) * (2 if M[0][0] is A[0][0] else 3) + (b[0] if A[1][1] in M[1] else b[1])


def rows_that_were_passed(A, b):
    p = largest(A, 0)
    A[0], A[p] = A[p], A[0]
    return weighed(A)


def rows_that_were_passed_in_a_list_of_its_own(A, b):
    M = list(A)
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    return weighed(M) + 3 * weighed(A)


def from_the_end(A, b):
    M = copied(A)
    p = max(range(3), key=lambda i: abs(M[i][0]))
    M[-1], M[p] = M[p], M[-1]
    q = max(range(3), key=lambda i: abs(M[i][1]))
    M[q - 1], M[2] = M[2], M[q - 1]
    M[q - 2][0] = b[0] * 3
    return weighed(M) + M[q - 1][1] * 11 + M[p][0] * 13


def beyond_the_end(A, b):
    M = copied(A)
    p = max(range(3), key=lambda i: abs(M[i][0]))
    M[0], M[p + 1] = M[p + 1], M[0]
    return weighed(M)


def the_third_name_is_used(A, b):
    M = copied(A)
    p = largest(M, 0)
    t = M[0]
    M[0] = M[p]
    M[p] = t
    M[0][1] = b[0] * 3
    return weighed(M) + t[1] * 100


def the_third_name_is_a_closures(A, b):
    M, t = copied(A), None

    def get():
        return t[1] * 100

    p = largest(M, 0)
    t = M[0]
    M[0] = M[p]
    M[p] = t
    M[0][1] = b[0] * 3
    return weighed(M) + get()


def a_row_is_taken_away(A, b):
    M = copied(A)
    p = largest(M, 0)
    M[0], M[p] = M[p], M[0]
    row = M.pop(0)
    row[0] = b[0] * 2
    M.append(row)
    M.reverse()
    p = largest(M, 1)
    M[1], M[p] = M[p], M[1]
    return weighed(M) + 10 * row[1]


def a_row_is_stored_elsewhere_afterwards(A, b):
    M, other = copied(A), {}
    for k in range(3):
        p = largest(M, k)
        M[k], M[p] = M[p], M[k]
        other[k] = M[k]
        M[k][2] = b[k] * 3
    return weighed(M) + 10 * sum(row[1] + row[2] * 2 for row in other.values())


def items_of_a_row_that_is_there_twice(A, b):
    row = A[0][:]
    M = [row, A[1][:], row]
    p = max(range(3), key=lambda i: abs(b[i]))
    M[p][1] = b[0] * 3
    return weighed(M) + 10 * row[1] + M[p][2]


def items_in_a_side(A, b):
    M = copied(A)
    p = max(range(3), key=lambda i: abs(b[i]))
    row = M[1]
    if b[0] > 0:
        M[p][1] = M[p][0] * 3
        M[p][0] -= b[1]
    return weighed(M) + 10 * row[1]


def items_while_a_row_is_in_hand(A, b):
    M = copied(A)
    p = max(range(3), key=lambda i: abs(b[i]))
    row = M[p]
    M[p][1] = b[0] * 3
    M[1][2] = b[1] * 2
    return weighed(M) + 10 * row[1] + 100 * row[2]


def by_two_integers(A, b):
    M = copied(A)
    p = max(range(3), key=lambda i: abs(b[i]))
    q = min(range(3), key=lambda i: abs(b[i]))
    M[q], M[p] = M[p], M[q]
    M[p][q] = M[q][p] * 2
    return weighed(M) + 10 * M[p][q]


GLOBAL = [[0.5, -1.0, 2.0], [1.5, 0.25, -2.0], [-0.75, 1.0, 1.0]]


def rows_of_a_global(A, b):
    M = list(GLOBAL)
    p = max(range(3), key=lambda i: abs(b[i]))
    M[0], M[p] = M[p], M[0]
    return sum(x * y for row, y in zip(M, b, strict=True) for x in row) * A[0][0]


OBSERVERS = [
    *(another_name, another_list, a_copy_of_the_list, another_name_for_all, the_same_row_twice),
    *(rows_times_a_number, a_closure, an_iterator_of_a_row, a_generator, an_iterator_of_rows),
    *(in_a_loop_over_rows, in_a_tuple, which_list_it_is, which_list_it_was),
    *(who_holds_it_in_a_helper, swapped_in_a_helper, a_name_that_a_side_gives, in_a_side_by_both),
    *(in_a_side_with_another_name, a_row_that_a_side_makes, of_other_lengths, of_nested_lists),
    *(of_other_things, of_integers_and_numbers, whether_it_is_a_value, which_value_it_is),
    *(rows_that_were_passed, rows_that_were_passed_in_a_list_of_its_own, from_the_end),
    *(beyond_the_end, the_third_name_is_used, the_third_name_is_a_closures, a_row_is_taken_away),
    *(a_row_is_stored_elsewhere_afterwards, items_of_a_row_that_is_there_twice, items_in_a_side),
    *(items_while_a_row_is_in_hand, by_two_integers, rows_of_a_global),
]


@pytest.mark.parametrize("f", OBSERVERS, ids=lambda f: f.__name__)
def test_who_has_a_row_sees_what_he_would_see(f, monkeypatch):
    monkeypatch.setattr(branching, "WAYS", 1)
    compared(f, 60)
    compared(lambda b, A: f(A, b), 40, 3, lambda A, b: (b, A))
