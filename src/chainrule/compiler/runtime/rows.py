"""What machine code reads of one call where the rows of its walks are data.

In: a call's program in the places of a longer one's, and the code of that. Out: ``Rows``: the
numbers in N, for each kernel of the code; NotLiftable where the call cannot use it. The code was
made from the columns of two other calls: all that it takes from these is checked for this one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from chainrule.compiler.codegen import emit
from chainrule.compiler.codegen.backward import differentiates, is_read, reached
from chainrule.compiler.codegen.forward import plain_of
from chainrule.compiler.codegen.instructions import columns_of
from chainrule.compiler.codegen.row_tables import kinds_of
from chainrule.compiler.codegen.walks import Walk
from chainrule.compiler.lift.graph import EXTREME, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Program, distinct
from chainrule.compiler.lift.smaller import Smaller

Key = tuple[int, str, tuple[bool, ...]]  # of a walk: an instruction, which points, which are shared


class _Table(NamedTuple):
    rows: Addresses
    covers: bool  # they come to every result


class Rows:
    """The rows of one call."""

    def __init__(
        self,
        machine: emit.Machine,
        program: Program,
        roots: tuple[int, int],
        call: Smaller,
        to: Addresses,
    ) -> None:
        """``roots``: the results, of the call's own program and of the code's; ``to``: where that
        has what is in the longer program.
        """
        instructions = call.placed(to)
        self._counts = np.array([0 if x is None else x.count for x in instructions], np.int64)
        self._guards = len(call.program.guards)
        self._tables: dict[Key, _Table] = {}
        _check(call, program, roots)
        points: dict[tuple[int, str], int] = {}
        for walk in machine.walks:
            if walk.rows is None:
                continue
            key, short = (walk.instruction, walk.what), instructions[walk.instruction]
            columns = _columns(short, walk)
            here = kinds_of(columns, program.shared) == walk.rows.kind
            points[key] = points.get(key, len(here)) - int(here.sum())
            mine = [column[here] for column in columns]
            _check_walk(program, walk, mine)
            covers = len(distinct(mine[0])) == self._counts[walk.instruction]
            self._tables[_key(walk)] = _Table(walk.rows.rows(columns), covers)
        if any(points.values()):
            raise NotLiftable("another length reads something else")

    @property
    def nbytes(self) -> int:
        """Its memory."""
        return self._counts.nbytes + sum(table.rows.nbytes for table in self._tables.values())

    def numbers(self, machine: emit.Machine) -> npt.NDArray[np.int64] | None:
        """N of a kernel; None where it cannot do what others can."""
        made = np.zeros(max(1, machine.numbers), np.int64)
        made[: len(self._counts)] = self._counts
        for walk in machine.walks:
            if walk.rows is None:
                is_guard = walk.instruction == len(self._counts)
                count = walk.count(self._guards) if is_guard else self._counts[walk.instruction]
                assert count is not None
                made[walk.slot] = count
                continue
            table = self._tables.get(_key(walk))
            if table is None or not walk.rows.has_room(table.rows):
                return None
            if 0 in walk.rows.once and not table.covers:
                return None
            made[walk.slot] = len(table.rows)
            flat = table.rows.ravel()
            made[walk.slot + 1 : walk.slot + 1 + len(flat)] = flat
        return made


def _key(walk: Walk) -> Key:
    return walk.instruction, walk.what, tuple(walk.shared)


def _columns(short: Instruction | None, walk: Walk) -> list[Addresses]:
    """The columns that a call walks; none where it lacks the instruction."""
    if short is None:
        return [np.zeros(0, np.int64) for _ in walk.columns]
    return columns_of(short, walk.what)


def _check(call: Smaller, program: Program, roots: tuple[int, int]) -> None:
    """What the code does with an instruction is at least what this call needs."""
    here, there = (
        (reached(x, root), dict(zip(map(id, x.instructions), emit.watched(x), strict=True)))
        for x, root in zip((call.program, program), roots, strict=True)
    )
    for short, long in zip(call.shorter, program.instructions, strict=True):
        if short is None:
            continue
        if differentiates(short, here[0]) and not differentiates(long, there[0]):
            raise NotLiftable("another length differentiates something else")
        if here[1][id(short)] and not there[1][id(long)]:
            raise NotLiftable("another length has to look at something else")


def _check_walk(program: Program, walk: Walk, columns: list[Addresses]) -> None:
    """The same of its points."""
    for mine, others in zip(columns[1:], walk.columns[1:], strict=True):
        if is_read(program, mine) and not is_read(program, others):
            raise NotLiftable("another length differentiates something else")
    if program.instructions[walk.instruction].kind == EXTREME and len(columns[1]):
        plain = plain_of(program)
        mine, others = (distinct(np.sort(c[plain[c]])) for c in (columns[1], walk.columns[1]))
        if not np.isin(mine, others).all():
            raise NotLiftable("another length has the largest of something else")
