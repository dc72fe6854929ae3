"""A call bound to its arguments: for loops that change arrays in place and ask again.

In: the arguments of ``value_and_grad``, arrays in the first of them. Out: a ``BoundCall``, which
reads them where they are, each time it is called, and writes the gradient into the same arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.runtime.calls import value_and_grad
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.trees import map_leaves


class BoundCall:
    """``value_and_grad`` of certain arguments; made by ``CompiledFunction.bound``."""

    def __init__(self, dispatch: Dispatch, arguments: tuple[Any, ...]) -> None:
        if not arguments:
            raise TypeError("bound takes the argument to differentiate by first")
        self._dispatch, self._arguments = dispatch, arguments
        #: the gradient by the first argument, in its structure; each call writes into its arrays
        self.gradient = map_leaves(self._empty, arguments[0], records=True)

    @staticmethod
    def _empty(x: Any) -> Any:
        if not isinstance(x, np.ndarray) or x.dtype != np.float64:
            what = f"{x.dtype} array" if isinstance(x, np.ndarray) else type(x).__name__
            raise TypeError(f"bound takes float64 arrays in its first argument, not a {what}")
        return np.zeros(x.shape)

    def __call__(self) -> Any:
        """The value for what the arguments hold now; the gradient goes into ``gradient``."""
        return value_and_grad(self._dispatch, self._arguments, {}, self.gradient)[0]

    def __repr__(self) -> str:
        return f"<{self._dispatch.name}, bound to its arguments>"
