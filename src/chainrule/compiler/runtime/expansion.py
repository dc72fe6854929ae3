"""The graph that a compiled call stands for, for who differentiates its result again.

In: a run of a variant. Out: what makes eager's graph of that call, for ``core.condensed``: the
instructions of the recording, over the Values that the call was passed or the function reached.
The numbers are those that went into the call, so that nothing that changes later makes a
difference: eager's graph would have been made then.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Ints, Recording
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.variants import Run, Variant
from chainrule.core import ops
from chainrule.core.backend import Value
from chainrule.core.ops import Op
from chainrule.trees import Floats


class Stale(RuntimeError):
    """A graph was asked for that can no longer be made."""


@dataclass(frozen=True, eq=False)
class Expansion:
    """A call that was computed by a recording."""

    recording: Recording
    again: Callable[[], Recording] | None  # makes one with instructions, if these were not kept
    inputs: Floats  # all that went into it
    selected: Ints  # the operands that its integers decided
    root: int  # the instruction that was returned
    places: list[int]  # where among the inputs the Values are

    @classmethod
    def of(
        cls, dispatch: Dispatch, run: Run, call: Call, root: int, places: list[int]
    ) -> Expansion:
        """That of a call that has just run."""
        variant = run.variant
        assert variant is not None
        decided = variant.decide(call.ints)
        assert decided is not None
        again = None
        if variant.recording.shed:
            like = replace(call, copied=True)
            again = functools.partial(_recorded_again, dispatch, variant, like)
        return cls(variant.recording, again, variant.inputs.copy(), decided[0], root, places)

    def __call__(self, children: tuple[Value, ...]) -> Value:
        """The last node of the graph over these Values, in their places among the inputs."""
        graph = _Graph(self.inputs.tolist())
        for place, child in zip(self.places, children, strict=True):
            graph.nodes[place] = child
        recording = self.recording if self.again is None else self.again()
        operands = recording.operands.copy()
        operands.ravel()[recording.selection.places] = self.selected
        rows = zip(
            recording.codes.tolist(),
            operands.tolist(),
            recording.constants.tolist(),
            recording.number.tolist(),
            strict=True,
        )
        with np.errstate(all="ignore"):
            for code, places, constants, is_number in itertools.islice(
                rows, recording.inputs, self.root + 1
            ):
                if code == CONSTANT:
                    graph.add(constants[0])
                else:
                    rule = recording.rules[code - FIRST_RULE]
                    given = constants[: len(rule.parameters) + is_number]
                    graph.apply(rule, [p for p in places if p >= 0], given)
        return graph.operand(self.root)


class _Graph:
    """What instructions give: a number each, and a node where a gradient flows through it."""

    def __init__(self, inputs: list[float]) -> None:
        self.numbers = inputs
        self.nodes: list[Value | None] = [None] * len(inputs)

    def add(self, number: float, node: Value | None = None) -> None:
        """What the next instruction gave."""
        self.numbers.append(number)
        self.nodes.append(node)

    def operand(self, p: int) -> Value:
        """An earlier result, as a Value."""
        node = self.nodes[p]
        return Value(self.numbers[p]) if node is None else node

    def apply(self, rule: Op, places: list[int], given: Sequence[float]) -> None:
        """Add the result of an operation, as eager mode makes it."""
        xs = [*[self.numbers[p] for p in places], *given]
        y = float(rule.forward(*xs))
        chosen = _CHOICES.get(rule)
        if chosen is not None:  # Python's own, which makes no node
            k = chosen(xs)
            self.add(y, self.nodes[places[k]] if k < len(places) else None)
            return
        if rule is ops.integer_power:
            rule, places, xs = ops.pow, places[1:], [xs[1], xs[0]]
            given = xs[1:]
        flows = [k for k in rule.differentiable if k < len(places)]
        if not any(self.nodes[places[k]] is not None for k in flows):
            self.add(y)
            return
        parameters = tuple(given[len(given) - len(rule.parameters) :])
        operands = [self.operand(p) for p in places]
        operands += [Value(x) for x in given[: len(given) - len(parameters)]]
        slopes = rule.local_grads(y, xs[: rule.arity], parameters)
        node = Value.__new__(Value)
        node._build(y, 0.0, "", rule, parameters, tuple(operands), tuple(map(float, slopes)))
        self.add(y, node)


#: which operand a choice gave
_CHOICES: dict[Op, Callable[[list[float]], int]] = {
    ops.select: lambda xs: 1 if xs[0] > 0 else 2,
    ops.first_max: lambda xs: int(xs[1] > xs[0]),
    ops.first_min: lambda xs: int(xs[1] < xs[0]),
}


def _recorded_again(dispatch: Dispatch, variant: Variant, call: Call) -> Recording:
    """The recording of a large call, whose instructions were not kept."""
    with dispatch.lock:
        alone, dispatch.busy = not dispatch.busy, True
        try:
            found = variant.recorded(call) if alone else None
        except (Exception, Unrecordable):
            found = None
        finally:
            dispatch.busy = not alone
    if found is None:
        raise Stale(
            f"a call of {dispatch.name} cannot be differentiated again: it is large, so that it is "
            "recorded once more for that, and something that it reads is no longer as it was when "
            "it was called; differentiate it before that changes, or call it again"
        )
    return found
