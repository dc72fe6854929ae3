"""A GPT in microgpt's manner as a function of the number class, for the benchmarks to share."""

import math
import random
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter, methodcaller
from typing import Any

WIDTH, HEADS, BLOCK, VOCABULARY = 16, 4, 16, 27
TOKENS = [26, 4, 12, 12, 0, 9, 3, 2, 26]  # eight positions: each predicts the next


@dataclass(frozen=True)
class Functions:
    """How a number class spells what is not an operator."""

    exp: Any
    log: Any
    relu: Any
    number: Any


METHODS = Functions(
    methodcaller("exp"), methodcaller("log"), methodcaller("relu"), attrgetter("data")
)
FLOATS = Functions(math.exp, math.log, lambda x: max(0.0, x), float)


def parameters(cls, seed=1):
    """The weight matrices: rows of ``cls``."""
    rng = random.Random(seed)

    def matrix(rows, columns):
        return [[cls(rng.gauss(0, 0.08)) for _ in range(columns)] for _ in range(rows)]

    return {
        "wte": matrix(VOCABULARY, WIDTH),
        "wpe": matrix(BLOCK, WIDTH),
        "lm_head": matrix(VOCABULARY, WIDTH),
        "wq": matrix(WIDTH, WIDTH),
        "wk": matrix(WIDTH, WIDTH),
        "wv": matrix(WIDTH, WIDTH),
        "wo": matrix(WIDTH, WIDTH),
        "up": matrix(4 * WIDTH, WIDTH),
        "down": matrix(WIDTH, 4 * WIDTH),
    }


def flat(weights):
    """Every parameter, in order."""
    return [p for matrix in weights.values() for row in matrix for p in row]


def plain_linear(x, w):
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in w]


def softmax(logits, functions=METHODS):
    exp = functions.exp
    top = max(map(functions.number, logits))
    exps = [exp(v - top) for v in logits]
    total = sum(exps)
    return [e / total for e in exps]


def rmsnorm(x):
    mean_square = sum(v * v for v in x) / len(x)
    scale = (mean_square + 1e-5) ** -0.5
    return [v * scale for v in x]


def loss(weights, tokens, linear=plain_linear, functions=METHODS):
    """The mean cross-entropy of predicting each token from those before it."""
    keys, values, losses = [], [], []
    size = WIDTH // HEADS
    for position, (token, target) in enumerate(pairwise(tokens)):
        x = [t + p for t, p in zip(weights["wte"][token], weights["wpe"][position], strict=True)]
        x = rmsnorm(x)
        residual = x
        x = rmsnorm(x)
        q = linear(x, weights["wq"])
        keys.append(linear(x, weights["wk"]))
        values.append(linear(x, weights["wv"]))
        attended = []
        for h in range(0, WIDTH, size):
            scores = [sum(q[h + j] * k[h + j] for j in range(size)) / math.sqrt(size) for k in keys]
            weight = softmax(scores, functions)
            attended += [
                sum(w * v[h + j] for w, v in zip(weight, values, strict=True)) for j in range(size)
            ]
        x = [a + b for a, b in zip(linear(attended, weights["wo"]), residual, strict=True)]
        residual = x
        hidden = [functions.relu(v) for v in linear(rmsnorm(x), weights["up"])]
        x = [a + b for a, b in zip(linear(hidden, weights["down"]), residual, strict=True)]
        probabilities = softmax(linear(x, weights["lm_head"]), functions)
        losses.append(-functions.log(probabilities[target]))
    return sum(losses) / len(losses)


class PythonAdam:
    """microgpt's Adam, in Python."""

    def __init__(self, params, lr=0.01, beta1=0.85, beta2=0.99, eps=1e-8):
        self.params, self.lr, self.beta1, self.beta2, self.eps = params, lr, beta1, beta2, eps
        self.m, self.v, self.t = [0.0] * len(params), [0.0] * len(params), 0

    def step(self):
        self.t += 1
        for i, p in enumerate(self.params):
            self.m[i] = self.beta1 * self.m[i] + (1 - self.beta1) * p.grad
            self.v[i] = self.beta2 * self.v[i] + (1 - self.beta2) * p.grad**2
            m_hat = self.m[i] / (1 - self.beta1**self.t)
            v_hat = self.v[i] / (1 - self.beta2**self.t)
            p.data -= self.lr * m_hat / (v_hat**0.5 + self.eps)
            p.grad = 0
