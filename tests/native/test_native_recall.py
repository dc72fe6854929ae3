"""What answers a compiled call that is known again, in C: checks, what it was passed, plans."""

import collections
import copy
import ctypes
import dataclasses
import datetime
import enum
import gc
import itertools
import sys
import threading
import types
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
from compile_view import View
from hypothesis import given
from hypothesis import strategies as st
from native_parts import selecting
from programs import count

pytest.importorskip("chainrule._native")

import chainrule
from chainrule import _native
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.runtime.signature import signature as signature_of
from chainrule.trees import map_leaves

# --- checks --------------------------------------------------------------------------------------


def failed(*checks):
    return _native.Checks(checks).failed()


def test_checks_find_the_first_list_that_changed():
    a, b = object(), object()
    first, second = [a, b], [b]
    checks = _native.Checks(((first, (a, b)), (second, (b,))))
    assert checks.failed() == -1
    second.append(a)
    assert checks.failed() == 1
    first[0] = b
    assert checks.failed() == 0
    first[:], second[:] = [a, b], [b]
    assert checks.failed() == -1
    first.pop()
    assert checks.failed() == 0
    assert failed() == -1


def test_checks_look_at_dicts_names_and_attributes():
    class Space:
        present = object()

    a, b, space = object(), object(), Space()
    names = {"x": a}
    parts = (
        (names, ("x", a)),
        (names, "x", a),
        (names, "y", None, None),
        (space, "present", Space.present),
        (space, "absent", None, None),
    )
    checks = _native.Checks(parts)
    assert checks.failed() == -1
    space.absent = b
    assert checks.failed() == 4
    space.present = b
    assert checks.failed() == 3
    names["y"] = b
    assert checks.failed() == 0
    assert failed(*parts[1:]) == 1
    names["x"] = b
    assert failed(*parts[1:]) == 0


def test_checks_see_the_order_and_the_keys_of_a_dict():
    one, two = "one" * 1, "".join(["o", "ne"])
    names = {one: 1, "b": 2}
    checks = _native.Checks(((names, (one, 1, "b", 2)),))
    assert checks.failed() == -1
    del names[one]
    names[one] = 1
    assert checks.failed() == 0
    names.clear()
    names.update({two: 1, "b": 2})
    assert (two == one, checks.failed()) == (True, 0), "another object is another key"


def test_an_attribute_that_raises_is_none_but_what_says_nothing_goes_on():
    class Space:
        @property
        def fails(self):
            raise failure

    space = Space()
    failure = RuntimeError("no attribute then")
    assert failed((space, "fails", None, None)) == -1
    assert failed((space, "fails", object())) == 0
    for failure in (KeyboardInterrupt(), MemoryError()):
        with pytest.raises(type(failure)):
            failed((space, "fails", None, None))


def test_checks_see_all_of_a_function_and_its_cells():
    held = 1.0

    def f(x=1.0, *, y=2.0):
        return held

    (cell,) = f.__closure__
    names = ("__code__", "__defaults__", "__kwdefaults__", "__dict__", "__name__", "__qualname__")
    parts = [(f, name, getattr(f, name)) for name in names]
    checks = _native.Checks((*parts, (cell, "cell_contents", held)))
    assert checks.failed() == -1
    held = 2.0
    assert checks.failed() == 6
    del held
    assert checks.failed() == 6
    assert failed((cell, "cell_contents", None, None)) == -1
    f.__qualname__ = "other"
    assert checks.failed() == 5
    f.__dict__ = {}
    assert checks.failed() == 3
    f.__kwdefaults__ = None
    assert checks.failed() == 2
    f.__defaults__ = None
    assert checks.failed() == 1
    f.__code__ = (lambda: cell).__code__
    assert checks.failed() == 0


class Overridden(types.SimpleNamespace):
    def __getattribute__(self, name):
        return 7 if name == "__dict__" else super().__getattribute__(name)


def test_a_class_of_the_users_may_compute_any_attribute():
    x = Overridden(a=1)
    assert failed((x, "__dict__", 7)) == -1
    assert failed((x, "a", 1)) == -1
    assert failed((1.5, "real", 1.5)) in (-1, 0), "whatever float gives"


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [([], ())],
        (1,),
        ((),),
        (([],),),
        (([], []),),
        ((None, ()),),
        (([], None),),
        (({}, [], None),),
        (({}, 1, None),),
        ((int, "real", None, None, None),),
    ],
)
def test_what_is_no_check_is_refused(wrong):
    with pytest.raises(TypeError):
        _native.Checks(wrong)


def test_checks_in_a_cycle_are_collected():
    class Holder:
        pass

    holder = Holder()
    holder.checks = _native.Checks(((holder.__dict__, ()), (holder, "checks", None, None)))
    gone = weakref.ref(holder)
    del holder
    gc.collect()
    assert gone() is None


# --- what a call was passed ----------------------------------------------------------------------


class Odd(int):
    pass


class Inexact(float):
    pass


class Items(list):
    pass


class Two(NamedTuple):
    a: Any
    b: Any


def passed(*arguments, differentiate=True):
    return _native.passed(arguments, np.ndarray, np.float64, differentiate, {})


def signature(*arguments, differentiate=True):
    return passed(*arguments, differentiate=differentiate).signature


