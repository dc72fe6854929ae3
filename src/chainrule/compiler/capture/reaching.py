"""What the code of a function reaches: names, cells, defaults, imports and modules' attributes.

In: a function whose code may run. Out: what is reached by it, one after the other, for the walk to
go on from; what may change, and what the code asks for, is noted in the ``CapturedState``.
Unrecordable where code names what cannot be followed.
"""

from __future__ import annotations

import builtins
import dataclasses
import functools
import gc
import importlib.util
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

from chainrule.compiler.capture import alike, disassembly, known
from chainrule.compiler.capture.captured import MISSING, CapturedState, content_of, unreplaced
from chainrule.compiler.capture.draws import DEFAULT_RNG, RANDOM
from chainrule.compiler.capture.modules import asks_seen, by_chains, is_library, named_in
from chainrule.compiler.capture.questions import GETTERS, LOOKS, REACHING
from chainrule.compiler.capture.rewriting import CACHED, CELLS, only_calls, original
from chainrule.compiler.capture.standins import Unloaded, Unrecordable
from chainrule.compiler.capture.ways import own_place
from chainrule.core import errors

_GENERATORS: dict[str, Any] = {"Random": RANDOM, "default_rng": DEFAULT_RNG}
_MAKERS: dict[str, Any] = {**_GENERATORS, **{getter.__name__: getter for getter in GETTERS}}
# Looked up by name at run time, these reach anything.
_DYNAMIC = frozenset(("globals", "locals", "vars", "eval", "exec", "open", "__import__"))
_GENERATED = frozenset(("__eq__", "__setattr__", "__delattr__", "__lt__", "__le__", "__hash__"))
_HASHES = frozenset(("hash", "__hash__", "set", "frozenset"))
_IDENTITY = frozenset(("id", "hash", "set", "frozenset", "index", "count", "remove"))
#: of these, what asks Values, so that they tell the recorder, or a hook
_SEEN = frozenset(("set", "frozenset", "index"))


def is_own(x: Any) -> bool:
    """Whether it is of this package, or a dataclass's: to it, lists and arrays are the same."""
    if not isinstance(x, types.FunctionType):
        return False
    file, name = x.__code__.co_filename, x.__code__.co_name
    made = file == "<string>" and name in (*_GENERATED, "__init__", "__repr__")
    return made or file.startswith(errors.PACKAGE) or file == dataclasses.__file__


class Holder:
    """A dict, object or list that holds places outside: the function gets another one for it."""

    def __init__(self, holder: Any) -> None:
        self.holder = holder


