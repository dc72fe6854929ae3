"""The stand-in of an integer: what a recorded function computes from the integers it was passed.

Operations on it become steps of the integer program (``integers``); whatever else Python does with
it makes it static. numpy's integers and truths are kinds of their own: their arithmetic is another.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture import places
from chainrule.compiler.capture.enums import integer_of
from chainrule.compiler.capture.integers import (
    BEYOND,
    COMPARISONS,
    EXACT,
    METHODS,
    STEPS,
)
from chainrule.compiler.capture.operators import BINARY
from chainrule.compiler.capture.standins import Condition, Detached, StandIn, plain, without
from chainrule.core import errors, ops
from chainrule.core.backend import Value
from chainrule.trees import NARROW

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder


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

    def plain(self, use: str = "") -> Any:
        """The integer itself, which becomes static."""
        return self.static()

    def static(self) -> Any:
        """The integer itself: from here on the recording is for this integer."""
        value = self._recorder.integers.guard(self.node, False, errors.caller())
        return self.__class__(value)

    def __bool__(self) -> bool:
        return bool(self._recorder.integers.guard(self.node, True, places.of_truth()))

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
        kind = np.float64 if self.kind is not int else float
        return Detached(self._recorder, self._recorder.number_of(self), is_data=True, kind=kind)

    def __neg__(self) -> Any:
        return self.step("neg")

    def __pos__(self) -> Any:
        return +self.static() if self.kind is np.bool_ else self.as_kind(self.kind)

    def __abs__(self) -> Any:
        return self.step("abs")

    def __invert__(self) -> Any:
        if self.__class__ is np.bool_:
            return self.step("xor", True)
        return self.step("invert")

    def __truediv__(self, other: Any) -> Any:
        return self._beside_number("__truediv__", other, True)

    def __rtruediv__(self, other: Any) -> Any:
        return self._beside_number("__rtruediv__", other, True)

    def _beside_number(self, name: str, other: Any, integers_too: bool = False) -> Any:
        """Arithmetic with a float, or with an integer where that gives one."""
        other = integer_of(other) if integers_too else other
        if type(other) is Traced and integers_too:
            other = other.number()
        elif type(other) is int and integers_too and -EXACT <= other <= EXACT:
            other = float(other)
        if type(other) is float or (type(other) is Detached and integers_too):
            return getattr(self.number(), name)(other)
        if isinstance(other, Value) or type(other) is Detached or _answers(other):
            return NotImplemented  # they know how to take a run-time number
        return BINARY[name](self.static(), plain(other))

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if modulo is None and self.__class__ is int:
            other = integer_of(other)
            if type(other) is int and other < 0:
                other = float(other) if other >= -EXACT else other  # Python's own rule
            if type(other) is float and math.isfinite(other):
                return self.number() ** other
            found = _power(self, other)
            if found is not NotImplemented:
                return found
        if isinstance(other, Value) or type(other) is Detached:
            return NotImplemented
        rest = () if modulo is None else (plain(modulo),)
        return pow(self.static(), plain(other), *rest)

    def __rpow__(self, other: Any) -> Any:
        if isinstance(other, Value) or type(other) is Detached:
            return NotImplemented
        if self._recorder.is_exponent(self):
            if type(other) is float and math.isfinite(other):
                number = self.number()
                return number.as_python(ops.integer_power, number, other)
            found = _power(integer_of(other), self)
            if found is not NotImplemented:
                return found
        return other ** self.static()

    def __divmod__(self, other: Any) -> Any:
        return (self // other, self % other)

    def __rdivmod__(self, other: Any) -> Any:
        return (other // self, other % self)

    def __round__(self, digits: Any = None) -> Any:
        if digits is None and self.kind is int:
            return +self
        return round(self.static(), plain(digits))

    def __trunc__(self) -> Any:
        return +self if self.kind is int else math.trunc(self.static())

    def __floor__(self) -> Any:
        return +self if self.kind is int else math.floor(self.static())

    def __ceil__(self) -> Any:
        return +self if self.kind is int else math.ceil(self.static())

    def __hash__(self) -> int:
        self._recorder.hashed = True
        return hash(self.static())

    def __getattr__(self, name: str) -> Any:
        kind = self.__class__
        if not hasattr(kind, name):  # which integer it is does not matter, as where numpy asks
            raise AttributeError(without(kind, name))
        return getattr(self.static(), name)


_PYTHONS = (int, bool)
_EXACT_BITS = EXACT.bit_length() - 1
_BOOLS = (bool, np.bool_)
_INTEGERS = frozenset((int, bool, np.int64, np.bool_))
#: numpy's integers of fewer bits, or without a sign
_NARROW = frozenset(dtype.type for dtype in NARROW) - _INTEGERS
_LOGICAL = frozenset(("and_", "or_", "xor"))
_DIVISIONS = frozenset(("floordiv", "mod"))  # by zero, numpy's give 0 and a warning
_WRAPPING = frozenset(("lshift", "rshift", "pow", "invert"))  # differ from Python's for numpy's


def _step(name: str, *operands: Any) -> Any:
    """A step of the integer program on integers, some of them traced; NotImplemented for others.

    What numpy's integers and truths do in another way than Python's is done with the numbers.
    """
    result: type = int
    if any(_answers(x) for x in operands):
        return NotImplemented
    if any((x.kind if type(x) is Traced else type(x)) not in _PYTHONS for x in operands):
        operands = tuple([x.plain() if type(x) is Condition else x for x in operands])
        kinds = [x.__class__ for x in operands]
        is_narrow = any(kind in _NARROW for kind in kinds)
        if not is_narrow or name in COMPARISONS:  # else numpy computes with 64 bits
            operands = tuple(map(integer_of, operands))
            kinds = [x.__class__ for x in operands]
        if is_narrow:
            return _narrow_step(name, operands, kinds)
        if not all(kind in _INTEGERS for kind in kinds):
            return NotImplemented
        if all(kind in _PYTHONS for kind in kinds):
            return _step(name, *operands)
        result = np.bool_ if name in COMPARISONS else np.int64
        if all(kind in _BOOLS for kind in kinds) and name not in COMPARISONS:
            result = np.bool_ if name in _LOGICAL else type(None)
        beyond = any(type(x) is int and not -BEYOND <= x < BEYOND for x in operands)
        by_zero = name in _DIVISIONS and not getattr(operands[1], "value", operands[1])
        if result is type(None) or name in _WRAPPING or beyond or by_zero:
            return getattr(operator, name)(*map(plain, operands))
    return _recorded(name, operands, int if name == "bool" else result)


def _recorded(name: str, operands: Sequence[Any], kind: type) -> Traced:
    """The step on these integers."""
    recorder = next(x._recorder for x in operands if type(x) is Traced)
    integers = recorder.integers
    nodes = [
        x.node if type(x) is Traced else integers.constant(x if type(x) is bool else int(x))
        for x in operands
    ]
    return _made(recorder, integers.step(name, *nodes), kind)


def _narrow_step(name: str, operands: Sequence[Any], kinds: Sequence[type]) -> Any:
    """A step on integers of which some wrap around elsewhere than np.int64: a guard says that they
    do not. Where they do, it is done with the numbers.
    """
    if not all(kind in _INTEGERS or kind in _NARROW for kind in kinds):
        return NotImplemented
    if name == "bool":
        return _recorded(name, operands, int)
    numpys = [np.dtype(kind) for kind in kinds if kind not in _PYTHONS]
    joined = np.result_type(*numpys)
    if joined.kind in "iu" and name in COMPARISONS:
        return _recorded(name, operands, np.bool_)
    by_zero = name in _DIVISIONS and not getattr(operands[1], "value", operands[1])
    if joined.kind in "iu" and name not in _WRAPPING and not by_zero:
        values = [int(x.value) if type(x) is Traced else int(x) for x in operands]
        pythons = [k for k, kind in enumerate(kinds) if kind is int]  # numpy refuses larger ones
        ends = np.iinfo(joined)
        held = [*[values[k] for k in pythons], STEPS[name](*values)]
        if all(ends.min <= x <= ends.max for x in held):
            made = _recorded(name, operands, joined.type)
            for x in (*[operands[k] for k in pythons], made):
                _guard_range(x, int(ends.min), int(ends.max))
            return made
    return getattr(operator, name)(*map(plain, operands))


def _guard_range(x: Any, low: int, high: int) -> None:
    """Let the recording hold only while an integer is between two others."""
    if type(x) is Traced:
        for side, end in (("ge", low), ("le", high)):
            _recorded(side, (x, end), int).__bool__()


def _power(base: Any, exponent: Any) -> Any:
    """Of two integers that are Python's, an integer: a guard says that the exponent is not
    negative. NotImplemented for anything else, and where floats might not hold it exactly.
    """
    if any(type(x) not in (int, Traced) or x.__class__ is not int for x in (base, exponent)):
        return NotImplemented
    size, times = [x.value if type(x) is Traced else x for x in (base, exponent)]
    if times < 0 or (abs(size) > 1 and size.bit_length() * times > _EXACT_BITS):
        return NotImplemented
    if type(exponent) is Traced:
        exponent.step("ge", 0).__bool__()  # a guard
    return _step("pow", base, exponent)


def _answers(x: Any) -> bool:
    """Whether the other operand is an integer of another kind, which takes traced ones."""
    return isinstance(x, StandIn) and type(x).answers


def _made(recorder: Recorder, node: int, kind: type) -> Traced:
    """A traced integer of some kind; numpy's overflow is not traced."""
    made = Traced(recorder, node, kind)
    if kind is np.int64 and not -BEYOND <= made.value < BEYOND:
        recorder.forbid("an integer of numpy's that overflows")
    return made


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
        if isinstance(other, Value) or kind is Detached or _answers(other):
            return NotImplemented
        return BINARY[f"__{name}__"](self.static(), other)

    return compare


for _name in COMPARISONS:
    setattr(Traced, f"__{_name}__", _compared(_name))


def _static_use(name: str) -> Callable[..., Any]:
    def method(self: Traced, *arguments: Any) -> Any:
        return getattr(self.static(), name)(*map(plain, arguments))

    return method


# Python's own messages name the types: "unsupported operand type(s) for +: 'int' and 'str'".
Traced.__name__ = Traced.__qualname__ = "int"

for _name in "index int float str repr format reduce_ex".split():
    _method = "__index__" if _name == "int" else f"__{_name}__"
    setattr(Traced, f"__{_name}__", _static_use(_method))
