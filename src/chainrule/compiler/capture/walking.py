"""The walk of everything a function reaches: objects, and by ``reaching`` what code names.

In: a function. Out: its ``CapturedState``. Unrecordable where something is reached that is not
known to be pure, or not known to be watched completely; see ``known``.
"""

from __future__ import annotations

import abc
import collections
import collections.abc
import datetime
import functools
import gc
import logging
import operator
import random
import sys
import types
from collections.abc import Callable, Collection, Iterator
from typing import Any

import numpy as np

from chainrule.compiler.capture import alike, disassembly, known
from chainrule.compiler.capture.captured import (
    ANY,
    MISSING,
    REGISTRATIONS,
    CapturedState,
    Method,
    content_of,
    dict_of,
    state_of,
)
from chainrule.compiler.capture.comparing import ENDLESS, Bound, Compared
from chainrule.compiler.capture.draws import RANDOM
from chainrule.compiler.capture.known import ATOMS, DESCRIPTORS
from chainrule.compiler.capture.modules import Modules, is_library
from chainrule.compiler.capture.outside import ADVICE, RANDOM_ADVICE, Outside, is_holder
from chainrule.compiler.capture.plain_data import AT_ONCE, plain_data
from chainrule.compiler.capture.questions import GETTERS, Questions
from chainrule.compiler.capture.reaching import Holder, Reach, is_own
from chainrule.compiler.capture.rewriting import original, unseen
from chainrule.compiler.capture.standins import Unloaded, Unrecordable
from chainrule.compiler.capture.ways import (
    TRUSTED,
    Refused,
    Way,
    full_name,
    is_of_library,
    not_by_names,
    of_package,
    unwatched,
)
from chainrule.core.backend import Value, kernels
from chainrule.core.operations import Formula, Opaque

_GENERATORS = (random.Random, np.random.Generator, np.random.RandomState)
#: what Python, ``dataclasses``, ``abc`` and ``typing`` write into a class for themselves
_MACHINERY = frozenset(
    "__module__ __qualname__ __doc__ __dict__ __weakref__ __slots__ __annotations__ __annotate__ "
    "__annotate_func__ __annotations_cache__ __match_args__ __firstlineno__ __static_attributes__ "
    "__type_params__ __orig_bases__ __parameters__ __dataclass_fields__ __dataclass_params__ "
    "__abstractmethods__ _abc_impl".split()
)
#: what tells a list from a tuple or an array
_ASKING = frozenset(map(id, (isinstance, issubclass, hasattr, getattr, type)))
_DERIVATION = () if kernels is None else kernels.Derivation  # what grad(f) runs in C
_NO_OBJECTS = (
    *(type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, Value, np.ndarray),
    *(list, tuple, dict, set, frozenset),
)
_PLAIN = (tuple, frozenset, property, staticmethod, classmethod, functools.cached_property)
LIMIT = 4_000_000
_SIZED = frozenset((list, tuple, dict, set, frozenset))
_COMPARED_IN_C = frozenset((list, dict))
_MANY = 64  # items of a container that is looked at before
_LOOK = 1024  # objects after which it is looked whether they are too many
GROWN = ", as of a list or dict that grows from call to call; pass it, or keep it elsewhere"
#: what does not change itself, but holds other objects
_HOLDING = (
    *(types.MethodWrapperType, operator.itemgetter, operator.methodcaller, slice),
    *(types.GenericAlias, types.UnionType),
    *(datetime.datetime, datetime.time, np.void),
)


