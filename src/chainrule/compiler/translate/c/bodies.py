"""The forward and the backward pass of a program, in either language.

In: a ``Reading`` and what its arguments are called. Out: ``Bodies``: the lines of both passes, the
arrays in work memory, tables and helper functions that they need.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.formulas.decoding import Stretch
from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
    Axis,
    Expression,
    Number,
    Reduce,
    Ref,
    walk,
)
from chainrule.compiler.formulas.reading import Reading
from chainrule.compiler.translate.c.expressions import Writer
from chainrule.compiler.translate.c.languages import ATOM, Language
from chainrule.compiler.translate.c.rows import Functions, Piece
from chainrule.compiler.translate.c.storage import CHOSEN, Storage, Stored
from chainrule.compiler.translate.c.units import Unit, Units
from chainrule.core import ops

FEW = 8  # guards that are written one by one
LONGEST = 600  # lines of a function, about


@dataclass(frozen=True)
class Leaf:
    """An array among the arguments: how it is read in a language, and where its adjoint goes."""

    name: str  # as comments have it
    value: str
    adjoint: str
    sizes: tuple[int, ...]
    by_value: bool
    active: bool  # it is differentiated by
    pointer: bool  # the adjoint of a single number is behind a pointer


class Bodies:
    """Both passes of one program."""

    def __init__(
        self,
        reading: Reading,
        recording: Recording,
        leaves: Sequence[Leaf],
        language: Language,
        reserved: set[str],
        outputs: Sequence[int | float],
        differentiated: Sequence[bool],
        other_branch: str,
    ) -> None:
        """``outputs``: what is returned, addresses or numbers, and which of it is differentiated.

        ``other_branch``: the status where a branch goes another way.
        """
        self.reading, self.recording, self.language = reading, recording, language
        self.other_branch, self.differentiated = other_branch, differentiated
        arena = reading.arena
        self.storage = Storage(language, {*reserved})
        self.functions = Functions(language, {*reserved})
        exact: set[Array] = set()
        for stretch, leaf in zip(arena.stretches, leaves, strict=False):
            stretch.name = leaf.name
            self.storage.stored[stretch] = Stored(
                leaf.value, leaf.adjoint, leaf.sizes, 0, leaf.by_value, leaf.pointer
            )
            exact.add(stretch)
            if leaf.active:
                self.storage.active.add(stretch)
        taken = reading.name_results() | reserved
        self.storage.taken |= taken
        self.numbers = arena.stretches[len(leaves) : arena.numbers]  # computed from integers
        for stretch in self.numbers:
            stretch.name = self.storage.fresh(stretch.name)
            self._work(stretch, 0)
            exact.add(stretch)
        results = {id(s): start for start, s in arena.results.items()}
        for array in dict.fromkeys(line.array for line in reading.lines if line.kept):
            assert isinstance(array, Stretch)
            self._work(array, self._reach(results.get(id(array))))
        self.storage.stored[CHOSEN] = Stored(f"{language.work}chosen", "", (1,))
        units = Units(reading, self.storage, taken)
        self.units = units.units()
        self.gathers = units.gathers
        self.outputs = [Number(x) if isinstance(x, float) else self._output(x) for x in outputs]
        rules = {i.rule.name: i.rule for i in reading.program.instructions if i.rule is not None}
        steep = bool(recording.unflagged.any()) or any(
            _is_steep(i.rule, i.parameters)
            for i in reading.program.instructions
            if i.rule is not None
        )
        self.writer = Writer(language, self.functions, self.storage, rules, exact, steep)
        for unit in self.units:
            if self.writer.is_exact(unit.value):
                exact.update(unit.arrays)
        self._activate()
        self.backward = self._captured(self._backward())
        self.forward = self._captured(self._forward())
        if self.storage.is_unsure:
            first = next(k for k, x in enumerate(self.forward[0]) if "*const " not in x)
            self.forward[0].insert(first, f"    {self.storage.unsure()} = 0{language.end}")

    # --- arrays -----------------------------------------------------------------------------------

    def _reach(self, start: int | None) -> int:
        """How many iterations before the first a result of a loop in time has numbers of."""
        for instruction in self.reading.program.instructions:
            if instruction.start == start and instruction.loop is not None:
                return self.reading.program.loops[instruction.loop].reach
        return 0

    def _work(self, stretch: Stretch, reach: int) -> None:
        sizes = [axis.count for axis in stretch.axes]
        if reach:
            sizes[0] += reach
        self.storage.work(stretch, tuple(sizes), reach)

    def _output(self, address: int) -> Expression:
        column = self.reading.arena.column(np.array([address]))
        return self.reading.formulas.ref(column, [])

    def _activate(self) -> None:
        """Find out which arrays depend on the differentiated argument, and lead to a result."""
        active, found = self.storage.active, -1
        while found != len(active):
            found = len(active)
            for unit in self.units:
                if self.writer.is_active(unit.value):
                    active.update(unit.arrays)
        wanted = zip(self.outputs, self.differentiated, strict=True)
        useful = {a for x, truth in wanted if truth for a in self.writer.passed_on(x)}
        found = -1
        while found != len(useful):
            found = len(useful)
            for unit in reversed(self.units):
                if useful.intersection(unit.arrays):
                    useful.update(self.writer.passed_on(unit.value))
        inputs = {*self.reading.arena.stretches[: self.reading.arena.numbers]}
        self.storage.active &= useful | inputs

    # --- passes -----------------------------------------------------------------------------------

    def _captured(self, parts: Iterator[None]) -> list[list[str]]:
        """The bodies of one function, or of several where it is long; tables of arrays first.

        Compilers take far more than twice as long for a function of twice the length.
        """
        language, made = self.language, list[list[str]]()
        language.depth = 1
        more = True
        while more:
            language.lines, self.writer.locals = [], set()
            more = False
            for _ in parts:
                if len(language.lines) > LONGEST:
                    more = True
                    break
            body, language.lines = language.lines, []
            self.storage.declare_sets()
            made.append([*language.lines, *body])
        return made

    def _groups(self) -> list[tuple[int | None, list[Unit]]]:
        return [(k, list(some)) for k, some in itertools.groupby(self.units, lambda u: u.loop)]

    def _forward(self) -> Iterator[None]:
        writer, language = self.writer, self.language
        writer.backward = False
        for loop, units in self._groups():
            if loop is None:
                for unit in units:
                    self._forward_unit(unit, unit.axes)
                    yield
                continue
            count = self.reading.program.loops[loop].count
            with language.loop(units[0].letters[units[0].axes[0]], "0", str(count)):
                for unit in units:
                    self._forward_unit(unit, unit.axes[1:])
            yield
        self._guards()

    @contextmanager
    def _scope(self, unit: Unit, axes: Sequence[Axis]) -> Iterator[None]:
        """The loops of a unit; outside of all loops, names are those of the function."""
        writer = self.writer
        known = set(writer.locals)
        writer.letters = unit.letters
        writer.line = unit.target.arrays[0]
        if not writer.line.name:
            writer.line = unit.arrays[0]
        writer.whole = unit.value, unit.target
        writer.around = [] if unit.loop is None else [unit.axes[0]]
        with writer.loops(axes):
            yield
        if axes:
            writer.locals = known

    def _forward_unit(self, unit: Unit, axes: Sequence[Axis]) -> None:
        self.language.comment(unit.comment)
        with self._scope(unit, axes):
            value = self.writer.value(unit.value)
            self.language.assign(self.writer.storage.place(unit.target, unit.letters), value.text)

    def _backward(self) -> Iterator[None]:
        writer, language = self.writer, self.language
        writer.backward = True
        for loop, units in reversed(self._groups()):
            units = [u for u in units if self.storage.active.intersection(u.arrays)]
            units = [u for u in units if writer.is_active(u.value)]
            if loop is None:
                for unit in reversed(units):
                    self._backward_unit(unit, unit.axes)
                    yield
            elif units:
                count = self.reading.program.loops[loop].count
                name = units[0].letters[units[0].axes[0]]
                with language.loop(name, "0", str(count), backwards=True):
                    for unit in reversed(units):
                        self._backward_unit(unit, unit.axes[1:])
                yield

    def _backward_unit(self, unit: Unit, axes: Sequence[Axis]) -> None:
        writer, language = self.writer, self.language
        language.comment(unit.comment)
        with self._scope(unit, axes):
            place = self.storage.place(unit.target, unit.letters, adjoint=True)
            g = Piece(place, ATOM, self.functions)
            if not any(isinstance(x, Reduce) for x in walk(unit.value)):
                writer.push(unit.value, g)
                return
            name = writer.name("g")
            language.constant(name, g.text)
            with language.when(f"{name} != 0.0"):
                writer.push(unit.value, Piece(name, ATOM, self.functions))

    # --- guards -----------------------------------------------------------------------------------

    def _guards(self) -> None:
        """Return where a branch goes another way than in the recording."""
        program, language = self.reading.program, self.language
        if not len(program.guards):
            return
        language.comment("the branches that the example took")
        arrays, which, places = self._units().flat(program.guards)
        if len(program.guards) > FEW:
            column = self._units().column(program.guards)
            axis = Axis(len(program.guards))
            self.writer.letters = {axis: "k"}
            with language.loop("k", "0", str(len(program.guards))):
                ref = Ref((column,), (AffineIndex.along(axis),))
                wanted = program.expected
                text = language.number(float(wanted[0]))[0]
                if (wanted != wanted[0]).any():
                    text = f"{self.storage.table(wanted.tolist(), 'double')}[k]"
                self._guard(self.storage.place(ref, self.writer.letters), text)
            return
        for owner, at, wanted in zip(which, places, program.expected, strict=True):
            array = arrays[int(owner)]
            index = str(int(at)) if self.storage.stored[array].sizes else None
            self._guard(self.storage.text(array, index), language.number(float(wanted))[0])

    def _units(self) -> Units:
        return Units(self.reading, self.storage, set())

    def _guard(self, found: str, wanted: str) -> None:
        with self.language.when(f"{found} != {wanted}"):
            self.language.emit(f"return {self.other_branch}{self.language.end}")

    def read_from(self) -> set[Array]:
        """The arrays that something is read from."""
        expressions = [*[unit.value for unit in self.units], *self.outputs]
        refs = [x for y in expressions for x in walk(y) if isinstance(x, Ref)]
        return {a for ref in refs for a in getattr(ref.arrays[0], "owners", ref.arrays)}

    # --- what the source needs --------------------------------------------------------------------

    def text(self, x: Expression) -> str:
        """A returned number."""
        self.writer.letters = {}
        return self.writer.value(x).text

    def seeded(self, k: int) -> str | None:
        """The adjoint of a returned number; None where it depends on nothing differentiated."""
        x = self.outputs[k]
        if not self.differentiated[k] or not isinstance(x, Ref) or not self.writer.is_active(x):
            return None
        return self.storage.place(x, {}, adjoint=True)

    def members(self, adjoints: bool) -> list[tuple[str, tuple[int, ...]]]:
        """The arrays in work memory, or their adjoints: names and sizes."""
        found = []
        before = self.language.work
        for array, stored in self.storage.stored.items():
            name = stored.adjoint if adjoints else stored.value
            if array is CHOSEN or not name.startswith(before):
                continue
            if adjoints and array not in self.storage.adjoints:
                continue
            found.append((name.removeprefix(before), stored.sizes))
        return found

    def helpers(self, *bodies: str) -> list[str]:
        """The helper functions that these lines call, and those that they call in turn."""
        needed, rest = list[str](), "\n".join(bodies)
        for text in reversed(self.functions.texts):
            match = re.search(r"(\w+)\(", text)
            assert match is not None
            if re.search(rf"\b{match[1]}\(", rest):
                needed.insert(0, text)
                rest += text
        return needed


def _is_steep(rule: ops.Op, parameters: Sequence[float]) -> bool:
    """Whether its derivative may be infinite where it is defined, as that of a root at 0."""
    if rule is ops.pow:
        return 0.0 < parameters[0] < 1.0
    known = rule is ops.TABLE.get(rule.name) or rule is ops.BLOCKS.get(rule.name)
    edges = [slope for edge in rule.edges for slope in edge.partials]
    return not known or any(abs(slope) == float("inf") for slope in edges)
