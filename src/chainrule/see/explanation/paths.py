"""One gradient as a sum: every path from the output to a node, and what it contributes.

The derivative is the sum, over all paths, of the product of the local gradients along the path. The
number of paths can be exponential in the size of the graph, so they are counted by dynamic
programming and only some of them are listed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from chainrule.see.explanation.model import Node

#: counts are exact up to here; graphs of a million doublings would need integers of a million bits
MOST_COUNTED = 10**1000
_MOST_EDGES = 1_000_000  # in all listed paths together


@dataclass(frozen=True)
class Path:
    """One way from the output down to the node."""

    nodes: tuple[int, ...]  # the output first
    names: tuple[str, ...]
    local_grads: tuple[float, ...]  # one per edge
    product: float


@dataclass(frozen=True, repr=False)
class Paths:
    """The gradient of one node as a sum over paths: see ``Explanation.paths``."""

    name: str
    root: str
    gradient: float  # what the backward pass gives
    listed: tuple[Path, ...]  # all of them or as many as fit, largest |product| first
    count: int  # how many there are, listed or not; never above MOST_COUNTED

    @property
    def rest(self) -> int:
        """How many paths are not listed."""
        return self.count - len(self.listed)

    @property
    def total(self) -> float:
        """The sum over the listed paths: the gradient, up to rounding, where all are listed."""
        products = [path.product for path in self.listed]
        return math.fsum(products) if all(map(math.isfinite, products)) else sum(products)

    def __str__(self) -> str:
        from chainrule.see.explanation.text import paths_section
        from chainrule.see.tables import as_text

        return as_text(paths_section(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from chainrule.see.explanation.text import paths_section
        from chainrule.see.tables import notebook_html

        return notebook_html(paths_section(self))


def find_paths(nodes: Sequence[Node], target: int, limit: int) -> Paths:
    """The paths from the last node to ``nodes[target]``, at most ``limit`` of them listed."""
    count, best = _count(nodes, target)
    listed: list[Path] = []
    edges = 0
    for path in _largest_first(nodes, target, best) if count else ():
        listed.append(path)
        edges += len(path.local_grads)
        if len(listed) >= limit or edges + len(path.local_grads) > _MOST_EDGES:
            break
    return Paths(nodes[target].name, nodes[-1].name, nodes[target].grad, tuple(listed), count)


def _count(nodes: Sequence[Node], target: int) -> tuple[int, list[float]]:
    """How many paths lead to the target, and per node the largest |product| below it (-1: none)."""
    counts = [0] * len(nodes)
    best = [-1.0] * len(nodes)
    counts[target], best[target] = 1, 1.0
    for node in nodes[target + 1 :]:
        total = 0
        largest = -1.0
        for child, local_grad in zip(node.children, node.local_grads, strict=True):
            if counts[child]:
                total += counts[child]
                largest = max(largest, _size(local_grad, best[child]))
        counts[node.index] = min(total, MOST_COUNTED)
        best[node.index] = largest
    return counts[-1], best


class _Edge(NamedTuple):
    child: int
    local_grad: float
    size: float  # the largest |product| of a path that goes on from here


class _Detour(NamedTuple):
    """A path not taken yet: like another for a while, then an edge of that rank, then the best."""

    rank_by: tuple[float, int]  # largest product first, then in the order of discovery
    steps: list[_Edge]
    kept: int
    rank: int


def _largest_first(nodes: Sequence[Node], target: int, best: list[float]) -> Iterator[Path]:
    """Every path once, by |product|. Each path found offers its detours; a heap picks the next."""
    root = len(nodes) - 1
    sorted_edges: dict[int, list[_Edge]] = {}

    def edges(i: int) -> list[_Edge]:
        if i == target:
            return []
        if i not in sorted_edges:
            pairs = zip(nodes[i].children, nodes[i].local_grads, strict=True)
            useful = [_Edge(c, g, _size(g, best[c])) for c, g in pairs if best[c] >= 0]
            sorted_edges[i] = sorted(useful, key=lambda edge: -edge.size)
        return sorted_edges[i]

    found = 0
    heap = [_Detour((0.0, 0), [], 0, 0)]
    while heap:
        detour = heapq.heappop(heap)
        steps = detour.steps[: detour.kept]
        here, size = root, 1.0
        for edge in steps:
            here, size = edge.child, _size(edge.local_grad, size)
        rank = detour.rank
        while here != target:
            choices = edges(here)
            if rank + 1 < len(choices):
                found += 1
                order = (-_size(choices[rank + 1].size, size), found)
                heapq.heappush(heap, _Detour(order, steps, len(steps), rank + 1))
            edge, rank = choices[rank], 0
            steps.append(edge)
            here, size = edge.child, _size(edge.local_grad, size)
        yield _path(nodes, root, steps)


def _path(nodes: Sequence[Node], root: int, steps: Sequence[_Edge]) -> Path:
    product = 1.0
    for edge in steps:
        product = _times(edge.local_grad, product)
    way = (root, *(edge.child for edge in steps))
    slopes = tuple(edge.local_grad for edge in steps)
    return Path(way, tuple(nodes[i].name for i in way), slopes, product)


def _times(a: float, b: float) -> float:
    """The product along a path, where 0 stops everything, as it does in the backward pass."""
    return a * b if a and b else 0.0


def _size(local_grad: float, size: float) -> float:
    product = _times(abs(local_grad), size)
    return math.inf if math.isnan(product) else product
