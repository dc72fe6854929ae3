"""Small loops in time as straight code, the numbers of an iteration in registers.

In: a loop of an array program whose iterations are short. Out: machine code of one iteration,
number by number, in which nothing is read from memory that the same iteration made, or the ones
before it: what is carried over stays in registers, too. Results are stored all the same, for the
reverse and for what comes after the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.codegen.contraction import Emitter
from chainrule.compiler.codegen.ir import Code, Terms
from chainrule.compiler.codegen.vectors import Variable, Vector
from chainrule.compiler.lift.canonical import EXTREME, RULE, SUM, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Program, Repeat
from chainrule.core import ops

MOST_TERMS = 64  # of one instruction in one iteration: more are better done by vectors
MOST_POINTS = 1_000  # of all instructions in one iteration
MOST_INLINED = 16  # elementary functions that are written down where they are used
FEW_TERMS = 4  # of a short sum
CHAINS = 4  # parts of a long one that are added up side by side, for one waits for the one before

Place = tuple[int, int]  # an address in the first iteration, and its step to the next one


def is_small(program: Program, loop: Repeat) -> bool:
    """Whether a loop is short enough for this."""
    sizes = []
    for instruction in program.instructions[loop.first : loop.last]:
        sizes.append(instruction.count)
        sizes += [len(t) for t in (instruction.products, instruction.plains) if t is not None]
    return max(sizes) <= MOST_TERMS * loop.count and sum(sizes) <= MOST_POINTS * loop.count


def inlining(emitter: Emitter, loop: Repeat) -> AbstractContextManager[None]:
    """Elementary functions are written into a loop that has only a few."""
    rules = [
        i.count // loop.count if is_small(emitter.program, loop) else 1
        for i in emitter.program.instructions[loop.first : loop.last]
        if i.rule is not None and i.rule not in (ops.add, ops.mul)
    ]
    return emitter.code.inlining() if sum(rules) <= MOST_INLINED else nullcontext()


@dataclass
class Point:
    """One number that an instruction makes in each iteration."""

    out: int  # its address in the first
    operands: list[Place]  # of a rule, or the plain terms of a sum
    products: list[tuple[Place, Place]]


def _places(column: Addresses, count: int) -> list[Place]:
    rows = column.reshape(count, -1)
    return list(zip(rows[0].tolist(), (rows[-1] - rows[-2]).tolist(), strict=True))


class Body:
    """The points of a loop, and where its numbers are."""

    def __init__(self, emitter: Emitter, number: int) -> None:
        self.emitter, self.program = emitter, emitter.program
        self.loop = loop = self.program.loops[number]
        self.points = {
            k: list(self._points(self.program.instructions[k]))
            for k in range(loop.first, loop.last)
        }
        #: per address in the first iteration: the result it is of, how many iterations ago
        self.made: dict[int, tuple[int, int]] = {}
        self.each: dict[int, int] = {}  # per result: its step
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

    def _points(self, instruction: Instruction) -> Iterator[Point]:
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
        return iter(made)

    def own(self, place: Place) -> bool:
        """Whether the loop makes this number."""
        return place[0] in self.made and place[1] != 0

    def constant(self, place: Place) -> bool:
        """Whether it is a number known now."""
        return self.program.inputs <= place[0] < self.program.shared and place[1] == 0

    def reads(self, point: Point) -> Iterator[Place]:
        """Everything that a point is computed from."""
        yield from point.operands
        for pair in point.products:
            yield from pair

    def delays(self, points: Iterable[Point]) -> dict[int, int]:
        """Per result that later iterations read: how many iterations later the last one is."""
        found: dict[int, int] = {}
        for point in points:
            for place in self.reads(point):
                if self.own(place):
                    slot, ago = self.made[place[0]]
                    found[slot] = max(found.get(slot, 0), ago)
        return {slot: most for slot, most in found.items() if most}


class _Samples:
    """Some samples of a batch, as many as a vector has lanes, on their way through a loop."""

    def __init__(self, body: Body, at: int, width: int) -> None:
        self.body, self.at, self.width = body, at, width
        self.emitter, self.program = body.emitter, body.program
        self.code: Code = body.emitter.code
        self.fixed: dict[int, Vector] = {}  # numbers that are the same in each iteration
        self.read: dict[Place, Vector] = {}  # numbers read in this one

    def _terms(self, place: Place, counter: str | None) -> Terms:
        (address, step), batch, shared = place, self.emitter.batch, self.program.shared
        if address >= shared:
            address, step = (address - shared) * batch + self.at, step * batch
        return [(None, address)] if counter is None else [(counter, step), (None, address)]

    def load(self, arrays: tuple[str, str], place: Place, counter: str | None) -> Vector:
        """A number of each sample."""
        shared = place[0] < self.program.shared
        width = 1 if shared else self.width
        found = self.code.load(arrays[0 if shared else 1], self._terms(place, counter), width)
        return found.splat(self.width) if shared else found

    def store(self, array: str, place: Place, counter: str | None, value: Vector) -> None:
        self.code.store(array, self._terms(place, counter), value)

    def keep(self, points: Iterable[Point]) -> None:
        """Read what stays the same, before the loop."""
        for point in points:
            for place in self.body.reads(point):
                address, step = place
                if address in self.fixed or step or self.body.own(place):
                    continue
                if self.body.constant(place):
                    number = float(self.program.constants[address - self.program.inputs])
                    self.fixed[address] = self.code.constant(number, self.width)
                else:
                    self.fixed[address] = self.load(("%P", "%V"), place, None)

    def value(self, place: Place) -> Vector:
        """A number in this iteration."""
        if place[1] == 0 and place[0] in self.fixed:
            return self.fixed[place[0]]
        if place not in self.read:
            self.read[place] = self.load(("%P", "%V"), place, self.emitter.counter)
        return self.read[place]


# --- forward --------------------------------------------------------------------------------------


def forward(emitter: Emitter, number: int, watched: list[bool], flags: dict[int, Any]) -> None:
    """The whole loop."""
    body = Body(emitter, number)
    all_points = [point for points in body.points.values() for point in points]
    samples = [_Forward(body, at, width, flags) for at, width in emitter.chunks(emitter.batch)]
    for some in samples:
        some.begin(all_points)
    with inlining(emitter, body.loop), emitter.code.loop(body.loop.count) as emitter.counter:
        for some in samples:
            some.iteration(watched)
    emitter.counter = None


class _Forward(_Samples):
    def __init__(self, body: Body, at: int, width: int, flags: dict[int, Any]) -> None:
        super().__init__(body, at, width)
        self.carried: dict[int, Variable] = {}
        self.flags: list[Variable] = []
        for n in range(CHAINS):
            flag = flags.setdefault(
                -1 - n - CHAINS * width, self.code.variable(self.code.constant(0.0, width))
            )
            self.flags.append(flag)

    def begin(self, points: list[Point]) -> None:
        """Before the loop."""
        self.keep(points)
        for slot, most in self.body.delays(points).items():
            for ago in range(1, most + 1):
                address = slot - ago * self.body.each[slot]
                first = self.load(("%P", "%V"), (address, 0), None)
                self.carried[address] = self.code.variable(first)

    def iteration(self, watched: list[bool]) -> None:
        """One iteration; what it makes goes to registers and to memory."""
        self.read = {}
        watches = 0
        for address, variable in self.carried.items():
            slot, _ = self.body.made[address]
            self.read[address, self.body.each[slot]] = variable.get()
        for k, points in self.body.points.items():
            instruction = self.program.instructions[k]
            for point in points:
                here = (point.out, self.body.each[point.out])
                made = self.read[here] = self._made(instruction, point)
                self.store("%V", here, self.emitter.counter, made)
                if watched[k]:
                    flag = self.flags[watches % CHAINS]
                    flag.set(self.code.fma(made, made, flag.get()))
                    watches += 1
        for address, variable in self.carried.items():
            each = self.body.each[self.body.made[address][0]]
            variable.set(self.read[address + each, each])

    def _made(self, instruction: Instruction, point: Point) -> Vector:
        xs = [self.value(place) for place in point.operands]
        if instruction.kind == SUM:
            pairs = [(self.value(a), self.value(b)) for a, b in point.products]
            return self._sum(pairs, xs)
        rule = instruction.rule
        assert rule is not None
        if instruction.kind == EXTREME:
            best = xs[0]
            for x in xs[1:]:
                better = x > best if rule is ops.first_max else x < best
                best = better.choose(x, best)
            return best
        assert instruction.kind == RULE
        made = rule(*xs, *instruction.parameters)
        if not isinstance(made, Vector):
            made = self.code.constant(float(made), self.width)
        return made

    def _sum(self, pairs: list[tuple[Vector, Vector]], plains: list[Vector]) -> Vector:
        """Short sums with but one product are rounded as eager's: small differences may grow."""
        if not self.emitter.walks.contract:
            plains, pairs = [*[a * b for a, b in pairs], *plains], []
        pairs = sorted(pairs, key=lambda pair: max(map(_age, pair)))  # what comes last, last
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
        while len(chains) > 1:
            chains = [chains[0] + chains[1], *chains[2:]]
        return chains[0]


