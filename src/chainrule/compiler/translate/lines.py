"""The lines of a source: a formula in index notation as a comment, and the array that it defines.

In: the lines of a ``Reading``, in order; those of a loop in time together. Out: blocks of text.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence

from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
    Axis,
    Call,
    Expression,
    Letters,
    Ref,
    operands,
    text,
)
from chainrule.compiler.formulas.reading import WIDTH, Reading
from chainrule.compiler.formulas.translation import Line
from chainrule.compiler.translate.expressions import Writer
from chainrule.compiler.translate.scope import Scope, Stored
from chainrule.compiler.translate.sums import size_of
from chainrule.compiler.translate.tables import tabulated
from chainrule.compiler.translate.terms import Term, Untranslatable

WITHOUT_DERIVATIVE = (".data", "<", "≤", "==")


class Lines:
    """Writes lines that are not in a loop."""

    def __init__(self, reading: Reading, scope: Scope, taken: set[str]) -> None:
        self.reading, self.scope, self.taken = reading, scope, taken
        self.blocks: list[str] = []

    def straight(self, line: Line) -> None:
        """A line that is done at once."""
        self.blocks.append(self.comment(line))
        self._define(line)

    def formula(self, line: Line) -> str:
        """The formula as one line of text."""
        return " ".join(self.reading.row(line, Letters(self.taken))).rstrip()

    def comment(self, line: Line) -> str:
        """The formula and its size."""
        formula, size = self.reading.row(line, Letters(self.taken))
        whole = f"{formula}  {size}".rstrip()
        return textwrap.fill(whole, WIDTH, initial_indent="# ", subsequent_indent="#     ")

    def beginning(self, array: Array, start: Ref) -> str:
        """What an array of a loop is before the first iteration, as a comment."""
        axes = array.axes[1:]
        letters = Letters(self.taken).of(axes, start)
        at = ",".join(["-1", *[letters.given[axis] for axis in axes]])
        return f"# {array.name}[{at}] = {text(start, letters)}"

    def value(self, line: Line, axes: Sequence[Axis], make: type[Writer] = Writer) -> Term:
        """The right side of a line, over these axes, in the order that suits it best."""
        if line.value is None:
            if make is not Writer or not line.whole:
                raise Untranslatable(f"no formula was found for {self.formula(line)}")
            return tabulated(self.reading, self.scope, line)
        letters = Letters(self.taken).of(line.axes, line.value).given
        detached = line.array in self.scope.detached
        try:
            trial = make(self.scope, axes, letters, detached)
            trial.value(line.value)
            order = preferred(trial.seen, axes)
            writer = make(self.scope, order, letters, detached)
            term = writer.value(line.value).ordered(order)
        except Untranslatable as error:
            raise Untranslatable(f"{error}: {self.formula(line)}") from None
        if len(term.axes) < len(axes):
            return Term(writer.full(term, order), tuple(order))
        return term

    def _define(self, line: Line) -> None:
        array = line.array
        term = self.value(line, line.axes)
        if line.whole:
            self.blocks.append(f"{array.name} = {term.code}")
            self.scope.stored[array] = Stored.of(array.name, line.axes, term)
            return
        places = [p for p in line.target.places if isinstance(p, AffineIndex)]
        if not all(place.parts == () for place in places):
            self._begin(line, places, term)
            return
        at = tuple([place.constant for place in places])
        words = (
            [array.name, *map(str, at)] if at[0] >= 0 else [array.name, "before", *map(str, at[1:])]
        )
        name = self.scope.fresh("_".join(words))
        self.blocks.append(f"{name} = {term.code}")
        self.scope.pieces.setdefault(array, {})[at] = name
        self._join(array)

    def _begin(self, line: Line, places: Sequence[AffineIndex], term: Term) -> None:
        """What a loop's array holds before the first iteration: ``b[-1,i] = ...``."""
        array, first = line.array, places[0]
        rest = [place.plain for place in places[1:]]
        axes = [axis for axis in rest if axis is not None]
        whole = [axis.count for axis in axes] == [axis.count for axis in array.axes[1:]]
        steps = [_only(first)] if first.parts else []
        if len(axes) < len(rest) or not whole or None in steps:
            raise Untranslatable(f"a part of an array: {self.formula(line)}")
        name = self.scope.fresh(f"{array.name}_before")
        times = [axis for axis in steps if axis is not None]
        self.blocks.append(f"{name} = {term.ordered([*times, *axes]).code}")
        found = self.scope.pieces.setdefault(array, {})
        if not times:
            found[(first.constant,)] = name
        for k in range(times[0].count if times else 0):
            found[(first.constant + k,)] = f"{name}[{k}]"

    def _join(self, array: Array) -> None:
        """One array of numbers that were computed one by one, once they are all there."""
        found, sizes = self.scope.pieces[array], [axis.count for axis in array.axes]
        if len(found) < size_of(array.axes) or min(min(at) for at in found) < 0:
            self._join_start(array)
            return
        code = f"{self.scope.dialect.module}.stack([{', '.join(found[k] for k in sorted(found))}])"
        if len(sizes) > 1:
            code += f".reshape({', '.join(map(str, sizes))})"
        self.blocks.append(f"{array.name} = {code}")
        self.scope.stored[array] = Stored.plain(array.name, sizes)

    def _join_start(self, array: Array) -> None:
        """The same for what a loop's array holds before the first iteration."""
        found, sizes = self.scope.pieces[array], [axis.count for axis in array.axes[1:]]
        for time in {at[0] for at in found if at[0] < 0 and len(at) > 1}:
            mine = {at: name for at, name in found.items() if at[0] == time and len(at) > 1}
            if len(mine) == size_of(array.axes[1:]) and (time,) not in found:
                module = self.scope.dialect.module
                code = f"{module}.stack([{', '.join(mine[at] for at in sorted(mine))}])"
                if len(sizes) > 1:
                    code += f".reshape({', '.join(map(str, sizes))})"
                name = self.scope.fresh(f"{array.name}_before")
                self.blocks.append(f"{name} = {code}")
                found[(time,)] = name


def preferred(seen: Sequence[tuple[Axis, ...]], axes: Sequence[Axis]) -> list[Axis]:
    """The axes in the order in which the largest array that was read or contracted has them."""
    found = [[axis for axis in some if axis in axes] for some in seen]
    best = max(found, key=size_of, default=[])
    made = list(best)
    for k, axis in enumerate(axes):
        if axis not in made:
            before = [made.index(other) + 1 for other in axes[:k] if other in made]
            made.insert(max(before, default=0), axis)
    return made


def only_detached(reading: Reading, lines: Sequence[Line]) -> set[Array]:
    """The arrays that are read for their data only, so that they need no derivative."""
    plain: Counter[Array] = Counter()
    hidden: set[Array] = set()

    def visit(x: Expression, inside: bool) -> None:
        if isinstance(x, Ref):
            if inside:
                hidden.update(x.arrays)
            else:
                plain.update(x.arrays)
        inside = inside or (isinstance(x, Call) and x.name in WITHOUT_DERIVATIVE)
        for y in operands(x):
            visit(y, inside)

    for line in lines:
        if line.value is not None:
            visit(line.value, False)
    plain.update(reading.read_by_address)
    roots = {reading.arena.at(k) for k in [reading.root, *reading.others] if k is not None}
    return hidden - set(plain) - roots


def _only(place: AffineIndex) -> Axis | None:
    """The axis of an index that is a constant plus an axis."""
    return place.parts[0][1] if len(place.parts) == 1 and place.parts[0][0] == 1 else None
