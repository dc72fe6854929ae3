"""Loops whose end is known only when the recording runs: turns as sides of branches.

In: a loop that ``sides`` converted, whose end depends on numbers or on a traced integer. Out: a
recording of some turns, each of which counts where the loop still goes on: it serves every call
that ends within them, and a guard says whether one does. So there are as many recordings as there
are powers of two among the numbers of turns. A turn that Python would not have run is a side like
any other: see ``forks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from chainrule.compiler.capture.arrays import DataArray
from chainrule.compiler.capture.forks import (
    SIDES,
    TURNS,
    Fork,
    TooLong,
    is_astray,
    opened,
    stay_within_bounds,
)
from chainrule.compiler.capture.keyed import is_keyed
from chainrule.compiler.capture.merging import is_open, truth_of
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core.backend import modes

_FEW = 8  # turns that are recorded in any case
_EXTRA = 8192  # instructions of a recording, in turns that its call does not take
_ASTRAY = 256  # turns inside a side that this call does not take: its numbers may never end it
_ALL_ASTRAY = 1024  # of all such loops of a recording
_SMALL = 512  # instructions of a loop that is worth taking for a single turn
_SHARE = 8  # a longer one is for calls that take more than this share of its turns
#: what can be gone through further than Python would, and nobody can tell
_SAFE = frozenset((list, tuple, range, str, np.ndarray, DataArray))


class Counted:
    """``range`` with an end that is known only at a call: each integer, and whether it is in it."""

    def __init__(self, *ends: Any) -> None:
        self._item, self._stop = (0, ends[0]) if len(ends) == 1 else ends[:2]
        self._step = ends[2] if len(ends) == 3 else 1
        self.items: int | None = None  # how many there are at most, where that is known

    def following(self) -> tuple[Any, Any]:
        """Whether there is another turn, and what it has; StopIteration where there is none."""
        item = self._item
        self._item = item + self._step
        return (item < self._stop if self._step > 0 else item > self._stop), item


class Plain:
    """An ordinary iterable."""

    def __init__(self, iterable: Any) -> None:
        self._iterator = iterable.taken() if is_keyed(iterable) else iter(iterable)
        self.items = len(iterable) if type(iterable) in _SAFE else None

    def following(self) -> tuple[Any, Any]:
        """Like that of ``Counted``."""
        return True, next(self._iterator)


class Zipped:
    """``zip`` of these."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts
        self.items = min((x.items for x in parts if x.items is not None), default=None)

    def following(self) -> tuple[Any, Any]:
        """Like that of ``Counted``."""
        found = [part.following() for part in self._parts]
        tests = [test for test, _ in found if test is not True]
        if any(test is False for test in tests):
            raise StopIteration
        test: Any = True
        for other in tests:
            test = other if test is True else SIDES.every("", _always(test), _always(other))
        return test, tuple([item for _, item in found])


def _always(x: Any) -> Callable[[], Any]:
    return lambda: x


class Numbered:
    """``enumerate`` of one of these."""

    def __init__(self, part: Any, start: int) -> None:
        self._part, self._count, self.items = part, start, part.items

    def following(self) -> tuple[Any, Any]:
        """Like that of ``Counted``."""
        test, item = self._part.following()
        self._count += 1
        return test, (self._count - 1, item)


_KINDS = (Counted, Plain, Zipped, Numbered)


def through(site: Any, function: Any, *arguments: Any) -> Any:
    """``range(...)``, ``zip(...)`` or ``enumerate(...)`` in the header of a loop."""
    is_own = function is range or function is zip or function is enumerate
    if not _opens(site) or not is_own:
        return function(*map(_ordinary, arguments))
    if function is range:
        return Counted(*arguments) if _is_counted(arguments) else range(*arguments)
    if function is enumerate:
        start = arguments[1] if len(arguments) > 1 else 0
        if len(arguments) in (1, 2) and type(start) is int and _is_safe(arguments[0]):
            return Numbered(_part(arguments[0]), start)
    elif function is zip and arguments and all(map(_is_safe, arguments)):
        return Zipped([_part(x) for x in arguments])
    return function(*map(_ordinary, arguments))


def _opens(site: Any) -> bool:
    """Whether a loop may have a run-time end."""
    recorder = modes.recorder
    if recorder is None or not recorder.both:
        return False
    return site not in recorder.plain_sites and TURNS not in recorder.plain_sites


