"""trace → build → run: what becomes of a call that no variant serves yet.

In: a call, and the structure of its arguments. Out: a ``Run`` of a variant that was made for it.
Each stage hands its result to the next: a ``Trace``, a ``Built``, the ``Run``.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.carried import Carried
from chainrule.compiler.capture.outside import Changes
from chainrule.compiler.capture.progress import report_progress
from chainrule.compiler.capture.random_states import random_states_kept
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.capture.running import Trace, may_be_alike
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.runtime.branching import Branching
from chainrule.compiler.runtime.building import Builder, Original
from chainrule.compiler.runtime.causes import (
    SEVERAL,
    most_frequent,
    own_paths,
    reasons_for_recordings,
)
from chainrule.compiler.runtime.counts import Counts
from chainrule.compiler.runtime.heap import is_large, return_free_memory
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.lengths import outline_of
from chainrule.compiler.runtime.machine import MachineCode
from chainrule.compiler.runtime.memory import memory
from chainrule.compiler.runtime.refusals import (
    failure_of,
    is_of_numbers,
    refuse_arrays_of_values,
    refuse_many,
    refuse_values_around,
)
from chainrule.compiler.runtime.sharing import differentiated, shared
from chainrule.compiler.runtime.structures import Structures
from chainrule.compiler.runtime.unrecorded import Formulas, Source
from chainrule.compiler.runtime.variants import (
    EAGERLY,
    Binding,
    Path,
    Run,
    Structure,
    Variant,
    branches,
)
from chainrule.compiler.runtime.verification import (
    Expected,
    check_against_eager,
    machine_code_agrees,
)
from chainrule.compiler.workers import are_alone
from chainrule.core.interrupts import Held

REACHED = (
    "it is passed an object that it reaches by itself too: let it have one only as an argument, or "
    "only as a global"
)
HASHED = "it may ask for the hash of an object, or for the order of objects in a set"
NO_TAPE = (None, EAGERLY)  # what is no run on the tape


@dataclass(frozen=True)
class Options:
    """What a user asks ``compile`` for; see there."""

    dtype: str = "float64"
    on_fallback: str = "warn"
    lift: bool | None = None
    contract: bool = True
    sizes: Source | None = None


class Pipeline:
    """The variants of one function while its captured state stays the same."""

    def __init__(
        self,
        tracer: Tracer,
        captured: CapturedState,
        options: Options,
        counts: Counts,
        ledger: Ledger,
        lock: threading.RLock,
        on_forget: Callable[[Collection[Variant], bool], None],
    ) -> None:
        """``on_forget`` is told of variants that may serve cached calls otherwise, or are gone."""
        self.captured, self.lock, self._on_forget = captured, lock, on_forget
        self._ledger, self._lifts_at_once = ledger, options.lift is True
        self.structures = Structures()
        #: whether recordings are of many structures, none of which is likely to come soon
        self.is_spread = False
        self._counts = counts
        keeps_bits = options.lift is False  # those of eager's gradients
        self._branching = Branching(tracer, captured, keeps_bits, self._use)
        self._builder: Builder | None = None  # nothing is lifted
        if options.lift is not False:
            self._builder = Builder(
                tracer, captured, options.dtype, options.lift is True, options.contract
            )
        self.formulas: Formulas | None = None  #: what builds variants without recording them
        if options.sizes is not None:
            self.formulas = options.sizes.of(
                tracer, captured, options.dtype, options.contract, counts
            )

    @property
    def _tracer(self) -> Tracer:
        return self._branching.tracer

    @property
    def _has_sides(self) -> bool:
        """Whether recordings compute both sides of branches by now."""
        return bool(getattr(self._tracer, "both", False))

    @property
    def waits_for_lengths(self) -> bool:
        """Whether recordings of both sides serve all calls like them: others wait to pay for one.

        There is nothing that a user could write instead.
        """
        return self._has_sides and self.structures.are_served_by_sides

    def _use(self, tracer: Tracer) -> None:
        """Recordings are made in another way from now on."""
        if self._builder is not None:
            self._builder.use(tracer)

    def structure(self, call: Call) -> Structure:
        """What is known of such calls."""
        if self.captured.reaches(call.containers):
            return Structure(blocked=REACHED)
        if self.captured.hashes and call.has_identity:
            return Structure(blocked=HASHED)
        key = (call.key, self.captured.marks(call.values))
        structure, gone = self.structures.meet(key)
        if gone:
            self._on_forget(gone, True)
        return structure

    def kept(self) -> list[Variant]:
        """All variants."""
        return self.structures.variants()

    def own_paths(self) -> str:
        """Why recordings do not pay for the function, and what to write instead."""
        return own_paths(most_frequent(self._tracer.source, self.structures))

    def reason_to_record(self) -> str | None:
        """What most of several recordings were made for, and what to write instead.

        Nothing has to be for lists of other lengths, once these run on the code of a longer one.
        """
        variants = self.kept()
        found = most_frequent(self._tracer.source, self.structures)
        if len(variants) < SEVERAL or found is None:
            return None
        shares = any(v.machine is not None and not (v.is_own or v.borrows) for v in variants)
        if found.is_length and shares:
            return None
        times = reasons_for_recordings(variants).get(found, len(variants))
        return f"{found}{found.advice}" if 2 * times > len(variants) else None

    def forget(self, variants: Iterable[Variant]) -> None:
        """Drop some variants, and the machine code that was built from them."""
        forgotten = list(variants)
        gone = set(map(id, forgotten))
        for variant in self.kept():
            if id(variant) in gone and variant.is_own:
                for keeper in (self._builder, self.formulas):
                    if keeper is not None:
                        keeper.forget(variant.machine)
        self.structures.drop(forgotten)
        self._on_forget(forgotten, True)

    def record(self, structure: Structure, call: Call, at_once: bool, build: bool = True) -> Run:
        """Record a call that no variant serves, and run it.

        ``at_once``: whatever it costs, and so is machine code unless not ``build``.
        """
        started = time.thread_time()
        try:
            if at_once:
                refuse_many(structure)
            shape = outline_of(call.key)
            others = [] if structure.variants else self.structures.of_other_lengths(shape)
            costs = [v.build_cost for v in others if v.build_cost is not None]
            cost = max(costs, default=None)  # so that not every length is lifted to find it out
            make = functools.partial(self._new_variant, structure, call, cost, at_once, build)
            variant = self._branching.variant(structure, others, call, make)
        except Unrecordable as reason:
            structure.blocked = str(reason)
            structure.variants.clear()  # no call gets to them any more
            changes = reason.places if isinstance(reason, Changes) else ()
            return Run(Path.EAGER, reason=str(reason), changes=changes)
        except Exception as error:
            # The function's own error: let eager raise it, and try again another time.
            call.failed = failure_of(error)
            self.captured.restore()
            return EAGERLY
        except BaseException:  # Ctrl-C
            self.captured.restore()
            raise
        finally:
            self._counts.recording_seconds += time.thread_time() - started
        return variant.run(call, variant.binding) or EAGERLY

    def build_when_worth_it(self, variant: Variant, call: Call, at_once: bool = False) -> bool:
        """Build machine code for a variant that answers calls on the tape, if that pays by now.

        It costs little to use that of a longer call, once there is some. ``at_once``: whatever it
        costs. Returns whether it runs on other code than before.
        """
        if variant.may_join:
            if not (at_once or self.may_join_now(variant)):
                return False
            with _tried_again(variant):
                variant.may_join = False
                if self._joined(variant, call):
                    return True
        if not variant.waits or not self._may_build(variant, at_once):
            return False
        started = time.thread_time()
        with random_states_kept(), _tried_again(variant):
            self._build_or_join(variant, call, at_once=at_once)
            self._shed(variant)
        self._counts.recording_seconds += time.thread_time() - started
        return variant.binding is not None

    def may_join_now(self, variant: Variant) -> bool:
        """Whether to compare it with the code of a longer call by now: others wait too."""
        calls = variant.answered if self.is_spread else None
        affords = self._ledger.affords_joining(len(variant.recording), calls)
        return self._lifts_at_once or affords

    def _joined(self, variant: Variant, call: Call) -> bool:
        """Let a variant run on machine code of a longer call; whether it can."""
        if self._builder is None or variant.recording.shed:
            return False
        with random_states_kept():
            joined = self._builder.join(call, variant.trace)
        self._ledger.joined(len(variant.recording))
        if joined is None:
            return False
        variant.binding, variant.waits = joined.binding, False
        variant.forget_tape()
        self._shed(variant)
        return True

    def run_shared(self, structure: Structure, call: Call) -> Run | None:
        """Run a plain call on the machine code of ``value_and_grad``; None where it cannot be."""
        twin = self._twin(structure, call)
        known = None if twin is None else self._structure_of(twin)
        if twin is None or known is None or not known.variants:
            return None
        alike = [variant for variant in known.variants if variant.alike]
        for variant in alike:
            if variant.waits:
                self.build_when_worth_it(variant, twin)
        started = time.thread_time()
        with random_states_kept():
            found = shared(self._tracer.function, call, alike, structure.variants)
        self._counts.recording_seconds += time.thread_time() - started
        if isinstance(found, Variant):
            self._keep(structure, found)
            self._ledger.replayed(len(found.recording))
            return found.run(call, found.binding)
        may_be = any(variant.waits or variant.binding is not None for variant in alike)
        structure.own_code = found or not may_be
        return None

    def recorded_instead(self, structure: Structure, call: Call) -> Call | None:
        """The call of ``value_and_grad`` to record in the place of a plain one; None: itself.

        Numbers are recorded quicker as Values than as stand-ins, and both calls have one code. Who
        never asks for a gradient has code without.
        """
        twin = self._twin(structure, call)
        if twin is None:
            return None
        asked = [s.variants for (key, _), s in self.structures.items() if key[0] and s.variants]
        if not any(variants[0].alike and variants[0].machine for variants in asked):
            return None
        known = self._structure_of(twin)
        return twin if known is None or not (known.variants or known.blocked) else None

    def run_recorded(self, structure: Structure, call: Call) -> Run:
        """Run a plain call, now that one of ``value_and_grad`` was recorded in its place."""
        run = self.run_shared(structure, call)
        if run is None:
            structure.own_code = True  # it is recorded by itself
        return run or EAGERLY

    def _twin(self, structure: Structure, call: Call) -> Call | None:
        """The call of ``value_and_grad`` whose machine code a plain call may have."""
        if call.key[0] or structure.own_code or self._builder is None or self.formulas is not None:
            return None
        if not any(key[0] for key, _ in self.structures):
            return None  # nobody asked for a gradient
        return differentiated(call) if may_be_alike(self.captured) else None

    def _structure_of(self, call: Call) -> Structure | None:
        """What is known of such calls, if there were any."""
        return self.structures.get((call.key, self.captured.marks(call.values)))

    def run_unrecorded(self, structure: Structure, call: Call) -> Run | None:
        """Run a call by code that needs no recording of it; None where it has to be recorded."""
        if self.formulas is None or any(v.sizes is not None for v in structure.variants):
            return None
        started = time.thread_time()
        try:
            with random_states_kept():
                found = self.formulas.serve(call)
        except Exception:  # the function's own error: eager raises it
            self.captured.restore()
            return EAGERLY
        except BaseException:  # Ctrl-C
            self.captured.restore()
            raise
        finally:
            self._counts.recording_seconds += time.thread_time() - started
        if found is None:
            return None
        self._supersede(found.superseded)
        variant = self._added(structure, found.variant)
        return variant.run(call, variant.binding) or EAGERLY

    # --- build ------------------------------------------------------------------------------------

    def _supersede(self, machines: Collection[MachineCode]) -> None:
        """Let variants on the code of shorter calls join longer code, when they are met.

        Those that let go of their instructions are dropped: they would be recorded again anyway.
        """
        gone = [v for v in self.kept() if v.machine in machines]
        large = [v for v in gone if v.recording.shed]
        for variant in gone:
            variant.binding, variant.waits, variant.may_join = None, True, True
        if large:
            self.structures.drop(large)
        if gone:
            self._on_forget(gone, False)

    def _traced(self, structure: Structure, call: Call) -> Trace:
        """A recording of a call, unless it is refused."""
        self._counts.traces += 1
        started, of_numbers = time.thread_time(), is_of_numbers(call)
        try:
            made = self._tracer.trace(self.captured, call)
        except BaseException:
            self._ledger.recorded_in_vain(time.thread_time() - started, of_numbers)
            raise
        goes_other_ways = bool(structure.variants) or branches(made) > 0
        self._ledger.recorded(
            len(made.recording), goes_other_ways, of_numbers, self._has_sides, len(call.ints)
        )
        return_free_memory(len(made.recording))
        self._refuse(call, made)
        return made

    def _refuse(self, call: Call, made: Trace) -> None:
        """Refuse a recording of which a replay would give numbers where eager gives Values."""
        refuse_arrays_of_values(call, made)
        if call.key[0]:
            refuse_values_around(self._tracer.source, call, made)

    def _new_variant(
        self, structure: Structure, call: Call, cost: float | None, at_once: bool, build: bool
    ) -> Variant:
        """A variant on the code of a longer call, or else one of its own, checked against eager.

        ``cost``: seconds that its machine code will take, if that is known.
        """
        builder, made = self._builder, self._traced(structure, call)
        joined = None if builder is None else builder.join(call, made)
        if joined is not None:
            self._ledger.joined(len(made.recording))
            del made  # the variant lets go of it
            return self._added(structure, joined)
        variant = Variant.of(made)
        variant.build_cost = self._cost_beside(structure, variant) if cost is None else cost
        variant.waits = builder is not None and builder.may_build(variant, call)
        may_be_built = variant.waits and build and is_large(len(made.recording))
        if may_be_built and self._may_build(variant, at_once):
            confirmed = self._confirm(call, made)
            del made  # the variant lets go of it when it can
            self._build_large(variant, call, confirmed, self._build_or_join, at_once)
            return self._added(structure, variant)
        expected = self._check(variant, call, made)
        if variant.waits and build and self._may_build(variant, at_once):
            self._build_or_join(variant, call, expected, at_once)
        elif builder is not None and not variant.waits:
            self._build(variant, call)  # which says why there is none
        return self._added(structure, variant)

    @staticmethod
    def _cost_beside(structure: Structure, variant: Variant) -> float | None:
        """What machine code for another path of the same calls would take, if that is known."""
        alike = [x for x in structure.variants if _costs_alike(variant, x)]
        return max((x.build_cost for x in alike if x.build_cost is not None), default=None)

    def _build_large(
        self,
        variant: Variant,
        call: Call,
        confirmed: _Confirmed,
        build: Callable[..., bool],
        at_once: bool,
    ) -> None:
        """Machine code for a new variant, which was compared with another recording.

        The machine code itself is compared with eager, and no tape is made; where that does not
        tell, or there is no such code, the tape is.
        """
        started, seconds = time.thread_time(), confirmed.seconds
        original = _Original(self, self._tracer, confirmed.carried)
        if not build(variant, call, None, at_once, original):
            if not variant.recover(call):
                raise Unrecordable("two runs with the same arguments differ")
            self._compare(variant, call)
            seconds += time.thread_time() - started
        self._ledger.checked(len(variant.recording), seconds, is_of_numbers(call), len(call.ints))

    def _check(self, variant: Variant, call: Call, made: Trace) -> Expected | None:
        """Compare a variant with another recording and with eager; returns its result."""
        seconds, started = 0.0, time.thread_time()
        try:
            seconds = self._confirm(call, made).seconds
            started = time.thread_time()
            return self._compare(variant, call)
        finally:
            seconds += time.thread_time() - started
            self._ledger.checked(
                len(variant.recording), seconds, is_of_numbers(call), len(call.ints)
            )

    def _confirm(self, call: Call, made: Trace) -> _Confirmed:
        """Compare a recording with another one."""
        started = time.thread_time()
        others = call.values or made.captured  # the user's own Values, which carry numbers then
        carries = is_large(len(made.recording)) and (not others or are_alone())
        report_progress()
        carried = self._tracer.confirm(self.captured, call, made, carries)
        report_progress()
        return_free_memory(len(made.recording))
        return _Confirmed(time.thread_time() - started, carried)

    def _compare(self, variant: Variant, call: Call) -> Expected | None:
        """Compare a variant's result with eager's; returns it."""
        expected = check_against_eager(self._tracer.function, self.captured, variant, call)
        return_free_memory(len(variant.recording))
        return expected

    def may_join(self, call: Call) -> bool:
        """Whether there is machine code of a longer call like this."""
        return self._builder is not None and self._builder.may_join(call)

    def expect(self, call: Call) -> None:
        """Know of a call that will come, so that its lists are seen to have another length."""
        if self._builder is not None:
            self._builder.lengths(call)

    def _added(self, structure: Structure, variant: Variant) -> Variant:
        """Put a variant first."""
        structure.sides += self._has_sides
        self._shed(variant)
        return self._keep(structure, variant)

    def _keep(self, structure: Structure, variant: Variant) -> Variant:
        self.structures.put_first(structure, variant)
        builder = self._builder
        self.is_spread = builder is not None and builder.is_spread(self.structures.values())
        memory.add(self, variant)
        return variant

    def _shed(self, variant: Variant) -> None:
        """Let go of many instructions that machine code stands for."""
        if variant.binding is not None and is_large(len(variant.recording)):
            variant.shed(_Original(self, self._tracer).record_again)
            return_free_memory(len(variant.recording))

    def record_again(self, tracer: Tracer, call: Call) -> Recording:
        """A recording to go on with, for a variant that let go of its instructions."""
        with Held(yields=True), random_states_kept():
            self._counts.traces += 1
            return tracer.trace(self.captured, call).recording

    def _may_build(self, variant: Variant, at_once: bool) -> bool:
        return at_once or self._lifts_at_once or self.affords_building(variant)

    def affords_building(self, variant: Variant) -> bool:
        """Whether machine code may be built for a variant now, or shared code, by what it costs."""
        size, cost = len(variant.recording), variant.build_cost
        cost = variant.building_takes if cost is None else cost
        if not self._ledger.affords_building(size, cost):
            return False
        builder = self._builder
        is_for_one = self.is_spread and builder is not None and not builder.may_share
        return not is_for_one or self._ledger.pays_for_one(size, variant.answered, cost)

    def _build_or_join(
        self,
        variant: Variant,
        call: Call,
        expected: Expected | None = None,
        at_once: bool = False,
        original: Original | None = None,
    ) -> bool:
        """Machine code for a variant, of a longer call if there is some; or it waits on.

        Where the call is longer than all that there is code for, an even longer one is recorded
        and built first, so that not every length builds again. Arguments and result are those of
        ``_build``.
        """
        builder = self._builder
        assert builder is not None
        variant.waits = False
        for may_be_longer in (True, False):
            joined = builder.join(call, variant.trace)
            if joined is not None:
                variant.binding = joined.binding
                return False
            longer = builder.longer(call) if may_be_longer else None
            if longer is None:
                break
            self._build_longer(longer, at_once)
        return self._build(variant, call, expected, at_once, original)

    def _build_longer(self, call: Call, at_once: bool) -> None:
        """Machine code for a call that nobody made; not counted as a call.

        It is recorded once: what that costs may be what is missing for the code, until more calls
        have earned it.
        """
        assert self._builder is not None
        structure = self.structure(call)
        if structure.blocked is not None:
            return
        known = next((v for v in structure.variants if v.run(call, None) not in NO_TAPE), None)
        made = None if known is not None else self._builder.attempt(call)
        try:
            if known is not None:
                with _tried_again(known):
                    known.waits = False
                    self._build(known, call, None, at_once)
            elif made is not None:
                self._record_longer(structure, call, made, at_once)
        except Unrecordable as reason:
            structure.blocked = str(reason)
        except Exception:
            self.captured.restore()

    def _record_longer(self, structure: Structure, call: Call, made: Trace, at_once: bool) -> None:
        self._counts.traces += 1
        self._ledger.recorded(len(made.recording), of_sides=self._has_sides)
        self._refuse(call, made)  # it may go another way than the call that was made
        variant = Variant.of(made)
        if is_large(len(made.recording)) and self._may_build(variant, at_once):
            self._build_large(variant, call, self._confirm(call, made), self._build, at_once)
        else:
            self._build(variant, call, self._check(variant, call, made), at_once)
        self._added(structure, variant)

    def _build(
        self,
        variant: Variant,
        call: Call,
        expected: Expected | None = None,
        at_once: bool = False,
        original: Original | None = None,
    ) -> bool:
        """Build machine code for a variant, if it has the structure, and if it pays.

        ``expected``: what the tape gave for this call, where that is known. ``original``: what to
        compare the code with, so that no tape is needed; returns whether that was done, and they
        agree.
        """
        if self._builder is None:
            return False
        size, started = len(variant.recording), time.thread_time()
        affords = functools.partial(self._ledger.affords_building, size)
        unlimited = at_once or self._lifts_at_once
        built = self._builder.build(
            variant, call, expected, None if unlimited else affords, original
        )
        seconds = time.thread_time() - started
        self._counts.lifting_seconds += seconds
        if built.put_off:
            assert built.cost is not None
            variant.waits = True
            self._ledger.put_off(built.lifting, seconds)
            for other in (variant, *self.kept()):
                # One that is built by way of this longer one does not wait just now.
                if other.binding is None and _costs_alike(other, variant):
                    other.build_cost = max(other.build_cost or 0.0, built.cost)
            return False
        if built.attempted:
            cost = variant.building_takes if built.cost is None else built.cost
            self._ledger.built(size, seconds, cost)
        if variant.binding is None:
            variant.not_lifted = built.reason
        elif built.binding is not None:
            self._on_forget([variant], False)  # cached calls of it run on what it had before
        if built.binding is not None:
            variant.binding = built.binding
            variant.forget_tape()
        return_free_memory(len(variant.recording))
        self._supersede(built.superseded)
        if variant.machine is not None and variant.machine.varying:
            self._offer()
        return built.equals_eager

    def _offer(self) -> None:
        """There is machine code that shorter calls may use: those that wait are to try it."""
        waiting = [variant for variant in self.kept() if variant.waits]
        for variant in waiting:
            variant.may_join = True
        if waiting:
            self._on_forget(waiting, False)


def _costs_alike(variant: Variant, other: Variant) -> bool:
    """Whether machine code for a variant is likely to take what another's would."""
    return len(variant.recording) <= 2 * len(other.recording)


@contextmanager
def _tried_again(variant: Variant) -> Iterator[None]:
    """If Ctrl-C ends this block, the next call of the variant tries again what is tried inside."""
    before = variant.waits, variant.may_join
    try:
        yield
    except BaseException:
        variant.waits, variant.may_join = before
        raise


@dataclass(frozen=True, eq=False)
class _Confirmed:
    """A recording was compared with another one."""

    seconds: float
    carried: Carried | None  # what the other run computed, where that may be compared with


@dataclass(frozen=True)
class _Original:
    """The function itself, as it was recorded then."""

    pipeline: Pipeline
    tracer: Tracer
    carried: Carried | None = None  # what another recorded run computed

    def machine_code_agrees(self, variant: Variant, call: Call, binding: Binding) -> bool:
        """Whether machine code gives eager's results; False where that does not tell."""
        return_free_memory(len(variant.recording))
        function, captured = self.tracer.function, self.pipeline.captured
        return machine_code_agrees(function, captured, variant, call, binding, self.carried)

    @property
    def record_again(self) -> Callable[[Call], Recording]:
        """Records a call once more; without what was computed, which nobody needs by then."""
        return functools.partial(self.pipeline.record_again, self.tracer)
