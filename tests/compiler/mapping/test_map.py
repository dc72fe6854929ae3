"""``map`` and ``map_value_and_grad``: what single calls give, for stacked arguments."""

import math
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

import chainrule
from chainrule import Value, exp, relu, tanh, where
from chainrule.compiler.mapping import checking

THREADS = (1, 2, 3)


def leaves(tree):
    found = []
    chainrule.trees.map_leaves(lambda x: found.append(np.asarray(x, float)), tree, True)
    return found


def close(found, wanted):
    """Two trees of arrays, to rounding."""
    found, wanted = leaves(found), leaves(wanted)
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12 * scale)


def stacked(results):
    """Trees of numbers as one tree of arrays."""
    columns = zip(*[leaves(r) for r in results], strict=True)
    return [np.stack(column) for column in columns]


def check(f, arguments, axes=None, **options):
    """Values and gradients of all samples, and their sums, are those of eager calls.

    With any number of threads, to the last bit the same.
    """
    fast = chainrule.compile(f, on_fallback="raise", **options)
    axes = axes or (None, *[0] * (len(arguments) - 1))
    trees = zip(arguments, axes, strict=True)
    count = next(len(leaves(x)[0]) for x, axis in trees if axis is not None)

    def sample(k):
        return [
            x if axis is None else chainrule.trees.map_leaves(lambda a: a[k], x, True)
            for x, axis in zip(arguments, axes, strict=True)
        ]

    wanted = [chainrule.value_and_grad(f)(*sample(k)) for k in range(count)]
    values, gradients = (stacked([w[j] for w in wanted]) for j in range(2))
    runs = []
    for threads in THREADS:
        found = fast.map_value_and_grad(*arguments, in_axes=axes, threads=threads)
        total = fast.map_value_and_grad(*arguments, in_axes=axes, threads=threads, reduce="sum")
        mean = fast.map_value_and_grad(*arguments, in_axes=axes, threads=threads, reduce="mean")
        close(found, [*values, *gradients])
        close(total, [x.sum(axis=0) for x in (*values, *gradients)])
        close(mean, [x.mean(axis=0) for x in (*values, *gradients)])
        runs.append([x.tobytes() for x in (*leaves(found), *leaves(total), *leaves(mean))])
    assert runs[0] == runs[1] == runs[2]
    return fast


def lane_codes(fast):
    """The machine code for lanes that a function has."""
    structures = fast.dispatch.structures.values()
    return [code for s in structures for v in s.variants for code in v.lanes.values()]


def rng():
    return np.random.default_rng(7)


def asian(p, normals):
    drift = (p["rate"] - p["volatility"] ** 2 * 0.5) / len(normals)
    price, total = p["spot"], 0.0
    for z in normals:
        price = price * exp(drift + p["volatility"] * math.sqrt(1 / len(normals)) * z)
        total = total + price
    return exp(-p["rate"]) * relu(total / len(normals) - 100.0)


MARKET = {"spot": 100.0, "rate": 0.05, "volatility": 0.2}


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 17, 64, 203])
def test_any_number_of_samples_gives_what_single_calls_give(count):
    check(asian, (MARKET, rng().normal(size=(count, 5))))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_samples_go_through_the_lanes_of_one_piece_of_machine_code(dtype):
    fast = chainrule.compile(asian, dtype=dtype)
    normals = rng().normal(size=(1000, 5))
    value, _ = fast.map_value_and_grad(MARKET, normals, reduce="mean")
    (code,) = lane_codes(fast)
    assert code.lanes > 1
    assert f"many samples: {code.lanes} at a time" in fast.report()
    counts = fast.dispatch.counts
    assert (counts.traces, counts.eager) == (1, 0)
    wanted = np.mean([asian(MARKET, z) for z in normals])
    assert value == pytest.approx(wanted, rel=1e-12 if dtype == "float64" else 1e-5)


