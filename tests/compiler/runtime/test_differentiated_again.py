"""The result of a compiled call is differentiated again, as that of the function itself is.

``fast(values)`` gives one node where the function gives a graph. Derivatives of any order by
``create_graph=True`` are those of the graph, whichever path answered the call.
"""

import copy
import math
import pickle

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import (
    Value,
    draw,
    exp,
    explain,
    grad,
    gradients,
    hessian,
    hvp,
    jacobian,
    no_grad,
    sin,
    sqrt,
    tanh,
    topological_order,
    where,
)
from chainrule.compiler.runtime import heap
from chainrule.core.condensed import Condensed

PATHS = pytest.mark.parametrize("lift", [None, True, False])


def derivatives(y, xs, order):
    """All derivatives of one order, as numbers."""
    if order == 1:
        return gradients(y, xs)
    return [derivatives(g, xs, order - 1) for g in gradients(y, xs, create_graph=True)]


def smooth(a, b):
    return tanh(a * b) * a + sum(a**k * sin(b) for k in range(2, 6)) / b


def straight(a, b):
    return a + 2 * b


def constant(a, b):
    return Value(4.0) * 2


def larger(a, b):
    return max(a * a, b * a, 0.0) + min(b**3, a)


def one_side(a, b):
    return a * a * b if a > b else b**3


def kinks(a, b):
    return (
        chainrule.relu(a * a - b)
        + where(a > 0, a**3, b**2)
        + abs(a * b)
        + chainrule.maximum(a, b) ** 2
    )


def detached(a, b):
    with no_grad():
        c = a * b
    return a.data * b**2 + Value((a * a).data) * a**2 + c * a**2


def by_exponent(a, b):
    return a**b + b**-2 + 2.0**a


FUNCTIONS = [
    smooth,
    straight,
    constant,
    larger,
    one_side,
    kinks,
    detached,
    by_exponent,
]


AROUND = [
    (lambda y, a, b: y, 3),
    (lambda y, a, b: y**2 * a, 3),
    (lambda y, a, b: exp(y * b) + y * a, 2),
]


def agree(y, wanted, xs, order=3):
    for k in range(1, order + 1):
        assert np.ravel(derivatives(y, xs, k)) == pytest.approx(
            np.ravel(derivatives(wanted, xs, k)), rel=1e-9, abs=1e-11
        )


@PATHS
@pytest.mark.parametrize("f", FUNCTIONS)
def test_derivatives_of_every_order_are_those_of_the_graph_on_every_path(f, lift):
    fast = chainrule.compile(f, lift=lift, on_fallback="eager")
    for call in range(8):
        a, b = Value(0.3 + 0.01 * call), Value(0.7 - 0.2 * (call % 3))
        y, wanted = fast(a, b), f(a, b)
        for around, order in AROUND:
            agree(around(y, a, b), around(wanted, a, b), [a, b], order)
    assert fast.dispatch.counts.replayed > 0


def compiled_once(f, **options):
    """A compiled function, and a call of it that gives one node."""
    fast = chainrule.compile(f, **options)

    def call(*arguments):
        for _ in range(4):
            y = fast(*arguments)
            if y.op == fast.dispatch.name:
                return y
        raise AssertionError("no call was replayed")

    return fast, call


def test_compiled_results_go_into_each_other_and_into_larger_expressions():
    _, call = compiled_once(smooth, lift=False)
    _, other = compiled_once(one_side, lift=False)
    a, b = Value(0.4), Value(-0.3)
    y = other(call(a, b), sin(call(b + 1.0, a))) * call(a * b + 0.5, a)
    wanted = one_side(smooth(a, b), sin(smooth(b + 1.0, a))) * smooth(a * b + 0.5, a)
    agree(y, wanted, [a, b])


def test_the_same_value_twice_and_one_made_of_another():
    _, call = compiled_once(smooth, lift=False)
    a = Value(0.4)
    c = a * a + 0.1
    agree(call(a, a), smooth(a, a), [a])
    agree(call(a, c), smooth(a, c), [a, c])


def test_by_the_result_itself_it_is_the_last_node_of_the_graph():
    def f(a):
        return exp(a * 2.0)

    _, call = compiled_once(f, lift=False)
    a, b = Value(0.4), Value(0.4)
    y, wanted = call(a), f(b)
    (slope,), (other,) = (
        gradients(y**2, [a], create_graph=True),
        gradients(wanted**2, [b], create_graph=True),
    )
    assert gradients(slope, y) == pytest.approx(gradients(other, wanted), rel=1e-12)


def test_a_graph_may_be_one_of_the_operands():
    a = Value(0.4)
    b = a * a
    y = Value(b.data, (a, b), (0.0, 1.0), op=Condensed("second", lambda children: children[1]))
    agree(y * a, b * a, [a, b])


