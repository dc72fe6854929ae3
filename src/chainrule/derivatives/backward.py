"""One Value with respect to others: ``gradients``, on which all derivatives of functions stand.

A graph of Values comes in, numbers go out; or Values, where the derivative is to be differentiated
itself: then the op table's partials are evaluated over the nodes' own children. No ``.grad`` is
touched.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Literal, overload

import numpy as np

from chainrule.core import errors
from chainrule.core.backend import Value, _mode, modes, nonfinite
from chainrule.core.condensed import Parts
from chainrule.core.graph import steps_on
from chainrule.core.ops import Op
from chainrule.derivatives.arguments import array_of
from chainrule.trees import Array


def recording() -> AbstractContextManager[None]:
    """Keep the graph, even inside ``no_grad``: a derivative without one would be 0."""
    return _mode("grad", True)


@overload
def gradients(y: Value, xs: Value, create_graph: Literal[False] = False) -> float: ...
@overload
def gradients(y: Value, xs: Value, create_graph: Literal[True]) -> Value: ...
@overload
def gradients(y: Value, xs: Array, create_graph: bool = False) -> Array: ...
@overload
def gradients(
    y: Value, xs: Iterable[Value], create_graph: Literal[False] = False
) -> list[float]: ...
@overload
def gradients(y: Value, xs: Iterable[Value], create_graph: Literal[True]) -> list[Value]: ...
@overload
def gradients(y: Value, xs: Any, create_graph: bool = False) -> Any: ...
def gradients(y: Value, xs: Any, create_graph: bool = False) -> Any:
    """The derivative of ``y`` with respect to each of ``xs``; no ``.grad`` is touched.

    For one Value the result is one number, for a sequence a list, for an array an array; where
    ``y`` does not depend on an x, 0. With ``create_graph`` the results are Values, to be
    differentiated further.

    >>> from chainrule import Value, gradients
    >>> x = Value(3.0)
    >>> gradients(x**3, x)
    27.0
    >>> slope = gradients(x**3, x, create_graph=True)
    >>> gradients(slope, x), x.grad
    (18.0, 0.0)
    """
    if not isinstance(y, Value):
        raise TypeError(
            f"gradients differentiates a Value, not {errors.describe(y)}; "
            "grad(f) differentiates a function"
        )
    elements = xs.flat if isinstance(xs, np.ndarray) else xs
    nodes = list(elements) if isinstance(elements, Iterable) else [xs]
    for x in nodes:
        if not isinstance(x, Value):
            raise TypeError(
                f"gradients takes a Value or a sequence of Values as xs, not {errors.describe(x)}"
            )
    results = differentiable(y, nodes) if create_graph else numbers(y, nodes)
    if isinstance(xs, Value):
        return results[0]
    if isinstance(xs, np.ndarray):
        return array_of(results, xs.shape, object if create_graph else np.float64)
    return results


def numbers(y: Value, xs: list[Value]) -> list[float]:
    """The derivatives as numbers; a compiled function records how they are computed."""
    if modes.recorder is None:
        return y._gradients(xs, False)
    return [slope.data for slope in differentiable(y, xs)]


def differentiable(y: Value, xs: list[Value]) -> list[Value]:
    """The same sums as Values, each partial derivative evaluated over the node's children."""
    if modes.recorder is not None:
        modes.recorder.selector.differentiated(y, xs)
    steps = steps_on(y, xs)
    on_path = {id(node) for node, _ in steps}
    totals: dict[int, Value] = {id(y): Value(1.0)}
    # Partials never raise. While a compiled function is recorded they do: a replay cannot tell what
    # is infinite, and leaves that to eager.
    with recording(), nonfinite("allow" if modes.recorder is None else "raise"):
        for node, parts in reversed(steps):
            total = totals.get(id(node))
            if total is None:
                continue
            for i, child in enumerate(parts.children):
                if id(child) in on_path:
                    share = share_of(total, slope_of(node, parts, i))
                    if share is not None:
                        before = totals.get(id(child))
                        totals[id(child)] = share if before is None else before + share
    return [totals[id(x)] if id(x) in on_path and id(x) in totals else Value(0.0) for x in xs]


def slope_of(node: Value, parts: Parts, i: int) -> Value | float:
    """∂node/∂operand i as an expression of Values, or a float where the row says a constant."""
    rule = parts.rule
    if not isinstance(rule, Op):
        label = f" labelled {node.label!r}" if node.label else ""
        raise TypeError(
            f"the custom operation {rule!r}{label} gave its derivatives as numbers, so they cannot "
            "be differentiated again: write it with chainrule's own operations, or add a row for "
            "it to the op table (chainrule.core.ops.row)"
        )
    slope: Value | float = rule.partials[i](node, *parts.children, *parts.parameters)
    return slope


def share_of(total: Value, slope: Value | float) -> Value | None:
    """What a node passes on to one child; None for nothing.

    A total or slope that is 0 here may still have a derivative, so it is passed on, except where
    the other is infinite. A slope that is the constant 0 has none.
    """
    if not isinstance(slope, Value):
        if slope == 1.0:
            return total
        if slope == 0.0:
            return None
    if modes.recorder is not None:
        return total * slope  # both are finite
    number = slope.data if isinstance(slope, Value) else slope
    zero = total.data == 0.0 or number == 0.0
    return None if zero and not math.isfinite(total.data * number) else total * slope
