"""What a recording may run and read: known to be pure, known to be watched completely, or refused.

A replay repeats the arithmetic of a recording and nothing else. So every callable that a recorded
function reaches is Python code that is walked itself, or is listed here as pure: it reads nothing
but its arguments and changes nothing. Clocks, files, random numbers, logging, the environment and
unknown C functions are not. Every object whose contents it reads is of a type whose contents can
be compared completely.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import fractions
import functools
import itertools
import operator
import pathlib
import re
import sys
import threading
import types
import typing
from typing import Any

import numpy as np

from chainrule.core import errors
from chainrule.core.backend import Value

_Point = collections.namedtuple("_Point", "x")  # for the type of its fields

#: types whose objects never change
ATOMS = (
    *(int, float, complex, str, bytes, bool, type(None), type(Ellipsis), type(NotImplemented)),
    *(range, slice, fractions.Fraction, np.generic, np.dtype, re.Pattern, types.CodeType),
    *(types.GenericAlias, types.UnionType, np.ufunc),
    *(operator.attrgetter, operator.itemgetter, operator.methodcaller),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, pathlib.PurePath),
    *(type(threading.Lock()), type(threading.RLock()), enum.Enum),
    *(type(typing.List), type(typing.Union[int, str]), typing.TypeVar),  # noqa: UP006, UP007
)
DESCRIPTORS = (
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.WrapperDescriptorType),
    *(types.MethodDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType),
    type(_Point.x),
)
_METHODS_IN_C = (
    *(types.WrapperDescriptorType, types.MethodDescriptorType, types.ClassMethodDescriptorType),
)
#: classes written in C whose whole contents a watched object shows
WATCHABLE = frozenset(
    (
        *(object, dict, list, set, frozenset, tuple, int, float, complex, str, bytes, Value),
        *(collections.OrderedDict, collections.defaultdict, typing.Generic, types.SimpleNamespace),
    )
)

_PURE_MODULES = frozenset(
    (
        *("math", "cmath", "operator", "_operator", "itertools", "functools", "_functools"),
        *("_bisect", "bisect", "_heapq", "heapq", "_collections", "_statistics", "statistics"),
        *("_struct", "binascii", "unicodedata", "_string", "_sre", "_typing"),
        *("dataclasses", "collections", "copy", "fractions", "enum", "types"),
        *("numbers", "re", "string", "reprlib", "keyword"),
    )
)
#: of modules that also read or change more than their arguments: functions that do not; the others
#: are walked as the user's are
_PURE_FUNCTIONS = {
    "abc": frozenset(("abstractmethod",)),
    "contextlib": frozenset(("contextmanager", "asynccontextmanager", "helper", "inner")),
    "inspect": frozenset(
        "signature getfullargspec get_annotations getdoc cleandoc getmro isabstract isbuiltin "
        "isclass iscoroutinefunction isdatadescriptor isfunction isgenerator isgeneratorfunction "
        "ismethod ismethoddescriptor ismodule isroutine unwrap".split()
    ),
}
#: functions of ``typing`` that read globals or a table of its own, or write
_IMPURE_TYPING = frozenset(
    "get_type_hints get_overloads overload clear_overloads reveal_type _eval_type".split()
)
_PARTLY_PURE = frozenset((*_PURE_FUNCTIONS, "typing"))
#: classes there whose instances change what is the program's once they are entered
_CHANGING_CLASSES = frozenset("redirect_stdout redirect_stderr _RedirectStream chdir".split())
_IMPURE_BUILTINS = frozenset(
    (
        *("open", "print", "input", "exec", "eval", "compile", "__import__", "id", "globals"),
        *("locals", "vars", "breakpoint", "help", "__build_class__", "memoryview", "aiter"),
    )
)
_IMPURE_NUMPY = frozenset(
    (
        *("load", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt"),
        *("fromfile", "fromregex", "memmap", "DataSource", "seterr", "seterrcall", "setbufsize"),
        *("set_printoptions", "show_config", "info", "test", "frompyfunc", "printoptions"),
        *("copyto", "put", "putmask", "place", "fill_diagonal", "put_along_axis"),
    )
)
#: numpy's functions of arrays, which ask an array of data what they mean for it
DISPATCHED: Any = type(np.sum)
#: its other functions that may be called. ``np.ascontiguousarray`` and its like are not among them:
#: they take an array of data for the array of objects that it is in memory
_MAKING = frozenset(
    getattr(np, name)
    for name in (
        "array asarray arange zeros ones empty full eye identity indices tri fromiter fromfunction "
        "isscalar iterable issubdtype isdtype promote_types broadcast_shapes diag_indices "
        "tril_indices triu_indices mask_indices bartlett blackman hamming hanning kaiser "
        "base_repr binary_repr format_float_positional format_float_scientific typename"
    ).split()
)
#: methods that have an effect wherever they are called
EFFECTS = frozenset(("tofile", "dump", "setflags", "setfield"))


def module_of(x: Any) -> str:
    """The module that a callable says it is from."""
    return str(getattr(x, "__module__", None) or "")


def is_pure_module(module: types.ModuleType) -> bool:
    """Whether everything in a module of Python's or of this package is known to be pure."""
    return module.__name__ in _PURE_MODULES or module.__name__.partition(".")[0] == "chainrule"


