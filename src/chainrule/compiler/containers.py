"""Which integers selected the container that another integer now reads from.

In ``W[a][b]`` the row depends on ``a``, so the number read depends on both integers at once, and
having seen each of them apart is no proof. In: the frame that reads. Out: the slots of the other
integers. It looks only at the bytecode before the read and at names, and runs nothing of the
user's; what it cannot follow, such as the result of a call, gives no slots.
"""

from __future__ import annotations

import dis
import functools
import types
from typing import Any

import numpy as np

from chainrule.engine import Value

_UNKNOWN: Any = object()
_LOST: tuple[int, Any] = (-1, _UNKNOWN)
_SKIPPED = frozenset(("CACHE", "EXTENDED_ARG", "NOP", "PRECALL"))
_LOCALS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_NAME", "LOAD_CLOSURE")


@functools.lru_cache(maxsize=1000)
def _steps(code: types.CodeType) -> tuple[list[dis.Instruction], dict[int, int]]:
    steps = [s for s in dis.get_instructions(code) if s.opname not in _SKIPPED]
    return steps, {s.offset: k for k, s in enumerate(steps)}


class _Reader:
    """Evaluates the expressions before a read, backwards over the bytecode."""

    def __init__(self, frame: types.FrameType, kind: Any) -> None:
        self.frame, self.kind = frame, kind
        self.steps, self.places = _steps(frame.f_code)
        self.slots: set[int] = set()

    def container(self) -> Any:
        """What is read from; ``slots`` then holds the integers in its own expression."""
        k = self.places.get(self.frame.f_lasti)
        if k is None:
            return _UNKNOWN
        start, index = self._value(k - 1)
        self.slots = set()
        if isinstance(index, tuple):  # W[a, b] reads by all of them
            self.slots = {i.slot for i in index if type(i) is self.kind}
        return self._value(start - 1)[1] if start > 0 else _UNKNOWN

    def _value(self, k: int) -> tuple[int, Any]:
        """The first step and the value of the expression that ends with step k."""
        if k < 0:
            return _LOST
        step = self.steps[k]
        name = step.opname
        if name.startswith(_LOCALS):
            return k, self.frame.f_locals.get(step.argval, _UNKNOWN)
        if name == "LOAD_GLOBAL":
            return k, self.frame.f_globals.get(step.argval, _UNKNOWN)
        if name == "LOAD_CONST":
            return k, step.argval
        if name == "LOAD_ATTR":
            start, x = self._value(k - 1)
            return start, getattr(x, "__dict__", {}).get(step.argval, _UNKNOWN)
        if name == "BUILD_TUPLE":
            return self._tuple(k, step.arg or 0)
        if name == "BUILD_MAP":
            start, parts = self._tuple(k, 2 * (step.arg or 0))
            known = start >= 0 and all(isinstance(x, (str, int)) for x in parts[::2])
            return start, dict(zip(parts[::2], parts[1::2], strict=True)) if known else _UNKNOWN
        if name == "BINARY_SUBSCR" or (name == "BINARY_OP" and step.argrepr == "[]"):
            return self._item(k)
        return _LOST

    def _tuple(self, k: int, count: int) -> tuple[int, Any]:
        parts: list[Any] = []
        for _ in range(count):
            k, x = self._value(k - 1)
            if k < 0:
                return _LOST
            parts.insert(0, x)
        return k, tuple(parts)

    def _item(self, k: int) -> tuple[int, Any]:
        i: Any
        middle, i = self._value(k - 1)
        start, x = self._value(middle - 1)
        if start < 0:
            return _LOST
        if type(i) is self.kind:
            self.slots.add(i.slot)
            i = i.number
        if i is _UNKNOWN or type(x) not in (list, tuple, dict, np.ndarray):
            return start, _UNKNOWN
        try:
            return start, x[i]
        except (LookupError, TypeError):
            return start, _UNKNOWN


def joint_slots(
    index: Any, frame: types.FrameType, known: dict[int, tuple[Any, set[int]]]
) -> set[int]:
    """The slots that a plain number read by ``index`` depends on together with its own.

    ``known`` belongs to the recorder: the containers that integers selected so far, and which.
    """
    reader = _Reader(frame, type(index))
    container = reader.container()
    slots = set(reader.slots)
    if container is _UNKNOWN:
        return slots
    for x in (container, getattr(container, "base", None)):  # a row of an array is a view
        slots |= known.get(id(x), (x, set()))[1]
    if isinstance(container, np.ndarray):
        if container.ndim > 1:
            known.setdefault(id(container), (container, set()))[1].add(index.slot)
        return slots - {index.slot}
    if type(container) not in (list, tuple):
        return slots - {index.slot}
    chosen = container[index.number] if -len(container) <= index.number < len(container) else None
    if type(chosen) in (list, tuple, dict):
        known.setdefault(id(chosen), (chosen, set()))[1].update(slots | {index.slot})
    # A Value that is selected is an operand, and operands are told apart by the recordings.
    return set() if isinstance(chosen, Value) else slots - {index.slot}
