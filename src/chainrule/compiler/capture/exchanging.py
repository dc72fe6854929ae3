"""Rows of lists at a place that depends on numbers: exchanged, and items of them read and stored.

In: ``A[k], A[p] = A[p], A[k]``, ``A[p][j]`` and ``A[p][j] = x``, where only at a call it is known
which row p is, as in elimination with pivots. Out: items that the recording selects. Where that
cannot be proven to be the same, p is static.

*Exchanging.* Python exchanges two lists, of which one is known only at a call. A recording has no
such list: in it both lists stay where they are, and their items are exchanged. That is another
program only for who has one of these lists by something else than its place in A: he would see
other items. So nobody else may have any of the rows that may take part. CPython counts the
references to each, whoever holds them (names, other lists, closures, iterators, C code); there must
be one, that of A. Who asks A for a row later gets one that nobody has seen before, with the items
that Python's would have. Which object it is tells nothing: no other is left to be compared with,
and code that asks for hashes or addresses is not recorded in this way. Rows that are in A twice,
that were passed, captured, or copied by a read are held by others, and are refused; so are rows of
different lengths, and items of which no one number can be made. Which of equal keys is the pivot
was decided before: p is a number of the recording.

*Items.* To read ``A[p][j]`` takes no row in hand: of the items at j, one is selected. To store into
it is to store into every row that it may be, the new item or what it had, one after the other:
whoever else has that row sees what he would see in Python, and a row that is in A twice too.

*Arrays.* ``A[[k, p]] = A[[p, k]]`` copies items out of an array and into it again: it has no rows
by themselves. Who has a view of its memory sees the same items in both.
"""

from __future__ import annotations

import math
import operator
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.arrays import DataArray, data_array, object_array
from chainrule.compiler.capture.changing import changing
from chainrule.compiler.capture.choosing import within
from chainrule.compiler.capture.merging import CannotMerge, one_of
from chainrule.compiler.capture.wholes import Whole
from chainrule.core.backend import modes

_SELECTS = 1 << 16  # that all of these may make in a recording


@dataclass
class _Places:
    """The first place of an exchange, the others that may take part, and for each: whether it does.

    ``may_stay``: none of them may, because a row is exchanged with itself.
    """

    first: int
    others: list[int]
    tests: list[Any]
    may_stay: bool

    def exchanged(self, items: Sequence[Any]) -> list[Any]:
        """What is in these places afterwards, of what is there before."""
        first, *others = items
        if self.tests[0] is True:
            return [*others, first]
        rest = list(zip(self.tests, others, strict=True))
        chosen = first if self.may_stay else rest.pop()[1]  # one of the tests holds
        for test, x in rest:
            chosen = one_of(test, x, chosen)
        pairs = zip(self.tests, others, strict=True)
        return [chosen, *[one_of(test, first, x) for test, x in pairs]]


def exchange(container: Any, a: Any, b: Any, put: Callable[[Any, Any, Any], None]) -> bool:
    """Exchange ``container[a]`` and ``container[b]`` where numbers decide which, or whether.

    ``put(value, container, key)`` stores an item. False where nothing was done.
    """
    recorder = modes.recorder
    if recorder is None or not recorder.both or type(container) is not list:
        return False
    if id(container) in recorder.watched or id(container) in recorder.known:
        return False
    places = _places(container, a, b)
    if places is None:
        return False
    slots, rows = [places.first, *places.others], list[Any]()
    columns = [(0, tuple([container[j] for j in slots]))]
    if any(type(x) is list for x in columns[0][1]):
        columns.clear()
        if not _nobody_else_has(container, slots):
            return False
        rows = [container[j] for j in slots]
        if len({*map(len, rows)}) > 1:
            return False
        columns += enumerate(zip(*rows, strict=True))
    elif type(a) is type(b):
        return False  # numbers, in known places: the stores of a side are selected anyway
    recorder.exchanges += 2 * len(places.others) * len(columns)
    if recorder.exchanges > _SELECTS:
        return False
    try:
        made = [(key, places.exchanged(items)) for key, items in columns]
    except CannotMerge:
        return False
    changing(container)
    for key, items in made:
        for k, x in enumerate(items):
            into, at = (rows[k], key) if rows else (container, slots[k])
            if into[at] is not x:
                put(x, into, at)
    return True


