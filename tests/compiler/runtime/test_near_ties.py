"""Calls in which a comparison is near a tie: machine code leaves them to the tape, so does C."""

import numpy as np
import pytest

import chainrule
from chainrule import exp, where

pytestmark = pytest.mark.skipif(chainrule.engine != "native", reason="the gate is in C")


def drawdown(w, returns):
    wealth = peak = 1.0
    worst = 0.0
    for row in returns:
        wealth = wealth * (1 + sum(a * r for a, r in zip(w, row, strict=True)))
        peak = where(wealth > peak, wealth, peak)
        drop = (peak - wealth) / exp(peak)
        worst = where(drop > worst, drop, worst)
    return worst


def calls(count=12):
    """Where the first return is a gain there is a tie, between a drop of 0 and the worst so far."""
    rng = np.random.default_rng(3)
    found = [(rng.normal(size=3), rng.normal(scale=0.02, size=(20, 3))) for _ in range(count)]
    for k, (w, returns) in enumerate(found):
        returns[0] = np.abs(returns[0]) * np.sign(w) * (-1.0 if k % 2 else 1.0)
    return found


def bits(answer):
    value, gradient = answer
    return np.float64(value).tobytes(), np.asarray(gradient).tobytes()


class Counted:
    """A function compiled to machine code, and how many calls Python looked at."""

    def __init__(self):
        self.fast = chainrule.compile(drawdown, lift=True)
        differentiate = self.fast._differentiate
        self.unanswered = 0

        def counted(*given):
            self.unanswered += 1
            return differentiate(*given)

        self.fast._differentiate = counted


def test_ties_are_answered_at_once_with_the_bits_of_the_slow_path():
    counted, given, tape = Counted(), calls(), chainrule.compile(drawdown, lift=False)
    for _ in range(2):
        for call in given:
            counted.fast.value_and_grad(*call)
    counted.unanswered = 0
    quick = [bits(counted.fast.value_and_grad(*call)) for call in given]
    assert counted.unanswered == 0
    dispatch = counted.fast.dispatch
    dispatch.fast_path = None
    slow = []
    for call in given:
        slow.append(bits(counted.fast.value_and_grad(*call)))
        dispatch.fast_path = None
    assert counted.unanswered == len(given)
    assert quick == slow
    ties = [a == bits(tape.value_and_grad(*call)) for a, call in zip(quick, given, strict=True)]
    assert all(ties[0::2])  # the tape has eager's bits
    assert not all(ties[1::2])  # machine code answers the others still, whatever came between


def test_a_tape_that_was_let_go_of_is_not_used():
    counted, given = Counted(), calls()
    for _ in range(2):
        for call in given:
            counted.fast.value_and_grad(*call)
    (structure,) = counted.fast.dispatch.structures.values()
    (variant,) = [v for v in structure.variants if v.binding is not None]
    variant.forget_tape()
    counted.unanswered = 0
    expected = [bits(chainrule.compile(drawdown, lift=False).value_and_grad(*given[0]))] * 2
    assert [bits(counted.fast.value_and_grad(*given[0])) for _ in range(2)] == expected
    assert counted.unanswered == 1
    assert variant.has_tape


def test_where_the_tape_finds_a_number_undefined_eager_raises():
    def f(p, x):
        y = exp(p[0] * x) - exp(p[0] * x)
        return where(y > 0.0, y, p[1]) + chainrule.log(p[1] + y)

    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    expected = eager([0.5, 2.0], 1.0)
    assert [fast.value_and_grad([0.5, 2.0], 1.0) for _ in range(4)] == [expected] * 4
    for _ in range(2):
        with pytest.raises(ValueError, match="log") as expected:
            eager([0.5, -2.0], 1.0)
        with pytest.raises(ValueError, match="log") as raised:
            fast.value_and_grad([0.5, -2.0], 1.0)
        assert str(raised.value) == str(expected.value)
