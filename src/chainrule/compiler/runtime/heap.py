"""Memory that was freed goes back to the system.

In: how many instructions were recorded. Out: a smaller process. A large recording frees millions of
nodes and many arrays; the C library keeps most of that memory for itself, in gaps that do not fit
what comes next.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

LARGE = 1 << 18  # instructions


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """glibc's ``malloc_trim``; None where the C library is another."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found


def is_large(instructions: int) -> bool:
    """Whether the memory of a recording of so many instructions is worth looking after."""
    return instructions > LARGE


def return_free_memory(instructions: int) -> None:
    """Give unused pages back after work on so many instructions; it takes milliseconds."""
    if is_large(instructions):
        trim()


def trim() -> None:
    """Give unused pages back."""
    found = _trim()
    if found is not None:
        found(0)
