"""Attention over texts of any length: every position to all others, the last one, pairs of points.

A call with fewer tokens is no beginning of a longer one: each sum over the keys has another number
of terms, and the last position is elsewhere.
"""

import math

from chainrule import dot, exp, linear, log, nn, tanh

from .registry import Field, as_lists, drifting

FIELD = Field("attention")
WIDTH, VOCABULARY, CLASSES = 6, 12, 3


def weights(rng, *shape):
    return rng.normal(size=shape) * 0.3


def parameters(rng):
    shapes = {"wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH), "query": (WIDTH,)}
    shapes |= {"wte": (VOCABULARY, WIDTH), "wpe": (40, WIDTH), "head": (CLASSES, WIDTH)}
    return {name: weights(rng, *shape) for name, shape in shapes.items()}


def texts(rng):
    """Parameters that drift, texts of 3 to 20 tokens, and their classes."""
    for params in drifting(rng, parameters(rng)):
        tokens = rng.integers(VOCABULARY, size=rng.integers(3, 21)).tolist()
        yield params, tokens, int(rng.integers(CLASSES))


def softmax(zs):
    exps = [exp(z) for z in zs]
    total = sum(exps)
    return [e / total for e in exps]


def embedded(p, tokens):
    return [[a + b for a, b in zip(p["wte"][t], p["wpe"][i])] for i, t in enumerate(tokens)]


def loss_of(p, x, label):
    return -log(softmax(linear(x, p["head"]))[label])


def mixed(query, keys, values):
    shares = softmax([dot(query, key) / math.sqrt(len(query)) for key in keys])
    return [sum(s * v[j] for s, v in zip(shares, values)) for j in range(len(values[0]))]


def attended(p, xs):
    qs, ks, vs = ([linear(x, p[w]) for x in xs] for w in ("wq", "wk", "wv"))
    return [[a + b for a, b in zip(x, mixed(q, ks, vs))] for x, q in zip(xs, qs)]


# --- every position to all others -----------------------------------------------------------------


@FIELD.idiom
def all_positions(rng):
    return texts(rng)


@all_positions.spelling
def all_positions_mean(p, tokens, label):
    rows = attended(p, embedded(p, tokens))
    return loss_of(p, [sum(column) / len(rows) for column in zip(*rows)], label)


@all_positions.spelling
def all_positions_largest(p, tokens, label):
    rows = attended(p, embedded(p, tokens))
    return loss_of(p, [max(column) for column in zip(*rows)], label)


@all_positions.spelling
def all_positions_heads(p, tokens, label):
    xs = embedded(p, tokens)
    qs, ks, vs = ([linear(x, p[w]) for x in xs] for w in ("wq", "wk", "wv"))
    total = [0.0] * WIDTH
    for q in qs:
        row = []
        for h in (0, 3):
            att = nn.softmax([dot(q[h : h + 3], k[h : h + 3]) / math.sqrt(3) for k in ks])
            row += [sum(a * v[h + j] for a, v in zip(att, vs)) for j in range(3)]
        total = [a + b for a, b in zip(total, row)]
    return loss_of(p, [x / len(tokens) for x in total], label)


@all_positions.spelling(adapt=as_lists)
def all_positions_loops(p, tokens, label):
    n, xs = len(tokens), [p["wte"][t] for t in tokens]
    pooled = [0.0] * WIDTH
    for i in range(n):
        scores, total = [], 0.0
        for j in range(n):
            score = 0.0
            for k in range(WIDTH):
                score += xs[i][k] * xs[j][k]
            scores.append(score.exp())
            total += scores[-1]
        for j in range(n):
            for k in range(WIDTH):
                pooled[k] += scores[j] / total * xs[j][k] / n
    return loss_of(p, pooled, label)


@all_positions.spelling
def all_positions_two_layers(p, tokens, label):
    rows = attended(p, attended(p, embedded(p, tokens)))
    return loss_of(p, [sum(column) / len(rows) for column in zip(*rows)], label)


# --- the last position ----------------------------------------------------------------------------


@FIELD.idiom
def last_position(rng):
    return texts(rng)


@last_position.spelling
def last_position_of_all(p, tokens, label):
    return loss_of(p, attended(p, embedded(p, tokens))[-1], label)


@last_position.spelling
def last_position_one_query(p, tokens, label):
    xs = embedded(p, tokens)
    ks, vs = ([linear(x, p[w]) for x in xs] for w in ("wk", "wv"))
    return loss_of(p, mixed(linear(xs[-1], p["wq"]), ks, vs), label)


@last_position.spelling
def last_position_cache(p, tokens, label):
    keys, values = [], []
    for x in embedded(p, tokens):
        keys.append(linear(x, p["wk"]))
        values.append(linear(x, p["wv"]))
        h = [a + b for a, b in zip(x, mixed(linear(x, p["wq"]), keys, values))]
    return loss_of(p, h, label)


@last_position.spelling
def last_position_causal_layers(p, tokens, label):
    xs = embedded(p, tokens)
    for _ in range(2):
        qs, ks, vs = ([linear(x, p[w]) for x in xs] for w in ("wq", "wk", "wv"))
        rows = [mixed(q, ks[: i + 1], vs[: i + 1]) for i, q in enumerate(qs)]
        xs = [[a + b for a, b in zip(x, row)] for x, row in zip(xs, rows)]
    return loss_of(p, xs[-1], label)


# --- one query over all positions -----------------------------------------------------------------


@FIELD.idiom
def pooling(rng):
    return texts(rng)


@pooling.spelling
def pooling_learnt_query(p, tokens, label):
    xs = embedded(p, tokens)
    return loss_of(p, mixed(p["query"], [linear(x, p["wk"]) for x in xs], xs), label)


@pooling.spelling
def pooling_both_ends(p, tokens, label):
    rows = attended(p, embedded(p, tokens))
    return loss_of(p, [a + b for a, b in zip(rows[0], rows[-1])], label)


# --- pairs of points ------------------------------------------------------------------------------


@FIELD.idiom
def pairs(rng):
    for params in drifting(rng, {"scale": 0.7, "height": 0.4, "shift": 0.1}):
        yield params, rng.normal(size=rng.integers(3, 21)).tolist()


@pairs.spelling
def pairs_kernel_matrix(p, xs):
    total = 0.0
    for x in xs:
        near = sum(exp(-p["scale"] * (x - y) ** 2) for y in xs)
        total += (p["height"] * near + p["shift"] - x) ** 2
    return total / len(xs)


@pairs.spelling
def pairs_below_the_diagonal(p, xs):
    total = 0.0
    for i in range(len(xs)):
        for j in range(i):
            total += tanh(p["scale"] * (xs[i] - xs[j]) + p["shift"]) ** 2
    return total + p["height"] * xs[-1]
