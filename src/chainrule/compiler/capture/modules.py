"""What a function reads from modules: the attributes that its code names, as far as that is seen.

In: a module, and what code does with it. Out: what it reaches there; what can change is noted in
the ``CapturedState``. A module that code has as an object may be asked for any name by whoever
gets it, so it is followed under the names in all code that the function may run.
"""

from __future__ import annotations

import inspect
import operator
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from chainrule.compiler.capture import disassembly, known
from chainrule.compiler.capture.captured import MISSING, CapturedState, unreplaced
from chainrule.compiler.capture.rewriting import only_calls, original
from chainrule.compiler.capture.standins import Unrecordable

_LIBRARIES = frozenset(("chainrule", "jax", "numpy", "pandas", "scipy", "torch"))
#: builtins that ask for names; hooks see the first two where code calls them by their names
SEEN_ASKING = frozenset(("getattr", "hasattr"))
_GETTERS = (operator.attrgetter, operator.methodcaller)
_ASKING = frozenset(map(id, (getattr, hasattr, setattr, delattr, dir, *_GETTERS)))
#: attributes and methods that ask for names which no code has; the first two give functions too
_GIVING = frozenset(("__dict__", "__getattribute__"))
_BY_NAME = _GIVING | {"__dir__", "__setattr__", "__delattr__", "format", "format_map"}
#: what Python keeps in a module for itself
_OF_PYTHON = frozenset(
    f"__{name}__"
    for name in "name doc package loader spec path file cached builtins annotations".split()
)


class Modules:
    """The modules that code has as objects: anything it may run can ask them for names."""

    def __init__(self, found: CapturedState) -> None:
        self._found = found
        self._passed_on: list[types.ModuleType] = []
        self._any_name = False  # some code may ask for names that are in no code
        self._looked: Any = self._now()

    def note(self, x: Any) -> None:
        """Something that the function reaches."""
        if isinstance(x, types.ModuleType):
            self._passed_on.append(x)
        if isinstance(x, (types.BuiltinFunctionType, types.MethodWrapperType)):
            owner = x.__self__
            if isinstance(owner, types.ModuleType) and hasattr(types.ModuleType, x.__name__):
                self._passed_on.append(owner)  # a method of the module itself
                self._any_name = True
        asks = id(x) in _ASKING or isinstance(x, _GETTERS)
        self._any_name |= asks or (
            isinstance(x, types.FunctionType) and known.module_of(x) == inspect.__name__
        )

    def are_open(self) -> bool:
        """Whether there is code, or a module, that they have not been looked at with."""
        return bool(self._passed_on) and self._looked != self._now()

    def _now(self) -> tuple[int, int, bool]:
        found = self._found
        return len(found.functions), len(self._passed_on), self._any_name or found.makes_getters

    def reached(self) -> list[Any]:
        """What they have under the names in all code so far."""
        self._looked = self._now()
        codes = [original(f.__code__) for f in self._found.functions]
        asking = [code for code in codes if not disassembly.names(code).isdisjoint(SEEN_ASKING)]
        names = set[str]().union(*map(disassembly.attributes, codes))
        names = names.union(*map(disassembly.texts, asking))
        self._found.module_names, whole = names, self._found.whole_modules
        inside: list[Any] = []
        for module in self._passed_on:
            inside += named_in(module, names, names, self._found, set())
            if id(module) in whole or not self._may_be_asked_for_all(module, names):
                continue
            whole.add(id(module))
            if not is_library(module):
                inside += self._all_of(module)
            elif not known.is_pure_module(module):
                raise Unrecordable(
                    f"it may ask {module.__name__} for any attribute, and not all that it has is "
                    "known to be pure"
                )
        return inside

    def _may_be_asked_for_all(self, module: types.ModuleType, names: set[str]) -> bool:
        """Whether names that are in no code may be asked of a module; of a library: read there."""
        if self._any_name or self._found.makes_getters:
            return True
        if is_library(module):
            return not names.isdisjoint(_GIVING)
        return self._found.makes_names or not names.isdisjoint(_BY_NAME)

    def _all_of(self, module: types.ModuleType) -> Iterator[Any]:
        contents = {key: unreplaced(x) for key, x in vars(module).items()}
        self._found.dicts.append((vars(module), contents, None))
        return (x for key, x in contents.items() if key not in _OF_PYTHON)


