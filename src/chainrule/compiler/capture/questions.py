"""What code may ask of the things it reaches that comparing these does not show.

In: everything that the walk meets, and then the code of all functions. Out: what can be watched is
noted in the ``CapturedState`` (names of classes, annotations, metadata); Unrecordable where code
may ask for what cannot be: whether a lock is held, what is in a file, which day it is. What is
asked by names that are made at run time, hooks see: they refuse what nobody watches.
"""

from __future__ import annotations

import dataclasses
import datetime
import operator
import pathlib
import re
import threading
import types
from collections.abc import Iterable
from typing import Any

import numpy as np

from chainrule.compiler.capture import disassembly, known
from chainrule.compiler.capture.captured import PRINTING, CapturedState
from chainrule.compiler.capture.rewriting import original
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.ways import own_place

GETTERS: tuple[Any, ...] = (operator.attrgetter, operator.methodcaller)
#: attributes through which code gets at what is not followed
REACHING = frozenset(
    (
        *("environ", "getenv", "warn", "import_module", "modules", "__subclasses__", "getmodule"),
        *("__globals__", "f_globals", "f_locals", "f_back", "tb_frame", "gi_frame", "cr_frame"),
        *("__builtins__", "__weakref__", "__context__"),
    )
)
#: of a Value, what its number and its derivative are not
LOOKS = frozenset(("label", "op", "_op", "children", "_children", "_prev"))
#: whose call asks for any name, unless a hook sees it
_BY_ANY_NAME = frozenset(map(id, (getattr, hasattr, *GETTERS)))
_BY_ITSELF = "__getattribute__"
#: of functions and classes: what no dict of theirs has
_TITLES = ("__name__", "__qualname__", "__module__", "__doc__")
#: of these, what is in a text of a function or a class
_WRITTEN = ("__name__", "__qualname__", "__module__")
_ANNOTATED = frozenset(
    ("__annotations__", "get_type_hints", "get_annotations", "signature", "getfullargspec")
)
#: of a dataclass's fields: what their objects hold beside names and types
_OF_FIELDS = ("default", "default_factory", "metadata")
_OF_DATACLASSES = frozenset(("fields", "__dataclass_fields__", "asdict", "astuple", "replace"))
_BY_TEXTS = frozenset(("getattr", "hasattr", _BY_ITSELF, *(g.__name__ for g in GETTERS)))
_WRITING = frozenset(
    "str repr format format_map vformat ascii array2string array_repr array_str __str__ __repr__ "
    "__format__ substitute safe_substitute".split()
)
#: which enter what ``with`` would leave again
_ENTERING = frozenset(("__enter__", "__exit__", "enter_context", "push"))
_OF_LOCKS = _ENTERING | {"locked", "acquire", "release", "_is_owned"}
_LOCKS = (type(threading.Lock()), type(threading.RLock()))
_CLOCKS = frozenset(("today", "now", "utcnow"))
_CLASSES = frozenset(("type", "__class__", "fields", "__dataclass_fields__", "_field_defaults"))
_CONSTANT = frozenset((int, float, complex, str, bytes, bool, type(None)))
_OF_MEMORY = frozenset(("flags", "strides", "ctypes", "__array_interface__", "__array_struct__"))
_CALLED = (type, types.BuiltinFunctionType, known.DISPATCHED)
_IN_C = (
    *(*_CALLED, types.MethodWrapperType, types.WrapperDescriptorType, types.MethodDescriptorType),
    *(types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType),
)
_FIELD, _NAME = re.compile(r"\{[^{}]*\}"), re.compile(r"\.([^\W\d]\w*)")
_OF_FILES = frozenset(dir(pathlib.Path)) - frozenset(dir(pathlib.PurePath))
#: what is watched, or noted, where code has these names
_ANSWERED = frozenset(
    (*_TITLES, *_ANNOTATED, *_OF_FIELDS, *_OF_DATACLASSES, *_WRITING, *_CLASSES, *LOOKS)
) | {"__slots__", "__hash__", "base"}


