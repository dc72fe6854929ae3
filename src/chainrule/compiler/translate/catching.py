"""Whether a function may catch an error of its own arithmetic, which its source never raises.

In: the captured state of a function. Out: the line of the code that may, or None. Arrays hold inf
or nan where Python raises, so nobody would see that the function does something else there.
"""

from __future__ import annotations

import builtins
import contextlib
import dis
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chainrule.compiler.capture.captured import MISSING, CapturedState, content_of

_RAISED = (ZeroDivisionError, OverflowError, FloatingPointError, ValueError)
_GENERATORS: Any = contextlib._GeneratorContextManager
_NAMED = ("LOAD_GLOBAL", "LOAD_NAME")
_BETWEEN = ("EXTENDED_ARG", "CACHE", "NOP", "NOT_TAKEN", "PUSH_NULL")


def place_of_handler(state: CapturedState) -> str | None:
    """Where the first code begins that may catch what arithmetic raises; None: none does."""
    trusted = not _has_managers(state)
    shadowed = {name for _, name, x in state.names if _is_shadow(name, x)}
    for code in sorted(state.catches, key=lambda code: code.co_firstlineno):
        if _may_catch(code, shadowed, trusted):
            return f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    return None


def _is_shadow(name: str, x: Any) -> bool:
    """Whether a name of an error of Python's stands for something else."""
    known = getattr(builtins, name, None)
    return known is not None and x is not known and x is not MISSING


def _has_managers(state: CapturedState) -> bool:
    """Whether a ``with`` may swallow errors: its ``__exit__`` is none of chainrule's or numpy's.

    Those that ``contextlib.contextmanager`` makes do what the code behind them does.
    """
    objects = [x for _, _, x in state.names] + [content_of(cell) for cell, _ in state.cells]
    kinds = [x if isinstance(x, type) else type(x) for x in objects]
    others = [kind for kind in kinds if hasattr(kind, "__exit__") and kind is not _GENERATORS]
    own = any(function.__name__ == "__exit__" for function in state.functions)
    return own or any(
        kind.__module__.split(".")[0] not in ("chainrule", "numpy") for kind in others
    )


def _may_catch(code: types.CodeType, shadowed: set[str], trusted: bool) -> bool:
    steps = [step for step in dis.get_instructions(code) if step.opname not in _BETWEEN]
    handlers = [k + 1 for k, step in enumerate(steps) if step.opname == "PUSH_EXC_INFO"]
    return any(_handler_may(steps, k, shadowed, trusted) for k in handlers)


def _handler_may(steps: list[dis.Instruction], k: int, shadowed: set[str], trusted: bool) -> bool:
    """Whether a handler that begins with this step may catch what arithmetic raises.

    It is known not to where it only compares the error with others, or is that of a ``with``.
    """
    if steps[k].opname == "WITH_EXCEPT_START":
        return not trusted
    if _only_raises_again(steps[k:]):
        return False
    offsets = {step.offset: place for place, step in enumerate(steps)}
    while steps[k].opname != "RERAISE":
        kinds = []
        while steps[k].opname in _NAMED:
            kinds.append(steps[k].argval)
            k += 1
        if steps[k].opname == "BUILD_TUPLE":
            k += 1
        if not kinds or steps[k].opname != "CHECK_EXC_MATCH":
            return True
        if any(_is_raised(name, shadowed) for name in kinds):
            return True
        jump = steps[k + 1]
        if "IF_FALSE" not in jump.opname or jump.argval not in offsets:
            return True
        k = offsets[jump.argval]
    return False


def _only_raises_again(steps: Sequence[dis.Instruction]) -> bool:
    """Whether these steps are those of a ``finally``, and lead to its end."""
    for step in steps:
        if step.opname == "RERAISE":
            return True
        if step.opname == "POP_EXCEPT" or "JUMP" in step.opname or "RETURN" in step.opname:
            return False
    return False


def _is_raised(name: str, shadowed: set[str]) -> bool:
    kind = getattr(builtins, name, None)
    if name in shadowed or not isinstance(kind, type):
        return True
    return any(issubclass(raised, kind) for raised in _RAISED)
