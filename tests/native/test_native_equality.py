"""The native engine is the reference engine: same bits, same graph, same errors."""

import copy
import inspect
import json
import math
import operator
import pickle
import sys
from decimal import Decimal
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from native_engines import (
    ENGINES,
    NATIVE,
    REFERENCE,
    bits,
    both,
    described,
    graph,
    outcome,
    run_python,
)
from native_worlds import COMPARISONS, TAME, WEIGHTS, WILD, live
from programs import ALL_OPS, SEED_OPS, Const, Program, count, random_program, run
from tiny_gpt import train

from chainrule.core import ops

# --- random programs ----------------------------------------------------------------------------


def lives_of(program: Program, engine) -> list:
    """What a program makes: whole graphs after one, two, three passes and after zero_grad."""
    values = run(program, map(engine.Value, program.inputs), engine.functions)
    root, half = values[-1], values[len(values) // 2]
    story = [[(bits(v.data), bits(v.grad)) for v in values]]
    for backward in (root.backward, root.backward, half.backward, root.backward, root.zero_grad):
        backward()
        # numbers first: the graph's look turns the native engine's inline numbers into nodes
        story.append([(bits(v.data), bits(v.grad)) for v in values])
    root.backward(-0.75)
    story += graph(engine, root, half)
    root.backward()
    story += graph(engine, *values)
    return story


@pytest.mark.parametrize("family", [SEED_OPS, ALL_OPS], ids=["seeds", "all"])
@pytest.mark.parametrize("block", range(4))
def test_random_programs_are_equal_to_the_last_bit(family, block):
    """40,000 programs in soak."""
    size = 0
    for i in range(count(ci=150, soak=5_000)):
        program = random_program(Random(f"native {block} {i}"), family, 4, 30)
        size += len(both(lambda engine: lives_of(program, engine)))
    assert size / i > 50, "the programs must not be trivial"


@pytest.mark.parametrize("stock", [TAME, WILD], ids=["tame", "wild"])
@pytest.mark.parametrize("block", range(4))
def test_random_lives_are_equal_to_the_last_bit(stock, block):
    """Every action in any order: see native_worlds. 24,000 lives in soak."""
    seen = dict.fromkeys(WEIGHTS, 0)
    for i in range(count(ci=150, soak=3_000)):
        rng = Random(f"lives {block} {i}")
        for name, often in live(rng, rng.randint(5, 60), stock).items():
            seen[name] += often
    assert min(seen.values()) > 20, "every action must come"


@given(st.randoms(use_true_random=False), st.integers(2, 40), st.sampled_from([TAME, WILD]))
def test_random_lives_that_shrink(rng, actions, stock):
    live(rng, actions, stock)


def test_random_lives_raise_and_propagate(monkeypatch):
    """The wild lives do meet undefined values: a test of the test."""
    import native_worlds

    errors, numbers = set(), set()
    do, pool_numbers = native_worlds.World.do, native_worlds.World.numbers

    def watch(self, action):
        answer = do(self, action)
        if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], str):
            errors.add(answer[0])
        numbers.update(n for n, _, _ in pool_numbers(self))
        return answer

    monkeypatch.setattr(native_worlds.World, "do", watch)
    for i in range(60):
        live(Random(f"meets {i}"), 50, WILD)
    assert {"ValueError", "OverflowError", "ZeroDivisionError", "TypeError"} <= errors
    assert {"nan", bits(math.inf), bits(-math.inf), bits(-0.0)} <= numbers


def test_a_hundred_training_steps_of_a_gpt_are_equal_to_the_last_bit():
    losses, parameters = both(
        lambda engine: [[bits(x) for x in xs] for xs in train(engine.Value, steps=100)]
    )
    assert len(losses) == 100
    assert len(set(losses)) > 95
    assert len(parameters) == 896


# --- single operations over every kind of number ------------------------------------------------

SPECIAL = [
    *(
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        3.0,
        -2.0,
        1e-5,
        0.9999999999999999,
        1.0000000000000002,
    ),
    *(5e-324, -5e-324, 2.2250738585072014e-308, 1e-200, 1e200, -1e200, 1.7976931348623157e308),
    *(709.78, 709.79, 745.2, -708.4, -745.1, -746.0, 22.0, 37.0, -37.5, 1e16, -1e16, 1e22),
    *(math.pi, -math.pi / 2, math.inf, -math.inf, math.nan),
]
MODES = ["", "allow_nonfinite", "grad", "debug"]