def _age(x: Vector) -> int:
    """A number that is higher the later it was computed."""
    digits = x.register.lstrip("%t")
    return int(digits) if digits.isdecimal() else 0


# --- backward -------------------------------------------------------------------------------------


class Reverse:
    """The reverse of a loop: what its iterations pass on to each other.

    ``instructions``: those that a gradient reaches, last ones first. ``touched``: the adjoints that
    hold something already.
    """

    def __init__(
        self, emitter: Emitter, number: int, instructions: list[int], touched: Any
    ) -> None:
        self.body = Body(emitter, number)
        self.emitter, self.instructions, self.touched = emitter, instructions, touched
        self.count = self.body.loop.count
        self.points = [point for k in instructions for point in self.body.points[k]]
        self.delays = self.body.delays(self.points)
        self.needed = {k for k in instructions if self._outside(k)}
        self.begun: set[int] = set()  # results to whose adjoints others have added in any iteration
        self.ended: set[int] = set()  # and only in the last one
        for slot, each in self.body.each.items():
            there = touched[slot + each * np.arange(self.count)]
            if there[:-1].any() or (there[-1] and slot not in self.delays):
                self.begun.add(slot)
            elif there[-1]:
                self.ended.add(slot)

    def _outside(self, k: int) -> bool:
        """Whether an instruction passes something on to what the loop does not make."""
        return any(
            not self.body.own(place) and not self.body.constant(place)
            for point in self.body.points[k]
            for place in self.body.reads(point)
        )

    def wanted(self) -> Addresses:
        """The adjoints that must be zero, or what others have added, before the loop."""
        steps = np.arange(self.count)
        found = [slot + self.body.each[slot] * steps for slot in sorted(self.begun)]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def emit(self) -> None:
        """The loop; marks as touched what it leaves."""
        emitter, code, body = self.emitter, self.emitter.code, self.body
        samples = [_Backward(self, at, width) for at, width in emitter.chunks(emitter.batch)]
        for some in samples:
            some.begin()
        with inlining(emitter, body.loop), code.loop(self.count) as i:
            emitter.counter = code.let(f"sub nsw i64 {self.count - 1}, {i}")
            for some in samples:
                some.iteration()
        emitter.counter = None
        for some in samples:
            some.end()
        for address in samples[0].carried:
            self.touched[address] = True
        for k in self.needed:
            self.touched[body.program.instructions[k].out] = True


