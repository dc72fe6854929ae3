"""Flatten: from trees to rows of numbers and a structure, and back.

In: a tree. Out: ``Flat``, its leaves in rows, and its structure, a ``Node``. ``unflatten`` makes
such a tree again with something else at its leaves.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.core import errors
from chainrule.core.backend import Value
from chainrule.trees.containers import Array, field_names
from chainrule.trees.structure import (
    FLOAT,
    INT,
    NARROW,
    TRUTH,
    VALUE,
    Again,
    Branch,
    Deque,
    Dict,
    List,
    NamedTuple,
    Namespace,
    Node,
    Opaque,
    Ordered,
    Record,
    SameValue,
    Static,
    Text,
    Tuple,
    numbers,
)

Floats = npt.NDArray[np.float64]

STRIDES, OBJECTS = "strides", "objects"  # begin the words on an array that is no plain one
LONGEST_TEXT = 4096  # characters that are integers; a longer text is static
_NEVER_CHANGING = frozenset((datetime.date, datetime.timedelta))
OPENED = frozenset((SimpleNamespace, deque, OrderedDict))  # beside lists, dicts, tuples and records


@dataclass(eq=False)
class Flat:
    """The leaves of one tree or more, in rows.

    A list, dict or array that comes twice is ``Again`` the second time; not where everything is
    a float to differentiate by: these are two arguments then, as one number in two places is.
    """

    floats: list[Any] = field(default_factory=list)  # numbers, arrays and Values, in order
    sizes: list[int] = field(default_factory=list)  # how many numbers each of them is
    ints: list[int] = field(default_factory=list)
    labels: list[tuple[int, str]] = field(default_factory=list)  # of Values taken for floats
    narrow: list[tuple[int, str]] = field(default_factory=list)  # what are no doubles in order
    opaque: str | None = None  # the type of an object that nobody looks into
    #: strings are integers, one for each character, and so are bools and the items of arrays that
    #: are NARROW; else they are static
    traces_text: bool = False
    _place: dict[int, int] = field(default_factory=dict)  # of each Value
    _containers: dict[int, int] = field(default_factory=dict)  # by id: how many came before
    _count: int = 0  # of containers
    _open: set[int] = field(default_factory=set)  # objects whose attributes are being added
    _kept: list[Any] = field(default_factory=list)  # so that no id is used twice

    @property
    def values(self) -> list[Value]:
        """The Values among the leaves, in order, each once."""
        return [x for x in self.floats if isinstance(x, Value)] if self._place else []

    @property
    def size(self) -> int:
        """How many floats there are in all."""
        return sum(self.sizes)

    def add(self, x: Any, floats_only: bool = False) -> Node:
        """Put a tree into the rows; ``floats_only``: its integers and Values are floats."""
        kind = type(x)
        if kind is np.ndarray:
            return self._add_array(x, floats_only)
        if kind is float:
            return self._add_float(x)
        if kind is list or kind is dict:
            return self._add_container(x, floats_only)
        if isinstance(x, Value):
            return self._add_value(x, floats_only)
        if kind is str and self.traces_text and not floats_only and 0 < len(x) <= LONGEST_TEXT:
            self.ints.extend(map(ord, x))
            return Text(len(x))
        if kind is bool and self.traces_text and not floats_only:
            self.ints.append(int(x))
            return TRUTH
        if isinstance(x, (bool, np.bool_)) or x is None or kind is str or kind is bytes:
            return Static(kind, x)
        if isinstance(x, enum.Enum) and self.opens(x):
            return Static(kind, (x.name, repr(x.value)))
        if (isinstance(x, int) and kind is not int) or isinstance(x, np.timedelta64):
            return self._add_opaque(x)  # numpy calls a span of time an integer
        if isinstance(x, np.integer) and kind is not np.int64 and not floats_only:
            return Static(kind, int(x))  # it wraps around where an int does not
        if isinstance(x, (int, np.integer)) and not floats_only:
            if kind is not int:  # a number of numpy's is another thing to the function
                self.narrow.append((-1 - len(self.ints), "int64"))
            self.ints.append(int(x))
            return INT
        if errors.is_real(x) and (floats_only or isinstance(x, np.floating)):
            if isinstance(x, np.floating) and not floats_only:
                self.narrow.append((len(self.floats), x.dtype.str))
            return self._add_float(x if isinstance(x, np.floating) else float(x))
        if kind is tuple:
            return Tuple(self._row(x, floats_only))
        if isinstance(x, tuple) and hasattr(kind, "_make") and self.opens(x):
            return NamedTuple(self._items(x, floats_only), kind)
        if dataclasses.is_dataclass(kind) and self.opens(x):
            return self._add_container(x, floats_only, is_record=True)
        if kind in _NEVER_CHANGING:
            return Static(kind, x)
        if not floats_only and (kind in OPENED or self.opens_object(x)):
            return self._add_container(x, floats_only)
        if not floats_only and self.stands_for_itself(x):
            return Static(kind, x)
        return self._add_opaque(x)

    def opens(self, x: Any) -> bool:
        """Whether a named tuple, a dataclass or an item of an enum is looked into."""
        return True

    def opens_object(self, x: Any) -> bool:
        """Whether an instance of a class of the user's is looked into."""
        return False

    def is_key(self, x: Any) -> bool:
        """Whether all that there is to a key of a dict is what it is equal to."""
        return True

    def stands_for_itself(self, x: Any) -> bool:
        """Whether a recording may hold for this object only, as for a function."""
        return False

    def _add_float(self, x: Any) -> Node:
        self.floats.append(x)
        self.sizes.append(1)
        return FLOAT

    def _add_value(self, x: Value, floats_only: bool) -> Node:
        if floats_only and type(x) is Value:  # one Value in two places is two arguments
            if x.label:
                self.labels.append((len(self.floats), x.label))
            return self._add_float(x._number)
        if type(x) is not Value:
            self.opaque = type(x).__name__
        count = len(self.floats)
        place = self._place.setdefault(id(x), count)
        if place < count:
            return SameValue(place)
        self.floats.append(x)
        self.sizes.append(1)
        return VALUE

    def _add_opaque(self, x: Any, why: str = "") -> Node:
        of = f" of {x.dtype}" if type(x) is np.ndarray else ""
        self.opaque = type(x).__name__ + of + why
        return Opaque(type(x).__name__ + of)

    def _items(self, items: Iterable[Any], floats_only: bool) -> tuple[Node, ...]:
        return tuple([self.add(item, floats_only) for item in items])

    def _add_container(self, x: Any, floats_only: bool, is_record: bool = False) -> Node:
        if not floats_only and id(x) in self._containers:
            return Again(self._containers[id(x)])
        made: Node
        if type(x) is dict or type(x) is OrderedDict:
            if type(x) is OrderedDict and vars(x):
                return self._add_opaque(x, " with attributes")
            if any(type(key) is float and (key != key or str(key) == "-0.0") for key in x):
                return self._add_opaque(x)  # equal keys that are not the same
            for key in x:
                if type(key) is not str and type(key) is not int and not self.is_key(key):
                    return self._add_opaque(x, f" with a {type(key).__name__} for a key")
            items = self._items(x.values(), floats_only)
            of_kind = Dict if type(x) is dict else Ordered
            made = of_kind(items, tuple([(exactly(key), key) for key in x]))
        elif type(x) is deque:
            made = Deque(self._items(x, floats_only), x.maxlen)
        elif type(x) is not list:
            made = self._add_attributes(x, floats_only, is_record)
        else:
            made = List(self._row(x.copy(), floats_only))  # another thread may change it meanwhile
        self._count_container(x, floats_only)
        return made

    def _row(self, x: list[Any] | tuple[Any, ...], floats_only: bool) -> tuple[Node, ...]:
        """What is in a list or tuple: of plain numbers, which may be many, at once."""
        kinds = set(map(type, x))
        if kinds == {int} and not floats_only:
            self.ints.extend(x)
            return (INT,) * len(x)
        if kinds == {float}:
            self.floats.extend(x)
            self.sizes.extend([1] * len(x))
            return (FLOAT,) * len(x)
        return self._items(x, floats_only)

    def _add_attributes(self, x: Any, floats_only: bool, is_record: bool) -> Node:
        kind = type(x)
        if id(x) in self._open:
            return self._add_opaque(x, ", which refers to itself,")
        self._open.add(id(x))
        if is_record:
            fields = [getattr(x, name) for name in field_names(x)]
            made: Node = Record(self._items(fields, floats_only), kind)
        else:
            items = []
            for name, item in vars(x).items():
                before = self.opaque
                items.append(self.add(item, floats_only))
                if self.opaque is not before and kind is not SimpleNamespace:
                    inside = str(self.opaque).rstrip(",")
                    self.opaque = f"{kind.__name__}, whose attribute {name!r} is a {inside},"
            made = Namespace(tuple(items), tuple(vars(x)), kind)
        self._open.discard(id(x))
        return made

    def _count_container(self, x: Any, floats_only: bool) -> None:
        if not floats_only:
            self._containers[id(x)] = self._count
        self._count += 1

    def _add_array(self, x: Array, floats_only: bool) -> Node:
        if x.dtype == object and not x.ndim:
            return self._add_opaque(x)
        if x.dtype == object:  # a list of the same is another thing to the function
            self.narrow.append((self._count, f"{OBJECTS} {x.shape}"))
            self._kept.append(x.tolist())
            return self.add(self._kept[-1], floats_only)
        if not floats_only:
            if id(x) in self._containers:
                return Again(self._containers[id(x)])
            if not x.flags.c_contiguous and not _is_in_order(x):
                # It decides whether ``ravel`` and ``reshape`` give views.
                self.narrow.append((self._count, f"{STRIDES} {x.strides}"))
            self._count_container(x, floats_only)
        if not floats_only and (x.dtype.kind in "bu" or (x.dtype.kind == "i" and x.itemsize < 8)):
            kind = NARROW.get(x.dtype)
            if not self.traces_text or kind is None or not x.size or _is_large(x):
                return Static(np.ndarray, (x.dtype.str, x.shape, x.tobytes()))
            self.ints.extend(x.astype(np.int64).ravel().tolist())
            return numbers(x.shape, kind)
        if x.dtype.kind == "i" and not floats_only:
            self.ints.extend(x.ravel().tolist())
            return numbers(x.shape, INT)
        if x.dtype.kind not in "fiu":
            return self._add_opaque(x)
        if x.dtype != np.float64 and not floats_only:
            self.narrow.append((len(self.floats), x.dtype.str))
        self.floats.append(x)
        self.sizes.append(x.size)
        return numbers(x.shape, FLOAT)


