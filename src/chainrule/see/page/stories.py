"""The broken engines' stories for the page: those of ``lessons``, and four about the loop around.

What each engine does is a switch in ``script/broken.js``; here is what is said about it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from chainrule.see.lessons.mistakes import MISTAKES

#: name: (title, why, code)
_MORE = {
    "no_seed": (
        "No seed gradient",
        "Every gradient is a multiple of the one it came from. When the result's own gradient is "
        "left at 0 instead of 1, all of them stay 0 and nothing learns.",
        """def no_seed(root):
    # wrong: root.grad = 1.0 is missing here
    for v in reversed(sort(root)):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad""",
    ),
    "not_reversed": (
        "The order not reversed",
        "The sorted list begins with the inputs. Walked in that order, each node passes its "
        "gradient on before it has arrived, so nothing gets below the first level.",
        """def not_reversed(root):
    root.grad = 1.0
    # wrong: this should be reversed(sort(root))
    for v in sort(root):
        for child, local_grad in edges(v):
            child.grad += local_grad * v.grad""",
    ),
    "wrong_sign": (
        "The update's sign is wrong",
        "The gradient points to where the result grows. An update that adds it climbs; to go down, "
        "subtract it. The gradients themselves are right, so no check of them finds this.",
        """def update(inputs, rate=0.01):
    for p in inputs:
        # wrong: the gradient points uphill, so this should be -=
        p.data += rate * p.grad""",
    ),
    "zero_times_inf": (
        "Zero times infinity",
        "0 × inf is nan. A branch that was not taken has the gradient 0, and must pass nothing on, "
        "even where a local gradient is infinite, such as that of a square root at 0.",
        """def zero_times_inf(root):
    root.grad = 1.0
    for v in reversed(sort(root)):
        for child, local_grad in edges(v):
            # wrong: where one factor is 0, nothing should be added at all
            child.grad += local_grad * v.grad""",
    ),
}


@cache
def stories() -> list[dict[str, Any]]:
    """Each mistake's name, title, reason and code, and how often a right engine would add."""
    known = [
        {"name": m.name, "title": m.title, "why": m.why, "code": m.code, "passes": m.passes}
        for m in MISTAKES.values()
        if m.name in SWITCHES
    ]
    more = [
        {"name": name, "title": title, "why": why, "code": code, "passes": 1}
        for name, (title, why, code) in _MORE.items()
        if name not in MISTAKES
    ]
    return known + more


#: the switches of ``script/broken.js``
SWITCHES = frozenset(
    "overwrite no_visited recursion breadth_first while_sorting not_reset second_backward"
    " stale_buffers set_of_children no_seed not_reversed wrong_sign zero_times_inf".split()
)
