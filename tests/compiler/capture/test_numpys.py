"""Every function of numpy's and every attribute of its arrays is listed, or ends the recording."""

import itertools
import math

import numpy as np
import pytest

import chainrule
from chainrule.compiler.capture import numpys
from chainrule.compiler.capture.known import DISPATCHED, is_pure_builtin, is_pure_python

KINDS = (numpys.RECORDED, numpys.VIEWS, numpys.SHAPES, numpys.STATIC)
ATTRIBUTES = (
    numpys.RECORDED_ATTRIBUTES,
    numpys.VIEW_ATTRIBUTES,
    numpys.STATIC_ATTRIBUTES,
    numpys.SHAPE_ATTRIBUTES,
    numpys.REFUSED_ATTRIBUTES,
)
#: what writes, what calls a function of the user's, and what is not worth listing
REFUSED = frozenset(
    "angle apply_along_axis apply_over_axes array2string array_repr array_str astype block "
    "broadcast_arrays busday_count busday_offset choose copyto datetime_as_string einsum_path "
    "fill_diagonal imag iscomplex "
    "is_busday ix_ may_share_memory meshgrid min_scalar_type piecewise place put put_along_axis "
    "putmask real_if_close save savetxt savez savez_compressed shares_memory sort_complex "
    "trim_zeros unique_all unique_counts unique_inverse unique_values".split()
)
WRITES = {
    "sort": "x.sort()",
    "partition": "x.partition(1)",
    "put": "x.put([0], 5)",
    "fill": "x.fill(5)",
    "setfield": "x.setfield(5, x.dtype)",
    "byteswap": "x.byteswap(True).byteswap(True); x[0] = 5",
    "flat": "x.flat[0] = 5",
    "shape": "x.shape = (2, 2); x = x[0]",
    "resize": "x.resize((2, 2), refcheck=False); x = x[0]",
    "np.copyto": "np.copyto(x, 5)",
    "np.put": "np.put(x, [0], 5)",
    "np.place": "np.place(x, x > 2, 5)",
    "np.putmask": "np.putmask(x, x > 2, 5)",
    "np.fill_diagonal": "np.fill_diagonal(x.reshape(2, 2), 5)",
    "np.put_along_axis": "np.put_along_axis(x, np.array([0]), 5, 0)",
    "np.nan_to_num": "np.nan_to_num(x, copy=False); x[0] = 5",
    "np.random.shuffle": "x[:] = x[::-1].copy()",
    "np.add.at": "np.add.at(x, [0, 0], 1)",
    "np.negative.at": "np.negative.at(x, [0])",
    "reduce": "np.add.reduce(x, out=x[:1].reshape(()))",
    "accumulate": "np.add.accumulate(x, out=x)",
    "sum": "x.sum(out=x[:1].reshape(()))",
    "mean": "x.mean(out=x[:1].reshape(())) if x.dtype == float else x.sum()",
    "clip": "x.clip(2, 3, out=x)",
    "np.clip": "np.clip(x, 2, 3, x)",
    "np.take": "np.take(x, [3, 2, 1, 0], 0, x)",
    "x.take": "x.take([3, 2, 1, 0], out=x)",
    "round": "x.round(out=x); x[1] = 7",
    "np.round": "np.round(x)[0] = 9",
    "np.dot": "np.dot(x, 2, x)",
    "np.multiply": "np.multiply(x, 2, out=x)",
    "np.modf": "np.divmod(x, 2, x, x.copy())",
    "+=": "x += 1",
    "@=": "x @= np.eye(4, dtype=x.dtype)[::-1]",
    "__iadd__": "np.ndarray.__iadd__(x, 1)",
    "np.ndarray.sort": "np.ndarray.sort(x)",
    "ravel": "np.ravel(x)[0] = 9",
    "x.ravel": "x.ravel()[0] = 9",
    "ravel F": "x.reshape(2, 2, order='F').ravel()[1] = 9",
    "flip": "np.flip(x)[0] = 9",
    "squeeze": "np.squeeze(x.reshape(1, 4))[0] = 9",
    "transpose": "np.transpose(x.reshape(2, 2))[0, 1] = 9",
    "T": "x.T[0] = 9",
    "swapaxes": "np.swapaxes(x.reshape(1, 4), 0, 1)[0, 0] = 9",
    "moveaxis": "np.moveaxis(x.reshape(1, -1), 0, 1)[0, 0] = 9",
    "rot90": "np.rot90(x.reshape(1, -1))[0, 0] = 9",
    "split": "np.split(x, 2)[0][0] = 9",
    "expand_dims": "np.expand_dims(x, 0)[0, 1] = 9",
    "atleast_2d": "np.atleast_2d(x)[0, 1] = 9",
    "einsum": "np.einsum('i->i', x)[0] = 9",
    "real": "x.real[0] = 9",
    "np.real": "np.real(x)[0] = 9",
    "astype": "x.astype(x.dtype, copy=False)[0] = 9",
    "view": "x.view()[0] = 9",
    "asarray": "np.asarray(x)[0] = 9",
    "asarray dtype": "np.asarray(x, dtype=x.dtype)[0] = 9",
    "ascontiguousarray": "np.ascontiguousarray(x)[0] = 9",
    "asanyarray": "np.asanyarray(x)[0] = 9",
    "require": "np.require(x)[0] = 9",
    "float64": "y = np.float64(x); y[0] = 9",
    "a copy of two axes": "y = (x.reshape(2, 2).T + 0); y.ravel()[1] = 9; x = y.reshape(-1)",
    "slice": "x[1:3] = 9",
    "mask": "x[x > 2] = 9",
    "float": "x[0] = 2.75",
    "items": "x[:2] = [7, 8]",
}
ROWS = ([1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8], [4, 3, 2, 1], [2, 9, 0, 1])