def in_mode(engine, name, f):
    modes = engine.modes
    if name:
        setattr(modes, name, name != "grad")
    try:
        return f()
    finally:
        modes.grad, modes.allow_nonfinite, modes.debug = True, False, False


def made(engine, f, *operands):
    """A node and its operands after a pass, as plain data; or the error."""

    def make():
        y = f(*operands)
        if not isinstance(y, engine.Value):
            return "no Value", repr(y)
        y.backward(0.5)
        return graph(engine, y, *(x for x in operands if isinstance(x, engine.Value)))

    return outcome(make)


def points(rng: Random, n: int) -> list[float]:
    scale = [1e-3, 1.0, 30.0, 1e5, 1e150]
    return [*SPECIAL, *(rng.uniform(-1, 1) * rng.choice(scale) for _ in range(n))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", [n for n, row in ops.TABLE.items() if row.arity == 1 and n != "pow"]
)
def test_unary_rows_are_equal_everywhere(name, mode):
    parameters = {"clip": (-0.5, 2.0), "leaky_relu": (0.1,)}.get(name, ())
    row = ops.TABLE[name]
    for x in points(Random(name), count(ci=20, soak=2_000)):

        def by_method(engine, x=x):
            f = lambda v: getattr(v, name)(*parameters)  # noqa: E731
            return in_mode(engine, mode, lambda: made(engine, f, engine.Value(x, label="x")))

        def by_row(engine, x=x):
            f = lambda v: row(v, *parameters)  # noqa: E731
            return in_mode(engine, mode, lambda: made(engine, f, engine.Value(x, label="x")))

        results = both(by_method), both(by_row)
        if mode != "debug":  # which remembers the line
            assert results[0] == results[1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "p", [0, 1, 2, 3, -1, -2, 0.5, -0.5, 1.5, 0.0, -0.0, 1e3, math.inf, math.nan]
)
def test_static_powers_are_equal_everywhere(p, mode):
    for x in points(Random(f"pow {p}"), count(ci=20, soak=2_000)):
        both(
            lambda engine, x=x: in_mode(
                engine, mode, lambda: made(engine, lambda v: v**p, engine.Value(x, label="x"))
            )
        )


def test_a_reciprocal_is_libms_power_and_no_division():
    """A compiler may turn pow(x, -1) into 1 / x, which differs once in 1,200 numbers."""
    rng = Random("reciprocals")
    differ = 0
    for _ in range(20_000):
        x = rng.uniform(0.01, 30.0)
        expected = math.pow(x, -1.0)
        differ += expected != 1.0 / x
        v = NATIVE.Value(x)
        reciprocals = [v**-1, NATIVE.Value(1.0) / x, NATIVE.Value(1.0) / v, 1.0 / v, 1 / v]
        assert {y.data for y in reciprocals} == {expected}
        assert (v**2).data == math.pow(x, 2.0)
        assert (v**0.5).data == math.pow(x, 0.5)
        assert (v**3).local_grads == (3.0 * math.pow(x, 2.0),)
        assert (v**-1).local_grads == (-1.0 * math.pow(x, -2.0),)
    assert differ > 5


BINARY = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", [*BINARY, "maximum", "minimum", "hypot", "atan2", "where"])
def test_binary_operations_are_equal_everywhere(name, mode):
    rng = Random(f"binary {name}")
    stock = points(rng, 20)
    for _ in range(count(ci=150, soak=10_000)):
        x, y = rng.choice(stock), rng.choice(stock)

        def story(engine, x=x, y=y):
            V = engine.Value
            f = BINARY.get(name) or engine.function(name)
            g = (lambda a, b: f(a, b, 1.0)) if name == "where" else f
            a, b = V(x, label="x"), V(y)
            pairs = [(a, b), (a, y), (x, b), (a, a), (V(x) * 1, b)]
            return [in_mode(engine, mode, lambda p=p: made(engine, g, *p)) for p in pairs]

        both(story)


@pytest.mark.parametrize("symbol", COMPARISONS)
def test_comparisons_are_equal_everywhere(symbol):
    f = COMPARISONS[symbol]
    for x in SPECIAL:
        for y in SPECIAL:
            both(
                lambda e, x=x, y=y: [f(e.Value(x), e.Value(y)), f(e.Value(x), y), f(y, e.Value(x))]
            )


# --- numbers and other things as operands -------------------------------------------------------