def _is_counted(ends: tuple[Any, ...]) -> bool:
    """Whether it is a range of Python's integers, with an end that depends on the call."""
    if not 1 <= len(ends) <= 3 or (len(ends) == 3 and (type(ends[2]) is not int or not ends[2])):
        return False
    known = all(
        type(x) is int or (type(x) in (Traced, Whole) and type(x.value) is int) for x in ends
    )
    python = all(x.__class__ is int for x in ends)
    return known and python and any(type(x) is not int for x in ends)


def _is_safe(x: Any) -> bool:
    return type(x) in _SAFE or isinstance(x, _KINDS)


def _part(x: Any) -> Any:
    return x if isinstance(x, _KINDS) else Plain(x)


def _ordinary(x: Any) -> Any:
    """An iterator that Python can go through, each turn decided."""
    if is_keyed(x):
        return x.taken()
    return _decided(x) if isinstance(x, _KINDS) else x


def _decided(part: Any) -> Iterator[Any]:
    while True:
        try:
            test, item = part.following()
        except StopIteration:
            return
        if not test:
            return
        yield item


class Loop:
    """A loop while it is recorded."""

    def __init__(self, site: Any, *over: Any) -> None:
        """``over``: what a ``for`` goes through."""
        recorder = modes.recorder
        self._site = site
        self._part: Any = None
        self._item: Any = None
        self._test: Any = None  # whether the last item was one
        self._is_open = _opens(site)
        if over:
            self._is_open = self._is_open and _is_safe(over[0])
            self._part = _part(over[0])
        self._turns = 0
        self._most: int | None = None  # turns, once this call's have ended
        self._going: list[Any] = []  # whether the loop went on, before each turn
        self._first = len(recorder.nodes) if recorder is not None and self._is_open else 0
        self._astray = is_astray()

    def more(self, going: Any) -> bool:
        """Whether there is another turn to be run."""
        going = self._known(going)
        if not is_open(going):
            self._count()
            return bool(going)
        self._going.append(going)
        if truth_of(going):
            self._count()
            return True
        if self._most is None:
            self._most = self._rounded()
        if self._turns < self._most:
            self._count()
            return True
        self._require_share()
        return bool(going)

    def _known(self, going: Any) -> Any:
        """Whether it goes on, as a truth where that is a guard already, or has to be."""
        if not is_open(going):
            return going
        recorder = modes.recorder
        assert recorder is not None
        if id(going) in recorder.decided:
            return truth_of(going)
        return going if self._is_open else bool(going)

    def _count(self) -> None:
        self._turns += 1
        if self._astray:
            stay_within_bounds()
            recorder = modes.recorder
            assert recorder is not None
            recorder.astray += 1
            if self._turns > _ASTRAY or recorder.astray > _ALL_ASTRAY:
                raise TooLong

    def _rounded(self) -> int:
        """How many turns to record where this call takes so many."""
        recorder, most = modes.recorder, _FEW
        assert recorder is not None
        while most < self._turns:
            most *= 2
        items = None if self._part is None else self._part.items
        if items is not None and items <= 2 * most:
            most = items + 1  # it ends by itself
        extra = (most - self._turns) * self._size() / max(self._turns, 1)
        if recorder.extra + extra > _EXTRA:
            return self._turns
        recorder.extra += extra
        return most

    def _size(self) -> int:
        recorder = modes.recorder
        assert recorder is not None
        return len(recorder.nodes) - self._first

    def _require_share(self) -> None:
        """A guard against few turns, where all of them take long."""
        least = self._turns // _SHARE
        if self._size() > _SMALL and least < len(self._going) and truth_of(self._going[least]):
            bool(self._going[least])

    def test(self, going: Any, test: Callable[[], Any]) -> Any:
        """Whether a ``while`` loop still goes on."""
        going = self._known(going)
        if not is_open(going):
            return opened(test()) if going else going
        return self._both(going, test)

    def next(self, going: Any) -> Any:
        """Whether a ``for`` loop still goes on; the next item is kept."""
        last, going = going, self._known(going)
        if not is_open(going) and not going:
            return going
        try:
            test, self._item = self._part.following()
        except StopIteration:
            return False
        if test is not True and is_open(going) and last is not self._test:
            test = self._both(going, lambda: test)
        # An item that is one after one that is not: there is no such thing in a range.
        self._test = going if test is True else test
        return self._test

    def _both(self, going: Any, test: Callable[[], Any]) -> Any:
        fork = Fork(self._site, going)
        if not fork.both:
            return opened(test()) if fork.truth else False

        def run() -> Any:
            found = opened(test())
            found = found if is_open(found) else bool(found)
            return going if found is True else found

        return fork.expression(run, lambda: False)

    def item(self) -> Any:
        """What this turn of a ``for`` loop has."""
        return self._item
