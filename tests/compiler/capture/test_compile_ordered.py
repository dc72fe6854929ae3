"""OrderedDicts that are passed: taken as dicts are; their kind is part of a call's structure."""

import copy
from collections import OrderedDict, deque

import numpy as np
import pytest

import chainrule

P = [0.5, 2.0]


def passed(keys="abc"):
    return OrderedDict((key, 0.3 + 0.7 * k) for k, key in enumerate(keys))


def in_order(p, d):
    return sum(p[0] * v * (k + 1) for k, v in enumerate(d.values())) + p[1]


def backwards(p, d):
    return sum(p[0] * d[key] * (k + 1) for k, key in enumerate(reversed(d))) + p[1]


def by_kind(p, d):
    return (p[0] if type(d) is OrderedDict else p[1]) * d["a"]


def as_another(p, d):
    return (p[0] if d == OrderedDict(a=0.3, b=1.0) else p[1]) * d["a"]


def moved(p, d):
    d.move_to_end("a")
    return p[0] * next(iter(d.values())) + p[1] * d["a"]


def moved_and_back(p, d):
    d.move_to_end("a")
    d.move_to_end("a", last=False)
    return p[0] * d["a"] + p[1]


def taken_from_the_front(p, d):
    return p[0] * d.popitem(last=False)[1] + p[1]


def taken_from_the_end(p, d):
    return p[0] * d.popitem()[1] + p[1]


def stored(p, d):
    d["a"] = d["b"] * 2.0
    d["new"] = 1.5
    return p[0] * d["a"] + p[1] * len(d)


def missing(p, d):
    return p[0] * d["nowhere"]


READING = [in_order, backwards, by_kind, as_another]
CHANGING = [moved, moved_and_back, taken_from_the_front, taken_from_the_end, stored]
CALLS = [
    *(passed(), passed("cba"), passed("ab"), passed("ba"), dict(passed("ab")), passed("abcd")),
    *(OrderedDict(a=0.3, b=1.0), OrderedDict(b=1.0, a=0.3), {"b": 1.0, "a": 0.3}, passed()),
]


def outcome(call, *arguments):
    """What a call gave or raised, and what became of its arguments."""
    given = copy.deepcopy(arguments)
    try:
        return repr((call(*given), given))
    except (KeyError, TypeError, AttributeError) as error:
        return repr((error, given))


@pytest.mark.parametrize("lift", [None, False])
@pytest.mark.parametrize("function", [*READING, *CHANGING, missing])
def test_it_is_to_the_function_what_it_is(function, lift):
    fast = chainrule.compile(function, lift=lift, on_fallback="eager")
    for d in CALLS + CALLS:
        wanted = outcome(chainrule.value_and_grad(function), P, d)
        assert outcome(fast.value_and_grad, P, d) == wanted
        assert outcome(fast, P, d) == outcome(function, P, d)


@pytest.mark.parametrize("function", READING)
def test_one_that_is_read_is_replayed(function):
    fast, eager = chainrule.compile(function), chainrule.value_and_grad(function)
    for k in range(20):
        d = OrderedDict(a=0.1 * k, b=1.0, c=k)
        assert fast.value_and_grad(P, d) == eager(P, d)
    assert fast.dispatch.counts.replayed == 20


def test_the_caller_may_turn_one_round_between_two_calls():
    fast, eager, d = chainrule.compile(in_order), chainrule.value_and_grad(in_order), passed()
    seen = set()
    for key in "abcabcbca":
        for _ in range(3):  # the first may be recorded, the next is answered at once
            found = fast.value_and_grad(P, d)
            assert found == eager(P, d)
        seen.add(found[0])
        d.move_to_end(key)
    assert len(seen) > 2
    assert fast.dispatch.counts.eager == 0


def test_one_that_gets_attributes_is_left_to_eager():
    def with_note(p, d):
        return p[0] * getattr(d, "note", 3.0) + p[1] * d["a"]

    fast, eager = (
        chainrule.compile(with_note, on_fallback="eager"),
        chainrule.value_and_grad(with_note),
    )
    d = passed()
    for _ in range(3):
        assert fast.value_and_grad(P, d) == eager(P, d)
    replayed = fast.dispatch.counts.replayed
    for d.note in (1.0, 2.0):
        assert fast.value_and_grad(P, d) == eager(P, d)
    assert fast.dispatch.counts.replayed == replayed > 0


