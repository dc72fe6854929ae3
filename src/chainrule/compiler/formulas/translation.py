"""The formulas of an array program.

In: a ``Program`` and its ``Arena`` of named arrays. Out: a ``Line`` for each instruction: the array
of its results, whose axes are those along which all of its operands move, and the expression of
these operands.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chainrule.compiler.formulas.decoding import (
    Applied,
    Arena,
    Basis,
    Seen,
    Stretch,
    axes_of,
    fitted,
)
from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
    Axis,
    Call,
    Expression,
    Number,
    Place,
    Power,
    Ref,
    Select,
    add,
    covers,
    detached,
    is_open,
    multiply,
    power,
    reduced,
    walk,
)
from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM
from chainrule.compiler.lift.program import Addresses, Instruction, Program, Terms
from chainrule.core import ops

FEW = 4  # at most so many numbers get a formula each where they have none together
SEVERAL = 6  # a sum has at most so many parts
COMPARISONS = {ops.less: "<", ops.less_equal: "≤", ops.equal: "=="}


@dataclass
class Part:
    """The terms of sums that read the same arrays: a run of them in each sum."""

    columns: list[Addresses]
    first: Addresses  # term of each sum
    lengths: Addresses  # how many terms

    @property
    def each(self) -> int:
        """How many each sum has, 0 where that differs."""
        return int(self.lengths[0]) if (self.lengths == self.lengths[0]).all() else 0


@dataclass(eq=False)
class Line:
    """One formula: its left side and its right side."""

    instruction: Instruction
    target: Ref
    axes: tuple[Axis, ...]
    value: Expression | None  # None: it has no formula
    whole: bool = True  # it defines the whole array, not part of it
    kept: bool = True
    shown: Expression | None = None  # as far as it is known, where it has no formula

    @property
    def array(self) -> Array:
        """The array that it defines, or part of it."""
        return self.target.arrays[0]


class Columns:
    """The columns of a program's instructions as references to arrays."""

    def __init__(self, program: Program, arena: Arena, several: int = SEVERAL) -> None:
        """``several``: how many parts a sum may have."""
        self.program, self.arena, self.several = program, arena, several
        for instruction in program.instructions:
            if instruction.start in arena.results:
                self._shape(instruction)
        self.along: list[
            tuple[Axis, int, Axis]
        ] = []  # an axis, the multiple of it, the axis it indexes

    # --- sums -------------------------------------------------------------------------------------

    def parts(self, instruction: Instruction, terms: Terms) -> list[Part]:
        """The terms of sums, separated by the arrays they read."""
        terms = terms.side_by_side()
        owners = terms.owners - instruction.start
        lengths = np.bincount(owners, minlength=instruction.count)
        first = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        arrays = np.stack([self.arena.owner[self.arena.source[c]] for c in terms.columns])
        change = (arrays[:, 1:] != arrays[:, :-1]).any(axis=0) & (owners[1:] == owners[:-1])
        if not change.any():
            return [Part(list(terms.columns), first, lengths)]
        if not terms.each:
            raise ValueError("sums of different lengths from different arrays")
        keys = arrays.reshape(len(arrays), -1, terms.each)
        _, which = np.unique(keys.reshape(-1, terms.each), axis=1, return_inverse=True)
        which = which.ravel()
        ranks = list(dict.fromkeys(which.tolist()))  # in the order in which they come
        if len(ranks) > self.several:
            raise ValueError("sums of too many parts")
        made = []
        for rank in ranks:
            mine = which == rank
            chosen = [c.reshape(-1, terms.each)[:, mine].ravel() for c in terms.columns]
            each = np.full(instruction.count, mine.sum())
            first = np.arange(instruction.count) * mine.sum()
            made.append(Part(chosen, first, each))
        return made

    # --- axes -------------------------------------------------------------------------------------

    def all_parts(self, instruction: Instruction) -> list[Part]:
        """The terms of an instruction's sums, separated by the arrays they read."""
        return [part for terms in instruction.sums for part in self.parts(instruction, terms)]

    def _reads(self, instruction: Instruction) -> list[list[Addresses]]:
        """The coordinates of each operand, one for each result."""
        if instruction.kind == GATHER:
            return [self.arena.gathered(instruction).coordinates]
        if instruction.kind not in (SUM, EXTREME):
            return [self.arena.see(c).coordinates for c in instruction.columns]
        found = []
        for part in self.all_parts(instruction):
            found += [self.arena.see(c[part.first]).coordinates for c in part.columns]
            if not part.each:
                found.append([part.lengths])
        return found

    def _shape(self, instruction: Instruction) -> None:
        """Give a result the axes along which its operands move."""
        stretch, count = self.arena.results[instruction.start], instruction.count
        try:
            reads = self._reads(instruction)
        except Exception:  # it keeps its one axis
            return
        if instruction.loop is None:
            stretch.axes, stretch.coordinates = axes_of(reads, count)
            return
        repeat = self.program.loops[instruction.loop]
        steps = np.arange(repeat.count).repeat(count // repeat.count)
        axes, coordinates = axes_of([[steps], *reads], count)
        if axes and axes[0].count == repeat.count and (coordinates[0] == steps).all():
            axes[0].family = "time"
            each = count // repeat.count
            front = [np.tile(c[:each], repeat.reach) for c in coordinates[1:]]
            before = np.arange(-repeat.reach, 0).repeat(each)
            stretch.axes = axes
            stretch.coordinates = [
                np.concatenate(pair) for pair in zip([before, *front], coordinates, strict=True)
            ]

    # --- references -------------------------------------------------------------------------------

    def basis(self, instruction: Instruction) -> Basis:
        """The axes of an instruction's results, and the coordinates of each result along them."""
        stretch = self.arena.results[instruction.start]
        found = list(zip(stretch.axes, stretch.coordinates, strict=True))
        if instruction.loop is not None:
            found = [(axis, c[-instruction.count :]) for axis, c in found]
        return found

    def ref(self, column: Seen, basis: Basis) -> Expression:
        """What a column reads, as an expression in these axes."""
        if isinstance(column, Applied):
            operands = [self.ref(operand, basis) for operand in column.operands]
            return applied(column.rule, operands, column.parameters)
        if column.number is not None:
            return Number(column.number)
        places: list[Place] = []
        for integers, exact, which in column.layout:
            found = [fitted(column.coordinates[k], basis) for k in which]
            for k, place in zip(which, found, strict=True):
                self._note(place, column.axes[k])
            if integers is not None:
                places.append(Select(integers, tuple(found), exact))
            else:
                places.append(found[0] if found and not column.joined else None)
        if None in places and column.otherwise is not None:
            return self.ref(column.otherwise, basis)
        return Ref(column.arrays, tuple(places), column.joined)

    def _note(self, place: AffineIndex | None, axis: Axis | None) -> None:
        """Remember which axes index which."""
        if place is not None and axis is not None:
            for times, mine in place.parts:
                if len(place.parts) == 1 or abs(times) > 1:
                    self.along.append((mine, times, axis))

    def inside(self, part: Part, basis: Basis) -> tuple[tuple[Axis, ...], list[Expression]]:
        """The axes that one part of sums is summed over, and what its columns read along them."""
        seen = [self.arena.see(column) for column in part.columns]
        if part.each:
            first = [[c[: part.each] for c in column.coordinates] for column in seen]
            axes, coordinates = axes_of(first, part.each)
            inner = [
                (axis, np.tile(c, len(part.lengths)))
                for axis, c in zip(axes, coordinates, strict=True)
            ]
        else:
            length = fitted(part.lengths, basis)
            if length is None:
                raise ValueError("sums of irregular lengths")
            within = np.arange(len(part.columns[0])) - np.repeat(part.first, part.lengths)
            inner = [(Axis(int(part.lengths.max()), length=length), within)]
        outer = [(axis, c.repeat(part.lengths)) for axis, c in basis]
        factors = [self.ref(column, [*outer, *inner]) for column in seen]
        return tuple([axis for axis, _ in inner]), factors


class Formulas(Columns):
    """The lines of a program, in order."""

    def __init__(self, program: Program, arena: Arena, several: int = SEVERAL) -> None:
        """``several``: how many parts a sum may have."""
        super().__init__(program, arena, several)
        self.lines = [x for instruction in program.instructions for x in self._lines(instruction)]
        self._families()

    # --- formulas ---------------------------------------------------------------------------------

    def _lines(self, instruction: Instruction) -> list[Line]:
        """The formula of an instruction, or one per number where a few have none together."""
        line, count = self._line(instruction), instruction.count
        terms = instruction.sums
        regular = instruction.kind != GATHER and all(t.each for t in terms)
        if instruction.loop is not None or not line.whole or not regular or not 1 < count <= FEW:
            return [line]
        if line.value is not None and not is_open(line.value) and not _by_chance(line):
            return [line]
        stretch = self.arena.results[instruction.start]
        alone = []
        for k in range(count):
            row = instruction.row(k, count)
            at = tuple([AffineIndex(int(c[k])) for c in stretch.coordinates])
            try:
                value = self._value(row, [])
            except Exception:  # no better
                return [line]
            alone.append(Line(row, Ref((stretch,), at), (), value, whole=False))
        return [line] if any(is_open(x.value) for x in alone if x.value) else alone

    def _line(self, instruction: Instruction) -> Line:
        stretch = self.arena.results.get(instruction.start)
        if stretch is not None:
            basis, axes = self.basis(instruction), stretch.axes
            target = Ref((stretch,), tuple([AffineIndex.along(axis) for axis in axes]))
        else:  # into the front of a loop's
            out = self.arena.column(instruction.out)
            axes, coordinates = axes_of([out.coordinates], instruction.count)
            basis = list(zip(axes, coordinates, strict=True))
            found = self.ref(out, basis)
            assert isinstance(found, Ref)
            target = found
        try:
            value: Expression | None = self._value(instruction, basis)
        except Exception:  # only this line has no formula then
            value = None
        return Line(instruction, target, axes, value, stretch is not None)

    def _value(self, instruction: Instruction, basis: Basis) -> Expression:
        rule = instruction.rule
        if instruction.kind == GATHER:
            return self.ref(self.arena.gathered(instruction), basis)
        if instruction.kind == SUM:
            terms = [self._reduced(part, basis, "Σ") for part in self.all_parts(instruction)]
            return add(terms)
        assert rule is not None
        if instruction.kind == EXTREME:
            word = "max" if rule is ops.first_max else "min"
            parts = [self._reduced(part, basis, word) for part in self.all_parts(instruction)]
            return parts[0] if len(parts) == 1 else Call(word, tuple(parts))
        operands = [self.ref(self.arena.see(c), basis) for c in instruction.columns]
        return applied(rule, operands, instruction.parameters)

    def _families(self) -> None:
        """Give axes the family of the axes that they index, or that index them."""
        inputs = {axis for s in self.arena.stretches[: self.arena.numbers] for axis in s.axes}
        self._spread(inputs)
        for mine, times, _ in self.along:
            if mine.family == "unit" and abs(times) > 1:
                mine.family = "group"
        self._spread(inputs)

    def _spread(self, inputs: set[Axis]) -> None:
        for mine, times, axis in (*self.along, *reversed(self.along)) * 3:
            if abs(times) == 1 and mine.family == "unit":
                mine.family = axis.family
            elif abs(times) == 1 and axis.family == "unit" and axis not in inputs:
                axis.family = mine.family

    def _reduced(self, part: Part, basis: Basis, symbol: str) -> Expression:
        """One part of sums, as a sum over its own axes, or term by term where they are few."""
        each = part.each
        if each == 1:
            return self._term(part.columns, basis)
        axes, factors = self.inside(part, basis)
        body = self._product(factors)
        plain = all(covers(body, axis) for axis in axes) and not is_open(body)
        if 1 < each <= FEW and not plain and (each < FEW or is_open(body)):
            rows = [[c[part.first + r] for c in part.columns] for r in range(each)]
            terms = [self._term(row, basis) for row in rows]
            return add(terms) if symbol == "Σ" else Call(symbol, tuple(terms))
        return reduced(symbol, axes, body)

    def _term(self, columns: list[Addresses], basis: Basis) -> Expression:
        return self._product([self.ref(self.arena.see(column), basis) for column in columns])

    def _product(self, factors: list[Expression]) -> Expression:
        """Factors, weights first."""
        return multiply(*sorted(factors, key=self._weights_first))

    def _weights_first(self, x: Expression) -> bool:
        """The sort key of factors: numbers that all samples share come first."""
        if not isinstance(x, Ref) or any(isinstance(place, Select) for place in x.places):
            return True
        first = x.arrays[0]
        return not (isinstance(first, Stretch) and first.start < self.program.inputs)


def _by_chance(line: Line) -> bool:
    """Whether it has indices such as 3i+1, which fit any two numbers by chance."""
    return line.value is not None and any(
        isinstance(place, AffineIndex)
        and any(abs(k) > 1 and a in line.axes for k, a in place.parts)
        for x in walk(line.value)
        if isinstance(x, Ref)
        for place in x.places
    )


def applied(rule: ops.Op, xs: list[Expression], parameters: tuple[float, ...]) -> Expression:
    """An operation as an expression."""
    if rule is ops.add:
        return add(xs)
    if rule is ops.mul:
        return multiply(*xs)
    if rule is ops.pow:
        return power(xs[0], parameters[0])
    if rule is ops.power:
        return Power(xs[0], xs[1])
    if rule is ops.divide:
        return multiply(xs[0], power(xs[1], -1.0))
    if rule is ops.detach:
        return detached(xs[0])
    words = {ops.select: "where", ops.first_max: "max", ops.first_min: "min", **COMPARISONS}
    numbers = [Number(p) for p in parameters]
    if rule.name == "where":
        return Call("where", (*numbers, *xs))
    return Call(words.get(rule, rule.name), (*xs, *numbers))