def survey(
    function: Callable[..., Any] | None,
    roots: Collection[Any] = (),
    outside: Outside | None = None,
    most: int = LIMIT,
    bound: Bound = ENDLESS,
) -> CapturedState:
    """Walk everything the function reaches; Unrecordable where something cannot be followed.

    ``roots``: it reaches these too, as calls pass them: functions, and classes of objects.
    ``outside``: the places in which it keeps numbers, which may change from call to call. Whoever
    holds one must be reached by global names and closures alone: code that loads these is watched.
    ``most``: objects to go through. ``bound``: what replays could pay for, at most; TooMuch beyond.
    """
    found = CapturedState(outside=outside or Outside(()))
    seen: set[int] = set()
    kept: list[Any] = []  # so that no id is used twice
    modules, questions = Modules(found), Questions()
    stack = [(x, Way()) for x in (*roots, function)]
    looked = _LOOK
    while stack or modules.are_open():
        if not stack:
            stack = [(x, Way()) for x in modules.reached()]
            continue
        x, way = stack.pop()
        found.searched += 1
        if found.searched > most:
            raise Unrecordable(f"it reaches too many objects to follow{GROWN}")
        if found.searched > bound.objects:
            bound.check_objects(found.searched, 0)
        if found.searched > looked:
            looked = 2 * found.searched  # so that looking takes a part of the walk
            bound.check(found.compared_so_far(), found.searched)
        found.tells |= isinstance(x, GETTERS)
        is_trusted = way.is_trusted and not _is_users(x)
        if type(x) not in alike.ATOMS and type(x) is not Method:
            reach = alike.reach_of(x)
            if not is_trusted or reach is alike.Reach.VALUES:
                found.reach = min(found.reach, reach)
        questions.note(x)
        if id(x) not in seen:
            modules.note(x)
        if id(x) in found.outside.holders:
            raise not_by_names(found.outside.holders[id(x)].name)
        if id(x) in seen or _is_atom(x):
            continue
        seen.add(id(x))
        kept.append(x)
        is_trusted |= alike.is_trusted(x)
        if bound is not ENDLESS and type(x) in _SIZED and len(x) >= _MANY:
            _check_before(x, found, bound)
        data = plain_data(x, seen, found.outside.holders)
        if data is not None:
            data.note_in(found)
            if data.has_numpys and not is_trusted:
                found.reach = min(found.reach, alike.Reach.NUMPYS)
            questions.note_texts(data.texts)
            seen.update(map(id, data.containers))
            kept += data.containers
            continue
        try:
            inside = _inside(x, found, is_trusted)
        except Unloaded:
            raise
        except Unrecordable as reason:
            instead = reason.instead if isinstance(reason, Refused) else ""
            package = way.package if instead == RANDOM_ADVICE else None
            if package is not None:  # whether it draws is not known: distributions do for ``rvs``
                reason = of_package(package)
                instead = reason.instead
            raise Unrecordable(f"{reason}{way.place(x)}{instead}") from None
        found.asks_types |= not is_own(x) and any(id(item) in _ASKING for item in inside)
        further = TRUSTED if is_trusted else way.through(x)
        stack.extend((y, further) for y in reversed(inside))  # depth first, as in the source
    questions.settle(found, [x for x in kept if isinstance(x, type)])
    found.values = list({id(v): v for v in found.values}.values())
    found.objects_by_id = {id(x): type(x) for x in kept if not isinstance(x, _NO_OBJECTS)}
    found.place = {id(v): i for i, v in enumerate(found.values)}
    found._labels = [v.label for v in found.values] if found.looks else []
    if found.outside:
        _refuse_unseen(found, [x for x in kept if isinstance(x, types.ModuleType)])
    return found


