"""Branches of which both sides are recorded: when that is done, and what keeps it from that."""

import collections
import linecache
import math
import random
import re

import numpy as np
import pytest

import chainrule
from chainrule import Value, dot, exp, log, sigmoid, sin, sqrt, tanh, vsum, where
from chainrule.compiler.capture import branches
from chainrule.compiler.runtime import pipeline
from chainrule.compiler.runtime.ledger import allowance


@pytest.fixture(autouse=True)
def _at_any_cost(monkeypatch):
    monkeypatch.setattr(allowance, "left", math.inf)


def recordings(fast):
    return int(re.search(r"([\d,]+) recordings", fast.report())[1].replace(",", ""))


def eager_calls(fast):
    return int(re.search(r"([\d,]+) eager", fast.report())[1])


def compare(function, calls, **options):
    """Compile a function, compare all calls with eager's, and return it."""
    fast = chainrule.compile(function, **options)
    eager = chainrule.value_and_grad(function)
    for arguments in calls:
        (value, grads), (expected, wanted) = fast.value_and_grad(*arguments), eager(*arguments)
        assert type(value) is type(expected)
        assert value == pytest.approx(expected, rel=1e-12, abs=1e-14), arguments
        assert grads == pytest.approx(wanted, rel=1e-12, abs=1e-14), arguments
    return fast


def samples(count=40, seed=0):
    chance = random.Random(seed)
    for _ in range(count):
        p, xs = ([chance.gauss(0, 1) for _ in range(n)] for n in (3, 6))
        yield p, xs, chance.randrange(3)


# --- what becomes a choice ------------------------------------------------------------------------


def assigned(p, xs, k):
    total = 0.0
    for x in xs:
        if x > 0.3:
            total = total + p[0] * x
        elif x < -0.5 and p[1] > 0:
            total += exp(p[1] * x)
        else:
            total -= p[2] ** 2
    return total


def expressions(p, xs, k):
    hot = [1.0 if i == k else 0.0 for i in range(3)]
    rate = p[0] if k == 1 or p[1] > 0 else -p[0] if not p[2] > 0 else p[2].tanh()
    return dot(hot, p) + rate * sum(x if 0.0 < x < 1.0 else x * 0.1 for x in xs)


def smallest(p, xs, k):
    best, at = xs[0], 0
    for i in range(1, len(xs)):
        best, at = (xs[i], i) if i == k else (best, at)
        if xs[i] < best:
            best = xs[i]
    return p[0] * best + p[1] * at


def skipped(p, xs, k):
    total = p[k] * 2
    for x in xs:
        if x < 0:
            continue
        total = total + p[0] * x
    return total


def halved(p, xs, k):
    low, high = -3.0, 3.0
    for _ in range(8):
        middle = (low + high) / 2
        if p[0].data * middle + math.sin(middle) < xs[0]:
            low = middle
        else:
            high = middle
    x = (low + high) / 2
    return p[0] * x + p[1] * sin(x)


def returned(p, xs, k):
    if xs[0] > 1:
        return p[0] * 2
    if p[1] > 0:
        return p[1] - xs[0]
    return p[2] * p[2]


def counted(p, xs, k):
    n = 0
    for i in range(4):
        n = n + 2 if i == k else n - 1
    return p[0] * n + p[1]


def sorted_values(p, xs, k):
    errors = sorted((p[0] * x + p[1]) ** 2 for x in xs)
    return sum(errors[:4]) + sorted(xs, reverse=True)[1] * p[2]


CHOICES = [assigned, expressions, skipped, halved, returned, counted, sorted_values]


@pytest.mark.parametrize("function", CHOICES, ids=lambda f: f.__name__)
def test_after_two_ways_through_a_branch_one_recording_has_both_sides(function):
    fast = compare(function, samples())
    assert recordings(fast) <= pipeline.MERGE_AFTER + 2
    assert eager_calls(fast) == 0


def test_a_branch_that_goes_one_way_is_a_guard():
    fast = compare(assigned, [([1.0, 2.0, 3.0], [0.5 + 0.1 * i] * 6, 0) for i in range(10)])
    assert recordings(fast) == 1
    assert "select" not in fast.report(stage="recorded")


def test_a_pair_of_which_one_is_an_integer_is_not_merged_but_right():
    compare(smallest, samples())


