"""Dataclasses and items of enums as arguments: calls like an earlier one are answered in C."""

import dataclasses
import enum

import pytest

import chainrule


class Kind(enum.IntEnum):
    LINEAR = 0
    SQUARE = 1


class Side(enum.Enum):
    BUY = "buy"
    SELL = "sell"


@dataclasses.dataclass
class Trade:
    price: float
    size: float
    venue: int = 0


def settled(w, kind, side):
    z = w[0] * w[1] if kind == Kind.SQUARE else w[0] + w[1]
    return z * (1.0 if side is Side.BUY else -1.0)


def traded(w, trades):
    return sum(w[t.venue] * t.size * t.price for t in trades)


def quick(fast):
    """How many calls the gate has answered since it was asked last."""
    calls = fast.dispatch.gate.quick
    fast.report()  # which counts them
    return calls


def test_items_of_enums_are_answered_in_c():
    fast, eager = chainrule.compile(settled), chainrule.value_and_grad(settled)
    for turn in range(4):
        for kind in Kind:
            for side in Side:
                arguments = [2.0, 3.0 + turn], kind, side
                assert fast.value_and_grad(*arguments) == eager(*arguments)
    assert quick(fast) or chainrule.engine != "native"
    assert fast.value_and_grad([2.0, 3.0], 1, Side.BUY) == eager([2.0, 3.0], 1, Side.BUY)


def test_dataclasses_are_answered_in_c():
    fast, eager = chainrule.compile(traded), chainrule.value_and_grad(traded)
    for turn in range(8):
        trades = [Trade(1.0 + turn, 0.5, k % 2) for k in range(3)]
        assert fast.value_and_grad([1.0, 2.0], trades) == eager([1.0, 2.0], trades)
    assert quick(fast) or chainrule.engine != "native"


def test_an_attribute_beside_the_fields_is_seen():
    def f(w, trade):
        return w * trade.price + getattr(trade, "fee", 0.0)

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(4):
        assert fast.value_and_grad(2.0, Trade(3.0, 1.0))[0] == 6.0
    other = Trade(3.0, 1.0)
    other.fee = 0.5
    assert fast.value_and_grad(2.0, other)[0] == 6.5
    missing = Trade(3.0, 1.0)
    del missing.price
    with pytest.raises(AttributeError):
        fast.value_and_grad(2.0, missing)


def test_an_item_that_changes_is_seen():
    class Step(enum.Enum):
        ONE = 1.0

    def f(w, step):
        return w * getattr(step, "extra", step.value)

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(4):
        assert fast.value_and_grad(2.0, Step.ONE)[0] == 2.0
    Step.ONE.extra = 3.0
    assert fast.value_and_grad(2.0, Step.ONE)[0] == 6.0
    del Step.ONE.extra
    assert fast.value_and_grad(2.0, Step.ONE)[0] == 2.0


@pytest.mark.parametrize("value", [3.0, 1, -1.0, True])
def test_the_value_of_an_item_that_changes_is_seen(value):
    class Step(enum.Enum):
        ONE = 1.0

    def f(w, step):
        return w * step.value, step.value

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(20):
        assert fast(2.0, Step.ONE) == (2.0, 1.0)
    Step.ONE._value_ = value
    found = fast(2.0, Step.ONE)
    assert found == (2.0 * value, value)
    assert type(found[1]) is type(f(2.0, Step.ONE)[1])