def exactly(key: Any) -> Any:
    """What tells a key of a dict from others that are equal to it, as 1 is to True."""
    kind = type(key)
    if kind is tuple or kind is frozenset:
        return kind, tuple(map(exactly, key))
    is_plain = kind in (str, int, bool, bytes) or isinstance(key, enum.Enum)
    return kind if is_plain else (kind, repr(key))  # zeros of two signs, time zones, units


def _is_large(array: Array) -> bool:
    """Whether an integer in it has no place among those of 64 bits with a sign."""
    return array.dtype == np.uint64 and bool((array >> 63).any())


def _is_in_order(array: Array) -> bool:
    """Whether its axes lie in memory in their own order, the first outermost."""
    strides = [abs(stride) for stride in array.strides]
    return strides == sorted(strides, reverse=True)


def flatten(tree: Any, floats_only: bool = False) -> tuple[Flat, Node]:
    """The leaves of a tree and its structure.

    >>> from chainrule import trees
    >>> flat, structure = trees.flatten({"w": [1.5, 2.5], "n": (3, "tanh")})
    >>> structure
    {'w': [float, float], 'n': (int, 'tanh')}
    >>> flat.floats, flat.ints
    ([1.5, 2.5], [3])
    """
    flat = Flat()
    return flat, flat.add(tree, floats_only)


