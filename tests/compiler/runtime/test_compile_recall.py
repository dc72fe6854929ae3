"""Calls that are known again: answered from machine code only while everything is as it was.

Every call is compared with the function on the tape, which knows nothing again.
"""

import gc
import math
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from compile_view import View
from programs import count

import chainrule
from chainrule import exp, log
from chainrule.compiler.runtime import fast_path
from chainrule.compiler.runtime.signature import signature
from chainrule.core.backend import modes

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(
    chainrule.engine != "native", reason="only the native engine knows calls again"
)

SCALE = 1.0


class Options:
    def __init__(self):
        self.shift = 0.0


OPTIONS = Options()


def helper(x, factor=1.0):
    return x * factor


def bigram(params, tokens):
    """The mean cross-entropy of predicting each token from the one before it."""
    total = 0.0
    for token, target in pairwise(tokens):
        x = params["embedding"][token]
        scores = [
            sum(w * v for w, v in zip(row, x, strict=True)) + b
            for row, b in zip(params["W"], params["b"], strict=True)
        ]
        weights = [exp(s) for s in scores]
        total = total - log(weights[target] / sum(weights))
    return helper(total) / (len(tokens) - 1) * SCALE + OPTIONS.shift


def parameters(seed=0):
    rng = np.random.default_rng(seed)
    shapes = {"embedding": (5, 3), "W": (5, 3), "b": 5}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def leaves(nest):
    if isinstance(nest, dict):
        nest = list(nest.values())
    if isinstance(nest, (list, tuple)):
        return [x for item in nest for x in leaves(item)]
    return [nest]


def shape_of(nest):
    """The structure of a gradient, down to types."""
    if isinstance(nest, dict):
        return type(nest), [(key, shape_of(x)) for key, x in nest.items()]
    if isinstance(nest, (list, tuple)):
        return type(nest), [shape_of(x) for x in nest]
    return type(nest), np.shape(nest), getattr(nest, "dtype", None)


class Pair:
    """A function compiled to machine code and to the tape; `known` counts what is known again."""

    def __init__(self, function=bigram, dtype="float64"):
        self.fast = chainrule.compile(function, on_fallback="eager", lift=True, dtype=dtype)
        self.tape = chainrule.compile(function, on_fallback="eager", lift=False)
        self.limit = 1e-12 if dtype == "float64" else 1e-4

    def __call__(self, *arguments, known=None):
        unanswered: list[Any] = []  # by the gate
        differentiate = self.fast._differentiate
        self.fast._differentiate = lambda *x: unanswered.append(x) or differentiate(*x)
        try:
            value, gradient = self.fast.value_and_grad(*arguments)
        finally:
            del self.fast._differentiate
        wanted_value, wanted = self.tape.value_and_grad(*arguments)
        assert type(value) is type(wanted_value) is float
        np.testing.assert_allclose(value, wanted_value, rtol=self.limit, atol=self.limit)
        assert shape_of(gradient) == shape_of(wanted)
        for a, b in zip(leaves(gradient), leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=self.limit, atol=self.limit)
        if known is not None:
            assert (not unanswered) is known
        return value, gradient


@pytest.fixture(params=["float64", "float32"])
def pair(request):
    pair = Pair(dtype=request.param)
    pair(parameters(), [4, 0, 2, 1, 3, 3, 2])
    return pair


IDS = [4, 0, 2, 1, 3, 3, 2]


def test_the_same_arrays_with_other_numbers_are_known(pair):
    params = parameters()
    rng = np.random.default_rng(1)
    for _ in range(5):
        for a in params.values():
            a[...] = rng.normal(size=a.shape)
        pair(params, list(IDS), known=True)
    params["W"] -= 0.1
    pair(params, IDS[::-1], known=True)


def test_lengths_take_turns(pair):
    params = parameters()
    for n in (7, 5, 3, 7, 5, 3):
        pair(params, IDS[:n])
    for n in (7, 5, 3, 7, 3):
        pair(params, IDS[:n], known=True)


def test_gradients_are_each_calls_own(pair):
    params = parameters()
    pair(params, IDS)
    first = pair(params, IDS, known=True)[1]
    before = {key: a.copy() for key, a in first.items()}
    params["b"][...] = 3.0
    second = pair(params, IDS, known=True)[1]
    assert not np.array_equal(first["b"], second["b"])
    for a in second.values():
        a[...] = np.nan
    for key in first:
        np.testing.assert_array_equal(first[key], before[key])
    pair(params, IDS, known=True)


def test_out_is_filled(pair):
    params = parameters()
    pair(params, IDS)
    out = {key: np.full(a.shape, np.nan) for key, a in params.items()}
    value, gradient = pair.fast.value_and_grad(params, IDS, out=out)
    assert gradient is out
    wanted_value, wanted = pair(params, IDS, known=True)
    assert value == wanted_value
    for key in out:
        np.testing.assert_array_equal(out[key], wanted[key])


# --- arguments that have changed ------------------------------------------------------------------


