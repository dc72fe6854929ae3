"""``map`` of Jacobians, Hessians and their products: what eager single calls give."""

import numpy as np
import pytest
from test_map import close, lane_codes, rng, stacked

import chainrule
from chainrule import exp, grad, hessian, hvp, jacobian, jvp, sin, sqrt, tanh, value_and_grad, where


def residuals(p, x):
    """An entry of the Jacobian is constant, one is shared, one is an input."""
    return [p[0] * exp(p[1] * x[0]) + x[1], sin(p[2] * x[1]) * p[0], p[0] * 2.0 + p[1] ** 2, p[1]]


def loss(p, x):
    return (p[0] * exp(p[1] * x[0]) - x[1]) ** 2 + p[2] ** 3 * x[1]


def tree(p, x):
    """Dicts in and out."""
    y = tanh(p["w"][0] * x["a"] + p["b"])
    return {"y": y, "z": [y * x["c"][0], p["w"][1] * x["c"][1]]}


def branching(p, x):
    if p[0] * x > 0.3:
        return [p[0] * x * x, p[1]]
    return [where(x > 0, p[1] * x, p[0] * p[0]), sin(x * p[0])]


P = np.array([0.5, 0.3, 0.2])
X = rng().normal(size=(50, 2))
V = rng().normal(size=(50, 3))
TREE = ({"w": np.array([0.5, -1.5]), "b": 0.25}, {"a": X[:, 0].copy(), "c": X})
PAIR = (None, None, 0)

CASES = {
    "jacobian": (jacobian, residuals, (P, X), None),
    "by data": (lambda f: jacobian(f, argnums=1), residuals, (P, X), None),
    "by both": (lambda f: jacobian(f, argnums=(1, 0)), residuals, (P, X), None),
    "all stacked": (jacobian, residuals, (V, X), (0, 0)),
    "other axes": (jacobian, residuals, (V.T, X.T), (1, -1)),
    "trees": (jacobian, tree, TREE, None),
    "branches": (jacobian, branching, (P[:2], X[:, 0].copy()), None),
    "hessian": (hessian, loss, (P, X), None),
    "hessian by data": (lambda f: hessian(f, argnums=1), loss, (P, X), None),
    "hvp": (hvp, loss, (P, V[0], X), PAIR),
    "hvp, a vector for each": (hvp, loss, (P, V, X), (None, 0, 0)),
    "grad": (grad, loss, (P, X), None),
    "grad by data": (lambda f: grad(f, argnums=1), loss, (P, X), None),
    "value_and_grad": (value_and_grad, loss, (P, X), None),
    "jacobian of grad": (lambda f: jacobian(grad(f)), loss, (P, X), None),
}


def sample(arguments, axes, k):
    """The arguments of single call k."""
    axes = axes or (None, *[0] * (len(arguments) - 1))

    def taken(array, axis):
        return np.take(array, k, axis)[()]

    return [
        x if axis is None else chainrule.trees.map_leaves(lambda a, axis=axis: taken(a, axis), x)
        for x, axis in zip(arguments, axes, strict=True)
    ]


@pytest.mark.parametrize("case", CASES)
def test_it_gives_what_eager_calls_give_with_any_number_of_threads(case):
    transform, f, arguments, axes = CASES[case]
    derivative = transform(chainrule.compile(f, on_fallback="raise"))
    wanted = stacked([transform(f)(*sample(arguments, axes, k)) for k in range(len(X))])
    given = None if axes is PAIR else axes
    runs = [derivative.map(*arguments, in_axes=given, threads=n) for n in (1, 2, 3)]
    close(runs[0], wanted)
    bits = [b"".join(x.tobytes() for x in stacked([run])) for run in runs]
    assert bits[0] == bits[1] == bits[2]
    assert "many samples: " in derivative.report()
    assert "one by one" not in derivative.report()
    singles = [derivative(*sample(arguments, axes, k)) for k in range(len(X))]
    close(runs[0], stacked(singles))


def test_extras_come_along():
    def f(p, x):
        return p[0] * x, {"twice": 2 * x, "value": p[0]}

    x = np.array([1.0, 2.0, 3.0])
    fast = chainrule.compile(f, on_fallback="raise")
    matrix, extras = jacobian(fast, has_aux=True).map(P, x)
    np.testing.assert_array_equal(matrix, [[1.0, 0, 0], [2.0, 0, 0], [3.0, 0, 0]])
    np.testing.assert_array_equal(extras["twice"], 2 * x)
    slopes, extras = grad(fast, has_aux=True).map(P, x)
    np.testing.assert_array_equal(slopes, matrix)
    np.testing.assert_array_equal(extras["value"], [0.5, 0.5, 0.5])


