"""Both sides of a branch: where calls go many ways, one recording computes both, and is eager's.

Each function here is called with numbers that go all ways through its branches. What a side does
besides computing must not be seen where Python would not have run it.
"""

import math
import operator
import random

import numpy as np
import pytest

import chainrule
from chainrule import Value, exp, log, sqrt
from chainrule.compiler.capture import forks, sides, tracing
from chainrule.compiler.runtime import branching, pipeline

RNG = random.Random(3)
FEW = branching.WAYS + 2


def numbers(count):
    return [RNG.choice([-1.0, 1.0]) * RNG.uniform(0.1, 2.0) for _ in range(count)]


def compared(f, calls, **options):
    """The function compiled, after calls that all gave eager's numbers."""
    fast, eager = chainrule.compile(f, on_fallback="eager", **options), chainrule.value_and_grad(f)
    for arguments in calls:
        try:
            wanted = eager(*arguments)
        except Exception as error:
            with pytest.raises(type(error), match=None):
                fast.value_and_grad(*arguments)
            continue
        value, gradient = fast.value_and_grad(*arguments)
        assert value == pytest.approx(wanted[0], rel=1e-11, abs=1e-12)
        assert np.ravel(gradient) == pytest.approx(np.ravel(wanted[1]), rel=1e-10, abs=1e-11)
        assert type(value) is type(wanted[0])
    return fast


def assign(p, xs):
    total = p[0]
    for x in xs:
        if x > p[1]:
            total = total * p[2] + x
        elif x < -1:
            total = total - x
    return total


def constant(p, xs):
    u = p[0]
    for x in xs:
        u = u * x + p[1]
        if u > 1.5:
            u = 1.5
        if u < -1.5:
            u = -1.5
    return u * p[2]


def ternary(p, xs):
    return sum(p[0] * x if x * p[1] > 0 else p[2] - x for x in xs)


def several(p, xs):
    a, b = p[0], p[1]
    for x in xs:
        if (x > 0 and a * x < 2) or not b > 0:
            a, b = b, a + 0.5 * x
        if -1 < x <= b:
            b = 0.9 * b
    return a - b


def skipped(p, xs):
    total = p[0] * 1
    for x in xs:
        if x * p[1] > 0.5:
            continue
        scale = x * p[2]
        total = total + scale * scale
    return total


def filtered(p, xs):
    return sum(p[0] * x for x in xs if x > p[1]) + sum([x * p[2] for x in xs if x < 0])


def flag(p, xs):
    on, used = False, p[0] * 0
    for x in xs:
        if x > 0.5:
            on = True
        elif x < -0.5:
            on = False
        used = used + (p[1] if on else p[2] * 0.1)
    return used


def searched(p, xs):
    low, high = -3.0, 3.0
    for _ in range(12):
        middle = (low + high) / 2
        if p[0].data * middle < xs[0]:
            low = middle
        else:
            high = middle
    return p[0] * (low + high) + p[1] * xs[1] + p[2]


def items(p, xs):
    state = [p[0], p[1], p[2]]
    for k, x in enumerate(xs):
        state[k % 3] = state[k % 3] + x
        if state[k % 3] > 1:
            state[k % 3] = 1 / state[k % 3]
            state[0] = state[0] * 0.5
    return state[0] + 2 * state[1] + 3 * state[2]


def best(p, xs):
    found = None
    for x in xs:
        d = (p[0] - x) ** 2 + p[1]
        if found is None or d < found:
            found = d
    return found * p[2]


def trimmed(p, xs):
    errors = sorted((p[0] * x + p[1]) ** 2 for x in xs)
    middle = sum(sorted([a, b, c])[1] for a, b, c in zip(xs, xs[1:], xs[2:], strict=False))
    return sum(errors[:5]) + p[2] * middle


def ranked(p, xs):
    pairs = sorted(((p[0] * x, p[1] + x) for x in xs), key=lambda pair: pair[0], reverse=True)
    return sum(a * b for a, b in pairs[:3]) * p[2]


def exchanged(p, xs):
    state, order = [p[0], p[1], p[2]], [0.5, 2.0]
    for k, x in enumerate(xs):
        i, j = k % 3, (k + 1) % 3
        if x > state[i]:
            state[i], state[j] = state[j] * 0.5, state[i]
        elif x < -1:
            order[0], state[i], order[1] = order[1] * x, order[0], state[i]
    return state[0] + 2 * state[1] + 3 * state[2] + order[0] * order[1]


