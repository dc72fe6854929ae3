"""State that a function keeps outside: numbers it changes, and lists to whose ends it appends.

In: the places that a recorded run was seen to change. Out: an ``Outside``, which reads the numbers
before a call and writes what a replay says they are after it, and ``Kept``: the same function with
these numbers as further arguments and further results. While that runs, the calling thread's code
finds in an ``Overlay`` what it would find in the places, and nobody else sees what it does there.
"""

from __future__ import annotations

import collections
import dis
import functools
import os
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from chainrule.compiler.capture import disassembly
from chainrule.compiler.capture.captured import (
    ANY,
    MISSING,
    CapturedState,
    are_same,
    content_of,
    look_up,
    state_of,
)
from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.capture.rewriting import original
from chainrule.compiler.capture.standins import (
    Condition,
    Detached,
    StandIn,
    Unrecordable,
    is_numpys,
)
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import Value, modes

#: what a place may hold: numbers are read anew at every call, the others are static
CONTENTS = (int, float, bool, type(None))
_DICTS = (dict, collections.defaultdict, collections.Counter)
_TEXTS = (str, bytes)
LINK = object()
_STORES = ("STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR")


class Changes(Unrecordable):
    """The function changes captured state; ``places``: where, if numbers are all that it keeps."""

    def __init__(self, message: str, places: Sequence[Place] = ()) -> None:
        super().__init__(message)
        self.places = tuple(places)


@dataclass(frozen=True, eq=False)
class Place:
    """Where a number is kept outside: ``where[key]``, or what is in a closure's cell.

    ``holder``: the dict or the object with this ``__dict__`` that code reaches it by; None for a
    global name or a cell. Without a key it is the end of a list, which is the holder. A ``LINK`` is
    no place itself: its holder has another one in it.
    """

    name: str  # for messages
    where: Any
    key: Any = None
    holder: Any = None

    @property
    def identity(self) -> tuple[int, Any]:
        """Equal for the same place."""
        return id(self.where), self.key

    @property
    def is_cell(self) -> bool:
        """Whether there is a number."""
        return self.key is not LINK and not self.is_end

    @property
    def is_end(self) -> bool:
        """Whether it is the end of a list."""
        return type(self.where) is list

    @property
    def reader(self) -> Callable[[], Any]:
        """What gives what is there; MISSING for nothing."""
        if type(self.where) is types.CellType:
            return functools.partial(content_of, self.where)
        return functools.partial(dict.get, self.where, self.key, MISSING)

    @property
    def writer(self) -> Callable[[Any], None]:
        """What puts something there."""
        if type(self.where) is types.CellType:
            return functools.partial(setattr, self.where, "cell_contents")
        return functools.partial(dict.__setitem__, self.where, self.key)


class Outside:
    """The places that a function changes."""

    def __init__(self, places: Iterable[Place]) -> None:
        self.places = tuple({place.identity: place for place in places}.values())
        self.cells = tuple([p for p in self.places if p.is_cell])
        self.ends = tuple([p for p in self.places if p.is_end])
        self.held = {p.identity for p in self.cells}
        self.holders = {id(p.holder): p for p in self.places if p.holder is not None}
        self.namespaces = [p.where for p in self.cells if p.holder is None]
        self._readers = [p.reader for p in self.cells]
        self._writers = [p.writer for p in self.cells]
        self._lists = [p.where for p in self.ends]

    def __bool__(self) -> bool:
        return bool(self.places)

    def read(self) -> tuple[Any, ...]:
        """What is in all places but the ends of lists."""
        return tuple([read() for read in self._readers])

    def refusal(self, contents: Sequence[Any]) -> str | None:
        """Why a replay cannot start from what was read, or None."""
        for place, x in zip(self.cells, contents, strict=True):
            if type(x) not in CONTENTS:
                what = f"a {type(x).__name__}: keep a plain number there"
                return f"it changes {place.name!r}, which holds {what}"
        return None

    def commit(self, before: Sequence[Any], after: Sequence[Any]) -> bool:
        """Change the places as a call did that read ``before``; False where these have changed."""
        for read, x in zip(self._readers, before, strict=True):
            if read() is not x:
                return False
        cells = len(self._writers)
        for write, x in zip(self._writers, after[:cells], strict=True):
            write(_decoded(x))
        for items, added in zip(self._lists, after[cells:], strict=True):
            items.extend([_decoded(x) for x in added])
        return True


