"""Rounding: Python's own operators and functions on Values, and in compiled functions."""

import math

import numpy as np
import pytest

import chainrule
from chainrule import Value, gradients

NUMBERS = (-7.5, -3.0, -2.5, -0.5, -0.0, 0.0, 0.3, 1.0, 2.5, 3.5, 1e17)


@pytest.mark.parametrize("x", NUMBERS)
def test_functions_of_one_number_are_pythons(x):
    for function in (math.floor, math.ceil, math.trunc, round):
        v = Value(x)
        y = function(v)
        assert (y.data, type(y)) == (function(x), Value)
        assert gradients(y, v) == 0.0
    assert chainrule.sign(Value(x)).data == (x > 0) - (x < 0)


@pytest.mark.parametrize("b", [-2.5, -1.0, 0.3, 1.0, 7.0, 1e-3])
@pytest.mark.parametrize("a", NUMBERS)
def test_division_with_rest_is_pythons_to_the_last_bit(a, b):
    x, y = Value(a), Value(b)
    for found, wanted in [
        (x % y, a % b),
        (x // y, a // b),
        (x % b, a % b),
        (a // y, a // b),
        (a % y, a % b),
        (divmod(x, y)[1], divmod(a, b)[1]),
        (divmod(a, y)[0], divmod(a, b)[0]),
    ]:
        assert found.data.hex() == wanted.hex()
    assert gradients(x % y, [x, y]) == [1.0, -(a // b)]
    assert gradients(x // y, [x, y]) == [0.0, 0.0]


def test_a_division_by_zero_is_pythons_error():
    for operation in (
        lambda v: v % 0,
        lambda v: v // 0.0,
        lambda v: 1 % (v - 2),
        lambda v: 1 // (v - 2),
    ):
        with pytest.raises(ZeroDivisionError, match="division by zero"):
            operation(Value(2.0))


def test_what_cannot_be_divided_is_left_to_the_other_operand():
    v = Value(2.5)
    array = np.array([1.0, 2.0])
    assert [y.data for y in v % array] == [0.5, 0.5]
    assert [y.data for y in array // v] == [0.0, 0.0]
    with pytest.raises(TypeError, match="unsupported operand"):
        v % "1"
    with pytest.raises(TypeError, match=r"round\(v.data, 2\)"):
        round(v, 2)


def test_numpys_functions_work_on_arrays_of_values():
    xs = np.array([Value(2.5), Value(-1.25)])
    for name in ("floor", "ceil", "trunc", "rint", "round"):
        numbers = getattr(np, name)(np.array([2.5, -1.25])).tolist()
        assert [y.data for y in getattr(np, name)(xs)] == numbers
    assert [y.data for y in np.mod(xs, 1.0)] == [0.5, 0.75]
    assert [y.data for y in np.floor_divide(xs, 1.0)] == [2.0, -2.0]


def folded(p, x):
    """Rounding in the middle of a differentiable function."""
    total = 0.0
    for i in range(8):
        phase = (p[i] * x + p[i + 8]) % 1
        total = (
            total + phase * p[i] + p[i] // 0.25 * 0.5 + chainrule.sign(p[i]) * math.floor(3 * p[i])
        )
    return total


@pytest.mark.parametrize("lift", [False, True])
def test_compiled_as_eager(lift):
    fast = chainrule.compile(folded, lift=lift, on_fallback="raise")
    for seed in range(4):
        p = np.random.default_rng(seed).normal(size=16)
        value, slopes = fast.value_and_grad(p, 3.0)
        wanted, by_eager = chainrule.value_and_grad(folded)(p, 3.0)
        assert value == pytest.approx(wanted, rel=1e-12)
        np.testing.assert_allclose(slopes, by_eager, rtol=1e-12)
    assert ("lifted to" in fast.report()) == lift


@pytest.mark.parametrize("lift", [False, True])
def test_near_a_jump_compiled_code_takes_eagers_side(lift):
    """Machine code adds in its own order: tenths that make up a whole number end beside it."""

    def steps(p):
        return sum(math.floor(sum(p[8 * i : 8 * i + 8])) * p[8 * i] for i in range(12))

    fast = chainrule.compile(steps, lift=lift, on_fallback="raise")
    rng = np.random.default_rng(0)
    assert fast.value_and_grad(rng.uniform(0.1, 5.0, size=96))
    for _ in range(20):
        p = np.round(rng.uniform(0.0, 1.0, size=(12, 8)), 1)
        rest = p[:, :7].sum(axis=1)
        p[:, 7] = np.round(np.ceil(rest + 1e-9) - rest, 1)
        wanted = chainrule.value_and_grad(steps)(p.ravel())[0]
        assert fast.value_and_grad(p.ravel())[0] == pytest.approx(wanted, rel=1e-12)
    assert fast.dispatch.counts.eager <= 1
