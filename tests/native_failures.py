"""Allocation failure at every allocation of every entry point; run by test_native_memory.py.

A case prepares a graph, does one thing while Python's allocators fail at the n-th allocation (only
there, or from there on), and then looks at what is left: the gradients must be all old or all new,
and a pass over the graph must give the right numbers, which also shows that no node stayed marked.
n grows until the thing succeeds, one by one in soak, faster and faster otherwise. This runs in a
process of its own, which a crash may take down.
"""

import collections
import copy
import dataclasses
import gc
import math
import os
import pickle
import sys
import types
from dataclasses import dataclass, field
from types import GetSetDescriptorType
from typing import Any

import numpy as np
import pytest
from native_engines import NATIVE, REFERENCE
from native_parts import (
    DerivedEntrance,
    bound_to,
    decider_parts,
    entered,
    gate_for,
    packing_parts,
    plan_call,
    plan_parts,
    vector_call,
    vector_parts,
)
from native_tapes import linearize

from chainrule import _native
from chainrule.compiler.capture.arrays import ARRAY_TYPES
from chainrule.compiler.capture.hooks import HOOK_PARTS
from chainrule.compiler.capture.recorder import Recorder
from chainrule.core import ops
from chainrule.core.native import Value, dot, linear, topological_order, vsum

_testcapi = pytest.importorskip("_testcapi", reason="this Python cannot let allocations fail")
Reference, reference_order = REFERENCE.Value, REFERENCE.topological_order
assert NATIVE.Value is Value


class Sub(Value):
    pass


class Slotted(Value):
    __slots__ = ("extra",)


class Bare(Value):
    __slots__ = ()


class Parameter(Value):
    """With attributes, to be pickled."""


@dataclass
class State:
    """One graph: y = tanh(a*b + a*2 - 3) * a + max(b, 0.5) + erf(a) + custom(a, b, c)."""

    kind: Any = Value
    a: Any = None
    b: Any = None
    c: Any = None
    y: Any = None
    nodes: list[Any] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def build(self) -> "State":
        a, b, c = self.a, self.b, self.c = self.kind(0.5), self.kind(-0.25), self.kind(1.5)
        inner = (a * b + a * 2 - 3).tanh() * a + b.maximum(0.5) + a.erf()
        custom = type(a)(1.25, (a, b, c, inner), (1.0, 2.0, 3.0, 0.5), op="mine")
        self.y = custom * 0.5 + a**2
        return self

    def gradients(self) -> list[float]:
        return [v.grad for v in (self.a, self.b, self.c, self.y)]

    def enlarge(self) -> "State":
        """So much below y that every buffer of a walk grows: depth, leaves, number operands."""
        y = self.y
        for i in range(1500):
            y = y * 1.0 + self.kind(0.0) if i % 2 else y * 0.5 + y * 0.5
            self.nodes.append(y)
        self.y = y
        return self


def expected(passes: int) -> list[float]:
    state = State(Reference).build()
    for _ in range(passes):
        state.y.backward()
    return state.gradients()


EXPECTED = [expected(i) for i in range(4)]


def all_nodes(y: Any, order: Any) -> list[tuple[Any, ...]]:
    return [(v.data, v.grad, v.op, v.local_grads, v.label) for v in order(y)]


def swept_twice(large: bool) -> list[tuple[Any, ...]]:
    """Every node of the reference engine's graph after two passes."""
    state = State(Reference).build()
    if large:
        state.enlarge()
    state.y.backward()
    state.y.backward()
    return all_nodes(state.y, reference_order)


SWEPT_TWICE = {large: swept_twice(large) for large in (False, True)}


def assert_sound(state: State) -> None:
    """The graph still works, from whatever gradients it has."""
    y = state.y
    y.zero_grad()
    assert state.gradients() == [0.0] * 4, state.gradients()
    y.backward()
    assert state.gradients() == EXPECTED[1], (state.gradients(), EXPECTED[1])
    y.backward()
    assert state.gradients() == EXPECTED[2], (state.gradients(), EXPECTED[2])
    nodes = all_nodes(y, topological_order)
    assert nodes == SWEPT_TWICE[len(nodes) > 1000]


# --- the cases ----------------------------------------------------------------------------------

Case = Any
CASES: dict[str, Case] = {}


def case(
    name: str, act: Any, *, prepare: Any = None, passes: tuple[int, ...] = (0,), **more: Any
) -> None:
    """`passes`: how many passes the gradients may show afterwards (old ones, new ones)."""
    CASES[name] = (act, prepare or (lambda: State().build()), passes, more)


def swept(n: int, kind: Any = Value) -> Any:
    def prepare() -> State:
        state = State(kind).build()
        for _ in range(n):
            state.y.backward()
        return state

    return prepare


def large(n: int, kind: Any = Value) -> Any:
    def prepare() -> State:
        state = State(kind).build().enlarge()
        for _ in range(n):
            state.y.backward()
        return state

    return prepare


def looked_at(n: int) -> Any:
    def prepare() -> State:
        state = swept(n)()
        topological_order(state.y)
        return state

    return prepare


def with_extra(passes: int, /, **make: Any) -> Any:
    def prepare() -> State:
        state = swept(passes)()
        state.extra = {name: f(state) for name, f in make.items()}
        return state

    return prepare


# making nodes
case("leaf", lambda s: Value(1.5))
case("leaf of an int", lambda s: Value(3))
case("leaf of a numpy number", lambda s: Value(np.float32(0.5)))
case("a float64 of numpy as an operand", lambda s: Value(1.5) - np.float64(0.5))
case("labelled leaf", lambda s: Value(1.5, label="name"))
case(
    "custom node",
    lambda s: Value(1.5, (s.a, s.b, s.c, s.y), (1.0, 2.0, 3.0, 4.0), op="mine", label="l"),
)
case("custom node of one", lambda s: Value(1.5, (s.a,), (1.0,), op="mine"))
case("node by symbol", lambda s: Value(1.5, (s.a, s.b), "+"))
case("node by power", lambda s: Value(1.5, (s.a,), "**3"))
for _cls in (Sub, Slotted, Bare):
    case(f"leaf of {_cls.__name__}", lambda s, cls=_cls: cls(1.5))
    case(
        f"node of {_cls.__name__}", lambda s, cls=_cls: cls(1.5, (s.a, s.b), (1.0, 2.0), label="l")
    )
_OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
    "<": lambda a, b: a < b,
    "==": lambda a, b: a == b,
}
for _symbol, _f in _OPERATORS.items():
    case(f"a {_symbol} b", lambda s, f=_f: f(s.a, s.b))
    case(f"a {_symbol} 2.0", lambda s, f=_f: f(s.a, 2.0))
    case(f"a {_symbol} 2", lambda s, f=_f: f(s.a, 2))
    case(f"2.0 {_symbol} a", lambda s, f=_f: f(2.0, s.a))
    case(f"2 {_symbol} a", lambda s, f=_f: f(2, s.a))
    case(f"a {_symbol} numpy", lambda s, f=_f: f(s.a, np.float32(2.0)))
    case(f"subclass {_symbol} 2.0", lambda s, f=_f: f(s.a, 2.0), prepare=swept(0, Sub))
    case(f"subclass {_symbol} subclass", lambda s, f=_f: f(s.a, s.b), prepare=swept(0, Sub))
    case(f"2.0 {_symbol} subclass", lambda s, f=_f: f(2.0, s.a), prepare=swept(0, Sub))
    if _symbol != "==":
        case(f"a {_symbol} text", lambda s, f=_f: f(s.a, "x"), raises=TypeError)
        case(f"a {_symbol} complex", lambda s, f=_f: f(s.a, 1j), raises=TypeError)
case("-a", lambda s: -s.a)
case("abs(a)", lambda s: abs(s.a))
case("bool(a)", lambda s: bool(s.a))
case("hash(a)", lambda s: hash(s.a))
for (
    _name
) in "exp log relu abs tanh sigmoid sqrt sin cos erf softplus expm1 clip leaky_relu".split():
    case(_name, lambda s, name=_name: getattr(s.a, name)())
case("maximum", lambda s: s.a.maximum(s.b))
case("maximum of a number", lambda s: s.a.maximum(0.5))
case("minimum", lambda s: s.a.minimum(0.5))
case("undefined log", lambda s: s.b.log(), raises=ValueError)
case("undefined sum", lambda s: Value(1e308) + Value(1e308), raises=OverflowError)
case("undefined division", lambda s: s.a / 0, raises=ZeroDivisionError)
case("undefined power", lambda s: s.b**0.5, raises=ValueError)


def usual_modes() -> None:
    modes = _native.modes
    modes.grad, modes.allow_nonfinite, modes.debug, modes.recorder = True, False, False, None


def in_mode(name: str, setting: bool, act: Any) -> Any:
    def inside(state: State) -> Any:
        modes = _native.modes
        setattr(modes, name, setting)
        try:
            return act(state)
        finally:
            usual_modes()

    return inside


case("debug +", in_mode("debug", True, lambda s: s.a + s.b), python=True)
case("debug + 2", in_mode("debug", True, lambda s: s.a + 2), python=True)
case("debug tanh", in_mode("debug", True, lambda s: s.a.tanh()), python=True)
case("debug erf", in_mode("debug", True, lambda s: s.a.erf()), python=True)
case("debug leaf", in_mode("debug", True, lambda s: Value(1.0)), python=True)
case(
    "debug undefined log",
    in_mode("debug", True, lambda s: s.b.log()),
    raises=ValueError,
    python=True,
)
case("no_grad +", in_mode("grad", False, lambda s: s.a + s.b))
case("no_grad erf", in_mode("grad", False, lambda s: s.a.erf()))
case("allowed log", in_mode("allow_nonfinite", True, lambda s: s.b.log()))


def recorded(act: Any) -> Any:
    """The same while a function is being recorded."""

    def inside(state: State) -> Any:
        _native.modes.recorder = state.extra["recorder"]
        try:
            return act(state)
        finally:
            usual_modes()

    return inside


def recording_is_whole(state: State, failed: bool) -> None:
    nodes = state.extra["recorder"].nodes
    assert [v.op for v in nodes] in ([], ["*"], ["*", "+"]), nodes
    assert all(v.data == state.a.data * w for v, w in zip(nodes, (-0.25, 0.75), strict=False))
    assert failed or len(nodes) == 2


case(
    "recorded operations",
    recorded(lambda s: s.a * s.b + s.a),
    prepare=with_extra(0, recorder=lambda s: Recorder()),
    check=recording_is_whole,
)
for _name, _f in {
    "recorded comparison": lambda s: s.a < 2.0,
    "recorded truth": lambda s: bool(s.a),
    "recorded power": lambda s: s.a**2,
    "recorded sum": lambda s: vsum([]),
    "recorded number": lambda s: s.a - s.b.data,
    "recorded maximum": lambda s: s.a.maximum(s.b.data),
    "recorded erf": lambda s: s.a.erf(),
}.items():
    case(_name, recorded(_f), prepare=with_extra(0, recorder=lambda s: Recorder()), python=True)


def written(s: State) -> Recorder:
    """A recorder whose nodes become instructions at once."""
    recorder = Recorder()
    recorder.nodes = _native.Instructions([s.a, s.b], [s.a, s.b], None)
    return recorder


def data(s: State) -> list[Any]:
    return _native.stand_ins(s.extra["recorder"], [s.a, s.b], float)


for _name, _f in {
    "stand_ins": data,
    "sums of stand-ins": lambda s: [
        x - y for x, y in zip(data(s), (-2.0, data(s)[0]), strict=True)
    ],
    "opposite of a stand-in": lambda s: -data(s)[0],
    "a stand-in beside a Value": lambda s: [s.a * data(s)[0], s.a - s.b.data, s.a + s.b.data],
    "choose": lambda s: _native.choose(data(s), ops.first_max, -math.inf),
    "a number that depends on Values, detached": lambda s: [s.a * s.b.data, s.a - s.b.data],
    "zip_items": lambda s: list(_native.zip_items(np.zeros(2), np.zeros((2, 1)), [s.a, s.b])),
    "items": lambda s: list(_native.items(np.zeros(2))),
    "asked": lambda s: [_native.asked(x, "data") for x in (s.a, [], 1.5)],
    "asked of a list": lambda s: _native.asked([], "append"),
    "read": lambda s: [_native.read([1.5], 0), _native.read({"w": [1]}, "w")],
    "called": lambda s: _native.called(len),
    "iadd": lambda s: _native.iadd([1], [2]),
    "imul": lambda s: _native.imul([1], 2),
    "ior": lambda s: _native.ior({1: 2}, {3: 4}),
    "ixor": lambda s: _native.ixor({1}, {2}),
    "isub": lambda s: _native.isub({1, 2}, {2}),
    "iand": lambda s: _native.iand({1, 2}, {2}),
    "imatmul": lambda s: _native.imatmul(np.eye(2), np.eye(2)),
    "itruediv": lambda s: _native.itruediv(np.ones(2), 2.0),
    "ifloordiv": lambda s: _native.ifloordiv(np.ones(2), 2.0),
    "imod": lambda s: _native.imod(np.ones(2), 2.0),
    "ipow": lambda s: _native.ipow(np.ones(2), 2.0),
    "ilshift": lambda s: _native.ilshift(np.ones(2, int), 2),
    "irshift": lambda s: _native.irshift(np.ones(2, int), 2),
}.items():
    case(_name, recorded(_f), prepare=with_extra(0, recorder=written), python=True)
