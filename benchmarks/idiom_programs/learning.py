"""Rewards, pairs, decisions and everyday rules: losses of what was chosen or counted."""

import bisect
import math
import random

import numpy as np

from chainrule import dot, exp, log, maximum, minimum, sigmoid, softplus, sqrt, tanh

from .registry import Field, drifting

FIELD = Field("learning")


def softmax(logits):
    exps = [exp(z) for z in logits]
    total = sum(exps)
    return [e / total for e in exps]


# --- reinforcement learning -----------------------------------------------------------------------


@FIELD.idiom
def policy(rng):
    for w in drifting(rng, {"pi": rng.normal(size=(3, 4)) * 0.3, "v": rng.normal(size=4) * 0.3}):
        n = int(rng.integers(4, 10))
        episode = [
            (rng.normal(size=4).tolist(), int(rng.integers(3)), float(rng.random()))
            for _ in range(n)
        ]
        yield w, episode


@policy.spelling
def policy_reinforce(p, episode):
    returns, g = [], 0.0
    for _, _, reward in reversed(episode):
        g = reward + 0.9 * g
        returns.insert(0, g)
    loss = 0.0
    for (state, action, _), g in zip(episode, returns):
        probs = softmax([dot(row, state) for row in p["pi"]])
        loss = loss - log(probs[action]) * g
    return loss / len(episode)


@policy.spelling
def policy_normalised_returns(p, episode):
    returns, g = [], 0.0
    for _, _, reward in episode[::-1]:
        g = reward + 0.9 * g
        returns.append(g)
    returns = np.array(returns[::-1])
    returns = (returns - returns.mean()) / (returns.std() + 1e-8)
    loss = 0.0
    for (state, action, _), g in zip(episode, returns):
        logits = [dot(row, state) for row in p["pi"]]
        loss = loss + (log(sum(exp(z) for z in logits)) - logits[action]) * g
    return loss


@policy.spelling
def policy_actor_critic(p, episode):
    loss = 0.0
    for i, (state, action, reward) in enumerate(episode):
        value = dot(p["v"], state)
        after = dot(p["v"], episode[i + 1][0]).data if i + 1 < len(episode) else 0.0
        advantage = reward + 0.9 * after - value
        logp = log(softmax([dot(row, state) for row in p["pi"]])[action])
        loss = loss - logp * advantage.data + 0.5 * advantage**2
    return loss


@policy.spelling
def policy_q_learning(p, episode):
    loss = 0.0
    for (state, action, reward), (after, _, _) in zip(episode, episode[1:]):
        target = reward + 0.9 * max(dot(row, after).data for row in p["pi"])
        loss = loss + (dot(p["pi"][action], state) - target) ** 2
    return loss / len(episode)


@policy.spelling
def policy_clipped_ratio(p, episode):
    loss = 0.0
    for state, action, reward in episode:
        prob = softmax([dot(row, state) for row in p["pi"]])[action]
        ratio = prob / 0.33
        clipped = minimum(maximum(ratio, 0.8), 1.2)
        loss = loss - minimum(ratio * (reward - 0.5), clipped * (reward - 0.5))
    return loss


@policy.spelling
def policy_greedy_rollout(p, episode):
    total, state = 0.0, episode[0][0]
    for _ in range(6):
        scores = [dot(row, state) for row in p["pi"]]
        action = max(range(3), key=lambda a: scores[a].data)
        total = total + scores[action]
        state = [0.9 * s + (0.1 if i == action else 0.0) for i, s in enumerate(state)]
    return total


# --- metric learning ------------------------------------------------------------------------------


@FIELD.idiom
def pairs(rng):
    for W in drifting(rng, rng.normal(size=(3, 5)) * 0.4):
        yield W, rng.normal(size=(6, 5)).tolist(), rng.integers(3, size=6).tolist()


def embed(W, x):
    z = [tanh(dot(row, x)) for row in W]
    norm = sqrt(sum(v * v for v in z) + 1e-9)
    return [v / norm for v in z]


@pairs.spelling
def pairs_triplet(W, X, labels):
    anchor, positive, negative = (embed(W, x) for x in X[:3])
    near = sum((a - b) ** 2 for a, b in zip(anchor, positive))
    far = sum((a - b) ** 2 for a, b in zip(anchor, negative))
    return maximum(near - far + 0.2, 0.0)


@pairs.spelling
def pairs_info_nce(W, X, labels):
    zs = [embed(W, x) for x in X]
    loss = 0.0
    for i in range(3):
        scores = [dot(zs[i], zs[j]) / 0.5 for j in range(3, 6)]
        loss = loss + log(sum(exp(s) for s in scores)) - scores[i]
    return loss / 3


@pairs.spelling
def pairs_same_label(W, X, labels):
    zs = [embed(W, x) for x in X]
    total = 0.0
    for i in range(len(X)):
        for j in range(i):
            d = sum((a - b) ** 2 for a, b in zip(zs[i], zs[j]))
            if labels[i] == labels[j]:
                total = total + d
            else:
                total = total + max(0, 1 - d)
    return total


@pairs.spelling
def pairs_label_matrix(W, X, labels):
    Z = np.array([embed(W, x) for x in X])
    same = np.equal.outer(np.array(labels), np.array(labels)) * 2.0 - 1
    return softplus(-same * (Z @ Z.T)).sum()