ALL_WAYS = [
    *(assign, constant, ternary, several, skipped, filtered, flag, searched, items, best),
    *(trimmed, ranked, exchanged),
]


@pytest.mark.parametrize("lift", [None, True])
@pytest.mark.parametrize("f", ALL_WAYS)
def test_one_recording_goes_all_ways(f, lift):
    fast = compared(f, [(numbers(3), numbers(9)) for _ in range(24)], lift=lift)
    assert fast.dispatch.counts.traces <= FEW
    assert fast.dispatch.counts.eager == 0


def test_what_is_to_stay_on_the_tape_keeps_the_bits_of_eager():
    fast, eager = chainrule.compile(assign, lift=False), chainrule.value_and_grad(assign)
    for _ in range(24):
        arguments = numbers(3), numbers(9)
        assert fast.value_and_grad(*arguments) == eager(*arguments)
    assert fast.dispatch.counts.traces > FEW


def by_integer(p, ts, k):
    total = p[0] * 1
    for t in ts:
        if t == k:  # noqa: SIM108
            total = total + p[t]
        else:
            total = total - 0.1 * p[k]
    return total


def counted(p, ts, k):
    total, n = p[0] * 1, 0
    for t in ts:
        n = n + 2 if t > k else n
        total = total + p[(t + n) % 3]
    return total * n


def divided(p, ts, k):
    share = 6 // k if k else 1
    return sum(p[t] for t in ts) * share + (p[ts[0]] if ts[0] < 2 else p[0] * 3)


@pytest.mark.parametrize("f", [by_integer, counted, divided])
def test_branches_on_integers(f):
    calls = [
        (numbers(3), [RNG.randrange(3) for _ in range(6)], RNG.randrange(3)) for _ in range(40)
    ]
    fast = compared(f, calls)
    assert fast.dispatch.counts.traces <= FEW + 2


def test_sides_of_a_function_that_calls_itself_twice_do_not_double_without_end(monkeypatch):
    calls, bound = [], forks.stay_within_bounds
    monkeypatch.setattr(forks, "stay_within_bounds", lambda: calls.append(1) or bound())

    def f(p, n):
        def tree(n):
            return p[0] if n <= 0 else tree(n - 1) * p[1] + tree(n - 2)

        found = tree(n)
        return found + 0.01 * sum(exp(-found * found + k) for k in range(60))

    compared(f, [(numbers(2), n) for n in (4, 0, 6, 1, 3, 5, 2, 0, 7, 4)])
    assert 0 < len(calls) < 10_000  # of 10 calls; without a bound it was 160,000


def test_a_side_that_is_undefined_counts_only_where_it_is_taken():
    def roots(p, xs):
        return sum(sqrt(x * p[0]) if x * p[0] > 0 else p[1] * x for x in xs)

    def logs(p, xs):
        total = p[0] * 1
        for x in xs:
            if x > 0:  # noqa: SIM108
                total = total + p[1] * math.log(x)
            else:
                total = total + 1 / (x * p[1])
        return total

    for f in (roots, logs):
        compared(f, [([1.0, p], numbers(5)) for p in numbers(30)])


def test_what_a_side_does_besides_computing_happens_only_where_it_is_taken():
    class Meter:
        def __init__(self):
            self.read = 0

        @property
        def scale(self):
            self.read += 1
            return 1.0 + self.read

        def __add__(self, other):
            self.read += 10
            return self.read + other

    def appended(p, xs):
        seen = []
        for x in xs:
            y = seen.append(x) if x > 0 else None
        return p[0] * len(seen) + p[1] * (y is None)

    def popped(p, xs):
        left, total = list(xs), p[0] * 1
        for x in xs:
            if x > 0:
                total = total + left.pop() * p[1]
        return total + len(left)

    def through(p, xs):
        rest, total = iter(xs), p[0] * 1
        for x in xs:
            if x > 0:
                total = total + sum(y * p[1] for y in rest)
        return total

    def property_read(p, xs):
        meter, total = Meter(), p[0] * 1
        for x in xs:
            if x > 0:
                total = total * meter.scale
        return total + p[1] * meter.read

    def operator_called(p, xs):
        meter, total = Meter(), p[0] * 1
        for x in xs:
            if x > 0:
                total = total + p[1] * (meter + 1)
        return total * meter.read

    def in_place(p, xs):
        row, total = [], p[0] * 1
        for x in xs:
            if x > 0:
                row += [x]
            total = total + p[1] * len(row)
        return total

    def unbound(p, xs):
        for x in xs:
            if x > 1.9:
                y = p[0] * x
        return y + p[1]

    for f in (appended, popped, through, property_read, operator_called, in_place, unbound):
        compared(f, [(numbers(2), numbers(6)) for _ in range(25)])


