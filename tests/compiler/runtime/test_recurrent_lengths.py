"""Loops in time have a run-time trip count: one machine code serves texts of all lengths.

Nothing that the compiler checks by itself is checked here: neither first results nor what a length
gives that joins the code of a longer one.
"""

import numpy as np
import pytest
from compile_view import View
from recurrent_programs import (
    DIFFERING,
    OTHERS,
    SHARED,
    TOKENS,
    WIDTH,
    params,
    step,
    surprise,
    text,
)

import chainrule
from chainrule.compiler.runtime import building

pytest.importorskip("llvmlite")
EVERY = pytest.mark.parametrize("f", [*SHARED, *OTHERS, *DIFFERING], ids=lambda f: f.__name__)
FORTH, BACK = (30, 12, 29, 9, 17, 5, 30, 21), (5, 9, 30, 12, 46, 7, 31, 46)


@pytest.fixture(autouse=True)
def nothing_checked(unchecked, monkeypatch):
    monkeypatch.setattr(building, "agrees", lambda *_: True)


def flat(tree):
    return np.concatenate([np.asarray(tree[name], float).ravel() for name in sorted(tree)])


def same(found, expected, tolerance=1e-10):
    assert found[0] == pytest.approx(expected[0], rel=10 * tolerance, abs=tolerance)
    found, expected = flat(found[1]), flat(expected[1])
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())


def codes(fast):
    return {variant.machine for variant in View(fast).variants}


@pytest.mark.parametrize("f", SHARED, ids=lambda f: f.__name__)
def test_shorter_texts_run_on_the_code_of_the_longest(f):
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    for seed, length in enumerate(FORTH):
        tokens = text(length, seed)
        same(fast.value_and_grad(params(), tokens), eager(params(), tokens))
        assert View(fast).ran_machine_code
    (code,) = codes(fast)
    assert code.program.loops


@EVERY
def test_any_order_of_lengths_and_parameters(f):
    """Also what a longer text left behind, and longer texts that build again."""
    check_any_order(f, 1e-10)


@pytest.mark.parametrize("options", [{"contract": False}, {"dtype": "float32"}], ids=str)
@pytest.mark.parametrize("f", SHARED[::3], ids=lambda f: f.__name__)
def test_any_order_with_options(f, options):
    check_any_order(f, 2e-3 if "dtype" in options else 1e-10, **options)


def check_any_order(f, tolerance, **options):
    fast, eager = chainrule.compile(f, lift=True, **options), chainrule.value_and_grad(f)
    for seed, length in enumerate((*FORTH, *BACK)):
        p, tokens = params((1.0, -0.5, 1.3)[seed % 3], seed), text(length, seed)
        same(fast.value_and_grad(p, tokens), eager(p, tokens), tolerance)


@EVERY
def test_batches_of_all_lengths(f):
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    p = {name: np.array(x) for name, x in params().items()}
    for lengths in (FORTH, BACK, (30, 12, 12, 12, 12, 30, 30, 30, 12)):
        samples = [(text(length, seed),) for seed, length in enumerate(lengths)]
        each = [eager(p, *sample) for sample in samples]
        slopes = {name: np.mean([g[name] for _, g in each], axis=0) for name in p}
        expected = np.mean([y for y, _ in each]), slopes
        same(fast.batch_value_and_grad(p, samples), expected)


@pytest.mark.parametrize("batch", [1, 2, 6])
@pytest.mark.parametrize(
    "f", [SHARED[0], SHARED[1], SHARED[3], SHARED[5]], ids=lambda f: f.__name__
)
def test_training_takes_the_steps_of_eager_mode(f, batch, machine_steps):
    samples = [(text(length, seed),) for seed, length in enumerate((*FORTH, 30, 9, 17, 12))]

    def arrays():
        return {name: np.array(x) for name, x in params().items()}

    p, steps = arrays(), 9
    optimiser, expected = chainrule.optim.SGD(p, lr=0.05), []
    for k in range(steps):
        chosen = [samples[(batch * k + j) % len(samples)] for j in range(batch)]
        each = [chainrule.value_and_grad(f)(p, *sample) for sample in chosen]
        expected.append(np.mean([y for y, _ in each]))
        optimiser.step({name: np.mean([g[name] for _, g in each], axis=0) for name in p})
    found = arrays()
    fast = chainrule.compile(f, lift=True)
    losses = fast.train(found, samples, chainrule.optim.SGD(found, lr=0.05), steps, batch=batch)
    np.testing.assert_allclose(losses, expected, rtol=1e-9)
    np.testing.assert_allclose(flat(found), flat(p), rtol=1e-8, atol=1e-12)
    assert machine_steps == [steps]
    assert len(codes(fast)) == 1


def translated(p, source, target):
    """Two lists with lengths of their own."""
    h, loss = [0.0] * WIDTH, 0.0
    for token in source:
        h = step(p, h, token)
    for token in target:
        loss = loss + surprise(p, h, token)
        h = step(p, h, token)
    return loss / len(target) + h[2]


def test_two_lists_have_two_run_time_lengths():
    fast, eager = chainrule.compile(translated, lift=True), chainrule.value_and_grad(translated)
    sizes = [(30, 30), (30, 9), (9, 30), (17, 12), (12, 17), (5, 5), (30, 30), (9, 30)]
    for seed, (first, second) in enumerate(sizes):
        source, target = text(first, seed), text(second, seed + 50)
        same(fast.value_and_grad(params(), source, target), eager(params(), source, target))
    assert len(codes(fast)) == 1


def growing(p, tokens):
    h = [1.0] * WIDTH
    for token in tokens:
        h = [1e20 * a * (1.0 + b * b) for a, b in zip(h, p["e"][token], strict=True)]
    return sum(h)


def test_what_a_longer_text_overflows_in_is_not_read_by_a_shorter_one():
    fast, eager = chainrule.compile(growing, lift=True), chainrule.value_and_grad(growing)
    for seed, length in enumerate((12, 30, 12, 9, 30, 12, 10)):
        tokens = text(length, seed)
        if length > 15:
            for function in (eager, fast.value_and_grad):
                with pytest.raises(OverflowError):
                    function(params(), tokens)
        else:
            same(fast.value_and_grad(params(), tokens), eager(params(), tokens))


def test_a_branch_that_only_a_shorter_text_takes():
    def stopping(p, tokens):
        h, loss = [0.0] * WIDTH, 0.0
        for token in tokens:
            h = step(p, h, token)
            loss = loss + (h[0] if h[1] > 0.0 else -2.0 * h[0])
        return loss

    fast, eager = chainrule.compile(stopping, lift=True), chainrule.value_and_grad(stopping)
    for seed, length in enumerate((20, 12, 20, 9, 12, 20, 9)):
        tokens = [seed % TOKENS] * length
        same(fast.value_and_grad(params(), tokens), eager(params(), tokens))


def test_a_function_that_was_saved_serves_all_lengths(tmp_path):
    f = SHARED[0]
    fast, eager = chainrule.compile(f, lift=True), chainrule.value_and_grad(f)
    lengths = (30, 12, 9, 21)
    for length in lengths:
        fast.value_and_grad(params(), text(length, 1))
    fast.save(tmp_path / "recurrent.chain")
    loaded = chainrule.load(tmp_path / "recurrent.chain")
    for seed, length in enumerate((*lengths, *reversed(lengths))):
        tokens = text(length, seed)
        same(loaded.value_and_grad(params(), tokens), eager(params(), tokens))
