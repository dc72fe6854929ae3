"""``lengths=``: a function of lists of any length as one source, which takes them padded.

In: a function, and an example with the longest lists. Out: a ``Translated`` function with one more
argument, how many items of the lists count; it was compared with eager mode at every length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.random_states import random_states_kept
from chainrule.compiler.formulas.decoding import Choice
from chainrule.compiler.formulas.reading import Reading
from chainrule.compiler.runtime.results import wanted_of
from chainrule.compiler.translate.checking import (
    Evaluate,
    check,
    eager,
    numbers_of,
    plain_arguments,
)
from chainrule.compiler.translate.dialects import DIALECTS
from chainrule.compiler.translate.function import (
    PARTS,
    Recorded,
    Translated,
    clear_lines,
    evaluator,
    in_double,
    recorded_call,
    refuse_guards,
    signature_of,
)
from chainrule.compiler.translate.lengths import ARGUMENT, Shorter, padded_program
from chainrule.compiler.translate.module import Module, Signature
from chainrule.compiler.translate.terms import Untranslatable

BEYOND = 10**6  # what stands behind the end of a shorter list in checks: no list has such an item


def translate_lengths(
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    keywords: dict[str, Any],
    to: str,
    lengths: Any,
) -> Translated:
    """One source for the lists of the example and for shorter ones; ``lengths``: True, or which."""
    evaluate = evaluator(to, False)
    arguments = tuple(map(in_double, arguments))
    keywords = {name: in_double(x) for name, x in keywords.items()}
    with clear_lines(function, arguments, f"{to} source"):
        longest = recorded_call(function, flatten_call(arguments, keywords, True))
        lists = _Lists.of(longest.call)
        recorded = _recorded(function, longest, lists, lengths)
        reading, signature = _reading(function, recorded, lists)
        source = Module(reading, signature, DIALECTS[to]).source().text
        assert signature.lengths is not None
        example = (*plain_arguments(longest.call), lists.most)
        translated = Translated(source, signature.name, to, example)
        translated.lengths = signature.lengths.counts
        padded = _Padding(lists, evaluate(translated.function))
        with random_states_kept():
            for made in recorded.values():
                padded.check(function, made.call)
        return translated


@dataclass(frozen=True)
class _Lists:
    """The arguments that are padded, by their place or their name, and their length."""

    most: int
    places: tuple[int | str, ...]

    @classmethod
    def of(cls, call: Call) -> _Lists:
        """The longest lists after the first argument."""
        found: dict[int | str, int] = {}
        given: list[tuple[int | str, Any]] = [*enumerate(call.arguments), *call.keywords.items()]
        for place, x in given[1:]:
            if type(x) in (list, tuple) or (isinstance(x, np.ndarray) and x.ndim):
                found[place] = len(x)
        most = max(found.values(), default=0)
        if most < 2:
            raise Untranslatable("no argument after the first is a list that could be shorter")
        return cls(most, tuple([place for place, count in found.items() if count == most]))

    def shortened(self, call: Call, count: int) -> Call:
        """The same call with the first items of these lists."""
        places = self.places
        arguments = tuple([x[:count] if k in places else x for k, x in enumerate(call.arguments)])
        keywords = {k: x[:count] if k in places else x for k, x in call.keywords.items()}
        return flatten_call(arguments, keywords, bool(call.key[0]))

    def counts(self, lengths: Any) -> list[int] | None:
        """The lengths that were asked for, longest first; None: all that there can be."""
        if lengths is True:
            return None
        try:
            found = sorted({*map(int, lengths)}, reverse=True)
        except TypeError:
            raise Untranslatable("lengths is True, or which lengths its lists may have") from None
        if not found or found[0] != self.most or found[-1] < 1:
            raise Untranslatable(
                f"its lengths must be from 1 to {self.most}, the length of the example, and "
                "include that"
            )
        return found


def _recorded(
    function: Callable[..., Any], longest: Recorded, lists: _Lists, lengths: Any
) -> dict[int, Recorded]:
    """The calls of all lengths, longest first."""
    recorded = {lists.most: longest}
    wanted = lists.counts(lengths)
    for count in range(lists.most - 1, 0, -1) if wanted is None else wanted[1:]:
        call = lists.shortened(longest.call, count)
        try:
            eager(function, call)
        except Exception:
            if wanted is not None:
                raise
            break  # it takes no shorter ones
        made = recorded_call(function, call)
        if wanted is None and wanted_of(made.recording) is None:
            break  # nothing is left of it
        recorded[count] = made
    return recorded


def _reading(
    function: Callable[..., Any], recorded: dict[int, Recorded], lists: _Lists
) -> tuple[Reading, Signature]:
    """The formulas of the longest call, for all of them, and how their source is called."""
    calls, signatures = [], []
    for count, made in recorded.items():
        refuse_guards(made.recording)
        root = wanted_of(made.recording)
        if root is None:
            raise Untranslatable("it returns no single Value, and no numbers")
        signatures.append(signature_of(function, made, False))
        inputs = signatures[-1].inputs
        calls.append(Shorter(count, made.call, made.recording, root.position, inputs))
    signature, longest = signatures[0], calls[0]
    names = [x if isinstance(x, str) else signature.parameters[x] for x in lists.places]
    paths = {x.path for x in signature.inputs}
    if not paths >= {*names}:
        raise Untranslatable(f"{min({*names} - paths)} is no array of numbers: pass it as one")
    if ARGUMENT in signature.parameters:
        raise Untranslatable(f"an argument has the name {ARGUMENT}, which its source needs")
    program, found = padded_program(longest, calls[1:], names)
    words = f"{ARGUMENT} is how many items of {' and '.join(names)} count: {found}."
    signature = replace(
        signature,
        parameters=(*signature.parameters, ARGUMENT),
        summary=(*signature.summary, "", words),
        lengths=found,
    )
    address = program.address
    reading = Reading(
        program,
        signature.inputs,
        Choice(longest.recording),
        int(address[longest.root]),
        [int(address[x.position]) for x in longest.recording.outputs],
        PARTS,
        True,
        added=[(x.start, x.named) for x in found.arrays],
    )
    return reading, signature


class _Padding:
    """Evaluates a source with padded arguments, behind whose ends is what nobody may read."""

    def __init__(self, lists: _Lists, evaluate: Evaluate) -> None:
        self._lists, self._evaluate = lists, evaluate
        self._finite = True

    def check(self, function: Callable[..., Any], call: Call) -> None:
        """Compare it with the function itself."""
        names = [*range(len(call.arguments)), *call.keywords]
        places = [k for k, name in enumerate(names) if name in self._lists.places]

        def evaluate(arguments: tuple[Any, ...]) -> tuple[Any, Any]:
            with np.errstate(all="ignore"):
                found, gradient = self._evaluate(self._padded(arguments, places))
            self._finite &= bool(np.isfinite(numbers_of(found)).all())
            if gradient is not None:
                self._finite &= bool(np.isfinite(numbers_of(gradient)).all())
            return found, gradient

        try:
            check(function, evaluate, call)
        except Untranslatable:
            if self._finite:
                raise
            raise Untranslatable(
                "beyond the end of a shorter list, where its first item is repeated, something is "
                "not finite"
            ) from None

    def _padded(self, arguments: tuple[Any, ...], places: list[int]) -> tuple[Any, ...]:
        made, count = list(arguments), 0
        for k in places:
            items = np.asarray(made[k])
            count = len(items)
            junk = BEYOND if items.dtype.kind in "iu" else np.nan
            rest = np.full((self._lists.most - count, *items.shape[1:]), junk, items.dtype)
            made[k] = np.concatenate([items, rest])
        return (*made, count)
