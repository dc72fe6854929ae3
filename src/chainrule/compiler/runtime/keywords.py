"""Arguments by keyword, in the places that they have by position: a call is the same either way.

In: a function and a call of it. Out: the call with no more keywords than need be, so that it is
recorded and answered as one without; and what C needs to know for the same (``entrance.c``).
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any


def named(function: Callable[..., Any]) -> tuple[Any, CodeType, tuple[str | None, ...]] | None:
    """A function of Python's own, its code, and the names of its parameters by position.

    None is for one that no keyword can be passed to: any text may be one, the empty text too.
    """
    first = 1 if type(function) is MethodType else 0
    plain = function.__func__ if isinstance(function, MethodType) else function
    if type(plain) is not FunctionType:
        return None
    code = plain.__code__
    names = [
        name if k >= code.co_posonlyargcount else None
        for k, name in enumerate(code.co_varnames[: code.co_argcount])
    ]
    return function, code, tuple(names[first:])


def in_places(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with its keywords in their places, where they come next and leave none out."""
    found = named(function) if arguments and keywords else None
    places = () if found is None else found[2][len(arguments) : len(arguments) + len(keywords)]
    wanted = [name for name in places if name is not None]
    if len(wanted) < len(keywords) or any(name not in keywords for name in wanted):
        return arguments, keywords
    return (*arguments, *[keywords[name] for name in wanted]), {}
