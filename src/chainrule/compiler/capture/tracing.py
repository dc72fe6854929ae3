"""How a function is recorded: which runs it takes, and what makes them.

In: a function, its state and a call. Out: a ``Trace``, of the first run (``running``) in which
nothing happened that a recording of its kind cannot hold; and whether another run, with numbers a
little off, repeats it.
"""

from __future__ import annotations

import os
import sys
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from chainrule.compiler.capture.arguments import (
    Call,
    Nudge,
    eager_arguments,
    nudges,
)
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.carried import Carried
from chainrule.compiler.capture.comparing import ENDLESS, Bound
from chainrule.compiler.capture.forks import Impure
from chainrule.compiler.capture.harmless import names_only_known
from chainrule.compiler.capture.hooks import REWRITER
from chainrule.compiler.capture.keyed import NotKeyed
from chainrule.compiler.capture.marks import Marker
from chainrule.compiler.capture.outside import (
    ADVICE,
    Kept,
    Outside,
)
from chainrule.compiler.capture.reading import Observed
from chainrule.compiler.capture.recorder import Recorder
from chainrule.compiler.capture.recordings import PINNED, Recording
from chainrule.compiler.capture.rewriting import original
from chainrule.compiler.capture.running import Trace, run_recorded
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.undisturbed import plain_modes
from chainrule.compiler.capture.walking import LIMIT, survey
from chainrule.core.backend import Value, kernels, modes
from chainrule.core.errors import GraphNeeded


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

    def survey(
        self, roots: Collection[Any] = (), most: int = LIMIT, bound: Bound = ENDLESS
    ) -> CapturedState:
        """What the function reads without being passed it; ``roots``: from these too."""
        return survey(self.source, roots, most=most, bound=bound)

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
            beside=True,
        )

    def confirm(
        self, state: CapturedState, call: Call, first: Trace, carries: bool = False
    ) -> Carried | None:
        """Refuse a recording that another run with numbers a little off does not repeat.

        ``carries``: returns what that run computed, unless it is another run that has to tell.
        """
        ways = self.select, self.both, self.exact, self.powers
        return confirm(self.function, state, call, first, *ways, beside=True, carries=carries)


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

    def survey(  # noqa: D102
        self, roots: Collection[Any] = (), most: int = LIMIT, bound: Bound = ENDLESS
    ) -> CapturedState:
        if roots:
            raise Unrecordable("it keeps numbers outside, and is passed objects or functions")
        state = survey(self.source, outside=self._kept.outside, most=most, bound=bound)
        self._kept.functions = state.functions
        return state


