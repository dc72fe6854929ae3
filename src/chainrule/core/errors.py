"""What chainrule says when something is wrong: undefined values and wrong types.

Both engines call these, so that an error reads the same whichever of them met it. Values come in as
operands; only their public attributes are used.
"""

from __future__ import annotations

import contextlib
import decimal
import functools
import math
import numbers
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from chainrule.core.ops import Op, format_number
from chainrule.core.text import visible

#: the folder of this package, whose frames are not the user's
PACKAGE = str(Path(__file__).parents[1]) + os.sep
_NOT_THE_USERS = PACKAGE, contextlib.__file__, functools.__file__
_NUMPY, _STANDARD = (str(Path(file).parent) + os.sep for file in (np.__file__, os.__file__))
_REAL = (numbers.Real, np.bool_)


def is_value(x: object) -> bool:
    """Whether ``x`` is a node of a graph, of either engine."""
    return hasattr(type(x), "_apply_op")


def is_real(x: object) -> bool:
    """Whether ``x`` is a number chainrule computes with."""
    return type(x) is float or type(x) is int or isinstance(x, _REAL)


def real(x: Any, role: str) -> float:
    """``x`` as a float, or a TypeError that says what to pass as ``role``."""
    if type(x) is float or isinstance(x, _REAL):
        return float(x)
    raise TypeError(f"{role} must be a real number, not {describe(x)}{_advice(x)}")


def negated(x: Any) -> float:
    """``-x`` as a float, with the zero that Python gives: ``-0`` is 0 but ``-0.0`` is -0.0."""
    return 0.0 - float(x) if isinstance(x, numbers.Rational) else -float(x)


def describe(x: object) -> str:
    """A thing of the wrong type, in words."""
    if isinstance(x, (str, bytes, complex, decimal.Decimal, type(None))):
        return f"the {type(x).__name__} {x!r}"
    return f"a {type(x).__name__}"


def _advice(x: Any) -> str:
    if is_value(x):
        return "; use it as it is, or its number, v.data"
    if isinstance(x, (str, decimal.Decimal)):
        return f"; convert it first: float({x!r})"
    if isinstance(x, complex):
        return "; chainrule differentiates real functions: use the real and imaginary part apart"
    if isinstance(x, (np.ndarray, list, tuple)):
        return "; make one Value per element: [Value(x) for x in xs]"
    return ""


def reject_operand(x: object) -> Any:
    """NotImplemented, so that arrays and the user's classes may answer; complex gets advice."""
    if isinstance(x, complex):
        raise TypeError(
            f"an operand must be a Value or a real number, not {describe(x)}{_advice(x)}"
        )
    return NotImplemented


def not_a_float() -> TypeError:
    """The error of ``float(v)``, which ``math.exp(v)`` also runs into."""
    return TypeError(
        "a Value does not turn into a float by itself, because its gradient would be lost: "
        "use v.data for the number, or chainrule.exp(v) and the like instead of math.exp(v)"
    )


def bad_label(label: object) -> TypeError:
    """The error of a label that is not text."""
    return TypeError(f"a label must be a str, not {describe(label)}")


def already_built() -> TypeError:
    """The error of a second ``__init__``, which could make a graph its own ancestor."""
    return TypeError("this Value is already built: its children never change; make a new Value")


class GraphNeeded(BaseException):
    """Code asked for a graph that is not made: while the compiler records or checks a function.

    Not an Exception: the function's own ``except Exception`` must not swallow it.
    """


def needs_graph() -> None:
    """Raise it."""
    raise GraphNeeded


def no_custom_backward() -> AttributeError:
    """The error of ``v._backward = f``, micrograd's way to define an operation."""
    return AttributeError(
        "_backward is not assigned in chainrule: give the local derivatives when the node is made, "
        "Value(y, (x,), (dy_dx,), op='name')"
    )


def evaluate(op: Op, xs: Sequence[float], parameters: Sequence[Any], allow: bool) -> float:
    """The operation over plain floats, under the rule for undefined values."""
    y = op.forward(*xs, *parameters)
    if not (allow or math.isfinite(y)):
        check(op, y, xs, parameters)
    return float(y)


