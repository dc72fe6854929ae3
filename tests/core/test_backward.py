"""The pass itself: accumulate from zero, commit at once; modes; skipping what is zero."""

import math
import threading
from random import Random

import pytest
from hypothesis import given
from number_systems import chainrule_functions
from programs import ALL_OPS, programs, random_program, run

import chainrule
from chainrule import Value, gradients, no_grad, nonfinite, topological_order

FUNCTIONS = chainrule_functions()


# --- accumulating -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda a: a * a,
        lambda a: a * a * a + a,
        lambda a: (a + a) * (a * 3.0) + a.tanh() * a + a.exp(),
        lambda a: sum([a, a, a, a * a]),
    ],
    ids=["two paths", "four paths", "shared interior nodes", "sum"],
)
def test_backward_twice_exactly_doubles_the_leaf_gradient(f):
    a = Value(0.7)
    y = f(a)
    y.backward()
    once = a.grad
    interior = [v.grad for v in topological_order(y) if v.children]
    y.backward()
    assert a.grad == 2 * once
    assert [v.grad for v in topological_order(y) if v.children] == interior
    y.backward()
    assert a.grad == 2 * once + once


@given(programs(ALL_OPS))
def test_backward_twice_doubles_every_leaf_and_keeps_every_interior_gradient(program):
    leaves = [Value(x) for x in program.inputs]
    y = run(program, leaves, FUNCTIONS)[-1]
    y.backward()
    order = topological_order(y)
    once = [v.grad for v in order]
    y.backward()
    for v, g in zip(order, once, strict=True):
        assert v.grad == (g if v.children else 2 * g)


def test_two_losses_sharing_an_interior_node_give_the_sum():
    x = Value(2.0)
    h = x * x
    first, second = h * 3, h + h
    first.backward()
    assert (x.grad, h.grad) == (12.0, 3.0)
    second.backward()
    assert x.grad == 12.0 + 8.0
    assert h.grad == 2.0  # an interior gradient is that of the latest pass


def test_a_loss_built_on_another_loss_gives_the_sum():
    x = Value(3.0)
    first = x * x
    second = first * x
    first.backward()
    second.backward()
    assert x.grad == 6.0 + 27.0


def test_interior_gradients_are_replaced_and_leaf_gradients_added_to():
    x = Value(2.0)
    h = x * 3
    y = h * 5
    x.grad, h.grad, y.grad = 100.0, 100.0, 100.0
    y.backward()
    assert (x.grad, h.grad, y.grad) == (115.0, 5.0, 1.0)


def test_a_root_that_is_a_leaf_adds_its_seed():
    x = Value(2.0)
    x.backward()
    assert x.grad == 1.0
    x.backward(gradient=0.25)
    assert x.grad == 1.25


def test_backward_leaves_nodes_outside_the_graph_alone():
    x = Value(2.0)
    y = x * 2
    above = y * 7
    above.grad = 3.5
    y.backward()
    assert above.grad == 3.5


@pytest.mark.parametrize("seed", [2.0, -0.5, 0, 3])
def test_backward_scales_by_the_gradient_given(seed):
    x, w = Value(3.0), Value(4.0)
    (x * w).backward(gradient=seed)
    assert (x.grad, w.grad) == (4.0 * seed, 3.0 * seed)
    (x * w).backward(seed)
    assert x.grad == 8.0 * seed


def test_zero_grad_clears_the_whole_graph_and_nothing_else():
    a, b, other = Value(2.0), Value(3.0), Value(1.0)
    y = (a * b + a).tanh()
    other.grad = 4.0
    y.backward()
    y.zero_grad()
    assert [v.grad for v in topological_order(y)] == [0.0] * len(topological_order(y))
    assert other.grad == 4.0
    y.backward()
    once = a.grad
    y.zero_grad()
    y.backward()
    assert a.grad == once


def test_topological_order_has_inputs_first_and_every_node_once():
    for i in range(50):
        program = random_program(Random(i), ALL_OPS, 3, 25)
        root = run(program, map(Value, program.inputs), FUNCTIONS)[-1]
        order = topological_order(root)
        place = {v: k for k, v in enumerate(order)}
        assert len(place) == len(order)
        assert order[-1] is root
        assert all(place[child] < place[v] for v in order for child in v.children)


# --- zeros and infinities -----------------------------------------------------------------------


