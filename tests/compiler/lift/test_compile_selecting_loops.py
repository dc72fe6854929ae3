"""Loops in time in which integers select operands: rows of embeddings, scores of targets."""

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from compile_view import View
from test_compile_reroll import checked, variant_of

import chainrule
from chainrule import exp, log, sigmoid, tanh
from chainrule.compiler.codegen import registers
from chainrule.compiler.lift import alignment

pytest.importorskip("llvmlite")

VOCAB, WIDTH = 7, 4


def times(matrix, x):
    return [sum(w * h for w, h in zip(row, x, strict=True)) for row in matrix]


def missed(scores, target):
    top = max(z.data for z in scores)
    return log(sum(exp(z - top) for z in scores)) + top - scores[target]


def plain(p, tokens):
    state, loss = p["start"], 0.0
    for a, b in pairwise(tokens):
        state = [tanh(u + x) for u, x in zip(times(p["W"], state), p["E"][a], strict=True)]
        loss = loss + missed(times(p["E"], state), b)
    return loss / (len(tokens) - 1)


def collected(p, tokens):
    state, seen = [0.0] * WIDTH, []
    for a in tokens[:-1]:
        state = [tanh(x + u) for u, x in zip(times(p["W"], state), p["E"][a], strict=True)]
        seen.append(state)
    return sum(missed(times(p["E"], h), b) for h, b in zip(seen, tokens[1:], strict=True))


def gated(p, tokens):
    state, losses = p["start"], []
    for a, b in pairwise(tokens):
        x = p["E"][a]
        gates = [sigmoid(u + v) for u, v in zip(times(p["U"], state), x, strict=True)]
        fresh = [tanh(u + v) for u, v in zip(times(p["W"], state), x, strict=True)]
        state = [(1 - g) * h + g * c for g, h, c in zip(gates, state, fresh, strict=True)]
        losses.append(missed(times(p["E"], state), b))
    return sum(losses) / len(losses)


def two_rows_multiplied(p, tokens):
    """Both factors of a product, and what multiplies the state, are selected."""
    state = p["start"]
    for a, b in pairwise(tokens):
        state = [
            tanh(h * p["U"][a % WIDTH][i] + p["E"][a][i] * p["E"][b][i])
            for i, h in enumerate(state)
        ]
    return sum(state)


def computed_rows(p, tokens):
    """What is selected is computed before the loop."""
    rows = [[tanh(x * 2.0) for x in row] for row in p["E"]]
    state = p["start"]
    for a in tokens:
        state = [tanh(u + x) for u, x in zip(times(p["W"], state), rows[a], strict=True)]
    return sum(state)


def branching(p, tokens):
    state, loss = p["start"], 0.0
    for a in tokens:
        state = [tanh(u + x) for u, x in zip(times(p["W"], state), p["E"][a], strict=True)]
        if state[0] > 5.0:
            loss = loss + 1.0
        loss = loss + state[1] * p["start"][a % WIDTH]
    return loss


def from_the_end(p, tokens):
    state, loss = p["start"], 0.0
    for a in reversed(tokens):
        state = [tanh(u + x) for u, x in zip(times(p["W"], state), p["E"][a], strict=True)]
        loss = loss + state[a % WIDTH] ** 2
    return loss


def needed_next(p, tokens):
    """The next iteration needs what was selected."""
    state, loss = p["start"], 0.0
    for a in tokens:
        state = [tanh(u + state[a % WIDTH]) for u in times(p["W"], state)]
        loss = loss + sum(state)
    return loss


def of_all_before(p, tokens):
    """What is selected was made in any earlier iteration."""
    seen, loss = [p["start"]], 0.0
    for k, a in enumerate(tokens):
        back = seen[min(a, k)]
        seen.append([tanh(u + 0.1 * x) for u, x in zip(times(p["W"], back), back, strict=True)])
        loss = loss + sum(seen[-1])
    return loss


IN_LOOPS = [plain, collected, gated, two_rows_multiplied, computed_rows, branching, from_the_end]
NOT_IN_LOOPS = [needed_next, of_all_before]


def params(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return {
        "start": rng.normal(0, 0.5, WIDTH),
        "W": rng.normal(0, 0.5, (WIDTH, WIDTH)),
        "U": rng.normal(0, 0.5, (WIDTH, WIDTH)),
        "E": rng.normal(0, 0.5, (VOCAB, WIDTH)),
    }


def tokens(seed: int, length: int = 21) -> list[int]:
    return random.Random(seed).choices(range(VOCAB), k=length)


@pytest.fixture(autouse=True)
def _loops_wherever_there_are_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment, "FEW_SHAPES", 0)
    monkeypatch.setattr(alignment, "MANY_SHAPES", 0)