class OwnFloat(float):
    def __float__(self):
        return 7.25


class OwnInt(int):
    def __float__(self):
        return 7.25


class Answers:
    """A class of the user's own that knows what to do with Values."""

    def __add__(self, other):
        return "own add"

    __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __add__
    __pow__ = __rpow__ = __lt__ = __gt__ = __le__ = __ge__ = __add__

    def __repr__(self):
        return "Answers()"


class Refuses:
    def __float__(self):
        return 1.0

    def __repr__(self):
        return "Refuses()"


class Explodes(Fraction):
    def __float__(self):
        raise RuntimeError("boom")


OPERANDS = [
    *(3, -2, 0, True, False, 2**70, 10**400, -(10**400), 0.5, -0.0, math.nan, math.inf),
    *(np.float64(0.5), np.float32(0.1), np.int64(-3), np.int8(0), np.uint64(2**63), np.bool_(True)),
    *(np.float64("nan"), np.longdouble(0.1), np.float16(2.0), Fraction(1, 3), Fraction(0)),
    *(OwnFloat(2.0), OwnInt(2), Explodes(1), Answers(), Refuses(), Decimal(3), Decimal("0.1")),
    *(
        "3",
        b"3",
        None,
        1j,
        np.complex128(1j),
        [1.0],
        (1.0, 2.0),
        {},
        {1.0},
        object,
        print,
        range(3),
    ),
    *(np.array(2.0), np.array([1.0, 2.0]), np.array([]), np.str_("3"), NotImplemented, Ellipsis),
]
ALL_BINARY = (
    BINARY
    | COMPARISONS
    | {
        "maximum": lambda a, b: a.maximum(b),
        "minimum": lambda a, b: a.minimum(b),
        "hypot": lambda a, b: a.hypot(b),
        "pow 3": lambda a, b: pow(a, b, 3),
        "pow 3 last": lambda a, b: pow(2, a, b),
        "pow 3 third": lambda a, b: pow(b, 2, a),
        "divmod": divmod,
        "//": lambda a, b: a // b,
        "%": lambda a, b: a % b,
        "@": lambda a, b: a @ b,
        "&": lambda a, b: a & b,
        "__radd__": lambda a, b: a.__radd__(b),
        "__rsub__": lambda a, b: a.__rsub__(b),
        "__rmul__": lambda a, b: a.__rmul__(b),
        "__rtruediv__": lambda a, b: a.__rtruediv__(b),
        "__rpow__": lambda a, b: a.__rpow__(b),
        "__eq__": lambda a, b: a.__eq__(b),
        "__ne__": lambda a, b: a.__ne__(b),
        "__lt__": lambda a, b: a.__lt__(b),
    }
)


def plain(engine, result):
    if isinstance(result, engine.Value):
        return graph(engine, result)
    if isinstance(result, np.ndarray):
        return [plain(engine, x) for x in result.ravel()]
    return type(result).__name__, repr(result)


@pytest.mark.parametrize("other", OPERANDS, ids=lambda x: f"{type(x).__name__} {x!r:.12}")
def test_operators_treat_every_operand_alike(other):
    for name, f in ALL_BINARY.items():
        if name.startswith("pow 3") and isinstance(other, Decimal):
            continue  # Python 3.13.0 itself crashes in pow(2, object(), Decimal(3))
        both(lambda e, f=f: plain(e, outcome(f, e.Value(2.0, label="v"), other)))
        both(lambda e, f=f: plain(e, outcome(f, other, e.Value(2.0, label="v"))))


@pytest.mark.parametrize("name", ALL_BINARY)
def test_operators_treat_two_values_alike(name):
    f = ALL_BINARY[name]

    def story(engine):
        a, b = engine.Value(2.0, label="a"), engine.Value(3.0, label="b")
        results = [outcome(f, a, b), outcome(f, a, a), outcome(f, b, a * 2)]
        return [plain(engine, r) for r in results]

    both(story)


