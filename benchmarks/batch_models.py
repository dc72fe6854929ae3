"""Small models as people write them, for ``batches.py`` and ``train.py``.

``models()`` has for each name a loss of one sample, its parameters and samples: lists of floats or
of tokens, all of one length, or of several. ``differing()`` has functions of eight
parameters, and what makes a sample of which there is hardly another like it.
"""

from itertools import pairwise

import numpy as np

from chainrule import dot, exp, log, relu, sigmoid, tanh


def line(rows, x):
    return [sum(w * a for w, a in zip(row, x, strict=True)) for row in rows]


def rnn(p, xs):
    state, total = [0.0] * len(p["v"]), 0.0
    for x, target in pairwise(xs):
        state = [tanh(a + u * x) for a, u in zip(line(p["w"], state), p["u"], strict=True)]
        total = total + (sum(v * s for v, s in zip(p["v"], state, strict=True)) - target) ** 2
    return total


def gru(p, xs):
    state, total = [0.0] * len(p["v"]), 0.0
    for x, target in pairwise(xs):
        joined = [*state, x]
        keep, reset = ([sigmoid(a) for a in line(p[name], joined)] for name in ("z", "r"))
        left = [r * s for r, s in zip(reset, state, strict=True)]
        fresh = [tanh(a) for a in line(p["w"], [*left, x])]
        state = [k * s + (1 - k) * f for k, s, f in zip(keep, state, fresh, strict=True)]
        total = total + (sum(v * s for v, s in zip(p["v"], state, strict=True)) - target) ** 2
    return total


def token_rnn(p, tokens):
    state, total = [0.0] * len(p["w"]), 0.0
    for here, there in pairwise(tokens):
        state = [tanh(m + e) for m, e in zip(line(p["w"], state), p["e"][here], strict=True)]
        scores = line(p["o"], state)
        total = total + log(sum(exp(z) for z in scores)) - scores[there]
    return total


def mlp(p, x, y):
    first = [tanh(a + b) for a, b in zip(line(p["w"], x), p["b"], strict=True)]
    return (sum(v * a for v, a in zip(p["v"], first, strict=True)) - y) ** 2


def convolution(p, xs, y):
    total = 0.0
    for kernel, v in zip(p["k"], p["v"], strict=True):
        places = range(len(xs) - len(kernel) + 1)
        found = [relu(sum(w * xs[i + j] for j, w in enumerate(kernel))) for i in places]
        total = total + v * sum(found) * (1.0 / len(found))
    return (total - y) ** 2


def mixture(p, x):
    parts = []
    for mean, scale, weight in zip(p["mean"], p["scale"], p["weight"], strict=True):
        square = sum(((a - m) * s) ** 2 for a, m, s in zip(x, mean, scale, strict=True))
        parts.append(weight - 0.5 * square)
    top = max(parts)
    return -(log(sum(exp(part - top) for part in parts)) + top)


def models(width=16, count=256):
    rng = np.random.default_rng(0)

    def weights(*shape):
        return rng.normal(0, 0.4, shape)

    def floats(least, most, *more):
        sizes = rng.integers(least, most + 1, count)
        return [(rng.normal(size=n), *[float(rng.normal()) for _ in more]) for n in sizes]

    def tokens(least, most):
        return [(rng.integers(0, 27, n).tolist(),) for n in rng.integers(least, most + 1, count)]

    recurrent = {"w": weights(width, width), "u": weights(width), "v": weights(width)}
    gates = {name: weights(width, width + 1) for name in "zrw"} | {"v": weights(width)}
    letters = {"w": weights(width, width), "e": weights(27, width), "o": weights(27, width)}
    layers = {"w": weights(2 * width, 4), "b": weights(2 * width), "v": weights(2 * width)}
    kernels = {"k": weights(8, 5), "v": weights(8)}
    normals = {"mean": weights(5, 3), "scale": 1 + 0.1 * weights(5, 3), "weight": weights(5)}
    return {
        "RNN": (rnn, recurrent, floats(17, 17)),
        "RNN, lengths mixed": (rnn, recurrent, floats(5, 17)),
        "GRU": (gru, gates, floats(17, 17)),
        "GRU, lengths mixed": (gru, gates, floats(5, 17)),
        "RNN of tokens": (token_rnn, letters, tokens(13, 13)),
        "RNN of tokens, lengths mixed": (token_rnn, letters, tokens(4, 13)),
        "MLP": (mlp, layers, floats(4, 4, "y")),
        "convolution": (convolution, kernels, floats(24, 24, "y")),
        "convolution, lengths mixed": (convolution, kernels, floats(10, 24, "y")),
        "mixture": (mixture, normals, floats(3, 3)),
    }


def signed(p, rows):
    total = 0.0
    for x in rows:
        total = total + dot(x, p[:4]) * dot(x, p[4:]) * (1 if x[0] > 0 else 0.5)
    return total / len(rows)


def words(p, x, text):
    total = 0.0
    for word in text.split():
        total = total + p[len(word) % 4] * x
    return total * total + p[0]


def ragged(p, x, rows):
    total = 0.0
    for row in rows:
        if row:
            total = total + max(p[0] * v + p[1] for v in row) * x
    return total * total + p[2]


def normed(p, rows):
    total = 0.0
    for row in rows:
        mean = sum(row) / len(row)
        scores = [w * (v - mean) for w, v in zip(p, row, strict=False)]
        total = total + (tanh(scores[0]) if scores[0] > scores[-1] else scores[-1] * p[1])
    return total


def two_lengths(p, xs, ys):
    first = sum(tanh(p[0] * x) for x in xs)
    return first * sum(p[1] * y * y for y in ys) + p[2]


def differing():
    def numbers(chance, least, most):
        return [chance.gauss(0, 1) for _ in range(chance.randint(least, most))]

    def lists(chance, most, *lengths):
        return [numbers(chance, *lengths) for _ in range(chance.randint(1, most))]

    def text(chance):
        letters = ["".join(chance.choices("abc", k=chance.randint(1, 5))) for _ in range(3)]
        return " ".join(letters[: chance.randint(1, 3)])

    return {
        "a branch in every row": (signed, lambda c: (lists(c, 31, 4, 4),)),
        "words of a text": (words, lambda c: (c.gauss(0, 1), text(c))),
        "ragged rows": (ragged, lambda c: (c.gauss(0, 1), lists(c, 4, 0, 4))),
        "layers with branches": (normed, lambda c: (lists(c, 9, 4, 4),)),
        "two lengths": (two_lengths, lambda c: (numbers(c, 1, 30), numbers(c, 1, 30))),
    }
