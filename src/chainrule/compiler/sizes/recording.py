"""Recordings at small sizes, and what they have in common.

In: what a user says about sizes, and what records the function. Out: a ``Family``: the function's
formulas for any size, compared with eager mode at a size that was not recorded.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.recordings import ArrayOutput, Output, Recording
from chainrule.compiler.capture.running import Trace
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.formulas import input_names
from chainrule.compiler.formulas.decoding import Choice
from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.lift import interpreter
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.margins import with_margins
from chainrule.compiler.runtime.decisions import Runs
from chainrule.compiler.runtime.results import wanted_of
from chainrule.compiler.runtime.variants import Variant
from chainrule.compiler.runtime.verification import check_against_eager
from chainrule.compiler.sizes.columns import Formulas, formulas_of
from chainrule.compiler.sizes.programs import Made, program_of
from chainrule.compiler.sizes.unified import Point, Sized, Unified
from chainrule.compiler.translate.checking import calls_like, compare, eager, numbers_of
from chainrule.compiler.translate.sizes.calls import Arguments, Plan, plans
from chainrule.compiler.translate.sizes.laws import point_text
from chainrule.compiler.translate.sizes.numbers import Different
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.trees import Branch, List, Node, Numbers, Tuple, map_leaves

CALLS = 3  # that are compared with eager: the example, with other numbers, with other integers


@dataclass(frozen=True, eq=False)
class Family:
    """A function's formulas for any size, and what all of its calls have in common."""

    unified: Unified
    form: Any  # of its calls, see ``form_of``
    result: Any  # the returned tree, an Output in place of each number
    numeric: bool  # integers are used as numbers
    uses_math: bool
    steps: frozenset[str]  # what is done with integers
    least: Point  # the smallest sizes that it is for

    def point(self, function: Callable[..., Any], call: Call) -> Point | None:
        """The sizes of a call; None where the formulas are not for it."""
        if form_of(call) != self.form:
            return None
        found = self.unified.point(inputs_of(function, call))
        if found is None or any(a < b for a, b in zip(found, self.least, strict=True)):
            return None
        return found

    def text(self, point: Point) -> str:
        """Sizes in words."""
        return point_text(self.unified.sizes.names, point)

    def runs(self, point: Point) -> Runs:
        """How many integers each array of them has, and whether it is a list."""
        return self.unified.runs(point)

    def formulas(self, point: Point) -> Sized:
        """The formulas at these sizes."""
        return self.unified.at(point)

    def program(self, point: Point, first: int) -> Made:
        """The program at these sizes; ``first``: how many inputs the first argument has."""
        integers = [named.integers for named in self.unified.inputs]
        return program_of(self.unified.at(point), first, integers)

    def recording(self, made: Made) -> Recording:
        """What a call on machine code asks of a recording; no instruction was recorded."""
        outputs = iter(made.outputs)
        result = map_leaves(
            lambda x: replace(x, position=next(outputs)) if isinstance(x, Output) else x,
            self.result,
            records=True,
        )
        program = made.program
        return Recording.empty(result, program.inputs, made.selection, program.work)


def form_of(call: Call) -> Any:
    """What must be the same for calls of any size: the key without lengths."""
    differentiate, structures, named, others = call.key
    names = tuple([(name, _without_lengths(x)) for name, x in named])
    return differentiate, tuple(map(_without_lengths, structures)), names, others


def _without_lengths(node: Node) -> Node:
    if isinstance(node, Numbers):
        return Numbers((0,) * len(node.shape), node.kind)
    if isinstance(node, Branch):
        made = node.map(_without_lengths)
        alike = isinstance(made, List | Tuple) and len(set(made.items)) == 1
        return type(made)(made.items[:1]) if alike else made
    return node


def inputs_of(function: Callable[..., Any], call: Call) -> list[Named]:
    """The arrays of a call's inputs: numbers, then integers."""
    structures, named = call.structure
    found = input_names.arguments(function, structures, list(named.items()))
    return [x for kind in (False, True) for x in found if x.integers is kind]


def family_of(
    tracer: Tracer, captured: CapturedState, given: Any, differentiate: bool, form: Any
) -> Family | None:
    """The formulas of a function; None where ``form`` is not that of the examples.

    ``given``: what makes examples. Untranslatable or NotLiftable: sizes do not explain it.
    """
    reason: Different | None = None
    for plan in plans(tracer.function, given):
        small = _Small(tracer, captured, plan, differentiate)
        if form_of(small.calls[0]) != form:
            return None
        try:
            return small.family()
        except Different as different:  # larger sizes may be of one structure
            reason = reason or different
    assert reason is not None
    raise reason


