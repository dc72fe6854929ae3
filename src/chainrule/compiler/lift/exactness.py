"""Which instructions read numbers that have the very bits of eager's.

In: an array program. Out: the same, with a mark on each such instruction. Machine code adds in its
own order and has its own elementary functions, so other numbers differ in their last bits. That
matters to a comparison: near a tie it may go the other way. One that reads inputs only, or what was
selected from them, needs no such care.
"""

from __future__ import annotations

import numpy as np

from chainrule.compiler.lift.graph import EXTREME, GATHER, RULE
from chainrule.compiler.lift.program import Instruction, Program
from chainrule.core import ops

COMPARISONS = (ops.less, ops.less_equal, ops.equal)
_SELECTING = (*COMPARISONS, ops.detach, ops.select, ops.first_max, ops.first_min, ops.abs)


def mark_exact(program: Program) -> None:
    """Mark the instructions whose operands are inputs, constants, or selected from such.

    An instruction may read what a later one computed in an earlier step. So all are taken to be
    exact at first, and those that are not, and what reads them, are found round after round: what
    is left reads nothing else, back to the inputs.
    """
    exact = np.ones(program.size, np.bool_)
    is_settled = False
    while not is_settled:
        is_settled = True
        for instruction in program.instructions:
            instruction.is_exact = all(bool(exact[column].all()) for column in instruction.reads)
            found = _stays_exact(instruction) or _turns_sign(program, instruction)
            is_settled &= found or not exact[instruction.out].any()
            exact[instruction.out] = found


def _turns_sign(program: Program, instruction: Instruction) -> bool:
    """Whether it multiplies exact numbers by 1 or -1."""
    if instruction.kind != RULE or instruction.rule is not ops.mul or not instruction.is_exact:
        return False
    first, last = program.inputs, program.inputs + len(program.constants)
    for column in instruction.columns:
        if len(column) and column.min() >= first and column.max() < last:
            return bool((np.abs(program.constants[column - first]) == 1.0).all())
    return False


def _stays_exact(instruction: Instruction) -> bool:
    """Whether its results have eager's bits, if its operands have them.

    The truth of a comparison is 0 or 1 in any case, or not a number: then the tape is asked.
    """
    is_rule = instruction.kind == RULE
    if is_rule and instruction.rule in COMPARISONS:
        return True
    selects = instruction.kind in (GATHER, EXTREME) or (is_rule and instruction.rule in _SELECTING)
    return instruction.is_exact and selects
