"""Which integers select something together.

A recording shows what one integer selects. In ``W[a][b]`` the row depends on ``a``, so what is read
depends on both integers at once, and having seen each of them apart is no proof; nor is it in
``kind[a] == kind[b]``, where plain numbers meet that no recording holds. In: every read by an
integer, as the frame that reads. Out: the sets of slots that must have been seen together.

It looks only at the bytecode before a read and at names, and runs nothing of the user's. The result
of a call that is read at once, ``row(a)[b]``, is not seen; one that has a name is.
"""

from __future__ import annotations

import dis
import functools
import inspect
import re
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from chainrule.core.backend import Value

Slots = frozenset[int]
Ways = frozenset[Slots]  # the integers that may have selected something: one of these sets did

_UNKNOWN: Any = object()
_BY_NONE: Ways = frozenset([frozenset()])
_LIMIT = 1000  # ways to one thing; beyond, all integers belong together
_SETS = 10_000  # of slots that belong together, likewise
_OBJECTS = 100_000  # inside what one integer selects, likewise
_ATOMS = frozenset((int, float, bool, complex, str, bytes, type(None)))
_ALL = 3  # so many integers that meet in plain numbers are all seen together, more of them in pairs


class StandIn:
    """Base of what a recorded function sees in place of plain numbers."""

    __slots__ = ()

    def behind(self) -> Any:
        """The Value it stands for, or itself."""
        return self


class Integer(StandIn):
    """Base of what stands for an integer argument."""

    __slots__ = ("number", "slot")

    number: int
    slot: int


class Reads:
    """What the integers of one recording read, and from where."""

    def __init__(self) -> None:
        self.identity = False  # the function asks, as by ``is``, which Value it got
        self._ways: set[Slots] = set()
        self._telling: set[Slots] = set()  # integers that gave something plain, which Python sees
        self._known: dict[int, tuple[Any, dict[int, tuple[Any, set[Slots]]]]] = {}
        self._overflow = False
        self.outer: dict[int, int] = {}  # lists that were there before the run, by id: a number
        self.contents: dict[int, Any] = {}  # of those that were read: the ids of their Values
        self.chains: dict[int, set[tuple[Any, ...]]] = {}  # by integer: the containers it read from
        #: Values that were selected, by id: by which integer, and from where
        self.sources: dict[int, set[tuple[int, tuple[Any, ...]]]] = {}

    def note(self, index: Integer, frame: types.FrameType) -> None:
        """An integer reads an item in this frame."""
        reader = _Reader(frame, self)
        container, chosen, ways = reader.read(index)
        source = tuple([self._origin(x) for x in reader.containers])
        self.chains.setdefault(index.slot, set()).add(source)
        self._trace_back(chosen, (index.slot, source))
        ways = self.both(ways, frozenset([frozenset([index.slot])]))
        self._ways |= ways
        plain = reader.jumps if container is _UNKNOWN else _layout(container) is None
        if plain:
            self._telling |= ways
        if chosen is not _UNKNOWN and type(chosen) not in _ATOMS:
            self._select(chosen, container, ways)

    def _origin(self, container: Any) -> Any:
        """Where a container comes from: a number if from outside, else ("made", ids of its Values).

        None instead of ids where it holds anything else.
        """
        if id(container) in self.outer:
            number = self.outer[id(container)]
            if number not in self.contents:
                self.contents[number] = _ids(container)
            return number
        return "made", _ids(container)

    def _trace_back(self, chosen: Any, source: tuple[int, tuple[Any, ...]]) -> None:
        """Note from where the Values of what was selected come."""
        stack = [chosen]
        while stack:
            x = stack.pop()
            if isinstance(x, Value):
                self.sources.setdefault(id(x), set()).add(source)
            elif type(x) in (list, tuple):
                stack.extend(x)

    def together(self, indexed: Iterable[int]) -> frozenset[Slots]:
        """The sets of slots that must have been seen together."""
        found = {ways for ways in self._ways if len(ways) > 1}
        telling = self._ways if self.identity else self._telling
        if len(found) + len(self._ways) * len(telling) > _SETS or self._overflow:
            return frozenset([frozenset(indexed)])
        met = frozenset().union(*telling)
        for ways in self._ways if met else ():
            others = [met] if len(met | ways) <= _ALL else telling
            found |= {ways | other for other in others}
        return frozenset([slots for slots in found if len(slots) > 1])

    def both(self, a: Ways, b: Ways) -> Ways:
        """The ways to something that depends on two things."""
        if b is _BY_NONE or a is _BY_NONE:
            return a if b is _BY_NONE else b
        found = frozenset([x | y for x in a for y in b])
        if len(found) <= _LIMIT:
            return found
        self._overflow = True
        return _BY_NONE

    def ways_to(self, x: Any, container: Any = None) -> Ways:
        """How integers may have selected ``x``, other than by reading from ``container``."""
        if isinstance(x, Integer):
            return frozenset([frozenset([x.slot])])
        x = x.behind() if isinstance(x, StandIn) else x
        _, origins = self._known.get(id(_owner(x)), (x, {}))
        beside = (id(container), id(x))
        ways = {w for key, (_, found) in origins.items() if key not in beside for w in found}
        return frozenset([frozenset(), *ways]) if ways else _BY_NONE

    def _select(self, chosen: Any, container: Any, ways: Ways) -> None:
        """Integers selected this, and so everything inside it."""
        stack, seen = [(chosen, container)], set()
        while stack:
            x, origin = stack.pop()
            if id(x) in seen:
                continue
            seen.add(id(x))
            x = x.behind() if isinstance(x, StandIn) else x
            owner = _owner(x)
            origins = self._known.setdefault(id(owner), (owner, {}))[1]
            origins.setdefault(id(origin), (origin, set()))[1].update(ways)
            stack.extend((item, x) for item in _inside(x))
            if len(seen) + len(stack) > _OBJECTS:
                self._overflow = True
                return


