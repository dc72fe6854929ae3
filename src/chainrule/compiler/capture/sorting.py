"""``sorted`` and ``heapq.nlargest`` of numbers whose order is known only when the recording runs.

In: what is to be sorted, and by what. Out: a list in which every place stands for the one that is
to be there. Neighbours are compared and swapped, round after round, where the later one is smaller:
that is stable, as Python's sort is, and the same comparisons are made for every order.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any

import numpy as np

from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.merging import CannotMerge, is_open, one_of
from chainrule.compiler.capture.standins import Detached
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import Value, modes

_LARGE = 1e300
_MOST = 48  # items; there are half as many comparisons as the square of that
_MOST_SWAPS = _MOST * _MOST // 2
_Key = Callable[[Any], Any] | None


def in_order(iterable: Iterable[Any], *, key: _Key = None, reverse: Any = False) -> list[Any]:
    """What ``sorted`` gives, where both sides of branches are computed."""
    recorder, items = modes.recorder, list(iterable)
    if recorder is None or not recorder.both or recorder.forks:
        return sorted(items, key=key, reverse=reverse)
    if type(reverse) is not bool:
        return sorted(items, key=key, reverse=reverse)
    keys = items if key is None else [key(x) for x in items]
    if 1 < len(items) <= _MOST:
        found = _sorted(keys, items, len(items), reverse)
        if found is not None:
            return found
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return [items[k] for k in order]


def _in_front(original: Callable[..., Any], reverse: bool) -> Callable[..., Any]:
    """``heapq.nlargest`` or ``nsmallest``: those that come first in this order."""

    @functools.wraps(original)
    def front(n: Any, iterable: Any, key: _Key = None) -> Any:
        recorder = modes.recorder
        if recorder is None or not recorder.both or recorder.forks or type(n) is not int or n < 1:
            return original(n, iterable, key)
        # As the original does: keys one by one as items come, and of all items that are counted,
        # ``sorted``, which leaves equal ones in another order than a heap.
        is_sorted = n > 1 and isinstance(iterable, Sized) and n >= len(iterable)
        items, keys = [], []
        for x in list(iterable) if is_sorted else iterable:
            items.append(x)
            keys.append(x if key is None else key(x))
        swaps = min(n + 1, len(items)) * len(items)
        if len(items) > 1 and swaps <= _MOST_SWAPS:
            found = _sorted(keys, items, n, reverse, by_heap=True)
            if found is not None:
                return found
        places = range(len(items))
        order = original(n, places if is_sorted else iter(places), keys.__getitem__)
        return [items[k] for k in order]

    setattr(front, REPLACES, original)
    return front


#: what stands for functions of ``heapq``
FRONTS: dict[Any, Callable[..., Any]] = {
    heapq.nlargest: _in_front(heapq.nlargest, True),
    heapq.nsmallest: _in_front(heapq.nsmallest, False),
}


class Sorting:
    """A list of which ``sort`` is asked."""

    def __init__(self, items: list[Any]) -> None:
        self._items = items

    def sort(self, *, key: _Key = None, reverse: Any = False) -> None:
        """``items.sort()``: in the meantime the list is empty, as Python's is."""
        items, recorder = self._items, modes.recorder
        before = items[:]
        del items[:]
        try:
            found = in_order(before, key=key, reverse=reverse)
        except BaseException:
            items[:] = before
            raise
        if items and recorder is not None:
            recorder.forbid("changing a list while it is sorted")
        items[:] = found


# --- by comparisons of neighbours -----------------------------------------------------------------


def _sorted(
    keys: Sequence[Any], items: list[Any], count: int, reverse: bool, by_heap: bool = False
) -> list[Any] | None:
    """The first so many of the items in order; None where that is left to Python.

    ``by_heap``: of equal keys that are Values, a heap has an order of its own.
    """
    recorder = modes.recorder
    assert recorder is not None
    leading = _leading(keys)
    keys = keys if leading is None else leading
    kind = next((kind for kind in (Value, Detached, Traced) if _are(kind, keys)), None)
    if kind is None or (leading is not None and kind is Traced):
        return None
    has_ties = (by_heap and kind is Value) or (leading is not None and kind is Detached)
    try:
        pairs = _compared(keys, items, count + (has_ties and count < len(items)), reverse)
    except CannotMerge:
        return None
    if has_ties:
        for a, b in itertools.pairwise(pairs[: count + 1]):
            small, large = (b, a) if reverse else (a, b)
            if not small[0] < large[0]:  # a guard
                return None
    return [pair[-1] for pair in pairs[:count]]


def _leading(keys: Sequence[Any]) -> list[Any] | None:
    """The first items of keys that are tuples, where these decide; None for anything else.

    Two Values are equal only if they are one, and the next items count then: so each must be one
    that was computed, and nothing that stands for one of several.
    """
    recorder = modes.recorder
    if recorder is None or not all(type(k) is tuple and k for k in keys):
        return None
    first = [k[0] for k in keys]
    values = [x for x in first if type(x) is Value]
    known = recorder.selector.chosen.keys() | recorder.selector.pending.keys()
    if recorder.either or not known.isdisjoint(map(id, values)):
        return None
    if len({*map(id, values)}) < len(values) or not all(x._rule for x in values):
        return None
    return first


def _are(kind: type, keys: Sequence[Any]) -> bool:
    classes = (Value, float, int, np.float64)
    return all(type(k) is kind and k.__class__ in classes for k in keys)


def _compared(
    keys: Sequence[Any], items: list[Any], count: int, reverse: bool
) -> list[tuple[Any, ...]]:
    """Keys and items, of which the first so many are in order."""
    for k in keys:
        if type(k) is not Traced and not k < _LARGE:  # a guard: what is not a number has no order
            raise CannotMerge
    pairs = [(k, x) if k is not x else (k,) for k, x in zip(keys, items, strict=True)]
    some = count < len(pairs)
    for turn in range(count if some else len(pairs)):
        # Of all, in rounds of what does not wait for each other; else the first one to the front.
        places = range(len(pairs) - 1, turn, -1) if some else range(1 + turn % 2, len(pairs), 2)
        for j in places:
            first, second = pairs[j - 1], pairs[j]
            small, large = (first, second) if reverse else (second, first)
            test = small[0] < large[0]
            if is_open(test):
                pairs[j - 1] = one_of(test, second, first)
                pairs[j] = one_of(test, first, second)
            elif test:
                pairs[j - 1], pairs[j] = second, first
    return pairs
