"""How far rounding may have moved what a comparison reads, computed beside it.

In: a recording. Out: the same with more instructions at its end, for machine code. That adds in its
own order and has its own elementary functions, so its numbers differ from eager's by some units in
the last place of the largest term that went into them: where terms cancel, far more than of the
number itself. So of each number that a comparison, a jump such as ``floor``, or ``atan2`` depends
on, the squares of what went into it are added up as well: of a sum those of its terms, of a product
the product of its factors' or, where terms cancel in both, each of them times what went into the
other, of any other function its own square and what its slopes make of its operands'. Where two
numbers are nearer than ``NEAR`` times the root of that, an instruction is not a number, and the
call is left to the tape, whose bits are eager's. Where a domain ends (``poles``), as at ``log(0)``,
it is the terms of the sum alone.

Squares, not magnitudes: errors are as likely to be up as down, and in a loop in time bounds of
magnitudes grow without end where the errors do not. ``NEAR`` is 10⁶ units in the last place, above
the worst that sums of some thousands of terms can do.

Nothing is added where no terms can cancel: for numbers that were passed, what is rounded once from
them, products, and sums of what is never negative. There the number itself is the measure.
"""

from __future__ import annotations

import functools
from contextlib import suppress
from dataclasses import replace

import numpy as np

from chainrule.compiler.capture.recordings import (
    CONSTANT,
    FIRST_RULE,
    Recording,
    as_needed,
    two_columns,
)
from chainrule.compiler.lift.accuracy import (
    ADD,
    EXACT,
    FLAT,
    MUL,
    PLAIN,
    POSITION,
    SAME,
    SELECT,
    SELECTED,
    Accuracy,
)
from chainrule.compiler.lift.exactness import COMPARISONS
from chainrule.compiler.lift.nearness import (
    NEAR,
    Unknown,
    near_cut,
    near_tie,
    near_whole,
    slope_squared,
)
from chainrule.compiler.lift.poles import End, Poles
from chainrule.core import ops, rounding
from chainrule.core.ops import Op

JUMPS = (rounding.floor, rounding.ceil, rounding.trunc, rounding.round)
FIRST_NUMBER = 1 << 40  # stands for the position of a new constant, until all are known
RATIOS = (rounding.floor_divide, rounding.mod)
UNKNOWN = -1  # in the place of squares that cannot be told


def with_margins(recording: Recording, poles: bool = True) -> Recording:
    """The recording, and instructions that are not numbers where rounding may decide something.

    ``poles``: also whether an operation is defined.
    """
    if recording.shed:  # it was made machine code of, with all of this
        return recording
    users, looked = _users(recording), Poles(recording)
    ends = looked.found() if poles else []
    if not users and not ends:
        return recording
    return _Margins(recording, users, ends, looked).made()


def has_decisions(recording: Recording) -> bool:
    """Whether it compares, or rounds, what it computed: finding margins takes the longest then."""
    return not recording.shed and bool(_users(recording))


