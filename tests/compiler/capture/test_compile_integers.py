"""Integers passed to a compiled function: run-time indices, numbers, or static. Never frozen."""

import collections
import itertools
import math
import operator
from collections import Counter, deque

import numpy as np
import pytest
from compile_twins import (
    Box,
    P,
    all_replayed,
    by_ids,
    graded,
    numbers,
    outcome,
    same,
)

import chainrule
from chainrule import Value, maximum, minimum, vsum, where


def test_an_integer_that_selects_is_a_run_time_index():
    ran = all_replayed(by_ids(lambda p, i: p[i] * p[i] + 1, *[(i,) for i in (0, 3, 1, 5, 3, 4, 2)]))
    assert ran.replayed == 7


def test_the_least_of_an_integer_and_itself_is_that_integer():
    all_replayed(by_ids(lambda p, t: p[min(t, t)] * max(t, t), (1,), (4,), (2,), (1,)))


def test_an_integer_compared_selects_a_variant():
    def f(p, token):
        if token == 3:
            return p[0] * 2
        return p[token] * 3

    all_replayed(by_ids(f, (1,), (2,), (3,), (4,), (3,), (0,), (3,)))


@pytest.mark.parametrize(
    "f",
    [
        lambda p, t: p[0] * (t % 2),
        lambda p, t: p[t % 2] * 2,
        lambda p, t: p[t // 2] * 2,
        lambda p, t: p[0] * (t + 1),
        lambda p, t: p[t - 1] * 2 if t else p[5] * 3,
        lambda p, t: p[0] * (t & 1) + p[1] * (t << 1),
        lambda p, t: p[0] * (-t),
        lambda p, t: p[0] * t**2,
        lambda p, t: p[0] * 2**t,
        lambda p, t: p[0] * divmod(t, 2)[0] + divmod(7, t + 1)[1],
        lambda p, t: p[0] * abs(t - 3),
        lambda p, t: p[0] * (t / 2),
        lambda p, t: p[0] * (1 if t in (1, 4) else 2),
        lambda p, t: p[0] * {0: 1.0, 1: 5.0}.get(t, 7.0),
        lambda p, t: p[0] * len(str(10**t)),
        lambda p, t: p[0] * len(f"{t * 'x'}"),
        lambda p, t: p[0] * float(t),
        lambda p, t: p[0] * int(t),
        lambda p, t: p[0] * round(t),
        lambda p, t: p[0] * math.sqrt(t),
        lambda p, t: p[0] * math.factorial(t),
        lambda p, t: p[0] * operator.index(t),
        lambda p, t: p[0] * t.bit_length(),
        lambda p, t: p[0] * [2.0, 3.0, 5.0, 7.0, 11.0, 13.0][t],
        lambda p, t: p[0] * ord("abcxyz"[t]),
        lambda p, t: p[0] * np.arange(6.0)[t],
        lambda p, t: p[0] * np.eye(6)[t, 2] + np.eye(6)[t][1],
        lambda p, t: p[0] * (t > 2),
        lambda p, t: p[0] * bool(t),
        lambda p, t: p[0] if not t else p[1] * 1,
        lambda p, t: p[0] * (t or 9),
        lambda p, t: p[0] * hash(t),
        lambda p, t: p[0] * max(t, 2) + min(t, 3),
        lambda p, t: p[0] * sum([t, 1]),
        lambda p, t: p[0] * len([0] * t),
        lambda p, t: p[0] * (3 if type(t) is int else 4),
        lambda p, t: p[0] * (3 if isinstance(t, int) else 4),
        lambda p, t: p[0] ** t,
        lambda p, t: p[3] ** (t / 2),
    ],
)  # fmt: skip
def test_an_integer_used_as_itself_is_never_frozen(f):
    same(by_ids(f, (1,), (0,), (5,), (2,), (4,), (3,), (1,), (5,)))


@pytest.mark.parametrize(
    "f",
    [
        lambda p, t: vsum(p[i] for i in range(t)),
        lambda p, t: vsum(p[:t]),
        lambda p, t: vsum(p[t:]),
        lambda p, t: vsum(p[i] * i for i in range(t, 6)),
        lambda p, t: vsum(p[i] for i in range(0, 6, t + 1)),
        lambda p, t: vsum(v for i, v in enumerate(p) if i < t),
    ],
)
def test_an_integer_that_bounds_a_loop_gives_as_many_turns(f):
    same(by_ids(f, (2,), (4,), (0,), (5,), (2,), (1,), (3,)))


def test_a_token_used_by_while_gives_as_many_turns():
    def f(p, n):
        y = p[0]
        while n > 0:
            y = (y * p[1]).tanh()
            n -= 1
        return y

    same(by_ids(f, (3,), (0,), (5,), (3,), (1,)))


REMAP = [0, 1, 2, 3, 0, 5]  # the identity, but for one entry


def last_by_keyword(p, xs, n):
    window = deque(maxlen=n)
    for x in xs:
        window.append(p[0] * x)
    return sum(window) + p[1] * (window.maxlen or 0)


def last_by_position(p, xs, n):
    return sum(p[0] * x for x in collections.deque(xs, n)) + p[1]


@pytest.mark.parametrize("f", [last_by_keyword, last_by_position])
def test_how_many_fit_in_a_deque_is_static(f):
    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for n in (2, 3, 2, None, 0, 3, 5, 2):
        for xs in ([1.0, 2.0, 3.0], [0.5, -2.0, 4.0]):
            assert fast.value_and_grad([0.5, 2.0], xs, n) == eager([0.5, 2.0], xs, n)
    assert (fast.dispatch.counts.replayed, fast.dispatch.counts.traces) == (16, 5)
    for n, error in ((-1, ValueError), (2.0, TypeError)):
        with pytest.raises(error) as wanted:
            eager([0.5, 2.0], [1.0], n)
        with pytest.raises(error) as found:
            fast.value_and_grad([0.5, 2.0], [1.0], n)
        assert str(found.value) == str(wanted.value)


def test_a_lookup_table_with_one_odd_entry_is_followed():
    calls = [(0,), (1,), (2,), (3,), (5,), (4,), (4,), (0,)]
    all_replayed(by_ids(lambda p, t: p[REMAP[t]] * 2, *calls))


def test_a_lookup_table_changed_between_calls_is_seen():
    def script(compile):
        table = [0, 1, 2]
        p = numbers(*P)
        fast = compile(lambda t: p[table[t]] * 2)
        for t in (0, 1, 2):
            yield graded(fast(t), *p)
        table[1] = 5
        for t in (0, 1, 2):
            yield graded(fast(t), *p)

    same(script)


def test_a_table_entry_plus_a_constant_is_followed():
    table = [0, 3, 1]
    ran = same(by_ids(lambda p, t: p[table[t] + 1] * p[table[t] + 2], (0,), (1,), (2,), (1,), (0,)))
    assert ran.replayed == 5


@pytest.mark.parametrize("calls", [[(0, 1), (1, 0), (2, 1), (2, 2), (0, 0), (1, 2), (1, 1)]])
def test_two_integers_select_from_a_matrix(calls):
    def script(compile):
        m = [[Value(10.0 * i + j) for j in range(3)] for i in range(3)]
        fast = compile(lambda m, i, j: m[i][j] * m[j][i] + m[i][i])
        for i, j in calls:
            yield graded(fast(m, i, j), *m[0], *m[1], *m[2])

    same(script)


def test_repeated_integers_are_told_from_different_ones():
    def f(p, tokens):
        return vsum(p[t] * (i + 1) for i, t in enumerate(tokens))

    calls = [([0, 1, 2],), ([3, 3, 3],), ([0, 3, 0],), ([2, 2, 1],), ([5, 4, 5],), ([3, 1, 3],)]
    all_replayed(by_ids(f, *calls))


def test_integers_out_of_range_raise_as_eager_does():
    def script(compile):
        p = numbers(*P)
        fast = compile(lambda p, t: p[t] * 2)
        for t in (0, 5, 6, 2, 100, -7, 5, 6):
            yield outcome(lambda t=t: graded(fast(p, t), *p))

    assert str(same(script).results).count("IndexError") == 4


def test_negative_integers_count_from_the_end():
    all_replayed(by_ids(lambda p, t: p[t] * p[0], (-1,), (0,), (-6,), (-2,), (5,), (-1,)))


def test_a_negative_and_the_first_index_never_mix():
    def f(p, a, b):
        return p[a] * 3 + p[b]

    same(by_ids(f, (-1, 0), (0, -1), (5, -6), (-6, 5), (0, 0), (-1, -1)))


def test_booleans_are_static():
    all_replayed(by_ids(lambda p, flag: p[flag] * 2, (True,), (False,), (True,), (1,), (0,)))


def test_labels_of_plus_and_minus_one_are_run_time_numbers():
    def f(p, label, count):
        return (p[0] * label + p[1] * count - label / 2 + 1).tanh()

    ran = all_replayed(by_ids(f, (1, 3), (-1, 3), (1, 8), (-1, 0), (5, 100), (-1, -3)))
    assert ran.recordings < 6, "labels are data: one recording serves them all"


def test_labels_with_a_minus_are_run_time_numbers():
    def f(p, label, count):
        return (1 + -label * p[0]).relu() + p[1] / +label - -count + operator.neg(-count) * p[2]

    ran = all_replayed(by_ids(f, (1, 3), (-1, 3), (1, 8), (-1, 0), (5, 100), (-1, -3)))
    assert ran.recordings < 6, "labels are data: one recording serves them all"


@pytest.mark.parametrize(
    "f",
    [
        lambda p, t: p[0] + t,
        lambda p, t: t + p[0],
        lambda p, t: p[0] - t,
        lambda p, t: t - p[0],
        lambda p, t: p[0] * t,
        lambda p, t: t * p[0],
        lambda p, t: p[0] / t,
        lambda p, t: t / p[0],
        lambda p, t: p[2] ** t,
        lambda p, t: (t + 3) ** p[2],
        lambda p, t: maximum(p[0], t),
        lambda p, t: minimum(t, p[0]) + p[1],
        lambda p, t: max(p[0], t) * p[1],
        lambda p, t: p[0] * 2 if p[0] < t else p[0] * 3,
        lambda p, t: p[0] * 2 if t >= p[0] else p[0] * 3,
        lambda p, t: where(p[0] > t, p[1], p[2]) * p[3],
        lambda p, t: where(t, p[1], p[2]) * p[3],
        lambda p, t: Value(t) * p[0],
        lambda p, t: chainrule.dot(p[:2], [t, 2]),
        lambda p, t: vsum([p[0], t, p[1]]),
        lambda p, t: sum([p[0], p[1]], t),
        lambda p, t: chainrule.atan2(p[0], t),
        lambda p, t: chainrule.clip(p[0], -t, t) if t >= 0 else p[0] * 1,
        lambda p, t: p[0] * (p[1].data + t),
        lambda p, t: p[0] * (t * p[1].data),
        lambda p, t: p[0] * (t / p[1].data),
        lambda p, t: p[0] * (p[2].data > t),
        lambda p, t: 1 + -t * p[0],
        lambda p, t: p[0] - -t,
        lambda p, t: -t - p[0] / -t,
        lambda p, t: p[0] * operator.neg(-t) + p[1] * +t,
        lambda p, t: chainrule.atan2(p[0] * 0, -t) + p[1],
        lambda p, t: max(p[0], -t) * p[1],
        lambda p, t: p[0] * (p[1].data * -t),
        lambda p, t: p[0] * 2 if p[0] < -t else p[0] * 3,
        lambda p, t: p[0] * 2 if -t == 2 else p[0] * -t,
        lambda p, t: p[-t] * p[t] + p[operator.neg(-t)],
        lambda p, t: p[0] * len(range(-t)) + abs(-t) * p[1] + (-t) ** 2,
        lambda p, t: p[2] ** -t,
        lambda p, t: p[0] * float(-t) + p[1] * (-t % 2) + len(f"{-t}"),
    ],
)
def test_integers_combined_with_values_are_never_frozen(f):
    def script(compile):
        p = numbers(*P)
        fast = compile(f)
        for t in (1, 3, -2, 0, 2, 1, -2):
            yield outcome(lambda t=t: graded(fast(p, t), *p))

    same(script)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, int])
