"""What of a recording with loops in time is done before a loop, in it, and after it.

In: a canonical ``Graph`` and its loops. Out: a stage for every node: even ones are done at once,
odd ones iteration by iteration. Only what lies on the way from an earlier iteration to a later one
has to be done in turn, the core of a loop; what only leads to it, or only comes from it, is done
for all iterations together, before or after. Every instruction of a core has as many numbers in
each iteration, and every column of addresses moves on by constant steps. Where the first iterations
read what was there before, that is copied to where results of iterations -1, -2 and so on would be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from chainrule.compiler.lift.graph import CONSTANT, SUM, Graph, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Program, Terms
from chainrule.compiler.lift.time_loop import Loop, after_cycles


def stages(graph: Graph) -> Addresses:
    """The stage of every node: 2L before loop L, 2L + 1 in it."""
    stage = np.zeros(len(graph), np.int64)
    if not graph.loops:
        return stage
    used, users = _edges(graph)
    for number, loop in enumerate(graph.loops):
        stage[graph.origin >= loop.stop] = 2 * number + 2
        inside = (graph.origin >= loop.start) & (graph.origin < loop.stop)
        slot = np.where(inside, (graph.origin - loop.start) % loop.period, -1)
        chosen = inside[used] & inside[users] & (graph.kinds[used] > CONSTANT)
        edges = np.unique(slot[used[chosen]] * loop.period + slot[users[chosen]])
        source, target = np.divmod(edges, loop.period)
        down, up = (
            after_cycles(source, target, loop.period),
            after_cycles(target, source, loop.period),
        )
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
    """Levels of nodes, equal within a group, by which the groups of a stage can be done in turn."""
    group = np.full(len(graph), -1, np.int64)
    for k, nodes in enumerate(groups):
        group[nodes] = k
    used, users = _edges(graph)
    one, other = (graph.iterations[graph.origin[nodes]] for nodes in (used, users))
    kept = (group[used] >= 0) & (stage[used] == stage[users])
    kept &= (stage[users] % 2 == 0) | (one == other)  # a loop reads what it made before
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
    """How many of a core's nodes of one shape each iteration has."""
    iteration = (graph.origin[nodes] - loop.start) // loop.period
    each = len(nodes) // loop.count
    if len(nodes) % loop.count or (iteration != np.arange(loop.count).repeat(each)).any():
        raise NotLiftable("the iterations of a loop differ")
    return each


class Straight:
    """The columns of one loop's core, moved on by constant steps."""

    def __init__(
        self, core: list[Instruction], count: int, reach: int, known: dict[int, int]
    ) -> None:
        """``known``: what earlier loops copy, by the address where it goes."""
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
        """The column as it is if iterations -1, -2 and so on had been there."""
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
        """The instructions that copy what is there before the loop to where it is read."""
        targets = np.array(sorted(self.copies), np.int64)
        for front, instruction in zip(self.fronts.tolist(), self.core, strict=True):
            mine = targets[(targets >= front) & (targets < instruction.start)]
            if not len(mine):
                continue
            out = np.arange(mine[0], mine[-1] + 1)
            nearest = mine[np.searchsorted(mine, out, side="right") - 1]  # holes: nobody reads them
            sources = np.array([self.copies[t] for t in nearest.tolist()], np.int64)
            key = (instruction.key[0] + (1 << 96), *instruction.key[1:])
            made = Instruction(key, SUM, int(out[0]), len(out))
            made.plains = Terms(out, (sources,), 1)
            yield made


def verify(program: Program) -> None:
    """NotLiftable unless everything is computed before it is read."""
    made = np.full(program.size, -1, np.int64)  # the instruction, and for a core the iteration
    when = np.zeros(program.size, np.int64)
    for k, instruction in enumerate(program.instructions):
        made[instruction.out] = k
        if instruction.loop is not None:
            count = program.loops[instruction.loop].count
            when[instruction.out] = np.arange(count).repeat(instruction.count // count)
    for k, instruction in enumerate(program.instructions):
        for column in _columns(instruction):
            late = made[column] >= k
            if instruction.loop is not None:
                loop = program.loops[instruction.loop]
                now = np.arange(loop.count).repeat(len(column) // loop.count)
                same = (made[column] >= loop.first) & (made[column] < loop.last)
                late = np.where(same & (when[column] != now), when[column] > now, late)
            if (
                late.any()
                or (made[column[column >= program.shared + len(program.private)]] < 0).any()
            ):
                raise NotLiftable("a loop reads what comes later")


def _columns(instruction: Instruction) -> list[Addresses]:
    columns = list(instruction.columns)
    for terms in (instruction.products, instruction.plains):
        columns += list(terms.columns) if terms is not None else []
    return columns
