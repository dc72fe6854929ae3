"""Dicts, sets and lists asked for an integer argument: one recording for all keys."""

import random
from collections import Counter, OrderedDict, defaultdict

import numpy as np
import pytest
from compile_twins import assert_eagers_outcome, recordings

import chainrule

RATES = {3: 0.5, 1: 1.5, 7: -2.0, 0: 4.0}
PLACES = {1: 2, 2: 3, 3: 0}
ROWS = {5: [1.0, 2.0], 2: [3.0, 4.0], -1: [0.0, 1.0]}
SET, FROZEN, LIST, PAIR = {1, 2, 5}, frozenset((0, 9)), [1, 4, 6], (2, 3)
ORDERED, COUNTED = OrderedDict({2: 0.5, 1: 1.5}), Counter({1: 3, 2: 1})
DEFAULTS = defaultdict(float, {2: 0.5, 1: 1.5, 0: 2.0})
MIXED = {1: 0.5, "a": 2.0}
ONES = {1.0: 0.5, 2: 2.0}


pytestmark = pytest.mark.usefixtures("unchecked")


def compared(f, low=-2, high=8, count=60, **options):
    """The function compiled, after calls with all kinds of integers that gave eager's results."""
    rng = random.Random(f.__name__)
    fast = chainrule.compile(f, on_fallback="eager", **options)
    eager = chainrule.value_and_grad(f)
    for _ in range(count):
        p = [rng.uniform(0.2, 2) for _ in range(4)]
        arguments = p, [rng.randrange(low, high) for _ in range(4)]
        assert_eagers_outcome(fast, eager, *arguments)
    return fast


def value_or_default(p, ts):
    return sum(p[0] * RATES.get(t, 0.25) + p[1] for t in ts)


def place_or_default(p, ts):
    return sum(p[PLACES.get(t, 1)] for t in ts)


def row_or_default(p, ts):
    total = p[0]
    for t in ts:
        row = ROWS.get(t, [0.5, 0.5])
        total = total + row[0] * p[1] + row[1] * p[2]
    return total


def parameter_or_default(p, ts):
    doubled = {k: p[k] * 2 for k in range(4)}
    return sum(doubled.get(t, p[0]) for t in ts)


def membership_as_number(p, ts):
    return sum(p[t % 4] * (t in LIST) + p[0] * (t not in PAIR) + p[1] * (t in RATES) for t in ts)


def numpy_integers(p, ts):
    return sum(p[0] * RATES.get(t, 0.5) + p[1] * (t in SET) for t in np.array(ts))


@pytest.mark.parametrize(
    "f",
    [
        value_or_default,
        place_or_default,
        row_or_default,
        parameter_or_default,
        membership_as_number,
        numpy_integers,
    ],
)
def test_one_recording_answers_all_keys(f):
    assert recordings(compared(f)) == 1


def in_branches(p, ts):
    total = p[0]
    for t in ts:
        if t in RATES:
            total = total + p[1] * RATES[t]
        elif t not in SET:
            total = total * p[2]
        else:
            total = total - p[3]
    return total


def earlier_in_list(p, ts):
    total = p[0]
    for i, t in enumerate(ts):
        total = total * p[1] if t in ts[:i] else total + p[t % 4]
    return total


def filtered(p, ts):
    return sum(p[t % 4] for t in ts if t in SET or t in FROZEN) + p[0]


def constant_in_list(p, ts):
    return p[0] * p[1] if 3 in ts else p[2] - p[3]


@pytest.mark.parametrize("f", [in_branches, earlier_in_list, constant_in_list])
def test_branches_by_membership_take_few_recordings(f):
    assert recordings(compared(f)) <= 4


@pytest.mark.parametrize("f", [in_branches, earlier_in_list, filtered, constant_in_list])
def test_branches_by_membership_are_guards_where_bits_are_kept(f):
    compared(f, lift=False)


@pytest.mark.parametrize(
    "mapping", [RATES, ORDERED, COUNTED, DEFAULTS], ids=lambda m: type(m).__name__
)
def test_any_dict_of_the_library_is_read_by_one_recording(mapping):
    def loss(p, ts):
        return sum(p[0] * mapping[t] for t in ts)

    low, high = (0, 2) if mapping is RATES else (1, 3)
    assert recordings(compared(loss, low, high)) == 1