def test_numpy_integers_are_integers(kind):
    def script(compile):
        p = numbers(*P)
        fast = compile(lambda p, t: p[t] * 2)
        for t in (0, 3, 1, 3, 5):
            yield graded(fast(p, kind(t)), *p)

    assert same(script).eager == 0


def test_integer_arrays_are_lists_of_integers():
    def f(p, tokens):
        return vsum(p[t] * (i + 1) for i, t in enumerate(tokens[:-1])) * p[tokens[-1]]

    def script(compile):
        p = numbers(*P)
        fast = compile(f)
        for tokens in ([0, 1, 2], [3, 3, 1], [5, 0, 0], [2, 1]):
            yield graded(fast(p, np.array(tokens)), *p)
            yield graded(fast(p, tokens), *p)
            yield graded(fast(p, tuple(tokens)), *p)

    assert same(script).eager == 0


def test_integers_beyond_a_float_do_no_harm():
    def script(compile):
        p = numbers(*P)
        fast = compile(lambda p, n: p[0] * 2)
        other = compile(lambda p, n: p[0] * (n % 7))
        third = compile(lambda p, n: p[0] + n)
        for n in (3, 10**400, 2**64, -(10**400), 2**53 + 1, 3):
            yield graded(fast(p, n), *p)
            yield graded(other(p, n), *p)
            yield outcome(lambda n=n: graded(third(p, n), *p))

    same(script)


