"""What was found out of large containers that are read by traced keys, while they hold the same.

In: a container, and what was found of it by going through all of it. Out: the same again, as long
as it, and the lists and arrays in it, hold the very objects they held: what is read many times is
gone through once, and only compared after that, which C does. The function may change it between
two reads.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from chainrule.compiler.capture.keys import FLAT
from chainrule.core.backend import kernels

_List = tuple[list[Any], tuple[Any, ...]]


class Contents:
    """What a list, tuple or string holds, and the lists, tuples and arrays in it."""

    def __init__(self, container: Any) -> None:
        self._lists: list[_List] = []
        self._arrays: list[tuple[Any, Any, bytes]] = []
        if type(container) is not str:
            self._note(container)
        self._checks = None if kernels is None else kernels.Checks(tuple(self._lists))

    def _note(self, container: Any) -> None:
        if isinstance(container, np.ndarray):
            numbers = np.ndarray.view(container, np.ndarray)
            items = numbers.ravel().tolist() if numbers.dtype.hasobject else None
            self._arrays.append((numbers, items, numbers.tobytes()))
            return
        if type(container) is list:
            self._lists.append((container, tuple(container)))
        kinds = set(map(type, container))
        if kinds == {tuple}:
            kinds = set(map(type, itertools.chain.from_iterable(container)))
        if not kinds <= FLAT:
            for x in container:
                if type(x) is list or type(x) is tuple or isinstance(x, np.ndarray):
                    self._note(x)

    def are_the_same(self) -> bool:
        """Whether these are still the very objects."""
        if self._checks is None:
            lists = all(_holds(items, before) for items, before in self._lists)
        else:
            lists = self._checks.failed() < 0
        return lists and all(array.tobytes() == before for array, _, before in self._arrays)


def _holds(items: list[Any], before: tuple[Any, ...]) -> bool:
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

    def put(self, container: Any, found: Any) -> None:
        """Keep what was found of a container as it is now."""
        self._found[id(container)] = container, Contents(container), found

    def clear(self) -> None:
        """Let go of all containers."""
        self._found.clear()
