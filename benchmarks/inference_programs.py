"""Programs that carry a state from call to call, as people write them, for ``inference.py``.

Each is a function, and a loop that calls it so many times: it draws a token, or takes the next
measurement, and passes on what the call returned, or the lists that it changed.
"""

import math
import random
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule import relu, sigmoid, tanh
from chainrule.nn import softmax

WIDTH, HEADS, TOKENS, BLOCK = 16, 4, 27, 16
START = TOKENS - 1


def matrix(rng, rows, columns, scale=0.3):
    return [[rng.gauss(0, scale) for _ in range(columns)] for _ in range(rows)]


def linear(x, w):
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in w]


def rmsnorm(x):
    scale = (sum(v * v for v in x) / len(x) + 1e-5) ** -0.5
    return [v * scale for v in x]


def drawn(rng, logits):
    """A token, by its chance."""
    top = max(logits)
    return rng.choices(range(TOKENS), [math.exp(x - top) for x in logits])[0]


# --- a GPT with a cache of keys and values --------------------------------------------------------


def gpt_weights():
    rng = random.Random(0)
    shapes = {"wte": (TOKENS, WIDTH), "wpe": (BLOCK, WIDTH), "head": (TOKENS, WIDTH)}
    shapes |= dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    shapes |= {"up": (4 * WIDTH, WIDTH), "down": (WIDTH, 4 * WIDTH)}
    return {name: matrix(rng, *shape) for name, shape in shapes.items()}


def embedded(p, token, position):
    pairs = zip(p["wte"][token], p["wpe"][position], strict=True)
    return rmsnorm([a + b for a, b in pairs])


def logits(p, x, keys, values):
    """The scores of the next token."""
    query, size, mixed = linear(rmsnorm(x), p["wq"]), WIDTH // HEADS, []
    for h in range(0, WIDTH, size):
        scores = [sum(query[h + j] * k[h + j] for j in range(size)) / size**0.5 for k in keys]
        shares = softmax(scores)
        mixed += [
            sum(a * v[h + j] for a, v in zip(shares, values, strict=True)) for j in range(size)
        ]
    x = [a + b for a, b in zip(linear(mixed, p["wo"]), x, strict=True)]
    hidden = [relu(v) for v in linear(rmsnorm(x), p["up"])]
    x = [a + b for a, b in zip(linear(hidden, p["down"]), x, strict=True)]
    return linear(x, p["head"])


def step(p, token, position, keys, values):
    x = embedded(p, token, position)
    y = rmsnorm(x)
    keys, values = [*keys, linear(y, p["wk"])], [*values, linear(y, p["wv"])]
    return logits(p, x, keys, values), keys, values


def step_appending(p, token, position, keys, values):
    x = embedded(p, token, position)
    y = rmsnorm(x)
    keys[0].append(linear(y, p["wk"]))
    values[0].append(linear(y, p["wv"]))
    return logits(p, x, keys[0], values[0])


def step_of_dict(p, token, position, cache):
    x = embedded(p, token, position)
    y = rmsnorm(x)
    cache["k"], cache["v"] = cache["k"] + [linear(y, p["wk"])], cache["v"] + [linear(y, p["wv"])]
    return logits(p, x, cache["k"], cache["v"])


def step_of_deques(p, token, position, keys, values):
    x = embedded(p, token, position)
    y = rmsnorm(x)
    keys.append(linear(y, p["wk"]))
    values.append(linear(y, p["wv"]))
    return logits(p, x, keys, values)


def step_of_arrays(p, token, position, keys, values):
    x = embedded(p, token, position)
    y = rmsnorm(x)
    keys = np.concatenate([keys, [linear(y, p["wk"])]])
    values = np.vstack([values, linear(y, p["wv"])])
    return np.array(logits(p, x, keys, values)), keys, values


def draft(p, tokens, position, keys, values):
    """Several tokens at once, as they are scored that a smaller model has drafted."""
    found = []
    for k, token in enumerate(tokens):
        scores, keys, values = step(p, token, position + k, keys, values)
        found.append(scores)
    return found, keys, values


def documents(begin, returns_cache):
    """Names, one after the other: each begins with an empty cache."""

    def loop(f, calls):
        rng, p, made = random.Random(1), gpt_weights(), []
        if isinstance(begin()[0], np.ndarray):
            p = {name: np.array(rows) for name, rows in p.items()}
        while len(made) < calls:
            token, cache = START, begin()
            for position in range(BLOCK):
                scores = f(p, token, position, *cache)
                if returns_cache:
                    scores, *cache = scores
                token = drawn(rng, scores)
                made.append(token)
                if len(made) == calls or (token == START and position > 3):
                    break
        return made

    return loop


def beams(f, calls):
    """The best three beginnings, each with its cache."""
    rng, p, best, done = random.Random(2), gpt_weights(), [], 0
    while done < calls:
        kept = [(0.0, [START, rng.randrange(TOKENS)], ([], []))]
        for position in range(BLOCK - 4):
            found = []
            for score, tokens, cache in kept:
                scores, *after = f(p, tokens[position], position, *cache)
                done += 1
                order = sorted(range(TOKENS), key=lambda i, s=scores: -s[i])[:3]
                for token in order if position else tokens[1:]:
                    more = [*tokens[: position + 1], token]
                    found.append((score + scores[token], more, after))
            kept = sorted(found, key=lambda x: -x[0])[:3]
        best.append(kept[0][1])
    return best


