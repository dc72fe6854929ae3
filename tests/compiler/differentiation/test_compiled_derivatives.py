"""Derivatives of compiled functions: eager's numbers, structures, branches and errors, replayed."""

import math
import pickle
import warnings
from dataclasses import dataclass
from random import Random

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from number_systems import UNARY, chainrule_functions
from programs import ALL_OPS, random_program, run

import chainrule
from chainrule import (
    FallbackWarning,
    Value,
    exp,
    grad,
    hessian,
    hvp,
    jacobian,
    jvp,
    log,
    sin,
    sqrt,
    tanh,
    value_and_grad,
    vjp,
    where,
)
from chainrule.compiler.differentiation import derivatives
from chainrule.core import ops


def close(found, wanted, order=1):
    """To 1e-12 of the largest number at first order, 1e-10 at second; and of the same shape."""
    assert np.shape(found) == np.shape(wanted)
    scale = max(1.0, np.abs(wanted).max(initial=0.0))
    limit = (1e-12 if order == 1 else 1e-10) * scale
    np.testing.assert_allclose(found, wanted, rtol=0, atol=limit)


def replayed(derivative, calls=None):
    """Assert that all calls of a derivative, or so many, were replayed."""
    counts = derivative.dispatch.counts
    assert counts.replayed == (counts.calls if calls is None else calls), derivative.report()
    assert counts.replayed > 0


def broyden(x):
    n, out = len(x), []
    for i in range(n):
        y = (3 - 2 * x[i]) * x[i] + 1
        if i > 0:
            y = y - x[i - 1]
        if i < n - 1:
            y = y - 2 * x[i + 1]
        out.append(y)
    return out


def rosenbrock(x):
    total = 0.0
    for i in range(len(x) - 1):
        total = total + 100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2
    return total


def pendulum(state):
    """Some steps of an integrator: long chains, few inputs."""
    angle, speed = state
    for _ in range(20):
        speed = speed - 0.05 * sin(angle)
        angle = angle + 0.05 * speed
    return [angle, speed, angle * speed]


def corners(x):
    """Operations with cases."""
    a, b, c = x
    return [
        where(a > b, a * b, c),
        chainrule.maximum(a, c) * chainrule.relu(b),
        abs(a - c) * chainrule.clip(b, -1.0, 1.0),
        max(a, b, c) * c,
        chainrule.hypot(a, b) + chainrule.atan2(b, c),
        (a * a + 1) ** b,
    ]


def network(x):
    hidden = [tanh(sum(w * y for w, y in zip(row, x, strict=True))) for row in WEIGHTS]
    return sum(h * h for h in hidden)


WEIGHTS = np.random.default_rng(1).normal(size=(8, 6)).tolist()
NUMBERS = np.random.default_rng(0)
VECTORS = [
    (broyden, NUMBERS.normal(size=12)),
    (pendulum, np.array([0.3, 0.7])),
    (corners, np.array([0.4, 0.9, -0.3])),
    (lambda x: [x[0], 2.0, x[1] * 3], np.array([1.0, 2.0])),
    (lambda x: [y * exp(x[0]) for y in x[1:]], NUMBERS.normal(size=5)),
]
SCALARS = [
    (rosenbrock, NUMBERS.normal(size=12)),
    (network, NUMBERS.normal(size=6)),
    (lambda x: pendulum(x)[2], np.array([0.3, 0.7])),
    (lambda x: sum(corners(x)), np.array([0.4, 0.9, -0.3])),
    (lambda x: 3.0 * x[0] - x[1], np.array([1.0, 2.0])),
]


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("case", range(len(VECTORS)))
def test_jacobians_and_their_products_are_eagers(case, lift):
    f, x = VECTORS[case]
    fast = chainrule.compile(f, lift=lift, on_fallback="raise")
    matrix = jacobian(fast)
    for point in (x, x * 1.1 + 0.01, x):
        wanted = jacobian(f)(point)
        close(matrix(point), wanted)
        v, w = np.cos(np.arange(len(x))), np.sin(np.arange(len(wanted)))
        value, along = jvp(fast, (point,), (v,))
        close(value, [y.data if isinstance(y, Value) else y for y in f([*map(Value, point)])])
        close(along, wanted @ v)
        close(vjp(fast, point)[1](list(w))[0], w @ wanted)
    replayed(matrix)


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("case", range(len(SCALARS)))
def test_hessians_and_their_products_are_eagers(case, lift):
    f, x = SCALARS[case]
    fast = chainrule.compile(f, lift=lift, on_fallback="raise")
    matrix, product = hessian(fast), hvp(fast)
    for point in (x, x * 1.1 + 0.01, x):
        found, v = matrix(point), np.cos(np.arange(len(x)))
        close(found, hessian(f)(point), order=2)
        assert (found == found.T).all()
        close(product(point, v), found @ v, order=2)
        close(grad(fast)(point), grad(f)(point))
    replayed(matrix)
    replayed(product)


