"""Attributes that are asked for by names which stand in no code, and what is done by such names."""

import functools
import math
import operator
import threading
import types

import numpy as np
import pytest

import chainrule
from chainrule.compiler.runtime.ledger import allowance

RATE = 1.0
ARRAY = np.array([1.0, 2.0])
LOCK = threading.Lock()
EXISTS, HELD = "exists", "locked"


@pytest.fixture(autouse=True)
def recorded_at_once(monkeypatch):
    monkeypatch.setattr(allowance, "left", math.inf)


def helper(x):
    """Text."""
    return x


class Places:
    __match_args__ = ("exists",)


class Anything(type):
    def __instancecheck__(cls, _):
        return True


class AnyPlace(Places, metaclass=Anything):
    pass


def compare(function, change, *arguments):
    """Compare calls with eager ones, before and after a change that makes a difference."""
    fast = chainrule.compile(function, on_fallback="eager").value_and_grad
    eager = chainrule.value_and_grad(function)
    before = eager([3.0], *arguments)
    assert [fast([3.0], *arguments) for _ in range(4)] == [before] * 4
    change()
    after = eager([3.0], *arguments)
    assert after != before
    assert [fast([3.0], *arguments) for _ in range(4)] == [after] * 4


def matched_by_keyword(path):
    match path:
        case object(exists=exists):
            return exists()


def matched_by_place(path):
    match path:
        case AnyPlace(exists):
            return exists()


def base_with(path):
    return next(cls for cls in type(path).__mro__ if cls.__name__ == "Path")


FOR_FILES = {
    "getattr": lambda path: getattr(path, EXISTS)(),
    "made": lambda path: getattr(path, "ex" + EXISTS[2:])(),
    "method": lambda path: path.__getattribute__("ex" + EXISTS[2:])(),
    "object": lambda path: object.__getattribute__(path, "ex" + EXISTS[2:])(),
    "attrgetter": lambda path: operator.attrgetter("ex" + EXISTS[2:])(path)(),
    "methodcaller": lambda path: operator.methodcaller(EXISTS)(path),
    "partial": lambda path: functools.partial(getattr, path, "exists")()(),
    "bound": lambda path: types.MethodType(getattr, path)("exists")(),
    "map": lambda path: next(map(getattr, [path], ["exists"]))(),
    "dict": lambda path: base_with(path).__dict__["ex" + EXISTS[2:]](path),
    "keyword": matched_by_keyword,
    "place": matched_by_place,
}


@pytest.mark.parametrize("how", FOR_FILES)
def test_whether_there_is_a_file_is_no_constant_whatever_asks(how, tmp_path):
    path, ask = tmp_path / "file", FOR_FILES[how]
    compare(lambda p: p[0] * (2.0 if ask(path) else 5.0), path.touch)


ITS_GLOBALS = operator.attrgetter("__globals__")
DESCRIPTOR = types.FunctionType.__dict__["__globals__"]
OWN = helper.__getattribute__


@pytest.mark.parametrize(
    "read",
    [
        lambda: getattr(helper, "__globals__"),  # noqa: B009
        lambda: type(helper).__dict__["__globals__"].__get__(helper),
        lambda: getattr(type(helper), "__dict__")["__globals__"].__get__(helper),  # noqa: B009
        lambda: operator.attrgetter("__dict__")(type(helper))["__globals__"].__get__(helper),
        lambda: DESCRIPTOR.__get__(helper),
        lambda: ITS_GLOBALS(helper),
        lambda: OWN("__globals__"),
    ],
    ids="getattr dict getattr_dict attrgetter_dict descriptor attrgetter own".split(),
)
def test_globals_are_no_constants_whatever_asks_for_them(read, monkeypatch):
    change = functools.partial(monkeypatch.setitem, globals(), "RATE", 7.0)
    compare(lambda p: p[0] * read()["RATE"], change)


