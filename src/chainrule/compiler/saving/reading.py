"""A file of a compiled function, read and checked.

In: a path. Out: a ``SavedFunction``: recordings, and for which calls each is; or a ``SaveError`` in
one line. Nothing of a file is trusted and nothing in it is run: no class, module or code is named
by it, and what the engines rely on is checked part by part.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from chainrule import tensor_files
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.lift.alignment import Layout, RecordedCall
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.pipeline import Options
from chainrule.compiler.runtime.results import as_numbers, wanted_of
from chainrule.compiler.saving.plain import (
    SaveError,
    count,
    counts,
    damaged,
    decode,
    fields,
    items,
    readable,
)
from chainrule.compiler.saving.recordings import decode_recording
from chainrule.compiler.saving.rules import decode_rule
from chainrule.core.ops import Op
from chainrule.tensor_files import Tensors

FORMAT = "chainrule.function"
VERSION = 1
_PLURAL = "chainrule's saved functions"
_TYPES = {"I16": "int16", "I32": "int32", "I64": "int64", "F64": "float64"}


@dataclass(frozen=True, eq=False)
class SavedCode:
    """What machine code was built from: a recorded call, and shorter ones like it."""

    _read: Callable[[], tuple[RecordedCall, ...]]

    @functools.cached_property
    def calls(self) -> tuple[RecordedCall, ...]:
        """The call, then the shorter ones."""
        return self._read()


@dataclass(frozen=True, eq=False)
class SavedVariant:
    """A recording and how it may be used."""

    recording: Recording
    layout: Layout
    numeric: frozenset[int]
    settled: tuple[str, ...]
    uses_math: bool
    reason: str | None  # why there is no machine code
    code: SavedCode | None
    call: RecordedCall | None  # how it runs on that code


@dataclass(frozen=True, eq=False)
class SavedStructure:
    """Calls with one structure of arguments."""

    key: str
    shown: tuple[str, ...]  # for people: how the call is made, and its arguments
    _read: Callable[[], tuple[SavedVariant, ...]]

    @functools.cached_property
    def variants(self) -> tuple[SavedVariant, ...]:
        """Its recordings, read and checked when they are needed first."""
        return self._read()


@dataclass(frozen=True, eq=False)
class SavedFunction:
    """All that a file holds."""

    name: str
    writer: str
    signature: inspect.Signature | None
    options: Options
    captured: dict[str, str]
    values: tuple[tuple[float, str], ...]
    identity: bool
    looks: bool
    catches: bool
    structures: tuple[SavedStructure, ...]
    _recordings: Callable[[], list[Recording]]

    def recordings(self) -> list[Recording]:
        """Every recording, after all that refers to them has been read and checked."""
        for structure in self.structures:
            for variant in structure.variants:
                _ = None if variant.code is None else variant.code.calls
        return self._recordings()


def read(path: str | os.PathLike[str]) -> SavedFunction:
    """The function in a file, or a ``SaveError``."""
    try:
        if not Path(path).is_file():
            raise SaveError("there is no such file")
        try:
            words, tensors = tensor_files.read(path, FORMAT, VERSION, _PLURAL, _TYPES)
        except tensor_files.TensorFileError as error:
            raise SaveError(str(error)) from None
        try:
            program = json.loads(words.get("program", ""))
        except (RecursionError, ValueError):
            raise damaged("its program is no JSON") from None
        return decode_function(program, tensors, str(path))
    except SaveError as reason:
        raise _named(str(path), reason) from None


def _named(path: str, reason: SaveError) -> SaveError:
    return SaveError(f"cannot load {path!r}: {reason}")


def decode_function(x: Any, tensors: Tensors, path: str = "") -> SavedFunction:
    """The function of a file's JSON and arrays."""
    fields(
        x,
        name=str,
        writer=str,
        parameters=list,
        options=dict,
        captured=list,
        values=list,
        identity=bool,
        looks=bool,
        catches=bool,
        rules=list,
        recordings=list,
        structures=list,
        codes=list,
    )
    rules = [decode_rule(rule) for rule in x["rules"]]
    name, writer = readable([x["name"], x["writer"]])
    captured = dict(map(_two_readable, x["captured"]))
    values = [(decode(number), label) for number, label in map(_pair, x["values"])]
    if any(type(number) is not float or type(label) is not str for number, label in values):
        raise damaged("a captured Value is no number")
    parts = _Parts(x["recordings"], x["codes"], rules, tensors, len(values), path)
    return SavedFunction(
        name,
        writer,
        _signature(x["parameters"]),
        _options(x["options"]),
        captured,
        tuple(values),
        x["identity"],
        x["looks"],
        x["catches"],
        tuple([parts.structure(structure) for structure in x["structures"]]),
        parts.recordings,
    )


