"""Instructions without a formula: their operands are read through tables of places.

In: a line whose indices follow no rule, and the addresses that its instruction reads. Out: a
``Term`` that reads them from the arrays laid end to end, such as
``np.concatenate([a.ravel(), b])[PLACES]``. Only such a line has tables; the others stay formulas.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from chainrule.compiler.formulas.notation import AffineIndex, Array, Axis, Expression, Ref
from chainrule.compiler.formulas.reading import Reading
from chainrule.compiler.formulas.translation import Line, applied
from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM
from chainrule.compiler.lift.program import Instruction, Terms
from chainrule.compiler.translate.expressions import Writer
from chainrule.compiler.translate.scope import Scope, Stored
from chainrule.compiler.translate.sums import size_of
from chainrule.compiler.translate.terms import ATOM, Places, Term, Untranslatable
from chainrule.core import ops

Truths = npt.NDArray[np.bool_]
NOWHERE = -1  # the place of padding


def tabulated(reading: Reading, scope: Scope, line: Line) -> Term:
    """The results of an instruction, over the axes of its line."""
    stretch = reading.arena.results[line.instruction.start]
    return _Tables(reading, scope, line, line.instruction, line.axes, stretch.coordinates).term()


def tabulated_in_loop(reading: Reading, scope: Scope, line: Line, count: int, local: Local) -> Term:
    """The results of an instruction in one iteration of its loop; ``local``: the loop's arrays."""
    row = line.instruction.row(1, count)
    stretch = reading.arena.results[line.instruction.start]
    here = row.out - stretch.start
    coordinates = [c[here] for c in stretch.coordinates[1:]]
    for column in line.instruction.reads:
        each = column.reshape(count, -1)
        owners = [reading.arena.stretches[k] for k in reading.arena.owner[each[1]].tolist()]
        sizes = [size_of(x.axes[1:]) if local.holds(x) else 0 for x in owners]
        moving = each[1] + np.arange(-1, count - 1)[:, None] * np.array(sizes)
        if (each != moving).any():
            raise Untranslatable("a loop reads irregular places")
    return _Tables(reading, scope, line, row, line.axes[1:], coordinates, local).term()


class Local(Protocol):
    """The arrays of a loop while one of its iterations is written."""

    def holds(self, array: Array) -> bool:
        """Whether it is one of the loop."""
        ...

    def ago(self, array: Array, iterations: int) -> Stored:
        """The numbers of it from so many iterations ago."""
        ...


class _Tables:
    """Writes one line, or one iteration of it."""

    def __init__(
        self,
        reading: Reading,
        scope: Scope,
        line: Line,
        instruction: Instruction,
        axes: tuple[Axis, ...],
        coordinates: Sequence[Places],
        local: Local | None = None,
    ) -> None:
        self.reading, self.scope = reading, scope
        self.instruction, self.axes, self.local = instruction, axes, local
        self.writer = Writer(scope, axes, {}, line.array in scope.detached)
        #: for each point of the padded array, which of the instruction's results it is
        self.rows = np.full([axis.count for axis in axes], NOWHERE, np.int64)
        if axes:
            self.rows[tuple(coordinates)] = np.arange(instruction.count)
        else:
            self.rows[()] = 0

    def term(self) -> Term:
        instruction, axes = self.instruction, self.axes
        if instruction.kind == GATHER:
            return self._gathered()
        if instruction.kind in (SUM, EXTREME):
            parts = [self._reduced(terms) for terms in instruction.sums]
            if instruction.kind == SUM:
                return self.writer.added([(False, part) for part in parts])
            (part,) = parts
            return part
        assert instruction.rule is not None
        refs: list[Expression] = [self._operand(column, 1.0) for column in instruction.columns]
        term = self.writer.value(applied(instruction.rule, refs, instruction.parameters))
        return Term(self.writer.full(term, axes), axes)

    def _gathered(self) -> Term:
        """Numbers that integers select, by what is computed from them."""
        places, axes = self.instruction.places, self.axes
        choice = self.reading.arena.choice
        assert places is not None
        assert choice is not None
        if (self.rows == NOWHERE).any():
            raise Untranslatable("an index is computed from integers in sums of different lengths")
        selection = choice.selection
        gathers = [selection.gathers[k] for k in selection.owners[places].tolist()]
        order = self.rows.ravel()
        gathers = [gathers[k] for k in order.tolist()]
        counts = np.array([len(gather.candidates) for gather in gathers])
        addresses = np.full((len(gathers), int(counts.max())), NOWHERE, np.int64)
        for row, gather in zip(addresses, gathers, strict=True):
            row[: len(gather.candidates)] = self.reading.program.address[gather.candidates]
            if (row[: len(gather.candidates)] < 0).any():
                raise Untranslatable("integers select what is only part of a sum")
        assert self.scope.integers is not None
        index = self.scope.integers.code([gather.index for gather in gathers])
        if len({*counts.tolist()}) > 1:
            self.scope.helpers.add("inside")
            index = f"inside({index}, {self.scope.table(counts)})"
        alike = (addresses == addresses[0]).all()
        code = self._flat(addresses[0] if alike else addresses, np.nan)
        more = "" if alike else f"{self.scope.dialect.constants}.arange({len(order)}), "
        if self.scope.dialect.clamps:
            self.scope.helpers.add("pick")
            code = f"pick({code}, {more}{index})"
        else:
            code = f"{code}[{more}{index}]"
        shape = ", ".join(str(axis.count) for axis in axes)
        if len(axes) != 1:
            code = f"{code}.reshape({shape})" if axes else f"{code}[0]"
        return Term(code, axes)

    def _operand(self, column: Places, padding: float) -> Ref:
        """A column of addresses as an array over the axes of the line."""
        padded = np.asarray(np.append(column, NOWHERE)[self.rows])
        code = self._flat(padded, padding)
        made = Array("column", self.axes)
        self.scope.stored[made] = Stored.plain(code, padded.shape)
        return Ref((made,), tuple([AffineIndex.along(axis) for axis in self.axes]))

    def _reduced(self, terms: Terms) -> Term:
        """Sums or extremes of terms, padded to the longest."""
        instruction, np_ = self.instruction, self.scope.dialect.module
        terms = terms.side_by_side()
        owners = terms.owners - instruction.start
        lengths = np.bincount(owners, minlength=instruction.count)
        begin = np.cumsum(lengths) - lengths
        table = np.full((instruction.count + 1, int(lengths.max())), NOWHERE, np.int64)
        table[owners, np.arange(len(owners)) - begin[owners]] = np.arange(len(owners))
        if instruction.kind == EXTREME:
            padding = -np.inf if instruction.rule is ops.first_max else np.inf
        else:
            padding = 0.0
        chosen = table[self.rows]  # the last row is that of padding
        codes = [
            self._flat(np.append(column, NOWHERE)[chosen], padding) for column in terms.columns
        ]
        inside = " * ".join(codes)
        if instruction.kind == SUM:
            return Term(f"{np_}.sum({inside}, -1)", self.axes, ATOM)
        symbol = "max" if instruction.rule is ops.first_max else "min"
        plain = self.writer.detached or not self.scope.dialect.gradients
        word = self.scope.dialect.functions[symbol] if plain else f"first_{symbol}"
        if not plain:
            self.scope.helpers.add(word)
        return Term(f"{word}({inside}, -1)", self.axes)

    def _flat(self, addresses: Places, padding: float) -> str:
        return laid_end_to_end(self.reading, self.scope, addresses, padding, self.local)