def missing_key(p, ts):
    return sum(p[0] * RATES[t] for t in ts)


def caught(p, ts):
    total = p[0]
    for t in ts:
        try:
            total = total + p[1] * RATES[t]
        except KeyError:
            total = total * p[2]
    return total


def none_by_default(p, ts):
    total = p[0]
    for t in ts:
        rate = RATES.get(t)
        if rate is not None:
            total = total + p[1] * rate
    return total


def other_keys(p, ts):
    return sum(p[0] * MIXED.get(t, 0.0) + ONES.get(t, 3.0) * p[1] + (t in MIXED) for t in ts)


def two_defaults(p, ts):
    first = [ROWS.get(t, [0.5, 0.5]) for t in ts]
    second = [ROWS.get(t, [1.5, 2.5]) for t in ts]
    return sum(p[0] * a[0] + p[1] * b[1] for a, b in zip(first, second, strict=True))


def truths_as_keys(p, ts):
    return sum(p[{True: 1, False: 0}[t > 2]] * {1: 2.0, 0: 3.0}.get(t > 1, 9.0) for t in ts)


def changed_meanwhile(p, ts):
    own = dict(RATES)
    total = sum(p[0] * own.get(t, 0.5) for t in ts)
    own[2] = 7.0
    return total + sum(p[1] * own.get(t, 0.5) + (t in own) for t in ts)


def value_in_list(p, ts):
    xs = [p[0], p[1]]
    y = xs[0] if ts[0] > 2 else xs[1]
    return p[2] * (y in xs) + p[3] * (y in xs[:1])


@pytest.mark.parametrize(
    "f",
    [
        missing_key,
        caught,
        none_by_default,
        other_keys,
        two_defaults,
        truths_as_keys,
        changed_meanwhile,
        value_in_list,
    ],
)
def test_results_and_errors_are_eagers(f):
    compared(f)


def test_a_default_dict_that_grows_does_so_as_in_eager_mode():
    def loss(p, ts):
        own = defaultdict(lambda: 0.5, {1: 2.0})
        total = sum(p[0] * own[t] for t in ts)
        return total + len(own)

    compared(loss)


def counted_in_a_list(p, ts):
    return sum(p[t % 4] * ts.count(t) for t in ts) + p[0] * ts.count(2) + p[ts.count(ts[0]) % 4]


def counted_by_numpy(p, ts):
    counts = np.bincount(np.abs(np.array(ts)) % 4, minlength=4)
    return sum(p[k] * counts[k] for k in range(4)) / counts.sum() + p[counts[1] % 4]


def counted_and_changed(p, ts):
    counts = np.bincount([abs(t) % 4 for t in ts], None, 4)
    counts[0] += 1
    return (counts * np.array(p)).sum() + (counts / len(ts) * np.array(p)).sum()


@pytest.mark.parametrize("f", [counted_in_a_list, counted_by_numpy, counted_and_changed])
def test_one_recording_answers_all_counts(f):
    assert recordings(compared(f)) == 1


def test_the_count_of_a_single_integer_is_recorded():
    def f(p, t):
        return (np.bincount(np.array([t]), minlength=4) * np.array(p)).sum()

    fast, p = chainrule.compile(f), [1.0, 2.0, 3.0, 4.0]
    for t in (3, 0, 2):
        assert fast.value_and_grad(p, t) == chainrule.value_and_grad(f)(p, t)
    assert fast.dispatch.counts.traces == 1


def counted_beyond(p, ts):
    return (np.bincount(ts, minlength=4)[:4] * np.array(p)).sum()


def as_many_as_there_are(p, ts):
    return p[0] * len(np.bincount(ts)) + p[1] * np.bincount(ts, [0.5] * len(ts), 4)[0]


def counted_values(p, ts):
    xs = [p[0], p[1], p[0]]
    y = xs[2] if ts[0] > 2 else xs[1]
    return p[2] * xs.count(y) + p[3] * (2.0, ts[0], 3).count(ts[1])


@pytest.mark.parametrize("f", [counted_beyond, as_many_as_there_are, counted_values])
def test_other_counts_are_eagers(f):
    compared(f, low=-1)
