"""Check ``backward()`` against finite differences, and name what to look at.

A function and inputs come in; out comes a report with one row per number. The differences are
extrapolated from ever smaller steps and carry their own uncertainty, so that a disagreement is the
gradient's fault and not theirs. Corners are named, and so is the operation behind a wrong
gradient: the one whose change its local derivatives do not explain. Where differences cannot tell
right from wrong, the report says that, and not that all is well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chainrule.core.backend import Value, _mode, topological_order
from chainrule.core.text import visible
from chainrule.derivatives.arguments import Argument, flatten_argument
from chainrule.derivatives.backward import gradients, recording
from chainrule.derivatives.finite_differences import (
    Estimate,
    Line,
    best_estimate,
    near_a_corner,
    telling_step,
    wrong_by_a_corner,
)
from chainrule.derivatives.transforms import node_of

_ROUNDING = 2.0**-51  # a few roundings, relative to the number rounded
_SMALLEST = 2.0**-1072  # what underflow can hide
_GOOD_ENOUGH = 1e-3  # differences less certain than this, of their size, tell nothing
_SHOWN = 10  # rows in the text of a report
_UNDEFINED = (ValueError, ArithmeticError)


# --- what comes out -------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputCheck:
    """One number of the inputs: its derivative by ``backward()`` and by finite differences."""

    name: str
    value: float
    backward: float
    difference: float
    uncertainty: float  # how far the difference itself may be off
    relative_error: float
    smooth: bool = True
    decided: bool = True  # whether the differences are good enough to tell right from wrong
    operation: str = ""  # the one to look at, if anything is wrong or not smooth
    note: str = ""

    def __str__(self) -> str:
        text = f"{self.name} = {_word(self.value)}: backward gives {_word(self.backward)}, "
        if not self.decided:
            text += f"differences give {_word(self.difference)}"
        elif self.smooth:
            text += f"differences give {_word(self.difference)}, "
            text += f"relative error {self.relative_error:.1e}"
        elif self.uncertainty > max(0.1 * abs(self.difference), 1e-6):
            text += "differences have no limit"
        else:
            text += f"differences give {_word(self.difference)}"
        if self.operation:
            text += f"; look at {self.operation}"
        return f"{text} ({self.note})" if self.note else text


@dataclass(frozen=True)
class GradientReport:
    """What ``check_gradients`` found; ``str`` says it in words.

    >>> from chainrule import check_gradients
    >>> report = check_gradients(lambda x: x * x, 3.0)
    >>> report.ok
    True
    """

    tolerance: float
    inputs: tuple[InputCheck, ...]

    @property
    def wrong(self) -> tuple[InputCheck, ...]:
        """The inputs whose gradient disagrees, the worst first."""
        found = [row for row in self._compared if row.relative_error > self.tolerance]
        return tuple(sorted(found, key=lambda row: -row.relative_error))

    @property
    def ok(self) -> bool:
        """Whether the gradient of every smooth input agrees; False too where that is not known."""
        return not self.wrong and not self.undecided

    @property
    def undecided(self) -> tuple[InputCheck, ...]:
        """The inputs where differences are not good enough to tell right from wrong."""
        return tuple(row for row in self.inputs if row.smooth and not row.decided)

    @property
    def _compared(self) -> list[InputCheck]:
        return [row for row in self.inputs if row.smooth and row.decided]

    @property
    def not_smooth(self) -> tuple[InputCheck, ...]:
        """The inputs at a corner or a jump, where there is no derivative to compare with."""
        return tuple(row for row in self.inputs if not row.smooth)

    @property
    def worst_row(self) -> InputCheck | None:
        """The smooth input with the largest relative error."""
        return max(self._compared, key=lambda row: row.relative_error, default=None)

    @property
    def relative_error(self) -> float:
        """The largest relative error."""
        return self.worst_row.relative_error if self.worst_row else 0.0

    @property
    def operation(self) -> str:
        """The operation to look at, if a gradient is wrong."""
        return self.wrong[0].operation if self.wrong else ""

    def __str__(self) -> str:
        total, wrong, corners = len(self.inputs), len(self.wrong), len(self.not_smooth)
        unknown = len(self.undecided)
        if wrong:
            lines = [f"wrong gradients: {wrong} of {total}, the worst first"]
            lines += [f"  {row}" for row in self.wrong[:_SHOWN]]
        else:
            lines = [f"gradients agree: {total - corners - unknown} of {total}"]
            lines += [f"  the worst: {self.worst_row}"] if self.worst_row else []
        if corners:
            lines.append(f"not smooth, so nothing to compare: {corners} of {total}")
            lines += [f"  {row}" for row in self.not_smooth[:_SHOWN]]
        if unknown:
            lines.append(f"not known, as differences are not good enough: {unknown} of {total}")
            lines += [f"  {row}" for row in self.undecided[:_SHOWN]]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        from rich.text import Text

        from chainrule.see.tables import PAGE_WIDTH, Column, notebook_html, table

        title, *_ = str(self).splitlines()
        first = [*self.wrong, *self.undecided, *self.not_smooth]
        shown = [*first, *(row for row in self.inputs if row not in first)][: 2 * _SHOWN]
        rows: list[list[str | Text]] = [
            [
                *(row.name, _word(row.value), _word(row.backward), _word(row.difference)),
                f"{row.relative_error:.1e}",
                Text(verdict(row, self), "bold red" if row in self.wrong else ""),
            ]
            for row in shown
        ]
        titles = ("Input", "Value", "backward()", "Differences", "Error", "Verdict")
        made = table([Column(name) for name in titles], rows, PAGE_WIDTH)
        left = len(self.inputs) - len(shown)
        more = [Text(f"and {left:,} more", "dim")] if left else []
        return notebook_html(Text(title, "bold"), made, *more)


def verdict(row: InputCheck, report: GradientReport) -> str:
    """What a report says of one input, in a few words."""
    if row in report.wrong:
        return f"WRONG: look at {row.operation}"
    if not row.smooth:
        return f"not smooth: {row.operation or row.note}"
    return "agrees" if row.decided else "not known: the differences are not good enough here"


class GradientError(AssertionError):
    """A gradient disagrees with finite differences; ``report`` has all the numbers.

    >>> from chainrule import GradientError, Value, check_gradients
    >>> try:
    ...     check_gradients(lambda x: Value(x.data**2, (x,), (x.data,), op="square"), 3.0)
    ... except GradientError as error:
    ...     print(error.report.wrong[0].name)
    inputs[0]
    """

    def __init__(self, report: GradientReport) -> None:
        super().__init__(str(report))
        self.report = report


def _word(x: float) -> str:
    return f"{x:.9g}"


def check_gradients(f: Callable[..., Any], *inputs: Any, tolerance: float = 1e-6) -> GradientReport:
    """Compare the gradients of ``f`` with finite differences; a wrong one raises GradientError.

    ``f`` gets the inputs (numbers, Values, arrays, trees) with Values in place of the numbers and
    returns one Value. A point where ``f`` has a corner is named in the report, not failed; so is
    one where differences cannot tell, as at sin(1e17), and there ``ok`` is False.

    >>> from chainrule import check_gradients
    >>> report = check_gradients(lambda a, b: (a * b).tanh(), 0.5, -1.5)
    >>> report.ok, len(report.inputs)
    (True, 2)
    >>> print(check_gradients(lambda x, y: x.relu() + y, 0.0, 3.0))
    gradients agree: 1 of 2
      the worst: inputs[1] = 3: backward gives 1, differences give 1, relative error 0.0e+00
    not smooth, so nothing to compare: 1 of 2
      inputs[0] = 0: backward gives 0, differences give 0.5; look at relu at ...

    The operation to look at is the first one whose change its local derivatives do not explain:

    >>> from chainrule import Value
    >>> cube = lambda x: Value(x.data**3, (x,), (2 * x.data**2,), op="cube")
    >>> check_gradients(lambda x: cube(x.exp()), 0.0)
    Traceback (most recent call last):
    chainrule.derivatives.checking.GradientError: wrong gradients: 1 of 1, the worst first
      inputs[0] = 0: backward gives 2, differences give 3, relative error 3.3e-01; look at cube...
    """
    if not inputs:
        raise TypeError("check_gradients takes a function and its inputs, but there are no inputs")
    if not tolerance > 0.0:
        raise ValueError(f"the tolerance must be positive, not {tolerance}")
    function = _Function(f, flatten_argument(inputs, "inputs"))
    y, leaves = function.graph()
    function.check(y)
    backward, noise = gradients(y, leaves), _noise(y)
    report = GradientReport(
        tolerance,
        tuple(_check(function, i, y.data, noise, g, tolerance) for i, g in enumerate(backward)),
    )
    if report.wrong:
        raise GradientError(report)
    return report


# --- the function ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Function:
    """A function and where it is checked."""

    f: Callable[..., Any]
    argument: Argument

    @property
    def values(self) -> list[float]:
        return [x.data if isinstance(x, Value) else x for x in self.argument.numbers]

    def graph(self, i: int = 0, offset: float = 0.0) -> tuple[Value, list[Value]]:
        """The result and its inputs, input ``i`` moved by ``offset``."""
        leaves = [Value(x) for x in self.values]
        leaves[i : i + 1] = [Value(leaf.data + offset) for leaf in leaves[i : i + 1]]
        for leaf, x in zip(leaves, self.argument.numbers, strict=True):
            leaf.label = x.label if isinstance(x, Value) else ""
        with recording():
            result = self.f(*self.argument.filled(leaves))
        return node_of(result, "check_gradients", self.f), leaves

    def number(self, i: int, offset: float) -> float | None:
        """The result alone, None where it is undefined."""
        try:
            y = self.graph(i, offset)[0].data
        except _UNDEFINED:
            return None
        return y if math.isfinite(y) else None

    def check(self, y: Value) -> None:
        """Refuse what differences could say nothing about."""
        if not math.isfinite(y.data):
            raise ValueError(f"there is nothing to check where the function is {y.data}")
        again = self.graph()[0]
        if again.data != y.data:
            raise ValueError(
                f"the function gives {y.data}, then {again.data} for the same inputs: fix its "
                "random numbers, or whatever else it depends on"
            )
        names = zip(self.argument.numbers, self.argument.names, strict=True)
        own = {id(x): name for x, name in names}
        for node in topological_order(y):
            if id(node) in own:
                raise ValueError(
                    f"the function uses {own[id(node)]} itself instead of the argument it is "
                    "given, so moving that argument shows nothing"
                )


# --- one input ------------------------------------------------------------------------------------


def _check(
    function: _Function, i: int, y: float, noise: float, backward: float, tolerance: float
) -> InputCheck:
    line = Line(function.values[i], y, lambda offset: function.number(i, offset), noise)
    estimate = best_estimate(line, backward, tolerance)
    name = function.argument.names[i]
    label = getattr(function.argument.numbers[i], "label", "")
    if label:
        name += f" {label!r}"
    if estimate is None:
        note = "the function is undefined on both sides"
        return InputCheck(name, line.x, backward, math.nan, math.inf, math.inf, False, note=note)
    error = estimate.relative_error(backward, tolerance)
    wrong = error > tolerance
    corner_step, operation = None, ""
    size = max(abs(backward), abs(estimate.slope), line.typical, 1e-6)
    decided = line.fine is not None or not math.isfinite(backward)
    if not decided:
        wrong = False
    elif wrong or estimate.tells_little(backward):
        corner_step = wrong_by_a_corner(line, backward, estimate)
    if corner_step is None and not wrong and decided:
        corner_step = near_a_corner(line)
    if corner_step is not None:
        operation = _operation(function, i, corner_step, corner=True)
    elif not wrong:
        decided = decided and estimate.uncertainty <= _GOOD_ENOUGH * size
    else:
        step = telling_step(line, backward, estimate)
        operation = _operation(function, i, step, corner=False)
    return InputCheck(
        name=name,
        value=line.x,
        backward=backward,
        difference=estimate.slope,
        uncertainty=estimate.uncertainty,
        relative_error=error,
        smooth=corner_step is None,
        decided=decided,
        operation=operation,
        note=_note(line, backward, estimate, tolerance),
    )


def _noise(y: Value) -> float:
    """How far rounding on the way may put ``y`` off: a sum whose terms cancel shows it."""
    order = topological_order(y)
    made = [node for node in order if node.children]  # the inputs themselves are exact
    errors = [g * node.data for g, node in zip(gradients(y, made), made, strict=True)]
    return _ROUNDING * math.hypot(*filter(math.isfinite, errors)) + _SMALLEST


def _note(line: Line, backward: float, estimate: Estimate, tolerance: float) -> str:
    notes = []
    if line.fine is None and math.isfinite(backward):
        notes.append("the slopes over ever smaller steps do not settle")
    if estimate.side:
        beyond = "below" if estimate.side > 0 else "above"
        notes.append(f"one-sided: the function is undefined {beyond}")
    size = max(abs(backward), abs(estimate.slope), line.typical, 1e-6)
    if line.fine is not None and estimate.uncertainty > tolerance * size:
        notes.append(f"the differences are only good to ±{estimate.uncertainty:.1e}")
    return "; ".join(notes)


# --- the operation to look at ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Evaluation:
    """The graph of one evaluation, in topological order."""

    order: list[Value]
    inputs: dict[int, int]  # id of an input → its number

    @property
    def wiring(self) -> list[Any]:
        """Everything about the graph but its numbers; equal for equal programs."""
        position = {id(node): k for k, node in enumerate(self.order)}
        return [
            (node._rule, [position[id(c)] for c in node.children], self.inputs.get(id(node)))
            for node in self.order
        ]


def _evaluate(function: _Function, i: int, offset: float) -> _Evaluation | None:
    with _mode("debug", True):  # so that nodes know their source line
        try:
            y, leaves = function.graph(i, offset)
        except _UNDEFINED:
            return None
    return _Evaluation(topological_order(y), {id(leaf): k for k, leaf in enumerate(leaves)})


def _operation(function: _Function, i: int, step: float, corner: bool) -> str:
    """The first operation that has a fair share in what the gradient does not explain."""
    here = _evaluate(function, i, 0.0)
    above, below = _evaluate(function, i, step), _evaluate(function, i, -step)
    if here is None:
        return ""
    for other in (above, below):
        if other is not None and other.wiring != here.wiring:
            return (
                "an if, max() or min() on the way: another branch is taken just beside this point"
            )
    shares = _shares(here, above or here, below or here, corner)
    largest = max(shares, default=0.0)
    for node, share in zip(here.order, shares, strict=True):
        if share >= 0.5 * largest and share > 0.0:
            return _describe(node)
    return ""


def _shares(here: _Evaluation, above: _Evaluation, below: _Evaluation, corner: bool) -> list[float]:
    """What each node does beyond its local derivatives, as it shows in the result.

    A node's change less what its children's changes explain, times the gradient of the node: over
    all nodes these add up to exactly what the gradient of the input misses. A corner shows in the
    even part of the change, a wrong derivative in the odd part.
    """

    def change(k: int) -> float:
        up, down = above.order[k].data, below.order[k].data
        return up + down - 2 * here.order[k].data if corner else up - down

    def moves(k: int) -> bool:
        return not above.order[k].data == below.order[k].data == here.order[k].data

    position = {id(node): k for k, node in enumerate(here.order)}
    shares = []
    totals = gradients(here.order[-1], here.order)
    for k, (node, total) in enumerate(zip(here.order, totals, strict=True)):
        slopes = zip(node.children, node.local_grads, strict=True)
        explained = sum(slope * change(position[id(child)]) for child, slope in slopes)
        share = abs(total * (change(k) - explained))
        if id(node) in here.inputs or total == 0.0:
            share = 0.0
        elif any(
            not math.isfinite(slope) and moves(position[id(child)])
            for child, slope in zip(node.children, node.local_grads, strict=True)
        ):
            share = math.inf  # here an infinite derivative comes into the gradient
        shares.append(0.0 if math.isnan(share) else share)
    return shares


def _describe(node: Value) -> str:
    words = visible(node.op) or "a number made outside the graph, from v.data or a comparison"
    if node.label:
        words += f" labelled {node.label!r}"
    return f"{words} at {node._location}" if node._location else words
