"""Samples that do not all run on one piece of machine code, and copies of weights for several."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from test_compile_batches import names
from test_compile_lifted import gpt_params, microgpt

import chainrule
from chainrule import optim, tanh
from chainrule.compiler.training import step_code
from chainrule.compiler.training.driver import Trainer

pytest.importorskip("llvmlite")


def recurrent(p, numbers):
    """Each length is a program of its own."""
    state, total = 0.0, 0.0
    for x, target in pairwise(numbers):
        state = tanh(p["w"] * state + p["u"] * x + p["b"])
        total = total + (state - target) ** 2
    return total


def recurrent_params() -> Any:
    return {name: np.array(x) for name, x in (("w", 0.3), ("u", 0.5), ("b", 0.1))}


def of_lengths(count: int) -> list[Any]:
    chance = random.Random(count)
    return [
        ([chance.gauss(0, 1) for _ in range(chance.choice([3, 4, 5, 7, 9]))],) for _ in range(count)
    ]


@pytest.fixture
def in_python(monkeypatch):
    """The steps that are taken in Python."""
    seen: list[int] = []
    original = Trainer._step

    def watching(self: Any) -> None:
        seen.append(self.taken)
        original(self)

    monkeypatch.setattr(Trainer, "_step", watching)
    return seen


def trained(function: Any, params: Any, samples: Any, batch: int, steps: Any, lift: bool) -> Any:
    params = {name: np.array(x) for name, x in params.items()}
    fast = chainrule.compile(function, on_fallback="raise", lift=lift)
    trainer = fast.trainer(params, samples, optim.Adam(params, lr=0.01), batch=batch)
    for some in steps:
        trainer.advance(some)
    return trainer.losses.copy(), params


@pytest.mark.parametrize("batch", [1, 6])
def test_lists_of_several_lengths_train_in_machine_code_to_the_losses_of_eager(batch, in_python):
    samples = of_lengths(40)
    losses, params = trained(recurrent, recurrent_params(), samples, batch, [1000], lift=True)
    assert not in_python
    wanted, arrays = trained(recurrent, recurrent_params(), samples, batch, [1000], lift=False)
    assert len(in_python) == 1000
    assert np.abs(losses - wanted).max() < 1e-9
    assert all(np.abs(params[name] - arrays[name]).max() < 1e-9 for name in params)


def test_it_does_not_matter_in_which_portions_steps_are_asked_for(in_python):
    samples = of_lengths(30)
    whole = trained(recurrent, recurrent_params(), samples, 6, [60], lift=True)
    parts = trained(recurrent, recurrent_params(), samples, 6, [1, 2, 30, 27], lift=True)
    assert not in_python
    assert whole[0].tobytes() == parts[0].tobytes()
    assert all(whole[1][name].tobytes() == parts[1][name].tobytes() for name in whole[1])


def test_a_sample_that_no_code_serves_is_left_to_python(in_python):
    """A sample of one number has a loss that depends on nothing."""
    samples = [*of_lengths(12), ([0.5],)]
    losses, _ = trained(recurrent, recurrent_params(), samples, 1, [26], lift=True)
    assert in_python == [12, 25]
    assert losses[12] == losses[25] == 0.0


@pytest.mark.parametrize("batch", [1, 2])
def test_a_loss_of_data_alone_does_not_train_by_the_gradient_of_the_step_before(batch, in_python):
    def squared_error(p, tokens, y):
        return (sum(p["e"][t] for t in tokens) - y) ** 2

    samples = [([1, 0], 0.5), ([], 0.25), ([1], 0.75), ([], 1.0)]
    params = {"e": np.array([1.0, 2.0])}
    losses, found = trained(squared_error, params, samples, batch, [12], lift=True)
    assert not in_python
    wanted, arrays = trained(squared_error, params, samples, batch, [12], lift=False)
    assert np.abs(losses - wanted).max() < 1e-12
    assert np.abs(found["e"] - arrays["e"]).max() < 1e-12


def test_copies_of_weights_follow_the_weights(in_python, monkeypatch):
    """Steps of several samples read transposed copies, which each step makes anew."""
    packed = []
    take = step_code.take

    def watching(dtype: str, shares: Any, **fields: int) -> int:
        packed.append(all(code["pack"] for share in shares for code in share.codes))
        return take(dtype, shares, **fields)

    monkeypatch.setattr(step_code, "take", watching)
    samples = names(1, 12)
    losses, params = trained(microgpt, gpt_params(1), samples, 3, [30], lift=True)
    assert packed
    assert all(packed)
    assert not in_python
    wanted, arrays = trained(microgpt, gpt_params(1), samples, 3, [30], lift=False)
    assert np.abs(losses - wanted).max() < 1e-9
    assert all(np.abs(params[name] - arrays[name]).max() < 1e-9 for name in params)