case("set_hooks", lambda s: _native.set_hooks(*HOOK_PARTS))
case("set_arrays", lambda s: _native.set_arrays(*ARRAY_TYPES))
case(
    "recorded backward",
    recorded(lambda s: s.y.backward()),
    prepare=with_extra(1, recorder=lambda s: Recorder()),
    passes=(1,),
    raises=BaseException,
)

# gradients
case("backward", lambda s: s.y.backward(), passes=(0, 1))
case("backward of a numpy gradient", lambda s: s.y.backward(np.float64(1.0)), passes=(0, 1))
case("second backward", lambda s: s.y.backward(), prepare=swept(1), passes=(1, 2))
case("gradients", lambda s: s.y._gradients([s.a, s.y, s.a], False), passes=(0,))
case("gradients after a pass", lambda s: s.y._gradients([s.a], True), prepare=swept(1), passes=(1,))
case("third backward", lambda s: s.y.backward(), prepare=swept(2), passes=(2, 3))
case("backward after a look", lambda s: s.y.backward(), prepare=looked_at(1), passes=(1, 2))
case(
    "backward of subclass instances", lambda s: s.y.backward(), prepare=swept(1, Sub), passes=(1, 2)
)
case("zero_grad", lambda s: s.y.zero_grad(), prepare=swept(0))
case("zero_grad after backward", lambda s: s.y.zero_grad(), prepare=swept(1), passes=(1, 0))
case(
    "manual step", lambda s: s.extra["n"]._backward(), prepare=with_extra(0, n=lambda s: s.a * 3.0)
)
case("private order", lambda s: s.y._order(), prepare=swept(1), passes=(1,))
case("wrong gradient", lambda s: s.y.backward("x"), prepare=swept(1), passes=(1,), raises=TypeError)

# looking
case("topological_order", lambda s: topological_order(s.y), prepare=swept(1), passes=(1,))
case("topological_order again", lambda s: topological_order(s.y), prepare=looked_at(1), passes=(1,))
case("children", lambda s: s.y.children, prepare=swept(1), passes=(1,))
case(
    "children of a number operation",
    lambda s: s.y.children[0].children,
    prepare=swept(1),
    passes=(1,),
)
case(
    "children of a custom node",
    lambda s: s.extra["n"].children,
    prepare=with_extra(1, n=lambda s: s.y.children[0].children[0]),
    passes=(1,),
)
case("local_grads", lambda s: s.y.children[0].local_grads, prepare=swept(1), passes=(1,))
case("op", lambda s: (s.y.op, s.y.children[1].op, s.y.children[0].op))
case("_parameters", lambda s: s.extra["n"]._parameters, prepare=with_extra(0, n=lambda s: s.a**2))
for _name in [n for n, d in vars(Value).items() if isinstance(d, GetSetDescriptorType)]:
    case(f"get {_name} of a leaf", lambda s, name=_name: getattr(s.a, name))
    case(
        f"get {_name} of a number operation",
        lambda s, name=_name: getattr(s.extra["n"], name),
        prepare=with_extra(1, n=lambda s: Value(2.0, label="l") * 3.0),
        passes=(1,),
    )
    case(
        f"get {_name} of a power",
        lambda s, name=_name: getattr(s.extra["n"], name),
        prepare=with_extra(0, n=lambda s: s.a**2),
    )
    case(
        f"get {_name} of a custom node",
        lambda s, name=_name: getattr(s.extra["n"], name),
        prepare=with_extra(1, n=lambda s: s.y.children[0].children[0]),
        passes=(1,),
    )
for _name in ("grad", "allow_nonfinite", "debug", "recorder"):
    case(f"get modes.{_name}", lambda s, name=_name: getattr(_native.modes, name))
case("repr", lambda s: (repr(s.y), f"{s.a:.3f}", str(s.b)))
case(
    "set data",
    lambda s: setattr(s.extra["v"], "data", 3),
    prepare=with_extra(0, v=lambda s: Value(1.0)),
)
case(
    "set grad",
    lambda s: setattr(s.extra["v"], "grad", 3),
    prepare=with_extra(0, v=lambda s: Value(1.0)),
)


for _name in ("data", "grad"):
    case(
        f"set {_name} to a numpy number",
        lambda s, name=_name: setattr(s.extra["v"], name, np.float32(3.0)),
        prepare=with_extra(0, v=lambda s: Value(1.0)),
    )


def swept_number_operation(state: State) -> Any:
    n = Value(2.0) * 3.0
    n.backward()
    return n


def grad_is_old_or_new(state: State, failed: bool) -> None:
    n = state.extra["n"]
    assert n.grad == (1.0 if failed else 7.0)
    assert [c.grad for c in n.children] == [3.0, 2.0]
    n.zero_grad()
    n.backward()
    assert [c.grad for c in n.children] == [3.0, 2.0]


case(
    "set grad of a swept number operation",
    lambda s: setattr(s.extra["n"], "grad", 7),
    prepare=with_extra(0, n=swept_number_operation),
    check=grad_is_old_or_new,
)
case(
    "set label",
    lambda s: setattr(s.extra["v"], "label", "name"),
    prepare=with_extra(0, v=lambda s: Value(1.0)),
)
case(
    "set label again",
    lambda s: setattr(s.extra["v"], "label", "name"),
    prepare=with_extra(0, v=lambda s: Value(1.0, label="old")),
)