def _ids(x: Any) -> Any:
    """The ids of the Values of a list, or of lists of them; None where there is anything else."""
    if isinstance(x, Value):
        return id(x)
    if type(x) not in (list, tuple) or len(x) > _OBJECTS:
        return None
    found = tuple([_ids(item) for item in x])
    return None if None in found else found


def _owner(x: Any) -> Any:
    """The object by which ``x`` is known: a row of an array is a new view of it every time."""
    return x.base if type(x) is np.ndarray and x.base is not None else x


def _inside(x: Any) -> Iterator[Any]:
    """The containers, objects and Values in ``x``."""
    items: Any = ()
    if isinstance(x, (list, tuple, set, frozenset)):
        items = x
    elif isinstance(x, dict):
        items = x.values()
    elif isinstance(x, np.ndarray):
        items = x.ravel().tolist() if x.dtype == object else ()
    elif not isinstance(x, (Value, StandIn, type, types.ModuleType, types.FunctionType)):
        try:
            items = object.__getattribute__(x, "__dict__").values()
        except AttributeError:
            return
    yield from (item for item in items if type(item) not in _ATOMS)


def _layout(x: Any) -> Any:
    """The shape of a nest made of Values only; None where its items differ in any plain way."""
    kind = type(x)
    if issubclass(kind, (Value, StandIn)):
        return kind
    if kind is np.ndarray:
        items = x.ravel().tolist() if x.dtype == object else [None]
        size: Any = x.shape
    elif kind in (list, tuple):
        items, size = x, len(x)
    else:
        return None
    kinds = set(map(type, items))
    alike = len(kinds) == 1 and issubclass(next(iter(kinds)), (Value, StandIn))
    inner = kinds if alike else {_layout(item) for item in items}
    return None if len(inner) > 1 or None in inner else (kind, size, *inner)


# --- reading bytecode backwards -------------------------------------------------------------------


class _Step(NamedTuple):
    """One instruction, of those that CPython packs in pairs one half."""

    name: str
    argument: Any
    parts: int  # of what it builds
    effect: int  # on the depth of the stack
    joined: bool  # other ways lead here

    @property
    def reads(self) -> bool:
        return self.name == "BINARY_SUBSCR" or (self.name == "BINARY_OP" and self.argument == "[]")


@functools.lru_cache(maxsize=1000)
def _steps(code: types.CodeType) -> tuple[list[_Step], dict[int, int]]:
    steps: list[_Step] = []
    places: dict[int, int] = {}
    for s in dis.get_instructions(code):
        if s.opname in ("CACHE", "EXTENDED_ARG"):
            continue
        halves = re.findall("LOAD_FAST|STORE_FAST", s.opname)
        if len(halves) == 2:  # LOAD_FAST_LOAD_FAST of 3.13
            for half, (name, argument) in enumerate(zip(halves, s.argval, strict=True)):
                effect, joined = 1 if name == "LOAD_FAST" else -1, s.is_jump_target and not half
                steps.append(_Step(name, argument, 0, effect, joined))
        else:
            argument = s.argrepr if s.opname == "BINARY_OP" else s.argval
            jumps = s.opcode in dis.hasjrel or s.opcode in dis.hasjabs
            effect = 0 if jumps else dis.stack_effect(s.opcode, s.arg)
            joined = s.is_jump_target or jumps
            steps.append(_Step(s.opname, argument, s.arg or 0, effect, joined))
        places[s.offset] = len(steps) - 1
    return steps, places


