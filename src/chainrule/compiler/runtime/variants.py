"""A recording ready to run, and what is known of calls with one structure of arguments.

In: a call. Out: a ``Run``: which path answered it, machine code, the tape or eager, and where its
numbers are until the next call.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from chainrule.compiler.capture.arguments import Call, as_float
from chainrule.compiler.capture.recorder import Floats, Recording
from chainrule.compiler.capture.tracing import Trace
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.learning import Family, Integers
from chainrule.compiler.runtime.machine import Fit, MachineCode
from chainrule.compiler.runtime.tape import FINE, UNDEFINED, Executor, executor
from chainrule.core.backend import Value, kernels


class Path(enum.Enum):
    """What can answer a call."""

    MACHINE = "machine code"
    TAPE = "tape"
    EAGER = "eager"


@dataclass(frozen=True, eq=False)
class Binding:
    """How a variant runs on machine code, its own or that of a longer call."""

    machine: MachineCode
    fit: Fit
    family: Family | None = None  # which knows what its integers select
    slots: Addresses | None = None  # its integers among those of the family's longest call

    @property
    def is_own(self) -> bool:
        """Whether the code was built from this variant."""
        return self.fit is self.machine.fit


@dataclass(eq=False)
class Variant:
    """A recording ready to run, and for which integers it holds."""

    recording: Recording
    captured: tuple[Value, ...]
    integers: Integers
    inputs: Floats
    grads: Floats
    binding: Binding | None = None
    not_lifted: str | None = None  # why it runs on the tape

    @classmethod
    def of(cls, made: Trace, integers: Integers) -> Variant:
        """A variant of one recording, on the tape."""
        inputs, grads = (np.zeros(made.recording.inputs) for _ in range(2))
        return cls(made.recording, made.captured, integers, inputs, grads)

    @functools.cached_property
    def executor(self) -> Executor:
        """What runs the recording itself."""
        return executor(self.recording)

    @property
    def machine(self) -> MachineCode | None:
        """The machine code it runs on, if any."""
        return None if self.binding is None else self.binding.machine

    def run(self, call: Call, binding: Binding | None) -> Run | None:
        """Compute a call, by machine code where ``binding`` has some that can, else by the tape.

        None where this variant is not the one for the call: it holds for other integers, or a
        branch goes the other way. Where a number is undefined, eager raises what eager raises.
        """
        ids = call.ints
        if not self.integers.serves(ids):
            return None
        if self.integers.beyond_floats(ids):
            return EAGERLY
        self._write(call)
        if binding is not None:
            gathered = self.gathered(binding, ids)
            if gathered is not None and binding.machine.run(binding.fit, gathered, self.inputs):
                return Run(Path.MACHINE, self, binding.machine, ids)
        status = self.run_tape(ids)
        if status == FINE:
            return Run(Path.TAPE, self, None, ids)
        return EAGERLY if status == UNDEFINED else None

    def _write(self, call: Call) -> None:
        """Write all inputs: the call's floats, captured Values, and its integers as numbers."""
        size, captured = call.size, len(self.captured)
        call.write(self.inputs[:size])
        if captured and kernels is not None:
            kernels.gather(self.captured, self.inputs[size : size + captured])
        elif captured:
            self.inputs[size : size + captured] = [v._number for v in self.captured]
        self.inputs[size + captured :] = [as_float(i) for i in call.ints]

    def gathered(self, binding: Binding, ids: Sequence[int]) -> Addresses | None:
        """The addresses that the gathers of machine code select, if that is known."""
        if binding.family is not None and binding.slots is not None:
            return binding.family.gathered(binding.fit, binding.slots, tuple(ids))
        operands = self.integers.operands(ids)
        return None if operands is None else binding.fit.gathered(operands)

    def run_tape(self, ids: Sequence[int]) -> int | None:
        """Run the tape on the inputs; None where it is not known what these integers select."""
        operands = self.integers.operands(ids)
        if operands is None:
            return None
        if len(operands):
            self.executor.point(self.integers.places, operands)
        return self.executor.run(self.inputs)[0]


@dataclass(frozen=True, eq=False)
class Run:
    """One call: which path answers it, and what it gave. The next call overwrites the numbers."""

    path: Path
    variant: Variant | None = None  # what computed it; None for eager
    machine: MachineCode | None = None
    ids: Sequence[int] = ()
    reason: str | None = None  # for eager, where there is more to say than an error will

    def number(self, position: int) -> float:
        """The number that a recorded instruction gave."""
        assert self.variant is not None
        found = None if self.machine is None else self.machine.number(position)
        return self.variant.executor.number(position) if found is None else found

    def sweep(self, root: int) -> Floats | None:
        """The derivative of an instruction by every input; None where only eager can tell."""
        variant = self.variant
        assert variant is not None
        if self.machine is not None:
            if self.machine.sweep(variant.grads):
                return variant.grads
            if variant.run_tape(self.ids) != FINE:
                return None
            # Something infinite: the tape knows the rules for it
        variant.executor.sweep(root, 1.0, variant.grads)
        return variant.grads


EAGERLY = Run(Path.EAGER)


@dataclass(eq=False)
class Structure:
    """What is known of calls with one structure of arguments."""

    variants: list[Variant] = field(default_factory=list)
    recordings: int = 0
    numbers_follow: bool = False  # integers select plain numbers, so each variant is for its own
    blocked: str | None = None  # why such calls run eagerly
