"""A branch that is not taken leaks no NaN: both orders, eager, tape and machine code."""

import numpy as np
import pytest

import chainrule
from chainrule import exp, grad, hessian, log, sqrt, where
from chainrule.core import ops, value


def root(x):
    return where(x > 0.0, sqrt(x), 0.0 * x)  # infinite slope at 0


def logarithm(x):
    return where(x > 1.0, log(x), x - 1.0)


def safe(x):
    return chainrule.safe_sqrt(x) * 3.0


def length(x):
    return chainrule.safe_norm([x, 2.0 * x])


BRANCHES = {f.__name__: f for f in (root, logarithm, safe, length)}
AT = (-1.0, 0.0, 1.0, 2.0)


def defined(name, x):
    """Whether both branches have a value: where one has none, it raises."""
    return {"root": x >= 0, "logarithm": x > 0}.get(name, True)


@pytest.mark.parametrize(
    ("name", "x"), [(name, x) for name in BRANCHES for x in AT if defined(name, x)]
)
def test_first_and_second_derivatives_are_those_of_the_branch(name, x):
    f = BRANCHES[name]
    first, second = grad(f)(x), hessian(f)(x)
    assert np.isfinite([first, second]).all()
    if x not in (0.0, 1.0):  # where the branches meet
        step = 1e-5
        assert first == pytest.approx((f(x + step) - f(x - step)) / (2 * step), abs=1e-6)
        assert second == pytest.approx(
            (grad(f)(x + step) - grad(f)(x - step)) / (2 * step), abs=1e-5
        )


@pytest.mark.parametrize("engine", [chainrule.Value, value.Value], ids=["chosen", "reference"])
def test_both_engines_sweep_nothing_into_the_other_branch(engine, monkeypatch):
    monkeypatch.setattr(engine._modes, "allow_nonfinite", True)
    for x in (0.0, -2.0):  # where the root's slope is infinite, and where it is no number
        v = engine(x)
        y = engine._apply_op(ops._where, (engine._apply_op(ops.sqrt, (v,), ()), v), (0.0,))
        y.backward()
        assert (y.data, v.grad) == (x, 1.0)


@pytest.mark.parametrize("lift", [False, True])
@pytest.mark.parametrize("name", BRANCHES)
def test_compiled_as_eager(name, lift):
    f = BRANCHES[name]

    def total(p):
        return sum(f(x) * (i + 1.0) for i, x in enumerate(p))

    fast = chainrule.compile(total, lift=lift, on_fallback="raise")
    slope = chainrule.compile(grad(total), lift=lift, on_fallback="eager")
    points = [x for x in AT if defined(name, x)]
    for turn in range(3):
        p = np.array((points * 6)[turn : turn + 12])
        value_, slopes = fast.value_and_grad(p)
        wanted, by_eager = chainrule.value_and_grad(total)(p)
        assert value_ == pytest.approx(wanted, rel=1e-14)
        np.testing.assert_allclose(slopes, by_eager, rtol=1e-13)
        np.testing.assert_allclose(slope(p.tolist()), by_eager, rtol=1e-13)


@pytest.mark.parametrize("lift", [False, True])
def test_an_infinite_branch_beside_a_finite_one(lift):
    """exp overflows in the branch that is not taken: eager raises, and so does compiled."""

    def total(p):
        return sum(where(x > 0.0, exp(-x), x) for x in p)

    fast = chainrule.compile(total, lift=lift, on_fallback="raise")
    p = np.linspace(-3.0, 3.0, 12)
    np.testing.assert_allclose(fast.value_and_grad(p)[1], grad(total)(p), rtol=1e-14)
    p[0] = -800.0
    with pytest.raises(OverflowError, match="exp"):
        grad(total)(p)
    with pytest.raises(OverflowError, match="exp"):
        fast.value_and_grad(p)
