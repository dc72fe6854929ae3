"""What samples share is computed once, and ``map`` gives what eager calls give, one by one."""

import math

import numpy as np
import pytest

import chainrule
from chainrule import exp, log, sqrt, tanh
from chainrule.compiler.capture.recordings import FIRST_RULE

X = np.random.default_rng(3).normal(size=(21, 3))


def one_by_one(f, params, *stacks):
    """The sums of values and gradients of eager calls."""
    pairs = [chainrule.value_and_grad(f)(params, *sample) for sample in zip(*stacks, strict=True)]
    values, gradients = zip(*pairs, strict=True)
    return np.sum(values), np.sum([np.asarray(g, float) for g in gradients], axis=0)


def check(f, params, *stacks, tolerance=1e-12, **options):
    """The sums by ``map`` are eager's, with the same bits for any number of threads."""
    fast = chainrule.compile(f, on_fallback="raise", lift=True, **options)
    value, gradient = one_by_one(f, params, *stacks)
    runs = []
    for threads in (1, 2, 3):
        found = fast.map_value_and_grad(params, *stacks, reduce="sum", threads=threads)
        np.testing.assert_allclose(found[0], value, rtol=tolerance)
        scale = np.abs(gradient).max()
        np.testing.assert_allclose(found[1], gradient, rtol=tolerance, atol=tolerance * scale)
        np.testing.assert_allclose(
            fast.map(params, *stacks, reduce="sum", threads=threads), value, rtol=tolerance
        )
        runs.append((found[0], np.asarray(found[1]).tobytes()))
    assert len(set(runs)) == 1
    return fast


def hoisted(fast):
    """The rules that each piece of machine code for lanes leaves to what comes before it."""
    structures = fast.dispatch.structures.values()
    codes = [code for s in structures for v in s.variants for code in v.lanes.values()]
    assert codes
    assert not [code for code in codes if isinstance(code, str)]
    names = []
    for code in codes:
        before = code.split.hoisted
        if before is not None:
            recording = before.recording
            rules = [recording.rules[c - FIRST_RULE] for c in recording.codes if c >= FIRST_RULE]
            names.append({rule.name for rule in rules})
    return names


def mixture(p, x):
    scale, weight = exp(p[0]), exp(p[1]) / (exp(p[1]) + exp(p[2]))
    return weight * tanh(scale * x[0]) + log(scale) * x[1] + p[3] * x[2] + exp(-p[0])


def test_what_depends_on_the_parameters_alone_is_computed_once():
    fast = check(mixture, np.array([0.3, -0.2, 0.5, 1.5]), X)
    if chainrule.engine == "native":
        assert len(hoisted(fast)) == 2
        assert all({"exp", "log"} <= names for names in hoisted(fast))


def test_many_parameters_that_the_lanes_share():
    def f(p, x):
        return sum(exp(p[k]) * x[k % 3] for k in range(90)) + sum(q * q for q in p)

    check(f, np.random.default_rng(1).normal(0.0, 0.3, size=90), X)


def test_nothing_to_hoist():
    fast = check(lambda p, x: p[0] * x[0] + tanh(p[1] * x[1]), np.array([0.5, -1.0]), X)
    assert hoisted(fast) == []


def test_nothing_but_what_is_shared():
    check(lambda p, x: exp(p[0]) * p[1] + exp(p[1]), np.array([0.5, -1.0]), X)


def test_integers_select_what_was_hoisted():
    def f(p, x, k):
        table = [exp(q) for q in p]
        return table[k] * x[0] + table[(k + 1) % 4]

    ks = np.random.default_rng(2).integers(0, 4, size=len(X))
    check(f, np.array([0.1, 0.2, -0.3, 0.4]), X, ks)


def test_float32():
    params = np.array([0.3, -0.2, 0.5, 1.5])
    check(mixture, params, X, tolerance=1e-5, dtype="float32")


