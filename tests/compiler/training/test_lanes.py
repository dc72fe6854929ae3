"""How samples go through machine code: each kernel with trip counts of its own."""

import numpy as np
import pytest

import chainrule
from chainrule import tanh
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.runtime import machine
from chainrule.compiler.training.lanes import Arrangement
from chainrule.compiler.training.packing import PackedSamples

pytest.importorskip("llvmlite")


def network(p, x, y):
    hidden = [tanh(w * x + b) for w, b in zip(p["w"], p["b"], strict=True)]
    return (sum(v * h for v, h in zip(p["v"], hidden, strict=True)) - y) ** 2


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


def test_trip_counts_are_those_of_the_kernel_that_runs():
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
def test_code_that_does_not_fit_is_not_used(monkeypatch, refused):
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
