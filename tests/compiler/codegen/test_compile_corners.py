"""Near a corner, where a derivative jumps, machine code has the slope that eager mode has."""

import functools
import math
import operator
import random

import numpy as np
import pytest

import chainrule
from chainrule import clip, leaky_relu, maximum, minimum, relu, tanh
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


def in_a_small_loop(p, xs, t):
    state = total = 0.0
    for a, x in zip(p[6:26], xs[6:26], strict=True):
        state = relu(dot(p[:6], xs[:6]) - t + tanh(state * a) * 1e-300) * x
        total = total + state
    return total


def in_a_large_loop(p, xs, t):
    states, total = [0.0] * 20, 0.0
    for _ in range(12):
        turned = [xs[k:] + xs[:k] for k in range(20)]
        states = [
            relu(dot(p, x) - t + tanh(s) * 1e-300) for x, s in zip(turned, states, strict=True)
        ]
        total = total + sum(states)
    return total


def in_steps(p, xs, t):
    row = [abs(dot(p[k : k + 3], xs[k : k + 3]) - t) for k in range(16)]
    while len(row) > 1:
        row = [relu(a * x + b - c) for a, b, x, c in zip(row, row[1:], xs, p, strict=False)]
    return row[0]


LARGE = {
    **AT_A_CORNER,
    "max": lambda p, xs, t: max(p[0] * 0.0 + t, dot(p, xs)),
    "a list of differences": lambda p, xs, t: max([dot(p, xs) - t, p[0] * 0.0, p[1] * 0.0 - 1.0]),
    "a small loop": in_a_small_loop,
    "a large loop": in_a_large_loop,
    "steps": in_steps,
}
TERMS = {"a small loop": 6, "steps": 3}


@pytest.mark.parametrize("name", LARGE)
def test_large_terms_that_cancel_at_a_corner_have_the_slope_of_eager(name):
    f, rng = LARGE[name], np.random.default_rng(0)
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    fast.value_and_grad(*rng.normal(size=(2, 60)).tolist(), 0.0)
    for _ in range(20):
        p, xs = (rng.normal(size=60) * 1e8).tolist(), rng.normal(size=60).tolist()
        total = dot(p[: TERMS.get(name)], xs[: TERMS.get(name)])
        for t in (total, math.nextafter(total, 9e99), math.nextafter(total, -9e99)):
            (_, gradient), (_, slopes) = fast.value_and_grad(p, xs, t), eager(p, xs, t)
            np.testing.assert_allclose(gradient, slopes, atol=1e-9 * max(1, *np.abs(slopes)))


def test_large_terms_of_samples_in_lanes_have_the_slopes_of_eager():
    rng = np.random.default_rng(1)
    f = AT_A_CORNER["abs"]
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    p = rng.normal(size=60) * 1e8
    rows = rng.normal(size=(64, 60)).tolist()
    samples = [(xs, dot(p.tolist(), xs)) for xs in rows]
    _, gradient = fast.batch_value_and_grad(p, samples)
    slopes = np.mean([eager(p, *sample)[1] for sample in samples], axis=0)
    np.testing.assert_allclose(gradient, slopes, atol=1e-9)


