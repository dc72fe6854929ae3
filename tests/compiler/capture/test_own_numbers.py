"""Captured numbers of classes of the user's own: those with their own arithmetic run eagerly."""

import operator

import pytest

import chainrule
from chainrule import tanh


class Five(float):
    """Times something it is five."""

    def __mul__(self, other):
        return 5.0 * other

    __rmul__ = __mul__

    def __rpow__(self, other):
        return other * 7.0

    def __gt__(self, other):
        return True


class Two(int):
    def __radd__(self, other):
        return other + 200.0


class Metres(float):
    """A plain number under another name."""


FIVE, TWO, METRES = Five(2.0), Two(2), Metres(3.0)


def test_a_subclass_of_float_with_its_own_arithmetic_is_named_with_its_line():
    def f(p):
        return tanh(p[0]) * FIVE

    with pytest.warns(chainrule.FallbackWarning, match="computes with a Five, .*float") as caught:
        assert chainrule.compile(f, lift=True)([0.5]) == f([0.5])
    line = f.__code__.co_firstlineno + 1
    assert str(caught[0].message).endswith(f"at test_own_numbers.py:{line}")


@pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
@pytest.mark.parametrize(
    "f",
    [
        lambda p, n: p[0] * FIVE,
        lambda p, n: FIVE * p[0],
        lambda p, n: p[0] ** FIVE,
        lambda p, n: p[0] + TWO,
        lambda p, n: p[0] * 2 if p[0] < FIVE else p[0] * 3,
        lambda p, n: max(p[0], FIVE) + 0.0,
        lambda p, n: p[0] + n * FIVE,
        lambda p, n: p[0] + n + TWO,
        lambda p, n: p[0] * (p[1] * FIVE - p[1] * 2.0),  # the difference is 0 in the first call
        lambda p, n: p[0] * METRES,
        lambda p, n: operator.mul(p[0], FIVE),
    ],
)
def test_every_call_is_eagers(f):
    gradients = chainrule.compile(f)
    for _ in range(3):
        assert gradients.value_and_grad([0.5, 0.0], 3) == chainrule.value_and_grad(f)([0.5, 0.0], 3)
    for fast in (chainrule.compile(f), chainrule.compile(f, lift=True), gradients):
        for p in ([0.5, 0.0], [0.5, 0.0], [9.0, 1.0], [0.25, -3.0]):
            for n in (3, 4):
                assert fast(p, n) == pytest.approx(f(p, n), rel=1e-12)


def test_a_subclass_without_its_own_arithmetic_is_followed():
    fast = chainrule.compile(lambda p: tanh(p[0]) * METRES, lift=True, on_fallback="raise")
    assert fast([0.5]) == pytest.approx(float(tanh(0.5)) * 3.0)
