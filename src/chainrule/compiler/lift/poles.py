"""Where the domain of an operation ends, and rounding could decide whether a number is inside.

In: a recording. Out: the operands that machine code must look at. ``log`` and ``1 / x`` of a sum
whose terms cancel may be undefined in eager mode, which raises, and defined in machine code, which
adds in another order; so may ``acos`` of what is 1 but for rounding. ``lift/margins.py`` adds the
comparison. Zero is no matter where nothing cancels: a sum of what is never negative, a product or
the result of a function is zero in both, or in none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Recording
from chainrule.core import ops
from chainrule.core.ops import Op

NEVER_NEGATIVE = (ops.abs, ops.exp, ops.sigmoid, ops.sqrt, ops.softplus, ops.hypot, ops.relu)
#: results that are not negative where no operand is
_KEEPS_SIGN = (
    *(ops.add, ops.mul, ops.pow, ops.power, ops.divide, ops.detach, ops.tanh),
    *(ops.first_max, ops.first_min, ops.maximum, ops.minimum),
)
_BAD, _KEEPS, _NEVER = range(3)
FEW = 16  # numbers that are gone through one by one
DEPTH = 4  # steps in which factors are compared
_SELECTED = -2  # in the place of an operand that integers decide


Column = npt.NDArray[np.int64]


class End(NamedTuple):
    """A number that an instruction depends on, and what it must not be near to."""

    position: int  # of the instruction
    compared: int  # its operand, or a sum of which that is the product
    number: float


class Poles:
    """Which ends of domains the numbers of a recording may come near by rounding."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.codes = recording, recording.codes
        self.operands = recording.operands
        selected = recording.selection.places
        if len(selected):
            self.operands = recording.operands.copy()
            self.operands.ravel()[selected] = _SELECTED
        self._safe: set[int] = set()  # never negative
        self._code_of = {rule: FIRST_RULE + k for k, rule in enumerate(recording.rules)}

    def found(self) -> list[End]:
        """All that must be looked at."""
        ends, at_zero = set[End](), [np.zeros((0, 2), np.int64)]
        for at, operand, number in self._ends():
            pairs = np.stack([at, self.operands[at, operand]], axis=1)
            read = pairs[:, 1]
            pairs = pairs[(read >= 0) & (self.codes[read] >= FIRST_RULE)]
            if not number:
                at_zero.append(pairs)
                continue
            some = [End(i, j, number) for i, j in pairs.tolist()]
            ends.update(end for end in some if not self._rounds_once(end.compared))
        pairs = np.concatenate(at_zero)
        if not self._are_never_negative(self._factors(pairs[:, 1])):
            for i, read in pairs.tolist():
                some = [End(i, j, 0.0) for j in self._added(read)]
                ends.update(end for end in some if not self._is_never_negative(end.compared))
        return sorted(ends)

    def _ends(self) -> Iterator[tuple[Column, int, float]]:
        """Instructions, an operand of them, and where the domain ends for it."""
        recording = self.recording
        for rule, code in self._code_of.items():
            count = len(rule.parameters)
            if not count and not rule.ends():
                continue
            at = np.flatnonzero(self.codes == code)
            parameters = recording.constants[at, :count]
            for row in np.unique(parameters, axis=0) if count else parameters[:1]:
                here = at[(parameters == row).all(axis=1)]
                for operand, number in rule.ends(*row.tolist()):
                    yield here, operand, number

    def _factors(self, some: Column) -> Column:
        """The sums that these numbers are, or are products of."""
        add, mul = (self._code_of.get(rule, -1) for rule in (ops.add, ops.mul))
        found = [some[self.codes[some] == add]]
        while len(some):
            read = np.unique(self.operands[some[self.codes[some] == mul]])
            some = read[read >= 0]
            found.append(some[self.codes[some] == add])
        return np.unique(np.concatenate(found))

    def _are_never_negative(self, some: Column) -> bool:
        """Whether none of many numbers can be negative: mostly so, and soon seen."""
        rules, codes, is_seen = (
            self.recording.rules,
            self.codes,
            np.zeros(len(self.codes), np.bool_),
        )
        kind = np.array([_BAD, _BAD, *map(_kind, rules)], np.int8)
        mul, even = (self._code_of.get(rule, -1) for rule in (ops.mul, ops.pow))
        while len(some):
            if len(some) < FEW:
                return all(map(self._is_never_negative, some.tolist()))
            here, first = codes[some], self.recording.constants[some, 0]
            done = (kind[here] == _NEVER) | ((here == CONSTANT) & (first >= 0.0))
            powers = np.flatnonzero((here == even) & np.isfinite(first))
            done[powers] |= np.mod(first[powers], 2.0) == 0.0
            rows = self.operands[some]
            done |= (here == mul) & (rows[:, 0] == rows[:, 1])
            number = self.recording.number[some]
            going = ~done & (kind[here] == _KEEPS) & ~(number & ~(first >= 0.0))
            if not (done | going).all() or (rows[going] == _SELECTED).any():
                return False
            is_seen[some] = True
            rows = rows[going]
            some = np.unique(rows[rows >= 0])
            some = some[~is_seen[some]]
        return True

    def _added(self, i: int) -> list[int]:
        """The sums of which a number is the product."""
        found, waiting = [], [i]
        while waiting:
            i = waiting.pop()
            if i >= 0 and self._is(i, ops.add) and not self._rounds_once(i):
                found.append(i)
            elif i >= 0 and self._is(i, ops.mul):
                waiting += [p for p in self.operands[i].tolist() if p != -1]
        return found

    def _is(self, i: int, rule: Op) -> bool:
        return bool(self.codes[i] == self._code_of.get(rule, -1))

    def _rounds_once(self, i: int) -> bool:
        """Whether it is a sum by two of numbers that were passed: it has eager's bits."""
        if not self._is(i, ops.add):
            return False
        row = [p for p in self.operands[i].tolist() if p != -1]
        return all(p >= 0 and self.codes[p] < FIRST_RULE for p in row)

    def _is_never_negative(self, i: int) -> bool:
        """Whether it is made of squares and the like alone; in steps, as recordings are deep."""
        seen, waiting = set[int](), [i]
        while waiting:
            i = waiting.pop()
            if i in self._safe or i in seen:
                continue
            if i < 0:
                return False
            needed = self._needed(i)
            if needed is None:
                return False
            seen.add(i)
            waiting += needed
        self._safe |= seen
        return True

    def _needed(self, i: int) -> list[int] | None:
        """The numbers that must not be negative for this one not to be; None: it may be anyway."""
        code, constants = int(self.codes[i]), self.recording.constants[i]
        if code < FIRST_RULE:
            return [] if code == CONSTANT and constants[0] >= 0.0 else None
        rule, row = self.recording.rules[code - FIRST_RULE], self.operands[i].tolist()
        row = [p for p in row if p != -1]
        if rule in NEVER_NEGATIVE or (rule is ops.pow and float(constants[0] / 2.0).is_integer()):
            return []
        if rule is ops.mul and len(row) == 2 and self._are_alike(*row):
            return []
        if rule not in _KEEPS_SIGN or (self.recording.number[i] and not constants[0] >= 0.0):
            return None
        return row

    def _are_alike(self, a: int, b: int, depth: int = DEPTH) -> bool:
        """Whether two numbers are one, or were computed one like the other in a few steps."""
        if a == b or min(a, b) < 0:
            return a == b != _SELECTED
        recording, columns = self.recording, (self.codes, self.recording.constants)
        if depth == 0 or max(a, b) < recording.inputs:
            return False
        if not all(np.array_equal(column[a], column[b]) for column in columns):
            return False
        rows = zip(self.operands[a].tolist(), self.operands[b].tolist(), strict=True)
        return all(self._are_alike(x, y, depth - 1) for x, y in rows)


def _kind(rule: Op) -> int:
    return _NEVER if rule in NEVER_NEGATIVE else _KEEPS if rule in _KEEPS_SIGN else _BAD