def _places(container: list[Any], a: Any, b: Any) -> _Places | None:
    """The places that may take part: one is known, or a side that may not count knows both."""
    recorder, count = modes.recorder, len(container)
    assert recorder is not None
    known, other = (b, a) if type(a) is Whole else (a, b)
    if type(known) is not int or not -count <= known < count:
        return None
    first = known % count
    if isinstance(other, Whole):
        place = within(other, 0, count - 1)
        if place is None or place.low == place.high:
            return None
        others = [j for j in range(place.low, place.high + 1) if j != first]
        tests = [operator.eq(place, j) for j in others]
        return _Places(first, others, tests, len(others) <= place.high - place.low)
    known_too = type(other) is int and -count <= other < count and other % count != first
    return _Places(first, [other % count], [True], False) if recorder.forks and known_too else None


def _nobody_else_has(container: list[Any], slots: list[int]) -> bool:
    """Whether the container alone has what is in these places of it, each a list.

    What a new list, which nobody else has, is counted for tells what counting takes. Branches that
    are being run note which rows they stored into, to take that back: those are no one's.
    """
    recorder = modes.recorder
    assert recorder is not None
    sys._getframe(3).f_locals  # noqa: B018  # a frame remembers names as it was last asked for them
    noted = Counter(id(x) for fork in recorder.forks for x in fork.noted())
    found = [*map(container.__getitem__, slots), []]
    kinds, keys = {*map(type, found)}, [*map(id, found)]
    *counts, alone = map(sys.getrefcount, found)
    held = [count - alone - noted[key] for count, key in zip(counts, keys, strict=False)]
    return kinds == {list} and held == [1] * len(slots)


def read_cell(container: Any, place: Any, key: Any) -> Any:
    """``container[place][key]``; ``CannotMerge`` where the row is to be read by itself."""
    place, rows = _rows_at(container, place, key)
    (_, row), *others = reversed(rows)
    made = row[key]
    for j, row in others:
        made = one_of(operator.eq(place, j), row[key], made)
    return made


def store_cell(
    value: Any, container: Any, place: Any, key: Any, put: Callable[[Any, Any, Any], None]
) -> None:
    """``container[place][key] = value``; ``CannotMerge`` where nothing was done."""
    place, rows = _rows_at(container, place, key)
    items = {id(row): row[key] for _, row in rows}
    for j, row in rows:
        items[id(row)] = one_of(operator.eq(place, j), value, items[id(row)])
    for row in {id(row): row for _, row in rows}.values():
        changing(row)
        put(items[id(row)], row, key % len(row))


def _rows_at(container: Any, place: Any, key: Any) -> tuple[Whole, list[tuple[int, list[Any]]]]:
    """The integer, and for each that it may be the list there, which has an item under the key."""
    recorder = modes.recorder
    known = type(place) is Whole and type(container) is list and type(key) is int
    if not known or recorder is None or not recorder.both:
        raise CannotMerge
    place = within(place, -len(container), len(container) - 1)
    if place is None or recorder.exchanges + place.high - place.low >= _SELECTS:
        raise CannotMerge
    rows = [(j, container[j]) for j in range(place.low, place.high + 1)]
    if not all(type(row) is list and -len(row) <= key < len(row) for _, row in rows):
        raise CannotMerge
    recorder.exchanges += len(rows)
    return place, rows


# --- arrays ---------------------------------------------------------------------------------------


