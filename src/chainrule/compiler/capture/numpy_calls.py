"""What numpy does with stand-ins among its operands: arithmetic, functions, making arrays.

In: a function of numpy's, and what it was given. Out: its result, recorded item by item, a view of
the same memory, or done with the numbers themselves, which become static: ``numpys`` lists which.
numpy asks its operands what to do, and once this is imported they ask here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture import numpys
from chainrule.compiler.capture.arrays import (
    DataArray,
    as_data,
    data_view,
    each,
    has_narrow,
    holds_objects,
    is_number,
    item_of_kind,
    items_of,
    kind_of,
    memory_of,
    numbers,
    object_array,
    objects_of,
    pythons,
    refuse,
    static,
)
from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.enums import is_like_int
from chainrule.compiler.capture.masks import (
    TRUTHS_AS_NUMBERS,
    as_numbers_beside,
    chosen_items,
    compared_items,
    joined_truths,
)
from chainrule.compiler.capture.standins import Detached, StandIn, by_numpy, is_numpys, plain
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core.backend import Value, modes
from chainrule.trees import NARROW, map_leaves

_WHERE = np.where  # itself: while recording others stand in np

# --- arithmetic -----------------------------------------------------------------------------------


def _apply(ufunc: np.ufunc, method: str, inputs: Any, keywords: dict[str, Any]) -> Any:
    """A function of numpy's with a stand-in among its operands.

    With objects it works on the items, as in eager mode. On floats and integers of 64 bits the
    items are recorded, and the result is an array of data again. What rounds or wraps around in
    another way, and functions that are not listed, get the numbers themselves.
    """
    inputs = [np.asarray(x)[()] if is_like_int(type(x)) else x for x in inputs]
    outs = [x for x in keywords.get("out", ()) if isinstance(x, DataArray)]
    if method == "at" and isinstance(inputs[0], DataArray):
        refuse(f"np.{ufunc.__name__}.at of an array of data")
    if method == "outer" and not keywords and len(inputs) == 2:
        found = _outer(ufunc, *inputs)
        if found is not None:
            return found
    inputs = _widened(ufunc, method, as_numbers_beside(ufunc, method, inputs), keywords)
    kinds = [kind_of(x) for x in inputs]
    if outs and (object in kinds or len(keywords["out"]) > 1):
        refuse(f"np.{ufunc.__name__} with out")
    if object in kinds:
        return _on_objects(ufunc, method, [_as_objects(x) for x in inputs], keywords)
    if method == "__call__" and not keywords:
        joined = joined_truths(ufunc, inputs)
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
        compared = compared_items(ufunc, inputs)
        if compared is not None:
            return compared
    if ufunc is _ADD and method == "reduce" and result == np.float64:
        rest["initial"] = 0.0  # numpy's sum of floats begins so: it is never -0.0
    with by_numpy(modes.recorder):
        found = _on_objects(numpys.EXTREMES.get(ufunc, ufunc), method, inputs, rest)
    if outs:
        return _written(outs[0], found)
    if ufunc in numpys.COMPARISONS:
        return found
    return as_data(found, result) if isinstance(found, np.ndarray) else item_of_kind(found, result)


_NARROW_TYPES = frozenset(dtype.type for dtype in NARROW)
_SUMMED = frozenset("bi")  # kinds of items that numpy adds up as integers of 64 bits


def _widened(ufunc: np.ufunc, method: str, inputs: Any, keywords: dict[str, Any]) -> Any:
    """Narrow operands as those of 64 bits where numpy computes with such, or only compares."""
    kinds = [kind_of(x) for x in inputs]
    if object in kinds or not any(map(has_narrow, inputs)):
        return inputs
    if method == "reduce":
        sums = ufunc in _SUMS and keywords.get("dtype") is None and keywords.get("out") is None
        return [as_data(inputs[0], numpys.INT64)] if sums and kinds[0].kind in _SUMMED else inputs
    if method != "__call__" or keywords:
        return inputs
    try:
        wanted = ufunc.resolve_dtypes((*kinds, *[None] * ufunc.nout))[: ufunc.nin]
    except TypeError:
        return inputs
    if ufunc in numpys.COMPARISONS and not {kind.kind for kind in wanted} - set("biu"):
        same = wanted[0] == wanted[1]  # without a sign, beside others: perhaps beyond 64 bits
        wanted = (numpys.INT64, numpys.INT64) if same else wanted
    if not set(wanted) <= numpys.EXACT:
        return inputs
    return [_as_wide(x, kind) for x, kind in zip(inputs, wanted, strict=True)]


def _as_wide(x: Any, kind: np.dtype[Any]) -> Any:
    """An operand as one of this type, if it is of fewer bits."""
    if has_narrow(x):
        return as_data(x, kind)
    is_numpys = isinstance(x, np.ndarray | np.generic) and not isinstance(x, DataArray)
    if is_numpys and x.dtype in NARROW:
        return x.astype(kind)
    return item_of_kind(x, kind) if type(x) is Traced and x.__class__ in _NARROW_TYPES else x


def _outer(ufunc: np.ufunc, a: Any, b: Any) -> Any:
    """A function of all pairs; None where it is left to numpy."""
    known = ufunc in numpys.COMPARISONS or ufunc in TRUTHS_AS_NUMBERS
    if not known or not all(isinstance(x, np.ndarray) and x.dtype in numpys.EXACT for x in (a, b)):
        return None
    return ufunc(np.ndarray.reshape(a, (*a.shape, *[1] * b.ndim)), b)


def _on_objects(ufunc: Any, method: str, inputs: Any, keywords: dict[str, Any]) -> Any:
    """The function on the items themselves."""
    keywords = {
        name: x if name == "out" else map_leaves(objects_of, x)  # into which it is written
        for name, x in keywords.items()
    }
    return getattr(ufunc, method)(*map(objects_of, inputs), **keywords)


def _written(out: Any, found: Any) -> Any:
    """The result of ``a += b``, in the array itself."""
    out[...] = found
    return out


_ADD = np.add  # itself: while recording others stand in np
_SUMS = frozenset((_ADD, np.multiply))


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
    integers = all(kind is int or kind == np.int64 for kind in kinds)
    if method != "__call__":
        reduces = ufunc in _SUMS or ufunc in numpys.EXTREMES
        result = kinds[0] if reduces and method in ("reduce", "accumulate") else None
    elif known or (integers and ufunc in numpys.INTEGRAL):
        result = ufunc.resolve_dtypes((*kinds, None))[-1]
    else:
        return None
    if "out" in keywords:  # of another kind it would not hold what is recorded
        (out,) = keywords["out"]
        return result if isinstance(out, DataArray) and out.dtype == result else None
    return result


# --- functions of arrays --------------------------------------------------------------------------


def _apply_function(self: DataArray, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
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
        if is_number(x):
            kinds.append(kind_of(x))
    if func in numpys.METHODS and args and has_narrow(args[0]):
        return getattr(args[0], func.__name__)(*args[1:], **kwargs)
    kinds = [kind for kind in kinds if kind != np.bool_]  # of a condition
    before = [items_of(x) for x in given]
    exact = all(kind in numpys.EXACT or not isinstance(kind, np.dtype) for kind in kinds)
    if func is _WHERE and len(args) == 3 and not kwargs:
        chosen = chosen_items(*args)
        if chosen is not None:
            return chosen
    if object in kinds:
        if func not in numpys.BESIDE_VALUES:
            refuse(f"np.{func.__name__} of data and Values")
        found = func(*map_leaves(_as_objects, args), **map_leaves(_as_objects, kwargs))
    elif func in numpys.VIEWS or (func in numpys.RECORDED and exact):
        found = np.ndarray.__array_function__(self, func, types, args, kwargs)
    elif func in numpys.STATIC or func in numpys.RECORDED:
        return static(func, args, kwargs)
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


def _as_objects(x: Any) -> Any:
    """An array beside objects: of truths and narrow integers numpy makes Python's numbers."""
    return memory_of(each(pythons, x) if has_narrow(x) else x)


