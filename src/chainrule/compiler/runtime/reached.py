"""What a function reaches, by itself and through what it is passed, and how often that changes.

In: what has changed of the captured state, and the classes and functions that calls bring. Out:
what is captured now, or ``Unrecordable`` where it changes all the time: recordings are of one state
each, and would be in vain.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.comparing import Bound
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.capture.walking import LIMIT, survey
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.notices import Notices

ROOTS = 32  # classes and functions that are passed
CHANGES = 20  # of the captured state in a row, before a function runs eagerly for good,
MORE, SOME = 4, 20_000  # times what was gone through before, and objects besides, at most
OWN_CHANGES = 3  # and of those that its own calls make, before it rests


class Reached:
    """What there is to capture of one function, and the changes of it so far."""

    def __init__(self, tracer: Tracer, notices: Notices) -> None:
        self._tracer, self._notices = tracer, notices
        self.roots: dict[Any, None] = {}  # classes and functions that calls brought, the last ones
        self._changes = 0  # in a row
        self._own_changes = 0  # since it rested for them
        self._others = 0  # times that there were others, less the calls like earlier ones

    def captured(self, before: CapturedState | None, ledger: Ledger, bound: Bound) -> CapturedState:
        """What the function reaches, and what calls brought, unless that is refused by now.

        ``before``: as it was before it changed. What grows from call to call is not gone through to
        its end each time, and the less often the more it is. ``bound``: what replays can pay for.
        """
        most = LIMIT if before is None else MORE * before.searched + SOME
        try:
            found = self._tracer.survey(self.roots, most, bound)
        except Unrecordable:
            if before is not None:
                ledger.searched(most)
            if not self.roots:
                raise
            self.roots = {}
            return self._tracer.survey(most=most, bound=bound)
        if before is not None:
            ledger.searched(found.searched)
        return found

    def changed(self, change: str | None, captured: CapturedState | None) -> None:
        """Refuse a function of which something has changed too often; ``change``: what, or None."""
        self._changes = 0 if change is None else self._changes + 1
        changes_itself = change is not None and self._changes_itself(captured)
        if self._changes > CHANGES or changes_itself:
            cause = self._notices.reason_with(f"it changes {change}")
            raise Unrecordable(cause or f"{change} changes all the time")

    def _changes_itself(self, captured: CapturedState | None) -> bool:
        """Whether calls change what they read, so that the next recording would be in vain too.

        It may end, as where tables are filled: once the calls have rested, another one is made.
        """
        if captured is None or not captured.changes_in_calls:
            return False
        self._own_changes += 1
        if self._own_changes < OWN_CHANGES:
            return False
        self._own_changes = OWN_CHANGES - 2
        return True

    def bring(self, brought: Collection[Any]) -> dict[Any, None]:
        """Let classes and functions that a call brings be captured too; returns what was before."""
        if self._others > CHANGES:
            raise Unrecordable("it is passed other functions, or other classes, all the time")
        survey(None, brought)  # which may be refused, for this call and those like it
        before, self._others = self.roots, self._others + 1
        kept = [root for root in before if root not in brought]
        self.roots = dict.fromkeys([*kept[-ROOTS:], *brought])
        return before

    def served(self) -> None:
        """A variant answered a call."""
        self._others = max(0, self._others - 1)

    def served_all(self) -> None:
        """The fast path answered calls."""
        self._changes = self._others = 0
