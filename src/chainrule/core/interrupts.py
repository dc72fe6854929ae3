"""Signals that arrive while something is half done.

What must not be torn apart, such as a step of training or a recording, runs inside ``Held()``. A
Ctrl-C that arrives meanwhile is delivered at the end of the block, to whoever would have got it.
For those who cannot wait a second one comes through at once, unless the block is ``firm``. What the
handler of another signal raises, such as that of a timeout, leaves the block at once, and past all
that would take it for an error of the function that is being recorded.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` is slower: it makes enumerations
import threading
from types import FrameType
from typing import Any

_NAMES = "SIGTERM SIGHUP SIGALRM SIGVTALRM SIGPROF SIGUSR1 SIGUSR2 SIGBREAK".split()
_OTHERS = [getattr(_signal, name) for name in _NAMES if hasattr(_signal, name)]


class Arrived(BaseException):
    """What a signal's handler raised, on its way out of the block."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Held:
    """The block in which Ctrl-C waits. Only the main thread is ever interrupted."""

    def __init__(self, firm: bool = False) -> None:
        self._firm = firm
        self._handler: Any = None  # whose turn it would have been; None: nothing is held
        self._waiting: list[FrameType | None] = []
        self._others: dict[int, Any] = {}  # the handlers of other signals

    def __enter__(self) -> Held:
        if threading.current_thread() is threading.main_thread():
            handler = _signal.getsignal(_signal.SIGINT)
            if callable(handler):  # else the signal is ignored, or ends the process
                self._handler = handler
                _signal.signal(_signal.SIGINT, self._hold)
            for number in _OTHERS:
                other = _signal.getsignal(number)
                if callable(other) and not isinstance(getattr(other, "__self__", None), Held):
                    self._others[number] = other
                    _signal.signal(number, self._relay)
        return self

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append(frame)
        if len(self._waiting) > 1 and not self._firm:
            self._deliver()

    def _relay(self, number: int, frame: FrameType | None) -> None:
        try:
            self._others[number](number, frame)
        except Exception as error:
            raise Arrived(error) from None

    def _deliver(self) -> None:
        handler = self._handler
        if handler is None:
            return
        _signal.signal(_signal.SIGINT, handler)  # first, so that none can slip in and be lost
        self._handler = None
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            handler(int(_signal.SIGINT), frame)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        for number, other in self._others.items():
            if _signal.getsignal(number) == self._relay:  # the function may have set another
                _signal.signal(number, other)
        self._deliver()
        if isinstance(error, Arrived) and self._others:
            raise error.error