PLAIN = [
    0.5,
    np.float64(0.5),
    7,
    -(10**30),
    np.arange(3.0),
    np.arange(4).reshape(2, 2),
    np.array(0.5),
    np.array(3),
    [1, 2],
    [1.0, 2, [3]],
    (1, (2.0,), []),
    {"a": 1.0, "b": [2]},
    {"b": [2], "a": 1.0},
    {1: 1, (2, 3): 2.0},
    [],
    {},
    (),
    [[]],
    [[1], [2]],
    [[1, 2], []],
    [[1.0], [2.0]],
    [np.arange(2.0), 1.0, 1],
    True,
    False,
    None,
    "text",
    "",
    [None, "0", True],
]
NOT_PLAIN = [
    b"text",
    "\ud800",
    type("Text", (str,), {})("text"),
    1j,
    Odd(3),
    Inexact(0.5),
    np.int64(3),
    np.float32(0.5),
    np.bool_(True),
    Items([1]),
    collections.OrderedDict(a=1),
    Two(1, 2),
    {1, 2},
    range(3),
    object(),
    chainrule.Value(1.0),
    np.array([True]),
    np.array(["text"]),
    np.array([None]),
    np.array([1j]),
    np.float16([1.0]),
    np.longdouble([1.0]),
    np.int8([1]),
    np.int32([1]),
    np.float32([[1.0, 2.0]]),
    np.uint64([1]),
    np.array([1.0]).astype(">f8"),
    np.array([1]).astype(">i8"),
    np.zeros((2, 0), np.int64),
    np.zeros((2, 3)).T,
    np.zeros(4)[::2],
    np.zeros(3, [("x", float)]),
    np.zeros(2, "m8[s]"),
    np.zeros(9, np.uint8)[1:].view(np.float64),
    np.ma.masked_array([1.0]),
]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: (1, {"k": x})])
@pytest.mark.parametrize("x", NOT_PLAIN, ids=lambda x: type(x).__name__)
def test_what_is_not_plain_is_left_alone(x, wrap):
    assert passed(0.0, wrap(x)) is None
    assert passed(0.0, 1.0, wrap(x)) is None
    if type(x) is not np.ndarray:  # of the first argument, a Plan looks at arrays
        assert passed(wrap(x)) is None


def nests(leaves):
    keys = st.sampled_from(
        ["a", "b", "", "longer than a word", "\0", "ä", 1, 1.0, True, (1, 2), None]
    )
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(keys, inner, max_size=3)
        ),
        max_leaves=8,
    )


numbers = st.sampled_from([0.5, 2, 3.5, 1, np.float64(0.25), True, None, "a"])
arrays = st.sampled_from([(), (1,), (2,), (1, 2), (2, 1)]).flatmap(
    lambda shape: st.sampled_from([np.float64, np.int64]).map(lambda kind: np.ones(shape, kind))
)
# The same nests in several places, so that some come twice.
calls = st.lists(nests(numbers | arrays), min_size=1, max_size=3).flatmap(
    lambda pool: st.tuples(*[nests(st.sampled_from(pool))] * 3)
)


def key_and_signature(arguments, differentiate):
    """What flatten_call says of a call and what C says; twice None where that is not to be known."""
    call = flatten_call(arguments, {}, differentiate)
    found = passed(*arguments, differentiate=differentiate)
    written = signature_of(call.structure[0], arguments, differentiate, {})
    if written is None:
        if call.refused is not None:
            assert found is None
            return None, None
        assert call.comes_again or "<i4" in repr(call.structure[0][1:])
        if found is not None:  # of containers with floats C does not see that they come twice
            two = apart(arguments)
            assert found.signature == signature(*two, differentiate=differentiate)
            assert flatten_call(two, {}, differentiate).may_come_again
        return None, None
    assert not call.comes_again
    assert found.ids == tuple(call.ints)
    assert found.signature == written.row
    return call.key, found.signature


def apart(tree):
    """The tree with no container in it twice."""
    return map_leaves(lambda x: x.copy() if isinstance(x, np.ndarray) else x, tree)


@given(calls, calls, st.booleans())
def test_signatures_are_equal_where_one_recording_serves(one, other, differentiate):
    (key, row), (other_key, other_row) = [
        key_and_signature(arguments, differentiate) for arguments in (one, other)
    ]
    if row is not None and other_row is not None and shapes_of(one[0]) == shapes_of(other[0]):
        assert (row == other_row) is (key == other_key)
    if key is not None and key == other_key:
        assert row == other_row


def shapes_of(nest):
    """Of the first argument these are not in the signature: a Plan looks at them."""
    if isinstance(nest, (dict, list, tuple)):
        return [shapes_of(x) for x in (nest.values() if isinstance(nest, dict) else nest)]
    return np.shape(nest)


@pytest.mark.parametrize("one", PLAIN, ids=repr)
def test_each_of_these_is_another(one):
    rows = [passed(0.0, x) for x in PLAIN]
    found = signature(0.0, one)
    alike = [x for x, row in zip(PLAIN, rows, strict=True) if row.signature == found]
    assert all(
        flatten_call((x,), {}, False).key == flatten_call((one,), {}, False).key for x in alike
    )
    assert any(x is one for x in alike)
    key_and_signature((0.0, one), True)
    key_and_signature((0.0, one, 1, one), True)


@dataclasses.dataclass(slots=True)  # others may have attributes beside their fields
class Pair:
    a: Any
    b: Any


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


def opened_kinds():
    """Trees of types that C looks into only where it is told how; those of a row differ."""
    one, two = datetime.date(2024, 1, 1), datetime.date(2024, 1, 2)
    yield [Two(1.0, 2), Two(1, 2.0), Pair(1.0, 2), (1.0, 2), [1.0, 2]]
    yield [types.SimpleNamespace(a=1.0), types.SimpleNamespace(b=1.0), {"a": 1.0}]
    yield [types.SimpleNamespace(), types.SimpleNamespace(a=1), types.SimpleNamespace(a="1")]
    yield [
        collections.deque([1.0]),
        collections.deque([1.0], 2),
        collections.deque([1.0], 3),
        [1.0],
    ]
    yield [one, two, one - two, two - one, None, "one"]
    yield [Pair(Two(one, 1), [3.0]), Pair(Two(two, 1), [3.0]), Pair(1, [3.0])]