def test_a_table_of_plain_numbers_is_read_by_every_integer():
    def script(compile):
        p = numbers(*P)
        tables = [[1.0, 2.0, 1.0, 2.0, 9.0], [5.0, 5.0, 6.0, 5.0, 6.0]]
        fast = compile(lambda p, a, b: p[0] * tables[0][a] + p[1] * tables[1][b])
        for a, b in [(0, 0), (2, 1), (2, 3), (0, 3), (1, 0), (1, 2), (4, 4), (0, 4), (4, 1)]:
            yield graded(fast(p, a, b), *p)

    same(script)


def test_a_symmetric_table_of_plain_numbers_is_read_by_every_pair():
    def script(compile):
        distances = [[float(abs(i - j)) for j in range(6)] for i in range(6)]
        fast = compile(lambda p, a, b: p[0] * distances[a][b])
        weighted = compile(lambda p, a, b: p[a] * p[b] * distances[a][b])
        rng = np.random.default_rng(1)
        p = numbers(*P)
        for a, b in rng.integers(0, 6, size=(80, 2)).tolist():
            yield graded(fast(p, a, b), *p)
            yield graded(weighted(p, a, b), *p)

    same(script)


ODD = [[0.0] * 6 for _ in range(6)]
ODD[2][3] = 5.0
ODD_ARRAY = np.array(ODD)


