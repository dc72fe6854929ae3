"""What a function reads by name without being passed it: every change is seen."""

import collections
import functools
import math
import sys
from typing import NamedTuple

import numpy as np
import pytest
from compile_twins import graded, numbers, outcome, same

import chainrule
from chainrule import Value, vsum

SCALE = 2.0


FACTORS = [1.0, 2.0]


WEIGHTS = [Value(1.0), Value(2.0)]


CONFIGURATION = {"beta": 0.5, "layers": [{"width": 2.0}], "name": "a"}


TABLE = np.array([1.0, 2.0, 3.0])


def helper(x):
    return x * SCALE


def scaled(x):
    return x * SCALE


def scaled_through_a_helper(x):
    return helper(x) + 1


def scaled_in_a_comprehension(x):
    return vsum([x * (SCALE + i) for i in range(2)])


def scaled_in_a_lambda(x):
    return (lambda v: v * SCALE)(x)


@pytest.mark.parametrize(
    "f", [scaled, scaled_through_a_helper, scaled_in_a_comprehension, scaled_in_a_lambda]
)
def test_a_global_number_changed_is_seen(f):
    def script(compile):
        global SCALE
        SCALE = 2.0
        fast = compile(f)
        x = Value(3.0)
        for scale in (2.0, 2.0, 5.0, -1.0, 5, True, 5.0, math.nan, math.nan, 0.0):
            SCALE = scale
            yield graded(fast(x), x)

    same(script)


def test_a_global_zero_that_changes_sign_is_seen():
    def f(x):
        return chainrule.atan2(x, SCALE)

    def script(compile):
        global SCALE
        fast = compile(f)
        x = Value(0.0)
        for SCALE in (0.0, -0.0, 0.0):  # noqa: B007
            x.data = 1e-300
            yield chainrule.atan2(fast(x) * 0, 1.0)
            x.data = 0.0
            yield outcome(fast, x)

    table = np.array([0.0])

    def from_an_array(compile):
        table[0] = 0.0
        fast = compile(lambda x: chainrule.atan2(x, float(table[0])))
        x = Value(0.0)
        for zero in (0.0, -0.0, 0.0):
            table[0] = zero
            yield fast(x)

    same(script)
    same(from_an_array)


def test_a_global_list_of_values_rebound_or_changed_is_seen():
    def f(x):
        return vsum(w * x for w in WEIGHTS)

    def script(compile):
        global WEIGHTS
        WEIGHTS = numbers(1.0, 2.0)
        fast = compile(f)
        x = Value(3.0)
        yield graded(fast(x), x, *WEIGHTS)
        WEIGHTS[0].data = 10.0
        yield graded(fast(x), x, *WEIGHTS)
        WEIGHTS = numbers(5.0, 6.0)
        yield graded(fast(x), x, *WEIGHTS)
        WEIGHTS[1] = Value(-1.0)
        yield graded(fast(x), x, *WEIGHTS)
        WEIGHTS.append(Value(7.0))
        yield graded(fast(x), x, *WEIGHTS)
        WEIGHTS.reverse()
        yield graded(fast(x), x, *WEIGHTS)
        WEIGHTS.clear()
        yield graded(fast(x) + x, x)
        WEIGHTS[:] = numbers(2.0, 3.0)
        yield graded(fast(x), x, *WEIGHTS)

    same(script)


def test_parameters_made_anew_at_every_step_are_seen():
    def f(x):
        return vsum(w * x for w in WEIGHTS).tanh()

    def script(compile):
        global WEIGHTS
        WEIGHTS = numbers(0.1, 0.2)
        fast = compile(f)
        x = Value(0.5)
        for _ in range(50):
            loss = fast(x)
            yield graded(loss, x)
            loss.backward()
            WEIGHTS = [Value(w.data - 0.1 * w.grad) for w in WEIGHTS]

    same(script)


