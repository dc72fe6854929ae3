"""The array program in numpy: the meaning of a ``Program``, and the oracle of its machine code.

In: a program, the inputs and the addresses its gathers select. Out: every number, and the
derivative of one of them with respect to the inputs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule import ops
from chainrule.compiler.group import Addresses, Instruction, Program

Floats = npt.NDArray[np.float64]
STOPS = frozenset((ops.detach, ops.divide, ops.less, ops.less_equal, ops.equal))


def run(program: Program, inputs: Floats, gathered: Addresses) -> Floats:
    """Every number of the program; ``gathered`` are the addresses of its gathers, in order."""
    arena = np.zeros(program.size)
    arena[: program.inputs] = inputs
    arena[program.inputs : program.first_result] = program.constants
    with np.errstate(all="ignore"):
        for instruction in program.instructions:
            arena[instruction.start : instruction.start + instruction.count] = _forward(
                instruction, arena, gathered
            )
    return arena


def _columns(instruction: Instruction, arena: Floats) -> list[Any]:
    return [x if isinstance(x, float) else arena[x] for x in instruction.operands]


def _forward(instruction: Instruction, arena: Floats, gathered: Addresses) -> Any:
    rule, count = instruction.rule, instruction.count
    if instruction.kind == "gather":
        return arena[gathered[instruction.places]]
    if instruction.kind == "sum":
        total = np.zeros(count)
        if instruction.products is not None:
            a, b = instruction.products.columns
            total += np.bincount(_owners(instruction.products.counts), arena[a] * arena[b], count)
        if instruction.plains is not None:
            column = instruction.plains.columns[0]
            total += np.bincount(_owners(instruction.plains.counts), arena[column], count)
        return total
    assert rule is not None
    if instruction.kind == "extreme":
        assert instruction.plains is not None
        starts = np.cumsum(instruction.plains.counts) - instruction.plains.counts
        best = np.maximum if rule is ops.first_max else np.minimum
        return best.reduceat(arena[instruction.plains.columns[0]], starts)
    result = rule.forward(*_columns(instruction, arena), *instruction.parameters)
    return np.broadcast_to(result, count)


def _owners(counts: Addresses) -> Addresses:
    """Which sum each term belongs to."""
    return np.repeat(np.arange(len(counts)), counts)


def sweep(program: Program, arena: Floats, gathered: Addresses, root: int) -> Floats:
    """The derivative of the number at address ``root`` with respect to every number."""
    adjoint = np.zeros(program.size)
    adjoint[root] = 1.0
    with np.errstate(all="ignore"):
        for instruction in reversed(program.instructions):
            _backward(instruction, arena, adjoint, gathered)
    return adjoint


def _add(adjoint: Floats, column: Addresses, slope: Any, g: Floats) -> None:
    """``adjoint[column] += slope * g``; a zero on either side passes nothing on."""
    share = np.where((slope == 0.0) | (g == 0.0), 0.0, slope * g)
    np.add.at(adjoint, column, share)


def _backward(
    instruction: Instruction, arena: Floats, adjoint: Floats, gathered: Addresses
) -> None:
    g = adjoint[instruction.start : instruction.start + instruction.count]
    y = arena[instruction.start : instruction.start + instruction.count]
    if instruction.kind == "gather":
        np.add.at(adjoint, gathered[instruction.places], g)
        return
    if instruction.kind == "sum":
        if instruction.products is not None:
            a, b = instruction.products.columns
            each = g[_owners(instruction.products.counts)]
            _add(adjoint, a, arena[b], each)
            _add(adjoint, b, arena[a], each)
        if instruction.plains is not None:
            column = instruction.plains.columns[0]
            _add(adjoint, column, np.ones(len(column)), g[_owners(instruction.plains.counts)])
        return
    rule = instruction.rule
    assert rule is not None
    if instruction.kind == "extreme":
        assert instruction.plains is not None
        column, counts = instruction.plains.columns[0], instruction.plains.counts
        chosen = arena[column] == y[_owners(counts)]
        first = chosen & (
            np.cumsum(chosen)
            - np.repeat(
                np.cumsum(np.add.reduceat(chosen, np.cumsum(counts) - counts))
                - np.add.reduceat(chosen, np.cumsum(counts) - counts),
                counts,
            )
            == 1
        )
        _add(adjoint, column[first], 1.0, g[_owners(counts)][first])
        return
    if rule in STOPS:
        return
    values = _columns(instruction, arena)
    for x, partial in zip(instruction.operands, rule.partials, strict=True):
        if not isinstance(x, float):
            _add(adjoint, x, partial(y, *values, *instruction.parameters), g)
