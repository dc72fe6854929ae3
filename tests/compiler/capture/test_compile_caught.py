"""Undefined operations whose errors a function catches: branches, like others."""

import contextlib
import math
import sys

import numpy as np
import pytest

import chainrule
from chainrule import Value, acosh, asin, exp, log, sqrt

CALLS = [
    ([w, 0.3], x)
    for x in (1.0, -1.0, 0.0, -0.0, 2.0, -0.5, 1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan)
    for w in (0.5, -2.0)
]


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def same(function, calls=CALLS, recordings=None, **options):
    fast = chainrule.compile(function, on_fallback="eager", **options)
    eager = chainrule.value_and_grad(function)
    for turn in range(3):
        for arguments in calls:
            got = outcome(lambda a=arguments: fast.value_and_grad(*a))
            wanted = outcome(lambda a=arguments: eager(*a))
            assert repr(got) == repr(wanted), (turn, arguments)
    if recordings is not None:
        assert fast.dispatch.counts.traces <= recordings, fast.report()
        assert fast.dispatch.counts.replayed > len(calls), fast.report()
    return fast


def root(w, x):
    try:
        r = sqrt(w[0] * x)
    except ValueError:
        r = 0.0
    return r + w[1] * x


def logarithm(w, x):
    try:
        return log(w[0] + 0.5 * x)
    except ValueError:
        return w[0] * 0.0 - 10.0


def several(w, x):
    total = 0.0
    for f in (sqrt, log, asin, acosh):
        try:
            total = total + f(w[0] * x + w[1])
        except ValueError:
            total = total + w[1] * x
    return total * w[0]


def bare(w, x):
    try:
        r = sqrt(w[0] * x)
    except:  # noqa: E722
        r = w[1]
    return r * w[0]


def with_else(w, x):
    try:
        r = log(w[0] * x)
    except (ValueError, ZeroDivisionError):
        return w[1] * 2
    else:
        return r * w[0]
    finally:
        x = 0.0


def named(w, x):
    try:
        r = sqrt(w[0] * x)
    except ValueError as error:
        return w[1] * len(str(error))
    return r


def chained(w, x):
    try:
        try:
            r = sqrt(w[0] * x)
        except ValueError:
            raise KeyError("x")  # noqa: B904
    except KeyError as error:
        return w[1] * len(str(error.__context__))
    return r


def suppressed(w, x):
    r = w[1]
    with contextlib.suppress(ValueError):
        r = sqrt(w[0] * x)
    return r * w[0]


def other_kind(w, x):
    try:
        return log(w[0] * x)
    except OverflowError:
        return w[1] * 3


def overflowing(w, x):
    try:
        return exp(w[0] * x * 1e3)
    except OverflowError:
        return w[1] * 3


def divided(w, x):
    try:
        return w[1] / (w[0] * x)
    except ZeroDivisionError:
        return w[1] * 3


def of_data(w, x):
    try:
        r = math.sqrt(x)
    except ValueError:
        r = 2.0
    return w[0] * r


def by_info(w, x):
    try:
        r = sqrt(w[0] * x)
    except ValueError:
        r = w[1] * len(str(sys.exc_info()[1]))
    return r


def reraised(w, x):
    try:
        r = sqrt(w[0] * x)
    except ValueError:
        if x < -0.75:
            raise
        r = w[1]
    return r * 2


def inner(w, x):
    return helper(w[0] * x) + w[1]


def helper(z):
    try:
        return sqrt(z)
    except ValueError:
        return -z


def twice(w, x):
    try:
        a = sqrt(w[0] * x)
        a = a + log(w[1] * x)
    except ValueError:
        a = w[0] * w[1]
    return a * x


FUNCTIONS = [
    *(root, logarithm, several, bare, with_else, named, chained, suppressed, other_kind),
    *(overflowing, divided, of_data, by_info, reraised, inner, twice),
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_errors_that_are_caught(function):
    same(function)
    same(function, lift=False)
    same(function, CALLS[::-1])


@pytest.mark.parametrize("function", [root, logarithm, inner], ids=lambda f: f.__name__)
def test_two_recordings_serve_both_outcomes(function):
    finite = [(w, x) for w, x in CALLS if math.isfinite(x) and abs(x) < 10 and x]
    same(function, finite, recordings=4)


def test_values_batches_and_maps():
    fast = chainrule.compile(root, on_fallback="eager")
    xs = [1.0, -1.0, 2.0, -2.0, 0.5, -0.5] * 4
    for x in xs:
        leaves, others = [Value(0.5), Value(0.3)], [Value(0.5), Value(0.3)]
        y, z = fast(leaves, x), root(others, x)
        y.backward(), z.backward()
        assert (y.data, [v.grad for v in leaves]) == (z.data, [v.grad for v in others])
    w = np.array([0.5, 0.3])
    eager = chainrule.value_and_grad(root)
    found = [eager(w, x) for x in xs]
    value, gradient = fast.batch_value_and_grad(w, [(x,) for x in xs])
    assert value == pytest.approx(np.mean([v for v, _ in found]))
    assert gradient == pytest.approx(np.mean([g for _, g in found], axis=0))
    assert fast.map(w, np.array(xs)) == pytest.approx([v for v, _ in found])
    assert fast.map_value_and_grad(w, np.array(xs))[1] == pytest.approx(
        np.array([g for _, g in found])
    )
    lifted = chainrule.compile(root, lift=True, on_fallback="eager")
    for x in xs:
        got, wanted = lifted.value_and_grad(w, x), eager(w, x)
        assert got[0] == pytest.approx(wanted[0])
        assert got[1] == pytest.approx(wanted[1])
    assert chainrule.jacobian(fast)([0.5, 0.3], -1.0) == pytest.approx(np.array([0.0, -1.0]))


def test_files_and_sources(tmp_path):
    fast = chainrule.compile(root, on_fallback="eager")
    for x in (1.0, -1.0, 2.0, -2.0):
        fast.value_and_grad([0.5, 0.3], x)
    with pytest.raises(chainrule.SaveError, match="catches the error"):
        fast.save(tmp_path / "root", [0.5, 0.3], 1.0)
    source = fast.to_numpy([0.5, 0.3], 1.0)
    assert source([0.5, 0.3], 4.0) == pytest.approx(root([0.5, 0.3], 4.0))
