"""Elementary functions as vector code: bits, polynomials and fused multiply-adds.

In: Vectors of a ``Code``. Out: Vectors. One implementation serves double and float; what differs
is in ``coefficients.FORMATS``. Where the last bits matter, a number is the sum of two, high and
low: the low one is what rounding took from the high one, ``low = (a - high) + b`` for
``high = a + b``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chainrule.compiler.codegen.coefficients import FORMATS, Format
from chainrule.compiler.lift import nearness
from chainrule.compiler.lift.exactness import COMPARISONS
from chainrule.core import ops, rounding
from chainrule.core.ops import Op

if TYPE_CHECKING:
    from chainrule.compiler.codegen.ir import Vector

LOG2_E = math.log2(math.e)


def _format(x: Vector) -> Format:
    return FORMATS[x.code.dtype]


def polynomial(x: Vector, coefficients: Sequence[float], square: Vector | None = None) -> Vector:
    """A polynomial at x, lowest coefficient first; Estrin's scheme, which has short chains."""
    terms = [x.lift(c) for c in coefficients]
    power = x
    while len(terms) > 1:
        terms = [
            terms[i + 1].times_plus(power, terms[i]) if i + 1 < len(terms) else terms[i]
            for i in range(0, len(terms), 2)
        ]
        if len(terms) > 1:
            power = square if square is not None and power is x else power * power
    return terms[0]


def _by_squares(x: Vector, coefficients: Sequence[float], square: Vector) -> Vector:
    """The same by Horner's scheme in pairs: later than Estrin's, but with no more products."""
    pairs = [
        polynomial(x, coefficients[i : i + 2]) for i in reversed(range(0, len(coefficients), 2))
    ]
    return functools.reduce(lambda y, pair: y.times_plus(square, pair), pairs)


def _in_steps(x: Vector, coefficients: Sequence[float]) -> Vector:
    """The same, the first three by Horner's scheme: slower, but more accurate."""
    y = polynomial(x, coefficients[3:])
    for c in reversed(coefficients[:3]):
        y = y.times_plus(x, c)
    return y


def _sum(a: Vector | float, b: Vector) -> tuple[Vector, Vector]:
    """a + b, high and low, where a is the larger one."""
    high = b + a
    return high, (a - high) + b


def _reduced(x: Vector) -> tuple[Vector, Vector, Vector]:
    """x as n * ln 2 + r: a vector with n in its low bits, n, and r but for n * ln2[1]."""
    f = _format(x)
    shifted = x.times_plus(LOG2_E, f.magic)
    n = shifted - f.magic
    return shifted, n, n.times_plus(-f.ln2[0], x)  # exact


def _power_of_two(shifted: Vector, more: int = 0) -> Vector:
    """2**(n + more), with n in the low bits."""
    f = _format(shifted)
    return ((shifted.bits() << f.mantissa) + ((f.bias + more) << f.mantissa)).numbers()


def _exp_parts(r: Vector, r_low: Vector) -> tuple[Vector, Vector]:
    """e**(r + r_low), high and low, for |r| up to ln(2) / 2."""
    r, left = _sum(r, r_low)
    one, lost = _sum(1.0, r)
    z = r * r
    return _sum(one, polynomial(r, _format(r).exp, z).times_plus(z, left) + lost)


# --- exponentials ---------------------------------------------------------------------------------


def exponential(x: Vector) -> Vector:
    """e**x = 2**n * e**r: the exponent's bits, and a polynomial of the rest."""
    f = _format(x)
    within, scales = (x < f.least).choose(f.least, x), x.is_scaled
    if scales:
        within = (within > 2.0 * f.most).choose(2.0 * f.most, within)  # for infinity
    shifted, n, r = _reduced(within)
    r = n.times_plus(-f.ln2[1], r)
    z = r * r
    one, lost = _sum(1.0, r)
    p = one + _by_squares(r, f.exp, z).times_plus(z, lost)
    if scales:
        return p.scaled(n)
    # Results that may be subnormal are made 2**lift times as large and then rounded once.
    low = x < f.normal
    p = low.choose(p * 2.0**f.lift, p)
    y = (p.bits() + (shifted.bits() << f.mantissa)).numbers()
    y = low.choose(y * 2.0**-f.lift, y)
    return (x <= f.most).choose(y, x + math.inf)  # the sum keeps a nan


