"""What a recorded function sees in place of plain numbers and truths.

A recording is replayed with other inputs, so a number that the function read from ``.data``, an
integer it was passed, and the outcome of a comparison must not vanish into Python unseen. Each has
a stand-in here that records what is done with it, or raises ``Unrecordable`` where it cannot.
"""

from __future__ import annotations

import dis
import operator
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.integers import COMPARISONS, EXACT, METHODS
from chainrule.core import errors, ops
from chainrule.core.backend import Value, nonfinite
from chainrule.core.ops import Op

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder


class Unrecordable(BaseException):
    """The function does what a recording cannot repeat; it runs eagerly instead.

    Not an Exception: the function's own ``except Exception`` must not swallow it.
    """


class StandIn:
    """Base of what a recorded function sees in place of plain numbers."""

    __slots__ = ()


class Detached(StandIn):
    """A float while recording: a number without gradient, known to the recording.

    It is ``v.data`` or, ``is_data``, a number that was passed or computed from such numbers alone.
    It claims to be a float, but is no subclass: C code reads a subclass without asking, and
    ``math.isclose(x.data, 0)`` would be an unseen branch. Where C asks for the number itself, data
    become static: the recording holds for this number only; a number that follows the
    parameters ends the recording.
    """

    __slots__ = ("_recorder", "_value", "is_data", "kind")

    def __init__(
        self, recorder: Recorder, value: Value, is_data: bool = False, kind: type = float
    ) -> None:
        self._recorder = recorder
        self._value = value
        self.is_data = is_data
        #: float32 and its like round their own arithmetic: such numbers are static in it
        self.kind = kind if issubclass(kind, np.floating) and kind is not np.float64 else float

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind

    def beside(self, value: Value, *others: Any) -> Detached:
        """A number computed from this one and others."""
        data = self.is_data and all(x.is_data for x in others if type(x) is Detached)
        return Detached(self._recorder, value, data)

    def static(self, use: str) -> Any:
        """The number itself: from here on the recording is for this number."""
        return self.kind(self._recorder.settle(self, use))

    def _combine(self, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Float arithmetic, which never raises in + - *, on the values that stand behind."""
        right = self._recorder.detached_operand(other)
        if right is None:
            return NotImplemented
        if self.kind is not float or (type(other) is Detached and other.kind is not float):
            return function(self.static("arithmetic"), _number(other))
        with nonfinite("allow"):
            return self.beside(function(self._value, right), other)

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

    def apply(self, row: Op, *operands: Any) -> Any:
        """An operation of the op table on numbers, this one among them."""
        if any(type(x) is Detached and x.kind is not float for x in operands):
            return row.forward(*[_number(x) for x in operands])
        values = [self._recorder.detached_operand(x) for x in operands]
        return self.beside(Value._apply_op(row, tuple(values), ()), *operands)

    # Two floats divide in one operation, not by a * b**-1; by zero they raise: flagged.
    def __truediv__(self, other: Any) -> Any:
        if self._recorder.detached_operand(other) is None:
            return NotImplemented
        return self.apply(ops.divide, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        if self._recorder.detached_operand(other) is None:
            return NotImplemented
        return self.apply(ops.divide, other, self)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return NotImplemented
        if type(other) is Detached and self.is_data:
            other = other.static("an exponent")
        return self.beside(self._value ** self._recorder.exponent(other))

    def __rpow__(self, other: Any) -> Any:
        return NotImplemented if isinstance(other, Value) else other ** self.static("an exponent")

    def __neg__(self) -> Detached:
        return self.beside(self._value * -1.0)

    def __pos__(self) -> Detached:
        return self

    def __abs__(self) -> Any:
        return self.apply(ops.abs, self)

    def __bool__(self) -> bool:
        return bool(self._recorder.truth(self._value))

    def _compare(self, other: Any, comparison: int) -> Any:
        if self.kind is not float or (type(other) is Detached and other.kind is not float):
            if isinstance(other, Value):
                return NotImplemented
            name = ("lt", "le", "eq", "ne", "gt", "ge")[comparison]
            return getattr(operator, name)(self.static("a comparison"), _number(other))
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
        row = None if _reads_attribute(sys._getframe(1)) else UNARY.get(name)
        if row is None and not hasattr(self.kind, name):
            raise AttributeError(f"'float' object has no attribute {name!r}")
        if row is not None:  # numpy's functions of an array of objects ask their items
            return lambda: self.apply(row, self)
        return getattr(self.static(f"float.{name}"), name)


_READS = frozenset(dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if name in dis.opmap)


def _reads_attribute(frame: types.FrameType) -> bool:
    """Whether Python code asks for an attribute, and not numpy."""
    return frame.f_code.co_code[frame.f_lasti] in _READS


def _number(x: Any) -> Any:
    """A stand-in as the number itself, which becomes static."""
    return x.static("arithmetic") if type(x) is Detached else _plain(x)


def _names() -> dict[str, Op]:
    """The op table's functions of one number, by their names and numpy's."""
    rows = {r.name: r for r in vars(ops).values() if isinstance(r, ops.Op)}
    found = {}
    for name in (
        *("exp", "expm1", "log", "log1p", "log2", "log10", "sqrt", "erf", "erfc"),
        *("sin", "cos", "tan", "asin", "acos", "atan"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    ):
        found[name] = rows[name]
        if name.startswith("a"):
            found["arc" + name[1:]] = rows[name]
    return found


UNARY = _names()


def _leaking(name: str) -> Callable[..., Any]:
    def method(self: Detached, *others: Any) -> Any:
        if any(isinstance(x, Value) for x in others):
            return NotImplemented
        plain = [x.static(name) if type(x) is Detached else _plain(x) for x in others]
        return getattr(self.static(name), name)(*plain)

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


class Traced(StandIn):
    """An integer or bool that a recorded function computed from its integer arguments.

    Arithmetic and comparisons with other integers are steps of the integer program; beside a float
    or a Value it is a number of the recording; its truth is a guard. Everything else uses the
    integer itself, and then the recording holds for that integer only.
    """

    __slots__ = ("_recorder", "kind", "node")

    def __init__(self, recorder: Recorder, node: int, kind: type = int) -> None:
        self._recorder = recorder
        self.node = node
        self.kind = kind  # np.int64 for numpy's, whose arithmetic has 64 bits
        recorder.integers.bounded |= kind is np.int64

    @property
    def value(self) -> Any:
        """The integer in this recording. Whoever looks at it must make it static."""
        return self._recorder.integers.value(self.node)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind = type(self.value)
        return self.kind if kind is int else kind

    def static(self) -> Any:
        """The integer itself: from here on the recording is for this integer."""
        value = self._recorder.integers.guard(self.node, False, errors.caller())
        return self.kind(value) if type(value) is int else value

    def __bool__(self) -> bool:
        return bool(self._recorder.integers.guard(self.node, True, errors.caller()))

    def step(self, name: str, *others: Any) -> Any:
        """A step of the integer program with other integers; NotImplemented for anything else."""
        if self.kind is np.int64 and name in _WRAPPING:
            return getattr(operator, name)(self.static(), *map(_plain, others))
        integers, nodes = self._recorder.integers, [self.node]
        for x in others:
            if type(x) is Traced:
                nodes.append(x.node)
            elif type(x) is int or type(x) is bool:
                nodes.append(integers.constant(x))
            else:
                return NotImplemented
        return self.beside(integers.step(name, *nodes), *others)

    def beside(self, node: int, *others: Any) -> Traced:
        """What was computed from this integer and others; numpy's overflow is not traced."""
        kind = (
            np.int64 if any(getattr(x, "kind", int) is np.int64 for x in (self, *others)) else int
        )
        made = Traced(self._recorder, node, kind)
        if kind is np.int64 and not -_BEYOND <= made.value < _BEYOND:
            self._recorder.forbid("an integer of numpy's that overflows")
        return made

    def number(self) -> Detached:
        """The integer as a float."""
        return Detached(self._recorder, self._recorder.number_of(self), is_data=True)

    def __neg__(self) -> Any:
        return self.step("neg")

    def __pos__(self) -> Any:
        return self if type(self.value) is int else self.step("int")

    def __abs__(self) -> Any:
        return self.step("abs")

    def __invert__(self) -> Any:
        return self.step("invert")

    def __truediv__(self, other: Any) -> Any:
        return self._beside_number("__truediv__", other, True)

    def __rtruediv__(self, other: Any) -> Any:
        return self._beside_number("__rtruediv__", other, True)

    def _beside_number(self, name: str, other: Any, integers_too: bool = False) -> Any:
        """Arithmetic with a float, or with an integer where that gives one."""
        if type(other) is Traced and integers_too:
            other = other.number()
        elif type(other) is int and integers_too and -EXACT <= other <= EXACT:
            other = float(other)
        if type(other) is float or (type(other) is Detached and integers_too):
            return getattr(self.number(), name)(other)
        if isinstance(other, Value) or type(other) is Detached:
            return NotImplemented  # they know how to take a run-time number
        return getattr(self.static(), name)(_plain(other))

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if type(other) is int and 0 <= other <= 64 and modulo is None:
            return self.step("pow", other)
        if isinstance(other, Value) or type(other) is Detached:
            return NotImplemented
        rest = () if modulo is None else (_plain(modulo),)
        return pow(self.static(), _plain(other), *rest)

    def __rpow__(self, other: Any) -> Any:
        if isinstance(other, Value) or type(other) is Detached:
            return NotImplemented
        return other ** self.static()

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self)

    def __round__(self, digits: Any = None) -> Any:
        return +self if digits is None else round(self.static(), _plain(digits))

    def __trunc__(self) -> Any:
        return +self

    __floor__ = __ceil__ = __trunc__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.static(), name)