def test_an_edited_file_is_not_taken_for_the_source(tmp_path):
    path = tmp_path / "edited.py"
    path.write_text("def f(p, x):\n    return p * 2 if x > 0 else p * 3\n")
    world = {}
    exec(compile(path.read_text(), str(path), "exec"), world)
    function = world["f"]
    assert branches.merged(function, function.__code__) is not None
    branches._known.clear()
    path.write_text("def f(p, x):\n    return p * 2 if x > 0 else p * 4\n")
    linecache.checkcache(str(path))
    assert branches.merged(function, function.__code__) is None
    compare(function, [(1.5, x) for x in (1.0, -1.0, 2.0, -2.0, 3.0)])


def test_a_name_that_stands_for_another_function_is_looked_at_again(tmp_path):
    path = tmp_path / "named.py"
    path.write_text("def f(p, x):\n    return act(p) if x > 0 else p * 3\n")
    world = {"act": tanh}
    exec(compile(path.read_text(), str(path), "exec"), world)
    function = world["f"]
    assert branches.merged(function, function.__code__) is not None
    world["act"] = lambda p: p * 7
    assert branches.merged(function, function.__code__) is None
    compare(function, [(1.5, x) for x in (1.0, -1.0, 2.0, -2.0, 3.0)])


# --- what must not be done on the side that is not taken ------------------------------------------


class Lambdas:
    __add__ = lambda self, other: self.notes.append(1) or other  # noqa: E731


class Noted:
    """A number that notes each addition."""

    def __init__(self, number, notes):
        self.number, self.notes = number, notes

    def __add__(self, other):
        self.notes.append(1)
        return self.number + other

    @property
    def half(self):
        self.notes.append(2)
        return self.number * 0.5


def operator_of_a_class(p, xs, k):
    notes = []
    number, total = Noted(0.5, notes), p[0]
    for x in xs:
        y = number + 1.0 if x > 0 else x
        z = number.half if x > 1 else x
        total = total + y * p[1] + z
    return total * (1 + sum(notes))


def popped(p, xs, k):
    stack, total = [1.0, 2.0, 3.0], p[0]
    for x in xs:
        last = stack.pop() if x > 0 and stack else 0.5
        total = total + last * p[1]
    return total * (1 + len(stack))


def default_read(p, xs, k):
    table, total = collections.defaultdict(float), p[0]
    for i, x in enumerate(xs):
        y = table[i] if x > 0 else x
        total = total + y * p[1]
    return total * (1 + len(table))


def used_up(p, xs, k):
    numbers, total = iter(xs), p[0]
    for x in xs[:3]:
        s = vsum(numbers) if x > 0.5 else p[1]
        t = math.fsum(numbers) if x < 0 else 0.25
        total = total + s * p[2] + t * p[0]
    return total


def default_read_by_token(p, xs, k):
    table, total = collections.defaultdict(float), p[0]
    for x in xs:
        y = table[k] if x > 0 else x
        total = total + y * p[1]
    return total * (1 + len(table))


def lambda_operator(p, xs, k):
    notes, total = [], p[0]
    number = Lambdas()
    number.notes = notes
    for x in xs:
        y = number + 1.0 if x > 0 else x
        total = total + y * p[1]
    return total * (1 + len(notes))


def in_place(p, xs, k):
    rows = [p[0]]
    kept = rows
    for x in xs:
        if x > 0:
            rows += [p[1] * x]
        else:
            rows = [*rows, p[2]]
    return sum(rows) * (1 + len(kept))


def in_place_array(p, xs, k):
    row = np.array([p[0], p[1]])
    kept = row
    for x in xs:
        if x > 0:
            row += x
        else:
            row = row * 2
    return row.sum() + kept.sum() * p[2]


def inspected(p, xs, k):
    total = 0.0
    for x in xs:
        if x > 0.5:
            total = total + p[0] * x
    return total + p[1] if isinstance(total, Value) else p[2] * 3


def told_apart(p, xs, k):
    best = p[0]
    for v in p[1:]:
        if v > best:
            best = v
    return best * (2 if best is p[1] else 3)


def unpacked(p, xs, k):
    pair, total = iter([1.0, 2.0]), p[0]
    for x in xs[:1]:
        a, b = 0.5, 0.25
        if x > 0:
            a, b = pair
        total = total + a * p[1] + b
    return total * (1 + len(list(pair)))


def zero(p, xs, k):
    total = 0
    for x in xs[:2]:
        if x > 0.5:
            total = total + p[0] * x
    return total


def extras(p, xs, k):
    total = 0.0
    for x in xs:
        if x > 1.0:
            total = total + p[0] * x
    return p[1] * 2 + total


