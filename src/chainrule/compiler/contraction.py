"""Loops of machine code over columns of addresses, and the one emitter of sums of products.

In: columns of addresses, and what to do at each point. Out: loops in a ``Code``. Everything that
adds up products is one form, O[..] += A[..] * B[..] over strided loops: forward sums, both of their
adjoints, broadcasts and biases. It chooses the dimension of the lanes, keeps a tile of results in
registers, and finishes with narrower vectors. A batch of samples is one more loop, the innermost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule import ops
from chainrule.compiler.canonicalise import SUM
from chainrule.compiler.index import Space, space
from chainrule.compiler.ir import Code, Terms, Vector
from chainrule.compiler.program import Addresses, Program

VALUE, ADJOINT = ("%P", "%V"), ("%Q", "%D")  # arrays: what samples share, what each has of its own
CHAINS = 4  # in a loop in time, parts of a sum that do not wait for each other
FEW_SOURCES = 8  # instructions whose results a sum adds up in loops of their own
MOST_UNROLLED = 32  # terms of a sum that is written down in full for that


@dataclass(frozen=True)
class Trip:
    """A loop to emit: its count, in a register where it is known at run time only."""

    count: int | str
    most: int
    strides: tuple[int, ...]

    @property
    def fixed(self) -> bool:
        """Whether its count is known now."""
        return isinstance(self.count, int)


@dataclass(eq=False)
class Walk:
    """Some points of an instruction, columns of addresses with them, and their loops."""

    slot: int  # where the run-time count of its outermost loop is
    instruction: int
    what: str  # the results of the instruction, its products or its plain terms
    chosen: Addresses | None  # which of these points; None: all
    columns: list[Addresses]
    shared: list[bool]  # per column
    space: Space
    varies: bool  # with the length of the arguments
    core: list[bool] = field(default_factory=list)  # per column: made in the same loop in time
    steps: list[int] = field(default_factory=list)  # per column, from one iteration to the next
    iterations: int = 1  # of which these are the points of the first, if there are steps

    def count(self, points: int) -> int | None:
        """The outermost trip count where the instruction has so many points."""
        points //= self.iterations
        if self.chosen is not None:
            points = int(np.searchsorted(self.chosen, points))
        return points if self.what == "guards" else self.space.outer(points)


class Walks:
    """Every walk of a program, for forward and backward alike."""

    def __init__(
        self, program: Program, varying: set[tuple[int, str]], contract: bool = True
    ) -> None:
        self.program = program
        self.varying = varying
        self.contract = contract  # products and sums may be one operation, in any order
        self.all: list[Walk] = []
        self._known: dict[tuple[int, str], list[Walk]] = {}
        self._sliced: dict[tuple[int, str], list[Walk]] = {}
        self._core: dict[int, npt.NDArray[np.bool_]] = {}
        self.scratch = 0  # numbers after all others, for copies

    def of(self, instruction: int, what: str, columns: Sequence[Addresses]) -> list[Walk]:
        """The walks over these columns: one, or several where a column is only partly shared."""
        key = (instruction, what)
        if key not in self._known:
            bits = [c < self.program.shared for c in columns]
            kinds = np.sum([b.astype(np.int64) << k for k, b in enumerate(bits)], axis=0)
            if key in self.varying and what in ("products", "plains"):
                kinds = kinds + (self._sources(instruction, columns) << len(bits))
            if (kinds == kinds[0]).all():
                self._known[key] = [self._walk(key, columns, None)]
            else:
                self._known[key] = [
                    self._walk(key, [c[chosen] for c in columns], chosen)
                    for kind in np.unique(kinds)
                    for chosen in [np.flatnonzero(kinds == kind)]
                ]
        return self._known[key]

    def _sources(self, instruction: int, columns: Sequence[Addresses]) -> Addresses:
        """Numbers for the terms of sums that grow with the length: what is added to them apart.

        A term that each length has and as many as its length are not one loop.
        """
        grows = self.program.instructions[instruction]
        nothing = np.zeros(len(columns[0]), np.int64)
        if not grows.reordered or grows.kind != SUM:
            return nothing
        starts = np.array([i.start for i in self.program.instructions])
        places = np.stack([np.searchsorted(starts, c, side="right") for c in columns])
        found: Addresses = np.unique(places, axis=1, return_inverse=True)[1].ravel()
        return found if found.max() < FEW_SOURCES else nothing

    def in_loop(
        self, instruction: int, what: str, columns: Sequence[Addresses], sliced: bool
    ) -> list[Walk]:
        """The same for an instruction of a loop in time; ``sliced``: over one iteration only.

        In each walk a column is wholly made in the loop, or not at all.
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
                    walk = self._walk(key, [r[0, chosen] for r in rows], chosen)
                    walk.steps, walk.iterations = steps[:, chosen[0]].tolist(), count
                else:
                    every = np.arange(count)[:, None] * len(kind.ravel()) + chosen
                    walk = self._walk(key, [r[:, chosen].ravel() for r in rows], every.ravel())
                walk.core = inner
                known[key].append(walk)
        return known[key]

    def transposed(self, walk: Walk) -> tuple[Walk, Walk] | None:
        """For a product with a matrix in each iteration: a walk over a copy of it, and the copying.

        In the copy, what goes to neighbouring results lies side by side.
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
            made = self._walk(key, columns, walk.chosen)
            made.steps, made.core = walk.steps, walk.core
            copying = self._walk(key, [copy[order], walk.columns[c][order]], walk.chosen)
            made.iterations = copying.iterations = walk.iterations
            return made, copying
        return None

    def core(self, number: int) -> npt.NDArray[np.bool_]:
        """A truth per address: whether a loop in time makes it, or copies lie there."""
        if number not in self._core:
            loop = self.program.loops[number]
            made = self._core[number] = np.zeros(self.program.size, np.bool_)
            for instruction in self.program.instructions[loop.first : loop.last]:
                front = loop.reach * (instruction.count // loop.count)
                made[instruction.start - front : instruction.start + instruction.count] = True
        return self._core[number]

    def _walk(
        self, key: tuple[int, str], columns: Sequence[Addresses], chosen: Addresses | None
    ) -> Walk:
        shared = [bool(c[0] < self.program.shared) for c in columns]
        local = [c if s else c - self.program.shared for c, s in zip(columns, shared, strict=True)]
        found = space(local)
        walk = Walk(len(self.all), *key, chosen, list(columns), shared, found, key in self.varying)
        self.all.append(walk)
        return walk


Body = Callable[[list[Terms], tuple[Trip, ...]], None]
Lanes = Callable[[list[Terms], list[int], int], None]


class Emitter:
    """Writes the loops of one function."""

    def __init__(self, walks: Walks, width: int, batch: int = 1, dtype: str = "float64") -> None:
        self.walks = walks
        self.program = walks.program
        self.code = Code(dtype)
        self.width = width
        self.batch = batch
        self.flags: dict[int, Any] | None = None  # sums of squares of what is stored, per width
        self.counter: str | None = None  # the iteration of a loop in time
        self.copies: dict[int, Walk] = {}  # walks over copies, by the slots of those they stand for
        self._active: str | None = None  # how many lanes take part, in a last, partial vector

    # --- loops ------------------------------------------------------------------------------------

    def nest(self, walk: Walk, selection: Sequence[int], body: Body, merge: bool = False) -> None:
        """Loops over the rows of a walk; the body gets terms and trips of the chosen columns."""
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
            terms: list[Terms] = [[(None, int(base) * f)] for base, f in bases]
            body(self._advanced(walk, selection, terms), (*trips, *inner))
            return
        with code.loop(found.rows if count is None else count) as row:
            terms = [
                self._column(found.bases[:, c], row, factors[c]) for c in range(len(selection))
            ]
            terms = self._advanced(walk, selection, terms)
            if found.lengths is None:
                body(terms, (*trips, *inner))
                return
            run = self._scaled(found.run, factors)
            steps = code.table(found.lengths, row)
            most = int(found.lengths.max())
            body(terms, (*middle, Trip(steps, most, run), *trips, *inner))

    def _advanced(self, walk: Walk, selection: Sequence[int], terms: list[Terms]) -> list[Terms]:
        """Addresses in the present iteration of a loop in time."""
        if not walk.steps:
            return terms
        return [
            [(self.counter, walk.steps[c] * (1 if walk.shared[c] else self.batch)), *t]
            for c, t in zip(selection, terms, strict=True)
        ]

    def _trips(self, walk: Walk, found: Space, merge: bool) -> str:
        """The run-time count of the outermost loop."""
        code = self.code
        place = code.let(f"getelementptr inbounds i64, ptr %N, i64 {walk.slot}")
        count = code.let(f"load i64, ptr {place}, align 8")
        if merge and found.rows == 1 and found.loops and walk.space.loops:
            factor = found.loops[0].count // walk.space.loops[0].count
            if factor > 1:
                count = code.let(f"mul nsw i64 {count}, {factor}")
        return count

    @staticmethod
    def _scaled(strides: Sequence[int], factors: Sequence[int]) -> tuple[int, ...]:
        return tuple([s * f for s, f in zip(strides, factors, strict=True)])

    def _column(self, bases: Addresses, row: str, factor: int) -> Terms:
        """A base address per row: by a stride where there is one, else from a table."""
        steps = np.diff(bases)
        if (steps == steps[0]).all():
            return [(None, int(bases[0]) * factor), (row, int(steps[0]) * factor)]
        return [(self.code.table(bases, row), factor)]

    def over(
        self, loops: Sequence[Trip], terms: list[Terms], body: Callable[[list[Terms]], None]
    ) -> None:
        """All of some loops, outermost first."""
        if not loops:
            body(terms)
            return
        if loops[0].count == 1:
            self.over(loops[1:], terms, body)
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

    # --- memory -----------------------------------------------------------------------------------

    def read(self, array: str, terms: Terms, stride: int, width: int) -> Vector:
        """A vector, or one number in every lane."""
        if width == 1:
            return self.code.load(array, terms, 1)
        if not stride:
            return self.code.load(array, terms, 1).splat(width)
        if self._active is not None:
            return self.code.masked_load(array, terms, width, self._active)
        return self.code.load(array, terms, width)

    def write(self, array: str, terms: Terms, value: Vector) -> None:
        """Store a vector, and let the flags see it."""
        if self._active is not None and value.width > 1:
            value = self.only_active(value)
            self.code.masked_store(array, terms, value, self._active)
        else:
            self.code.store(array, terms, value)
        if self.flags is not None:
            self.watch(value)

    def new_flags(self) -> dict[int, Any]:
        """A flag for every width of vector, zero from here on."""
        widths = [1 << k for k in range(self.width.bit_length())]
        return {w: self.code.variable(self.code.constant(0.0, w)) for w in widths}

    def watch(self, value: Vector) -> None:
        """Let the flags see a vector: they stay finite only if it is (and not huge)."""
        assert self.flags is not None
        flag = self.flags[value.width]
        flag.set(self.code.fma(value, value, flag.get()))

    def only_active(self, value: Vector) -> Vector:
        """Zero in the lanes beyond the end."""
        if self._active is None or value.width == 1:
            return value
        chosen: Vector = ops.where(self.code.mask(value.width, self._active), value, 0.0)
        return chosen

    @contextmanager
    def masked(self, count: str) -> Iterator[None]:
        """Only so many lanes take part."""
        self._active = count
        try:
            yield
        finally:
            self._active = None

    # --- elementwise ------------------------------------------------------------------------------

    def elementwise(
        self, walk: Walk, selection: Sequence[int], body: Lanes, reduces: bool = False
    ) -> None:
        """The body once per vector: ``body(terms, strides of the lanes, width)``.

        The first column is written; with ``reduces`` it may stay in place or come twice.
        """

        def inner(terms: list[Terms], loops: tuple[Trip, ...]) -> None:
            first = (0, 1) if reduces else (1,)
            lanes = [x for x in loops if x.strides[0] in first and set(x.strides) <= {0, 1}]
            outer = [x for x in loops if x.strides[0] != 0]
            if not self.walks.contract:
                lanes = [x for x in lanes if x.strides[0] != 0]  # a sum has its order
            if not lanes or (reduces and overlaps(outer)):
                self.over(loops, terms, lambda t: body(t, [0] * len(t), 1))
                return
            lane = max(lanes, key=lambda x: (x.fixed or x.most >= 64, x.most))
            rest = [x for x in loops if x is not lane]
            self.over(rest, terms, lambda t: self.lanes(lane, t, body))

        self.nest(walk, selection, inner, merge=True)

    def lanes(self, lane: Trip, terms: list[Terms], body: Lanes) -> None:
        """One loop as vectors: whole ones, then narrower ones, or a partial one."""
        strides, code = list(lane.strides), self.code

        def moved(register: str | None, by: int) -> list[Terms]:
            return [[*t, (register, s * by)] for t, s in zip(terms, strides, strict=True)]

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
        """O += A * B (or O += A) along columns of a walk; ``store``: every O is new."""
        names = [
            pair[0] if walk.shared[c] else pair[1]
            for pair, c in zip(arrays, selection, strict=True)
        ]

        def inner(terms: list[Terms], loops: tuple[Trip, ...]) -> None:
            outer = [x for x in loops if x.strides[0] != 0]
            if overlaps(outer) or not self.walks.contract:
                # Two points of the loops are one address: add through memory, one by one.
                self.over(loops, terms, lambda t: self._add_product(names, t))
            else:
                self._block(names, terms, loops, not store)

        self.nest(walk, selection, inner)

    def stores(self, walk: Walk, column: int, sums: bool = True) -> bool:
        """Whether every target of a column is complete after one visit of its innermost sums."""
        if sums and not self.walks.contract:
            return False
        found = walk.space
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
        return len(np.unique(walk.columns[column])) == points

    def _add_product(self, arrays: Sequence[str], terms: list[Terms]) -> None:
        value = self.code.load(arrays[1], terms[1])
        old = self.code.load(arrays[0], terms[0])
        if len(arrays) == 3:
            factor = self.code.load(arrays[2], terms[2])
            fused = self.walks.contract
            value = self.code.fma(value, factor, old) if fused else value * factor + old
        else:
            value = value + old
        self.write(arrays[0], terms[0], value)

    def _block(
        self, arrays: Sequence[str], terms: list[Terms], loops: tuple[Trip, ...], accumulate: bool
    ) -> None:
        """Choose what the lanes are and what stays in registers, then loop over the rest."""
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
        blocks: list[tuple[Trip, int]] = []
        if sums or reduced:
            vectors = 1 if reduced or lane is None else min(2, max(1, lane.most // self.width))
            room = 16 // vectors if reduced else 8 // vectors
            fixed = [x for x in rest if x.fixed]
            for loop in sorted(fixed, key=lambda x: (0 not in x.strides[1:], -x.most))[:2]:
                size = min(loop.most, self._tile_size(loop, reduced), room)
                if size > 1:
                    blocks.append((loop, size))
                    room //= size
            # Two rounds of a loop of any length share what does not move in it.
            for loop in rest:
                if not loop.fixed and room > 1 and len(arrays) == 3 and 0 in loop.strides[1:]:
                    blocks.insert(0, (loop, 2))
                    break
        for loop, _ in blocks:
            rest = [x for x in rest if x is not loop]
        kernel = _Kernel(self, arrays, lane, reduced, sums, accumulate)
        self.over(rest, terms, lambda t: self._tiles(blocks, [], t, kernel))

    def _tile_size(self, loop: Trip, reduced: bool) -> int:
        """How many points of a loop are in one tile: lanes that are added up fill a vector."""
        if reduced and loop.strides[0] == 1 and loop.most % self.width == 0:
            return self.width
        return 4

    def _tiles(
        self,
        blocks: list[tuple[Trip, int]],
        chosen: list[tuple[Trip, int]],
        terms: list[Terms],
        kernel: _Kernel,
    ) -> None:
        """Loops over whole tiles, and once more for what is left over."""
        if not blocks:
            kernel.emit(terms, chosen)
            return
        (loop, size), others = blocks[0], blocks[1:]

        def at(register: str | None, factor: int) -> list[Terms]:
            return [[*t, (register, s * factor)] for t, s in zip(terms, loop.strides, strict=True)]

        if isinstance(loop.count, str):
            pairs = self.code.let(f"lshr i64 {loop.count}, 1")
            with self.code.loop(pairs) as i:
                self._tiles(others, [*chosen, (loop, size)], at(i, size), kernel)
            single = self.code.let(f"and i64 {loop.count}, 1")
            with self.code.loop(single):
                self._tiles(others, chosen, at(pairs, size), kernel)
            return
        whole, left = divmod(loop.most, size)
        if whole == 1:
            self._tiles(others, [*chosen, (loop, size)], terms, kernel)
        elif whole:
            with self.code.loop(whole) as i:
                self._tiles(others, [*chosen, (loop, size)], at(i, size), kernel)
        if left:
            self._tiles(others, [*chosen, (loop, left)], at(None, whole * size), kernel)

    # --- the largest or smallest of some numbers --------------------------------------------------

    def extreme(self, walk: Walk, largest: bool) -> None:
        """O = the largest (or smallest) A: column 0 of column 1."""
        names = [("%P" if s else "%V") for s in walk.shared]

        def inner(terms: list[Terms], loops: tuple[Trip, ...]) -> None:
            outer = [x for x in loops if x.strides[0] != 0]
            sums = [x for x in loops if x.strides[0] == 0]
            across = [x for x in outer if x.fixed and x.strides[0] == 1 and x.strides[1] in (0, 1)]
            along = [x for x in sums if x.fixed and x.strides[1] == 1 and x.most >= 4]
            lane = max(across, key=lambda x: x.most, default=None)
            reduced = lane is None and bool(along)
            if reduced:
                lane = max(along, key=lambda x: x.most)
            kernel = _Kernel(self, names, lane, reduced, [x for x in sums if x is not lane], False)
            kernel.largest = largest
            rest = [x for x in outer if x is not lane]
            self.over(rest, terms, lambda t: kernel.emit(t, []))

        self.nest(walk, (0, 1), inner)


class _Kernel:
    """The innermost part of a contraction: a tile of results held in registers."""

    def __init__(
        self,
        emitter: Emitter,
        arrays: Sequence[str],
        lane: Trip | None,
        reduced: bool,
        sums: list[Trip],
        accumulate: bool,
    ) -> None:
        self.emitter, self.code = emitter, emitter.code
        self.arrays, self.lane, self.reduced = arrays, lane, reduced
        self.sums, self.accumulate = sums, accumulate
        self.largest: bool | None = None  # not a sum but the largest (or smallest) term

    def emit(self, terms: list[Terms], blocks: list[tuple[Trip, int]]) -> None:
        """One tile: these blocks of outer loops, and all of the sums."""
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
            whole = self.lane.most // step
            if whole > 1:
                with self.code.loop(whole) as i:
                    moved = self._moved(terms, [(i, step)])
                    self._tile(moved, points, self.emitter.chunks(step))
                left = self.lane.most - whole * step
                if left:
                    moved = self._moved(terms, [(None, whole * step)])
                    self._tile(moved, points, self.emitter.chunks(left))
            else:
                self._tile(terms, points, self.emitter.chunks(self.lane.most))

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

    def _term(
        self, read: Any, point: tuple[int, ...], at: int, width: int, old: Vector | None
    ) -> Vector:
        value: Vector = read(1, point, at, width)
        if len(self.arrays) == 3:
            factor = read(2, point, at, width)
            return value * factor if old is None else self.code.fma(value, factor, old)
        return value if old is None else self._combined(old, value)

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
        read = self._reader(terms)
        for (point, at, width), value in zip(keys, self._totals(terms, keys), strict=True):
            if self.accumulate:
                value = self._combined(value, read(0, point, at, width))
            self._store(terms, point, at, value)

    def _totals(
        self, terms: list[Terms], keys: list[tuple[tuple[int, ...], int, int]]
    ) -> list[Vector]:
        """The sums of a tile."""
        if self.emitter.counter is not None and len(keys) <= CHAINS and len(self.sums) == 1:
            (loop,) = self.sums
            if loop.fixed and loop.most <= MOST_UNROLLED:
                return [self._chained(terms, loop, *key) for key in keys]
        totals = [self.code.variable(self._start(width)) for _, _, width in keys]

        def add(moved: list[Terms]) -> None:
            read = self._reader(moved)
            for (point, at, width), total in zip(keys, totals, strict=True):
                total.set(self._term(read, point, at, width, total.get()))

        self.emitter.over(self.sums, terms, add)
        return [total.get() for total in totals]

    def _chained(
        self, terms: list[Terms], loop: Trip, point: tuple[int, ...], at: int, width: int
    ) -> Vector:
        """One sum in several parts side by side: an iteration in time waits for all of the last."""
        parts: list[Vector] = []
        for k in range(loop.most):
            moved = [[*t, (None, s * k)] for t, s in zip(terms, loop.strides, strict=True)]
            read = self._reader(moved)
            if k < CHAINS:
                parts.append(self._term(read, point, at, width, None))
            else:
                parts[k % CHAINS] = self._term(read, point, at, width, parts[k % CHAINS])
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [*map(self._combined, parts[:half], parts[half : 2 * half]), *parts[2 * half :]]
        return parts[0]

    def _store(self, terms: list[Terms], point: tuple[int, ...], at: int, value: Vector) -> None:
        place = terms[0] + [(None, point[0] + at * self._stride(0))]
        self.emitter.write(self.arrays[0], place, value)

    def _reduced_tile(self, terms: list[Terms], points: list[tuple[int, ...]]) -> None:
        """The lanes run along the sum; they are added up at the end."""
        assert self.lane is not None
        parts: dict[int, list[int]] = {}
        for at, width in self.emitter.chunks(self.lane.most):
            parts.setdefault(width, []).append(at)
        sums: list[list[Vector]] = [[] for _ in points]
        for width, places in parts.items():
            totals = [self.code.variable(self._start(width)) for _ in points]

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
                sums[k].append(total.get())
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
            place = terms[0] + [(None, points[at][0])]
            if self.accumulate:
                result = self._combined(result, self.code.load(self.arrays[0], place, width))
            self.emitter.write(self.arrays[0], place, result)
            at += width

    def _added_up(self, vectors: list[Vector]) -> Vector:
        """A vector of the sums of so many vectors' lanes."""
        if self.largest is not None:
            return best_lane(vectors[0], self.largest)
        return sums_of_lanes(vectors)


def shuffled(a: Vector, b: Vector, picks: Sequence[int]) -> Vector:
    """Lanes of two vectors, those of the second counted on."""
    code, kind = a.code, a.code.kind(a.width)
    which = ", ".join(f"i32 {p}" for p in picks)
    text = f"shufflevector {kind} {a.register}, {kind} {b.register}, <{len(picks)} x i32> <{which}>"
    return Vector(code, code.let(text), len(picks))


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


def overlaps(loops: Sequence[Trip]) -> bool:
    """Whether the first column's address comes twice in these loops."""
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
    return len(np.unique(addresses)) != len(addresses)
