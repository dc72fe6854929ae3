"""A Value among Python's other numbers: operators, comparisons, hash, format, subclasses."""

import math
import operator
from fractions import Fraction

import numpy as np
import pytest

from chainrule import Value

NUMBERS = [
    3,
    0.75,
    True,
    Fraction(3, 4),
    np.float64(0.75),
    np.float32(0.75),
    np.int64(3),
    np.int8(3),
    np.uint16(3),
]


def kind(x):
    return type(x).__name__


def assert_value(v, data):
    assert type(v) is Value
    assert type(v.data) is float
    assert v.data == data


@pytest.mark.parametrize("number", NUMBERS, ids=kind)
class TestScalarOperands:
    def test_addition(self, number):
        assert_value(Value(2.0) + number, 2.0 + float(number))
        assert_value(number + Value(2.0), 2.0 + float(number))

    def test_subtraction(self, number):
        assert_value(Value(2.0) - number, 2.0 - float(number))
        assert_value(number - Value(2.0), float(number) - 2.0)

    def test_multiplication(self, number):
        assert_value(Value(2.0) * number, 2.0 * float(number))
        assert_value(number * Value(2.0), 2.0 * float(number))

    def test_division(self, number):
        assert_value(Value(2.0) / number, 2.0 * float(number) ** -1.0)
        assert_value(number / Value(2.0), float(number) / 2.0)

    def test_power(self, number):
        assert_value(Value(2.0) ** number, 2.0 ** float(number))
        assert_value(number ** Value(2.0), float(number) ** 2.0)

    def test_constructor_and_attributes(self, number):
        v = Value(number)
        assert_value(v, float(number))
        v.data = number
        v.grad = number
        assert (type(v.data), type(v.grad)) == (float, float)
        assert (v.data, v.grad) == (float(number), float(number))

    def test_gradient_argument(self, number):
        v = Value(2.0)
        (v * 2).backward(gradient=number)
        assert v.grad == 2 * float(number)

    def test_comparison(self, number):
        v = Value(2.0)
        for compare in (operator.lt, operator.le, operator.gt, operator.ge):
            assert compare(v, number) == compare(2.0, float(number))
            assert compare(number, v) == compare(float(number), 2.0)


def test_reflected_operators_differentiate():
    x = Value(2.0)
    y = (3 - x) + 6 / x + 2**x + 4 * x + (1 + x)
    y.backward()
    assert y.data == pytest.approx(1 + 3 + 4 + 8 + 3)
    assert x.grad == pytest.approx(-1 - 1.5 + 4 * math.log(2) + 4 + 1)


def test_operators_compose_as_in_microgpt():
    a, b = Value(6.0), Value(4.0)
    difference = a - b
    assert (difference.op, difference.children[0]) == ("+", a)
    assert difference.children[1].op == "*"
    assert [c.data for c in difference.children[1].children] == [4.0, -1.0]
    quotient = a / b
    assert (quotient.op, quotient.children[0], quotient.children[1].op) == ("*", a, "**-1")
    assert quotient.children[1].children == (b,)
    negative = -a
    assert (negative.op, negative.children[0], negative.children[1].data) == ("*", a, -1.0)
    total = sum([a])
    assert (total.op, total.children[0], total.children[1].data) == ("+", a, 0.0)
    assert [c.data for c in (a - 2).children] == [6.0, -2.0]
    assert [c.data for c in (a / 4).children] == [6.0, 0.25]
    assert [c.op for c in (2 / a).children] == ["**-1", ""]
    assert [c.op for c in (2 - a).children] == ["*", ""]


def test_operations_are_named():
    a = Value(0.5)
    names = [v.op for v in (a, a + 1, a * 2, a**2, a**0.5, a**a, a.tanh(), a.exp(), a.relu())]
    assert names == ["", "+", "*", "**2", "**0.5", "**", "tanh", "exp", "relu"]


def test_in_place_operators_make_a_new_node_and_keep_the_old():
    v = before = Value(2.0)
    v += 1
    v -= Value(4.0)
    v *= 6
    v /= 2
    v **= 2
    assert v.data == 9.0
    assert before.data == 2.0
    assert before.children == ()
    v.backward()
    assert before.grad == 2 * (-3.0) * 3.0


def test_absolute_value_is_an_operation():
    v = Value(-2.5)
    y = abs(v)
    y.backward()
    assert (y.data, v.grad, y.children) == (2.5, -1.0, (v,))


@pytest.mark.parametrize(
    ("x", "truth"), [(0.0, False), (-0.0, False), (1e-300, True), (-2.0, True), (math.nan, True)]
)
def test_bool_is_whether_the_data_is_not_zero(x, truth):
    assert bool(Value(x)) is truth


def test_comparisons_compare_data():
    small, large = Value(1.0), Value(2.0)
    assert small < large
    assert small <= large
    assert large > small
    assert large >= small
    assert not large < small
    assert Value(1.0) <= Value(1.0)
    assert not Value(1.0) < Value(1.0)
    assert not Value(math.nan) < 1
    assert not Value(math.nan) >= 1
    assert 1.5 < large  # noqa: SIM300
    assert sorted([large, small], key=lambda v: v.data) == [small, large]
    assert max(small, large) is large


