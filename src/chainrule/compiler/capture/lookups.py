"""Where a traced integer is among keys: ``d[t]``, ``d.get(t, x)``, ``t in d``, ``t in [2, 3]``;
and how many of some are equal to one: ``ts.count(t)``, ``np.bincount(ts, minlength=8)``.

In: integers that are the same at every call, in the order of their container, and a traced one.
Out: steps of the integer program: the place of the one among the others, or their number where it
is not there. A dict is so a list of its values, and a membership a comparison of the place. Keys
that are no integers, and a missing key, are left to Python, which hashes: the integer is static.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.arrays import DataArray, data_array, items_of
from chainrule.compiler.capture.enums import integer_of, is_like_int
from chainrule.compiler.capture.standins import Detached, StandIn
from chainrule.compiler.capture.texts import TracedText
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.words import Words, word_in, word_item
from chainrule.core.backend import Value, modes

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

#: whose items are found by nothing but the hash of a key and its equality
MAPPINGS = frozenset((dict, OrderedDict, defaultdict, Counter))
_BY_HASH = MAPPINGS | {set, frozenset}
_IN_ORDER = frozenset((list, tuple))
_PLAIN = frozenset((int, bool))
_ALIKE = {float}, {Value}, {Detached}  # kinds of numbers of which any may be selected
_VALUES = frozenset(
    (int, bool, str, type(None), Traced, TracedText)
)  # the same wherever they are equal
_MOST = 256  # items of a list, some of them traced, with which one is compared
_MOST_COUNTED = 8192  # comparisons by which a table of counts is made
_KEYS = frozenset((int, bool, np.int64))  # kinds of traced integers that are equal as Python's are


def table_of(recorder: Recorder, keys: Iterable[int]) -> int:
    """The constant that says where each key is; of equal ones, where the first is."""
    keys = tuple(keys)
    tables = recorder.selector.tables
    known = dict, keys
    if known not in tables:
        places: dict[int, int] = {}
        for key in keys:
            places.setdefault(int(key), len(places))
        tables[known] = places
    return recorder.integers.constant(tables[known])


def place_among(recorder: Recorder, keys: Iterable[int], key: int) -> int:
    """The node of the place of ``key``, a node, among distinct keys; their number if nowhere."""
    return recorder.integers.step("find", table_of(recorder, keys), key)


def item(mapping: Any, key: Traced) -> Any:
    """``mapping[key]``: a dict with integers for keys is a list behind a table."""
    recorder = key._recorder
    if not is_table(mapping, key):
        return mapping[key]  # hashed: static
    if recorder.forks:  # where Python would not run the side, there need not be such a key
        place = Traced(recorder, place_among(recorder, mapping, key.node))
        for fork in recorder.forks:
            place = fork.where_taken(place)
        if place.value == len(mapping):
            return mapping[key]
    elif key.value not in mapping:
        return mapping[key]
    else:
        table = table_of(recorder, mapping)
        place = Traced(recorder, recorder.integers.step("read", table, key.node))
    return recorder.selector.selected(mapping, list(mapping.values()), place)


def is_table(mapping: Any, key: Traced) -> bool:
    """Whether a dict is looked up by the integer that a key is, and by nothing else of it."""
    return bool(mapping) and key.__class__ in _KEYS and _are_plain(mapping)


def _are_plain(items: Iterable[Any]) -> bool:
    """Whether these are integers that are the same at every call, and equal what they say."""
    return all(kind in _PLAIN or is_like_int(kind) for kind in {*map(type, items)})


class Looked:
    """A dict of which ``get`` is asked."""

    def __init__(self, mapping: Any) -> None:
        self.mapping = mapping

    def get(self, key: Any, default: Any = None, /) -> Any:
        """``mapping.get(key, default)``."""
        mapping = self.mapping
        words = Words.among(mapping, key) if type(key) in (TracedText, tuple) else None
        if words is not None:
            return self._of_word(words, key, default)
        if type(key) is not Traced or not is_table(mapping, key) or not _selects(key):
            return mapping.get(key, default)
        recorder = key._recorder
        items = [*mapping.values(), default]
        if are_alike(items):
            place = place_among(recorder, mapping, key.node)
            return recorder.selector.selected(items, items, Traced(recorder, place))
        return item(mapping, key) if contains(key, mapping) else default

    def _of_word(self, words: Words, key: Any, default: Any) -> Any:
        items = [*[self.mapping[word] for word in words.keys], default]
        if not words.keys:
            return default
        if are_alike(items):
            return words.recorder.selector.selected(items, items, words.place("find"))
        return word_item(self.mapping, key) if word_in(key, self.mapping) else default


def are_alike(items: Sequence[Any]) -> bool:
    """Whether any of these may be selected."""
    kinds = {*map(type, items)}
    return kinds <= {int, Traced} or kinds in _ALIKE or _are_rows(items)


def _are_rows(items: Sequence[Any]) -> bool:
    """Whether these are lists, or tuples, of one length."""
    return len({(type(x), len(x)) if type(x) in _IN_ORDER else id(x) for x in items}) == 1


def _selects(key: Traced) -> bool:
    return key._recorder.selector.enabled


def contains(x: Any, container: Any) -> Any:
    """``x in container``: a traced truth where integers decide it, else Python's."""
    recorder, kind = modes.recorder, type(container)
    if recorder is not None and recorder.both and _asks_which(x, container):
        recorder.selector.ask()
    if recorder is not None and (type(x) is TracedText or kind is TracedText):
        return word_in(x, container)
    if recorder is None or not recorder.selector.enabled:
        return x in container
    if type(x) is tuple and any(type(part) in (TracedText, Traced) for part in x):
        return word_in(x, container) if kind in _BY_HASH else x in container
    if type(x) is Traced and x.__class__ in _KEYS:
        if (kind in _BY_HASH or kind in _IN_ORDER) and _are_plain(container):
            if not container:
                return False
            keys = [*dict.fromkeys(map(int, container))]
            place = Traced(recorder, place_among(recorder, keys, x.node))
            return place.step("lt", len(keys))
    elif not _are_plain((x,)) or not any(type(item) is Traced for item in _first(container)):
        return x in container
    if kind in _IN_ORDER and 0 < len(container) <= _MOST and _are_integers(container):
        return among(recorder, x, container).step("gt", 0)
    return x in container


