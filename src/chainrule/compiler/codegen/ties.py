"""Ties of extreme numbers: which of several is the largest, where machine code cannot tell.

In: the ``Corners`` of a program. Out: code that makes a maximum NaN that rounding could decide, as
machine code adds in another order than eager. Equal numbers are no tie if they were made one like
the other from the same numbers, as where a token comes twice: the first of them is taken then. Each
gets a print of what it was made of, where there are ties.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from chainrule.compiler.codegen.contraction import VALUE, Emitter
from chainrule.compiler.codegen.instructions import columns_of
from chainrule.compiler.codegen.ir import Condition, Integers, Offset, Vector
from chainrule.compiler.codegen.walks import Trip, Walk
from chainrule.compiler.lift.corners import BOUND
from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM
from chainrule.compiler.lift.nearness import NEAR
from chainrule.compiler.lift.program import Addresses, Instruction

if TYPE_CHECKING:
    from chainrule.compiler.codegen.corners import Corners

FEW_ADDED = 2  # terms, whose sum does not depend on their order
PASSED = -1  # in the place of the instruction that makes a number: it was passed, or is a constant
#: per width of a number: an odd factor that mixes its bits, those of 1.0, and how many come after
_MIXED = {
    64: (0x9E3779B97F4A7C15 - (1 << 64), 0x3FF << 52, 52),
    32: (0x9E3779B1 - (1 << 32), 0x7F << 23, 23),
}


class Ties:
    """The ties of a program whose corners these are."""

    def __init__(self, corners: Corners) -> None:
        self.corners, self.program = corners, corners.program
        #: per instruction, whether its results are computed one like the other from what was passed
        self._is_alike: list[bool] = []
        for instruction in self.program.instructions:
            self._is_alike.append(self._makes_alike(instruction))
        self._prints: dict[int, int] = {}  # per instruction: how far from its results they are

    def among(self, k: int, y: Vector, xs: list[Vector], sizes: list[Vector]) -> Condition:
        """Where two of some numbers are nearly the extreme one."""
        bound = functools.reduce(larger, [x * NEAR for x in sizes], y.lift(BOUND))
        count = self.one_of(k, y, xs[0], bound)
        for x in xs[1:]:
            count = count + self.one_of(k, y, x, bound)
        return count > 1.0

    def one_of(self, k: int, y: Vector, x: Vector, bound: Vector) -> Vector:
        """1 where a number is nearly the extreme one, 2 where another one is surely that."""
        is_passed = self._maker(self.program.instructions[k].reads) == PASSED
        return self.between(k, y, x, bound).choose(2.0 if is_passed else 1.0, 0.0)

    def between(self, k: int, y: Vector, x: Vector, bound: Vector | float) -> Condition:
        """Where rounding could decide which of two numbers is the larger one.

        Numbers that were passed are as equal as they are in eager mode, where the first counts.
        """
        near, reads = apart(x, y) <= bound, self.program.instructions[k].reads
        if self._maker(reads) == PASSED:
            return near & (abs(x - y) > 0.0)
        if all(bool(self.corners.sure[column].all()) for column in reads):
            return near & (abs(x) + abs(y) > 0.0)
        return near

    def _maker(self, columns: list[Addresses]) -> int | None:
        """The instruction that made all of these, one like the other; none: they were passed."""
        made_by = self.corners.makers.one(np.concatenate(columns))
        if made_by is None or made_by == PASSED:
            return made_by
        if self.program.instructions[made_by].kind == GATHER and self._is_alike[made_by]:
            return PASSED
        return made_by if self._is_alike[made_by] else None

    def _makes_alike(self, instruction: Instruction) -> bool:
        """Whether each result is made by the same few operations; ``look`` asks which numbers."""
        if instruction.kind == EXTREME or instruction.loop is not None or instruction.scaled:
            return False
        added = [terms.each for terms in instruction.sums]
        if 0 in added or sum(added) > FEW_ADDED:
            return False
        before = len(self._is_alike)
        for column in instruction.reads:
            j = self.corners.makers.one(column)
            if j is None or (j != PASSED and (j >= before or not self._is_alike[j])):
                return False
            if j != PASSED and instruction.kind == GATHER:
                return False
        return True

    def look(self, emitter: Emitter, k: int, walk: Walk) -> None:
        """Make each extreme number of some NaN that another one nearly is.

        But for those that were made one like the other from the same numbers, as where a token
        comes twice. This is looked at where there are ties: equal numbers may have been made of
        others, and differ in eager mode.
        """
        code, made_by = emitter.code, None
        if emitter.counter is None:
            made_by = self._maker(self.program.instructions[k].reads)
        if made_by is None or made_by == PASSED:
            self._each_extreme(emitter, k, walk, self._refused)
            return
        ties = emitter.new_flags()

        def note(near: _Near, y: Vector) -> Vector:
            ties[y.width].set(ties[y.width].get() + (near.many > 1.0).choose(1.0, 0.0))
            return y

        self._each_extreme(emitter, k, walk, note)
        found = None
        for width, flag in ties.items():
            here = Condition(code, (flag.get() > code.constant(0.0, width)).any(), 1)
            found = here if found is None else found | here
        assert found is not None
        with code.when(found.register):
            self._add_prints(emitter, made_by, set())
            self._each_extreme(emitter, k, walk, self._refused, made_by)

    @staticmethod
    def _refused(near: _Near, y: Vector) -> Vector:
        return near.is_undecided().choose(math.nan, y)

    def _each_extreme(
        self,
        emitter: Emitter,
        k: int,
        walk: Walk,
        judge: Callable[[_Near, Vector], Vector],
        made_by: int | None = None,
    ) -> None:
        """Write what is judged of each extreme number, by those that are nearly as large.

        ``made_by``: with the prints of these, which this instruction made.
        """
        code = emitter.code
        in_loop = self.program.instructions[k].loop is not None
        bound = code.constant(BOUND, 1) if in_loop else self.corners.bound(emitter, k)
        name = VALUE[0 if walk.shared[1] else 1]

        def inner(offsets: list[Offset], loops: tuple[Trip, ...]) -> None:
            outer = [x for x in loops if x.strides[0] != 0]
            terms = [x for x in loops if x.strides[0] == 0]
            across = [x for x in outer if x.strides[0] == 1 and x.strides[1] in (0, 1)]
            along = [x for x in terms if x.strides[1] == 1 and emitter.walks.contract]
            lane = max(across, key=lambda x: x.most, default=None)
            inside = max(along, key=lambda x: x.most, default=None) if lane is None else None
            rest = [x for x in outer if x is not lane]
            terms = [x for x in terms if x is not inside]

            def some(t: list[Offset], strides: list[int], width: int) -> None:
                y = emitter.read("%V", t[0], strides[0], width)
                counts = emitter.new_flags()
                lowest, highest = emitter.new_flags(-math.inf), emitter.new_flags(-math.inf)

                def count(u: list[Offset], strides: list[int], width: int) -> None:
                    x = emitter.read(name, u[1], strides[1], width)
                    best = y.splat(width) if inside else y
                    here = self.one_of(k, best, x, bound.splat(width))
                    if made_by is not None:
                        is_near = emitter.only_active(here) > 0.0
                        here = (abs(x - best) > 0.0).choose(here + here, 0.0)
                        at = self.corners.beside(emitter, self._prints[made_by], u[1])
                        mark = emitter.read(name, at, strides[1], width)
                        for most, x in ((highest[width], mark), (lowest[width], -mark)):
                            most.set(is_near.choose(larger(x, most.get()), most.get()))
                    counts[width].set(counts[width].get() + emitter.only_active(here))

                if inside is None:
                    emitter.over(terms, t, lambda u: count(u, strides, width))
                    found = [x[width].get() for x in (counts, lowest, highest)]
                else:
                    emitter.over(terms, t, lambda u: emitter.lanes(inside, u, count))
                    found = [
                        functools.reduce(operator.add, [x.get().total() for x in counts.values()])
                    ]
                    for most in (lowest, highest):
                        every = [x.get().greatest() for x in most.values()]
                        found.append(functools.reduce(larger, every))
                near = _Near(*found) if made_by is not None else _Near(found[0])
                emitter.write("%V", t[0], judge(near, y))

            if lane is None:
                emitter.over(rest, offsets, lambda t: some(t, [0, 0], 1))
            else:
                emitter.over(rest, offsets, lambda t: emitter.lanes(lane, t, some))

        emitter.nest(walk, (0, 1), inner)

    def _add_prints(self, emitter: Emitter, k: int, added: set[int]) -> None:
        """Beside each result of an instruction, a number that tells what it was made of.

        It is made from the bits of what was passed: results that have the same are made of the
        same numbers, but for one case in 2⁵¹. ``added``: where they are already.
        """
        instruction = self.program.instructions[k]
        if instruction.kind == GATHER or k in added:
            return
        added.add(k)
        made_by = [self.corners.makers.one(column) for column in instruction.reads]
        for j in made_by:
            if j is not None and j != PASSED:
                self._add_prints(emitter, j, added)
        if k not in self._prints:
            self._prints[k] = self.corners.room_beside(emitter, k)

        def read(walk: Walk, offsets: list[Offset], strides: list[int], width: int) -> list[Vector]:
            xs = []
            for c, shared in enumerate(walk.shared[1:], 1):
                j, at = self.corners.makers.one(walk.columns[c]), offsets[c]
                if j in added and j in self._prints:
                    at = self.corners.beside(emitter, self._prints[j], at)
                xs.append(emitter.read(VALUE[0 if shared else 1], at, strides[c], width))
            return xs

        if instruction.kind == SUM:
            self.corners.add_up_beside(emitter, k, self._prints[k], read, _print)
            return
        flags, emitter.flags = emitter.flags, None
        for walk in emitter.walks.of(k, "out", columns_of(instruction, "out")):

            def body(
                offsets: list[Offset], strides: list[int], width: int, walk: Walk = walk
            ) -> None:
                made = _print(read(walk, offsets, strides, width))
                emitter.write("%V", self.corners.beside(emitter, self._prints[k], offsets[0]), made)

            emitter.elementwise(walk, range(len(walk.columns)), body)
        emitter.flags = flags


class _Near(NamedTuple):
    """Those that are nearly the extreme number: how many, 2 for one that differs from it.

    With prints: how many differ, and the lowest print, negated, and the highest of the others.
    """

    many: Vector
    lowest: Vector | None = None
    highest: Vector | None = None

    def is_undecided(self) -> Condition:
        """Whether rounding could decide which one it is."""
        if self.lowest is None or self.highest is None:
            return self.many > 1.0
        return (self.many > 1.0) | (self.lowest + self.highest > 0.0)


def _print(xs: list[Vector]) -> Vector:
    """A number from 1 to 2 that tells these apart from others, by their bits."""
    code = xs[0].code
    factor, one, digits = _MIXED[code.bits]
    mixed: Integers | None = None
    for x in xs:
        mixed = (x.bits() if mixed is None else x.bits() ^ mixed) * factor
        mixed = mixed ^ (mixed >> (code.bits // 2 - 3))
    assert mixed is not None
    return (((mixed * factor) >> (code.bits - 1 - digits)) & (1 << digits) - 1 | one).numbers()


def apart(a: Vector, b: Vector | float) -> Vector:
    """How far two numbers are apart, less what is rounding for their own size."""
    if isinstance(b, Vector):
        return abs(a - b) - abs(a) * BOUND
    distance = abs(a - b if b else a)
    return distance * (1.0 / abs(b)) if abs(b) > 1.0 else distance


def larger(a: Vector, b: Vector) -> Vector:
    """The larger one in each lane."""
    return a.not_less(b).choose(a, b)
