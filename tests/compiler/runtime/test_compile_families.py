"""Calls whose lists of integers differ in length share machine code, whatever they do with them."""

import random

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import exp, log, tanh
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.pipeline import Pipeline

BOS, PAD = 8, 0
CHANCE = random.Random(4)
WEIGHTS = [0.5 + 0.1 * k for k in range(9)]
NEXT = [[CHANCE.randrange(9) for _ in range(9)] for _ in range(9)]


def softmax(zs):
    most = max(z.data for z in zs)
    powers = [exp(z - most) for z in zs]
    total = sum(powers)
    return [x / total for x in powers]


def framed(p, tokens):
    """The tokens between two that are always the same."""
    ts, total = [BOS, *tokens, BOS], 0.0
    for k in range(len(ts) - 1):
        total = total - log(softmax(p[ts[k]])[ts[k + 1]])
    return total / (len(ts) - 1)


def shifted(p, tokens):
    total = 0.0
    for t in tokens:
        total = total + tanh(p[t][2]) * p[(t + 1) % 9][3]
    return total


def pairs(p, tokens):
    total = 0.0
    for k in range(1, len(tokens)):
        total = total + tanh(p[tokens[k - 1]][tokens[k]])
    return total


def one_hot(p, tokens):
    total = 0.0
    for t in tokens:
        x = [(k == t) * 1.0 for k in range(9)]
        total = total + sum(tanh(sum(w * a for w, a in zip(row, x, strict=True))) for row in p[:3])
    return total


def weighted(p, tokens):
    total = 0.0
    for t in tokens:
        total = total + WEIGHTS[t] * tanh(p[0][t]) / (1.0 + t)
    return total / len(tokens)


def automaton(p, tokens):
    state, total = 0, 0.0
    for t in tokens:
        state = NEXT[state][t]
        total = total + tanh(p[state][t])
    return total


