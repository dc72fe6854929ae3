"""What tells that a number may be rounding alone: operations that are not a number then.

In: the numbers that are compared, and the sum of the squares of what went into them. Out: 0, or not
a number. Machine code has its own form of each; ``lift/margins.py`` puts them where needed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from chainrule.core import ops, rounding
from chainrule.core.ops import Op, no_gradient

NEAR = 1e-10  # measured by the root of the sum of the squares of all terms


def too_near(distance: Any, squares: Any, near: float = NEAR) -> Any:
    """0, or not a number where a distance may be rounding alone."""
    return ops.where(distance * distance > near * near * squares, 0.0, math.nan)


def _near_cut(y: Any, x: Any, squares: Any, near: float = NEAR) -> Any:
    """The same for the jump of atan2, which is where y is a zero and x is not positive."""
    return ops.where(x > 0.0, 0.0, too_near(y, squares, near))


def _check(name: str, forward: Callable[..., Any], arity: int) -> Op:
    return Op(name, name, name, forward, (no_gradient,) * arity)


near_tie = _check("near_tie", lambda a, b, q, n=NEAR: too_near(a - b, q, n), 3)
near_cut = _check("near_cut", _near_cut, 3)
near_whole = _check("near_whole", lambda x, q, n=NEAR: too_near(x - rounding.nearest(x), q, n), 2)
CHECKS = (near_tie, near_cut, near_whole)


class Unknown(Exception):
    """What went into a number cannot be told."""


#: the slopes of a quotient of data, which has no derivative
_QUOTIENT: tuple[Callable[..., Any], ...] = (
    lambda y, a, b: ops.div(1.0, b),
    lambda y, a, b: ops.div(-y, b),
)


@functools.cache
def slope_squared(op: Op, k: int) -> Op:
    """The square of a slope, from the result and the operands."""

    slope_of = _QUOTIENT[k] if op is ops.divide else op.partials[k]
    if slope_of is no_gradient:
        raise Unknown

    def forward(*numbers: Any) -> Any:
        slope = slope_of(*numbers)
        return slope * slope

    name = f"square of slope {k} of {op.name}"
    partials = (no_gradient,) * (1 + op.arity)
    return Op(name, name, name, forward, partials, op.parameters)
