"""Columns of addresses as loops with constant strides.

In: columns of addresses that are walked together (an instruction's results and operands, or the
terms of sums). Out: an ``IterationSpace``: rows with a base address per column, a run whose length
may differ from row to row, and loops of fixed trip counts inside, in all of which every address
moves by a constant stride. A matrix product is one row and three loops; causal attention is ragged
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.lift.program import Addresses


@dataclass(frozen=True)
class StridedLoop:
    """A fixed trip count, and how far each column's address moves per trip."""

    count: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class IterationSpace:
    """Rows of base addresses, a run in each row, and loops around and inside the runs."""

    bases: Addresses  # [row, column]
    lengths: Addresses | None  # of the run of each row; None: there is no run
    run: tuple[int, ...]  # its strides
    loops: tuple[StridedLoop, ...]  # outermost first
    middle: tuple[StridedLoop, ...] = ()  # between the rows and the run

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.bases)

    @property
    def kind(self) -> str:
        """affine, ragged or table."""
        return "affine" if self.rows == 1 else "ragged" if self.lengths is not None else "table"

    def __str__(self) -> str:
        loops = " ".join(f"×{loop.count}{list(loop.strides)}" for loop in self.loops)
        return f"{self.kind} {self.rows} rows {loops}"

    def addresses(self) -> Addresses:
        """Every address that is walked, [column, point]: the inverse of ``iteration_space``."""
        rows = []
        for r in range(self.rows):
            points = self.bases[r][:, None]
            run = () if self.lengths is None else (StridedLoop(int(self.lengths[r]), self.run),)
            for loop in (*self.middle, *run, *self.loops):
                steps = np.arange(loop.count)
                points = points[:, :, None] + np.array(loop.strides)[:, None, None] * steps
                points = points.reshape(len(points), -1)
            rows.append(points)
        return np.concatenate(rows, axis=1)

    def outer(self, points: int) -> int | None:
        """The trip count of the outermost loop (or rows) that walks the first ``points`` points.

        None where they end within it.
        """
        if self.rows == 1:
            inner = int(np.prod([loop.count for loop in self.loops[1:]], dtype=np.int64))
            count = 1 if not self.loops else self.loops[0].count
            return points // inner if points % inner == 0 and points <= count * inner else None
        inner = int(np.prod([loop.count for loop in (*self.middle, *self.loops)], dtype=np.int64))
        lengths = np.ones(self.rows, np.int64) if self.lengths is None else self.lengths
        ends = np.concatenate([[0], np.cumsum(lengths * inner)])
        row = int(np.searchsorted(ends, points))
        return row if row < len(ends) and ends[row] == points else None

    def select(self, columns: Sequence[int], keep_outer: bool = False) -> IterationSpace:
        """The space of some of the columns; ``keep_outer``: do not merge the outermost loop."""
        chosen = list(columns)
        loops, middle = (
            [StridedLoop(x.count, tuple([x.strides[c] for c in chosen])) for x in some]
            for some in (self.loops, self.middle)
        )
        kept = 1 if keep_outer and self.rows == 1 else 0
        loops = loops[:kept] + _merged(loops[kept:])
        run = tuple([self.run[c] for c in chosen])
        return IterationSpace(self.bases[:, chosen], self.lengths, run, tuple(loops), tuple(middle))


def iteration_space(columns: Sequence[Addresses]) -> IterationSpace:
    """The loops that walk these columns in order."""
    table: Addresses = np.stack(columns)  # of narrow addresses a narrow one
    loops: list[StridedLoop] = []
    while table.shape[1] > 1:
        peeled = _innermost(table) or _common(table)
        if peeled is None:
            break
        loop, table = peeled
        loops.insert(0, loop)
    lengths, run = None, (0,) * len(table)
    if table.shape[1] > 3:
        starts, counts, strides = _runs(table)
        if len(starts) * 2 <= table.shape[1]:
            table, lengths, run = table[:, starts], counts, strides
    if lengths is not None and len(lengths) == 1:
        loops.insert(0, StridedLoop(int(lengths[0]), run))
        lengths, run = None, (0,) * len(table)
    middle: list[StridedLoop] = []
    while lengths is not None and len(lengths) > 1:  # neighbouring rows of one length
        peeled = _innermost(np.vstack([table, lengths]))
        if peeled is None or peeled[0].strides[-1] != 0:
            break
        loop, rows = peeled
        table, lengths = rows[:-1], rows[-1]
        middle.insert(0, StridedLoop(loop.count, loop.strides[:-1]))
    if lengths is not None and len(lengths) == 1:
        loops = [*middle, StridedLoop(int(lengths[0]), run), *loops]
        lengths, run, middle = None, (0,) * len(table), []
    bases = np.ascontiguousarray(table.T, np.int64)
    return IterationSpace(bases, lengths, run, tuple(_merged(loops)), tuple(middle))


