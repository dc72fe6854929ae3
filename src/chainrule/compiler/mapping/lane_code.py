"""A variant's machine code for many samples at once, one in each lane.

In: a variant, a call that it serves, and where samples have their numbers. Out: a ``LaneCode``:
what they share is read from one place, what each has of its own lies in lanes, side by side. Where
there can be none, the reason.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.codegen import jit
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.program import Addresses, Program
from chainrule.compiler.mapping import loop_code
from chainrule.compiler.mapping.hoisting import Split, split
from chainrule.compiler.mapping.stacks import Layout
from chainrule.compiler.runtime.decisions import Decided, Decisions
from chainrule.compiler.runtime.machine import MachineCode, beyond, cache_aligned
from chainrule.compiler.runtime.pipeline import Options
from chainrule.compiler.runtime.results import lifted_of, wanted_of
from chainrule.compiler.runtime.variants import Variant
from chainrule.core.backend import kernels
from chainrule.trees import Floats

FEW_PARAMETERS = 64  # each lane has its own copy: gradients are added up at the end only
MANY_SHAPES = 3000  # instructions of one number each that are worth LLVM's time


class Arenas:
    """The memory that one thread computes a group of samples in."""

    def __init__(self, code: LaneCode) -> None:
        kernel, lanes, number = code.machine.code, code.lanes, np.dtype(code.machine.dtype)
        self.own, self.adjoints = (cache_aligned(len(kernel.own), number) for _ in range(2))
        self.shared_adjoints = cache_aligned(len(kernel.shared), number)
        self.gathers = np.zeros_like(kernel.gathers)
        self.seeds = np.ones(2 * lanes, number)  # of a whole group, and of the last one
        own, shared = (code.totals, 0) if code.has_own_parameters else (0, code.totals)
        self._totals = np.zeros((1 + own) * lanes + shared)
        self.in_lanes = self._totals[: (1 + own) * lanes].reshape(-1, lanes)
        self.value_total, self.own_total = self.in_lanes[0], self.in_lanes[1:]
        self.shared_total = self._totals[(1 + own) * lanes :]
        words = np.zeros(len(loop_code.FIELDS), np.int64)  # what the loop reads
        self._words, self.words_at = words.data, loop_code.address(words)
        self.set(**code.fields)
        for name in (
            *("own", "adjoints", "shared_adjoints", "gathers", "seeds"),
            *("value_total", "own_total", "shared_total"),
        ):
            self.set(**{name: loop_code.address(getattr(self, name))})

    def set(self, **fields: int) -> None:
        """Let the loop read this from now on; see ``loop_code.FIELDS``."""
        words, places = self._words, loop_code.PLACES
        for name, word in fields.items():
            words[places[name]] = word

    def clear(self) -> None:
        """Set the totals to zero."""
        self._totals[:] = 0.0

    @property
    def totals(self) -> tuple[float, Floats]:
        """The total of the values, and of the gradients."""
        sums = np.add.reduce(self.in_lanes, axis=1)
        gradient: Floats = self.shared_total.copy() if len(self.shared_total) else sums[1:]
        return float(sums[0]), gradient


@dataclass(frozen=True, eq=False)
class LaneCode:
    """Machine code for samples of one variant."""

    variant: Variant
    machine: MachineCode
    parameters: int  # the numbers of the first argument, by which it is differentiated
    has_own_parameters: bool  # each lane has a copy of them
    split: Split  # what a sample computes, and what all of them share
    private: Addresses  # the inputs that lie in lanes
    copies: int  # how many inputs, the first ones, each lane has a copy of
    varied: Addresses  # the floats of a call that may be others in each lane
    outputs: Addresses  # where a sample has the numbers that it returns, the value first
    number: int = field(default_factory=itertools.count().__next__)  # in the order of building
    free: list[Any] = field(default_factory=list)  # what no thread computes in now

    @property
    def lanes(self) -> int:
        """How many samples it computes at once."""
        return self.machine.code.batch

    @property
    def recording(self) -> Recording:
        """What a sample computes."""
        return self.split.each

    @property
    def totals(self) -> int:
        """How many adjoints are added up: of the parameters, and of what depends on them alone."""
        return self.parameters + (self.split.middle - self.split.first if self.parameters else 0)

    def with_shared(self, inputs: Floats) -> Floats | None:
        """The inputs of a sample; ``inputs``: those of its variant. None: it is not for them."""
        variant = self.variant
        if (variant.uses_math or variant.is_derivative) and not np.isfinite(inputs).all():
            return None
        found = self.split.inputs(inputs)
        return None if found is None or beyond(self.machine.dtype, found).any() else found

    def gradient(self, adjoints: Floats) -> Floats | None:
        """The gradient by the parameters; ``adjoints``: the totals."""
        return self.split.gradient(adjoints, self.parameters)

    @property
    def differentiates(self) -> bool:
        """Whether it computes gradients."""
        return self.machine.differentiates

    def decide(self, ids: Addresses) -> Decisions:
        """What samples decide, a row of integers for each; integers beyond floats are no path."""
        made = Decided.of(self.recording.selection, self.machine.fit).rows(ids)
        numbers = ids[:, sorted(self.variant.numeric)]
        beyond = (numbers < -EXACT) | (numbers > EXACT)
        return dataclasses.replace(made, known=made.known & ~beyond.any(axis=1))

    def share(self, inputs: Floats) -> None:
        """Let all samples read these inputs of one call."""
        self._write_rounded(self.shared[: len(inputs)], inputs)

    @functools.cached_property
    def shared(self) -> npt.NDArray[Any]:
        """The inputs of one call, and the constants: what samples share is read from there.

        The same memory every time: one map after the other uses the code, under a lock.
        """
        made: npt.NDArray[Any] = cache_aligned(len(self.machine.code.shared), self.machine.dtype)
        made[self.machine.program.inputs :] = self.machine.fit.constants
        return made

    def _write_rounded(self, to: npt.NDArray[Any], numbers: Floats) -> None:
        """Numbers of calls are none that float32 does not have; see ``beyond``."""
        if self.machine.dtype == "float64":
            to[...] = numbers
        else:
            with np.errstate(over="ignore"):
                to[...] = numbers

    @functools.cached_property
    def work(self) -> int:
        """How many numbers it computes or adds up for one sample."""
        return self.machine.program.work

    @functools.cached_property
    def held(self) -> int:
        """How many numbers are prepared for one sample, beside its data."""
        return len(self.machine.program.places) + len(self.recording.selection.numbers)

    def fill(self, arenas: Arenas, inputs: Floats) -> None:
        """Let each lane have a copy of what it has a copy of; ``inputs``: those of one call."""
        if self.copies:
            self._write(arenas, inputs[: self.copies, None])

    def fill_lanes(self, arenas: Arenas, inputs: Floats) -> None:
        """Let lanes have all of their inputs, a column for each lane."""
        self._write(arenas, inputs[self.private])

    def _write(self, arenas: Arenas, rows: Floats) -> None:
        lanes = arenas.own[: len(rows) * self.lanes].reshape(-1, self.lanes)
        self._write_rounded(lanes, rows)

    @functools.cached_property
    def fields(self) -> dict[str, int]:
        """What the loop reads of the code itself; see ``loop_code``."""
        kernel = self.machine.code
        return {
            "forward": kernel.forward,
            "backward": kernel.backward,
            "check": kernel.check,
            "counts": loop_code.address(self.machine.fit.counts),
            "outputs": loop_code.address(self.outputs),
            "differentiates": int(self.differentiates),
        }

    def compute(self, arenas: Arenas) -> None:
        """Compute groups of samples."""
        loop_code.run(self.machine.dtype, self.lanes, arenas.words_at)


def lane_code(
    variant: Variant, call: Call, layout: Layout, per_sample: bool, options: Options
) -> LaneCode | str:
    """Machine code for samples such as a call that this variant serves, or why there is none.

    ``per_sample``: for a gradient of each sample, not only their sum.
    """
    first = call.first if call.key[0] and not variant.is_derivative else 0
    stacked = any(source.first < call.first for source in layout.floats)
    own = stacked or 0 < first <= FEW_PARAMETERS
    if per_sample and not own:  # of values alone, many parameters are read where they are
        own = first > 0 or call.first <= FEW_PARAMETERS
    reason = ""
    for hoists, has_own in itertools.product((True, False), dict.fromkeys([own, True])):
        try:
            return _build(variant, call, layout, has_own, first, per_sample, hoists, options)
        except NotLiftable as error:
            reason = str(error)
        except Exception as error:  # single calls still work: say why, and go on
            return f"{type(error).__name__}: {error}"
    return reason


def _build(
    variant: Variant,
    call: Call,
    layout: Layout,
    has_own: bool,
    first: int,
    per_sample: bool,
    hoists: bool,
    options: Options,
) -> LaneCode:
    recording = lifted_of(variant.recording, call, variant.captured)
    if wanted_of(recording) is None or variant.captured:
        raise NotLiftable("it returns no single Value, or reaches Values by itself")
    integers = len(call.ints) + len(recording.selection.numbers)
    stacked = [source.first + np.arange(source.count) for source in layout.floats]
    stacked.append(recording.inputs - integers + np.arange(integers))
    made = Split(recording)
    if hoists and kernels is not None:
        # A gradient of each sample needs all that leads to it.
        own = np.concatenate([*stacked, np.arange(first if per_sample else 0)])
        made = split(recording, own.astype(np.int64), call.first, first)
    shared = made.middle - made.first if first else 0
    parts = [np.arange(call.first + shared if has_own else 0), *map(made.moved, stacked)]
    private = np.unique(np.concatenate(parts).astype(np.int64))
    recording = made.each
    arrays = made.moved(np.cumsum([0, *call.sizes])).tolist()
    arrays = (*sorted([*arrays, *made.arrays]), recording.inputs - integers)
    root = wanted_of(recording)
    assert root is not None
    slots = np.arange(integers)
    source = RecordedCall(recording, root.position, private, slots, arrays, derives=False)
    fixed = len(private) - (first + shared if has_own else 0)
    needed = 0 if has_own else first + shared
    machine = _machine(source, fixed, needed, options)
    addresses = machine.fit.at([x.position for x in recording.outputs])
    if (addresses < machine.program.shared).any():
        raise NotLiftable("a result is no number of each sample's own")
    addresses = addresses - machine.program.shared
    places = np.arange(call.size)
    varied = np.isin(places, np.concatenate(stacked))
    if made.hoisted is None:
        varied |= np.isin(places, private)
    copies = call.first + shared if has_own else 0
    return LaneCode(
        variant, machine, first, has_own, made, private, copies, places[varied], addresses
    )


def _machine(source: RecordedCall, fixed: int, needed: int, options: Options) -> MachineCode:
    """The code of the first program of a call that can be compiled.

    ``fixed`` and ``needed``: see ``Program``.
    """
    lanes = jit.vector_width() * (2 if options.dtype == "float32" else 1)
    programs: list[Callable[[], Program]] = [
        source.program,
        lambda: source.program(loops=False),
        lambda: source.straight(MANY_SHAPES),
    ]
    for last, program in enumerate(programs, 1 - len(programs)):
        try:
            made = dataclasses.replace(program(), fixed=fixed, needed=needed)
            return MachineCode(source, made, options.dtype, options.contract, lanes=lanes)
        except NotLiftable:
            if not last:
                raise
    raise AssertionError
