"""Batches too small for lanes: one cached call after the other, added up in C."""

import threading
from dataclasses import dataclass

import numpy as np
import pytest

import chainrule
from chainrule import exp, log, tanh
from chainrule.compiler.training import batches
from chainrule.core.backend import kernels

pytestmark = pytest.mark.skipif(kernels is None, reason="the gate is in C")

SCALE = 2.0


def line(p, x, y):
    return (tanh(p["a"] * x + p["b"][0] * p["b"][1]) - y) ** 2


def weights():
    return {"a": 0.5, "b": np.array([0.3, -0.2])}


def points(count):
    return [(float(x), float(y)) for x, y in np.random.default_rng(1).normal(size=(count, 2))]


def flat(tree):
    """The bits of the numbers of a gradient, in order."""
    items = tree.values() if isinstance(tree, dict) else tree if type(tree) is list else None
    return np.float64(tree).tobytes() if items is None else b"".join(map(flat, items))


def one_by_one(fast, params, samples):
    """The mean as a loop over single calls gives it, and its gradient as one row."""
    value, row = 0.0, None
    for sample in samples:
        found, grads = fast.value_and_grad(params, *sample)
        value += (found[0] if isinstance(found, tuple) else found) / len(samples)
        here = np.frombuffer(flat(grads)) / len(samples)
        row = here if row is None else row + here
    return value, row.tobytes()


def warm(fast, params, samples):
    for _ in range(3):
        for sample in samples:
            fast.value_and_grad(params, *sample)


@pytest.mark.parametrize("options", [{"lift": True}, {"lift": False}, {"dtype": "float32"}])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 11])
def test_a_mean_has_the_bits_of_single_calls(count, options):
    fast, params, samples = chainrule.compile(line, **options), weights(), points(count)
    warm(fast, params, samples)
    answer = fast.dispatch.gate.mean(params, samples)
    assert len(answer) == 2
    assert (answer[0], flat(answer[1])) == one_by_one(fast, params, samples)
    assert type(answer[1]["a"]) is float
    found = fast.batch_value_and_grad(params, samples)
    assert found[0] == answer[0]
    assert flat(found[1]) == flat(answer[1])


def test_the_sign_of_zero_is_kept():
    fast = chainrule.compile(lambda p, x: p[0] * x + p[1], lift=True)
    params, samples = [1.0, 2.0], [(-0.0,), (-0.0,)]
    warm(fast, params, samples)
    value, grads = fast.dispatch.gate.mean(params, samples)
    assert value == 2.0
    assert np.signbit(grads[0])


def test_a_small_batch_prepares_no_lanes(monkeypatch):
    def refused(*_):
        raise AssertionError("lanes")

    monkeypatch.setattr(batches, "_mapped", refused)
    monkeypatch.setattr(batches, "_batched", refused)
    fast, params, samples = chainrule.compile(line), weights(), points(5)
    wanted = np.mean([line(params, *sample) for sample in samples])
    for _ in range(3):
        assert abs(fast.batch_value_and_grad(params, samples)[0] - wanted) < 1e-12


def test_how_many_samples_are_few_depends_on_their_work():
    def chain(p, xs):
        total = 0.0
        for x in xs:
            total = tanh(total * p[0] + x * p[1])
        return total

    most = []
    for length in (40, 400, 4000):
        fast, params = chainrule.compile(chain, lift=True), np.array([0.5, 0.25])
        warm(fast, params, [(np.ones(length),)])
        most.append(batches._most_alone(fast.dispatch))
    assert most[0] > most[1] > most[2]


def test_samples_of_many_lengths():
    def total(p, ids):
        return sum(exp(p[i] * 0.1) for i in ids)

    params = np.linspace(-1.0, 1.0, 5)
    samples = [([0, 1],), ([2],), ([4, 4, 3],), ([1, 0],)]
    fast = chainrule.compile(total)
    warm(fast, params, samples)
    answer = fast.dispatch.gate.mean(params, samples)
    assert (answer[0], flat(answer[1])) == one_by_one(fast, params, samples)


@dataclass
class Pair:
    a: float
    b: object


def test_gradients_of_records_and_extras():
    def f(p, x):
        y = p.a * x + p.b[0]
        return y * y, y

    fast, params, samples = chainrule.compile(f), Pair(0.5, np.array([0.25])), [(1.0,), (2.0,)]
    warm(fast, params, samples)
    for _ in range(2):
        value, grads = fast.batch_value_and_grad(params, samples)
        assert value == (0.75**2 + 1.25**2) / 2
        assert type(grads) is Pair
        assert (grads.a, grads.b.tolist()) == (0.75 + 2 * 1.25, [0.75 + 1.25])


