"""``@chainrule.operation``: operations of the user's own, which work as the op table's rows do.

In: a function of numbers and its partial derivatives. Out: a function of Values, numbers and
arrays. The body is read once, when the operation is defined: it runs over ``Symbol``s, which write
down what is done with them. That formula is what every engine evaluates, so that eager and compiled
calls cannot differ. A body that is no formula (a table, a simulator, a library's C function) is
``opaque``: it is called with floats, from eager code and from the tape alike.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.core import errors, functions, ops, rounding
from chainrule.core.ops import Op

MOST_OPERANDS, MOST_PARAMETERS = 3, 2  # what an instruction of a recording has room for


class NotAFormula(TypeError):
    """A body that asks a Symbol for more than arithmetic."""


class Symbol:
    """A number while a formula is read: every operation with it becomes a step of the formula."""

    __slots__ = ("place", "steps")

    def __init__(self, steps: list[Any], place: int) -> None:
        self.steps, self.place = steps, place

    def _step(self, function: Callable[..., Any], *arguments: Any) -> Symbol:
        for x in arguments:
            if not (isinstance(x, Symbol) or errors.is_real(x)):
                raise NotAFormula(f"a formula has numbers in it, not {errors.describe(x)}")
        self.steps.append(
            (function, [x if isinstance(x, Symbol) else _constant(x) for x in arguments])
        )
        return Symbol(self.steps, len(self.steps) - 1)

    def __add__(self, other: Any) -> Symbol:
        return self._step(operator.add, self, other)

    def __radd__(self, other: Any) -> Symbol:
        return self._step(operator.add, other, self)

    def __sub__(self, other: Any) -> Symbol:
        return self._step(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Symbol:
        return self._step(operator.sub, other, self)

    def __mul__(self, other: Any) -> Symbol:
        return self._step(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Symbol:
        return self._step(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Symbol:
        return self._step(ops.div, self, other)

    def __rtruediv__(self, other: Any) -> Symbol:
        return self._step(ops.div, other, self)

    def __pow__(self, other: Any) -> Symbol:
        return self._step(ops.power if isinstance(other, Symbol) else ops.pow, self, other)

    def __rpow__(self, other: Any) -> Symbol:
        return self._step(ops.power, other, self)

    def __mod__(self, other: Any) -> Symbol:
        return self._step(rounding.mod, self, other)

    def __rmod__(self, other: Any) -> Symbol:
        return self._step(rounding.mod, other, self)

    def __floordiv__(self, other: Any) -> Symbol:
        return self._step(rounding.floor_divide, self, other)

    def __rfloordiv__(self, other: Any) -> Symbol:
        return self._step(rounding.floor_divide, other, self)

    def __neg__(self) -> Symbol:
        return self._step(operator.neg, self)

    def __pos__(self) -> Symbol:
        return self

    def __abs__(self) -> Symbol:
        return self._step(ops.abs, self)

    def __floor__(self) -> Symbol:
        return self._step(rounding.floor, self)

    def __ceil__(self) -> Symbol:
        return self._step(rounding.ceil, self)

    def __trunc__(self) -> Symbol:
        return self._step(rounding.trunc, self)

    def __round__(self) -> Symbol:
        return self._step(rounding.round, self)

    def __lt__(self, other: Any) -> Symbol:
        return self._step(operator.lt, self, other)

    def __le__(self, other: Any) -> Symbol:
        return self._step(operator.le, self, other)

    def __gt__(self, other: Any) -> Symbol:
        return self._step(operator.gt, self, other)

    def __ge__(self, other: Any) -> Symbol:
        return self._step(operator.ge, self, other)

    def __eq__(self, other: object) -> Any:
        raise NotAFormula("a formula compares with <, <=, > and >=, not with ==")

    def __ne__(self, other: object) -> Any:
        raise NotAFormula("a formula compares with <, <=, > and >=, not with !=")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise NotAFormula("a formula has no 'if': write where(condition, a, b)")

    def __float__(self) -> float:
        raise NotAFormula("a formula has chainrule's functions in it: chainrule.exp, not math.exp")

    __int__ = __index__ = __float__

    def __getattr__(self, name: str) -> Any:
        """A row as a method, ``x.tanh()``."""
        row = _ROW_NAMED.get(name)
        if row is None:
            raise AttributeError(f"a number in a formula has no {name!r}")
        return lambda *others: getattr(functions, row.name)(self, *others)

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Symbol:
        """The op table's way in."""
        everything = [*operands, *parameters]
        symbol: Symbol = next(x for x in everything if isinstance(x, Symbol))
        if op is ops._where:
            return symbol._step(ops.where, parameters[0], *operands)
        return symbol._step(op, *everything)


