"""Which instructions read numbers that have the very bits of eager's.

In: an array program. Out: the same, with a mark on each such instruction. Machine code adds in its
own order and has its own elementary functions, so other numbers differ in their last bits. That
matters to a comparison: near a tie it may go the other way. One that reads inputs only, or what was
selected from them, or rounded once from them, needs no such care.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.graph import EXTREME, GATHER, RULE
from chainrule.compiler.lift.program import Instruction, Program
from chainrule.core import ops

Truths = npt.NDArray[np.bool_]
COMPARISONS = (ops.less, ops.less_equal, ops.equal)
ROUNDS = 64  # in which single numbers are told apart
CHOOSING = (
    ops.detach,
    ops.select,
    ops.first_max,
    ops.first_min,
    ops.maximum,
    ops.minimum,
    ops.clip,
)
#: the others round once, as eager does
_ALIKE = (*COMPARISONS, *CHOOSING, ops.abs, ops.relu, ops.leaky_relu, ops.add, ops.mul)


def mark_exact(program: Program) -> None:
    """Mark the instructions whose operands are inputs, constants, or computed alike from such.

    An instruction may read what a later one computed in an earlier step. So all numbers are taken
    to be exact at first, and those that are not, and what reads them, are found round after round:
    what is left reads nothing else, back to the inputs. Where that takes many rounds, as in a loop
    in time, one number that is not exact stands for all of its instruction.
    """
    exact, rounds, is_settled = np.ones(program.size, np.bool_), 0, False
    while not is_settled:
        is_settled, rounds = True, rounds + 1
        for instruction in program.instructions:
            instruction.is_exact = all(bool(exact[column].all()) for column in instruction.reads)
            out = slice(instruction.start, instruction.start + instruction.count)
            found = exact[out] & _results(program, instruction, exact)
            if rounds > ROUNDS:
                found &= found.all()
            is_settled &= bool((found == exact[out]).all())
            exact[out] = found


def _results(program: Program, instruction: Instruction, exact: Truths) -> Truths | bool:
    """Which of its results have eager's bits; ``exact``: which numbers do."""
    rule = instruction.rule
    if instruction.kind == RULE and rule in COMPARISONS:
        return True  # 0 or 1 in any case, or not a number: then the tape is asked
    if instruction.kind == RULE and rule in _ALIKE:
        found: Truths = np.logical_and.reduce([exact[column] for column in instruction.columns])
        return found
    return instruction.is_exact and (
        instruction.kind in (GATHER, EXTREME) or rounds_once(instruction)
    )


def rounds_once(instruction: Instruction) -> bool:
    """Whether there is nothing to reorder or to fuse in its sums: one product, or two terms."""
    if len(instruction.sums) != 1 or instruction.scaled is not None:
        return False
    (terms,) = instruction.sums
    return terms.each == 1 or (terms.each == 2 and terms is instruction.plains)
