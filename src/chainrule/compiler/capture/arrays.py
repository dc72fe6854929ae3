"""Arrays as a recorded function sees them: parameters of Values, and data.

An array of parameters is an object array of Values, as in eager mode. An array of data is a
``DataArray`` of stand-ins, which says of itself what the array that was passed says. numpy's own
functions over it do their arithmetic item by item, recorded; where C code wants the numbers
themselves, these become static.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.operators import UNARY
from chainrule.compiler.capture.standins import Detached, StandIn
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import Value, modes, nonfinite
from chainrule.trees import map_leaves


class DataArray(np.ndarray[Any, Any]):
    """An object array of stand-ins that says it has the type of the array it stands for."""

    _claimed: np.dtype[Any]

    def __array_finalize__(self, obj: Any) -> None:
        self._claimed = getattr(obj, "_claimed", np.dtype(np.float64))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        return _apply(ufunc, method, inputs, keywords)

    def mean(self, axis: Any = None, *rest: Any, **keywords: Any) -> Any:
        """As numpy does it: the sum, divided."""
        if rest or keywords or self.dtype != np.float64:
            return numbers(self).mean(axis, *rest, **keywords)
        total = self.sum(axis=axis)
        return total / (self.size // max(np.size(total), 1))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """numpy's functions of arrays: those that do arithmetic item by item are recorded."""
        kinds: list[Any] = []
        map_leaves(lambda x: kinds.append(_kind_of(x)) if _is_number(x) else None, args)
        kinds = [kind for kind in kinds if kind != np.bool_]  # of a condition
        if object in kinds:
            return super().__array_function__(func, types, args, kwargs)
        if func not in RECORDED or any(isinstance(k, np.dtype) and k not in _EXACT for k in kinds):
            args, kwargs = map_leaves(numbers, args), map_leaves(numbers, kwargs)
            return func(*args, **kwargs)
        found = super().__array_function__(func, types, args, kwargs)
        if isinstance(found, np.ndarray) and _holds_objects(found):
            return as_data(found, np.result_type(*kinds))
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, Value):
            float(value)  # an array of floats takes none, and says so
        super().__setitem__(key, value)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return np.ndarray

    @property
    def dtype(self) -> Any:
        """That of the array that was passed."""
        return self._claimed

    @dtype.setter
    def dtype(self, _: Any) -> None:
        raise AttributeError("the type of an array that is recorded cannot be changed")


#: numpy's functions whose arithmetic is that of their items; others get the numbers themselves
RECORDED = frozenset(
    (
        *(np.sum, np.prod, np.mean, np.dot, np.inner, np.outer, np.max, np.min, np.amax, np.amin),
        *(np.argmax, np.argmin, np.where, np.clip, np.cumsum, np.diff, np.transpose, np.reshape),
        *(np.ravel, np.squeeze, np.expand_dims, np.shape, np.ndim, np.size, np.trace, np.diag),
        *(np.concatenate, np.stack, np.vstack, np.hstack, np.atleast_1d, np.atleast_2d),
        *(np.any, np.all, np.roll, np.flip, np.take, np.tile, np.repeat, np.einsum, np.vdot),
    )
)


def numbers(x: Any) -> Any:
    """A stand-in as the number, or the array, that was passed: it becomes static."""
    if isinstance(x, DataArray):
        items = [numbers(item) for item in np.ndarray.ravel(x).tolist()]
        return np.array(items, x._claimed).reshape(x.shape)
    return x.plain("a function of numpy") if isinstance(x, StandIn) else x


# --- numpy's arithmetic beside stand-ins ----------------------------------------------------------

_EXACT = frozenset((np.dtype(np.float64), np.dtype(np.int64)))  # what stand-ins compute with
_COMPARISONS = frozenset(
    (np.less, np.less_equal, np.equal, np.not_equal, np.greater, np.greater_equal)
)
_INTEGRAL = frozenset((np.floor_divide, np.remainder))
_ARITHMETIC = frozenset(
    (
        *(np.add, np.subtract, np.multiply, np.divide, np.negative, np.positive, np.absolute),
        *(np.power, np.square, np.matmul),
        *(getattr(np, name) for name in UNARY if hasattr(np, name)),
    )
)


