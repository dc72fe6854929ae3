"""Every sample by the variant that serves it: rounds of machine code, and calls of its own.

In: a function's ``Dispatch`` and samples. Out: a ``Results``. A round takes the first sample that
is left, finds its variant, and sends all that are left through the lanes of its machine code; what
has other branches is left for the next round. A sample with no such code is a call of its own, in
order, so that the first of them that raises is the first that would raise in a loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.recorder import Output
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.mapping.blocks import Blocks, Destination, Rows
from chainrule.compiler.mapping.lane_code import LaneCode, lane_code
from chainrule.compiler.mapping.stacks import Layout, Samples
from chainrule.compiler.runtime import calls
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.ledger import BUILD, REPLAY, allowance
from chainrule.compiler.runtime.results import as_floats, numeric_leaves, root_of
from chainrule.compiler.runtime.variants import Variant
from chainrule.core import errors
from chainrule.trees import Floats, map_leaves

MOST_KINDS = 64  # of samples that run on machine code
FEWEST = 2  # samples
MOST_DOUBLINGS = 6  # of a pause between two rounds


@dataclass
class Results:
    """What samples gave: rows, or totals."""

    differentiates: bool
    parameters: int
    count: int
    rows: bool  # a row for each sample; else totals
    template: Any = None  # what a sample returned, without its numbers
    values: Floats | None = None
    gradients: Floats | None = None
    value: float = 0.0
    gradient: Floats | None = None

    def __post_init__(self) -> None:
        if self.differentiates and self.rows:
            self.gradients = np.empty((self.count, self.parameters))
        elif self.differentiates:
            self.gradient = np.zeros(self.parameters)

    def accept(self, name: str, result: Any) -> list[Any]:
        """The leaves of what a sample returned; TypeError where it has another structure."""
        leaves: list[Any] = []

        def place(leaf: Any) -> int:
            leaves.append(leaf)
            return len(leaves) - 1

        template = map_leaves(place, result)
        for leaf in leaves:
            if not isinstance(leaf, Output) and not errors.is_real(leaf):
                raise TypeError(f"{name} returned a {type(leaf).__name__}: map stacks numbers only")
        if self.template is None:
            self.template = template
            if self.rows:
                self.values = np.empty((self.count, len(leaves)))
        elif template != self.template:
            raise TypeError(
                f"{name} returned {self.template} for one sample and {template} for another: "
                "map stacks results of one structure"
            )
        return leaves

    def add(self, name: str, k: int, result: Any, gradient: Floats | None) -> None:
        """What one sample gave."""
        numbers = [float(x) for x in self.accept(name, result)]
        if self.values is not None:
            self.values[k] = numbers
        self.value += numbers[0] if numbers else 0.0
        if gradient is not None and self.gradients is not None:
            self.gradients[k] = gradient
        elif gradient is not None and self.gradient is not None:
            self.gradient += gradient


class Rounds:
    """Samples of one structure, computed by a function."""

    def __init__(
        self, dispatch: Dispatch, samples: Samples, differentiate: bool, rows: bool, threads: int
    ) -> None:
        self._dispatch, self._samples, self._threads = dispatch, samples, threads
        self._differentiate, self._rows = differentiate, rows
        call = self._call(0)
        parameters = call.first if differentiate else 0
        self.call = call
        self.results = Results(differentiate, parameters, samples.count, rows)
        self._layout = samples.layout(call) if call.refused is None else None
        self._met: list[Variant] = []
        self._failed = 0  # rounds in a row that did nothing
        self._skipped = 0  # samples since the last round

    def _call(self, k: int) -> Call:
        return flatten_call(self._samples.arguments(k), {}, self._differentiate)

    def run(self) -> Results:
        """Compute all samples."""
        left: Rows = range(self._samples.count)
        while len(left):
            if self._layout is not None and self._skipped >= self._pause:
                before, left = len(left), self._round(left, self._layout)
                self._failed = self._failed + 1 if len(left) == before else 0
                self._skipped = 0
            if len(left):
                self._single(int(left[0]))
                self._skipped += 1
                left = left[1:]
        return self.results

    @property
    def _pause(self) -> int:
        """Samples one by one until machine code is looked for again."""
        return int(2 ** min(self._failed, MOST_DOUBLINGS)) - 1

    # --- in lanes ---------------------------------------------------------------------------------

    def _round(self, left: Rows, layout: Layout) -> Rows:
        """Send samples through the machine code of the first one's variant; those that are left."""
        dispatch = self._dispatch
        if len(left) < FEWEST or len(self._met) >= MOST_KINDS or dispatch.options.lift is False:
            return left
        with dispatch.lock:
            if dispatch.busy:
                return left
            dispatch.busy = True
            try:
                return self._through_lanes(self._call(int(left[0])), layout, left)
            finally:
                dispatch.busy = False

    def _through_lanes(self, call: Call, layout: Layout, left: Rows) -> Rows:
        dispatch, results = self._dispatch, self.results
        variant = dispatch.run(call, at_once=True, build=False).variant
        if variant is None or variant in self._met or not self._is_stackable(variant):
            return left
        code = self._code(variant, call, layout, len(left))
        if code is None:
            return left
        self._met.append(variant)
        leaves = results.accept(dispatch.name, variant.recording.result)
        columns = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Output)]
        values = results.values
        if values is not None and len(columns) < len(leaves):
            values = np.empty((results.count, len(columns)))
        blocks = Blocks(
            code, call, layout, variant.inputs.copy(), Destination(values, results.gradients)
        )
        still: list[Addresses] = []
        for block in blocks.run(left, self._threads):
            still.append(block.left)
            results.value += block.value
            if results.gradient is not None:
                results.gradient += block.gradient
        rest = np.concatenate(still)
        if values is not results.values and values is not None and results.values is not None:
            done = np.setdiff1d(np.asarray(left), rest)
            constants = [0.0 if isinstance(x, Output) else float(x) for x in leaves]
            results.values[done] = constants
            results.values[done[:, None], columns] = values[done]
        dispatch.count_replayed(len(left) - len(rest), call)
        return rest

    def _is_stackable(self, variant: Variant) -> bool:
        """Whether what it returns is numbers, the first of them to differentiate."""
        result = variant.recording.result
        if variant.captured or not variant.recording.outputs:
            return False
        return not self._differentiate or root_of(result) is not None

    def _code(self, variant: Variant, call: Call, layout: Layout, count: int) -> LaneCode | None:
        """The machine code for samples of a variant, built if that pays for itself."""
        key = (tuple([(s.first, s.count) for s in layout.floats]), self._rows)
        if key not in variant.lanes:
            size = len(variant.recording)
            predicted = count if not self._met else 1
            variant.mapped += 1 + self._skipped
            saved = (variant.mapped + predicted) * REPLAY.of(size)
            eager = self._dispatch.options.lift is True or allowance.is_endless
            if not eager and saved < BUILD.of(size):
                return None
            options = self._dispatch.options
            variant.lanes[key] = lane_code(variant, call, layout, self._rows, options)
        found = variant.lanes[key]
        return None if isinstance(found, str) else found

    # --- one by one -------------------------------------------------------------------------------

    def _single(self, k: int) -> None:
        """A sample as a call of its own."""
        dispatch, arguments = self._dispatch, self._samples.arguments(k)
        gradient = None
        if self._differentiate:
            result, grads = calls.value_and_grad(dispatch, arguments, {})
            gradient = np.concatenate([np.ravel(x) for x in numeric_leaves(grads)] or [np.zeros(0)])
        else:
            result = as_floats(calls.value(dispatch, arguments, {}))
        self.results.add(dispatch.name, k, result, gradient)
