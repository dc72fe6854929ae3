"""Arguments by keyword are those by position: the same recording, the same cached call, in C."""

import numpy as np
import pytest

import chainrule
from chainrule import tanh
from chainrule.compiler.runtime.keywords import in_places, named
from chainrule.core.backend import kernels

pytest.importorskip("llvmlite")
native = pytest.mark.skipif(kernels is None, reason="there is no gate without C")


def scaled(x, factor, *, shift=0.0):
    return x * x * factor + shift


def only_by_position(x, y, /, z):
    return x * y + z


def cached(function, *arguments, **keywords):
    fast = chainrule.compile(function)
    for _ in range(20):
        fast.value_and_grad(*arguments, **keywords)
    return fast


def answered(fast):
    """How many calls the gate answers among the next."""
    return fast.dispatch.gate.quick


@native
@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [((2.0,), {"factor": 3.0}), ((np.array([1.0, 2.0]),), {"b": 2.0, "a": 0.5})],
)
def test_a_call_with_keywords_is_answered_by_the_gate(arguments, keywords):
    def two(x, a, b):
        return tanh(x[0] * a) * x[1] * b

    function = scaled if "factor" in keywords else two
    fast = cached(function, *arguments, **keywords)
    before = answered(fast)
    value, slope = fast.value_and_grad(*arguments, **keywords)
    assert answered(fast) == before + 1
    wanted = chainrule.value_and_grad(function)(*arguments, **keywords)
    assert value == wanted[0]
    np.testing.assert_array_equal(slope, wanted[1])
    for _ in range(20):
        fast(*arguments, **keywords)
    before = answered(fast)
    assert fast(*arguments, **keywords) == value
    assert answered(fast) == before + 1


def test_keywords_and_places_share_a_recording():
    fast = cached(scaled, 2.0, 3.0)
    assert fast.value_and_grad(2.0, factor=4.0) == (16.0, 16.0)
    assert "1 recordings" in fast.report()


@native
def test_the_gradient_goes_into_out_beside_keywords():
    x, out = np.array([1.0, 2.0]), np.zeros(2)

    def product(x, factor):
        return x[0] * x[1] * factor

    fast = cached(product, x, factor=3.0)
    value, found = fast.value_and_grad(x, out=out, factor=3.0)
    assert (value, out.tolist(), found is out) == (6.0, [6.0, 3.0], True)


@pytest.mark.parametrize(
    ("function", "arguments", "keywords"),
    [
        (scaled, (2.0,), {}),
        (scaled, (2.0,), {"x": 3.0, "factor": 1.0}),
        (scaled, (2.0,), {"other": 3.0}),
        (scaled, (2.0, 1.0), {"factor": 3.0}),
        (only_by_position, (2.0,), {"y": 3.0, "z": 1.0}),
        (only_by_position, (2.0, 3.0), {"y": 1.0}),
    ],
)
def test_a_wrong_call_raises_what_the_function_raises(function, arguments, keywords):
    with pytest.raises(TypeError) as wanted:
        function(*arguments, **keywords)
    fast = chainrule.compile(function)
    for _ in range(2):
        with pytest.raises(TypeError) as found:
            fast.value_and_grad(*arguments, **keywords)
        assert str(found.value) == str(wanted.value)
    plenty = (2.0, 3.0, 4.0) if function is only_by_position else (2.0, 3.0)
    for _ in range(20):
        fast.value_and_grad(*plenty)
    with pytest.raises(TypeError, match="argument"):
        fast.value_and_grad(*arguments, **keywords)


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((2.0, 3.0), {"z": 1.0}),
        ((2.0, 3.0, 1.0), {}),
    ],
)
def test_parameters_by_position_only(arguments, keywords):
    fast = cached(only_by_position, *arguments, **keywords)
    assert fast.value_and_grad(*arguments, **keywords) == (7.0, 3.0)


