"""Columns of addresses as indices into named arrays.

In: a ``Program``, the names of its inputs and what its integers select. Out: for a column of
addresses, the arrays it reads and the coordinates in them; the axes along which the coordinates
move; and a coordinate as an affine function of these axes, checked for every number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.formulas.indices import Integers, deciding
from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
    Axis,
    Several,
    Table,
    number_text,
)
from chainrule.compiler.lift.graph import GATHER
from chainrule.compiler.lift.program import Addresses, Instruction, Program
from chainrule.compiler.lift.strides import iteration_space
from chainrule.core import ops

Basis = list[tuple[Axis, Addresses]]  # axes, and the coordinates of some points along them


@dataclass
class Choice:
    """What the integers of a call select in a program."""

    recording: Recording

    @property
    def selection(self) -> Selection:
        """What they do."""
        return self.recording.selection


@dataclass(eq=False)
class Stretch(Array):
    """A named stretch of the arena, and the coordinates of each of its numbers."""

    coordinates: list[Addresses] = field(default_factory=list)
    start: int = 0


@dataclass
class Column:
    """What a column of addresses reads: arrays, and coordinates in them.

    ``layout``, for each index: the integers that decide it, if they do, whether it equals them, and
    which coordinates it is built from.
    """

    arrays: tuple[Array, ...]
    coordinates: list[Addresses] = field(default_factory=list)
    axes: list[Axis | None] = field(default_factory=list)
    layout: list[tuple[Array | None, bool, list[int]]] = field(default_factory=list)
    joined: bool = False
    number: float | None = None  # a constant instead
    otherwise: Column | None = None  # another decoding, if this one has no formula

    def put(self, coordinate: Addresses, axis: Axis | None) -> None:
        """Add an index."""
        self.layout.append((None, True, [len(self.coordinates)]))
        self.coordinates.append(coordinate)
        self.axes.append(axis)


@dataclass
class Applied:
    """A simple operation on columns, inlined where its result is read."""

    rule: ops.Op
    parameters: tuple[float, ...]
    operands: list[Seen]

    @property
    def coordinates(self) -> list[Addresses]:
        """Those of all operands."""
        return [c for operand in self.operands for c in operand.coordinates]


Seen = Column | Applied


class Arena:
    """The arrays that lie in a program's arena.

    ``owner``: per address, the index of its array in ``stretches``; the array of a loop's results
    begins with those of iterations -1, -2 and so on. ``source``: per address, itself, or the number
    that it only scales, inverts or detaches.
    """

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Named],
        choice: Choice | None,
        added: Sequence[tuple[int, Named]] = (),
        through: bool = True,
    ) -> None:
        """``added``: where numbers are that depend on the length of a call, and their names.

        ``through``: ``see`` looks through instructions that are not worth a line.
        """
        self.program, self.choice = program, choice
        self.owner = np.full(program.size, -1, np.int64)
        self.stretches: list[Stretch] = []
        self.integers: list[tuple[int, Stretch]] = []  # and their first slot
        self.results: dict[int, Stretch] = {}  # by the start of an instruction
        self._inputs(inputs)
        self._own(
            Stretch("numbers", (), [], program.inputs), program.inputs, len(program.constants)
        )
        self.numbers = len(self.stretches) - 1
        self.added: list[Stretch] = []
        for start, named in added:
            axes = tuple([Axis(n) for n in named.shape])
            grid = np.indices(named.shape).reshape(len(named.shape), named.size)
            self.added.append(Stretch(named.name, axes, list(grid), start))
            self._own(self.added[-1], start, named.size)
        for instruction in program.instructions:
            self._result(instruction)
        self.plain: dict[int, Instruction] = {}  # instructions not worth a line, by their array
        self.source = np.arange(program.size)
        for instruction in program.instructions:
            if through and _is_plain(instruction):
                self.plain[int(self.owner[instruction.start])] = instruction
                if instruction.operands:
                    self.source[instruction.out] = self.source[instruction.operands[0]]

    def at(self, address: int) -> Stretch:
        """The array that an address lies in."""
        return self.stretches[int(self.owner[address])]

    def _own(self, stretch: Stretch, start: int, size: int) -> None:
        self.owner[start : start + size] = len(self.stretches)
        self.stretches.append(stretch)

    def _inputs(self, inputs: Sequence[Named]) -> None:
        program = self.program
        rank = np.full(program.inputs, -1, np.int64)
        own = program.private[program.private >= 0]
        rank[own] = program.shared + np.arange(len(own))
        at = slot = 0
        if self.choice is not None:
            selection, integers = self.choice.selection, [x for x in inputs if x.integers]
            self.reader = Integers(selection.program)
            inputs = [*inputs, *self.reader.names(selection.numbers, integers)]
        for named in inputs:
            private = named.size > 0 and rank[at] >= 0
            axes = tuple([Axis(n) for n in named.shape])
            if axes and private and (len(axes) > 1 or named.integers):
                axes[0].family = "time"
            grid = np.indices(named.shape).reshape(len(named.shape), named.size)
            start = int(rank[at]) if private else at
            made = Stretch(named.name, axes, list(grid), start)
            self._own(made, start, named.size)
            if named.integers:
                self.integers.append((slot, made))
                slot += named.size
            at += named.size
        if at != program.inputs:
            raise ValueError("the names are not those of the inputs")

    def _result(self, instruction: Instruction) -> None:
        """An array for an instruction's results; in a loop, with those of iterations -1, -2..."""
        loops = self.program.loops
        repeat = None if instruction.loop is None else loops[instruction.loop]
        if repeat is None:
            axes, coordinates = axes_of([], instruction.count)
            made = Stretch("", axes, coordinates, instruction.start)
            self._own(made, instruction.start, instruction.count)
            self.results[instruction.start] = made
            return
        each = instruction.count // repeat.count
        start = instruction.start - repeat.reach * each
        for at in {*self.owner[start : instruction.start].tolist()} - {-1}:
            del self.results[self.stretches[at].start]  # copied to before the loop
        steps, items = np.divmod(np.arange((repeat.count + repeat.reach) * each), each)
        shown = 2 if each > 1 else 1
        axes = (Axis(repeat.count, "time"), Axis(each))[:shown]
        made = Stretch("", axes, [steps - repeat.reach, items][:shown], start)
        self._own(made, start, len(items))
        self.results[instruction.start] = made

    # --- columns ----------------------------------------------------------------------------------

    def see(self, addresses: Addresses) -> Seen:
        """Decode some addresses, looking through instructions that only select, scale or detach."""
        owners = self.owner[addresses]
        through = self.plain.get(int(owners[0])) if (owners == owners[0]).all() else None
        at = addresses - (0 if through is None else through.start)
        if through is None or at.min() < 0:
            return self.column(addresses)
        if through.rule is None:
            return self.gathered(through, at)
        operands = [self.see(column[at]) for column in through.columns]
        return Applied(through.rule, through.parameters, operands)

    def column(self, addresses: Addresses) -> Column:
        """The arrays that some addresses lie in, and their coordinates there."""
        owners = self.owner[addresses]
        found, first = np.unique(owners, return_index=True)
        found = found[np.argsort(first)]
        if found.min() < 0:
            raise ValueError("an address of nothing")
        if self.numbers in found:
            return self._numbers(addresses, found)
        stretches = [self.stretches[k] for k in found.tolist()]
        made = Column(tuple(stretches))
        shapes = {tuple([a.count for a in s.axes]) for s in stretches}
        ragged = any(a.length is not None for s in stretches for a in s.axes)
        if len(stretches) == 1 or (len(shapes) == 1 and not ragged):
            rank = np.zeros(len(self.stretches), np.int64)
            rank[found] = np.arange(len(found))
            if len(stretches) > 1:
                made.put(rank[owners], Axis(len(found), "set"))
            for k, axis in enumerate(stretches[0].axes):
                coordinate = np.empty(len(addresses), np.int64)
                for number, stretch in zip(found.tolist(), stretches, strict=True):
                    mine = owners == number
                    coordinate[mine] = stretch.coordinates[k][addresses[mine] - stretch.start]
                made.put(coordinate, axis)
            return made
        made.joined = True  # of different shapes: end to end
        sizes = np.bincount(self.owner + 1, minlength=len(self.stretches) + 1)[1:]
        begin = np.zeros(len(self.stretches), np.int64)
        begin[found] = np.cumsum([0, *sizes[found[:-1]]]) - [s.start for s in stretches]
        made.put(addresses + begin[owners], Axis(int(sizes[found].sum())))
        return made

    def _numbers(self, addresses: Addresses, found: Addresses) -> Column:
        stretch = self.stretches[self.numbers]
        if len(found) > 1:
            made = Column(tuple([self.stretches[k] for k in found.tolist()]))
            made.layout.append((None, False, []))
            return made
        values = self.program.constants[addresses - stretch.start]
        distinct, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        if len(distinct) == 1:
            return Column((stretch,), number=float(values[0]))
        order = np.argsort(np.argsort(first))
        shown = values[np.sort(first)].tolist()
        name = f"({','.join(map(number_text, shown))})" if len(distinct) <= 4 else "numbers"
        axis = Axis(len(distinct))
        made = Column((Table(name, (axis,), tuple(shown)),))
        made.put(order[inverse], axis)
        begin = int(addresses.min())
        every = self.program.constants[begin - stretch.start : addresses.max() + 1 - stretch.start]
        all_of_them = Table("numbers", (Axis(len(every)),), tuple(every.tolist()))
        made.otherwise = Column((all_of_them,))
        made.otherwise.put(addresses - begin, None)
        return made

    def gathered(self, instruction: Instruction, at: Addresses | slice = slice(None)) -> Column:
        """What a gather selects: coordinates that are fixed, or that depend on integers."""
        assert self.choice is not None
        assert instruction.places is not None
        selection = self.choice.selection
        owners = [selection.gathers[k] for k in selection.owners[instruction.places[at]].tolist()]
        count = min(len(g.candidates) for g in owners)
        table = np.array([[g.candidates[i] for g in owners] for i in range(count)])
        addresses = self.program.address[table]
        there = (addresses >= 0).all(axis=1)
        addresses, table = addresses[there], table[there]
        ids = np.flatnonzero(there)
        columns = self.column(addresses.ravel())
        made = Column(columns.arrays, joined=columns.joined)
        known = {g: self.reader.parts(g) for g in set(owners)}
        parts = [known[g] for g in owners]
        for flat, axis in zip(columns.coordinates, columns.axes, strict=True):
            rows = flat.reshape(table.shape)
            if (rows == rows[0]).all():
                made.put(rows[0], axis)
                continue
            chosen = deciding(parts, ids, rows)
            if chosen is None:
                made.layout.append((Array("integers"), False, []))
                continue
            slots, exact = chosen
            array, coordinates, axes = self._integers(slots)
            first = len(made.coordinates)
            made.layout.append((array, exact, list(range(first, first + len(coordinates)))))
            made.coordinates += coordinates
            made.axes += axes
        return made

    def _integers(self, slots: Addresses) -> tuple[Array, list[Addresses], list[Axis | None]]:
        """The array of some integers, and the coordinates of each in it."""
        for first, stretch in self.integers:
            size = int(np.prod([a.count for a in stretch.axes], dtype=np.int64))
            if ((slots >= first) & (slots < first + size)).all():
                coordinates = [c[slots - first] for c in stretch.coordinates]
                return stretch, coordinates, list(stretch.axes)
        names = [s.name for k, s in self.integers if k in set(slots.tolist())]
        return Several("{" + ",".join(names[:4]) + "}"), [], []


