"""The forward pass of an array program as machine code.

In: the ``Emitter`` of an empty function. Out: code that computes every number of the program, in
the order of its instructions, and a number that is finite only if all of them are and every guard
holds. Eager raises where a number is not finite; the caller falls back to it then.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.codegen import registers, strips
from chainrule.compiler.codegen.contraction import VALUE, Emitter
from chainrule.compiler.codegen.instructions import (
    Machine,
    as_vector,
    clear_results,
    columns_of,
    each_gathered,
    ends_late,
    if_present,
    is_few,
    one_walk,
    operands,
    read_by,
    rule_of,
    takes_product,
)
from chainrule.compiler.codegen.ir import Integers, Offset, Vector
from chainrule.compiler.codegen.walks import Walk
from chainrule.compiler.lift.corners import BOUND
from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Program, distinct
from chainrule.compiler.lift.strips import Run, schedule
from chainrule.core import ops


def emit_forward(emitter: Emitter, made: Machine, returned: Addresses | None = None) -> Vector:
    """All instructions, then the guards; gives the number that tells whether all is well.

    ``returned``: the addresses that anybody reads then, the root first; None: all of them. If not
    all, runs of independent elements are computed strip by strip.
    """
    program = emitter.program
    flags = emitter.new_flags()
    checked = watched(program)
    order: Sequence[int | Run] = range(len(program.instructions))
    if returned is not None:
        order = schedule(program, int(returned[0]), returned)
    for k in order:
        if isinstance(k, Run):
            strips.emit_run(emitter, k, made, checked, flags)
            continue
        instruction = program.instructions[k]
        emitter.flags = flags if checked[k] else None
        if ends_late(emitter, instruction):
            _ending(emitter, k, instruction)
        elif instruction.loop is None:
            with if_present(emitter, k, k in made.optional):
                _instruction(emitter, k, instruction)
        elif k == program.loops[instruction.loop].first:
            _loop(emitter, instruction.loop, checked, flags)
    emitter.flags = flags
    return check_guards(emitter, emitter.flag_total())


# --- which results are checked --------------------------------------------------------------------


def watched(program: Program) -> list[bool]:
    """Per instruction: whether its results must be checked to be finite.

    They need not be if a number that is not finite makes a later, checked one not finite too. Sums
    of several terms are always checked: added in another order than eager's they may stay finite
    where eager's overflow on the way.
    """
    shows = np.zeros(program.size, np.bool_)
    found = []
    for instruction in reversed(program.instructions):
        long = instruction.products is not None or (
            instruction.plains is not None and instruction.plains.each not in (1, 2)
        )
        copied = instruction.kind == GATHER
        out = slice(instruction.start, instruction.start + instruction.count)
        hides = instruction.kind == EXTREME
        found.append(not copied and (hides or long or not bool(shows[out].all())))
        rule = instruction.rule
        is_open = rule is not None and rule.shows_nonfinite(*instruction.parameters)
        if instruction.kind == SUM or is_open:
            for column in read_by(instruction):
                shows[column] = True
    return found[::-1]


def check_guards(emitter: Emitter, flag: Vector) -> Vector:
    """The flag, not finite if a guard goes the other way in any sample."""
    program, code = emitter.program, emitter.code
    if not len(program.guards):
        return flag
    walks = emitter.walks.of(len(program.instructions), "guards", [program.guards])
    infinite = code.variable(flag)
    expected = np.ascontiguousarray(program.expected).view(np.int64)
    for walk in walks:
        wanted = expected if walk.chosen is None else expected[walk.chosen]
        place = code.let(f"getelementptr inbounds i64, ptr %N, i64 {walk.slot}")
        count: Any = code.let(f"load i64, ptr {place}, align 8") if walk.varies else len(wanted)
        local = walk.columns[0] - (0 if walk.shared[0] else program.shared)
        lanes = 1 if walk.shared[0] else emitter.batch
        with code.loop(count) as i:
            right = Integers(code.over("float64"), code.table(wanted, i), 1).numbers()
            right = right.over(code.dtype)
            address = code.table(local, i)
            for lane in range(lanes):
                array = "%P" if walk.shared[0] else "%V"
                x = code.load(array, [(address, lanes), (None, lane)])
                infinite.set(infinite.get() + x._compare("une", right).choose(float("inf"), 0.0))
    return infinite.get()


# --- loops in time --------------------------------------------------------------------------------


def _loop(emitter: Emitter, number: int, checked: list[bool], flags: dict[int, Any]) -> None:
    """A loop in time: each iteration does a slice of each of its instructions."""
    loop = emitter.program.loops[number]
    if registers.is_small(emitter.program, loop):
        registers.forward(emitter, number, checked, flags)
        return
    emitter.flags = None
    for k in range(loop.first, loop.last):
        if emitter.program.instructions[k].products is not None and emitter.batch == 1:
            _transpose(emitter, k)
    turns = emitter.turns(number)
    with (
        _looking(emitter, range(loop.first, loop.last), flags),
        registers.inlining(emitter, loop),
        emitter.code.loop(turns) as emitter.counter,
    ):
        for k in range(loop.first, loop.last):
            emitter.flags = flags if checked[k] else None
            _instruction(emitter, k, emitter.program.instructions[k])
    emitter.counter = None


@contextmanager
def _looking(emitter: Emitter, numbers: range, flags: dict[int, Any]) -> Iterator[None]:
    """Look at the corners of a loop in time; after it, as the largest terms are known then."""
    corners = emitter.corners
    if corners is None:
        yield
        return
    found = [k for k in numbers if corners.pairs.get(k)]
    for k in found:
        corners.begin(emitter, k)
    yield
    emitter.counter = None
    for k in found:
        corners.refuse(emitter, k, flags)


def _ending(emitter: Emitter, k: int, instruction: Instruction) -> None:
    """Copy results of the last iteration of a loop, whose number is known at run time."""
    assert instruction.ends is not None
    walk = emitter.walks.ending(k)

    def body(offsets: list[Offset], strides: list[int], width: int) -> None:
        emitter.write("%V", offsets[0], *operands(emitter, walk, 1, offsets, strides, width))

    emitter.counter = emitter.last_turn(instruction.ends)
    emitter.elementwise(walk, (0, 1), body)
    emitter.counter = None


def _transpose(emitter: Emitter, k: int) -> None:
    """Before the loop, copy the matrices that all iterations multiply by, if that aligns lanes."""
    columns = columns_of(emitter.program.instructions[k], "products")
    for walk in emitter.walks.in_loop(k, "products", columns, sliced=True):
        made = emitter.walks.transposed(walk)
        if made is None:
            continue
        other, copying = made
        emitter.copies[walk.slot] = other

        def body(
            offsets: list[Offset], strides: list[int], width: int, copying: Walk = copying
        ) -> None:
            emitter.write("%V", offsets[0], *operands(emitter, copying, 1, offsets, strides, width))

        emitter.elementwise(copying, (0, 1), body)


def _walks(emitter: Emitter, k: int, what: str) -> list[Walk]:
    """The walks of an instruction; in a loop in time, those of one iteration."""
    columns = columns_of(emitter.program.instructions[k], what)
    if emitter.counter is None:
        return emitter.walks.of(k, what, columns)
    walks = emitter.walks.in_loop(k, what, columns, sliced=True)
    return [emitter.copies.get(walk.slot, walk) for walk in walks]


# --- instructions ---------------------------------------------------------------------------------


def _instruction(emitter: Emitter, k: int, instruction: Instruction) -> None:
    code = emitter.code
    if instruction.kind == GATHER:

        def copy(here: Offset, there: Offset, width: int, shared: bool) -> None:
            code.store("%V", here, code.load(VALUE[0] if shared else VALUE[1], there, width))

        each_gathered(emitter, k, instruction, copy)
    elif instruction.kind == SUM:
        _sum(emitter, k, instruction)
    elif instruction.kind == EXTREME:
        walk = one_walk(_walks(emitter, k, "plains"))
        if not emitter.stores(walk, 0, sums=False):
            raise NotLiftable("a maximum over irregular places")
        _watch_inputs(emitter, walk)
        emitter.extreme(walk, instruction.rule is ops.first_max)
        if emitter.corners is not None and k in emitter.corners.pairs:
            emitter.corners.ties.look(emitter, k, walk)
    else:
        _rule(emitter, k, instruction)


def _rule(emitter: Emitter, k: int, instruction: Instruction) -> None:
    """An operation of the op table, elementwise."""
    rule, code, corners = rule_of(instruction), emitter.code, emitter.corners
    if corners is None or k not in corners.pairs:
        corners = None
    sums = None if corners is None else corners.sums_of(emitter, k)
    bound = code.constant(BOUND, 1)  # in a loop in time the largest terms are known after it
    if corners is not None and sums is not None:
        corners.begin(emitter, k)
    elif corners is not None and emitter.counter is None:
        bound = corners.bound(emitter, k)

    def body(walk: Walk, offsets: list[Offset], strides: list[int], width: int) -> None:
        xs = operands(emitter, walk, 1, offsets, strides, width)
        y = as_vector(code, rule(*xs, *instruction.parameters), width)
        if corners is not None:
            distance = corners.distance(k, y, xs, is_first=sums is not None)
            if k in corners.nearest:
                corners.note(emitter, k, distance)
            if sums is None:
                y = (distance <= bound.splat(width)).choose(math.nan, y)
        emitter.write("%V", offsets[0], y)

    walks = _walks(emitter, k, "out")
    for walk in walks:
        emitter.elementwise(walk, range(len(walk.columns)), functools.partial(body, walk))
    if corners is not None and sums is not None:
        with code.when(corners.is_near(emitter, k)):
            corners.look_at_terms(emitter, k, walks, sums)


def plain_of(program: Program) -> npt.NDArray[np.bool_]:
    """Per address: whether it is an input, itself or through a gather."""
    plain = np.zeros(program.size, np.bool_)
    plain[: program.shared + len(program.private)] = True
    for instruction in program.instructions:
        if instruction.kind == GATHER:
            plain[instruction.out] = True
    return plain


def _watch_inputs(emitter: Emitter, walk: Walk) -> None:
    """Check the inputs that a maximum reads, itself or through a gather: it may hide a nan."""
    program, code = emitter.program, emitter.code
    plain = plain_of(program)
    found = distinct(walk.columns[1][plain[walk.columns[1]]])
    if not len(found) or emitter.flags is None:
        return
    shared = walk.shared[1]
    lanes = 1 if shared else emitter.batch
    local = found if shared else found - program.shared
    with code.loop(len(found)) as i, code.loop(lanes) as lane:
        address = code.table(local, i)
        emitter.watch(code.load("%P" if shared else "%V", [(address, lanes), (lane, 1)]))


def _sum(emitter: Emitter, k: int, instruction: Instruction) -> None:
    """Products first, then plain terms: few of them elementwise, many as a contraction."""
    products, plains = instruction.products, instruction.plains
    few = is_few(emitter, k, plains)
    joined = few and takes_product(emitter, instruction)
    if products is not None and not joined:
        _add_up(emitter, k, "products", (VALUE, VALUE, VALUE), started=False)
    if plains is None:
        return
    if not few:
        _add_up(emitter, k, "plains", (VALUE, VALUE), started=products is not None)
        return
    found = columns_of(instruction, "sums") if joined else None
    for walk in _walks(emitter, k, "out") if found is None else emitter.walks.of(k, "out", found):

        def body(at: list[Offset], strides: list[int], width: int, walk: Walk = walk) -> None:
            xs, total = operands(emitter, walk, 1, at, strides, width), None
            if joined:
                *xs, a, b = xs
                total = a * b
            elif products is not None:
                total = emitter.read("%V", at[0], strides[0], width)
            for x in xs:
                total = x if total is None else total + x
            assert total is not None
            emitter.write("%V", at[0], total)

        emitter.elementwise(walk, range(len(walk.columns)), body)


def _add_up(
    emitter: Emitter, k: int, what: str, arrays: Sequence[tuple[str, str]], started: bool
) -> None:
    """Sums of products or of terms. ``started``: the results hold something to add to.

    If not, one walk stores them if it comes to every result; else they are cleared first.
    """
    instruction = emitter.program.instructions[k]
    walks = _walks(emitter, k, what)
    (walk, *more) = walks
    count = instruction.count // walk.iterations
    # In a loop in time, the first of several walks may store if it comes to every result.
    whole = (not more or bool(walk.steps)) and len(distinct(walk.columns[0])) == count
    store = not started and whole and emitter.stores(walk, 0)
    if not store and not started:
        clear_results(emitter, "%V", k, count)
    for each in walks:
        emitter.contract(each, range(len(arrays)), arrays, store=store and each is walk)