def test_equality_of_values_and_hash_are_identity():
    a, b = Value(1.0), Value(1.0)
    assert a == a
    assert a != b
    assert not a != a  # noqa: SIM202
    assert not a == b  # noqa: SIM201
    assert len({a, b, a}) == 2
    assert hash(a) == hash(a)
    before = hash(a)
    a.data = 5.0
    assert hash(a) == before
    assert {a: "found"}[a] == "found"
    assert b not in [a]
    assert (a == "x") is False
    assert (a != None) is True  # noqa: E711


COMPARED = [
    *(1.0, 1, True, -0.0, 0, 0.1, math.inf, -math.inf, 10**400, -(10**400), Fraction(1, 10)),
    *(np.float64(0.1), np.float32(0.1), np.int64(1), np.int8(1), np.uint64(1), np.bool_(True)),
]


@pytest.mark.parametrize("number", COMPARED, ids=repr)
@pytest.mark.parametrize("data", [0.0, 1.0, 0.1, math.inf, -math.inf, math.nan])
def test_equality_with_a_number_compares_the_numbers(data, number):
    try:
        expected = data == float(number)
    except OverflowError:  # equal to no float
        expected = False
    a = Value(data)
    assert (a == number) is (number == a) is expected
    assert (a != number) is (number != a) is (not expected)
    assert (number in [a]) is expected


def test_equality_is_between_less_and_greater():
    stock = [x for x in COMPARED if type(x) is not int or abs(x) < 10**400]
    for number in stock:
        for data in map(float, stock):
            a = Value(data)
            assert (a == number) is (a <= number and a >= number)


@pytest.mark.parametrize("spec", [".4f", "10.2f", "e", "g", "+.1f", ">12", "%", ",.2f"])
def test_format_formats_the_data(spec):
    assert format(Value(1234.56789), spec) == format(1234.56789, spec)


def test_format_without_a_specification_is_str():
    v = Value(2.0, label="a")
    assert f"{v}" == str(v)
    assert "%s" % v == str(v)  # noqa: UP031


def test_format_with_a_wrong_specification_raises():
    with pytest.raises(ValueError, match=r"[Ff]ormat"):
        format(Value(1.0), "d-wrong")


def test_repr_shows_data_grad_and_label():
    v = Value(2.0)
    assert repr(v) == "Value(data=2.0, grad=0.0)"
    v.label = "a"
    v.grad = -1.5
    assert repr(v) == "Value(data=2.0, grad=-1.5, label='a')"
    assert repr(Value(1e-30, label="it's")) == """Value(data=1e-30, grad=0.0, label="it's")"""


# --- subclasses ---------------------------------------------------------------------------------


class Named(Value):
    """With a __dict__, and a constructor of its own."""

    def __init__(self, data, name):
        super().__init__(data)
        self.name = name

    def doubled(self):
        return self * 2


class Slotted(Value):
    __slots__ = ("extra",)


class Overriding(Value):
    def __repr__(self):
        return f"<{self.data}>"

    def relu(self):
        return self * 0.0


def test_subclass_instances_are_leaves_with_their_own_attributes():
    w = Named(3.0, "weight")
    assert (w.data, w.grad, w.name, w.children) == (3.0, 0.0, "weight", ())
    w.anything = [1, 2]
    assert w.anything == [1, 2]
    assert isinstance(w, Value)
    assert w.doubled().data == 6.0


def test_results_of_subclass_operands_are_plain_values():
    w = Named(3.0, "weight")
    results = [w + 1, 1 + w, w * w, -w, w**2, 2**w, w.exp(), w / 2, w - w, abs(w), sum([w, w])]
    assert {type(r) for r in results} == {Value}


def test_subclass_leaves_receive_gradients():
    w, s = Named(3.0, "weight"), Slotted(4.0)
    s.extra = "kept"
    y = w * s + s
    y.backward()
    assert (w.grad, s.grad, s.extra) == (4.0, 4.0, "kept")
    assert y.children[0].children == (w, s)


def test_subclass_may_override_methods():
    v = Overriding(2.0)
    assert repr(v) == "<2.0>"
    assert v.relu().data == 0.0


def test_subclass_with_slots_has_only_those():
    s = Slotted(1.0)
    s.extra = 1
    assert s.extra == 1
    if not hasattr(Value(1.0), "__dict__"):
        with pytest.raises(AttributeError):
            s.other = 1


def test_methods_can_be_added_and_replaced_on_value(monkeypatch):
    def sigmoid(self):
        return 1 / (1 + (-self).exp())

    monkeypatch.setattr(Value, "sigmoid", sigmoid)
    monkeypatch.setattr(Value, "cube", lambda self: self**3, raising=False)
    v = Value(2.0)
    y = v.sigmoid()
    assert y.op == "*"
    assert v.cube().data == 8.0
    assert Named(2.0, "n").cube().data == 8.0
    monkeypatch.undo()
    assert v.sigmoid().op == "sigmoid"
    assert not hasattr(v, "cube")
