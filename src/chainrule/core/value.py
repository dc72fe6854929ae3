"""``Value`` in plain Python: the reference engine.

A Value is one number that remembers how it was made. Arithmetic on Values builds a graph; the graph
of a loss, walked once from the loss back to its inputs, gives the derivative of the loss with
respect to every number in it. That is all of reverse-mode automatic differentiation, and this file
is all of it: ``apply`` makes a node, ``topological_order`` sorts the graph, ``backward`` walks it.
What each operation computes, and its derivatives, are rows of the table in ``ops``; printing,
copying and the constructor's dialects are in ``protocols``.
"""

from __future__ import annotations

import operator
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any

from chainrule.core import errors, ops
from chainrule.core.ops import Op
from chainrule.core.protocols import SIGNATURE, Protocols, add_methods, real_parameters


class Modes(threading.local):
    """The switches of one thread."""

    grad = True  # record the graph (off inside no_grad)
    allow_nonfinite = False  # let inf and nan through (on inside nonfinite("allow"))
    debug = False  # remember the source line of every node (on inside debug)
    recorder: Any = None  # told of every node while a function is recorded for compile


modes = Modes()

# CPython's numbers for the comparisons, in which both engines tell a recorder of them.
COMPARISONS = {"lt": 0, "le": 1, "eq": 2, "ne": 3, "gt": 4, "ge": 5}


