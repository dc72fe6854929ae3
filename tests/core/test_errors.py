"""No silent NaN, no silent loss of a gradient, and messages that name the thing."""

import math

import pytest

import chainrule
from chainrule import Value

# --- undefined values ---------------------------------------------------------------------------

UNDEFINED = [
    # the operation as words of the message, the error, the operands, how it is written
    ("log", ValueError, (-0.5,), lambda p: p.log()),
    ("log", ValueError, (0.0,), lambda p: p.log()),
    ("log1p", ValueError, (-1.0,), lambda p: p.log1p()),
    ("log2", ValueError, (-2.0,), lambda p: p.log2()),
    ("log10", ValueError, (0.0,), lambda p: p.log10()),
    ("sqrt", ValueError, (-4.0,), lambda p: p.sqrt()),
    ("asin", ValueError, (2.0,), lambda p: p.asin()),
    ("acos", ValueError, (-1.5,), lambda p: p.acos()),
    ("atanh", ValueError, (1.0,), lambda p: p.atanh()),
    ("acosh", ValueError, (0.5,), lambda p: p.acosh()),
    ("exp", OverflowError, (1000.0,), lambda p: p.exp()),
    ("expm1", OverflowError, (800.0,), lambda p: p.expm1()),
    ("sinh", OverflowError, (900.0,), lambda p: p.sinh()),
    ("cosh", OverflowError, (-900.0,), lambda p: p.cosh()),
    ("**", ValueError, (-2.0,), lambda p: p**0.5),
    ("**", ZeroDivisionError, (0.0,), lambda p: p**-1),
    ("**", ZeroDivisionError, (0.0,), lambda p: p**-0.5),
    ("**", ZeroDivisionError, (0.0,), lambda p: 1 / p),
    ("**", ZeroDivisionError, (0.0,), lambda p: Value(3.0) / p),
    ("**", OverflowError, (1e200,), lambda p: p**2),
    ("**", OverflowError, (500.0,), lambda p: 10**p),
    ("**", ValueError, (0.5,), lambda p: (-2) ** p),
    ("**", ValueError, (-2.0, 0.5), lambda p, q: p**q),
    ("**", ValueError, (-2.0, 2.0), lambda p, q: p**q),
    ("**", ValueError, (0.0, 2.0), lambda p, q: p**q),
    ("+", OverflowError, (1e308, 1.5e308), lambda p, q: p + q),
    ("+", OverflowError, (-1e308, 1.5e308), lambda p, q: p - q),
    ("*", OverflowError, (1e200, 1e201), lambda p, q: p * q),
    ("*", OverflowError, (1e200,), lambda p: p * 1e201),
]


@pytest.mark.parametrize(("word", "error", "operands", "f"), UNDEFINED)
def test_an_undefined_value_raises_naming_operation_operands_and_labels(word, error, operands, f):
    labels = ["price", "quantity"][: len(operands)]
    values = [Value(x, label=name) for x, name in zip(operands, labels, strict=True)]
    with pytest.raises(error) as caught:
        f(*values)
    assert type(caught.value) is error
    message = str(caught.value)
    assert word in message
    for x, name in zip(operands, labels, strict=True):
        if f"{x:g}" == "1.5e+308":  # p - q is p + (-q): the second operand is the negation
            assert "1.5e+308" in message
        else:
            assert repr(x) in message or f"{x:g}" in message
            assert name in message


def test_an_undefined_value_without_labels_still_names_the_operand():
    with pytest.raises(ValueError, match=r"log.*-0\.5"):
        Value(-0.5).log()


@pytest.mark.parametrize("through", ["function of a Value", "function of a float"])
@pytest.mark.parametrize(
    ("name", "x", "error"),
    [("log", -1.0, ValueError), ("exp", 1000.0, OverflowError), ("sqrt", -1.0, ValueError)],
)
def test_functions_raise_like_methods(name, x, error, through):
    argument = Value(x) if through == "function of a Value" else x
    with pytest.raises(error, match=name):
        getattr(chainrule, name)(argument)