def test_derivatives_of_functions_that_call_a_compiled_one():
    fast = chainrule.compile(smooth, lift=False)
    x, v = np.array([0.4, 0.9]), np.array([1.0, -2.0])

    def calling(of):
        return lambda p: of(p[0], p[1]) ** 2 + of(p[1], 0.5) * p[0]

    for _ in range(4):
        for transform in (hessian, jacobian):
            np.testing.assert_allclose(
                transform(calling(fast))(x), transform(calling(smooth))(x), rtol=1e-9
            )
        np.testing.assert_allclose(hvp(calling(fast))(x, v), hvp(calling(smooth))(x, v), rtol=1e-9)
        np.testing.assert_allclose(
            jacobian(grad(calling(fast)))(x), hessian(calling(smooth))(x), rtol=1e-9
        )


def test_derivatives_of_functions_around_a_compiled_result():
    _, call = compiled_once(smooth, lift=False)
    a, b = Value(0.4), Value(0.7)
    y, wanted = call(a, b), smooth(a, b)
    agree(grad(lambda t: t**2 * y)(3.0), grad(lambda t: t**2 * wanted)(3.0), [a, b], 2)
    agree(hvp(lambda t: t**3 * y)(3.0, 1.0), hvp(lambda t: t**3 * wanted)(3.0, 1.0), [a, b], 2)


def test_values_that_the_function_reaches():
    w = {"a": [Value(0.3), Value(-0.2)], "b": Value(0.5)}

    def f(xs):
        return sum(tanh(v * x + w["b"]) ** 2 for v, x in zip(w["a"], xs, strict=True))

    _, call = compiled_once(f)
    params = [*w["a"], w["b"]]
    agree(call([1.0, 2.0]), f([1.0, 2.0]), params)
    c = Value(0.9)
    agree(call([1.0, c]) * c, f([1.0, c]) * c, [*params, c], 2)


def test_integers_select_and_data_is_data():
    def f(p, tokens, xs, n):
        total = p[0] ** n
        for t, x in zip(tokens, xs, strict=True):
            total = total + p[t] ** 2 * x * p[t - 1]
        return total * xs[0]

    _, call = compiled_once(f, lift=False)
    for tokens, n in (([0, 1, 2], 3), ([2, 2, 1], 3), ([1, 0, 0], 2)):
        p = [Value(0.3), Value(0.4), Value(-0.7)]
        xs = np.array([1.0, 2.0, 3.0])
        agree(call(p, tokens, xs, n), f(p, tokens, xs, n), p)


def test_infinite_slopes_are_those_of_the_graph():
    def f(a, b):
        return sqrt(a) * b + a * b

    _, call = compiled_once(f, lift=False)
    for number in (0.0, 4.0):
        a, b = Value(number), Value(0.0)
        assert derivatives(call(a, b), [a, b], 2) == pytest.approx(
            np.array(derivatives(f(a, b), [a, b], 2)), nan_ok=True
        )


def test_a_value_with_something_beside_it():
    def f(a, b):
        return (a**3 * b, {"twice": 2.0 * b.data})

    fast = chainrule.compile(f, lift=False)
    for _ in range(4):
        a, b = Value(2.0), Value(3.0)
        y, beside = fast(a, b)
        agree(y, f(a, b)[0], [a, b])
        assert beside == {"twice": 6.0}


# --- what changes afterwards ----------------------------------------------------------------------

factor = 2.0


def test_numbers_that_change_after_the_call_make_no_difference():
    global factor
    xs, weights = np.array([1.0, 2.0]), [0.5, 0.25]

    def f(a, xs, weights):
        return factor * a**3 * xs[0] + a**2 * xs[1] * weights[0] * weights[1]

    _, call = compiled_once(f, lift=False)
    a = Value(1.5)
    y, wanted = call(a, xs, weights), f(a, xs, weights)
    before = [derivatives(wanted, [a], k) for k in (1, 2, 3)]
    factor, xs[:], weights[0] = 7.0, 100.0, -3.0
    try:
        agree(y, wanted, [a])
        found = [derivatives(y, [a], k) for k in (1, 2, 3)]
        assert [np.ravel(x) for x in found] == [pytest.approx(np.ravel(x)) for x in before]
    finally:
        factor = 2.0


def test_a_value_that_is_set_after_the_call_counts_where_it_does_in_the_graph():
    _, call = compiled_once(smooth, lift=False)
    a, b = Value(0.4), Value(0.7)
    y, wanted = call(a, b), smooth(a, b)
    a.data = 0.9
    agree(y, wanted, [a, b])
    y.data = wanted.data = 5.0
    agree(y**2, wanted**2, [a, b])


def test_the_graph_is_made_once():
    _, call = compiled_once(smooth, lift=False)
    a, b = Value(0.4), Value(0.7)
    y = call(a, b)
    first = gradients(y, a, create_graph=True)
    a.data = 0.9
    second = gradients(y, a, create_graph=True)
    inner = {id(v) for v in topological_order(first)} & {id(v) for v in topological_order(second)}
    assert len(inner) > 5