def test_a_node_with_gradient_zero_passes_nothing_on():
    x = Value(0.0)
    root = x.sqrt()
    assert (root.data, root.local_grads) == (0.0, (math.inf,))
    y = root * 0.0 + x
    y.backward()
    assert (root.grad, x.grad) == (0.0, 1.0)


def test_a_custom_infinite_local_gradient_times_zero_makes_no_nan():
    x = Value(1.0)
    strange = Value(1.0, (x, x), (math.inf, math.nan), op="strange")
    (strange * 0.0).backward()
    assert x.grad == 0.0


def test_a_zero_gradient_seed_reaches_nobody():
    x = Value(0.0)
    x.sqrt().backward(gradient=0.0)
    assert x.grad == 0.0


def test_manual_step_of_a_node_with_gradient_zero_passes_nothing_on():
    x = Value(0.0)
    root = x.sqrt()
    root._backward()
    assert x.grad == 0.0


def test_gradients_skips_zero_gradients_like_backward_does():
    x = Value(0.0)
    (g,) = gradients(x.sqrt() * 0.0 + x, [x])
    assert float(g) == 1.0


def test_an_infinite_partial_reaches_the_leaf_where_the_gradient_is_not_zero():
    x = Value(0.0)
    x.sqrt().backward()
    assert x.grad == math.inf


# --- modes --------------------------------------------------------------------------------------


def test_no_grad_results_remember_nothing():
    x = Value(2.0)
    with no_grad():
        y = x * 3 + x.exp()
    assert y.data == 6.0 + math.exp(2.0)
    assert (y.children, y.local_grads) == ((), ())
    y.backward()
    assert x.grad == 0.0
    assert (x * 3).children != ()


def test_no_grad_ends_with_its_block_also_when_nested_or_after_an_error():
    x = Value(2.0)
    with no_grad():
        with no_grad():
            pass
        assert (x * x).children == ()
    with pytest.raises(KeyError), no_grad():
        raise KeyError
    assert (x * x).children == (x, x)


def test_no_grad_applies_to_sums_and_functions():
    xs = [Value(1.0), Value(2.0)]
    with no_grad():
        results = [
            chainrule.vsum(xs),
            chainrule.dot(xs, xs),
            *chainrule.linear(xs, [xs]),
            chainrule.maximum(*xs),
            chainrule.exp(xs[0]),
            2 - xs[0],
            -xs[0],
        ]
    assert [r.children for r in results] == [()] * 7
    assert [r.data for r in results[:3]] == [3.0, 5.0, 5.0]


def test_nonfinite_allow_follows_ieee_rules_until_the_block_ends():
    with nonfinite("allow"):
        assert math.isnan(Value(-1.0).log().data)
        assert math.isnan((Value(-2.0) ** 0.5).data)
        assert Value(0.0).log().data == -math.inf
        assert Value(1000.0).exp().data == math.inf
        assert (1 / Value(0.0)).data == math.inf
        assert (Value(1e308) + 1e308).data == math.inf
        assert (Value(-1e200) * 1e200).data == -math.inf
        with nonfinite("raise"), pytest.raises(ValueError, match="log"):
            Value(-1.0).log()
        assert math.isnan(Value(-1.0).log().data)
    with pytest.raises(ValueError, match="log"):
        Value(-1.0).log()


def test_nonfinite_is_restored_after_an_error():
    with pytest.raises(KeyError), nonfinite("allow"):
        raise KeyError
    with pytest.raises(OverflowError):
        Value(1000.0).exp()


def test_nonfinite_takes_two_words_only():
    with pytest.raises(ValueError, match="perhaps"):
        nonfinite("perhaps").__enter__()


def in_a_thread(f):
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(f()))
    thread.start()
    thread.join()
    return outcome[0]


def test_threads_have_their_own_modes():
    def record():
        return len((Value(1.0) * 2.0).children)

    def undefined():
        try:
            return Value(-1.0).log().data
        except ValueError:
            return "raised"

    with no_grad(), nonfinite("allow"):
        assert record() == 0
        assert in_a_thread(record) == 2
        assert math.isnan(undefined())
        assert in_a_thread(undefined) == "raised"


def test_a_mode_entered_in_a_thread_does_not_leak_out():
    inside, leave = threading.Event(), threading.Event()

    def hold():
        with no_grad(), nonfinite("allow"):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(30)
    try:
        assert len((Value(1.0) * 2.0).children) == 2
        with pytest.raises(OverflowError):
            Value(1000.0).exp()
    finally:
        leave.set()
        thread.join()