REFUSED = [
    *(operator_of_a_class, popped, default_read, in_place, in_place_array, inspected),
    *(told_apart, extras, used_up, default_read_by_token, lambda_operator, unpacked, zero),
]


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_what_does_more_than_compute_is_done_as_often_as_eager_does_it(function, monkeypatch):
    monkeypatch.setattr(pipeline, "MERGE_AFTER", 0)
    compare(function, samples())


# --- numbers that are undefined on the other side -------------------------------------------------


def guarded_log(p, xs, k):
    return sum(log(x * p[0] * p[0]) if x > 0 else x * p[1] for x in xs)


def divided(p, xs, k):
    return p[0] / xs[0] if xs[0] != 0 else p[1] * 2


def rooted(p, xs, k):
    total = 0.0
    for x in xs:
        y = p[0] * p[0] * x
        total = total + (sqrt(y) if y > 0 else sigmoid(y))
    return total


@pytest.mark.parametrize("function", [guarded_log, divided, rooted], ids=lambda f: f.__name__)
def test_an_undefined_number_on_the_side_not_taken_is_not_raised(function, monkeypatch):
    monkeypatch.setattr(pipeline, "MERGE_AFTER", 0)
    zero = [([1.0, 2.0, 3.0], [0.0] * 6, 0)]
    compare(function, [*samples(), *zero, *samples(5, seed=1), *zero])


def test_sides_that_are_undefined_too_often_are_recorded_one_at_a_time():
    fast = compare(divided, [([1.0, 2.0, 3.0], [x, 1.0], 0) for x in [1.0, 0.0] * 20])
    assert eager_calls(fast) < 10
    fast = compare(guarded_log, [([1.0, 2.0, 3.0], [x], 0) for x in [1.5, -1.5] * 20])
    assert eager_calls(fast) < 10


def cubed_or_squared(q):
    return q * q * q if q > 1 else 3 * q * q


def derivative(p, xs, k):
    return chainrule.grad(cubed_or_squared)(p[0] * xs[0]) * p[1]


def test_a_derivative_inside_sees_the_side_that_is_taken(monkeypatch):
    monkeypatch.setattr(pipeline, "MERGE_AFTER", 0)
    compare(derivative, samples())


# --- sorting --------------------------------------------------------------------------------------


def test_equal_values_are_sorted_as_python_sorts_them(monkeypatch):
    monkeypatch.setattr(pipeline, "MERGE_AFTER", 0)

    def f(p):
        up, down = sorted(p), sorted(p, reverse=True)
        return sum((k + 1) * v for k, v in enumerate(up)) + down[0] * 10 + down[1] * 20

    chance = random.Random(0)
    fast = compare(f, [([float(chance.randrange(3)) for _ in range(5)],) for _ in range(30)])
    assert recordings(fast) == 1


def test_what_has_no_order_is_left_to_python(monkeypatch):
    monkeypatch.setattr(pipeline, "MERGE_AFTER", 0)

    def f(p, xs):
        return p[0] * sorted(xs)[0] + p[1] * sorted(xs)[-1]

    calls = [([1.0, 2.0], [3.0, 1.0, 2.0]), ([1.0, 2.0], [3.0, math.nan, 2.0])]
    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for arguments in calls * 3:
        np.testing.assert_equal(fast.value_and_grad(*arguments), eager(*arguments))


# --- functions of data ----------------------------------------------------------------------------


def test_functions_of_data_are_recorded():
    def f(p, xs, k):
        x = xs[0]
        return p[0] * sin(x) + exp(-x) * p[1] + where(x > 0, x, 2.0) + tanh(0.1 * k) * p[2]

    fast = compare(f, samples(), on_fallback="raise")
    assert recordings(fast) == 1


def test_variances_of_data_are_recorded():
    def f(p, xs, k):
        a = np.array(xs).reshape(2, 3)
        spread = np.std(xs) + a.std(ddof=1) + a.var(axis=0).sum() + np.var(a, axis=1)[0]
        return p[0] * spread + p[1] * np.mean(xs)

    fast = compare(f, samples(), on_fallback="raise")
    assert recordings(fast) == 1


def test_a_truth_beside_a_value_is_a_number():
    def f(p, xs, k):
        warm = False
        if xs[0] > 0:
            warm = True
        return p[0] * warm + (True + p[1]) - p[2] * (not warm)

    compare(f, samples(), on_fallback="raise")
