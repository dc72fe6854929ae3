"""Scalar reverse-mode automatic differentiation, explained, verified and fast.

>>> from chainrule import Value
>>> a, b = Value(2.0), Value(3.0)
>>> loss = a * b + a
>>> loss.backward()
>>> a.grad, b.grad
(4.0, 2.0)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainrule.core.backend import (
    Value,
    dot,
    engine,
    linear,
    no_grad,
    nonfinite,
    topological_order,
    vsum,
)
from chainrule.core.functions import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    clip,
    cos,
    cosh,
    erf,
    erfc,
    exp,
    expm1,
    gelu,
    gelu_tanh,
    hypot,
    leaky_relu,
    log,
    log1p,
    log2,
    log10,
    maximum,
    minimum,
    relu,
    sigmoid,
    silu,
    sin,
    sinh,
    softplus,
    sqrt,
    tan,
    tanh,
    where,
)
from chainrule.derivatives.transforms import grad, gradients, hessian, hvp, jacobian, value_and_grad

if TYPE_CHECKING:
    from chainrule import gpt, nn, optim
    from chainrule.compiler import FallbackError, FallbackWarning, compile
    from chainrule.derivatives.checking import GradientError, GradientReport, check_gradients
    from chainrule.see import lessons
    from chainrule.see.debugging import debug, find_nonfinite
    from chainrule.see.drawing import draw, draw_dot
    from chainrule.see.explanation import explain
    from chainrule.see.page import explore

__version__ = "0.1.0"

__all__ = [
    "FallbackError",
    "FallbackWarning",
    "GradientError",
    "GradientReport",
    "Value",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "check_gradients",
    "clip",
    "compile",
    "cos",
    "cosh",
    "debug",
    "dot",
    "draw",
    "draw_dot",
    "engine",
    "erf",
    "erfc",
    "exp",
    "explain",
    "explore",
    "expm1",
    "find_nonfinite",
    "gelu",
    "gelu_tanh",
    "gpt",
    "grad",
    "gradients",
    "hessian",
    "hvp",
    "hypot",
    "jacobian",
    "leaky_relu",
    "lessons",
    "linear",
    "log",
    "log10",
    "log1p",
    "log2",
    "maximum",
    "minimum",
    "nn",
    "no_grad",
    "nonfinite",
    "optim",
    "relu",
    "sigmoid",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "tan",
    "tanh",
    "topological_order",
    "value_and_grad",
    "vsum",
    "where",
]

# Loaded when first asked for, so that ``import chainrule`` stays quick.
_LATER = {
    "FallbackError": "compiler",
    "FallbackWarning": "compiler",
    "compile": "compiler",
    "GradientError": "derivatives.checking",
    "GradientReport": "derivatives.checking",
    "check_gradients": "derivatives.checking",
    "debug": "see.debugging",
    "draw": "see.drawing",
    "draw_dot": "see.drawing",
    "explain": "see.explanation",
    "explore": "see.page",
    "find_nonfinite": "see.debugging",
}
_MODULES = {"gpt": "gpt", "lessons": "see.lessons", "nn": "nn", "optim": "optim"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = import_module(f"chainrule.{_MODULES[name]}")
    elif name in _LATER:
        found = getattr(import_module(f"chainrule.{_LATER[name]}"), name)
    else:
        raise AttributeError(f"module 'chainrule' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
