"""``explain(v)``: the backward pass of one graph, step by step.

In goes a Value, out comes an ``Explanation``: its steps as plain data (``model``), as text and as
HTML (``text``, ``html``), a graph too big for tables in a few numbers (``summary``), and one
gradient as a sum over paths (``paths``).
"""

from chainrule.see.explanation.model import (
    BackwardStep,
    Contribution,
    Explanation,
    ForwardStep,
    Node,
    SortStep,
    explain,
    pops,
)

__all__ = [
    "explain",
    "Explanation",
    "Node",
    "ForwardStep",
    "SortStep",
    "BackwardStep",
    "Contribution",
    "pops",
]
