"""The array program in numpy: what a ``Program`` means, and the oracle of its machine code.

In: a program, its inputs and the addresses that its gathers select. Out: every number, and the
derivative of one of them with respect to every other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM
from chainrule.compiler.lift.program import Addresses, Instruction, Program
from chainrule.core import ops
from chainrule.trees import Floats


def run(program: Program, inputs: Floats, gathered: Addresses) -> Floats:
    """Every number of the program; ``gathered`` are the addresses of its gathers, in order."""
    arena = np.zeros(program.size)
    arena[: program.inputs] = inputs
    arena[program.inputs : program.shared] = program.constants
    arena[program.shared : program.shared + len(program.private)] = inputs[program.private]
    at = 0
    with np.errstate(all="ignore"):
        for instruction in _in_turn(program):
            end = instruction.start + instruction.count
            if instruction.kind == GATHER:
                arena[instruction.start : end] = arena[gathered[at : at + instruction.count]]
                at += instruction.count
            else:
                arena[instruction.start : end] = _forward(instruction, arena)
    return arena


def _in_turn(program: Program) -> Iterator[Instruction]:
    """The instructions in order of execution, those of loops as slices."""
    at = 0
    if program.steps is not None:
        for k, first, last in program.steps.tolist():
            yield program.instructions[k].part(first, last)
        return
    for loop in program.loops:
        yield from program.instructions[at : loop.first]
        for k in range(loop.count):
            for instruction in program.instructions[loop.first : loop.last]:
                yield instruction.row(k, loop.count)
        at = loop.last
    yield from program.instructions[at:]


def _forward(instruction: Instruction, arena: Floats) -> Any:
    rule, count, start = instruction.rule, instruction.count, instruction.start
    if instruction.kind == SUM:
        total = np.zeros(count)
        for terms in instruction.sums:
            each = np.prod([arena[column] for column in terms.columns], axis=0)
            total += np.bincount(terms.owners - start, each, count)
        return total
    assert rule is not None
    if instruction.kind == EXTREME:
        assert instruction.plains is not None
        best = np.full(count, -np.inf if rule is ops.first_max else np.inf)
        better = np.maximum if rule is ops.first_max else np.minimum
        better.at(best, instruction.plains.owners - start, arena[instruction.plains.columns[0]])
        return best
    xs = [arena[column] for column in instruction.columns]
    return np.broadcast_to(rule.forward(*xs, *instruction.parameters), count)


def sweep(program: Program, arena: Floats, gathered: Addresses, root: int) -> Floats:
    """The derivative of the number at address ``root`` with respect to every number."""
    adjoint = np.zeros(program.size)
    adjoint[root] = 1.0
    at = len(gathered)
    with np.errstate(all="ignore"):
        for instruction in reversed(list(_in_turn(program))):
            g = adjoint[instruction.start : instruction.start + instruction.count]
            if instruction.kind == GATHER:
                at -= instruction.count
                np.add.at(adjoint, gathered[at : at + instruction.count], g)
            else:
                _backward(instruction, arena, adjoint, g)
    return adjoint


def _add(adjoint: Floats, column: Addresses, slope: Any, g: Floats) -> None:
    """``adjoint[column] += slope * g``; a zero on either side propagates nothing."""
    share = np.where((slope == 0.0) | (g == 0.0), 0.0, slope * g)
    np.add.at(adjoint, column, share)


def _backward(instruction: Instruction, arena: Floats, adjoint: Floats, g: Floats) -> None:
    rule, start = instruction.rule, instruction.start
    y = arena[start : start + instruction.count]
    if instruction.kind == SUM:
        if instruction.products is not None:
            a, b = instruction.products.columns
            each = g[instruction.products.owners - start]
            _add(adjoint, a, arena[b], each)
            _add(adjoint, b, arena[a], each)
        if instruction.scaled is not None:
            c, a, b = instruction.scaled.columns
            each = g[instruction.scaled.owners - start]
            _add(adjoint, a, arena[c] * arena[b], each)
            _add(adjoint, b, arena[c] * arena[a], each)
        if instruction.plains is not None:
            (column,) = instruction.plains.columns
            _add(adjoint, column, 1.0, g[instruction.plains.owners - start])
        return
    assert rule is not None
    if instruction.kind == EXTREME:
        assert instruction.plains is not None
        (column,), owners = instruction.plains.columns, instruction.plains.owners - start
        equal = np.flatnonzero(arena[column] == y[owners])
        takers, first = np.unique(owners[equal], return_index=True)
        _add(adjoint, column[equal[first]], 1.0, g[takers])
        return
    xs = [arena[column] for column in instruction.columns]
    for i, column in enumerate(instruction.operands):
        if i in rule.differentiable:
            _add(adjoint, column, rule.partials[i](y, *xs, *instruction.parameters), g)
