"""Likelihoods and losses of statistics and of models over sequences, ratings and events."""

import heapq
import math
from collections import Counter

import numpy as np

from chainrule import clip, dot, exp, log, log1p, maximum, sigmoid, softplus, sqrt, where

from .registry import Field, as_lists, drifting

FIELD = Field("statistics")


def logsumexp(xs):
    m = max(xs)
    return m + log(sum(exp(x - m) for x in xs))


# --- regression -----------------------------------------------------------------------------------


@FIELD.idiom
def logistic(rng):
    for w in drifting(rng, rng.normal(size=4)):
        yield w, rng.normal(size=(20, 4)), rng.integers(2, size=20)


@logistic.spelling
def logistic_loop(w, X, y):
    loss = 0.0
    for x, label in zip(X, y):
        p = 1 / (1 + exp(-dot(w, x)))
        loss = loss - (label * log(p) + (1 - label) * log(1 - p))
    return loss / len(X)


@logistic.spelling(adapt=as_lists)
def logistic_if_label(w, X, y):
    loss = 0.0
    for x, label in zip(X, y):
        p = sigmoid(sum(a * b for a, b in zip(w, x)))
        if label == 1:
            loss -= log(p)
        else:
            loss -= log(1 - p)
    return loss


@logistic.spelling
def logistic_numpy(w, X, y):
    z = X @ w
    return (np.log(1 + np.exp(z)) - y * z).mean() + 0.01 * (w @ w)


@logistic.spelling
def logistic_clipped(w, X, y):
    loss = 0.0
    for x, label in zip(X, y):
        p = clip(sigmoid(dot(w, x)), 1e-7, 1 - 1e-7)
        loss = loss - where(label == 1, log(p), log(1 - p))
    return loss


@logistic.spelling
def logistic_margin(w, X, y):
    signs = 2 * y - 1
    margins = signs * (X @ w)
    return sum(softplus(-m) for m in margins) + 0.1 * sum(abs(v) for v in w)


@FIELD.idiom
def robust(rng):
    for p in drifting(rng, [0.5, 1.0]):
        x = rng.uniform(-2, 2, size=20)
        yield p, x.tolist(), (1 + 0.7 * x + rng.standard_t(2, size=20)).tolist()


@robust.spelling
def robust_huber_if(p, xs, ys):
    total = 0.0
    for x, y in zip(xs, ys):
        r = abs(p[0] * x + p[1] - y)
        total = total + (0.5 * r**2 if r < 1.0 else r - 0.5)
    return total


@robust.spelling
def robust_huber_where(p, xs, ys):
    residuals = [p[0] * x + p[1] - y for x, y in zip(xs, ys)]
    return sum(where(abs(r) < 1.0, 0.5 * r * r, abs(r) - 0.5) for r in residuals)


@robust.spelling
def robust_quantile(p, xs, ys):
    q = 0.9
    return sum(
        max(q * (y - p[0] * x - p[1]), (q - 1) * (y - p[0] * x - p[1])) for x, y in zip(xs, ys)
    )


@robust.spelling
def robust_trimmed(p, xs, ys):
    errors = sorted((p[0] * x + p[1] - y) ** 2 for x, y in zip(xs, ys))
    keep = errors[: int(0.8 * len(errors))]
    return sum(keep) / len(keep)


@robust.spelling
def robust_median_absolute(p, xs, ys):
    errors = sorted(abs(p[0] * x + p[1] - y) for x, y in zip(xs, ys))
    middle = len(errors) // 2
    return (errors[middle - 1] + errors[middle]) / 2


@robust.spelling
def robust_student(p, xs, ys):
    nu = 3
    return sum((nu + 1) / 2 * log1p((y - p[0] * x - p[1]) ** 2 / nu) for x, y in zip(xs, ys))


@robust.spelling
def robust_outliers_skipped(p, xs, ys):
    total, used = 0.0, 0
    for x, y in zip(xs, ys):
        r = p[0] * x + p[1] - y
        if abs(r) > 3:
            continue
        total, used = total + r * r, used + 1
    return total / used


