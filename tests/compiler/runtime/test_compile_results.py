"""Results of every kind, and what functions do with Values and their graphs."""

import math
from collections import namedtuple

import numpy as np
import pytest
from compile_twins import (
    BOTH_SIDES,
    Box,
    P,
    by_numbers,
    graded,
    numbers,
    same,
)

import chainrule
from chainrule import Value, nonfinite, vsum, where
from chainrule.compiler.runtime.ledger import allowance


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: x,
        lambda x, y: y,
        lambda x, y: Value(3.0),
        lambda x, y: x * 0 + 3.0,
        lambda x, y: +x,
        lambda x, y: Value(x.data),
        lambda x, y: x * 1 if x > 0 else y,
        lambda x, y: x if x > 0 else Value(7.0),
    ],
)
def test_a_parameter_or_a_constant_may_be_the_result(f):
    same(by_numbers(f, *BOTH_SIDES))


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: 3.0,
        lambda x, y: 3,
        lambda x, y: None,
        lambda x, y: "text",
        lambda x, y: x.data,
        lambda x, y: x.data * 2 + y.data,
        lambda x, y: x > y,
        lambda x, y: 0.0 if x > 0 else x.data,
        lambda x, y: x * 2 if x > 0 else 0.0,
        lambda x, y: x * 2 if x > 0 else None,
        lambda x, y: [],
        lambda x, y: (),
        lambda x, y: {},
        lambda x, y: (x.data, y.data),
        lambda x, y: (x * 2, None),
        lambda x, y: (x * 2, "text", 3),
        lambda x, y: (x * 2, {"a": y.data, "b": [x.data]}),
        lambda x, y: [y.data, x.data][int(x > y)],
        lambda x, y: (None, x * 2),
    ],
)
def test_results_of_every_kind_are_eagers(f):
    same(by_numbers(f, *BOTH_SIDES))


Pair = namedtuple("Pair", "weight factor")


@pytest.mark.parametrize(
    "f",
    [
        lambda x, y: (x * 2, y * 3),
        lambda x, y: [x * 2, y * 3],
        lambda x, y: {"a": x * 2, "b": y * 3},
        lambda x, y: (x * 2, y * 3, x * y),
        lambda x, y: (x * 2, [y * 3, x.data]),
        lambda x, y: (x * 2, x > y, y * 3),
        lambda x, y: Pair(x * 2, y.data),
        lambda x, y: np.array([x * 2, y * 3]),
    ],
)
def test_two_outputs_have_eagers_numbers(f):
    def script(compile):
        fast = compile(f)
        x, y = numbers(1.0, 2.0)
        for x.data, y.data in BOTH_SIDES:
            result = fast(x, y)
            parts = result.values() if isinstance(result, dict) else result
            flat = [part for item in parts for part in (item if type(item) is list else [item])]
            yield (
                type(result).__name__,
                [part.data if isinstance(part, Value) else part for part in flat],
            )

    same(script)


def test_stand_ins_hidden_in_a_result_do_not_escape():
    def boxed(x, y):
        return x * y, Box(number=x.data, larger=x > y)

    def frozen(x, y):
        return x * y, frozenset([x > y])

    def listed(x, y):
        return x * y, type("Mine", (list,), {})([x.data])

    def generated(x, y):
        return x * y, (v.data for v in (x, y))

    def array(x, y):
        return x * y, np.array([x.data, y.data])

    def called(x, y):
        return x * y, lambda: x.data

    def read(extras):
        if isinstance(extras, Box):
            return extras.number, extras.larger
        if callable(extras):
            return extras()
        return list(extras)

    def script(compile):
        fast = [compile(f) for f in (boxed, frozen, listed, generated, array, called)]
        x, y = numbers(1.0, 2.0)
        for x.data, y.data in BOTH_SIDES[:4]:
            for f in fast:
                loss, extras = f(x, y)
                yield graded(loss, x, y), read(extras)

    same(script)


def test_results_may_be_changed_by_the_caller():
    def script(compile):
        fast = compile(lambda x: (x * 2, {"history": [x.data], "names": ["a", "b"]}))
        x = Value(1.0)
        for x.data in (1.0, 2.0, 3.0):
            loss, extras = fast(x)
            yield loss, extras
            extras["history"].append(7.0)
            extras["names"].clear()
            extras["more"] = 1

    same(script)


def test_a_generator_function_gives_a_fresh_generator_each_time():
    def f(x):
        yield x * 2
        yield x * 3

    def script(compile):
        fast = compile(f)
        x = Value(1.0)
        for x.data in (1.0, 2.0, 3.0):
            yield list(fast(x))

    same(script)


