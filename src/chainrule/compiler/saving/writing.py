"""What is known of a compiled function, as a file.

In: its ``Dispatch``. Out: JSON and arrays: the recordings of every structure of arguments, what
machine code was built from, and what the function captured, frozen as it is now. What was written
is read again before it reaches the disk, and compared.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from chainrule import tensor_files
from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.captured import MISSING, CapturedState, Method, content_of
from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.lift.alignment import Layout, RecordedCall
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.lengths import Places
from chainrule.compiler.runtime.results import root_of
from chainrule.compiler.runtime.variants import Variant
from chainrule.compiler.saving.plain import SaveError, encode
from chainrule.compiler.saving.reading import FORMAT, VERSION, SavedFunction, decode_function
from chainrule.compiler.saving.recordings import encode_recording
from chainrule.compiler.saving.rules import encode_rule
from chainrule.compiler.saving.structures import layout_of, passes_values, portable, words_of
from chainrule.core.backend import Value
from chainrule.core.ops import Op
from chainrule.tensor_files import Tensors

MOST_LISTED = 1000  # captured names
WIDTH = 120  # characters of what each of them is


def save(
    dispatch: Dispatch,
    path: str | os.PathLike[str],
    example: tuple[Any, ...],
    keywords: dict[str, Any],
) -> None:
    """Write a file with all that was recorded of a function, or a ``SaveError``.

    An example is recorded first, both as a plain call and to be differentiated.
    """
    with dispatch.lock:
        if example or keywords:
            _record(dispatch, example, keywords)
        for call in _unrecorded(dispatch):
            dispatch.record(call)
        _check_savable(dispatch)
        try:
            writer = _Writer(dispatch)
            words = json.dumps(writer.program(), separators=(",", ":"), allow_nan=False)
            _compare(decode_function(json.loads(words), dict(writer.tensors)), writer)
        except SaveError as reason:
            raise SaveError(f"{dispatch.name} cannot be saved: {reason}") from None
    tensor_files.write(path, FORMAT, VERSION, {"program": words}, writer.tensors)


def _record(dispatch: Dispatch, example: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    """Record an example, as far as it can be."""
    calls = [flatten_call(example, keywords, differentiate=False)]
    if example:
        calls.append(flatten_call(example, keywords, differentiate=True))
    reasons = [reason for call in calls if (reason := dispatch.record(call)) is not None]
    if len(reasons) == len(calls):
        raise SaveError(f"{dispatch.name} cannot be saved: it runs eagerly because {reasons[0]}")


def _unrecorded(dispatch: Dispatch) -> list[Call]:
    """Plain calls that ran on the machine code of ``value_and_grad`` only."""
    structures = [structure.variants for structure in dispatch.structures.values()]
    alone = [variants for variants in structures if all(v.borrows for v in variants)]
    return [v.example for variants in alone for v in variants if v.example is not None]


def _check_savable(dispatch: Dispatch) -> None:
    name = dispatch.name
    if not any(structure.variants for structure in dispatch.structures.values()):
        reasons = [*dispatch.notices.reasons, *[s.blocked for s in dispatch.structures.values()]]
        reason = next((x for x in reasons if x is not None), None)
        if reason is not None:
            raise SaveError(f"{name} cannot be saved: it runs eagerly because {reason}")
        raise SaveError(
            f"{name} cannot be saved: no call of it was recorded yet; "
            "give save an example of its arguments"
        )
    if dispatch.brought:
        kind = next(iter(dispatch.brought))
        raise SaveError(
            f"{name} cannot be saved: it was called with {kind.__qualname__}, whose code is not "
            "part of a file"
        )
    if not dispatch.is_fresh():
        raise SaveError(
            f"{name} cannot be saved: what it captured has changed since its last call; call it "
            "once more, or give save an example of its arguments"
        )


class _Writer:
    """Puts the parts of a function into JSON and arrays."""

    def __init__(self, dispatch: Dispatch) -> None:
        assert dispatch.captured is not None
        self._dispatch, self._captured = dispatch, dispatch.captured
        self.tensors: Tensors = {}
        self.recordings: dict[Any, int] = {}
        self._described: list[Any] = []
        self._rules: dict[Op, int] = {}
        self._codes: dict[Any, int] = {}  # of machine code
        self._built: list[Any] = []

    def program(self) -> dict[str, Any]:
        """The JSON of the function."""
        structures = self._structures()
        captured = self._captured
        return {
            "name": self._dispatch.name,
            "writer": sys.modules["chainrule"].__version__,
            "parameters": _parameters(self._dispatch.function),
            "options": {
                key: getattr(self._dispatch.options, key) for key in ("dtype", "lift", "contract")
            },
            "captured": _listed(self._dispatch.function, captured),
            "values": [[encode(v.data, "a Value"), v.label] for v in captured.values],
            "identity": captured.identity,
            "looks": captured.looks,
            "catches": bool(captured.catches),
            "rules": [encode_rule(rule) for rule in self._rules],
            "recordings": self._described,
            "structures": structures,
            "codes": self._built,
        }

    def _structures(self) -> list[Any]:
        """Every structure that can be called again, with its variants."""
        found: dict[str, Any] = {}
        recorded = [
            (key, marks, [v for v in structure.variants if not v.borrows])
            for (key, marks), structure in self._dispatch.structures.items()
            if not _passes_captured(marks, self._captured.looks)
        ]
        kept = [(key, marks, variants) for key, marks, variants in recorded if variants]
        if not kept:
            raise SaveError("each call passed it Values that it captures too")
        owners = {
            id(v.machine): (key, v) for key, _, variants in kept for v in variants if v.is_own
        }
        for key, marks, variants in kept:
            text = portable(key, marks[1:] if self._captured.looks else ())
            if text in found:
                raise SaveError(
                    "it was called with classes of one name and equal fields, which a file cannot "
                    "tell apart"
                )
            found[text] = {
                "key": text,
                "shown": words_of(key),
                "variants": [self._variant(key, v, owners) for v in variants],
            }
        return list(found.values())

    def _variant(self, key: Any, variant: Variant, owners: dict[int, Any]) -> dict[str, Any]:
        if variant.sizes is not None:
            raise SaveError("what sizes= built was not recorded: compile it without sizes")
        code = slots = among = None
        machine = variant.machine
        owner = None if machine is None else owners.get(id(machine))
        if machine is not None and owner is not None:
            code = self._code(machine, *owner)
            if not variant.is_own:
                recording = variant.recording
                numbers = len(recording.selection.numbers)
                places = Places.of(key, owner[0])
                assert places is not None  # it runs on this code
                slots = places.slots(numbers).tolist()
                among = _listed_places(places.among(recording.inputs, numbers))
        return {
            "recording": self._recording(variant.recording),
            "layout": _encode_layout(layout_of(key)),
            "numeric": sorted(variant.numeric),
            "settled": list(variant.settled),
            "math": variant.uses_math,
            "numbers": self._returns_numbers(key, variant),
            "lifts": variant.waits or machine is not None,
            "reason": variant.not_lifted,
            "code": code,
            "slots": slots,
            "among": among,
        }

    def _recording(self, recording: Any) -> int:
        if recording not in self.recordings:
            k = self.recordings[recording] = len(self.recordings)
            self._described.append(None)
            self._described[k] = encode_recording(recording, self._rules, self.tensors, str(k))
        return self.recordings[recording]

    def _returns_numbers(self, key: Any, variant: Variant) -> bool:
        """Whether the Values it returns have no graph, and are numbers in machine code."""
        has_graph = key[0] or variant.captured or root_of(variant.recording.result) is not None
        return not (has_graph or passes_values(key))

    def _code(self, machine: Any, key: Any, owner: Variant) -> int:
        if machine not in self._codes:
            self._codes[machine] = len(self._codes)
            if machine.source is None:
                raise SaveError(
                    "it has more instructions than are kept beside machine code: compile it with "
                    "lift=False to save it"
                )
            source = replace(machine.source, recording=owner.recording)
            calls = [self._call(source, None, self._returns_numbers(key, owner))]
            calls += [self._call(call, call.slots.tolist(), False) for call in machine.lengths]
            self._built.append(calls)
        return self._codes[machine]

    def _call(self, call: RecordedCall, slots: list[int] | None, numbers: bool) -> dict[str, Any]:
        return {
            "recording": self._recording(call.recording),
            "numbers": numbers,
            "layout": _encode_layout(call.layout),
            "slots": slots,
            "among": _listed_places(call.among),
            "births": _listed_places(call.births),
        }


def _listed_places(places: Addresses | None) -> list[int] | None:
    return None if places is None else places.tolist()


def _encode_layout(layout: Layout) -> Any:
    return [layout.first, list(layout.sizes), layout.integers]


def _passes_captured(marks: Any, looks: bool) -> bool:
    """Whether a Value that was passed is captured too: nobody can pass it to a loaded function."""
    return any(place >= 0 for place in (marks[0] if looks else marks))


def _compare(saved: SavedFunction, writer: _Writer) -> None:
    """Refuse to write what would be read as something else."""
    for (recording, k), again in zip(writer.recordings.items(), saved.recordings(), strict=True):
        if len(recording.rules) == len(again.rules):
            recording = replace(recording, rules=again.rules)  # its own operations are made anew
        if recording.differs(again) is not None or not _same(recording.selection, again.selection):
            raise SaveError(f"its recording {k} does not come back as it was (please report this)")


def _same(a: Selection, b: Selection) -> bool:
    """Whether two recordings do the same with integers."""
    programs = [
        (
            *(p.arguments, repr(p.constants), p.steps, p.bounded, s.numbers),
            [(g.node, g.truth, repr(g.expected)) for g in p.guards],
            [gather.index for gather in s.gathers],
            *(s.places.tobytes(), s.owners.tobytes()),
        )
        for p, s in ((a.program, a), (b.program, b))
    ]
    return programs[0] == programs[1] and all(
        np.array_equal(x.candidates, y.candidates)
        for x, y in zip(a.gathers, b.gathers, strict=True)
    )


# --- what it captured -----------------------------------------------------------------------------


def _parameters(function: Any) -> list[Any]:
    """The names and kinds of the function's parameters; none where Python does not know them."""
    try:
        found = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
    return [[p.name, p.kind.name] for p in found[isinstance(function, Method) :]]


