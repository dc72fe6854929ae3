"""What rewritten code calls while it is recorded: reads, identity tests and conversions.

Each does what Python does unless the calling thread records and a stand-in is among its operands.
"""

from __future__ import annotations

import abc
import collections
import datetime
import functools
import operator
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture.alike import (
    FORMATTING,
    SILENT,
    VALUES_OF_NUMBERS,
    is_in_even,
    is_method,
    may_tell,
)
from chainrule.compiler.capture.arrays import DataArray
from chainrule.compiler.capture.asking import (
    IN_ORDER,
    OF_MEMORY,
    Asking,
    ask_by_fields,
    ask_by_name,
    asking_getter,
)
from chainrule.compiler.capture.callees import chosen
from chainrule.compiler.capture.captured import REPLACES
from chainrule.compiler.capture.changing import (
    CHANGERS,
    CHANGING,
    IN_PLACE,
    SETTING,
    asked_to_change,
    bases,
    changing,
)
from chainrule.compiler.capture.choosing import SEARCHES, Placed, Searched, has_whole, item_at
from chainrule.compiler.capture.draws import DEFAULT_RNG, RANDOM
from chainrule.compiler.capture.exchanging import read_rows, rows_key, store_rows
from chainrule.compiler.capture.forks import SIDES
from chainrule.compiler.capture.generators import MODULES, make_generator, make_random
from chainrule.compiler.capture.keyed import Keyed, KeyedSet, is_keyed
from chainrule.compiler.capture.keys import settled
from chainrule.compiler.capture.known import is_python_class
from chainrule.compiler.capture.lookups import MAPPINGS, Counted, Looked, contains
from chainrule.compiler.capture.making import (
    Keys,
    make_counter,
    make_defaultdict,
    make_deque,
    make_dict,
    make_frozenset,
    make_set,
    put_item,
    put_pair,
    store,
)
from chainrule.compiler.capture.masks import ORDERS, compared_values
from chainrule.compiler.capture.merging import CannotMerge, store_by_integer
from chainrule.compiler.capture.modules import is_library
from chainrule.compiler.capture.outside import loaded, loaded_from, stored, stored_in
from chainrule.compiler.capture.questions import GETTERS
from chainrule.compiler.capture.recalling import CACHED, recalled
from chainrule.compiler.capture.rewriting import MAKERS, WATCHED, Hooks, Rewriter
from chainrule.compiler.capture.sorting import FRONTS, Sorting, in_order
from chainrule.compiler.capture.standins import (
    Condition,
    Detached,
    StandIn,
    is_numpys,
    plain,
    without,
)
from chainrule.compiler.capture.substitutes import LINALG, NUMPY
from chainrule.compiler.capture.texts import TracedText
from chainrule.compiler.capture.traced import Traced
from chainrule.compiler.capture.turns import Loop, through
from chainrule.compiler.capture.wholes import Whole, of_truth
from chainrule.compiler.capture.words import seen
from chainrule.core.backend import Value, kernels, modes

_CONTAINERS = (list, dict, tuple, np.ndarray)
_ITERATORS: tuple[type, ...] = () if kernels is None else (kernels.Items,)
_OF_ARRAYS = frozenset(("dtype", "itemsize", "nbytes", "strides", "data", "tobytes"))  # of numbers
_PLACES = frozenset(("argmax", "argmin"))
_TEXTS = (str, TracedText)
_SIMPLE = (int, float, str, np.generic)  # made from nothing
_CACHED = range(-5, 257)  # integers of which CPython has one object each


def _is_traced(key: Any) -> bool:
    """Whether there is a traced integer or text in a key."""
    kind = type(key)
    if kind is tuple or kind is list:
        return any(map(_is_traced, key))
    return kind in (Traced, TracedText, DataArray) or (kind is np.ndarray and key.dtype.kind == "O")


def _read(container: Any, key: Any) -> Any:
    """``container[key]``."""
    if is_keyed(container):
        return container.item(key)
    kind = type(key)
    if kind is not int and kind is not slice and kind is not str:
        recorder = modes.recorder
        if recorder is not None and has_whole(key):
            return item_at(container, key)
        rows = rows_key(container, key) if recorder is not None and kind is not Traced else None
        if rows is not None:
            try:
                return read_rows(container, *rows)
            except CannotMerge:
                pass
        if recorder is not None and _is_traced(key):
            return recorder.selector.read(container, key)
    found = container[key]
    if type(found) is int and kind is int and modes.recorder is not None:
        return modes.recorder.selector.among(container, found)
    return found


