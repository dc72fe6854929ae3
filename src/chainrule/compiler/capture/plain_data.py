"""Lists, tuples, sets and dicts of plain numbers and texts, which the walk takes all at once.

In: one that is reached. Out: it and those in it, or None where anything else is in it: that is gone
through item by item. A data set of a million numbers is no code, and none of them can change.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.captured import CapturedState

_NUMPYS = frozenset((np.float64, np.int64))
_PLAIN = frozenset((int, float, bool, str, bytes, type(None))) | _NUMPYS
_CONTAINERS = frozenset((list, tuple, dict))
_WHOLE = _CONTAINERS | {set, frozenset}

AT_ONCE = 256  #: items that take as long as an object that is gone through by itself


@dataclass(frozen=True)
class PlainData:
    """Containers with nothing but each other, plain numbers and texts in them."""

    containers: list[Any]
    count: int  # of all that is in them
    texts: list[str]  # those that may be formats with fields
    has_numpys: bool  # some numbers are numpy's

    def note_in(self, found: CapturedState) -> None:
        """What of it can change."""
        found.searched += len(self.containers) // 8 + self.count // AT_ONCE  # as quick
        found.lists += [(x, tuple(x)) for x in self.containers if type(x) is list]
        found.dicts += [(x, dict(x), None) for x in self.containers if type(x) is dict]
        found.sets += [(x, tuple(x)) for x in self.containers if type(x) is set]


def plain_data(x: Any, seen: Collection[int], holders: Collection[int]) -> PlainData | None:
    """What is reached by ``x``; None where it is not plain.

    ``seen``: ids of what need not be noted again. ``holders``: of what is not to be reached so.
    """
    if type(x) not in _WHOLE:
        return None
    found, level, count, has_numpys = [x], [x], 0, False
    texts: list[str] = []
    while level:
        count += sum(map(len, level))
        kinds = set(map(type, _items(level)))
        if not kinds <= _PLAIN | _CONTAINERS:
            return None
        has_numpys |= not kinds.isdisjoint(_NUMPYS)
        if str in kinds:
            texts += [text for text in _items(level) if type(text) is str and "{" in text]
        if kinds <= _PLAIN:
            break
        inside = {id(y): y for y in _items(level) if type(y) in _CONTAINERS}
        if not inside.keys().isdisjoint(holders):
            return None
        known = {id(y) for y in found}
        level = [y for key, y in inside.items() if key not in seen and key not in known]
        found += level
    return PlainData(found, count, texts, has_numpys)


def _items(containers: list[Any]) -> Iterator[Any]:
    """What is in some containers, keys and values of dicts alike."""
    dicts = [x for x in containers if type(x) is dict]
    return itertools.chain(
        itertools.chain.from_iterable(containers),
        itertools.chain.from_iterable(x.values() for x in dicts),
    )