def test_a_parameter_used_zero_times_has_gradient_zero():
    def script(compile):
        fast = compile(lambda p, t: p["a"] * t)
        p = {"a": Value(2.0), "unused": Value(3.0)}
        for t in (1, 2):
            yield graded(fast(p, t), *p.values())
        yield fast.value_and_grad({"a": 2.0, "unused": np.ones((2, 2))}, 3)

    assert same(script).eager == 0


@pytest.mark.parametrize("empty", [[], (), {}, np.zeros(0), np.zeros((0, 3)), np.zeros((3, 0))])
def test_inputs_of_length_zero(empty):
    def f(p, xs):
        rows = xs.values() if isinstance(xs, dict) else xs
        return p * (2 + len(xs)) + vsum(
            vsum(r) if isinstance(r, (list, np.ndarray)) else r for r in rows
        )

    def script(compile):
        fast = compile(f)
        for p in (1.0, 2.0):
            yield fast.value_and_grad(p, empty)
            yield fast.value_and_grad(p, empty.tolist() if isinstance(empty, np.ndarray) else empty)

    assert same(script).eager == 0


def test_no_tokens_at_all():
    def f(params, tokens):
        losses = [params[t] * params[t] for t in tokens]
        return sum(losses) / max(1, len(losses)) + params[0]

    def script(compile):
        fast = compile(f)
        params = np.array(P)
        for tokens in ([], [1], [], [2, 3], [5], []):
            yield fast.value_and_grad(params, tokens)

    assert same(script).eager == 0


def test_a_custom_operation_is_refused_and_right():
    def product(a, b):
        return Value(a.data * b.data, (a, b), (b.data, a.data), op="product")

    ran = same(by_numbers(lambda x, y: product(x, y) + 1, (0.0, 0.0), *BOTH_SIDES))
    assert ran.replayed == 0


def test_a_custom_operation_of_plain_numbers_is_refused_and_right():
    def constant(a):
        return Value(5.0, (a,), (7.0,), op="constant")

    ran = same(by_numbers(lambda x, y: constant(x) * y, *BOTH_SIDES))
    assert ran.replayed == 0
    assert "custom operation 'constant'" in ran.reasons


def test_copies_made_inside_are_not_frozen():
    import copy
    import pickle

    def copied(x, y):
        return copy.copy(x) * y

    def deep(x, y):
        return copy.deepcopy(x) * y

    def pickled(x, y):
        return pickle.loads(pickle.dumps(x)) * y

    def of_a_graph(x, y):
        return copy.deepcopy(x * y + 1) * y

    for f in (copied, deep, pickled, of_a_graph):
        same(by_numbers(f, *BOTH_SIDES))


def test_the_graph_looked_at_from_inside_is_not_frozen():
    def children(x, y):
        z = x * y + 2
        return z.children[0] * len(z.children) + z.children[1]

    def order(x, y):
        return x * len(chainrule.topological_order(x * y + x))

    def symbols(x, y):
        return x * len((x * y).op)

    def differentiated(x, y):
        return chainrule.gradients((x * x * y), x, create_graph=True) * y

    def derivative(x, y):
        return chainrule.grad(lambda v: v * v * y)(x) * y

    for f in (children, order, symbols, differentiated, derivative):
        same(by_numbers(f, *BOTH_SIDES))


def test_values_made_inside_are_new_each_time():
    def script(compile):
        fast = compile(lambda x: Value(3.0) * x + Value(x.data, label="copy") * Value(2))
        x = Value(1.0)
        for x.data in (1.0, 2.0, 3.0):
            yield graded(fast(x), x)

    assert same(script).eager == 0


class Special(Value):
    def shifted(self):
        return self + 1


def test_subclasses_of_value_are_values():
    def script(compile):
        fast = compile(lambda x, y: x.shifted() * y + Special(2.0).shifted())
        x, y = Special(1.0), Value(2.0)
        for x.data in (1.0, -2.0):
            yield graded(fast(x, y), x, y)

    same(script)


def test_object_arrays_inside_the_function():
    def f(x, y):
        a = np.array([[x, y], [y, x * 2]])
        b = a @ a.T + np.eye(2)
        return (b * a).sum() + np.trace(b) + a.mean() + np.exp(a[0]).sum()

    same(by_numbers(f, *BOTH_SIDES))


