"""Nodes of one shape become one array instruction.

In: a canonical ``Graph``. Out: a ``Program``: instructions over a flat arena of numbers, every
operand a column of addresses. Two nodes have one shape if the same operation was applied to
operands of the same shapes; sums and maxima take the *set* of their terms' shapes, so that sums of
different lengths share an instruction. The arena holds what all samples share (inputs, constants),
then what each has of its own (inputs, results).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chainrule.compiler.canonicalise import (
    CONSTANT,
    EXTREME,
    GATHER,
    INPUT,
    RULE,
    SUM,
    Graph,
    NotLiftable,
)
from chainrule.compiler.record import FIRST_RULE, Recording
from chainrule.ops import Op

Addresses = npt.NDArray[np.int64]
FEW_LENGTHS = 3  # sums of at most so many different lengths become instructions of their own
Key = tuple[int, ...]  # a shape, and the length where sums of one shape are apart


@dataclass
class Terms:
    """The terms of sums, all in one row: those of the first sum, of the second, and so on."""

    owners: Addresses  # the sum that each term belongs to
    columns: tuple[Addresses, ...]  # one of plain terms, two of products
    each: int  # how many terms every sum has; 0 where they differ

    def __len__(self) -> int:
        return len(self.owners)


@dataclass
class Instruction:
    """One operation over many numbers: results go to ``start`` and on."""

    key: Key
    kind: int
    start: int
    count: int
    rule: Op | None = None
    parameters: tuple[float, ...] = ()
    operands: list[Addresses] = field(default_factory=list)
    number: Addresses | None = None  # where the plain numbers in the second place are
    products: Terms | None = None
    plains: Terms | None = None
    places: Addresses | None = None  # gather: which operand, of those that follow integers
    candidates: Addresses | None = None  # gather: all of what it may select from

    @property
    def out(self) -> Addresses:
        """The addresses of the results."""
        return np.arange(self.start, self.start + self.count)

    @property
    def columns(self) -> list[Addresses]:
        """The operands of a rule, plain numbers among them."""
        return self.operands if self.number is None else [*self.operands, self.number]

    @property
    def name(self) -> str:
        """The rule's name, or what kind it is."""
        kinds = {SUM: "sum", EXTREME: "extreme", GATHER: "gather"}
        return self.rule.name if self.rule is not None else kinds[self.kind]

    def __str__(self) -> str:
        sizes = [
            f"{len(t)} {w}" for t, w in ((self.products, "products"), (self.plains, "terms")) if t
        ]
        return f"[{self.start}:{self.start + self.count}] = {self.name} {' '.join(sizes)}"


@dataclass
class Program:
    """An array program over one arena."""

    inputs: int
    private: Addresses  # the inputs that each sample has of its own
    constants: npt.NDArray[np.float64]
    size: int
    instructions: list[Instruction]
    address: Addresses  # of each recorded instruction, -1 where it was absorbed
    guards: Addresses
    expected: npt.NDArray[np.float64]

    def __str__(self) -> str:
        return "\n".join(map(str, self.instructions))

    @property
    def shared(self) -> int:
        """Where what all samples share ends: inputs, with holes for the private ones; constants."""
        return self.inputs + len(self.constants)

    @property
    def places(self) -> Addresses:
        """The operands that follow integers, in the order in which gathers read them."""
        found = [i.places for i in self.instructions if i.places is not None]
        return np.concatenate([np.zeros(0, np.int64), *found])


def group(
    graph: Graph,
    recording: Recording,
    private: Addresses,
    arrays: Sequence[int] = (),
    like: Program | None = None,
    limit: int = 400,
) -> Program:
    """The array program of a graph; NotLiftable where nearly every node is a shape of its own.

    ``private``: the inputs that each sample has of its own, in order. ``arrays``: where among the
    inputs an array begins; what selects one of its numbers may select any. ``like``: another
    program, of the same function at another length; sums are taken apart by their lengths as they
    were there.
    """
    order = np.lexsort((np.arange(len(graph.kinds)), graph.origin, graph.signature))
    order = order[graph.kinds[order] > CONSTANT]
    shapes, first = np.unique(graph.signature[order], return_index=True)
    if len(shapes) > limit or len(shapes) * 8 > len(graph.kinds) + 400:
        raise NotLiftable(f"{len(shapes)} shapes among {len(graph.kinds)} nodes: no structure")
    lengths = np.stack([np.diff(graph.product_at), np.diff(graph.plain_at)], axis=1)
    apart = None if like is None else {i.key[0] for i in like.instructions if len(i.key) > 1}
    groups: list[tuple[Key, Addresses]] = []
    for shape, nodes in zip(shapes.tolist(), np.split(order, first[1:]), strict=True):
        groups += _split(graph, shape, nodes, lengths, apart)
    groups.sort(key=lambda g: (graph.level[g[1][0]], graph.origin[g[1][0]]))
    if like is not None:  # in its order
        rank = {i.key: k for k, i in enumerate(like.instructions)}
        groups.sort(key=lambda g: rank.get(g[0], len(rank)))
    return _Layout(graph, recording, private, arrays).program(groups)


