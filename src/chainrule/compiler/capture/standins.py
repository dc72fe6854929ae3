"""What a recorded function sees in place of plain numbers and truths.

A recording is replayed with other inputs, so a number that the function read from ``.data``, an
integer it was passed, and the outcome of a comparison must not vanish into Python unseen. Each has
a stand-in here that records what is done with it, or raises ``Unrecordable`` where it cannot.
"""

from __future__ import annotations

import dis
import math
import operator
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture import places
from chainrule.compiler.capture.arithmetic import Number
from chainrule.compiler.capture.operators import BINARY, UNARY
from chainrule.core import ops
from chainrule.core.backend import Value, kernels, nonfinite
from chainrule.core.ops import Op

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder


class Unrecordable(BaseException):
    """The function does what a recording cannot repeat; it runs eagerly instead.

    Not an Exception: the function's own ``except Exception`` must not swallow it.
    """


class Unloaded(Unrecordable):
    """The function imports a module that nobody has imported yet: not known before it has run."""


class Followed(Unrecordable):
    """A number that follows the parameters is asked for, as by ``np.argsort``.

    Where both sides of branches are computed, more of such questions have an answer.
    """


@contextmanager
def by_numpy(recorder: Recorder) -> Iterator[None]:
    """Inside this block numbers are computed as numpy does, which raises nothing.

    But it warns, or does what ``np.errstate`` says: what is finite in the recording is flagged, so
    that a call in which it is not runs eagerly.
    """
    before, recorder.flags_finite = recorder.flags_finite, True
    try:
        with nonfinite("allow"):
            yield
    finally:
        recorder.flags_finite = before


class StandIn:
    """Base of what a recorded function sees in place of plain numbers."""

    __slots__ = ()
    answers = False  # it knows how to be computed with beside traced integers

    def plain(self, use: str) -> Any:
        """The object that Python would have; from here on the recording is for this one."""
        raise NotImplementedError


def plain(x: Any) -> Any:
    """A stand-in as the object that Python would have; anything else as it is."""
    return x.plain("arithmetic") if isinstance(x, StandIn) else x


def _is_nan(x: Any) -> bool:
    return isinstance(x, float) and math.isnan(x)


def is_numpys(x: Any) -> bool:
    """Whether this is a number of numpy's, whose arithmetic gives numpy's numbers."""
    return issubclass(x.__class__, np.generic)


def is_between_floats(x: Any) -> bool:
    """Whether this is an integer that no float is: Python's floats are compared with it exactly."""
    return type(x) is int and (x.bit_length() > 1023 or float(x) != x)


#: what C does with usual numbers, see ``Number``
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "radd": lambda a, b: b + a,
    "sub": lambda a, b: a - b,
    "rsub": lambda a, b: b - a,
    "mul": lambda a, b: a * b,
    "rmul": lambda a, b: b * a,
}


