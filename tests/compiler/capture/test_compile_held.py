"""What a function reaches by objects that show little of it: in C, by setters, by registrations."""

import abc
import collections.abc
import datetime
import math
import operator
import threading

import numpy as np
import pytest

import chainrule
from chainrule.compiler.runtime.ledger import allowance


@pytest.fixture(autouse=True)
def recorded_at_once(monkeypatch):
    monkeypatch.setattr(allowance, "left", math.inf)


def compiled(function):
    return chainrule.compile(function, on_fallback="eager").value_and_grad


ARRAY, WEIGHTS, PLACES = np.arange(3.0), np.ones(2), np.array([0, 1])
NUMBERS = [1.0, 2.0]
ITEM, LENGTH, HAS = ARRAY.__getitem__, NUMBERS.__len__, NUMBERS.__contains__
DOT, PICK = operator.methodcaller("dot", WEIGHTS), operator.itemgetter(PLACES)
ROW = np.array([(1.0, 2)], dtype=[("x", "f8"), ("n", "i8")])[0]
LOCK = threading.Lock()


class Zone(datetime.tzinfo):
    hours = 1

    def utcoffset(self, when):
        return datetime.timedelta(hours=self.hours)


class Rate(float):
    __slots__ = ()
    scale = 1.0


MOMENT, RATE = datetime.datetime(2020, 1, 1, tzinfo=Zone()), Rate(2.0)


@pytest.mark.parametrize(
    ("f", "change"),
    [
        (lambda x, v: x * ITEM(0), lambda k: ARRAY.__setitem__(0, float(k))),
        (lambda x, v: x * LENGTH(), lambda k: NUMBERS.append(1.0)),
        (lambda x, v: x * 2 if HAS(7.0) else x, lambda k: NUMBERS.append(5.0 + k)),
        (lambda x, v: x * DOT(v), lambda k: WEIGHTS.__setitem__(0, float(k))),
        (lambda x, v: x * PICK(v).sum(), lambda k: PLACES.__setitem__(0, k % 2)),
        (lambda x, v: x * ROW["x"], lambda k: ROW.__setitem__("x", float(k))),
        (lambda x, v: x * 2 if LOCK.locked() else x, lambda k: LOCK.acquire(blocking=False)),
        (lambda x, v: x * MOMENT.utcoffset().seconds, lambda k: setattr(Zone, "hours", k)),
        (lambda x, v: x * RATE.scale, lambda k: setattr(Rate, "scale", float(k))),
    ],
    ids="item length contains methodcaller itemgetter row lock zone float".split(),
)
def test_what_something_in_c_holds_is_read_afresh(f, change):
    fast, eager, data = compiled(f), chainrule.value_and_grad(f), np.array([2.0, 3.0])
    seen = set()
    for k in range(4):
        for _ in range(2):
            assert fast(3.0, data) == eager(3.0, data)
        seen.add(fast(3.0, data)[0])
        change(k)
    assert len(seen) > 1


# --- setters --------------------------------------------------------------------------------------


SCALE, EVENTS = 2.0, []


class Dial:
    def __init__(self):
        self._angle = 0.0

    @property
    def angle(self):
        return self._angle

    @angle.setter
    def angle(self, x):
        EVENTS.append("set")
        self._angle = x * SCALE

    @angle.deleter
    def angle(self):
        EVENTS.append("deleted")
        self._angle = SCALE


def turned(x):
    dial = Dial()
    dial.angle = x
    return dial.angle


def set_by_name(x):
    dial = Dial()
    setattr(dial, "angle", x)  # noqa: B010
    return dial.angle


def reset(x):
    dial = Dial()
    del dial.angle
    return x * dial.angle


@pytest.mark.parametrize("f", [turned, set_by_name, reset])
def test_a_setter_is_followed_as_a_helper_is(f, monkeypatch):
    fast = compiled(f)
    for number in (2.0, 2.0, 5.0):
        monkeypatch.setitem(globals(), "SCALE", number)
        EVENTS.clear()
        assert fast(3.0) == (3.0 * number, number)
        assert ["deleted" if f is reset else "set"] == EVENTS


# --- titles, registrations, subclasses, types of arrays -------------------------------------------


def titled(x: int) -> float:
    """Short."""
    return x


class Titled:
    pass


class Shape(abc.ABC):  # noqa: B024
    pass


class Square:
    pass


class Ring:
    pass


SQUARE, RING = Square(), Ring()
TABLE = np.arange(4.0)


@pytest.mark.parametrize(
    ("f", "change"),
    [
        (lambda x: x * len(titled.__name__), lambda: setattr(titled, "__name__", "t")),
        (lambda x: x * len(titled.__doc__), lambda: setattr(titled, "__doc__", "Longer.")),
        (lambda x: x * len(titled.__annotations__), lambda: titled.__annotations__.pop("x")),
        (lambda x: x * len(Titled.__qualname__), lambda: setattr(Titled, "__qualname__", "T")),
        (lambda x: x * 2 if isinstance(SQUARE, Shape) else x, lambda: Shape.register(Square)),
        (
            lambda x: x * 2 if isinstance(RING, collections.abc.Sized) else x,
            lambda: collections.abc.Sized.register(Ring),
        ),
        (lambda x: x * len(Shape.__subclasses__()), lambda: type("Circle", (Shape,), {})),
        (lambda x: x * 2 if TABLE.flags.writeable else x, lambda: TABLE.setflags(write=False)),
    ],
    ids="name doc annotations class registered library subclasses flags".split(),
)
def test_what_no_dict_has_is_read_afresh(f, change):
    fast, eager = compiled(f), chainrule.value_and_grad(f)
    before = fast(3.0)
    assert fast(3.0) == before == eager(3.0)
    kept = change()  # a class that nobody holds is gone
    assert fast(3.0) == eager(3.0) != before
    del kept


def test_an_array_of_another_type_in_the_same_memory_is_another_array():
    numbers = np.array([1.0, 2.0])
    fast = compiled(lambda x: x * float(numbers[1]))
    assert fast(3.0) == fast(3.0) == (6.0, 2.0)
    numbers.dtype = np.dtype(np.int64)
    assert fast(3.0)[1] == float(numbers[1])
