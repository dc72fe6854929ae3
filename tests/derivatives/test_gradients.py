"""gradients(y, xs): floats or Values, any order, and never a `.grad` touched."""

import math

import numpy as np
import pytest

from chainrule import Value, gradients, hessian, hvp, topological_order


def is_array(result, expected):
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=1e-14, atol=0)


def test_gradients_returns_one_number_per_input_and_touches_no_grad():
    a, b, unused = Value(2.0), Value(3.0), Value(1.0)
    y = a * b + a
    for v in topological_order(y):
        v.grad = 7.0
    result = gradients(y, [a, b, unused])
    assert [float(g) for g in result] == [4.0, 2.0, 0.0]
    assert {v.grad for v in topological_order(y)} == {7.0}
    assert all(isinstance(g, float) for g in result)


def test_gradients_with_respect_to_interior_nodes_and_the_output_itself():
    a = Value(2.0)
    h = a * a
    y = h * 3.0
    assert [float(g) for g in gradients(y, [h, y, a])] == [3.0, 1.0, 12.0]
    assert [float(g) for g in gradients(a, [a])] == [1.0]


def test_create_graph_gives_values_and_touches_no_grad_at_any_order():
    x, z = Value(0.5), Value(2.0)
    y = (x * z).tanh() * x.exp() + x / z
    for v in topological_order(y):
        v.grad = -3.0
    first = gradients(y, [x, z], create_graph=True)
    assert all(isinstance(g, Value) for g in first)
    second = gradients(first[0], [x, z], create_graph=True)
    third = gradients(second[0], [x])
    assert math.isfinite(third[0])
    assert {v.grad for v in topological_order(y)} == {-3.0}
    built = set(topological_order(second[0])) - set(topological_order(y))
    assert {v.grad for v in built} == {0.0}


def test_create_graph_of_an_input_without_influence_is_the_value_zero():
    x, unused = Value(2.0), Value(1.0)
    g = gradients(x * x, [unused], create_graph=True)[0]
    assert isinstance(g, Value)
    assert g.data == 0.0


def test_a_gradient_graph_can_be_swept_by_backward():
    x = Value(3.0)
    (g,) = gradients(x**3, [x], create_graph=True)
    assert g.data == 27.0
    g.backward()
    assert x.grad == 18.0


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x**5 - 2 * x**3 + 4 * x - 1,
        lambda x: x * x * x * x * x - 2 * (x * x * x) + 4 * x - 1,
        lambda x: x * (4 + x * x * (x * x - 2)) - 1,
    ],
    ids=["powers", "products", "Horner"],
)
def test_derivatives_of_a_polynomial_are_exact_to_the_last_order(f):
    x = Value(2.0)
    y = f(x)
    derivatives = [y.data]
    for _ in range(6):
        (y,) = gradients(y, [x], create_graph=True)
        derivatives.append(y.data)
    assert derivatives == [23.0, 60.0, 136.0, 228.0, 240.0, 120.0, 0.0]


@pytest.mark.parametrize("power", [0, 1, 2, 3])
def test_derivatives_of_a_power_at_zero_are_exact_to_the_last_order(power):
    x = Value(0.0)
    y = x**power
    derivatives = []
    for _ in range(power + 2):
        (y,) = gradients(y, [x], create_graph=True)
        derivatives.append(y.data)
    expected = [0.0] * (power + 2)
    if power:
        expected[power - 1] = float(math.factorial(power))
    assert derivatives == expected


def test_partials_with_create_graph_follow_ieee_rules_and_never_raise():
    x = Value(0.0)
    (g,) = gradients(x.sqrt(), [x], create_graph=True)
    assert g.data == math.inf
    (g,) = gradients(x.sqrt() * 0.0 + x, [x], create_graph=True)
    assert g.data == 1.0
    (g,) = gradients(Value(1.0).asin(), [Value(1.0)], create_graph=True)
    assert g.data == 0.0


def test_second_derivatives_survive_where_a_first_one_happens_to_be_zero():
    def f(x):
        return (x[0] * 2).exp() * x[1]

    slope = 2 * math.exp(2.0)
    is_array(hessian(f)(np.array([1.0, 0.0])), [[0.0, slope], [slope, 0.0]])
    is_array(hessian(lambda x: x[0] * x[1] * x[2])(np.zeros(3)), np.zeros((3, 3)))
    is_array(hessian(lambda x: x[0] * x[1])(np.zeros(2)), [[0.0, 1.0], [1.0, 0.0]])
    is_array(hessian(lambda x: x[0].sin() ** 2)(np.zeros(1)), [[2.0]])
    is_array(hvp(f)(np.array([1.0, 0.0]), np.array([1.0, 0.0])), [0.0, slope])


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_sine_returns_to_itself(order):
    x = Value(0.3)
    y = x.sin()
    for _ in range(order):
        (y,) = gradients(y, [x], create_graph=True)
    expected = [math.cos, lambda t: -math.sin(t), lambda t: -math.cos(t), math.sin][order - 1]
    assert y.data == pytest.approx(expected(0.3), rel=1e-14)


def test_a_custom_node_is_fine_in_first_order_and_named_in_second():
    x = Value(3.0)
    y = Value(9.0, (x,), (6.0,), op="mystery_square") * 2.0
    assert [float(g) for g in gradients(y, [x])] == [12.0]

    def twice():
        (g,) = gradients(y, [x], create_graph=True)
        return gradients(g, [x])

    with pytest.raises(Exception, match="mystery_square"):
        twice()
    with pytest.raises(Exception, match="mystery_square"):
        hessian(lambda v: Value(v[0].data ** 2, (v[0],), (2 * v[0].data,), op="mystery_square"))(
            [3.0]
        )
    assert x.grad == 0.0
