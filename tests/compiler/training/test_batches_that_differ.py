"""Batches and maps whose samples take many paths: they record and build what they have earned."""

import itertools
import math
import random
import warnings

import numpy as np
import pytest

import chainrule
from chainrule import FallbackWarning, dot, log, tanh
from chainrule.compiler.runtime.costs import allowance
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.variants import Path
from chainrule.core.backend import kernels

pytestmark = pytest.mark.skipif(kernels is None, reason="these are the costs of the native engine")

MOST = 30  # recordings in all: of each function the testers' batches made hundreds or thousands


@pytest.fixture(autouse=True)
def usual_allowance():
    before, allowance.left = allowance.left, 0.3
    yield
    allowance.left = before


@pytest.fixture
def built(monkeypatch):
    """The instructions of everything that machine code was built for, or tried."""
    found, book = [], Ledger.built

    def noted(self, instructions, *more):
        found.append(instructions)
        book(self, instructions, *more)

    monkeypatch.setattr(Ledger, "built", noted)
    return found


def signed(p, rows):
    total = 0.0
    for x in rows:
        total = total + dot(x, p[:4]) * dot(x, p[4:]) * (1 if x[0] > 0 else 0.5)
    return total / len(rows)


def words(p, x, text):
    total = 0.0
    for word in text.split():
        total = total + p[len(word) % 4] * x
    return total * total + p[0]


def ragged(p, x, rows):
    total = 0.0
    for row in rows:
        if row:
            total = total + max(p[0] * v + p[1] for v in row) * x
    return total * total + p[2]


def normed(p, rows):
    total = 0.0
    for row in rows:
        mean = sum(row) / len(row)
        scores = [w * (v - mean) for w, v in zip(p, row, strict=False)]
        total = total + (tanh(scores[0]) if scores[0] > scores[-1] else scores[-1] * p[1])
    return total


def two_lengths(p, xs, ys):
    first = sum(tanh(p[0] * x) for x in xs)
    return first * sum(p[1] * y * y for y in ys) + p[2]


def numbers(chance, count):
    return [chance.gauss(0, 1) for _ in range(count)]


def sample_of(f, chance):
    if f is signed:
        return ([numbers(chance, 4) for _ in range(chance.choice([3, 5, 8, 13, 20, 31]))],)
    if f is words:
        letters = ["".join(chance.choices("abc", k=chance.randint(1, 5))) for _ in range(3)]
        return chance.gauss(0, 1), " ".join(letters[: chance.randint(1, 3)])
    if f is ragged:
        rows = [numbers(chance, chance.randint(0, 4)) for _ in range(chance.randint(1, 4))]
        return chance.gauss(0, 1), rows
    if f is normed:
        return ([numbers(chance, 4) for _ in range(chance.randint(1, 9))],)
    return numbers(chance, chance.randint(1, 30)), numbers(chance, chance.randint(1, 30))


def eager_mean(f, params, samples):
    found = [chainrule.value_and_grad(f)(params, *sample) for sample in samples]
    count = len(found)
    slopes = [sum(column) / count for column in zip(*[g for _, g in found], strict=True)]
    return sum(v for v, _ in found) / count, slopes


