"""Small loops in time as straight-line code that keeps an iteration's numbers in registers.

In: a loop in time whose iterations are short. Out: the machine code of one iteration, number by
number. What this iteration or an earlier one computed is read from registers, not from memory; it
is stored as well, for the backward pass and for what follows the loop. The lanes of a vector are
samples of a batch. Loops of small dynamical systems run about twice as fast this way.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.codegen.contraction import ADJOINT, VALUE, Emitter
from chainrule.compiler.codegen.instructions import as_vector, rule_of
from chainrule.compiler.codegen.ir import Code, Offset
from chainrule.compiler.codegen.vectors import Variable, Vector
from chainrule.compiler.lift.corners import BOUND
from chainrule.compiler.lift.graph import EXTREME, SUM, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Program, Repeat
from chainrule.core import ops

MOST_TERMS = 64  # of one instruction in one iteration: with more, vectors of results are faster
MOST_POINTS = 1_000  # of all instructions in one iteration
MOST_INLINED = 16  # elementary functions in a loop that are inlined
FEW_TERMS = 4  # a short sum has at most so many
CHAINS = 4  # partial sums of a long one, so that not every addition waits for the one before

Place = tuple[int, int]  # an address in the first iteration, and its step to the next one


def is_small(program: Program, loop: Repeat) -> bool:
    """Whether the iterations of a loop are short enough for this."""
    sizes = []
    for instruction in program.instructions[loop.first : loop.last]:
        sizes.append(instruction.count)
        sizes += [len(t) for t in (instruction.products, instruction.plains) if t is not None]
    return max(sizes) <= MOST_TERMS * loop.count and sum(sizes) <= MOST_POINTS * loop.count


def inlining(emitter: Emitter, loop: Repeat) -> AbstractContextManager[None]:
    """Inline the elementary functions of a loop that has only a few: calls spill registers."""
    rules = [
        i.count // loop.count if is_small(emitter.program, loop) else 1
        for i in emitter.program.instructions[loop.first : loop.last]
        if i.rule is not None and i.rule not in (ops.add, ops.mul)
    ]
    return emitter.code.inlining() if sum(rules) <= MOST_INLINED else nullcontext()


@dataclass
class Point:
    """One number that an instruction computes in each iteration."""

    out: int  # its address in the first iteration
    operands: list[Place]  # of a rule, or the plain terms of a sum
    products: list[tuple[Place, Place]]


def _places(column: Addresses, count: int) -> list[Place]:
    """A column of addresses over all iterations, as places."""
    rows = column.reshape(count, -1)
    return list(zip(rows[0].tolist(), (rows[-1] - rows[-2]).tolist(), strict=True))


class LoopBody:
    """The points of a loop, and which addresses are its own results."""

    def __init__(self, emitter: Emitter, number: int) -> None:
        self.emitter, self.program = emitter, emitter.program
        self.loop = loop = self.program.loops[number]
        self.points = {
            k: self._points(self.program.instructions[k]) for k in range(loop.first, loop.last)
        }
        #: per address in the first iteration: whose result it is, from how many iterations ago
        self.made: dict[int, tuple[int, int]] = {}
        self.each: dict[int, int] = {}  # per result: its step to the next iteration
        for instruction in self.program.instructions[loop.first : loop.last]:
            each = instruction.count // loop.count
            for j in range(instruction.start, instruction.start + each):
                self.each[j] = each
                for ago in range(loop.reach + 1):
                    self.made[j - ago * each] = (j, ago)
        for k, points in self.points.items():
            if self.program.instructions[k].kind == EXTREME:
                for point in points:
                    if len({self.own(place) for place in point.operands}) > 1:
                        raise NotLiftable("a maximum over what a loop makes and other numbers")

    def _points(self, instruction: Instruction) -> list[Point]:
        count = self.loop.count
        each = instruction.count // count
        made = [Point(j, [], []) for j in range(instruction.start, instruction.start + each)]
        for column in instruction.columns:
            for point, place in zip(made, _places(column, count), strict=True):
                point.operands.append(place)
        for terms in (instruction.products, instruction.plains):
            if terms is None:
                continue
            owners = [place[0] - instruction.start for place in _places(terms.owners, count)]
            columns = [_places(column, count) for column in terms.columns]
            for owner, *term in zip(owners, *columns, strict=True):
                if len(term) == 2:
                    made[owner].products.append((term[0], term[1]))
                else:
                    made[owner].operands.append(term[0])
        return made

    def own(self, place: Place) -> bool:
        """Whether the loop computes this number."""
        return place[0] in self.made and place[1] != 0

    def constant(self, place: Place) -> bool:
        """Whether its value is known at compile time."""
        return self.program.inputs <= place[0] < self.program.shared and place[1] == 0

    def reads(self, point: Point) -> Iterator[Place]:
        """Every operand of a point."""
        yield from point.operands
        for pair in point.products:
            yield from pair

    def delays(self, points: Iterable[Point]) -> dict[int, int]:
        """Per result that later iterations read: how many iterations later it is last read."""
        found: dict[int, int] = {}
        for point in points:
            for place in self.reads(point):
                if self.own(place):
                    slot, ago = self.made[place[0]]
                    found[slot] = max(found.get(slot, 0), ago)
        return {slot: most for slot, most in found.items() if most}


class _Samples:
    """As many samples of a batch as a vector has lanes: the registers that hold their numbers."""

    def __init__(self, body: LoopBody, at: int, width: int) -> None:
        self.body, self.at, self.width = body, at, width
        self.emitter, self.program = body.emitter, body.program
        self.code: Code = body.emitter.code
        self.fixed: dict[int, Vector] = {}  # loop-invariant numbers, by address
        self.read: dict[Place, Vector] = {}  # numbers of this iteration
        self.carried: dict[int, Variable] = {}  # between iterations, by address in the first

    def _offset(self, place: Place, counter: str | None) -> Offset:
        (address, step), batch, shared = place, self.emitter.batch, self.program.shared
        if address >= shared:
            address, step = (address - shared) * batch + self.at, step * batch
        return [(None, address)] if counter is None else [(counter, step), (None, address)]

    def load(self, arrays: tuple[str, str], place: Place, counter: str | None) -> Vector:
        """A number of each sample."""
        shared = place[0] < self.program.shared
        width = 1 if shared else self.width
        found = self.code.load(arrays[0 if shared else 1], self._offset(place, counter), width)
        return found.splat(self.width) if shared else found

    def store(self, array: str, place: Place, counter: str | None, value: Vector) -> None:
        self.code.store(array, self._offset(place, counter), value)

    def load_invariant(self, points: Iterable[Point]) -> None:
        """Before the loop, load what every iteration reads alike."""
        for point in points:
            for place in self.body.reads(point):
                address, step = place
                if address in self.fixed or step or self.body.own(place):
                    continue
                if self.body.constant(place):
                    number = float(self.program.constants[address - self.program.inputs])
                    self.fixed[address] = self.code.constant(number, self.width)
                else:
                    self.fixed[address] = self.load(VALUE, place, None)

    def value(self, place: Place) -> Vector:
        """A number in this iteration, loaded if it is in no register."""
        if place[1] == 0 and place[0] in self.fixed:
            return self.fixed[place[0]]
        if place not in self.read:
            self.read[place] = self.load(VALUE, place, self.emitter.counter)
        return self.read[place]


# --- forward --------------------------------------------------------------------------------------


def forward(emitter: Emitter, number: int, watched: list[bool], flags: dict[int, Any]) -> None:
    """The whole loop; ``watched``: per instruction, whether its results are checked."""
    body = LoopBody(emitter, number)
    all_points = [point for points in body.points.values() for point in points]
    samples = [
        _ForwardSamples(body, at, width, flags) for at, width in emitter.chunks(emitter.batch)
    ]
    for some in samples:
        some.begin(all_points)
    turns = emitter.turns(number)
    with inlining(emitter, body.loop), emitter.code.loop(turns) as emitter.counter:
        for some in samples:
            some.iteration(watched)
    emitter.counter = None


class _ForwardSamples(_Samples):
    def __init__(self, body: LoopBody, at: int, width: int, flags: dict[int, Any]) -> None:
        super().__init__(body, at, width)
        self.sizes: dict[Place, Vector] = {}  # of numbers of this iteration
        self.measured = self._measured()
        self.flags: list[Variable] = []  # several in turn, so that no check waits for the last
        for n in range(CHAINS):
            flag = flags.setdefault(
                -1 - n - CHAINS * width, self.code.variable(self.code.constant(0.0, width))
            )
            self.flags.append(flag)

    def begin(self, points: list[Point]) -> None:
        """Before the loop: load invariants and the results of iterations -1, -2 and so on."""
        self.load_invariant(points)
        for slot, most in self.body.delays(points).items():
            for ago in range(1, most + 1):
                address = slot - ago * self.body.each[slot]
                first = self.load(VALUE, (address, 0), None)
                self.carried[address] = self.code.variable(first)

    def iteration(self, watched: list[bool]) -> None:
        """One iteration; its results go to registers and to memory."""
        self.read, self.sizes = {}, {}
        watches = 0
        for address, variable in self.carried.items():
            slot, _ = self.body.made[address]
            self.read[address, self.body.each[slot]] = variable.get()
        for k, points in self.body.points.items():
            for point in points:
                here = (point.out, self.body.each[point.out])
                made = self.read[here] = self._result(k, point)
                self.store("%V", here, self.emitter.counter, made)
                instruction = self.program.instructions[k]
                is_made = instruction.kind == SUM or instruction.rule is ops.mul
                if is_made and point.out in self.measured:
                    self.sizes[here] = self._made_size(instruction, point)
                if watched[k]:
                    flag = self.flags[watches % CHAINS]
                    flag.set(self.code.fma(made, made, flag.get()))
                    watches += 1
        for address, variable in self.carried.items():
            each = self.body.each[self.body.made[address][0]]
            variable.set(self.read[address + each, each])

    def _result(self, k: int, point: Point) -> Vector:
        instruction, corners = self.program.instructions[k], self.emitter.corners
        xs = [self.value(place) for place in point.operands]
        if instruction.kind == SUM:
            pairs = [(self.value(a), self.value(b)) for a, b in point.products]
            return self._sum(pairs, xs)
        rule = rule_of(instruction)
        if instruction.kind == EXTREME:
            best = xs[0]
            for x in xs[1:]:
                better = x > best if rule is ops.first_max else x < best
                best = better.choose(x, best)
            if corners is not None and k in corners.pairs:
                sizes = [self._size(place) for place in point.operands]
                best = corners.ties.among(k, best, xs, sizes).choose(math.nan, best)
            return best
        y = as_vector(self.code, rule(*xs, *instruction.parameters), self.width)
        if corners is None or k not in corners.pairs:
            return y
        sizes = [self._size(place) for place in point.operands]
        return corners.near(k, y, xs, sizes, y.lift(BOUND)).choose(math.nan, y)

    def _measured(self) -> set[int]:
        """The sums and products whose terms go into what is compared at corners, by address."""
        corners, program = self.emitter.corners, self.program
        found: set[int] = set()
        for k, points in reversed(self.body.points.items()):
            instruction, looks = program.instructions[k], corners is not None and k in corners.pairs
            is_made = instruction.kind == SUM or instruction.rule is ops.mul
            for point in reversed(points):
                if looks or (is_made and point.out in found):
                    found |= {place[0] for place in self.body.reads(point) if place[1]}
        return found

    def _made_size(self, instruction: Instruction, point: Point) -> Vector:
        """The size of a sum or product: that of its terms."""
        terms = [self._size(a) * self._size(b) for a, b in point.products]
        terms += map(self._size, point.operands)
        size: Vector = functools.reduce(
            operator.add if instruction.kind == SUM else operator.mul, terms
        )
        return size

    def _size(self, place: Place) -> Vector:
        """That of a number's terms, if it was made in this iteration; else its own."""
        if place not in self.sizes:
            address, step = place
            column = address + step * np.arange(self.body.loop.count)
            assert self.emitter.corners is not None
            self.sizes[place] = self.emitter.corners.size(self.value(place), column)
        return self.sizes[place]

    def _sum(self, pairs: list[tuple[Vector, Vector]], plains: list[Vector]) -> Vector:
        """Short sums in one chain, long ones in several.

        A short sum with one product rounds as eager does: a chaotic system amplifies differences.
        """
        if not self.emitter.walks.contract:
            plains, pairs = [*[a * b for a, b in pairs], *plains], []
        pairs = sorted(pairs, key=lambda pair: max(map(_age, pair)))  # wait for the latest last
        if not pairs or len(pairs) + len(plains) <= FEW_TERMS:
            terms = [*[a * b for a, b in pairs[:1]], *plains]
            total = terms[0]
            for a, b in pairs[1:]:
                total = self.code.fma(a, b, total)
            for x in terms[1:]:
                total = total + x
            return total
        chains = [a * b for a, b in pairs[:CHAINS]]
        for n, (a, b) in enumerate(pairs[CHAINS:]):
            chains[n % CHAINS] = self.code.fma(a, b, chains[n % CHAINS])
        for n, x in enumerate(plains):
            if len(chains) < CHAINS:
                chains.append(x)
            else:
                chains[n % CHAINS] = chains[n % CHAINS] + x
        total = chains[0]
        for chain in chains[1:]:
            total = total + chain
        return total


