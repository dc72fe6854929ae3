"""One run of a function in which everything is recorded.

In: a function, its state, a call, and a ``Recorder``. Out: a ``Trace``: the recording, and what its
making showed. A run has no visible side effects: the arguments are copies, perturbed numbers are
put back, and so is captured state.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture import places
from chainrule.compiler.capture.alike import Alike, Reach, found_alike
from chainrule.compiler.capture.arguments import Call, Makers, Nudge, as_float, rebuild
from chainrule.compiler.capture.arithmetic import data_numbers
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.carried import (
    Carried,
    carrying,
    places_of_values,
    random_direction,
)
from chainrule.compiler.capture.changing import bases
from chainrule.compiler.capture.flattening import finish, note
from chainrule.compiler.capture.handing import AMONG_VALUES, CHANGES, Handed
from chainrule.compiler.capture.hooks import REWRITER
from chainrule.compiler.capture.keyed import NotKeyed
from chainrule.compiler.capture.marks import Marker, Noted
from chainrule.compiler.capture.outside import (
    RANDOM_ADVICE,
    Changes,
    changed_places,
    line_of_change,
)
from chainrule.compiler.capture.random_states import random_states
from chainrule.compiler.capture.reading import Observed
from chainrule.compiler.capture.recorder import Recorder
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.capture.replacing import recording
from chainrule.compiler.capture.returned import check_identities, handed_out, values_in
from chainrule.compiler.capture.rewriting import original
from chainrule.compiler.capture.standins import Detached, Unrecordable
from chainrule.compiler.capture.texts import TracedText
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.undisturbed import (
    collector_paused,
    moved,
    nudged_numbers,
    plain_modes,
)
from chainrule.core.backend import Value, kernels, modes
from chainrule.core.errors import GraphNeeded, caller_at
from chainrule.core.interrupts import safe_point
from chainrule.derivatives.transforms import differentiating
from chainrule.trees import Floats, is_record


@dataclass(frozen=True)
class Trace:
    """A recording and what its making showed."""

    recording: Recording
    captured: tuple[Value, ...]  # Values reached through the captured state, as inputs
    numeric: frozenset[int]  # integer slots used as a number
    settled: tuple[str, ...]  # where data became static
    uses_math: bool = False  # it holds for finite data only: functions of ``math`` would raise
    asks: bool = True  # it may depend on which Value or list the function has
    exponents: frozenset[str] = frozenset()  # the lines at which exponents became static
    alike: Alike = Alike.NONE  # plain calls for which it holds too, if it is of ``value_and_grad``
    derived_from: Trace | None = None  # of a derivative: the recording that was differentiated
    noted: Noted | None = None  # instead of a recording, whose instructions were not kept
    hides: bool = True  # a derivative of 0 may have hidden something from what it returned
    carried: Carried | None = None  # what it computed, where that was asked for


def run_recorded(
    function: Callable[..., Any],
    state: CapturedState,
    call: Call,
    nudge: Nudge | None,
    recorder: Recorder,
    like: Recording | None,
    whole: bool,
    marker: Marker | None,
    beside: bool,
    carries: bool = False,
) -> Trace:
    """Run a function once; arguments as of ``tracing.trace``."""
    run = _Run(function, state, call, recorder)
    inputs = run.inputs
    if not whole:
        run.keep_instructions(like, marker, carries)
    numbers = nudged_numbers(state.values, nudge)
    states, labels = random_states(), [v.label for v in inputs] if state.looks else []
    try:
        with (
            moved(state.values, numbers),
            run.carrying(),
            plain_modes(),
            np.errstate(all="ignore"),  # a run of nobody's: what eager runs warn of is enough
            differentiating(inputs[: call.first] if call.key[0] else []),
            REWRITER.visible(state.functions, recorder.both),
            recording(recorder),
        ):
            result = function(*run.rebuilt.arguments, **run.rebuilt.keywords)
            safe_point()  # once more, where the function caught what one raised
            if not whole and modes.graph_asked:
                raise GraphNeeded
            run.finish(result, like, beside)
        run.check()
        if state.looks and [v.label for v in inputs[: len(labels)]] != labels:
            raise Unrecordable("it changes the label of a Value")
        if states.changed():
            raise Unrecordable(f"it draws random numbers{RANDOM_ADVICE}")
    except BaseException:
        if not recorder.both:  # which may have been on a side that is not taken
            state.changes_in_calls |= state.changed() is not None
        state.restore()
        for v, label in zip(inputs, labels, strict=False):
            v.label = label
        raise
    finally:
        recorder.forget()
    return run.trace(numbers)


class _Run:
    """A run of a function, and what is known of it before it is over."""

    def __init__(
        self, function: Callable[..., Any], state: CapturedState, call: Call, recorder: Recorder
    ) -> None:
        self._function, self._state, self._call = function, state, call
        self._recorder = recorder
        self.inputs: list[Value] = []
        with collector_paused(call.size):
            self.rebuilt = rebuild(call, _makers(recorder, call, self.inputs))
        self._watch()
        self._passed = set(map(id, call.values))
        self._captured = tuple([v for v in state.values if id(v) not in self._passed])
        recorder.numbers = [Value(as_float(i)) for i in call.ints]
        self.inputs += [*self._captured, *recorder.numbers]
        # of what it returned:
        self._found: Handed
        self._made: Recording
        self._noted: Noted | None = None
        self._alike = Alike.NONE
        self._hides = True
        self._places: list[int] = []  # of the inputs that derivatives are carried from
        self._direction: Floats | None = None

    def _watch(self) -> None:
        """Tell the recorder which containers others hold, and what may be asked."""
        recorder, state, rebuilt = self._recorder, self._state, self.rebuilt
        for x, _ in (*rebuilt.arrays, *rebuilt.lists):
            if type(x) is np.ndarray:
                recorder.copies.update(map(id, (x, *bases(x))))
                if x.dtype != object:  # numpy's functions would write unseen
                    x.flags.writeable = False
        recorder.arguments += [rebuilt.arguments, rebuilt.keywords]
        recorder.passed.update(id(x) for x, _ in (*rebuilt.lists, *rebuilt.dicts, *rebuilt.arrays))
        containers = (*state.lists, *state.dicts, *state.sets, *state.arrays, *rebuilt.records)
        recorder.watched = {id(x) for x, *_ in containers} | recorder.passed
        recorder.watched.update(id(vars(x)) for x, *_ in rebuilt.records if hasattr(x, "__dict__"))
        recorder.module_names, recorder.whole_modules = state.module_names, state.whole_modules
        recorder.unasked = state.unasked
        recorder.records = {kind for x, kind, _ in rebuilt.records if is_record(x)}

    def keep_instructions(
        self, like: Recording | None, marker: Marker | None, carries: bool
    ) -> None:
        """Let nodes become instructions at once, and keep no operands.

        ``carries``: but the derivative along a direction.
        """
        assert kernels is not None  # without them recordings are whole
        recorder, inputs, call = self._recorder, self.inputs, self._call
        modes.graph_asked = False
        arrays = None if like is None else (like.inputs, *like.arrays[:4])
        marks = None if marker is None else (marker.marks.seed, marker.marks.offset)
        values = [*call.values, *self._captured]
        recorder.nodes = kernels.Instructions(inputs, values, arrays, marks, carries)
        recorder.marker, recorder.carries = marker, carries
        if carries:
            self._places = places_of_values(call, len(self._captured))
            self._direction = random_direction(len(self._places), [len(inputs), call.size, 1])
        if marker is not None:
            kernels.swap_grads(inputs[: call.first], marker.direction.copy())

    def carrying(self) -> AbstractContextManager[None]:
        """Let the inputs have the derivatives that others are carried from."""
        return carrying([self.inputs[k] for k in self._places], self._direction)

    def finish(self, result: Any, like: Recording | None, beside: bool) -> None:
        """Make the recording, by what the function returned, while all is still recorded."""
        recorder, state, call, inputs = self._recorder, self._state, self._call, self.inputs
        others = self._passed or self._captured
        found = self._found = handed_out(result, recorder, state, self.rebuilt, call, others)
        result, whole_result = found.result, (found.result, [x.items for x in found.changes])
        held = self._passed.union(map(id, self._captured))
        if not call.key[0]:
            check_identities(whole_result, held, recorder)
        if recorder.either and (recorder.tells or state.tells):
            raise Observed
        held.update(map(id, inputs[: call.first] if call.key[0] else []))
        seen = [] if call.key[0] else values_in(whole_result)
        paused = collector_paused(len(recorder.nodes))
        with caller_at(places.of_result(self._function)), paused:
            if recorder.marker is not None:
                self._made, self._noted = note(recorder, result)
            else:
                self._made = finish(
                    recorder,
                    inputs,
                    result,
                    like,
                    held,
                    seen,
                    found.changes,
                    not call.key[0],
                    beside and not state.outside,
                )
        if self._noted is None:
            self._alike = _alike(recorder, state, call, self._made)
        if type(recorder.nodes) is not list:
            self._hides = recorder.nodes.hides()

    def check(self) -> None:
        """Refuse a run that a replay would not repeat."""
        recorder, state, rebuilt, found = self._recorder, self._state, self.rebuilt, self._found
        if recorder.unkeyed is not None:
            raise NotKeyed(recorder.unkeyed)
        if recorder.refused is not None:
            raise Unrecordable(recorder.refused)
        if recorder.undefined is not None:
            raise Unrecordable(f"it catches an undefined value: {recorder.undefined}")
        recorder.selector.check(recorder.identity)
        if not found.checked and rebuilt.changed():
            among_values = not self._call.key[0] and (self._passed or self._captured)
            raise Unrecordable(f"{CHANGES}{AMONG_VALUES if among_values else ''}")
        if recorder.same_texts:
            state.compare_texts()
        change = state.changed()
        if change is not None:
            line = line_of_change(state, recorder.stores_into)
            raise Changes(f"it changes {change}{line}", changed_places(state))
        for key, line in recorder.stores_into.items():  # who else reads it may have the same one
            if key not in found.checked:
                raise Unrecordable(f"it changes something, and puts it back, at {line}")

    def trace(self, numbers: list[float] | None) -> Trace:
        """The recording, and what its making showed; ``numbers``: where captured Values were."""
        recorder, state = self._recorder, self._state
        carried = None
        if self._direction is not None:
            found = recorder.carried
            carried = Carried(
                self._call,
                numbers,
                {p: number for p, (number, _) in found.items()},
                {p: slope for p, (_, slope) in found.items()},
                self._direction,
                self._places,
            )
        return Trace(
            self._made,
            self._captured,
            frozenset(recorder.used_as_number),
            tuple(recorder.settled),
            recorder.uses_math,
            state.asks or recorder.identity if recorder.both else state.identity,
            frozenset(recorder.exponents),
            self._alike,
            noted=self._noted,
            hides=self._hides,
            carried=carried,
        )


def _makers(recorder: Recorder, call: Call, inputs: list[Value]) -> Makers:
    """What makes the arguments of a run: stand-ins, and Values that become its inputs."""

    def value(x: Any) -> Value:
        inputs.append(x if isinstance(x, Value) else Value(x))
        return inputs[-1]

    def values(items: list[float]) -> list[Value]:
        made = list(map(Value, items))
        inputs.extend(made)
        return made

    def number(x: float, kind: type) -> Detached:
        inputs.append(Value(x))
        return Detached(recorder, inputs[-1], is_data=True, kind=kind)

    def numbers(items: list[float], kind: type) -> list[Detached]:
        return data_numbers(recorder, values(items), kind, Detached)

    slots = iter(range(len(call.ints)))

    def integer(_: int, kind: type) -> Traced:
        node = next(slots)
        return Traced(recorder, as_truth(node) if kind is np.bool_ else node, kind)

    def text(x: str) -> TracedText:
        recorder.texts = True
        return TracedText(recorder, tuple([next(slots) for _ in x]))

    def as_truth(node: int) -> int:
        return recorder.integers.step("bool", node)

    def truth(_: bool) -> Traced:
        return Traced(recorder, as_truth(next(slots)))

    return Makers(value, number, integer, values=values, numbers=numbers, text=text, truth=truth)


def may_be_alike(state: CapturedState) -> bool:
    """Whether a recording of ``value_and_grad`` may hold for plain calls, by what it captures."""
    asks = state.asks or state.tells or state.looks or state.catches
    others = state.outside or state.values or state.keyed
    return state.reach is not Reach.UNKNOWN and not asks and not others


def _alike(recorder: Recorder, state: CapturedState, call: Call, made: Recording) -> Alike:
    """The plain calls for which a recording of ``value_and_grad`` holds."""
    if not call.key[0] or call.roots or not may_be_alike(state):
        return Alike.NONE
    if not all(REWRITER.sees_all(original(f.__code__)) for f in state.functions):
        return Alike.NONE
    return found_alike(recorder, made, call.first, state.reach)
