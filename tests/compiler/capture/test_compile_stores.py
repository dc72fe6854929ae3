"""Stores whose place is an integer argument: one recording for all places, with eager's results.

``xs[t] = y`` gives every place of a list y or what it had, and the integer chooses at every call.
"""

import random

import numpy as np
import pytest
from compile_twins import outcome

import chainrule
from chainrule import Value, exp

RNG = random.Random(11)


pytestmark = pytest.mark.usefixtures("unchecked")


def compared(f, count=30):
    """The function compiled, after calls with all kinds of integers that gave eager's results."""
    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for _ in range(count):
        p, ts = [RNG.uniform(-2, 2) for _ in range(3)], RNG.choices(range(3), k=4)
        arguments = p, ts, RNG.randrange(3), RNG.randrange(3)
        try:
            wanted = eager(*arguments)
        except Exception as error:
            with pytest.raises(type(error), match=None):
                fast.value_and_grad(*arguments)
            continue
        value, gradient = fast.value_and_grad(*arguments)
        assert value == pytest.approx(wanted[0], rel=1e-12, abs=1e-12)
        assert gradient == pytest.approx(wanted[1], rel=1e-12, abs=1e-12)
    return fast


def histogram(p, ts, i, j):
    totals = [0.0] * 3
    for t in ts:
        totals[t] = totals[t] + p[t]
    return sum(x * x for x in totals) + totals[i] * totals[j]


def counts(p, ts, i, j):
    n = [0] * 3
    for t in ts:
        n[t] += 1
    return p[0] * n[i] + p[n[j] % 3]


def one_hot(p, ts, i, j):
    x = [0.0] * 3
    x[i] = 1.0
    return sum(a * b for a, b in zip(x, p, strict=True)) * p[j]


def from_the_end(p, ts, i, j):
    c = list(p)
    c[i - 3] = p[j] * 2
    c[-1 - j] = c[i] + 1
    return c[0] + 2 * c[1] + 3 * c[2]


def under_two_names(p, ts, i, j):
    c = list(p)
    both = [c, c]
    c[i] = p[j] * 2
    both[0][j] = c[i] + 1
    return c[0] + 2 * both[1][1] + 3 * c[2]


def in_an_array(p, ts, i, j):
    totals = np.zeros(3, dtype=object)
    for t in ts:
        totals[t] += p[t]
    return (totals * totals).sum() + totals[i] * p[j]


def evaluated_in_order(p, ts, i, j):
    seen, c = [], list(p)

    def noted(k):
        seen.append(k)
        return k

    c[noted(i)] = c[noted(j)] * len(seen)
    return c[0] + 2 * c[1] + 3 * c[2] + seen[0]


@pytest.mark.parametrize(
    "f",
    [
        *(histogram, counts, one_hot, from_the_end, under_two_names, in_an_array),
        evaluated_in_order,
    ],
)
def test_one_recording_stores_at_any_place(f):
    fast = compared(f)
    assert (fast.dispatch.counts.traces, fast.dispatch.counts.eager) == (1, 0)


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("kind", [list, object])
@pytest.mark.parametrize("low", [0, -2, -5])
def test_one_recording_stores_at_the_places_in_an_array_of_integers(dtype, kind, low):
    def f(p, places, xs):
        totals = [0.0] * 4 if kind is list else np.zeros(4, dtype=object)
        for k, x in zip(places, xs, strict=True):
            totals[k] += exp(p[k] * x) * 0.1
        totals[places[0]] = totals[places[1]] * 2
        return sum(x * x for x in totals)

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    rng = np.random.default_rng(0)
    for n in range(30):
        places = rng.integers(low, 5 if n > 20 else 4, size=6).astype(dtype)
        arguments = rng.normal(size=4), places, rng.normal(size=6)
        got, wanted = outcome(fast.value_and_grad, *arguments), outcome(eager, *arguments)
        if isinstance(wanted[0], str):
            assert got == wanted
            continue
        assert got[0] == pytest.approx(wanted[0], rel=1e-12)
        assert got[1] == pytest.approx(wanted[1], rel=1e-12)
        if dtype is np.int64 and low == 0 and n == 20:
            assert (fast.dispatch.counts.traces, fast.dispatch.counts.eager) == (1, 0)


def in_a_branch_by_an_array(p, ts, i, j):
    totals = [0.0] * 3
    for t in np.array(ts):
        if t > 0:
            totals[t] += p[t]
        else:
            totals[t] -= p[t - 1] * 2
    return sum(x * x for x in totals) + totals[i] * totals[j]


def test_stores_by_numpys_integers_in_branches_give_eagers_results():
    compared(in_a_branch_by_an_array, 100)


def out_of_range(p, ts, i, j):
    c = [p[0], p[1]]
    c[i] = p[j] * 2
    return c[0] + 2 * c[1]


def of_several_kinds(p, ts, i, j):
    c = [1, 2.0, None, p[0]]
    c[i] = p[1] * 3
    return p[2] if c[j] is None else c[0] * 2 + c[j]


def whole_rows(p, ts, i, j):
    rows = [[p[0], p[1]], [p[1], p[2]], [0.0, 1.0]]
    rows[i] = [p[2], p[0]]
    return rows[j][0] + 2 * rows[0][1]


def into_a_selected_row(p, ts, i, j):
    rows = [[p[0], p[1], 0.5], [p[1], p[2], 1.0], [0.0, 1.0, p[0]]]
    row = rows[i]
    row[j] = p[2] * 3
    return sum(sum(x) * (k + 1) for k, x in enumerate(rows)) + sum(row)


def which_one_it_is(p, ts, i, j):
    c = [p[0], p[1], p[2]]
    c[i] = p[j]
    return p[0] * (2 if c[0] is p[0] else 3) + (p[1] if p[2] in c else p[2])


def whether_it_is_a_value(p, ts, i, j):
    c = [0.0] * 3
    c[i] = p[j] * 2
    return p[0] * sum(isinstance(x, Value) * (k + 1) for k, x in enumerate(c))


def into_an_argument(p, ts, i, j):
    ts[i] = 1
    return p[ts[j]] * 2 + p[0]


class Noting(list):
    def __setitem__(self, key, value):
        list.__setitem__(self, key, value)
        list.append(self, 1.0)


def into_a_list_of_the_users(p, ts, i, j):
    c = Noting(p)
    c[i] = p[j] * 2
    return c[0] + 2 * c[1] + 3 * c[2] + len(c)


@pytest.mark.parametrize(
    "f",
    [
        *(out_of_range, of_several_kinds, whole_rows, into_a_selected_row, which_one_it_is),
        *(whether_it_is_a_value, into_an_argument, into_a_list_of_the_users),
    ],
)
def test_where_a_store_would_show_the_place_is_static(f):
    compared(f)


def test_stores_by_integers_keep_the_bits_of_eager_where_these_were_asked_for():
    def f(p, edges):
        sums = [0.1] * 3
        for a, b in edges:
            sums[b] = sums[b] + exp(p[a]) * 0.3
        ratios = [0.2] * 3
        for a, b in edges:
            ratios[b] = ratios[b] + sums[a] * exp(p[a]) / sums[b]
        return sum(x * (k + 1) for k, x in enumerate(ratios))

    fast, rng = chainrule.compile(f, lift=False), np.random.default_rng(0)
    for _ in range(30):
        p, edges = rng.normal(size=3).tolist(), rng.integers(0, 3, (4, 2)).tolist()
        assert fast.value_and_grad(p, edges) == chainrule.value_and_grad(f)(p, edges)
