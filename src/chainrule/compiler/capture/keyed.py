"""Dicts, sets and lists that a recorded function builds under keys known only at a call.

In: ``counts = {}``, ``Counter(tokens)``, ``defaultdict(list)``, ``set()`` and their like, where an
earlier recording saw traced integers hashed. Out: stand-ins that keep a log of what is stored
(``logs``), and read it by steps of the integer program: which token is which makes no difference
to the recording. How many keys there are does, where code goes through them: a guard. Whatever else
is done with one is raised as ``NotKeyed``: the function is recorded again with a true container in
its place.
"""

from __future__ import annotations

import heapq
import operator
import sys
from collections import Counter, abc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.compiler.capture.integers import ITEMS
from chainrule.compiler.capture.logs import Entry, Log, last, node_of, places, sort_of, total
from chainrule.compiler.capture.lookups import are_alike, table_of
from chainrule.compiler.capture.merging import CannotMerge, one_of
from chainrule.compiler.capture.newness import REFERENCES, is_passed
from chainrule.compiler.capture.rewriting import calls_attribute, goes_through
from chainrule.compiler.capture.sorting import FRONTS, in_order
from chainrule.compiler.capture.standins import StandIn
from chainrule.compiler.capture.traced import Traced
from chainrule.core import errors

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

_MOST = 64  # entries of a container
_MOST_COUNTS = 6  # of items that a recording is for; with more, hardly a call has them all again
_MOST_STEPS = 32_768  # of all of them
_NOTHING = object()  # the value of an entry that only makes its key
_EMPTY = object()  # of one that puts a new and empty list there
FACTORIES = {int: 0, float: 0.0}
_second = operator.itemgetter(1)  # how often a key was counted
_LARGEST = FRONTS[heapq.nlargest]
_OWN = str(Path(__file__).parent)
_ABC = ("abc", "_py_abc")  # whose checks look at the type behind __class__ as well


class NotKeyed(BaseException):
    """Something is done with a container that a log does not know: it is to be a true one.

    Not an Exception: the function's own ``except Exception`` must not swallow it.
    """

    def __init__(self, site: str) -> None:
        super().__init__(site)
        self.site = site