def test_nested_data_changed_in_place_is_seen():
    def f(x):
        layers = CONFIGURATION["layers"]
        y = x * CONFIGURATION["beta"] if CONFIGURATION["name"] == "a" else x + 1
        return vsum([y, *(y * layer["width"] for layer in layers)])

    def script(compile):
        CONFIGURATION.clear()
        CONFIGURATION.update(beta=0.5, layers=[{"width": 2.0}], name="a")
        fast = compile(f)
        x = Value(3.0)
        yield fast(x)
        CONFIGURATION["layers"][0]["width"] = 7.0
        yield fast(x)
        CONFIGURATION["layers"].append({"width": -1.0})
        yield fast(x)
        CONFIGURATION["beta"] = 3.0
        yield fast(x)
        CONFIGURATION["name"] = "b"
        yield fast(x)
        CONFIGURATION["layers"][0] = {"width": 11.0}
        yield fast(x)
        del CONFIGURATION["layers"]
        yield outcome(fast, x)

    same(script)


def test_the_order_of_a_dict_is_seen():
    def script(compile):
        state = {"a": 2.0, "b": 3.0}

        def f(x):
            for number in state.values():
                x = x * number + 1
            return x

        fast = compile(f)
        x = Value(1.0)
        yield fast(x)
        state["a"] = state.pop("a")
        yield fast(x)
        yield list(state)

    same(script)


def test_the_order_of_a_dict_argument_is_seen():
    def script(compile):
        def f(state):
            y = Value(1.0)
            for v in state.values():
                y = y * v + 1
            return y

        fast = compile(f)
        a, b = numbers(2.0, 3.0)
        yield graded(fast({"a": a, "b": b}), a, b)
        yield graded(fast({"b": b, "a": a}), a, b)
        yield graded(fast({"a": b, "b": a}), a, b)

    same(script)


def test_the_order_of_keywords_is_seen():
    def script(compile):
        def f(**named):
            y = Value(1.0)
            for v in named.values():
                y = y * v + 1
            return y

        fast = compile(f)
        a, b = numbers(2.0, 3.0)
        for _ in range(2):
            yield graded(fast(a=a, b=b), a, b)
            yield graded(fast(b=b, a=a), a, b)
            yield graded(fast(a=b, b=a), a, b)

    same(script)


def test_keywords_in_another_order_reach_their_own_parameters():
    def script(compile):
        fast = compile(lambda x, y, n, m: x * 10 + y * n - m)
        x, y = numbers(2.0, 3.0)
        yield graded(fast(x=x, y=y, n=1, m=2), x, y)
        yield graded(fast(y=y, x=x, m=2, n=1), x, y)
        yield graded(fast(m=5, n=7, y=y, x=x), x, y)
        yield graded(fast(x, m=5, n=7, y=y), x, y)

    assert same(script).eager == 0


def test_a_closed_over_array_changed_in_place_is_seen():
    def script(compile):
        table = np.array([1.0, 2.0, 3.0])
        matrix = np.arange(4.0).reshape(2, 2)
        fast = compile(lambda x: x * table[1] + float(matrix[1][0]) * x)
        x = Value(2.0)
        yield fast(x)
        table[1] = 10.0
        yield fast(x)
        matrix[1, 0] = -1.0
        yield fast(x)
        table[:] = np.nan
        yield fast(x)
        table[:] = 1.0
        yield fast(x)
        table.resize(2, refcheck=False)
        yield fast(x)

    same(script)


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", "b"]),
        np.array([Value(1.0), Value(2.0)]),
        np.array([1.0, "x", None], dtype=object),
        np.array([True, False]),
        np.array([1 + 2j, 3.0]),
        np.zeros((0, 3)),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
    ],
    ids=lambda a: str(a.dtype),
)
def test_captured_arrays_of_every_kind_are_compared(array):
    def script(compile):
        mine = array.copy()
        fast = compile(lambda x: x * len(str(mine.tolist())) if mine.size < 9 else x)
        x = Value(2.0)
        for _ in range(3):
            yield outcome(fast, x) if mine.dtype != object else len(mine)
        if mine.size > 1 and mine.dtype != object:
            mine[0] = mine[1]
            yield outcome(fast, x)

    same(script)


def test_an_object_array_of_values_is_captured_by_identity():
    def script(compile):
        weights = np.array(numbers(1.0, 2.0, 3.0))
        fast = compile(lambda x: (weights * x).sum())
        x = Value(2.0)
        yield graded(fast(x), x, *weights)
        weights[0].data = 9.0
        yield graded(fast(x), x, *weights)
        weights[1] = Value(-4.0)
        yield graded(fast(x), x, *weights)

    same(script)


