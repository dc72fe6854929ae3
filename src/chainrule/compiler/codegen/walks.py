"""The loops over an instruction's points, which the forward and the backward pass share.

A point is one result, one operand of a rule, or one term of a sum. In: columns of addresses of an
instruction, an entry for each point. Out: ``Walk``s, each with its loops: one for all points, or
several where a column lies partly in the shared array, or is partly computed in a loop in time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chainrule.compiler.codegen.row_tables import RowTable, kinds_of
from chainrule.compiler.lift.alignment import ITERATIONS
from chainrule.compiler.lift.endings import copied_by
from chainrule.compiler.lift.graph import GATHER, SUM, NotLiftable
from chainrule.compiler.lift.program import Addresses, Program
from chainrule.compiler.lift.strides import (
    IterationSpace,
    Repeated,
    iteration_space,
    repeated,
    table,
)

FEW_POINTS = 64  # a sum of at most so many terms is walked by a table where it is irregular
MOST_POINTS = 64  # irregular terms of sums that are emitted one by one
FEW_SOURCES = 8  # a sum reads at most so many instructions in separate loops
MOST_NUMBERS = 1 << 17  # in N, where rows are data

#: the columns that another call walks in the place of an instruction's; None: it does not do it
Others = Callable[[int, str], list[Addresses] | None]


@dataclass(frozen=True)
class Trip:
    """A loop to emit; its count is a register where it is known only at run time."""

    count: int | str
    most: int
    strides: tuple[int, ...]

    @property
    def fixed(self) -> bool:
        """Whether its count is known at compile time."""
        return isinstance(self.count, int)


@dataclass(eq=False)
class Walk:
    """Some points of an instruction, their columns of addresses, and their loops."""

    slot: int  # index in N of the run-time count of its outermost loop
    instruction: int
    what: str  # which points: "out" (results), "products", "plains", "guards", "iterations"
    chosen: Addresses | None  # which of these points; None: all
    columns: list[Addresses]
    shared: list[bool]  # per column
    space: IterationSpace
    varies: bool  # with the length of the arguments
    core: list[bool] = field(default_factory=list)  # per column: computed in the same loop in time
    steps: list[int] = field(default_factory=list)  # per column, from one iteration to the next
    iterations: int = 1  # with steps, these are the points of the first of so many
    again: Repeated | None = None  # the same points, to be emitted one by one in one loop
    rows: RowTable | None = None  # these are data, where another length has others

    def count(self, points: int) -> int | None:
        """The outermost trip count of a call in which the instruction has this many points."""
        points //= self.iterations
        if self.chosen is not None:
            points = int(np.searchsorted(self.chosen, points))
        return points if self.what in ("guards", ITERATIONS) else self.space.outer(points)


class Walks:
    """Every walk of a program, for both passes."""

    def __init__(
        self,
        program: Program,
        varying: set[tuple[int, str]],
        contract: bool = True,
        batch: int = 1,
        others: Others | None = None,
    ) -> None:
        """``others``: the columns of a shorter call; rows are data then, as they differ."""
        self.program, self.others = program, others
        # In N: of each instruction how many results there are, if rows are data; then the walks.
        self.numbers = 0 if others is None else len(program.instructions)
        self._in_lanes = batch > 1
        self.varying = varying
        self.contract = contract  # products and sums may be fused, and sums reordered
        self.all: list[Walk] = []
        self._known: dict[tuple[int, str], list[Walk]] = {}
        self._sliced: dict[tuple[int, str], list[Walk]] = {}
        self._core: dict[int, npt.NDArray[np.bool_]] = {}
        self.scratch = 0  # numbers after all others that hold transposed copies

    def of(self, instruction: int, what: str, columns: Sequence[Addresses]) -> list[Walk]:
        """The walks over these columns: one, or several where a column is only partly shared."""
        key = (instruction, what)
        if key not in self._known and self._has_rows(instruction):
            self._known[key] = self._in_rows(key, columns)
        if key not in self._known:
            apart = key in self.varying and what in ("products", "plains")
            kinds = np.zeros(1, np.int64)
            if apart or not all(map(self._is_of_one_kind, columns)):
                bits = [c < self.program.shared for c in columns]
                kinds = np.sum([b.astype(np.int64) << k for k, b in enumerate(bits)], axis=0)
            if apart:
                kinds = kinds + (self._sources(instruction, columns) << len(columns))
            if (kinds == kinds[0]).all():
                self._known[key] = [self._walk(key, columns, None)]
            else:
                self._known[key] = [
                    self._walk(key, [c[chosen] for c in columns], chosen)
                    for kind in np.unique(kinds)
                    for chosen in [np.flatnonzero(kinds == kind)]
                ]
        return self._known[key]

    def _is_of_one_kind(self, column: Addresses) -> bool:
        """Whether all of these numbers are shared, or none."""
        low, high = column.min(), column.max()
        return bool(low >= self.program.shared or high < self.program.shared)

    def _has_rows(self, instruction: int) -> bool:
        """Whether the rows of its walks are data; of gathers and guards only the number is."""
        instructions = self.program.instructions
        here = self.others is not None and instruction < len(instructions)
        return here and instructions[instruction].kind != GATHER

    def _take(self, count: int) -> int:
        """Room for so many numbers in N."""
        self.numbers += count
        return self.numbers - count

    def _in_rows(self, key: tuple[int, str], columns: Sequence[Addresses]) -> list[Walk]:
        """The walks over these columns and those of a shorter call, with rows that are data."""
        assert self.others is not None
        (k, what), own = key, self.program.shared
        theirs = self.others(k, what)
        if theirs is None:
            raise NotLiftable("another length lacks an operation")
        kinds, made = kinds_of(columns, own), list[Walk]()
        for kind in np.unique(kinds).tolist():
            table = RowTable.of(kind, own, columns, theirs, merge=what == "out")
            chosen = np.flatnonzero(kinds == kind)
            some = [c[chosen] for c in columns]
            which = None if len(chosen) == len(kinds) else chosen
            slot = self._take(table.size)
            made.append(Walk(slot, *key, which, some, table.shared, table.space, True, rows=table))
        if self.numbers > MOST_NUMBERS:
            raise NotLiftable("another length differs in too many places")
        self.all += made
        return made

    def _sources(self, instruction: int, columns: Sequence[Addresses]) -> Addresses:
        """Per term of sums that grow with the length: a number for the instructions it reads.

        A term that every length has and terms of which there are as many as positions are separate
        loops.
        """
        grows = self.program.instructions[instruction]
        nothing = np.zeros(len(columns[0]), np.int64)
        if not (grows.reordered or self.program.ended) or grows.kind != SUM:
            return nothing
        starts = np.array([i.start for i in self.program.instructions])
        places = np.stack([np.searchsorted(starts, c, side="right") for c in columns])
        found: Addresses = np.unique(places, axis=1, return_inverse=True)[1].ravel()
        return found if found.max() < FEW_SOURCES else nothing

    def in_loop(
        self, instruction: int, what: str, columns: Sequence[Addresses], sliced: bool
    ) -> list[Walk]:
        """The walks of an instruction in a loop in time; ``sliced``: over one iteration only.

        In each walk a column is computed wholly in the loop, or not at all.
        """
        key, known = (instruction, what), self._sliced if sliced else self._known
        if key not in known:
            number = self.program.instructions[instruction].loop
            assert number is not None
            count = self.program.loops[number].count
            rows = [c.reshape(count, -1) for c in columns]
            steps = np.stack([r[-1] - r[-2] for r in rows])
            core = np.stack([self.core(number)[r[-1]] for r in rows])
            shared = np.stack([r[-1] < self.program.shared for r in rows])
            _, kind, sizes = np.unique(
                np.vstack([steps, core, shared]), axis=1, return_inverse=True, return_counts=True
            )
            known[key] = []
            for k in np.argsort(-sizes, kind="stable").tolist():
                chosen = np.flatnonzero(kind.ravel() == k)
                inner = [bool(c[chosen[0]]) for c in core]
                if sliced:
                    walk = self._walk(key, [r[0, chosen] for r in rows], chosen, varies=False)
                    walk.steps, walk.iterations = steps[:, chosen[0]].tolist(), count
                else:
                    every = np.arange(count)[:, None] * len(kind.ravel()) + chosen
                    walk = self._walk(key, [r[:, chosen].ravel() for r in rows], every.ravel())
                walk.core = inner
                known[key].append(walk)
        return known[key]

    def transposed(self, walk: Walk) -> tuple[Walk, Walk] | None:
        """For a matrix that each iteration multiplies by: a walk over its transposed copy, and one
        that copies it.

        In the copy, factors of neighbouring results lie side by side.
        """
        if walk.space.rows != 1 or len(walk.space.loops) != 2:
            return None
        outer, inner = walk.space.loops
        for c in (1, 2):
            kept = walk.steps[c] == 0 and not walk.core[c] and outer.strides[3 - c] == 0
            rows = (outer.strides[0], inner.strides[0], inner.strides[c]) == (1, 0, 1)
            if not kept or not rows or outer.strides[c] < 2 or outer.count < 4:
                continue
            order = np.arange(outer.count * inner.count).reshape(outer.count, inner.count).T.ravel()
            copy = np.empty(len(order), np.int64)
            copy[order] = self.program.size + self.scratch + np.arange(len(order))
            self.scratch += len(order)
            key = (walk.instruction, walk.what)
            columns = [copy if k == c else column for k, column in enumerate(walk.columns)]
            made = self._walk(key, columns, walk.chosen, varies=False)
            made.steps, made.core = walk.steps, walk.core
            whole = [copy[order], walk.columns[c][order]]
            copying = self._walk(key, whole, walk.chosen, varies=False)
            made.iterations = copying.iterations = walk.iterations
            return made, copying
        return None

    def turns(self, number: int) -> Walk | None:
        """The iterations of a loop in time, as a walk, if their number is known at run time."""
        key = (self.program.loops[number].first, ITERATIONS)
        if key not in self.varying:
            return None
        if key not in self._known:
            nothing = table([np.zeros(1, np.int64)])
            self._known[key] = [Walk(self._take(1), *key, None, [], [], nothing, True)]
            self.all += self._known[key]
        return self._known[key][0]

    def ending(self, instruction: int) -> Walk:
        """The walk of a copy of the last iteration of a loop, as a step of that iteration."""
        key = (instruction, "out")
        if key not in self._known:
            copy = self.program.instructions[instruction]
            source, ago = copied_by(copy, self.program)
            start = self.program.instructions[source].start - ago * copy.count
            columns = [copy.out, start + np.arange(copy.count)]
            walk = self._walk(key, columns, None, varies=False)
            walk.steps = [0, copy.count]
            self._known[key] = [walk]
        return self._known[key][0]

    def core(self, number: int) -> npt.NDArray[np.bool_]:
        """Per address: whether a loop in time computes it, or it is its value before the loop."""
        if number not in self._core:
            loop = self.program.loops[number]
            made = self._core[number] = np.zeros(self.program.size, np.bool_)
            for instruction in self.program.instructions[loop.first : loop.last]:
                front = loop.reach * (instruction.count // loop.count)
                made[instruction.start - front : instruction.start + instruction.count] = True
        return self._core[number]

    def _is_one_sum(self, key: tuple[int, str], owners: Addresses) -> bool:
        """Whether these are the few terms of one sum."""
        number, what = key
        terms = what != "out" and number < len(self.program.instructions)
        is_sum = terms and self.program.instructions[number].kind == SUM
        return is_sum and len(owners) <= FEW_POINTS and bool((owners == owners[0]).all())

    def _walk(
        self,
        key: tuple[int, str],
        columns: Sequence[Addresses],
        chosen: Addresses | None,
        varies: bool = True,
    ) -> Walk:
        """A walk; ``varies``: with the length, if its points do."""
        varies = varies and key in self.varying
        shared = [bool(c[0] < self.program.shared) for c in columns]
        local = [c if s else c - self.program.shared for c, s in zip(columns, shared, strict=True)]
        found = iteration_space(local)
        lengths = range(1, len(columns[0]) + 1)
        # A shorter call may end after any term of one sum.
        ends = varies and self._is_one_sum(key, columns[0])
        if ends and not all(map(found.outer, lengths)):
            found = table(local)
        walk = Walk(self._take(1), *key, chosen, list(columns), shared, found, varies)
        if found.rows > 1 and self._may_repeat(key):
            walk.again = repeated(local, MOST_POINTS)
        self.all.append(walk)
        return walk

    def _may_repeat(self, key: tuple[int, str]) -> bool:
        """Whether the terms of sums may be walked in another order: in lanes of whole samples.

        Without lanes there are better ones among the terms themselves.
        """
        number, what = key
        if not self._in_lanes or not self.contract or key in self.varying:
            return False
        if what not in ("products", "plains") or number >= len(self.program.instructions):
            return False
        instruction = self.program.instructions[number]
        return instruction.kind == SUM and instruction.loop is None
