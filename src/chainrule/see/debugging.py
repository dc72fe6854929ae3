"""Where a NaN or an infinity came from: ``find_nonfinite(v)``, and ``debug()`` for source lines.

A graph comes in; out comes the one node that *made* the first non-finite number out of finite ones.
Every other non-finite node merely carries it on. The same question is asked of the gradients: going
back from the output, which node was first to propagate a number that is not finite?
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from chainrule.core.backend import Value, _mode, topological_order
from chainrule.see.explanation import Explanation, Node, explain
from chainrule.see.names import NUMBERS, attribute, counted, listing, quoted, short


@contextmanager
def debug() -> Iterator[None]:
    """Inside this block every operation remembers the source line that made it.

    Errors about undefined values and ``find_nonfinite`` then name that line.

    >>> from chainrule import Value, debug
    >>> with debug():
    ...     y = Value(2.0) * 3
    >>> y._location
    '<doctest ...>:2'
    """
    with _mode("debug", True):
        yield


@dataclass(frozen=True, repr=False)
class NonfiniteReport:
    """The origin of a NaN or an infinity: see ``find_nonfinite``. ``str`` tells the whole story."""

    kind: Literal["data", "gradient"]
    value: float  # the number that is not finite
    maker: Value  # the node that made it out of finite numbers
    location: str | None  # the maker's source line, if debug() was on
    operands: tuple[Value, ...]  # of the maker
    carriers: tuple[Value, ...]  # nodes that only pass it on
    story: str

    def __str__(self) -> str:
        return self.story

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from chainrule.see.tables import preformatted_html

        return preformatted_html(self.story)


def find_nonfinite(v: Value) -> NonfiniteReport | None:
    """Which operation in the graph of ``v`` made the first NaN or infinity; None if all is finite.

    The numbers are searched first, then the gradients of a backward pass (computed in scratch, so
    ``backward()`` need not have been called), then the gradients the nodes hold.

    >>> from chainrule import Value, find_nonfinite, nonfinite
    >>> p = Value(0.0, label="p")
    >>> with nonfinite("allow"):
    ...     loss = p.log() * -1 + 3
    >>> print(find_nonfinite(loss))
    -inf was made by v1 = log(p) = log(0)
      its operands are finite: p = 0.0 (an input)
      2 nodes only carry it on: v2, loss
      for source lines, build the graph inside: with chainrule.debug()
    >>> find_nonfinite(p) is None
    True
    """
    if not isinstance(v, Value):
        raise TypeError(f"find_nonfinite takes a Value, not a {type(v).__name__}")
    order = topological_order(v)
    if not all(math.isfinite(node.data) for node in order):
        return _data_report(explain(v))
    passed = explain(v)
    if not all(math.isfinite(node.grad) for node in passed.nodes):
        return _gradient_report(passed)
    if not all(math.isfinite(node.grad) for node in order):
        return _held_report(passed, order)
    return None


def _data_report(graph: Explanation) -> NonfiniteReport:
    nodes = graph.nodes
    bad = [node for node in nodes if not math.isfinite(node.data)]
    makers = [n for n in bad if all(math.isfinite(nodes[i].data) for i in n.children)]
    maker = makers[0]
    others = {n.index for n in makers}
    carriers = [n for n in bad if n.index not in others]
    if maker.kind == "operation":
        lines = [f"{maker.data} was made by {_made(graph, maker)}", _operands(graph, maker)]
    else:
        lines = [
            f"{maker.data} was there from the start: {maker.kind} {maker.name} is {maker.data}"
        ]
    if len(makers) > 1:
        lines.append(
            f"{counted(len(makers) - 1, 'other node')} also made one: {_names(makers[1:])}"
        )
    lines += _carried(carriers)
    return _report("data", maker.data, graph, maker, carriers, lines)


def _gradient_report(graph: Explanation) -> NonfiniteReport:
    """The first contribution, going back, that turned a finite gradient into one that is not."""
    nodes = graph.nodes
    maker, operand = next(
        (node, i)
        for node in reversed(nodes)
        if math.isfinite(node.grad)
        for i, (_, total) in enumerate(node.shares)
        if not math.isfinite(total)
    )
    amount, total = maker.shares[operand]
    child, slope = nodes[maker.children[operand]], maker.local_grads[operand]
    contribution = graph.backward_step(maker).contributions[operand]
    derivative = f"∂{quoted(maker.name)}/∂{quoted(child.name)}"
    formula = f" = {contribution.formula}" if contribution.formula else ""
    if not math.isfinite(slope):
        reason = f"the local gradient {derivative}{formula} is {slope}"
    elif not math.isfinite(amount):
        reason = f"{short(slope)} ({derivative}{formula}) × {short(maker.grad)} overflows"
    else:
        reason = f"adding {short(amount)} to what {attribute(child.name)} had overflows"
    lines = [
        f"the gradient {total} was made going back through {_made(graph, maker)}",
        f"{attribute(maker.name)} = {short(maker.grad)} is finite, but {reason}",
        f"so {attribute(child.name)} became {total}",
    ]
    carriers = [n for n in nodes if not math.isfinite(n.grad) and n is not child]
    lines += _carried(carriers)
    return _report("gradient", total, graph, maker, carriers, lines)


def _held_report(graph: Explanation, order: list[Value]) -> NonfiniteReport:
    """Gradients that are not finite although this graph's own pass is."""
    bad = [node for node in graph.nodes if not math.isfinite(order[node.index].grad)]
    first = bad[-1]
    held = order[first.index].grad
    lines = [
        f"{attribute(first.name)} is {held}, but not because of this graph",
        f"its own backward pass gives {short(first.grad)}: set the gradients to zero before it",
    ]
    return _report("gradient", held, graph, first, bad[:-1], lines)


def _report(
    kind: Literal["data", "gradient"],
    value: float,
    graph: Explanation,
    maker: Node,
    carriers: list[Node],
    lines: list[str],
) -> NonfiniteReport:
    if maker.location is None and maker.kind == "operation":
        lines.append("for source lines, build the graph inside: with chainrule.debug()")
    node = graph.values[maker.index]
    return NonfiniteReport(
        kind=kind,
        value=value,
        maker=node,
        location=maker.location,
        operands=node.children,
        carriers=tuple(graph.values[n.index] for n in carriers),
        story="\n  ".join(lines),
    )


def _made(graph: Explanation, node: Node) -> str:
    """``y = log(p) = log(0) at model.py:41``."""
    step = graph.forward_step(node)
    line = f" at {node.location}" if node.location else ""
    return f"{node.name} = {step.formula} = {step.numbers}{line}"


def _operands(graph: Explanation, maker: Node) -> str:
    texts = []
    for i in dict.fromkeys(maker.children):
        child = graph.nodes[i]
        if child.kind in NUMBERS:
            continue
        line = f" at {child.location}" if child.location else ""
        made = f"from {graph.forward_step(child).formula}{line}" if child.children else "an input"
        texts.append(f"{child.name} = {short(child.data)} ({made})")
    return f"its operands are finite: {', '.join(texts) or 'all constants'}"


def _carried(carriers: list[Node]) -> list[str]:
    if not carriers:
        return []
    verb = "carries" if len(carriers) == 1 else "carry"
    return [f"{counted(len(carriers), 'node')} only {verb} it on: {_names(carriers)}"]


def _names(nodes: list[Node]) -> str:
    return listing([node.name for node in nodes[:1000]], str)[1:-1]