def unflatten(
    structure: Node,
    leaf: Callable[[Any, Any], Any],
    like: Any = None,
    branch: Callable[[Branch, list[Any], Any], Any] | None = None,
    row: Callable[[int], list[Any]] | None = None,
) -> Any:
    """A tree of this structure, with what ``leaf(node, original)`` makes at each of its leaves.

    ``like`` is a tree of this structure, and gives the originals (otherwise None) and the keys of
    dicts. ``branch(node, items, original)`` makes a container, if not the usual one, and
    ``row(count)`` all items of a list at once, where these are so many of Python's own floats.

    >>> from chainrule import trees
    >>> _, structure = trees.flatten({"w": [1.5, 2.5], "n": (3, "tanh")})
    >>> trees.unflatten(structure, lambda node, _: repr(node))
    {'w': ['float', 'float'], 'n': ('int', "'tanh'")}
    """
    make = Branch.build if branch is None else branch
    return _built(structure, like, leaf, make, row)


def _is_row(node: Branch, original: list[Any]) -> bool:
    """Whether all items of a list are, and were, Python's own floats."""
    is_row = set(map(type, original)) == {float} and node.kinds == {FLOAT}
    return is_row and len(original) == len(node.items)


def _built(
    node: Node,
    original: Any,
    leaf: Callable[..., Any],
    make: Callable[..., Any],
    row: Callable[[int], list[Any]] | None,
) -> Any:
    """A part of the tree. No closure that calls itself: its cycle would hold what was made."""
    if not isinstance(node, Branch):
        return leaf(node, original)
    if row is not None and type(original) is list and _is_row(node, original):
        return make(node, row(len(original)), original)
    originals = repeat(None) if original is None else node.children(original)
    pairs = zip(node.items, originals, strict=original is not None)
    items = [
        _built(n, x, leaf, make, row) if isinstance(n, Branch) else leaf(n, x) for n, x in pairs
    ]
    return make(node, items, original)
