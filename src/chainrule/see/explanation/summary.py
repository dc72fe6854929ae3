"""A graph too big for tables, in a few numbers: counts, depth, extremes, first and last steps."""

from __future__ import annotations

import heapq
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from chainrule.see.explanation.model import (
    BackwardStep,
    Explanation,
    ForwardStep,
    Node,
    SortStep,
    pops,
)
from chainrule.see.names import Kind

S = TypeVar("S")
T = TypeVar("T")

_LEAVES: tuple[Kind, ...] = ("weight", "input", "data", "constant")
_SHOWN = 3  # steps at each end, and gradients at each extreme


@dataclass(frozen=True)
class Ends(Generic[T]):
    """The first and the last few of many steps."""

    first: tuple[T, ...]
    last: tuple[T, ...]
    count: int

    @property
    def left_out(self) -> int:
        """How many steps lie between them."""
        return self.count - len(self.first) - len(self.last)


@dataclass(frozen=True)
class Summary:
    """A big graph in a few numbers."""

    nodes: int
    edges: int
    leaves: tuple[tuple[str, int], ...]  # how many of each kind: weights, inputs, data, constants
    operations: tuple[tuple[str, int], ...]  # most frequent first
    depth: int  # edges on the longest path
    largest: tuple[Node, ...]  # by |grad|
    smallest: tuple[Node, ...]  # by |grad|, zeros apart
    zero: int  # how many gradients are 0
    nonfinite: int  # how many are inf or nan
    forward: Ends[ForwardStep]
    sort: Ends[SortStep]
    backward: Ends[BackwardStep]


def summarise(explanation: Explanation) -> Summary:
    """Summarise in time proportional to the graph, making words for the shown steps only."""
    nodes = explanation.nodes
    depth = [0] * len(nodes)
    for node in nodes:
        if node.children:
            depth[node.index] = 1 + max(depth[i] for i in node.children)
    kinds = Counter(node.kind for node in nodes)
    finite = [node for node in nodes if node.grad and math.isfinite(node.grad)]

    def size(node: Node) -> float:
        return abs(node.grad)

    made = [node for node in nodes if node.kind == "operation"]
    return Summary(
        nodes=len(nodes),
        edges=sum(len(node.children) for node in nodes),
        leaves=tuple((kind, kinds[kind]) for kind in _LEAVES if kinds[kind]),
        operations=tuple(Counter(node.op or "custom" for node in made).most_common()),
        depth=depth[-1],
        largest=tuple(heapq.nlargest(_SHOWN, finite, key=size)),
        smallest=tuple(heapq.nsmallest(_SHOWN, finite, key=size)),
        zero=sum(node.grad == 0.0 for node in nodes),
        nonfinite=sum(not math.isfinite(node.grad) for node in nodes),
        forward=_ends(made, explanation.forward_step),
        sort=_ends(enumerate(pops(nodes)), lambda pop: explanation.sort_step(*pop)),
        backward=_ends(reversed(nodes), explanation.backward_step),
    )


def _ends(items: Iterable[S], write: Callable[[S], T]) -> Ends[T]:
    """The first few and the last few in words, and how many there are, in one sweep."""
    iterator = iter(items)
    first = list(islice(iterator, _SHOWN))
    last: deque[S] = deque(maxlen=_SHOWN)
    count = len(first)
    for item in iterator:
        last.append(item)
        count += 1
    return Ends(tuple(map(write, first)), tuple(map(write, last)), count)