def odd_entry(a, b):
    return ODD[a][b]


def by_rows(p, a, b):
    row = ODD[a]
    return p[a] * p[b] * row[b] + p[0]


def over_a_sequence(p, *ids):
    return p[0] + vsum(p[a] * p[b] * ODD[a][b] for a, b in itertools.pairwise(ids))


@pytest.mark.parametrize(
    "f",
    [
        lambda p, a, b: p[0] * ODD[a][b],
        lambda p, a, b: p[a] * p[b] * ODD[a][b] + p[0],
        lambda p, a, b: p[a] * p[b] * odd_entry(a, b) + p[0],
        lambda p, a, b: p[a] * p[b] * ODD_ARRAY[a][b] + p[0],
        lambda p, a, b: p[a] * p[b] * ODD_ARRAY[a, b] + p[0],
        lambda p, a, b: p[a] * p[b] * {"table": ODD}["table"][a][b] + p[0],
        by_rows,
        over_a_sequence,
    ],
)
def test_a_table_of_two_dimensions_with_one_odd_entry_is_followed(f):
    """Every integer was seen in its place before the odd combination comes."""
    same(by_ids(f, *EDGES, (2, 3), (2, 4), (1, 3), (2, 3)))


EDGES = [(a, 0) for a in range(6)] + [(0, b) for b in range(6)] + [(1, 1), (4, 5)]