def test_closed_forms():
    x = np.linspace(-1, 1, 30)
    n = len(x)
    fast = chainrule.compile(broyden, lift=True)
    close(jacobian(fast)(x), np.diag(3 - 4 * x) - np.eye(n, k=-1) - 2 * np.eye(n, k=1))
    wanted = np.diag(np.r_[1200 * x[:-1] ** 2 - 400 * x[1:] + 2, 200.0])
    wanted[range(1, n - 1), range(1, n - 1)] += 200
    wanted -= np.diag(400 * x[:-1], 1) + np.diag(400 * x[:-1], -1)
    close(hessian(chainrule.compile(rosenbrock, lift=True))(x), wanted, order=2)


def test_a_constant_matrix_is_quick_too():
    fast = jacobian(chainrule.compile(lambda x: [2 * x[0], x[0] - x[1]]))
    for x in ([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]):
        found = fast(x)
        assert found.tolist() == [[2.0, 0.0], [1.0, -1.0]]
        found[:] = 0.0
    assert len(fast.dispatch.fast_path.plans) == (chainrule.engine == "native")
    assert fast([1.0, math.inf]).tolist() == [[2.0, 0.0], [1.0, -1.0]]


def test_a_derivative_is_not_pickled():
    with pytest.raises(TypeError, match="a compiled derivative cannot be pickled"):
        pickle.dumps(jacobian(chainrule.compile(broyden)))


def test_autograd_agrees():
    x = np.random.default_rng(5).normal(size=6)
    weights = np.array(WEIGHTS)
    theirs = autograd.hessian(lambda x: anp.sum(anp.tanh(weights @ x) ** 2))(x)
    close(hessian(chainrule.compile(network))(x), theirs, order=2)


@pytest.mark.parametrize("name", [*ops.TABLE])
def test_every_row_of_the_op_table(name):
    """Its partials, and theirs, computed with recorded instructions."""
    op = ops.TABLE[name]
    operands = [0.4, 0.7][: op.arity] if name != "acosh" else [1.5]
    parameters = (True,) if name == "where" else (2.5,) if name == "pow" else op.defaults

    def f(x):
        return op(*x, *parameters) * x[0]

    fast = chainrule.compile(f, on_fallback="raise")
    for x in (np.array(operands), np.array(operands) + 0.05):
        close(jacobian(fast)(x), jacobian(f)(x))
        close(hessian(fast)(x), hessian(f)(x), order=2)
    replayed(hessian(fast))
    for structure in hessian(fast).dispatch.structures.values():
        for variant in structure.variants:
            variant.recording.verify()


@pytest.mark.parametrize("name", UNARY)
def test_both_sides_of_zero(name):
    """Numbers such as 0 in a row are not taken for the first instructions."""
    op = ops.TABLE[name]

    def f(x):
        return op(x[0]) ** 2 + x[1]

    fast = hessian(chainrule.compile(f, on_fallback="raise"))
    for point in (-1.5, -0.4, 0.4, 1.5):
        try:
            wanted = hessian(f)([point, 1.0])
        except ValueError:
            continue
        close(fast([point, 1.0]), wanted, order=2)
    replayed(fast)


def test_random_programs():
    functions = chainrule_functions()
    for i in range(40):
        program = random_program(Random(f"compiled derivatives {i}"), ALL_OPS, 3, 12)

        def f(xs, program=program):
            return run(program, list(xs), functions)[-3:]

        x = np.array(program.inputs)
        wanted = jacobian(f)(x)
        if not np.isfinite(wanted).all():
            continue
        close(jacobian(chainrule.compile(f))(x), wanted)
        second = jacobian(jacobian(f))(x)
        close(jacobian(jacobian(chainrule.compile(f)))(x), second, order=2)


