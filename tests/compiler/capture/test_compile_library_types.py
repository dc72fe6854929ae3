"""Every class of the standard library: watched completely, or refused. Nothing in between.

A compiled function compares what it captured at every call. Where an object holds something that
neither attributes, slots nor items show, a change would go unseen; such classes must be known.
"""

import array
import collections
import copy
import ctypes
import importlib
import io
import queue
import sys
import types
import warnings

import pytest
from compile_twins import same

import chainrule
from chainrule.compiler.capture import known

_UNSUITABLE = {"antigravity", "this", "idlelib", "turtledemo", "turtle", "tkinter", "lib2to3"}
_IN_C = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.BuiltinMethodType,
)


def library_classes():
    """The classes that the modules of the standard library hold, and their bases."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sorted(sys.stdlib_module_names - _UNSUITABLE):
            if name.startswith(("_test", "_xx", "test")) or name == "__main__":
                continue
            try:
                module = importlib.import_module(name)
            except (ImportError, OSError, AttributeError):
                continue  # of another system
            for x in vars(module).values():
                if isinstance(x, type):
                    found |= dict.fromkeys(x.__mro__)
    return list(found)


CLASSES = library_classes()


def written_in_c(cls):
    """Whether some slot or method of its own is C: what a ``class`` statement never makes."""
    return any(
        isinstance(x, _IN_C) and (getattr(x, "__objclass__", None) or x.__self__) is cls
        for x in vars(cls).values()
        if isinstance(x, _IN_C)
    )


def test_there_are_many():
    assert len(CLASSES) > 1_000
    assert {collections.deque, array.array, io.StringIO, queue.SimpleQueue} <= set(CLASSES)


def test_no_class_written_in_c_is_taken_for_a_python_class():
    assert [cls for cls in CLASSES if written_in_c(cls) and known.is_python_class(cls)] == []


def test_a_subclass_does_not_hide_what_its_base_keeps():
    taken = []
    for cls in CLASSES:
        if not written_in_c(cls) or cls in known.WATCHABLE:
            continue
        try:
            sub = types.new_class("Sub", (cls,))
        except (TypeError, AttributeError):  # of ctypes
            continue  # it cannot be subclassed
        if not any(map(known.keeps_hidden_contents, sub.__mro__)):
            taken.append(cls)
    assert taken == []


def test_classes_written_in_python_are_known_as_such():
    """Those whose instances hold nothing but attributes, slots and what their bases hold."""
    ours = [
        cls
        for cls in CLASSES
        if cls.__flags__ & (1 << 9)
        and not cls.__flags__ & (1 << 8)
        and not written_in_c(cls)
        and any(isinstance(x, types.FunctionType) for x in vars(cls).values())
    ]
    refused = {cls.__name__ for cls in ours if not known.is_python_class(cls)}
    assert len(ours) > 500
    assert refused <= {"c_char_p", "c_wchar_p", "py_object"}  # of ctypes, whose size is their own


def subclassed(cls):
    return types.new_class(f"{cls.__name__}Sub", (cls,))


#: how to make one, a number to read from it, and a change of that number
CONTAINERS = {
    "deque": (collections.deque, ([1.0, 2.0],), lambda w: w[0], lambda w: w.appendleft(9.0)),
    "array": (array.array, ("d", [1.0]), lambda w: w[0], lambda w: w.__setitem__(0, 9.0)),
    "bytearray": (bytearray, (b"ab",), lambda w: w[0], lambda w: w.__setitem__(0, 9)),
    "list": (list, ([1.0],), lambda w: w[0], lambda w: w.__setitem__(0, 9.0)),
    "dict": (dict, ({"a": 1.0},), lambda w: w["a"], lambda w: w.update(a=9.0)),
    "dict's order": (
        *(dict, ({"a": 1.0, "b": 2.0},), lambda w: next(iter(w.values()))),
        lambda w: w.update(a=w.pop("a")),
    ),
    "set": (set, ([1.0],), lambda w: sum(w), lambda w: w.add(9.0)),
    "OrderedDict's order": (
        *(collections.OrderedDict, ({"a": 1.0, "b": 2.0},), lambda w: next(iter(w.values()))),
        lambda w: w.move_to_end("a"),
    ),
    "defaultdict's factory": (
        *(collections.defaultdict, (lambda: 1.0,), lambda w: w["q"]),
        lambda w: (w.clear(), setattr(w, "default_factory", lambda: 9.0)),
    ),
    "Counter": (collections.Counter, ("aab",), lambda w: w["a"], lambda w: w.update("a")),
    "ChainMap": (collections.ChainMap, ({"a": 1.0},), lambda w: w["a"], lambda w: w.update(a=9.0)),
    "UserList": (
        *(collections.UserList, ([1.0],), lambda w: w[0]),
        lambda w: w.__setitem__(0, 9.0),
    ),
    "UserDict": (collections.UserDict, ({"a": 1.0},), lambda w: w["a"], lambda w: w.update(a=9.0)),
    "StringIO": (io.StringIO, ("1.5",), lambda w: float(w.getvalue()), lambda w: w.write("2.5")),
    "BytesIO": (io.BytesIO, (b"1.5",), lambda w: float(w.getvalue()), lambda w: w.write(b"2.5")),
    "SimpleQueue": (queue.SimpleQueue, (), lambda w: w.qsize(), lambda w: w.put(9.0)),
    "Queue": (queue.Queue, (), lambda w: w.qsize(), lambda w: w.put(9.0)),
    "a ctypes number": (
        ctypes.c_double,
        (1.0,),
        lambda w: w.value,
        lambda w: setattr(w, "value", 9.0),
    ),
    "a ctypes array": (
        *(ctypes.c_double * 2, (1.0, 2.0), lambda w: w[0]),
        lambda w: w.__setitem__(0, 9.0),
    ),
}


@pytest.mark.filterwarnings("ignore:.*runs eagerly")
@pytest.mark.parametrize("derive", [lambda cls: cls, subclassed], ids=["itself", "subclass"])
@pytest.mark.parametrize("name", CONTAINERS)
def test_a_change_inside_a_container_is_seen(name, derive):
    cls, arguments, read, change = CONTAINERS[name]

    def script(compile):
        w = derive(cls)(*copy.deepcopy(arguments))
        fast = compile(lambda x: x * read(w) + 1)
        yield [fast(3.0) for _ in range(3)]
        change(w)
        yield [fast(3.0) for _ in range(3)]

    same(script)


def with_all(x, signs):
    return x * 2.0 if all(s > 0 for s in signs) else x


def with_any(x, signs):
    return x * 2.0 if any(s > 0 for s in signs) else x


def with_tuple(x, signs):
    return x * sum(tuple(s * 0.5 for s in signs))


@pytest.mark.parametrize("f", [with_all, with_any, with_tuple])
@pytest.mark.parametrize("signs", [[1.0, 2.0], [-1.0, 2.0], [-1.0, -2.0]])
def test_builtins_over_a_generator_are_recorded(f, signs):
    """Python 3.14 writes loops for them, which first ask by ``is`` for the builtin."""
    fast = chainrule.compile(f, on_fallback="raise")
    for _ in range(3):
        assert fast.value_and_grad(3.0, signs) == chainrule.value_and_grad(f)(3.0, signs)


def test_what_asks_for_true_beside_such_a_loop_is_still_refused():
    def f(x):
        return x * 2.0 if all(y > 0 for y in [x]) and ((x > 1.0) is True) else x

    with pytest.raises(chainrule.FallbackError, match="asks whether something is True"):
        chainrule.compile(f, on_fallback="raise").value_and_grad(3.0)
