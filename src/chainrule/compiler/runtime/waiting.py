"""What the calls of a function wait for while they run eagerly, and how many of them do.

In: what its ledger knows, and what its gate counted. Out: a ``Wait``; the gate then runs so many
calls eagerly by itself. There are three things to wait for:

- what was spent, or looked for in vain, is paid for or over (``ledger.py``, ``resting.py``);
- before anything of a function was recorded, that its calls have paid for that;
- where the lengths of its lists vary independently, that calls of one structure come again and
  again: these are counted, since the last time that a recording was tried, and one that is due is
  looked at.
"""

from __future__ import annotations

import enum
from contextlib import nullcontext
from dataclasses import dataclass

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.runtime.counts import Counts
from chainrule.compiler.runtime.fast_path import Gate
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.notices import Notices
from chainrule.compiler.runtime.pipeline import Pipeline
from chainrule.compiler.runtime.refusals import is_of_numbers
from chainrule.compiler.runtime.variants import Structure
from chainrule.core.backend import kernels

LONGEST_COUNT = 4096  # calls that the gate counts, before one is looked at that is not due


class Until(enum.Enum):
    """What has to happen before a call is looked at again."""

    OVER = "what was in vain is paid for, or long ago"
    RECORDABLE = "a first recording can be paid for"
    DUE = "calls alike have come again and again"


@dataclass(frozen=True)
class Wait:
    """What calls wait for, running eagerly."""

    until: Until
    calls: int  # before it may have happened, the next one too


class Waiting:
    """The waiting of one function's calls: asked by its dispatch, counted by its gate."""

    def __init__(
        self,
        gate: Gate,
        first: Gate,
        ledger: Ledger,
        counts: Counts,
        notices: Notices,
        asked: bool,
    ) -> None:
        """``first``: the gate that calls pass first, and where they rest.

        ``asked``: the user wants machine code, and does not wait until it pays.
        """
        self._gate, self._first, self._ledger = gate, first, ledger
        self._counts, self._notices, self._asked = counts, notices, asked
        self._tried_at = -LONGEST_COUNT  # how many calls there were when a cached one was in vain

    def now(self, pipeline: Pipeline | None, has_graph: bool = False) -> Wait | None:
        """What a call waits for; None: nothing, it is to be looked at.

        What is to raise where it cannot be recorded does not wait: the next call may be one to
        raise for. ``has_graph``: what the call takes will be seen from its graph, so nothing has to
        be known of its arguments where no recording can be paid for.
        """
        if self._notices.raises or self._gate.is_due:
            return None
        ledger, rest = self._ledger, self._ledger.longest_rest
        if self.counts_alike:
            return Wait(Until.DUE, max(rest, LONGEST_COUNT))
        if rest > 0:
            return Wait(Until.OVER, rest)
        if has_graph and pipeline is None and not ledger.affords_recording(asked=self._asked):
            return Wait(Until.RECORDABLE, ledger.calls_to_recording(self._asked))
        return None

    def is_too_dear(self, pipeline: Pipeline | None) -> bool:
        """Whether not even a variant is to be looked for now."""
        if self._notices.raises:
            return False
        is_first = pipeline is None and not self._ledger.affords_recording(asked=self._asked)
        return is_first or self._ledger.rests

    @property
    def counts_alike(self) -> bool:
        """Whether calls are recorded only once many like them came, which the gate counts.

        Not where some of which a structure was recorded went another way.
        """
        others = self._counts.calls - self._tried_at
        return self._gate.due > 0 and self._gate.path is not None and others > LONGEST_COUNT

    def affords_recording(self, call: Call, joins: bool = False) -> bool:
        """Whether a recording of a call can be paid for; ``joins``: on the code of a longer one."""
        of_numbers, integers = is_of_numbers(call), len(call.ints)
        return self._ledger.affords_recording(joins, self._asked, of_numbers, integers)

    def may_record(
        self, call: Call, structure: Structure, pipeline: Pipeline, is_due: bool
    ) -> bool:
        """Whether a call that nothing serves may be recorded now; ``is_due``: it was waited for."""
        if self.counts_alike and not (is_due or self._asked or structure.variants):
            return False
        with self._ledger.is_due() if is_due else nullcontext():
            if self.affords_recording(call):
                return True
            # It takes a while to find out whether it joins.
            return self.affords_recording(call, joins=True) and pipeline.may_join(call)

    def begin(self, wait: Wait, pipeline: Pipeline | None, has_graph: bool) -> None:
        """Let the gate run the calls after this one that wait for the same.

        Nothing is to be told or learnt of them: the user, that many are not served, or the ledger,
        how much a call computes. Of that a call tells only if it ``has_graph``.
        """
        ledger, calls = self._ledger, wait.calls
        if ledger.instructions is None and has_graph:
            calls = ledger.longest_rest_unsized
        until_told = None if pipeline is None else self._notices.until_told
        self._first.resting = max(0, (min(calls, until_told) if until_told else calls) - 1)

    def end(self, pipeline: Pipeline | None) -> bool:
        """A call is looked at; returns whether calls have run eagerly meanwhile."""
        have_run = self.enter(pipeline)
        self._first.resting = 0
        return have_run

    def enter(self, pipeline: Pipeline | None) -> bool:
        """Count the calls that the gate ran eagerly, and what it tried in vain.

        Returns whether there were any such calls.
        """
        gate, is_spread = self._gate, pipeline is not None and pipeline.is_spread
        if gate.tried:
            self._enter_tried()
        if is_spread or gate.due:
            self._choose_counting(is_spread)
        calls = self._first.take_rested()
        if calls:
            self._counts.calls += calls
            self._counts.eager += calls
            self._notices.left_unserved(calls)
            failed, self._first.failed = min(self._first.failed, calls), 0
            if calls > failed:
                self._ledger.ran_eagerly(calls - failed)
            if failed:
                self._ledger.failed(failed)
        return calls > 0

    def _enter_tried(self) -> None:
        """Cached calls were run in vain."""
        tried, self._gate.tried = self._gate.tried, 0
        self._tried_at = self._counts.calls
        if self._ledger.declined(tried):
            self._gate.path = None

    def _choose_counting(self, is_spread: bool) -> None:
        """Let the gate count calls alike where recordings at the first sight were in vain."""
        may_count = is_spread and self._gate is self._first and kernels is not None
        counted, self._gate.due = self._gate.due, self._ledger.calls_due if may_count else 0
        if counted and not self._gate.due:
            self._first.resting = min(self._first.resting, self._ledger.longest_rest)