@pytest.mark.parametrize("wrong", OPERANDS, ids=lambda x: f"{type(x).__name__} {x!r:.12}")
def test_whatever_is_given_where_a_number_belongs_is_treated_alike(wrong):
    def story(engine):
        V, results = engine.Value, []
        v, a = V(2.0) * 3, V(1.0)

        def try_(f):
            result = outcome(f)
            results.append(plain(engine, result))

        try_(lambda: V(wrong))
        try_(lambda: V(wrong, label="x"))
        try_(lambda: V(data=wrong))
        try_(lambda: setattr(v, "data", wrong))
        try_(lambda: setattr(v, "grad", wrong))
        try_(lambda: setattr(v, "label", wrong))
        try_(lambda: v.backward(wrong))
        try_(lambda: v.backward(gradient=wrong))
        try_(lambda: V(1.0, wrong, (1.0,)))
        try_(lambda: V(1.0, (wrong,), (1.0,)))
        try_(lambda: V(1.0, (a,), (wrong,)))
        try_(lambda: V(1.0, (a,), wrong))
        try_(lambda: V(1.0, (a,), (1.0,), op=wrong))
        try_(lambda: V(1.0, label=wrong))
        try_(lambda: engine.vsum([wrong]))
        try_(lambda: engine.vsum([a, wrong]))
        try_(lambda: engine.vsum(wrong))
        try_(lambda: engine.dot([a], [wrong]))
        try_(lambda: engine.dot([wrong], [a]))
        try_(lambda: engine.dot([wrong], [2.0]))
        try_(lambda: engine.dot([a], wrong))
        try_(lambda: engine.linear([a], [[wrong]]))
        try_(lambda: engine.linear(wrong, [[a]]))
        try_(lambda: engine.linear([a], wrong))
        try_(lambda: engine.topological_order(wrong))
        try_(lambda: V._apply_op(ops.tanh, (wrong,), ()))
        try_(lambda: V._apply_op(ops.clip, (a,), (wrong, 1.0)))
        try_(lambda: a.clip(wrong, 3.0))
        return results, graph(engine, v, a)

    both(story)


CALLS = {
    "no data": lambda V: V(),
    "too many": lambda V: V(1.0, (), (), "", 5),
    "unknown keyword": lambda V: V(1.0, colour="red"),
    "twice": lambda V: V(1.0, data=2.0),
    "backward of two": lambda V: V(1.0).backward(1.0, 2.0),
    "zero_grad of one": lambda V: V(1.0).zero_grad(1.0),
    "delete data": lambda V: delattr(V(1.0), "data"),
    "delete grad": lambda V: delattr(V(1.0), "grad"),
    "delete label": lambda V: delattr(V(1.0), "label"),
    "unknown attribute": lambda V: V(1.0).colour,
    "set unknown attribute": lambda V: setattr(V(1.0), "colour", 1),
    "set op": lambda V: setattr(V(1.0), "op", "+"),
    "set children": lambda V: setattr(V(1.0), "children", ()),
    "set local_grads": lambda V: setattr(V(1.0), "local_grads", ()),
    "set _prev": lambda V: setattr(V(1.0), "_prev", ()),
    "set _backward": lambda V: setattr(V(1.0), "_backward", lambda: None),
    "float": lambda V: float(V(1.0)),
    "int": lambda V: int(V(1.0)),
    "complex": lambda V: complex(V(1.0)),
    "round to digits": lambda V: round(V(1.0), 2),
    "index": lambda V: [1, 2][V(1.0)],
    "len": lambda V: len(V(1.0)),
    "call": lambda V: V(1.0)(),
    "item": lambda V: V(1.0)[0],
    "iteration": lambda V: iter(V(1.0)),
    "math.exp": lambda V: math.exp(V(1.0)),
    "bad format": lambda V: format(V(1.0), "q"),
    "init again": lambda V: V(1.0).__init__(2.0),
    "init again, slow": lambda V: V(1.0).__init__(2.0, label="x"),
    "init interior again": lambda V: (V(1.0) * 2).__init__(2.0),
    "maximum of none": lambda V: V(1.0).maximum(),
    "exp of one": lambda V: V(1.0).exp(2.0),
    "too few for a row": lambda V: V(1.0).hypot(),
    "children without slopes": lambda V: V(1.0, (V(2.0),)),
    "slopes without children": lambda V: V(1.0, (), (1.0,)),
    "one slope too many": lambda V: V(1.0, (V(2.0),), (1.0, 2.0)),
    "unknown op": lambda V: V(1.0, (V(2.0),), "nonsense"),
    "op of another arity": lambda V: V(1.0, (V(2.0),), "+"),
    "weak reference": lambda V: __import__("weakref").ref(V(1.0)),
    "vars": lambda V: vars(V(1.0)),
}


