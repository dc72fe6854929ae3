"""Where a traced text is among words: ``stoi[c]``, ``d.get(c)``, ``c in "aeiou"``, ``xs.index(c)``.

In: words that are the same at every call, and a traced text, or a tuple of such. Out: steps of the
integer program that give its place among those of its length. These are the leaves of a tree down
which each character leads: a table for each, from the way so far to the way from there. What is
beside the words never equals a text; where that is not known, Python looks: the text is static.
"""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from chainrule.compiler.capture.standins import plain
from chainrule.compiler.capture.texts import TracedText
from chainrule.compiler.capture.traced import Traced

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

_BITS = 21  # of a code point
_MOST = 100_000  # characters of all words
_KEYS = frozenset((str, int, float, bool, type(None), tuple))  # whose ``==`` is Python's own
_TEXTS = frozenset((str, TracedText))
_BY_HASH = frozenset((dict, OrderedDict, defaultdict, Counter, set, frozenset))
_METHODS = frozenset(name for name in dir(str) if not name.startswith("_"))


class Words:
    """The words among some keys that a traced text may be, and how it is looked up."""

    def __init__(self, recorder: Recorder, keys: list[Any], words: list[str], nodes: list[int]):
        self.recorder, self.keys = recorder, keys
        self._words, self._nodes = words, nodes

    @classmethod
    def among(cls, keys: Iterable[Any], text: Any) -> Words | None:
        """Those of a text, or of a tuple of texts; None: it is not known what may equal it."""
        texts, keys = text if type(text) is tuple else (text,), list(keys)
        first = next((x for x in texts if type(x) is TracedText), None)
        if first is None or not _TEXTS.issuperset(map(type, texts)):
            return None
        inside = itertools.chain(*[key for key in keys if type(key) is tuple])
        if not first._recorder.selector.enabled or not _KEYS.issuperset(
            map(type, [*keys, *inside])
        ):
            return None
        lengths = [len(x) for x in texts]
        found = [key for key in keys if _lengths(key, type(text) is tuple) == lengths]
        if sum(lengths) * len(found) > _MOST or not any(lengths):
            return None
        nodes = [node for x in texts for node in first.nodes_of(x) or ()]
        return cls(first._recorder, found, ["".join(key) for key in found], nodes)

    def place(self, name: str) -> Traced:
        """Which of them it is; where it is none, ``find`` gives their number; ``read`` raises."""
        integers = self.recorder.integers
        first, *others = zip(self._tables(), self._nodes, strict=True)
        place = integers.step(name, integers.constant(first[0]), first[1])
        for table, node in others:
            shift = integers.constant(_BITS)
            way = integers.step("add", integers.step("lshift", place, shift), node)
            place = integers.step(name, integers.constant(table), way)
        return Traced(self.recorder, place)

    @property
    def has_it(self) -> bool:
        """Whether it is one of them in this recording."""
        word = "".join([chr(self.recorder.integers.value(node)) for node in self._nodes])
        return word in self._words

    def _tables(self) -> list[dict[int, int]]:
        """For each character, where it leads; the last gives the place of a word."""
        tables = self.recorder.selector.tables
        known, words = (Words, *self._words), self._words
        if known not in tables:
            found: list[dict[int, int]] = []
            ways = {"": 0}
            for k in range(len(self._nodes)):
                further: dict[str, int] = {}
                for word in words:
                    further.setdefault(word[: k + 1], len(further))
                found.append({ways[w[:k]] << _BITS | ord(w[k]): further[w[: k + 1]] for w in words})
                ways = further
            tables[known] = found
        made: list[dict[int, int]] = tables[known]
        return made


def _lengths(key: Any, is_tuple: bool) -> list[int] | None:
    """The lengths of the texts of a key; None where it is not made of texts."""
    if (type(key) is tuple) is not is_tuple:
        return None
    texts = key if is_tuple else (key,)
    return [len(x) for x in texts] if all(type(x) is str for x in texts) else None


def word_item(mapping: Any, key: Any) -> Any:
    """``mapping[key]``: a dict with words for keys is a list behind tables."""
    words = Words.among(mapping, key)
    if words is None or not words.has_it:
        return mapping[_settled(key)]
    items = [mapping[word] for word in words.keys]
    return words.recorder.selector.selected(mapping, items, words.place("read"))


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