def test_other_dicts_and_arrays_of_the_same_structure_are_known(pair):
    params = parameters()
    pair(params, IDS)
    pair(dict(params), IDS, known=True)
    params["b"] = params["b"] + 1.0
    pair(params, IDS, known=True)
    pair({key: a - 0.1 for key, a in params.items()}, IDS, known=True)
    pair(
        {"".join(key): a for key, a in params.items()}, IDS, known=True
    )  # equal keys, not the same


class Text(str):
    pass


@pytest.mark.parametrize("key", [Text("b"), "c", 7, None])
def test_other_keys_are_others(key):
    def f(params, tokens):
        last = list(params.values())[-1]
        return sum(exp(params["w"][t]) * last[t] for t in tokens)

    pair = Pair(f)
    params = {"w": np.array([0.5, -1.0, 0.25]), "b": np.ones(3)}
    pair(params, [0, 1])
    pair(params, [0, 1], known=True)
    other = {"w": params["w"], key: params["b"]}
    pair(other, [0, 1], known=False)
    _, gradient = pair(other, [0, 1], known=True)
    assert type(list(gradient)[-1]) is type(key)
    pair(params, [0, 1])
    pair(params, [0, 1], known=True)
    pair(other, [0, 1], known=True)


def test_another_order_of_the_dict_is_seen(pair):
    params = parameters()
    pair(params, IDS)
    params["embedding"] = params.pop("embedding")
    _, gradient = pair(params, IDS, known=False)
    assert list(gradient) == ["W", "b", "embedding"]