class Questions:
    """What is reached that may be asked for more than its contents."""

    def __init__(self) -> None:
        #: what is asked by which names
        self._unanswerable = {"how much memory something takes": frozenset(("__sizeof__",))}
        self._getters: list[Any] = []
        self._properties: list[property] = []
        self._named: set[str] = set()  # what the code calls, perhaps under other names
        self._methods: set[str] = set()  # of these, what asks objects, as attributes do
        self._asks_any = False  # it may ask for names that neither code nor a hook shows

    def note(self, x: Any) -> None:
        """Something that the function reaches."""
        if isinstance(x, _LOCKS):
            self._unanswerable["whether a lock is held, other than by 'with'"] = _OF_LOCKS
        elif x is np.errstate:
            self._unanswerable["numpy to treat errors otherwise, but for 'with'"] = _ENTERING
        elif isinstance(x, pathlib.Path):
            self._unanswerable["a path for what is in files"] = _OF_FILES
        elif issubclass(x if isinstance(x, type) else type(x), datetime.date):
            self._unanswerable["what time it is"] = _CLOCKS
        elif isinstance(x, GETTERS):
            self._getters.append(x)
        elif isinstance(x, property):
            self._properties.append(x)
        elif type(x) is str:
            self.note_texts([x])
        elif id(x) in _BY_ANY_NAME:
            self._asks_any = True
        if isinstance(x, _IN_C) and not _is_slot(x):
            self._named.add(x.__name__)
            if not isinstance(x, _CALLED) or _is_bound(x):
                self._methods.add(x.__name__)
                self._asks_any |= x.__name__ == _BY_ITSELF

    def note_texts(self, texts: Iterable[str]) -> None:
        """Texts, which may be formats with fields."""
        for text in texts:
            self._methods |= in_field(text)

    def settle(self, found: CapturedState, classes: list[type]) -> None:
        """Watch what all code may ask for, once that is known; Unrecordable where it cannot be."""
        if found.arrays:
            self._unanswerable["how an array lies in memory"] = _OF_MEMORY
        if self._asks_any:
            raise Unrecordable(
                "it may ask for attributes by names that are in no code, other than by calls of "
                "getattr, attrgetter and methodcaller under their own names"
            )
        codes = [original(function.__code__) for function in found.functions]
        given = self._methods.union(*map(_named_by, self._getters))
        if any(map(disassembly.matches_classes, codes)):
            given = given.union(*map(disassembly.matched_names, codes), *map(_in_matches, classes))
        where = [*zip(found.functions, map(_used, codes), strict=True)]
        for what, names in self._unanswerable.items():
            if given & names:
                raise Unrecordable(f"it may ask {what}")
            _refuse(where, names, what)
        unfollowed = REACHING | known.EFFECTS | {"__dict__"}
        for name in sorted(given & unfollowed):
            raise Unrecordable(f"it uses {name}, which reaches what cannot be followed")
        asked = self._named.union(*map(disassembly.names, codes), *map(disassembly.texts, codes))
        asked = asked.union(given, *map(_in_fields, codes))
        found.looks |= not given.isdisjoint(LOOKS)
        noted = asked - (LOOKS if not found.looks else frozenset())
        noted -= {"__hash__"} if not found.hashes else frozenset()
        refused = (REACHING | known.EFFECTS).union(*self._unanswerable.values())
        found.unasked = refused | (_ANSWERED - noted)
        if "eval_str" in asked and not asked.isdisjoint(_ANNOTATED):
            raise Unrecordable(
                "it may ask for annotations that are texts, and what these stand for"
            )
        found.asks_classes = not asked.isdisjoint(_CLASSES)
        writes = not asked.isdisjoint(_WRITING) or any(map(disassembly.writes, codes))
        _watch_titles(found, classes, asked, writes)
        _watch_fields(found, classes, asked)
        if "__doc__" in asked or "getdoc" in asked:
            found.names += [(x, "__doc__", x.__doc__) for x in self._properties]
        if "base" in asked:
            _watch_bases(found)
        if writes:
            found.names.append((PRINTING, "mark", PRINTING.mark))


def _named_by(getter: Any) -> frozenset[str]:
    """The attributes that an ``attrgetter`` or ``methodcaller`` asks for."""
    maker, arguments, *_ = getter.__reduce__()  # as the collector does not show its names
    texts = [x for x in (*getattr(maker, "args", ()), *arguments) if type(x) is str]
    return frozenset(name for text in texts for name in text.split("."))


def _in_fields(code: types.CodeType) -> frozenset[str]:
    """The attributes that fields of format strings name, as ``"{0.name}"`` does."""
    return frozenset[str]().union(*map(in_field, disassembly.texts(code)))


def in_field(text: str) -> frozenset[str]:
    """The attributes that fields of one format string name."""
    return frozenset(name for field in _FIELD.findall(text) for name in _NAME.findall(field))


