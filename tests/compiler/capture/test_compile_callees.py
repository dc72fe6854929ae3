"""Functions that an integer chooses, ``ACTIVATIONS[k](x)``: few recordings, and eager's numbers."""

import itertools
import warnings

import numpy as np
import pytest

import chainrule
from chainrule import log, relu, sigmoid, tanh
from chainrule.compiler.runtime import branching

FEW = branching.WAYS + 2
ACTIVATIONS = [tanh, relu, sigmoid]
LAMBDAS = [lambda v: v * v, lambda v: v.tanh(), lambda v: v if v > 0 else 0.5 * v]
PAIRS = (lambda a, b: a + b, lambda a, b: a * b, lambda a, b: max(a, b))


def square(v):
    return v * v


def leaky(v, slope=0.25):
    if v > 0:
        return v
    return slope * v


BY_KEY = {1: square, 5: leaky, 7: sigmoid}


def of_list(p, ks):
    return sum(ACTIVATIONS[k](v) for k, v in zip(ks, p, strict=True))


def from_the_end(p, ks):
    return sum(ACTIVATIONS[-1 - k](v) for k, v in zip(ks, p, strict=True))


def of_lambdas(p, ks):
    return sum(LAMBDAS[k](v) for k, v in zip(ks, p, strict=True))


def of_dict(p, ks):
    return sum(BY_KEY[(1, 5, 7)[k]](v) for k, v in zip(ks, p, strict=True))


def of_two_numbers(p, ks):
    total = p[0]
    for k, v in zip(ks, p, strict=True):
        total = PAIRS[k](total, v)
    return total


def under_a_name(p, ks):
    total = 0.0
    for k, v in zip(ks, p, strict=True):
        act = ACTIVATIONS[k]
        total = total + act(v)
    return total


def in_a_side(p, ks):
    total = 0.0
    for k, v in zip(ks, p, strict=True):
        if v > 0:
            total = total + LAMBDAS[k](v)
        else:
            total = total - ACTIVATIONS[k](v)
            total = total * 0.5
    return total


def made_inside(p, ks):
    table = [lambda v: 2 * v, lambda v: v * v, lambda v: -v]
    return sum(table[k](v) for k, v in zip(ks, p, strict=True))


def one_after_the_other(p, ks):
    h = p
    for k in ks:
        h = [LAMBDAS[k](0.5 * v) for v in h]
    return sum(h)


def with_keywords(p, ks):
    return sum((square, leaky)[k % 2](v=v) for k, v in zip(ks, p, strict=True))


def store_first(row, x):
    row[0] = row[0] + x
    return x


def store_second(row, x):
    row[1] = x * x
    return -x


def into_a_row(p, ks):
    row, total = [0.0, 0.0], 0.0
    for k, v in zip(ks, p, strict=True):
        total = total + (store_first, store_second)[k % 2](row, v)
    return total + row[0] * 3 + row[1]


def logarithm(v):
    return log(v)


def undefined_elsewhere(p, ks):
    return sum((square, logarithm, leaky)[k](v) for k, v in zip(ks, p, strict=True))


def result_of(f, arguments):
    try:
        return f(*arguments)
    except Exception as error:
        return error


def compared(f, calls):
    """The function compiled, after calls that all gave what eager gives, errors too."""
    fast, eager = chainrule.compile(f, on_fallback="eager"), chainrule.value_and_grad(f)
    for arguments in calls:
        found, wanted = result_of(fast.value_and_grad, arguments), result_of(eager, arguments)
        if isinstance(wanted, Exception):
            assert (type(found), str(found)) == (type(wanted), str(wanted))
            continue
        value, gradient = found
        assert type(value) is type(wanted[0])
        assert value == pytest.approx(wanted[0], rel=1e-12, abs=1e-13)
        assert np.ravel(gradient) == pytest.approx(np.ravel(wanted[1]), rel=1e-11, abs=1e-12)
    return fast


