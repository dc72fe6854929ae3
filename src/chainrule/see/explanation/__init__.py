"""``explain(v)``: the backward pass of one graph, step by step.

In goes a Value, out comes an ``Explanation``: its steps as plain data (``model``), as tables
(``text``), a graph too big for tables in a few numbers (``summary``), one gradient as a sum over
paths (``paths``), and what it means, at corners too (``corners``).
"""

from chainrule.see.explanation.model import (
    BackwardStep,
    Contribution,
    Explanation,
    ForwardStep,
    Node,
    SortStep,
    explain,
    explain_with,
    pops,
)

__all__ = [
    "explain",
    "explain_with",
    "Explanation",
    "Node",
    "ForwardStep",
    "SortStep",
    "BackwardStep",
    "Contribution",
    "pops",
]