def test_values_alone_are_those_of_plain_calls():
    fast = chainrule.compile(asian)
    normals = rng().normal(size=(50, 4))
    wanted = np.array([asian(MARKET, z) for z in normals])
    for threads in THREADS:
        np.testing.assert_allclose(fast.map(MARKET, normals, threads=threads), wanted, rtol=1e-12)
    assert fast.map(MARKET, normals, reduce="mean") == pytest.approx(wanted.mean(), rel=1e-12)
    assert len(lane_codes(fast)) == 2


def test_results_in_a_tree_become_a_tree_of_arrays():
    def f(p, x):
        return {"sum": p + x, "both": (p * x, [2.5 * x, 7.0])}

    fast = chainrule.compile(f, on_fallback="raise")
    xs = np.linspace(-1, 1, 20)
    found = fast.map(3.0, xs)
    assert found.keys() == {"sum", "both"}
    np.testing.assert_array_equal(found["sum"], 3.0 + xs)
    np.testing.assert_array_equal(found["both"][0], 3.0 * xs)
    np.testing.assert_array_equal(found["both"][1][0], 2.5 * xs)
    np.testing.assert_array_equal(found["both"][1][1], np.full(20, 7.0))


def test_extras_are_stacked_beside_the_value():
    def f(p, x):
        y = p * x
        return y * y, {"y": y, "x": x}

    fast = chainrule.compile(f, on_fallback="raise")
    xs = np.linspace(-1, 1, 20)
    (values, extras), grads = fast.map_value_and_grad(3.0, xs)
    close([values, extras, grads], [9 * xs**2, {"y": 3 * xs, "x": xs}, 6 * xs**2])
    close(fast.map_value_and_grad(3.0, xs, reduce="sum"), [(9 * xs**2).sum(), (6 * xs**2).sum()])


@pytest.mark.parametrize("lift", [True, False])
def test_arrays_in_a_result_are_stacked(lift):
    def f(w, x):
        y = chainrule.linear(x, w)  # Values
        return np.array(y), {"both": np.array([y, y[::-1]]), "fixed": np.array([1.0, x[0]])}

    fast = chainrule.compile(f, on_fallback="raise", lift=lift)
    w, xs = rng().normal(size=(3, 4)), rng().normal(size=(50, 4))
    y = xs @ w.T
    wanted = (
        y,
        {"both": np.stack([y, y[:, ::-1]], 1), "fixed": np.stack([xs[:, 0] ** 0, xs[:, 0]], 1)},
    )
    for threads in THREADS:
        close(fast.map(w, xs, threads=threads), wanted)
    assert bool(lane_codes(fast)) is lift
    close(fast.map(w, xs[:1]), (y[:1], {key: x[:1] for key, x in wanted[1].items()}))
    with pytest.raises(TypeError, match="returned an array: only numbers are added up"):
        fast.map(w, xs, reduce="sum")


# --- arguments ------------------------------------------------------------------------------------


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Point:
    x: Any
    y: Any


@pytest.mark.parametrize(
    "data",
    [
        {"x": rng().normal(size=(20, 3)), "y": rng().normal(size=20)},
        Pair(rng().normal(size=(20, 3)), rng().normal(size=20)),
        Point(rng().normal(size=(20, 3)), rng().normal(size=20)),
    ],
    ids=["dict", "named tuple", "dataclass"],
)
def test_every_array_of_a_nested_argument_is_stacked(data):
    def f(w, sample):
        x, y = (sample["x"], sample["y"]) if isinstance(sample, dict) else (sample.x, sample.y)
        return (sum(a * b for a, b in zip(w, x, strict=True)) - y) ** 2

    check(f, (np.array([0.3, -0.2, 1.0]), data))


