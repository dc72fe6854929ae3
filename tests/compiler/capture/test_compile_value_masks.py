"""Masks that follow Values: ``a > 0`` of arrays of Values, and what ``where`` chooses by them.

Every mask of the calls is another one; two or three recordings answer all, with eager's results.
"""

import numpy as np
import pytest

import chainrule
from chainrule import where

RNG = np.random.default_rng(11)
N = 5


def by_function(p, x):
    a, b = p * x, p + x
    return np.sum(where(a > b, a, b * b))


def by_numpy(p, x):
    a = p * x
    return np.sum(np.where(a > 0, a, 0.1 * a))


def of_data(p, x):
    return np.sum(np.where(x > 0, p * x, p + x))


def joined(p, x):
    a, b = p * x, p - x
    return np.sum(np.where((a > 0) & ~(b <= 0.5) | (x > 1), a, b))


def beside_numbers(p, x):
    a = p * x
    return np.sum(np.where(p[0] * 0.2 < a, a, 0.0)) + np.sum(np.where(a >= p, 1, x) * p) + p[0]


def of_numbers(p, x):
    return np.sum(np.where(p > 0, x, 2.0) * np.where(p > x, 1, 0)) * p[0]


def broadcast(p, x):
    rows = np.outer(p, x)
    return np.sum(np.where(rows > p, rows, x)) + np.sum(where(rows < p[0], rows, 1.0))


def gone_through(p, x):
    total = p[0] * 1.0
    for is_large, a in zip(p * x > 0.1, p, strict=True):
        total = total + (a if is_large else -2 * a)
    return total


def as_numbers(p, x):
    return np.sum((p > x) * p) + np.sum((p * x > 0).astype(float) * p * p)


def counted(p, x):
    return p[0] * (p > 0).sum() + np.sum((p * x)[p > x])


def stored(p, x):
    a = p * x
    a[a < 0] = 0.5
    return np.sum(a * p)


def identity(p, x):
    a = p * x
    chosen = np.where(a > 0, a, p)
    return sum(c * 3 if c is b else c for c, b in zip(chosen, p, strict=True))


def without_axes(p, x):
    a = p * x
    mask = (a[:1] > 0).reshape(())
    chosen = np.where(mask, a[0], p[1])
    return chosen.shape == () and chosen[()] * p[0]


def transposed(p, x):
    rows = np.outer(p, x)
    return np.sum(np.where(rows.T > 0, rows.T, 0.5 * rows))


def hidden(p, x):
    """A difference that the first call cannot show: it is multiplied by a parameter that is 0."""
    a = p * x
    return np.sum(a) + p[0] * np.sum(np.where(a > 0.3, a * a, 2 * a))


FEW = [by_function, by_numpy, of_data, joined, beside_numbers, of_numbers, broadcast, gone_through]
FEW += [hidden]
ANY = [without_axes, as_numbers, counted, stored, identity, transposed]


@pytest.mark.parametrize("f", FEW + ANY, ids=lambda f: f.__name__)
def test_masks_that_follow_values_give_eagers_results(f):
    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for k in range(40):
        p, x = RNG.normal(size=N), RNG.normal(size=N)
        if k < 4:
            p[0] = 0.0
        value, gradient = fast.value_and_grad(p, x)
        wanted = eager(p, x)
        assert type(value) is type(wanted[0])
        assert value == pytest.approx(wanted[0], rel=1e-11, abs=1e-12)
        assert gradient == pytest.approx(wanted[1], rel=1e-10, abs=1e-11)
    if f in FEW:
        assert fast.report().count("variant:") <= 4


def test_ties_and_what_is_not_finite_go_as_in_eager_mode():
    fast, eager = chainrule.compile(by_function), chainrule.value_and_grad(by_function)
    for _ in range(6):
        fast.value_and_grad(RNG.normal(size=N), RNG.normal(size=N))
    for x in ([0.0] * N, [2.0] * N, [-0.0, 0.0, 1.0, 1.0, -1.0]):
        p = np.array([2.0, 0.0, 1.0, -1.0, -0.0])
        value, gradient = fast.value_and_grad(p, np.array(x))
        wanted = eager(p, np.array(x))
        assert value == wanted[0]
        assert gradient.tolist() == wanted[1].tolist()


@pytest.mark.parametrize("one_way", [False, True])
def test_numpys_warning_of_what_is_not_a_number_is_given(one_way):
    fast = chainrule.compile(by_numpy)
    for _ in range(6):
        q, y = RNG.normal(size=N), RNG.normal(size=N)
        if one_way:
            q, y = np.ones(N), np.array([1.0, -1.0, -1.0, 2.0, 3.0])
        fast.value_and_grad(q, y)
    p, x = np.ones(N), np.array([1.0, np.nan, -1.0, 2.0, 3.0])
    with pytest.warns(RuntimeWarning, match="invalid value"):
        chainrule.value_and_grad(by_numpy)(p, x)
    with pytest.warns(RuntimeWarning, match="invalid value"):
        fast.value_and_grad(p, x)


def test_a_plain_call_returns_the_type_that_eager_returns():
    def f(p, x):
        return np.where(p * x > 0, p, 0.0).sum()

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(20):
        p, x = RNG.normal(size=N), RNG.normal(size=N)
        for sign in (1.0, -1.0):
            q = sign * np.abs(p) * np.sign(x)
            assert type(fast(q, x)) is type(f(q, x))
            assert fast(q, x) == pytest.approx(f(q, x), rel=1e-12)


def test_with_lift_false_gradients_keep_eagers_bits():
    fast = chainrule.compile(by_numpy, lift=False, on_fallback="eager")
    eager = chainrule.value_and_grad(by_numpy)
    for _ in range(12):
        p, x = RNG.normal(size=N), RNG.normal(size=N)
        value, gradient = fast.value_and_grad(p, x)
        wanted = eager(p, x)
        assert value == wanted[0]
        assert gradient.tolist() == wanted[1].tolist()
