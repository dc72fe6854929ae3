"""Why a function has several recordings, in words, and what to write instead.

In: the structures of its arguments, with their variants. Out: ``Reason``s: lines at which a
recording holds for one case only, and arguments that are of another structure in other calls.
"""

from __future__ import annotations

import datetime
import enum
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.integers import ITEMS, TEXT, IntegerGuard
from chainrule.compiler.capture.places import INSIDE, RETURNED
from chainrule.compiler.formulas.input_names import parameters, paths
from chainrule.compiler.runtime.variants import Structure, Variant
from chainrule.trees import Branch, Deque, Dict, List, Node, Numbers, Static, Text, Tuple

SEVERAL = 4  # recordings, before it is said that each is for one case only


@dataclass(frozen=True)
class Reason:
    """Why there is more than one recording, and what to write instead."""

    text: str
    advice: str = ""

    def __str__(self) -> str:
        return self.text

    @property
    def is_length(self) -> bool:
        """Whether lists, texts or arrays of other lengths or shapes are the reason."""
        return self.advice == _LENGTH


_STATIC = (
    "; use it in arithmetic, comparisons and subscripts only, and as a key where code does no more "
    "than to store, read, count and go through, or pass what it selects"
)
_TEXT = (
    "; compare it, or look it or its characters up in a dict or list, only, or pass its place in a "
    "list of all texts"
)
_ITEMS = "; where these vary, add up into a list that has a place for every key"
_BRANCH = "; write where(condition, a, b) to compute both sides"
_CALLED = (
    "; each order of the numbers has a recording of its own: choose among the numbers themselves, "
    "one by one, with max(...), min(...) or where(...), if that will do"
)
_RETURNED = "; return a number of it, float(...), or where(..., 1.0, 0.0) of a truth"
_LENGTH = "; pad it to one length, and pass how many of its items count"
_KEYS = "; pass a list that has a place for every key"
_KIND = "; pass it as the same type in all calls"
_OBJECT = "; pass the numbers that are read of it"
_UNKNOWN = "they pass lists of other lengths, or other texts or objects, and are recorded each"
_ITEM = "[…]"  # after a path: whichever item
_INSTEAD: dict[type, str] = {
    str: "; pass its place in a list of all texts, an integer",
    enum.Enum: "; pass a number that stands for it",
    np.ndarray: "; pass it as an array of int64 or float64, or as a list of bools",
    datetime.date: "; pass a number, as its toordinal()",
    datetime.timedelta: "; pass a number, as its total_seconds()",
}


def reasons_for_recordings(variants: Iterable[Variant]) -> dict[Reason, int]:
    """Why there are several recordings: the lines that each depends on, and how many do."""
    found = Counter(r for v in variants for r in dict.fromkeys(r for r, _ in _expected(v)))
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _expected(variant: Variant) -> Iterator[tuple[Reason, Any]]:
    """What a recording depends on, and what it expects there, which tells it from others."""
    integers = variant.recording.selection.program.guards
    yield from [(_static(g), g.expected) for g in integers if not g.truth]
    yield from [(_branching(g), g.expected) for g in integers if g.truth]
    data = dict.fromkeys(variant.settled)
    for line in data:  # each expects another number
        yield Reason(f"a number passed as data is static at {line}", _STATIC), variant
    for guard in variant.recording.guards:
        if guard.line not in data:
            yield Reason(f"a branch at {guard.line}", _of_branch(guard.line)), guard.expected


def _static(guard: IntegerGuard) -> Reason:
    """An integer must be the same one in other calls."""
    if guard.line.endswith(ITEMS):
        return Reason(f"the number of items is static at {guard.line}", _ITEMS)
    if guard.line.endswith(TEXT):
        return Reason(f"a text is static at {guard.line.removesuffix(TEXT)}", _TEXT)
    advice = _RETURNED if guard.line.endswith(RETURNED) else _STATIC
    return Reason(f"an integer is static at {guard.line}", advice)


def _branching(guard: IntegerGuard) -> Reason:
    return Reason(f"a branch depends on integers at {guard.line}", _of_branch(guard.line))


def _of_branch(line: str) -> str:
    """What to write instead of a branch at a line."""
    if line.endswith(RETURNED):
        return _RETURNED
    return _CALLED if line.endswith(INSIDE) else _BRANCH


