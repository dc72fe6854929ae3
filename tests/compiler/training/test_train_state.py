"""Captured state that changes between steps, with calls of the function in between."""

import time

import numpy as np
import pytest

import chainrule
from chainrule import optim, tanh

SCALE = 1.0


def weighted(p, ids, x):
    total = p[0] * SCALE
    for j, k in enumerate(ids):
        total = total + p[k] * p[(k + j) % 4] * SCALE + tanh(p[k] * x)
    return total * total * 0.01


def some_samples(rng):
    return [(rng.integers(0, 4, 60).tolist(), float(x)) for x in rng.uniform(0, 1, 40)]


@pytest.fixture(autouse=True)
def _usual_scale():
    global SCALE
    SCALE = 1.0
    yield
    SCALE = 1.0


@pytest.mark.parametrize("lift", [None, True])
def test_a_trainer_notices_what_a_call_noticed_before_it(lift):
    global SCALE
    samples, q = some_samples(np.random.default_rng(0)), np.array([0.7, -0.4, 0.3, 0.9])
    fast = chainrule.compile(weighted, lift=lift)
    trainer = fast.trainer(q, samples, optim.SGD(q, lr=0.001), batch=5)
    trainer.advance(80)
    p, SCALE = q.copy(), 3.0
    fast.value_and_grad(q.copy(), *samples[0])
    losses, wanted = trainer.advance(8), []
    for step in range(80, 88):
        here = [samples[(step * 5 + j) % 40] for j in range(5)]
        found = [chainrule.value_and_grad(weighted)(p, *sample) for sample in here]
        wanted.append(np.mean([v for v, _ in found]))
        p -= 0.001 * np.mean([g for _, g in found], axis=0)
    np.testing.assert_allclose(losses, wanted, rtol=1e-9)
    np.testing.assert_allclose(q, p, rtol=1e-9)


@pytest.mark.parametrize("lift", [None, True])
def test_an_evaluator_notices_it_too(lift):
    global SCALE
    samples, q = some_samples(np.random.default_rng(1)), np.array([0.7, -0.4, 0.3, 0.9])
    fast = chainrule.compile(weighted, lift=lift)
    evaluate = fast.evaluator(q, samples)
    evaluate()
    SCALE = 3.0
    fast.value_and_grad(q, *samples[0])
    wanted = np.mean([chainrule.value_and_grad(weighted)(q, *sample)[0] for sample in samples])
    assert evaluate() == pytest.approx(wanted, rel=1e-9)


def test_steps_after_one_that_changed_what_others_read():
    def make():
        best = float("inf")

        def f(p, x, k):
            nonlocal best
            if x > 0.9:
                best = min(best, x)
            return (p[k] - x) ** 2 * (2 if best < 0.95 else 1)

        return f

    rng = np.random.default_rng(0)
    rows = zip(rng.uniform(0, 0.89, 40), rng.integers(0, 4, 40), strict=True)
    samples = [(float(x), int(k)) for x, k in rows]
    samples[7], samples[23] = (0.92, 1), (0.91, 0)
    f, p = make(), np.array([0.7, -0.4, 0.3, 0.9])
    q, wanted = p.copy(), []
    for step in range(8):
        here = [samples[(step * 5 + j) % 40] for j in range(5)]
        found = [chainrule.value_and_grad(f)(p, *sample) for sample in here]
        wanted.append(np.mean([v for v, _ in found]))
        p -= 0.01 * np.mean([g for _, g in found], axis=0)
    fast = chainrule.compile(make(), lift=True, on_fallback="eager")
    losses = fast.train(q, samples, optim.SGD(q, lr=0.01), steps=8, batch=5)
    np.testing.assert_allclose(losses, wanted, rtol=1e-9)


def test_a_function_that_cannot_be_recorded_any_more_goes_on_eagerly():
    scale = [lambda v: v]

    def f(p, ids, x):
        total = p[0]
        for j, k in enumerate(ids):
            total = total + p[k] * p[(k + j) % 4] + p[k] * x
        return scale[0](total * total * 0.01)

    samples, q = some_samples(np.random.default_rng(2)), np.array([0.7, -0.4, 0.3, 0.9])
    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    trainer = fast.trainer(q, samples, optim.SGD(q, lr=0.001), batch=5)
    trainer.advance(4)
    scale[0] = lambda v: v * (2.0 if time.time() > 0 else 1.0)
    p = q.copy()
    (loss,) = trainer.advance(1)
    here = [samples[20 + j] for j in range(5)]
    assert loss == pytest.approx(np.mean([chainrule.value_and_grad(f)(p, *s)[0] for s in here]))
