"""Scalar reverse-mode automatic differentiation, explained, verified and fast.

>>> from chainrule import Value
>>> a, b = Value(2.0), Value(3.0)
>>> loss = a * b + a
>>> loss.backward()
>>> a.grad, b.grad
(4.0, 2.0)
"""

from chainrule import starting as _starting  # before all that takes time

# isort: split
from importlib import import_module
from typing import TYPE_CHECKING, Any

from chainrule.core import functions as _functions
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
from chainrule.core.functions import *  # noqa: F403
from chainrule.core.operations import operation
from chainrule.derivatives.backward import gradients
from chainrule.derivatives.matrices import hessian, hvp, jacobian, jvp, vjp
from chainrule.derivatives.solvers import SolverError, checkpoint, fixed_point, implicit_root
from chainrule.derivatives.transforms import grad, value_and_grad
from chainrule.vectors import (
    cholesky,
    cumsum,
    det,
    interp,
    logsumexp,
    norm,
    safe_norm,
    smooth_max,
    smooth_step,
    solve,
    stop_gradient,
)

if TYPE_CHECKING:
    from chainrule import gpt, nn, optim, random
    from chainrule.compiler import (
        FallbackError,
        FallbackWarning,
        SaveError,
        TranslationError,
        compile,
        load,
    )
    from chainrule.core.declarations import *  # noqa: F403
    from chainrule.core.functions import clip as clip
    from chainrule.core.functions import where as where
    from chainrule.derivatives.checking import GradientError, GradientReport, check_gradients
    from chainrule.nn import softmax
    from chainrule.see import lessons
    from chainrule.see.debugging import debug, find_nonfinite
    from chainrule.see.drawing import draw, draw_dot
    from chainrule.see.explanation import explain
    from chainrule.see.page import explore
    from chainrule.windows import Windows

__version__ = "0.1.0"

__all__ = [
    "FallbackError",
    "FallbackWarning",
    "GradientError",
    "GradientReport",
    "SaveError",
    "SolverError",
    "TranslationError",
    "Value",
    "Windows",
    "check_gradients",
    "checkpoint",
    "compile",
    "debug",
    "dot",
    "draw",
    "draw_dot",
    "engine",
    "explain",
    "explore",
    "find_nonfinite",
    "fixed_point",
    "gpt",
    "grad",
    "gradients",
    "hessian",
    "hvp",
    "implicit_root",
    "jacobian",
    "jvp",
    "lessons",
    "linear",
    "load",
    "nn",
    "no_grad",
    "nonfinite",
    "operation",
    "optim",
    "random",
    "cholesky",
    "cumsum",
    "det",
    "interp",
    "logsumexp",
    "norm",
    "safe_norm",
    "smooth_max",
    "smooth_step",
    "softmax",
    "solve",
    "stop_gradient",
    "topological_order",
    "value_and_grad",
    "vjp",
    "vsum",
]
__all__ += _functions.__all__  # the op table's

# Loaded when first asked for, so that ``import chainrule`` stays quick.
_LATER = {
    "FallbackError": "compiler",
    "FallbackWarning": "compiler",
    "SaveError": "compiler",
    "TranslationError": "compiler",
    "compile": "compiler",
    "load": "compiler",
    "GradientError": "derivatives.checking",
    "GradientReport": "derivatives.checking",
    "check_gradients": "derivatives.checking",
    "debug": "see.debugging",
    "draw": "see.drawing",
    "draw_dot": "see.drawing",
    "explain": "see.explanation",
    "explore": "see.page",
    "find_nonfinite": "see.debugging",
    "softmax": "nn",
    "Windows": "windows",
}
_MODULES = {
    "gpt": "gpt",
    "lessons": "see.lessons",
    "nn": "nn",
    "optim": "optim",
    "random": "random",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        found = import_module(f"chainrule.{_MODULES[name]}")
    elif name in _LATER:
        found = getattr(import_module(f"chainrule.{_LATER[name]}"), name)
    elif name in _functions.__all__:  # a row added since
        found = getattr(_functions, name)
    else:
        raise AttributeError(f"module 'chainrule' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_starting.release()
