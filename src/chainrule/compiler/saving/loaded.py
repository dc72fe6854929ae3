"""A saved function in use: its variants answer calls as those of any compiled function.

In: a ``SavedFunction``. Out: a ``LoadedDispatch``. Nothing is recorded any more. Calls are answered
by the tape until that has taken about as long as machine code takes to build; the code is then
built from the recordings it was built from at first, and so has the same bits.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.running import Trace
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.lift.alignment import Layout
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.runtime.building import KnownLengths, machine_code
from chainrule.compiler.runtime.costs import BUILD, REPLAY, allowance
from chainrule.compiler.runtime.counts import Counts
from chainrule.compiler.runtime.dispatch import Dispatch, Wanted
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.machine import MachineCode
from chainrule.compiler.runtime.pipeline import Options, Pipeline
from chainrule.compiler.runtime.structures import Structures
from chainrule.compiler.runtime.variants import EAGERLY, Binding, Run, Structure, Variant
from chainrule.compiler.runtime.verification import agrees, on_tape
from chainrule.compiler.saving.plain import SaveError, damaged
from chainrule.compiler.saving.reading import (
    SavedCode,
    SavedFunction,
    SavedStructure,
    SavedVariant,
    check_shorter,
)
from chainrule.compiler.saving.replay import Replay
from chainrule.compiler.saving.structures import portable, traced_texts
from chainrule.core.backend import Value
from chainrule.core.interrupts import Held

KNOWN = 1024  # keys of calls whose structure was found


class LoadedLedger(Ledger):
    """Machine code is worth it once the tape has taken as long as it will take to build."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once = False
        self._on_tape = 0.0  # seconds, estimated from instructions: the same calls, the same paths

    @property
    def is_endless(self) -> bool:
        """No call runs eagerly: there is no source."""
        return True

    def affords_recording(  # noqa: D102
        self,
        joins: bool = False,
        asked: bool = False,
        of_numbers: bool = False,
        integers: int = 0,
    ) -> bool:
        return True  # nothing is recorded: the pipeline leaves it to the replay at once

    def affords_building(self, instructions: int, cost: float | None = None) -> bool:  # noqa: D102
        is_due = self._on_tape >= BUILD.of(instructions)
        return is_due or self.at_once or allowance.is_endless

    def replayed(  # noqa: D102
        self,
        instructions: int,
        calls: int = 1,
        quickly: bool = False,
        nodes: int | None = None,
        tried: int = 0,
    ) -> None:
        self._on_tape += calls * REPLAY.each * instructions

    def built(self, instructions: int, seconds: float, cost: float | None = None) -> None:  # noqa: D102
        self._on_tape = 0.0

    def replays_pay(self, instructions: int) -> bool:  # noqa: D102
        return True

    def missed(self, variants: int, numbers: int = 0) -> None:
        """A call that is not in the file; there is nothing to be saved by it."""

    def refused(self) -> None:
        """Likewise."""


@dataclass(eq=False)
class LoadedCode:
    """Machine code that is built when it is asked for."""

    saved: SavedCode
    options: Options
    counts: Counts

    @property
    def is_built(self) -> bool:
        """Whether it was asked for."""
        return "machine" in self.__dict__

    @functools.cached_property
    def machine(self) -> MachineCode | str:
        """The code, or why there is none."""
        started = time.thread_time()
        made = self._made()
        self.counts.lifting_seconds += time.thread_time() - started
        return made

    def _made(self) -> MachineCode | str:
        call, *lengths = self.saved.calls
        others = KnownLengths(lengths[0], (*lengths, None)[1]) if lengths else None
        options = self.options
        try:
            return machine_code(call, others, options.dtype, options.contract)
        except (NotLiftable, ImportError) as reason:
            return str(reason)
        except Exception as error:  # the tape still serves: say why, and go on
            return f"{type(error).__name__}: {error}"

    def binding(self, saved: SavedVariant) -> Binding | str:
        """How a variant runs on it, or why it does not."""
        machine = self.machine
        if isinstance(machine, str):
            return machine
        longest = self.saved.calls[0]
        if saved.call is None or saved.call.recording is longest.recording:
            return Binding(machine, machine.fit)
        check_shorter(saved.call, longest)
        fit = machine.fit_for(saved.call)
        return "it is no prefix of the longer call" if fit is None else Binding(machine, fit)


