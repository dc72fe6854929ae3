"""What a function reads without being passed it, and whether that has changed.

In: a function. Out: a ``Surroundings``: the Values it may reach through its global names, closure,
defaults, ``self`` and Python helpers, and a check, quick enough for every call, that everything
else reached so is as it was. Values are known by identity and read afresh, so a changed ``p.data``
needs no new recording. What can change unseen (an iterator, a deque) is refused.
"""

from __future__ import annotations

import builtins
import collections
import copy
import datetime
import dis
import functools
import gc
import itertools
import logging
import numbers
import operator
import pathlib
import random
import re
import sys
import sysconfig
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic

import numpy as np

from chainrule.compiler.capture.standins import Unrecordable
from chainrule.core import errors
from chainrule.core.backend import Value, kernels

Point = collections.namedtuple("Point", "x")  # for the type of its fields

_ATOMS = (
    *(int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented)),
    *(range, slice, numbers.Number, np.generic, np.dtype, re.Pattern, types.BuiltinFunctionType),
    *(types.CodeType, types.GenericAlias, types.UnionType, np.ufunc, type(np.sum)),
    *(operator.attrgetter, operator.itemgetter, operator.methodcaller),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, pathlib.PurePath),
    *(type(threading.Lock()), type(threading.RLock())),
)
_DESCRIPTORS = (
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType),
    *(types.MethodDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType),
    type(Point.x),
)
_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
_LIBRARIES = tuple(
    path
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    if (path := sysconfig.get_path(name))
)
# Looked up by name at run time, these reach anything.
_DYNAMIC = frozenset(("globals", "locals", "vars", "eval", "exec", "open", "__import__"))
_DYNAMIC_ATTRIBUTES = frozenset(("environ", "getenv", "warn", "import_module", "modules"))
_FILE_NAMES = frozenset(("open", "read_text", "read_bytes", "write_text", "write_bytes", "touch"))
_BY_NAME = frozenset(("getattr", "hasattr", "setattr", "attrgetter", "__dict__"))
_LOOKS = frozenset(("label", "op", "_op", "children", "_children", "_prev"))
_GENERATED = frozenset(("__eq__", "__setattr__", "__delattr__", "__lt__", "__le__", "__hash__"))
_IDENTITY = frozenset(("id", "hash", "set", "frozenset", "index", "count", "remove"))
_COLLECTIONS = (list, tuple, dict, set, frozenset)
_LIMIT = 1_000_000
_MISSING = object()


