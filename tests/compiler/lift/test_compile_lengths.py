"""Lists of integers of every length: one program serves them all, or each its own; never another's.

Each program here runs lifted and on the tape, side by side, at many lengths in many orders.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from compile_view import View
from test_compile_lifted import (
    GPTS,
    VOCAB,
    Pair,
    gpt_params,
    matvec,
    microgpt,
    normal,
    rmsnorm,
    softmax,
    with_object_arrays,
)

import chainrule
from chainrule import Value, exp, log, maximum, relu, sigmoid, sin, sqrt, tanh, vsum, where
from chainrule.compiler.training import batches

pytest.importorskip("llvmlite")

ROWS, WIDTH, LONGEST = 6, 3, 9


def params(seed: int, scale: float = 1.0) -> Any:
    rng = np.random.default_rng(seed)
    shapes = {"e": (ROWS, WIDTH), "w": (WIDTH, WIDTH), "u": (WIDTH,), "pos": (LONGEST, WIDTH)}
    return {name: rng.normal(size=shape) * scale for name, shape in shapes.items()}


def orders(most: int, seed: int) -> Iterator[list[int]]:
    """Lengths: longest first or shortest first, then mixed."""
    rng = random.Random(seed)
    for first in (range(most, 0, -1), range(1, most + 1)):
        yield [*first, *(rng.randint(1, most) for _ in range(most))]


def lifted_programs(pair: Pair) -> int:
    """How many pieces of machine code there are."""
    return len({id(v.machine) for v in pair.variants if v.machine is not None})


def rows_of(p, tokens):
    return [
        [a + b for a, b in zip(p["e"][t], q, strict=True)]
        for t, q in zip(tokens, p["pos"], strict=False)
    ]


# --- programs over one list -----------------------------------------------------------------------


def pooled(p, tokens):
    """Mean of the rows."""
    rows = [p["e"][t] for t in tokens]
    mean = [sum(column) / len(tokens) for column in zip(*rows, strict=True)]
    return sum(tanh(x) * u for x, u in zip(matvec(mean, p["w"]), p["u"], strict=True))


def attention(p, tokens):
    """Every position looks at itself and the ones before."""
    rows = rows_of(p, tokens)
    out = []
    for i, q in enumerate(rows):
        weights = softmax([sum(a * b for a, b in zip(q, k, strict=True)) for k in rows[: i + 1]])
        mixed = [
            sum(w * k[j] for w, k in zip(weights, rows[: i + 1], strict=True)) for j in range(3)
        ]
        out.append(sum(a * u for a, u in zip(mixed, p["u"], strict=True)))
    return sum(tanh(x) for x in out) / len(tokens)


def likelihood(p, tokens):
    """The probability of each token after the one before; one token has none before."""
    total = 0.0
    for i in range(len(tokens)):
        probs = softmax([sum(matvec(p["e"][tokens[i - 1]], [row])) for row in p["e"]])
        total = total - log(probs[tokens[i]])
    return total / len(tokens)


def by_length(p, tokens):
    """Other operations for short lists."""
    rows = [sum(p["e"][t]) for t in tokens]
    if len(tokens) < 3:
        return sum(x * x for x in rows) * 2
    if len(tokens) == 5:
        return sum(sin(x) for x in rows) + rows[2]
    return sum(tanh(x) for x in rows)


def as_numbers(p, tokens):
    """Integers that select and count."""
    return sum(p["u"][0] * t + sum(p["e"][t]) * (i + 1) - t for i, t in enumerate(tokens))


def length_numbers(p, tokens):
    """Constants that follow the length, alone and together with the place."""
    n = len(tokens)
    xs = [p["e"][t][i % WIDTH] * (1.0 / n) + (i + 1) / n for i, t in enumerate(tokens)]
    return sum(x * x * float(i + 1 if n < 5 else 2) for i, x in enumerate(xs)) * n**-0.5


def last_only(p, tokens):
    return sum(tanh(a * u) for a, u in zip(rows_of(p, tokens)[-1], p["u"], strict=True))


def extremes(p, tokens):
    """Python's max and min over as many Values as there are integers."""
    xs = [sum(row) for row in rows_of(p, tokens)]
    return max(xs) * 2 + min(xs) * max(x * x for x in xs) + max(x.data for x in xs) * p["u"][0]


def guarded(p, tokens):
    """Two branches for each integer."""
    total = []
    for t in tokens:
        x = sum(p["e"][t])
        y = x * x if tanh(x) > 0 else x * 3
        total.append(y * 0.5 if exp(x) < 2 else y + 1)
    return sum(total)


def one_guard(p, tokens):
    """One branch, on a sum over all."""
    y = vsum(sum(p["e"][t]) * (i + 1) for i, t in enumerate(tokens))
    return max(y * 2, y * y) if y > 0 else min(y, -y) * 3


def recurrence(p, tokens):
    h = [0.0] * WIDTH
    for t in tokens:
        h = [tanh(a + b) for a, b in zip(matvec(h, p["w"]), p["e"][t], strict=True)]
    return sum(a * u for a, u in zip(h, p["u"], strict=True))


def pairs(p, tokens):
    """Neighbours, and everything with everything."""
    xs = [sum(p["e"][t]) for t in tokens]
    near = sum(a * b for a, b in itertools.pairwise(xs))
    return near + sum(a * b for a in xs for b in xs[::-1]) / len(xs)


def prefix_sums(p, tokens):
    xs = [p["e"][t][1] for t in tokens]
    sums = [sum(xs[: i + 1]) for i in range(len(xs))]
    return sum(tanh(s) * x for s, x in zip(sums, xs[::-1], strict=True))


def few_terms(p, tokens):
    """Sums with at most as many terms as are added in one go."""
    xs = [p["e"][t][0] for t in tokens[:4]]
    return sqrt(vsum(x * x for x in xs) + 1) + xs[0] + vsum(xs) * xs[-1]