class Reach:
    """What one function's code reaches, as it is walked."""

    def __init__(self, function: types.FunctionType, found: CapturedState) -> None:
        self._function, self._found = function, found
        self._code = original(function.__code__)  # another thread may be recording it
        self._names = disassembly.names(self._code)
        self._modules: list[Iterator[Any]] = []  # what it reads from each, followed at the end
        makers = [name for name in self._names & _MAKERS.keys() if only_calls(self._code, name)]
        self._seen_makers = [_MAKERS[name] for name in makers]  # whose calls hooks see

    def __iter__(self) -> Iterator[Any]:
        function, found = self._function, self._found
        self._refuse()
        self._note()
        found.names += [
            (function, part, original(getattr(function, part)))
            for part in ("__code__", "__defaults__", "__kwdefaults__", "__dict__")
        ]
        found.dicts.append((function.__dict__, dict(function.__dict__), None))
        yield from function.__dict__.values()
        imported = list(_imported(function, found))
        yield from imported
        self._modules += map(self._named, imported)
        yield from self._cells()
        found.draws |= any(maker in self._seen_makers for maker in _GENERATORS.values())
        if any(getter in self._seen_makers for getter in GETTERS):
            found.makes_getters, found.reach = True, alike.Reach.UNKNOWN
        yield from function.__defaults__ or ()
        if function.__kwdefaults__:
            found.dicts.append((function.__kwdefaults__, dict(function.__kwdefaults__), function))
            yield from function.__kwdefaults__.values()
        for name in sorted(disassembly.global_names(self._code)):
            yield from self._global(name)
        for item in itertools.chain(*self._modules):
            if not self._is_seen_maker(item):
                yield item

    def _refuse(self) -> None:
        """Unrecordable where the code names what reaches anything."""
        function, namespace = self._function, self._function.__globals__
        if type(namespace) is not dict:
            raise Unrecordable(f"the globals of {function.__name__} are no plain dict")
        dynamic = disassembly.global_names(self._code) & _DYNAMIC
        for name in sorted(dynamic | (self._names & (REACHING | known.EFFECTS))):
            if name not in namespace or not isinstance(namespace[name], types.FunctionType):
                line = own_place(function, {name})
                raise Unrecordable(f"it uses {name}, which reaches what cannot be followed{line}")
        if disassembly.raises_callers(self._code):
            line = own_place(function, set())
            raise Unrecordable(f"it raises again what whoever called it has caught{line}")
        if disassembly.asks_is_true(self._code):
            what = "it asks whether something is True or False by 'is' or 'match'"
            raise Unrecordable(f"{what}{own_place(function, set())}")

    def _note(self) -> None:
        """Note what the code may ask for: types, identities, hashes, labels."""
        function, found, code, names = self._function, self._found, self._code, self._names
        namespace = function.__globals__
        found.catches.update(disassembly.catching(code))
        if found.reach and not alike.is_trusted(function) and not alike.code_is_known(code):
            found.reach = alike.Reach.UNKNOWN
        gets = any(getter.__name__ in names for getter in GETTERS)
        asked = names | disassembly.texts(code) if gets else names
        found.looks |= not asked.isdisjoint(LOOKS)
        found.tells |= gets
        found.tells |= disassembly.matches_classes(code)
        if not is_own(function):
            catches = any(True for _ in disassembly.catching(code))
            found.asks_types |= "__class__" in names or disassembly.matches(code) or catches
        found.hashes |= not names.isdisjoint(_HASHES) or disassembly.makes_sets(code)
        if not _is_generated(function):
            asks = bool(names & LOOKS) or disassembly.asks_identity(code, namespace, {"IS_OP"})
            contains = disassembly.asks_identity(code, namespace, {"CONTAINS_OP"})
            found.asks |= asks or not names.isdisjoint(_IDENTITY - _SEEN)
            found.contains |= contains
            found.identity |= asks or contains or not names.isdisjoint(_IDENTITY)
            found.identity |= disassembly.asks_identity(code, namespace, {"BUILD_SET"})

    def _cells(self) -> Iterator[Any]:
        """The contents of its closure."""
        found, outside = self._found, self._found.outside
        closure = self._function.__closure__ or ()
        for cell, name in zip(closure, self._code.co_freevars, strict=True):
            if (id(cell), None) in outside.held:
                CELLS.add(name)
                found.reached.add((id(cell), None))
                continue
            content = content_of(cell)
            found.cells.append((cell, content))
            found.cell_names.append(name)
            if id(content) in outside.holders:
                CELLS.add(name)
                yield Holder(content)
                continue
            is_module = isinstance(content, types.ModuleType)
            chains = disassembly.chains(self._code, name, in_cell=True) if is_module else None
            if chains:  # it is only read from
                self._modules.append(by_chains(content, chains, found))
                continue
            cached = type(content) is functools._lru_cache_wrapper and _is_as_it_says(content)
            if cached and disassembly.only_calls_free(self._code, name):
                yield self._cached(content, name)
                continue
            yield content
            if is_module:
                self._modules.append(self._named(content))

    def _global(self, name: str) -> Iterator[Any]:
        """What a global name stands for, or the builtin of that name."""
        found, outside, namespace = self._found, self._found.outside, self._function.__globals__
        x = namespace.get(name, MISSING)
        if (id(namespace), name) in outside.held:
            CELLS.add(name)
            found.reached.add((id(namespace), name))
            return
        found.names.append((namespace, name, x))
        if id(x) in outside.holders:
            CELLS.add(name)
            yield Holder(x)
            return
        builtin = MISSING
        if x is MISSING:
            own = getattr(self._function, "__builtins__", None)
            if own is not vars(builtins):
                raise Unrecordable(f"{self._function.__name__} has builtins of its own")
            builtin = unreplaced(vars(builtins).get(name, MISSING))
            found.names.append((vars(builtins), name, builtin))
        module = x if x is not MISSING else sys.modules.get(name)
        is_module = isinstance(module, types.ModuleType)
        chains = disassembly.chains(self._code, name) if is_module else None
        if type(x) is functools._lru_cache_wrapper and _is_called_only(x, name, self._code):
            yield self._cached(x, name)
        elif x is module and chains:
            pass  # a module that is only read from: no more than what is read
        elif x is MISSING and asks_seen(self._code, name, builtin, found):
            found.asks_types |= not is_own(self._function)  # a hook sees what it is asked for
        elif _MAKERS.get(name, MISSING) is not x or not self._is_seen_maker(x):
            yield x if x is not MISSING else unreplaced(vars(builtins).get(name))
        if isinstance(module, types.ModuleType):
            reads = self._named(module) if chains is None else by_chains(module, chains, found)
            self._modules.append(reads)

    def _cached(self, cached: Any, name: str) -> Any:
        """The function under a cache that the code only calls, which a replay calls too."""
        if self._found.outside:  # a replay calls it before anything is changed
            line = own_place(self._function, {name})
            raise Unrecordable(f"it calls {name!r}, which has a cache, and keeps numbers{line}")
        CACHED.add(name)
        self._found.draws = True
        return cached.__wrapped__

    def _named(self, module: types.ModuleType) -> Iterator[Any]:
        """What the code may read from a module that it has as an object."""
        attributes, stores = disassembly.attributes(self._code), disassembly.stored(self._code)
        return named_in(module, attributes, stores, self._found, set())

    def _is_seen_maker(self, x: Any) -> bool:
        return any(x is maker for maker in self._seen_makers)


