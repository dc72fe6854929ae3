"""A shorter call that is no prefix of a longer one, in the places of that one.

In: a ``RecordedCall`` and the program of a longer call. Out: a ``Smaller``: the shorter call's own
program, of which each instruction is done by one of the longer program's, over as many of the first
of its results. Unlike a ``Prefix`` it need not read what the first results of the longer call read:
machine code that has its columns as data (see ``rows``) walks these, whatever they are. Attention
of every position to all others is such a call, as is anything that reads the last position.
"""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np

from chainrule.compiler.lift.alignment import Prefix, RecordedCall, columns_of
from chainrule.compiler.lift.graph import GATHER, NotLiftable
from chainrule.compiler.lift.program import (
    Addresses,
    Instruction,
    Program,
    Terms,
    address_type,
    distinct,
)


class Smaller(Prefix):
    """A call's program in the places of a longer one's; NotLiftable if it does something else."""

    def __init__(self, call: RecordedCall, longer: Program, itself: bool = False) -> None:
        """``itself``: the longer program is the call's own."""
        if longer.loops or longer.steps is not None:
            raise NotLiftable("another length repeats something else")
        self.longer = longer
        self.program = program = longer if itself else call.program(like=longer)
        if program.loops or program.steps is not None:
            raise NotLiftable("another length repeats something else")
        self._pairs = _paired(program, longer)
        inputs = call.inputs_in(longer)
        self.to: Addresses = np.full(program.size, -1, address_type(longer.size))
        self.to[: program.inputs] = inputs
        self.to[program.shared + np.arange(len(program.private))] = inputs[program.private]
        for short, long in self._pairs:
            if short is None:
                continue
            if short.count > long.count:
                raise NotLiftable("a longer length does less of something")
            self.to[short.start : short.start + short.count] = long.out[: short.count]
        self._place_constants()
        self._check()
        if (self.to[program.address[call.returned]] < 0).any():
            raise NotLiftable("another length returns something else")

    def _place_constants(self) -> None:
        """Plain numbers go where the longer program has those of the same instruction."""
        program, longer = self.program, self.longer
        taken = np.zeros(program.shared, np.bool_)
        for short, long in self._pairs:
            if short is None or short.number is None or long.number is None:
                continue
            mine, theirs = distinct(short.number), distinct(long.number)
            if len(mine) > len(theirs):
                raise NotLiftable("a longer length has fewer plain numbers")
            self.to[mine] = theirs[: len(mine)]
            taken[mine] = True
        rest = np.flatnonzero(~taken[program.inputs :])  # terms and operands: they come first
        if len(rest) and rest[-1] >= longer.shared - longer.inputs:
            raise NotLiftable("a longer length has fewer plain numbers")
        self.to[program.inputs + rest] = longer.inputs + rest
        placed = self.to[program.inputs : program.shared]
        if len(np.unique(placed)) != len(placed):
            raise NotLiftable("another length has other plain numbers")

    def _check(self) -> None:
        """Everything is computed before it is read, in the order of the longer program."""
        program = self.program
        made = np.full(program.size, -1, np.int64)
        for k, (short, _) in enumerate(self._pairs):
            if short is not None:
                made[short.out] = k
        for k, (short, long) in enumerate(self._pairs):
            if short is None:
                continue
            if short.reordered:
                raise NotLiftable("another length does it in another order")
            if long.is_exact and not short.is_exact:
                raise NotLiftable("another length compares other numbers")
            if any((made[column] >= k).any() for column in short.reads if short.kind != GATHER):
                raise NotLiftable("another length has another order")
            if any((self.to[column] < 0).any() for column in short.reads):
                raise NotLiftable("another length reads something else")

    def walks(self) -> set[tuple[int, str]]:
        """All walks: any of them may be another one; "each" as in ``varying``."""
        return set(self.points()) | {(k, what) for k, what in self.varying() if what == "each"}

    @property
    def shorter(self) -> list[Instruction | None]:
        """For each instruction of the longer program, that of this one, or None."""
        return [short for short, _ in self._pairs]

    @functools.cached_property
    def instructions(self) -> list[Instruction | None]:
        """Those of the longer program as they are here, with addresses of that one."""
        return [None if short is None else _moved(short, self.to) for short in self.shorter]

    def placed(self, to: Addresses) -> list[Instruction | None]:
        """The same with other addresses: those at which machine code has these."""
        return [None if x is None else _moved(x, to) for x in self.instructions]


def _moved(instruction: Instruction, to: Addresses) -> Instruction:
    def terms(some: Terms | None) -> Terms | None:
        if some is None:
            return None
        return replace(some, owners=to[some.owners], columns=tuple([to[c] for c in some.columns]))

    return replace(
        instruction,
        start=int(to[instruction.start]),
        operands=[to[c] for c in instruction.operands],
        number=None if instruction.number is None else to[instruction.number],
        products=terms(instruction.products),
        plains=terms(instruction.plains),
        scaled=terms(instruction.scaled),
        candidates=None if instruction.candidates is None else to[instruction.candidates],
    )


def _paired(program: Program, longer: Program) -> list[tuple[Instruction | None, Instruction]]:
    """Each instruction of the longer program, and that which does the same here, or None.

    Sums whose number of terms is part of what they are have another one here, which may be that of
    another sum there. Where there are as many of them, they are the same in the order in which
    they were recorded.
    """
    here, there = _by_shape(program), _by_shape(longer)
    ordered = {
        id(long): short
        for shape, found in there.items()
        if len(found) == len(here.get(shape, ()))
        for short, long in zip(here[shape], found, strict=True)
    }
    taken = set(map(id, ordered.values()))
    rest = {i.key: i for i in program.instructions if id(i) not in taken}
    pairs = [(ordered.get(id(x)) or rest.pop(x.key, None), x) for x in longer.instructions]
    shapes: dict[int, list[int]] = {}
    for k, (short, long) in enumerate(pairs):
        if short is None:
            shapes.setdefault(long.key[0], []).append(k)
    for short in rest.values():
        waiting = shapes.get(short.key[0], [])
        if not waiting:
            raise NotLiftable("another length does other operations")
        k = waiting.pop(0)
        pairs[k] = short, pairs[k][1]
    for short, long in pairs:
        if short is not None and not _is_alike(short, long):
            raise NotLiftable("another length does other operations")
    return pairs


def _by_shape(program: Program) -> dict[int, list[Instruction]]:
    """The instructions of each shape, in the order in which their first results were recorded."""
    recorded = np.flatnonzero(program.address >= 0)[::-1]
    first = np.full(program.size, len(program.address))
    first[program.address[recorded]] = recorded
    found: dict[int, list[Instruction]] = {}
    for i in program.instructions:
        found.setdefault(i.key[0], []).append(i)
    for some in found.values():
        some.sort(key=lambda i: int(first[i.out].min()))
    return found


def _is_alike(short: Instruction, long: Instruction) -> bool:
    """Whether two instructions do the same, each as often as it does."""
    same = (short.kind, short.rule, short.parameters) == (long.kind, long.rule, long.parameters)
    columns = [what for what, _ in columns_of(short)] == [what for what, _ in columns_of(long)]
    numbers = (short.number is None) == (long.number is None)
    scaled = short.scaled is None and long.scaled is None
    return same and columns and numbers and scaled and short.loop is None and long.loop is None
