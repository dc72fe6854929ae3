"""Loops of machine code over columns of addresses, and the one emitter of sums of products.

In: columns of addresses, and what to do at each point. Out: loops in a ``Code``. Everything that
adds up products is one form, O[..] += A[..] * B[..] over strided loops: forward sums, both of their
adjoints, broadcasts and biases. It chooses the dimension of the lanes, keeps a tile of results in
registers, and finishes with narrower vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.group import Addresses, Program
from chainrule.compiler.index import Loop, space
from chainrule.compiler.ir import Code, Terms, Vector

Body = Callable[[list[Terms], tuple[Loop, ...]], None]
Lanes = Callable[[list[Terms], list[int], int], None]


class Emitter:
    """Writes the loops of one function."""

    def __init__(self, program: Program, width: int) -> None:
        self.program = program
        self.code = Code()
        self.width = width

    # --- loops ------------------------------------------------------------------------------------

    def nest(self, columns: Sequence[Addresses], body: Body) -> None:
        """Loops over the rows and runs of some columns; the body gets the rest."""
        found = space(columns)
        code = self.code
        if found.rows == 1:
            run = () if found.lengths is None else (Loop(int(found.lengths[0]), found.run),)
            body([[(None, int(base))] for base in found.bases[0]], run + found.loops)
            return
        with code.loop(found.rows) as row:
            terms = [self._column(found.bases[:, c], row) for c in range(len(columns))]
            if found.lengths is None:
                body(terms, found.loops)
                return
            with code.loop(code.table(found.lengths, row)) as step:
                body([[*t, (step, s)] for t, s in zip(terms, found.run, strict=True)], found.loops)

    def _column(self, bases: Addresses, row: str) -> Terms:
        """A base address per row: by a stride where there is one, else from a table."""
        steps = np.diff(bases)
        if (steps == steps[0]).all():
            return [(None, int(bases[0])), (row, int(steps[0]))]
        return [(self.code.table(bases, row), 1)]

    def over(
        self, loops: Sequence[Loop], terms: list[Terms], body: Callable[[list[Terms]], None]
    ) -> None:
        """All of some loops, outermost first."""
        if not loops:
            body(terms)
            return
        with self.code.loop(loops[0].count) as i:
            moved = [[*t, (i, s)] for t, s in zip(terms, loops[0].strides, strict=True)]
            self.over(loops[1:], moved, body)

    def chunks(self, count: int) -> list[tuple[int, int]]:
        """Offsets and widths that cover ``count`` lanes: whole vectors, then powers of two."""
        found, at, width = [], 0, self.width
        while at < count:
            while width > count - at:
                width //= 2
            found.append((at, width))
            at += width
        return found

    # --- elementwise ------------------------------------------------------------------------------

    def elementwise(self, columns: Sequence[Addresses], body: Lanes) -> None:
        """The body once per vector: ``body(terms, strides of the lanes, width)``."""

        def inner(terms: list[Terms], loops: tuple[Loop, ...]) -> None:
            lanes = [each for each in loops if each.strides[0] == 1 and set(each.strides) <= {0, 1}]
            if not lanes:
                self.over(loops, terms, lambda t: body(t, [0] * len(t), 1))
                return
            lane = max(lanes, key=lambda each: each.count)
            rest = [each for each in loops if each is not lane]
            self.over(rest, terms, lambda t: self.lanes(lane, t, body))

        self.nest(columns, inner)

    def lanes(self, lane: Loop, terms: list[Terms], body: Lanes) -> None:
        """One loop as vectors: whole ones, then narrower ones."""
        strides, whole = list(lane.strides), lane.count // self.width
        start = 0
        if whole > 2:
            with self.code.loop(whole) as i:
                moved = [[*t, (i, s * self.width)] for t, s in zip(terms, strides, strict=True)]
                body(moved, strides, self.width)
            start = whole * self.width
        for at, width in self.chunks(lane.count - start):
            shift = start + at
            body(
                [[*t, (None, s * shift)] for t, s in zip(terms, strides, strict=True)],
                strides,
                width,
            )

    def read(self, array: str, terms: Terms, stride: int, width: int) -> Vector:
        """A vector, or one number in every lane."""
        if stride or width == 1:
            return self.code.load(array, terms, width)
        return self.code.load(array, terms, 1).splat(width)

    # --- contractions -----------------------------------------------------------------------------

    def contract(
        self,
        arrays: Sequence[str],
        columns: Sequence[Addresses],
        accumulate: bool,
    ) -> None:
        """O += A * B (or O += A) along columns of addresses; O, A, B in these arrays."""
        targets = columns[0]

        def inner(terms: list[Terms], loops: tuple[Loop, ...]) -> None:
            outer = [each for each in loops if each.strides[0] != 0]
            points = int(np.prod([each.count for each in outer], dtype=np.int64))
            if len(loops) and overlaps(outer, points):
                # Two points of the loops are one address: add through memory, one by one.
                self.over(loops, terms, lambda t: self._add_product(arrays, t, accumulate=True))
                return
            self._block(arrays, terms, loops, accumulate)

        if not accumulate and space(columns).rows > 1:
            self.clear(arrays[0], np.unique(targets))
            accumulate = True
        self.nest(columns, inner)

    def clear(self, array: str, targets: Addresses) -> None:
        """Zero a row of neighbouring addresses."""
        zero = self.code.constant(0.0, 1)
        with self.code.loop(len(targets)) as i:
            self.code.store(array, [(None, int(targets[0])), (i, 1)], zero)

    def _add_product(self, arrays: Sequence[str], terms: list[Terms], accumulate: bool) -> None:
        value = self.code.load(arrays[1], terms[1])
        old = self.code.load(arrays[0], terms[0]) if accumulate else None
        if len(arrays) == 3:
            factor = self.code.load(arrays[2], terms[2])
            value = self.code.fma(value, factor, old) if old is not None else value * factor
        elif old is not None:
            value = value + old
        self.code.store(arrays[0], terms[0], value)

    def _block(
        self, arrays: Sequence[str], terms: list[Terms], loops: tuple[Loop, ...], accumulate: bool
    ) -> None:
        """Choose what the lanes are and what stays in registers, then loop over the rest."""
        outer = [each for each in loops if each.strides[0] != 0]
        inner = [each for each in loops if each.strides[0] == 0]
        across = [
            each for each in outer if each.strides[0] == 1 and set(each.strides[1:]) <= {0, 1}
        ]
        along = [each for each in inner if set(each.strides[1:]) == {1}]
        lane = max(across, key=lambda each: each.count, default=None)
        reduced = False
        if lane is None or (lane.count < 4 and any(each.count >= 4 for each in along)):
            best = max(along, key=lambda each: each.count, default=None)
            if best is not None and best.count >= 4:
                lane, reduced = best, True
        rest = [each for each in outer if each is not lane]
        sums = [each for each in inner if each is not lane]
        blocks: list[tuple[Loop, int]] = []
        if sums or reduced:
            vectors = 1 if reduced or lane is None else min(2, max(1, lane.count // self.width))
            room = 8 // vectors
            for loop in sorted(rest, key=lambda each: (0 not in each.strides[1:], -each.count))[:2]:
                size = min(loop.count, 4, room)
                if size > 1:
                    blocks.append((loop, size))
                    room //= size
        for loop, _ in blocks:
            rest = [each for each in rest if each is not loop]
        kernel = _Kernel(self, arrays, lane, reduced, sums, accumulate)
        self.over(rest, terms, lambda t: self._tiles(blocks, [], t, kernel))

    def _tiles(
        self,
        blocks: list[tuple[Loop, int]],
        chosen: list[tuple[Loop, int]],
        terms: list[Terms],
        kernel: _Kernel,
    ) -> None:
        """Loops over whole tiles, and once more for what is left over."""
        if not blocks:
            kernel.emit(terms, chosen)
            return
        (loop, size), others = blocks[0], blocks[1:]
        whole, left = divmod(loop.count, size)

        def at(register: str | None, factor: int) -> list[Terms]:
            return [[*t, (register, s * factor)] for t, s in zip(terms, loop.strides, strict=True)]

        if whole == 1:
            self._tiles(others, [*chosen, (loop, size)], terms, kernel)
        elif whole:
            with self.code.loop(whole) as i:
                self._tiles(others, [*chosen, (loop, size)], at(i, size), kernel)
        if left:
            self._tiles(others, [*chosen, (loop, left)], at(None, whole * size), kernel)


class _Kernel:
    """The innermost part of a contraction: a tile of results held in registers."""

    def __init__(
        self,
        emitter: Emitter,
        arrays: Sequence[str],
        lane: Loop | None,
        reduced: bool,
        sums: list[Loop],
        accumulate: bool,
    ) -> None:
        self.emitter, self.code = emitter, emitter.code
        self.arrays, self.lane, self.reduced = arrays, lane, reduced
        self.sums, self.accumulate = sums, accumulate

    def emit(self, terms: list[Terms], blocks: list[tuple[Loop, int]]) -> None:
        points: list[tuple[int, ...]] = [(0,) * len(terms)]
        for loop, size in blocks:
            points = [
                tuple(p + i * s for p, s in zip(point, loop.strides, strict=True))
                for point in points
                for i in range(size)
            ]
        if self.lane is None:
            self._tile(terms, points, [(0, 1)])
        elif self.reduced:
            self._reduced_tile(terms, points)
        else:
            step = 2 * self.emitter.width
            whole = self.lane.count // step
            if whole > 1:
                with self.code.loop(whole) as i:
                    moved = self._moved(terms, [(i, step)])
                    self._tile(moved, points, self.emitter.chunks(step))
                left = self.lane.count - whole * step
                if left:
                    moved = self._moved(terms, [(None, whole * step)])
                    self._tile(moved, points, self.emitter.chunks(left))
            else:
                self._tile(terms, points, self.emitter.chunks(self.lane.count))

    def _moved(self, terms: list[Terms], steps: list[tuple[str | None, int]]) -> list[Terms]:
        assert self.lane is not None
        return [
            t + [(register, s * factor) for register, factor in steps]
            for t, s in zip(terms, self.lane.strides, strict=True)
        ]

    def _stride(self, column: int) -> int:
        return self.lane.strides[column] if self.lane is not None else 0

    def _reader(self, terms: list[Terms]) -> Callable[[int, tuple[int, ...], int, int], Vector]:
        """Loads of this place in the code, each done once."""
        done: dict[Any, Vector] = {}

        def read(column: int, point: tuple[int, ...], at: int, width: int) -> Vector:
            stride = self._stride(column)
            key = (column, point[column], at if stride else None, width)
            if key not in done:
                place = terms[column] + [(None, point[column] + at * stride)]
                if stride or width == 1:
                    done[key] = self.code.load(self.arrays[column], place, width)
                else:
                    single = (column, point[column], None, 1)
                    if single not in done:
                        done[single] = self.code.load(self.arrays[column], place, 1)
                    done[key] = done[single].splat(width)
            return done[key]

        return read

    def _term(
        self, read: Any, point: tuple[int, ...], at: int, width: int, old: Vector | None
    ) -> Vector:
        value: Vector = read(1, point, at, width)
        if len(self.arrays) == 3:
            factor = read(2, point, at, width)
            return value * factor if old is None else self.code.fma(value, factor, old)
        return value if old is None else value + old

    def _tile(
        self, terms: list[Terms], points: list[tuple[int, ...]], chunks: list[tuple[int, int]]
    ) -> None:
        keys = [(point, at, width) for point in points for at, width in chunks]
        if not self.sums:
            read = self._reader(terms)
            for point, at, width in keys:
                old = read(0, point, at, width) if self.accumulate else None
                self._store(terms, point, at, self._term(read, point, at, width, old))
            return
        totals = [self.code.variable(self.code.constant(0.0, width)) for _, _, width in keys]

        def add(moved: list[Terms]) -> None:
            read = self._reader(moved)
            for (point, at, width), total in zip(keys, totals, strict=True):
                total.set(self._term(read, point, at, width, total.get()))

        self.emitter.over(self.sums, terms, add)
        read = self._reader(terms)
        for (point, at, width), total in zip(keys, totals, strict=True):
            value = total.get()
            if self.accumulate:
                value = value + read(0, point, at, width)
            self._store(terms, point, at, value)

    def _store(self, terms: list[Terms], point: tuple[int, ...], at: int, value: Vector) -> None:
        place = terms[0] + [(None, point[0] + at * self._stride(0))]
        self.code.store(self.arrays[0], place, value)

    def _reduced_tile(self, terms: list[Terms], points: list[tuple[int, ...]]) -> None:
        """The lanes run along the sum; they are added up at the end."""
        assert self.lane is not None
        parts: dict[int, list[int]] = {}
        for at, width in self.emitter.chunks(self.lane.count):
            parts.setdefault(width, []).append(at)
        results: list[Vector | None] = [None] * len(points)
        for width, places in parts.items():
            totals = [self.code.variable(self.code.constant(0.0, width)) for _ in points]

            def add(moved: list[Terms], at: int, width: int = width, totals: Any = totals) -> None:
                read = self._reader(moved)
                for point, total in zip(points, totals, strict=True):
                    total.set(self._term(read, point, at, width, total.get()))

            def addends(moved: list[Terms], places: list[int] = places, width: int = width) -> None:
                if len(places) > 4:
                    with self.code.loop(len(places)) as i:
                        add(self._moved(moved, [(i, width), (None, places[0])]), 0, width)
                else:
                    for at in places:
                        add(moved, at, width)

            self.emitter.over(self.sums, terms, addends)
            for k, total in enumerate(totals):
                whole = total.get().total()
                results[k] = whole if results[k] is None else results[k] + whole
        for point, result in zip(points, results, strict=True):
            assert result is not None
            place = terms[0] + [(None, point[0])]
            if self.accumulate:
                result = result + self.code.load(self.arrays[0], place)
            self.code.store(self.arrays[0], place, result)


def overlaps(loops: list[Loop], points: int) -> bool:
    """Whether the results' address comes twice in these loops."""
    addresses = np.zeros(1, np.int64)
    for loop in loops:
        addresses = (addresses[:, None] + loop.strides[0] * np.arange(loop.count)).ravel()
    return len(np.unique(addresses)) != points
