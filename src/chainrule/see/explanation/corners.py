"""What happens at a corner: the slopes to the left and to the right of a point.

``abs`` at 0, ``relu`` at 0 and ``maximum(x, x)`` have no derivative: what the op table says is a
convention. A node and its operands come in, or a whole graph and one of its nodes; out come the
slopes on both sides, found by propagating a small step in each direction through the graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chainrule.core.ops import Op
from chainrule.see import words
from chainrule.see.names import short

if TYPE_CHECKING:
    from chainrule.see.explanation.model import Node

_STEP = 2.0**-26  # relative to the operands
_STEP_FROM_ZERO = 2.0**-500  # where every operand is 0: so small that products of steps vanish


@dataclass(frozen=True)
class Sides:
    """The slopes of a result on both sides of an operand; nan where that is not known."""

    left: float
    right: float

    @property
    def agree(self) -> bool:
        """Whether they are one slope, up to rounding."""
        return _close(self.left, self.right)

    def fit(self, slope: float) -> bool:
        """Whether ``slope`` is the slope on both sides."""
        return _close(self.left, slope) and _close(self.right, slope)

    def __str__(self) -> str:
        return f"slope {short(self.left)} to the left, {short(self.right)} to the right"


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-300)


def is_tied(node: Node, nodes: Sequence[Node]) -> bool:
    """Whether the derivative of an operation was chosen by comparing two equal numbers."""
    if not node.children:
        return False
    xs = [nodes[i].data for i in node.children]
    return words.at_a_tie(node.rule, node.data, xs, node.parameters)


def operand_sides(node: Node, nodes: Sequence[Node], operand: int) -> Sides | None:
    """The slopes of one operation on both sides of one operand; None where it has no corner."""
    if not is_tied(node, nodes):
        return None
    direction = [float(i == operand) for i in range(len(node.children))]
    sides = _sides(node, nodes, direction)
    return None if sides.fit(node.local_grads[operand]) else sides


def input_sides(nodes: Sequence[Node], target: int) -> Sides | None:
    """The slopes of the last node on both sides of ``nodes[target]``; None where that is plain.

    Plain: on the way there is neither a corner nor a 0 that stops an infinite slope.
    """
    rates: list[Sides | None] = [None] * len(nodes)  # None: does not depend on the target
    rates[target] = Sides(1.0, 1.0)
    plain = True
    for node in nodes[target + 1 :]:
        children = [rates[i] for i in node.children]
        if not any(children):
            continue
        left, right = ([getattr(c, side) if c else 0.0 for c in children] for side in _SIDES)
        if is_tied(node, nodes):
            plain = False
            rates[node.index] = Sides(
                _sides(node, nodes, left).left, _sides(node, nodes, right).right
            )
        else:
            slopes = node.local_grads
            endless = [c for g, c in zip(slopes, children, strict=True) if math.isinf(g)]
            plain = plain and not any(c and 0.0 in (c.left, c.right) for c in endless)
            rates[node.index] = Sides(_dot(slopes, left), _dot(slopes, right))
    return None if plain else rates[-1]


_SIDES = ("left", "right")


def _dot(slopes: Sequence[float], rates: Sequence[float]) -> float:
    """The rate of a sum of changes: 0 × inf is not known, a rate of exactly 0 adds nothing."""
    pairs = zip(slopes, rates, strict=True)
    return sum((g * r for g, r in pairs if r or not math.isfinite(g)), 0.0)


def _sides(node: Node, nodes: Sequence[Node], direction: Sequence[float]) -> Sides:
    """The rates of a tied operation as its operands move along a direction, and against it."""
    if not any(direction):
        return Sides(0.0, 0.0)
    return Sides(
        0.0 - _one_side(node, nodes, [-d for d in direction]), _one_side(node, nodes, direction)
    )


def _one_side(node: Node, nodes: Sequence[Node], direction: Sequence[float]) -> float:
    """The change of an operation per step along a direction, from just beside the point."""
    rule = node.rule
    assert isinstance(rule, Op), "only rows of the table compare"
    xs = [nodes[i].data for i in node.children]
    largest = max(map(abs, xs))
    if not all(map(math.isfinite, [*xs, *direction])):
        return math.nan
    step = (_STEP * largest or _STEP_FROM_ZERO) / max(map(abs, direction))
    beside = [x + step * d for x, d in zip(xs, direction, strict=True)]
    try:
        y = float(rule.forward(*beside, *node.parameters))
        slopes = [float(partial(y, *beside, *node.parameters)) for partial in rule.partials]
    except (ValueError, ArithmeticError):
        return math.nan
    rate = _dot(slopes, direction)
    quotient = (y - node.data) / step
    if abs(quotient - rate) > 1e-3 * max(abs(rate), abs(quotient)):
        return quotient / abs(quotient) * math.inf if quotient else math.nan  # a jump
    return rate


def meaning(nodes: Sequence[Node], index: int) -> str:
    """What a gradient says: ``if a grows by a little h, f shrinks by 3.0·h``.

    It says what the function does. Where ``backward()`` follows a convention, that is said too.
    """
    node, out = nodes[index], nodes[-1].name
    if node is nodes[-1]:
        return "the seed: where the pass starts"
    sides = input_sides(nodes, index)
    if sides is not None and not sides.fit(node.grad):
        convention = f"{short(node.grad)} is a convention"
        if math.isnan(sides.left) and math.isnan(sides.right):
            return f"{convention}: on the way an infinite slope meets a 0, which stops it"
        if sides.agree:
            return f"{convention} at a corner on the way; {out} itself has {sides} of {node.name}"
        return f"{out} has a corner here: {sides} of {node.name}; {convention}"
    if node.grad == 0:
        return f"to first order, a little change of {node.name} does not change {out}"
    if not math.isfinite(node.grad):
        return f"{out} has no finite slope here"
    verb = "grows" if node.grad > 0 else "shrinks"
    return f"if {node.name} grows by a little h, {out} {verb} by {short(abs(node.grad))}·h"
