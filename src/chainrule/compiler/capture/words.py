"""Where a traced text is among words: ``stoi[c]``, ``d.get(c)``, ``c in "aeiou"``, ``xs.index(c)``;
and a tuple of such texts and of integers among tuples: ``T[state, c]``.

In: words that are the same at every call, and a traced text, or a tuple of such. Out: steps of the
integer program that give its place among those of its length. These are the leaves of a tree down
which each character leads: a table for each, from the way so far to the way from there. An integer
counts as one character: which of those there it is. What is beside the words never equals a text;
where that is not known, Python looks: the text is static.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.enums import is_like_int
from chainrule.compiler.capture.standins import plain
from chainrule.compiler.capture.texts import TracedText
from chainrule.compiler.capture.traced import Traced

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

_BITS = 21  # of a code point
_MOST = 100_000  # characters of all words
_KEYS = frozenset((str, int, float, bool, type(None), tuple))  # whose ``==`` is Python's own
_TEXTS = frozenset((str, TracedText))
_INTEGERS = frozenset((int, bool, np.int64))  # which are equal as Python's are
_BY_HASH = frozenset((dict, OrderedDict, defaultdict, Counter, set, frozenset))
_METHODS = frozenset(name for name in dir(str) if not name.startswith("_"))
_INTEGER = -1  # in place of a length

_Codes = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class _Tree:
    """The keys of one shape, and how they are found.

    Of each character: which of those that are there it is, if it is an integer, and where it leads.
    """

    keys: list[Any]
    places: dict[_Codes, int]
    levels: list[tuple[dict[int, int] | None, dict[int, int]]]

    @classmethod
    def of(cls, keys: Iterable[Any], is_tuple: bool, shape: _Codes) -> _Tree | None:
        """Those of some keys that have this shape; None: they are too many."""
        found = [k for k in keys if (type(k) is tuple) is is_tuple and _shape_of(k) == shape]
        integral = [size == _INTEGER for size in shape for _ in range(abs(size))]
        if len(integral) * len(found) > _MOST:
            return None
        words = list(map(_codes, found))
        levels: list[tuple[dict[int, int] | None, dict[int, int]]] = []
        ways: dict[_Codes, int] = {(): 0}
        for k, is_integer in enumerate(integral):
            # To the first one there is only one way.
            among: dict[int, int] | None = {} if is_integer and k else None
            further: dict[_Codes, int] = {}
            table: dict[int, int] = {}
            for word in words:
                code = word[k] if among is None else among.setdefault(word[k], len(among))
                way = ways[word[:k]] << _BITS | code if k else code
                table[way] = further.setdefault(word[: k + 1], len(further))
            levels.append((among, table))
            ways = further
        return cls(found, ways, levels)


class Words:
    """The words among some keys that a traced text may be, and how it is looked up."""

    def __init__(self, recorder: Recorder, tree: _Tree, nodes: list[int]) -> None:
        self.recorder, self.keys = recorder, tree.keys
        self._tree, self._nodes = tree, nodes

    @classmethod
    def among(cls, keys: Iterable[Any], text: Any) -> Words | None:
        """Those of a text, or of a tuple of texts and integers; None: it is not known what may
        equal it."""
        parts, keys = text if type(text) is tuple else (text,), tuple(keys)
        first = next((x for x in parts if type(x) in (TracedText, Traced)), None)
        shape = _shape_of(text)
        if first is None or shape is None or not first._recorder.selector.enabled:
            return None
        inside = {type(part) for key in keys if type(key) is tuple for part in key}
        kinds = {*map(type, keys), *inside}
        if not all(kind in _KEYS or is_like_int(kind) for kind in kinds):
            return None
        if float in inside and _INTEGER in shape:
            return None  # which may equal an integer
        recorder = first._recorder
        nodes = [node for x in parts for node in _nodes_of(recorder, x)]
        tables, known = recorder.selector.tables, (Words, type(text) is tuple, shape, keys)
        if known not in tables:
            tables[known] = _Tree.of(keys, type(text) is tuple, shape)
        tree = tables[known]
        return cls(recorder, tree, nodes) if nodes and tree is not None else None

    def place(self, name: str) -> Traced:
        """Which of them it is; where it is none, ``find`` gives their number; ``read`` raises."""
        integers, place = self.recorder.integers, None
        for (among, table), node in zip(self._tree.levels, self._nodes, strict=True):
            if among is not None:
                node = integers.step(name, integers.constant(among), node)
            if place is not None:
                shifted = integers.step("lshift", place, integers.constant(_BITS))
                node = integers.step("add", shifted, node)
            place = integers.step(name, integers.constant(table), node)
        assert place is not None
        return Traced(self.recorder, place)

    @property
    def has_it(self) -> bool:
        """Whether it is one of them in this recording."""
        codes = tuple(map(self.recorder.integers.value, self._nodes))
        return codes in self._tree.places


def _shape_of(key: Any) -> _Codes | None:
    """The lengths of the texts of a key, which is one or a tuple; None: there is more in it."""
    if type(key) is not tuple:
        return (len(key),) if type(key) in _TEXTS else None
    found: list[int] = []
    for x in key:
        if type(x) not in _TEXTS and not _is_integer(x):
            return None
        found.append(len(x) if type(x) in _TEXTS else _INTEGER)
    return tuple(found)


def _is_integer(x: Any) -> bool:
    kind = type(x)
    if kind is Traced:
        return x.__class__ in _INTEGERS
    return kind is int or kind is bool or is_like_int(kind)


def _codes(key: Any) -> _Codes:
    """A key as integers: the characters of its texts, and its integers."""
    found: list[int] = []
    for x in key if type(key) is tuple else (key,):
        found += map(ord, x) if type(x) is str else [int(x)]
    return tuple(found)


def _nodes_of(recorder: Recorder, x: Any) -> list[int]:
    if type(x) is TracedText:
        return list(x.nodes)
    if type(x) is Traced:
        return [x.node]
    return [recorder.integers.constant(code) for code in _codes(x)]


def word_item(mapping: Any, key: Any) -> Any:
    """``mapping[key]``: a dict with words for keys is a list behind tables."""
    words = Words.among(mapping, key)
    if words is None or not words.keys:
        return mapping[_settled(key)]
    recorder = words.recorder
    if recorder.forks:  # where Python would not run the side, there need not be such a key
        place = words.place("find")
        for fork in recorder.forks:
            place = fork.where_taken(place)
        if place.value == len(words.keys):
            return mapping[_settled(key)]
    elif not words.has_it:
        return mapping[_settled(key)]
    else:
        place = words.place("read")
    items = [mapping[word] for word in words.keys]
    return recorder.selector.selected(mapping, items, place)


def word_in(x: Any, container: Any) -> Any:
    """``x in container``, where one of them is a traced text, or x a tuple of such."""
    kind = type(container)
    if kind is TracedText:
        return container.has(x)
    words = None
    if kind in _BY_HASH:
        words = Words.among(container, x)
    elif type(x) is TracedText:
        found = _first_places(container, x)
        words = None if found is None else Words.among(found, x)
    if words is None:
        return (plain(x) if kind is str else x) in container
    if not words.keys:
        return False
    return words.place("find").step("lt", len(words.keys))


def _first_places(items: Any, x: TracedText) -> dict[str, int] | None:
    """Where each word is first in a list, tuple or string; None where that is not all to know."""
    if type(items) not in (list, tuple) and not (type(items) is str and len(x) == 1):
        return None
    if not _KEYS.issuperset(map(type, items)):
        return None
    first: dict[str, int] = {}
    for k, item in enumerate(items):
        if type(item) is str:
            first.setdefault(item, k)
    return first


class Methods:
    """A string whose methods are called while texts are traced: they want true strings."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._text, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            if name in ("index", "find") and len(arguments) == 1 and not keywords:
                found = _position(self._text, arguments[0], -1 if name == "find" else None)
                if found is not None:
                    return found
            named = {key: _settled(x) for key, x in keywords.items()}
            return method(*[_settled(x, name == "join") for x in arguments], **named)

        return call


