"""What a plain call does with the containers it was passed: it hands them back, or changes them.

In: the arguments of a run as they were made for it, and what the function returned. Out: the same
tree with ``Passed`` in the place of each container that was passed, and a ``Change`` for each that
the run changed. A replay returns the caller's own containers, and changes these, as eager mode
does; see ``runtime.assembly``.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from chainrule.compiler.capture.arguments import Rebuilt, has_attributes
from chainrule.compiler.capture.arrays import items_of
from chainrule.compiler.capture.objects import has_only_fields, is_slot
from chainrule.compiler.capture.standins import Detached, StandIn, Unrecordable
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import Value
from chainrule.trees import Leaf, build_record, exactly, field_names, is_named_tuple, is_record

CHANGES = "it changes a list, dict, array or object it was passed"
#: why that, and returning several Values or what it was passed, is eager's with some Values around
AMONG_VALUES = (
    ", and Values are involved, whose graph a replay does not keep: where no gradient is wanted, "
    "pass numbers, and keep .data of Values"
)
_FLOAT64 = np.dtype(np.float64)
_LEAVES = frozenset((float, int, bool, str, type(None), np.float64, Value, Detached, Traced))


class Attribute(NamedTuple):
    """A step from an object to what it has under a name."""

    name: str


@dataclass(frozen=True)
class Passed(Leaf):
    """What the caller passed: an argument, by its place or keyword, or what is in it."""

    path: tuple[Any, ...]
    is_handed: ClassVar[bool] = True

    def inside(self, step: Any) -> Passed:
        """What is in it under a key, or in a place."""
        return Passed((*self.path, step))

    def __repr__(self) -> str:
        first, *rest = self.path
        steps = [f".{x.name}" if type(x) is Attribute else f"[{x!r}]" for x in rest]
        return f"argument {first}{''.join(steps)}"


@dataclass(frozen=True)
class First:
    """A new container that comes more than once."""

    number: int
    item: Any
    is_handed: ClassVar[bool] = True


@dataclass(frozen=True)
class Same(Leaf):
    """One that came before."""

    number: int
    is_handed: ClassVar[bool] = True


@dataclass(frozen=True)
class Queue:
    """A new deque."""

    items: list[Any]
    most: int | None
    is_handed: ClassVar[bool] = True


@dataclass(frozen=True)
class Change:
    """What becomes of one container: ``keys`` and ``items`` go together, but for the last.

    ``how``: ``"items"``, ``"attributes"``, ``"numbers"`` of an array by their places in order; or
    ``"end"``: as many as ``keys`` says go from the beginning, and the items come to the end. One
    that was stored into, and is as it was, has no items.
    """

    place: Passed
    how: str
    keys: Any
    items: list[Any]


@dataclass(frozen=True)
class Handed:
    """What a function returned, and what it changed."""

    result: Any
    changes: tuple[Change, ...] = ()
    checked: frozenset[int] = frozenset()  # ids of what it changed, which no call may have twice


def handed(
    rebuilt: Rebuilt,
    result: Any,
    stored: Callable[[int], bool] = lambda x: False,
    outside: Collection[int] = (),
    new: Callable[[Any], None] = lambda x: None,
) -> Handed:
    """What a run did; Unrecordable where a replay could not do the same.

    ``stored``: whether it stored into the object with this id. ``outside``: ids of what the
    function has by itself. ``new`` is told of each container that is neither.
    """
    passed = Containers(rebuilt)
    changes = list(passed.changes(stored))
    described = _Described(passed.places, outside, new)
    described.meet([*[change.items for change in changes], result])
    found = [replace(x, items=[described(item) for item in x.items]) for x in changes]
    return Handed(described(result), tuple(found), passed.checked)


# --- what was passed ------------------------------------------------------------------------------


class _Held(NamedTuple):
    """A container that was passed, and what was in it."""

    built: Any
    before: Any  # a tuple of items, or a dict; None: an array that is no data
    kind: type | None  # of an object


class Containers:
    """The containers that stand for arguments, and their places."""

    def __init__(self, rebuilt: Rebuilt) -> None:
        self._looks = {id(array): looks for array, looks in rebuilt.arrays}
        held = [_Held(array, None, None) for array, _ in rebuilt.arrays]
        held += [_Held(built, before, None) for built, before in (*rebuilt.lists, *rebuilt.dicts)]
        held += [_Held(built, before, kind) for built, kind, before in rebuilt.records]
        self._held = {id(x.built): x for x in held}
        self.places: dict[int, Passed] = {}
        self.checked: frozenset[int] = frozenset()
        for first, x in (*enumerate(rebuilt.arguments), *rebuilt.keywords.items()):
            self._place(x, Passed((first,)))

    def _place(self, x: Any, place: Passed) -> None:
        known = self._held.get(id(x))
        if type(x) in _LEAVES or id(x) in self.places:
            return
        if known is None and not issubclass(type(x), tuple):
            return
        self.places[id(x)] = place
        before, kind = (x, None) if known is None else (known.before, known.kind)
        if isinstance(before, dict):
            for key, item in before.items():
                self._place(item, place.inside(key if kind is None else Attribute(key)))
        elif not isinstance(x, np.ndarray) and not _LEAVES.issuperset(map(type, before)):
            for k, item in enumerate(before):
                if type(item) not in _LEAVES:
                    self._place(item, place.inside(k))

    def touched(self) -> set[Passed]:
        """What a run changed; Unrecordable where it did what no replay does."""
        return {change.place for change in self.changes(lambda x: False)}

    def state_after(self, result: Any, places: set[Passed]) -> Any:
        """What a run returned, and what is by then in some places of what it was passed."""
        contents = list(self._contents(places))
        described = _Described(self.places, (), lambda x: None)
        described.meet([*contents, result])
        return [described(x) for x in contents], described(result)

    def _contents(self, places: set[Passed]) -> Iterator[Any]:
        """What is in some of them by now, as lists and dicts; of arrays copies."""
        for x in self._held.values():
            if self.places.get(id(x.built)) not in places:
                continue
            attributes = getattr(x.built, "__dict__", None)
            if isinstance(x.built, np.ndarray):
                yield x.built.copy()
            elif attributes is not None and x.kind is not None:
                yield dict(attributes)
            elif x.kind is not None:
                yield {name: getattr(x.built, name, None) for name in x.before}
            else:
                yield dict(x.built) if isinstance(x.before, dict) else list(x.built)

    def changes(self, stored: Callable[[int], bool]) -> Iterator[Change]:
        """What became of each, in items that nobody has described yet."""
        for key, x in self._held.items():
            place = self.places.get(key)
            if isinstance(x.built, np.ndarray):
                found = self._of_array(x, stored(key))
            elif x.kind is not None:
                attributes = id(getattr(x.built, "__dict__", None))
                found = _of_object(x, stored(key) or stored(attributes))
            elif isinstance(x.before, dict):
                if has_attributes(x.built):
                    raise Unrecordable(CHANGES)
                found = _of_mapping(x.built, x.before, "items", stored(key))
            else:
                found = _of_sequence(x, stored(key))
            if found is not None and place is None:  # in an array of objects
                raise Unrecordable(CHANGES)
            if found is not None and place is not None:
                self.checked |= {key, id(getattr(x.built, "__dict__", None))}
                yield Change(place, *found)

    def _of_array(self, x: _Held, is_stored: bool) -> _Found:
        now = np.ndarray.view(x.built, np.ndarray)
        shape, strides, kind, contents = self._looks.get(id(x.built), (None,) * 4)
        moved = shape is not None and (now.shape, now.strides, now.dtype) != (shape, strides, kind)
        if moved or (x.before is None and now.tobytes() != contents):
            raise Unrecordable(CHANGES)
        items = items_of(x.built) if x.before is not None else []
        keys = [k for k, item in enumerate(items) if item is not x.before[k]]
        if not keys and not is_stored:
            return None
        if x.built.dtype != _FLOAT64:
            raise Unrecordable(CHANGES)
        return "numbers", tuple(keys), [items[k] for k in keys]


_Found = tuple[str, Any, list[Any]] | None


def _are(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(map(operator.is_, a, b))


def _of_sequence(x: _Held, is_stored: bool) -> _Found:
    now, before = list(x.built), x.before
    if len(now) == len(before) and all(map(operator.is_, now, before)):
        return ("items", (), []) if is_stored else None
    keys = [k for k, item in enumerate(now) if k < len(before) and item is not before[k]]
    gone = next(n for n in range(len(before) + 1) if _are(before[n:], now[: len(before) - n]))
    added = now[len(before) - gone :]
    if len(now) == len(before) and len(keys) <= gone + len(added):
        return "items", tuple(keys), [now[k] for k in keys]
    return "end", gone, added


def _of_mapping(now: dict[Any, Any], before: dict[Any, Any], how: str, is_stored: bool) -> _Found:
    first = list(now)[: len(before)]
    if len(first) != len(before) or any(map(_is_other, first, before)):
        raise Unrecordable(CHANGES)  # some are gone, or in another order
    keys = [key for key, item in now.items() if key not in before or item is not before[key]]
    if any(isinstance(key, StandIn) for key in keys):
        raise Unrecordable("it changes a dict it was passed, under a key that it was passed")
    return (how, tuple(keys), [now[key] for key in keys]) if keys or is_stored else None


def _is_other(a: Any, b: Any) -> bool:
    return a is not b and (a != b or exactly(a) != exactly(b))


def _of_object(x: _Held, is_stored: bool) -> _Found:
    if type(x.built) is not x.kind:
        raise Unrecordable(CHANGES)
    now: dict[str, Any] = getattr(x.built, "__dict__", {})
    for name in x.before.keys() - now.keys():
        if not is_slot(x.kind, name) or getattr(x.built, name, None) is not x.before[name]:
            raise Unrecordable(CHANGES)
    before = {name: item for name, item in x.before.items() if name in now}
    return _of_mapping(now, before, "attributes", is_stored)


# --- what it returned -----------------------------------------------------------------------------


class _Described:
    """Makes trees with ``Passed``, ``First`` and ``Same`` in them."""

    def __init__(
        self, places: dict[int, Passed], outside: Collection[int], new: Callable[[Any], None]
    ) -> None:
        self._places, self._outside, self._new = places, outside, new
        self._met: dict[int, int] = {}  # by id, how often
        self._numbers: dict[int, int] = {}
        self._open: set[int] = set()

    def meet(self, x: Any) -> None:
        """Count the containers of a tree, but for empty tuples, which are all one."""
        if id(x) in self._places:
            return
        items = _items_of(x)
        if items is None and not isinstance(x, np.ndarray):
            return
        if id(x) in self._outside:
            raise Unrecordable(f"it returns a {type(x).__name__} that is held elsewhere too")
        if id(x) in self._open:
            raise Unrecordable("it returns, or keeps, a container that is inside itself")
        if id(x) in self._met:
            self._met[id(x)] += 1
            return
        self._new(x)
        if items == [] and type(x) is tuple:
            return
        self._met[id(x)] = 1
        self._open.add(id(x))
        for item in items or ():
            if type(item) not in _LEAVES:
                self.meet(item)
        self._open.discard(id(x))

    def __call__(self, x: Any) -> Any:
        """What stands for something that the function returned, or stored."""
        place = self._places.get(id(x))
        if place is not None:
            return place
        if id(x) in self._numbers:
            return Same(self._numbers[id(x)])
        made = self._made(x)
        if self._met.get(id(x), 0) > 1:
            self._numbers[id(x)] = len(self._numbers)
            return First(self._numbers[id(x)], made)
        return made

    def _made(self, x: Any) -> Any:
        items = _items_of(x)
        if items is None:
            return x
        kind: Any = type(x)
        made = [item if type(item) in _LEAVES else self(item) for item in items]
        if kind is dict:
            return dict(zip(x, made, strict=True))
        if kind is deque:
            return Queue(made, x.maxlen)
        if kind is list or kind is tuple:
            return kind(made)
        return kind._make(made) if isinstance(x, tuple) else build_record(kind, made)


def _items_of(x: Any) -> list[Any] | None:
    """What is in a container; None for anything else."""
    kind = type(x)
    if kind in _LEAVES:
        return None
    if kind is list or kind is tuple or kind is deque:
        return list(x)
    if kind is dict:
        if any(isinstance(key, StandIn) for key in x):
            raise Unrecordable("it returns a dict with keys that it was passed")
        return list(x.values())
    if is_named_tuple(x) or is_record(x):
        if not has_only_fields(x):
            raise Unrecordable(f"it returns a {kind.__name__} that has more than its fields")
        return list(x) if isinstance(x, tuple) else [getattr(x, n) for n in field_names(kind)]
    return None
