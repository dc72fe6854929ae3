"""What a Value does beside arithmetic, written once for both engines.

The constructor's dialects, the names micrograd and microgpt use, printing, copying, and the op
table's functions as methods. The reference engine inherits this class; the native one copies it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, SupportsIndex

from chainrule.core import copying, errors, ops, rounding
from chainrule.core.ops import Op

if TYPE_CHECKING:
    from chainrule.core.declarations import Methods
else:
    Methods = object  # add_method puts them on the engines' classes, row by row

Parts = tuple[Op | str, tuple[float, ...], tuple[Any, ...], tuple[float, ...]]


class Protocols(Methods):
    """The part of ``Value`` that does not depend on how a node is stored."""

    __slots__ = ()

    if TYPE_CHECKING:  # what an engine brings
        data: float
        grad: float
        label: str
        _rule: Op | str | None
        _parameters: tuple[float, ...]
        _build: Callable[..., None]
        _locate: Callable[[str], None]
        _apply_op: Callable[..., Any]
        _modes: Any

        @property
        def op(self) -> str: ...
        @property
        def children(self) -> tuple[Any, ...]: ...
        @property
        def local_grads(self) -> tuple[float, ...]: ...

    def __init__(
        self,
        data: float,
        children: Iterable[Any] = (),
        local_grads: Iterable[float] | str = (),
        label: str = "",
        *,
        op: str = "",
        _children: Iterable[Any] = (),
        _op: str = "",
    ) -> None:
        recorder = self._modes.recorder
        if recorder is not None and (children or _children):
            name = local_grads if isinstance(local_grads, str) else op or _op
            recorder.forbid(f"the custom operation {name!r}")
        if recorder is not None and (source := recorder.source(data)) is not None:
            self._build(source._number, 0.0, label, ops.detach, (), (source,), (0.0,))
            recorder.made(self)
            return
        number = errors.real(data, "a Value's data")
        if not isinstance(label, str):
            raise errors.bad_label(label)
        parts = how_made(number, children or _children, local_grads, op or _op)
        self._build(number, 0.0, label, *parts)
        if self._modes.debug and parts[2]:
            self._locate(errors.caller())
        if recorder is not None:
            recorder.made(self)

    # --- the names that micrograd and microgpt use ----------------------------------------------

    @property
    def _op(self) -> str:
        return self.op

    @property
    def _prev(self) -> tuple[Any, ...]:
        return self.children

    @property
    def _children(self) -> tuple[Any, ...]:
        return self.children

    @property
    def _local_grads(self) -> tuple[float, ...]:
        return self.local_grads

    @property
    def _backward(self) -> Callable[[], None]:
        """This node's own step: add ``local_grad * grad`` to each child, as micrograd does."""
        return self._step

    @_backward.setter
    def _backward(self, function: object) -> None:
        raise errors.no_custom_backward()

    def _step(self) -> None:
        if self.grad == 0.0:
            return  # as in a whole pass: 0 * inf would be a nan
        for child, local_grad in zip(self.children, self.local_grads, strict=True):
            if local_grad:
                child.grad += local_grad * self.grad

    # --- Python's own protocols -----------------------------------------------------------------

    def __repr__(self) -> str:
        label = f", label={self.label!r}" if self.label else ""
        return f"Value(data={self.data}, grad={self.grad}{label})"

    def __format__(self, spec: str) -> str:
        return format(self.data, spec) if spec else str(self)

    def __float__(self) -> float:
        raise errors.not_a_float()

    def __int__(self) -> int:
        raise errors.not_a_float()

    def __abs__(self) -> Any:
        return self._apply_op(ops.abs, (self,), ())

    def __floor__(self) -> Any:
        return self._apply_op(rounding.floor, (self,), ())

    def __ceil__(self) -> Any:
        return self._apply_op(rounding.ceil, (self,), ())

    def __trunc__(self) -> Any:
        return self._apply_op(rounding.trunc, (self,), ())

    def __round__(self, digits: None = None) -> Any:
        if digits is not None:
            raise TypeError("round(v) gives a Value; for digits round its number: round(v.data, 2)")
        return self._apply_op(rounding.round, (self,), ())

    def __mod__(self, other: Any) -> Any:
        return self._divided(rounding.mod, other)

    def __rmod__(self, other: Any) -> Any:
        return self._divided(rounding.mod, other, swapped=True)

    def __floordiv__(self, other: Any) -> Any:
        return self._divided(rounding.floor_divide, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._divided(rounding.floor_divide, other, swapped=True)

    def __divmod__(self, other: Any) -> Any:
        whole = self // other
        return whole, self % other

    def __rdivmod__(self, other: Any) -> Any:
        whole = other // self
        return whole, other % self

    def _divided(self, op: Op, other: Any, swapped: bool = False) -> Any:
        if not (errors.is_value(other) or errors.is_real(other)):
            return errors.reject_operand(other)
        return self._apply_op(op, (other, self) if swapped else (self, other), ())

    def conjugate(self) -> Any:
        """The Value itself, since it is real (numpy asks)."""
        return self

    def __copy__(self) -> Any:
        return copying.shallow(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        return copying.reduce(self)


#: the constructor's, for both engines
SIGNATURE = inspect.signature(Protocols.__init__)


def how_made(
    y: float, children: Iterable[Any], local_grads: Iterable[float] | str, op: str
) -> Parts:
    """What a constructor's arguments say: rule, parameters, children, local gradients."""
    if isinstance(local_grads, str):  # micrograd's third argument is _op
        op, local_grads = local_grads, ()
    if not isinstance(op, str):
        raise TypeError(f"op must be a str, not a {type(op).__name__}")
    nodes, slopes = tuple(children), tuple(local_grads)
    for node in nodes:
        if not errors.is_value(node):
            raise TypeError(f"children must be Values, not {errors.describe(node)}")
    if not nodes and not slopes:
        return "", (), (), ()
    if slopes:
        if len(slopes) != len(nodes):
            raise ValueError(
                "one local gradient per child: "
                f"got {len(nodes)} children and {len(slopes)} local_grads"
            )
        return op, (), nodes, tuple([errors.real(g, "a local gradient") for g in slopes])
    rule, parameters = _row_named(op, len(nodes))
    xs = [v._number for v in nodes]
    return rule, parameters, nodes, rule.local_grads(y, xs, parameters)


def _row_named(symbol: str, arity: int) -> tuple[Op, tuple[float, ...]]:
    """The row that a bare ``_op`` such as ``"+"`` or ``"**2"`` means."""
    if symbol.startswith("**") and arity == 1:
        try:
            return ops.pow, (float(symbol[2:]),)
        except ValueError:
            pass
    rule = ops.BY_SYMBOL.get(symbol) or ops.TABLE.get(symbol)
    if rule is None or rule.arity != arity or len(rule.defaults) < len(rule.parameters):
        raise TypeError(
            f"a node with {arity} children needs local_grads, one number per child, "
            f"or an op of the table that takes {arity} operands; got op={symbol!r}"
        )
    return rule, rule.defaults


def as_values(
    cls: Any, op: Op, operands: Sequence[Any], leaf: Callable[[float], Any]
) -> tuple[Any, ...]:
    """The operands of an operation as Values of one engine; a ``leaf`` for each number."""
    recorder = cls._modes.recorder
    if recorder is not None:
        # no generator: Python 3.12 crashes where that finds no memory
        if not [x for x in operands if type(x) is not cls]:
            return tuple(operands)
        operands, leaf = [recorder.operand(x) for x in operands], cls
    return tuple(
        [
            x if isinstance(x, cls) else leaf(errors.real(x, f"an operand of {op.name}"))
            for x in operands
        ]
    )


def real_parameters(op: Op, parameters: Sequence[Any]) -> tuple[float, ...]:
    """A row's static parameters as floats, or a TypeError naming the one that is not a number."""
    if not parameters:
        return ()
    static = zip(op.parameters, parameters, strict=True)
    return tuple([errors.real(p, f"{op.name}'s {name}") for name, p in static])


def _method(op: Op) -> Callable[..., Any]:
    arity = op.arity

    def unary(self: Any) -> Any:
        return self._apply_op(op, (self,), ())

    def general(self: Any, *arguments: Any) -> Any:
        operands = (self, *arguments[: arity - 1])
        if len(operands) < arity:
            raise TypeError(f"{op.name} takes {arity} operands, got {len(operands)}")
        return self._apply_op(op, operands, op.complete(arguments[arity - 1 :]))

    method = unary if arity == 1 and not op.parameters else general
    method.__name__ = method.__qualname__ = op.name
    method.__doc__ = f"{op.formula}, as a Value."
    return method


def add_method(cls: Any, op: Op) -> None:
    """Give a Value class a row as a method, under numpy's spellings too."""
    if op.is_operator or op.name == "where":  # written otherwise, or without a self
        return
    for name in (op.name, *op.aliases):
        if not hasattr(cls, name):
            setattr(cls, name, getattr(cls, op.name, None) or _method(op))
