"""Numbers near a corner, where the derivative of an operation jumps: the tape computes such calls.

In: the forward pass of a program that is differentiated. Out: code that makes a result NaN where
rounding could decide between two slopes, as machine code adds in another order than eager. What
rounding can do is measured by the terms of what is compared, as in ``lift/margins.py``: first by
the largest of all, and only where that is not enough by those of each number. A number all of whose
terms are 0 is 0 in any order, as where a layer of ``relu`` is silent.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

import numpy as np

from chainrule.compiler.codegen.backward import differentiates, reached
from chainrule.compiler.codegen.contraction import Emitter
from chainrule.compiler.codegen.instructions import columns_of, is_few, operands, takes_product
from chainrule.compiler.codegen.ir import Condition, Offset, Vector
from chainrule.compiler.codegen.ties import Ties, apart, larger
from chainrule.compiler.codegen.vectors import Variable
from chainrule.compiler.codegen.walks import Walk, Walks
from chainrule.compiler.lift.corners import FLOOR, RESULT, Pair, Side, corners, sure_zeros
from chainrule.compiler.lift.graph import EXTREME, RULE, SUM
from chainrule.compiler.lift.nearness import NEAR
from chainrule.compiler.lift.program import Addresses, Instruction, Makers, Terms, distinct
from chainrule.core import ops

LARGEST = 1e5  # times a number and 1: larger terms lose more than the smallest bound allows for
FEW_PIECES = 8  # of memory that are gone through one by one
SPARSE = 3  # addresses of which every third is wanted are gone through as one piece
CHAINS = 4  # maxima side by side, so that not every one waits for the one before


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
        self.sure = sure_zeros(program, self.pairs)
        self.makers = Makers(program)
        self.is_read = np.zeros(len(program.instructions), np.bool_)
        for k in self.pairs:
            for column in program.instructions[k].reads:
                made_by = self.makers.all(column)
                self.is_read[made_by[made_by >= 0]] = True
        self._sizes: dict[int, int] = {}  # per sum: how far from its results the sizes of terms are
        self.ties = Ties(self)
        self.nearest: dict[int, dict[int, Variable]] = {}  # the least distance so far, by width

    # --- how near a corner ------------------------------------------------------------------------

    def distance(self, k: int, y: Vector, xs: list[Vector], is_first: bool = False) -> Vector:
        """How far the operands of an operation are from a corner, less their own rounding.

        Infinity where they are surely at it, unless another look will be taken.
        """
        instruction, found = self.program.instructions[k], []
        for pair in self.pairs[k]:
            a, b = (self._number(instruction, side, y, xs) for side in pair)
            if not isinstance(a, Vector):
                a, b = b, a
            assert isinstance(a, Vector)
            if not isinstance(b, Vector) and math.isinf(b):
                continue
            here = apart(a, b)
            if not is_first and all(self._is_sure(instruction, side) for side in pair):
                here = (abs(a) + abs(b) > 0.0).choose(here, math.inf)
            found.append(here)
        return functools.reduce(_least, found) if found else y.lift(math.inf)

    def near(
        self, k: int, y: Vector, xs: list[Vector], sizes: list[Vector], least: Vector
    ) -> Condition:
        """Where it is near one; ``sizes``: of the terms of each operand."""
        size = functools.reduce(operator.add, sizes)
        bound = larger(size * NEAR, least)
        return (self.distance(k, y, xs) <= bound) & (size > 0.0)

    def size(self, x: Vector, column: Addresses) -> Vector:
        """The size of a number; at least 1 where it may be 0 by cancellation."""
        return abs(x) if self.sure[column].all() else (abs(x) > 1.0).choose(abs(x), 1.0)

    # --- the largest terms of all results ---------------------------------------------------------

    def bound(self, emitter: Emitter, k: int, deeper: bool = False) -> Vector:
        """How near a corner rounding may reach in any result of an instruction.

        By the largest terms of the sums that it reads. ``deeper``: only of sums in these.
        """
        size = self._size_of(emitter, np.concatenate(self.program.instructions[k].reads), deeper)
        size = (size < math.inf).choose(size, math.inf)  # infinity times 0 is not a number
        return larger(size, size.lift(FLOOR)) * NEAR

    def _size_of(self, emitter: Emitter, column: Addresses, deeper: bool = False) -> Vector:
        """The largest terms of the sums with these addresses, and of sums that are terms of them.

        Times the root of how many there are; 0 if there is no sum.
        """
        found, code = emitter.code.constant(0.0, 1), emitter.code
        for j in distinct(np.sort(self.makers.all(column))).tolist():
            made = self.program.instructions[j] if j >= 0 else None
            if made is not None and made.rule is ops.mul and self._is_constant(made.columns[-1]):
                size = self._size_of(emitter, made.columns[0], deeper)
                found = larger(size * self._largest(emitter, made.columns[-1]), found)
            if made is None or made.kind != SUM:
                continue
            size = code.constant(0.0, 1)
            for terms in made.sums:
                product = code.constant(0.0 if deeper else math.sqrt(_most_terms(terms)), 1)
                for column in terms.columns if not deeper else ():
                    product = product * self._largest(emitter, column)
                if terms is made.plains:
                    product = product + self._size_of(emitter, terms.columns[0])
                size = size + product
            found = larger(size, found)
        return found

    def _is_constant(self, column: Addresses) -> bool:
        return bool(((column >= self.program.inputs) & (column < self.program.shared)).all())

    def _largest(self, emitter: Emitter, column: Addresses) -> Vector:
        """The largest of the numbers at these addresses, by size.

        Infinities are left out: in a call that counts, they are those that a maximum begins with,
        or were left behind by another call.
        """
        code, width = emitter.code, emitter.width
        found = [code.variable(code.constant(0.0, width)) for _ in range(CHAINS)]
        single = code.variable(code.constant(0.0, 1))

        def take(largest: Variable, array: str, offset: Offset) -> None:
            x, old = abs(code.load(array, offset, largest.width)), largest.get()
            is_larger = x > old if is_input else (x > old) & (x < math.inf)
            largest.set(is_larger.choose(x, old))

        for addresses in self._read(emitter, column):
            array, factor, local = "%P", 1, addresses
            is_input = bool(addresses[-1] < self.program.inputs)
            if addresses[0] >= self.program.shared:
                array, factor, local = "%V", emitter.batch, addresses - self.program.shared
            if local[-1] - local[0] >= len(local):
                with code.loop(len(local)) as i, code.loop(factor) as lane:
                    take(single, array, [(code.table(local, i), factor), (lane, 1)])
                continue
            begin, left = int(local[0]) * factor, len(local) * factor
            many, left = divmod(left, CHAINS * width)
            if many:
                with code.loop(many) as i:
                    for n, each in enumerate(found):
                        take(each, array, [(i, CHAINS * width), (None, begin + n * width)])
            begin += many * CHAINS * width
            for n in range(left // width):
                take(found[n], array, [(None, begin + n * width)])
            begin += left // width * width
            if left % width:
                with code.loop(left % width) as i:
                    take(single, array, [(i, 1), (None, begin)])
        most = found[0].get()
        for each in found[1:]:
            most = larger(most, each.get())
        return larger(most.greatest(), single.get())

    def _read(self, emitter: Emitter, column: Addresses) -> list[Addresses]:
        """These addresses, each one once: stretches of memory, or else many that are irregular."""
        program, found = self.program, distinct(np.sort(column))
        if emitter.walks.others is not None:  # a shorter call reads others that are made alike
            makers = distinct(np.sort(self.makers.all(found))).tolist()
            made = [program.instructions[j].out for j in makers if j >= 0]
            own = program.shared + np.arange(len(program.private))
            found = distinct(np.concatenate([np.arange(program.shared), own, *made]))
        parts: list[Addresses] = []
        for some in np.split(found, np.searchsorted(found, [program.inputs, program.shared])):
            ends = np.flatnonzero(np.diff(some) > 1) + 1
            if len(ends) < FEW_PIECES:
                parts += np.split(some, ends)
            elif some[-1] - some[0] < SPARSE * len(some):
                parts.append(np.arange(some[0], some[-1] + 1))
            else:
                parts.append(some)
        return [part for part in parts if len(part)]

    # --- the nearest of many ----------------------------------------------------------------------

    def begin(self, emitter: Emitter, k: int) -> None:
        """Before the loops of an instruction whose nearest result to a corner is wanted."""
        self.nearest[k] = emitter.new_flags(math.inf)

    def note(self, emitter: Emitter, k: int, distance: Vector) -> None:
        """Take note of some distances."""
        nearest = self.nearest[k][distance.width]
        nearest.set(_least(emitter.only_active(distance, math.inf), nearest.get()))

    def is_near(self, emitter: Emitter, k: int) -> str:
        """After them, an i1 register: whether one is as near as rounding may reach."""
        bound, found = self.bound(emitter, k), None
        for width, nearest in self.nearest.pop(k).items():
            here = Condition(emitter.code, (nearest.get() <= bound.splat(width)).any(), 1)
            found = here if found is None else found | here
        assert found is not None
        return found.register

    def refuse(self, emitter: Emitter, k: int, flags: dict[int, Variable]) -> None:
        """Leave the call to the tape if one is."""
        hit = Condition(emitter.code, self.is_near(emitter, k), 1)
        flags[1].set(flags[1].get() + hit.choose(math.nan, 0.0))

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
        return all(bool(self.sure[column].all()) for column in read)

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
            if not self.sure[column].all():
                first = self.makers.one(column)
                if first is None or first < 0 or self.program.instructions[first].kind != SUM:
                    return None
                found[j] = first
        return found or None

    def look_at_terms(
        self, emitter: Emitter, k: int, walks: list[Walk], sums: dict[int, int]
    ) -> None:
        """Make the results NaN that are near a corner, by the terms of what they read."""
        least = self.bound(emitter, k, deeper=True)
        for each in set(sums.values()):
            self._add_sizes(emitter, each)
        for walk in walks:

            def body(
                offsets: list[Offset], strides: list[int], width: int, walk: Walk = walk
            ) -> None:
                xs = operands(emitter, walk, 1, offsets, strides, width)
                y = emitter.read("%V", offsets[0], strides[0], width)
                sizes = []
                for j, x in enumerate(xs):
                    if j in sums:
                        at = self.beside(emitter, self._sizes[sums[j]], offsets[j + 1])
                        sizes.append(emitter.read("%V", at, strides[j + 1], width))
                    else:
                        sizes.append(abs(x))
                near = self.near(k, y, xs, sizes, least.splat(width))
                emitter.write("%V", offsets[0], near.choose(math.nan, y))

            emitter.elementwise(walk, range(len(walk.columns)), body)

    def room_beside(self, emitter: Emitter, k: int) -> int:
        """Room for a number more for each result of an instruction: how far from them it is."""
        instruction, walks = self.program.instructions[k], emitter.walks
        distance = self.program.size + walks.scratch - instruction.start
        walks.scratch += instruction.count
        return distance

    def beside(self, emitter: Emitter, distance: int, offset: Offset) -> Offset:
        """The place so far from a result."""
        return [*offset, (None, distance * emitter.batch)]

    def _add_sizes(self, emitter: Emitter, k: int) -> None:
        """Beside each sum of an instruction, the sum of the sizes of its terms."""
        if k not in self._sizes:
            self._sizes[k] = self.room_beside(emitter, k)

        def read(walk: Walk, offsets: list[Offset], strides: list[int], width: int) -> list[Vector]:
            xs = operands(emitter, walk, 1, offsets, strides, width)
            return [self.size(x, walk.columns[c]) for c, x in enumerate(xs, 1)]

        product = functools.partial(functools.reduce, operator.mul)
        self.add_up_beside(emitter, k, self._sizes[k], read, product)

    def add_up_beside(
        self,
        emitter: Emitter,
        k: int,
        distance: int,
        read: Callable[[Walk, list[Offset], list[int], int], list[Vector]],
        joined: Callable[[list[Vector]], Vector],
    ) -> None:
        """Beside each sum of an instruction, the sum of what is joined of each term's factors."""
        flags, emitter.flags = emitter.flags, None
        parts = list(_parts(emitter, k))
        for walk, _ in parts:

            def clear(offsets: list[Offset], strides: list[int], width: int) -> None:
                zero = emitter.code.constant(0.0, width if strides[0] else 1)
                emitter.write("%V", self.beside(emitter, distance, offsets[0]), zero)

            emitter.elementwise(walk, [0], clear, reduces=True)
        for walk, terms in parts:

            def add(
                offsets: list[Offset],
                strides: list[int],
                width: int,
                walk: Walk = walk,
                terms: list[list[int]] = terms,
            ) -> None:
                xs = read(walk, offsets, strides, width)
                total = emitter.code.constant(0.0, width)
                for factors in terms:
                    total = total + joined([xs[c - 1] for c in factors])
                at = self.beside(emitter, distance, offsets[0])
                if strides[0] == 0 and width > 1:
                    total, width = emitter.only_active(total).total(), 1
                emitter.write("%V", at, emitter.read("%V", at, strides[0], width) + total)

            emitter.elementwise(walk, range(len(walk.columns)), add, reduces=True)
        emitter.flags = flags

    def unless_lost(self, k: int, y: Vector, terms: list[Vector]) -> Vector:
        """A sum that a corner reads, NaN where its terms are very much larger than what is left.

        For programs in steps, where these are not looked at later on.
        """
        if not self.is_read[k]:
            return y
        size = abs(terms[0])
        for x in terms[1:]:
            size = size + abs(x)
        return (size > (abs(y) + 1.0) * LARGEST).choose(math.nan, y)


def _least(a: Vector, b: Vector) -> Vector:
    return (a < b).choose(a, b)


def _most_terms(terms: Terms) -> int:
    """The most terms that one sum has."""
    return terms.each or int(np.bincount(terms.owners - terms.owners.min()).max())


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