@robust.spelling
def robust_standardised(p, xs, ys):
    mean, sd = np.mean(xs), np.std(xs)
    total = 0.0
    for x, y in zip(xs, ys):
        total += (p[0] * (x - mean) / sd + p[1] - y) ** 2
    return total / max(ys)


# --- residuals of lists of changing length, and the first few in an order -------------------------


@FIELD.idiom
def residuals(rng):
    for p in drifting(rng, [0.5, 1.0]):
        x = rng.uniform(-2, 2, size=rng.integers(3, 60))
        yield p, x.tolist(), (1 + 0.7 * x + rng.standard_t(2, size=len(x))).tolist()


@residuals.spelling
def residuals_huber_if(p, xs, ys):
    total, d = 0.0, 1.0
    for x, y in zip(xs, ys):
        r = p[0] * x + p[1] - y
        if abs(r) < d:
            total += 0.5 * r * r
        else:
            total += d * (abs(r) - 0.5 * d)
    return total / len(xs)


@residuals.spelling
def residuals_huber_ternary(p, xs, ys):
    total, d = 0.0, 1.0
    for i in range(len(xs)):
        r = p[0] * xs[i] + p[1] - ys[i]
        total += 0.5 * r * r if abs(r) < d else d * (abs(r) - 0.5 * d)
    return total


@residuals.spelling
def residuals_huber_function(p, xs, ys):
    def huber(r):
        if abs(r) <= 1.0:
            return 0.5 * r * r
        return abs(r) - 0.5

    return sum(huber(p[0] * x + p[1] - y) for x, y in zip(xs, ys))


@residuals.spelling
def residuals_hinge_if(p, xs, ys):
    loss = 0.0
    for x, y in zip(xs, ys):
        margin = 1 - y * (p[0] * x + p[1])
        if margin > 0:
            loss += margin
    return loss + p[0] ** 2


@residuals.spelling
def residuals_hinge_max(p, xs, ys):
    return p[0] ** 2 + sum(max(0, 1 - y * (p[0] * x + p[1])) for x, y in zip(xs, ys))


@residuals.spelling
def residuals_clip_if(p, xs, ys):
    total = p[1] * p[1]
    for x, y in zip(xs, ys):
        z = p[0] * x + p[1]
        if z > 1:
            z = 1.0
        elif z < -1:
            z = -1.0
        total += (z - y) ** 2
    return total


@residuals.spelling
def residuals_continue(p, xs, ys):
    total = p[0] * p[1]
    for x, y in zip(xs, ys):
        r = p[0] * x + p[1] - y
        if r <= 0:
            continue
        total += r
    return total


@FIELD.idiom
def first_few(rng):
    for p in drifting(rng, rng.normal(size=10)):
        yield p, rng.normal(size=10)


@first_few.spelling(adapt=as_lists)
def first_few_nlargest(p, x):
    return sum(heapq.nlargest(3, [(a - b) ** 2 for a, b in zip(p, x)]))


@first_few.spelling(adapt=as_lists)
def first_few_nsmallest_key(p, x):
    near = heapq.nsmallest(3, range(len(p)), key=lambda i: abs(p[i] - x[0]))
    return sum(p[i] * x[i] for i in near)


@first_few.spelling(adapt=as_lists)
def first_few_of_data(p, x):
    return sum(p[i] * x[i] for i in heapq.nlargest(3, range(len(x)), key=x.__getitem__))


@first_few.spelling(adapt=as_lists)
def first_few_pairs(p, x):
    return sum(d * v for d, v in sorted((abs(a - v), v) for a, v in zip(p, x))[:3])


@first_few.spelling(adapt=as_lists)
def first_few_sort(p, x):
    losses = [(a - b) ** 2 for a, b in zip(p, x)]
    losses.sort(reverse=True)
    return sum(losses[:3])


@first_few.spelling(adapt=lambda p, x: (p.tolist(), (np.abs(3 * x) % 5).astype(int).tolist()))
def first_few_most_common(p, tokens):
    return sum(p[t] * times for t, times in Counter(tokens).most_common(2))