def _age(x: Vector) -> int:
    """A number that is higher the later the vector was computed."""
    digits = x.register.lstrip("%t")
    return int(digits) if digits.isdecimal() else 0


# --- backward -------------------------------------------------------------------------------------


class Reverse:
    """The backward pass of a loop, for the adjoints of its own results.

    ``instructions``: those that a gradient reaches, last ones first. ``begun``: per address,
    whether its adjoint holds something already.
    """

    def __init__(self, emitter: Emitter, number: int, instructions: list[int], begun: Any) -> None:
        self.body = LoopBody(emitter, number)
        self.emitter, self.instructions, self.begun = emitter, instructions, begun
        self.number, self.count = number, self.body.loop.count
        self.points = [point for k in instructions for point in self.body.points[k]]
        self.delays = self.body.delays(self.points)
        self.stored = {k for k in instructions if self._reads_outside(k)}
        self.used_after: set[int] = set()  # results of which any iteration's is used after the loop
        self.last_used: set[int] = set()  # results of which only the last iteration's is
        for slot, each in self.body.each.items():
            there = begun[slot + each * np.arange(self.count)]
            late = there.any() and emitter.walks.turns(number) is not None
            if late or there[:-1].any() or (there[-1] and slot not in self.delays):
                self.used_after.add(slot)
            elif there[-1]:
                self.last_used.add(slot)

    def _reads_outside(self, k: int) -> bool:
        """Whether an operand of an instruction is not the loop's own: its adjoint comes later."""
        return any(
            not self.body.own(place) and not self.body.constant(place)
            for point in self.body.points[k]
            for place in self.body.reads(point)
        )

    def added_to(self) -> Addresses:
        """The adjoints that the loop adds to: they must be begun before it."""
        steps = np.arange(self.count)
        found = [slot + self.body.each[slot] * steps for slot in sorted(self.used_after)]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def emit(self) -> None:
        """The loop; marks the adjoints that it stores as begun."""
        emitter, code, body = self.emitter, self.emitter.code, self.body
        samples = [_BackwardSamples(self, at, width) for at, width in emitter.chunks(emitter.batch)]
        for some in samples:
            some.begin()
        last, turns = emitter.last_turn(self.number), emitter.turns(self.number)
        with inlining(emitter, body.loop), code.loop(turns) as i:
            emitter.counter = code.let(f"sub nsw i64 {last}, {i}")
            for some in samples:
                some.iteration()
        emitter.counter = None
        for some in samples:
            some.end()
        for address in samples[0].carried:
            self.begun[address] = True
        for k in self.stored:
            self.begun[body.program.instructions[k].out] = True