def test_keys_that_come_and_go_are_seen(pair):
    params = parameters()
    pair(params, IDS)
    more = np.ones(2)
    for turn in range(3):
        params["more"] = more
        _, gradient = pair(params, IDS, known=turn > 0)
        assert gradient["more"].tolist() == [0.0, 0.0]
        pair(params, IDS, known=True)
        del params["more"]
        _, gradient = pair(params, IDS, known=True)
        assert list(gradient) == ["embedding", "W", "b"]
        pair(params, IDS, known=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_array_of_another_shape_is_seen():
    def total(params, tokens):
        rows = params["x"]
        return sum(exp(row[0]) * rows[t][1] for t in tokens for row in rows)

    pair = Pair(total)
    params = {"x": np.arange(12.0).reshape(4, 3) / 10}
    pair(params, [0, 1])
    pair(params, [0, 1], known=True)
    for turn, shape in enumerate([(3, 4), (4, 3)] * 3):
        params["x"].shape = shape
        _, gradient = pair(params, [0, 1], known=turn > 0)
        assert gradient["x"].shape == shape
        pair(params, [0, 1], known=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_array_of_another_type_is_seen(pair):
    params = parameters()
    pair(params, IDS)
    params["b"].dtype = np.int64
    params["b"][...] = [1, 2, 3, 4, 5]
    value, _ = pair.fast.value_and_grad(params, IDS)
    as_floats = {**params, "b": np.arange(1.0, 6.0)}
    np.testing.assert_allclose(value, pair.tape.value_and_grad(as_floats, IDS)[0], rtol=pair.limit)


def test_an_array_moved_in_memory_is_read_where_it_is(pair):
    params = parameters()
    pair(params, IDS)
    pair(params, IDS, known=True)
    params["b"].resize(5000, refcheck=False)  # elsewhere
    params["b"].resize(5, refcheck=False)
    params["b"][...] = [1.0, 0.5, -1.0, 2.0, 0.0]
    pair(params, IDS, known=True)


@pytest.mark.parametrize(
    "make",
    [
        lambda p: {**p, "b": p["b"].astype(np.float32)},
        lambda p: {**p, "b": p["b"].tolist()},
        lambda p: {**p, "W": np.asfortranarray(p["W"])},
        lambda p: {**p, "W": np.repeat(p["W"], 2, axis=1)[:, ::2]},
        lambda p: {**p, "b": np.ma.masked_array(p["b"]).view(np.ndarray)[:]},
        lambda p: OrderedDict(p),
    ],
)
def test_what_is_no_plain_nest_of_arrays_goes_the_long_way_or_is_right(make):
    pair = Pair()
    params = make(parameters())
    if isinstance(params, OrderedDict):
        wanted = chainrule.value_and_grad(bigram)(dict(params), IDS)[0]
        for _ in range(2):
            assert pair.fast.value_and_grad(params, IDS)[0] == pytest.approx(wanted)
        return
    for _ in range(3):
        pair(params, IDS)


def test_one_array_in_two_places_has_two_gradients():
    def f(params, tokens):
        return sum(exp(params[0][t]) * params[1][t] for t in tokens)

    pair = Pair(f)
    x = np.array([0.5, -0.25, 1.0])
    params = [x, x]
    pair(params, [0, 2, 1])
    _, (first, second) = pair(params, [0, 2, 1], known=True)
    assert not np.array_equal(first, second)


class Two(NamedTuple):
    a: Any
    b: Any


@pytest.mark.parametrize(
    ("make", "parts"),
    [
        (lambda a, b: [a, b], lambda p: p),
        (lambda a, b: (a, b), lambda p: p),
        (lambda a, b: [(a,), [b]], lambda p: (p[0][0], p[1][0])),
        (lambda a, b: {"x": {"y": [a]}, "z": (b, [])}, lambda p: (p["x"]["y"][0], p["z"][0])),
        (lambda a, b: {0: a, "0": b}, lambda p: (p[0], p["0"])),
        (lambda a, b: ([a], {"b": {"c": b}}), lambda p: (p[0][0], p[1]["b"]["c"])),
        (Two, lambda p: p),
    ],
)
def test_nests_of_every_kind_come_back_in_their_structure(make, parts):
    def f(params, tokens):
        a, b = parts(params)
        return sum(exp(a[t][0]) * b * a[t][1] for t in tokens)

    pair = Pair(f)
    params = make(np.linspace(-1, 1, 6).reshape(3, 2), np.array(0.5))
    pair(params, [0, 2, 1], known=False)
    pair(params, [0, 2, 1])
    pair(params, [0, 2, 1], known=True)


def test_a_list_of_parameters_that_changes_is_seen():
    def f(params, tokens):
        return sum(exp(row[t]) for t in tokens for row in params)

    pair = Pair(f)
    params = [np.ones(3), np.zeros(3)]
    pair(params, [0, 1])
    pair(params, [0, 1], known=True)
    params.reverse()
    params[0][1] = 2.0
    pair(params, [0, 1], known=True)
    params.append(np.full(3, 0.5))
    pair(params, [0, 1], known=False)


# --- integers -------------------------------------------------------------------------------------


class Odd(int):
    pass


def test_one_list_twice_is_not_two_lists():
    def f(params, first, second):
        w = params["w"]
        return sum(exp(w[a]) * w[b] for a, b in zip(first, second, strict=True)) * (
            2.0 if first is second else 1.0
        )

    pair = Pair(f)
    params = {"w": np.array([0.5, -1.0, 0.25])}
    ids = [0, 1, 2]
    for _ in range(2):
        pair(params, ids, [2, 1, 0])
        pair(params, ids, ids, known=False)
    pair(params, ids, [0, 1, 2])


@pytest.mark.parametrize("other", [True, Odd(1), np.int64(1), 1.0])
def test_what_only_equals_an_integer_is_no_integer(other):
    seen = []

    def f(params, tokens):
        w = params["w"]
        seen.append([type(t) for t in tokens])
        return sum(exp(w[t]) for t in tokens if not isinstance(t, float))

    fast = chainrule.compile(f, on_fallback="eager", lift=True)
    params = {"w": np.array([0.5, -1.0, 0.25])}
    for _ in range(3):
        fast.value_and_grad(params, [0, 1, 2])
    assert fast.dispatch.answer((params, [0, other, 2]), True) is None


def test_integers_out_of_range_raise_what_eager_raises(pair):
    params = parameters()
    pair(params, IDS)
    for ids in ([4, 0, 2, 1, 3, 3, 5], [4, 0, 2, 1, 3, 3, 10**30], [-6, 0, 2, 1, 3, 3, 2]):
        for _ in range(2):
            with pytest.raises(IndexError):
                pair.fast.value_and_grad(params, ids)
    pair(params, IDS)
    pair(params, IDS, known=True)
    pair(params, [-1, 0, 2, -5, 3, 3, 2])
    pair(params, [-1, 0, 2, -5, 3, 3, 2])


def test_an_empty_list_and_keywords_go_the_long_way(pair):
    params = parameters()
    pair(params, IDS)
    with pytest.raises(ZeroDivisionError):
        pair.fast.value_and_grad(params, [0])
    value = pair.fast.value_and_grad(params, tokens=IDS)[0]
    pair(params, IDS)
    assert value == pytest.approx(pair(params, IDS, known=True)[0], rel=pair.limit)


# --- data -----------------------------------------------------------------------------------------


def exactly(pair, *arguments):
    """A call that is known gives what the same machine code gives on the long way, bit for bit."""
    value, gradient = pair(*arguments, known=True)
    View(pair.fast).forget_fast_path()
    wanted_value, wanted = pair(*arguments, known=None)
    assert value.hex() == wanted_value.hex()
    assert shape_of(gradient) == shape_of(wanted)
    for a, b in zip(leaves(gradient), leaves(wanted), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    pair(*arguments, known=True)
    return value, gradient


def line(params, xs, ys):
    """A line through points, in whatever nest these are."""
    total = 0.0
    for x, y in zip(xs, ys, strict=True):
        total = total + exp((params["w"] * x + params["b"] - y) * 0.1)
    return total


def line_params(kind=float):
    return {"w": kind(0.5), "b": kind(-0.25)}


XS, YS = [0.5, -1.0, 2.0, 0.25], [1.0, 0.0, -0.5, 0.75]
DATA = {
    "lists": list,
    "tuples": tuple,
    "arrays": np.array,
    "lists of numpy's floats": lambda x: [*np.array(x)],
    "lists of arrays": lambda x: [np.array(v) for v in x],
    "mixed": lambda x: [x[0], np.array(x[1]), *x[2:]],
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", [float, np.array])
@pytest.mark.parametrize("data", list(DATA))
def test_data_of_every_kind_are_known(data, kind, dtype):
    pair, make = Pair(line, dtype), DATA[data]
    pair(line_params(kind), make(XS), make(YS), known=False)
    rng = np.random.default_rng(2)
    for _ in range(3):
        params = {key: kind(rng.normal()) for key in ("w", "b")}
        xs, ys = rng.normal(size=(2, 4)).tolist()
        exactly(pair, params, make(xs), make(ys))
        exactly(pair, params, make(xs), make(xs))


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_data_that_are_no_doubles_are_not_known(kind):
    """Their own arithmetic rounds in another way; what was recorded for doubles is not for them."""
    pair = Pair(lambda p, x: exp(p * (x[0] * x[1])))
    for _ in range(3):
        pair(0.5, np.array([1.1, 2.3]))
        value, _ = pair(0.5, np.array([1.1, 2.3], kind), known=False)
        assert value == math.exp(0.5 * float(kind(1.1) * kind(2.3)))


def test_one_list_of_floats_or_array_twice_is_two():
    pair = Pair(line)
    for make in (list, np.array):
        params, xs = line_params(), make(XS)
        pair(params, xs, make(YS))
        pair(params, xs, xs, known=True)


@pytest.mark.parametrize(
    "other",
    [
        np.array([*XS, 1.0]),
        np.array(XS).reshape(4, 1),
        np.array(XS).reshape(2, 2),
        np.array(XS).astype(">f8"),
        np.array(XS, np.float16),
        np.repeat(XS, 2)[::2],
        np.array(XS, object),
        np.ma.masked_array(XS),
        np.array([1, 2, 3, 4]),
        np.array([True] * 4),
        [*XS[:3], True],
        [*XS[:3], None],
        [*XS[:3], Odd(2)],
        [*XS[:3], np.float32(2.0)],
        [*XS[:3], chainrule.Value(2.0)],
        range(4),
        "abcd",
        None,
    ],
    ids=repr,
)
def test_other_data_are_not_taken_for_what_is_known(other):
    """Eager mode decides what each of these is, an error perhaps."""
    pair = Pair(line)
    params, xs = line_params(), np.array(XS)
    for data in (xs, list(XS)):
        pair(params, data, data.copy())
        pair(params, data, data.copy(), known=True)
        for _ in range(2):
            alike(pair, params, other, data)
        pair(params, data, data.copy())


def alike(pair, *arguments):
    """Whatever the function does on the tape, it does: the same error, or value and gradient."""
    found, wanted = (outcome_of(f, arguments) for f in (pair.fast, pair.tape))
    if isinstance(wanted, str):
        assert found == wanted
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def outcome_of(function, arguments):
    try:
        value, gradient = function.value_and_grad(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return np.concatenate([np.ravel(x) for x in (value, *leaves(gradient)) if not is_static(x)])


def is_static(x):
    return x is None or isinstance(x, (bool, str))


def test_shapes_of_data_take_turns():
    pair = Pair(line)
    params = line_params()
    for n in (4, 3, 2, 4, 3, 2):
        pair(params, np.array(XS[:n]), np.array(YS[:n]))
    for n in (2, 4, 3, 4, 2):
        pair(params, np.array(XS[:n]), np.array(YS[:n]), known=True)
    with pytest.raises(ValueError, match="zip"):
        pair.fast.value_and_grad(params, np.array(XS), np.array(YS[:3]))


def test_a_number_is_a_float_an_integer_or_an_array():
    def f(params, x):
        return exp(params["w"] * x) + params["b"]

    pair = Pair(f)
    kinds = [(0.5, 1.5), (1, 2), (np.array(0.5), np.array(2.5)), (np.float64(1.5), np.float64(2.5))]
    for x, y in kinds:
        pair(line_params(), x)
        exactly(pair, line_params(), y)
    for x in (10**400, True, np.int64(2), None):
        alike(pair, line_params(), x)


def test_integers_that_are_numbers_and_select():
    def f(params, k, ids):
        return sum(exp(params[t] * k) * ids[0] for t in ids)

    pair = Pair(f)
    params = np.array([0.5, -1.0, 0.25])
    for k, ids in [(2, [0, 1, 2]), (3, [2, 1, 0]), (-1, [1, 1, 1])]:
        for _ in range(3):
            pair(params, k, ids)
        exactly(pair, params, k, ids)
    exactly(pair, params, 2, [2, 1, 0])


def test_integers_that_decide_take_turns():
    def f(params, steps):
        x = params
        for _ in range(steps):
            x = x - x * x * 0.1
        return x

    pair = Pair(f)
    for steps in (3, 5, 3, 5):
        pair(0.5, steps)
    for steps in (3, 5, 5, 3):
        pair(0.75, steps, known=True)
    exactly(pair, 0.75, 5)
    pair(0.5, 4, known=False)


def test_branches_take_turns():
    def f(params, x):
        y = params["w"] * x + params["b"]
        return exp(y) if y > 0 else y * y

    pair = Pair(f)
    for x in (2.0, -2.0, 2.0, -2.0):
        pair(line_params(), x)
    for x in (2.5, -1.0, 3.0, 1.0, -4.0):
        pair(line_params(), x, known=True)


def test_integer_arrays_select():
    def f(params, table):
        return sum(exp(params[row[0]]) * params[row[1]] for row in table)

    params = np.array([0.5, -1.0, 0.25])
    for kind in (np.int64, np.int32, np.int8, np.uint64):
        pair = Pair(f)
        table = np.array([[0, 1], [2, 0]], kind)
        pair(params, table)
        pair(params, table)
        known = kind is np.int64
        pair(params, table.copy(), known=known)
        pair(params, table.tolist())
        pair(params, table.tolist(), known=True)
        pair(params, table.T[::-1])
        with pytest.raises(IndexError):
            pair.fast.value_and_grad(params, table + 5)


def test_one_list_of_integers_in_two_places_is_one():
    def f(params, first, second):
        same = first[0] is second[0]
        return sum(exp(params[t]) for row in (*first, *second) for t in row) * (2.0 if same else 1)

    pair = Pair(f)
    params, ids = np.array([0.5, -1.0, 0.25]), [0, 1]
    for _ in range(3):
        pair(params, [ids], [[0, 1]])
        pair(params, [ids], [ids], known=False)
        pair(params, (ids,), [ids], known=False)
    pair(params, [[0, 1]], [[0, 1]], known=True)


def test_an_empty_list_of_the_parameters_passed_again_is_another():
    def f(params, x):
        return exp(params["w"]) * (2.0 if params["rest"] is x else 1.0)

    pair = Pair(f)
    params = {"w": np.array(0.5), "rest": []}
    for _ in range(3):
        for x in ([], params["rest"]):  # the function gets a list of its own
            assert pair(params, x)[0] == chainrule.value_and_grad(f)(params, x)[0]


def test_dicts_of_data_are_known_with_their_keys():
    def f(params, batch):
        return sum(exp(params["w"] * x) for x in batch["x"]) * batch["scale"] + params["b"]

    pair = Pair(f)
    pair(line_params(), {"x": np.array(XS), "scale": 0.5})
    exactly(pair, line_params(), {"x": np.array(YS), "scale": 0.25})
    pair(line_params(), {"scale": 0.5, "x": np.array(YS)}, known=False)
    with pytest.raises(KeyError):
        pair.fast.value_and_grad(line_params(), {"x": np.array(XS), "shift": 0.5})


# --- parameters that are floats -------------------------------------------------------------------


def test_floats_among_the_parameters_are_read_anew():
    def f(params, x):
        return exp(params["w"] * x) * params["rows"][0][1] + params["rows"][1][0][1] * params["b"]

    pair = Pair(f)
    params = {"w": 0.5, "rows": [np.array([1.0, 2.0]), (np.array([0.5, 1.5]), 2.0)], "b": 1.0}
    pair(params, 0.5)
    for _ in range(3):
        params["w"] -= 0.1
        params["rows"][0] -= 0.5
        _, gradient = exactly(pair, params, 0.5)
        assert type(gradient["w"]) is type(gradient["rows"][1][1]) is float
    params["b"] = 2  # a number to differentiate by, like any
    exactly(pair, params, 0.5)
    params["b"] = np.float64(1.5)
    exactly(pair, params, 0.5)
    params["b"] = np.array(1.5)
    _, gradient = pair(params, 0.5, known=False)
    assert type(gradient["b"]) is np.ndarray
    for other in (10**400, True, Odd(3), "1.0", None):
        params["b"] = other
        alike(pair, params, 0.5)


def test_a_single_float_or_array_is_an_argument_too():
    pair = Pair(lambda x, y: exp(x) * y)
    pair(0.5, 2.0)
    for x in (0.25, 1.0, -1.0):
        exactly(pair, x, 3.0)
    pair(np.array(0.5), 2.0, known=False)
    exactly(pair, np.array(0.25), 2.0)


def test_the_value_may_be_an_argument():
    for f in (lambda p, x: x, lambda p, x: p * 1.0 + x * 0.0, lambda p, x: p):
        pair = Pair(f)
        for x in (1.5, 2.5, 3.5):
            pair(0.5, x)
            pair(np.array(0.25), x)


def test_out_and_floats_do_not_go_together():
    fast = Pair(lambda p: exp(p["w"]) * p["b"]).fast
    for _ in range(3):
        with pytest.raises(TypeError, match="plain float"):
            fast.value_and_grad(line_params(), out=line_params())


def test_what_data_make_of_it_is_finite_or_goes_the_long_way():
    pair = Pair(line)
    pair(line_params(), np.array(XS), np.array(YS))
    for bad in (1e300, -1e300, np.inf, np.nan):
        xs = np.array([*XS[:3], bad])
        alike(pair, line_params(), xs, np.array(YS))
    pair(line_params(), np.array(XS), np.array(YS), known=True)


def test_data_nest_as_deep_as_they_like():
    def f(params, x):
        while isinstance(x, list):
            x = x[0]
        return exp(params * x)

    for depth in (1, 30, 100):
        pair, x = Pair(f), 0.5
        for _ in range(depth):
            x = [x]
        pair(0.5, x)
        pair(0.25, x, known=depth < 40)


# --- state ---------------------------------------------------------------------------------


def double(x, factor=1.0):
    return x * factor * 2.0


def half(x, factor=1.0):
    return x * factor * 0.5


def test_captured_state_that_changes_are_seen(pair, monkeypatch):
    params = parameters()

    def step():
        pair(params, IDS, known=False)
        pair(params, IDS, known=True)

    pair(params, IDS, known=True)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    step()
    monkeypatch.setattr(OPTIONS, "shift", 1.5)
    step()
    monkeypatch.setitem(globals(), "helper", double)
    step()
    monkeypatch.setattr(double, "__defaults__", (3.0,))
    step()
    monkeypatch.setattr(double, "__code__", half.__code__)
    step()
    monkeypatch.setitem(globals(), "sum", sum)  # the builtin, by another way: the same
    pair(params, IDS)
    pair(params, IDS, known=True)


def test_captured_state_that_changes_now_and_then_do_not_change_all_the_time(monkeypatch):
    def scaled(p, x):
        return sum(a * b for a, b in zip(p, x, strict=True)) * SCALE

    fast = chainrule.compile(scaled, lift=True, on_fallback="raise")
    for k in range(30):
        monkeypatch.setitem(globals(), "SCALE", 1.0 + k)
        for _ in range(3):
            value, _ = fast.value_and_grad(np.ones(4), [1.0, 2.0, 3.0, 4.0])
            assert value == 10.0 * (1.0 + k)


def test_attributes_replaced_as_a_whole_are_seen():
    class Box:
        pass

    class Row(tuple):
        pass

    box, row = Box(), Row()
    box.scale = row.scale = 2.0

    def f(params, tokens):
        return sum(exp(params["w"][t]) for t in tokens) * box.scale * row.scale * f.scale

    f.scale = 1.0
    pair = Pair(f)
    params = {"w": np.array([0.5, -1.0, 0.25])}
    for x in (box, row, f):
        pair(params, [0, 1])
        pair(params, [0, 1], known=True)
        x.__dict__ = {"scale": 5.0}
        pair(params, [0, 1], known=False)


def test_attributes_of_a_methods_instance_replaced_as_a_whole_are_seen():
    class Model:
        def __init__(self, scale):
            self.scale = scale

        @chainrule.compile(on_fallback="raise")
        def loss(self, x):
            return exp(x) * self.scale

    model = Model(2.0)
    one = model.loss.value_and_grad(0.0)
    model.__dict__ = {"scale": 3.0}
    assert (one, model.loss.value_and_grad(0.0)) == ((2.0, 2.0), (3.0, 3.0))
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_a_class_that_changes_is_seen():
    class Local:
        factor = 2.0

        @staticmethod
        def double(x):
            return x * 2.0

    def f(params, tokens):
        return sum(Local.double(exp(params["w"][t])) for t in tokens) * Local.factor

    pair = Pair(f)
    params = {"w": np.array([0.5, -1.0, 0.25])}
    pair(params, [0, 1])
    pair(params, [0, 1], known=True)
    Local.factor = 3.0
    pair(params, [0, 1], known=False)
    pair(params, [0, 1], known=True)
    Local.double = staticmethod(lambda x: x * 7.0)
    pair(params, [0, 1], known=False)
    Local.more = 1
    pair(params, [0, 1])
    pair(params, [0, 1], known=True)


# --- numbers that are not finite, and modes ------------------------------------------------------


def test_what_is_not_finite_goes_the_long_way(pair):
    params = parameters()
    pair(params, IDS)
    kept = params["b"].copy()
    for bad in (1e300, np.inf, np.nan, -1e300):
        params["b"][1] = bad
        for _ in range(2):
            assert outcome(pair.fast, params) == outcome(pair.tape, params)
    params["b"][...] = kept
    pair(params, IDS, known=True)


def outcome(function, params):
    try:
        function.value_and_grad(params, IDS)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


@pytest.mark.parametrize("path", ["known", "lifted", "tape", "eager"])
def test_no_grad_around_a_gradient_changes_nothing(path):
    params = parameters()
    wanted_value, wanted = chainrule.value_and_grad(bigram)(params, IDS)
    if path == "eager":

        def f(params, tokens):
            return bigram(params, tokens) + 0.0 * float(str(params["b"][0].data))

    else:
        f = bigram
    fast = chainrule.compile(f, on_fallback="eager", lift=path not in ("tape", "eager"))
    if path == "known":
        fast.value_and_grad(params, IDS)
        fast.value_and_grad(params, IDS)
    with chainrule.no_grad():
        value, gradient = fast.value_and_grad(params, IDS)
        mean, mean_gradient = fast.batch_value_and_grad(params, [(IDS,), (IDS,)])
        assert not chainrule._native.modes.grad
    assert ("eager" in fast.report().splitlines()[0]) is (path == "eager")
    for found in (value, mean):
        assert found == pytest.approx(wanted_value, rel=1e-12)
    for key in wanted:
        for found in (gradient, mean_gradient):
            np.testing.assert_allclose(found[key], wanted[key], rtol=1e-11, atol=1e-13)


# --- threads and memory ---------------------------------------------------------------------------


def in_threads(work: Callable[[int], None]) -> None:
    """Four threads at once, which take turns as often as can be."""
    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)


def test_threads_share_functions_and_parameters():
    functions = [Pair().fast, Pair(dtype="float32").fast]
    sets = [parameters(k) for k in range(3)]
    lengths = [7, 5, 3]
    wanted = {}
    tape = chainrule.compile(bigram, lift=False)
    for k, params in enumerate(sets):
        for n in lengths:
            wanted[k, n] = tape.value_and_grad(params, IDS[:n])
    for fast in functions:
        for n in lengths:
            fast.value_and_grad(sets[0], IDS[:n])
    failures: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for turn in range(count(ci=150, soak=3000)):
            which, n = int(rng.integers(2)), lengths[int(rng.integers(3))]
            k = int(rng.integers(3)) if turn % 10 == 0 else 0  # another set drops what was known
            value, gradient = functions[which].value_and_grad(sets[k], IDS[:n])
            limit = (1e-12, 1e-4)[which]
            close = [np.allclose(gradient[x], wanted[k, n][1][x], limit, limit) for x in gradient]
            if not (np.isclose(value, wanted[k, n][0], limit, limit) and all(close)):
                failures.append((which, k, n))

    in_threads(work)
    assert failures == []


def test_a_list_that_another_thread_shortens_while_its_call_is_cached_is_no_error(monkeypatch):
    def total(w, rows):
        return w[0] * sum(x for row in rows for x in row)

    rows, learnt = [[1.0, 2.0], [3.0, 4.0]], []

    def meanwhile(*given: Any) -> Any:
        rows.pop()
        learnt.append(signature(*given))
        return learnt[-1]

    monkeypatch.setattr(fast_path, "signature", meanwhile)
    fast = chainrule.compile(total, lift=False)
    assert fast.value_and_grad([2.0], rows) == (20.0, [10.0])
    assert learnt == [None]
    monkeypatch.undo()
    assert fast.value_and_grad([2.0], rows) == (6.0, [3.0])


def test_many_calls_leave_nothing_behind(pair):
    """100,000 of them in soak."""
    params = parameters()
    for n in (7, 5, 7, 5):
        pair(params, IDS[:n])

    def run(calls):
        for k in range(calls):
            pair.fast.value_and_grad(params, IDS[: 5 + k % 2 * 2])

    run(200)
    gc.collect()
    watched = [params, *params.values(), View(pair.fast).fast_path, IDS]
    counts, blocks = [sys.getrefcount(x) for x in watched], sys.getallocatedblocks()
    run(calls := count(ci=3000, soak=100_000))
    gc.collect()
    assert [sys.getrefcount(x) for x in watched] == counts
    assert sys.getallocatedblocks() - blocks < calls / 100  # others' may be freed meanwhile


def test_calls_with_data_leave_nothing_behind():
    pair, rng = Pair(line), np.random.default_rng(0)
    params, xs = line_params(), rng.normal(size=4)
    samples = [
        (xs, xs + 1.0),
        (xs[:3].copy(), xs[1:].copy()),
        (xs.tolist(), (*xs,)),
        (xs[::2], XS[:2]),
    ]
    for sample in samples * 2:
        pair(params, *sample)

    def run(calls):
        for k in range(calls):
            params["w"] += 1e-6
            pair.fast.value_and_grad(params, *samples[k % 4])

    run(1000)  # newer Pythons free something of their own meanwhile
    gc.collect()
    watched = [params, xs, *samples[0], View(pair.fast).fast_path, None]
    counts, blocks = [sys.getrefcount(x) for x in watched], sys.getallocatedblocks()
    run(calls := count(ci=2000, soak=100_000))
    gc.collect()
    grown = [sys.getrefcount(x) - n for x, n in zip(watched, counts, strict=True)]
    assert max(map(abs, grown)) < calls / 100
    assert sys.getallocatedblocks() - blocks < calls / 100  # others' may be freed meanwhile


def test_threads_have_data_of_their_own():
    fast = Pair(line).fast
    tape = chainrule.compile(line, lift=False)
    rng = np.random.default_rng(3)
    calls = [
        ({"w": w, "b": np.array(b)}, rng.normal(size=n), rng.normal(size=n))
        for n in (2, 3, 4)
        for w, b in rng.normal(size=(3, 2)).tolist()
    ]
    wanted = [tape.value_and_grad(*call) for call in calls]
    for call in calls:
        fast.value_and_grad(*call)
    failures: list[Any] = []

    def work(seed: int) -> None:
        order = np.random.default_rng(seed).integers(len(calls), size=count(ci=300, soak=5000))
        for k in order.tolist():
            value, gradient = fast.value_and_grad(*calls[k])
            found = [value, *leaves(gradient)]
            if not np.allclose(found, [wanted[k][0], *leaves(wanted[k][1])], 1e-12, 1e-12):
                failures.append(k)

    in_threads(work)
    assert failures == []


def test_many_structures_are_too_many(monkeypatch):
    """Which are known again, that is: all are right."""
    monkeypatch.setattr(fast_path, "STRUCTURES", 16)
    pair = Pair(lambda p, x: exp(p) * x[0])
    for turn in range(3):
        for n in range(1, 21):
            known = n <= 16 if turn == 2 else None
            pair(0.5, np.full(n, float(n)), known=known)


def test_what_follows_no_value_has_no_gradient():
    for f in (lambda p, x: p.data * x, lambda p, x: 2.0, lambda p, x: (exp(p) * x, {"p": p})):
        fast, tape = (chainrule.compile(f, on_fallback="eager", lift=k) for k in (True, False))
        for x in (1.5, 2.5, 3.5, 1.5):
            found, wanted = (g.value_and_grad(0.5, x) for g in (fast, tape))
            assert repr(found) == repr(wanted)


def test_parameters_go_with_their_call(pair):
    params = parameters()
    pair(params, IDS)
    pair(params, IDS, known=True)
    gone = [weakref.ref(a) for a in params.values()]
    gc.disable()  # there must be no cycle
    try:
        del params
        assert [ref() for ref in gone] == [None] * 3
    finally:
        gc.enable()


def test_all_goes_with_the_function():
    fast = chainrule.compile(bigram, lift=True)
    params = parameters()
    for _ in range(3):
        fast.value_and_grad(params, IDS)
    gone = [weakref.ref(x) for x in (fast, params["W"], View(fast).fast_path)]
    del fast, params
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3


class Moving:
    """A key whose hash changes, against all rules."""

    def __init__(self):
        self.number = 1

    def __hash__(self):
        return self.number


def test_a_key_whose_hash_changes_does_no_harm():
    key = Moving()
    params = {key: np.ones(3)}

    def total(p, x):
        return sum(w * x for row in p.values() for w in row)

    fast = chainrule.compile(total, lift=True, on_fallback="eager")
    for _ in range(3):
        fast.value_and_grad(params, 2.0)
    key.number = 2
    _, grads = fast.value_and_grad(params, 2.0)
    assert [g.tolist() for g in grads.values()] == [[2.0, 2.0, 2.0]]


@pytest.mark.parametrize("lift", [True, False])
def test_calls_inside_of_calls_on_one_thread(lift):
    """What runs in between on this thread, such as a finalizer, may call the function, too."""

    def mean(p, tokens):
        return sum(p[t] * p[t] for t in tokens) * (1 / len(tokens))

    params = np.array([1.0, 2.0, 3.0, 4.0])
    fast = chainrule.compile(mean, lift=lift, on_fallback="eager")
    fast.value_and_grad(params, [0, 1, 2, 3])
    fast.value_and_grad(params, [1, 1])
    inner: list[float] = []
    busy = False

    def in_between(phase, info):
        nonlocal busy
        if not busy and phase == "start" and modes.recorder is None:  # nor while it is recorded
            busy = True
            inner.append(fast.value_and_grad(params, [1, 1])[0])
            busy = False

    rng = np.random.default_rng(1)
    threshold = gc.get_threshold()
    gc.callbacks.append(in_between)
    gc.set_threshold(1)
    try:
        for _ in range(200):
            tokens = rng.integers(0, 4, int(rng.integers(2, 6))).tolist()
            value, grads = fast.value_and_grad(params, tokens)
            assert value == pytest.approx(np.mean(params[tokens] ** 2), rel=1e-12)
            wanted = 2 * params * np.bincount(tokens, minlength=4) / len(tokens)
            assert grads == pytest.approx(wanted, rel=1e-12)
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(in_between)
    assert set(inner) == {4.0}


def test_data_beside_functions_of_math_may_be_texts_and_truths():
    def f(x, t, name, flag, nothing, numbers):
        return x * math.sqrt(t) * len(name) * sum(numbers) + (1.0 if flag else 2.0)

    fast = chainrule.compile(f)
    for t in (1.0, 4.0, 9.0, 2.25):
        for name, flag in (("ab", True), ("ab", False), ("a", True)):
            arguments = (0.5, t, name, flag, None, [1.0, 2.0])
            assert fast.value_and_grad(*arguments) == chainrule.value_and_grad(f)(*arguments)
