"""Numbers near a corner, where the derivative of an operation jumps: the tape computes such calls.

In: the forward pass of a program that is differentiated. Out: code that makes a result NaN where
rounding could decide between two slopes, as machine code adds in another order than eager. A sum
all of whose terms are 0 is 0 in any order, as where a layer of ``relu`` is silent: where numbers
are near a corner, the terms of their sums are looked at.
"""

from __future__ import annotations

import math

import numpy as np

from chainrule.compiler.codegen.backward import differentiates, reached
from chainrule.compiler.codegen.contraction import VALUE, Emitter
from chainrule.compiler.codegen.instructions import (
    FEW_TERMS,
    columns_of,
    is_few,
    operands,
    takes_product,
)
from chainrule.compiler.codegen.ir import Condition, Offset, Vector
from chainrule.compiler.codegen.walks import Trip, Walk, Walks
from chainrule.compiler.lift.corners import RESULT, Pair, Side, corners, sure_zeros
from chainrule.compiler.lift.exactness import rounds_once
from chainrule.compiler.lift.graph import EXTREME, RULE, SUM
from chainrule.compiler.lift.program import Addresses, Instruction, Program

MARGIN = 1e-9  # of a number's size, or of 1


class Corners:
    """The corners of a program that a gradient passes."""

    def __init__(self, walks: Walks, root: int) -> None:
        self.program = program = walks.program
        found = reached(program, root)
        #: per instruction with corners: the pairs that are compared; none of an extreme number
        self.pairs: dict[int, tuple[Pair, ...]] = {}
        for k, instruction in enumerate(program.instructions):
            if instruction.is_exact or not differentiates(instruction, found):
                continue
            pairs = corners(instruction.rule) if instruction.kind == RULE else ()
            if pairs or instruction.kind == EXTREME:
                self.pairs[k] = pairs
        read = np.zeros(program.size, np.bool_)
        for k in self.pairs:
            for column in program.instructions[k].reads:
                read[column] = True
        #: sums of few terms, of which it is noticed where they cancel
        self.added = {
            k
            for k, i in enumerate(program.instructions)
            if i.kind == SUM and read[i.out].any() and _is_added_at_once(walks, k, i)
        }
        self._sure = sure_zeros(program, self.pairs, self.added)
        self._makers = Makers(program)
        self._is_alike: list[bool] = []  # per instruction: whether one code computes its results
        for instruction in program.instructions:
            is_even = instruction.loop is None and all(t.each for t in instruction.sums)
            self._is_alike.append(is_even and all(map(self._is_of_one, instruction.reads)))
        self._sizes: dict[int, int] = {}  # per sum: how far from its results the sizes of terms are

    def near(self, k: int, y: Vector, xs: list[Vector]) -> Condition | None:
        """Where an operation of the op table is near a corner."""
        instruction, found = self.program.instructions[k], None
        for pair in self.pairs.get(k, ()):
            a, b = (self._number(instruction, side, y, xs) for side in pair)
            if not isinstance(a, Vector):
                a, b = b, a
            assert isinstance(a, Vector)
            if not isinstance(b, Vector) and math.isinf(b):
                continue
            here = _is_near(a, b)
            if all(self._is_sure(instruction, side) for side in pair):
                here = here & (abs(a) + abs(b) > 0.0)
            found = here if found is None else found | here
        return found

    def unless_cancelled(self, k: int, y: Vector, xs: list[Vector]) -> Vector:
        """A sum of these terms, NaN where it is 0 and they are not."""
        if k not in self.added:
            return y
        size = abs(xs[0])
        for x in xs[1:]:
            size = size + abs(x)
        return ((abs(y) <= 0.0) & (size > 0.0)).choose(math.nan, y)

    def among(self, k: int, y: Vector, xs: list[Vector]) -> Condition:
        """Where two of some numbers are nearly the extreme one."""
        count = self.one_of(k, y, xs[0])
        for x in xs[1:]:
            count = count + self.one_of(k, y, x)
        return count > 1.0

    def one_of(self, k: int, y: Vector, x: Vector) -> Vector:
        """1 where a number is nearly the extreme one, 2 where another one is surely that.

        Numbers that were computed in the same order, one like the other, are taken for equal in
        eager mode where they are here, as where a token comes twice: both take the first of them.
        """
        near, reads = _is_near(x, y), self.program.instructions[k].reads
        if self._is_of_one(np.concatenate(reads)):
            return (near & (abs(x - y) > 0.0)).choose(2.0, 0.0)
        if all(bool(self._sure[column].all()) for column in reads):
            near = near & (abs(x) + abs(y) > 0.0)
        return near.choose(1.0, 0.0)

    def _is_of_one(self, addresses: Addresses) -> bool:
        """Whether these are inputs, or were all computed by the same operations."""
        made_by = self._makers.one(addresses, len(self._is_alike))
        return made_by is not None and (made_by < 0 or self._is_alike[made_by])

    def look_for_ties(self, emitter: Emitter, k: int, walk: Walk) -> None:
        """Make each extreme number of some NaN that another one nearly is."""
        code = emitter.code
        names = [VALUE[0 if shared else 1] for shared in walk.shared]

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

                def count(u: list[Offset], strides: list[int], width: int) -> None:
                    x = emitter.read(names[1], u[1], strides[1], width)
                    here = self.one_of(k, y.splat(width) if inside else y, x)
                    counts[width].set(counts[width].get() + emitter.only_active(here))

                if inside is None:
                    emitter.over(terms, t, lambda u: count(u, strides, width))
                    total = counts[width].get()
                else:
                    emitter.over(terms, t, lambda u: emitter.lanes(inside, u, count))
                    total = code.constant(0.0, 1)
                    for each in counts.values():
                        total = total + each.get().total()
                emitter.write("%V", t[0], (total > 1.0).choose(math.nan, y))

            if lane is None:
                emitter.over(rest, offsets, lambda t: some(t, [0, 0], 1))
            else:
                emitter.over(rest, offsets, lambda t: emitter.lanes(lane, t, some))

        emitter.nest(walk, (0, 1), inner)

    def _number(
        self, instruction: Instruction, side: Side, y: Vector, xs: list[Vector]
    ) -> Vector | float:
        if side.operand is not None:
            return y if side.operand == RESULT else xs[side.operand]
        if side.parameter is not None:
            return float(instruction.parameters[side.parameter])
        return side.number

    def _is_sure(self, instruction: Instruction, side: Side) -> bool:
        if side.operand is None:
            return True
        columns = instruction.columns
        read = columns if side.operand == RESULT else [columns[side.operand]]
        return all(bool(self._sure[column].all()) for column in read)

    # --- the terms of sums ------------------------------------------------------------------------

    def sums_of(self, emitter: Emitter, k: int) -> dict[int, int] | None:
        """Per operand that is a sum: which; None where terms cannot be, or need not be, looked at.

        In code that serves calls of other lengths, and in loops, they are not.
        """
        instruction, walks = self.program.instructions[k], emitter.walks
        is_fixed = not walks.varying and walks.others is None and instruction.loop is None
        if k not in self.pairs or not is_fixed:
            return None
        found = {}
        for j, column in enumerate(instruction.columns):
            if not self._sure[column].all():
                first = self._makers.one(column, len(self.program.instructions))
                if first is None or first < 0 or not self._is_plain_sum(first):
                    return None
                found[j] = first
        return found or None

    def _is_plain_sum(self, k: int) -> bool:
        instruction = self.program.instructions[k]
        return instruction.kind == SUM and instruction.loop is None

    def look_at_terms(
        self, emitter: Emitter, k: int, walks: list[Walk], sums: dict[int, int]
    ) -> None:
        """Make the results NaN that are near a corner, unless all terms of what they read are 0."""
        code = emitter.code
        for each in set(sums.values()):
            self._add_sizes(emitter, each)
        for walk in walks:

            def body(
                offsets: list[Offset], strides: list[int], width: int, walk: Walk = walk
            ) -> None:
                xs = operands(emitter, walk, 1, offsets, strides, width)
                y = emitter.read("%V", offsets[0], strides[0], width)
                near, size = self.near(k, y, xs), code.constant(0.0, width)
                assert near is not None
                for j, x in enumerate(xs):
                    if j in sums:
                        at = self._beside(emitter, sums[j], offsets[j + 1])
                        size = size + emitter.read("%V", at, strides[j + 1], width)
                    else:
                        size = size + abs(x)
                emitter.write("%V", offsets[0], (near & (size > 0.0)).choose(math.nan, y))

            emitter.elementwise(walk, range(len(walk.columns)), body)

    def _beside(self, emitter: Emitter, k: int, offset: Offset) -> Offset:
        return [*offset, (None, self._sizes[k] * emitter.batch)]

    def _add_sizes(self, emitter: Emitter, k: int) -> None:
        """Beside each sum of an instruction, the sum of the sizes of its terms."""
        instruction, walks = self.program.instructions[k], emitter.walks
        if k not in self._sizes:
            self._sizes[k] = self.program.size + walks.scratch - instruction.start
            walks.scratch += instruction.count
        flags, emitter.flags = emitter.flags, None
        parts = list(_parts(emitter, k))
        for walk, _ in parts:

            def clear(offsets: list[Offset], strides: list[int], width: int) -> None:
                zero = emitter.code.constant(0.0, width if strides[0] else 1)
                emitter.write("%V", self._beside(emitter, k, offsets[0]), zero)

            emitter.elementwise(walk, [0], clear, reduces=True)
        for walk, terms in parts:

            def add(
                offsets: list[Offset],
                strides: list[int],
                width: int,
                walk: Walk = walk,
                terms: list[list[int]] = terms,
            ) -> None:
                xs = operands(emitter, walk, 1, offsets, strides, width)
                xs = [self._size(x, walk, c) for c, x in enumerate(xs, 1)]
                total = emitter.code.constant(0.0, width)
                for factors in terms:
                    product = xs[factors[0] - 1]
                    for c in factors[1:]:
                        product = product * xs[c - 1]
                    total = total + product
                at = self._beside(emitter, k, offsets[0])
                if strides[0] == 0 and width > 1:
                    total, width = emitter.only_active(total).total(), 1
                emitter.write("%V", at, emitter.read("%V", at, strides[0], width) + total)

            emitter.elementwise(walk, range(len(walk.columns)), add, reduces=True)
        emitter.flags = flags

    def _size(self, x: Vector, walk: Walk, column: int) -> Vector:
        """The size of a factor; at least 1 where it may be 0 by cancellation."""
        if self._sure[walk.columns[column]].all():
            return abs(x)
        return (abs(x) > 1.0).choose(abs(x), 1.0)