def _decay(x: Vector) -> Vector:
    """e**x for x <= 0."""
    f = _format(x)
    shifted, n, r = _reduced((x < f.least).choose(f.least, x))
    r = n.times_plus(-f.ln2[1], r)
    z = r * r
    p = polynomial(r, f.exp, z).times_plus(z, r) + 1.0
    return p * _power_of_two(shifted, f.lift) * 2.0**-f.lift


def expm1(x: Vector) -> Vector:
    """e**x - 1 = 2**n * (e**r - 1) + (2**n - 1), all of it halved lest 2**n overflow."""
    f = _format(x)
    flat, top = -(f.mantissa + 3) * math.log(2.0), f.most + 0.3
    within = (x < flat).choose(flat, x)
    shifted, n, r = _reduced((within > top).choose(top, within))
    z = r * r
    q = polynomial(r, f.expm1, z)
    u = z.times_plus(q, r)
    u_low = (n * -f.ln2[1]).times_plus(u + 1.0, z.times_plus(q, r - u))
    half = _power_of_two(shifted, -1)
    rest = half - 0.5
    y = half.times_plus(u, rest)
    y = y + half.times_plus(u_low, half.times_plus(u, rest - y))
    return (y + y).intrinsic("copysign", x)


def tanh(x: Vector) -> Vector:
    """(1 - e**-2|x|) / (1 + e**-2|x|), the parts in two numbers each."""
    f = _format(x)
    a = abs(x)
    shifted, n, r = _reduced((a > f.flat_tanh).choose(f.flat_tanh, a) * -2.0)
    if x.code.dtype == "float32":
        return _quick_tanh(shifted, n.times_plus(-f.ln2[1], r)).intrinsic("copysign", x)
    z = r * r
    q = polynomial(r, f.expm1, z)
    u = z.times_plus(q, r)
    p, lost = _sum(1.0, u)
    p_low = lost + n.times_plus(-f.ln2[1], z.times_plus(q, r - u))
    minus = -_power_of_two(shifted)
    top = minus.times_plus(p, 1.0)
    top_low = minus.times_plus(p_low, minus.times_plus(p, 1.0 - top))
    bottom, lost = _sum(2.0, -top)
    return _quotient(top, top_low, bottom, lost - top_low).intrinsic("copysign", x)


def _quick_tanh(shifted: Vector, r: Vector) -> Vector:
    """The rest of it with one division and no low parts, still within 2 ulp of a float."""
    z = r * r
    u = polynomial(r, _format(r).expm1, z).times_plus(z, r)
    minus = -_power_of_two(shifted)
    top = minus.times_plus(u, minus + 1.0)
    bottom, lost = _sum(2.0, -top)
    y = top / bottom
    return (-lost).times_plus(y, y)


def _quotient(a: Vector, a_low: Vector | float, b: Vector, b_low: Vector) -> Vector:
    """(a + a_low) / (b + b_low), rounded almost as if once."""
    inverse = 1.0 / b
    y = a * inverse
    minus = -y
    rest = minus.times_plus(b, a) + minus.times_plus(b_low, a_low)
    return rest.times_plus(inverse, y)


def sigmoid(x: Vector) -> Vector:
    """1 / (1 + e**-x), as (1 or e**-|x|) / (1 + e**-|x|)."""
    e = _decay(-abs(x))
    return _quotient((x >= 0.0).choose(1.0, e), 0.0, *_sum(1.0, e))


# --- logarithms -----------------------------------------------------------------------------------


def _split(x: Vector) -> tuple[Vector, Vector]:
    """x > 0 as 2**k * m: k, and m from sqrt(1/2) to sqrt(2)."""
    f = _format(x)
    subnormal, up = x < f.tiny, f.mantissa + 2
    bits = subnormal.choose(x * 2.0**up, x).bits()
    k = (bits - f.root_half) >> f.mantissa
    m = (bits - (k << f.mantissa)).numbers()
    exponent = k.converted()
    return subnormal.choose(exponent - up, exponent), m


def _log_sum(k: Vector, g: Vector, low: Vector | float) -> Vector:
    """k * ln 2 + ln(1 + g) + low: a series in g / (g + 2)."""
    f = _format(k)
    s = g / (g + 2.0)
    z = s * s
    half = g * g * 0.5
    w = s.times_plus(polynomial(z, f.log).times_plus(z, half), k.times_plus(f.ln2[1], low))
    return k.times_plus(f.ln2[0], g - (half - w))


