"""What was found out of large containers that are read by traced keys, while they hold the same.

In: a container, and what was found of it by going through all of it. Out: the same again, as long
as it, and the lists, dicts and arrays in it, hold the very objects they held: what is read many
times is gone through once, and only compared after that, which C does. The function may change it
between two reads.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from chainrule.compiler.capture.keys import FLAT
from chainrule.core.backend import kernels

_CONTAINERS = frozenset((list, tuple, dict))
_Held = tuple[Any, tuple[Any, ...]]


class Contents:
    """What a list, tuple or string holds, and the lists, tuples, dicts and arrays in it."""

    def __init__(self, container: Any, is_fixed: bool) -> None:
        """``is_fixed``: nothing of it can change, as of a text."""
        self._held: list[_Held] = []
        self._arrays: list[tuple[Any, Any, bytes]] = []
        if not is_fixed:
            self._note(container)
        self._checks = None if kernels is None else kernels.Checks(tuple(self._held))

    def _note(self, container: Any) -> None:
        if isinstance(container, np.ndarray):
            numbers = np.ndarray.view(container, np.ndarray)
            objects = numbers.ravel().tolist() if numbers.dtype.hasobject else None
            self._arrays.append((numbers, objects, numbers.tobytes()))
            return
        items = _items_of(container)
        if type(container) is not tuple:
            self._held.append((container, items))
        kinds = set(map(type, items))
        if kinds == {tuple}:
            kinds = set(map(type, itertools.chain.from_iterable(items)))
        if not kinds <= FLAT:
            for x in items:
                if type(x) in _CONTAINERS or isinstance(x, np.ndarray):
                    self._note(x)

    def are_the_same(self) -> bool:
        """Whether these are still the very objects."""
        if self._checks is None:
            same = all(_are(_items_of(x), before) for x, before in self._held)
        else:
            same = self._checks.failed() < 0
        return same and all(array.tobytes() == before for array, _, before in self._arrays)


def _items_of(container: Any) -> tuple[Any, ...]:
    """What is in a list, tuple or dict; of a dict its keys and items in a row."""
    is_dict = type(container) is dict
    return tuple(itertools.chain(*container.items()) if is_dict else container)


def _are(items: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    return len(items) == len(before) and all(map(operator.is_, items, before))


class Findings:
    """What was found of containers, by what it is."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[Any, Contents, Any]] = {}  # by the id of the container

    def get(self, container: Any) -> Any:
        """What was found of a container, unless it has changed; None: it is to be found."""
        found = self._found.get(id(container))
        if found is None or not found[1].are_the_same():
            return None
        return found[2]

    def put(self, container: Any, found: Any, is_fixed: bool = False) -> None:
        """Keep what was found of a container as it is now."""
        self._found[id(container)] = container, Contents(container, is_fixed), found

    def clear(self) -> None:
        """Let go of all containers."""
        self._found.clear()
