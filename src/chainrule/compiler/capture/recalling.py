"""Functions that keep their results in a cache, while a function that calls them is recorded.

In: a call of a function that ``functools.lru_cache`` made. Out: its result, each number of it
traced: a replay calls the function again with the same arguments, which are static, and takes what
it gives then. So nothing is assumed of what is in the cache. A recording of another path may call
one that this call would not: that leaves no trace, as long as what it gives depends on its
arguments alone. Where it may read something else, the call is refused.
"""

from __future__ import annotations

import builtins
import dis
import functools
import math
import operator
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from chainrule.compiler.capture import disassembly
from chainrule.compiler.capture.captured import content_of, unreplaced
from chainrule.compiler.capture.draws import Drawn, Draws
from chainrule.compiler.capture.rewriting import only_calls, original
from chainrule.compiler.capture.standins import Detached, StandIn, plain
from chainrule.compiler.capture.traced import Traced
from chainrule.core.backend import modes

_PLAIN = frozenset((int, float, bool, str, bytes, type(None)))
_MODULES = frozenset("math cmath operator itertools numpy".split())
_NUMBERS = frozenset((name,) for name in ("pi", "e", "tau", "inf", "nan"))
_TYPES = frozenset(
    (int, float, bool, complex, str, bytes, list, tuple, dict, set, range, enumerate, zip, map)
)
_UNSEEN = frozenset(("IMPORT_NAME", "IMPORT_FROM", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"))
CACHED: Any = functools._lru_cache_wrapper


class _Last:
    """What a function gave, to tell quickly that it gave just the same again."""

    def __init__(self, result: Any) -> None:
        self.result, self.numbers = result, _numbers(result)
        self.items = tuple(result) if type(result) in (list, tuple) else None
        self.is_flat = self.items is None or _PLAIN.issuperset(map(type, self.items))

    def is_again(self, result: Any) -> bool:
        """Whether it is the same object with the same numbers in it."""
        if result is not self.result or not self.is_flat:
            return False
        items = self.items
        return items is None or (
            len(result) == len(items) and all(map(operator.is_, result, items))
        )


class Recalls(Draws):
    """All calls of such functions in a recording, in their order."""

    seeded = False

    def __init__(self) -> None:
        super().__init__(type(self))
        self._last: dict[int, _Last] = {}  # what each gave when it was called last
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any]] = []

    def finished(self) -> Recalls:
        """The same, which what recorded it does not reach."""
        made = Recalls()
        made.calls, made.kinds = list(self.calls), list(self.kinds)
        return made

    @property
    def called(self) -> int:
        """How many functions they call, each in a third of the time of one that draws."""
        return len(self.calls) // 3 + 1

    def again(self, seed: int) -> Drawn:
        """The numbers that they give now; raises where they are of another form."""
        found = Drawn()
        for k, (function, arguments, keywords, form) in enumerate(self.calls):
            try:
                result = function(*arguments, **keywords)
            except Exception:  # on this path the function would raise it too, if this is its path
                raise LookupError from None
            last = self._last.get(k)
            if last is None or not last.is_again(result):
                if _form(result) != form:
                    raise LookupError
                last = self._last[k] = _Last(result)
            found += last.numbers
        return found

    def __repr__(self) -> str:
        words = [f"{f.__name__}({', '.join(map(repr, given))})" for f, given, _, _ in self.calls]
        return ", ".join(words)


def _form(result: Any) -> Any:
    """What is to be the same of a result at every call: all but its numbers."""
    kind = type(result)
    if kind is int or (kind is float and math.isfinite(result)):
        return kind
    if kind is list or kind is tuple:
        return kind, *map(_form, result)
    if kind in (bool, str, bytes, type(None)):
        return kind, repr(result)
    raise ValueError


def _numbers(result: Any) -> list[Any]:
    if type(result) in (list, tuple):
        return [number for item in result for number in _numbers(item)]
    return [result] if type(result) in (int, float) else []


def _fixed(x: Any) -> Any:
    """An argument, which becomes static; ValueError where it is more than plain."""
    x = plain(x) if isinstance(x, StandIn) else x
    if type(x) is tuple:
        return tuple(map(_fixed, x))
    if type(x) not in _PLAIN:
        raise ValueError
    return x


