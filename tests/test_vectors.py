"""Functions of vectors and small matrices: numpy's numbers, derivatives, compiled as eager."""

import math

import mpmath
import numpy as np
import pytest

import chainrule
from chainrule import Value, check_gradients, grad, hessian, jacobian

RNG = np.random.default_rng(3)
MATRIX = RNG.normal(size=(4, 4))
POSITIVE = MATRIX @ MATRIX.T + 0.5 * np.eye(4)
XS = RNG.normal(size=5)


def test_numpys_numbers():
    np.testing.assert_allclose(chainrule.norm(XS), np.linalg.norm(XS), rtol=1e-15)
    np.testing.assert_array_equal(chainrule.cumsum(XS), np.cumsum(XS))
    np.testing.assert_allclose(chainrule.det(MATRIX), np.linalg.det(MATRIX), rtol=1e-13)
    np.testing.assert_allclose(
        chainrule.cholesky(POSITIVE), np.linalg.cholesky(POSITIVE), rtol=1e-13
    )
    for matrix, way in ((MATRIX, "gen"), (POSITIVE, "pos"), (POSITIVE, "gen")):
        found = chainrule.solve(matrix, XS[:4], way)
        np.testing.assert_allclose(found, np.linalg.solve(matrix, XS[:4]), rtol=1e-12)
        several = chainrule.solve(matrix, MATRIX[:, :2], way)
        np.testing.assert_allclose(several, np.linalg.solve(matrix, MATRIX[:, :2]), 1e-12, 1e-13)
    with mpmath.workdps(40):
        exact = mpmath.log(sum(mpmath.exp(mpmath.mpf(x)) for x in XS.tolist()))
    assert chainrule.logsumexp(XS.tolist()) == pytest.approx(float(exact), rel=1e-15)


def test_lists_give_lists_and_arrays_arrays():
    assert type(chainrule.cumsum(list(XS))) is list
    assert type(chainrule.cholesky(POSITIVE.tolist())) is list
    for found in (
        chainrule.cumsum(XS),
        chainrule.solve(MATRIX, XS[:4]),
        chainrule.cholesky(POSITIVE),
    ):
        assert found.dtype == np.float64
    values = chainrule.cumsum(np.array([Value(x) for x in XS]))
    assert values.dtype == object
    assert [v.data for v in values] == np.cumsum(XS).tolist()


def solved(x):
    return chainrule.norm(chainrule.solve(x[:16].reshape(4, 4), x[16:20]))


def solved_positive(x):
    matrix = [[x[max(i, j) * 4 + min(i, j)] for j in range(4)] for i in range(4)]
    return chainrule.vsum(chainrule.solve(matrix, x[16:20], assume_a="pos"))


def smooth(x):
    return chainrule.smooth_max(x[0], x[1], 0.3) * chainrule.smooth_step(x[2], 0.5)