@pytest.mark.parametrize("trees", [*opened_kinds()], ids=repr)
def test_records_and_their_like_have_signatures_where_it_is_known_how_to_look(trees):
    opened = {}
    rows, keys = {}, {}
    for tree in [*trees, *copy.deepcopy(trees)]:
        call = flatten_call((0.5, tree), {}, True)
        written = signature_of(call.structure[0], (0.5, tree), True, opened)
        found = _native.passed((0.5, tree), np.ndarray, np.float64, True, opened)
        assert found.signature == written.row
        assert found.ids == tuple(call.ints)
        rows.setdefault(found.signature, []).append(tree)
        keys.setdefault(call.key, []).append(tree)
        first = _native.passed((tree,), np.ndarray, np.float64, True, opened)
        if first is not None:  # to differentiate by: only some kinds of records, as Python has it
            call = flatten_call((tree,), {}, True)
            assert first.signature == signature_of(call.structure[0], (tree,), True, opened).row
    assert len(rows) == len(keys) == len(trees)


def test_records_that_have_more_than_their_fields_are_left_to_the_slow_path():
    @dataclasses.dataclass
    class Loose:
        a: Any

    plain, more = Loose(1.0), Loose(1.0)
    more.b = 2.0
    for tree, other in ((plain, more), ([plain], [more])):
        call, opened = flatten_call((0.5, tree), {}, True), {}
        found = signature_of(call.structure[0], (0.5, tree), True, opened)
        row = _native.passed((0.5, tree), np.ndarray, np.float64, True, opened).signature
        assert row == found.row
        assert _native.passed((0.5, other), np.ndarray, np.float64, True, opened) is None


@pytest.mark.parametrize("file", ["<string>", "/home/me/own_typing.py", "/home/me/enum.py"])
def test_functions_of_a_record_are_refused_or_walked_wherever_they_are_written(file):
    text = """
class Rate(NamedTuple):
    a: float
    def __mul__(self, other): return TIMES * other
@dataclasses.dataclass
class Price:
    a: float
    def __eq__(self, other): return TIMES > 2
class Kind(enum.Enum):
    A = 1
    def __mul__(self, other): return TIMES * other
"""
    names = {"dataclasses": dataclasses, "NamedTuple": NamedTuple, "enum": enum, "TIMES": 3.0}
    names["__name__"] = __name__
    exec(compile(text, file, "exec"), names)
    for tree in (names["Rate"](1.0), names["Kind"].A):
        assert "cannot be followed" in flatten_call((0.5, tree), {}, True).refused
    call = flatten_call((0.5, names["Price"](1.0)), {}, True)
    assert (call.refused, list(call.roots)) == (None, [names["Price"]])


def test_fields_that_are_missing_are_left_to_the_slow_path():
    half = object.__new__(Pair)
    half.a = 1.0
    opened = {Pair: ("a", "b"), datetime.date: {}, Two: ("a",)}
    for tree in (half, datetime.date(2024, 1, 1), Two(1.0, 2.0), Side.LEFT):
        assert _native.passed((0.5, tree), np.ndarray, np.float64, True, opened) is None


def test_integers_are_taken_out():
    big = 10**30
    found = passed(1, 2, [3, (big, 4.0)], np.array([[5, -6]]), {"k": np.array(7)})
    assert found.ids == (2, 3, big, 5, -6, 7)
    assert passed(5).ids == ()
    assert passed([10**400]) is None
    assert passed(1.0, [10**400]).ids == (10**400,)


def test_runs_end_where_something_else_begins():
    assert signature(1.0, 1.0) != signature([1.0], 1.0)
    assert signature([1.0, 1.0], 1.0) != signature([1.0], 1.0)
    assert signature(0.0, [1, 2], 3) != signature(0.0, [1], 2)
    assert signature(0.0, [[1, 2], 3]) != signature(0.0, [[1], 2, 3])
    assert signature(0.0, [1], [2]) == signature(0.0, [5], [6])


def test_keys_are_told_by_what_they_are():
    key, other = (1, 2), tuple(range(1, 3))
    assert signature({"": 1.0}) != signature({"\0": 1.0}) != signature({"\0\0": 1.0})
    assert signature({"12345678": 1.0}) != signature({"123456789": 1.0})
    assert passed({"\ud800": 1.0}) is None
    assert signature({"ab": 1.0}) == signature({"".join(["a", "b"]): 1.0})
    assert signature({key: 1.0}) == signature({key: 2.0}) != signature({other: 1.0})
    assert signature({1: 1.0}) != signature({True: 1.0}) != signature({1.0: 1.0})
    assert signature({"a": 1.0, "b": 1.0}) != signature({"b": 1.0, "a": 1.0})


@pytest.mark.parametrize("ids", [[1, 2], [(1,)], {"a": 1}, [[], ()], []])
def test_a_list_without_floats_twice_is_not_two(ids):
    again = copy.deepcopy(ids)
    assert passed(0.0, ids, ids) is None
    assert passed(0.0, [ids, ids]) is None
    assert passed(0.0, ids, {"k": (ids,)}) is None
    assert signature(0.0, ids, again) == signature(0.0, again, copy.deepcopy(ids))
    assert passed([ids, 1.0], ids) is not None, "the first argument's are made anew"
    assert passed([ids, ids]) is not None
    mixed = [ids, 0.5]
    assert passed(0.0, mixed) is not None
    assert passed(0.0, mixed, mixed) is None, "for what is in it comes twice"