class Detached(StandIn, Number):
    """A float while recording: a number without gradient, known to the recording.

    It is ``v.data`` or, ``is_data``, a number that was passed or computed from such numbers alone.
    It claims to be a float, but is no subclass: C code reads a subclass without asking, and
    ``math.isclose(x.data, 0)`` would be an unseen branch. Where C asks for the number itself, data
    become static: the recording holds for this number only; a number that follows the
    parameters ends the recording.
    """

    __slots__ = ()

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind

    def beside(self, value: Value, *others: Any) -> Detached:
        """A number computed from this one and others."""
        data = self.is_data and all(x.is_data for x in others if type(x) is Detached)
        kind = np.float64 if any(map(is_numpys, (self, *others))) else float
        return Detached(self._recorder, value, data, kind)

    def as_kind(self, kind: type) -> Detached:
        """The same number as a float of Python's or numpy's."""
        return Detached(self._recorder, self._value, self.is_data, kind)

    def plain(self, use: str) -> Any:
        """The number itself: from here on the recording is for this number."""
        return self.kind(self._recorder.settle(self, use))

    def _rounds(self, *others: Any) -> bool:
        """Whether numpy rounds arithmetic with these to fewer bits than a float has."""
        return any(is_narrow(x) for x in (self, *others))

    def combined(self, name: str, other: Any) -> Any:
        """Float arithmetic, which never raises in + - *, on the values that stand behind."""
        right, function = self._recorder.detached_operand(other), _ARITHMETIC[name]
        if right is None:
            return NotImplemented
        if self._rounds(other):
            return function(self.plain("arithmetic"), plain(other))
        with by_numpy(self._recorder):
            return self.beside(function(self._value, right), other)

    def opposite(self) -> Any:
        """``-self``."""
        return -self.plain("arithmetic") if self._rounds() else self.beside(self._value * -1.0)

    def apply(self, row: Op, *operands: Any) -> Detached:
        """A function of floats, this one among them: a float, or it raises if Values do."""
        values = [self._recorder.detached_operand(x) for x in operands]
        data = all(x.is_data for x in operands if type(x) is Detached)
        return Detached(self._recorder, Value._apply_op(row, tuple(values), ()), data)

    def as_python(self, row: Op, *operands: Any) -> Detached:
        """The same by Python or ``math``, which raise whatever is allowed of Values."""
        with nonfinite("raise"):
            return self.apply(row, *operands)

    def as_numpy(self, row: Op, *operands: Any) -> Detached:
        """The same by numpy, which raises nothing; it warns, or does what ``np.errstate`` says."""
        with by_numpy(self._recorder):
            return self.apply(row, *operands).as_kind(np.float64)

    # Two floats divide in one operation, not by a * b**-1; by zero they raise: flagged.
    def _divided(self, a: Any, b: Any, other: Any) -> Any:
        if self._recorder.detached_operand(other) is None:
            return NotImplemented
        if self._rounds(other):
            return plain(a) / plain(b)
        if is_numpys(a) or is_numpys(b):
            return self.as_numpy(ops.divide, a, b)
        self._recorder.uses_math = True  # nan / 0.0 raises, and is no new nan: finite data only
        return self.as_python(ops.divide, a, b)

    def __truediv__(self, other: Any) -> Any:
        return self._divided(self, other, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._divided(other, self, other)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return NotImplemented
        if self._rounds(other):
            return self.plain("arithmetic") ** plain(other)
        if self.kind is float and self._recorder.is_exponent(other):
            return self.as_python(ops.integer_power, other, self)
        exponent = other
        if type(other) is Detached and self.is_data:
            exponent = other.plain("an exponent")
        self._recorder.refuse_own_arithmetic(exponent)
        exponent = self._recorder.exponent(exponent)
        if not is_numpys(self) and not is_numpys(other):
            with nonfinite("raise"):
                return self.beside(self._value**exponent)
        with by_numpy(self._recorder):
            return self.beside(self._value**exponent, other)

    def __rpow__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Value) else other ** self.plain("an exponent")

    def __pos__(self) -> Detached:
        return self

    def __abs__(self) -> Any:
        if self._rounds():
            return abs(self.plain("arithmetic"))
        return self.apply(ops.abs, self).as_kind(self.kind)

    def __bool__(self) -> bool:
        return bool(self._recorder.truth(self._value))

    def _compare(self, other: Any, comparison: int) -> Any:
        exactly = is_between_floats(other) and not is_numpys(self)
        if exactly or self._rounds(other):
            if isinstance(other, Value):
                return NotImplemented
            name = ("lt", "le", "eq", "ne", "gt", "ge")[comparison]
            return getattr(operator, name)(self.plain("a comparison"), plain(other))
        if comparison == 2 and (type(other) is Detached or _is_nan(other)):
            # In a list, by ``in`` or ``==``, one nan is equal to itself: finite data only.
            self._recorder.uses_math = True
        found = self._recorder.compare(self._value, other, comparison)
        if type(found) is Condition and (is_numpys(self) or is_numpys(other)):
            found.kind = np.bool_
        if type(found) is Condition:
            is_data = self._recorder.is_data(other) or type(other) in (int, float)
            found.is_data = self.is_data and is_data
        return found

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
        by_python = _reads_attribute(sys._getframe(1))
        row = None if by_python or self._rounds() else UNARY.get(name)
        if row is None and not hasattr(self.kind, name):
            raise AttributeError(without(self.kind, name))
        if row is not None:  # numpy's functions of an array of objects ask their items
            return lambda: self.as_numpy(row, self)
        if name in _OF_TYPE:
            return getattr(self.kind(0), name)
        return getattr(self.plain(f"float.{name}"), name)


if kernels is not None:
    kernels.stand_in(Detached, np.float64, np.floating)

_READS = frozenset(dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap)


_OF_TYPE = frozenset(("dtype", "shape", "ndim", "size", "itemsize", "nbytes"))


def _reads_attribute(frame: types.FrameType) -> bool:
    """Whether Python code asks for an attribute, and not numpy."""
    return frame.f_code.co_code[frame.f_lasti] in _READS


def is_narrow(x: Any) -> bool:
    """Whether this is a number of numpy's with another precision than a float's."""
    if type(x) is Detached:
        return x.kind is not float and x.kind is not np.float64
    return isinstance(x, np.floating) and type(x) is not np.float64


def _leaking(name: str) -> Callable[..., Any]:
    def method(self: Detached, *others: Any) -> Any:
        if any(isinstance(x, Value) for x in others):
            return NotImplemented
        numbers = [plain(x) for x in others]
        if name in BINARY:  # the whole operator: the other operand may be the one that answers
            return BINARY[name](self.plain(name), *numbers)
        return getattr(self.plain(name), name)(*numbers)

    return method


for _name in (
    *("__float__", "__int__", "__hash__", "__format__", "__repr__", "__str__"),
    *("__round__", "__trunc__", "__floor__", "__ceil__", "__reduce_ex__"),
    *("__floordiv__", "__rfloordiv__", "__mod__", "__rmod__", "__divmod__", "__rdivmod__"),
):
    setattr(Detached, _name, _leaking(_name))