def _asks_which(x: Any, container: Any) -> bool:
    """Whether it may matter which object it is, and not only which others it equals."""
    if type(x) in _VALUES or (type(x) is tuple and _VALUES.issuperset(map(type, x))):
        return False
    plain = type(container) in _BY_HASH or type(container) in _IN_ORDER
    plain = plain and all(type(item) in _VALUES or type(item) is float for item in container)
    return not plain or not (type(x) is float or isinstance(x, StandIn))


def _first(container: Any) -> Any:
    """Items of a list; of anything else none."""
    return container[:_MOST] if type(container) in _IN_ORDER else ()


def _are_integers(items: Sequence[Any]) -> bool:
    """Whether these are integers, traced or not, that are compared as Python's are."""
    traced = [x for x in items if type(x) is Traced]
    others = [x for x in items if type(x) is not Traced]
    return all(x.__class__ in _KEYS for x in traced) and _are_plain(others)


def among(recorder: Recorder, x: Any, items: Iterable[Any]) -> Traced:
    """How many of some integers are equal to one."""
    integers = recorder.integers
    nodes = [i.node if type(i) is Traced else integers.constant(integer_of(i)) for i in (x, *items)]
    return Traced(recorder, integers.step("count", *nodes))


class Counted:
    """A list or tuple of which ``count`` is asked."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def count(self, x: Any, /) -> Any:
        """``items.count(x)``."""
        recorder, items = modes.recorder, self._items
        if recorder is None or not recorder.selector.enabled or not 0 < len(items) <= _MOST:
            return items.count(x)
        if not any(type(item) is Traced for item in (x, *items)) or not _are_integers((x, *items)):
            return items.count(x)
        return among(recorder, x, items)


def counts_of(x: Any, weights: Any = None, minlength: Any = 0) -> Any:
    """``np.bincount``, where guards say that its length is ``minlength``; None: it is static."""
    recorder, items = modes.recorder, []
    if type(x) is DataArray and x.ndim == 1 and x.dtype == np.int64:
        items = items_of(x)
    elif type(x) is list:
        items = x
    if recorder is None or not recorder.selector.enabled or weights is not None:
        return None
    if type(minlength) is not int or not 0 < len(items) * minlength <= _MOST_COUNTED:
        return None
    if any(type(i) is not Traced or i.__class__ not in (int, np.int64) for i in items):
        return None
    if not all(0 <= i.value < minlength for i in items):
        return None
    integers, nodes = recorder.integers, [i.node for i in items]
    several = nodes if len(nodes) > 1 else 2 * nodes
    least, most = (Traced(recorder, integers.step(name, *several)) for name in ("min", "max"))
    assert bool(least.step("ge", 0))
    assert bool(most.step("lt", minlength))
    found = [among(recorder, k, items).as_kind(np.int64) for k in range(minlength)]
    return data_array(found, (minlength,), np.dtype(np.int64))