def _store(value: Any, container: Any, key: Any) -> None:
    """``container[key] = value``."""
    if is_keyed(container):
        store(value, container, key, sys._getframe(1))
        return
    if type(key) in (Traced, Whole) and store_by_integer(value, container, key):
        return
    rows = rows_key(container, key) if modes.recorder is not None else None
    if rows is not None:
        try:
            store_rows(value, container, *rows)
            return
        except CannotMerge:
            pass
    if type(key) is TracedText:
        key = key.static()
    changing(container)
    if modes.recorder is not None and type(container) is np.ndarray and _has_data(key):
        key = settled(key)
    container[key] = value


def _has_data(key: Any) -> bool:
    """Whether an array of data is in a key; of an array of numbers, numpy takes none."""
    return type(key) is DataArray or (type(key) is tuple and any(map(_has_data, key)))


def _same(a: Any, b: Any) -> bool:
    """``a is b``."""
    recorder = modes.recorder
    if recorder is not None and a is not None and b is not None:
        recorder.told |= isinstance(a, Value) or isinstance(b, Value)
    if recorder is not None and a is b and isinstance(a, StandIn) and is_numpys(a):
        recorder.forbid("asking by 'is' which number it has")  # an array makes a new one each time
    texts = (a, b) if recorder is not None and type(a) in _TEXTS and type(b) in _TEXTS else ()
    if any(type(x) is TracedText or recorder.may_be_another(x) for x in texts):
        recorder.forbid("asking by 'is' which text it has")
    if recorder is not None and type(a) is type(b) and type(a) in (str, bytes) and a == b:
        recorder.same_texts = True
    if recorder is not None and type(a) is type(b) and _may_be_two(a) and a == b:
        recorder.forbid("asking by 'is' which number it has")
    if recorder is None or a is b or a is None or b is None:  # no stand-in stands for None
        return a is b
    recorder.selector.observed(a, b)
    containers = isinstance(a, _CONTAINERS) and isinstance(b, _CONTAINERS)
    if containers and (id(a) in recorder.passed) is not (id(b) in recorder.passed):
        # Arguments are passed as copies, which are no captured object.
        recorder.forbid("asking by 'is' whether an argument is some other object")
    pair = [_settled(x) if isinstance(x, StandIn) else x for x in (a, b)]
    numbers = [x for x in pair if type(x) in (int, float) or type(x) is Detached]
    if len(numbers) == 2 and not (type(pair[0]) is type(pair[1]) is int and pair[0] in _CACHED):
        recorder.forbid("asking by 'is' which number it has")
    if all(isinstance(x, tuple) for x in pair):  # the same one twice is passed as two
        recorder.forbid("asking by 'is' which tuple it has")
    return pair[0] is pair[1]


def _may_be_two(x: Any) -> bool:
    """Whether two objects may be this number: what is captured is compared by its bits."""
    return (
        type(x) in (float, complex)
        or isinstance(x, np.generic)
        or (type(x) is int and x not in _CACHED)
    )


def _contains(a: Any, b: Any) -> Any:
    """``a in b``."""
    return b.contains(a) if is_keyed(b) else contains(a, b)


def _lacks(a: Any, b: Any) -> Any:
    """``a not in b``."""
    found = _contains(a, b)
    return SIDES.opposite(found) if type(found) is Traced else not found