@FIELD.idiom
def ragged(rng):
    for p in drifting(rng, {"mu": 0.3, "sigma": 0.2, "groups": rng.normal(size=4).tolist()}):
        yield p, [rng.normal(size=rng.integers(1, 6)).tolist() for _ in range(4)]


@ragged.spelling
def ragged_groups(p, data):
    sigma = exp(p["sigma"])
    nll = 0.0
    for theta, group in zip(p["groups"], data):
        nll = nll + 0.5 * (theta - p["mu"]) ** 2
        for y in group:
            nll = nll + 0.5 * ((y - theta) / sigma) ** 2 + p["sigma"]
    return nll


@ragged.spelling
def ragged_means(p, data):
    total = 0.0
    for theta, group in zip(p["groups"], data):
        mean = sum(group) / len(group)
        total = total + len(group) * (theta - mean) ** 2
    return total + p["mu"] ** 2


@ragged.spelling(adapt=lambda p, data: (p, [(g, y) for g, ys in enumerate(data) for y in ys]))
def ragged_long_format(p, rows):
    return sum((y - p["groups"][g] - p["mu"]) ** 2 for g, y in rows) / len(rows)


@ragged.spelling(adapt=lambda p, data: (p, {f"school {g}": ys for g, ys in enumerate(data)}))
def ragged_dict_of_lists(p, data):
    total = 0.0
    for (_, ys), theta in zip(sorted(data.items()), p["groups"]):
        total += sum((y - theta) ** 2 for y in ys)
    return total + (p["mu"] - p["sigma"]) ** 2


# --- mixtures -------------------------------------------------------------------------------------


@FIELD.idiom
def mixture(rng):
    params = {"logits": np.zeros(3), "mu": rng.normal(size=(3, 2)), "log_sigma": np.zeros((3, 2))}
    for p in drifting(rng, params):
        yield p, rng.normal(size=(15, 2))


def log_normal(x, mu, log_sigma):
    return -0.5 * ((x - mu) / exp(log_sigma)) ** 2 - log_sigma - 0.5 * math.log(2 * math.pi)


@mixture.spelling
def mixture_logsumexp(p, X):
    norm = logsumexp(p["logits"])
    nll = 0.0
    for x in X:
        terms = []
        for k in range(3):
            t = p["logits"][k] - norm
            for d in range(2):
                t = t + log_normal(x[d], p["mu"][k][d], p["log_sigma"][k][d])
            terms.append(t)
        nll = nll - logsumexp(terms)
    return nll


@mixture.spelling
def mixture_direct(p, X):
    e = [exp(z) for z in p["logits"]]
    weights = [v / sum(e) for v in e]
    nll = 0.0
    for x in X:
        density = 0.0
        for w, mu, s in zip(weights, p["mu"], p["log_sigma"]):
            z = sum(((xi - m) / exp(si)) ** 2 for xi, m, si in zip(x, mu, s))
            density = density + w * exp(-z / 2) / (2 * math.pi * exp(s[0] + s[1]))
        nll = nll - log(density)
    return nll / len(X)


@mixture.spelling
def mixture_numpy(p, X):
    logits = p["logits"] - np.log(np.exp(p["logits"]).sum())
    z = (X[:, None, :] - p["mu"]) / np.exp(p["log_sigma"])
    terms = logits - 0.5 * (z**2).sum(axis=2) - p["log_sigma"].sum(axis=1)
    return -np.log(np.exp(terms).sum(axis=1)).mean()


@mixture.spelling
def mixture_k_means(p, X):
    total = 0.0
    for x in X:
        distances = [sum((xi - mi) ** 2 for xi, mi in zip(x, mu)) for mu in p["mu"]]
        total = total + min(distances)
    return total


