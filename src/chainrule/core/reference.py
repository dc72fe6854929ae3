"""The reference engine as ``backend`` wants an engine: ``value``'s names, and sums of Values.

The sums make the nodes that ``sum`` and ``zip`` would make, in the same order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from chainrule.core.node import modes
from chainrule.core.value import Value, topological_order

__all__ = ["Value", "dot", "linear", "modes", "topological_order", "vsum"]


def vsum(values: Iterable[Value | float], /) -> Value:
    """``sum(values)`` as a Value, also when there are none: ``vsum([])`` is ``Value(0)``.

    >>> from chainrule import Value, vsum
    >>> vsum([Value(1.0), Value(2.0), Value(3.0)]).data
    6.0
    """
    total: Any = 0
    for value in values:  # as sum() adds Values, and plain floats too (which sum() compensates)
        total = total + value
    return total if isinstance(total, Value) else Value(total)


def dot(a: Iterable[Value | float], b: Iterable[Value | float], /) -> Value:
    """``sum(x * y for x, y in zip(a, b))``: the same nodes, in one call.

    >>> from chainrule import Value, dot
    >>> dot([Value(1.0), Value(2.0)], [3.0, 4.0]).data
    11.0
    """
    left, right = list(a), list(b)
    if len(left) != len(right):
        raise ValueError(f"dot needs two vectors of one length, got {len(left)} and {len(right)}")
    return vsum(x * y for x, y in zip(left, right, strict=True))


def linear(x: Sequence[Value | float], w: Iterable[Sequence[Value | float]], /) -> list[Value]:
    """A matrix times a vector, microgpt's ``linear``: ``[dot(row, x) for row in w]``.

    >>> from chainrule import Value, linear
    >>> [y.data for y in linear([1.0, 2.0], [[Value(3.0), Value(4.0)], [Value(5.0), Value(6.0)]])]
    [11.0, 17.0]
    """
    return [dot(row, x) for row in w]
