"""Nodes of one shape become one array instruction.

In: a canonical ``Graph``. Out: a ``Program``: instructions over a flat arena of numbers, every
operand a column of addresses. Two nodes have one shape (equal signatures) if they are the same
operation on operands of the same shapes; for sums and maxima the *set* of the terms' shapes counts,
so that sums of different lengths share an instruction. Nodes in a loop in time are separate from
those before and after it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.lift.graph import (
    CONSTANT,
    EXTREME,
    INPUT,
    SUM,
    Graph,
    NotLiftable,
)
from chainrule.compiler.lift.hashing import Hashes
from chainrule.compiler.lift.ordering import Beside, Pieces
from chainrule.compiler.lift.placed import add_operands
from chainrule.compiler.lift.program import (
    COPY,
    Addresses,
    Group,
    Instruction,
    Key,
    Program,
    Repeat,
    Terms,
    address_type,
    moved,
    ranges,
)
from chainrule.compiler.lift.stages import Straight, check_members, levels, stages
from chainrule.compiler.lift.strides import iteration_space
from chainrule.compiler.lift.time_loop import Loop
from chainrule.core.backend import kernels
from chainrule.core.interrupts import safe_point

MOST_SHAPES = 400
SPARE = 50  # shapes that need no others like them
PART = 1 << 18  # nodes that are looked at together
NEAR = 1 << 12  # nodes whose rows of a table fit into a cache
FEW_LENGTHS = 3  # sums of at most so many different lengths become one instruction per length


def group(
    graph: Graph,
    recording: Recording,
    private: Addresses,
    arrays: Sequence[int] = (),
    like: Program | None = None,
    limit: int = MOST_SHAPES,
    slots: Addresses | None = None,
    arranged: Pieces | Beside | None = None,
    structured: bool = True,
    spare: int = SPARE,
) -> Program:
    """The array program of a graph; NotLiftable where it has more shapes than ``limit``.

    ``structured``: or where nearly every node is a shape of its own.

    ``private``: the inputs of which each sample has its own, in order. ``arrays``: where among the
    inputs an array begins; a gather that selects one of its numbers may select any. ``like``: a
    program of the same function at another length; sums are separated by their lengths as they were
    there. ``slots``: for each operand that depends on an integer, that integer, or -1.
    ``arranged``: how to reorder the groups. ``spare``: how many shapes may be alone.
    """
    groups = grouped(graph, like, limit, structured, spare)
    safe_point()
    if arranged is not None:
        groups = arranged.groups(graph, groups)
    longer = arranged.longer if isinstance(arranged, Beside) else like
    copies = None
    if longer is not None:
        copies = {
            (i.key[0] % COPY, *i.key[1:]): i.key[0] // COPY
            for i in longer.instructions
            if i.is_copy
        }
    layout = _Layout(graph, recording, private, arrays, slots, copies)
    safe_point()
    return layout.program(groups, arranged is not None)


def grouped(
    graph: Graph,
    like: Program | None = None,
    limit: int = MOST_SHAPES,
    structured: bool = True,
    spare: int = SPARE,
) -> list[Group]:
    """The nodes of a graph by their shapes, in an order that computes operands first."""
    stage = stages(graph)
    groups = list(_groups(graph, stage, like, limit, structured, spare))
    level = levels(graph, [g.nodes for g in groups], stage) if graph.loops else graph.level
    groups.sort(key=lambda g: (g.stage, level[g.nodes[0]], graph.origin[g.nodes[0]]))
    if like is not None:  # in its order
        rank = {i.key: k for k, i in enumerate(like.instructions)}
        groups.sort(key=lambda g: rank.get(g.key, len(rank)))
    return groups


def group_count(graph: Graph) -> int:
    """How many groups ``grouped`` gives, in less time and memory."""
    found = _few_shapes(graph, members=False)
    if found is None:
        return sum(1 for _ in _groups(graph, stages(graph)))
    _check_count(graph, len(found.signatures), MOST_SHAPES, True, SPARE)
    total = 0
    for signature, first in zip(found.signatures, found.first.tolist(), strict=True):
        if graph.kinds[first] in (SUM, EXTREME):
            nodes = np.flatnonzero(graph.signature == signature)
            total += len(_split(graph, 0, nodes, None))
        else:
            total += 1
    return total


def _groups(
    graph: Graph,
    stage: Addresses,
    like: Program | None = None,
    limit: int = MOST_SHAPES,
    structured: bool = True,
    spare: int = SPARE,
) -> Iterator[Group]:
    """The nodes of a graph by their stages and shapes; arguments as those of ``grouped``."""
    few = _few_shapes(graph)
    parts: Iterable[Addresses]
    if few is not None and len(few.signatures) <= limit:
        count, parts = len(few.signatures), _of_shapes(graph, few)
    else:
        parts = _in_order(graph, stage)
        count = max(len(parts), 1)
    _check_count(graph, count, limit, structured, spare)
    apart = None if like is None else {i.key[0] for i in like.instructions if len(i.key) > 1}
    for nodes in parts:
        which = int(stage[nodes[0]])
        shape = int(graph.signature[nodes[0]]) + (which << 64)
        for x in _split(graph, shape, nodes, apart):
            yield Group(*x, which)


def _in_order(graph: Graph, stage: Addresses) -> list[Addresses]:
    """The nodes that are no leaves, by stage and shape, each part in the recording's order."""
    staged = (stage,) if graph.loops else ()
    order = np.lexsort((graph.origin, graph.signature, *staged))  # which is stable
    order = order[graph.kinds[order] > CONSTANT]
    shapes = graph.signature[order]
    change = shapes[1:] != shapes[:-1]
    for column in staged:
        change |= np.diff(column[order]) != 0
    return np.split(order, np.flatnonzero(change) + 1) if len(order) else []


