"""Where the domain of an operation ends, compiled code is defined where eager mode is."""

import math
import random

import numpy as np
import pytest

import chainrule
from chainrule import acos, atanh, exp, hypot, log, log1p, maximum, sqrt, tanh, vsum
from chainrule.compiler.lift.poles import Poles


def dot(p, xs):
    return vsum(a * b for a, b in zip(p, xs, strict=True))


def spread(p, xs):
    """As in textbooks: the mean of the squares less the square of the mean."""
    scaled = [a * x for a, x in zip(p, xs, strict=True)]
    mean = vsum(scaled) / len(scaled)
    return sqrt(vsum(s * s for s in scaled) / len(scaled) - mean * mean)


def deviations(p, xs):
    """Of the products from their mean; equal ones have none, but for rounding."""
    scaled = [a * x for a, x in zip(p, xs, strict=True)]
    mean = vsum(scaled) / len(scaled)
    return [s - mean for s in scaled]


def standardised(p, xs):
    found = deviations(p, xs)
    deviation = sqrt(vsum(d * d for d in found) / len(found))
    return vsum((k + 1) * d / deviation for k, d in enumerate(found))


def largest(p, xs):
    return p[0] / max(abs(d) for d in deviations(p, xs))


def angle(p, xs):
    return acos(dot(p, xs) / (sqrt(dot(p, p)) * sqrt(dot(xs, xs)))) * p[0]


def eliminated(p, xs):
    rows = [[p[3 * i + j] for j in range(3)] for i in range(3)]
    for k in range(3):
        for i in range(k + 1, 3):
            factor = rows[i][k] / rows[k][k]
            rows[i] = [a - factor * b for a, b in zip(rows[i], rows[k], strict=True)]
    return vsum(x / rows[k][k] for k, x in enumerate(xs[:3]))


def shares(draw, _):
    """Shares that are 1 together, but for rounding."""
    xs = [round(draw.uniform(0, 1), 1) for _ in range(10)]
    p = [round(draw.uniform(0, 1), 1) for _ in range(10)]
    xs[9], p[9] = 1.0, round(1.0 - sum(a * b for a, b in zip(p[:9], xs[:9], strict=True)), 2)
    return p, xs


def equal(draw, _):
    return [round(draw.uniform(0, 1), 2)] * 10, [1.0] * 10


def parallel(draw, k):
    xs = [draw.uniform(0, 1) for _ in range(10)]
    return [x * (1, 2, 3, -1)[k % 4] for x in xs], xs


def singular(draw, _):
    a, b = ([draw.choice([0.1, 0.3, 0.7]) * draw.randint(1, 3) for _ in range(3)] for _ in "ab")
    return [*a, *b, *(0.1 * x + 0.3 * y for x, y in zip(a, b, strict=True))], [1.0, 2.0, 3.0]


AT_AN_END = {
    "log": (lambda p, xs: log(1.0 - dot(p, xs)) + p[0], shares),
    "log1p": (lambda p, xs: log1p(-dot(p, xs)) + p[0], shares),
    "inverse": (lambda p, xs: p[0] / (dot(p, xs) - 1.0), shares),
    "factor": (lambda p, xs: 1.0 / ((dot(p, xs) - 1.0) * p[0] * 3.0), shares),
    "root": (lambda p, xs: (dot(p, xs) - 1.0) ** 0.5, shares),
    "atanh": (lambda p, xs: atanh(dot(p, xs)), shares),
    "spread": (spread, equal),
    "variance": (lambda p, xs: log(vsum(d**2 for d in deviations(p, xs))), equal),
    "standardised": (standardised, equal),
    "distances": (lambda p, xs: 1.0 / vsum(sqrt(d * d) for d in deviations(p, xs)), equal),
    "largest": (largest, equal),
    "square": (lambda p, xs: log((dot(p, xs) - 1.0) ** 2) + p[0], shares),
    "size": (lambda p, xs: log(abs(dot(p, xs) - 1.0)) + p[0], shares),
    "function": (lambda p, xs: p[0] / tanh(dot(p, xs) - 1.0), shares),
    "functions": (
        lambda p, xs: 1.0 / vsum(3.0 * tanh(d) for d in deviations(p, xs)),
        equal,
    ),
    "length": (lambda p, xs: 1.0 / hypot(dot(p, xs) - 1.0, p[0] - p[0]), shares),
    "ramp": (lambda p, xs: log(maximum(dot(p, xs) - 1.0, 0.0)) + p[0], shares),
    "angle": (angle, parallel),
    "eliminated": (eliminated, singular),
}


