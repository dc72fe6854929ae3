"""Every entry point of the C extension, called with wrong things: an exception, never a crash.

A call starts from sound arguments. Some of them are replaced by wrong things: other types, arrays
of other kinds and shapes, numbers that do not fit, objects that raise or change the world when they
are asked. After each call a small graph must still give the right gradients. Run it under the
sanitizers:

    tools/sanitize.sh --run tests/reliability/experiments.py calls
"""

import ctypes
import ctypes.util
import dataclasses
import functools
import gc
import math
import random
import sys
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, MethodDescriptorType, SimpleNamespace
from typing import Any

import numpy as np
from native_parts import (
    DerivedEntrance,
    Entrance,
    decider_parts,
    gate_for,
    packing_parts,
    plan_call,
    plan_parts,
    vector_call,
    vector_parts,
)
from native_tapes import linearize
from trials import Outcome

from chainrule import _native
from chainrule.compiler.capture.arrays import ARRAY_TYPES
from chainrule.compiler.capture.hooks import HOOK_PARTS
from chainrule.compiler.capture.recorder import Recorder
from chainrule.compiler.capture.standins import Detached
from chainrule.compiler.lift import canonical
from chainrule.core import ops
from chainrule.core.native import Value, dot, linear, topological_order, vsum

COUNT = 13_400
THINGS = "calls of C entry points with wrong things"

# --- sound arguments ------------------------------------------------------------------------------


def small() -> tuple[Value, Value, Value]:
    a, b = Value(0.5), Value(-0.25)
    return a, b, (a * b + a * 2 - 3).tanh() * a + b.maximum(0.5)


def tape() -> Any:
    return linearize(small()[2]).tape


def tape_parts() -> tuple[Any, ...]:
    graph = linearize(small()[2])
    inputs = len(graph.leaves)
    return inputs, *graph.parts, graph.rules, np.zeros(1, np.int32) + inputs, np.zeros(1)


def flat_parts() -> tuple[Any, ...]:
    a, b, y = small()
    nodes = [v for v in topological_order(y) if v.children]
    return [a, b], nodes


def gathered_parts() -> tuple[Any, ...]:
    inputs, nodes = flat_parts()
    return inputs[:1], nodes, inputs[1:], nodes[-1:]


def written_parts() -> tuple[Any, ...]:
    """The arguments of ``Instructions``, with another recording to compare with."""
    codes, operands, constants, number, *_ = _native.flatten(*flat_parts())
    kinds = (codes, np.int32), (operands, np.int32), (constants, np.float64), (number, np.uint8)
    inputs = list(small()[:2])
    return inputs, inputs[:1], (2, *[np.frombuffer(row, kind) for row, kind in kinds])


def written() -> Any:
    made = _native.Instructions(*written_parts())
    made.add(Value(3.0))
    return made


def marked_parts() -> tuple[Any, ...]:
    """The arguments of ``Instructions`` with marks."""
    inputs = list(small()[:2])
    return inputs, [], None, (1, 2)


def marked() -> Any:
    return _native.Instructions(*marked_parts())


def recorded_by(nodes: Any) -> None:
    """Arithmetic while something wrong may be a recorder's nodes."""
    a, b = Value.__new__(Value), small()[2]
    _native.modes.recorder = SimpleNamespace(nodes=nodes)
    try:
        dot([a * b, b], [a, 2.0])
    finally:
        _native.modes.recorder = None


def row_of(op: Any, operands: Any) -> Any:
    """A row of the op table while a function is recorded."""
    _native.modes.recorder = SimpleNamespace(nodes=written())
    try:
        return _native.record_row(op, operands)
    finally:
        _native.modes.recorder = None


def applied(*given: Any) -> Any:
    """The same, by the name that recording has for it."""
    _native.modes.recorder = SimpleNamespace(nodes=written())
    try:
        return _native.apply_row(*given)
    finally:
        _native.modes.recorder = None


def stood_in(*kinds: Any) -> None:
    """Another class of stand-ins, for a moment."""
    try:
        _native.stand_in(*kinds)
        recorded_by(written())
    finally:
        _native.stand_in(Detached, np.float64, np.floating)


def computed_with(*parts: Any) -> Any:
    """Arithmetic with a stand-in made of these, beside itself and other numbers."""
    recorder = Recorder()
    recorder.nodes = written()
    _native.modes.recorder = recorder
    try:
        x = Detached(recorder, *parts)
        return [-x, x + x, x - 2.0, 3 * x, small()[0] - x, x * 10**300]
    finally:
        _native.modes.recorder = None


