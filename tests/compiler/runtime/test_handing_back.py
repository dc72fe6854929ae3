"""Plain calls that return what they were passed, or change it: the very objects, as eager does."""

import copy
import dataclasses
import types
from collections import deque
from typing import NamedTuple

import numpy as np
import pytest
from handed_trees import picture

import chainrule
from chainrule import exp, relu, tanh


def outcome(f, arguments):
    try:
        result = f(*arguments)
    except Exception as error:
        return (type(error), str(error)), picture(list(arguments))
    return picture(list(arguments), result)


def check(f, *calls, replays=True):
    """Each call compiled, three times, as eager mode does it on copies; by the tape too."""
    checked(f, calls, replays, lift=False)
    return checked(f, calls, replays, lift=True)


def checked(f, calls, replays, **options):
    fast = chainrule.compile(f, on_fallback="eager", **options)
    for _ in range(3):
        for arguments in calls:
            given, other = (copy.deepcopy(list(arguments)) for _ in range(2))
            assert outcome(fast, given) == outcome(f, other), arguments
    report = fast.report()
    assert (" 0 eager" in report) is replays, report
    return fast


P = [0.5, -1.5, 2.0]


def step(p, x, keys, values):
    key = [a * b for a, b in zip(p, x, strict=True)]
    keys, values = [*keys, key], [*values, x]
    return [sum(a * b for a, b in zip(k, x, strict=True)) for k in keys], keys, values


def test_a_cache_that_grows_is_returned_with_the_rows_that_were_passed():
    rows = [[float(k), 1.0, -k / 2] for k in range(6)]
    check(step, *[(P, [1.0, 2.0, 3.0], rows[:n], rows[:n][::-1]) for n in range(6)])


def test_a_sampling_loop_gives_the_same_numbers_and_the_same_lists():
    fast = chainrule.compile(step, lift=True)
    states = [([], []), ([], [])]
    for k in range(20):
        x = [0.1 * k, 1.0, -0.5]
        results = [f(P, x, *state) for f, state in zip((fast, step), states, strict=True)]
        for (_, *state), before in zip(results, states, strict=True):
            assert all(a is b for a, b in zip(state[0], before[0], strict=False))
            assert state[1][-1] is x
        assert results[0][0] == pytest.approx(results[1][0], rel=1e-12)
        states = [tuple(state) for _, *state in results]
    assert "20 replayed" in fast.report()


def append(p, x, keys):
    keys[0].append([a * b for a, b in zip(p, x, strict=True)])
    return [sum(a * b for a, b in zip(k, x, strict=True)) for k in keys[0]]


def test_a_list_that_was_passed_is_appended_to():
    rows = [[float(k), 1.0, -k / 2] for k in range(5)]
    check(append, *[(P, [1.0, 2.0, 3.0], [rows[:n]]) for n in range(5)])


def put(p, state):
    state["h"] = [tanh(a + b) for a, b in zip(p, state["h"], strict=True)]
    state["steps"] += 1
    state["new"] = exp(p[0])


def test_a_dict_that_was_passed_gets_other_items_and_nothing_is_returned():
    check(put, (P, {"h": [1.0, 2.0, 3.0], "steps": 4}), (P, {"h": [0.0] * 3, "steps": 5}))
    check(put, (P, {"new": 1.0, "h": [1.0, 2.0, 3.0], "steps": 4}))


def test_a_function_that_returns_nothing_changes_its_argument_once():
    fast = chainrule.compile(put, lift=True)
    state = {"h": [1.0, 2.0, 3.0], "steps": 0}
    for k in range(10):
        assert fast(P, state) is None
        assert state["steps"] == k + 1


@dataclasses.dataclass
class State:
    h: list
    count: int = 0


class Memory:
    def __init__(self, width):
        self.keys = [[] for _ in range(width)]
        self.total = 0.0

    def add(self, x):
        self.keys[0].append(x)
        self.total = self.total + x[0]


def test_attributes_of_objects_that_were_passed_are_set():
    def remember(p, memory):
        memory.add([a * 2 for a in p])
        return memory.total

    def count(p, state):
        state.count += 1
        state.h = [a + b for a, b in zip(p, state.h, strict=True)]
        return state

    def name(p, space):
        space.h[0] = space.h[0] * p[0]
        return {"space": space, "h": space.h}

    check(remember, (P, Memory(2)))
    check(count, (P, State([1.0, 2.0, 3.0], 3)), (P, State([1.0, 2.0, 3.0], 4)))
    check(name, (P, types.SimpleNamespace(h=[1.0, 2.0])))