def hashed(p, tokens):
    h, total = 7, 0.0
    for t in tokens:
        h = (h * 31 + t) % 81
        total = total + tanh(p[h // 9][h % 9]) * h
    return total


def counted_from_the_end(p, tokens):
    total = 0.0
    for t in tokens:
        total = total + tanh(p[-t][3])
    return total


PROGRAMS = [
    *(framed, shifted, pairs, one_hot, weighted, automaton, hashed, counted_from_the_end),
]


def numbers():
    chance = random.Random(2)
    return [[chance.uniform(-1.0, 1.0) for _ in range(9)] for _ in range(9)]


def tokens_of(length, seed):
    chance = random.Random(seed)
    return [chance.randrange(9) for _ in range(length)]


def agree(fast, f, *arguments):
    found, expected = fast.value_and_grad(*arguments), chainrule.value_and_grad(f)(*arguments)
    assert found[0] == pytest.approx(expected[0], rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-9, atol=1e-12)


def codes(fast):
    return {id(variant.machine) for variant in View(fast).variants}


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_shorter_calls_share_the_code_of_the_longest(f):
    fast = chainrule.compile(f, lift=True)
    for seed, length in enumerate((12, 7, 10, 4, 12, 7, 9, 11)):
        agree(fast, f, numbers(), tokens_of(length, seed))
        assert View(fast).ran_machine_code
    assert len(codes(fast)) == 1
    for seed in range(20, 30):  # any integers, also those that were never met
        agree(fast, f, numbers(), tokens_of(7, seed))
    assert len(View(fast).variants) == 6


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_batches_of_any_lengths_go_through_one_code(f):
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    p = np.array(numbers())
    samples = [(tokens_of(length, length),) for length in (12, 5, 8, 12, 9, 5, 11, 8, 10)]
    value, slopes = fast.batch_value_and_grad(p, samples)
    wanted = [eager(p, *sample) for sample in samples]
    assert value == pytest.approx(np.mean([y for y, _ in wanted]), rel=1e-10)
    np.testing.assert_allclose(
        slopes, np.mean([g for _, g in wanted], axis=0), rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_training_takes_the_steps_of_eager_mode(f):
    samples = [(tokens_of(length, 3 * length),) for length in (12, 5, 8, 9, 5, 11)]

    def trained(function):
        p = {"p": np.array(numbers())}
        losses = chainrule.compile(function, lift=True, on_fallback="eager").train(
            p, samples, chainrule.optim.SGD(p, lr=0.05), steps=8, batch=2
        )
        return losses, p["p"]

    p = {"p": np.array(numbers())}
    optimiser, expected = chainrule.optim.SGD(p, lr=0.05), []
    for step in range(8):
        chosen = [samples[(2 * step + k) % 6] for k in range(2)]
        each = [chainrule.value_and_grad(lambda p, t: f(p["p"], t))(p, *s) for s in chosen]
        expected.append(np.mean([y for y, _ in each]))
        optimiser.step({"p": np.mean([g["p"] for _, g in each], axis=0)})
    losses, found = trained(lambda p, t: f(p["p"], t))
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    np.testing.assert_allclose(found, p["p"], rtol=1e-8, atol=1e-12)


def padded(p, tokens):
    total = 0.0
    for t in tokens:
        if t == PAD:
            break
        total = total + tanh(p[t][t - 1]) * p[0][t]
    return total


def by_parity(p, tokens):
    """Paths of which none is a prefix of another."""
    total = 0.0
    for t in tokens:
        total = total + (tanh(p[t][0]) if t % 2 else exp(p[t][1]) * p[0][t])
    return total


def test_a_path_that_ends_sooner_shares_the_code_of_one_that_ends_later():
    fast = chainrule.compile(padded, lift=True)
    for count in (10, 4, 7, 9, 3, 10, 5, 4):
        tokens = [1 + t % 8 for t in tokens_of(count, count)] + [PAD] * (12 - count)
        agree(fast, padded, numbers(), tokens)
        assert View(fast).ran_machine_code
    assert len(codes(fast)) == 1
    assert len(View(fast).variants) == 6


def test_paths_that_are_no_prefix_of_each_other_stay():
    """None supersedes another, or each call would record again."""
    fast = chainrule.compile(by_parity, lift=True)
    calls = [[2, 4, 6], [1, 3, 5], [1, 2, 3], [2, 1, 4]]
    for _ in range(3):
        for tokens in calls:
            agree(fast, by_parity, numbers(), tokens)
    assert fast.dispatch.counts.traces == 4


def test_a_batch_of_many_paths():
    fast, eager = chainrule.compile(padded, lift=True), chainrule.value_and_grad(padded)
    p = np.array(numbers())
    samples = [
        ([1 + t % 8 for t in tokens_of(count, count)] + [PAD] * (12 - count),)
        for count in (10, 4, 7, 9, 3, 10, 5, 4)
    ]
    value, slopes = fast.batch_value_and_grad(p, samples)
    wanted = [eager(p, *sample) for sample in samples]
    assert value == pytest.approx(np.mean([y for y, _ in wanted]), rel=1e-10)
    np.testing.assert_allclose(
        slopes, np.mean([g for _, g in wanted], axis=0), rtol=1e-9, atol=1e-12
    )


def test_integers_beyond_64_bits_are_computed_by_python():
    def f(p, tokens):
        product, total = 1, 0.0
        for t in tokens:
            product = product * (t + 1_000_003)
            total = total + tanh(p[product % 9][t % 9])
        return total

    fast = chainrule.compile(f, lift=True)
    for seed, length in enumerate((8, 5, 8, 3, 6)):
        agree(fast, f, numbers(), tokens_of(length, seed))
    agree(fast, f, numbers(), [10**30, 7, -(10**40)])
    p = np.array(numbers())
    samples = [(tokens_of(length, length),) for length in (8, 5, 6, 8)]
    value, _ = fast.batch_value_and_grad(p, samples)
    wanted = [chainrule.value_and_grad(f)(p, *sample)[0] for sample in samples]
    assert value == pytest.approx(np.mean(wanted), rel=1e-10)


def test_a_longer_call_is_recorded_once_while_its_machine_code_is_too_dear(monkeypatch):
    """What its recording costs must not be what is missing for the code, again and again."""
    pytest.importorskip("llvmlite")
    rng = np.random.default_rng(3)
    p = rng.normal(size=(9, 9)).tolist()
    fast, eager = chainrule.compile(framed), chainrule.value_and_grad(framed)

    def compare(length):
        tokens = rng.integers(0, 9, length).tolist()
        value, gradient = fast.value_and_grad(p, tokens)
        wanted, slopes = eager(p, tokens)
        assert value == pytest.approx(wanted, rel=1e-12)
        assert np.allclose(gradient, slopes, rtol=1e-10)

    compare(10)
    assert View(fast).variants[0].binding is not None
    monkeypatch.setattr(Pipeline, "_may_build", lambda *_, **__: True)
    monkeypatch.setattr(Ledger, "affords_recording", lambda *_: True)
    monkeypatch.setattr(Ledger, "affords_building", lambda *_: False)
    compare(12)
    made = fast.dispatch.counts.traces
    for _ in range(20):
        compare(12)
    assert fast.dispatch.counts.traces == made
    monkeypatch.setattr(Ledger, "affords_building", lambda *_: True)
    for _ in range(10):  # cached calls are counted some at a time
        compare(12)
    assert fast.dispatch.counts.traces == made
    assert "on the tape until" not in fast.report()
