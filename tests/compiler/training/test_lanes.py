"""How samples go through machine code: each kernel with trip counts of its own."""

from itertools import pairwise

import numpy as np
import pytest

import chainrule
from chainrule import exp, log, tanh
from chainrule.compiler.codegen import jit
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.mapping import costs
from chainrule.compiler.runtime import machine
from chainrule.compiler.training.lanes import Arrangement, _alike, _sorted
from chainrule.compiler.training.packing import PackedSamples

pytest.importorskip("llvmlite")


def network(p, x, y):
    hidden = [tanh(w * x + b) for w, b in zip(p["w"], p["b"], strict=True)]
    return (sum(v * h for v, h in zip(p["v"], hidden, strict=True)) - y) ** 2


@pytest.fixture
def free_lanes(monkeypatch):
    """Lanes are filled whatever they take."""
    monkeypatch.setattr(costs, "LANE", 0.0)


def problem():
    rng = np.random.default_rng(0)
    params = {name: rng.normal(0, 0.5, 7) for name in "wbv"}
    samples = [(float(x), float(y)) for x, y in rng.normal(size=(32, 2))]
    return params, samples


def packed_samples(function, params, samples):
    packed = PackedSamples(function.dispatch, params, samples)
    every = np.arange(len(samples))
    assert packed.prepare(every, lambda done, total: None)
    packed.look_at(every)
    return packed, every


def test_trip_counts_are_those_of_the_kernel_that_runs(free_lanes):
    """In lanes the walks of this network have another order than those of one sample."""
    params, samples = problem()
    packed, every = packed_samples(chainrule.compile(network, lift=True), params, samples)
    made = Arrangement(packed, every, len(every))
    (fit,) = packed.fits
    assert made.lanes > 1
    assert made.code.machine.walks[0].what != packed.machine.code.machine.walks[0].what
    assert made.counts.tolist() == [made.code.counts(fit).tolist()]
    assert made.counts.tolist() != [fit.counts.tolist()]
    for walk in made.code.machine.walks:
        short, _ = fit.points[walk.instruction, walk.what]
        assert made.counts[0, walk.slot] == walk.count(short)


@pytest.mark.parametrize("refused", ["lanes", "all"])
def test_code_that_does_not_fit_is_not_used(free_lanes, monkeypatch, refused):
    """What a kernel says of a fit counts for this kernel alone; the losses are eager's."""
    counted = machine.Kernel.counts

    def some(kernel, fit):
        if refused == "all" or kernel.batch > 1:
            raise NotLiftable("not this one")
        return counted(kernel, fit)

    monkeypatch.setattr(machine.Kernel, "counts", some)
    params, samples = problem()
    wanted = np.mean([network(params, *sample) for sample in samples])
    function = chainrule.compile(network, lift=True)
    packed, every = packed_samples(function, params, samples)
    if refused == "all":
        with pytest.raises(NotLiftable, match="not this one"):
            Arrangement(packed, every, len(every))
    else:
        assert Arrangement(packed, every, len(every)).lanes == 1
    assert abs(function.evaluator(params, samples)() - wanted) < 1e-12
    moved = {name: array.copy() for name, array in params.items()}
    losses = function.train(moved, samples, chainrule.optim.SGD(moved, lr=0.1), 2, batch=32)
    assert abs(losses[0] - wanted) < 1e-12
    assert losses[1] < losses[0]


def recurrent(width, tokens, letters=9):
    """A recurrent network over tokens, its parameters and samples."""

    def line(rows, x):
        return [sum(w * v for w, v in zip(row, x, strict=True)) for row in rows]

    def loss(p, tokens):
        state, total = [0.0] * width, 0.0
        for here, there in pairwise(tokens):
            parts = zip(line(p["w"], p["e"][here]), line(p["u"], state), strict=True)
            state = [tanh(a + b) for a, b in parts]
            powers = [exp(x) for x in line(p["o"], state)]
            total = total - log(powers[there] / sum(powers))
        return total

    rng = np.random.default_rng(0)
    shapes = {"e": letters, "w": width, "u": width, "o": letters}
    params = {name: rng.normal(0, 0.3, (rows, width)) for name, rows in shapes.items()}
    return loss, params, [(rng.integers(0, letters, tokens).tolist(),) for _ in range(16)]


@pytest.mark.parametrize("width", [16, 32])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_few_samples_of_a_loop_in_time_do_not_fill_lanes(monkeypatch, dtype, width):
    """Each turn fills vectors by itself: those of samples would have empty lanes."""
    monkeypatch.setattr(jit, "vector_width", lambda: 8)
    loss, params, samples = recurrent(width, tokens=17)
    packed, every = packed_samples(chainrule.compile(loss, lift=True, dtype=dtype), params, samples)
    assert packed.machine.program.loops
    assert [Arrangement(packed, every, batch).lanes for batch in (1, 4)] == [1, 1]


def test_a_loop_in_time_of_few_numbers_fills_lanes(monkeypatch):
    monkeypatch.setattr(jit, "vector_width", lambda: 8)
    loss, params, samples = recurrent(8, tokens=17)
    packed, every = packed_samples(chainrule.compile(loss, lift=True), params, samples)
    assert packed.machine.program.loops
    assert [Arrangement(packed, every, batch).lanes for batch in (4, 8, 16)] == [1, 8, 8]


@pytest.mark.parametrize("way", [_alike, _sorted])
@pytest.mark.parametrize("batch", [1, 3, 4, 5, 8, 11, 33])
@pytest.mark.parametrize("parts", [1, 4])
def test_lanes_that_are_left_over_repeat_the_samples_of_their_group_in_turn(way, batch, parts):
    """Gradients of a sample that is in every lane would wait for each other."""
    made = way(np.zeros(2 * batch, np.int64), batch, 4, parts)
    assert sorted(made.members[made.counted].tolist()) == list(range(2 * batch))
    for row, counted in zip(made.members, made.counted, strict=True):
        here = row[counted].tolist()
        assert row.tolist() == [here[lane % len(here)] for lane in range(4)]