@pytest.mark.parametrize("inside", [False, True], ids=["itself", "in a list"])
def test_an_attribute_that_the_function_sets_is_there_after_each_call(inside):
    def f(x, given):
        d = given[0] if inside else given
        d.calls = getattr(d, "calls", 0) + 1
        return x * d["a"] * d.calls

    fast, found, wanted = chainrule.compile(f, on_fallback="eager"), passed(), passed()
    for _ in range(3):
        here, there = ([found], [wanted]) if inside else (found, wanted)
        assert fast(1.5, here) == f(1.5, there)
    assert vars(found) == vars(wanted) == {"calls": 3}
    rows = np.array([0.5, 1.0, 2.0])
    here, there = ([found], [wanted]) if inside else (found, wanted)
    assert fast.map(rows, here, in_axes=(0, None)).tolist() == [f(x, there) for x in rows]
    assert vars(found) == vars(wanted) == {"calls": 6}


@pytest.mark.parametrize(
    ("x", "instead"),
    [
        (passed(), "of type OrderedDict: pass a dict there"),
        (deque([0.5, 2.0]), "of type deque: pass a list there"),
    ],
)
def test_what_a_recording_is_not_differentiated_by_is_named(x, instead):
    def f(p):
        return sum(p.values() if isinstance(p, dict) else p)

    fast = chainrule.compile(f)
    with pytest.warns(chainrule.FallbackWarning, match=instead):
        assert fast.value_and_grad(x) == chainrule.value_and_grad(f)(x)


def test_one_that_comes_twice_is_one():
    def twice(p, d, e):
        return p[0] * (2.0 if d is e else 1.0) * e["a"] + p[1] * d["b"]

    fast, eager = chainrule.compile(twice), chainrule.value_and_grad(twice)
    d = passed()
    for pair in ((d, d), (d, passed()), (d, d), (passed(), d)):
        assert fast.value_and_grad(P, *pair) == eager(P, *pair)


def test_what_is_stored_in_one_by_a_plain_call_is_in_it():
    fast = chainrule.compile(stored)
    for _ in range(5):
        mine, theirs = passed("ba"), passed("ba")
        assert fast(P, mine) == stored(P, theirs)
        assert type(mine) is OrderedDict
        assert list(mine.items()) == list(theirs.items())
    assert fast.dispatch.counts.replayed == 5


def test_one_of_a_class_of_its_own_is_another_thing():
    class Mine(OrderedDict):
        def __getitem__(self, key):
            return 2.0 * super().__getitem__(key)

    fast, eager = (
        chainrule.compile(in_order, on_fallback="eager"),
        chainrule.value_and_grad(in_order),
    )
    for d in (passed(), Mine(passed()), passed(), Mine(passed())):
        assert fast.value_and_grad(P, d) == eager(P, d)
    assert fast.dispatch.counts.replayed == 2


def test_an_integer_chooses_from_one():
    def chosen(p, d, k):
        return p[0] * d[k] + p[1]

    fast, eager = chainrule.compile(chosen), chainrule.value_and_grad(chosen)
    for k in (3, 1, 0, 2, 3):
        d = OrderedDict((i, 0.1 * i + k) for i in (3, 1, 0, 2))
        assert fast.value_and_grad(P, d, k) == eager(P, d, k)
    assert (fast.dispatch.counts.replayed, fast.dispatch.counts.traces) == (5, 1)


def test_a_saved_function_takes_those_in_its_order_only(tmp_path):
    fast = chainrule.compile(in_order)
    fast.value_and_grad(P, passed())
    fast.save(tmp_path / "f.chainrule", P, passed())
    again = chainrule.load(tmp_path / "f.chainrule")
    d = OrderedDict(a=3.0, b=-1.0, c=0.5)
    assert again.value_and_grad(P, d) == chainrule.value_and_grad(in_order)(P, d)
    for other in (dict(d), OrderedDict(reversed(d.items()))):
        with pytest.raises(chainrule.FallbackError, match="was not saved for this call"):
            again.value_and_grad(P, other)


def test_many_samples_and_arrays_in_place():
    samples = [(OrderedDict(a=0.1 * k, b=1.0, c=0.2),) for k in range(40)]
    fast, eager = chainrule.compile(in_order), chainrule.value_and_grad(in_order)
    value, gradient = fast.batch_value_and_grad(P, samples)
    each = [eager(P, *sample) for sample in samples]
    assert value == pytest.approx(np.mean([v for v, _ in each]))
    assert gradient == pytest.approx(np.mean([g for _, g in each], axis=0))
    params, d = np.array(P), passed()
    bound = fast.bound(params, d)
    for change in (lambda: None, lambda: d.update(a=4.0), lambda: d.move_to_end("a")):
        change()
        assert bound() == pytest.approx(eager(params, d)[0], rel=1e-12)