def chosen_from(items: Any, rule: Any, start: Any) -> Any:
    """The extreme one of stand-ins, while a function is recorded; of anything else as it is."""
    recorder = Recorder()
    recorder.nodes = written()
    _native.modes.recorder = recorder
    try:
        if type(items) is list:
            items = [Detached(recorder, Value(x)) if type(x) is float else x for x in items]
        return _native.choose(items, rule, start)
    finally:
        _native.modes.recorder = None


def gone_through_by(*kinds: Any) -> Any:
    """Arrays of other types, for a moment, while one is gone through."""
    begun = _native.items(np.zeros(3))
    try:
        _native.set_arrays(*kinds)
        return [*begun, *_native.zip_items(np.zeros(2), [1, 2])]
    finally:
        _native.set_arrays(*ARRAY_TYPES)


def hooked(hook: Any, *given: Any, **members: Any) -> Any:
    """A hook in C while a function is recorded by a recorder with these members."""
    recorder = Recorder()
    recorder.nodes = written()
    _native.modes.recorder = recorder
    try:
        for name, x in members.items():
            setattr(recorder, name, x)
        return hook(*given)
    finally:
        _native.modes.recorder = None


def hooked_by(*parts: Any) -> Any:
    """The hooks with other parts, for a moment."""
    try:
        _native.set_hooks(*parts)
        return [
            hooked(_native.asked, small()[0], "data"),
            hooked(_native.read, [1, 2], 0),
            hooked(_native.called, len),
            hooked(_native.iadd, [1], [2]),
        ]
    finally:
        _native.set_hooks(*HOOK_PARTS)