class Overlay:
    """What one run of a function finds, and leaves, in the places that it changes."""

    def __init__(self, outside: Outside, contents: Sequence[Any]) -> None:
        self._outside = outside
        #: by the identity of the place: numbers under global names and in cells
        self.contents: dict[tuple[int, Any], Any] = {}
        self.shadows: dict[int, Any] = {}  # by id of the holder
        for place in outside.places:
            if place.holder is not None and id(place.holder) not in self.shadows:
                self.shadows[id(place.holder)] = _shadow(place)
        for shadow in filter(_has_dict, self.shadows.values()):
            for key, x in [*_dict_of(shadow).items()]:
                dict.__setitem__(_dict_of(shadow), key, self.shadows.get(id(x), x))
        for place, x in zip(outside.cells, contents, strict=True):
            if place.holder is None:
                self.contents[place.identity] = x
            else:
                dict.__setitem__(self._dict_of(place), place.key, x)
        self._before = {k: dict(_dict_of(x)) for k, x in self.shadows.items() if _has_dict(x)}

    def _dict_of(self, place: Place) -> Any:
        return _dict_of(self.shadows[id(place.holder)])

    def after(self) -> list[Any]:
        """What is there now, and what was appended, as numbers that a recording can return."""
        self._check_shadows()
        found = []
        for place in self._outside.cells:
            if place.holder is None:
                now = self.contents[place.identity]
            else:
                now = dict.get(self._dict_of(place), place.key, MISSING)
            found.append(_encoded(now, place))
        for place in self._outside.ends:
            items = self.shadows[id(place.holder)].items
            found.append(tuple([_encoded(x, place, inside=True) for x in items]))
        return found

    def _check_shadows(self) -> None:
        """Refuse changes of a holder anywhere but in its places."""
        others: list[Place] = []
        for k, before in self._before.items():
            place, shadow = self._outside.holders[k], self.shadows[k]
            now = _dict_of(shadow)
            if type(shadow) is not type(place.holder) or list(now) != list(before):
                raise Unrecordable(
                    f"it changes what {_text_of(place)} has, not only its numbers{ADVICE}"
                )
            for key, x in before.items():
                if now[key] is not x and (id(place.where), key) not in self._outside.held:
                    others.append(Place(f"{key}", place.where, key, place.holder))
        if others:
            raise Changes(f"it changes {others[0].name!r}{ADVICE}", others)


ADVICE = "; return it, or keep it where the function is called"
MISSING_ADVICE = "; read it by get(key, default), which stores nothing"
RANDOM_ADVICE = (
    "; take the numbers of chainrule.random and pass a key, or pass a seed and make the generator "
    "of it inside"
)


class Kept:
    """A function that takes the numbers it keeps outside as last arguments, and returns them too.

    Of a result ``x`` it makes ``(x, numbers)``, of a pair ``(x, extras)`` ``(x, (extras,
    numbers))``; the numbers are a list. It changes nothing outside.
    """

    def __init__(self, function: Callable[..., Any], outside: Outside, visible: Any) -> None:
        """``visible``: what makes functions call the hooks below while a block runs."""
        functools.update_wrapper(self, function, updated=())
        self.function, self.outside, self._visible = function, outside, visible
        self.functions: list[types.FunctionType] = []  # all Python code that it may run

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """The function's result and the numbers that it leaves."""
        count = len(arguments) - len(self.outside.cells)
        overlay, before = Overlay(self.outside, arguments[count:]), active.overlay
        with self._visible(self.functions):
            active.overlay = overlay
            try:
                result = self.function(*arguments[:count], **keywords)
            finally:
                active.overlay = before
        after = overlay.after()
        if type(result) is tuple and len(result) == 2:
            return result[0], (result[1], after)
        return result, after


