"""What stands for numpy's functions while recording: they are given arrays of data, not lists.

C code makes an array of objects of a list of stand-ins, where eager mode has one of floats: with
another type, other sums and other sorting. So while a function is recorded, lists and numbers that
are passed to numpy become arrays of data before, or the numbers themselves. Beside Values eager
mode computes with objects too, and nothing is changed.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture import numpys
from chainrule.compiler.capture.arrays import DataArray, numbers
from chainrule.compiler.capture.captured import REPLACES, Replacement
from chainrule.compiler.capture.changing import changing
from chainrule.compiler.capture.choosing import PLACES
from chainrule.compiler.capture.known import DISPATCHED
from chainrule.compiler.capture.numpy_calls import ARRAY, ASARRAY
from chainrule.compiler.capture.standins import Detached, StandIn
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core.backend import Value, modes
from chainrule.core.errors import is_librarys
from chainrule.trees import map_leaves

_JOINING = frozenset((np.concatenate, np.stack, np.vstack, np.hstack, np.column_stack, np.dstack))
#: which of their arguments are arrays, for functions of more than one
_ARRAYS = {
    **dict.fromkeys((np.dot, np.inner, np.outer, np.vdot, np.take), (0, 1)),
    **dict.fromkeys((np.where, np.clip), (0, 1, 2)),
    np.einsum: range(1, 9),
}


_WEAK = (np.where, np.clip)  # beside arrays of few bits, Python's numbers are of as few


def _has_narrow_items(x: Any) -> bool:
    """Whether this is an array, or a number, of less than 64 bits."""
    is_number = isinstance(x, np.ndarray | np.generic) and x.dtype.kind in "iuf"
    return is_number and bool(x.dtype.itemsize < 8)


def _holds_stand_ins_only(tree: Any) -> bool:
    """Whether there are stand-ins in nested arguments, and no Values beside them."""
    leaves: list[Any] = []
    map_leaves(leaves.append, tree)
    if not any(isinstance(x, StandIn) for x in leaves):
        return False
    return not any(
        isinstance(x, Value) or (isinstance(x, np.ndarray) and x.dtype == object) for x in leaves
    )


def _as_array(x: Any) -> Any:
    """A list of recorded numbers, or one of them, as an array of data."""
    if isinstance(x, list | tuple) and _holds_stand_ins_only(x):
        return ASARRAY(x)
    if type(x) in (Traced, Whole, Detached):
        return ASARRAY([x]).reshape(())
    return numbers(x) if isinstance(x, StandIn) else x


def _static(x: Any) -> Any:
    """Stand-ins as the numbers themselves; arrays of data as they are."""
    return map_leaves(lambda leaf: leaf if isinstance(leaf, DataArray) else numbers(leaf), x)


def _nothing(*_: Any, **__: Any) -> None:
    """No place is found."""


def _place_of_out(original: Any) -> int | None:
    """Which of the arguments of a function of numpy's is the array that its result is put into."""
    try:
        names = list(inspect.signature(original).parameters)
    except ValueError:  # of numpy's older ones C does not say
        return None
    return names.index("out") if "out" in names else None


def _note_out(place: int | None, arguments: Sequence[Any], keywords: dict[str, Any]) -> None:
    """Tell the recorder of arrays that a function of numpy's writes its result into."""
    found = keywords.get("out")
    given = [] if place is None else arguments[place : place + 2]
    for x in (*given, *(found if isinstance(found, tuple) else [found])):
        if isinstance(x, np.ndarray):
            changing(x)


_SHARING = (np.shares_memory, np.may_share_memory)


def _is_users_call() -> bool:
    """Whether code of the user's calls the function that asks, and not what records it."""
    return not is_librarys(sys._getframe(2).f_code.co_filename)


def _asking(original: Any) -> Callable[..., Any]:
    """What stands for a function of numpy's."""
    recorded = original in numpys.RECORDED or original in numpys.VIEWS
    places = _ARRAYS.get(original, (0,)) if recorded else ()
    search: Callable[..., Any] = PLACES.get(original, _nothing)
    out = _place_of_out(original)

    @functools.wraps(original)
    def function(*arguments: Any, **keywords: Any) -> Any:
        if modes.recorder is None:
            return original(*arguments, **keywords)
        _note_out(out, arguments[: None if out is None else out + 1], keywords)
        if original in _SHARING and modes.recorder.copies and _is_users_call():
            modes.recorder.forbid("asking whether arrays share memory")
        found = search(*arguments, **keywords)
        if found is not None:
            return found
        if not _holds_stand_ins_only((arguments, keywords)):
            return original(*arguments, **keywords)
        given = list(arguments)
        is_narrow = original in _WEAK and any(map(_has_narrow_items, given))
        for k, x in enumerate(given):
            if k not in places or (is_narrow and isinstance(x, StandIn)):
                given[k] = _static(x)
            elif original in _JOINING and isinstance(x, list | tuple):
                given[k] = [_as_array(item) for item in x]
            else:
                given[k] = _as_array(x)
        return original(*given, **{name: _static(x) for name, x in keywords.items()})

    setattr(function, REPLACES, original)
    return function


class _Elementwise(Replacement):
    """What stands for a function of numpy's that works item by item."""

    def __init__(self, original: np.ufunc) -> None:
        setattr(self, REPLACES, original)
        self.__wrapped__ = original

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ufunc

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return _elementwise(self.__wrapped__, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.__wrapped__, name)
        if name not in ("reduce", "accumulate", "outer", "reduceat", "at"):
            return found
        return lambda *arguments, **keywords: _elementwise(found, arguments, keywords)


_PLACE_OF_OUT = {"reduce": 3, "accumulate": 3, "reduceat": 4}  # of methods


def _elementwise(function: Any, arguments: Any, keywords: Any) -> Any:
    recorder = modes.recorder
    place = _PLACE_OF_OUT.get(getattr(function, "__name__", ""), getattr(function, "nin", None))
    if recorder is not None:
        _note_out(place, arguments, keywords)
    if recorder is not None and _holds_stand_ins_only(arguments):
        given = [_as_array(x) if isinstance(x, list | tuple) else x for x in arguments[:place]]
        arguments = [*given, *arguments[place:]] if place is not None else given  # out is no list
    elif recorder is not None and recorder.both and not recorder.forks and not keywords:
        plain = not any(isinstance(x, DataArray) for x in arguments)
        function = numpys.OF_OBJECTS.get(function, function) if plain else function
    return function(*arguments, **keywords)


def _substitutes(module: Any) -> dict[str, Any]:
    """By name: what stands for the functions of a module."""
    found: dict[str, Any] = {}
    for name, x in vars(module).items():
        if isinstance(x, np.ufunc):
            found[name] = _Elementwise(x)
        elif isinstance(x, DISPATCHED):
            found[name] = _asking(x)
    return found


NUMPY = _substitutes(np) | {name: _asking(getattr(np, name)) for name in ("full", "arange")}
NUMPY |= {"array": ARRAY, "asarray": ASARRAY}
LINALG = _substitutes(np.linalg)
