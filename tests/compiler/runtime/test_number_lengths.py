"""Calls whose lists and arrays of numbers differ in length share machine code."""

import gc
import random
import weakref
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import Value, exp, linear, tanh
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.runtime.families import Lengths, SharedCode
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.lengths import (
    Growth,
    Places,
    births_of,
    lengths_of,
    outline_of,
    with_lengths,
)
from chainrule.nn import softmax

OUTSIDE = Value(0.3)
WIDTH = 4
RNG = np.random.default_rng(5)
PARAMETERS = {
    "W": RNG.normal(size=(WIDTH, WIDTH)) * 0.4,
    "E": RNG.normal(size=(9, WIDTH)),
    "v": RNG.normal(size=WIDTH),
}


@dataclass
class Point:
    x: float
    y: float


def recurrent(p, xs):
    h = [0.0] * WIDTH
    for x in xs:
        h = [
            tanh(sum(w * a for w, a in zip(row, h, strict=True)) + v * x)
            for row, v in zip(p["W"], p["v"], strict=True)
        ]
    return sum(h)


def fitted(p, rows, targets):
    total = 0.0
    for row, target in zip(rows, targets, strict=True):
        hidden = [tanh(sum(w * x for w, x in zip(ws, row, strict=True))) for ws in p["W"]]
        total = total + (sum(v * h for v, h in zip(p["v"], hidden, strict=True)) - target) ** 2
    return total / len(rows)


def fitted_by_columns(p, columns, targets):
    return fitted(p, [[c[k] for c in columns] for k in range(len(targets))], targets)


def masked(p, tokens, masks):
    total = 0.0
    for t, mask in zip(tokens, masks, strict=True):
        x = [e * m for e, m in zip(p["E"][t], mask, strict=True)]
        total = total + tanh(sum(a * b for a, b in zip(x, p["v"], strict=True)))
    return total


def masked_in_a_row(p, tokens, mask):
    return masked(p, tokens, [mask[WIDTH * k : WIDTH * k + WIDTH] for k in range(len(tokens))])


def attending(p, token, keys, values):
    query = linear(p["E"][token], p["W"])
    shares = softmax([sum(q * k for q, k in zip(query, key, strict=True)) for key in keys])
    mixed = [sum(s * v[j] for s, v in zip(shares, values, strict=True)) for j in range(WIDTH)]
    return sum(x * x for x in mixed)


def by_records(p, points, scale):
    return scale * sum(tanh(point["x"] * p["v"][0] + p["v"][1]) * point["y"] for point in points)


def by_dataclasses(p, points):
    return sum(tanh(point.x * p["v"][0] + p["v"][1]) * point.y for point in points)


def last_first(p, xs):
    total = p["v"][0]
    for x in reversed(xs):
        total = tanh(total * x + p["v"][1])
    return total


def in_turns(p, xs):
    """Which parameter belongs to a number is no prefix of rows: each length has its own code."""
    return sum(tanh(p["v"][k % WIDTH] * x) for k, x in enumerate(xs))


def weighted_by_place(p, xs):
    return sum(tanh(p["v"][1] * x) / (k + 1) for k, x in enumerate(xs)) / len(xs)


def differences(p, xs):
    steps = [(p["v"][0] * (b - a) + p["v"][1]) ** 2 for a, b in pairwise(xs)]
    return sum(steps) + p["v"][2]


def numbers(*shape, chance):
    return np.array([chance.uniform(-1.0, 1.0) for _ in range(int(np.prod(shape)))]).reshape(shape)


def integers(count, chance):
    return [chance.randrange(9) for _ in range(count)]


