"""Where machine code has the numbers of a program, and in which order.

In: a ``Program`` as it was lifted. Out: a ``Placement``: the same program over other addresses, and
where everything went. Results begin on a whole vector, so that rows of them do not lie across cache
lines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from chainrule.compiler.lift.padding import moved
from chainrule.compiler.lift.program import Addresses, Program

LINE = 16  # numbers that every instruction's results begin at a multiple of
FEWEST = 16  # results that are worth it


@dataclass(frozen=True, eq=False)
class Placement:
    """A program for machine code, and where it has what the lifted program has elsewhere."""

    program: Program
    to: Addresses  # the place of each address of the lifted program

    def after(self, to: Addresses) -> Addresses:
        """Where addresses go that go to these of the lifted program; -1 stays -1."""
        return np.where(to >= 0, self.to[to], -1)


def placed(program: Program) -> Placement:
    """The program as machine code computes it."""
    if program.loops or program.steps is not None:
        return Placement(program, np.arange(program.size))
    to = np.arange(program.size)
    first = program.shared + len(program.private)
    at = len(program.private)
    for instruction in program.instructions:
        if instruction.count >= FEWEST:
            at = -(-at // LINE) * LINE
        to[instruction.out] = program.shared + at + np.arange(instruction.count)
        at += instruction.count
    made = moved(program, to)
    return Placement(replace(made, size=max(program.shared + at, first)), to)