def test_sums_that_overflow_raise():
    large = [Value(1e308), Value(1e308)]
    with pytest.raises(OverflowError):
        sum(large)
    with pytest.raises(OverflowError):
        chainrule.vsum(large)
    with pytest.raises(OverflowError):
        chainrule.dot([Value(1e200)], [Value(1e200)])
    with pytest.raises(OverflowError):
        chainrule.linear([Value(1e200)], [[Value(1e200)]])


def test_an_undefined_operation_leaves_the_operands_alone():
    a = Value(-1.0, label="a")
    a.grad = 2.0
    with pytest.raises(ValueError, match="log"):
        a.log()
    assert (a.data, a.grad, a.label) == (-1.0, 2.0, "a")


@pytest.mark.parametrize(
    ("f", "x", "expected"),
    [
        (lambda v: v.relu(), math.nan, math.nan),
        (lambda v: v + 1, math.inf, math.inf),
        (lambda v: v - v, math.inf, math.nan),
        (lambda v: v * 0, math.inf, math.nan),
        (lambda v: v.exp(), math.inf, math.inf),
        (lambda v: v.exp(), -math.inf, 0.0),
        (lambda v: v.log(), math.inf, math.inf),
        (lambda v: v.log(), -math.inf, math.nan),
        (lambda v: v.log(), math.nan, math.nan),
        (lambda v: v.sqrt(), -math.inf, math.nan),
        (lambda v: v.sin(), math.inf, math.nan),
        (lambda v: v.cos(), -math.inf, math.nan),
        (lambda v: v.tanh(), -math.inf, -1.0),
        (lambda v: v.tanh(), math.nan, math.nan),
        (lambda v: v.sigmoid(), -math.inf, 0.0),
        (lambda v: v.sigmoid(), math.inf, 1.0),
        (lambda v: v.softplus(), math.inf, math.inf),
        (lambda v: v.asin(), math.inf, math.nan),
        (lambda v: v**2, -math.inf, math.inf),
        (lambda v: 1 / v, math.inf, 0.0),
        (lambda v: v**0.5, -math.inf, math.inf),
        (abs, -math.inf, math.inf),
        (lambda v: chainrule.maximum(v, 1.0), math.nan, math.nan),
        (lambda v: chainrule.minimum(v, 1.0), math.nan, math.nan),
        (lambda v: chainrule.clip(v, -1.0, 1.0), math.nan, math.nan),
    ],
)
def test_operands_that_are_not_finite_propagate(f, x, expected):
    result = f(Value(x)).data
    assert result == expected or (math.isnan(result) and math.isnan(expected))


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "softplus", "silu", "gelu", "erf", "atan"])
@pytest.mark.parametrize("x", [-1e4, -800.0, 800.0, 1e4, 1e300, -1e300])
def test_saturating_functions_do_not_overflow(name, x):
    v = Value(x)
    y = getattr(v, name)()
    y.backward()
    assert math.isfinite(y.data)
    assert math.isfinite(v.grad)


# --- float(v) -----------------------------------------------------------------------------------


@pytest.mark.parametrize("f", [float, int, math.exp, math.sqrt, math.gamma, complex])
def test_a_value_never_becomes_a_float_silently(f):
    with pytest.raises(TypeError):
        f(Value(2.0))


@pytest.mark.parametrize("f", [float, math.exp, math.tanh])
def test_float_of_a_value_gives_advice(f):
    with pytest.raises(TypeError) as caught:
        f(Value(2.0, label="w"))
    assert ".data" in str(caught.value)
    assert "chainrule.exp" in str(caught.value)


def test_numbers_too_large_for_a_float_raise():
    with pytest.raises(OverflowError):
        Value(10**400)
    with pytest.raises(OverflowError):
        Value(1.0) + 10**400