def selected(p, tokens):
    return sum(
        where(p["e"][t][0] > p["u"][0], p["e"][t][1], p["u"][1] * i)
        + maximum(p["e"][t][2], p["u"][2])
        for i, t in enumerate(tokens)
    )


def pointers(p, tokens):
    """Integers that select among as many results as there are integers."""
    hidden = [tanh(sum(p["e"][i % ROWS])) * (i + 1) for i in range(len(tokens))]
    return sum(hidden[t] * (i + 1.0) for i, t in enumerate(tokens))


def with_extras(p, tokens):
    xs = [sum(row) for row in rows_of(p, tokens)]
    return sum(x * x for x in xs), {"each": xs, "top": max(x.data for x in xs), "n": len(xs)}


def unused(p, tokens):
    """Most parameters take no part; the first number is what is returned, nearly."""
    return p["u"][0] + 0 * sum(p["e"][t][0] for t in tokens)


PROGRAMS = [
    *(pooled, attention, likelihood, by_length, as_numbers, length_numbers, last_only, extremes),
    *(guarded, one_guard, recurrence, pairs, prefix_sums, few_terms, selected, pointers),
    *(with_extras, unused),
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_every_length_in_every_order(program):
    rng = random.Random(3)
    for k, order in enumerate(orders(5, 1)):
        pair = Pair(program)
        for step, length in enumerate(order):
            tokens = [rng.randrange(ROWS if step > 3 else 3) for _ in range(length)]
            pair.same(params(step + 10 * k, scale=0.7), tokens)
        assert "differs" not in pair.lifted.report()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_parameters_of_zero_hide_nothing(program):
    """Where the first result at each length says nothing about it."""
    pair, rng = Pair(program), random.Random(4)
    for length in (5, 3, 2):
        pair.same(params(0, scale=0.0), [rng.randrange(ROWS) for _ in range(length)])
    for seed, length in enumerate((3, 5, 2, 4)):
        pair.same(params(seed), [rng.randrange(ROWS) for _ in range(length)])


# --- differently written arguments ----------------------------------------------------------------


def total_of(p, tokens):
    return sum(tanh(sum(p["e"][t])) * (i + 1) for i, t in enumerate(tokens))


KINDS: dict[str, Callable[[list[int]], Any]] = {
    "list": list,
    "tuple": tuple,
    "array": lambda ids: np.array(ids),
    "small array": lambda ids: np.array(ids, np.uint8),
    "slice of an array": lambda ids: np.array([[i, 0] for i in ids])[:, 0],
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_lists(kind):
    pair, rng = Pair(total_of), random.Random(5)
    for seed, length in enumerate((4, 6, 1, 2, 5, 3, 6, 4)):
        pair.same(params(seed), KINDS[kind]([rng.randrange(ROWS) for _ in range(length)]))


def two_lists(p, a, b):
    return sum(sum(p["e"][t]) for t in a) * sum(tanh(p["e"][t][0]) for t in b) / len(b)


def dict_of_lists(p, batch):
    (name, k), ids = batch["key"], batch["ids"]
    return sum(sum(p["e"][t]) * (i + k) for i, t in enumerate(ids)) * len(name)


def list_of_lists(p, batch):
    return sum(sum(p["e"][t]) ** (2 + k) for k, ids in enumerate(batch) for t in ids)


def numbers_and_ids(p, xs, ids, scale):
    return sum(x * sum(p["e"][i]) for x, i in zip(xs, ids, strict=False)) * scale + xs[0]


def some(rng: random.Random, count: int) -> list[int]:
    return [rng.randrange(ROWS) for _ in range(count)]


MORE: dict[str, tuple[Any, Callable[[random.Random], tuple[Any, ...]]]] = {
    "two lists": (two_lists, lambda r: (some(r, r.randint(1, 4)), some(r, r.randint(1, 4)))),
    "the same list twice": (two_lists, lambda r: [some(r, r.randint(1, 4))] * 2),
    "dict": (
        dict_of_lists,
        lambda r: ({"key": ("ab", r.randint(1, 2)), "ids": some(r, r.randint(1, 5))},),
    ),
    "lists of lists": (
        list_of_lists,
        lambda r: ([some(r, r.randint(1, 3)) for _ in range(r.randint(1, 3))],),
    ),
    "ragged lists": (list_of_lists, lambda r: ([some(r, r.randint(0, 3)) for _ in range(2)],)),
    "floats beside": (
        numbers_and_ids,
        lambda r: (np.linspace(-1, r.random(), 4), some(r, r.randint(1, 4)), r.random()),
    ),
    "floats of other lengths": (
        numbers_and_ids,
        lambda r: ([r.random() for _ in range(r.randint(1, 3))], some(r, r.randint(1, 4)), 2),
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_more_than_one_list(name):
    program, arguments = MORE[name]
    pair, rng = Pair(program), random.Random(6)
    for seed in range(14):
        pair.same(params(seed, scale=0.5), *arguments(rng))


# --- one program for all lengths ------------------------------------------------------------------


@pytest.mark.parametrize(("model", "params"), GPTS, ids=lambda x: x.__name__.strip("<>"))
def test_gpts_of_all_lengths(model, params):
    pair, rng = Pair(model), random.Random(1)
    for seed, length in enumerate((6, 2, 4, 1, 6, 2)):
        pair.same(params(seed), [rng.randrange(VOCAB) for _ in range(length + 1)])
    assert all(v.machine is not None for v in pair.variants)


@pytest.mark.parametrize(("model", "params"), GPTS, ids=lambda x: x.__name__.strip("<>"))
def test_a_gpt_has_one_program_for_all_lengths(model, params):
    pair, rng = Pair(model), random.Random(1)
    for seed, length in enumerate((6, 2, 4, 5, 3, 1, 6, 2, 5, 1)):
        tokens = [rng.randrange(VOCAB) for _ in range(length + 1)]
        pair.same(params(seed), tokens, lifted=True)
    assert lifted_programs(pair) == 1


def test_a_gpt_of_object_arrays_has_one_program_for_all_lengths():
    pair, rng = Pair(with_object_arrays), random.Random(1)
    for seed, length in enumerate((6, 2, 4, 5, 3)):
        pair.same(gpt_params(seed), [rng.randrange(VOCAB) for _ in range(length + 1)])
    assert lifted_programs(pair) == 1
    pair.same(gpt_params(9), [3, 1])  # a product with one number is no sum there


def by_heads(p, tokens):
    """All positions of one head, then of the next."""
    x = [rmsnorm(p["wte"][t]) for t in tokens]
    q, k, v = ([matvec(row, p[name]) for row in x] for name in ("wq0", "wk0", "wv0"))
    out: list[list[Any]] = [[] for _ in tokens]
    for h in range(4):
        at = slice(2 * h, 2 * h + 2)
        for t in range(len(tokens)):
            weights = softmax(
                [sum(a * b for a, b in zip(q[t][at], k[u][at], strict=True)) for u in range(t + 1)]
            )
            for j in (2 * h, 2 * h + 1):
                out[t].append(sum(w * v[u][j] for u, w in enumerate(weights)))
    return sum(tanh(sum(matvec(row, p["head"]))) for row in out) / len(tokens)


def by_features(p, tokens):
    """All positions of one number of a row, then of the next."""
    columns = [[p["wte"][t][j] + p["wpe"][i][j] for i, t in enumerate(tokens)] for j in range(8)]
    hidden = [
        [tanh(sum(w * c[i] for w, c in zip(row, columns, strict=True))) for i in range(len(tokens))]
        for row in p["up0"]
    ]
    return sum(sum(row) for row in hidden) / len(tokens)


def mean_of_rows(p, tokens):
    rows = [p["wte"][t] for t in tokens]
    mean = [sum(column) / len(tokens) for column in zip(*rows, strict=True)]
    return sum(tanh(x) * u for x, u in zip(matvec(mean, p["wq0"]), p["wte"][0], strict=True))


def two_sums(p, tokens):
    """Of one shape; and something after the terms that there are as many of as integers."""
    v, w = ([tanh(p["wte"][t][j]) for t in tokens] for j in (0, 1))
    return sum(v) + 2 * sum(w)


def many_sums(p, tokens):
    x, y, z = ([p["wte"][t][j] for t in tokens] for j in range(3))
    near = sum(a * b for a, b in zip(x, y, strict=True)) + sum(
        a * b for a, b in zip(y, z, strict=True)
    )
    return sum(x) * sum(y) + sum(z) ** 2 + near + sum(map(tanh, x)) * sum(map(tanh, y))


def penalised(p, tokens):
    """What is added at every length comes after what is added for each integer."""
    total = 0.0
    for t in tokens:
        total = total + tanh(sum(p["wte"][t]))
    total = total + 0.1 * sum(x * x for x in p["head"][0])
    for x in p["head"][1]:
        total = total + x
    return total


def spread_around(p, tokens):
    xs = [sum(p["wte"][t]) for t in tokens]
    mean = sum(xs) / len(xs)
    return sum((x - mean) ** 2 for x in xs) / len(xs) + mean


def positions_only(p, tokens):
    """What no integer tells apart: an instruction for each."""
    q, k = ([tanh(sum(matvec(x, p[m]))) for x in p["wpe"][: len(tokens)]] for m in ("wq0", "wk0"))
    return sum(p["wte"][t][0] * a * b for t, a, b in zip(tokens, q, k, strict=True))


def largest_of_two(p, tokens):
    """Equal numbers: the first of them has the gradient, whatever the order in memory."""
    x, y = ([p["wte"][t][j] * 0.0 + p["head"][0][0] for t in tokens] for j in (0, 1))
    return max(x) * 3 + max(y) * p["head"][0][1] + sum(max(a, b) for a, b in zip(x, y, strict=True))


@pytest.mark.parametrize(
    "program",
    [
        *(by_heads, by_features, mean_of_rows, two_sums, many_sums, penalised, spread_around),
        *(positions_only, largest_of_two),
    ],
    ids=lambda f: f.__name__,
)
def test_whatever_the_order_there_is_one_program_for_all_lengths(program):
    """Where the first part of one thing is followed by the rest of it, and then by another."""
    pair, rng = Pair(program), random.Random(1)
    for seed, length in enumerate((6, 2, 4, 5, 3, 1, 6, 2, 5, 1)):
        tokens = [rng.randrange(VOCAB) for _ in range(length)]
        pair.same(gpt_params(seed), tokens, lifted=True)
    assert lifted_programs(pair) == 1
    assert "Σ" in pair.lifted.report(stage="lifted")


EXTREMES: dict[str, tuple[int, Any]] = {  # and how many programs serve all lengths
    "selected": (1, lambda p, ids: max(p[t] for t in ids) * 2 + min(p[t] * p[0] for t in ids)),
    "running": (1, lambda p, ids: sum(max(p[t] for t in ids[: i + 1]) for i in range(len(ids)))),
    "clipped": (1, lambda p, ids: sum(min(max(p[t], p[0]), p[1]) for t in ids)),
    "clipped results": (1, lambda p, ids: sum(min(max(p[t] * 2, p[0]), p[1]) for t in ids)),
    "after an input": (1, lambda p, ids: max([p[0], *(p[t] * 2 for t in ids)])),
    "two": (1, lambda p, ids: sum(max([p[i], *(p[t] * 2 for t in ids)]) * p[i] for i in (0, 1))),
    "before an input": (1, lambda p, ids: max([*(p[t] for t in ids), p[0]])),
    "of all kinds": (1, lambda p, ids: max(x for t in ids for x in (p[t], p[0], p[t] * p[1]))),
}


@pytest.mark.parametrize("name", EXTREMES)
def test_the_largest_of_what_integers_select(name):
    programs, function = EXTREMES[name]
    pair, rng = Pair(function), random.Random(1)
    for step in range(40):
        p = normal(step, 8)
        if step % 7 in (3, 5):
            p[:] = step % 2  # all are equal: the first of them has the gradient
        if step % 5 == 4:
            p[rng.randrange(8)] = (math.nan, math.inf, -math.inf)[step % 3]
        length = 6 if step == 0 else rng.randint(1, 6)
        pair.same(p, rng.sample(range(8), length))
    assert lifted_programs(pair) == programs
    assert "not lifted" not in pair.lifted.report()


def test_two_lists_of_any_lengths_share_a_program():
    def product(p, a, b):
        return sum(tanh(p[t]) for t in a) * sum(tanh(p[t]) for t in b)

    pair, rng = Pair(product), random.Random(1)
    for seed, lengths in enumerate(((5, 5), (3, 2), (2, 4), (5, 1), (1, 5), (4, 4))):
        pair.same(normal(seed, ROWS), *(some(rng, n) for n in lengths), lifted=True)
    assert lifted_programs(pair) == 1


def test_everything_with_everything_shares_a_program_although_no_order_fits_all_lengths():

    def attend_to_all(p, tokens):
        rows = [matvec(p["wte"][t], p["wq0"]) for t in tokens]
        total = 0.0
        for q in rows:
            weights = softmax([sum(a * b for a, b in zip(q, k, strict=True)) for k in rows])
            total = total + tanh(sum(w * k[0] for w, k in zip(weights, rows, strict=True)))
        return total

    pair, rng = Pair(attend_to_all), random.Random(1)
    for seed, length in enumerate((6, 4, 5, 6)):
        pair.same(gpt_params(seed), [rng.randrange(VOCAB) for _ in range(length)], lifted=True)
    assert lifted_programs(pair) == 1


def test_a_longer_call_takes_over():
    """Growing lengths build code again and again, but not at every length."""
    pair, rng = Pair(total_of), random.Random(2)
    for length in range(1, 25):
        pair.same(params(length), [rng.randrange(ROWS) for _ in range(length)])
    assert lifted_programs(pair) <= 3
    for length in (3, 24, 1, 17):
        pair.same(params(length), [rng.randrange(ROWS) for _ in range(length)])


def test_a_function_with_a_longest_list():
    def limited(p, tokens):
        if len(tokens) > 5:
            raise ValueError(f"{len(tokens)} tokens are too many")
        return total_of(p, tokens)

    pair = Pair(limited)
    for length in (1, 2, 3, 4, 5, 2, 4):
        pair.same(params(length), list(range(length)))
    assert pair.same(params(1), list(range(6)))[0] == "ValueError"
    pair.same(params(2), [4, 4, 1, 0, 2])


def test_longer_lists_than_anybody_asked_for_cost_little():
    """A longer list is recorded, not one that is longer and longer."""
    seen = []

    def noting(p, tokens):
        seen.append(len(tokens))
        return total_of(p, tokens)

    fast = chainrule.compile(noting, lift=True, on_fallback="eager")
    for length in (3, 5, 40, 41):
        fast.value_and_grad(params(1), [0] * length)
    assert max(seen) <= 2 * 41


# --- what integers select at another length -------------------------------------------------------


def rotations(length: int, top: int) -> list[list[int]]:
    return [[(i + k) % top for i in range(length)] for k in range(top)]


def select_from_as_many(p, tokens):
    rows = p[: len(tokens)]
    return sum(rows[t] * rows[t] for t in tokens)


def select_computed(p, tokens):
    hidden = [tanh(p[i]) for i in range(len(tokens))]
    return sum(hidden[t] * (i + 1.0) for i, t in enumerate(tokens))


REMAP = [0, 1, 2, 3, 4, 7, 6, 7]
WEIGHTS = [1.0, 1.0, 1.0, 2.0, 3.0, 1.0, 5.0, 7.0]


def remapped_when_short(p, tokens):
    return sum(p[REMAP[t]] * 1.5 if len(tokens) < 4 else p[t] * 2.0 for t in tokens)


def weighted_when_short(p, tokens):
    return sum(p[t] * (WEIGHTS[t] if len(tokens) < 4 else 1.0) for t in tokens)


def other_table_when_short(p, tokens):
    table = REMAP if len(tokens) < 4 else list(range(8))
    return sum(p[table[t]] * 2.0 for t in tokens)


def other_rows_when_short(p, tokens):
    rows = list(p) if len(tokens) >= 4 else [*p[:5], p[7], p[6], p[5]]
    return sum(rows[t] * 2.0 for t in tokens)


def other_results_when_short(p, tokens):
    h = [tanh(x) for x in p]
    rows = h[:] if len(tokens) >= 4 else [*h[:5], h[7], h[6], h[7]]
    return sum(rows[t] * 1.5 for t in tokens)


def counted_from_the_end(p, tokens):
    rows = [x * 2 for x in p[: len(tokens) + 1]]
    return sum(rows[-1 - i] * rows[t] for i, t in enumerate(tokens))


@pytest.mark.parametrize(
    "program",
    [
        *(select_from_as_many, select_computed, remapped_when_short, weighted_when_short),
        *(other_table_when_short, other_rows_when_short, other_results_when_short),
        counted_from_the_end,
    ],
    ids=lambda f: f.__name__,
)
def test_what_a_longer_call_shows_is_no_proof(program):
    """Every integer is seen in every place of the longest call, few of them in the short ones."""
    pair = Pair(program)
    p = normal(0, 8)
    for tokens in ([1, 2, 0, 1, 2, 0], [0, 1, 2], [2, 1, 0], *rotations(6, 6), *rotations(6, 8)):
        pair.same(p, tokens)
    pair.same(p, [0, -1, -2, -3, -1, 0])
    for tokens in ([0, 1, 2], [0, 1, 5], [5, 4, 3], [0, -1, 1], [0, -3, 1], [3, 4, 5], [5, 6, 7]):
        pair.same(p, tokens)
    for tokens in ([7], [5, 3], [6, 5, 1], [-1, 7, 2], [7, 7, 7, 7], [5, 6, -8, 3, 2]):
        pair.same(normal(1, 8), tokens)


GLOBAL = [Value(0.1 * i + 0.05) for i in range(8)]
MOSTLY_ONE = [GLOBAL[0]] * 3 + [GLOBAL[2], GLOBAL[0], GLOBAL[6], GLOBAL[0], GLOBAL[0]]
RAGGED = [GLOBAL[i : i + 2] if i in (3, 5) else GLOBAL[i : i + 1] for i in range(8)]
WITH_NUMBER = list(zip(GLOBAL, WEIGHTS, strict=True))
BY_ROW = {id(RAGGED[3]): 2.0, id(RAGGED[6]): 5.0}
BY_VALUE = {GLOBAL[3]: 2.0, GLOBAL[5]: 5.0}
LABELLED = [Value(0.1 * i, label="x" if i in (3, 5) else "y") for i in range(8)]
FUNCTIONS = [tanh, tanh, tanh, sin, exp, tanh, sin, exp]
TABLE = np.array(WEIGHTS)


def two_columns(p, ids):
    rows = [[x, p[0]] if i < 3 else [x, p[1]] for i, x in enumerate(p)]
    return sum(rows[t][0] * rows[t][1] for t in ids)


def changed_row(p, ids):
    rows = [[x, y] for x, y in zip(p, p[::-1], strict=True)]
    total = 0.0
    for t in ids:
        total = total + sum(rows[t])
        rows[t][0] = rows[t][0] * 2
    return total


def changed_list(p, ids):
    m = list(p)
    total = 0.0
    for t in ids:
        total = total + m[t]
        m[3] = m[0] * 2
        m = m[1:] + m[:1]
    return total


def written(p, ids):
    m = list(p)
    for t in ids:
        m[t] = m[t] * 2
    return sum(x * (i + 1) for i, x in enumerate(m))


def chosen_before(p, ids):
    """Which Values were made does not depend on the integers, their order does."""
    rows = [[x, y] for x, y in zip(p, p[::-1], strict=True)]
    return sum(sorted(rows[t], key=lambda v: v.data)[0] + max(rows[t]) for t in ids)


READS: dict[str, Any] = {
    "numbers": lambda p, ids: sum(p[t] * WEIGHTS[t] for t in ids),
    "numbers of an array": lambda p, ids: sum(p[t] * float(TABLE[t]) for t in ids),
    "other integers": lambda p, ids: sum(p[t] * p[REMAP[t]] for t in ids),
    "mostly one Value": lambda p, ids: sum(p[t] * MOSTLY_ONE[t] for t in ids),
    "rows with a number": lambda p, ids: sum(
        v * w * p[0] for v, w in (WITH_NUMBER[t] for t in ids)
    ),
    "ragged rows": lambda p, ids: sum(sum(RAGGED[t]) * p[t] for t in ids),
    "lengths of rows": lambda p, ids: sum(RAGGED[t][0] * len(RAGGED[t]) * p[t] for t in ids),
    "which row": lambda p, ids: sum(BY_ROW.get(id(RAGGED[t]), 1.0) * RAGGED[t][0] for t in ids),
    "is": lambda p, ids: sum(p[t] * (2 if GLOBAL[t] is GLOBAL[3] else 1) for t in ids),
    "in": lambda p, ids: sum(p[t] * (2 if RAGGED[t] in RAGGED[3:6] else 1) for t in ids),
    "keys": lambda p, ids: sum(p[t] * BY_VALUE.get(GLOBAL[t], 1.0) for t in ids),
    "labels": lambda p, ids: sum(p[t] * (2 if LABELLED[t].label == "x" else 1) for t in ids),
    "functions": lambda p, ids: sum(FUNCTIONS[t](p[t]) for t in ids),
    "slices": lambda p, ids: sum(sum(p[t : t + 2]) + p[t] for t in ids),
    "ranges": lambda p, ids: sum(p[t] * sum(1 for _ in range(t)) for t in ids),
    "from the end": lambda p, ids: sum(p[-1 - t] * p[::-1][t] for t in ids),
    "pairs": lambda p, ids: sum(p[t] * p[u] for t, u in zip(ids, ids[::-1], strict=True)),
    "sets": lambda p, ids: sum(p[t] * len({t, 3}) for t in ids),
    "sorted": lambda p, ids: sum(p[t] * (i + 1) for i, t in enumerate(sorted(ids))),
    "two columns": two_columns,
    "a changed row": changed_row,
    "a changed list": changed_list,
    "a written list": written,
    "an order of Values": chosen_before,
}


@pytest.mark.parametrize("name", READS)
def test_whatever_else_an_integer_reads(name):
    """Few integers at first, then all of them, in every place and at every length."""
    for lengths, seed in (((5, 3, 4, 2), 4), ((3, 5, 2, 4), 7), ((5, 3, 4, 2) * 2, 5)):
        pair, rng = Pair(READS[name]), random.Random(seed)
        for length in lengths:
            pair.same(normal(length, 8), [rng.randrange(3) for _ in range(length)])
        for _ in range(6 * len(lengths) // 4 + 4):
            tokens = [rng.randrange(8) for _ in range(rng.randint(1, 5))]
            pair.same(normal(len(tokens), 8), tokens)
        for tokens in ([5], [3, 5], [7, -1], [0, 8], [0, 1, 2]):
            pair.same(normal(0, 8), tokens)


def test_integers_out_of_range_at_every_length():
    pair = Pair(lambda p, tokens: sum(p[t] * (i + 1) for i, t in enumerate(tokens)))
    for tokens in ([0, 1, 2, 3, 4], [1, 2], [3, 1, 2], *rotations(5, 5)):
        pair.same(normal(0, 5), tokens)
    for tokens in ([0, 5], [5, 0], [0, 1, 2, 3, 7], [-6], [-5], [10**30], [-1, -2, -3]):
        pair.same(normal(1, 5), tokens)
        pair.same(normal(2, 5), [1, 2])
        pair.same(normal(2, 5), [4, 3, 2, 1, 0])


# --- gradients that are not finite, guards, overflow ----------------------------------------------


def test_infinite_gradients_are_this_calls():
    pair = Pair(lambda p, tokens: sum(sqrt(p[t]) for t in tokens))
    good, zero = np.abs(normal(0, 6)), np.array([0.5, 1.0, 2.0, 3.0, 0.0, 4.0])
    for tokens in (*rotations(6, 6), [0, 1, 2]):
        pair.same(good, tokens)
    for tokens in ([3, 4, 5], [4, 3, 5], [4, 3, 1], [5, 4, 3, 2, 1, 0], [4], [1]):
        pair.same(zero, tokens)
        pair.same(good, tokens)
    assert pair.same(-good, [1, 2])[0] == "ValueError"
    pair.same(good, [1, 2])


@pytest.mark.parametrize("program", [guarded, one_guard], ids=lambda f: f.__name__)
def test_a_guard_at_any_place_is_noticed(program):
    pair = Pair(program)
    good = params(1)
    good["e"] = np.abs(good["e"]) * 0.1
    for tokens in (*rotations(5, 6), [0, 1, 2, 3], [3, 1, 2], [1, 5], [2]):
        pair.same(good, tokens)
    for row in range(0, ROWS, 2):
        for number in (-1.0, 1.0):
            other = {**good, "e": good["e"].copy()}
            other["e"][row] = number
            for tokens in ([0, 1, 2, 3, 4], [5, 4, 3, 2], [3, 1, 5], [4, 0]):
                pair.same(other, tokens)
                pair.same(good, tokens)


def test_undefined_numbers_at_every_length():
    pair = Pair(lambda p, tokens: sum(log(p[t]) * exp(p[t]) for t in tokens) / len(tokens))
    good = np.linspace(0.5, 2, 6)
    for tokens in (*rotations(5, 6), [0, 1, 2], [4, 5]):
        pair.same(good, tokens)
    for number in (0.0, -1.0, np.nan, np.inf, 800.0):
        bad = good.copy()
        bad[4] = number
        for tokens in ([0, 1, 2, 3, 4], [4, 5], [1, 2], [3, 4, 5], [4]):
            pair.same(bad, tokens)
            pair.same(good, tokens)


@pytest.mark.filterwarnings("error")
def test_nothing_is_printed_where_the_first_gradient_is_infinite():
    for first in ([0, 1, 2, 3], [0], [2, 0, 1]):
        pair = Pair(lambda p, tokens: sum(sqrt(p[t]) for t in tokens))
        pair.same(np.array([0.0, 1.0, 4.0, 9.0]), first)
        pair.same(np.array([1.0, 1.0, 4.0, 9.0]), [1, 2])
        pair.same(np.array([0.0, 1.0, 4.0, 9.0]), [1, 0])
        pair.same(np.array([2.0, 1.0, 4.0, 9.0]), first)


# --- bigger models --------------------------------------------------------------------------------


def mixture_of_all(p, tokens):
    """Layers, pooling, a residual stream, tied rows, logsumexp."""
    rows = [
        rmsnorm([a + b for a, b in zip(p["e"][t], q, strict=True)])
        for t, q in zip(tokens, p["pos"], strict=False)
    ]
    for _ in range(2):
        mixed = []
        for i, q in enumerate(rows):
            weights = softmax(
                [sum(a * b for a, b in zip(q, k, strict=True)) for k in rows[: i + 1]]
            )
            mixed.append(
                [sum(w * k[j] for w, k in zip(weights, rows, strict=False)) for j in range(WIDTH)]
            )
        rows = [
            [a + relu(b) for a, b in zip(row, matvec(m, p["w"]), strict=True)]
            for row, m in zip(rows, mixed, strict=True)
        ]
    losses = []
    for i in range(len(tokens)):
        logits = matvec(rows[i - 1], p["e"])
        top = max(x.data for x in logits)
        losses.append(log(sum(exp(x - top) for x in logits)) + top - logits[tokens[i]])
    return sum(losses) / len(losses) + 1e-3 * sum(sigmoid(u) for u in p["u"])


def test_a_bigger_model_at_lengths_up_to_nine():
    pair, rng = Pair(mixture_of_all), random.Random(8)
    for seed in range(14):
        length = rng.randint(1, LONGEST)
        pair.same(params(seed), [rng.randrange(ROWS) for _ in range(length)])


def test_values_as_parameters_at_every_length():
    """The parameters are captured Values, as in microgpt's script."""
    numbers = gpt_params(3)
    made: dict[str, Any] = {
        name: [[Value(x) for x in row] for row in table.tolist()] for name, table in numbers.items()
    }
    leaves = [v for table in made.values() for row in table for v in row]
    lifted, tape = (
        chainrule.compile(lambda tokens: microgpt(made, tokens), lift=lift, on_fallback="raise")
        for lift in (True, False)
    )
    rng = random.Random(2)
    for step in range(12):
        tokens = [rng.randrange(VOCAB) for _ in range(rng.randint(2, 6))]
        found = []
        for run in (lifted, tape):
            loss = run(tokens)
            loss.backward()
            found.append(np.array([loss.data, *(v.grad for v in leaves)]))
            for v in leaves:
                v.grad = 0.0
        np.testing.assert_allclose(*found, rtol=0, atol=1e-12 * np.abs(found[1]).max())
        for v in leaves[step::7]:
            v.data += 0.01


# --- random programs ------------------------------------------------------------------------------

HEADER = """\
from chainrule import (Value, dot, exp, log, maximum, relu, sigmoid, sin, sqrt, tanh, vsum, where)


def f(params, ids, label):
    E, w, u = params
    n = len(ids)
"""

ONE = """\
tanh(x); x * x; exp(x * 0.3); relu(x); sigmoid(x); x + 0.5; x * -1.5; (x * x + 1.0) ** -0.5; -x
x / 3; sqrt(x * x + 0.1); log(x * x + 1.0); 2.0 - x; sin(x); x * label; x / n; x * n - 1.0
x * x.data; where(x > 0.1, x, x * 0.2); maximum(x, 0.3); x * u[0]; x + w[1]""".replace("\n", ";")
AT = """\
x * (i + 1); x + i; x * t; x * t + i; x / (i + 1); x * (1.0 / n); x + (i + 1) / n; x * w[t % 4]
x * w[i % 4]; x * u[i % 3]; x if i % 2 else x * 2; x * float(n - i); x * E[t][0]; x + E[t][2]
x if i < 2 else -x; x * (2 if n > 3 else 3)""".replace("\n", ";").replace("w[t % 4]", "w[1]")
TWO = """\
x * y; x + y; x - y; x * y + x; maximum(x, y); x / (y * y + 1.0); where(x > y, x * y, y)
x * y - y * 0.5 + 2 * x""".replace("\n", ";")
STEPS = """rows map map map at at at two two reduce mean matrix prefix causal attend last first
recur guard guard extreme probs probs shift slice scalar spread spread numbers tokens tokens branch
outer few twice twice sums columns heads""".split()


class Writer:
    """Writes a program over a list of integers: vectors with a number for each of them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines = ["v0 = [E[t][1] * u[0] for t in ids]"]
        self.vectors, self.scalars = ["v0"], ["u[1]"]
        self.made = 0

    def pick(self, text: str) -> str:
        return self.rng.choice(text.split(";")).strip()

    def vector(self, text: str) -> str:
        self.made += 1
        self.lines.append(f"v{self.made} = {text}")
        self.vectors.append(f"v{self.made}")
        return self.vectors[-1]

    def scalar(self, *lines: str) -> None:
        self.made += 1
        self.lines += [line.replace("TOTAL", f"s{self.made}") for line in lines]
        self.scalars.append(f"s{self.made}")

    def step(self) -> None:
        rng = self.rng
        a, b = rng.choice(self.vectors), rng.choice(self.vectors)
        s, j, sums = rng.choice(self.scalars), rng.randrange(3), rng.choice(("sum", "vsum"))
        kind = rng.choice(STEPS)
        one, two, at = self.pick(ONE), self.pick(TWO), self.pick(AT)
        if kind == "rows":
            self.vector(f"[E[t][{j}] + w[{j}] for t in ids]")
        elif kind == "map":
            self.vector(f"[{one} for x in {a}]")
        elif kind == "at":
            self.vector(f"[{at} for i, (x, t) in enumerate(zip({a}, ids))]")
        elif kind == "two":
            self.vector(f"[{two} for x, y in zip({a}, {b}{rng.choice(('', '[::-1]'))})]")
        elif kind == "reduce":
            self.scalar(f"TOTAL = {sums}({one} for x in {a})")
        elif kind == "mean":
            self.scalar(f"TOTAL = {sums}({a}) / n")
        elif kind == "matrix":
            self.vector("[sum(E[t][k] * u[k] for k in range(3)) for t in ids]")
        elif kind == "prefix":
            self.vector(f"[{sums}({a}[:i + 1]) for i in range(n)]")
        elif kind == "causal":
            self.vector(f"[sum({a}[k] * {b}[i] for k in range(i + 1)) for i in range(n)]")
        elif kind == "attend":
            es = self.vector(f"[exp(x - max(y.data for y in {a})) for x in {a}]")
            self.scalar(f"TOTAL = sum(x * y for x, y in zip({es}, {b})) / sum({es})")
        elif kind == "last":
            self.scalar(f"TOTAL = {a}[-1] * {s}")
        elif kind == "first":
            self.scalar(f"TOTAL = {a}[0] + {s}")
        elif kind == "recur":
            self.scalar(f"TOTAL = {s}", f"for x in {a}:", "    TOTAL = tanh(TOTAL * 0.5 + x)")
        elif kind == "guard":
            limit = rng.choice(("-0.3", "0.0", "0.4"))
            self.vector(f"[x * 2 if x > {limit} else x + 1.0 for x in {a}]")
        elif kind == "extreme":
            self.scalar(f"TOTAL = {rng.choice(('max', 'min'))}({a})")
        elif kind == "probs":
            self.vector(f"[[x * {s} for x in w][t] for t in ids]")
        elif kind == "shift":
            self.vector(f"[{two} for x, y in zip({a}, [{s}] + {b}[:-1])]")
        elif kind == "slice":
            part = rng.choice(("[:2]", "[-2:]", "[1:]", "[::2]", "[:3]"))
            self.scalar(f"TOTAL = {s} + {sums}({one} for x in {a}{part})")
        elif kind == "scalar":
            self.scalar(f"TOTAL = {s} * {rng.choice(self.scalars)} + {rng.choice(self.scalars)}")
        elif kind == "spread":
            self.vector(f"[x * {s} for x in {a}]")
        elif kind == "numbers":
            self.vector(f"[x * t - label for x, t in zip({a}, ids)]")
        elif kind == "tokens":
            self.vector(f"[w[t] * x for x, t in zip({a}, ids)]")
        elif kind == "branch":
            self.lines.append(f"if n {rng.choice(('< 3', '== 4', '> 2', '% 2 == 0'))}:")
            self.lines.append(f"    {a} = [{one} for x in {a}]")
        elif kind == "outer":
            self.scalar(f"TOTAL = sum({two} for x in {a} for y in {b}) / n")
        elif kind == "twice":
            self.vector(f"[tanh(x) for x in {a}]")
            self.vector(f"[tanh(x) for x in {b}]")
        elif kind == "sums":
            self.scalar(f"TOTAL = sum(x * x for x in {a})")
            self.scalar(f"TOTAL = sum(x * x for x in {b}) + {s}")
        elif kind == "columns":
            self.scalar(
                f"columns = [[E[t][j] * x for t, x in zip(ids, {a})] for j in range(3)]",
                "TOTAL = sum(tanh(sum(c[i] for c in columns)) for i in range(n))",
                "TOTAL = TOTAL + sum(sum(c) * x for c, x in zip(columns, u)) / n",
            )
        elif kind == "heads":
            part = f"sum({a}[k] * {b}[i] * w[j] for k in range(i + 1))"
            self.scalar(
                f"heads = [[{part} for i in range(n)] for j in range(2)]",
                "TOTAL = sum(x * y for x, y in zip(*heads))",
            )
        elif kind == "few":
            self.scalar(f"TOTAL = {sums}({a}[i] * w[i % 4] for i in range(min(n, 3)))")

    def source(self) -> str:
        for _ in range(self.rng.randint(1, 6)):
            self.step()
        parts = [f"sum({self.vectors[-1]})", *self.scalars[-2:]]
        weighted = [f"({part}) * {round(self.rng.uniform(0.1, 1), 2)}" for part in parts]
        lines = [*self.lines, "return " + " + ".join(weighted)]
        return HEADER + "".join(f"    {line}\n" for line in lines)


def check_source(source: str, seed: int, calls: int = 6, longest: int = 6) -> Pair:
    world: dict[str, Any] = {}
    exec(compile(source, f"<program {seed}>", "exec"), world)
    pair, rng, numbers = Pair(world["f"]), random.Random(seed), np.random.default_rng(seed)
    for call in range(calls):
        scale = 0.0 if call == 0 and seed % 4 == 0 else 0.7
        made = tuple([numbers.normal(size=shape) * scale for shape in ((5, 3), 5, 3)])
        length = longest if call == 0 and seed % 3 else rng.randint(1, longest)
        tokens = [rng.randrange(5) for _ in range(length)]
        try:
            pair.same(made, tokens, rng.choice((1, -1, 2)))
        except AssertionError as error:
            raise AssertionError(f"{source}\n{tokens}, call {call}: {error}") from None
    assert "differs" not in pair.lifted.report(), source
    return pair


def test_random_programs_over_lists():
    lifted = 0
    for seed in range(20):
        pair = check_source(Writer(random.Random(seed)).source(), seed)
        lifted += any(v.machine is not None for v in pair.variants)
    assert lifted >= 18


KEPT: list[str] = [
    # sums of at most four terms, which are added in one go, of which a shorter list has fewer
    "y = vsum(E[t][0] * (i + 1) for i, t in enumerate(ids))\n"
    "    return max(y * 2, y * y) if y > 0 else min(y, -y) * 3",
]


@pytest.mark.parametrize("body", KEPT)
def test_programs_that_went_wrong_once(body):
    for seed in range(2):
        check_source(HEADER + f"    {body}\n", seed, calls=12, longest=4)


# --- steps that a shorter call does not take ------------------------------------------------------


def recurrent(p, tokens):
    """Each step needs the one before: a shorter call lacks the last steps altogether."""
    state, total = p["start"], 0.0
    for a, b in itertools.pairwise(tokens):
        state = [
            tanh(chainrule.dot(row, state) + x) for row, x in zip(p["W"], p["E"][a], strict=True)
        ]
        weights = [exp(chainrule.dot(row, state)) for row in p["E"]]
        total = total - log(weights[b] / vsum(weights))
    return total / (len(tokens) - 1)


def recurrent_params(seed: int) -> Any:
    return {"start": normal(seed, 6), "W": normal(seed + 1, 6, 6), "E": normal(seed + 2, VOCAB, 6)}


def recurrent_beside(p, tokens):
    """The next state and the scores are products of one shape, of which the last step has fewer."""
    state, total = p["start"], 0.0
    for a, b in itertools.pairwise(tokens):
        x = p["E"][a]
        state = [
            tanh(x[i] + sum(w * s for w, s in zip(row, state, strict=True)))
            for i, row in enumerate(p["W"])
        ]
        scores = [sum(w * s for w, s in zip(row, state, strict=True)) for row in p["E"]]
        total = total + log(vsum(exp(z) for z in scores)) - scores[b]
    return total / (len(tokens) - 1)


@pytest.mark.parametrize("program", [recurrent, recurrent_beside])
def test_steps_that_a_shorter_call_does_not_take(program):
    pair, rng = Pair(program), random.Random(4)
    for seed, length in enumerate((8, 4, 7, 1, 6, 2, 8, 3, 1)):
        tokens = [rng.randrange(VOCAB) for _ in range(length + 1)]
        pair.same(recurrent_params(seed), tokens, lifted=True)
    assert lifted_programs(pair) == 1


def test_steps_that_a_shorter_sample_does_not_take_in_a_batch(monkeypatch):
    monkeypatch.setattr(batches, "ALIKE", 0)  # few samples of each length go together too
    rng, params = random.Random(5), recurrent_params(5)
    lengths = (9, 2, 5, 5, 8, 3, 4, 9, 7, 6, 2, 3, 9, 4, 5, 6)
    samples = [([rng.randrange(VOCAB) for _ in range(n)],) for n in lengths]
    fast = chainrule.compile(recurrent, lift=True, on_fallback="raise")
    tape = chainrule.compile(recurrent, lift=False, on_fallback="raise")
    value, grads = fast.batch_value_and_grad(params, samples)
    wanted = [tape.value_and_grad(params, *sample) for sample in samples]
    assert abs(value - np.mean([v for v, _ in wanted])) <= 1e-12
    for name, grad in grads.items():
        mean = np.mean([g[name] for _, g in wanted], axis=0)
        assert np.abs(grad - mean).max() <= 1e-12 * max(1.0, np.abs(mean).max())
    (structure, *_) = View(fast).structures
    assert structure.variants[0].machine.mixed is not None