class Value(Protocols):
    """One number that remembers how it was made.

    >>> from chainrule import Value
    >>> a = Value(2.0, label="a")
    >>> b = Value(-3.0, label="b")
    >>> f = (a * b + 10).relu()
    >>> f.backward()
    >>> f.data, a.grad, b.grad
    (4.0, -3.0, 2.0)

    ``Value(y, (x,), (dy_dx,), op="mine")`` is a custom operation: its value, its inputs and the
    derivative with respect to each. ``==`` and ``hash`` go by identity, so that nodes can be kept
    in sets; ``<  <=  >  >=`` compare the numbers.
    """

    __module__ = "chainrule"  # where users find it, and pickle too
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

    def __new__(cls, *args: Any, **kwargs: Any) -> Value:
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
        _forbidden("setting .data")
        self._data = errors.real(number, "a Value's data")

    @property
    def grad(self) -> float:
        """The derivative that ``backward()`` left here."""
        _forbidden("reading .grad")
        return self._grad

    @grad.setter
    def grad(self, number: float) -> None:
        _forbidden("setting .grad")
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
        return rule.display(self._parameters) if isinstance(rule, Op) else rule or ""

    @property
    def children(self) -> tuple[Value, ...]:
        """The operands, in order; ``a + a`` has two."""
        return self._inputs

    @property
    def local_grads(self) -> tuple[float, ...]:
        """The derivative of this node with respect to each of its children."""
        _forbidden("reading local_grads")
        return self._slopes

    @property
    def _number(self) -> float:
        """The number, also while recording, when ``data`` is a stand-in."""
        return self._data

    # --- the backward pass --------------------------------------------------------------------

    def backward(self, gradient: float = 1.0) -> None:
        """Leave in every ``.grad`` of this graph the derivative of this Value.

        The pass sums from zero in scratch and then commits at once: inputs add the total to the
        gradient they had, interior nodes take it. An interrupted pass changes nothing.
        """
        _forbidden("backward()")
        order = topological_order(self)
        totals = dict.fromkeys(map(id, order), 0.0)
        totals[id(self)] = errors.real(gradient, "the gradient")
        for node in reversed(order):
            total = totals[id(node)]
            if not total:
                continue  # zero passes nothing on, so that 0 * inf never makes a nan
            for child, local_grad in zip(node._inputs, node._slopes, strict=True):
                if local_grad:
                    totals[id(child)] += local_grad * total
        new = [
            totals[id(node)] if node._inputs else node._grad + totals[id(node)] for node in order
        ]
        _commit(order, new)

    def zero_grad(self) -> None:
        """Set every gradient in this Value's graph to zero."""
        _forbidden("zero_grad()")
        order = topological_order(self)
        _commit(order, [0.0] * len(order))

    def _order(self) -> list[Value]:
        return topological_order(self)

    # --- operators ----------------------------------------------------------------------------
    # Everything is made of + * **, composed as micrograd and microgpt compose it.

    def __add__(self, other: Value | float) -> Value:
        return _binary(ops.add, self, other)  # type: ignore[no-any-return]

    def __mul__(self, other: Value | float) -> Value:
        return _binary(ops.mul, self, other)  # type: ignore[no-any-return]

    def __pow__(self, other: Value | float, modulo: object = None) -> Value:
        if modulo is not None:
            return NotImplemented
        if isinstance(other, Value):
            return apply(ops.power, (self, other))
        if modes.recorder is not None:
            other = modes.recorder.exponent(other)
        if errors.is_real(other):
            return apply(ops.pow, (self,), (float(other),))
        return _refuse(other)  # type: ignore[no-any-return]

    def __neg__(self) -> Value:
        return self * -1

    def __sub__(self, other: Value | float) -> Value:
        number = _operand(other)
        if number is None:
            return _refuse(other)  # type: ignore[no-any-return]
        if isinstance(other, Value):
            return self + -other
        if isinstance(number, Value):  # a stand-in, while recording
            return self + modes.recorder.negated(other)  # type: ignore[no-any-return]
        return self + errors.negated(other)

    def __truediv__(self, other: Value | float) -> Value:
        number = _operand(other)
        return _refuse(other) if number is None else self * _reciprocal(number)

    # Reflected operators mostly meet numbers, and then the Value comes first. A Value on the left
    # gets here only when this one is of a subclass.

    def __radd__(self, other: Value | float) -> Value:
        return _binary(ops.add, *_value_first(self, other))  # type: ignore[no-any-return]

    def __rmul__(self, other: Value | float) -> Value:
        return _binary(ops.mul, *_value_first(self, other))  # type: ignore[no-any-return]

    def __rsub__(self, other: Value | float) -> Value:
        number = _operand(other)
        if number is None:
            return _refuse(other)  # type: ignore[no-any-return]
        negative = -self
        return number + negative if isinstance(number, Value) else negative + number

    def __rtruediv__(self, other: Value | float) -> Value:
        number = _operand(other)
        if number is None:
            return _refuse(other)  # type: ignore[no-any-return]
        inverse = self**-1
        return number * inverse if isinstance(number, Value) else inverse * number

    def __rpow__(self, other: Value | float, modulo: object = None) -> Value:
        if modulo is not None:
            return NotImplemented
        number = _operand(other)
        if number is None:
            return _refuse(other)  # type: ignore[no-any-return]
        return apply(ops.power, (number if isinstance(number, Value) else Value(number), self))

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return apply(ops.abs, (self,))

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

    def __eq__(self, other: object) -> bool:
        """Identity, as every object has it."""
        if modes.recorder is not None and isinstance(other, Value):
            modes.recorder.compared()
        return object.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        """Not identity."""
        if modes.recorder is not None and isinstance(other, Value):
            modes.recorder.compared()
        return object.__ne__(self, other)

    def __hash__(self) -> int:
        """By identity too."""
        if modes.recorder is not None:
            modes.recorder.compared()
        return object.__hash__(self)

    def _compare(self, other: Any, relation: Callable[[float, float], bool]) -> Any:
        if modes.recorder is not None:
            return modes.recorder.compare(self, other, COMPARISONS[relation.__name__])
        number = _operand(other)
        return _refuse(other) if number is None else relation(self._data, _data(number))

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Value:
        """The op table's way in: any operation over Values and numbers."""
        make = _leaf
        if modes.recorder is not None:
            operands, make = [modes.recorder.operand(x) for x in operands], Value
        values = tuple(
            [
                x if isinstance(x, Value) else make(errors.real(x, f"an operand of {op.name}"))
                for x in operands
            ]
        )
        return apply(op, values, real_parameters(op, parameters))


def apply(op: Op, operands: tuple[Value, ...], parameters: tuple[float, ...] = ()) -> Value:
    """Make the node of one operation: its value now, its local derivatives for later."""
    xs = [v._data for v in operands]
    y = op.forward(*xs, *parameters)
    if not (isfinite(y) or modes.allow_nonfinite):
        errors.check(op, y, operands, parameters)
    node = _leaf(y)
    recorder = modes.recorder
    if modes.grad or recorder is not None:
        node._rule, node._parameters = op, parameters
        node._inputs, node._slopes = operands, op.local_grads(y, xs, parameters)
    if modes.debug:
        node._location = errors.caller()
    return node if recorder is None else recorder.made(node)


def _leaf(number: float) -> Value:
    """A leaf, without the constructor's questions."""
    node: Value = _new(Value)
    node._data = number
    node._grad = 0.0
    node._label = ""
    node._location = None
    node._rule = ""
    node._parameters = node._inputs = node._slopes = ()
    return node