def test_deques_and_sliding_windows():
    def push(p, window):
        window.append(p[0] * window[0])
        return sum(window)

    def shift(p, window):
        window.append(window[0] + p[0])
        window.pop(0)
        return window[-1] * 2

    def turn(p, window):
        window.append(p[0] * 2)
        window.popleft()
        return deque([x + 1 for x in window], maxlen=7)

    check(push, (P, deque([1.0, 2.0], maxlen=2)), (P, deque([1.0, 2.0])))
    check(shift, (P, [1.0, 2.0, 3.0]), (P, [1.0]))
    check(turn, (P, deque([1.0, 2.0, 3.0])), (P, deque([1.0], maxlen=1)))


def test_items_that_are_replaced_removed_or_all_new():
    def swap(p, xs):
        xs[0], xs[1] = xs[1], xs[0] * p[0]
        return xs[0]

    def last(p, xs):
        x = xs.pop()
        return x * p[0]

    def whole(p, xs):
        xs[:] = [x * p[0] for x in xs] + [1.0]
        return xs

    def turned(p, xs):
        xs.reverse()
        return xs[0][0] * p[0]

    check(swap, (P, [1.0, 2.0, 3.0]))
    check(last, (P, [1.0, 2.0]), (P, [5.0]))
    check(whole, (P, [1.0, 2.0]), (P, []))
    check(turned, (P, [[1.0], [2.0], [3.0]]))


def test_arrays_that_were_passed_are_written_into():
    def write(p, cache, k):
        cache[k] = p * 2.0
        return cache.sum()

    def items(p, h):
        for k in range(len(h)):
            h[k] = tanh(p[k] * h[k])
        return h

    p, cache = np.array(P), np.ones((4, 3))
    check(write, (p, cache, 0), (p, cache, 3), (p, cache, -1))
    check(items, (p, np.ones(3)), (P, np.array([0.5, 0.0, -1.0])))
    check(items, (p, np.ones((3, 2)).T[0]))


def test_an_array_that_has_one_number_in_two_places():
    def write(p, h):
        for k in range(3):
            h[k] = p[k] + h[k - 1]
        return h[0]

    fast = chainrule.compile(write, lift=True, on_fallback="eager")
    for k in range(6):
        found = []
        for f in (fast, write):
            h = np.array([1.0, 2.0, 3.0, 4.0])
            h = np.lib.stride_tricks.as_strided(h, (3,), (0 if k % 2 else 8,))
            found.append((float(f(P, h)), h.tolist()))
        assert found[0] == found[1]


def test_an_array_that_may_not_be_written_into_raises():
    def write(p, cache):
        cache[0] = p[0] * 2.0
        return cache[1]

    fast = chainrule.compile(write, lift=True, on_fallback="eager")
    array = np.array([1.0, 2.0])
    for _ in range(3):
        fast(P, array)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        fast(P, array)


def test_what_is_returned_twice_or_is_in_two_places_is_one():
    def both(p, h, c):
        h = [relu(a * b) for a, b in zip(p, h, strict=True)]
        return h, (h, c), {"c": c, "h": h}

    def kept(p, history):
        new = [a * 2 for a in p]
        history.append(new)
        return new

    def state(p, pair):
        return p[0] * pair[0][0], pair, pair[1]

    check(both, (P, [1.0, 2.0, 3.0], [4.0]))
    check(kept, (P, []), (P, [[1.0]]))
    check(state, (P, ([1.0], [2.0])))


def test_arguments_that_are_one_list_are_told_from_two():
    def extend(p, a, b):
        a.append(p[0] * 2)
        return sum(b) * p[1]

    one, two = [1.0, 2.0], [1.0, 2.0]
    fast = chainrule.compile(extend, lift=True, on_fallback="eager")
    for pair in ((one, two), (one, one), (two, one), (two, two)) * 4:
        given, other = copy.deepcopy(pair), copy.deepcopy(pair)
        assert fast(P, *given) == pytest.approx(extend(P, *other), rel=1e-12)
        assert given == other


def test_an_argument_inside_another_is_changed_in_both():
    def extend(p, rows, row):
        row[0] = row[0] * p[0]
        return [r[0] * p[1] for r in rows]

    fast = chainrule.compile(extend, lift=True, on_fallback="eager")
    for k in range(8):
        given, other = [[1.0], [2.0]], [[1.0], [2.0]]
        apart = k % 2
        row, same = ([3.0], [3.0]) if apart else (given[1], other[1])
        assert fast(P, given, row) == pytest.approx(extend(P, other, same), rel=1e-12)
        assert (given, row) == (other, same)


KEPT = [1.0, 2.0]


def test_an_argument_that_the_function_reads_by_itself_too():
    def extend(p, xs):
        xs[0] = xs[0] * p[0]
        return KEPT[0] + xs[0]

    fast = chainrule.compile(extend, lift=True, on_fallback="eager")
    for k in range(9):
        KEPT[:] = [1.0, 2.0]
        wanted = extend(P, KEPT if k % 3 == 2 else [5.0, 6.0])
        KEPT[:] = [1.0, 2.0]
        assert fast(P, KEPT if k % 3 == 2 else [5.0, 6.0]) == wanted