def test_forward_or_reverse_mode_whichever_is_less_work():
    def fan_out(x):  # one input: forward
        y = x[0]
        for _ in range(50):
            y = sin(y)
        return [y * k for k in range(50)]

    def fan_in(x):  # one output: reverse
        y = sum(x[k] * k for k in range(50))
        for _ in range(50):
            y = sin(y)
        return [y]

    for f, x in ((fan_out, np.array([0.3])), (fan_in, np.full(50, 0.01))):
        matrix = jacobian(chainrule.compile(f))
        close(matrix(x), jacobian(f)(x))
        ((structure,),) = [[*matrix.dispatch.structures.values()]]
        (variant,) = structure.variants
        assert len(variant.recording) < 600  # the other mode takes 50 sweeps of 50 operations


# --- structures -----------------------------------------------------------------------------------


@dataclass
class Point:
    x: float
    y: float


def same_tree(found, wanted):
    """The same containers, types and numbers."""
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for key in wanted:
            same_tree(found[key], wanted[key])
    elif isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            same_tree(a, b)
    elif isinstance(wanted, Point):
        same_tree(vars(found), vars(wanted))
    elif isinstance(wanted, (float, np.ndarray)):
        close(found, wanted, order=2)
    else:
        assert found == wanted


TREES = [
    (lambda p: p["a"] * p["b"][0] + p["b"][1] ** 2, {"a": 2.0, "b": [3.0, 4.0]}),
    (lambda p: {"s": p[0] * p[1], "t": [p[1], p[1] * p[1]]}, (2.0, 3.0)),
    (lambda p: {"rows": [[p[0], p[1]], [p[1], p[0] * p[1]]]}, [2.0, 3.0]),
    (lambda p: p.x * p.y + sin(p.x), Point(0.5, 2.0)),
    (lambda x: x**3, 2.0),
    (lambda x: np.array([[x[0], x[1]], [x[0] * x[1], 1.0]]), np.array([2.0, 3.0])),
    (lambda x: (x @ x.T).sum(axis=0), np.arange(6.0).reshape(2, 3)),
    (lambda x: [x[0] * x[1]], np.array([2, 3])),
]


@pytest.mark.parametrize("case", range(len(TREES)))
def test_the_structure_is_eagers(case):
    f, x = TREES[case]
    fast = chainrule.compile(f)
    for _ in range(2):
        same_tree(jacobian(fast)(x), jacobian(f)(x))
    replayed(jacobian(fast))
    same_tree(jvp(fast, (x,), (x,)), jvp(f, (x,), (x,)))
    same_tree(vjp(fast, x)[1](f(x)), vjp(f, x)[1](f(x)))
    if np.shape(jvp(f, (x,), (x,))[0]) == () and not isinstance(jvp(f, (x,), (x,))[0], dict):
        same_tree(hessian(fast)(x), hessian(f)(x))
        same_tree(hvp(fast)(x, x), hvp(f)(x, x))


@pytest.mark.parametrize("argnums", [0, 1, -1, (0, 1), (1, 0), (2,)])
def test_argnums(argnums):
    def f(a, b, c):
        return a * b[0] * c + sin(b[1]) * c**2 + a**2

    args = 2.0, [0.5, 0.7], 1.5
    fast = chainrule.compile(f)
    for transform in (jacobian, hessian, grad, value_and_grad):
        made = transform(fast, argnums)
        for _ in range(2):
            same_tree(made(*args), transform(f, argnums)(*args))
    if isinstance(argnums, tuple):
        assert type(jacobian(f, argnums)(*args)) is tuple
        assert len(jacobian(f, argnums)(*args)) == len(argnums)
    v = np.ones(2).tolist() if argnums == 1 else 1.0
    if isinstance(argnums, int):
        a, *rest = args
        same_tree(hvp(fast, argnums)(a, v, *rest), hvp(f, argnums)(a, v, *rest))


def test_has_aux():
    def f(x, k):
        y = x[0] * x[1] * k
        return y, {"y": y, "sum": x[0] + x[1], "k": k, "word": "abc"}

    x = np.array([2.0, 3.0])
    fast = chainrule.compile(f)
    for transform in (jacobian, hessian, grad, value_and_grad):
        made = transform(fast, has_aux=True)
        for k in (2.0, 3.0):
            same_tree(made(x, k), transform(f, has_aux=True)(x, k))
    same_tree(hvp(fast, has_aux=True)(x, x, 2.0), hvp(f, has_aux=True)(x, x, 2.0))
    ours, theirs = (vjp(g, x, 2.0, has_aux=True) for g in (fast, f))
    assert ours[0] == theirs[0] == 12.0
    same_tree(ours[1](1.0), theirs[1](1.0))
    same_tree(ours[2], theirs[2])
    ours, theirs = (jvp(g, (x, 2.0), (x, 1.0), has_aux=True) for g in (fast, f))
    same_tree(ours, theirs)


