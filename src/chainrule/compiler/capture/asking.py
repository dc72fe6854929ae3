"""Attributes that code asks for by names made at run time: what nobody watches is refused.

In: an object and a name, as ``getattr``, ``__getattribute__``, format strings and what
``attrgetter`` and ``methodcaller`` make have them while a function is recorded. Out: what Python
gives, or the end of the recording: the walk has noted only what the names in code may ask for
(``questions``).
"""

from __future__ import annotations

import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

from chainrule.compiler.capture.questions import LOOKS, in_field
from chainrule.compiler.capture.standins import StandIn, plain
from chainrule.core.backend import Value, modes

_ANYTHING = object()  # of which names may be asked
#: what tells how an array lies in memory, in which that of a recording is a copy
OF_MEMORY = frozenset("base flags strides data ctypes __array_interface__ __array_struct__".split())
#: what tells in which order an object got its attributes
IN_ORDER = frozenset(("__dict__", "__getstate__", "__reduce__", "__reduce_ex__", "__dir__"))


def ask_by_name(x: Any, name: Any) -> None:
    """Refuse to ask for what nobody watches, as it was not known that it would be asked for."""
    recorder = modes.recorder
    if recorder is None or not isinstance(name, str) or name not in recorder.unasked:
        return
    if x is not _ANYTHING and (_is_own_attribute(x, name) or _is_no_label(x, name)):
        return
    recorder.forbid(f"asking for an attribute by a name that is in no code ({name!r})")


def ask_by_fields(text: str) -> None:
    """The same for a format string, whose fields name attributes of whatever it is given."""
    for name in in_field(text):
        ask_by_name(_ANYTHING, name)


def _is_own_attribute(x: Any, name: str) -> bool:
    """Whether an object has it among its own attributes, which are compared."""
    if isinstance(x, (types.ModuleType, type, StandIn)):
        return False
    try:
        return name in object.__getattribute__(x, "__dict__")
    except AttributeError:
        return False


def _is_no_label(x: Any, name: str) -> bool:
    """Whether a name that only Values hold something unseen under is asked of something else."""
    return name in LOOKS and not isinstance(x, Value)


class Asking:
    """Something whose ``__getattribute__`` is called."""

    __slots__ = ("_x",)

    def __init__(self, x: Any) -> None:
        self._x = x

    def __getattribute__(self, _: str) -> Any:
        x = object.__getattribute__(self, "_x")
        method = x.__getattribute__

        def ask(*arguments: Any) -> Any:
            if arguments:
                ask_by_name(x if len(arguments) == 1 else arguments[0], arguments[-1])
                _refuse_layout(arguments[-1])
            return method(*arguments)

        return ask


def _refuse_layout(name: Any) -> None:
    """Refuse a name by which anything may be asked for what a copy has not."""
    recorder = modes.recorder
    if recorder is None or not isinstance(name, str):
        return
    if name in IN_ORDER and recorder.records:
        recorder.forbid(f"asking for {name} by a name, which may be that of a dataclass")
    if name in OF_MEMORY and recorder.copies:
        recorder.forbid(f"asking for {name} by a name, which may be that of an array")


def asking_getter(make: Any) -> Callable[..., Any]:
    """``attrgetter`` or ``methodcaller``: what they make may ask anything for these names."""

    def made(*arguments: Any, **keywords: Any) -> Any:
        count = len(arguments) if make is operator.attrgetter else 1
        texts = tuple(map(plain, arguments[:count]))
        for name in itertools.chain(*[x.split(".") for x in texts if isinstance(x, str)]):
            if name == "__dict__" and modes.recorder is not None:
                modes.recorder.forbid("asking for all attributes by a name")
            _refuse_layout(name)
            ask_by_name(_ANYTHING, name)
        return make(*texts, *arguments[count:], **keywords)

    return made
