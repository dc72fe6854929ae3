"""Arrays as a recorded function sees them: parameters of Values, and data.

An array of parameters is an object array of Values, as in eager mode. An array of data is a
``DataArray`` of stand-ins, which says of itself what the array that was passed says. What numpy
offers for it is listed in ``numpys``; its functions and its arithmetic, which numpy asks its
operands for, are in ``numpy_calls``, truths that are not decided in ``masks``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture import numpys
from chainrule.compiler.capture.standins import (
    Detached,
    StandIn,
    Unrecordable,
    plain,
    without,
)
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core.backend import Value, kernels, modes
from chainrule.trees import NARROW, map_leaves

_TYPE_OF, _SET = np.ndarray.dtype.__get__, np.ndarray.__setattr__


class DataArray(np.ndarray[Any, Any]):
    """An object array of stand-ins that says it has the type of the array it stands for."""

    _claimed: np.dtype[Any]

    def __array_finalize__(self, obj: Any) -> None:
        if not _TYPE_OF(self).hasobject:  # as of ``np.float64(array)``
            refuse("a conversion of an array of data")
        claimed = obj._claimed if type(obj) is DataArray else numpys.FLOAT64
        _SET(self, "_claimed", claimed)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_claimed" and hasattr(np.ndarray, name):
            refuse(f"setting {name!r} of an array of data")
        if name != "_claimed":
            raise AttributeError(without(np.ndarray, name))
        super().__setattr__(name, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    @property
    def dtype(self) -> Any:
        """That of the array that was passed."""
        return self._claimed

    @property
    def itemsize(self) -> int:  # noqa: D102
        return self._claimed.itemsize

    @property
    def nbytes(self) -> int:  # noqa: D102
        return self.size * self._claimed.itemsize

    @property  # type: ignore[misc]
    def real(self) -> DataArray:  # type: ignore[override]  # noqa: D102
        return self

    def view(self, *arguments: Any, **keywords: Any) -> DataArray:  # type: ignore[override]
        """The same memory; as another type it would show its bytes."""
        if arguments or keywords:
            refuse("a view of an array of data as another type")
        return np.ndarray.view(self)

    def copy(self, order: Any = "C") -> DataArray:  # noqa: D102
        return data_view(np.ndarray.copy(self, order), self)

    def __copy__(self) -> DataArray:
        return self.copy("K")

    def __deepcopy__(self, memo: Any) -> DataArray:
        return self.copy("K")  # stand-ins do not change

    def astype(self, dtype: Any, *rest: Any, **keywords: Any) -> Any:
        """To floats and integers of 64 bits it is recorded where it keeps the numbers."""
        kind, copy = np.dtype(dtype), keywords.pop("copy", True)
        if not rest and not keywords and kind == self._claimed:
            return self.copy("K") if copy else self
        if not rest and not keywords and kind in numpys.EXACT and has_narrow(self):
            return as_data(self, kind)
        integral = kind == np.int64 and self._claimed != np.int64
        if rest or keywords or not {kind, self._claimed} <= numpys.EXACT or integral:
            return static(np.ndarray.astype, (self, kind, *rest), keywords)
        return as_data(self, kind)

    def fill(self, value: Any) -> None:  # noqa: D102
        self[...] = value

    def item(self, *place: Any) -> Any:
        """An item as a number of Python's."""
        return pythons(np.ndarray.item(self, *map(plain, place)))

    def tolist(self) -> Any:
        """All items as numbers of Python's."""
        return each(pythons, self).tolist()

    def mean(self, axis: Any = None, *rest: Any, **keywords: Any) -> Any:
        """As numpy does it: the sum, divided."""
        keywords = {name: x for name, x in keywords.items() if x is not None}
        if not rest and not keywords and has_narrow(self):
            return as_data(self, numpys.FLOAT64).mean(axis)
        if rest or keywords or self._claimed != np.float64:
            return static(np.ndarray.mean, (self, axis, *rest), keywords)
        total = self.sum(axis=axis)
        return total / (self.size // _count(total))

    def var(self, axis: Any = None, *rest: Any, ddof: Any = 0, **keywords: Any) -> Any:
        """As numpy does it: the mean of the squared distances from the mean."""
        given = {name: x for name, x in keywords.items() if x is not None}
        plain = self._claimed == np.float64 and type(ddof) is int and self.size
        if rest or given or not plain:
            return static(np.ndarray.var, (self, axis, *rest), {**given, "ddof": ddof})
        total = self.sum(axis=axis, keepdims=True)
        count = self.size // _count(total)
        squares = np.square(self - np.divide(total, count))
        return np.divide(squares.sum(axis=axis), max(count - ddof, 0))

    def std(self, *arguments: Any, **keywords: Any) -> Any:
        """The root of the variance."""
        return np.sqrt(self.var(*arguments, **keywords))

    def dot(self, other: Any, out: Any = None) -> Any:  # noqa: D102
        return np.dot(self, other, out=out)

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise") -> Any:
        """The items at some places, which become static."""
        if out is not None:
            refuse("take with out")
        return np.ndarray.take(self, numbers(indices), axis, mode=mode)

    def argmax(self, axis: Any = None, out: Any = None, **keywords: Any) -> Any:
        """The first of the largest items, or the first that is not a number."""
        return self._extreme("argmax", numpys.larger, axis, out, keywords)

    def argmin(self, axis: Any = None, out: Any = None, **keywords: Any) -> Any:
        """The first of the smallest items, or the first that is not a number."""
        return self._extreme("argmin", numpys.smaller, axis, out, keywords)

    def _extreme(self, name: str, better: Any, axis: Any, out: Any, keywords: Any) -> Any:
        items = items_of(self)
        if axis is not None and self.ndim == 1 and plain(axis) in (0, -1):
            axis = None
        if axis is not None or out is not None or keywords or not items:
            options = {"axis": axis, "out": out, **keywords}
            return static(getattr(np.ndarray, name), (self,), options)
        place = 0
        for k in range(1, len(items)):
            if better(items[place], items[k]) is not items[place]:
                place = k
        return np.int64(place)


def _count(result: Any) -> int:
    """How many numbers there are in a result of numpy's, which may be one by itself."""
    return max(result.size, 1) if isinstance(result, np.ndarray) else 1


def refuse(what: str) -> Any:
    """End the recording: this cannot be repeated, or nobody listed it."""
    if modes.recorder is not None:
        modes.recorder.forbid(what)
    raise Unrecordable(what)


def items_of(array: Any) -> list[Any]:
    """The items of an array, as they are."""
    found: list[Any] = np.ndarray.view(array, np.ndarray).ravel().tolist()
    return found


def memory_of(x: Any) -> Any:
    """The object array of an array of data itself."""
    return np.ndarray.view(x, np.ndarray) if isinstance(x, DataArray) else x


def has_narrow(x: Any) -> bool:
    """Whether this is an array of traced truths, or of integers of few bits."""
    is_one = isinstance(x, DataArray) and x._claimed in NARROW
    return is_one and all(type(item) is Traced for item in items_of(x))


def each(function: Callable[[Any], Any], array: Any) -> Any:
    """The array of objects that a function makes of each item; in memory it lies as this one."""
    found = np.frompyfunc(function, 1, 1)(objects_of(array))
    return found if isinstance(found, np.ndarray) else object_array([found], ())


def pythons(x: Any) -> Any:
    """A number of numpy's, or a stand-in for one, as Python's."""
    if type(x) is Traced and x.__class__ is np.bool_:
        return Traced(x._recorder, x.node)
    if type(x) in (Traced, Whole, Detached):
        return x.as_kind(float if type(x) is Detached else int)
    return x.item() if isinstance(x, np.generic) else x


def static(function: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
    """A function of the numbers themselves, which become static.

    It gets copies, into which it must not write and of which it must not return a part: either
    would be one of the array itself.
    """
    copies: list[Any] = []

    def copied(x: Any) -> Any:
        found = numbers(x)
        if isinstance(x, DataArray):
            copies.append(found)
            found.flags.writeable = False
        return found

    if isinstance(keywords.get("out"), DataArray):
        refuse(f"{function.__name__} with out")
    found = function(*map_leaves(copied, arguments), **map_leaves(copied, keywords))
    for x in found if isinstance(found, tuple | list) else (found,):
        if isinstance(x, np.ndarray) and any(np.may_share_memory(x, copy) for copy in copies):
            refuse(f"a view by {function.__name__}")
    return found


def numbers(x: Any) -> Any:
    """A stand-in as the number, or the array, that was passed: it becomes static."""
    if isinstance(x, DataArray):
        return each(numbers, x).astype(x._claimed)
    return x.plain("a function of numpy") if isinstance(x, StandIn) else x


# --- items, and arrays of them --------------------------------------------------------------------


def as_data(array: Any, kind: np.dtype[Any]) -> DataArray:
    """An array of objects as one of data of a type."""
    made: DataArray = np.ndarray.view(each(lambda x: item_of_kind(x, kind), array), DataArray)
    made._claimed = kind
    return made


def objects_of(x: Any) -> Any:
    """An operand of numpy's as objects."""
    if isinstance(x, DataArray):
        return memory_of(x)
    if isinstance(x, StandIn):
        return object_array([x], ())
    return x.astype(object) if isinstance(x, np.ndarray | np.generic) else x


def is_number(x: Any) -> bool:
    """Whether this is a number, an array or a stand-in for one."""
    return isinstance(x, Value | np.ndarray | np.generic | StandIn | int | float)


def holds_objects(array: Any) -> bool:
    """Whether this is an array of objects, whatever it claims to be."""
    return bool(_TYPE_OF(array).hasobject)


def kind_of(x: Any) -> Any:
    """The type of an operand for numpy: of an array, or Python's own int or float."""
    if isinstance(x, StandIn):
        kind: Any = x.__class__
        return kind if kind in (int, float) else np.dtype(kind)
    if isinstance(x, np.ndarray | np.generic):
        return x.dtype  # of an array of data what it claims to be
    if isinstance(x, (bool, int, float)):
        return type(x) if type(x) is not bool else np.dtype(bool)
    return np.dtype(object) if isinstance(x, Value) else np.asarray(x).dtype


def item_of_kind(x: Any, kind: np.dtype[Any]) -> Any:
    """An item of an array of this type."""
    if type(x) in (Traced, Whole) and kind == np.float64:
        x = x.number()
    return x.as_kind(kind.type) if type(x) in (Traced, Whole, Detached) else kind.type(x)


def object_array(items: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """An array of any objects."""
    made = np.empty(len(items), object)
    for k, item in enumerate(items):
        made[k] = item
    return made.reshape(shape)


def data_view(array: Any, like: DataArray) -> DataArray:
    """A part of an array of data, which is one too."""
    made: DataArray = np.ndarray.view(array, DataArray)
    made._claimed = like._claimed
    return made


def data_array(items: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> DataArray:
    """What stands for an array of data of this type."""
    made: DataArray = object_array(items, shape).view(DataArray)
    made._claimed = dtype
    return made


# --- what else numpy's arrays have ----------------------------------------------------------------

DataArray.__name__ = DataArray.__qualname__ = "numpy.ndarray"  # as messages of Python's have it
#: what C knows of arrays
ARRAY_TYPES: tuple[Any, ...] = (np.ndarray, DataArray, type(iter(np.zeros(1))))
if kernels is not None:  # iter(array), without the error that numpy raises at its end
    kernels.set_arrays(*ARRAY_TYPES)
    _iterator: Callable[[Any], Any] = kernels.items
    setattr(DataArray, "__iter__", lambda self: _iterator(self))  # noqa: B010


def _as_numbers(name: str) -> Any:
    """A method of the numbers themselves, which become static."""
    return lambda self, *arguments, **keywords: static(
        getattr(np.ndarray, name), (self, *arguments), keywords
    )


for _name in numpys.STATIC_ATTRIBUTES:
    setattr(DataArray, _name, _as_numbers(_name))


def _in_known_order(name: str) -> Any:
    """A method that may ask for the order in memory: that of a stand-in may be another."""
    method = getattr(DataArray, name)

    @functools.wraps(getattr(np.ndarray, name))
    def ordered(self: DataArray, *arguments: Any, **keywords: Any) -> Any:
        places = () if name == "reshape" else arguments
        asked = keywords.get("order", *places[:1] or ("C",))
        if asked not in ("C", "F") and not np.ndarray.view(self, np.ndarray).flags.c_contiguous:
            refuse(f"{name} in the order of an array in memory")
        return method(self, *arguments, **keywords)

    return ordered


for _name in ("ravel", "flatten", "reshape", "tobytes"):
    setattr(DataArray, _name, _in_known_order(_name))


def _refused(name: str) -> Any:
    """What stands for an attribute that is not listed."""
    return property(lambda self: refuse(f"{name!r} of an array of data"))


for _name in numpys.REFUSED_ATTRIBUTES:
    setattr(DataArray, _name, _refused(_name))
