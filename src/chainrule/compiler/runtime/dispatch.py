"""Which path answers a call of a compiled function.

In: a call's flattened arguments. Out: a ``Run``. Each structure of arguments has its variants; a
call takes the first whose static integers, indices and guards all hold. If none does, the pipeline
records the call. What cannot be recorded soundly runs eagerly, and the Run says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

from chainrule.compiler.capture.arguments import Call, Texts, flatten_call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.comparing import ENDLESS, Bound, TooMuch
from chainrule.compiler.capture.handing import AMONG_VALUES
from chainrule.compiler.capture.outside import Place
from chainrule.compiler.capture.standins import Unloaded, Unrecordable
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.runtime.causes import SEVERAL
from chainrule.compiler.runtime.counts import Counts
from chainrule.compiler.runtime.fast_path import FastPath, gate, new_lock, why_in_python
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.memory import memory
from chainrule.compiler.runtime.notices import Notices
from chainrule.compiler.runtime.pipeline import Options, Pipeline
from chainrule.compiler.runtime.quicker import (
    beside,
    bound_of,
    run_if_too_long,
    run_if_too_much,
    why_quicker,
)
from chainrule.compiler.runtime.reached import Reached
from chainrule.compiler.runtime.refusals import is_of_numbers
from chainrule.compiler.runtime.results import nodes_of
from chainrule.compiler.runtime.texts import VaryingTexts, static_in, traced_in
from chainrule.compiler.runtime.variants import EAGERLY, Path, Run, Structure, Variant
from chainrule.compiler.runtime.waiting import Waiting
from chainrule.core.backend import Value, modes
from chainrule.core.interrupts import Held

SERVED = 2  # calls by each recording, more than which are not few
SAMPLES = 64  # of which the texts are looked at before any of them is recorded


class Wanted(NamedTuple):
    """What whoever asks for a run wants of it."""

    at_once: bool = False  # a recording, whatever that costs,
    build: bool = True  # and so machine code; if not ``at_once``, where it pays
    own: bool = False  # a recording, and not only another one's code


class Dispatch:
    """The variants of one function, its captured state and its fast path.

    Whoever runs a call holds ``lock`` until its numbers have been read, which keeps other threads
    out. ``busy`` keeps out what Python runs in between on the same thread: signal handlers and
    finalizers, whose calls then run eagerly. The gate answers calls like earlier ones, by itself.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        options: Options,
        tracer: Tracer | None = None,
        before: Dispatch | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        """``tracer``: what records its calls, if not the function itself is recorded.

        ``before``: that of the same function, where numbers outside are kept around its calls: it
        goes on counting, and has its lock.
        """
        self.function, self.options = function, options
        self._tracer = tracer or Tracer(function, exact=options.lift is False)
        self.lock: threading.RLock = new_lock() if before is None else before.lock
        self.gate = gate(self.lock, self._enter_quick_calls)
        self.answer = self.gate.answer  # of cached calls; None for the slow path
        #: maps and batches that are answered at once; see ``mapping`` and ``training``
        self.prepared: dict[Any, Any] = {}
        #: how many numbers a sample of the last batch in lanes computed; see ``training.batches``
        self.lane_work: int | None = None
        self.has_lanes = False  # some variant has been built for lanes of samples, or was refused
        self._counts = Counts()
        self.notices = Notices(self.name, options.on_fallback)
        self._last: Path | None = None
        self._pipeline: Pipeline | None = None
        self._ledger = ledger or Ledger()
        self._varying = VaryingTexts()
        self._has_waited = False  # for an eager call, which tells how much there is to compute
        self._has_imported = False  # modules that it imports by itself
        #: what answers calls of a function that keeps numbers outside; see ``keeping``
        self.keeping: Any = None
        self.may_keep = False  # somebody asks for ``changes``
        self.changes: tuple[Place, ...] = ()  # where a recorded run was seen to change numbers
        #: whether its calls are those of another, and numbers outside are kept around them
        self.follows = before is not None
        first = self.gate
        if before is not None:
            first, self._ledger = before.gate, before._ledger
            self._counts, self.notices = before._counts, before.notices
        self._waiting = Waiting(
            self.gate, first, self._ledger, self._counts, self.notices, self._is_asked_for
        )
        self._reached = Reached(self._tracer, self.notices)

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__name__", "function"))

    @property
    def brought(self) -> dict[Any, None]:
        """The classes and functions that calls brought, and that belong to the captured state."""
        return self._reached.roots

    @property
    def texts(self) -> Texts:
        """The arguments whose strings are integers, for whoever flattens calls of the function."""
        return self._varying.traced

    def meet(self, samples: Sequence[tuple[Any, ...]]) -> Texts:
        """The same, for whoever is about to call it with each of some samples, after the first."""
        with self.lock:
            for sample in samples[:SAMPLES] if self.traces_texts else ():
                call = flatten_call((None, *sample), {}, differentiate=False, texts=self.texts)
                if self._varying.found(call):
                    self.fast_path = None
            return self.texts

    @property
    def traces_texts(self) -> bool:
        """Whether calls may be recorded with strings that are integers."""
        return self.options.sizes is None

    @property
    def serving(self) -> Dispatch:
        """What serves its calls: itself, or another where the function keeps numbers outside."""
        return self if self.keeping is None else self.keeping.dispatch

    @property
    def _is_asked_for(self) -> bool:
        """Whether the user wants machine code, and does not wait until it pays."""
        return self.options.lift is True

    @property
    def spends_freely(self) -> bool:
        """Whether many calls at a time are recorded and built for whatever that costs."""
        return self._is_asked_for or self._ledger.is_endless

    @property
    def busy(self) -> bool:
        """Whether a call is being computed."""
        return self.gate.busy

    @busy.setter
    def busy(self, busy: bool) -> None:
        self.gate.busy = busy

    @property
    def fast_path(self) -> FastPath | None:
        """The cached calls, if there are any."""
        return self.gate.path

    @fast_path.setter
    def fast_path(self, path: FastPath | None) -> None:
        self.gate.path = path

    @property
    def captured(self) -> CapturedState | None:
        """The globals, closures and attributes that the function reads; None before a call."""
        return None if self._pipeline is None else self._pipeline.captured

    @property
    def structures(self) -> dict[Any, Structure]:
        """The structures of arguments, the last called at the end, with their variants."""
        return {} if self._pipeline is None else self._pipeline.structures

    @property
    def ledger(self) -> Ledger:
        """What it has spent on recordings and machine code, and what that saved."""
        return self._ledger

    @property
    def formulas_text(self) -> str:
        """The formulas for any size, at the sizes of the calls so far."""
        if self.options.sizes is None:
            return "compiled without sizes="
        formulas = None if self._pipeline is None else self._pipeline.formulas
        return "not called yet" if formulas is None else str(formulas)

    # --- calls ------------------------------------------------------------------------------------

    def run(self, call: Call, at_once: bool = False, build: bool = True) -> Run:
        """Compute a call by one of its variants, recorded if need be, or leave it to eager.

        ``at_once``: it is recorded, also where that will not pay for itself, and unless not
        ``build`` it is machine code if it can be.
        """
        run = self._run(call, Wanted(at_once, build, own=at_once))
        if run.variant is not None and run.variant.returns_several(call):
            run = Run(Path.EAGER, reason=f"it returns several Values{AMONG_VALUES}")
        if run.changes and self.may_keep and not at_once:
            self.changes, run = run.changes, EAGERLY
        self.counts.calls += 1
        self._last = run.path
        if run.path is not Path.EAGER:
            self.counts.replayed += 1
            self.notices.served()
        elif run.reason is None:
            self.counts.eager += 1
        else:
            self.fall_back(run.reason)
        return run

    def look(self, call: Call, build: bool = True) -> Run:
        """The run of one of many calls, by a recording of its own, made if that can be paid for.

        It is not counted as a call. ``build``: as above.
        """
        if self.waits():
            return EAGERLY
        run = self._run(call, Wanted(self.spends_freely, build, own=True))
        self._tell(run)
        return run

    def waits(self) -> bool:
        """Whether it is too dear for now to look for a variant that serves a call."""
        with self.lock:
            self._enter_quick_calls()
            return not self.spends_freely and self._waiting.is_too_dear(self._pipeline)

    def record(self, call: Call, at_once: bool = True) -> str | None:
        """Record a call, if it is not yet; why it runs eagerly, or None.

        It is not counted as a call. ``at_once``: whatever that costs, and nobody is told.
        """
        run = self._run(call, Wanted(at_once, own=at_once))
        if not at_once:
            self._tell(run)
        served = run.variant is not None
        return None if served else run.reason or call.failed or "its example raises an error"

    def expect(self, calls: Sequence[Call]) -> None:
        """Tell of calls that will come: machine code of the first may serve the others too."""
        with self.lock:
            try:
                pipeline = self._refreshed()
            except Unrecordable:
                return
            for call in calls:
                pipeline.expect(call)

    def may_be_overtaken(self, call: Call) -> bool:
        """Whether calls that come after this one may be computed before it.

        Not if it runs eagerly: it might change what they read.
        """
        with self.lock:
            if self.busy:
                return False
            self.busy = True
            try:
                is_served = self.record(call, at_once=False) is None
                return is_served and not any(v.recording.changes for v in self.known(call))
            finally:
                self.busy = False

    def rests(self, has_graph: bool = False) -> bool:
        """Whether a call had better run eagerly, without looking for a variant; it is counted.

        The gate is told of the calls after it that are to do the same. ``has_graph``: as in
        ``Waiting``.
        """
        if self._waiting.now(self._pipeline, has_graph) is None:
            return False
        with self.lock:
            if self._waiting.enter(self._pipeline):
                self._last = Path.EAGER
            wait = self._waiting.now(self._pipeline, has_graph)
            if wait is None:
                return False
            run = self._leave_unserved()
            self._waiting.begin(wait, self._pipeline, has_graph)
            self.counts.calls += 1
            self._last = Path.EAGER
            if run.reason is None:
                self.counts.eager += 1
            else:
                self.fall_back(run.reason)
        return True

    def leave_to_eager(self) -> None:
        """Count a call that runs eagerly for this once."""
        self.counts.calls += 1
        self.counts.eager += 1
        self._last = Path.EAGER

    def ran_eagerly(self, result: Any, call: Call | None = None) -> None:
        """Note that a call took eager's time; ``result``: what the function returned."""
        if isinstance(result, Value):
            self.learn_size(result)
        elif call is not None:  # a plain number has no graph
            self._ledger.expect(call.size)
        self._ledger.ran_eagerly()

    def failed(self) -> None:
        """Note that an eager call ended in an error of the function's own."""
        self._ledger.failed()

    def learn_size(self, result: Any, times: int = 1) -> None:
        """Estimate what a call takes by the graph of its results, if nobody knows; ``times``: all
        that is done with it takes so many times as long as building it.
        """
        if self._ledger.instructions is None:
            self._ledger.instructions = times * nodes_of(result) or None

    def _leave_unserved(self) -> Run:
        """A call that is not worth a recording; after many of them the user is told."""
        self.notices.left_unserved()
        if self._pipeline is None or self.notices.until_told != 0:
            return EAGERLY
        counts, pipeline = self._counts, self._pipeline
        change = pipeline.captured.changed()
        if change is not None:
            self.notices.tell_of_unserved()
            own = self.notices.reason_with(f"it changes {change}")
            often = f"{change} changes more often than recordings pay for; pass it as an argument"
            return Run(Path.EAGER, reason=own or often)
        if len(pipeline.kept()) < SEVERAL or pipeline.waits_for_lengths:
            return EAGERLY
        if counts.replayed > SERVED * counts.traces:
            return EAGERLY
        self.notices.tell_of_unserved()
        return Run(Path.EAGER, reason=self._pipeline.own_paths())

    def _enter_quick_calls(self) -> None:
        """Count the calls that the gate answered, all of them like the last."""
        if self._waiting.enter(self._pipeline):
            self._last = Path.EAGER
        calls, variant = self.gate.quick, self.gate.answered
        if not calls or variant is None:
            return
        self.gate.quick = 0
        self._reached.served_all()
        self.notices.served_all()
        self._counts.calls += calls
        self._counts.replayed += calls
        self._last = Path.TAPE if variant.binding is None else Path.MACHINE
        variant.used = memory.now
        size = len(variant.recording)
        self._ledger.replayed(size, calls, quickly=True, nodes=variant.eager_nodes)
        path, waits, pipeline = self.fast_path, variant.waits, self._pipeline
        variant.answered += calls
        affords = pipeline is not None and (
            pipeline.may_join_now(variant)
            if variant.may_join
            else waits and pipeline.affords_building(variant)
        )
        if path and affords:
            path.forget([variant])  # its next call builds machine code, or joins that of another

    @property
    def doing(self) -> str:
        """What takes long just now, in words; any thread may ask."""
        return self._counts.doing

    @property
    def counts(self) -> Counts:
        """What its calls did."""
        if self.keeping is not None:
            return self.serving.counts
        with self.lock:
            self._enter_quick_calls()
        return self._counts

    @property
    def last(self) -> Path | None:
        """The path of the last call."""
        if self.keeping is not None:
            return self.serving.last
        with self.lock:
            self._enter_quick_calls()
        return self._last

    def cache(self, call: Call, run: Run) -> None:
        """Let the fast path answer such calls from now on, if it can.

        Where it cannot, the next calls may be quicker eagerly.
        """
        if run.variant is None or self.captured is None:
            return
        done = beside(call, run.variant, self.fast_path is None and not self._is_asked_for)
        why = why_quicker(call, run.variant, done, self.captured, self._ledger, self.follows)
        if why is not None:
            self._ledger.refused()
            self.notices.replays_do_not_pay(why)
            return
        path = self.fast_path or FastPath(self.captured, self.texts)
        on_tape = run.path is Path.TAPE
        tells, is_served = path.tells, path.learn(call, run.variant, on_tape)
        if self.fast_path is None or path.tells is not tells:
            self.fast_path = path  # the gate reads once how to look at arguments
        if not is_served and not self._ledger.replays_pay(len(run.variant.recording)):
            self._ledger.refused()
            self.notices.replays_do_not_pay(why_in_python(run.variant.recording.result))
        elif is_served:
            self.notices.replays_do_not_pay(None)

    def _run(self, call: Call, wanted: Wanted) -> Run:
        is_due = self.gate.is_due and not wanted.at_once
        if self._waiting.end(self._pipeline):
            self._last = Path.EAGER
        ledger = self._ledger
        if call.refused is not None:
            ledger.missed(0, call.size + len(call.ints))
            return Run(Path.EAGER, reason=call.refused)
        change = self._change()
        is_new = self._pipeline is None or change is not None
        is_to_pay = not (wanted.at_once or self.notices.raises)
        if is_new and is_to_pay and not self._waiting.affords_recording(call):
            ledger.missed(0, call.size + len(call.ints))
            return self._leave_unserved()  # not even what it reaches is looked for
        bound = bound_of(ledger) if self._may_wait(call, wanted) else ENDLESS
        try:
            pipeline = self._renewed(change, bound)
        except Unrecordable as reason:
            if isinstance(reason, TooMuch):
                if ledger.instructions is None and not self._has_waited:
                    self._has_waited = True  # this call tells how much there is to compute
                    return EAGERLY
                ledger.searched_in_vain(reason.objects)
            if isinstance(reason, Unloaded) and not self._has_imported:
                self._has_imported = True  # this call does, and the next one is looked at again
                return EAGERLY
            ledger.refused()
            return Run(Path.EAGER, reason=str(reason))
        if pipeline.captured.looks and not modes.grad:
            return EAGERLY  # it may ask how a Value was made, and here none tells
        pipeline, structure = self._structure(pipeline, call)
        if structure.blocked is not None:
            ledger.missed(0, call.size + len(call.ints))
            return Run(Path.EAGER, reason=structure.blocked)
        run = self._replayed(pipeline, structure, call, wanted)
        if run is not None:
            return run
        return self._unserved(pipeline, structure, call, wanted, is_due and not structure.variants)

    def _may_wait(self, call: Call, wanted: Wanted) -> bool:
        """Whether it may turn out that replays of a call would never pay."""
        asked = wanted.at_once or self._is_asked_for or self.notices.raises
        return not (asked or is_of_numbers(call))

    def _structure(self, pipeline: Pipeline, call: Call) -> tuple[Pipeline, Structure]:
        """What is known of such calls, by a pipeline that knows the classes that it brings too."""
        structure = pipeline.structure(call)
        brought = pipeline.captured.belonging(call)
        if structure.blocked is None and not self.brought.keys() >= set(brought):
            try:
                pipeline = self._with_roots(brought)
                structure = pipeline.structure(call)
            except Unrecordable as reason:
                structure.blocked = str(reason)
        return pipeline, structure

    def _replayed(
        self, pipeline: Pipeline, structure: Structure, call: Call, wanted: Wanted
    ) -> Run | None:
        """A run of the first variant that serves a call; it may get machine code now."""
        for place, variant in enumerate(structure.variants):
            if variant.borrows and wanted.own:
                continue  # whoever asks for a recording needs more of it than its machine code
            run = variant.run(call, variant.binding)
            if run is not None:
                structure.hits += 1
                self._reached.served()
                variant.used = memory.now
                if place and run.path is not Path.EAGER:
                    structure.variants.insert(0, structure.variants.pop(place))
                if run.path is Path.EAGER:  # undefined: the time that took to find out is lost
                    self._ledger.undefined(place + 1, self.fast_path is not None)
                    return run
                size = len(variant.recording)
                self._ledger.replayed(size, nodes=variant.eager_nodes, tried=place)
                if variant.may_join or (run.path is Path.TAPE and variant.waits):
                    surely = wanted.at_once and wanted.build
                    asked = self._ledger.asked_for() if surely else nullcontext()
                    with Held(yields=True), asked:
                        if pipeline.build_when_worth_it(variant, call, surely):
                            run = variant.run(call, variant.binding)
                return run or EAGERLY
        return None

    def _unserved(
        self,
        pipeline: Pipeline,
        structure: Structure,
        call: Call,
        wanted: Wanted,
        is_due: bool,
    ) -> Run:
        """The run of a call that no variant serves: by other code, recorded now, or eager.

        ``is_due``: calls of its structure have come again and again.
        """
        ledger = self._ledger
        with Held(yields=True):
            borrowed = None if wanted.own else pipeline.run_shared(structure, call)
            if borrowed is not None:
                return borrowed
            unrecorded = pipeline.run_unrecorded(structure, call)
        if pipeline.formulas is not None:
            self.notices.recorded_at_every_size(pipeline.formulas.refusals)
        if unrecorded is not None:
            return unrecorded
        if self.traces_texts and self._varying.found(call):
            left = [x for key, x in self.structures.items() if self._varying.has_left(key)]
            pipeline.forget([variant for x in left for variant in x.variants])
            structure = self._flattened_again(pipeline, call)
            ledger.changed()
        too_much = None
        if self._may_wait(call, wanted):
            too_much = run_if_too_much(pipeline.captured, ledger) or run_if_too_long(call, ledger)
            if too_much is not None:
                ledger.missed(0, call.size + len(call.ints))
        if too_much is not None:
            return too_much
        plain, twin = (structure, call), None
        at_once, build = wanted.at_once, wanted.build
        if not at_once:
            ledger.missed(len(structure.variants), call.size + len(call.ints))
            structure.misses += bool(structure.variants)
            twin = None if wanted.own else pipeline.recorded_instead(structure, call)
            if twin is not None:
                structure, call = pipeline.structure(twin), twin
            if not self._waiting.may_record(call, structure, pipeline, is_due):
                return self._leave_unserved()
        if not at_once and self.traces_texts and self._varying.may_vary(call):
            build = False  # not for what the next text may take the place of
        is_asked_for = (at_once and build) or self._is_asked_for
        asked = ledger.asked_for() if is_asked_for else nullcontext()
        due = ledger.is_due() if is_due else nullcontext()
        with (
            self.notices.recording(),
            Held(yields=True),
            asked,
            due,
        ):  # half a recording would leave max replaced, Values moved: Ctrl-C waits for a safe point
            run = pipeline.record(structure, call, at_once, build)
            texts = traced_in(call)
            if texts and structure.blocked is not None:
                self._varying.refuse(texts)
                structure = self._flattened_again(pipeline, call)
                run = pipeline.record(structure, call, at_once, build)
            elif texts and run.variant is not None:
                self._leave_static(static_in(call, run.variant))
            if twin is not None:
                run = pipeline.run_recorded(*plain)
        self.notices.recorded(self.counts, pipeline.reason_to_record)
        return run

    def _flattened_again(self, pipeline: Pipeline, call: Call) -> Structure:
        """What is known of a call, where other texts of it are traced from now on."""
        self.fast_path = None
        call.flatten_again(self.texts)
        return pipeline.structure(call)

    def _leave_static(self, texts: Texts) -> None:
        """Let the texts of some arguments be static again."""
        if texts:
            self.fast_path = None
            self._varying.refuse(texts)

    def _refreshed(self) -> Pipeline:
        """The pipeline for the captured state as it is; if that changed, all is recorded anew."""
        return self._renewed(self._change())

    def _change(self) -> str | None:
        """What of the captured state has changed, in words; None before a call."""
        if self._pipeline is None:
            return None
        started = time.thread_time()
        change = self._pipeline.captured.changed()
        self.counts.checks += 1
        self.counts.checking_seconds += time.thread_time() - started
        if change is not None:
            self._ledger.searches_again()
        return change

    def _renewed(self, change: str | None, bound: Bound = ENDLESS) -> Pipeline:
        """The pipeline; a new one where something changed: ``change`` says what."""
        started, pipeline = time.thread_time(), self._pipeline
        self._reached.changed(change, self.captured)
        if pipeline is None or change is not None:
            self.fast_path = None
            self.prepared.clear()
            self.structures.clear()
            before = None if change is None else self.captured
            captured = self._reached.captured(before, self._ledger, bound)
            pipeline = Pipeline(
                self._tracer,
                captured,
                self.options,
                self.counts,
                self._ledger,
                self.lock,
                self._forget_cached,
            )
            self._pipeline = pipeline
            self.counts.finding_seconds += time.thread_time() - started
        return pipeline

    def _with_roots(self, brought: Collection[Any]) -> Pipeline:
        """The pipeline, once classes and functions that a call brings are captured state too."""
        before = self._reached.bring(brought)
        try:
            pipeline = self._renewed("what is passed")
        except Unrecordable:
            self._reached.roots = before
            raise
        if not self.brought.keys() >= set(brought):
            raise Unrecordable("what it is passed and what it reaches by itself do not go together")
        return pipeline

    def _forget_cached(self, variants: Collection[Variant], for_good: bool) -> None:
        """Let the slow path answer the calls of some variants."""
        if self.fast_path is not None:
            self.fast_path.forget(variants, for_good)
        self.prepared.clear()

    # --- eager ------------------------------------------------------------------------------------

    def fall_back(self, reason: str) -> None:
        """Note that a call runs eagerly, and tell the user once per reason."""
        self.counts.eager += 1
        self.notices.ran_eagerly(reason)

    def _tell(self, run: Run) -> None:
        """Tell the user why a call that is not counted will run eagerly."""
        if run.path is Path.EAGER and run.reason is not None and not self.notices.raises:
            self.notices.ran_eagerly(run.reason)

    def block(self, call: Call) -> None:
        """Eager did what recording could not: do not try again."""
        if call.failed is not None and self._pipeline is not None:
            with self.lock:
                texts = traced_in(call)
                if texts:  # perhaps C code that wants a true string
                    self._leave_static(texts)
                    return
                self._pipeline.structure(call).blocked = call.failed
                self.notices.ran_eagerly(call.failed)

    # --- for many samples at a time ---------------------------------------------------------------

    def count_replayed(
        self, calls: int, like: Call | None = None, variant: Variant | None = None
    ) -> None:
        """Count calls that were computed many at a time, by this variant, of one structure."""
        if like is not None and variant is not None and self._pipeline is not None:
            self.count_mapped(calls, self._pipeline.structure(like), variant)
            return
        self.counts.calls += calls
        self.counts.replayed += calls

    def count_mapped(self, calls: int, structure: Structure, variant: Variant) -> None:
        """The same of calls whose structure is known."""
        counts = self.counts
        counts.calls += calls
        counts.replayed += calls
        structure.hits += calls
        variant.used = memory.now
        self.earn(calls, variant)

    def earn(self, calls: int, variant: Variant) -> None:
        """Note that calls by this variant were computed many at a time."""
        size = len(variant.recording)
        self._ledger.replayed(size, calls, quickly=True, nodes=variant.eager_nodes)

    def structure_of(self, call: Call) -> Structure:
        """What is known of calls such as one that was recorded."""
        assert self._pipeline is not None
        return self._pipeline.structure(call)

    def may_join(self, call: Call) -> bool:
        """Whether there is machine code of a longer call like this."""
        return self._pipeline is not None and self._pipeline.may_join(call)

    def known(self, call: Call) -> list[Variant]:
        """The variants for calls of this structure, whatever their integers and branches."""
        try:
            return self._refreshed().structure(call).variants if call.refused is None else []
        except Unrecordable:
            return []

    def tells_apart(self, call: Call) -> bool:
        """Whether it may matter which of a call's containers are one, for calls such as this."""
        with self.lock:
            try:
                return call.may_come_again and self._refreshed().captured.identity
            except Unrecordable:
                return True

    def owns(self, bound: Bound = ENDLESS) -> Callable[[Any], bool]:
        """Whether something is a container that the function reaches by itself.

        Where that cannot be found out, so that all calls run eagerly, it may be anything; but
        nothing is where it takes too long for now.
        """
        with self.lock:
            try:
                ids = self._renewed(self._change(), bound).captured.ids
            except TooMuch:
                return lambda x: False
            except Unrecordable:
                return lambda x: True
        return lambda x: id(x) in ids

    def captured_arrays(self) -> list[Any]:
        """The arrays that the function reaches by itself."""
        return [] if self.captured is None else [array for array, _, _ in self.captured.arrays]

    def is_fresh(self) -> bool:
        """Whether the captured state is as it was."""
        return self.captured is not None and self.captured.changed() is None
