"""Training and evaluation where other things have the memory of a parameter, or come to have it.

What is packed for machine code once would stay as it was: such steps are taken in Python.
"""

import dataclasses
from collections import deque, namedtuple
from types import SimpleNamespace

import numpy as np
import pytest

import chainrule
from chainrule import Windows, optim, tanh
from chainrule.compiler.training.samples import may_hold

TOKENS = [[1, 2, 3], [4, 5, 6], [0, 1, 2]]
Pair = namedtuple("Pair", "x")
captured = np.ones(7)


@dataclasses.dataclass
class Record:
    x: object


def params():
    return {"b": np.linspace(0, 1, 7)}


def compiled(f):
    return chainrule.compile(f, lift=True, on_fallback="eager")


def eager(f, p, samples, steps, optimiser, hook=lambda step: None):
    losses = []
    for step in range(steps):
        hook(step)
        loss, gradient = chainrule.value_and_grad(f)(p, *samples[step % len(samples)])
        losses.append(loss)
        optimiser.step(gradient)
    return losses


def weighted(p, tokens, x):
    return (sum(tanh(p["b"][a]) * x[a] for a in tokens) - 1) ** 2


def of_captured(p, tokens):
    return weighted(p, tokens, captured)


@pytest.mark.parametrize(
    ("hold", "look"),
    [
        (lambda a: a, lambda x: x),
        (lambda a: a[:], lambda x: x),
        (lambda a: {"x": a}, lambda x: x["x"]),
        (lambda a: [[a]], lambda x: x[0][0]),
        (Pair, lambda x: x.x),
        (Record, lambda x: x.x),
        (lambda a: SimpleNamespace(x=a), lambda x: x.x),
    ],
)
@pytest.mark.parametrize("alone", [True, False])
def test_samples_may_hold_a_parameter(hold, look, alone):
    def f(p, tokens, x):
        return weighted(p, tokens, look(x))

    found, wanted = [], []
    for losses in (found, wanted):
        p = params()
        samples, optimiser = [(t, hold(p["b"])) for t in TOKENS], optim.SGD(p, lr=0.05)
        if losses is wanted:
            losses += eager(f, p, samples, 6, optimiser)
        elif alone:
            losses += compiled(f).train(p, samples, optimiser, 6).tolist()
        else:
            losses += compiled(f).trainer(p, samples, optimiser).advance(6).tolist()
    assert found == pytest.approx(wanted, abs=1e-12)


def test_what_is_captured_may_become_a_parameter(monkeypatch):
    p = params()
    trainer = compiled(of_captured).trainer(p, [(t,) for t in TOKENS], optim.SGD(p, lr=0.05))
    found = trainer.advance(3).tolist()
    monkeypatch.setitem(globals(), "captured", p["b"])
    found += trainer.advance(6).tolist()
    monkeypatch.setitem(globals(), "captured", np.ones(7))
    p = params()

    def hook(step):
        if step == 3:
            monkeypatch.setitem(globals(), "captured", p["b"])

    samples = [(t,) for t in TOKENS]
    wanted = eager(of_captured, p, samples, 9, optim.SGD(p, lr=0.05), hook)
    assert found == pytest.approx(wanted, abs=1e-12)


def test_what_is_captured_may_be_a_moment(monkeypatch):
    losses = []
    for native in (True, False):
        p, samples = params(), [(t,) for t in TOKENS]
        optimiser = optim.SGD(p, lr=0.05, momentum=0.9)
        (name,) = optimiser.moments
        monkeypatch.setitem(globals(), "captured", getattr(optimiser, name))
        p["b"] += 1
        if native:
            losses.append(compiled(of_captured).train(p, samples, optimiser, 5).tolist())
        else:
            losses.append(eager(of_captured, p, samples, 5, optimiser))
    assert losses[0] == pytest.approx(losses[1], abs=1e-12)


def test_an_evaluator_of_samples_that_hold_a_parameter():
    p = params()
    for samples in ([(t, p["b"]) for t in TOKENS], [(t, p["b"][::-1]) for t in TOKENS]):
        evaluator = compiled(weighted).evaluator(p, samples)
        p["b"] += 0.5
        wanted = np.mean([chainrule.value_and_grad(weighted)(p, *s)[0] for s in samples])
        assert evaluator() == pytest.approx(wanted, abs=1e-12)


def test_a_dict_of_parameters_may_change_its_order():
    def f(p, tokens):
        total = 1.0
        for k, name in enumerate(p):
            total = total * (k + 1) * 0.3 + sum(tanh(p[name][a]) for a in tokens)
        return (total - 1) ** 2

    samples, losses = [([1, 2],), ([0, 1],)], []
    for native in (True, False):
        p = {"a": np.linspace(0, 1, 3), "b": np.linspace(-1, 0.5, 3)}
        optimiser = optim.SGD(p, lr=0.05)

        def turn(step, p=p):
            if step == 2:
                p["a"] = p.pop("a")

        if native:
            trainer = compiled(f).trainer(p, samples, optimiser)
            found = trainer.advance(2).tolist()
            turn(2)
            losses.append(found + trainer.advance(2).tolist())
        else:
            losses.append(eager(f, p, samples, 4, optimiser, turn))
    assert losses[0] == pytest.approx(losses[1], abs=1e-12)


def test_a_token_beyond_64_bits_is_an_error():
    p, tokens = params(), np.array([1, 2, 3, 4, 2**64 - 1], np.uint64)

    def f(p, some):
        return sum(tanh(p["b"][a]) for a in some)

    with pytest.raises(OverflowError):
        compiled(f).train(p, Windows(tokens, 3), optim.SGD(p, lr=0.01), 8)


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize(
    "make", [Pair, Record, lambda x: SimpleNamespace(x=x), lambda x: deque([x])]
)
def test_samples_that_change_after_the_trainer_was_made_are_as_they_were(make, lift):
    def f(p, sample):
        some = sample[0] if isinstance(sample, deque) else sample.x
        return (sum(tanh(p["b"][a]) for a in some) - 1) ** 2

    losses = []
    for changes in (True, False):
        p, samples = params(), [(make(list(t)),) for t in TOKENS]
        fast = chainrule.compile(f, lift=lift, on_fallback="eager")
        trainer = fast.trainer(p, samples, optim.SGD(p, lr=0.05))
        found = trainer.advance(4).tolist()
        if changes:
            inside = samples[1][0]
            (inside[0] if isinstance(inside, deque) else inside.x)[0] = 0
        losses.append(found + trainer.advance(4).tolist())
    assert losses[0] == losses[1]


def test_what_cannot_be_looked_into_may_hold_anything():
    a, other = np.zeros(3), np.zeros(3)
    assert may_hold([object()], [a])
    assert not may_hold([[1, 2.0, "x", None, np.int64(3), {"k": (other, [1])}]], [a])
    assert may_hold([[1, {"k": (other, [a[1:]])}]], [a])
    assert may_hold([np.array([a, None], dtype=object)], [a])