def many_labels(room: int) -> Any:
    """So many that the side table, of `room` or more places so far, is about to grow."""

    def make(state: State) -> list[Any]:
        _, _, notes = _native.allocation_counts()
        enough = room
        while enough < 2 * (notes + 1):
            enough *= 2
        return [Value(1.0, label="x") for _ in range(enough // 2 - notes)]

    return make


case(
    "set label when the table is full",
    lambda s: setattr(s.extra["v"], "label", "name"),
    prepare=with_extra(0, v=lambda s: Value(1.0), hold=many_labels(64)),
)
case(
    "set location when the table is full",
    lambda s: s.extra["v"]._locate("file.py:1"),
    prepare=with_extra(0, v=lambda s: Value(1.0), hold=many_labels(4096)),
)
case("wrong label", lambda s: setattr(s.a, "label", 3), raises=TypeError)
case("init again", lambda s: s.a.__init__(1.0), raises=TypeError)


def build(rule: Any, parameters: tuple[float, ...], count: int) -> Any:
    def act(state: State) -> Any:
        children = (state.a, state.b, state.c)[:count]
        state.extra["n"]._build(1.5, 0.5, "l", rule, parameters, children, (2.0,) * count)

    return act


def unbuilt_or_built(state: State, failed: bool) -> None:
    n = state.extra["n"]
    built = bool(n.children)
    assert built == (not failed)
    assert n.data == (1.5 if built else 0.0)
    assert n.label == ("l" if built else "") or failed
    if failed:  # and it can be built then
        n._build(1.5, 0.5, "l", "word", (), (state.a, state.b), (2.0, 3.0))
        assert (n.data, n.children, n.local_grads) == (1.5, (state.a, state.b), (2.0, 3.0))


for _name, _act in {
    "a compact node": build(ops.mul, (), 2),
    "a compact power": build(ops.pow, (3.0,), 1),
    "a row's node": build(ops.erf, (), 1),
    "a custom node": build("word", (), 3),
}.items():
    case(
        f"build {_name}",
        _act,
        prepare=with_extra(0, n=lambda s: Value.__new__(Value)),
        check=unbuilt_or_built,
    )

# sums
case("vsum", lambda s: vsum([s.a, s.b, 2.0, s.c]))
case("where", lambda s: [_native.where(True, s.a, 1.5), _native.where(s.a, 0.5, s.b)])
case("clip", lambda s: [_native.clip(s.a, 0.0, 1), _native.clip(s.b, None, None)])
case("maximum", lambda s: [_native.maximum(*x) for x in ((s.a, s.b), (1.5, s.a), (s.a, 2))])
case("minimum", lambda s: [_native.minimum(*x) for x in ((s.a, s.b), (1.5, s.a), (s.a, 2))])
case("exchange", lambda s: _native.exchange({"a": s.a}, (("a", s.a, s.b), ("c", s.a, s.b))))
case("vsum of an iterator", lambda s: vsum(iter((s.a, s.b, s.c))))
case("vsum of nothing", lambda s: vsum([]))
case("vsum of numbers", lambda s: vsum([1.0, 2.0]))
case("dot", lambda s: dot([s.a, s.b, 2.0], [s.c, 3.0, s.a]))
case("dot of unequal lengths", lambda s: dot([s.a], [s.b, s.c]), raises=ValueError)
case("linear", lambda s: linear([s.a, s.b], [[s.c, s.a], [s.b, 1.0], [s.a, s.a]]))
case("dot of subclass instances", lambda s: dot([s.a, s.b], [s.c, s.c]), prepare=swept(0, Sub))

# arrays


def tape_parts(state: State) -> Any:
    n = (state.a * state.b + 2.0).erf() * state.a
    line = linearize(n)
    return len(line.leaves), *line.parts, line.rules, np.zeros(0, np.int32), np.zeros(0)


def tape(state: State) -> Any:
    return _native.Tape(*tape_parts(state))


def tape_still_runs(state: State, failed: bool) -> None:
    t = state.extra["t"]
    assert t.run(np.array([0.5, -0.25])) == (0, -1)
    out = np.zeros(2)
    t.sweep(5, 1.0, out)
    n = (state.a * state.b + 2.0).erf() * state.a
    state.y.zero_grad()
    n.backward()
    assert out.tolist() == [state.a.grad, state.b.grad]
    assert t.number(5) == n.data


case("Tape", lambda s: _native.Tape(*s.extra["parts"]), prepare=with_extra(0, parts=tape_parts))
case(
    "Tape.run",
    lambda s: s.extra["t"].run(s.extra["x"]),
    prepare=with_extra(0, t=tape, x=lambda s: np.array([0.5, -0.25])),
    check=tape_still_runs,
)


def tape_that_ran(state: State) -> Any:
    t = tape(state)
    t.run(np.array([0.5, -0.25]))
    return t


case(
    "Tape.sweep",
    lambda s: s.extra["t"].sweep(5, 1.0, s.extra["x"]),
    prepare=with_extra(0, t=tape_that_ran, x=lambda s: np.zeros(2)),
    check=tape_still_runs,
)
case(
    "Tape.number",
    lambda s: s.extra["t"].number(1),
    prepare=with_extra(0, t=tape_that_ran),
)
case(
    "Tape.numbers",
    lambda s: s.extra["t"].numbers(s.extra["positions"], s.extra["x"]),
    prepare=with_extra(
        0,
        t=tape_that_ran,
        positions=lambda s: np.array([5, 0], np.int32),
        x=lambda s: np.zeros(2),
    ),
    check=tape_still_runs,
)


case(
    "Tape.point",
    lambda s: s.extra["t"].point(s.extra["places"], s.extra["positions"]),
    prepare=with_extra(
        0,
        t=tape_that_ran,
        places=lambda s: np.array([7, 6], np.int32),  # the operands of the first instruction
        positions=lambda s: np.array([1, 0], np.int32),
    ),
    check=tape_still_runs,
)


def two_nodes(state: State) -> Any:
    n = state.a * state.b
    return [n, n + state.a]


case(
    "flatten",
    lambda s: _native.flatten(s.extra["i"], s.extra["n"]),
    prepare=with_extra(1, i=lambda s: [s.a, s.b], n=two_nodes),
    passes=(1,),
)


def recorded(state: State, like: Any = None) -> Any:
    """The instructions of a small function, and its result; ``like``: a recording to repeat."""
    written = _native.Instructions([state.a, state.b], [state.a, state.b], like)
    _native.modes.recorder = types.SimpleNamespace(nodes=written)
    try:
        y = (state.a * state.b + 2.0).tanh() * state.c
    finally:
        _native.modes.recorder = None
    return written.finish([state.c], [], [y])


def recorded_before(state: State) -> tuple[Any, ...]:
    rows, kinds = recorded(state)[0], (np.int32, np.int32, np.float64, np.uint8)
    return 3, *[np.frombuffer(row, kind) for row, kind in zip(rows, kinds, strict=True)]


def marked(state: State) -> Any:
    """The mark of the same function."""
    a, b, leaf = Value(state.a.data), Value(state.b.data), Value(1.0)
    noted = _native.Instructions([a, b], [], None, (1, 2))
    _native.modes.recorder = types.SimpleNamespace(nodes=noted)
    try:
        noted.choose(leaf, a, noted.candidates((a, b)), 3)
        y = (a * b + 2.0).tanh() * leaf
    finally:
        _native.modes.recorder = None
    return noted.mark(y), noted.hashed()


case("instructions", recorded, prepare=swept(1), passes=(1,))
case("instructions with marks", marked, prepare=swept(1), passes=(1,))
case(
    "instructions like others",
    lambda s: recorded(s, s.extra["before"]),
    prepare=with_extra(1, before=recorded_before),
    passes=(1,),
)
case(
    "instructions unlike others",
    lambda s: recorded(s, (3, *s.extra["like"])),
    prepare=with_extra(
        1,
        like=lambda s: [
            np.zeros(4, np.int32),
            np.zeros(12, np.int32),
            np.zeros(8),
            np.zeros(4, np.uint8),
        ],
    ),
    passes=(1,),
)
case(
    "exchanged gradients",
    lambda s: _native.swap_grads([s.a, s.b], s.extra["g"]),
    prepare=with_extra(1, g=lambda s: np.array([s.a.grad, s.b.grad])),
    passes=(1,),
)
case(
    "flatten a custom node",
    lambda s: _native.flatten([s.a, s.b, s.c], [s.y]),
    prepare=swept(1),
    passes=(1,),
)
case(
    "flatten twice the same",
    lambda s: _native.flatten(s.extra["i"], s.extra["i"]),
    prepare=with_extra(1, i=lambda s: [s.a, s.b]),
    passes=(1,),
    raises=ValueError,
)
case(
    "group_shapes",
    lambda s: _native.group_shapes(*s.extra["nodes"], 1, 8, True),
    prepare=with_extra(0, nodes=lambda s: (np.full(4, 2, np.uint8), np.arange(4) % 3)),
)
case(
    "gather",
    lambda s: _native.gather((s.a, s.b), s.extra["x"]),
    prepare=with_extra(0, x=lambda s: np.zeros(2)),
)
case(
    "compiled_node",
    lambda s: _native.compiled_node(1.0, "c", (s.a, s.b, s.y), s.extra["x"]),
    prepare=with_extra(0, x=lambda s: np.zeros(3)),
)


def checks(state: State) -> None:
    state.extra["found"] = None
    state.extra["found"] = _native.Checks(state.extra["checks"]).failed()


def all_is_the_same(state: State, failed: bool) -> None:
    assert state.extra["found"] == (None if failed else -1)


for _name, _check in {
    "a list": lambda s: ([s.a, s.b], (s.a, s.b)),
    "a dict": lambda s: ({"a": s.a}, ("a", s.a)),
    "names": lambda s: ({"a": s.a}, "a", s.a),
    "names without one": lambda s: ({"a": s.a}, "b", None, None),
    "attributes": lambda s: (s, "a", s.a),
    "attributes of a function": lambda s: (swept, "__code__", swept.__code__),
    "attributes without one": lambda s: (s, "missing", None, None),
}.items():
    case(
        f"checks of {_name}",
        checks,
        prepare=with_extra(0, checks=lambda s, check=_check: ((["x"], ("x",)), check(s))),
        check=all_is_the_same,
    )
case("checks of other things", lambda s: _native.Checks(((),)), raises=TypeError)
case("same bytes", lambda s: _native.same_bytes(np.ones(2), bytes(16)))
case("same bytes of other things", lambda s: _native.same_bytes(s, b""), raises=TypeError)


def passed(state: State) -> None:
    state.extra["found"] = None
    state.extra["found"] = _native.passed(state.extra["x"], np.ndarray, np.float64, True, {})


def all_is_passed(state: State, failed: bool) -> None:
    found = state.extra["found"]
    assert (found is None) is failed
    assert failed or found.ids == (*range(2000, 3000), 3000, 5000)


case(
    "passed",
    passed,
    prepare=with_extra(
        0,
        x=lambda s: (
            {"a": [0.5] * 100, "b": np.ones(2)},
            list(range(2000, 3000)),
            [np.ones((1, 2)), {("k", 1): 3000}],
            np.array([5000]),
        ),
    ),
    check=all_is_passed,
)
case(
    "passed other things", lambda s: _native.passed((1.0, [1, 2.0, s]), np.ndarray, float, True, {})
)


def same_array(x: Any, row: Any) -> Any:
    return x


@dataclasses.dataclass
class Record:
    w: Any


Pair = collections.namedtuple("Pair", "a b")
ARGUMENTS = _native.Arguments(
    np.ndarray,
    np.empty,
    (np.float64,),
    State,
    dataclasses.fields(Record)[0]._field_type,
    same_array,
    same_array,
)


def filled(state: State) -> None:
    # without a lambda: Python 3.12 crashes where that finds no memory
    state.extra["found"] = None
    state.extra["found"] = ARGUMENTS.with_values(state.extra["x"])


def all_is_filled(state: State, failed: bool) -> None:
    assert (state.extra["found"] is None) is failed
    assert state.extra["x"] == {"w": [0.5, (1.5, 2)], "b": {}, "p": Pair(1.0, Record([2.0]))}


case(
    "with_values",
    filled,
    prepare=with_extra(
        0, x=lambda s: {"w": [0.5, (1.5, 2)], "b": {}, "p": Pair(1.0, Record([2.0]))}
    ),
    check=all_is_filled,
)
case(
    "with_values of arrays",
    lambda s: ARGUMENTS.with_values(s.extra["x"]),
    prepare=with_extra(0, x=lambda s: [np.ones((2, 3)), np.arange(4), np.array(1.5)]),
)
case("with_values of other things", lambda s: ARGUMENTS.with_values([s]))
case(
    "with_numbers",
    lambda s: ARGUMENTS.with_numbers({"w": [0.5, (1.5, 2)]}, s.extra["row"]),
    prepare=with_extra(0, row=lambda s: [1.0, 2.0, 3.0]),
)


def product(x: Any) -> Any:
    return x["w"][0] * x["w"][1]


def product_with_more(x: Any) -> Any:
    return x["w"][0] * x["w"][1], {"count": 2, "first": x["w"][0]}


def not_called(*arguments: Any) -> Any:
    raise AssertionError("it is a usual call")


def derivation(function: Any, aux: int) -> Any:
    return _native.Derivation(function, ARGUMENTS, *[not_called] * 3, 0, aux, False)


def derived(state: State) -> None:
    state.extra["found"] = None
    state.extra["found"] = state.extra["of"].answer(state.extra["x"], {})


def all_is_derived(state: State, failed: bool) -> None:
    found = state.extra["found"]
    assert (found is None) is failed
    if not failed:
        value, slopes = found
        assert value in (2.0, (2.0, {"count": 2, "first": 1.0}))
        assert [*slopes["w"]] == [2.0, 1.0]
    assert _native.modes.nested == 0
    assert _native.modes.outermost is None


for _name, _function, _aux in (("", product, 0), (" with aux", product_with_more, 1)):
    for _kind, _x in (("a list", [1.0, 2.0]), ("an array", np.array([1.0, 2.0]))):
        case(
            f"derivation by {_kind}{_name}",
            derived,
            prepare=with_extra(
                0,
                of=lambda s, f=_function, aux=_aux: derivation(f, aux),
                x=lambda s, x=_x: ({"w": x},),
            ),
            check=all_is_derived,
        )


def numbers_taken(state: State) -> Any:
    rows = np.zeros((2, 2)), np.zeros((2, 1), np.int64)
    taken = _native.sample_numbers(state.extra["samples"], np.ndarray, np.float64, *rows)
    assert (taken, rows[0].tolist(), rows[1].tolist()) == (2, [[1.5, 2.0], [2.5, 4.0]], [[3], [5]])


def number_samples_are_as_before(state: State, failed: bool) -> None:
    assert state.extra["samples"] == [(1.5, [2.0, 3]), (2.5, [4.0, 5])]


case(
    "sample_numbers",
    numbers_taken,
    prepare=with_extra(0, samples=lambda s: [(1.5, [2.0, 3]), (2.5, [4.0, 5])]),
    check=number_samples_are_as_before,
)


def samples_taken(state: State) -> None:
    lengths = state.extra["lengths"]
    found = _native.sample_integers(state.extra["samples"], np.arange(3), lengths)
    state.extra["found"] = bytes(found)


def all_is_taken(state: State, failed: bool) -> None:
    assert failed or np.frombuffer(state.extra["found"], np.int64).tolist() == [1, 2, 10**9]
    assert state.extra["samples"] == [([1, 2],), ("3",), ([10**9],)]


case(
    "array_address",
    lambda s: _native.array_address(s.extra["array"]),
    prepare=with_extra(0, array=lambda s: np.ones(3)),
)
case(
    "sample_integers",
    samples_taken,
    prepare=with_extra(
        0,
        samples=lambda s: [([1, 2],), ("3",), ([10**9],)],
        lengths=lambda s: np.zeros((3, 1), np.int64),
    ),
    check=all_is_taken,
)


def shapes_found(state: State) -> None:
    found = _native.sample_shapes(state.extra["samples"], np.arange(3), 1)
    assert found == ([0, 2], [1])


def shapes_kept(state: State) -> None:
    starts = np.full(3, -1, np.int64)
    found = _native.sample_shapes(state.extra["samples"], np.arange(3), 1, starts, 64)
    assert found == ([0, 2], [1], np.array([0, 1, 2, 1, 10**9], np.int32).tobytes())
    assert starts.tolist() == [0, -1, 3]


def longest_found(state: State) -> None:
    assert _native.longest_sample([(x,) for x in ([1], [1, 2])]) == 1


def memory_looked_for(state: State) -> None:
    bounds = np.zeros((1, 2), np.int64)
    assert _native.holds_memory([(1, state.extra["array"])], bounds, np.ndarray) is not True


def arrays_filled(state: State) -> None:
    to, source = state.extra["to"], {"w": [np.arange(3.0)], "b": (np.ones(1),)}
    state.extra["filled"] = _native.fill(to, source, np.ndarray)


def all_or_nothing_is_filled(state: State, failed: bool) -> None:
    to = state.extra["to"]
    if not failed and state.extra["filled"]:  # without memory it may be left to Python
        assert (to["w"][0].tolist(), to["b"][0].tolist()) == ([0.0, 1.0, 2.0], [1.0])
    else:
        assert not to["w"][0].any()
        assert not to["b"][0].any()


def samples_packed(state: State) -> None:
    made = state.extra["parts"]
    assert _native.pack_samples(*made) == 1


def all_is_packed(state: State, failed: bool) -> None:
    own, gathered, fits, rows = state.extra["parts"][-4:]
    assert failed or (own.tolist(), gathered.tolist()) == ([[1.0, 2.0]], [[6]])
    assert failed or (fits.tolist(), rows.tolist()) == ([4, -1], [0, -1])


case(
    "sample_shapes",
    shapes_found,
    prepare=with_extra(0, samples=lambda s: [([1, 2],), ("3",), ([10**9],)]),
)
case(
    "sample_shapes, kept",
    shapes_kept,
    prepare=with_extra(0, samples=lambda s: [([1, 2],), ("3",), ([10**9],)]),
)
case("longest_sample", longest_found)
case(
    "fill",
    arrays_filled,
    prepare=with_extra(0, to=lambda s: {"b": (np.zeros(1),), "w": [np.zeros(3)]}),
    check=all_or_nothing_is_filled,
)
case(
    "holds_memory",
    memory_looked_for,
    prepare=with_extra(0, array=lambda s: np.ones(3)),
)
case(
    "pack_samples",
    samples_packed,
    prepare=with_extra(0, parts=lambda s: packing_parts()),
    check=all_is_packed,
)


def decided(state: State) -> None:
    made = _native.Decider(*state.extra["parts"])
    selected, numbers, found = state.extra["answer"]
    assert made.decide([1, 1], selected[:1], numbers[:1]) == 0
    made.decide_rows(np.array([[0, 1], [1, 2]]), selected, numbers, found)


def all_is_decided(state: State, failed: bool) -> None:
    selected, numbers, found = state.extra["answer"]
    assert failed or (selected.tolist(), numbers.tolist()) == ([6, 8], [1.0, 3.0])
    assert failed or found.tolist() == [0, 0]


case(
    "Decider",
    decided,
    prepare=with_extra(
        0,
        parts=lambda s: decider_parts(),
        answer=lambda s: (np.zeros(2, np.int64), np.zeros(2), np.zeros(2, np.int64)),
    ),
    check=all_is_decided,
)


def plan_answers(state: State, failed: bool) -> None:
    value, gradient = _native.Plan(*state.extra["parts"]).run(plan_call())
    assert (value, gradient["k"][0].tolist(), gradient["k"][1]) == (4.0, [[3.0], [3.0]], 3.0)


case(
    "a plan",
    lambda s: _native.Plan(*s.extra["parts"]),
    prepare=with_extra(0, parts=lambda s: plan_parts()),
    check=plan_answers,
)
case(
    "a plan runs",
    lambda s: s.extra["plan"].run(s.extra["call"]),
    prepare=with_extra(
        0,
        parts=lambda s: plan_parts(),
        plan=lambda s: _native.Plan(*plan_parts()),
        call=lambda s: plan_call(),
    ),
    check=plan_answers,
)


def out_is_filled(state: State, failed: bool) -> None:
    out = np.zeros((2, 1))
    assert _native.Plan(*state.extra["parts"]).run(vector_call(), out) == 4.0
    assert out.tolist() == [[3.0], [3.0]]


case(
    "a plan fills an array",
    lambda s: s.extra["plan"].run(s.extra["call"], s.extra["out"]),
    prepare=with_extra(
        0,
        parts=lambda s: vector_parts(),
        plan=lambda s: _native.Plan(*vector_parts()),
        call=lambda s: vector_call(),
        out=lambda s: np.zeros((2, 1)),
    ),
    check=out_is_filled,
)


def array_parts(state: State) -> tuple[Any, ...]:
    """Of a Plan that returns an array: a number of its own memory, and one that is fixed."""
    parts = plan_parts()
    record = np.dtype([("y", np.float64, (2,))])
    outputs, targets, fixed = np.array([8]), np.array([1]), np.array([5.0, 0.0])
    return (*parts[:2], ["y"], record, *parts[4:-1], outputs, targets, fixed)


def arrays_are_returned(state: State, failed: bool) -> None:
    (found,) = _native.Plan(*state.extra["parts"]).run(plan_call())
    assert found.tolist() == [5.0, 4.0]


case(
    "a plan that returns an array",
    lambda s: _native.Plan(*s.extra["parts"]),
    prepare=with_extra(0, parts=array_parts),
    check=arrays_are_returned,
)
case(
    "a plan that returns an array runs",
    lambda s: s.extra["plan"].run(s.extra["call"]),
    prepare=with_extra(
        0,
        parts=array_parts,
        plan=lambda s: _native.Plan(*array_parts(s)),
        call=lambda s: plan_call(),
    ),
    check=arrays_are_returned,
)
case(
    "a plan without its arenas",
    lambda s: _native.Plan(*s.extra["parts"][:-2], (), 8),
    prepare=with_extra(0, parts=lambda s: plan_parts()),
    raises=TypeError,
)


def the_gate_answers(state: State, failed: bool) -> None:
    """And its lock is free, and no array is kept."""
    gate, out = state.extra["gate"], np.zeros((2, 1))
    assert (gate.busy, gate.quick) in {(False, 0), (False, 1)}
    assert gate.answer((np.ones((2, 1)), 7), True, out) == 4.0
    assert out.tolist() == [[3.0], [3.0]]
    argument, other = state.extra["argument"], {"as": np.ones((2, 1))}
    like = other["as"]
    assert sys.getrefcount(argument) == sys.getrefcount(like), "it is kept by somebody"


def with_gate(**make: Any) -> Any:
    return with_extra(
        0,
        parts=lambda s: vector_parts(),
        gate=lambda s: gate_for(_native.Plan(*vector_parts())),
        argument=lambda s: np.ones((2, 1)),
        out=lambda s: np.zeros((2, 1)),
        **make,
    )


case(
    "a gate",
    lambda s: gate_for(s.extra["gate"].path.plans[vector_call().signature][0].plan),
    prepare=with_gate(),
    check=the_gate_answers,
)
case(
    "a gate answers",
    lambda s: s.extra["gate"].answer((s.extra["argument"], 7), True),
    prepare=with_gate(),
    check=the_gate_answers,
)
case(
    "a gate answers into an array",
    lambda s: s.extra["gate"].answer((s.extra["argument"], 7), True, s.extra["out"]),
    prepare=with_gate(),
    check=the_gate_answers,
)
case(
    "a bound call",
    lambda s: bound_to(s.extra["gate"], s.extra["argument"])(),
    prepare=with_gate(),
    check=the_gate_answers,
)
case(
    "an entrance",
    lambda s: entered(s.extra["gate"]).value_and_grad(s.extra["argument"], 7),
    prepare=with_gate(),
    check=the_gate_answers,
)
case(
    "an entrance of a derivative",
    lambda s: entered(s.extra["gate"], DerivedEntrance, 3)(s.extra["argument"], 7),
    prepare=with_gate(),
    check=the_gate_answers,
)
case("a lock", lambda s: _native.Lock().acquire())
case("allocation_counts", lambda s: _native.allocation_counts())

# optimisers


def parameters(state: State) -> Any:
    values = [Value(1.0), Value(2.0)]
    for v in values:
        v.grad = 0.5
    return values


def data_is_old_or_new(state: State, failed: bool) -> None:
    moved = [v.data != old for v, old in zip(state.extra["p"], (1.0, 2.0), strict=True)]
    assert moved == [not failed] * 2
    assert [bool(x) for x in state.extra["m"]] == [not failed] * 2


case(
    "adam",
    lambda s: _native.adam(
        s.extra["p"], s.extra["m"], s.extra["v"], 0.1, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.1
    ),
    prepare=with_extra(0, p=parameters, m=lambda s: np.zeros(2), v=lambda s: np.zeros(2)),
    check=data_is_old_or_new,
)
case(
    "sgd",
    lambda s: _native.sgd(s.extra["p"], s.extra["m"], 0.1, 0.9, 0.1),
    prepare=with_extra(0, p=parameters, m=lambda s: np.zeros(2)),
    check=data_is_old_or_new,
)
case(
    "adam_array",
    lambda s: _native.adam_array(
        s.extra["x"], s.extra["x"], s.extra["x"], s.extra["x"], 0.1, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.1
    ),
    prepare=with_extra(0, x=lambda s: np.ones(2)),
)

case(
    "adam_array of unequal lengths",
    lambda s: _native.adam_array(
        s.extra["x"], s.extra["x"], s.extra["x"], s.extra["m"], 0.1, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.1
    ),
    prepare=with_extra(0, x=lambda s: np.ones(2), m=lambda s: np.ones(3)),
    raises=(TypeError, ValueError),
)


def array_is_old_or_new(state: State, failed: bool) -> None:
    assert state.extra["p"].tolist() == ([1.0, 1.0] if failed else [0.5, 0.0])
    assert state.extra["m"].tolist() == ([0.0, 0.0] if failed else [1.0, 2.0])


case(
    "sgd_array",
    lambda s: _native.sgd_array(s.extra["p"], s.extra["g"], s.extra["m"], 0.5, 0.5, 0.0),
    prepare=with_extra(
        0,
        p=lambda s: np.ones(2),
        g=lambda s: np.array([1.0, 2.0]),
        m=lambda s: np.zeros(2),
    ),
    check=array_is_old_or_new,
)

# copies: much Python code, and numpy's, so only their own effects are looked at
case("copy", lambda s: copy.copy(s.y), prepare=swept(1), passes=(1,))
case("copy of a subclass instance", lambda s: copy.copy(s.a), prepare=swept(1, Sub), passes=(1,))
case(
    "deepcopy", lambda s: copy.deepcopy(s.y), prepare=swept(1), passes=(1,), long=True, python=True
)
case("pickle", lambda s: pickle.dumps(s.y), prepare=swept(1), passes=(1,), long=True, python=True)
case(
    "unpickle",
    lambda s: pickle.loads(s.extra["b"]),
    prepare=with_extra(1, b=lambda s: pickle.dumps(s.y)),
    passes=(1,),
    long=True,
    python=True,
)


# freeing must always work


def chain(cls: Any, n: int) -> Any:
    def make(state: State) -> list[Any]:
        y = cls(1.0)
        for i in range(n):
            y = (
                cls(1.0, (y, state.a), (1.0, 1.0), label=f"n{i % 3}")
                if i % 2
                else y * 1.0 + state.b
            )
        return [y]

    return make


for _cls in (Value, Sub, Slotted, Bare):
    case(
        f"free a chain of {_cls.__name__}",
        lambda s: s.extra["chain"].clear(),
        prepare=with_extra(0, chain=chain(_cls, 3000)),
        at_most=12,
    )


# In a process whose buffers are still empty: each attempt is a child of its own.
case("first backward", lambda s: s.y.backward(), prepare=large(0), passes=(0, 1), fork=True)
case(
    "first backward of instances",
    lambda s: s.y.backward(),
    prepare=large(0, Sub),
    passes=(0, 1),
    fork=True,
)
case(
    "second, larger backward", lambda s: s.y.backward(), prepare=large(1), passes=(1, 2), fork=True
)
ODD = [-0.0, 0.0, 1.5, float("inf"), float("nan"), 5e-324, -7.0]


def own_gradients(state: State) -> list[str]:
    """Gradients that no pass leaves behind, in inner nodes."""
    for i, v in enumerate(state.nodes[:-1]):
        v.grad = ODD[i % len(ODD)]
    return [v.grad.hex() for v in state.nodes]


def own_gradients_are_old_or_new(state: State, failed: bool) -> None:
    now = [v.grad.hex() for v in state.nodes]
    assert (now == state.extra["old"]) == failed


def large_with_own_gradients() -> State:
    state = large(1)()
    state.extra["old"] = own_gradients(state)
    return state


case(
    "backward over other gradients",
    lambda s: s.y.backward(),
    prepare=large_with_own_gradients,
    passes=(1, 2),
    check=own_gradients_are_old_or_new,
    fork=True,
)
case(
    "zero_grad over other gradients",
    lambda s: s.y.zero_grad(),
    prepare=large_with_own_gradients,
    passes=(1, 0),
    check=own_gradients_are_old_or_new,
    fork=True,
)
case("first zero_grad", lambda s: s.y.zero_grad(), prepare=large(0), fork=True)
case("larger zero_grad", lambda s: s.y.zero_grad(), prepare=large(1), passes=(1, 0), fork=True)
case("first topological_order", lambda s: topological_order(s.y), prepare=large(0), fork=True)
case(
    "larger topological_order",
    lambda s: topological_order(s.y),
    prepare=large(1),
    passes=(1,),
    fork=True,
)
case("first label", lambda s: setattr(s.a, "label", ""), fork=True)
case(
    "first note",
    lambda s: setattr(s.extra["v"], "label", "x"),
    prepare=with_extra(0, v=lambda s: Value(1.0)),
    fork=True,
)
for _cls in (Value, Sub, Slotted, Bare):
    case(
        f"first freeing of {_cls.__name__}",
        lambda s: s.extra["chain"].clear(),
        prepare=with_extra(0, chain=chain(_cls, 3000)),
        at_most=12,
        fork=True,
    )


# --- the sweep ----------------------------------------------------------------------------------

SLAB = 4095
STEP = 1_000_000 if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else 25  # then not every moment
hold: list[Any] = []  # grows by a slab with every node that got one


def fill_slabs() -> None:
    """Make nodes until the next one needs a new slab."""
    slabs = _native.allocation_counts()[1]
    while slabs and _native.allocation_counts()[1] == slabs:
        hold.append(Value(0.0))
    hold.extend(Value(0.0) for _ in range(SLAB - 1 if slabs else 0))


def attempt(name: str, start: int, stop: int) -> bool:
    """One try; whether the failure was felt."""
    act, prepare, passes, more = CASES[name]
    wanted = more.get("raises", ())
    state = prepare()
    gradients = state.gradients()
    assert gradients in [EXPECTED[p] for p in passes[:1]], gradients
    if not more.get("fork") and "chain" not in name and (start < 4 or start % 29 == 0):
        fill_slabs()
    if not more.get("long"):  # numpy's own pickling crashes then
        gc.collect()  # also empties Python's free lists: what comes from them cannot fail
    gc.disable()
    failed = felt = False
    result = None
    moments = (start, stop)
    _testcapi.set_nomemory(*moments)  # so written, the call leaves no tuple in a free list
    try:
        result = act(state)
    except MemoryError:
        failed = felt = True
    except wanted:
        failed = True
    except Exception as error:
        # Python's own lapses: pickle turns a MemoryError into its own, and where the words of an
        # error find no memory there may be a SystemError (`1.5 - "x"` does it too).
        if not (more.get("python") or (wanted and isinstance(error, SystemError))):
            raise
        failed = felt = True
    finally:
        _testcapi.remove_mem_hooks()
    usual_modes()  # without memory Python may skip a finally
    gc.enable()
    if not felt and wanted:
        assert failed, "the case must raise"
    del result
    now = state.gradients()
    assert now == EXPECTED[passes[0 if felt else -1]], (name, start, now)
    if "check" in more:
        more["check"](state, felt)
    assert_sound(state)
    return felt


def in_a_child(name: str, start: int, stop: int) -> bool:
    child = os.fork()
    if child == 0:
        try:
            felt = attempt(name, start, stop)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(3)
        os._exit(int(felt))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 1), f"{name!r}, failing at {start}: the child ended with {code}"
    return code == 1


def sweep(name: str) -> tuple[int, int]:
    """Every moment, until it succeeds so often that there is no allocation left to fail."""
    more = CASES[name][3]
    felt = tries = 0
    for one in (True, False):
        successes = start = 0
        patience = 8 if one else 2
        while successes < patience and start < more.get("at_most", 10_000):
            tries += 1
            if (in_a_child if more.get("fork") else attempt)(name, start, start + 1 if one else 0):
                felt += 1
                successes = 0
            else:
                successes += 1
            start += 1 if start < STEP else 1 + start // STEP
    return felt, tries


def main(names: list[str]) -> None:
    sys.unraisablehook = lambda _: None  # generators closed without memory
    gc.freeze()  # what was imported, so that a collection before every attempt costs nothing
    for name in names:
        print(name, flush=True, end=": ")
        felt, tries = sweep(name)
        print(felt, tries, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(CASES))
