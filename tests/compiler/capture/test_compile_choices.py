"""Integers that depend on numbers: counts, places and what they select, in one recording."""

import bisect
import random

import numpy as np
import pytest

import chainrule
from chainrule import exp, log, maximum, tanh
from chainrule.compiler.runtime import branching

RNG = random.Random(5)
TABLE = [-1.0, -0.25, 0.0, 0.4, 1.5]
GRID = np.arange(8.0).reshape(4, 2)
WEIGHTS = {0: 0.5, 1: 2.0, 2: -1.0, 3: 3.0}


def counted(w, xs):
    total, used = 0.0, 0
    for x in xs:
        r = w[0] * x - w[1]
        if abs(r) > 1.0:
            continue
        total, used = total + r * r, used + 1
    return total / (used + 1) + used * w[2]


def truths(w, xs):
    hits = [a.data > x for a, x in zip(w, xs, strict=False)]
    return w[sum(hits) % 1] + sum(hits) * w[1] - 0.5 * sum(hits)


def first_of_largest(w, xs):
    zs = [a * x for a, x in zip(w, xs, strict=False)]
    return zs[zs.index(max(zs))] * w[zs.index(min(zs))]


def nearest(w, xs):
    d = [(a.data - xs[0]) ** 2 for a in w]
    k = d.index(min(d))
    return (w[k] - xs[0]) ** 2 * (k + 1)


def largest_by_key(w, xs):
    rows = [[a, a * x] for a, x in zip(w, xs, strict=False)]
    a, b = rows[max(range(len(rows)), key=lambda i: rows[i][1].data)]
    return a * b + min(range(3), key=lambda i: w[i])


def in_order(w, xs):
    order = sorted(range(len(w)), key=lambda i: w[i].data, reverse=True)
    return sum(w[i] * (rank + 1) * xs[i] for rank, i in enumerate(order))


def interpolated(w, xs):
    total = 0.0
    for a in w:
        k = min(max(bisect.bisect_right(TABLE, a.data) - 1, 0), 3)
        total = total + (a - TABLE[k]) / (TABLE[k + 1] - TABLE[k])
    return total + bisect.bisect_left(TABLE, xs[0]) * w[0]


def numpys(w, xs):
    order = np.argsort([a.data for a in w])
    k = int(np.clip(np.searchsorted(TABLE, w[0].data), 1, 3))
    grid = np.array([[a.data, 0.3] for a in w])
    near = sum(a * at for a, at in zip(w, np.argmin(grid, axis=1), strict=True))
    best = np.argmax([a.data for a in w])
    return w[order[0]] * WEIGHTS[k] + near + (w[best] if best == 1 else w[order[-1]] * 2)


def arrays(w, xs):
    values = np.array(list(w))
    return np.maximum(values, 0).sum() + np.minimum(values * 2, 0.5).mean()


def stored(w, xs):
    k = max(range(4), key=lambda i: w[i].data)
    cells = [0.0, 1.0, 2.0, 3.0]
    cells[k] = w[k] * 2
    return sum(c * (i + 1) for i, c in enumerate(cells))


def largest_three(w, xs):
    z = np.array([a * x for a, x in zip(w, xs, strict=True)])
    top = np.argsort([v.data for v in z])[-3:]
    return np.sum(np.tanh(z[top])) + z[top[::-1]][0] * GRID[top].sum()


def largest_rows(w, xs):
    z = np.array([[a, a * 2] for a in w])
    top = np.argsort(-np.array([a.data for a in z[:, 0]]))[:2]
    found = (z[top] * np.array([1.0, 3.0]) + GRID[top]).sum()
    z[top[0]] = 0.0
    return found * z[1, 1] + np.array(xs)[top].sum() * w[0]