class Positions:
    """A list or tuple of which ``index`` is asked while texts are traced."""

    def __init__(self, items: Any) -> None:
        self._items = items

    def index(self, x: Any, *ends: Any) -> Any:
        """``items.index(x)``."""
        found = None if ends else _position(self._items, x, None)
        return self._items.index(x, *ends) if found is None else found


def _position(items: Any, x: Any, missing: int | None) -> Traced | None:
    """Where a text is first; None where Python is to look."""
    first = _first_places(items, x) if type(x) is TracedText else None
    words = None if first is None else Words.among(first, x)
    if first is None or words is None or not words.keys:
        return None
    if missing is None and not words.has_it:
        return None
    positions = [first[word] for word in words.keys]
    place = words.place("read" if missing is None else "find")
    table = tuple(positions if missing is None else [*positions, missing])
    integers = words.recorder.integers
    return Traced(words.recorder, integers.step("read", integers.constant(table), place.node))


def _settled(x: Any, each: bool = False) -> Any:
    """An argument of C code with true strings, which are static; ``each``: those in it too."""
    if type(x) is TracedText:
        return x.static()
    if type(x) is tuple:
        return tuple(map(_settled, x))
    return [_settled(item) for item in x] if each and type(x) is not str else x


def seen(x: Any, name: str) -> Any:
    """What to look up an attribute of, in place of a string or list, while texts are traced."""
    if type(x) is TracedText:
        if not hasattr(str, name):  # as what the stand-in itself has
            return ""
        return Methods(x.static()) if name in _METHODS else x
    if type(x) is str:
        return Methods(x) if name in _METHODS else x
    return Positions(x) if name == "index" and type(x) in (list, tuple) else x