def test_large_terms_in_code_for_several_lengths_have_the_slopes_of_eager():
    def f(p, points, t):
        return sum(relu(dot(p, xs) - t) for xs in points)

    rng = np.random.default_rng(2)
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    for length in (12, 5, 9, 5, 12, 7, 9):
        p, points = rng.normal(size=60).tolist(), rng.normal(size=(length, 60)).tolist()
        fast.value_and_grad(p, points, 0.3)
        for _ in range(6):
            p = (rng.normal(size=60) * 1e8).tolist()
            t = dot(p, points[length // 2])
            (_, gradient), (_, slopes) = fast.value_and_grad(p, points, t), eager(p, points, t)
            np.testing.assert_allclose(gradient, slopes, atol=1e-9)


def nested(p, xs, t):
    d = dot(p, xs)
    return relu(d - t) * 3.0 + d * 1e-3


def negated(p, xs, t):
    d = dot(p, xs)
    return relu(t - d) * 3.0 + d * 1e-3


def scaled(p, xs, t):
    d = dot(p, xs)
    return abs(0.5 * d - 0.5 * t) * 3.0 + d * 1e-3


def in_layers(p, xs, t):
    sums = [dot(p[k:] + p[:k], xs) for k in range(12)]
    return sum(relu(d - t) * x for d, x in zip(sums, xs, strict=False)) + sum(sums) * 1e-3


def in_a_loop(p, xs, t):
    total = state = 0.0
    for x in xs:
        d = p[0] + p[1] + p[2] + p[3] + p[4] + p[5] + p[6] + state * 1e-300
        state = relu(d - t) * x + d * 1e-3
        total = total + state
    return total


@pytest.mark.parametrize("f", [nested, negated, scaled, in_layers, in_a_loop])
def test_sums_in_sums_that_cancel_at_a_corner_have_the_slope_of_eager(f):
    rng = np.random.default_rng(3)
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    fast.value_and_grad(*rng.normal(size=(2, 60)).tolist(), 0.0)
    for _ in range(20):
        half = rng.normal(size=30) * 1e8
        p = np.concatenate([half, -rng.permutation(half)])
        if f is in_a_loop:
            p[:7] = [*half[:3], 0.5, *-rng.permutation(half[:3])]
        p, xs = p.tolist(), [1.0] * 60
        total = functools.reduce(operator.add, p[:7]) if f is in_a_loop else dot(p, xs)
        for t in (total, math.nextafter(total, 9e99), math.nextafter(total, -9e99)):
            (_, gradient), (_, slopes) = fast.value_and_grad(p, xs, t), eager(p, xs, t)
            np.testing.assert_allclose(gradient, slopes, atol=1e-9 * max(1, *np.abs(slopes)))


@pytest.mark.parametrize("rows", [2, 5])
def test_which_of_equal_sums_is_the_largest_is_what_eagers_rounding_says(rows):
    def largest(p, table):
        return max([dot(p, row) for row in table])

    fast, eager = chainrule.compile(largest, lift=True), chainrule.value_and_grad(largest)
    fast.value_and_grad([1.0] * 7, [[0.5 * k + j for j in range(7)] for k in range(rows)])
    draw = random.Random(0)
    for _ in range(60):  # the same terms in other orders, which differ in eager's last bits only
        base = [draw.choice([0.1, 0.2, 0.3, 0.7, 1.1]) for _ in range(7)]
        table = [draw.sample(base, 7) for _ in range(rows)]
        assert fast.value_and_grad([1.0] * 7, table)[1] == eager([1.0] * 7, table)[1]


def scores(p, xs):
    return [p[0] * x[0] + p[1] * x[1] for x in xs]


AMONG_EQUALS = {
    "list": lambda p, xs: max(scores(p, xs)),
    "least": lambda p, xs: min(scores(p, xs)),
    "dot": lambda p, xs: max([dot(p, x) for x in xs]),
    "pairs": lambda p, xs: sum(
        max(a, b) ** 2 for a, b in zip(scores(p, xs[::2]), scores(p, xs[1::2]), strict=True)
    ),
    "deeper": lambda p, xs: max([tanh(s * 0.1) * p[0] for s in scores(p, xs)]),
}


@pytest.mark.parametrize("name", AMONG_EQUALS)
def test_short_sums_of_other_numbers_that_are_equal_here_may_differ_in_eager(name):
    f = AMONG_EQUALS[name]
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    draw = random.Random(3)
    fast.value_and_grad([0.3, 0.7], [[0.1 * i + 1, 0.37 * i] for i in range(8)])
    for _ in range(60):  # of decimal fractions many sums are one number, but for rounding
        p = [round(draw.uniform(0.1, 2), 1) for _ in range(2)]
        equal = {}
        for _ in range(100):
            x = [round(draw.uniform(0, 2), 1) for _ in range(2)]
            equal.setdefault(round(p[0] * x[0] + p[1] * x[1], 4), []).append(x)
        rows = max(equal.values(), key=len)
        xs = [draw.choice(rows) for _ in range(8)]
        (value, gradient), (expected, slopes) = fast.value_and_grad(p, xs), eager(p, xs)
        assert value == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(gradient, slopes, atol=1e-9)


@pytest.mark.parametrize("name", AMONG_EQUALS)
def test_what_was_made_of_the_same_numbers_is_no_tie(name):
    f = AMONG_EQUALS[name]
    fast = chainrule.compile(f, lift=True, on_fallback="raise")
    fast.value_and_grad([0.3, 0.7], [[0.1 * i + 1, 0.37 * i] for i in range(8)])
    (structure,) = fast.dispatch.structures.values()
    (variant,) = [v for v in structure.variants if v.binding is not None]
    variant.forget_tape()
    draw = random.Random(4)
    for _ in range(20):
        some = [[draw.uniform(0, 2), draw.uniform(0, 2)] for _ in range(2)]
        xs = [draw.choice(some) for _ in range(8)]
        value, gradient = fast.value_and_grad([0.3, 0.7], xs)
        expected, slopes = chainrule.value_and_grad(f)([0.3, 0.7], xs)
        assert value == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(gradient, slopes, atol=1e-9)
    assert not variant.has_tape


def american(p, n):
    """A call by a binomial tree: without interest, to wait is worth as much as to exercise."""
    spot, strike, rate, volatility = p
    up = chainrule.exp(volatility * math.sqrt(1.0 / n))
    q = (chainrule.exp(rate / n) - 1 / up) / (up - 1 / up)
    discount = chainrule.exp(-rate / n)
    values = [max(spot * up ** (2 * j - n) - strike, 0.0) for j in range(n + 1)]
    for i in range(n - 1, -1, -1):
        values = [
            max(
                discount * (q * values[j + 1] + (1 - q) * values[j]),
                spot * up ** (2 * j - i) - strike,
            )
            for j in range(i + 1)
        ]
    return values[0]


@pytest.mark.parametrize("n", [4, 12])
def test_where_exercise_is_worth_as_much_as_waiting_eager_decides(n):
    fast, eager = chainrule.compile(american, lift=True), chainrule.value_and_grad(american)
    fast.value_and_grad([100.0, 70.0, 0.05, 0.3], n)
    draw = random.Random(5)
    for _ in range(60):
        p = [100 + draw.gauss(0, 10), 70.0, 0.0, draw.uniform(0.1, 0.5)]
        (_, gradient), (_, slopes) = fast.value_and_grad(p, n), eager(p, n)
        np.testing.assert_allclose(gradient, slopes, rtol=1e-8, atol=1e-8)
