"""Tables of states by integers: dicts of dicts, and dicts with tuples for keys."""

import itertools
import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from compile_twins import assert_eagers_outcome, outcome, recordings

import chainrule
from chainrule import tanh

pytestmark = pytest.mark.usefixtures("unchecked")

ROWS = {0: {0: 1, 1: 0}, 1: {0: 0, 1: 2}, 2: {0: 2, 1: 0}}
PAIRS = {(s, t): ROWS[s][t] for s in range(3) for t in range(2)}
TRIPLES = {(s, t, k): (s + 2 * t + k) % 3 for s in range(3) for t in range(2) for k in range(2)}
NEGATIVE = {(-1, 2**40): 1, (-1, 0): 2, (2**40, 0): 0, (0, -1): -1, (1, -1): 2**40}
NAMES = {("a", 0): "b", ("a", 1): "a", ("b", 0): "a", ("b", 1): "c", ("c", 0): "c", ("c", 1): "a"}
WEIGHTS = {0: {0: 0.5, 1: 1.5}, 1: {0: 2.5, 1: -1.0}, 2: {0: 0.0, 1: 4.0}}
OTHER_KEYS = {0: {0: 1, 1: 0}, 1: {0: 2}, 2: {1: 0, 0: 2}}
OTHER_ORDER = {0: {0: 1, 1: 0}, 1: {1: 2, 0: 0}, 2: {0: 2, 1: 0}}
FLOATS = {(0, 0): 1, (0.0, 1): 2, (1, 0): 0, (1, 1.0): 2, (2, 0): 0, (2, 1): 1}
TRUTHS = {(0, False): 1, (0, True): 2, (True, 0): 0, (1, 1): 2, (2, 0): 0, (2, 1): 1}
BESIDE = {None: 5, "a": 6, (): 7, (0,): 8, (0, None): 9, ("a", 1): 10, (0, (1,)): 11, **PAIRS}
NUMPYS = {(np.int64(s), t): n for (s, t), n in PAIRS.items()}
CLOSED = {(0, 1), (1, 0), (2, 1)}


def compared(f, low=0, high=2, count=60, kinds=list, **options):
    """The function compiled, after calls with all kinds of integers that gave eager's results."""
    rng = random.Random(f.__name__)
    fast = chainrule.compile(f, on_fallback="eager", **options)
    eager = chainrule.value_and_grad(f)
    for _ in range(count):
        p = [rng.uniform(0.2, 2) for _ in range(3)]
        arguments = p, kinds([rng.randrange(low, high) for _ in range(8)])
        assert_eagers_outcome(fast, eager, *arguments)
    return fast


def of_rows(table):
    def f(p, ts):
        state, total = 0, p[0]
        for t in ts:
            state = table[state][t]
            total = tanh(total + p[state])
        return total

    return f


def of_pairs(table):
    def f(p, ts):
        state, total = 0, p[0]
        for t in ts:
            state = table[state, t]
            total = tanh(total + p[state % 3])
        return total

    return f


def of_triples(p, ts):
    state, total = 0, p[0]
    for k, t in enumerate(ts):
        state = TRIPLES[(state, t, k % 2)]
        total = total + p[state] * (k + 1)
    return total


def of_names(p, ts):
    state, total = "a", p[0]
    for t in ts:
        state = NAMES[state, t]
        total = total * 0.5 + p["abc".index(state)]
    return total


def of_weights(p, ts):
    state, total = 0, p[0]
    for t in ts:
        total = total + WEIGHTS[state][t] * p[state]
        state = ROWS[state][t]
    return total


def of_parameters(p, ts):
    table = {s: {t: p[s] * (t + 1) for t in range(2)} for s in range(3)}
    pairs = {(s, t): p[t] - p[s] for s in range(3) for t in range(2)}
    state, total = 0, p[0]
    for t in ts:
        total = total + table[state][t] * pairs[t, state % 2]
        state = PAIRS[state, t]
    return total


def with_defaults(p, ts):
    state, total = 0, p[0]
    for t in ts:
        state = PAIRS.get((state, t + 1), 2)
        total = total * 0.5 + p[state] * ROWS[state].get(t + 1, 0)
    return total


def of_memberships(p, ts):
    inside = sum((a, b) in CLOSED for a, b in itertools.pairwise(ts))
    return p[0] * inside + p[1] * sum((t, a) not in PAIRS for t, a in enumerate(ts)) + p[2]


def of_a_list_of_dicts(p, ts):
    state, total = 0, p[0]
    for t in ts:
        row = [ROWS[0], ROWS[1], ROWS[2]][state]
        state = row[t]
        total = total + p[state] * len(row) + sum(row.values()) * p[0] + (1 in row)
    return total


ONE_RECORDING = {
    "rows": of_rows(ROWS),
    "pairs": of_pairs(PAIRS),
    "truths": of_pairs(TRUTHS),
    "beside": of_pairs(BESIDE),
    "triples": of_triples,
    "names": of_names,
    "weights": of_weights,
    "parameters": of_parameters,
    "defaults": with_defaults,
    "memberships": of_memberships,
    "list_of_dicts": of_a_list_of_dicts,
}


@pytest.mark.parametrize("f", ONE_RECORDING.values(), ids=ONE_RECORDING)
def test_one_recording_answers_all_integers(f):
    assert recordings(compared(f)) == 1


