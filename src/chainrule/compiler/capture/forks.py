"""Both sides of a branch: what code converted by ``sides`` calls while it is recorded.

In: a condition that is known only when the recording runs, and what each side of the branch
assigned. Out: for each name, one number that is selected by the condition. Where a side fails, or
what it assigned is no number, the branch is a guard again, and the side that was taken counts.
A side that Python would not have run leaves nothing behind: its assignments are taken back, and it
only does what is known to change nothing else; anything else is raised as ``Impure``.
"""

from __future__ import annotations

import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from chainrule.compiler.capture import known
from chainrule.compiler.capture.arrays import DataArray
from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.changing import changing
from chainrule.compiler.capture.enums import has_item, is_like_int
from chainrule.compiler.capture.exchanging import exchange, read_cell, store_cell
from chainrule.compiler.capture.keyed import is_keyed
from chainrule.compiler.capture.lookups import Looked, contains
from chainrule.compiler.capture.making import store
from chainrule.compiler.capture.masks import ORDERS, compared_values
from chainrule.compiler.capture.merging import (
    CannotMerge,
    as_bool,
    is_open,
    one_of,
    selected,
    truth_of,
)
from chainrule.compiler.capture.sides import RESULT
from chainrule.compiler.capture.standins import Condition, Detached, is_narrow
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.wholes import Whole
from chainrule.core import ops
from chainrule.core.backend import Value, dot, modes, vsum

_NUMBERS = frozenset(
    (Value, Detached, Traced, Whole, Condition, int, float, bool, np.float64, np.int64, np.bool_)
)
#: whose operators change nothing and call no code of the user's
_PLAIN = _NUMBERS | {str, bytes, range, type(None), DataArray}
_CONTAINERS = frozenset((list, tuple, dict, str, range, np.ndarray, DataArray))
_SETS = frozenset((set, frozenset))
_CHANGED_IN_PLACE = frozenset((list, dict, set, np.ndarray, DataArray))
_BUILTINS = frozenset(
    (abs, min, max, float, int, bool, len, sum, pow, round, range, zip, enumerate)
)
_METHODS = frozenset(op.name for op in ops.TABLE.values()) | {"sum", "mean", "dot"}
_VECTORS = (dot, vsum)
_MODULES = ("math", "chainrule.core.functions", "chainrule.vectors")
TURNS = "turns"  # among the plain sites: no loop has a run-time end
MOST_ASTRAY = 4096  # instructions and steps of a recording, in what Python would not have called
_DEEP = 8  # sides inside each other that Python would not have run: a function that calls itself
_MOST_DEEP = 64  # calls in there, of all of a recording: their number may double with each
_DIVISIONS = ("div", "mod")  # of any kind
#: functions that are not defined everywhere, and where they and their derivatives are
_SAFE = {
    **dict.fromkeys(("log", "log2", "log10", "log1p", "sqrt"), 1.0),
    **dict.fromkeys(("asin", "acos", "atanh"), 0.5),
    "acosh": 2.0,
}


class TooLong(Exception):
    """Something does not end in a side that Python would not have run."""


class Impure(BaseException):
    """A side does what cannot be taken back: the branch is to be an ordinary one.

    ``sites``: that of the branch, then those of the branches that it is in, from the inside.
    Not an Exception: neither the function nor a side that is forgiven must swallow it.
    """

    def __init__(self, site: Any) -> None:
        super().__init__(site)
        forks = [] if modes.recorder is None else modes.recorder.forks
        self.sites = [site, *[fork.site for fork in reversed(forks)]]


def opened(test: Any) -> Any:
    """The truth of a number as a condition; anything else as it is."""
    recorder = modes.recorder
    if recorder is not None and recorder.both:
        if type(test) is Detached:
            return recorder.truth(test._value)
        if type(test) is Value:
            return recorder.truth(test)
        if type(test) is Whole:
            return operator.ne(test, 0)
    return test


