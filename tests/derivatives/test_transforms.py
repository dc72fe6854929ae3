"""grad, value_and_grad, jacobian, hessian, hvp: the structures that go in and come out."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize

from chainrule import Value, grad, hessian, hvp, jacobian, no_grad, value_and_grad


def is_array(result, expected):
    assert isinstance(result, np.ndarray)
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=1e-14, atol=0)


def sum_of_squares(xs):
    return sum(x * x for x in xs)


@pytest.mark.parametrize(
    "x",
    [
        np.array([1.0, 2.0, 3.0]),
        np.array([1, 2, 3]),
        np.array([1.0, 2.0, 3.0], dtype=np.float32),
        [1.0, 2.0, 3.0],
        (1, 2.0, 3),
    ],
    ids=["array", "int array", "float32 array", "list", "tuple"],
)
def test_grad_of_a_vector_argument(x):
    result = grad(sum_of_squares)(x)
    assert np.asarray(result).dtype == np.float64
    assert np.asarray(result).tolist() == [2.0, 4.0, 6.0]
    value, result = value_and_grad(sum_of_squares)(x)
    assert isinstance(value, float)
    assert value == 14.0
    assert np.asarray(result).tolist() == [2.0, 4.0, 6.0]


def test_array_arguments_arrive_as_arrays_and_results_have_their_shape():
    x = np.arange(6.0).reshape(2, 3)

    def f(m):
        assert m.shape == (2, 3)
        assert isinstance(m[0, 0], Value)
        return (m[0] @ m[1]) + m.sum()

    before = x.copy()
    is_array(grad(f)(x), [[4.0, 5.0, 6.0], [1.0, 2.0, 3.0]])
    assert (x == before).all()


def test_grad_of_a_nest_has_the_nests_structure():
    model = {"w": np.array([[1.0, 2.0], [3.0, 4.0]]), "b": [0.5, -0.5], "deep": {"scale": 2.0}}

    def f(m):
        hidden = m["w"] @ np.array([1.0, 10.0])
        return sum(h * b for h, b in zip(hidden, m["b"], strict=True)) * m["deep"]["scale"]

    value, result = value_and_grad(f)(model)
    assert value == (21 * 0.5 - 43 * 0.5) * 2
    assert list(result) == ["w", "b", "deep"]
    is_array(result["w"], [[1.0, 10.0], [-1.0, -10.0]])
    assert np.asarray(result["b"], dtype=np.float64).tolist() == [42.0, 86.0]
    assert float(result["deep"]["scale"]) == -11.0
    assert model["b"] == [0.5, -0.5]


def test_grad_of_a_list_of_arrays():
    layers = [np.array([1.0, 2.0]), np.array([[3.0]])]
    result = grad(lambda m: m[0].sum() * m[1][0, 0])(layers)
    assert len(result) == 2
    is_array(result[0], [3.0, 3.0])
    is_array(result[1], [[3.0]])


def test_grad_of_a_single_number():
    assert float(grad(lambda x: x**3)(2.0)) == 12.0
    value, slope = value_and_grad(lambda x: x.exp())(0.0)
    assert (value, float(slope)) == (1.0, 1.0)


def test_jacobian_has_a_row_per_output():
    def f(x):
        return [x[0] * x[1], x[0] + 3 * x[2], x[1].exp(), 5.0]

    expected = [[2, 1, 0], [1, 0, 3], [0, math.exp(2), 0], [0, 0, 0]]
    is_array(jacobian(f)(np.array([1.0, 2.0, 3.0])), expected)
    assert np.asarray(jacobian(f)([1.0, 2.0, 3.0])) == pytest.approx(np.array(expected))


def test_jacobian_of_a_function_returning_an_array():
    m = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    is_array(jacobian(lambda x: m @ x)(np.array([1.0, 1.0])), m)


def test_hessian_and_hvp_of_a_quadratic_form():
    q = np.array([[2.0, 1.0], [1.0, 6.0]])
    x, v = np.array([0.5, -1.0]), np.array([3.0, 4.0])
    for argument in (x, list(x)):
        h = hessian(lambda x: np.asarray(x) @ q @ np.asarray(x) / 2)(argument)
        assert np.asarray(h) == pytest.approx(q, rel=1e-15)
    is_array(hvp(lambda x: x @ q @ x / 2)(x, v), q @ v)


def test_constant_outputs_have_zero_derivatives():
    x = np.array([1.0, 2.0])
    is_array(grad(lambda x: 3.0)(x), [0.0, 0.0])
    is_array(grad(lambda x: Value(3.0))(x), [0.0, 0.0])
    value, g = value_and_grad(lambda x: 3)(x)
    assert isinstance(value, float)
    is_array(g, [0.0, 0.0])
    is_array(hessian(lambda x: 3.0)(x), np.zeros((2, 2)))
    is_array(hessian(lambda x: x[0] - 2 * x[1])(x), np.zeros((2, 2)))
    is_array(hvp(lambda x: x[0] + 1.0)(x, np.ones(2)), [0.0, 0.0])
    is_array(jacobian(lambda x: [1.0, 2.0])(x), np.zeros((2, 2)))


def test_grad_of_a_function_that_does_not_return_a_scalar_raises():
    for wrong in (lambda x: [x[0], x[1]], lambda x: None, lambda x: "1", lambda x: x):
        with pytest.raises(TypeError):
            grad(wrong)(np.array([1.0, 2.0]))


def test_grad_of_an_argument_that_is_no_number_raises():
    for wrong in ("text", [None], {"a": "b"}, np.array(["x"]), 1j):
        with pytest.raises(TypeError):
            grad(lambda x: Value(1.0))(wrong)


def test_transforms_leave_the_values_of_a_closure_alone():
    w = Value(3.0)
    w.grad = 5.0
    slope, curvature = grad(lambda x: x * w)(2.0), hessian(lambda x: x[0] ** 2 * w)([2.0])
    assert (slope.data, curvature[0, 0].data) == (3.0, 6.0)  # Values: they depend on w
    assert w.grad == 5.0


def test_transforms_nest():
    assert float(grad(grad(lambda x: x**4))(2.0)) == 48.0
    assert float(grad(grad(grad(lambda x: x**4)))(2.0)) == 48.0
    # the inner derivative is with respect to y alone: the classic perturbation confusion gives 2
    assert float(grad(lambda x: x * grad(lambda y: x + y)(1.0))(1.0)) == 1.0
    assert float(grad(lambda x: x * grad(lambda y: x * y)(2.0))(3.0)) == 6.0


def test_transforms_work_inside_no_grad():
    with no_grad():
        assert float(grad(lambda x: x * x)(3.0)) == 6.0
        assert np.asarray(hessian(lambda x: x[0] ** 3)([2.0])).tolist() == [[12.0]]


def test_scipy_minimises_rosenbrock_with_value_and_grad():
    def rosenbrock(x):
        return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()

    start = np.array([-1.2, 1.0, 0.8])
    result = minimize(value_and_grad(rosenbrock), start, jac=True, method="BFGS")
    assert result.x == pytest.approx([1.0, 1.0, 1.0], abs=1e-5)
    newton = minimize(
        value_and_grad(rosenbrock), start, jac=True, hess=hessian(rosenbrock), method="trust-exact"
    )
    assert newton.x == pytest.approx([1.0, 1.0, 1.0], abs=1e-6)


def test_hvp_of_a_nest_or_sequence():
    product = hvp(lambda x: x[0] ** 2 * x[1])([3.0, 2.0], [1.0, 0.0])
    assert np.asarray(product, dtype=float).tolist() == [4.0, 6.0]


def test_hvp_takes_the_keys_of_v_in_any_order():
    product = hvp(lambda p: p["a"] ** 2 * p["b"])
    assert product({"a": 3.0, "b": 5.0}, {"b": 0.0, "a": 1.0}) == {"a": 10.0, "b": 6.0}


# --- the gradient is in the container of the argument -------------------------------------------


class Pair(NamedTuple):
    a: Any
    b: Any


@dataclasses.dataclass
class Record:
    a: Any
    b: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any


@pytest.mark.parametrize("container", [Pair, Record, Frozen])
def test_the_gradient_is_in_the_container_of_the_argument(container):
    def f(x):
        return x.a * x.a * x.b[0]

    x = container(3.0, [2.0])
    assert grad(f)(x) == container(12.0, [9.0])
    assert value_and_grad(f)(x) == (18.0, container(12.0, [9.0]))
    assert x == container(3.0, [2.0])
    for kind in (list, tuple):
        slopes = grad(lambda xs: xs[0] * xs[1])(kind([3.0, 2.0]))
        assert slopes == kind([2.0, 3.0])
        assert type(slopes[0]) is float