def _in_matches(cls: type) -> frozenset[str]:
    """The attributes that a ``case`` of a class asks for by their places."""
    names = vars(cls).get("__match_args__", ())
    return frozenset(names) if type(names) is tuple else frozenset()


def _is_slot(x: Any) -> bool:
    """Whether this is what a class of the user's has for one of its slots, which are watched."""
    return isinstance(x, types.MemberDescriptorType) and known.is_python_class(x.__objclass__)


def _is_bound(x: Any) -> bool:
    """Whether this is a method in C of some object."""
    owner = getattr(x, "__self__", None)
    return owner is not None and not isinstance(owner, (types.ModuleType, type))


def _used(code: types.CodeType) -> set[str]:
    """The attributes that code may ask for."""
    used = disassembly.names(code) | _in_fields(code)
    return used if used.isdisjoint(_BY_TEXTS) else used | disassembly.texts(code)


def _refuse(
    used: list[tuple[types.FunctionType, set[str]]], names: frozenset[str], what: str
) -> None:
    """Refuse code that may ask for what cannot be watched."""
    for function, asked in used:
        if found := asked & names:
            raise Unrecordable(f"it may ask {what}{own_place(function, found)}")


def _watch_titles(found: CapturedState, classes: list[type], asked: set[str], writes: bool) -> None:
    """The names, texts and annotations of functions and classes, where code asks for them."""
    own = [*filter(known.is_python_class, classes)]
    titles = asked.intersection(_TITLES)
    titles |= {"__doc__"} if "getdoc" in asked else set()
    found.names += [(x, title, getattr(x, title)) for title in titles for x in found.functions]
    if writes:  # as ``str`` of a function or a class does, and of an item of an enum
        titles.update(_WRITTEN)
        found.names += [(x, "__qualname__", x.__qualname__) for x in found.functions]
    found.names += [(x, title, getattr(x, title)) for title in titles for x in own]
    if not asked.isdisjoint(_ANNOTATED):
        for function in found.functions:
            found.names.append((function, "__annotations__", function.__annotations__))
        notes: list[Any] = [x.__annotations__ for x in found.functions]
        notes += [vars(cls).get("__annotations__") for cls in classes]
        for each in notes:
            if type(each) is dict:
                found.dicts.append((each, dict(each), None))
                _refuse_inconstant(each.values(), "an annotation holds")
    if "__slots__" in asked:
        slots = [vars(cls).get("__slots__") for cls in classes]
        found.lists += [(names, tuple(names)) for names in slots if type(names) is list]


def _watch_fields(found: CapturedState, classes: list[type], asked: set[str]) -> None:
    """What the fields of dataclasses are, and hold, where code may ask for it."""
    if asked.isdisjoint(_OF_DATACLASSES):
        return
    parts = asked.intersection(_OF_FIELDS)
    named = parts | asked.intersection(("type",))
    for cls in filter(dataclasses.is_dataclass, classes):
        fields: dict[str, Any] = cls.__dataclass_fields__
        found.dicts.append((fields, dict(fields), None))
        for field in fields.values():
            found.names += [(field, part, getattr(field, part)) for part in named]
            contents = [getattr(field, part) for part in parts - {"metadata"}]
            if "metadata" in parts:
                found.dicts.append((field.metadata, dict(field.metadata), None))
                contents += field.metadata.values()
            _refuse_inconstant(contents, f"field {field.name!r} of {cls.__name__} holds")


def _watch_bases(found: CapturedState) -> None:
    """The arrays of which others are views."""
    for array, *_ in [*found.arrays]:
        base = array.base
        if type(base) is np.ndarray and not base.dtype.hasobject:
            found.arrays.append((base, base.shape, base.tobytes()))
            found.names.append((base, "dtype", base.dtype))
        elif base is not None:
            raise Unrecordable("it may ask of what an array is a view")


def _refuse_inconstant(contents: Iterable[Any], what: str) -> None:
    if not all(map(_is_constant, contents)):
        raise Unrecordable(f"it may ask for what {what}; keep numbers and texts there")


def _is_constant(x: Any) -> bool:
    """Whether an object is its contents, and does not change."""
    if type(x) is tuple:
        return all(map(_is_constant, x))
    if isinstance(x, (types.GenericAlias, types.UnionType)):
        return all(map(_is_constant, x.__args__))
    is_pure = isinstance(x, type) and known.is_pure_class(x)
    return is_pure or x is dataclasses.MISSING or type(x) in _CONSTANT