@pytest.mark.parametrize(
    "floats",
    [[0.5], [[0.5], 1], {"a": 0.5}, [np.ones(2)], [np.ones(2, np.int64)], np.ones(2)],
    ids=repr,
)
def test_a_list_of_floats_twice_is_seen_by_python_only(floats):
    """C takes it for two lists, so nothing is cached where the function could tell."""
    for arguments in [(0.0, floats, floats), (0.0, [floats, floats]), (0.0, floats, (floats,))]:
        two = apart(arguments)
        assert signature(*arguments) == signature(*two)
        one_call, two_call = (flatten_call(x, {}, differentiate=True) for x in (arguments, two))
        assert (one_call.comes_again, two_call.comes_again) == (True, False)
        assert one_call.key != two_call.key
        assert two_call.may_come_again
    for arguments in [(floats, floats), ([floats, floats],)]:  # the first argument's are made anew
        assert passed(*arguments) is not None
        assert not flatten_call(arguments, {}, differentiate=True).comes_again


@pytest.mark.parametrize("asks", [False, True])
def test_whether_two_arguments_are_one_is_seen_where_a_function_asks(asks):
    def blind(p, a, b):
        return sum(w * (x + y) for w, x, y in zip(p, a, b, strict=True))

    def asking(p, a, b):
        return sum(w * x if a is b else w * (x + y) for w, x, y in zip(p, a, b, strict=True))

    f = asking if asks else blind
    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    p, one = [0.5] * 400, [3.0] * 400
    for _ in range(3):
        for b in (list(one), one):
            (y, slopes), (expected, wanted) = fast.value_and_grad(p, one, b), eager(p, one, b)
            assert y == pytest.approx(expected, rel=1e-12)
            assert slopes == pytest.approx(wanted, rel=1e-12)
    if View(fast).ran_machine_code and chainrule.engine == "native":
        cached = View(fast).fast_path
        assert cached.plans
        assert cached.tells is asks


def test_many_lists_of_integers_are_too_many():
    assert passed(0.0, *[[1] for _ in range(256)]) is not None
    assert passed(0.0, *[[1] for _ in range(257)]) is None
    assert passed(0.0, [[1.0] for _ in range(1000)]) is not None


def test_nests_without_end_are_too_deep():
    loop = [1.0]
    loop.append(loop)
    assert passed(loop) is None
    assert passed(0.0, loop) is None
    around = {}
    around["x"] = (around,)
    assert passed(around) is None


def test_long_rows_are_taken_in():
    assert (
        passed([0.5] * 100_000, [2] * 100_000, [[k] for k in np.ones(5000).tolist()]).ids
        == (2,) * 100_000
    )
    assert len(signature([0.5] * 100_000)) == 5 * 8


def test_passed_takes_arguments_and_types():
    for wrong in (
        (),
        ((),),
        ([1.0], np.ndarray, float, True),
        ((1.0,), 1, 2, True),
        ((1.0,), np.ndarray, float),
        ((1.0,), float, float, 1),
        ((1.0,), float, float, True),
        ((1.0,), float, float, True, True),
    ):
        with pytest.raises(TypeError):
            _native.passed(*wrong)
    with pytest.raises(TypeError):
        _native.Passed()
    with pytest.raises(AttributeError):
        passed(1.0).ids = ()
    assert _native.passed((), np.ndarray, np.float64, True, {}).ids == ()
    assert _native.passed((1,), str, int, True, {}).ids == (), "types that say nothing"
    assert _native.passed((1,), str, int, False, {}).ids == (1,), "not differentiated by"


# --- plans ---------------------------------------------------------------------------------------


class Machine:
    """A Plan whose machine code is Python: the sum of the parameters times a selected one."""

    def __init__(
        self, arrays, template, dtype="float64", extra=1, own=2, integers=(), decider=None
    ):
        self.arrays = arrays
        self.real = ctypes.c_double if dtype == "float64" else ctypes.c_float
        self.size = sum(a.size for a in arrays)
        self.shared, self.to_shared = (np.zeros(self.size + extra, dtype) for _ in range(2))
        self.own, self.to_own = np.zeros(own, dtype), np.zeros(own, dtype)
        self.seeds = np.ones(1, dtype)
        self.gathers, self.counts = np.zeros(3, np.int64), np.zeros(1, np.int64)
        self.places = np.array([1], np.int64)
        self.flags = [0.0, 0.0]
        self.calls = 0
        self.pause = None
        pointers = [ctypes.POINTER(self.real)] * 2
        tail = [ctypes.POINTER(ctypes.c_int64)] * 2
        self._forward = ctypes.CFUNCTYPE(self.real, *pointers, *tail)(self.forward)
        self._backward = ctypes.CFUNCTYPE(self.real, *pointers, *pointers, pointers[0], *tail)(
            self.backward
        )
        names = [(f"f{k}", np.float64, a.shape) for k, a in enumerate(arrays)]
        arenas = (self.shared, self.own, self.to_shared, self.to_own, self.seeds)
        addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in (self._forward, self._backward)]
        self.parts = [
            tuple([a.shape for a in arrays]),
            len(arrays),
            template,
            np.dtype(names),
            np.ndarray,
            decider or selecting(1, 0, [*range(self.size)]),
            self,
            *addresses,
            (*arenas, self.gathers, self.counts, self.places, np.array(integers, np.int64)),
            len(self.shared),
        ]
        self.plan = _native.Plan(*self.parts)

    def call(self, *ids):
        return passed(self.arrays, list(ids))

    def run(self, *ids):
        return self.plan.run(self.call(*ids))

    def forward(self, shared, own, gathers, counts):
        self.calls += 1
        if self.pause is not None:
            self.pause()
        own[0] = sum(shared[: self.size]) * shared[gathers[1]]
        return self.flags[0]

    def backward(self, shared, own, to_shared, to_own, seeds, gathers, counts):
        for k in range(self.size):
            to_shared[k] = shared[gathers[1]] * seeds[0]
        to_shared[gathers[1]] += sum(shared[: self.size])
        return self.flags[1]

    def without(self, place, part):
        """The parts with another in some place."""
        return [*self.parts[:place], part, *self.parts[place + 1 :]]

    def with_arena(self, place, arena):
        arenas = [*self.parts[9]]
        arenas[place] = arena
        return self.without(9, tuple(arenas))


