"""A recording ready to run, and what is known of calls with one structure of arguments.

In: a call. Out: a ``Run``: which path answered it, machine code, the tape or eager, and where its
numbers are until the next call.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.alike import Alike
from chainrule.compiler.capture.arguments import Call, as_float
from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.capture.outside import Place
from chainrule.compiler.capture.recordings import Ints, Recording
from chainrule.compiler.capture.running import Trace
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.lift.margins import has_decisions
from chainrule.compiler.runtime.assembly import Assembly
from chainrule.compiler.runtime.costs import building_takes
from chainrule.compiler.runtime.machine import Fit, MachineCode
from chainrule.compiler.runtime.results import has_no_graph, root_of
from chainrule.compiler.runtime.tape import FINE, UNDEFINED, Executor, executor
from chainrule.core.backend import Value, kernels
from chainrule.trees import Floats


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

    @property
    def is_own(self) -> bool:
        """Whether the code was built from this variant."""
        return self.fit is self.machine.fit


@dataclass(eq=False)
class Variant:
    """A recording ready to run, and for which integers it holds."""

    recording: Recording
    captured: tuple[Value, ...]
    numeric: frozenset[int]  # integers that are used as numbers
    inputs: Floats
    grads: Floats
    binding: Binding | None = None
    not_lifted: str | None = None  # why it runs on the tape
    waits: bool = False  # until machine code for it is worth its cost
    may_join: bool = False  # there is new machine code of another call, which it may use
    eager_nodes: int | None = None  # that an eager call makes, once there was one
    build_cost: float | None = None  # seconds that machine code will take, once that is known
    answered: int = 0  # calls by the fast path
    used: int = 0  # when it was needed last, as ``Memory`` counts
    settled: tuple[str, ...] = ()  # the lines at which data became static
    uses_math: bool = False  # it holds for finite data only
    asks: bool = True  # it may depend on whether two arguments are one
    exponents: frozenset[str] = frozenset()  # the lines at which exponents became static
    #: machine code for many samples at once, or why there is none, by what the samples share
    lanes: dict[Any, Any] = field(default_factory=dict)
    measured: tuple[Any, int] = (None, 0)  # its bytes, and what it was when that was found out
    mapped: int = 0  # samples that had no such code
    containers: Any = None  # the kinds and sizes of those among its arguments; see ``keeping``
    is_derivative: bool = False  # so do derivatives on the tape: eager's 0 times infinity is 0
    alike: Alike = Alike.NONE  # plain calls for which it holds too
    borrows: bool = False  # its machine code from ``value_and_grad``: it has no tape
    example: Call | None = None  # of what borrows: a call to record where more of it is needed
    sizes: str | None = None  # at which it was built from formulas; nothing was recorded there
    #: of a recording without instructions: its fingerprint, and what records a call again
    _again: tuple[Any, Callable[[Call], Recording]] | None = None
    _decided: tuple[Sequence[int], Any] = ((), None)  # the last integers, and what they decide

    @classmethod
    def of(cls, made: Trace) -> Variant:
        """A variant of one recording, on the tape."""
        inputs, grads = (np.zeros(made.recording.inputs) for _ in range(2))
        return cls(
            made.recording,
            made.captured,
            made.numeric,
            inputs,
            grads,
            settled=made.settled,
            uses_math=made.uses_math,
            asks=made.asks,
            exponents=made.exponents,
            alike=made.alike,
            is_derivative=made.derived_from is not None,
        )

    @functools.cached_property
    def building_takes(self) -> float:
        """The same, as far as can be told before anything is lifted."""
        return building_takes(len(self.recording), has_decisions(self.recording))

    @property
    def trace(self) -> Trace:
        """What it was made of."""
        return Trace(self.recording, self.captured, self.numeric, self.settled)

    @functools.cached_property
    def executor(self) -> Executor:
        """What runs the recording itself."""
        assert not self.recording.shed
        return executor(self.recording)

    @functools.cached_property
    def assembly(self) -> Assembly:
        """What makes of its numbers what a plain call returns."""
        return Assembly(self.recording)

    @functools.cached_property
    def ways(self) -> set[tuple[str, float]]:
        """The lines of branches that numbers decided, and how."""
        return {(guard.line, guard.expected) for guard in self.recording.guards}

    @functools.cached_property
    def ways_of_integers(self) -> set[tuple[str, float]]:
        """The lines of branches that integers decided, and how."""
        guards = self.recording.selection.program.guards
        return {(guard.line, guard.expected) for guard in guards if guard.truth}

    @property
    def has_tape(self) -> bool:
        """Whether a tape is in memory."""
        return "executor" in self.__dict__

    def shed(self, record: Callable[[Call], Recording]) -> None:
        """Let go of tape and instructions; ``record``: what makes them of a call again."""
        self.forget_tape()
        if not self.recording.shed:
            self._again = self.recording.fingerprint(), record
            self.recording = self.recording.without_instructions()
            self.recording.selection.forget_decider()

    def recorded(self, call: Call) -> Recording | None:
        """The recording with its instructions; None where this call would take another path."""
        if self._again is None or not self.recording.shed:
            return self.recording
        fingerprint, record = self._again
        found = record(call)
        return found if found.fingerprint() == fingerprint else None

    def recover(self, call: Call) -> bool:
        """Have the instructions again; False where this call would take another path."""
        found = self.recorded(call)
        if found is not None:
            self.recording = found
        return found is not None

    def forget_tape(self) -> None:
        """Free the tape, until a call needs it again."""
        self.__dict__.pop("executor", None)

    @property
    def is_own(self) -> bool:
        """Whether there is machine code that was built from it."""
        return not self.borrows and self.binding is not None and self.binding.is_own

    @property
    def machine(self) -> MachineCode | None:
        """The machine code it runs on, if any."""
        return None if self.binding is None else self.binding.machine

    def returns_several(self, call: Call) -> bool:
        """Whether a plain call must return more than one node: a replay makes one at most."""
        if call.key[0] or has_no_graph(call, self.captured) or not self.returns_values:
            return False
        nodes = [x for x in self.recording.outputs if x.is_value]
        return len(nodes) != 1 or root_of(self.recording.result) is None

    @property
    def returns_values(self) -> bool:
        """Whether any number that the function returns has a graph."""
        return any(x.is_value for x in self.recording.outputs)

    def run(self, call: Call, binding: Binding | None) -> Run | None:
        """Compute a call, by machine code where ``binding`` has some that can, else by the tape.

        None where this variant is not the one for the call: it holds for other integers, or a
        branch goes the other way. Where a number is undefined, eager raises what eager raises.
        """
        ids = call.ints
        decided = self.decide(ids)
        if decided is None:
            return None
        if any(abs(ids[slot]) > EXACT for slot in self.numeric):
            return EAGERLY  # beyond floats
        self._write(call, decided[1])
        given = self.inputs[: call.size + len(self.captured)]
        if (self.uses_math or self.is_derivative) and not np.isfinite(given).all():
            return EAGERLY  # where ``math`` raises, and recorded operations do not
        if binding is not None:
            gathered = binding.fit.gathered(decided[0])
            if gathered is not None and binding.machine.run(binding.fit, gathered, self.inputs):
                return Run(Path.MACHINE, self, binding.machine, call)
        if self.borrows:
            return None  # it has no tape
        if self.sizes is not None:
            return EAGERLY  # nor has this one
        try:
            if not self.recover(call):
                return None
        except (Exception, Unrecordable):  # which eager raises too
            return EAGERLY
        status = self.run_tape(ids)
        if status == FINE:
            return Run(Path.TAPE, self, None, call)
        return EAGERLY if status == UNDEFINED else None

    def decide(self, ids: Sequence[int]) -> tuple[Ints, list[float]] | None:
        """What these integers select, and the numbers computed from them; None: another path."""
        if self._decided[0] is not ids or not ids:
            self._decided = ids, self.recording.selection.decide(ids)
        found: tuple[Ints, list[float]] | None = self._decided[1]
        return found

    def _write(self, call: Call, numbers: list[float]) -> None:
        """Write all inputs: the call's floats, captured Values, and its integers as numbers."""
        size, captured = call.size, len(self.captured)
        call.write(self.inputs[:size])
        if captured and kernels is not None:
            kernels.gather(self.captured, self.inputs[size : size + captured])
        elif captured:
            self.inputs[size : size + captured] = [v._number for v in self.captured]
        first = size + captured
        last = first + len(call.ints)
        try:
            self.inputs[first:last] = call.ints
        except OverflowError:
            self.inputs[first:last] = list(map(as_float, call.ints))
        self.inputs[last:] = numbers

    def run_tape(self, ids: Sequence[int]) -> int | None:
        """Run the tape on the inputs; None where it is not known what these integers select."""
        decided = self.decide(ids)
        if decided is None:
            return None
        if len(decided[0]):
            self.executor.point(self.recording.selection.places, decided[0])
        return self.executor.run(self.inputs)[0]


