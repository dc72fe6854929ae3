"""Objects as plain trees of numbers, texts and Nodes: these can be compared between two worlds."""

from __future__ import annotations

import enum
import functools
import math
import re
import types
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule import Value

CLOSE = 1e-9
ULPS = 1e-15  # where eager and compiled do the same operations
SKIPPED = (
    *(types.ModuleType, types.FunctionType, types.BuiltinFunctionType),
    functools._lru_cache_wrapper,
)
MANY = 10_000  # numbers, of which only a checksum is compared
METHODS = (property, classmethod, staticmethod, types.MemberDescriptorType)
Path = tuple[str, ...]


@dataclass(frozen=True)
class Node:
    """A container: what type it is, and what is in it."""

    label: str
    items: tuple[tuple[str, Any], ...]


def tree(thing: Any, seen: tuple[int, ...] = ()) -> Any:
    """An object as numbers, texts and Nodes: what can be compared between two worlds."""
    if id(thing) in seen:
        return Node("cycle", ())
    inside = (*seen, id(thing))

    def node(label: str, items: Any) -> Node:
        return Node(label, tuple((str(key), tree(x, inside)) for key, x in items))

    if isinstance(thing, Value):
        return Node("Value", (("data", thing.data), ("grad", thing.grad)))
    if isinstance(thing, enum.Enum):
        return repr(thing)
    if thing is None or isinstance(thing, (bool, int, float, str, np.generic)):
        return thing
    if isinstance(thing, (np.ndarray, list, tuple)) and is_long(thing):
        array = np.asarray(thing)
        label = f"{type(thing).__name__} {array.dtype} {array.shape}"
        return Node(label, (("checksum", zlib.crc32(array.tobytes())),))
    if isinstance(thing, np.ndarray):
        label = f"{type(thing).__name__} {thing.dtype} {thing.shape}"
        return node(label, enumerate(thing.ravel().tolist()))
    if isinstance(thing, dict):
        return node(type(thing).__name__, ((repr(key), x) for key, x in thing.items()))
    if isinstance(thing, (list, tuple)):
        return node(type(thing).__name__, enumerate(thing))
    if isinstance(thing, (set, frozenset)):
        return node(type(thing).__name__, enumerate(sorted(thing, key=repr)))
    if isinstance(thing, SKIPPED) or not hasattr(thing, "__dict__"):
        return Node(type(thing).__name__, ())
    if isinstance(thing, type):
        own = {k: x for k, x in vars(thing).items() if not k.startswith("_")}
        plain = ((k, x) for k, x in own.items() if not (callable(x) or isinstance(x, METHODS)))
        return node("class", plain)
    return node(type(thing).__name__, vars(thing).items())


def is_long(thing: Any) -> bool:
    """Whether these are the many numbers of a table."""
    return (thing.size if isinstance(thing, np.ndarray) else len(thing)) > MANY


def numbers_of(tree_: Any) -> Any:
    """A tree without the types of lists and arrays, nested arrays as nested lists."""
    if not isinstance(tree_, Node):
        return tree_
    label = tree_.label
    items = [(key, numbers_of(x)) for key, x in tree_.items]
    if " float64 (" in label or label.startswith("ndarray"):
        shape = [int(n) for n in re.findall(r"\d+", label.rpartition("(")[2])]
        flat = [x for _, x in items]
        for size in reversed(shape[1:]):
            rows = [flat[i : i + size] for i in range(0, len(flat), size)]
            flat = [Node("sequence", tuple((str(k), x) for k, x in enumerate(row))) for row in rows]
        if not shape:
            return flat[0]
        return Node("sequence", tuple((str(i), x) for i, x in enumerate(flat)))
    return Node("sequence" if label in ("list", "tuple") else label, tuple(items))


def first_difference(a: Any, b: Any, exact: bool, path: Path = ()) -> tuple[Path, Any, Any] | None:
    """Where two trees differ, and how; None where they agree."""
    if isinstance(a, Node) and isinstance(b, Node):
        if a.label != b.label or [k for k, _ in a.items] != [k for k, _ in b.items]:
            return path, a, b
        for (key, x), (_, y) in zip(a.items, b.items, strict=True):
            found = first_difference(x, y, exact, (*path, key))
            if found is not None:
                return found
        return None
    # Compiled functions return numbers as Python's floats, which np.float64 is one of.
    if type(a) is not type(b) and {type(a), type(b)} != {float, np.float64}:
        return path, a, b
    if isinstance(a, (float, np.floating)):
        same = a == b or (math.isnan(a) and math.isnan(b))
        if not same:  # max and min add up gradients in another order, also on the tape
            limit = ULPS if exact else CLOSE
            same = abs(a - b) <= limit * max(1.0, abs(a), abs(b))
        return None if same else (path, a, b)
    return None if a == b else (path, a, b)


def short(thing: Any) -> str:
    """A tree for people."""
    if isinstance(thing, Node):
        inside = ", ".join(f"{key}: {short(x)}" for key, x in thing.items)
        text = f"{thing.label}({inside})"
    else:
        text = repr(thing)
    return text if len(text) < 300 else text[:300] + "…"
