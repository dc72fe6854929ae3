"""What is computed before a loop in time, in it, and after it.

In: a canonical ``Graph`` and its loops. Out: a stage for every node: even stages compute all
iterations at once, odd ones iteration by iteration. Only nodes on a path from an earlier iteration
to a later one, the core of a loop, have to be done in turn; what only leads to the core, or only
comes from it, is done for all iterations together, before or after. Every instruction of a core has
equally many numbers in each iteration, and its columns of addresses move by constant steps. Values
that the first iterations read from before the loop are copied to the addresses of iterations -1, -2
and so on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from chainrule.compiler.lift.graph import CONSTANT, GATHER, SUM, Graph, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Terms
from chainrule.compiler.lift.time_loop import Loop, after_cycles


def stages(graph: Graph) -> Addresses:
    """The stage of every node: 2L before loop L, 2L + 1 in it."""
    stage = np.zeros(len(graph), np.int64)
    if not graph.loops:
        return stage
    used, users = _edges(graph)
    selects = graph.kinds == GATHER
    for number, loop in enumerate(graph.loops):
        stage[graph.origin >= loop.stop] = 2 * number + 2
        inside = (graph.origin >= loop.start) & (graph.origin < loop.stop)
        slot = np.where(inside, (graph.origin - loop.start) % loop.period, -1)
        slot[inside & selects] += loop.period  # a gather is not what reads it
        size = 2 * loop.period
        chosen = inside[used] & inside[users] & (graph.kinds[used] > CONSTANT)
        edges = np.unique(slot[used[chosen]] * size + slot[users[chosen]])
        source, target = np.divmod(edges, size)
        down, up = after_cycles(source, target, size), after_cycles(target, source, size)
        if (down & up)[slot[inside & selects]].any():
            raise NotLiftable("a loop selects by integers what the next iteration needs")
        stage[inside] = 2 * number + np.where(down & up, 1, np.where(down, 2, 0))[slot[inside]]
    return stage


def _edges(graph: Graph) -> tuple[Addresses, Addresses]:
    """Every operand of every node, and that node."""
    users = np.concatenate(
        [
            np.repeat(np.arange(len(graph)), np.diff(graph.plain_at)),
            np.repeat(np.arange(len(graph)), 2 * np.diff(graph.product_at)),
        ]
    )
    return np.concatenate([graph.plains, graph.products.ravel()]).astype(np.int64), users


def levels(graph: Graph, groups: list[Addresses], stage: Addresses) -> Addresses:
    """A level per node, equal within a group: groups of a stage are computed by level."""
    group = np.full(len(graph), -1, np.int64)
    for k, nodes in enumerate(groups):
        group[nodes] = k
    used, users = _edges(graph)
    one, other = (graph.iterations[graph.origin[nodes]] for nodes in (used, users))
    kept = (group[used] >= 0) & (stage[used] == stage[users])
    kept &= (stage[users] % 2 == 0) | (one == other)  # a loop may read earlier iterations
    edges = np.unique(group[used[kept]] * len(groups) + group[users[kept]])
    before, after = np.divmod(edges, max(1, len(groups)))
    level = np.zeros(len(groups) + 1, np.int64)
    for _ in range(len(groups) + 1):
        higher = level.copy()
        np.maximum.at(higher, after, level[before] + 1)
        if (higher == level).all():
            return level[group]
        level = higher
    raise NotLiftable("instructions of a loop wait for each other")


def check_members(graph: Graph, loop: Loop, nodes: Addresses) -> int:
    """How many of these nodes of a core each iteration has; NotLiftable where that differs."""
    iteration = (graph.origin[nodes] - loop.start) // loop.period
    each = len(nodes) // loop.count
    if len(nodes) % loop.count or (iteration != np.arange(loop.count).repeat(each)).any():
        raise NotLiftable("the iterations of a loop differ")
    return each


class Straight:
    """Rewrites the columns of one loop's core so that they move by constant steps."""

    def __init__(
        self, core: list[Instruction], count: int, reach: int, known: dict[int, int]
    ) -> None:
        """``known``: copies that earlier loops make, source by target address."""
        self.core, self.count, self.reach, self.known = core, count, reach, known
        self.each = np.array([i.count // count for i in core])
        self.starts = np.array([i.start for i in core])
        self.fronts = self.starts - reach * self.each
        self.copies: dict[int, int] = {}
        for instruction in core:
            instruction.operands = [self._column(c) for c in instruction.operands]
            if instruction.number is not None:
                instruction.number = self._column(instruction.number)
            instruction.products = self._terms(instruction.products)
            instruction.plains = self._terms(instruction.plains)

    def _terms(self, terms: Terms | None) -> Terms | None:
        if terms is None:
            return None
        owners, *columns = (self._column(c) for c in (terms.owners, *terms.columns))
        return replace(terms, owners=owners, columns=tuple(columns))

    def _column(self, column: Addresses) -> Addresses:
        """The column as if iterations -1, -2 and so on had existed."""
        if len(column) % self.count:
            raise NotLiftable("the iterations of a loop differ")
        rows = column.reshape(self.count, -1)
        middle = self.count // 2
        step = rows[middle + 1] - rows[middle]
        wanted: Addresses = rows[middle] + np.arange(-middle, self.count - middle)[:, None] * step
        of = np.searchsorted(self.fronts, rows[middle], side="right") - 1
        own = (of >= 0) & (rows[middle] < (self.starts + self.each * self.count)[of])
        if (own & (step != self.each[of])).any():
            raise NotLiftable("a loop reads irregular places")
        where = np.argwhere(rows != wanted)
        if len(where) > rows.size // 2:
            raise NotLiftable("a loop reads irregular places")
        for k, j in where.tolist():
            target, source = int(wanted[k, j]), int(rows[k, j])
            known = self.known
            if own[j]:
                known = self.copies
                if k < self.reach and self.fronts[of[j]] <= target < self.starts[of[j]]:
                    known.setdefault(target, source)
            if known.get(target) != source:
                raise NotLiftable("a loop reads irregular places")
        return wanted.ravel()

    def beginnings(self) -> Iterator[Instruction]:
        """The instructions that copy initial values to where the first iterations read them."""
        targets = np.array(sorted(self.copies), np.int64)
        for front, instruction in zip(self.fronts.tolist(), self.core, strict=True):
            mine = targets[(targets >= front) & (targets < instruction.start)]
            if not len(mine):
                continue
            out = np.arange(mine[0], mine[-1] + 1)
            nearest = mine[np.searchsorted(mine, out, side="right") - 1]  # gaps are never read
            sources = np.array([self.copies[t] for t in nearest.tolist()], np.int64)
            key = (instruction.key[0] + (1 << 96), *instruction.key[1:])
            made = Instruction(key, SUM, int(out[0]), len(out))
            made.plains = Terms(out, (sources,), 1)
            yield made
