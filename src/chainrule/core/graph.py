"""Facts about the graph below a Value: which nodes depend on which, how many there are, how deep.

Takes nodes and gives plain Python data; nothing is changed. Transforms use it to walk only the part
of a graph that matters, summaries and drawings use it to say how large a graph is. No recursion
anywhere: a chain of a million nodes is an ordinary graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from chainrule.core.backend import Value, topological_order


@dataclass(frozen=True)
class Summary:
    """How large a graph is; ``str`` says it in one line."""

    nodes: int
    inputs: int
    depth: int
    operations: dict[str, int]

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {op}" for op, count in self.operations.items())
        words = f"{self.nodes} nodes, {self.inputs} of them inputs, {self.depth} deep"
        return f"{words}: {counts}" if counts else words


def summarize(value: Value) -> Summary:
    """The size of the graph below ``value``, itself included.

    >>> from chainrule import Value
    >>> from chainrule.core.graph import summarize
    >>> a, b = Value(2.0), Value(3.0)
    >>> print(summarize((a * b + a).relu()))
    5 nodes, 2 of them inputs, 3 deep: 1 *, 1 +, 1 relu
    """
    order = topological_order(value)
    inputs = sum(not node.children for node in order)
    return Summary(len(order), inputs, depth(value), count_operations(value))


def count_nodes(value: Value) -> int:
    """How many nodes the graph has; a shared one counts once."""
    return len(topological_order(value))


def count_operations(value: Value) -> dict[str, int]:
    """How often each operation occurs, the most frequent first.

    >>> from chainrule import Value
    >>> from chainrule.core.graph import count_operations
    >>> x = Value(2.0)
    >>> count_operations(x * x * x + 1)
    {'*': 2, '+': 1}
    """
    return dict(
        Counter(node.op for node in topological_order(value) if node.children).most_common()
    )


def depth(value: Value) -> int:
    """The number of operations on the longest path down to an input; 0 for an input.

    >>> from chainrule import Value
    >>> from chainrule.core.graph import depth
    >>> a, b = Value(2.0), Value(3.0)
    >>> depth(a), depth(a * b + a)
    (0, 2)
    """
    depths: dict[int, int] = {}
    for node in topological_order(value):
        depths[id(node)] = max((depths[id(child)] + 1 for child in node.children), default=0)
    return depths[id(value)]


def depending_on(value: Value, xs: Iterable[Value]) -> list[Value]:
    """The nodes of ``value``'s graph that some of ``xs`` lead to, those included; inputs first.

    >>> from chainrule import Value
    >>> from chainrule.core.graph import depending_on
    >>> a, b = Value(2.0, label="a"), Value(3.0, label="b")
    >>> [node.label or node.op for node in depending_on(a * a + b, [a])]
    ['a', '*', '+']
    """
    sources = list(xs)  # kept alive, so that no id is given to another object
    depends = set(map(id, sources))
    found = []
    for node in topological_order(value):
        if id(node) in depends or not depends.isdisjoint(map(id, node.children)):
            depends.add(id(node))
            found.append(node)
    return found
