"""Samples that change what others read are computed in order, in batches, maps and training."""

import heapq
import random
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import chainrule
from chainrule import optim


def memo():
    kept: dict[int, float] = {}

    def f(p, n):
        if n not in kept:
            kept[n] = n * 2.5
        return p * kept[n] + len(kept)

    return f, kept


def inserting():
    kept: Any = defaultdict(int)

    def f(p, n):
        return p * (kept[n] + 1) + len(kept)

    return f, kept


def heap():
    kept: list[int] = []

    def f(p, n):
        heapq.heappush(kept, n)
        if len(kept) > 3:
            heapq.heappop(kept)
        return p * kept[0]

    return f, kept


def counting():
    kept = {"calls": 0, "big": 0}

    def f(p, n):
        if n > 2:
            kept["big"] += 1
        return p * p * (n + kept["big"])

    return f, kept


def sometimes_appending():
    kept: list[int] = []

    def f(p, n):
        if n == 3:
            kept.append(n)
        return p * p * n + len(kept)

    return f, kept


def nonlocal_counter():
    count = 0
    kept: list[int] = []  # what is compared below

    def f(p, n):
        nonlocal count
        if n == 0:
            count += 1
        return p * p * n + count

    return f, kept


WORLDS = [memo, inserting, heap, counting, sometimes_appending, nonlocal_counter]


@pytest.mark.parametrize("lift", [None, True])
@pytest.mark.parametrize("world", WORLDS)
def test_batches(world, lift):
    (f, kept), (g, same) = world(), world()
    fast, eager, rng = chainrule.compile(g, lift=lift, on_fallback="eager"), f, random.Random(1)
    for _ in range(40):
        samples = [(rng.randint(0, 4),) for _ in range(rng.randint(2, 9))]
        found = [chainrule.value_and_grad(eager)(0.5, *sample) for sample in samples]
        value, grad = fast.batch_value_and_grad(0.5, samples)
        assert value == pytest.approx(np.mean([v for v, _ in found]), rel=1e-12)
        assert grad == pytest.approx(np.mean([d for _, d in found]), rel=1e-12)
        assert kept == same


@pytest.mark.parametrize("reduce", [None, "sum"])
@pytest.mark.parametrize("world", WORLDS)
def test_maps(world, reduce):
    (f, kept), (g, same) = world(), world()
    fast, rng = chainrule.compile(g, lift=True, on_fallback="eager"), random.Random(2)
    for _ in range(25):
        ns = np.array([rng.randint(0, 4) for _ in range(rng.randint(2, 9))])
        found = [chainrule.value_and_grad(f)(0.5, int(n)) for n in ns]
        values, grads = fast.map_value_and_grad(0.5, ns, reduce=reduce)
        wanted = np.array(found).T if reduce is None else np.array(found).sum(axis=0)
        np.testing.assert_allclose(values, wanted[0], rtol=1e-12)
        np.testing.assert_allclose(grads, wanted[1], rtol=1e-12)
        assert kept == same


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("world", WORLDS)
def test_training(world, batch):
    (f, kept), (g, same) = world(), world()
    fast = chainrule.compile(lambda x, n: g(x[0], n), on_fallback="eager")
    rng = random.Random(3)
    samples = [(rng.randint(0, 4),) for _ in range(40)]
    p, q = np.array([0.5]), np.array([0.5])
    losses = fast.train(p, samples, optim.SGD(p, lr=1e-3), steps=40 // batch, batch=batch)
    wanted = []
    for k in range(0, 40, batch):
        here = samples[k : k + batch]
        found = [chainrule.value_and_grad(lambda x, n: f(x[0], n))(q, *s) for s in here]
        wanted.append(np.mean([v for v, _ in found]))
        q -= 1e-3 * np.mean([d for _, d in found], axis=0)
    np.testing.assert_allclose(losses, wanted, rtol=1e-9)
    np.testing.assert_allclose(p, q, rtol=1e-9)
    assert kept == same


def test_functions_that_change_nothing_stay_in_lanes():
    table = [0.5, 1.5, 2.5]

    def f(p, x):
        total = p * table[1]
        return total * x if x > 0 else total + x

    fast = chainrule.compile(f, lift=True, on_fallback="raise")
    xs = np.linspace(-1.0, 1.0, 50)
    values, grads = fast.map_value_and_grad(2.0, xs)
    found = [chainrule.value_and_grad(f)(2.0, float(x)) for x in xs]
    np.testing.assert_allclose(values, [v for v, _ in found], rtol=1e-12)
    np.testing.assert_allclose(grads, [d for _, d in found], rtol=1e-12)
    assert fast.dispatch.counts.eager == 0
