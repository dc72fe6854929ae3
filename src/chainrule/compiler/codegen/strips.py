"""Runs of independent elements as machine code that keeps an element's numbers in registers.

In: a ``Run`` of an array program. Out: for each of its strips one loop, whose body is straight-line
code for as many elements as a vector has lanes. What only the run itself reads is never stored. The
last vector of elements begins earlier where they are no multiple of it: some are computed twice.
Sums are added up term by term, in order, fused where that is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.codegen.contraction import VALUE, Emitter
from chainrule.compiler.codegen.instructions import FEW_TERMS, Machine, as_vector, rule_of
from chainrule.compiler.codegen.ir import Offset
from chainrule.compiler.codegen.tiles import joined
from chainrule.compiler.codegen.vectors import Variable, Vector, shuffled
from chainrule.compiler.lift.graph import EXTREME, SUM
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.lift.strips import Point, Run, Source, Strip
from chainrule.core import ops

MOST_INLINED = 16  # elementary functions of an element that are inlined: calls spill registers
CHAINS = 4  # flags that take turns, so that no check waits for the last
MOST_APART = 8  # numbers of one element that are stored side by side, lane after lane


def emit_run(
    emitter: Emitter, run: Run, made: Machine, watched: Sequence[bool], flags: dict[int, Any]
) -> None:
    """The loops of a run; ``watched``: per instruction, whether its results are checked."""
    made.stripped |= set(run.instructions)
    for strip in run.strips:
        width = emitter.width
        while width > strip.count:
            width //= 2
        rules = [emitter.program.instructions[p.instruction].rule for p in strip.points]
        calls = sum(rule not in (None, ops.add, ops.mul) for rule in rules)
        inlining = emitter.code.inlining() if calls <= MOST_INLINED else nullcontext()
        vectors = -(-strip.count // width)
        stored = _stored(emitter, strip, made)
        checks = _flags(emitter, width, flags)
        with inlining, emitter.code.loop(vectors) as i:
            at = emitter.code.let(f"mul nuw nsw i64 {i}, {width}")
            if strip.count % width:
                last, code = strip.count - width, emitter.code
                inside = code.let(f"icmp ult i64 {at}, {last}")
                at = code.let(f"select i1 {inside}, i64 {at}, i64 {last}")
            _Lanes(emitter, strip, stored, at, width, watched, checks).emit()


def _flags(emitter: Emitter, width: int, flags: dict[int, Any]) -> list[Variable]:
    """The flags for vectors of this width; they begin before any loop."""
    found = []
    for n in range(CHAINS):
        key = -1 - n - CHAINS * width
        if key not in flags:
            flags[key] = emitter.code.variable(emitter.code.constant(0.0, width))
        found.append(flags[key])
    return found


def _stored(emitter: Emitter, strip: Strip, made: Machine) -> dict[int, Column]:
    """Per point that is stored: where. Results lie side by side, after all other numbers."""
    found = {}
    program = emitter.program
    for n, point in enumerate(strip.points):
        if point.is_kept:
            found[n] = Column.of(emitter, point.out)
        elif point.is_result:
            there = program.size + emitter.walks.scratch + np.arange(strip.count)
            emitter.walks.scratch += strip.count
            made.moved.append((point.out, there))
            found[n] = Column.of(emitter, there)
    return found


@dataclass(frozen=True)
class Column:
    """An address for each element: a base, and how far each element is from it."""

    array: str
    base: int  # of the first element, within the array
    stride: int | None  # from one element to the next; None: by a table
    distances: bytes  # the table, as the key of what has the same one

    @classmethod
    def of(cls, emitter: Emitter, addresses: Addresses) -> Column:
        """The column of these addresses, all of them of one array."""
        shared = bool(addresses[0] < emitter.program.shared)
        first = int(addresses[0]) - (0 if shared else emitter.program.shared)
        distances = (addresses - addresses[0]).astype(np.int64)
        step = int(distances[1]) if len(distances) > 1 else 0
        even = bool((distances == step * np.arange(len(distances))).all())
        key = distances.tobytes()
        return cls(VALUE[0 if shared else 1], first, step if even else None, key)

    @property
    def table(self) -> Addresses:
        """How far each element is from the first."""
        return np.frombuffer(self.distances, np.int64)


class _Lanes:
    """As many elements as a vector has lanes, from element ``at`` on: one trip of a loop."""

    def __init__(
        self,
        emitter: Emitter,
        strip: Strip,
        stored: dict[int, Column],
        at: str,
        width: int,
        watched: Sequence[bool],
        flags: list[Variable],
    ) -> None:
        self.emitter, self.strip, self.code = emitter, strip, emitter.code
        self.at, self.width, self.watched = at, width, watched
        self.values: list[Vector] = []
        self._loaded: dict[Column, Vector] = {}
        self._columns = {id(c): Column.of(emitter, c) for c in strip.outside}
        self._indices: dict[bytes, list[str]] = {}
        self._windows = _windows(emitter, set(self._columns.values()), width)
        self._stored = _neighbours(stored)
        self._flags, self._checks = flags, 0

    def emit(self) -> None:
        """All points in order."""
        for n, point in enumerate(self.strip.points):
            self.values.append(self._result(point))
            if self.watched[point.instruction]:
                self._check(self.values[-1])
            if n in self._stored:
                self._store(*self._stored[n])

    def _check(self, value: Vector) -> None:
        flag = self._flags[self._checks % CHAINS]
        flag.set(self.code.fma(value, value, flag.get()))
        self._checks += 1

    # --- numbers ----------------------------------------------------------------------------------

    def _result(self, point: Point) -> Vector:
        instruction = self.emitter.program.instructions[point.instruction]
        xs = [self._value(source) for source in point.operands]
        if instruction.kind == SUM:
            return self._sum([(self._value(a), self._value(b)) for a, b in point.products], xs)
        rule = rule_of(instruction)
        if instruction.kind != EXTREME:
            return as_vector(self.code, rule(*xs, *instruction.parameters), self.width)
        for source, x in zip(point.operands, xs, strict=True):
            if not isinstance(source, int):
                self._check(x)  # it may hide a nan
        best = xs[0]
        for x in xs[1:]:
            better = x > best if rule is ops.first_max else x < best
            best = better.choose(x, best)
        return best

    def _sum(self, pairs: list[tuple[Vector, Vector]], plains: list[Vector]) -> Vector:
        """Products first, then plain terms; many of those by themselves, as elsewhere."""
        fused, total = self.emitter.walks.contract, None
        for a, b in pairs:
            if total is None:
                total = a * b
            else:
                total = self.code.fma(a, b, total) if fused else a * b + total
        if fused and total is not None and len(plains) > FEW_TERMS:
            rest = plains[0]
            for x in plains[1:]:
                rest = rest + x
            return rest + total
        for x in plains:
            total = x if total is None else total + x
        assert total is not None
        return total

    # --- memory -----------------------------------------------------------------------------------

    def _value(self, source: Source) -> Vector:
        if isinstance(source, int):
            return self.values[source]
        column = self._columns[id(source)]
        if column not in self._loaded:
            if column in self._windows:
                self._load_rows(*self._windows[column])
            else:
                self._loaded[column] = self._load(column)
        return self._loaded[column]

    def _load(self, column: Column) -> Vector:
        if column.stride == 0:
            return self.code.load(column.array, [(None, column.base)]).splat(self.width)
        if column.stride == 1 or self.width == 1:
            return self.code.load(column.array, self._place(column, 0), self.width)
        lanes = [self.code.load(column.array, self._place(column, n)) for n in range(self.width)]
        return joined(lanes)

    def _place(self, column: Column, lane: int, by: int = 0) -> Offset:
        """Where a lane's number is, or what is ``by`` places after it."""
        if column.stride is not None:
            constant = column.base + lane * column.stride + by
            return [(self.at, column.stride), (None, constant)]
        return [(self._index(column, lane), 1), (None, column.base + by)]

    def _index(self, column: Column, lane: int) -> str:
        known = self._indices.setdefault(column.distances, [])
        while len(known) <= lane:
            at = self.code.let(f"add nuw nsw i64 {self.at}, {len(known)}")
            known.append(self.code.table(column.table, at))
        return known[lane]

    def _load_rows(self, first: Column, by: int, size: int, columns: list[Column]) -> None:
        """Numbers that every element has side by side: a row for each lane, transposed."""
        rows = [
            self.code.load(first.array, self._place(first, lane, by), size)
            for lane in range(self.width)
        ]
        found = transposed(rows)
        for column in columns:
            self._loaded[column] = found[column.base - first.base - by]

    def _store(self, columns: list[Column], points: list[int]) -> None:
        """Store numbers that lie side by side: all columns of a stride, or one."""
        first, count, width = columns[0], len(columns), self.width
        values = [self.values[n] for n in points]
        if count == 1:
            if first.stride == 1 or width == 1:
                self.code.store(first.array, self._place(first, 0), values[0])
                return
            for lane, x in enumerate(values[0].lanes()):
                self.code.store(first.array, self._place(first, lane), x)
            return
        for n in range(count):
            places = [divmod(n * width + q, count) for q in range(width)]  # (lane, which value)
            there: Offset = [(self.at, count), (None, first.base + n * width)]
            self.code.store(first.array, there, _picked(values, places))