def _check_before(x: Any, found: CapturedState, bound: Bound) -> None:
    """Raise TooMuch where a container and its rows alone are, before they are gone through."""
    held = [x]
    if Compared.of_containers(held).seconds <= bound.comparing:
        bound.check_objects(found.searched, len(x) // AT_ONCE)
        items = x.values() if type(x) is dict else x
        if not _COMPARED_IN_C.isdisjoint(map(type, items)):  # in C: most have none
            held += [y for y in items if type(y) in _COMPARED_IN_C]
    if Compared.of_containers(held).seconds > bound.comparing:
        bound.check(found.compared_so_far(*held), found.searched)


def _inside(x: Any, found: CapturedState, is_trusted: bool) -> list[Any]:
    """What an object reaches at once.

    What code asks and draws is no matter to whether floats are as Values where it ``is_trusted``.
    """
    reach, asks, draws = found.reach, found.identity, found.draws
    found.identity = found.draws = False
    inside = list(_reached(x, found))
    if is_trusted:
        found.reach = reach
    elif found.identity or found.draws:
        found.reach = alike.Reach.UNKNOWN
    found.identity, found.draws = found.identity or asks, found.draws or draws
    return inside


def _is_users(x: Any) -> bool:
    """Whether it is a function of the user's: one that was put in the place of this package's."""
    return isinstance(x, types.FunctionType) and not is_own(x) and not is_of_library(x)


def _refuse_unseen(found: CapturedState, modules: list[types.ModuleType]) -> None:
    """Refuse code that may reach what it changes otherwise than by the names that hooks see."""
    modules = [*modules, *[s for s, *_ in found.names if isinstance(s, types.ModuleType)]]
    dicts = collections.Counter(id(dict_of(mapping)) for mapping, *_ in found.dicts)
    dicts.update(id(vars(module)) for module in modules)
    for place in found.outside.places:
        if dicts[id(place.where)] > (place.holder is not None):
            raise not_by_names(place.name)
    for function in found.functions:
        code = original(function.__code__)
        if name := next(unseen(code), None):
            line = disassembly.place(code, {name})
            raise Unrecordable(f"it uses {name}, which may reach what it changes{line}{ADVICE}")


def _is_atom(x: Any) -> bool:
    """Whether nothing about ``x`` can change."""
    if isinstance(x, np.ufunc) and set("".join(x.types)) <= set("O->"):
        raise Unrecordable("it reaches a numpy function made of a Python one")
    if isinstance(x, np.dtype) and x.metadata:
        raise unwatched(x)
    if isinstance(x, np.dtype) and (x.names is not None or x.subdtype is not None):
        return False  # its fields may be given other names
    if isinstance(x, _HOLDING):
        return False
    if isinstance(x, DESCRIPTORS):
        return True
    return isinstance(x, ATOMS) and not _is_of_own_class(x)


def _is_of_own_class(x: Any) -> bool:
    """Whether its class was written in Python: that of the user's, or one with attributes."""
    kind = type(x)
    in_python = bool(kind.__flags__ & (1 << 9))
    return in_python and (hasattr(x, "__dict__") or not _is_of_python(kind))


def _is_of_python(kind: type) -> bool:
    return known.module_of(kind).partition(".")[0] in (*sys.stdlib_module_names, "numpy")


def _has_self(x: Any) -> bool:
    """Whether this is a builtin method of some object, such as ``xs.append``."""
    return isinstance(x, types.BuiltinFunctionType) and not isinstance(
        x.__self__, (types.ModuleType, type, type(None))
    )


def _draws_in_c(x: Any) -> bool:
    """Whether this is a function of ``numpy.random``, written in C."""
    is_function = type(x).__name__ == "cython_function_or_method"
    return is_function and known.module_of(x).startswith("numpy.random")


def _reached(x: Any, found: CapturedState) -> Iterator[Any]:
    """Note what can change about ``x`` and give what is inside it."""
    if isinstance(x, Holder):
        yield from _held(x.holder, found)
    elif isinstance(x, Value):
        found.values.append(x)
        if type(x) is not Value:
            yield from _attributes(x, found)
    elif isinstance(x, types.BuiltinFunctionType) and _has_self(x):
        yield x.__self__
    elif isinstance(x, (types.BuiltinFunctionType, known.DISPATCHED)):
        if not known.is_pure_builtin(x):
            raise Unrecordable(f"it calls {full_name(x)}, which is not known to be pure")
    elif isinstance(x, (Formula, Opaque)):
        return  # it does not change, or it is called anew whenever it is computed
    elif isinstance(x, _DERIVATION):
        yield x.function
    elif isinstance(x, types.MethodWrapperType):
        yield x.__self__
    elif isinstance(x, (operator.itemgetter, operator.methodcaller)):
        yield from (item for item in gc.get_referents(x) if not isinstance(item, type))
    elif isinstance(x, slice):
        yield from (x.start, x.stop, x.step)
    elif isinstance(x, (types.GenericAlias, types.UnionType)):
        yield from x.__args__
        if isinstance(x, types.GenericAlias):
            yield x.__origin__
    elif isinstance(x, (datetime.datetime, datetime.time)) and not _is_of_own_class(x):
        yield x.tzinfo
    elif isinstance(x, np.void):
        raise unwatched(x)
    elif isinstance(x, types.MethodType):
        yield from (x.__func__, x.__self__)
    elif isinstance(x, types.FunctionType):
        if not known.is_pure_python(x):
            found.functions.append(x)
            yield from Reach(x, found)
        else:  # it is pure, but it may hold functions of the user's
            yield from map(content_of, x.__closure__ or ())
            yield from (item for name, item in x.__dict__.items() if name != "__signature__")
    elif isinstance(x, Method):
        found.names.append((x, "kind", x.kind))
        if isinstance(x.attributes, dict):
            found.names.append((x, "attributes", x.attributes))
            found.bound.add(id(x.instance()))
        yield from (x.function, x.instance())
    elif isinstance(x, functools.partial):
        found.dicts.append((x.keywords, dict(x.keywords), x))
        found.names += [(x, part, getattr(x, part)) for part in ("func", "args", "keywords")]
        yield from (x.func, *x.args, *x.keywords.values())
        if type(x) is functools.partial:
            found.names.append((x, "__dict__", vars(x)))
            found.dicts.append((vars(x), dict(vars(x)), None))
            yield from vars(x).values()
        if type(x) is not functools.partial:
            yield from _attributes(x, found)
    elif isinstance(x, logging.Logger):
        raise Unrecordable("it logs")
    elif isinstance(x, list):
        found.lists.append((x, tuple(x)))
        yield from x
        if type(x) is not list:
            yield from _attributes(x, found)
    elif isinstance(x, (tuple, frozenset)):
        yield from x
        yield from _own_class(x)
        if isinstance(attributes := getattr(x, "__dict__", None), dict):
            found.names.append((x, "__dict__", attributes))
            found.dicts.append((attributes, dict(attributes), None))
            yield from attributes.values()
    elif isinstance(x, set):
        found.sets.append((x, tuple(x)))
        yield from x
        if type(x) is not set:
            yield from _attributes(x, found)
    elif isinstance(x, dict):
        found.dicts.append((x, dict(x), None))
        yield from (*x.keys(), *x.values())
        if isinstance(x, collections.defaultdict):
            found.names.append((x, "default_factory", x.default_factory))
            yield x.default_factory
        if type(x) not in (dict, collections.defaultdict):
            yield from _attributes(x, found)
    elif isinstance(x, types.MappingProxyType):
        found.dicts.append((x, dict(x), None))
        yield from x.values()
    elif isinstance(x, np.ndarray):
        if type(x) is not np.ndarray or (x.dtype.hasobject and x.dtype != object):
            raise unwatched(x)
        found.arrays.append((x, x.shape, x.tobytes()))
        found.names.append((x, "dtype", x.dtype))
        if x.dtype.names is not None:
            yield x.dtype
        if x.dtype == object:
            found.objects.append((x, x.ravel().tolist()))
            yield from found.objects[-1][1]
    elif isinstance(x, np.dtype):
        found.names.append((x, "names", x.names))
        yield from (part for part, *_ in (x.fields or {}).values())
        if x.subdtype is not None:
            yield x.subdtype[0]
    elif isinstance(x, random.SystemRandom):
        raise Refused("it draws random numbers", RANDOM_ADVICE)
    elif _draws_in_c(x):
        raise Refused(f"it calls {full_name(x)}, which is not known to be pure", RANDOM_ADVICE)
    elif isinstance(x, _GENERATORS):
        if type(x) not in _GENERATORS or getattr(x, "__dict__", {}).keys() - {"gauss_next"}:
            raise unwatched(x)
        found.generators.append((x, state_of(x), repr(state_of(x))))
    elif x is RANDOM:
        raise Unrecordable("it reaches random.Random otherwise than by calling it under this name")
    elif isinstance(x, type):
        if isinstance(x, abc.ABCMeta):
            found.names.append((REGISTRATIONS, "mark", REGISTRATIONS.mark))
        if known.is_pure_class(x) or known.is_known_tool(x):
            return
        if not known.is_python_class(x):
            draws = known.module_of(x).startswith("numpy.random")
            reason = f"it reaches the class {full_name(x)}, not known to be pure"
            raise Refused(reason, RANDOM_ADVICE if draws else "")
        found.dicts.append((vars(x), dict(vars(x)), x))
        found.names += [(x, part, getattr(x, part)) for part in ("__bases__", "__class__")]
        yield from x.__bases__ if type(x) is type else (type(x), *x.__bases__)
        yield from (item for name, item in vars(x).items() if name not in _MACHINERY)
    elif isinstance(x, (staticmethod, classmethod)):
        found.dicts.append((vars(x), dict(vars(x)), None))
        yield from (x.__func__, *vars(x).values(), *_own_class(x))
    elif isinstance(x, property):
        yield from (x.fget, x.fset, x.fdel, *_own_class(x))
    elif isinstance(x, functools.cached_property):
        found.dicts.append((vars(x), dict(vars(x)), None))
        yield from (x.func, *_own_class(x))
    elif isinstance(x, types.ModuleType):
        return  # its attributes are followed by name
    elif isinstance(x, functools._lru_cache_wrapper):
        reason = f"it reaches {x.__name__!r}, which keeps results in a cache"
        raise Refused(reason, "; call it by its name alone, or pass what it gives as an argument")
    elif _only_wraps(x):
        yield x.__wrapped__
    else:
        yield from _attributes(x, found)


def _own_class(x: Any) -> Iterator[type]:
    """The class of a tuple, a property or the like, unless it is one of Python's.

    It may have methods of its own, which are followed from there.
    """
    cls = type(x)
    if cls not in _PLAIN and (known.is_python_class(cls) or not is_library(cls)):
        yield cls


def _only_wraps(x: Any) -> bool:
    """Whether an object does what the function does that it was made of: not one of the user's."""
    if "__wrapped__" not in getattr(x, "__dict__", ()):  # which no ``__getattr__`` gave
        return False
    return type(x).__module__.startswith("chainrule.") or not known.is_python_class(type(x))


def _attributes(x: Any, found: CapturedState) -> Iterator[Any]:
    """An object's own attributes, by ``__dict__`` and by slots, and its class."""
    attributes = getattr(x, "__dict__", None)
    slots = [s for cls in type(x).__mro__ for s in _slots(cls)]
    plain = isinstance(attributes, dict) or slots or type(x) in (object, Value, dict)
    if not plain or any(map(known.keeps_hidden_contents, type(x).__mro__)):
        raise unwatched(x)
    yield type(x)
    if known.is_python_class(type(x)) and id(x) not in found.bound:
        found.names.append((x, "__class__", type(x)))
    if isinstance(attributes, dict):
        if id(x) not in found.bound:
            found.names.append((x, "__dict__", attributes))
        found.dicts.append((attributes, dict(attributes), None))
        cache = "_ufunc" if isinstance(x, np.vectorize) else None  # made of its pyfunc as needed
        yield from (item for name, item in attributes.items() if name != cache)
    for name in slots:
        item = getattr(x, name, MISSING)
        found.names.append((x, name, item))
        yield item


def _held(x: Any, found: CapturedState) -> Iterator[Any]:
    """What is in a holder, without what may change there; of a list nothing is read."""
    walked = id(x) in found.reached  # under another name
    found.reached.add(id(x))
    if walked or isinstance(x, list):
        return
    at = len(found.dicts)
    for item in _reached(x, found):  # a holder may have others in it
        yield Holder(item) if id(item) in found.outside.holders else item
    mapping, contents, _ = found.dicts[at]
    for place in [place for place in found.outside.places if place.holder is x]:
        if place.where is not mapping or not is_holder(x, mapping, place.name):
            reason = f"it changes {place.name!r}, which is no plain attribute any more{ADVICE}"
            raise Unrecordable(reason)
        if place.key in contents:
            contents[place.key] = ANY


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
