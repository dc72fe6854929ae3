"""Calls of functions of several lists, each of which has a length of its own."""

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import exp, log, relu, softmax, tanh
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.runtime.families import MOST_COMBINED, Lengths, SharedCode
from chainrule.compiler.runtime.ledger import (
    DUE,
    EAGER,
    IN_VAIN,
    LEAST_DUE,
    RECORD,
    Ledger,
    allowance,
)
from chainrule.compiler.runtime.lengths import Growth, apart, lengths_of

pytestmark = pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
native = pytest.mark.skipif(chainrule.engine != "native", reason="C counts calls")
P = [0.4, -0.3, 0.7]


def numbers(count, chance):
    return [chance.uniform(-1.0, 1.0) for _ in range(count)]


def likelihoods(p, xs, ys):
    first = sum(tanh(p[0] * x + p[2]) ** 2 for x in xs) / len(xs)
    second = sum(log(1 + exp(-(p[1] * y + p[2]))) for y in ys) / len(ys)
    return first + second


def pairs(p, xs, ys):
    good, bad = [tanh(p[0] * x) for x in xs], [tanh(p[1] * y + p[2]) for y in ys]
    return sum((g - b) ** 2 for g in good for b in bad) / (len(xs) * len(ys))


def crossing(p, xs, ys):
    total = 0.0
    for y in ys:
        weights = softmax([p[0] * x * y for x in xs])
        total = total + (sum(w * x for w, x in zip(weights, xs, strict=True)) - p[1] * y) ** 2
    return total / len(ys)


def discrepancy(p, xs, ys):
    def mean(a, b):
        return sum(exp(-((p[0] * (x - y)) ** 2)) for x in a for y in b) / (len(a) * len(b))

    return p[2] * (mean(xs, xs) + mean(ys, ys) - 2 * mean(xs, ys))


def two_recurrences(p, xs, ys):
    h = 0.0
    for x in xs:
        h = tanh(p[0] * h + p[1] * x)
    for y in ys:
        h = tanh(p[2] * h + p[0] * y)
    return h


def two_tables(p, xs, ys):
    before = [0.5 * j for j in range(len(ys) + 1)]
    for x in xs:
        row = [before[0] + 0.5]
        for j, y in enumerate(ys):
            cost = (p[0] * x - p[1] * y) ** 2
            row.append(cost - log(exp(-before[j]) + exp(-before[j + 1]) + exp(-row[j])))
        before = row
    return before[-1]


def swapped(p, xs, ys):
    """The same sums in another order where the first list is longer."""
    if len(xs) < len(ys):
        first, second = sum(exp(p[0] * x) for x in xs), sum(exp(p[1] * y) for y in ys)
    else:
        second, first = sum(exp(p[1] * y) for y in ys), sum(exp(p[0] * x) for x in xs)
    return log(first) - 2 * log(second)


def one_combination(p, xs, ys):
    """Another function at one combination of lengths, and no other number in the first call."""
    total = pairs(p, xs, ys)
    return total + p[2] * xs[-1] ** 3 if (len(xs), len(ys)) == (5, 8) else total


def exchanged(p, xs, ys):
    """What is done with each number of the one list and of the other changes places."""
    first, second = [p[0] * x for x in xs], [p[1] * y for y in ys]
    if len(xs) % 2:
        first, second = second, first
    between = relu(max(first) - max(second))
    return max(sum(first), -sum(second)) + 2 * max(max(first), -min(second)) + between


def by_name(p, sites):
    return sum(log(1 + exp(-y * p[0] - p[1])) for rows in sites.values() for y in rows) + p[2]


FUNCTIONS = [
    likelihoods,
    pairs,
    crossing,
    discrepancy,
    two_recurrences,
    two_tables,
    swapped,
    one_combination,
    exchanged,
]