class _BackwardSamples(_Samples):
    def __init__(self, reverse: Reverse, at: int, width: int) -> None:
        super().__init__(reverse.body, at, width)
        self.reverse = reverse
        self.sums: dict[int, Vector] = {}  # adjoints so far, by address in the first iteration

    def begin(self) -> None:
        """Before the loop: adjoints that iterations carry start from zero, or from after it."""
        body, last = self.body, self.reverse.count - 1
        self.load_invariant(self.reverse.points)
        for slot, most in self.reverse.delays.items():
            each = body.each[slot]
            for ago in range(1, most + 1):
                first = self.code.constant(0.0, self.width)
                if ago == 1 and slot in self.reverse.last_used:
                    first = self.load(ADJOINT, (slot + last * each, 0), None)
                self.carried[slot - ago * each] = self.code.variable(first)

    def iteration(self) -> None:
        """One iteration, its last instructions first."""
        body, reverse, counter = self.body, self.reverse, self.emitter.counter
        self.read, self.sums = {}, {}
        for address, variable in self.carried.items():
            self.sums[address + body.each[body.made[address][0]]] = variable.get()
        for slot in reverse.used_after:
            self._add(slot, self.load(ADJOINT, (slot, body.each[slot]), counter))
        for k in reverse.instructions:
            instruction = self.program.instructions[k]
            for point in body.points[k]:
                g = self.sums.get(point.out)
                if k in reverse.stored:
                    final = self.code.constant(0.0, self.width) if g is None else g
                    self.store("%D", (point.out, body.each[point.out]), counter, final)
                if g is not None:
                    self._propagate(instruction, point, g)
        for address, variable in self.carried.items():
            variable.set(self.sums.get(address, self.code.constant(0.0, self.width)))

    def end(self) -> None:
        """After the loop: store the adjoints of iterations -1, -2 and so on."""
        for address, variable in self.carried.items():
            value = variable.get()
            if self.reverse.begun[address]:  # by a later loop
                value = value + self.load(ADJOINT, (address, 0), None)
            self.store("%D", (address, 0), None, value)

    def _add(self, address: int, share: Vector) -> None:
        old = self.sums.get(address)
        self.sums[address] = share if old is None else old + share

    def _add_product(self, address: int, a: Any, b: Vector) -> None:
        """Add ``a * b``, where ``a`` may be a plain number."""
        old = self.sums.get(address)
        if isinstance(a, float) and a == 1.0:
            self._add(address, b)
        elif old is None or not self.emitter.walks.contract:
            self._add(address, a * b)
        else:
            self.sums[address] = b.times_plus(a, old)

    def _propagate(self, instruction: Instruction, point: Point, g: Vector) -> None:
        """Add a point's adjoint, times its partials, to those of its operands in the loop."""
        own = self.body.own
        if instruction.kind == SUM:
            for a, b in point.products:
                if own(a):
                    self._add_product(a[0], self.value(b), g)
                if own(b):
                    self._add_product(b[0], self.value(a), g)
            for place in point.operands:
                if own(place):
                    self._add(place[0], g)
            return
        y = self.value((point.out, self.body.each[point.out]))
        if instruction.kind == EXTREME:
            for place in point.operands:
                share = self.value(place)._compare("oeq", y).choose(g, 0.0)
                if own(place):
                    self._add(place[0], share)
                g = g - share
            return
        rule = instruction.rule
        assert rule is not None
        xs = [self.value(place) for place in point.operands]
        for j in range(len(instruction.operands)):
            place = point.operands[j]
            if own(place) and j in rule.differentiable:
                slope = rule.partials[j](y, *xs, *instruction.parameters)
                self._add_product(place[0], slope, g)
