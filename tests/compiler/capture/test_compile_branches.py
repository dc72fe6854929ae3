"""Branches, loops, max and sorted over Values: every call goes the way eager goes."""

import math
import operator
import re

import numpy as np
import pytest
from compile_twins import (
    BOTH_SIDES,
    all_replayed,
    by_numbers,
    graded,
    numbers,
    outcome,
    same,
)

import chainrule
from chainrule import Value, maximum, minimum, tanh, vsum, where


def matched(x, y):
    match x > y:
        case True:
            return x * 3
        case _:
            return x * 2


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x * 2 if x > 0 else y * 3,
        lambda x, y: x * 2 if x >= 0 else y * 3,
        lambda x, y: x * 2 if x < y else y * 3,
        lambda x, y: x * 2 if x <= y else y * 3,
        lambda x, y: x * 2 if 0 < x else y * 3,  # noqa: SIM300
        lambda x, y: x * 2 if -1 < x <= y else y * 3,
        lambda x, y: x * 2 if not x > 0 else y * 3,
        lambda x, y: x * 2 if x > 0 and y > 0 else y * 3,
        lambda x, y: x * 2 if x > 0 or y > 0 else y * 3,
        lambda x, y: x * 2 if x else y * 3,
        lambda x, y: x * 2 if bool(x) else y * 3,
        lambda x, y: (x or y) * 2,
        lambda x, y: (x and y) * 2,
        lambda x, y: where(x > y, x * 2, y * 3),
        lambda x, y: where(x, x * 2, y * 3),
        lambda x, y: where(not x > y, x * 2, y * 3),
        lambda x, y: where(x.data != y.data, x * 2, y * 3),
        lambda x, y: where(x.data == y.data, x * 2, y * 3),
        lambda x, y: where((x > 0) == (y > 0), x * 2, y * 3),
        lambda x, y: where((x > 0) & (y > 0), x * 2, y * 3),
        lambda x, y: where((x > 0) | (y > 0), x * 2, y * 3),
        lambda x, y: where((x > 0) ^ (y > 0), x * 2, y * 3),
        lambda x, y: x * (x > y),
        lambda x, y: x + (x > y),
        lambda x, y: (x > y) * x + (x <= y) * y,
        lambda x, y: x * ((x > 0) + (y > 0)),
        lambda x, y: x * sum(v > 0 for v in (x, y)),
        lambda x, y: x * sum([v > 0 for v in (x, y)]) / 2,
        lambda x, y: x * -(x > y),
        lambda x, y: x * (1 - (x > y)),
        lambda x, y: x * int(x > y) + y * float(x > y),
        lambda x, y: [x * 2, y * 3][x > y],
        lambda x, y: x * {True: 2, False: 3}[x > y],
        lambda x, y: x * (3 if (x > y) is True else 2),
        lambda x, y: x * (3 if (x > y) is not False else 2),
        lambda x, y: x * (3 if True is (x.data > y.data) else 2),
        matched,
        lambda x, y: x * (3 if type(x > y) is bool else 2),
        lambda x, y: x * {True: 2}.get(x > y, 3),
        lambda x, y: x * [2, 3][(x > y) is True],
        lambda x, y: x * (3 if (x > y) == True else 2),  # noqa: E712
        lambda x, y: x * (3 if (x > y) != (x < y) else 2),
        lambda x, y: x * len(str(x > y)),
        lambda x, y: x * len(f"{x > y}"),
        lambda x, y: x * (3 if isinstance(x > y, bool) else 2),
        lambda x, y: x * all([x > 0, y > 0]) + y * any(v > 0 for v in (x, y)),
        lambda x, y: x * (~(x > y)),
        lambda x, y: x * ((x > y) < 1),
        lambda x, y: x * ((x > y) / 2),
        lambda x, y: x * ((x > y) ** 2),
        lambda x, y: x * ((x > y) and 5),
        lambda x, y: x * math.copysign(1.0, x > y),
        lambda x, y: x * (2 if operator.truth(x) else 3),
        lambda x, y: x * (2 if operator.gt(x, y) else 3),
        lambda x, y: x * len([v for v in (x, y) if v > 0]) + x,
        lambda x, y: next((v for v in (x, y) if v > 0), x * 7) * 2,
        lambda x, y: x * np.sign((x - y).data > 0),
    ],
)  # fmt: skip
def test_a_branch_on_values_goes_either_way(f):
    for first in range(len(BOTH_SIDES)):
        same(by_numbers(f, *BOTH_SIDES[first:], *BOTH_SIDES))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x * 2 if x > 0 else y * 3,
        lambda x, y: where(x > y, x * 2, y * 3),
        lambda x, y: max(x, y) * 2,
        lambda x, y: x * (x > y),
        lambda x, y: x * x.data + y,
        lambda x, y: x * max(x.data, y.data),
    ],
)
def test_branches_that_recordings_hold_are_replayed(f):
    ran = all_replayed(by_numbers(f, *BOTH_SIDES, *BOTH_SIDES))
    assert ran.recordings <= 3


