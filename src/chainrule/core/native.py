"""The native engine's Python side: what finishes the C class.

``_native`` (C, in src/native) holds what must be fast. Rows of the op table without a case in C,
printing, copying and the constructor's other forms are the reference engine's Python code, put on
the class here.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import Any

from chainrule._native import Value, dot, linear, modes, record_row, topological_order, vsum
from chainrule.core import errors, ops
from chainrule.core.ops import Op
from chainrule.core.protocols import SIGNATURE, Protocols, add_method, as_values, real_parameters
from chainrule.core.value import Value as Reference

__all__ = ["Value", "dot", "linear", "modes", "topological_order", "vsum"]


def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Value:
    """The op table's way in: any operation over Values and numbers."""
    recorder = modes.recorder
    if recorder is not None and type(operands) is tuple and not parameters:
        recorded = record_row(op, operands)
        if recorded is not None:
            return recorded
    values = as_values(Value, op, operands, Value)
    static = real_parameters(op, parameters)
    xs = [v._number for v in values]
    y = op.forward(*xs, *static)
    if not (isfinite(y) or modes.allow_nonfinite):
        errors.check(op, y, values, static)
    node = Value.__new__(Value)
    if modes.grad or recorder is not None:
        node._build(y, 0.0, "", op, static, values, op.local_grads(y, xs, static))
    else:
        node._build(y, 0.0, "", "", (), (), ())
    if modes.debug:
        node._locate(errors.caller())
    return node if recorder is None else recorder.made(node)


def _finish_class() -> None:
    for name, attribute in vars(Protocols).items():
        if name not in (
            "__init__",
            "__abs__",
            "__module__",
            "__doc__",
            "__slots__",
            "__weakref__",
            "__dict__",
        ):
            setattr(Value, name, attribute)
    Value.__doc__ = Reference.__doc__
    Value.__name__ = "Value"  # so that Python's own messages say no more than the reference's
    Value._modes = modes
    Value.__signature__ = SIGNATURE.replace(parameters=list(SIGNATURE.parameters.values())[1:])
    Value._apply_op = staticmethod(_apply_op)  # type: ignore[method-assign]
    Value._inputs = Value.children  # type: ignore[assignment]  # as the reference calls them
    Value._slopes = Value.local_grads  # type: ignore[assignment]
    ops.follow(lambda op: add_method(Value, op))


_finish_class()
