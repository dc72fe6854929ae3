"""Arrays of truths that are not decided yet: comparisons of arrays, and what is made of them.

In: operands of numpy's comparisons, ``&``, ``~``, ``where`` and arithmetic. Out: an array of data
whose items are such truths, or numbers that both sides of them give; None for what numpy does by
itself.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from chainrule.compiler.capture import numpys
from chainrule.compiler.capture.arrays import (
    DataArray,
    as_data,
    data_array,
    each,
    item_of_kind,
    items_of,
    kind_of,
    memory_of,
    object_array,
    objects_of,
    pythons,
)
from chainrule.compiler.capture.merging import CannotMerge, is_open, one_of
from chainrule.compiler.capture.standins import Condition, Detached
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core.backend import Value, modes, nonfinite

TRUTHS_AS_NUMBERS = frozenset((np.add, np.subtract, np.multiply, np.divide))


def compared_items(ufunc: np.ufunc, inputs: Any, any_kind: bool = False) -> DataArray | None:
    """The truths of a comparison, none of them decided yet.

    None where they follow parameters, unless they may be of ``any_kind``.
    """
    with nonfinite("allow"):
        found = ufunc(*map(objects_of, inputs), dtype=object)
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
    return data_array(items, found.shape, numpys.BOOL)


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
    if not _merges() or not all(memory_of(x).flags.c_contiguous for x in given):
        return None  # so is the result
    kinds = {type(x) for array in given for x in items_of(array)}
    kinds |= {type(x) for x in (a, b) if not any(x is y for y in given)}
    if not kinds <= _COMPARABLE:
        return None
    return compared_items(ORDERS[name], (a, b), any_kind=True)


ORDERS = {"lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
_COMPARABLE = frozenset((Value, Detached, int, float, np.float64))


def chosen_items(mask: Any, *pair: Any) -> Any:
    """``np.where`` of truths that are not decided; None where it is left to numpy."""
    if not _merges() or type(mask) is not DataArray or mask._claimed != numpys.BOOL:
        return None
    if not all(type(x) in _CHOSEN for x in pair):
        return None
    kinds = [kind_of(x) for x in pair]
    if any(isinstance(k, np.dtype) and k != numpys.OBJECT and k not in numpys.EXACT for k in kinds):
        return None
    kind = numpys.OBJECT if numpys.OBJECT in kinds else np.result_type(*kinds)
    try:
        found = np.frompyfunc(_one_of, 3, 1)(memory_of(mask), *[_of_kind(x, kind) for x in pair])
    except CannotMerge:
        return None
    if not isinstance(found, np.ndarray):
        return None  # of an array with no axis
    return found if kind == numpys.OBJECT else as_data(found, kind)


_CHOSEN = (DataArray, np.ndarray, Value, Detached, Traced, Whole, int, float, np.float64, np.int64)


def _of_kind(x: Any, kind: np.dtype[Any]) -> Any:
    """A number, or the items of an array, as numpy puts them into an array of this type."""
    is_array = isinstance(x, np.ndarray)
    if kind == numpys.OBJECT:
        plain = is_array and x.dtype == object
        return x if plain else each(pythons, x) if is_array else pythons(x)
    given = x if is_array else object_array([x], ())
    return each(lambda item: item_of_kind(item, kind), given)


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


def joined_truths(ufunc: np.ufunc, inputs: Any) -> DataArray | None:
    """``a & b`` and ``~a`` of arrays of truths, none of them decided; None of anything else."""
    if not all(
        isinstance(x, DataArray) and x._claimed == numpys.BOOL and x.ndim and x.size for x in inputs
    ):
        return None
    sorts = {type(x) for array in inputs for x in items_of(array)}
    if sorts != {Condition} and sorts != {Traced}:
        return None
    if ufunc in _OPPOSITES:
        return data_array([~x for x in items_of(inputs[0])], inputs[0].shape, numpys.BOOL)
    name = _JOINING.get(ufunc)
    if name is None:
        return None
    of_two = _OF_TRACED[name] if sorts == {Traced} else lambda a, b: a.joined(name, b)
    found = np.frompyfunc(of_two, 2, 1)(*map(memory_of, inputs))
    return data_array(found.ravel().tolist(), found.shape, numpys.BOOL)


def as_numbers_beside(ufunc: np.ufunc, method: str, inputs: Any) -> Any:
    """Truths beside floats, in arithmetic, as 0 and 1."""
    if method != "__call__" or ufunc not in TRUTHS_AS_NUMBERS or len(inputs) != 2:
        return inputs
    kinds = [kind_of(x) for x in inputs]
    has_floats = any(kind is float or kind == numpys.FLOAT64 for kind in kinds)
    if numpys.BOOL not in kinds or not has_floats:
        return inputs
    if ufunc is np.divide and kinds[1] == numpys.BOOL:
        return inputs
    return [
        _truths_as_numbers(x) if isinstance(x, DataArray) and kind == numpys.BOOL else x
        for x, kind in zip(inputs, kinds, strict=True)
    ]


def _truths_as_numbers(array: DataArray) -> DataArray:
    items = [
        x.number() if type(x) in (Traced, Condition) else np.float64(x) for x in items_of(array)
    ]
    return data_array(items, array.shape, numpys.FLOAT64)