def outcome(f, *arguments):
    try:
        return f(*arguments)
    except (ArithmeticError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("is_plain", [False, True], ids=["gradient", "plain"])
@pytest.mark.parametrize("name", AT_AN_END)
def test_what_eager_finds_undefined_is_undefined(name, is_plain):
    f, drawn = AT_AN_END[name]
    compiled = chainrule.compile(f, lift=True)
    fast = compiled if is_plain else compiled.value_and_grad
    eager = f if is_plain else chainrule.value_and_grad(f)
    outcome(fast, [0.05 + 0.003 * i * i for i in range(10)], [0.5] * 10)
    draw, raised = random.Random(0), 0
    for k in range(150):
        arguments = drawn(draw, k)
        found, expected = outcome(fast, *arguments), outcome(eager, *arguments)
        if isinstance(expected, tuple) and isinstance(expected[0], type):
            raised += 1
            assert found == expected
        elif is_plain:
            assert found.data == pytest.approx(expected.data, rel=1e-9)
        else:
            assert found[0] == pytest.approx(expected[0], rel=1e-9)
            np.testing.assert_allclose(found[1], expected[1], rtol=1e-8, atol=1e-8)
    assert raised or name in ("spread", "root")


def recording_of(f, *arguments):
    fast = chainrule.compile(f, lift=False)
    fast.value_and_grad(*arguments)
    (structure,) = fast.dispatch.structures.values()
    return structure.variants[0].recording


def softmax(p, xs):
    largest = max(x * a for a, x in zip(p, xs, strict=True))
    shares = [exp(a * x - largest) for a, x in zip(p, xs, strict=True)]
    return -log(shares[0] / vsum(shares))


SAFE = {
    "softmax": softmax,
    "norm": lambda p, xs: p[0] / sqrt(vsum(a * a for a in p) / 10 + 1e-5),
    "gap": lambda p, xs: 1.0 / vsum((a - x) * (a - x) for a, x in zip(p, xs, strict=True)),
    "powers": lambda p, xs: log(vsum((a - x) ** 2 for a, x in zip(p, xs, strict=True)) + 1.0),
    "passed": lambda p, xs: log(p[0] / xs[1]) + 1.0 / (p[2] + xs[3]) + 1.0 / p[4],
    "scale": lambda p, xs: p[0] / sqrt(vsum(d * d for d in deviations(p, xs)) / 10 + 1e-5),
    "softened": lambda p, xs: log(vsum(abs(d) + 0.1 for d in deviations(p, xs))),
    "bounded": lambda p, xs: log(max(p[0] * xs[0], 0.1) + exp(p[1])),
}


@pytest.mark.parametrize("name", SAFE)
def test_where_nothing_cancels_nothing_is_added(name):
    p = [0.05 + 0.3 * math.sin(i) ** 2 for i in range(10)]
    assert Poles(recording_of(SAFE[name], p, [0.5 + 0.1 * i for i in range(10)])).found() == []


def test_an_end_is_found_among_very_many_terms():
    def loss(p, xs):
        return log(vsum(exp(a * x) for a, x in zip(p, xs, strict=True)) - p[0])

    recording = recording_of(loss, [0.1] * 300, [0.5] * 300)
    (end,) = Poles(recording).found()
    assert (recording.rules[recording.codes[end.position] - 2].name, end.number) == ("log", 0.0)


def test_numbers_that_are_not_finite_are_looked_at_without_a_warning():
    """Python's maximum starts from minus infinity, which is no exponent, odd or even."""

    def loss(p, xs):
        terms = zip(p, xs, strict=True)
        return vsum(sqrt(maximum(a * x, -math.inf) ** 2 + maximum(a, -math.inf)) for a, x in terms)

    recording = recording_of(loss, [0.1 + 0.01 * k for k in range(40)], [0.5] * 40)
    assert not np.isfinite(recording.constants).all()
    assert len(Poles(recording).found()) == 40


def test_a_chain_of_what_may_be_negative_is_gone_through_once(monkeypatch):
    asked, needed = [], Poles._needed

    def counted(self, i):
        asked.append(i)
        return needed(self, i)

    monkeypatch.setattr(Poles, "_needed", counted)

    def iterated(A, turns):
        v = [1.0] * 3
        for _ in range(turns):
            w = [sum(a * x for a, x in zip(row, v, strict=True)) for row in A]
            v = [x / sqrt(sum(y * y for y in w)) for x in w]
        return v[0]

    def steps(turns):
        asked.clear()
        fast = chainrule.compile(lambda A: iterated(A, turns), lift=True)
        fast.value_and_grad([[0.5, -0.2, 0.1], [0.3, 0.4, -0.1], [0.2, 0.1, 0.6]])
        return len(asked)

    few = steps(10)
    assert 0 < steps(40) < 6 * few
