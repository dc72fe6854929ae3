"""Which nodes of a graph depend on which inputs, so that transforms walk only those."""

from __future__ import annotations

from collections.abc import Iterable

from chainrule.core.backend import Value, topological_order


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
