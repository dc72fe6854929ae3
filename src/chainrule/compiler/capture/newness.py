"""Whether a list was made for what is being done with it: then nobody else has it.

In: the frame that does it, at the call of a method or of a hook. Out: whether the instruction
before, which nothing can have jumped over, made the list.
"""

from __future__ import annotations

import dis
import types
from typing import Any


def is_passed(given: list[Any], frame: types.FrameType) -> bool:
    """Whether a list was made for this call: ``d.setdefault(key, [])``."""
    return _made_before(given, _until_call(frame))


def is_stored(given: list[Any], frame: types.FrameType) -> bool:
    """Whether a list was made to be stored: ``d[key] = [...]``, where both have names."""
    steps = _until_call(frame)
    while steps and (steps[-1].opname == "SWAP" or _is_ours(steps[-1])):
        if steps.pop().is_jump_target:
            return False
    named = all(x.opname in _LOADS and not x.is_jump_target for x in steps[-2:])
    return named and _made_before(given, steps[:-2])


def _is_ours(step: dis.Instruction) -> bool:
    """Whether it loads a hook, or the place of a branch."""
    return step.opname == "LOAD_CONST" and not isinstance(step.argval, int)


def _until_call(frame: types.FrameType) -> list[dis.Instruction]:
    """The instructions of a frame before the call that it is at.

    None where a jump leads to the call: something else may have come before it then.
    """
    steps = [x for x in dis.get_instructions(frame.f_code) if x.offset <= frame.f_lasti]
    *steps, call = [x for x in steps if x.opname not in ("CACHE", "EXTENDED_ARG")]
    calls = [call]
    if steps and steps[-1].opname == "PRECALL":
        calls.append(steps.pop())
    return [] if any(x.is_jump_target for x in calls) else steps


def _made_before(given: list[Any], steps: list[dis.Instruction]) -> bool:
    """Whether the last instruction made this list, so that nobody else has it."""
    return bool(steps) and (steps[-1].opname, steps[-1].arg) == ("BUILD_LIST", len(given))


REFERENCES = 2  # where it is asked, and for asking
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CONST")
