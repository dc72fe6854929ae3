"""Integers that depend on numbers: counts under conditions, and the places of largest items.

A traced integer is known before the numbers of a call are. How many of them are positive, or which
one is the largest, is known only when the recording runs: such an integer is a number of the
recording, a ``Whole``, with the range that it must be in. Arithmetic that stays in the range of
exact floats is recorded, and so are comparisons, and reads by it: of a few items, one is selected.
Everything else uses the integer itself, and then the recording holds for that integer only.

They are made only where both sides of branches are computed; see ``merging``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.integers import COMPARISONS, EXACT
from chainrule.compiler.capture.operators import BINARY
from chainrule.compiler.capture.standins import Condition, Detached, StandIn, is_numpys, plain
from chainrule.compiler.capture.traced import Traced
from chainrule.core import ops
from chainrule.core.backend import Value

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

_KINDS = (int, np.int64)


class Whole(StandIn):
    """An integer that is a number of the recording, in the range from ``low`` to ``high``."""

    __slots__ = ("_recorder", "_value", "high", "is_data", "kind", "low")
    answers = True

    def __init__(
        self,
        recorder: Recorder,
        value: Value,
        low: int,
        high: int,
        is_data: bool = False,
        kind: type = int,
    ) -> None:
        self._recorder, self._value = recorder, value
        self.low, self.high = low, high
        self.is_data, self.kind = is_data, kind  # int or np.int64

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind

    @property
    def value(self) -> int:
        """The integer in this recording. Whoever looks at it must make it static."""
        return int(self._value._number)

    def plain(self, use: str = "") -> Any:
        """The integer itself: from here on the recording is for this integer."""
        found = self._value._number
        self._recorder.guard(Value._apply_op(ops.equal, (self._value, found), ()), True)
        return self.kind(int(found))

    def as_kind(self, kind: type) -> Whole:
        """The same integer as Python's or numpy's."""
        return Whole(self._recorder, self._value, self.low, self.high, self.is_data, kind)

    def number(self) -> Detached:
        """The integer as a float."""
        kind = np.float64 if self.kind is not int else float
        return Detached(self._recorder, self._value, self.is_data, kind)

    def __bool__(self) -> bool:
        return bool(operator.ne(self, 0))

    def __neg__(self) -> Any:
        return operator.sub(0, self)

    def __pos__(self) -> Whole:
        return self

    def __abs__(self) -> Any:
        return self if self.low >= 0 else abs(self.plain())

    def __truediv__(self, other: Any) -> Any:
        other = _as_number(other)
        return NotImplemented if other is None else self.number() / other

    def __rtruediv__(self, other: Any) -> Any:
        other = _as_number(other)
        return NotImplemented if other is None else other / self.number()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain(), name)


def whole(x: Any) -> Whole | None:
    """An integer or a truth of Python's, or np.int64, as a Whole; None for anything else.

    A traced integer is one too: as a number it is refused at a call where floats would round it.
    """
    kind, sort = type(x), getattr(x, "__class__", None)
    if kind is Whole:
        return x  # type: ignore[no-any-return]
    if kind is Condition and x.kind is bool:
        return of_truth(x)
    if kind is Traced and x.kind in _KINDS and sort in _KINDS:
        return Whole(x._recorder, x._recorder.number_of(x), -EXACT, EXACT, True, x.kind)
    return None


def of_truth(test: Condition) -> Whole:
    """1 or 0."""
    return Whole(test._recorder, test._recorder.bit(test), 0, 1, test.is_data)


def _as_number(x: Any) -> Any:
    """An operand of a division, which is one of floats; None for what answers by itself."""
    found = whole(x)
    if found is not None:
        return found.number()
    if type(x) in (int, bool, np.int64) and -EXACT <= x <= EXACT:
        return np.float64(x) if type(x) is np.int64 else float(x)
    if isinstance(x, Value):
        return None
    return x if type(x) in (float, np.float64, Detached) else plain(x)


def _ends(x: Any) -> tuple[int, int]:
    """The range of an operand."""
    return (x.low, x.high) if type(x) is Whole else (int(x), int(x))


def _range(name: str, a: Any, b: Any) -> tuple[int, int]:
    """The range of a result."""
    function = getattr(operator, name)
    found = [function(x, y) for x in _ends(a) for y in _ends(b)]
    return min(found), max(found)


def _combined(name: str, swapped: bool) -> Callable[..., Any]:
    """Arithmetic with another integer; with a float it is one of floats."""
    method = f"__{'r' if swapped else ''}{name}__"

    def combine(self: Whole, other: Any) -> Any:
        if isinstance(other, Value) or type(other) is Detached:
            return NotImplemented
        if type(other) in (float, np.float64):
            return BINARY[method](self.number(), other)
        right = other if type(other) in (int, bool, np.int64) else whole(other)
        if right is None or is_narrow_integer(other):
            return BINARY[method](self.plain(), plain(other))
        pair = (right, self) if swapped else (self, right)
        low, high = _range(name, *pair)
        signed = name == "mul" and min(_ends(pair[0])[0], _ends(pair[1])[0]) < 0  # 0 * -1 is -0.0
        if low < -EXACT or high > EXACT or signed:
            return BINARY[method](self.plain(), plain(other))
        values = [x._value if type(x) is Whole else float(x) for x in pair]
        made = getattr(operator, name)(*values)
        data = all(x.is_data for x in pair if type(x) is Whole)
        kind = np.int64 if any(map(is_numpys, (self, other))) else int
        return Whole(self._recorder, made, low, high, data, kind)

    return combine


def is_narrow_integer(x: Any) -> bool:
    """Whether this is an integer of numpy's with fewer bits than 64, or a truth of numpy's."""
    return issubclass(x.__class__, np.generic) and x.__class__ is not np.int64


for _name in ("add", "sub", "mul"):
    setattr(Whole, f"__{_name}__", _combined(_name, False))
    setattr(Whole, f"__r{_name}__", _combined(_name, True))


def _compared(name: str, comparison: int) -> Callable[..., Any]:
    def compare(self: Whole, other: Any) -> Any:
        if isinstance(other, Value):
            return NotImplemented
        is_large = type(other) is int and not -EXACT <= other <= EXACT
        if is_large or is_narrow_integer(other):
            return BINARY[f"__{name}__"](self.plain(), plain(other))
        found = self._recorder.compare(self._value, other, comparison)
        if type(found) is not Condition:
            return BINARY[f"__{name}__"](self.plain(), other)
        if is_numpys(self) or is_numpys(other):
            found.kind = np.bool_
        is_data = self._recorder.is_data(other) or type(other) in (int, float)
        found.is_data = self.is_data and is_data
        return found

    return compare


for _k, _name in enumerate(COMPARISONS):
    setattr(Whole, f"__{_name}__", _compared(_name, _k))


def _static_use(name: str) -> Callable[..., Any]:
    def method(self: Whole, *others: Any) -> Any:
        if any(isinstance(x, Value) for x in others):
            return NotImplemented
        if name in BINARY:
            return BINARY[name](self.plain(), *map(plain, others))
        return getattr(self.plain(), name)(*map(plain, others))

    return method


for _name in (
    *("__index__", "__int__", "__float__", "__hash__", "__str__", "__repr__", "__format__"),
    *("__invert__", "__round__", "__trunc__", "__floor__", "__ceil__", "__reduce_ex__"),
    *(name for name in BINARY if name not in vars(Whole)),
):
    setattr(Whole, _name, _static_use(_name))

# Python's own messages name the types: "unsupported operand type(s) for +: 'int' and 'str'".
Whole.__name__ = Whole.__qualname__ = "int"


def _counted(name: str, decided: Callable[..., Any]) -> Callable[..., Any]:
    """Arithmetic of a truth: where both sides are computed, that of 1 or 0."""

    def method(self: Condition, other: Any) -> Any:
        known = type(other) in (int, bool, float, Whole) or whole(other) is not None
        if self._recorder.both and self.kind is bool and known:
            return getattr(whole(self), name)(other)
        return decided(self, other)

    return method


for _name in ("__add__", "__radd__", "__sub__", "__rsub__", "__mul__", "__rmul__"):
    setattr(Condition, _name, _counted(_name, getattr(Condition, _name)))
