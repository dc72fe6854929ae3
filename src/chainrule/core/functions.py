"""The op table's rows as functions: ``chainrule.exp(x)`` for floats, Values and arrays alike.

A Value gives a Value, a number a float, an array an array (elementwise). Unlike the bare rows of
``ops``, these raise where a result is undefined.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from chainrule.core import errors, ops
from chainrule.core.backend import Value, modes
from chainrule.core.ops import Op
from chainrule.core.protocols import real_parameters

Array = npt.NDArray[Any]


class Unary(Protocol):
    """A function of one number."""

    @overload
    def __call__(self, x: Value, /) -> Value: ...
    @overload
    def __call__(self, x: float, /) -> float: ...
    @overload
    def __call__(self, x: Array, /) -> Array: ...


class Binary(Protocol):
    """A function of two numbers."""

    @overload
    def __call__(self, a: Value, b: Value | float, /) -> Value: ...
    @overload
    def __call__(self, a: float, b: Value, /) -> Value: ...
    @overload
    def __call__(self, a: float, b: float, /) -> float: ...
    @overload
    def __call__(self, a: Array, b: Any, /) -> Array: ...
    @overload
    def __call__(self, a: Any, b: Array, /) -> Array: ...


def _call(op: Op, operands: tuple[Any, ...], parameters: tuple[Any, ...]) -> Any:
    if any(isinstance(x, np.ndarray) for x in operands):
        each = np.frompyfunc(lambda *xs: _call(op, xs, parameters), op.arity, 1)
        result = each(*operands)
        values = any(isinstance(x, Value) for x in np.ravel(result))
        return result if values else np.asarray(result, dtype=float)
    if any(isinstance(x, Value) for x in operands):
        return Value._apply_op(op, operands, parameters)
    xs = [errors.real(x, f"an operand of {op.name}") for x in operands]
    return errors.evaluate(op, xs, real_parameters(op, parameters), modes.allow_nonfinite)


def _documented(function: Callable[..., Any], op: Op) -> Any:
    function.__name__ = function.__qualname__ = op.name
    needs = f" Needs {op.domain}." if op.domain else ""
    edges = "".join(
        f" At {', '.join(map(ops.format_number, e.operands))} the derivative is "
        f"{', '.join(map(ops.format_number, e.partials))}."
        for e in op.edges
    )
    operands = ", ".join(map(str, op.example[: op.arity]))
    result = round(op(*op.example[: op.arity]), 6)
    of = "of a Value, a number, or each element of an array"
    function.__doc__ = f"""{op.formula}, {of}.{needs}{edges}

    >>> from chainrule import {op.name}
    >>> round({op.name}({operands}), 6)
    {result}
    """
    return function


def _unary(op: Op) -> Unary:
    method = getattr(Value, op.name)  # the shortest way for a Value

    def function(x: Any, /) -> Any:
        return method(x) if type(x) is Value else _call(op, (x,), ())

    return _documented(function, op)  # type: ignore[no-any-return]


def _binary(op: Op) -> Binary:
    method = getattr(Value, op.name)

    def function(a: Any, b: Any, /) -> Any:
        return method(a, b) if type(a) is type(b) is Value else _call(op, (a, b), ())

    return _documented(function, op)  # type: ignore[no-any-return]


exp, expm1 = _unary(ops.exp), _unary(ops.expm1)
log, log1p, log2, log10 = map(_unary, (ops.log, ops.log1p, ops.log2, ops.log10))
sqrt, abs = _unary(ops.sqrt), _unary(ops.abs)
relu, tanh, sigmoid, softplus = map(_unary, (ops.relu, ops.tanh, ops.sigmoid, ops.softplus))
gelu, gelu_tanh, silu = map(_unary, (ops.gelu, ops.gelu_tanh, ops.silu))
sin, cos, tan = map(_unary, (ops.sin, ops.cos, ops.tan))
asin, acos, atan = map(_unary, (ops.asin, ops.acos, ops.atan))
sinh, cosh = map(_unary, (ops.sinh, ops.cosh))
asinh, acosh, atanh = map(_unary, (ops.asinh, ops.acosh, ops.atanh))
erf, erfc = _unary(ops.erf), _unary(ops.erfc)
atan2, hypot = _binary(ops.atan2), _binary(ops.hypot)
maximum, minimum = _binary(ops.maximum), _binary(ops.minimum)


def leaky_relu(x: Any, slope: float = 0.01) -> Any:
    """``x`` where it is positive, else ``slope * x``; the derivative at 0 is the slope.

    >>> from chainrule import leaky_relu
    >>> leaky_relu(-2.0, slope=0.1)
    -0.2
    """
    return _call(ops.leaky_relu, (x,), (slope,))


def clip(x: Any, low: float | None = None, high: float | None = None) -> Any:
    """``x`` held between two constant bounds; the derivative is 1 inside and at the bounds, else 0.

    For bounds that are Values use ``maximum`` and ``minimum``. numpy's own ``np.clip`` compares
    Values and picks one of them, so a bound it picks carries no gradient to ``x`` either.

    >>> from chainrule import clip
    >>> clip(3.0, 0.0, 1.0)
    1.0
    """
    bounds = (
        ops.clip.defaults[0] if low is None else low,
        ops.clip.defaults[1] if high is None else high,
    )
    if not any(isinstance(b, Value) for b in bounds) and bounds[0] > bounds[1]:
        raise ValueError(f"clip needs low <= high, got {bounds[0]} and {bounds[1]}")
    return _call(ops.clip, (x,), bounds)


def where(condition: Any, a: Any, b: Any) -> Any:
    """``a`` if the condition holds, else ``b``, as a node with both as children.

    Only the chosen one gets a gradient. The condition may be a bool, a comparison, a number, a
    Value (its truth) or an array of them. ``maximum``, ``minimum`` and ``where`` make nodes;
    numpy's functions of these names compare Values and hand back one of them, which gives the same
    value but leaves no trace of the choice in the graph (and no ½ at a tie).

    >>> from chainrule import Value, where
    >>> a, b = Value(2.0), Value(5.0)
    >>> y = where(a > b, a, b)
    >>> y.backward()
    >>> y.data, a.grad, b.grad
    (5.0, 0.0, 1.0)
    """
    if any(isinstance(x, np.ndarray) for x in (condition, a, b)):
        result = np.frompyfunc(where, 3, 1)(condition, a, b)
        values = any(isinstance(x, Value) for x in np.ravel(result))
        return result if values else np.asarray(result, dtype=float)
    if modes.recorder is not None:
        return modes.recorder.where(condition, a, b)
    return choose(condition, a, b)


def choose(condition: Any, a: Any, b: Any) -> Any:
    """``where`` of a condition that is known now."""
    return _call(ops._where, (a, b), (bool(condition),))