def _asked(x: Any, name: str = "") -> Any:
    """Something of which an attribute or the type is read, which a number might not have."""
    recorder = modes.recorder
    if recorder is None:
        return x
    if not recorder.told and may_tell(recorder, x, name):
        recorder.told = not (is_in_even(_calling().f_code) or is_method(recorder, x, name))
    kind = type(x)
    if kind is Value:
        if recorder.either:
            recorder.asked[id(x)] = x
        return x
    if kind is list and name == "append" and not recorder.texts:
        changing(x)  # what most lists are asked for
        return x
    if name and isinstance(x, StandIn):
        _refuse_own_names(x, name)
    if name in CHANGING:
        x = asked_to_change(x, name)
    if name == "__dict__" and isinstance(x, type) and (is_library(x) or not is_python_class(x)):
        recorder.forbid(f"asking the class {x.__name__} for all its attributes")
    if name in OF_MEMORY and not recorder.copies.isdisjoint(map(id, (x, *bases(x)))):
        recorder.forbid(f"asking for the {name} of an array that was passed")
    if name in IN_ORDER and recorder.records and _tells_order(x, name):
        recorder.forbid("asking a dataclass that was passed for its attributes in their order")
    if name in FORMATTING and type(x) is str:
        ask_by_fields(x)
    if name == "__getattribute__":
        return Asking(x)
    if x is dict and name == "fromkeys":
        return Keys
    if x is Value:  # ``Value.exp``, which may be called with any of them
        recorder.tells = True
    elif name == "sort" and kind is list and recorder.both and not recorder.forks:
        return Sorting(x)
    elif name == "index" and type(x) in (list, tuple) and recorder.both:
        return Searched(x)
    elif name in _PLACES and recorder.both and type(x) is np.ndarray and x.dtype == object:
        return Placed(x)
    elif name == "get" and type(x) in MAPPINGS:
        return Looked(x)
    elif name == "count" and type(x) in (list, tuple):
        return Counted(x)
    elif recorder.texts and type(x) in (str, TracedText, list, tuple) and name:
        return seen(x, name)
    elif recorder.either and name in _OF_ARRAYS and type(x) is np.ndarray and x.dtype == object:
        recorder.asked.update({id(v): v for v in x.flat if type(v) is Value})
    return x


def _tells_order(x: Any, name: str) -> bool:
    """Whether an attribute tells in which order a dataclass that was passed got its own."""
    recorder = modes.recorder
    assert recorder is not None
    if isinstance(x, type) and name != "__dict__":
        return True  # a method, of which nobody knows what it is called with
    return (
        type(x) is super
        or type(x) in recorder.records
        or (isinstance(x, type) and x in recorder.records)
    )


def _calling() -> types.FrameType:
    """The frame of the code that called a hook."""
    frame = sys._getframe(1)
    while frame.f_code.co_filename == __file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _refuse_own_names(x: StandIn, name: str) -> None:
    """Raise what Python raises where a stand-in has an attribute, but not what it stands for."""
    if not _may_have(x, name):
        raise AttributeError(without(x.__class__, name))


def _may_have(x: StandIn, name: str) -> bool:
    kind: Any = x.__class__
    return hasattr(kind() if issubclass(kind, _SIMPLE) else kind, name)


def _making(x: Any, name: str) -> Any:
    """Where to look up an attribute that is called, which may be a generator's class."""
    x = _asked(x, name)
    if modes.recorder is None or type(x) is not types.ModuleType:
        return x
    original, instead = _MODULES.get((x, name), (None, None))
    return x if original is None or getattr(x, name, None) is not original else instead


def _settled(x: StandIn) -> Any:
    """A stand-in of an integer or a truth as the object that Python would have."""
    return x if type(x) is Detached else x.plain("is")


def _int(*arguments: Any, **keywords: Any) -> Any:
    if len(arguments) == 1 and not keywords:
        (x,) = arguments
        if type(x) is Condition and x._recorder.both:
            return of_truth(x)
        if type(x) is Traced or type(x) is Whole:
            return x.as_kind(int)
        found = x.digit() if type(x) is TracedText else None
        if found is not None:
            return found
    return int(*map(_as_text, arguments), **keywords)


def _as_text(x: Any) -> Any:
    """A text for C code, which wants a true one."""
    return x.static() if type(x) is TracedText else x


def _ord(*arguments: Any) -> Any:
    if len(arguments) == 1 and type(arguments[0]) is TracedText and len(arguments[0]) == 1:
        return arguments[0].code()
    return ord(*map(_as_text, arguments))


def _map(*arguments: Any, **keywords: Any) -> Any:
    function, others = list(map(_called, arguments[:1])), list(map(_taken, arguments[1:]))
    return map(*function, *others, **keywords)


