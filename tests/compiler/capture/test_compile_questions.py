"""What code asks of objects that comparing them does not show, or asks under other names."""

import collections
import dataclasses
import enum
import functools
import inspect
import math
import operator
import string
import types

import numpy as np
import pytest

import chainrule
from chainrule.compiler.runtime.ledger import allowance

ARRAY = np.array([1.0, 2.0])
write, fill_in = str, "{}".format


@pytest.fixture(autouse=True)
def recorded_at_once(monkeypatch):
    monkeypatch.setattr(allowance, "left", math.inf)


def follows(function, change):
    """Compare calls with eager ones; each change makes a difference."""
    fast = chainrule.compile(function, on_fallback="eager")
    ways = (fast, function), (fast.value_and_grad, chainrule.value_and_grad(function))
    before = None
    for _ in range(3):
        for compiled, eager in ways:
            expected = eager([1.0, 2.0])
            assert expected != before
            for _ in range(4):
                assert compiled([1.0, 2.0]) == expected
        before = ways[0][1]([1.0, 2.0])
        change()
    return fast


documented = operator.attrgetter("__doc__")


def helper(x):
    """Text."""
    return x


class Colour(enum.Enum):
    RED = 1


Point = collections.namedtuple("Point", "a b")


class Mistake(Exception):
    pass


def written_mistake():
    try:
        raise Mistake("text")
    except Mistake as mistake:
        return repr(mistake)


@pytest.mark.parametrize(
    ("read", "named", "name"),
    [
        (lambda: f"{helper}".partition(" at ")[0], helper, "__qualname__"),
        (lambda: str(Colour.RED), Colour, "__name__"),
        (lambda: repr(Point(1, 2)), Point, "__name__"),
        (written_mistake, Mistake, "__name__"),
    ],
)
def test_names_in_texts_of_functions_items_and_errors_are_watched(read, named, name):
    before = getattr(named, name)

    def change():
        setattr(named, name, getattr(named, name) + "x")

    try:
        follows(lambda x: x[0] * x[1] * len(read()), change)
    finally:
        setattr(named, name, before)


@pytest.mark.parametrize(
    "read",
    [
        lambda: write(ARRAY),
        lambda: fill_in(ARRAY),
        lambda: ARRAY.__repr__(),
        lambda: "{a}".format_map({"a": ARRAY}),
        lambda: string.Template("$a").substitute(a=ARRAY),
        lambda: str(np.arange(3.0)),
    ],
)
def test_how_numpy_writes_arrays_is_watched_whatever_writes_them(read):
    with np.printoptions(floatmode="fixed", precision=2):
        precision = iter(range(3, 9))
        change = lambda: np.set_printoptions(precision=next(precision))  # noqa: E731
        follows(lambda x: x[0] * x[1] * len(read()), change)


@pytest.mark.parametrize(
    "read", [lambda: "{a.__doc__}".format_map({"a": helper}), lambda: documented(helper)]
)
def test_attributes_are_watched_that_are_named_in_texts(read, monkeypatch):
    def change():
        monkeypatch.setattr(helper, "__doc__", helper.__doc__ + "x")

    follows(lambda x: x[0] * x[1] * len(read()), change)


def test_annotations_are_watched_where_code_asks_for_a_signature():
    def annotated(x: 2.0):
        return x

    def f(x):
        return x[0] * x[1] * inspect.signature(annotated).parameters["x"].annotation

    def change():
        annotated.__annotations__["x"] += 1

    follows(f, change)


def test_what_an_annotation_holds_is_no_constant():
    def annotated(x: [2.0]):
        return x

    def change():
        annotated.__annotations__["x"][0] += 1

    follows(lambda x: x[0] * x[1] * annotated.__annotations__["x"][0], change)


def test_fields_of_a_dataclass_are_watched_where_code_goes_through_them():
    @dataclasses.dataclass
    class Pair:
        a: float = 2.0
        b: float = 3.0
        c: float = 4.0

    pair = Pair()
    follows(
        lambda x: x[0] * x[1] * len(dataclasses.asdict(pair)),
        lambda: Pair.__dataclass_fields__.popitem(),
    )


def test_attributes_and_keywords_of_a_partial_function_are_watched():
    scaled = functools.partial(lambda x, by=1.0: x * by, by=2.0)
    scaled.offset = 3.0

    def f(x):
        return scaled(x[0]) * x[1] + scaled.offset

    def give_an_attribute():
        scaled.offset += 1

    def give_keywords():
        by = scaled.keywords["by"] + 1
        scaled.__setstate__((scaled.func, scaled.args, {"by": by}, vars(scaled)))

    assert " 0 replayed" not in follows(f, give_an_attribute).report()
    follows(f, give_keywords)


def test_the_array_behind_a_view_is_watched():
    behind = np.arange(4.0)
    view = behind[1:]

    def change():
        behind[0] += 1

    follows(lambda x: float(view.base[0] + 1) * x[0] * x[1], change)


@pytest.mark.parametrize(
    ("read", "reason"),
    [
        (lambda: ARRAY.strides[0], "how an array lies in memory"),
        (lambda: [1, 2].__sizeof__(), "how much memory"),
    ],
)
def test_what_objects_have_beside_their_contents_is_no_constant(read, reason):
    fast = chainrule.compile(lambda x: x[0] * x[1] * read(), on_fallback="eager")
    fast([1.0, 2.0])
    assert reason in fast.report()


