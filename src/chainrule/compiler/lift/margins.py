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
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from chainrule.compiler.capture.recordings import (
    CONSTANT,
    FIRST_RULE,
    Recording,
    as_needed,
    two_columns,
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
from chainrule.compiler.lift.poles import NEVER_NEGATIVE, End, Poles
from chainrule.core import ops, rounding
from chainrule.core.ops import Op

JUMPS = (rounding.floor, rounding.ceil, rounding.trunc, rounding.round)
FIRST_NUMBER = 1 << 40  # stands for the position of a new constant, until all are known
RATIOS = (rounding.floor_divide, rounding.mod)

#: no terms cancel in them, and they are no steeper than their operand is large
_SMOOTH = (
    *(ops.sqrt, ops.exp, ops.sigmoid, ops.tanh, ops.softplus, ops.hypot, ops.divide, ops.pow),
    *(ops.power, ops.number_power, ops.integer_power, ops.atan, ops.sinh, ops.cosh, ops.asinh),
    *(ops.erf, ops.expm1),
)
#: their slopes are 1 at most, also where they have none
_CHOOSING = (ops.detach, ops.first_max, ops.first_min, ops.maximum, ops.minimum, ops.clip)
_FLAT = (*_CHOOSING, ops.abs, ops.relu, ops.leaky_relu)


class _Read(NamedTuple):
    """An operand: an instruction, or what an integer selects (``owner``: its gather)."""

    position: int
    owner: int = -1


class _Sort(NamedTuple):
    """What is known of a number in every call."""

    is_exact: bool  # it has eager's bits, but for the sign of zero
    is_same: bool  # and that too
    is_plain: bool  # it is as accurate as its size says
    is_positive: bool  # or zero


_ANY = _Sort(is_exact=False, is_same=False, is_plain=False, is_positive=False)
_TRUTH = _Sort(is_exact=True, is_same=True, is_plain=True, is_positive=True)


def with_margins(recording: Recording, poles: bool = True) -> Recording:
    """The recording, and instructions that are not numbers where rounding may decide something.

    ``poles``: also whether an operation is defined.
    """
    if recording.shed:  # it was made machine code of, with all of this
        return recording
    wanted = [*COMPARISONS, *JUMPS, *RATIOS, rounding.sign, ops.atan2]
    codes = [FIRST_RULE + k for k, rule in enumerate(recording.rules) if rule in wanted]
    users = np.flatnonzero(np.isin(recording.codes, codes)) if codes else np.zeros(0, np.int64)
    read = recording.operands[users]
    computed = (read >= 0) & (recording.codes[read] >= FIRST_RULE)
    selected = np.isin(users, recording.selection.places // 3)
    users = users[computed.any(axis=1) | selected]
    looked = Poles(recording)
    ends = looked.found() if poles else []
    if not len(users) and not ends:
        return recording
    return _Margins(recording, users.tolist(), ends, looked).made()


class _Margins:
    def __init__(
        self, recording: Recording, users: list[int], ends: list[End], poles: Poles
    ) -> None:
        """``poles``: what found the ends."""
        self.recording, self.users, self.size = recording, users, len(recording)
        self.poles, self.doubtful = poles, poles.doubtful
        self.ends: dict[int, list[tuple[_Read, float]]] = {}  # by instruction
        self.rules = list(recording.rules)
        self.code_of = {rule: FIRST_RULE + k for k, rule in enumerate(self.rules)}
        self.given_codes = recording.codes.tolist()
        self.given_operands = recording.operands.tolist()
        self.given_constants = recording.constants.tolist()
        self.has_number = recording.number.tolist()
        self.codes: list[int] = []  # of the new instructions
        self.operands: list[list[int]] = []
        self.constants: list[tuple[float, float]] = []
        self.numbers: list[float] = []  # constants, which come before all new instructions
        self.places: list[tuple[int, int]] = []  # of new operands that integers select; the gather
        self.known: dict[Any, int] = {}
        selection = recording.selection
        self.owners = dict(zip(selection.places.tolist(), selection.owners.tolist(), strict=True))
        uses = np.bincount(recording.operands.ravel() + 1, minlength=self.size + 1)
        self.uses = uses[1:].tolist()
        self.reads: dict[int, list[_Read]] = {}
        self.sorts: dict[int, _Sort] = {}
        self.first: dict[int, int] = {}  # of each number: the first that is computed alike
        computed: dict[Any, int] = {}
        for i in self._upstream():
            reads = [(self.first[r.position], r.owner) for r in self._reads(i)]
            numbers = tuple(self.given_constants[i]) if reads else i
            alike = self.given_codes[i], tuple(reads), numbers
            self.first[i] = computed.setdefault(alike, i)
            self.sorts[i] = self._sort(i)
        for end in ends:
            read = _Read(end.compared)
            self.ends.setdefault(end.position, []).append((read, end.number))

    def made(self) -> Recording:
        """The recording with what all of them need, in the order of what it is needed for.

        So that of a loop in time is a loop as well, from the same iteration on.
        """
        needed, added, users = self._all_needed(), self._all_added(), set(self.users)
        for i in sorted({*needed, *added, *self.ends}):
            # What is unknown has the margin of its own size.
            for read in needed.get(i, ()):
                with suppress(Unknown):
                    self._squares(read)
            if i in users:
                with suppress(Unknown):
                    self._check(i)
            if i in added:
                self._terms(_Read(i))
            for read, end in self.ends.get(i, ()):
                number = self._constant(end)
                self._add(near_tie, [read, number, self._terms(read)])
        if not self.codes:
            return self.recording
        given, more = self.recording, len(self.numbers)
        count = more + len(self.codes)
        operands = np.array(self.operands, np.int64)
        operands += np.where(operands >= self.size, more, 0)
        operands -= np.where(operands >= FIRST_NUMBER, FIRST_NUMBER + more - self.size, 0)
        selection = given.selection
        places, owners = np.array(self.places, np.int32).reshape(-1, 2).T
        places = places + 3 * more
        codes = [*[CONSTANT] * more, *self.codes]
        nothing = np.full((more, 3), -1)
        constants = [*[(x, 0.0) for x in self.numbers], *self.constants]
        selection = replace(
            selection,
            places=np.concatenate([selection.places, places]).astype(np.int32),
            owners=np.concatenate([selection.owners, owners]).astype(np.int32),
        )
        none, before = np.zeros(count, np.bool_), two_columns(given.constants)
        return replace(
            given,
            codes=np.concatenate([given.codes, np.array(codes, np.int32)]),
            operands=np.concatenate([given.operands, nothing, operands]).astype(np.int32),
            constants=as_needed(np.concatenate([before, np.array(constants)]), self.rules),
            number=np.concatenate([given.number, none]),
            unflagged=np.concatenate([given.unflagged, none]),
            rules=tuple(self.rules),
            selection=selection,
        )

    # --- what is known of numbers -----------------------------------------------------------------

    def _rule(self, i: int) -> Op | None:
        code = self.given_codes[i]
        return None if code < FIRST_RULE else self.recording.rules[code - FIRST_RULE]

    def _reads(self, i: int) -> list[_Read]:
        found = self.reads.get(i)
        if found is None:
            row, owners = self.given_operands[i], self.owners
            found = [_Read(p, owners.get(3 * i + j, -1)) for j, p in enumerate(row) if p >= 0]
            self.reads[i] = found
        return found

    def _number(self, i: int) -> float | None:
        """The plain number that is its second operand."""
        return float(self.given_constants[i][0]) if self.has_number[i] else None

    def _parameters(self, i: int) -> tuple[float, ...]:
        rule = self._rule(i)
        count = len(rule.parameters) if rule is not None else 0
        return tuple(self.given_constants[i][:count])

    def _candidates(self, read: _Read) -> Iterable[int]:
        if read.owner < 0:
            return (read.position,)
        return [int(p) for p in self.recording.selection.gathers[read.owner].candidates]

    def _table(self, read: _Read) -> int:
        """Which numbers an integer selects among."""
        return id(self.recording.selection.gathers[read.owner].candidates)

    def _upstream(self) -> list[int]:
        """All that they depend on, in order."""
        found, waiting = set(self.users), list(self.users)
        while waiting:
            i = waiting.pop()
            for read in self._reads(i):
                for p in self._candidates(read):
                    if p not in found:
                        found.add(p)
                        waiting.append(p)
        return sorted(found)

    def _sort_of(self, read: _Read) -> _Sort:
        if read.owner < 0:
            return self.sorts[read.position]
        some = [self.sorts[p] for p in self._candidates(read)]
        return _Sort(
            all(x.is_exact for x in some),
            all(x.is_same for x in some),
            all(x.is_plain for x in some),
            all(x.is_positive for x in some),
        )

    def _sort(self, i: int) -> _Sort:
        rule = self._rule(i)
        if rule is None:
            positive = self.given_codes[i] == CONSTANT and self.given_constants[i][0] >= 0.0
            return _TRUTH._replace(is_positive=positive)
        if rule in COMPARISONS:
            return _TRUTH
        reads = self._reads(i)
        some, number = [self._sort_of(read) for read in reads], self._number(i)
        if rule is ops.select:
            some = some[1:]
        exact = all(x.is_exact for x in some)
        plain = all(x.is_plain for x in some)
        positive = all(x.is_positive for x in some) and (number is None or number >= 0.0)
        if rule is ops.add:
            if number is None:
                exact = exact and not any(self._is_merged(read) for read in reads)
            return _Sort(exact, False, exact or (plain and positive), positive)
        if rule is ops.mul:
            alike = {(self.first[r.position], r.owner) for r in reads}
            positive = positive or len(reads) > len(alike)
            return _Sort(exact, exact and all(x.is_same for x in some), plain, positive)
        positive = rule in NEVER_NEGATIVE or positive
        if rule in _FLAT or rule is ops.select:
            same = all(x.is_same for x in some)
            return _Sort(exact, same, plain, positive)
        if rule is ops.pow and (self._parameters(i)[0] / 2.0).is_integer():
            positive = True
        plain = exact or (plain and rule in _SMOOTH)
        exact = exact and rule in (ops.sqrt, ops.divide)
        return _Sort(exact, False, plain, positive and rule in _SMOOTH)

    def _is_merged(self, read: _Read) -> bool:
        """Whether a sum of it may be one of its terms, in another order or fused."""
        rule = self._rule(read.position)
        if read.owner >= 0 or rule not in (ops.add, ops.mul):
            return False
        number = self._number(read.position)
        if number is None:
            return True
        through = rule is ops.mul or number == 0.0
        return through and self._is_merged(self._reads(read.position)[0])

    # --- new instructions -------------------------------------------------------------------------

    def _add(self, rule: Op, reads: list[_Read], parameters: tuple[float, ...] = ()) -> _Read:
        key = (rule, tuple(reads), parameters)
        if key not in self.known:
            if rule not in self.code_of:
                self.code_of[rule] = FIRST_RULE + len(self.rules)
                self.rules.append(rule)
            at = self.size + len(self.codes)
            row = [read.position for read in reads]
            self.places += [(3 * at + j, r.owner) for j, r in enumerate(reads) if r.owner >= 0]
            self.codes.append(self.code_of[rule])
            self.operands.append([*row, *[-1] * (3 - len(row))])
            first, second, *_ = (*parameters, 0.0, 0.0)
            self.constants.append((first, second))
            self.known[key] = at
        return _Read(self.known[key])

    def _constant(self, number: float) -> _Read:
        if number not in self.known:
            self.known[number] = FIRST_NUMBER + len(self.numbers)
            self.numbers.append(number)
        return _Read(self.known[number])

    def _plain(self, read: _Read) -> _Read:
        """The same; of equal constants one, as iterations of a loop have their own."""
        is_constant = read.owner < 0 and self.given_codes[read.position] == CONSTANT
        return self._constant(self.given_constants[read.position][0]) if is_constant else read

    def _sum(self, terms: list[_Read]) -> _Read:
        return functools.reduce(lambda a, b: self._add(ops.add, [a, b]), terms)

    # --- the squares of what went into a number ---------------------------------------------------

    def _all_needed(self) -> dict[int, list[_Read]]:
        """Per instruction: itself if its squares are needed; of users: what they read, too."""
        found: dict[int, list[_Read]] = {i: [] for i in self.users}
        waiting = [read for i in self.users for read in self._measured_by(i)]
        seen = set(waiting)
        while waiting:
            read = waiting.pop()
            if read.owner < 0:
                found.setdefault(read.position, []).append(read)
            for each in self._needed(read):
                if each not in seen:
                    seen.add(each)
                    waiting.append(each)
        return found

    def _squares(self, read: _Read) -> _Read:
        """Those of a number, after those of all that it needs: recordings are deep."""
        waiting = [read]
        while waiting:
            here = waiting[-1]
            needed = [r for r in self._needed(here) if ("squares", r) not in self.known]
            if needed:
                waiting += needed
                continue
            if ("squares", here) not in self.known:
                self.known["squares", here] = self._made_squares(here).position
            waiting.pop()
        return self._of(read)

    def _of(self, read: _Read) -> _Read:
        return _Read(self.known["squares", read])

    def _is_measured(self, read: _Read) -> bool:
        """Whether its own square is the measure, and there is an instruction to read it from."""
        if read.owner >= 0 or not self._sort_of(read).is_plain:
            return False
        return not self._is_merged(read) or self.uses[read.position] > 1

    def _needed(self, read: _Read) -> list[_Read]:
        """The operands whose squares its own are made of."""
        if self._is_measured(read):
            return []
        if read.owner >= 0:
            is_known = ("table", self._table(read)) in self.known
            return [] if is_known else [_Read(p) for p in self._candidates(read)]
        rule, reads = self._rule(read.position), self._reads(read.position)
        if rule in (ops.add, ops.mul):
            return reads
        reads = reads[1:] if rule is ops.select else reads
        return [r for r in reads if rule is ops.select or not self._sort_of(r).is_exact]

    def _made_squares(self, read: _Read) -> _Read:
        if self._is_measured(read):
            return self._add(ops.mul, [read, read])
        if read.owner >= 0:  # as if all of them went into it: their sum is computed only once
            key = "table", self._table(read)
            if key not in self.known:
                some = dict.fromkeys(self._candidates(read))
                self.known[key] = self._sum([self._of(_Read(p)) for p in some]).position
            return _Read(self.known[key])
        i = read.position
        rule, reads, number = self._rule(i), self._reads(i), self._number(i)
        assert rule is not None
        if rule is ops.add:
            more = [] if number is None else [self._constant(number * number)]
            return self._sum([*[self._of(r) for r in reads], *more])
        if rule is ops.mul:
            if len(reads) > 1 and not any(self._sort_of(r).is_plain for r in reads):
                return self._product(reads)
            other = self._of(reads[1]) if number is None else self._constant(number * number)
            return self._add(ops.mul, [self._of(reads[0]), other])
        if rule is ops.select:
            return self._add(rule, [reads[0], *[self._of(r) for r in reads[1:]]])
        if rule in _FLAT:
            return self._sum([self._of(r) for r in self._needed(read)])
        if len(reads) + (number is not None) > 2:
            raise Unknown
        numbers = [read, *reads] + ([] if number is None else [self._constant(number)])
        squares = [self._add(ops.mul, [read, read])]
        for k, operand in enumerate(reads):
            if not self._sort_of(operand).is_exact:
                slope = self._add(slope_squared(rule, k), numbers, self._parameters(i))
                squares.append(self._add(ops.mul, [slope, self._of(operand)]))
        return self._sum(squares)

    def _product(self, reads: list[_Read]) -> _Read:
        """Of two numbers in which terms cancel: each as it is, times what went into the other.

        What both may be off by at once is as small as that of one, times itself. Products of all
        that went into both would be too large soon: in a loop, the square of the last turn's.
        """
        squares = [self._of(read) for read in reads]
        terms = [
            self._add(ops.mul, [self._add(ops.mul, [read, read]), other])
            for read, other in zip(reads, reversed(squares), strict=True)
        ]
        both = self._add(ops.mul, squares)
        return self._sum([*terms, self._add(ops.mul, [both, self._constant(NEAR * NEAR)])])

    # --- the squares of the terms of a sum alone --------------------------------------------------

    def _all_added(self) -> set[int]:
        """The sums whose terms are looked at, and the sums that are terms of them."""
        found, waiting = set[int](), [read for ends in self.ends.values() for read, _ in ends]
        while waiting:
            read = waiting.pop()
            if self._is_through(read) and read.position not in found:
                found.add(read.position)
                waiting += self._reads(read.position)
        return found

    def _is_through(self, read: _Read) -> bool:
        """Whether it is a sum or a plain multiple, or zero where one is: these are looked at."""
        rule = self._rule(read.position)
        is_multiple = rule is ops.mul and self.has_number[read.position]
        is_through = rule is ops.add or is_multiple or read.position in self.doubtful
        return read.owner < 0 and is_through

    def _terms(self, read: _Read) -> _Read:
        """The sum of the squares of its terms; those of sums in it are known."""
        key = "terms", read
        if key not in self.known:
            i, number = read.position, self._number(read.position)
            reads = self._reads(i) if read.owner < 0 else []
            if not self._is_through(read):
                is_product = read.owner < 0 and self._rule(i) is ops.mul
                made = self._times([self._square(r) for r in (reads if is_product else [read])])
            elif self._rule(i) is ops.add:
                more = [] if number is None else [self._constant(number * number)]
                made = self._sum([*[self._terms(r) for r in reads], *more])
            elif self._rule(i) is ops.mul and number is not None:
                made = self._times([self._terms(reads[0]), self._constant(number * number)])
            else:
                made = self._passed_on(read)
            self.known[key] = made.position
        return _Read(self.known[key])

    def _passed_on(self, read: _Read) -> _Read:
        """The same of what is zero where an operand is, made of those of its operands.

        So that it is as near to zero, by this measure, as these are by theirs.
        """
        i, number, reads = read.position, self._number(read.position), self._reads(read.position)
        rule = self._rule(i)
        if rule is ops.select:
            return self._add(rule, [reads[0], *[self._terms(r) for r in reads[1:]]])
        if rule is ops.divide:
            by = self._square(reads[1]) if number is None else self._constant(number * number)
            return self._add(rule, [self._terms(reads[0]), by])
        is_square = rule is ops.mul and self.poles.are_alike(*[r.position for r in reads])
        if rule is ops.mul and not is_square:
            of_both = [self._terms(r) for r in reads]
            both = self._times([*of_both, self._constant(NEAR * NEAR)])
            crossed = zip(reads, reversed(of_both), strict=True)
            return self._sum([*[self._times([self._square(r), q]) for r, q in crossed], both])
        if is_square or rule is ops.pow:
            power = 2.0 if is_square else self._parameters(i)[0]
            terms = self._terms(reads[0])
            by_two = power == 2.0
            raised = self._times([terms, terms]) if by_two else self._raised(terms, power)
            scale = self._constant(NEAR ** (2.0 * power - 2.0))
            return self._sum([self._square(read), self._times([raised, scale])])
        more = [self._constant(number * number)] if number is not None else []
        return self._sum([*[self._terms(r) for r in reads], *more])

    def _raised(self, read: _Read, power: float) -> _Read:
        return read if power == 1.0 else self._add(ops.pow, [read], (power,))

    def _square(self, read: _Read) -> _Read:
        if read.owner < 0 and self.given_codes[read.position] == CONSTANT:
            return self._constant(self.given_constants[read.position][0] ** 2)
        return self._add(ops.mul, [read, read])

    def _times(self, factors: list[_Read]) -> _Read:
        one = self.known.get(1.0)
        some = [x for x in factors if x.position != one] or factors[:1]
        return functools.reduce(lambda a, b: self._add(ops.mul, [a, b]), some)

    # --- what rounding may decide -----------------------------------------------------------------

    def _measured_by(self, i: int) -> list[_Read]:
        """What it reads that rounding may have moved."""
        reads = self._reads(i)[:1] if self._rule(i) is ops.atan2 else self._reads(i)
        return [read for read in reads if not self._sort_of(read).is_exact]

    def _check(self, i: int) -> None:
        rule, reads, number = self._rule(i), self._reads(i), self._number(i)
        some = [self._sort_of(read) for read in reads]
        if rule is ops.atan2:
            if some[0].is_same or number is not None or len(reads) < 2:
                return
            error = self._constant(0.0) if some[0].is_exact else self._squares(reads[0])
            self._add(near_cut, [*reads, error])
            return
        if all(x.is_plain for x in some):
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
            squares = [self._add(ops.mul, [ratio, ratio])]
            for k, read in enumerate(reads):
                if read in inexact:
                    slope = self._add(slope_squared(ops.divide, k), [ratio, reads[0], by])
                    squares.append(self._add(ops.mul, [slope, self._of(read)]))
            self._add(near_whole, [ratio, self._sum(squares)])
        else:
            half = self._add(ops.add, [reads[0], self._constant(0.5)])
            x = half if rule is rounding.round else reads[0]
            self._add(near_whole, [x, error])