def couplings():
    shared, odd = Value(0.5), Value(5.0)
    matrix = [[shared] * 6 for _ in range(6)]
    matrix[2][3] = odd
    return matrix, [shared, odd]


def by_the_row(matrix, a, b):
    row = matrix[a]
    return row[b]


def by_a_copy(matrix, a, b):
    row = list(matrix[a])
    return row[b]


def by_an_attribute(matrix, a, b):
    boxes = [Box(row=row) for row in matrix]
    return boxes[a].row[b]


def by_an_object(matrix, a, b):
    boxes = [Box(inner=Box(row=row)) for row in matrix]
    box = boxes[a]
    inner = box.inner
    return inner.row[b]


def by_a_slot(matrix, a, b):
    slotted = [Slotted(row) for row in matrix]
    return slotted[a].row[b]


class Slotted:
    __slots__ = ("row",)

    def __init__(self, row):
        self.row = row


def by_a_dict(matrix, a, b):
    rows = {"all": [{"row": row} for row in matrix]}
    return rows["all"][a]["row"][b]


def by_a_loop(matrix, a, b):
    pages = [[row] for row in matrix]
    return vsum(row[b] for row in pages[a])


def by_the_columns(matrix, a, b):
    columns = list(zip(*matrix, strict=True))
    return columns[b][a]


def by_a_table(matrix, a, b):
    row = IDENTITY[a]
    return matrix[row][IDENTITY[b]]


def by_a_table_at_once(matrix, a, b):
    row = matrix[IDENTITY[a]]
    return row[IDENTITY[b]]


def by_a_named_row_of_several(matrix, a, b):
    rows = [matrix[0], matrix[a]]
    return rows[1][b]


def by_numbers_from_data(matrix, a, b):
    numbers = [v.data for v in matrix[a]]
    return matrix[a][0] * 0 + numbers[b]


def by_a_global(matrix, a, b):
    global ROWS
    ROWS = matrix
    try:
        return ROWS[a][b]
    finally:
        del ROWS


def either_way(matrix, a, b):
    return (matrix if matrix else None)[a][b]


def the_row_either_way(matrix, a, b):
    return (matrix[a] if matrix else None)[b]


def by_a_number_made_of_it(matrix, a, b):
    return matrix[a][operator.index(b)]


IDENTITY = [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "read",
    [
        lambda matrix, a, b: matrix[a][b],
        lambda matrix, a, b: np.array(matrix)[a, b],
        lambda matrix, a, b: np.array(matrix)[a][b],
        lambda matrix, a, b: matrix[a][[0, b][1]],
        *(by_the_row, by_a_copy, by_an_attribute, by_an_object, by_a_slot, by_a_dict, by_a_loop),
        *(by_the_columns, by_a_table, by_a_table_at_once, by_a_named_row_of_several),
        *(
            by_numbers_from_data,
            by_a_global,
            either_way,
            the_row_either_way,
            by_a_number_made_of_it,
        ),
    ],
)
def test_a_matrix_of_shared_values_with_one_odd_entry_is_followed(read):
    """Every integer was seen in its place before the odd combination comes."""

    def script(compile):
        matrix, values = couplings()
        fast = compile(lambda p, a, b: p[a] * p[b] * read(matrix, a, b) + p[0])
        p = numbers(*P)
        for a, b in [*EDGES, (2, 3), (2, 4), (1, 3), (2, 3)]:
            yield graded(fast(p, a, b), *p, *values)

    same(script)


def test_a_table_of_three_dimensions_of_shared_values_is_followed():
    def script(compile):
        matrix, values = couplings()
        table = [[[values[0]] * 6] * 6, matrix, [[values[0]] * 6] * 6]
        fast = compile(lambda p, a, b, c: p[a] * p[b] * p[c] * table[a][b][c] + p[0])
        p = numbers(*P)
        pairs = [(1, 2, 0), (1, 0, 3), (0, 2, 3), (2, 2, 3)]
        edges = [(a, b, c) for a in range(3) for b, c in EDGES[::3]]
        for ids in [*edges, *pairs, (1, 2, 3), (1, 2, 4), (0, 2, 3), (1, 2, 3)]:
            yield graded(fast(p, *ids), *p, *values)

    ran = all_replayed(script)
    assert ran.recordings < 60


