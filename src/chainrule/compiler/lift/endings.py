"""Copies of what a loop in time has in its last iterations.

In: a ``Program`` with loops in time. Out: the same, with an instruction after each loop that copies
the results of one of its last iterations which later instructions read. These read the copies. How
many iterations there are is then in the loop and in its copies alone, so that a call with fewer of
them is a prefix of the program: where the state at the end is, machine code finds out at run time.
A sum over all iterations has what is added after them in front, if sums may be reordered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from chainrule.compiler.lift.graph import SUM
from chainrule.compiler.lift.program import Addresses, Instruction, Program, Terms

ENDING = 1 << 90  # above any shape; added to that of what is copied, once more the earlier it is
LATEST = 3  # iterations that are copied: the last, the one before it, and so on


def copied_by(ending: Instruction, program: Program) -> tuple[int, int]:
    """Whose results such an instruction copies, and how many iterations before the last."""
    assert ending.ends is not None
    assert ending.plains is not None
    loop = program.loops[ending.ends]
    first = int(ending.plains.columns[0][0])
    for k in range(loop.first, loop.last):
        source = program.instructions[k]
        if source.start <= first < source.start + source.count:
            return k, loop.count - 1 - (first - source.start) // ending.count
    raise AssertionError("it copies nothing of its loop")


def with_endings(program: Program, returned: Sequence[int], sorts: bool) -> Program:
    """The program with copies; ``returned``: recorded instructions that are wanted, too.

    ``sorts``: sums may be reordered.
    """
    made = _Ended(program)
    for number in range(len(program.loops)):
        made.end(number, returned)
    ended = made.program()
    if not sorts:
        return ended
    starts = np.sort([i.start for i in ended.instructions])
    instructions = [_sorted(i, starts) for i in ended.instructions]
    return replace(ended, instructions=instructions, sorts=True)


def _sorted(instruction: Instruction, starts: Addresses) -> Instruction:
    """A single sum with those terms first of which there are few, each kind from one instruction.

    ``starts``: where the results of instructions begin, in order.
    """
    if instruction.kind != SUM or instruction.count != 1:
        return instruction
    made = replace(instruction)
    for what in ("products", "plains", "scaled"):
        terms: Terms | None = getattr(instruction, what)
        if terms is not None:
            places = np.stack([np.searchsorted(starts, c, side="right") for c in terms.columns])
            _, kind, counts = np.unique(places, axis=1, return_inverse=True, return_counts=True)
            order = np.argsort(counts[kind.ravel()], kind="stable")
            setattr(made, what, replace(terms, columns=tuple([c[order] for c in terms.columns])))
    return made


class _Ended:
    def __init__(self, program: Program) -> None:
        self.before = program
        self.size, self.address = program.size, program.address.copy()
        self.instructions = list(program.instructions)
        self.copies: list[list[Instruction]] = [[] for _ in program.loops]

    def end(self, number: int, returned: Sequence[int]) -> None:
        """Copy the last iterations of a loop, for columns that read nothing else of it."""
        loop = self.before.loops[number]
        for source in self.before.instructions[loop.first : loop.last]:
            each = source.count // loop.count
            for ago in range(min(LATEST, loop.count)):
                copied = source.out[(loop.count - 1 - ago) * each :][:each]
                if self._reads_copy(loop.last, _Copy(source, copied, self.size), returned):
                    key = source.key[0] + ENDING * (1 + ago), *source.key[1:]
                    copy = Instruction(key, SUM, self.size, each, ends=number)
                    copy.plains = Terms(copy.out, (copied,), 1)
                    self.copies[number].append(copy)
                    self.size += each

    def _reads_copy(self, after: int, copy: _Copy, returned: Sequence[int]) -> bool:
        """Let what comes after the loop read a copy; whether anything does."""
        for j in range(after, len(self.instructions)):
            self.instructions[j] = copy.read_by(self.instructions[j])
        self.address[returned] = copy.instead_of(self.address[returned])
        return copy.used

    def program(self) -> Program:
        """With the copies after their loops."""
        made, at, loops = list[Instruction](), 0, []
        for loop, copies in zip(self.before.loops, self.copies, strict=True):
            shift = len(made) - at
            loops.append(replace(loop, first=loop.first + shift, last=loop.last + shift))
            made += [*self.instructions[at : loop.last], *copies]
            at = loop.last
        return replace(
            self.before,
            size=self.size,
            address=self.address,
            instructions=made + self.instructions[at:],
            loops=tuple(loops),
            ended=True,
        )


class _Copy:
    """The results of an instruction in one iteration of its loop, and their copy."""

    def __init__(self, source: Instruction, copied: Addresses, to: int) -> None:
        self.start, self.stop = source.start, source.start + source.count
        self.first, self.last, self.to = int(copied[0]), int(copied[-1]), to
        self.used = False

    def instead_of(self, column: Addresses) -> Addresses:
        """A column that reads the copies of what it reads in no other iteration."""
        here = (column >= self.first) & (column <= self.last)
        if not here.any():
            return column
        others = (column >= self.start) & (column < self.stop) & ~here
        slots = (column - self.start) % (self.last + 1 - self.first)
        here &= ~np.isin(slots, slots[others])
        if not here.any():
            return column
        self.used = True
        return np.where(here, column - self.first + self.to, column)

    def read_by(self, instruction: Instruction) -> Instruction:
        """The instruction with such columns."""
        columns = [self.instead_of(c) for c in instruction.operands]
        made = replace(instruction, operands=columns)
        for what in ("products", "plains", "scaled"):
            terms: Terms | None = getattr(instruction, what)
            if terms is not None:
                read = tuple([self.instead_of(c) for c in terms.columns])
                setattr(made, what, replace(terms, columns=read))
        return made
