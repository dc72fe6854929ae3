"""Recurrent networks over tokens, written in several ways, for tests of texts of many lengths."""

import random
from itertools import pairwise

from chainrule import exp, log, tanh

TOKENS, WIDTH = 7, 5


def params(scale=1.0, seed=0):
    chance = random.Random(seed)

    def matrix(rows, columns):
        return [[scale * chance.gauss(0, 0.4) for _ in range(columns)] for _ in range(rows)]

    sizes = {"e": (TOKENS, WIDTH), "w": (WIDTH, WIDTH), "u": (WIDTH, WIDTH), "o": (TOKENS, WIDTH)}
    return {name: matrix(*size) for name, size in sizes.items()} | {"b": [0.1 * scale] * WIDTH}


def text(length, seed):
    chance = random.Random(1000 * seed + length)
    return [chance.randrange(TOKENS) for _ in range(length)]


def times(x, rows):
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in rows]


def step(p, h, token):
    sums = zip(times(p["e"][token], p["w"]), times(h, p["u"]), p["b"], strict=True)
    return [tanh(a + b + c) for a, b, c in sums]


def surprise(p, h, token):
    z = [exp(x) for x in times(h, p["o"])]
    return log(sum(z)) - log(z[token])


def at_every_position(p, tokens):
    h, loss = [0.0] * WIDTH, 0.0
    for now, then in pairwise(tokens):
        h = step(p, h, now)
        loss = loss + surprise(p, h, then)
    return loss / (len(tokens) - 1)


def at_the_last_position(p, tokens):
    h = [0.0] * WIDTH
    for token in tokens[:-1]:
        h = step(p, h, token)
    return surprise(p, h, tokens[-1])


def before_it_changes(p, tokens):
    """The state at the end is not used at all."""
    h, loss = [0.1] * WIDTH, 0.0
    for token in tokens:
        loss = loss + surprise(p, h, token)
        h = step(p, h, token)
    return loss


def and_at_the_end(p, tokens):
    h, loss = [0.1] * WIDTH, 0.0
    for token in tokens:
        loss = loss + surprise(p, h, token)
        h = step(p, h, token)
    return loss / len(tokens) + h[2] * h[1]


def gated(p, tokens):
    h, loss = [0.0] * WIDTH, 0.0
    for now, then in pairwise(tokens):
        new = step(p, h, now)
        gates = [1.0 / (1.0 + exp(-x)) for x in times(h, p["w"])]
        h = [(1.0 - z) * a + z * b for z, a, b in zip(gates, h, new, strict=True)]
        loss = loss + surprise(p, h, then)
    return loss / (len(tokens) - 1)


def with_cells(p, tokens):
    """An LSTM, more or less: two states."""
    h, c, loss = [0.0] * WIDTH, [0.0] * WIDTH, 0.0
    for now, then in pairwise(tokens):
        new = step(p, h, now)
        forget, out = ([1.0 / (1.0 + exp(-x)) for x in times(h, p[k])] for k in "wu")
        c = [f * a + (1.0 - f) * b for f, a, b in zip(forget, c, new, strict=True)]
        h = [o * tanh(x) for o, x in zip(out, c, strict=True)]
        loss = loss + surprise(p, h, then)
    return loss / (len(tokens) - 1)


def read_and_written(p, tokens):
    """Two loops, of which the second needs the state at the end of the first all the time."""
    h, g, loss = [0.0] * WIDTH, [0.0] * WIDTH, 0.0
    for token in tokens:
        h = step(p, h, token)
    for token in tokens:
        g = [tanh(a + 0.5 * b) for a, b in zip(step(p, g, token), h, strict=True)]
        loss = loss + surprise(p, g, token)
    return loss


def carried_on(p, tokens):
    """Two loops, of which the second begins with what the first ends with."""
    h = [0.0] * WIDTH
    for token in tokens:
        h = step(p, h, token)
    for token in tokens[:-1]:
        h = [tanh(a - b) for a, b in zip(times(h, p["w"]), p["e"][token], strict=True)]
    return sum(x * x for x in h)


def the_state_itself(p, tokens):
    """The result is a number of the loop."""
    s = p["b"][0]
    for token in tokens:
        s = tanh(s * p["b"][1] + sum(p["e"][token]) + sum(x * s for x in p["w"][0]))
    return s


def the_last_but_one(p, tokens):
    h, states = [0.0] * WIDTH, []
    for token in tokens:
        h = step(p, h, token)
        states.append(h)
    return states[0][0] + states[-2][1] * states[-1][2] + sum(states[-1])


def looked_back_at(p, tokens):
    """The last state attends to all of them."""
    h, states = [0.0] * WIDTH, []
    for token in tokens:
        h = step(p, h, token)
        states.append(h)
    weights = [exp(sum(a * b for a, b in zip(h, state, strict=True))) for state in states]
    return sum(sum(s) * w for s, w in zip(states, weights, strict=True)) / sum(weights)