def _picked(values: list[Vector], places: list[tuple[int, int]]) -> Vector:
    """One vector of lanes of several."""
    wanted = sorted({which for _, which in places})
    found, width = values[wanted[0]], values[0].width
    for n, which in enumerate(wanted[1:]):
        known = set(wanted[: n + 1])
        picks = [
            width + lane if w == which else (q if n else lane) if w in known else 0
            for q, (lane, w) in enumerate(places)
        ]
        found = shuffled(found, values[which], picks)
    return found


def transposed(rows: list[Vector]) -> list[Vector]:
    """From a row for each lane, a power of two of them, to a vector for each place in the rows."""
    width, size = len(rows), rows[0].width
    found = []
    for m in range(size):
        parts = rows[m::size]
        while len(parts) > 1:
            both = range(2 * parts[0].width)
            pairs = zip(parts[::2], parts[1::2], strict=True)
            parts = [shuffled(a, b, both) for a, b in pairs]
        found.append(parts[0])
    step = 1
    while step < size:
        for m in range(size):
            if m & step:
                continue
            a, b = found[m], found[m | step]
            low = [width + q - step if q & step else q for q in range(width)]
            high = [width + q if q & step else q + step for q in range(width)]
            found[m], found[m | step] = shuffled(a, b, low), shuffled(a, b, high)
        step *= 2
    return found


