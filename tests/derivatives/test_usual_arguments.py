"""The usual arguments go through C: what comes out is what the general way gives for them."""

import copy

import numpy as np
import pytest

import chainrule
from chainrule import Value
from chainrule.derivatives import arguments

pytestmark = pytest.mark.skipif(chainrule.engine != "native", reason="C is what is compared")

USUAL = {
    "a float": 2.5,
    "an int": 3,
    "a list": [1.0, 2, -0.0, float("inf")],
    "nothing": [],
    "a tuple in a dict": {"w": (1.0, [2.0, 3.0]), 1: {True: 4.0}},
    "an array": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "float32": np.array([0.1, 0.2], np.float32),
    "integers": np.arange(6).reshape(2, 3)[:, ::2],
    "an empty array": np.zeros((0, 3)),
    "a 0-d array": np.array(1.5),
    "a list of arrays": [np.ones(2), [np.zeros((1, 2)), 7]],
}

OTHERS = {
    "a Value": Value(1.0),
    "a Value in a list": [1.0, Value(2.0)],
    "a bool": True,
    "text": "12",
    "None": [None],
    "a numpy number": np.float64(1.0),
    "a list's child": type("Mine", (list,), {})([1.0]),
    "objects": np.array([1.0, Value(2.0)], object),
    "bools": np.array([True]),
    "complex numbers": np.array([1j]),
    "beyond floats": [10**400],
    "a matrix": np.matrix([[1.0, 2.0]]),
    "a masked array": np.ma.array([1.0, 2.0], mask=[0, 1]),
    "a range": range(3),
}


def kinds(tree):
    """The types of everything in a tree, and its numbers."""
    if isinstance(tree, dict):
        return {key: kinds(item) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree), [kinds(item) for item in tree]
    if isinstance(tree, np.ndarray):
        return type(tree), tree.dtype, tree.shape, [kinds(item) for item in tree.ravel().tolist()]
    return type(tree), repr(tree.data) if isinstance(tree, Value) else repr(tree)


@pytest.mark.parametrize("name", USUAL)
def test_the_usual_come_out_as_the_general_way_gives_them(name):
    x = copy.deepcopy(USUAL[name])
    tree, leaves = arguments.usual_values(x)
    general = arguments.flatten_argument(x)
    numbers = [Value(v) for v in general.numbers]
    assert kinds(tree) == kinds(general.filled(numbers))
    assert [v.data for v in leaves] == general.numbers
    for row in ([float(i) for i in range(len(leaves))], leaves):
        assert kinds(arguments.usual_like(x, row)) == kinds(general.like(row))
    assert kinds(x) == kinds(USUAL[name])


@pytest.mark.parametrize("name", OTHERS)
def test_others_are_left_to_the_general_way(name):
    assert arguments.usual_values(OTHERS[name]) is None


def test_an_endless_argument_is_an_error():
    x = [1.0]
    x.append(x)
    with pytest.raises(RecursionError):
        chainrule.grad(lambda v: v[0])(x)


def test_an_argument_that_grows_meanwhile_is_an_error():
    x = [1.0, 2.0]

    def f(v):
        x.append(3.0)
        return v[0] * v[1]

    with pytest.raises((IndexError, StopIteration, RuntimeError)):
        chainrule.value_and_grad(f)(x)
