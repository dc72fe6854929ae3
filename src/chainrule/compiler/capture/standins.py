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

from chainrule.compiler.capture.integers import BEYOND, COMPARISONS, EXACT, METHODS
from chainrule.compiler.capture.operators import BINARY, UNARY
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

    def _rounds(self, *others: Any) -> bool:
        """Whether numpy rounds arithmetic with these to fewer bits than a float has."""
        return any(is_narrow(x) for x in (self, *others))

    def _combine(self, other: Any, function: Callable[[Any, Any], Any]) -> Any:
        """Float arithmetic, which never raises in + - *, on the values that stand behind."""
        right = self._recorder.detached_operand(other)
        if right is None:
            return NotImplemented
        if self._rounds(other):
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
        if self._rounds(*operands):
            return row.forward(*[_number(x) for x in operands])
        values = [self._recorder.detached_operand(x) for x in operands]
        return self.beside(Value._apply_op(row, tuple(values), ()), *operands)

    # Two floats divide in one operation, not by a * b**-1; by zero they raise: flagged.
    def __truediv__(self, other: Any) -> Any:
        if self._recorder.detached_operand(other) is None:
            return NotImplemented
        if self._rounds(other):
            return self.static("arithmetic") / _number(other)
        return self.apply(ops.divide, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        if self._recorder.detached_operand(other) is None:
            return NotImplemented
        if self._rounds(other):
            return _number(other) / self.static("arithmetic")
        return self.apply(ops.divide, other, self)

    def __pow__(self, other: Any) -> Any:
        if isinstance(other, Value):
            return NotImplemented
        if self._rounds(other):
            return self.static("arithmetic") ** _number(other)
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
        if self._rounds(other):
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


def is_narrow(x: Any) -> bool:
    """Whether this is a number of numpy's with another precision than a float's."""
    if type(x) is Detached:
        return x.kind is not float
    return isinstance(x, np.floating) and type(x) is not np.float64


def _leaking(name: str) -> Callable[..., Any]:
    def method(self: Detached, *others: Any) -> Any:
        if any(isinstance(x, Value) for x in others):
            return NotImplemented
        plain = [x.static(name) if type(x) is Detached else _plain(x) for x in others]
        if name in BINARY:  # the whole operator: the other operand may be the one that answers
            return BINARY[name](self.static(name), *plain)
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
        self.kind = kind  # np.int64 or np.bool_ for numpy's, whose arithmetic is another
        recorder.integers.bounded |= kind is np.int64

    @property
    def value(self) -> Any:
        """The integer in this recording. Whoever looks at it must make it static."""
        return self._recorder.integers.value(self.node)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        kind = type(self.value)
        return self.kind if kind is int or self.kind is np.bool_ else kind

    def static(self) -> Any:
        """The integer itself: from here on the recording is for this integer."""
        value = self._recorder.integers.guard(self.node, False, errors.caller())
        return self.__class__(value)

    def __bool__(self) -> bool:
        return bool(self._recorder.integers.guard(self.node, True, errors.caller()))

    def step(self, name: str, *others: Any) -> Any:
        """A step of the integer program with other integers; NotImplemented for anything else."""
        return _step(name, self, *others)

    def as_kind(self, kind: type) -> Traced:
        """The same integer as another kind; numpy's overflow is not traced."""
        node = self.node
        if type(self.value) is bool and kind is not np.bool_:
            node = self._recorder.integers.step("int", node)
        return _made(self._recorder, node, kind)

    def number(self) -> Detached:
        """The integer as a float."""
        return Detached(self._recorder, self._recorder.number_of(self), is_data=True)

    def __neg__(self) -> Any:
        return self.step("neg")

    def __pos__(self) -> Any:
        return +self.static() if self.kind is np.bool_ else self.as_kind(self.kind)

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
        return BINARY[name](self.static(), _plain(other))

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if type(other) is int and 0 <= other <= 64 and modulo is None and self.kind is int:
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


_BOOLS = (bool, np.bool_)
_LOGICAL = frozenset(("and_", "or_", "xor"))
_WRAPPING = frozenset(("lshift", "rshift", "pow", "invert"))  # differ from Python's for numpy's


def _step(name: str, *operands: Any) -> Any:
    """A step of the integer program on integers, some of them traced; NotImplemented for others.

    What numpy's integers and truths do in another way than Python's is done with the numbers.
    """
    kinds = [x.__class__ for x in operands]
    if not all(
        type(x) is Traced or kind in _INTEGERS for x, kind in zip(operands, kinds, strict=True)
    ):
        return NotImplemented
    result: type = int
    if np.int64 in kinds or np.bool_ in kinds:
        result = np.bool_ if name in COMPARISONS else np.int64
        if all(kind in _BOOLS for kind in kinds) and name not in COMPARISONS:
            result = np.bool_ if name in _LOGICAL else type(None)
        beyond = any(type(x) is int and not -BEYOND <= x < BEYOND for x in operands)
        if result is type(None) or name in _WRAPPING or beyond:
            return getattr(operator, name)(*map(_plain, operands))
    recorder = next(x._recorder for x in operands if type(x) is Traced)
    integers = recorder.integers
    nodes = [
        x.node if type(x) is Traced else integers.constant(x if type(x) is bool else int(x))
        for x in operands
    ]
    return _made(recorder, integers.step(name, *nodes), int if name == "bool" else result)


def _made(recorder: Recorder, node: int, kind: type) -> Traced:
    """A traced integer of some kind; numpy's overflow is not traced."""
    made = Traced(recorder, node, kind)
    if kind is np.int64 and not -BEYOND <= made.value < BEYOND:
        recorder.forbid("an integer of numpy's that overflows")
    return made


def _plain(x: Any) -> Any:
    """A traced integer as the integer, which becomes static."""
    return x.static() if type(x) is Traced else x


_INTEGERS = frozenset((int, bool, np.int64, np.bool_))


def _traced(method: str, name: str, swapped: bool) -> Callable[..., Any]:
    def step(self: Traced, other: Any) -> Any:
        found = _step(name, other, self) if swapped else _step(name, self, other)
        return self._beside_number(method, other) if found is NotImplemented else found

    return step


for _name, _word in METHODS.items():
    setattr(Traced, f"__{_name}__", _traced(f"__{_name}__", _word, False))
    setattr(Traced, f"__r{_name}__", _traced(f"__r{_name}__", _word, True))


def _compared(name: str) -> Callable[..., Any]:
    def compare(self: Traced, other: Any) -> Any:
        kind = type(other)
        found = _step(name, self, other)
        if found is not NotImplemented:
            return found
        if kind is float:
            return getattr(self.number(), f"__{name}__")(other)
        if isinstance(other, Value) or kind is Detached:
            return NotImplemented
        return BINARY[f"__{name}__"](self.static(), other)

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


def settled(x: StandIn) -> Any:
    """A stand-in as the object that Python would have: static."""
    if type(x) is Traced:
        return x.static()
    return x.static("a function of numpy") if type(x) is Detached else bool(x)
