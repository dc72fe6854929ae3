"""A call's arguments, taken apart.

In: the arguments as the user gave them. Out: a ``Call``: their structure as a hashable key, the
numbers in one row, the integers in another, and the Values among them; and the arguments again, as
the recorded function sees them. Where the first argument is differentiated its ints are floats.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.core import errors
from chainrule.core.backend import Value

Floats = npt.NDArray[np.float64]


@dataclass(eq=False)
class Call:
    """One call's arguments: ``key`` is equal for calls that one recording may serve."""

    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    floats: list[Any] = field(default_factory=list)  # numbers, arrays and Values, in order
    sizes: list[int] = field(default_factory=list)
    ints: list[int] = field(default_factory=list)
    statics: list[Any] = field(default_factory=list)
    structure: Any = None
    first: int = 0  # how many of the floats are the first argument's
    key: Any = None
    refused: str | None = None  # why such arguments cannot be recorded
    failed: str | None = None  # an error that recording it raised
    copied: bool = False  # its Values are copies of the user's
    _place: dict[int, int] = field(default_factory=dict)  # of each Value
    _containers: dict[int, tuple[int, Any]] = field(default_factory=dict)  # number and structure
    _taken: int = 0  # how many containers
    _kept: list[Any] = field(default_factory=list)  # so that no id is used twice

    @property
    def values(self) -> list[Value]:
        """The Values among the arguments, in order, each once."""
        return [x for x in self.floats if isinstance(x, Value)]

    @property
    def size(self) -> int:
        """How many floats there are in all."""
        return sum(self.sizes)

    def nudged(self, nudge: Callable[[float], float], captured: Container[int]) -> Call:
        """The same call with its numbers a little off.

        Values are copied, so that nobody else sees it, but for the captured ones (their ids): a
        function that reaches them by another way too must find the same ones.
        """
        moved: list[Any] = []
        for x in self.floats:
            if isinstance(x, np.ndarray):
                flat = [nudge(float(item)) for item in x.ravel()]
                moved.append(np.array(flat, np.float64).reshape(x.shape))
            elif not isinstance(x, Value):
                moved.append(nudge(x))
            elif id(x) in captured:
                moved.append(x)
            else:
                moved.append(Value(nudge(x._number), label=x.label))
        return replace(self, floats=moved, copied=True)

    def write(self, out: Floats) -> None:
        """Write every float of the call into ``out``."""
        at = 0
        for x, size in zip(self.floats, self.sizes, strict=True):
            if isinstance(x, np.ndarray):
                out[at : at + size] = x.ravel()
            else:
                out[at] = x._number if isinstance(x, Value) else x
            at += size


def take_apart(arguments: tuple[Any, ...], keywords: dict[str, Any], differentiate: bool) -> Call:
    """The arguments of one call; ``differentiate``: by the first of them."""
    call = Call(arguments, keywords)
    structures = []
    for i, x in enumerate(arguments):
        structures.append(_take(x, call, differentiate and i == 0))
        if i == 0:
            call.first = call.size
    named = {name: _take(x, call, False) for name, x in keywords.items()}
    call.structure = (tuple(structures), named)
    call.key = (differentiate, tuple(structures), tuple(named.items()), tuple(call.statics))
    return call


