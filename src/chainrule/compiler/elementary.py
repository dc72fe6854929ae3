"""Elementary functions as vector code.

In: Vectors of a ``Code``. Out: Vectors, by polynomials and bits, without a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from chainrule.ops import Op

if TYPE_CHECKING:
    from chainrule.compiler.ir import Integers, Vector


def _power_of_two(n: Integers) -> Vector:
    """2**n for an integer within the exponents of normal doubles."""
    return ((n + 1023) << 52).numbers()


def _lanes(name: str, *xs: Vector) -> Vector:
    from chainrule.compiler.ir import by_lanes

    return by_lanes(xs[0].code, name, xs)


MAGIC = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to an integer in the low bits


def exponential(x: Vector) -> Vector:
    """e**x: 2**n times a polynomial in the remainder; scaled in two halves, for the subnormals."""
    if x.code.dtype == "float32":
        return exponential(x.over("float64")).over("float32")
    x = (x > 710.0).choose(710.0, x)
    x = (x < -746.0).choose(-746.0, x)
    shifted = x.times_plus(math.log2(math.e), MAGIC)
    n = shifted - MAGIC
    r = n.times_plus(-0.693147180369123816490, x)
    r = n.times_plus(-1.90821492927058770002e-10, r)
    p = x.lift(1.0 / math.factorial(13))
    for k in range(12, -1, -1):
        p = p.times_plus(r, 1.0 / math.factorial(k))
    exponent = shifted.bits() - 0x4338000000000000
    half = exponent >> 1
    rest = exponent - half
    return p * _power_of_two(half) * _power_of_two(rest)


_LOG = (
    *(6.666666666666735130e-01, 3.999999999940941908e-01, 2.857142874366239149e-01),
    *(2.222219843214978396e-01, 1.818357216161805012e-01, 1.531383769920937332e-01),
    1.479819860511658591e-01,
)


def logarithm(x: Vector) -> Vector:
    """ln x: the exponent times ln 2 plus a series in (m - 1)/(m + 1) of the mantissa m."""
    if x.code.dtype == "float32":
        return logarithm(x.over("float64")).over("float32")
    tiny = x < 2.2250738585072014e-308
    scaled = tiny.choose(x * 18014398509481984.0, x)
    bits = scaled.bits()
    # The mantissa goes to [sqrt(1/2), sqrt(2)): the offset makes the rounding of the exponent so.
    k = (bits - 0x3FE6A09E667F3BCD) >> 52
    m = (bits - (k << 52)).numbers()
    exponent = k.converted() - tiny.choose(54.0, 0.0)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    p = x.lift(_LOG[-1])
    for c in reversed(_LOG[:-1]):
        p = p.times_plus(z, c)
    half = f * f * 0.5
    low = exponent * 1.90821492927058770002e-10
    y = exponent * 6.93147180369123816490e-01 - ((half - (s * (half + z * p) + low)) - f)
    y = (x < math.inf).choose(y, x)  # inf and nan stay what they are
    outside = (x < 0.0).choose(math.nan, (x >= 0.0).choose(-math.inf, x))
    return (x > 0.0).choose(y, outside)


def power(x: Vector, p: Vector | float) -> Vector:
    """x**p: common constant exponents by arithmetic, others by the C library."""
    if not isinstance(p, (float, int)):
        return _lanes("pow", x, p)
    if p == 2.0:
        return x * x
    if p == -1.0:
        return 1.0 / x
    if p in (0.5, -0.5):
        root = x.intrinsic("sqrt")
        return root if p > 0 else 1.0 / root
    if p in (0.0, 1.0, 3.0, -2.0, -3.0):
        cube = {0.0: lambda: x * 0.0 + 1.0, 1.0: lambda: x, 3.0: lambda: x * x * x}
        return cube.get(p, lambda: 1.0 / power(x, -p))()
    if p == -1.5:
        return 1.0 / (x * x.intrinsic("sqrt"))
    return _lanes("pow", x, x.lift(p))


#: by the name of the C function
INLINE: dict[str, Callable[..., Vector]] = {
    "exp": exponential,
    "log": logarithm,
    "sqrt": lambda x: x.intrinsic("sqrt"),
    "pow": power,
}
#: rows that have a better way than their formula
ROWS: dict[Op, Callable[..., Vector]] = {}