@dataclass(frozen=True, eq=False, slots=True)
class Run:
    """One call: which path answers it, and what it gave. The next call overwrites the numbers."""

    path: Path
    variant: Variant | None = None  # what computed it; None for eager
    machine: MachineCode | None = None
    call: Call | None = None
    reason: str | None = None  # for eager, where there is more to say than an error will
    changes: tuple[Place, ...] = ()  # numbers outside that the function changes

    def number(self, position: int) -> float:
        """The number that a recorded instruction gave."""
        assert self.variant is not None
        found = None if self.machine is None else self.machine.number(position)
        return self.variant.executor.number(position) if found is None else found

    def numbers(self, positions: Sequence[int]) -> Floats:
        """The numbers that some recorded instructions gave."""
        if self.machine is not None:
            found = self.machine.numbers(positions)
            if found is not None:
                return found
        return np.array([self.number(p) for p in positions], np.float64)

    def sweep(self, root: int) -> Floats | None:
        """The derivative of an instruction by every input; None where only eager can tell."""
        variant = self.variant
        assert variant is not None
        if self.machine is not None:
            if self.machine.sweep(variant.grads):
                return variant.grads
            assert self.call is not None
            run = variant.run(
                self.call, None
            )  # something infinite: the tape knows the rules for it
            if run is None or run.path is not Path.TAPE:
                return None
        variant.executor.sweep(root, 1.0, variant.grads)
        return variant.grads