@pytest.mark.parametrize("call", CALLS)
def test_wrong_calls_raise_the_same_error(call):
    """The type always; the message too unless Python's own argument parser words it."""
    worded_by_python = {
        "no data", "too many", "unknown keyword", "twice", "backward of two", "zero_grad of one",
        "maximum of none", "exp of one", "delete data", "delete grad", "delete label", "set op",
        "set children", "set local_grads", "set _prev",
    }  # fmt: skip

    def story(engine):
        result = outcome(CALLS[call], engine.Value)
        assert isinstance(result, tuple), "the call must be wrong"
        return result[0] if call in worded_by_python else result

    both(story)


def test_undefined_values_name_the_same_operands_and_places():
    def story(engine):
        V = engine.Value

        def line(f):
            return in_mode(engine, "debug", lambda: outcome(f))

        def inside():
            p = V(1.0, label="price") - V(2.0)
            p.label = "p"
            return p.log()

        def unlabelled():
            return (V(1.0) * -3).sqrt()

        def by_number():
            return V(2.0, label="w") / 0

        def sum_of_large():
            return engine.vsum([V(1e308, label="big"), V(1e308)])

        def product_of_large():
            return engine.dot([V(1e200)], [V(1e200, label="b")])

        def power():
            return V(-2.0, label="base") ** V(0.5, label="exponent")

        calls = (inside, unlabelled, by_number, sum_of_large, product_of_large, power)
        return [line(f) for f in calls]

    results = both(story)
    assert all(isinstance(r, tuple) for r in results)
    assert "'p' came from + of 'price'" in results[0][1]
    assert "test_native_equality.py:" in results[0][1]


# --- subclasses ---------------------------------------------------------------------------------


def overriding(Value, calls):
    class Own(Value):
        def __add__(self, other):
            calls.append("add")
            return super().__add__(other)

        def __radd__(self, other):
            calls.append("radd")
            return super().__radd__(other)

        def __mul__(self, other):
            calls.append("mul")
            return super().__mul__(other)

        def __rmul__(self, other):
            calls.append("rmul")
            return super().__rmul__(other)

        def __pow__(self, other, modulo=None):
            calls.append("pow")
            return super().__pow__(other)

        def __eq__(self, other):
            calls.append("eq")
            return self.data == getattr(other, "data", other)

        __hash__ = Value.__hash__

    return Own


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: a + b,
        lambda a, b: b + a,
        lambda a, b: a - b,
        lambda a, b: b - a,
        lambda a, b: a * b,
        lambda a, b: b * a,
        lambda a, b: a / b,
        lambda a, b: b / a,
        lambda a, b: a**2,
        lambda a, b: -a,
        lambda a, b: a - 2,
        lambda a, b: 2 - a,
        lambda a, b: a / 2,
        lambda a, b: 2 / a,
        lambda a, b: 2 + a,
        lambda a, b: 2 * a,
        lambda a, b: sum([a, b, a]),
    ],
)
def test_operators_of_a_subclass_call_its_own_methods(f):
    def story(engine):
        calls = []
        Own = overriding(engine.Value, calls)
        y = f(Own(2.0), engine.Value(3.0))
        calls.append("then")
        y2 = f(Own(2.0), Own(3.0))
        return calls, graph(engine, y), graph(engine, y2)

    both(story)


def closed(Value, calls):
    """A subclass whose operators give instances of the subclass."""

    def own(name):
        def operator(self, *others):
            calls.append(name)
            made = getattr(super(Closed, self), name)(*others)
            if not isinstance(made, Value):
                return made
            return Closed(made.data, made.children, made.local_grads, op=made.op)

        return operator

    class Closed(Value):
        pass

    for name in "__add__ __radd__ __mul__ __rmul__ __pow__ __neg__".split():
        setattr(Closed, name, own(name))
    return Closed


@pytest.mark.parametrize(
    "f",
    [
        lambda c, v: 2 - c,
        lambda c, v: 2 / c,
        lambda c, v: c - 2,
        lambda c, v: c / 2,
        lambda c, v: v - c,
        lambda c, v: v / c,
        lambda c, v: c - v,
        lambda c, v: c / v,
        lambda c, v: c - c,
        lambda c, v: c / c,
        lambda c, v: -c,
        lambda c, v: 2**c,
        lambda c, v: c**v,
        lambda c, v: v**c,
        lambda c, v: sum([c, v, c]),
    ],
)
def test_operators_of_a_subclass_that_returns_itself(f):
    def story(engine):
        calls = []
        y = f(closed(engine.Value, calls)(2.0), engine.Value(3.0))
        return calls, graph(engine, y)

    both(story)


