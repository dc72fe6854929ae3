"""The tape: executors of a recording, in Python (``Interpreter``, the oracle) and native.

Both take the inputs as one row of float64, compute every instruction, look at the guards, and sweep
back in the order of eager ``backward()``, so that their bits are eager's.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Ints, Recording
from chainrule.core.backend import kernels
from chainrule.trees import Floats

FINE, OTHER_BRANCH, UNDEFINED = 0, 1, 2


class Executor(Protocol):
    """What runs a recording."""

    def run(self, inputs: Floats, /) -> tuple[int, int]:
        """Compute everything; (FINE, -1), (OTHER_BRANCH, guard) or (UNDEFINED, instruction)."""

    def sweep(self, root: int, seed: float, out: Floats, /) -> None:
        """The derivative of instruction ``root`` with respect to each input."""

    def point(self, places: Ints, positions: Ints, /) -> None:
        """Let operand ``place`` (3 * instruction + operand) read another instruction."""

    def number(self, position: int, /) -> float:
        """The number an instruction gave."""

    def numbers(self, positions: Ints, out: Floats, /) -> None:
        """The numbers that some instructions gave."""


def executor(recording: Recording) -> Executor:
    """The fastest executor there is for a recording."""
    if kernels is None:
        return Interpreter(recording)
    guards = np.array([g.position for g in recording.guards], np.int32)
    expected = np.array([g.expected for g in recording.guards], np.float64)
    tape: Executor = kernels.Tape(
        recording.inputs,
        recording.codes,
        recording.operands,
        recording.constants,
        recording.number.view(np.uint8),
        recording.unflagged.view(np.uint8),
        recording.rules,
        guards,
        expected,
    )
    return tape


class Interpreter:
    """The meaning of a recording, in plain Python: one rule of the op table at a time."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.operands = recording.operands.copy()
        self.data: list[float] = [0.0] * len(recording)

    def _arguments(self, i: int) -> tuple[Any, list[float], list[float]]:
        """The rule of an instruction, its operands' numbers and its parameters."""
        recording = self.recording
        rule = recording.rules[recording.codes[i] - FIRST_RULE]
        xs = [self.data[p] for p in self.operands[i] if p >= 0]
        if recording.number[i]:
            xs.append(float(recording.constants[i, 0]))
        return rule, xs, [float(c) for c in recording.constants[i, : len(rule.parameters)]]

    def run(self, inputs: Floats, /) -> tuple[int, int]:
        """Compute every instruction in order."""
        recording = self.recording
        self.data[: recording.inputs] = [float(x) for x in inputs[: recording.inputs]]
        undefined = -1
        with np.errstate(all="ignore"):
            for i in range(recording.inputs, len(recording)):
                if recording.codes[i] == CONSTANT:
                    self.data[i] = float(recording.constants[i, 0])
                    continue
                rule, xs, parameters = self._arguments(i)
                y = self.data[i] = float(rule.forward(*xs, *parameters))
                if not math.isfinite(y) and undefined < 0 and not recording.unflagged[i]:
                    undefined = i if all(map(math.isfinite, xs)) else -1
        for k, guard in enumerate(recording.guards):
            if self.data[guard.position] != guard.expected:
                return OTHER_BRANCH, k
        return (FINE, -1) if undefined < 0 else (UNDEFINED, undefined)

    def sweep(self, root: int, seed: float, out: Floats, /) -> None:
        """Sweep back from one instruction."""
        recording = self.recording
        totals = [0.0] * len(recording)
        totals[root] = seed
        for i in reversed(self._order(root)):
            total = totals[i]
            if not total:
                continue
            rule, xs, parameters = self._arguments(i)
            slopes = rule.local_grads(self.data[i], xs, tuple(parameters))
            for p, slope in zip(self.operands[i], slopes, strict=False):
                if p >= 0 and slope:
                    totals[p] += slope * total
        out[: recording.inputs] = totals[: recording.inputs]

    def _order(self, root: int) -> list[int]:
        """What carries a gradient from root, each instruction after its operands."""
        order: list[int] = []
        visited = {root}
        stack = [(root, iter(self._differentiable(root)))]
        while stack:
            node, operands = stack[-1]
            for p in operands:
                if p not in visited:
                    visited.add(p)
                    stack.append((p, iter(self._differentiable(p))))
                    break
            else:
                order.append(node)
                stack.pop()
        return [i for i in order if self.recording.codes[i] >= FIRST_RULE]

    def _differentiable(self, i: int) -> list[int]:
        code = self.recording.codes[i]
        if code < FIRST_RULE:
            return []
        rule = self.recording.rules[code - FIRST_RULE]
        operands = self.operands[i].tolist()
        return [operands[k] for k in rule.differentiable if operands[k] >= 0]

    def point(self, places: Ints, positions: Ints, /) -> None:
        """Change operands."""
        self.operands.reshape(-1)[places] = positions

    def number(self, position: int, /) -> float:
        """The number an instruction gave."""
        return self.data[position]

    def numbers(self, positions: Ints, out: Floats, /) -> None:
        """The numbers that some instructions gave."""
        out[:] = [self.data[p] for p in positions]
