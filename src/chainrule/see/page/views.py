"""The pictures of a page: the whole graph, and the inside of every collapsed box.

In go an ``Explanation`` and its ``Picture``; out come views as plain data, the whole graph first. A
box of many alike that do not touch has a view for each of them; those of one shape share their
places. What a box takes from outside stands in its view as a leaf.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from chainrule.core.backend import Value
from chainrule.see.drawing.collapsing import Part, collapse
from chainrule.see.drawing.layout import Ranks, rank_boxes
from chainrule.see.drawing.picture import COLLAPSED_BOXES, Box, Picture, Wire
from chainrule.see.explanation import Explanation, Node
from chainrule.see.page.data import layout_data, runs

#: more nodes than this inside a box are collapsed once more
OPEN_LIMIT = 120


def make_views(explanation: Explanation, picture: Picture) -> list[dict[str, Any]]:
    """Every view; boxes refer to the views of their insides by number."""
    whole = layout_data(rank_boxes(picture))
    if not picture.is_collapsed:
        return [whole]
    opening = _Opening(explanation)
    opening.views.append(whole)
    whole["boxes"] = [
        [box.title, runs(box.nodes), opening.open(box.title, box.nodes)] for box in picture.boxes
    ]
    return opening.views


@dataclass(frozen=True)
class _Stand:
    """What ``collapse`` looks at of a node; one from outside has no children here."""

    children: tuple[_Stand, ...]
    op: str
    data: float
    label: str


class _Opening:
    def __init__(self, explanation: Explanation) -> None:
        self.nodes = explanation.nodes
        self.labels = [v.label for v in explanation.values]
        self.views: list[dict[str, Any]] = []
        self._alike: dict[tuple[tuple[int, int], ...], int] = {}  # the first view with these edges

    def open(self, title: str, nodes: Sequence[int]) -> int | None:
        """The number of the view that shows the inside of a box, or None where there is none."""
        if len(nodes) == 1 or not any(self.nodes[i].children for i in nodes):
            return None
        parts = list(_connected(self.nodes, nodes))
        first = len(self.views)
        self.views += [{} for _ in parts]
        for number, part in enumerate(parts, first):
            view = self.views[number]
            view["title"] = title
            if len(parts) > 1:
                view["twins"] = [first, len(parts)]
            self._fill(view, number, part)
        return first

    def _fill(self, view: dict[str, Any], number: int, inside: Sequence[int]) -> None:
        within = set(inside)
        outside = sorted({c for i in inside for c in self.nodes[i].children} - within)
        if len(inside) + len(outside) <= OPEN_LIMIT:
            view["inside"], view["outside"] = runs(inside), runs(outside)
            boxes: list[tuple[int, ...]] = [(i,) for i in (*outside, *inside)]
        else:
            boxes = self._collapse(view, inside, outside)
        self._place(view, number, self._edges(boxes, within))

    def _collapse(
        self, view: dict[str, Any], inside: Sequence[int], outside: Sequence[int]
    ) -> list[tuple[int, ...]]:
        order = sorted((*inside, *outside))
        within = set(inside)
        stands: dict[int, _Stand] = {}
        for i in order:
            node = self.nodes[i]
            if i in within:
                children = tuple(stands[c] for c in node.children)
                stands[i] = _Stand(children, node.op, node.data, self.labels[i])
            else:
                stands[i] = _Stand((), "", node.data, node.name)
        names = [self.nodes[i].name for i in order]
        values = cast("list[Value]", [stands[i] for i in order])
        parts: list[Part] = []
        for part in collapse(values, names, COLLAPSED_BOXES):
            parts += _apart(part, [order[i] in within for i in range(len(order))])
        parts.sort(key=lambda part: part.nodes[-1])
        view["boxes"] = []
        found = []
        for part in parts:
            nodes = tuple(order[i] for i in part.nodes)
            is_outside = nodes[0] not in within
            deeper = (
                None if is_outside or len(nodes) == len(inside) else self.open(part.title, nodes)
            )
            title = self.nodes[nodes[0]].name if len(nodes) == 1 else part.title
            view["boxes"].append([title, runs(nodes), deeper, *([1] if is_outside else [])])
            found.append(nodes)
        return found

    def _edges(
        self, boxes: Sequence[tuple[int, ...]], within: set[int]
    ) -> tuple[tuple[int, int], ...]:
        box_of = {i: number for number, nodes in enumerate(boxes) for i in nodes}
        return tuple(
            sorted(
                {
                    (box_of[c], box_of[i])
                    for i in within
                    for c in self.nodes[i].children
                    if box_of[c] != box_of[i]
                }
            )
        )

    def _place(self, view: dict[str, Any], number: int, edges: tuple[tuple[int, int], ...]) -> None:
        like = self._alike.setdefault(edges, number)
        if like != number:
            view["like"] = like
            return
        count = 1 + max((n for edge in edges for n in edge), default=0)
        view |= layout_data(_ranks(count, edges))


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> Ranks:
    boxes = tuple(Box(n, "value", "", "", "", "", (n,)) for n in range(count))
    operands = [0] * count
    wires = []
    for source, target in edges:
        wires.append(Wire(source, target, operands[target]))
        operands[target] += 1
    return rank_boxes(Picture("", boxes, tuple(wires), count, len(wires)))


def _connected(nodes: Sequence[Node], among: Sequence[int]) -> Iterator[list[int]]:
    """The parts of some nodes that no edge between them connects, in order."""
    leader = {i: i for i in among}

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    for i in among:
        for child in nodes[i].children:
            if child in leader:
                leader[find(child)] = find(i)
    parts: dict[int, list[int]] = {}
    for i in among:
        parts.setdefault(find(i), []).append(i)
    yield from parts.values()


def _apart(part: Part, is_inside: Sequence[bool]) -> list[Part]:
    """A part that mixes what is inside with what is outside, as two."""
    inner = tuple(i for i in part.nodes if is_inside[i])
    outer = tuple(i for i in part.nodes if not is_inside[i])
    if not inner or not outer:
        return [part]
    return [Part(part.title, inner, inner), Part(f"{len(outer):,} from outside", outer, outer)]