def calls_of(count, seed=0, size=4):
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=size).tolist(), rng.integers(3, size=size).tolist()) for _ in range(count)
    ]


@pytest.mark.parametrize(
    "f",
    [
        *(of_list, from_the_end, of_lambdas, of_dict, of_two_numbers, under_a_name, in_a_side),
        *(made_inside, one_after_the_other, with_keywords, into_a_row),
    ],
)
def test_few_recordings_answer_all_choices(f):
    fast = compared(f, calls_of(120))
    assert fast.dispatch.counts.traces <= FEW
    assert "120 replayed, 0 eager" in fast.report()


def test_a_key_that_is_not_there_raises_what_eager_raises():
    calls = [*calls_of(20), ([1.0, 2.0, 3.0, 4.0], [0, 1, 3, 2]), *calls_of(20, seed=1)]
    compared(of_list, calls)
    compared(
        lambda p, ks: sum(BY_KEY[k](v) for k, v in zip(ks, p, strict=True)),
        [([0.5, -1.5], list(pair)) for pair in itertools.product((1, 5, 7, 6), repeat=2)],
    )


def test_what_is_undefined_is_so_only_where_it_is_chosen():
    calls = [([abs(x) for x in p], ks) for p, ks in calls_of(60)]
    fast = compared(undefined_elsewhere, calls)
    assert "60 replayed, 0 eager" in fast.report()
    compared(undefined_elsewhere, calls_of(120, seed=2))


SEEN = []


def seen(v):
    SEEN.append(float(v.data) if hasattr(v, "data") else v)
    return 3 * v


def test_a_function_that_does_more_is_only_called_where_it_is_chosen():
    def f(p, ks):
        return sum((square, seen)[k % 2](v) for k, v in zip(ks, p, strict=True))

    fast = chainrule.compile(f, on_fallback="eager")
    for p, ks in calls_of(20):
        SEEN.clear()
        fast.value_and_grad(p, ks)
        assert [v for v, k in zip(p, ks, strict=True) if k % 2] == SEEN


def test_another_function_in_the_table_is_seen():
    table = [square, leaky]

    def f(p, ks):
        return sum(table[k % 2](v) for k, v in zip(ks, p, strict=True))

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    calls = calls_of(12)
    for p, ks in calls:
        assert fast.value_and_grad(p, ks)[0] == pytest.approx(eager(p, ks)[0], rel=1e-12)
    table[0] = sigmoid
    for p, ks in calls:
        assert fast.value_and_grad(p, ks)[0] == pytest.approx(eager(p, ks)[0], rel=1e-12)
    assert fast.report()


def test_what_gives_other_kinds_of_things_stays_a_choice():
    kinds = [lambda v: v * v, lambda v: 1, lambda v: (v, v)[0]]

    def f(p, ks):
        return sum(kinds[k](v) for k, v in zip(ks, p, strict=True)) + p[0]

    compared(f, calls_of(40))


def total_of(xs):
    return sum(x for x in xs)


def two(xs):
    return 2.0


def test_what_a_call_uses_up_is_given_to_the_chosen_function_alone():
    def f(p, ks):
        total = p[0]
        for k in ks:
            items = (v * v for v in p)
            total = total + (total_of, two)[k % 2](items) + sum(items)
        return total

    compared(f, calls_of(40))


def test_a_name_that_is_used_otherwise_is_the_function_itself():
    def f(p, ks):
        total = 0.0
        for k, v in zip(ks, p, strict=True):
            act = ACTIVATIONS[k]
            total = total + (act(v) if act is not relu else v)
        return total

    compared(f, calls_of(40))


def test_lambdas_of_one_line_are_told_apart():
    table = [lambda v: 2 * v if v > 0 else v, lambda v: 3 * v if v > 0 else -v]

    def f(p, ks):
        return sum(table[k % 2](v) for k, v in zip(ks, p, strict=True))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast = compared(f, calls_of(60))
    assert fast.dispatch.counts.traces <= FEW