KINDS = [0, 1, 0, 2, 1, 0]
ARRAY_OF_KINDS = np.array(KINDS)
WORDS = ["a", "bb", "c", "ddd", "ee", "f"]
RAGGED = [[1.0], [1.0, 2.0], [0.0], [0.0] * 3, [3.0, 4.0], [5.0]]
MAYBE = [None, Value(2.0), None, None, Value(3.0), None]
BOXES = [Box(kind=kind) for kind in KINDS]


def named_kinds(a, b):
    first, second = KINDS[a], KINDS[b]
    return first == second


def kinds_of_objects(a, b):
    first = BOXES[a]
    return first.kind == BOXES[b].kind


def kinds_in_a_loop(a, b):
    return len({KINDS[i] for i in (a, b)}) == 1


def kinds_in_an_array(a, b):
    return ARRAY_OF_KINDS[a] == ARRAY_OF_KINDS[b]


@pytest.mark.parametrize(
    "alike",
    [
        lambda a, b: KINDS[a] == KINDS[b],
        lambda a, b: WORDS[a][0] < WORDS[b][0],
        lambda a, b: len(WORDS[a]) == len(WORDS[b]),
        lambda a, b: len(RAGGED[a]) > len(RAGGED[b]),
        lambda a, b: RAGGED[a] < RAGGED[b],
        lambda a, b: MAYBE[a] is None and MAYBE[b] is None,
        lambda a, b: isinstance(MAYBE[a], Value) or isinstance(MAYBE[b], Value),
        lambda a, b: "abcabc"[a] == "aabbcc"[b],
        lambda a, b: range(5, -1, -1)[a] == KINDS[b],
        *(named_kinds, kinds_of_objects, kinds_in_a_loop, kinds_in_an_array),
    ],
)
def test_plain_numbers_that_two_integers_select_meet_in_a_branch(alike):
    f = lambda p, a, b: p[a] * p[b] if alike(a, b) else p[a] + p[b]  # noqa: E731
    rng = np.random.default_rng(1)
    same(by_ids(f, *EDGES, *rng.integers(0, 6, size=(80, 2)).tolist()))
    among_others = lambda p, c, a, b: f(p, a, b) * p[c]  # noqa: E731
    same(by_ids(among_others, *rng.integers(0, 4, size=(80, 3)).tolist()))


def test_plain_numbers_that_three_integers_select_meet_in_a_branch():
    def f(p, a, b, c):
        together = KINDS[a] + KINDS[b] + KINDS[c] == 3
        return p[a] * p[b] * p[c] if together else p[a] + p[b] * p[c]

    rng = np.random.default_rng(1)
    same(by_ids(f, *rng.integers(0, 6, size=(300, 3)).tolist()))


def same_one(p, a, b):
    first, second = p[a], p[b]
    return first is second


