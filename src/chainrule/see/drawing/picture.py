"""What a drawing shows, before anything has a place: boxes and the wires between them.

In goes a topological order with its names; out comes a ``Picture``. Up to ``limit`` nodes, every
node is a box of its own; larger graphs are collapsed first. SVG, dot and Mermaid text are all
written from this one description.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from chainrule.core.backend import Value
from chainrule.core.text import visible
from chainrule.see import names
from chainrule.see.drawing.collapsing import Part, collapse
from chainrule.see.names import NUMBERS, is_constant, short

#: larger graphs are collapsed, into at most COLLAPSED_BOXES boxes
FULL_LIMIT = 100
COLLAPSED_BOXES = 40

Kind = Literal["input", "weight", "data", "constant", "value", "output"]


@dataclass(frozen=True)
class Box:
    """One box: a node, or several that were collapsed."""

    number: int
    kind: Kind
    title: str
    op: str  # the symbol in the circle before the box; "" for a leaf and for a collapsed box
    data: str
    grad: str
    nodes: tuple[int, ...]  # places in the topological order
    copies: int = 1  # how many nodes' numbers data and grad stand for
    description: str = ""

    @property
    def is_number(self) -> bool:
        """Whether its title is its number, which is not written twice."""
        return self.kind in NUMBERS and not self.is_group

    @property
    def is_group(self) -> bool:
        """Whether several nodes were collapsed into it."""
        return len(self.nodes) > 1

    @property
    def size(self) -> str:
        """How much is inside a collapsed box, in words."""
        return _count(len(self.nodes), "node")


@dataclass(frozen=True)
class Wire:
    """A line from a box to the operation that uses it. ``a + a`` has two, in lanes 0 and 1."""

    source: int
    target: int
    operand: int  # which operand of the target; 0 into a collapsed box
    lane: int = 0
    lanes: int = 1
    edges: int = 1  # how many edges of the graph it stands for


@dataclass(frozen=True)
class Picture:
    """Boxes, inputs first, and wires."""

    name: str  # of the Value that is drawn
    boxes: tuple[Box, ...]
    wires: tuple[Wire, ...]
    node_count: int
    edge_count: int

    @property
    def is_collapsed(self) -> bool:
        """Whether some box stands for several nodes."""
        return len(self.boxes) < self.node_count

    @property
    def title(self) -> str:
        """What the picture is of."""
        return f"The graph of {self.name}"

    @property
    def summary(self) -> str:
        """The sizes in words; of a collapsed picture, "1,204 nodes in 37 boxes"."""
        if self.is_collapsed:
            return f"{_count(self.node_count, 'node')} in {_count(len(self.boxes), 'box', 'boxes')}"
        return f"{_count(self.node_count, 'node')}, {_count(self.edge_count, 'edge')}"


def make_picture(
    order: Sequence[Value],
    titles: Sequence[str],
    limit: int = FULL_LIMIT,
    grads: Sequence[float] | None = None,
    kinds: Sequence[names.Kind] | None = None,
) -> Picture:
    """The picture of a topological order: up to ``limit`` nodes, one box per node.

    ``grads`` are shown in the place of each node's own ``.grad``; ``kinds`` tell weights and data
    from other leaves.
    """
    if kinds is None:
        kinds = [_plain_kind(v, name) for v, name in zip(order, titles, strict=True)]
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
    if grads is None:
        grads = [v.grad for v in order]
    if len(order) <= limit:
        parts = [Part(title, (i,), (i,)) for i, title in enumerate(titles)]
    else:
        parts = collapse(order, titles, max(2, min(limit, COLLAPSED_BOXES)), kinds)
        parts.sort(key=lambda part: part.nodes[-1])
    boxes = [
        _node_box(number, order, titles, grads, kinds, *part.nodes)
        if len(part.nodes) == 1
        else _group_box(number, order, grads, part)
        for number, part in enumerate(parts)
    ]
    edge_count = sum(len(v.children) for v in order)
    return Picture(titles[-1], tuple(boxes), tuple(_wires(boxes, order)), len(order), edge_count)


def _plain_kind(v: Value, name: str) -> names.Kind:
    """What can be said of a node without looking at who holds it."""
    if v.children:
        return "operation"
    return "constant" if is_constant(v, name) else "input"


def _node_box(
    number: int,
    order: Sequence[Value],
    titles: Sequence[str],
    grads: Sequence[float],
    kinds: Sequence[names.Kind],
    i: int,
) -> Box:
    v, name = order[i], titles[i]
    data, grad = short(v.data), short(grads[i])
    kind: Kind = "output" if i == len(order) - 1 else "value"
    description = f"{name} = {data}, grad {grad}"
    leaf = kinds[i]
    if leaf != "operation":
        kind = leaf
        if kind in NUMBERS:
            description = f"{kind} {name}, grad {grad}"
        elif kind == "weight":
            description = f"weight {description}"
    return Box(number, kind, name, visible(v.op), data, grad, (i,), 1, description)


def _group_box(number: int, order: Sequence[Value], grads: Sequence[float], part: Part) -> Box:
    kind: Kind = part.leaves or "value"
    if part.nodes[-1] == len(order) - 1:
        kind = "output"
    data = _range([order[i].data for i in part.results])
    grad = _range([grads[i] for i in part.results])
    description = f"{part.title}: {_count(len(part.nodes), 'node')}, data {data}, grad {grad}"
    return Box(number, kind, part.title, "", data, grad, part.nodes, len(part.results), description)


def _wires(boxes: Sequence[Box], order: Sequence[Value]) -> list[Wire]:
    place = {id(v): i for i, v in enumerate(order)}
    box_of = [0] * len(order)
    for box in boxes:
        for i in box.nodes:
            box_of[i] = box.number
    wires: list[Wire] = []
    for box in boxes:
        if box.is_group:
            edges = Counter(box_of[place[id(c)]] for i in box.nodes for c in order[i].children)
            del edges[box.number]
            wires += [Wire(s, box.number, 0, edges=n) for s, n in sorted(edges.items())]
            continue
        sources = [box_of[place[id(c)]] for c in order[box.nodes[0]].children]
        seen: Counter[int] = Counter()
        for operand, source in enumerate(sources):
            lane = seen[source]
            seen[source] += 1
            wires.append(Wire(source, box.number, operand, lane, sources.count(source)))
    return wires


def _range(numbers: Sequence[float]) -> str:
    low, high = short(min(numbers)), short(max(numbers))
    return low if low == high else f"{low} … {high}"


def _count(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"