def test_parameters_by_keyword_only_and_defaults_stay_what_they_are():
    def some(x, a=2.0, b=3.0, *, c=5.0):
        return x * a + b * c

    fast, eager = chainrule.compile(some), chainrule.value_and_grad(some)
    for keywords in (
        {},
        {"b": 1.0},
        {"a": 1.0},
        {"c": 1.0},
        {"b": 1.0, "a": 4.0},
        {"a": 1.0, "c": 0.5},
    ):
        for _ in range(10):
            assert fast.value_and_grad(2.0, **keywords) == eager(2.0, **keywords)


def test_new_code_with_its_parameters_the_other_way_round_is_seen():
    def difference(x, a, b):
        return x * (a - b)

    def other(x, b, a):
        return x * (a - b)

    fast = cached(difference, 2.0, a=5.0, b=3.0)
    assert fast.value_and_grad(2.0, a=5.0, b=3.0) == (4.0, 2.0)
    difference.__code__ = other.__code__
    assert fast.value_and_grad(2.0, a=5.0, b=3.0) == (4.0, 2.0)
    assert fast.value_and_grad(2.0, 5.0, 3.0) == (-4.0, -2.0)
    for _ in range(20):
        assert fast.value_and_grad(2.0, b=3.0, a=5.0) == (4.0, 2.0)


def test_methods_and_other_callables():
    class Model:
        def __init__(self):
            self.scale = 3.0

        def loss(self, x, y):
            return self.scale * x * y

        def __call__(self, x, y):
            return self.loss(x, y)

    model = Model()
    for function in (model.loss, model):
        fast = cached(function, 2.0, y=5.0)
        assert fast.value_and_grad(2.0, y=5.0) == (30.0, 15.0)
    model.scale = 1.0
    assert fast.value_and_grad(2.0, y=5.0) == (10.0, 5.0)
    assert fast(2.0, y=5.0) == 10.0


def test_only_keywords_that_come_next_have_a_place():
    def some(x, a, b=1.0, *rest, c=2.0):
        return x

    assert in_places(some, (1.0,), {"b": 3.0, "a": 2.0}) == ((1.0, 2.0, 3.0), {})
    for keywords in ({"b": 3.0}, {"a": 1.0, "c": 2.0}, {"rest": 1.0, "a": 2.0}, {"x": 1.0}):
        assert in_places(some, (1.0,), keywords) == ((1.0,), keywords)
    assert in_places(some, (), {"x": 1.0}) == ((), {"x": 1.0})
    assert in_places(len, (1.0,), {"a": 1.0}) == ((1.0,), {"a": 1.0})
    assert named(only_by_position)[2] == (None, None, "z")


def test_no_keyword_names_what_goes_by_position_only():
    def f(x, y, /):
        return x * y

    fast = cached(f, 2.0, 3.0)
    for call in (fast, fast.value_and_grad):
        with pytest.raises(TypeError, match="unexpected keyword argument ''"):
            call(2.0, **{"": 3.0})


def test_a_method_may_have_a_parameter_named_self():
    class Model:
        @chainrule.compile
        def scaled(model, x, self=2.0):
            return model.k * x * self

        def __init__(self):
            self.k = 3.0

    model = Model()
    for _ in range(6):
        assert model.scaled.value_and_grad(1.5, self=4.0) == (18.0, 12.0)
        assert model.scaled(1.5, self=4.0) == 18.0
        with pytest.raises(TypeError, match="multiple values for argument 'model'"):
            model.scaled(1.5, model=2.0)


def test_what_returns_nothing_gives_none_by_keyword_too():
    def halve(parameters, factor):
        for k in range(len(parameters)):
            parameters[k] = parameters[k] * factor

    fast = chainrule.compile(halve)
    for call in range(20):
        parameters = [1.0 + call, 2.0]
        assert fast(parameters, factor=0.5) is None
        assert parameters == [(1.0 + call) / 2, 1.0]
