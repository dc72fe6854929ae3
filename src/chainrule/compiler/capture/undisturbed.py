"""What a run of the user's function that nobody asked for leaves as it was.

Recording and checking call the function. Meanwhile modes are the usual ones, numbers may be moved
and random numbers drawn; afterwards all of that is as before.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from chainrule.compiler.capture.arguments import Nudge
from chainrule.core.backend import Value, modes

MANY = 1 << 11  # objects made at once: the collector would look at all of them again and again


@contextmanager
def collector_paused(count: int) -> Iterator[None]:
    """No garbage collection while very many objects are made, none of which is garbage."""
    paused = count >= MANY and gc.isenabled()
    if paused:
        gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def nudged_numbers(values: list[Value], nudge: Nudge | None) -> list[float] | None:
    """Where to move Values that a function reaches by itself; None: they are to stay."""
    if nudge is None or threading.active_count() > 1:  # other threads must not see it
        return None
    return [nudge(v._number) for v in values]


@contextmanager
def moved(values: list[Value], numbers: list[float] | None) -> Iterator[None]:
    """The user's own Values, with other numbers for a while."""
    if numbers is None:
        yield
        return
    before = [v._number for v in values]
    try:
        for v, number in zip(values, numbers, strict=True):
            v.data = number
        yield
    finally:
        for v, number in zip(values, before, strict=True):
            v.data = number


@contextmanager
def plain_modes() -> Iterator[None]:
    """Gradients on, undefined values raise: whatever the caller's modes are, a recording is one.

    Compiled functions that are called inside run uncompiled: their locks might be held by a thread
    that waits for the one held here.
    """
    before = modes.grad, modes.allow_nonfinite, modes.debug
    modes.grad, modes.allow_nonfinite, modes.debug = True, False, False
    modes.internal += 1
    try:
        yield
    finally:
        modes.internal -= 1
        modes.grad, modes.allow_nonfinite, modes.debug = before


def is_internal() -> bool:
    """Whether a function runs to be recorded or checked, and not for the user."""
    return modes.internal > 0
