"""What recorded code changes: told to the recorder before it happens.

In: what code stores into, or asks for a method that changes it, and calls of C code that do so.
Out: the same, once the recorder knows of it. A list that is changed and put back looks as before,
but who else reads it meanwhile may have the same one.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.standins import StandIn
from chainrule.core import errors
from chainrule.core.backend import Value, kernels, modes

#: the instructions that compute in place, and what ``operator`` calls them
OPERATORS = {
    "ADD": "iadd",
    "SUBTRACT": "isub",
    "MULTIPLY": "imul",
    "MATRIX_MULTIPLY": "imatmul",
    "TRUE_DIVIDE": "itruediv",
    "FLOOR_DIVIDE": "ifloordiv",
    "REMAINDER": "imod",
    "POWER": "ipow",
    "LSHIFT": "ilshift",
    "RSHIFT": "irshift",
    "AND": "iand",
    "OR": "ior",
    "XOR": "ixor",
}
#: methods that change what they are asked of. Of what only takes away, as ``del xs[0]``, nobody is
#: told: nothing is put back without one of these, or a store
CHANGING = frozenset(
    (
        *("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "add"),
        *("discard", "update", "setdefault", "popitem", "appendleft", "popleft", "fill"),
        *("extendleft", "rotate", "move_to_end", "__setitem__", "__setattr__", "at"),
        *("put", "partition", "itemset", "byteswap", "resize", "symmetric_difference_update"),
        *("__init__", "__setstate__"),
        *(f"__{name}__" for name in OPERATORS.values()),
    )
)
_NUMBERS = (float, int, str, tuple, Value, StandIn)
_ARRAY_BASE: Any = np.ndarray.base  # which an array of data does not tell
_STRIDED: Any = type(np.lib.stride_tricks.as_strided(np.zeros(1)).base)  # numpy's, between two
_METHODS_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType)


def changing(x: Any, name: str = "") -> Any:
    """What code stores into: an item, or an attribute of this name."""
    recorder = modes.recorder
    if recorder is not None:
        recorder.told |= isinstance(x, (Value, np.ndarray))
        keys = [id(x), id(_attributes(x))] if name else [id(x)]
        keys += map(id, bases(x))
        for key in keys if recorder.watched else ():
            if key in recorder.watched:
                recorder.stores_into.setdefault(key, errors.caller())
        recorder.selector.stored_into(x)
    return x


def bases(x: Any) -> Iterator[Any]:
    """In whose memory an array has its numbers, and whose these are, and so on."""
    while isinstance(x, (np.ndarray, np.flatiter, _STRIDED)):
        x = _ARRAY_BASE.__get__(x) if isinstance(x, np.ndarray) else x.base
        if x is not None:
            yield x


def _attributes(x: Any) -> Any:
    """An object's own dict, without asking a stand-in for anything."""
    try:
        return object.__getattribute__(x, "__dict__")
    except AttributeError:
        return None


def asked_to_change(x: Any, name: str) -> Any:
    """Where to look up one of the methods: of a class, what it is called with is changed."""
    in_c = isinstance(x, type) and isinstance(getattr(x, name, None), _METHODS_IN_C)
    if in_c or isinstance(x, np.ufunc):
        return _Methods(x)
    changing(getattr(x, "__self__", x) if type(x) is super else x, name)
    return x


class _Methods:
    """A class, or a ufunc, of which a method is asked, as ``list.append`` and ``np.add.at``."""

    __slots__ = ("of",)

    def __init__(self, of: Any) -> None:
        object.__setattr__(self, "of", of)

    def __getattribute__(self, name: str) -> Any:  # an object has some of these itself
        return _noting(getattr(object.__getattribute__(self, "of"), name))


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function in C that changes its first argument."""

    @functools.wraps(function)
    def change(*arguments: Any, **keywords: Any) -> Any:
        x = arguments[0] if arguments else keywords.get("a")
        if function is setattr or not isinstance(x, _NUMBERS):  # no operator changes a number
            changing(x, function.__name__)
        return function(*arguments, **keywords)

    setattr(change, REPLACES, function)
    return change


#: what stands for ``setattr``
SETTING: Any = _noting(setattr)
_OF_MODULES = {
    heapq: "heappush heappop heapify heapreplace heappushpop",
    bisect: "insort insort_left insort_right",
    operator: " ".join(["setitem", "iconcat", *OPERATORS.values()]),
}
#: by module, what stands for its functions that change their first argument
CHANGERS: dict[types.ModuleType, dict[str, Any]] = {
    module: {name: _noting(getattr(module, name)) for name in names.split()}
    for module, names in _OF_MODULES.items()
}


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    """What stands for ``a += b`` and its like."""
    original: Callable[[Any, Any], Any] = getattr(operator, name)

    def compute(a: Any, b: Any) -> Any:
        if not isinstance(a, _NUMBERS):
            changing(a)
        return original(a, b)

    return compute if kernels is None else getattr(kernels, name)


#: by the names of their instructions
IN_PLACE = {f"INPLACE_{name}": _in_place(known) for name, known in OPERATORS.items()}