def test_numbers_that_are_not_finite_are_left_to_eager():
    """A factor of 0 hides an infinite derivative, and sin(inf) raises: eager knows."""

    def f(p, x):
        return [p[0] * sqrt(p[1] * x) + p[1], p[0] * x]

    fast = chainrule.compile(f)
    p = np.array([0.0, 2.0])
    x = np.array([1.0, 0.0, 4.0, 9.0, 0.0, 1.0, 2.0, 3.0, 4.0])
    derivative = jacobian(fast)
    for numbers in (x, np.where(x == 9.0, np.inf, x)):
        found = derivative.map(p, numbers)
        np.testing.assert_allclose(found, [jacobian(f)(p, each) for each in numbers], rtol=1e-14)
    assert lane_codes(derivative)
    endless = np.array([0.0, np.inf])
    np.testing.assert_array_equal(
        derivative.map(endless, x[x > 0]), [jacobian(f)(endless, each) for each in x[x > 0]]
    )


def test_the_first_sample_that_raises_is_the_one_that_raises():
    def f(p, x):
        return [chainrule.log(p[0] * x)]

    derivative = jacobian(chainrule.compile(f))
    with pytest.raises(ValueError, match=r"log\(-1\.5\) is undefined"):
        derivative.map(P, np.array([1.0, 2.0, -3.0, 4.0, -5.0]))


def test_integers_are_followed():
    def f(p, i, x):
        return [p[i] * x, p[0] * i]

    derivative = jacobian(chainrule.compile(f, on_fallback="raise"))
    i, x = np.arange(30) % 3, X[:30, 0].copy()
    wanted = [jacobian(f)(P, k, each) for k, each in zip(i.tolist(), x, strict=True)]
    np.testing.assert_allclose(derivative.map(P, i, x), wanted, rtol=1e-14)


def test_a_jvp_is_mapped_inside_a_compiled_function():
    fast = chainrule.compile(lambda x, v: jvp(lambda x: residuals(P, x), (x,), (v,))[1])
    found = fast.map(X, V[:, :2], in_axes=0)
    matrices = jacobian(chainrule.compile(residuals), argnums=1).map(P, X)
    np.testing.assert_allclose(
        np.stack(found, axis=1), np.einsum("nij,nj->ni", matrices, V[:, :2]), atol=1e-13
    )


WRONG = {
    "sparse": (
        lambda f: jacobian(f, sparse=True).map(P, X),
        "map stacks arrays: make the jacobian without sparse=True",
    ),
    "nothing": (lambda f: jacobian(f).map(), "map of jacobian takes x first"),
    "no vector": (lambda f: hvp(f).map(P), "map of hvp takes x and v first"),
    "nothing stacked": (lambda f: jacobian(f).map(P), "no argument is stacked"),
    "other numbers": (lambda f: jacobian(f).map(V, X[:9], in_axes=0), "50 samples and argument 1"),
    "a list": (lambda f: jacobian(f).map(P, X.tolist()), "not an array of samples"),
    "objects": (lambda f: jacobian(f).map(P, X.astype(object)), "is an array of objects"),
    "texts": (lambda f: jacobian(f).map(P, X.astype(str)), "not of numbers"),
    "masked": (lambda f: jacobian(f).map(P, np.ma.array(X)), "is a masked array"),
    "none": (lambda f: jacobian(f).map(P, X[:0]), "there are no samples"),
    "a Value": (lambda f: jacobian(f).map([chainrule.Value(1.0)] * 3, X), "holds Values"),
    "threads": (lambda f: jacobian(f).map(P, X, threads=0), "threads is a whole number above 0"),
    "axes": (lambda f: jacobian(f).map(P, X, in_axes=(0,)), "in_axes has 1 entries for 2"),
    "several": (lambda f: hessian(f).map(P, X), "takes a function that returns one Value"),
    "no pair": (lambda f: jacobian(f, has_aux=True).map(P, X), "returns a pair"),
    "a short vector": (lambda f: hvp(f).map(P, V[0, :2], X), "needs v in the structure of x"),
    "nested": (lambda f: grad(lambda p: jacobian(f).map(p, X))(P), "holds Values|differentiated"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_in_one_line(wrong):
    attempt, message = WRONG[wrong]
    fast = chainrule.compile(loss if wrong == "a short vector" else residuals)
    with pytest.raises((TypeError, ValueError), match=message) as error:
        attempt(fast)
    assert "\n" not in str(error.value)
