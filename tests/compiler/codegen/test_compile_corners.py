"""Near a corner, where a derivative jumps, machine code has the slope that eager mode has."""

import math
import random

import numpy as np
import pytest

import chainrule
from chainrule import clip, leaky_relu, maximum, minimum, relu
from chainrule.compiler.lift.corners import corners
from chainrule.core import ops

rng = random.Random(0)
P = [rng.choice([0.1, 0.2, 0.3, 0.7, -0.3]) for _ in range(60)]
XS = [rng.choice([0.1, 0.3, 1.0, -0.1, 0.7]) for _ in range(60)]


def dot(p, xs):
    return sum(a * x for a, x in zip(p, xs, strict=True))


AT_A_CORNER = {
    "relu": lambda p, xs, t: relu(dot(p, xs) - t) * 3.0,
    "leaky_relu": lambda p, xs, t: leaky_relu(dot(p, xs) - t) * 3.0,
    "abs": lambda p, xs, t: abs(dot(p, xs) - t) * 3.0,
    "max": lambda p, xs, t: max(t, dot(p, xs)),
    "min": lambda p, xs, t: min(p[0] * 0.0 + t, dot(p, xs)),
    "maximum": lambda p, xs, t: maximum(dot(p, xs), p[0] * 0.0 + t),
    "minimum": lambda p, xs, t: minimum(dot(p, xs), p[0] * 0.0 + t),
    "clip": lambda p, xs, t: clip(dot(p, xs) - t, 0.0, 2.0),
    "list": lambda p, xs, t: max([p[0], dot(p, xs), p[1] * 0.0 + t, -t]),
    "layer": lambda p, xs, t: sum(q * relu(dot(p, xs) - t) for q in p),
}


@pytest.mark.parametrize("name", AT_A_CORNER)
def test_the_slope_at_a_corner_is_that_of_eager(name):
    f = AT_A_CORNER[name]
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    fast.value_and_grad(P, XS, 0.0)
    draw = random.Random(1)
    for _ in range(8):
        p = draw.sample(P, len(P))
        total = dot(p, XS)
        for t in (total, math.nextafter(total, 9e9), math.nextafter(total, -9e9)):
            value, gradient = fast.value_and_grad(p, XS, t)
            expected, slopes = eager(p, XS, t)
            assert value == pytest.approx(expected, abs=1e-12)
            np.testing.assert_allclose(gradient, slopes, atol=1e-9)


def test_samples_at_a_corner_have_the_slopes_of_eager():
    f = AT_A_CORNER["abs"]
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    total = dot(P, XS)
    samples = [(XS, total + k * 1e-15) for k in range(-8, 8)] * 2
    value, gradient = fast.batch_value_and_grad(P, samples)
    single = [eager(P, *sample) for sample in samples]
    assert value == pytest.approx(np.mean([v for v, _ in single]), abs=1e-12)
    np.testing.assert_allclose(gradient, np.mean([g for _, g in single], axis=0), atol=1e-9)


def silent(w, x):
    """Two layers without biases: zeros of the first make zeros of the second."""
    hidden = [relu(dot(row, x)) for row in w["first"]]
    last = [relu(dot(row, hidden)) for row in w["second"]]
    return sum(max(a, b) for a, b in zip(last, hidden, strict=True))


def penalty(w, x):
    """Corners of what was passed, and of sums by two."""
    steps = sum(abs(a - b) for a, b in zip(x, w["first"][0], strict=True))
    return steps + sum(
        relu(abs(a) - 0.5) + max(a, b) for a, b in zip(x, w["second"][0], strict=True)
    )


@pytest.mark.parametrize("f", [silent, penalty])
def test_zeros_that_no_rounding_decides_stay_in_machine_code(f):
    fast = chainrule.compile(f, lift=True, on_fallback="raise")
    draw = np.random.default_rng(0)
    w = {"first": draw.normal(size=(6, 6)), "second": draw.normal(size=(6, 6))}
    fast.value_and_grad(w, draw.normal(size=6))
    (structure,) = fast.dispatch.structures.values()
    (variant,) = [v for v in structure.variants if v.binding is not None]
    for x in (np.zeros(6), np.full(6, 0.5), w["first"][0], w["second"][0]):
        variant.forget_tape()
        value, gradient = fast.value_and_grad(w, x)
        expected, slopes = chainrule.value_and_grad(f)(w, x)
        assert value == pytest.approx(expected, abs=1e-12)
        for name, slope in slopes.items():
            np.testing.assert_allclose(gradient[name], slope, atol=1e-9)
        assert not variant.has_tape


def test_corners_are_found_in_the_partials():
    found = {op.name for op in (*ops.TABLE.values(), *ops.BLOCKS.values()) if corners(op)}
    assert {"relu", "leaky_relu", "abs", "maximum", "minimum", "clip", "first_max"} <= found
    assert not found & {"add", "mul", "pow", "tanh", "sigmoid", "softplus", "select"}


def test_steps_of_training_at_a_corner_are_those_of_eager():
    def loss(w, x, t):
        return abs(dot(w["p"], x) - t[0]) * 3.0

    start = np.array(P)
    inputs = [[0.1 * ((i * 7 + k * 3) % 11 - 5) for k in range(len(P))] for i in range(64)]
    samples = [(x, [dot(P, x) + (i % 3 - 1) * 2e-16]) for i, x in enumerate(inputs)]
    found = []
    for lift in (True, False):
        w = {"p": start.copy()}
        fast = chainrule.compile(loss, lift=lift)
        fast.train(w, samples, chainrule.optim.SGD(w, lr=1e-3), steps=3, batch=16)
        found.append(w["p"])
    np.testing.assert_allclose(found[0], found[1], atol=1e-12)