def _float(*arguments: Any, **keywords: Any) -> Any:
    if len(arguments) == 1 and not keywords:
        if type(arguments[0]) in (Traced, Whole):
            return arguments[0].number().as_kind(float)
        if type(arguments[0]) is Detached:
            return arguments[0].as_kind(float)
    return float(*map(_as_text, arguments), **keywords)


def _bool(*arguments: Any) -> Any:
    if len(arguments) == 1 and type(arguments[0]) is Traced:
        return arguments[0].step("bool")
    return bool(*arguments)


def _comparing(name: str) -> Callable[[Any, Any], Any]:
    """What stands for ``a < b`` and its like where both sides of branches are computed."""
    original = getattr(operator, name)

    def compare(a: Any, b: Any) -> Any:
        found = compared_values(name, a, b)
        return original(a, b) if found is None else found

    return compare


_COMPARE = {name.upper(): _comparing(name) for name in ORDERS}


def _len(x: Any, /) -> Any:
    return x.size() if is_keyed(x) else len(x)


def _sorted(iterable: Any, /, **keywords: Any) -> Any:
    if type(iterable) is KeyedSet and keywords.get("key") is None:
        iterable = iterable.in_order()  # distinct integers: any order will do
    return in_order(_taken(iterable), **keywords)


def _taken(x: Any) -> Any:
    return x.taken() if is_keyed(x) else x


def _spread(x: Any) -> Any:
    """``*x`` in a call or a list, or what ``a, *b`` are assigned."""
    return tuple(x.taken()) if is_keyed(x) else x


def _take(function: Callable[..., Any], original: Any, *given: Any, **keywords: Any) -> Any:
    """A builtin that takes the items of its first argument, or of all, one after the other."""
    if original is zip:
        given = tuple(map(_taken, given))
    elif len(given) == 1 or (given and original not in (min, max)):
        given = _taken(given[0]), *given[1:]
    return function(*given, **keywords)


def _isinstance(x: Any, kinds: Any) -> bool:
    if is_keyed(x):
        known = all(type(kind) in (type, abc.ABCMeta) for kind in _each(kinds))
        return issubclass(x.__class__, kinds) if known else x.refuse()
    return isinstance(_asked(x), kinds)


def _each(kinds: Any) -> tuple[Any, ...]:
    return tuple(kinds) if type(kinds) is tuple else (kinds,)


def _type(*arguments: Any, **keywords: Any) -> Any:
    if len(arguments) == 1:
        _asked(arguments[0])
    if len(arguments) == 1 and isinstance(arguments[0], (StandIn, DataArray, *_ITERATORS)):
        return arguments[0].__class__
    return type(*arguments, **keywords)


def _ask_module(x: Any, name: str) -> None:
    """Refuse to ask a module for a name under which it is not followed, as one that is made up."""
    recorder = modes.recorder
    if recorder is None or not isinstance(x, types.ModuleType):
        return
    if name not in recorder.module_names and id(x) not in recorder.whole_modules:
        recorder.forbid(f"asking the module {x.__name__} for a name that is in no code")


def _hasattr(x: Any, name: str) -> bool:
    name = _as_text(name)
    _ask_module(x, name)
    if is_keyed(x):
        x.refuse()
    if isinstance(x, StandIn):
        return _may_have(x, name)
    return hasattr(_asked(x, name), name)


def _getattr(x: Any, name: str, *default: Any) -> Any:
    name = _as_text(name)
    _ask_module(x, name)
    if is_keyed(x):
        x.refuse()
    if default and isinstance(x, StandIn) and not _may_have(x, name):
        return default[0]
    ask_by_name(x, name)
    return getattr(_asked(x, name), name, *default)


def _giving(function: Callable[..., Any]) -> Callable[..., Any]:
    """What to call for a function that gives Values of plain numbers too."""

    @functools.wraps(function)
    def give(*arguments: Any, **keywords: Any) -> Any:
        made, recorder = function(*arguments, **keywords), modes.recorder
        return made if recorder is None else recorder.gives(made)

    setattr(give, REPLACES, function)
    return give


def _timedelta(*arguments: Any, **keywords: Any) -> datetime.timedelta:
    """A span of time; C code wants true numbers for it."""
    named = {name: plain(x) for name, x in keywords.items()}
    return datetime.timedelta(*map(plain, arguments), **named)