@pytest.mark.parametrize(
    "read",
    [
        lambda name: getattr(helper, name),
        lambda name: operator.attrgetter(name)(helper),
        lambda name: helper.__getattribute__(name),
        lambda name: ("{0." + name + "}").format(helper),
        lambda name: ("{x." + name + "}").format_map({"x": helper}),
    ],
    ids="getattr attrgetter method format format_map".split(),
)
def test_names_that_are_passed_ask_for_what_changes(read, monkeypatch):
    change = functools.partial(monkeypatch.setattr, helper, "__name__", "a_longer_name")
    compare(lambda p, name: p[0] * len(read(name)), change, "__name__")


IS_HELD = LOCK.locked


@pytest.mark.parametrize(
    "ask", [lambda: getattr(LOCK, HELD)(), lambda: IS_HELD()], ids="getattr method".split()
)
def test_whether_a_lock_is_held_is_no_constant_whatever_asks(ask):
    try:
        compare(lambda p: p[0] * (2.0 if ask() else 5.0), LOCK.acquire)
    finally:
        LOCK.release()


LABEL, LABEL_OF = "label", operator.attrgetter("label")


@pytest.mark.parametrize(
    "label",
    [
        lambda x: getattr(x, "label"),  # noqa: B009
        lambda x: getattr(x, LABEL),
        lambda x: operator.attrgetter("label")(x),
        lambda x: operator.attrgetter(LABEL)(x),
        lambda x: LABEL_OF(x),
    ],
    ids="getattr made attrgetter made_attrgetter captured".split(),
)
def test_the_label_of_a_value_is_no_constant_whatever_asks(label):
    weight = chainrule.Value(2.0, label="first")
    compare(lambda p: p[0] * len(label(weight)), lambda: setattr(weight, "label", "another"))


WRITE, SET = "tofile", "setflags"
TO_FILE = ARRAY.tofile


@pytest.mark.parametrize(
    "write",
    [
        lambda path: getattr(ARRAY, WRITE)(path),
        lambda path: operator.methodcaller(WRITE, path)(ARRAY),
        lambda path: TO_FILE(path),
    ],
    ids="getattr methodcaller method".split(),
)
def test_a_file_is_written_in_every_call(write, tmp_path):
    path = tmp_path / "file"

    def f(p):
        write(str(path))
        return p[0] * 2.0

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(4):
        path.unlink(missing_ok=True)
        assert fast.value_and_grad([1.0]) == (2.0, [2.0])
        assert path.exists()


def test_a_method_of_a_captured_getter_writes_in_every_call(tmp_path):
    path = tmp_path / "file"
    write = operator.methodcaller("tofile", str(path))

    def f(p):
        write(ARRAY)
        return p[0] * 2.0

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(4):
        path.unlink(missing_ok=True)
        assert fast.value_and_grad([1.0]) == (2.0, [2.0])
        assert path.exists()


def test_an_array_is_sealed_in_every_call():
    array = np.array([1.0])

    def f(p):
        getattr(array, SET)(write=False)
        return p[0] * 2.0

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(4):
        array.setflags(write=True)
        fast.value_and_grad([1.0])
        assert not array.flags.writeable


class Settings:
    def __init__(self):
        self.rate, self.op, self.default, self.type = 1.0, 2.0, 3.0, 4.0
        self.label = 9.0


SETTINGS, FIELDS = Settings(), ["rate", "op", "default", "type"]


@pytest.mark.parametrize(
    "read",
    [
        lambda: sum(getattr(SETTINGS, name) for name in FIELDS),
        lambda: sum(operator.attrgetter("rate", "op")(SETTINGS)) + 7.0,
        lambda: sorted([SETTINGS], key=operator.attrgetter("rate"))[0].rate + 9.0,
        lambda: sum(SETTINGS.__getattribute__(name) for name in FIELDS),
        lambda: SETTINGS.rate + operator.attrgetter("label")(SETTINGS),
    ],
    ids="getattr attrgetter key method label".split(),
)
def test_settings_that_are_read_by_names_are_recorded(read):
    fast = chainrule.compile(lambda p: p[0] * read(), on_fallback="eager")
    for rate in (1.0, 2.0):
        SETTINGS.rate = rate
        for _ in range(4):
            assert fast.value_and_grad([3.0])[0] == 3.0 * (rate + 9.0)
    assert " 0 replayed" not in fast.report()
    assert "eager because" not in fast.report()
    SETTINGS.rate = 1.0
