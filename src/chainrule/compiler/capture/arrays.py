"""Arrays as a recorded function sees them: parameters of Values, and data.

An array of parameters is an object array of Values, as in eager mode. An array of data is a
``DataArray`` of stand-ins, which says of itself what the array that was passed says. What numpy
offers for it is listed in ``numpys``: recorded item by item, a view of the same memory, or done
with the numbers themselves, which become static. Everything else ends the recording.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture import numpys
from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.merging import CannotMerge, is_open, one_of
from chainrule.compiler.capture.standins import (
    Condition,
    Detached,
    StandIn,
    Unrecordable,
    by_numpy,
    is_numpys,
    plain,
    without,
)
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core.backend import Value, kernels, modes, nonfinite
from chainrule.trees import NARROW, map_leaves

_TYPE_OF, _SET = np.ndarray.dtype.__get__, np.ndarray.__setattr__
_FLOAT64 = np.dtype(np.float64)
_WHERE = np.where  # itself: while recording others stand in np


class DataArray(np.ndarray[Any, Any]):
    """An object array of stand-ins that says it has the type of the array it stands for."""

    _claimed: np.dtype[Any]

    def __array_finalize__(self, obj: Any) -> None:
        if not _TYPE_OF(self).hasobject:  # as of ``np.float64(array)``
            refuse("a conversion of an array of data")
        claimed = obj._claimed if type(obj) is DataArray else _FLOAT64
        _SET(self, "_claimed", claimed)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        return _apply(ufunc, method, inputs, keywords)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """numpy's functions of arrays, by the kind under which they are listed."""
        if func in numpys.SHAPES:
            return func(*map_leaves(_unread, args), **map_leaves(_unread, kwargs))
        if kwargs.get("out") is not None:
            refuse(f"np.{func.__name__} with out")
        given: list[DataArray] = []
        kinds: list[Any] = []
        leaves: list[Any] = []
        map_leaves(leaves.append, (args, kwargs))
        for x in leaves:
            if isinstance(x, DataArray):
                given.append(x)
            if _is_number(x):
                kinds.append(_kind_of(x))
        if func in numpys.METHODS and args and _is_narrow(args[0]):
            return getattr(args[0], func.__name__)(*args[1:], **kwargs)
        kinds = [kind for kind in kinds if kind != np.bool_]  # of a condition
        before = [items_of(x) for x in given]
        exact = all(kind in numpys.EXACT or not isinstance(kind, np.dtype) for kind in kinds)
        if func is _WHERE and len(args) == 3 and not kwargs:
            chosen = _chosen(*args)
            if chosen is not None:
                return chosen
        if object in kinds:
            if func not in numpys.BESIDE_VALUES:
                refuse(f"np.{func.__name__} of data and Values")
            found = func(*map_leaves(_as_objects, args), **map_leaves(_as_objects, kwargs))
        elif func in numpys.VIEWS or (func in numpys.RECORDED and exact):
            found = super().__array_function__(func, types, args, kwargs)
        elif func in numpys.STATIC or func in numpys.RECORDED:
            return _static(func, args, kwargs)
        else:
            refuse(f"np.{func.__name__} of an array of data")
        for x, items in zip(given, before, strict=True):
            if any(a is not b for a, b in zip(items_of(x), items, strict=True)):
                refuse(f"a write by np.{func.__name__}")
        if object in kinds:
            return found
        kind = given[0]._claimed if func in numpys.VIEWS else np.result_type(*kinds)
        if isinstance(found, tuple | list):
            return type(found)([_made_from(x, given, kind) for x in found])
        return _made_from(found, given, kind)

    def __setitem__(self, key: Any, value: Any) -> None:
        """The item, or the items, as an array of this type holds them."""
        keys = tuple(map(numbers, key)) if type(key) is tuple else numbers(key)
        kind = self._claimed
        if isinstance(value, StandIn | Value) or np.isscalar(value):
            item = _as_item(value, kind)
            one = not isinstance(np.ndarray.__getitem__(self, keys), np.ndarray)
            value = item if one else object_array([item], ())
        else:
            value = _each(lambda x: _as_item(x, kind), ASARRAY(value))
        np.ndarray.__setitem__(self, keys, value)

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
        if not rest and not keywords and kind in numpys.EXACT and _is_narrow(self):
            return as_data(self, kind)
        integral = kind == np.int64 and self._claimed != np.int64
        if rest or keywords or not {kind, self._claimed} <= numpys.EXACT or integral:
            return _static(np.ndarray.astype, (self, kind, *rest), keywords)
        return as_data(self, kind)

    def fill(self, value: Any) -> None:  # noqa: D102
        self[...] = value

    def item(self, *place: Any) -> Any:
        """An item as a number of Python's."""
        return _pythons(np.ndarray.item(self, *map(plain, place)))

    def tolist(self) -> Any:
        """All items as numbers of Python's."""
        return _each(_pythons, self).tolist()

    def mean(self, axis: Any = None, *rest: Any, **keywords: Any) -> Any:
        """As numpy does it: the sum, divided."""
        keywords = {name: x for name, x in keywords.items() if x is not None}
        if not rest and not keywords and _is_narrow(self):
            return as_data(self, _DOUBLE).mean(axis)
        if rest or keywords or self._claimed != np.float64:
            return _static(np.ndarray.mean, (self, axis, *rest), keywords)
        total = self.sum(axis=axis)
        return total / (self.size // _count(total))

    def var(self, axis: Any = None, *rest: Any, ddof: Any = 0, **keywords: Any) -> Any:
        """As numpy does it: the mean of the squared distances from the mean."""
        given = {name: x for name, x in keywords.items() if x is not None}
        plain = self._claimed == np.float64 and type(ddof) is int and self.size
        if rest or given or not plain:
            return _static(np.ndarray.var, (self, axis, *rest), {**given, "ddof": ddof})
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
            return _static(getattr(np.ndarray, name), (self,), options)
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


def _memory(x: Any) -> Any:
    """The object array of an array of data itself."""
    return np.ndarray.view(x, np.ndarray) if isinstance(x, DataArray) else x


def _is_narrow(x: Any) -> bool:
    """Whether this is an array of traced truths, or of integers of few bits."""
    is_one = isinstance(x, DataArray) and x._claimed in NARROW
    return is_one and all(type(item) is Traced for item in items_of(x))


def _as_objects(x: Any) -> Any:
    """An array beside objects: of truths and narrow integers numpy makes Python's numbers."""
    return _memory(_each(_pythons, x) if _is_narrow(x) else x)


def _unread(x: Any) -> Any:
    """An array of the same shape and type, for functions that read no number."""
    return np.empty_like(_memory(x), x._claimed) if isinstance(x, DataArray) else x


def _each(function: Callable[[Any], Any], array: Any) -> Any:
    """The array of objects that a function makes of each item; in memory it lies as this one."""
    found = np.frompyfunc(function, 1, 1)(_items(array))
    return found if isinstance(found, np.ndarray) else object_array([found], ())


def _pythons(x: Any) -> Any:
    """A number of numpy's, or a stand-in for one, as Python's."""
    if type(x) is Traced and x.__class__ is np.bool_:
        return Traced(x._recorder, x.node)
    if type(x) in (Traced, Whole, Detached):
        return x.as_kind(float if type(x) is Detached else int)
    return x.item() if isinstance(x, np.generic) else x


def _as_item(x: Any, kind: np.dtype[Any]) -> Any:
    """What an array of this type holds where ``x`` was stored."""
    if isinstance(x, Value):
        float(x)  # an array of floats takes none, and says so
    exact = (Traced, Whole, Detached) if kind == np.float64 else (Traced, Whole)
    if kind in numpys.EXACT and type(x) in exact and _kind_of(x) in (int, float, *numpys.EXACT):
        return _as_kind(x, kind)
    return kind.type(plain(x))


def _made_from(found: Any, given: list[DataArray], kind: np.dtype[Any]) -> Any:
    """A result of numpy's as an array of data: the same memory as an argument's, or its own."""
    if not isinstance(found, np.ndarray) or not _holds_objects(found):
        return found
    for x in given:
        if found is x:
            return x
        if np.may_share_memory(_memory(found), _memory(x)):
            return data_view(found, x)
    return as_data(found, kind)


def _static(function: Any, arguments: Any, keywords: dict[str, Any]) -> Any:
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
        return _each(numbers, x).astype(x._claimed)
    return x.plain("a function of numpy") if isinstance(x, StandIn) else x


# --- numpy's arithmetic beside stand-ins ----------------------------------------------------------


def _apply(ufunc: np.ufunc, method: str, inputs: Any, keywords: dict[str, Any]) -> Any:
    """A function of numpy's with a stand-in among its operands.

    With objects it works on the items, as in eager mode. On floats and integers of 64 bits the
    items are recorded, and the result is an array of data again. What rounds or wraps around in
    another way, and functions that are not listed, get the numbers themselves.
    """
    outs = [x for x in keywords.get("out", ()) if isinstance(x, DataArray)]
    if method == "at" and isinstance(inputs[0], DataArray):
        refuse(f"np.{ufunc.__name__}.at of an array of data")
    if method == "outer" and not keywords and len(inputs) == 2:
        found = _outer(ufunc, *inputs)
        if found is not None:
            return found
    inputs = _widened(ufunc, method, _as_numbers_beside(ufunc, method, inputs), keywords)
    kinds = [_kind_of(x) for x in inputs]
    if outs and (object in kinds or len(keywords["out"]) > 1):
        refuse(f"np.{ufunc.__name__} with out")
    if object in kinds:
        return _on_objects(ufunc, method, [_as_objects(x) for x in inputs], keywords)
    if method == "__call__" and not keywords:
        joined = _joined(ufunc, inputs)
        if joined is not None:
            return joined
    result = _recorded_kind(ufunc, method, kinds, keywords)
    if result is None:
        options = {name: map_leaves(numbers, x) for name, x in keywords.items()}
        found = getattr(ufunc, method)(*map(numbers, inputs), **options)
        return _written(outs[0], found) if outs else found
    rest = {name: x for name, x in keywords.items() if name != "out"}
    if ufunc in numpys.EXTREMES and method == "reduce" and rest.get("axis", 0) is None:
        if rest.get("keepdims"):
            refuse(f"np.{ufunc.__name__} of all axes with keepdims")
        inputs, rest["axis"] = (np.ndarray.ravel(inputs[0]),), 0  # one axis at a time
    if ufunc in numpys.COMPARISONS and method == "__call__" and not outs and not rest:
        compared = _compared(ufunc, inputs)
        if compared is not None:
            return compared
    with by_numpy(modes.recorder):
        found = _on_objects(numpys.EXTREMES.get(ufunc, ufunc), method, inputs, rest)
    if outs:
        return _written(outs[0], found)
    if ufunc in numpys.COMPARISONS:
        return found
    return as_data(found, result) if isinstance(found, np.ndarray) else _as_kind(found, result)


_BOOL, _INT, _DOUBLE = np.dtype(bool), np.dtype(np.int64), np.dtype(np.float64)
_OBJECT = np.dtype(object)
_NARROW_TYPES = frozenset(dtype.type for dtype in NARROW)
_TRUTHS_AS_NUMBERS = frozenset((np.add, np.subtract, np.multiply, np.divide))


def _compared(ufunc: np.ufunc, inputs: Any, any_kind: bool = False) -> DataArray | None:
    """The truths of a comparison, none of them decided yet.

    None where they follow parameters, unless they may be of ``any_kind``.
    """
    with nonfinite("allow"):
        found = ufunc(*map(_items, inputs), dtype=object)
    if not isinstance(found, np.ndarray) or not found.size:
        return None
    items = found.ravel().tolist()
    open_ones = [
        x for x in items if type(x) is Traced or (type(x) is Condition and (x.is_data or any_kind))
    ]
    if len(open_ones) != len(items):
        return None
    for x in open_ones:
        x.kind = np.bool_
    return data_array(items, found.shape, _BOOL)


def _merges() -> bool:
    """Whether both sides of branches are computed, outside of such a side."""
    recorder = modes.recorder
    return recorder is not None and recorder.both and not recorder.forks


def compared_values(name: str, a: Any, b: Any) -> DataArray | None:
    """The truths of ``a < b``, or another of ``ORDERS``, of arrays with Values among them.

    None of them is decided, where both sides of branches are computed; None for anything else.
    """
    recorder = modes.recorder
    if recorder is None or not (isinstance(a, np.ndarray) or isinstance(b, np.ndarray)):
        return None
    given = [x for x in (a, b) if type(x) is np.ndarray or type(x) is DataArray]
    if not any(type(x) is np.ndarray and x.dtype == object for x in given):
        return None
    recorder.uses_math = True  # numpy warns of what is not a number among objects
    if not _merges() or not all(_memory(x).flags.c_contiguous for x in given):
        return None  # so is the result
    kinds = {type(x) for array in given for x in items_of(array)}
    kinds |= {type(x) for x in (a, b) if not any(x is y for y in given)}
    if not kinds <= _COMPARABLE:
        return None
    return _compared(ORDERS[name], (a, b), any_kind=True)


ORDERS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_COMPARABLE = frozenset((Value, Detached, int, float, np.float64))


def _chosen(mask: Any, *pair: Any) -> Any:
    """``np.where`` of truths that are not decided; None where it is left to numpy."""
    if not _merges() or type(mask) is not DataArray or mask._claimed != _BOOL:
        return None
    if not all(type(x) in _CHOSEN for x in pair):
        return None
    kinds = [_kind_of(x) for x in pair]
    if any(isinstance(k, np.dtype) and k != _OBJECT and k not in numpys.EXACT for k in kinds):
        return None
    kind = _OBJECT if _OBJECT in kinds else np.result_type(*kinds)
    try:
        found = np.frompyfunc(_one_of, 3, 1)(_memory(mask), *[_of_kind(x, kind) for x in pair])
    except CannotMerge:
        return None
    if not isinstance(found, np.ndarray):
        return None  # of an array with no axis
    return found if kind == _OBJECT else as_data(found, kind)


_CHOSEN = (DataArray, np.ndarray, Value, Detached, Traced, Whole, int, float, np.float64, np.int64)


def _of_kind(x: Any, kind: np.dtype[Any]) -> Any:
    """A number, or the items of an array, as numpy puts them into an array of this type."""
    is_array = isinstance(x, np.ndarray)
    if kind == _OBJECT:
        plain = is_array and x.dtype == object
        return x if plain else _each(_pythons, x) if is_array else _pythons(x)
    given = x if is_array else object_array([x], ())
    return _each(lambda item: _as_kind(item, kind), given)


def _one_of(test: Any, a: Any, b: Any) -> Any:
    if not is_open(test):
        return a if test else b
    return one_of(test, a, b)


_JOINING: dict[np.ufunc, str] = {
    getattr(np, f"{kind}_{name}"): name
    for kind in ("bitwise", "logical")
    for name in ("and", "or", "xor")
}
_OPPOSITES = frozenset((np.invert, np.logical_not))  # themselves, as below
_OF_TRACED = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}


