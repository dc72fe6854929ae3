"""Samples through the code of one variant, block by block, in several threads.

In: a ``LaneCode``, samples, and which of them to compute. Out: their values and gradients, and
which samples it could not compute: their branches go another way, or a number is not finite.
Blocks depend on the work alone and are added up in their order: the same bits whatever the number
of threads. Machine code runs without the interpreter lock.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.mapping.lane_code import Arenas, LaneCode
from chainrule.compiler.mapping.loop_code import address
from chainrule.compiler.mapping.stacks import Layout, Rows, Source
from chainrule.compiler.runtime.machine import beyond
from chainrule.compiler.workers import in_order
from chainrule.trees import Array, Floats

THREADS = "CHAINRULE_THREADS"  # in the environment: how many, where nobody says
BLOCKS = 32  # so that all threads have work until the end
MOST_SAMPLES = 1 << 14  # in a block: what is prepared for one takes a bounded amount of memory
MOST_BYTES = 1 << 24  # likewise
WORK = 8_000_000  # numbers for a thread, and for a block, at least: about a millisecond

NONE = np.zeros(0, np.int64)
_NO_TOTALS = np.zeros(0)
NOTHING = np.zeros((0, 0), np.int64)


def thread_count(threads: int | None) -> int:
    """How many threads to use: what was asked for, or the environment says, or all cores."""
    if threads is None:
        text = os.environ.get(THREADS)
        if text is None:
            if hasattr(os, "sched_getaffinity"):
                return len(os.sched_getaffinity(0))
            return os.cpu_count() or 1
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"{THREADS} is a whole number above 0, not {text!r}")
        return int(text)
    if isinstance(threads, bool) or not isinstance(threads, (int, np.integer)):
        raise TypeError(f"threads is a whole number above 0, not a {type(threads).__name__}")
    if threads < 1:
        raise ValueError(f"threads is a whole number above 0, not {threads}")
    return int(threads)


try:
    thread_count(None)
except ValueError as error:  # where it can still be set right
    raise ImportError(str(error)) from None


@dataclass(frozen=True, eq=False)
class Block:
    """What some samples gave in total, and those that were not computed."""

    value: float
    gradient: Floats
    left: Addresses


@dataclass(frozen=True, eq=False)
class Destination:
    """Where the results of each sample go: rows of two arrays, None where only totals count."""

    values: Floats | None
    gradients: Floats | None


_NO_LAYOUT, _NOWHERE = Layout((), ()), Destination(None, None)


class Blocks:
    """Samples of one kind on their way through machine code."""

    def __init__(
        self,
        code: LaneCode,
        inputs: Floats,
        integers: Sequence[int],
        layout: Layout,
        to: Destination,
    ) -> None:
        """``inputs`` and ``integers``: of any of the samples, for what all of them share."""
        self._code = code
        counted = bool(integers or code.recording.selection.numbers)
        self._ints = np.array(integers, np.int64) if counted else None
        self._others = [s for s in layout.floats if not _is_direct(s.array)]
        direct = [s for s in layout.floats if _is_direct(s.array)]
        self._sources = [self._source(s.array, s.count, self._moved(s)) for s in direct]
        self._fields = {  # of the loop
            "shared": address(code.shared),
            "own_total_count": code.totals if code.has_own_parameters else 0,
            "shared_total_count": 0 if code.has_own_parameters else code.totals,
        }
        self._size = 0  # of a block
        self._free: list[_Worker] = []
        self._begin(inputs, layout, to)

    def _begin(self, inputs: Floats, layout: Layout, to: Destination) -> None:
        self._inputs, self._layout, self._to = inputs, layout, to
        self._code.share(inputs)
        code, rows, gradients = self._code, to.values is not None, to.gradients is not None
        self._widths = len(code.outputs) if rows else 0, code.parameters if gradients else 0
        self._results = (
            0 if to.values is None else address(to.values),
            0 if to.gradients is None else address(to.gradients),
        )

    def again(self, inputs: Floats, layout: Layout, to: Destination) -> bool:
        """The same with other inputs, and other arrays of the same kinds; False: they are not."""
        arrays = [source.array for source in layout.floats]
        if self._others or self._ints is not None or not all(map(_is_direct, arrays)):
            return False
        self._sources = [
            (address(array), array.strides[0], count, target)
            for array, (_, _, count, target) in zip(arrays, self._sources, strict=True)
        ]
        self._begin(inputs, layout, to)
        return True

    def let_go(self) -> None:
        """Keep no array of the user's."""
        self._layout, self._to = _NO_LAYOUT, _NOWHERE

    # --- blocks and threads -----------------------------------------------------------------------

    def run(self, rows: Rows, threads: int) -> Iterator[Block]:
        """The blocks of these samples, in order."""
        self._size = size = self._block_size(len(rows))
        parts = [rows[at : at + size] for at in range(0, len(rows), size)]
        worth = max(1, len(rows) * self._code.work // WORK)
        yield from in_order(self._block, parts, min(threads, len(parts), worth))

    def close(self) -> None:
        """Give back what threads computed in, for the next time."""
        self._code.free.extend(self._free)

    def _new_worker(self) -> _Worker:
        code = self._code
        worker: _Worker = code.free.pop() if code.free else _Worker(Arenas(code))
        worker.arenas.set(**self._fields)
        worker.inputs = None
        return worker

    def _block_size(self, count: int) -> int:
        """How many samples make a block: the same for any number of threads."""
        lanes = self._code.lanes
        held = sum([s.count for s in (*self._others, *self._layout.integers)]) + self._code.held
        blocks = min(BLOCKS, count * self._code.work // WORK)
        blocks = 1 << max(0, blocks.bit_length() - 1)  # so that 2, 4 or 8 threads have as many each
        size = min(-(-count // blocks), MOST_SAMPLES, MOST_BYTES // (8 * held + 8))
        return max(1, -(-size // lanes)) * lanes

    def _block(self, rows: Rows) -> Block:
        """Compute some samples. Those that shared a group with others that go another way run again
        without these.
        """
        worker = self._free.pop() if self._free else self._new_worker()
        worker.make_room(self._size)
        if worker.inputs is not self._inputs:
            self._code.fill(worker.arenas, self._inputs)
            worker.inputs = self._inputs
        worker.arenas.clear()
        ready = self._ready(rows)
        left: list[Addresses] = []
        places: Addresses | None = None  # all of them
        if ready.known is not None and not ready.known.all():
            places = np.flatnonzero(ready.known)
            left.append(np.asarray(rows)[~ready.known])
        for last in (False, True):
            if places is not None and not len(places):
                break
            flags = self._compute(worker, rows, places, ready)
            if not np.count_nonzero(flags):
                break
            tried = np.arange(len(rows)) if places is None else places
            again = (flags != 0.0) & np.isfinite(flags) & (not last)
            left.append(np.asarray(rows)[tried[(flags != 0.0) & ~again]])
            places = tried[again]
        value, gradient = (0.0, _NO_TOTALS) if self._to.values is not None else worker.arenas.totals
        self._free.append(worker)
        return Block(value, gradient, np.sort(np.concatenate(left)) if left else NONE)

    # --- one block --------------------------------------------------------------------------------

    def _ready(self, some: Rows) -> _Ready:
        """What machine code reads of some samples, beside the arrays that it reads as they are."""
        uses_math = self._code.variant.uses_math or self._code.variant.is_derivative
        dtype = self._code.machine.dtype
        looks = uses_math or dtype != "float64"
        if self._ints is None and not self._others and not looks:
            return _AS_THEY_ARE
        rows, known = np.asarray(some), np.ones(len(some), np.bool_)
        tables = [(_as_rows(s.array[rows]), self._moved(s)) for s in self._others]
        for source in self._layout.floats if looks else ():
            numbers = _as_rows(source.array[rows])
            known &= ~beyond(dtype, numbers).any(axis=1)
            if uses_math:  # which holds for finite data only
                known &= np.isfinite(numbers).all(axis=1)
        gathered = NOTHING
        if self._ints is not None:
            ids = np.tile(self._ints, (len(rows), 1))
            for source in self._layout.integers:
                taken = source.array[rows].reshape(len(rows), -1)
                ids[:, source.first : source.first + source.count] = taken
            decided = self._code.decide(ids)
            known &= decided.known
            numbers = np.concatenate([ids.astype(np.float64), decided.numbers], axis=1)
            inputs = self._code.recording.inputs
            tables.append((numbers, inputs - numbers.shape[1]))
            gathered = decided.gathered
        return _Ready(known, tables, gathered)

    def _compute(
        self, worker: _Worker, rows: Rows, places: Addresses | None, ready: _Ready
    ) -> Floats:
        """Compute the samples at some places of a block; 0 for each that is done.

        For the others, a number that is finite where it is not known to be in the way.
        """
        code, lanes, arenas = self._code, self._code.lanes, worker.arenas
        count = len(rows) if places is None else len(places)
        groups, first_row = -(-count // lanes), 0
        at_places, at_rows, at_flags = worker.addresses
        if places is None and isinstance(rows, range) and count % lanes == 0:
            # Samples one after the other: the same index for every block, from its first row on.
            first_row, at_places, at_rows = rows.start, worker.in_order, worker.in_order
        else:
            index, chosen = (x[: groups * lanes] for x in (worker.index, worker.rows))
            index[:count] = worker.places[:count] if places is None else places
            index[count:] = index[count - 1]
            np.take(np.asarray(rows), index, out=chosen)
        # Lanes that are left over repeat a sample: it is added up once, but has one gradient.
        last = lanes if self._to.values is not None else count - (groups - 1) * lanes
        if last != worker.last:
            arenas.seeds[lanes:] = np.arange(lanes) < last
            worker.last = last
        sources = [
            (base + first_row * stride, at_rows, stride, *rest)
            for base, stride, *rest in self._sources
        ]
        for table, first in ready.tables:
            base, *rest = self._source(table, table.shape[1], first)
            sources.append((base, at_places, *rest))
        table = np.array(sources, np.int64)
        arenas.set(
            sources=address(table),
            source_count=len(sources),
            places=at_places,
            gathered=address(ready.gathered) if len(ready.gathered) else 0,
            gather_bytes=ready.gathered.shape[1] * 8,
            rows=at_rows,
            flags=at_flags,
            groups=groups,
            values=self._results[0] + 8 * first_row * self._widths[0],
            gradients=self._results[1] + 8 * first_row * self._widths[1],
            output_count=self._widths[0],
            gradient_count=self._widths[1],
        )
        code.compute(arenas)
        return worker.flags[:count]

    def _moved(self, source: Source) -> int:
        """The first input of a sample that an array gives."""
        return self._code.split.moved_one(source.first)

    def _source(self, array: Array, count: int, first: int) -> tuple[int, int, int, int]:
        """An array as the loop reads it, without which of its rows: see ``loop_code.SOURCE``."""
        target = int(self._code.private.searchsorted(first))
        return address(array), array.strides[0], count, target


class _Worker:
    """What one thread computes blocks with, one after the other."""

    flags = np.zeros(0)

    def __init__(self, arenas: Arenas) -> None:
        self.arenas = arenas
        self.inputs: Floats | None = None  # what its lanes have copies of
        self.last = 0  # lanes of the last group that are samples of their own
        self.make_room(1)

    def make_room(self, size: int) -> None:
        """Be ready for a block of so many samples."""
        if len(self.flags) >= size:
            return
        self.places = np.arange(size)
        self.index, self.rows = (np.empty(size, np.int64) for _ in range(2))
        self.flags = np.empty(size)
        self.addresses = [address(x) for x in (self.index, self.rows, self.flags)]
        self.in_order = address(self.places)


@dataclass(frozen=True, eq=False)
class _Ready:
    """What was prepared for a block."""

    known: npt.NDArray[np.bool_] | None  # whether the integers of a sample are this variant's
    tables: list[tuple[Array, int]]  # numbers, a row for each sample, and their first input
    gathered: Addresses  # what integers select


_AS_THEY_ARE = _Ready(None, [], NOTHING)


def _is_direct(array: Array) -> bool:
    """Whether machine code can read the rows of an array where they are."""
    return array.dtype == np.float64 and (
        array.flags.c_contiguous or bool(array[:1].flags.c_contiguous)
    )


def _as_rows(some: Array) -> Floats:
    return np.ascontiguousarray(some.reshape(len(some), -1), np.float64)
