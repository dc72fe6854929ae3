"""One recorded run of a function for one call's arguments.

In: a function, its state and a call. Out: a ``Trace``: the recording, which integers it used
how, and the Values that are its inputs. A trace has no visible side effects: the arguments are
copies, perturbed numbers are put back, and so are the random states.
"""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import types
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainrule.compiler.capture import places
from chainrule.compiler.capture.alike import Alike, Reach, found_alike
from chainrule.compiler.capture.arguments import (
    Call,
    Makers,
    Nudge,
    Rebuilt,
    as_float,
    eager_arguments,
    nudges,
    rebuild,
)
from chainrule.compiler.capture.arithmetic import data_numbers
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.flattening import finish, note
from chainrule.compiler.capture.forks import Impure
from chainrule.compiler.capture.handing import CHANGES, Handed, handed
from chainrule.compiler.capture.harmless import names_only_known
from chainrule.compiler.capture.hooks import REWRITER
from chainrule.compiler.capture.keyed import NotKeyed
from chainrule.compiler.capture.marks import Marker, Noted
from chainrule.compiler.capture.outside import (
    ADVICE,
    RANDOM_ADVICE,
    Changes,
    Kept,
    Outside,
    changed_places,
    line_of_change,
)
from chainrule.compiler.capture.reading import Observed
from chainrule.compiler.capture.recorder import Recorder
from chainrule.compiler.capture.recordings import PINNED, Recording
from chainrule.compiler.capture.replacing import recording
from chainrule.compiler.capture.rewriting import original
from chainrule.compiler.capture.standins import Detached, StandIn, Unrecordable
from chainrule.compiler.capture.texts import TracedText
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.walking import survey
from chainrule.core.backend import Value, kernels, modes
from chainrule.core.errors import GraphNeeded, caller_at
from chainrule.derivatives.transforms import differentiating
from chainrule.trees import is_named_tuple, is_record, map_leaves

MANY = 1 << 14  # objects made at once: the collector would look at all of them again and again


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


@dataclass(frozen=True)
class Tracer:
    """Makes the recordings of a function.

    ``select``: also for integers that select Values. ``both``: both sides of branches are computed,
    where they can be. ``exact``: max and min of Values choose by branches, so that gradients are
    added up as eager does. ``powers``: also for integers that are exponents of Values.
    """

    function: Callable[..., Any]
    select: bool = True
    both: bool = False
    exact: bool = False
    powers: bool = False

    @property
    def source(self) -> Callable[..., Any]:
        """The function that runs to be recorded."""
        return self.function

    def survey(self, roots: Collection[Any] = ()) -> CapturedState:
        """What the function reads without being passed it; ``roots``: from these too."""
        return survey(self.source, roots)

    def trace(self, state: CapturedState, call: Call) -> Trace:
        """One recorded run."""
        return self._trace(state, call, None)

    def marked(self, state: CapturedState, call: Call, marker: Marker) -> Trace:
        """The same, of which nothing is kept but marks; a recording only where that cannot be."""
        return self._trace(state, call, marker)

    def _trace(self, state: CapturedState, call: Call, marker: Marker | None) -> Trace:
        return trace(
            self.function,
            state,
            call,
            select=self.select,
            both=self.both,
            exact=self.exact,
            powers=self.powers,
            marker=marker,
        )

    def confirm(self, state: CapturedState, call: Call, first: Trace) -> None:
        """Refuse a recording that another run with numbers a little off does not repeat."""
        confirm(self.function, state, call, first, self.select, self.both, self.exact, self.powers)