class _Small:
    """The recordings at small sizes."""

    def __init__(
        self, tracer: Tracer, captured: CapturedState, plan: Plan, differentiate: bool
    ) -> None:
        self._tracer, self._captured, self._plan = tracer, captured, plan
        self._differentiate = differentiate
        self.calls = list(map(self._call, plan.recorded))

    def _call(self, arguments: Arguments) -> Call:
        return flatten_call(arguments, {}, self._differentiate)

    def family(self) -> Family:
        traces = [self._trace(k, call) for k, call in enumerate(self.calls)]
        results = [without_positions(made.recording.result) for made in traces]
        if any(result != results[0] for result in results):
            raise Different("what it returns")
        inputs = [inputs_of(self._tracer.function, call) for call in self.calls]
        found = [_formulas(*pair) for pair in zip(self.calls, traces, inputs, strict=True)]
        unified = Unified(self._plan.sizes, found, inputs)
        family = Family(
            unified,
            form_of(self.calls[0]),
            results[0],
            any(made.numeric for made in traces),
            any(made.uses_math for made in traces),
            frozenset().union(*[made.recording.selection.program.names for made in traces]),
            tuple(map(min, zip(*self._plan.sizes.points, strict=True))),
        )
        first = self._plan.sizes.points[0], self._plan.recorded[0]
        for point, arguments in (first, *self._plan.held):
            self._check(family, point, arguments)
        return self._with_least(family)

    def _trace(self, k: int, call: Call) -> Trace:
        """A recording; the first is compared with another one, and with eager mode."""
        made = self._tracer.trace(self._captured, call)
        if k == 0:
            self._tracer.confirm(self._captured, call, made)
            check_against_eager(self._tracer.function, self._captured, Variant.of(made), call)
        recording = made.recording
        lines = [*made.settled, *[guard.line for guard in recording.guards]]
        lines += [guard.line for guard in recording.selection.program.guards]
        if lines:
            raise Untranslatable(f"it holds for one case only, because of {lines[0]}")
        if made.captured:
            raise Untranslatable("it reads Values from outside: pass them as arguments")
        if recording.selection.numbers:
            raise Untranslatable("it computes numbers from integers")
        if any(output.is_integer for output in recording.outputs):
            raise Untranslatable("it returns integers that it was passed, or computed")
        if recording.hands_back:
            raise Untranslatable("it returns, or changes, lists that it was passed")
        if wanted_of(recording) is None:
            raise Untranslatable("it returns no single Value, and no numbers")
        return made

    def _check(self, family: Family, point: Point, arguments: Arguments, most: int = CALLS) -> None:
        """Compare the program at some sizes with eager mode: the value and all of the gradient.

        ``most``: so many calls, with other numbers and integers.
        """
        function = self._tracer.function
        given = self._call(arguments)
        made = family.program(point, given.first)
        for k, call in enumerate(itertools.islice(calls_like(given), most)):
            try:
                result, slopes = eager(function, call)
            except Exception:
                if k == 0:
                    raise
                continue  # out of a domain, or an index out of range
            decided = made.selection.decide(call.ints)
            if decided is None:
                raise Untranslatable(f"its integers are others at {family.text(point)}")
            gathered = made.program.address[decided[0][made.program.places]]
            inputs = np.concatenate([np.zeros(call.size), np.array(call.ints, np.float64)])
            call.write(inputs[: call.size])
            arena = interpreter.run(made.program, inputs, gathered)
            compare(numbers_of(result), arena[list(made.outputs)], "value")
            if self._differentiate and slopes is not None:
                found = interpreter.sweep(made.program, arena, gathered, made.outputs[0])
                compare(slopes, found[: call.first], "gradient")

    def _with_least(self, family: Family) -> Family:
        """With the shortest lists that it is for: all are tried, from those recorded down."""
        make, k, least = self._plan.make, family.unified.length, list(family.least)
        while make is not None and k is not None and least[k] > 1:
            point = [*self._plan.sizes.points[0]]
            point[k] = least[k] - 1
            try:
                self._check(family, tuple(point), make(point), 1)
            except Exception:  # a function need not be defined there
                break
            least[k] -= 1
        return replace(family, least=tuple(least))


def _formulas(call: Call, made: Trace, inputs: Sequence[Named]) -> Formulas:
    root = wanted_of(made.recording)
    assert root is not None
    source = RecordedCall.of(call, made.recording, root.position, margins=False)
    if with_margins(made.recording, poles=False) is not made.recording:
        raise Untranslatable("terms that may cancel are compared, and formulas do not say how far")
    program = source.without_steps(False)
    assert program is not None
    addresses = [int(program.address[x.position]) for x in made.recording.outputs]
    return formulas_of(program, inputs, Choice(made.recording), addresses)


def without_positions(result: Any) -> Any:
    """What a function returns, whatever computes it."""

    def blank(leaf: Any) -> Any:
        if isinstance(leaf, ArrayOutput):
            raise Untranslatable("it returns an array")
        return replace(leaf, position=0) if isinstance(leaf, Output) else leaf

    return map_leaves(blank, result, records=True)
