"""Truths of arrays of data: numbers beside floats, and decided wherever else they are used."""

import math

import numpy as np
import pytest

import chainrule
from chainrule import Value, where

RNG = np.random.default_rng(4)
XS = [RNG.normal(size=5).round(2) for _ in range(8)]
XS[3][1] = np.nan
XS[5][:] = 0.0
XS[6][2] = -0.0
IDS = [RNG.integers(0, 3, size=5).tolist() for _ in range(8)]
P = np.array([0.3, -1.2, 0.7, 1.1, -0.4])

USES = {
    "times a float": lambda m: m * 0.5,
    "a float times": lambda m: 0.5 * m,
    "divided": lambda m: m / 0.8,
    "divides": lambda m: 1.0 / (m + 0.5),
    "plus": lambda m: m + 0.25,
    "less": lambda m: 1.0 - m,
    "minus": lambda m: m - 1.0,
    "times an array": lambda m: m * np.arange(5.0),
    "times an array of integers": lambda m: m * np.arange(5),
    "times an integer": lambda m: m * 3,
    "times a narrow float": lambda m: m * np.float32(0.1),
    "times a truth": lambda m: m * True,
    "plus itself": lambda m: m + m,
    "times itself": lambda m: (m * m) * 1.5,
    "not": lambda m: ~m * 1.5,
    "and": lambda m: (m & np.array([True, False] * 2 + [True])) * 1.5,
    "or itself": lambda m: (m | m) * 1.5,
    "xor": lambda m: (m ^ m) * 1.5,
    "compared": lambda m: (m == True) * 1.5,  # noqa: E712
    "as floats": lambda m: m.astype(float),
    "as doubles": lambda m: m.astype(np.float64) * 2,
    "as integers": lambda m: m.astype(int) * 2.0,
    "as int8": lambda m: m.astype(np.int8) * 2.0,
    "sum": lambda m: np.full(5, m.sum() * 1.0),
    "np.sum": lambda m: np.full(5, np.sum(m) * 1.0),
    "mean": lambda m: np.full(5, m.mean()),
    "any": lambda m: np.full(5, 2.0 if m.any() else 3.0),
    "all": lambda m: np.full(5, 2.0 if m.all() else 3.0),
    "np.any": lambda m: np.full(5, 2.0 if np.any(m) else 3.0),
    "count": lambda m: np.full(5, np.count_nonzero(m) * 0.5),
    "nonzero": lambda m: np.full(5, len(np.nonzero(m)[0]) * 0.5),
    "np.where": lambda m: np.where(m, 2.0, -1.0),
    "where of arrays": lambda m: np.where(m, np.arange(5.0), -np.arange(5.0)),
    "item": lambda m: np.array([m[k] * 0.5 for k in range(5)]),
    "items in branches": lambda m: np.array([2.0 if x else 3.0 for x in m]),
    "tolist": lambda m: np.array([1.5 if x else 2.5 for x in m.tolist()]),
    "types": lambda m: np.full(5, 1.0 if m.dtype == bool and type(m[0]) is np.bool_ else 2.0),
    "reversed": lambda m: m[::-1] * 0.5,
    "reshaped": lambda m: m.reshape(5, 1)[:, 0] * 0.5,
    "stored into": lambda m: stored(m),
    "copied": lambda m: m.copy() * 0.5,
    "joined": lambda m: np.concatenate([m, m])[:5] * 0.5,
    "text": lambda m: np.full(5, float(len(str(m)))),
    "bytes": lambda m: np.full(5, float(m.tobytes()[0])),
    "bool of one": lambda m: np.full(5, 2.0 if bool(m[2]) else 3.0),
    "float of one": lambda m: np.full(5, float(m[2])),
    "int of one": lambda m: np.full(5, int(m[2]) * 0.5),
    "Python's sum": lambda m: np.full(5, sum(m) * 0.5),
    "power": lambda m: m**2.0,
    "negative": lambda m: -(m * 1.0),
    "wrong negative": lambda m: -m,
    "wrong difference": lambda m: m - m,
    "maximum": lambda m: np.maximum(m, 0.5),
    "dot": lambda m: np.full(5, np.dot(m, np.arange(5.0))),
    "matmul": lambda m: np.eye(5) @ m,
    "outer": lambda m: np.multiply.outer(m, np.ones(5))[:, 0],
    "in place": lambda m: in_place(m),
    "filled": lambda m: filled(m),
    "array of": lambda m: np.array(m) * 0.5,
    "asarray": lambda m: np.asarray(m, dtype=float),
    "array of items": lambda m: np.array([*m]) * 0.5,
    "as an index of numbers": lambda m: np.full(5, np.arange(5.0)[m].sum()),
    "as an index that is written": lambda m: written(m),
    "as an index that is added to": lambda m: added(m),
    "isnan": lambda m: np.isnan(m * 1.0) * 1.0,
    "clip": lambda m: np.clip(m * 1.0, 0.25, 0.5),
    "sort": lambda m: np.sort(m) * 1.0,
    "argmax": lambda m: np.full(5, m.argmax() * 1.0),
    "cumsum": lambda m: np.cumsum(m) * 1.0,
}