class KeepingTracer(Tracer):
    """Makes the recordings of a function that keeps numbers outside; ``function`` is its ``Kept``.

    One side of each branch is run: what the other one changes would have to be put back.
    """

    @classmethod
    def of(cls, function: Callable[..., Any], outside: Outside, exact: bool) -> KeepingTracer:
        """Of a function that changes these places."""
        return cls(Kept(function, outside, REWRITER.visible), exact=exact)

    @property
    def _kept(self) -> Kept:
        assert isinstance(self.function, Kept)
        return self.function

    @property
    def source(self) -> Callable[..., Any]:  # noqa: D102
        return self._kept.function

    def survey(self, roots: Collection[Any] = ()) -> CapturedState:  # noqa: D102
        if roots:
            raise Unrecordable("it keeps numbers outside, and is passed objects or functions")
        state = survey(self.source, outside=self._kept.outside)
        self._kept.functions = state.functions
        return state


def trace(
    function: Callable[..., Any],
    state: CapturedState,
    call: Call,
    nudge: Nudge | None = None,
    nudge_data: bool = True,
    select: bool = True,
    like: Recording | None = None,
    both: bool = False,
    whole: bool = False,
    exact: bool = False,
    powers: bool = False,
    marker: Marker | None = None,
) -> Trace:
    """Run the function recorded, its numbers nudged (of data only with ``nudge_data``).

    ``like``: a recording that this one may repeat; then they share its arrays. ``whole``: with its
    graph in memory; else nodes become instructions at once, and if the function asks for their
    operands, as a derivative does that it takes itself, it is recorded again.

    If it can tell what an integer selected from what it selected in the recording, as by ``is``,
    it is recorded again with every read static, and with max and min as branches. ``both``: both
    sides of branches are computed; one that does what cannot be taken back is an ordinary branch
    from then on. ``exact``: max and min are branches in any case. Where it fails with texts that
    integers selected, they are static. ``marker``: nothing is kept but what this notes, unless the
    recording is ``whole`` or of both sides.
    """
    given = (nudge, nudge_data, select, like, both, whole, exact, powers, marker)
    while state.keyed:
        try:
            return _traced(function, state, call, frozenset(state.true_sites), *given)[0]
        except NotKeyed as found:
            state.restore()
            state.true_sites.add(found.site)
        except (Exception, Unrecordable, Observed):  # C code may want a true container
            state.restore()
            made, recorder = _traced(function, state, call, None, *given)
            state.keyed = False
            return made
    made, recorder = _traced(function, state, call, None, *given)
    if recorder.hashed and recorder.selector.enabled and not state.catches and not state.keys_tried:
        state.keys_tried = True
        state.keyed = names_only_known(state.functions)
        if state.keyed:
            return trace(function, state, call, *given)
    return made


def _traced(
    function: Callable[..., Any],
    state: CapturedState,
    call: Call,
    true_sites: frozenset[str] | None,
    nudge: Nudge | None,
    nudge_data: bool,
    select: bool,
    like: Recording | None,
    both: bool,
    whole: bool,
    exact: bool,
    powers: bool,
    marker: Marker | None,
) -> tuple[Trace, Recorder]:
    """The trace, and what recorded it."""
    if nudge is not None:
        call = call.nudged(nudge, state.place, nudge_data)
    codes = [original(f.__code__) for f in state.functions]
    if state.outside and not all(map(REWRITER.sees_all, codes)):
        raise Unrecordable(f"it changes a number outside in code that cannot be rewritten{ADVICE}")
    if state.draws and not all(REWRITER.rewritten(f.__code__) for f in state.functions):
        raise Unrecordable(
            "it makes a generator of random numbers in code that cannot be rewritten"
        )
    if both and state.contains:
        both = all(REWRITER.rewritten(f.__code__) for f in state.functions)
    while both and not (state.looks or state.asks or state.catches):
        recorder = Recorder(call.ints, select, False, frozenset(state.plain_sites), powers)
        recorder.true_sites = true_sites
        try:
            return _trace(function, state, call, nudge, recorder, like, whole=True), recorder
        except Impure as found:
            others = [site for site in found.sites if site not in state.plain_sites]
            if not others:
                break
            state.plain_sites.add(others[0])
        except Observed:
            break
    observed, whole = state.looks, whole or state.looks or kernels is None
    spells = not state.catches
    while True:
        recorder = Recorder(
            call.ints, select and not observed, exact or observed, powers=powers, spells=spells
        )
        recorder.true_sites = true_sites
        try:
            return _trace(function, state, call, nudge, recorder, like, whole, marker), recorder
        except Observed:
            if observed or recorder.keyed_sites:
                raise
            observed = True
        except GraphNeeded:
            whole = True
        except (Exception, Unrecordable):
            if not recorder.spelled:
                raise
            spells = False  # it may be C code that wants a true string