TABLE = np.array([(1.0, 2.0)], [("a", float), ("b", float)])
NESTED = np.array([((1.0, 2.0),)], [("pair", [("a", float), ("b", float)])])
LAYOUT = np.dtype([("a", float), ("b", "f4")])


@pytest.mark.parametrize(
    ("read", "layout"),
    [
        (lambda: float(TABLE["a"][0]), TABLE.dtype),
        (lambda: float(NESTED["pair"]["a"][0]), NESTED.dtype["pair"]),
        (lambda: float(LAYOUT["a"].itemsize), LAYOUT),
    ],
    ids="array nested type".split(),
)
def test_the_names_of_fields_are_no_constants(read, layout):
    def change():
        layout.names = layout.names[::-1]

    try:
        assert " 0 replayed" not in follows(lambda x: x[0] * x[1] * read(), change).report()
    finally:
        layout.names = ("a", "b")


def test_fields_are_renamed_in_every_call():
    def f(x):
        LAYOUT.names = LAYOUT.names[::-1]
        return x[0] * 2.0

    fast = chainrule.compile(f, on_fallback="eager")
    before = LAYOUT.names
    for _ in range(4):
        fast.value_and_grad([1.0])
        assert LAYOUT.names == before[::-1]
        before = LAYOUT.names
    LAYOUT.names = ("a", "b")


def test_builtins_of_a_helper_are_no_constants(monkeypatch):
    values = iter((3.0, 4.0, 5.0))

    def change():
        value = next(values)
        monkeypatch.setitem(helper.__builtins__, "abs", lambda _: value)

    follows(lambda x: helper.__builtins__["abs"](-2.0) * x[0] * x[1], change)


@pytest.mark.parametrize(
    ("first", "second"),
    [(1000.5, float("1000.5")), (10**6, int("1000000")), ("text", "".join("text"))],
)
def test_which_of_two_equal_numbers_or_texts_it_has_is_no_constant(first, second):
    names = types.SimpleNamespace(a=first, b=first)

    def change():
        names.b = second if names.b is first else first

    follows(lambda x: x[0] * x[1] * (2.0 if names.a is names.b else 3.0), change)


def text():
    """Another object at each call."""
    return "".join(["text", "!"])


TEXT = OTHER = text()
MEMBERS, KEYS, ITEMS = {TEXT}, {TEXT: 1.0}, collections.OrderedDict(a=TEXT)
RAW = SAME = bytes([1, 2, 3])


def set_global(name, x):
    globals()[name] = x


def put_member():
    MEMBERS.clear()
    MEMBERS.add(text())


def put_key():
    KEYS.clear()
    KEYS[text()] = 1.0


def matched():
    match TEXT:
        case x if x is OTHER:
            return True
    return False


@pytest.mark.parametrize(
    ("asks", "change"),
    [
        (lambda: TEXT is OTHER, lambda: set_global("OTHER", text())),
        (lambda: RAW is SAME, lambda: set_global("SAME", bytes(bytearray(RAW)))),
        (matched, lambda: set_global("OTHER", text())),
        (lambda: next(iter(MEMBERS)) is TEXT, put_member),
        (lambda: next(iter(KEYS)) is TEXT, put_key),
        (lambda: ITEMS["a"] is TEXT, lambda: ITEMS.update(a=text())),
    ],
    ids="global bytes match set key ordered".split(),
)
def test_which_of_two_equal_texts_it_has_is_no_constant(asks, change):
    set_global("OTHER", TEXT)
    set_global("SAME", RAW)
    MEMBERS.clear()
    MEMBERS.add(TEXT)
    KEYS.clear()
    KEYS[TEXT] = 1.0
    ITEMS["a"] = TEXT
    fast = chainrule.compile(lambda x: x[0] * x[1] * (2.0 if asks() else 3.0), lift=True)
    for expected in (4.0, 6.0):
        for _ in range(4):
            assert fast([1.0, 2.0]) == fast.value_and_grad([1.0, 2.0])[0] == expected
        change()


def test_which_texts_a_later_path_asks_for_is_no_constant_of_quick_calls():
    """The first path asks for none; its calls are answered by the same quick check."""
    set_global("OTHER", TEXT)
    KEYS.clear()
    KEYS[TEXT] = 1.0

    def f(x, ask):
        return x[0] * (2.0 if ask and next(iter(KEYS)) is TEXT else 3.0)

    fast = chainrule.compile(f)
    assert [fast.value_and_grad([1.0], False)[0] for _ in range(6)] == [3.0] * 6
    assert [fast.value_and_grad([1.0], True)[0] for _ in range(6)] == [2.0] * 6
    put_key()
    assert [fast.value_and_grad([1.0], True)[0] for _ in range(6)] == [3.0] * 6


def test_texts_in_several_dicts_are_no_change(monkeypatch):
    """Each is compared with what its own dict has, where code asks by ``is``."""
    monkeypatch.setattr(allowance, "left", math.inf)
    units, names, marker = {"a": "metre"}, {"b": "second"}, object()

    def f(p):
        scale = 2.0 if units["a"] is marker or names["b"] is marker else 3.0
        return p[0] * scale

    fast = chainrule.compile(f)
    assert [fast.value_and_grad([1.0])[0] for _ in range(5)] == [3.0] * 5
    state = fast.dispatch.captured
    assert state.asks or state.identity
    assert not state._has_other_texts()
    assert state.changed() is None