@pytest.mark.parametrize("f", ONE_RECORDING.values(), ids=ONE_RECORDING)
def test_numpys_integers_are_looked_up_too(f):
    assert recordings(compared(f, kinds=np.array)) == 1


@pytest.mark.parametrize("dtype", [np.int32, np.bool_])
@pytest.mark.parametrize("f", [of_rows(ROWS), of_pairs(PAIRS)])
def test_narrow_integers_and_truths_of_numpys_give_eagers_results(f, dtype):
    compared(f, kinds=lambda ts: np.array(ts, dtype))


@pytest.mark.parametrize("f", [of_rows(ROWS), of_pairs(PAIRS)])
def test_bools_are_the_integers_0_and_1(f):
    compared(f, kinds=lambda ts: [t == 1 for t in ts])


def test_keys_may_be_negative_and_large():
    def f(p, ts):
        state, total = -1, p[0]
        for t in ts:
            state = NEGATIVE.get((state, t * 2**40), 0)
            total = total * 0.5 + p[state % 3]
            state = NEGATIVE.get((state, -t), -1)
        return total

    assert recordings(compared(f)) == 1


def test_integers_that_a_shift_would_bring_together_are_told_apart():
    table = {(0, 0): 0.5, (1, 5): 1.5, (2, 0): 2.5}

    def f(p, ts):
        return sum(p[0] * table.get((t, u), 0.25) for t in ts for u in (5, 5 + 2**21, -(2**21)))

    assert recordings(compared(f, low=-1, high=4)) == 1


@pytest.mark.parametrize(
    "f",
    [
        *(of_rows(ROWS), of_pairs(PAIRS), of_triples, of_names, of_weights),
        *(of_parameters, of_a_list_of_dicts),
    ],
)
@pytest.mark.parametrize("options", [{}, {"lift": False}])
def test_a_key_that_is_not_there_raises_what_eager_raises(f, options):
    compared(f, low=-1, high=3, **options)


def caught(p, ts):
    state, total = 0, p[0]
    for t in ts:
        try:
            state = PAIRS[state, t]
        except KeyError as error:
            total = total + error.args[0][1] * p[1]
        total = total * 0.5 + p[state]
    return total


def in_a_side(p, ts):
    state, total = 0, p[0]
    for t in ts:
        if t > 0:
            state = PAIRS[state, t - 1]
            total = total + p[state]
        else:
            total = total - ROWS[state][0] * p[1]
    return total


def gone_through(p, ts):
    state, total = 0, p[0]
    for t in ts:
        for key, value in ROWS[state].items():
            total = total * 0.5 + p[value] * (key + 1)
        state = ROWS[state][t]
    return total


def inserting(p, ts):
    table, counts = defaultdict(int, PAIRS), Counter(PAIRS)
    total = sum(p[table[t, a]] + p[counts[a, t] % 3] for t, a in zip(ts, ts[::-1], strict=True))
    return total + len(table) * p[0] + len(counts) * p[1]


def changed_meanwhile(p, ts):
    rows = {s: dict(row) for s, row in ROWS.items()}
    state, total = 0, p[0]
    for t in ts:
        row = rows[state]
        row[t] = (row[t] + 1) % 3
        state = rows[state][t]
        total = total * 0.5 + p[state]
    return total


def which_one_it_is(p, ts):
    return sum(p[0] * (ROWS[t] is ROWS[0]) + p[1] * (ROWS[t] == ROWS[1]) for t in ts) + p[2]


def returned(p, ts):
    return (sum(p), ROWS[ts[0]])[0] * ROWS[ts[0]][ts[1]]


@pytest.mark.parametrize("low", [0, -1])
@pytest.mark.parametrize(
    "f",
    [
        *(of_rows(OTHER_KEYS), of_rows(OTHER_ORDER), of_pairs(FLOATS), of_pairs(NUMPYS)),
        *(caught, in_a_side, gone_through, inserting, changed_meanwhile, which_one_it_is),
        *(returned, with_defaults, of_memberships),
    ],
)
def test_eagers_results_wherever_a_table_is_another(f, low):
    compared(f, low=low)


def test_rows_in_another_order_are_gone_through_in_theirs():
    def f(p, ts):
        total = p[0]
        for t in ts:
            for key, value in OTHER_ORDER[t].items():
                total = total * 0.5 + p[key] * (value + 1)
        return total

    compared(f, high=3)


def test_a_row_that_the_function_returns_is_the_callers_own():
    def f(p, ts):
        return ROWS[ts[0]]

    fast = chainrule.compile(f, on_fallback="eager")
    for t in (0, 1, 2, 0, 1, 2):
        assert fast([0.5], [t]) is ROWS[t]


@pytest.mark.parametrize("form", ["rows", "pairs"])
def test_a_table_that_is_changed_between_calls_is_read_again(form):
    rows = {s: dict(row) for s, row in ROWS.items()}
    pairs = dict(PAIRS)
    f = of_rows(rows) if form == "rows" else of_pairs(pairs)
    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    results = []
    for n in range(6):
        if n == 3:
            rows[0][1] = pairs[0, 1] = 2
        if n == 5:
            del rows[2], pairs[2, 0], pairs[2, 1]
        arguments = [0.5, 1.5, -1.0], [1, 1, 0, n % 2]
        results.append(outcome(fast.value_and_grad, *arguments))
        assert results[-1] == outcome(eager, *arguments)
    assert results[1] != results[3]
    assert results[5][0] == "KeyError"