def _split(
    graph: Graph, shape: int, nodes: Addresses, lengths: Addresses, apart: set[int] | None
) -> list[tuple[Key, Addresses]]:
    """Sums of few different lengths apart; of many, together."""
    if graph.kinds[nodes[0]] not in (SUM, EXTREME):
        return [((shape,), nodes)]
    kinds, inverse = np.unique(lengths[nodes], axis=0, return_inverse=True)
    few = len(kinds) <= FEW_LENGTHS if apart is None else shape in apart
    if (len(kinds) == 1 and apart is None) or not few:
        return [((shape,), nodes)]
    inverse = inverse.ravel()
    return [((shape, *map(int, kind)), nodes[inverse == k]) for k, kind in enumerate(kinds)]


class _Layout:
    """Gives every node its address and every instruction its columns."""

    def __init__(
        self, graph: Graph, recording: Recording, private: Addresses, arrays: Sequence[int]
    ) -> None:
        self.graph = graph
        self.private = private
        self.arrays = arrays
        self.recording = recording
        self.address = np.full(len(graph.kinds), -1, np.int64)
        self.constants: list[npt.NDArray[np.float64]] = []
        self.used = graph.inputs  # addresses given so far

    def program(self, groups: list[tuple[Key, Addresses]]) -> Program:
        graph, recording = self.graph, self.recording
        inputs = np.flatnonzero(graph.kinds == INPUT)
        self.address[inputs] = graph.origin[inputs]
        leaves = np.flatnonzero(graph.kinds == CONSTANT)
        self.address[leaves] = self._constants(graph.constants[leaves, 0])
        numbers = [self._numbers(nodes) for _, nodes in groups]
        private = self.private
        self.address[inputs[private]] = self.used + np.arange(len(private))
        first = self.used + len(private)
        starts = first + np.cumsum([0, *(len(nodes) for _, nodes in groups)])
        for start, (_, nodes) in zip(starts.tolist(), groups, strict=False):
            self.address[nodes] = np.arange(start, start + len(nodes))
        # Stretches of which any part may be selected where one is: arrays, instructions.
        self.stretches = np.unique([0, *self.arrays, *range(graph.inputs, first + 1), *starts])
        instructions = [
            self._instruction(key, nodes, start, number)
            for (key, nodes), start, number in zip(groups, starts.tolist(), numbers, strict=False)
        ]
        address = np.where(graph.at >= 0, self.address[graph.at], -1)
        positions = np.array([g.position for g in recording.guards], np.int64)
        return Program(
            graph.inputs,
            private,
            np.concatenate([np.zeros(0), *self.constants]),
            int(starts[-1]),
            instructions,
            address,
            address[positions],
            np.array([g.expected for g in recording.guards], np.float64),
        )

    def _constants(self, numbers: npt.NDArray[np.float64]) -> Addresses:
        """Addresses for some constants."""
        self.constants.append(numbers)
        self.used += len(numbers)
        return np.arange(self.used - len(numbers), self.used)

    def _numbers(self, nodes: Addresses) -> Addresses | None:
        """Where the plain numbers in the second place are: one for all, or one for each."""
        if not self.graph.number[nodes[0]]:
            return None
        numbers = self.graph.constants[nodes, 0]
        if (numbers.view(np.int64) == numbers.view(np.int64)[0]).all():
            return np.repeat(self._constants(numbers[:1]), len(nodes))
        return self._constants(numbers)

    def _instruction(
        self, key: Key, nodes: Addresses, start: int, number: Addresses | None
    ) -> Instruction:
        graph, first = self.graph, nodes[0]
        kind, code = int(graph.kinds[first]), int(graph.codes[first])
        made = Instruction(key, kind, start, len(nodes))
        if kind in (RULE, EXTREME):
            made.rule = self.recording.rules[code - FIRST_RULE]
        plain_at, counts = graph.plain_at[nodes], np.diff(graph.plain_at)[nodes]
        if kind == RULE:
            assert made.rule is not None
            made.parameters = tuple(graph.constants[first, : len(made.rule.parameters)].tolist())
            made.operands = [
                self.address[graph.plains[plain_at + j]] for j in range(int(counts[0]))
            ]
            made.number = number
        elif kind == GATHER:
            made.places = graph.places[nodes].astype(np.int64)
            found = np.unique(self.address[graph.plains[_ranges(plain_at, counts)]])
            chosen = np.unique(np.searchsorted(self.stretches, found, side="right") - 1)
            begin, end = self.stretches[chosen], self.stretches[chosen + 1]
            made.candidates = _ranges(begin, end - begin)
        else:
            made.plains = self._terms(start, plain_at, counts, graph.plains[:, None])
            counts = np.diff(graph.product_at)[nodes]
            pairs = graph.products
            made.products = self._terms(start, graph.product_at[nodes], counts, pairs)
        return made

    def _terms(
        self, start: int, at: Addresses, counts: Addresses, table: npt.NDArray[np.int32]
    ) -> Terms | None:
        if not counts.any():
            return None
        chosen = table[_ranges(at, counts)]
        if chosen.shape[1] == 2:  # the same kind of factor on the same side
            signature = self.graph.signature[chosen]
            chosen = np.where((signature[:, 0] > signature[:, 1])[:, None], chosen[:, ::-1], chosen)
        owners = np.repeat(np.arange(start, start + len(counts)), counts)
        columns = tuple(self.address[chosen[:, k]] for k in range(chosen.shape[1]))
        each = int(counts[0]) if (counts == counts[0]).all() else 0
        return Terms(owners, columns, each)


def _ranges(starts: Addresses, counts: Addresses) -> Addresses:
    """starts[0], starts[0] + 1, ... (counts[0] of them), starts[1], ..."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
