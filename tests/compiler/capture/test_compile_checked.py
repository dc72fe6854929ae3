"""What sides of branches may do: call helpers, return early, set attributes, leave a domain.

All of it must not be seen where Python would not have run the side.
"""

import math
import random
from types import SimpleNamespace

import pytest
from compared_calls import compared

import chainrule
from chainrule import exp, log, sqrt, tanh
from chainrule.compiler.runtime import branching

RNG = random.Random(11)


@pytest.fixture(params=["from the start", "where it pays"])
def when(request, monkeypatch):
    """Both sides of branches are computed at once, or after some recordings."""
    if request.param == "from the start":
        monkeypatch.setattr(branching, "WAYS", 0)
        monkeypatch.setattr(branching, "static_often", lambda *_: True)


def calls(count=60, size=5):
    numbers = [[RNG.uniform(-1.5, 1.5) for _ in range(size)] for _ in range(count)]
    return [([RNG.uniform(0.2, 1.2), RNG.uniform(-1, 1)], xs) for xs in numbers]


# --- helpers --------------------------------------------------------------------------------------


def early(x, limit):
    """Several returns."""
    if x > limit:
        return limit
    if x < -limit:
        return -limit
    y = x * x
    return y * x


def calls_early(p, xs):
    total = p[0] * 1.0
    for x in xs:
        total = total + (early(x * p[1], 0.5) if x > 0 else early(total, 0.9))
    return total


def adaptive(a, b, depth):
    m = (a + b) / 2
    if depth == 0 or abs(a - b) < 0.3:
        return tanh(m)
    return adaptive(a, m, depth - 1) + adaptive(m, b, depth - 1)


def recursive(p, xs):
    return adaptive(p[0] * xs[0], p[1] + xs[1], 4)


def endless(a, depth):
    if a > 0.5 or depth > 200_000:
        return a
    return endless(a * 2, depth + 1) + endless(a * 3, depth + 1)


def explodes_where_it_is_not_called(p, xs):
    """The recursion ends only where the branch around it is taken."""
    total = p[0] * 1.0
    for x in xs:
        if x > 0.1:
            total = total + endless(abs(x), 0)
    return total


def notes(x, seen):
    seen.append(1)
    return x * 2


def calls_one_that_notes(p, xs):
    seen = []
    total = p[0] * 1.0
    for x in xs:
        total = total + notes(x, seen) if x > 0 else total - p[1]
    return total * len(seen)


def nothing(x):
    if x > 0:
        return x


def may_return_none(p, xs):
    total = p[0]
    for x in xs:
        y = nothing(x)
        total = total + (p[1] if y is None else y)
    return total


def pair(x):
    if x > 0:
        return x, 1.0
    return -x, 2.0


def returns_pairs(p, xs):
    total = p[0] * 1.0
    for x in xs:
        a, b = pair(x * p[1])
        total = total + a * b
    return total


def of_lists(x):
    if x > 0:
        return [x, x]
    return [x]


def returns_lists(p, xs):
    total = p[0] * 1.0
    for x in xs:
        total = total + sum(of_lists(x * p[1]))
    return total


@pytest.mark.parametrize(
    "f",
    [
        calls_early,
        recursive,
        explodes_where_it_is_not_called,
        calls_one_that_notes,
        may_return_none,
        returns_pairs,
        returns_lists,
    ],
    ids=lambda f: f.__name__,
)
def test_helpers(f, when):
    compared(f, calls())


def test_helpers_need_few_recordings():
    assert compared(calls_early, calls()).dispatch.counts.traces <= 4
    assert compared(recursive, calls()).dispatch.counts.traces <= 6


def test_a_helper_that_changes_between_calls(when):
    def scale(x):
        return x * 2.0

    def f(p, xs):
        total = p[0]
        for x in xs:
            if x > 0:
                total = total + helpers.scale(x)
        return total

    helpers = SimpleNamespace(scale=scale)
    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(6):
        ((p, xs),) = calls(1)
        assert fast.value_and_grad(p, xs)[0] == pytest.approx(f(p, xs))
    helpers.scale = lambda x: x * 3.0
    for _ in range(6):
        ((p, xs),) = calls(1)
        assert fast.value_and_grad(p, xs)[0] == pytest.approx(f(p, xs))


# --- objects --------------------------------------------------------------------------------------


class Controller:
    def __init__(self, gain):
        self.gain, self.integral, self.last = gain, 0.0, None

    def update(self, error):
        self.integral += error * 0.1
        slope = 0.0 if self.last is None else error - self.last
        self.last = error
        u = self.gain * error + self.integral + 0.1 * slope
        if u > 0.8:
            self.integral -= error * 0.1
            return 0.8
        if u < -0.8:
            self.integral = self.integral - error * 0.1
            return -0.8
        return u


