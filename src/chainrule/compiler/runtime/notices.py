"""What the user of a compiled function is told, each thing once.

In: why a call ran eagerly, or is recorded, and how often calls did. Out: a ``FallbackWarning``, or
a ``FallbackError`` where ``on_fallback="raise"`` was asked for; ``report()`` prints the reasons.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from chainrule.compiler.capture.progress import told
from chainrule.compiler.runtime.counts import Counts
from chainrule.core import errors

LONG = 1.0  # seconds of recording after which the user is told, where it could be less
MOST_UNSERVED = 64  # calls that had to run eagerly, more than were replayed, before it is told


class FallbackWarning(UserWarning):
    """A compiled function runs eagerly, or takes long to compile; the message says why.

    >>> from chainrule import FallbackWarning
    >>> issubclass(FallbackWarning, UserWarning)
    True
    """


class FallbackError(RuntimeError):
    """A function compiled with ``on_fallback="raise"`` cannot be recorded.

    >>> from chainrule import FallbackError
    >>> issubclass(FallbackError, RuntimeError)
    True
    """


class Notices:
    """What there is to be told of one function, and what has been."""

    def __init__(self, name: str, on_fallback: str) -> None:
        """``on_fallback``: "warn", "eager" (nothing is said) or "raise"."""
        self._name, self._on_fallback = name, on_fallback
        self.reasons: dict[str, int] = {}  #: why calls ran eagerly, and how many
        self.reasons_to_record: list[str] = []  #: why, though ``sizes`` was given
        self.dear: str | None = None  #: what takes longer than replays save; report() has it
        self._unserved = 0  # calls that no recording was worth its cost for, less those replayed
        self._is_shown = False  # what is recorded, by whoever asked for it
        self._is_python_told = False  # that training steps are not machine code
        self._is_long_told = False  # that one recording takes long
        self._is_told = False  # why these are so many, or why recording takes so long

    @property
    def raises(self) -> bool:
        """Whether a call that cannot be recorded is an error."""
        return self._on_fallback == "raise"

    def ran_eagerly(self, reason: str) -> None:
        """A call runs eagerly, which is told once for each reason."""
        first = reason not in self.reasons
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        message = f"{self._name} runs eagerly: {reason}"
        if self.raises:
            raise FallbackError(message)
        if first:
            self._warn(message)

    def reason_with(self, start: str) -> str | None:
        """Why calls ran eagerly, if one of the reasons begins so."""
        return next((reason for reason in self.reasons if reason.startswith(start)), None)

    def trains_in_python(self, reason: str) -> None:
        """Training steps are not taken in machine code, though the function is."""
        if not self._is_python_told:
            self._is_python_told = True
            self._warn(f"{self._name} is trained by steps in Python: {reason}")

    def recorded_at_every_size(self, reasons: Iterable[str]) -> None:
        """Calls are recorded though ``sizes`` was given."""
        for reason in reasons:
            if reason not in self.reasons_to_record:
                self.reasons_to_record.append(reason)
                message = f"{self._name} is recorded at every size: {reason}"
                if self.raises:
                    raise FallbackError(message)
                self._warn(message)

    def recorded(self, counts: Counts, find_reason: Callable[[], str | None]) -> None:
        """A recording was made; after some seconds of them it is told why they are so many.

        ``find_reason``: says so, or None.
        """
        silent = self._is_told or self._is_shown or self._on_fallback == "eager"
        if silent or counts.recording_seconds < LONG:
            return
        reason = find_reason()
        if reason is not None:
            self._is_told = True
            text = f"{counts.traces} recordings took {counts.recording_seconds:.1f} s so far"
            self._warn(f"{self._name} is slow to compile: {text}: {reason}")

    def replays_do_not_pay(self, reason: str | None) -> None:
        """Eager calls are quicker than replays, and why; None: they are not."""
        self.dear = reason

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Inside this block the user sees what is recorded, and is not told that it takes long."""
        before, self._is_shown = self._is_shown, True
        try:
            yield
        finally:
            self._is_shown = before

    @contextmanager
    def recording(self) -> Iterator[None]:
        """A call is recorded; it is told once if that takes long, while it does."""
        started, raised = time.thread_time(), list[Warning]()
        lines = Counter[str]()

        def tell(operations: int | None = None, so_far: str = " so far") -> None:
            seconds = time.thread_time() - started
            if operations is not None:
                lines[errors.caller()] += 1
            if self._is_long_told or self._is_shown or seconds < LONG:
                return
            self._is_long_told = True
            what, took = "recording and building one call", f"{seconds:.1f} s{so_far}"
            place = f", among others at {lines.most_common(1)[0][0]}" if lines else ""
            if operations:
                what, place = (
                    f"one recording of {operations:,} operations",
                    f", now {errors.caller()}",
                )
            text = f"{what} took {took}{place}"
            try:
                self._warn(f"{self._name} is slow to compile: {text}")
            except Warning as error:  # where warnings are errors; not one of the function's own
                raised.append(error)

        with told(tell):
            yield
        tell(so_far="")
        if raised:
            raise raised[0]

    # --- calls that no recording was worth its cost for -------------------------------------------

    def left_unserved(self, calls: int = 1) -> None:
        """So many more of them ran eagerly."""
        self._unserved += calls

    def served(self) -> None:
        """A call was replayed."""
        self._unserved = max(0, self._unserved - 1)

    def served_all(self) -> None:
        """Calls are replayed by the fast path."""
        self._unserved = 0

    @property
    def until_told(self) -> int | None:
        """How many more of them until it is to be told, 0 if it is now; None: it has been."""
        return None if self._is_told else max(0, MOST_UNSERVED - self._unserved)

    def tell_of_unserved(self) -> None:
        """It is told by whoever asks: not again."""
        self._is_told = True

    def _warn(self, message: str) -> None:
        if self._on_fallback == "warn":
            warnings.warn(message, FallbackWarning, stacklevel=errors.caller_depth() + 1)