def is_pure_builtin(function: Any) -> bool:
    """Whether a function written in C is known to read and change nothing but what it returns."""
    name, module = getattr(function, "__name__", ""), module_of(function)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and name == "__new__":
        return is_pure_class(owner)
    if module == "builtins":
        return name not in _IMPURE_BUILTINS
    top = module.partition(".")[0]
    if top == "numpy":
        return _is_pure_numpy(function, module)
    if module == "_operator" and name in ("is_", "is_not"):
        return False  # unlike ``is``, no hook sees them
    return module in _PURE_MODULES or top == "chainrule"


def _is_pure_numpy(function: Any, module: str) -> bool:
    """Whether a function of numpy's is pure, and asks arrays of data or never gets one."""
    if module.startswith("numpy.random") or function.__name__ in _IMPURE_NUMPY:
        return False
    return isinstance(function, DISPATCHED) or function in _MAKING


def is_pure_python(function: types.FunctionType) -> bool:
    """Whether a Python function of a library is known to be pure, and needs no walk."""
    module = str(function.__globals__.get("__name__") or module_of(function))
    if is_model(module):
        return False
    if function.__code__.co_filename.startswith(errors.PACKAGE):
        return True
    if getattr(sys.modules.get(module), "__dict__", None) is not function.__globals__:
        return False  # ``exec`` makes functions that say they are of any module
    if module.partition(".")[0] == "numpy":
        return _is_pure_numpy(function, module)
    if module == "typing":
        return function.__name__ not in _IMPURE_TYPING
    return module in _PURE_MODULES or function.__name__ in _PURE_FUNCTIONS.get(module, ())


def is_model(module: str) -> bool:
    """Whether a module of chainrule is written as users write theirs: its reads are to be seen."""
    return module in ("chainrule.nn", "chainrule.vectors") or module.startswith("chainrule.gpt")


def is_pure_class(cls: type) -> bool:
    """Whether making an instance of a library's class has no effect, and its methods are pure."""
    module = module_of(cls)
    top = module.partition(".")[0]
    if (cls in ATOMS and cls is not types.CodeType) or cls in WATCHABLE:
        return True
    if not _is_what_it_says(cls, module):
        return False
    if module == "builtins":  # these run code that nobody has walked
        return cls not in (memoryview, types.FunctionType, types.CodeType)
    if top == "numpy":
        return not module.startswith("numpy.random") and cls.__name__ not in _IMPURE_NUMPY
    if is_model(module):
        return False
    if module in _PARTLY_PURE:
        return cls.__name__ not in _CHANGING_CLASSES
    return module in _PURE_MODULES or top == "chainrule"


def _is_what_it_says(cls: type, module: str) -> bool:
    """Whether a class is the one that its module has under its name: others may give themselves
    such a module, as ``types.new_class`` does.
    """
    if not cls.__flags__ & (1 << 9):  # no heap type: only C code makes these
        return True
    found: Any = sys.modules.get(module)
    for part in cls.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is cls


def is_python_class(cls: type) -> bool:
    """Whether a class was written in Python and keeps what it has in attributes and slots.

    A class written in C may keep more than that, also one that Python may subclass and change. It
    has methods written in C, or its instances are larger than their attributes and slots need.
    """
    if not cls.__flags__ & (1 << 9) or cls.__flags__ & (1 << 8):  # no heap type, or immutable
        return False
    if any(_is_own_method_in_c(x, cls) for x in vars(cls).values()):
        return False
    base = cls.__base__
    if base is None:
        return True
    slots = vars(cls).get("__slots__", ())
    pointers = 1 if isinstance(slots, str) else len(tuple(slots))
    for name in ("__dictoffset__", "__weakrefoffset__"):
        offset = getattr(cls, name)  # negative: before the instance, or at its end if that varies
        pointers += getattr(base, name) == 0 and (offset > 0 or offset < 0 < cls.__itemsize__)
    return cls.__basicsize__ <= base.__basicsize__ + 8 * pointers


def _is_own_method_in_c(x: Any, cls: type) -> bool:
    if isinstance(x, types.BuiltinMethodType):  # __new__
        return x.__self__ is cls
    return isinstance(x, _METHODS_IN_C) and x.__objclass__ is cls


def keeps_hidden_contents(cls: type) -> bool:
    """Whether instances may hold something that neither attributes nor items show."""
    return cls not in WATCHABLE and not is_python_class(cls)


_ITERTOOLS = tuple(x for x in vars(itertools).values() if isinstance(x, type))
_TOOLS = (*_ITERTOOLS, functools.partial, functools.reduce, dataclasses.field)


def is_known_tool(x: Any) -> bool:
    """Whether this is a class such as ``zip`` or ``itertools.product`` that makes iterators."""
    if not isinstance(x, type) or not _is_what_it_says(x, module_of(x)):
        return False
    if x in (types.FunctionType, types.CodeType, memoryview):  # which nobody sees write
        return False
    return x in _TOOLS or x.__module__ in ("builtins", "itertools")
