"""Both passes of a program with steps: a loop over commands, and a kernel for each kind of them.

In: a ``Program`` with ``steps`` and the ``Emitter`` of an empty function. Out: code that reads
commands from the table N (see ``commands``), forward in their order, backward in reverse. A kernel
computes rows: vectors along the row where all addresses move by 0 or 1, else one number after the
other. In a batch, the lanes are samples.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.codegen.backward import differentiates, reached
from chainrule.compiler.codegen.contraction import ADJOINT, VALUE, Emitter
from chainrule.compiler.codegen.forward import check_guards
from chainrule.compiler.codegen.instructions import as_vector, read_by, rule_of, seed, zero
from chainrule.compiler.codegen.ir import Code, Offset, Variable, Vector
from chainrule.compiler.codegen.walks import Trip
from chainrule.compiler.lift.commands import (
    COUNT,
    DERIVATIVES,
    INPUTS,
    OWN,
    PLACES,
    POINTS,
    ROOT,
    SHARED,
    SIZES,
    STRIDED,
    VECTORS,
    Commands,
    Kernel,
)
from chainrule.compiler.lift.corners import BOUND
from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM
from chainrule.compiler.lift.program import Instruction, Program
from chainrule.core import ops

#: what a kernel does at some points: where they are, whether a lane moves, and how many lanes
Body = Callable[[list[Offset], list[int], int], None]


def word(code: Code, at: str | int) -> str:
    """An integer of the table."""
    place = code.let(f"getelementptr inbounds i64, ptr %N, i64 {at}")
    return code.let(f"load i64, ptr {place}, align 8")


@dataclass
class _Row:
    """A row of a kernel: registers that hold its length, and per column base and stride."""

    length: str | None
    bases: list[str]
    strides: list[str | int]


class _Pass:
    """The loop over commands, in one direction."""

    def __init__(self, emitter: Emitter, made: Commands) -> None:
        self.emitter, self.code, self.program = emitter, emitter.code, emitter.program
        self.kernels, self.kernel = made.kernels, made.kernels[0]
        self.fixed: dict[int, Vector] = {}  # columns that do not move along the row, once read

    def emit(self, reverse: bool) -> None:
        """Every command, in order or in reverse."""
        code = self.code
        count = word(code, COUNT)
        with code.loop(count) as i:
            at = i
            if reverse:
                last = code.let(f"sub nsw i64 {count}, 1")
                at = code.let(f"sub nsw i64 {last}, {i}")
            at = code.let(f"mul nuw nsw i64 {at}, 3")
            which, rows, begin = (
                word(code, code.let(f"add nuw nsw i64 {at}, {SIZES + k}")) for k in range(3)
            )
            for k in code.cases(which, len(self.kernels)):
                self.kernel = self.kernels[k]
                if not self.does(self.kernel):
                    continue
                with code.loop(rows) as row:
                    step = code.let(f"mul nuw nsw i64 {row}, {self.kernel.words}")
                    self.row(self._read(code.let(f"add nuw nsw i64 {begin}, {step}")))

    def does(self, kernel: Kernel) -> bool:
        """Whether this pass does anything for a kernel."""
        return True

    def row(self, row: _Row) -> None:
        """One row of the current kernel."""
        raise NotImplementedError

    def _read(self, at: str) -> _Row:
        kernel = self.kernel
        words = [
            word(self.code, self.code.let(f"add nuw nsw i64 {at}, {k}"))
            for k in range(kernel.words)
        ]
        columns = len(kernel.shared)
        if kernel.walk == POINTS:
            return _Row(None, words, [0] * columns)
        moves: list[str | int] = [*kernel.strides]
        if kernel.walk == STRIDED:
            moves = [*words[columns + 1 :]]
        return _Row(words[0], words[1 : columns + 1], moves)

    # --- walking a row ----------------------------------------------------------------------------

    @property
    def instruction(self) -> Instruction:
        return self.program.instructions[self.kernel.instruction]

    def factor(self, column: int) -> int:
        """How many numbers there are per address."""
        return 1 if self.kernel.shared[column] else self.emitter.batch

    @property
    def along(self) -> bool:
        """Whether the lanes of vectors run along a row; a sum that keeps its order has none."""
        kernel = self.kernel
        if self.emitter.batch > 1 or kernel.walk != VECTORS:
            return False
        return self.emitter.walks.contract or 0 not in self._written(kernel)

    def _written(self, kernel: Kernel) -> list[int]:
        """The strides of what is written."""
        return [kernel.strides[0]]

    def walk(self, row: _Row, body: Body) -> None:
        """The body at every point of a row."""
        code, emitter = self.code, self.emitter
        columns = range(len(row.bases))
        offsets: list[Offset] = [[(row.bases[c], self.factor(c))] for c in columns]
        if self.along:
            assert row.length is not None
            lane = Trip(row.length, emitter.width, self.kernel.strides)
            emitter.lanes(lane, offsets, body)
            return
        if row.length is None:
            self._lanes(offsets, body)
            return
        with code.loop(row.length) as i:
            moved = []
            for c in columns:
                stride = row.strides[c]
                if isinstance(stride, int):
                    moved.append([*offsets[c], (i, stride * self.factor(c))])
                else:
                    by = code.let(f"mul nsw i64 {i}, {stride}")
                    moved.append([*offsets[c], (by, self.factor(c))])
            self._lanes(moved, body)

    def _lanes(self, offsets: list[Offset], body: Body) -> None:
        """One point: a number, or one of each sample."""
        if self.emitter.batch == 1:
            body(offsets, [0] * len(offsets), 1)
            return
        strides = tuple([0 if shared else 1 for shared in self.kernel.shared])
        self.emitter.lanes(Trip(self.emitter.batch, self.emitter.batch, strides), offsets, body)

    @contextmanager
    def gathered(self, row: _Row) -> Iterator[tuple[Offset, Offset]]:
        """A loop over what integers select: where it goes, and where it comes from."""
        code, batch = self.code, self.emitter.batch
        assert row.length is not None
        out, first = row.bases
        with code.loop(batch) as lane, code.loop(row.length) as i:
            at = code.let(f"mul nuw nsw i64 {lane}, {word(code, PLACES)}")
            at = code.let(f"add nuw nsw i64 {at}, {first}")
            at = code.let(f"add nuw nsw i64 {at}, {i}")
            place = code.let(f"getelementptr inbounds i64, ptr %G, i64 {at}")
            address = code.let(f"load i64, ptr {place}, align 8")
            here: Offset = [(out, batch), (i, batch), (lane, 1)]
            there: Offset = [(address, 1)]
            if not self.kernel.shared[1]:
                there = [(address, batch), (word(code, SHARED), -batch), (lane, 1)]
            yield here, there

    def hold(self, row: _Row, columns: list[int]) -> None:
        """Read what does not move along the row once, before it."""
        self.fixed = {}
        if self.along:
            for c in columns:
                if row.strides[c] == 0:
                    array = VALUE[0] if self.kernel.shared[c] else VALUE[1]
                    found = self.code.load(array, [(row.bases[c], 1)])
                    self.fixed[c] = found.splat(self.emitter.width)

    def value(self, column: int, offsets: list[Offset], strides: list[int], width: int) -> Vector:
        """The numbers of a column; 1 in lanes beyond the end: log and others are slow at 0."""
        if column in self.fixed:
            return self.fixed[column]
        array = VALUE[0] if self.kernel.shared[column] else VALUE[1]
        return self.emitter.read(array, offsets[column], strides[column], width, rest=1.0)


def factors_of(kernel: Kernel, instruction: Instruction) -> list[list[int]]:
    """The terms of a sum as the columns of their factors."""
    if kernel.part != "out":
        return [list(range(1, len(kernel.shared)))]
    found, at = [], 1
    for terms in instruction.sums:
        for _ in range(terms.each):
            found.append(list(range(at, at + len(terms.columns))))
            at += len(terms.columns)
    return found


# --- forward --------------------------------------------------------------------------------------


class Forward(_Pass):
    """Computes every number."""

    def __init__(self, emitter: Emitter, made: Commands, flags: dict[int, Variable]) -> None:
        super().__init__(emitter, made)
        self.flags, self.watched = flags, made.of_kernels(_watched(self.program))

    def row(self, row: _Row) -> None:
        """The numbers of a row."""
        kernel, instruction, emitter = self.kernel, self.instruction, self.emitter
        emitter.flags = self.flags if kernel.instruction in self.watched else None
        if kernel.part == "fill":
            emitter.flags = None
            start = 0.0
            if instruction.kind == EXTREME:
                start = -np.inf if instruction.rule is ops.first_max else np.inf
            self.walk(row, lambda t, s, w: emitter.write("%V", t[0], self.code.constant(start, w)))
        elif kernel.part == "gather":
            array = VALUE[0] if kernel.shared[1] else VALUE[1]
            with self.gathered(row) as (here, there):
                self.code.store("%V", here, self.code.load(array, there))
        elif instruction.kind == EXTREME:
            self.walk(row, self._extreme)
        elif instruction.kind == SUM:
            self.hold(row, list(range(1, len(row.bases))))
            if kernel.part == "out":
                self.walk(row, self._short)
            else:
                self._terms(row)
        else:
            self.hold(row, list(range(1, len(row.bases))))
            self.walk(row, self._rule)

    def _rule(self, offsets: list[Offset], strides: list[int], width: int) -> None:
        rule = rule_of(self.instruction)
        xs = [self.value(c, offsets, strides, width) for c in range(1, len(offsets))]
        y = as_vector(self.code, rule(*xs, *self.instruction.parameters), width)
        corners, k = self.emitter.corners, self.kernel.instruction
        if corners is not None and k in corners.pairs:
            y = (corners.distance(k, y, xs) <= BOUND).choose(math.nan, y)
        self.emitter.write("%V", offsets[0], y)

    def _extreme(self, offsets: list[Offset], strides: list[int], width: int) -> None:
        best = self.emitter.read("%V", offsets[0], strides[0], width)
        x = self.value(1, offsets, strides, width)
        if self.emitter.flags is not None:
            corners, k, seen = self.emitter.corners, self.kernel.instruction, x
            if corners is not None and k in corners.pairs:
                seen = corners.ties.between(k, best, x, BOUND).choose(math.nan, x)
            self.emitter.watch(self.emitter.only_active(seen))  # a maximum may hide a nan
        better = x > best if self.instruction.rule is ops.first_max else x < best
        flags, self.emitter.flags = self.emitter.flags, None  # it begins with infinity
        self.emitter.write("%V", offsets[0], better.choose(x, best))
        self.emitter.flags = flags

    def _short(self, offsets: list[Offset], strides: list[int], width: int) -> None:
        """A sum of few terms."""
        total: Vector | None = None
        terms = []
        for factors in factors_of(self.kernel, self.instruction):
            xs = [self.value(c, offsets, strides, width) for c in factors]
            total = self._plus(xs, total)
            terms.append(functools.reduce(operator.mul, xs))
        assert total is not None
        if self.emitter.corners is not None:
            k = self.kernel.instruction
            total = self.emitter.corners.unless_lost(k, total, terms)
        self.emitter.write("%V", offsets[0], total)

    def _plus(self, xs: list[Vector], total: Vector | None) -> Vector:
        """The product of some factors, plus what there is so far."""
        product = xs[0]
        for x in xs[1:-1]:
            product = product * x
        if total is None or not self.emitter.walks.contract or len(xs) == 1:
            product = product if len(xs) == 1 else product * xs[-1]
            return product if total is None else total + product
        return self.code.fma(product, xs[-1], total)

    def _terms(self, row: _Row) -> None:
        """Add terms to sums: to one sum where the row lies along it, else to neighbouring ones."""
        factors = range(1, len(row.bases))
        code, emitter = self.code, self.emitter
        if self.along and row.strides[0] == 0:
            total = code.variable(code.constant(0.0, emitter.width))

            def add(offsets: list[Offset], strides: list[int], width: int) -> None:
                xs = [self.value(c, offsets, strides, width) for c in factors]
                total.set(emitter.only_active(self._plus(xs, None)) + total.get())

            self.walk(row, add)
            place: Offset = [(row.bases[0], 1)]
            value = code.load("%V", place) + total.get().total()
            emitter.write("%V", place, value)
            return

        def each(offsets: list[Offset], strides: list[int], width: int) -> None:
            xs = [self.value(c, offsets, strides, width) for c in factors]
            old = emitter.read("%V", offsets[0], strides[0], width)
            emitter.write("%V", offsets[0], self._plus(xs, old))

        self.walk(row, each)


def _watched(program: Program) -> list[bool]:
    """Per instruction: whether its results must be checked to be finite.

    Not where each of them makes a sum (or something else that shows it) not finite, which is
    checked itself, or shown in turn; sums of many terms always are.
    """
    shows = np.zeros(program.size, np.bool_)
    for instruction in program.instructions:
        rule = instruction.rule
        is_open = rule is not None and rule.shows_nonfinite(*instruction.parameters)
        if instruction.kind == SUM or is_open:
            for column in read_by(instruction):
                shows[column] = True
    return [
        i.kind != GATHER
        and (i.kind == EXTREME or (i.kind == SUM and not i.is_short) or not shows[i.out].all())
        for i in program.instructions
    ]


# --- backward -------------------------------------------------------------------------------------


class Backward(_Pass):
    """Adds the adjoint of every number, times its partials, to those of its operands."""

    def __init__(self, emitter: Emitter, made: Commands, root: int) -> None:
        super().__init__(emitter, made)
        found = reached(self.program, root)
        self.is_reached = made.of_kernels(
            [differentiates(i, found) for i in self.program.instructions]
        )
        self.totals: dict[int, Variable] = {}  # what goes to columns that do not move

    def does(self, kernel: Kernel) -> bool:
        """Whether a gradient comes to a kernel and goes on."""
        if kernel.part == "fill" or kernel.instruction not in self.is_reached:
            return False
        return kernel.part == "gather" or bool(self._targets(kernel))

    def _written(self, kernel: Kernel) -> list[int]:
        return [kernel.strides[c] for c in self._targets(kernel)]

    def _targets(self, kernel: Kernel) -> list[int]:
        """The columns whose adjoints are added to."""
        instruction = self.program.instructions[kernel.instruction]
        columns = range(1, len(kernel.shared))
        if instruction.rule is not None and instruction.kind != EXTREME:
            columns = range(1, len(instruction.operands) + 1)
            differentiable = instruction.rule.differentiable
            return [c for c in columns if c - 1 in differentiable and not kernel.constant[c]]
        return [c for c in columns if not kernel.constant[c]]

    def row(self, row: _Row) -> None:
        """What a row adds to the adjoints of its operands."""
        kernel, code = self.kernel, self.code
        if kernel.part == "gather":
            array = self._adjoint(1)
            with self.gathered(row) as (here, there):
                code.store(array, there, code.load(array, there) + code.load("%D", here))
            return
        if self.instruction.kind == EXTREME:
            self.walk(row, self._extreme)
            return
        self.hold(row, list(range(1, len(row.bases))))
        self.totals = {}
        if self.along:
            for c in self._targets(kernel):
                if row.strides[c] == 0:
                    zero = code.constant(0.0, self.emitter.width)
                    self.totals[c] = code.variable(zero)
        self.walk(row, self._sum if self.instruction.kind == SUM else self._rule)
        for c, total in self.totals.items():
            array, place = self._adjoint(c), [(row.bases[c], 1)]
            code.store(array, [*place], code.load(array, [*place]) + total.get().total())

    def _adjoint(self, column: int) -> str:
        return ADJOINT[0] if self.kernel.shared[column] else ADJOINT[1]

    def _add(self, column: int, offset: Offset, stride: int, share: Vector) -> None:
        """Add to the adjoints of a column."""
        emitter, code, array = self.emitter, self.code, self._adjoint(column)
        if column in self.totals:
            total = self.totals[column]
            total.set(total.get() + emitter.only_active(share))
        elif stride == 0 and share.width > 1:  # shared by the samples of a batch
            total_share = emitter.only_active(share).total()
            code.store(array, offset, code.load(array, offset) + total_share)
        else:
            old = emitter.read(array, offset, stride, share.width)
            emitter.write(array, offset, old + share)

    def _g(self, offsets: list[Offset], strides: list[int], width: int) -> Vector:
        return self.emitter.read("%D", offsets[0], strides[0], width)

    def _rule(self, offsets: list[Offset], strides: list[int], width: int) -> None:
        rule, parameters = self.instruction.rule, self.instruction.parameters
        assert rule is not None
        xs = [self.value(c, offsets, strides, width) for c in range(1, len(offsets))]
        y = self.emitter.read("%V", offsets[0], strides[0], width)
        g = self._g(offsets, strides, width)
        for c in self._targets(self.kernel):
            slope = rule.partials[c - 1](y, *xs, *parameters)
            plain = isinstance(slope, float) and slope == 1.0
            share = as_vector(self.code, g if plain else slope * g, width)
            self._add(c, offsets[c], strides[c], share)

    def _sum(self, offsets: list[Offset], strides: list[int], width: int) -> None:
        g = self._g(offsets, strides, width)
        targets = self._targets(self.kernel)
        for factors in factors_of(self.kernel, self.instruction):
            xs = {c: self.value(c, offsets, strides, width) for c in factors if len(factors) > 1}
            for c in factors:
                if c in targets:
                    share = g
                    for other in factors:
                        if other != c:
                            share = share * xs[other]
                    self._add(c, offsets[c], strides[c], share)

    def _extreme(self, offsets: list[Offset], strides: list[int], width: int) -> None:
        """The first term that equals the result gets all of its adjoint."""
        emitter = self.emitter
        g = self._g(offsets, strides, width)
        x = self.value(1, offsets, strides, width)
        y = emitter.read("%V", offsets[0], strides[0], width)
        share = x._compare("oeq", y).choose(g, 0.0)
        self.totals = {}
        self._add(1, offsets[1], strides[1], share)
        emitter.write("%D", offsets[0], g - share)


# --- whole functions ------------------------------------------------------------------------------


def emit_forward(emitter: Emitter, made: Commands) -> Vector:
    """Every command, then the guards; gives a number that is finite only if all is well."""
    flags = emitter.new_flags()
    Forward(emitter, made, flags).emit(reverse=False)
    emitter.flags = flags
    return check_guards(emitter, emitter.flag_total())


def check_gradient(emitter: Emitter) -> Vector:
    """A number that is finite only if the gradient is."""
    code = emitter.code
    emitter.flags = emitter.new_flags()
    for array, size, factor in (("%Q", INPUTS, 1), ("%D", DERIVATIVES, emitter.batch)):

        def watch(at: list[Offset], strides: list[int], width: int, array: str = array) -> None:
            emitter.watch(emitter.read(array, at[0], 1, width))

        count = code.let(f"mul nuw nsw i64 {word(code, size)}, {factor}")
        emitter.lanes(Trip(count, emitter.width, (1,)), [[]], watch)
    return emitter.flag_total()


def emit_backward(emitter: Emitter, made: Commands, root: int, adds: bool = False) -> None:
    """Zero every adjoint, store that of the result, and go through the commands in reverse.

    ``adds``: what is in Q stays there, and is added to.
    """
    code = emitter.code
    zeroed = (("%Q", SHARED, 1), ("%D", OWN, emitter.batch))
    for array, size, factor in zeroed[1:] if adds else zeroed:
        count = code.let(f"mul nuw nsw i64 {word(code, size)}, {factor * code.bytes}")
        zero(code, array, [], count)
    shared = root < emitter.program.shared
    seed(emitter, [(word(code, ROOT), 1 if shared else emitter.batch)], shared)
    Backward(emitter, made, root).emit(reverse=True)