@mixture.spelling
def mixture_assignments(p, X):
    centres = np.array([[m.data for m in mu] for mu in p["mu"]])
    labels = np.argmin(((X[:, None, :] - centres) ** 2).sum(axis=2), axis=1)
    return sum((x[0] - p["mu"][k][0]) ** 2 + (x[1] - p["mu"][k][1]) ** 2 for x, k in zip(X, labels))


@mixture.spelling
def mixture_kernel_density(p, X):
    h = exp(p["log_sigma"][0][0])
    total = 0.0
    for i, a in enumerate(X):
        density = sum(exp(-((a - b) ** 2).sum() / (2 * h * h)) for j, b in enumerate(X) if j != i)
        total = total - log(density / (len(X) - 1) / h**2)
    return total


# --- sequences ------------------------------------------------------------------------------------


@FIELD.idiom
def hidden_markov(rng):
    params = {
        "start": np.zeros(3),
        "move": rng.normal(size=(3, 3)),
        "emit": rng.normal(size=(3, 5)),
    }
    for p in drifting(rng, params):
        yield p, rng.integers(5, size=rng.integers(5, 12)).tolist()


def log_softmax(row):
    norm = logsumexp(row)
    return [z - norm for z in row]


@hidden_markov.spelling
def hidden_markov_log_forward(p, observations):
    start = log_softmax(p["start"])
    move = [log_softmax(row) for row in p["move"]]
    emit = [log_softmax(row) for row in p["emit"]]
    alpha = [start[s] + emit[s][observations[0]] for s in range(3)]
    for o in observations[1:]:
        alpha = [
            logsumexp([alpha[r] + move[r][s] for r in range(3)]) + emit[s][o] for s in range(3)
        ]
    return -logsumexp(alpha)


@hidden_markov.spelling
def hidden_markov_scaled(p, observations):
    def probabilities(row):
        e = [exp(z) for z in row]
        return [v / sum(e) for v in e]

    alpha = probabilities(p["start"])
    A, B = [probabilities(r) for r in p["move"]], [probabilities(r) for r in p["emit"]]
    loglik = 0.0
    for t, o in enumerate(observations):
        if t > 0:
            alpha = [sum(alpha[i] * A[i][j] for i in range(3)) for j in range(3)]
        alpha = [a * B[i][o] for i, a in enumerate(alpha)]
        scale = sum(alpha)
        loglik = loglik + log(scale)
        alpha = [a / scale for a in alpha]
    return -loglik


@hidden_markov.spelling
def hidden_markov_viterbi(p, observations):
    score = [p["emit"][s][observations[0]] for s in range(3)]
    for o in observations[1:]:
        score = [
            max(score[r] + p["move"][r][s] for r in range(3)) + p["emit"][s][o] for s in range(3)
        ]
    return max(score)


@hidden_markov.spelling
def hidden_markov_crf(p, observations):
    """A conditional random field; the tags are the observations modulo three."""
    tags = [o % 3 for o in observations]
    gold = p["start"][tags[0]]
    for i, o in enumerate(observations):
        gold = gold + p["emit"][tags[i]][o]
        if i > 0:
            gold = gold + p["move"][tags[i - 1]][tags[i]]
    alpha = [p["start"][s] + p["emit"][s][observations[0]] for s in range(3)]
    for o in observations[1:]:
        alpha = [
            logsumexp([alpha[r] + p["move"][r][s] + p["emit"][s][o] for r in range(3)])
            for s in range(3)
        ]
    return logsumexp(alpha) - gold


@hidden_markov.spelling
def hidden_markov_counts(p, observations):
    pairs = Counter(zip(observations, observations[1:]))
    total = 0.0
    for (a, b), n in pairs.items():
        row = log_softmax(p["emit"][a % 3])
        total = total - n * row[b]
    return total


@FIELD.idiom
def alignment(rng):
    for x in drifting(rng, rng.normal(size=7).tolist()):
        yield x, rng.normal(size=6).tolist(), rng.integers(1, 4, size=3).tolist()


def soft_minimum(*xs, gamma=0.5):
    return -gamma * log(sum(exp(-x / gamma) for x in xs))


