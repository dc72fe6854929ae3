"""A call's arguments, flattened.

In: the arguments as the user gave them. Out: a ``Call``: their structure as a hashable key, the
numbers in one row, the integers in another, and the Values among them; and the arguments again, as
the recorded function sees them. Where the first argument is differentiated its ints are floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from chainrule.core.backend import Value
from chainrule.trees import (
    FLOAT,
    INT,
    VALUE,
    Again,
    Branch,
    Dict,
    Flat,
    Floats,
    List,
    Node,
    Numbers,
    SameValue,
    unflatten,
)


@dataclass(eq=False)
class Call(Flat):
    """One call's arguments: ``key`` is equal for calls that one recording may serve."""

    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)
    structure: tuple[tuple[Node, ...], dict[str, Node]] = ((), {})
    first: int = 0  # how many of the floats are the first argument's
    key: Any = None
    refused: str | None = None  # why such arguments cannot be recorded
    failed: str | None = None  # an error that recording it raised
    copied: bool = False  # its Values are copies of the user's

    opens_dataclasses: ClassVar[bool] = False  # they are refused: their methods are not recorded

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


def flatten_call(arguments: tuple[Any, ...], keywords: dict[str, Any], differentiate: bool) -> Call:
    """The arguments of one call; ``differentiate``: by the first of them."""
    call = Call(arguments=arguments, keywords=keywords)
    structures = []
    for i, x in enumerate(arguments):
        structures.append(call.add(x, differentiate and i == 0))
        if i == 0:
            call.first = call.size
    named = {name: call.add(x) for name, x in keywords.items()}
    call.structure = (tuple(structures), named)
    call.key = (differentiate, call.structure[0], tuple(named.items()), tuple(call.labels))
    if call.opaque is not None:
        call.refused = f"an argument of type {call.opaque} cannot be followed"
    return call


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

    def make(node: Node, original: Any) -> Any:
        if node is FLOAT or node is VALUE:
            made.append(leaf(next(numbers)))
            if node is FLOAT and isinstance(original, Value):
                made[-1].label = original.label
            return made[-1]
        if node is INT:
            return index(int(original))
        if isinstance(node, SameValue):
            return made[node.place]
        if isinstance(node, Again):
            return containers[node.number]
        if not isinstance(node, Numbers):
            return original
        if node.kind is INT:
            return nested(original.ravel().tolist(), node.shape, index)
        made.append(None)
        return nested(next(numbers).ravel().astype(float).tolist(), node.shape, leaf)

    def contain(node: Branch, items: list[Any], original: Any) -> Any:
        if keep and not node.holds_floats:
            built = original
        else:
            built = node.build(items, original)
            if isinstance(node, List):
                listed(built)
            elif isinstance(node, Dict):
                dicts.append((built, dict(built)))
        if node.is_mutable:
            containers.append(built)
        return built

    structures, named = call.structure
    pairs = zip(structures, call.arguments, strict=True)
    arguments = [unflatten(part, make, x, contain) for part, x in pairs]
    keywords = {
        name: unflatten(part, make, call.keywords[name], contain) for name, part in named.items()
    }
    return Rebuilt(arguments, keywords, lists, dicts)


def as_float(i: int) -> float:
    """An integer argument as a number; nan where it is beyond floats, and so unusable as one."""
    try:
        return float(i)
    except OverflowError:
        return math.nan


def like_first(call: Call, original: Any, gradient: Floats) -> Any:
    """The gradient of the first argument, in its own structure."""
    place = 0

    def make(node: Node, original: Any) -> Any:
        nonlocal place
        if node is FLOAT or node is VALUE:
            place += 1
            return float(gradient[place - 1])
        if isinstance(node, Numbers):
            start, place = place, place + math.prod(node.shape)
            return gradient[start:place].reshape(node.shape).copy()
        # A Value of the user's own class: the whole gradient stands where it came first.
        return 0.0 if isinstance(node, SameValue) else original

    return unflatten(call.structure[0][0], make, original)