def example(dtype="float64", extra=1):
    arrays = [np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]), np.array(0.5), np.full((1, 1, 2), 0.25)]
    template = {"w": "f0", 3: ["f1", ("f2", [])]}
    return arrays, Machine(arrays, template, dtype, extra)


def check(answer, arrays, chosen):
    """Against numpy."""
    value, gradient = answer
    row = np.concatenate([a.ravel() for a in arrays])
    wanted = np.full(len(row), row[chosen])
    wanted[chosen] += row.sum()
    assert type(value) is float
    assert value == row.sum() * row[chosen]
    assert list(gradient) == ["w", 3]
    assert type(gradient[3][1]) is tuple
    assert gradient[3][1][1] == []
    found = [gradient["w"], gradient[3][0], gradient[3][1][0]]
    for a, b in zip(found, arrays, strict=True):
        assert type(a) is np.ndarray
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert a.dtype is np.dtype(np.float64)
        assert a.flags.writeable
        assert a.flags.aligned
        assert a.flags.c_contiguous
    np.testing.assert_array_equal(np.concatenate([a.ravel() for a in found]), wanted)


class Weighted(Machine):
    """Its machine code multiplies the numbers of the first argument with those of the others.

    There are six: a float, an array of four, a float; then an array of two, three floats, one
    integer that is a number. A further integer selects nothing.
    """

    def __init__(self, dtype="float64", extra=1):
        decider = selecting(2, 1, [0] * 10)
        super().__init__([np.zeros(6)], None, dtype, extra, 8, [5, 6], decider)
        record = np.dtype({"names": ["x"], "formats": ["(2,2)f8"], "offsets": [8], "itemsize": 48})
        shapes = (None, (2, 2), None, (2,), None, None, None)
        self.parts[:4] = [shapes, 3, {"w": 0, "rest": ("x", [5])}, record]
        self.parts[-1] = len(self.shared) + 7
        self.plan = _native.Plan(*self.parts)

    def forward(self, shared, own, gathers, counts):
        self.calls += 1
        own[7] = sum(shared[k] * own[k] for k in range(6))
        return self.flags[0]

    def backward(self, shared, own, to_shared, to_own, seeds, gathers, counts):
        for k in range(6):
            to_shared[k] = own[k]
        return self.flags[1]


def weighted_arguments(kind=np.float64):
    params = {"w": 0.5, "rest": (np.array([[1, 2], [3, 4]], kind), [np.float64(1.5)])}
    return params, np.array([2.0, -1.0]), [0.25, (8.0,), 0.5], 3, 9


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("extra", [0, 1, 100])
def test_floats_and_data_are_read_and_floats_given(dtype, kind, extra):
    machine = Weighted(dtype, extra)
    arguments = weighted_arguments(kind)
    for number in (3, 2, -1):
        value, gradient = machine.plan.run(passed(*arguments[:3], number, 9))
        assert value == 1.0 - 1.0 + 0.5 + 24.0 + 2.0 + 1.5 * number
        assert type(gradient["w"]) is type(gradient["rest"][1][0]) is float
        assert (gradient["w"], gradient["rest"][1]) == (2.0, [number])
        assert gradient["rest"][0].tolist() == [[-1.0, 0.25], [8.0, 0.5]]
        assert gradient["rest"][0].dtype is np.dtype(np.float64)
        assert gradient["rest"][0].flags.writeable
    arguments[0]["w"] += 1.0
    arguments[1][0] = 4.0
    assert machine.plan.run(passed(*arguments))[0] == 6.0 - 1.0 + 0.5 + 24.0 + 2.0 + 4.5
    assert machine.own[6] == 9.0


