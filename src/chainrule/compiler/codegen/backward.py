"""The backward pass of an array program as machine code.

In: the ``Emitter`` of an empty function and the address of the result. Out: code that goes through
the instructions in reverse and adds each one's adjoint, times its partials, to the adjoints of its
operands. The first walk to reach an adjoint stores it if it covers the whole column; else the
adjoint is zeroed and added to. ``Machine.stores`` lists what is stored: a shorter call that uses
this code must cover it too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.codegen import registers
from chainrule.compiler.codegen.contraction import ADJOINT, VALUE, Emitter
from chainrule.compiler.codegen.instructions import (
    Machine,
    as_vector,
    clear,
    clear_results,
    columns_of,
    differentiated,
    differentiated_by,
    each_gathered,
    ends_late,
    if_present,
    is_few,
    one_walk,
    operands,
    seed,
)
from chainrule.compiler.codegen.ir import Offset, Vector
from chainrule.compiler.codegen.walks import Walk
from chainrule.compiler.lift.endings import copied_by
from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM
from chainrule.compiler.lift.program import Addresses, Instruction, Program, distinct
from chainrule.core import ops


def reached(program: Program, root: int) -> npt.NDArray[np.bool_]:
    """Per address: whether a gradient from ``root`` can reach it."""
    found = np.zeros(program.size, np.bool_)
    found[root] = True
    before, now = -1, 1
    again = bool(program.loops) or program.steps is not None
    while before != now:  # one round is enough where instructions are not done in turns
        for instruction in reversed(program.instructions):
            if differentiates(instruction, found):
                for column in differentiated_by(instruction):
                    found[column] = True
        before, now = now, int(found.sum()) if again else now
    return found


def differentiates(instruction: Instruction, found: npt.NDArray[np.bool_]) -> bool:
    """Whether an instruction passes a gradient on, where ``found`` are the addresses it reaches."""
    here = found[instruction.start : instruction.start + instruction.count]
    return bool(here.any()) and (instruction.rule is None or bool(instruction.rule.differentiable))


def is_read(program: Program, targets: Addresses) -> bool:
    """Whether any of these adjoints is ever read: those of constants and data are not."""
    last = program.shared + len(program.private)
    needed = program.inputs if program.needed is None else program.needed
    constant = (targets >= needed) & (targets < program.shared)
    return not bool((constant | ((targets >= last - program.fixed) & (targets < last))).all())


class Backward:
    """The backward pass under construction."""

    def __init__(self, emitter: Emitter, made: Machine, adds: bool = False) -> None:
        """``adds``: the gradient is added to what is in Q, which the caller has zeroed once."""
        self.emitter, self.program, self.made = emitter, emitter.program, made
        #: per address: whether the code so far has stored or zeroed its adjoint
        self.begun = np.zeros(self.program.size, np.bool_)
        self.begun[: self.program.inputs] = adds
        #: likewise: whether it is a result of a loop in time whose last iteration is known late
        self.last_later = np.zeros(self.program.size, np.bool_)
        for number in range(len(self.program.loops)):
            if emitter.walks.turns(number) is not None:
                self.last_later |= emitter.walks.core(number)

    def emit(self, root: int) -> None:
        """Everything that a gradient of ``root`` reaches, last instructions first."""
        program = self.program
        found = reached(program, root)
        if self.emitter.walks.others is None:
            self._clear(np.flatnonzero(~found[: program.inputs]))
        else:
            self._clear_all(found)
        self.begun[root] = True
        shared = root < program.shared
        place = root if shared else (root - program.shared) * self.emitter.batch
        seed(self.emitter, [(None, place)], shared)
        for k in reversed(range(len(program.instructions))):
            instruction = program.instructions[k]
            if instruction.loop is not None:
                if k == program.loops[instruction.loop].first:
                    self._loop(instruction.loop, found)
            elif differentiates(instruction, found):
                self._clear(instruction.out)
                if ends_late(self.emitter, instruction):
                    self._ending(k, instruction)
                    continue
                is_optional = k in self.made.optional
                for column in differentiated_by(instruction) if is_optional else ():
                    self._clear(column)  # even where the instruction is skipped
                with if_present(self.emitter, k, is_optional):
                    self._instruction(k, instruction)
        self._clear(np.arange(program.inputs))
        self._clear(np.arange(program.shared, program.shared + differentiated(program)))

    def _clear_all(self, found: npt.NDArray[np.bool_]) -> None:
        """Zero every adjoint: where a shorter call begins them is not known."""
        program = self.program
        self._clear(np.arange(program.inputs))
        self._clear(program.shared + np.arange(len(program.private)))
        for k, instruction in enumerate(program.instructions):
            if differentiates(instruction, found):
                clear_results(self.emitter, "%D", k, instruction.count)
        self.begun[:] = True

    # --- which adjoints are begun -----------------------------------------------------------------

    def _clear(self, addresses: Addresses, step: int = 0, count: int = 1) -> None:
        """Zero the adjoints that are not begun.

        In a loop in time, these are the addresses of the first of ``count`` iterations.
        """
        wanted = distinct(addresses[~self.begun[addresses]])
        self._begin(wanted, step, count)
        split = int(np.searchsorted(wanted, self.program.shared))
        clear(self.emitter, "%Q", wanted[:split], step)
        clear(self.emitter, "%D", wanted[split:] - self.program.shared, step)

    def _begin(self, addresses: Addresses, step: int, count: int) -> None:
        self.begun[addresses + step * np.arange(count)[:, None]] = True

    def _may_store(self, walk: Walk, column: int, sums: bool) -> bool:
        """Whether a walk may store the adjoints of a column; if not, they are ready to add to.

        ``sums``: the walk completes the sum of what goes to one place, over all lanes, before it
        stores it.
        """
        if walk.rows is not None:
            return False  # all are zeroed at the beginning
        targets, shared = walk.columns[column], walk.shared[column]
        fresh = not self.begun[targets].any()
        if sums:
            whole = self.emitter.stores(walk, column)
        else:
            whole = len(distinct(targets)) == len(targets) and not (
                shared and self.emitter.batch > 1
            )
        # What a shorter call does not come to must be zero, where it is read all the same.
        shrinks = walk.varies and (shared or bool(self.last_later[targets].any()))
        step = walk.steps[column] if walk.steps else 0
        if fresh and whole and not shrinks:
            self._begin(targets, step, walk.iterations)
            if not walk.steps:
                self.made.stores.append((walk, targets))
            return True
        self._clear(targets, step, walk.iterations)
        return False

    def _is_read(self, walk: Walk, column: int) -> bool:
        """Whether the adjoints of a column are ever read: those of constants and data are not.

        In a loop in time, this is true for results of the loop itself; outside of it, for the rest.
        """
        if walk.core and walk.core[column] != bool(walk.steps):
            return False
        return is_read(self.program, walk.columns[column])

    # --- loops in time ----------------------------------------------------------------------------

    def _loop(self, number: int, found: npt.NDArray[np.bool_]) -> None:
        """Adjoints of the loop's own results, iteration by iteration; the others all at once."""
        program = self.program
        loop = program.loops[number]
        core = [
            k
            for k in reversed(range(loop.first, loop.last))
            if differentiates(program.instructions[k], found)
        ]
        if core and registers.is_small(program, loop):
            reverse = registers.Reverse(self.emitter, number, core, self.begun)
            self._clear(reverse.added_to())
            reverse.emit()
        elif core:
            self._sliced(number, core)
        for k in core:
            self._instruction(k, program.instructions[k])

    def _sliced(self, number: int, core: list[int]) -> None:
        """The loop itself, where each iteration does slices of arrays."""
        emitter, code, program = self.emitter, self.emitter.code, self.program
        loop = program.loops[number]
        self._clear(self._added_to(number, core))
        last = emitter.last_turn(number)
        with registers.inlining(emitter, loop), code.loop(emitter.turns(number)) as i:
            emitter.counter = code.let(f"sub nsw i64 {last}, {i}")
            for k in core:
                instruction = program.instructions[k]
                each = instruction.count // loop.count
                self._clear(instruction.out[:each], each, loop.count)
                self._instruction(k, instruction)
        emitter.counter = None

    def _ending(self, k: int, instruction: Instruction) -> None:
        """Add to the adjoints of the last iteration of a loop: any of them may be that."""
        emitter, number = self.emitter, instruction.ends
        assert number is not None
        source, _ = copied_by(instruction, self.program)
        self._clear(self.program.instructions[source].out)
        emitter.counter = emitter.last_turn(number)
        self._copy(emitter.walks.ending(k), 1, store=False)
        emitter.counter = None

    def _added_to(self, number: int, core: list[int]) -> Addresses:
        """Results of a loop whose adjoints others add to before their iteration, in all of them."""
        program, loop = self.program, self.program.loops[number]
        found = np.zeros(program.size, np.bool_)
        slot = np.zeros(program.size, np.int64)
        when = np.full(program.size, loop.count)
        for instruction in program.instructions[loop.first : loop.last]:
            each = instruction.count // loop.count
            here = np.arange(-loop.reach * each, instruction.count)
            slot[instruction.start + here] = instruction.start + here % each
            when[instruction.start + here] = here // each
        found[slot[self.begun & (when < loop.count)]] = True
        for k in core:
            for column in differentiated_by(program.instructions[k]):
                last = column.reshape(loop.count, -1)[-1]
                found[slot[last[when[last] < loop.count - 1]]] = True
        return np.flatnonzero((when < loop.count) & found[slot])

    def _walks(self, k: int, what: str) -> list[Walk]:
        """The walks that forward made for an instruction; in a loop in time, those of a slice."""
        emitter, instruction = self.emitter, self.program.instructions[k]
        if instruction.loop is None:
            return emitter.walks.of(k, what, columns_of(instruction, what))
        sliced = emitter.counter is not None
        return emitter.walks.in_loop(k, what, columns_of(instruction, what), sliced)

    # --- instructions -----------------------------------------------------------------------------

    def _instruction(self, k: int, instruction: Instruction) -> None:
        if instruction.kind == GATHER:
            self._gather(k, instruction)
        elif instruction.kind == EXTREME:
            walk = one_walk(self._walks(k, "plains"))
            if self._is_read(walk, 1):
                self._clear(walk.columns[1], sum(walk.steps[1:2]), walk.iterations)
                self._extreme(walk)
        elif instruction.kind == SUM:
            parts = [("products", instruction.products), ("plains", instruction.plains)]
            # What comes first may store adjoints, and the rest adds to them.
            for what, terms in sorted(parts, key=lambda part: -len(part[1] or ())):
                if terms is None:
                    continue
                columns = len(terms.columns)
                if what == "plains" and is_few(self.emitter, k, terms):
                    what, columns = "out", terms.each
                for walk in self._walks(k, what):
                    self._sum(walk, columns, what == "products")
        else:
            for walk in self._walks(k, "out"):
                self._rule(walk, instruction)

    def _gather(self, k: int, instruction: Instruction) -> None:
        """Add to the adjoint of what was selected."""
        code = self.emitter.code
        assert instruction.candidates is not None
        self._clear(instruction.candidates)

        def add(here: Offset, there: Offset, width: int, shared: bool) -> None:
            array = ADJOINT[0] if shared else ADJOINT[1]
            total = code.load(array, there, width) + code.load("%D", here, width)
            code.store(array, there, total)

        each_gathered(self.emitter, k, instruction, add)

    def _sum(self, walk: Walk, columns: int, products: bool) -> None:
        """A factor gets the adjoint times the other factor; a plain term gets the adjoint."""
        for column in range(1, 1 + columns):
            if not self._is_read(walk, column):
                continue
            selection, arrays = [column, 0], [ADJOINT, ADJOINT]
            if products:
                selection, arrays = [column, 0, 3 - column], [ADJOINT, ADJOINT, VALUE]
            if not products and not walk.steps and self._goes_apart(walk, column):
                self._copy(walk, column, self._may_store(walk, column, sums=False))
                continue
            store = self._may_store(walk, column, sums=True)
            self.emitter.contract(walk, selection, arrays, store=store)

    def _goes_apart(self, walk: Walk, column: int) -> bool:
        """Whether each adjoint goes to a place of its own."""
        targets = walk.columns[column]
        alone = self.emitter.batch == 1 or not walk.shared[column]
        regular = walk.rows is None and walk.space.rows == 1
        return alone and regular and len(distinct(targets)) == len(targets)

    def _copy(self, walk: Walk, column: int, store: bool) -> None:
        """D[x] = g, or += g."""
        emitter = self.emitter
        target = ADJOINT[0] if walk.shared[column] else ADJOINT[1]

        def body(offsets: list[Offset], strides: list[int], width: int) -> None:
            g = emitter.read("%D", offsets[1], strides[1], width)
            if not store:
                g = g + emitter.read(target, offsets[0], strides[0], width)
            emitter.write(target, offsets[0], g)

        emitter.elementwise(walk, (column, 0), body, reduces=True)

    def _extreme(self, walk: Walk) -> None:
        """The first term that equals the result gets all of its adjoint."""
        emitter, code = self.emitter, self.emitter.code
        shared = walk.shared[1]
        values, adjoints = ("%P", "%Q") if shared else ("%V", "%D")

        def inner(offsets: list[Offset], loops: Any) -> None:
            def one(t: list[Offset]) -> None:
                g = code.load("%D", t[0])
                chosen = code.load(values, t[1])._compare("oeq", code.load("%V", t[0]))
                share = chosen.choose(g, 0.0)
                code.store(adjoints, t[1], code.load(adjoints, t[1]) + share)
                code.store("%D", t[0], g - share)

            emitter.over(loops, offsets, one)

        emitter.nest(walk, (0, 1), inner)

    def _rule(self, walk: Walk, instruction: Instruction) -> None:
        """D[x] += partial * g for each operand."""
        rule = instruction.rule
        assert rule is not None
        for j in range(len(instruction.operands)):
            if j not in rule.differentiable or not self._is_read(walk, j + 1):
                continue
            if self._is_sum_of_products(walk, instruction, j + 1):
                store = self._may_store(walk, j + 1, sums=True)
                arrays = (ADJOINT, ADJOINT, VALUE)
                self.emitter.contract(walk, (j + 1, 0, 2 - j), arrays, store=store)
                continue
            store = self._may_store(walk, j + 1, sums=False)
            self._partial(walk, instruction, j, store)

    def _is_sum_of_products(self, walk: Walk, instruction: Instruction, column: int) -> bool:
        """Whether each adjoint of a column is the sum of some adjoints times another operand."""
        if instruction.rule is not ops.mul or len(walk.columns) != 3 or walk.steps:
            return False
        targets, others = walk.columns[column], walk.columns[3 - column]
        repeats = len(distinct(targets)) < len(targets) and bool((others != others[0]).any())
        return self.emitter.walks.contract and repeats

    def _partial(self, walk: Walk, instruction: Instruction, j: int, store: bool) -> None:
        emitter, code, rule = self.emitter, self.emitter.code, instruction.rule
        assert rule is not None
        target = ADJOINT[0] if walk.shared[j + 1] else ADJOINT[1]

        def body(offsets: list[Offset], strides: list[int], width: int) -> None:
            xs = operands(emitter, walk, 2, offsets, strides, width)
            y = emitter.read("%V", offsets[1], strides[1], width)
            g = emitter.read("%D", offsets[1], strides[1], width)
            slope = rule.partials[j](y, *xs, *instruction.parameters)
            plain = isinstance(slope, float) and slope == 1.0
            if strides[0] == 0 and width > 1:
                share = emitter.only_active(as_vector(code, g if plain else slope * g, width))
                code.store(target, offsets[0], code.load(target, offsets[0]) + share.total())
            elif store:
                emitter.write(target, offsets[0], as_vector(code, g if plain else slope * g, width))
            else:
                old = emitter.read(target, offsets[0], strides[0], width)
                fused = emitter.walks.contract and isinstance(slope, Vector)
                total = slope.times_plus(g, old) if fused else old + (g if plain else slope * g)
                emitter.write(target, offsets[0], total)

        selection = [j + 1, *range(len(walk.columns))]
        emitter.elementwise(walk, selection, body, reduces=True)