def test_printing_and_state_outside_stay_as_they_are(capsys):
    seen = []

    def shown(p, xs):
        total = p[0] * 1
        for x in xs:
            if x > 0:
                print("up")
                seen.append(1)
                total = total + p[1] * x
        return total

    calls = [([1.0, 2.0], numbers(4)) for _ in range(12)]
    ups = sum(x > 0 for _, xs in calls for x in xs)
    fast = chainrule.compile(shown, on_fallback="eager")
    for arguments in calls:
        fast.value_and_grad(*arguments)
    assert (capsys.readouterr().out.count("up"), len(seen)) == (ups, ups)


LIMIT, TABLE = [1.0], [0.5, 1.5, 2.5]


def with_state(p, xs, t):
    total = p[0] * 1
    for x in xs:
        if x > LIMIT[0]:
            total = total + p[1] * x
        scale = TABLE[t] if x < 0 else 1.0
        total = total * scale
    return total


def test_changed_state_and_integers_are_seen_by_a_recording_of_both_sides():
    fast, eager = chainrule.compile(with_state), chainrule.value_and_grad(with_state)
    for k in range(40):
        LIMIT[0], TABLE[k % 3] = 0.2 * (k % 7), 0.5 + k % 5
        arguments = numbers(2), numbers(5), k % 3
        for _ in range(2):
            value, gradient = fast.value_and_grad(*arguments)
            wanted = eager(*arguments)
            assert value == pytest.approx(wanted[0], rel=1e-11)
            assert gradient == pytest.approx(wanted[1], rel=1e-11)


def test_ties_go_the_way_that_eager_goes():
    def steps(p, xs):
        y = p[0]
        for x in xs:
            if y * x >= 1.0:  # noqa: SIM108
                y = y - x
            else:
                y = y * 2
        return y

    calls = [([k / 4], [1.0, 2.0, 0.5, RNG.choice([1.0, 2.0])]) for k in range(-8, 9)]
    compared(steps, calls)
    compared(steps, calls, lift=True)


def test_plain_calls_return_what_eager_returns():
    def kept(x, y):
        return 2.0 if x > y else (x * y if x > -y else 3)

    fast = chainrule.compile(kept, on_fallback="eager")
    for _ in range(30):
        x, y = numbers(2)
        found, wanted = fast(x, y), kept(x, y)
        assert type(found) is type(wanted)
        assert found == wanted
        a, b = Value(x), Value(y)
        assert isinstance(fast(a, b), Value) is isinstance(kept(Value(x), Value(y)), Value)


def test_derivatives_inside_and_of_it():
    def inner(p, xs):
        slope = chainrule.grad(lambda q: q * q * p[0] if q > 0 else q * p[1])
        return sum(slope(x) if x > 0.5 else p[0] * x for x in xs)

    compared(inner, [(numbers(2), numbers(4)) for _ in range(15)])
    fast = chainrule.compile(assign)
    for _ in range(12):
        p, xs = numbers(3), numbers(5)
        fast.value_and_grad(p, xs)
        found = chainrule.hessian(fast)(p, xs)
        assert np.asarray(found) == pytest.approx(np.asarray(chainrule.hessian(assign)(p, xs)))


