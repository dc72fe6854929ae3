"""What trees are like: a ``Node`` for each leaf and each container.

Equal nodes are one object, so that structures are compared by their addresses.
"""

from __future__ import annotations

import enum
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from chainrule.trees.containers import build_record, field_names

Shape = tuple[int, ...]


class Node:
    """What a tree is like, or a part of it.

    Equal nodes are one object, so that a structure of any size is hashed and compared as quickly as
    an address: it is looked up at every call.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()
    holds_floats: bool  #: whether there are numbers in it that are not integers or Values

    def __new__(cls, *fields: Any) -> Self:
        """The node with these fields."""
        key = (cls, *fields)
        known = _nodes.get(key)
        found: Self | None = None if known is None else known()
        return found or _interned(cls, key)

    def _has_floats(self) -> bool:
        return False

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), tuple([getattr(self, name) for name in self.__match_args__])


N = TypeVar("N", bound=Node)
_nodes: dict[tuple[Any, ...], weakref.KeyedRef[Any, Any]] = {}


def _interned(cls: type[N], key: tuple[Any, ...]) -> N:
    """A new node for these fields, or the one that another thread has just made."""
    made = object.__new__(cls)
    for name, value in zip(cls.__match_args__, key[1:], strict=True):
        object.__setattr__(made, name, value)
    object.__setattr__(made, "holds_floats", made._has_floats())
    new = weakref.KeyedRef(made, _forget, key)
    while True:
        known = _nodes.setdefault(key, new)
        found: N | None = known()
        if found is not None:
            return found
        _forget(known)


def _forget(dead: weakref.KeyedRef[Any, Any], nodes: dict[Any, Any] = _nodes) -> None:
    if nodes.get(dead.key) is dead:
        nodes.pop(dead.key, None)


@dataclass_transform(frozen_default=True, eq_default=False)
def node(cls: type[N]) -> type[N]:
    """A frozen dataclass whose instances ``Node`` makes and compares."""
    return dataclass(frozen=True, eq=False, init=False, repr=False)(cls)


@node
class Number(Node):
    """A plain number, or a Value: ``FLOAT``, ``INT`` or ``VALUE``."""

    kind: str

    def _has_floats(self) -> bool:
        return self.kind == "float"

    def __repr__(self) -> str:
        return self.kind


FLOAT, INT, VALUE = Number("float"), Number("int"), Number("value")
#: of arrays of truths, and of integers that wrap around elsewhere than those of 64 bits with a sign
NARROW = {
    np.dtype(name): Number(name)
    for name in ("bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "uint64")
}


@node
class Numbers(Node):
    """An array; one of integers counts as holding floats: as an argument it becomes lists."""

    shape: Shape
    kind: Number  #: FLOAT, INT or one of NARROW, which are integers too

    def _has_floats(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"{self.kind}{list(self.shape)}"


numbers = lru_cache(maxsize=256)(Numbers)  # the quickest way to a node, for the most usual leaf


@node
class Static(Node):
    """Something that is no number: a recording holds for this one only."""

    type: type
    value: Any  #: of an enum the name, and its value in words: that may change

    def __repr__(self) -> str:
        return repr(self.value[0] if issubclass(self.type, enum.Enum) else self.value)


NOTHING = Static(type(None), None)  #: kept: what becomes of a node that is not runs Python code


@node
class Text(Node):
    """A string of which only the length is known: its characters are integers, code points."""

    length: int

    def __repr__(self) -> str:
        return f"str[{self.length}]"


@node
class Truth(Node):
    """A bool of which nothing is known: it is an integer, 0 or 1."""

    def __repr__(self) -> str:
        return "bool"


TRUTH = Truth()


@node
class Opaque(Node):
    """An object that nobody looks into."""

    type: str

    def __repr__(self) -> str:
        return f"<{self.type}>"


@node
class SameValue(Node):
    """A Value that came before."""

    place: int  #: among the floats

    def __repr__(self) -> str:
        return f"same({self.place})"


@node
class Again(Node):
    """A list, dict, dataclass or array that came before."""

    number: int  #: how many of them were complete before it

    def __repr__(self) -> str:
        return f"again({self.number})"


@node
class Branch(Node):
    """A container, and what is in it: see the classes below."""

    items: tuple[Node, ...]

    def _has_floats(self) -> bool:
        return any(item.holds_floats for item in self.kinds)

    @property
    def kinds(self) -> set[Node]:
        """The items, each once: a long list has few that differ."""
        return set(self.items)

    @property
    def is_mutable(self) -> bool:
        """Whether it matters if it is the same one as before."""
        return not isinstance(self, (Tuple, NamedTuple))

    def children(self, tree: Any) -> Iterable[Any]:
        """What is in a tree of this structure."""
        if isinstance(self, Dict):
            tree = tree.values()
        elif isinstance(self, Record):
            tree = [getattr(tree, name) for name in field_names(self.type)]
        elif isinstance(self, Namespace):
            tree = vars(tree).values()
        return tree  # type: ignore[no-any-return]

    def build(self, items: list[Any], like: Any = None) -> Any:
        """A container with these items; its keys are those of ``like``, if there is one."""
        if isinstance(self, Tuple):
            return tuple(items)
        if isinstance(self, NamedTuple):
            return self.type._make(items)
        if isinstance(self, Dict):
            keys = [key for _, key in self.keys] if like is None else like
            kind = OrderedDict if isinstance(self, Ordered) else dict
            return kind(zip(keys, items, strict=True))
        if isinstance(self, Namespace):
            made = object.__new__(self.type) if self.type is not SimpleNamespace else self.type()
            vars(made).update(zip(self.names, items, strict=True))
            return made
        if isinstance(self, Deque):
            return deque(items, self.most)
        if not isinstance(self, Record):
            return items
        return build_record(self.type, items)

    def map(self, function: Callable[[Node], Node]) -> Branch:
        """The same container of other nodes."""
        _, *rest = [getattr(self, name) for name in self.__match_args__]
        return type(self)(tuple([function(item) for item in self.items]), *rest)


@node
class List(Branch):
    """A list, or an array of objects."""

    def __repr__(self) -> str:
        return repr(list(self.items))


@node
class Tuple(Branch):
    """A tuple."""

    def __repr__(self) -> str:
        return repr(self.items)


@node
class NamedTuple(Branch):
    """A named tuple."""

    type: Any

    def __repr__(self) -> str:
        return _record_text(self.type, self.type._fields, self.items)


@node
class Dict(Branch):
    """A dict; the order of its keys counts, and 1 is another key than True."""

    keys: tuple[tuple[Any, Any], ...]  #: what tells a key from others that are equal, and the key

    def __repr__(self) -> str:
        return repr({key: item for (_, key), item in zip(self.keys, self.items, strict=True)})


@node
class Ordered(Dict):
    """An ``OrderedDict``: it compares its order too, and has methods that change it."""

    def __repr__(self) -> str:
        return f"OrderedDict({super().__repr__()})"


@node
class Record(Branch):
    """A dataclass: its fields, however it came by them."""

    type: Any

    def __repr__(self) -> str:
        return _record_text(self.type, field_names(self.type), self.items)


@node
class Namespace(Branch):
    """A ``SimpleNamespace``, or an instance of a class of the user's: its attributes."""

    names: tuple[str, ...]
    type: Any

    def __repr__(self) -> str:
        return _record_text(self.type, self.names, self.items)


@node
class Deque(Branch):
    """A deque; of two lengths it is another one."""

    most: int | None

    def __repr__(self) -> str:
        return f"deque({list(self.items)!r})"


def _record_text(kind: Any, names: Iterable[str], items: Iterable[Node]) -> str:
    words = [f"{name}={item!r}" for name, item in zip(names, items, strict=True)]
    return f"{kind.__name__}({', '.join(words)})"