_new = object.__new__


def topological_order(value: Value, /) -> list[Value]:
    """Every node of the graph, inputs first: each after all of its children.

    The order is that of the seeds' recursive ``build_topo``; the explicit stack takes the place of
    recursion, so that depth is no limit.

    >>> from chainrule import Value, topological_order
    >>> a, b = Value(2.0, label="a"), Value(3.0, label="b")
    >>> c = a * b; c.label = "c"
    >>> loss = c + a; loss.label = "L"
    >>> [v.label for v in topological_order(loss)]
    ['a', 'b', 'c', 'L']
    """
    if not isinstance(value, Value):
        raise TypeError(f"topological_order takes a Value, not a {type(value).__name__}")
    order: list[Value] = []
    visited = {id(value)}
    stack = [(value, iter(value._inputs))]
    while stack:
        node, children = stack[-1]
        for child in children:
            if id(child) not in visited:
                visited.add(id(child))
                stack.append((child, iter(child._inputs)))
                break
        else:
            order.append(node)
            stack.pop()
    return order


_set_grad = Value.__dict__["_grad"].__set__


def _commit(order: list[Value], grads: list[float]) -> None:
    # One call into C that runs no Python code: a signal comes before it or after it, never between.
    deque(map(_set_grad, order, grads), maxlen=0)


# --- sums ---------------------------------------------------------------------------------------


def vsum(values: Iterable[Value | float], /) -> Value:
    """``sum(values)`` as a Value, also when there are none: ``vsum([])`` is ``Value(0)``.

    >>> from chainrule import Value, vsum
    >>> vsum([Value(1.0), Value(2.0), Value(3.0)]).data
    6.0
    """
    total: Any = 0
    for value in values:  # as sum() adds Values, and plain floats too (which sum() compensates)
        total = total + value
    return total if isinstance(total, Value) else Value(total)


def dot(a: Iterable[Value | float], b: Iterable[Value | float], /) -> Value:
    """``sum(x * y for x, y in zip(a, b))``: the same nodes, in one call.

    >>> from chainrule import Value, dot
    >>> dot([Value(1.0), Value(2.0)], [3.0, 4.0]).data
    11.0
    """
    left, right = list(a), list(b)
    if len(left) != len(right):
        raise ValueError(f"dot needs two vectors of one length, got {len(left)} and {len(right)}")
    return vsum(x * y for x, y in zip(left, right, strict=True))


def linear(x: Sequence[Value | float], w: Iterable[Sequence[Value | float]], /) -> list[Value]:
    """A matrix times a vector, microgpt's ``linear``: ``[dot(row, x) for row in w]``.

    >>> from chainrule import Value, linear
    >>> [y.data for y in linear([1.0, 2.0], [[Value(3.0), Value(4.0)], [Value(5.0), Value(6.0)]])]
    [11.0, 17.0]
    """
    return [dot(row, x) for row in w]


# --- from whatever the user wrote to operands -----------------------------------------------------


def _operand(x: Any) -> Value | float | None:
    """``x`` if it can be computed with, numbers as floats; else None."""
    if isinstance(x, Value) or type(x) is float:
        return x
    if modes.recorder is not None:
        x = modes.recorder.operand(x)
        if isinstance(x, Value):
            return x
    return float(x) if errors.is_real(x) else None


def _binary(op: Op, a: Value, other: Any) -> Any:
    b = _operand(other)
    if b is None:
        return _refuse(other)
    if isinstance(b, Value):
        return apply(op, (a, b))
    leaf = _leaf(b)
    if modes.recorder is not None:
        modes.recorder.plain.add(id(leaf))  # a number in the instruction, not a node
    return apply(op, (a, leaf))


def _value_first(value: Value, other: Any) -> tuple[Value, Any]:
    return (other, value) if isinstance(other, Value) else (value, other)


def _forbidden(what: str) -> None:
    """What would not happen again when a recording is replayed: the recorder raises."""
    if modes.recorder is not None:
        modes.recorder.forbid(what)


def _refuse(x: object) -> Any:
    return errors.reject_operand(x)


def _data(x: Value | float) -> float:
    return x._data if isinstance(x, Value) else x


def _reciprocal(x: Value | float) -> Value | float:
    if isinstance(x, Value):
        return x**-1
    return errors.evaluate(ops.pow, (x,), (-1.0,), modes.allow_nonfinite)


add_methods(Value)
Value.__new__.__signature__ = SIGNATURE  # type: ignore[attr-defined]
