"""Threads that machine code runs in, kept from call to call: to start one takes longer than it.

In: a function and its parts. Out: what it gives for each, in order, computed in several threads.
Nothing of a call runs on after it, however it ends: the arrays that it reads may be gone then. A
process that was forked has threads of its own, and at the end of the interpreter there are none.
"""

from __future__ import annotations

import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from chainrule.core.interrupts import Held

NAME = "chainrule.map"
AHEAD = 4  # times as many parts as threads are begun before the first of them is read

Part = TypeVar("Part")
Result = TypeVar("Result")


@functools.cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, NAME)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)


def are_alone() -> bool:
    """Whether no other threads run that could see what this one does: those here see nothing."""
    this = threading.current_thread()
    return all(t is this or t.name.startswith(NAME) for t in threading.enumerate())


def in_order(
    work: Callable[[Part], Result], parts: Sequence[Part], threads: int
) -> Iterator[Result]:
    """What work gives for some parts, in their order, computed in so many threads."""
    if threads == 1:
        yield from map(work, parts)
        return
    pool, shared = _pool(threads), _Shared(work)
    waiting: deque[Callable[[], Result]] = deque()
    try:
        for part in parts:
            if len(waiting) == AHEAD * threads:
                yield waiting.popleft()()
            waiting.append(_begun(pool, shared, part))
        while waiting:
            yield waiting.popleft()()
    finally:
        shared.end()


def _begun(
    pool: ThreadPoolExecutor, work: Callable[[Part], Result], part: Part
) -> Callable[[], Result]:
    """What waits for the result; it is computed there where there can be no threads."""
    try:
        return pool.submit(work, part).result
    except RuntimeError:  # the interpreter ends, or the system has no more threads
        return functools.partial(work, part)


class _Shared(Generic[Part, Result]):
    """The work of one call, which can be ended: then nothing of it runs or will."""

    def __init__(self, work: Callable[[Part], Result]) -> None:
        self._work, self._running, self._ended = work, 0, False
        self._changed = threading.Condition()

    def __call__(self, part: Part) -> Result:
        with self._changed:
            if self._ended:
                raise RuntimeError("nobody waits for this any more")
            self._running += 1
        try:
            return self._work(part)
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify()

    def end(self) -> None:
        """Wait for what runs; a Ctrl-C waits too, as a part takes some milliseconds."""
        with Held(firm=True), self._changed:
            self._ended = True
            self._changed.wait_for(lambda: not self._running)