def check(op: Op, y: float, operands: Sequence[Any], parameters: Sequence[Any]) -> None:
    """Raise if a non-finite ``y`` came out of finite operands; they are Values or floats."""
    # A list, not a generator: some Pythons crash where a generator finds no memory.
    xs = tuple([getattr(x, "_number", x) for x in operands])
    if not all(map(math.isfinite, xs)):
        return
    call = op.call_text(xs, tuple(parameters))
    for x in operands:
        if is_value(x) and x._modes.recorder is not None:
            # Whoever catches the error makes a branch of it.
            x._modes.recorder.undefined = f"{call} at {caller()}"
    sources = "".join(dict.fromkeys(map(_source, operands)))  # each once, also in a * a
    kind = op.pole(*xs, *parameters) or (ValueError if math.isnan(y) else OverflowError)
    if kind is OverflowError:
        raise OverflowError(f"{call} overflows: the result is too large for a float{sources}")
    if kind is ZeroDivisionError:
        raise ZeroDivisionError(f"{call} is undefined: division by zero{sources}")
    raise kind(f"{call} is undefined: {op.name} needs {op.domain}{sources}")


def _source(x: Any) -> str:
    """Where one operand came from, if it has anything to tell."""
    if not is_value(x) or not (x.label or x.op):
        return ""
    name = f"{x.label!r}" if x.label else format_number(x._number)
    if not x.op:
        return f"; operand {name} is an input"
    names = [repr(c.label) if c.label else format_number(c._number) for c in x.children]
    line = f" at {x._location}" if x._location else ""
    return f"; operand {name} came from {visible(x.op)} of {', '.join(names)}{line}"


class _Told(threading.local):
    """The line that is the user's in this thread, where it is known otherwise."""

    line: str | None = None


_told = _Told()


@contextlib.contextmanager
def caller_at(line: str | None) -> Iterator[None]:
    """Inside this block ``caller()`` is this line, as the user's function is through."""
    before, _told.line = _told.line, line
    try:
        yield
    finally:
        _told.line = before


def caller() -> str:
    """``file:line`` of the user's own line; not one of numpy's or of Python's own library."""
    if _told.line is not None:
        return _told.line
    frame = outside = caller_frame()
    while outside.f_back is not None and is_librarys(outside.f_code.co_filename):
        outside = outside.f_back
    if not is_librarys(outside.f_code.co_filename):
        frame = outside
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def line_of(error: BaseException) -> str | None:
    """``file:line`` of the user's innermost line in which an error was raised; None: in none."""
    found, step = None, error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if not is_librarys(file):
            found = f"{os.path.basename(file)}:{step.tb_lineno}"
        step = step.tb_next
    return found


def called_in_library(error: BaseException) -> str | None:
    """The function of Python's own library, written in Python, that the user's innermost line
    called when an error was raised; None: the error is that line's, or this package's.
    """
    called, step = None, error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if not is_librarys(code.co_filename):
            called = None
        elif called is None:
            is_ours = code.co_filename.startswith((PACKAGE, _NUMPY, "<frozen "))
            module = step.tb_frame.f_globals.get("__name__")
            called = "" if is_ours else f"{module}.{code.co_qualname}"
        step = step.tb_next
    return called or None


@functools.lru_cache(maxsize=1024)  # asked of every frame above every branch that is recorded
def is_librarys(file: str) -> bool:
    """Whether a file is chainrule's, numpy's, or Python's own, not installed beside that."""
    if file.startswith((PACKAGE, _NUMPY, "<frozen ")):
        return True
    return file.startswith(_STANDARD) and "-packages" not in file


def caller_frame() -> FrameType:
    """The innermost frame outside this package: where the user is."""
    return sys._getframe(caller_depth())


def caller_depth() -> int:
    """How many frames above the caller of this function the user's own line is.

    Python's ``contextlib`` and ``functools`` call back what is in this package.
    """
    depth, frame = 0, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        depth, frame = depth + 1, frame.f_back
    return depth