class Captured:
    """The arguments of a call that the package makes by itself."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def canonicalise(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return _native.canonicalise(*arguments)


def canonicalise_parts() -> tuple[Any, ...]:
    import chainrule

    captured, before = Captured(), canonical.kernels
    canonical.kernels = captured  # type: ignore[assignment]
    try:
        fast = chainrule.compile(lambda p, t: sum(p[k] * p[k] for k in t), lift=True)
        fast.value_and_grad([1.0, 2.0, 3.0], [0, 1, 2, 1])
    finally:
        canonical.kernels = before
    return captured.calls[0]


_CANONICALISE = canonicalise_parts()
_HARMLESS = ctypes.cast(ctypes.CDLL(ctypes.util.find_library("m")).fabs, ctypes.c_void_p).value


def sound_plan() -> tuple[Any, ...]:
    """With machine code that reads and writes nothing, whatever the arenas are."""
    parts = list(plan_parts())
    parts[7] = parts[8] = _HARMLESS
    return tuple(parts)


def sound_vector_plan() -> tuple[Any, ...]:
    parts = list(vector_parts())
    parts[7] = parts[8] = _HARMLESS
    return tuple(parts)


def sound_gate() -> Any:
    return gate_for(_native.Plan(*sound_vector_plan()))


def wrong_path(*parts: Any) -> None:
    gate = sound_gate()
    names = ("plans", "opened", "classes", "changed", "texts", "tells")
    gate.path = SimpleNamespace(**dict(zip(names, parts, strict=True)))
    gate.answer((np.full((2, 1), 0.5), 7), True)


def wrong_cached_call(variant: Any, binding: Any) -> None:
    gate = sound_gate()
    plan = _native.Plan(*sound_vector_plan())
    (cached,) = gate.path.plans.values()
    cached[:] = [None, _native.CachedCall(plan, variant, binding, None, False)]
    gate.answer((np.full((2, 1), 0.5), 7), True)


def wrong_bound(gate: Any, arguments: Any, gradient: Any) -> None:
    bound = _native.Bound()
    bound.gate, bound.arguments, bound.gradient = gate, arguments, gradient
    bound()


def wrong_entrance(gate: Any, wanted: Any, keywords: Any, *arguments: Any) -> None:
    for kind in (_native.Entrance, Entrance, DerivedEntrance):
        made = kind()
        made._gate, made._wanted = gate, wanted
        made(*arguments, **keywords)


def wrong_differentiation(gate: Any, out: Any, keywords: Any, *arguments: Any) -> None:
    for kind in (_native.Entrance, Entrance):
        made = kind()
        made._gate = gate
        made.value_and_grad(*arguments, out=out, **keywords)


def release_taken(*given: Any) -> None:
    lock = _native.Lock()
    lock.acquire()
    lock.release(*given)


def set_count(name: str, count: Any) -> None:
    try:
        setattr(_native.modes, name, count)
    finally:
        if name in ("nested", "again", "internal"):
            setattr(_native.modes, name, 0)


def values() -> list[Value]:
    return list(small())


def hyper() -> tuple[float, ...]:
    return 0.1, 0.9, 0.99, 1e-8, 0.1, 0.01, 0.1


@dataclasses.dataclass
class Record:
    w: Any


def arguments_parts() -> tuple[Any, ...]:
    field = dataclasses.fields(Record)[0]._field_type  # type: ignore[attr-defined]
    fill = (lambda x, row: x, lambda x, row, at: x)
    return (np.ndarray, np.empty, (np.float64,), Record, field, *fill)


def derivation_parts() -> tuple[Any, ...]:
    def slow(args: Any, kwargs: Any) -> None:
        return None

    def finish(x: Any, leaves: Any, returned: Any) -> None:
        return None

    arguments = _native.Arguments(*arguments_parts())
    return (lambda p: p["w"][0] * p["a"][1], arguments, slow, finish, float, 0, 0, False)


def ones(*shape: int) -> Any:
    return np.ones(shape)


Entry = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]

#: each entry point: what is called, and sound arguments for it
ENTRIES: dict[str, Entry] = {
    "Value": (Value, lambda: (1.5, small()[:2], (1.0, 2.0), "label")),
    "Value by symbol": (Value, lambda: (1.5, small()[:2], "+")),
    "topological_order": (_native.topological_order, lambda: (small()[2],)),
    "vsum": (vsum, lambda: ([*values(), 2.0],)),
    "dot": (dot, lambda: (values(), values())),
    "linear": (linear, lambda: (values(), [values(), values()])),
    "allocation_counts": (_native.allocation_counts, lambda: ()),
    "flatten": (_native.flatten, flat_parts),
    "flatten with gathers": (_native.flatten, gathered_parts),
    "Instructions": (_native.Instructions, written_parts),
    "Instructions.add": (lambda *x: written().add(*x), lambda: (small()[2],)),
    "Instructions.finish": (
        lambda *x: written().finish(*x),
        lambda: ([small()[0]], [small()[1]], []),
    ),
    "Instructions with marks": (_native.Instructions, marked_parts),
    "Instructions.add with marks": (lambda *x: marked().add(*x), lambda: (small()[2],)),
    "Instructions.choose": (
        lambda *x: marked().choose(*x),
        lambda: (Value(1.0), small()[0], 3, 4),
    ),
    "Instructions.candidates": (
        lambda *x: marked().candidates(*x),
        lambda: (tuple(small()),),
    ),
    "Instructions.carry": (
        lambda *x: written().carry(*x),
        lambda: (Value(1.0), small()[0]),
    ),
    "Instructions.slope": (lambda *x: written().slope(*x), lambda: (small()[0],)),
    "Instructions.hides": (lambda *x: written().hides(*x), lambda: ()),
    "Instructions.hashed": (lambda *x: marked().hashed(*x), lambda: ()),
    "Instructions.mark": (lambda *x: marked().mark(*x), lambda: (small()[0],)),
    "wrong Instructions": (lambda *x: _native.Instructions(*x).finish([], [], []), written_parts),
    "where": (_native.where, lambda: (True, small()[0], 1.5)),
    "clip": (_native.clip, lambda: (small()[0], 0.0, None)),
    "maximum": (_native.maximum, lambda: (small()[0], 1.5)),
    "minimum": (_native.minimum, lambda: (1.5, small()[0])),
    "exchange": (_native.exchange, lambda: ({"a": 1.5}, (("a", 1.5, 2.5),))),
    "record_row": (row_of, lambda: (ops.first_max, (small()[2], 1.5))),
    "apply_row": (applied, lambda: (ops.first_max, small()[2], 1.5)),
    "group_shapes": (
        _native.group_shapes,
        lambda: (np.full(4, 2, np.uint8), np.arange(4) % 3, 1, 8, True),
    ),
    "stand_in": (stood_in, lambda: (Detached, np.float64, np.floating)),
    "stand_ins": (_native.stand_ins, lambda: (Recorder(), list(small()), np.float64)),
    "choose": (chosen_from, lambda: ([1.5, 2.5], ops.first_max, -math.inf)),
    "set_arrays": (gone_through_by, lambda: ARRAY_TYPES),
    "items": (lambda x: list(_native.items(x)), lambda: (np.zeros(3),)),
    "zip_items": (lambda *x: list(_native.zip_items(*x)), lambda: (np.zeros(3), [1, 2, 3])),
    "a stand-in": (computed_with, lambda: (small()[1], True, np.float64)),
    "set_hooks": (hooked_by, lambda: HOOK_PARTS),
    "asked": (lambda *x: hooked(_native.asked, *x), lambda: (small()[0], "data")),
    "read": (lambda *x: hooked(_native.read, *x), lambda: ([1, 2.5], 1)),
    "called": (lambda *x: hooked(_native.called, *x), lambda: (len,)),
    "iadd": (lambda *x: hooked(_native.iadd, *x), lambda: ([1], [2])),
    "imul": (lambda *x: hooked(_native.imul, *x), lambda: ([1], 2)),
    "ior": (lambda *x: hooked(_native.ior, *x), lambda: ({1}, {2})),
    "iand": (lambda *x: hooked(_native.iand, *x), lambda: ({1}, {2})),
    "isub": (lambda *x: hooked(_native.isub, *x), lambda: ({1}, {2})),
    **{
        name: (functools.partial(hooked, getattr(_native, name)), lambda: (np.ones(3), 2.0))
        for name in ("itruediv", "ifloordiv", "imod", "ipow")
    },
    "imatmul": (lambda *x: hooked(_native.imatmul, *x), lambda: (np.eye(2), np.eye(2))),
    **{
        name: (functools.partial(hooked, getattr(_native, name)), lambda: (np.arange(3), 2))
        for name in ("ilshift", "irshift")
    },
    "ixor": (lambda *x: hooked(_native.ixor, *x), lambda: ({1}, {2})),
    "asked by a recorder": (
        lambda told, either, watched, simple, known, sites: hooked(
            *(_native.asked, [], "append"),
            told=told,
            either=either,
            watched=watched,
            simple=simple,
            known=known,
            true_sites=sites,
        ),
        lambda: (True, {}, {1}, {int}, {2}, None),
    ),
    "a recorder's nodes": (recorded_by, lambda: (written(),)),
    "swap_grads": (_native.swap_grads, lambda: (list(small()), np.ones(3))),
    "canonicalise": (_native.canonicalise, lambda: _CANONICALISE),
    "Arguments": (_native.Arguments, arguments_parts),
    "Arguments.with_values": (
        lambda *x: _native.Arguments(*arguments_parts()).with_values(*x),
        lambda: ({"w": [0.5, (1.5, 2)], "a": ones(2)},),
    ),
    "Arguments.with_numbers": (
        lambda *x: _native.Arguments(*arguments_parts()).with_numbers(*x),
        lambda: ({"w": [0.5, (1.5, 2)]}, [1.0, 2.0, 3.0]),
    ),
    "Derivation": (_native.Derivation, derivation_parts),
    "Derivation.answer": (
        lambda *x: _native.Derivation(*derivation_parts()).answer(*x),
        lambda: (({"w": [0.5, 1.5], "a": ones(2)},), {}),
    ),
    "wrong Derivation": (
        lambda *x: _native.Derivation(*x).answer(({"w": [0.5, 1.5], "a": ones(2)},), {}),
        derivation_parts,
    ),
    "wrong Arguments": (
        lambda *x: _native.Derivation(
            lambda p: p["w"][0] * p["a"][1], _native.Arguments(*x), *derivation_parts()[2:]
        ).answer(({"w": [0.5, 1.5], "a": ones(2)},), {}),
        arguments_parts,
    ),
    "gather": (_native.gather, lambda: (small(), np.zeros(3))),
    "compiled_node": (_native.compiled_node, lambda: (1.5, "loss", small(), np.ones(3))),
    "same_bytes": (_native.same_bytes, lambda: (ones(2), bytes(16))),
    "sample_integers": (
        _native.sample_integers,
        lambda: ([([1, 2],), ("3",), ([10**9],)], np.arange(3), np.zeros((3, 1), np.int64)),
    ),
    "sample_shapes": (
        _native.sample_shapes,
        lambda: ([([1, 2],), ("3",), ([10**9],)], np.arange(3), 1),
    ),
    "sample_shapes, kept": (
        _native.sample_shapes,
        lambda: ([([1, 2],), ("3",), ([10**9],)], np.arange(3), 1, np.full(3, -1), 64),
    ),
    "fill": (
        _native.fill,
        lambda: ({"a": [np.zeros(2)]}, {"a": [np.ones(2)]}, np.ndarray),
    ),
    "longest_sample": (_native.longest_sample, lambda: ([([1, 2],), ([3],)],)),
    "holds_memory": (
        _native.holds_memory,
        lambda: ([([1, ones(2)],)], np.zeros((2, 2), np.int64), np.ndarray),
    ),
    "pack_samples": (_native.pack_samples, packing_parts),
    "sample_numbers": (
        _native.sample_numbers,
        lambda: (
            [(1.5, [2.0, 3]), (-1.5, [-2.0, -3])],
            np.ndarray,
            np.float64,
            np.zeros((2, 2)),
            np.zeros((2, 1), np.int64),
        ),
    ),
    "array_address": (_native.array_address, lambda: (ones(2),)),
    "passed": (
        _native.passed,
        lambda: (({"a": [0.5], "b": ones(2)}, [1, 2], "x"), np.ndarray, np.float64, True, {}),
    ),
    "adam": (_native.adam, lambda: (values(), np.zeros(3), np.zeros(3), *hyper())),
    "sgd": (_native.sgd, lambda: (values(), np.zeros(3), 0.1, 0.9, 0.1)),
    "adam_array": (_native.adam_array, lambda: (ones(2), ones(2), ones(2), ones(2), *hyper())),
    "sgd_array": (_native.sgd_array, lambda: (ones(2), ones(2), ones(2), 0.1, 0.9, 0.1)),
    "Tape": (_native.Tape, tape_parts),
    "Tape.run": (lambda *x: tape().run(*x), lambda: (np.ones(2),)),
    "Tape.sweep": (lambda *x: tape().sweep(*x), lambda: (8, 1.0, np.zeros(2))),
    "Tape.point": (
        lambda *x: tape().point(*x),
        lambda: (np.array([7], np.int32), np.zeros(1, np.int32)),
    ),
    "Tape.number": (lambda *x: tape().number(*x), lambda: (3,)),
    "Tape.numbers": (
        lambda *x: tape().numbers(*x),
        lambda: (np.array([3, 0], np.int32), np.zeros(2)),
    ),
    "a wrong Tape runs": (lambda *x: _native.Tape(*x).run(np.ones(2)), tape_parts),
    "a wrong Tape sweeps": (lambda *x: _native.Tape(*x).sweep(5, 1.0, np.zeros(2)), tape_parts),
    "Checks": (_native.Checks, lambda: (((["x"], ("x",)), ({"a": 1}, "a", 1)),)),
    "Checks.failed": (
        lambda *x: _native.Checks(*x).failed(),
        lambda: (((["x"], ("x",)), ({"a": 1}, "a", 1)),),
    ),
    "Decider": (_native.Decider, decider_parts),
    "Decider.decide": (
        lambda *x: _native.Decider(*decider_parts()).decide(*x),
        lambda: ([1, 1], np.zeros(1, np.int64), np.zeros(1)),
    ),
    "Decider.decide_rows": (
        lambda *x: _native.Decider(*decider_parts()).decide_rows(*x),
        lambda: (
            np.array([[0, 1], [1, 2]]),
            np.zeros(2, np.int64),
            np.zeros(2),
            np.zeros(2, np.int64),
        ),
    ),
    "a wrong Decider decides": (
        lambda *x: _native.Decider(*x).decide([1, 1], np.zeros(1, np.int64), np.zeros(1)),
        decider_parts,
    ),
    "Plan": (_native.Plan, sound_plan),
    "a wrong Plan runs": (lambda *x: _native.Plan(*x).run(plan_call()), sound_plan),
    "Plan.run": (
        lambda *x: _native.Plan(*sound_plan()).run(*x),
        lambda: (plan_call(),),
    ),
    "Plan.run with out": (
        lambda *x: _native.Plan(*sound_vector_plan()).run(*x),
        lambda: (vector_call(), np.zeros((2, 1))),
    ),
    "CachedCall": (
        _native.CachedCall,
        lambda: (_native.Plan(*sound_vector_plan()), None, None, None, False),
    ),
    "Gate": (
        lambda *x: _native.Gate(*x).answer((1.0,), True),
        lambda: (_native.Lock(), np.ndarray, np.float64, lambda: None),
    ),
    "Gate.answer": (
        lambda *x: sound_gate().answer(*x),
        lambda: ((np.full((2, 1), 0.5), 7), True, np.zeros((2, 1))),
    ),
    "a gate with wrong parts": (
        lambda finish, changed: gate_for(
            _native.Plan(*sound_vector_plan()), finish, changed
        ).answer((np.full((2, 1), 0.5), 7), True),
        lambda: (None, _native.Checks(())),
    ),
    "a gate with a wrong path": (wrong_path, lambda: ({}, {}, {}, _native.Checks(()), 1, True)),
    "a gate with a wrong cached call": (
        wrong_cached_call,
        lambda: (SimpleNamespace(binding=None, waits=False), None),
    ),
    "set the path": (lambda x: setattr(sound_gate(), "path", x), lambda: (None,)),
    "Bound": (wrong_bound, lambda: (sound_gate(), (np.ones((2, 1)), 7), np.zeros((2, 1)))),
    "Entrance": (
        wrong_entrance,
        lambda: (sound_gate(), random.randrange(4), {}, np.ones((2, 1)), 7),
    ),
    "Entrance.value_and_grad": (
        wrong_differentiation,
        lambda: (sound_gate(), np.zeros((2, 1)), {}, np.ones((2, 1)), 7),
    ),
    "Lock": (lambda *x: _native.Lock().acquire(*x), lambda: (True,)),
    "Lock.release": (release_taken, lambda: ()),
    "Value.backward": (lambda *x: small()[2].backward(*x), lambda: (1.0,)),
    "Value.zero_grad": (lambda *x: small()[2].zero_grad(*x), lambda: ()),
    "Value._backward": (lambda *x: small()[2]._backward(*x), lambda: ()),
    "Value._order": (lambda *x: small()[2]._order(*x), lambda: ()),
    "Value._gradients": (lambda *x: small()[2]._gradients(*x), lambda: (values()[:2], False)),
    "Value._locate": (lambda *x: small()[2]._locate(*x), lambda: ("here.py:3",)),
    "Value._build": (
        lambda *x: Value.__new__(Value)._build(*x),
        lambda: (1.5, 0.5, "label", "mine", (), small()[:2], (1.0, 2.0)),
    ),
    "Value._apply_op": (Value._apply_op, lambda: (ops.TABLE["pow"], small()[:1], (2.0,))),
    "Value.maximum": (lambda *x: small()[0].maximum(*x), lambda: (0.5,)),
    "set data": (lambda x: setattr(small()[0], "data", x), lambda: (0.5,)),
    "set grad": (lambda x: setattr(small()[0], "grad", x), lambda: (0.5,)),
    "set label": (lambda x: setattr(small()[0], "label", x), lambda: ("text",)),
    "set a mode": (
        lambda name, x: setattr(_native.modes, name, x),
        lambda: (random.choice(("grad", "allow_nonfinite", "debug")), True),
    ),
    "set a count": (set_count, lambda: (random.choice(("nested", "again", "internal")), 1)),
    "set the recorder": (lambda x: setattr(_native.modes, "recorder", x), lambda: (None,)),
}
for _name in "add radd sub rsub mul rmul truediv rtruediv pow rpow lt le gt ge eq ne".split():
    ENTRIES[f"Value.__{_name}__"] = (
        lambda x, name=f"__{_name}__": getattr(small()[0], name)(x),
        lambda: (2.0,),
    )
for _name in "abs exp log relu tanh sigmoid softplus sqrt sin cos erf".split():
    ENTRIES[f"Value.{_name}"] = (
        lambda *x, name=_name: getattr(small()[0], name)(*x),
        lambda: (),
    )


def uncovered() -> set[str]:
    """Functions and public methods of the extension that no entry is named after."""
    functions = {n for n, f in vars(_native).items() if isinstance(f, BuiltinFunctionType)}
    classes = (_native.Value, _native.Tape, _native.Checks, _native.Decider, _native.Plan)
    methods = {
        f"{cls.__name__}.{name}"
        for cls in classes
        for name, method in vars(cls).items()
        if isinstance(method, MethodDescriptorType)
    }
    python = {name for name in methods if name.split(".")[1].startswith("__")}
    return (functions | methods) - python - set(ENTRIES)


# --- wrong things ---------------------------------------------------------------------------------


class Raises:
    """Whatever it is asked."""

    def _raise(self, *_: Any) -> Any:
        raise RuntimeError("asked")

    __float__ = __index__ = __len__ = __iter__ = __getitem__ = __bool__ = __str__ = _raise
    __buffer__ = __array__ = __getattr__ = _raise


class Lies:
    """About its length, and what it is."""

    def __len__(self) -> int:
        return 1 << 40

    def __getitem__(self, i: Any) -> Any:
        if i == 5:
            raise IndexError
        return 1.0

    def __float__(self) -> float:
        return math.nan

    def __index__(self) -> int:
        return -(1 << 62)


class Shrinks(list[Any]):
    """Loses its items while it is walked."""

    def __iter__(self) -> Iterator[Any]:
        while self:
            item = self[0]
            self.clear()
            gc.collect()
            yield item


class Deletes:
    """A number whose conversion changes the list it is in."""

    def __init__(self, holder: list[Any]) -> None:
        self.holder = holder

    def __float__(self) -> float:
        self.holder.clear()
        gc.collect()
        return 1.0

    __index__ = __float__  # type: ignore[assignment]


class Sub(Value):
    pass


class Unhashable(dict[Any, Any]):
    __hash__ = None  # type: ignore[assignment]


def cycle() -> list[Any]:
    xs: list[Any] = [1.0]
    xs.append(xs)
    return xs


def deep() -> list[Any]:
    xs: list[Any] = [0.5]
    for _ in range(5_000):
        xs = [xs]
    return xs


def holder() -> list[Any]:
    xs: list[Any] = [Value(1.0), 2.0]
    xs.insert(1, Deletes(xs))
    return xs


def read_only(x: Any) -> Any:
    x.setflags(write=False)
    return x


WRONG: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: True,
    lambda: -1,
    lambda: 0,
    lambda: 1 << 31,
    lambda: 1 << 62,
    lambda: 1 << 64,
    lambda: -(1 << 63),
    lambda: 10**400,
    lambda: 1.5,
    lambda: math.nan,
    lambda: -math.inf,
    lambda: 1e308,
    lambda: 1j,
    lambda: "",
    lambda: "text",
    lambda: "\ud800\x00",
    lambda: "x" * 100_000,
    lambda: b"",
    lambda: b"\xff" * 7,
    lambda: bytearray(64),
    lambda: memoryview(b"12345678"),
    lambda: memoryview(bytearray(64))[::2],
    list,
    tuple,
    dict,
    lambda: [None],
    lambda: (1, 2.0, "3"),
    lambda: [[]],
    lambda: [1.0] * 1_000,
    lambda: {"a": object()},
    lambda: {1: {}},
    lambda: Unhashable(),
    cycle,
    deep,
    holder,
    lambda: Shrinks([Value(1.0), 2.0]),
    lambda: (x for x in (1.0, None)),
    lambda: iter(()),
    lambda: range(1_000),
    lambda: object(),
    lambda: Raises(),
    lambda: Lies(),
    lambda: int,
    lambda: np.ndarray,
    lambda: np.float64,
    lambda: len,
    lambda: lambda *_: None,
    lambda: lambda *_: 1 / 0,
    lambda: sys,
    lambda: Value,
    lambda: Value(2.0),
    lambda: Value.__new__(Value),
    lambda: Sub(1.0),
    lambda: [Value(1.0), Value.__new__(Value)],
    lambda: values(),
    lambda: small()[2],
    lambda: ops.TABLE["tanh"],
    lambda: [ops.TABLE["pow"]] * 3,
    tape,
    lambda: _native.Tape,
    lambda: plan_call(),
    lambda: _native.Plan(*sound_plan()),
    lambda: _native.Decider(*decider_parts()),
    lambda: np.zeros(0),
    lambda: np.zeros(0, np.int64),
    lambda: np.ones(1),
    lambda: np.full(3, np.nan),
    lambda: np.ones(100_000),
    lambda: np.ones((2, 3)),
    lambda: np.ones((2, 3)).T,
    lambda: np.ones(8)[::2],
    lambda: np.ones(8)[::-1],
    lambda: np.ones(3, np.float32),
    lambda: np.ones(3, np.int32),
    lambda: np.arange(-3, 3),
    lambda: np.array([1 << 62, -(1 << 62), 7]),
    lambda: np.full((3, 3), 1 << 30, np.int32),
    lambda: np.full((12, 3), -7, np.int32),
    lambda: np.ones(3, np.uint8),
    lambda: np.ones(3, complex),
    lambda: np.array([None, 1.0]),
    lambda: np.array(["a"]),
    lambda: np.array([1.0, 2.0], ">f8"),
    lambda: np.zeros((), float),
    lambda: np.float64(2.0),
    lambda: np.zeros(2, [("x", float)]),
    lambda: np.frombuffer(b"\x00" * 25, np.uint8)[1:].view(float),
    lambda: read_only(np.ones(3)),
    lambda: np.broadcast_to(1.0, (1 << 20,)),
    lambda: np.dtype([("x", float, (1 << 20,))]),
    lambda: np.dtype("V0"),
)


def close_to(rng: random.Random, x: Any) -> Any:
    """Something like x that is not it: other numbers in an array, another length, another order."""
    if isinstance(x, np.ndarray) and x.size and x.ndim and x.dtype.kind in "iuf":
        x = x.copy()
        choice = rng.randrange(4)
        if choice == 0:
            x.reshape(-1)[rng.randrange(x.size)] = rng.choice((0, 1, 3, 100))
        elif choice == 1 and x.dtype.kind != "u":
            x.reshape(-1)[rng.randrange(x.size)] = -rng.choice((1, 2, 100))
        elif choice == 2:
            x = x[: rng.randrange(len(x) + 1)]
        else:
            x = np.concatenate([x, x])
        return x
    if isinstance(x, (tuple, list)) and x:
        kind, items = type(x), list(x)
        at = rng.randrange(len(items))
        choice = rng.randrange(3)
        if choice == 0:
            items[at] = rng.choice(WRONG)()
        elif choice == 1:
            del items[at]
        else:
            items[at] = close_to(rng, items[at])
        return items if kind is list else tuple(items)
    if isinstance(x, bool):
        return not x
    if isinstance(x, (int, float)):
        return rng.choice((x + 1, -x - 1, x * 1000, str(x)))
    return rng.choice(WRONG)()


#: what is taken on trust, because nothing can be known of it: addresses of machine code
TRUSTED = {"Plan": (7, 8), "a wrong Plan runs": (7, 8)}


def wrong_arguments(rng: random.Random, name: str) -> list[Any]:
    """Sound arguments with some of them replaced."""
    arguments = list(ENTRIES[name][1]())
    trusted = TRUSTED.get(name, ())
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if arguments:
            at = rng.randrange(len(arguments))
            if at not in trusted:
                near = rng.random() < 0.5
                arguments[at] = close_to(rng, arguments[at]) if near else rng.choice(WRONG)()
    change = rng.random()  # of how many there are
    if change < 0.05 and arguments and not trusted:
        del arguments[rng.randrange(len(arguments))]
    elif not arguments or (change < 0.1 and not trusted):
        arguments.insert(rng.randrange(len(arguments) + 1), rng.choice(WRONG)())
    return arguments


def usual_modes() -> None:
    modes = _native.modes
    modes.recorder = None
    modes.grad, modes.allow_nonfinite, modes.debug = True, False, False


def sound() -> bool:
    """Whether the engine still computes."""
    a, b, y = small()
    y.backward()
    return (y.data, a.grad, b.grad) == _RIGHT


def _right() -> tuple[float, float, float]:
    a, b, y = small()
    y.backward()
    return y.data, a.grad, b.grad


_RIGHT = _right()


def trials(count: int, seed: int) -> Iterator[Outcome]:
    rng = random.Random(f"calls {seed}")
    random.seed(seed)
    names = list(ENTRIES)
    for name in names:  # sound arguments are taken
        ENTRIES[name][0](*ENTRIES[name][1]())
        usual_modes()
    for number in range(count):
        name = names[number % len(names)]
        arguments = wrong_arguments(rng, name)
        found, kind = "", "an answer"
        try:
            ENTRIES[name][0](*arguments)
        except SystemError as error:  # C code that failed without saying so, or succeeded and did
            found = repr(error)
        except Exception as error:
            kind = type(error).__name__
        usual_modes()
        if not sound():
            found = "the engine computes something else afterwards"
        if found:
            found = f"{name}, call {number} of seed {seed}: {found}: {str(arguments)[:500]}"
        yield Outcome(kind, found)
        if number % 500 == 0:
            gc.collect()
