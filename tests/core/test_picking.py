"""where, clip, maximum, minimum and softplus are to the bit what their rows of the op table are."""

import itertools
import struct

import numpy as np
import pytest

import chainrule
from chainrule import Value, clip, maximum, minimum, softplus, where
from chainrule.core import ops

NUMBERS = [0.0, -0.0, 1.5, -1.5, 5e-324, 1e308, -1e308, float("inf"), float("-inf"), float("nan")]


class Own(Value):
    """A class of the user's: it goes by its own rules."""


def bits(x):
    return struct.pack("d", x)


def looks(made):
    """All that there is to a node, and its operands; of anything else what it is."""
    if not isinstance(made, Value):
        return type(made), repr(made)
    children = [(type(c), bits(c.data), c.op, c.label) for c in made.children]
    slopes = [*map(bits, made.local_grads)]
    return type(made), bits(made.data), made.op, made._parameters, children, slopes


def outcome(make, *arguments):
    try:
        return looks(make(*arguments))
    except Exception as error:
        return type(error), str(error)


def by_the_row(op, operands, parameters=()):
    """What the row gives that is asked for by its name, in Python."""
    return lambda: Value._apply_op(op, tuple(operands), tuple(parameters))


def pairs():
    for a, b in itertools.product(NUMBERS, NUMBERS):
        yield Value(a), Value(b)
        yield Value(a), b
        yield a, Value(b)
    for other in (3, -7, True, np.float64(0.5), np.int64(2), Own(0.25), 10**400, "text", None):
        yield Value(0.5), other
        yield other, Value(0.5)
    same = Value(2.0)
    yield same, same


@pytest.mark.parametrize("allowed", ["raise", "allow"])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_the_larger_and_the_smaller_are_those_of_the_table(name, allowed):
    op, function = getattr(ops, name), {"maximum": maximum, "minimum": minimum}[name]
    with chainrule.nonfinite(allowed):
        for a, b in pairs():
            assert outcome(function, a, b) == outcome(by_the_row(op, (a, b)))


@pytest.mark.parametrize(
    "condition", [True, False, np.True_, np.False_, 1, 0.0, Value(0.0), Value(3)]
)
def test_where_is_that_of_the_table(condition):
    for a, b in pairs():
        wanted = outcome(by_the_row(ops._where, (a, b), (bool(condition),)))
        assert outcome(where, condition, a, b) == wanted


def test_clip_is_that_of_the_table():
    bounds = [(-1.0, 1.0), (0, 1), (None, 0.5), (-0.0, None), (None, None), (2.0, 2.0)]
    for x, (low, high) in itertools.product(NUMBERS, bounds):
        given = (-np.inf if low is None else low), (np.inf if high is None else high)
        wanted = outcome(by_the_row(ops.clip, (Value(x),), given))
        assert outcome(clip, Value(x), low, high) == wanted
    with pytest.raises(ValueError, match="low <= high"):
        clip(Value(1.0), 2.0, 1.0)
    assert outcome(clip, Own(1.0), 0.0, 0.5) == outcome(
        by_the_row(ops.clip, (Own(1.0),), (0.0, 0.5))
    )
    assert outcome(clip, Value(1.0), "a", 0.5)[0] is TypeError


def test_softplus_is_that_of_the_table():
    numbers = [*NUMBERS, *np.linspace(-800.0, 800.0, 401), *np.linspace(-2.0, 2.0, 401)]
    for x in map(float, numbers):
        made = softplus(Value(x))
        y = ops.softplus.forward(x)
        assert bits(made.data) == bits(y)
        assert [*map(bits, made.local_grads)] == [*map(bits, ops.softplus.local_grads(y, (x,), ()))]


def test_what_is_picked_without_gradients_has_no_children():
    a, b = Value(1.0), Value(2.0)
    with chainrule.no_grad():
        made = [where(a < b, a, b), clip(a, 0.0, 0.5), maximum(a, 3.0), minimum(a, b), softplus(a)]
    assert [y.children for y in made] == [()] * 5
    assert [y.data for y in made[:4]] == [1.0, 0.5, 3.0, 1.0]


def test_what_is_picked_passes_gradients_on_as_the_reference_does():
    a, b = Value(1.0), Value(2.0)
    y = where(a < b, a * b, b) + clip(a, 0.0, 0.5) + maximum(a, 1.0) + minimum(b, a) + maximum(0, b)
    y.backward()
    assert (a.grad, b.grad) == (2.0 + 0.0 + 0.5 + 1.0, 1.0 + 0.0 + 1.0)


def test_arrays_and_numbers_are_picked_as_before():
    a, b = Value(1.0), Value(-2.0)
    each = where(np.array([True, False]), np.array([a, b]), 0.0)
    assert [y.data for y in each] == [1.0, 0.0]
    assert (where(True, 1, 2), clip(3.0, 0.0, 1.0), maximum(1, 2), minimum(1, 2)) == (1, 1, 2, 1)
    assert maximum(np.array([1.0, 5.0]), 2.0).tolist() == [2.0, 5.0]


def test_compiled_functions_pick_as_eager_ones_do():
    def f(p, xs):
        total = 0.0
        for x in xs:
            r = p[0] * x + p[1]
            total = total + where(abs(r) < 1.0, 0.5 * r * r, maximum(r, 0.1)) + minimum(r, x)
            total = total + clip(r, -1.0, 1.0) * softplus(r)
        return total

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for scale in (0.5, 1.0, -1.0, 2.0, 0.0):
        call = [scale, 0.25], [0.5, -1.5, 2.0, scale]
        assert fast.value_and_grad(*call) == eager(*call)
