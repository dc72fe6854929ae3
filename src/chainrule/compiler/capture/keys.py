"""The keys and the contents of containers that a recorded function reads.

In: a key, or a container. Out: its parts, the arrays of integers that it stands for, or the
integers themselves where it becomes static.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.arrays import DataArray, as_data, items_of, numbers, object_array
from chainrule.compiler.capture.enums import is_like_int
from chainrule.compiler.capture.traced import Traced

FLAT = frozenset((int, float, bool, str, Traced))  #: kinds of items with nothing in them
_ROWS = frozenset((list, tuple))


def flattened(items: Sequence[Any]) -> list[Any]:
    """Some items, and those of the lists, tuples, dicts and arrays among them."""
    found = list(items)
    kinds = set(map(type, items))
    if kinds <= FLAT:
        return found
    if kinds <= _ROWS and FLAT.issuperset(map(type, itertools.chain.from_iterable(items))):
        return [*found, *itertools.chain.from_iterable(items)]
    for x in items:
        if type(x) is list or type(x) is tuple:
            found += flattened(x)
        elif type(x) is dict:
            found += flattened([*x, *x.values()])
        elif isinstance(x, np.ndarray):
            objects = type(x) is DataArray or x.dtype == object
            found += items_of(x) if objects else [x.tobytes()]
    return found


def parts_of(key: Any) -> tuple[Any, ...]:
    """``a[i, j]`` has two parts, ``a[i]`` one."""
    return key if type(key) is tuple else (key,)


def is_grid(key: Any) -> bool:
    """Whether a key is an array."""
    return type(key) is DataArray or type(key) is np.ndarray


def is_index(key: Any) -> bool:
    """Whether a key is an integer or a slice; a bool would be a mask."""
    if type(key) is Traced:
        return type(key.value) is not bool
    return type(key) is int or type(key) is slice or type(key) is np.int64


def grid_of(key: Any) -> Any:
    """A key of an array as an array of integers, some of them traced; None where it is not one."""
    if is_index(key):
        return object_array([key], ())
    if type(key) is list:
        grid = object_array(key, (len(key),))
    elif type(key) is DataArray or (type(key) is np.ndarray and key.dtype in (np.int64, object)):
        grid = object_array(items_of(key), key.shape)
    else:
        return None
    return grid if all(map(is_index, grid.ravel().tolist())) else None


def settled(key: Any) -> Any:
    """A key with the integers themselves, which become static."""
    if type(key) is tuple:
        return tuple(map(settled, key))
    return key.static() if type(key) is Traced else numbers(key)


def typed(items: Any, dtype: np.dtype[Any]) -> Any:
    """What was read of an array of this type: of numbers an array of data, else one of objects."""
    return items if dtype.kind == "O" else as_data(items, dtype)


def are_keys_alike(a: Any, b: Any) -> bool:
    """Whether two keys are equal numbers or texts of one type, or tuples of such."""
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(are_keys_alike, a, b))
    is_plain = type(a) in (int, bool, str) or is_like_int(type(a))
    return is_plain and bool(a == b)


def is_same(now: Any, before: Any) -> bool:
    """Whether one of the contents of a container is what it was."""
    return now is before or (type(now) is bytes and now == before)


def contents_of(container: Any) -> tuple[Any, ...]:
    """What is in a container, to be compared later with what is in it then."""
    if isinstance(container, np.ndarray):
        if type(container) is np.ndarray and container.dtype.kind != "O":
            return (container.tobytes(),)
        return tuple(items_of(container))
    if isinstance(container, dict):
        return tuple(itertools.chain(*container.items()))
    return tuple(container)