def parted(pair: Any) -> tuple[Any, list[Any]]:
    """What a function returned, and the numbers, of what ``Kept`` returned."""
    first, second = pair
    if type(second) is list:
        return first, second
    return (first, second[0]), second[1]


# --- what stands for containers -------------------------------------------------------------------


class Appended(StandIn):
    """The list to whose end a function appends, of which it may read nothing."""

    __slots__ = ("_name", "items")

    def __init__(self, name: str) -> None:
        self._name = name
        self.items: list[Any] = []

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return list

    def append(self, x: Any) -> None:
        """Add an item."""
        self.items.append(x)

    def plain(self, use: str = "") -> NoReturn:
        """Refuse to be anything else."""
        message = f"it uses {self._name!r}, to which it appends, in another way"
        if modes.recorder is not None:
            modes.recorder.forbid(message)
        raise Unrecordable(message)

    def __getattr__(self, name: str) -> Any:
        self.plain()


def _refused(self: Appended, *_: Any) -> NoReturn:
    self.plain()


for _name in (
    *("len", "iter", "getitem", "setitem", "delitem", "contains", "bool", "reversed", "hash"),
    *("add", "radd", "iadd", "mul", "rmul", "imul", "eq", "ne", "lt", "le", "gt", "ge"),
    *("repr", "str", "format", "reduce_ex", "copy", "deepcopy", "array"),
):
    setattr(Appended, f"__{_name}__", _refused)


def _shadow(place: Place) -> Any:
    """A copy of a dict or object for the function to change; of a list something to append to."""
    holder = place.holder
    if place.is_end:
        return Appended(place.name)
    if not isinstance(holder, dict):
        made = object.__new__(type(holder))
    elif type(holder) is collections.defaultdict:
        made = collections.defaultdict(holder.default_factory)
    else:
        made = dict.__new__(type(holder))
    dict.update(_dict_of(made), _dict_of(holder))
    return made


def _has_dict(shadow: Any) -> bool:
    return type(shadow) is not Appended


def _dict_of(holder: Any) -> Any:
    return holder if isinstance(holder, dict) else holder.__dict__


def _text_of(place: Place) -> str:
    return "a dict" if isinstance(place.holder, dict) else f"a {type(place.holder).__name__}"


def _may_be_copied(x: Any, key: str) -> bool:
    """Whether an attribute is in an object's ``__dict__`` and no code of the user's stands between.

    Its class is watched as all captured state is.
    """
    cls = type(x)
    plain = type(cls) is type and cls.__mro__[-1] is object
    plain = plain and all(c.__flags__ & (1 << 9) for c in cls.__mro__[:-1])  # Python's classes
    if not plain or any("__slots__" in vars(c) for c in cls.__mro__[:-1]):
        return False
    own = ("__getattribute__", "__setattr__", "__delattr__")
    if any(getattr(cls, name) is not getattr(object, name) for name in own):
        return False
    if any(hasattr(cls, name) for name in ("__getattr__", "__del__")):
        return False
    descriptor = next((vars(c)[key] for c in cls.__mro__ if key in vars(c)), None)
    return not hasattr(type(descriptor), "__set__")


# --- what a recording returns of them -------------------------------------------------------------


def _encoded(x: Any, place: Place, inside: bool = False) -> Any:
    """Something left in a place: a float as it is, an integer as a float in a list.

    ``inside`` a list: tuples of such, and texts, are allowed too.
    """
    kind = type(x)
    if kind is float or kind is bool or x is None:
        return x
    if kind is Detached and not is_numpys(x):
        return x
    if kind is Condition:
        return x.plain("what it keeps outside")
    if kind is Traced and not is_numpys(x):
        found: Any = x
        return [found.number()] if x.__class__ is int else found.plain()
    if kind is int and -EXACT <= x <= EXACT:
        return [float(x)]
    if inside and kind is tuple:
        return tuple([_encoded(item, place, inside) for item in x])
    if inside and kind in _TEXTS:
        return x
    what = "an integer beyond 2**53" if kind is int else f"a {x.__class__.__name__}"
    if x is MISSING:
        what = "nothing"
    advice = ": keep its .data" if isinstance(x, Value) else ADVICE
    where = "appends to" if place.is_end else "leaves in"
    raise Unrecordable(f"it {where} {place.name!r} {what}{advice}")