def test_variables_of_an_enclosing_function_rebound_are_seen():
    def script(compile):
        beta, weight = 2.0, Value(3.0)

        def inner(x):
            return x * beta

        fast = compile(lambda x: inner(x) * weight)
        x = Value(1.5)
        yield graded(fast(x), x, weight)
        beta = 5.0
        yield graded(fast(x), x, weight)
        weight = Value(-1.0)
        yield graded(fast(x), x, weight)

        def inner(x):  # noqa: F811
            return x * beta * beta

        yield graded(fast(x), x, weight)
        del beta
        yield outcome(fast, x)
        beta = 7.0
        yield graded(fast(x), x, weight)

    same(script)


def test_a_variable_that_is_not_bound_yet_is_seen_later():
    def script(compile):
        fast = compile(lambda x: x * late)
        x = Value(2.0)
        yield outcome(fast, x)[0]
        late = 3.0
        yield fast(x)
        late = 4.0
        yield fast(x)
        late = 5.0
        yield fast(x)

    same(script)


def test_a_global_that_is_not_bound_yet_is_seen_later():
    def f(x):
        return x * LATE  # noqa: F821

    def script(compile):
        globals().pop("LATE", None)
        fast = compile(f)
        x = Value(2.0)
        yield outcome(fast, x)[0]
        for number in (3.0, 4.0, 5.0):
            globals()["LATE"] = number
            yield fast(x)
        del globals()["LATE"]
        yield outcome(fast, x)[0]

    same(script)


def test_a_builtin_that_becomes_a_global_is_seen():
    def f(x):
        return sum([x, x * x])

    def script(compile):
        globals().pop("sum", None)
        fast = compile(f)
        x = Value(3.0)
        yield fast(x)
        globals()["sum"] = lambda xs: xs[0] * 100
        yield fast(x)
        del globals()["sum"]
        yield fast(x)

    same(script)


def test_default_arguments_changed_are_seen():
    def script(compile):
        def f(x, factors=[1.0, 2.0], *, offset={"b": 1.0}):  # noqa: B006
            return x * factors[0] + factors[-1] + offset["b"]

        fast = compile(f)
        x = Value(3.0)
        yield fast(x)
        f.__defaults__[0][0] = 7.0
        yield fast(x)
        f.__kwdefaults__["offset"]["b"] = 70.0
        yield fast(x)
        f.__defaults__ = ([5.0],)
        yield fast(x)
        f.__kwdefaults__["offset"] = {"b": -1.0}
        yield fast(x)

    same(script)


def test_attributes_of_functions_are_seen():
    def script(compile):
        def activation(x):
            return x * activation.slope

        activation.slope = 2.0
        fast = compile(lambda x: activation(x) + 1)
        x = Value(3.0)
        for slope in (2.0, 5.0, 2.0):
            activation.slope = slope
            yield fast(x)

    same(script)


def test_a_function_given_new_code_is_seen():
    def script(compile):
        def activation(x):
            return x * 2

        def other(x):
            return x * 7

        fast = compile(lambda x: activation(x) + 1)
        x = Value(3.0)
        yield fast(x)
        activation.__code__ = other.__code__
        yield fast(x)

    same(script)


def test_a_helper_replaced_is_seen(monkeypatch):
    def script(compile):
        monkeypatch.setitem(globals(), "helper", lambda x: x * 2)
        fast = compile(scaled_through_a_helper)
        x = Value(3.0)
        yield fast(x)
        monkeypatch.setitem(globals(), "helper", lambda x: x * 9)
        yield fast(x)

    same(script)


def test_values_in_a_set_are_found_or_refused():
    def script(compile):
        members = {Value(2.0)}
        fast = compile(lambda x: vsum([x, *(x * m for m in members)]))
        x = Value(3.0)
        yield fast(x)
        next(iter(members)).data = 7.0
        yield fast(x)
        members.add(Value(100.0))
        yield fast(x)
        members.clear()
        yield fast(x)

    same(script)