_ROW_NAMED: dict[str, Op] = {}


@ops.follow
def _name(op: Op) -> None:
    if not op.is_operator and op.name != "where":
        _ROW_NAMED.update(dict.fromkeys((op.name, *op.aliases), op))


def _constant(x: Any) -> Any:
    return x if isinstance(x, bool) else float(x)


class Formula:
    """A rule that was read once: the same steps over whatever numbers it is called with.

    >>> from chainrule.core.operations import Formula
    >>> square = Formula(lambda x: x * x, 1)
    >>> square(3.0)
    9.0
    """

    __slots__ = ("inputs", "result", "steps")

    #: each a function and its operands: the place of a number, or -1 and a constant
    steps: tuple[tuple[Callable[..., Any], tuple[tuple[int, Any], ...]], ...]
    result: tuple[int, Any]

    def __init__(self, rule: Callable[..., Any], inputs: int) -> None:
        steps: list[Any] = [None] * inputs
        result = rule(*[Symbol(steps, i) for i in range(inputs)])
        if not (isinstance(result, Symbol) or errors.is_real(result)):
            raise NotAFormula(f"a formula gives a number, not {errors.describe(result)}")
        self.inputs = inputs
        self.steps = tuple(
            (function, tuple((x.place, None) if isinstance(x, Symbol) else (-1, x) for x in xs))
            for function, xs in steps[inputs:]
        )
        self.result = (result.place, None) if isinstance(result, Symbol) else (-1, float(result))

    @classmethod
    def of(cls, inputs: int, steps: tuple[Any, ...], result: tuple[int, Any]) -> Formula:
        """The formula of steps that were read before."""
        made = cls.__new__(cls)
        made.inputs, made.steps, made.result = inputs, steps, result
        return made

    def __call__(self, *numbers: Any) -> Any:
        """Its value over floats, arrays, Values, or anything else that rows work on."""
        values = list(numbers)
        for function, arguments in self.steps:
            values.append(function(*[values[at] if at >= 0 else x for at, x in arguments]))
        at, constant = self.result
        return values[at] if at >= 0 else constant


class Opaque:
    """A rule that is called as it is, with floats; a float comes back."""

    __slots__ = ("_name", "_rule")

    def __init__(self, rule: Callable[..., Any], name: str) -> None:
        self._rule, self._name = rule, name

    def __call__(self, *numbers: Any) -> float:
        """Its value."""
        for x in numbers:
            if errors.is_value(x):
                raise TypeError(
                    f"{self._name} is opaque: it takes numbers. To differentiate its partials, or "
                    "to show them as formulas, write them with operations too"
                )
        y = self._rule(*numbers)
        if isinstance(y, np.ndarray) and y.ndim == 0:  # as some of scipy's functions return
            y = y.item()
        return errors.real(y, f"the result of {self._name}")


