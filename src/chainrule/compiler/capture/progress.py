"""Who is told while a long recording goes on.

In: what to call, from the runtime; every 65,536 operations, from the recorder, after each
recording, and now and then from what takes long beside operations. The function that is recorded
must not notice: it is called as if nothing were recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from chainrule.core.backend import modes
from chainrule.core.interrupts import safe_point


class _Listener(threading.local):
    """What this thread calls with the number of operations so far, if anything."""

    tell: Callable[[int | None], None] | None = None


_listener = _Listener()


@contextmanager
def told(tell: Callable[[int | None], None]) -> Iterator[None]:
    """Inside this block ``tell`` is called now and then while this thread records."""
    before, _listener.tell = _listener.tell, tell
    try:
        yield
    finally:
        _listener.tell = before


def report_progress(operations: int | None = None) -> None:
    """So many operations are recorded by now, or all of them; a safe point.

    0: the user's line asks for what takes long beside them.
    """
    safe_point()
    if _listener.tell is None:
        return
    recorder, modes.recorder = modes.recorder, None
    try:
        _listener.tell(operations)
    finally:
        modes.recorder = recorder
