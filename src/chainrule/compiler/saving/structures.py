"""The structure of a call's arguments as text, by which a loaded function finds its recordings.

In: the key of a call. Out: the same text for calls that one recording may serve, in any process.
Named tuples, dataclasses and enums are known by their name and fields, not by the module they are
from: they are only looked into where their fields are all there is to them. No class is ever
imported or made from a file.
"""

from __future__ import annotations

import datetime
import enum
import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Texts
from chainrule.compiler.lift.alignment import Layout
from chainrule.compiler.saving.plain import SaveError, encode
from chainrule.trees import (
    FLOAT,
    INT,
    NARROW,
    VALUE,
    Again,
    Branch,
    Deque,
    Dict,
    NamedTuple,
    Namespace,
    Node,
    Number,
    Numbers,
    Ordered,
    Record,
    SameValue,
    Static,
    Text,
    Truth,
    field_names,
)

_TEXT, _TRUTH, _ARRAY = "text", "truth", "array"
_NARROW = frozenset(NARROW.values())
_NARROW_WORDS = frozenset(number.kind for number in _NARROW)
SHOWN = 200  # characters of an argument in a message


def portable(key: Any, marks: Sequence[Any]) -> str:
    """The key of a call, and what its recordings take for granted of the Values passed, as text."""
    differentiate, structures, named, others = key
    words = [
        bool(differentiate),
        [_node(node) for node in structures],
        [[name, _node(node)] for name, node in named],
        [encode(x, "a label") for x in others],
        [encode(x, "a label") for x in marks],
    ]
    return json.dumps(words, separators=(",", ":"))


def layout_of(key: Any) -> Layout:
    """Where the numbers of calls with this key are among the inputs of a recording."""
    _, structures, named, _ = key
    sizes: list[int] = []
    integers, firsts = 0, [0]
    for part in (*structures, *[node for _, node in named]):
        for leaf in _leaves(part):
            size = math.prod(leaf.shape) if isinstance(leaf, Numbers) else 1
            kind = leaf.kind if isinstance(leaf, Numbers) else leaf
            if isinstance(leaf, Text):
                size = leaf.length
            if kind is INT or isinstance(leaf, Text | Truth) or kind in _NARROW:
                integers += size
            elif kind is FLOAT or kind is VALUE:
                sizes.append(size)
        firsts.append(sum(sizes))
    return Layout(firsts[1] if structures else 0, tuple(sizes), integers)


def traced_texts(key: str) -> Texts:
    """The arguments of calls with this key, as text, whose strings are integers."""
    try:
        _, structures, named, *_ = json.loads(key)
        parts = [*enumerate(structures), *[(name, node) for name, node in named]]
    except (RecursionError, TypeError, ValueError):
        return frozenset()  # no call has such a key
    return frozenset([place for place, node in parts if _holds_text(node)])


def _holds_text(x: Any) -> bool:
    if not isinstance(x, list):
        return False
    is_text = x[:1] in ([_TEXT], [_TRUTH]) or (x[:1] == [_ARRAY] and x[-1] in _NARROW_WORDS)
    return is_text or any(map(_holds_text, x))


def passes_values(key: Any) -> bool:
    """Whether there are Values among the arguments."""
    parts = (*key[1], *[node for _, node in key[2]])
    return any(leaf is VALUE for part in parts for leaf in _leaves(part))


def _leaves(node: Node) -> Iterator[Node]:
    if not isinstance(node, Branch):
        yield node
    else:
        for item in node.items:
            yield from _leaves(item)


def _node(node: Node) -> Any:
    match node:
        case Number(kind):
            return kind
        case Numbers(shape, kind):
            return [_ARRAY, list(shape), kind.kind]
        case Static(kind, value):
            return ["static", kind.__qualname__, _static(kind, value)]
        case Text(length):
            return [_TEXT, length]
        case Truth():
            return [_TRUTH]
        case SameValue(place):
            return ["same", place]
        case Again(number):
            return ["again", number]
    if not isinstance(node, Branch):
        raise SaveError("an argument is of a type that cannot be followed")
    return [type(node).__name__, *_kind(node), _runs(node.items)]


def _static(kind: type, value: Any) -> Any:
    """What a recording is for only, where it is no number."""
    if issubclass(kind, enum.Enum):
        name, _ = value
        return [name, encode(kind[name].value, "an enum")]
    if issubclass(kind, np.ndarray):
        dtype, shape, content = value
        return [dtype, list(shape), hashlib.sha256(content).hexdigest()]
    if issubclass(kind, datetime.date):
        return value.isoformat()
    if issubclass(kind, datetime.timedelta):
        return [value.days, value.seconds, value.microseconds]
    return encode(value, "an argument")


def _kind(node: Branch) -> list[Any]:
    """What a container is beside its items."""
    match node:
        case Dict(_, keys):
            return [[_key(key) for _, key in keys]]
        case NamedTuple(_, kind):
            return [kind.__qualname__, list(kind._fields)]
        case Record(_, kind):
            return [kind.__qualname__, field_names(kind)]
        case Namespace(_, names, _):
            return [list(names)]
        case Deque(_, most):
            return [most]
    return []


def _key(key: Any) -> Any:
    if isinstance(key, enum.Enum):
        return ["enum", type(key).__qualname__, key.name, encode(key.value, "an enum")]
    return encode(key, "a key of a dict")


def _runs(nodes: Sequence[Node]) -> list[Any]:
    """Items, and how often each comes in a row."""
    return [[len([*group]), _node(node)] for node, group in itertools.groupby(nodes)]


# --- for people -----------------------------------------------------------------------------------


def words_of(key: Any) -> list[str]:
    """How a call is made, and each of its arguments, types in the place of numbers."""
    differentiate, structures, named, others = key
    words = [*map(_words, structures), *[f"{name}={_words(node)}" for name, node in named]]
    if others:  # numbers of numpy's own types, or labels of Values
        words.append(f"of types {', '.join(dict.fromkeys(repr(word) for _, word in others))}")
    words.insert(0, "value_and_grad" if differentiate else "a plain call")
    return [word if len(word) <= SHOWN else word[: SHOWN - 1] + "…" for word in words]


def _words(node: Node) -> str:
    if not isinstance(node, Branch):
        if isinstance(node, Static) and issubclass(node.type, np.ndarray):
            return f"this array of {node.value[0]}"
        return repr(node)
    inside = []
    for item, group in itertools.groupby(node.items):
        number = len([*group])
        inside.append(_words(item) + (f" × {number}" if number > 1 else ""))
    match node:
        case Dict(items, keys):
            pairs = zip(keys, items, strict=True)
            text = "{" + ", ".join(f"{key!r}: {_words(item)}" for (_, key), item in pairs) + "}"
            return f"OrderedDict({text})" if isinstance(node, Ordered) else text
        case NamedTuple(items, kind):
            return _record(kind.__name__, kind._fields, items)
        case Record(items, kind):
            return _record(kind.__name__, field_names(kind), items)
        case Namespace(items, names, kind):
            return _record(kind.__name__, names, items)
    text = ", ".join(inside)
    return {"List": f"[{text}]", "Tuple": f"({text})"}.get(type(node).__name__, f"deque({text})")


def _record(name: str, names: Sequence[str], nodes: Sequence[Node]) -> str:
    words = [f"{word}={_words(node)}" for word, node in zip(names, nodes, strict=True)]
    return f"{name}({', '.join(words)})"
