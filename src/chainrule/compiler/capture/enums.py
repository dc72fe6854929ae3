"""Items of enums of integers: ``Kind.CALL`` computes and compares as the integer that it is.

In: an operand or a key. Out: the integer, where its class leaves all that is done with integers to
``int``; else the object as it is, for its class is to be asked.
"""

from __future__ import annotations

import enum
from itertools import takewhile
from typing import Any

#: what Python or numpy looks up on the type of an integer
_OWN = (frozenset(dir(int)) - frozenset(dir(object))) | {
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__hash__"),
    *("__array__", "__array_function__", "__array_interface__", "__array_priority__"),
    *("__array_struct__", "__array_ufunc__"),
}


def is_like_int(kind: type) -> bool:
    """Whether these are items of an enum that are integers with ``int``'s own methods.

    Flags are not: ``Flag.A | 1`` is a flag.
    """
    is_enum = isinstance(kind, enum.EnumMeta) and not issubclass(kind, enum.Flag)
    if not is_enum or not issubclass(kind, int):
        return False
    before = takewhile(lambda cls: cls is not int, kind.__mro__)
    return all(_OWN.isdisjoint(vars(cls)) for cls in before)


def integer_of(x: Any) -> Any:
    """An item of such an enum as the integer that it is; anything else as it is."""
    return int.__int__(x) if is_like_int(type(x)) else x


def has_item(kind: type, name: str) -> bool:
    """Whether ``kind.name`` is an item of such an enum: nobody's code runs where it is read."""
    return type(kind) is enum.EnumMeta and is_like_int(kind) and name in kind.__members__