def _decoded(x: Any) -> Any:
    kind = type(x)
    if kind is list:
        return int(x[0])
    return tuple([_decoded(item) for item in x]) if kind is tuple else x


# --- which places a run changed -------------------------------------------------------------------


def changed_places(state: CapturedState) -> list[Place]:
    """Where a run changed numbers, or appended; empty where it changed anything else."""
    found: list[Place] = []
    for namespace, name, before in state.names:
        if type(namespace) is dict:
            now = namespace.get(name, MISSING)
            if now is not before and type(before) in CONTENTS and now is not MISSING:
                found.append(Place(name, namespace, name))
    for (cell, before), name in zip(state.cells, state.cell_names, strict=True):
        if content_of(cell) is not before and type(before) in CONTENTS:
            found.append(Place(name, cell))
    owners = {id(x): s for s, name, x in state.names if name in ("__dict__", "attributes")}
    for mapping, contents, owner in state.dicts:
        if owner is not None or not isinstance(mapping, dict):
            continue
        if list(mapping)[: len(contents)] != list(contents):
            continue
        holder = owners.get(id(mapping), mapping)
        for key, now in mapping.items():  # one that is new will be there after this call
            before = contents.get(key, MISSING)
            if before is MISSING and not _is_plain(now):
                continue
            if now is before or not (before is MISSING or type(before) in CONTENTS):
                continue
            if type(key) is str and is_holder(holder, mapping, key):
                found.append(Place(key, mapping, key, holder))
    for items, before_items in state.lists:
        count = len(before_items)
        same = all(a is b for a, b in zip(items, before_items, strict=False))
        if type(items) is list and len(items) > count and same:
            found.append(Place(_name_of(items, state), items, None, items))
    return [*found, *_links(state, found, owners)]


def _is_plain(x: Any) -> bool:
    """Whether something is a number, or stands for one."""
    return type(x) in CONTENTS or issubclass(type(x), StandIn)


def _name_of(items: list[Any], state: CapturedState) -> str:
    """Under which a list is found."""
    names = [name for s, name, x in state.names if x is items and type(s) is dict]
    cells = zip(state.cell_names, state.cells, strict=True)
    names += [name for name, (_, x) in cells if x is items]
    names += [str(key) for _, held, _ in state.dicts for key, x in held.items() if x is items]
    return names[0] if names else "a list"


def _links(state: CapturedState, places: list[Place], owners: dict[int, Any]) -> Iterator[Place]:
    """What has the holders of some places in it, and is not reached by its names alone."""
    holders = {id(p.holder) for p in places if p.holder is not None}
    named = {id(x) for s, _, x in state.names if type(s) is dict}
    inner = holders - named - {id(x) for _, x in state.cells}
    for mapping, contents, owner in state.dicts if inner else ():
        holder = owners.get(id(mapping), mapping)
        if owner is not None or id(holder) in holders:
            continue
        for key, x in contents.items():
            if id(x) in inner and type(key) is str and is_holder(holder, mapping, key):
                yield Place(key, mapping, LINK, holder)