def controlled(p, xs):
    controller, y = Controller(p[0]), p[1]
    for x in xs:
        y = y + 0.5 * controller.update(x - y)
    return y + controller.integral


class Refusing:
    """Attributes that are not what they seem."""

    def __init__(self):
        self.__dict__["seen"], self.__dict__["level"] = [], 0.0

    def __setattr__(self, name, value):
        self.seen.append(name)
        self.__dict__[name] = value


class Property:
    def __init__(self):
        self._level, self.count = 0.0, 0

    @property
    def level(self):
        return self._level

    @level.setter
    def level(self, x):
        self.count += 1
        self._level = x


class Slots:
    __slots__ = ("level",)

    def __init__(self):
        self.level = 0.0


def stores(make, count):
    def f(p, xs):
        state = make()
        for x in xs:
            if x > 0:
                state.level = state.level + x * p[1]
            elif x < -1:
                state.level -= p[0]
        return state.level * 1.0 + p[0] * count(state)

    return f


@pytest.mark.parametrize(
    "f",
    [
        controlled,
        stores(Refusing, lambda state: len(state.seen)),
        stores(Property, lambda state: state.count),
        stores(Slots, lambda state: 1),
        stores(lambda: SimpleNamespace(level=0.0), lambda state: len(vars(state))),
        stores(lambda: Controller(1.0), lambda state: len(vars(state))),
    ],
    ids="controlled refusing property slots namespace new_attribute".split(),
)
def test_attributes(f, when):
    compared(f, calls())


def test_an_object_with_two_names(when):
    def f(p, xs):
        a = Controller(p[0])
        b = a if len(xs) > 3 else Controller(p[1])
        for x in xs:
            if x > 0:
                a.integral = a.integral + x
                b.integral = b.integral * 2 + p[1]
        return a.integral + 3 * b.integral + p[0]

    compared(f, calls(30, 5) + calls(30, 2))


def test_a_captured_object_is_not_touched_by_sides_that_are_not_taken(when):
    state = SimpleNamespace(level=1.0)

    def f(p, x):
        if x > 5:
            state.level = state.level + x
        return p[0] * x + state.level

    fast = chainrule.compile(f, on_fallback="eager")
    for x in (1.0, 2.0, 3.0, -1.0, 0.5):
        assert fast.value_and_grad([2.0], x) == (2.0 * x + 1.0, [x])
        assert state.level == 1.0
    assert fast.value_and_grad([2.0], 6.0) == (12.0 + 7.0, [6.0])
    assert state.level == 7.0


# --- domains --------------------------------------------------------------------------------------


def logarithms(p, xs):
    total = p[0] * 1.0
    for x in xs:
        if x > 0:
            total = total + log(x) * p[1]
    return total


def roots(p, xs):
    return sum(sqrt(x * p[0]) if x > 0 else x * p[1] for x in xs)


def quotients(p, xs):
    total = p[0]
    for k, x in enumerate(xs):
        total = total + (p[1] / (x - xs[0]) if k else 1.0 / p[0])
    return total


def zero_or_not(p, xs):
    total = p[0]
    for x in xs:
        y = 0.0 if x < 0.5 else x
        if y != 0:
            total = total + p[1] / y + y**-1.5
    return total


def of_data(p, xs):
    total = 0.0
    for x in xs:
        total += math.log(x) if x > 0 else math.sqrt(-x)
    return p[0] * total


def by_method(p, xs):
    total = p[0]
    for x in xs:
        y = p[1] + x
        total = total + (y.log() if y > 0 else (-y).sqrt())
    return total


def undefined_where_taken(p, xs):
    total = p[0]
    for x in xs:
        if x > -1.3:
            total = total + log(x + 1.2)
    return total


def overflows(p, xs):
    total = p[0]
    for x in xs:
        total = total + (exp(1000.0 * x) if x < 0 else x * p[1])
    return total


@pytest.mark.parametrize(
    "f",
    [
        logarithms,
        roots,
        quotients,
        zero_or_not,
        of_data,
        by_method,
        undefined_where_taken,
        overflows,
    ],
    ids=lambda f: f.__name__,
)
def test_sides_that_are_not_defined_everywhere(f, when):
    compared(f, calls())


@pytest.mark.parametrize("f", [logarithms, roots, zero_or_not, of_data, by_method])
def test_they_run_eagerly_no_more(f):
    counts = compared(f, calls(100)).dispatch.counts
    assert counts.eager == 0
    assert counts.traces <= 5


def test_integer_division_in_a_side(when):
    def f(p, n, k):
        total = p[0]
        for _ in range(3):
            if k > 0:
                total = total + p[1] * (n // k) + n % k
            k -= 1
        return total

    compared(f, [([0.5, 0.25], RNG.randrange(20), RNG.randrange(-1, 5)) for _ in range(40)])
