"""``HandMade``: a Value in one page of plain Python that can be taken apart while it runs.

chainrule's own Value computes its backward pass from the op table, and nobody can change that from
outside. This class is for following the texts by hand: ``out._backward`` may be assigned, as
micrograd's notes do; operations are methods too, as in the TypeScript chapter; and ``backward``
takes buffers to reuse, as in the C# chapter. Nothing else in the package uses it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["HandMade"]


class HandMade:
    """One number that remembers how it was made, in the open.

    >>> from chainrule import lessons
    >>> HandMade = lessons.HandMade
    >>> a, b = HandMade(2.0), HandMade(3.0)
    >>> loss = a.mul(b).add(a)
    >>> loss.backward()
    >>> a.grad, b.grad
    (4.0, 2.0)

    An operation of your own, as micrograd writes it:

    >>> x = HandMade(3.0)
    >>> out = HandMade(x.data**2, (x,), "square")
    >>> def _backward():
    ...     x.grad += 2 * x.data * out.grad
    >>> out._backward = _backward
    >>> out.backward()
    >>> x.grad
    6.0
    """

    def __init__(
        self,
        data: float,
        children: tuple[HandMade, ...] = (),
        local_grads: tuple[float, ...] | str = (),
        label: str = "",
    ) -> None:
        self.data = float(data)
        self.grad = 0.0
        self.label = label
        self._children = children
        self._local_grads = () if isinstance(local_grads, str) else local_grads
        self._op = local_grads if isinstance(local_grads, str) else ""
        #: one node's step; assign your own to replace it
        self._backward: Callable[[], None] = self._step

    def _step(self) -> None:
        for child, local_grad in zip(self._children, self._local_grads, strict=False):
            child.grad += local_grad * self.grad

    def backward(
        self,
        topo: list[HandMade] | None = None,
        visited: set[HandMade] | None = None,
        stack: list[tuple[HandMade, int]] | None = None,
    ) -> None:
        """Sort, then let every node take its step; buffers that are passed are cleared first.

        >>> from chainrule.see.lessons import HandMade
        >>> topo, visited, stack = [], set(), []
        >>> a = HandMade(2.0)
        >>> for _ in range(3):
        ...     a.grad = 0.0
        ...     (a * a).backward(topo, visited, stack)
        >>> a.grad, len(topo)
        (4.0, 2)
        """
        topo = [] if topo is None else topo
        visited = set() if visited is None else visited
        stack = [] if stack is None else stack
        for buffer in (topo, visited, stack):
            buffer.clear()  # what an earlier graph left would have its turn again
        visited.add(self)
        stack.append((self, 0))
        while stack:
            node, index = stack.pop()
            if index == len(node._children):
                topo.append(node)
                continue
            stack.append((node, index + 1))
            child = node._children[index]
            if child not in visited:
                visited.add(child)
                stack.append((child, 0))
        self.grad = 1.0
        for node in reversed(topo):
            node._backward()

    # --- operations: as operators and as methods --------------------------------------------------

    def add(self, other: HandMade | float) -> HandMade:
        """``a + b``."""
        other = _node(other)
        return HandMade(self.data + other.data, (self, other), (1.0, 1.0))

    def mul(self, other: HandMade | float) -> HandMade:
        """``a * b``."""
        other = _node(other)
        return HandMade(self.data * other.data, (self, other), (other.data, self.data))

    def pow(self, exponent: float) -> HandMade:
        """``a ** p`` for a plain number p."""
        slope = exponent * self.data ** (exponent - 1)
        return HandMade(self.data**exponent, (self,), (slope,))

    def neg(self) -> HandMade:
        """``-a``."""
        return self.mul(-1.0)

    def sub(self, other: HandMade | float) -> HandMade:
        """``a - b``."""
        return self.add(_node(other).neg())

    def div(self, other: HandMade | float) -> HandMade:
        """``a / b``."""
        return self.mul(_node(other).pow(-1.0))

    def exp(self) -> HandMade:
        """e to the a."""
        y = math.exp(self.data)
        return HandMade(y, (self,), (y,))

    def log(self) -> HandMade:
        """The natural logarithm."""
        return HandMade(math.log(self.data), (self,), (1.0 / self.data,))

    def tanh(self) -> HandMade:
        """The hyperbolic tangent."""
        t = math.tanh(self.data)
        return HandMade(t, (self,), (1.0 - t * t,))

    def relu(self) -> HandMade:
        """a, or 0 where a is negative."""
        return HandMade(max(self.data, 0.0), (self,), (float(self.data > 0.0),))

    __add__ = __radd__ = add
    __mul__ = __rmul__ = mul
    __pow__ = pow
    __neg__ = neg
    __sub__ = sub
    __truediv__ = div

    def __rsub__(self, other: float) -> HandMade:
        return _node(other).sub(self)

    def __rtruediv__(self, other: float) -> HandMade:
        return _node(other).div(self)

    def __repr__(self) -> str:
        return f"HandMade(data={self.data}, grad={self.grad})"


def _node(x: HandMade | float) -> HandMade:
    return x if isinstance(x, HandMade) else HandMade(x)
