"""Large containers that are read by traced integers: gone through once, and right when changed."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest
from compared_calls import compared

from chainrule import tanh
from chainrule.compiler.capture import reading, unchanged

COUNT = 600
TEXT = "".join(random.Random(1).choices("abcdefgh", k=COUNT))
PLACES = {c: i for i, c in enumerate("abcdefgh")}
NUMBERS = tuple(7 * k % 8 for k in range(COUNT))
FLOATS = [0.25 * (5 * k % 11) for k in range(COUNT)]
ROWS = [[0.5 * (k % 7), 1.0 - 0.125 * (k % 5)] for k in range(COUNT)]
PAIRS = tuple(tuple(row) for row in ROWS)
W = [0.5, -1.25, 2.0, 0.75, -0.5, 1.5, 0.25, 3.0]


def of_text(p, at):
    return sum(tanh(p[PLACES[TEXT[at + j]]]) for j in range(20))


def of_numbers(p, at):
    return sum(tanh(p[NUMBERS[at + j]]) for j in range(20))


def of_floats(p, at):
    return sum(tanh(p[0] * FLOATS[at + j]) for j in range(20))


def of_rows(p, at):
    return sum(tanh(p[0] * ROWS[at + j][1]) for j in range(20))


def of_pairs(p, at):
    return sum(tanh(p[0] * PAIRS[at + j][1]) for j in range(20))


PLACES_OF_CALLS = [3, 250, 17, 90, 570, 3, 444, 91]


@pytest.mark.parametrize("function", [of_text, of_numbers, of_floats, of_rows, of_pairs])
def test_a_large_container_is_gone_through_once_in_a_run_however_often_it_is_read(
    function, monkeypatch
):
    gone_through = []

    def flattened(items):
        gone_through.append(len(items))
        return whole(items)

    whole = reading.flattened
    monkeypatch.setattr(reading, "flattened", flattened)
    fast = compared(function, [(W, at) for at in PLACES_OF_CALLS])
    assert fast.dispatch.counts.traces == 1
    assert fast.dispatch.counts.replayed == len(PLACES_OF_CALLS)
    large = [count for count in gone_through if count == COUNT]
    # once while it is recorded and once while that is checked; of a text not even that
    assert len(large) == (0 if function is of_text else 2)


def test_parameters_in_many_rows_are_gone_through_once_in_a_run(monkeypatch):
    gone_through, whole = [], reading.flattened
    monkeypatch.setattr(
        reading, "flattened", lambda items: gone_through.append(len(items)) or whole(items)
    )

    def f(rows, tokens):
        return sum(sum(tanh(v) for v in rows[t]) for t in tokens)

    rng = np.random.default_rng(0)
    rows = rng.normal(size=(COUNT, 2)).tolist()
    calls = [(rows, rng.integers(0, COUNT, 30).tolist()) for _ in range(4)]
    fast = compared(f, calls)
    assert fast.dispatch.counts.traces == 1
    assert 0 < gone_through.count(COUNT) <= 3  # runs, each of which reads 30 rows


# --- changed between two reads --------------------------------------------------------------------


def stored(p, at):
    xs = [v * p[0] for v in FLOATS]
    first = xs[at]
    xs[at + 1] = p[1]
    return first + xs[at] * xs[at + 1]


def stored_by_another_name(p, at):
    xs = [v * p[0] for v in FLOATS]
    put = xs.__setitem__
    first = xs[at]
    put(3, p[1])
    second = xs[at]
    put(4, p[2])
    return first + second * xs[at]


def grown(p, at):
    xs = [v * p[0] for v in FLOATS]
    push = xs.append
    first = xs[-at]
    push(p[1])
    second = xs[-at]
    push(p[2])
    return first + second * xs[-at]


def taken_away(p, at):
    xs = [v * p[0] for v in FLOATS]
    first = xs[at]
    del xs[0]
    second = xs[at]
    xs.insert(0, p[1])
    return first + second * xs[at]


def put_back(p, at):
    xs = [v * p[0] for v in FLOATS]
    old = xs[at]
    xs[3], kept = p[1], xs[3]
    changed = xs[at]
    xs[3] = kept
    return old + changed * xs[at]


def sliced(p, at):
    xs = [v * p[0] for v in FLOATS]
    first = xs[at]
    xs[1:5] = [p[1], p[2], p[3], p[4]]
    return first * xs[at]


def turned_round(p, at):
    xs = [v * p[0] for v in FLOATS]
    first = xs[at]
    xs.reverse()
    return first * xs[at]


def pushed(p, at):
    xs = list(range(COUNT))
    first = xs[at]
    heapq.heapreplace(xs, 2 * COUNT)
    return p[first % 8] * p[xs[at] % 8]


def a_row(p, at):
    rows = [[v * p[0], v] for v in FLOATS]
    first = rows[at][0]
    rows[3][0] = p[1]
    return first + rows[at][0] * p[2]


def a_row_in_a_tuple(p, at):
    rows = tuple([v * p[0], v] for v in FLOATS)
    first = rows[at][0]
    rows[3][0] = p[1]
    second = rows[at][0]
    rows[3][0] = FLOATS[3] * p[0]
    return first + second * rows[at][0]


def a_dict_for_a_row(p, at):
    rows = [{"a": v * p[0], "b": v} for v in FLOATS]
    first = rows[at]["a"]
    kept, rows[3]["a"] = rows[3]["a"], p[1]
    second = rows[at]["a"]
    rows[3]["a"] = kept
    return first + second * rows[at]["a"]


def an_array(p, at):
    rows = [np.array([v, 1.0]) for v in FLOATS]
    first = rows[at][0]
    rows[3] += 2.0
    return p[0] * first + p[1] * rows[at][0]


def captured(p, at):
    first = FLOATS[at]
    old, FLOATS[3] = FLOATS[3], 9.0
    second = FLOATS[at]
    FLOATS[3] = old
    return p[0] * first + p[1] * second + FLOATS[at]


def another_at_its_address(p, at):
    total = 0.0
    for k in range(4):
        total = total + [v * p[k] for v in FLOATS][at]
    return total


CHANGING = [
    *(stored, stored_by_another_name, grown, taken_away, put_back, sliced, turned_round, pushed),
    *(a_row, a_row_in_a_tuple, a_dict_for_a_row, an_array, captured, another_at_its_address),
]


@pytest.mark.parametrize("kernels", ["in C", "in Python"])
@pytest.mark.parametrize("function", CHANGING)
def test_what_is_changed_between_two_reads_is_read_as_it_is(function, kernels, monkeypatch):
    if kernels == "in Python":
        monkeypatch.setattr(unchanged, "kernels", None)
    before = list(FLOATS)
    fast = compared(function, [(W, at) for at in (3, 4, 2, 300, 3, 599 - 3, 5)])
    assert fast.dispatch.counts.replayed == (0 if function is captured else 7)
    assert before == FLOATS


def test_a_changed_container_is_told_from_what_it_was():
    inner, array, row = [1.0], np.array([1.0, 2.0]), {"a": 1.0}
    for container in (
        [1, 2, 3],
        [inner, 2],
        (inner, 2),
        [array],
        ([array], [inner]),
        [row],
        (row,),
    ):
        findings = unchanged.Findings()
        assert findings.get(container) is None
        findings.put(container, "found")
        assert findings.get(container) == "found"
        assert findings.get([*container]) is None  # another list
        inner.append(2.0)
        array[1] += 1.0
        row["a"] += 1.0
        if container == [1, 2, 3]:
            container[0] = 4
        assert findings.get(container) is None
        findings.put(container, "anew")
        assert findings.get(container) == "anew"


def test_a_container_that_is_far_too_large_is_refused_before_it_is_gone_through(monkeypatch):
    monkeypatch.setattr(reading, "_MOST_ITEMS", COUNT - 1)
    monkeypatch.setattr(reading, "flattened", None)  # which nobody calls
    for function in (of_text, of_numbers, of_rows):
        fast = compared(function, [(W, at) for at in PLACES_OF_CALLS])
        assert fast.dispatch.counts.replayed == 0
        (reason,) = fast.dispatch.notices.reasons
        assert reason.startswith(
            f"it reads items of a container with {COUNT} by integers, all of which a recording "
            "would hold: pass it a slice or those that it needs, at test_compile_large_tables.py:"
        )