def test_modules_attributes_are_seen(tmp_path, monkeypatch):
    package = tmp_path / "chainrule_trap_package"
    package.mkdir()
    (package / "__init__.py").write_text("beta = 2.0\n")
    (package / "settings.py").write_text("beta = 3.0\ndef scaled(x):\n    return x * beta\n")
    monkeypatch.syspath_prepend(tmp_path)
    import chainrule_trap_package
    import chainrule_trap_package.settings
    from chainrule_trap_package import settings

    def imported_inside(x):
        import chainrule_trap_package as package

        return x * package.beta

    def from_imported_inside(x):
        from chainrule_trap_package.settings import beta

        return x * beta

    functions = [
        lambda x: x * chainrule_trap_package.beta,
        lambda x: x * settings.beta,
        lambda x: x * chainrule_trap_package.settings.beta,
        lambda x: settings.scaled(x),
        lambda x: chainrule_trap_package.settings.scaled(x),
        imported_inside,
        from_imported_inside,
    ]

    def script(compile):
        fast = [compile(f) for f in functions]
        x = Value(3.0)
        for number in (2.0, 2.0, 5.0, 11.0):
            chainrule_trap_package.beta = number
            settings.beta = number + 1
            yield [f(x) for f in fast]

    same(script)


def test_a_module_without_a_file_is_seen():
    import types

    module = types.ModuleType("made_by_hand")

    def script(compile):
        module.beta = 2.0
        fast = compile(lambda x: x * module.beta)
        x = Value(3.0)
        for module.beta in (2.0, 5.0, 7.0):
            yield fast(x)

    same(script)


def test_names_looked_up_at_run_time_are_seen():
    def by_globals(x):
        return x * globals()["SCALE"]

    def by_eval(x):
        return x * eval("SCALE")

    def script(compile):
        global SCALE
        SCALE = 2.0
        fast = [compile(f) for f in (by_globals, by_eval)]
        x = Value(3.0)
        for SCALE in (2.0, 5.0, 3.0):  # noqa: B007
            yield [f(x) for f in fast]

    same(script)


def test_the_environment_is_seen(monkeypatch):
    import os

    def script(compile):
        fast = compile(lambda x: x * float(os.environ["CHAINRULE_TRAP"]))
        x = Value(3.0)
        for text in ("2.0", "5.0", "7.0"):
            monkeypatch.setenv("CHAINRULE_TRAP", text)
            yield fast(x)

    same(script)


def test_a_global_that_changes_at_every_call_is_always_fresh():
    def script(compile):
        global SCALE
        fast = compile(scaled)
        x = Value(3.0)
        for i in range(60):
            SCALE = float(i)
            yield fast(x)
        for _ in range(30):
            yield fast(x)

    same(script)


@pytest.mark.parametrize("name", ["floor", "exp", "pi"])
def test_patched_names_of_math_are_seen(name, monkeypatch):
    def f(p, x):
        return p * (math.pi if name == "pi" else getattr(math, name)(x))

    def by_floor(p, x):
        return p * math.floor(x)

    for g in (f, by_floor):
        fast, eager = chainrule.compile(g, on_fallback="eager"), chainrule.value_and_grad(g)
        for patched in (False, True, True, False):
            with monkeypatch.context() as patch:
                if patched:
                    patch.setattr(math, name, 7.0 if name == "pi" else lambda x: 7.0)
                assert fast.value_and_grad(1.5, 2.5) == eager(1.5, 2.5)


def test_other_bases_of_a_class_are_seen():
    class Twice:
        def scaled(self, x):
            return x * 2

    class Thrice:
        def scaled(self, x):
            return x * 3

    class Box(Twice):
        pass

    box = Box()

    def f(p):
        return box.scaled(p)

    fast = chainrule.compile(f, on_fallback="eager")
    for base in (Twice, Thrice, Thrice, Twice):
        Box.__bases__ = (base,)
        assert fast.value_and_grad(1.5) == chainrule.value_and_grad(f)(1.5)


class Scale:
    """What is called, and remembers a factor; or a function with one around it."""

    def __init__(self, function=None):
        self.factor = 2.0
        if function is not None:
            functools.update_wrapper(self, function)

    def __call__(self, x):
        return x * self.factor

    def __getitem__(self, x):
        return self.__wrapped__(x) * self.factor


