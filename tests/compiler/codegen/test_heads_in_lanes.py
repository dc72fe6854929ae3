"""Heads of attention side by side in memory, and chains of elementwise operations."""

import math

import numpy as np
import pytest

import chainrule
from chainrule import exp, optim, tanh

MOST = 9  # tokens of a call
HEADS = [(2, 2), (4, 4), (4, 2), (2, 8), (3, 4), (4, 3), (1, 4), (5, 1)]


def attention(heads, size, window=None):
    """Causal attention of so many heads, over all keys or those in a window."""

    def loss(weights, tokens):
        keys, values, total = [], [], 0.0
        for token in tokens:
            x = weights["embedding"][token]
            query, key, value = (
                [sum(a * b for a, b in zip(row, x, strict=True)) for row in weights[name]]
                for name in ("query", "key", "value")
            )
            keys.append(key)
            values.append(value)
            seen, given = (some[-window:] if window else some for some in (keys, values))
            for h in range(heads):
                part = range(h * size, (h + 1) * size)
                matches = [sum(query[j] * k[j] for j in part) / math.sqrt(size) for k in seen]
                highest = max(matches)
                shares = [exp(m - highest) for m in matches]
                all_of_it = sum(shares)
                for j in part:
                    y = sum(s * v[j] for s, v in zip(shares, given, strict=True)) / all_of_it
                    total = total + tanh(y) ** 2
        return total / len(tokens)

    return loss


def weights_of(heads, size, dtype):
    rng, width = np.random.default_rng(heads * 16 + size), heads * size
    shapes = {"embedding": (5, 3), **dict.fromkeys(("query", "key", "value"), (width, 3))}
    return {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}


def samples_of(count):
    rng = np.random.default_rng(count)
    lengths = [MOST, *rng.integers(1, MOST + 1, count - 1).tolist()]
    return [(rng.integers(0, 5, n).tolist(),) for n in lengths]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("contract", [True, False])
@pytest.mark.parametrize(("heads", "size"), HEADS)
def test_attention_of_any_heads_and_lengths_is_that_of_eager(heads, size, contract, dtype):
    loss, weights = attention(heads, size), weights_of(heads, size, dtype)
    fast = chainrule.compile(loss, lift=True, dtype=dtype, contract=contract)
    tolerance = 1e-11 if dtype == "float64" else 1e-3
    for (tokens,) in samples_of(8):
        agree(fast.value_and_grad(weights, tokens), eager(loss, weights, tokens), tolerance)
    assert "lifted to" in fast.report()
    assert "of a longer call" in fast.report()


def test_attention_in_a_window_is_that_of_eager():
    loss, weights = attention(4, 4, window=3), weights_of(4, 4, "float64")
    fast = chainrule.compile(loss, lift=True)
    for (tokens,) in samples_of(6):
        agree(fast.value_and_grad(weights, tokens), eager(loss, weights, tokens), 1e-11)


@pytest.mark.parametrize("batch", [1, 8])
def test_training_on_attention_takes_eagers_steps(batch):
    loss, samples = attention(4, 4), samples_of(16)
    fast = chainrule.compile(loss, lift=True)
    weights, twin = (weights_of(4, 4, "float64") for _ in range(2))
    found = fast.train(weights, samples, optim.Adam(weights, lr=0.01), 12, batch=batch)
    adam, wanted = optim.Adam(twin, lr=0.01), []
    for step in range(12):
        some = [eager(loss, twin, *samples[(step * batch + i) % 16]) for i in range(batch)]
        adam.step({name: sum(g[name] for _, g in some) / batch for name in twin})
        wanted.append(sum(value for value, _ in some) / batch)
    assert np.allclose(found, wanted, rtol=0, atol=1e-9)


# --- chains of elementwise operations -------------------------------------------------------------


def chain(x, y):
    a = [u * v for u, v in zip(x, y, strict=True)]
    b = [tanh(u) + 0.5 for u in a]
    return sum(u * u + v for u, v in zip(b, a, strict=True))


def shifted(x, y):
    """A result reads its neighbour's operand: their adjoints come from two points."""
    a = [tanh(u) for u in x]
    b = [a[i] + a[(i + 1) % len(a)] for i in range(len(a))]
    return sum(exp(u * 0.3) * v for u, v in zip(b, y, strict=True))


def repeated(x, y):
    """One operand twice, and one for all points."""
    a = [u * u + u for u in x]
    b = [u * y[0] for u in a]
    return sum(tanh(u) for u in b) + sum(v + v for v in y)


def reversed_order(x, y):
    a = [tanh(u) * 2.0 for u in x]
    b = [a[len(a) - 1 - i] * v for i, v in enumerate(y)]
    return sum(u * u for u in b) + a[0]


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("contract", [True, False])
@pytest.mark.parametrize("size", [1, 2, 7, 8, 16, 17, 40])
@pytest.mark.parametrize("program", [chain, shifted, repeated, reversed_order])
def test_chains_of_elementwise_operations_give_eagers_gradient(program, size, contract, dtype):
    rng = np.random.default_rng(size)
    x, y = (rng.normal(size=size).astype(dtype) for _ in range(2))

    def loss(w):
        return program(w["x"], w["y"])

    fast = chainrule.compile(loss, lift=True, dtype=dtype, contract=contract)
    weights, tolerance = {"x": x, "y": y}, 1e-12 if dtype == "float64" else 1e-4
    for _ in range(2):
        agree(fast.value_and_grad(weights), eager(loss, weights), tolerance)


def eager(loss, weights, *more):
    wide = {name: w.astype("float64") for name, w in weights.items()}
    return chainrule.value_and_grad(loss)(wide, *more)


def agree(found, wanted, tolerance):
    (value, gradient), (right, slopes) = found, wanted
    assert abs(value - right) <= tolerance * max(1.0, abs(right))
    for name, slope in slopes.items():
        most = tolerance * max(1.0, float(np.abs(slope).max()))
        assert np.allclose(gradient[name], slope, rtol=0, atol=most), name