def table(columns: Sequence[Addresses]) -> IterationSpace:
    """The same columns without loops, a row for each point."""
    bases = np.stack([np.asarray(c, np.int64) for c in columns], axis=1)
    return IterationSpace(np.ascontiguousarray(bases), None, (0,) * len(columns), ())


@dataclass(frozen=True, eq=False)
class Repeated:
    """Few points that come again and again, each of them by strides of its own."""

    bases: Addresses  # [point, column]
    steps: Addresses  # likewise: how far it moves each time
    count: int


def repeated(columns: Sequence[Addresses], most: int) -> Repeated | None:
    """The columns as at most so many points that come again and again; None where they are not."""
    table = np.stack([np.asarray(c, np.int64) for c in columns], axis=1)
    for points in range(2, min(most, len(table) // 2) + 1):
        if len(table) % points:
            continue
        parts = table.reshape(-1, points, len(columns))
        steps = parts[1] - parts[0]
        if (np.diff(parts, axis=0) == steps).all():
            return Repeated(parts[0], steps, len(parts))
    return None


def _innermost(table: Addresses) -> tuple[StridedLoop, Addresses] | None:
    """The innermost loop of fixed length, and what is left without it."""
    first = table[:, 1] - table[:, 0]
    count = _steady(table, first)
    if count == 1 or table.shape[1] % count:
        return None
    parts = table.reshape(len(table), -1, count)
    if not (np.diff(parts, axis=2) == first[:, None, None]).all():
        return None
    return StridedLoop(count, tuple(first.tolist())), np.ascontiguousarray(parts[:, :, 0])


def _common(table: Addresses) -> tuple[StridedLoop, Addresses] | None:
    """A loop that all stretches of the first stride are made of, if it is not a part of a run.

    Lanes of sums of many lengths: the first two lengths may look like one longer loop.
    """
    first = table[:, 1] - table[:, 0]
    breaks = np.flatnonzero((np.diff(table, axis=1) != first[:, None]).any(axis=0)) + 1
    count = int(np.gcd.reduce(breaks, initial=table.shape[1]))
    if count == 1 or count == table.shape[1]:
        return None
    outer = np.ascontiguousarray(table[:, ::count])
    steps = np.diff(outer, axis=1)
    middle = steps.shape[1] // 2
    if (np.partition(steps, middle, axis=1)[:, middle] == count * first.astype(np.int64)).all():
        return None
    return StridedLoop(count, tuple(first.tolist())), outer


def _steady(table: Addresses, stride: Addresses) -> int:
    """How many of the first points are this stride apart."""
    at, size = 1, 64
    while at < table.shape[1]:
        piece = np.diff(table[:, at - 1 : at + size], axis=1) != stride[:, None]
        breaks = np.flatnonzero(piece.any(axis=0))
        if len(breaks):
            return at + int(breaks[0])
        at, size = at + size, size * 4
    return int(table.shape[1])


def _runs(table: Addresses) -> tuple[Addresses, Addresses, tuple[int, ...]]:
    """Maximal runs with the most frequent stride: their starts, lengths, and that stride.

    One that most points have is the median of every column; fewer would not be worth it.
    """
    steps = np.diff(table, axis=1)
    middle = steps.shape[1] // 2
    stride = np.partition(steps, middle, axis=1)[:, middle]
    breaks = np.flatnonzero((steps != stride[:, None]).any(axis=0)) + 1
    starts = np.concatenate([[0], breaks])
    return starts, np.diff(np.concatenate([starts, [table.shape[1]]])), tuple(stride.tolist())


def _merged(loops: list[StridedLoop]) -> list[StridedLoop]:
    """The loops, with neighbours merged that are one longer loop."""
    merged: list[StridedLoop] = []
    for loop in loops:
        outer = merged[-1] if merged else None
        if outer is not None and all(
            a == b * loop.count for a, b in zip(outer.strides, loop.strides, strict=True)
        ):
            merged[-1] = StridedLoop(outer.count * loop.count, loop.strides)
        else:
            merged.append(loop)
    return merged
