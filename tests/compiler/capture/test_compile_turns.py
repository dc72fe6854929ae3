"""Loops with a run-time end: one recording of some turns serves the calls that end within them.

Each function is called so that its loops take many numbers of turns. A turn that Python would not
have run must not be seen: no error, no number that is not finite, nothing stored or used up.
"""

import math
import random

import numpy as np
import pytest
from compared_calls import compared

import chainrule
from chainrule import Value, exp, log, sqrt, tanh
from chainrule.compiler.capture import repeats, sides
from chainrule.compiler.runtime import branching

RNG = random.Random(5)


@pytest.fixture(params=["from the start", "where it pays"])
def when(request, monkeypatch):
    """Both sides of branches are computed at once, or after some recordings."""
    if request.param == "from the start":
        monkeypatch.setattr(branching, "WAYS", 0)
        monkeypatch.setattr(branching, "static_often", lambda *_: True)
    return request.param


def recordings(fast):
    return fast.dispatch.counts.traces


# --- as many turns as an integer says -------------------------------------------------------------


def counted(p, n):
    total, x = 0.0, p[0]
    for k in range(n):
        x = x * p[1] + 0.1 * k
        total = total + x
    return total + x


def from_to(p, n):
    total = p[0] * 1.0
    for k in range(n // 2, n, 2):
        total = total * 0.9 + p[1] * k
    return total


def downwards(p, n):
    total = p[0] * 1.0
    for k in range(n, 0, -1):
        total = total + p[1] / k
    return total


def last_one(p, n):
    k = -1
    total = p[0] * 1.0
    for k in range(n):  # noqa: B007
        total = total + p[1]
    return total * k


def unbound_without_turns(p, n):
    for k in range(n):
        x = p[0] * k
    return x + p[1]


def zipped(p, n):
    total = 0.0
    for k, x in zip(range(n), [0.5, -0.25, 1.5, 2.5, 0.1, 0.2, 0.3]):  # noqa: B905
        total = total + p[0] * x - k * p[1]
    return total + 0 * p[0]


def numbered(p, n):
    total = p[0] * 0
    for k, (a, b) in enumerate(zip(range(n), range(n, 20))):  # noqa: B905
        total = total + p[k % 2] * a - b * p[0]
    return total


def beyond_the_list(p, n):
    xs = [1.0, 2.0, 0.5, 0.25, 3.0]
    total = p[0] * 1.0
    for k in range(n):
        total = total + xs[k] * p[1]
    return total


def reciprocal(p, n):
    total = p[0] * 1.0
    for k in range(n):
        total = total + p[1] / (n - k)
    return total


def logarithm(p, n):
    total = p[0] * 1.0
    for k in range(n):
        total = total + log(p[1] + n - k - 0.5)
    return total


def swapped(p, n):
    a, b = p[0], 1.5
    for _ in range(n):
        a, b = b, a
    return a * 2 + p[1]


def grows(p, n):
    x = p[0] * 10.0
    for _ in range(n):
        x = x * x
    return x


def with_list(p, n):
    xs = [p[0], p[1], 0.5]
    for k in range(n):
        xs[k % 3] = xs[k % 3] * 0.5 + xs[0]
    return xs[0] + 2 * xs[1] + 3 * xs[2]


def nested(p, n):
    total = p[0] * 1.0
    for i in range(n):
        for j in range(i):
            total = total * 0.95 + p[1] * j
    return total


def appends(p, n):
    xs = []
    for k in range(n):
        xs.append(p[0] * k)
    return sum(xs) + p[1]


def by_while(p, n):
    total, k = p[0] * 1.0, 0
    while k < n:
        total = total + p[1] * k
        k += 1
    return total * k


def halves(p, n):
    total = p[0] * 1.0
    while n > 0:
        total = total + p[1] * (n % 2)
        n = n // 2
    return total


def helper(x, n):
    for _ in range(n):
        x = tanh(x) + 0.1
    return x


def in_a_helper(p, n):
    return helper(p[0], n) * helper(p[1], n // 2)


def captures(p, n):
    total = p[0] * 1.0
    functions = [lambda: total]
    for k in range(n):
        total = total + p[1] * k
    return functions[0]() + 1.0


def squared_in_place(p, n):
    total = p[0] * 1.0
    for k in range(n):
        total -= p[1] * k
        total /= 1.5
    return total


COUNTED = (
    counted, from_to, downwards, last_one, unbound_without_turns, zipped, numbered,
    beyond_the_list, reciprocal, logarithm, swapped, grows, with_list, nested, appends, by_while,
    halves, in_a_helper, captures, squared_in_place,
)  # fmt: skip


@pytest.mark.parametrize("f", COUNTED, ids=lambda f: f.__name__)
def test_any_number_of_turns(f, when):
    counts = [5, 3, 4, 9, 2, 1, 0, 6, 14, 7, -2, 3, 11, 8, 5, 30, 4, 0, 12, 33]
    most = 8 if f is grows else 10**6
    calls = [([RNG.uniform(0.2, 1.2), RNG.uniform(-1, 1)], min(n, most)) for n in counts]
    compared(f, calls)


@pytest.mark.parametrize("n", [True, np.int64(4), np.int32(3), 2.0, -(10**20), None, "3"])
def test_integers_of_another_kind(n, when):
    compared(counted, [([0.5, 0.25], k) for k in (3, 5, 4, 7, n, 4, n)])


def test_as_many_recordings_as_powers_of_two():
    calls = [([RNG.random(), RNG.random()], RNG.randrange(1, 40)) for _ in range(200)]
    assert recordings(compared(counted, calls)) <= 3 + 4


# --- until something holds ------------------------------------------------------------------------


def until(p, limit):
    x, turns = p[0] * 1.0, 0
    while x < limit and turns < 40:
        x = x * (1 + p[1]) + 0.2
        turns += 1
    return x + 0.01 * turns


def forever(p, limit):
    x, v = 0.0, p[0] + 1.0
    while True:
        x, v = x + 0.1 * v, v - 0.3 * (p[1] + 1.0)
        if x < -limit:
            break
    return x * v


def first_found(p, limit):
    for a, b in [(0.0, 0.5), (0.5, 1.5), (1.5, 2.5), (2.5, 9.0)]:
        if a <= p[0] * limit < b:
            found = p[1] * a - b
            break
    else:
        found = p[1] ** 2
    return found + p[0]


def two_ends(p, limit):
    x = p[0] + 1.0
    for k in range(25):
        step = 0.3 * x - 0.1 * p[1]
        if abs(step) < 0.05:
            break
        x = x - step
        if x > limit or k > 20:
            x = 2 * x
            break
    return x


def skips(p, limit):
    total = p[0] * 1.0
    for k in range(12):
        if total > limit:
            break
        if k % 3 == 0:
            continue
        total = total + 0.2 * k + p[1]
    return total


def with_else(p, limit):
    x = p[0] * 1.0
    while x < limit:
        x = x + 0.4
        if x > 3.0:
            x = x * p[1]
            break
    else:
        x = x - p[1]
    return x


def divides(p, limit):
    x, y = limit, p[0]
    while x > 0.3:
        y = y / x + p[1]
        x = x - 0.25
    return y


def divides_by_zero_next(p, limit):
    x, y = 4, p[0]
    while x > 0 and y < limit:
        y = y + 0.5 + p[1] / x
        x -= 1
    return y


def leaves_the_domain(p, limit):
    x = p[0] + limit
    while x > 1.0:
        x = x - sqrt(x - 1.0) - 0.2
    return x * p[1]


def squares(p, limit):
    x = p[0] + 2.0
    while x < 10.0**limit:
        x = x * x
    return log(x) * p[1]


def remembers(p, limit):
    total = p[0] * 1.0
    while total < limit:
        if total > 0.5:
            total = total + previous * 0.1  # noqa: F821
        previous = total  # noqa: F841
        total = total + 0.3
    return total + p[1]


def uses_up(p, limit):
    items = iter([0.5, 1.0, 1.5, 2.0, 2.5, 3.0])
    total = p[0] * 1.0
    for x in items:
        total = total + x
        if total > limit:
            break
    return total * p[1] + sum(items)


def changes_what_it_goes_through(p, limit):
    xs = [p[0], 0.5, 1.0, 1.5, 0.25]
    total = p[1] * 1.0
    for k, x in enumerate(xs):
        total = total + x
        if total > limit:
            break
        xs[(k + 1) % 5] = x * 0.7
    return total + xs[-1] + 2 * xs[1]


def newton(p, limit):
    x = p[0] + 3.0
    while abs(x * x - limit) > 1e-9:
        x = (x + limit / x) / 2
    return x * p[1]


def inner_never_ends_astray(p, limit):
    x = p[0] + limit
    while x > 0.5:
        y = x - 0.5
        while y < 1.0:  # where the loop around has ended, y may be 0
            y = y * 2
        x = x - 0.5 * y
    return x + p[1]


def deep_and_astray(p, limit):
    """Where the loop around has ended, those inside would go on for long."""
    x, ends = p[0] + limit, 2
    while x > 0.5:
        ends = 2 if x > 0.5 else 10**6
        count = 0
        a = 0
        while a < ends:
            b = 0
            while b < ends:
                b += 1
                count += 1
            a += ends // 2
        x = x - 0.6
    return x * count + p[1] if limit > 1.5 else x * p[1]


def exponential(p, limit):
    x, t = p[0], 0.0
    while t < limit:
        x = x + 0.1 * exp(-x)
        t = t + 0.3
    return x * p[1]


def counts_data(p, limit):
    count, total = 0, 0.0
    for x in [0.1, 0.9, 1.1, 2.2, 0.4]:
        if x > limit:
            break
        count += 1
        total += x
    return p[0] * count + p[1] * total


UNTIL = (
    until, forever, first_found, two_ends, skips, with_else, divides, divides_by_zero_next,
    leaves_the_domain, squares, remembers, uses_up, changes_what_it_goes_through, newton,
    inner_never_ends_astray, deep_and_astray, exponential, counts_data,
)  # fmt: skip


@pytest.mark.parametrize("f", UNTIL, ids=lambda f: f.__name__)
def test_until_something_holds(f, when):
    limits = [1.0, 3.0, 0.5, 2.0, 5.0, 1.5, 0.1, 2.5, 4.5, 3.5, 0.9, 6.0, 2.2, 1.1, 0.0, 7.5]
    calls = [([RNG.uniform(0.1, 1.2), RNG.uniform(0.1, 1)], x) for x in limits * 2]
    compared(f, calls)


@pytest.mark.parametrize(("f", "most"), [(until, 7), (forever, 8), (first_found, 8), (skips, 7)])
def test_few_recordings(f, most):
    calls = [
        ([RNG.uniform(0.1, 1.2), RNG.uniform(0.1, 1)], RNG.uniform(0.3, 5)) for _ in range(150)
    ]
    assert recordings(compared(f, calls)) <= most


def test_a_turn_that_is_not_taken_calls_nothing(when):
    seen = []

    def f(p, n):
        total = p[0]
        for k in range(n):
            seen.append(k)
            total = total + p[1]
        return total

    fast = chainrule.compile(f, on_fallback="eager")
    for n in (3, 5, 2, 4, 1, 6):
        seen.clear()
        fast.value_and_grad([1.0, 2.0], n)
        assert seen == list(range(n))


def test_objects_are_computed_with_in_turns_that_are_taken_only(when):
    class Noting:
        count = 0

        def __rmul__(self, other):
            Noting.count += 1
            return other * 2.0

    noting = Noting()

    def f(p, n):
        total = p[0]
        for _ in range(n):
            total = total * noting
        return total

    fast = chainrule.compile(f, on_fallback="eager")
    for n in (3, 5, 2, 4, 1, 6):
        assert fast.value_and_grad([1.5], n) == (1.5 * 2.0**n, [2.0**n])


def test_plain_results_keep_their_types(when):
    def f(x, n):
        count, half = 0, 0.5
        for _ in range(n):
            count += 2
            half = half * 0.5
        return count if n % 2 else half

    fast = chainrule.compile(f, on_fallback="eager")
    for n in (3, 5, 2, 4, 1, 6, 0, 9):
        found, wanted = fast(1.0, n), f(1.0, n)
        assert found == wanted
        assert type(found) is type(wanted)


def test_values_that_may_be_numbers(when):
    def f(x, n):
        y = 1.0
        for _ in range(n):
            y = y * x
        return y

    fast = chainrule.compile(f, on_fallback="eager")
    for n in (3, 5, 2, 4, 1, 6, 0, 9, 0):
        found, wanted = fast(Value(2.0), n), f(Value(2.0), n)
        assert type(found) is type(wanted)
        assert float(getattr(found, "data", found)) == float(getattr(wanted, "data", wanted))


def test_other_uses_of_a_function_with_such_loops(when):
    rows = [[0.5, 0.2], [0.3, 0.4], [0.9, 0.1]]
    fast = chainrule.compile(until, on_fallback="eager")
    for limit in (1.0, 2.0, 3.0, 4.0, 5.0, 1.5):
        fast.value_and_grad([0.5, 0.25], limit)
    limits = [1.0, 4.0, 2.0]
    found = fast.batch_value_and_grad([0.5, 0.25], [(x,) for x in limits])
    wanted = [chainrule.value_and_grad(until)([0.5, 0.25], x) for x in limits]
    mean = sum(v for v, _ in wanted) / 3
    assert found[0] == pytest.approx(mean)
    assert list(found[1]) == pytest.approx([sum(g[k] for _, g in wanted) / 3 for k in range(2)])
    values = [fast.value_and_grad(row, 3.0)[0] for row in rows]
    assert values == pytest.approx([chainrule.value_and_grad(until)(row, 3.0)[0] for row in rows])
    first = chainrule.jacobian(fast)([0.5, 0.25], 3.0)
    assert np.ravel(first) == pytest.approx(np.ravel(fast.value_and_grad([0.5, 0.25], 3.0)[1]))


def test_saved_and_loaded(tmp_path, when):
    fast = chainrule.compile(until)
    for limit in (1.0, 2.0, 3.0, 4.0, 5.0, 1.5):
        fast.value_and_grad([0.5, 0.25], limit)
    fast.save(tmp_path / "until.chainrule", [0.5, 0.25], 3.0)
    loaded = chainrule.load(tmp_path / "until.chainrule")
    for limit in (3.0, 2.99):
        assert loaded.value_and_grad([0.5, 0.25], limit) == fast.value_and_grad([0.5, 0.25], limit)


# --- the source -----------------------------------------------------------------------------------


def returns_inside(p, n):
    for k in range(n):
        if k > 3:
            return p[0] * k
    return p[1]


def deep_break(p, n):
    for k in range(9):
        if k > n:
            if p[0] > 0:
                break
            p = [p[1], p[0]]
    return p[0] * k


@pytest.mark.parametrize("f", [returns_inside, deep_break])
def test_what_cannot_be_converted_stays_as_it_is(f, when):
    compared(f, [([0.5, -0.25], n) for n in (3, 5, 4, 7, 2, 1, 6, 0)])


def test_lines_of_loops_that_count():
    (line,), _ = sides.deciding_lines(counted.__code__)
    assert line == f"test_compile_turns.py:{counted.__code__.co_firstlineno + 2}"
    assert not sides.deciding_lines(until.__code__)[0]
    assert not sides.deciding_lines(appends.__code__)[0]


def test_a_name_that_a_turn_may_read_before_it_assigns_it_is_kept():
    import ast

    body = ast.parse("a = 1\nb = a + c\nif a: d = 2\ne = d\nc = 3\nf, g = b, f").body
    assert repeats.assigned_first(body) == {"a", "b", "e", "g"}


def test_threads_run_the_function_as_it_is_meanwhile(when):
    import threading

    fast = chainrule.compile(until, on_fallback="eager")
    wrong = []

    def run():
        for limit in (1.0, 2.0, 3.0, 4.5) * 20:
            if not math.isclose(until([0.5, 0.25], limit), expected[limit], rel_tol=1e-12):
                wrong.append(limit)

    expected = {x: until([0.5, 0.25], x) for x in (1.0, 2.0, 3.0, 4.5)}
    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for limit in np.linspace(0.6, 6, 30).tolist():
        fast.value_and_grad([0.5, 0.25], limit)
    for thread in threads:
        thread.join()
    assert not wrong