def test_where_of_a_comparison_needs_no_second_recording():
    ran = all_replayed(by_numbers(lambda x, y: where(x > y, x * 2, y * 3) * y, *BOTH_SIDES))
    assert ran.recordings == 1


def test_a_loop_until_convergence_takes_as_many_turns_as_eager():
    def newton(x, y):
        guess = y
        while abs(guess.data * guess.data - x.data) > 1e-12:
            guess = (guess + x / guess) / 2
        return guess

    script = by_numbers(newton, *[(x, y) for x in (2.0, 9.0, 2.0, 1e-3, 1e6) for y in (1.0, 3.0)])
    assert same(script).replayed


def test_a_loop_on_values_takes_as_many_turns_as_eager():
    def doubled(x, y):
        n = 0
        while x < y:
            x = x * 2
            n += 1
        return x * n

    same(by_numbers(doubled, (1.0, 5.0), (1.0, 50.0), (7.0, 5.0), (1.0, 5.0), (0.1, 1.0)))


def test_early_return_and_break_are_branches():
    def f(x, y):
        total = x
        for i in range(10):
            total = total + y
            if total > 3:
                return total * i
            if total < -3:
                break
        return total * total

    same(by_numbers(f, (0.0, 1.0), (0.0, 0.1), (0.0, -1.0), (5.0, 0.0), (2.0, 0.5), (0.0, 1.0)))


def test_equality_of_values_is_identity():
    def script(compile):
        a, b = numbers(1.0, 1.0)
        fast = compile(lambda x, y: x * 2 if x == y else x * 3 + y)
        yield graded(fast(a, b), a, b)
        yield graded(fast(a, a), a, b)
        yield graded(fast(b, b), a, b)
        yield graded(fast(b, a), a, b)

    assert same(script).eager == 0


def test_membership_of_a_passed_value_is_not_frozen():
    def script(compile):
        state = numbers(1.0, 2.0)
        other = Value(5.0)
        fast = compile(lambda x: x * 2 if x in state else x * 3)
        for x in (other, state[0], state[1], other):
            yield graded(fast(x), other, *state)

    same(script)


def test_a_value_that_is_passed_and_captured_is_not_confused_with_another():
    def script(compile):
        p, q = numbers(2.0, 3.0)
        fast = compile(lambda x: x * p + x)
        for x in (p, q, p, q):
            yield graded(fast(x), p, q)
        again = compile(lambda x: x * p + x)
        for x in (q, p, q, p):
            yield graded(again(x), p, q)

    same(script)