def test_a_plan_for_other_calls_answers_none():
    """Signatures tell calls apart; whatever it is given, a Plan stays within its arenas."""
    machine = Weighted()
    params, xs, rest, *_ = weighted_arguments()
    for arguments in [
        (params, xs, rest, 3),
        (params, xs, rest, 3, 9, 9),
        (params, xs, rest[:2], 3, 9),
        (params, xs, [*rest, 0.5], 3, 9),
        (params, np.ones(3), rest, 3, 9),
        (params, np.ones((2, 1)), rest, 3, 9),
        (params, 0.5, rest, 3, 9),
        (params, xs, [xs, *rest[1:]], 3, 9),
        ([np.ones(1), np.ones((2, 2)), 0.5], xs, rest, 3, 9),
        ([0.5, np.ones(4), 0.5], xs, rest, 3, 9),
        ([0.5, np.ones((2, 2), np.int64), 0.5], xs, rest, 3, 9),
        ([0.5, np.ones((2, 2), object), 0.5], xs, rest, 3, 9),
        ([0.5, np.ones((2, 4))[:, ::2], 0.5], xs, rest, 3, 9),
        (params,),
    ]:
        call = passed(*arguments)
        assert machine.plan.run(call) is None
    assert machine.calls == 0
    assert machine.plan.run(passed(params, xs, rest, 10**400, 9)) is None
    assert machine.plan.run(passed(params, xs, rest, 3, 9)) is not None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_array_that_changes_after_it_was_passed_is_seen():
    machine = Weighted()
    arguments = weighted_arguments()
    call, array = passed(*arguments), arguments[1]
    array[0] = 7.0
    assert machine.plan.run(call)[1]["w"] == 7.0
    array.resize(100_000, refcheck=False)
    assert machine.plan.run(call) is None
    array.resize(2, refcheck=False)
    array.dtype = np.int64
    assert machine.plan.run(call) is None
    array.dtype = np.float64
    assert machine.plan.run(call)[1]["w"] == 7.0


class Scattered(Weighted):
    """Its data do not come one after the other in the arena: they are those of a longer call."""

    BEGINS = (1, 6, 5, 4)  # of an array of two, and three floats; the arena has eight numbers

    def __init__(self, begins=BEGINS, dtype="float64"):
        super().__init__(dtype)
        self.parts[9] = (*self.parts[9][:8], np.zeros(0, np.int64))  # integers are no numbers
        places = np.array(begins, np.int64)
        self.parts += [None, None, False, (), None, None, places]
        self.plan = _native.Plan(*self.parts)

    def forward(self, shared, own, gathers, counts):
        own[7] = own[1] + 10.0 * own[2] + 100.0 * own[6] + 1000.0 * own[5] + 10_000.0 * own[4]
        return 0.0

    def backward(self, shared, own, to_shared, to_own, seeds, gathers, counts):
        return 0.0


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_data_go_where_a_longer_call_has_them(dtype):
    machine, arguments = Scattered(dtype=dtype), weighted_arguments()
    machine.own[:] = 3.0
    value, _ = machine.plan.run(passed(*arguments))
    assert value == 2.0 - 10.0 + 25.0 + 8000.0 + 5000.0
    assert machine.own[[0, 3]].tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    "begins",
    [(1, 6, 5), (1, 6, 5, 4, 0), (-1, 6, 5, 4), (7, 6, 5, 4), (1, 8, 5, 4), (2**62, 6, 5, 4)],
    ids=str,
)
def test_data_must_have_a_place_in_the_arena(begins):
    with pytest.raises(ValueError, match="arenas do not fit"):
        Scattered(begins)


def test_a_call_without_arrays_needs_no_record():
    machine = Weighted()
    machine.parts[:4] = [(None,) * 12, 6, [0, (5, {"k": 3})], None]
    plan = _native.Plan(*machine.parts)
    value, gradient = plan.run(passed([1.0] * 6, [2.0, 3.0, 4.0, 5.0, 6.0, 7.0], 2, 9))
    assert (value, gradient) == (27.0, [2.0, (7.0, {"k": 5.0})])
    machine.parts[2] = ["x"]
    with pytest.raises(TypeError):
        _native.Plan(*machine.parts).run(passed([1.0] * 6, [1.0] * 6, 2, 9))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("extra", [0, 1, 100])
def test_a_plan_gives_value_and_gradient_in_the_structure_of_the_arrays(dtype, extra):
    arrays, machine = example(dtype, extra)
    kept = []
    for chosen in (0, 5, 7, 5):
        arrays[1][...] = chosen / 2
        answer = machine.run(chosen)
        check(answer, arrays, chosen)
        kept.append((answer, [a.copy() for a in arrays], chosen))
    for old in kept:
        check(*old)  # each call's gradient is its own


