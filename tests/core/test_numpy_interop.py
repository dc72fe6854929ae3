"""Values inside numpy: object arrays, products, reductions, ufuncs that call methods by name."""

import math

import numpy as np
import pytest

import chainrule
from chainrule import Value


def array(*data):
    return np.array([Value(x) for x in data])


def data_of(values):
    return [v.data for v in np.ravel(values)]


def grads_of(values):
    return [v.grad for v in np.ravel(values)]


def test_an_array_of_values_is_an_object_array():
    xs = array(1.0, 2.0)
    assert xs.dtype == object
    assert xs.shape == (2,)
    assert all(type(x) is Value for x in xs)


@pytest.mark.parametrize("scalar", [np.float64(2), np.float32(2), np.int64(2), np.int32(2)])
def test_numpy_scalars_on_the_left(scalar):
    v = Value(3.0)
    for result, data in [
        (scalar * v, 6.0),
        (scalar + v, 5.0),
        (scalar - v, -1.0),
        (scalar / v, 2 / 3),
        (scalar**v, 8.0),
    ]:
        assert type(result) is Value
        assert result.data == pytest.approx(data, rel=1e-15)
    (scalar * v).backward()
    assert v.grad == 2.0


def test_a_value_times_an_array_is_elementwise_from_both_sides():
    v = Value(3.0)
    numbers = np.array([1.0, 2.0, 4.0])
    for product in (v * numbers, numbers * v):
        assert product.shape == (3,)
        assert data_of(product) == [3.0, 6.0, 12.0]
        assert all(type(p) is Value for p in product)
    assert data_of(v + numbers) == data_of(numbers + v) == [4.0, 5.0, 7.0]
    assert data_of(v - numbers) == [2.0, 1.0, -1.0]
    assert data_of(numbers - v) == [-2.0, -1.0, 1.0]
    assert data_of(numbers / v) == pytest.approx([1 / 3, 2 / 3, 4 / 3])
    assert data_of(v / numbers) == [3.0, 1.5, 0.75]
    assert data_of(numbers**v) == [1.0, 8.0, 64.0]
    assert data_of(v**numbers) == [3.0, 9.0, 81.0]
    np.sum(v * numbers).backward()
    assert v.grad == 7.0


def test_a_value_times_an_array_of_values():
    v, xs = Value(3.0), array(1.0, 2.0)
    (v * xs).sum().backward()
    assert v.grad == 3.0
    assert grads_of(xs) == [3.0, 3.0]


def test_dot_and_matmul():
    w, x = array(1.0, 2.0, 3.0), array(4.0, 5.0, 6.0)
    for product in (np.dot(w, x), w @ x, np.inner(w, x)):
        assert type(product) is Value
        assert product.data == 32.0
    np.dot(w, x).backward()
    assert grads_of(w) == [4.0, 5.0, 6.0]
    assert grads_of(x) == [1.0, 2.0, 3.0]


def test_matrix_times_vector():
    w = array(1.0, 2.0, 3.0, 4.0).reshape(2, 2)
    x = array(5.0, 6.0)
    y = w @ x
    assert data_of(y) == [17.0, 39.0]
    y.sum().backward()
    assert grads_of(x) == [4.0, 6.0]
    assert grads_of(w) == [5.0, 6.0, 5.0, 6.0]


def test_a_float_matrix_times_a_vector_of_values():
    x = array(5.0, 6.0)
    y = np.array([[1.0, 2.0], [3.0, 4.0]]) @ x
    assert data_of(y) == [17.0, 39.0]


def test_reductions():
    xs = array(1.0, 2.0, 6.0)
    for total in (np.sum(xs), xs.sum()):
        assert type(total) is Value
        assert total.data == 9.0
    for mean in (np.mean(xs), xs.mean()):
        assert type(mean) is Value
        assert mean.data == pytest.approx(3.0, rel=1e-15)
    xs.mean().backward()
    assert grads_of(xs) == pytest.approx([1 / 3] * 3)
    assert np.prod(xs).data == 12.0
    assert np.max(xs) is xs[2]
    assert data_of(np.sum(xs.reshape(3, 1), axis=1)) == [1.0, 2.0, 6.0]


UFUNCS = (
    "exp expm1 log log1p log2 log10 sqrt tanh sin cos tan arcsin arccos arctan sinh cosh "
    "arcsinh arctanh"
).split()


@pytest.mark.parametrize("name", UFUNCS)
def test_ufuncs_call_the_method_of_that_name(name):
    xs = array(0.25, 0.5)
    ys = getattr(np, name)(xs)
    assert all(type(y) is Value for y in ys)
    assert data_of(ys) == pytest.approx(getattr(np, name)(np.array([0.25, 0.5])), rel=1e-15)
    ys.sum().backward()
    assert all(g != 0.0 for g in grads_of(xs))


def test_ufuncs_without_a_common_domain():
    assert np.arccosh(array(2.0))[0].data == pytest.approx(math.acosh(2.0), rel=1e-15)
    assert data_of(np.abs(array(-2.0, 3.0))) == [2.0, 3.0]
    assert data_of(np.conjugate(array(-2.0, 3.0))) == [-2.0, 3.0]
    assert data_of(np.square(array(-2.0))) == [4.0]
    assert data_of(np.negative(array(-2.0))) == [2.0]
    assert data_of(np.reciprocal(array(4.0))) == [0.25]


def test_comparisons_of_arrays_compare_data():
    xs = array(1.0, 3.0)
    assert list(xs > 2.0) == [False, True]
    assert list(np.array([2.0, 2.0]) > xs) == [True, False]
    assert np.argmax(xs) == 1
    assert data_of(np.maximum(xs, array(2.0, 2.0))) == [2.0, 3.0]
    assert data_of(np.sort(array(3.0, 1.0, 2.0))) == [1.0, 2.0, 3.0]


def test_an_array_of_values_does_not_become_floats_silently():
    with pytest.raises(TypeError):
        array(1.0, 2.0).astype(float)
    with pytest.raises(TypeError):
        np.array([Value(1.0)], dtype=float)


def test_functions_map_over_arrays():
    xs = array(0.25, 0.5)
    ys = chainrule.tanh(xs)
    assert data_of(ys) == [math.tanh(0.25), math.tanh(0.5)]
    assert all(type(y) is Value for y in ys)
    assert chainrule.exp(np.array([0.0, 1.0])) == pytest.approx([1.0, math.e], rel=1e-15)


@pytest.mark.parametrize("number", [np.float64(0.5), np.float32(0.5), 0.5, 1])
def test_functions_of_plain_numbers_are_floats(number):
    result = chainrule.exp(number)
    assert isinstance(result, float)
    assert result == math.exp(float(number))