def is_library(x: types.ModuleType | type) -> bool:
    """Whether a module is Python's own, or one that nobody changes while programs run; or a class.

    A class says itself of which module it is.
    """
    name = x.__name__ if isinstance(x, types.ModuleType) else x.__module__
    root = name.split(".")[0]
    return root in sys.stdlib_module_names or root in _LIBRARIES


def is_pure(module: types.ModuleType) -> bool:
    """Whether nothing that a function may find in a module needs to be looked at."""
    return module.__name__ in ("chainrule", "itertools")


def asks_seen(code: types.CodeType, name: str, x: Any, found: CapturedState) -> bool:
    """Whether this is ``getattr`` or ``hasattr``, which code only calls.

    A hook sees these calls, and refuses to ask a module for a name under which it is not followed.
    """
    if name not in SEEN_ASKING or id(x) not in _ASKING or not only_calls(code, name):
        return False
    found.makes_names |= not disassembly.asks_by_texts(code, SEEN_ASKING)
    return True


def named_in(
    module: types.ModuleType,
    names: Iterable[str],
    missing: set[str],
    found: CapturedState,
    seen: set[int],
) -> Iterator[Any]:
    """The attributes of a module that code may name, where it is not seen which it reads.

    ``missing``: names that may be asked for, or stored, where there is nothing as yet.
    """
    if id(module) in seen:
        return
    seen.add(id(module))
    pure, library = is_pure(module), is_library(module)
    for name in sorted(names):
        if (pure and name not in missing) or _is_of_every_module(module, name):
            continue
        if name in vars(module) or (library and not pure and hasattr(module, name)):
            item = unreplaced(getattr(module, name))
            found.names.append((module, name, item))
            if pure:
                continue
            yield item
            if isinstance(item, types.ModuleType):
                yield from named_in(item, names, missing, found, seen)
        elif name in missing:
            found.names.append((vars(module), name, MISSING))
            if not library:
                yield from answering(module, found)


def _is_of_every_module(module: types.ModuleType, name: str) -> bool:
    """Whether a name is that of a method or attribute of modules as such, like ``__dict__``."""
    return name not in vars(module) and hasattr(types.ModuleType, name)


def answering(module: types.ModuleType, found: CapturedState) -> Iterator[Any]:
    """What answers for the names that a module does not have: code of its own, or its class's."""
    function = vars(module).get("__getattr__", MISSING)
    found.names.append((vars(module), "__getattr__", function))
    if function is not MISSING:
        yield function
    if type(module) is not types.ModuleType:
        found.names.append((module, "__class__", type(module)))
        yield type(module)


def by_chains(
    module: types.ModuleType, chains: set[tuple[str, ...]], found: CapturedState
) -> Iterator[Any]:
    """What the code reads by ``module.name.name``, or stores; a module at the end is handed on."""
    for chain in sorted(chains):
        namespace: Any = module
        for name in chain:
            space, library = vars(namespace), is_library(namespace)
            plain = type(namespace) is types.ModuleType
            if _is_of_every_module(namespace, name):
                yield namespace  # as ``__dict__``: what is read of that is not seen
                break
            if library or (plain and name in space):
                item = unreplaced(getattr(namespace, name, MISSING))
                found.names.append((namespace, name, item))
            else:
                item = space.get(name, MISSING)
                found.names.append((space, name, item))
                yield from answering(namespace, found)
            if not isinstance(item, types.ModuleType):
                yield item
                break
            namespace = item
        else:
            yield namespace
