"""Rows of the op table for statistics: the gamma family, the normal distribution, log(1 - e⁻ˣ).

What the C library has is taken from there. The others are formulas over earlier rows, like all
rows, so that they run and differentiate in every engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from chainrule.core.ops import (
    Edge,
    Op,
    abs,
    div,
    elementwise,
    erf,
    erfc,
    exp,
    expm1,
    libm,
    log,
    log1p,
    pow,
    row,
    sqrt,
    tan,
    where,
)
from chainrule.core.rounding import raw_floor

# --- the gamma function ---------------------------------------------------------------------------

_NO_POLE = "x that is not 0, -1, -2, …"


def _gamma_pole(x: float, *_: float) -> type[ValueError] | None:
    return ValueError if x <= 0 else None


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole, or too large
        return math.inf


lgamma = row(
    "lgamma",
    "ln |Γ(x)|",
    libm(math.lgamma, elementwise(_lgamma)),
    lambda y, x: digamma(x),
    domain=_NO_POLE,
    pole=_gamma_pole,
)

# Far to the right the functions are their asymptotic series, whose coefficients are Bernoulli
# numbers B₂, B₄, …; nearer numbers are moved there, one term of a sum for each step of 1.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def _series(x: Any, coefficients: Sequence[Any]) -> Any:
    """A polynomial by Horner's scheme, lowest coefficient first."""
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * x + c
    return total


def _digamma_right(x: Any) -> Any:
    """ψ(x) of x > 0: ln x - 1/(2x) - Σ B₂ₖ / (2k x²ᵏ), ten steps to the right of a small x."""
    near = x < 10.0
    moved = where(near, x + 10.0, x)
    steps = _reciprocals(x, 10)
    inverse = div(1.0, moved)
    square = inverse * inverse
    tail = square * _series(square, [b / (2 * k) for k, b in enumerate(_BERNOULLI, 1)])
    return log(moved) - 0.5 * inverse - tail - where(near, steps, 0.0)


def _reciprocals(x: Any, count: int) -> Any:
    """1/x + 1/(x + 1) + …, the smallest first."""
    total = div(1.0, x + (count - 1.0))
    for k in reversed(range(count - 1)):
        total = total + div(1.0, x + float(k))
    return total


def _digamma(x: Any) -> Any:
    """To the left of 0 by reflection: ψ(x) = ψ(1 - x) - π / tan(πx)."""
    left = x <= 0
    size = abs(x)
    fraction = size - raw_floor(size)  # exact; tan has period 1 in it
    angle = where(fraction > 0.5, fraction - 1.0, fraction)
    at = _digamma_right(where(left, 1.0 + size, x))
    return at + where(left, div(math.pi, tan(math.pi * angle)), 0.0)


digamma: Op = row(
    "digamma",
    "ψ(x), the derivative of ln Γ",
    _digamma,
    lambda y, x: polygamma(x, 1.0),
    domain=_NO_POLE,
    pole=_gamma_pole,
)


def _zeta(x: Any, n: Any) -> Any:
    """1/xⁿ⁺¹ + 1/(x + 1)ⁿ⁺¹ + … of x > 0: sixteen terms if x is small, and the series.

    The series is x⁻ⁿ · (1/n + 1/(2x) + Σ B₂ₖ (n + 1) … (n + 2k - 1) / ((2k)! x²ᵏ)).
    """
    near = x < 16.0
    moved = where(near, x + 16.0, x)
    steps = pow(x + 15.0, -(n + 1.0))
    for k in reversed(range(15)):
        steps = steps + pow(x + float(k), -(n + 1.0))
    coefficients, rising = [], n + 1.0
    for k, b in enumerate(_BERNOULLI, 1):
        coefficients.append(rising * (b / math.factorial(2 * k)))
        rising = rising * (n + 2.0 * k) * (n + (2.0 * k + 1.0))
    inverse = div(1.0, moved)
    square = inverse * inverse
    tail = div(1.0, n) + 0.5 * inverse + square * _series(square, coefficients)
    return pow(moved, -n) * tail + where(near, steps, 0.0)


def _factorial(n: Any) -> Any:
    if type(n) is float:
        return math.gamma(n + 1.0) if n > -1.0 else math.nan
    return exp(lgamma(n + 1.0))


