"""When recordings become machine code, and which calls share it.

In: variants as they are recorded. Out: a ``Built`` for each: machine code of its own, checked
against the tape, or why there is none. A call whose lists are no longer than another's joins the
machine code of that one, if it is a prefix of it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.capture.running import Trace
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.lift.alignment import (
    FEW_SHAPES,
    Prefix,
    RecordedCall,
    cut_likewise,
    prefix_of,
)
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.margins import has_decisions
from chainrule.compiler.lift.program import Program
from chainrule.compiler.lift.smaller import Smaller
from chainrule.compiler.runtime.causes import SEVERAL
from chainrule.compiler.runtime.costs import LIFTING, LLVM, margins_take
from chainrule.compiler.runtime.families import VAIN, Family, Lengths, SharedCode, placed_among
from chainrule.compiler.runtime.heap import is_large, return_free_memory
from chainrule.compiler.runtime.lengths import (
    Growth,
    Places,
    has_lengths,
    outline_of,
    vary_independently,
)
from chainrule.compiler.runtime.machine import MachineCode, repeats_alike
from chainrule.compiler.runtime.results import lifted_of, wanted_of
from chainrule.compiler.runtime.variants import Binding, Structure, Variant
from chainrule.compiler.runtime.verification import Expected, agrees, on_tape
from chainrule.core import errors

FEW = 4  # steps of growth in a call that is shorter than others, where these are large
SMALL = 256  # instructions: fewer are as quick on the tape, and keep eager's bits
FAMILIES = 64  # of calls whose lengths differ; the oldest goes
_NO_RESULT = "there is no result to check it by"


@dataclass(frozen=True, eq=False)
class Built:
    """What became of a variant: machine code, or the reason why there is none."""

    binding: Binding | None = None
    reason: str | None = None
    superseded: frozenset[MachineCode] = frozenset()  # their calls join this code when they come
    attempted: bool = True
    cost: float | None = None  # seconds, as it was estimated once the recording was lifted,
    lifting: float = 0.0  # and those of them that come before LLVM
    put_off: bool = False  # that is more than calls have earned yet
    equals_eager: bool = False  # it was compared with eager itself, and not with the tape


class TooDear(Exception):
    """Machine code would take longer than calls have earned yet."""

    def __init__(self, cost: float) -> None:
        super().__init__(cost)
        self.cost = cost


class Original(Protocol):
    """The function itself: for a large variant, of which neither tape nor instructions are kept."""

    def machine_code_agrees(self, variant: Variant, call: Call, binding: Binding) -> bool:
        """Whether machine code gives eager's results; False where that does not tell."""

    @property
    def record_again(self) -> Callable[[Call], Recording]:
        """Records a call once more."""


@dataclass(frozen=True, eq=False)
class Recordings:
    """Makes further recordings of a function."""

    tracer: Tracer
    captured: CapturedState

    def attempt(self, call: Call) -> Trace | None:
        """One more recording; None where the function fails with these arguments."""
        try:
            return self.tracer.trace(self.captured, call)
        except (Exception, Unrecordable):
            self.captured.restore()
            return None