class Method:
    """A function and the instance it is bound to, which it does not keep alive if it can."""

    def __init__(
        self, function: Callable[..., Any], instance: Any, gone: Callable[[Any], None]
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        try:
            self.instance: Callable[[], Any] = weakref.ref(instance, gone)
        except TypeError:
            self.instance = lambda: instance

    @property
    def attributes(self) -> Any:
        """The instance's own."""
        return getattr(self.instance(), "__dict__", None)

    @attributes.setter
    def attributes(self, attributes: Any) -> None:
        self.instance().__dict__ = attributes

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Call the method."""
        return self.function(self.instance(), *arguments, **keywords)


@dataclass(eq=False)
class Surroundings:
    """What a function reaches, as it was when it was walked."""

    values: list[Value] = field(default_factory=list)
    lists: list[tuple[list[Any], tuple[Any, ...]]] = field(default_factory=list)
    dicts: list[tuple[Any, dict[Any, Any], Any]] = field(default_factory=list)  # and its owner
    sets: list[tuple[set[Any], frozenset[Any]]] = field(default_factory=list)
    names: list[tuple[Any, str, Any]] = field(default_factory=list)  # namespace, name, object
    cells: list[tuple[Any, Any]] = field(default_factory=list)
    arrays: list[tuple[Any, Any, bytes]] = field(default_factory=list)
    generators: list[tuple[Any, Any, str]] = field(default_factory=list)  # its state, and as text
    place: dict[int, int] = field(default_factory=dict)  # of each Value in ``values``
    identity: bool = False  # some code asks which Value or list it has, as by ``is``
    looks: bool = False  # some code may read a Value's label or operation
    catches: set[types.CodeType] = field(default_factory=set)  # code that may catch errors
    bound: set[int] = field(default_factory=set)  # ids of instances that are not to be kept alive
    _labels: list[str] = field(default_factory=list)

    def marks(self, passed: list[Value]) -> tuple[Any, ...]:
        """What a recording takes for granted of the Values that are passed."""
        places = tuple([self.place.get(id(v), -1) for v in passed])
        return (places, *[(v.label, v.op) for v in passed]) if self.looks else places

    def changed(self) -> str | None:
        """What is no longer as it was, in words, or None."""
        if self.looks and [v.label for v in self.values] != self._labels:
            return "the label of a Value"
        if self._by_identity is not None and self._by_identity.failed() < 0:
            return self._changed_contents()
        for namespace, name, before in self.names:
            now = _look_up(namespace, name)
            if now is not before and not _same(now, before):
                return f"{name!r}"
        for cell, before in self.cells:
            now = _content(cell)
            if now is not before and not _same(now, before):
                return "a variable of an enclosing function"
        for mapping, contents, _ in self.dicts:
            if (change := _changed_mapping(mapping, contents)) is not None:
                return change
        for items, before_items in self.lists:
            if len(items) != len(before_items) or not all(map(_same, items, before_items)):
                return "an item of a list"
        return self._changed_contents()

    @functools.cached_property
    def _by_identity(self) -> Any:
        """What is as it was if certain objects are still the same, for the check in C."""
        if kernels is None:
            return None
        names = [*self.names, *[(cell, "cell_contents", before) for cell, before in self.cells]]
        once = {(id(s), name, id(x)): (s, name, x) for s, name, x in names}.values()
        dicts = [(_dict_of(m), c) for m, c, _ in self.dicts]
        return kernels.Checks(
            (
                *[(s, name, None, None) if x is _MISSING else (s, name, x) for s, name, x in once],
                *[(m, (*itertools.chain(*c.items()),)) for m, c in dicts if m is not None],
                *self.lists,
            )
        )

    @functools.cached_property
    def _other_mappings(self) -> list[tuple[Any, dict[Any, Any]]]:
        return [(m, c) for m, c, _ in self.dicts if _dict_of(m) is None]

    def _changed_contents(self) -> str | None:
        """What the check in C leaves out."""
        for mapping, contents in self._other_mappings:
            if (change := _changed_mapping(mapping, contents)) is not None:
                return change
        for members, frozen in self.sets:
            if members != frozen:
                return "the members of a set"
        for array, shape, contents_ in self.arrays:
            if array.shape != shape or array.tobytes() != contents_:
                return "the contents of an array"
        for generator, _, text in self.generators:
            if repr(_state(generator)) != text:
                return "the state of a random generator"
        return None

    def restore(self) -> None:
        """Put everything back as it was: a recorded run must leave no trace."""
        for namespace, name, before in self.names:
            if _look_up(namespace, name) is not before:
                _put(namespace, name, before)
        for cell, before in self.cells:
            if _content(cell) is not before and before is not _MISSING:
                cell.cell_contents = before
        for items, before_items in self.lists:
            if len(items) != len(before_items) or any(
                a is not b for a, b in zip(items, before_items, strict=True)
            ):
                items[:] = before_items
        for mapping, contents, owner in self.dicts:
            _restore_mapping(mapping, contents, owner)
        for members, frozen in self.sets:
            if members != frozen:
                members.clear()
                members.update(frozen)
        for array, shape, contents_ in self.arrays:
            if array.shape == shape and array.dtype != object and array.tobytes() != contents_:
                array[...] = np.frombuffer(contents_, array.dtype).reshape(shape)
        for generator, state, _ in self.generators:
            _set_state(generator, state)


def _changed_mapping(mapping: Any, contents: dict[Any, Any]) -> str | None:
    if len(mapping) != len(contents) or list(mapping) != list(contents):
        return "the keys of a dict or the attributes of an object"
    for key, before in contents.items():
        now = mapping[key]
        if now is not before and not _same(now, before):
            return f"{key!r}"
    return None


def _restore_mapping(mapping: Any, contents: dict[Any, Any], owner: Any) -> None:
    same = list(mapping) == list(contents)
    if same and all(mapping[key] is x for key, x in contents.items()):
        return
    if isinstance(mapping, dict):
        mapping.clear()
        mapping.update(contents)
        return
    if owner is None:
        return
    for key in [*mapping]:  # a class's attributes
        if key not in contents:
            delattr(owner, key)
    for key, x in contents.items():
        if mapping.get(key) is not x:
            setattr(owner, key, x)


def _same(now: Any, before: Any) -> bool:
    """Identical, or an equal number or text, zeros by their sign too."""
    if now is before:
        return True
    if type(now) is not type(before):
        return False
    if isinstance(now, (float, np.floating)):
        return np.float64(now).tobytes() == np.float64(before).tobytes()
    return isinstance(now, (int, str, bytes, complex, np.generic)) and bool(now == before)


def _dict_of(mapping: Any) -> dict[Any, Any] | None:
    """The dict itself, also of a class's attributes, where only the collector shows it."""
    if isinstance(mapping, dict):
        return mapping
    found = gc.get_referents(mapping) if type(mapping) is types.MappingProxyType else []
    return found[0] if [type(x) for x in found] == [dict] else None


def _look_up(namespace: Any, name: str) -> Any:
    if isinstance(namespace, dict):
        return namespace.get(name, _MISSING)
    return getattr(namespace, name, _MISSING)


def _put(namespace: Any, name: str, x: Any) -> None:
    if isinstance(namespace, dict):
        if x is _MISSING:
            namespace.pop(name, None)
        else:
            namespace[name] = x
    elif x is not _MISSING:
        setattr(namespace, name, x)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state()
    return copy.deepcopy(generator.bit_generator.state)


def _set_state(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    else:
        generator.bit_generator.state = state


def survey(function: Callable[..., Any]) -> Surroundings:
    """Walk everything the function reaches; Unrecordable where something cannot be followed."""
    found = Surroundings()
    seen: set[int] = set()
    kept: list[Any] = []  # so that no id is used twice
    stack: list[Any] = [function]
    while stack:
        x = stack.pop()
        if id(x) in seen or _is_atom(x):
            continue
        seen.add(id(x))
        kept.append(x)
        if len(kept) > _LIMIT:
            raise Unrecordable("it reaches too many objects to follow")
        stack.extend(reversed(list(_reached(x, found))))  # depth first, in the order of the source
    found.values = list({id(v): v for v in found.values}.values())
    found.place = {id(v): i for i, v in enumerate(found.values)}
    found._labels = [v.label for v in found.values] if found.looks else []
    return found


def _is_atom(x: Any) -> bool:
    """Whether nothing about ``x`` can change."""
    if isinstance(x, np.ufunc) and set("".join(x.types)) <= set("O->"):
        raise Unrecordable("it reaches a numpy function made of a Python one")
    if isinstance(x, _DESCRIPTORS):
        return True
    own_class = bool(type(x).__flags__ & (1 << 9)) and hasattr(x, "__dict__")
    return isinstance(x, _ATOMS) and not _has_self(x) and not own_class


def _has_self(x: Any) -> bool:
    """Whether this is a builtin method of some object, such as ``xs.append``."""
    return isinstance(x, types.BuiltinFunctionType) and not isinstance(
        x.__self__, (types.ModuleType, type, type(None))
    )


def _reached(x: Any, found: Surroundings) -> Iterator[Any]:
    """Note what can change about ``x`` and give what is inside it."""
    if isinstance(x, Value):
        found.values.append(x)
        if type(x) is not Value:
            yield from _attributes(x, found)
    elif isinstance(x, (types.MethodType, types.BuiltinFunctionType)):
        yield getattr(x, "__func__", None)
        yield x.__self__
    elif isinstance(x, types.FunctionType):
        if not _is_library(x.__code__.co_filename):
            yield from _reached_by_code(x, found)
        else:  # its globals keep still, but it may hold functions of the user's
            yield from map(_content, x.__closure__ or ())
            yield from (item for name, item in x.__dict__.items() if name != "__signature__")
    elif isinstance(x, Method):
        if isinstance(x.attributes, dict):
            found.names.append((x, "attributes", x.attributes))
            found.bound.add(id(x.instance()))
        yield from (x.function, x.instance())
    elif isinstance(x, functools.partial):
        found.dicts.append((x.keywords, dict(x.keywords), x))
        yield from (x.func, *x.args, *x.keywords.values())
    elif isinstance(x, logging.Logger):
        raise Unrecordable("it logs")
    elif isinstance(x, list):
        found.lists.append((x, tuple(x)))
        yield from x
        if type(x) is not list:
            yield from _attributes(x, found)
    elif isinstance(x, (tuple, frozenset)):
        yield from x
        if isinstance(attributes := getattr(x, "__dict__", None), dict):
            found.names.append((x, "__dict__", attributes))
            found.dicts.append((attributes, dict(attributes), None))
            yield from attributes.values()
    elif isinstance(x, set):
        found.sets.append((x, frozenset(x)))
        yield from x
        if type(x) is not set:
            yield from _attributes(x, found)
    elif isinstance(x, dict):
        found.dicts.append((x, dict(x), None))
        yield from (*x.keys(), *x.values())
        if type(x) is not dict:
            yield from _attributes(x, found)
    elif isinstance(x, types.MappingProxyType):
        found.dicts.append((x, dict(x), None))
        yield from x.values()
    elif isinstance(x, np.ndarray):
        found.arrays.append((x, x.shape, x.tobytes()))
        if x.dtype == object:
            yield from x.ravel().tolist()
    elif isinstance(x, _GENERATORS):
        found.generators.append((x, _state(x), repr(_state(x))))
    elif isinstance(x, type):
        if not _is_library_module(x.__module__):
            found.dicts.append((vars(x), dict(vars(x)), x))
            yield from (type(x), *x.__bases__)
            yield from (item for name, item in vars(x).items() if _is_content(name, item))
    elif isinstance(x, (staticmethod, classmethod)):
        yield x.__func__
    elif isinstance(x, (property, functools.cached_property)):
        yield getattr(x, "fget", None) or getattr(x, "func", None)
    elif isinstance(x, types.ModuleType):
        return  # its attributes are followed by name
    elif isinstance(x, functools._lru_cache_wrapper):
        raise Unrecordable(f"it reaches {x.__name__!r}, which keeps results in a cache")
    elif hasattr(x, "__wrapped__"):
        yield x.__wrapped__
    else:
        yield from _attributes(x, found)


def _attributes(x: Any, found: Surroundings) -> Iterator[Any]:
    """An object's own attributes, by ``__dict__`` and by slots, and its class."""
    attributes = getattr(x, "__dict__", None)
    slots = [s for cls in type(x).__mro__ for s in _slots(cls)]
    plain = isinstance(attributes, dict) or slots or type(x) in (object, Value, dict)
    if not plain or any(map(_holds_more, type(x).__mro__)):
        raise Unrecordable(f"it reaches a {type(x).__name__}, which cannot be followed")
    yield type(x)
    if isinstance(attributes, dict):
        if id(x) not in found.bound:
            found.names.append((x, "__dict__", attributes))
        found.dicts.append((attributes, dict(attributes), None))
        yield from attributes.values()
    for name in slots:
        item = getattr(x, name, _MISSING)
        found.names.append((x, name, item))
        yield item


def _is_content(name: str, item: Any) -> bool:
    """Whether a class attribute is the user's: not what Python keeps there for itself."""
    methods = (types.FunctionType, property, staticmethod, classmethod)
    machinery = name == "_abc_impl" or (name.startswith("__") and name.endswith("__"))
    return isinstance(item, methods) or not machinery


def _holds_more(cls: type) -> bool:
    """Whether a base written in C holds contents that attributes do not show."""
    is_python = bool(cls.__flags__ & (1 << 9))  # a heap type
    return not is_python and cls not in (object, Value, dict, list, set) and cls is not Generic


def _slots(cls: type) -> tuple[str, ...]:
    if cls in Value.__mro__:
        return ()
    slots = cls.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(
        f"_{cls.__name__.lstrip('_')}{n}" if n.startswith("__") and not n.endswith("__") else n
        for n in names
        if n not in ("__dict__", "__weakref__")
    )


def _is_library(filename: str | None) -> bool:
    """Whether code comes with Python or an installed package, and so keeps its globals."""
    return filename is None or filename.startswith((*_LIBRARIES, errors.PACKAGE, "<frozen"))


def _is_library_module(name: str) -> bool:
    module = sys.modules.get(name)
    if name in sys.builtin_module_names:
        return True
    filename = getattr(module, "__file__", None)
    return module is not None and filename is not None and _is_library(filename)


def _reached_by_code(function: types.FunctionType, found: Surroundings) -> Iterator[Any]:
    names, used = _names(function.__code__), _global_names(function.__code__)
    namespace = function.__globals__
    for name in sorted((used & _DYNAMIC) | (names & _DYNAMIC_ATTRIBUTES)):
        if name not in namespace or not isinstance(namespace[name], types.FunctionType):
            raise Unrecordable(f"it uses {name}, which reaches what cannot be followed")
    if _asks_is_true(function.__code__):
        raise Unrecordable("it asks whether something is True or False by 'is' or 'match'")
    found.catches.update(_catching(function.__code__))
    found.looks |= bool(names & _LOOKS)
    found.identity |= (
        bool(names & _LOOKS)
        or not names.isdisjoint(_IDENTITY)
        or _asks_identity(function.__code__, namespace)
    ) and not _is_generated(function)
    found.names += [
        (function, part, getattr(function, part))
        for part in ("__code__", "__defaults__", "__kwdefaults__", "__dict__")
    ]
    found.dicts.append((function.__dict__, dict(function.__dict__), None))
    yield from function.__dict__.values()
    for cell in function.__closure__ or ():
        content = _content(cell)
        found.cells.append((cell, content))
        yield content
        if isinstance(content, pathlib.PurePath) and names & _FILE_NAMES:
            raise Unrecordable("it uses files")
        if isinstance(content, types.ModuleType):
            yield from _reached_in_module(content, names, found, set())
    yield from function.__defaults__ or ()
    if function.__kwdefaults__:
        found.dicts.append((function.__kwdefaults__, dict(function.__kwdefaults__), function))
        yield from function.__kwdefaults__.values()
    for name in sorted(used):
        x = namespace.get(name, _MISSING)
        found.names.append((namespace, name, x))
        if x is _MISSING and name not in ("max", "min"):  # which recording replaces
            found.names.append((vars(builtins), name, vars(builtins).get(name, _MISSING)))
        if isinstance(x, pathlib.PurePath) and names & _FILE_NAMES:
            raise Unrecordable("it uses files")
        yield x
        module = x if x is not _MISSING else sys.modules.get(name)
        if isinstance(module, types.ModuleType):
            yield from _reached_in_module(module, names, found, set())


def _reached_in_module(
    module: types.ModuleType, names: set[str], found: Surroundings, seen: set[int]
) -> Iterator[Any]:
    """The attributes of a module of the user's own that the code may name."""
    if id(module) in seen or _is_library_module(module.__name__):
        return
    seen.add(id(module))
    if names & _BY_NAME:
        found.dicts.append((vars(module), dict(vars(module)), None))
    for name in sorted(names):
        item = getattr(module, name, _MISSING)
        found.names.append((module, name, item))
        yield item
        if isinstance(item, types.ModuleType):
            yield from _reached_in_module(item, names, found, seen)


def _asks_is_true(code: types.CodeType) -> bool:
    """Whether there is an ``is True``, which a comparison's stand-in cannot hear."""
    lines: dict[Any, set[str]] = {}
    for step in dis.get_instructions(code):
        where = step.positions.lineno if step.positions is not None else None
        if step.opname == "IS_OP" or isinstance(step.argval, bool):
            lines.setdefault(where, set()).add("is" if step.opname == "IS_OP" else "truth")
    if any(found == {"is", "truth"} for found in lines.values()):
        return True
    return any(_asks_is_true(c) for c in code.co_consts if isinstance(c, types.CodeType))


def _is_generated(function: types.FunctionType) -> bool:
    """Whether it is a method that a dataclass made, which only asks for its own class."""
    code = function.__code__
    return code.co_filename == "<string>" and code.co_name in _GENERATED


def _asks_identity(code: types.CodeType, namespace: dict[str, Any]) -> bool:
    """Whether there is an ``is``, ``in`` or set that may tell one Value, or list, from another."""
    steps = [s for s in dis.get_instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")]
    for k, step in enumerate(steps):
        if step.opname == "BUILD_SET":
            return True
        if step.opname not in ("IS_OP", "CONTAINS_OP"):
            continue
        left, right = steps[k - 2], steps[k - 1]
        if right.opname == "LOAD_GLOBAL":
            x = namespace.get(right.argval)
            inside = x if step.opname == "CONTAINS_OP" and isinstance(x, _COLLECTIONS) else (x,)
            if any(isinstance(item, (Value, list, tuple, np.ndarray)) for item in inside):
                return True
        elif "CONST" not in right.opname:
            simple = right.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_NAME"))
            if not (simple and "CONST" in left.opname):
                return True
    return any(_asks_identity(c, namespace) for c in code.co_consts if type(c) is types.CodeType)


def _catching(code: types.CodeType) -> Iterator[types.CodeType]:
    """Those of a function and the functions inside it that have an ``except`` or ``with``."""
    if any(step.opname == "PUSH_EXC_INFO" for step in dis.get_instructions(code)):
        yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _catching(constant)


def _global_names(code: types.CodeType) -> set[str]:
    """The names that a function and those inside it look up in globals, or import."""
    names = {
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "IMPORT_NAME")
    }
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _names(code: types.CodeType) -> set[str]:
    """Every global or attribute name in a function and the functions inside it."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names
