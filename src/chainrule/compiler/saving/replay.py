"""A loaded function without its source: one of its recordings, evaluated on Values.

In: the arguments of a call. Out: what the function would return, as a graph that can be
differentiated again; eager's errors where eager would raise. This answers what neither the tape nor
machine code may: undefined values, nested derivatives, several returned Values. A call that no
recording is for raises, and says what is missing.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import (
    Call,
    Texts,
    as_float,
    flatten_call,
    holds_values,
)
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, ArrayOutput, Output
from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.runtime.notices import FallbackError
from chainrule.compiler.runtime.variants import Variant
from chainrule.compiler.saving.structures import words_of
from chainrule.core import ops
from chainrule.core.backend import Value, modes, nonfinite
from chainrule.trees import FLOAT, Array, Node, Numbers, map_leaves

LISTED = 3  # structures, or reasons, in a message


class _AnotherPath(Exception):
    """A recording is not for a call; says why."""


class Replay:
    """Stands for the function that was saved."""

    def __init__(self, name: str, signature: inspect.Signature | None) -> None:
        self.__name__ = self.__qualname__ = name
        if signature is not None:
            self.__signature__ = signature
        #: set once the recordings are there: those for a call, and what calls there are some for
        self.variants: Callable[[Call], Sequence[Variant]] = lambda call: ()
        self.saved_for: Sequence[Sequence[str]] = ()
        self.texts: Texts = frozenset()  # arguments whose strings are integers in some of them
        self.captured = CapturedState()
        self.may_catch = False  #: whether the function's code may catch errors

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """What the function returns, or a ``FallbackError``."""
        if modes.recorder is not None:
            modes.recorder.forbid(f"{self.__name__}, which was loaded from a file")
        reasons: list[str] = []
        readings = []
        for texts in dict.fromkeys([self.texts, frozenset[int | str]()]):
            readings.append(flatten_call(arguments, keywords, differentiate=False, texts=texts))
            if arguments and holds_values(arguments[0]):
                readings += self._as_differentiated(arguments, keywords, texts)
        for call in readings:
            for variant in self.variants(call):
                try:
                    return _evaluate(variant, call, self.may_catch)
                except _AnotherPath as reason:
                    reasons.append(str(reason))
        why = self._why(readings[-1], reasons)
        raise FallbackError(f"{self.__name__} was not saved for this call: {why}")

    def _as_differentiated(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], texts: Texts
    ) -> list[Call]:
        """A call whose first argument holds Values only, as ``value_and_grad`` of it.

        The function was recorded with Values there too, made from the numbers it was passed. Where
        it looks at their labels, or asks which is which, it might do something else with these.
        """
        call = _CallOfValues(arguments=arguments, keywords=keywords)
        structures = []
        for i, x in enumerate(arguments):
            call.traces_text = i in texts
            structures.append(call.add(x, floats_only=i == 0))
            call.first = call.size if i == 0 else call.first
        named = {}
        for name, x in keywords.items():
            call.traces_text = name in texts
            named[name] = call.add(x)
        call.structure = (tuple(structures), named)
        call.key = (True, tuple(structures), tuple(named.items()), tuple(call.narrow))
        first = [*itertools.islice(_numbers(call), call.first)]
        again = len({id(x) for x in first}) < len(first)
        is_other = self.captured.looks or (self.captured.identity and again)
        return [] if is_other or not all(isinstance(x, Value) for x in first) else [call]

    def _why(self, call: Call, reasons: list[str]) -> str:
        if call.opaque is not None:
            return f"an argument of type {call.opaque} cannot be followed"
        if call.roots:
            return f"code of {next(iter(call.roots)).__name__} is no part of it"
        if reasons:
            return "; ".join([*dict.fromkeys(reasons)][:LISTED])
        return _missing(words_of(call.key), self.saved_for)


def _missing(given: Sequence[str], known: Sequence[Sequence[str]]) -> str:
    """What sets a call apart from those that were saved."""
    alike = [x for x in known if x[0] == given[0] and len(x) == len(given)]
    places = [[k for k, word in enumerate(x) if word != given[k]] for x in alike]
    fewest = min(places, key=len, default=[])
    if not fewest:
        others = [f"{mode}({', '.join(words)})" for mode, *words in known[:LISTED]]
        others += ["…"] * (len(known) > LISTED)
        return f"it is {given[0]}({', '.join(given[1:])}), and the file has {' and '.join(others)}"
    place = fewest[0]
    options = dict.fromkeys(
        x[place] for x, differ in zip(alike, places, strict=True) if differ == fewest
    )
    words = [*list(options)[:LISTED], *["…"] * (len(options) > LISTED)]
    return f"argument {place} of {given[0]} is {given[place]}, and in the file {' or '.join(words)}"


class _CallOfValues(Call):
    """A call whose first argument holds Values, as one that is differentiated by these."""

    def _add_value(self, x: Value, floats_only: bool) -> Node:
        if not floats_only or type(x) is not Value:
            return super()._add_value(x, floats_only)
        self.floats.append(x)
        self.sizes.append(1)
        return FLOAT

    def _add_array(self, x: Array, floats_only: bool) -> Node:
        if not floats_only or not all(isinstance(item, Value) for item in x.ravel().tolist()):
            return super()._add_array(x, floats_only)
        self.floats.append(x)  # of Values, in place of an array of floats
        self.sizes.append(x.size)
        return Numbers(x.shape, FLOAT)


def _evaluate(variant: Variant, call: Call, may_catch: bool) -> Any:
    """What a recording gives for a call, one operation after the other.

    ``may_catch``: nobody knows what the function does where an operation raises an error. Nor what
    becomes of plain numbers: Python and ``math`` raise where numpy, and float + - *, give infinity.
    """
    recording, ints = variant.recording, call.ints
    decided = recording.selection.decide(ints)
    if decided is None:
        raise _AnotherPath(_why_not(recording.selection, ints))
    if any(abs(ints[slot]) > EXACT for slot in variant.numeric):
        raise _AnotherPath("an integer is too large to be used as a number")
    selected, numbers = decided
    is_value = [*[isinstance(x, Value) for x in _numbers(call)], *[True] * len(variant.captured)]
    is_value += [False] * (recording.inputs - len(is_value))
    nodes = [
        *[x if isinstance(x, Value) else Value(x) for x in _numbers(call)],
        *variant.captured,
        *[Value(as_float(i)) for i in ints],
        *map(Value, numbers),
    ]
    given = [x.data for x in nodes[: call.size]]
    if variant.uses_math and not np.isfinite(given).all():
        raise _AnotherPath("a function of math was recorded, for finite numbers only")
    operands = recording.operands.copy()
    operands.ravel()[recording.selection.places] = selected
    guards: dict[int, list[Any]] = defaultdict(list)
    for guard in recording.guards:
        guards[guard.position].append(guard)
    codes, constants = recording.codes.tolist(), recording.constants.tolist()
    allows = recording.unflagged.tolist()
    for i in range(recording.inputs, len(recording)):
        if codes[i] == CONSTANT:
            nodes.append(Value(constants[i][0]))
            is_value.append(False)
        else:
            rule = recording.rules[codes[i] - FIRST_RULE]
            read = [p for p in operands[i].tolist() if p >= 0]
            xs: list[Any] = [nodes[p] for p in read]
            is_value.append(rule is not ops.detach and any(is_value[p] for p in read))
            xs += constants[i][: len(rule.parameters) + bool(recording.number[i])]
            try:
                with nonfinite("allow") if allows[i] else contextlib.nullcontext():
                    nodes.append(rule(*xs))
            except (ArithmeticError, ValueError) as error:
                if may_catch:
                    raise _AnotherPath(f"{error}, which its code may catch") from None
                if not is_value[i]:
                    raise _AnotherPath(f"{error}, of plain numbers") from None
                raise
        for guard in guards.get(i, ()):
            if nodes[i].data != guard.expected:
                raise _AnotherPath(f"the branch at {guard.line} goes the other way")
    return map_leaves(lambda x: _returned(x, nodes), recording.result)


def _numbers(call: Call) -> Iterator[Any]:
    """The floats and Values of a call, those in arrays too."""
    for x in call.floats:
        yield from x.ravel().tolist() if isinstance(x, np.ndarray) else (x,)


def _returned(x: Any, nodes: list[Value]) -> Any:
    if isinstance(x, ArrayOutput) and x.is_value:
        made = x.fixed.astype(object)
        made[x.places] = [nodes[p] for p in x.positions.tolist()]
        return made.reshape(x.shape)
    if isinstance(x, ArrayOutput):
        return x.filled(np.array([nodes[p].data for p in x.positions.tolist()], np.float64))
    if not isinstance(x, Output):
        return x
    return nodes[x.position] if x.is_value else x.plain(nodes[x.position].data)


def _why_not(selection: Selection, ints: Sequence[int]) -> str:
    """Which guard on integers does not hold."""
    values = replace(selection.program, guards=()).evaluate(ints)
    if values is not None:
        for guard in selection.program.guards:
            if not guard.holds(values):
                found = bool(values[guard.node]) if guard.truth else values[guard.node]
                return f"what an integer decides at {guard.line} is {found}, not {guard.expected}"
    return "an integer selects what is not there"
