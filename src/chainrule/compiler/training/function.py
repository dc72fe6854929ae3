"""A compiled function as training sees it: what takes a step in Python, and what takes many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chainrule.compiler.capture.comparing import ENDLESS
from chainrule.compiler.mapping.blocks import thread_count
from chainrule.compiler.runtime.calls import value_and_grad
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.quicker import bound_of
from chainrule.compiler.training import worth
from chainrule.compiler.training.machine_loop import MachineLoop, machine_loop
from chainrule.compiler.training.packing import PackedSamples
from chainrule.compiler.training.steps import Steps
from chainrule.compiler.training.worth import Worth
from chainrule.optim import Optimizer
from chainrule.trees import Floats
from chainrule.windows import Windows

Sample = tuple[Any, ...]


class TrainableFunction:
    """The ``driver.Function`` of a compiled function, for one run."""

    def __init__(self, dispatch: Dispatch, threads: int | None = None) -> None:
        self._dispatch, self._threads = dispatch, thread_count(threads)
        self._worth: Worth | None = None  # None: whatever it costs
        self._is_short = False  # a few calls, as any others

    def value_and_grad(self, *arguments: Any) -> Any:
        """The loss of one sample and its gradient."""
        if self._worth is not None:
            return self._worth.call(arguments)
        return value_and_grad(self._dispatch, arguments, {}, at_once=not self._is_short)

    def owns(self, steps: Steps) -> Callable[[Any], bool]:
        """Whether something that is passed is what the function reaches by itself."""
        dispatch = self._dispatch
        return dispatch.owns(
            bound_of(dispatch.ledger) if worth.is_weighed(dispatch, steps) else ENDLESS
        )

    def inner_loop(
        self, params: Any, samples: list[Sample] | Windows, optimiser: Optimizer, steps: Steps
    ) -> MachineLoop | LaterLoop | None:
        """Steps in machine code, where there can be some, and if these are worth it."""
        dispatch = self._dispatch
        is_weighed = worth.is_weighed(dispatch, steps)
        self._is_short = is_weighed and worth.is_short(dispatch, steps)
        if self._is_short:
            return None
        loop = machine_loop(dispatch, params, samples, optimiser, steps, self._threads)
        if is_weighed:
            packed = loop.samples if loop else PackedSamples(dispatch, params, samples, steps.key)
            can_be = loop is not None
            with dispatch.lock:
                self._worth = Worth(dispatch, packed, optimiser.steps, steps, can_be)
            if not self._worth.answer:
                return LaterLoop(loop, self._worth)
        return loop if loop is not None and loop.start() else None


class LaterLoop:
    """The steps of a run that may be worth machine code, which its first one will tell."""

    def __init__(self, loop: MachineLoop | None, worth: Worth) -> None:
        self._loop, self._worth, self._is_started = loop, worth, False

    def begin(self) -> bool:
        """Make the code for the steps, once these are known to be worth it; whether it runs."""
        if not self._worth.decide() or self._loop is None:
            return False
        if not self._is_started:
            if not self._loop.start():
                self._loop = None
            self._is_started = True
        return self._loop is not None

    def run(self, first_step: int, count: int) -> Floats:
        """Take up to ``count`` steps in place; the loss of each step taken."""
        assert self._loop is not None
        return self._loop.run(first_step, count)