def test_every_function_of_numpy_is_listed_or_refused():
    functions = {f for x in (np, np.linalg, np.fft) for f in vars(x).values() if is_listed_kind(f)}
    public = {f for f in vars(np).values() if is_listed_kind(f)}
    listed = frozenset().union(*KINDS)
    assert listed <= functions
    assert sum(map(len, KINDS)) == len(listed), "one kind each"
    assert {f.__name__ for f in public - listed} <= REFUSED
    assert not {f.__name__ for f in listed} & REFUSED


def is_listed_kind(function):
    return isinstance(function, DISPATCHED)


def test_every_attribute_of_an_array_is_listed_or_refused():
    assert frozenset().union(*ATTRIBUTES) >= {*dir(np.ndarray)}
    assert sum(map(len, ATTRIBUTES)) == len(frozenset().union(*ATTRIBUTES)), "one kind each"
    assert {"sort", "partition", "put", "resize", "setfield", "flags"} <= numpys.REFUSED_ATTRIBUTES


@pytest.mark.parametrize("name", ["ascontiguousarray", "asanyarray", "require", "asfortranarray"])
def test_functions_that_ask_no_array_what_they_mean_for_it_are_refused(name):
    function = getattr(np, name)
    pure = is_pure_python if hasattr(function, "__globals__") else is_pure_builtin
    assert not pure(function)


def test_a_function_of_a_later_numpy_is_refused():
    @np._core.overrides.array_function_dispatch(lambda x: (x,))
    def newest(x):
        return x * 2

    def f(p, x):
        return p * newest(x)[0]

    fast = chainrule.compile(f, on_fallback="eager")
    for x in ([1.0, 2.0], [3.0, 4.0]):
        assert fast.value_and_grad(1.5, np.array(x)) == (3.0 * x[0], 2.0 * x[0])


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")  # from numpy 2.5 on
@pytest.mark.parametrize("kind", [float, int])
@pytest.mark.parametrize("inside", [False, True], ids=["argument", "made inside"])
@pytest.mark.parametrize("name", WRITES)
def test_a_write_into_an_array_is_seen(name, inside, kind):
    world = {"np": np, "chainrule": chainrule}
    source = f"""
def f(p, x, m=1.0):
    {"x = np.array(x)" if inside else "pass"}
    {WRITES[name]}
    return m * (p * (x[0] + x[1] * 2 + x[-1] * 4))
"""
    exec(source, world)
    f = world["f"]
    eager, fast = chainrule.value_and_grad(f), chainrule.compile(f, on_fallback="eager")
    plain, masked = (chainrule.compile(f, on_fallback="eager") for _ in range(2))
    masked.value_and_grad(1.5, np.array(ROWS[0], kind), 0.0)  # no difference shows at first
    for row in ROWS:
        for wanted, found in (
            (eager, fast.value_and_grad),
            (f, plain),
            (eager, masked.value_and_grad),
        ):
            expected, x = outcome(wanted, np.array(row, kind))
            got, y = outcome(found, np.array(row, kind))
            assert got == expected
            assert x.tolist() == y.tolist()


