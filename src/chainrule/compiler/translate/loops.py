"""Loops in time: ``lax.scan``, a Python loop, or a cumulative sum.

In: the lines of one loop, each over a first axis that is time, and what their arrays begin with.
Out: a block of text that defines these arrays, for all times where someone reads them so, else for
the last. What an iteration reads from outside is passed in one slice at a time; what it reads of
the iterations before is carried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from chainrule.compiler.formulas.decoding import Arena, Stretch
from chainrule.compiler.formulas.notation import AffineIndex, Array, Axis, Ref, walk
from chainrule.compiler.formulas.reading import WIDTH
from chainrule.compiler.formulas.translation import Line
from chainrule.compiler.translate.ends import Cumulated
from chainrule.compiler.translate.expressions import Writer
from chainrule.compiler.translate.lines import Lines
from chainrule.compiler.translate.rolling import Loop, Section
from chainrule.compiler.translate.scope import Scope, Stored
from chainrule.compiler.translate.tables import tabulated_in_loop
from chainrule.compiler.translate.terms import PRODUCT, Term, Untranslatable, indented
from chainrule.compiler.translate.views import axes_of

LAYERS = 16  # at most so many are a loop in Python, which XLA unrolls: 1.5 times faster on a GPU


@dataclass(eq=False)
class Body:
    """What an iteration reads: arrays of the loop by how long ago, and slices from outside."""

    mine: dict[Array, Line]
    count: int
    scope: Scope
    current: dict[Array, Stored] = field(default_factory=dict)
    before: dict[tuple[Array, int], Stored] = field(default_factory=dict)
    passed: dict[str, str] = field(default_factory=dict)  # the name of a slice, by its code
    is_layers: bool = False  # whether iterations read arrays of their own

    def holds(self, array: Array) -> bool:
        """Whether an array is one of the loop."""
        return array in self.mine

    def ago(self, array: Array, iterations: int) -> Stored:
        """The numbers of an array from so many iterations ago."""
        return self.before[array, iterations] if iterations else self.current[array]

    def writer(self, time: Axis) -> type[Writer]:
        """A writer for a line of the loop whose time is this axis."""
        body = self

        class Inside(Writer):
            in_loop = True

            def ref(self, x: Ref) -> Term:
                if body.mine.keys() & {*x.arrays}:
                    return self._carried(x)
                places = [place for place in x.places if place is not None]
                if not any(time in axes_of(place) for place in places):
                    return super().ref(x)
                outside = Writer(self.scope, [time, *self.order], self.letters)
                term = outside.ref(x)
                self.order += [axis for axis in outside.order[1:] if axis not in self.order]
                rest = tuple([axis for axis in term.axes if axis is not time])
                code = term.ordered([time, *rest]).code
                body.is_layers |= len(x.arrays) > 1
                if code not in body.passed:
                    body.passed[code] = self.scope.fresh(f"{x.arrays[0].name}_now")
                return Term(body.passed[code], rest)

            def _carried(self, x: Ref) -> Term:
                several = len(x.arrays) > 1
                first = x.places[several]
                if not isinstance(first, AffineIndex) or not {*x.arrays} <= body.mine.keys():
                    raise Untranslatable("a loop reads its arrays and others at once")
                if first.parts != ((1, time),) or first.constant > 0:
                    raise Untranslatable("a loop reads irregular times")
                ago = -first.constant
                stored = [body.ago(array, ago) for array in x.arrays]
                places = [place for place in x.places[several + 1 :] if place is not None]
                which = x.places[0]
                if not several or which is None:
                    return self._read(stored[0], places)
                if any(other.turns != tuple(range(len(other.sizes))) for other in stored):
                    raise Untranslatable("a loop reads several of its arrays at once")
                code = f"{self.np}.stack([{', '.join(other.code for other in stored)}])"
                sizes = [len(stored), *stored[0].sizes]
                return self.viewer.view(code, sizes, [which, *places])

        return Inside


def written_loop(lines: Lines, loop: Loop, every: Sequence[Section]) -> None:
    """Write a loop; ``every``: all sections, of which later ones read its arrays."""
    scope, count, inside = lines.scope, loop.count, loop.lines
    if loop.cumulated is not None and _cumulative(lines, loop, loop.cumulated, every):
        return
    for array, ref in loop.starts.items():
        axes = array.axes[1:]
        writer = Writer(scope, axes, {})
        name = scope.fresh(f"{array.name}_before")
        lines.blocks.append(lines.beginning(array, ref))
        lines.blocks.append(f"{name} = {writer.full(writer.value(ref), axes)}")
        scope.pieces.setdefault(array, {})[(-1,)] = name
    mine = {line.array: line for line in inside}
    body = Body(mine, count, scope)
    reach = _reach(mine, count, lines.reading.arena)
    whole, last, earliest = _read_later(mine, reach, count, every, lines)
    for array, ago in reach.items():
        for k in range(1, ago + 1):
            name = _start(scope, array, k)  # which the loop carries on, unless it is needed again
            if earliest.get(array, 0) < 0 or not name.isidentifier():
                name = scope.fresh(f"{array.name}_before{k if k > 1 else ''}")
            body.before[array, k] = Stored.plain(name, [axis.count for axis in array.axes[1:]])
    written: list[str] = []
    for line in inside:
        axes = line.axes[1:]
        if line.value is None:
            term = tabulated_in_loop(lines.reading, scope, line, count, body)
        else:
            term = lines.value(line, axes, body.writer(line.axes[0]))
        if line.array in (*reach, *whole, *last):
            term = term.ordered(axes)
        written += [lines.comment(line), f"{line.array.name} = {term.code}"]
        body.current[line.array] = Stored.of(line.array.name, axes, term)
    starts = [_start(scope, array, k) for array, k in body.before]
    ends = {a: scope.fresh(f"{a.name}_last") if a in whole else a.name for a in last}
    block = _Block(body, written, starts, whole, ends)
    most = LAYERS if body.is_layers else scope.dialect.unrolled
    scanned = scope.dialect.scans and count > most
    lines.blocks.append(block.scan() if scanned else block.python())
    for array in whole:
        sizes = [axis.count for axis in array.axes]
        before = min(0, earliest.get(array, 0))
        stored = Stored.plain(array.name, sizes)
        if before:
            front = [f"{_start(scope, array, k)}[None]" for k in range(-before, 0, -1)]
            code = f"{scope.dialect.module}.concatenate([{', '.join([*front, array.name])}])"
            lines.blocks.append(f"{array.name} = {code}")
            stored = replace(stored, sizes=(sizes[0] - before, *sizes[1:]), offset=-before)
        scope.stored[array] = stored
    for array, name in ends.items():
        sizes = [axis.count for axis in array.axes[1:]]
        scope.lasts[array] = (count, Stored.plain(name, sizes))


def _cumulative(lines: Lines, loop: Loop, sums: Cumulated, every: Sequence[Section]) -> bool:
    """Write a loop as a cumulative sum, unless what comes before its first iteration is read."""
    (line,), scope = loop.lines, lines.scope
    array, time = line.array, line.axes[0]
    _, _, earliest = _read_later({array: line}, {}, loop.count, every, lines)
    if earliest.get(array, 0) < 0:
        return False
    np_ = scope.dialect.module
    term = lines.value(replace(line, value=sums.terms), line.axes)
    writer = Writer(scope, term.axes, {})
    start = loop.starts.get(array)
    begin = Term(_start(scope, array, 1), line.axes[1:]) if start is None else writer.value(start)
    total = f"{np_}.cumsum({term.code}, {term.axes.index(time)})"
    if sums.exponential:
        code = f"{begin.aligned(term.axes, PRODUCT)} * {np_}.exp({total})"
    else:
        code = f"{begin.aligned(term.axes, PRODUCT)} + {total}"
    lines.blocks += [lines.beginning(array, start)] if start is not None else []
    lines.blocks += [lines.comment(line), f"{array.name} = {code}"]
    scope.stored[array] = replace(Stored.of(array.name, line.axes, term), zero=frozenset())
    return True


@dataclass(eq=False)
class _Block:
    """The text of a loop."""

    body: Body
    written: list[str]
    starts: list[str]
    whole: list[Array]  # read for all times afterwards
    last: dict[Array, str]  # read for the last time only, and the name of that

    @property
    def state(self) -> list[str]:
        """The names of what is carried."""
        return [stored.code for stored in self.body.before.values()]

    @property
    def following(self) -> list[str]:
        """What is carried on, in the same order."""
        before = self.body.before
        return [a.name if k == 1 else before[a, k - 1].code for a, k in before]

    def scan(self) -> str:
        """As a scan."""
        slices = list(self.body.passed.values())
        step = self.body.scope.fresh("step")
        inner = [f"{_pattern(self.state)} = before"]
        inner += [f"{_pattern(slices)} = now"] if slices else []
        inner += self.written
        outs = _pattern([array.name for array in self.whole]) if self.whole else "None"
        inner.append(f"return {_pattern(self.following)}, {outs}")
        head = f"def {step}(before, {'now' if slices else '_'}):"
        names = [self.last.get(a, "_") if k == 1 else "_" for a, k in self.body.before]
        ends = _pattern(names) if set(names) != {"_"} else "_"
        data = _pattern(list(self.body.passed)) if slices else "None"
        more = "" if slices else f", length={self.body.count}"
        made = outs if self.whole else "_"
        call = f"{ends}, {made} = lax.scan({step}, {_pattern(self.starts)}, {data}{more})"
        return "\n".join([head, *map(indented, inner), call])

    def python(self) -> str:
        """As a loop in Python."""
        slices, module = self.body.passed, self.body.scope.dialect.module
        lists = {array: self.body.scope.fresh(f"{array.name}s") for array in self.whole}
        pairs = [pair for pair in zip(self.state, self.starts, strict=True) if pair[0] != pair[1]]
        lines = [f"{name} = {start}" for name, start in pairs]
        lines += [f"{name} = []" for name in lists.values()]
        if len(slices) == 1:
            ((code, name),) = slices.items()
            lines.append(f"for {name} in {code}:")
        elif slices:
            head = f"for {', '.join(slices.values())} in zip({', '.join(slices)}):"
            if len(head) > WIDTH:
                arguments = [f"    {code}," for code in slices]
                head = "\n".join([f"for {', '.join(slices.values())} in zip(", *arguments, "):"])
            lines.append(head)
        else:
            lines.append(f"for _ in range({self.body.count}):")
        inner = list(self.written)
        inner += [f"{name}.append({array.name})" for array, name in lists.items()]
        if self.state:
            inner.append(f"{', '.join(self.state)} = {', '.join(self.following)}")
        lines += map(indented, inner)
        lines += [f"{name} = {a.name}" for a, name in self.last.items() if name != a.name]
        lines += [f"{array.name} = {module}.stack({name})" for array, name in lists.items()]
        return "\n".join(lines)


def _pattern(names: Sequence[str]) -> str:
    """Names as one, or a tuple of several."""
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def _references(line: Line) -> Iterator[Ref]:
    for x in walk(line.value) if line.value is not None else ():
        if isinstance(x, Ref):
            yield x


def _reach(mine: dict[Array, Line], count: int, arena: Arena) -> dict[Array, int]:
    """How many iterations ago each array of a loop is read at most."""
    found: dict[Array, int] = {}
    for line in mine.values():
        for column in line.instruction.reads if line.value is None else ():
            addresses = column.reshape(count, -1)[1]
            for k in np.unique(arena.owner[addresses]).tolist():
                stretch = arena.stretches[k]
                if stretch in mine:
                    here = addresses[arena.owner[addresses] == k] - stretch.start
                    ago = 1 - int(stretch.coordinates[0][here].min())
                    found[stretch] = max(found.get(stretch, 0), ago)
        for ref in _references(line):
            several = len(ref.arrays) > 1
            first = ref.places[several] if len(ref.places) > several else None
            if isinstance(first, AffineIndex):
                inside = [part for part in first.parts if part[1] is not line.axes[0]]
                lowest = sum(min(0, times * (axis.count - 1)) for times, axis in inside)
                for array in mine.keys() & {*ref.arrays}:
                    found[array] = max(found.get(array, 0), -first.constant - lowest)
    return {array: ago for array, ago in found.items() if ago}


def _start(scope: Scope, array: Array, ago: int) -> str:
    """What an array begins with, so many iterations before the first."""
    name = scope.pieces.get(array, {}).get((-ago,))
    if name is None:
        raise Untranslatable(f"nothing is known of {array.name} before the loop")
    return name


def _by_address(
    mine: dict[Array, Line], others: Sequence[Line], lines: Lines
) -> Iterator[tuple[Array, int]]:
    """The arrays that lines without a formula read, and the first time that they read."""
    arena = lines.reading.arena
    tabulated = [np.concatenate(x.instruction.reads) for x in others if x.value is None]
    for array in mine if tabulated else ():
        if isinstance(array, Stretch):
            addresses = np.unique(np.concatenate(tabulated))
            addresses = addresses[arena.owner[addresses] == arena.owner[array.start]]
            if len(addresses):
                yield array, int(array.coordinates[0][addresses - array.start].min())


def _read_later(
    mine: dict[Array, Line],
    reach: dict[Array, int],
    count: int,
    every: Sequence[Section],
    lines: Lines,
) -> tuple[list[Array], list[Array], dict[Array, int]]:
    """The arrays that are read for all times later, for the last time only, and how far back."""
    whole: dict[Array, None] = {}
    last: dict[Array, None] = {}
    earliest: dict[Array, int] = {}
    reading = lines.reading
    outputs = [reading.root, *reading.others, *reading.program.guards.tolist()]
    for address in outputs:
        stretch = None if address is None else reading.arena.at(address)
        if address is not None and stretch is not None and stretch in mine:
            at = stretch.coordinates[0][address - stretch.start]
            ends = at == count - 1 and stretch in reach
            (last if ends else whole)[stretch] = None
    others = [line for section in every for line in section.lines if line.array not in mine]
    for array, first in _by_address(mine, others, lines):
        whole[array] = None
        earliest[array] = first
    begins = [x for s in every if isinstance(s, Loop) for x in s.starts.values()]
    for refs in [*map(_references, others), begins]:
        for ref in refs:
            for array in ref.arrays:
                if array not in mine:
                    continue
                place = ref.places[len(ref.places) - len(array.axes)]
                ends = isinstance(place, AffineIndex) and place == AffineIndex(count - 1)
                if ends and len(ref.arrays) == 1 and array in reach:
                    last[array] = None
                    continue
                whole[array] = None
                if isinstance(place, AffineIndex):
                    lowest = sum(min(0, times * (axis.count - 1)) for times, axis in place.parts)
                    earliest[array] = min(earliest.get(array, 0), place.constant + lowest)
    return list(whole), list(last), earliest
