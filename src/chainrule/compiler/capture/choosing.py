"""Which item, where that depends on numbers: searches, and reads by what they found.

In: ``zs.index(max(zs))``, ``max(range(n), key=...)``, ``bisect``, ``np.argmax`` and their like, of
numbers that are known only when the recording runs. Out: a ``Whole``; and what it selects in a
list, dict or array of a few items. Where no such thing can be made, None or the integer itself: the
comparisons are branches, as they are in any other recording.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import operator
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.arrays import DataArray, data_array, items_of, numbers, object_array
from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.capture.lookups import counts_of
from chainrule.compiler.capture.merging import CannotMerge, is_open, one_of
from chainrule.compiler.capture.reading import Observed
from chainrule.compiler.capture.sorting import in_order
from chainrule.compiler.capture.standins import Detached
from chainrule.compiler.capture.wholes import Whole
from chainrule.core.backend import Value, modes

_MOST = 64  # items among which one is selected
_HOLDERS = (list, tuple, dict, set, deque, np.ndarray)
_SELECTS = 8192  # that all reads of a recording may make
_LARGE = 1e300
_INDEX = np.dtype(np.int64)


def _both() -> Any:
    """The recorder, where both sides of branches are computed, outside of such a side."""
    recorder = modes.recorder
    return recorder if recorder is not None and recorder.both and not recorder.forks else None


# --- reads ----------------------------------------------------------------------------------------


def has_whole(key: Any) -> bool:
    """Whether a Whole is, or is a part of, a key."""
    if type(key) is DataArray:
        return any(type(k) is Whole for k in items_of(key))
    return type(key) is Whole or (type(key) is tuple and any(type(k) is Whole for k in key))


def item_at(container: Any, key: Any) -> Any:
    """``container[key]``, with a Whole in the key."""
    if type(key) is DataArray:
        return _items_at(container, key)
    found = _rows_of(container, key)
    if found is None:
        return container[_settled(key)]
    rows, place, originals = found
    try:
        made = _one_of_many(place, rows)
    except CannotMerge:
        return container[_settled(key)]
    recorder = modes.recorder
    assert recorder is not None
    for x in (*originals, made):
        recorder.selector.watch(x)
    return made


def _items_at(container: Any, key: DataArray) -> Any:
    """``z[order]``: the items, or rows, of an array at several places."""
    kind, places = type(container), items_of(key)
    is_array = (kind is np.ndarray or kind is DataArray) and container.ndim
    is_array = is_array and container.dtype in (object, np.float64, np.int64)
    if not is_array or not all(type(k) is Whole or type(k) is np.int64 for k in places):
        return container[_settled(key)]
    rows = [item_at(container, k) if type(k) is Whole else container[k] for k in places]
    if container.ndim > 1:
        rows = [x for row in rows for x in _items(row)]
    shape = (*key.shape, *container.shape[1:])
    if container.dtype == object:
        return object_array(rows, shape)
    return data_array(rows, shape, container.dtype)


def _settled(key: Any) -> Any:
    if type(key) is tuple:
        return tuple([k.plain() if type(k) is Whole else k for k in key])
    return numbers(key)


def _rows_of(container: Any, key: Any) -> tuple[dict[int, Any], Whole, list[Any]] | None:
    """What each integer of its range selects, the integer, and what must not change meanwhile."""
    kind, axis = type(container), 0
    if kind is np.ndarray or kind is DataArray:
        keys = list(key) if type(key) is tuple else [key]
        places = [k for k, x in enumerate(keys) if type(x) is Whole]
        others = all(type(x) in (int, slice) for k, x in enumerate(keys) if k not in places)
        if len(places) != 1 or not others or len(keys) > container.ndim:
            return None
        (axis,) = places
        place, count = keys[axis], container.shape[axis]
        low, high = -count, count - 1
        if kind is np.ndarray and container.dtype not in (object, np.float64, np.int64):
            return None

        def row(k: int) -> Any:
            return container[tuple([k if i == axis else x for i, x in enumerate(keys)])]
    elif kind is list or kind is tuple or kind is range:
        place, low, high, row = key, -len(container), len(container) - 1, container.__getitem__
    elif kind is dict and container and set(map(type, container)) == {int}:
        place, low, high, row = key, min(container), max(container), container.__getitem__
    else:
        return None
    if type(place) is not Whole:
        return None
    place = within(place, low, high)
    if place is None:
        return None
    try:
        rows = {k: row(k) for k in range(place.low, place.high + 1)}
    except KeyError:
        return None
    if any(map(_is_nested, rows.values())):
        return None  # one that stands for several would not see what becomes of those inside
    inside = [x for x in rows.values() if type(x) in (list, np.ndarray, DataArray)]
    return rows, place, [container, *inside] if inside else []


def within(place: Any, low: int, high: int) -> Whole | None:
    """An integer that is in a range of few; None where it is not."""
    if not low <= place.value <= high:
        return None
    if place.low < low or place.high > high:  # guards: beyond them it raises
        if not (bool(place >= low) and bool(place <= high)):
            return None
        place = Whole(
            *(place._recorder, place._value, max(low, place.low), min(high, place.high)),
            *(place.is_data, place.kind),
        )
    return place if place.high - place.low < _MOST else None


def _is_nested(row: Any) -> bool:
    """Whether a row holds what may change by itself."""
    if type(row) in (list, tuple):
        return any(isinstance(x, _HOLDERS) for x in row)
    if isinstance(row, np.ndarray) and row.dtype == object:
        return any(isinstance(x, _HOLDERS) for x in row.ravel().tolist())
    return False


def _one_of_many(place: Whole, rows: dict[int, Any]) -> Any:
    """What stands for the selected one of some items, or rows of items."""
    recorder, items = modes.recorder, list(rows.values())
    assert recorder is not None
    first = items[0]
    if all(x is first for x in items):
        return first
    kinds = set(map(type, items))
    if len(kinds) == 1 and kinds <= {list, tuple}:
        if len({*map(len, items)}) > 1:
            raise CannotMerge
        columns = zip(*items, strict=True)
        made = [_one_of_many(place, dict(zip(rows, column, strict=True))) for column in columns]
        return made if kinds == {list} else tuple(made)
    if kinds == {np.ndarray} or kinds == {DataArray}:
        if len({(x.shape, x.dtype) for x in items}) > 1:
            raise CannotMerge
        flat = [_items(x) for x in items]
        columns = zip(*flat, strict=True)
        made = [_one_of_many(place, dict(zip(rows, column, strict=True))) for column in columns]
        if first.dtype == object:
            return object_array(made, first.shape)
        return data_array(made, first.shape, first.dtype)
    recorder.selects += len(items)
    if recorder.selects > _SELECTS:
        raise CannotMerge
    (_, found), *others = reversed(rows.items())
    for k, x in others:
        found = one_of(operator.eq(place, k), x, found)
    return found


def _items(array: Any) -> list[Any]:
    """The items of an array: of numbers, numpy's."""
    is_of_objects = type(array) is DataArray or array.dtype == object
    return items_of(array) if is_of_objects else list(array.flat)