#: what is called, and the arguments with lists of a length
PROGRAMS = {
    "a row": (recurrent, lambda n, c: (numbers(n, chance=c).tolist(),)),
    "a row of numpy's numbers": (recurrent, lambda n, c: (list(numbers(n, chance=c)),)),
    "an array": (recurrent, lambda n, c: (numbers(n, chance=c),)),
    "an array of float32": (recurrent, lambda n, c: (numbers(n, chance=c).astype(np.float32),)),
    "rows": (
        fitted,
        lambda n, c: (numbers(n, WIDTH, chance=c).tolist(), numbers(n, chance=c).tolist()),
    ),
    "a matrix": (fitted, lambda n, c: (numbers(n, WIDTH, chance=c), numbers(n, chance=c))),
    "columns": (
        fitted_by_columns,
        lambda n, c: (numbers(WIDTH, n, chance=c), numbers(n, chance=c)),
    ),
    "tuples": (
        fitted,
        lambda n, c: (
            [tuple(row) for row in numbers(n, WIDTH, chance=c).tolist()],
            numbers(n, chance=c).tolist(),
        ),
    ),
    "masks": (
        masked,
        lambda n, c: (integers(n, c), numbers(n, WIDTH, chance=c).tolist()),
    ),
    "masks in a row": (
        masked_in_a_row,
        lambda n, c: (integers(n, c), numbers(n * WIDTH, chance=c).tolist()),
    ),
    "a cache": (
        attending,
        lambda n, c: (c.randrange(9), *(numbers(n, WIDTH, chance=c).tolist() for _ in "kv")),
    ),
    "a cache of arrays": (
        attending,
        lambda n, c: (c.randrange(9), *(numbers(n, WIDTH, chance=c) for _ in "kv")),
    ),
    "dicts": (
        by_records,
        lambda n, c: ([{"x": x, "y": y} for x, y in numbers(n, 2, chance=c).tolist()], 0.5),
    ),
    "dataclasses": (
        by_dataclasses,
        lambda n, c: ([Point(x, y) for x, y in numbers(n, 2, chance=c).tolist()],),
    ),
    "the last first": (last_first, lambda n, c: (numbers(n, chance=c).tolist(),)),
    "in turns": (in_turns, lambda n, c: (numbers(n, chance=c).tolist(),)),
    "places": (weighted_by_place, lambda n, c: (numbers(n, chance=c).tolist(),)),
    "differences": (differences, lambda n, c: (numbers(n, chance=c).tolist(),)),
}
LENGTHS = (12, 7, 10, 4, 12, 7, 9, 11, 17, 3, 14, 10)
#: those whose shorter calls are a prefix of longer ones
SHARED = sorted(PROGRAMS.keys() - {"the last first", "in turns"})


def codes(fast):
    return {id(variant.machine) for variant in View(fast).variants if variant.machine is not None}


