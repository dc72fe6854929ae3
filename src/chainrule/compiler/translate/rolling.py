"""Lines that repeat, as a loop: ``d = a·b[:,1]``, ``e = d·b[:,2]``, … is ``d[t] = d[t-1]·b[:,t]``.

In: the lines of a reading. Out: sections: lines as they are, and ``Loop``s, the loops in time that
the program has and those found here. The lines of one iteration are those of the one before, except
that they read its results, another of some equal arrays (the weights of the next layer), or an
index that moves on by a constant step. Every reference of every iteration is compared.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
    Axis,
    Call,
    Expression,
    Number,
    Place,
    Power,
    Product,
    Reduce,
    Ref,
    Select,
    Sum,
    add,
    walk,
)
from chainrule.compiler.formulas.reading import Reading
from chainrule.compiler.formulas.translation import Line
from chainrule.compiler.translate.ends import (
    Chain,
    Cumulated,
    cumulated,
    later,
    one_more_after,
    one_more_before,
)

FEWEST = 4  # iterations
FEWER = 3  # of several lines each
SEVERAL = 4  # lines
LONGEST = 40  # lines of an iteration


@dataclass(eq=False)
class Loop:
    """Lines over time, done iteration by iteration; ``starts``: what is read before the first.

    The loops of the program itself have lines of their own for that.
    """

    count: int
    lines: list[Line]
    starts: dict[Array, Ref] = field(default_factory=dict)
    cumulated: Cumulated | None = None  # what it sums up, if it does nothing else


@dataclass(eq=False)
class Straight:
    """A line that is done at once."""

    line: Line

    @property
    def lines(self) -> list[Line]:
        """It alone."""
        return [self.line]


Section = Straight | Loop


def sections(reading: Reading) -> list[Section]:
    """The lines that are kept, in order, those of loops together."""
    found: list[Section] = []
    kept = [line for line in reading.lines if line.kept]
    for number, some in groupby(kept, key=lambda line: line.instruction.loop):
        if number is None:
            found += [Straight(line) for line in some]
        else:
            found.append(Loop(reading.program.loops[number].count, list(some)))
    addresses = [reading.root, *reading.others, *reading.program.guards.tolist()]
    fixed = {reading.arena.at(k) for k in addresses if k is not None} | reading.read_by_address
    while True:
        rolled = _rolled_once(found, fixed)
        if rolled is None:
            break
        found = rolled
    lines = {x.line.array: x.line for x in found if isinstance(x, Straight) and x.line.whole}
    for section in found:
        if isinstance(section, Loop) and len(section.lines) == 1:
            section.cumulated = cumulated(section.lines[0], lines)
    return _used(found, fixed)


def _used(found: list[Section], fixed: set[Array]) -> list[Section]:
    """Without lines that nobody reads any more."""
    kept: list[Section] = []
    read = set(fixed)
    for section in reversed(found):
        if isinstance(section, Loop) or not section.line.whole or section.line.array in read:
            kept.append(section)
            read.update(array for ref in _references(section) for array in ref.arrays)
    return kept[::-1]


# --- which lines repeat ---------------------------------------------------------------------------


class _Shape:
    """What a line does but for the arrays and constants of its references; and these, in order."""

    def __init__(self, line: Line) -> None:
        self.numbers = {axis: k for k, axis in enumerate(line.axes)}
        self.refs: list[Ref] = []
        axes = tuple([(axis.count, self._length(axis)) for axis in line.axes])
        self.key = (axes, None if line.value is None else self.visit(line.value))

    def _number(self, axis: Axis) -> int:
        return self.numbers.setdefault(axis, len(self.numbers))

    def _length(self, axis: Axis) -> Any:
        return None if axis.length is None else (axis.length.constant, self._index(axis.length))

    def _index(self, place: AffineIndex) -> tuple[Any, ...]:
        return tuple([(times, self._number(axis)) for times, axis in place.parts])

    def _at(self, place: Place) -> Any:
        if isinstance(place, Select):
            indices = [None if index is None else self._index(index) for index in place.at]
            return id(place.integers), tuple(indices)
        return None if place is None else self._index(place)

    def visit(self, x: Expression) -> Any:
        """The shape of an expression."""
        match x:
            case Ref(arrays, places, joined):
                self.refs.append(x)
                return "ref", len(arrays), joined, tuple(map(self._at, places))
            case Number(value):
                return value
            case Sum(terms, constant):
                return "sum", constant, tuple(map(self.visit, terms))
            case Product(value, over, under):
                above = tuple(map(self.visit, over))
                return "product", value, above, tuple(map(self.visit, under))
            case Power(base, exponent):
                return "power", self.visit(base), self.visit(exponent)
            case Reduce(symbol, axes, body):
                running = [(self._number(a), a.count, self._length(a)) for a in axes]
                return symbol, tuple(running), self.visit(body)
            case Call(name, within):
                return name, tuple(map(self.visit, within))


def _in_usual_order(line: Line) -> Line:
    """The line with the factors of products sorted: they come in the order of the recording."""

    def change(x: Expression) -> Expression:
        if not isinstance(x, Product) or len(x.over) < 2:
            return x
        alone = [_Shape(replace(line, value=factor)).key[1] for factor in x.over]
        order = sorted(range(len(alone)), key=lambda k: repr(alone[k]))
        return replace(x, over=tuple([x.over[k] for k in order]))

    return line if line.value is None else replace(line, value=_everywhere(line.value, change))


def _replaced(x: Expression, refs: Iterator[Ref]) -> Expression:
    """The expression with other references, in reading order; nothing is simplified."""

    def each(some: Sequence[Expression]) -> tuple[Expression, ...]:
        return tuple([_replaced(y, refs) for y in some])

    match x:
        case Ref():
            return next(refs)
        case Sum(terms):
            return replace(x, terms=each(terms))
        case Product(_, over, under):
            above = each(over)
            return replace(x, over=above, under=each(under))
        case Power(base, exponent):
            return Power(*each((base, exponent)))
        case Reduce(_, _, body):
            return replace(x, body=_replaced(body, refs))
        case Call(_, within):
            return replace(x, operands=each(within))
    return x


def _rolled_once(found: list[Section], fixed: set[Array]) -> list[Section] | None:
    """The sections with the longest repetition rolled up; None where there is none."""
    lines = [s.line if isinstance(s, Straight) else None for s in found]
    shapes: list[list[Ref]] = []
    usual: list[Line | None] = []
    ids: dict[Any, int] = {}
    keys = []
    for k, line in enumerate(lines):
        fits = line is not None and line.whole and line.value is not None
        fits = fits and line is not None and line.array not in fixed
        usual.append(line if line is None else _in_usual_order(line))
        shape = _Shape(usual[-1]) if fits and usual[-1] is not None else None
        shapes.append([] if shape is None else shape.refs)
        keys.append(-1 - k if shape is None else ids.setdefault(shape.key, len(ids)))
    tries = []
    for period in range(1, min(LONGEST, len(keys) // FEWER) + 1):
        at = 0
        while at + period < len(keys):
            same = 0
            while at + same + period < len(keys) and keys[at + same] == keys[at + same + period]:
                same += 1
            count = same // period + 1
            for shift in range(period if count > 2 else 1):
                tries.append((at + shift, period, (same - shift) // period + 1))
            at += max(1, same)
    tries.sort(key=lambda x: -x[1] * x[2])
    for start, period, most in tries:
        for first in (start, start + period):  # the first iteration often reads something else
            count = most - (first - start) // period
            if count >= (FEWEST if period < SEVERAL else FEWER):
                made = _Roll(found, usual, shapes, first, period, count, fixed).sections()
                if made is not None:
                    return made
    return None


# --- rolling --------------------------------------------------------------------------------------


class _Different(Exception):
    """The iterations are not alike after all."""


class _Roll:
    """One repetition: ``count`` times the ``period`` lines from ``first`` on."""

    def __init__(
        self,
        found: list[Section],
        usual: list[Line | None],
        refs: list[list[Ref]],
        first: int,
        period: int,
        count: int,
        fixed: set[Array],
    ) -> None:
        self.fixed = fixed
        self.found, self.refs = found, refs
        self.first, self.period, self.count = first, period, count
        self.old = [x.lines[0] for x in found[first : first + period * count]]
        self.where = {line.array: divmod(k, period) for k, line in enumerate(self.old)}
        self.base = [line for line in usual[first : first + period] if line is not None]
        self.time = [Axis(count, "time") for _ in self.base]
        self.arrays = [
            Array(line.array.name, (time, *line.axes))
            for line, time in zip(self.base, self.time, strict=True)
        ]
        self.starts: dict[int, Array] = {}
        self.begin: Ref | None = None  # instead, where the line before it is part of the loop

    def sections(self) -> list[Section] | None:
        """All sections with the loop in the place of its lines; None where it is none."""
        try:
            values = [self._value(j) for j in range(self.period)]
            if not self.starts:
                return None
            others = [s for s in self.found if s.lines[0] not in self.old]
            if self.period == 1:
                values[0], others = self._with_first(values[0], others)
            for section in others:
                for line in section.lines:
                    if line.value is not None:
                        _everywhere(line.value, self._reread)  # raises where it cannot
        except _Different:
            return None
        later_arrays: set[Array] = set()
        before: list[Section] = []
        after: list[Section] = []
        for section in others:
            read = {a for x in _references(section) for a in x.arrays}
            if read & (later_arrays | set(self.where)):
                later_arrays.update(line.array for line in section.lines)
                after.append(section)
            else:
                before.append(section)
        refs = [x for value in values for x in walk(value) if isinstance(x, Ref)]
        needed = {array for ref in refs for array in ref.arrays}
        begins = {*self.begin.arrays} if self.begin is not None else {*self.starts.values()}
        if (needed | begins) & later_arrays:
            return None
        lines = [line for section in after for line in section.lines if line.value is not None]
        changed = [_everywhere(x.value, self._reread) for x in lines if x.value is not None]
        changed = self._with_last(values[0], changed) if self.period == 1 else changed
        for line, value in zip(lines, changed, strict=True):
            line.value = _everywhere(value, self._merged)
        return [*before, self._loop(values), *after]

    def _with_first(
        self, value: Expression, others: list[Section]
    ) -> tuple[Expression, list[Section]]:
        """With the line that the loop begins with as its first iteration, where that is alike."""
        (array,), begin = self.arrays, self.starts[0]
        chain = Chain.of(array, value)
        found = [s for s in others if isinstance(s, Straight) and s.line.array is begin]
        if chain is None or not found or begin in self.fixed or not found[0].line.whole:
            return value, others
        start = one_more_before(chain, _in_usual_order(found[0].line))
        if start is None:
            return value, others
        self.begin = start
        self.where = {x: (k + 1, j) for x, (k, j) in self.where.items()} | {begin: (0, 0)}
        self.count += 1
        array.axes[0].count = self.count
        return _replaced(value, iter(later(value, array))), [s for s in others if s is not found[0]]

    def _with_last(self, value: Expression, changed: list[Expression]) -> list[Expression]:
        """With iterations that another line does by itself, where there is one such line."""
        while (chain := Chain.of(self.arrays[0], value)) is not None:
            tried = [_everywhere(x, functools.partial(one_more_after, chain)) for x in changed]
            if sum(a != b for a, b in zip(tried, changed, strict=True)) != 1:
                break
            changed = tried
            self.count += 1
            self.arrays[0].axes[0].count = self.count
        return changed

    def _loop(self, values: list[Expression]) -> Loop:
        lines = []
        for line, array, value in zip(self.base, self.arrays, values, strict=True):
            target = Ref((array,), tuple([AffineIndex.along(axis) for axis in array.axes]))
            lines.append(Line(line.instruction, target, array.axes, value))
        starts = {
            self.arrays[j]: Ref(
                (begin,), tuple([AffineIndex.along(axis) for axis in self.arrays[j].axes[1:]])
            )
            for j, begin in self.starts.items()
        }
        if self.begin is not None:
            starts = {self.arrays[0]: self.begin}
        return Loop(self.count, lines, starts)

    def _value(self, j: int) -> Expression:
        """Line ``j`` of every iteration, in terms of time."""
        each = [self.refs[self.first + k * self.period + j] for k in range(self.count)]
        made = [self._ref(j, [refs[r] for refs in each]) for r in range(len(each[0]))]
        value = self.base[j].value
        assert value is not None
        return _replaced(value, iter(made))

    def _ref(self, j: int, refs: list[Ref]) -> Ref:
        first, last, time = refs[0], refs[-1], self.time[j]
        constants = [_constants(x) for x in refs]
        same = all(x == constants[0] for x in constants)
        found = self.where.get(last.arrays[0])
        if found is not None:  # of this iteration, or of the one before
            ago, which = self.count - 1 - found[0], found[1]
            expected = [(k - ago, which) for k in range(ago, self.count)]
            if not same or ago > 1 or any(len(x.arrays) > 1 for x in refs):
                raise _Different
            if [self.where.get(x.arrays[0]) for x in refs[ago:]] != expected:
                raise _Different
            if ago:
                begin, like = first.arrays[0], self.arrays[which]
                counts = [axis.count for axis in begin.axes]
                if begin in self.where or counts != [axis.count for axis in like.axes[1:]]:
                    raise _Different
                if any(axis.length is not None for axis in like.axes):
                    raise _Different
                if self.starts.setdefault(which, begin) is not begin:
                    raise _Different
            place = AffineIndex(-ago, ((1, time),))
            return Ref((self.arrays[which],), (place, *first.places))
        if any(array in self.where for x in refs for array in x.arrays):
            raise _Different
        if all(x.arrays == first.arrays for x in refs):
            return first if same else _moving(first, constants, time)
        sizes = [[axis.count for axis in array.axes] for x in refs for array in x.arrays]
        if not same or any(x != sizes[0] for x in sizes) or first.joined:
            raise _Different
        arrays = tuple([array for x in refs for array in x.arrays])
        if len(first.arrays) == 1:
            return Ref(arrays, (AffineIndex.along(time), *first.places))
        which_of = first.places[0]
        if not isinstance(which_of, AffineIndex):
            raise _Different
        parts = ((len(first.arrays), time), *which_of.parts)
        return Ref(arrays, (AffineIndex(which_of.constant, parts), *first.places[1:]))

    def _reread(self, x: Expression) -> Expression:
        """A reference to one of the lines, as one to the loop's array."""
        if not isinstance(x, Ref) or not any(array in self.where for array in x.arrays):
            return x
        at = [self.where.get(array, (-1, -1)) for array in x.arrays]
        k, j = at[0]
        if len(at) == 1:
            return Ref((self.arrays[j],), (AffineIndex(k), *x.places))
        which = x.places[0]
        if at != [(k + i, j) for i in range(len(at))] or not isinstance(which, AffineIndex):
            raise _Different
        place = AffineIndex(which.constant + k, which.parts)
        return Ref((self.arrays[j],), (place, *x.places[1:]))

    def _merged(self, x: Expression) -> Expression:
        """Terms of a sum that follow each other in time, as one sum over time."""
        if not isinstance(x, Sum):
            return x
        groups: dict[tuple[Array, tuple[Place, ...]], list[int]] = {}
        rest: list[Expression] = []
        for term in x.terms:
            first = term.places[0] if isinstance(term, Ref) and term.places else None
            if (
                isinstance(term, Ref)
                and term.arrays[0] in self.arrays
                and isinstance(first, AffineIndex)
                and not first.parts
            ):
                groups.setdefault((term.arrays[0], term.places[1:]), []).append(first.constant)
            else:
                rest.append(term)
        for (array, places), at in groups.items():
            at.sort()
            if len(at) > 2 and at == list(range(at[0], at[0] + len(at))):
                axis = Axis(len(at), "time")
                moving = Ref((array,), (AffineIndex(at[0], ((1, axis),)), *places))
                rest.append(Reduce("Σ", (axis,), moving))
            else:
                rest += [Ref((array,), (AffineIndex(k), *places)) for k in at]
        return add(rest, x.constant)