def test_transforms_compose():
    x = np.array([0.3, -0.7, 1.2])
    fast = chainrule.compile(network3)
    wanted = hessian(network3)(x)
    for made in (
        jacobian(grad(fast)),
        chainrule.compile(hessian(network3)),
        jacobian(jacobian(fast)),
        chainrule.compile(jacobian(grad(fast))),
        lambda x: np.array([hvp(fast)(x, row) for row in np.eye(3)]),
        jacobian(chainrule.compile(grad(network3))),
    ):
        close(made(x), wanted, order=2)
    third = jacobian(hessian(fast))
    close(third(x), jacobian(hessian(network3))(x), order=2)
    replayed(third)
    replayed(jacobian(grad(fast)))
    assert grad(grad(chainrule.compile(lambda x: x**4)))(2.0) == pytest.approx(48.0, rel=1e-14)


def network3(x):
    return tanh(x[0] * x[1]) * exp(x[2]) + x[0] ** 3


def test_the_keys_of_a_vector_come_in_any_order():
    product = hvp(chainrule.compile(lambda p: p["a"] ** 2 * p["b"], on_fallback="eager"))
    for _ in range(2):
        assert product({"a": 3.0, "b": 2.0}, {"b": 0.0, "a": 1.0}) == {"a": 4.0, "b": 6.0}
        assert product({"a": 3.0, "b": 2.0}, {"a": 1.0, "b": 0.0}) == {"a": 4.0, "b": 6.0}


def test_derivatives_inside_a_compiled_function():
    """As in a step of Newton's method."""

    def step(x):
        slopes, curvature = grad(quartic)(x), hessian(quartic)(x)
        return x - np.array([slopes[i] / curvature[i, i] for i in range(len(slopes))])

    fast = chainrule.compile(step, on_fallback="raise")
    for x in (np.array([1.0, 2.0]), np.array([3.0, 5.0])):
        close(fast(x), x * 2 / 3)
    assert fast.dispatch.counts.replayed == 2


def test_products_inside_a_compiled_function_see_what_integers_select():
    table = np.arange(3.0)

    def f(x, i):
        return jvp(lambda p: p[i] * p[i], (x,), (table + 1.0,))[1]

    fast = chainrule.compile(f)
    for i in (0, 1, 2, 1):
        assert fast([2.0, 3.0, 4.0], i) == f([2.0, 3.0, 4.0], i) == 2 * (2 + i) * (1 + i)


def quartic(x):
    return sum(y**4 for y in x)


# --- sparse ---------------------------------------------------------------------------------------


def test_sparse_is_dense_and_its_pattern_is_exact():
    x = np.linspace(-1, 1, 40)
    for f, transform, count in ((broyden, jacobian, 118), (rosenbrock, hessian, 118)):
        dense = transform(f)(x)
        fast = transform(chainrule.compile(f), sparse=True)
        for made in (fast, fast, transform(f, sparse=True)):
            matrix = made(x)
            assert matrix.format == "csr"
            assert matrix.nnz == count
            close(matrix.toarray(), dense, order=2)
        replayed(fast)
        first, second = fast(x), fast(x + 1)  # one does not change the other
        close(first.toarray(), dense, order=2)
        first.data[:] = 0.0
        first.indices[:] = 0
        close(second.toarray(), transform(f)(x + 1), order=2)
        close(fast(x).toarray(), dense, order=2)


def test_a_sparse_matrix_has_a_row_for_each_result_and_a_column_for_each_number():
    def f(p, k):
        return {"a": p["x"][0] * k, "b": [p["x"][1] * p["y"], p["y"]]}

    p = {"x": np.array([2.0, 3.0]), "y": 4.0}
    wanted = [[5.0, 0, 0], [0, 4.0, 3.0], [0, 0, 1.0]]
    for made in (jacobian(f, sparse=True), jacobian(chainrule.compile(f), sparse=True)):
        assert made(p, 5.0).toarray().tolist() == wanted
    with pytest.raises(TypeError, match="a sparse matrix holds numbers"):
        jacobian(lambda x: [x[0] * x[1]], sparse=True)([Value(1.0), 2.0])