class Keyed(StandIn):
    """What stands for a container; every use that is not known ends the recording.

    A function sees the attributes in ``_public`` where its rewritten code calls them there and
    then, and goes through one by ``for``, or by what hooks let take its items.
    """

    _recorder: Recorder
    _site: str
    _public: frozenset[str] = frozenset()

    def __getattribute__(self, name: str) -> Any:
        frame = sys._getframe(1)
        if frame.f_code.co_filename.startswith(_OWN):
            return object.__getattribute__(self, name)
        if name == "__class__" and frame.f_globals.get("__name__") not in _ABC:
            return object.__getattribute__(self, name)
        if name in type(self)._public and calls_attribute(frame):
            return object.__getattribute__(self, name)
        return Keyed.refuse(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if not sys._getframe(1).f_code.co_filename.startswith(_OWN):
            Keyed.refuse(self)
        object.__setattr__(self, name, value)

    def asked(self, name: str) -> Any:
        """The attribute of this name, which a side of a branch calls."""
        return getattr(self, name) if name in type(self)._public else self.refuse()

    def taken(self) -> Iterator[Any]:
        """Its items, for what is known to take them one after the other in their order."""
        return Going(self, *self._taken())

    def _taken(self) -> tuple[list[Any], Callable[[Any], Any]]:
        """What there is now, and what is shown for each when its turn comes."""
        return list(self.refuse()), _itself

    def _state(self) -> Log:
        """What was stored so far."""
        raise NotImplementedError

    def _goes_on(self, count: int) -> bool:
        """Whether Python would go on through so many items after something was stored."""
        return len(self) == count

    def __iter__(self) -> Iterator[Any]:
        return self.taken() if goes_through(sys._getframe(1)) else self.refuse()

    def refuse(self, *_: Any, **__: Any) -> Any:
        """Something is not known here."""
        self._recorder.unkeyed = self._site  # in case the function swallows it
        raise NotKeyed(self._site)

    def plain(self, use: str = "") -> Any:  # noqa: D102
        return self.refuse()

    def __getattr__(self, name: str) -> Any:
        return self.refuse()

    def size(self) -> Traced:
        """How many items there are."""
        raise NotImplementedError

    def __len__(self) -> int:
        node = self.size().node
        self._recorder.counted.add(node)
        if len(self._recorder.counted) > _MOST_COUNTS:
            self.refuse()
        return int(self._recorder.integers.guard(node, False, f"{errors.caller()}{ITEMS}"))

    def __bool__(self) -> bool:
        return bool(self.size().step("gt", 0))


for _name in (
    "eq ne lt le gt ge hash str repr format reduce_ex reduce setitem delitem add iadd radd mul "
    "imul rmul or ior ror and iand rand sub isub rsub xor ixor rxor reversed dir sizeof copy "
    "getitem delattr deepcopy getstate mod rmod matmul rmatmul"
).split():
    setattr(Keyed, f"__{_name}__", Keyed.refuse)


def is_keyed(x: Any) -> bool:
    """Whether it stands for a container."""
    return issubclass(type(x), Keyed)


def _holds_keyed(x: Any) -> bool:
    """Whether there is a stand-in for a container in a value."""
    return is_keyed(x) or (type(x) in (list, tuple) and any(map(_holds_keyed, x)))


class _Container(Keyed):
    """What a dict and a set have in common: keys, of which each is there once."""

    def __init__(self, recorder: Recorder, site: str, kind: type) -> None:
        self._recorder, self._site, self.kind = recorder, site, kind
        self._cell = [Log()]  # a side of a branch puts back what was in it
        self._sort: Any = None
        recorder.keyed_sites.add(site)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.kind

    @property
    def log(self) -> Log:
        """What was stored so far."""
        return self._cell[0]

    def _write(self, log: Log) -> None:
        integers, recorder = self._recorder.integers, self._recorder
        if len(log) > _MOST or len(integers.values) - integers.arguments > _MOST_STEPS:
            self.refuse()
        if recorder.forks:
            recorder.forks[-1].note(self._cell, 0)
        self._cell[0] = log

    def _node(self, key: Any, stored: bool = False) -> int:
        """The integer of a key; of one that is stored, the first decides of which kind all are."""
        sort, node = sort_of(key), node_of(self._recorder, key)
        if self._sort is None and stored:
            self._sort = sort
        numbers = isinstance(sort, type) and isinstance(self._sort, type)
        known = self._sort is None or sort == self._sort or (numbers and not stored)
        if node is None or not known:
            return int(self.refuse())
        return node

    def _traced(self, node: int) -> Traced:
        return Traced(self._recorder, node)

    def size(self) -> Traced:
        integers = self._recorder.integers
        return self._traced(total(integers, self.log.new(integers)))

    def contains(self, key: Any) -> Any:
        """``key in container``."""
        node = self._node(key)
        if not self.log:
            return False
        return self._traced(self.log.number(self._recorder.integers, node)).step("gt", 0)

    def __contains__(self, key: Any) -> bool:
        return bool(self.contains(key))

    def in_order(self) -> list[Any]:
        """The keys in the order in which they were stored first: a guard says how many."""
        integers, log = self._recorder.integers, self.log
        new, count = log.new(integers), len(self)
        keys = [entry.key for entry in log.entries]
        selected = self._recorder.selector.selected
        return [selected(keys, keys, self._traced(at)) for at in places(integers, new, count)]

    def _state(self) -> Log:
        return self.log


class KeyedDict(_Container):
    """A dict, Counter or defaultdict: of numbers, or of lists to which items are appended."""

    _public = frozenset(("get", "setdefault", "keys", "values", "items", "most_common"))

    def __init__(
        self, recorder: Recorder, site: str, kind: type = dict, factory: Any = None
    ) -> None:
        super().__init__(recorder, site, kind)
        self._factory = factory
        self.emptied = 0  # how often a new list was put in the place of another
        self.of_lists: bool | None = True if factory is list else None
        if factory is not None and factory is not list and factory not in FACTORIES:
            self.refuse()

    def _is(self, of_lists: bool) -> None:
        if self.of_lists is None:
            self.of_lists = of_lists
        if self.of_lists is not of_lists:
            self.refuse()

    def put(self, key: Any, value: Any) -> None:
        """``d[key] = value``."""
        if type(value) is list and (self.of_lists or not value):
            self.refuse()  # items are going to be appended to it
        if _holds_keyed(value):
            self.refuse()
        self._is(False)
        self._write(self.log.with_entry(Entry(key, self._node(key, True), value)))

    def put_list(self, key: Any, items: list[Any]) -> None:
        """``d[key] = [...]``: a list that was made for this."""
        if self.of_lists is False:
            self.put(key, items)
            return
        self._is(True)
        self.emptied += 1
        node = self._node(key, True)
        self._write(self.log.with_item(Entry(key, node, _EMPTY)))
        for item in items:
            self.append(key, node, item)

    def tally(self, key: Any) -> None:
        """``d[key] += 1``, where it is 0 to begin with."""
        node = self._node(key, True)
        before = self._traced(self.log.number(self._recorder.integers, node))
        self._write(self.log.with_item(Entry(key, node, before.step("add", 1))))

    def _values(self) -> list[Any]:
        return [entry.value for entry in self.log.entries]

    def _place(self, node: int) -> int:
        integers = self._recorder.integers
        return last(integers, self.log.having(integers, node))

    def item(self, key: Any) -> Any:
        """``d[key]``."""
        if self._factory is list or self.of_lists:
            return self._list(key, self._factory is list)
        if self._factory is not None:
            value = self.get(key, FACTORIES[self._factory])
            self.put(key, value)
            return value
        if self.kind is Counter:
            return self.get(key, 0)
        return self._stored(key)

    def _stored(self, key: Any) -> Any:
        """What is there under a key, or KeyError."""
        place = self._found(key)
        return self._selected(self._values(), place)

    def _found(self, key: Any) -> Traced:
        """Where a key was stored last, or KeyError; in a side, where Python would run it."""
        node, log = self._node(key), self.log
        if not log:
            raise KeyError(key)
        place = self._traced(self._place(node)).step("sub", 1)
        for fork in self._recorder.forks:
            place = fork.where_taken(place)
        if place.value < 0:
            raise KeyError(key)
        table = table_of(self._recorder, range(len(log)))  # no place: another path
        return self._traced(self._recorder.integers.step("read", table, place.node))

    def _selected(self, items: list[Any], place: Traced) -> Any:
        return self._recorder.selector.selected(items, items, place)

    def get(self, key: Any, default: Any = None, /) -> Any:
        """``d.get(key, default)``."""
        node, values = self._node(key), self._values()
        if self.of_lists:
            return self.refuse()
        if not values:
            return default
        place = self._traced(self._place(node))
        if are_alike([default, *values]):
            return self._selected([default, *values], place)
        there = place.step("gt", 0)
        if are_alike(values):
            some = place.step("max", 1).step("sub", 1)
            try:
                return one_of(there, self._selected(values, some), default)
            except CannotMerge:
                pass
        return self._stored(key) if there else default

    def setdefault(self, key: Any, default: Any = None, /) -> Any:
        """``d.setdefault(key, default)``; of a list, a new and empty one."""
        if type(default) is list and not default:
            # Code in C may call this while the frame makes another list.
            if sys.getrefcount(default) > REFERENCES or not is_passed(default, sys._getframe(1)):
                return self.refuse()
            return self._list(key, True)
        value = self.get(key, default)
        self.put(key, value)
        return value

    def _list(self, key: Any, makes: bool) -> KeyedList:
        """The list under a key; ``makes``: there need not have been one."""
        self._is(True)
        node = self._node(key, makes)
        if makes:
            self._write(self.log.with_item(Entry(key, node, _NOTHING)))
        else:
            self._found(key)
        return KeyedList(self, key, node)

    def append(self, key: Any, node: int, item: Any) -> None:
        """Append to the list under a key, which is there."""
        if _holds_keyed(item):
            self.refuse()
        entry = Entry(key, node, item)
        tip = self.log.entries[-1] if self.log else None
        if tip is not None and tip.value is _NOTHING and (tip.node, tip.counts) == (node, None):
            # Whether the key is new is the same for the item.
            self._write(Log((*self.log.entries[:-1], entry)))
        else:
            self._write(self.log.with_item(entry))

    def _at(self, key: Any) -> Any:
        """What goes with one of the keys."""
        if self.of_lists:
            return KeyedList(self, key, self._node(key))
        node = self._node(key)
        place = self._traced(self._place(node)).step("sub", 1)
        return self._selected(self._values(), place)

    def _taken(self) -> tuple[list[Any], Callable[[Any], Any]]:
        return self.in_order(), _itself

    def keys(self) -> View:
        """``d.keys()``."""
        return View(self, type({}.keys()), _itself)

    def values(self) -> View:
        """``d.values()``."""
        return View(self, type({}.values()), self._at)

    def most_common(self, n: Any = None, /) -> list[Any]:
        """``counter.most_common(n)``: keys that are counted as often, in the order they came."""
        if self.kind is not Counter or self.of_lists:
            self.refuse()
        pairs = [(key, self._at(key)) for key in self.in_order()]
        if n is None:
            return in_order(pairs, key=_second, reverse=True)
        found: list[Any] = _LARGEST(n, pairs, key=_second)
        return found

    def items(self) -> View:
        """``d.items()``."""
        return View(self, type({}.items()), lambda key: (key, self._at(key)))


class KeyedSet(_Container):
    """A set to which integers are added."""

    _public = frozenset(("add",))

    def add(self, key: Any, /) -> None:
        """``s.add(key)``."""
        if self.kind is not set:
            self.refuse()
        self.put(key)

    def put(self, key: Any) -> None:
        """Put one more key there."""
        self._write(self.log.with_entry(Entry(key, self._node(key, True), None)))

    def _taken(self) -> tuple[list[Any], Callable[[Any], Any]]:
        return self._members(), _itself

    def _members(self) -> list[Any]:
        """The members in the order of their hashes: a guard says how many."""
        integers, entries, count = self._recorder.integers, self.log.entries, len(self)
        nodes = [entry.node for entry in entries]
        plain = self._sort is int and all(entry.counts is None for entry in entries)
        if not entries or not plain:
            return [] if not entries else list(self.refuse())
        order = integers.step("hashed", *nodes)
        if order < 0:  # the same in every call
            return list(integers.value(order))
        places = [integers.constant(k) for k in range(count)]
        return [self._traced(integers.step("item", order, place)) for place in places]


class KeyedList(Keyed):
    """A list of a dict: what was appended under one key."""

    _public = frozenset(("append",))

    def __init__(self, owner: KeyedDict, key: Any, node: int) -> None:
        self._recorder, self._site = owner._recorder, owner._site
        self._owner, self._key, self._node = owner, key, node
        self._emptied = owner.emptied

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return list

    def append(self, item: Any, /) -> None:
        """``xs.append(item)``."""
        self._check()
        self._owner.append(self._key, self._node, item)

    def _check(self) -> None:
        if self._emptied != self._owner.emptied:
            self.refuse()  # another list may be there by now

    def _truths(self) -> tuple[list[Any], list[int]]:
        """What was appended under any key, and whether it was under this one."""
        self._check()
        integers, entries = self._recorder.integers, self._owner.log.entries
        truths = self._owner.log.having(integers, self._node)
        emptied = [k for k, entry in enumerate(entries) if entry.value is _EMPTY]
        if emptied:  # what counts was appended after the last time
            zero = integers.constant(False)
            begun = last(integers, [t if k in emptied else zero for k, t in enumerate(truths)])
            for k, truth in enumerate(truths):
                after = integers.step("ge", integers.constant(k), begun)
                truths[k] = integers.step("and_", truth, after)
        markers = (_NOTHING, _EMPTY)
        some = [k for k, e in enumerate(entries) if not any(e.value is x for x in markers)]
        return [entries[k].value for k in some], [truths[k] for k in some]

    def size(self) -> Traced:  # noqa: D102
        integers = self._recorder.integers
        return Traced(self._recorder, total(integers, [*self._truths()[1], integers.constant(0)]))

    def _items(self) -> list[Any]:
        """The items: a guard says how many."""
        (items, truths), count = self._truths(), len(self)
        at = [Traced(self._recorder, k) for k in places(self._recorder.integers, truths, count)]
        return [self._recorder.selector.selected(items, items, place) for place in at]

    def _taken(self) -> tuple[list[Any], Callable[[Any], Any]]:
        return self._items(), _itself

    def _state(self) -> Log:
        return self._owner.log

    def _goes_on(self, count: int) -> bool:
        return False  # a list shows what is appended meanwhile

    def item(self, place: Any) -> Any:
        """``xs[place]``."""
        if type(place) is not int and type(place) is not slice:
            self.refuse()
        return self._items()[place]


class View(Keyed):
    """``d.items()`` and its like."""

    def __init__(self, owner: KeyedDict, kind: type, shown: Callable[[Any], Any]) -> None:
        self._recorder, self._site = owner._recorder, owner._site
        self._owner, self._kind, self._shown = owner, kind, shown

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self._kind

    def size(self) -> Traced:  # noqa: D102
        return self._owner.size()

    def _taken(self) -> tuple[list[Any], Callable[[Any], Any]]:
        return self._owner.in_order(), self._shown

    def _state(self) -> Log:
        return self._owner.log


class Going:
    """What goes through a stand-in: what there was at first, as long as Python would."""

    __slots__ = ("_count", "_log", "_over", "_rest", "_shown")

    def __init__(self, over: Keyed, items: list[Any], shown: Callable[[Any], Any]) -> None:
        self._over, self._shown, self._log = over, shown, over._state()
        self._rest, self._count = iter(items), len(items)

    def __iter__(self) -> Going:
        return self

    def __next__(self) -> Any:
        log = self._over._state()
        if log is not self._log:
            if not self._over._goes_on(self._count):
                self._over.refuse()
            self._log = log
        return self._shown(next(self._rest))


def _itself(key: Any) -> Any:
    return key


abc.Mapping.register(KeyedDict)
abc.Sequence.register(KeyedList)