class Makers:
    """Which instruction of a program makes the number at an address: results lie side by side."""

    def __init__(self, program: Program) -> None:
        starts = np.array([i.start for i in program.instructions], np.int64)
        self._order = np.argsort(starts, kind="stable")
        self._starts = starts[self._order]
        counts = np.array([i.count for i in program.instructions], np.int64)
        self._ends = self._starts + counts[self._order]

    def one(self, addresses: Addresses, known: int) -> int | None:
        """The instruction that makes all of these numbers; -1: none; None: several do.

        Only the first ``known`` instructions count.
        """
        if not len(addresses) or addresses.max() < self._starts[0]:
            return -1
        low, high = self._all(np.array([addresses.min(), addresses.max()])).tolist()
        if low == high >= 0:
            return int(low) if low < known else -1
        made_by = self._all(addresses)
        (first, *others) = np.unique(np.where(made_by < known, made_by, -1)).tolist()
        return None if others else int(first)

    def _all(self, addresses: Addresses) -> Addresses:
        """The instruction that makes each number, or -1."""
        place = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = (place >= 0) & (addresses < self._ends[place])
        return np.where(inside, self._order[place], -1)


def _is_added_at_once(walks: Walks, k: int, instruction: Instruction) -> bool:
    """Whether all terms of a sum are in registers where it is computed."""
    plains = instruction.plains
    if plains is None or len(instruction.sums) > 1 or (k, "each") in walks.varying:
        return False
    return 1 < plains.each <= FEW_TERMS and not (instruction.is_exact and rounds_once(instruction))


