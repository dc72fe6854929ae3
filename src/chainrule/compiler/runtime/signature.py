"""The structure of a call's arguments as a row of bytes, as the native engine writes it.

In: arguments and their structure. Out: a ``Signature``, by which the fast path knows calls that one
plan may serve: C's ``passed`` writes the same bytes for such arguments, without making nodes.
"""

from __future__ import annotations

import array
import datetime
import enum
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from chainrule.compiler.capture.objects import has_identity, is_itself
from chainrule.trees import (
    FLOAT,
    INT,
    TRUTH,
    VALUE,
    Branch,
    Deque,
    Dict,
    List,
    NamedTuple,
    Namespace,
    Node,
    Number,
    Numbers,
    Ordered,
    Record,
    Shape,
    Static,
    Text,
    Tuple,
    field_names,
)

# The words of a signature, as in src/native/passed.c.
_FLOAT, _INT, _ARRAY, _FLOATS, _INTS, _LIST, _TUPLE, _DICT, _NUMPY, _STATIC = range(1, 11)
_RECORD, _NAMESPACE, _DEQUE, _INSTANCE, _TEXT, _TRUTH, _NARROW = range(11, 18)
_SINGLE = {False: 0, True: 1, None: 2}
BUILT = (Record, NamedTuple)  # what a first argument may be beside lists and the like
_NOT_FIRST = (Deque, Namespace, Ordered)  # what nothing is differentiated by
_KINDS: dict[type[Node], int] = {List: _LIST, Tuple: _TUPLE, Dict: _DICT}


@dataclass(frozen=True, eq=False)
class Signature:
    """The arguments of a call as the native engine tells them from others."""

    row: bytes
    shapes: tuple[Shape | None, ...]  # of each array of floats, None for a float
    first: int  # how many of these are the first argument's
    keys: list[Any]  # of dicts, and types and objects, whose addresses are in the row


Opened = dict[type, Any]  # how types that are not usual are looked into: see passed.c


def signature(
    structures: Sequence[Node], arguments: Sequence[Any], differentiate: bool, opened: Opened
) -> Signature | None:
    """What C's ``passed`` gives for such arguments, and for no others; None where it gives none.

    Of the first argument the shapes of arrays are left out: a plan looks at them. ``opened`` is
    told of the types that are looked into.
    """
    writer = _Writer(opened)
    writer.put(len(arguments) if differentiate else -1 - len(arguments))
    first = 0
    for k, (structure, x) in enumerate(zip(structures, arguments, strict=True)):
        if not writer.write(structure, x, differentiate and k == 0):
            return None
        writer.end_run()
        first = first if k else len(writer.shapes)
    row = array.array("q", writer.words).tobytes()
    return Signature(row, tuple(writer.shapes), first, writer.keys)


