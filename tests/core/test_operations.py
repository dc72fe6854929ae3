"""Operations of the user's own: everywhere a row of the table works, formulas and opaque ones."""

import math

import numpy as np
import pytest
from scipy import special

import chainrule
from chainrule import (
    Value,
    check_gradients,
    draw,
    explain,
    explore,
    grad,
    hessian,
    operation,
    where,
)
from chainrule.core.operations import NotAFormula


@operation(partials=lambda y, x: 1.0 / (1.0 + abs(x)) ** 2)
def soft_sign(x):
    """x / (1 + |x|)"""
    return x / (1.0 + abs(x))


@operation(
    partials=[
        lambda y, a, b, scale: scale * b * chainrule.cos(a * b),
        lambda y, a, b, scale: scale * a * (a * b).cos(),
    ]
)
def wave(a, b, *, scale=2.0):
    return scale * chainrule.sin(a * b)


@operation(partials=lambda y, x: where(x > 1.0, 2.0 * x, 2.0))
def bend(x):
    return where(x > 1.0, x * x, 2.0 * x - 1.0)


trigamma = operation(
    lambda x: special.polygamma(1, x),
    name="trigamma",
    partials=lambda y, x: special.polygamma(2, x),
    opaque=True,
)
psi = operation(special.psi, name="psi", partials=lambda y, x: trigamma(x), opaque=True)


def formulas(p):
    return sum(
        soft_sign(p[i]) * wave(p[i], p[i + 6]) + bend(p[i] * 2.0) * wave(p[i], 0.5, scale=3.0)
        for i in range(6)
    )


def calls_out(p):
    return sum(psi(p[i] * p[i] + 1.0) * p[i + 6] for i in range(6))


def test_floats_arrays_and_values():
    assert soft_sign(3.0) == 0.75
    assert soft_sign(np.array([1.0, -3.0])).tolist() == [0.5, -0.75]
    y = soft_sign(Value(-1.0))
    assert (y.data, y.op, y.local_grads) == (-0.5, "soft_sign", (0.25,))
    assert soft_sign.__doc__ == "x / (1 + |x|)"
    z = wave(Value(0.5), 2.0, scale=4.0)
    assert (z.data, z.local_grads[0]) == (4.0 * math.sin(1.0), 8.0 * math.cos(1.0))
    assert type(psi(Value(2.0)).data) is float


@pytest.mark.parametrize("f", [formulas, calls_out])
def test_derivatives_of_both_orders(f):
    x = np.random.default_rng(0).uniform(0.3, 1.4, size=12)
    assert check_gradients(f, x).ok
    second, step = hessian(f)(x), 1e-6
    for i in (0, 7):
        moved = step * np.eye(12)[i]
        slope = (grad(f)(x + moved) - grad(f)(x - moved)) / (2 * step)
        np.testing.assert_allclose(second[i], slope, atol=1e-7)


@pytest.mark.parametrize("lift", [False, True])
@pytest.mark.parametrize("f", [formulas, calls_out])
def test_compiled_as_eager(f, lift):
    fast = chainrule.compile(f, lift=lift, on_fallback="raise")
    slope = chainrule.compile(grad(f), lift=lift, on_fallback="raise")
    for seed in range(3):
        p = np.random.default_rng(seed).uniform(0.3, 1.4, size=12)
        value, slopes = fast.value_and_grad(p)
        wanted, by_eager = chainrule.value_and_grad(f)(p)
        assert value == pytest.approx(wanted, rel=1e-14)
        np.testing.assert_allclose(slopes, by_eager, rtol=1e-13)
        np.testing.assert_allclose(slope(p.tolist()), by_eager, rtol=1e-13)
    assert "0 eager" in fast.report()
    assert ("lifted to" in fast.report()) == (lift and f is formulas)
    assert ("opaque" in fast.report()) == (lift and f is calls_out)


def test_an_opaque_body_is_called_at_every_replay():
    table = {"scale": 2.0}
    scaled = operation(
        lambda x: table["scale"] * x, name="scaled", partials=lambda y, x: y / x, opaque=True
    )
    fast = chainrule.compile(lambda x: scaled(x) + 1.0, on_fallback="raise")
    assert fast.value_and_grad(3.0) == (7.0, 2.0)
    table["scale"] = 5.0
    assert fast.value_and_grad(3.0) == (16.0, 5.0)


