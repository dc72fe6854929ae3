"""Calls of a function that keeps numbers outside, such as a counter of its calls.

In: the places that it was seen to change. Out: a ``Keeping``: a dispatch of the function in which
these numbers are arguments and results, and what happens around a call of it: the numbers are read
before, and written once the replay has succeeded. A call that runs eagerly does as it always did.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.captured import MISSING
from chainrule.compiler.capture.outside import Outside, Place, parted
from chainrule.compiler.capture.tracing import KeepingTracer
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.variants import Variant
from chainrule.trees import Branch, Dict, List, Node, Record, field_names

MOST = 8  # times that more places were found, before the function runs eagerly


class Keeping:
    """What serves the calls of a function that keeps numbers outside."""

    def __init__(self, of: Dispatch, places: Iterable[Place], found: int = 1) -> None:
        """``of``: the function's own dispatch; ``found``: how often places were."""
        self._outside, self._of, self._found = Outside(places), of, found
        tracer = KeepingTracer.of(of.function, self._outside, exact=of.options.lift is False)
        #: what finds the path of a call with the numbers among its arguments and results
        self.dispatch = Dispatch(of.function, replace(of.options, sizes=None), tracer, of)
        self.dispatch.may_keep = found < MOST
        #: what may be an argument too, by the kind and size of such an argument
        self._aliases = [p.holder for p in self._outside.places if _may_be_passed(p.holder)]

    def begin(self) -> tuple[Any, ...]:
        """The numbers, as further arguments of a call."""
        return self._outside.read()

    def call(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], differentiate: bool
    ) -> tuple[Call | None, tuple[Any, ...]]:
        """A call with the numbers among its arguments, and these; None where one is not there."""
        before = self.begin()
        if any(x is MISSING for x in before):
            return None, before
        refusal = self._outside.refusal(before)
        given = arguments if refusal is not None else (*arguments, *before)
        call = flatten_call(given, keywords, differentiate)
        if call.roots:
            refusal = "it keeps numbers outside, and is passed objects or functions"
        if refusal is None and self._is_passed(_containers(call), arguments, keywords):
            refusal = "it changes something outside that is an argument too"
        call.refused = call.refused or refusal
        return call, before

    def finish(self, before: Sequence[Any], pair: Any) -> tuple[Any] | None:
        """Keep the numbers that a call left, and what it returned; None where others came first."""
        result, after = parted(pair)
        return (result,) if self._outside.commit(before, after) else None

    def answered(self, arguments: tuple[Any, ...]) -> bool:
        """Whether the last answer of the gate is good: no argument is what the function changes."""
        if not self._aliases:
            return True
        variant = self.dispatch.gate.answered
        return variant is not None and not self._is_passed(variant.containers, arguments, {})

    @staticmethod
    def note(variant: Variant, call: Call) -> None:
        """Remember which containers are in calls that a variant answers."""
        if variant.containers is None:
            variant.containers = _containers(call)

    def _is_passed(self, containers: Any, arguments: Any, keywords: dict[str, Any]) -> bool:
        """Whether something that holds numbers outside is, or is in, an argument."""
        alike = [x for x in self._aliases if containers is None or _kind_of(x) in containers]
        ids = set(map(id, alike))
        return bool(alike) and any(_reaches(x, ids) for x in (*arguments, *keywords.values()))

    def extend(self) -> None:
        """Start again with more places, if a recorded run was seen to change others.

        Those that the function does not reach any more are left out.
        """
        changes, self.dispatch.changes = self.dispatch.changes, ()
        if not changes:
            return
        captured, known = self.dispatch.captured, self._outside.places
        seen = set() if captured is None else captured.reached
        reached = [p for p in known if p.identity in seen or id(p.holder) in seen]
        found = self._found + (len(reached) == len(known))
        self._of.keeping = Keeping(self._of, (*reached, *changes), found)


def note_changes(dispatch: Dispatch) -> None:
    """Serve later calls in this way, if one was seen to change numbers outside."""
    if dispatch.changes and dispatch.keeping is None and not dispatch.follows:
        dispatch.keeping = Keeping(dispatch, dispatch.changes)


def _may_be_passed(holder: Any) -> bool:
    """Whether an argument of this type is looked into, and not refused."""
    return type(holder) in (dict, list) or dataclasses.is_dataclass(type(holder))


def _kind_of(holder: Any) -> Any:
    kind = type(holder)
    return (kind, len(holder)) if kind in (dict, list) else kind


def _containers(call: Call) -> frozenset[Any]:
    """The kinds of containers among a call's arguments, with their sizes."""
    found = set()
    stack: list[Node] = [*call.structure[0], *call.structure[1].values()]
    while stack:
        node = stack.pop()
        if isinstance(node, (List, Dict)):
            found.add((dict if isinstance(node, Dict) else list, len(node.items)))
        elif isinstance(node, Record):
            found.add(node.type)
        if isinstance(node, Branch):
            stack.extend(set(node.items))
    return frozenset(found)


def _reaches(x: Any, ids: set[int]) -> bool:
    """Whether a tree of arguments has one of some objects in it."""
    if id(x) in ids:
        return True
    inside: Iterable[Any] = ()
    if isinstance(x, (list, tuple, deque)):
        inside = x
    elif isinstance(x, dict):
        inside = x.values()
    elif isinstance(x, SimpleNamespace):
        inside = vars(x).values()
    elif isinstance(x, np.ndarray) and x.dtype == object:
        inside = x.flat
    elif dataclasses.is_dataclass(x) and not isinstance(x, type):
        inside = [getattr(x, name, None) for name in field_names(type(x))]
    return any(_reaches(item, ids) for item in inside)