def test_integers_that_select_nothing_are_none():
    arrays, machine = example()
    for _ in range(3):
        check(machine.run(2), arrays, 2)
        for ids in ((99,), (10**30,), (), (2, 2)):
            assert machine.run(*ids) is None
    assert machine.calls == 3


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("flag", [np.nan, np.inf, -np.inf])
def test_a_flag_that_is_not_finite_is_none(which, flag):
    arrays, machine = example()
    machine.flags[which] = flag
    assert machine.run(1) is None
    machine.flags[which] = 1e308
    check(machine.run(1), arrays, 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_array_of_another_shape_is_none_until_it_is_as_it_was():
    arrays, machine = example()
    for shape in [(3, 2), (6,), (1, 2, 3)]:
        arrays[0].shape = shape
        assert machine.run(1) is None
    arrays[0].shape = (2, 3)
    check(machine.run(1), arrays, 1)
    arrays[1].shape = (1,)
    assert machine.run(1) is None
    arrays[1].shape = ()
    arrays[0].resize((2, 2), refcheck=False)
    assert machine.run(1) is None
    arrays[0].resize((2, 3), refcheck=False)
    check(machine.run(1), arrays, 1)
    assert machine.calls == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("dtype", [np.int64, ">f8", "m8[s]", "V8", np.uint64])
def test_an_array_of_another_type_is_none(dtype):
    arrays, machine = example()
    arrays[0].dtype = dtype
    assert machine.run(1) is None
    arrays[0].dtype = np.float64
    check(machine.run(1), arrays, 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_array_that_is_not_in_one_piece_any_more_is_none():
    arrays, machine = example()
    try:
        arrays[0].strides = (8, 16)
    except (AttributeError, TypeError):
        pytest.skip("this numpy does not let strides be set")
    assert machine.run(1) is None
    arrays[0].strides = (24, 8)
    check(machine.run(1), arrays, 1)


def test_numbers_beyond_float32_are_infinite_there():
    arrays, machine = example("float32")
    arrays[0][0, 0] = 1e300
    machine.run(1)
    assert machine.shared[0] == np.inf


def test_a_plan_takes_addresses_that_are_within_the_arenas():
    arrays, machine = example()
    size = len(machine.shared) + len(machine.own)
    for candidates in ([size], [0, 2**40]):
        with pytest.raises(ValueError, match="do not fit"):
            _native.Plan(*machine.without(5, selecting(1, 0, candidates)))
    two = np.array([[0, 0, 1], [0, 0, 1]])
    none = np.zeros(0, np.int64)
    several = _native.Decider(
        1, none, none, none, np.zeros(0), two, np.zeros(1, np.int64), np.zeros((0, 2), np.int64)
    )
    with pytest.raises(ValueError, match="do not fit"):
        _native.Plan(*machine.without(5, several))
    plan = _native.Plan(*machine.without(5, selecting(1, 0, [-1, 1])))
    assert plan.run(machine.call(0)) is None, "no candidate"
    assert machine.calls == 0
    check(plan.run(machine.call(1)), arrays, 1)


def test_a_plan_runs_what_was_passed_only():
    _, machine = example()
    for wrong in ((1,), None, 1.5):
        with pytest.raises(TypeError):
            machine.plan.run(wrong)


@pytest.mark.parametrize("place", range(11))
@pytest.mark.parametrize("wrong", [None, (), "text", -1, 2.5])
def test_a_plan_of_wrong_parts_is_refused_or_raises_when_it_runs(place, wrong):
    _, machine = example()
    if place == 6 or (place in (7, 8) and wrong == -1) or (place == 2 and wrong in ((), 2.5)):
        return  # anything may own machine code, where that is cannot be told; these are templates
    if place == 2 and wrong is None:  # no gradient is wanted
        value = _native.Plan(*machine.without(place, wrong)).run(machine.call(1))
        assert value == machine.run(1)[0]
        return
    with pytest.raises((TypeError, ValueError, OverflowError, IndexError, AttributeError)):
        _native.Plan(*machine.without(place, wrong)).run(machine.call(1))
    check(machine.run(1), machine.arrays, 1)


def test_a_plan_is_given_all_its_parts():
    _, machine = example()
    for n in range(11):
        with pytest.raises(TypeError):
            _native.Plan(*machine.parts[:n])
    for place in (7, 8):
        with pytest.raises(ValueError, match="address 0"):
            _native.Plan(*machine.without(place, 0))
        with pytest.raises(OverflowError):
            _native.Plan(*machine.without(place, 2**70))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_plan_returns_arrays(dtype):
    _, machine = example(dtype)
    record = np.dtype([("y", np.float64, (2, 2)), ("k", np.float64)])
    root, fixed = len(machine.shared), np.array([1.0, 0.0, 3.0, 0.0, 0.0])
    machine.parts[2:4] = [{"a": "y", "b": [4, 2.5]}, record]
    outputs, targets = np.array([root, 0, root]), np.array([3, 1, 4])
    plan = _native.Plan(*machine.without(10, outputs), targets, fixed)
    first = machine.arrays[0][0, 0]
    value = sum(a.sum() for a in machine.arrays) * machine.arrays[0][0, 1]
    found = plan.run(machine.call(1))
    assert found["a"].tolist() == [[1.0, first], [3.0, value]]
    assert found["b"] == [value, 2.5]
    found["a"][:] = 0.0
    assert plan.run(machine.call(1))["a"].tolist() == [[1.0, first], [3.0, value]]
    for wrong in ([0, 1], [0, 1, 5], [0, 1, -1], [0, 1, 2, 3]):
        with pytest.raises(ValueError, match="do not fit"):
            _native.Plan(*machine.without(10, outputs), np.array(wrong), fixed)
    for parts in ((targets,), (None, fixed)):
        with pytest.raises(ValueError, match="do not fit"):
            _native.Plan(*machine.without(10, outputs), *parts)
    for parts in ((2.5, fixed), (targets, "text"), (targets, np.zeros(5, np.int64))):
        with pytest.raises(TypeError):
            _native.Plan(*machine.without(10, outputs), *parts)


def test_arenas_fit_the_arrays_and_each_other():
    _, machine = example()
    shapes = machine.parts[0]
    short, half = np.zeros(machine.size - 1), np.zeros(machine.size + 1, np.float32)
    read_only = np.zeros(machine.size + 1)
    read_only.flags.writeable = False
    wrong = [
        machine.with_arena(0, short),
        machine.with_arena(2, short),
        machine.with_arena(0, half),
        machine.with_arena(2, half),
        machine.with_arena(2, read_only),
        machine.with_arena(0, np.zeros((machine.size + 1, 2))[:, 0]),
        machine.with_arena(1, np.zeros(3)),
        machine.with_arena(4, np.zeros(0)),
        machine.with_arena(5, np.zeros(3, np.int32)),
        machine.with_arena(5, np.zeros(1, np.int64)),
        machine.with_arena(7, np.array([3])),
        machine.with_arena(7, np.array([-1])),
        machine.with_arena(8, np.array([2])),
        machine.with_arena(8, np.array([-1])),
        machine.with_arena(8, np.array([0.0])),
        machine.without(9, machine.parts[9][:-1]),
        machine.without(10, -1),
        machine.without(10, len(machine.shared) + len(machine.own)),
        machine.without(0, list(shapes)),
        machine.without(0, shapes[:-1]),
        machine.without(0, (*shapes[:-1], (1, 1, 200))),
        machine.without(0, (*shapes[:-1], (2**40, 2**40))),
        machine.without(0, (*shapes[:-1], (-1,))),
        machine.without(0, (*shapes[:-1], ("2",))),
        machine.without(0, (*shapes[:-1], [2])),
        machine.without(0, (*shapes[:-1], 2)),
        machine.without(0, (*shapes, None, (2,))),
        machine.without(1, 4),
        machine.without(1, -1),
    ]
    for parts in wrong:
        with pytest.raises((TypeError, ValueError, BufferError)):
            _native.Plan(*parts).run(machine.call(1))


def test_templates_are_nests_of_names():
    _, machine = example()
    loop = []
    loop.append(loop)
    for template, error in [
        (loop, RecursionError),
        ([-1], IndexError),
        ([9], IndexError),
        ([2**70], OverflowError),
        ([None], TypeError),
        ({"a": "missing"}, (ValueError, KeyError)),
        ({"a": {1, 2}}, TypeError),
        ([b"f0"], TypeError),
        (types.MappingProxyType({}), TypeError),
    ]:
        with pytest.raises(error):
            _native.Plan(*machine.without(2, template)).run(machine.call(1))
    for template in ({}, [], (), "f0", 0, [8]):
        _native.Plan(*machine.without(2, template)).run(machine.call(1))


class Key:
    """A key that does something whenever a dict looks at it."""

    act = None

    def __hash__(self):
        if Key.act is not None:
            Key.act()
        return 1

    def __eq__(self, other):
        return self is other


def test_keys_that_run_python_code_change_nothing():
    arrays, machine = example()
    key, items = Key(), ["f1"]
    template = {key: items, "w": "f0"}
    plan = _native.Plan(*machine.without(2, template))
    hits = []

    def act():
        hits.append(1)
        Key.act = None
        items.clear()
        template.clear()
        check(machine.run(3), arrays, 3)
        arrays[0][...] = 0.0

    Key.act = act
    try:
        value, _ = plan.run(machine.call(5))
    finally:
        Key.act = None
    assert (hits, value) == ([1], 5.0 * 16.0)


def test_the_gil_is_free_while_machine_code_runs():
    arrays, machine = example()
    inside, go = threading.Event(), threading.Event()

    def pause():
        inside.set()
        assert go.wait(20)

    machine.pause = pause
    found = []
    thread = threading.Thread(target=lambda: found.append(machine.run(4)))
    thread.start()
    assert inside.wait(20)
    wanted = [a.copy() for a in arrays]
    for a in arrays:
        a[...] = 77.0  # too late for that call
    go.set()
    thread.join(20)
    check(found[0], wanted, 4)


def test_a_plan_may_go_while_it_runs():
    arrays, machine = example()
    parts = machine.parts
    plans = [_native.Plan(*parts)]
    machine.pause = plans.clear
    check(plans[0].run(machine.call(4)), arrays, 4)
    assert plans == []


def test_plans_in_a_cycle_are_collected():
    arrays, machine = example()
    array = weakref.ref(arrays[0])
    gone = weakref.ref(machine)
    answer = machine.run(1)
    machine.forward = machine.backward = None
    machine._forward = machine._backward = None
    del arrays, machine
    gc.collect()
    assert (gone(), array()) == (None, None)
    assert answer[1]["w"].tolist() == [[1.0, 17.0, 1.0], [1.0, 1.0, 1.0]]


def test_a_gradient_outlives_its_plan_and_each_part_the_others():
    _, machine = example()
    gradient = machine.run(1)[1]
    part = gradient[3][0]
    del gradient, machine
    gc.collect()
    assert part == 1.0
    part += 1.0
    assert part == 2.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_stays_behind():
    arrays, machine = example(extra=20)
    failing = _native.Plan(*machine.without(2, ["f0", "missing"]))
    checks = _native.Checks(
        (({"a": arrays}, ("a", arrays)), (test_nothing_stays_behind, "__code__", None))
    )
    quick = machine.plan
    shapes = itertools.cycle([(2, 3), (3, 2)])

    def step():
        quick.run(machine.call(1))
        quick.run(machine.call(99))
        arrays[0].shape = next(shapes)
        quick.run(machine.call(2))
        arrays[0].shape = (2, 3)
        with pytest.raises((ValueError, KeyError)):
            failing.run(machine.call(1))
        checks.failed()
        passed(arrays, [1, 2, 3000, 0.5], np.array([4000, 5]), {"k": (arrays[0], [2])})
        passed(arrays, [1, 2, 3000, 0.5], np.array([4000, 5]), {"k": (arrays[0], [2], None)})
        passed(arrays, list(range(1000, 2000)), [0.5] * 1000, [arrays[1]] * 200)
        _native.Plan(*machine.parts)
        for wrong in (machine.without(10, -1), machine.with_arena(5, None)):
            with pytest.raises((TypeError, ValueError)):
                _native.Plan(*wrong)
        with pytest.raises(TypeError):
            _native.Checks((([], ()), (1,)))

    watched = [machine, *arrays, machine.shared, machine.gathers, checks, None]
    for _ in range(200):
        step()
    gc.collect()
    counts, blocks = [sys.getrefcount(x) for x in watched], sys.getallocatedblocks()
    steps = count(ci=500, soak=20_000)
    for _ in range(steps):
        step()
    gc.collect()
    grown = [sys.getrefcount(x) - n for x, n in zip(watched, counts, strict=True)]
    assert max(map(abs, grown)) < steps / 10, grown
    assert sys.getallocatedblocks() - blocks < steps / 10