# --- searches -------------------------------------------------------------------------------------


class Searched:
    """A list or tuple of which ``index`` is asked."""

    def __init__(self, items: list[Any] | tuple[Any, ...]) -> None:
        self._items = items

    def index(self, x: Any, *ends: Any) -> Any:
        """``items.index(x)``."""
        recorder, items = modes.recorder, self._items
        assert recorder is not None
        if not ends and items and _are_numbers([*items, x]):
            known = self._among(recorder, x._value) if type(x) is Detached else None
            tests = [item == x for item in map(_pythons, items)]
            found = _first(tests) if known is None else known
            if found is not None:
                return found
        elif any(isinstance(item, (Value, list, tuple, dict, np.ndarray)) for item in (*items, x)):
            return self._of_values(recorder, x, ends)
        return items.index(x, *ends)

    def _of_values(self, recorder: Any, x: Any, ends: tuple[Any, ...]) -> Any:
        """The place of a Value, or of something that may hold some: which one it is.

        Of what max or min gave it is known how it was chosen.
        """
        selector = recorder.selector
        known = selector.chosen.keys() | selector.pending.keys()
        if not ends and known.isdisjoint(map(id, self._items)):
            found = self._among(recorder, x)
            if found is not None:
                return found
        selector.ask()
        raise Observed

    def _among(self, recorder: Any, x: Value) -> Any:
        """The place of what max or min gave of these very items; None where it is not that."""
        _, is_max, among = recorder.extremes.get(id(x), (x, True, []))
        items = self._items
        if len(among) != len(items) or not all(map(operator.is_, among, items)):
            return None
        return best_of(items, range(len(items)), is_max)


def _pythons(x: Any) -> Any:
    """A plain number of numpy's as Python's: numpy's comparisons with a stand-in are branches."""
    return float(x) if type(x) is np.float64 else x