POINT = np.concatenate([POSITIVE.ravel(), XS[:4]])
PROGRAMS = {
    "solve": (solved, POINT),
    "solve_positive": (solved_positive, POINT),
    "det": (lambda x: chainrule.det(x.reshape(4, 4)), MATRIX.ravel()),
    "logsumexp": (chainrule.logsumexp, XS),
    "norm": (chainrule.norm, XS),
    "safe_norm": (chainrule.safe_norm, XS),
    "cumsum": (lambda x: chainrule.norm(chainrule.cumsum(x)), XS),
    "smooth": (smooth, XS),
    "interp": (lambda x: chainrule.interp(x[0], [-2.0, -0.5, 0.1, 3.0], x[1:]), XS),
    "softmax": (lambda x: chainrule.norm(chainrule.softmax(x)), XS),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_and_hessians_are_right(name):
    f, x = PROGRAMS[name]
    assert check_gradients(f, x).ok
    second = hessian(f)(x)
    np.testing.assert_allclose(second, second.T, rtol=1e-9, atol=1e-12)
    step = 1e-6
    for i in range(3):
        moved = step * np.eye(len(x))[i]
        slope = (grad(f)(x + moved) - grad(f)(x - moved)) / (2 * step)
        np.testing.assert_allclose(second[i], slope, rtol=1e-5, atol=1e-6 * np.abs(second).max())


@pytest.mark.parametrize("lift", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_as_eager(name, lift):
    f, x = PROGRAMS[name]
    fast = chainrule.compile(f, lift=lift, on_fallback="raise")
    for scale in (1.0, 1.01, 0.97):
        value, slopes = fast.value_and_grad(x * scale)
        wanted, by_eager = chainrule.value_and_grad(f)(x * scale)
        if lift:
            assert value == pytest.approx(wanted, rel=1e-13)
            np.testing.assert_allclose(slopes, by_eager, rtol=1e-11, atol=1e-13)
        else:
            assert value == wanted
            assert slopes.tolist() == by_eager.tolist()
    assert "0 eager" in fast.report()


def test_a_table_is_numpys_and_level_beyond_its_ends():
    xs, ys = [0.0, 1.0, 4.0], [2.0, 3.0, -3.0]
    for x in (-1.0, 0.0, 0.25, 1.0, 3.9, 4.0, 9.0):
        assert chainrule.interp(x, xs, ys) == pytest.approx(np.interp(x, xs, ys), rel=1e-15)
    slopes = [grad(chainrule.interp)(x, xs, ys) for x in (-1.0, 0.0, 0.5, 1.0, 2.0, 4.0, 5.0)]
    assert slopes == [0.0, 1.0, 1.0, -2.0, -2.0, 0.0, 0.0]
    assert chainrule.interp([0.5, 2.5], xs, ys) == [2.5, 0.0]
    weights = grad(lambda y: chainrule.interp(2.5, xs, y))([2.0, 3.0, -3.0])
    assert weights == [0.0, 0.5, 0.5]


def test_extremes_do_not_overflow():
    assert chainrule.logsumexp([-1e9, -1e9]) == pytest.approx(-1e9 + math.log(2))
    assert chainrule.smooth_max(1e6, 0.0, 1e-3) == 1e6
    assert chainrule.smooth_step(-1e6, 1e-3) == 0.0
    assert jacobian(chainrule.softmax)([1e4, 0.0]).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_singular_matrix():
    singular = [[1.0, 2.0], [2.0, 4.0]]
    assert chainrule.det(singular) == 0.0
    assert chainrule.det([[0.0, 0.0], [0.0, 1.0]]) == 0.0
    with pytest.raises(ZeroDivisionError):
        chainrule.solve([[Value(x) for x in row] for row in singular], [1.0, 1.0])
    with pytest.raises(ValueError, match="sqrt"):
        chainrule.cholesky([[Value(1.0), Value(2.0)], [Value(2.0), Value(1.0)]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: chainrule.solve([[1.0, 2.0]], [1.0]), "square matrix, got 1 rows of 2"),
        (lambda: chainrule.solve([[1.0]], [1.0, 2.0]), "1 equations need as many right sides"),
        (lambda: chainrule.solve([[1.0]], [1.0], "sym"), "'sym'"),
        (lambda: chainrule.interp(0.0, [0.0, 1.0], [1.0]), "as many xs as ys"),
        (lambda: chainrule.interp(0.0, [1.0, 1.0], [1.0, 2.0]), "increasing xs"),
        (lambda: chainrule.logsumexp([]), "empty"),
    ],
)
def test_mistakes_are_told(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_stop_gradient_is_a_constant_everywhere():
    def f(x):
        kept = chainrule.stop_gradient({"a": [x[0], 2.0], "b": np.array([x[1]])})
        return kept["a"][0] * x[0] + kept["b"][0] * x[1] * kept["a"][1]

    x = np.array([3.0, 5.0])
    assert grad(f)(x).tolist() == [3.0, 10.0]
    assert hessian(f)(x).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    fast = chainrule.compile(f, on_fallback="raise")
    for scale in (1.0, 2.0):
        assert fast.value_and_grad(x * scale)[1].tolist() == grad(f)(x * scale).tolist()
