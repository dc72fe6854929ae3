"""Sums over many samples and their gradient, by the loop of training without its update.

In: packed samples and parameters, in one row. Out: ``Means``, which gives the sum of what samples
that run on machine code give, the sum of their gradients, and which samples are left. It goes on
with the samples of another batch, so that each structure is met once.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.machine import beyond
from chainrule.compiler.training import step_code, updates
from chainrule.compiler.training.lanes import Arrangement, Groups, Rows
from chainrule.compiler.training.memory import Memory
from chainrule.compiler.training.packing import PackedSamples
from chainrule.trees import Array, Floats

BLOCK = 64  # groups of samples that are added up in the numbers of the code, then in doubles


class Means:
    """Sums over the samples that ``packed`` shows, one batch after another.

    What was found out about samples holds as long as the function's captured state is ``captured``.
    """

    def __init__(self, dispatch: Dispatch, params: Any) -> None:
        self._dispatch = dispatch
        self._begin(params, [])
        self.seen = 0  #: samples of all batches so far

    def _begin(self, params: Any, samples: list[tuple[Any, ...]]) -> None:
        self.captured = self._dispatch.captured
        free = self._dispatch.spends_freely
        self.packed = PackedSamples(self._dispatch, params, samples, at_any_cost=free)
        self._made: Arrangement | None = None
        self._memory: Memory | None = None

    def sums(self, call: Call) -> tuple[float, Floats, list[int]] | None:
        """The sum of values, and of their gradients by the parameters, in one row; ``call``: these.

        At the end: which samples do not run on the code of the others, and are left out. None where
        too few are left, or something is not finite.
        """
        if not self._has_code():
            return None
        packed, parameters = self.packed, np.empty(call.size)
        call.write(parameters)
        packed.look_at(np.arange(len(packed.samples)))
        chosen = np.flatnonzero(packed.fit_of >= 0)
        assert packed.machine is not None
        if len(chosen) < 2 or beyond(packed.machine.dtype, parameters).any():
            return None
        try:
            memory, made = self._ready(chosen, len(parameters))
        except (NotLiftable, TooDear):
            return None
        groups = made.groups(chosen)
        rows = _counted_once(groups, made)
        value, gradient = 0.0, np.zeros(len(parameters))
        made.machine.current = None  # the constants there are another recording's now
        for first in range(0, len(groups.fits), BLOCK):
            memory.parameters[:] = parameters
            some = np.array([first, min(first + BLOCK, len(groups.fits))])
            loss = _step(memory, groups, rows, some)
            if loss is None:
                return None
            value += loss
            gradient += memory.moments[0]
        if not np.isfinite(gradient).all():
            return None
        fits, calls = np.unique(packed.fit_of[chosen], return_counts=True)
        for fit, count in zip(fits.tolist(), calls.tolist(), strict=True):
            self._dispatch.earn(count, packed.kinds[fit].variant)
        return value, gradient, np.flatnonzero(packed.fit_of < 0).tolist()

    @property
    def work(self) -> int | None:
        """How many numbers a sample computes, by the code of the last batch."""
        return None if self._made is None else self._made.work

    def _has_code(self) -> bool:
        """Whether there is machine code for the longest sample: that of earlier ones, or its own.

        A sample longer than all before has other code, on which those run too.
        """
        packed, longest = self.packed, self.packed.structures.longest()
        if packed.machine is None or packed.kind_of(longest) is None:
            if not (self._dispatch.spends_freely or packed.has_code(longest)):
                return False
            params, samples = packed.params, list(packed.samples)
            self._begin(params, samples)
            if self.packed.kind_of(self.packed.structures.longest()) is None:
                return False
            self.captured = self._dispatch.captured
        return True

    def _ready(self, chosen: Array, size: int) -> tuple[Memory, Arrangement]:
        """How these samples go through the code: as those of the last batch, if it was as large."""
        made = self._made
        if made is None or made.batch != len(chosen) or not made.serves():
            made, self._memory = self._arranged(chosen), None
            self._made = made
        if self._memory is None:
            self._memory = Memory([made], size, 1, "sgd")
        self._memory.moments[0][:] = 0.0
        return self._memory, made

    def _arranged(self, chosen: Array) -> Arrangement:
        """How they go, whose code is built if that can be paid for; TooDear if not."""
        packed, ledger = self.packed, self._dispatch.ledger
        assert packed.machine is not None
        machine, longest = packed.machine, packed.kinds[0].variant
        size, cost = len(longest.recording), longest.build_cost
        is_known = machine.in_batches.issuperset(packed.fits)
        free = is_known or self._dispatch.spends_freely
        if not free and not ledger.affords_building(size, cost):
            raise TooDear
        before, started = machine.built, time.thread_time()
        try:
            return Arrangement(packed, chosen, len(chosen))
        finally:
            machine.in_batches.update(packed.fits)
            if machine.built != before:
                ledger.built(size, time.thread_time() - started, cost)


class TooDear(Exception):
    """What there is to build has not been earned."""


def _counted_once(groups: Groups, made: Arrangement) -> Rows:
    """What the groups read, where each sample counts as 1, and not as a part of a mean."""
    rows = groups.rows(None)
    if made.lanes == 1:
        return replace(rows, seeds=np.ones_like(rows.seeds))
    return replace(rows, seeds=np.ascontiguousarray(groups.counted, rows.own.dtype))


def _step(memory: Memory, groups: Groups, rows: Rows, some: Array) -> float | None:
    """The sum over some groups; None where it is not finite. The gradient becomes the moment.

    That is what a step of gradient descent without momentum leaves behind; its rate is 0.
    """
    rates = np.zeros(updates.RATES, memory.dtype)
    rates[2] = 1.0
    count = len(groups.fits)
    which, places, losses = np.zeros(count, np.int64), np.arange(count), np.zeros(1)
    done = step_code.take(
        memory.dtype_name,
        memory.shares(1, [rows]),
        **memory.fields,
        which=step_code.words(which),
        rows=step_code.words(places),
        fits=step_code.words(groups.fits),
        starts=step_code.words(some),
        rates=step_code.words(rates),
        losses=step_code.words(losses),
        steps=1,
    )
    return float(losses[0]) if done else None