def _unread(x: Any) -> Any:
    """An array of the same shape and type, for functions that read no number."""
    return np.empty_like(memory_of(x), x._claimed) if isinstance(x, DataArray) else x


def _made_from(found: Any, given: list[DataArray], kind: np.dtype[Any]) -> Any:
    """A result of numpy's as an array of data: the same memory as an argument's, or its own."""
    if not isinstance(found, np.ndarray) or not holds_objects(found):
        return found
    for x in given:
        if found is x:
            return x
        if np.may_share_memory(memory_of(found), memory_of(x)):
            return data_view(found, x)
    return as_data(found, kind)


# --- arrays that are made, and written into -------------------------------------------------------


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
    return found if not boxed else each(lambda item: item.x if type(item) is _Box else item, found)


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
        if not holds_objects(found):
            return original(x, **keywords)
        items = items_of(found)
        kinds = [kind_of(item) for item in items if is_number(item)]
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


def _store(self: DataArray, key: Any, value: Any) -> None:
    """The item, or the items, as an array of this type holds them."""
    keys = tuple(map(numbers, key)) if type(key) is tuple else numbers(key)
    kind = self._claimed
    if isinstance(value, StandIn | Value) or np.isscalar(value):
        item = _as_item(value, kind)
        one = not isinstance(np.ndarray.__getitem__(self, keys), np.ndarray)
        value = item if one else object_array([item], ())
    else:
        value = each(lambda x: _as_item(x, kind), ASARRAY(value))
    np.ndarray.__setitem__(self, keys, value)


def _as_item(x: Any, kind: np.dtype[Any]) -> Any:
    """What an array of this type holds where ``x`` was stored."""
    if isinstance(x, Value):
        float(x)  # an array of floats takes none, and says so
    exact = (Traced, Whole, Detached) if kind == np.float64 else (Traced, Whole)
    if kind in numpys.EXACT and type(x) in exact and kind_of(x) in (int, float, *numpys.EXACT):
        return item_of_kind(x, kind)
    return kind.type(plain(x))


# what numpy asks where a stand-in, or an array of them, is an operand
setattr(  # noqa: B010
    StandIn,
    "__array_ufunc__",
    lambda self, ufunc, method, *inputs, **keywords: _apply(ufunc, method, inputs, keywords),
)
setattr(DataArray, "__array_ufunc__", getattr(StandIn, "__array_ufunc__"))  # noqa: B009, B010
setattr(DataArray, "__array_function__", _apply_function)  # noqa: B010
setattr(DataArray, "__setitem__", _store)  # noqa: B010