def _joined(ufunc: np.ufunc, inputs: Any) -> DataArray | None:
    """``a & b`` and ``~a`` of arrays of truths, none of them decided; None of anything else."""
    if not all(
        isinstance(x, DataArray) and x._claimed == _BOOL and x.ndim and x.size for x in inputs
    ):
        return None
    sorts = {type(x) for array in inputs for x in items_of(array)}
    if sorts != {Condition} and sorts != {Traced}:
        return None
    if ufunc in _OPPOSITES:
        return data_array([~x for x in items_of(inputs[0])], inputs[0].shape, _BOOL)
    name = _JOINING.get(ufunc)
    if name is None:
        return None
    of_two = _OF_TRACED[name] if sorts == {Traced} else lambda a, b: a.joined(name, b)
    found = np.frompyfunc(of_two, 2, 1)(*map(_memory, inputs))
    return data_array(found.ravel().tolist(), found.shape, _BOOL)


def _as_numbers_beside(ufunc: np.ufunc, method: str, inputs: Any) -> Any:
    """Truths beside floats, in arithmetic, as 0 and 1."""
    if method != "__call__" or ufunc not in _TRUTHS_AS_NUMBERS or len(inputs) != 2:
        return inputs
    kinds = [_kind_of(x) for x in inputs]
    if _BOOL not in kinds or not any(kind is float or kind == _DOUBLE for kind in kinds):
        return inputs
    if ufunc is np.divide and kinds[1] == _BOOL:
        return inputs
    return [
        _truths_as_numbers(x) if isinstance(x, DataArray) and kind == _BOOL else x
        for x, kind in zip(inputs, kinds, strict=True)
    ]