def assert_equal(result, expected):
    assert result[0] == pytest.approx(expected[0], rel=1e-10, abs=1e-12)
    assert result[1] == pytest.approx(expected[1], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_every_combination_of_lengths_gives_eagers_numbers(f):
    chance, fast = random.Random(3), chainrule.compile(f, lift=True)
    combinations = list(itertools.product(range(1, 10), range(1, 10)))
    chance.shuffle(combinations)
    for n, m in combinations[:45]:
        p = [0.0 if chance.random() < 0.2 else x for x in P]  # a difference may be hidden
        call = p, numbers(n, chance), numbers(m, chance)
        assert_equal(fast.value_and_grad(*call), chainrule.value_and_grad(f)(*call))
        again = P, numbers(n, chance), numbers(m, chance)
        assert_equal(fast.value_and_grad(*again), chainrule.value_and_grad(f)(*again))


def test_a_call_that_does_more_of_something_than_a_longer_one_is_replayed_too():
    chance, fast = random.Random(1), chainrule.compile(exchanged, lift=True)
    for n, m in [(4, 12), (12, 3), (2, 11), (2, 5), (2, 9), (3, 2), (1, 1), (2, 2), (4, 4), (3, 3)]:
        for _ in range(2):
            call = P, numbers(n, chance), numbers(m, chance)
            assert_equal(fast.value_and_grad(*call), chainrule.value_and_grad(exchanged)(*call))
    assert "recording it raised" not in fast.report()


@pytest.mark.parametrize("f", [likelihoods, pairs, crossing])
def test_combinations_share_code_made_for_the_longest_of_each_list(f):
    chance, fast = random.Random(5), chainrule.compile(f, lift=True)
    combinations = list(itertools.product(range(3, 10), range(3, 10)))
    chance.shuffle(combinations)
    for n, m in combinations:
        fast.value_and_grad(P, numbers(n, chance), numbers(m, chance))
    machines = Counter(id(v.machine) for v in View(fast).variants)
    assert len(machines) < len(combinations) / 3
    assert machines.most_common(1)[0][1] > len(combinations) / 2


def test_lists_by_name_share_code_too():
    chance, fast = random.Random(6), chainrule.compile(by_name, lift=True)
    for _ in range(30):
        sites = {name: numbers(chance.randint(3, 8), chance) for name in "abc"}
        got = fast.value_and_grad(P, sites)
        assert_equal(got, chainrule.value_and_grad(by_name)(P, sites))
    machines = [v.machine for v in View(fast).variants]
    assert len(set(map(id, machines))) < len(machines) / 2


# --- how lists grow -------------------------------------------------------------------------------


def key(*lengths):
    return flatten_call((P, *[[0.5] * n for n in lengths]), {}, differentiate=True).key


def test_lists_grow_independently_where_neither_of_two_calls_is_the_longer_one():
    assert Growth.independent([key(3, 4), key(5, 6), key(7, 6)]) is None
    found = Growth.independent([key(3, 4, 2), key(5, 6, 2), key(6, 5, 2)])
    assert found == Growth({(1,): 1, (2,): 1})


def test_no_two_growing_lists_are_made_as_long_as_each_other_or_nearly():
    growth = Growth({(1,): 1, (2,): 1})
    made = apart({(1,): 9, (2,): 9, (3,): 9}, growth)
    assert made == {(1,): 9, (2,): 11, (3,): 9}
    assert apart({(1,): 9, (2,): 4, (3,): 9}, growth) == {(1,): 9, (2,): 4, (3,): 9}


def test_no_call_is_made_that_has_far_more_pairs_than_any_that_came():
    known = SharedCode()
    for lengths in [(2, 400), (400, 2), (3, 300)]:
        known.meet(key(*lengths))
    call = flatten_call((P, [0.5] * 2, [0.5] * 400), {}, differentiate=True)
    assert Lengths(call.key, known).longest(call) is None
    known = SharedCode()
    for lengths in [(4, 9), (9, 5)]:
        known.meet(key(*lengths))
    call = flatten_call((P, [0.5] * 4, [0.5] * 9), {}, differentiate=True)
    longest = Lengths(call.key, known).longest(call)
    assert lengths_of(longest.key)[1,] * lengths_of(longest.key)[2,] <= MOST_COMBINED * 45
    assert sorted(lengths_of(longest.key).values())[-2:] == [9, 11]


# --- when a combination is recorded ---------------------------------------------------------------


@pytest.fixture
def usual_allowance():
    before, allowance.left = allowance.left, 0.3
    yield
    allowance.left = before


@native
def test_a_structure_is_due_when_its_calls_took_twice_as_long_as_a_recording(usual_allowance):
    ledger = Ledger()
    assert ledger.calls_due == 0
    while ledger._unused < IN_VAIN:
        ledger.recorded(1000)
    assert ledger.calls_due == math.ceil(DUE * RECORD.of(1000) / EAGER.of(1000)) > LEAST_DUE
    allowance.left = math.inf
    assert ledger.calls_due == 0


@native
def test_what_is_due_costs_no_more_for_others_having_been_in_vain(usual_allowance):
    allowance.left, ledger = 0.0, Ledger()
    for _ in range(8):
        ledger.recorded(1000)
    while not ledger.affords_recording():
        ledger.ran_eagerly()
        with ledger.is_due():
            affords = ledger.affords_recording()
        if affords:
            break
    assert affords
    before = ledger._unused
    with ledger.is_due():
        ledger.recorded(1000)
    assert ledger._unused == before


def stream(chance, lengths):
    while True:
        yield P, numbers(chance.choice(lengths), chance), numbers(chance.choice(lengths), chance)


@native
def test_combinations_that_come_again_and_again_are_all_replayed_in_the_end(usual_allowance):
    fast, chance = chainrule.compile(two_tables), random.Random(8)
    allowance.left = 0.0
    lengths = [8, 9, 10, 11]  # sixteen combinations
    for call in itertools.islice(stream(chance, lengths), 12_000):
        fast.value_and_grad(*call)
    before = fast.dispatch.counts.replayed
    recordings = fast.dispatch.counts.traces
    for call in itertools.islice(stream(chance, lengths), 400):
        assert_equal(fast.value_and_grad(*call), chainrule.value_and_grad(two_tables)(*call))
    assert fast.dispatch.counts.replayed - before > 360
    assert recordings <= 40


@native
def test_combinations_that_never_come_again_are_not_recorded(usual_allowance):
    fast, chance = chainrule.compile(by_name), random.Random(9)
    allowance.left = 0.0
    for _ in range(4000):
        sites = {name: numbers(chance.randint(3, 12), chance) for name in "abcde"}
        fast.value_and_grad(P, sites)
    assert fast.dispatch.counts.traces < 12


@native
def test_a_branch_of_a_known_structure_is_not_counted_as_a_structure(usual_allowance):
    def f(p, xs, ys):
        total = pairs(p, xs, ys)
        return total if sum(xs) > 0 else total * p[2]

    fast, chance = chainrule.compile(f), random.Random(10)
    allowance.left = 0.0
    for call in itertools.islice(stream(chance, [7, 8]), 6000):
        assert_equal(fast.value_and_grad(*call), chainrule.value_and_grad(f)(*call))


@native
def test_counting_takes_no_more_memory_for_more_structures(usual_allowance):
    gate = chainrule.compile(likelihoods)
    gate.value_and_grad(P, [0.5], [0.5])
    gate.value_and_grad(P, [0.5], [0.5])
    allowance.left = 0.0
    gate.dispatch.gate.due, gate.dispatch.gate.resting = 3, 10**6
    slow = []
    asked = gate.dispatch.rests
    gate.dispatch.rests = lambda has_graph=False: slow.append(1) or asked(has_graph)
    for n, m in itertools.product(range(2, 90), range(2, 90)):
        gate.value_and_grad(P, [0.5] * n, [0.25] * m)
    assert not slow  # each came once
    for _ in range(3):
        gate.value_and_grad(P, np.array([0.5] * 3), [0.25] * 5)
    assert len(slow) == 1