def _is_called_only(cached: Any, name: str, code: types.CodeType) -> bool:
    """Whether a function with a cache is the one it says it is, and code only calls it."""
    return _is_as_it_says(cached) and only_calls(code, name)


def _is_as_it_says(cached: Any) -> bool:
    """Whether what is under a cache is what it says."""
    function = getattr(cached, "__wrapped__", None)
    inside = any(x is function for x in gc.get_referents(cached))
    return inside and isinstance(function, types.FunctionType)


def _imported(function: types.FunctionType, found: CapturedState) -> Iterator[types.ModuleType]:
    """The modules that a function imports when it runs; Unloaded where that has not happened."""
    code, package = original(function.__code__), function.__globals__.get("__package__")
    for name, level, wanted in disassembly.imports(code):
        try:
            full = importlib.util.resolve_name("." * level + name, package)
        except ImportError:  # which the function raises itself, if it gets there
            full = name
        parts = full.split(".")
        if parts[0] not in sys.modules and importlib.util.find_spec(parts[0]) is None:
            found.names.append((sys.modules, parts[0], MISSING))  # the import fails, until then
            continue
        for count in range(1, len(parts) + 1):
            part = ".".join(parts[:count])
            module = sys.modules.get(part, MISSING)
            found.names.append((sys.modules, part, module))
            if not isinstance(module, types.ModuleType):
                line = own_place(function, {name})
                raise Unloaded(f"it imports {full!r}, which was not imported before{line}")
            yield module
        for item in wanted:
            if item != "*" and not _can_give(sys.modules[full], item):
                line = own_place(function, {name})
                raise Unloaded(f"it imports {full}.{item}, which was not imported before{line}")


def _can_give(module: types.ModuleType, name: str) -> bool:
    """Whether a module has a name, or code of its own that may answer for it, which is not run."""
    if is_library(module):
        return hasattr(module, name)
    return name in vars(module) or "__getattr__" in vars(module)


def _is_generated(function: types.FunctionType) -> bool:
    """Whether it is a method that a dataclass made, which only asks for its own class."""
    code = function.__code__
    return code.co_filename == "<string>" and code.co_name in _GENERATED
