"""How many calls of a function run eagerly before it is worth while to look at one again.

In: what was in vain, as a search, a variant that was tried, or a call that ended in an error. Out:
a number of calls, none of which is looked at. It grows while things are in vain in a row, so that
what looking takes stays a small part of eager's time, however the calls differ.
"""

from __future__ import annotations

import math

from chainrule.compiler.runtime.costs import REPLAY, allowance

LONGEST_REST = 512  # calls that run eagerly after some in which a number was undefined,
LONGEST_REFUSAL = 4096  # and before a function that was refused is searched again
LOOKING = 0.05  # the part of eager's time that looking for a variant in vain may take,
LOOKS = 8  # and how often that may be in advance
DECLINED = 20  # eager calls, whose time the fast path may try in vain beyond what it saved
ROUNDING = 1e-6  # of a call


class Rest:
    """What was in vain of late, and how many calls are to run eagerly for it."""

    def __init__(self) -> None:
        self.calls = 0  # that are to run eagerly, whatever they earn
        self.failures = 0  # eager calls in a row that ended in an error
        self._refusals = 0  # in a row
        #: calls in which a number was undefined, and that no replay beside the fast path followed
        self._undefined = 0
        self._looks = LOOKS * REPLAY.fixed  # seconds for looking in vain, which eager calls earn
        self._quick = 0.0  # seconds that the fast path saved, less those of trying in vain

    def longest(self, owed: float, eager: float) -> int:
        """How many calls are to run eagerly; ``owed``: seconds that they pay back, each so many."""
        missing = max(owed, -self._looks / LOOKING)
        return max(self.calls, math.ceil(missing / eager - ROUNDING))

    # --- calls ------------------------------------------------------------------------------------

    def ran(self, calls: int, seconds: float) -> None:
        """Some calls ran eagerly, each for so long."""
        self.calls = max(0, self.calls - calls)
        self.looked(-LOOKING * calls * seconds)

    def succeeded(self) -> None:
        """An eager call did not end in an error."""
        self.failures = 0

    def failed(self, calls: int) -> None:
        """Some did.

        Where calls keep doing so, looking for a variant each time would take longer than they do.
        """
        if not allowance.is_endless:
            self.failures = min(self.failures + calls, LONGEST_REST)
            self.calls = max(self.calls, self.failures)

    def replayed(self, lost: float) -> None:
        """A variant answered a call, which took so much longer than the function itself."""
        self._undefined = self.failures = 0
        self.looked(lost)

    def answered(self, seconds: float, saved: float, eager: float) -> None:
        """The fast path did, which would have taken eager mode ``seconds``."""
        self.looked(-LOOKING * seconds)
        self._quick = min(self._quick + saved, DECLINED * eager)

    # --- in vain ----------------------------------------------------------------------------------

    def looked(self, seconds: float) -> None:
        """Seconds went into looking in vain; less than none: they are earned."""
        if not allowance.is_endless:
            self._looks = min(LOOKS * REPLAY.fixed, self._looks - seconds)

    def declined(self, seconds: float, eager: float) -> bool:
        """Whether the fast path is to be given up: it tried for so long in vain."""
        self._quick -= seconds
        if allowance.is_endless or self._quick >= -DECLINED * eager:
            return False
        self._quick = 0.0
        return True

    def undefined(self) -> None:
        """A call is eager's, as a number is undefined, while the fast path goes on with others."""
        if not allowance.is_endless:
            self.calls = min(2**self._undefined, LONGEST_REST)
            self._undefined += self.calls < LONGEST_REST

    def refused(self) -> None:
        """It was found out, which takes long, that the function had better run eagerly."""
        self.calls = min(2**self._refusals, LONGEST_REFUSAL)
        self._refusals += 3
