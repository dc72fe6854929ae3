"""Short, stable names for the nodes of a graph, and numbers short enough for a table.

A node is called by its label; else a weight has the name that its model gives it; else the variable
that holds it where the user asked; else a leaf is called by its number, and an operation is v1, v2,
... in topological order. The kind of a leaf tells weights, data and literals apart.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, TypeVar

from chainrule.core.backend import Value
from chainrule.core.text import visible
from chainrule.see.holders import Held, held_by, held_in

_LONGEST_NAME = 28
_LONGEST_PATH = 48  # of a weight, layers.0.attention.output[12,15]
_LISTED = 40  # characters of a list before its middle is left out
_SMALL = 60  # nodes; in a formula of this size an unnamed number was written there
_PLAIN = re.compile(r"[^\W\d][\w#.,\[\]'…]*")

#: input: a leaf with a label or a variable's name, or one of many of which nothing is known;
#: weight: it lies in a model; data: a number from outside; constant: written in the formula
Kind = Literal["input", "weight", "data", "constant", "operation"]
#: the kinds of leaves that are called by their number
NUMBERS = ("constant", "data")

T = TypeVar("T")


@dataclass(frozen=True)
class Naming:
    """What the nodes of a topological order are called, and what each of them is."""

    names: list[str]
    kinds: list[Kind]


def name_nodes(order: Sequence[Value], frame: FrameType | None = None) -> list[str]:
    """A name for each node of a topological order; ``frame`` is searched for variables.

    Names are printable and differ from one another, except that constants are called by their
    number.
    """
    return naming(order, frame).names


def naming(order: Sequence[Value], frame: FrameType | None = None) -> Naming:
    """Names and kinds for the nodes of a topological order."""
    wanted = _unlabelled(order)
    return _named(order, held_by(frame, wanted) if frame is not None and wanted else Held())


def naming_by(order: Sequence[Value], model: Any) -> Naming:
    """The same where a model, and nothing else, gives the names of its weights."""
    return _named(order, held_in(model, _unlabelled(order)))


def _unlabelled(order: Sequence[Value]) -> set[int]:
    return {id(v) for v in order if not v.label}


def _named(order: Sequence[Value], held: Held) -> Naming:
    leaves = {id(v) for v in order if not v.children}
    weights = {place: name for place, name in held.weights.items() if place in leaves}
    known = held.variables | weights
    wanted = [
        printable(
            v.label or known.get(id(v), ""), _LONGEST_PATH if id(v) in weights else _LONGEST_NAME
        )
        for v in order
    ]
    names = _distinct(order, wanted)
    return Naming(names, _kinds(order, names, weights, held.numbers))


def _distinct(order: Sequence[Value], names: list[str]) -> list[str]:
    """The names wanted, made different; numbers and v1, v2, ... for the nodes without one."""
    taken = set(names)
    seen: Counter[str] = Counter()
    number = 0
    for i, (v, name) in enumerate(zip(order, names, strict=True)):
        if not name and not v.children:
            names[i] = short(v.data)
            continue
        if name:
            seen[name] += 1
            if seen[name] == 1:
                continue
        while not name or name in taken:
            if names[i]:
                name = f"{names[i]}#{seen[names[i]]}"
                seen[names[i]] += name in taken
            else:
                number += 1
                name = f"v{number}"
        names[i] = name
        taken.add(name)
    return names


def _kinds(
    order: Sequence[Value], names: Sequence[str], weights: dict[int, str], numbers: set[float]
) -> list[Kind]:
    """What each node is; of an unnamed leaf, what its number and its use make it."""
    beside_weights: set[int] = set()
    for v in order:
        children = v.children
        if len(children) == 2 and v.op == "*":
            first, second = map(id, children)
            if second in weights:
                beside_weights.add(first)
            if first in weights:
                beside_weights.add(second)

    def kind(v: Value, name: str) -> Kind:
        if v.children:
            return "operation"
        if id(v) in weights:
            return "weight"
        if not is_constant(v, name):
            return "input"
        if id(v) in beside_weights or (v.data in numbers and len(repr(v.data)) > 6):
            return "data"
        if len(order) <= _SMALL or id(v) in literals:
            return "constant"
        return "input"

    literals = literal_leaves(order, names) if len(order) > _SMALL else set()
    return [kind(v, name) for v, name in zip(order, names, strict=True)]


def literal_leaves(order: Sequence[Value], names: Sequence[str]) -> set[int]:
    """The ``id`` of leaves that look like numbers written in a formula.

    They are unnamed, used once, and round or repeated. Nothing else tells the -1 of ``-x`` from a
    weight, and weights are neither.
    """
    uses = Counter(id(c) for v in order for c in v.children)
    plain = [v for v, name in zip(order, names, strict=True) if is_constant(v, name)]
    count = Counter(v.data for v in plain)
    return {id(v) for v in plain if uses[id(v)] == 1 and (count[v.data] > 1 or v.data.is_integer())}


def is_constant(v: Value, name: str) -> bool:
    """Whether a node is a leaf that nobody named."""
    return not v.children and not v.label and name == short(v.data)


def printable(text: str, longest: int = _LONGEST_NAME) -> str:
    """``text`` on one line of visible characters, the middle of a long one left out."""
    if len(text) > 4 * longest:  # before the work of escaping it
        text = text[: 2 * longest] + text[-2 * longest :]
    return elide(visible(text), longest)


def elide(text: str, longest: int) -> str:
    """``text`` with its middle replaced by an ellipsis where it is too long."""
    if len(text) <= longest:
        return text
    half = (longest - 1) // 2
    return f"{text[: longest - 1 - half]}…{text[len(text) - half :]}"


def quoted(name: str) -> str:
    """A name that can stand inside a formula: ``(x1*w1)`` where it is more than one word."""
    return name if _PLAIN.fullmatch(name) else f"({name})"


def attribute(name: str) -> str:
    """``a.grad``, or ``(x1*w1).grad``."""
    return f"{quoted(name)}.grad"


def bracketed(x: float) -> str:
    """A number as a right operand: ``3.0``, ``(-3.0)``."""
    return f"({short(x)})" if short(x).startswith("-") else short(x)


def product(local_grad: float, grad: float, amount: float) -> str:
    """One contribution: ``3.0 × (-2.0) = -6.0``; a zero passes nothing on, not even of inf."""
    rule = "" if math.isfinite(grad) or local_grad else " (zero passes nothing on)"
    return f"{short(local_grad)} × {bracketed(grad)} = {short(amount)}{rule}"


def short(x: float) -> str:
    """A number as in the seeds' tables, five digits unless more fit: ``4.0``, ``0.70711``."""
    if not math.isfinite(x):
        return repr(x)
    exact = repr(x)
    if len(exact) <= 7:
        return exact
    rounded = f"{x:.5g}"
    return rounded if any(c in rounded for c in ".e") else f"{rounded}.0"


def compact(x: float) -> str:
    """The same without a useless ``.0``: ``6``, ``0.70711``."""
    return short(x).removesuffix(".0") if abs(x) < 1e16 else short(x)


def counted(number: int, noun: str) -> str:
    """``1 node``, ``2,000 nodes``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listing(items: Sequence[T], write: Callable[[T], str], longest: int = _LISTED) -> str:
    """``[a, b, c]``, or ``[a, b, … 20 more …, y, z]`` where that would be too long."""
    if len(items) <= longest:
        whole = ", ".join(map(write, items))
        if len(whole) <= longest or len(items) <= 5:
            return f"[{whole}]"
    ends = [*map(write, items[:2]), f"… {len(items) - 4:,} more …", *map(write, items[-2:])]
    return f"[{', '.join(ends)}]"


def chain(items: Sequence[str], link: str, longest: int = 34) -> str:
    """``a → b → c``, or ``a → b → … → y → z`` where that would be too long."""
    if len(items) <= longest:
        whole = link.join(items)
        if len(whole) <= longest or len(items) <= 4:
            return whole
    return link.join([*items[:2], "…", *items[-2:]])