class LoadedPipeline(Pipeline):
    """The variants of a file."""

    def __init__(
        self,
        saved: SavedFunction,
        tracer: Tracer,
        counts: Counts,
        ledger: LoadedLedger,
        lock: threading.RLock,
    ) -> None:
        values = [Value(number, label=label) for number, label in saved.values]
        captured = CapturedState(
            values=values,
            place={id(v): k for k, v in enumerate(values)},
            identity=saved.identity,
            looks=saved.looks,
            _labels=[v.label for v in values],
        )
        nothing_lifted = Options(lift=False)  # the codes below are all there is

        def forget(variants: Collection[Variant], for_good: bool) -> None:
            """Nothing of a file is dropped."""

        super().__init__(tracer, captured, nothing_lifted, counts, ledger, lock, forget)
        self._file = saved
        self.codes: dict[SavedCode, LoadedCode] = {}
        self._saved: dict[Variant, SavedVariant] = {}
        self.structures.update({one.key: Structure() for one in saved.structures})
        self._texts = {one.key: (one, self.structures[one.key]) for one in saved.structures}
        self._known: dict[Any, Structure] = {}

    def read_all(self) -> None:
        """Read and check the whole file now."""
        for saved, structure in self._texts.values():
            self._fill(structure, saved)
        self._file.recordings()

    def _fill(self, structure: Structure, saved: SavedStructure) -> None:
        """The variants of a structure, when they are needed first."""
        if structure.variants:
            return
        values, lifts = tuple(self.captured.values), self._file.options.lift is not False
        for one in saved.variants:
            trace = Trace(one.recording, values, one.numeric, one.settled, one.uses_math)
            variant = Variant.of(trace)
            variant.not_lifted, variant.waits = one.reason, one.code is not None and lifts
            structure.variants.append(variant)
            self._saved[variant] = one
            if one.code is not None and one.code not in self.codes:
                self.codes[one.code] = LoadedCode(one.code, self._file.options, self._counts)

    def structure(self, call: Call) -> Structure:
        """What the file has for such calls; nothing is added to it."""
        if call.roots:
            return Structure()  # classes with methods, and functions: no file has their code
        key = (call.key, self.captured.marks(call.values))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= KNOWN:
                self._known.clear()
            found = self._known[key] = self._find(key, call)
        return found

    def _find(self, key: Any, call: Call) -> Structure:
        marks = key[1]
        places, others = (marks[0], marks[1:]) if self.captured.looks else (marks, ())
        if call.opaque is not None or any(place >= 0 for place in places):
            return Structure()
        try:
            text = portable(call.key, others)
        except SaveError:
            return Structure()  # no file has such arguments
        if text not in self._texts:
            return Structure()
        saved, found = self._texts[text]
        layout = Layout(call.first, tuple(call.sizes), len(call.ints))
        if any(one.layout != layout for one in saved.variants):
            raise damaged("a recording has other inputs than its calls")
        self._fill(found, saved)
        if text in self.structures:  # reports name the arguments by this key
            self.structures = Structures(
                {key if k == text else k: structure for k, structure in self.structures.items()}
            )
        return found

    def record(self, structure: Structure, call: Call, at_once: bool, build: bool = True) -> Run:
        """There is no source to record: see ``Replay``."""
        return EAGERLY

    def build_when_worth_it(self, variant: Variant, call: Call, at_once: bool = False) -> bool:
        """Machine code for a variant, if it is there already or worth building by now."""
        saved = self._saved[variant]
        assert saved.code is not None
        code, size = self.codes[saved.code], len(variant.recording)
        if not (code.is_built or self._ledger.affords_building(size)):
            return False
        expected = on_tape(variant, call)
        if expected is None:  # nothing to check it by
            return False
        variant.waits = False
        self._ledger.built(size, 0.0)
        binding = code.binding(saved)
        if isinstance(binding, str):
            variant.not_lifted = binding
        elif not agrees(variant, call, binding, expected):
            variant.not_lifted = "its result differs (please report this)"
        else:
            variant.binding = binding
            variant.forget_tape()
        return variant.binding is not None


class LoadedDispatch(Dispatch):
    """Which path answers a call of a loaded function: a variant of the file, or the replay."""

    def __init__(self, saved: SavedFunction) -> None:
        replay = Replay(saved.name, saved.signature)
        ledger = LoadedLedger()
        super().__init__(replay, saved.options, ledger=ledger)
        self.saved = saved
        self._ledger: LoadedLedger = ledger
        self._pipeline: LoadedPipeline = LoadedPipeline(
            saved, self._tracer, self._counts, self._ledger, self.lock
        )
        replay.variants = lambda call: self._pipeline.structure(call).variants
        replay.captured, replay.may_catch = self._pipeline.captured, saved.catches
        for structure in saved.structures:
            self._varying.traced |= traced_texts(structure.key)
        replay.texts = self.texts
        replay.saved_for = [structure.shown for structure in saved.structures]

    @property
    def traces_texts(self) -> bool:
        """Nothing is recorded."""
        return False

    def read_all(self) -> None:
        """Read and check the whole file now."""
        with self.lock:
            self._pipeline.read_all()

    def build(self) -> None:
        """Build all machine code now."""
        with self.lock, Held():
            self._pipeline.read_all()
            for code in self._pipeline.codes.values():
                _ = code.machine

    def _run(self, call: Call, wanted: Wanted) -> Run:
        self._ledger.at_once |= wanted.at_once and wanted.build
        if call.roots:
            return EAGERLY
        return super()._run(call, wanted)
