"""A recording as an array program of single numbers, where it has no structure.

In: a ``Recording``. Out: a ``Program`` with an instruction for each operation, in their order, so
that what cannot be lifted is written by the same means as what can.
"""

from __future__ import annotations

import numpy as np

from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Recording
from chainrule.compiler.lift.graph import GATHER, RULE
from chainrule.compiler.lift.program import Instruction, Program


def taped(recording: Recording) -> Program:
    """The program that does what the tape does."""
    selection = recording.selection
    gathered = {int(place): k for k, place in enumerate(selection.places.tolist())}
    constants: dict[int, int] = {}  # by their bits
    rows = recording.constants.view(np.int64)
    first = recording.inputs
    for i in range(first, len(recording)):
        if recording.codes[i] == CONSTANT or recording.number[i]:
            constants.setdefault(int(rows[i, 0]), first + len(constants))
    address = np.full(len(recording), -1, np.int64)
    address[:first] = np.arange(first)
    at = first + len(constants)
    made: list[Instruction] = []
    for i in range(first, len(recording)):
        if recording.codes[i] == CONSTANT:
            address[i] = constants[int(rows[i, 0])]
            continue
        rule = recording.rules[recording.codes[i] - FIRST_RULE]
        operands = []
        for k, position in enumerate(recording.operands[i].tolist()):
            if position < 0:
                continue
            if 3 * i + k in gathered:
                which = gathered[3 * i + k]
                gather = selection.gathers[int(selection.owners[which])]
                copy = Instruction((len(made),), GATHER, at, 1)
                copy.places = np.array([which])
                copy.candidates = address[gather.candidates]
                made.append(copy)
                operands.append(np.array([at]))
                at += 1
            else:
                operands.append(address[[position]])
        numbers = recording.constants[i, : len(rule.parameters)]
        instruction = Instruction(
            (len(made),), RULE, at, 1, rule, tuple(numbers.tolist()), operands
        )
        if recording.number[i]:
            instruction.number = np.array([constants[int(rows[i, 0])]])
        made.append(instruction)
        address[i] = at
        at += 1
    return Program(
        first,
        np.zeros(0, np.int64),
        np.array(list(constants), np.int64).view(np.float64),
        at,
        made,
        address,
        address[[guard.position for guard in recording.guards]],
        np.array([guard.expected for guard in recording.guards], np.float64),
    )