def test_equality_of_a_subclass_is_its_own():
    def story(engine):
        Own = overriding(engine.Value, [])
        a, b, c = Own(2.0), Own(2.0), engine.Value(2.0)
        pairs = [(a, b), (a, a), (a, c), (c, a), (a, 2.0), (2.0, a), (c, c), (c, engine.Value(2.0))]
        return [(x == y, x != y) for x, y in pairs]

    assert both(story)[0] == (True, False)


def test_sums_of_subclasses_call_their_own_methods():
    def story(engine):
        calls = []
        Own = overriding(engine.Value, calls)
        a, b = [Own(2.0), engine.Value(3.0), Own(4.0)], [engine.Value(5.0), Own(6.0), 7]
        roots = [engine.vsum(a), engine.dot(a, b), engine.dot(b, a), *engine.linear(a, [b, a])]
        return calls, graph(engine, *roots)

    both(story)


def test_methods_put_on_the_class_are_found():
    for engine in ENGINES:
        original = engine.Value.sigmoid
        try:
            engine.Value.sigmoid = lambda self: "mine"
            engine.Value.double = lambda self: self * 2
            assert engine.Value(1.0).sigmoid() == "mine"
            assert engine.Value(1.5).double().data == 3.0
        finally:
            engine.Value.sigmoid = original
            del engine.Value.double
        assert engine.Value(0.0).sigmoid().data == 0.5


def test_a_node_built_by_new_alone_behaves_alike():
    def story(engine):
        V = engine.Value
        results = []

        def blank():
            return V.__new__(V)

        v = blank()
        results.append(described(v)[:4])
        v.label, v.grad, v.data = "x", 3.0, 2.0
        results.append(repr(v))
        v.__init__(1.0)
        results += [repr(v), outcome(v.__init__, 2.0), repr(v)]
        v = blank()
        v.label, v.grad = "x", 3.0
        v.__init__(1.0, (V(2.0),), (3.0,), op="mine")
        results += [repr(v), graph(engine, v)]
        for wrong in (10**400, "1", None, Explodes(1)):
            v = blank()
            results += [outcome(v.__init__, wrong), repr(v), outcome(v.__init__, 4), repr(v)]
        v = blank()
        y = v * 2 + v
        y.backward()
        results += [repr(v), y.data]
        v = blank()
        v.backward(2.0)
        v.zero_grad()
        results += [repr(v), repr(copy.copy(v)), repr(copy.deepcopy(v))]
        return results

    both(story)


def test_a_constructor_entered_again_from_a_number_builds_once():
    def story(engine):
        V = engine.Value
        results = []
        for arguments in [
            (3.0, (V(1.0), V(2.0)), "+"),
            (3.0,),
            (3.0, (V(1.0),), (1.0,)),
            (3.0, (V(2.0),), "**2"),
        ]:

            class Nested(Fraction):
                def __float__(self, arguments=arguments):
                    v.__init__(*arguments)
                    return 7.0

            v = V.__new__(V)
            results.append(outcome(v.__init__, Nested(1)))
            results.append(graph(engine, v))
            v = V.__new__(V)
            results.append(outcome(lambda v=v: v.__init__(1.0, (V(5.0),), (Nested(1),), op="mine")))
            results.append(graph(engine, v))
        return results

    both(story)


# --- names --------------------------------------------------------------------------------------


def test_the_classes_have_the_same_names():
    names = [{n for n in dir(e.Value) if not n.startswith("_")} for e in ENGINES]
    assert names[0] == names[1]
    seeds = {"_op", "_prev", "_children", "_local_grads", "_backward"}
    for engine in ENGINES:
        assert seeds <= set(dir(engine.Value))
        assert engine.Value.__name__ == engine.Value.__qualname__ == "Value"
        assert engine.Value.__module__ == "chainrule"


def test_the_classes_have_the_same_signatures():
    def story(engine):
        callables = [engine.Value, engine.topological_order, engine.vsum, engine.dot, engine.linear]
        callables += [engine.Value.backward, engine.Value.zero_grad]
        return [
            [
                (p.name, p.default, p.kind)
                for p in inspect.signature(f).parameters.values()
                if p.name != "self"
            ]
            for f in callables
        ]

    both(story)