def _truths_as_numbers(array: DataArray) -> DataArray:
    items = [
        x.number() if type(x) in (Traced, Condition) else np.float64(x) for x in items_of(array)
    ]
    return data_array(items, array.shape, _DOUBLE)


_SUMMED = frozenset("bi")  # kinds of items that numpy adds up as integers of 64 bits


def _widened(ufunc: np.ufunc, method: str, inputs: Any, keywords: dict[str, Any]) -> Any:
    """Narrow operands as those of 64 bits where numpy computes with such, or only compares."""
    kinds = [_kind_of(x) for x in inputs]
    if object in kinds or not any(map(_is_narrow, inputs)):
        return inputs
    if method == "reduce":
        sums = ufunc in _SUMS and keywords.get("dtype") is None and keywords.get("out") is None
        return [as_data(inputs[0], _INT)] if sums and kinds[0].kind in _SUMMED else inputs
    if method != "__call__" or keywords:
        return inputs
    try:
        wanted = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))[: ufunc.nin]
    except TypeError:
        return inputs
    if ufunc in numpys.COMPARISONS and not {kind.kind for kind in wanted} - set("biu"):
        same = wanted[0] == wanted[1]  # without a sign, beside others: perhaps beyond 64 bits
        wanted = (_INT, _INT) if same else wanted
    if not set(wanted) <= numpys.EXACT:
        return inputs
    return [_as_wide(x, kind) for x, kind in zip(inputs, wanted, strict=True)]


