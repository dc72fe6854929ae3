"""Gathers in machine code: numbers side by side are copied as vectors, others one by one."""

import itertools

import numpy as np
import pytest

import chainrule
from chainrule import optim, tanh

SIZES = (1, 3, 7, 8, 9, 15, 16, 17, 31, 33, 48)  # around the widths of vectors, of both types


def whole_rows(table, tokens):
    return sum(tanh(x) * (j + 1) for t in tokens for j, x in enumerate(table[t]))


def backwards(table, tokens):
    return sum(tanh(table[t][-1 - j]) * (j + 1) for t in tokens for j in range(len(table[t])))


def every_other(table, tokens):
    return sum(tanh(table[t][j]) * (j + 1) for t in tokens for j in range(0, len(table[t]), 2))


def across_rows(table, tokens):
    """Neighbours in memory that two tokens select, one after the other."""
    return sum(tanh(table[t][-1]) * 2 + tanh(table[t][0]) * 3 for t in tokens)


def of_results(table, tokens):
    """What is selected was computed before."""
    made = [[tanh(x * 0.5) for x in row] for row in table]
    return sum(x * x * (j + 1) for t in tokens for j, x in enumerate(made[t]))


def flat_window(table, tokens):
    """Windows of one row that overlap each other."""
    row = table[0]
    return sum(tanh(row[t + j]) * (j + 1) for t in tokens for j in range(len(row) - 4))


PROGRAMS = (whole_rows, backwards, every_other, across_rows, of_results)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("program", PROGRAMS)
def test_gathered_rows_of_any_size_and_order_are_those_of_eager(program, size, dtype):
    check(program, size, dtype, tokens=5)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("size", [s for s in SIZES if s > 4])
def test_windows_that_overlap_add_up(size, dtype):
    check(flat_window, size, dtype, tokens=4)


def check(program, size, dtype, tokens):
    rng = np.random.default_rng(size)
    table = rng.normal(size=(5, size))
    fast = chainrule.compile(program, dtype=dtype, lift=True)
    limits = 1e-12 if dtype == "float64" else 2e-6
    for _ in range(6):
        chosen = rng.integers(0, 5, size=tokens).tolist()  # with repetitions
        value, gradient = fast.value_and_grad(table, chosen)
        wanted, slopes = chainrule.value_and_grad(program)(table, chosen)
        terms = 5 * size**2  # the largest is about as large as the number of terms of a row
        np.testing.assert_allclose(value, wanted, rtol=limits, atol=limits * terms)
        np.testing.assert_allclose(gradient, slopes, rtol=limits, atol=limits * 5 * size)
    assert "machine code" in fast.report()


@pytest.mark.parametrize("batch", [1, 2, 3, 16])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_training_on_gathered_rows_has_the_losses_of_eager_steps(batch, dtype):
    """Samples of several lengths, and rows longer and shorter than a vector."""

    def loss(params, tokens):
        total = 0.0
        for a, b in itertools.pairwise(tokens):
            hidden = [tanh(x + y) for x, y in zip(params["in"][a], params["bias"], strict=True)]
            total = total + sum(h * w for h, w in zip(hidden, params["out"][b], strict=True)) ** 2
        return total / len(tokens)

    rng = np.random.default_rng(0)
    start = {"in": rng.normal(size=(6, 19)), "out": rng.normal(size=(6, 19))}
    start["bias"] = rng.normal(size=19)
    samples = [(rng.integers(0, 6, size=n).tolist(),) for n in rng.integers(2, 9, size=23)]
    mine = {name: array.astype(dtype) for name, array in start.items()}
    fast = chainrule.compile(loss, dtype=dtype)
    found = fast.train(mine, samples, optim.Adam(mine, lr=0.01), 60, batch=batch)
    theirs = {name: array.copy() for name, array in start.items()}
    optimiser, wanted = optim.Adam(theirs, lr=0.01), []
    for step in range(60):
        some = [samples[(step * batch + k) % len(samples)] for k in range(batch)]
        results = [chainrule.value_and_grad(loss)(theirs, *sample) for sample in some]
        wanted.append(sum(value for value, _ in results) / batch)
        optimiser.step(
            {name: sum(slopes[name] for _, slopes in results) / batch for name in theirs}
        )
    np.testing.assert_allclose(found, wanted, rtol=1e-10 if dtype == "float64" else 2e-3)