def _listed(function: Any, captured: CapturedState) -> list[Any]:
    """What the function read without being passed it, by name, as it is frozen in the file."""
    found: dict[str, str] = {}
    for name, x in itertools.islice(_variables(function, captured), MOST_LISTED):
        if not isinstance(x, _CODE):
            found.setdefault(name, _described(x))
    return [[name, text] for name, text in found.items()]


_CODE = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.ModuleType,
    type,
    np.ufunc,
    property,
    staticmethod,
    classmethod,
)


def _variables(function: Any, captured: CapturedState) -> Iterator[tuple[str, Any]]:
    """Globals and attributes of modules, variables of enclosing functions, attributes of self."""
    spaces = {id(code.__globals__) for code in captured.functions}
    for namespace, name, x in captured.names:
        if id(namespace) in spaces and x is not MISSING:
            yield name, x
        elif isinstance(namespace, types.ModuleType):
            yield f"{namespace.__name__}.{name}", x
    for code in captured.functions:
        for name, cell in zip(code.__code__.co_freevars, code.__closure__ or (), strict=False):
            yield name, content_of(cell)
    if isinstance(function, Method):
        for name, x in (function.attributes or {}).items():
            yield f"self.{name}", x


def _described(x: Any) -> str:
    """What something is, in a few words."""
    if isinstance(x, Value):
        return f"Value({x.data!r})"
    if isinstance(x, np.ndarray):
        return f"array of {x.dtype} {list(x.shape)}"
    if x is None or isinstance(x, (bool, int, float, str, bytes, np.generic)):
        text = repr(x)
        return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"
    kind = type(x).__name__
    return f"{kind} of {len(x)}" if isinstance(x, (list, tuple, dict, set, frozenset)) else kind
