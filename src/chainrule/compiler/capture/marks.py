"""Marks: what a number is computed by, as one number, so that two programs can be compared by it.

In: operations, inputs and constants. Out: a mark for each number, below 2³¹ - 1. Sums and products
are computed modulo that prime, from random numbers in place of the inputs; any other operation
gives a hash of what it is and of the marks of its operands. Two programs whose results have the
same marks compute the same, whatever their inputs are: another operation, constant, operand or term
gives another mark, but for a chance of about one in 10⁹. Only the order of sums, products and
maxima does not count, nor does what a result does not depend on. The numbers themselves take no
part: a term that is 0 in this call counts like any other.

``src/native/marks.c`` is the same in C. Functions take integers, or arrays of them.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.integers import BEYOND, PARTIAL, IntegerProgram
from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Recording
from chainrule.compiler.capture.selection import Gather
from chainrule.core import ops
from chainrule.core.ops import Op
from chainrule.trees import Floats

PRIME = (1 << 31) - 1
MASK = (1 << 64) - 1
OF_CONSTANT, OF_INPUT, OF_MAX, OF_MIN, OF_CHOICE = range(1, 6)
OF_INTEGER, OF_NUMBER, OF_STEP, OF_CANDIDATE, OF_ZERO = range(6, 11)
SAME = 20  # bits: constants that differ in the last ones only are the same, for most of them
TRIES = 64

Array = npt.NDArray[np.uint64]
Array32 = npt.NDArray[np.uint32]


def _mix(h: Any, x: Any) -> Any:
    """The hash of a sequence whose hash so far is ``h``, continued by ``x``."""
    z = (((h * 0x9E3779B97F4A7C15) & MASK) + x) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def is_hashed(rule: Op) -> bool:
    """Whether a rule is neither a sum or product nor Python's max or min."""
    return rule not in (ops.add, ops.mul, ops.first_max, ops.first_min)


@dataclass(frozen=True)
class Marks:
    """Marks of one comparison; ``offset``: where the numbers begin that are the same constant."""

    seed: int
    offset: int

    @classmethod
    def apart(cls, constants: Floats) -> Marks:
        """Marks for which none of these numbers easily becomes another one by rounding."""
        bits, end = np.unique(constants).view(np.uint64), 1 << SAME
        best, found = -1, 0
        for _ in range(TRIES if len(bits) else 0):
            offset = secrets.randbits(SAME)
            place = (bits + np.uint64(offset)) & np.uint64(end - 1)
            room = min(int(place.min()), end - 1 - int(place.max()))
            if room > best:
                best, found = room, offset
        return cls(secrets.randbits(64), found)

    def _start(self, what: int) -> int:
        return int(_mix(self.seed, what))

    def inputs(self, count: int) -> Array:
        """The marks of the inputs."""
        found: Array = _mix(self._start(OF_INPUT), np.arange(count, dtype=np.uint64))
        return found % PRIME

    def constants(self, numbers: Floats) -> Array:
        """The marks of plain numbers: 0 of 0; an infinity is what max or min begins with."""
        bits = (np.ascontiguousarray(numbers).view(np.uint64) + np.uint64(self.offset)) >> SAME
        found: Array = _mix(self._start(OF_CONSTANT), bits) % PRIME
        found[numbers == 0.0] = 0
        for infinity, what in ((-np.inf, OF_MAX), (np.inf, OF_MIN)):
            found[numbers == infinity] = (1 - self._start(what)) % PRIME
        return found

    def candidates(self, rows: Array) -> Array:
        """What an integer selects from: for each row of marks, that of all of them in order."""
        count = rows.shape[1]
        places = _mix(self._start(OF_CANDIDATE), np.arange(count, dtype=np.uint64))
        found: Array = _mix(_mix(places, rows).sum(axis=1, dtype=np.uint64), count) % PRIME
        return found

    def choice(self, candidates: Any, index: Any) -> Any:
        """What an integer selects: from which items, and the mark of its index."""
        return _mix(_mix(self._start(OF_CHOICE), candidates), index) % PRIME

    def integer(self, k: int) -> int:
        """Of an integer argument."""
        return int(_mix(self._start(OF_INTEGER), k)) % PRIME

    def number(self, x: Any) -> int:
        """Of a number that an index is computed by; a table is like no other."""
        is_index = isinstance(x, int) and -BEYOND <= x < BEYOND
        return int(_mix(self._start(OF_NUMBER), (x if is_index else id(x)) & MASK)) % PRIME

    def step(self, name: str, operands: Sequence[int]) -> int:
        """Of what is computed from integers."""
        h = int(_mix(self._start(OF_STEP), zlib.crc32(name.encode())))
        for x in operands:
            h = int(_mix(h, x))
        return h % PRIME

    def factor(self, x: Any) -> Any:
        """What is multiplied: a factor of 0 hides nothing, but counts like another number."""
        zero = self._start(OF_ZERO) % PRIME
        return np.where(x == 0, np.uint64(zero), x) if isinstance(x, np.ndarray) else x or zero

    def around(self, rule: Op) -> int:
        """What terms of a maximum or minimum are added to before they are multiplied."""
        return self._start(OF_MAX if rule is ops.first_max else OF_MIN) % PRIME

    def rule(self, rule: Op, operands: Sequence[Any]) -> Any:
        """The mark of an operation; its plain numbers and parameters are the last operands."""
        if rule is ops.add:
            return (operands[0] + operands[1]) % PRIME
        if rule is ops.mul:
            return self.factor(operands[0]) * self.factor(operands[1]) % PRIME
        if rule is ops.first_max or rule is ops.first_min:
            r = self.around(rule)
            return ((operands[0] + r) % PRIME * ((operands[1] + r) % PRIME) + (PRIME - r)) % PRIME
        h: Any = int(_mix(self.seed, id(rule)))
        for x in operands:
            h = _mix(h, x)
        return h % PRIME

    def of_recording(self, recording: Recording) -> list[int]:
        """The mark of every instruction of a recording, for the integers it was made with."""
        found: list[int] = self.inputs(recording.inputs).tolist()
        given = recording.constants
        constants = self.constants(given.ravel()).reshape(-1, given.shape[1]).tolist()
        selection = recording.selection
        known = IntegerMarks.of(self, selection.program)
        places = zip(selection.places.tolist(), selection.owners.tolist(), strict=True)
        chosen = {place: selection.gathers[owner] for place, owner in places}
        tables: dict[int, int] = {}

        def choice(gather: Gather) -> int:
            table = gather.candidates
            if id(table) not in tables:
                row = np.array([[found[p] for p in table.tolist()]], np.uint64)
                tables[id(table)] = int(self.candidates(row)[0])
            return int(self.choice(tables[id(table)], known[gather.index]))

        rows = zip(
            recording.codes.tolist(), recording.operands.tolist(), recording.number, strict=True
        )
        for i, (code, operands, has_number) in enumerate(rows):
            if i < recording.inputs:
                continue
            if code == CONSTANT:
                found.append(constants[i][0])
                continue
            rule = recording.rules[code - FIRST_RULE]
            xs = [
                choice(chosen[3 * i + j]) if 3 * i + j in chosen else found[p]
                for j, p in enumerate(operands)
                if p >= 0
            ]
            more = 1 if has_number else len(rule.parameters)
            found.append(self.rule(rule, [*xs, *constants[i][:more]]))
        return found