def test_the_first_argument_can_be_stacked_and_others_shared():
    def f(w, x, y):
        return (w[0] * x[0] + w[1] * x[1] - y) ** 2

    r = rng()
    check(f, (r.normal(size=(30, 2)), np.array([0.5, 2.0]), r.normal(size=30)), (0, None, 0))
    check(f, (r.normal(size=(30, 2)), [0.5, 2.0], 0.25), (0, None, None))


def test_another_axis_than_the_first():
    def f(w, x):
        return tanh(sum(a * b for a, b in zip(w, x, strict=True)))

    fast = chainrule.compile(f)
    w, x = np.array([0.3, -0.2, 1.0]), rng().normal(size=(3, 20))
    wanted = np.array([fast(w, x[:, k]) for k in range(20)])
    close(fast.map(w, x, in_axes=(None, 1)), wanted)
    close(fast.map(w, x, in_axes=(None, -1)), fast.map(w, x.T.copy()))


@pytest.mark.parametrize("dtype", ["f4", ">f8", "f2", "i8", "i4", "u1", "?"])
def test_data_of_any_type_of_numbers(dtype):
    def f(w, x):
        return w * x[0] + w * w * x[1]

    check(f, (1.5, (rng().integers(0, 2, size=(11, 2))).astype(dtype)))


def test_rows_that_do_not_lie_in_one_piece():
    def f(w, x):
        return tanh(w * x[0]) + w * x[1]

    x = rng().normal(size=(40, 6))
    check(f, (1.5, x[:, ::3]))
    check(f, (1.5, x[::-2, :2]))
    check(f, (1.5, np.asfortranarray(x)))
    check(f, (1.5, np.broadcast_to(x[0], (40, 6))))


def test_what_samples_share_is_read_afresh_at_every_call():
    def f(w, scale, n, x):
        return tanh(w["a"] * x) * scale[0] + w["b"][n]

    fast = chainrule.compile(f)
    x = rng().normal(size=25)
    for a, scale, n in ((0.5, 2.0, 0), (1.5, 2.0, 0), (1.5, 3.0, 0), (1.5, 3.0, 1)):
        w = {"a": a, "b": np.array([a, 2 * a])}
        wanted = [chainrule.value_and_grad(f)(w, [scale], n, x_k) for x_k in x]
        values, grads = (stacked([one[j] for one in wanted]) for j in range(2))
        axes = (None, None, None, 0)
        close(fast.map_value_and_grad(w, [scale], n, x, in_axes=axes), [*values, *grads])
        close(fast.map(w, [scale], n, x, in_axes=axes), values)
        total = fast.map_value_and_grad(w, [scale], n, x, in_axes=axes, reduce="sum")
        close(total, [one.sum(axis=0) for one in (*values, *grads)])
        batch = fast.batch_value_and_grad(w, [([scale], n, float(x_k)) for x_k in x])
        close(batch, [one.mean(axis=0) for one in (*values, *grads)])
    assert len(lane_codes(fast)) >= 3


# --- integers and branches ------------------------------------------------------------------------


def test_integers_select_in_every_lane():
    def f(p, tokens, weight):
        total = 0.0
        for a, b in pairwise(tokens):
            total = total + p["table"][a] * p["bias"][b] * weight + a * 0.5
        return total

    r = rng()
    params = {"table": r.normal(size=10), "bias": r.normal(size=10)}
    fast = check(f, (params, r.integers(0, 10, size=(53, 6)), r.normal(size=53)))
    assert fast.dispatch.counts.traces == 1


def test_a_stack_of_single_integers():
    def f(w, x, label):
        return (w[label] * x) ** 2 + label

    fast = check(f, (np.arange(1.0, 5.0), rng().normal(size=41), rng().integers(0, 4, size=41)))
    assert fast.dispatch.counts.traces == 1


def test_samples_are_grouped_by_the_branches_they_take():
    def f(w, x):
        y = w * x
        if y > 1:
            return y * y
        if y < -1:
            return tanh(y)
        return y

    fast = check(f, (1.5, rng().normal(size=503)))
    assert fast.dispatch.counts.traces <= 3
    assert fast.dispatch.counts.eager == 0
    assert len(lane_codes(fast)) >= 2


