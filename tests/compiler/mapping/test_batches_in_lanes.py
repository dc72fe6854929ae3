"""``batch_value_and_grad`` of samples with one structure goes the way of ``map``."""

import math

import numpy as np
import pytest
from test_map import close, lane_codes, leaves, rng, stacked

import chainrule
from chainrule import tanh
from chainrule.compiler.mapping import blocks, costs
from chainrule.compiler.training import batches


@pytest.fixture(autouse=True)
def few_go_in_lanes(monkeypatch):
    """A batch may be small: it runs as a large one would."""
    monkeypatch.setattr(batches, "FEWEST", 1)
    monkeypatch.setattr(costs, "PREPARE", 0.0)
    monkeypatch.setattr(batches, "PACKING", 0.0)


def check(f, params, samples, **options):
    """The mean and its gradient are those of eager calls; returns the compiled function."""
    wanted = [chainrule.value_and_grad(f)(params, *sample) for sample in samples]
    means = [x.mean(axis=0) for j in range(2) for x in stacked([w[j] for w in wanted])]
    fast = chainrule.compile(f, on_fallback="raise", **options)
    for _ in range(2):
        close(fast.batch_value_and_grad(params, samples), means)
    return fast


def line(w, x, y):
    return (tanh(w["a"] * x + w["b"]) - y) ** 2


WEIGHTS = {"a": 0.5, "b": np.array(-0.25)}


@pytest.mark.parametrize("count", [2, 3, 8, 21, 100])
def test_samples_of_floats(count):
    fast = check(line, WEIGHTS, [(float(x), float(y)) for x, y in rng().normal(size=(count, 2))])
    (code,) = lane_codes(fast)
    assert code.parameters == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda x, n: ([float(v) for v in x], {"n": n}),
        lambda x, n: (x, {"n": n}),
        lambda x, n: ((x[0], x[1:]), {"n": n}),
    ],
    ids=["lists", "arrays", "tuples"],
)
def test_nested_samples_with_integers(make):
    def f(w, x, more):
        first, rest = (x[0], x[1:])
        rest = rest[0] if isinstance(x, tuple) else rest
        return w[more["n"]] * first + sum(v * v for v in rest) * w[0] + more["n"]

    r = rng()
    samples = [
        make(x, int(n)) for x, n in zip(r.normal(size=(30, 3)), r.integers(0, 4, 30), strict=True)
    ]
    fast = check(f, np.arange(1.0, 5.0), samples)
    assert lane_codes(fast)
    assert fast.dispatch.counts.traces == 1


def test_branches_of_samples():
    def f(w, x):
        return w * x if x > 0 else tanh(w * x)

    fast = check(f, 1.5, [(float(x),) for x in rng().normal(size=50)])
    assert len(lane_codes(fast)) == 2


def test_samples_of_several_structures_are_still_one_batch():
    def f(w, x):
        return tanh(w * sum(x)) if isinstance(x, list) else w * x

    check(f, 1.5, [([0.5, 1.0],), (2.0,), ([0.25],), (np.float64(3.0),), (4,)])


def test_integers_beyond_64_bits():
    def f(w, x, n):
        return w * x + n % 7

    check(f, 1.5, [(0.5, 2**70), (0.25, 3), (0.5, -(2**80))])


def test_one_container_twice_is_told_from_two():
    def f(w, x, y):
        return w * x[0] if x is y else w * w * y[0]

    pair = [2.0]
    check(f, 1.5, [([1.0], [2.0]), (pair, pair), ([3.0], [4.0])])
    check(f, 1.5, [(pair, pair), ([1.0], [2.0])])


def test_the_first_sample_that_raises_is_the_one_that_is_heard_of():
    fast = chainrule.compile(lambda w, x: chainrule.log(w * x))
    samples = [(1.0 + k,) for k in range(30)]
    samples[12], samples[20] = (-3.0,), (-4.0,)
    with pytest.raises(ValueError, match=r"log\(-6\)"):
        fast.batch_value_and_grad(2.0, samples)


def test_not_finite_data_give_what_single_calls_give():
    samples = [(1.0, 2.0), (math.inf, 1.0), (0.5, 0.25)]
    check(line, WEIGHTS, samples)
    fast = chainrule.compile(line)
    value, grads = fast.batch_value_and_grad(WEIGHTS, [(math.nan, 1.0), (1.0, 1.0)])
    assert math.isnan(value)
    assert all(np.isnan(g).all() for g in leaves(grads))


def test_threads_give_the_same_bits(monkeypatch):
    monkeypatch.setattr(blocks, "WORK", 1000)

    def f(w, x):
        h = w * x
        for _ in range(60):
            h = tanh(h + w)
        return h

    samples = [(float(x),) for x in rng().normal(size=3000)]
    fast, found = chainrule.compile(f), []
    for threads in "123":
        monkeypatch.setenv("CHAINRULE_THREADS", threads)
        found.append(fast.batch_value_and_grad(0.5, samples))
    assert found[0] == found[1] == found[2]


def test_the_gradient_goes_into_the_callers_arrays():
    fast = chainrule.compile(line)
    samples = [(float(x), float(y)) for x, y in rng().normal(size=(20, 2))]
    out = {"a": np.array(0.0), "b": np.array(0.0)}
    value, grads = fast.batch_value_and_grad(WEIGHTS, samples, out)
    assert grads is out
    close([value, out], fast.batch_value_and_grad(WEIGHTS, samples))
