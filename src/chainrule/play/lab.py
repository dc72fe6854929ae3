"""What both laboratories share: running or paused, a speed, and steps for a short while.

A lab lives in a process of its own (``worker``). It is told what to do in words, ``handle``, takes
steps for a moment at a time, ``advance``, and says how it stands, ``state``.
"""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from chainrule.play.curve import Curve
from chainrule.play.settings import Given, PlayError, whole

TURN = 0.05  # seconds of training between two looks at what the page wants
FASTEST = 1_000_000  # steps per second: as fast as it goes


class Lab(ABC):
    """One model in training."""

    #: what may be asked, by name; each is a method with that name and an underscore
    actions: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        self.speed = FASTEST
        self._begin()

    def _begin(self) -> None:
        """Nothing has been learnt yet; the speed stays as it was chosen."""
        self.running = False
        self.curve = Curve()
        self.trouble = ""  # why training stopped
        self.rate = 0.0  # steps per second, lately
        self._due = 0.0  # steps that the speed allows and that were not taken yet
        self._last = time.perf_counter()

    def handle(self, action: str, given: Given) -> dict[str, Any]:
        """Do what is asked; the answer as plain data, or a PlayError."""
        if action not in ("run", "pause", "step", "speed", *self.actions):
            raise PlayError(f"there is nothing called {action!r} here")
        answer: dict[str, Any] = getattr(self, f"_{action}")(given)
        if action == "start":
            gc.collect()  # a model that was dropped is large, but of too few objects to be noticed
        return answer

    def advance(self) -> bool:
        """Train for a moment, no faster than the speed allows; whether any step was taken."""
        began = time.perf_counter()
        passed, self._last = began - self._last, began
        self._due = min(self._due + passed * self.speed, max(1.0, 4 * TURN * self.speed))
        wanted = int(self._due)
        taken = self._take(wanted) if wanted else 0
        self._due -= taken
        spent = time.perf_counter() - began
        if taken == wanted and spent < TURN:
            time.sleep(TURN - spent)
        self.rate += 0.3 * (taken / max(spent, TURN) - self.rate)
        return taken > 0

    def _take(self, most: int) -> int:
        """Take up to ``most`` steps for a moment; what breaks down pauses and says why."""
        try:
            losses = self._losses(most)
        except (ValueError, ArithmeticError) as error:
            self.running, self.trouble = False, str(error)
            return 0
        self.curve.extend(losses)
        return len(losses)

    @abstractmethod
    def _losses(self, most: int) -> Sequence[float]:
        """Take at least one step and at most ``most``, for about a TURN; the loss of each."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """How it stands, as plain data for the page."""

    # --- what is asked of every lab ---------------------------------------------------------------

    def _run(self, given: Given) -> dict[str, Any]:
        self.running, self.trouble = True, ""
        self._pace()
        return {}

    def _pause(self, given: Given) -> dict[str, Any]:
        self.running, self.rate = False, 0.0
        return {}

    def _step(self, given: Given) -> dict[str, Any]:
        self._pause(given)
        self.trouble = ""
        self._take(1)
        return {}

    def _speed(self, given: Given) -> dict[str, Any]:
        self.speed = whole(given, "speed", 1, FASTEST)
        self._pace()
        return {}

    def _pace(self) -> None:
        """Count the steps that are due from now on."""
        self._last, self._due = time.perf_counter(), 1.0