def test_loops_that_end_by_their_numbers():
    def f(w, x):
        y, steps = w * x * x + 0.1, 0
        while y < 1:
            y = tanh(y) + y * w
            steps += 1
        return y * steps + w

    fast = check(f, (1.5, rng().normal(size=203)))
    assert fast.dispatch.counts.traces > 2
    assert fast.dispatch.counts.eager == 0
    assert len(lane_codes(fast)) > 4


def test_integers_that_choose_the_path():
    def f(w, x, kind):
        return w * x if kind == 0 else w * w * x if kind == 1 else tanh(w * x)

    check(f, (1.5, rng().normal(size=100), rng().integers(0, 3, size=100)))


def test_a_lengths_own_path_for_almost_every_sample():
    def f(w, x, n):
        total = w * x
        for _ in range(n):
            total = total * w
        return total

    check(f, (0.9, rng().normal(size=30), np.arange(30) % 12))


def test_more_paths_than_are_worth_machine_code(monkeypatch):
    from chainrule.compiler.mapping import rounds

    def f(w, x, n):
        return w * x * 2.0 ** float(int(n))

    monkeypatch.setattr(rounds, "MOST_KINDS", 3)
    fast = chainrule.compile(f)
    x, n = rng().normal(size=40), np.arange(40) % 8
    close(fast.map_value_and_grad(2.0, x, n), [2.0 * x * 2.0**n, x * 2.0**n])


# --- numbers that are not finite, and errors ------------------------------------------------------


def test_nan_and_infinity_in_the_data_are_those_of_single_calls():
    def f(w, x):
        return tanh(w * x[0]) + where(x[1] > 0, w, 2 * w)

    x = rng().normal(size=(30, 2))
    x[3, 0], x[17, 0], x[29, 1] = math.nan, math.inf, math.nan
    check(f, (1.5, x))


def test_a_first_sample_that_is_not_finite_does_not_keep_the_others_from_machine_code():
    x = rng().normal(size=(30, 2))
    x[0], x[1] = math.nan, math.inf
    fast = check(lambda w, x: w * x[0] + w * w * x[1], (1.5, x))
    assert lane_codes(fast)
    assert not any(isinstance(code, str) for code in lane_codes(fast))


def test_an_integer_for_all_samples_that_is_beyond_64_bits():
    check(lambda w, x, n: w * x + n % 7, (1.5, rng().normal(size=9), 2**70 + 3), (None, 0, None))


def test_a_derivative_that_is_infinite_is_that_of_the_single_call():
    def f(w, x):
        return chainrule.sqrt(w * x)

    x = np.linspace(0.0, 1.0, 21)
    check(f, (1.5, x))


def test_the_first_sample_that_raises_is_the_one_that_is_heard_of():
    def f(w, x):
        return chainrule.log(w * x)

    fast = chainrule.compile(f)
    x = np.linspace(1.0, 2.0, 50)
    x[[12, 40]] = -3.0, -4.0
    for threads in THREADS:
        with pytest.raises(ValueError, match=r"log\(-6\)"):
            fast.map_value_and_grad(2.0, x, threads=threads)
    x[12] = 1.0
    with pytest.raises(ValueError, match=r"log\(-8\)"):
        fast.map(2.0, x)


def test_an_error_of_one_path_comes_in_the_order_of_the_samples():
    def f(w, x):
        if x > 0.5:
            return chainrule.sqrt(w * (x - 1.0))
        return 1.0 / (w * x)

    fast = chainrule.compile(f)
    x = np.full(30, 2.0)
    x[20], x[25] = 0.0, 0.75
    with pytest.raises(ZeroDivisionError):
        fast.map_value_and_grad(2.0, x)
    x[20] = 0.25
    with pytest.raises(ValueError, match="sqrt"):
        fast.map_value_and_grad(2.0, x)