def _larger(a: Any, b: Any) -> Any:
    """``np.maximum`` of two numbers: what is not a number stays."""
    if a >= b:
        return a
    return b if b >= a or a == a else a


def _smaller(a: Any, b: Any) -> Any:
    if a <= b:
        return a
    return b if b <= a or a == a else a


_EXTREMES: dict[Any, Any] = {
    np.maximum: np.frompyfunc(_larger, 2, 1),
    np.minimum: np.frompyfunc(_smaller, 2, 1),
}


def _apply(ufunc: np.ufunc, method: str, inputs: Any, keywords: dict[str, Any]) -> Any:
    """A function of numpy's with a stand-in among its operands.

    With objects it works on the items, as in eager mode. On floats and integers of 64 bits the
    items are recorded, and the result is an array of data again. What rounds or wraps around in
    another way, and functions that are not listed, get the numbers themselves.
    """
    kinds = [_kind_of(x) for x in inputs]
    if object in kinds:
        return _on_objects(ufunc, method, inputs, keywords)
    result = _recorded_kind(ufunc, method, kinds, keywords)
    if result is None:
        options = {name: map_leaves(numbers, x) for name, x in keywords.items()}
        found = getattr(ufunc, method)(*map(numbers, inputs), **options)
        return _written(keywords["out"][0], found) if "out" in keywords else found
    rest = {name: x for name, x in keywords.items() if name != "out"}
    with nonfinite("allow"):  # numpy raises nothing
        found = _on_objects(_EXTREMES.get(ufunc, ufunc), method, inputs, rest)
    if ufunc in _COMPARISONS:
        return found
    if not isinstance(found, np.ndarray):
        return _as_kind(found, result)
    made = as_data(found, result)
    return _written(keywords["out"][0], made) if "out" in keywords else made


def as_data(array: Any, kind: np.dtype[Any]) -> DataArray:
    """An array of objects as one of data of a type."""
    items = [_as_kind(x, kind) for x in np.ndarray.ravel(array).tolist()]
    return data_array(items, array.shape, kind)


def _on_objects(ufunc: Any, method: str, inputs: Any, keywords: dict[str, Any]) -> Any:
    """The function on the items themselves."""
    keywords = {name: map_leaves(_items, x) for name, x in keywords.items()}
    return getattr(ufunc, method)(*map(_items, inputs), **keywords)


def _items(x: Any) -> Any:
    if isinstance(x, DataArray):
        return x.view(np.ndarray)
    if isinstance(x, StandIn):
        return object_array([x], ())
    return x.astype(object) if isinstance(x, np.ndarray | np.generic) else x


def _written(out: Any, found: Any) -> Any:
    """The result of ``a += b``, in the array itself."""
    if isinstance(out, DataArray):
        np.ndarray.__setitem__(out, ..., found)
    return out


def _is_number(x: Any) -> bool:
    return isinstance(x, Value | np.ndarray | np.generic | StandIn | int | float)


def _holds_objects(array: Any) -> bool:
    """Whether this is an array of objects, whatever it claims to be."""
    return bool(np.ndarray.dtype.__get__(array).hasobject)


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


def _recorded_kind(
    ufunc: np.ufunc, method: str, kinds: list[Any], keywords: dict[str, Any]
) -> np.dtype[Any] | None:
    """The type of the result where its items can be recorded; None where they cannot."""
    plain = {"axis": keywords.get("axis"), "keepdims": keywords.get("keepdims", False)}
    plain |= {"dtype": None, "where": True, "out": keywords.get("out")}
    known = ufunc in _ARITHMETIC or ufunc in _COMPARISONS or ufunc in _EXTREMES
    if any(name not in plain or plain[name] is not x for name, x in keywords.items()):
        return None
    if any(kind not in _EXACT and kind not in (int, float) for kind in kinds):
        return None
    if method != "__call__":
        reduces = ufunc in (np.add, np.multiply) or ufunc in _EXTREMES
        return kinds[0] if reduces and method in ("reduce", "accumulate") else None
    integers = all(kind is int or kind == np.int64 for kind in kinds)
    if not known and not (integers and ufunc in _INTEGRAL):
        return None
    result = ufunc.resolve_dtypes((*kinds, None))[-1]
    if "out" in keywords:
        (out,) = keywords["out"]
        return result if isinstance(out, DataArray) and out.dtype == result else None
    return result


