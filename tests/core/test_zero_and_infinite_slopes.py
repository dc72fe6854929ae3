"""Zero passes nothing on, be it a gradient or a slope, whoever does the backward pass."""

import math

import numpy as np
import pytest
from live_page import films

import chainrule
from chainrule import (
    Value,
    explain,
    explore,
    find_nonfinite,
    gradients,
    topological_order,
    where,
)
from chainrule.compiler.runtime.results import gradient_up_to

INF = math.inf


def custom(*slopes):
    return lambda x: Value(1.0, (x,) * len(slopes), slopes, op="custom")


# name: (the function, where, its derivative)
CASES = {
    "a zero slope below an infinite one": (lambda x: (x * 0.0).sqrt(), 3.0, 0.0),
    "a zero gradient meets an infinite slope": (lambda x: x.sqrt() * 0.0, 0.0, 0.0),
    "relu's zero below an infinite slope": (lambda x: x.relu().sqrt(), -1.0, 0.0),
    "what is not chosen": (lambda x: where(False, x.sqrt(), x * 2.0), 0.0, 2.0),
    "a negative zero": (lambda x: (x * -0.0).sqrt() * -1.0, 3.0, 0.0),
    "zero between two infinities": (lambda x: (x.sqrt() * 0.0).sqrt(), 0.0, 0.0),
    "an infinite slope": (lambda x: x.sqrt() * 2.0, 0.0, INF),
    "a negative infinity": (lambda x: x.sqrt() * -2.0, 0.0, -INF),
    "infinities that cancel": (lambda x: x.sqrt() - x.sqrt(), 0.0, math.nan),
    "one operand zero, one infinite": (custom(0.0, INF), 2.0, INF),
    "a zero slope of an infinite gradient": (lambda x: custom(INF)(custom(0.0, 0.0)(x)), 1.0, 0.0),
    "a nan slope": (custom(math.nan), 1.0, math.nan),
    "a zero gradient of a nan slope": (lambda x: custom(math.nan)(x) * 0.0, 1.0, 0.0),
}
CUSTOM = ("one operand zero", "a zero slope of an", "a nan slope", "a zero gradient of a nan")
COMPILABLE = [case for case in CASES if not case.startswith(CUSTOM)]


def by_backward(f, x):
    f(x).backward()
    return x.grad


def by_backward_twice(f, x):
    y = f(x)
    y.backward()
    y.backward()
    return x.grad / 2.0


def by_hand(f, x):
    """As micrograd's lecture calls the steps."""
    y = f(x)
    y.grad = 1.0
    for node in reversed(topological_order(y)):
        node._backward()
    return x.grad


def by_explanation(f, x):
    steps = explain(f(x))
    i = steps.index_of(x)
    contributions = [c for step in steps.backward for c in step.contributions if c.child == i]
    assert same(sum(c.amount for c in contributions), steps.nodes[i].grad)
    assert not contributions or same(contributions[-1].total, steps.nodes[i].grad)
    return steps.nodes[i].grad


def by_paths(f, x):
    paths = explain(f(x)).paths(x)
    assert same(paths.total, paths.gradient)
    return paths.gradient


def by_page(f, x):
    y = f(x)
    i = explain(y).index_of(x)
    (film,) = films([explore(y)])
    totals = [frame["total"] for frame in film if frame.get("child") == i and frame["total"]]
    return float(totals[-1]) if totals else 0.0


def same(a, b):
    return a == b or (math.isnan(a) and math.isnan(b))


CONSUMERS = {
    "backward": by_backward,
    "backward twice": by_backward_twice,
    "steps by hand": by_hand,
    "gradients": lambda f, x: gradients(f(x), x),
    "gradients of many": lambda f, x: gradients(y := f(x), topological_order(y))[
        next(i for i, v in enumerate(topological_order(y)) if v is x)
    ],
    "grad": lambda f, x: chainrule.grad(f)(x.data),
    "value_and_grad": lambda f, x: chainrule.value_and_grad(f)(x.data)[1],
    "jacobian": lambda f, x: chainrule.jacobian(lambda v: [f(v), f(v)])(x.data)[1],
    "explain": by_explanation,
    "paths": by_paths,
    "page": by_page,
    "compiled node": lambda f, x: gradient_up_to(f(x), [x])[0],
}


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("case", CASES)
def test_every_backward_pass_says_the_same(case, consumer):
    f, at, wanted = CASES[case]
    assert same(CONSUMERS[consumer](f, Value(at, label="x")), wanted)


@pytest.mark.parametrize("case", CASES)
def test_find_nonfinite_finds_what_backward_leaves(case):
    f, at, _ = CASES[case]
    y = f(Value(at))
    report = find_nonfinite(y)
    y.backward()
    finite = all(math.isfinite(node.grad) for node in topological_order(y))
    assert (report is None) == finite


@pytest.mark.parametrize("lift", [False, True])
@pytest.mark.parametrize("case", COMPILABLE)
def test_compiled_functions_say_the_same(case, lift):
    f, at, _ = CASES[case]
    by_eager = [chainrule.grad(lambda p: f(p[0]) + f(p[1]))(np.array([at, b])) for b in (at, 1.0)]
    fast = chainrule.compile(lambda p: f(p[0]) + f(p[1]), lift=lift)
    for b, wanted in zip((at, 1.0, at), (*by_eager, by_eager[0]), strict=True):
        np.testing.assert_array_equal(fast.value_and_grad(np.array([at, b]))[1], wanted)


def test_an_explanation_says_why_zero_times_infinity_adds_nothing():
    x = Value(3.0, label="x")
    words = [c.words for step in explain((x * 0.0).sqrt()).backward for c in step.contributions]
    assert "x.grad += 0.0 × inf = 0.0 (zero passes nothing on)" in words


def test_gradients_leaves_every_grad_as_it_was():
    x, w = Value(2.0), Value(-3.0)
    h = x * w + 1.0
    y = h.tanh() * h * 2.0
    y.backward()
    h.grad, w.grad = 7.0, -0.0
    before = [(v.grad, math.copysign(1.0, v.grad)) for v in topological_order(y)]
    xs = [w, h, x, y, w, Value(1.0)]
    found = gradients(y, xs)
    assert [(v.grad, math.copysign(1.0, v.grad)) for v in topological_order(y)] == before
    assert (found[0], found[3], found[5]) == (found[4], 1.0, 0.0)
    y.zero_grad()
    y.backward()
    assert [v.grad for v in xs[:3]] == found[:3]


def test_up_to_the_ends_nothing_goes_through_an_end():
    x = Value(2.0)
    h = x * 3.0
    y = h * h + x
    assert y._gradients([x, h], True) == [1.0, 12.0]
    assert y._gradients([x, h], False) == [37.0, 12.0]
    assert y._gradients([y, x], True) == [1.0, 0.0]
    assert y._gradients([], True) == []
    assert (x.grad, h.grad, y.grad) == (0.0, 0.0, 0.0)
