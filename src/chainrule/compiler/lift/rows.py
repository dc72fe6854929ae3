"""Columns of addresses as rows that are data: one code for two calls and those like them.

In: the columns of one instruction in a long call and in a shorter one. Out: a ``RowSpace``: the
loops of constant strides and trip counts that both have, around which there are rows, each with a
base address per column and the length of a run. Rows are numbers that machine code reads, so that
their count, their bases and their lengths may be others in every call: the keys that a query meets,
where the last position is. ``rows_of`` finds those of a call, or that it has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chainrule.compiler.lift.graph import NotLiftable
from chainrule.compiler.lift.program import Addresses, ranges
from chainrule.compiler.lift.strides import IterationSpace, StridedLoop


def common_space(
    shorter: Sequence[Addresses], longer: Sequence[Addresses], merge: bool
) -> IterationSpace:
    """The loops that the columns of two calls have in common, with the rows of the longer one.

    ``merge``: a run goes on through the loops in it, where these are one longer run.
    """
    tables = [np.stack([np.asarray(c, np.int64) for c in x]) for x in (shorter, longer)]
    loops: list[StridedLoop] = []
    while (found := _loop_of_both(tables)) is not None:
        loops.insert(0, found)
        tables = [table[:, :: found.count] for table in tables]
    columns = len(tables[0])
    run: tuple[int, ...] = (0,) * columns
    lengths = [np.ones(table.shape[1], np.int64) for table in tables]
    steps = np.concatenate([np.diff(table, axis=1) for table in tables], axis=1)
    has_run = False
    if steps.shape[1]:
        middle = steps.shape[1] // 2
        stride = np.partition(steps, middle, axis=1)[:, middle]
        found_runs = [_runs(table, stride) for table in tables]
        points = sum(table.shape[1] for table in tables)
        if sum(len(starts) for starts, _ in found_runs) * 2 <= points + 1:
            has_run, run = True, tuple(stride.tolist())
            tables = [
                table[:, starts] for table, (starts, _) in zip(tables, found_runs, strict=True)
            ]
            lengths = [x for _, x in found_runs]
    if has_run and merge:
        while loops and run == tuple([s * loops[0].count for s in loops[0].strides]):
            lengths = [x * loops[0].count for x in lengths]
            run = loops.pop(0).strides
    middles: list[StridedLoop] = []
    if has_run:
        stacked = [np.vstack(x) for x in zip(tables, lengths, strict=True)]
        while (found := _loop_of_both(stacked)) is not None and found.strides[-1] == 0:
            middles.insert(0, StridedLoop(found.count, found.strides[:-1]))
            stacked = [table[:, :: found.count] for table in stacked]
        tables, lengths = [x[:-1] for x in stacked], [x[-1] for x in stacked]
    return IterationSpace(
        np.ascontiguousarray(tables[1].T),
        lengths[1] if has_run else None,
        run,
        tuple(loops),
        tuple(middles),
    )


def rows_of(space: IterationSpace, columns: Sequence[Addresses]) -> Addresses:
    """The rows of a call's columns, each its length and its bases; NotLiftable if it has none."""
    table = np.stack([np.asarray(c, np.int64) for c in columns])
    if not table.shape[1]:
        return np.zeros((0, 1 + len(columns)), np.int64)
    for loop in reversed(space.loops):
        table = _without(loop, table)
    lengths = np.ones(table.shape[1], np.int64)
    if space.lengths is not None:
        starts, lengths = _runs(table, np.array(space.run))
        table = table[:, starts]
        for loop in reversed(space.middle):
            stacked = _without(
                StridedLoop(loop.count, (*loop.strides, 0)), np.vstack([table, lengths])
            )
            table, lengths = stacked[:-1], stacked[-1]
    return np.ascontiguousarray(np.vstack([lengths, table]).T)


def points_of(space: IterationSpace, rows: Addresses) -> Addresses:
    """Every address that such rows walk, [column, point]: the inverse of ``rows_of``."""
    table, lengths = rows[:, 1:].T, rows[:, 0]
    for loop in space.middle:
        table, lengths = _with(loop, table), np.repeat(lengths, loop.count)
    if space.lengths is not None:
        steps = np.array(space.run, np.int64)[:, None] * ranges(np.zeros_like(lengths), lengths)
        table = np.add(np.repeat(table, lengths, axis=1), steps, dtype=np.int64)
    for loop in space.loops:
        table = _with(loop, table)
    return table


def _with(loop: StridedLoop, table: Addresses) -> Addresses:
    """What a loop makes of each point of a table."""
    steps = np.array(loop.strides)[:, None] * np.arange(loop.count)
    made: Addresses = (table[:, :, None] + steps[:, None, :]).reshape(len(table), -1)
    return made


def _without(loop: StridedLoop, table: Addresses) -> Addresses:
    """What is left of a table without its innermost loop; NotLiftable if that is another one."""
    if table.shape[1] % loop.count:
        raise NotLiftable("another length goes another way")
    parts = table.reshape(len(table), -1, loop.count)
    if (np.diff(parts, axis=2) != np.array(loop.strides)[:, None, None]).any():
        raise NotLiftable("another length goes another way")
    return np.ascontiguousarray(parts[:, :, 0])


def _loop_of_both(tables: list[Addresses]) -> StridedLoop | None:
    """The innermost loop of one trip count that two tables consist of.

    What has another length in each is no such loop, even where the lengths have a common divisor.
    """
    if any(table.shape[1] < 2 for table in tables):
        return None
    first, counts = tables[0][:, 1] - tables[0][:, 0], set[int]()
    for table in tables:
        ends = np.flatnonzero((np.diff(table, axis=1) != first[:, None]).any(axis=0)) + 1
        ends = np.append(ends, table.shape[1])
        counts |= {int(np.gcd.reduce(ends)), int(np.diff(ends, prepend=0).min())}
    (count, *others) = counts
    return None if others or count == 1 else StridedLoop(count, tuple(first.tolist()))


def _runs(table: Addresses, stride: Addresses) -> tuple[Addresses, Addresses]:
    """Where maximal runs with this stride begin, and how long they are."""
    breaks = np.flatnonzero((np.diff(table, axis=1) != stride[:, None]).any(axis=0)) + 1
    starts = np.concatenate([[0], breaks]).astype(np.int64)
    return starts, np.diff(np.append(starts, table.shape[1]))