def _is_near(a: Vector, b: Vector | float) -> Condition:
    if not isinstance(b, Vector):
        return abs(a - b if b else a) <= MARGIN * max(abs(b), 1.0)
    size = abs(a)
    return abs(a - b) <= (size > 1.0).choose(size, 1.0) * MARGIN


def _parts(emitter: Emitter, k: int) -> list[tuple[Walk, list[list[int]]]]:
    """The walks over the terms of sums, and per term the columns of its factors."""
    instruction, found = emitter.program.instructions[k], []
    few = is_few(emitter, k, instruction.plains)
    joined = few and takes_product(emitter, instruction)
    wanted: list[tuple[str, str, list[list[int]]]] = []  # the walk's key, its columns, the terms
    if instruction.products is not None and not joined:
        wanted.append(("products", "products", [[1, 2]]))
    if instruction.plains is not None:
        each = instruction.plains.each
        apart = [[c] for c in range(1, each + 1)]
        if joined:
            wanted.append(("out", "sums", [*apart, [each + 1, each + 2]]))
        else:
            wanted.append(("out", "out", apart) if few else ("plains", "plains", [[1]]))
    for key, what, terms in wanted:
        for walk in emitter.walks.of(k, key, columns_of(instruction, what)):
            found.append((walk, terms))
    return found
