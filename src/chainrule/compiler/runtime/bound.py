"""A call bound to its arguments: for loops that change arrays in place and ask again.

In: the arguments of ``value_and_grad``, arrays in the first of them. Out: a ``BoundCall``, which
reads them where they are, each time it is called, and writes the gradient into the same arrays.
Calls like an earlier one are answered in C, by the function's gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.runtime.calls import unanswered_value_and_grad
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.results import fill
from chainrule.core.backend import kernels
from chainrule.trees import map_leaves


class SlowCall:
    """A bound call without the C one: nothing answers it but ``finish``."""

    gate: Any
    arguments: tuple[Any, ...]
    gradient: Any

    def __call__(self) -> Any:
        """The value for what the arguments hold now; the gradient goes into ``gradient``."""
        return self.finish(None)

    def finish(self, answer: Any) -> Any:
        """The value, where the gate has not given it."""
        raise NotImplementedError


if TYPE_CHECKING:
    Base = SlowCall
else:
    Base = SlowCall if kernels is None else kernels.Bound


class BoundCall(Base):
    """``value_and_grad`` of certain arguments; made by ``CompiledFunction.bound``.

    A call gives the value for what the arguments hold now, and writes the gradient by the first of
    them into the arrays of ``gradient``, which has its structure.
    """

    def __init__(self, dispatch: Dispatch, arguments: tuple[Any, ...]) -> None:
        if not arguments:
            raise TypeError("bound takes the argument to differentiate by first")
        self._dispatch = dispatch
        self.gate, self.arguments = dispatch.gate, arguments
        self.gradient = map_leaves(self._empty, arguments[0], records=True)

    @staticmethod
    def _empty(x: Any) -> Any:
        if not isinstance(x, np.ndarray) or x.dtype != np.float64:
            what = f"{x.dtype} array" if isinstance(x, np.ndarray) else type(x).__name__
            raise TypeError(f"bound takes float64 arrays in its first argument, not a {what}")
        return np.zeros(x.shape)

    def finish(self, answer: Any) -> Any:
        """The value, where the gate has not written the gradient, or has no answer at all."""
        if answer is None:
            return unanswered_value_and_grad(self._dispatch, self.arguments, {}, self.gradient)[0]
        value, gradient = answer
        fill(self.gradient, gradient)
        return value

    def __repr__(self) -> str:
        return f"<{self._dispatch.name}, bound to its arguments>"