# --- arguments that differ ------------------------------------------------------------------------


def differing_argument(
    function: Callable[..., Any], structures: Mapping[Any, Structure]
) -> Reason | None:
    """Which argument has most structures among recorded calls, and how they differ; or None."""
    recorded = [key for key, structure in structures.items() if structure.variants]
    recorded = [key for key in recorded if isinstance(key, tuple)]  # of a file's, once it is called
    met: dict[str, dict[Node, None]] = {}
    for (_, arguments, named, _), _ in recorded:
        words = parameters(function, len(arguments))
        for word, node in (*zip(words, arguments, strict=True), *named):
            met.setdefault(word, {})[node] = None
    word, nodes = max(met.items(), key=lambda item: len(item[1]), default=("", {}))
    if len(nodes) < 2:
        return None
    pairs = itertools.pairwise(nodes)
    counted = Counter(r for a, b in pairs for r in itertools.islice(_differences(a, b, word), 1))
    return counted.most_common(1)[0][0] if counted else None


def _differences(a: Node, b: Node, path: str) -> Iterator[Reason]:
    """How the nodes of an argument, or of a part of it, differ."""
    if a is b:
        return
    whole = path.removesuffix(_ITEM)
    name = f"argument {whole!r}" if whole is path else f"an item of argument {whole!r}"
    if type(a) is not type(b):
        yield Reason(f"{name} is of other types in most calls", _KIND)
    elif isinstance(a, Dict) and isinstance(b, Dict) and a.keys != b.keys:
        yield Reason(f"{name} has other keys in most calls", _KEYS)
    elif isinstance(a, Branch) and isinstance(b, Branch):
        if len(a.items) != len(b.items):
            yield Reason(f"{name} has another length in most calls", _LENGTH)
            return
        is_list = isinstance(a, List | Tuple | Deque)
        inside = (
            itertools.repeat(f"{path.removesuffix(_ITEM)}{_ITEM}") if is_list else paths(a, path)
        )
        for x, y, inner in zip(a.items, b.items, inside, strict=False):
            yield from _differences(x, y, inner)
    elif isinstance(a, Text | Numbers):
        what = "shape" if isinstance(a, Numbers) and len(a.shape) > 1 else "length"
        yield Reason(f"{name} has another {what} in most calls", _LENGTH)
    elif isinstance(a, Static) and isinstance(b, Static):
        if a.type is not b.type:
            yield Reason(f"{name} is of other types in most calls", _KIND)
            return
        instead = next((x for kind, x in _INSTEAD.items() if issubclass(a.type, kind)), _OBJECT)
        what = "text" if a.type is str else a.type.__name__
        if a.type is np.ndarray:
            what = f"array of {np.dtype(a.value[0]).name}"
        yield Reason(f"{name} is another {what} in most calls", instead)


# --- which of them it is --------------------------------------------------------------------------


def most_frequent(
    function: Callable[..., Any], structures: Mapping[Any, Structure]
) -> Reason | None:
    """Why most of the recordings of a function were made, if that is known.

    Several in one structure are for lines at which something is static or branches; those of other
    structures would have been made anyway. But where these expect other things at one line, and
    calls of a recorded structure are not served, they would not be if all had one structure either.
    """
    known = [structure for structure in structures.values() if structure.variants]
    variants = [variant for structure in known for variant in structure.variants]
    reasons = reasons_for_recordings(variants)
    expected = {pair for variant in variants for pair in _expected(variant)}
    differ = {reason for reason, n in Counter(reason for reason, _ in expected).items() if n > 1}
    lines = [reason for reason in reasons if reason in differ]
    hits = sum(structure.hits for structure in known)
    if lines and sum(structure.misses for structure in known) >= hits:
        return lines[0]
    if 2 * len(known) > len(variants):
        argument = differing_argument(function, structures)
        texts = [reason for reason in reasons if reason.advice == _TEXT]
        if argument is not None and (not texts or argument.advice != _INSTEAD[str]):
            return argument
        if texts:
            return texts[0]
    return next(iter(reasons), None)


def own_paths(reason: Reason | None) -> str:
    """Why recordings do not pay for a function, and what to write instead."""
    why = _UNKNOWN if reason is None else f"{reason}{reason.advice}"
    return f"its recordings hold for one case each, and served few calls: {why}"
