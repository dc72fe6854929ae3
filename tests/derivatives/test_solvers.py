"""Derivatives through solvers, and calls whose graph is not kept."""

import math

import mpmath
import numpy as np
import pytest

import chainrule
from chainrule import (
    SolverError,
    Value,
    checkpoint,
    exp,
    fixed_point,
    grad,
    hessian,
    implicit_root,
    jacobian,
    sin,
    tanh,
    topological_order,
)
from chainrule.compiler.capture import tracing
from chainrule.compiler.runtime import pipeline


def cube_root(a):
    return implicit_root(lambda x, a: x * x * x - a, 1.0, a)


def kepler(p):
    """The eccentric anomaly E of E - e·sin E = M."""
    return implicit_root(lambda x, e, m: x - e * sin(x) - m, p[1], p[0], p[1])


def test_derivatives_of_three_orders():
    for a in (0.3, 8.0):
        assert cube_root(a) == pytest.approx(a ** (1 / 3), rel=1e-14)
        assert grad(cube_root)(a) == pytest.approx(a ** (-2 / 3) / 3, rel=1e-12)
        assert hessian(cube_root)(a) == pytest.approx(-2 / 9 * a ** (-5 / 3), rel=1e-10)
        assert grad(grad(grad(cube_root)))(a) == pytest.approx(10 / 27 * a ** (-8 / 3), rel=1e-9)


def test_against_mpmath():
    with mpmath.workdps(40):

        def exactly(e, m):
            return mpmath.findroot(lambda x: x - e * mpmath.sin(x) - m, m)

        at = (mpmath.mpf(0.4), mpmath.mpf(1.1))
        first = [float(mpmath.diff(exactly, at, n)) for n in ((1, 0), (0, 1))]
        second = [float(mpmath.diff(exactly, at, n)) for n in ((2, 0), (1, 1), (0, 2))]
    p = np.array([0.4, 1.1])
    np.testing.assert_allclose(grad(kepler)(p), first, rtol=1e-12)
    found = hessian(kepler)(p)
    np.testing.assert_allclose([found[0, 0], found[0, 1], found[1, 1]], second, rtol=1e-10)


def intersection(p):
    """Where a circle and a parabola meet."""
    return implicit_root(
        lambda x, r, s: [x[0] * x[0] + x[1] * x[1] - r * r, x[1] - s * x[0] * x[0]],
        [1.0, 1.0],
        p[0],
        p[1],
    )


def test_systems():
    p, step = [2.0, 0.7], 1e-6
    x, y = intersection(p)
    assert x * x + y * y == pytest.approx(4.0, rel=1e-14)
    found = jacobian(intersection)(p)
    for i in range(2):
        moved = [q + step * (i == j) for j, q in enumerate(p)]
        back = [q - step * (i == j) for j, q in enumerate(p)]
        slope = (np.array(intersection(moved)) - np.array(intersection(back))) / (2 * step)
        np.testing.assert_allclose(found[:, i], slope, atol=1e-8)
    array = implicit_root(lambda x, a: x * x - a, np.array([1.0, 1.0]), np.array([4.0, 9.0]))
    np.testing.assert_allclose(array, [2.0, 3.0])


def test_values_around_the_equation_count():
    a = Value(4.0)
    x = implicit_root(lambda x: x * x - a, 1.0)
    x.backward()
    assert (x.data, a.grad) == (2.0, 0.25)


def test_a_fixed_point_has_the_derivative_of_its_equation():
    def point(a):
        return fixed_point(lambda x, a: exp(-a * x), 0.5, a)

    x = point(1.0)
    assert grad(point)(1.0) == pytest.approx(-x * x / (1 + x), rel=1e-11)
    with pytest.raises(SolverError, match="after 20 steps"):
        fixed_point(lambda x, a: a * x + 1.0, 1.0, 1.0, steps=20)


@pytest.mark.parametrize("lift", [False, True])
def test_compiled_as_eager(lift):
    def total(p):
        return sum(kepler([p[i], p[i + 4]]) * (i + 1) for i in range(4)) + cube_root(p[7])

    fast = chainrule.compile(total, lift=lift, on_fallback="raise")
    for seed in range(6):
        p = np.random.default_rng(seed).uniform(0.2, 0.7, size=8)
        value, slopes = fast.value_and_grad(p)
        wanted, by_eager = chainrule.value_and_grad(total)(p)
        assert value == pytest.approx(wanted, rel=1e-13)
        np.testing.assert_allclose(slopes, by_eager, rtol=1e-11)
    assert " 0 eager" in fast.report()


