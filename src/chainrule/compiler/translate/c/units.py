"""The lines of a reading as units: loops, a place, and the formula of the number to put there.

In: a ``Reading``. Out: a ``Unit`` for each line that is computed. A line whose places follow no
rule gets tables of places, and then is a formula like all others: over one axis of results, and one
of terms where it adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.formulas.notation import (
    FAMILIES,
    AffineIndex,
    Array,
    Axis,
    Expression,
    Letters,
    Ref,
    Table,
    add,
    multiply,
    reduced,
)
from chainrule.compiler.formulas.reading import Reading
from chainrule.compiler.formulas.translation import Line, applied
from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM
from chainrule.compiler.lift.program import Addresses, Instruction, Terms
from chainrule.compiler.translate.c.hoisting import TableAxis, hoisted
from chainrule.compiler.translate.c.storage import Storage, Tabled
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.core import ops


@dataclass(eq=False)
class Unit:
    """What one line computes; in a loop in time, its first axis is the loop's."""

    axes: tuple[Axis, ...]
    target: Ref
    value: Expression
    comment: str
    letters: dict[Axis, str]
    loop: int | None

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What it writes."""
        (array,) = self.target.arrays
        return array.owners if isinstance(array, Tabled) else (array,)


class Units:
    """Makes the units of a reading."""

    def __init__(self, reading: Reading, storage: Storage, taken: set[str]) -> None:
        self.reading, self.storage, self.taken = reading, storage, taken
        self.gathers: list[int] = []  # that are read by tables, in the order of their choices

    def units(self) -> list[Unit]:
        """All of them, in order."""
        return [self._unit(line) for line in self.reading.lines if line.kept]

    def _unit(self, line: Line) -> Unit:
        loop = line.instruction.loop
        letters = self._letters(line.axes, loop)
        text, size = self.reading.row(line, letters)
        comment = f"{text}  {size}".rstrip()
        if line.value is not None:
            value = hoisted(line.value)
            return Unit(line.axes, line.target, value, comment, letters.given, loop)
        return self._tabled(line, comment)

    def _letters(self, axes: tuple[Axis, ...], loop: int | None) -> Letters:
        """Letters in which a loop's own is the same for all of its lines."""
        return Letters(self.taken, {} if loop is None else {axes[0]: self.counter})

    @property
    def counter(self) -> str:
        """The letter of loops in time."""
        choices: list[str] = [*FAMILIES["time"], "step", "step_"]
        return next(x for x in choices if x not in self.taken)

    # --- tables -----------------------------------------------------------------------------------

    def flat(self, addresses: Addresses) -> tuple[tuple[Array, ...], Addresses, Addresses]:
        """For some addresses: the arrays, which of them each is in, and its place there."""
        arena = self.reading.arena
        owners = arena.owner[addresses]
        found, which = np.unique(owners, return_inverse=True)
        which = which.reshape(addresses.shape).astype(np.int64)
        arrays: list[Array] = []
        places = np.zeros(addresses.shape, np.int64)
        for rank, k in enumerate(found.tolist()):
            mine = which == rank
            if k < 0:
                raise Untranslatable("integers select what is only part of a sum")
            stretch = arena.stretches[k]
            offsets = addresses[mine] - stretch.start
            if k == arena.numbers:
                values, at = np.unique(self.reading.program.constants[offsets], return_inverse=True)
                arrays.append(Table("numbers", (Axis(len(values)),), tuple(values.tolist())))
                places[mine] = at.ravel()
                continue
            arrays.append(stretch)
            stored = self.storage.stored[stretch]
            if stored.sizes:
                coordinates = [c[offsets] for c in stretch.coordinates]
                coordinates[0] = coordinates[0] + stored.offset
                places[mine] = np.ravel_multi_index(coordinates, stored.sizes)
        return tuple(arrays), which, places

    def column(self, addresses: Addresses) -> Tabled:
        """A column of addresses as an array."""
        arrays, which, places = self.flat(addresses)
        return Tabled("", (Axis(len(addresses)),), arrays, which, places)

    def _tabled(self, line: Line, comment: str) -> Unit:
        instruction, loop = line.instruction, line.instruction.loop
        loops = self.reading.program.loops
        outer = () if loop is None else (Axis(loops[loop].count, "time"),)
        each = instruction.count // (outer[0].count if outer else 1)
        axes = (*outer, *((Axis(each),) if each > 1 else ()))
        strides = [each, 1] if outer else [1]
        parts = tuple([(strides[k], axis) for k, axis in enumerate(axes)])
        point = AffineIndex(0, parts)
        value = self._value(instruction, point)
        target = Ref((self.column(instruction.out),), (point,))
        letters = self._letters(axes, loop).of(axes, value)
        return Unit(axes, target, value, comment, letters.given, loop)

    def _value(self, instruction: Instruction, point: AffineIndex) -> Expression:
        if instruction.kind == GATHER:
            return Ref((self._selected(instruction),), (point,))
        if instruction.kind in (SUM, EXTREME):
            symbol = "Σ"
            if instruction.kind == EXTREME:
                symbol = "max" if instruction.rule is ops.first_max else "min"
            parts = [self._reduced(instruction, t, point, symbol) for t in instruction.sums]
            return add(parts) if symbol == "Σ" else parts[0]
        assert instruction.rule is not None
        columns: list[Expression] = [Ref((self.column(c),), (point,)) for c in instruction.columns]
        return applied(instruction.rule, columns, instruction.parameters)

    def _reduced(
        self, instruction: Instruction, terms: Terms, point: AffineIndex, symbol: str
    ) -> Expression:
        """Sums or extremes of terms."""
        terms = terms.side_by_side()
        owners = terms.owners - instruction.start
        lengths = np.bincount(owners, minlength=instruction.count)
        if (lengths == lengths[0]).all():
            axis = Axis(int(lengths[0]))
            scaled = tuple([(times * axis.count, a) for times, a in point.parts])
            place = AffineIndex(0, (*scaled, (1, axis)))
        else:
            starts = np.concatenate([[0], np.cumsum(lengths)])
            name = self.storage.table(starts, "int")
            axis = TableAxis(len(terms), starts=name, at=point)
            place = AffineIndex.along(axis)
        factors: Sequence[Expression] = [Ref((self.column(c),), (place,)) for c in terms.columns]
        return reduced(symbol, (axis,), multiply(*factors))

    def _selected(self, instruction: Instruction) -> Tabled:
        """What integers select, among all of their candidates laid end to end."""
        choice = self.reading.arena.choice
        assert choice is not None
        assert instruction.places is not None
        owners = choice.selection.owners[instruction.places].tolist()
        begins, chosen, addresses = dict[int, int](), list[int](), list[Addresses]()
        at = 0
        for k in dict.fromkeys(owners):
            candidates = choice.selection.gathers[k].candidates
            begins[k] = at
            at += len(candidates)
            addresses.append(self.reading.program.address[candidates])
            if k not in self.gathers:
                self.gathers.append(k)
        for address in addresses:
            if (address < 0).any():
                raise Untranslatable("integers select what is only part of a sum")
        chosen = [self.gathers.index(k) for k in owners]
        arrays, which, places = self.flat(np.concatenate(addresses))
        return Tabled(
            "",
            (Axis(instruction.count),),
            arrays,
            which,
            places,
            np.array([begins[k] for k in owners], np.int64),
            np.array(chosen, np.int64),
        )