@dataclass(frozen=True, eq=False)
class OtherLengths:
    """The same call at other lengths, recorded when it is asked for."""

    recordings: Recordings
    call: Call
    growth: Growth
    in_rows: bool = False  # code may have its rows as data, as there are calls of other lengths

    def shorter(self, size: int) -> Iterator[RecordedCall]:
        """With fewer items in each list; ``size``: how many instructions this call has.

        A few show as well as one less what depends on the length, and take less time and memory.
        """
        count = self.growth.steps(self.call.key)
        few = count - max(FEW, count // 8)
        for less in (few, 1) if is_large(size) and few > 1 else (1,):
            made = self._shorter(less)
            if made is not None:
                yield made

    @functools.cached_property
    def shortest(self) -> RecordedCall | None:
        """With two items in its shortest list."""
        less = self.growth.steps(self.call.key) - 2
        return self._shorter(less) if less > 0 else None

    @functools.cached_property
    def half(self) -> RecordedCall | None:
        """With half as many items in its shortest list."""
        count = self.growth.steps(self.call.key)
        return self._shorter(count // 2) if count > 3 else None

    @functools.cached_property
    def _known(self) -> dict[int, RecordedCall | None]:
        return {}

    def _shorter(self, less: int) -> RecordedCall | None:
        """With so many steps of growth less; a small one is recorded once."""
        if less in self._known:
            return self._known[less]
        made = self._recorded(less)
        if made is None or not is_large(len(made.recording)):
            self._known[less] = made
        return made

    def _recorded(self, less: int) -> RecordedCall | None:
        call = self.growth.resized(self.call, -less)
        places = None if call is None else Places.of(call.key, self.call.key)
        made = None if call is None or places is None else self.recordings.attempt(call)
        if call is None or places is None or made is None:
            return None
        recording = lifted_of(made.recording, call, made.captured)
        root = wanted_of(recording)
        if root is None:
            return None
        return_free_memory(len(recording))
        return placed_among(RecordedCall.of(call, recording, root.position), places)


@dataclass(frozen=True, eq=False)
class KnownLengths:
    """The same call at other lengths, as it was recorded before."""

    known: RecordedCall
    shortest: RecordedCall | None
    half: RecordedCall | None = None
    in_rows: bool = True

    def shorter(self, size: int) -> Iterator[RecordedCall]:
        """With fewer items in each list."""
        yield self.known


def machine_code(
    call: RecordedCall,
    others: OtherLengths | KnownLengths | None = None,
    dtype: str = "float64",
    contract: bool = True,
    affords: Callable[[float], bool] | None = None,
) -> MachineCode:
    """Machine code for a recorded call, and for shorter ones if it can serve them too.

    ``affords``: whether so many seconds may be spent on it; if not, TooDear.
    """
    program = call.program()
    cost = cost_of(program)
    if affords is not None and not affords(cost):
        raise TooDear(cost)
    try:
        return _machine_code(call, program, others, dtype, contract)
    except NotLiftable:
        if not program.loops:
            raise
        return _machine_code(call, call.program(loops=False), others, dtype, contract)


def cost_of(program: Program) -> float:
    """Seconds that machine code for a program will take, as an estimate."""
    count = len(program.instructions)
    return LLVM.of(count if program.steps is None else count + count // 2)


def _machine_code(
    call: RecordedCall,
    program: Program,
    others: OtherLengths | KnownLengths | None,
    dtype: str,
    contract: bool,
) -> MachineCode:
    if others is None or program.steps is not None:
        call.forget_graph()
        return MachineCode(call, program, dtype, contract)
    is_long = bool(program.loops) or len(program.instructions) > FEW_SHAPES
    if is_long and (repeating := _repeating(call, program, others, dtype, contract)):
        return repeating
    if program.loops:
        return MachineCode(call, program, dtype, contract)
    for other in others.shorter(len(call.recording)):
        asked = [other]
        try:
            less, arranged = prefix_of(other, call, program)
            shortest = None if less.varying() else others.shortest
            if shortest is not None:  # it leaves early, and does as much with one integer less
                other = shortest
                asked = [asked[0], shortest]
                less, arranged = prefix_of(other, call, program)
            varying, optional = less.varying(), less.missing
            if optional:
                shortest = others.shortest
                if shortest is None:
                    raise NotLiftable("another length lacks an operation")
                asked = [asked[0], shortest]
                least = Prefix(shortest, arranged)
                varying, optional = varying | least.varying(), optional | least.missing
                varying |= cut_likewise(arranged, varying, optional)
            made = MachineCode(call, arranged, dtype, contract, varying, optional)
            if made.fit_of(other, less) is not None:
                if made.source is not None:
                    made.lengths = tuple([replace(x) for x in asked])  # without their graphs
                return made
            break
        except NotLiftable:
            continue
    repeating = None if is_long else _repeating(call, program, others, dtype, contract)
    in_rows = repeating or _in_rows(call, program, others, dtype, contract)
    return in_rows or MachineCode(call, program, dtype, contract)


def _in_rows(
    call: RecordedCall,
    program: Program,
    others: OtherLengths | KnownLengths,
    dtype: str,
    contract: bool,
) -> MachineCode | None:
    """Machine code whose rows are data, for lengths that are no prefix of the call's, if it can."""
    if not others.in_rows:
        return None
    for other in others.shorter(len(call.recording)):
        try:
            less = Smaller(other, program)
            varying = less.walks()
            made = MachineCode(call, program, dtype, contract, varying, smaller=less)
            half = others.half
            if made.fit_of(other, less) is None or (half and made.fit_for(half) is None):
                continue
            if made.source is not None:
                made.lengths = (replace(other),)
            return made
        except NotLiftable:
            continue
    return None


def _repeating(
    call: RecordedCall,
    program: Program,
    others: OtherLengths | KnownLengths,
    dtype: str,
    contract: bool,
) -> MachineCode | None:
    """Machine code with loops in time for any number of iterations up to the call's, if it can."""
    in_loops = program if program.loops else call.in_loops()
    if in_loops is None:
        return None
    ended = call.ended(in_loops, sorts=contract)
    for other in others.shorter(len(call.recording)):
        try:
            less = Prefix(other, ended)
            if not less.varying() or not repeats_alike(less):
                continue
            made = MachineCode(call, ended, dtype, contract, less.varying())
            if made.fit_of(other, less) is not None:
                if made.source is not None:
                    made.lengths = (replace(other),)
                return made
        except NotLiftable:
            continue
        break
    return None


class Builder:
    """Builds machine code for the variants of one function while its captured state stays."""

    def __init__(
        self,
        tracer: Tracer,
        captured: CapturedState,
        dtype: str,
        always: bool,
        contract: bool,
    ) -> None:
        """``always``: for small recordings too."""
        self._recordings, self._captured = Recordings(tracer, captured), captured
        self._dtype, self._always, self._contract = dtype, always, contract
        self._shared: dict[Any, SharedCode] = {}  # by the outlines of calls

    def use(self, tracer: Tracer) -> None:
        """Make recordings of other lengths with this."""
        self._recordings = Recordings(tracer, self._captured)

    def lengths(self, call: Call) -> Lengths | None:
        """The lengths of a call's lists; None where it passes none."""
        if call.comes_again or not self._recordings.tracer.select:
            return None
        shape = outline_of(call.key)
        if not has_lengths(shape):
            return None
        shape = (shape, self._captured.marks(call.values))
        known = self._shared.pop(shape, None) or SharedCode()
        self._shared[shape] = known
        while len(self._shared) > FAMILIES:
            del self._shared[next(iter(self._shared))]
        known.meet(call.key)
        return Lengths(call.key, known)

    def is_spread(self, structures: Iterable[Structure]) -> bool:
        """Whether recordings are of many combinations of lengths, none of which comes often.

        Where lists grow together there are few, and a recording of one is for calls that come soon.
        """
        known = [len(structure.variants) for structure in structures if structure.variants]
        if len(known) < SEVERAL or 2 * len(known) <= sum(known):
            return False
        return any(vary_independently(list(x.keys)) for x in self._shared.values())

    @property
    def may_share(self) -> bool:
        """Whether code may be built that calls of several lengths share."""
        return any(x.families or x.vain < VAIN for x in self._shared.values())

    def forget(self, machine: MachineCode | None) -> None:
        """Let no further call join this code."""
        if machine is None:
            return
        for known in self._shared.values():
            known.families[:] = [x for x in known.families if x.machine is not machine]
            known.single.pop(machine, None)

    def may_build(self, variant: Variant, call: Call) -> bool:
        """Whether there may be machine code for a variant at all."""
        return self._hopeless(lifted_of(variant.recording, call, variant.captured)) is None

    def _hopeless(self, recording: Recording) -> str | None:
        if wanted_of(recording) is None:
            return "it returns no single Value, and no numbers"
        if self._dtype == "float32" and any(x.is_integer for x in recording.outputs):
            return "it returns integers, which float32 may not hold"
        if len(recording) < SMALL and not self._always:
            return f"it is small (under {SMALL} instructions)"
        return None

    def build(
        self,
        variant: Variant,
        call: Call,
        expected: Expected | None = None,
        affords: Callable[[float], bool] | None = None,
        original: Original | None = None,
    ) -> Built:
        """Machine code for a variant, if it has the structure, checked.

        Against the tape, of which ``expected`` is what it gave for this call, where that is known;
        but first against the ``original``, if that is given: then the variant lets go of its
        instructions as soon as lifting does not need them. ``affords``: whether so many seconds may
        be spent on it.
        """
        recording = lifted_of(variant.recording, call, variant.captured)
        root, hopeless = wanted_of(recording), self._hopeless(recording)
        if root is None or hopeless is not None:
            return Built(reason=hopeless, attempted=False)
        if original is None:
            expected = expected or on_tape(variant, call)
            if expected is None:
                return Built(reason=_NO_RESULT)
        size = len(recording)
        if is_large(size):
            variant.forget_tape()  # lifting takes as much memory again
        lengths = self.lengths(call)
        others, source = None, RecordedCall.of(call, recording, root.position)
        if lengths is not None and lengths.growth is not None:
            others = OtherLengths(self._recordings, call, lengths.growth, lengths.tries_rows)
            source = replace(source, births=lengths.births(recording, call.first))
        margins = margins_take(size, has_decisions(recording))
        del recording
        graph = None if original is None else source.without_instructions()
        try:
            if graph is not None and original is not None:
                source = graph
                variant.shed(original.record_again)
                return_free_memory(size)
            machine = machine_code(source, others, self._dtype, self._contract, affords)
        except TooDear as found:
            lifting = LIFTING * found.cost + margins
            return Built(cost=found.cost + margins, lifting=lifting, put_off=True)
        except NotLiftable as reason:
            if graph is not None and variant.recover(call):  # with its instructions, then
                return self.build(variant, call, expected, affords)
            return Built(reason=str(reason))
        except ImportError as error:  # of llvmlite
            warnings.warn(str(error), stacklevel=errors.caller_depth() + 1)
            return Built(reason=str(error))
        except Exception as error:  # the tape still serves: say why, and go on
            return Built(reason=f"{type(error).__name__}: {error}")
        binding, cost = Binding(machine, machine.fit), cost_of(machine.program) + margins
        equals_eager = original is not None and original.machine_code_agrees(variant, call, binding)
        if not equals_eager:
            expected = expected or on_tape(variant, call)
            if expected is None:
                return Built(reason=_NO_RESULT, cost=cost)
            if not agrees(variant, call, binding, expected):
                return Built(reason="its result differs (please report this)", cost=cost)
        superseded = frozenset[MachineCode]()
        if lengths is not None:
            tried = lengths.grows_by_numbers or lengths.tries_rows
            growth = lengths.growth if tried else None
            surely = not lengths.grows_by_numbers
            superseded = lengths.known.add(Family(call.key, machine), growth, surely)
        return Built(binding, superseded=superseded, cost=cost, equals_eager=equals_eager)

    def may_join(self, call: Call) -> bool:
        """Whether there is code of a call that is like this one, and not shorter."""
        lengths = self.lengths(call)
        return lengths is not None and lengths.is_served

    def join(self, call: Call, made: Trace) -> Variant | None:
        """A variant that runs on the code of a longer call, if there is one and it fits."""
        recording = lifted_of(made.recording, call, made.captured)
        root, lengths = wanted_of(recording), self.lengths(call)
        if lengths is None or root is None:
            return None
        for family in lengths.known.families:
            fit = family.fit_for(call, recording, root.position)
            if fit is None:
                continue
            variant, binding = Variant.of(made), Binding(family.machine, fit)
            expected = on_tape(variant, call)
            if expected is not None and not agrees(variant, call, binding, expected):
                return None
            variant.binding = binding
            variant.forget_tape()
            return variant
        return None

    def longer(self, call: Call) -> Call | None:
        """A call half as long again, where this one is longer than its family's code serves.

        Where there is no such code yet, but there may be: as long as the longest so far.
        """
        lengths = self.lengths(call)
        growth = None if lengths is None else lengths.growth
        if lengths is None or growth is None or lengths.is_served:
            return None
        if lengths.independent is not None:
            return lengths.longest(call)
        if not lengths.known.families:
            tries = lengths.grows_by_numbers or lengths.tries_rows
            return lengths.longest(call) if tries else None
        return growth.resized(call, max(1, growth.steps(call.key) // 2))

    def attempt(self, call: Call) -> Trace | None:
        """A recording of a call that nobody made; None where the function refuses it."""
        return self._recordings.attempt(call)