class IntegerMarks:
    """Marks of what is computed from integers: by which steps, of which arguments and numbers."""

    def __init__(
        self,
        marks: Marks,
        arguments: int,
        constants: Sequence[Any],
        steps: Sequence[tuple[str, tuple[int, ...]]],
    ) -> None:
        """``constants`` are the nodes from -1 downwards; more steps may be added to theirs."""
        self._marks, self._constants, self._steps = marks, constants, steps
        self._found = [marks.integer(k) for k in range(arguments)]
        self._first = arguments

    @classmethod
    def of(cls, marks: Marks, program: IntegerProgram) -> IntegerMarks:
        """Those of a program, in which constants have their places."""
        made = cls(marks, program.arguments, (), program.steps)
        made._found += map(marks.number, program.constants)
        made._first = len(made._found)
        return made

    def __getitem__(self, node: int) -> int:
        for name, operands in self._steps[len(self._found) - self._first :]:
            self._found.append(self._marks.step(name, list(map(self._mark, operands))))
        return self._mark(node)

    def partial(self, ranges: Iterable[tuple[int, int]]) -> frozenset[int]:
        """Of all steps that raise for some integers; ``ranges``: nodes that select from so many."""
        found = {
            self[self._first + k] for k, (name, _) in enumerate(self._steps) if name in PARTIAL
        }
        for node, count in set(ranges):
            found.add(self._marks.step("wrap", [self[node], self._marks.number(count)]))
        return frozenset(found)

    def _mark(self, node: int) -> int:
        return self._found[node] if node >= 0 else self._marks.number(self._constants[-1 - node])


@dataclass(frozen=True, eq=False)
class Noted:
    """What a run showed of which nothing else was kept."""

    marks: list[int]  # of the numbers that are returned, in order
    hashed: Array32  # those of all operations but sums, products and maxima, whatever reads them
    partial: frozenset[int]  # those of steps that raise for some integers
    values: Floats
    slope: float  # the derivative of the first along the direction
    lines: tuple[str, ...]  # why it holds for one case only
    steps: frozenset[str]  # what is done with integers


@dataclass(frozen=True, eq=False)
class Marker:
    """Notes marks while a function runs, and the derivative along a direction."""

    marks: Marks
    direction: Floats