def laid_end_to_end(
    reading: Reading,
    scope: Scope,
    addresses: Places,
    padding: float = 0.0,
    local: Local | None = None,
) -> str:
    """The numbers at some addresses, as an array of the same shape.

    ``local``: the loop's arrays, where the addresses are those of its second iteration.
    """
    arena, np_ = reading.arena, scope.dialect.module
    real = addresses != NOWHERE
    owners = np.where(real, arena.owner[addresses], NOWHERE)
    places = np.full(addresses.shape, NOWHERE, np.int64)
    words: list[str] = []
    at = 0

    def read(stored: Stored, mine: Truths, coordinates: Sequence[Places]) -> None:
        nonlocal at
        own = [coordinates[i] for i in stored.turns]
        places[mine] = at + (np.ravel_multi_index(own, stored.sizes) if own else 0)
        code = stored.code
        if stored.integers:
            code = scope.numbers(Term(code)).bracketed(ATOM)
        several = ".ravel()" if len(stored.sizes) > 1 else ""
        words.append(code + (several if stored.sizes else "[None]"))
        at += math.prod(stored.sizes)

    for k in np.unique(owners[real]).tolist():
        mine = owners == k
        stretch = arena.stretches[k]
        offsets = addresses[mine] - stretch.start
        if k == arena.numbers:
            values, which = np.unique(reading.program.constants[offsets], return_inverse=True)
            read(Stored.plain(scope.table(values), [len(values)]), mine, [which.ravel()])
            continue
        coordinates = [c[offsets] for c in stretch.coordinates]
        if local is not None and local.holds(stretch):
            for time in np.unique(coordinates[0]).tolist():
                now = np.zeros(addresses.shape, np.bool_)
                now[mine] = coordinates[0] == time
                there = [c[coordinates[0] == time] for c in coordinates[1:]]
                read(local.ago(stretch, 1 - time), now, there)
            continue
        stored = scope.find(stretch)
        if stored.offset:
            coordinates[0] = coordinates[0] + stored.offset
        read(stored, mine, coordinates)
    if not real.all():
        places[~real] = at
        words.append(scope.filled(1, float(padding)))
        at += 1
    code = words[0] if len(words) == 1 else f"{np_}.concatenate([{', '.join(words)}])"
    if places.ndim == 0:
        return f"{code}[{places}]"
    if np.array_equal(places.ravel(), np.arange(at)):
        if places.ndim == 1:
            return code
        return f"{code}.reshape({', '.join(map(str, places.shape))})"
    return f"{code}[{scope.table(places)}]"