def test_both_engines_take_the_same_keywords():
    def story(engine):
        a = engine.Value(2.0)
        calls = [
            lambda: engine.vsum(values=[a]),
            lambda: engine.dot(a=[a], b=[a]),
            lambda: engine.linear(x=[a], w=[[a]]),
            lambda: engine.topological_order(value=a),
            lambda: a.backward(gradient=1.0),
            lambda: engine.Value(data=1.0, children=(a,), local_grads=(1.0,), label="l", op="o"),
            lambda: engine.Value(1.0, _children=(a,), _op="tanh"),
        ]
        return [outcome(f)[0] if isinstance(outcome(f), tuple) else "fine" for f in calls]

    both(story)


# --- vsum, dot, linear --------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 3, 17, 100])
def test_sums_have_the_reference_engines_nodes(n):
    def story(engine):
        rng = Random(n)

        def vector():
            draws = [rng.uniform(-2, 2) for _ in range(n)]
            return [x if rng.random() < 0.2 else engine.Value(x) for x in draws]

        a, b, w = vector(), vector(), [vector() for _ in range(3)]
        roots = [
            engine.vsum(a),
            engine.vsum(iter(a)),
            engine.vsum(tuple(b)),
            engine.dot(a, b),
            engine.dot(iter(a), a),
            engine.dot(tuple(b), b),
            *engine.linear(a, w),
            *engine.linear(tuple(b), iter(w)),
        ]
        for root in roots:
            assert type(root) is engine.Value
            root.backward()
            root.backward(0.5)
        return graph(engine, *roots)

    both(story)


def test_sums_of_plain_numbers_are_values():
    both(
        lambda e: [
            described(e.vsum([0.1] * 10)),
            described(e.vsum([1, 2, 3])),
            described(e.vsum([True, 0.5])),
            described(e.dot([0.1] * 10, [0.7] * 10)),
            described(e.dot([1], [2])),
            *map(described, e.linear([0.1, 0.2], [[0.3, 0.4]])),
            e.linear([], []),
            *map(described, e.linear([], [[], []])),
        ]
    )


def test_sums_whose_iterator_fails_pass_the_error_on():
    def failing(v):
        yield v
        raise KeyError("from the iterator")

    def story(engine):
        v = engine.Value(1.0)
        calls = [
            lambda: engine.vsum(failing(v)),
            lambda: engine.dot(failing(v), [v]),
            lambda: engine.dot([v], failing(v)),
            lambda: engine.linear([v], [failing(v)]),
            lambda: engine.linear(failing(v), [[v]]),
            lambda: engine.linear([v], failing([v])),
        ]
        return [outcome(f) for f in calls]

    assert set(both(story)) == {("KeyError", "'from the iterator'")}


# --- copies, also from one engine to the other --------------------------------------------------

DUMP = """
import pickle, sys
from random import Random
import chainrule
from chainrule import Value, topological_order
from number_systems import chainrule_functions
from programs import ALL_OPS, random_program, run
assert chainrule.engine == sys.argv[1], chainrule.engine
roots = []
for i in range(int(sys.argv[2])):
    program = random_program(Random(f"pickle {i}"), ALL_OPS, 3, 25)
    values = run(program, map(Value, program.inputs), chainrule_functions())
    values[0].label = "first"
    values[-1].label = "é"
    roots.append(Value(1.0, (values[-1], values[0], values[-2]), (0.5, 2.0, -1.0), op="mine"))
    roots[-1].backward()
    roots[-1].backward()
print(pickle.dumps(roots, int(sys.argv[3])).hex())
"""
LOAD = """
import json, pickle, sys
import chainrule
from chainrule import topological_order
assert chainrule.engine == sys.argv[1], chainrule.engine
rows = []
for root in pickle.loads(bytes.fromhex(open(sys.argv[2]).read())):
    assert type(root) is chainrule.Value
    for _ in range(2):
        order = topological_order(root)
        places = {v: i for i, v in enumerate(order)}
        rows.append([
            [v.data.hex(), v.grad.hex(), v.label, v.op, [x.hex() for x in v.local_grads],
             list(v._parameters), [places[c] for c in v.children]] for v in order])
        root.backward()
print(json.dumps(rows))
"""


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickles_travel_between_the_engines(protocol, tmp_path):
    told = []
    for writer in ("reference", "native"):
        dumped = run_python(DUMP, writer, count(ci=10, soak=200), protocol, CHAINRULE_ENGINE=writer)
        path = tmp_path / writer
        path.write_text(dumped)
        for reader in ("reference", "native"):
            told.append(json.loads(run_python(LOAD, reader, path, CHAINRULE_ENGINE=reader)))
    assert len(told[0]) == 2 * count(ci=10, soak=200)
    assert all(t == told[0] for t in told)


