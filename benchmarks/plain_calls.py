"""Plain calls ``fast(params, x)`` between those of ``value_and_grad``: a validation loop.

    python benchmarks/plain_calls.py            # --calls 400 for more of them

For each loss: an eager plain call, one recording of it as plain numbers and as Values, then 300
calls of ``value_and_grad`` followed by plain calls of the same sizes, and of others. Processor
time; each loop begins with a function compiled anew.
"""

import argparse
import math
import random
import time
from itertools import pairwise

import numpy as np
from harness import machine, table, title

import chainrule
from chainrule import exp, log, relu
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey

WIDTH, HEADS = 16, 4


def linear(x, w):
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in w]


def softmax(logits):
    top = max(logits)
    exps = [exp(v - top) for v in logits]
    total = sum(exps)
    return [e / total for e in exps]


def rmsnorm(x):
    scale = (sum(v * v for v in x) / len(x) + 1e-5) ** -0.5
    return [v * scale for v in x]


def gpt(weights, tokens):
    """microgpt's loss, by functions that take floats and Values alike."""
    keys, values, losses = [], [], []
    size = WIDTH // HEADS
    for position, (token, target) in enumerate(pairwise(tokens)):
        pairs = zip(weights["wte"][token], weights["wpe"][position], strict=True)
        x = rmsnorm([t + p for t, p in pairs])
        residual, x = x, rmsnorm(x)
        q = linear(x, weights["wq"])
        keys.append(linear(x, weights["wk"]))
        values.append(linear(x, weights["wv"]))
        attended = []
        for h in range(0, WIDTH, size):
            scores = [sum(q[h + j] * k[h + j] for j in range(size)) / math.sqrt(size) for k in keys]
            shares = softmax(scores)
            attended += [
                sum(w * v[h + j] for w, v in zip(shares, values, strict=True)) for j in range(size)
            ]
        x = [a + b for a, b in zip(linear(attended, weights["wo"]), residual, strict=True)]
        hidden = [relu(v) for v in linear(rmsnorm(x), weights["up"])]
        x = [a + b for a, b in zip(linear(hidden, weights["down"]), x, strict=True)]
        losses.append(-log(softmax(linear(x, weights["head"]))[target]))
    return sum(losses) / len(losses)


def network(layers, xs, ys):
    """micrograd's network with squared errors."""
    total = 0.0
    for x, y in zip(xs, ys, strict=True):
        for i, (w, b) in enumerate(layers):
            x = [a + c for a, c in zip(linear(x, w), b, strict=True)]
            x = [relu(v) for v in x] if i < len(layers) - 1 else x
        total = total + (1.0 - y * x[0]) ** 2
    return total / len(xs)


def mixture(p, points):
    """The log likelihood of points under Gaussians."""
    total = 0.0
    for x in points:
        terms = []
        for a, m, s in zip(p["a"], p["m"], p["s"], strict=True):
            parts = zip(x, m, s, strict=True)
            q = sum(((xi - mi) / exp(si)) ** 2 for xi, mi, si in parts)
            terms.append(a - sum(s) - 0.5 * q)
        top = max(terms)
        total = total + top + log(sum(exp(t - top) for t in terms))
    return total / len(points)


def matrix(rng, rows, columns, scale=0.3):
    return [[rng.gauss(0, scale) for _ in range(columns)] for _ in range(rows)]


def arrays(tree):
    return {name: np.array(rows) for name, rows in tree.items()}


def cases():
    """By name: the function, what it is trained with, and what it is validated with."""
    rng = random.Random(0)
    shapes = {"wte": (27, WIDTH), "wpe": (16, WIDTH), "head": (27, WIDTH)}
    shapes |= dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    shapes |= {"up": (4 * WIDTH, WIDTH), "down": (WIDTH, 4 * WIDTH)}
    weights = {name: matrix(rng, *shape, 0.08) for name, shape in shapes.items()}
    name, other = [26, 4, 12, 12, 0, 9, 3, 2, 26], [26, 0, 13, 13, 0, 26]
    layers = [(matrix(rng, b, a), [0.0] * b) for a, b in pairwise((2, 16, 16, 1))]
    p = {"a": matrix(rng, 1, 5)[0], "m": matrix(rng, 5, 2), "s": matrix(rng, 5, 2, 0.1)}
    few, many = matrix(rng, 100, 2), matrix(rng, 300, 2)
    labels = [rng.choice((-1.0, 1.0)) for _ in few]
    return {
        "gpt": (gpt, (weights, name), (weights, other)),
        "gpt, arrays": (gpt, (arrays(weights), name), (arrays(weights), other)),
        "network": (network, (layers, few[:20], labels[:20]), (layers, few[:50], labels[:50])),
        "mixture": (mixture, (p, few), (p, many)),
        "mixture, arrays": (mixture, (arrays(p), few), (arrays(p), many)),
    }


def seconds(do, times=5):
    """The least processor time of a few."""
    found = []
    for _ in range(times):
        started = time.thread_time()
        do()
        found.append(time.thread_time() - started)
    return min(found)


def traced(f, arguments, differentiate):
    call = flatten_call(arguments, {}, differentiate=differentiate)
    state = survey(f)
    count = len(trace(f, state, call).recording)
    return 1e6 * seconds(lambda: trace(f, state, call), 2) / count


def validated(f, training, validation, calls):
    """Milliseconds of plain calls after those of ``value_and_grad``, and of the dearest."""
    fast = chainrule.compile(f)
    for _ in range(300):
        fast.value_and_grad(*training)
    taken = [seconds(lambda: fast(*validation), 1) for _ in range(calls)]
    assert abs(fast(*validation) - f(*validation)) < 1e-9
    return f"{1e3 * sum(taken):,.0f} ({1e3 * max(taken):,.0f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200)
    calls = parser.parse_args().calls
    print(machine())
    rows = []
    for name, (f, training, validation) in cases().items():
        rows.append(
            [
                name,
                f"{1e3 * seconds(lambda f=f, given=training: f(*given)):.2f}",
                f"{traced(f, training, False):.2f} / {traced(f, training, True):.2f}",
                f"{1e3 * calls * seconds(lambda f=f, given=training: f(*given)):,.0f}",
                validated(f, training, training, calls),
                f"{1e3 * calls * seconds(lambda f=f, given=validation: f(*given)):,.0f}",
                validated(f, training, validation, calls),
            ]
        )
    title(f"{calls} plain calls after 300 of value_and_grad, ms in all (the dearest)")
    head = ["", "eager, ms", "µs to record each: plain / Values", "eager", "same sizes"]
    table([*head, "eager", "other sizes"], rows)


if __name__ == "__main__":
    main()