def _are_numbers(items: Sequence[Any]) -> bool:
    """Whether these are floats, some of them known only when the recording runs."""
    kinds = {type(x) for x in items}
    floats = all(x.__class__ in (float, np.float64) for x in items)
    return floats and kinds <= {Detached, float, np.float64} and Detached in kinds


def _first(tests: list[Any]) -> Whole | None:
    """The place of the first test that holds; where none does it is another path."""
    recorder = modes.recorder
    assert recorder is not None
    place: Any = len(tests)
    for k in reversed(range(len(tests))):
        place = one_of(tests[k], k, place) if is_open(tests[k]) else k if tests[k] else place
    if type(place) is not Whole or not bool(operator.lt(place, len(tests))):
        return None
    place.high = len(tests) - 1
    return place


def best_of(keys: Sequence[Any], items: Sequence[Any], is_max: bool) -> Any:
    """The item of the first of the largest, or smallest, keys; None where they are compared."""
    best = keys[0], items[0]
    try:
        for pair in zip(keys[1:], items[1:], strict=True):
            test = pair[0] > best[0] if is_max else pair[0] < best[0]
            if is_open(test):
                best = one_of(test, pair, best)
            elif test:
                best = pair
    except CannotMerge:
        return None
    return best[1]


def extreme_by_key(original: Callable[..., Any], arguments: Any, key: Any) -> Any:
    """``max(items, key=key)``, or ``min``."""
    items = list(arguments[0]) if len(arguments) == 1 else list(arguments)
    if key is None or not items:
        return original(items, key=key)
    keys = [key(x) for x in items]
    kinds = set(map(type, keys))
    if _both() is not None and kinds in ({Value}, {Detached}) and len(items) <= _MOST:
        found = best_of(keys, items, original.__name__ == "max")
        if found is not None:
            return found
    return items[original(range(len(items)), key=keys.__getitem__)]


def extreme_of_integers(items: list[Any], is_max: bool) -> Any:
    """``max`` or ``min`` of integers, some of which depend on numbers."""
    best, better = items[0], max if is_max else min
    for x in items[1:]:
        test = x > best if is_max else x < best
        if not is_open(test):
            best = x if test else best
            continue
        ends = [(y.low, y.high) if type(y) is Whole else (int(y), int(y)) for y in (x, best)]
        best = one_of(test, x, best)
        best.low, best.high = better(a for a, _ in ends), better(b for _, b in ends)
    return best


def _searching(original: Callable[..., Any], is_right: bool) -> Callable[..., Any]:
    """``bisect`` in a list of plain numbers in order: how many are below, or not above."""

    @functools.wraps(original)
    def search(items: Any, x: Any, *rest: Any, **keywords: Any) -> Any:
        known = type(x) is Detached and x.__class__ is float and type(items) in (list, tuple)
        if _both() is None or rest or keywords or not known or len(items) > _MOST:
            return original(items, x, *rest, **keywords)
        if not _is_sorted(items):
            return original(items, x)
        found: Any = 0
        for a in items:
            found = found + (1 - (x < a) if is_right else a < x)
        return found

    setattr(search, REPLACES, original)
    return search


def _is_sorted(items: Sequence[Any]) -> bool:
    floats = all(type(a) in (float, np.float64) and abs(a) < _LARGE for a in items)
    plain = floats or all(type(a) is int and abs(a) <= EXACT for a in items)
    return plain and all(a <= b for a, b in itertools.pairwise(items))


_LEFT, _RIGHT = bisect.bisect_left, bisect.bisect_right
#: what stands for functions of ``bisect``
SEARCHES: dict[Any, Callable[..., Any]] = {
    _LEFT: _searching(_LEFT, False),
    _RIGHT: _searching(_RIGHT, True),
}


# --- numpy's --------------------------------------------------------------------------------------


def _row_of(x: Any) -> list[Any] | None:
    """The numbers of a row of data; None for anything else."""
    if type(x) is DataArray:
        found = items_of(x) if x.ndim == 1 and x.dtype == np.float64 else []
    else:
        found = list(x) if type(x) in (list, tuple) else []
    if not 0 < len(found) <= _MOST:
        return None
    return found if _are_numbers(found) else None


def _are_finite(keys: list[Any]) -> bool:
    """Guards: what is not a number has an order of its own."""
    return all(bool(abs(k) < _LARGE) for k in keys)


def _best_place(keys: list[Any], is_max: bool) -> Any:
    if not _are_finite(keys):
        return None
    found = best_of(list(map(_pythons, keys)), range(len(keys)), is_max)
    return None if found is None else _as_index(found)


