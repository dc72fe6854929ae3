"""The functions of every number system the random programs run over, named as in the op table.

Each table maps a name to a callable `f(*operands, *parameters)`. The formulas are written down here
independently of the package: they are the yardstick, not the thing measured.
"""

import math
import statistics
from operator import floordiv
from typing import Any

import autograd.numpy as anp
import autograd.scipy.special as special
import mpmath

ELEMENTARY = (
    "exp expm1 log log1p log10 sqrt tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh "
    "erf erfc"
).split()
ROUNDING = "floor ceil trunc round sign".split()
GAMMA = ["lgamma", "digamma"]
COMPOSED = (
    "log2 relu sigmoid softplus gelu gelu_tanh silu abs normal_pdf normal_cdf normal_quantile "
    "log1mexp safe_sqrt ramp"
).split()
UNARY = [*ELEMENTARY, *ROUNDING, *GAMMA, *COMPOSED]
BINARY = "atan2 maximum minimum hypot mod floor_divide".split()
NAMES = [*UNARY, *BINARY, "leaky_relu", "where", "clip", "polygamma"]


def composed(m: Any) -> dict[str, Any]:
    """The same formulas in every system, given that system's exp, log1p, tanh, erf, sqrt, pi."""
    return {
        "relu": lambda x: x if x > 0 else 0.0 * x,
        "leaky_relu": lambda x, slope: x if x > 0 else slope * x,
        "sigmoid": lambda x: 1.0 / (1.0 + m["exp"](-x)),
        "softplus": lambda x: m["log1p"](m["exp"](x)),
        "silu": lambda x: x / (1.0 + m["exp"](-x)),
        "gelu": lambda x: x * (1.0 + m["erf"](x / m["sqrt"](m["two"]))) / 2.0,
        "gelu_tanh": lambda x: (
            x * (1.0 + m["tanh"](m["sqrt"](2 / m["pi"]) * (x + m["cubic"] * x * x * x))) / 2.0
        ),
        "abs": abs,
        "maximum": lambda a, b: a if a > b else b,
        "minimum": lambda a, b: a if a < b else b,
        "where": lambda a, b, condition: a if condition else b,
        "clip": lambda x, low, high: (
            low + 0.0 * x if x < low else high + 0.0 * x if x > high else x
        ),
        "hypot": lambda a, b: m["sqrt"](a * a + b * b),
        "normal_pdf": lambda x: m["exp"](-x * x / 2) / m["sqrt"](2 * m["pi"]),
        "normal_cdf": lambda x: m["erfc"](-x / m["sqrt"](m["two"])) / 2,
        "log1mexp": lambda x: m["log1p"](-m["exp"](-x)) if x > 1 else m["log"](-m["expm1"](-x)),
        "safe_sqrt": lambda x: m["sqrt"](x) if x > 0 else 0.0 * x,
        "ramp": lambda x: 0.0 * x if x < 0 else x if x < 1 else 1.0 + 0.0 * x,
        "mod": lambda a, b: a - b * m["floor"](a / b),
    }


def _float_table() -> dict[str, Any]:
    names = [*ELEMENTARY, "log2", "atan2", "floor", "lgamma"]
    table: dict[str, Any] = {name: getattr(math, name) for name in names}
    table |= {"digamma": lambda x: float(special.digamma(x)), "round": round}
    table |= {"polygamma": lambda x, order: float(special.polygamma(int(order), x))}
    table |= {"ceil": math.ceil, "trunc": math.trunc, "sign": lambda x: math.copysign(1.0, x)}
    table |= {"normal_quantile": statistics.NormalDist().inv_cdf, "floor_divide": floordiv}
    return table | composed(table | {"two": 2.0, "pi": math.pi, "cubic": 0.044715})


def _autograd_table() -> dict[str, Any]:
    spelled = {
        name: name
        for name in "exp expm1 log log1p log2 log10 sqrt tanh sin cos tan sinh cosh".split()
    }
    spelled |= {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}
    spelled |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}
    table: dict[str, Any] = {name: getattr(anp, theirs) for name, theirs in spelled.items()}
    table |= {"erf": special.erf, "erfc": special.erfc, "floor": anp.floor}
    table |= {"ceil": anp.ceil, "trunc": anp.trunc, "round": anp.rint, "sign": anp.sign}
    table |= {"lgamma": special.gammaln, "digamma": special.digamma}
    table |= {"floor_divide": lambda a, b: anp.floor(a / b)}
    table |= {"polygamma": lambda x, order: special.polygamma(int(order), x)}
    table |= {"normal_quantile": lambda p: 2.0**0.5 * special.erfinv(2.0 * p - 1.0)}
    return table | composed(table | {"two": 2.0, "pi": math.pi, "cubic": 0.044715})


def _mpmath_table() -> dict[str, Any]:
    table: dict[str, Any] = {name: getattr(mpmath, name) for name in [*ELEMENTARY, "atan2"]}
    table["log2"] = lambda x: mpmath.log(x) / mpmath.log(2)
    table |= {name: getattr(mpmath, name) for name in ("floor", "ceil", "digamma")}
    table |= {"round": mpmath.nint, "sign": mpmath.sign, "polygamma": _polygamma}
    table |= {"trunc": lambda x: mpmath.sign(x) * mpmath.floor(abs(x))}
    table |= {"lgamma": lambda x: mpmath.log(abs(mpmath.gamma(x)))}
    table |= {"floor_divide": _floor_divide, "normal_quantile": _quantile}
    formulas = composed(
        table | {"two": mpmath.mpf(2), "pi": +mpmath.mp.pi, "cubic": mpmath.mpf("0.044715")}
    )
    return table | formulas | {"mod": lambda a, b: _wide(lambda: a - b * _floor_divide(a, b))}


def _wide(formula: Any) -> Any:
    """With digits enough for 700 // 1e-300."""
    with mpmath.workdps(700):
        return formula()


def _floor_divide(a: Any, b: Any) -> Any:
    return _wide(lambda: mpmath.floor(a / b))


def _polygamma(x: Any, order: Any) -> Any:
    return mpmath.polygamma(int(order), x)


def _quantile(p: Any) -> Any:
    """Newton's method in logarithms, from the tail's leading term."""
    if p > 0.5:
        return -_quantile(1 - p)
    x = -mpmath.sqrt(-2 * mpmath.log(p)) + 1
    for _ in range(60):
        tail, density = mpmath.ncdf(x), mpmath.npdf(x)
        x -= mpmath.log(tail / p) * tail / density
    return x


def chainrule_functions() -> dict[str, Any]:
    """The package's public functions."""
    import chainrule

    table = {name: getattr(chainrule, name) for name in NAMES}
    return table | {"where": lambda a, b, condition: chainrule.where(condition, a, b)}


class _Methods(dict[str, Any]):
    """Every name is the operand's own method: `x.exp()`."""

    def __missing__(self, name: str) -> Any:
        return lambda x, *parameters: getattr(x, name)(*parameters)


FLOATS = _float_table()
AUTOGRAD = _autograd_table()
METHODS = _Methods()
with mpmath.workdps(60):
    MPMATH = _mpmath_table()
