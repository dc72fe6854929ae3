"""The mean value over some samples, forward only, as often as wanted.

In: a function's ``Dispatch``, parameters and samples. Out: an ``Evaluator``. Samples are recorded
and packed once, for the machine code that training runs too; what does not run on it is a call of
its own, and so is what gives a number that is not finite, for its error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.runtime.calls import value_and_grad
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.machine import beyond
from chainrule.compiler.training import step_code
from chainrule.compiler.training.batches import may_be_overtaken
from chainrule.compiler.training.lanes import Arrangement, Groups
from chainrule.compiler.training.packing import PackedSamples
from chainrule.compiler.training.samples import Sample, checked_samples, copies_of, may_hold
from chainrule.compiler.training.steps import Progress, unnoticed
from chainrule.core.backend import Value, modes
from chainrule.core.interrupts import safe_point
from chainrule.trees import Array, Floats
from chainrule.windows import Windows


class Evaluator:
    """The mean value over samples; made by ``CompiledFunction.evaluator``, see there."""

    def __init__(
        self,
        dispatch: Dispatch,
        params: Any,
        samples: Iterable[Sample],
        progress: Progress = unnoticed,
    ) -> None:
        if modes.recorder is not None:
            modes.recorder.forbid("evaluator of a compiled function")
        found = checked_samples(samples, "evaluator")
        if isinstance(found, Windows):
            found = found[:]
        self._dispatch, self._params, self._progress = dispatch, params, progress
        self._samples = copies_of(found, params, dispatch.owns())
        self._parts: _Parts | None = None
        self._structure: Any = None  # of the parameters, when all was prepared
        self._state: Any = None  # the captured state then
        with dispatch.lock:
            self._prepare(flatten_call((params,), {}, differentiate=True))

    def __call__(self) -> float:
        """The mean value, for the parameters as they are now."""
        with self._dispatch.lock:
            call = flatten_call((self._params,), {}, differentiate=True)
            same = call.key == self._structure and self._state is self._dispatch.captured
            if not same or not self._dispatch.is_fresh():
                self._prepare(call)
            total, left = self._in_machine_code(call)
        overtaken = [self._samples[k] for k in left]
        if not all(may_be_overtaken(self._dispatch, self._params, x) for x in overtaken):
            total, left = 0.0, list(range(len(self._samples)))  # one after the other, as they come
        for k in left:
            safe_point()
            arguments = (self._params, *self._samples[k])
            value, _ = value_and_grad(self._dispatch, arguments, {}, at_once=True)
            total += float(value[0] if isinstance(value, tuple) else value)
        return total / len(self._samples)

    def _prepare(self, call: Call) -> None:
        """Record and pack the samples, where they run on machine code."""
        self._parts, self._structure = None, call.key
        self._pack(call)
        self._state = self._dispatch.captured

    def _pack(self, call: Call) -> None:
        plain = call.refused is None and not any(isinstance(x, Value) for x in call.floats)
        if self._dispatch.options.lift is False or self._dispatch.busy or not plain:
            return
        if may_hold(self._samples, [x for x in call.floats if isinstance(x, np.ndarray)]):
            return  # what is packed would stay as it is now
        packed = PackedSamples(self._dispatch, self._params, self._samples)
        every = np.arange(len(self._samples))
        if not packed.prepare(every, self._progress):
            return
        packed.look_at(every)
        chosen = np.flatnonzero(packed.fit_of >= 0)
        if packed.machine is not None and len(chosen):
            try:
                made = Arrangement(packed, chosen, len(chosen))
            except NotLiftable:
                return
            self._parts = _Parts(made, made.groups(chosen), np.flatnonzero(packed.fit_of < 0))

    def _in_machine_code(self, call: Call) -> tuple[float, list[int]]:
        """The sum of what machine code computes, and the samples that it does not."""
        if self._parts is None:
            return 0.0, list(range(len(self._samples)))
        parameters = np.empty(call.size)
        call.write(parameters)
        total, left = self._parts.run(parameters)
        self._dispatch.count_replayed(len(self._samples) - len(left))
        return total, left


class _Parts:
    """Groups of samples, and all that the code reads of each."""

    def __init__(self, made: Arrangement, groups: Groups, left: Array) -> None:
        self._made, self._groups, self._left = made, groups, left.tolist()
        self._gathers, self._own = groups.gathers(), groups.own()

    def run(self, parameters: Floats) -> tuple[float, list[int]]:
        """The sum of the samples' values, and those that are left for calls of their own."""
        made, groups, code = self._made, self._groups, self._made.code
        left, total = list(self._left), 0.0
        if beyond(made.machine.dtype, parameters).any():
            return 0.0, [*left, *groups.members[groups.counted].tolist()]
        root = (made.root - made.program.shared) * made.lanes
        made.machine.current = None  # the constants there are another recording's now
        code.shared[: len(parameters)] = parameters
        for g, fit in enumerate(groups.fits.tolist()):
            safe_point()
            code.shared[made.program.inputs :] = made.constants[fit]
            code.gathers[:] = self._gathers[g].ravel()
            code.own[: self._own[g].size] = self._own[g].ravel()
            counted = groups.counted[g]
            if code.run(step_code.words(made.counts[fit])):
                results = code.own[root : root + made.lanes][counted]
                total += float(results.sum(dtype=np.float64))
            else:
                left += groups.members[g][counted].tolist()
        return total, left