@pytest.mark.parametrize(
    "alike",
    [
        lambda p, a, b: p[a] is p[b],
        lambda p, a, b: p[a] is not p[b],
        lambda p, a, b: p[a] in [p[b], p[0]],
        lambda p, a, b: p[a] not in p[: len(p) // 2] and p[b] in p[:2],
        lambda p, a, b: len({p[a], p[b]}) == 1,
        lambda p, a, b: len(set([p[a], p[b]])) == 1,  # noqa: C405
        lambda p, a, b: id(p[a]) == id(p[b]),
        lambda p, a, b: p.index(p[a]) == p.index(p[b]),
        lambda p, a, b: [p[a], p[b]].count(p[0]) == 1,
        lambda p, a, b: p[a] == p[b],
        lambda p, a, b: p[a] != p[b],
        same_one,
    ],
)
def test_integers_that_select_one_value_are_told_from_those_that_select_two(alike):
    f = lambda p, a, b: p[a] * p[b] if alike(p, a, b) else p[a] + p[b]  # noqa: E731
    rng = np.random.default_rng(1)
    same(
        by_ids(
            f, (0, 0), (1, 1), (0, 1), (2, 2), (1, 2), *rng.integers(0, 6, size=(60, 2)).tolist()
        )
    )


def test_labels_that_integers_select_are_seen():
    def script(compile):
        p = [Value(x, label="ab"[i % 3 == 0]) for i, x in enumerate(P)]
        fast = compile(lambda a, b: p[a] * p[b] if p[a].label == p[b].label else p[a] + p[b])
        rng = np.random.default_rng(1)
        for a, b in rng.integers(0, 6, size=(60, 2)).tolist():
            yield graded(fast(a, b), *p)
        p[1].label = "b"
        for a, b in rng.integers(0, 6, size=(60, 2)).tolist():
            yield graded(fast(a, b), *p)

    same(script)


# --- how many recordings ordinary programs need ---------------------------------------------------


def tables(rows, columns):
    rng = np.random.default_rng(0)
    return [[Value(x) for x in row] for row in rng.normal(size=(rows, columns)).tolist()]


class Embedding:
    def __init__(self, rows):
        self.rows = rows

    def __call__(self, token):
        return self.rows[token]


EMBEDDING = Embedding(tables(6, 4))


def embedded(tokens):
    total = Value(0.0)
    for pos, (token, target) in enumerate(itertools.pairwise(tokens)):
        x = [a * (pos + 1) for a in EMBEDDING(token)]
        logits = [vsum(a * b for a, b in zip(x, row, strict=True)) for row in EMBEDDING.rows]
        total = total - logits[target] + logits[tokens[0]]
    return total


def embedded_by_one_call(tokens):
    pairs = itertools.pairwise(tokens)
    return vsum(
        [a * 2 for a in EMBEDDING(t)][2] * [a * 3 for a in EMBEDDING.rows[u]][1] for t, u in pairs
    )


def embedded_by_a_table(tokens):
    return vsum(vsum(EMBEDDING.rows[IDENTITY[t]]) * (i + 1) for i, t in enumerate(tokens))


@pytest.mark.parametrize("f", [embedded, embedded_by_one_call, embedded_by_a_table])
def test_tokens_that_select_rows_need_no_combinations(f):
    def script(compile):
        fast = compile(f)
        rng = np.random.default_rng(2)
        for tokens in rng.integers(0, 6, size=(100, 8)).tolist():
            yield fast(tokens)

    assert all_replayed(script).recordings < 25


def test_transitions_between_neighbours_need_their_pairs_only():
    def script(compile):
        transitions = tables(4, 4)
        fast = compile(lambda tags: vsum(transitions[a][b] for a, b in itertools.pairwise(tags)))
        rng = np.random.default_rng(2)
        for tags in rng.integers(0, 4, size=(150, 6)).tolist():
            yield fast(tags)

    assert all_replayed(script).recordings < 60


def overwritten(p, a, b):
    memory = list(p)
    memory[a] = p[0] * 100
    return memory[b] * 2


def swapped(p, a, b):
    memory = list(p)
    memory[a], memory[b] = memory[b], memory[a]
    return memory[-1] * 2 + memory[0] * 3


def moved(p, a, b):
    memory = list(p)
    memory.insert(a, memory.pop(b))
    return vsum(x * i for i, x in enumerate(memory))


def scattered(p, a, b):
    totals = [Value(0.0) for _ in p]
    totals[a] = totals[a] + p[0]
    totals[b] = totals[b] + p[1]
    return vsum(t * t * (i + 1) for i, t in enumerate(totals))


def deleted(p, a, b):
    memory = list(p)
    del memory[a]
    return memory[b - 1] * 2 + memory[0]


def sliced(p, a, b):
    return vsum(p[a:b]) + vsum(p[b:a:-1]) * 2 + p[0]


def rotated(p, a, b):
    memory = p[a:] + p[:a]
    return memory[b] * 2 + memory[0]


def windowed(p, a, b):
    return vsum(p[k] * (k + 1) for k in range(a, b)) + p[a]


def counted(p, a, b):
    return p[a] * math.gcd(a, b) + p[b]


def shared(p, a, b):
    matrix = [[p[abs(i - j)] for j in range(6)] for i in range(6)]
    return matrix[a][b] * 2 + matrix[b][a]


def in_steps(p, a, b):
    rows = [[x * (i + 1) for x in p] for i in range(6)]
    row = rows[a]
    return row[b] * row[a]


@pytest.mark.parametrize(
    "f",
    [
        *(overwritten, swapped, moved, scattered, deleted, sliced, rotated, windowed, counted),
        *(shared, in_steps),
    ],
)
def test_integers_that_meet_are_told_from_those_that_do_not(f):
    rng = np.random.default_rng(1)
    same(by_ids(f, *rng.integers(0, 6, size=(60, 2)).tolist()))
    beside_another = lambda p, c, a, b: f(p, a, b) * p[c]  # noqa: E731
    same(by_ids(beside_another, *rng.integers(0, 4, size=(60, 3)).tolist()))
    after_another = lambda p, a, b, c: f(p, a, b) * p[c] + p[a]  # noqa: E731
    same(by_ids(after_another, *rng.integers(0, 4, size=(60, 3)).tolist()))


@pytest.mark.parametrize(
    "method",
    [
        lambda p, ts: vsum(p[t] for t in ts[1:]),
        lambda p, ts: p[ts[-1]] * p[ts[0]],
        lambda p, ts: vsum(p[a] * p[b] for a, b in itertools.pairwise(ts)),
        lambda p, ts: vsum(p[t] * i for i, t in enumerate(reversed(ts))),
        lambda p, ts: vsum(p[t] * i for i, t in enumerate(sorted(ts))),
        lambda p, ts: p[max(ts)] * p[min(ts)] * 2,
        lambda p, ts: p[0] * len(set(ts)),
        lambda p, ts: p[ts.index(min(ts))] * 1,
        lambda p, ts: p[0] * ts.count(1) + p[1],
        lambda p, ts: vsum(p[t] * n for t, n in Counter(ts).items()),
        lambda p, ts: vsum(p[t] for t in dict.fromkeys(ts)),
        lambda p, ts: p[0] * sum(ts),
        lambda p, ts: p[0] * math.prod(ts) + p[1],
        lambda p, ts: p[0] * ts[0] * (ts == [1, 2, 3]) + p[1],
        lambda p, ts: p[0] * np.array(ts).sum() + p[1],
        lambda p, ts: p[0] * int(np.max(ts)) + p[1],
        lambda p, ts: p[0] * (3 if 2 in ts else 4),
        lambda p, ts: p[0] * sum(t * 10**i for i, t in enumerate(ts)),
        lambda p, ts: p[0] * int("".join(map(str, ts))),
        lambda p, ts: vsum(p[t] for t in ts if t != 3) + p[0],
    ],
)
def test_lists_of_integers_taken_apart_in_any_way(method):
    calls = [[1, 2, 3], [3, 1, 2], [2, 2, 2], [1, 1, 3], [0, 5, 3], [1, 2, 3], [5, 4, 1]]
    same(by_ids(method, *[(ts,) for ts in calls]))


def test_string_keys_and_none_are_static():
    def script(compile):
        p = {"a": Value(2.0), "b": Value(3.0)}
        fast = compile(lambda p, name, mode=None: p[name] * (2 if mode is None else 5))
        for name, mode in [("a", None), ("b", None), ("a", "x"), ("b", "y"), ("a", None)]:
            yield graded(fast(p, name, mode), *p.values())
            yield graded(fast(p, name, mode=mode), *p.values())

    assert same(script).eager == 0


@pytest.mark.parametrize("table", [[0, True, 2, False], [3, 1, True, True]])
def test_the_type_of_what_an_integer_selects_is_seen(table):
    def f(p, t, u):
        mixed = [t == 1, t, t != 2, u]
        return p[0] * (3 if isinstance(table[t], bool) else 5) + p[type(mixed[u]) is bool]

    same(by_ids(f, *itertools.product(range(4), repeat=2)))