def _trace(
    function: Callable[..., Any],
    state: CapturedState,
    call: Call,
    nudge: Nudge | None,
    recorder: Recorder,
    like: Recording | None,
    whole: bool,
    marker: Marker | None = None,
) -> Trace:
    inputs: list[Value] = []

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
        with _collector_paused(len(items)):
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

    makers = Makers(value, number, integer, values=values, numbers=numbers, text=text, truth=truth)
    rebuilt = rebuild(call, makers)
    for x, _ in rebuilt.arrays:
        if type(x) is np.ndarray and x.dtype != object:  # numpy's functions would write unseen
            x.flags.writeable = False
    recorder.arguments += [rebuilt.arguments, rebuilt.keywords]
    recorder.passed.update(id(x) for x, _ in (*rebuilt.lists, *rebuilt.dicts, *rebuilt.arrays))
    containers = (*state.lists, *state.dicts, *state.sets, *state.arrays, *rebuilt.records)
    recorder.watched = {id(x) for x, *_ in containers} | recorder.passed
    recorder.watched.update(id(vars(x)) for x, *_ in rebuilt.records if hasattr(x, "__dict__"))
    recorder.module_names, recorder.whole_modules = state.module_names, state.whole_modules
    recorder.unasked = state.unasked
    passed = set(map(id, call.values))
    captured = tuple([v for v in state.values if id(v) not in passed])
    inputs += captured
    recorder.numbers = [Value(as_float(i)) for i in call.ints]
    inputs += recorder.numbers
    if not whole and kernels is not None:
        modes.graph_asked = False
        arrays = None if like is None else (like.inputs, *like.arrays[:4])
        marks = None if marker is None else (marker.marks.seed, marker.marks.offset)
        recorder.nodes = kernels.Instructions(inputs, [*call.values, *captured], arrays, marks)
        recorder.marker = marker
        if marker is not None:
            kernels.swap_grads(inputs[: call.first], marker.direction.copy())
    drawn, labels = _random_states(), [v.label for v in inputs] if state.looks else []
    try:
        with (
            moved(state.values, nudged_numbers(state.values, nudge)),
            plain_modes(),
            np.errstate(all="ignore"),  # a run of nobody's: what eager runs warn of is enough
            differentiating(inputs[: call.first] if call.key[0] else []),
            REWRITER.visible(state.functions, recorder.both),
            recording(recorder),
        ):
            result = function(*rebuilt.arguments, **rebuilt.keywords)
            if not whole and modes.graph_asked:
                raise GraphNeeded
            found = _handed(result, recorder, state, rebuilt, call, passed or captured)
            result, whole_result = found.result, (found.result, [x.items for x in found.changes])
            held = passed.union(map(id, captured))
            if not call.key[0]:
                _check_identities(whole_result, held, recorder)
            if recorder.either and (recorder.tells or state.tells):
                raise Observed
            held.update(map(id, inputs[: call.first] if call.key[0] else []))
            seen = [] if call.key[0] else _values_in(whole_result)
            noted, alike = None, Alike.NONE
            with caller_at(places.of_result(function)), _collector_paused(len(recorder.nodes)):
                if recorder.marker is not None:
                    made, noted = note(recorder, result)
                else:
                    made = finish(
                        recorder, inputs, result, like, held, seen, found.changes, not call.key[0]
                    )
            if noted is None:
                alike = _alike(recorder, state, call, made)
        if recorder.unkeyed is not None:
            raise NotKeyed(recorder.unkeyed)
        if recorder.refused is not None:
            raise Unrecordable(recorder.refused)
        if recorder.undefined is not None:
            raise Unrecordable(f"it catches an undefined value: {recorder.undefined}")
        recorder.selector.check(recorder.identity)
        if not found.checked and rebuilt.changed():
            raise Unrecordable(CHANGES)
        if recorder.same_texts:
            state.compare_texts()
        change = state.changed()
        if change is not None:
            line = line_of_change(state, recorder.stores_into)
            raise Changes(f"it changes {change}{line}", changed_places(state))
        for key, line in recorder.stores_into.items():  # who else reads it may have the same one
            if key not in found.checked:
                raise Unrecordable(f"it changes something, and puts it back, at {line}")
        if state.looks and [v.label for v in inputs[: len(labels)]] != labels:
            raise Unrecordable("it changes the label of a Value")
        if _random_states() != drawn:
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
    return Trace(
        made,
        captured,
        frozenset(recorder.used_as_number),
        tuple(recorder.settled),
        recorder.uses_math,
        state.asks or recorder.identity if recorder.both else state.identity,
        frozenset(recorder.exponents),
        alike,
        noted=noted,
    )