@pairs.spelling
def pairs_centroids(W, X, labels):
    zs = [embed(W, x) for x in X]
    groups = {}
    for z, label in zip(zs, labels):
        groups.setdefault(label, []).append(z)
    centres = {k: [sum(c) / len(g) for c in zip(*g)] for k, g in groups.items()}
    return sum((a - b) ** 2 for z, label in zip(zs, labels) for a, b in zip(z, centres[label]))


# --- trees and rules ------------------------------------------------------------------------------


@FIELD.idiom
def decisions(rng):
    for p in drifting(rng, rng.normal(size=8).tolist()):
        yield p, rng.normal(size=3).tolist(), float(rng.normal())


TREE = {
    "feature": 0,
    "threshold": 0.1,
    "low": {"feature": 1, "threshold": -0.3, "low": 0, "high": 1},
    "high": {"feature": 2, "threshold": 0.5, "low": 2, "high": 3},
}


@decisions.spelling
def decisions_tree_of_dicts(leaves, x, y):
    node = TREE
    while isinstance(node, dict):
        node = node["low"] if x[node["feature"]] < node["threshold"] else node["high"]
    return (leaves[node] - y) ** 2


@decisions.spelling
def decisions_soft_tree(p, x, y):
    def go(node, depth):
        if depth == 2:
            return p[4 + node % 4]
        gate = sigmoid(p[node] * x[depth] + p[3])
        return gate * go(2 * node + 1, depth + 1) + (1 - gate) * go(2 * node + 2, depth + 1)

    return (go(0, 0) - y) ** 2


@decisions.spelling
def decisions_boosted_stumps(p, x, y):
    score = 0.0
    for i, threshold in enumerate([-0.5, 0.0, 0.5]):
        score = score + (p[2 * i] if x[i] > threshold else p[2 * i + 1])
    return log(1 + exp(-score * (1 if y > 0 else -1)))


@decisions.spelling
def decisions_case_by_case(p, x, y):
    if x[0] > 0 and x[1] > 0:
        out = p[0] * x[0]
    elif x[0] > 0 or p[7] > 1:
        out = p[1] * x[1]
    elif not x[2] > 0:
        out = p[2] + p[3]
    else:
        out = p[4] * p[5]
    return (out - y) ** 2


@FIELD.idiom
def money(rng):
    for p in drifting(rng, [0.1, 0.2, 0.3], 0.003):
        yield p, float(rng.uniform(5_000, 120_000)), int(rng.integers(5, 30))


BRACKETS = [0, 10_000, 40_000]
BOUNDS = [(0, 10_000), (10_000, 40_000), (40_000, float("inf"))]


@money.spelling
def money_tax_brackets(rates, income, years):
    tax = 0.0
    for rate, (low, high) in zip(rates, BOUNDS):
        if income > low:
            tax = tax + rate * (min(income, high) - low)
    return tax


@money.spelling
def money_tax_bisect(rates, income, years):
    k = bisect.bisect_right(BRACKETS, income) - 1
    tax = rates[k] * (income - BRACKETS[k])
    for i in range(k):
        tax = tax + rates[i] * (BRACKETS[i + 1] - BRACKETS[i])
    return tax / 1000


@money.spelling
def money_mortgage(rates, income, years):
    balance, paid = 100_000.0, 0.0
    monthly = rates[0] / 12
    payment = 100_000 * monthly / (1 - (1 + monthly) ** (-12 * years))
    for _ in range(12):
        interest = balance * monthly
        balance = balance - (payment - interest)
        paid = paid + interest
    return paid


@money.spelling
def money_savings_until(rates, income, years):
    wealth, year = 1_000.0, 0
    while wealth < income and year < 40:
        wealth = wealth * (1 + rates[0]) + 1_000.0
        year += 1
    return wealth / 1000


@FIELD.idiom
def stock(rng):
    for p in drifting(rng, [20.0, 50.0], 0.5):
        yield p, rng.poisson(8, size=20).tolist(), int(rng.integers(10**6))


@stock.spelling
def stock_reorder_point(p, demand, seed):
    reorder, up_to = p
    level, cost = up_to, 0.0
    for d in demand:
        sold = min(level, d)
        cost = cost + 5 * (d - sold) + 0.1 * level
        level = level - sold
        if level < reorder:
            cost = cost + 10 + 0.5 * (up_to - level)
            level = up_to
    return cost


@stock.spelling
def stock_newsvendor(p, demand, seed):
    return sum(3 * maximum(d - p[0] / 2, 0.0) + maximum(p[0] / 2 - d, 0.0) for d in demand) / len(
        demand
    )


@stock.spelling
def stock_simulated_demand(p, demand, seed):
    rng = random.Random(seed)
    level, lost = p[1], 0.0
    for _ in range(20):
        d = rng.randint(2, 14)
        if level < d:
            lost = lost + (d - level)
            level = level * 0
        else:
            level = level - d
        level = level + p[0] / 4
    return lost + 0.1 * level


@stock.spelling
def stock_queue(p, demand, seed):
    rate = sqrt(p[0])
    waiting, cost = 0.0, 0.0
    for arrivals in demand:
        waiting = max(0.0, waiting + arrivals - rate * 2)
        cost = cost + waiting
    return cost + rate * math.log(2)
