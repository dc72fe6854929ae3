"""The functions of every number system the random programs run over, named as in the op table.

Each table maps a name to a callable `f(*operands, *parameters)`. The formulas are written down here
independently of the package: they are the yardstick, not the thing measured.
"""

import math
from typing import Any

import autograd.numpy as anp
import autograd.scipy.special as special
import mpmath

ELEMENTARY = (
    "exp expm1 log log1p log10 sqrt tanh sin cos tan asin acos atan sinh cosh asinh acosh atanh "
    "erf erfc"
).split()
UNARY = [*ELEMENTARY, *"log2 relu sigmoid softplus gelu gelu_tanh silu abs".split()]
BINARY = "atan2 maximum minimum hypot".split()
NAMES = [*UNARY, *BINARY, "leaky_relu", "where", "clip"]


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
    }


def _float_table() -> dict[str, Any]:
    table: dict[str, Any] = {name: getattr(math, name) for name in [*ELEMENTARY, "log2", "atan2"]}
    return table | composed(table | {"two": 2.0, "pi": math.pi, "cubic": 0.044715})


def _autograd_table() -> dict[str, Any]:
    spelled = {
        name: name
        for name in "exp expm1 log log1p log2 log10 sqrt tanh sin cos tan sinh cosh".split()
    }
    spelled |= {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}
    spelled |= {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh"}
    table: dict[str, Any] = {name: getattr(anp, theirs) for name, theirs in spelled.items()}
    table |= {"erf": special.erf, "erfc": special.erfc}
    return table | composed(table | {"two": 2.0, "pi": math.pi, "cubic": 0.044715})


def _mpmath_table() -> dict[str, Any]:
    table: dict[str, Any] = {name: getattr(mpmath, name) for name in [*ELEMENTARY, "atan2"]}
    table["log2"] = lambda x: mpmath.log(x) / mpmath.log(2)
    return table | composed(
        table | {"two": mpmath.mpf(2), "pi": +mpmath.mp.pi, "cubic": mpmath.mpf("0.044715")}
    )


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