def _is_plain(instruction: Instruction) -> bool:
    """Whether it only selects, scales, inverts or detaches a number."""
    rule = instruction.rule
    if rule is ops.mul or instruction.kind == GATHER:
        return rule is None or instruction.number is not None
    return rule is ops.detach or (rule is ops.pow and instruction.parameters == (-1.0,))


def axes_of(reads: list[list[Addresses]], count: int) -> tuple[tuple[Axis, ...], list[Addresses]]:
    """The axes along which columns of coordinates move, and every point's coordinates in them.

    Those of all columns together if there are such axes, else of one operand, else a single axis.
    """
    if count == 1:
        return (), []
    together = [c for columns in reads for c in columns]
    for columns in (together, *sorted(reads, key=len, reverse=True)):
        axes = _loops(columns) if columns else None
        if axes is not None and len(axes) <= 5:
            coordinates = _coordinates(axes)
            if len(coordinates[0]) == count:
                return axes, coordinates
    return (Axis(count),), [np.arange(count)]


def _loops(columns: list[Addresses]) -> tuple[Axis, ...] | None:
    """The loops that walk some columns, outermost first; None where there are none."""
    found = iteration_space(columns)
    if found.rows == 1:
        return tuple([Axis(loop.count) for loop in found.loops]) or None
    if found.lengths is None:
        return None
    rows = iteration_space([*found.bases.T, found.lengths])
    if rows.rows > 1:
        return None
    outer = [Axis(loop.count) for loop in rows.loops]
    steps = [(loop.strides[-1], a) for loop, a in zip(rows.loops, outer, strict=True)]
    length = AffineIndex(int(found.lengths[0]), tuple([(s, a) for s, a in steps if s]))
    if any(axis.count == 2 for _, axis in length.parts):
        return None  # two lengths are always affine: no evidence
    run = Axis(int(found.lengths.max()), length=length if length.parts else None)
    middle, inner = ([Axis(loop.count) for loop in x] for x in (found.middle, found.loops))
    return (*outer, *middle, run, *inner)


