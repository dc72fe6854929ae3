"""Functions that return numbers, one or many: on the tape, in machine code and on the fast path."""

import itertools
import math

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import Value
from chainrule.compiler.runtime.variants import Path


def outer(x, y):
    return [[a * b + 0.5 for b in y] for a in x]


def moments(x):
    mean = sum(x) / len(x)
    return {"mean": mean, "rest": (sum((a - mean) ** 2 for a in x), max(x), 1.5)}


def filtered(x, k):
    level, levels = x[0], []
    for a in x:
        level = level + 0.1 * (a - level) * k
        levels.append(level)
    return levels


def rosenbrock(x):
    return sum(100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2 for a, b in itertools.pairwise(x))


def looked_up(table, tokens):
    return [table[t] * table[t] for t in tokens]


X = [0.1 * k - 0.7 for k in range(17)]
PROGRAMS = {
    "nested lists": (outer, (X, X[:9])),
    "a dict of tuples": (moments, (X,)),
    "a list along a loop": (filtered, (X, 0.25)),
    "one number": (rosenbrock, (X,)),
    "a gradient": (chainrule.grad(rosenbrock), (X,)),
    "a value and a gradient": (chainrule.value_and_grad(rosenbrock), (X,)),
    "what integers select": (looked_up, (X, [3, 0, 16, 3, -1])),
}


def shifted(arguments, by):
    def shift(x):
        if isinstance(x, list):
            return [shift(item) for item in x]
        return x + by if isinstance(x, float) else x

    return tuple(map(shift, arguments))


def flat(tree):
    if isinstance(tree, dict):
        return [part for key, item in tree.items() for part in (key, *flat(item))]
    if isinstance(tree, (list, tuple)):
        return [type(tree).__name__, *[part for item in tree for part in flat(item)]]
    return [tree]


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_come_back_as_the_function_returns_them(name, lift):
    f, arguments = PROGRAMS[name]
    fast = chainrule.compile(f, lift=lift, on_fallback="raise")
    for by in (0.0, 0.01, -0.02, 0.5):
        given = shifted(arguments, by)
        found, wanted = flat(fast(*given)), flat(f(*given))
        assert [type(x) for x in found] == [type(x) for x in wanted]
        for a, b in zip(found, wanted, strict=True):
            assert a == (pytest.approx(b, rel=1e-11, abs=1e-12) if isinstance(b, float) else b)
    assert fast.dispatch.last is (Path.MACHINE if lift else Path.TAPE)
    assert bool(View(fast).fast_path.plans) is (chainrule.engine == "native")


def test_no_gradient_is_computed_where_none_is_wanted():
    fast = chainrule.compile(rosenbrock, lift=True)
    fast(X)
    assert not View(fast).variant.machine.differentiates
    fast.value_and_grad(X)
    assert View(fast).latest.machine.differentiates
    (value, slopes), (wanted, wanted_slopes) = (
        fast.value_and_grad(X),
        chainrule.value_and_grad(rosenbrock)(X),
    )
    assert [value, *slopes] == pytest.approx([wanted, *wanted_slopes])
    assert fast(X) == pytest.approx(rosenbrock(X))


def test_lists_of_any_length_share_machine_code():
    table = [0.3 * k - 2.0 for k in range(12)]
    fast = chainrule.compile(looked_up, lift=True, on_fallback="raise")
    for n in (9, 7, 4, 9, 5):
        tokens = [(5 * k + n) % 12 for k in range(n)]
        assert fast(table, tokens) == pytest.approx(looked_up(table, tokens))
        assert fast.dispatch.last is Path.MACHINE
    assert len({id(v.machine) for v in View(fast).variants}) == 1


def test_branches_and_undefined_values_are_the_functions_own():
    def f(x):
        return [a if a > 0.5 else -a for a in x] + [math.log(x[0])]

    fast = chainrule.compile(f, lift=True)
    for x in ([1.0, 0.25], [1.0, 0.75], [0.5, 0.5], [2.0, 3.0]):
        assert fast(x) == pytest.approx(f(x))
    with pytest.raises(ValueError, match=r"math domain error|expected a"):
        f([0.0, 1.0])
    with pytest.raises(ValueError, match=r"math domain error|expected a"):
        fast([0.0, 1.0])


