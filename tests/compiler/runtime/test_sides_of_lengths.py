"""Branches in loops over lists of changing length: both sides are recorded, and lengths share code.

Every call takes another way, and another length. A few recordings that go one way each are enough
to tell, whichever lengths they are of; those after them are for all ways.
"""

import random
import warnings

import pytest

import chainrule
from chainrule.compiler.runtime import ledger
from chainrule.compiler.runtime.ledger import Ledger, allowance

RNG = random.Random(31)


def huber_if(p, xs, ys):
    total = 0.0
    for x, y in zip(xs, ys, strict=True):
        r = p[0] * x + p[1] - y
        if abs(r) < 1.0:
            total += 0.5 * r * r
        else:
            total += abs(r) - 0.5
    return total


def huber_ternary(p, xs, ys):
    total, d = 0.0, 1.0
    for i in range(len(xs)):
        r = p[0] * xs[i] + p[1] - ys[i]
        total += 0.5 * r * r if abs(r) < d else d * (abs(r) - 0.5 * d)
    return total / len(xs)


def huber_function(p, xs, ys):
    def huber(r):
        if abs(r) <= 1.0:
            return 0.5 * r * r
        return abs(r) - 0.5

    return sum(huber(p[0] * x + p[1] - y) for x, y in zip(xs, ys, strict=True))


def hinge_continue(p, xs, ys):
    loss = p[0] * p[1]
    for x, y in zip(xs, ys, strict=True):
        margin = 1 - y * (p[0] * x + p[1])
        if margin <= 0:
            continue
        loss += margin
    return loss


def clip_if(p, xs, ys):
    total = p[0] * p[1]
    for x, y in zip(xs, ys, strict=True):
        z = p[0] * x + p[1]
        if z > 1:
            z = 1.0
        elif z < -1:
            z = -1.0
        total += (z - y) ** 2
    return total


def only_long_ones(p, xs, ys):
    """What lists of some lengths alone do, and only where a parameter is not 0."""
    total = p[0] * 0.0
    for x, y in zip(xs, ys, strict=True):
        r = p[1] * x - y
        total += r if r > 0 else -2 * r
    if len(xs) > 24:
        total = total + p[0] * abs(p[1] - 0.25)
    return total


FUNCTIONS = [huber_if, huber_ternary, huber_function, hinge_continue, clip_if, only_long_ones]


def calls(count, zeros=0):
    for k in range(count):
        n = RNG.randrange(12, 34)
        p = [0.0 if k < zeros else RNG.gauss(0, 1), RNG.gauss(0, 1)]
        yield p, [RNG.gauss(0, 1) for _ in range(n)], [RNG.gauss(0, 1) for _ in range(n)]


def compared(f, some, **options):
    fast, eager = chainrule.compile(f, **options), chainrule.value_and_grad(f)
    for arguments in some:
        value, gradient = fast.value_and_grad(*arguments)
        wanted = eager(*arguments)
        assert type(value) is type(wanted[0])
        assert value == pytest.approx(wanted[0], rel=1e-10, abs=1e-11)
        assert gradient == pytest.approx(wanted[1], rel=1e-9, abs=1e-10)
    return fast


@pytest.mark.parametrize("f", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_few_calls_tell_that_every_call_goes_another_way(f):
    fast = compared(f, calls(70, zeros=4))
    ways = [line for line in fast.report().splitlines() if line.startswith("  variant:")]
    assert sum(" 0 guards" not in line for line in ways) <= 5  # until numbers went both ways
    assert len(ways) <= 22 + 4  # one for each length, for one way, and for longer calls


def test_longer_code_serves_the_other_lengths():
    fast = compared(huber_ternary, calls(60))
    assert fast.report().count("of a longer call") >= 8


@pytest.mark.parametrize("f", [huber_if, huber_function, clip_if], ids=lambda f: f.__name__)
def test_nobody_is_told_to_write_where_when_both_sides_are_computed(f):
    allowance.left = 0.3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compared(f, calls(1200))


def test_recordings_of_both_sides_are_to_be_earned_as_what_they_cost():
    allowance.left = 0.0
    one_side, both = Ledger(), Ledger()
    for account, of_sides in ((one_side, False), (both, True)):
        account.recorded(600, of_sides=of_sides)
    size = both.instructions
    assert one_side.instructions == 600
    assert size == int(600 / ledger.SIDES)
    assert both._balance < 0.9 * one_side._balance < 0.0