class Memory:
    """What stands for all caches while a function is recorded, and the calls to be made again.

    The caches themselves are left alone: a function that turns out to have effects runs eagerly,
    and is to have them then.
    """

    def __init__(self) -> None:
        self.recalls = Recalls()
        self.node: int | None = None
        self._results: dict[Any, Any] = {}
        self._others: dict[int, str | None] = {}  # what a function reads beside its arguments
        self.inside = False  # one of the functions is running, on plain numbers

    def reason_against(self, function: Any) -> str | None:
        """Why a call of a function in vain may leave in its cache what eager would not, in words.

        None where what it gives depends on its arguments alone.
        """
        if id(function) not in self._others:
            self._others[id(function)] = _reads_more(function)
        return self._others[id(function)]

    def result(self, function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """What the function gives, once for each of its arguments."""
        key = id(function), repr(arguments), repr(keywords)
        if key not in self._results:
            before, self.inside = self.inside, True
            try:
                self._results[key] = function.__wrapped__(*arguments, **keywords)
            finally:
                self.inside = before
        return self._results[key]


def recalled(function: Any) -> Callable[..., Any]:
    """What is called in place of a function that keeps its results."""

    def call(*arguments: Any, **keywords: Any) -> Any:
        recorder = modes.recorder
        if recorder is None:
            return function(*arguments, **keywords)
        memory = recorder.memory = recorder.memory or Memory()
        name = f"it calls {function.__name__!r}, which keeps results in a cache"
        reads_more = memory.reason_against(function)
        if reads_more is not None:
            recorder.forbid(f"{name} and {reads_more},")
        refusal = f"{name}, with or for more"
        try:
            given = tuple(map(_fixed, arguments))
            named = {name: _fixed(x) for name, x in keywords.items()}
        except ValueError:
            recorder.forbid(f"{refusal} than plain numbers and texts")
        result = memory.result(function, given, named)
        if memory.inside:
            return result
        try:
            form, row = _form(result), _numbers(result)
        except ValueError:
            recorder.forbid(f"{refusal} than plain numbers and texts")
        integers: Any = recorder.integers
        recalls: Recalls = memory.recalls
        if memory.node is None:
            zero = integers.constant(0)
            memory.node = integers.step("seeded", integers.constant(recalls), zero)
        drawn = integers.value(memory.node)
        first = len(drawn)
        drawn += row
        recalls.calls.append((function, given, named, form))
        recalls.kinds += map(type, row)
        places = [integers.constant(first + k) for k in range(len(row))]
        nodes = iter([integers.step("item", memory.node, place) for place in places])
        return _traced(recorder, result, nodes)

    return call


def _traced(recorder: Any, result: Any, nodes: Iterator[int]) -> Any:
    kind = type(result)
    if kind is int:
        return Traced(recorder, next(nodes))
    if kind is float:
        return Detached(recorder, recorder.selector.number(next(nodes)), True)
    if kind is tuple:
        return tuple([_traced(recorder, x, nodes) for x in result])
    if kind is not list:
        return result
    if not recorder.selector.enabled:
        recorder.forbid("it may change a list that a cache holds, or ask which it is,")
    made = [_traced(recorder, x, nodes) for x in result]
    recorder.passed.add(id(made))
    recorder.selector.watch(made)  # it stands for the one that the cache holds
    return made


# --- what a function reads ------------------------------------------------------------------------


def _reads_more(function: Any) -> str | None:
    """What a function names that may change, but itself, in words; None: nothing.

    What it calls may be rebound, or have an attribute set, while the cache keeps older results: so
    it may call builtins, functions of C modules and numpy's only.
    """
    more = "reads more than its arguments"
    inner = function.__wrapped__
    if type(inner) is not types.FunctionType:
        return more
    around = zip(inner.__code__.co_freevars, inner.__closure__ or (), strict=True)
    if not all(_calls_itself(function, name, cell) for name, cell in around):
        return more
    given = [*(inner.__defaults__ or ()), *(inner.__kwdefaults__ or {}).values()]
    if not _PLAIN.issuperset(map(type, given)):
        return more
    code = original(inner.__code__)  # it may be the one that is being recorded
    steps = [s for c in disassembly.nested(code) for s in dis.get_instructions(c)]
    if any(step.opname in _UNSEEN for step in steps):
        return more
    scope = inner.__globals__
    for name in dict.fromkeys(step.argval for step in steps if step.opname == "LOAD_GLOBAL"):
        if not _stays(scope, name, function, code):
            home = getattr(scope.get(name), "__module__", None)
            if home in _MODULES and _is_in_c(scope.get(name)):
                return f"names {name!r}, which may come to be another: write {home}.{name}"
            return f"{more}: {name!r}"
    return None


def _calls_itself(function: Any, name: str, cell: types.CellType) -> bool:
    """Whether a name of the functions around is the function with the cache, which it calls."""
    code = original(function.__wrapped__.__code__)
    return content_of(cell) is function and disassembly.only_calls_free(code, name)


def _stays(scope: dict[str, Any], name: str, function: Any, code: types.CodeType) -> bool:
    """Whether what a function has under a global name is the same whenever it is called."""
    x = scope.get(name, getattr(builtins, name, None))
    if isinstance(x, types.ModuleType):
        chains = disassembly.chains(code, name) if x.__name__ in _MODULES else None
        return chains is not None and all(_is_fixed(x, chain) for chain in chains)
    if x is function:
        return only_calls(code, name)
    return _is_in_c(x) and name not in scope


def _is_fixed(module: types.ModuleType, chain: tuple[str, ...]) -> bool:
    """Whether an attribute of a module is a function in C, or a number of ``math``."""
    is_number = module is math and chain in _NUMBERS
    return is_number or _is_in_c(getattr(module, chain[0], None))


def _is_in_c(x: Any) -> bool:
    """Whether it is a function in C; while something is recorded, another may stand for it."""
    x = unreplaced(x)
    is_function = isinstance(x, types.BuiltinFunctionType) and (
        x.__self__ is None or isinstance(x.__self__, types.ModuleType)
    )
    return is_function or isinstance(x, np.ufunc) or (isinstance(x, type) and x in _TYPES)