# --- modes --------------------------------------------------------------------------------------


def test_modes_answer_alike():
    def story(engine):
        modes = engine.modes
        results = []
        for name in ("grad", "allow_nonfinite", "debug"):
            before = getattr(modes, name)
            results.append(before)
            for setting in (True, False, 1, 0, "yes", ""):
                setattr(modes, name, setting)
                results.append(bool(getattr(modes, name)))
            setattr(modes, name, before)
        results.append(outcome(lambda: modes.unknown)[0])
        results.append(outcome(lambda: delattr(modes, "unknown"))[0])
        return results

    both(story)


def test_deleting_a_mode_does_not_switch_it():
    for engine in ENGINES:
        with pytest.raises(AttributeError):
            in_new_thread(lambda engine=engine: delattr(engine.modes, "grad"))
        assert engine.modes.grad


def in_new_thread(f):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(f).result()


def test_references_are_not_lost():
    """Operations on shared objects leave their reference counts as they were."""
    a, b, label, word = NATIVE.Value(2.0), NATIVE.Value(3.0), "a label of its own", "mine too"
    word = "".join([word, "!"])
    label = "".join([label, "!"])
    watched = [a, b, label, word, NATIVE.Value, ops.tanh, ops.add]
    if sys.version_info < (3, 12):  # where None is counted
        watched.append(None)
    before = [sys.getrefcount(x) for x in watched]
    for _ in range(200):
        y = NATIVE.Value(1.0, (a, b, a), (1.0, 2.0, 3.0), op=word, label=label)
        z = (y * a + b).tanh() - 3
        z.label = label
        z.backward()
        z.zero_grad()
        copy.deepcopy(z), copy.copy(z), NATIVE.topological_order(z)
        z.children, z.local_grads, z.op, z._parameters, z._rule, z.label
        outcome(lambda: (a * 0).log())
        outcome(lambda: a + "x")
        NATIVE.dot([a, b], [b, 2.0]), NATIVE.vsum([a, b]), NATIVE.linear([a], [[b], [a]])
        outcome(lambda: NATIVE.dot([a, b], [a]))
        outcome(lambda: NATIVE.Value(1.0, (a, b), (1.0,)))
        outcome(lambda: NATIVE.Value(1.0, (a, "x"), (1.0, 2.0)))
        outcome(lambda: a.__init__(2.0))
        outcome(lambda: setattr(a, "label", None))
    del y, z
    after = [sys.getrefcount(x) for x in watched]
    assert [abs(n - m) < 20 for n, m in zip(before, after, strict=True)] == [True] * len(watched), (
        before,
        after,
    )


def test_the_reference_engine_is_the_other_one():
    """A test of the test: two engines, not one twice."""
    assert REFERENCE.Value is not NATIVE.Value
    assert "chainrule.core.reference" in REFERENCE.vsum.__module__
    assert isinstance(NATIVE.vsum, type(len))
    assert Const(1) == Const(1)


def sign_and_type(run):
    try:
        number = run().data
    except Exception as error:
        return type(error).__name__, str(error)
    return number, math.copysign(1.0, number), type(number)


OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv)


@pytest.mark.parametrize("operate", OPERATORS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("x", [0.0, -0.0, 1.5, -2.0, 5e-324, 1e308, math.inf, math.nan])
@pytest.mark.parametrize("a", [0.0, -0.75, 1e308])
def test_a_float64_of_numpy_is_a_float_as_an_operand(operate, x, a):
    for swapped in (False, True):
        found = []
        for engine in ENGINES:
            for kind in (float, np.float64):
                pair = [engine.Value(a), kind(x)][:: -1 if swapped else 1]
                found.append(sign_and_type(lambda pair=pair: operate(*pair)))
        assert repr(found) == repr([found[0]] * 4)


def test_a_subclass_of_float_answers_for_itself():
    class Doubled(float):
        def __float__(self):
            return 2.0 * float.__add__(self, 0.0)

    for engine in ENGINES:
        assert (engine.Value(1.0) + Doubled(3.0)).data == 7.0
        assert (engine.Value(1.0) - Doubled(3.0)).data == -5.0