def may_be_alike(state: CapturedState) -> bool:
    """Whether a recording of ``value_and_grad`` may hold for plain calls, by what it captures."""
    asks = state.identity or state.asks or state.tells or state.looks or state.catches
    others = state.outside or state.draws or state.values or state.keyed
    return state.reach is not Reach.UNKNOWN and not asks and not others


def _alike(recorder: Recorder, state: CapturedState, call: Call, made: Recording) -> Alike:
    """The plain calls for which a recording of ``value_and_grad`` holds."""
    if not call.key[0] or call.roots or not may_be_alike(state):
        return Alike.NONE
    if not all(REWRITER.sees_all(original(f.__code__)) for f in state.functions):
        return Alike.NONE
    return found_alike(recorder, made, call.first, state.reach)


@contextmanager
def _collector_paused(count: int) -> Iterator[None]:
    """No garbage collection while very many objects are made, none of which is garbage."""
    paused = count >= MANY and gc.isenabled()
    if paused:
        gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def _tuples_in(tree: Any) -> set[int]:
    """The ids of the tuples in nested arguments."""
    found = {id(tree)} if isinstance(tree, tuple) else set()
    if isinstance(tree, list | tuple | dict):
        for x in tree.values() if isinstance(tree, dict) else tree:
            found |= _tuples_in(x)
    return found


def _handed(
    result: Any,
    recorder: Recorder,
    state: CapturedState,
    rebuilt: Rebuilt,
    call: Call,
    has_graph: Any,
) -> Handed:
    """What the function returned, and what it changed, as a replay can do it too.

    Where Values are around, it may change nothing, and return nothing that it was passed.
    """
    outside = {id(x) for x, *_ in (*state.lists, *state.dicts, *state.arrays, *state.sets)}
    arrays = [x for x, _ in rebuilt.arrays]
    if call.key[0] or has_graph or state.outside or recorder.marker is not None:
        tuples = _tuples_in([rebuilt.arguments, rebuilt.keywords])
        if not call.key[0]:
            _look_for_copies(result, recorder)
        _check_returned(result, outside | recorder.passed, tuples, state, arrays)
        return Handed(result)
    stored, others = recorder.stores_into.keys(), outside | state.objects_by_id.keys()
    # What integers selected is a copy of what was passed.
    found = handed(rebuilt, result, stored.__contains__, others, recorder.selector.observed)
    new: list[Any] = []
    map_leaves(new.append, [found.result, [x.items for x in found.changes]], records=True)
    new = [x for x in new if isinstance(x, np.ndarray)]
    _check_returned(new, outside, set(), state, arrays)
    return found