def _users(recording: Recording) -> list[int]:
    """The instructions that rounding may decide something for."""
    wanted = [*COMPARISONS, *JUMPS, *RATIOS, rounding.sign, ops.atan2]
    codes = [FIRST_RULE + k for k, rule in enumerate(recording.rules) if rule in wanted]
    users = np.flatnonzero(np.isin(recording.codes, codes)) if codes else np.zeros(0, np.int64)
    read = recording.operands[users]
    computed = (read >= 0) & (recording.codes[read] >= FIRST_RULE)
    selected = np.isin(users, recording.selection.places // 3)
    found: list[int] = users[computed.any(axis=1) | selected].tolist()
    return found


class _Margins:
    def __init__(
        self, recording: Recording, users: list[int], ends: list[End], poles: Poles
    ) -> None:
        """``poles``: what found the ends."""
        self.recording, self.users, self.size = recording, users, len(recording)
        self.poles, self.doubtful = poles, poles.doubtful
        self.known = Accuracy(recording, users)
        self.ends: dict[int, list[End]] = {}  # by instruction
        for end in ends:
            self.ends.setdefault(end.position, []).append(end)
        self.rules = list(recording.rules)
        self.code_of = {rule: FIRST_RULE + k for k, rule in enumerate(self.rules)}
        self.codes: list[int] = []  # of the new instructions
        self.operands: list[int] = []  # three of each
        self.parameters: dict[int, tuple[float, ...]] = {}  # of those that have some
        self.numbers: dict[float, int] = {}  # constants, which come before all new instructions
        self.places: list[tuple[int, int]] = []  # of new operands that integers select; the gather
        self.made_of: dict[tuple[object, ...], int] = {}  # new instructions
        self.squares: dict[int, int] = {}  # of reads; UNKNOWN
        self.of_tables: dict[int, int] = {}  # and of all that an integer selects among
        self.terms: dict[int, int] = {}  # of positions

    def made(self) -> Recording:
        """The recording with what all of them need, in the order of what it is needed for.

        So that of a loop in time is a loop as well, from the same iteration on.
        """
        needed, added, users = self._all_needed(), self._all_added(), set(self.users)
        for i in sorted({*needed, *added, *users, *self.ends}):
            # What is unknown has the margin of its own size.
            if i in needed:
                with suppress(Unknown):
                    self._squares(i)
            if i in users:
                with suppress(Unknown):
                    self._check(i)
            if i in added:
                self._terms(i)
            for end in self.ends.get(i, ()):
                number = self._constant(end.number)
                self._add(near_tie, [end.compared, number, self._terms(end.compared)])
        return self._whole() if self.codes else self.recording

    def _whole(self) -> Recording:
        """The recording, new constants, and new instructions."""
        given, more = self.recording, len(self.numbers)
        count = more + len(self.codes)
        operands = np.array(self.operands, np.int64).reshape(-1, 3)
        operands += np.where(operands >= self.size, more, 0)
        operands -= np.where(operands >= FIRST_NUMBER, FIRST_NUMBER + more - self.size, 0)
        places, owners = np.array(self.places, np.int32).reshape(-1, 2).T
        places = places + 3 * more
        selection = replace(
            given.selection,
            places=np.concatenate([given.selection.places, places]).astype(np.int32),
            owners=np.concatenate([given.selection.owners, owners]).astype(np.int32),
        )
        codes, constants = np.full(count, CONSTANT, np.int32), np.zeros((count, 2))
        codes[more:], constants[:more, 0] = self.codes, list(self.numbers)
        for k, numbers in self.parameters.items():
            constants[more + k, : len(numbers)] = numbers
        none, nothing = np.zeros(count, np.bool_), np.full((more, 3), -1)
        before = two_columns(given.constants)
        return replace(
            given,
            codes=np.concatenate([given.codes, codes]),
            operands=np.concatenate([given.operands, nothing, operands]).astype(np.int32),
            constants=as_needed(np.concatenate([before, constants]), self.rules),
            number=np.concatenate([given.number, none]),
            unflagged=np.concatenate([given.unflagged, none]),
            rules=tuple(self.rules),
            selection=selection,
        )

    # --- new instructions -------------------------------------------------------------------------

    def _add(self, rule: Op, reads: list[int], parameters: tuple[float, ...] = ()) -> int:
        key = (rule, *reads, parameters)
        found = self.made_of.get(key)
        if found is not None:
            return found
        code = self.code_of.get(rule)
        if code is None:
            code = self.code_of[rule] = FIRST_RULE + len(self.rules)
            self.rules.append(rule)
        k = len(self.codes)
        found = self.made_of[key] = self.size + k
        for j, read in enumerate(reads):
            if read >= SELECTED:
                self.places.append((3 * found + j, read // SELECTED - 1))
                reads = [*reads[:j], read & POSITION, *reads[j + 1 :]]
        self.codes.append(code)
        self.operands += reads
        self.operands += [-1] * (3 - len(reads))
        if parameters:
            self.parameters[k] = parameters
        return found

    def _constant(self, number: float) -> int:
        return self.numbers.setdefault(number, FIRST_NUMBER + len(self.numbers))

    def _plain(self, read: int) -> int:
        """The same; of equal constants one, as iterations of a loop have their own."""
        is_constant = read < SELECTED and self.known.codes[read] == CONSTANT
        return self._constant(self.known.numbers[read]) if is_constant else read

    def _times(self, a: int, b: int) -> int:
        one = self.numbers.get(1.0)
        if one in (a, b):
            return a if b == one else b
        return self._add(ops.mul, [a, b])

    def _sum(self, terms: list[int]) -> int:
        return functools.reduce(lambda a, b: self._add(ops.add, [a, b]), terms)

    # --- the squares of what went into a number ---------------------------------------------------

    def _all_needed(self) -> set[int]:
        """The instructions whose squares are needed."""
        waiting = [read for i in self.users for read in self._measured_by(i)]
        seen = set(waiting)
        while waiting:
            for each in self._needed(waiting.pop()):
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        return {read for read in seen if read < SELECTED}

    def _squares(self, read: int) -> int:
        """Those of a number, after those of all that it needs: recordings are deep."""
        waiting = [read]
        while waiting:
            here = waiting[-1]
            if here not in self.squares:
                needed = [r for r in self._needed(here) if r not in self.squares]
                if needed:
                    waiting += needed
                    continue
                try:
                    self.squares[here] = self._made_squares(here)
                except Unknown:
                    self.squares[here] = UNKNOWN
            waiting.pop()
        return self._of(read)

    def _of(self, read: int) -> int:
        found = self.squares[read]
        if found == UNKNOWN:
            raise Unknown
        return found

    def _needed(self, read: int) -> list[int]:
        """The operands whose squares its own are made of."""
        known = self.known
        if known.is_measured(read):
            return []
        if read >= SELECTED:
            table = known.table(read)
            return [] if table in self.of_tables else known.candidates(table)
        kind, reads = known.kind(read), known.reads(read)
        if kind in (ADD, MUL):
            return reads
        if kind == SELECT:
            return reads[1:]
        return [r for r in reads if not known.of(r) & EXACT]

    def _made_squares(self, read: int) -> int:
        known = self.known
        if known.is_measured(read):
            return self._times(read, read)
        if read >= SELECTED:  # as if all of them went into it: their sum is computed only once
            table = known.table(read)
            if table not in self.of_tables:
                self.of_tables[table] = self._sum([self._of(p) for p in known.candidates(table)])
            return self.of_tables[table]
        kind, reads, number = known.kind(read), known.reads(read), known.number(read)
        if kind == ADD:
            more = [] if number is None else [self._constant(number * number)]
            return self._sum([*[self._of(r) for r in reads], *more])
        if kind == MUL:
            if len(reads) > 1 and not any(known.of(r) & PLAIN for r in reads):
                return self._product(reads)
            other = self._of(reads[1]) if number is None else self._constant(number * number)
            return self._times(self._of(reads[0]), other)
        if kind == SELECT:
            return self._add(ops.select, [reads[0], *[self._of(r) for r in reads[1:]]])
        if kind == FLAT:
            return self._sum([self._of(r) for r in self._needed(read)])
        return self._by_slopes(read, reads, number)

    def _by_slopes(self, i: int, reads: list[int], number: float | None) -> int:
        """The square of a result, and what the slopes make of those of the operands."""
        rule = self.known.rule(i)
        if rule is None or len(reads) + (number is not None) > 2:
            raise Unknown
        numbers = [i, *reads] + ([] if number is None else [self._constant(number)])
        squares = [self._times(i, i)]
        for k, operand in enumerate(reads):
            if not self.known.of(operand) & EXACT:
                slope = self._add(slope_squared(rule, k), numbers, self.known.parameters(i))
                squares.append(self._times(slope, self._of(operand)))
        return self._sum(squares)

    def _product(self, reads: list[int]) -> int:
        """Of two numbers in which terms cancel: each as it is, times what went into the other.

        What both may be off by at once is as small as that of one, times itself. Products of all
        that went into both would be too large soon: in a loop, the square of the last turn's.
        """
        squares = [self._of(read) for read in reads]
        terms = [
            self._times(self._times(read, read), other)
            for read, other in zip(reads, reversed(squares), strict=True)
        ]
        both = self._add(ops.mul, squares)
        return self._sum([*terms, self._times(both, self._constant(NEAR * NEAR))])

    # --- the squares of the terms of a sum alone --------------------------------------------------

    def _all_added(self) -> set[int]:
        """The sums whose terms are looked at, and the sums that are terms of them."""
        found, waiting = set[int](), [x.compared for ends in self.ends.values() for x in ends]
        while waiting:
            read = waiting.pop()
            if self._is_through(read) and read not in found:
                found.add(read)
                waiting += self.known.reads(read)
        return found

    def _is_through(self, read: int) -> bool:
        """Whether it is a sum or a plain multiple, or zero where one is: these are looked at."""
        if read >= SELECTED:
            return False
        kind = self.known.kind(read)
        is_multiple = kind == MUL and self.known.has_number[read]
        return kind == ADD or is_multiple or read in self.doubtful

    def _terms(self, read: int) -> int:
        """The sum of the squares of its terms; those of sums in it are known."""
        found = self.terms.get(read)
        if found is None:
            found = self.terms[read] = self._made_terms(read)
        return found

    def _made_terms(self, read: int) -> int:
        known = self.known
        if not self._is_through(read):
            is_product = read < SELECTED and known.kind(read) == MUL
            factors = known.reads(read) if is_product else [read]
            return functools.reduce(self._times, [self._square(r) for r in factors])
        kind, number, reads = known.kind(read), known.number(read), known.reads(read)
        if kind == ADD:
            more = [] if number is None else [self._constant(number * number)]
            return self._sum([*[self._terms(r) for r in reads], *more])
        if kind == MUL and number is not None:
            return self._times(self._terms(reads[0]), self._constant(number * number))
        return self._passed_on(read, number, reads)

    def _passed_on(self, i: int, number: float | None, reads: list[int]) -> int:
        """The same of what is zero where an operand is, made of those of its operands.

        So that it is as near to zero, by this measure, as these are by theirs.
        """
        rule = self.known.rule(i)
        if rule is ops.select:
            return self._add(rule, [reads[0], *[self._terms(r) for r in reads[1:]]])
        if rule is ops.divide:
            by = self._square(reads[1]) if number is None else self._constant(number * number)
            return self._add(rule, [self._terms(reads[0]), by])
        is_square = rule is ops.mul and self.poles.are_alike(*reads)
        if rule is ops.mul and not is_square:
            of_both = [self._terms(r) for r in reads]
            both = self._times(self._times(*of_both), self._constant(NEAR * NEAR))
            crossed = zip(reads, reversed(of_both), strict=True)
            return self._sum([*[self._times(self._square(r), q) for r, q in crossed], both])
        if is_square or rule is ops.pow:
            power = 2.0 if is_square else self.known.parameters(i)[0]
            terms = self._terms(reads[0])
            raised = self._times(terms, terms) if power == 2.0 else self._raised(terms, power)
            scale = self._constant(NEAR ** (2.0 * power - 2.0))
            return self._sum([self._square(i), self._times(raised, scale)])
        more = [] if number is None else [self._constant(number * number)]
        return self._sum([*[self._terms(r) for r in reads], *more])

    def _raised(self, read: int, power: float) -> int:
        return read if power == 1.0 else self._add(ops.pow, [read], (power,))

    def _square(self, read: int) -> int:
        if read < SELECTED and self.known.codes[read] == CONSTANT:
            return self._constant(self.known.numbers[read] ** 2)
        return self._times(read, read)

    # --- what rounding may decide -----------------------------------------------------------------

    def _measured_by(self, i: int) -> list[int]:
        """What it reads that rounding may have moved."""
        reads = self.known.reads(i)
        reads = reads[:1] if self.known.rule(i) is ops.atan2 else reads
        return [read for read in reads if not self.known.of(read) & EXACT]

    def _check(self, i: int) -> None:
        rule, reads, number = self.known.rule(i), self.known.reads(i), self.known.number(i)
        some = [self.known.of(read) for read in reads]
        if rule is ops.atan2:
            if some[0] & SAME or number is not None or len(reads) < 2:
                return
            error = self._constant(0.0) if some[0] & EXACT else self._squares(reads[0])
            self._add(near_cut, [*reads, error])
            return
        if all(x & PLAIN for x in some):
            return
        inexact = self._measured_by(i)
        error = self._sum([self._squares(read) for read in inexact])
        if rule is rounding.sign:
            self._add(near_tie, [reads[0], self._constant(0.0), error])
        elif rule in COMPARISONS:
            sides = reads if number is None else [reads[0], self._constant(number)]
            self._add(near_tie, [*map(self._plain, sides), error])
        elif rule in RATIOS:
            by = reads[1] if number is None else self._constant(number)
            ratio = self._add(ops.divide, [reads[0], by])
            squares = [self._times(ratio, ratio)]
            for k, read in enumerate(reads):
                if read in inexact:
                    slope = self._add(slope_squared(ops.divide, k), [ratio, reads[0], by])
                    squares.append(self._times(slope, self._of(read)))
            self._add(near_whole, [ratio, self._sum(squares)])
        else:
            half = self._add(ops.add, [reads[0], self._constant(0.5)])
            x = half if rule is rounding.round else reads[0]
            self._add(near_whole, [x, error])