class _Parts:
    """Reads recordings, and what refers to them, when they are asked for."""

    def __init__(
        self,
        described: list[Any],
        built: list[Any],
        rules: list[Op],
        tensors: Tensors,
        values: int,
        path: str,
    ) -> None:
        self._described, self._rules, self._values, self._path = described, rules, values, path
        self._tensors: list[Tensors] = [{} for _ in described]
        for name, array in tensors.items():
            number, _, part = name.partition(".")
            if not (number.isascii() and number.isdecimal() and len(number) < 10):
                raise damaged("it holds arrays that nothing uses")
            self._tensors[count(int(number), len(described))][part] = array
        self._read: dict[int, Recording] = {}
        self._numbers: dict[int, Recording] = {}
        self._codes = [SavedCode(functools.partial(self._named, self._code, x)) for x in built]

    def _named(self, read: Callable[[Any], Any], x: Any) -> Any:
        """What is read later; its errors name the file."""
        try:
            return read(x)
        except SaveError as reason:
            raise _named(self._path, reason) from None

    def recordings(self) -> list[Recording]:
        """All of them."""
        return [self._recording(k) for k in range(len(self._described))]

    def _recording(self, k: Any) -> Recording:
        k = count(k, len(self._described))
        if k not in self._read:
            parts = dict(self._tensors[k])
            self._read[k] = decode_recording(self._described[k], self._rules, parts)
            if parts:
                raise damaged("it holds arrays that nothing uses")
        return self._read[k]

    def _lifted(self, k: Any, numbers: bool) -> Recording:
        """What machine code is built from: with ``numbers`` in the places of returned Values."""
        recording = self._recording(k)
        if numbers and k not in self._numbers:
            self._numbers[k] = as_numbers(recording)
        return self._numbers[k] if numbers else recording

    def _layout(self, x: Any, recording: Recording) -> Layout:
        if len(items(x)) != 3:
            raise damaged("the layout of a call is incomplete")
        layout = Layout(count(x[0]), tuple(counts(x[1], recording.inputs + 1)), count(x[2]))
        selection, size = recording.selection, sum(layout.sizes)
        inputs = size + self._values + layout.integers + len(selection.numbers)
        if (
            recording.inputs != inputs
            or layout.integers != selection.program.arguments
            or layout.first not in np.cumsum([0, *layout.sizes])
        ):
            raise damaged("a recording has other inputs than its calls")
        return layout

    def _code(self, x: Any) -> tuple[RecordedCall, ...]:
        """What machine code is built from."""
        if not 1 <= len(items(x)) <= 3:
            raise damaged("machine code is built from other calls")
        calls = []
        for part in x:
            k, numbers, where, slots, among, births = fields(
                part,
                recording=int,
                numbers=bool,
                layout=list,
                slots=(list, type(None)),
                among=(list, type(None)),
                births=(list, type(None)),
            )
            recording = self._lifted(k, numbers)
            call = _called(recording, self._layout(where, recording), slots, among)
            calls.append(replace(call, births=_births(births, call)))
        for call in calls:
            check_shorter(call, calls[0])
        return tuple(calls)

    def structure(self, x: Any) -> SavedStructure:
        """Calls of one structure."""
        key, words, variants = fields(x, key=str, shown=list, variants=list)
        if not words:
            raise damaged("a structure does not say what it is")
        later = functools.partial(self._named, self._variants, variants)
        return SavedStructure(key, tuple(readable(words)), later)

    def _variants(self, variants: list[Any]) -> tuple[SavedVariant, ...]:
        return tuple([self._variant(x) for x in variants])

    def _variant(self, x: Any) -> SavedVariant:
        k, where, numeric, settled, uses_math, numbers, lifts, reason, code, slots, among = fields(
            x,
            recording=int,
            layout=list,
            numeric=list,
            settled=list,
            math=bool,
            numbers=bool,
            lifts=bool,
            reason=(str, type(None)),
            code=(int, type(None)),
            slots=(list, type(None)),
            among=(list, type(None)),
        )
        recording = self._recording(k)
        layout = self._layout(where, recording)
        call = built = None
        if code is not None or lifts:
            call = _called(self._lifted(k, numbers), layout, slots, among)
            alone = (call,)
            built = SavedCode(lambda: alone)
            if code is not None:
                built = self._codes[count(code, len(self._codes))]
        return SavedVariant(
            recording,
            layout,
            frozenset(counts(numeric, layout.integers)),
            tuple(readable(settled)),
            uses_math,
            None if reason is None else readable([reason])[0],
            built,
            call,
        )


