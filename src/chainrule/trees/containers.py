"""Trees for those who need their leaves only.

In: dicts, lists, tuples, named tuples and dataclasses of anything. Out: their leaves, or the same
containers of something else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class Leaf:
    """Base of dataclasses that are leaves of trees, and not looked into."""

    __slots__ = ()


def is_record(x: object) -> bool:
    """Whether ``x`` is an instance of a dataclass."""
    return dataclasses.is_dataclass(x) and not isinstance(x, (type, Leaf))


def build_record(kind: Any, items: Iterable[Any]) -> Any:
    """A dataclass with these fields, however it would have come by them."""
    made = object.__new__(kind)
    for name, item in zip(field_names(kind), items, strict=True):
        object.__setattr__(made, name, item)  # a frozen one too
    return made


def field_names(kind: Any) -> list[str]:
    """The names of a dataclass's fields."""
    return [one.name for one in dataclasses.fields(kind)]


def leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The leaves of dicts, lists, tuples and dataclasses, with where each is: ``params.w[0]``."""
    items = children(tree)
    if items is not None:
        for key, item in items:
            yield from leaves(item, f"{path}[{key!r}]")
    elif is_record(tree):
        for name in field_names(tree):
            yield from leaves(getattr(tree, name), f"{path}.{name}")
    else:
        yield path, tree


def children(tree: Any) -> Iterable[tuple[Any, Any]] | None:
    """What is in a dict, list or tuple, or in one of a class derived from these, by its key."""
    if isinstance(tree, dict):
        return tree.items()
    return enumerate(tree) if isinstance(tree, (list, tuple)) else None


def arrays_in(tree: Any) -> list[Array] | None:
    """The arrays of dicts, lists and tuples, in order; None where there is anything else."""
    found: list[Array] = []
    return found if _add_arrays(tree, found) else None


def _add_arrays(tree: Any, found: list[Array]) -> bool:
    kind = type(tree)
    if kind is np.ndarray:
        found.append(tree)
        return True
    items = tree.values() if kind is dict else tree if kind in (list, tuple) else None
    return items is not None and all(_add_arrays(item, found) for item in items)


def like_arrays(tree: Any, row: Array) -> Any:
    """A tree of arrays like this one (see ``arrays_in``), which are parts of a row."""
    at = 0

    def part(array: Array) -> Array:
        nonlocal at
        at += array.size
        return row[at - array.size : at].reshape(array.shape)

    return map_leaves(part, tree)


def map_leaves(function: Callable[[Any], Any], tree: Any, records: bool = False) -> Any:
    """A tree of dicts, lists and tuples with ``function`` applied to its leaves.

    What is of a class derived from these is a leaf; with ``records`` named tuples and dataclasses
    are not.
    """
    kind = type(tree)
    if kind is dict:
        return {key: map_leaves(function, item, records) for key, item in tree.items()}
    if kind is list or kind is tuple:
        return kind([map_leaves(function, item, records) for item in tree])
    if records and is_named_tuple(tree):
        return kind(*[map_leaves(function, item, True) for item in tree])
    if records and is_record(tree):
        fields = [getattr(tree, name) for name in field_names(kind)]
        return build_record(kind, [map_leaves(function, item, True) for item in fields])
    return function(tree)


def is_named_tuple(x: object) -> bool:
    """Whether ``x`` is a tuple with names for its items."""
    return isinstance(x, tuple) and hasattr(x, "_fields")
