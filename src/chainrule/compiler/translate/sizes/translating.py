"""``to_numpy`` and ``to_jax`` with ``sizes``: one source for arrays of any size.

In: a function and its calls at several small sizes. Out: a ``Translated`` function that reads the
sizes from the shapes of its arguments, compared with eager mode at sizes that were not recorded.
What the recordings do not explain is refused, with the formula where it stands.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.random_states import random_states_kept
from chainrule.compiler.formulas.reading import WIDTH
from chainrule.compiler.lift.graph import NotLiftable
from chainrule.compiler.runtime.results import wanted_of
from chainrule.compiler.translate.checking import Evaluate, check
from chainrule.compiler.translate.dialects import DIALECTS, Dialect
from chainrule.compiler.translate.function import (
    Recorded,
    Translated,
    clear_lines,
    comparing,
    evaluator,
    example_of,
    in_double,
    lifted,
    reading_of,
    recorded_call,
    refuse_guards,
    signature_of,
)
from chainrule.compiler.translate.module import Module, Signature, Source
from chainrule.compiler.translate.sizes.arguments import (
    ARRAY,
    HELPERS,
    INTEGERS,
    dimensions,
    limits,
    unpacking,
)
from chainrule.compiler.translate.sizes.calls import SMALLEST, Arguments, Plan, plans
from chainrule.compiler.translate.sizes.laws import Polynomial, Sizes, point_text
from chainrule.compiler.translate.sizes.numbers import Different, explain_numbers
from chainrule.compiler.translate.sizes.unifying import Unifier, divisors
from chainrule.compiler.translate.terms import Untranslatable

UNROLLED = 4  # iterations of layers; a loop over something that may be any size is a loop
RESERVED = frozenset("before now valid result dtype array integers shaped allow expect".split())


def translate_any_size(
    function: Callable[..., Any], given: Any, to: str, specialise: bool = False
) -> Translated:
    """The function as source of a dialect, for arguments of any size."""
    dialect, evaluate = _for_any_size(DIALECTS[to]), evaluator(to, specialise)
    with clear_lines(function, (given,), f"{to} source for any size"):
        reason: Different | None = None
        for plan in plans(function, given):
            try:
                return _translate(function, plan, dialect, evaluate, specialise)
            except Different as different:  # larger sizes may be of one structure
                reason = reason or different
        assert reason is not None
        raise reason


@dataclass(frozen=True)
class Found:
    """A source and the sizes that it is for."""

    source: Source
    conditions: tuple[Polynomial, ...]  # what must not be negative
    multiples: tuple[tuple[str, int], ...]  # what must be a multiple of what

    def limited(
        self, least: Sequence[int], sizes: Sizes, checked: Sequence[tuple[int, ...]]
    ) -> Source:
        """The source with lines that refuse other sizes; ``least``: the smallest."""
        lines = limits(sizes.names, least, self.conditions, self.multiples)
        ends = [(min(x), max(x)) for x in zip(*sizes.points, strict=True)]
        words = [f"{name} = {a} to {b}" for name, (a, b) in zip(sizes.names, ends, strict=True)]
        about = f"For any size: made from recordings at {', '.join(words)}"
        for point in checked:
            about += f"; compared with eager mode at {point_text(sizes.names, point)}"
        text = self.source.docstring.removesuffix('"""')
        text += "\n" + textwrap.fill(about, WIDTH - 4, subsequent_indent="  ") + '\n"""'
        unpacking = (*self.source.unpacking, *lines)
        return replace(self.source, docstring=text, unpacking=unpacking)


def _for_any_size(dialect: Dialect) -> Dialect:
    """The dialect, with arguments of any shape."""
    helpers = {**dialect.helpers, **HELPERS, "array": ARRAY[dialect.name]}
    helpers["integers"] = INTEGERS[dialect.name]
    return replace(dialect, helpers=helpers, unrolled=UNROLLED)


