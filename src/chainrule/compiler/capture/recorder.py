"""Recording is running: the function runs eagerly, on the real engine, under a recorder.

In: a function and its arguments. Out: a ``Recording``, every node in creation order as flat arrays
(also those the result does not reach: an index may select them another time), the guards, and what
the function returned. Instruction 0..inputs-1 are the inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.integers import EXACT, IntegerRecorder
from chainrule.compiler.capture.reading import Selector
from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.capture.standins import (
    Condition,
    Detached,
    Unrecordable,
    is_narrow,
)
from chainrule.compiler.capture.traced import Traced
from chainrule.core import errors, functions, ops
from chainrule.core.backend import Value, modes
from chainrule.core.ops import Op
from chainrule.trees import Floats, map_leaves

Ints = npt.NDArray[np.int32]

#: instruction codes below the rules: an input, a constant
INPUT, CONSTANT = 0, 1
FIRST_RULE = 2


@dataclass(frozen=True)
class Guard:
    """A branch that the recording took: instruction ``position`` must give ``expected`` again."""

    position: int
    expected: float
    line: str


@dataclass(frozen=True, eq=False)
class Recording:
    """One run of a function as flat arrays.

    ``codes[i]`` is INPUT, CONSTANT or FIRST_RULE + the position of its rule in ``rules``;
    ``operands[i]`` up to three earlier positions (-1: none); ``constants[i]`` its numbers: the
    constant, a plain number in the place of the second operand (``number[i]``), or the rule's
    static parameters. ``unflagged[i]``: made where undefined values were allowed. ``selection``:
    what the integers passed decide: operands, numbers, and whether this recording holds at all.
    """

    inputs: int
    codes: Ints
    operands: Ints
    constants: Floats
    number: npt.NDArray[np.bool_]
    rules: tuple[Op, ...]
    unflagged: npt.NDArray[np.bool_]
    guards: tuple[Guard, ...]
    result: Any = field(repr=False)  # the returned tree, an Output in place of each number
    selection: Selection = field(repr=False, default_factory=Selection)

    def __len__(self) -> int:
        return len(self.codes)

    def __str__(self) -> str:
        lines = [f"{len(self)} instructions, {self.inputs} inputs, {len(self.guards)} guards"]
        guards = {g.position: g for g in self.guards}
        for i in range(self.inputs, len(self)):
            lines.append(f"%{i} = {self.describe(i)}")
            if i in guards:
                lines.append(f"    guard %{i} == {guards[i].expected:g}  ({guards[i].line})")
        return "\n".join([*lines, f"return {self.result}"])

    @property
    def outputs(self) -> list[Output]:
        """The numbers that the function returned, in order."""
        found: list[Output] = []
        map_leaves(lambda x: found.append(x) if isinstance(x, Output) else None, self.result)
        return found

    @property
    def wanted(self) -> list[int]:
        """The instructions whose results are used outside: guards, and what is returned."""
        return [x.position for x in self.guards] + [x.position for x in self.outputs]

    def describe(self, i: int) -> str:
        """One instruction as text."""
        code = int(self.codes[i])
        if code < FIRST_RULE:
            return "input" if code == INPUT else f"constant {self.constants[i, 0]:g}"
        rule = self.rules[code - FIRST_RULE]
        words = [f"%{p}" for p in self.operands[i] if p >= 0]
        numbers = len(rule.parameters) + bool(self.number[i])
        words += [f"{c:g}" for c in self.constants[i, :numbers]]
        return f"{rule.name} {' '.join(words)}"

    def differs(self, other: Recording) -> str | None:
        """Why another recording is not this one again, in words, or None."""
        if len(self) != len(other) or self.rules != other.rules:
            return "it does other operations"
        for name in ("codes", "number", "unflagged"):
            if not np.array_equal(getattr(self, name), getattr(other, name)):
                return "it does other operations"
        if [(g.position, g.expected) for g in self.guards] != [
            (g.position, g.expected) for g in other.guards
        ]:
            return "a branch goes the other way"
        if not _same_result(self.result, other.result):
            return "it returns something else"
        changed = np.flatnonzero(
            (self.constants.view(np.int64) != other.constants.view(np.int64)).any(axis=1)
        )
        if len(changed):
            return f"a number in it changes by itself: {self.describe(int(changed[0]))}"
        if not np.array_equal(self.operands, other.operands):
            return "it uses other operands"
        return None

    def verify(self) -> None:
        """Raise AssertionError unless every array fits the others."""
        n = len(self)
        assert self.operands.shape == (n, 3)
        assert self.constants.shape == (n, 2)
        assert self.number.shape == self.unflagged.shape == (n,)
        assert ((self.codes >= 0) & (self.codes < FIRST_RULE + len(self.rules))).all()
        inside = all(0 <= x.position < n for x in self.outputs)
        assert inside, "a result lies outside the recording"
        assert (self.codes[: self.inputs] == INPUT).all()
        assert (self.codes[self.inputs :] != INPUT).all()
        positions = np.arange(n, dtype=np.int32)[:, None]
        assert (self.operands < positions).all(), "an operand comes after its use"
        for i in np.flatnonzero(self.codes >= FIRST_RULE):
            rule = self.rules[self.codes[i] - FIRST_RULE]
            given = int((self.operands[i] >= 0).sum()) + int(self.number[i])
            assert given == rule.arity, self.describe(int(i))
        assert all(self.inputs <= g.position < n for g in self.guards)


def _same_result(a: object, b: object) -> bool:
    try:
        return bool(a == b) or repr(a) == repr(b)
    except Exception:  # an object of the user's own
        return False


@dataclass(frozen=True)
class Output:
    """The place of a number in what the function returned."""

    position: int
    is_value: bool

    def __repr__(self) -> str:
        return f"%{self.position}" + ("" if self.is_value else ".data")


class Recorder:
    """Told by the engine of every node; hands out the stand-ins of ``standins``."""

    def __init__(self, integers: Sequence[int] = (), select: bool = True) -> None:
        self.merges = False  # both sides of a branch are recorded where that can be
        self.mixes = False  # also where only one of them gives a Value
        self.mixed = self.has_merged = False  # that was done
        self.speculates = 0  # sides of branches that run at present
        self.spoiled = False  # one of them ran code of the user's own, which may do anything
        self.nodes: list[Value] = []
        self.unflagged: list[int] = []
        self.guards: list[tuple[Value, bool, str]] = []
        self.integers = IntegerRecorder(integers)
        self.selector = Selector(self, select)
        self.identity = False  # the function asked which Value it had
        self.passed: set[int] = set()  # ids of the containers that stand for arguments
        self.settled: list[str] = []  # where data became static
        self.used_as_number: set[int] = set()
        self.uses_math = False  # functions of ``math`` on data, which raise where data are infinite
        self.numbers: list[Value] = []  # one leaf per integer slot, in case it is used as a number
        self.refused: str | None = None
        self.undefined: str | None = None  # an operation that raised; f may have caught it
        self.plain: set[int] = set()  # leaves that are plain numbers (reference engine)
        self._detached: dict[int, Value] = {}

    # --- called by the engine -------------------------------------------------------------------

    def made(self, node: Value) -> Value:
        """A node was made; returns the one the function gets."""
        if modes.allow_nonfinite:
            self.unflagged.append(len(self.nodes))
        self.nodes.append(node)
        if not modes.grad and node._rule is not ops.detach:
            return self.detach(node)
        return node

    def data_of(self, value: Value) -> Detached:
        """``value.data``."""
        return Detached(self, value)

    def operand(self, x: Any) -> Any:
        """``x`` as an operand of a Value: a Value if it is a stand-in or a number."""
        kind = type(x)
        if isinstance(x, Value) or kind is float or kind is int:
            return x
        source = self.source(x)
        if source is not None:
            return source if self.is_data(x) else self.detach(source)
        return Value(float(x)) if errors.is_real(x) else x

    @staticmethod
    def is_data(x: Any) -> bool:
        """Whether a stand-in depends on no Value: then no gradient flows through it anyway."""
        return type(x) is Traced or (type(x) is Detached and x.is_data)

    def settle(self, number: Detached, use: str) -> float:
        """Let the recording hold for this number only; refused where it follows Values."""
        value = number._value
        found: float = value._number
        if not number.is_data:
            self.forbid(f"a number from .data used through {use}")
        if math.isnan(found):
            self.forbid(f"a NaN used through {use}")
        # Equal numbers are the same number but for zeros, whose signs this tells apart.
        row, other = (ops.atan2, -1.0) if found == 0.0 else (ops.equal, found)
        node = Value._apply_op(row, (value, other), ())
        if found == 0.0:
            node = Value._apply_op(ops.equal, (node, node._number), ())
        self.guard(node, True)
        self.settled.append(errors.caller())
        return found

    def source(self, x: Any) -> Value | None:
        """The Value behind a stand-in, or None."""
        kind = type(x)
        if kind is Detached:
            return x._value  # type: ignore[no-any-return]
        if kind is Traced:
            return self.number_of(x)
        found: Value | None = x.as_value() if kind is Condition else None
        return found

    def number_of(self, x: Traced) -> Value:
        """A traced integer as a number of the recording."""
        node = x.node
        if not -EXACT <= x.value <= EXACT:
            self.forbid("an integer beyond floats used as a number")
        if 0 <= node < len(self.numbers):
            self.used_as_number.add(node)
            return self.numbers[node]
        return self.selector.number(node)

    def detached_operand(self, x: Any) -> Any:
        """``x`` beside a Detached: a Value or a float; None for what answers by itself."""
        if isinstance(x, Value):
            return None
        source = self.source(x)
        if source is not None:
            return source
        return float(x) if errors.is_real(x) else None

    def negated(self, x: Any) -> Any:
        """``-x`` as an operand."""
        source = self.source(-x if type(x) is Traced else x)
        if source is None:
            return -self.operand(x)
        negative = source if type(x) is Traced else source * -1.0
        return negative if self.is_data(x) else self.detach(negative)

    def exponent(self, x: Any) -> float:
        """The static exponent of ``value ** x``."""
        if type(x) is Traced:
            return float(x.static())
        if type(x) is Detached:
            return float(x.plain("an exponent"))
        return errors.real(x, "an exponent")

    def detach(self, value: Value) -> Value:
        """The same number, passing no gradient on; one node per value."""
        node = self._detached.get(id(value))
        if node is None:
            node = Value._apply_op(ops.detach, (value,), ())
            self._detached[id(value)] = node
        return node

    def compare(self, left: Value, right: Any, comparison: int) -> Any:
        """``left < right`` and its like, as a Condition."""
        other = right if isinstance(right, Value) else self.detached_operand(right)
        if other is None:
            return NotImplemented
        rule = (ops.less, ops.less_equal, ops.equal, ops.equal, ops.less, ops.less_equal)[
            comparison
        ]
        pair = (other, left) if comparison >= 4 else (left, other)
        return Condition(self, Value._apply_op(rule, pair, ()), negated=comparison == 3)

    def compared(self) -> None:
        """``a == b`` or ``hash(a)`` of Values was asked: which one it is."""
        self.identity = True

    def truth(self, value: Value) -> Any:
        """``bool(value)``."""
        return self.compare(value, 0.0, 3)

    def forbid(self, what: str) -> None:
        """Stop recording: the function does what a replay would not repeat."""
        self.refused = f"{what} at {errors.caller()}"  # in case the function swallows it
        raise Unrecordable(self.refused)

    # --- called by the stand-ins and by functions -------------------------------------------------

    def guard(self, node: Value, truth: bool) -> None:
        """A branch was taken on a comparison."""
        self.guards.append((node, truth, errors.caller()))

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """``where`` of a condition that is decided when the recording runs."""
        if type(condition) is Traced and condition.__class__ in (bool, np.bool_):
            pair = (self.operand(x) for x in (a, b))
            return Value._apply_op(ops.select, (self.number_of(condition), *pair), ())
        if type(condition) is not Condition:
            return functions.choose(condition, a, b)
        pair = (b, a) if condition.negated else (a, b)
        return Value._apply_op(ops.select, (condition.node, *pair), ())

    def function(self, row: Op, operands: tuple[Any, ...], parameters: tuple[Any, ...]) -> Any:
        """A function of the op table of plain numbers: a number; None where none is recorded."""
        kinds = [type(x) for x in operands]
        if not any(kind is Detached or kind is Traced for kind in kinds):
            return None
        values = [self.detached_operand(x) for x in operands]
        if any(v is None for v in values) or any(map(is_narrow, operands)):
            return None
        data = all(self.is_data(x) or type(x) in (int, float) for x in operands)
        return Detached(self, Value._apply_op(row, tuple(values), parameters), data)

    def extreme(self, items: Sequence[Any], rule: Op) -> Any:
        """Python's max or min over Values or numbers from ``.data``."""
        mixed = any(isinstance(x, Value) for x in items)
        values = [x if isinstance(x, Value) else self.detached_operand(x) for x in items]
        if mixed:  # a number from .data beside Values passes no gradient on
            values = [
                self.detach(v)
                if isinstance(v, Value) and not isinstance(x, Value) and not self.is_data(x)
                else v
                for x, v in zip(items, values, strict=True)
            ]
        # From the identity on, so that one item gives the same instructions as several.
        start = -math.inf if rule is ops.first_max else math.inf
        best = Value._apply_op(rule, (values[0], start), ())
        for other in values[1:]:
            best = Value._apply_op(rule, (best, other), ())
        if mixed:
            return best
        data = all(self.is_data(x) or type(x) in (int, float) for x in items)
        return Detached(self, best, data, items[0].__class__)
