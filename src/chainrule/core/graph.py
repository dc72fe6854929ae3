"""Which nodes of a graph depend on which inputs, so that transforms walk only those."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from chainrule.core.backend import Value, topological_order
from chainrule.core.condensed import Condensed, Parts


def depending_on(value: Value, xs: Iterable[Value]) -> list[Value]:
    """The nodes of ``value``'s graph that some of ``xs`` lead to, those included; inputs first.

    >>> from chainrule import Value
    >>> from chainrule.core.graph import depending_on
    >>> a, b = Value(2.0, label="a"), Value(3.0, label="b")
    >>> [node.label or node.op for node in depending_on(a * a + b, [a])]
    ['a', '*', '+']
    """
    return _those(topological_order(value), list(xs), lambda node: node.children)


def steps_on(value: Value, xs: Iterable[Value]) -> list[tuple[Value, Parts]]:
    """The same, and how each node was made, for who differentiates the graph again.

    A node that stands for a graph is the last node of that, whose other nodes come before it.
    """
    sources = list(xs)
    found = depending_on(value, sources)
    on_path = set(map(id, found))
    made = {
        id(node): node._rule.parts(node)
        for node in found
        if isinstance(node._rule, Condensed) and not on_path.isdisjoint(map(id, node.children))
    }
    if made:

        def operands(node: Value) -> tuple[Value, ...]:
            return made[id(node)].children if id(node) in made else node.children

        found = _those(_order(value, operands), sources, operands)
    return [(node, made.get(id(node)) or Parts.of(node)) for node in found]


def _those(
    order: Iterable[Value], xs: list[Value], operands: Callable[[Value], tuple[Value, ...]]
) -> list[Value]:
    """Those of some nodes, each after its operands, that some of ``xs`` lead to."""
    depends = set(map(id, xs))  # ``xs`` are kept alive, so that no id is given to another object
    found = []
    for node in order:
        if id(node) in depends or not depends.isdisjoint(map(id, operands(node))):
            depends.add(id(node))
            found.append(node)
    return found


def _order(value: Value, operands: Callable[[Value], tuple[Value, ...]]) -> list[Value]:
    """``topological_order`` of a graph with these operands."""
    order: list[Value] = []
    visited = {id(value)}
    stack = [(value, iter(operands(value)))]
    while stack:
        node, rest = stack[-1]
        for child in rest:
            if id(child) not in visited:
                visited.add(id(child))
                stack.append((child, iter(operands(child))))
                break
        else:
            order.append(node)
            stack.pop()
    return order
