"""Python's operators on numbers and the functions of one number, by their names: tables only.

Stand-ins look up here what a special method or a function of numpy's means.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from chainrule.compiler.capture.integers import COMPARISONS, METHODS
from chainrule.core import ops
from chainrule.core.ops import Op


def _names() -> dict[str, Op]:
    """The op table's functions of one number, by their names and numpy's."""
    rows = {r.name: r for r in vars(ops).values() if isinstance(r, ops.Op)}
    found = {}
    for name in (
        *("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "erf", "erfc"),
        *("sin", "cos", "tan", "asin", "acos", "atan"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    ):
        found[name] = rows[name]
        if name.startswith("a"):
            found["arc" + name[1:]] = rows[name]
    return found


#: the op table's functions of one number
UNARY = _names()


def _swapped(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: function(b, a)


def _operators() -> dict[str, Callable[[Any, Any], Any]]:
    """The operators of two numbers, by the names of their special methods."""
    found: dict[str, Callable[[Any, Any], Any]] = {"__divmod__": divmod}
    found["__rdivmod__"] = _swapped(divmod)
    for name in (*METHODS, "truediv", "pow"):
        function = getattr(operator, METHODS.get(name, name))
        found |= {f"__{name}__": function, f"__r{name}__": _swapped(function)}
    return found | {f"__{name}__": getattr(operator, name) for name in COMPARISONS}


#: operators as functions, by the names of their special methods
BINARY = _operators()