def _look_for_copies(x: Any, recorder: Recorder) -> None:
    """``Observed`` where a container is returned that is a copy of what an integer selected."""
    kind = type(x)
    if kind in (list, tuple, dict) or isinstance(x, np.ndarray):
        recorder.selector.observed(x)
    if kind in (list, tuple, dict):
        for item in x.values() if kind is dict else x:
            _look_for_copies(item, recorder)


def _check_returned(
    result: Any, outside: set[int], tuples: set[int], state: CapturedState, arrays: list[Any]
) -> None:
    """Refuse a result that is, or holds, a container which others hold too: it would be a copy.

    ``outside``: the ids of those. ``arrays``: those that were passed; what shares memory with one
    is a view of it.
    """
    stack, seen = [result], set[int]()
    held = [np.ndarray.view(x, np.ndarray) for x in (*arrays, *[x for x, *_ in state.arrays])]
    while stack:
        x = stack.pop()
        if isinstance(x, np.ndarray):
            memory = np.ndarray.view(x, np.ndarray)
            if any(np.may_share_memory(memory, other) for other in held):
                raise Unrecordable("it returns an array whose memory is used elsewhere too")
            held.append(memory)
        if type(x) in (list, dict):
            if id(x) in outside or id(x) in seen:
                raise Unrecordable("it returns a list or dict that is held elsewhere too")
            seen.add(id(x))
        if is_named_tuple(x) or is_record(x):
            raise Unrecordable(f"it returns a {type(x).__name__}")
        if id(x) in tuples:
            raise Unrecordable("it returns a tuple that it was passed")
        if type(x) is dict and any(isinstance(key, StandIn) for key in x):
            raise Unrecordable("it returns a dict with keys that it was passed")
        if type(x) in (list, tuple, dict):
            stack.extend(x.values() if type(x) is dict else x)


def _check_identities(result: Any, held: set[int], recorder: Recorder) -> None:
    """Refuse a result that is a Value which others hold: it would be another one.

    What max or min chose is not known to be: it is recorded again by branches.
    """
    returned = {id(x): x for x in _values_in(result)}
    if not held.isdisjoint(returned):
        raise Unrecordable("it returns a Value that it was passed or reaches by itself")
    for key, x in returned.items():
        others = recorder.selector.origins(x) - {key}
        if not others.isdisjoint(held) or not others.isdisjoint(returned):
            raise Observed


def _values_in(result: Any) -> list[Value]:
    """The Values of a result, in lists, dicts and arrays too."""
    found: list[Value] = []

    def note(leaf: Any) -> None:
        items = leaf.flat if isinstance(leaf, np.ndarray) and leaf.dtype == object else [leaf]
        found.extend(x for x in items if isinstance(x, Value))

    map_leaves(note, result, records=True)
    return found


def nudged_numbers(values: list[Value], nudge: Nudge | None) -> list[float] | None:
    """Where to move Values that a function reaches by itself; None: they are to stay."""
    if nudge is None or threading.active_count() > 1:  # other threads must not see it
        return None
    return [nudge(v._number) for v in values]


@contextmanager
def moved(values: list[Value], numbers: list[float] | None) -> Iterator[None]:
    """The user's own Values, with other numbers for a while."""
    if numbers is None:
        yield
        return
    before = [v._number for v in values]
    try:
        for v, number in zip(values, numbers, strict=True):
            v.data = number
        yield
    finally:
        for v, number in zip(values, before, strict=True):
            v.data = number