def test_an_object_that_is_a_method_of_a_class_is_seen():
    scale, table = Scale(), [1.0]

    class Called:
        __call__, __table__ = scale, table

    called = Called()
    for f in (lambda p: called(p[0]), lambda p: p[0] * called.__table__[0]):
        fast = chainrule.compile(f, on_fallback="eager", lift=True)
        for factor in (2.0, 2.0, 5.0, 2.0):
            scale.factor = table[0] = factor
            assert fast([1.5]) == f([1.5])
            assert fast.value_and_grad([1.5]) == chainrule.value_and_grad(f)([1.5])


def test_attributes_of_an_object_around_a_function_are_seen():
    @Scale
    def square(x):
        return x * x

    for f in (lambda p: square(p[0]), lambda p: square[p[0]]):
        fast = chainrule.compile(f, on_fallback="eager", lift=True)
        for factor in (2.0, 2.0, 5.0, 2.0):
            square.factor = factor
            assert fast([1.5]) == f([1.5])
            assert fast.value_and_grad([1.5]) == chainrule.value_and_grad(f)([1.5])


def test_what_a_property_does_when_it_is_set_is_seen(monkeypatch):
    class Box:
        @property
        def x(self):
            return self.kept

        @x.setter
        def x(self, x):
            self.kept = x * SCALE

        @x.deleter
        def x(self):
            self.kept = self.kept + SCALE

    def assigned(p):
        box = Box()
        box.x = p[0]
        return box.x * 1.0

    def deleted(p):
        box = Box()
        box.kept = p[0]
        del box.x
        return box.x * 1.0

    for f in (assigned, deleted):
        fast = chainrule.compile(f, on_fallback="eager", lift=True)
        for scale in (2.0, 2.0, 5.0, 2.0):
            monkeypatch.setitem(globals(), "SCALE", scale)
            assert fast([1.5]) == f([1.5])
            assert fast.value_and_grad([1.5]) == chainrule.value_and_grad(f)([1.5])


class Method:
    """What each class below has of its own."""

    __slots__ = ()

    def scaled(self, x):
        return x * SCALE


class Settings(NamedTuple):
    offset: float

    def scaled(self, x):
        return x * SCALE


class Pair(Method, tuple):
    __slots__ = ()


class Names(Method, frozenset):
    pass


class Text(Method, str):
    __slots__ = ()


class Weight(Method, float):
    __slots__ = ()


class Count(Method, int):
    __slots__ = ()


class Bound(functools.partial):
    def scaled(self, x):
        return x * SCALE


class Scaling(property):
    def __get__(self, instance, owner=None):
        return lambda x: x * SCALE


class Cached(functools.cached_property):
    def __get__(self, instance, owner=None):
        return lambda x: x * SCALE


class Static(staticmethod):
    def __get__(self, instance, owner=None):
        return lambda x: x * SCALE


HOLDERS = {
    type(holder).__name__: holder
    for holder in (
        *(Settings(1.0), Pair((1.0,)), Names((1,)), Text("a"), Weight(1.0), Count(1), Bound(abs)),
        *(type(part.__name__, (), {"scaled": part(None)})() for part in (Scaling, Cached, Static)),
    )
}


@pytest.mark.parametrize("name", HOLDERS)
def test_what_methods_read_is_seen_whatever_their_class_is_made_of(name, monkeypatch):
    holder = HOLDERS[name]

    def f(p):
        return holder.scaled(p[0]) * 1.0

    fast = chainrule.compile(f, on_fallback="eager", lift=True)
    for scale in (2.0, 2.0, 5.0, 2.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        assert fast([1.5]) == f([1.5])
        assert fast.value_and_grad([1.5]) == chainrule.value_and_grad(f)([1.5])


def test_the_default_of_a_dict_is_seen_in_a_class_of_ones_own(monkeypatch):
    class Table(collections.defaultdict):
        pass

    table = Table(lambda: SCALE)

    def f(p):
        return p[0] * Table(table.default_factory)["new"]

    fast = chainrule.compile(f, on_fallback="eager", lift=True)
    for scale in (2.0, 2.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        assert fast([1.5]) == f([1.5])


def test_a_tuple_of_a_class_of_pythons_own_is_read():
    fast = chainrule.compile(
        lambda p: p[0] * sys.float_info.epsilon, on_fallback="raise", lift=True
    )
    assert fast.value_and_grad([1.5]) == (1.5 * 2.0**-52, [2.0**-52])