def stored(m):
    m[0] = True
    return m * 0.5


def in_place(m):
    x = np.ones(5)
    x *= m
    return x


def filled(m):
    x = np.zeros(5)
    x[...] = m
    return x


def written(m):
    x = np.zeros(5)
    x[m] = 2.0
    return x


def added(m):
    x = np.arange(5.0)
    x[m] += 2.0
    return x


def outcome(call):
    try:
        return call()
    except Exception as error:
        return type(error)


def same(function, calls, **options):
    fast = chainrule.compile(function, on_fallback="eager", **options)
    eager = chainrule.value_and_grad(function)
    for arguments in [*calls, *calls]:
        got = outcome(lambda a=arguments: fast.value_and_grad(*a))
        wanted = outcome(lambda a=arguments: eager(*a))
        assert repr(got) == repr(wanted), arguments
    return fast


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", USES)
def test_masks_of_data(name):
    def f(p, x):
        return sum(w * v for w, v in zip(p, USES[name](x > 0), strict=True))

    same(f, [(P, x) for x in XS])
    same(f, [(P, x) for x in XS], lift=False)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", USES)
def test_masks_of_integers(name):
    def f(p, ids):
        return sum(w * v for w, v in zip(p, USES[name](np.array(ids) == 1), strict=True))

    def of_arrays(p, ids):
        return sum(w * v for w, v in zip(p, USES[name](ids >= 1), strict=True))

    same(f, [(P, ids) for ids in IDS])
    same(of_arrays, [(P, np.array(ids)) for ids in IDS])
    same(of_arrays, [(P, np.array(ids, np.int32)) for ids in IDS])


COMPARISONS = {
    "less": lambda x: x < 0.1,
    "or equal": lambda x: x <= 0.0,
    "equal": lambda x: x == 0.0,
    "not equal": lambda x: x != 0.0,
    "greater": lambda x: x > 0.3,
    "turned": lambda x: 0.3 > x,  # noqa: SIM300
    "of two": lambda x: x[::-1] < x,
    "by numpy": lambda x: np.greater_equal(x, 0.2),
    "outer": lambda x: np.less.outer(x, x)[0],
    "outer of differences": lambda x: (np.subtract.outer(x, x) > 0)[1],
    "with an array": lambda x: x < np.linspace(-1, 1, 5),
    "with nan": lambda x: x == np.nan,
    "with out": lambda x: np.less(x, 0.1, out=np.zeros(5, bool)),
    "where": lambda x: np.less(x, 0.1, where=np.array([True] * 4 + [False]), out=np.ones(5, bool)),
    "of the wrong shape": lambda x: x < np.zeros(3),
    "empty": lambda x: np.concatenate([x[:0] > 0, x > 0]),
}


@pytest.mark.parametrize("name", COMPARISONS)
def test_ways_to_compare(name):
    def f(p, x):
        return sum(w * v for w, v in zip(p, COMPARISONS[name](x) * 0.5, strict=True))

    same(f, [(P, x) for x in XS])


def test_one_recording_for_all_masks():
    def dropped(p, x):
        mask = (x < 0.4) / 0.8
        return ((p * mask) ** 2).sum()

    def pairs(p, ids):
        alike = np.equal.outer(np.array(ids), np.array(ids)) * 2.0 - 1
        return (alike * np.outer(p, p)).sum()

    finite = [x for x in XS if np.isfinite(x).all()]
    for f, calls in ((dropped, [(P, x) for x in finite]), (pairs, [(P, ids) for ids in IDS])):
        fast = chainrule.compile(f)
        for arguments in [*calls, *calls]:
            value, gradient = fast.value_and_grad(*arguments)
            wanted, slopes = chainrule.value_and_grad(f)(*arguments)
            assert value == pytest.approx(wanted, rel=1e-12)
            assert gradient == pytest.approx(slopes, rel=1e-12)
        assert fast.dispatch.counts.traces == 1