def test_sparse_says_what_it_needs(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy.sparse", None)
    with pytest.raises(
        ImportError, match=r"sparse=True needs scipy: pip install 'chainrule\[scipy\]'"
    ):
        jacobian(lambda x: [x[0]], sparse=True)([1.0])


# --- what eager does ------------------------------------------------------------------------------

SCALE = 2.0


def test_branches_are_guards():
    def f(x):
        if x[0] > x[1]:
            return [x[0] * x[1], x[0] ** 2]
        return [x[1] ** 3, x[0]]

    fast = jacobian(chainrule.compile(f))
    for x in ([2.0, 1.0], [1.0, 2.0], [3.0, 1.0], [1.0, 1.0]):
        close(fast(x), jacobian(f)(x))
    assert fast.dispatch.counts.traces == 2
    replayed(fast)


def test_integers_and_lengths():
    def f(x, i, n):
        return [x[i] ** k for k in range(n)]

    fast = jacobian(chainrule.compile(f))
    for i, n in ((0, 2), (1, 2), (0, 3), (1, 2), (-1, 2)):
        close(fast([2.0, 3.0, 4.0], i, n), jacobian(f)([2.0, 3.0, 4.0], i, n))
    for length in (2, 3, 5):
        close(
            jacobian(chainrule.compile(broyden))(np.ones(length)),
            jacobian(broyden)(np.ones(length)),
        )
    with pytest.raises(IndexError):
        fast([2.0, 3.0, 4.0], 3, 2)


def test_changed_globals_record_anew():
    global SCALE
    fast = hessian(chainrule.compile(lambda x: SCALE * x[0] ** 2))
    found = []
    for number in (2.0, 5.0, 2.0):
        SCALE = number
        found.append(fast([1.0]).item())
    assert found == [4.0, 10.0, 4.0]


def test_errors_are_eagers():
    def f(x):
        return [log(x[0]) * x[1], sqrt(x[1])]

    fast = jacobian(chainrule.compile(f))
    close(fast([2.0, 3.0]), jacobian(f)([2.0, 3.0]))
    for x in ([-1.0, 2.0], [0.0, 2.0], [1.0, -1.0]):
        with pytest.raises(ValueError, match=" is undefined") as wanted:
            jacobian(f)(x)
        with pytest.raises(ValueError, match=" is undefined") as found:
            fast(x)
        assert str(found.value) == str(wanted.value)
    assert fast([1.0, 0.0]).tolist() == jacobian(f)([1.0, 0.0]).tolist() == [[0, 0], [0, math.inf]]


def test_infinite_slopes_and_numbers_are_left_to_eager():
    """Eager's 0 times infinity is 0."""

    def f(x):
        return [sqrt(x[0]) * x[1], x[0] * x[1]]

    fast = jacobian(chainrule.compile(f, lift=False))
    close(fast([4.0, 1.0]), jacobian(f)([4.0, 1.0]))
    for x in ([0.0, 0.0], [0.0, 1.0], [math.inf, 0.0], [math.nan, 1.0], [1.0, math.inf]):
        with chainrule.nonfinite("allow"):
            wanted = jacobian(f)(x)
        with chainrule.nonfinite("allow"):
            np.testing.assert_array_equal(fast(x), wanted)


def test_values_among_the_arguments_or_around_give_values():
    w = Value(3.0)
    for f, x in (
        (lambda x: [x[0] ** 2, x[0] * x[1]], [Value(2.0), Value(5.0)]),
        (lambda x: [x[0] ** 2 * w, x[0] * x[1]], [2.0, 5.0]),
    ):
        fast = jacobian(chainrule.compile(f, on_fallback="eager"))
        found, wanted = fast(x), jacobian(f)(x)
        assert all(isinstance(y, Value) for y in found.ravel())
        assert [y.data for y in found.ravel()] == [y.data for y in wanted.ravel()]


def test_numbers_and_what_data_decides_have_no_derivative():
    def f(x, k):
        return [x[0].data * x[1], x[1].data, k * x[0]]

    fast = jacobian(chainrule.compile(f))
    for x, k in (([2.0, 3.0], 4.0), ([5.0, 6.0], 7.0)):
        close(fast(x, k), jacobian(f)(x, k))
    replayed(fast)


HELD = [Value(2.0)]


def test_values_that_a_function_reaches_are_read_afresh():
    fast = jacobian(chainrule.compile(lambda x: [x[0] * HELD[0], x[0] ** 2]))
    for number in (2.0, 5.0, math.inf):
        HELD[0].data = number
        with chainrule.nonfinite("allow"):
            assert fast([3.0]).tolist() == [[number], [6.0]]


def test_single_precision():
    f, x = SCALARS[1]
    found = hessian(chainrule.compile(f, dtype="float32", lift=True))(x)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, hessian(f)(x), rtol=1e-4, atol=1e-4)


