"""From a recording to a graph of sums, maxima and elementwise operations.

In: a ``Recording`` and what its operands do with integers. Out: a ``Graph``: left-leaning chains of
additions are n-ary sums of products and plain terms, chains of Python's max are n-ary maxima, an
operand that follows an integer is a gather. ``0 + x`` stays a sum of one term, so that the first
position of a sequence is made like the others. Numbers stay with their node; whether they are equal
is nobody's business here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from chainrule import ops
from chainrule.compiler.infer import Indexing
from chainrule.compiler.record import CONSTANT, FIRST_RULE, INPUT, Recording
from chainrule.ops import Op


class NotLiftable(Exception):
    """The recording has no structure to lift, or one this compiler does not know."""


class Node(NamedTuple):
    """One canonical node; operands are positions of earlier nodes.

    A sum has ``products`` and ``plains``; a maximum (or minimum) ``plains``; a gather its place
    among the gathers and, in ``plains``, the nodes it may select; anything else is its ``rule``
    applied to ``plains`` and, where ``number`` is not None, that number in the second place.
    """

    kind: str  # "input", "constant", "sum", "extreme", "gather", "rule"
    rule: Op | None = None
    parameters: tuple[float, ...] = ()
    number: float | None = None
    products: tuple[tuple[int, int], ...] = ()
    plains: tuple[int, ...] = ()
    place: int = -1


@dataclass
class Graph:
    """The canonical nodes in creation order, and where the recording's instructions went."""

    inputs: int
    nodes: list[Node] = field(default_factory=list)
    origin: list[int] = field(default_factory=list)  # node -> recorded instruction
    at: list[int] = field(default_factory=list)  # recorded instruction -> node, -1 if absorbed
    gathers: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)  # operand place, rows

    def __str__(self) -> str:
        return "\n".join(f"#{i} = {node}" for i, node in enumerate(self.nodes))


def canonicalise(recording: Recording, indexing: Indexing) -> Graph:
    """The canonical graph of a recording."""
    builder = _Builder(recording, indexing)
    return builder.build()