def _polygamma(x: Any, n: Any) -> Any:
    """To the left of 0, x = -m - f: the whole sum over …, -f, 1 - f, … less what lies beyond x."""
    whole = where(n >= 1, where(raw_floor(n) >= n, 1.0, math.nan), math.nan)
    sign = whole * (2.0 * (n - 2.0 * raw_floor(0.5 * n)) - 1.0)
    left = x <= 0
    size = abs(x)
    fraction = size - raw_floor(size)  # exact
    right = _zeta(where(left, 1.0 - fraction, x), n)
    beyond = _zeta(where(left, fraction, 1.0), n) - _zeta(1.0 + size, n)
    return sign * _factorial(n) * (right + where(left, sign * beyond, 0.0))


polygamma: Op = row(
    "polygamma",
    "ψ⁽ⁿ⁾(x), the derivative of order n ≥ 1 of ψ",
    _polygamma,
    lambda y, x, n: polygamma(x, n + 1.0),
    parameters=("order",),
    defaults=(1.0,),
    domain=f"{_NO_POLE}, and an order of 1, 2, …",
    pole=_gamma_pole,
)

# --- the normal distribution ----------------------------------------------------------------------

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)

normal_pdf: Op = row(
    "normal_pdf",
    "φ(x) = e^(-x²/2) / √(2π)",
    lambda x: exp(-0.5 * x * x) * _DENSITY,
    lambda y, x: -x * y,
)
# erfc rather than 1 + erf keeps the far negative tail exact.
normal_cdf = row(
    "normal_cdf",
    "Φ(x), the integral of φ",
    lambda x: 0.5 * erfc(-_ROOT_HALF * x),
    lambda y, x: normal_pdf(x),
)


def _quantile(p: Any) -> Any:
    """A first guess, right to four digits, and two of Halley's steps, each with thrice as many.

    x > 0 is where the tail beyond it is q. Near the middle the tail is compared with ½ by erf,
    which is exact near 0.
    """
    q = where(p < 0.5, p, 1.0 - p)
    t = sqrt(-2.0 * log(q))
    x = t - div(
        (0.061016 * t + 1.56671) * t + 2.656071,
        ((0.009511 * t + 0.455254) * t + 1.909286) * t + 1.0,
    )
    for _ in range(2):
        middle = (0.5 - q) - 0.5 * erf(_ROOT_HALF * x)
        outside = 0.5 * erfc(_ROOT_HALF * x) - q
        u = div(where(q > 0.25, middle, outside), normal_pdf(x))
        x = x + div(u, 1.0 - 0.5 * x * u)
    x = where(q < 0.5, x, 0.5 - q)  # 0, or nan
    x = where(q > 0, x, -log(q))  # inf, or nan
    return where(p < 0.5, -x, x)


def _outside(p: float) -> type[ValueError]:
    return ValueError


normal_quantile = row(
    "normal_quantile",
    "the x with Φ(x) = p",
    _quantile,
    lambda y, p: div(1.0, normal_pdf(y)),
    domain="0 < p < 1",
    ends=lambda *_: ((0, 0.0), (0, 1.0)),
    pole=_outside,
)

# --- logarithms of probabilities ------------------------------------------------------------------

log1mexp = row(
    "log1mexp",
    "ln(1 - e⁻ˣ)",
    lambda x: where(x < math.log(2.0), log(-expm1(-x)), log1p(-exp(-x))),
    lambda y, x: div(1.0, expm1(x)),
    domain="x > 0",
    ends=lambda *_: ((0, 0.0),),
    pole=_outside,
)

# --- roots that are smooth at 0 -------------------------------------------------------------------

safe_sqrt = row(
    "safe_sqrt",
    "√x where x > 0, else 0",
    lambda x: sqrt(where(x <= 0, 0.0, x)),
    lambda y, x: where(x > 0, div(0.5, where(x > 0, y, 1.0)), 0.0),
    edges=(Edge((0.0,), (), 0.0, (0.0,)), Edge((-1.0,), (), 0.0, (0.0,))),
)
ramp = row(
    "ramp",
    "x held between 0 and 1",
    lambda x: where(x < 0, 0.0, where(x > 1, 1.0, x)),
    lambda y, x: where(x < 0, 0.0, where(x < 1, 1.0, 0.0)),
    edges=(Edge((0.0,), (), 0.0, (1.0,)), Edge((1.0,), (), 1.0, (0.0,))),
)
