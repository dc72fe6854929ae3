"""What the integers of a recording select: visible reads, gathers and numbers.

In: every read ``container[key]`` whose key is traced. Out: a traced integer where a table of
integers is read, a gather where a list of Values is: an operand whose place among its candidates
the integer program tells. A row of Values becomes a list of gathers. Where neither holds, the key
is static. The function gets copies of selected rows: changing one, or asking which object it is,
would tell it so; then the recording is made again with static reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.arrays import DataArray, as_data, data_view, numbers, object_array
from chainrule.compiler.capture.integers import EXACT, IntegerProgram
from chainrule.compiler.capture.standins import Detached
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import Value, modes

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

Ints = npt.NDArray[np.int32]
_MOST = 100_000  # combinations of several integers in one read; more are static
_INTEGERS = frozenset((int, bool, Traced))


class Observed(BaseException):
    """The function looked at what a selected object is: its reads must be static.

    Not an Exception: the function's own ``except Exception`` must not swallow it.
    """


@dataclass(frozen=True, eq=False)
class Gather:
    """An operand that an integer selects: ``candidates[index]``, counted as Python does."""

    candidates: Ints  # positions in the recording
    index: int  # a node of the integer program

    def __repr__(self) -> str:
        return f"Gather(item i{self.index} of {len(self.candidates)})"


@dataclass(frozen=True, eq=False)
class Selection:
    """What the integers of a call decide in a recording.

    ``places[k]`` (3 * instruction + operand) is what gather ``owners[k]`` selects. ``numbers`` are
    the nodes of the integer program that are the recording's last inputs.
    """

    program: IntegerProgram = field(default_factory=lambda: IntegerProgram(0, (), (), ()))
    gathers: tuple[Gather, ...] = ()
    places: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    owners: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    numbers: tuple[int, ...] = ()

    def __str__(self) -> str:
        lines = [str(self.program)]
        lines += [
            f"gather {k}: item i{gather.index} of {len(gather.candidates)}"
            for k, gather in enumerate(self.gathers)
        ]
        return "\n".join(lines)

    def summary(self) -> str:
        """What integers do here, in a few words."""
        words = [f"{len(self.places)} operands selected by integers"]
        if self.program.steps:
            words.append(f"{len(self.program.steps)} steps computed from integers")
        static = sum(not g.truth for g in self.program.guards)
        if self.program.guards:
            words.append(f"{len(self.program.guards)} guards on integers")
        if static:
            words.append(f"{static} of them static")
        return ", ".join(words)

    @property
    def slots(self) -> list[int]:
        """For each operand in ``places``: the argument that is its index, or -1."""
        known = self.program.arguments
        indices = [g.index if g.index < known else -1 for g in self.gathers]
        return [indices[k] for k in self.owners.tolist()]

    @property
    def is_direct(self) -> bool:
        """Whether arguments themselves are all that decides: nothing is computed from them."""
        known = self.program.arguments
        return (
            not self.program.guards
            and not self.numbers
            and all(g.index < known for g in self.gathers)
        )

    def rows(self, operands: Ints) -> list[Ints]:
        """What may stand in ``places``: what was recorded, then every candidate."""
        recorded = operands.ravel()[self.places]
        most = max([len(g.candidates) for g in self.gathers], default=0)
        table = np.empty((most, len(self.gathers)), np.int32)
        for k, gather in enumerate(self.gathers):
            count = len(gather.candidates)
            table[:count, k], table[count:, k] = gather.candidates, gather.candidates[-1]
        return [recorded, *table[:, self.owners]]

    def decide(self, integers: Sequence[int]) -> tuple[Ints, list[float]] | None:
        """The operands in ``places`` and the numbers for these integers; None: another path."""
        values = self.program.evaluate(integers)
        if values is None:
            return None
        try:
            chosen = [g.candidates[int(values[g.index])] for g in self.gathers]
        except (IndexError, OverflowError):
            return None
        numbers = []
        for node in self.numbers:
            number = values[node]
            if type(number) is not float and not -EXACT <= number <= EXACT:
                return None
            numbers.append(float(number))
        return np.array(chosen, np.int32)[self.owners], numbers


@dataclass(eq=False)
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
        self._copies: dict[Any, Any] = {}
        self._watched: list[tuple[Any, tuple[Any, ...]]] = []  # copies and originals, contents
        self._known: set[int] = set()  # ids of copies and originals
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
        if isinstance(container, DataArray):
            found = self.read(container.view(np.ndarray), key)
            return data_view(found, container) if isinstance(found, np.ndarray) else found
        if type(key) is list or isinstance(key, np.ndarray):
            return self._read_many(container, key)
        if type(key) is tuple:
            if kind is not np.ndarray:
                return container[key]
            if any(isinstance(k, list | np.ndarray) for k in key):
                return self._read_by_arrays(container, key)
            return self._read_array(container, key)
        if kind is np.ndarray:
            return self._read_array(container, (key,))
        if kind is dict:
            return self._look_up(container, key)
        if kind is not list and kind is not tuple:
            return container[key]
        if not -len(container) <= key.value < len(container):
            return container[key]
        return self._selected(container, container, key)

    def _selected(self, container: Any, items: Sequence[Any], key: Traced) -> Any:
        """One of some items; rows that were selected before are the same rows."""
        known = id(container), key.node
        if known in self._copies:
            return self._copies[known][1]
        chosen = self.choose(items, key)
        if isinstance(chosen, list | np.ndarray):
            self._copies[known] = container, chosen
            self._watch(container)
        return chosen

    def _read_array(self, array: Any, key: tuple[Any, ...]) -> Any:
        """An element or a part of an array; several traced keys are one."""
        if any(type(k) is Traced and type(k.value) is bool for k in key):  # a mask, not an index
            key = tuple([k.static() if type(k) is Traced else k for k in key])
        plain = (int, np.integer, slice)
        if len(key) > array.ndim or not all(type(k) is Traced or type(k) in plain for k in key):
            return array[key if len(key) > 1 else key[0]]
        traced = [axis for axis, k in enumerate(key) if type(k) is Traced]
        counts = [array.shape[axis] for axis in traced]
        if np.prod(counts, dtype=object) > _MOST or any(
            not -n <= key[axis].value < n for axis, n in zip(traced, counts, strict=True)
        ):
            return array[key if len(key) > 1 else key[0]]
        items = []
        for place in itertools.product(*map(range, counts)):
            at = list(key)
            for axis, i in zip(traced, place, strict=True):
                at[axis] = i
            items.append(array[tuple(at)])
        if len(traced) == 1:
            return (
                self._selected(array, items, key[traced[0]])
                if len(key) == 1
                else self.choose(items, key[traced[0]])
            )
        return self.choose(items, self._joined([key[axis] for axis in traced], counts))

    def _read_many(self, container: Any, keys: Any) -> Any:
        """Rows of an array by a list of integers: ``E[tokens]``."""
        flat = keys if type(keys) is list else np.ndarray.ravel(keys).tolist()
        if type(container) is not np.ndarray or not all(type(k) in _INTEGERS for k in flat):
            return container[keys]
        found = [
            self._read_array(container, (k,)) if type(k) is Traced else container[k] for k in flat
        ]
        shape = (len(flat),) if type(keys) is list else keys.shape
        made = np.empty((len(flat), *container.shape[1:]), object)
        for k, item in enumerate(found):
            made[k] = item
        return self._like(made.reshape(*shape, *container.shape[1:]), container)

    def _read_by_arrays(self, container: Any, key: tuple[Any, ...]) -> Any:
        """Elements by arrays of integers, ``p[rows, columns]``; columns by one, ``p[:, columns]``.

        Other combinations are read by the numbers themselves.
        """
        keys = [object_array(k, (len(k),)) if type(k) is list else k for k in key]
        arrays = [axis for axis, k in enumerate(keys) if isinstance(k, np.ndarray)]
        flat = [x for axis in arrays for x in np.ndarray.ravel(keys[axis]).tolist()]
        slices = [axis for axis, k in enumerate(keys) if type(k) is slice]
        whole = all(type(k) in _INTEGERS for k in flat)
        if len(key) > container.ndim or not whole:
            return container[tuple([numbers(k) for k in keys])]
        if not slices:
            return self._read_elements(container, keys)
        if (
            len(arrays) == 1
            and len(arrays) + len(slices) == len(keys)
            and keys[arrays[0]].ndim == 1
        ):
            (axis,) = arrays
            parts = [
                self.read(container, (*keys[:axis], k, *keys[axis + 1 :]))
                for k in np.ndarray.ravel(keys[axis]).tolist()
            ]
            if parts:
                return self._like(np.stack(parts, axis), container)
        return container[tuple([numbers(k) for k in keys])]

    def _read_elements(self, container: Any, keys: list[Any]) -> Any:
        """``p[rows, columns]``."""
        plain = [
            k.view(np.ndarray) if isinstance(k, np.ndarray) else object_array([k], ()) for k in keys
        ]
        spread = np.broadcast_arrays(*plain)
        places = zip(*[k.ravel().tolist() for k in spread], strict=True)
        found = [self.read(container, place) for place in places]
        made = np.empty((len(found), *container.shape[len(keys) :]), object)
        for k, item in enumerate(found):
            made[k] = item
        return self._like(made.reshape(*spread[0].shape, *made.shape[1:]), container)

    @staticmethod
    def _like(made: Any, container: Any) -> Any:
        """What was read from an array as one of its type."""
        return made if container.dtype == object else as_data(made, container.dtype)

    def _joined(self, keys: Sequence[Traced], counts: Sequence[int]) -> Traced:
        """Several indices as one, into all combinations."""
        integers = self._recorder.integers
        node = integers.constant(0)
        for key, n in zip(keys, counts, strict=True):
            count = integers.constant(n)
            place = integers.step("wrap", key.node, count)
            node = integers.step("add", integers.step("mul", node, count), place)
        return Traced(self._recorder, node)

    def _look_up(self, mapping: dict[Any, Any], key: Traced) -> Any:
        """A dict with integers for keys is a list behind a table."""
        if not mapping or key.value not in mapping or not set(map(type, mapping)) <= {int, bool}:
            return mapping[key]  # hashed: static
        integers = self._recorder.integers
        table = {k: place for place, k in enumerate(mapping)}
        node = integers.step("read", integers.constant(table), key.node)
        return self._selected(mapping, list(mapping.values()), Traced(self._recorder, node))

    def choose(self, items: Sequence[Any], key: Traced) -> Any:
        """``items[key]``, traced as far as the items are alike; else the key becomes static."""
        kinds = set(map(type, items))
        integers, recorder = self._recorder.integers, self._recorder
        first = items[0]
        if all(x is first for x in items):
            integers.step("wrap", key.node, integers.constant(len(items)))  # in range, or it raises
            return first
        if kinds == {np.int64}:
            table = integers.constant(tuple(map(int, items)))
            return Traced(recorder, integers.step("read", table, key.node), np.int64)
        if kinds <= _INTEGERS:
            sorts = {x.__class__ for x in items}
            if len(sorts) > 1:  # its type tells which it is
                return items[key.static()]
            if Traced not in kinds:
                table = integers.constant(tuple(items))
                return Traced(recorder, integers.step("read", table, key.node))
            nodes = [x.node if type(x) is Traced else integers.constant(x) for x in items]
            return Traced(recorder, integers.step("choose", key.node, *nodes), sorts.pop())
        if kinds == {Value}:
            found = self._gather(tuple(items), key.node)
            if found is not None:
                return found
        elif kinds == {Detached} and len({x.kind for x in items}) == 1:
            found = self._gather(tuple([x._value for x in items]), key.node)
            if found is not None:
                return Detached(recorder, found, all(x.is_data for x in items), first.kind)
        elif kinds in ({float}, {np.float64}):
            table = integers.constant(tuple(map(float, items)))
            node = integers.step("read", table, key.node)
            return Detached(recorder, self.number(node), is_data=True, kind=kinds.pop())
        elif len(kinds) == 1 and kinds <= {list, tuple} and len({len(x) for x in items}) == 1:
            return self._row(items, key)
        elif kinds == {np.ndarray} and len({(x.shape, x.dtype) for x in items}) == 1:
            return self._array(items, key)
        return items[key.static()]

    def _row(self, items: Sequence[Any], key: Traced) -> Any:
        """A row of a table of rows: what each column selects."""
        integers = self._recorder.integers
        integers.step("wrap", key.node, integers.constant(len(items)))
        made = type(items[0])([self.choose(column, key) for column in zip(*items, strict=True)])
        for row in items:
            self._watch(row)
        self._watch(made)
        return made

    def _array(self, items: Sequence[Any], key: Traced) -> Any:
        first = items[0]
        if first.dtype != object:
            return items[key.static()]
        columns = zip(*[x.ravel().tolist() for x in items], strict=True)
        made = np.empty(first.size, object)
        for k, column in enumerate(columns):
            made[k] = self.choose(column, key)
        made = made.reshape(first.shape)
        self._watch(made)
        return made

    def _watch(self, container: Any) -> None:
        """Look at the end whether a container still has its contents."""
        if id(container) not in self._known and isinstance(container, list | dict | np.ndarray):
            self._known.add(id(container))
            self._watched.append((container, _contents(container)))

    # --- gathers and numbers ----------------------------------------------------------------------

    def _gather(self, items: tuple[Value, ...], node: int) -> Value | None:
        """A Value that stands for the selected one; None where it is too deep."""
        inner = [self.pending.get(id(x)) for x in items]
        integers = self._recorder.integers
        if any(x is not None for x in inner):
            first = inner[0]
            if first is None or any(
                x is None or x.node != first.node or len(x.items) != len(first.items) for x in inner
            ):
                return None
            outer, count = len(first.items), len(items)
            chosen = integers.step("wrap", first.node, integers.constant(outer))
            within = integers.step("wrap", node, integers.constant(count))
            node = integers.step("mul", chosen, integers.constant(count))
            node = integers.step("add", node, within)
            items = tuple([x.items[a] for a in range(outer) for x in inner if x is not None])
        leaf = self._leaf(items[integers.value(node)]._number)
        self.pending[id(leaf)] = _Pending(leaf, items, node)
        return leaf

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

    # --- what would tell --------------------------------------------------------------------------

    def observed(self, *objects: Any) -> None:
        """Identity was asked for: of these objects, or of Values in general."""
        if not self.enabled:
            return
        if any(id(x) in self._known or id(x) in self.pending for x in objects):
            self._observed = True  # in case the function swallows it
            raise Observed

    def check(self, identity: bool) -> None:
        """Raise Observed unless the function could not tell copies from originals."""
        if self._observed or (identity and self.pending):
            raise Observed
        for container, before in self._watched:
            now = _contents(container)
            if len(now) != len(before) or any(a is not b for a, b in zip(now, before, strict=True)):
                raise Observed

    # --- the end ----------------------------------------------------------------------------------

    def finish(
        self, position: Callable[[Sequence[Value]], list[int]], places: Ints, owners: Ints
    ) -> Selection:
        """All of it as data; ``position`` finds Values among the instructions."""
        program, place = self._recorder.integers.finish()
        gathers = tuple(
            Gather(np.array(position(p.items), np.int32), place(p.node))
            for p in self.pending.values()
        )
        numbers = tuple(place(node) for node in self.numbers)
        return Selection(program, gathers, places, owners, numbers)


def _contents(container: Any) -> tuple[Any, ...]:
    if isinstance(container, np.ndarray):
        return tuple(container.ravel().tolist())
    if isinstance(container, dict):
        return tuple(itertools.chain(*container.items()))
    return tuple(container)