def _as_kind(x: Any, kind: np.dtype[Any]) -> Any:
    """An item of an array of this type."""
    if type(x) is Traced and kind == np.float64:
        x = x.number()
    return x.as_kind(kind.type) if type(x) in (Traced, Detached) else kind.type(x)


setattr(  # noqa: B010  # what numpy asks where a stand-in is an operand
    StandIn,
    "__array_ufunc__",
    lambda self, ufunc, method, *inputs, **keywords: _apply(ufunc, method, inputs, keywords),
)


def _as_numbers(name: str) -> Any:
    """What shows the memory of an array shows that of the numbers, which become static."""
    if callable(getattr(np.ndarray, name)):
        return lambda self, *arguments, **keywords: getattr(numbers(self), name)(
            *arguments, **keywords
        )
    return property(lambda self: getattr(numbers(self), name))


for _name in (
    *("tobytes", "itemsize", "nbytes", "dumps", "byteswap", "__str__", "__repr__", "__format__"),
    *("argsort", "sort", "searchsorted"),
):
    setattr(DataArray, _name, _as_numbers(_name))


def _memory(self: DataArray) -> Any:
    assert modes.recorder is not None
    modes.recorder.forbid("looking at the memory of an array")


for _name in ("strides", "flags", "base", "data", "ctypes", "__array_interface__"):
    setattr(DataArray, _name, property(_memory))


def object_array(items: Sequence[Any], shape: tuple[int, ...]) -> Any:
    """An array of any objects."""
    made = np.empty(len(items), object)
    for k, item in enumerate(items):
        made[k] = item
    return made.reshape(shape)


def data_view(array: Any, like: DataArray) -> DataArray:
    """A part of an array of data, which is one too."""
    made: DataArray = array.view(DataArray)
    made._claimed = like._claimed
    return made


def data_array(items: Sequence[Any], shape: tuple[int, ...], dtype: np.dtype[Any]) -> DataArray:
    """What stands for an array of data of this type."""
    made: DataArray = object_array(items, shape).view(DataArray)
    made._claimed = dtype
    return made


def _making(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands for ``np.array`` while recording: of numbers it makes an array of data."""

    @functools.wraps(original)
    def array(*arguments: Any, **keywords: Any) -> Any:
        if modes.recorder is None or len(arguments) != 1 or not {*keywords} <= {"dtype"}:
            return original(*arguments, **keywords)
        (x,) = arguments
        found = original(x)
        if not _holds_objects(found):
            return original(x, **keywords)
        items = np.ndarray.ravel(found).tolist()
        kinds = [_kind_of(item) for item in items if _is_number(item)]
        if len(kinds) < len(items) or object in kinds:
            return original(x, **keywords)
        wanted = keywords.get("dtype")
        if isinstance(x, DataArray) and wanted is None:
            return x if original is _asarray else x.copy()
        kind = np.dtype(wanted) if wanted is not None else np.result_type(*kinds)
        exact = all(k in (int, float) or k in _EXACT for k in kinds)
        if not exact or kind not in _EXACT or (kind == np.int64 and float in kinds):
            return original(map_leaves(numbers, x), **keywords)
        return as_data(found, kind)

    setattr(array, REPLACES, original)
    return array


_asarray = np.asarray
#: by name: what stands for a function of numpy's that makes an array
NUMPY: dict[str, Any] = {"array": _making(np.array), "asarray": _making(np.asarray)}
