"""``sorted`` of numbers whose order is known only when the recording runs.

In: what is to be sorted, and by what. Out: a list in which every place stands for the one that is
to be there. Neighbours are compared and swapped, round after round, where the later one is smaller:
that is stable, as Python's sort is, and the same comparisons are made for every order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from chainrule.compiler.capture.merging import CannotMerge, is_open, one_of
from chainrule.compiler.capture.standins import Detached
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import Value, modes

_LARGE = 1e300
_MOST = 48  # items; there are half as many comparisons as the square of that


def in_order(
    iterable: Iterable[Any], *, key: Callable[[Any], Any] | None = None, reverse: Any = False
) -> list[Any]:
    """What ``sorted`` gives, where both sides of branches are computed."""
    recorder, items = modes.recorder, list(iterable)
    if recorder is None or not recorder.both or recorder.forks:
        return sorted(items, key=key, reverse=reverse)
    if type(reverse) is not bool:
        return sorted(items, key=key, reverse=reverse)
    keys = items if key is None else [key(x) for x in items]
    if 1 < len(items) <= _MOST and any(_are(kind, keys) for kind in (Value, Detached, Traced)):
        try:
            return _network(keys, items, reverse)
        except CannotMerge:
            pass
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return [items[k] for k in order]


def _are(kind: type, keys: list[Any]) -> bool:
    return all(type(k) is kind and k.__class__ in (Value, float, int) for k in keys)


def _network(keys: list[Any], items: list[Any], reverse: bool) -> list[Any]:
    """The items sorted by comparisons of neighbours."""
    for k in keys:
        if type(k) is not Traced and not k < _LARGE:  # a guard: what is not a number has no order
            raise CannotMerge
    pairs = [(k, x) if k is not x else (k,) for k, x in zip(keys, items, strict=True)]
    for turn in range(len(pairs)):
        for j in range(1 + turn % 2, len(pairs), 2):
            first, second = pairs[j - 1], pairs[j]
            small, large = (first, second) if reverse else (second, first)
            test = small[0] < large[0]
            if is_open(test):
                pairs[j - 1] = one_of(test, second, first)
                pairs[j] = one_of(test, first, second)
            elif test:
                pairs[j - 1], pairs[j] = second, first
    return [pair[-1] for pair in pairs]
