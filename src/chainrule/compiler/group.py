"""Nodes of one shape become one array instruction.

In: a canonical ``Graph``. Out: a ``Program``: instructions over a flat arena of numbers (inputs,
constants, then each instruction's results in a row), every operand a column of addresses. Two nodes
have one shape if the same operation was applied to operands of the same shapes; sums and maxima
take the *set* of their terms' shapes, so that sums of different lengths share an instruction.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.canonicalise import Graph, Node, NotLiftable
from chainrule.compiler.record import Recording
from chainrule.ops import Op

Addresses = npt.NDArray[np.int64]
FEW_LENGTHS = 3  # sums of at most so many different lengths become instructions of their own


@dataclass
class Terms:
    """The operands of sums, all in one row: those of the first sum, of the second, and so on."""

    columns: tuple[Addresses, ...]  # one of plain terms, two of products
    counts: Addresses

    def __len__(self) -> int:
        return len(self.columns[0])


@dataclass
class Instruction:
    """One operation over many numbers: results go to ``start`` and on."""

    kind: str  # "rule", "sum", "extreme", "gather"
    start: int
    count: int
    rule: Op | None = None
    parameters: tuple[float, ...] = ()
    operands: list[Addresses | float] = field(default_factory=list)  # a float: the same for all
    products: Terms | None = None
    plains: Terms | None = None
    places: list[int] = field(default_factory=list)  # gather: which of the graph's gathers
    level: int = 0

    @property
    def out(self) -> Addresses:
        """The addresses of the results."""
        return np.arange(self.start, self.start + self.count)

    def __str__(self) -> str:
        name = self.rule.name if self.rule is not None else self.kind
        sizes = [
            f"{len(t)} {w}" for t, w in ((self.products, "products"), (self.plains, "terms")) if t
        ]
        return f"[{self.start}:{self.start + self.count}] = {name} {' '.join(sizes)}"


@dataclass
class Program:
    """An array program over one arena."""

    inputs: int
    constants: npt.NDArray[np.float64]
    size: int
    instructions: list[Instruction]
    address: Addresses  # of each recorded instruction, -1 where it was absorbed
    gathers: list[tuple[int, tuple[int, ...]]]

    def __str__(self) -> str:
        return "\n".join(map(str, self.instructions))

    @property
    def first_result(self) -> int:
        """Where inputs and constants end."""
        return self.inputs + len(self.constants)


def group(graph: Graph, recording: Recording, limit: int = 300) -> Program:
    """The array program of a graph; NotLiftable where nearly every node is a shape of its own."""
    members, levels = _shapes(graph)
    groups = []
    for shape, nodes in enumerate(members):
        if graph.nodes[nodes[0]].kind not in ("input", "constant"):
            groups += [(levels[shape], part) for part in _split(graph, nodes)]
    if len(groups) > limit or len(groups) * 8 > len(graph.nodes) + 400:
        raise NotLiftable(f"{len(groups)} shapes among {len(graph.nodes)} nodes: no structure")
    groups.sort(key=lambda g: (g[0], graph.origin[g[1][0]]))
    return _Layout(graph, recording).program(groups)


def _shapes(graph: Graph) -> tuple[list[list[int]], list[int]]:
    """The members of every shape, and the level of every shape."""
    known: dict[Any, int] = {}
    shape = [0] * len(graph.nodes)
    members: list[list[int]] = []
    levels: list[int] = []
    for i, node in enumerate(graph.nodes):
        kind, rule, parameters, number, products, plains, _ = node
        if kind == "absorbed":
            continue
        below: list[int]
        key: Any
        if kind == "rule":
            below = [shape[p] for p in plains]
            key = (rule, tuple(map(float.hex, parameters)), number is None, tuple(below))
        elif kind == "sum":
            pairs = frozenset([(shape[a], shape[b]) for a, b in products])
            single = frozenset([shape[p] for p in plains])
            below = [s for pair in pairs for s in pair] + list(single)
            key = (kind, pairs, single, len(plains) if products else -1)
        elif kind == "extreme":
            single = frozenset([shape[p] for p in plains])
            below, key = list(single), (rule, single)
        elif kind == "gather":
            single = frozenset([shape[p] for p in plains])
            below, key = list(single), (kind, single)
        else:
            below, key = [], kind
        found = known.get(key)
        if found is None:
            found = known[key] = len(members)
            members.append([])
            levels.append(1 + max([levels[s] for s in below], default=-1))
        shape[i] = found
        members[found].append(i)
    for nodes in members:
        nodes.sort(key=graph.origin.__getitem__)
    return members, levels


def _split(graph: Graph, nodes: list[int]) -> list[list[int]]:
    """Sums of few different lengths apart; of many, together."""
    if graph.nodes[nodes[0]].kind not in ("sum", "extreme"):
        return [nodes]
    lengths: dict[tuple[int, int], list[int]] = {}
    for i in nodes:
        node = graph.nodes[i]
        lengths.setdefault((len(node.products), len(node.plains)), []).append(i)
    return list(lengths.values()) if len(lengths) <= FEW_LENGTHS else [nodes]


class _Layout:
    """Gives every node its address and every instruction its columns."""

    def __init__(self, graph: Graph, recording: Recording) -> None:
        self.graph = graph
        self.recording = recording
        self.address = np.full(len(graph.nodes), -1, np.int64)
        self.constants: list[float] = []

    def program(self, groups: list[tuple[int, list[int]]]) -> Program:
        graph = self.graph
        self.address[: graph.inputs] = np.arange(graph.inputs)
        for i, node in enumerate(graph.nodes):
            if node.kind == "constant":
                self.address[i] = self._constant(0.0 if node.number is None else node.number)
        numbers = [self._numbers([graph.nodes[i] for i in nodes]) for _, nodes in groups]
        at = graph.inputs + len(self.constants)
        starts = []
        for _, nodes in groups:
            self.address[nodes] = np.arange(at, at + len(nodes))
            starts.append(at)
            at += len(nodes)
        instructions = [
            self._instruction(nodes, start, number, level)
            for (level, nodes), start, number in zip(groups, starts, numbers, strict=True)
        ]
        where = np.array(graph.at, np.int64)
        address = np.where(where >= 0, self.address[where], -1)
        constants = np.array(self.constants, np.float64)
        return Program(graph.inputs, constants, at, instructions, address, graph.gathers)

    def _constant(self, number: float) -> int:
        self.constants.append(number)
        return self.graph.inputs + len(self.constants) - 1

    def _numbers(self, nodes: list[Node]) -> Addresses | float | None:
        """The numbers in the second place: one for all, or a column of constants."""
        if nodes[0].number is None or nodes[0].kind != "rule":
            return None
        numbers = [float(node.number) for node in nodes if node.number is not None]
        if len(set(map(float.hex, numbers))) == 1:
            return numbers[0]
        return np.array([self._constant(number) for number in numbers], np.int64)

    def _instruction(
        self, nodes: list[int], start: int, number: Addresses | float | None, level: int
    ) -> Instruction:
        members = [self.graph.nodes[i] for i in nodes]
        first = members[0]
        made = Instruction(first.kind, start, len(nodes), first.rule, first.parameters, level=level)
        if first.kind == "rule":
            columns = zip(*[node.plains for node in members], strict=True)
            made.operands = [self.address[list(column)] for column in columns]
            if number is not None:
                made.operands.append(number)
        elif first.kind == "gather":
            made.places = [node.place for node in members]
        else:
            made.plains = self._terms([[(p,) for p in node.plains] for node in members], 1)
            made.products = self._terms([list(node.products) for node in members], 2)
        return made

    def _terms(self, lists: list[list[tuple[int, ...]]], width: int) -> Terms | None:
        counts = np.array([len(terms) for terms in lists], np.int64)
        if not counts.any():
            return None
        flat = np.array([term for terms in lists for term in terms], np.int64).reshape(-1, width)
        return Terms(tuple(self.address[flat[:, k]] for k in range(width)), counts)