def test_a_model_that_is_passed_and_captured_may_be_another_next_time():
    def script(compile):
        model = {"w": Value(2.0), "b": Value(1.0)}
        other = {"w": Value(7.0), "b": Value(-1.0)}

        def penalty():
            return model["w"] * model["w"]

        fast = compile(lambda m, x: m["w"] * x + m["b"] + penalty())
        for m in (model, other, model):
            yield graded(fast(m, 3), *model.values(), *other.values())

    same(script)


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: max(x, y) * 2,
        lambda x, y: min(x, y) * 2,
        lambda x, y: max([x, y, x * y]) * 2,
        lambda x, y: max(v * v for v in (x, y)) * 2,
        lambda x, y: max(x, 1.5) * y,
        lambda x, y: max(0, x) * y + y,
        lambda x, y: min(1.5, x, y) * y + y,
        lambda x, y: max(x.data, y) * x,
        lambda x, y: max(y, x.data) * x,
        lambda x, y: min(y, x.data, 0.5) * x,
        lambda x, y: max([x.data, y.data, 1]) * x,
        lambda x, y: max([x, y], key=lambda v: v.data) * 2,
        lambda x, y: max([x, y], key=lambda v: -v) * 2,
        lambda x, y: max(x, y, key=abs) * 2,
        lambda x, y: max([x, y], default=0) * 2,
        lambda x, y: max([v for v in (x, y) if v > 0], default=x * 7) * 2,
        lambda x, y: max([x]) * max([y.data]) * max(y, y),
        lambda x, y: max((x, 0), (y, 1))[0] * 2,
        lambda x, y: max([(x.data, 0), (y.data, 1)])[1] * x + y,
        lambda x, y: max(range(2), key=lambda i: (x, y)[i].data) * x + y,
        lambda x, y: [x, y][max(range(2), key=[x, y].__getitem__)] * 2,
        lambda x, y: sorted([x, y, x * y])[1] * 2,
        lambda x, y: sorted([x, y], reverse=True)[0] * 2,
        lambda x, y: sorted([x, y], key=lambda v: v.data * v.data)[0] * 2,
        lambda x, y: vsum(i * v for i, v in enumerate(sorted([x, y, x - y]))),
        lambda x, y: sorted(range(2), key=lambda i: -(x, y)[i].data)[0] * x + y,
        lambda x, y: (lambda biggest=max: biggest(x, y))() * 2,
        lambda x, y: maximum(x, y) * minimum(x, 1.0) + x,
        lambda x, y: [x, y][[x.data, y.data].index(max(x.data, y.data))] * 2,
        lambda x, y: x * (max(x.data, y.data) - min(x.data, y.data)),
    ],
)  # fmt: skip
def test_the_largest_of_values_is_chosen_at_every_call(f):
    special = [(math.nan, 1.0), (1.0, math.nan), (-math.inf, -math.inf), (math.inf, 1.0)]
    same(by_numbers(f, *BOTH_SIDES, *special, *BOTH_SIDES))
    same(by_numbers(f, *special[::-1], *BOTH_SIDES[::-1]))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: np.max(np.array([x, y, x * y])) * 2,
        lambda x, y: np.sort(np.array([x, y, x * y]))[0] * 2,
        lambda x, y: [x, y, x * y][np.argmin(np.array([x, y, x * y]))] * 2,
        lambda x, y: np.array([x, y]).max() * np.array([x, y]).sum(),
    ],
)
def test_numpys_choice_among_values_is_made_at_every_call(f):
    same(by_numbers(f, *BOTH_SIDES, *BOTH_SIDES))


@pytest.mark.parametrize(
    "f", [lambda x: max([]), lambda x: max(x), lambda x: max(), lambda x: min(1)]
)
def test_wrong_uses_of_max_raise_as_eager_does(f):
    def script(compile):
        fast = compile(lambda x: f(x) * 2)
        for _ in range(2):
            yield outcome(fast, Value(1.0))

    same(script)


@pytest.mark.parametrize(
    ("f", "branches"),
    [
        (lambda x: max(x, 0.0), True),
        (lambda x: 2.0 * min(0.5, x, 0.7) + 1.0, True),
        (lambda x: sum(max(0.0, 1.0 - y * x) for y in (1.0, 2.0)), True),
        (lambda x: [x * 3.0, max([0.0, x])], True),
        (lambda x: np.array([x * 3.0, max([0.0, x])]), True),
        (lambda x: max(x, 0.0) * x, False),
        (lambda x: max(x, x * 0.5) + 1.0, False),
        (lambda x: maximum(x, 0.0), False),
    ],
)
def test_a_result_that_is_a_value_or_a_number_is_what_eager_gives(f, branches):
    fast = chainrule.compile(f, on_fallback="eager")
    for number in (1.0, 2.0, -1.0, 0.6, 0.25, 3.0, -2.0):
        wanted, found = f(Value(number)), fast(Value(number))
        assert type(found) is type(wanted)
        for a, b in zip(np.ravel(found), np.ravel(wanted), strict=True):
            assert type(a) is type(b)
            assert (a.data if isinstance(a, Value) else a) == (
                b.data if isinstance(b, Value) else b
            )
    told = re.search("a branch at|returns a Value that it was passed", fast.report())
    assert (told is not None) is branches