@pytest.mark.parametrize("changes", [False, True])
def test_a_large_call_is_recorded_again_and_never_of_another_state(changes, monkeypatch):
    monkeypatch.setattr(heap, "LARGE", 0)
    global factor

    def f(a, xs):
        return factor * sum(tanh(a * x) * x for x in xs)

    fast, call = compiled_once(f, lift=True)
    a, xs = Value(0.3), [0.5, 1.0, 2.0]
    y = call(a, xs)
    assert View(fast).variant.recording.shed
    wanted = f(a, xs)
    try:
        if changes:
            factor = 3.0
            with pytest.raises(RuntimeError, match="no longer as it was"):
                gradients(y, a, create_graph=True)
            factor = 2.0
        xs[0] = 9.0
        agree(y, wanted, [a])
    finally:
        factor = 2.0


# --- what a node shows, and copies of it ----------------------------------------------------------


def test_the_node_stays_one_operation():
    _, call = compiled_once(smooth, lift=False)
    a, b = Value(0.4, label="a"), Value(0.7, label="b")
    y = call(a, b)
    before = str(explain(y)), draw(y).svg, topological_order(y)
    gradients(y, [a, b], create_graph=True)
    assert (str(explain(y)), draw(y).svg, topological_order(y)) == before
    assert type(y.op) is type(y._op) is str
    assert y.op == "smooth"
    assert y.children == (a, b)


def test_a_deep_copy_is_differentiated_again_by_its_own_values():
    _, call = compiled_once(smooth, lift=False)
    a, b = Value(0.4), Value(0.7)
    y = call(a, b)
    gradients(y, [a, b], create_graph=True)
    twin, c, d = copy.deepcopy((y**2, a, b))
    agree(twin, smooth(c, d) ** 2, [c, d])
    assert gradients(twin, [a], create_graph=True)[0].data == 0.0
    agree(copy.copy(y) * a, smooth(a, b) * a, [a, b])


def test_deep_copies_of_several_calls_of_one_function_stay_apart():
    _, call = compiled_once(smooth, lift=False)
    a, b = Value(0.4), Value(0.7)
    y = call(a, b) * call(b, 2.0 * a) + call(a, 0.1)
    wanted = smooth(a, b) * smooth(b, 2.0 * a) + smooth(a, 0.1)
    twin, c, d = copy.deepcopy((y, a, b))
    agree(y, wanted, [a, b])
    again = smooth(c, d) * smooth(d, 2.0 * c) + smooth(c, 0.1)
    agree(twin, again, [c, d])


def test_a_pickled_copy_has_its_derivatives_as_numbers_and_says_so():
    _, call = compiled_once(smooth, lift=False)
    a, b = Value(0.4), Value(0.7)
    twin, c, d = pickle.loads(pickle.dumps((call(a, b), a, b)))
    assert gradients(twin, [c, d]) == pytest.approx(gradients(smooth(a, b), [a, b]))
    assert twin.op == "smooth"
    with pytest.raises(TypeError, match=r"'smooth'.*pickled.*call the function again"):
        gradients(twin, c, create_graph=True)
    gradients(twin**2, twin, create_graph=True)  # not through it


def test_operations_of_the_users_own_as_eager_has_them():
    @chainrule.operation(partials=[lambda y, x: 3.0 * x * x])
    def cube(x):
        return x * x * x

    @chainrule.operation(partials=[lambda y, x: math.cos(x)], opaque=True)
    def opaque(x):
        return math.sin(x)

    fast = chainrule.compile(lambda a: cube(a) * a + 1.0, lift=False)
    other = chainrule.compile(lambda a: opaque(a) * a, lift=False)
    for _ in range(3):
        a = Value(0.5)
        agree(fast(a), cube(a) * a + 1.0, [a])
        with pytest.raises(TypeError) as wanted:
            gradients(opaque(a) * a, a, create_graph=True)
        with pytest.raises(TypeError) as found:
            gradients(other(a), a, create_graph=True)
        assert str(found.value) == str(wanted.value)


def test_a_loaded_function_is_differentiated_again(tmp_path):
    fast = chainrule.compile(smooth, lift=False)
    fast.save(tmp_path / "smooth", Value(0.4), Value(0.7))
    loaded = chainrule.load(tmp_path / "smooth")
    for number in (0.4, -0.2, 0.9):
        a, b = Value(number), Value(0.7)
        y = loaded(a, b)
        assert len(topological_order(y)) == 3
        agree(y**2, smooth(a, b) ** 2, [a, b])


def test_a_function_that_counts_its_calls():
    count = {"calls": 0}

    def f(a):
        count["calls"] += 1
        return a**3 * count["calls"]

    fast = chainrule.compile(f)
    for call in range(1, 9):
        a = Value(2.0)
        agree(fast(a), a**3 * float(call), [a])


def test_while_another_function_is_recorded():
    _, call = compiled_once(smooth, lift=False)
    a, b = Value(0.4), Value(0.7)
    y, wanted = call(a, b), smooth(a, b)

    def around(result):
        return lambda x: gradients(result * x, a, create_graph=True) * x

    for _ in range(4):
        found = chainrule.compile(around(y), on_fallback="eager")(2.0)
        agree(found, around(wanted)(2.0), [a, b], 2)
