"""When recordings become machine code, and for which calls it serves.

In: the variants of a compiled function as they are recorded. Out: variants that run lifted: each
with its own array program, or, where its lists of integers are no longer than some other's, with
that one's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import Surroundings
from chainrule.compiler.capture.recorder import Recording
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Trace, trace
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.families import (
    Choices,
    Family,
    Runs,
    resized,
    runs_of,
    shorter,
    slots_among,
    split,
)
from chainrule.compiler.runtime.lifted import Lifted, Source
from chainrule.compiler.runtime.results import root_of
from chainrule.compiler.runtime.tape import FINE
from chainrule.compiler.runtime.variants import Variant

SMALL = 256  # instructions: fewer are as quick on the tape, and keep eager's bits
FAMILIES = 64  # of calls whose lengths differ; the oldest goes

Try = Callable[[Variant, Call], "int | None"]


class Lifter:
    """Lifts the variants of one function while its surroundings stay the same."""

    def __init__(
        self,
        function: Callable[..., Any],
        surroundings: Surroundings,
        dtype: str,
        always: bool,
        contract: bool,
    ) -> None:
        self.function, self.surroundings = function, surroundings
        self.dtype, self.always, self.contract = dtype, always, contract
        self.families: dict[Any, Family] = {}
        self.traces = 0
        self.outgrown: Family | None = None  # whose place a longer one took

    def _trace(self, call: Call) -> Trace | None:
        """One more recording; None where the function fails with these integers."""
        self.traces += 1
        try:
            return trace(self.function, self.surroundings, call)
        except (Exception, Unrecordable):
            self.surroundings.restore()
            return None

    def family(self, call: Call) -> tuple[Any, Family | None, Runs] | None:
        """The key of a call's family, what there is of it, and the call's own lengths.

        None where it passes no list of integers.
        """
        key, runs = runs_of(call)
        if not any(is_list for _, is_list in runs):
            return None
        key = (key, self.surroundings.marks(call.values))
        family = self.families.pop(key, None)
        if family is not None:
            self.families[key] = family
        while len(self.families) > FAMILIES:
            del self.families[next(iter(self.families))]
        return key, family, runs

    # --- a program of its own ---------------------------------------------------------------------

    def lift(self, variant: Variant, call: Call, made: Trace, run: Try) -> None:
        """Make an array program of a variant, if it has the structure, and check its result."""
        root = root_of(variant.recording.result)
        if root is None:
            variant.not_lifted = "it returns no single Value"
            return
        if len(variant.recording) < SMALL and not self.always:
            variant.not_lifted = f"it is small (under {SMALL} instructions)"
            return
        if variant.lifted is None and run(variant, call) != FINE:
            variant.not_lifted = "there is no result to check it by"
            return
        swept, value = variant.sweep(root.position), variant.number(root.position)
        if swept is None:
            variant.not_lifted = "there is no gradient to check it by"
            return
        wanted = swept.copy()
        selection = variant.recording.selection
        found = self.family(call) if not selection.program.guards else None
        if selection.numbers:
            found = None
        short = self._shorter(call, found[2], 1) if found is not None else None
        source = self._source(call, variant.recording, root.position)
        try:
            lifted = Lifted(
                source,
                short,
                self.dtype,
                self.contract,
                None if found is None else lambda: self._shortest(call, found[2]),
            )
        except NotLiftable as reason:
            variant.not_lifted = str(reason)
            return
        except Exception as error:  # the tape still serves: say why, and go on
            variant.not_lifted = f"{type(error).__name__}: {error}"
            return
        variant.lifted, variant.fit = lifted, lifted.fit
        if not self.agrees(variant, call, run, value, wanted):
            return
        if found is not None and lifted.varying:
            key, self.outgrown, runs = found
            family = Family(runs, lifted, Choices.of(selection, lifted.fit, source.slots))
            self.families[key] = family
            variant.family, variant.slots = family, source.slots

    def agrees(self, variant: Variant, call: Call, run: Try, value: float, wanted: Any) -> bool:
        """Compare a first lifted result with the tape's."""
        root = root_of(variant.recording.result)
        assert root is not None
        run(variant, call)
        if not variant.ran_lifted:
            return True
        found = variant.sweep(root.position)
        if found is None:
            return True
        if not np.isfinite(wanted).all() or not np.isfinite(found).all():
            return bool(np.array_equal(found, wanted, equal_nan=True))
        scale = max(1.0, abs(value), float(np.max(np.abs(wanted), initial=0.0)))
        limit = 1e-9 if self.dtype == "float64" else 1e-3
        error = max(
            abs(variant.number(root.position) - value),
            float(np.max(np.abs(found - wanted), initial=0.0)),
        )
        if error <= limit * scale:
            return True
        variant.lifted, variant.fit = None, None
        variant.not_lifted = "its result differs (please report this)"
        return False

    def _source(
        self, call: Call, recording: Recording, root: int, slots: Addresses | None = None
    ) -> Source:
        integers = np.arange(len(call.ints) + len(recording.selection.numbers))
        first = recording.inputs - len(integers)
        private = np.concatenate([np.arange(call.first, call.size), first + integers])
        arrays = (*np.cumsum([0, *call.sizes]).tolist(), first)
        return Source(recording, root, private, integers if slots is None else slots, arrays)

    def _shorter(self, call: Call, runs: Runs, less: int) -> Source | None:
        """The same call with so many integers less in each list."""
        rows = shorter(runs, call.ints, less)
        if rows is None:
            return None
        call = resized(call, rows)
        _, short_runs = runs_of(call)
        slots = slots_among(short_runs, runs)
        made = self._trace(call)
        if made is None or slots is None or not _may_be_shorter(made):
            return None
        root = root_of(made.recording.result)
        return None if root is None else self._source(call, made.recording, root.position, slots)

    def _shortest(self, call: Call, runs: Runs) -> Source | None:
        """The same call with two integers in its shortest list."""
        less = min([count for count, is_list in runs if is_list]) - 2
        return self._shorter(call, runs, less) if less > 0 else None

    # --- the program of a longer call -------------------------------------------------------------

    def join(self, call: Call, made: Trace) -> Variant | None:
        """A variant that runs on the code of a longer call, if there is one and it fits."""
        root = root_of(made.recording.result)
        found = self.family(call)
        if found is None or root is None or not _may_be_shorter(made):
            return None
        _, family, runs = found
        if family is None:
            return None
        slots = slots_among(runs, family.runs)
        if slots is None:
            return None
        fit = family.lifted.fitted(self._source(call, made.recording, root.position, slots))
        if fit is None:
            return None
        inputs, grads = np.zeros((2, made.recording.inputs))
        variant = Variant(made.recording, made.captured, made.numeric, inputs, grads)
        variant.lifted, variant.fit = family.lifted, fit
        variant.family, variant.slots = family, slots
        return variant

    def longer(self, call: Call) -> Call | None:
        """A call half as long again, if this one outgrew its family's code and that can be run."""
        found = self.family(call)
        if found is None:
            return None
        _, family, runs = found
        if family is None or slots_among(runs, family.runs) is not None:
            return None
        rows = [
            (row * 2)[: len(row) + len(row) // 2] if is_list else row
            for row, (_, is_list) in zip(split(runs, call.ints), runs, strict=True)
        ]
        stretched = resized(call, rows)
        return stretched if self._trace(stretched) is not None else None


def _may_be_shorter(made: Trace) -> bool:
    """Whether a recording may use the code of a longer call: its integers decide by themselves."""
    selection = made.recording.selection
    return not selection.program.guards and not selection.numbers
