"""How accurate the numbers of a recording are in every call, as far as its instructions tell.

In: a recording, and the instructions that rounding may matter to. Out: for all that these depend
on, what is true of it whatever is passed: a few bits each. Recordings have tens of thousands of
instructions, so all is plain integers in flat lists, and everything is gone through once.

An operand (a *read*) is the position of an instruction; of one that an integer selects, with its
gather in the higher bits.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Recording
from chainrule.compiler.lift.exactness import COMPARISONS
from chainrule.compiler.lift.poles import NEVER_NEGATIVE
from chainrule.core import ops
from chainrule.core.ops import Op

SELECTED = 1 << 42  # reads from here on: (gather + 1) * SELECTED + the position in the recording
POSITION = SELECTED - 1

EXACT = 1  # it has eager's bits, but for the sign of zero
SAME = 2  # and that too
PLAIN = 4  # it is as accurate as its size says
POSITIVE = 8  # or zero
ALL = EXACT | SAME | PLAIN | POSITIVE
MERGED = 16  # a sum of it may be one of its terms, in another order or fused

#: no terms cancel in them, and they are no steeper than their operand is large
_SMOOTH = (
    *(ops.sqrt, ops.exp, ops.sigmoid, ops.tanh, ops.softplus, ops.hypot, ops.divide, ops.pow),
    *(ops.power, ops.number_power, ops.integer_power, ops.atan, ops.sinh, ops.cosh, ops.asinh),
    *(ops.erf, ops.expm1),
)
#: their slopes are 1 at most, also where they have none
_CHOOSING = (ops.detach, ops.first_max, ops.first_min, ops.maximum, ops.minimum, ops.clip)
_FLAT = (*_CHOOSING, ops.abs, ops.relu, ops.leaky_relu)
_ROUNDED = (ops.sqrt, ops.divide)  # once, as eager does

ADD, MUL, SELECT, COMPARISON, FLAT, OTHER = range(6)


class Accuracy:
    """What is known of all that some instructions depend on."""

    def __init__(self, recording: Recording, users: list[int]) -> None:
        self.recording, self.size = recording, len(recording)
        self.codes: list[int] = recording.codes.tolist()
        self.operands: list[int] = recording.operands.ravel().tolist()
        self.numbers: list[float] = recording.constants[:, 0].tolist()
        self.has_number: list[bool] = recording.number.tolist()
        self.kinds = [OTHER] * FIRST_RULE + [_kind(rule) for rule in recording.rules]
        uses = np.bincount(recording.operands.ravel() + 1, minlength=self.size + 1)
        self.uses: list[int] = uses[1:].tolist()
        selection = recording.selection
        self._owners = dict(zip(selection.places.tolist(), selection.owners.tolist(), strict=True))
        self._tables = {id(g.candidates): g.candidates for g in selection.gathers}
        self._candidates: dict[int, list[int]] = {}  # of each table
        self._of_tables: dict[int, int] = {}  # what is known of all candidates
        self.known = [0] * self.size
        self._find(self._upstream(users))

    # --- what instructions read -------------------------------------------------------------------

    def reads(self, i: int) -> list[int]:
        """The operands of an instruction."""
        a, b, c = self.operands[3 * i : 3 * i + 3]
        found = [a, b, c] if c >= 0 else [a, b] if b >= 0 else [a] if a >= 0 else []
        if self._owners:
            for j, p in enumerate(found):
                owner = self._owners.get(3 * i + j, -1)
                if owner >= 0:
                    found[j] = p + (owner + 1) * SELECTED
        return found

    def rule(self, i: int) -> Op | None:
        """What an instruction does; None for inputs and constants."""
        code = self.codes[i]
        return None if code < FIRST_RULE else self.recording.rules[code - FIRST_RULE]

    def kind(self, i: int) -> int:
        """The same, as far as accuracy goes."""
        return self.kinds[self.codes[i]]

    def number(self, i: int) -> float | None:
        """The plain number that is its second operand."""
        return self.numbers[i] if self.has_number[i] else None

    def parameters(self, i: int) -> tuple[float, ...]:
        """The static numbers of what it does."""
        rule = self.rule(i)
        count = len(rule.parameters) if rule is not None else 0
        return tuple(self.recording.constants[i, :count].tolist())

    def table(self, read: int) -> int:
        """Which numbers an integer selects among."""
        return id(self.recording.selection.gathers[read // SELECTED - 1].candidates)

    def candidates(self, table: int) -> list[int]:
        """These numbers, each once."""
        found = self._candidates.get(table)
        if found is None:
            found = list(dict.fromkeys(self._tables[table].tolist()))
            self._candidates[table] = found
        return found

    # --- what is known of them --------------------------------------------------------------------

    def of(self, read: int) -> int:
        """What is known of an operand."""
        if read < SELECTED:
            return self.known[read]
        table = self.table(read)
        found = self._of_tables.get(table)
        if found is None:
            found = ALL
            for p in self.candidates(table):
                found &= self.known[p]
            self._of_tables[table] = found
        return found

    def of_all(self, reads: Iterable[int]) -> int:
        """What is known of each of them."""
        found = ALL
        for read in reads:
            found &= self.of(read)
        return found

    def _upstream(self, users: list[int]) -> list[int]:
        """All that they depend on, in order."""
        is_found, operands, owners = bytearray(self.size), self.operands, self._owners
        seen = set[int]()  # tables
        for i in users:
            is_found[i] = 1
        for i in range(max(users, default=-1), -1, -1):
            if not is_found[i]:
                continue
            for at in range(3 * i, 3 * i + 3):
                p = operands[at]
                if p < 0:
                    break
                owner = owners.get(at, -1) if owners else -1
                if owner < 0:
                    is_found[p] = 1
                    continue
                table = id(self.recording.selection.gathers[owner].candidates)
                if table not in seen:
                    seen.add(table)
                    for candidate in self.candidates(table):
                        is_found[candidate] = 1
        return [i for i in range(self.size) if is_found[i]]

    def _find(self, some: list[int]) -> None:
        """Go through instructions, in order."""
        first = list(range(self.size))  # of each number: the first that is computed alike
        alike: dict[tuple[float, ...], int] = {}
        second = self._second_numbers()
        for i in some:
            code = self.codes[i]
            if code < FIRST_RULE:
                positive = POSITIVE if code == CONSTANT and self.numbers[i] >= 0.0 else 0
                self.known[i] = EXACT | SAME | PLAIN | positive
                continue
            reads = self.reads(i)
            those = [
                first[r] if r < SELECTED else r - (r & POSITION) + first[r & POSITION]
                for r in reads
            ]
            key = (code, self.numbers[i], second[i], *those)
            first[i] = alike.setdefault(key, i)
            self.known[i] = self._of_result(i, reads, len(those) > len(set(those)))

    def _second_numbers(self) -> list[float]:
        constants = self.recording.constants
        return constants[:, 1].tolist() if constants.shape[1] > 1 else [0.0] * self.size

    def _of_result(self, i: int, reads: list[int], is_square: bool) -> int:
        """What is known of a result; ``is_square``: two operands were computed alike."""
        kind = self.kinds[self.codes[i]]
        if kind == COMPARISON:
            return ALL
        found = self.of_all(reads[1:] if kind == SELECT else reads)
        has_number = self.has_number[i]
        if has_number and not self.numbers[i] >= 0.0:
            found &= ~POSITIVE
        if kind == ADD:
            return self._of_sum(i, reads, found)
        if kind == MUL:
            found |= POSITIVE if is_square else 0
            found &= ALL if found & EXACT else ~SAME
            return found | (MERGED if self._goes_through(i, reads) else 0)
        rule = self.recording.rules[self.codes[i] - FIRST_RULE]
        found |= POSITIVE if rule in NEVER_NEGATIVE else 0
        if kind in (FLAT, SELECT):
            return found
        if rule is ops.pow and (self.numbers[i] / 2.0).is_integer():
            found |= POSITIVE
        is_smooth, exact = rule in _SMOOTH, found & EXACT
        plain = PLAIN if exact or (found & PLAIN and is_smooth) else 0
        return plain | (exact if rule in _ROUNDED else 0) | (found & POSITIVE if is_smooth else 0)

    def _of_sum(self, i: int, reads: list[int], found: int) -> int:
        exact, positive = found & EXACT, found & POSITIVE
        if not self.has_number[i]:
            for read in reads:
                if self.is_merged(read):
                    exact = 0
        plain = PLAIN if exact or (found & PLAIN and positive) else 0
        return exact | plain | positive | (MERGED if self._goes_through(i, reads) else 0)

    def _goes_through(self, i: int, reads: list[int]) -> bool:
        """Whether a sum of this sum or product may be one of its terms."""
        if not self.has_number[i]:
            return True
        through = self.kind(i) == MUL or self.numbers[i] == 0.0
        return through and self.is_merged(reads[0])

    def is_merged(self, read: int) -> bool:
        """Whether a sum of it may be one of its terms, in another order or fused."""
        return read < SELECTED and bool(self.known[read] & MERGED)

    def is_measured(self, read: int) -> bool:
        """Whether its own square is the measure, and there is an instruction to read it from."""
        if read >= SELECTED or not self.known[read] & PLAIN:
            return False
        return not self.known[read] & MERGED or self.uses[read] > 1


def _kind(rule: Op) -> int:
    if rule in COMPARISONS:
        return COMPARISON
    known = {ops.add: ADD, ops.mul: MUL, ops.select: SELECT}
    return known.get(rule, FLAT if rule in _FLAT else OTHER)
