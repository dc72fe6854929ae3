"""Numbers that float32 does not have: machine code in float32 is not used for them.

They would be infinite there, and an operation may make something finite of that.
"""

import numpy as np
import pytest

import chainrule
from chainrule import exp, relu, tanh

pytest.importorskip("llvmlite")

ORDINARY, BEYOND = [1.5, 2.0, 0.5, 3.0], [2e39, 1e39, 5e39, 3e39]
PARAMETERS = np.array([0.5, -0.25, 2.0, 1.0])


def divided(p, xs):
    return sum(1e37 * a / x for a, x in zip(p, xs, strict=True))


def decayed(p, xs):
    return sum(a * exp(-abs(x) / 1e39) for a, x in zip(p, xs, strict=True))


def clipped(p, xs):
    return sum(relu(a - x) + tanh(a) for a, x in zip(p, xs, strict=True))


FUNCTIONS = [divided, decayed, clipped]


@pytest.fixture(params=FUNCTIONS, ids=lambda f: f.__name__)
def pair(request):
    f = request.param
    return chainrule.compile(f, lift=True, dtype="float32"), chainrule.value_and_grad(f)


def near(found, wanted):
    value, gradient = wanted
    assert found[0] == pytest.approx(value, rel=1e-5, abs=1e-30)
    np.testing.assert_allclose(found[1], gradient, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("make", [list, np.array], ids=["list", "array"])
def test_single_calls(pair, make):
    fast, eager = pair
    for xs in (ORDINARY, BEYOND, ORDINARY, ORDINARY, BEYOND, BEYOND):
        near(fast.value_and_grad(PARAMETERS, make(xs)), eager(PARAMETERS, make(xs)))


def test_parameters(pair):
    fast, eager = pair
    large = PARAMETERS * np.array([1.0, 1.0, 1e39, 1.0])
    for p in (PARAMETERS, large, PARAMETERS, large):
        near(fast.value_and_grad(p, ORDINARY), eager(p, ORDINARY))


def test_batches(pair):
    fast, eager = pair
    samples = [(BEYOND if k % 5 == 3 else [x + 0.1 * k for x in ORDINARY],) for k in range(40)]
    for some in (samples, samples[:3], samples[2:5], samples):
        wanted = [eager(PARAMETERS, *sample) for sample in some]
        value = np.mean([y for y, _ in wanted])
        near(
            fast.batch_value_and_grad(PARAMETERS, some),
            (value, np.mean([g for _, g in wanted], axis=0)),
        )


def test_map(pair):
    fast, eager = pair
    rows = np.array([BEYOND if k % 7 == 2 else ORDINARY for k in range(64)])
    values, gradients = fast.map_value_and_grad(PARAMETERS, rows)
    for k, row in enumerate(rows):
        near((values[k], gradients[k]), eager(PARAMETERS, row))


def test_training(pair):
    fast, eager = pair
    samples = [(BEYOND if k % 4 == 1 else ORDINARY,) for k in range(8)]
    found, wanted = PARAMETERS.astype(np.float32), PARAMETERS.copy()
    losses = fast.train(found, samples, chainrule.optim.SGD(found, lr=1e-39), steps=16)
    optimiser, expected = chainrule.optim.SGD(wanted, lr=1e-39), []
    for step in range(16):
        value, gradient = eager(wanted, *samples[step % 8])
        expected.append(value)
        optimiser.step(gradient)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_evaluation(pair):
    fast, eager = pair
    samples = [(BEYOND if k % 4 == 1 else ORDINARY,) for k in range(8)]
    wanted = np.mean([eager(PARAMETERS, *sample)[0] for sample in samples])
    assert fast.evaluator(PARAMETERS, samples)() == pytest.approx(wanted, rel=1e-5)