def test_what_the_gate_does_not_know_is_a_call_of_its_own():
    fast, params, samples = chainrule.compile(line, lift=True), weights(), points(4)
    warm(fast, params, samples)
    strange = [*samples[:2], (np.float32(0.5), 1), *samples[2:]]
    value, gradient, done = fast.dispatch.gate.mean(params, strange)
    assert done == 2
    assert value == sum(fast.value_and_grad(params, *x)[0] / 5 for x in samples[:2])
    assert len(np.frombuffer(gradient)) == 3
    wanted = [chainrule.value_and_grad(line)(params, *x) for x in strange]
    found = fast.batch_value_and_grad(params, strange)
    assert abs(found[0] - np.mean([v for v, _ in wanted])) < 1e-12
    assert abs(found[1]["a"] - np.mean([g["a"] for _, g in wanted])) < 1e-12
    assert np.abs(found[1]["b"] - np.mean([g["b"] for _, g in wanted], axis=0)).max() < 1e-12


def test_a_sample_that_is_undefined_raises_what_it_raises_alone():
    fast = chainrule.compile(lambda p, x: log(p * x), lift=True, on_fallback="eager")
    warm(fast, 2.0, [(1.0,), (3.0,)])
    with pytest.raises(ValueError, match="log"):
        fast.batch_value_and_grad(2.0, [(1.0,), (-1.0,), (3.0,)])
    value, grad = fast.batch_value_and_grad(2.0, [(1.0,), (3.0,)])
    assert abs(value - (np.log(2) + np.log(6)) / 2) < 1e-12
    assert grad == 0.5


def test_captured_state_that_changes_is_seen(monkeypatch):
    fast = chainrule.compile(lambda p, x: p * x * SCALE)
    samples = [(1.0,), (2.0,)]
    warm(fast, 1.0, samples)
    assert fast.batch_value_and_grad(1.0, samples) == (3.0, 3.0)
    monkeypatch.setitem(globals(), "SCALE", 10.0)
    assert fast.batch_value_and_grad(1.0, samples) == (15.0, 15.0)


def test_a_counter_outside_counts_every_sample():
    seen = {"count": 0}

    def f(p, x):
        seen["count"] += 1
        return p * x + seen["count"]

    fast = chainrule.compile(f, on_fallback="eager")
    for turn in range(4):
        value, grad = fast.batch_value_and_grad(1.0, [(1.0,), (2.0,), (6.0,)])
        assert (value, grad) == (3.0 + 3 * turn + 2.0, 3.0)
    assert seen["count"] == 12


def test_the_gradient_goes_into_the_callers_arrays():
    fast, params, samples = chainrule.compile(line), weights(), points(3)
    params["a"] = np.array(0.5)
    out = {"a": np.zeros(()), "b": np.zeros(2)}
    warm(fast, params, samples)
    wanted = fast.batch_value_and_grad(params, samples)
    value, grads = fast.batch_value_and_grad(params, samples, out=out)
    assert grads is out
    assert (value, flat(out)) == (wanted[0], flat(wanted[1]))


def test_two_gradients_share_no_memory():
    fast, samples = chainrule.compile(lambda p, x: (p * x).sum()), [(1.0,), (2.0,)]
    params = np.arange(3.0)
    warm(fast, params, samples)
    first, second = (fast.batch_value_and_grad(params, samples)[1] for _ in range(2))
    first += 1.0
    assert second.tolist() == [1.5, 1.5, 1.5]


@pytest.mark.parametrize("sample", [[1.0, 2.0], 1.0, None])
def test_a_sample_that_is_no_tuple_is_an_error(sample):
    fast, params, samples = chainrule.compile(line), weights(), points(2)
    warm(fast, params, samples)
    with pytest.raises(TypeError, match="a sample is a tuple of the arguments after the first"):
        fast.batch_value_and_grad(params, [*samples, sample])
    with pytest.raises(TypeError, match="list of samples"):
        fast.dispatch.gate.mean(params, tuple(samples))


def test_a_batch_within_a_derivative_is_differentiated():
    inner = chainrule.compile(lambda p, x: p * p * x)
    warm(inner, 1.0, [(1.0,), (3.0,)])

    def outer(q):
        return inner.batch_value_and_grad(q, [(1.0,), (3.0,)])[1]

    assert chainrule.value_and_grad(outer)(2.0) == (8.0, 4.0)


def test_several_threads_at_once():
    fast, params, samples = chainrule.compile(line, lift=True), weights(), points(6)
    warm(fast, params, samples)
    wanted, found = fast.batch_value_and_grad(params, samples), []

    def some():
        found.extend(fast.batch_value_and_grad(params, samples) for _ in range(200))

    threads = [threading.Thread(target=some) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 600
    assert all(v == wanted[0] and flat(g) == flat(wanted[1]) for v, g in found)


def test_the_gradient_of_an_array_without_axes_is_one_too():
    fast = chainrule.compile(lambda p, x: p[0] * x + p[1] ** 2, lift=False)
    for count in (1, 2, 2, 20):
        params = [np.array(0.5), 1.5]
        _, (first, second) = fast.batch_value_and_grad(params, [(0.1,), (0.2,)] * count)
        assert type(first) is np.ndarray
        assert first == pytest.approx(0.15)
        assert type(second) is float