def _coordinates(axes: tuple[Axis, ...]) -> list[Addresses]:
    """The coordinates of every point, in order."""
    made: list[Addresses] = []
    points = 1
    for at, axis in enumerate(axes):
        lengths = np.full(points, axis.count)
        if axis.length is not None:
            known = dict(zip(axes[:at], made, strict=True))
            parts = [times * known[other] for times, other in axis.length.parts]
            lengths = axis.length.constant + np.sum(parts, axis=0)
        ends = np.cumsum(lengths)
        points = int(ends[-1])
        made = [c.repeat(lengths) for c in made]
        made.append(np.arange(points) - np.repeat(ends - lengths, lengths))
    return made


def fitted(x: Addresses, basis: Basis) -> AffineIndex | None:
    """A coordinate as an affine function of axes, or None if that fails for any number."""
    if (x == x[0]).all():
        return AffineIndex(int(x[0]))
    for axis, c in basis:
        if (x - c == x[0] - c[0]).all():
            return AffineIndex(int(x[0] - c[0]), ((1, axis),))
    some = np.unique(np.linspace(0, len(x) - 1, min(len(x), 500)).astype(np.int64))
    table = np.stack([np.ones(len(x)), *[c for _, c in basis]], axis=1)
    solved = np.linalg.lstsq(table[some], x[some].astype(np.float64), rcond=None)[0]
    numbers = np.rint(solved).astype(np.int64)
    if not (table @ numbers == x).all():
        return None
    constant, *times = numbers.tolist()
    parts = [(k, axis) for k, (axis, _) in zip(times, basis, strict=True) if k]
    return AffineIndex(constant, tuple(parts))
