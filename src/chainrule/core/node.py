"""What a Value of the reference engine stores and shows, and how it meets numbers and a recorder.

``compile`` runs a function once with ``modes.recorder`` set. Whatever the function then reads,
compares or puts beside a Value goes through here, so that ``value.py`` is the engine only: the
recorder may answer with a stand-in, or refuse what would not happen again in a replay.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from chainrule.core import errors, ops
from chainrule.core.ops import Op
from chainrule.core.protocols import SIGNATURE, Protocols

if TYPE_CHECKING:
    from chainrule.core.value import Value


class Modes(threading.local):
    """The switches of one thread."""

    grad = True  # record the graph (off inside no_grad)
    allow_nonfinite = False  # let inf and nan through (on inside nonfinite("allow"))
    debug = False  # remember the source line of every node (on inside debug)
    recorder: Any = None  # told of every node while a function is recorded for compile
    nested = 0  # transforms whose functions are running
    outermost: Any = None  # the inputs of the first of these, if it runs in C: never here
    again = 0  # those whose derivative is differentiated too
    internal = 0  # runs of functions that are the compiler's own


modes = Modes()

# CPython's numbers for the comparisons, which both engines pass to a recorder.
_COMPARISONS = {"lt": 0, "le": 1, "eq": 2, "ne": 3, "gt": 4, "ge": 5}


class Node(Protocols):
    """The part of ``Value`` that is no arithmetic: storage, attributes, comparisons."""

    _modes = modes
    __slots__ = (
        "_data",
        "_grad",
        "_inputs",  # the children
        "_label",
        "_location",  # the source line that made it, inside debug()
        "_parameters",  # static numbers of the operation, such as an exponent
        "_rule",  # a row of the op table, or a custom operation's name; None until __init__
        "_slopes",  # the local gradients
    )

    _data: float
    _grad: float
    _inputs: tuple[Value, ...]
    _label: str
    _location: str | None
    _parameters: tuple[float, ...]
    _rule: Op | str | None
    _slopes: tuple[float, ...]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """A leaf that ``__init__`` is still to fill."""
        self = object.__new__(cls)
        self._data = self._grad = 0.0
        self._label = ""
        self._location = self._rule = None
        self._parameters = self._inputs = self._slopes = ()
        return self

    def _build(
        self,
        data: float,
        grad: float,
        label: str,
        rule: Op | str,
        parameters: tuple[float, ...],
        children: tuple[Value, ...],
        local_grads: tuple[float, ...],
    ) -> None:
        """Fill a new node, once, with parts that are known to fit together."""
        if self._rule is not None:
            raise errors.already_built()
        self._data, self._grad, self._label = data, grad, label
        self._rule, self._parameters = rule, parameters
        self._inputs, self._slopes = children, local_grads

    def _locate(self, line: str) -> None:
        self._location = line

    # --- attributes ---------------------------------------------------------------------------

    @property
    def data(self) -> float:
        """The number itself."""
        recorder = modes.recorder
        return self._data if recorder is None else recorder.data_of(self)

    @data.setter
    def data(self, number: float) -> None:
        forbidden("setting .data")
        self._data = errors.real(number, "a Value's data")

    @property
    def grad(self) -> float:
        """The derivative that ``backward()`` left here."""
        forbidden("reading .grad")
        return self._grad

    @grad.setter
    def grad(self, number: float) -> None:
        forbidden("setting .grad")
        self._grad = errors.real(number, "a Value's grad")

    @property
    def label(self) -> str:
        """A name for people; drawings, explanations and errors show it."""
        return self._label

    @label.setter
    def label(self, text: str) -> None:
        if not isinstance(text, str):
            raise errors.bad_label(text)
        self._label = text

    @property
    def op(self) -> str:
        """The operation that made this node (``"+"``, ``"**2"``), ``""`` for an input."""
        rule = self._rule
        return rule.display(self._parameters) if isinstance(rule, Op) else str(rule or "")

    @property
    def children(self) -> tuple[Value, ...]:
        """The operands, in order; ``a + a`` has two."""
        return self._inputs

    @property
    def local_grads(self) -> tuple[float, ...]:
        """The derivative of this node with respect to each of its children."""
        forbidden("reading local_grads")
        return self._slopes

    @property
    def _number(self) -> float:
        """The number, also while recording, when ``data`` is a stand-in."""
        return self._data

    # --- comparisons: the numbers; == of two Values and hash by identity ------------------------

    def __bool__(self) -> bool:
        recorder = modes.recorder
        return self._data != 0.0 if recorder is None else bool(recorder.truth(self))

    def __lt__(self, other: Value | float) -> bool:
        return self._compare(other, operator.lt)  # type: ignore[no-any-return]

    def __le__(self, other: Value | float) -> bool:
        return self._compare(other, operator.le)  # type: ignore[no-any-return]

    def __gt__(self, other: Value | float) -> bool:
        return self._compare(other, operator.gt)  # type: ignore[no-any-return]

    def __ge__(self, other: Value | float) -> bool:
        return self._compare(other, operator.ge)  # type: ignore[no-any-return]

    def _compare(self, other: Any, relation: Callable[[float, float], bool]) -> Any:
        if modes.recorder is not None:
            return modes.recorder.compare(self, other, _COMPARISONS[relation.__name__])
        number = operand(other)
        if number is None:
            return errors.reject_operand(other)
        return relation(self._data, number._data if isinstance(number, Node) else number)

    def __eq__(self, other: object) -> Any:
        """Between two Values identity, as every object has it; with a number equal numbers."""
        return self._equality(other, operator.eq)

    def __ne__(self, other: object) -> Any:
        if type(self).__eq__ is not Node.__eq__:  # a subclass's own, and so its opposite
            return object.__ne__(self, other)
        return self._equality(other, operator.ne)

    def _equality(self, other: object, relation: Callable[[Any, Any], bool]) -> Any:
        if isinstance(other, Node):
            if modes.recorder is not None:
                modes.recorder.compared()
            return relation(self is other, True)
        if modes.recorder is not None:
            return modes.recorder.compare(self, other, _COMPARISONS[relation.__name__])
        try:
            number = operand(other)
        except OverflowError:  # beyond floats
            return relation(False, True)
        return NotImplemented if number is None else relation(self._data, number)

    def __hash__(self) -> int:
        """By identity too."""
        if modes.recorder is not None:
            modes.recorder.compared()
        return object.__hash__(self)

    # --- operators with a number on the left, built from the engine's -------------------------

    def __rsub__(self: Any, other: Value | float) -> Value:
        number = operand(other)
        if number is None:
            return errors.reject_operand(other)  # type: ignore[no-any-return]
        result = number + -self if isinstance(number, Node) else -self + number
        return result  # type: ignore[no-any-return]

    def __rtruediv__(self: Any, other: Value | float) -> Value:
        number = operand(other)
        if number is None:
            return errors.reject_operand(other)  # type: ignore[no-any-return]
        result = number * self**-1 if isinstance(number, Node) else self**-1 * number
        return result  # type: ignore[no-any-return]

    def __rpow__(self: Any, other: Value | float, modulo: object = None) -> Value:
        if modulo is not None:
            return NotImplemented
        number = operand(other)
        if number is None:
            return errors.reject_operand(other)  # type: ignore[no-any-return]
        return self._apply_op(ops.power, (number, self), ())  # type: ignore[no-any-return]

    def __pos__(self) -> Self:
        return self


Node.__new__.__signature__ = SIGNATURE  # type: ignore[attr-defined]


# --- from whatever the user wrote to operands -----------------------------------------------------


def operand(x: Any) -> Any:
    """``x`` if it can be computed with, numbers as floats; else None."""
    if isinstance(x, Node) or type(x) is float:
        return x
    if modes.recorder is not None:
        x = modes.recorder.operand(x)
        if isinstance(x, Node):
            return x
    return float(x) if errors.is_real(x) else None


def negated(x: Any) -> Any:
    """``-x`` of a Value or a number; None of anything else."""
    if isinstance(x, Node) or type(x) is float:
        return -x  # type: ignore[operator]
    if modes.recorder is not None and isinstance(operand(x), Node):
        return modes.recorder.negated(x)
    return errors.negated(x) if errors.is_real(x) else None


def inverted(x: Any) -> Any:
    """``1 / x`` of a Value or a number; None of anything else."""
    number = operand(x)
    if number is None:
        return None
    if isinstance(number, Node):
        return number**-1  # type: ignore[operator]
    return errors.evaluate(ops.pow, (number,), (-1.0,), modes.allow_nonfinite)


def exponent(x: Any) -> float | None:
    """``x`` as a static exponent, or None."""
    if modes.recorder is not None:
        x = modes.recorder.exponent(x)
    return float(x) if errors.is_real(x) else None


def plain(leaf: Any) -> Any:
    """A number beside a Value: its leaf is part of the instruction, not a node of its own."""
    if modes.recorder is not None:
        modes.recorder.plain.add(id(leaf))
    return leaf


def forbidden(what: str) -> None:
    """What would not happen again when a recording is replayed: the recorder raises."""
    if modes.recorder is not None:
        modes.recorder.forbid(what)
