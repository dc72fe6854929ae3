"""The op table's rows as functions: ``chainrule.exp(x)`` for floats, Values and arrays alike.

A Value gives a Value, a number a float, an array an array (elementwise). Unlike the bare rows of
``ops``, these raise where a result is undefined. Every row of the table gets its function here;
``clip`` and ``where`` have more to say than a row and are written out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.core import errors, ops, special  # noqa: F401  # special: rows of its own
from chainrule.core.backend import Value, kernels, modes
from chainrule.core.ops import Op
from chainrule.core.protocols import real_parameters

if TYPE_CHECKING:
    from chainrule.core.declarations import *  # noqa: F403

#: the names of the functions, in the table's order
__all__: list[str] = []


def _call(op: Op, operands: tuple[Any, ...], parameters: tuple[Any, ...]) -> Any:
    if any(isinstance(x, np.ndarray) for x in operands):
        each = np.frompyfunc(lambda *xs: _call(op, xs, parameters), op.arity, 1)
        result = each(*operands)
        values = any(isinstance(x, Value) for x in np.ravel(result))
        return result if values else np.asarray(result, dtype=float)
    for x in operands:
        if errors.is_value(x):  # or a number that writes down what is done with it
            return type(x)._apply_op(op, operands, parameters)
    if modes.recorder is not None:
        found = modes.recorder.function(op, operands, parameters)
        if found is not None:
            return found
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
    given = len(op.parameters) - len(op.defaults)  # parameters that must be
    arguments = (*op.example[: op.arity], *[1.0] * given)
    call, result = ", ".join(map(str, arguments)), op(*arguments)
    of = "of a Value, a number, or each element of an array"
    function.__doc__ = f"""{op.formula}, {of}.{needs}{edges}

    >>> import chainrule
    >>> print(f"{{chainrule.{op.name}({call}):.6g}}")
    {result:.6g}
    """
    return function


def _function(op: Op) -> Any:
    """A row as a function; a Value goes the shortest way, by its method."""
    method = getattr(Value, op.name)
    quick = getattr(kernels, op.name, None)  # maximum and minimum in C: None for what it leaves

    def unary(x: Any, /) -> Any:
        return method(x) if type(x) is Value else _call(op, (x,), ())

    def binary(a: Any, b: Any, /) -> Any:
        return method(a, b) if type(a) is type(b) is Value else _call(op, (a, b), ())

    def general(*arguments: Any, **named: Any) -> Any:
        if named or len(arguments) < op.arity:
            arguments = _signature(op).bind(*arguments, **named).args
        return _call(op, arguments[: op.arity], op.complete(arguments[op.arity :]))

    if quick is not None:

        def picking(a: Any, b: Any, /) -> Any:
            made = quick(a, b)
            return _call(op, (a, b), ()) if made is None else made

        return picking
    if not op.parameters and op.arity <= 2:
        return unary if op.arity == 1 else binary
    general.__signature__ = _signature(op)  # type: ignore[attr-defined]
    return general


def _signature(op: Op) -> inspect.Signature:
    """``(x, slope=0.01)``: the operands, then the static parameters with their defaults."""
    either, empty = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.empty
    operands = ["x"] if op.arity == 1 else [*"abcd"[: op.arity]]
    defaults = [empty] * (len(op.parameters) - len(op.defaults)) + [*op.defaults]
    words = zip([*operands, *op.parameters], [empty] * op.arity + defaults, strict=True)
    return inspect.Signature([inspect.Parameter(n, either, default=d) for n, d in words])


def clip(x: Any, low: float | None = None, high: float | None = None) -> Any:
    """``x`` held between two constant bounds; the derivative is 1 inside and at the bounds, else 0.

    For bounds that are Values use ``maximum`` and ``minimum``. numpy's own ``np.clip`` compares
    Values and picks one of them, so a bound it picks carries no gradient to ``x`` either.

    >>> from chainrule import clip
    >>> clip(3.0, 0.0, 1.0)
    1.0
    """
    made = None if kernels is None else kernels.clip(x, low, high)
    if made is not None:
        return made
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
    numpy's functions of these names compare Values and return one of them, which gives the same
    value but leaves no trace of the choice in the graph (and no ½ at a tie).

    >>> from chainrule import Value, where
    >>> a, b = Value(2.0), Value(5.0)
    >>> y = where(a > b, a, b)
    >>> y.backward()
    >>> y.data, a.grad, b.grad
    (5.0, 0.0, 1.0)
    """
    made = None if kernels is None else kernels.where(condition, a, b)
    if made is not None:
        return made
    if any(isinstance(x, np.ndarray) for x in (condition, a, b)):
        result = np.frompyfunc(where, 3, 1)(condition, a, b)
        values = any(isinstance(x, Value) for x in np.ravel(result))
        return result if values else np.asarray(result, dtype=float)
    if errors.is_value(condition) and not isinstance(condition, Value):
        return ops.where(condition, a, b)  # a condition in a formula
    if modes.recorder is not None:
        return modes.recorder.where(condition, a, b)
    return choose(condition, a, b)


def choose(condition: Any, a: Any, b: Any) -> Any:
    """``where`` of a condition that is known now."""
    return _call(ops._where, (a, b), (bool(condition),))


def _define(op: Op) -> None:
    """Make the function of a row, unless it is written out above."""
    if not op.is_operator:
        __all__.append(op.name)
        if op.name not in globals():
            globals()[op.name] = _documented(_function(op), op)


ops.follow(_define)