@pytest.mark.parametrize("g", [lambda x, a: x, lambda x, a: x + 0.5 * tanh(x) - a])
def test_the_root_of_numbers_is_a_number_in_compiled_functions_too(monkeypatch, g):
    def root(p, k):
        return implicit_root(g, 0.0, p[k])

    # without the comparison of the first result, which would leave the call to eager
    monkeypatch.setattr(pipeline, "check_against_eager", lambda *_: None)
    monkeypatch.setattr(tracing, "confirm", lambda *_, **__: None)
    fast = chainrule.compile(root, on_fallback="raise")
    for p in ([0.5, 0.3], [0.2, -0.4], [0.1, 0.3]):
        assert type(fast(p, 1)) is type(root(p, 1)) is float
        assert fast(p, 1) == root(p, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: implicit_root(lambda x: x * x + 1.0, 1.0), "left after|derivative by x is 0"),
        (lambda: implicit_root(lambda x: 0.0 * x + 1.0, 1.0), "derivative by x is 0 at 1.0"),
    ],
)
def test_no_root_raises(call, message):
    with pytest.raises(SolverError, match=message):
        call()


def test_mistakes_are_told():
    with pytest.raises(ValueError, match="2 unknowns need as many equations, got 1"):
        implicit_root(lambda x: [x[0]], [1.0, 2.0])
    with pytest.raises(TypeError, match="starts from a number"):
        implicit_root(lambda x: x, "1")


# --- checkpoint -----------------------------------------------------------------------------------


def pendulum(state, length, dt):
    angle, speed = state
    for _ in range(5):
        speed = speed - dt * sin(angle) / length
        angle = angle + dt * speed
    return [angle, speed]


def swing(p, step):
    state = [p[0], p[1]]
    for _ in range(30):
        state = step(state, p[2], 0.05)
    return state[0] * state[0] + state[1]


def test_the_same_gradient_from_a_smaller_graph():
    light = checkpoint(pendulum)
    p = [1.0, 0.2, 0.8]
    np.testing.assert_allclose(grad(swing)(p, light), grad(swing)(p, pendulum), rtol=1e-13)
    sizes = [
        len(topological_order(swing([Value(x) for x in p], step))) for step in (light, pendulum)
    ]
    assert sizes[0] < 80 < 1000 < sizes[1]
    np.testing.assert_allclose(hessian(swing)(p, light), hessian(swing)(p, pendulum), rtol=1e-12)
    fast = chainrule.compile(lambda p: swing(p, light), on_fallback="raise")
    np.testing.assert_allclose(fast.value_and_grad(p)[1], grad(swing)(p, pendulum), rtol=1e-12)


def test_values_from_elsewhere_get_their_gradients_too():
    a, b = Value(0.5, label="a"), Value(2.0)
    inner = a * b  # an interior node around the function

    def step(x):
        return sin(inner * x) + a * 3.0

    x = Value(1.5)
    graphs = [checkpoint(step)(x) * 2.0, step(x) * 2.0]
    found = []
    for y in graphs:
        y.zero_grad()
        for v in (a, b, x):
            v.grad = 0.0
        y.backward()
        found.append([y.data, a.grad, b.grad, x.grad, inner.grad])
    assert found[0] == pytest.approx(found[1], rel=1e-15)
    assert found[0][0] == 2.0 * (math.sin(1.5) + 1.5)


def test_what_comes_back_has_its_form():
    pair = checkpoint(lambda x, y: (x * y, x))(Value(2.0), 3.0)
    assert type(pair) is tuple
    assert [v.data for v in pair] == [6.0, 2.0]
    assert checkpoint(lambda x: x * 2.0)(1.5) == 3.0
    array = checkpoint(lambda xs: xs.sum() * 2.0)(np.array([Value(1.0), Value(2.0)]))
    assert (array.data, array.local_grads) == (6.0, (2.0, 2.0))