def test_arrays_in_one_memory():
    def write(p, a, b):
        a[0] = p[0] * 3.0
        return b[0] * 2.0

    fast = chainrule.compile(write, lift=True, on_fallback="eager")
    for k in range(12):
        results = []
        for f in (fast, write):
            a = np.array([1.0, 2.0, 3.0])
            b = (np.array([1.0, 2.0]), a[:2], a[::-1][:2])[k % 3]
            results.append((float(f(P, a, b)), a.tolist(), b.tolist()))
        assert results[0] == results[1]


def test_a_store_that_is_put_back_is_seen_by_the_same_list_elsewhere():
    def back(p, a, b):
        before = a[0]
        a[0] = p[0] * 10.0
        found = b[0] * 2.0
        a[0] = before
        return found

    fast = chainrule.compile(back, lift=True, on_fallback="eager")
    for k in range(8):
        a = [1.0, 2.0]
        b = a if k % 2 else [1.0, 2.0]
        assert fast(P, a, b) == (10.0 if k % 2 else 2.0)
        assert a == [1.0, 2.0]


def test_an_undefined_value_leaves_no_half_of_a_change():
    def log(p, xs):
        xs.append(p[0])
        return chainrule.log(p[0]) + len(xs)

    check(log, ([1.0], [2.0]), ([-1.0], [2.0]), ([0.0], [2.0]), replays=False)


def test_a_branch_that_changes_on_one_side():
    def clip(p, xs):
        if p[0] > 1.0:
            xs.append(p[0] * 2)
        return p[0] * 3

    check(clip, ([2.0], [1.0]), ([0.5], [1.0]))


def test_integers_that_are_computed_are_returned():
    def count(p, n, ns):
        return p[0] * n, n + 1, {"n": [3 * n, ns[0] - n]}

    fast = check(count, *[([2.0], n, [5, 7]) for n in range(6)], ([1.0], 2**51, [1, 2]))
    assert "; 1 recordings" in fast.report()
    for n in (2**53 - 1, 2**53, 2**53 + 1, 2**60, 2**70, -(2**64)):
        found = fast([2.0], n, [5, 7])
        assert found == count([2.0], n, [5, 7])
        assert type(found[1]) is int


def test_an_integer_beyond_single_precision_is_returned_as_it_is():
    def count(p, n):
        return sum(a * n for a in p), n + 1

    fast = chainrule.compile(count, dtype="float32", lift=True, on_fallback="eager")
    for n in (3, 2**24 + 1, 2**30 + 3):
        assert fast(P, n)[1] == n + 1


def test_a_map_does_not_change_what_it_is_passed_by_a_replay():
    def note(p, x):
        p["seen"] = x
        return x * p["w"]

    fast = chainrule.compile(note, lift=True, on_fallback="eager")
    p = {"w": 2.0, "seen": 0.0}
    fast(p, 1.0)
    assert fast.map(p, np.array([3.0, 4.0, 5.0])).tolist() == [6.0, 8.0, 10.0]
    assert p["seen"] == 5.0


def test_named_tuples_and_records_are_returned():
    def filtered(p, state):
        return dataclasses.replace(state, h=[a * 2 for a in state.h], count=state.count + 1)

    def point(p, x):
        return Point(p[0] * x, [p[1]])

    check(filtered, (P, Plain([1.0], 3)), (P, Plain([1.0], 4)))
    check(point, (P, 2.0))


@dataclasses.dataclass
class Plain:
    h: list
    count: int


class Point(NamedTuple):
    x: float
    y: list


def test_a_hidden_difference_in_the_first_call_is_no_matter():
    def hidden(p, cache):
        cache.append([p[0] * x for x in p])
        return [sum(row) * p[0] for row in cache]

    zero = [0.0, 1.0, 2.0]
    check(hidden, (zero, []), (zero, [[1.0]]), (P, [[1.0]]), (P, []))


def test_a_row_that_an_integer_selects_is_the_callers_own():
    def row(p, rows, k):
        return p[0] * 2, rows[k]

    def extend(p, rows, k):
        rows[k].append(p[0] * 2)
        return sum(map(len, rows))

    rows = [[1.0], [2.0], [3.0]]
    fast = chainrule.compile(row, lift=True, on_fallback="eager")
    for k in (0, 1, 2, 1, -1):
        assert fast(P, rows, k)[1] is rows[k]
    for k in (0, 2, 1):
        check(extend, (P, rows, k))