FUNCTIONS = [
    *(counted, truths, first_of_largest, nearest, largest_by_key, in_order, interpolated, numpys),
    *(arrays, stored, largest_three, largest_rows),
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_one_recording_answers_all_outcomes(function):
    fast = chainrule.compile(function, on_fallback="eager")
    eager = chainrule.value_and_grad(function)
    for _ in range(60):
        arguments = [RNG.uniform(-2, 2) for _ in range(4)], [RNG.uniform(-2, 2) for _ in range(4)]
        value, gradient = fast.value_and_grad(*arguments)
        wanted = eager(*arguments)
        assert value == pytest.approx(wanted[0], rel=1e-12, abs=1e-12)
        assert gradient == pytest.approx(wanted[1], rel=1e-11, abs=1e-12)
    assert " eager; " in fast.report()
    recordings = int(fast.report().split(" recordings")[0].split()[-1])
    assert recordings <= 10, fast.report()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_equal_numbers_go_as_in_eager_mode(function):
    fast = chainrule.compile(function, on_fallback="eager")
    eager = chainrule.value_and_grad(function)
    for _ in range(60):
        arguments = tuple([RNG.choice([-1.0, -0.0, 0.0, 0.5, 1.0]) for _ in range(4)] for _ in "ab")
        assert fast.value_and_grad(*arguments) == eager(*arguments)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_not_finite_goes_as_in_eager_mode(number):
    def place(w, xs):
        return w[xs.index(min(xs))] * w[int(np.argmin(xs))] + w[bisect.bisect(TABLE, xs[1]) % 4]

    fast = chainrule.compile(place, on_fallback="eager")
    eager = chainrule.value_and_grad(place)
    for _ in range(20):
        w, xs = ([RNG.uniform(-2, 2) for _ in range(4)] for _ in "ab")
        assert fast.value_and_grad(w, xs) == eager(w, xs)
        xs[RNG.randrange(4)] = number
        assert fast.value_and_grad(w, xs) == eager(w, xs)


def test_a_count_is_the_integer_wherever_python_asks_for_it():
    def f(w, xs):
        n = 0
        for a in w:
            if a > 0.0:
                n += 1
        names = {0: "none", 1: "one"}.get(n, f"{n} of them")
        total = w[0] * len(names) + n // 2 + n % 3 - n**2 + (-n) * 0.5
        for k in range(n):
            total = total + w[k] * (n == k) / (n + 1)
        return total + 1.0 / (1 + n) + (w[1] if n in (1, 2) else 0.25) + isinstance(n, int)

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for _ in range(60):
        w = [RNG.uniform(-1, 1) for _ in range(4)]
        value, gradient = fast.value_and_grad(w, [])
        wanted = eager(w, [])
        assert value == pytest.approx(wanted[0], rel=1e-13)
        assert gradient == pytest.approx(wanted[1], rel=1e-12)


def test_accuracy_beside_a_loss_is_one_recording():
    def f(w, xs, y):
        loss, right = 0.0, 0
        for x, label in zip(xs, y, strict=True):
            zs = [tanh(a * x) for a in w]
            loss = loss + log(sum(exp(z) for z in zs)) - zs[label]
            right += int(np.argmax([z.data for z in zs]) == label)
            if zs.index(max(zs)) == label:
                right += 1
        return loss, right / len(y)

    fast = chainrule.compile(f)
    for _ in range(40):
        w, xs = ([RNG.uniform(-2, 2) for _ in range(4)] for _ in "ab")
        y = [RNG.randrange(4) for _ in range(4)]
        (_, share), _ = fast.value_and_grad(w, xs, y)
        assert share == f(*[[chainrule.Value(a) for a in w], xs, y])[1]
    assert int(fast.report().split(" recordings")[0].split()[-1]) <= 10


def test_a_read_that_is_only_made_in_range_is_one_recording():
    def f(w, ns):
        total = 0.0
        for n in ns:
            k = min(n, 3)
            upper = w[k] if k < 3 else 1.0
            lower = w[k - 1] * 2 if k > 0 else 0.0
            if n % 2 == 1:
                upper = upper + (w[n - 4] if n > 3 else w[-1])
            total = total + upper * upper - lower
        return total

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for _ in range(60):
        w, ns = [RNG.uniform(-1, 1) for _ in range(3)], [RNG.randrange(7) for _ in range(6)]
        assert outcome(fast.value_and_grad, w, ns) == outcome(eager, w, ns)
    assert int(fast.report().split(" recordings")[0].split()[-1]) <= 10, fast.report()


def outcome(call, *arguments):
    try:
        value, gradient = call(*arguments)
    except IndexError as error:
        return str(error)
    return [round(x, 11) for x in (value, *gradient)]


def test_a_place_selects_a_row_that_nobody_changes():
    def f(w, xs):
        rows = [[a, a * 2] for a in w]
        row = rows[max(range(4), key=lambda i: w[i].data)]
        row[0] = row[0] * 3
        return sum(r[0] for r in rows) + maximum(row[1], 0.0)

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for _ in range(30):
        w = [RNG.uniform(-1, 1) for _ in range(4)]
        assert fast.value_and_grad(w, [])[0] == pytest.approx(eager(w, [])[0], rel=1e-13)
        assert fast.value_and_grad(w, [])[1] == pytest.approx(eager(w, [])[1], rel=1e-13)


def nested_store(w, xs):
    rows = [[[a]] for a in w]
    rows[xs.index(max(xs))][0][0] = w[1] * 30
    return rows[0][0][0]


def nested_count(w, xs):
    n = 0
    for x in xs[:3]:
        if x > 0:
            n += 1
    rows = [[[a, 1.0], [2.0, a]] for a in w]
    rows[n][1][0] = w[1] * 30
    return rows[0][1][0] + rows[1][1][0]


def nested_in_tuples(w, xs):
    i = max(range(4), key=lambda k: xs[k])
    rows = [([a], k) for k, a in enumerate(w)]
    rows[i][0].append(w[0] * 5)
    return sum(rows[0][0])


def original_changes(w, xs):
    rows = [([a],) for a in w]
    found = rows[xs.index(max(xs))]
    rows[0][0][0] = w[2] * 7
    return found[0][0]


def nested_in_a_dict(w, xs):
    rows = {k: [[a]] for k, a in enumerate(w)}
    rows[xs.index(max(xs))][0].append(w[0] * 5)
    return sum(rows[0][0])


@pytest.mark.parametrize("ways", [None, 0])
@pytest.mark.parametrize(
    "function",
    [nested_store, nested_count, nested_in_tuples, original_changes, nested_in_a_dict],
)
def test_what_is_nested_in_a_selected_row_may_change(function, ways, monkeypatch):
    if ways is not None:  # both sides are recorded at once
        monkeypatch.setattr(branching, "WAYS", ways)
    chance, fast = random.Random(0), chainrule.compile(function, on_fallback="eager")
    for _ in range(60):
        w, xs = ([chance.uniform(-1, 1) for _ in range(4)] for _ in range(2))
        value, gradient = chainrule.value_and_grad(function)(w, xs)
        found = fast.value_and_grad(w, xs)
        assert found[0] == pytest.approx(value, rel=1e-12)
        assert found[1] == pytest.approx(gradient, rel=1e-12)
