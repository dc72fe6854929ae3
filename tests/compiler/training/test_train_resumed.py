"""A run that goes on in another trainer comes to the same bits, whatever code it meets."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule import optim, tanh
from chainrule.compiler.training import packing

pytest.importorskip("llvmlite")


def network(p, x, y):
    """Which way the branches go depends on the parameters, and changes from step to step."""
    hidden = [tanh(w * x + b) for w, b in zip(p["w"], p["b"], strict=True)]
    total = sum(v * h for v, h in zip(p["v"], hidden, strict=True))
    if p["w"][0] > 0.45:
        total = total * 1.01 + 0.001
    if total > 0.3:
        total = total * 1.02
    return (total - y) ** 2


def network_task() -> Any:
    rng = np.random.default_rng(1)
    params = {name: rng.normal(size=8) for name in "wbv"}
    params["w"][0] = 0.5
    return params, [(float(x), float(x * x)) for x in rng.uniform(-1, 1, 50)]


def pairs(p, tokens):
    """Rare tokens take a path of their own."""
    total = 0.0
    for a, b in pairwise(tokens):
        match = sum(tanh(u * v) for u, v in zip(p["e"][a], p["f"][b], strict=True))
        if a == 3:
            match = match * 1.01 + 0.1
        total = total + (match - 1.0) ** 2
    return total / len(tokens)


def pairs_task() -> Any:
    rng = np.random.default_rng(2)
    params = {name: rng.normal(size=(4, 9)) for name in "ef"}
    samples = [(rng.integers(0, 3, 5).tolist(),) for _ in range(60)]
    return params, [*samples, ([3, 1, 3, 2, 0],), ([0, 3, 3, 1, 2],)]


def lists(p, numbers):
    """Each length has machine code of its own."""
    return sum(tanh(w * x) ** 2 for w, x in zip(p["w"], numbers, strict=False))


def lists_task() -> Any:
    rng = np.random.default_rng(3)
    samples = [(rng.normal(size=9).tolist(),) for _ in range(70)]
    return {"w": rng.normal(size=9)}, [*samples, (rng.normal(size=5).tolist(),)]


TASKS = {network: network_task, pairs: pairs_task, lists: lists_task}


def fresh(function: Any, batch: int, dtype: str) -> Any:
    params, samples = TASKS[function]()
    params = {name: array.astype(dtype) for name, array in params.items()}
    fast = chainrule.compile(function, dtype=dtype, lift=True)
    return fast.trainer(params, samples, optim.Adam(params, lr=3e-3), batch=batch)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("function", TASKS, ids=lambda function: function.__name__)
def test_a_run_that_is_resumed_comes_to_the_same_bits(function, batch, dtype, monkeypatch):
    monkeypatch.setattr(packing, "AT_ONCE", 16)  # what comes later is looked at in another go
    whole = fresh(function, batch, dtype)
    whole.advance(240)
    state = whole.state_dict()
    whole.advance(60)
    resumed = fresh(function, batch, dtype)
    resumed.load_state_dict(state)
    resumed.advance(60)
    assert (resumed.losses == whole.losses).all()
    for name, array in whole.params.items():
        assert (resumed.params[name] == array).all()


def test_a_step_in_python_is_the_mean_of_its_samples_for_numbers_too():
    params = {"a": np.array(0.5), "b": np.array([1.0, 2.0])}
    samples = [(1.0,), (2.0,), (4.0,)]

    def loss(p, x):
        return p["a"] * x + p["b"][0] * p["b"][1] * x * x

    fast = chainrule.compile(loss, lift=False)
    trainer = fast.trainer(params, samples, optim.SGD(params, lr=0.1), batch=3)
    assert trainer.advance(1)[0] == pytest.approx(0.5 * 7 / 3 + 2.0 * 7)
    assert params["a"] == pytest.approx(0.5 - 0.1 * 7 / 3)
    assert params["b"] == pytest.approx([1.0 - 0.1 * 14, 2.0 - 0.1 * 7])


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("function", TASKS, ids=lambda function: function.__name__)
def test_a_thousand_steps_have_the_losses_of_the_tape(function, batch):
    losses = []
    for lift in (True, False):
        params, samples = TASKS[function]()
        fast = chainrule.compile(function, lift=lift, on_fallback="eager")
        trainer = fast.trainer(params, samples, optim.Adam(params, lr=3e-3), batch=batch)
        losses.append(trainer.advance(1000))
    np.testing.assert_allclose(*losses, rtol=0, atol=1e-9)