_BEYOND = 2**63
_WRAPPING = frozenset(("lshift", "rshift", "pow", "invert"))  # differ from Python's for numpy's


def _plain(x: Any) -> Any:
    """A traced integer as the integer, which becomes static."""
    return x.static() if type(x) is Traced else x


def _traced(method: str, name: str, swapped: bool) -> Callable[..., Any]:
    def step(self: Traced, other: Any) -> Any:
        kind = type(other)
        if kind is Traced or kind is int or kind is bool:
            if not swapped:
                return self.step(name, other)
            integers = self._recorder.integers
            if self.kind is np.int64 and name in _WRAPPING:
                return getattr(operator, name)(_plain(other), self.static())
            left = other.node if kind is Traced else integers.constant(other)
            return self.beside(integers.step(name, left, self.node), other)
        return self._beside_number(method, other)

    return step


for _name, _step in METHODS.items():
    setattr(Traced, f"__{_name}__", _traced(f"__{_name}__", _step, False))
    setattr(Traced, f"__r{_name}__", _traced(f"__r{_name}__", _step, True))


def _compared(name: str) -> Callable[..., Any]:
    def compare(self: Traced, other: Any) -> Any:
        kind = type(other)
        if kind is Traced or kind is int or kind is bool:
            return self.step(name, other)
        if kind is float:
            return getattr(self.number(), f"__{name}__")(other)
        if isinstance(other, Value) or kind is Detached:
            return NotImplemented
        return getattr(self.static(), f"__{name}__")(other)

    return compare


for _name in COMPARISONS:
    setattr(Traced, f"__{_name}__", _compared(_name))


def _static_use(name: str) -> Callable[..., Any]:
    def method(self: Traced, *arguments: Any) -> Any:
        return getattr(self.static(), name)(*map(_plain, arguments))

    return method


# Python's own messages name the types: "unsupported operand type(s) for +: 'int' and 'str'".
Detached.__name__ = Detached.__qualname__ = "float"
Traced.__name__ = Traced.__qualname__ = "int"

for _name in "index int float hash str repr format reduce_ex".split():
    _method = "__index__" if _name == "int" else f"__{_name}__"
    setattr(Traced, f"__{_name}__", _static_use(_method))