def moving_mean(p, tokens):
    h, mean, loss = [0.0] * WIDTH, 0.0, 0.0
    for token in tokens:
        h = step(p, h, token)
        mean = mean * 0.9 + h[0] * 0.1
        loss = loss + (h[1] - mean) ** 2
    return loss / len(tokens) + mean


def by_time(p, tokens):
    """Every iteration has numbers of its own."""
    h, loss = [0.0] * WIDTH, 0.0
    for k, token in enumerate(tokens):
        h = [x / (k + 1.0) for x in step(p, h, token)]
        loss = loss + sum(h) * (k / len(tokens))
    return loss


def with_branches(p, tokens):
    h, loss = [0.0] * WIDTH, 0.0
    for token in tokens:
        h = step(p, h, token)
        loss = loss + h[1] if h[0] > -2.0 else loss - h[1]
    return loss


def with_maxima(p, tokens):
    h = [0.0] * WIDTH
    for token in tokens:
        h = step(p, h, token)
        most = max(h)
        h = [tanh(0.3 * x + most) for x in h]
    return sum(h)


def backwards(p, tokens):
    h, loss = [0.0] * WIDTH, 0.0
    for token in reversed(tokens):
        h = step(p, h, token)
        loss = loss + surprise(p, h, token)
    return loss


def embedded_first(p, tokens):
    h, loss = [0.0] * WIDTH, 0.0
    for x in [times(p["e"][token], p["w"]) for token in tokens]:
        h = [tanh(a + b) for a, b in zip(x, times(h, p["u"]), strict=True)]
        loss = loss + sum(h)
    return loss


#: one machine code serves all lengths of these
SHARED = (
    *(at_every_position, at_the_last_position, before_it_changes, and_at_the_end, gated),
    *(with_cells, read_and_written, carried_on, the_state_itself, the_last_but_one),
    *(looked_back_at, moving_mean, by_time, with_branches, with_maxima, backwards, embedded_first),
)


def by_length(p, tokens):
    """A number in the loop depends on the length."""
    h, part = [0.0] * WIDTH, 1.0 / len(tokens)
    for token in tokens:
        h = [part * x for x in step(p, h, token)]
    return sum(h)


def both_ways(p, tokens):
    """At each position the one state is early and the other late."""
    h, g, forth, back = [0.0] * WIDTH, [0.0] * WIDTH, [], []
    for token in tokens:
        h = step(p, h, token)
        forth.append(h)
    for token in reversed(tokens):
        g = step(p, g, token)
        back.append(g)
    pairs = zip(forth, reversed(back), strict=True)
    return sum(x * y for a, b in pairs for x, y in zip(a, b, strict=True))


def two_before(p, tokens):
    a, b, loss = [0.1] * WIDTH, [0.2] * WIDTH, 0.0
    for token in tokens:
        new = [
            tanh(x * y + 0.5 * z + q)
            for x, y, z, q in zip(a, p["b"], b, p["e"][token], strict=True)
        ]
        a, b = b, new
        loss = loss + sum(b)
    return loss + sum(x * y for x, y in zip(a, b, strict=True))


#: these are right at every length, whatever code they have
OTHERS = (by_length, both_ways, two_before)


def otherwise_if_short(p, tokens):
    """A short text has other matrices."""
    short = len(tokens) < 15
    q = p | {"w": p["u"], "u": p["w"]} if short else p
    h = [0.0] * WIDTH
    for token in tokens:
        h = step(q, h, token)
    return sum(h)


def ended_otherwise_if_short(p, tokens):
    h, states = [0.0] * WIDTH, []
    for token in tokens:
        h = step(p, h, token)
        states.append(h)
    return sum(states[-2 if len(tokens) < 15 else -1])


def begun_otherwise_if_short(p, tokens):
    h, loss = list(p["b"] if len(tokens) < 15 else p["e"][0]), 0.0
    for token in tokens:
        h = step(p, h, token)
        loss = loss + h[0]
    return loss


def twice_the_last_if_short(p, tokens):
    h, loss = [0.0] * WIDTH, 0.0
    for token in tokens:
        h = step(p, h, token)
        loss = loss + h[0] * h[1]
    return loss + (h[0] * h[1] if len(tokens) < 15 else h[2] * h[1])


def ended_early_if_short(p, tokens):
    """A short text leaves its last tokens out, which are passed all the same."""
    h, loss = [0.0] * WIDTH, 0.0
    for token in tokens[: len(tokens) - (3 if len(tokens) < 15 else 0)]:
        h = step(p, h, token)
        loss = loss + h[0]
    return loss + h[1]


def turned_if_short(p, tokens):
    h, loss = [0.0] * WIDTH, 0.0
    for token in reversed(tokens) if len(tokens) < 15 else tokens:
        h = step(p, h, token)
        loss = loss + h[0]
    return loss


#: these do something else below 15 tokens
DIFFERING = (
    *(otherwise_if_short, ended_otherwise_if_short, begun_otherwise_if_short),
    *(twice_the_last_if_short, ended_early_if_short, turned_if_short),
)
