"""Names for the inputs of a compiled function.

In: the structure of a call's arguments, the function, and the Values it captures. Out: the inputs
in order, as named arrays: ``params["W1"]`` of the first argument is ``W1``, another argument has
its parameter's name, a captured Value that of its variable. Nested lists of equal lengths are
arrays.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from chainrule.compiler.capture.captured import CapturedState, Method
from chainrule.core.backend import Value
from chainrule.trees import (
    FLOAT,
    INT,
    Branch,
    Dict,
    List,
    NamedTuple,
    Namespace,
    Node,
    Number,
    Numbers,
    Ordered,
    Record,
    Static,
    Text,
    Truth,
    Tuple,
    children,
    field_names,
)


@dataclass(frozen=True)
class Named:
    """Consecutive inputs under one name."""

    name: str
    shape: tuple[int, ...]
    integers: bool = False
    path: str = field(default="", compare=False)  # Python that reads it from the arguments

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def inputs(
    function: Callable[..., Any],
    structures: Sequence[Node],
    named: Iterable[tuple[str, Node]],
    values: Sequence[Value],
    state: CapturedState | None,
) -> list[Named]:
    """All inputs: the numbers of the arguments, captured Values, the integers of the arguments."""
    passed = arguments(function, structures, named)
    variables = [] if state is None else [(name, x) for _, name, x in state.names]
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), cells or (), strict=False):
        with contextlib.suppress(ValueError):  # an empty cell
            variables.append((name, cell.cell_contents))
    numbers, integers = ([x for x in passed if x.integers is kind] for kind in (False, True))
    return [*numbers, *captured(values, variables), *integers]


def arguments(
    function: Callable[..., Any], structures: Sequence[Node], named: Iterable[tuple[str, Node]]
) -> list[Named]:
    """The arguments, in order."""
    words = [*parameters(function, len(structures)), *[name for name, _ in named]]
    parts = [*structures, *[part for _, part in named]]
    found: list[Named] = []
    for k, (word, part) in enumerate(zip(words, parts, strict=True)):
        mine = _leaves(part, word, word)
        if k == 0:  # W1 rather than params.W1, where nothing else is called so
            short = [x.name.removeprefix(f"{word}.") for x in mine]
            if len({*short, *words[1:]}) == len(short) + len(words) - 1:
                mine = [replace(x, name=name) for x, name in zip(mine, short, strict=True)]
        found += mine
    return found


def parameters(function: Callable[..., Any], count: int) -> list[str]:
    """The names of the first parameters; one with a star gives several."""
    try:
        known = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        known = []
    if isinstance(function, Method):
        known = known[1:]
    words = [p.name for p in known if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    star = next((p.name for p in known if p.kind is p.VAR_POSITIONAL), "argument")
    words += [f"{star}{k}" for k in range(count - len(words))]
    return words[:count]


def _leaves(structure: Node, name: str, path: str) -> list[Named]:
    """What is in one argument, in order."""
    match structure:
        case Number():
            return [Named(name, (), structure is INT, path)]
        case Numbers(shape, kind):
            return [Named(name, shape, kind is not FLOAT, path)]
        case Text(length):
            return [Named(name, (length,), True, path)]
        case Truth():
            return [Named(name, (), True, path)]
        case Dict(items, keys):
            words = [_within(name, key) for _, key in keys]
            parts = zip(items, words, paths(structure, path), strict=True)
            return [x for part in parts for x in _leaves(*part)]
        case Namespace(items, names, _):
            words = [_within(name, key) for key in names]
            parts = zip(items, words, paths(structure, path), strict=True)
            return [x for part in parts for x in _leaves(*part)]
        case List((first, *_) as items) if items.count(first) == len(items):
            inside = _leaves(first, name, path)
            if len(inside) == 1 and inside[0].name == name:
                return [replace(inside[0], shape=(len(items), *inside[0].shape))]
    if not isinstance(structure, Branch):
        return []
    words = [f"{name}[{k}]" for k in range(len(structure.items))]
    parts = zip(structure.items, words, paths(structure, path), strict=True)
    return [x for part in parts for x in _leaves(*part)]


def expectations(structure: Node, path: str) -> list[tuple[str, str]]:
    """What a function depends on besides shapes: Python that reads it, and what it must be.

    How many items each container has that is no array, and what is no number.
    """
    if isinstance(structure, Static):
        is_enum = issubclass(structure.type, enum.Enum)
        return [(f"{path}.name" if is_enum else path, repr(structure))]
    if not isinstance(structure, Branch) or [x.path for x in _leaves(structure, "", path)] == [
        path
    ]:
        return []
    found = []
    if isinstance(structure, Namespace):
        found = [(f"len(vars({path}))", str(len(structure.items)))]
    elif not isinstance(structure, Record):
        found = [(f"len({path})", str(len(structure.items)))]
    inside = zip(structure.items, paths(structure, path), strict=True)
    return [*found, *[pair for part in inside for pair in expectations(*part)]]


def kinds(structure: Node, path: str) -> list[tuple[str, str]]:
    """Where a function may ask for types: Python that tells those of containers, and which.

    ``container_types`` is a helper of the source; see there.
    """
    if isinstance(structure, Numbers) and structure.shape:
        return [(f"container_types({path})", repr(_kind(structure)))]
    if not isinstance(structure, Branch):
        return []
    if [x.path for x in _leaves(structure, "", path)] == [path]:
        return [(f"container_types({path})", repr(_kind(structure)))]
    found = []
    if isinstance(structure, Ordered):
        found = [(f"type({path}).__name__", repr("OrderedDict"))]
    elif isinstance(structure, List | Tuple | Dict):
        found = [(f"type({path}).__name__", repr(type(structure).__name__.lower()))]
    elif isinstance(structure, NamedTuple | Record):
        found = [(f"type({path}).__name__", repr(structure.type.__name__))]
    inside = zip(structure.items, paths(structure, path), strict=True)
    return [*found, *[pair for part in inside for pair in kinds(*part)]]


def _kind(structure: Node) -> str:
    """What ``container_types`` returns for an array, or for nested lists that are one."""
    if isinstance(structure, List):
        return f"list of {_kind(structure.items[0])}"
    return "array" if isinstance(structure, Numbers) and structure.shape else "number"


def paths(structure: Branch, path: str) -> list[str]:
    """Python that reads each item of a container."""
    match structure:
        case Dict(_, keys):
            words = [json.dumps(k, ensure_ascii=False) for _, k in keys if type(k) is str]
            if len(words) < len(keys):
                words = [repr(key) for _, key in keys]
            return [f"{path}[{word}]" for word in words]
        case Record(_, kind):
            return [f"{path}.{name}" for name in field_names(kind)]
        case Namespace(_, names, _):
            return [f"{path}.{name}" for name in names]
        case NamedTuple(_, kind):
            return [f"{path}.{name}" for name in kind._fields]
    return [f"{path}[{k}]" for k in range(len(structure.items))]


def _within(name: str, key: Any) -> str:
    return f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]"


def captured(values: Sequence[Value], variables: Iterable[tuple[str, Any]]) -> list[Named]:
    """Captured Values, named after the variables that hold them."""
    place = {id(v): k for k, v in enumerate(values)}
    starts: dict[int, Named] = {}
    for name, x in variables:
        prefix = f"{name}." if isinstance(x, dict) else ""
        for leaf, ids in _held(x, name):
            where = [place.get(i, -1) for i in ids]
            if where and where[0] >= 0 and where == list(range(where[0], where[0] + len(ids))):
                starts.setdefault(where[0], replace(leaf, name=leaf.name.removeprefix(prefix)))
    found: list[Named] = []
    at = 0
    while at < len(values):
        found.append(starts.get(at) or Named(str(values[at].label or f"v{at}"), ()))
        at += found[-1].size
    return found


def _held(x: Any, name: str, depth: int = 6) -> list[tuple[Named, list[int]]]:
    """The Values in dicts, lists and tuples, by the id of each."""
    if isinstance(x, Value):
        return [(Named(name, ()), [id(x)])]
    if depth == 0:
        return []
    inside = [_held(item, _within(name, key), depth - 1) for key, item in children(x) or ()]
    shapes = {tuple([leaf.shape for leaf, _ in leaves]) for leaves in inside}
    if isinstance(x, list) and len(shapes) == 1 and len(inside[0]) == 1:
        ids = [i for leaves in inside for i in leaves[0][1]]
        return [(Named(name, (len(x), *inside[0][0][0].shape)), ids)]
    return [leaf for leaves in inside for leaf in leaves]
