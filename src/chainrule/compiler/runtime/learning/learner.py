"""More recordings of a function, made to see what its integers select."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import Surroundings
from chainrule.compiler.capture.infer import Indexing, misaligned
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Trace, trace
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.counts import Counts
from chainrule.compiler.runtime.families import Runs, resized, runs_of, shorter, slots_among, split
from chainrule.compiler.runtime.learning.families import Family
from chainrule.compiler.runtime.learning.integers import LEARNT, NUMBERS, Integers, other_integers
from chainrule.compiler.runtime.learning.provenance import Provenance
from chainrule.compiler.runtime.machine import Fit, MachineCode
from chainrule.compiler.runtime.results import root_of


class Learner:
    """Records a function with other integers, while its captured state stays the same."""

    def __init__(
        self, function: Callable[..., Any], captured: Surroundings, counts: Counts
    ) -> None:
        self._function, self._captured, self._counts = function, captured, counts

    def attempt(self, call: Call, ids: Sequence[int] | None = None) -> Trace | None:
        """One more recording; None where the function fails with these integers."""
        try:
            return trace(
                self._function, self._captured, call, ids=None if ids is None else tuple(ids)
            )
        except (Exception, Unrecordable):
            self._captured.restore()
            return None

    # --- one variant ------------------------------------------------------------------------------

    def vary(self, integers: Integers, call: Call, first: Trace) -> bool:
        """Tell which operand depends on which integer; False where plain numbers do as well."""
        if not integers.indexed:
            return True
        settled = False
        tries = other_integers(integers.indexed, call.ints)
        for k, ids in enumerate(tries):
            if settled and k < len(tries) - 1:
                continue
            self._counts.traces += 1
            made = self.attempt(call, ids)
            if made is None or set(made.static) != set(integers.static):
                continue
            shown = integers.add(made, ids)
            if shown == LEARNT:
                settled = settled or (k == 0 and integers.indexing.settle(first, made))
            elif shown == NUMBERS:
                return False
        return True

    def twice(self, call: Call, made: Trace, others: Sequence[int]) -> Indexing | None:
        """What differs between a recording and one with other integers."""
        again = self.attempt(call, others)
        if again is None or misaligned(made.recording, again.recording) is not None:
            return None
        slots = sorted(made.indexed)
        indexing = Indexing(made.recording, tuple([call.ints[k] for k in slots]))
        indexing.learn(again.recording, tuple([others[k] for k in slots]))
        indexing.settle(made, again)
        return indexing

    # --- other lengths ----------------------------------------------------------------------------

    def shorter(self, call: Call, runs: Runs, less: int) -> RecordedCall | None:
        """The same call with so many integers less in each list, recorded twice."""
        rows = shorter(runs, call.ints, less)
        if rows is None:
            return None
        call = resized(call, rows)
        _, short_runs = runs_of(call)
        slots = slots_among(short_runs, runs)
        made = self.attempt(call)
        if made is None or made.static or slots is None:
            return None
        root = root_of(made.recording.result)
        indexing = self.twice(call, made, _first_others(call, made))
        if indexing is None:  # perhaps not all of these may stand there
            indexing = self.twice(call, made, _rotated(call.ints))
        if root is None or indexing is None:
            return None
        return RecordedCall.of(call, made.recording, indexing, root.position, slots)

    def member(
        self, family: Family, call: Call, made: Trace, slots: Addresses
    ) -> tuple[Indexing, Sequence[int]] | None:
        """What integers select in a shorter call of a family, and others it was recorded with."""
        others: Sequence[int] = _first_others(call, made)
        indexing = self.twice(call, made, others)
        if indexing is None:  # perhaps not all of these may stand there
            others = family.other_integers(slots, call.ints)
            indexing = self.twice(call, made, others)
        return None if indexing is None else (indexing, others)

    # --- families ---------------------------------------------------------------------------------

    def family(
        self, runs: Runs, machine: MachineCode, integers: Integers, call: Call, made: Trace
    ) -> Family:
        """The family of the longest call, and what its integers select where that is certain."""
        read = Provenance(made, machine.fit, integers.indexing)
        family = Family(runs, machine, integers.indexing, integers.indexed, tuple(call.ints), read)
        if not self._captured.identity:
            family.proved = read.proof(integers.indexing, machine.fit, call.ints)
        return family

    def reads_alike(
        self,
        family: Family,
        fit: Fit,
        made: Trace,
        indexing: Indexing,
        call: Call,
        slots: Addresses,
        others: Sequence[int],
    ) -> bool:
        """Whether integers select here what they select in the longest.

        That is so if they read from the same containers. If not, each integer in each place must
        be seen at this length too.
        """
        if self._captured.identity:
            return False
        if not Provenance(made, fit, indexing).is_like(family.read, fit.gathers, slots):
            return False
        for row, given in ((indexing.rows[0], call.ints), (indexing.rows[1], others)):
            here = fit.gathered(row)
            known = self._choice(family, fit, slots, call, given)
            if here is None or known is None or not np.array_equal(here, known):
                return False
        return True

    def _choice(
        self, family: Family, fit: Fit, slots: Addresses, call: Call, ids: Sequence[int]
    ) -> Addresses | None:
        """What a member's gathers select; learnt from a recording of the longest if need be."""
        known = family.gathered(fit, slots, tuple(ids))
        if (
            known is None
            and family.proved is None
            and self.teach(family, call, family.padded(slots, ids))
        ):
            known = family.gathered(fit, slots, tuple(ids))
        return known

    def teach(self, family: Family, call: Call, ids: Sequence[int]) -> bool:
        """Record the longest call with these integers; whether something was learnt."""
        made = self.attempt(resized(call, split(family.runs, ids)))
        if made is None or misaligned(family.indexing.base, made.recording) is not None:
            return False
        family.indexing.learn(made.recording, tuple([ids[k] for k in family.indexed]))
        return True

    def teach_call(self, family: Family, fit: Fit, slots: Addresses, call: Call) -> bool:
        """Learn what the integers of this call select; False where that was not the question."""
        if family.gathered(fit, slots, tuple(call.ints)) is not None:
            return False
        return self._choice(family, fit, slots, call, call.ints) is not None


def _first_others(call: Call, made: Trace) -> list[int]:
    """Others for the integers that select."""
    indexed = tuple(sorted(made.indexed))
    return other_integers(indexed, call.ints)[0] if indexed else list(call.ints)


def _rotated(ids: Sequence[int]) -> list[int]:
    """Other integers in every place, from among those that occur."""
    values = sorted(set(ids))
    other = dict(zip(values, [*values[1:], values[0]], strict=True))
    return [other[i] if len(values) > 1 else max(0, i - 1) for i in ids]
