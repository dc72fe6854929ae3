"""A compiled function as training sees it: what takes a step in Python, and what takes many."""

from __future__ import annotations

from typing import Any

from chainrule.compiler.mapping.blocks import thread_count
from chainrule.compiler.runtime.calls import value_and_grad
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.training.machine_loop import MachineLoop, machine_loop
from chainrule.compiler.training.steps import Steps
from chainrule.optim import Optimizer
from chainrule.windows import Windows

Sample = tuple[Any, ...]


class TrainableFunction:
    """The ``driver.Function`` of a compiled function."""

    def __init__(self, dispatch: Dispatch, threads: int | None = None) -> None:
        self._dispatch, self._threads = dispatch, thread_count(threads)

    def value_and_grad(self, *arguments: Any) -> Any:
        """The loss of one sample and its gradient."""
        return value_and_grad(self._dispatch, arguments, {}, at_once=True)

    def inner_loop(
        self, params: Any, samples: list[Sample] | Windows, optimiser: Optimizer, steps: Steps
    ) -> MachineLoop | None:
        """Steps in machine code, where there can be some."""
        return machine_loop(self._dispatch, params, samples, optimiser, steps, self._threads)
