"""Signals that arrive while something is half done.

What must not be torn apart, such as a step of training or a recording, runs inside ``Held()``. A
Ctrl-C that arrives meanwhile is delivered at the end of the block, to whoever would have got it.
What takes long and may be given up, such as a recording, ``yields``: then it comes at the next
``safe_point()`` inside, and while the user's function runs for itself (``open_to_signals``) at
once. For those who cannot wait a second one comes through at once, unless the block is ``firm``.
What the handler of another signal raises, such as that of a timeout, leaves the block at once, and
past all that would take it for an error of the function that is being recorded.

Other threads get no signals: what they do inside ``stoppable(stop)`` ends at the next safe point
at which ``stop()`` holds, by ``Stopped``.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # ``signal`` is slower: it makes enumerations
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_NAMES = "SIGTERM SIGHUP SIGALRM SIGVTALRM SIGPROF SIGUSR1 SIGUSR2 SIGBREAK".split()
_OTHERS = [getattr(_signal, name) for name in _NAMES if hasattr(_signal, name)]


class Arrived(BaseException):
    """What a signal's handler raised, on its way out of the block."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Stopped(BaseException):
    """Who was asked to stop does; nothing of what it was at stays behind."""


class _Asked(threading.local):
    """Who may end what this thread does, at its safe points; the outermost first."""

    whom: tuple[Callable[[], None], ...] = ()
    is_open: bool = False  # whether every moment is a safe point


_asked = _Asked()


def safe_point() -> None:
    """Nothing is half done here: what is asked to stop ends, by an error that passes all."""
    for ask in reversed(_asked.whom):
        ask()


@contextmanager
def open_to_signals() -> Iterator[None]:
    """Inside, every moment is a safe point: here is nothing but the user's function."""
    before, _asked.is_open = _asked.is_open, True
    try:
        safe_point()
        yield
    finally:
        _asked.is_open = before


@contextmanager
def stoppable(stop: Callable[[], bool]) -> Iterator[None]:
    """The block that ends by ``Stopped`` at the first safe point at which ``stop()`` holds.

    It goes on holding: a function that catches whatever is raised meets it again at the next one.
    """
    found = False

    def ask() -> None:
        nonlocal found
        found = found or stop()
        if found:
            raise Stopped

    before = _asked.whom
    _asked.whom = (*before, ask)
    try:
        yield
    finally:
        _asked.whom = before


class Held:
    """The block in which Ctrl-C waits. Only the main thread is ever interrupted.

    One that does not ``yield`` is not left at safe points either, by whomever it is asked outside.
    """

    def __init__(self, firm: bool = False, yields: bool = False) -> None:
        self._firm, self._yields = firm, yields
        self._raised: BaseException | None = None  # by the handler, at a safe point
        self._outside: tuple[tuple[Callable[[], None], ...], bool] = (), False
        self._handler: Any = None  # whose turn it would have been; None: nothing is held
        self._waiting: list[FrameType | None] = []
        self._others: dict[int, Any] = {}  # the handlers of other signals

    @property
    def waits(self) -> bool:
        """Whether a Ctrl-C waits for the end of the block."""
        return bool(self._waiting)

    def __enter__(self) -> Held:
        self._outside = _asked.whom, _asked.is_open
        _asked.whom = (*_asked.whom, self._yield) if self._yields else ()
        _asked.is_open = False
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

    def _yield(self) -> None:
        """Deliver what waits, inside the block.

        What the handler raised is raised again, should the function that is recorded catch it.
        """
        if self._raised is not None:
            raise self._raised
        waiting, self._waiting = self._waiting, []
        for frame in waiting:
            try:
                self._handler(int(_signal.SIGINT), frame)
            except Exception as error:
                self._raised = Arrived(error)
                raise self._raised from None
            except BaseException as error:
                self._raised = error
                raise

    def _hold(self, number: int, frame: FrameType | None) -> None:
        self._waiting.append(frame)
        if _asked.is_open:
            safe_point()
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
        _asked.whom, _asked.is_open = self._outside
        for number, other in self._others.items():
            if _signal.getsignal(number) == self._relay:  # the function may have set another
                _signal.signal(number, other)
        self._deliver()
        if error is None and self._raised is not None:
            error = self._raised  # whoever caught it was not to
            if not isinstance(error, Arrived):
                raise error
        if isinstance(error, Arrived) and (self._others or error is self._raised):
            raise error.error