@dataclass(frozen=True, eq=False)
class _Few:
    """The shapes of a large graph that has few, in order."""

    signatures: Hashes
    first: Addresses  # a node of each
    nodes: list[Addresses] | None = None  # all nodes of each, where they were asked for


def _few_shapes(graph: Graph, members: bool = True) -> _Few | None:
    """The shapes of a large graph without loops, if they are few: in linear time."""
    if graph.loops or len(graph) <= PART:
        return None
    if kernels is None:
        return _few_in_python(graph)
    kinds, signatures = graph.kinds.view(np.uint8), graph.signature.view(np.int64)
    found = kernels.group_shapes(kinds, signatures, CONSTANT, MOST_SHAPES, members)
    if found is None or not found[0]:
        return None
    counts, first = (np.frombuffer(column, np.int64) for column in found[1:3])
    nodes: Any = None
    if members:
        nodes = np.split(np.frombuffer(found[3], np.int32), np.cumsum(counts)[:-1])
    return _Few(np.frombuffer(found[0], np.uint64), first, nodes)


def _few_in_python(graph: Graph) -> _Few | None:
    """The same, in memory for a part of the graph."""
    found = np.zeros(0, np.uint64)
    for at in range(0, len(graph), PART):
        inner = graph.kinds[at : at + PART] > CONSTANT
        found = np.union1d(found, graph.signature[at : at + PART][inner])
        if len(found) > MOST_SHAPES:
            return None
    if not len(found):
        return None
    return _Few(found, np.array([np.argmax(graph.signature == shape) for shape in found]))


def _of_shapes(graph: Graph, few: _Few) -> Iterator[Addresses]:
    """The same as ``_in_order``, of a graph with these shapes alone."""
    for k, shape in enumerate(few.signatures):
        nodes: Addresses
        if few.nodes is not None:
            nodes = few.nodes[k]
        else:
            nodes = np.flatnonzero(graph.signature == shape).astype(np.int32)
        origin = graph.origin[nodes]
        if (origin[1:] < origin[:-1]).any():
            nodes = nodes[np.argsort(origin, kind="stable")]
        yield nodes


def _check_count(graph: Graph, count: int, limit: int, structured: bool, spare: int) -> None:
    """NotLiftable where there are too many shapes."""
    if count > limit or (structured and (count - spare) * 8 > len(graph.kinds)):
        raise NotLiftable(f"{count} shapes among {len(graph.kinds)} nodes: no structure")


def _counts(ends: npt.NDArray[np.int32], nodes: Addresses) -> npt.NDArray[np.int32]:
    """How many terms each node has: in pieces, so that what it reads first is near for the rest."""
    found = np.empty(len(nodes), np.int32)
    for k in range(0, len(nodes), NEAR):
        some = nodes[k : k + NEAR]
        found[k : k + NEAR] = ends[some + 1] - ends[some]
    return found


def _split(
    graph: Graph, shape: int, nodes: Addresses, apart: set[int] | None
) -> list[tuple[Key, Addresses]]:
    """Sums of few different lengths as a group per length; of many, together."""
    if graph.kinds[nodes[0]] not in (SUM, EXTREME):
        return [((shape,), nodes)]
    products, plains = (_counts(at, nodes) for at in (graph.product_at, graph.plain_at))
    if apart is None and (products == products[0]).all() and (plains == plains[0]).all():
        return [((shape,), nodes)]
    lengths = np.stack([products, plains], axis=1)
    kinds, inverse = np.unique(lengths, axis=0, return_inverse=True)
    few = len(kinds) <= FEW_LENGTHS if apart is None else shape in apart
    if not few:
        return [((shape,), nodes)]
    inverse = inverse.ravel()
    return [((shape, *map(int, kind)), nodes[inverse == k]) for k, kind in enumerate(kinds)]