def _called(recording: Recording, layout: Layout, slots: Any, among: Any) -> RecordedCall:
    """A recorded call; ``slots``: its integers among those of a longer call, if there is one.

    ``among``: all of its inputs, where the longer call has more numbers too.
    """
    root = wanted_of(recording)
    if root is None:
        raise damaged("machine code is for a function without a result")
    given = None if slots is None else np.array(counts(slots, 2**31), np.int64)
    if given is not None and len(given) != layout.integers + len(recording.selection.numbers):
        raise damaged("a call has more or fewer integers than its recording")
    made = RecordedCall.laid_out(layout, recording, root.position, given)
    if among is None:
        return made
    places = np.array(counts(among, 2**31), np.int64)
    if given is None or len(places) != recording.inputs:
        raise damaged("a call has more or fewer inputs than its recording")
    return replace(made, among=places)


def _births(found: Any, call: RecordedCall) -> Addresses | None:
    """The order in which the inputs of a call came, as it was found then."""
    if found is None:
        return None
    if not all(type(x) is int and -1 <= x < 2**31 for x in found):
        raise damaged("what machine code is built from has no order")
    if len(found) != len(call.private):
        raise damaged("what machine code is built from has more or fewer inputs")
    return np.array(found, np.int64)


def check_shorter(call: RecordedCall, longer: RecordedCall) -> None:
    """Refuse a call whose inputs are not some of those of a longer one."""
    if not _increase(call.slots, len(longer.slots)):
        raise damaged("the integers of a shorter call are not among those of the longer one")
    if call.among is None:
        return
    inputs = longer.recording.inputs
    own = np.zeros(inputs, np.bool_)
    own[longer.private] = True
    mine = np.zeros(len(call.among), np.bool_)
    mine[call.private] = True
    first = inputs - len(longer.slots)
    if (
        not _increase(call.among, inputs)
        or not np.array_equal(own[call.among], mine)
        or not np.array_equal(call.among[len(mine) - len(call.slots) :], first + call.slots)
    ):
        raise damaged("the numbers of a shorter call are not among those of the longer one")


def _increase(places: Addresses, end: int) -> bool:
    """Whether places come in order, each once, before the end."""
    return all(a < b for a, b in itertools.pairwise([-1, *places.tolist(), end]))


def _pair(x: Any) -> tuple[Any, Any]:
    if len(items(x)) != 2:
        raise damaged("a pair is incomplete")
    return x[0], x[1]


def _two_readable(x: Any) -> tuple[str, str]:
    a, b = readable(list(_pair(x)))
    return a, b


def _options(x: Any) -> Options:
    dtype, lift, contract = fields(x, dtype=str, lift=(bool, type(None)), contract=bool)
    if dtype not in ("float64", "float32"):
        raise damaged("it computes in an unknown type of numbers")
    return Options(dtype, "eager", lift, contract)


def _signature(x: list[Any]) -> inspect.Signature | None:
    """The parameters of the function, by which reports name its arguments."""
    kinds = {kind.name: kind for kind in inspect._ParameterKind}
    try:
        found = [inspect.Parameter(name, kinds[kind]) for name, kind in map(_two_readable, x)]
        return inspect.Signature(found) if found else None
    except (KeyError, ValueError) as error:
        raise (
            error if isinstance(error, SaveError) else damaged("a parameter has no name")
        ) from None