@pytest.mark.parametrize(
    "f",
    [
        lambda p: sum(p) if max(p) == p[-1] else p[0] * 2,
        lambda p: p[0] * (3 if min(p) is p[0] else 5),
        lambda p: p[1] * p.index(max(p)),
        lambda p: p[1] * len({max(p), p[0], min(p)}),
        lambda p: p[1] * (2 if max(p) in p[1:] else 3),
        lambda p: p[0] * ({max(p): 2.0}.get(p[0], 7.0)),
        lambda p: chainrule.gradients(p[0] * p[0] * p[1], [max(p)])[0] * p[0],
        lambda p: p[0] * (2 if max(min(p), p[1]) is p[1] else 3),
    ],
)
def test_which_value_max_gave_is_seen(f):
    fast = chainrule.compile(f, on_fallback="raise")
    for p in ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [1.0, 3.0, 2.0], [2.0, 1.0, 3.0]) * 2:
        assert fast.value_and_grad(p) == chainrule.value_and_grad(f)(p)
    assert fast.dispatch.counts.replayed >= 4


def test_a_returned_value_that_max_chose_is_the_one_that_was_passed():
    p = [Value(1.0), Value(2.0), Value(0.5)]
    for f in (lambda p: max(p), lambda p: np.array([min(p)]), lambda p: {"a": max(min(p), p[0])}):
        fast = chainrule.compile(f, on_fallback="eager")
        for row in ((1.0, 2.0, 0.5), (3.0, 2.0, 0.25), (0.5, 1.0, 2.0)):
            for v, number in zip(p, row, strict=True):
                v.data = number
            found, wanted = fast(p), f(p)
            pairs = [(found, wanted)]
            if isinstance(found, dict):
                pairs = [(found["a"], wanted["a"])]
            elif isinstance(found, np.ndarray):
                pairs = [(found[0], wanted[0])]
            assert all(a is b for a, b in pairs)


def test_numbers_that_max_chose_are_rounded_and_compared_as_eager_does():
    def rounded(p, narrow):
        return (min(-0.528, p) + narrow).tanh() if p > 5.0 else tanh(min(-0.528, p) + narrow) * p

    def compared(p, q):
        return p * (2.0 if max(p * 1.0, 0.75) == q else 3.0)

    for f, calls in (
        (rounded, [(-0.4, np.float32(0.3)), (-0.6, np.float32(0.3)), (-0.1, np.float32(0.7))]),
        (compared, [(0.5, 0.75), (1.0, 0.75), (0.25, 0.75)]),
    ):
        fast = chainrule.compile(f, on_fallback="eager")
        for call in [*calls, *calls]:
            assert fast.value_and_grad(*call) == chainrule.value_and_grad(f)(*call)
    captured = Value(0.75)
    fast = chainrule.compile(lambda p: compared(p, captured), on_fallback="eager")
    for p in (0.5, 1.0, 0.25):
        assert fast(p) == compared(p, captured)


def test_without_lifting_max_keeps_the_bits_of_gradients():
    def squashed(v):
        return tanh(v + v + v)

    def f(w):
        return sum((squashed(max(w)) for _ in w), w[0] * 0.1) + min(w) * max(w)

    fast, eager = chainrule.compile(f, lift=False), chainrule.value_and_grad(f)
    rng = np.random.default_rng(3)
    for _ in range(50):
        w = rng.normal(size=3).tolist()
        assert fast.value_and_grad(w) == eager(w)
    assert "0 eager" in fast.report()


def test_max_under_another_name_is_guarded():
    biggest = max

    def script(compile):
        fast = compile(lambda x, y: biggest(x, y) * biggest([x.data, y.data]))
        x, y = numbers(1.0, 2.0)
        for a, b in BOTH_SIDES:
            x.data, y.data = a, b
            yield graded(fast(x, y), x, y)

    same(script)


