"""What the page is given: an ``Explanation`` in, plain data for JSON out.

The page computes every number itself, by rules generated from the op table. What it cannot compute
to the last bit, because JavaScript leaves it open (``exp``, ``tanh``, …) or does not know it (an
operation of your own), comes along as the engine computed it; so the page opens with the engine's
numbers, and computes others only where an input was moved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from chainrule.core.ops import Op
from chainrule.see import words
from chainrule.see.drawing.layout import Ranks
from chainrule.see.explanation import Explanation, Node
from chainrule.see.names import short
from chainrule.see.page.javascript import WrittenRow, write_rules


def graph_data(explanation: Explanation) -> tuple[str, dict[str, Any]]:
    """The rules that the graph needs, as JavaScript; and its nodes, inputs first.

    Of each node: what made it, of what, its name, and the numbers that the page cannot compute.
    """
    nodes = explanation.nodes
    used = {node.rule: None for node in nodes if isinstance(node.rule, Op)}
    rules, rows = write_rules(list(used))
    forms: dict[tuple[Any, ...], int] = {}
    form: list[int] = []
    children: list[int] = []
    data: list[float | str] = []
    slopes: list[float | str] = []
    stale: list[int] = []
    for node in nodes:
        if node.kind != "operation":
            form.append(-1)
            data.append(number(node.data))
            continue
        row = rows.get(node.rule) if isinstance(node.rule, Op) else None
        name = row.op.name if row else None
        key = (name, node.op, node.parameters, len(node.children))
        form.append(forms.setdefault(key, len(forms)))
        children += [node.index - i for i in node.children]
        is_stale = _is_stale(node, [nodes[i].data for i in node.children])
        if is_stale:
            stale.append(node.index)
        if row is None or is_stale or not row.exact_forward:
            data.append(number(node.data))
        if row is None or is_stale or not row.exact_partials:
            slopes += map(number, node.local_grads)
    return rules, {
        "forms": [
            {
                "row": name,
                "symbol": symbol,
                "parameters": [number(float(p)) for p in parameters],
                "arity": arity,
                "given": _given(rows, name),
            }
            for name, symbol, parameters, arity in forms
        ],
        "form": form,
        "children": children,
        "data": data,
        "slopes": slopes,
        "stale": stale,
        "names": dict(_names(nodes)),
        "kinds": _kinds(nodes),
    }


def _is_stale(node: Node, xs: Sequence[float]) -> bool:
    """Whether somebody has set ``.data`` since: its numbers are not those of its operands."""
    if not isinstance(node.rule, Op):
        return False
    if words.is_stale(node.rule, node.data, xs, node.parameters):
        return True
    now = node.rule.local_grads(node.data, xs, node.parameters)
    pairs = zip(now, node.local_grads, strict=True)
    return any(float(a) != b and (a == a or b == b) for a, b in pairs)


def _given(rows: dict[Op, WrittenRow], name: str | None) -> list[bool]:
    """Whether the data, and the local gradients, of such a node come along."""
    for op, row in rows.items():
        if op.name == name:
            return [not row.exact_forward, not row.exact_partials]
    return [True, True]


def _names(nodes: Sequence[Node]) -> Iterable[tuple[int, str]]:
    """The names that the page cannot tell: leaves are their number, operations v1, v2, …"""
    number = 0
    for node in nodes:
        if node.kind == "operation" and node.name == f"v{number + 1}":
            number += 1
        elif node.children or node.name != short(node.data):
            yield node.index, node.name


def _kinds(nodes: Sequence[Node]) -> dict[str, list[int]]:
    """The leaves that are more than an input, by their kind."""
    kinds = {node.kind for node in nodes} - {"operation", "input"}
    return {
        kind: runs([node.index for node in nodes if node.kind == kind]) for kind in sorted(kinds)
    }


def layout_data(ranks: Ranks) -> dict[str, Any]:
    """Places in a drawing, in units of one box."""
    return {
        "rank": list(ranks.rank),
        "across": [round(x, 2) for x in ranks.across],
        "bends": [
            [source, target, *(round(x, 2) for x in bends)]
            for (source, target), bends in ranks.bends.items()
            if bends
        ],
    }


def runs(numbers: Sequence[int]) -> list[int]:
    """Ascending numbers as starts and lengths: [3, 4, 5, 9] is [3, 3, 9, 1]."""
    found: list[int] = []
    for n in numbers:
        if found and found[-2] + found[-1] == n:
            found[-1] += 1
        else:
            found += [n, 1]
    return found


def number(x: float) -> float | str:
    """A float in JSON, which has neither infinities nor nan; whole ones without their ``.0``."""
    if not math.isfinite(x):
        return repr(x)
    is_minus_zero = x == 0.0 and math.copysign(1.0, x) < 0.0
    return int(x) if x.is_integer() and abs(x) < 1e15 and not is_minus_zero else x