def line_of_change(state: CapturedState, stores: dict[int, str]) -> str:
    """Where captured state was changed, to end a message with; ``stores``: lines, by container."""
    changed = [(name, 0) for s, name, x in state.names if look_up(s, name) is not x]
    names = zip(state.cell_names, state.cells, strict=True)
    changed += [(name, 0) for name, (cell, x) in names if content_of(cell) is not x]
    for mapping, contents, _ in state.dicts:
        others = [k for k, x in mapping.items() if not _is_one_of(contents.get(k, MISSING), x, ANY)]
        changed += [(key, id(mapping)) for key in others]
    for items, before in state.lists:
        if [*map(id, items)] != [*map(id, before)]:
            changed.append(("", id(items)))
    changed += [
        ("", id(members)) for members, before in state.sets if not are_same(members, before)
    ]
    changed += [("", id(array)) for array, _, held in state.arrays if array.tobytes() != held]
    for name, container in changed:
        found = stores.get(container) or next(_storing_lines(state.functions, name), None)
        if found is not None:
            return f" at {found}{ADVICE}"
    filled = [x for x, *_ in state.dicts if any(id(x) == container for _, container in changed)]
    filled = [x for x in filled if isinstance(x, collections.defaultdict)]  # by reading it
    line = _line_naming(state, lambda x: _is_one_of(x, *filled))
    if filled and line is not None:
        return f" at {line}{MISSING_ADVICE}"
    drawn = [g for g, _, before in state.generators if repr(state_of(g)) != before]
    return _line_of_draw(state, drawn[0]) if drawn else ""


def _line_of_draw(state: CapturedState, generator: Any) -> str:
    """Where numbers are drawn from a generator, as by a method of it, and what to do instead."""

    def draws(x: Any) -> bool:
        return x is generator or getattr(x, "__self__", None) is generator

    line = _line_naming(state, draws)
    return f"{'' if line is None else f' at {line}'}{RANDOM_ADVICE}"


def _line_naming(state: CapturedState, holds: Callable[[Any], bool]) -> str | None:
    """The first line of the user's that names what something is reached by; None if none does."""
    names = {name for _, name, x in state.names if holds(x)}
    cells = zip(state.cell_names, state.cells, strict=True)
    names |= {name for name, (_, x) in cells if holds(x)}
    names |= {key for _, held, _ in state.dicts for key, x in held.items() if holds(x)}
    codes = [original(f.__code__) for f in state.functions]
    own = [code for code in codes if not disassembly.is_of_library(code)]
    return disassembly.first_read(own, names)


def _is_one_of(x: Any, *others: Any) -> bool:
    return any(x is other for other in others)


def _storing_lines(functions: Iterable[types.FunctionType], name: Any) -> Iterator[str]:
    """The lines of code that store under a name."""
    stack = [original(f.__code__) for f in functions]
    while stack:
        code = stack.pop(0)
        for step in dis.get_instructions(code):
            line = step.positions.lineno if step.positions is not None else None
            if step.opname in _STORES and step.argval == name and line is not None:
                yield f"{os.path.basename(code.co_filename)}:{line}"
        stack += [c for c in code.co_consts if isinstance(c, types.CodeType)]


def is_holder(holder: Any, mapping: Any, key: str) -> bool:
    """Whether a copy of something serves a function as well, with another number under a key."""
    if holder is mapping:
        return type(holder) in _DICTS
    return getattr(holder, "__dict__", None) is mapping and _may_be_copied(holder, key)


# --- hooks of rewritten code ----------------------------------------------------------------------


class _Active(threading.local):
    """The overlay of each thread; None where its code runs for the user."""

    overlay: Overlay | None = None


active = _Active()


def loaded(x: Any, name: str) -> Any:
    """``x``, which code has found under a global name."""
    overlay = active.overlay
    if overlay is None:
        return x
    key = id(sys._getframe(1).f_globals), name
    return overlay.contents[key] if key in overlay.contents else overlay.shadows.get(id(x), x)


def stored(x: Any, name: str) -> None:
    """``name = x`` of a global name."""
    overlay, names = active.overlay, sys._getframe(1).f_globals
    if overlay is not None and (id(names), name) in overlay.contents:
        overlay.contents[id(names), name] = x
    else:
        names[name] = x


def loaded_from(x: Any, cell: Any) -> Any:
    """``x``, which code has found in a cell."""
    overlay = active.overlay
    if overlay is None:
        return x
    key = id(cell), None
    return overlay.contents[key] if key in overlay.contents else overlay.shadows.get(id(x), x)


def stored_in(x: Any, cell: Any) -> None:
    """``x`` goes into a cell."""
    overlay = active.overlay
    if overlay is not None and (id(cell), None) in overlay.contents:
        overlay.contents[id(cell), None] = x
    else:
        cell.cell_contents = x