class _Backward(_Samples):
    def __init__(self, reverse: Reverse, at: int, width: int) -> None:
        super().__init__(reverse.body, at, width)
        self.reverse = reverse
        self.carried: dict[int, Variable] = {}
        self.sums: dict[int, Vector] = {}  # adjoints so far, by address in the first iteration

    def begin(self) -> None:
        """Before the loop."""
        body, last = self.body, self.reverse.count - 1
        self.keep(self.reverse.points)
        for slot, most in self.reverse.delays.items():
            each = body.each[slot]
            for ago in range(1, most + 1):
                first = self.code.constant(0.0, self.width)
                if ago == 1 and slot in self.reverse.ended:
                    first = self.load(("%Q", "%D"), (slot + last * each, 0), None)
                self.carried[slot - ago * each] = self.code.variable(first)

    def iteration(self) -> None:
        """One iteration, the last things first."""
        body, reverse, counter = self.body, self.reverse, self.emitter.counter
        self.read, self.sums = {}, {}
        for address, variable in self.carried.items():
            self.sums[address + body.each[body.made[address][0]]] = variable.get()
        for slot in reverse.begun:
            self._add(slot, self.load(("%Q", "%D"), (slot, body.each[slot]), counter))
        for k in reverse.instructions:
            instruction = self.program.instructions[k]
            for point in body.points[k]:
                g = self.sums.get(point.out)
                if k in reverse.needed:
                    final = self.code.constant(0.0, self.width) if g is None else g
                    self.store("%D", (point.out, body.each[point.out]), counter, final)
                if g is not None:
                    self._pass(instruction, point, g)
        for address, variable in self.carried.items():
            variable.set(self.sums.get(address, self.code.constant(0.0, self.width)))

    def end(self) -> None:
        """After the loop: what goes to what was there before it."""
        for address, variable in self.carried.items():
            value = variable.get()
            if self.reverse.touched[address]:  # by a later loop
                value = value + self.load(("%Q", "%D"), (address, 0), None)
            self.store("%D", (address, 0), None, value)

    def _add(self, address: int, share: Vector) -> None:
        old = self.sums.get(address)
        self.sums[address] = share if old is None else old + share

    def _add_product(self, address: int, a: Any, b: Vector) -> None:
        """``a`` is a vector or a number."""
        old = self.sums.get(address)
        if isinstance(a, float) and a == 1.0:
            self._add(address, b)
        elif old is None or not self.emitter.walks.contract:
            self._add(address, a * b)
        else:
            self.sums[address] = b.times_plus(a, old)

    def _pass(self, instruction: Instruction, point: Point, g: Vector) -> None:
        """Pass an adjoint on to what the loop makes."""
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
