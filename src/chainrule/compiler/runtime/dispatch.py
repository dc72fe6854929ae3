"""Which path answers a call of a compiled function.

In: a call's flattened arguments. Out: a ``Run``. Each structure of arguments has its variants; a
call takes the first whose static integers, indices and guards all hold. If none does, the call goes
through the stages trace → learn → build → run, each of which hands its result to the next. What
cannot be recorded soundly runs eagerly, and the Run says why.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import Surroundings, survey
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Trace, confirm, random_states_kept, trace
from chainrule.compiler.runtime.building import Builder
from chainrule.compiler.runtime.counts import Counts
from chainrule.compiler.runtime.fast_path import FastPath
from chainrule.compiler.runtime.learning import LEARNT, NUMBERS, Family, Integers, Learner
from chainrule.compiler.runtime.variants import EAGERLY, Path, Run, Structure, Variant
from chainrule.compiler.runtime.verification import check_against_eager
from chainrule.core import errors
from chainrule.core.interrupts import Held

STRUCTURES = 256  # of arguments, the least recently used goes
VARIANTS = 16  # of one structure, likewise
RECORDINGS = 200  # of one structure that led to a new variant
CHANGES = 20  # of the captured state, in a row


class FallbackWarning(UserWarning):
    """A compiled function runs eagerly; the message says why.

    >>> from chainrule import FallbackWarning
    >>> issubclass(FallbackWarning, UserWarning)
    True
    """


class FallbackError(RuntimeError):
    """A function compiled with ``on_fallback="raise"`` cannot be recorded.

    >>> from chainrule import FallbackError
    >>> issubclass(FallbackError, RuntimeError)
    True
    """


@dataclass(frozen=True)
class Options:
    """What a user asks ``compile`` for; see there."""

    dtype: str = "float64"
    on_fallback: str = "warn"
    lift: bool | None = None
    contract: bool = True


@dataclass(frozen=True, eq=False)
class Stages:
    """What works for one captured state: the state, and the makers of recordings and code."""

    captured: Surroundings
    learner: Learner
    builder: Builder | None  # None: nothing is lifted


class Dispatch:
    """The variants of one function, its captured state and its fast path.

    Whoever runs a call holds ``lock`` until its numbers have been read.
    """

    def __init__(self, function: Callable[..., Any], options: Options) -> None:
        self.function, self.options = function, options
        self.lock = threading.RLock()
        self.structures: dict[Any, Structure] = {}
        self.fast_path: FastPath | None = None
        self.counts = Counts()
        self.reasons: dict[str, int] = {}  # why calls ran eagerly, and how many
        self.last: Path | None = None  # the path of the last call
        self._stages: Stages | None = None
        self._changes = 0
        self._inside = False  # a call is being computed

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__name__", "function"))

    @property
    def captured(self) -> Surroundings | None:
        """The globals, closures and attributes that the function reads; None before a call."""
        return None if self._stages is None else self._stages.captured

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Hold the lock; whether no call is being computed.

        The lock keeps other threads out, but not what Python runs in between on this one: signal
        handlers and finalizers.
        """
        with self.lock:
            if self._inside:
                yield False
                return
            self._inside = True
            try:
                yield True
            finally:
                self._inside = False

    # --- calls ------------------------------------------------------------------------------------

    def run(self, call: Call) -> Run:
        """Compute a call by one of its variants, recorded if need be, or leave it to eager."""
        self.counts.calls += 1
        run = self._run(call)
        self.last = run.path
        if run.path is not Path.EAGER:
            self.counts.replayed += 1
        elif run.reason is None:
            self.counts.eager += 1
        else:
            self.fall_back(run.reason)
        return run

    def answer(self, arguments: tuple[Any, ...]) -> tuple[float, Any] | None:
        """The value and gradient of a cached call; None for the slow path."""
        if self.fast_path is None:
            return None
        with self.lock:
            fast_path, captured = self.fast_path, self.captured
            if self._inside or fast_path is None:
                return None
            if captured is None or captured.changed() is not None:
                self.fast_path = None
                return None
            self._inside = True
            try:
                answer = fast_path.answer(arguments)
            finally:
                self._inside = False
            if answer is not None:
                self.counts.calls += 1
                self.counts.replayed += 1
                self._changes, self.last = 0, Path.MACHINE
            return answer

    def cache(self, call: Call, run: Run) -> None:
        """Let the fast path answer such calls from now on, if machine code did."""
        if run.path is Path.MACHINE and run.variant is not None:
            if self.fast_path is None:
                self.fast_path = FastPath()
            self.fast_path.learn(call, run.variant)

    def _run(self, call: Call) -> Run:
        if call.refused is not None:
            return Run(Path.EAGER, reason=call.refused)
        try:
            stages = self._refreshed()
            structure = self._structure(stages, call)
        except Unrecordable as reason:
            return Run(Path.EAGER, reason=str(reason))
        if structure.blocked is not None:
            return Run(Path.EAGER, reason=structure.blocked)
        for place, variant in enumerate(structure.variants):
            run = variant.run(call, variant.binding)
            if run is not None:
                if place and run.path is not Path.EAGER:
                    structure.variants.insert(0, structure.variants.pop(place))
                return run
        with Held():  # Ctrl-C waits: half a recording would leave max replaced and Values moved
            run = self._learn_integers(stages, structure, call)
            return run or self._record(stages, structure, call)

    def _refreshed(self) -> Stages:
        """The stages for the captured state as it is; if it changed, all is recorded anew."""
        started = time.perf_counter()
        stages = self._stages
        change = None if stages is None else stages.captured.changed()
        if change is None:
            self._changes = 0
        else:
            self._changes += 1
            if self._changes > CHANGES:
                raise Unrecordable(f"{change} changes all the time")
            self.structures.clear()
            self.fast_path = None
        if stages is None or change is not None:
            stages = self._stages = self._new_stages()
        self.counts.checking_seconds += time.perf_counter() - started
        return stages

    def _new_stages(self) -> Stages:
        captured, options = survey(self.function), self.options
        learner = Learner(self.function, captured, self.counts)
        if options.lift is False:
            return Stages(captured, learner, None)
        always, dtype, contract = options.lift is True, options.dtype, options.contract
        return Stages(captured, learner, Builder(learner, captured, dtype, always, contract))

    def _structure(self, stages: Stages, call: Call) -> Structure:
        """What is known of such calls."""
        key = (call.key, stages.captured.marks(call.values))
        structure = self.structures.pop(key, None) or Structure()
        self.structures[key] = structure
        while len(self.structures) > STRUCTURES:
            del self.structures[next(iter(self.structures))]
        return structure

    # --- trace → learn → build → run --------------------------------------------------------------

    def _learn_integers(self, stages: Stages, structure: Structure, call: Call) -> Run | None:
        """Run a variant for which only an integer in its place was new."""
        for variant in structure.variants:
            binding = variant.binding
            if binding is None or binding.family is None or binding.slots is None:
                continue
            if stages.learner.teach_call(binding.family, binding.fit, binding.slots, call):
                run = variant.run(call, binding)
                if run is not None and run.path is not Path.EAGER:
                    return run
        return None

    def _record(self, stages: Stages, structure: Structure, call: Call) -> Run:
        """Record a call that no variant serves, and run it."""
        started = time.perf_counter()
        self.fast_path = None  # what a recording shows may contradict what is cached
        try:
            with random_states_kept():
                self.counts.traces += 1
                made = trace(self.function, stages.captured, call)
                variant = self._learn(stages, structure, call, made)
                if variant is None:
                    variant = self._new_variant(stages, structure, call, made)
        except Unrecordable as reason:
            structure.blocked = str(reason)
            return Run(Path.EAGER, reason=str(reason))
        except Exception as error:
            # The function's own error: let eager raise it, and try again another time.
            call.failed = f"recording it raised {type(error).__name__}: {error}"
            stages.captured.restore()
            return EAGERLY
        finally:
            self.counts.recording_seconds += time.perf_counter() - started
        return variant.run(call, variant.binding) or EAGERLY

    def _learn(
        self, stages: Stages, structure: Structure, call: Call, made: Trace
    ) -> Variant | None:
        """The variant that this recording is one more case of, if there is one."""
        for variant in structure.variants:
            shown = variant.integers.learn(call, made)
            if shown == NUMBERS and not structure.numbers_follow:
                structure.numbers_follow = True
                structure.variants.clear()
                return None
            if shown != LEARNT:
                continue
            binding = variant.binding
            if binding is None or binding.fit.known == len(variant.integers.places):
                return variant
            # More operands depend on integers than the machine code knows of.
            if not binding.is_own:  # the code of a longer call: look again whether that serves
                structure.variants.remove(variant)
                return None
            self._build(stages, variant, call, made)
            return variant
        return None

    def _new_variant(
        self, stages: Stages, structure: Structure, call: Call, made: Trace
    ) -> Variant:
        """A variant on the code of a longer call, or else one of its own.

        Where the call is longer than all that there is code for, an even longer one is recorded
        and built first, so that not every length builds again.
        """
        _count_recording(structure)
        may_be_longer, builder = True, stages.builder
        while builder is not None:
            variant = builder.join(call, made)
            if variant is not None:
                return _added(structure, variant)
            longer = builder.longer(call) if may_be_longer else None
            if longer is None:
                break
            self._record_longer(stages, *longer)
            may_be_longer = False
        return self._own_variant(stages, structure, call, made)

    def _record_longer(self, stages: Stages, call: Call, made: Trace) -> None:
        """Make a variant for a call that was not made; not counted as one."""
        structure = self._structure(stages, call)
        self.counts.traces += 1
        try:
            if self._learn(stages, structure, call, made) is None:
                _count_recording(structure)
                self._own_variant(stages, structure, call, made)
        except Unrecordable as reason:
            structure.blocked = str(reason)
        except Exception:
            stages.captured.restore()

    def _own_variant(
        self, stages: Stages, structure: Structure, call: Call, made: Trace
    ) -> Variant:
        """A variant built from this recording, checked against eager."""
        confirm(self.function, stages.captured, call, made)
        integers = Integers.of(call, made)
        if not structure.numbers_follow and not stages.learner.vary(integers, call, made):
            structure.numbers_follow = True
            structure.variants.clear()
        if structure.numbers_follow:
            integers.make_static(call.ints)
        variant = Variant.of(made, integers)
        check_against_eager(self.function, stages.captured, variant, call)
        self._build(stages, variant, call, made)
        return _added(structure, variant)

    def _build(self, stages: Stages, variant: Variant, call: Call, made: Trace) -> None:
        """Build machine code for a variant, if it has the structure."""
        if stages.builder is None:
            return
        started = time.perf_counter()
        built = stages.builder.build(variant, call, made)
        variant.binding, variant.not_lifted = built.binding, built.reason
        if built.superseded is not None:  # its calls join the longer code when they come again
            for structure in self.structures.values():
                structure.variants = [
                    v for v in structure.variants if v.machine is not built.superseded
                ]
        self.counts.lifting_seconds += time.perf_counter() - started

    # --- eager ------------------------------------------------------------------------------------

    def fall_back(self, reason: str) -> None:
        """Note that a call runs eagerly, and tell the user once per reason."""
        self.counts.eager += 1
        self._tell(reason)

    def block(self, call: Call) -> None:
        """Eager did what recording could not: do not try again."""
        if call.failed is not None and self._stages is not None:
            with self.lock:
                self._structure(self._stages, call).blocked = call.failed
                self._tell(call.failed)

    def _tell(self, reason: str) -> None:
        first = reason not in self.reasons
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        message = f"{self.name} runs eagerly: {reason}"
        if self.options.on_fallback == "raise":
            raise FallbackError(message)
        if self.options.on_fallback == "warn" and first:
            warnings.warn(message, FallbackWarning, stacklevel=errors.caller_depth() + 1)

    # --- for training -----------------------------------------------------------------------------

    def count_replayed(self, calls: int) -> None:
        """Count calls that training computed by itself."""
        self.counts.calls += calls
        self.counts.replayed += calls

    def captured_arrays(self) -> list[Any]:
        """The arrays that the function reaches by itself."""
        return [] if self.captured is None else [array for array, _, _ in self.captured.arrays]

    def is_fresh(self) -> bool:
        """Whether the captured state is as it was."""
        return self.captured is not None and self.captured.changed() is None

    def teach(self, family: Family, call: Call, ids: Sequence[int]) -> bool:
        """Record the longest call of a family with these integers; whether that showed any."""
        with self.lock, random_states_kept():
            return self._stages is not None and self._stages.learner.teach(family, call, ids)


def _count_recording(structure: Structure) -> None:
    structure.recordings += 1
    if structure.recordings > RECORDINGS:
        raise Unrecordable("its branches or integers lead somewhere new all the time")


def _added(structure: Structure, variant: Variant) -> Variant:
    """Put a variant first."""
    structure.variants.insert(0, variant)
    del structure.variants[VARIANTS:]
    return variant