EAGERLY = Run(Path.EAGER)


def branches(made: Trace | Variant) -> int:
    """How many branches a recording depends on, of integers or of numbers."""
    integers = sum(guard.truth for guard in made.recording.selection.program.guards)
    return integers + len(made.recording.guards) - len(set(made.settled))


def branches_often(variants: Sequence[Variant]) -> bool:
    """Whether at least half of some recordings depend on a branch."""
    return 2 * sum(branches(variant) > 0 for variant in variants) >= len(variants)


def goes_both_ways(variants: Sequence[Variant], many: int) -> bool:
    """Whether one branch was decided in one way and in the other, in any of some recordings.

    By numbers; or, in recordings with so ``many`` branches, by integers, as those of a mask.
    """
    ways = {way for v in variants for way in v.ways}
    ways |= {way for v in variants if branches(v) >= many for way in v.ways_of_integers}
    return len(ways) > len({line for line, _ in ways})


def is_for_other_exponents(variant: Variant, integers: Sequence[int]) -> bool:
    """Whether exponents that became static are others for these integers."""
    if not variant.exponents:
        return False
    program = variant.recording.selection.program
    values = replace(program, guards=()).evaluate(integers)
    static = [g for g in program.guards if not g.truth and g.line in variant.exponents]
    return values is None or not all(guard.holds(values) for guard in static)


def static_files(variants: Sequence[Variant]) -> set[str]:
    """The files with lines at which integers became static."""
    guards = [g for v in variants for g in v.recording.selection.program.guards if not g.truth]
    return {g.line.rpartition(":")[0] for g in guards}


def static_often(variants: Sequence[Variant], lines: Collection[str]) -> bool:
    """Whether at least half of some recordings are for one integer at any of these lines."""
    static = [
        any(not g.truth and g.line in lines for g in v.recording.selection.program.guards)
        for v in variants
    ]
    return bool(static) and 2 * sum(static) >= len(variants)


@dataclass(eq=False)
class Structure:
    """What is known of calls with one structure of arguments."""

    variants: list[Variant] = field(default_factory=list)
    recordings: int = 0
    hits: int = 0  # calls that a variant answered
    misses: int = 0  # calls that none of its variants answered, though there were some
    sides: int = 0  # recordings that compute both sides of branches
    own_code: bool = False  # plain calls do not give what the code of ``value_and_grad`` does
    blocked: str | None = None  # why such calls run eagerly
    outline: Any = None  # its key without lengths, once that was asked for
