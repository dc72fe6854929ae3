"""What a program computes, compared with what the function itself does at these sizes.

In: a program that was made from formulas, and a call. Out: nothing where both compute the same,
by the marks of their results and of all that may raise (``capture/marks``), else an
``Untranslatable``. The function is recorded, but little of it is kept: this takes time, but little
memory. It is what a comparison of values cannot tell: whether the function does something else at
these sizes that makes no difference to this call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.marks import (
    PRIME,
    Array,
    Array32,
    IntegerMarks,
    Marker,
    Marks,
    Noted,
    is_hashed,
)
from chainrule.compiler.capture.recordings import FIRST_RULE, Recording
from chainrule.compiler.capture.running import Trace
from chainrule.compiler.capture.selection import Ints
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.lift.graph import EXTREME, GATHER, RULE, SUM
from chainrule.compiler.lift.program import Instruction, Program, Terms
from chainrule.compiler.sizes.recording import Family, without_positions
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.trees import Floats

MANY = 1 << 20  # terms that floats add up exactly, each below 2³²; numbers at a time


@dataclass(frozen=True, eq=False)
class Seen:
    """A run of the function, and what its program is to be compared with."""

    marks: Marks
    made: Trace
    noted: Noted
    slope: float | None  # None where the recording was kept: there are no values either

    @property
    def values(self) -> Floats:
        """The numbers that it returned."""
        return self.noted.values


@dataclass(frozen=True, eq=False)
class Meaning:
    """A program for calls of some sizes, and what its results are."""

    family: Family
    program: Program
    recording: Recording  # without instructions: what integers select, and the results

    def seen(self, tracer: Tracer, captured: CapturedState, call: Call, u: Floats) -> Seen:
        """What the function computes for a call, and its derivative along ``u``."""
        marks = Marks.apart(self.program.constants)
        if self.recording.selection.decide(call.ints) is None:
            raise Untranslatable("its integers are no indices")
        try:
            made = tracer.marked(captured, call, Marker(marks, u))
        except Unrecordable as reason:
            raise Untranslatable(f"it runs eagerly there: {reason}") from None
        if made.noted is None:
            return Seen(marks, made, self._noted(marks, made), None)
        return Seen(marks, made, made.noted, made.noted.slope)

    def check(self, seen: Seen) -> None:
        """Untranslatable unless the program computes the same."""
        self._check_cases(seen.made, seen.noted)
        outputs = [x.position for x in self.recording.outputs]
        found = self._marks(seen.marks)
        if found[outputs].tolist() != seen.noted.marks:
            raise Untranslatable("it computes something else than at small sizes")
        rules = [x for x in self.program.instructions if x.kind == RULE]
        hashed = [found[x.start : x.start + x.count] for x in rules]
        known = np.concatenate([found[:0], *hashed], dtype=np.uint32, casting="same_kind")
        del found, hashed  # as many bytes as the program has
        if not _are_among(seen.noted.hashed, known):
            raise Untranslatable("it computes more than at small sizes, which nothing reads")
        selection = self.recording.selection
        integers = IntegerMarks.of(seen.marks, selection.program)
        if not seen.noted.partial <= integers.partial(selection.ranges):
            raise Untranslatable("it reads by integers more than its program does")

    def _check_cases(self, made: Trace, noted: Noted) -> None:
        """Untranslatable where a run at these sizes holds for one case only."""
        if noted.lines:
            raise Untranslatable(f"it holds for one case only, because of {noted.lines[0]}")
        if not noted.steps <= self.family.steps:
            names = ", ".join(sorted(noted.steps - self.family.steps))
            raise Untranslatable(f"it does something else with integers than elsewhere: {names}")
        if made.uses_math and not self.family.uses_math:
            raise Untranslatable("it uses functions of math that it does not use elsewhere")
        if without_positions(made.recording.result) != self.family.result:
            raise Untranslatable("it returns something else than at small sizes")

    @staticmethod
    def _noted(marks: Marks, made: Trace) -> Noted:
        """The same of a recording that was kept, because the function asks for its graph."""
        recording = made.recording
        found, selection = marks.of_recording(recording), recording.selection
        hashed = [
            mark
            for mark, code in zip(found, recording.codes.tolist(), strict=True)
            if code >= FIRST_RULE and is_hashed(recording.rules[code - FIRST_RULE])
        ]
        lines = [*made.settled, *[guard.line for guard in recording.guards]]
        lines += [guard.line for guard in selection.program.guards]
        return Noted(
            [found[x.position] for x in recording.outputs],
            np.array(hashed, np.uint32),
            IntegerMarks.of(marks, selection.program).partial(selection.ranges),
            np.zeros(0),
            np.nan,
            tuple(lines),
            selection.program.names,
        )

    # --- the marks of a program -------------------------------------------------------------------

    def _marks(self, marks: Marks) -> Array:
        """The mark of every number."""
        program = self.program
        arena = np.zeros(program.size, np.uint64)
        arena[: program.inputs] = marks.inputs(program.inputs)
        arena[program.inputs : program.shared] = marks.constants(program.constants)
        own = arena[program.private]
        arena[program.shared : program.shared + len(own)] = own
        owners = self.recording.selection.owners[program.places]
        integers, at = self._integers(marks), 0
        for one in program.instructions:
            end = one.start + one.count
            if one.kind == GATHER:
                which = owners[at : at + one.count]
                found = marks.choice(self._candidates(marks, arena, which), integers[which])
                at += one.count
            else:
                found = _forward(marks, one, arena)
            arena[one.start : end] = found
        return arena

    def _integers(self, marks: Marks) -> Array:
        """The mark of the index of each gather."""
        selection = self.recording.selection
        known = IntegerMarks.of(marks, selection.program)
        return np.array([known[gather.index] for gather in selection.gathers], np.uint64)

    def _candidates(self, marks: Marks, arena: Array, owners: Ints) -> Array:
        """The marks of what some gathers of an instruction select from."""
        gathers = self.recording.selection.gathers
        tables = [gathers[k].candidates for k in owners.tolist()]
        distinct = {id(table): table for table in tables}
        places = {key: k for k, key in enumerate(distinct)}
        rows, each = [*distinct.values()], max(1, MANY // len(tables[0]))
        found = [
            marks.candidates(arena[self.program.address[np.stack(rows[k : k + each])]])
            for k in range(0, len(rows), each)
        ]
        return np.concatenate(found)[[places[id(table)] for table in tables]]


def _are_among(marks: Array32, known: Array32) -> bool:
    """Whether all of these marks are known ones, which are sorted in place.

    ``np.isin`` takes ten times as long, and several arrays of their size.
    """
    known.sort()
    for k in range(0, len(marks), MANY):
        some = np.sort(marks[k : k + MANY])  # neighbours are looked up quickly
        found = np.searchsorted(known, some)
        if found[-1] == len(known) or (known[found] != some).any():
            return False
    return True


def _forward(marks: Marks, one: Instruction, arena: Array) -> Any:
    if one.kind == SUM:
        return sum([_added(marks, terms, one, arena) for terms in one.sums]) % PRIME
    assert one.rule is not None
    if one.kind == EXTREME:
        assert one.plains is not None
        r = marks.around(one.rule)
        product = _multiplied((arena[one.plains.columns[0]] + r) % PRIME, one.plains, one)
        return (product + (PRIME - r)) % PRIME
    xs = [arena[column] for column in one.columns]
    parameters = marks.constants(np.array(one.parameters)).tolist()
    return marks.rule(one.rule, [*xs, *parameters])


def _added(marks: Marks, terms: Terms, one: Instruction, arena: Array) -> Array:
    """The sums of some terms, below 2⁶³."""
    each, *factors = [arena[column] for column in terms.columns]
    each = marks.factor(each) if factors else each
    for factor in map(marks.factor, factors):
        each = each * factor
        each = (each & PRIME) + (each >> 31)  # the same number, below 2³²
    found: Array
    if terms.each:
        found = each.reshape(one.count, terms.each).sum(axis=1) % PRIME
    elif len(terms) <= MANY:
        added = np.bincount(terms.owners - one.start, each.astype(np.float64), one.count)
        found = added.astype(np.uint64) % PRIME
    else:
        found = np.zeros(one.count, np.uint64)
        np.add.at(found, terms.owners - one.start, each)
        found %= PRIME
    return found


def _multiplied(each: Array, terms: Terms, one: Instruction) -> Array:
    """The products of some terms, modulo the prime."""
    order = np.argsort(terms.owners, kind="stable")
    counts = np.bincount(terms.owners - one.start, minlength=one.count)
    rows = np.ones((one.count, int(counts.max())), np.uint64)
    rows[np.arange(rows.shape[1]) < counts[:, None]] = each[order]
    while rows.shape[1] > 1:
        if rows.shape[1] % 2:
            rows = np.pad(rows, ((0, 0), (0, 1)), constant_values=1)
        rows = rows[:, ::2] * rows[:, 1::2] % PRIME
    found: Array = rows[:, 0]
    return found