def test_a_function_that_cannot_be_recorded_runs_once_for_each_sample():
    seen = []

    def f(w, x):
        seen.append(float(x))
        return w * x

    fast = chainrule.compile(f, on_fallback="eager")
    values, grads = fast.map_value_and_grad(2.0, np.arange(5.0))
    assert seen[-5:] == [0.0, 1.0, 2.0, 3.0, 4.0]
    close([values, grads], [2 * np.arange(5.0), np.arange(5.0)])


def test_captured_state_is_fresh_at_every_map():
    scale = [2.0]

    def f(w, x):
        return w * x * scale[0]

    fast = chainrule.compile(f)
    x = np.arange(1.0, 20.0)
    close(fast.map(3.0, x), 6.0 * x)
    scale[0] = 5.0
    close(fast.map(3.0, x), 15.0 * x)


def test_values_that_a_function_reaches_by_itself_are_read_afresh():
    bias = Value(1.0)

    def f(w, x):
        return w * x + bias

    fast = chainrule.compile(f, on_fallback="eager")
    x = np.arange(1.0, 5.0)
    close(fast.map(2.0, x), 2 * x + 1)
    bias.data = 3.0
    close(fast.map(2.0, x), 2 * x + 3)


def test_no_structure_at_all_still_runs_in_lanes():
    def f(w, x):
        y = w * x
        for k in range(40):
            y = [tanh, chainrule.sin, chainrule.cos, relu][(k * k // 3) % 4](y + 0.1 * k) * 1.01**k
        return y

    fast = check(f, (1.5, rng().normal(size=33)))
    assert lane_codes(fast)
    assert not any(isinstance(code, str) for code in lane_codes(fast))


@pytest.mark.parametrize("reduce", [None, "sum"])
def test_machine_code_that_differs_from_the_tape_is_not_used(reduce, monkeypatch):
    computed = checking._computed

    def wrong(*given):
        found = computed(*given)
        found[-1] += 1e-6
        return found

    monkeypatch.setattr(checking, "_computed", wrong)
    fast = chainrule.compile(lambda w, x: tanh(w * x))
    x = np.linspace(-1, 1, 20)
    values, grads = fast.map_value_and_grad(0.5, x, reduce=reduce)
    y = np.tanh(0.5 * x)
    close([values, grads], [y, (1 - y**2) * x] if reduce is None else [0.0, ((1 - y**2) * x).sum()])
    assert "many samples: one by one: its result differs" in fast.report()


def test_many_parameters_are_shared_by_the_lanes():
    def f(w, x):
        return tanh(sum(a * b for a, b in zip(w, x, strict=True)))

    r = rng()
    fast = check(f, (r.normal(size=100), r.normal(size=(37, 100))))
    assert {code.has_own_parameters for code in lane_codes(fast)} == {True, False}


# --- what a user gets wrong -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((1.0,), {}, ValueError, "no argument is stacked"),
        ((), {}, ValueError, "no argument is stacked"),
        ((1.0, [1.0, 2.0]), {}, TypeError, r"argument 1\[0\] is a float, not an array"),
        ((1.0, 3), {}, TypeError, "argument 1 is a int, not an array"),
        ((1.0, "abc"), {}, TypeError, "argument 1 is a str, not an array"),
        ((1.0, np.zeros(0)), {}, ValueError, "no samples: argument 1 is empty"),
        ((1.0, np.array(3.0)), {}, ValueError, "argument 1 has 0 axes"),
        ((1.0, np.zeros(3)), {"in_axes": (None, 1)}, ValueError, "has 1 axes, so that none is"),
        ((1.0, np.array(["a", "b"])), {}, TypeError, "an array of <U1, not of numbers"),
        ((1.0, np.array(["a", None])), {}, TypeError, "an array of objects, not of numbers"),
        ((1.0, np.zeros(3, complex)), {}, TypeError, "an array of complex128"),
        ((1.0, np.ma.masked_array([1.0, 2.0], [0, 1])), {}, TypeError, "a masked array"),
        (
            (1.0, {"a": np.zeros(3), "b": np.zeros(4)}),
            {},
            ValueError,
            r"argument 1\['a'\] holds 3 samples and argument 1\['b'\] holds 4",
        ),
        ((1.0, np.zeros(3)), {"in_axes": (None,)}, ValueError, "1 entries for 2 arguments"),
        ((1.0, np.zeros(3)), {"in_axes": "ab"}, TypeError, "an axis or None for each"),
        ((1.0, np.zeros(3)), {"in_axes": (None, 0.5)}, TypeError, "an axis or None for each"),
        ((1.0, np.zeros(3)), {"reduce": "max"}, ValueError, "reduce is"),
        ((1.0, np.zeros(3)), {"threads": 0}, ValueError, "threads is a whole number"),
        ((1.0, np.zeros(3)), {"threads": 1.5}, TypeError, "threads is a whole number"),
        ((Value(1.0), np.zeros(3)), {}, TypeError, "an argument holds Values"),
        ((1.0, np.array([Value(1.0)])), {}, TypeError, "an argument holds Values"),
    ],
)
@pytest.mark.parametrize("method", ["map", "map_value_and_grad"])
def test_a_wrong_argument_is_named_in_one_line(method, arguments, options, error, message):
    fast = chainrule.compile(lambda w, x: w * x)
    with pytest.raises(error, match=message) as caught:
        getattr(fast, method)(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert fast.dispatch.counts.calls == 0


def test_the_environment_says_how_many_threads(monkeypatch):
    from chainrule.compiler.mapping.blocks import thread_count

    monkeypatch.setenv("CHAINRULE_THREADS", "3")
    assert (thread_count(None), thread_count(2)) == (3, 2)
    monkeypatch.setenv("CHAINRULE_THREADS", "many")
    with pytest.raises(ValueError, match="CHAINRULE_THREADS is a whole number above 0"):
        chainrule.compile(asian).map(MARKET, np.zeros((3, 2)))
    command = [sys.executable, "-c", "import chainrule; chainrule.compile"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "ImportError: CHAINRULE_THREADS is a whole number above 0, not 'many'" in result.stderr
    monkeypatch.delenv("CHAINRULE_THREADS")
    assert thread_count(None) >= 1


def test_results_that_do_not_stack_say_so():
    named = chainrule.compile(lambda w, x: {"y": w * x, "name": "abc"})
    with pytest.raises(TypeError, match="returned a str: map stacks numbers only"):
        named.map(1.0, np.zeros(3))

    def greedy(w, x):
        return w * x, [1.0] * (2 if x > 0 else 7)

    found = (
        r"greedy returned \(number, \[number, number\]\) for one .* \(number, \[7 numbers\]\) for"
    )
    with pytest.raises(TypeError, match=found):
        chainrule.compile(greedy).map(1.0, np.array([1.0, -1.0]))
    several = chainrule.compile(lambda w, x: w * x if x > 0 else [w * x, 1.0])
    with pytest.raises(TypeError, match="map stacks results of one structure"):
        several.map(1.0, np.array([1.0, -1.0, 1.0]))


def test_inside_another_derivative_map_says_that_it_gives_numbers():
    fast = chainrule.compile(lambda w, x: w * x)

    def outer(v):
        return v * fast.map(2.0, np.arange(3.0), reduce="sum")

    with pytest.raises(TypeError, match="cannot be differentiated again"):
        chainrule.grad(outer)(1.0)


def test_memory_does_not_grow_with_the_number_of_samples():
    import tracemalloc

    fast = chainrule.compile(asian)
    most = []
    for count in (20_000, 200_000):
        normals = np.broadcast_to(rng().normal(size=(1, 5)), (count, 5))
        fast.map_value_and_grad(MARKET, normals, reduce="mean", threads=2)
        tracemalloc.start()
        fast.map_value_and_grad(MARKET, normals, reduce="mean", threads=2)
        most.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert most[1] < most[0] + 3_000_000


def test_many_parameters_are_not_copied_for_values_alone():
    fast = chainrule.compile(lambda w, x: chainrule.linear(x, w), lift=True)
    w, xs = rng().normal(size=(20, 10)), rng().normal(size=(9, 10))
    close(fast.map(w, xs), list((xs @ w.T).T))
    (code,) = lane_codes(fast)
    assert not code.has_own_parameters
    assert len(code.private) == 10
    report = fast.report()
    assert report.startswith("<lambda>: lifted")
    assert "single calls on the tape until machine code pays" in report
    assert "Σ_j w[i,j]·x[j]" in fast.report(stage="lifted")
    fast(w, xs[0])
    assert "lifted to" in fast.report()


def test_a_map_like_an_earlier_one_is_prepared_and_sees_all_that_changed():
    def f(p, x, y):
        return GAIN[0] * math.sin(y) * exp(p["a"][0]) * x[0] + p["b"] * (
            x[1] if x[1] > -2.0 else 0.0
        )

    def wanted(p, xs, ys):
        pairs = [chainrule.value_and_grad(f)(p, x, float(y)) for x, y in zip(xs, ys, strict=True)]
        value = sum(v for v, _ in pairs)
        return [value, {name: sum(g[name] for _, g in pairs) for name in p}]

    GAIN = [2.0]
    fast = chainrule.compile(f, lift=True)
    random = rng()

    def compare(p, xs, ys):
        close(fast.map_value_and_grad(p, xs, ys, reduce="sum"), wanted(p, xs, ys))

    xs, ys = random.normal(size=(20, 2)), random.normal(size=20)
    for count in (20, 17, 16, 20):  # fewer are calls
        p = {"a": random.normal(size=3), "b": float(random.normal())}
        compare(p, random.uniform(-1.0, 1.0, size=(count, 2)), random.normal(size=count))
    assert (chainrule.engine != "native") or len(fast.dispatch.prepared) == 1
    compare({"a": np.ones(3), "b": 2}, xs, ys)  # an integer
    compare({"a": np.ones(4), "b": 2.0}, xs, ys)  # another shape
    compare({"b": 2.0, "a": np.ones(3)}, xs, ys)  # another order
    compare({"a": np.ones(3, np.float32), "b": 2.0}, xs, ys)
    compare({"a": np.ones(3), "b": 2.0}, xs[:, ::-1], ys)  # rows that do not lie in one piece
    compare({"a": np.ones(3), "b": 2.0}, xs - 3.0 * (xs > 0.5), ys)  # some go another way
    GAIN[0] = 3.0  # what the function reaches by itself
    compare({"a": np.ones(3), "b": 2.0}, xs, ys)
    with pytest.raises(ValueError, match="20 samples and argument 2 holds 19"):
        fast.map_value_and_grad({"a": np.ones(3), "b": 2.0}, xs, ys[:19], reduce="sum")
    with pytest.raises(TypeError, match="holds Values"):
        fast.map_value_and_grad({"a": np.ones(3), "b": Value(2.0)}, xs, ys, reduce="sum")
    ys[3] = math.inf  # math.sin raises
    with pytest.raises(ValueError, match=r"math domain error|expected a"):
        fast.map_value_and_grad({"a": np.ones(3), "b": 2.0}, xs, ys, reduce="sum")


def test_a_prepared_map_gives_the_bits_of_the_first():
    fast = chainrule.compile(lambda p, x: exp(p[0]) * tanh(p[1] * x[0]) + x[1], lift=True)
    p, xs = np.array([0.3, -0.7]), rng().normal(size=(37, 2))
    for options in ({"reduce": "sum"}, {"reduce": "mean"}, {}):
        for method in (fast.map, fast.map_value_and_grad):
            runs = [leaves(method(p, xs, threads=t, **options)) for t in (1, 1, 2)]
            assert len({tuple(x.tobytes() for x in run) for run in runs}) == 1
    kept = fast.map(p, xs)
    before = kept.copy()
    fast.map(p, xs + 1.0)
    assert (kept == before).all()


@pytest.mark.parametrize("lift", [None, True])
def test_where_of_plain_numbers_is_a_number(lift):
    """Of conditions on data, on parameters and on integers; nothing of it runs eagerly."""

    def on_data(w, x, k):
        return where(x > 0, x, 2.0)

    def on_parameters(w, x, k):
        return where(w * x != 1.5, 1.0, x)

    def on_integers(w, x, k):
        return where(k > 1, 3, x)

    def beside_values(w, x, k):
        return w * where(w > x, x, 2) + where(x < k, 1.0, x)

    xs, ks = np.linspace(-2.0, 2.0, 600), np.arange(600) % 4
    for f in (on_data, on_parameters, on_integers, beside_values):
        fast = chainrule.compile(f, on_fallback="raise", lift=lift)
        wanted = [f(1.5, x, k) for x, k in zip(xs.tolist(), ks.tolist(), strict=True)]
        np.testing.assert_allclose(fast.map(1.5, xs, ks), wanted, rtol=1e-15)
        for x, k, y in zip(xs[::60].tolist(), ks[::60].tolist(), wanted[::60], strict=True):
            assert repr(fast(1.5, x, k)) == repr(y)


def test_where_of_numbers_refuses_what_eager_refuses():
    fast = chainrule.compile(lambda w, x: where(w > x, x, "text"))
    for _ in range(3):
        with pytest.raises(TypeError, match="operand of where must be a real number"):
            fast(1.0, 2.0)


def test_sums_with_a_product_whose_terms_come_again():
    """A product and few terms are added in one loop; in reverse, terms and factors share places."""

    def f(p, x):
        first = [p[0] + p[1] * y for y in x]
        last = p[2]
        total = 0.0
        for y in first:
            last = last * chainrule.exp(y)
            total = total + last
        return total + last * first[0] + first[1]

    rng = np.random.default_rng(0)
    p, rows = np.array([-0.1, 0.2, 1.5]), rng.normal(size=(50, 6))
    values, slopes = chainrule.compile(f, lift=True).map_value_and_grad(p, rows)
    for row, value, slope in zip(rows, values, slopes, strict=True):
        wanted, gradient = chainrule.value_and_grad(f)(p, row)
        np.testing.assert_allclose(value, wanted, rtol=1e-13)
        np.testing.assert_allclose(slope, gradient, rtol=1e-12)


def test_a_first_argument_that_is_no_plain_tree_is_named():
    fast = chainrule.compile(lambda p, x: p["w"][0] * x + p["w"][1], on_fallback="eager")
    params = OrderedDict(w=np.array([0.5, 2.0]))
    assert fast.map(params, np.array([1.0, 3.0])).tolist() == [2.5, 3.5]
    for options in ({}, {"reduce": "mean"}):
        with pytest.raises(TypeError, match="the first argument is a OrderedDict"):
            fast.map_value_and_grad(params, np.array([1.0, 3.0]), **options)


def test_a_batch_differentiates_by_an_ordered_dict():
    fast = chainrule.compile(lambda p, x: p["w"][0] * x + p["w"][1], on_fallback="eager")
    params, samples = OrderedDict(w=np.array([0.5, 2.0])), [(float(k),) for k in range(200)]
    for some in (samples[:3], samples):
        value, gradient = fast.batch_value_and_grad(params, some)
        mean = sum(x for (x,) in some) / len(some)
        assert value == pytest.approx(0.5 * mean + 2.0)
        assert gradient["w"] == pytest.approx([mean, 1.0])