def _take(x: Any, call: Call, floats_only: bool) -> Any:
    """Put what is in ``x`` into the call and return its structure, a nest of tuples."""
    kind = type(x)
    if kind is np.ndarray:
        return _take_array(x, call, floats_only)
    if kind is float:
        call.floats.append(x)
        call.sizes.append(1)
        return "float"
    if kind is list or kind is dict:
        return _take_container(x, call, floats_only)
    if isinstance(x, Value):
        if floats_only and kind is Value:  # one Value in two places is two arguments
            call.floats.append(x._number)
            call.sizes.append(1)
            if x.label:
                call.statics.append(("label", x.label))
            return "float"
        if kind is not Value:
            call.refused = f"an argument of type {kind.__name__} cannot be followed"
        place = call._place.setdefault(id(x), len(call.floats))
        if place < len(call.floats):
            return ("same", place)
        call.floats.append(x)
        call.sizes.append(1)
        return "value"
    if isinstance(x, (bool, np.bool_)) or x is None or isinstance(x, (str, bytes)):
        call.statics.append((type(x).__name__, x))
        return "static"
    if isinstance(x, enum.Enum):
        call.statics.append((kind, x.name))
        return "static"
    if isinstance(x, int) and kind is not int:
        call.refused = f"an argument of type {kind.__name__} cannot be followed"
        return ("object", kind.__name__)
    if isinstance(x, (int, np.integer)) and not floats_only:
        call.ints.append(int(x))
        return "int"
    if errors.is_real(x):
        call.floats.append(float(x))
        call.sizes.append(1)
        return "float"
    if isinstance(x, np.ndarray):
        return _take_array(x, call, floats_only)
    if kind is tuple:
        return ("tuple", tuple([_take(item, call, floats_only) for item in x]))
    if isinstance(x, tuple) and hasattr(type(x), "_make"):
        return (type(x), tuple([_take(item, call, floats_only) for item in x]))
    call.refused = f"an argument of type {type(x).__name__} cannot be followed"
    return ("object", type(x).__name__)


def _take_container(x: Any, call: Call, floats_only: bool) -> Any:
    """A list or dict; one that comes again is the same one, unless it gets new Values each time."""
    number, structure = call._containers.get(id(x), (-1, "float"))
    if not floats_only and not _holds_floats(structure):
        return ("again", number)
    if type(x) is dict:
        items = [((type(key), key), _take(item, call, floats_only)) for key, item in x.items()]
        structure = ("dict", tuple(items))
    elif x and not floats_only and set(map(type, x)) == {int}:
        call.ints.extend(x)
        structure = ("list", ("int",) * len(x))
    else:
        structure = ("list", tuple([_take(item, call, floats_only) for item in x]))
    call._containers[id(x)] = (call._taken, structure)
    call._taken += 1
    return structure


def _take_array(x: npt.NDArray[Any], call: Call, floats_only: bool) -> Any:
    if x.dtype == object:
        call._kept.append(x.tolist())
        return _take(call._kept[-1], call, floats_only)
    if x.dtype.kind in "iu" and not floats_only:
        call.ints.extend(x.ravel().tolist())
        return ("ints", x.shape)
    if x.dtype.kind not in "fiu":
        raise TypeError(f"an array argument holds real numbers, not {x.dtype}")
    call.floats.append(x)
    call.sizes.append(x.size)
    return ("floats", x.shape)


@dataclass
class Rebuilt:
    """The arguments as the function sees them, and the lists that were made for it."""

    arguments: list[Any]
    keywords: dict[str, Any]
    lists: list[tuple[list[Any], tuple[Any, ...]]]
    dicts: list[tuple[dict[Any, Any], dict[Any, Any]]]

    def changed(self) -> bool:
        """Whether the function changed a list or dict it was passed."""
        return any(
            len(items) != len(before) or any(a is not b for a, b in zip(items, before, strict=True))
            for items, before in self.lists
        ) or any(
            list(now) != list(before) or any(now[key] is not before[key] for key in before)
            for now, before in self.dicts
        )