def _windows(
    emitter: Emitter, columns: set[Column], width: int
) -> dict[Column, tuple[Column, int, int, list[Column]]]:
    """Per column that is read with its neighbours: one of them, where from there the row of all
    begins, how long it is, and who is in it.
    """
    program = emitter.program
    groups: dict[tuple[str, bytes], list[Column]] = {}
    for column in columns:
        if column.stride not in (0, 1) and width > 1:
            groups.setdefault((column.array, column.distances), []).append(column)
    found = {}
    for (array, _), some in groups.items():
        some.sort(key=lambda column: column.base)
        end = program.shared if array == VALUE[0] else program.size - program.shared
        room = end - int(some[0].table.max())  # for a base and what is read from there on
        while some:
            first = some[0]
            near = [column for column in some if column.base < first.base + width]
            size = 1
            while size <= near[-1].base - first.base:
                size *= 2
            begin = min(first.base, room - size)
            if len(near) * 2 > size > 1 and begin + int(first.table.min()) >= 0:
                near = [column for column in near if column.base < begin + size]
                for column in near:
                    found[column] = (first, begin - first.base, size, near)
            some = some[len(near) :]
    return found


def _neighbours(stored: dict[int, Column]) -> dict[int, tuple[list[Column], list[int]]]:
    """What to store once a point is computed: it, or the points that fill a stride with it."""
    kept = {column: n for n, column in stored.items()}
    found: dict[int, tuple[list[Column], list[int]]] = {}
    done: set[Column] = set()
    for column in sorted(kept, key=lambda column: column.base):
        if column in done:
            continue
        some, stride = [column], column.stride
        if stride is not None and 1 < stride <= MOST_APART:
            places = {(c.stride, c.base): c for c in kept if c not in done}
            whole = [places.get((stride, column.base + n)) for n in range(stride)]
            if None not in whole:
                some = [c for c in whole if c is not None]
        done |= set(some)
        numbers = [kept[c] for c in some]
        found[max(numbers)] = (some, numbers)
    return found