def _log_range(x: Vector, y: Vector) -> Vector:
    """A logarithm of x: y where x is positive and finite, else what it is by definition."""
    positive = x > 0.0
    outside = positive.choose(x, (x >= 0.0).choose(x.lift(-math.inf), math.nan))
    return (positive & (x < math.inf)).choose(y, outside)


def logarithm(x: Vector) -> Vector:
    """ln x: the exponent times ln 2, and a series for the mantissa."""
    k, m = _split(x)
    return _log_range(x, _log_sum(k, m - 1.0, 0.0))


def log1p(x: Vector) -> Vector:
    """ln(1 + x), with what the sum lost."""
    f = _format(x)
    u = x + 1.0
    one = u - x
    lost = (1.0 - one) + (x - (u - one))
    k, m = _split(u)
    lost = lost * 0.5 * _power_of_two(f.magic - k, 1)  # 2**-k itself may be subnormal
    g = (m - 1.0) + lost
    y = _log_sum(k, g, lost - (g - (m - 1.0)))
    return _log_range(u, y).intrinsic("copysign", x)


# --- powers ---------------------------------------------------------------------------------------


def power(x: Vector, p: Vector | float) -> Vector:
    """x**p: some constant exponents by arithmetic, others as e**(p ln |x|)."""
    if not isinstance(p, (float, int)):
        return x.code.shared("power", [x, p], _variable_power)
    by_arithmetic = _ARITHMETIC.get(p)
    if by_arithmetic is not None:
        return by_arithmetic(x)
    if not abs(p) < 2.0**64:
        return x.code.by_lanes("pow", [x, x.lift(p)])
    return x.code.shared(f"power.{float(p).hex()}", [x], lambda x: _constant_power(x, p))


def _constant_power(x: Vector, p: float) -> Vector:
    a = abs(x)
    high = x.code.rounded(p)
    y = _exp_of_product(*_log_parts(a), x.lift(high), p - high)
    zero, infinite = (0.0, math.inf) if p > 0 else (math.inf, 0.0)
    y = (a > 0.0).choose(y, zero)
    y = (a < math.inf).choose(y, (a >= 0.0).choose(x.lift(infinite), math.nan))
    if p != math.floor(p):
        return ((x < 0.0) & (a < math.inf)).choose(math.nan, y)
    return y.intrinsic("copysign", x) if p % 2 else y


def _root(x: Vector) -> Vector:
    """x**0.5, which differs from sqrt(x) at -0 and -inf."""
    return (x <= -math.inf).choose(math.inf, x).intrinsic("sqrt") + 0.0


def _reciprocal(x: Vector) -> Vector:
    return 1.0 / x


def _square(x: Vector) -> Vector:
    return x * x


#: within 2 ulp each, also where the result is subnormal
_ARITHMETIC: dict[float, Callable[[Vector], Vector]] = {
    0.0: lambda x: x.lift(1.0),
    1.0: lambda x: x,
    2.0: _square,
    3.0: lambda x: x * x * x,
    4.0: lambda x: _square(_square(x)),
    -1.0: _reciprocal,
    -2.0: lambda x: _square(_reciprocal(x)),
    0.5: _root,
    1.5: lambda x: abs(x) * _root(x),
    -1.5: lambda x: abs(_reciprocal(x)) / _root(x),
    -0.5: lambda x: _reciprocal(_root(x)),
}


def _variable_power(x: Vector, p: Vector) -> Vector:
    y = _exp_of_product(*_log_parts(x), p, 0.0)
    size = abs(p)
    rare = x.not_less(math.inf) | x.not_more(0.0) | size.not_less(2.0**64)
    return x.code.rescue(y, rare, "pow", [x, p])


