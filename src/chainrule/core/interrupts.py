"""Ctrl-C, held back while something is half done.

What must not be torn apart, such as a step of training, runs inside ``with Held():``. A Ctrl-C that
arrives meanwhile is delivered at the end of the block, to whoever would have got it. For those who
cannot wait a second one comes through at once, unless the block is ``firm``.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` is slower: it makes enumerations
import signal
import threading
from types import FrameType
from typing import Any


class Held:
    """The block in which Ctrl-C waits. Only the main thread is ever interrupted."""

    def __init__(self, firm: bool = False) -> None:
        self._firm = firm
        self._handler: Any = None  # whose turn it would have been; None: nothing is held
        self._waiting: list[FrameType | None] = []

    def __enter__(self) -> Held:
        if threading.current_thread() is threading.main_thread():
            handler = _signal.getsignal(_signal.SIGINT)
            if callable(handler):  # else the signal is ignored, or ends the process
                self._handler = handler
                _signal.signal(_signal.SIGINT, self._hold)
        return self

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append(frame)
        if len(self._waiting) > 1 and not self._firm:
            self._deliver()

    def _deliver(self) -> None:
        handler = self._handler
        if handler is None:
            return
        _signal.signal(_signal.SIGINT, handler)  # first, so that none can slip in and be lost
        self._handler = None
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            handler(signal.SIGINT, frame)

    def __exit__(self, *_: object) -> None:
        self._deliver()
