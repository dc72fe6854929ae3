"""How much memory all compiled functions of a process may keep, and which recordings go.

In: the pipelines, each with its variants. When their bytes are more than the limit, those that were
used least recently are forgotten, whatever function they belong to; should such a call come again,
it is recorded again. ``CHAINRULE_CACHE_MB`` in the environment sets the limit, in megabytes.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable
from typing import Protocol

from chainrule.compiler.runtime.heap import trim
from chainrule.compiler.runtime.machine import MachineCode
from chainrule.compiler.runtime.variants import Variant

DEFAULT = 512  # megabytes
TAPE = 72  # bytes for each instruction
UNRETURNED = 0.05  # of the limit: memory that was freed and that the C library still has
SELDOM = 16  # variants that are added before all are looked at again, where memory is not short
OBJECTS = 10_000  # bytes of the Python objects of a variant and of its structure, measured


class Owner(Protocol):
    """A pipeline: what a function keeps."""

    lock: threading.RLock

    def kept(self) -> list[Variant]:
        """Its variants."""

    def forget(self, variants: Iterable[Variant]) -> None:
        """Drop some of them, and all that leads to them."""


class Memory:
    """What is kept in a process."""

    def __init__(self, limit: int) -> None:
        self.limit = limit  # bytes
        self.now = 0  # counts what was made: a variant's ``used`` is when it was last needed
        self._freed = 0  # bytes, since unused pages were given back to the system
        self._known = self._added = 0  # bytes when all were looked at, and variants since
        self._lock = threading.RLock()
        # No WeakSet: a Ctrl-C in the callback that it runs when an owner dies would be lost.
        self._owners: dict[int, weakref.ref[Owner]] = {}

    def add(self, owner: Owner, variant: Variant) -> None:
        """Keep one variant more, and forget others where it is too much."""
        with self._lock:  # threads record different functions at the same time
            self.now += 1
            variant.used = self.now
            self._owners[id(owner)] = weakref.ref(owner)
            self._known += size(variant)
            self._added += 1
            if self._added < SELDOM and 2 * self._known < self.limit:
                return  # to add up what all have takes longer than to record a small function
            self._added = 0
            alive = [(r, one) for r in self._owners.values() if (one := r()) is not None]
            self._owners = {id(one): r for r, one in alive}
        self._freed += self._forget_others([one for _, one in alive], variant)
        if self._freed > self.limit * UNRETURNED:
            self._freed = 0
            trim()

    def _forget_others(self, owners: list[Owner], variant: Variant) -> int:
        """Drop what was used least recently where there is too much; how many bytes that frees."""
        held = [(v, one) for one in owners for v in one.kept()]
        total, freed = sum(size(v) for v, _ in held), 0
        self._known = total
        for old, its_owner in sorted(held, key=lambda pair: pair[0].used):
            if total - freed <= self.limit or old is variant:
                break
            if not old.is_own or old.machine is not variant.machine:  # the newest may run on it
                freed += self._forget(its_owner, old)
        return freed

    def _forget(self, owner: Owner, old: Variant) -> int:
        """Drop a variant, and those that run on its code; how many bytes that frees."""
        if not owner.lock.acquire(blocking=False):
            return 0  # another thread uses it right now
        try:
            held = owner.kept()
            gone = [v for v in held if v is old or (old.is_own and v.machine is old.machine)]
            owner.forget(gone)
            return sum(map(size, gone))
        finally:
            owner.lock.release()


def size(variant: Variant) -> int:
    """The bytes of a variant; machine code that it shares counts with the longest call."""
    if variant.is_own or variant.lanes:
        return _size(variant)  # it may have got more code
    state = variant.recording, variant.binding, variant.has_tape
    if variant.measured[0] != state:
        variant.measured = state, _size(variant)
    return variant.measured[1]


def _size(variant: Variant) -> int:
    selection = variant.recording.selection.nbytes
    total = (
        OBJECTS
        + selection
        + variant.recording.nbytes
        + variant.inputs.nbytes
        + variant.grads.nbytes
    )
    if variant.has_tape or variant.binding is None:
        total += TAPE * len(variant.recording)
    if variant.binding is not None:
        total += selection + variant.binding.fit.nbytes
    codes: list[MachineCode] = [
        code.machine for code in variant.lanes.values() if not isinstance(code, str)
    ]
    if variant.machine is not None and variant.is_own:
        codes.append(variant.machine)
    return total + sum(code.nbytes for code in codes)


def _limit(text: str | None) -> int:
    """The limit that a setting means, in bytes."""
    try:
        megabytes = float(DEFAULT if text is None else text)
    except ValueError:
        megabytes = -1.0
    if not megabytes > 0:
        raise ImportError(f"CHAINRULE_CACHE_MB is a number of megabytes above 0, not {text!r}")
    return int(min(megabytes, 1e9) * 1e6)


memory = Memory(_limit(os.environ.get("CHAINRULE_CACHE_MB")))