def agree(fast, f, arguments):
    value, gradient = fast.value_and_grad(PARAMETERS, *arguments)
    wanted, slopes = chainrule.value_and_grad(f)(PARAMETERS, *arguments)
    assert value == pytest.approx(wanted, rel=1e-10, abs=1e-12)
    for name, slope in slopes.items():
        np.testing.assert_allclose(gradient[name], slope, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_of_any_length_agree_with_eager(name):
    f, make = PROGRAMS[name]
    fast, chance = chainrule.compile(f, lift=True), random.Random(name)
    for _ in range(4):  # the last times through the fast path
        for length in LENGTHS:
            agree(fast, f, make(length, chance))


@pytest.mark.parametrize("name", SHARED)
def test_shorter_calls_share_the_code_of_a_longer_one(name):
    pytest.importorskip("llvmlite")
    f, make = PROGRAMS[name]
    fast, chance = chainrule.compile(f, lift=True), random.Random(name)
    for length in (12, 7):  # the second shows what may have another length
        agree(fast, f, make(length, chance))
    made = codes(fast)
    for length in (10, 4, 12, 7, 9, 11, 5, 8, 6):
        agree(fast, f, make(length, chance))
        assert View(fast).ran_machine_code
    assert codes(fast) <= made
    assert len(made) <= 2  # that of the first call, and that of all lengths


@pytest.mark.parametrize("name", ["a row", "a matrix", "masks", "a cache", "a cache of arrays"])
def test_lists_that_grow_build_code_for_longer_ones_a_few_times(name):
    pytest.importorskip("llvmlite")
    f, make = PROGRAMS[name]
    fast, chance = chainrule.compile(f, lift=True), random.Random(name)
    for length in (*range(1, 25), *range(1, 25)):
        View(fast).forget_fast_path()  # the second time those that longer code serves join it
        agree(fast, f, make(length, chance))
    owners = [v for v in View(fast).variants if v.is_own]
    assert len(owners) <= 12  # short loops in time have code of their own


@pytest.mark.parametrize("name", ["a row", "rows", "masks", "a cache", "a cache of arrays"])
def test_the_gate_answers_shorter_calls(name):
    pytest.importorskip("llvmlite")
    if chainrule.engine != "native":
        pytest.skip("the gate is native")
    f, make = PROGRAMS[name]
    fast, chance = chainrule.compile(f, lift=True), random.Random(name)
    for length in (12, 7, 9, 5, 9, 7, 5, 9, 7, 5):
        agree(fast, f, make(length, chance))
    for length in (7, 9, 5):
        before = fast.dispatch.gate.quick
        agree(fast, f, make(length, chance))
        assert fast.dispatch.gate.quick == before + 1


def test_plain_calls_of_a_growing_cache_return_arrays():
    def step(w, token, keys, values):
        x = w["E"][token]
        key, value = linear(x, w["W"]), list(x)
        shares = softmax([sum(a * b for a, b in zip(x, k, strict=True)) for k in [*keys, key]])
        kept = zip(shares, [*values, value], strict=True)
        rows = [[s * v for v in row] for s, row in kept]
        return np.array([sum(column) for column in zip(*rows, strict=True)]), np.array(key)

    def generated(f, count):
        keys, values, found = [], [], []
        for token in range(count):
            mixed, key = f(PARAMETERS, token % 9, keys, values)
            keys = [*keys, [x.data for x in key]]
            values = [*values, [x.data for x in mixed]]
            found.append(values[-1])
        return found

    fast = chainrule.compile(step, lift=True)
    wanted = generated(step, 14)
    for _ in range(3):
        np.testing.assert_allclose(generated(fast, 14), wanted, rtol=1e-9, atol=1e-12)


def test_captured_values_are_read_where_a_longer_call_has_them():
    """They come after the numbers of a call, of which a shorter one has fewer."""
    a, b = Value(0.3), Value(-0.7)

    def f(scale, xs):
        return scale * sum(tanh(a * x + b) for x in xs)

    fast, chance = chainrule.compile(f, lift=True), random.Random(1)
    for length in (12, 7, 9, 5, 12, 3):
        xs = numbers(length, chance=chance).tolist()
        results = []
        for function in (f, fast):
            a.grad = b.grad = 0.0
            made = function(0.5, xs)
            made.backward()
            results.append((made.data, a.grad, b.grad))
        assert results[1] == pytest.approx(results[0], rel=1e-10)
        a.data += 0.01


@pytest.mark.parametrize("name", ["a row", "a matrix", "masks", "masks in a row"])
@pytest.mark.parametrize("batch", [1, 3])
def test_training_takes_the_steps_of_eager_mode(name, batch):
    f, make = PROGRAMS[name]
    chance = random.Random(name)
    samples = [make(length, chance) for length in (12, 5, 8, 9, 5, 11, 8)]

    def parameters():
        return {key: array.copy() for key, array in PARAMETERS.items()}

    p, expected = parameters(), []
    optimiser = chainrule.optim.SGD(p, lr=0.05)
    for step in range(10):
        chosen = [samples[(batch * step + k) % 7] for k in range(batch)]
        each = [chainrule.value_and_grad(f)(p, *sample) for sample in chosen]
        expected.append(np.mean([value for value, _ in each]))
        optimiser.step({key: np.mean([g[key] for _, g in each], axis=0) for key in p})
    found = parameters()
    fast = chainrule.compile(f, lift=True)
    losses = fast.train(found, samples, chainrule.optim.SGD(found, lr=0.05), steps=10, batch=batch)
    np.testing.assert_allclose(losses, expected, rtol=1e-9, atol=1e-12)
    for key, array in p.items():
        np.testing.assert_allclose(found[key], array, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_batch_of_any_lengths_is_the_mean_of_calls(name):
    f, make = PROGRAMS[name]
    fast, chance = chainrule.compile(f, lift=True), random.Random(name)
    samples = [make(length, chance) for length in (12, 5, 8, 12, 9, 5, 11, 8, 10)]
    each = [chainrule.value_and_grad(f)(PARAMETERS, *sample) for sample in samples]
    for _ in range(2):
        value, gradient = fast.batch_value_and_grad(PARAMETERS, samples)
        assert value == pytest.approx(np.mean([y for y, _ in each]), rel=1e-10)
        for key in PARAMETERS:
            wanted = np.mean([g[key] for _, g in each], axis=0)
            np.testing.assert_allclose(gradient[key], wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["a row", "rows", "masks", "a cache of arrays"])
def test_shorter_calls_are_saved_with_the_code_of_longer_ones(name, tmp_path):
    pytest.importorskip("llvmlite")
    f, make = PROGRAMS[name]
    fast, chance = chainrule.compile(f, lift=True), random.Random(name)
    calls = [make(length, chance) for length in (12, 7, 9, 5)]
    for arguments in calls:
        fast.value_and_grad(PARAMETERS, *arguments)
    fast.save(tmp_path / "f.chainrule")
    loaded = chainrule.load(tmp_path / "f.chainrule")
    for arguments in calls:
        here = fast.value_and_grad(PARAMETERS, *arguments)
        there = loaded.value_and_grad(PARAMETERS, *arguments)
        assert there[0] == here[0]
        for key in PARAMETERS:
            np.testing.assert_array_equal(there[1][key], here[1][key])


@pytest.mark.parametrize("make", [lambda n: [0.1 * k for k in range(n)], lambda n: [1] * n])
def test_a_longer_call_that_nobody_made_is_refused_for_what_it_does_itself(make):
    """Code half as long again is built for 9 items: with 13, the derivative is a Value."""

    def f(p, xs):
        total = sum(tanh(p * x) for x in xs)
        return total * OUTSIDE if len(xs) > 9 else total

    fast = chainrule.compile(f, on_fallback="eager", lift=True)
    for length in (8, 6, 9, 9, 13, 9, 13):
        found = fast.value_and_grad(0.5, make(length))
        wanted = chainrule.value_and_grad(f)(0.5, make(length))
        assert [type(x) for x in found] == [type(x) for x in wanted]
        if length == 13:
            OUTSIDE.grad = 0.0
            found[1].backward()
            slope, OUTSIDE.grad = OUTSIDE.grad, 0.0
            wanted[1].backward()
            assert slope == OUTSIDE.grad != 0.0
        else:
            assert found == pytest.approx(wanted, rel=1e-10)


# --- lengths themselves ---------------------------------------------------------------------------


def call_of(*arguments, **keywords):
    return flatten_call((0.5, *arguments), keywords, differentiate=True)


def test_outlines_leave_out_lengths_and_nothing_else():
    one = outline_of(call_of([1.0, 2.0], np.zeros((3, 4)), k=[[1, 2], [3]]).key)
    assert one == outline_of(call_of([1.0], np.zeros((1, 7)), k=[[1], [3], [5]]).key)
    assert one != outline_of(call_of((1.0,), np.zeros((1, 7)), k=[[1]]).key)
    assert one != outline_of(call_of([1.0], np.zeros(7), k=[[1]]).key)
    assert one != outline_of(call_of([1], np.zeros((1, 7)), k=[[1]]).key)
    assert one != outline_of(call_of([1.0], np.zeros((1, 7)), j=[[1]]).key)
    assert one != outline_of(call_of([np.float64(1.0)], np.zeros((1, 7)), k=[[1]]).key)


def test_lengths_in_the_first_argument_stay():
    a = flatten_call(([1.0, 2.0], [3.0]), {}, differentiate=True)
    b = flatten_call(([1.0], [3.0]), {}, differentiate=True)
    assert outline_of(a.key) != outline_of(b.key)


def test_growth_is_the_smallest_step_that_all_lists_share():
    short = call_of([1, 2], [0.5] * 8, np.zeros((2, 3)))
    long = call_of([1] * 5, [0.5] * 20, np.zeros((5, 3)))
    growth = Growth.between(short.key, long.key)
    assert sorted(growth.units.values()) == [1, 1, 4]
    assert growth.steps(long.key) == 5
    cut = growth.resized(long, -3)
    assert lengths_of(cut.key) == lengths_of(short.key)
    assert growth.resized(long, -5) is None
    assert lengths_of(growth.resized(short, 3).key) == lengths_of(long.key)


def test_no_growth_between_calls_of_which_neither_is_the_shorter():
    a, b = call_of([1.0, 2.0], [1.0]), call_of([1.0], [1.0, 2.0])
    assert Growth.between(a.key, b.key) is None
    ragged = call_of([[1.0], [1.0, 2.0]], [1.0])
    even = call_of([[1.0], [1.0]], [1.0])
    assert Growth.between(ragged.key, even.key) is None


def test_places_of_a_shorter_call():
    short = call_of([[1.0, 2.0]] * 2, 7, np.zeros((2, 2)), [3, 4])
    long = call_of([[1.0, 2.0] for _ in range(3)], 7, np.zeros((3, 4)), [3, 4, 5])
    short = with_lengths(short, {})  # with lists of their own
    places = Places.of(short.key, long.key)
    assert places.floats.tolist() == [0, 1, 2, 3, 4, 7, 8, 11, 12]
    assert places.integers.tolist() == [0, 1, 2]
    assert (places.all_floats, places.all_integers) == (19, 4)
    assert Places.of(long.key, short.key) is None


def test_places_tell_the_types_of_numbers():
    """A recording for a number of numpy's is not one for a float."""
    mixed = call_of([np.float64(1.0), 2.0, np.float64(3.0)])
    assert Places.of(call_of([np.float64(1.0), 2.0]).key, mixed.key) is not None
    assert Places.of(call_of([1.0, np.float64(2.0)]).key, mixed.key) is None


def test_the_types_of_numbers_move_with_them():
    """The fourth of each is of numpy's: of one list here, and of the other there."""
    one = np.float64(1.0)
    short, long = call_of([1.0, 1.0, 1.0], [one, 1.0]), call_of([1.0, 1.0, 1.0, one], [1.0, 1.0])
    assert short.key[3] == long.key[3]
    assert Places.of(short.key, long.key) is None


def test_an_array_of_objects_beside_a_longer_list_stays_as_it_is():
    square = np.array([[1.0, 2.0], [3.0, 4.0]], object)
    call = call_of([1.0, 2.0], square)
    wide = with_lengths(call, {(1,): 3})
    np.testing.assert_array_equal(wide.arguments[2], square)
    assert wide.key[3] == call.key[3]
    assert Places.of(call.key, wide.key) is not None


def test_code_for_one_length_is_kept_no_longer_than_its_calls():
    pytest.importorskip("llvmlite")
    f, make = PROGRAMS["the last first"]
    fast, chance = chainrule.compile(f, lift=True), random.Random(6)
    for length in (5, 9, 7):
        agree(fast, f, make(length, chance))
    made = [weakref.ref(v.machine) for v in View(fast).variants]
    fast.dispatch.structures.clear()  # as they are, one by one, for others
    View(fast).forget_fast_path()
    gc.collect()
    assert [machine() for machine in made] == [None] * 3


def test_births_are_steps_of_growth():
    short, long = call_of([0.5] * 4, [1, 2], 3), call_of([0.5] * 6, [1, 2, 3], 3)
    growth = Growth.between(short.key, long.key)
    floats, whole = births_of(long.key, growth)
    assert floats.tolist() == [-1, 0, 0, 1, 1, 2, 2]
    assert whole.tolist() == [0, 1, 2, -1]


def test_wider_calls_are_made_of_their_own_items_with_lists_of_their_own():
    call = call_of([[1.0, 2.0], [3.0, 4.0]], np.arange(6.0).reshape(2, 3))
    wide = with_lengths(call, {(1,): 3, (2, 1): 4})
    assert wide.arguments[1] == [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]
    np.testing.assert_array_equal(wide.arguments[2], [[0, 1, 2, 0], [3, 4, 5, 3]])
    assert not wide.comes_again


def test_an_empty_array_has_nothing_to_be_made_longer_of():
    assert with_lengths(call_of(np.zeros(0)), {(1, 0): 3}) is None
    assert with_lengths(call_of(np.zeros((2, 0))), {(1, 0): 3, (1, 1): 0}) is not None
    assert Growth({(1, 0): 1}).resized(call_of(np.zeros(0)), 2) is None


def test_nothing_is_made_of_a_list_that_another_thread_has_changed():
    rows = [[1.0], [2.0]]
    call = call_of(rows)
    rows.append([3.0])
    assert with_lengths(call, {(1,): 4}) is None
    assert Growth({(1,): 1}).resized(call, 4) is None


def test_rows_of_several_lengths_are_not_made():
    ragged = call_of([[1.0], [1.0, 2.0], [3.0]])
    assert with_lengths(call_of([[1.0], [2.0]]), lengths_of(ragged.key)) is None


@pytest.mark.filterwarnings("error")
def test_calls_with_empty_arrays_among_others_are_recorded():
    def f(p, a, b):
        steps = [(p * x).tanh() * k for k, row in enumerate(b) for x in row]
        return sum([exp(p * x) for x in a], p * 2) + sum(steps, p)

    fast, chance = chainrule.compile(f, on_fallback="raise", lift=True), random.Random(2)
    shapes = [(5, 2, 3), (0, 2, 3), (3, 0, 3), (3, 2, 0), (7, 4, 3), (0, 0, 0), (0, 5, 3)]
    for n, rows, columns in (*shapes, *reversed(shapes), *shapes):
        arguments = 0.3, numbers(n, chance=chance), numbers(rows, columns, chance=chance)
        wanted = chainrule.value_and_grad(f)(*arguments)
        assert fast.value_and_grad(*arguments) == pytest.approx(wanted, rel=1e-10)


def test_the_longest_call_that_was_seen_is_not_the_first():
    calls = [call_of([0.5] * count) for count in (8, 20, 12)]
    short = call_of([0.5] * 5)
    lengths = Lengths(short.key, SharedCode(keys=dict.fromkeys([call.key for call in calls])))
    assert lengths_of(lengths.longest(short).key) == {(1,): 20}


def test_a_joined_tape_waits_no_longer(monkeypatch):
    """A call that was recorded before there was code for longer ones uses that once it is there."""
    pytest.importorskip("llvmlite")
    f, make = PROGRAMS["rows"]
    chance = random.Random(3)
    fast = chainrule.compile(f)
    small = make(9, chance)
    monkeypatch.setattr(Ledger, "affords_recording", lambda *_, **__: True)
    monkeypatch.setattr(Ledger, "affords_building", lambda *_: False)
    for _ in range(3):
        agree(fast, f, small)
    assert "on the tape until" in fast.report()
    monkeypatch.setattr(Ledger, "affords_building", lambda *_: True)
    for _ in range(3):
        agree(fast, f, make(20, chance))
    monkeypatch.setattr(Ledger, "affords_building", lambda *_: False)
    for _ in range(10):
        agree(fast, f, small)
    assert "on the tape until" not in fast.report()


def test_exponentials_of_any_number_of_items():
    """A function of a list of Values made inside, whose extreme is the first of equals."""

    def f(p, xs):
        zs = [p["v"][0] * x for x in xs]
        most = max(zs)
        return sum(exp(z - most) for z in zs)

    fast, chance = chainrule.compile(f, lift=True), random.Random(8)
    for length in (9, 5, 7, 9, 3, 8, 4):
        xs = numbers(length, chance=chance).tolist()
        xs[length // 2] = xs[0]
        agree(fast, f, (xs,))
