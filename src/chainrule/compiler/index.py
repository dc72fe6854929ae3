"""Columns of addresses as loops.

In: some columns that are walked together (an instruction's results and operands, or the terms of
sums). Out: a ``Space``: rows with a base address per column each, a run of a length that may differ
from row to row, and loops of fixed trip counts inside, in all of which every address moves by a
constant stride. A matrix product is one row and three loops; causal attention is ragged rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.group import Addresses


@dataclass(frozen=True)
class Loop:
    """A fixed trip count, and how far each column's address moves."""

    count: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Space:
    """Rows of bases (a row per line, a column per column), run lengths, inner loops."""

    bases: Addresses
    lengths: Addresses | None  # of the run of each row; None: there is no run
    run: tuple[int, ...]  # its strides
    loops: tuple[Loop, ...]  # outermost first

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
        """Every address again, a line per column: what the space stands for."""
        rows = []
        for r in range(self.rows):
            points = self.bases[r][:, None]
            if self.lengths is not None:
                steps = np.arange(self.lengths[r])
                points = (points[:, :, None] + np.array(self.run)[:, None, None] * steps).reshape(
                    len(points), -1
                )
            for loop in self.loops:
                steps = np.arange(loop.count)
                points = points[:, :, None] + np.array(loop.strides)[:, None, None] * steps
                points = points.reshape(len(points), -1)
            rows.append(points)
        return np.concatenate(rows, axis=1)


def space(columns: Sequence[Addresses]) -> Space:
    """The loops that walk these columns in order."""
    table = np.stack([np.asarray(c, np.int64) for c in columns])
    loops: list[Loop] = []
    while table.shape[1] > 1:
        peeled = _innermost(table)
        if peeled is None:
            break
        loop, table = peeled
        loops.insert(0, loop)
    lengths, run = None, (0,) * len(table)
    if table.shape[1] > 3:
        starts, counts, strides = _runs(table)
        if len(starts) * 2 <= table.shape[1]:
            table, lengths, run = table[:, starts], counts, strides
    return Space(np.ascontiguousarray(table.T), lengths, run, tuple(_merged(loops)))


def _innermost(table: Addresses) -> tuple[Loop, Addresses] | None:
    """The innermost loop of fixed length, and what is left without it."""
    steps = np.diff(table, axis=1)
    breaks = np.flatnonzero((steps != steps[:, :1]).any(axis=0))
    count = int(breaks[0]) + 1 if len(breaks) else table.shape[1]
    if count == 1 or table.shape[1] % count:
        return None
    parts = table.reshape(len(table), -1, count)
    expected = parts[:, :, :1] + steps[:, :1, None] * np.arange(count)
    if not np.array_equal(parts, expected):
        return None
    return Loop(count, tuple(steps[:, 0].tolist())), np.ascontiguousarray(parts[:, :, 0])


def _runs(table: Addresses) -> tuple[Addresses, Addresses, tuple[int, ...]]:
    """Starts and lengths of maximal runs with the commonest stride of all columns."""
    steps = np.diff(table, axis=1)
    kinds, counts = np.unique(steps, axis=1, return_counts=True)
    stride = kinds[:, counts.argmax()]
    breaks = np.flatnonzero((steps != stride[:, None]).any(axis=0)) + 1
    starts = np.concatenate([[0], breaks])
    return starts, np.diff(np.concatenate([starts, [table.shape[1]]])), tuple(stride.tolist())


def _merged(loops: list[Loop]) -> list[Loop]:
    """Neighbouring loops that are one longer loop, as one."""
    merged: list[Loop] = []
    for loop in loops:
        outer = merged[-1] if merged else None
        if outer is not None and all(
            a == b * loop.count for a, b in zip(outer.strides, loop.strides, strict=True)
        ):
            merged[-1] = Loop(outer.count * loop.count, loop.strides)
        else:
            merged.append(loop)
    return merged