@alignment.spelling
def alignment_soft_dtw(x, y, labels):
    n, m = len(x), len(y)
    D = [[1e3] * (m + 1) for _ in range(n + 1)]
    D[0][0] = 0.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = (x[i - 1] - y[j - 1]) ** 2
            D[i][j] = cost + soft_minimum(D[i - 1][j], D[i][j - 1], D[i - 1][j - 1])
    return D[n][m]


@alignment.spelling
def alignment_dtw_min(x, y, labels):
    inf = float("inf")
    previous = [0.0] + [inf] * len(y)
    for xi in x:
        row = [inf]
        for j, yj in enumerate(y):
            row.append(abs(xi - yj) + min(previous[j], previous[j + 1], row[j]))
        previous = row
    return previous[-1]


@alignment.spelling
def alignment_dict_memo(x, y, labels):
    memo = {}

    def d(i, j):
        if i == 0 and j == 0:
            return (x[0] - y[0]) ** 2
        if i < 0 or j < 0:
            return 1e3
        if (i, j) not in memo:
            step = soft_minimum(d(i - 1, j), d(i, j - 1), d(i - 1, j - 1))
            memo[i, j] = (x[i] - y[j]) ** 2 + step
        return memo[i, j]

    return d(len(x) - 1, len(y) - 1)


@alignment.spelling
def alignment_ctc(x, y, labels):
    """Connectionist temporal classification: blanks between labels; a label repeats or moves on."""
    extended = [0]
    for label in labels:
        extended += [label, 0]
    logits = [[xi * w for w in (0.1, 0.5, -0.3, 0.7)] for xi in x]
    rows = [log_softmax(row) for row in logits]
    alpha = [exp(rows[0][0]), exp(rows[0][extended[1]])] + [0.0] * (len(extended) - 2)
    for row in rows[1:]:
        new = []
        for s, label in enumerate(extended):
            a = alpha[s]
            if s > 0:
                a = a + alpha[s - 1]
            if s > 1 and label != 0 and label != extended[s - 2]:
                a = a + alpha[s - 2]
            new.append(a * exp(row[label]))
        alpha = new
    return -log(alpha[-1] + alpha[-2] + 1e-12)


# --- ratings, choices, events ---------------------------------------------------------------------


@FIELD.idiom
def ratings(rng):
    params = {"users": rng.normal(size=(20, 3)) * 0.3, "items": rng.normal(size=(15, 3)) * 0.3}
    for p in drifting(rng, params):
        yield (
            p,
            [
                (int(rng.integers(20)), int(rng.integers(15)), float(rng.integers(1, 6)))
                for _ in range(10)
            ],
        )


@ratings.spelling
def ratings_factorisation(p, triples):
    loss = 0.0
    for user, item, stars in triples:
        loss = loss + (3.0 + dot(p["users"][user], p["items"][item]) - stars) ** 2
    return loss / len(triples)


@ratings.spelling
def ratings_regularised(p, triples):
    total = 0.0
    for u, i, r in triples:
        pu, qi = p["users"][u], p["items"][i]
        error = r - sum(a * b for a, b in zip(pu, qi))
        total += error**2 + 0.02 * (sum(a * a for a in pu) + sum(b * b for b in qi))
    return total


@ratings.spelling
def ratings_elo(p, triples):
    rating = [row[0] for row in p["users"]]
    loss = 0.0
    for a, b, stars in triples:
        expected = sigmoid(rating[a] - rating[b])
        won = 1.0 if stars > 3 else 0.0
        loss = loss - (won * log(expected) + (1 - won) * log(1 - expected))
        rating[a] = rating[a] + 0.1 * (won - expected)
        rating[b] = rating[b] - 0.1 * (won - expected)
    return loss


@ratings.spelling(adapt=lambda p, triples: (p, *(np.array(column) for column in zip(*triples))))
def ratings_numpy_columns(p, users, items, stars):
    guess = (p["users"][users] * p["items"][items]).sum(axis=1)
    return ((guess + 3 - stars) ** 2).mean()