def _log_parts(x: Vector) -> tuple[Vector, Vector]:
    """ln x, high and low, to ten digits more than the type has."""
    f = _format(x)
    k, m = _split(x)
    # s = (m - 1) / (m + 1)
    b = m + 1.0
    b_low = m - (b - 1.0)
    inverse, top = 1.0 / b, m - 1.0
    s = top * inverse
    minus = -s
    s_low = minus.times_plus(b_low, minus.times_plus(b, top)) * inverse
    # t = 2/3 + z * rest, w = z * t, v = s * w; ln m = 2 s + v
    z = s * s
    z_low = s.times_plus(s, -z) + (s + s) * s_low
    rest = polynomial(z, f.log_rest) * z
    t, t_low = _sum(f.two_thirds[0], rest)
    t_low = t_low + f.two_thirds[1]
    w = z * t
    w_low = z.times_plus(t, -w) + z.times_plus(t_low, z_low * t)
    v = s * w
    v_low = s.times_plus(w, -v) + s.times_plus(w_low, s_low * w)
    first, first_low = _sum(k * f.ln2_short[0], s + s)
    high, low = _sum(first, v)
    return high, low + (first_low + (k.times_plus(f.ln2_short[1], v_low) + (s_low + s_low)))


def _exp_of_product(high: Vector, low: Vector, p: Vector, p_low: float) -> Vector:
    """e to the power of (high + low) * (p + p_low)."""
    f = _format(high)
    x = high * p
    x_low = high.times_plus(p, -x) + low.times_plus(p, high * p_low if p_low else 0.0)
    shifted, n, r = _reduced(x)
    y, _ = _exp_parts(r, n.times_plus(-f.ln2[1], x_low))
    exponent = shifted.bits() - x.lift(f.magic).bits()
    half = exponent >> 1  # 2**n itself may be out of range
    for part in (half, exponent - half):
        y = y * ((part + f.bias) << f.mantissa).numbers()
    y = (x < f.least).choose(0.0, y)
    return (x > f.most + 10.0).choose(math.inf, y)


# --- trigonometry ---------------------------------------------------------------------------------


def _circular(x: Vector, quarter: int, name: str) -> Vector:
    """sin(x + quarter * pi/2): x less the nearest multiple of pi/2, in two numbers."""
    f = _format(x)
    shifted = x.times_plus(2.0 / math.pi, f.magic)
    n = shifted - f.magic
    first = n.times_plus(-f.half_pi[0], x)  # exact
    second = n * f.half_pi[1]
    second_low = n.times_plus(f.half_pi[1], -second)
    r = first - second
    less = n.times_plus(f.half_pi[2], ((r - first) + second) + second_low)  # of r - less
    z = r * r
    sine = r - (r * z).times_plus(polynomial(z, f.sin), less)
    most = z.times_plus(-0.5, 1.0)
    rest = z.times_plus(-0.5, 1.0 - most)
    square = z * z
    rest = square.times_plus(polynomial(z, f.cos, square), rest)
    cosine = most + r.times_plus(less, rest)
    quadrant = shifted.bits() + quarter
    odd = (quadrant & 1).compare("ne", 0)
    sign = (quadrant << (x.code.bits - 2)) & -(1 << (x.code.bits - 1))
    y = (odd.choose(cosine, sine).bits() ^ sign).numbers()
    return x.code.rescue(y, abs(x).not_less(f.turns), name, [x])


def sine(x: Vector) -> Vector:
    """sin x."""
    return _circular(x, 0, "sin")


def cosine(x: Vector) -> Vector:
    """cos x."""
    return _circular(x, 1, "cos")


# --- the error function ---------------------------------------------------------------------------


def erf(x: Vector) -> Vector:
    """A polynomial up to 9/8, then 1 - erfc."""
    f = _format(x)
    a = abs(x)
    small = _in_steps(x * x, f.erf).times_plus(x, x)
    within = (a > f.flat_erf).choose(f.flat_erf, a)
    t = 1.0 / (within + 2.0)
    tail = _in_steps(t, f.erf_tail) * t * _decay(-(within * within))
    return (a < 1.125).choose(small, (1.0 - tail).intrinsic("copysign", x))


def erfc(x: Vector) -> Vector:
    """1 - erf(x) up to 3/4, then e**-x**2 times a polynomial in 1 / (x + shift)."""
    f = _format(x)
    small = _in_steps(x * x, f.erf_near).times_plus(-x, 1.0 - x)
    a = abs(x)
    a = (a > f.flat_erfc).choose(f.flat_erfc, a)
    # The polynomial is taken at t = 1 / (a + shift - moved), so is off by moved times the slope.
    b = a + f.shift
    b_low = a - (b - f.shift)
    t = 1.0 / b
    moved = (-b).times_plus((-t).times_plus(b, 1.0), b_low)
    slope = polynomial(t, f.erfc_slope) * t
    h = _in_steps(t - f.middle, f.erfc)
    square = a * a
    lost = slope.times_plus(moved, -a.times_plus(a, -square))
    shifted, n, r = _reduced(-square)
    p, p_low = _exp_parts(r, n.times_plus(-f.ln2[1], lost))
    m = t * h
    m_low = t.times_plus(h, -m)
    y = p.times_plus(m, p.times_plus(m_low, p_low * m))
    y = y * _power_of_two(shifted, f.lift) * 2.0**-f.lift
    return (abs(x) < 0.75).choose(small, (x > 0.0).choose(y, 2.0 - y))


