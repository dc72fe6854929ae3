"""What is one object in the result of eager mode is one in that of a replay, tuples too."""

from collections import namedtuple

import pytest

import chainrule
from chainrule import Value

Pair = namedtuple("Pair", "first second")


def twice(x):
    made = (x, 1)
    return made, made


def in_a_dict(x):
    made = (x, 2.0)
    return {"best": made, "all": [made, (x, 2.0)]}


def nested(x):
    inner = (x * 2,)
    return [(inner, 1), (inner, 2), (), ()]


def named(x):
    made = Pair(x, (x, x))
    return [made, made.second]


def apart(x):
    return (x, 1), (x, 1)


def ids(tree):
    """The places of each container, in order: equal for trees of one shape with one sharing."""
    order, found = {}, []

    def walk(x):
        if isinstance(x, (list, tuple, dict)) and x != ():
            found.append(order.setdefault(id(x), len(order)))
            for item in x.values() if isinstance(x, dict) else x:
                walk(item)

    walk(tree)
    return found


@pytest.mark.parametrize("function", [twice, in_a_dict, nested, named, apart])
def test_a_tuple_that_comes_twice_in_the_result_is_one_there_too(function):
    fast = chainrule.compile(function)
    for k in range(30):
        expected, found = function(float(k)), fast(float(k))
        assert found == expected
        assert ids(found) == ids(expected)
    assert ": 0 replayed" not in fast.report()


def test_a_tuple_that_is_returned_and_kept_is_one():
    def kept(x, rows):
        made = (x, 1)
        rows.append(made)
        return made

    fast, rows = chainrule.compile(kept), []
    for k in range(20):
        assert fast(float(k), rows) is rows[-1]
    assert ": 0 replayed" not in fast.report()


def test_tuples_of_numbers_beside_values_keep_their_identities():
    def numbers(values):
        made = (values[0].data, 1)
        return made, made

    fast = chainrule.compile(numbers, on_fallback="eager")
    for k in range(20):
        first, second = fast([Value(float(k))])
        assert first is second
        assert first == (float(k), 1)


def test_a_call_with_values_that_returns_no_value_is_replayed_and_nobody_is_warned(recwarn):
    weight = Value(3.0)

    def early(xs, n):
        if n == 0:
            return 0.0
        return {"scaled": [x.data * n for x in xs], "many": n > 2, "weight": weight.data}

    fast = chainrule.compile(early, lift=False)
    for k in range(40):
        xs = [Value(k + 1.0), Value(2.0)]
        assert fast(xs, k % 4) == early(xs, k % 4)
    assert ": 0 replayed" not in fast.report()
    assert not recwarn.list


def test_a_range_that_is_passed_is_refused_with_what_to_pass(recwarn):
    fast = chainrule.compile(lambda xs, places: sum(x * k for x, k in zip(xs, places, strict=True)))
    fast.value_and_grad([1.0, 2.0], range(2))
    assert "pass list(...) of it" in str(recwarn.pop().message)
