"""How messages name the user's line at which a recording came to hold for one case only.

In: where the function is, or what it returned. Out: the line, and behind it what happens there
where the line itself does not show it: a truth that is asked for in what a line calls, or a result.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chainrule.core import errors

INSIDE = ", in what is called there"  # after a line: no if or while of its own asks for a truth
RETURNED = ", where it is returned"  # after a line: the function is through
_FORKS = str(Path(__file__).parent / "forks.py")  # asks in the place of an ``if``
_ASKING = ("UNARY_NOT", "TO_BOOL")
_BOOL = 16  # in the argument of COMPARE_OP, from Python 3.13 on: its result is the truth itself


def of_truth() -> str:
    """The user's line that asks for a truth just now, and whether by something that it calls."""
    line = errors.caller()
    frame = sys._getframe(1)
    while frame.f_back is not None and errors.is_librarys(frame.f_code.co_filename):
        if frame.f_code.co_filename == _FORKS:
            return line
        frame = frame.f_back
    return line if line.endswith(RETURNED) or _branches(frame) else f"{line}{INSIDE}"


def _branches(frame: types.FrameType) -> bool:
    """Whether the instruction that a frame is at is part of a branch, a ``not`` or the like."""
    code, at = frame.f_code.co_code, frame.f_lasti
    while dis.opname[code[at]] == "CACHE":
        at -= 2
    name = dis.opname[code[at]]
    is_truth = sys.version_info >= (3, 13) and name == "COMPARE_OP" and code[at + 1] & _BOOL
    return "JUMP" in name or name in _ASKING or bool(is_truth)


def of_result(function: Callable[..., Any]) -> str | None:
    """The lines at which a function returns something; None where nobody knows."""
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    if not isinstance(function, types.FunctionType):
        function = type(function).__call__
    code = getattr(function, "__code__", None)
    if not isinstance(code, types.CodeType) or errors.is_librarys(code.co_filename):
        return None
    lines = " or ".join(map(str, _returning(code)))
    return f"{os.path.basename(code.co_filename)}:{lines}{RETURNED}" if lines else None


@functools.lru_cache(maxsize=256)
def _returning(code: types.CodeType) -> tuple[int, ...]:
    """The lines of the ``return``s of more than None."""
    steps = [x for x in dis.get_instructions(code) if x.opname not in ("CACHE", "EXTENDED_ARG")]
    found: dict[int, None] = {}
    for before, step in zip([None, *steps], steps, strict=False):
        is_none = before is not None and before.opname == "LOAD_CONST" and before.argval is None
        if step.opname == "RETURN_VALUE" and not is_none and step.positions is not None:
            found[step.positions.lineno or code.co_firstlineno] = None
    return tuple(found)