def _translate(
    function: Callable[..., Any],
    plan: Plan,
    dialect: Dialect,
    evaluate: Callable[[Any], Evaluate],
    specialise: bool,
) -> Translated:
    recorded = []
    for k, arguments in enumerate(plan.recorded):
        call = flatten_call(tuple(map(in_double, arguments)), {}, True)
        try:
            recorded.append(recorded_call(function, call))
            if wanted_of(recorded[-1].recording) is None:
                raise Untranslatable("it returns no single Value, and no numbers")
        except Untranslatable as reason:
            raise Untranslatable(f"{reason} (at {plan.sizes.text(k)})") from None
        if not specialise:
            refuse_guards(recorded[-1].recording)
    signatures = [signature_of(function, one, specialise) for one in recorded]
    sources: list[Found] = []
    reasons: list[Untranslatable | NotLiftable] = []
    for with_loops in (False, True):
        try:
            sources.append(_unified(recorded, signatures, plan.sizes, dialect, with_loops))
        except (Untranslatable, NotLiftable) as reason:
            reasons.append(reason)
    if not sources:
        # of two forms of one program, that which has most in common says more
        raise min(reasons, key=lambda reason: isinstance(reason, Different | NotLiftable))
    found = min(sources, key=lambda x: len(x.source.text.splitlines()))
    name, example = signatures[0].name, example_of(recorded[0])
    compare = comparing(function, evaluate, specialise)

    def made(least: Sequence[int], checked: Sequence[tuple[int, ...]]) -> Translated:
        text = found.limited(least, plan.sizes, checked).text
        return Translated(text, name, dialect.name, example, compare)

    evaluating = evaluate(made([1] * len(plan.sizes.names), ()).function)

    def checked(arguments: Arguments) -> None:
        call = flatten_call(tuple(map(in_double, arguments)), {}, True)
        with random_states_kept():
            check(function, evaluating, call, specialise)

    checked(plan.recorded[0])
    for point, arguments in plan.held:
        try:
            checked(arguments)
        except Untranslatable as reason:
            where = point_text(plan.sizes.names, point)
            what = str(reason).removesuffix(" (please report this)")
            raise Untranslatable(f"at {where}, which was not recorded, {what}") from None
    return made(_smallest(plan, checked), [point for point, _ in plan.held])


def _unified(
    recorded: Sequence[Recorded],
    signatures: Sequence[Signature],
    sizes: Sizes,
    dialect: Dialect,
    with_loops: bool,
) -> Found:
    for name in sizes.names:
        if name in signatures[0].parameters:
            raise Untranslatable(f"a size and an argument are both called {name}: rename one")
    modules = []
    for one, signature in zip(recorded, signatures, strict=True):
        program = lifted(one, with_loops)
        if program is None:
            raise NotLiftable("it has no loops in time")
        reading = reading_of(program, one, signature, _length)
        modules.append(Module(reading, signature, dialect, sizes.names))
    arrays = {line.array.name for section in modules[0].sections for line in section.lines}
    for name in sizes.names:
        if name in arrays | RESERVED:
            raise Untranslatable(f"the size {name} has a name that its source needs: rename it")
    conditions = explain_numbers(modules, sizes)
    found = dimensions([signature.inputs for signature in signatures], sizes)
    inputs = [x for x in signatures[0].inputs if x.path]
    lines = modules[0].unpacking[len(signatures[0].conditions) :]
    names = [line.partition(" = ")[0] for line in lines]
    unifier = Unifier(sizes)
    found = [x for x, named in zip(found, signatures[0].inputs, strict=True) if named.path]
    reads = unpacking(names, inputs, found, sizes)
    if signatures[0].kinds:  # before a list becomes an array
        reads.insert(0, modules[0].unpacking[0])
    if signatures[0].expected:
        place = bool(signatures[0].kinds)
        reads.append(unifier.block([module.unpacking[place] for module in modules]))
    for module in modules:
        module.scope.helpers.update(HELPERS)
    source = unifier.source([module.source() for module in modules], reads)
    source = replace(source, docstring=_docstring(modules[0], inputs, found))
    lengths = {
        name: dims[0].law
        for name, named, dims in zip(names, inputs, found, strict=True)
        if named.integers and dims and dims[0].law is not None
    }
    conditions += unifier.slices(source.body, lengths)
    return Found(source, tuple(conditions), tuple(divisors(list(unifier.laws))))


def _length(formula: str) -> int:
    """The length of a formula without its numbers: they differ between recordings."""
    number = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"
    return len(re.sub(rf" / {number}|{number}·|{number}", "", formula))


def _docstring(module: Module, inputs: Sequence[Any], found: Sequence[Sequence[Any]]) -> str:
    """The module's, with sizes in the place of numbers."""
    words = []
    for named, dims in zip(inputs, found, strict=True):
        inside = [str(d.size) if d.law is None else d.law.code.replace(" * ", "·") for d in dims]
        words.append(f"{named.path} [{'×'.join(inside)}]" if inside else named.path)
    return module.docstring(words)


def _smallest(plan: Plan, check_with: Callable[[Arguments], None]) -> list[int]:
    """The smallest sizes that the source is right for: all are tried from 3 down."""
    least = list(map(min, zip(*plan.sizes.points, strict=True)))
    for size in range(min(SMALLEST, *least) if plan.make is not None else 0, 0, -1):
        try:
            assert plan.make is not None
            check_with(plan.make([size] * len(least)))
        except Exception:  # a function need not be defined there
            break
        least = [size] * len(least)
    return least
