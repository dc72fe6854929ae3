"""Wrong types are refused with TypeError, everywhere, and the message says what to pass."""

from decimal import Decimal

import numpy as np
import pytest

import chainrule
from chainrule import Value


class LooksLikeANumber:
    def __float__(self):
        return 3.0


NOT_SCALARS = [
    "3",
    None,
    1j,
    [1.0],
    (1.0,),
    {"a": 1.0},
    np.array([1.0, 2.0]),
    np.array(1.0),
    np.array([1.0]),
    np.complex128(1j),
    np.str_("3"),
    Decimal(3),
    LooksLikeANumber(),
    object(),
    print,
]


@pytest.mark.parametrize("wrong", NOT_SCALARS, ids=lambda x: f"{type(x).__name__} {x!r:.12}")
def test_constructor_takes_real_numbers_only(wrong):
    with pytest.raises(TypeError) as caught:
        Value(wrong)
    message = str(caught.value)
    assert type(wrong).__name__ in message
    assert "number" in message or "float" in message, "it says what to pass"


def test_constructor_does_not_take_a_value():
    with pytest.raises(TypeError, match="Value"):
        Value(Value(1.0))


@pytest.mark.parametrize("attribute", ["data", "grad"])
@pytest.mark.parametrize("wrong", ["3", None, 1j, [1.0], np.array([1.0, 2.0]), Value(1.0)])
def test_data_and_grad_take_real_numbers_only(attribute, wrong):
    v = Value(2.0)
    with pytest.raises(TypeError):
        setattr(v, attribute, wrong)
    assert (v.data, v.grad) == (2.0, 0.0)


@pytest.mark.parametrize("attribute", ["data", "grad", "label"])
def test_attributes_cannot_be_deleted(attribute):
    v = Value(2.0, label="a")
    with pytest.raises((AttributeError, TypeError)):
        delattr(v, attribute)
    assert repr(v) == "Value(data=2.0, grad=0.0, label='a')"


@pytest.mark.parametrize(
    "attribute",
    ["op", "_op", "children", "_children", "_prev", "local_grads", "_local_grads"],
)
def test_what_describes_the_graph_is_read_only(attribute):
    v = Value(2.0) * 3.0
    before = getattr(v, attribute)
    with pytest.raises(AttributeError):
        setattr(v, attribute, before)
    assert getattr(v, attribute) == before


def test_labels_are_strings():
    with pytest.raises(TypeError, match="label"):
        Value(1.0, label=3)
    v = Value(1.0)
    with pytest.raises(TypeError, match="label"):
        v.label = None
    v.label = "x"
    assert v.label == "x"


@pytest.mark.parametrize(
    ("children", "local_grads"),
    [
        ((1.0,), (1.0,)),
        (("x",), (1.0,)),
        (5, (1.0,)),
        ((Value(1.0),), ("1",)),
        ((Value(1.0),), (None,)),
        ((Value(1.0),), 3.0),
        ((Value(1.0),), ()),
        ((Value(1.0),), (1.0, 2.0)),
        ((), (1.0,)),
    ],
)
def test_children_are_values_with_one_local_gradient_each(children, local_grads):
    with pytest.raises((TypeError, ValueError)):
        Value(1.0, children, local_grads, op="mine")


BINARY = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
}


@pytest.mark.parametrize("wrong", ["3", None, 1j, {}, Decimal(3), LooksLikeANumber(), object()])
@pytest.mark.parametrize("symbol", BINARY)
def test_operators_refuse_what_is_no_real_number(symbol, wrong):
    v = Value(2.0)
    with pytest.raises(TypeError):
        BINARY[symbol](v, wrong)
    with pytest.raises(TypeError):
        BINARY[symbol](wrong, v)


@pytest.mark.parametrize("name", ["__add__", "__radd__", "__mul__", "__rmul__", "__sub__"])
def test_operators_return_not_implemented_for_others(name):
    for other in ("3", None, Decimal(3), np.array([1.0, 2.0]), LooksLikeANumber()):
        assert getattr(Value(2.0), name)(other) is NotImplemented


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "relu", "sigmoid", "sqrt", "erf"])
@pytest.mark.parametrize("wrong", ["3", None, 1j])
def test_functions_refuse_what_is_no_real_number(name, wrong):
    with pytest.raises(TypeError):
        getattr(chainrule, name)(wrong)


@pytest.mark.parametrize("name", ["maximum", "minimum", "atan2", "hypot"])
def test_binary_functions_refuse_what_is_no_real_number(name):
    for arguments in ((Value(1.0), "3"), ("3", Value(1.0)), (Value(1.0), None), (1j, Value(1.0))):
        with pytest.raises(TypeError):
            getattr(chainrule, name)(*arguments)