@ratings.spelling(adapt=lambda p, triples: (p, *(list(column) for column in zip(*triples))))
def ratings_index_lists(p, users, items, stars):
    total = 0.0
    for k in range(len(stars)):
        total = total + (dot(p["users"][users[k]], p["items"][items[k]]) - stars[k]) ** 2
    return total


@ratings.spelling
def ratings_histogram(p, triples):
    totals = [0.0] * 15
    for user, item, stars in triples:
        totals[item] = totals[item] + p["users"][user][0] * stars
    return sum(t**2 for t in totals)


@FIELD.idiom
def survival(rng):
    for w in drifting(rng, [0.2, -0.3, 0.1]):
        yield (
            w,
            rng.normal(size=(12, 3)).tolist(),
            rng.random(12).tolist(),
            rng.integers(2, size=12).tolist(),
        )


@survival.spelling
def survival_cox_sorted(w, X, times, events):
    order = sorted(range(len(times)), key=lambda i: -times[i])
    risk, nll = 0.0, 0.0
    for i in order:
        score = dot(w, X[i])
        risk = risk + exp(score)
        if events[i]:
            nll = nll + log(risk) - score
    return nll


@survival.spelling
def survival_cox_double_loop(w, X, times, events):
    scores = [sum(a * b for a, b in zip(w, x)) for x in X]
    nll = 0.0
    for i in range(len(X)):
        if events[i] == 1:
            at_risk = sum(exp(scores[j]) for j in range(len(X)) if times[j] >= times[i])
            nll = nll - scores[i] + log(at_risk)
    return nll


@survival.spelling
def survival_weibull(w, X, times, events):
    shape = exp(w[0])
    nll = 0.0
    for x, t, e in zip(X, times, events):
        rate = exp(w[1] * x[0] + w[2] * x[1])
        hazard = rate * shape * (t + 0.01) ** (shape - 1)
        nll = nll + rate * (t + 0.01) ** shape - e * log(hazard)
    return nll


@survival.spelling
def survival_hinge_ranks(w, X, times, events):
    scores = [dot(w, x) for x in X]
    order = np.argsort(times)
    return sum(maximum(0.0, 1 - (scores[i] - scores[j])) for i, j in zip(order, order[1:]))


@FIELD.idiom
def counts(rng):
    for p in drifting(rng, [0.5, 0.2, -0.1]):
        yield p, rng.poisson(2.0, size=15).tolist()


@counts.spelling
def counts_poisson(p, ns):
    rate = exp(p[0])
    return sum(rate - n * log(rate) + math.lgamma(n + 1) for n in ns)


@counts.spelling
def counts_zero_inflated(p, ns):
    zero, rate = sigmoid(p[1]), exp(p[0])
    nll = 0.0
    for n in ns:
        if n == 0:
            nll = nll - log(zero + (1 - zero) * exp(-rate))
        else:
            nll = nll - log(1 - zero) - n * p[0] + rate
    return nll


@counts.spelling
def counts_geometric_powers(p, ns):
    q = sigmoid(p[0])
    return -sum(log(q * (1 - q) ** n) for n in ns)


@counts.spelling
def counts_of_values(p, ns):
    total = 0.0
    for value, times in Counter(ns).items():
        total = total + times * (value - exp(p[0])) ** 2
    return total


@counts.spelling
def counts_ordinal(p, ns):
    cuts = [p[0] - 1, p[0], p[0] + exp(p[1])]
    nll = 0.0
    for n in ns:
        k = min(n, 3)
        upper = sigmoid(cuts[k] - p[2]) if k < 3 else 1.0
        lower = sigmoid(cuts[k - 1] - p[2]) if k > 0 else 0.0
        nll = nll - log(upper - lower + 1e-9)
    return nll


@counts.spelling
def counts_overdispersion(p, ns):
    mean = sum(ns) / len(ns)
    var = sum((n - mean) ** 2 for n in ns) / len(ns)
    return (exp(p[0]) - mean) ** 2 + (exp(p[1]) - sqrt(var)) ** 2