def rows_key(container: Any, key: Any) -> tuple[list[Any], tuple[Any, ...]] | None:
    """The rows, and the parts of them, of a key as ``[[k, p]]`` with a Whole in it; else None."""
    entries, *rest = key if type(key) is tuple and key else (key,)
    if type(entries) is not list or not any(type(x) is Whole for x in entries):
        return None
    recorder, dtype = modes.recorder, getattr(container, "dtype", np.dtype(bool))
    known = type(container) is DataArray and dtype == np.float64
    known = known or (type(container) is np.ndarray and dtype.kind == "O")
    known = known and all(type(x) in (Whole, int) for x in entries)
    known = known and all(type(x) is slice for x in rest) and len(rest) < container.ndim
    return (entries, tuple(rest)) if known and recorder is not None and recorder.both else None


def read_rows(container: Any, entries: list[Any], rest: tuple[Any, ...]) -> Any:
    """``container[entries]``, a new array; ``CannotMerge`` where it is to be read by integers."""
    rows = [_row_at(container, entry, rest) for entry in entries]
    shape = len(rows), *rows[0][1]
    items = [x for row, _ in rows for x in row]
    if type(container) is DataArray:
        return data_array(items, shape, container.dtype)
    return object_array(items, shape)


def _row_at(container: Any, entry: Any, rest: tuple[Any, ...]) -> tuple[list[Any], tuple[int, ...]]:
    """The items of one row, and its shape."""
    recorder = modes.recorder
    assert recorder is not None
    if type(entry) is int:
        row = _memory(container)[(entry, *rest)]
        return _flat(row), _shape(row)
    place = within(entry, -len(container), len(container) - 1)
    if place is None:
        raise CannotMerge
    rows = [(j, _memory(container)[(j, *rest)]) for j in range(place.low, place.high + 1)]
    shape, (_, *others) = _shape(rows[0][1]), reversed(rows)
    recorder.exchanges += len(others) * math.prod(shape)
    if recorder.exchanges > _SELECTS:
        raise CannotMerge
    made = _flat(rows[-1][1])
    for j, row in others:
        test = operator.eq(place, j)
        made = [one_of(test, x, y) for x, y in zip(_flat(row), made, strict=True)]
    return made, shape


def store_rows(value: Any, container: Any, entries: list[Any], rest: tuple[Any, ...]) -> None:
    """``container[entries] = value``; ``CannotMerge`` where nothing was done.

    One row after the other: of one that comes twice, the last one stays.
    """
    recorder, memory, count = modes.recorder, _memory(container), len(container)
    assert recorder is not None
    shape = _shape(memory[(0, *rest)])
    alike = type(value) is type(container) and value.dtype == container.dtype
    if recorder.forks or not alike or value.shape != (len(entries), *shape):
        raise CannotMerge
    changed: dict[int, list[Any]] = {}
    for entry, new in zip(entries, _memory(value), strict=True):
        if type(entry) is int:
            changed[range(count)[entry]] = _flat(new)
            continue
        place = within(entry, -count, count - 1)
        if place is None:
            raise CannotMerge
        recorder.exchanges += (place.high - place.low + 1) * math.prod(shape)
        if recorder.exchanges > _SELECTS:
            raise CannotMerge
        for j in range(place.low, place.high + 1):
            test, at = operator.eq(place, j), j % count
            old = changed[at] if at in changed else _flat(memory[(at, *rest)])
            changed[at] = [one_of(test, x, y) for x, y in zip(_flat(new), old, strict=True)]
    changing(container)
    for at, items in changed.items():
        memory[(at, *rest)] = object_array(items, shape) if shape else items[0]


def _memory(array: Any) -> Any:
    return np.ndarray.view(array, np.ndarray)


def _flat(row: Any) -> list[Any]:
    return row.ravel().tolist() if isinstance(row, np.ndarray) else [row]


def _shape(row: Any) -> tuple[int, ...]:
    return row.shape if isinstance(row, np.ndarray) else ()