def test_a_derivative_that_is_too_large_runs_eagerly(monkeypatch):
    monkeypatch.setattr(derivatives, "MOST", 10)
    with pytest.warns(chainrule.FallbackWarning, match="takes more than 10 products"):
        close(jacobian(chainrule.compile(broyden))(np.ones(6)), jacobian(broyden)(np.ones(6)))


def test_what_passes_no_derivative_on_takes_no_products(monkeypatch):
    def f(x):
        total = x[0]
        for k in range(100):
            total = total * x[k % 4] + x[1]
        return np.array([x[0] * x[1] * total.data, x[2] * x[3] + total.data])

    monkeypatch.setattr(derivatives, "MOST", 20)
    x = np.array([0.3, 0.4, 0.5, 0.7])
    fast = jacobian(chainrule.compile(f, on_fallback="raise"))
    close(fast(x), jacobian(f)(x))
    replayed(fast)


def test_operations_of_the_users_own():
    cube = chainrule.operation(lambda x: x * x * x, name="cube", partials=lambda y, x: 3 * x * x)
    table = chainrule.operation(
        lambda x: math.floor(x) * 2.0,
        name="table",
        partials=lambda y, x: 1.0 if math.floor(x) > 1 else 2.0,
        opaque=True,
    )

    def formula(x):
        return [cube(x[0]) * x[1]]

    def call_out(x):
        return [table(x[0]) * x[1]]

    fast = jacobian(chainrule.compile(formula))
    slow = jacobian(chainrule.compile(call_out, on_fallback="eager"))
    for x in ([0.5, 2.0], [2.5, 3.0]):
        close(fast(x), jacobian(formula)(x))
        close(slow(x), jacobian(call_out)(x))
    replayed(fast)
    assert "the derivative of table is no formula" in slow.report()


def test_methods_and_compiled_helpers():
    class Model:
        def __init__(self):
            self.scale = 2.0

        @chainrule.compile
        def predict(self, x):
            return [self.scale * x[0] * x[1]]

    model = Model()
    assert jacobian(model.predict)([2.0, 3.0]).tolist() == [[6.0, 4.0]]
    model.scale = 3.0
    assert jacobian(model.predict)([2.0, 3.0]).tolist() == [[9.0, 6.0]]
    inner = chainrule.compile(lambda x: x[0] * x[0])
    outer = chainrule.compile(lambda x: [inner(x) * x[1]])
    assert jacobian(outer)([2.0, 3.0]).tolist() == [[12.0, 4.0]]


def test_a_report_names_the_derivative():
    fast = jacobian(chainrule.compile(broyden, lift=True))
    fast(np.ones(20))
    assert fast.report().startswith("jacobian(broyden): lifted")
    assert repr(fast) == "<compiled jacobian(broyden): lifted>"
    assert "array instructions" in fast.report(stage="lifted")
    small = jacobian(chainrule.compile(lambda x: [x[0] * x[1], x[1]]))
    small([2.0, 3.0])
    last = small.report(stage="recorded").splitlines()[-1]
    assert last == "return [2×2: %1.data, %0.data, 0, 1]"


