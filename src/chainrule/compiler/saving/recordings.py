"""Recordings as arrays and JSON, and back.

In: a ``Recording``. Out: its parts, for a file: arrays in ``tensors``, the rest as JSON. Reading
checks all that the engines rely on (operands that come before their use, places and positions that
exist, arities) before a ``Recording`` is made, so that what comes from a file can do no more than
what was recorded here.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import (
    FIRST_RULE,
    INPUT,
    ArrayOutput,
    Guard,
    Ints,
    Output,
    Recording,
    as_needed,
    two_columns,
)
from chainrule.compiler.capture.selection import Gather, Selection
from chainrule.compiler.saving.integers import decode_program, encode_program
from chainrule.compiler.saving.plain import (
    SaveError,
    count,
    counts,
    damaged,
    decode,
    encode,
    fields,
    items,
    readable,
    texts,
)
from chainrule.core.ops import Op
from chainrule.tensor_files import Tensors

MOST_INSTRUCTIONS = 2**28  # the tape's own limit
MOST_RULES = 2**14
PLAIN_NUMBERS = ("add", "mul", "maximum")  # may have a plain number as their second operand
_DEEP = 64  # containers inside containers, of what a function returns
Part = npt.NDArray[Any]


def encode_recording(
    recording: Recording, rules: dict[Op, int], tensors: Tensors, name: str
) -> dict[str, Any]:
    """The JSON of a recording; its arrays go into ``tensors``, its operations into ``rules``."""

    def put(part: str, array: Any, dtype: Any) -> None:
        tensors[f"{name}.{part}"] = np.ascontiguousarray(array, dtype)

    if len(recording.rules) > MOST_RULES:
        raise SaveError("it uses too many operations")
    put("codes", recording.codes, np.int16)
    put("operands", recording.operands[recording.operands >= 0], np.int32)
    put("number", np.flatnonzero(recording.number), np.int32)
    put("unflagged", np.flatnonzero(recording.unflagged), np.int32)
    given = np.flatnonzero(recording.constants.view(np.int64).any(axis=1))
    put("constants.at", given, np.int32)
    put("constants", two_columns(recording.constants[given]), np.float64)
    put("guards.at", [g.position for g in recording.guards], np.int32)
    put("guards", [g.expected for g in recording.guards], np.float64)
    selection = recording.selection
    tables = {id(g.candidates): g.candidates for g in selection.gathers}
    starts = dict(zip(tables, range(len(tables)), strict=True))
    put("tables", np.concatenate([np.zeros(0, np.int32), *tables.values()]), np.int32)
    put("gathers", [(starts[id(g.candidates)], g.index) for g in selection.gathers], np.int32)
    put("places", selection.places, np.int32)
    put("owners", selection.owners, np.int32)
    if recording.hands_back:
        raise SaveError("it returns, or changes, a container that it was passed")
    arrays: list[ArrayOutput] = []
    result = _encode_result(recording.result, arrays)
    for k, array in enumerate(arrays):
        put(f"array{k}.fixed", array.fixed, np.float64)
        put(f"array{k}.places", array.places, np.int64)
        put(f"array{k}.positions", array.positions, np.int32)
    return {
        "inputs": recording.inputs,
        "rules": [rules.setdefault(rule, len(rules)) for rule in recording.rules],
        "lines": [g.line for g in recording.guards],
        "tables": [len(table) for table in tables.values()],
        "numbers": list(selection.numbers),
        "integers": encode_program(selection.program),
        "result": result,
    }


def _encode_result(x: Any, arrays: list[ArrayOutput]) -> Any:
    kind = type(x)
    if kind is dict:
        return {
            "dict": [
                [encode(k, "a dict it returns"), _encode_result(v, arrays)] for k, v in x.items()
            ]
        }
    if kind is list or kind is tuple:
        return {kind.__name__: [_encode_result(item, arrays) for item in x]}
    if isinstance(x, Output):
        name = "numpy output" if x.is_numpys else "integer" if x.is_integer else "output"
        return {name: [x.position, x.is_value]}
    if isinstance(x, ArrayOutput) and x.sparse is None:
        arrays.append(x)
        return {"array": [list(x.shape), x.is_value]}
    return {"plain": encode(x, "what it returns")}


# --- back -----------------------------------------------------------------------------------------


def decode_recording(x: Any, known: list[Op], parts: Tensors) -> Recording:
    """The recording again, or a ``SaveError`` that says what does not fit.

    What it uses of its arrays is taken out of ``parts``.
    """
    inputs, used, lines, sizes, numbers, integers, result = fields(
        x, inputs=int, rules=list, lines=list, tables=list, numbers=list, integers=dict, result=dict
    )
    rules = [known[k] for k in counts(used, len(known))]

    def take(part: str, dtype: Any, *shape: int | None) -> Part:
        array = parts.pop(part, None)
        if array is None or array.dtype != dtype or array.ndim != len(shape):
            raise damaged(f"the array {part!r} of a recording is missing or of another type")
        if any(n is not None and n != m for n, m in zip(shape, array.shape, strict=True)):
            raise damaged(f"the array {part!r} of a recording has another shape than it should")
        return array

    codes = take("codes", np.int16, None).astype(np.int32)
    n = len(codes)
    if not 0 <= inputs <= n <= MOST_INSTRUCTIONS or len(rules) > MOST_RULES:
        raise damaged("a recording has more inputs than instructions")
    if (codes[:inputs] != INPUT).any() or (codes[inputs:] == INPUT).any():
        raise damaged("inputs are not the first instructions")
    if ((codes < INPUT) | (codes >= FIRST_RULE + len(rules))).any():
        raise damaged("an instruction does an operation that is not there")
    number = _marked(take("number", np.int32, None), n)
    operands = _operands(codes, number, rules, take("operands", np.int32, None))
    given = _increasing(take("constants.at", np.int32, None), n)
    constants = np.zeros((n, 2))
    constants[given] = take("constants", np.float64, len(given), 2)
    unflagged = _marked(take("unflagged", np.int32, None), n)
    at = take("guards.at", np.int32, None)
    expected = take("guards", np.float64, len(at)).tolist()
    if len(texts(lines)) != len(at) or (len(at) and (at.min() < inputs or at.max() >= n)):
        raise damaged("a guard is not in its recording")
    outputs = _Results(n, take)
    made = Recording(
        inputs=inputs,
        codes=codes,
        operands=operands,
        constants=as_needed(constants, rules),
        number=number,
        rules=tuple(rules),
        unflagged=unflagged,
        guards=tuple(map(Guard, at.tolist(), expected, readable(lines))),
        result=outputs.decode(result, 0),
        selection=_selection(take, sizes, numbers, integers, operands),
    )
    if inputs < made.selection.program.arguments + len(made.selection.numbers):
        raise damaged("a recording has fewer inputs than integers")
    return made


def _increasing(positions: Part, below: int) -> Part:
    """Positions in order, each once."""
    if len(positions) and (
        positions[0] < 0 or positions[-1] >= below or (np.diff(positions) <= 0).any()
    ):
        raise damaged("positions are out of order or of range")
    return positions


def _marked(positions: Part, n: int) -> npt.NDArray[np.bool_]:
    marks = np.zeros(n, np.bool_)
    marks[_increasing(positions, n)] = True
    return marks


def _operands(codes: Ints, number: npt.NDArray[np.bool_], rules: list[Op], flat: Ints) -> Ints:
    """Up to three operands of each instruction, all of which come before it."""
    arity = np.array([0] * FIRST_RULE + [min(rule.arity, 4) for rule in rules], np.int8)
    takes_number = np.array(
        [False] * FIRST_RULE + [rule.name in PLAIN_NUMBERS for rule in rules], np.bool_
    )
    if any(rule.arity > 3 or len(rule.parameters) > 2 for rule in rules):
        raise damaged("an operation has more operands than an instruction")
    if (number & ~takes_number.take(codes)).any():
        raise damaged("an instruction has a plain number where none can be")
    wanted = arity.take(codes) - number.view(np.int8)
    if wanted.sum(dtype=np.int64) != len(flat):
        raise damaged("instructions have other operands than they should")
    users = np.arange(len(codes), dtype=np.int32).repeat(wanted)
    if (flat < 0).any() or (flat >= users).any():
        raise damaged("an operand is out of range, or comes after its use")
    operands = np.full((len(codes), 3), -1, np.int32)
    np.place(operands, np.arange(3, dtype=np.int8) < wanted[:, None], flat)
    return operands


def _selection(take: Any, sizes: Any, numbers: Any, integers: Any, operands: Ints) -> Selection:
    """What integers select: candidates that come before the instruction that reads one of them."""
    program, plain = decode_program(integers)
    n = len(operands)
    ends = np.cumsum([0, *counts(sizes, n + 1)])
    candidates = take("tables", np.int32, int(ends[-1]))
    if len(candidates) and (candidates.min() < 0 or candidates.max() >= n):
        raise damaged("a candidate of a gather is out of range")
    tables = [candidates[a:b] for a, b in itertools.pairwise(ends.tolist())]
    rows = take("gathers", np.int32, None, 2) if tables else take("gathers", np.int32, 0)
    places = _increasing(take("places", np.int32, None), 3 * n)
    owners = take("owners", np.int32, len(places))
    gathers = []
    for table, index in rows.tolist():
        if not (0 <= table < len(tables) and len(tables[table]) and index in plain):
            raise damaged("a gather has no candidates or no index")
        gathers.append(Gather(tables[table], index))
    if len(owners) and (owners.min() < 0 or owners.max() >= len(gathers)):
        raise damaged("an operand is selected by a gather that is not there")
    used = rows[owners, 0] if len(owners) else owners
    last = np.array([table.max(initial=-1) for table in tables], np.int64)
    recorded = operands.ravel()[places]
    if (recorded < 0).any() or (last[used] >= places // 3).any():
        raise damaged("a gather selects what comes after its use")
    holds = [set(table.tolist()) for table in tables]
    if any(p not in holds[k] for p, k in zip(recorded.tolist(), used.tolist(), strict=True)):
        raise damaged("an operand is none of those that a gather selects")
    if any(node not in plain for node in counts(numbers)):
        raise damaged("a number is computed by a step that is not there")
    return Selection(program, tuple(gathers), places, owners, tuple(numbers))


class _Results:
    """What a function returned, from JSON and the arrays of its recording."""

    def __init__(self, n: int, take: Any) -> None:
        self._n, self._take = n, take
        self._arrays = 0

    def decode(self, x: Any, depth: int) -> Any:
        if depth > _DEEP or not isinstance(x, dict) or len(x) != 1:
            raise damaged("what the function returned cannot be read")
        ((kind, content),) = x.items()
        if kind == "plain":
            return decode(content)
        parts = items(content)
        if kind == "list" or kind == "tuple":
            made = [self.decode(item, depth + 1) for item in parts]
            return made if kind == "list" else tuple(made)
        if kind == "dict" and all(isinstance(pair, list) and len(pair) == 2 for pair in parts):
            return {decode(key): self.decode(item, depth + 1) for key, item in parts}
        if len(parts) == 2 and type(parts[1]) is bool:
            if kind in ("output", "numpy output", "integer"):
                at = count(parts[0], self._n)
                return Output(at, parts[1], kind == "numpy output", kind == "integer")
            if kind == "array":
                return self._array(tuple(counts(parts[0], 2**31)), parts[1])
        raise damaged("what the function returned cannot be read")

    def _array(self, shape: tuple[int, ...], is_value: bool) -> ArrayOutput:
        name = f"array{self._arrays}"
        self._arrays += 1
        size = math.prod(shape)
        fixed = self._take(f"{name}.fixed", np.float64, size)
        places = _increasing(self._take(f"{name}.places", np.int64, None), size)
        positions = self._take(f"{name}.positions", np.int32, len(places))
        if len(positions) and (positions.min() < 0 or positions.max() >= self._n):
            raise damaged("a number of an array it returns is out of range")
        return ArrayOutput(shape, fixed, places, positions, is_value)