def test_masks_that_follow_parameters():
    def f(p, x):
        mask = (np.array([w.data for w in p]) > x) * 1.0
        return sum(w * m for w, m in zip(p, mask, strict=True))

    def of_values(p, x):
        return sum(where(m, w, 0.0) for w, m in zip(p, p > x, strict=True))

    same(f, [(list(P), x) for x in XS if np.isfinite(x).all()])
    same(of_values, [(P, x) for x in XS])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_one_truth_beside_numbers():
    for f in (
        lambda p, x: p[0] * ((x > 0) * 0.5),
        lambda p, x: p[0] * (0.5 * (x > 0) + 1.5),
        lambda p, x: p[0] * ((x > 0) / 3.0 - 0.25),
        lambda p, x: p[0] * (1.0 - (x != x)),
        lambda p, x: p[0] * (1.0 - (x < 1e308)),
        lambda p, x: p[0] * ((x > 0) * x + (x <= 0) * -x),
        lambda p, x: p[0] * ((x > 0) + 1),
        lambda p, x: p[0] * ((x > 0) * np.float64(2.5)),
        lambda p, x: p[0] * ((x > 0) * np.float32(2.1)),
        lambda p, x: p[0] * math.exp((x > 0) * 0.5),
        lambda p, x: p[0] * (2.0 ** (x > 0)),
        lambda p, x: p[0] * len(str((x > 0) * 0.5)),
        lambda p, x: p[0] * (x > 0) * 0.5,
    ):
        for kind in (float, np.float64):
            calls = [(P.tolist(), kind(x)) for x in (0.5, -0.5, 0.0, -0.0, math.nan, math.inf, 3.0)]
            same(f, calls)


def test_masks_beside_values_in_arrays():
    def f(p, x):
        return ((x > 0) * p).sum() + (p * (x < 0.5) * 2.0).sum()

    same(f, [(P, x) for x in XS])
    leaves = [Value(w) for w in P]
    fast = chainrule.compile(f)
    for x in XS:
        y, z = fast(np.array(leaves), x), f(np.array(leaves), x)
        assert y.data == z.data


def test_attributes_that_an_integer_does_not_have():
    def f(p, n):
        try:
            return p[0] * n.no_such_thing
        except AttributeError as error:
            return p[1] * len(str(error))

    def g(p, n):
        return p[0] * n if hasattr(n, "__array__") else p[1] * n

    def h(p, n):
        return p[0] * n.numerator + p[1] * n.bit_length()

    for k in (f, g, h):
        same(k, [(P.tolist(), n) for n in (1, 2, 3, True, np.int64(4), np.int64(5), 6)])


# --- truths joined by & and | ---------------------------------------------------------------------

JOINED = {
    "and": lambda a, b: (a > 0) & (b > 0),
    "or": lambda a, b: (a > 0) | (b <= 0.5),
    "xor": lambda a, b: (a > b) ^ (b != 0.3),
    "of a negated one": lambda a, b: (a != 0.3) & (b != a),
    "three": lambda a, b: (a > 0) & (b > 0) | (a + b < 0.5),
    "with a plain truth": lambda a, b: (a > 0) & True | False ^ (b > 0),
    "with numpy's truth": lambda a, b: (a > 0) & np.True_ & (b > 0),
}


@pytest.mark.parametrize("name", JOINED)
def test_comparisons_joined_in_a_where_are_one_recording(name):
    join = JOINED[name]

    def f(p, xs):
        return sum(where(join(a, x), a * x, a * 0.1 + x) for a, x in zip(p, xs, strict=True))

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    rng = np.random.default_rng(2)
    for _ in range(40):
        arguments = (P * rng.normal()).round(1).tolist(), rng.normal(size=5).round(1).tolist()
        value, gradient = fast.value_and_grad(*arguments)
        wanted, slopes = eager(*arguments)
        assert value == pytest.approx(wanted, rel=1e-12)
        assert gradient == pytest.approx(slopes, rel=1e-12)
    assert "40 replayed, 0 eager; 1 recordings" in fast.report()


@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: (a > 0) & (b > 0),
        lambda a, b: np.logical_or(a > 0, b > 0) & ~(a == b),
        lambda a, b: np.logical_not(a > 0) ^ (b[0] > a),
    ],
)
def test_masks_of_data_joined_are_one_recording(join):
    def f(p, xs, ys):
        return where(join(xs, ys), p * xs, p * 0.1).sum()

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    rng = np.random.default_rng(2)
    for _ in range(40):
        xs, ys = rng.normal(size=(2, 5)).round(1)
        value, gradient = fast.value_and_grad(P, xs, ys)
        wanted, slopes = eager(P, xs, ys)
        assert value == pytest.approx(wanted, rel=1e-12)
        assert gradient == pytest.approx(slopes, rel=1e-12)


def what_it_is(p, x):
    both = (p > 0) & (x > 0)
    return p * 2.0, type(both).__name__, both is True, both == (x > 0), str(both), int(both | False)


def test_a_joined_truth_is_a_bool_wherever_else_it_is_used():
    fast = chainrule.compile(what_it_is, on_fallback="eager")
    for p in (1.0, -1.0, 0.5, 0.7):
        for x in (1.0, -1.0, np.float64(2.0)):
            got, wanted = fast(p, x), what_it_is(p, x)
            assert repr(got) == repr(wanted)
