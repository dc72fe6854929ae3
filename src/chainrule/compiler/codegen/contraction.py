"""Loops of machine code over columns of addresses, and the one emitter of sums of products.

In: a ``Walk`` over columns of addresses, and what to do at each point. Out: loops in a ``Code``.
All sums of products have one form, O[..] += A[..] * B[..] over strided loops: forward sums, both of
their adjoints, broadcasts and biases. The emitter chooses which loop becomes the lanes of vectors,
keeps a tile of results in registers, and ends with narrower vectors. A batch of samples is one more
loop, the innermost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.codegen.ir import Code, Offset, Vector
from chainrule.compiler.codegen.packed import Packing
from chainrule.compiler.codegen.pairs import pair_of
from chainrule.compiler.codegen.row_tables import RowTable
from chainrule.compiler.codegen.tiles import Place, Tile
from chainrule.compiler.codegen.walks import Trip, Walk, Walks
from chainrule.compiler.lift.program import Addresses, distinct
from chainrule.compiler.lift.strides import IterationSpace, Repeated
from chainrule.core import ops

if TYPE_CHECKING:
    from chainrule.compiler.codegen.corners import Corners

VALUE, ADJOINT = ("%P", "%V"), ("%Q", "%D")  # arrays: of what samples share, of each sample's own

NestBody = Callable[[list[Offset], tuple[Trip, ...]], None]
LaneBody = Callable[[list[Offset], list[int], int], None]


class Emitter:
    """Emits the loops of one function."""

    def __init__(self, walks: Walks, width: int, batch: int = 1, dtype: str = "float64") -> None:
        self.walks = walks
        self.program = walks.program
        self.code = Code(dtype)
        self.width = width
        self.batch = batch
        self.flags: dict[int, Any] | None = None  # sums of squares of what is stored, per width
        self.counter: str | None = None  # the iteration of a loop in time
        self.copies: dict[int, Walk] = {}  # walks over transposed copies, by the original's slot
        self.packing: Packing | None = None  # transposed copies that many samples read
        self.corners: Corners | None = None  # that are looked at where a gradient is wanted
        self._active: str | None = None  # how many lanes of a last, partial vector take part

    # --- loops ------------------------------------------------------------------------------------

    def nest(
        self, walk: Walk, selection: Sequence[int], body: NestBody, merge: bool = False
    ) -> None:
        """Loop over the rows of a walk; the body gets the columns' offsets and the inner loops."""
        if walk.rows is not None:
            self._nest_in_rows(walk, walk.rows, selection, body)
            return
        code = self.code
        found = walk.space.select(selection, keep_outer=walk.varies and not merge)
        shared = [walk.shared[c] for c in selection]
        factors = [1 if s else self.batch for s in shared]
        trips = [Trip(x.count, x.count, self._scaled(x.strides, factors)) for x in found.loops]
        middle = [Trip(x.count, x.count, self._scaled(x.strides, factors)) for x in found.middle]
        lanes = (Trip(self.batch, self.batch, tuple([0 if s else 1 for s in shared])),)
        inner = lanes if self.batch > 1 else ()
        count: str | None = self._trips(walk, found, merge) if walk.varies else None
        if found.rows == 1:
            if count is not None and trips:
                trips[0] = Trip(count, trips[0].most, trips[0].strides)
            bases = zip(found.bases[0], factors, strict=True)
            offsets: list[Offset] = [[(None, int(base) * f)] for base, f in bases]
            body(self._advanced(walk, selection, offsets), (*trips, *inner))
            return
        with code.loop(found.rows if count is None else count) as row:
            offsets = [
                self._column(found.bases[:, c], row, factors[c]) for c in range(len(selection))
            ]
            offsets = self._advanced(walk, selection, offsets)
            if found.lengths is None:
                body(offsets, (*trips, *inner))
                return
            run = self._scaled(found.run, factors)
            steps = code.table(found.lengths, row)
            most = int(found.lengths.max())
            body(offsets, (*middle, Trip(steps, most, run), *trips, *inner))

    def _nest_in_rows(
        self, walk: Walk, rows: RowTable, selection: Sequence[int], body: NestBody
    ) -> None:
        """The same, where rows are data: N has their number, and of each its length and bases."""
        code, found = self.code, walk.space.select(selection)
        shared = [walk.shared[c] for c in selection]
        factors = [1 if s else self.batch for s in shared]

        def trips(count: int | str, most: int, strides: Sequence[int]) -> Trip:
            return Trip(count, most, self._scaled(strides, factors))

        outer = [trips(x.count, x.count, x.strides) for x in found.middle]
        inner = [trips(x.count, x.count, x.strides) for x in found.loops]
        if self.batch > 1:
            inner.append(Trip(self.batch, self.batch, tuple([0 if s else 1 for s in shared])))
        width = 1 + len(walk.columns)
        with code.loop(self.run_time_count(walk)) as row:
            at = code.let(f"mul nuw nsw i64 {row}, {width}")

            def number(k: int) -> str:
                place = code.let(f"add nuw nsw i64 {at}, {walk.slot + 1 + k}")
                return self._run_time(place)

            offsets: list[Offset] = [
                [(number(1 + c), factor)] for c, factor in zip(selection, factors, strict=True)
            ]
            if found.lengths is not None:
                outer.append(trips(number(0), rows.longest, found.run))
            body(offsets, (*outer, *inner))

    def results(self, instruction: int) -> int | str:
        """How many results an instruction has; a register where rows are data."""
        if self.walks.others is None:
            return self.program.instructions[instruction].count
        return self._run_time(instruction)

    def _advanced(
        self, walk: Walk, selection: Sequence[int], offsets: list[Offset]
    ) -> list[Offset]:
        """The offsets in the current iteration of a loop in time."""
        if not walk.steps:
            return offsets
        return [
            [(self.counter, walk.steps[c] * (1 if walk.shared[c] else self.batch)), *t]
            for c, t in zip(selection, offsets, strict=True)
        ]

    def _trips(self, walk: Walk, found: IterationSpace, merge: bool) -> str:
        """The run-time count of the outermost loop."""
        count = self.run_time_count(walk)
        if merge and found.rows == 1 and found.loops and walk.space.loops:
            factor = found.loops[0].count // walk.space.loops[0].count
            if factor > 1:
                count = self.code.let(f"mul nsw i64 {count}, {factor}")
        return count

    def run_time_count(self, walk: Walk) -> str:
        """The trip count of a walk's outermost loop, read from N."""
        return self._run_time(walk.slot)

    def _run_time(self, at: int | str) -> str:
        """A number of N."""
        place = self.code.let(f"getelementptr inbounds i64, ptr %N, i64 {at}")
        return self.code.let(f"load i64, ptr {place}, align 8")

    def turns(self, number: int) -> int | str:
        """How many iterations a loop in time has: a register where that is known at run time."""
        walk = self.walks.turns(number)
        return self.program.loops[number].count if walk is None else self.run_time_count(walk)

    def last_turn(self, number: int) -> str:
        """The last iteration of a loop in time."""
        return self.code.let(f"sub nsw i64 {self.turns(number)}, 1")

    @staticmethod
    def _scaled(strides: Sequence[int], factors: Sequence[int]) -> tuple[int, ...]:
        return tuple([s * f for s, f in zip(strides, factors, strict=True)])

    def _column(self, bases: Addresses, row: str, factor: int) -> Offset:
        """A base address per row: by a stride where there is one, else from a table."""
        steps = np.diff(bases)
        if (steps == steps[0]).all():
            return [(None, int(bases[0]) * factor), (row, int(steps[0]) * factor)]
        return [(self.code.table(bases, row), factor)]

    def over(
        self, loops: Sequence[Trip], offsets: list[Offset], body: Callable[[list[Offset]], None]
    ) -> None:
        """Loops around a body, outermost first."""
        if not loops:
            body(offsets)
            return
        if loops[0].count == 1:
            self.over(loops[1:], offsets, body)
            return
        with self.code.loop(loops[0].count) as i:
            moved = [[*t, (i, s)] for t, s in zip(offsets, loops[0].strides, strict=True)]
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

    # --- memory -----------------------------------------------------------------------------------

    def read(
        self, array: str, offset: Offset, stride: int, width: int, rest: float = 0.0
    ) -> Vector:
        """A vector, or one number in every lane; ``rest`` in lanes that take no part."""
        if width == 1:
            return self.code.load(array, offset, 1)
        if not stride:
            return self.code.load(array, offset, 1).splat(width)
        if self._active is not None:
            return self.code.masked_load(array, offset, width, self._active, rest)
        return self.code.load(array, offset, width)

    def write(self, array: str, offset: Offset, value: Vector) -> None:
        """Store a vector, and check it if there are flags."""
        if self._active is not None and value.width > 1:
            value = self.only_active(value)
            self.code.masked_store(array, offset, value, self._active)
        else:
            self.code.store(array, offset, value)
        if self.flags is not None:
            self.watch(value)

    def new_flags(self, start: float = 0.0) -> dict[int, Any]:
        """A flag for every width of vectors, with the same number at first."""
        widths = [1 << k for k in range(self.width.bit_length())]
        return {w: self.code.variable(self.code.constant(start, w)) for w in widths}

    def watch(self, value: Vector) -> None:
        """Add the square of a vector to a flag, which stays finite only if the vector is.

        A square may overflow where the number does not; the caller then falls back for nothing.
        """
        assert self.flags is not None
        flag = self.flags[value.width]
        flag.set(self.code.fma(value, value, flag.get()))

    def flag_total(self) -> Vector:
        """All flags as one number."""
        total = self.code.constant(0.0, 1)
        for variable in (self.flags or {}).values():
            total = total + variable.get().total()
        return total

    def only_active(self, value: Vector, rest: float = 0.0) -> Vector:
        """Zero, or the rest, in the lanes beyond the end."""
        if self._active is None or value.width == 1:
            return value
        chosen: Vector = ops.where(self.code.mask(value.width, self._active), value, rest)
        return chosen

    @contextmanager
    def masked(self, count: str) -> Iterator[None]:
        """Only the first ``count`` lanes take part."""
        self._active = count
        try:
            yield
        finally:
            self._active = None

    # --- elementwise ------------------------------------------------------------------------------

    def elementwise(
        self, walk: Walk, selection: Sequence[int], body: LaneBody, reduces: bool = False
    ) -> None:
        """The body once per vector: ``body(offsets, strides of the lanes, width)``.

        The first column is written; with ``reduces`` its stride may be 0, or an address repeat.
        """

        def inner(offsets: list[Offset], loops: tuple[Trip, ...]) -> None:
            first = (0, 1) if reduces else (1,)
            lanes = [x for x in loops if x.strides[0] in first and set(x.strides) <= {0, 1}]
            outer = [x for x in loops if x.strides[0] != 0]
            if not self.walks.contract:
                lanes = [x for x in lanes if x.strides[0] != 0]  # a sum has its order
            if not lanes or (reduces and overlaps(outer)):
                self.over(loops, offsets, lambda t: body(t, [0] * len(t), 1))
                return
            lane = max(lanes, key=lambda x: (x.fixed or x.most >= 64, x.most))
            rest = [x for x in loops if x is not lane]
            self.over(rest, offsets, lambda t: self.lanes(lane, t, body))

        self.nest(walk, selection, inner, merge=True)

    def lanes(self, lane: Trip, offsets: list[Offset], body: LaneBody) -> None:
        """One loop as vectors: whole ones, then narrower ones, or a last one that is masked."""
        strides, code = list(lane.strides), self.code

        def moved(register: str | None, by: int) -> list[Offset]:
            return [[*t, (register, s * by)] for t, s in zip(offsets, strides, strict=True)]

        if isinstance(lane.count, str):
            shift = self.width.bit_length() - 1
            whole = code.let(f"lshr i64 {lane.count}, {shift}")
            with code.loop(whole) as i:
                body(moved(i, self.width), strides, self.width)
            left = code.let(f"and i64 {lane.count}, {self.width - 1}")
            some = code.let(f"icmp ne i64 {left}, 0")
            once = code.let(f"zext i1 {some} to i64")
            with code.loop(once), self.masked(left):
                body(moved(whole, self.width), strides, self.width)
            return
        count, start = lane.count // self.width, 0
        if count > 2:
            with code.loop(count) as i:
                body(moved(i, self.width), strides, self.width)
            start = count * self.width
        for at, width in self.chunks(lane.count - start):
            body(moved(None, start + at), strides, width)

    # --- contractions -----------------------------------------------------------------------------

    def contract(
        self, walk: Walk, selection: Sequence[int], arrays: Sequence[tuple[str, str]], store: bool
    ) -> None:
        """O += A * B (or O += A) along columns of a walk; ``store``: O = instead of O +=."""
        names = [
            pair[0] if walk.shared[c] else pair[1]
            for pair, c in zip(arrays, selection, strict=True)
        ]

        if walk.again is not None and walk.again.steps[:, selection[0]].all():
            self._again(walk, walk.again, selection, names, not store)
            return

        def inner(offsets: list[Offset], loops: tuple[Trip, ...]) -> None:
            outer = [x for x in loops if x.strides[0] != 0]
            if overlaps(outer) or not self.walks.contract:
                # Two points may have one address: add in memory, one by one.
                self.over(loops, offsets, lambda t: self._add_product(names, t))
            else:
                self._block(names, offsets, loops, not store)

        self.nest(walk, selection, inner)

    def _again(
        self,
        walk: Walk,
        again: Repeated,
        selection: Sequence[int],
        arrays: Sequence[str],
        accumulate: bool,
    ) -> None:
        """Few irregular terms, again and again: each sum of them stays in a register."""
        chosen = list(selection)
        factors = [1 if walk.shared[c] else self.batch for c in chosen]
        lanes = Trip(self.batch, self.batch, tuple([0 if walk.shared[c] else 1 for c in chosen]))
        tile = Tile(self, arrays, lanes, walk.shared[chosen[0]], [], accumulate)
        sums: dict[Place, list[list[Place]]] = {}
        for steps, bases in zip(again.steps[:, chosen], again.bases[:, chosen], strict=True):
            pair = (steps * factors).tolist(), (bases * factors).tolist()
            term = list(zip(*pair, strict=True))
            sums.setdefault(term[0], []).append(term)
        with self.code.loop(again.count) as i:
            tile.emit_sums(i, dict(sorted(sums.items())))

    def stores(self, walk: Walk, column: int, sums: bool = True) -> bool:
        """Whether every target of a column is complete after one visit of its innermost sums."""
        if sums and not self.walks.contract:
            return False
        if walk.rows is not None:
            return self._comes_once(walk, walk.rows, column)
        found = walk.space
        if walk.again is not None and walk.again.steps[:, column].all():
            targets = np.stack([walk.again.bases[:, column], walk.again.steps[:, column]])
            different = len(np.unique(targets, axis=1).T)
            return len(distinct(walk.columns[column])) == different * walk.again.count
        chosen = found.select([column])
        outer = [Trip(x.count, x.count, x.strides) for x in (*chosen.middle, *chosen.loops)]
        moving = [x for x in outer if x.strides[0] != 0]
        if overlaps(moving):
            return False
        if found.rows == 1:
            return True
        each = int(np.prod([x.most for x in moving], dtype=np.int64))
        points = each * found.rows
        if found.lengths is not None and found.run[column] != 0:
            points = each * int(found.lengths.sum())
        return len(distinct(walk.columns[column])) == points

    def _comes_once(self, walk: Walk, rows: RowTable, column: int) -> bool:
        """The same where rows are data; all calls must be like that then."""
        space = walk.space
        loops = [Trip(x.count, x.count, x.strides) for x in (*space.middle, *space.loops)]
        if space.lengths is not None:
            loops.append(Trip(rows.longest, rows.longest, space.run))
        moving = [replace(x, strides=(x.strides[column],)) for x in loops if x.strides[column]]
        return not overlaps(moving) and rows.relies_on(column)

    def _add_product(self, arrays: Sequence[str], offsets: list[Offset]) -> None:
        value = self.code.load(arrays[1], offsets[1])
        old = self.code.load(arrays[0], offsets[0])
        if len(arrays) == 3:
            factor = self.code.load(arrays[2], offsets[2])
            fused = self.walks.contract
            value = self.code.fma(value, factor, old) if fused else value * factor + old
        else:
            value = value + old
        self.write(arrays[0], offsets[0], value)

    def _block(
        self,
        arrays: Sequence[str],
        offsets: list[Offset],
        loops: tuple[Trip, ...],
        accumulate: bool,
    ) -> None:
        """Choose the lanes and the tile that stays in registers, then loop over the rest."""
        packed = None if self.packing is None else self.packing.of(arrays, offsets, loops)
        if packed is not None:
            arrays, offsets, loops = packed.arrays, packed.offsets, packed.loops
        outer = [x for x in loops if x.strides[0] != 0]
        inner = [x for x in loops if x.strides[0] == 0]
        across = [
            x for x in outer if x.fixed and x.strides[0] == 1 and set(x.strides[1:]) <= {0, 1}
        ]
        along = [x for x in inner if x.fixed and set(x.strides[1:]) == {1}]
        lane = max(across, key=lambda x: x.most, default=None)
        reduced = False
        if lane is None or (lane.most < 4 and any(x.most >= 4 for x in along)):
            best = max(along, key=lambda x: x.most, default=None)
            if best is not None and best.most >= 4:
                lane, reduced = best, True
        rest = [x for x in outer if x is not lane]
        sums = [x for x in inner if x is not lane]
        pair = None
        if packed is None and len(arrays) == 3 and (lane is None or lane.most < self.width):
            pair = pair_of(loops, self.width)
        if pair is not None:
            first, second, lane = pair
            rest = [x for x in outer if x is not first and x is not second]
            sums = [x for x in inner if x is not second]
            reduced = lane.is_sum
        blocks: list[tuple[Trip, int]] = []
        if sums or reduced:
            vectors = 1 if reduced or lane is None else min(2, max(1, lane.most // self.width))
            room = 16 // vectors if reduced else 8 // vectors
            fixed = [x for x in rest if x.fixed]
            for loop in sorted(fixed, key=lambda x: (0 not in x.strides[1:], -x.most))[:2]:
                most = self._tile_size(loop, reduced) if reduced or len(fixed) > 1 else room
                size = min(loop.most, most, room)
                if size > 1:
                    blocks.append((loop, size))
                    room //= size
            # Some trips of a loop of run-time length share the loads that do not depend on it.
            for loop in rest:
                if not loop.fixed and room > 1 and len(arrays) == 3 and 0 in loop.strides[1:]:
                    blocks.insert(0, (loop, 4 if room > 3 and self.batch == 1 else 2))
                    break
        for loop, _ in blocks:
            rest = [x for x in rest if x is not loop]
        padded = packed is not None and lane is packed.lane
        kernel = Tile(self, arrays, lane, reduced, sums, accumulate, padded)
        self.over(rest, offsets, lambda t: self._tiles(blocks, [], t, kernel))

    def _tile_size(self, loop: Trip, reduced: bool) -> int:
        """How many trips of a loop are in one tile; sums along the lanes fill a vector."""
        whole = loop.most % self.width == 0 or (self.batch > 1 and loop.most > self.width)
        if reduced and loop.strides[0] == 1 and whole:
            return self.width
        return 4

    def _tiles(
        self,
        blocks: list[tuple[Trip, int]],
        chosen: list[tuple[Trip, int]],
        offsets: list[Offset],
        kernel: Tile,
    ) -> None:
        """Loops over whole tiles, then the remainder."""
        if not blocks:
            kernel.emit(offsets, chosen)
            return
        (loop, size), others = blocks[0], blocks[1:]

        def at(register: str | None, factor: int) -> list[Offset]:
            return [
                [*t, (register, s * factor)] for t, s in zip(offsets, loop.strides, strict=True)
            ]

        if isinstance(loop.count, str):
            many = self.code.let(f"lshr i64 {loop.count}, {size.bit_length() - 1}")
            with self.code.loop(many) as i:
                self._tiles(others, [*chosen, (loop, size)], at(i, size), kernel)
            while size > 1:
                before = self.code.let(f"and i64 {loop.count}, {-size}")
                size //= 2
                some = self.code.let(f"lshr i64 {loop.count}, {size.bit_length() - 1}")
                with self.code.loop(self.code.let(f"and i64 {some}, 1")):
                    self._tiles(others, [*chosen, (loop, size)], at(before, 1), kernel)
            return
        whole, left = divmod(loop.most, size)
        if whole == 1:
            self._tiles(others, [*chosen, (loop, size)], offsets, kernel)
        elif whole:
            with self.code.loop(whole) as i:
                self._tiles(others, [*chosen, (loop, size)], at(i, size), kernel)
        if left:
            self._tiles(others, [*chosen, (loop, left)], at(None, whole * size), kernel)

    # --- the largest or smallest of some numbers --------------------------------------------------

    def extreme(self, walk: Walk, largest: bool) -> None:
        """O = the largest (or smallest) A, where column 0 is O and column 1 is A."""
        names = [("%P" if s else "%V") for s in walk.shared]

        def inner(offsets: list[Offset], loops: tuple[Trip, ...]) -> None:
            outer = [x for x in loops if x.strides[0] != 0]
            sums = [x for x in loops if x.strides[0] == 0]
            across = [x for x in outer if x.fixed and x.strides[0] == 1 and x.strides[1] in (0, 1)]
            along = [x for x in sums if x.fixed and x.strides[1] == 1 and x.most >= 4]
            lane = max(across, key=lambda x: x.most, default=None)
            reduced = lane is None and bool(along)
            if reduced:
                lane = max(along, key=lambda x: x.most)
            kernel = Tile(self, names, lane, reduced, [x for x in sums if x is not lane], False)
            kernel.largest = largest
            rest = [x for x in outer if x is not lane]
            self.over(rest, offsets, lambda t: kernel.emit(t, []))

        self.nest(walk, (0, 1), inner)


def overlaps(loops: Sequence[Trip]) -> bool:
    """Whether two points of these loops have the same address in the first column."""
    reach = 0
    for loop in sorted(loops, key=lambda x: abs(x.strides[0])):
        if abs(loop.strides[0]) <= reach:
            break
        reach += abs(loop.strides[0]) * (loop.most - 1)
    else:
        return False
    addresses = np.zeros(1, np.int64)
    for loop in loops:
        addresses = (addresses[:, None] + loop.strides[0] * np.arange(loop.most)).ravel()
    return len(distinct(addresses)) != len(addresses)