def rebuild(
    call: Call,
    leaf: Callable[[Any], Any],
    index: Callable[[int], Any],
    keep: bool = False,
) -> Rebuilt:
    """The arguments again: arrays as nested lists, a stand-in for each number.

    ``leaf`` makes what stands for the next float (a Value passes through it too), ``index`` what
    stands for the next integer. ``keep``: containers that hold no floats are the caller's own.
    """
    keep = keep and not call.copied
    numbers = iter(call.floats)
    containers: list[Any] = []  # the lists and dicts, for one that comes again
    made: list[Any] = []  # what stands for each float, for a Value that comes again
    lists: list[tuple[list[Any], tuple[Any, ...]]] = []
    dicts: list[tuple[dict[Any, Any], dict[Any, Any]]] = []

    def listed(items: list[Any]) -> list[Any]:
        lists.append((items, tuple(items)))
        return items

    def nested(flat: list[Any], shape: tuple[int, ...], make: Callable[[Any], Any]) -> Any:
        items = [make(x) for x in flat]
        for size in reversed(shape[1:]):
            rows = len(items) // size if size else int(np.prod(shape[:-1]))
            items = [listed(items[i * size : (i + 1) * size]) for i in range(rows)]
        return listed(items) if shape else items[0]

    def build(structure: Any, original: Any) -> Any:
        if structure in ("value", "float"):
            made.append(leaf(next(numbers)))
            if structure == "float" and isinstance(original, Value):
                made[-1].label = original.label
            return made[-1]
        if structure == "int":
            return index(int(original))
        if structure == "static":
            return original
        kind, parts = structure
        if kind == "same":
            return made[parts]
        if kind == "object":
            return original
        if kind == "again":
            return containers[parts]
        if keep and not _holds_floats(structure):
            for part, item in _parts(structure, original):
                build(part, item)  # Values still pass through leaf
            if kind in ("list", "dict"):
                containers.append(original)
            return original
        if kind == "floats":
            made.append(None)
            return nested(next(numbers).ravel().astype(float).tolist(), parts, leaf)
        if kind == "ints":
            return nested(original.ravel().tolist(), parts, index)
        if kind == "dict":
            items_ = {key: build(part, original[key]) for (_, key), part in parts}
            dicts.append((items_, dict(items_)))
            containers.append(items_)
            return items_
        items = [build(part, item) for part, item in zip(parts, original, strict=True)]
        if isinstance(kind, type):
            return kind._make(items)  # type: ignore[attr-defined]
        if kind == "tuple":
            return tuple(items)
        containers.append(items)
        return listed(items)

    structures, named = call.structure
    pairs = zip(structures, call.arguments, strict=True)
    arguments = [build(part, x) for part, x in pairs]
    keywords = {name: build(part, call.keywords[name]) for name, part in named.items()}
    return Rebuilt(arguments, keywords, lists, dicts)


def _parts(structure: Any, original: Any) -> list[tuple[Any, Any]]:
    """A container's parts with what is in them."""
    kind, parts = structure
    if kind == "dict":
        return [(part, original[key]) for (_, key), part in parts]
    return [] if kind == "ints" else list(zip(parts, original, strict=True))


def _holds_floats(structure: Any) -> bool:
    """Whether a container holds numbers that must become Values, or arrays."""
    if isinstance(structure, str):
        return structure == "float"
    kind, parts = structure
    if kind in ("floats", "ints"):
        return True
    if kind in ("same", "again", "object"):
        return False
    return any(_holds_floats(part[1] if kind == "dict" else part) for part in parts)


def as_float(i: int) -> float:
    """An integer argument as a number; nan where it is beyond floats, and so unusable as one."""
    try:
        return float(i)
    except OverflowError:
        return math.nan


def like_first(call: Call, original: Any, gradient: Floats) -> Any:
    """The gradient of the first argument, in its own structure."""
    place = 0

    def build(structure: Any, original: Any) -> Any:
        nonlocal place
        if structure in ("value", "float"):
            place += 1
            return float(gradient[place - 1])
        if structure == "static":
            return original
        kind, parts = structure
        if kind == "same":  # a Value of a class of the user's own
            return 0.0  # the whole gradient stands where it came first
        if kind == "object":
            return original
        if kind == "floats":
            size = math.prod(parts)
            place += size
            return gradient[place - size : place].reshape(parts).copy()
        if kind == "dict":
            return {key: build(part, original[key]) for (_, key), part in parts}
        items = [build(part, item) for part, item in zip(parts, original, strict=True)]
        if isinstance(kind, type):
            return kind._make(items)  # type: ignore[attr-defined]
        return tuple(items) if kind == "tuple" else items

    return build(call.structure[0][0], original)
