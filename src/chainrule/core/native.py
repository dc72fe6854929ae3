"""The native engine's Python side: what finishes the C class and what reads its arrays.

``_native`` holds what is hot. Rows of the op table without a case in C, printing, copying and the
constructor's dialects are the same Python code as the reference engine's, put on the class here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule import _native
from chainrule._native import Value, dot, linear, modes, topological_order, vsum
from chainrule.core import errors, ops
from chainrule.core.ops import Op
from chainrule.core.protocols import SIGNATURE, Protocols, add_method, as_values, real_parameters
from chainrule.core.value import Value as Reference

__all__ = ["Linear", "Value", "dot", "linear", "linearize", "modes", "topological_order", "vsum"]


def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Value:
    """The op table's way in: any operation over Values and numbers."""
    values = as_values(Value, op, operands, Value)
    static = real_parameters(op, parameters)
    xs = [v._number for v in values]
    y = op.forward(*xs, *static)
    if not (isfinite(y) or modes.allow_nonfinite):
        errors.check(op, y, values, static)
    node = Value.__new__(Value)
    recorder = modes.recorder
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


@dataclass(frozen=True, eq=False)
class Linear:
    """A graph as flat arrays, leaves first, then in topological order: no object per node.

    ``codes[i]`` is 0 for a leaf, else 2 + the position in ``rules``; ``operands[i]`` the positions
    of its operands (-1: none); ``constants[i]`` its numbers: a plain number in the place of the
    second operand (``number[i]``), an exponent, parameters. ``data[i]`` its value.
    """

    codes: npt.NDArray[np.int32]
    operands: npt.NDArray[np.int32]
    constants: npt.NDArray[np.float64]
    number: npt.NDArray[np.bool_]
    rules: list[Op]
    leaves: list[Value]

    @cached_property
    def tape(self) -> _native.Tape:
        """The instructions, ready to run."""
        flags, none = np.zeros(len(self.codes), np.uint8), np.zeros(0, np.int32)
        parts = (self.codes, self.operands, self.constants, self.number.view(np.uint8), flags)
        return _native.Tape(len(self.leaves), *parts, self.rules, none, np.zeros(0))

    def run(self, numbers: npt.NDArray[np.float64] | None = None) -> int:
        """Compute everything from the leaves' numbers (their present ones unless given).

        Returns the position of the first instruction that is undefined, or -1.
        """
        if numbers is None:
            numbers = np.array([leaf.data for leaf in self.leaves])
        return self.tape.run(numbers)[1]

    @property
    def data(self) -> npt.NDArray[np.float64]:
        """Every number of the last run."""
        return np.frombuffer(self.tape.numbers(), np.float64)

    def sweep(self, gradient: float = 1.0) -> npt.NDArray[np.float64]:
        """The derivative of the last instruction with respect to every leaf."""
        grads = np.zeros(len(self.leaves))
        self.tape.sweep(len(self.codes) - 1, gradient, grads)
        return grads


def linearize(root: Value) -> Linear:
    """The graph of ``root`` as flat arrays."""
    codes, operands, constants, number, rules, leaves, unknown = _native.linearize(root)
    if unknown is not None:
        raise TypeError(
            f"the custom operation {unknown.op!r} cannot be put on a tape: it has a value and "
            "local gradients, but no rule to compute them again"
        )
    return Linear(
        np.frombuffer(codes, np.int32),
        np.frombuffer(operands, np.int32).reshape(-1, 3),
        np.frombuffer(constants, np.float64).reshape(-1, 2),
        np.frombuffer(number, np.bool_),
        rules,
        leaves,
    )
