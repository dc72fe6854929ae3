"""Where the domain of an operation ends, and rounding could decide whether a number is inside.

In: a recording. Out: the operands that machine code must look at. ``log`` and ``1 / x`` of a sum
whose terms cancel may be undefined in eager mode, which raises, and defined in machine code, which
adds in another order; so may ``acos`` of what is 1 but for rounding. ``lift/margins.py`` adds the
comparison.

Zero is no matter where nothing cancels: a sum of what is never negative is zero where all of its
terms are, a product where a factor is, and a square or the result of a function such as ``tanh``
where its operand is. So it is in doubt where such a term, factor or operand is, as in the spread of
numbers that are all equal.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
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
_POSITIVE = (ops.exp, ops.sigmoid, ops.softplus)
_LARGEST = (ops.first_max, ops.maximum)
#: results that are zero where the operand is; at that of ``sqrt`` its own domain ends
_ZERO_AT_ZERO = (
    *(ops.abs, ops.relu, ops.leaky_relu, ops.hypot, ops.detach, ops.clip, ops.tanh),
    *(ops.sin, ops.tan, ops.asin, ops.atan, ops.sinh, ops.asinh, ops.atanh, ops.erf, ops.expm1),
    *(ops.log1p, ops.silu, ops.gelu, ops.gelu_tanh, ops.mul, ops.pow, ops.divide, ops.select),
    *(ops.first_max, ops.first_min, ops.maximum, ops.minimum),
)
_NOT_NEGATIVE, _SURE = 1, 2  # what is asked of a number
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
        self._owners = dict(
            zip(selected.tolist(), recording.selection.owners.tolist(), strict=True)
        )
        self._safe: set[int] = set()  # never negative,
        self._unsafe: set[int] = set()  # and perhaps negative
        self._are_alike: dict[tuple[int, int], bool] = {}
        self._are_positive: dict[int, bool] = {}
        self._are_doubtful: dict[int, bool] = {}
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
        if not self._are_sure(np.unique(pairs[:, 1])):
            for i, read in pairs.tolist():
                factors = self._factors(read)
                ends.update([End(i, j, 0.0) for j in factors if self._is_doubtful(j)])
        return sorted(ends)

    @property
    def doubtful(self) -> set[int]:
        """The numbers, among those that ``found`` looked at, that may be zero by rounding alone."""
        return {i for i, is_doubtful in self._are_doubtful.items() if is_doubtful}

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

    def _are_sure(self, some: Column) -> bool:
        """Whether none of many numbers is in doubt: mostly so, and soon seen."""
        recording, add = self.recording, self._code_of.get(ops.add, -1)
        mul, even = (self._code_of.get(rule, -1) for rule in (ops.mul, ops.pow))
        kinds = [[rule in some for rule in recording.rules] for some in _KINDS]
        none = [[False] * FIRST_RULE] * len(kinds)
        table = np.concatenate([none, kinds], axis=1)
        asked = np.full(len(some), _SURE, np.int8)
        seen = np.zeros(len(self.codes), np.int8)
        while len(some):
            if len(some) < FEW:
                return all(map(self._holds, some.tolist(), asked.tolist()))
            seen[some] |= asked
            here, first, rows = self.codes[some], recording.constants[some, 0], self.operands[some]
            positive, never, keeps, through = table[:, here]
            powers = np.flatnonzero((here == even) & np.isfinite(first))
            never[powers] |= np.mod(first[powers], 2.0) == 0.0
            never |= (here == mul) & (rows[:, 0] == rows[:, 1])
            number, is_sum = recording.number[some], here == add
            never |= (here == CONSTANT) & (first >= 0.0)
            wants_sign = (asked & _NOT_NEGATIVE > 0) & ~never & ~positive
            wants_sure = (asked & _SURE > 0) & ~positive
            is_exact = is_sum & wants_sure
            is_exact[is_exact] = self._are_exact(rows[is_exact])
            wants_sure &= (is_sum & ~is_exact) | through
            wants_sign |= is_sum & wants_sure
            wants_sure &= ~(is_sum & number & (first > 0.0))
            if (wants_sign & (~keeps | (number & ~(first >= 0.0)))).any():
                return False
            going = wants_sign | wants_sure
            if (rows[going] == _SELECTED).any():
                return False
            next_asked = wants_sign * _NOT_NEGATIVE + wants_sure * _SURE
            rows, next_asked = rows[going], np.repeat(next_asked[going], rows.shape[1])
            more = np.zeros(len(self.codes), np.int8)
            read = rows.ravel() >= 0
            np.bitwise_or.at(more, rows.ravel()[read], next_asked[read].astype(np.int8))
            more &= ~seen
            some = np.flatnonzero(more)
            asked = more[some]
        return True

    @functools.cached_property
    def _negates(self) -> npt.NDArray[np.bool_]:
        """Which instructions are times -1."""
        found: npt.NDArray[np.bool_] = self.codes == self._code_of.get(ops.mul, -1)
        found &= self.recording.number
        at = np.flatnonzero(found)
        found[at] = self.recording.constants[at, 0] == -1.0
        return found

    def _are_exact(self, rows: Column) -> npt.NDArray[np.bool_]:
        """Whether all operands in each row have eager's bits: were passed, or are such negated."""
        negates = self._negates[rows] & (rows >= 0)
        read = rows.copy()
        read[negates] = self.operands[rows[negates], 0]
        exact = (read >= 0) & (self.codes[read] < FIRST_RULE)
        return np.asarray((exact | (rows == -1)).all(axis=1))

    def _holds(self, i: int, asked: int) -> bool:
        if asked & _NOT_NEGATIVE and not self._is_never_negative(i):
            return False
        return not (asked & _SURE and self._is_doubtful(i))

    def _factors(self, i: int) -> list[int]:
        """The numbers of which one is the product."""
        found, waiting = [], [i]
        while waiting:
            i = waiting.pop()
            if i >= 0 and self._is(i, ops.mul):
                waiting += [p for p in self.operands[i].tolist() if p != -1]
            elif i >= 0:
                found.append(i)
        return found

    # --- what is in doubt -------------------------------------------------------------------------

    def _is_doubtful(self, i: int) -> bool:
        """Whether a number may be zero in one of machine code and eager mode alone."""
        return _decided(i, self._doubt, self._are_doubtful)

    def _doubt(self, i: int) -> _Answer:
        rule = self._rule(i)
        if rule is ops.add:
            if self._rounds_once(i):
                return False
            if not self._is_never_negative(i):
                return _surely, [p for p in self._row(i) if self._is_carried(p)]
        elif rule not in _ZERO_AT_ZERO or (rule is ops.pow and not self._is_power(i)):
            return False
        if self._is_positive(i):
            return False
        row = self._row(i)
        if rule is ops.divide:
            row = row[:1]
        return any, row[1:] if rule is ops.select else row

    def _is_carried(self, i: int) -> bool:
        """Whether a term may be zero by rounding as a sum in it is; not further back, by products.

        Else what cancels in all layers before would be looked at.
        """
        rule = self._rule(i)
        if rule is ops.mul:
            return bool(self.recording.number[i])
        return rule is ops.add or rule in _ZERO_AT_ZERO

    def _is_power(self, i: int) -> bool:
        """Whether it is a power without an end of its own."""
        exponent = float(self.recording.constants[i, 0])
        return exponent > 0.0 and exponent.is_integer()

    def _is_positive(self, i: int) -> bool:
        """Whether it is surely not zero, but for what is too small for a float."""
        return _decided(i, self._sign, self._are_positive)

    def _sign(self, i: int) -> _Answer:
        constants = self.recording.constants
        if i < 0 or self.codes[i] < FIRST_RULE:
            return i >= 0 and bool(self.codes[i] == CONSTANT and constants[i, 0] > 0.0)
        rule, row = self._rule(i), self._row(i)
        number = float(constants[i, 0]) if self.recording.number[i] else None
        is_number_positive = number is not None and number > 0.0
        if rule in _POSITIVE or (rule is ops.clip and constants[i, 0] > 0.0):
            return True
        if rule in _LARGEST or (rule is ops.add and self._is_never_negative(i)):
            return is_number_positive or (any, row)
        if rule in (ops.mul, ops.sqrt, ops.pow, ops.detach, ops.abs, ops.relu, ops.divide):
            return (number is None or is_number_positive) and (all, row)
        return False

    def _rule(self, i: int) -> Op | None:
        code = int(self.codes[i]) if i >= 0 else -1
        return None if code < FIRST_RULE else self.recording.rules[code - FIRST_RULE]

    def _row(self, i: int) -> list[int]:
        return [p for p in self.operands[i].tolist() if p != -1]

    def _is(self, i: int, rule: Op) -> bool:
        return bool(self.codes[i] == self._code_of.get(rule, -1))

    def _rounds_once(self, i: int) -> bool:
        """Whether it is a sum, or difference, by two of numbers that were passed: eager's bits."""
        if not self._is(i, ops.add):
            return False
        row = self.operands[i].tolist()
        return all(self._is_exact(i, j) for j, p in enumerate(row) if p != -1)

    def _is_exact(self, i: int, j: int) -> bool:
        """Whether an operand was passed, is selected among such, or is the negative of one."""
        p = int(self.operands[i, j])
        if p == _SELECTED:
            gather = self.recording.selection.gathers[self._owners[3 * i + j]]
            return bool((self.codes[gather.candidates] < FIRST_RULE).all())
        if self._is(p, ops.mul) and self.recording.number[p]:
            return bool(self.recording.constants[p, 0] == -1.0) and self._is_exact(p, 0)
        return bool(self.codes[p] < FIRST_RULE)

    def _is_never_negative(self, i: int) -> bool:
        """Whether it is made of squares and the like alone; in steps, as recordings are deep."""
        seen, waiting = set[int](), [i]
        while waiting:
            here = waiting.pop()
            if here in self._safe or here in seen:
                continue
            needed = None if here < 0 or here in self._unsafe else self._needed(here)
            if needed is None or not self._unsafe.isdisjoint(needed):
                self._unsafe |= {i, here}  # else each of a chain of sums goes through all before
                return False
            seen.add(here)
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
        if rule is ops.mul and len(row) == 2 and self.are_alike(*row):
            return []
        if rule not in _KEEPS_SIGN or (self.recording.number[i] and not constants[0] >= 0.0):
            return None
        return row

    def are_alike(self, a: int, b: int, depth: int = DEPTH) -> bool:
        """Whether two numbers are one, or were computed one like the other in a few steps."""
        if a == b or min(a, b) < 0:
            return a == b != _SELECTED
        if depth == 0 or max(a, b) < self.recording.inputs:
            return False
        found = self._are_alike.get((a, b))
        if found is None:
            constants = self.recording.constants
            found = bool(self.codes[a] == self.codes[b])
            found = found and constants[a].tobytes() == constants[b].tobytes()
            if found:
                rows = zip(self.operands[a].tolist(), self.operands[b].tolist(), strict=True)
                found = all(self.are_alike(x, y, depth - 1) for x, y in rows)
            if depth == DEPTH:
                self._are_alike[a, b] = found
        return found


#: by which many numbers are told apart at once
_KINDS = (_POSITIVE, NEVER_NEGATIVE, (*_KEEPS_SIGN, *NEVER_NEGATIVE), _ZERO_AT_ZERO)
_Answer = bool | tuple[Callable[[Iterable[bool]], bool], list[int]]


def _surely(_: Iterable[bool]) -> bool:
    return True


def _decided(i: int, ask: Callable[[int], _Answer], known: dict[int, bool]) -> bool:
    """What is asked of a number, where that may depend on others: in steps, they are deep."""
    waiting = [i]
    while waiting:
        here = waiting[-1]
        answer = known[here] if here in known else ask(here)
        if not isinstance(answer, bool):
            how, others = answer
            left = [p for p in others if p not in known]
            if left:
                waiting += left
                continue
            answer = how([known[p] for p in others])
        known[here] = answer
        waiting.pop()
    return known[i]