class _Builder:
    def __init__(self, recording: Recording, indexing: Indexing) -> None:
        self.recording = recording
        self.codes = recording.codes.tolist()
        self.operands = recording.operands.tolist()
        self.constants = recording.constants.tolist()
        self.number = recording.number.tolist()
        self.dynamic = {int(p): k for k, p in enumerate(indexing.places)}
        self.candidates = (
            np.unique(np.array(indexing.rows), axis=0) if len(indexing.places) else None
        )
        self.uses = self._count_uses()
        self.graph = Graph(recording.inputs)
        self.known: dict[Any, int] = {}  # the same operation on the same operands is one node
        self.terms: dict[int, tuple[list[tuple[int, int]], list[int]]] = {}

    def _count_uses(self) -> list[int]:
        """How often each instruction is an operand, an output, a guard or a candidate."""
        recording = self.recording
        count = np.zeros(len(recording) + 1, np.int64)
        np.add.at(count, recording.operands.ravel(), 1)
        for guard in recording.guards:
            count[guard.position] += 2
        for output in _outputs(recording.result):
            count[output] += 2
        if self.candidates is not None:
            count[np.unique(self.candidates)] += 2
        return count.tolist()

    def build(self) -> Graph:
        """Every instruction in turn; sums wait in ``terms`` until something uses them."""
        for i, code in enumerate(self.codes):
            if code == INPUT:
                self._add(i, Node("input"))
            elif code == CONSTANT:
                self._add(i, Node("constant", number=self.constants[i][0]))
            else:
                self._instruction(i, self.recording.rules[code - FIRST_RULE])
        for i in list(self.terms):
            self._settle(i)
        return self.graph

    def _add(self, i: int, node: Node) -> None:
        graph = self.graph
        if len(graph.at) <= i:
            graph.at.extend([-1] * (i + 1 - len(graph.at)))
        graph.at[i] = len(graph.nodes)
        graph.nodes.append(node)
        graph.origin.append(i)

    def _operand(self, i: int, j: int) -> int:
        """The canonical node of operand j of instruction i."""
        place = self.dynamic.get(3 * i + j)
        if place is None:
            return self._node(self.operands[i][j])
        assert self.candidates is not None
        rows = tuple(np.unique(self.candidates[:, place]).tolist())
        plains = tuple([self._node(row) for row in rows])
        gather = Node("gather", plains=plains, place=len(self.graph.gathers))
        self.graph.gathers.append((place, rows))
        self.graph.nodes.append(gather)
        self.graph.origin.append(i)
        return len(self.graph.nodes) - 1

    def _node(self, i: int) -> int:
        if i in self.terms:
            self._settle(i)
        return self.graph.at[i]

    def _settle(self, i: int) -> None:
        """A sum that is complete becomes a node."""
        products, plains = self.terms.pop(i)
        self._add(i, Node("sum", products=tuple(products), plains=tuple(plains)))

    def _instruction(self, i: int, rule: Op) -> None:
        if rule is ops.add and self._sum(i):
            return
        if rule in (ops.first_max, ops.first_min) and self._extreme(i, rule):
            return
        count = sum(p >= 0 for p in self.operands[i])
        plains = tuple([self._operand(i, j) for j in range(count)])
        number = self.constants[i][0] if self.number[i] else None
        parameters = tuple(self.constants[i][: len(rule.parameters)])
        node = Node("rule", rule, parameters, number, plains=plains)
        if rule is ops.mul:  # may be taken apart into a sum, so each is its own
            self._add(i, node)
            return
        numbers = tuple(map(float.hex, parameters)), number if number is None else float.hex(number)
        known = self.known.setdefault((rule, numbers, plains), len(self.graph.nodes))
        if known < len(self.graph.nodes):
            self._reserve(i)
            self.graph.at[i] = known
        else:
            self._add(i, node)

    # --- sums -----------------------------------------------------------------------------------

    def _sum(self, i: int) -> bool:
        """Start or extend a sum; False for ``x + number``."""
        if self.number[i]:
            if self.constants[i][0] != 0.0:
                return False
            products: list[tuple[int, int]] = []
            plains: list[int] = []
            self._term(i, 0, products, plains)
            self.terms[i] = (products, plains)
            self._reserve(i)
            return True
        left = self.operands[i][0]
        if 3 * i not in self.dynamic and left in self.terms and self.uses[left] == 1:
            products, plains = self.terms.pop(left)
            self._term(i, 1, products, plains)
        else:
            products, plains = [], []
            self._term(i, 0, products, plains)
            self._term(i, 1, products, plains)
        self.terms[i] = (products, plains)
        self._reserve(i)
        return True

    def _reserve(self, i: int) -> None:
        self.graph.at.extend([-1] * (i + 1 - len(self.graph.at)))

    def _term(self, i: int, j: int, products: list[tuple[int, int]], plains: list[int]) -> None:
        """One term: a product of two nodes used nowhere else is taken apart."""
        source = self.operands[i][j]
        if 3 * i + j not in self.dynamic and self.uses[source] == 1:
            node = self.graph.at[source] if source not in self.terms else -1
            if node >= 0:
                made = self.graph.nodes[node]
                if made.rule is ops.mul and made.number is None:
                    products.append((made.plains[0], made.plains[1]))
                    self.graph.nodes[node] = Node("absorbed")
                    self.graph.at[source] = -1
                    return
        plains.append(self._operand(i, j))

    # --- maxima -----------------------------------------------------------------------------------

    def _extreme(self, i: int, rule: Op) -> bool:
        """Start or extend a chain of Python's max or min."""
        if any(3 * i + j in self.dynamic for j in range(2)):
            return False
        left, right = self.operands[i][:2]
        start = -np.inf if rule is ops.first_max else np.inf
        if self.codes[right] == CONSTANT and self.constants[right][0] == start:
            self._add(i, Node("extreme", rule, plains=(self._operand(i, 0),)))
            return True
        node = self.graph.at[left]
        made = self.graph.nodes[node] if node >= 0 else None
        if (
            made is not None
            and made.kind == "extreme"
            and made.rule is rule
            and self.uses[left] == 1
        ):
            self.graph.nodes[node] = Node("absorbed")
            self.graph.at[left] = -1
            self._add(i, Node("extreme", rule, plains=(*made.plains, self._operand(i, 1))))
            return True
        return False


def _outputs(result: object) -> list[int]:
    from chainrule.compiler.record import Output, map_leaves

    found: list[int] = []
    map_leaves(lambda x: found.append(x.position) if isinstance(x, Output) else None, result)
    return found
