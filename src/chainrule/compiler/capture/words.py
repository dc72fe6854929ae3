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
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.enums import integer_of, is_like_int
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
_Level = tuple[dict[int, int] | None, dict[int, int]]


class Words:
    """The words among some keys that a traced text may be, and how it is looked up."""

    def __init__(
        self, recorder: Recorder, keys: list[Any], shape: list[int], nodes: list[int]
    ) -> None:
        self.recorder, self.keys = recorder, keys
        self._words = [_codes(key) for key in keys]
        self._shape, self._nodes = tuple(shape), nodes

    @classmethod
    def among(cls, keys: Iterable[Any], text: Any) -> Words | None:
        """Those of a text, or of a tuple of texts and integers; None: it is not known what may
        equal it."""
        is_tuple = type(text) is tuple
        parts, keys = text if is_tuple else (text,), list(keys)
        first = next((x for x in parts if type(x) in (TracedText, Traced)), None)
        shape = _shape_of(text, is_tuple)
        if first is None or shape is None or not first._recorder.selector.enabled:
            return None
        inside = [(k, part) for key in keys if type(key) is tuple for k, part in enumerate(key)]
        kinds = {*map(type, keys)} | {type(part) for _, part in inside}
        if not all(kind in _KEYS or is_like_int(kind) for kind in kinds):
            return None
        numbers = {k for k, part in inside if type(part) is float}  # which may equal an integer
        if any(size == _INTEGER and k in numbers for k, size in enumerate(shape)):
            return None
        found = [key for key in keys if _shape_of(key, is_tuple) == shape]
        recorder = first._recorder
        nodes = [node for x in parts for node in _nodes_of(recorder, x)]
        if not nodes or len(nodes) * len(found) > _MOST:
            return None
        return cls(recorder, found, shape, nodes)

    def place(self, name: str) -> Traced:
        """Which of them it is; where it is none, ``find`` gives their number; ``read`` raises."""
        integers, place = self.recorder.integers, None
        for (among, table), node in zip(self._levels(), self._nodes, strict=True):
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
        return tuple(map(self.recorder.integers.value, self._nodes)) in self._words

    def _levels(self) -> list[_Level]:
        """For each character, where it leads; the last gives the place of a word.

        An integer has a table before: which of those that are there it is. The first one needs
        none, for there is only one way to it.
        """
        tables = self.recorder.selector.tables
        known, words = (Words, self._shape, *self._words), self._words
        if known not in tables:
            found: list[_Level] = []
            ways: dict[_Codes, int] = {(): 0}
            integral = [x == _INTEGER for x in self._shape for _ in range(abs(x))]
            for k in range(len(self._nodes)):
                among: dict[int, int] | None = None
                if integral[k] and k:
                    among = {}
                    for word in words:
                        among.setdefault(word[k], len(among))
                further: dict[_Codes, int] = {}
                for word in words:
                    further.setdefault(word[: k + 1], len(further))
                codes = [word[k] if among is None else among[word[k]] for word in words]
                found.append(
                    (
                        among,
                        {
                            ways[w[:k]] << _BITS | code if k else code: further[w[: k + 1]]
                            for w, code in zip(words, codes, strict=True)
                        },
                    )
                )
                ways = further
            tables[known] = found
        made: list[_Level] = tables[known]
        return made


def _shape_of(key: Any, is_tuple: bool) -> list[int] | None:
    """The lengths of the texts of a key; None where it is made of more than texts and integers."""
    if (type(key) is tuple) is not is_tuple:
        return None
    found = []
    for x in key if is_tuple else (key,):
        kind = type(x)
        if kind in _TEXTS:
            found.append(len(x))
        elif is_tuple and _is_integer(x):
            found.append(_INTEGER)
        else:
            return None
    return found


def _is_integer(x: Any) -> bool:
    kind = x.__class__ if type(x) is Traced else type(x)
    return kind in _INTEGERS if type(x) is Traced else kind in (int, bool) or is_like_int(kind)


def _codes(key: Any) -> _Codes:
    """A key as integers: the characters of its texts, and its integers."""
    found: list[int] = []
    for x in key if type(key) is tuple else (key,):
        found += map(ord, x) if type(x) is str else [int(integer_of(x))]
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
