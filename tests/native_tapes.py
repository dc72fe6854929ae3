"""The native tape of a graph of Values, for tests: leaves as inputs, then each node after its operands."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from chainrule import _native
from chainrule._native import Value


@dataclass(frozen=True, eq=False)
class Linear:
    """A graph as the arrays of ``_native.flatten``; ``parts`` are the first five arguments of a Tape."""

    leaves: list[Value]
    parts: tuple[Any, ...]
    rules: list[Any]

    def __len__(self) -> int:
        return len(self.parts[0])

    @cached_property
    def tape(self) -> _native.Tape:
        return _native.Tape(
            len(self.leaves), *self.parts, self.rules, np.zeros(0, np.int32), np.zeros(0)
        )

    def run(self, numbers: Any = None) -> int:
        """Compute everything; the position of the first undefined instruction, or -1."""
        if numbers is None:
            numbers = np.array([leaf.data for leaf in self.leaves])
        return self.tape.run(numbers)[1]

    @property
    def data(self) -> list[float]:
        """Every number of the last run."""
        return [self.tape.number(i) for i in range(len(self))]

    def sweep(self, gradient: float = 1.0) -> list[float]:
        """The derivative of the last instruction with respect to every leaf."""
        grads = np.zeros(len(self.leaves))
        self.tape.sweep(len(self) - 1, gradient, grads)
        return grads.tolist()


def order_of(root: Value) -> list[Value]:
    """Each node after its operands, for small graphs.

    ``topological_order`` would turn number operands into leaves. ``flatten`` does not, and names the first
    operand that is missing.
    """
    order: list[Value] = []
    stack = [root]
    while stack:
        unknown = _native.flatten(order, [stack[-1]])[-1]
        if unknown is None:
            order.append(stack.pop())
        elif unknown is stack[-1]:
            raise TypeError(f"the custom operation {unknown.op!r} cannot be put on a tape")
        else:
            stack.append(unknown)
    return order


def linearize(root: Value, order: list[Value] | None = None) -> Linear:
    """The graph of ``root`` as arrays. Long graphs pass their topological order."""
    nodes = order_of(root) if order is None else order
    leaves = [v for v in nodes if v._rule == ""]
    made = [v for v in nodes if v._rule != ""]
    codes, operands, constants, number, rules, *_, unknown = _native.flatten(leaves, made)
    assert unknown is None
    parts = (
        np.frombuffer(codes, np.int32),
        np.frombuffer(operands, np.int32).reshape(-1, 3),
        np.frombuffer(constants, np.float64).reshape(-1, 2),
        np.frombuffer(number, np.uint8),
        np.zeros(len(nodes), np.uint8),
    )
    return Linear(leaves, parts, rules)
