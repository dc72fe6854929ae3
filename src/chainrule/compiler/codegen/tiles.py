"""The innermost part of a contraction: a tile of results held in registers.

In: the loops of a sum, and which of them becomes the lanes. Out: code that adds up a tile of
results and stores them. The lanes are neighbouring results; or they run along the sum, and are
added up at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from chainrule.compiler.codegen.ir import Offset, Vector
from chainrule.compiler.codegen.pairs import Pair, picked, sums_of_segments
from chainrule.compiler.codegen.vectors import shuffled
from chainrule.compiler.codegen.walks import Trip
from chainrule.core import ops

if TYPE_CHECKING:
    from chainrule.compiler.codegen.contraction import Emitter

CHAINS = 4  # partial sums in a loop in time, so that not every addition waits for the last
Place = tuple[int, int]  # how far it moves in each trip of a loop, and where it is in the first
MOST_UNROLLED = 32  # a sum of at most so many terms is unrolled for that


class Tile:
    """A tile of the results of a contraction."""

    def __init__(
        self,
        emitter: Emitter,
        arrays: Sequence[str],
        lane: Trip | None,
        reduced: bool,
        sums: list[Trip],
        accumulate: bool,
        padded: bool = False,
    ) -> None:
        """``padded``: operands along the lanes can be read beyond their end."""
        self.emitter, self.code = emitter, emitter.code
        self.arrays, self.lane, self.reduced = arrays, lane, reduced
        self.sums, self.accumulate = sums, accumulate
        self.largest: bool | None = None  # if set: the largest or smallest term, no sum
        self._padded = padded
        self._ends: dict[int, int] = {}  # of a vector that is not whole: how many lanes count

    def emit(self, offsets: list[Offset], blocks: list[tuple[Trip, int]]) -> None:
        """One tile: so many trips of some outer loops, and all of the sums."""
        points: list[tuple[int, ...]] = [(0,) * len(offsets)]
        for loop, size in blocks:
            points = [
                tuple(p + i * s for p, s in zip(point, loop.strides, strict=True))
                for point in points
                for i in range(size)
            ]
        if self.lane is None:
            self._tile(offsets, points, [(0, 1)])
        elif isinstance(self.lane, Pair) and self.lane.is_sum:
            self._segmented_tile(self.lane, offsets, points)
        elif self.reduced:
            self._reduced_tile(offsets, points)
        else:
            step = 2 * self.emitter.width
            whole = self.lane.most // step
            if whole > 1:
                with self.code.loop(whole) as i:
                    moved = self._moved(offsets, [(i, step)])
                    self._tile(moved, points, self._chunks(step))
                left = self.lane.most - whole * step
                if left:
                    moved = self._moved(offsets, [(None, whole * step)])
                    self._tile(moved, points, self._chunks(left))
            else:
                self._tile(offsets, points, self._chunks(self.lane.most))

    def emit_sums(self, i: str, sums: dict[Place, list[list[Place]]]) -> None:
        """Sums of some terms each, by their targets, in trip ``i`` of a loop; lanes are samples."""
        assert self.lane is not None
        done: dict[Any, Vector] = {}

        def read(column: int, term: list[Place], at: int, width: int) -> Vector:
            stride = self._stride(column)
            key = (column, term[column], at if stride else 0, width)
            if key not in done:
                step, base = term[column]
                place: Offset = [(None, base + at * stride), (i, step)]
                done[key] = self.emitter.read(self.arrays[column], place, stride, width)
            return done[key]

        adds = self.accumulate and not self.reduced
        found: dict[int, list[tuple[tuple[int, ...], list[Vector]]]] = {}
        for (step, base), terms in sums.items():
            vectors = []
            for at, width in self.emitter.chunks(self.lane.most):
                total = read(0, terms[0], at, width) if adds else None
                for term in terms:
                    total = self._term(read, term, at, width, total)
                assert total is not None
                vectors.append(total)
                if not self.reduced:
                    place: Offset = [(None, base + at), (i, step)]
                    self.emitter.write(self.arrays[0], place, total)
            found.setdefault(step, []).append(((base,), vectors))
        for step, some in found.items() if self.reduced else ():
            targets, totals = zip(*some, strict=True)
            self._store_reduced([[(i, step)]], list(targets), list(totals))

    def _chunks(self, count: int) -> list[tuple[int, int]]:
        """The vectors of so many lanes; if it is padded, the last one is as wide as the others."""
        width = self.emitter.width
        left = count % width if self._padded else 0
        self._ends = {count - left: left} if left else {}
        return (
            [(at, width) for at in range(0, count, width)] if left else self.emitter.chunks(count)
        )

    def _moved(self, offsets: list[Offset], steps: list[tuple[str | None, int]]) -> list[Offset]:
        assert self.lane is not None
        return [
            t + [(register, s * factor) for register, factor in steps]
            for t, s in zip(offsets, self.lane.strides, strict=True)
        ]

    def _stride(self, column: int) -> int:
        return self.lane.strides[column] if self.lane is not None else 0

    def _reader(self, offsets: list[Offset]) -> Callable[[int, tuple[int, ...], int, int], Vector]:
        """A function that loads operands, each of them once."""
        done: dict[Any, Vector] = {}

        def read(column: int, point: tuple[int, ...], at: int, width: int) -> Vector:
            stride, lane = self._stride(column), self.lane
            is_pair = isinstance(lane, Pair)
            key = (column, point[column], at if stride or is_pair else None, width)
            if key not in done:
                place = offsets[column] + [(None, point[column] + at * stride)]
                if isinstance(lane, Pair) and not stride:
                    done[key] = lane.read(self.code, self.arrays[column], place, column, at, width)
                elif stride or width == 1:
                    done[key] = self.code.load(self.arrays[column], place, width)
                else:
                    single = (column, point[column], None, 1)
                    if single not in done:
                        done[single] = self.code.load(self.arrays[column], place, 1)
                    done[key] = done[single].splat(width)
            return done[key]

        return read

    def _start(self, width: int) -> Vector:
        """What the first term is combined with."""
        start = 0.0 if self.largest is None else float("-inf" if self.largest else "inf")
        return self.code.constant(start, width)

    def _combined(self, a: Vector, b: Vector) -> Vector:
        if self.largest is None:
            return a + b
        better = b > a if self.largest else b < a
        best: Vector = ops.where(better, b, a)
        return best

    def _term(self, read: Any, point: Any, at: int, width: int, old: Vector | None) -> Vector:
        value: Vector = read(1, point, at, width)
        if len(self.arrays) == 3:
            factor = read(2, point, at, width)
            return value * factor if old is None else self.code.fma(value, factor, old)
        return value if old is None else self._combined(old, value)

    def _tile(
        self, offsets: list[Offset], points: list[tuple[int, ...]], chunks: list[tuple[int, int]]
    ) -> None:
        keys = [(point, at, width) for point in points for at, width in chunks]
        if not self.sums:
            read = self._reader(offsets)
            for point, at, width in keys:
                old = read(0, point, at, width) if self.accumulate else None
                self._store(offsets, point, at, self._term(read, point, at, width, old))
            return
        read = self._reader(offsets)
        for (point, at, width), value in zip(keys, self._totals(offsets, keys), strict=True):
            if self.accumulate:
                value = self._combined(value, read(0, point, at, width))
            self._store(offsets, point, at, value)

    def _totals(
        self, offsets: list[Offset], keys: list[tuple[tuple[int, ...], int, int]]
    ) -> list[Vector]:
        """The sums of a tile."""
        if self.emitter.counter is not None and len(keys) <= CHAINS and len(self.sums) == 1:
            (loop,) = self.sums
            if loop.fixed and loop.most <= MOST_UNROLLED:
                return [self._chained(offsets, loop, *key) for key in keys]
        totals = [self.code.variable(self._start(width)) for _, _, width in keys]

        def add(moved: list[Offset]) -> None:
            read = self._reader(moved)
            for (point, at, width), total in zip(keys, totals, strict=True):
                total.set(self._term(read, point, at, width, total.get()))

        self.emitter.over(self.sums, offsets, add)
        return [total.get() for total in totals]

    def _chained(
        self, offsets: list[Offset], loop: Trip, point: tuple[int, ...], at: int, width: int
    ) -> Vector:
        """One sum as several partial sums: the next iteration waits for it, so latency counts."""
        parts: list[Vector] = []
        for k in range(loop.most):
            moved = [[*t, (None, s * k)] for t, s in zip(offsets, loop.strides, strict=True)]
            read = self._reader(moved)
            if k < CHAINS:
                parts.append(self._term(read, point, at, width, None))
            else:
                parts[k % CHAINS] = self._term(read, point, at, width, parts[k % CHAINS])
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [*map(self._combined, parts[:half], parts[half : 2 * half]), *parts[2 * half :]]
        return parts[0]

    def _store(self, offsets: list[Offset], point: tuple[int, ...], at: int, value: Vector) -> None:
        place = offsets[0] + [(None, point[0] + at * self._stride(0))]
        if at not in self._ends:
            self.emitter.write(self.arrays[0], place, value)
            return
        with self.emitter.masked(str(self._ends[at])):
            self.emitter.write(self.arrays[0], place, value)

    def _reduced_tile(self, offsets: list[Offset], points: list[tuple[int, ...]]) -> None:
        """The lanes run along the sum; they are added up at the end."""
        assert self.lane is not None
        parts: dict[int, list[int]] = {}
        for at, width in self.emitter.chunks(self.lane.most):
            parts.setdefault(width, []).append(at)
        sums: list[list[Vector]] = [[] for _ in points]
        for width, places in parts.items():
            totals = [self.code.variable(self._start(width)) for _ in points]

            def add(moved: list[Offset], at: int, width: int = width, totals: Any = totals) -> None:
                read = self._reader(moved)
                for point, total in zip(points, totals, strict=True):
                    total.set(self._term(read, point, at, width, total.get()))

            def addends(
                moved: list[Offset], places: list[int] = places, width: int = width
            ) -> None:
                if len(places) > 4:
                    with self.code.loop(len(places)) as i:
                        add(self._moved(moved, [(i, width), (None, places[0])]), 0, width)
                else:
                    for at in places:
                        add(moved, at, width)

            self.emitter.over(self.sums, offsets, addends)
            for k, total in enumerate(totals):
                sums[k].append(total.get())
        self._store_reduced(offsets, points, sums)

    def _segmented_tile(
        self, lane: Pair, offsets: list[Offset], points: list[tuple[int, ...]]
    ) -> None:
        """Stretches of the lanes run along sums, which are added up at the end."""
        chunks = self.emitter.chunks(lane.most)
        results = lane.most // lane.inner  # of a point
        keys = [(point, at, width) for point in points for at, width in chunks]
        read = self._reader(offsets)
        totals = (
            self._totals(offsets, keys)
            if self.sums
            else [self._term(read, *key, None) for key in keys]
        )
        at = 0
        while at < len(points):
            count = 1
            while (
                2 * count <= lane.inner
                and at + 2 * count <= len(points)
                and all(points[at + k][0] == points[at][0] + k * results for k in range(2 * count))
            ):
                count *= 2
            parts = []
            for c in range(len(chunks)):
                some = totals[at * len(chunks) + c : (at + count) * len(chunks) : len(chunks)]
                parts.append(sums_of_segments(some, lane.inner))
            self._store_segments(lane, offsets, points[at], parts, count)
            at += count

    def _store_segments(
        self,
        lane: Pair,
        offsets: list[Offset],
        point: tuple[int, ...],
        parts: list[Vector],
        count: int,
    ) -> None:
        """Store the sums of so many points; each part has those of some results, see ``pairs``."""
        results, width = lane.most // lane.inner, parts[0].width
        places = [  # of the sum for each point and result: which lane of which part
            result // (width // lane.inner) * width
            + result % (width // lane.inner) * lane.inner
            + k
            for k in range(count)
            for result in range(results)
        ]
        for at, some in self.emitter.chunks(count * results):
            value = picked(parts[0], places[at : at + some], parts[-1])
            place = offsets[0] + [(None, point[0] + at)]
            if self.accumulate:
                value = value + self.code.load(self.arrays[0], place, some)
            self.emitter.write(self.arrays[0], place, value)

    def _store_reduced(
        self, offsets: list[Offset], points: list[tuple[int, ...]], sums: list[list[Vector]]
    ) -> None:
        """Add up the lanes of each sum, and store neighbours together."""
        at = 0
        while at < len(points):
            width = 1
            while (
                self.largest is None
                and at + 2 * width <= len(points)
                and 2 * width <= self.emitter.width
                and all(points[at + k][0] == points[at][0] + k for k in range(2 * width))
            ):
                width *= 2
            result: Vector | None = None
            for part in zip(*sums[at : at + width], strict=True):
                whole = self._added_up(list(part))
                result = whole if result is None else self._combined(result, whole)
            assert result is not None
            place = offsets[0] + [(None, points[at][0])]
            if self.accumulate:
                result = self._combined(result, self.code.load(self.arrays[0], place, width))
            self.emitter.write(self.arrays[0], place, result)
            at += width

    def _added_up(self, vectors: list[Vector]) -> Vector:
        """The sum of the lanes of each vector (or the best lane), as one vector."""
        if self.largest is not None:
            return best_lane(vectors[0], self.largest)
        return sums_of_lanes(vectors)


def joined(numbers: Sequence[Vector]) -> Vector:
    """Single numbers as one vector."""
    code, kind = numbers[0].code, numbers[0].code.kind(len(numbers))
    register = "poison"
    for i, x in enumerate(numbers):
        text = f"insertelement {kind} {register}, {code.kind(1)} {x.register}, i64 {i}"
        register = code.let(text)
    return Vector(code, register, len(numbers))


def sums_of_lanes(vectors: list[Vector]) -> Vector:
    """For a power of two of vectors, the sum of the lanes of each, as one vector."""
    count, width = len(vectors), vectors[0].width
    if count == 1:
        return vectors[0].total()
    if width < count:
        return joined([v.total() for v in vectors])
    segment = width  # lanes that hold parts of one sum
    while len(vectors) > 1:
        half, segment = len(vectors) // 2, segment // 2
        low: list[int] = []
        high: list[int] = []
        for start in range(0, width, 2 * segment):
            for side in (0, width):
                low += range(side + start, side + start + segment)
                high += range(side + start + segment, side + start + 2 * segment)
        vectors = [
            shuffled(a, b, low) + shuffled(a, b, high)
            for a, b in zip(vectors[:half], vectors[half:], strict=True)
        ]
    (total,) = vectors
    while total.width > count:
        even, odd = range(0, total.width, 2), range(1, total.width, 2)
        total = shuffled(total, total, even) + shuffled(total, total, odd)
    return total


def best_lane(vector: Vector, largest: bool) -> Vector:
    """The largest (or smallest) lane."""
    while vector.width > 1:
        half = vector.width // 2
        if half == 1:
            low, high = vector.lanes()
        else:
            low = shuffled(vector, vector, range(half))
            high = shuffled(vector, vector, range(half, 2 * half))
        vector = ops.where(high > low if largest else high < low, high, low)
    return vector