class Fork:
    """A branch: one side is run where the test is known, else both."""

    def __init__(self, site: Any, test: Any) -> None:
        test = opened(test)
        recorder = modes.recorder
        self.both = (
            recorder is not None
            and recorder.both
            and is_open(test)
            and site not in recorder.plain_sites
        )
        self.site, self._test = site, test
        self.truth = truth_of(test) if self.both else bool(test)
        self.body, self.orelse = self.both or self.truth, self.both or not self.truth
        self.decided = False
        self.side = True  # which is being run
        self._before: dict[str, Any] = {}
        self._after: dict[bool, dict[str, Any]] = {}
        self._journal: dict[Any, tuple[Any, Any, Any]] = {}  # what a side stored over, by slot
        self._stored: dict[bool, dict[Any, Any]] = {True: {}, False: {}}
        self._merged: dict[str, Any] = {}
        self._undefined: str | None = None

    # --- names ------------------------------------------------------------------------------------

    def begin(self, names: tuple[str, ...] = ()) -> None:
        """Note what the names stand for before a side runs."""
        found = sys._getframe(1).f_locals if names else {}
        self._before = {name: found[name] for name in names if name in found}
        self._enter(True)

    def end(self, side: bool, names: tuple[str, ...] = ()) -> None:
        """Note what they stand for after it, and take back what it stored."""
        found = sys._getframe(1).f_locals if names else {}
        self._leave(side, {name: found[name] for name in names if name in found})
        if side:
            self._enter(False)

    def had(self, name: str) -> bool:
        """Whether a name stood for something before."""
        return name in self._before

    def before(self, name: str) -> Any:
        """What it stood for."""
        return self._before[name]

    @staticmethod
    def binds(name: str) -> bool:
        """Whether a name stands for something now."""
        return name in sys._getframe(1).f_locals

    def has(self, name: str) -> bool:
        """Whether it stands for something after both sides."""
        return name in self._merged

    def after(self, name: str) -> Any:
        """What it stands for; only once."""
        return self._merged.pop(name)

    def merge(self, inner: tuple[str, ...] = ()) -> None:
        """Make one of what both sides did; names that only the sides use are forgotten."""
        taken, both = self._after[self.truth], self._after
        try:
            if self.decided:
                raise CannotMerge
            names = [n for n in dict.fromkeys([*both[True], *both[False]]) if n not in inner]
            if any(n not in both[True] or n not in both[False] for n in names):
                raise CannotMerge
            self._merged = {n: one_of(self._test, both[True][n], both[False][n]) for n in names}
            stores = [(slot, self._one_stored(slot)) for slot in self._slots()]
        except CannotMerge:
            self._decide()
            self._merged = taken
            stores = list(self._stored[self.truth].items())
        for slot, value in stores:
            container, key, _ = self._journal[slot]
            _put(value, container, key)
        for each in (self._before, self._after, self._journal, self._stored):
            each.clear()  # a fork has a name for as long as its function runs

    def _slots(self) -> list[Any]:
        return [*dict.fromkeys([*self._stored[True], *self._stored[False]])]

    def _one_stored(self, slot: Any) -> Any:
        old = self._journal[slot][2]
        return one_of(self._test, *[self._stored[side].get(slot, old) for side in (True, False)])

    def forgives(self, side: bool) -> bool:
        """Whether an error of a side is none, because Python would not have run it."""
        if not self.both or side is self.truth:
            return False
        recorder = modes.recorder
        assert recorder is not None
        while recorder.forks[-1] is not self:  # branches inside that were left in the middle
            recorder.forks.pop()._take_back()
        recorder.undefined = self._undefined
        self._decide()
        return True

    def _decide(self) -> None:
        """Take one side after all: a guard."""
        if not self.decided:
            self.decided = True
            bool(self._test)
            assert modes.recorder is not None
            modes.recorder.decided[id(self._test)] = self._test

    def where_taken(self, key: Traced) -> Traced:
        """An integer by which the side reads; 0 where Python would not run it, and not read."""
        if type(self._test) is not Traced:
            return key
        integers = key._recorder.integers
        pair = integers.constant(0), key.node
        place = integers.step("int", as_bool(self._test).node)
        node = integers.step("choose", place, *(pair if self.side else pair[::-1]))
        return Traced(key._recorder, node)

    def defined(self, x: Any, safe: float) -> Any:
        """An operand of a function that is not defined everywhere; ``safe`` where it is not run."""
        recorder, kind = modes.recorder, type(x)
        assert recorder is not None
        if self.decided or id(self._test) in recorder.decided:
            return x
        if kind is Traced and type(self._test) is Traced and x.__class__ is int:
            return one_of(self._test, *((x, int(safe)) if self.side else (int(safe), x)))
        if kind is not Value and (kind is not Detached or is_narrow(x)):
            return x
        pair = (x if kind is Value else x._value), Value(safe)
        found = selected(self._test, *(pair if self.side else pair[::-1]))
        return found if kind is Value else Detached(recorder, found, x.is_data, x.kind)

    # --- what a side stores -----------------------------------------------------------------------

    def _enter(self, side: bool) -> None:
        assert modes.recorder is not None
        self.side = side
        modes.recorder.forks.append(self)
        self._undefined = modes.recorder.undefined

    def _leave(self, side: bool, names: dict[str, Any]) -> None:
        assert modes.recorder is not None
        assert modes.recorder.forks.pop() is self
        self._after[side] = names
        self._stored[side] = self._take_back()

    def _take_back(self) -> dict[Any, Any]:
        """Put back what was there before a side ran; what it had stored, by slot."""
        stored: dict[Any, Any] = {}
        for slot, (container, key, old) in self._journal.items():
            if container[key] is not old:
                stored[slot], container[key] = container[key], old
        return stored

    def note(self, container: Any, key: Any) -> None:
        """Something is about to be stored."""
        self._journal.setdefault((id(container), key), (container, key, container[key]))

    def noted(self) -> list[Any]:
        """The containers that a side stored into."""
        return [container for container, _, _ in self._journal.values()]

    def expression(self, body: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
        """``body() if test else orelse()``."""
        if not self.both:
            return body() if self.truth else orelse()
        for side, run in ((True, body), (False, orelse)):
            self._enter(side)
            found = {}
            try:
                found = {"": run()}
            except Exception:
                if not self.forgives(side):
                    raise
            self._leave(side, found)
        self.merge()
        return self._merged[""]


class Checked:
    """What calls nothing but what a side may call."""


class Sides:
    """What converted code calls. Where nothing is recorded, each does what Python does."""

    fork = Fork

    def leaving(self, site: Any, test: Any) -> Fork:
        """A branch that leaves a loop."""
        recorder = modes.recorder
        if recorder is not None and TURNS in recorder.plain_sites:
            test = bool(test)
        return Fork(site, test)

    read: Callable[[Any, Any], Any] = staticmethod(operator.getitem)  # likewise, below
    put: Callable[[Any, Any, Any], None] = staticmethod(
        lambda value, container, key: operator.setitem(container, key, value)
    )
    loop: Callable[..., Any]  # see ``turns``
    through: Callable[..., Any]  # likewise
    chosen: Callable[[Any, Any, Any], Any]  # see ``callees``
    called: Callable[[Any], Any] = staticmethod(lambda function: function)  # see ``hooks``
    asked: Callable[[Any, str], Any] = staticmethod(lambda x, name: x)  # likewise

    def either(self, site: Any, test: Any, body: Any, orelse: Any) -> Any:
        """``body() if test else orelse()``."""
        return Fork(site, test).expression(body, orelse)

    def opposite(self, test: Any) -> Any:
        """``not test``."""
        test = opened(test)
        if not is_open(test):
            return not test
        if type(test) is Traced:
            return as_bool(test).step("eq", False)
        return Condition(test._recorder, test.node, not test.negated)

    def every(self, site: Any, *parts: Callable[[], Any]) -> Any:
        """``a and b and ...``, for its truth."""
        return self._joined(site, parts, True)

    def some(self, site: Any, *parts: Callable[[], Any]) -> Any:
        """``a or b or ...``, for its truth."""
        return self._joined(site, parts, False)

    def _joined(self, site: Any, parts: tuple[Callable[[], Any], ...], goes_on: bool) -> Any:
        found = opened(parts[0]())
        for part in parts[1:]:
            fork = Fork(site, found)
            if not fork.both:
                if fork.truth is not goes_on:
                    return fork.truth
                found = opened(part())
                continue

            def run(part: Callable[[], Any] = part) -> Any:
                other = opened(part())
                return other if is_open(other) else bool(other)

            constant: Callable[[], Any] = lambda: not goes_on  # noqa: E731
            found = fork.expression(run, constant) if goes_on else fork.expression(constant, run)
        return found

    def chain(self, site: Any, left: Any, *rest: Any) -> Any:
        """``a < b < c``, for its truth: operators and the operands that follow them."""
        operands = [left]

        def comparison(place: int) -> Callable[[], Any]:
            def compare() -> Any:
                operands.append(rest[2 * place + 1]())
                return self.binary(site, rest[2 * place], operands[place], operands[place + 1])

            return compare

        return self.every(site, *[comparison(k) for k in range(len(rest) // 2)])

    # --- what sides may do ------------------------------------------------------------------------

    def store(self, value: Any, container: Any, key: Any, site: Any = None) -> None:
        """``container[key] = value``: operands in the order in which Python evaluates them."""
        recorder = modes.recorder
        if is_keyed(container):
            store(value, container, key, sys._getframe(1))
            return
        if recorder is None or not recorder.forks:
            self.put(value, container, key)
            return
        changing(container)
        count = len(container) if type(container) is list else 0
        if type(key) is not int or not -count <= key < count:
            raise Impure(site)
        _put(value, container, key % count)

    def store_all(self, site: Any, values: tuple[Any, ...], *places: Callable[[Any], None]) -> None:
        """``a[i], b[j] = values``; each container and key is evaluated when its turn comes."""
        for value, put in zip(values, places, strict=True):
            put(value)

    def exchange(self, site: Any, container: Any, a: Any, b: Any) -> None:
        """``container[a], container[b] = container[b], container[a]``."""
        if not exchange(container, a, b, _put):
            if modes.recorder is not None and type(container) is list:
                a, b = (x.plain() if type(x) is Whole else x for x in (a, b))
            container = self.container(site, container)
            values = self.cell(site, container, b), self.cell(site, container, a)
            for value, key in zip(values, (a, b), strict=True):
                self.store(value, container, key, site)

    def cell(self, site: Any, container: Any, *keys: Any) -> Any:
        """``container[key]``, or with two keys ``container[key][other]``."""
        if len(keys) == 2 and type(keys[0]) is Whole:
            try:
                return read_cell(container, *keys)
            except CannotMerge:
                pass
        for key in keys:
            container = self.read(self.container(site, container), self.plain(site, key))
        return container

    def put_cell(self, site: Any, value: Any, container: Any, key: Any, other: Any) -> None:
        """``container[key][other] = value``."""
        if type(key) is Whole:
            try:
                store_cell(value, container, key, other, _put)
                return
            except CannotMerge:
                pass
        self.store(value, self.cell(site, container, key), other, site)

    def assign(self, value: Any, x: Any, name: str, site: Any = None) -> None:
        """``x.name = value``: in a side, one of the attributes that an ordinary object has."""
        if not _inside():
            setattr(x, name, value)
            return
        kind, attributes = type(x), getattr(x, "__dict__", None)
        plain = type(attributes) is dict and name in attributes
        plain = plain and not isinstance(x, type | types.ModuleType)
        own = [vars(c) for c in kind.__mro__[:-1]]
        if not plain or any("__setattr__" in names for names in own):
            raise Impure(site)
        if any(hasattr(names[name], "__set__") for names in own if name in names):
            raise Impure(site)
        _put(value, attributes, name)

    def binary(self, site: Any, name: str, a: Any, b: Any) -> Any:
        """An operator of two operands."""
        if _inside() and not (_is_plain(a) and _is_plain(b)):
            raise Impure(site)
        if name.startswith("i") and _inside() and type(a) in _CHANGED_IN_PLACE:
            raise Impure(site)
        if name in ORDERS:
            found = compared_values(name, a, b)
            return getattr(operator, name)(a, b) if found is None else found
        if name.endswith(_DIVISIONS):
            b = _defined(b, 1.0)
        elif name.endswith("pow") and not (type(b) is int and b >= 0):
            a = _defined(a, 1.0)
        return getattr(operator, name)(a, b)

    def contains(self, site: Any, x: Any, container: Any) -> Any:
        """``x in container``."""
        if _inside():
            kind = type(container)
            plain = all(map(_is_plain, container)) if kind in _SETS else _is_plain(container)
            if not plain or not _is_plain(x):
                raise Impure(site)
        return container.contains(x) if is_keyed(container) else contains(x, container)

    def unary(self, site: Any, name: str, a: Any) -> Any:
        """An operator of one operand."""
        if _inside() and not _is_plain(a):
            raise Impure(site)
        return getattr(operator, name)(a)

    def container(self, site: Any, x: Any) -> Any:
        """Something of which an item is read."""
        if (
            _inside()
            and not is_keyed(x)
            and not (type(x) in _CONTAINERS and (type(x) is not dict or all(map(_is_plain, x))))
        ):
            raise Impure(site)
        return x

    def attribute(self, site: Any, x: Any, name: str) -> Any:
        """``x.name``."""
        if _inside():
            kind = type(x)
            if isinstance(x, type) and not has_item(x, name):
                raise Impure(site)
            simple = kind in _PLAIN or kind in _CONTAINERS or is_keyed(x) or isinstance(x, type)
            if not simple and not (kind is types.ModuleType and name in vars(x)):
                found = next((vars(c)[name] for c in kind.__mro__ if name in vars(c)), None)
                asks = any(
                    "__getattr__" in vars(c) or "__getattribute__" in vars(c)
                    for c in kind.__mro__[:-1]
                )
                if asks or (
                    found is not None
                    and not isinstance(found, types.MemberDescriptorType | int | float)
                ):
                    raise Impure(site)
        return x.asked(name) if is_keyed(x) else getattr(self.asked(x, name), name)

    def plain(self, site: Any, x: Any) -> Any:
        """Something to compute with or to go through, which is not used up by that."""
        if _inside() and not _is_plain(x):
            raise Impure(site)
        return x

    def kept(self, site: Any, test: Any, body: Callable[[], Any]) -> tuple[Any, ...]:
        """``body()`` if it counts in a sum; where both sides are computed, it or 0."""
        fork = Fork(site, test)
        if not fork.both:
            return (body(),) if fork.truth else ()
        found = fork.expression(body, lambda: 0)
        return () if fork.decided and not fork.truth else (found,)

    @staticmethod
    def is_sum(function: Any) -> bool:
        """Whether this is Python's own sum, to which 0 may be added."""
        return function is sum

    def call(self, site: Any, function: Any) -> Any:
        """A function that a side calls."""
        if _inside() and not _is_pure(function):
            if not _is_checked(function):
                raise Impure(site)
            stay_within_bounds()
        found = self.called(function)
        safe = _SAFE.get(getattr(function, "__name__", "")) if _inside() else None
        if safe is None:
            return found
        if isinstance(getattr(function, "__self__", None), Value):
            return getattr(_defined(function.__self__, safe), function.__name__)
        return lambda x, *rest: found(_defined(x, safe), *rest)


def _inside() -> bool:
    """Whether a side runs that Python might not have run."""
    recorder = modes.recorder
    return recorder is not None and bool(recorder.forks)


def _put(value: Any, container: Any, key: Any) -> None:
    """Store, so that the side which is being run can take it back."""
    recorder = modes.recorder
    if recorder is not None and recorder.forks:
        recorder.forks[-1].note(container, key)
    container[key] = value


def _defined(x: Any, safe: float) -> Any:
    """An operand that is ``safe`` where Python would not run the side: it must raise nothing."""
    recorder = modes.recorder
    for fork in recorder.forks if recorder is not None else ():
        x = fork.defined(x, safe)
    return x


def are_plain(arguments: Iterable[Any]) -> bool:
    """Whether these are numbers, or containers of such, which are not used up by a call."""
    return all(map(_is_plain, arguments))


def _is_plain(x: Any) -> bool:
    """Whether it is a number, or a container of such: no code of the user's runs for it."""
    kind = type(x)
    if is_keyed(x):
        return True  # it knows what it is for, and refuses anything else
    if kind is list or kind is tuple:
        return all(map(_is_plain, x))
    if kind is dict:
        return all(map(_is_plain, x)) and all(map(_is_plain, x.values()))
    if kind is slice:
        return all(map(_is_plain, (x.start, x.stop, x.step)))
    if kind is np.ndarray and x.dtype == object:
        return all(map(_is_plain, x.flat))
    return kind in _PLAIN or kind is np.ndarray or is_like_int(kind)


def _is_checked(function: Any) -> bool:
    """Whether it is a function whose code was converted so that it is checked as a side is."""
    if type(function) is types.MethodType:
        function = function.__func__
    if isinstance(function, Checked):
        return True
    return type(function) is types.FunctionType and RESULT in function.__code__.co_varnames


def stay_within_bounds() -> None:
    """Stop what Python would not have run, and may never end."""
    recorder, depth = modes.recorder, _depth_astray()
    assert recorder is not None
    recorder.deep += depth > _DEEP
    size = len(recorder.nodes) + len(recorder.integers)
    if depth and (size > MOST_ASTRAY or recorder.deep > _MOST_DEEP):
        raise TooLong


def is_astray() -> bool:
    """Whether a side is being run that Python would not have run."""
    return _depth_astray() > 0


def _depth_astray() -> int:
    """How many branches deep, from the first that goes where Python would not have gone."""
    forks = () if modes.recorder is None else modes.recorder.forks
    astray = (k for k, fork in enumerate(forks) if fork.side is not fork.truth)
    return len(forks) - next(astray, len(forks))


def _is_pure(function: Any) -> bool:
    """Whether a call changes nothing, and depends on its arguments alone."""
    function = getattr(function, REPLACES, function)
    if isinstance(function, types.MethodType | types.BuiltinMethodType):
        if isinstance(function.__self__, Value):
            return function.__name__ in _METHODS
        if is_keyed(function.__self__):
            return True
        if type(function.__self__) is Looked:
            return _is_plain(function.__self__.mapping)
    try:
        if function in _BUILTINS:
            return True
    except TypeError:
        return False
    if isinstance(function, types.FunctionType | types.BuiltinFunctionType):
        module = known.module_of(function)
        return module in _MODULES or (module.startswith("chainrule.") and function in _VECTORS)
    return False


SIDES = Sides()