_CHANGERS: list[Any] = [SETTING, *[x for found in CHANGERS.values() for x in found.values()]]
_SUBSTITUTES: dict[Any, Callable[..., Any]] = {
    int: _int,
    float: _float,
    bool: _bool,
    ord: _ord,
    map: _map,
    type: _type,
    isinstance: _isinstance,
    sorted: _sorted,
    len: _len,
    set: make_set,
    frozenset: make_frozenset,
    collections.Counter: make_counter,
    collections.defaultdict: make_defaultdict,
    collections.deque: make_deque,
    hasattr: _hasattr,
    getattr: _getattr,
    **{getter: asking_getter(getter) for getter in GETTERS},
    datetime.timedelta: _timedelta,
    RANDOM: make_random,
    DEFAULT_RNG: make_generator,
    **SEARCHES,
    **FRONTS,
    **{x.__wrapped__: x for x in _CHANGERS},
    **{function: _giving(function) for function in VALUES_OF_NUMBERS},
    **{substitute.__wrapped__: substitute for substitute in (*NUMPY.values(), *LINALG.values())},
}
if kernels is not None:
    _SUBSTITUTES[zip] = kernels.zip_items  # the same, of arrays in less time


#: builtins that take items one after the other; only where there may be stand-ins for containers
_TAKING = frozenset((list, tuple, sum, min, max, enumerate, any, all, zip))


def _called(function: Any) -> Any:
    """What to call instead of a builtin."""
    recorder = modes.recorder
    if recorder is None:
        return function
    if type(function) is CACHED:
        return recalled(function)
    try:
        if recorder.true_sites is not None:
            original = getattr(function, REPLACES, function)
            if original in _TAKING:
                return functools.partial(_take, function, original)
        return _SUBSTITUTES.get(function, function)
    except TypeError:  # not hashable: none of these
        return function


def _cached(x: Any) -> Any:
    """What to call for a function with a cache; anything else under its name as it is."""
    return recalled(x) if type(x) is CACHED and modes.recorder is not None else x


_MODULES = {
    **MODULES,
    **{
        (collections, kind.__name__): (kind, types.SimpleNamespace(**{kind.__name__: make}))
        for kind, make in (
            (collections.Counter, make_counter),
            (collections.defaultdict, make_defaultdict),
            (collections.deque, make_deque),
        )
    },
    (datetime, "timedelta"): (datetime.timedelta, types.SimpleNamespace(timedelta=_timedelta)),
    **{
        (operator, getter.__name__): (
            getter,
            types.SimpleNamespace(**{getter.__name__: _SUBSTITUTES[getter]}),
        )
        for getter in GETTERS
    },
}

SIDES.called, SIDES.asked, SIDES.read, SIDES.put = _called, _asked, _read, _store
SIDES.loop, SIDES.through, SIDES.chosen = Loop, through, chosen
#: what hooks in C know; where there is something to note, they call the first four
HOOK_PARTS: tuple[Any, ...] = (
    *(_asked, _read, _called, changing),
    CHANGING
    | _OF_ARRAYS
    | OF_MEMORY
    | IN_ORDER
    | FORMATTING
    | _PLACES
    | {"fromkeys", "index", "get", "count", "__getattribute__"},
    SILENT,
    _SUBSTITUTES,
    *(StandIn, Keyed, CACHED),
)
_ask: Callable[[Any, str], Any] = _asked
_item: Callable[[Any, Any], Any] = _read
_call: Callable[[Any], Any] = _called
if kernels is not None:
    kernels.set_hooks(*HOOK_PARTS)
    _ask, _item, _call = kernels.asked, kernels.read, kernels.called
REWRITER = Rewriter(
    Hooks(
        *(_item, _store, changing, _same, _contains, _lacks, _call, _cached, _ask, _making),
        *(loaded, stored, loaded_from, stored_in),
        *(make_dict, make_set, put_pair, put_item),
        _spread,
        _COMPARE,
        IN_PLACE,
        SIDES,
    ),
    WATCHED
    | MAKERS
    | {*NUMPY, *LINALG}
    | {function.__name__ for function in (*SEARCHES, *FRONTS, *_CHANGERS, *VALUES_OF_NUMBERS)},
)