def test_a_gradient_of_each_sample_and_a_first_argument_that_is_stacked():
    fast = chainrule.compile(mixture, on_fallback="raise", lift=True)
    params = np.array([0.3, -0.2, 0.5, 1.5])
    wanted = [chainrule.value_and_grad(mixture)(params, x) for x in X]
    _, gradients = fast.map_value_and_grad(params, X)
    np.testing.assert_allclose(gradients, [g for _, g in wanted], rtol=1e-12, atol=1e-14)
    rows = np.linspace(0.5, 1.5, len(X))[:, None] * params
    wanted = [chainrule.value_and_grad(mixture)(p, X[0]) for p in rows]
    value, gradient = fast.map_value_and_grad(rows, X[0], in_axes=(0, None), reduce="sum")
    np.testing.assert_allclose(value, sum(w[0] for w in wanted), rtol=1e-12)
    np.testing.assert_allclose(gradient, sum(w[1] for w in wanted), rtol=1e-12, atol=1e-14)


def test_shared_data_are_hoisted_for_each_gradient_too():
    def f(p, x, rate):
        return p[0] * x[0] * exp(-rate) + p[1] ** 2 * sqrt(rate)

    fast = chainrule.compile(f, on_fallback="raise", lift=True)
    params = np.array([0.5, 2.0])
    for rate in (0.25, 0.75):
        wanted = [chainrule.value_and_grad(f)(params, x, rate) for x in X]
        for reduce in (None, "sum"):
            found = fast.map_value_and_grad(params, X, rate, in_axes=(None, 0, None), reduce=reduce)
            gradients = np.array([w[1] for w in wanted])
            expected = gradients.sum(axis=0) if reduce else gradients
            np.testing.assert_allclose(found[1], expected, rtol=1e-12)


def test_a_branch_on_what_was_hoisted():
    def f(p, x):
        scale = exp(p[0])
        return scale * x[0] if scale > 2.0 else scale * x[0] * x[1] + p[1]

    fast = chainrule.compile(f, on_fallback="raise", lift=True)
    for a in (0.1, 1.5, 0.2, math.log(2.0), np.nextafter(math.log(2.0), 1.0)):
        params = np.array([a, 0.5])
        value, gradient = one_by_one(f, params, X)
        found = fast.map_value_and_grad(params, X, reduce="sum")
        np.testing.assert_allclose(found[0], value, rtol=1e-12)
        np.testing.assert_allclose(found[1], gradient, rtol=1e-12, atol=1e-13)


def test_undefined_numbers_in_what_was_hoisted_raise_as_in_eager_mode():
    def f(p, x):
        return log(p[0]) * x[0] + p[1]

    fast = chainrule.compile(f, on_fallback="raise", lift=True)
    fast.map_value_and_grad(np.array([2.0, 1.0]), X, reduce="sum")
    with pytest.raises(ValueError, match="log"):
        fast.map_value_and_grad(np.array([-2.0, 1.0]), X, reduce="sum")
    value, gradient = fast.map_value_and_grad(np.array([2.0, math.nan]), X, reduce="sum")
    assert math.isnan(value)
    wanted = one_by_one(f, np.array([2.0, math.nan]), X)
    np.testing.assert_allclose(gradient, wanted[1], rtol=1e-12)
    value, gradient = fast.map_value_and_grad(np.array([math.nan, 1.0]), X, reduce="sum")
    wanted = one_by_one(f, np.array([math.nan, 1.0]), X)
    assert math.isnan(value)
    np.testing.assert_array_equal(np.isnan(gradient), np.isnan(wanted[1]))


def test_infinite_slopes_are_those_of_single_calls():
    """The adjoints add up to 0, but eager adds infinities of both signs."""

    def f(p, x):
        return sqrt(p[0]) * x[0] + p[1]

    params, x = np.array([0.0, 1.0]), np.array([[1.0], [-1.0]] * 8)
    with np.errstate(invalid="ignore"):
        value, gradient = one_by_one(f, params, x)
        fast = chainrule.compile(f, lift=True)
        fast.map_value_and_grad(np.array([4.0, 1.0]), x, reduce="sum")
        found = fast.map_value_and_grad(params, x, reduce="sum")
    assert found[0] == value
    np.testing.assert_array_equal(found[1], gradient)
    assert math.isnan(gradient[0])


def test_a_sample_of_its_own_kind_does_not_disturb_the_others():
    def f(p, x):
        more = x[1] if x[1] > 1.0 else x[1] * p[0]
        return (exp(p[0]) * x[0] if x[0] > 0.5 else exp(p[1])) + more * p[1]

    check(f, np.array([0.3, -0.4]), X)
