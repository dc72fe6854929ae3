"""Calls that a function's gate answers pass no Python code, whichever way they are asked for."""

import numpy as np
import pytest

import chainrule

pytestmark = pytest.mark.skipif(chainrule.engine != "native", reason="the gate is in C")


class Scaled:
    def __init__(self):
        self.scale = 3.0

    @chainrule.compile
    def square(self, x):
        return x * x * self.scale


SCALED = Scaled()


def square(x):
    return x * x * 3.0


def loaded(folder):
    path = folder / "square.chainrule"
    chainrule.compile(square).save(path, 1.0)
    return chainrule.load(path)


WAYS = {
    "function": lambda _: chainrule.compile(square),
    "method": lambda _: SCALED.square,
    "loaded": loaded,
}


@pytest.mark.parametrize("way", WAYS)
def test_the_gate_answers_without_python(way, tmp_path, monkeypatch):
    fast = WAYS[way](tmp_path)
    grad, both = chainrule.grad(fast), chainrule.value_and_grad(fast)
    calls = [fast, fast.value_and_grad, grad, both]
    for call in calls * 3:
        call(1.0)

    def unexpected(*_):
        raise AssertionError("Python looked at a call that the gate has an answer to")

    for x in (fast, grad, both):
        for name in ("_unanswered", "_differentiate"):
            monkeypatch.setattr(x, name, unexpected, raising=False)
    assert [call(2.0) for call in calls] == [12.0, (12.0, 12.0), 12.0, (12.0, 12.0)]


def test_out_is_filled_and_other_keywords_go_to_the_function():
    fast = chainrule.compile(lambda x, k=1.0: x[0] * x[1] * k)
    x, out = np.array([2.0, 3.0]), np.zeros(2)
    for _ in range(3):
        assert fast.value_and_grad(x, out=None)[0] == 6.0
        value, gradient = fast.value_and_grad(x, out=out)
        assert (value, gradient is out, out.tolist()) == (6.0, True, [3.0, 2.0])
        value, gradient = fast.value_and_grad(x, k=2.0, out=out)
        assert (value, gradient is out, out.tolist()) == (12.0, True, [6.0, 4.0])
        assert fast(x, k=2.0) == 12.0
    values = fast.value_and_grad([2.0, 3.0])
    with pytest.raises(TypeError, match="a plain float cannot be filled in place"):
        fast.value_and_grad([2.0, 3.0], out=[0.0, 0.0])
    assert values == (6.0, [3.0, 2.0])


def mixed(p, x):
    return p["w"][0] * p["w"][1] * x + (p["rows"][0] * p["rows"][1]).sum() * p["b"].sum()


WEIGHTS = {"w": np.array([2.0, 3.0]), "b": np.ones((1, 2)), "rows": [np.ones(3), np.arange(3.0)]}


def zeros(make=np.zeros_like, **changed):
    found = {"rows": [make(x) for x in WEIGHTS["rows"]], "b": make(WEIGHTS["b"])}
    return {**found, "w": make(WEIGHTS["w"]), **changed}


def as_lists(tree):
    if isinstance(tree, dict):
        return {key: as_lists(x) for key, x in sorted(tree.items())}
    return [as_lists(x) for x in tree] if isinstance(tree, (list, tuple)) else tree.tolist()


@pytest.mark.parametrize("options", [{"lift": True}, {"lift": False}, {"dtype": "float32"}])
def test_a_tree_of_arrays_that_is_passed_takes_the_gradient_at_once(options, monkeypatch):
    """No gradient is made, nor is any Python run; and the keys may come in any order."""
    fast = chainrule.compile(mixed, **{"lift": True} | options)
    for _ in range(3):
        fast.value_and_grad(WEIGHTS, 2.0)
    monkeypatch.delattr(type(fast), "_differentiate")
    for x in (2.0, 2.0, 3.0):
        out = zeros()
        value, gradient = fast.value_and_grad(WEIGHTS, x, out=out)
        assert gradient is out
        wanted = chainrule.value_and_grad(mixed)(WEIGHTS, x)
        assert (value, as_lists(out)) == (wanted[0], as_lists(wanted[1]))


@pytest.mark.parametrize(
    ("out", "error"),
    [
        (zeros(w=np.zeros(3)), ValueError),
        (zeros(w=[0.0, 0.0]), ValueError),
        (zeros(more=np.zeros(1)), ValueError),
        (zeros(b=np.zeros((2, 1))), ValueError),
        (zeros(w=np.zeros(2, np.int64)), TypeError),
        (zeros(rows=[np.zeros(3)]), ValueError),
        (zeros(w=np.zeros(2, np.float32)), None),
        (zeros(w=np.zeros(4)[::2]), None),
        (zeros(rows=tuple(zeros()["rows"])), None),
        (dict(zeros().items()), None),
    ],
)
def test_other_trees_that_are_passed_for_the_gradient_are_as_in_eager_mode(out, error):
    """A tree of which some arrays do not fit is not written to in part."""
    fast = chainrule.compile(mixed, lift=True)
    for _ in range(3):
        value, gradient = fast.value_and_grad(WEIGHTS, 2.0)
    if error is None:
        assert fast.value_and_grad(WEIGHTS, 2.0, out=out)[0] == value
        assert as_lists(out) == as_lists(gradient)
        return
    with pytest.raises(error):
        fast.value_and_grad(WEIGHTS, 2.0, out=out)
    assert not any(np.any(x) for x in (*out["rows"], out["b"], out["w"]))


def test_a_derivative_by_other_arguments_and_with_extras_is_the_eager_one():
    def f(x, y):
        return x * y * y, {"y": y}

    fast = chainrule.compile(f)
    ways = [
        (chainrule.grad, {"argnums": 1, "has_aux": True}),
        (chainrule.grad, {"has_aux": True}),
        (chainrule.value_and_grad, {"argnums": (1, 0), "has_aux": True}),
    ]
    for transform, options in ways:
        eager, compiled = transform(f, **options), transform(fast, **options)
        assert [compiled(2.0, 3.0) for _ in range(4)] == [eager(2.0, 3.0)] * 4
    with pytest.raises(TypeError, match="returns one Value"):
        chainrule.grad(fast)(2.0, 3.0)


def test_modes_and_nesting_are_noticed_at_every_call():
    fast = chainrule.compile(square)
    for _ in range(4):
        assert fast.value_and_grad(1.0) == (3.0, 6.0)
    assert chainrule.grad(lambda x: fast(x) * x)(2.0) == 36.0
    assert chainrule.grad(chainrule.grad(fast))(2.0) == 6.0
    v = chainrule.Value(2.0)
    y = fast(v)
    y.backward()
    assert (y.data, v.grad) == (12.0, 12.0)
    assert fast.value_and_grad(2.0) == (12.0, 12.0)


def test_a_derivative_that_expects_extras_refuses_a_function_without_also_when_it_is_cached():
    fast = chainrule.compile(square)
    for _ in range(5):
        fast.value_and_grad(2.0)
    for transform in (chainrule.grad, chainrule.value_and_grad):
        with pytest.raises(TypeError, match="has_aux"):
            transform(fast, has_aux=True)(2.0)
