"""The first of many in an order: ``heapq``, ``list.sort``, sorted tuples, ``most_common``.

Every order of the calls is another one; two recordings answer all, with eager's results, and where
the order of equal ones can be told from what Python does, they go as Python's.
"""

import collections
import heapq
import operator
from heapq import nlargest

import numpy as np
import pytest

import chainrule

RNG = np.random.default_rng(12)
N = 6


def largest(p, x):
    return sum(
        k * z for k, z in enumerate(heapq.nlargest(3, [a * b for a, b in zip(p, x, strict=True)]))
    )


def smallest_by_key(p, x):
    zs = [a * b for a, b in zip(p, x, strict=True)]
    first, second = heapq.nsmallest(2, zs, key=abs)
    return first + 2 * second * p[0]


def of_places(p, x):
    return sum((k + 1) * p[i] for k, i in enumerate(nlargest(2, range(len(x)), key=x.__getitem__)))


def by_loss(p, x):
    losses = [(a - b) ** 2 for a, b in zip(p, x, strict=True)]
    kept = heapq.nsmallest(4, range(len(x)), key=lambda i: losses[i])
    return sum((k + 1) * losses[i] * p[i] for k, i in enumerate(kept))


def of_data(p, x):
    return sum((k + 1) * p[0] * v for k, v in enumerate(heapq.nlargest(3, x)))


def of_an_array(p, x):
    return sum((k + 1) * p[0] * v for k, v in enumerate(sorted(np.array(x))[:3]))


def of_pairs(p, x):
    pairs = sorted((abs(a - b), b) for a, b in zip(p, x, strict=True))
    return sum(d * b for d, b in pairs[:3])


def of_pairs_of_data(p, x):
    pairs = heapq.nsmallest(3, [(v * v, k) for k, v in enumerate(x)])
    return sum(p[k] * (i + 1) for i, (_, k) in enumerate(pairs))


def in_place(p, x):
    zs = [a * b for a, b in zip(p, x, strict=True)]
    zs.sort(reverse=True)
    x = list(x)
    x.sort(key=lambda v: -v)
    return sum(z * v for z, v in zip(zs, x, strict=True)) + zs[0]


FEW = [largest, smallest_by_key, of_places, by_loss, of_data, of_an_array, of_pairs, in_place]
FEW += [of_pairs_of_data]


def all_of_them(p, x):
    zs = [a * b for a, b in zip(p, x, strict=True)]
    return sum((k + 1) * z for k, z in enumerate(heapq.nlargest(50, zs) + heapq.nsmallest(1, zs)))


def none_of_them(p, x):
    return p[0] + sum(heapq.nlargest(0, p)) + sum(heapq.nlargest(-1, x))


def parameters(p, x):
    return sum(a * b for a, b in sorted(zip(p, x, strict=True), key=operator.itemgetter(0))[:2])


def pairs_of_parameters(p, x):
    return sum((k + 1) * a * b for k, (a, b) in enumerate(sorted(zip(p, x, strict=True))[:3]))


def chosen_pairs(p, x):
    """Two of the first items may be one Value: then the second ones decide."""
    pairs = sorted((max(a, p[0]), b) for a, b in zip(p, x, strict=True))
    return sum((k + 1) * a * b for k, (a, b) in enumerate(pairs))


def while_sorting(p, x):
    zs = [a * b for a, b in zip(p, x, strict=True)]
    zs.sort(key=lambda z: z * (1 + len(zs)))
    return zs[0] - zs[-1]


def changed_while_sorting(p, x):
    zs = [a * b for a, b in zip(p, x, strict=True)]
    zs.sort(key=lambda z: zs.append(z) or z)
    return zs[0]


