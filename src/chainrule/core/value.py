"""``Value`` in plain Python: the reference engine.

A Value is one number that remembers how it was made. Arithmetic on Values builds a graph; the graph
of a loss, walked once from the loss back to its inputs, gives the derivative of the loss with
respect to every number in it. That is all of reverse-mode automatic differentiation, and this file
is all of it: ``apply`` makes a node, ``topological_order`` sorts the graph, ``sweep`` walks back.
What each operation computes, and its derivatives, are rows of the table in ``ops``; what a node
stores and shows is in ``node``, printing, copying and the constructor's dialects in ``protocols``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from math import isfinite
from typing import Any

from chainrule.core import errors, ops
from chainrule.core.node import Node, exponent, forbidden, inverted, modes, negated, operand, plain
from chainrule.core.ops import Op
from chainrule.core.protocols import add_method, as_values, real_parameters


class Value(Node):
    """One number that remembers how it was made.

    >>> from chainrule import Value
    >>> a = Value(2.0, label="a")
    >>> b = Value(-3.0, label="b")
    >>> f = (a * b + 10).relu()
    >>> f.backward()
    >>> f.data, a.grad, b.grad
    (4.0, -3.0, 2.0)

    ``Value(y, (x,), (dy_dx,), op="mine")`` is a custom operation: its value, its inputs and the
    derivative with respect to each. Between two Values ``==`` goes by identity, and so does
    ``hash``, so that nodes can be kept in sets; with a plain number ``==`` compares numbers, and
    so do ``<  <=  >  >=`` always.
    """

    __module__ = "chainrule"  # where users find it, and pickle too
    __slots__ = ()

    def backward(self, gradient: float = 1.0) -> None:
        """Leave in every ``.grad`` of this graph the derivative of this Value.

        The pass sums from zero in scratch and then commits at once: inputs add the total to the
        gradient they had, interior nodes take it. An interrupted pass changes nothing.
        """
        forbidden("backward()")
        order = topological_order(self)
        totals = sweep(order, errors.real(gradient, "the gradient"))
        pairs = zip(order, totals.values(), strict=True)
        _commit(order, [total if v._inputs else v._grad + total for v, total in pairs])

    def zero_grad(self) -> None:
        """Set every gradient in this Value's graph to zero."""
        forbidden("zero_grad()")
        order = topological_order(self)
        _commit(order, [0.0] * len(order))

    def _order(self) -> list[Value]:
        return topological_order(self)

    def _gradients(self, xs: list[Value], up_to: bool) -> list[float]:
        """The derivative by each of ``xs``; with ``up_to`` no x passes anything on."""
        forbidden("gradients()")
        totals = sweep(topological_order(self), ends=set(map(id, xs)) if up_to else ())
        return [totals.get(id(x), 0.0) for x in xs]

    # Everything is built from + * **, composed as micrograd and microgpt compose it.

    def __add__(self, other: Value | float) -> Value:
        return _binary(ops.add, self, other)

    def __mul__(self, other: Value | float) -> Value:
        return _binary(ops.mul, self, other)

    def __pow__(self, other: Value | float, modulo: object = None) -> Value:
        if modulo is not None:
            return NotImplemented
        if isinstance(other, Value):
            return apply(ops.power, (self, other))
        made = None if modes.recorder is None else modes.recorder.power(self, other)
        if made is not None:
            return made  # type: ignore[no-any-return]
        p = exponent(other)
        return _refuse(other) if p is None else apply(ops.pow, (self,), (p,))

    def __neg__(self) -> Value:
        return self * -1

    def __sub__(self, other: Value | float) -> Value:
        minus = negated(other)
        return _refuse(other) if minus is None else self + minus

    def __truediv__(self, other: Value | float) -> Value:
        over = inverted(other)
        return _refuse(other) if over is None else self * over

    # A number on the left comes second (- / ** of one: see ``node``). A Value is on the left only
    # where this one is of a subclass.

    def __radd__(self, other: Value | float) -> Value:
        if isinstance(other, Value):
            return apply(ops.add, (other, self))
        return _binary(ops.add, self, other)

    def __rmul__(self, other: Value | float) -> Value:
        if isinstance(other, Value):
            return apply(ops.mul, (other, self))
        return _binary(ops.mul, self, other)

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Value:
        """The op table's way in: any operation over Values and numbers."""
        static = real_parameters(op, parameters) if parameters else ()
        return apply(op, as_values(Value, op, operands, _leaf), static)


ops.follow(lambda op: add_method(Value, op))


_refuse: Callable[[object], Value] = errors.reject_operand  # NotImplemented, or advice


def _binary(op: Op, a: Value, other: Any) -> Value:
    b = operand(other)
    if isinstance(b, Value):
        return apply(op, (a, b))
    return _refuse(other) if b is None else apply(op, (a, plain(_leaf(b))))


def apply(op: Op, operands: tuple[Value, ...], parameters: tuple[float, ...] = ()) -> Value:
    """Make the node of one operation: its value now, its local derivatives for later."""
    xs = [v._data for v in operands]
    y = op.forward(*xs, *parameters) if parameters else op.forward(*xs)
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
    node._data, node._grad = number, 0.0
    node._label = node._rule = ""
    node._location = None
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


def sweep(
    order: Sequence[Value],
    gradient: float = 1.0,
    ends: Collection[int] = (),
    shares: list[tuple[float, float]] | None = None,
) -> dict[int, float]:
    """The backward pass in scratch: by a node's id, the derivative of the last one of ``order``.

    Zero passes nothing on, be it a node's total or its slope, so that 0 * inf never makes a nan.
    Nodes whose ids are in ``ends`` get a total and pass nothing on either. ``shares`` is told, for
    each edge of the nodes that pass something on, the share and the child's total after it.
    """
    totals = dict.fromkeys(map(id, order), 0.0)
    totals[id(order[-1])] = gradient
    for node in reversed(order):
        key = id(node)
        total = totals[key]
        if not total or key in ends:
            continue
        for child, slope in zip(node._inputs, node._slopes, strict=True):
            if slope:
                totals[id(child)] += slope * total
            if shares is not None:
                shares.append((slope * total if slope else 0.0, totals[id(child)]))
    return totals


_set_grad = Node.__dict__["_grad"].__set__


def _commit(order: list[Value], grads: list[float]) -> None:
    # One call into C that runs no Python code: a signal comes before it or after it, never between.
    deque(map(_set_grad, order, grads), maxlen=0)
