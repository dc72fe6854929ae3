"""Functions that keep their results: ``functools.lru_cache`` and ``functools.cache``.

What such a function gives may be of another time, so no reading of its code tells it. It is asked
instead: while a function is recorded each call of a kept result is noted, with what it gave, and at
every later call the same is asked again, as part of the captured state. The arguments are static.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.standins import StandIn, Unrecordable
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import modes

MOST = 64  # results of which a function may depend
LONGEST = 1000  # items of one
_ATOMS = (int, float, bool, str, bytes, type(None), np.float64, np.int64)

CACHED: Any = functools._lru_cache_wrapper
Place = tuple[dict[str, Any], str, Any]  # a namespace, a name in it, and the function


def _shown(x: Any, may_change: bool = False) -> Any:
    """A kept result as something to compare, types and all bits; None where it is not plain.

    ``may_change``: it may be a list.
    """
    if type(x) is tuple or (type(x) is list and may_change):
        items = [_shown(item) for item in x] if len(x) <= LONGEST else [None]
        return None if None in items else (type(x), *items)
    if type(x) not in _ATOMS:
        return None
    return type(x), x.hex() if isinstance(x, float) else x


@dataclass(frozen=True, eq=False)
class Kept:
    """A result that a function gave for some arguments."""

    function: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    result: Any
    shown: Any
    items: tuple[Any, ...]  # of a list

    def changed(self) -> bool:
        """Whether it gives something else now."""
        now = self.function(*self.arguments, **self.keywords)
        if now is self.result and type(now) in _ATOMS:
            return False
        return bool(_shown(now, may_change=True) != self.shown)

    def restore(self) -> None:
        """Put back what a recorded run did to a list."""
        if type(self.result) is list and _shown(self.result, may_change=True) != self.shown:
            self.result[:] = self.items


def _settled(x: Any) -> Any:
    """An argument: an integer as the object that Python would have."""
    return x.plain() if type(x) is Traced else x


def _asked(recorder: Any, function: Any, arguments: Any, keywords: Any) -> Any:
    """What a function gives to a recorded one."""
    name = f"{function.__name__!r}, which keeps results in a cache,"
    arguments = tuple(map(_settled, arguments))
    keywords = {key: _settled(x) for key, x in keywords.items()}
    given = (*arguments, *keywords.values())
    if any(isinstance(x, StandIn) or _shown(x) is None for x in given):
        recorder.forbid(f"{name} is given something that is no plain number or text,")
    modes.recorder = None  # it computes with plain numbers, and may find a result of another time
    try:
        result = function(*arguments, **keywords)
    finally:
        modes.recorder = recorder
    shown = _shown(result, may_change=True)
    if shown is None or len(recorder.kept) >= MOST:
        recorder.forbid(f"{name} gives something that cannot be compared,")
    if type(result) is list:
        recorder.passed.add(id(result))  # others hold it too
    items = tuple(result) if type(result) is list else ()
    recorder.kept.append(Kept(function, arguments, keywords, result, shown, items))
    return result


def _substitute(original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*arguments: Any, **keywords: Any) -> Any:
        if modes.recorder is None:
            return original(*arguments, **keywords)
        return _asked(modes.recorder, original, arguments, keywords)

    setattr(function, REPLACES, original)
    return function


_lock = threading.Lock()
_users: dict[tuple[int, str], int] = {}  # recordings that need a name replaced


def added(kept: list[Kept], found: Iterable[Kept]) -> list[Kept]:
    """What is to be asked at every call, with what one more recording found."""
    known = {(id(x.function), x.arguments, *x.keywords.items()): x for x in (*kept, *found)}
    if len(known) > 4 * MOST:
        raise Unrecordable("it depends on too many results that are kept in a cache")
    return list(known.values())


@contextmanager
def seen(places: Iterable[Place]) -> Iterator[None]:
    """Inside this block calls of such functions are noted."""
    places = list({(id(space), name): (space, name, f) for space, name, f in places}.values())
    with _lock:
        for space, name, f in places:
            users = _users.setdefault((id(space), name), 0)
            _users[id(space), name] = users + 1
            if not users:
                space[name] = _substitute(f)
    try:
        yield
    finally:
        with _lock:
            for space, name, f in places:
                _users[id(space), name] -= 1
                if not _users[id(space), name]:
                    del _users[id(space), name]
                    if getattr(space.get(name), REPLACES, None) is f:
                        space[name] = f
