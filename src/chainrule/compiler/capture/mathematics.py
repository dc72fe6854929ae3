"""Functions of numbers that are recorded, ``math``'s and chainrule's own: operations of the table.

While any thread records, ``math.exp`` and the others are replaced by these, which do what ``math``
does unless the calling thread records and a stand-in is among the arguments. A function that was
imported by its own name (``from math import exp``) is C code that asks for the number: static.
``chainrule.exp`` is recorded by whatever name, because what all of them call is replaced.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.capture.lookups import table_of
from chainrule.compiler.capture.operators import UNARY
from chainrule.compiler.capture.standins import Detached, is_narrow, plain
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core import functions, ops
from chainrule.core.backend import modes

_ROWS: dict[str, tuple[ops.Op, int]] = {
    **{name: (row, 1) for name, row in UNARY.items() if hasattr(math, name)},
    "fabs": (ops.abs, 1),
    "atan2": (ops.atan2, 2),
    "hypot": (ops.hypot, 2),
    "pow": (ops.integer_power, 2),
}


_MOST = 128  # the integers from 0 on for which a function is looked up
#: those that raise for an infinite number, where the op table gives what is not a number
_RAISING = frozenset(
    (
        *("sin", "cos", "tan", "asin", "acos", "acosh", "atanh"),
        *("log", "log1p", "log2", "log10", "sqrt", "pow"),
    )
)


def _substitute(original: Callable[..., Any], row: ops.Op, arity: int) -> Any:
    @functools.wraps(original)
    def function(*arguments: Any) -> Any:
        if modes.recorder is None or len(arguments) != arity:
            return original(*arguments)
        numbers = [x.number() if type(x) in (Traced, Whole) else x for x in arguments]
        first = next((x for x in numbers if type(x) is Detached), None)
        if first is None or any(
            type(x) is not Detached and type(x) not in (int, float) for x in numbers
        ):
            return original(*arguments)
        if any(map(is_narrow, numbers)):
            return original(*map(plain, numbers))
        modes.recorder.uses_math |= original.__name__ in _RAISING
        operands = numbers[::-1] if row is ops.integer_power else numbers  # the exponent first
        found = first.as_python(row, *operands)
        if not math.isfinite(found._value._number):
            return original(*[plain(x) for x in numbers])  # infinite, not a number, or it raises
        return found

    setattr(function, REPLACES, original)
    return function


def _tabled(original: Callable[..., Any]) -> Any:
    """What stands for a function of small integers: its results are looked up."""

    @functools.wraps(original)
    def function(*arguments: Any) -> Any:
        recorder = modes.recorder
        traced = [k for k, x in enumerate(arguments) if type(x) is Traced]
        if recorder is None or len(traced) != 1 or not recorder.selector.enabled:
            return original(*arguments)
        (place,) = traced
        others = arguments[:place] + arguments[place + 1 :]
        x: Traced = arguments[place]
        kind: type = x.__class__
        if kind is not int or any(type(other) is not int for other in others):
            return original(*arguments)
        table = _table(original, place, *others)
        if x.value not in table:
            return original(*arguments)
        integers = recorder.integers
        if type(table[x.value]) is int:
            return Traced(recorder, integers.step("read", integers.constant(table), x.node))
        place = integers.step("read", table_of(recorder, table), x.node)
        numbers = integers.constant(tuple(table.values()))
        return Detached(
            recorder, recorder.selector.number(integers.step("read", numbers, place)), True
        )

    setattr(function, REPLACES, original)
    return function


@functools.lru_cache(maxsize=1024)
def _table(function: Callable[..., Any], place: int, *others: int) -> dict[int, Any]:
    """What a function of integers gives for small ones in one place; integers that floats hold."""
    found: dict[int, Any] = {}
    for k in range(_MOST):
        try:
            result = function(*others[:place], k, *others[place:])
        except (ValueError, TypeError, ArithmeticError):
            continue
        if type(result) is float or abs(result) <= EXACT:
            found[k] = result
    return found


def _tested(original: Callable[..., Any], test: Callable[[Detached], Any]) -> Any:
    @functools.wraps(original)
    def function(*arguments: Any) -> Any:
        if modes.recorder is None or len(arguments) != 1 or type(arguments[0]) is not Detached:
            return original(*arguments)
        return bool(test(arguments[0]))

    setattr(function, REPLACES, original)
    return function


#: by name: what stands for a function of ``math`` while recording
MATH: dict[str, Any] = {
    name: _substitute(getattr(math, name), row, arity) for name, (row, arity) in _ROWS.items()
}
MATH |= {name: _tabled(getattr(math, name)) for name in ("factorial", "comb", "lgamma", "gamma")}
MATH["isnan"] = _tested(math.isnan, lambda x: x != x)
MATH["isfinite"] = _tested(math.isfinite, lambda x: x - x == 0.0)


def _of_numbers(original: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def call(op: ops.Op, operands: tuple[Any, ...], parameters: tuple[Any, ...]) -> Any:
        if modes.recorder is None or parameters:
            return original(op, operands, parameters)
        numbers = [x.number() if type(x) in (Traced, Whole) else x for x in operands]
        first = next((x for x in numbers if type(x) is Detached), None)
        if first is None or any(
            type(x) not in (Detached, int, float) or is_narrow(x) for x in numbers
        ):
            return original(op, operands, parameters)
        return first.apply(op, *numbers)

    setattr(call, REPLACES, original)
    return call


#: what stands for that which all of chainrule's functions call
FUNCTIONS: dict[str, Any] = {"_call": _of_numbers(functions._call)}
