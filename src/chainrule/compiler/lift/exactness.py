"""Which instructions read numbers that have the very bits of eager's.

In: an array program. Out: the same, with a mark on each such instruction. Machine code adds in its
own order and has its own elementary functions, so other numbers differ in their last bits. That
matters to a comparison: near a tie it may go the other way. One that reads inputs only, or what was
selected from them, needs no such care.
"""

from __future__ import annotations

import numpy as np

from chainrule.compiler.lift.graph import EXTREME, GATHER, RULE
from chainrule.compiler.lift.program import Program
from chainrule.core import ops

COMPARISONS = (ops.less, ops.less_equal, ops.equal)
_SELECTING = (*COMPARISONS, ops.detach, ops.select, ops.first_max, ops.first_min, ops.abs)


def mark_exact(program: Program) -> None:
    """Mark the instructions whose operands are inputs, constants, or selected from such."""
    exact = np.zeros(program.size, np.bool_)
    exact[: program.shared + len(program.private)] = True
    for instruction in program.instructions:
        instruction.is_exact = all(bool(exact[column].all()) for column in instruction.reads)
        selects = instruction.kind in (GATHER, EXTREME)
        selects = selects or (instruction.kind == RULE and instruction.rule in _SELECTING)
        exact[instruction.out] = instruction.is_exact and selects