class Condition(StandIn):
    """The truth of a comparison while recording. ``bool()`` of it is a guard; ``where`` takes it
    as it is."""

    __slots__ = ("_recorder", "is_data", "kind", "negated", "node")

    def __init__(self, recorder: Recorder, node: Value, negated: bool = False) -> None:
        self._recorder = recorder
        self.node = node
        self.negated = negated
        self.kind: type = bool  # or np.bool_
        self.is_data = False  # it compares numbers that were passed, or computed from such alone

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind

    def __bool__(self) -> bool:
        truth = self.node._number != 0.0
        self._recorder.guard(self.node, truth, places.of_truth())
        return truth is not self.negated

    def number(self) -> Detached:
        """1 or 0 as a float."""
        kind = float if self.kind is bool else np.float64
        return Detached(self._recorder, self._recorder.bit(self), self.is_data, kind)

    def as_value(self) -> Value:
        """1 or 0, as a Value without gradient."""
        node = 1.0 - self.node if self.negated else self.node
        return self._recorder.detach(node)

    def plain(self, use: str = "") -> Any:
        """The truth itself, decided now."""
        return self.kind(bool(self))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain(), name)

    def opposite(self) -> Condition:
        """``not self``, decided when the recording runs."""
        found = Condition(self._recorder, self.node, not self.negated)
        found.kind, found.is_data = self.kind, self.is_data
        return found

    def joined(self, name: str, other: Any) -> Condition | None:
        """``self & other``, ``|`` or ``^``, decided when the recording runs; None: no truths."""
        recorder = self._recorder
        if type(other) is Condition:
            bit, opposite, is_data = (
                recorder.bit(other),
                recorder.bit(other.opposite()),
                other.is_data,
            )
        elif type(other) is bool or type(other) is np.bool_:
            bit, opposite, is_data = Value(float(other)), Value(float(not other)), True
        else:
            return None
        where_true = {"and": bit, "or": Value(1.0), "xor": opposite}[name]
        where_false = Value(0.0) if name == "and" else bit
        pair = (where_false, where_true) if self.negated else (where_true, where_false)
        found = Condition(recorder, Value._apply_op(ops.select, (self.node, *pair), ()))
        found.is_data = self.is_data and is_data
        found.kind = bool if self.kind is bool and other.__class__ is bool else np.bool_
        return found


#: of two truths, a truth
_OF_TRUTHS = {f"__{side}{name}__": name for name in ("and", "or", "xor") for side in ("", "r")}
#: of a truth and a float, a float
_BESIDE_FLOATS = frozenset(
    f"__{side}{name}__" for name in ("add", "sub", "mul") for side in ("", "r")
) | {"__truediv__"}


def _is_float(x: Any) -> bool:
    """Whether this is a float of 64 bits, of data or the same at every call."""
    if type(x) is Detached:
        return x.is_data and not is_narrow(x)
    return type(x) is float or type(x) is np.float64


def _decided(name: str) -> Callable[..., Any]:
    """A special method of a truth: that of the bool, Python's or numpy's, which it is now."""

    def method(self: Condition, *others: Any) -> Any:
        if any(isinstance(x, Value) for x in others):
            return NotImplemented
        joined = self.joined(_OF_TRUTHS[name], *others) if name in _OF_TRUTHS else None
        if joined is not None:
            return joined
        if name == "__invert__" and self.kind is np.bool_:
            return self.opposite()
        if name in _BESIDE_FLOATS and self.is_data and _is_float(*others):
            return BINARY[name](self.number(), *others)
        others = tuple([x.plain() if type(x) is Condition else x for x in others])
        if name in BINARY:
            return BINARY[name](self.plain(), *others)
        return getattr(self.plain(), name)(*others)

    return method


for _name in (
    *("__int__", "__float__", "__index__", "__hash__", "__repr__", "__str__", "__format__"),
    *("__neg__", "__pos__", "__abs__", "__invert__", "__round__", "__reduce_ex__", *BINARY),
):
    setattr(Condition, _name, _decided(_name))


def without(kind: type, name: str) -> str:
    """What Python says where an object of a type has no such attribute."""
    module = "numpy." if kind.__module__ == "numpy" else ""
    return f"{module + kind.__name__!r} object has no attribute {name!r}"


# Python's own messages name the types: "unsupported operand type(s) for +: 'int' and 'str'".
Detached.__name__ = Detached.__qualname__ = "float"
Condition.__name__ = Condition.__qualname__ = "bool"


#: the methods by which a subclass of ``float`` or ``int`` answers where a float meets it
_OWN = frozenset(
    f"__{side}{name}__"
    for name in "add sub mul truediv floordiv mod divmod pow".split()
    for side in ("", "r")
) | frozenset("__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __float__".split())
_HEAP_TYPE = 1 << 9  # a class that was not written in C, or may be changed like one that was not


def computes_itself(kind: type) -> bool:
    """Whether a class of numbers that Python code derived from ``float`` or ``int`` has its own."""
    if not issubclass(kind, float | int):
        return False
    derived = [cls for cls in kind.__mro__ if cls.__flags__ & _HEAP_TYPE]
    return any(not _OWN.isdisjoint(vars(cls)) for cls in derived)
