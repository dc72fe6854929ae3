"""Short, stable names for the nodes of a graph, and numbers short enough for a table.

A node is called by its label; else by the variable that holds it where the user asked; else a leaf
is a constant, called by its number, and an operation is v1, v2, ... in topological order.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FrameType
from typing import Any, TypeVar

from chainrule.core.backend import Value

_LONGEST_NAME = 28
_MOST_ITEMS = 20_000  # looked at inside the caller's lists and dictionaries
_LISTED = 40  # characters of a list before its middle is left out
_PLAIN = re.compile(r"[^\W\d][\w#.\[\]'…]*")


T = TypeVar("T")


def name_nodes(order: Sequence[Value], frame: FrameType | None = None) -> list[str]:
    """A name for each node of a topological order; ``frame`` is searched for variables.

    Names are printable and differ from one another, except that constants are called by their
    number.
    """
    unlabelled = {id(v) for v in order if not v.label}
    variables = variable_names(unlabelled, frame) if frame is not None and unlabelled else {}
    wanted = [v.label or variables.get(id(v), "") for v in order]
    names = [printable(name) if name else "" for name in wanted]
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


def is_constant(v: Value, name: str) -> bool:
    """Whether a node is a leaf that nobody named."""
    return not v.children and not v.label and name == short(v.data)


def variable_names(wanted: set[int], frame: FrameType) -> dict[int, str]:
    """The frame's variables, ``w[0][1]`` included, that hold wanted objects, by their ``id``."""
    found: dict[int, str] = {}
    budget = _MOST_ITEMS
    for namespace in (frame.f_locals, frame.f_globals):
        holders: list[tuple[str, Any]] = []
        for name, thing in list(namespace.items()):
            if name.startswith("_") or name in ("In", "Out"):  # a notebook's history
                continue
            if isinstance(thing, Value):
                if id(thing) in wanted:
                    found.setdefault(id(thing), name)
            elif isinstance(thing, (list, tuple, dict)):
                holders.append((name, thing))
        for _depth in range(2):
            inner: list[tuple[str, Any]] = []
            for name, holder in holders:
                budget -= len(holder)
                if budget < 0:
                    return found
                for key, thing in _items(holder):
                    if isinstance(thing, Value):
                        if id(thing) in wanted:
                            found.setdefault(id(thing), f"{name}[{key!r}]")
                    elif isinstance(thing, (list, tuple, dict)):
                        inner.append((f"{name}[{key!r}]", thing))
            holders = inner
    return found


def _items(holder: Sequence[Any] | Mapping[Any, Any]) -> Iterable[tuple[Any, Any]]:
    if isinstance(holder, Mapping):
        return [(k, v) for k, v in list(holder.items()) if isinstance(k, (str, int))]
    return enumerate(list(holder))


def printable(text: str, longest: int = _LONGEST_NAME) -> str:
    """``text`` on one line of visible characters, the middle of a long one left out."""
    if len(text) > 4 * longest:  # before the work of escaping it
        text = text[: 2 * longest] + text[-2 * longest :]
    visible = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return elide(visible, longest)


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
