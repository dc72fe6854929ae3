"""Dataclasses, items of enums, Values from outside: calls like an earlier one, answered in C."""

import dataclasses
import enum
import math
from typing import Any, NamedTuple

import numpy as np
import pytest

import chainrule
from chainrule import Value


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


@dataclasses.dataclass
class Layer:
    W: list
    b: float
    history: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    scale: float
    layer: Layer
    more: tuple = ()


@dataclasses.dataclass(slots=True)
class Slotted:
    a: float
    b: float


class Pair(NamedTuple):
    a: float
    b: Any


def same_gradient(function, make, calls=8):
    """Gradients in the structure of the first argument, of calls that C answers."""
    fast = chainrule.compile(function, on_fallback="eager")
    eager = chainrule.value_and_grad(function)
    for turn in range(calls):
        got, wanted = fast.value_and_grad(make(turn), 0.5), eager(make(turn), 0.5)
        assert repr(got) == repr(wanted)
    answered = quick(fast)
    assert answered or chainrule.engine != "native"
    return fast, eager


def test_a_dataclass_to_differentiate_by_is_answered_in_c():
    def f(p, x):
        return (p.W[0] * x + p.W[1] * p.b) ** 2

    fast, eager = same_gradient(f, lambda k: Layer([1.0 + k, 2.0], 0.5))
    other = Layer([1.0, 2.0], 3)  # an integer is a number there
    assert repr(fast.value_and_grad(other, 0.5)) == repr(eager(other, 0.5))
    other.extra = 2.0  # beside its fields
    assert repr(fast.value_and_grad(other, 0.5)) == repr(eager(other, 0.5))
    gradient = fast.value_and_grad(Layer([1.0, 2.0], 3.0), 0.5)[1]
    assert type(gradient) is Layer
    gradient.history.append(1)
    assert fast.value_and_grad(Layer([1.0, 2.0], 3.0), 0.5)[1].history == []


def test_records_within_records():
    def f(p, x):
        return p.scale * p.layer.W[0] * x + p.more[0].b[1] * p.more[1]["z"] ** 2 + p.more[0].a

    def make(k):
        layer = Layer([1.0 + k, np.float64(2.0)], 0.5, [1.0])
        return Frozen(2.0 + k, layer, (Pair(0.25, [1.0, 3.0 + k]), {"z": 1.5}))

    same_gradient(f, make)


def test_arrays_in_named_tuples_and_slots():
    def f(p, x):
        return (p.a * x).sum() * p.b[0]

    same_gradient(f, lambda k: Pair(np.arange(3.0) + k, [2.0]))
    same_gradient(lambda p, x: p.a * p.b * x, lambda k: Slotted(1.0 + k, 2.0))


def test_a_class_that_changes_is_seen():
    @dataclasses.dataclass
    class Model:
        w: float

    def f(p, x):
        return p.w * x

    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for k in range(6):
        assert repr(fast.value_and_grad(Model(1.0 + k), 3.0)) == repr(eager(Model(1.0 + k), 3.0))
    made = Model(2.0)
    Model.__getattribute__ = lambda self, name: (
        5.0 if name == "w" else object.__getattribute__(self, name)
    )
    for _ in range(3):
        got = outcome(lambda: fast.value_and_grad(made, 3.0))
        assert repr(got) == repr(outcome(lambda: eager(made, 3.0)))


WEIGHTS = [Value(0.5), Value(-1.5), Value(2.0)]


def beside(p, x):
    return sum(w * a * x for w, a in zip(WEIGHTS, p, strict=True)) ** 2


def test_values_from_outside_are_read_at_every_call():
    fast, eager = chainrule.compile(beside), chainrule.value_and_grad(beside)
    numbers = [v.data for v in WEIGHTS]
    try:
        for k in range(8):
            WEIGHTS[k % 3].data = 0.25 * k - 1
            assert fast.value_and_grad([1.0, 2.0, k], 0.5) == eager([1.0, 2.0, k], 0.5)
        assert quick(fast) or chainrule.engine != "native"
        assert [v.grad for v in WEIGHTS] == [0.0, 0.0, 0.0]
        for odd in (math.inf, -math.inf, math.nan, 1e308):
            WEIGHTS[1].data = odd
            got = outcome(lambda: fast.value_and_grad([1.0, 2.0, 3.0], 0.5))
            assert repr(got) == repr(outcome(lambda: eager([1.0, 2.0, 3.0], 0.5)))
        WEIGHTS[1] = Value(7.0)  # another one
        assert fast.value_and_grad([1.0, 2.0, 3.0], 0.5) == eager([1.0, 2.0, 3.0], 0.5)
        same = Value(2.0)
        WEIGHTS[0] = WEIGHTS[2] = same
        assert fast.value_and_grad([1.0, 2.0, 3.0], 0.5) == eager([1.0, 2.0, 3.0], 0.5)
    finally:
        WEIGHTS[:] = [Value(number) for number in numbers]


def test_values_from_outside_beside_functions_of_math():
    scale = [Value(0.5)]

    def f(p, x):
        return (p[0] * scale[0] * math.sin(x) + math.exp(x) * p[1]) ** 2

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for k in range(8):
        scale[0].data = 0.1 * k
        assert fast.value_and_grad([1.0, 2.0], 0.5) == eager([1.0, 2.0], 0.5)
    for odd in (math.inf, math.nan):
        scale[0].data = odd
        got = outcome(lambda: fast.value_and_grad([1.0, 2.0], 0.5))
        assert repr(got) == repr(outcome(lambda: eager([1.0, 2.0], 0.5)))


def test_values_from_outside_with_integers_beside_them():
    table = [Value(float(k)) for k in range(5)]

    def f(p, i, n):
        return p[0] * table[i] + p[1] * n

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for k in range(20):
        table[k % 5].data = 0.3 * k
        arguments = [1.0 + k, 2.0], k % 5, 3 * k
        assert fast.value_and_grad(*arguments) == eager(*arguments)
    assert quick(fast) or chainrule.engine != "native"


def test_a_plain_call_is_a_node_over_values_from_outside():
    scale = [Value(0.5)]
    fast = chainrule.compile(lambda p: (p[0] * scale[0]) ** 2)
    for k in range(6):
        fast.value_and_grad([1.0 + k])
        y = fast([1.0 + k])
        scale[0].grad = 0.0
        y.backward()
        assert scale[0].grad == pytest.approx((1.0 + k) ** 2)


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error), str(error)
