"""Arrays as a recorded function sees them: parameters of Values, and data.

An array of parameters is an object array of Values, as in eager mode. An array of data is a
``DataArray`` of stand-ins, which says of itself what the array that was passed says. numpy's own
functions over it do their arithmetic item by item, recorded; where C code wants the numbers
themselves, these become static.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.standins import Detached, Traced
from chainrule.core.backend import Value
from chainrule.trees import map_leaves


class DataArray(np.ndarray[Any, Any]):
    """An object array of stand-ins that says it has the type of the array it stands for."""

    _claimed: np.dtype[Any]

    def __array_finalize__(self, obj: Any) -> None:
        self._claimed = getattr(obj, "_claimed", np.dtype(np.float64))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """The result of numpy's arithmetic: of Values an array of objects, else one of data."""
        if return_scalar or array.ndim == 0:
            return array[()]
        if any(isinstance(x, Value) for x in array.ravel().tolist()):
            return array.view(np.ndarray)
        return array.view(DataArray)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """numpy's functions of arrays: those that do arithmetic item by item are recorded."""
        if func not in RECORDED:
            args, kwargs = map_leaves(_numbers, args), map_leaves(_numbers, kwargs)
            return func(*args, **kwargs)
        return super().__array_function__(func, types, args, kwargs)

    def __setitem__(self, key: Any, value: Any) -> None:
        if isinstance(value, Value):
            float(value)  # an array of floats takes none, and says so
        super().__setitem__(key, value)

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


def _numbers(x: Any) -> Any:
    """A data array as the array that was passed: all of its numbers become static."""
    if not isinstance(x, DataArray):
        return x
    items = [
        item.static("a function of numpy") if isinstance(item, Detached) else item
        for item in np.ndarray.ravel(x).tolist()
    ]
    items = [item.static() if isinstance(item, Traced) else item for item in items]
    return np.array(items, x._claimed).reshape(x.shape)


def _as_numbers(name: str) -> Any:
    """What shows the memory of an array shows that of the numbers, which become static."""
    if callable(getattr(np.ndarray, name)):
        return lambda self, *arguments, **keywords: getattr(_numbers(self), name)(
            *arguments, **keywords
        )
    return property(lambda self: getattr(_numbers(self), name))


for _name in (
    *("tobytes", "itemsize", "nbytes", "strides", "flags", "data", "ctypes", "dumps", "byteswap"),
    *(
        "__str__",
        "__repr__",
        "__format__",
        "argsort",
        "sort",
        "searchsorted",
        "__array_interface__",
    ),
):
    setattr(DataArray, _name, _as_numbers(_name))


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
