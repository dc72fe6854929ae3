"""Neighbouring elementwise instructions as one loop.

In: the instructions of a program, in the order in which a pass goes through them. Out: those that
one loop does, because each result reads only the numbers of its own point: what one of them
computes stays in a register for the next, which need not wait until it was stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.codegen.contraction import Emitter
from chainrule.compiler.codegen.instructions import Machine, columns_of, is_few
from chainrule.compiler.codegen.ir import Offset, Vector
from chainrule.compiler.lift.graph import RULE, SUM
from chainrule.compiler.lift.program import Addresses, Instruction

MOST_MEMBERS = 8  # of one loop: more of them would not keep their numbers in registers


@dataclass(frozen=True, eq=False)
class Member:
    """An instruction that is done along with others, and its columns: results, then operands."""

    number: int
    instruction: Instruction
    columns: list[Addresses]


def _member(emitter: Emitter, k: int, made: Machine) -> Member | None:
    """An instruction as a member of a loop; None where it is not elementwise."""
    instruction = emitter.program.instructions[k]
    if instruction.loop is not None or k in made.optional or emitter.batch > 1:
        return None
    if instruction.kind == SUM:
        if instruction.products is not None or not is_few(emitter, k, instruction.plains):
            return None
    elif instruction.kind != RULE:
        return None
    columns = columns_of(instruction, "out")
    shared = emitter.program.shared
    if not all(_is_run(c) or _is_single(c) for c in columns):
        return None
    if any(int(c[0]) < shared <= int(c[-1]) for c in columns):
        return None
    if not all(_fits(a, b) for k, a in enumerate(columns) for b in columns[:k]):
        return None
    return Member(k, instruction, columns)


def _goes_with(emitter: Emitter, some: Sequence[Member], new: Member) -> bool:
    """Whether a member may follow others in their loop: what it shares with them is in order."""
    varying = emitter.walks.varying
    first, count = some[0], some[0].instruction.count
    if new.instruction.count != count or len(some) == MOST_MEMBERS:
        return False
    varies = (new.number, "out") in varying
    if varies != ((first.number, "out") in varying):
        return False
    # Two lists may be as long in the longest call alone; a result is there with what it reads.
    if varies and not any(_reads(one, new) or _reads(new, one) for one in some):
        return False
    return all(_fits(a, b) for one in some for a in one.columns for b in new.columns)


def together(
    emitter: Emitter,
    numbers: Iterable[int],
    made: Machine,
    allowed: Callable[[Member], bool] = lambda member: True,
) -> list[int | list[Member]]:
    """Instructions in order: single ones, and the members of one loop."""
    found: list[int | list[Member]] = []
    group: list[Member] = []
    for k in numbers:
        new = _member(emitter, k, made)
        if new is not None and not allowed(new):
            new = None
        if new is not None and group and _goes_with(emitter, group, new):
            group.append(new)
            found[-1] = group
            continue
        found.append(k)
        group = [] if new is None else [new]
    return found


def loop(
    emitter: Emitter,
    members: Sequence[Member],
    made: Machine,
    body: Callable[[Member, list[Offset], list[int], int, Registers], None],
) -> None:
    """One loop over the points of all members; ``body`` does a vector of one of them."""
    made.together.append([m.number for m in members])
    columns = [c for m in members for c in m.columns]
    walk = emitter.walks.over(members[0].number, columns)

    def bodies(offsets: list[Offset], strides: list[int], width: int) -> None:
        registers, at = Registers(emitter), 0
        for m in members:
            here = slice(at, at + len(m.columns))
            body(m, offsets[here], strides[here], width, registers)
            at += len(m.columns)

    emitter.elementwise(walk, range(len(columns)), bodies)


class Registers:
    """The vectors of one point that were computed or read, by array and where they begin."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._known: dict[tuple[str, int], Vector] = {}

    def get(
        self, arrays: tuple[str, str], column: Addresses, offset: Offset, stride: int, width: int
    ) -> Vector:
        """A column's numbers at this point."""
        array = arrays[0] if column[0] < self._emitter.program.shared else arrays[1]
        key = (array, int(column[0]))
        if key not in self._known:
            self._known[key] = self._emitter.read(array, offset, stride, width)
        return self._known[key]

    def put(
        self, arrays: tuple[str, str], column: Addresses, offset: Offset, value: Vector
    ) -> None:
        """Store a column's numbers at this point."""
        array = arrays[0] if column[0] < self._emitter.program.shared else arrays[1]
        self._known[array, int(column[0])] = value
        self._emitter.write(array, offset, value)


def _reads(one: Member, other: Member) -> bool:
    """Whether one member reads the results of another."""
    return any(int(c[0]) == other.instruction.start for c in one.columns[1:])


def _is_run(column: Addresses) -> bool:
    return bool((np.diff(column) == 1).all())


def _is_single(column: Addresses) -> bool:
    return bool((column == column[0]).all())


def _fits(a: Addresses, b: Addresses) -> bool:
    """Whether two columns are the same, or have nothing in common."""
    apart = a[-1] < b[0] or b[-1] < a[0]
    return bool(apart) or (a[0] == b[0] and a[-1] == b[-1])
