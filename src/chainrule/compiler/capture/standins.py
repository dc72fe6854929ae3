"""What a recorded function sees in place of plain numbers and truths.

A recording is replayed with other inputs, so a number that the function read from ``.data``, an
integer it was passed, and the outcome of a comparison must not vanish into Python unseen. Each has
a stand-in here that records what is done with it, or raises ``Unrecordable`` where it cannot.
"""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from chainrule.compiler.capture.containers import Integer, StandIn
from chainrule.core import errors, ops
from chainrule.core.backend import Value, nonfinite

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder


class Unrecordable(BaseException):
    """The function does what a recording cannot repeat; it runs eagerly instead.

    Not an Exception: the function's own ``except Exception`` must not swallow it.
    """


class Detached(StandIn):
    """The float ``v.data`` while recording: a number without gradient, known to the recording.

    It claims to be a float, but is no subclass: C code reads a subclass without asking, and
    ``math.isclose(x.data, 0)`` would be a branch nobody saw.
    """

    __slots__ = ("_recorder", "_value")

    def __init__(self, recorder: Recorder, value: Value) -> None:
        self._recorder = recorder
        self._value = value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def behind(self) -> Value:
        """The Value whose number this is."""
        return self._value

    def _combine(self, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Float arithmetic, which never raises in + - *, on the values that stand behind."""
        right = self._recorder.detached_operand(other)
        if right is None:
            return NotImplemented
        with nonfinite("allow"):
            return Detached(self._recorder, function(self._value, right))

    def __add__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: a + b)

    def __radd__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: a * b)

    def __rmul__(self, other: Any) -> Any:
        return self._combine(other, lambda a, b: a * b)

    def _divide(self, a: Any, b: Any) -> Any:
        # Two floats divide in one operation, not by a * b**-1; by zero they raise: flagged.
        return Detached(self._recorder, Value._apply_op(ops.divide, (a, b), ()))

    def __truediv__(self, other: Any) -> Any:
        right = self._recorder.detached_operand(other)
        return NotImplemented if right is None else self._divide(self._value, right)

    def __rtruediv__(self, other: Any) -> Any:
        left = self._recorder.detached_operand(other)
        return NotImplemented if left is None else self._divide(left, self._value)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return NotImplemented
        return Detached(self._recorder, self._value ** self._recorder.exponent(other))

    def __neg__(self) -> Detached:
        return Detached(self._recorder, self._value * -1.0)

    def __pos__(self) -> Detached:
        return self

    def __abs__(self) -> Detached:
        return Detached(self._recorder, Value._apply_op(ops.abs, (self._value,), ()))

    def __bool__(self) -> bool:
        return bool(self._recorder.truth(self._value))

    def _compare(self, other: Any, comparison: int) -> Any:
        return self._recorder.compare(self._value, other, comparison)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, 0)

    def __le__(self, other: Any) -> Any:
        return self._compare(other, 1)

    def __eq__(self, other: Any) -> Any:
        return self._compare(other, 2)

    def __ne__(self, other: Any) -> Any:
        return self._compare(other, 3)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, 4)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, 5)

    def __getattr__(self, name: str) -> Any:
        return self._leak(f"float.{name}")

    def _leak(self, use: str) -> Any:
        self._recorder.forbid(f"a number from .data used through {use}")


def _leaking(name: str) -> Callable[..., Any]:
    def method(self: Detached, *_: Any) -> Any:
        return self._leak(name)

    return method


for _name in (
    *("__float__", "__int__", "__index__", "__hash__", "__format__", "__repr__", "__str__"),
    *("__round__", "__trunc__", "__floor__", "__ceil__", "__complex__", "__reduce_ex__"),
    *("__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__divmod__", "__rdivmod__"),
    "__rpow__",
):
    setattr(Detached, _name, _leaking(_name))


class Condition(StandIn):
    """The truth of a comparison while recording. ``bool()`` of it is a guard; ``where`` takes it
    as it is."""

    __slots__ = ("_recorder", "negated", "node")

    def __init__(self, recorder: Recorder, node: Value, negated: bool = False) -> None:
        self._recorder = recorder
        self.node = node
        self.negated = negated

    def __bool__(self) -> bool:
        truth = self.node._number != 0.0
        self._recorder.guard(self.node, truth)
        return truth is not self.negated

    def as_value(self) -> Value:
        """1 or 0, as a Value without gradient."""
        node = 1.0 - self.node if self.negated else self.node
        return self._recorder.detach(node)

    # As a number it is what Python's bool is, and then it is decided now.
    def __int__(self) -> int:
        return int(bool(self))

    __index__ = __int__

    def __float__(self) -> float:
        return float(bool(self))

    def __hash__(self) -> int:
        return hash(bool(self))

    def __eq__(self, other: object) -> Any:
        return bool(self) == (bool(other) if isinstance(other, Condition) else other)

    def __repr__(self) -> str:
        return repr(bool(self))

    def __and__(self, other: Any) -> Any:
        return bool(self) & other

    def __or__(self, other: Any) -> Any:
        return bool(self) | other

    def __add__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Value) else int(self) + other

    def __radd__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Value) else other + int(self)

    def __sub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Value) else int(self) - other

    def __rsub__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Value) else other - int(self)

    def __mul__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Value) else int(self) * other

    def __rmul__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Value) else other * int(self)


class Index(Integer):
    """An integer argument while recording.

    Selecting an element (``__index__``) keeps it a run-time index; arithmetic with a Value makes it
    a run-time number, and so it stays with a minus before it; everything else uses the integer
    itself, and then the recording holds for that integer only.
    """

    __slots__ = ("_recorder", "negative")

    def __init__(self, recorder: Recorder, slot: int, number: int, negative: bool = False) -> None:
        self._recorder = recorder
        self.slot = slot
        self.number = number
        self.negative = negative  # the number is minus the argument

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return int

    def __index__(self) -> int:
        frame, recorder = sys._getframe(1), self._recorder
        if self.negative or not _reads_an_item(frame):
            return self.static()
        recorder.indexed.add(self.slot)
        recorder.reads.note(self, frame)
        return self.number

    def __neg__(self) -> Index:
        return Index(self._recorder, self.slot, -self.number, not self.negative)

    def __pos__(self) -> Index:
        return self

    def static(self) -> int:
        """The integer itself: from here on the recording is for this integer."""
        self._recorder.static.setdefault(self.slot, errors.caller())
        return self.number

    def __getattr__(self, name: str) -> Any:
        return getattr(self.static(), name)


_READ, _SLICE = dis.opmap.get("BINARY_SUBSCR", -1), dis.opmap.get("BUILD_SLICE", -1)
_OPERATION = dis.opmap.get("BINARY_OP", -1)  # from Python 3.14 on, with this argument
_READ_ARGUMENT = next(
    (i for i, (name, _) in enumerate(getattr(dis, "_nb_ops", ())) if name == "NB_SUBSCR"), -1
)


def _reads_an_item(frame: types.FrameType) -> bool:
    """Whether the instruction that asks for the index is a plain ``xs[i]``.

    Anything else (``xs[i] = y``, a slice, ``range(i)``, ``xs.pop(i)``) uses the integer itself.
    """
    code, at = frame.f_code.co_code, frame.f_lasti
    if at >= 2 and code[at - 2] == _SLICE:
        return False
    return code[at] == _READ or (code[at] == _OPERATION and code[at + 1] == _READ_ARGUMENT)


def _static_use(name: str) -> Callable[..., Any]:
    def method(self: Index, *arguments: Any) -> Any:
        if any(isinstance(x, Value) or type(x) is Detached for x in arguments):
            return NotImplemented  # they know how to take a run-time number
        plain = [x.static() if type(x) is Index else x for x in arguments]
        return getattr(self.static(), name)(*plain)

    return method


for _name in (
    *"eq ne lt le gt ge hash bool int float str repr format round trunc floor ceil".split(),
    *"add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod".split(),
    *"divmod rdivmod pow rpow and rand or ror xor rxor lshift rlshift rshift rrshift".split(),
    *"abs invert reduce_ex".split(),
):
    setattr(Index, f"__{_name}__", _static_use(f"__{_name}__"))