@pytest.mark.parametrize("size", [1, 8, 20, 64])
@pytest.mark.parametrize("f", [signed, words, ragged, normed, two_lengths])
@pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
def test_batches_whose_samples_all_differ_stop_recording(f, size, built):
    fast, chance = chainrule.compile(f), random.Random(size)
    for k in range(1600 // size):
        params = numbers(chance, 8)
        samples = [sample_of(f, chance) for _ in range(size)]
        value, slopes = fast.batch_value_and_grad(params, samples)
        if k % 3 == 0:
            expected = eager_mean(f, params, samples)
            assert value == pytest.approx(expected[0], rel=1e-9, abs=1e-12)
            assert slopes == pytest.approx(expected[1], rel=1e-9, abs=1e-12)
    counts = fast.dispatch.counts
    assert 0 < counts.traces < MOST
    assert len(built) <= 3
    assert counts.calls == counts.eager + counts.replayed >= 1600 // size * size


@pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
def test_lift_true_still_records_every_path_at_once():
    fast, chance = chainrule.compile(signed, lift=True), random.Random(3)
    samples = [sample_of(signed, chance) for _ in range(10)]
    params = numbers(chance, 8)
    value, _ = fast.batch_value_and_grad(params, samples)
    assert value == pytest.approx(eager_mean(signed, params, samples)[0])
    counts = fast.dispatch.counts
    assert (counts.replayed, counts.eager) == (10, 0)


def test_the_user_is_told_once_and_from_then_on_few_are_recorded():
    fast, chance = chainrule.compile(signed), random.Random(5)

    def batches(count):
        for _ in range(count):
            samples = [sample_of(signed, chance) for _ in range(16)]
            fast.batch_value_and_grad(numbers(chance, 8), samples)

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        batches(40)
    assert [w.category for w in told] == [FallbackWarning]
    assert "runs eagerly" in str(told[0].message)
    counts = fast.dispatch.counts
    before = counts.calls, counts.eager, counts.traces
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches(100)
    counts = fast.dispatch.counts
    calls, eager, traces = (
        now - then
        for now, then in zip((counts.calls, counts.eager, counts.traces), before, strict=True)
    )
    assert calls >= 1600
    assert eager > 0.95 * calls
    assert traces <= 2


@pytest.mark.parametrize("size", [4, 40])
@pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
def test_the_first_sample_that_raises_is_the_one_that_is_told_of(size):
    def f(p, x, rows):
        total = p[0]
        for row in rows:
            total = total + (log(row * p[1]) if row > 1.0 else row * x)
        if x > 3:
            raise ValueError(f"sample {x}")
        return total

    fast, chance = chainrule.compile(f), random.Random(2)
    raised = 0
    for _ in range(60):
        samples = [
            (4.0 + k if chance.random() < 0.05 else 0.5, numbers(chance, chance.randint(1, 5)))
            for k in range(size)
        ]
        params = [chance.gauss(0, 1), abs(chance.gauss(0, 1)) + 0.1]
        first = next((f"sample {x}" for x, _ in samples if x > 3), None)
        if first is None:
            value, _ = fast.batch_value_and_grad(params, samples)
            assert value == pytest.approx(eager_mean(f, params, samples)[0])
        else:
            with pytest.raises(ValueError, match=f"^{first}$"):
                fast.batch_value_and_grad(params, samples)
            raised += 1
    assert raised > 3


def recurrent(p, xs):
    state, total = [0.0] * 6, 0.0
    for x in xs:
        state = [tanh(sum(w * s for w, s in zip(row, state, strict=True)) + x) for row in p["w"]]
        total = total + sum(v * s for v, s in zip(p["v"], state, strict=True)) ** 2
    return total


def test_batches_of_one_structure_get_machine_code_and_what_they_save_pays_for_it(built):
    fast, rng = chainrule.compile(recurrent), np.random.default_rng(0)
    params = {"w": rng.normal(size=(6, 6)) / 3, "v": rng.normal(size=6)}
    for _ in range(40):
        samples = [(rng.normal(size=20),) for _ in range(128)]
        value, slopes = fast.batch_value_and_grad(params, samples)
    assert built
    assert fast.dispatch.lane_work is not None  # they went in lanes
    assert fast.dispatch.counts.traces == 1
    each = [chainrule.value_and_grad(recurrent)(params, *sample) for sample in samples]
    assert value == pytest.approx(np.mean([v for v, _ in each]))
    np.testing.assert_allclose(slopes["w"], np.mean([g["w"] for _, g in each], axis=0))


@pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
def test_they_are_machine_code_once_batches_have_become_regular():
    def f(p, xs):
        total = sum(tanh(w * x) for w in p for x in xs)
        return total * (1 if xs[0] > 0 else 2) * (1 if xs[1] > 0 else 3)

    fast, rng = chainrule.compile(f), np.random.default_rng(1)
    params = rng.normal(size=12)
    for _ in range(200):
        lengths = rng.integers(2, 200, 4)
        fast.batch_value_and_grad(params, [(rng.normal(size=n),) for n in lengths])
    assert fast.dispatch.counts.eager > 0.9 * fast.dispatch.counts.calls
    for _ in range(100):
        samples = [(np.abs(rng.normal(size=30)),) for _ in range(128)]
        value, _ = fast.batch_value_and_grad(params, samples)
        if fast.dispatch.last is Path.MACHINE:
            break
    assert fast.dispatch.last is Path.MACHINE
    each = [chainrule.value_and_grad(f)(params, *sample)[0] for sample in samples]
    assert value == pytest.approx(np.mean(each))


@pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
def test_maps_whose_samples_all_branch_differently_stop_recording(built):
    def f(p, xs):
        total = p[0] * 0.0
        for x in xs:
            total = total + (p[0] * x if x > 0 else p[1] * x * x)
            if total > 1.0:
                total = total * 0.5
        return total

    fast, rng = chainrule.compile(f), np.random.default_rng(0)
    params = np.array([0.7, 0.4])
    for k in range(60):
        rows = rng.normal(size=(40, 12))
        values, slopes = fast.map_value_and_grad(params, rows)
        if k % 5 == 0:
            each = [chainrule.value_and_grad(f)(params, row) for row in rows]
            np.testing.assert_allclose(values, [v for v, _ in each], atol=1e-12)
            np.testing.assert_allclose(slopes, [g for _, g in each], atol=1e-12)
    assert 0 < fast.dispatch.counts.traces < MOST
    assert len(built) <= 3


def test_half_of_what_the_samples_of_a_map_take_eagerly_pays_for_its_code(built):
    allowance.left = 0.0

    def f(p, x):
        return sum(tanh(w * x[0]) * x[1] for w in p) ** 2

    fast, rng = chainrule.compile(f), np.random.default_rng(0)
    params = rng.normal(size=20)
    values = fast.map(params, rng.normal(size=(100_000, 2)))
    assert len(values) == 100_000
    assert math.isfinite(values.sum())
    assert fast.dispatch.counts.replayed > 95_000
    assert built


def test_batches_of_mixed_lengths_are_all_machine_code_soon_and_few_are_lifted_in_vain(monkeypatch):
    put_off, book = [], Ledger.put_off
    monkeypatch.setattr(
        Ledger, "put_off", lambda self, *costs: (put_off.append(costs), book(self, *costs))
    )
    rng = np.random.default_rng(0)

    def network(p, xs):
        state, total = [0.0] * 16, 0.0
        for x, target in itertools.pairwise(xs):
            sums = [sum(w * s for w, s in zip(row, state, strict=True)) for row in p["w"]]
            state = [tanh(a + u * x) for a, u in zip(sums, p["u"], strict=True)]
            total = total + (sum(v * s for v, s in zip(p["v"], state, strict=True)) - target) ** 2
        return total

    fast = chainrule.compile(network)
    params = {"w": 0.4 * rng.normal(size=(16, 16)), "u": rng.normal(size=16) / 3}
    params["v"] = rng.normal(size=16) / 3
    samples = [(rng.normal(size=n),) for n in rng.integers(5, 18, 256)]
    for k in range(140):
        value, _ = fast.batch_value_and_grad(params, samples[k % 4 * 64 :][:64])
    counts = fast.dispatch.counts
    assert counts.traces == len({len(x) for (x,) in samples})
    assert len(put_off) <= 6
    variants = [v for known in fast.dispatch.structures.values() for v in known.variants]
    assert all(v.binding is not None for v in variants)
    each = [chainrule.value_and_grad(network)(params, *x)[0] for x in samples[k % 4 * 64 :][:64]]
    assert value == pytest.approx(np.mean(each))


@pytest.mark.parametrize("lift", [None, True])
def test_each_sample_of_a_map_or_a_batch_is_counted_once(lift):
    fast = chainrule.compile(lambda p, x: (p[0] * x + p[1]) ** 2 + p[0], lift=lift)
    params = np.array([1.0, 2.0])
    fast.map_value_and_grad(params, np.arange(40.0))
    fast.batch_value_and_grad(params, [(float(k),) for k in range(100)])
    counts = fast.dispatch.counts
    assert (counts.calls, counts.replayed) == (140, 140)