def test_a_formula_is_read_once_for_eager_and_compiled_alike():
    factor = [2.0]

    @operation(partials=lambda y, x: factor[0])
    def times(x):
        return factor[0] * x

    fast = chainrule.compile(lambda x: times(x), on_fallback="raise")
    assert fast.value_and_grad(3.0) == (6.0, 2.0)
    factor[0] = 7.0
    assert fast.value_and_grad(3.0) == chainrule.value_and_grad(times)(3.0) == (6.0, 2.0)


def test_another_operation_under_the_name_is_recorded_anew():
    space = {"times": operation(lambda x: 2.0 * x, name="times", partials=lambda y, x: 2.0)}
    fast = chainrule.compile(lambda x: space["times"](x), on_fallback="raise")
    assert fast.value_and_grad(3.0) == (6.0, 2.0)
    space["times"] = operation(lambda x: 5.0 * x, name="times", partials=lambda y, x: 5.0)
    assert fast.value_and_grad(3.0) == (15.0, 5.0)


def test_an_error_in_an_opaque_body_is_eagers():
    def fails(x):
        if x > 2.0:
            raise KeyError("no such entry")
        return x

    lookup = operation(fails, name="lookup", partials=lambda y, x: 1.0, opaque=True)
    fast = chainrule.compile(lambda x: lookup(x) * 2.0, on_fallback="raise")
    assert fast.value_and_grad(1.0) == (2.0, 2.0)
    for call in (fast.value_and_grad, grad(lookup)):
        with pytest.raises(KeyError, match="no such entry"):
            call(3.0)


def test_undefined_values_follow_the_tables_rule():
    with pytest.raises(ValueError, match=r"inverse_root\(0\) is undefined"):
        inverse_root(Value(0.0) * 1.0 - 1.0 + 1.0)
    with chainrule.nonfinite("allow"):
        assert inverse_root(Value(0.0)).data == math.inf
    fast = chainrule.compile(lambda p: sum(inverse_root(x) for x in p), lift=True)
    p = np.linspace(1.0, 2.0, 12)
    np.testing.assert_allclose(fast.value_and_grad(p)[1], -0.5 * p**-1.5, rtol=1e-14)
    p[3] = -1.0
    with pytest.raises(ValueError, match="inverse_root"):
        fast.value_and_grad(p)


@operation(partials=lambda y, x: -0.5 * y / x)
def inverse_root(x):
    return 1.0 / chainrule.sqrt(x)


def test_in_what_people_look_at():
    x = Value(1.0, label="x")
    y = soft_sign(x)
    assert explain(y).forward[-1].formula == "soft_sign(x)"
    (contribution,) = explain(y).backward[0].contributions
    assert contribution.formula == "1 / (1 + abs(x))**2"
    for text in (draw(y).svg, draw(y).dot, explore(y).html, str(explain(y))):
        assert "soft_sign" in text
    opaque = psi(x) * 2.0
    assert "psi" in str(explain(opaque))
    assert "psi" in explore(opaque).html
    two = operation(lambda x: x * 3.0, name="soft_sign", partials=lambda y, x: 3.0)
    assert "soft_sign" in explore(two(x) + y).html


def test_second_derivatives_of_what_gave_numbers_say_what_to_write():
    with pytest.raises(TypeError, match="a partial of trigamma is opaque"):
        hessian(trigamma)(2.0)


def branching(x):
    return x if x > 0 else 2.0 * x


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (branching, r"'if': write where\(condition, a, b\)"),
        (lambda x: math.exp(x), "chainrule.exp, not math.exp"),
        (lambda x: x if x == 1.0 else 2.0 * x, "not with =="),
        (lambda x: [x], "gives a number, not a list"),
        (special.psi, "opaque=True"),
    ],
)
def test_a_body_that_is_no_formula_is_told_so(body, message):
    with pytest.raises(TypeError, match=message):
        operation(body, name="mine", partials=lambda y, x: 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "tanh"}, "already has a row named 'tanh'"),
        ({}, "pass name="),
        ({"name": "mine", "partials": [lambda y, x: 1.0] * 2}, "one for each operand"),
        ({"name": "mine", "partials": []}, "one to 3 operands"),
    ],
)
def test_mistakes_are_told(options, message):
    with pytest.raises(ValueError, match=message):
        operation(lambda x: x, **{"partials": lambda y, x: 1.0} | options)
    with pytest.raises(TypeError, match="takes a function"):
        operation(3.0, partials=lambda y, x: 1.0)
    assert issubclass(NotAFormula, TypeError)