def failing_key(p, x):
    zs = [a * b for a, b in zip(p, x, strict=True)]
    try:
        zs.sort(key=lambda z: 1 // 0)
    except ZeroDivisionError:
        return zs[0] * 2
    return zs[1]


def of_an_iterator(p, x):
    """A heap orders equal Values in its own way; ``sorted`` would do for a list."""
    zs = iter([p[1], p[2], p[3], p[1] * p[2], p[1] * 1.0])
    return sum((k + 1) * z for k, z in enumerate(heapq.nsmallest(7, zs)))


def with_a_key_that_counts(p, x):
    seen = []

    def items():
        for a, b in zip(p, x, strict=True):
            seen.append(a)
            yield a * b

    best = heapq.nlargest(2, items(), key=lambda z: z * len(seen))
    return p[1] + p[0] * best[0] + 2 * p[0] * best[1]


def hidden(p, x):
    """The order counts only where ``p[0]`` is not 0, as it is in the first calls."""
    zs = [b * x[k] for k, b in enumerate(p)]
    return zs[1] + p[0] * heapq.nlargest(2, zs)[1] * heapq.nsmallest(2, zs)[1]


ANY = [all_of_them, none_of_them, parameters, pairs_of_parameters, chosen_pairs, while_sorting]
ANY += [changed_while_sorting, failing_key, hidden, of_an_iterator, with_a_key_that_counts]


def outcome(f, arguments):
    try:
        value, gradient = f(*arguments)
    except Exception as error:
        return type(error), str(error)
    return type(value), pytest.approx(float(value), rel=1e-11, abs=1e-12, nan_ok=True), gradient


def same(f, calls, **options):
    fast, eager = chainrule.compile(f, on_fallback="eager", **options), chainrule.value_and_grad(f)
    for arguments in calls:
        got, wanted = outcome(fast.value_and_grad, arguments), outcome(eager, arguments)
        assert got[:2] == wanted[:2], arguments
        if len(wanted) == 3:
            assert got[2] == pytest.approx(wanted[2], rel=1e-10, abs=1e-11, nan_ok=True), arguments
    return fast


def any_numbers(count=30):
    for k in range(count):
        p, x = RNG.normal(size=N).tolist(), RNG.normal(size=N).tolist()
        yield [0.0 if k < 3 else p[0], *p[1:]], x


def equal_numbers(count=30):
    for _ in range(count):
        yield RNG.choice([-1.0, 0.0, -0.0, 1.0], N).tolist(), RNG.choice([1.0, 2.0], N).tolist()


@pytest.mark.parametrize("f", FEW + ANY, ids=lambda f: f.__name__)
def test_the_first_in_an_order(f):
    fast = same(f, any_numbers())
    if f in FEW:
        assert fast.report().count("variant:") <= 4


@pytest.mark.parametrize("f", FEW + ANY, ids=lambda f: f.__name__)
def test_equal_ones_go_as_python_has_them(f):
    same(f, [*any_numbers(6), *equal_numbers()])


@pytest.mark.parametrize("f", [largest, of_pairs, in_place], ids=lambda f: f.__name__)
def test_what_is_not_a_number_and_lift_false(f):
    nan, infinity = float("nan"), float("inf")
    odd = [([1.0] * N, [1.0, nan, 2.0, 3.0, 0.5, 4.0]), ([1.0] * N, [infinity, 2.0, *[1.0] * 4])]
    same(f, [*any_numbers(6)])
    with chainrule.nonfinite("allow"):
        same(f, [*any_numbers(6), *odd])
    same(f, [*any_numbers(8), *equal_numbers(8)], lift=False)


def most_common(p, tokens):
    total = 0.0
    for k, (token, times) in enumerate(collections.Counter(tokens).most_common(2)):
        total = total + (k + 1) * times * p[token]
    return total


def all_in_order(p, tokens):
    counts = collections.Counter(tokens)
    counts[0] += 1
    return sum(k * p[token] * times for k, (token, times) in enumerate(counts.most_common()))


def of_weights(p, tokens):
    weights = collections.Counter()
    for token in tokens:
        weights[token] += p[token] * p[0]
    return sum((k + 1) * w for k, (_, w) in enumerate(weights.most_common(2)))


def of_a_dict(p, tokens):
    counts = {}
    for token in tokens:
        counts[token] = counts.get(token, 0) + 1
    return p[counts.most_common(1)[0][0]]


def more_than_there_are(p, tokens):
    counts = collections.Counter(tokens)
    return sum(p[t] for t, _ in counts.most_common(99)) + len(counts.most_common(0)) + p[1]


@pytest.mark.parametrize(
    "f",
    [most_common, all_in_order, of_weights, of_a_dict, more_than_there_are],
    ids=lambda f: f.__name__,
)
def test_what_is_most_common(f):
    calls = [(RNG.normal(size=5).tolist(), RNG.integers(0, 5, 6).tolist()) for _ in range(40)]
    fast = same(f, calls)
    if f is most_common:
        assert fast.report().count("variant:") <= 10
