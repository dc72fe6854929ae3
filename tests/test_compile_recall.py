"""Calls that are known again: answered from machine code only while everything is as it was.

Every call is compared with the function on the tape, which knows nothing again.
"""

import gc
import sys
import threading
import weakref
from collections import OrderedDict
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from programs import count

import chainrule
from chainrule import exp, log

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
        answers: list[Any] = []
        recall = self.fast._recall
        if recall is not None:
            answer = recall.answer
            recall.answer = lambda x: answers.append(answer(x)) or answers[-1]
        try:
            value, gradient = self.fast.value_and_grad(*arguments)
        finally:
            if recall is not None:
                del recall.answer
        wanted_value, wanted = self.tape.value_and_grad(*arguments)
        assert type(value) is type(wanted_value) is float
        np.testing.assert_allclose(value, wanted_value, rtol=self.limit, atol=self.limit)
        assert shape_of(gradient) == shape_of(wanted)
        for a, b in zip(leaves(gradient), leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=self.limit, atol=self.limit)
        if known is not None:
            assert any(x is not None for x in answers) is known
        return value, gradient


@pytest.fixture(params=["float64", "float32"])
def pair(request):
    pair = Pair(dtype=request.param)
    pair(parameters(), [4, 0, 2, 1, 3, 3, 2])
    return pair


IDS = [4, 0, 2, 1, 3, 3, 2]


def test_the_same_arrays_with_other_numbers_are_known(pair):
    params = parameters()
    pair(params, IDS, known=False)
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


def test_another_dict_with_the_same_arrays_is_another(pair):
    params = parameters()
    pair(params, IDS)
    pair(dict(params), IDS, known=False)


def test_another_array_in_the_dict_is_seen(pair):
    params = parameters()
    pair(params, IDS)
    params["b"] = params["b"] + 1.0
    pair(params, IDS, known=False)


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
    for _ in range(3):
        params["more"] = more
        _, gradient = pair(params, IDS, known=False)
        assert gradient["more"].tolist() == [0.0, 0.0]
        pair(params, IDS, known=True)
        del params["more"]
        pair(params, IDS, known=False)
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
    for shape in [(3, 4), (4, 3)] * 3:
        params["x"].shape = shape
        _, gradient = pair(params, [0, 1], known=False)
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
    pair(params, [0, 2, 1], known=type(params) is not Two)


def test_a_list_of_parameters_that_changes_is_seen():
    def f(params, tokens):
        return sum(exp(row[t]) for t in tokens for row in params)

    pair = Pair(f)
    params = [np.ones(3), np.zeros(3)]
    pair(params, [0, 1])
    pair(params, [0, 1], known=True)
    params.reverse()
    params[0][1] = 2.0
    pair(params, [0, 1], known=False)
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
    assert fast._recall is None or fast._recall.answer((params, [0, other, 2])) is None


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


# --- surroundings ---------------------------------------------------------------------------------


def double(x, factor=1.0):
    return x * factor * 2.0


def half(x, factor=1.0):
    return x * factor * 0.5


def test_surroundings_that_change_are_seen(pair, monkeypatch):
    params = parameters()

    def step():
        pair(params, IDS, known=False)
        pair(params, IDS, known=True)

    step()
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
    assert failures == []


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
    watched = [params, *params.values(), pair.fast._recall, IDS]
    counts, blocks = [sys.getrefcount(x) for x in watched], sys.getallocatedblocks()
    run(calls := count(ci=3000, soak=100_000))
    gc.collect()
    assert [sys.getrefcount(x) for x in watched] == counts
    assert abs(sys.getallocatedblocks() - blocks) < calls / 100


def test_parameters_go_when_others_take_their_place(pair):
    params = parameters()
    pair(params, IDS)
    pair(params, IDS, known=True)
    gone = [weakref.ref(a) for a in params.values()]
    pair.fast.value_and_grad(parameters(1), IDS)
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
    gone = [weakref.ref(x) for x in (fast, params["W"], fast._recall)]
    del fast, params
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
