"""Whether parameters are the same objects as before: a quick look before every call of a trainer.

In: a tree of dicts, lists and tuples with arrays in it. Out: a ``Watched``, which remembers what it
consists of. Everything is told by identity, so that no code of users runs; of a tree in which there
is anything else nothing is remembered, and each look takes the slow path.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np

from chainrule.trees import Array


class Watched:
    """A tree of arrays as it was."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._containers: list[tuple[Any, list[Any] | None, list[Any]]] = []
        self._arrays: list[tuple[Array, tuple[int, ...], np.dtype[Any]]] = []
        self._known = self._look_at(root)

    def _look_at(self, x: Any) -> bool:
        if type(x) is np.ndarray:
            self._arrays.append((x, x.shape, x.dtype))
            return True
        if type(x) is dict:
            keys: list[Any] | None = list(x)
            items = list(x.values())
            if not {str, int}.issuperset(map(type, x)):
                return False
        elif type(x) in (list, tuple):
            keys, items = None, list(x)
        else:
            return False
        self._containers.append((x, keys, items))
        return all(map(self._look_at, items))

    def same(self, root: Any) -> bool:
        """Whether this is such a tree of the same arrays, all of which can be written.

        Inside it containers are the same too; the outermost may be another.
        """
        if not self._known or type(root) is not type(self._root):
            return False
        if not self._containers and root is not self._root:
            return False
        for place, (kept, keys, items) in enumerate(self._containers):
            container = kept if place else root
            if len(container) != len(items):
                return False
            if keys is not None and list(container) != keys:
                return False
            found = container if keys is None else container.values()
            if not all(map(is_, found, items)):
                return False
        for array, shape, dtype in self._arrays:
            if array.shape != shape or array.dtype is not dtype or not array.flags.writeable:
                return False
        return True
