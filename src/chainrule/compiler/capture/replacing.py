"""What is replaced while recording: ``max``, ``min``, ``math``, ``np.array`` and standard output.

Python's own max and min compare and pick, one guard for each comparison. While any thread records
they are replaced by a pair that records one instruction instead; so are the functions of ``math``.
Other threads get the originals' answers.
"""

from __future__ import annotations

import bisect
import builtins
import heapq
import math
import operator
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.changing import CHANGERS
from chainrule.compiler.capture.choosing import SEARCHES, extreme_by_key, extreme_of_integers
from chainrule.compiler.capture.mathematics import FUNCTIONS, MATH
from chainrule.compiler.capture.recorder import Recorder, extreme_start
from chainrule.compiler.capture.sorting import FRONTS
from chainrule.compiler.capture.standins import Detached, is_narrow
from chainrule.compiler.capture.substitutes import LINALG, NUMPY
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core import errors, functions, ops
from chainrule.core.backend import Value, kernels, modes
from chainrule.core.ops import Op


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Inside this block the engine tells the recorder of every node of this thread."""
    with _replaced():
        before = modes.recorder
        modes.recorder = recorder
        try:
            yield
        finally:
            modes.recorder = before


@contextmanager
def choices_watched() -> Iterator[list[set[type]]]:
    """Inside this block, the types of the items of each ``max`` and ``min`` of this thread."""
    with _replaced():
        found: list[set[type]] = []
        _watched.types = found
        try:
            yield found
        finally:
            _watched.types = None


_watched = threading.local()
_lock = threading.Lock()
_users = 0
_FLOATS = frozenset((float, np.float64))
_BISECT: dict[str, Any] = CHANGERS[bisect] | {
    name: SEARCHES[getattr(bisect, name)] for name in ("bisect_left", "bisect_right", "bisect")
}
_HEAPQ: dict[str, Any] = CHANGERS[heapq] | {
    name: FRONTS[getattr(heapq, name)] for name in ("nlargest", "nsmallest")
}


def _replacement(original: Callable[..., Any], rule: Op) -> Callable[..., Any]:
    start = extreme_start(rule)

    def extreme(*arguments: Any, **keywords: Any) -> Any:
        recorder = modes.recorder
        watched: list[Any] | None = getattr(_watched, "types", None)
        if watched is not None and recorder is None:
            items = [] if keywords else list(arguments[0] if len(arguments) == 1 else arguments)
            watched.append(set(map(type, items)))
            return original(*arguments, **keywords) if keywords else original(items)
        if recorder is not None and recorder.both and keywords.keys() == {"key"} and arguments:
            return extreme_by_key(original, arguments, keywords["key"])
        if recorder is None or keywords:
            return original(*arguments, **keywords)
        items = list(arguments[0]) if len(arguments) == 1 else list(arguments)
        if kernels is not None and not recorder.both:
            found = kernels.choose(items, rule, start)
            if found is not None:
                return found
        if set(map(type, items)) == {Detached}:
            kinds = {x.kind for x in items}
            if len(kinds) == 1 and kinds <= _FLOATS:
                return recorder.extreme(items, rule)
        classes = {x.__class__ for x in items}  # of several the answer's is one of them
        first = next((x for x in items if type(x) is Traced), None)
        if classes <= {int, np.int64} and any(type(x) is Whole for x in items):
            if len(classes) == 1 and first is None:
                return extreme_of_integers(items, original.__name__ == "max")
            items = [x.plain() if type(x) is Whole else x for x in items]
        if first is not None and len(classes) == 1 and len(items) > 1 and np.bool_ not in classes:
            others = [x for x in items if x is not first]
            return first.step(original.__name__, *others) if others else first
        known = all(isinstance(x, Value) or recorder.detached_operand(x) is not None for x in items)
        numbers = any(type(x) is Detached for x in items) and len(classes) == 1
        numbers = numbers or (any(isinstance(x, Value) for x in items) and not recorder.exact)
        if not known or not numbers or any(map(is_narrow, items)):
            return original(items) if len(arguments) == 1 else original(*items)
        return recorder.extreme(items, rule)

    extreme.__name__ = original.__name__
    setattr(extreme, REPLACES, original)
    return extreme


_EXTREMES = {
    "max": _replacement(builtins.max, ops.first_max),
    "min": _replacement(builtins.min, ops.first_min),
}
_Places = tuple[tuple[str, Any, Any], ...]  # names, what is under them, and what shall be
#: the names of each module, and what is put there; and the same the other way round
_SUBSTITUTES: list[tuple[dict[str, Any], _Places, _Places]] = [
    (
        vars(module),
        tuple([(name, getattr(x, REPLACES), x) for name, x in found.items()]),
        tuple([(name, x, getattr(x, REPLACES)) for name, x in found.items()]),
    )
    for module, found in (
        (builtins, _EXTREMES),
        (math, MATH),
        (bisect, _BISECT),
        (heapq, _HEAPQ),
        (operator, CHANGERS[operator]),
        (functions, FUNCTIONS),
        (np, NUMPY),
        (np.linalg, LINALG),
    )
]


class _Muted:
    """Standard output that notes what a recorded function prints instead of printing it."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Pass on what other threads write."""
        if modes.recorder is not None:
            modes.recorder.refused = modes.recorder.refused or f"it prints at {errors.caller()}"
            return len(text)
        return int(self.stream.write(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several times."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _exchange(names: dict[str, Any], places: _Places) -> None:
    """Put some objects in the places of others, but where the user has put something else."""
    if kernels is not None:
        kernels.exchange(names, places)
    else:
        names.update([(name, after) for name, x, after in places if names.get(name) is x])


@contextmanager
def _replaced() -> Iterator[None]:
    """What there are substitutes for, and the standard streams, as long as any thread records."""
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            for names, substituted, _ in _SUBSTITUTES:
                _exchange(names, substituted)
            sys.stdout, sys.stderr = _Muted(sys.stdout), _Muted(sys.stderr)
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                for names, _, restored in _SUBSTITUTES:
                    _exchange(names, restored)
                if isinstance(sys.stdout, _Muted):
                    sys.stdout = sys.stdout.stream
                if isinstance(sys.stderr, _Muted):
                    sys.stderr = sys.stderr.stream
