"""Lists whose lengths vary independently: two sequences, two sets of points, ragged rows."""

import numpy as np

from chainrule import dot, exp, log, relu, sigmoid, softmax, tanh

from .registry import Field, moved, nested_lists

FIELD = Field("lengths")

FEWEST, MOST = 3, 14  # items of a list


def lengths(rng, count, fewest=FEWEST, most=MOST):
    return rng.integers(fewest, most + 1, size=count).tolist()


def numbers(rng, *shape):
    return rng.normal(size=shape).tolist()


def noisy(rng, tree):
    """The tree of parameters, each time changed a little: calls may be very many."""
    while True:
        yield moved(rng, tree, 0.05)


# --- two sequences --------------------------------------------------------------------------------


@FIELD.idiom
def two_series(rng):
    for p in noisy(rng, [1.0, 0.3, 0.5]):
        n, m = lengths(rng, 2)
        yield p, numbers(rng, n), numbers(rng, m)


@two_series.spelling
def two_series_soft_dtw(p, x, y):
    scale, shift, gamma = p[0], p[1], 0.7
    n, m = len(x), len(y)
    R = [[1e6] * (m + 1) for _ in range(n + 1)]
    R[0][0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = (scale * x[i - 1] + shift - y[j - 1]) ** 2
            a, b, c = R[i - 1][j], R[i][j - 1], R[i - 1][j - 1]
            R[i][j] = cost - gamma * log(exp(-a / gamma) + exp(-b / gamma) + exp(-c / gamma))
    return R[n][m]


@FIELD.idiom
def two_words(rng):
    for p in noisy(rng, rng.normal(size=(6, 6)).tolist()):
        n, m = lengths(rng, 2)
        yield p, rng.integers(6, size=n).tolist(), rng.integers(6, size=m).tolist()


@two_words.spelling
def two_words_edit_distance(costs, a, b):
    before = [0.5 * j for j in range(len(b) + 1)]
    for i, s in enumerate(a):
        row = [0.5 * (i + 1)]
        for j, t in enumerate(b):
            paths = [before[j] + costs[s][t] ** 2, before[j + 1] + 0.5, row[j] + 0.5]
            row.append(-log(sum(exp(-path) for path in paths)))
        before = row
    return before[-1]


@FIELD.idiom
def translation(rng):
    d, vocabulary = 4, 8
    start = {
        "source": rng.normal(size=(vocabulary, d)).tolist(),
        "target": rng.normal(size=(vocabulary, d)).tolist(),
        "encoder": (0.4 * rng.normal(size=(d, 2 * d))).tolist(),
        "decoder": (0.4 * rng.normal(size=(d, 2 * d))).tolist(),
        "head": rng.normal(size=(vocabulary, d)).tolist(),
    }
    for p in noisy(rng, start):
        n, m = lengths(rng, 2)
        yield p, rng.integers(8, size=n).tolist(), rng.integers(8, size=m).tolist()


def step(rows, h, x):
    joined = h + x
    return [tanh(sum(w * v for w, v in zip(row, joined))) for row in rows]


@translation.spelling
def translation_encoder_decoder(p, source, target):
    h = [0.0] * 4
    for token in source:
        h = step(p["encoder"], h, p["source"][token])
    loss = 0.0
    for before, after in zip(target, target[1:]):
        h = step(p["decoder"], h, p["target"][before])
        scores = [sum(w * v for w, v in zip(row, h)) for row in p["head"]]
        loss = loss - log(softmax(scores)[after])
    return loss / (len(target) - 1)


@translation.spelling
def translation_cross_attention(p, source, target):
    keys = [p["source"][token] for token in source]
    loss = 0.0
    for before, after in zip(target, target[1:]):
        query = p["target"][before]
        weights = softmax([dot(query, key) / 2.0 for key in keys])
        mixed = [sum(w * key[k] for w, key in zip(weights, keys)) for k in range(4)]
        scores = [dot(row, mixed) for row in p["head"]]
        loss = loss - log(softmax(scores)[after])
    return loss / (len(target) - 1)


# --- two sets -------------------------------------------------------------------------------------


@FIELD.idiom
def two_sets(rng):
    for p in noisy(rng, [0.5, 0.2, 1.0]):
        n, m = lengths(rng, 2)
        yield p, rng.normal(size=(n, 2)), rng.normal(size=(m, 2)) + 0.5


@two_sets.spelling
def two_sets_mean_discrepancy(p, a, b):
    def kernel(x, y):
        return exp(-((p[0] * (x[0] - y[0])) ** 2) - (p[1] * (x[1] - y[1])) ** 2)

    def mean(xs, ys):
        return sum(kernel(x, y) for x in xs for y in ys) / (len(xs) * len(ys))

    return p[2] * (mean(a, a) + mean(b, b) - 2 * mean(a, b))


@two_sets.spelling
def two_sets_kernel_regression(p, a, b):
    loss = 0.0
    for x in b:
        weights = [exp(-((p[0] * (x[0] - z[0])) ** 2)) for z in a]
        guess = p[2] * sum(w * z[1] for w, z in zip(weights, a)) / sum(weights)
        loss = loss + (guess - x[1]) ** 2
    return loss / len(b) + p[1] ** 2


@two_sets.spelling
def two_sets_two_likelihoods(p, a, b):
    first = sum((y - p[0] * x) ** 2 for x, y in a) / len(a)
    second = sum(log(1 + exp(-(p[1] * x + p[2]) * y)) for x, y in b) / len(b)
    return first + second


@FIELD.idiom
def ranking(rng):
    for p in noisy(rng, (0.3 * rng.normal(size=(4, 5))).tolist()):
        n, m = lengths(rng, 2)
        yield p, numbers(rng, n, 4), numbers(rng, m, 4)


@ranking.spelling
def ranking_pairs(W, liked, others):
    def score(x):
        hidden = [tanh(sum(x[k] * W[k][j] for k in range(4))) for j in range(4)]
        return sum(h * W[k][4] for k, h in enumerate(hidden))

    good, bad = [score(x) for x in liked], [score(x) for x in others]
    return sum(relu(1 - g + b) for g in good for b in bad) / (len(good) * len(bad))


# --- ragged rows ----------------------------------------------------------------------------------


@FIELD.idiom
def ragged_rows(rng):
    for p in noisy(rng, [0.2, 0.5, -0.1]):
        yield p, [numbers(rng, n, 2) for n in lengths(rng, 5)]


@ragged_rows.spelling
def ragged_rows_random_slopes(p, groups):
    total = 0.0
    for rows in groups:
        mean = sum(y for _, y in rows) / len(rows)
        effect = tanh(p[0] * mean + p[2])
        total = total + sum((y - effect - p[1] * x) ** 2 for x, y in rows) / len(rows)
    return total


@ragged_rows.spelling(adapt=lambda p, groups: (p, {f"site {k}": g for k, g in enumerate(groups)}))
def ragged_rows_dict_of_lists(p, sites):
    total = 0.0
    for rows in sites.values():
        total += sum(log(1 + exp(-y * (p[0] + p[1] * x))) for x, y in rows)
    return total + p[2] ** 2


@FIELD.idiom
def sentences(rng):
    start = {
        "table": rng.normal(size=(8, 4)).tolist(),
        "hidden": (0.4 * rng.normal(size=(4, 8))).tolist(),
        "head": rng.normal(size=(8, 4)).tolist(),
    }
    for p in noisy(rng, start):
        yield p, [rng.integers(8, size=n).tolist() for n in lengths(rng, 4, 3, 8)]


@sentences.spelling
def sentences_minibatch(p, batch):
    loss, count = 0.0, 0
    for tokens in batch:
        h = [0.0] * 4
        for before, after in zip(tokens, tokens[1:]):
            h = step(p["hidden"], h, p["table"][before])
            scores = [sum(w * v for w, v in zip(row, h)) for row in p["head"]]
            loss, count = loss - log(softmax(scores)[after]), count + 1
    return loss / count


@sentences.spelling
def sentences_bags_of_words(p, batch):
    loss = 0.0
    for tokens in batch:
        mean = [sum(p["table"][t][k] for t in tokens) / len(tokens) for k in range(4)]
        score = sum(w * v for w, v in zip(p["head"][0], mean))
        loss = loss - log(sigmoid(score)) + 0.01 * score**2
    return loss


@FIELD.idiom
def visits(rng):
    for p in noisy(rng, [0.4, 0.3, 0.5]):
        n, m = lengths(rng, 2, 5, 40)
        yield p, np.cumsum(rng.uniform(0.1, 1.0, n)), np.cumsum(rng.uniform(0.1, 1.0, m))


@visits.spelling(adapt=lambda p, a, b: (p, nested_lists(a), nested_lists(b)))
def visits_two_hawkes(p, first, second):
    """Two streams of events, each of which excites itself."""
    base, jump, decay = p

    def log_likelihood(times):
        total, excited = log(base), 0.0
        for before, now in zip(times, times[1:]):
            excited = (excited + 1) * exp(-decay * (now - before))
            total = total + log(base + jump * excited)
        return total - base * times[-1]

    return -log_likelihood(first) - log_likelihood(second)
