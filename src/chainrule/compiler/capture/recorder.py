"""Recording is running: the function runs eagerly, on the real engine, under a recorder.

The recorder is told of every node in the order in which they are made (also of those the result
does not reach: an index may select them another time), and hands out stand-ins for what is read.
``flattening`` makes a ``Recording`` of what it noted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.arrays import data_array
from chainrule.compiler.capture.integers import EXACT, IntegerRecorder
from chainrule.compiler.capture.marks import IntegerMarks, Marker
from chainrule.compiler.capture.progress import report_progress
from chainrule.compiler.capture.reading import Selector
from chainrule.compiler.capture.standins import (
    Condition,
    Detached,
    Followed,
    StandIn,
    Unrecordable,
    computes_itself,
    is_between_floats,
    is_narrow,
)
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core import errors, functions, ops
from chainrule.core.backend import Value, kernels, modes
from chainrule.core.ops import Op
from chainrule.trees import OPENED, map_leaves

if TYPE_CHECKING:
    from chainrule.compiler.capture.forks import Fork


def _applied(op: Op, *operands: Any) -> Value:
    """A node of an operation without parameters."""
    return Value._apply_op(op, operands, ())


if kernels is not None:
    _applied = kernels.apply_row  # the same


def extreme_start(rule: Op) -> float:
    """What max or min begins with: the identity, so that one item gives the instructions of two."""
    return -math.inf if rule is ops.first_max else math.inf


PROGRESS = 0xFFFF  # a recorder is told after so many nodes, plus one, that recording goes on


#: what hooks in C look at lies in the object itself (src/native/hooks.c)
_Watched: Any = object if kernels is None else kernels.Watched


class Recorder(_Watched):  # type: ignore[misc]
    """Told by the engine of every node; hands out the stand-ins of ``standins``."""

    def __init__(
        self,
        integers: Sequence[int] = (),
        select: bool = True,
        exact: bool = False,
        plain_sites: frozenset[str] | None = None,
        powers: bool = False,
        spells: bool = False,
    ) -> None:
        """``select``: integers may select; ``exact``: max and min of Values choose by branches.

        ``plain_sites``: branches that run one side only; None: all of them. ``powers``: integers
        may be exponents of Values. ``spells``: strings of a table that an integer selects are
        traced texts.
        """
        #: what was made: all nodes, or ``kernels.Instructions``, which they became at once
        self.nodes: Any = []
        #: what notes marks where nothing is recorded
        self.marker: Marker | None = None
        #: whether each node carries its derivative along a direction, as ``grad``
        self.carries = False
        #: by position, the numbers that were returned and their derivatives
        self.carried: dict[int, tuple[float, float]] = {}
        self._integer_marks: IntegerMarks | None = None
        self._candidate_marks: dict[int, int] = {}  # by the ids of tuples that gathers keep
        self.unflagged: list[int] = []
        self.flags_finite = False  # numpy computes; see ``by_numpy``
        self.guards: list[tuple[Value, bool, str]] = []
        self.integers = IntegerRecorder(integers, self.forbid)
        self.selector = Selector(self, select)
        self.known = self.selector.known  # the ids of what it watches
        self.exact, self.powers = exact, powers
        self.exponents: set[str] = set()  # lines of integers that are exponents, and so static
        self.both, self.plain_sites = plain_sites is not None, plain_sites or frozenset()
        self.forks: list[Fork] = []  # branches of which one of two sides is being run
        self.decided: dict[int, Any] = {}  # by id, conditions that became guards
        self.extra = 0.0  # instructions in turns of loops that this call does not take
        self.astray = 0  # turns of loops in sides that this call does not take
        self.deep = 0  # calls in many such sides inside each other
        self.stores = 0  # places that stores by integers chose for
        self.selects = 0  # items among which integers that depend on numbers chose
        self.exchanges = 0  # the same where rows are exchanged
        #: by id, what max or min gave, whether it was max, and of what; only for ``both``
        self.extremes: dict[int, tuple[Value, bool, list[Any]]] = {}
        self.watched: set[int] = set()  # ids of captured containers
        self.module_names: set[str] = set()  # under which modules in its hands are followed
        self.whole_modules: set[int] = set()  # ids of those that are as a whole
        self.unasked: frozenset[str] = frozenset()  # names for which nothing is watched
        self.copies: set[int] = set()  # ids of arrays in whose memory are those that were passed
        self.records: set[type] = set()  # dataclasses that were passed, in whatever order they got
        # their attributes: the copies have these in the order of their fields
        self.stores_into: dict[int, str] = {}  # by id, the line that changes one of these
        self.identity = False  # the function asked which Value it had
        self.same_texts = False  # the function asked by ``is`` which of two equal texts it had
        self.passed: set[int] = set()  # ids of the containers that stand for arguments
        self.arguments: list[Any] = []  # all of them
        self.settled: list[str] = []  # where data became static
        self.used_as_number: set[int] = set()
        self.uses_math = False  # on data, something that is otherwise where these are not finite
        self.numbers: list[Value] = []  # one leaf per integer slot, in case it is used as a number
        self.texts = False  # there are traced texts
        self.spells, self.spelled = spells, False  # which integers selected; there are some
        #: containers that are true ones, by where they are made; None: all of them are
        self.true_sites: frozenset[str] | None = None
        self.keyed_sites: set[str] = set()  # where stand-ins for containers were made
        self.counted: set[int] = set()  # nodes of how many items these have, where code asked
        self.hashed = False  # a traced integer became static as a key
        self.unkeyed: str | None = None  # a stand-in that cannot be one; f may have caught it
        self.memory: Any = None  # calls of functions with a cache; see ``recalling``
        self.refused: str | None = None
        self.undefined: str | None = None  # an operation that raised; f may have caught it
        self.plain: set[int] = set()  # leaves that are plain numbers (reference engine)
        self.either: dict[int, Value] = {}  # by id, what is a Value or a number in eager mode
        self.tells = False  # anything may be asked whether it is a Value or a number
        self.told = False  # something may have told a Value from a float; see ``alike``
        #: by id, what functions gave that give Values in a plain call too, and Values of which a
        #: method was called that a number has not; and then where these are in the recording
        self.given: dict[int, Value] = {}
        self.methods: dict[int, Value] = {}
        self.certain: tuple[list[int], list[int]] = ([], [])
        self.simple: set[type] = set()  # whose attributes do not; see there
        self.asked: dict[int, Value] = {}  # of which an attribute or the type was read
        self.narrow: dict[int, Value] = {}  # operands with fewer bits than a float
        self._detached: dict[int, tuple[Value, Value]] = {}  # by id, a Value and what stands for it

    def forget(self) -> None:
        """Let go of every node: stand-ins refer to their recorder, so they would wait for gc."""
        self.nodes.clear()
        self.arguments.clear()
        self.guards.clear()
        self.decided.clear()
        self.numbers.clear()
        self.extremes.clear()
        self.either.clear()
        self.asked.clear()
        self.given.clear()
        self.methods.clear()
        self.narrow.clear()
        self._detached.clear()
        self.selector.forget()

    def may_be_another(self, text: str) -> bool:
        """Whether a call with an equal string may pass another object than this."""
        found: list[Any] = []

        def look(x: Any) -> None:
            plain = isinstance(x, (Value, np.ndarray)) or issubclass(type(x), StandIn)
            found.append(x is text or type(x) in OPENED or (not plain and hasattr(x, "__dict__")))

        map_leaves(look, self.arguments, True)
        return any(found)

    # --- called by the engine -------------------------------------------------------------------

    def made(self, node: Value) -> Value:
        """A node was made; returns the one the function gets."""
        is_whole = type(self.nodes) is list
        detaches = (is_whole or node not in self.nodes) and node._rule is ops.detach
        if is_whole:
            index = len(self.nodes)
            self.nodes.append(node)
            if not len(self.nodes) & PROGRESS:
                self.progress()
        else:
            index = self.nodes.add(node)
        if modes.allow_nonfinite and not (self.flags_finite and math.isfinite(node._number)):
            self.unflagged.append(index)
        if not modes.grad and not detaches:
            return self.detach(node)
        return node

    def selected(self, leaf: Value, items: tuple[Value, ...], node: int) -> None:
        """An integer selected one of some items, for which a leaf stands."""
        if self.marker is None:
            if self.carries:
                self.nodes.carry(leaf, items[self.integers.value(node)])
            return
        if id(items) not in self._candidate_marks:
            self._candidate_marks[id(items)] = self.nodes.candidates(items)
        item, candidates = items[self.integers.value(node)], self._candidate_marks[id(items)]
        self.nodes.choose(leaf, item, candidates, self.integer_marks[node])

    @property
    def integer_marks(self) -> IntegerMarks:
        """The marks of what is computed from integers, where marks are noted."""
        assert self.marker is not None
        if self._integer_marks is None:
            made = self.integers
            self._integer_marks = IntegerMarks(
                self.marker.marks, made.arguments, made.kept, made.made
            )
        return self._integer_marks

    def gives(self, made: Any) -> Any:
        """Returns what ``dot``, ``linear`` or ``vsum`` gave, which are Values of numbers too."""
        if self.marker is None and not self.told:
            self.given.update({id(v): v for v in (made if type(made) is list else [made])})
        return made

    def progress(self) -> None:
        """Many more nodes were made."""
        if self.marker is not None:
            self._detached.clear()  # another node of the same value has the same mark
        report_progress(len(self.nodes))

    def data_of(self, value: Value) -> Detached:
        """``value.data``."""
        return Detached(self, value)

    def operand(self, x: Any) -> Any:
        """``x`` as an operand of a Value: a Value if it is a stand-in or a number."""
        kind = type(x)
        if kind is Detached:
            return x._value if x.is_data else self.detach(x._value)
        if isinstance(x, Value) or kind is float or kind is int:
            return x
        source = self.source(x)
        if source is not None:
            found = source if self.is_data(x) else self.detach(source)
        else:
            found = Value(float(x)) if errors.is_real(x) else x
        if is_narrow(x):
            self.narrow[id(found)] = found
        return found

    @staticmethod
    def is_data(x: Any) -> bool:
        """Whether a stand-in depends on no Value: then no gradient flows through it anyway."""
        return type(x) is Traced or (type(x) in (Detached, Whole) and x.is_data)

    def settle(self, number: Detached, use: str) -> float:
        """Let the recording hold for this number only; refused where it follows Values."""
        value = number._value
        found: float = value._number
        if not number.is_data:
            self.forbid(f"a number from .data used through {use}", Followed)
        if math.isnan(found):
            self.forbid(f"a NaN used through {use}")
        self.guard(Value._apply_op(ops.equal, (value, found), ()), True)
        if found == 0.0:  # equal numbers are the same number but for zeros, whose signs this tells
            sign = Value._apply_op(ops.atan2, (value, -1.0), ())
            self.guard(Value._apply_op(ops.equal, (sign, sign._number), ()), True)
        self.settled.append(errors.caller())
        return found

    def source(self, x: Any) -> Value | None:
        """The Value behind a stand-in, or None."""
        kind = type(x)
        if kind is Detached or kind is Whole:
            return x._value  # type: ignore[no-any-return]
        if kind is Traced:
            return self.number_of(x)
        found: Value | None = x.as_value() if kind is Condition else None
        return found

    @staticmethod
    def bit(test: Condition) -> Value:
        """1 or 0, when the recording runs."""
        if not test.negated:
            return test.node
        return Value._apply_op(ops.select, (test.node, Value(0.0), Value(1.0)), ())

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
        if not errors.is_real(x):
            return None
        self.refuse_own_arithmetic(x)
        return float(x)

    def refuse_own_arithmetic(self, x: Any) -> None:
        """Refuse a number beside a stand-in that may answer for itself beside a float."""
        if type(x) is not float and type(x) is not int and computes_itself(type(x)):
            self.forbid(
                f"it computes with a {type(x).__name__}, a class of numbers with arithmetic of its "
                "own; float(...) makes it a plain number,"
            )

    def negated(self, x: Any) -> Any:
        """``-x`` as an operand."""
        if type(x) is Detached:
            negative = x._value * -1.0
            # no other is this node: there is no need to remember it
            return negative if x.is_data else _applied(ops.detach, negative)
        is_integer = type(x) is Traced or type(x) is Whole
        source = self.source(-x if is_integer else x)
        if source is None:
            return -self.operand(x)
        negative = source if is_integer else source * -1.0
        return negative if self.is_data(x) else self.detach(negative)

    def power(self, x: Value, n: Any) -> Value | None:
        """``x ** n`` with an integer that is known only at a call; None where it is static."""
        if not self.powers or not self.is_exponent(n):
            return None
        found: Value = Value._apply_op(ops.integer_power, (self.number_of(n), x), ())
        return found

    def is_exponent(self, n: Any) -> bool:
        """Whether numbers may have it for an exponent that is known only at a call."""
        is_integer = type(n) is Traced and n.__class__ is int
        return is_integer and self.selector.enabled and abs(n.value) <= EXACT

    def exponent(self, x: Any) -> float:
        """The static exponent of ``value ** x``."""
        if type(x) is Traced:
            self.exponents.add(errors.caller())
            return float(x.static())
        if type(x) is Detached:
            return float(x.plain("an exponent"))
        return errors.real(x, "an exponent")

    def detach(self, value: Value) -> Value:
        """The same number, passing no gradient on; one node per value."""
        found = self._detached.get(id(value))
        if found is None:
            found = value, _applied(ops.detach, value)
            self._detached[id(value)] = found
        return found[1]

    def compare(self, left: Value, right: Any, comparison: int) -> Any:
        """``left < right`` and its like, as a Condition."""
        other = right if isinstance(right, Value) else self.detached_operand(right)
        if other is None:
            return NotImplemented
        self.told |= is_between_floats(right)
        rule = (ops.less, ops.less_equal, ops.equal, ops.equal, ops.less, ops.less_equal)[
            comparison
        ]
        pair = (other, left) if comparison >= 4 else (left, other)
        return Condition(self, _applied(rule, *pair), negated=comparison == 3)

    def compared(self) -> None:
        """``a == b`` or ``hash(a)`` of Values was asked: which one it is."""
        self.identity = True
        self.selector.compared()

    def truth(self, value: Value) -> Any:
        """``bool(value)``."""
        return self.compare(value, 0.0, 3)

    def forbid(self, what: str, kind: type[Unrecordable] = Unrecordable) -> None:
        """Stop recording: the function does what a replay would not repeat."""
        self.refused = f"{what} at {errors.caller()}"  # in case the function swallows it
        raise kind(self.refused)

    def array(self, numbers: Sequence[Any], shape: tuple[int, ...]) -> Any:
        """An array of numbers, some of which were read from Values: a derivative."""
        return data_array(list(numbers), shape, np.dtype(np.float64))

    # --- called by the stand-ins and by functions -------------------------------------------------

    def guard(self, node: Value, truth: bool, line: str | None = None) -> None:
        """A branch was taken on a comparison, at this line or at that of the caller."""
        self.guards.append((node, truth, line or errors.caller()))

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        """``where`` of a condition that is decided when the recording runs."""
        is_traced = type(condition) is Traced and condition.__class__ in (bool, np.bool_)
        if not is_traced and type(condition) is not Condition:
            return functions.choose(condition, a, b)
        pair = (b, a) if not is_traced and condition.negated else (a, b)
        is_number = not any(isinstance(x, Value) for x in pair)
        if is_number:  # of numbers it is a float, not a Value
            values = [self.detached_operand(x) for x in pair]
            if any(v is None for v in values) or any(map(is_narrow, pair)):
                return functions.choose(condition, a, b)
        else:
            values = [self.operand(x) if is_traced else x for x in pair]
        node = self.number_of(condition) if is_traced else condition.node
        found = Value._apply_op(ops.select, (node, *values), ())
        if not is_number:
            return found
        data = all(self.is_data(x) or type(x) in (int, float) for x in pair)
        return Detached(self, found, data and (is_traced or condition.is_data))

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
        plain = set(map(type, items)) == {Detached}
        if plain:
            mixed, values = False, [x._value for x in items]
        else:
            mixed = any(isinstance(x, Value) for x in items)
            values = [x if isinstance(x, Value) else self.detached_operand(x) for x in items]
        if mixed and not all(type(x) is Value or x.__class__ is float for x in items):
            self.told = True  # of floats it would be another type, whichever is chosen
        if mixed:  # a number from .data beside Values passes no gradient on
            values = [
                self.detach(v)
                if isinstance(v, Value) and not isinstance(x, Value) and not self.is_data(x)
                else v
                for x, v in zip(items, values, strict=True)
            ]
        best = _applied(rule, values[0], extreme_start(rule))
        for other in values[1:]:
            best = _applied(rule, best, other)
        if self.both:
            self.extremes[id(best)] = best, rule is ops.first_max, list(items)
        if mixed:
            self.selector.chosen[id(best)] = best, values
            if not all(isinstance(x, Value) for x in items):
                self.either[id(best)] = best
            return best
        if plain:
            data = all(x.is_data for x in items)
        else:
            data = all(self.is_data(x) or type(x) in (int, float) for x in items)
        return Detached(self, best, data, items[0].__class__)
