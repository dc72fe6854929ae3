"""A node that stands for a graph: one operation, which can be taken for the many that it is.

In: what makes such a graph. Out: a ``Condensed``, the rule of the node. A backward pass takes the
node as one operation with numbers for its derivatives; who wants these as Values, to differentiate
them again, goes through the graph in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from chainrule.core.ops import Op

if TYPE_CHECKING:
    from chainrule.core.backend import Value


class Parts(NamedTuple):
    """How a node was made: the operation, its static parameters and its operands."""

    rule: Op | str | None
    parameters: tuple[float, ...]
    children: tuple[Value, ...]

    @classmethod
    def of(cls, node: Value) -> Parts:
        """As the node says."""
        return cls(node._rule, node._parameters, node.children)


class Condensed(str):
    """The rule of a node that stands for a graph over its children; as text, its name.

    ``make`` gives the last node of that graph for the node's children. Its interior nodes are made
    once, when they are asked for first: what differentiates the node again meets the same ones. A
    deep copy has other children, and so makes its own; a pickled one cannot make any.
    """

    __slots__ = ("_make", "_parts")

    _make: Callable[[tuple[Value, ...]], Value] | None
    _parts: Parts | None

    def __new__(
        cls, name: str, make: Callable[[tuple[Value, ...]], Value] | None = None
    ) -> Condensed:
        """The rule of one node."""
        self = super().__new__(cls, name)
        self._make, self._parts = make, None
        return self

    def parts(self, node: Value) -> Parts:
        """How the node was made, as if the graph had been kept."""
        if self._parts is None:
            if self._make is None:
                raise TypeError(
                    f"{self!r} is a call of a compiled function, of which a pickled copy has "
                    "the derivatives as numbers only, so they cannot be differentiated again: call "
                    "the function again"
                )
            last = self._make(node.children)
            own = any(last is child for child in node.children)
            self._parts = Parts(_SAME, (), (last,)) if own else Parts.of(last)
        return self._parts

    def __deepcopy__(self, memo: Any) -> Condensed:
        """For a node with other children."""
        return Condensed(self, self._make)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """The name alone."""
        return Condensed, (str(self),)


#: what a graph is that has no operation: a function returned one of its operands
_SAME = Op("same", "same", "x", lambda x: x, (lambda y, x: 1.0,))