# --- wrong input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [False, True])
def test_wrong_input_says_what_is_wrong(compiled):
    def f(x, y=1.0):
        return x[0] * x[1] * y

    g, h = (chainrule.compile(f), chainrule.compile(broyden)) if compiled else (f, broyden)
    with pytest.raises(ValueError, match=r"hvp needs v in the structure of x: \(2,\), not \(3,\)"):
        hvp(g)([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="jvp needs tangents in the structure of primals"):
        jvp(g, ([1.0, 2.0],), ([1.0],))
    with pytest.raises(TypeError, match="jvp takes tangents as a tuple"):
        jvp(g, ([1.0, 2.0],), 1.0)
    with pytest.raises(ValueError, match="vjp needs weights in the structure of what f returns"):
        vjp(g, [1.0, 2.0])[1]([1.0, 2.0])
    with pytest.raises(TypeError, match="vjp takes the arguments of f after it"):
        vjp(g)
    with pytest.raises(TypeError, match="by argument 1, and the function was passed 1 by position"):
        jacobian(g, 1)([1.0, 2.0])
    with pytest.raises(ValueError, match="argnums has an argument twice"):
        jacobian(g, (0, -2))([1.0, 2.0], 1.0)
    with pytest.raises(TypeError, match="argnums is the position of an argument"):
        grad(g, "x")
    with pytest.raises(TypeError, match=r"takes a function that returns a pair \(result, aux\)"):
        hessian(g, has_aux=True)([1.0, 2.0])
    with pytest.raises(TypeError, match="there is no derivative with respect to that"):
        jacobian(chainrule.compile(f, on_fallback="eager") if compiled else f)(["a", "b"])
    with pytest.raises(TypeError, match="hessian takes a function that returns one Value"):
        hessian(h)([1.0, 2.0])
    with pytest.raises(IndexError):
        jacobian(g)([])
    for transform in (jacobian, hessian, grad):
        with pytest.raises(TypeError, match=f"{transform.__name__} takes a function"):
            transform(3.0)


@pytest.mark.parametrize("make", [jacobian, hessian])
def test_data_may_be_divided_as_numpy_does(make):
    """numpy's numbers give infinities where floats raise; of data no derivative is taken."""

    def f(x, data):
        first = data[0] / data[1]  # numpy's
        y = (x[0] * first + x[1] ** 3) * x[0]
        return [y, x[1] * first] if make is jacobian else y

    compiled, x = make(chainrule.compile(f, on_fallback="eager")), np.array([0.3, -0.7])
    for numbers in ([1.0, 2.0], [3.0, -0.5], [0.0, 4.0]):
        data = np.array(numbers)
        np.testing.assert_allclose(compiled(x, data), make(f)(x, data), rtol=1e-12)
    assert " 0 eager" in compiled.report()
    with np.errstate(all="ignore"):
        here, there = (outcome(g, x, np.array([1.0, 0.0])) for g in (make(f), compiled))
    assert repr(here) == repr(there)


def outcome(f, *arguments):
    try:
        return np.asarray(f(*arguments)).tolist()
    except (ArithmeticError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("transform", [chainrule.grad, chainrule.value_and_grad])
def test_what_returns_no_number_is_refused_in_the_words_of_the_transform(transform):
    def pair(x):
        return [x[0], x[1]]

    with pytest.raises(TypeError) as eager:
        transform(pair)(np.ones(2))
    with pytest.raises(TypeError) as compiled:
        transform(chainrule.compile(pair))(np.ones(2))
    assert str(compiled.value) == str(eager.value)
    assert str(eager.value).startswith(f"{transform.__name__} takes a function")


@pytest.mark.parametrize("count", [2, 10])
def test_a_product_with_a_vector_is_values_where_the_function_has_a_value_from_outside(count):
    weight = Value(1.5)

    def alone(xs):
        return weight

    def in_its_graph(xs):
        return weight * xs[0] ** 2

    def for_its_number(xs):
        return weight.data * xs[0] ** 2

    ones = [1.0] * count
    for f in (alone, in_its_graph, for_its_number):
        wanted = hvp(f)(ones, ones)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            found = hvp(chainrule.compile(f))(ones, ones)
        assert list(map(type, found)) == list(map(type, wanted))
        numbers = [x.data if isinstance(x, Value) else float(x) for x in found]
        assert numbers == [0.0 if f is alone else 3.0, *[0.0] * (count - 1)]


@pytest.mark.parametrize("empty", [[], (), np.zeros(0)], ids=repr)
@pytest.mark.parametrize("derivative", [jacobian, hessian, lambda f: lambda x: hvp(f)(x, x)])
def test_a_derivative_by_nothing_is_empty_as_in_eager_mode(derivative, empty):
    def f(x):
        return sum(v * v for v in x) + 1.0 * chainrule.exp(0.5)

    fast = chainrule.compile(f)
    for _ in range(3):
        assert repr(derivative(fast)(empty)) == repr(derivative(f)(empty))