def outcome(function, x):
    try:
        return function(1.5, x), x
    except (TypeError, ValueError, IndexError) as error:
        return str(error), x


#: what numpy makes of a list of numbers: its type, and what it does with one that is not a number
OF_LISTS = {
    "sum": "np.sum(xs) / (xs[0] - xs[0])",
    "mean": "np.mean(xs) / (xs[0] - xs[0])",
    "dot": "np.dot(xs, xs) / (xs[0] - xs[0])",
    "inner": "type(np.inner(xs, xs)).__name__",
    "prod": "type(np.prod(xs)).__name__",
    "einsum": "type(np.einsum('i,i', xs, xs)).__name__",
    "max": "float(np.max(xs))",
    "argmax": "float(np.argmax(xs))",
    "sort": "float(np.sort(xs)[0])",
    "median": "float(np.median(xs))",
    "std": "float(np.std(xs))",
    "norm": "float(np.linalg.norm(xs))",
    "full": "np.full(2, xs[0]).dtype.kind",
    "linspace": "np.linspace(0, xs[0], 3).dtype.kind",
    "arange": "np.arange(xs[1]).dtype.kind",
    "cumsum": "np.cumsum(xs).dtype.kind",
    "concatenate": "np.concatenate([xs, xs]).dtype.kind",
    "stack": "np.stack([xs, xs]).dtype.kind",
    "where": "np.where([True, False, True], xs, 0).dtype.kind",
    "outer": "np.outer(xs, xs).dtype.kind",
    "add": "np.add(xs, 1).dtype.kind",
    "add.reduce": "type(np.add.reduce(xs)).__name__",
    "clip": "np.clip(xs, 0, 1).dtype.kind",
    "zeros_like": "np.zeros_like(xs).dtype.kind",
    "reshape": "np.reshape(xs, (1, -1)).dtype.kind",
    "array": "np.array(xs, ndmin=2).dtype.kind",
    "atleast_1d": "np.atleast_1d(xs[0]).dtype.kind",
    "repeat": "np.repeat(xs[0], 2).dtype.kind",
    "comparison": "(np.array(xs) > 2).dtype.kind",
    "by its own name": "type(dot(xs, xs)).__name__",
}


@pytest.mark.parametrize("name", OF_LISTS)
def test_lists_of_data_are_arrays_for_numpy(name):
    world = {"np": np, "dot": np.dot}
    source = f"""
def f(p, shown, xs):
    y = {OF_LISTS[name]}
    y = float(sum(map(ord, y))) if isinstance(y, str) else y
    return shown * (p * y) + p
"""
    exec(source, world)
    f = world["f"]
    plain, fast = (chainrule.compile(f, on_fallback="eager") for _ in range(2))
    pairs = ((f, plain), (chainrule.value_and_grad(f), fast.value_and_grad))
    rows = ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [2.0, math.nan, 1.0], [1, 2, 3], [3, 2, 1])
    with np.errstate(all="ignore"):
        for row, shown, (eager, compiled) in itertools.product(rows, (0.0, 1.0), pairs):
            expected = answer(eager, shown, row)
            found = answer(compiled, shown, row)
            np.testing.assert_allclose(found, expected, rtol=1e-12)


def answer(function, shown, row):
    try:
        return function(1.5, shown, list(row))
    except ValueError:  # as of arange of what is not a number
        return -1.0