def compare_errors(
    function: Callable[..., Any], state: CapturedState, call: Call, copied: bool = False
) -> None:
    """Refuse a function that catches an error which only recording raises, or only eager.

    C code that wants a float gets a stand-in, and the TypeError of that is not the user's.
    ``copied``: it may change what it is passed.
    """
    if not state.catches:
        return
    if sys.gettrace() is not None:  # a debugger's place
        raise Unrecordable("it catches errors, which is not checked while a debugger traces it")
    with _errors_noted(state.catches) as recorded:
        trace(function, state, call, whole=True)
    if copied:
        call = replace(call, copied=True)
    arguments, keywords = eager_arguments(call, lambda x: x if isinstance(x, Value) else Value(x))
    try:
        with _errors_noted(state.catches) as eager, plain_modes():
            function(*arguments, **keywords)
    finally:
        state.restore()
    for error in sorted({*recorded} ^ {*eager}):
        which = (
            "that only recording raises" if error in recorded else "that recording does not raise"
        )
        raise Unrecordable("it catches an error {3}: {0} at {2}:{1}".format(*error, which))


@contextmanager
def _errors_noted(codes: set[types.CodeType]) -> Iterator[list[tuple[str, int, str]]]:
    """The errors that come to some functions, which may catch them: their kind, line and file."""
    found: list[tuple[str, int, str]] = []
    codes = codes | {REWRITER.rewritten(c) or c for c in codes}

    def called(frame: types.FrameType, event: str, argument: Any) -> Any:
        if frame.f_code not in codes:
            return None
        frame.f_trace_lines = False
        return happened

    def happened(frame: types.FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            file = os.path.basename(frame.f_code.co_filename)
            found.append((argument[0].__name__, frame.f_lineno, file))
        return happened

    sys.settrace(called)
    try:
        yield found
    finally:
        sys.settrace(None)


@contextmanager
def plain_modes() -> Iterator[None]:
    """Gradients on, undefined values raise: whatever the caller's modes are, a recording is one.

    Compiled functions that are called inside run uncompiled: their locks might be held by a thread
    that waits for the one held here.
    """
    before = modes.grad, modes.allow_nonfinite, modes.debug
    modes.grad, modes.allow_nonfinite, modes.debug = True, False, False
    modes.internal += 1
    try:
        yield
    finally:
        modes.internal -= 1
        modes.grad, modes.allow_nonfinite, modes.debug = before


def is_internal() -> bool:
    """Whether a function runs to be recorded or checked, and not for the user."""
    return modes.internal > 0


def _random_states() -> tuple[Any, ...]:
    legacy: Any = np.random.get_state()  # noqa: NPY002
    return random.getstate(), legacy[1].tobytes(), legacy[2:]


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Put Python's and numpy's random states back afterwards."""
    python, numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)  # noqa: NPY002


def confirm(
    function: Callable[..., Any],
    state: CapturedState,
    call: Call,
    first: Trace,
    select: bool = True,
    both: bool = False,
    exact: bool = False,
    powers: bool = False,
) -> None:
    """Run again with numbers a little off: only inputs may make a difference.

    A branch near its edge goes the other way, so the nudge shrinks until every guard agrees; the
    last run has none at all. What differs then differs by itself.
    """
    pinned = False
    for scale in (1e-3, 1e-5, 1e-8, 0.0):
        nudge = nudges(len(first.recording), scale, scale)
        try:
            again = trace(
                function,
                state,
                call,
                nudge if scale else None,
                not first.settled,  # data that became static must be the same again
                select,
                first.recording,
                both,
                exact=exact,
                powers=powers,
            )
        except Exception:
            if scale:
                continue  # out of a domain: nearer
            raise
        difference = first.recording.differs(again.recording)
        if difference is None and pinned:
            lines = " and ".join(dict.fromkeys(first.settled))
            raise Unrecordable(
                f"a recording would hold for these numbers only, which Python reads at {lines}"
            )
        if difference is None:
            compare_errors(function, state, call, first.recording.hands_back)
            return
        pinned = difference == PINNED and bool(first.settled) and not call.key[0]
        if scale == 0.0 or difference.startswith("a number"):
            raise Unrecordable(f"two runs with the same arguments differ: {difference}")