def test_a_list_that_is_returned_is_a_new_one_each_time():
    fast = chainrule.compile(outer, lift=True)
    for _ in range(3):
        first = fast([1.0, 2.0], [3.0])
        second = fast([1.0, 2.0], [3.0])
        assert first == second == [[3.5], [6.5]]
        assert first is not second
        assert first[0] is not second[0]
        first[0][0] = 99.0


def test_what_is_not_finite_comes_back_so():
    fast = chainrule.compile(lambda x: [x * 2.0, x + 1.0], lift=True)
    for x in (1.0, 2.0, math.inf, -math.inf):
        assert fast(x) == [x * 2.0, x + 1.0]
    found = fast(math.nan)
    assert all(map(math.isnan, found))


def test_several_values_still_run_eagerly():
    fast = chainrule.compile(lambda x: [x * 2.0, x + 1.0], on_fallback="eager", lift=True)
    x = Value(3.0)
    a, b = fast(x)
    (a * b).backward()
    assert (a.data, b.data, x.grad) == (6.0, 4.0, 14.0)


def test_arrays_as_arguments():
    fast = chainrule.compile(filtered, lift=True, on_fallback="raise")
    x = np.linspace(-1.0, 1.0, 30)
    for k in (0.5, 0.25):
        assert fast(x, k) == pytest.approx(filtered(x, k))


WEIGHTS = [[0.1 * i - 0.2 * j for j in range(6)] for i in range(5)]


def layer(weights, x):
    """``linear`` gives Values, also of numbers."""
    return chainrule.linear(x, weights)


def layers(weights, x):
    hidden = [h.tanh() for h in chainrule.linear(x, weights)]
    return {"hidden": hidden, "square": np.array([[h * h for h in hidden], hidden]), "n": 5.0}


def one_value(weights, x):
    return sum(chainrule.linear(x, weights))


def numbers_of(tree):
    """The numbers in a result, and what holds them."""
    if isinstance(tree, np.ndarray):
        return [tree.dtype, tree.shape, *numbers_of(tree.tolist())]
    if isinstance(tree, Value):
        return [Value, tree.data]
    if isinstance(tree, dict):
        return [part for key, item in tree.items() for part in (key, *numbers_of(item))]
    if isinstance(tree, list):
        return [list, *[part for item in tree for part in numbers_of(item)]]
    return [type(tree), tree]


@pytest.mark.parametrize("lift", [True, False])
@pytest.mark.parametrize("f", [layer, layers, one_value])
def test_values_that_have_no_graph_come_back_as_values(f, lift):
    fast = chainrule.compile(f, lift=lift, on_fallback="raise")
    for by in (0.0, 0.01, -0.02, 0.5):
        x = [0.3 * k + by for k in range(6)]
        for given in (x, np.array(x)):
            found, wanted = numbers_of(fast(WEIGHTS, given)), numbers_of(f(WEIGHTS, given))
            assert len(found) == len(wanted)
            for a, b in zip(found, wanted, strict=True):
                assert a == (pytest.approx(b, rel=1e-12, abs=1e-15) if type(b) is float else b)
    assert fast.dispatch.last is (Path.MACHINE if lift else Path.TAPE)
    assert bool(View(fast).fast_path.plans) is (chainrule.engine == "native")


def test_arrays_of_values_with_a_graph_or_with_plain_numbers_run_eagerly():
    fast = chainrule.compile(lambda x: np.array([x * 2.0, x + 1.0]), on_fallback="eager", lift=True)
    x = Value(3.0)
    a, b = fast(x)
    (a * b).backward()
    assert (a.data, b.data, x.grad) == (6.0, 4.0, 14.0)
    mixed = chainrule.compile(lambda x: np.array([Value(x) * 2.0, 1]), on_fallback="eager")
    for x in (1.0, 2.0, 3.0):
        assert numbers_of(mixed(x)) == [np.dtype(object), (2,), list, Value, 2.0 * x, int, 1]


def test_a_state_goes_in_and_out_with_one_recording():
    def step(weights, state, x):
        return np.array([s.tanh() for s in chainrule.linear([*state, x], weights)])

    fast = chainrule.compile(step, lift=True, on_fallback="raise")
    state = wanted = np.zeros(5)
    for x in (0.5, -1.0, 0.25, 2.0, 0.0):
        state = np.array([s.data for s in fast(WEIGHTS, state, x)])
        wanted = np.array([s.data for s in step(WEIGHTS, wanted, x)])
        np.testing.assert_allclose(state, wanted, rtol=1e-12)
    assert len(View(fast).variants) == 1
