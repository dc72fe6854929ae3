"""A call bound to its arguments: for loops that change arrays in place and ask again.

In: the arguments of ``value_and_grad``, arrays in the first of them. Out: a ``BoundCall``, which
reads them where they are, each time it is called, and writes the gradient into the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture.tracing import is_internal
from chainrule.compiler.runtime.calls import value_and_grad
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.core.backend import kernels, modes
from chainrule.derivatives.transforms import is_nested
from chainrule.trees import Floats, map_leaves


class BoundCall:
    """``value_and_grad`` of certain arguments; made by ``CompiledFunction.bound``."""

    def __init__(self, dispatch: Dispatch, arguments: tuple[Any, ...]) -> None:
        if not arguments:
            raise TypeError("bound takes the argument to differentiate by first")
        self._dispatch, self._arguments = dispatch, arguments
        #: the gradient by the first argument, in its structure; each call writes into its arrays
        self.gradient = map_leaves(self._empty, arguments[0], records=True)
        self._quick: Callable[[], float | None] = _slowly

    @staticmethod
    def _empty(x: Any) -> Any:
        if not isinstance(x, np.ndarray) or x.dtype != np.float64:
            what = f"{x.dtype} array" if isinstance(x, np.ndarray) else type(x).__name__
            raise TypeError(f"bound takes float64 arrays in its first argument, not a {what}")
        return np.zeros(x.shape)

    def __call__(self) -> Any:
        """The value for what the arguments hold now; the gradient goes into ``gradient``."""
        value = self._quick()
        if value is not None:
            return value
        result = value_and_grad(self._dispatch, self._arguments, {}, self.gradient)[0]
        self._quick = _quick_call(self._dispatch, self._arguments, self.gradient)
        return result

    def __repr__(self) -> str:
        return f"<{self._dispatch.name}, bound to its arguments>"


def _slowly() -> None:
    """No quick call."""


def _quick_call(
    dispatch: Dispatch, arguments: tuple[Any, ...], gradient: Floats
) -> Callable[[], float | None]:
    """What answers calls with these arguments, without looking for what answers them.

    It gives None where anything but their numbers has changed.
    """
    fast_path, captured, lock = dispatch.fast_path, dispatch.captured, dispatch.lock
    if fast_path is None or captured is None or kernels is None or type(gradient) is not np.ndarray:
        return _slowly
    found, unchanged = fast_path.cached(arguments), captured.quick_check
    if found is None or unchanged is None:
        return _slowly
    variant, binding, run, signature = (
        found.variant,
        found.binding,
        found.plan.run,
        found.signature.row,
    )
    machine, fit = (None, None) if binding is None else (binding.machine, binding.fit)
    passed, array, number = kernels.passed, np.ndarray, np.float64
    opened: dict[Any, Any] = {}

    def quick() -> float | None:
        if modes.recorder is not None or is_nested() or is_internal():
            return None
        with lock:
            if dispatch.busy or dispatch.fast_path is not fast_path or unchanged() >= 0:
                return None
            if variant.binding is not binding or (
                machine is not None and machine.current is not fit
            ):
                return None
            call = passed(arguments, array, number, True, opened)
            if call is None or call.signature != signature:
                return None
            dispatch.busy = True
            try:
                answer = run(call, gradient)
            finally:
                dispatch.busy = False
            if type(answer) is not float:
                return None
            dispatch.count_quick(variant)
            return answer

    return quick
