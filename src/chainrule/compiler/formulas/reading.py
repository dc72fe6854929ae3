"""An array program in index notation, for a person to read.

In: a ``Program``, the names of its inputs and what its integers select. Out: text, a line for each
array instruction, such as ``a[t,i] = Σ_j W1[i,j]·x[t,j] + b1[i]``, with its size. A short formula
that is used once is inlined; an unused one is left out.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import groupby

import numpy as np

from chainrule.compiler.formulas.decoding import Arena, Choice
from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.formulas.notation import (
    INDICES,
    AffineIndex,
    Array,
    Axis,
    Call,
    Expression,
    Letters,
    Number,
    Power,
    Reduce,
    Ref,
    is_complete,
    is_open,
    moved,
    operands,
    rebuilt,
    text,
    walk,
)
from chainrule.compiler.formulas.translation import SEVERAL, Formulas, Line
from chainrule.compiler.lift.program import Program

WIDTH = 100
LONGEST = 66  # characters of a formula into which another is inlined
MANY = 1000  # uses that are counted for a result that must keep its line


def read(
    program: Program,
    inputs: Sequence[Named],
    choice: Choice | None = None,
    root: int | None = None,
    others: Sequence[int] = (),
) -> str:
    """The program as text; ``root``: the address of its result; ``others``: of further ones."""
    try:
        return Reading(program, inputs, choice, root, others).text()
    except Exception:  # only a person reads it: the plain listing will do
        return str(program)


class Reading:
    """The lines of a program, short ones inlined into others."""

    def __init__(
        self,
        program: Program,
        inputs: Sequence[Named],
        choice: Choice | None,
        root: int | None,
        others: Sequence[int] = (),
        several: int = SEVERAL,
        complete: bool = False,
        length: Callable[[str], int] = len,
        added: Sequence[tuple[int, Named]] = (),
    ) -> None:
        """``others``: addresses of further results; ``several``: how many parts a sum may have.

        ``complete``: a formula that is not known in full is none, and what such an instruction
        reads keeps its lines. ``length``: how long a formula is that would be inlined. ``added``:
        numbers that depend on the length of a call.
        """
        self.length = length
        self.program, self.root, self.others = program, root, others
        self.arena = Arena(program, inputs, choice, added)
        self.formulas = Formulas(program, self.arena, several)
        self.lines = self.formulas.lines
        self.read_by_address: set[Array] = set()
        if complete:
            self._open_incomplete()
        self._join()

    def _open_incomplete(self) -> None:
        """Take formulas away that are not known in full."""
        for line in self.lines:
            if line.value is None or not is_complete(line.value):
                line.shown, line.value = line.value, None
                read = np.unique(self.arena.owner[np.concatenate(line.instruction.reads)])
                self.read_by_address.update(self.arena.stretches[k] for k in read.tolist())

    # --- inlining ---------------------------------------------------------------------------------

    def _join(self) -> None:
        """Inline short formulas that are used once, and drop unused ones."""
        uses = self.uses = Counter(array for line in self.lines for array in _arrays(line))
        seen = [*self.program.guards.tolist(), *([] if self.root is None else [self.root])]
        seen += self.others
        uses.update({self.arena.at(address): MANY for address in seen})
        uses.update(dict.fromkeys(self.read_by_address, MANY))
        for line in reversed(self.lines):
            line.kept = uses[line.array] > 0
            uses.subtract([] if line.kept else _arrays(line))
        several = Counter(line.array for line in self.lines)
        made = {line.array: line for line in self.lines if several[line.array] == 1}
        for line in self.lines:
            for ref, around in list(_references(line)) if line.kept else ():
                other = made.get(ref.arrays[0])
                if other is not None and other is not line:
                    self._write_into(line, ref, around, other)

    def _write_into(self, line: Line, ref: Ref, around: tuple[Axis, ...], other: Line) -> None:
        """Inline a formula where another reads its result, if that stays readable."""
        value, places = other.value, dict[Axis, AffineIndex]()
        if value is None or line.value is None or len(ref.arrays) > 1:
            return
        for axis, place in zip(other.axes, ref.places, strict=True):
            if not isinstance(place, AffineIndex):
                return
            places[axis] = place
        if other.instruction.loop != line.instruction.loop:
            return
        if line.instruction.loop is not None and ref.places[0] != AffineIndex.along(line.axes[0]):
            return
        alias = isinstance(value, Ref) and None not in value.places
        if self.uses[other.array] != 1 and not alias:
            return
        used = {axis for place in places.values() for _, axis in place.parts}
        work = [x for x in walk(value) if isinstance(x, (Reduce, Power, Call))]
        work = [x for x in work if not (isinstance(x, Call) and x.name == ".data")]
        if work and not {*line.axes, *around} <= used:
            return  # it is computed once for several readers
        nested = any(isinstance(x, Reduce) for x in work) and len(around) > 0
        if nested or is_open(value):
            return
        inside = moved(value, places)
        whole = rebuilt(line.value, lambda r: inside if r == ref else r)
        if self.length(text(whole, Letters(()).of(line.axes, whole))) <= LONGEST:
            line.value = whole
            self.uses[other.array] -= 1
            other.kept = self.uses[other.array] > 0

    # --- text -------------------------------------------------------------------------------------

    def name_results(
        self,
        lines: Sequence[Line] | None = None,
        single: bool = True,
        others: Collection[str] = (),
    ) -> set[str]:
        """Give names to the arrays that lines define, not ``others``; all that are taken then.

        ``single``: there is one result, and a scalar of it has that name.
        """
        names = {re.split(r"[.[]", s.name)[0] for s in self.arena.stretches}
        fresh = _names({*names, *INDICES, *others})
        result = None if self.root is None or not single else self.arena.at(self.root)
        for line in self.lines if lines is None else lines:
            array = line.array
            if line.kept and not array.name:
                array.name = "result" if array is result and not array.axes else next(fresh)
        return {s.name for s in self.arena.stretches} | {*names, *others}

    def text(self) -> str:
        """The whole program."""
        taken = self.name_results(single=not self.others)
        rows: list[tuple[str, str]] = []
        for repeat, lines in groupby(self.lines, key=lambda line: line.instruction.loop):
            if repeat is not None:
                rows.append((f"{self.program.loops[repeat].count} times:", ""))
            for line in lines:
                if line.kept:
                    formula, size = self.row(line, Letters(taken))
                    rows.append(("    " * (repeat is not None) + formula, size))
        rows += self._results()
        guards = {
            self.arena.stretches[k].name for k in self.arena.owner[self.program.guards].tolist()
        }
        if guards:
            rows.append((f"as recorded: {', '.join(sorted(guards))}", ""))
        wide = min(max((len(left) for left, _ in rows), default=0), LONGEST)
        return "\n".join(_wrapped(left, size, wide) for left, size in rows)

    def _results(self) -> Iterator[tuple[str, str]]:
        """Which numbers are the results, a row for each array that neighbours of them lie in."""
        addresses = np.array([] if self.root is None else [self.root, *self.others], np.int64)
        if len(addresses) == 1:
            if self.arena.at(int(addresses[0])).name != "result":
                at = self.formulas.ref(self.arena.see(addresses), [])
                yield f"result = {text(at, Letters(()))}", ""
            return
        changes = np.flatnonzero(np.diff(self.arena.owner[addresses])) + 1
        for numbers in np.split(np.arange(len(addresses)), changes) if len(addresses) else ():
            first, count = int(numbers[0]), len(numbers)
            axes = (Axis(count),) if count > 1 else ()
            at = self.formulas.ref(
                self.arena.see(addresses[numbers]), [(axis, numbers - first) for axis in axes]
            )
            letters = Letters(()).of(axes, at)
            place = AffineIndex(first, tuple((1, axis) for axis in axes)).text(letters.given)
            yield f"result[{place}] = {text(at, letters)}", size_text([axis.count for axis in axes])

    def row(self, line: Line, letters: Letters) -> tuple[str, str]:
        """A formula in these letters, which get those that it needs, and its size."""
        value = line.shown if line.value is None else line.value
        letters.of(line.axes, Number(0.0) if value is None else value)
        size = size_text([f"≤{a.count}" if a.length else a.count for a in line.axes])
        if line.whole:
            at = ",".join(letters.bounded(axis) for axis in line.axes)
            left = line.array.name + (f"[{at}]" if at else "")
        else:
            left = text(line.target, letters)
        if value is None:
            return f"{left} = {str(line.instruction).split(' = ')[-1]} […]", size
        return f"{left} = {text(value, letters)}", size


def size_text(counts: Sequence[int | str]) -> str:
    """The size of an array: ``[3×4]``, nothing for a single number."""
    return f"[{'×'.join(map(str, counts))}]" if counts else ""


def _references(line: Line) -> Iterator[tuple[Ref, tuple[Axis, ...]]]:
    """The references in a formula, each with the axes of the sums around it."""

    def within(x: Expression, around: tuple[Axis, ...]) -> Iterator[tuple[Ref, tuple[Axis, ...]]]:
        if isinstance(x, Ref):
            yield x, around
        inside = (*around, *x.axes) if isinstance(x, Reduce) else around
        for y in operands(x):
            yield from within(y, inside)

    if line.value is not None:
        yield from within(line.value, ())


def _arrays(line: Line) -> list[Array]:
    """The arrays that a formula reads, once for each reference."""
    return [array for ref, _ in _references(line) for array in ref.arrays]


def _names(taken: set[str]) -> Iterator[str]:
    """Names for results: letters, then letters with numbers."""
    for number in ("", *map(str, range(1, 1000))):
        for letter in "abdefopqrsvwxyz":
            if letter + number not in taken:
                yield letter + number


def _wrapped(left: str, size: str, wide: int) -> str:
    """A formula wrapped to lines that fit, its size to the right of the last."""
    indent = " " * (len(left) - len(left.lstrip()) + 4)
    lines = textwrap.wrap(left, WIDTH - 16, subsequent_indent=indent, break_long_words=False) or [
        left
    ]
    lead = left[: len(left) - len(left.lstrip())]
    lines[0] = lead + lines[0].lstrip()
    lines[-1] = f"{lines[-1]:{wide}}  {size}".rstrip()
    return "\n".join(lines)