class _Layout:
    """Assigns an address to every node and columns to every instruction."""

    def __init__(
        self,
        graph: Graph,
        recording: Recording,
        private: Addresses,
        arrays: Sequence[int],
        slots: Addresses | None,
        copies: dict[Key, int] | None,
    ) -> None:
        self.graph = graph
        self.slots = slots
        self.copies = copies  # which terms of maxima the longer program copies
        self.private = private
        self.arrays = arrays
        self.recording = recording
        # Beside the nodes there are copies of terms, and what comes before a loop in time.
        self.kind: Any = address_type(graph.inputs + 2 * len(graph.kinds) + len(graph.plains))
        self.address: Addresses = np.full(len(graph.kinds), -1, self.kind)
        self.constants: list[npt.NDArray[np.float64]] = []
        self.used = graph.inputs  # shared addresses assigned so far

    def program(self, groups: list[Group], arranged: bool) -> Program:
        graph, recording = self.graph, self.recording
        inputs = np.flatnonzero(graph.kinds == INPUT)
        self.address[inputs] = graph.origin[inputs]
        leaves = np.flatnonzero(graph.kinds == CONSTANT)
        self.address[leaves] = self._constants(graph.numbers_of(leaves))
        fronts = [self._front(g) for g in groups]
        numbers = [self._numbers(g) for g in groups]
        private = self.private
        self.address[inputs[private]] = self.used + np.arange(len(private))
        first = self.used + len(private)
        sizes = [len(g.nodes) + front for g, front in zip(groups, fronts, strict=True)]
        begins = first + np.cumsum([0, *sizes])
        starts = begins[:-1] + np.array(fronts, np.int64)
        self._assign(groups, starts.tolist())
        self.begins, self.starts = begins, starts
        instructions = [
            self._instruction(g, start, number)
            for g, start, number in zip(groups, starts.tolist(), numbers, strict=True)
        ]
        size = int(begins[-1])
        if not graph.loops:
            instructions, size = self._copied(instructions, size)
        instructions, loops = self._loops(groups, instructions)
        groups.clear()  # as much memory as the addresses take, and not needed any more
        address = moved(graph.at, self.address)  # -1 where it was absorbed
        positions = np.array([g.position for g in recording.guards], np.int64)
        made = Program(
            graph.inputs,
            private,
            np.concatenate([np.zeros(0), *self.constants]),
            size,
            instructions,
            address,
            address[positions],
            np.array([g.expected for g in recording.guards], np.float64),
            loops,
            arranged=arranged,
        )
        if loops:
            made.check_order()
        return made

    def _assign(self, groups: list[Group], starts: list[int]) -> None:
        """Addresses for the nodes of each group, from its start on."""
        for start, g in zip(starts, groups, strict=True):
            self.address[g.nodes] = np.arange(start, start + len(g.nodes))

    @functools.cached_property
    def stretches(self) -> Addresses:
        """Arrays and results of instructions: a gather that selects one address may select all."""
        first = self.begins[0]
        own = np.arange(self.graph.inputs, first + 1)
        return np.unique(np.concatenate([[0, *self.arrays], own, self.begins, self.starts]))

    def _copied(self, instructions: list[Instruction], size: int) -> tuple[list[Instruction], int]:
        """The instructions, with copies of the terms of a maximum where they are irregular.

        Only a loop over the terms in order finds the first of equals.
        """
        made: list[Instruction] = []
        for instruction in instructions:
            terms = instruction.plains
            if instruction.kind == EXTREME and terms is not None:
                which, chosen = self._to_copy(instruction.key, terms, size)
                if chosen.any():
                    (column,) = terms.columns
                    key = (instruction.key[0] + which * COPY, *instruction.key[1:])
                    copy = Instruction(key, SUM, size, int(chosen.sum()))
                    copy.plains = Terms(copy.out, (column[chosen],), 1)
                    instruction.plains = replace(terms, columns=(column.copy(),))
                    instruction.plains.columns[0][chosen] = copy.out
                    size += copy.count
                    made.append(copy)
            made.append(instruction)
        return made, size

    def _to_copy(self, key: Key, terms: Terms, size: int) -> tuple[int, npt.NDArray[np.bool_]]:
        """Which terms of maxima to copy: none (0), the shared ones (1) or all (2)."""
        (column,) = terms.columns
        shared = column < self.used
        choices = (np.zeros_like(shared), shared, np.ones_like(shared))
        if self.copies is not None:
            which = self.copies.get(key, 0)
            return which, choices[which]
        if shared.all() or not shared.any():
            return (0, choices[0]) if self._is_loop(terms.owners, column) else (2, choices[2])
        copied = column.copy()
        copied[shared] = np.arange(size, size + shared.sum())
        which = 1 if self._is_loop(terms.owners, copied) else 2
        return which, choices[which]

    @staticmethod
    def _is_loop(owners: Addresses, column: Addresses) -> bool:
        """Whether the terms of each maximum are walked in one go."""
        found = iteration_space([owners, column])
        if found.rows == 1:
            return True
        moving = [x.count for x in (*found.middle, *found.loops) if x.strides[0] != 0]
        runs = found.rows
        if found.lengths is not None and found.run[0] != 0:
            runs = int(found.lengths.sum())
        return len(np.unique(owners)) == runs * int(np.prod(moving, dtype=np.int64))

    def _loops(
        self, groups: list[Group], instructions: list[Instruction]
    ) -> tuple[list[Instruction], tuple[Repeat, ...]]:
        """The instructions, with initial copies before each loop, and the loops."""
        made: list[Instruction] = []
        loops: list[Repeat] = []
        copies: dict[int, int] = {}
        at = 0
        for number, loop in enumerate(self.graph.loops):
            first = next((k for k, g in enumerate(groups) if g.stage > 2 * number), len(groups))
            last = next((k for k, g in enumerate(groups) if g.stage > 2 * number + 1), len(groups))
            core = instructions[first:last]
            made += instructions[at:first]
            at = last
            if core:
                straight = Straight(core, loop.count, loop.reach, copies)
                made += straight.beginnings()
                copies |= straight.copies
                for instruction in core:
                    instruction.loop = len(loops)
                last = len(made) + len(core)
                loops.append(Repeat(loop.count, len(made), last, loop.reach, loop.period))
                made += core
        return made + instructions[at:], tuple(loops)

    def _loop(self, g: Group) -> Loop | None:
        """The loop in time that computes a group iteration by iteration."""
        return self.graph.loops[g.stage // 2] if g.stage % 2 else None

    def _front(self, g: Group) -> int:
        """How many addresses are reserved before a group: results of iterations -1, -2, ..."""
        loop = self._loop(g)
        return loop.reach * check_members(self.graph, loop, g.nodes) if loop is not None else 0

    def _constants(self, numbers: npt.NDArray[np.float64]) -> Addresses:
        """Addresses for some constants."""
        self.constants.append(numbers)
        self.used += len(numbers)
        return np.arange(self.used - len(numbers), self.used, dtype=self.kind)

    def _numbers(self, g: Group) -> Addresses | None:
        """Addresses of plain numbers as second operands: one for all nodes, or one for each."""
        if not self.graph.has_number(g.nodes[0]):
            return None
        numbers = self.graph.numbers_of(g.nodes)
        bits = numbers.view(np.int64)
        if (bits == bits[0]).all():
            return np.repeat(self._constants(numbers[:1]), len(numbers))
        loop = self._loop(g)
        if loop is not None:
            rows = bits.reshape(loop.count, -1)
            if (rows == rows[0]).all():  # the same in each iteration
                return np.tile(self._constants(numbers[: rows.shape[1]]), loop.count)
        return self._constants(numbers)

    def _instruction(self, group: Group, start: int, number: Addresses | None) -> Instruction:
        graph, nodes = self.graph, group.nodes
        kind = int(graph.kinds[nodes[0]])
        made = Instruction(group.key, kind, start, len(nodes), reordered=group.orders is not None)
        add_operands(made, self, nodes, number)
        if kind in (SUM, EXTREME):
            made.plains = self._terms(start, group, graph.plain_at, graph.plains[:, None])
            made.products = self._terms(start, group, graph.product_at, graph.products)
        return made

    def _terms(
        self, start: int, group: Group, ends: npt.NDArray[np.int32], table: npt.NDArray[np.int32]
    ) -> Terms | None:
        nodes = group.nodes
        at = ends[nodes]
        counts = ends[nodes + 1] - at
        if not counts.any():
            return None
        each = int(counts[0]) if (counts == counts[0]).all() else 0
        if each:
            chosen = table[(at[:, None] + np.arange(each, dtype=at.dtype)).ravel()]
        else:
            chosen = table[ranges(at, counts)]
        if chosen.shape[1] == 2:  # factors of one shape go to the same side
            users = np.repeat(nodes, counts)
            left, right = (self.graph.seen(column, users) for column in chosen.T)
            chosen = np.where((left > right)[:, None], chosen[:, ::-1], chosen)
        owners = np.repeat(np.arange(start, start + len(counts), dtype=self.kind), counts)
        columns = tuple([self.address[chosen[:, k]] for k in range(chosen.shape[1])])
        if group.orders is not None:
            order = group.orders[2 - len(columns)]
            return Terms(owners[order], tuple([c[order] for c in columns]), 0)
        return Terms(owners, columns, each)
