"""The native engine's Python side: what finishes the C class and what reads its arrays.

``_native`` holds what is hot. Rows of the op table without a case in C, printing, copying and the
constructor's dialects are the same Python code as the reference engine's, put on the class here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule import _native, errors, ops
from chainrule._native import Value, dot, linear, modes, topological_order, vsum
from chainrule.ops import Op
from chainrule.protocols import SIGNATURE, Protocols, add_methods, real_parameters
from chainrule.value import Value as Reference

__all__ = ["Linear", "Value", "dot", "linear", "linearize", "modes", "topological_order", "vsum"]


def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Value:
    """The op table's way in: any operation over Values and numbers."""
    values = tuple(
        [
            x if isinstance(x, Value) else Value(errors.real(x, f"an operand of {op.name}"))
            for x in operands
        ]
    )
    static = real_parameters(op, parameters)
    xs = [v.data for v in values]
    y = op.forward(*xs, *static)
    if not (isfinite(y) or modes.allow_nonfinite):
        errors.check(op, y, values, static)
    if not modes.grad:
        values, static = (), ()
    node = Value.__new__(Value)
    slopes = op.local_grads(y, xs, static) if values else ()
    node._build(y, 0.0, "", op if values else "", static, values, slopes)
    if modes.debug:
        node._locate(errors.caller())
    return node


def _finish_class() -> None:
    for name, attribute in vars(Protocols).items():
        if name not in ("__init__", "__module__", "__doc__", "__slots__", "__weakref__", "__dict__"):
            setattr(Value, name, attribute)
    Value.__doc__ = Reference.__doc__
    Value.__signature__ = SIGNATURE.replace(parameters=list(SIGNATURE.parameters.values())[1:])
    Value._apply_op = staticmethod(_apply_op)  # type: ignore[method-assign]
    Value.__abs__ = lambda self: _apply_op(ops.abs, (self,), ())  # type: ignore[method-assign]
    add_methods(Value)


_finish_class()


@dataclass(frozen=True, eq=False)
class Linear:
    """A graph as flat arrays in topological order: one instruction per node, no object per node.

    ``codes[i]`` is an instruction (``names[code]``), ``operands[i]`` the positions of its operands
    (-1: none), ``constants[i]`` its numbers: a plain-number operand, an exponent, parameters.
    """

    codes: npt.NDArray[np.int32]
    operands: npt.NDArray[np.int32]
    constants: npt.NDArray[np.float64]
    data: npt.NDArray[np.float64]
    rules: list[Op]
    leaves: list[Value]

    def forward(self) -> int:
        """Compute ``data`` again from its leaves.

        Returns the position of the first instruction with finite operands and a value that is not
        finite, or -1.
        """
        return _native.tape_forward(
            self.codes, self.operands, self.constants, self.data, self.rules
        )

    def backward(self, gradient: float = 1.0) -> npt.NDArray[np.float64]:
        """The derivative of the last instruction with respect to every one."""
        grads = np.zeros(len(self.codes))
        grads[-1] = gradient
        _native.tape_backward(
            self.codes, self.operands, self.constants, self.data, self.rules, grads
        )
        return grads

    @property
    def leaf_positions(self) -> npt.NDArray[np.intp]:
        """Where the leaves are, in the order of ``leaves``."""
        return np.flatnonzero(self.codes == _native.LEAF)

    def __str__(self) -> str:
        names = [*_native.KIND_NAMES, *(op.name for op in self.rules)]
        lines = [f"{len(self.codes)} instructions, {len(self.leaves)} leaves"]
        for i, (code, operands) in enumerate(zip(self.codes, self.operands, strict=True)):
            numbers = [f"%{p}" for p in operands if p >= 0]
            if code != _native.LEAF:
                numbers += [f"{c:g}" for c in self.constants[i][: 2 if code >= len(_native.KIND_NAMES) else 1]]
            lines.append(f"%{i} = {names[code]} {' '.join(numbers)}".rstrip())
        return "\n".join(lines)


def linearize(root: Value) -> Linear:
    """The graph of ``root`` as flat arrays."""
    codes, operands, constants, data, rules, leaves = _native.linearize(root)
    return Linear(
        np.frombuffer(codes, np.int32),
        np.frombuffer(operands, np.int32).reshape(-1, 2),
        np.frombuffer(constants, np.float64).reshape(-1, 2),
        np.frombuffer(data, np.float64),
        rules,
        leaves,
    )
