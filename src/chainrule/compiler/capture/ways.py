"""How the walk came to something, so that a refusal names the line and what to write instead.

In: what cannot be followed, and the function that names it. Out: an ``Unrecordable``, or the place
in the source that ends its message.
"""

from __future__ import annotations

import builtins
import collections.abc
import sys
import types
from dataclasses import dataclass
from typing import Any

from chainrule.compiler.capture import disassembly, known
from chainrule.compiler.capture.captured import content_of
from chainrule.compiler.capture.outside import ADVICE
from chainrule.compiler.capture.rewriting import original
from chainrule.compiler.capture.standins import Unrecordable


class Refused(Unrecordable):
    """Something is reached that cannot be recorded; ``instead``: what to do about it."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__(what)
        self.instead = instead


def unwatched(x: Any) -> Refused:
    """The contents of an object cannot be compared."""
    instead = "; pass what is read of it as an argument"
    if isinstance(x, collections.abc.Iterator):
        instead = "; pass what it gives next as an argument"
    elif isinstance(x, collections.abc.Sequence):
        instead = "; pass it, or a list of its items, as an argument"
    name = type(x).__name__
    article = "an" if name[:1].lower() in "aeio" else "a"
    return Refused(f"it reaches {article} {name}, which cannot be watched completely", instead)


def of_package(name: str) -> Refused:
    """A package does what nobody has listed."""
    return Refused(
        f"it calls code of {name}, which is not known to be pure",
        "; write it with functions of chainrule, as normal_cdf, or make an operation of it by "
        "@chainrule.operation(opaque=True)",
    )


def not_by_names(name: str) -> Unrecordable:
    """What a function changes can be reached otherwise than by the names that hooks see."""
    return Unrecordable(f"it changes {name!r}, which it reaches not by names alone{ADVICE}")


def full_name(x: Any) -> str:
    """The name of a function or class with its module, for messages."""
    module = known.module_of(x)
    name = getattr(x, "__qualname__", None) or getattr(x, "__name__", repr(x))
    return f"{module}.{name}" if module not in ("", "builtins") else str(name)


@dataclass(frozen=True)
class Way:
    """How the walk came to something: from a function of the user's, by a name."""

    reader: Any = None
    named: Any = None  # what the reader names, where the walk has gone on from there
    is_trusted: bool = False  # what leads to it is listed, with all that it reaches

    def through(self, x: Any) -> Way:
        """The way to what is inside ``x``."""
        if isinstance(x, types.FunctionType) and not is_of_library(x):
            return Way(x)
        return self if self.named is not None else Way(self.reader, x)

    @property
    def package(self) -> str | None:
        """The package of what a function of the user's names; not for modules of random numbers."""
        module = getattr(self.named, "__module__", None) or type(self.named).__module__
        top = str(module).partition(".")[0]
        file = getattr(sys.modules.get(top), "__file__", None)
        is_package = file is not None and disassembly.is_in_library(file)
        return top if is_package and top not in ("numpy", "random") else None

    def place(self, x: Any) -> str:
        """The line at which ``x`` is reached, to end a message with."""
        if isinstance(x, types.FunctionType) and not is_of_library(x):
            return ""  # the message has a line of it
        if self.reader is None:
            return ""
        return _place(x if self.named is None else self.named, self.reader)


TRUSTED = Way(is_trusted=True)


def is_of_library(function: types.FunctionType) -> bool:
    """Whether a function belongs to Python or a package, so that its lines say nothing."""
    return disassembly.is_of_library(function.__code__)


def own_place(function: types.FunctionType, names: set[str]) -> str:
    """The line of a function that reads one of some names; of a library's, that of its caller."""
    return "" if is_of_library(function) else disassembly.place(original(function.__code__), names)


def _place(x: Any, reader: types.FunctionType) -> str:
    """The line of ``reader`` that names ``x``, to end a message with."""
    code = original(reader.__code__)
    cells = zip(code.co_freevars, map(content_of, reader.__closure__ or ()), strict=True)
    scope = {**vars(builtins), **reader.__globals__, **dict(cells)}
    names = {*disassembly.names(code), *code.co_freevars}
    modules = [scope[name] for name in names if isinstance(scope.get(name), types.ModuleType)]
    spaces = [scope, *map(vars, modules)]
    found = {name for name in names if any(space.get(name) is x for space in spaces)}
    return disassembly.place(code, found or {getattr(x, "__name__", "")})