def test_samples_that_go_all_ways_are_mapped_by_one_recording():
    rows = [numbers(6) for _ in range(64)]
    fast, eager = chainrule.compile(assign), chainrule.value_and_grad(assign)
    p = numbers(3)
    for xs in rows[:8]:
        fast.value_and_grad(p, xs)
    total, gradient = fast.batch_value_and_grad(p, [(xs,) for xs in rows])
    wanted = [eager(p, xs) for xs in rows]
    assert fast.map(p, np.array(rows)) == pytest.approx([v for v, _ in wanted], rel=1e-9)
    assert total == pytest.approx(np.mean([v for v, _ in wanted]), rel=1e-9)
    assert gradient == pytest.approx(np.mean([g for _, g in wanted], axis=0).tolist(), rel=1e-9)


# --- what a side must not do, and what must not be told -------------------------------------------


@pytest.fixture
def unchecked(monkeypatch):
    """Both sides from the first recording on, and no first result is compared with eager's."""
    monkeypatch.setattr(branching, "WAYS", 0)
    monkeypatch.setattr(pipeline, "check_against_eager", lambda *_: None)
    monkeypatch.setattr(tracing, "confirm", lambda *_, **__: None)


class Counting:
    """Counts every way in which Python asks it for something."""

    def __init__(self):
        self.asked = 0

    def _ask(self, *others):
        self.asked += 1
        return self.asked

    def __gt__(self, other):
        return self._ask() % 2 == 0

    def __eq__(self, other):
        return self._ask() > 0

    def __hash__(self):
        return 1

    def __index__(self):
        return self._ask() * 0

    def __str__(self):
        return str(self._ask())

    __add__ = __radd__ = _ask


def objects_in_lists(p, xs):
    m, t = Counting(), p[0] * 1
    for x in xs:
        if x > 0:
            t = t + sum([m, m])
        elif x < -1:
            t = t + len([max([m, m])]) + ([m] == [m, 1])
    return t * (1 + m.asked) + p[1]


def objects_as_keys(p, xs):
    m, t = Counting(), p[0] * 1
    table = {m: 2.0}
    for x in xs:
        if x > 0:
            t = t + xs[m] + len(xs[m:2])
        elif x < -1:
            t = t * table[m]
        else:
            t = t + len("%s" % (m,))  # noqa: UP031
    return t * (1 + m.asked) + p[1]


def assigned_in_a_condition(p, xs):
    d, t = 5.0, p[0] * 1
    for x in xs:
        if (d := x * p[1]) > 0 and d < 1:
            t = t + d
    return t + d + sum(d * p[0] for x in xs if (d := x * p[1]) > 0 and d < 1)


def stored_in_order(p, xs):
    rest, a = iter([*xs, *xs]), [p[0], p[1], 0.5]
    for x in xs:
        if x > 0.5:
            a[int(next(rest) > 0)] = next(rest) * p[0]
    return a[0] + 2 * a[1]


def exchanged_in_order(p, xs):
    """Keys are asked for when their turn comes, after the stores before them."""
    rest, a, places = iter([*xs, *xs, *xs]), [p[0], p[1], 0.5], [0, 1]
    for x in xs:
        if x > 0.5:
            a[int(next(rest) > 0)], a[2] = next(rest) * p[0], a[0]
        elif x < -0.5:
            places[0], a[places[0]] = 1, a[1] * 2
            places[0] = 0
    return a[0] + 2 * a[1] + 3 * a[2]


def rows_for_a_while(p, xs, i, j):
    rows = [[p[0], p[1]], [p[1], p[2]], [p[2], p[0]]]
    t, y = rows[i][0], [1.0]
    if xs[0] > 0.5:
        rows[0][0] = p[2] * 5
        t = t + rows[j][0]
        y = [t]
    return t + rows[j][0] * 2 + y[0]


class Total:
    def __init__(self, v):
        self.v, self.n = v, 0

    def __radd__(self, other):
        return self + other

    def __add__(self, other):
        self.n += 1
        self.v = self.v + getattr(other, "v", other)
        return self


def sums_of_objects(p, xs):
    s = sum(Total(x * p[0]) for x in xs if x > -1.5)
    return (s.v * s.n if s else p[0]) + p[1]


def kept_over_turns(p, xs):
    t = p[0] * 1
    for k, x in enumerate(xs):
        if k == 0 or x > 0:
            y = p[1] * x
            t = t + y
        else:
            t = t - y
    return t


def attribute_of_a_number(p, xs):
    y = p[0] * xs[0] if xs[1] > 0 else 0.5
    return y.data * p[1]


