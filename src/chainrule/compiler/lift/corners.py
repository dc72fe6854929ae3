"""Where the derivative of an operation jumps: its corners, such as 0 of ``relu`` and of ``abs``.

In: a row of the op table. Out: the pairs of numbers that its partials compare. Near a tie of such a
pair machine code, which rounds differently, could take the slope of the other side.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.exactness import CHOOSING, COMPARISONS, ROUNDS, Truths, rounds_once
from chainrule.compiler.lift.graph import GATHER, RULE, SUM
from chainrule.compiler.lift.nearness import NEAR
from chainrule.compiler.lift.program import Instruction, Program
from chainrule.core import ops
from chainrule.core.ops import Op

RESULT = -1  # in the place of an operand
FLOOR = 10.0  # a smaller size counts as this: what came before the terms is not looked at
BOUND = NEAR * FLOOR  # so near a corner, machine code is never asked


@dataclass(frozen=True)
class Side:
    """What is compared: an operand, the result, a parameter or a plain number."""

    operand: int | None = None
    parameter: int | None = None
    number: float = 0.0


Pair = tuple[Side, Side]


@functools.cache
def corners(row: Op) -> tuple[Pair, ...]:
    """The pairs that the partials of a row compare, of which one is differentiated."""
    if len(row.differentiable) == 0:
        return ()
    noted: list[Pair] = []
    y, *xs = [_Symbol(noted, Side(operand=k)) for k in range(RESULT, row.arity)]
    parameters = [_Symbol(noted, Side(parameter=k)) for k in range(len(row.parameters))]
    for k in row.differentiable:
        try:
            row.partials[k](y, *xs, *parameters)
        except Exception:  # a rule of the user's that is no formula: nothing is known of it
            return ()
    moving = {RESULT, *row.differentiable}
    found = {frozenset(pair): pair for pair in noted if any(x.operand in moving for x in pair)}
    return tuple(found.values())


@dataclass(eq=False)
class _Symbol:
    """A number of a formula; ``side``: what it is, None where it is computed."""

    noted: list[Pair]
    side: Side | None = None

    def _compare(self, other: Any) -> _Symbol:
        right = other.side if isinstance(other, _Symbol) else Side(number=float(other))
        if self.side is not None and right is not None:
            self.noted.append((self.side, right))
        return _Symbol(self.noted)

    __lt__ = __le__ = __gt__ = __ge__ = _compare

    def _computed(self, *_: Any) -> _Symbol:
        return _Symbol(self.noted)

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _computed
    __truediv__ = __rtruediv__ = __neg__ = _computed

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> _Symbol:
        (first, *_) = [x for x in (*operands, *parameters) if isinstance(x, _Symbol)]
        return _Symbol(first.noted)


# --- which zeros are zeros in eager mode too ------------------------------------------------------


def sure_zeros(program: Program, watched: Container[int]) -> npt.NDArray[np.bool_]:
    """Per address: whether it is zero in eager mode wherever it is zero in machine code.

    So are inputs, what chooses among such or multiplies them, and what is 0 on one side of a corner
    of a ``watched`` instruction. A sum may be zero because its terms cancel but for rounding. As in
    ``mark_exact``, all are sure at first.
    """
    sure, rounds, is_settled = np.ones(program.size, np.bool_), 0, False
    while not is_settled:
        is_settled, rounds = True, rounds + 1
        for k, instruction in enumerate(program.instructions):
            out = slice(instruction.start, instruction.start + instruction.count)
            is_decided = k in watched and instruction.rule in _ZERO_ON_ONE_SIDE
            found = sure[out] & (is_decided or _results(instruction, sure))
            if rounds > ROUNDS:
                found &= found.all()
            is_settled &= bool((found == sure[out]).all())
            sure[out] = found
    return sure


_ZERO_ON_ONE_SIDE = (ops.relu, ops.leaky_relu, ops.abs)


def _results(instruction: Instruction, sure: Truths) -> Truths | bool:
    """Which results of an instruction are sure where its operands are."""
    kind, rule = instruction.kind, instruction.rule
    once = kind == SUM and rounds_once(instruction)
    if rule in COMPARISONS or (instruction.is_exact and (kind != SUM or once)):
        return True
    if kind == GATHER:
        return all(bool(sure[column].all()) for column in instruction.reads)
    if kind == RULE:
        chooses = rule is ops.mul or rule in CHOOSING
        found: Truths = np.logical_and.reduce([sure[column] for column in instruction.columns])
        return found & chooses
    if kind == SUM and not (once and instruction.sums[0].each == 1):
        return False
    found = np.ones(instruction.count, np.bool_)
    for terms in instruction.sums:
        for column in terms.columns:
            found[terms.owners[~sure[column]] - instruction.start] = False
    return found
