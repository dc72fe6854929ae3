"""The lifted path: a recording as an array program in machine code.

In: a recording and what its operands do with integers. Out: a ``Lifted``, which runs forward and
backward over its own arenas. It answers only where every number is finite; anything else, and every
question of branches and undefined values, is for the tape.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from chainrule.compiler import emit, jit
from chainrule.compiler.canonicalise import NotLiftable, canonicalise
from chainrule.compiler.group import Program, group
from chainrule.compiler.infer import Indexing
from chainrule.compiler.record import Floats, Ints, Recording


class Lifted:
    """An array program compiled for one recording."""

    def __init__(self, recording: Recording, indexing: Indexing, root: int) -> None:
        self.recording = recording
        self.program: Program = group(canonicalise(recording, indexing), recording)
        address = self.program.address
        self.root = int(address[root])
        self._places = np.array([place for place, _ in self.program.gathers], np.int64)
        self._guards = address[np.array([g.position for g in recording.guards], np.int64)]
        self._expected = np.array([g.expected for g in recording.guards])
        if self.root < 0 or (self._guards < 0).any():
            raise NotLiftable("an output was absorbed into a sum")
        self._library = jit.Library(emit.module(self.program, self.root, jit.vector_width()))
        self.values = _aligned(self.program.size)
        self.adjoints = _aligned(self.program.size)
        self.values[self.program.inputs : self.program.first_result] = self.program.constants
        self._gathered = np.zeros(max(1, len(self._places)), np.int64)
        self._known_places = len(indexing.places)
        self._before, self._reached = self._gather_limits()
        double, pointer = ctypes.c_double, ctypes.c_void_p
        forward, backward = map(self._library.address, ("forward", "backward"))
        self._forward = ctypes.CFUNCTYPE(double, pointer, pointer)(forward)
        self._backward = ctypes.CFUNCTYPE(None, pointer, pointer, pointer)(backward)
        self._v, self._d, self._g = (
            a.ctypes.data for a in (self.values, self.adjoints, self._gathered)
        )

    def _gather_limits(self) -> tuple[Any, Any]:
        """For each gather the address its choice must lie before; and what a gradient reaches."""
        before = np.zeros(max(1, len(self._places)), np.int64)
        for instruction in self.program.instructions:
            if instruction.kind == "gather":
                before[instruction.places] = instruction.start
        reached = emit.reached(self.program, self.root)
        reached[: self.program.first_result] = True
        for (
            instruction
        ) in self.program.instructions:  # a gradient passes through whole instructions
            part = slice(instruction.start, instruction.start + instruction.count)
            reached[part] = reached[part].any()
        return before, reached

    def point(self, positions: Ints) -> bool:
        """Let the gathers select these instructions; False where the program cannot.

        Integers learnt after it was built may select what comes too late in it, or what no gradient
        was meant to reach, or show that another operand follows an integer.
        """
        if len(positions) != self._known_places:
            return False
        if not len(self._places):
            return True
        self._gathered[:] = self.program.address[positions[self._places]]
        within = (self._gathered >= 0) & (self._gathered < self._before)
        return bool(within.all() and self._reached[self._gathered].all())

    def run(self, inputs: Floats) -> bool:
        """Compute every number; False if one is not finite or a guard goes the other way."""
        self.values[: self.program.inputs] = inputs
        flag = self._forward(self._v, self._g)
        if flag != flag:
            return False
        return not len(self._guards) or bool(
            np.array_equal(self.values[self._guards], self._expected)
        )

    def sweep(self, out: Floats) -> bool:
        """The derivative of the root by every input; False if one is not finite."""
        self._backward(self._v, self._d, self._g)
        out[:] = self.adjoints[: self.program.inputs]
        return bool(np.isfinite(out).all())

    def number(self, position: int) -> float | None:
        """The number of a recorded instruction, None if it was absorbed."""
        address = int(self.program.address[position])
        return float(self.values[address]) if address >= 0 else None


def _aligned(size: int) -> Any:
    """A float64 array on a cache line."""
    raw = np.zeros(size + 8)
    start = (-raw.ctypes.data // 8) % 8
    return raw[start : start + size]