def operation(
    forward: Callable[..., Any] | None = None,
    /,
    *,
    partials: Callable[..., Any] | Sequence[Callable[..., Any]],
    opaque: bool = False,
    name: str = "",
) -> Any:
    """An operation of your own, from its value and its partial derivatives.

    ``forward(*operands, *, parameters)`` takes one to three operands by position; what it takes by
    keyword only are static numbers. ``partials`` has a function for each operand,
    ``partial(y, *operands, *parameters)``, where y is the operation's own value. They are formulas:
    arithmetic, comparisons, ``where`` and chainrule's functions. They are read now, once; numbers
    that they take from elsewhere stay as they are now.

    >>> import chainrule
    >>> @chainrule.operation(partials=lambda y, x: 1 - y * y)
    ... def squash(x):
    ...     e = chainrule.exp(-2 * abs(x))
    ...     return chainrule.sign(x) * (1 - e) / (1 + e)
    >>> round(chainrule.grad(squash)(0.5), 6), round(chainrule.hessian(squash)(0.5), 6)
    (0.786448, -0.726862)

    ``opaque=True`` takes a body that is no formula, such as a function of scipy's. It is called
    with floats whenever the operation is computed, also when it is part of a compiled function,
    which then runs on the tape. It must be a function of its arguments alone. Partials that are
    formulas, or operations themselves, can be differentiated again.

    >>> from scipy import special
    >>> j1 = chainrule.operation(special.j1, name="j1", partials=lambda y, x: special.jvp(1, x),
    ...     opaque=True)
    >>> j0 = chainrule.operation(special.j0, name="j0", partials=lambda y, x: -j1(x), opaque=True)
    >>> round(chainrule.grad(j0)(1.0), 6), round(chainrule.hessian(j0)(1.0), 6)
    (-0.440051, -0.325147)
    """
    if forward is None:
        return lambda f: operation(f, partials=partials, opaque=opaque, name=name)
    if not callable(forward):
        raise TypeError(f"operation takes a function, not {errors.describe(forward)}")
    rules = (partials,) if callable(partials) else tuple(partials)
    name = name or getattr(forward, "__name__", "")
    if not name.isidentifier():
        raise ValueError(f"an operation needs a name that can be called, got {name!r}: pass name=")
    if name in ops.TABLE:
        raise ValueError(f"the op table already has a row named {name!r}: pass another name=")
    parameters, defaults = _parameters(forward, name, len(rules))
    inputs = len(rules) + len(parameters)

    def value(*numbers: Any) -> Any:
        static = dict(zip(parameters, numbers[len(rules) :], strict=True))
        return forward(*numbers[: len(rules)], **static)

    op = from_formulas(
        name,
        Opaque(value, name) if opaque else _read(value, inputs, name),
        tuple([_partial(rule, inputs + 1, name, opaque) for rule in rules]),
        parameters,
        defaults,
    )
    return _function(op, forward)


def from_formulas(
    name: str,
    forward: Formula | Opaque,
    partials: tuple[Formula | Opaque, ...],
    parameters: tuple[str, ...],
    defaults: tuple[float, ...],
) -> Op:
    """An operation beside the table, from its value and a partial for each operand."""
    return Op(
        name,
        name,
        f"{name}({', '.join('abc'[: len(partials)] if len(partials) > 1 else 'x')})",
        forward,
        partials,
        parameters,
        defaults,
        domain="operands for which it has a value",
        pole=_undefined,
    )


def _undefined(*_: float) -> type[ValueError]:
    return ValueError


def _parameters(
    forward: Callable[..., Any], name: str, operands: int
) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The static parameters, those with defaults last, and their defaults."""
    if not 1 <= operands <= MOST_OPERANDS:
        raise ValueError(
            f"{name} has {operands} partials: an operation has one to {MOST_OPERANDS} operands, "
            "and a partial for each"
        )
    if not hasattr(forward, "__code__"):  # a function of a library's, or an object
        return (), ()
    signature = inspect.signature(forward)
    try:
        signature.bind_partial(*range(operands))
    except TypeError:
        raise ValueError(f"{name} has {operands} partials: one for each operand") from None
    named = [p for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY]
    named.sort(key=lambda p: p.default is not p.empty)
    if len(named) > MOST_PARAMETERS:
        raise ValueError(f"{name} has {len(named)} parameters: at most {MOST_PARAMETERS}")
    given = [p.default for p in named if p.default is not p.empty]
    defaults = tuple([errors.real(x, f"a default of {name}") for x in given])
    return tuple([p.name for p in named]), defaults


def _read(rule: Callable[..., Any], inputs: int, name: str) -> Formula:
    try:
        return Formula(rule, inputs)
    except TypeError as reason:  # from a Symbol, or from what is given one
        raise NotAFormula(
            f"{name} is no formula: {reason}; with opaque=True it is called as it is"
        ) from None


def _partial(rule: Callable[..., Any], inputs: int, name: str, opaque: bool) -> Any:
    """A partial as a formula; in an opaque operation also as it is."""
    if not opaque:
        return _read(rule, inputs, f"a partial of {name}")
    try:
        return Formula(rule, inputs)
    except Exception:  # whatever a library says to a Symbol
        return Opaque(rule, f"a partial of {name}")


def _function(op: Op, forward: Callable[..., Any]) -> Any:
    """The operation as users call it."""

    def function(*arguments: Any, **named: Any) -> Any:
        if named or len(arguments) < op.arity:
            arguments = signature.bind(*arguments, **named).args
        return functions._call(op, arguments[: op.arity], op.complete(arguments[op.arity :]))

    signature = functions._signature(op)
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = forward.__doc__
    function.__module__ = getattr(forward, "__module__", None) or __name__
    return function