def drafts(f, calls):
    """Three tokens are drafted at a time, of which one to three are taken."""
    rng, p, taken, done = random.Random(3), gpt_weights(), [], 0
    while done < calls:
        keys, values, position = [], [], 0
        while position < BLOCK - 3 and done < calls:
            tokens = [rng.randrange(TOKENS) for _ in range(3)]
            scores, keys, values = f(p, tokens, position, keys, values)
            done += 1
            position += 1 + rng.randrange(3)
            keys, values = keys[:position], values[:position]
            taken.append(scores[0][0])
    return taken


# --- states of one size ---------------------------------------------------------------------------


def rnn(p, token, h):
    added = zip(linear(p["wte"][token], p["w"]), linear(h, p["u"]), strict=True)
    h = [tanh(a + b) for a, b in added]
    return linear(h, p["head"]), h


def lstm(p, token, state):
    h, c = state
    x = p["wte"][token] + h
    into, forget, out = ([sigmoid(v) for v in linear(x, p[name])] for name in ("i", "f", "o"))
    new = [tanh(v) for v in linear(x, p["g"])]
    c = [f * a + i * b for f, a, i, b in zip(forget, c, into, new, strict=True)]
    h = [o * tanh(v) for o, v in zip(out, c, strict=True)]
    return linear(h, p["head"]), (h, c)


@dataclass
class Track:
    """What a filter knows."""

    x: list[Any]
    P: list[list[Any]]
    count: int = 0


def kalman(model, track, z):
    f, q = model["F"], model["Q"]
    x = [sum(f[i][j] * track.x[j] for j in range(2)) for i in range(2)]
    fp = [[sum(f[i][k] * track.P[k][j] for k in range(2)) for j in range(2)] for i in range(2)]
    p = [[sum(fp[i][k] * f[j][k] for k in range(2)) + q[i][j] for j in range(2)] for i in range(2)]
    s = p[0][0] + model["R"]
    gain, error = [p[0][0] / s, p[1][0] / s], z - x[0]
    track.x = [x[i] + gain[i] * error for i in range(2)]
    track.P = [[p[i][j] - gain[i] * p[0][j] for j in range(2)] for i in range(2)]
    track.count += 1


def reservoir(p, x, u):
    sums = [sum(a * b for a, b in zip(row, x, strict=True)) for row in p["W"]]
    x = np.array(
        [0.7 * v + 0.3 * tanh(s + w * u) for v, s, w in zip(x, sums, p["in"], strict=True)]
    )
    return sum(a * b for a, b in zip(p["out"], x, strict=True)), x


def smoothed(p, window, x):
    window.append(x)
    if len(window) > 8:
        window.pop(0)
    return sum(p[k] * v for k, v in enumerate(window))


def sampled(names, state):
    def loop(f, calls):
        rng, after, token, made = random.Random(4), state, START, []
        p = {"wte": matrix(rng, TOKENS, WIDTH), "head": matrix(rng, TOKENS, WIDTH)}
        p |= {name: matrix(rng, WIDTH, WIDTH * (1 + (len(names) == 4))) for name in names}
        for _ in range(calls):
            scores, after = f(p, token, after)
            token = drawn(rng, scores)
            made.append(token)
        return made

    return loop


def tracked(f, calls):
    rng, track = random.Random(5), Track([0.0, 0.0], [[1.0, 0.0], [0.0, 1.0]])
    model = {"F": [[1.0, 0.1], [0.0, 1.0]], "Q": [[1e-3, 0.0], [0.0, 1e-3]], "R": 0.1}
    for k in range(calls):
        f(model, track, math.sin(k / 20) + rng.gauss(0, 0.3))
    return [*track.x, track.count]


def driven(f, calls):
    rng, x, made = np.random.default_rng(6), np.zeros(30), []
    p = {
        "W": rng.normal(size=(30, 30)) * 0.15,
        "in": rng.normal(size=30),
        "out": rng.normal(size=30),
    }
    for k in range(calls):
        y, x = f(p, x, math.sin(k / 7))
        made.append(float(y))
    return made


def windowed(f, calls):
    rng, window, made = random.Random(7), [], []
    p = [rng.gauss(0, 1) for _ in range(40)]
    for _ in range(calls):
        made.append(f(p, window, rng.gauss(0, 1)))
    return made


ZEROS = [0.0] * WIDTH
PROGRAMS = {
    "cache, returned": (step, documents(lambda: ([], []), True)),
    "cache, appended to": (step_appending, documents(lambda: ([[]], [[]]), False)),
    "cache, a dict": (step_of_dict, documents(lambda: ({"k": [], "v": []},), False)),
    "cache, deques": (step_of_deques, documents(lambda: (deque(), deque()), False)),
    "cache, arrays": (step_of_arrays, documents(lambda: (np.zeros((0, WIDTH)),) * 2, True)),
    "beam search": (step, beams),
    "drafts of three": (draft, drafts),
    "RNN": (rnn, sampled(("w", "u"), ZEROS)),
    "LSTM": (lstm, sampled("ifog", (ZEROS, ZEROS))),
    "Kalman filter": (kalman, tracked),
    "reservoir": (reservoir, driven),
    "sliding window": (smoothed, windowed),
}