class _Reader:
    """Evaluates the expressions before a read, backwards over the bytecode."""

    def __init__(self, frame: types.FrameType, reads: Reads) -> None:
        self.frame, self.reads = frame, reads
        self.steps, self.places = _steps(frame.f_code)
        self.locals = frame.f_locals
        self.jumps = False  # they were in the way
        self.containers: list[Any] = []  # read from, one after the other

    def read(self, index: Integer) -> tuple[Any, Any, Ways]:
        """What is read from, what is found there, and the other integers that led there.

        A plain number or text that is at once used to read again, ``p[remap[t]]``, leads on.
        """
        k = self.places.get(self.frame.f_lasti, -1)
        start, i, by_index = self._value(k - 1)
        begin, x, ways = self._value(start - 1)
        ways = self.reads.both(ways, by_index)
        i = index if i is _UNKNOWN and type(x) is not np.ndarray else i
        container, chosen = x, _item(x, i)
        self.containers.append(container)
        while k + 1 < len(self.steps) and self.steps[k + 1].reads and chosen is not _UNKNOWN:
            k += 1
            begin, container, others = self._value(begin - 1)
            ways = self.reads.both(self.reads.both(ways, others), self.reads.ways_to(chosen))
            chosen = _item(container, chosen)
            self.containers.append(container)
        if chosen is not _UNKNOWN:
            ways = self.reads.both(ways, self.reads.ways_to(chosen, container))
        return container, chosen, ways

    def _start(self, k: int) -> int:
        """Where the expression that ends with step k starts; -1 where jumps are in the way."""
        missing = 1
        while 0 <= k < len(self.steps) - 1 and not self.steps[k + 1].joined:
            missing -= self.steps[k].effect
            if missing <= 0:
                return k if missing == 0 else -1
            k -= 1
        self.jumps = True
        return -1

    def _value(self, k: int) -> tuple[int, Any, Ways]:
        """The start of the expression that ends with step k, its value, and the ways to that."""
        start = self._start(k)
        x, ways, container = _UNKNOWN, _BY_NONE, None
        if k < 0 or self.steps[k + 1].joined:
            return start, x, ways
        step = self.steps[k]
        if step.name.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_NAME")):
            x = self.locals.get(step.argument, _UNKNOWN)
        elif step.name == "LOAD_GLOBAL":
            x = self.frame.f_globals.get(step.argument, _UNKNOWN)
        elif step.name in ("LOAD_CONST", "LOAD_SMALL_INT"):
            x = step.argument
        elif step.name == "LOAD_ATTR":
            _, owner, ways = self._value(k - 1)
            x = _attribute(owner, step.argument)
        elif step.name in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP"):
            return start, *self._built(k, step)
        elif step.reads:
            middle, i, by_index = self._value(k - 1)
            _, container, ways = self._value(middle - 1)
            ways = self.reads.both(ways, by_index)
            x = _item(container, i)
        if x is _UNKNOWN:
            return start, _UNKNOWN, ways
        return start, x, self.reads.both(ways, self.reads.ways_to(x, container))

    def _built(self, k: int, step: _Step) -> tuple[Any, Ways]:
        parts: list[Any] = []
        ways = _BY_NONE
        for _ in range(step.parts * (2 if step.name == "BUILD_MAP" else 1)):
            k, x, to_part = self._value(k - 1)
            parts.insert(0, x)
            ways = self.reads.both(ways, to_part)
        if step.name != "BUILD_MAP":
            return (tuple(parts) if step.name == "BUILD_TUPLE" else parts), ways
        if not all(type(key) in (str, int) for key in parts[::2]):
            return _UNKNOWN, ways
        return dict(zip(parts[::2], parts[1::2], strict=True)), ways


def _attribute(x: Any, name: str) -> Any:
    """An attribute that is simply there; no code of the user's runs."""
    found = _UNKNOWN if x is _UNKNOWN else inspect.getattr_static(x, name, _UNKNOWN)
    if type(found) is types.MemberDescriptorType and not isinstance(x, type):
        return found.__get__(x)
    return _UNKNOWN if hasattr(type(found), "__get__") else found


def _item(x: Any, i: Any) -> Any:
    """``x[i]`` of the builtin containers."""
    if type(i) is tuple:
        i = tuple([_plain(part) for part in i])
        usable = type(x) is np.ndarray and set(map(type, i)) <= {int}
    else:
        i = _plain(i)
        usable = type(i) is int or (type(i) is str and isinstance(x, dict))
    for kind in (list, tuple, dict, str, bytes, range, np.ndarray) if usable else ():
        if isinstance(x, kind) and type(x).__getitem__ is kind.__getitem__:
            try:
                return x[i]
            except (LookupError, TypeError):
                return _UNKNOWN
    return _UNKNOWN


def _plain(i: Any) -> Any:
    """An index as the number it is."""
    return i.number if isinstance(i, Integer) else i