def _references(section: Section) -> Iterator[Ref]:
    for line in section.lines:
        for x in walk(line.value) if line.value is not None else ():
            if isinstance(x, Ref):
                yield x
    if isinstance(section, Loop):
        yield from section.starts.values()


def _constants(x: Ref) -> list[int]:
    """The constants of a reference's indices, in order."""
    found: list[int] = []
    for place in x.places:
        indices = place.at if isinstance(place, Select) else (place,)
        found += [index.constant for index in indices if index is not None]
    return found


def _moving(x: Ref, constants: list[list[int]], time: Axis) -> Ref:
    """A reference whose constants move on by constant steps."""
    steps = [b - a for a, b in zip(constants[0], constants[1], strict=True)]
    for k, mine in enumerate(constants):
        if mine != [c + k * step for c, step in zip(constants[0], steps, strict=True)]:
            raise _Different
    left = iter(steps)

    def move(index: AffineIndex) -> AffineIndex:
        step = next(left)
        return replace(index, parts=(*index.parts, (step, time))) if step else index

    places: list[Place] = []
    for place in x.places:
        if isinstance(place, Select):
            at = [None if index is None else move(index) for index in place.at]
            places.append(replace(place, at=tuple(at)))
        else:
            places.append(None if place is None else move(place))
    return replace(x, places=tuple(places))


def _everywhere(x: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """An expression with each of its parts changed, the innermost first."""

    def each(some: Sequence[Expression]) -> tuple[Expression, ...]:
        return tuple([_everywhere(y, change) for y in some])

    match x:
        case Sum(terms):
            x = replace(x, terms=each(terms))
        case Product(_, over, under):
            x = replace(x, over=each(over), under=each(under))
        case Power(base, exponent):
            x = Power(*each((base, exponent)))
        case Reduce(_, _, body):
            x = replace(x, body=_everywhere(body, change))
        case Call(_, within):
            x = replace(x, operands=each(within))
    return change(x)
