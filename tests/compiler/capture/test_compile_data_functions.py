"""Functions of data are recorded: chainrule's own, numpy's variances, truths beside Values."""

import math
import random
import re

import numpy as np
import pytest

import chainrule
from chainrule import exp, sin, tanh, where


def recordings(fast):
    return int(re.search(r"([\d,]+) recordings", fast.report())[1].replace(",", ""))


def compare(function, calls, **options):
    """Compile a function, compare all calls with eager's, and return it."""
    fast = chainrule.compile(function, **options)
    eager = chainrule.value_and_grad(function)
    for arguments in calls:
        (value, grads), (expected, wanted) = fast.value_and_grad(*arguments), eager(*arguments)
        assert type(value) is type(expected)
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-14), arguments
        assert grads == pytest.approx(wanted, rel=1e-12, abs=1e-14), arguments
    return fast


def samples(count=40, seed=0):
    chance = random.Random(seed)
    for _ in range(count):
        p, xs = ([chance.gauss(0, 1) for _ in range(n)] for n in (3, 6))
        yield p, xs, chance.randrange(3)


def test_functions_of_data_are_recorded():
    def f(p, xs, k):
        x = xs[0]
        return p[0] * sin(x) + exp(-x) * p[1] + where(x > 0, x, 2.0) + tanh(0.1 * k) * p[2]

    fast = compare(f, samples(), on_fallback="raise")
    assert recordings(fast) == 1


def test_variances_of_data_are_recorded():
    def f(p, xs, k):
        a = np.array(xs).reshape(2, 3)
        spread = np.std(xs) + a.std(ddof=1) + a.var(axis=0).sum() + np.var(a, axis=1)[0]
        return p[0] * spread + p[1] * np.mean(xs)

    fast = compare(f, samples(), on_fallback="raise")
    assert recordings(fast) == 1


@pytest.mark.parametrize(
    "total", [np.sum, np.mean, np.trace, lambda a: a.sum(axis=0)[0], lambda a: a.sum(axis=(0, 1))]
)
def test_numpys_sum_of_negative_zeros_is_the_positive_one(total):
    def f(a):
        return math.atan2(total(a), -1.0)

    fast = chainrule.compile(f, on_fallback="raise")
    for number in (1.0, -0.0, 0.0, -0.0, -2.0):
        a = np.full((3, 3), number)
        assert fast(a) == f(a)
    assert recordings(fast) == 1


@pytest.mark.parametrize(
    "put",
    [
        lambda a, out: np.cumsum(a, out=out),
        lambda a, out: a.cumsum(out=out),
        lambda a, out: np.add.accumulate(a, 0, None, out),
        lambda a, out: np.stack([a, a]).sum(axis=0, out=out),
        lambda a, out: np.max(np.stack([a, 2 * a]), axis=0, out=out),
        lambda a, out: np.add(a, 1, out=out),
    ],
)
@pytest.mark.parametrize("kind", [float, object])
@pytest.mark.usefixtures("unchecked")
def test_numpy_puts_its_result_into_an_array(put, kind):
    def f(p, a):
        out = np.zeros(3, kind)
        put(a, out)
        return p * out[1]

    calls = [(p, np.array([1.0, 2.0, p])) for p in (0.0, 2.0, 3.0)]  # the first one hides it
    compare(f, calls, on_fallback="eager")


@pytest.mark.usefixtures("unchecked")
def test_numpy_puts_no_result_into_a_list():
    def f(p, a):
        np.add.accumulate(a, 0, None, a)
        return p * a[-1]

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(3):
        with pytest.raises(TypeError, match="return arrays must be of ArrayType"):
            fast.value_and_grad(2.0, [1.0, 2.0])


def test_a_truth_beside_a_value_is_a_number():
    def f(p, xs, k):
        warm = False
        if xs[0] > 0:
            warm = True
        return p[0] * warm + (True + p[1]) - p[2] * (not warm)

    compare(f, samples(), on_fallback="raise")