def _as_wide(x: Any, kind: np.dtype[Any]) -> Any:
    """An operand as one of this type, if it is of fewer bits."""
    if _is_narrow(x):
        return as_data(x, kind)
    is_numpys = isinstance(x, np.ndarray | np.generic) and not isinstance(x, DataArray)
    if is_numpys and x.dtype in NARROW:
        return x.astype(kind)
    return _as_kind(x, kind) if type(x) is Traced and x.__class__ in _NARROW_TYPES else x


def _outer(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    """A function of all pairs; None where it is left to numpy."""
    known = ufunc in numpys.COMPARISONS or ufunc in _TRUTHS_AS_NUMBERS
    if not known or not all(isinstance(x, np.ndarray) and x.dtype in numpys.EXACT for x in (a, b)):
        return None
    return ufunc(np.ndarray.reshape(a, (*a.shape, *[1] * b.ndim)), b)


def as_data(array: Any, kind: np.dtype[Any]) -> DataArray:
    """An array of objects as one of data of a type."""
    made: DataArray = np.ndarray.view(_each(lambda x: _as_kind(x, kind), array), DataArray)
    made._claimed = kind
    return made


def _on_objects(ufunc: Any, method: str, inputs: Any, keywords: dict[str, Any]) -> Any:
    """The function on the items themselves."""
    keywords = {
        name: x if name == "out" else map_leaves(_items, x)  # into which it is written
        for name, x in keywords.items()
    }
    return getattr(ufunc, method)(*map(_items, inputs), **keywords)


def _items(x: Any) -> Any:
    if isinstance(x, DataArray):
        return _memory(x)
    if isinstance(x, StandIn):
        return object_array([x], ())
    return x.astype(object) if isinstance(x, np.ndarray | np.generic) else x


def _written(out: Any, found: Any) -> Any:
    """The result of ``a += b``, in the array itself."""
    out[...] = found
    return out


def _is_number(x: Any) -> bool:
    return isinstance(x, Value | np.ndarray | np.generic | StandIn | int | float)


def _holds_objects(array: Any) -> bool:
    """Whether this is an array of objects, whatever it claims to be."""
    return bool(_TYPE_OF(array).hasobject)


def _kind_of(x: Any) -> Any:
    """The type of an operand for numpy: of an array, or Python's own int or float."""
    if isinstance(x, StandIn):
        kind: Any = x.__class__
        return kind if kind in (int, float) else np.dtype(kind)
    if isinstance(x, np.ndarray | np.generic):
        return x.dtype  # of an array of data what it claims to be
    if isinstance(x, (bool, int, float)):
        return type(x) if type(x) is not bool else np.dtype(bool)
    return np.dtype(object) if isinstance(x, Value) else np.asarray(x).dtype


_SUMS = frozenset((np.add, np.multiply))  # themselves: while recording others stand in np


def _recorded_kind(
    ufunc: np.ufunc, method: str, kinds: list[Any], keywords: dict[str, Any]
) -> np.dtype[Any] | None:
    """The type of the result where its items can be recorded; None where they cannot."""
    plain = {"axis": keywords.get("axis"), "keepdims": keywords.get("keepdims", False)}
    plain |= {"dtype": None, "where": True, "out": keywords.get("out")}
    known = ufunc in numpys.ARITHMETIC or ufunc in numpys.COMPARISONS or ufunc in numpys.EXTREMES
    if any(name not in plain or plain[name] is not x for name, x in keywords.items()):
        return None
    if any(kind not in numpys.EXACT and kind not in (int, float) for kind in kinds):
        return None
    if method != "__call__":
        reduces = ufunc in _SUMS or ufunc in numpys.EXTREMES
        return kinds[0] if reduces and method in ("reduce", "accumulate") else None
    integers = all(kind is int or kind == np.int64 for kind in kinds)
    if not known and not (integers and ufunc in numpys.INTEGRAL):
        return None
    result = ufunc.resolve_dtypes((*kinds, None))[-1]
    if "out" in keywords:
        (out,) = keywords["out"]
        return result if isinstance(out, DataArray) and out.dtype == result else None
    return result


def _as_kind(x: Any, kind: np.dtype[Any]) -> Any:
    """An item of an array of this type."""
    if type(x) in (Traced, Whole) and kind == np.float64:
        x = x.number()
    return x.as_kind(kind.type) if type(x) in (Traced, Whole, Detached) else kind.type(x)


DataArray.__name__ = DataArray.__qualname__ = "numpy.ndarray"  # as messages of Python's have it
#: what C knows of arrays
ARRAY_TYPES: tuple[Any, ...] = (np.ndarray, DataArray, type(iter(np.zeros(1))))
if kernels is not None:  # iter(array), without the error that numpy raises at its end
    kernels.set_arrays(*ARRAY_TYPES)
    _iterator: Callable[[Any], Any] = kernels.items
    setattr(DataArray, "__iter__", lambda self: _iterator(self))  # noqa: B010


setattr(  # noqa: B010  # what numpy asks where a stand-in is an operand
    StandIn,
    "__array_ufunc__",
    lambda self, ufunc, method, *inputs, **keywords: _apply(ufunc, method, inputs, keywords),
)


def _as_numbers(name: str) -> Any:
    """A method of the numbers themselves, which become static."""
    return lambda self, *arguments, **keywords: _static(
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


def _refuse_data(x: Any) -> None:
    if isinstance(x, DataArray):
        refuse("np.array of an array of data, with options")


class _Box:
    """Something in which C code finds no number."""

    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


def _boxed(original: Callable[..., Any], x: Any) -> Any:
    """What an array would be, with the stand-ins themselves in it.

    Those for numbers of numpy's have what numpy's have, by which C code would read the number.
    """
    boxed: list[_Box] = []

    def box(leaf: Any) -> Any:
        if not (isinstance(leaf, StandIn) and is_numpys(leaf)):
            return leaf
        boxed.append(_Box(leaf))
        return boxed[-1]

    found = original(map_leaves(box, x))
    return found if not boxed else _each(lambda item: item.x if type(item) is _Box else item, found)


def _making(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands for ``np.array`` while recording: of numbers it makes an array of data."""

    @functools.wraps(original)
    def array(*arguments: Any, **keywords: Any) -> Any:
        if modes.recorder is None:
            return original(*arguments, **keywords)
        if len(arguments) != 1 or not {*keywords} <= {"dtype"}:
            map_leaves(_refuse_data, (arguments, keywords))
            leaves: list[Any] = []
            map_leaves(leaves.append, arguments)
            if not any(isinstance(x, Value | np.ndarray) for x in leaves):
                arguments = map_leaves(numbers, arguments)
            return original(*arguments, **keywords)
        (x,) = arguments
        found = _boxed(original, x)
        if not _holds_objects(found):
            return original(x, **keywords)
        items = items_of(found)
        kinds = [_kind_of(item) for item in items if _is_number(item)]
        if len(kinds) < len(items) or object in kinds:
            return original(x, **keywords)
        wanted = keywords.get("dtype")
        if wanted in (object, np.dtype(object)) and not isinstance(x, DataArray):
            return found  # of numbers of Python's, as in eager mode
        if isinstance(x, DataArray) and wanted in (None, x._claimed):
            return x if original is _asarray else x.copy("K")
        kind = np.dtype(wanted) if wanted is not None else np.result_type(*kinds)
        exact = all(k in (int, float) or k in numpys.EXACT for k in kinds)
        if not exact or kind not in numpys.EXACT or (kind == np.int64 and float in kinds):
            return original(map_leaves(numbers, x), **keywords)
        return as_data(found, kind)

    setattr(array, REPLACES, original)
    return array


_asarray = np.asarray
ARRAY, ASARRAY = _making(np.array), _making(np.asarray)