def method_of_a_number(p, xs):
    y = 0
    for x in xs:
        if x > 1:
            y = y + p[0] * x
    return y.tanh() * p[1]


def method_of_the_class(p, xs):
    call = Value.tanh
    return call(p[0] * 1 if xs[1] > 0 else 0.5) * p[1]


def method_by_name(p, xs):
    return operator.methodcaller("tanh")(p[0] * 1 if xs[1] > 0 else 0.5) * p[1]


def asked_for_its_type(p, xs):
    y = p[0] * xs[0] if xs[1] > 0 else 0.5
    return p[1] * (2 if isinstance(y, Value) else 3) * (5 if hasattr(y, "data") else 7)


def matched_by_its_type(p, xs):
    match p[0] * xs[0] if xs[1] > 0 else 0.5:
        case Value():
            return p[1] * 2
        case _:
            return p[1] * 3


def sorted_with_ties(p, xs):
    tied = [p[0], p[0] * 1, p[1], p[0] * 1.0, p[1] * 1]
    up, down = sorted(tied), sorted(tied, reverse=True)
    return up[0] + 2 * up[1] + 4 * up[3] + 8 * down[0] + 16 * down[2]


def sorted_and_asked_which(p, xs):
    z = sorted(p)
    return p[0] * (2 if z[0] is p[0] else 3) + p[1] * z.index(p[1])


def sorted_beside_what_is_no_number(p, xs):
    with chainrule.nonfinite("allow"):
        z = sorted(log(p[0] * x) if x > 1 else p[0] * x for x in xs)
        return z[0] if z[0] == z[0].data else p[1] * 2


def in_an_array(p, xs):
    y = p[0] * xs[0] if xs[1] > 0 else 0.5
    return p[1] * (2 if np.array([y]).dtype == object else 3)


@pytest.mark.parametrize(
    "f",
    [
        *(objects_in_lists, objects_as_keys, assigned_in_a_condition, stored_in_order),
        exchanged_in_order,
        *(rows_for_a_while, sums_of_objects, kept_over_turns, attribute_of_a_number),
        *(method_of_a_number, method_of_the_class, method_by_name, asked_for_its_type),
        *(matched_by_its_type, sorted_with_ties, sorted_and_asked_which),
        *(sorted_beside_what_is_no_number, in_an_array),
    ],
)
def test_a_side_that_is_not_taken_does_not_show(f, unchecked):
    integers = f.__code__.co_argcount - 2
    calls = [(numbers(3), numbers(5), *RNG.choices(range(3), k=integers)) for _ in range(30)]
    compared(f, calls)


def test_a_result_is_a_value_where_eagers_is(unchecked):
    def chosen(x, y):
        a = x * 2 if x > 0 else 1.5
        b = a if y > 0 else 2.5
        return max(b if x > y else a, x * y)

    fast = chainrule.compile(chosen, on_fallback="eager")
    for _ in range(40):
        x, y = numbers(2)
        found, wanted = fast(Value(x), Value(y)), chosen(Value(x), Value(y))
        assert type(found) is type(wanted)
        assert getattr(found, "data", found) == getattr(wanted, "data", wanted)


# --- the source -----------------------------------------------------------------------------------


def test_source_that_is_not_the_functions_own_is_not_used():
    namespace = {}
    text = "def f(x):\n    return x if x > 0 else -x\n"
    exec(compile(text, __file__, "exec"), namespace)  # other lines are at its place
    assert sides.converted(namespace["f"].__code__) is None
    other = eval(compile("lambda x: x if x > 0 else -x", __file__, "eval"))
    assert sides.converted(other.__code__) is None
    assert sides.converted((lambda x: x if x > 0 else -x).__code__) is not None
    assert sides.converted(assign.__code__) is not None


def test_converted_code_does_what_the_function_does_where_nothing_is_recorded():
    from chainrule.compiler.capture.hooks import REWRITER

    arguments = [([0.5, 1.0, 2.0], numbers(9)) for _ in range(9)]
    functions = [assign, constant, ternary, several, skipped, filtered, flag, items, best]
    wanted = [[f(*given) for given in arguments] for f in functions]
    with REWRITER.visible(functions, both=True):
        found = [[f(*given) for given in arguments] for f in functions]
    assert found == wanted
    assert exp(log(2.0)) == pytest.approx(2.0)
