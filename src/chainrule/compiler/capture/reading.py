"""Visible reads: ``container[key]`` where the key is traced, while a function is recorded.

In: every such read. Out: a traced integer where a table of integers is read, a gather where a list
of Values is: an operand whose place among its candidates the integer program tells. A row of Values
becomes a list of gathers, ``E[tokens]`` an array of them. Where neither holds, the key is static.
The function gets copies of selected rows: changing one, or asking which object it is, would tell it
so; then the recording is made again with static reads.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.arrays import (
    DataArray,
    data_view,
    object_array,
)
from chainrule.compiler.capture.keys import (
    FLAT,
    are_keys_alike,
    contents_of,
    flattened,
    grid_of,
    is_grid,
    is_index,
    is_same,
    parts_of,
    settled,
    typed,
)
from chainrule.compiler.capture.lookups import MAPPINGS, item
from chainrule.compiler.capture.progress import report_progress
from chainrule.compiler.capture.selection import Gather, Ints, Selection
from chainrule.compiler.capture.standins import Detached
from chainrule.compiler.capture.texts import TracedText
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.unchanged import Findings
from chainrule.compiler.capture.words import word_item
from chainrule.core.backend import Value, modes, topological_order

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

_MOST = 100_000  # combinations of several integers in one read; more are static
_MOST_NUMBERS = 1_000_000  # of an array of plain numbers that is read by an integer
_MOST_ITEMS = 2_000_000  # of a container, which take a third of a second and 50 MB
_FEW_NUMBERS = 4096  # of such an array, that are compared by their bytes, or of a container
_FEW = 256  # items of a list that are looked at, or keys of a dict that is selected
_INTEGERS = frozenset((int, bool, Traced))


def _contents_of(items: Sequence[Any]) -> tuple[Sequence[Any], Any]:
    """All that is in a container, to be kept, and what tells it from others meanwhile."""
    if type(items) is str:
        return items, (str, items)
    if type(items) is tuple and len(items) >= _FEW_NUMBERS and FLAT.issuperset(map(type, items)):
        return items, (tuple, id(items))  # nothing of it can change
    flat = flattened(items)
    if bytes not in map(type, flat):
        return flat, tuple(map(id, flat))
    return flat, tuple([x if type(x) is bytes else id(x) for x in flat])


class Observed(BaseException):
    """The function looked at what a selected object is: its reads must be static.

    Not an Exception: the function's own ``except Exception`` must not swallow it.
    """


@dataclass(eq=False, slots=True)
class _Pending:
    """A gather while it is recorded."""

    leaf: Value
    items: tuple[Value, ...]
    node: int


class Selector:
    """Sees the reads of one recording; ``enabled``: else every traced key is static."""

    def __init__(self, recorder: Recorder, enabled: bool) -> None:
        self._recorder = recorder
        self.enabled = enabled
        self.pending: dict[int, _Pending] = {}  # by the id of its leaf
        #: by id, what max or min gave, which is one of these Values in eager mode
        self.chosen: dict[int, tuple[Value, list[Value]]] = {}
        self._leaves: dict[int, dict[int, Value]] = {}  # by the id of a gather's items, by node
        self._copies: dict[Any, Any] = {}
        self.tables: dict[Any, Any] = {}  # what picks among some objects, by their addresses
        self._bytes: dict[int, bytes] = {}  # what arrays held that were read, by their ids
        self._picks = Findings()  # what picks among the items of large containers
        self._large: list[Any] = []  # copies of large arrays that were read, as bits
        self._tuples: list[Any] = []  # rows that were selected
        self._watched: list[Any] = []  # copies and originals, after each its contents
        self.known: set[int] = set()  # ids of copies and originals
        self.numbers: dict[int, Value] = {}  # derived numbers, by node
        self._observed = False

    # --- reading ----------------------------------------------------------------------------------

    def read(self, container: Any, key: Any) -> Any:
        """``container[key]`` where something in the key is traced."""
        if not self.enabled:
            return container[key]
        if type(key) is Traced and key.kind is np.bool_:
            return container[key.static()]  # no index
        kind = type(container)
        if kind is DataArray:
            found = self._part(np.ndarray.view(container, np.ndarray), key, container)
            return data_view(found, container) if isinstance(found, np.ndarray) else found
        if kind is np.ndarray:
            return self._part(container, key, container)
        if type(key) is not Traced:
            return word_item(container, key) if kind in MAPPINGS else container[key]
        if kind in MAPPINGS:
            return item(container, key)
        if kind is not list and kind is not tuple and kind is not str:
            return container[key]
        if container and is_index(key):
            for fork in self._recorder.forks:
                key = fork.where_taken(key)
        if not -len(container) <= key.value < len(container):
            return container[key]
        return self.selected(container, container, key)

    def among(self, container: Any, integer: int) -> Any:
        """A plain integer of a list; among traced ones it is traced too, so that all are alike.

        In ``[BOS] + tokens + [BOS]`` the first and the last are then read as the others are.
        """
        if not self.enabled or (type(container) is not list and type(container) is not tuple):
            return integer
        if not any(type(x) is Traced for x in container[:_FEW]):
            return integer
        return Traced(self._recorder, self._recorder.integers.constant(integer))

    def selected(self, container: Any, items: Sequence[Any], key: Traced) -> Any:
        """One of some items; rows that were selected before are the same rows.

        Not in a side of a branch, which may have stored into a container for a while.
        """
        known, keeps = (id(container), key.node), not self._recorder.forks
        if keeps and known in self._copies:
            return self._copies[known][1]
        chosen = self._pick(items, container is items)(key)
        if isinstance(chosen, list | dict | np.ndarray):
            if keeps:
                self._copies[known] = container, chosen
            self.watch(container)
        return chosen

    def _part(self, array: Any, key: Any, owner: Any) -> Any:
        """``array[key]``; ``owner`` is what the function sees of the array."""
        if type(key) is Traced and array.ndim and is_index(key):  # what most of them are
            rows = self._rows(array, [key])
        else:
            keys = [k[()] if is_grid(k) and not k.ndim else k for k in parts_of(key)]
            if len(keys) > array.ndim:
                return array[settled(key)]
            if any(type(k) is list or is_grid(k) for k in keys):
                found = self._read_many(array, keys)
                return array[settled(key)] if found is None else found
            rows = self._rows(array, keys) if all(map(is_index, keys)) else None
        if rows is None:
            return array[settled(key)]
        items, shape = rows
        if not shape:
            return items[0]
        made = typed(object_array(items, shape), array.dtype)
        self.watch(made)
        self.watch(owner)
        return made

    def _rows(self, array: Any, keys: Sequence[Any]) -> tuple[list[Any], tuple[int, ...]] | None:
        """The items of a part of an array, and its shape; several traced keys are one.

        None where a key is out of range, or there are too many combinations or kinds of number.
        """
        traced = [axis for axis, k in enumerate(keys) if type(k) is Traced]
        counts = [array.shape[axis] for axis in traced]
        if array.dtype not in (object, np.float64, np.int64):
            return None
        if any(not -n <= keys[axis].value < n for axis, n in zip(traced, counts, strict=True)):
            return None
        if math.prod(counts) > _MOST and (array.dtype == object or array.size > _MOST_NUMBERS):
            return None
        chosen = self._joined([keys[axis] for axis in traced], counts)
        plain = [slice(None) if type(k) is Traced else k for k in keys]
        which = None if len(keys) == len(traced) == 1 else (repr(plain), tuple(traced))
        known = array.shape, array.dtype.char, which, self._contents(array)
        found = self.tables.get(known)
        if found is None:
            part = array[tuple(plain)]
            axes = [
                axis - sum(isinstance(k, int | np.integer) for k in plain[:axis]) for axis in traced
            ]
            part = np.moveaxis(part, axes, range(len(axes)))
            shape = part.shape[len(axes) :]
            items = part.reshape(math.prod(counts), -1)
            columns: list[Any]
            if array.dtype == object:
                columns = [list(items[:, k]) for k in range(items.shape[1])]
                picks = [self._picker(column) for column in columns]
            else:
                columns = [tuple(items[:, k].tolist()) for k in range(items.shape[1])]
                picks = [self._number_picker(column, array.dtype.type) for column in columns]
            # The items are kept with it, so that no others have their addresses.
            found = self.tables[known] = picks, shape, columns
        picks, shape, _ = found
        return [pick(chosen) for pick in picks], shape

    def _contents(self, array: Any) -> Any:
        """What tells the numbers of an array from others: themselves; of many, an equal copy's id.

        Bytes would be copied and hashed at every read.
        """
        if array.dtype == object or array.size <= _FEW_NUMBERS:
            found = array.tobytes()
            known = self._bytes.setdefault(id(array), found)
            if known == found:
                return known  # whose hash is known, too
            self._bytes[id(array)] = found
            return found
        bits = array.view(np.int64)
        for copy in self._large:
            if copy.shape == bits.shape and np.array_equal(copy, bits):
                return id(copy)
        self._large.append(bits.copy())
        return id(self._large[-1])

    def _read_many(self, array: Any, keys: Sequence[Any]) -> Any:
        """Parts of an array by lists or arrays of integers, as ``E[tokens]`` or ``p[rows, Y]``.

        None where it is not known how to read them.
        """
        grids = {axis: grid_of(k) for axis, k in enumerate(keys) if type(k) is not slice}
        if any(grid is None for grid in grids.values()):
            return None
        try:
            *indices, template = np.broadcast_arrays(*grids.values(), np.zeros((), np.int8))
        except ValueError:  # shapes that do not go together: numpy says how
            return None
        slices = tuple([slice(None) if axis in grids else k for axis, k in enumerate(keys)])
        part = np.moveaxis(array[slices], list(grids), range(len(grids)))
        rest, items = part.shape[len(grids) :], []
        for place in zip(*[grid.ravel().tolist() for grid in indices], strict=True):
            if any(type(k) is Traced for k in place):
                rows = self._rows(part, place)
                if rows is None:
                    return None
                items += rows[0]
            else:
                items += list(part[place].ravel()) if rest else [part[place]]
        made = object_array(items, (*template.shape, *rest))
        first = min(grids)
        if list(grids) == list(range(first, first + len(grids))):  # side by side: there they stay
            axes = range(template.ndim)
            made = np.moveaxis(made, axes, [first + axis for axis in axes])
        return typed(made, array.dtype)

    def _joined(self, keys: Sequence[Traced], counts: Sequence[int]) -> Traced:
        """Several indices as one, into all combinations."""
        if len(keys) == 1:
            return keys[0]
        integers = self._recorder.integers
        node: int | None = None
        for key, n in zip(keys, counts, strict=True):
            count = integers.constant(n)
            place = integers.step("wrap", key.node, count)
            if node is not None:
                place = integers.step("add", integers.step("mul", node, count), place)
            node = place
        assert node is not None
        return Traced(self._recorder, node)

    def _pick(self, items: Sequence[Any], may_stay: bool) -> Callable[[Traced], Any]:
        """What picks one of some items; the same as before while they are the same objects.

        ``may_stay``: they may be read again as this very container.
        """
        found: Callable[[Traced], Any] | None = self._picks.get(items) if may_stay else None
        if found is not None:
            return found
        if len(items) > _MOST_ITEMS:
            self._recorder.forbid(
                f"it reads items of a container with {len(items):,} by integers, all of which a "
                "recording would hold: pass it a slice or those that it needs,"
            )
        flat, known = _contents_of(items)
        if known not in self.tables:
            if len(flat) >= _FEW_NUMBERS:
                report_progress(0)
            self.tables[known] = self._picker(items if type(items) is str else list(items)), flat
        found = self.tables[known][0]
        if may_stay and len(flat) >= _FEW:
            self._picks.put(items, found, is_fixed=type(items) is str or known[0] is tuple)
        return found

    def _picker(self, items: Sequence[Any]) -> Callable[[Traced], Any]:
        """``items[key]``, traced as far as the items are alike; else the key becomes static."""
        integers, recorder = self._recorder.integers, self._recorder
        kinds, first = set(map(type, items)), items[0]
        if all(x is first for x in items):
            return lambda key: self._in_range(key, len(items)) and first
        if kinds == {np.int64}:
            table = integers.constant(tuple(map(int, items)))
            return lambda key: Traced(recorder, integers.step("read", table, key.node), np.int64)
        found = None
        if kinds == {str}:
            found = self._text_picker(items)
        elif kinds <= _INTEGERS:
            found = self._integers_picker(items, kinds)
        elif kinds == {Value}:
            found = self._value_picker(tuple(items))
        elif kinds == {Detached} and len({x.kind for x in items}) == 1:
            pick, kind = self._value_picker(tuple([x._value for x in items])), first.kind
            data = all(x.is_data for x in items)
            if pick is not None:
                return lambda key: Detached(recorder, pick(key), data, kind)
        elif kinds in ({float}, {np.float64}):
            floats, (kind,) = integers.constant(tuple(map(float, items))), kinds
            return lambda key: Detached(
                recorder, self.number(integers.step("read", floats, key.node)), True, kind
            )
        elif len(kinds) == 1 and kinds <= {list, tuple} and len({len(x) for x in items}) == 1:
            return self._row_picker(items)
        elif kinds == {dict}:
            found = self._dict_picker(items)
        elif kinds == {np.ndarray} and len({(x.shape, x.dtype) for x in items}) == 1:
            found = self._array_picker(items)
        return found or (lambda key: items[key.static()])

    def _number_picker(self, numbers: tuple[Any, ...], kind: type) -> Callable[[Traced], Any]:
        """What picks one of some numbers of numpy's."""
        integers, recorder = self._recorder.integers, self._recorder
        table = integers.constant(numbers)
        if kind is np.int64:
            return lambda key: Traced(recorder, integers.step("read", table, key.node), kind)
        return lambda key: Detached(
            recorder, self.number(integers.step("read", table, key.node)), True, kind
        )

    def _in_range(self, key: Traced, count: int) -> bool:
        """A read of one of so many items, or it raises."""
        self._recorder.integers.step("wrap", key.node, self._recorder.integers.constant(count))
        return True

    def _integers_picker(self, items: Sequence[Any], kinds: set[type]) -> Any:
        """Of integers, or of truths; of both, the type would depend on the key."""
        integers, recorder = self._recorder.integers, self._recorder
        sorts = {x.__class__ for x in items} if Traced in kinds else kinds
        if len(sorts) > 1:
            return None
        if Traced not in kinds:
            table = integers.constant(tuple(items))
            return lambda key: Traced(recorder, integers.step("read", table, key.node))
        nodes = [x.node if type(x) is Traced else integers.constant(x) for x in items]
        (kind,) = sorts
        return lambda key: Traced(recorder, integers.step("choose", key.node, *nodes), kind)

    def _text_picker(self, items: Sequence[str]) -> Callable[[Traced], Any] | None:
        """One of some strings of one length: what each of their characters is."""
        integers, recorder = self._recorder.integers, self._recorder
        if not recorder.spells or recorder.forks or len({*map(len, items)}) > 1 or not items[0]:
            return None
        columns = [items] if len(items[0]) == 1 else zip(*items, strict=True)
        tables = [integers.constant(tuple(map(ord, column))) for column in columns]

        def pick(key: Traced) -> TracedText:
            recorder.texts = recorder.spelled = True
            codes = [integers.step("read", table, key.node) for table in tables]
            return TracedText(recorder, codes)

        return pick

    def _row_picker(self, items: Sequence[Any]) -> Callable[[Traced], Any]:
        """A row of a table of rows: what each column selects."""
        picks = [self._picker(column) for column in zip(*items, strict=True)]
        kind = type(items[0])
        for row in items:
            self.watch(row)

        def pick(key: Traced) -> Any:
            self._in_range(key, len(items))
            made = kind([pick(key) for pick in picks])
            self.watch(made)
            if kind is tuple:
                self.known.add(id(made))
                self._tuples.append(made)  # so that it keeps its address
            return made

        return pick

    def _dict_picker(self, items: Sequence[dict[Any, Any]]) -> Any:
        """One of several dicts that have the same keys in the same order: what each key selects."""
        keys = list(items[0])
        if len(keys) > _FEW or not all(
            len(row) == len(keys) and all(map(are_keys_alike, keys, row)) for row in items
        ):
            return None
        columns = zip(*[row.values() for row in items], strict=True)
        picks = [self._picker(column) for column in columns]
        for row in items:
            self.watch(row)

        def pick(key: Traced) -> Any:
            self._in_range(key, len(items))
            made = dict(zip(keys, [pick(key) for pick in picks], strict=True))
            self.watch(made)
            return made

        return pick

    def _array_picker(self, items: Sequence[Any]) -> Any:
        """One of several arrays alike."""
        first = items[0]
        if first.dtype not in (object, np.float64, np.int64) or not first.ndim:
            return None
        columns = zip(*[list(x.ravel()) for x in items], strict=True)
        picks = [self._picker(column) for column in columns]
        for x in items:
            self.watch(x)

        def pick(key: Traced) -> Any:
            self._in_range(key, len(items))
            made = object_array([pick(key) for pick in picks], first.shape)
            made = typed(made, first.dtype)
            self.watch(made)
            return made

        return pick

    def watch(self, container: Any) -> None:
        """Look at the end whether a container still has its contents."""
        if id(container) not in self.known and isinstance(container, list | dict | np.ndarray):
            self.known.add(id(container))
            self._watched += container, contents_of(container)

    # --- gathers and numbers ----------------------------------------------------------------------

    def _value_picker(self, items: tuple[Value, ...]) -> Callable[[Traced], Value] | None:
        """What gives a Value that stands for the selected one; None where it is too deep."""
        inner = [self.pending.get(id(x)) for x in items]
        integers, count = self._recorder.integers, len(items)
        if not any(inner):
            return lambda key: self._gather(items, key.node)
        parts = [(x,) if one is None else one.items for x, one in zip(items, inner, strict=True)]
        distinct = {id(part): part for part in parts}
        if sum(map(len, distinct.values())) > _MOST:
            return None
        first, zero = inner[0], integers.constant(0)
        nodes = [zero if one is None else one.node for one in inner]
        if first is not None and set(nodes) == {first.node} and len({*map(len, parts)}) == 1:
            # One integer selects all of them: two dimensions.
            outer, known = len(first.items), (Value, *map(id, parts))
            if known not in self.tables:
                self.tables[known] = tuple([x[a] for a in range(outer) for x in parts]), parts
            joined = self.tables[known][0]
            chosen = integers.step("wrap", first.node, integers.constant(outer))
            start = integers.step("mul", chosen, integers.constant(count))

            def pick(key: Traced) -> Value:
                within = integers.step("wrap", key.node, integers.constant(count))
                return self._gather(joined, integers.step("add", start, within))

            return pick
        # Each was selected by an integer of its own: all candidates, one after the other.
        joined, at = tuple(itertools.chain(*distinct.values())), 0
        starts = {}
        for key, part in distinct.items():
            starts[key] = at
            at += len(part)
        places = [
            integers.step(
                "add",
                integers.constant(starts[id(part)]),
                integers.step("wrap", node, integers.constant(len(part))),
            )
            for node, part in zip(nodes, parts, strict=True)
        ]
        return lambda key: self._gather(joined, integers.step("choose", key.node, *places))

    def _gather(self, items: tuple[Value, ...], node: int) -> Value:
        """A Value that stands for the selected one."""
        leaves = self._leaves.get(id(items))
        if leaves is None:
            leaves = self._leaves[id(items)] = {}
        found = leaves.get(node)
        if found is None:
            found = self._leaf(items[self._recorder.integers.value(node)]._number)
            self._recorder.selected(found, items, node)
            self.pending[id(found)] = _Pending(found, items, node)
            leaves[node] = found
        return found

    def number(self, node: int) -> Value:
        """An integer, or a float read from a table, as an input of the recording."""
        if node not in self.numbers:
            self.numbers[node] = self._leaf(float(self._recorder.integers.value(node)))
        return self.numbers[node]

    @staticmethod
    def _leaf(number: float) -> Value:
        """A Value that the recorder is not told of."""
        recorder, modes.recorder = modes.recorder, None
        try:
            return Value(number)
        finally:
            modes.recorder = recorder

    @property
    def ranges(self) -> set[tuple[int, int]]:
        """Nodes that are the index of one of so many Values."""
        return {(p.node, len(p.items)) for p in self.pending.values()}

    # --- derivatives ------------------------------------------------------------------------------

    def reached(self, outputs: Collection[Value]) -> set[int]:
        """The ids of all Values in some graphs; of those too that a gather may select."""
        found: set[int] = set()
        while outputs:
            new = {id(v) for y in outputs for v in topological_order(y)} - found
            found |= new
            tables = {id(p.items): p.items for key, p in self.pending.items() if key in new}
            outputs = list(itertools.chain(*tables.values()))
        return found

    def differentiated(self, y: Value, xs: Sequence[Value]) -> None:
        """A derivative is taken inside the function: no path to ``xs`` may go through a gather.

        A gather is a leaf: the sweep back does not see the Values from which it selects.
        """
        self.observed(*[x for x in xs if id(x) in self.chosen])
        if not self.pending:
            return
        wanted = set(map(id, xs))
        gathers = [self.pending[id(v)] for v in topological_order(y) if id(v) in self.pending]
        items = list(itertools.chain(*[gather.items for gather in gathers]))
        if not wanted.isdisjoint(self.pending) or not wanted.isdisjoint(self.reached(items)):
            self._observed = True
            raise Observed

    # --- what would tell --------------------------------------------------------------------------

    def observed(self, *objects: Any) -> None:
        """Identity was asked for: of these objects, or of Values in general."""
        known = [self.chosen, *([self.known, self.pending] if self.enabled else [])]
        if any(id(x) in ids for x in objects for ids in known):
            self._observed = True  # in case the function swallows it
            raise Observed

    def ask(self) -> None:
        """Something was asked for that tells which object it is."""
        self._observed = True

    def compared(self) -> None:
        """Two Values were compared, or one hashed: which one it is."""
        if self.chosen:
            self._observed = True
            raise Observed

    def origins(self, x: Value) -> set[int]:
        """The ids of the Values that one may be in eager mode."""
        found, stack = set[int](), [x]
        while stack:
            x = stack.pop()
            if id(x) not in found:
                found.add(id(x))
                stack += self.chosen.get(id(x), (x, []))[1]
        return found

    def stored_into(self, container: Any) -> None:
        """Something is about to be changed: what was selected of it before, or from now on."""
        self._observed = self._observed or id(container) in self.known

    def check(self, identity: bool) -> None:
        """Raise Observed unless the function could not tell copies from originals."""
        if self._observed or (identity and (self.pending or self.chosen)):
            raise Observed
        for container, before in zip(self._watched[::2], self._watched[1::2], strict=True):
            now = contents_of(container)
            if len(now) != len(before) or not all(map(is_same, now, before)):
                raise Observed

    def forget(self) -> None:
        """Let go of all Values and containers."""
        kept = (
            self.pending,
            self.chosen,
            self._leaves,
            self._copies,
            self.tables,
            self._bytes,
            self._picks,
            self._large,
            self._tuples,
            self._watched,
            self.numbers,
        )
        for each in kept:
            each.clear()

    # --- the end ----------------------------------------------------------------------------------

    def finish(
        self, position: Callable[[Sequence[Value]], list[int]], places: Ints, owners: Ints
    ) -> Selection:
        """All of it as data; ``position`` finds Values among the instructions."""
        program, place = self._recorder.integers.finish()
        tables: dict[int, Ints] = {}
        for p in self.pending.values():
            if id(p.items) not in tables:
                tables[id(p.items)] = np.fromiter(position(p.items), np.int32)
        gathers = tuple(Gather(tables[id(p.items)], place(p.node)) for p in self.pending.values())
        numbers = tuple(place(node) for node in self.numbers)
        return Selection(program, gathers, places, owners, numbers)
