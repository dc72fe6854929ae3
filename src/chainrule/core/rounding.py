"""Rows of the op table that jump: floor, ceil, trunc, round, sign, mod, floor_divide.

Between two jumps their derivative is 0 (that of ``mod`` by its first operand is 1), and at a jump
the same is taken by convention. A program that rounds therefore runs and differentiates, but what
was rounded passes nothing back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.core import ops
from chainrule.core.ops import Edge, Op, Rule, div, libm, row, where


def _whole(scalar: Callable[[float], int], array: Callable[[Any], Any]) -> Rule:
    """A rounding function of ``math`` as the C library has it: a float, and -0.0 stays."""

    def rounded(x: float) -> float:
        return math.copysign(float(scalar(x)), x)

    forward = libm(rounded, array)
    forward.scalar = scalar  # type: ignore[attr-defined]  # whose name is the C library's
    return forward


def _jumps(name: str, formula: str, forward: Rule, *at: float, **fields: Any) -> Op:
    """A row whose derivative is 0; ``at``: a point where that is a convention, and its value."""
    edges = (Edge(at[:1], (), at[1], (0.0,)),)
    return row(name, formula, forward, lambda y, x: 0.0, edges=edges, **fields)


floor = _jumps("floor", "the largest integer ≤ x", _whole(math.floor, np.floor), 2.0, 2.0)
ceil = _jumps("ceil", "the smallest integer ≥ x", _whole(math.ceil, np.ceil), 2.0, 2.0)
trunc = _jumps("trunc", "x without its fraction", _whole(math.trunc, np.trunc), 2.0, 2.0)

_EVERY_WHOLE = 2.0**52  # from here on a float has no fraction


def nearest(x: Any) -> Any:
    """Adding 2⁵² leaves no room for a fraction, so that the sum is rounded, half to even."""
    size = ops.abs(x)
    near = (size + _EVERY_WHOLE) - _EVERY_WHOLE
    return where(size < _EVERY_WHOLE, where(x < 0, -near, near), x)


round: Op = _jumps(
    "round", "the nearest integer, half to even", nearest, 2.5, 2.0, aliases=("rint",)
)
sign = _jumps("sign", "-1, 0 or 1", lambda x: where(x > 0, 1.0, where(x < 0, -1.0, x)), 0.0, 0.0)

# Building blocks, not rows. The C library's floor, for formulas that do not jump where it does; and
# fmod, whose result has the sign of a.
raw_floor = Op("raw_floor", "floor", "floor(x)", floor.forward, (lambda *_: 0.0,))
fmod = Op("fmod", "fmod", "fmod(a, b)", libm(math.fmod, np.fmod), (lambda *_: 1.0, lambda *_: 0.0))


def _by_zero(a: float, b: float) -> type[ZeroDivisionError] | None:
    return ZeroDivisionError if b == 0 else None


def _mod(a: Any, b: Any) -> Any:
    """Python's ``a % b``, to the last bit: the rest has the sign of b."""
    rest = fmod(a, b)
    zero = where(b < 0, -ops.abs(rest), ops.abs(rest))  # or nan
    below = where(b > 0, rest + b, rest)
    above = where(b < 0, rest + b, rest)
    return where(rest < 0, below, where(rest > 0, above, zero))


def _floor_divide(a: Any, b: Any) -> Any:
    """Python's ``a // b``: (a - rest) / b is nearly an integer, and it is rounded to that."""
    rest = fmod(a, b)
    quotient = div(a - rest, b)
    one_less = where(rest < 0, where(b > 0, 1.0, 0.0), where(rest > 0, where(b < 0, 1.0, 0.0), 0.0))
    quotient = quotient - one_less
    whole = raw_floor(quotient)
    whole = where(quotient - whole > 0.5, whole + 1.0, whole)
    return where(ops.abs(whole) > 0, whole, 0.0 * div(a, b))  # 0 with its sign, or nan


floor_divide: Op = row(
    "floor_divide",
    "a // b",
    _floor_divide,
    lambda y, a, b: 0.0,
    lambda y, a, b: 0.0,
    pole=_by_zero,
    edges=(Edge((4.0, 2.0), (), 2.0, (0.0, 0.0)),),
    example=(7.0, 2.0),
)
mod = row(
    "mod",
    "a % b, with the sign of b",
    _mod,
    lambda y, a, b: 1.0,
    lambda y, a, b: -floor_divide(a, b),
    pole=_by_zero,
    edges=(Edge((4.0, 2.0), (), 0.0, (1.0, -2.0)),),
    example=(7.0, 2.0),
    aliases=("remainder",),
)