def _as_index(place: Any) -> Any:
    """A place as an integer of numpy's."""
    return place.as_kind(np.int64) if type(place) is Whole else np.int64(place)


def _place_in_array(array: Any, axis: Any = None, *rest: Any, is_max: bool, **keywords: Any) -> Any:
    """``np.argmax`` or ``np.argmin``; None where it is to be found by branches."""
    if _both() is None or rest or keywords:
        return None
    if type(array) is np.ndarray and array.dtype == object:
        return _place_of_value(array, is_max) if axis is None else None
    if type(array) is not DataArray:
        row = _row_of(array) if axis is None else None
        return None if row is None else _best_place(row, is_max)
    if axis is None or array.ndim == 1:
        row = _row_of(array.ravel())
        return None if row is None else _best_place(row, is_max)
    if array.ndim != 2 or axis not in (0, 1, -1):
        return None
    rows = [_row_of(x) for x in (array if axis else array.T)]
    if any(row is None for row in rows):
        return None
    found = [_best_place(row, is_max) for row in rows if row is not None]
    return None if any(x is None for x in found) else data_array(found, (len(found),), _INDEX)


def _place_of_value(array: Any, is_max: bool) -> Any:
    """The first of the largest Values, which numpy compares as Python does."""
    keys = array.ravel().tolist()
    if not 0 < len(keys) <= _MOST or {*map(type, keys)} != {Value}:
        return None
    found = best_of(keys, range(len(keys)), is_max)
    return None if found is None else _as_index(found)


class Placed:
    """An array of objects of which ``argmax`` or ``argmin`` is asked."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def argmax(self, *arguments: Any, **keywords: Any) -> Any:
        """``array.argmax()``."""
        return self._place("argmax", True, arguments, keywords)

    def argmin(self, *arguments: Any, **keywords: Any) -> Any:
        """``array.argmin()``."""
        return self._place("argmin", False, arguments, keywords)

    def _place(self, name: str, is_max: bool, arguments: Any, keywords: Any) -> Any:
        found = None
        if _both() is not None and not arguments and not keywords:
            found = _place_of_value(self._array, is_max)
        return getattr(self._array, name)(*arguments, **keywords) if found is None else found


def _order_of(x: Any, *rest: Any, **keywords: Any) -> Any:
    """``np.argsort`` of a row of data; None where the numbers are to be static."""
    keys = _row_of(x)
    if _both() is None or keys is None or rest or keywords or not _are_finite(keys):
        return None
    keys = [k.as_kind(float) if type(k) is Detached else float(k) for k in keys]
    order = in_order(range(len(keys)), key=keys.__getitem__)
    sort = in_order(keys)
    if not all(bool(a < b) for a, b in itertools.pairwise(sort)):
        return None  # numpy's order of equal numbers is its own
    return data_array(list(map(_as_index, order)), (len(order),), _INDEX)


def _place_among(items: Any, x: Any, *rest: Any, **keywords: Any) -> Any:
    """``np.searchsorted`` in plain numbers; None where the number is to be static."""
    side = keywords.pop("side", rest[0] if len(rest) == 1 else "left")
    if _both() is None or keywords or len(rest) > 1 or side not in ("left", "right"):
        return None
    row = items.tolist() if type(items) is np.ndarray and items.ndim == 1 else items
    if type(row) not in (list, tuple) or not _is_sorted(row) or len(row) > _MOST:
        return None
    if type(x) is not Detached or not _are_finite([x]):
        return None
    found = SEARCHES[_LEFT if side == "left" else _RIGHT](list(row), x.as_kind(float))
    return _as_index(found)


def _clipped(x: Any, *ends: Any, **keywords: Any) -> Any:
    """``np.clip`` of an integer that depends on numbers; None for anything else."""
    if type(x) is not Whole or keywords or [type(end) for end in ends] != [int, int]:
        return None
    found = extreme_of_integers([x.as_kind(int), ends[0]], True)
    return _as_index(extreme_of_integers([found, ends[1]], False))


#: what finds a place, or says None, before functions of numpy's are asked
PLACES: dict[Any, Callable[..., Any]] = {
    np.argmax: functools.partial(_place_in_array, is_max=True),
    np.argmin: functools.partial(_place_in_array, is_max=False),
    np.argsort: _order_of,
    np.searchsorted: _place_among,
    np.clip: _clipped,
    np.bincount: counts_of,
}