@pytest.fixture(params=["registers", "slices"])
def way(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    most = 10**9 if request.param == "registers" else -1
    monkeypatch.setattr(registers, "MOST_TERMS", most)
    monkeypatch.setattr(registers, "MOST_POINTS", most)
    return request.param


def differ(found: Any, wanted: Any) -> float:
    (value, gradient), (expected, slopes) = found, wanted
    return max(
        abs(value - expected) / max(1.0, abs(expected)),
        *[
            np.abs(gradient[k] - slopes[k]).max() / max(1.0, np.abs(slopes[k]).max())
            for k in slopes
        ],
    )


@pytest.mark.parametrize("program", IN_LOOPS)
def test_calls_with_other_integers_run_on_the_code_of_a_loop(program, way):
    fast = chainrule.compile(program, lift=True, on_fallback="raise")
    for seed in range(12):
        call = params(seed), tokens(seed)
        wanted = chainrule.value_and_grad(program)(*call)
        assert differ(fast.value_and_grad(*call), wanted) <= 1e-12
    variants = View(fast).variants
    assert all(v.machine is not None and v.machine.program.loops for v in variants)
    assert len(variants) == 1


@pytest.mark.parametrize("program", NOT_IN_LOOPS)
def test_what_a_loop_cannot_select_is_computed_otherwise(program, way):
    fast = chainrule.compile(program, lift=True, on_fallback="raise")
    for seed in range(8):
        call = params(seed), tokens(seed)
        wanted = chainrule.value_and_grad(program)(*call)
        assert differ(fast.value_and_grad(*call), wanted) <= 1e-12
    assert not any(v.machine is not None and v.machine.program.loops for v in View(fast).variants)


@pytest.mark.parametrize("program", IN_LOOPS)
@pytest.mark.parametrize("batch", [3, 16])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_batches(program, batch, dtype, way):
    fast = chainrule.compile(program, dtype=dtype, lift=True, on_fallback="raise")
    samples = [(tokens(seed),) for seed in range(batch)]
    value, gradient = fast.batch_value_and_grad(params(3), samples)
    singles = [chainrule.value_and_grad(program)(params(3), *sample) for sample in samples]
    mean = {k: np.mean([g[k] for _, g in singles], axis=0) for k in gradient}
    limit = 1e-12 if dtype == "float64" else 1e-4  # of twenty steps
    assert differ((value, gradient), (np.mean([v for v, _ in singles]), mean)) <= limit


def test_lengths_have_codes_of_their_own_and_eagers_numbers():
    fast = chainrule.compile(gated, lift=True, on_fallback="raise")
    for seed, length in enumerate((21, 12, 30, 21, 3, 9, 30, 13)):
        call = params(seed), tokens(seed, length)
        assert differ(fast.value_and_grad(*call), chainrule.value_and_grad(gated)(*call)) <= 1e-12


def test_the_loops_keep_what_they_promise():
    for program in IN_LOOPS:
        recording = variant_of(program, params(1), tokens(1)).recording
        (loop,) = checked(recording)
        assert "selected" in loop.describe(recording)
    assert checked(variant_of(of_all_before, params(1), tokens(1)).recording) == ()


def test_undefined_numbers_and_integers_out_of_range_raise_as_eager_does():
    def dividing(p, ids):
        state = p["start"]
        for a in ids:
            state = [tanh(h + 1.0 / x) for h, x in zip(state, p["E"][a], strict=True)]
        return sum(state)

    fast = chainrule.compile(dividing, lift=True, on_fallback="raise")
    fast.value_and_grad(params(1), tokens(1))
    wrong = params(1)
    wrong["E"][tokens(1)[7]][2] = 0.0
    with pytest.raises(ZeroDivisionError):
        fast.value_and_grad(wrong, tokens(1))
    for place in (0, 11, 20):
        ids = tokens(1)
        ids[place] = VOCAB
        with pytest.raises(IndexError):
            fast.value_and_grad(params(1), ids)
    ids = tokens(1)
    ids[4] = -1
    call = params(1), ids
    assert differ(fast.value_and_grad(*call), chainrule.value_and_grad(dividing)(*call)) <= 1e-12


@pytest.mark.parametrize("program", [x for x in IN_LOOPS if x is not branching])
def test_formulas_and_source_say_the_same(program):
    fast = chainrule.compile(program, lift=True, on_fallback="raise")
    call = params(2), tokens(2)
    value, _ = fast.value_and_grad(*call)
    assert "array instructions" in fast.report(stage="lifted")
    assert abs(fast.to_numpy(*call)(*call) - value) <= 1e-9 * max(1.0, abs(value))