def test_builtins_are_restored_whatever_happens_while_recording():
    def raising(x):
        raise KeyError("own error")

    def leaking(x):
        return x * float(x.data)

    before = max, min
    for f in (raising, leaking, lambda x: max(x, x * 2), lambda x: x.log()):
        fast = chainrule.compile(f, on_fallback="eager")
        for number in (1.0, -1.0):
            outcome(fast, Value(number))
        assert (max, min) == before
        assert type(max) is type(len), "builtins are themselves again"
        assert type(Value(1.0).data) is float, "nothing records any more"


@pytest.mark.parametrize("gather", [list, tuple, all, any], ids=lambda f: f.__name__)
def test_a_generator_in_a_built_in_function_is_compiled_on_every_python(gather):
    """Python 3.14 and newer write these calls out, with an ``is`` that nobody wrote."""

    def of_list(x, y):
        return sum(list(a * b for a, b in zip(x, y, strict=True)))  # noqa: C400

    def of_tuple(x, y):
        return sum(tuple(a * b for a, b in zip(x, y, strict=True)))

    def of_all(x, y):
        return x[0] * (2 if all(a > b for a, b in zip(x, y, strict=True)) else 3)

    def of_any(x, y):
        return x[0] * (2 if any(a > b for a, b in zip(x, y, strict=True)) else 3)

    f = {list: of_list, tuple: of_tuple, all: of_all, any: of_any}[gather]
    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for x in ([1.0, 2.0], [3.0, 4.0], [0.0, 9.0]):
        assert fast.value_and_grad(x, [0.5, 3.0]) == eager(x, [0.5, 3.0])
    assert "0 eager" in fast.report()


# --- whether max gave a Value or a number ---------------------------------------------------------


def of_one_selected(xs, i):
    return [max(x, 0.0) for x in xs][i]


def of_one_selected_and_more(xs, i):
    return [max(x, 0.0) for x in xs][i] + 1.0


def beside_data(xs, i):
    return max(xs[i], 0.0) + xs[0].data


def of_the_larger(xs, i):
    return max(max(xs[0], 0.0), max(xs[i], -1.0))


def a_long_way_on(xs, i):
    total = max(xs[0], 0.0)
    for k in range(30):
        total = total + k
    return total * i


def beside_a_value(xs, i):
    return max(xs[i], 0.0) * xs[0]


@pytest.mark.parametrize(
    "f",
    [
        *(of_one_selected, of_one_selected_and_more, beside_data, of_the_larger),
        *(a_long_way_on, beside_a_value),
    ],
)
def test_a_result_that_max_may_have_made_a_number_has_eagers_type(f):
    fast = chainrule.compile(f, on_fallback="eager")
    for k in range(40):
        xs = [float((k * 7 + j * 5) % 9 - 4) for j in range(3)]
        if k < 12:
            xs = [1.0 + k, 2.0, 3.0]
        wanted = f([Value(x) for x in xs], k % 3)
        got = fast([Value(x) for x in xs], k % 3)
        assert type(got) is type(wanted)
        assert getattr(got, "data", got) == getattr(wanted, "data", wanted)


def test_a_count_of_numbers_at_a_branch_is_recorded_as_it_is():
    def counted(p, x):
        zs = [a * p[1] for a in x]
        n = sum(z > 0 for z in zs)
        return zs[n - 1] * p[0] + n // 2 * p[1]

    fast = chainrule.compile(counted, lift=True, on_fallback="raise")
    chance = np.random.default_rng(3)
    for i in range(20):
        x = chance.normal(size=5).tolist()
        if i % 4 == 2:  # with a little more than 0 they would go another way
            x[1:4] = [0.0, -0.0, 0.0]
        p = [-1.0, 0.5 + i / 7]
        value, gradient = chainrule.value_and_grad(counted)(p, x)
        found = fast.value_and_grad(p, x)
        assert (found[0], *found[1]) == pytest.approx((value, *gradient), rel=1e-12)