def test_saving_says_why_not(tmp_path):
    fast = chainrule.compile(append, lift=True)
    fast(P, [1.0, 2.0, 3.0], [[]])
    with pytest.raises(Exception, match="a container that it was passed"):
        fast.save(tmp_path / "f.chainrule")


def test_values_around_leave_it_to_eager_mode():
    fast = chainrule.compile(step, on_fallback="eager")
    p = [chainrule.Value(x) for x in P]
    for _ in range(3):
        scores, keys, _ = fast(p, [1.0, 2.0, 3.0], [[1.0, 1.0, 1.0]], [])
        sum(scores).backward()
        assert keys[0] == [1.0, 1.0, 1.0]


def test_an_object_and_its_attributes_as_two_arguments():
    def scale(p, memory, attributes):
        memory.total = p[0] * 2.0
        return memory.total + attributes["total"]

    def back(p, memory, attributes):
        before = memory.total
        memory.total = p[0]
        found = attributes["total"] * p[1]
        memory.total = before
        return found

    for f in (scale, back):
        fast = chainrule.compile(f, lift=True, on_fallback="eager")
        for k in range(12):
            found = []
            for g in (fast, f):
                memory = Memory(1)
                other = vars(memory) if k % 3 == 2 else {"keys": [[]], "total": 7.0}
                found.append((g(P, memory, other), vars(memory), other))
            assert found[0] == found[1]


def test_items_under_integers_that_follow_each_other():
    def both(p, state):
        return p[0] * 2, [state[5], state[6]], state[6]

    check(both, (P, {5: [1.0], 6: [2.0]}), (P, {5: [3.0], 6: [2.0]}))


def test_a_key_that_comes_anew_is_the_one_that_eager_mode_leaves():
    def one(p, state):
        del state[(1,)]
        state[(True,)] = p[0]

    def zero(p, state):
        state[1.0] = state.pop(1)
        return p[0]

    for f, key in ((one, (1,)), (zero, 1)):
        fast = chainrule.compile(f, lift=True, on_fallback="eager")
        for _ in range(3):
            states = [{key: 2.0}, {key: 2.0}]
            assert fast(P, states[0]) == f(P, states[1])
            assert repr(states[0]) == repr(states[1])


def test_an_attribute_that_is_deleted_and_set_again_comes_last():
    def again(p, memory):
        total = memory.total
        del memory.keys
        memory.keys = [[total]]
        return total * p[0]

    fast = chainrule.compile(again, lift=True, on_fallback="eager")
    for _ in range(3):
        pair = [Memory(1), Memory(1)]
        assert fast(P, pair[0]) == again(P, pair[1])
        assert list(vars(pair[0])) == list(vars(pair[1])) == ["total", "keys"]


class Wrapped(NamedTuple):
    h: list
    x: float

    def total(self):
        return sum(self.h) * self.x


@dataclasses.dataclass
class Layer:
    h: list
    x: float

    def total(self):
        return sum(self.h) * self.x


@dataclasses.dataclass
class Derived:
    h: list
    x: float

    def __post_init__(self):
        self.more = [self.x]


@dataclasses.dataclass(init=False)
class Turned:
    h: list
    x: float

    def __init__(self, h, x):
        self.x, self.h = x, h


class Checked(Wrapped):
    def __new__(cls, h, x):
        return super().__new__(cls, h, abs(x))


@pytest.mark.parametrize("kind", [Wrapped, Layer, Derived, Turned, Checked])
def test_records_with_methods_hold_the_callers_own_lists(kind):
    def wrapped(p, h):
        return kind(h, p[0]), h

    def kept(p, h):
        made = kind([p[0] * x for x in h], p[1])
        return made.total() if hasattr(made, "total") else 0.0, {"made": made, "again": made}

    replays = kind in (Wrapped, Layer)
    check(wrapped, (P, [1.0]), (P, [2.0]), ([0.0, 1.0, 1.0], [3.0]), replays=replays)
    check(kept, (P, [1.0]), (P, [2.0]), ([0.0, 1.0, 1.0], [3.0]), replays=replays)


@pytest.mark.parametrize("kind", [Wrapped, Layer, Derived])
def test_records_beside_values_hold_the_callers_own_lists(kind):
    scale = chainrule.Value(2.0)

    def captured(p, h):
        return p[0] * scale, kind(h, p[1])

    def passed(p, h, v):
        return p[0] * v, kind(h, p[1])

    for f, others in ((captured, ()), (passed, (scale,))):
        fast = chainrule.compile(f, on_fallback="eager")
        for k in range(4):
            h = [1.0 * k]
            y, made = fast(P, h, *others)
            assert y.data == 1.0
            assert made.h is h
            assert vars(made) == vars(kind(h, P[1])) if kind is not Wrapped else made == (h, P[1])
