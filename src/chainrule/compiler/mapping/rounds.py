"""Every sample by the variant that serves it: rounds of machine code, and calls of its own.

In: a function's ``Dispatch`` and samples. Out: a ``Results``. A round takes the first sample that
is left, finds its variant, and sends all that are left through the lanes of its machine code; what
has other branches is left for the next round. A sample with no such code is a call of its own, in
order, so that the first of them that raises is the first that would raise in a loop. Where one of
these runs eagerly, it might change what others read, so nothing may overtake it: all go in order.
"""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.recordings import Output
from chainrule.compiler.mapping.blocks import Blocks, Destination
from chainrule.compiler.mapping.checking import difference, sample_of
from chainrule.compiler.mapping.lane_code import LaneCode, lane_code
from chainrule.compiler.mapping.results import Results
from chainrule.compiler.mapping.stacks import Layout, Rows, Samples
from chainrule.compiler.runtime import calls
from chainrule.compiler.runtime.costs import EAGER, REPLAY
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.results import as_floats, numeric_leaves, root_of
from chainrule.compiler.runtime.variants import Variant
from chainrule.core.interrupts import Held
from chainrule.trees import Floats

MOST_KINDS = 64  # of samples that run on machine code
FEWEST = 2  # samples
MOST_DOUBLINGS = 6  # of a pause between two rounds
MOST_TOGETHER = 256  # samples whose gradients are put in one array


def _in_a_row(gradient: Any) -> Floats:
    """The numbers of a gradient, in order."""
    if type(gradient) is list and set(map(type, gradient)) == {float}:
        return np.array(gradient)
    return np.concatenate([np.ravel(x) for x in numeric_leaves(gradient)] or [np.zeros(0)])


def _rows(gradients: list[list[Any]]) -> Floats:
    """The numbers of gradients that are lists of one structure, a row for each."""
    if gradients and set(map(type, gradients[0])) == {float}:
        return np.array(gradients)
    return np.array([_in_a_row(gradient) for gradient in gradients])