class _Writer:
    """Writes structures as words."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self.words: list[int] = []
        self.shapes: list[Shape | None] = []
        self.keys: list[Any] = []
        self._run: int | None = None  # the word of numbers, where the last is how many of them came

    def put(self, *words: int) -> None:
        self.words += words
        self._run = None

    def end_run(self) -> None:
        self._run = None

    def write(self, node: Node, x: Any, first: bool) -> bool:
        """Write the structure of ``x``; whether that is possible."""
        if isinstance(node, Number) and node is not VALUE:
            is_numpys = type(x) is np.float64 and not first
            self._put_number(node, _NUMPY if is_numpys else _FLOAT if node is FLOAT else _INT)
            return True
        if isinstance(node, Numbers):
            self._put_array(node, first)
            return 0 not in node.shape or (not first and node.kind is FLOAT)
        if isinstance(node, Text):
            self.put(_TEXT, node.length)
            return True
        if node is TRUTH:
            self.put(_TRUTH)
            return True
        if isinstance(node, Static) and not first and node.type in (bool, str, type(None)):
            self.put(_STATIC)
            if node.type is str:
                return self._put_key(node.value)
            self.put(_SINGLE[node.value])
            return True
        if isinstance(node, Static) and not first:
            return self._put_static(node.type, x)
        if not isinstance(node, Branch) or (first and isinstance(node, _NOT_FIRST)):
            return False
        if isinstance(node, NamedTuple) and node.type.__dictoffset__:
            return False  # it may get attributes beside its fields, which C does not see
        if isinstance(node, Record) and not first and has_identity(node.type):
            return False  # ``==`` asks which one it is, and C does not see whether two are one
        keys = self._put_container(node, x)
        parts = list(node.children(x))
        if len(parts) != len(node.items):
            return False  # another thread has changed it since it was flattened
        if not keys and node.kinds == {FLOAT} and set(map(type, parts)) == {float}:
            self._put_floats(len(node.items))
            return True
        for k, (item, part) in enumerate(zip(node.items, parts, strict=True)):
            if keys and not self._put_key(keys[k]):
                return False
            if not self.write(item, part, first):
                return False
        return True

    def _put_static(self, kind: type, x: Any) -> bool:
        """What never changes: an item of an enum, of which there is one, a function, or a date."""
        if issubclass(kind, enum.Enum) or is_itself(x):
            self._opened[kind] = True
            self.keys += [kind, x]
            self.put(_STATIC, id(x))
            return True
        if kind not in (datetime.date, datetime.timedelta):
            return False
        same = self._opened.setdefault(kind, {}).setdefault(x, x)
        self.keys += [kind, same]
        self.put(_STATIC, id(same))
        return True

    def _put_container(self, node: Branch, x: Any) -> list[Any]:
        """The beginning of a container; its keys, where each item has one in front."""
        if isinstance(node, Record | NamedTuple):
            kind = node.type
            names = field_names(kind) if isinstance(node, Record) else kind._fields
            self._opened[kind] = tuple(names)
            self.keys.append(kind)
            self.put(_RECORD, id(kind), len(node.items))
        elif isinstance(node, Namespace) and node.type is not SimpleNamespace:
            self._opened[node.type] = ...
            self.keys.append(node.type)
            self.put(_INSTANCE, id(node.type), _DICT, len(node.items))
            return list(node.names)
        elif isinstance(node, Namespace):
            self._opened[SimpleNamespace] = None
            self.put(_NAMESPACE, _DICT, len(node.items))
            return list(node.names)
        elif isinstance(node, Deque):
            self._opened[deque] = False
            self.put(_DEQUE, -1 if node.most is None else node.most, _LIST, len(node.items))
        elif isinstance(node, Ordered):
            self._opened[OrderedDict] = False
            self.put(_INSTANCE, id(OrderedDict), _DICT, len(node.items))
        else:
            self.put(_KINDS[type(node)], len(node.items))
        return list(x) if isinstance(node, Dict) else []

    def _put_number(self, node: Node, word: int) -> None:
        if node is FLOAT:
            self.shapes.append(None)
        self._put_run(word, 1)

    def _put_floats(self, count: int) -> None:
        """So many of Python's own floats in a row."""
        self.shapes += [None] * count
        self._put_run(_FLOAT, count)

    def _put_run(self, word: int, count: int) -> None:
        if self._run == word:
            self.words[-1] += count
        else:
            self.put(word, count)
        self._run = word

    def _put_key(self, key: Any) -> bool:
        """A string with its text, anything else by its address."""
        if type(key) is not str:
            self.keys.append(key)
            self.put(id(key))
            return True
        try:
            text = key.encode()
        except UnicodeEncodeError:  # half a surrogate pair
            return False
        self.put(-1 - len(text), *array.array("q", text + bytes(-len(text) % 8)))
        return True

    def _put_array(self, node: Numbers, first: bool) -> None:
        if node.kind is FLOAT:
            self.shapes.append(node.shape)
        if first:
            self.put(_ARRAY)
            return
        if node.kind is FLOAT or node.kind is INT:
            self.put(_FLOATS if node.kind is FLOAT else _INTS)
        else:
            dtype = np.dtype(node.kind.kind)
            self.put(_NARROW, ord(dtype.kind), dtype.itemsize)
        self.put(len(node.shape), *node.shape)