def test_recursion_inside_the_function():
    def power(x, n):
        if n == 0:
            return Value(1.0)
        half = power(x, n // 2)
        return half * half * x if n % 2 else half * half

    def script(compile):
        fast = compile(power)
        x = Value(1.5)
        for n in (0, 1, 5, 8, 5):
            yield graded(fast(x, n), x)

    same(script)


def test_a_recursive_compiled_function():
    def script(compile):
        def factorial(x, n):
            return x if n <= 1 else fast(x, n - 1) * n * x

        fast = compile(factorial)
        x = Value(1.5)
        for n in (1, 4, 3, 4):
            yield graded(fast(x, n), x)

    same(script)


def test_the_zero_gradient_rule_holds():
    def f(x, y):
        with nonfinite("allow"):
            return where(x > 0, y, (x * 0).log() * y) + (x * 0) * y

    same(by_numbers(f, (1.0, 2.0), (-1.0, 2.0), (0.0, 2.0), (1.0, 0.0), (2.0, 3.0)))


NUMPYS = {
    "an item": lambda x: x[0] * 2.0,
    "a list": lambda x: [x[0], x[1] * 2.0, 3.0],
    "a sum": lambda x: x.sum(),
    "a sum by Python": lambda x: sum(x),
    "a pair": lambda x: (x[0], 2.0),
    "a dict": lambda x: {"a": x[0] * x[1], "b": float(x[0])},
    "the largest": lambda x: max(x),
    "a function of chainrule's": lambda x: chainrule.tanh(x[0]),
    "nothing computed": lambda x: 1.5 * 2.0,
}


def types_in(x):
    if isinstance(x, dict):
        return {key: types_in(item) for key, item in x.items()}
    return type(x)(map(types_in, x)) if isinstance(x, (list, tuple)) else type(x)


@pytest.mark.parametrize("name", NUMPYS)
@pytest.mark.parametrize("lift", [None, True, False])
def test_plain_calls_return_the_types_that_eager_calls_do(name, lift):
    f, x = NUMPYS[name], np.array([0.5, 2.0])
    fast = chainrule.compile(f, lift=lift)
    for _ in range(4):
        assert types_in(fast(x)) == types_in(f(x))
        assert fast(x) == f(x)


@pytest.mark.parametrize("truth", [True, np.True_], ids=["python", "numpy"])
@pytest.mark.parametrize("f", [lambda p, x: x, lambda p, x: (x, p[0])], ids=["alone", "extras"])
def test_a_truth_that_was_passed_is_no_result_to_differentiate(f, truth, monkeypatch):
    monkeypatch.setattr(allowance, "left", math.inf)
    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(4):
        with pytest.raises(TypeError, match="that returns one Value"):
            fast.value_and_grad([1.0], truth)
        with pytest.raises(TypeError, match="that returns one Value"):
            fast.evaluator([1.0], [(truth,), (truth,)])()


def test_extras_have_the_types_that_eager_calls_give_them():
    def f(p, x):
        return p * x[0], {"n": x[1] * 2.0, "m": 3.0, "v": p * 2.0}

    fast, x = chainrule.compile(f), np.array([0.5, 2.0])
    wanted = chainrule.value_and_grad(f, has_aux=True)(2.0, x)
    for _ in range(4):
        (value, extras), gradient = fast.value_and_grad(2.0, x)
        assert (value, gradient) == (1.0, 0.5)
        assert types_in(extras) == types_in(wanted[0][1])


def test_a_mean_of_calls_with_extras_of_numpys_is_one_of_their_values():
    def f(p, x):
        return p[0] * x[0] + p[1] ** 2, {"n": x[1] * 2.0}

    fast, p = chainrule.compile(f), np.array([1.0, 2.0])
    samples = [(np.array([k, 2.0]),) for k in np.arange(6.0)]
    for x in samples * 20:
        fast.value_and_grad(p, *x)
    value, gradient = fast.batch_value_and_grad(p, samples)
    assert value == pytest.approx(2.5 + 4.0)
    assert gradient == pytest.approx([2.5, 4.0])


Pair = namedtuple("Pair", "a b")

EXTRAS = {
    "an array of Values": lambda p, x: (p[0] * x, {"scores": p * x}),
    "a named tuple": lambda p, x: (p[0] * x, Pair(p[0] * x, 2.0)),
    "a list of both": lambda p, x: (p[0] * x, [p * x, p[1] * 2.0, x]),
}


@pytest.mark.parametrize("name", EXTRAS)
@pytest.mark.parametrize("lift", [None, True, False])
def test_extras_of_calls_that_run_eagerly_are_numbers_as_in_eager_mode(name, lift):
    f, p = EXTRAS[name], np.array([1.0, 2.0])
    fast = chainrule.compile(f, lift=lift, on_fallback="eager")
    (wanted, extras), slopes = chainrule.value_and_grad(f, has_aux=True)(p, 3.0)
    for _ in range(4):
        (value, found), gradient = fast.value_and_grad(p, 3.0)
        assert repr(found) == repr(extras)
        assert (value, gradient.tolist()) == (wanted, slopes.tolist())