class Rounds:
    """Samples of one structure, computed by a function."""

    def __init__(
        self,
        dispatch: Dispatch,
        samples: Samples,
        differentiate: bool,
        rows: bool,
        threads: int,
        derivative: bool = False,
    ) -> None:
        """``derivative``: the function is one, and what it returns is wanted, no gradient of it."""
        self._dispatch, self._samples, self._threads = dispatch, samples, threads
        self._name = dispatch.name
        self._differentiate, self._rows, self._derivative = differentiate, rows, derivative
        self.call = call = self._call(0)
        parameters = call.first if differentiate else 0
        self.results = Results(differentiate, parameters, samples.count, rows)
        self.only: LaneCode | None = None  # what computed all samples, and nothing else did
        self._met: list[Variant] = []
        self._kept: tuple[int, Results] | None = None  # sample and totals when lanes began
        self._failed = 0  # rounds in a row that did nothing
        self._skipped = 0  # samples since the last round
        self._is_alone = False  # no machine code is looked for
        self._pause = 0  # so many of them one by one until machine code is looked for again

    def _call(self, k: int) -> Call:
        differentiate = self._differentiate or self._derivative
        return flatten_call(self._samples.arguments(k), {}, differentiate)

    @cached_property
    def layout(self) -> Layout | None:
        """Where the numbers of samples are; None: each is a call of its own."""
        large = any(not -(1 << 63) <= i < 1 << 63 for i in self.call.ints)  # for machine code
        return None if large or self.call.refused is not None else self._samples.layout(self.call)

    @property
    def key(self) -> Any:
        """What machine code for the lanes of samples depends on, beside the variant."""
        assert self.layout is not None
        return (tuple([(s.first, s.count) for s in self.layout.floats]), self._rows)

    def run_in_lanes(self) -> Results | None:
        """Compute all samples; None where there is no machine code for the first of them."""
        left = self._round(range(self._samples.count))
        return self._run(left) if self._met else None

    def refuse_other_trees(self) -> None:
        """A first argument whose numbers have no places in a row of gradients is an error."""
        given = self.call.arguments[0]
        if self._differentiate and not self.call.first and numeric_leaves(given):
            raise TypeError(
                f"{self._dispatch.name}: a map differentiates by numbers and arrays in plain "
                f"dicts, lists and tuples; the first argument is a {type(given).__name__}"
            )

    @property
    def used_lanes(self) -> bool:
        """Whether some samples went through machine code for lanes."""
        return bool(self._met)

    def run(self, alone: bool = False) -> Results:
        """Compute all samples; ``alone``: each as a call of its own."""
        self._is_alone = alone
        return self._run(range(self._samples.count))

    def _run(self, left: Rows) -> Results:
        while len(left):
            if not self._is_alone and self._skipped >= self._pause:
                before, left = len(left), self._round(left)
                self._failed = self._failed + 1 if len(left) == before else 0
                self._skipped, self._pause = 0, 2 ** min(self._failed, MOST_DOUBLINGS) - 1
            if len(left):
                k = int(left[0])
                if self._kept is not None and not self._may_be_overtaken(k):
                    return self._in_order(*self._kept)
                self._single(k)
                self._skipped += 1
                left = left[1:]
                if self._kept is None and self.results.adds_numbers:
                    most = MOST_TOGETHER if self._is_alone else max(0, self._pause - self._skipped)
                    self._several(left[:most])
                    self._skipped += most
                    left = left[most:]
        return self.results

    def _in_order(self, first: int, results: Results) -> Results:
        """Every sample from one on by itself; ``results``: of those before it.

        What lanes and calls computed of them so far changed nothing, and does not count.
        """
        self.results, self.only = results, None
        for k in range(first, self._samples.count):
            self._single(k)
        return self.results

    def _may_be_overtaken(self, k: int) -> bool:
        """Whether samples after one may be computed before it; it takes a while to find out."""
        return not self._dispatch.waits() and self._dispatch.may_be_overtaken(self._call(k))

    # --- in lanes ---------------------------------------------------------------------------------

    def _round(self, left: Rows) -> Rows:
        """Send samples through the machine code of the first one's variant; those that are left."""
        if len(left) < FEWEST or len(self._met) >= MOST_KINDS:
            return left
        dispatch = self._dispatch
        if not dispatch.has_lanes and dispatch.waits():
            self._failed = MOST_DOUBLINGS  # there is no code, and none is made now
            return left
        layout = self.layout
        if layout is None:
            self._is_alone = True
            return left
        with dispatch.lock:
            if dispatch.busy or dispatch.options.lift is False:
                return left
            dispatch.busy = True
            try:
                found = self._found(int(left[0]), layout, len(left))
                return left if found is None else self._through_lanes(*found, layout, left)
            finally:
                dispatch.busy = False

    def _found(self, k: int, layout: Layout, count: int) -> tuple[LaneCode, Call] | None:
        """Machine code for samples of a variant not met yet: one that has some, or sample k's.

        The first that was built comes first, so that the same samples are added up in one order.
        """
        found = [v.lanes.get(self.key) for v in self._dispatch.known(self.call)]
        codes = [x for x in found if isinstance(x, LaneCode) and x.variant not in self._met]
        if codes:
            return min(codes, key=lambda code: code.number), self.call
        call = self.call if k == 0 else self._call(k)
        variant = self._dispatch.look(call, build=False).variant
        if variant is None or variant in self._met or not self._is_stackable(variant):
            return None
        code = self._code(variant, call, layout, count)
        return None if code is None else (code, call)

    def _through_lanes(self, code: LaneCode, call: Call, layout: Layout, left: Rows) -> Rows:
        dispatch, results, variant = self._dispatch, self.results, code.variant
        self._met.append(variant)
        if self._kept is None:
            self._kept = int(left[0]), results.kept()
        inputs = np.zeros(variant.recording.inputs)
        call.write(inputs[: call.size])
        shared = code.with_shared(inputs)
        if shared is None:
            return left
        leaves = results.accept(dispatch.name, variant.recording.result)
        columns = [k for k, leaf in enumerate(leaves) if isinstance(leaf, Output)]
        values = results.values
        if values is not None and len(columns) < len(leaves):
            values = np.empty((results.count, len(columns)))
        to = Destination(values, results.gradients)
        blocks = Blocks(code, shared, call.ints, layout, to)
        rest = results.take(blocks.run(left, self._threads), code)
        blocks.close()
        if rest is None:
            return left
        if values is not results.values and values is not None and results.values is not None:
            done = np.setdiff1d(np.asarray(left), rest)
            constants = [0.0 if isinstance(x, Output) else float(x) for x in leaves]
            results.values[done] = constants
            results.values[done[:, None], columns] = values[done]
        dispatch.count_replayed(len(left) - len(rest), call, variant)
        if len(left) - len(rest) == results.count and values is results.values:
            self.only = code
        return rest

    def _is_stackable(self, variant: Variant) -> bool:
        """Whether what it returns is numbers, the first of them to differentiate."""
        result = variant.recording.result
        if variant.captured or not variant.recording.outputs or variant.sizes is not None:
            return False  # what was never recorded has code for single calls only
        in_single = self._dispatch.options.dtype == "float32"  # which may not hold an integer
        integers = in_single and any(x.is_integer for x in variant.recording.outputs)
        if variant.recording.hands_back or integers:
            return False
        return not self._differentiate or root_of(result) is not None

    def _code(self, variant: Variant, call: Call, layout: Layout, count: int) -> LaneCode | None:
        """The machine code for samples of a variant, built if that pays for itself."""
        key = self.key
        if key not in variant.lanes:
            # Of the first variant all samples may be, of another one as many as were met.
            samples = count if not self._met and not self._failed else 1 + self._skipped
            variant.mapped += samples
            dispatch, options = self._dispatch, self._dispatch.options
            if not (dispatch.spends_freely or self._pays(variant, samples)):
                return None
            sample = sample_of(variant, call)
            if sample is None:  # nothing to check it by, but another one may have
                return None
            started = time.thread_time()
            with Held():  # what a signal's handler raises would be taken for a reason not to
                made = lane_code(variant, call, layout, self._rows, options)
                if isinstance(made, LaneCode):
                    made = difference(made, call, sample) or made
            seconds = time.thread_time() - started
            dispatch.counts.lifting_seconds += seconds
            dispatch.ledger.built(len(variant.recording), seconds)
            variant.lanes[key] = made
            dispatch.has_lanes = True
            if variant.binding is not None:
                variant.forget_tape()
        found = variant.lanes[key]
        return None if isinstance(found, str) else found

    def _pays(self, variant: Variant, samples: int) -> bool:
        """Whether code for so many samples, of which there may come more, can be paid for.

        Half of what these take eagerly is spent already.
        """
        size = len(variant.recording)
        cost = variant.building_takes
        if variant.mapped * REPLAY.of(size) < cost:
            return False
        short = max(0.0, cost - 0.5 * samples * EAGER.of(size))
        return self._dispatch.ledger.affords_building(size, short)

    # --- one by one -------------------------------------------------------------------------------

    def _several(self, some: Rows) -> None:
        """Samples as calls of their own, most of which give a number, as others did before."""
        dispatch, results = self._dispatch, self.results
        values: list[float] = []
        gradients: list[list[Any]] = []
        for place, given in enumerate(self._samples.several(some)):
            answer = dispatch.answer(given, True)
            if answer is None:
                answer = calls.unanswered_value_and_grad(dispatch, given, {})
            value, gradient = answer
            if type(value) is float and type(gradient) is list:
                values.append(value)
                gradients.append(gradient)
                continue
            results.add_numbers(some[place - len(values) : place], values, _rows(gradients))
            results.add(self._name, int(some[place]), value, _in_a_row(gradient))
            values, gradients = [], []
        results.add_numbers(some[len(some) - len(values) :], values, _rows(gradients))

    def _single(self, k: int) -> None:
        """A sample as a call of its own."""
        dispatch, arguments = self._dispatch, self._samples.arguments(k)
        gradient = None
        if self._differentiate:
            result, grads = calls.value_and_grad(dispatch, arguments, {})
            gradient = _in_a_row(grads)
        elif self._derivative:
            result = as_floats(calls.derivative(dispatch, arguments, {}))
        else:
            result = as_floats(calls.value(dispatch, arguments, {}))
        self.results.add(self._name, k, result, gradient)