@dataclass(frozen=True)
class _How:
    """How a run is to be recorded; see ``trace``."""

    nudge: Nudge | None
    nudge_data: bool
    select: bool
    like: Recording | None
    both: bool
    whole: bool
    exact: bool
    powers: bool
    marker: Marker | None
    beside: bool
    carries: bool


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
    beside: bool = False,
    carries: bool = False,
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
    recording is ``whole`` or of both sides. ``beside``: integers that are returned beside the value
    that is differentiated are computed at each call; else the recording holds for these only.
    ``carries``: what is computed is told too, with a derivative, if nodes become instructions.
    """
    how = _How(nudge, nudge_data, select, like, both, whole, exact, powers, marker, beside, carries)
    return _keyed(function, state, call, how)


def _keyed(function: Callable[..., Any], state: CapturedState, call: Call, how: _How) -> Trace:
    """A recording in which stand-ins are keys of containers, where the function allows that."""
    while state.keyed:
        try:
            return _traced(function, state, call, frozenset(state.true_sites), how)[0]
        except NotKeyed as found:
            state.restore()
            state.true_sites.add(found.site)
        except (Exception, Unrecordable, Observed):  # C code may want a true container
            state.restore()
            made, recorder = _traced(function, state, call, None, how)
            state.keyed = False
            return made
    made, recorder = _traced(function, state, call, None, how)
    if recorder.hashed and recorder.selector.enabled and not state.catches and not state.keys_tried:
        state.keys_tried = True
        state.keyed = names_only_known(state.functions)
        if state.keyed:
            return _keyed(function, state, call, how)
    return made


def _traced(
    function: Callable[..., Any],
    state: CapturedState,
    call: Call,
    true_sites: frozenset[str] | None,
    how: _How,
) -> tuple[Trace, Recorder]:
    """The trace, and what recorded it."""
    if how.nudge is not None:
        call = call.nudged(how.nudge, state.place, how.nudge_data)
    _refuse_unseen(state)
    found = _of_both_sides(function, state, call, true_sites, how)
    return _of_one_side(function, state, call, true_sites, how) if found is None else found


def _refuse_unseen(state: CapturedState) -> None:
    """Refuse code that changes or draws what only rewritten code shows, and is not rewritten."""
    codes = [original(f.__code__) for f in state.functions]
    if state.outside and not all(map(REWRITER.sees_all, codes)):
        raise Unrecordable(f"it changes a number outside in code that cannot be rewritten{ADVICE}")
    if state.draws and not all(REWRITER.rewritten(f.__code__) for f in state.functions):
        raise Unrecordable(
            "it makes a generator of random numbers in code that cannot be rewritten"
        )


def _of_both_sides(
    function: Callable[..., Any],
    state: CapturedState,
    call: Call,
    true_sites: frozenset[str] | None,
    how: _How,
) -> tuple[Trace, Recorder] | None:
    """Such a trace; None where it is not asked for, or cannot be made."""
    both = how.both
    if both and state.contains:
        both = all(REWRITER.rewritten(f.__code__) for f in state.functions)
    while both and not (state.looks or state.asks or state.catches):
        plain_sites = frozenset(state.plain_sites)
        recorder = Recorder(call.ints, how.select, False, plain_sites, how.powers)
        recorder.true_sites = true_sites
        try:
            made = run_recorded(
                function, state, call, how.nudge, recorder, how.like, True, None, how.beside
            )
            return made, recorder
        except Impure as found:
            others = [site for site in found.sites if site not in state.plain_sites]
            if not others:
                break
            state.plain_sites.add(others[0])
        except Observed:
            break
    return None


def _of_one_side(
    function: Callable[..., Any],
    state: CapturedState,
    call: Call,
    true_sites: frozenset[str] | None,
    how: _How,
) -> tuple[Trace, Recorder]:
    """One in which branches go one way; again, and otherwise, where the function can tell."""
    observed, whole = state.looks, how.whole or state.looks or kernels is None
    spells = not state.catches
    while True:
        select, exact = how.select and not observed, how.exact or observed
        recorder = Recorder(call.ints, select, exact, powers=how.powers, spells=spells)
        recorder.true_sites = true_sites
        try:
            made = run_recorded(
                function,
                state,
                call,
                how.nudge,
                recorder,
                how.like,
                whole,
                how.marker,
                how.beside,
                how.carries and not whole,
            )
            return made, recorder
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
        trace(function, state, call)
    if copied:
        call = replace(call, copied=True)
    arguments, keywords = eager_arguments(call, lambda x: x if isinstance(x, Value) else Value(x))
    try:
        with _errors_noted(state.catches) as eager, plain_modes():
            function(*arguments, **keywords)
    finally:
        state.restore()
    if recorded == eager:
        return
    only = Counter(recorded) - Counter(eager), Counter(eager) - Counter(recorded)
    # One more of a kind counts, and so does the order.
    error = min([*only[0], *only[1]] or recorded)
    which = "that recording does not raise" if error in only[1] else "that only recording raises"
    raise Unrecordable("it catches an error {3}: {0} at {2}:{1}".format(*error, which))


@contextmanager
def _errors_noted(codes: set[types.CodeType]) -> Iterator[list[tuple[str, int, str]]]:
    """The errors that come to some functions, which may catch them: their kind, line and file.

    In the order in which they come, in the last run, where a function is recorded more than once.
    """
    found: list[tuple[str, int, str]] = []
    codes = codes | {REWRITER.rewritten(c) or c for c in codes}
    latest = modes.recorder

    def called(frame: types.FrameType, event: str, argument: Any) -> Any:
        nonlocal latest
        if frame.f_code not in codes:
            return None
        if latest is not modes.recorder:
            latest = modes.recorder
            found.clear()
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


def confirm(
    function: Callable[..., Any],
    state: CapturedState,
    call: Call,
    first: Trace,
    select: bool = True,
    both: bool = False,
    exact: bool = False,
    powers: bool = False,
    beside: bool = False,
    carries: bool = False,
) -> Carried | None:
    """Run again with numbers a little off: only inputs may make a difference.

    A branch near its edge goes the other way, so the nudge shrinks until every guard agrees; the
    last run has none at all. What differs then differs by itself. ``carries``: returns what the
    second run computed, if it was as far off as it was meant to be and nothing was hidden in the
    first one; else eager has to show what it computes there.
    """
    pinned, carries = False, carries and not (first.hides or first.settled)
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
                beside=beside,
                carries=carries,
            )
        except Exception:
            carries = False
            if scale:
                continue  # out of a domain: nearer
            raise
        difference = first.recording.differs(again.recording)
        if difference is None and pinned:
            lines = " and ".join(dict.fromkeys(first.settled))
            raise Unrecordable(
                f"a recording would hold for these numbers only, which Python reads at {lines}: "
                "compute there with operators and functions of math or chainrule"
            )
        if difference is None:
            compare_errors(function, state, call, first.recording.hands_back)
            return again.carried
        carries = False
        pinned = difference == PINNED and bool(first.settled) and not call.key[0]
        if scale == 0.0 or difference.startswith("a number"):
            raise Unrecordable(f"two runs with the same arguments differ: {difference}")
    return None