# --- rounding -------------------------------------------------------------------------------------


def _unless_near_a_jump(y: Vector, x: Vector) -> Vector:
    """``y``, which jumps where x is an integer."""
    size = abs(x)
    return _unless_near(y, abs(x - x.intrinsic("rint")), (size > 1.0).choose(size, 1.0))


def _unless_near(y: Vector, distance: Vector, size: Vector) -> Vector:
    """``y``, or nan where a jump of it is near, so that the tape computes the call.

    Machine code adds in its own order, and on the other side of a jump y would be another number.
    """
    margin = 1e-9 if y.code.dtype == "float64" else 1e-4
    return (distance <= size * margin).choose(math.nan, y)


def _compared(row: Op) -> Callable[[Vector, Vector], Vector]:
    """A comparison of computed numbers; near a tie eager's may go the other way."""

    def compare(a: Vector, b: Vector) -> Vector:
        largest = (abs(a) > abs(b)).choose(abs(a), abs(b))
        # Terms that cancel leave an error of their own size, not of the sum's.
        size = (largest > 1e-3).choose(largest, 1e-3)
        return _unless_near(row.forward(a, b), abs(a - b), size)

    return compare


def _checked(row: Op) -> Callable[..., Vector]:
    """Whether rounding may decide something, where eager's numbers are doubles always."""

    def check(*xs: Vector) -> Vector:
        near = nearness.NEAR if xs[0].code.dtype == "float64" else 1e-4
        checked: Vector = row.forward(*xs, near)
        return checked

    return check


def _shared(function: Callable[[Vector], Vector]) -> Callable[[Vector], Vector]:
    """As a helper function, defined once for all instructions that use it."""
    return lambda x: x.code.shared(function.__name__, [x], function)


def _everyday(function: Callable[[Vector], Vector]) -> Callable[[Vector], Vector]:
    """Inlined for whole vectors, where a call is a fifth of its time; else a helper function."""
    shared = _shared(function)
    return lambda x: function(x) if x.width * x.code.bits >= 256 else shared(x)


#: by the name of the C function
INLINE: dict[str, Callable[..., Vector]] = {
    "exp": _everyday(exponential),
    "expm1": _shared(expm1),
    "log": _shared(logarithm),
    "log1p": _shared(log1p),
    "tanh": _shared(tanh),
    "sin": _shared(sine),
    "cos": _shared(cosine),
    "erf": _shared(erf),
    "erfc": _shared(erfc),
    "sqrt": lambda x: x.intrinsic("sqrt"),
    "floor": lambda x: x.intrinsic("floor"),
    "pow": power,
}
#: rows of the op table that are faster or more exact than their formula
ROWS: dict[Op, Callable[..., Vector]] = {
    ops.sigmoid: _shared(sigmoid),
    **{row: _compared(row) for row in COMPARISONS},
    **{row: _checked(row) for row in nearness.CHECKS},
    rounding.floor: lambda x: _unless_near_a_jump(x.intrinsic("floor"), x),
    rounding.ceil: lambda x: _unless_near_a_jump(x.intrinsic("ceil"), x),
    rounding.trunc: lambda x: _unless_near_a_jump(x.intrinsic("trunc"), x),
    rounding.round: lambda x: _unless_near_a_jump(x.intrinsic("rint"), x - 0.5),
    rounding.sign: lambda x: _unless_near(rounding.sign.forward(x), abs(x), x.lift(1.0)),
    rounding.mod: lambda a, b: _unless_near_a_jump(rounding.mod.forward(a, b), a / b),
    rounding.floor_divide: lambda a, b: _unless_near_a_jump(
        rounding.floor_divide.forward(a, b), a / b
    ),
}
