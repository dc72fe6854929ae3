"""Comparisons near a tie: machine code adds in another order, and must not go the other way."""

import functools
import operator

import numpy as np
import pytest

import chainrule
from chainrule import exp, where
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.runtime.variants import Path


def chosen(p):
    """Sums that are 1 but for rounding, and a jump there."""
    sums = [sum(p[8 * i + k] for k in range(8)) for i in range(12)]
    return sum(where(total >= 1.0, p[8 * i], 0.0) for i, total in enumerate(sums))


def branched(p):
    """The same jump by branches."""
    total = 0.0
    for i in range(12):
        if sum(p[8 * i + k] for k in range(8)) >= 1.0:
            total = total + p[8 * i]
    return total + p[0] * 1e-3


def equal(p):
    """Counts sums that are exactly 1."""
    sums = [sum(p[8 * i + k] for k in range(8)) for i in range(12)]
    return sum(p[8 * i] * (2.0 if total == 1.0 else 3.0) for i, total in enumerate(sums))


@pytest.mark.parametrize("f", [chosen, branched, equal])
def test_sums_of_decimals_are_compared_as_eagerly(f):
    fast = chainrule.compile(f, lift=True)
    rng = np.random.default_rng(0)
    fast.value_and_grad(rng.uniform(0.1, 5.0, 96))
    ups = set()  # added up one by one: sum() of floats is rounded once from Python 3.12 on
    for _ in range(20):
        p = np.round(rng.uniform(0, 0.3, (12, 8)), 1)
        p[:, 7] = np.round(1 - p[:, :7].sum(1), 1)
        ups |= {
            functools.reduce(operator.add, row) >= 1.0 for row in p.tolist()
        }  # rounding goes both ways
        value, gradient = fast.value_and_grad(p.ravel())
        expected, slopes = chainrule.value_and_grad(f)(p.ravel())
        assert value == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(gradient, slopes, atol=1e-12)
    assert ups == {True, False}


def test_ties_of_inputs_stay_in_machine_code():
    # What was passed is compared as it is: there is no rounding to be careful about.
    def f(p, xs):
        return sum(where(x >= 1.0, q * x, q) for q, x in zip(p, xs, strict=True))

    fast = chainrule.compile(f, lift=True, on_fallback="raise")
    xs = np.tile([1.0, 0.5, 2.0, 1.0], 20)
    for p in (np.linspace(-1, 1, 80), np.linspace(0, 1, 80)):
        value, gradient = fast.value_and_grad(p, xs)
        expected, slopes = chainrule.value_and_grad(f)(p, xs)
        assert value == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(gradient, slopes, atol=1e-12)
    assert fast.report().startswith("f: lifted")


def by_key(p, xs):
    scores = [a * b for a, b in zip(p, xs, strict=True)]
    best = sorted(range(10), key=lambda i: -scores[i].data)[:3]
    return sum(exp(scores[i]) for i in best)


def by_argsort(p, xs):
    scores = [a * b for a, b in zip(p, xs, strict=True)]
    best = np.argsort([s.data for s in scores])[:3]
    return sum(exp(scores[i]) for i in best)


@pytest.mark.parametrize("f", [by_key, by_argsort])
def test_places_that_numbers_chose_are_compared_in_machine_code(f):
    # The places are constants, of which one is selected: exact, though the scores are not.
    fast = chainrule.compile(f, lift=True, on_fallback="raise")
    rng = np.random.default_rng(1)
    answered = []
    for _ in range(30):
        p, xs = rng.normal(size=(2, 10)).tolist()
        value, gradient = fast.value_and_grad(p, xs)
        expected, slopes = chainrule.value_and_grad(f)(p, xs)
        assert value == pytest.approx(expected, rel=1e-12)
        assert gradient == pytest.approx(slopes, rel=1e-12)
        (structure,) = fast.dispatch.structures.values()
        call = flatten_call((p, xs), {}, differentiate=True)
        runs = [v.run(call, v.binding) for v in structure.variants]
        answered.append(any(run is not None and run.path is Path.MACHINE for run in runs))
    assert all(answered[-20:])


def test_computed_numbers_among_selected_ones_are_still_compared_with_care():
    # One instruction selects scores, another number of it places: only these are exact.
    def f(p):
        sums = [sum(p[8 * i + k] for k in range(8)) for i in range(12)]
        place = sums.index(max(sums))
        return sum(s * (2.0 if s == sums[place] else 3.0) for s in sums) + p[place]

    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    rng = np.random.default_rng(2)
    for _ in range(20):
        p = np.round(rng.uniform(0, 0.3, (12, 8)), 1)
        p[:, 7] = np.round(1 - p[:, :7].sum(1), 1)
        value, gradient = fast.value_and_grad(p.ravel())
        expected, slopes = chainrule.value_and_grad(f)(p.ravel())
        assert value == pytest.approx(expected, abs=1e-12)
        np.testing.assert_allclose(gradient, slopes, atol=1e-12)
