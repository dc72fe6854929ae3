"""Where a recorded function makes and fills its own containers: true ones, or what stands for them.

In: ``{}``, ``set(items)``, ``Counter(items)`` and their like, and stores into them. Out: stand-ins
(``keyed``) where traced integers are keys; a true container wherever one was refused before.
"""

from __future__ import annotations

import types
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from typing import Any

from chainrule.compiler.capture.keyed import FACTORIES, KeyedDict, KeyedSet, is_keyed
from chainrule.compiler.capture.newness import is_stored
from chainrule.compiler.capture.standins import plain
from chainrule.compiler.capture.traced import Traced
from chainrule.core import errors
from chainrule.core.backend import modes


def _site(kind: type) -> str | None:
    """Where a container is made; None where it is to be a true one."""
    recorder = modes.recorder
    if recorder is None or recorder.true_sites is None or not recorder.selector.enabled:
        return None
    site = f"{kind.__name__} at {errors.caller()}"
    return None if site in recorder.true_sites else site


def make_dict() -> Any:
    """``{}``."""
    site, recorder = _site(dict), modes.recorder
    return {} if site is None or recorder is None else KeyedDict(recorder, site)


def _set_maker(kind: Any) -> Callable[..., Any]:
    def make(*given: Any) -> Any:
        """``set()`` and ``set(items)``."""
        site, recorder = _site(kind), modes.recorder
        if site is None or recorder is None or len(given) > 1:
            return kind(*given)
        if given and isinstance(given[0], (set, frozenset, dict)):  # their order decides its own
            return kind(given[0])
        items = list(given[0]) if given else []
        if (given or kind is frozenset) and not _any_traced(items):
            return kind(items)
        made = KeyedSet(recorder, site, kind)
        for item in items:
            made.put(item)
        return made

    return make


make_set, make_frozenset = _set_maker(set), _set_maker(frozenset)


def make_deque(*given: Any, **named: Any) -> Any:
    """``deque(items, maxlen=n)``: C code wants a true integer, so that how many fit is static."""
    named = {name: plain(x) for name, x in named.items()}
    return deque(*given[:1], *map(plain, given[1:]), **named)


class Keys:
    """``dict``, of which ``fromkeys`` is asked."""

    @staticmethod
    def fromkeys(*given: Any) -> Any:
        """``dict.fromkeys(items, value)``."""
        site, recorder = _site(dict), modes.recorder
        if site is None or recorder is None or not 1 <= len(given) <= 2:
            return dict.fromkeys(*given)
        if isinstance(given[0], (set, frozenset, dict)):
            return dict.fromkeys(*given)
        items, value = list(given[0]), given[1] if len(given) > 1 else None
        if not _any_traced(items):
            return dict.fromkeys(items, value)
        made = KeyedDict(recorder, site)
        for item in items:
            made.put(item, value)
        return made


def make_counter(*given: Any, **named: Any) -> Any:
    """``Counter()`` and ``Counter(items)``."""
    site, recorder = _site(Counter), modes.recorder
    if site is None or recorder is None or named or len(given) > 1:
        return Counter(*given, **named)
    if given and isinstance(given[0], dict):
        return Counter(given[0])
    items = list(given[0]) if given else []
    if given and not _any_traced(items):
        return Counter(items)
    made = KeyedDict(recorder, site, Counter)
    for item in items:
        made.tally(item)
    return made


def make_defaultdict(*given: Any, **named: Any) -> Any:
    """``defaultdict(int)``, ``defaultdict(float)`` and ``defaultdict(list)``."""
    site, recorder = _site(defaultdict), modes.recorder
    known = len(given) == 1 and not named and (given[0] is list or given[0] in FACTORIES)
    if site is None or recorder is None or not known:
        return defaultdict(*given, **named)
    return KeyedDict(recorder, site, defaultdict, given[0])


def put_pair(pair: tuple[Any, Any], mapping: Any) -> None:
    """``{key: value for ...}``."""
    if is_keyed(mapping):
        mapping.put(*pair)
    else:
        mapping[pair[0]] = pair[1]


def put_item(item: Any, into: Any) -> None:
    """``{item for ...}``."""
    into.add(item)


def _any_traced(items: Iterable[Any]) -> bool:
    return any(
        type(x) is Traced or (type(x) is tuple and any(type(part) is Traced for part in x))
        for x in items
    )


def store(value: Any, mapping: Any, key: Any, frame: types.FrameType) -> None:
    """``mapping[key] = value``, which is what a frame does right now."""
    if type(mapping) is not KeyedDict:
        mapping.refuse()
    if type(value) is list and is_stored(value, frame):
        mapping.put_list(key, value)
    else:
        mapping.put(key, value)
