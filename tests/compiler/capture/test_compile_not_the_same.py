"""Captured state that is equal and yet another, and what comparing objects does not show."""

import abc
import collections
import dataclasses
import datetime
import enum
import functools
import inspect
import math
import operator
import pathlib
import random
import types
import warnings

import numpy as np
import pytest

import chainrule
from chainrule.compiler.runtime.ledger import allowance


@pytest.fixture(autouse=True)
def recorded_at_once(monkeypatch):
    monkeypatch.setattr(allowance, "left", math.inf)


@pytest.fixture
def names():
    """Globals of a test's own, under which its function reads what changes."""
    return types.SimpleNamespace()


def follows(function, change, *arguments):
    """Compare calls with eager ones; ``change`` comes after some, and makes a difference."""
    fast = chainrule.compile(function, on_fallback="eager").value_and_grad
    eager = chainrule.value_and_grad(function)
    before = eager([1.0, 2.0], *arguments)
    for _ in range(5):
        assert fast([1.0, 2.0], *arguments) == before
    change()
    after = eager([1.0, 2.0], *arguments)
    assert after != before
    for _ in range(4):  # the first may run eagerly
        assert fast([1.0, 2.0], *arguments) == after


@dataclasses.dataclass(frozen=True)
class Asset:
    name: str
    price: float = dataclasses.field(compare=False)


class Quantity(float):
    def __new__(cls, value, factor):
        made = super().__new__(cls, value)
        made.factor = factor
        return made


# --- equal, but not the same ----------------------------------------------------------------------


def refill(container, *items):
    def change():
        container.clear()
        container.update(items)

    return change


def test_the_order_of_a_set_counts():
    members = {1, 33}

    def f(p):
        return p[0] + p[1] * functools.reduce(lambda total, v: total * 0.5 + v, members, 0.0)

    def change():
        members.clear()
        members.add(33)
        members.add(1)

    follows(f, change)


def test_an_equal_member_of_a_set_is_another_one():
    held = {Asset("a", 1.0)}
    follows(lambda p: p[0] + p[1] * sum(a.price for a in held), refill(held, Asset("a", 5.0)))


def test_an_equal_key_of_a_dict_is_another_one():
    weights = {Asset("a", 1.0): 2.0}
    change = refill(weights, (Asset("a", 5.0), 2.0))
    follows(lambda p: p[0] + p[1] * sum(a.price * w for a, w in weights.items()), change)


def test_a_key_of_a_dict_has_a_sign():
    table = {0.0: 2.0}
    change = refill(table, (-0.0, 2.0))
    follows(lambda p: p[0] + p[1] * sum(math.copysign(w, k) for k, w in table.items()), change)


@pytest.mark.parametrize(
    ("first", "second", "read"),
    [
        (complex(-1.0, 0.0), complex(-1.0, -0.0), lambda x: math.atan2(x.imag, x.real)),
        (np.timedelta64(1, "h"), np.timedelta64(60, "m"), lambda x: int(x.astype(int))),
        (Quantity(1.0, 1.0), Quantity(1.0, 10.0), lambda x: x * x.factor),
        (
            np.complex128(complex(-1, 0.0)),
            np.complex128(complex(-1, -0.0)),
            lambda x: float(np.angle(x)),
        ),
    ],
    ids="complex units attributes numpys".split(),
)
def test_an_equal_number_is_another_one(first, second, read):
    kept = [first]
    follows(lambda p: p[0] + p[1] * read(kept[0]), lambda: kept.__setitem__(0, second))


def test_a_partial_function_can_be_given_another_one():
    scaled = functools.partial(lambda a, x: a * x, 2.0)
    change = functools.partial(scaled.__setstate__, (lambda a, x: a - x, (2.0,), {}, None))
    follows(lambda p, x: p[0] + p[1] * scaled(x), change, 0.5)


# --- keys of dicts that are passed ----------------------------------------------------------------

HERE, THERE = datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=1))  # noqa: UP017


@pytest.mark.parametrize(
    ("first", "second", "read"),
    [
        ((-1.0, 0.0), (-1.0, -0.0), lambda k: math.atan2(k[1], k[0])),
        ((1, 2), (True, 2), lambda k: len(str(k))),
        ((1, 2), (1.0, 2.0), lambda k: len(str(k))),
        (np.float64(0.0), np.float64(-0.0), lambda k: math.copysign(1.0, k)),
        (
            datetime.datetime(2020, 1, 1, 12, tzinfo=HERE),
            datetime.datetime(2020, 1, 1, 13, tzinfo=THERE),
            lambda k: k.hour,
        ),
        (frozenset([1]), frozenset([True]), lambda k: len(str(k))),
    ],
    ids="sign bool float numpys zone frozenset".split(),
)
def test_equal_keys_of_a_dict_that_is_passed_are_not_the_same(first, second, read):
    def f(p, table):
        return sum(p[0] * v + p[1] * read(k) for k, v in table.items())

    assert first == second
    fast = chainrule.compile(f, on_fallback="eager").value_and_grad
    eager = chainrule.value_and_grad(f)
    assert eager([1.0, 2.0], {first: 0.5}) != eager([1.0, 2.0], {second: 0.5})
    for key in (first, first, first, second, second, second, first):
        assert fast([1.0, 2.0], {key: 0.5}) == eager([1.0, 2.0], {key: 0.5})


# --- classes --------------------------------------------------------------------------------------


class One(type):
    def __len__(cls):
        return 1


class Two(type):
    def __len__(cls):
        return 2


def test_the_class_of_a_class_may_change():
    kind = One("Kind", (), {})
    follows(lambda p: p[0] + p[1] * len(kind), lambda: setattr(kind, "__class__", Two))


class Strategy(abc.ABC):  # noqa: B024
    rate = 1.0


def executed():
    names = {}
    exec("class Config:\n    rate = 1.0", names)
    return names["Config"]


@pytest.mark.parametrize(
    "kind",
    [
        dataclasses.make_dataclass("Made", [("x", float)], namespace={"rate": 1.0}),
        types.new_class("New", (), {}, lambda names: names.update(rate=1.0)),
        type("Derived", (Strategy,), {"rate": 1.0}),
        type("Refused", (ValueError,), {"rate": 1.0}),
        executed(),
    ],
    ids="make_dataclass new_class abc exception exec".split(),
)
def test_a_class_is_followed_whatever_module_it_says_it_is_of(kind):
    follows(lambda p: p[0] + p[1] * kind.rate, lambda: setattr(kind, "rate", 7.0))


LIMITS = {"penalty": 1.0}


class Infeasible(Exception):
    def __init__(self, x):
        super().__init__(x)
        self.cost = LIMITS["penalty"] * 2


def test_what_an_exception_of_the_users_reads_is_followed():
    def check(x):
        if x < 0.5:
            raise Infeasible(x)
        return x

    def f(p, x):
        try:
            return p[0] * check(x)
        except Infeasible as error:
            return p[0] * x + p[1] * error.cost

    try:
        follows(f, lambda: LIMITS.update(penalty=10.0), 0.25)
    finally:
        LIMITS["penalty"] = 1.0


def test_annotations_of_a_class_are_watched_where_code_goes_through_them():
    class Config:
        rate: float = 1.0
        penalty: float = 2.0

    def f(p):
        return p[0] + p[1] * sum(getattr(Config, name) for name in Config.__annotations__)

    follows(f, lambda: Config.__annotations__.pop("penalty"))


def test_metadata_of_fields_are_watched():
    units = {"scale": 1.0}
    fields = [("a", float, dataclasses.field(default=3.0, metadata=units))]
    record = dataclasses.make_dataclass("Record", fields)

    def f(p, r):
        return p[0] + p[1] * sum(x.metadata["scale"] * r.a for x in dataclasses.fields(r))

    follows(f, lambda: units.update(scale=10.0), record(2.0))


def test_the_class_of_a_plain_record_is_watched_where_code_asks_for_it():
    record = dataclasses.make_dataclass("Record", [("a", float), ("b", float, 1.0)])

    def f(p, r):
        return p[0] * r.a + p[1] * (r.b - type(r).b)

    follows(f, lambda: setattr(record, "b", 3.0), record(3.0, 4.0))


def test_an_instance_whose_compiled_method_is_called_may_change_its_class():
    class Model:
        penalty = 1.0

        @chainrule.compile
        def loss(self, p):
            return p[0] + p[1] * self.penalty

    class Strict(Model):
        penalty = 5.0

    model = Model()
    for _ in range(5):
        assert model.loss.value_and_grad([1.0, 2.0])[0] == 3.0
    model.__class__ = Strict
    assert [model.loss.value_and_grad([1.0, 2.0])[0] for _ in range(3)] == [11.0] * 3


class Net:
    rate = 1.0
    __class_getitem__ = classmethod(types.GenericAlias)


@pytest.mark.parametrize(
    "read",
    [lambda: NETS.rate, lambda: LAYERS.__args__[0].rate, lambda: MAYBE.__args__[0].rate],
    ids="alias argument union".split(),
)
def test_classes_are_followed_through_aliases(read, monkeypatch):
    change = functools.partial(monkeypatch.setattr, Net, "rate", 7.0)
    follows(lambda p: p[0] + p[1] * read(), change)


NETS, LAYERS, MAYBE = Net[int], list[Net], Net | None


# --- what is not in any object --------------------------------------------------------------------


@pytest.mark.parametrize("way", ["text", "exists", "getattr", "holder"])
def test_code_that_may_ask_files_runs_eagerly(tmp_path, way):
    path = tmp_path / "rates.txt"
    path.write_text("1.0")
    holder = types.SimpleNamespace(path=path)
    reads = {
        "text": lambda: float(path.read_text()),
        "exists": lambda: 2.0 if path.exists() else 1.0,
        "getattr": lambda: getattr(path, "stat")().st_size,  # noqa: B009
        "holder": lambda: float(holder.path.read_text()),
    }
    change = path.unlink if way == "exists" else functools.partial(path.write_text, "17.25")
    read = reads[way]
    follows(lambda p: p[0] + p[1] * read(), change)


def test_a_folder_is_made_at_every_call(tmp_path):
    runs = tmp_path / "runs"

    def f(p):
        runs.mkdir()
        return p[0]

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(4):
        fast.value_and_grad([1.0])
        runs.rmdir()


def test_paths_that_are_only_written_are_recorded():
    path = pathlib.Path("a") / "b.txt"
    fast = chainrule.compile(lambda p: p[0] * len(path.name))
    assert [fast.value_and_grad([2.0])[0] for _ in range(4)] == [10.0] * 4
    assert "eager because" not in fast.report()


@pytest.mark.parametrize("day", [datetime.date, datetime.date(2020, 1, 1)])
def test_code_that_asks_for_today_runs_eagerly(day):
    fast = chainrule.compile(lambda p: p[0] * day.today().toordinal(), on_fallback="eager")
    for _ in range(3):
        fast.value_and_grad([1.0])
    assert "what time it is" in fast.report()


def test_code_that_looks_at_its_callers_runs_eagerly():
    def depth():
        return 1.0 if inspect.currentframe().f_back is None else 2.0

    fast = chainrule.compile(lambda p: p[0] * depth(), on_fallback="eager")
    assert fast.value_and_grad([1.0]) == (2.0, [2.0])
    assert "eager because" in fast.report() or "eager" in fast.report()


@pytest.mark.parametrize("passed", [False, True])
def test_how_numpy_writes_arrays_is_watched(passed):
    array = np.array([1.23456789, 2.0])

    def f(p, x):
        return p[0] + p[1] * len(str(x if passed else array))

    with np.printoptions(precision=8):
        follows(f, lambda: np.set_printoptions(precision=2), array)


def test_a_function_with_builtins_of_its_own_runs_eagerly():
    own = {**vars(__import__("builtins")), "scale": 2.0}
    names = {"__builtins__": own, "__name__": "sandbox"}
    exec("def formula(x): return x * scale", names)
    formula = names["formula"]
    follows(lambda p: p[0] + p[1] * formula(3.0), lambda: own.update(scale=10.0))


RATE = 1.0


def plugin(x):
    return x


@pytest.mark.parametrize(
    "read",
    [
        lambda: plugin.__globals__["RATE"],
        lambda: inspect.getmodule(plugin).RATE,
        lambda: types.FunctionType(FORMULA, globals_of(plugin))(),
    ],
    ids="globals module function".split(),
)
def test_globals_that_no_code_names_are_not_constants(read, monkeypatch):
    change = functools.partial(monkeypatch.setitem, globals_of(plugin), "RATE", 7.0)
    follows(lambda p: p[0] + p[1] * read(), change)


globals_of = operator.attrgetter("__globals__")
FORMULA = compile("RATE * 1.0", "formula", "eval")


class Sampler(random.Random):
    scale = 1.0


@pytest.mark.parametrize(
    "holder",
    [Sampler(3), random.Random(3), staticmethod(len), functools.cached_property(len)],
    ids="derived random staticmethod cached_property".split(),
)
def test_attributes_that_a_user_gave_to_an_object_of_pythons_are_followed(holder):
    holder.weight = 1.0
    follows(lambda p: p[0] + p[1] * holder.weight, lambda: setattr(holder, "weight", 7.0))


def test_objects_in_a_structured_array_are_not_hidden():
    table = np.array([(1.0, [2.0])], dtype=[("a", float), ("o", object)])
    follows(lambda p: p[0] + p[1] * table["o"][0][0], lambda: table["o"][0].__setitem__(0, 9.0))


# --- numpy's warnings and errors ------------------------------------------------------------------


def outcome(function, *arguments):
    """What a call gives or raises, and what it warns of."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            found = function(*arguments)
        except FloatingPointError as error:
            found = str(error)
    return found, [str(x.message) for x in noted]


@pytest.mark.parametrize("lift", [None, True])
@pytest.mark.parametrize(
    ("read", "strange"),
    [
        (np.log, 0.0),
        (lambda d: 1.0 / np.log(d), 0.0),  # which is no infinity any more
        (lambda d: 1.0 / (1.0 / d), 0.0),
        (lambda d: 1.0 / d**2, 1e300),
        (lambda d: np.sum(1.0 / np.exp(np.array([1.0, 2.0]) * d)), 1e9),
    ],
    ids="log hidden divide power array".split(),
)
def test_numbers_that_numpy_warns_of_are_left_to_eager(read, strange, lift):
    def f(p, d):
        return p[0] * read(d)

    fast, eager = chainrule.compile(f, lift=lift).value_and_grad, chainrule.value_and_grad(f)
    for _ in range(5):
        assert fast([2.0], np.float64(2.0)) == eager([2.0], np.float64(2.0))
    for state in ("raise", "warn", "ignore"):
        with np.errstate(all=state):
            found = outcome(fast, [2.0], np.float64(strange))
            assert found == outcome(eager, [2.0], np.float64(strange))
            assert (len(found[1]) > 0) is (state == "warn")


def test_an_error_of_numpys_that_is_caught_decides_the_path():
    def f(p, d):
        with np.errstate(all="raise"):
            try:
                found = np.log(d)
            except FloatingPointError:
                found = 5.0
        return p[0] * found

    fast = chainrule.compile(f, on_fallback="eager").value_and_grad
    eager = chainrule.value_and_grad(f)
    for d in (2.0, 3.0, 4.0, 0.0, 2.0, 0.0):
        assert fast([2.0], np.float64(d)) == eager([2.0], np.float64(d))


def test_how_numpy_treats_errors_is_no_constant():
    def f(p):
        return p[0] * (2.0 if np.geterr()["divide"] == "raise" else 3.0)

    fast = chainrule.compile(f, on_fallback="eager").value_and_grad
    assert [fast([1.0])[0] for _ in range(4)] == [3.0] * 4
    with np.errstate(divide="raise"):
        assert fast([1.0])[0] == 2.0


# --- samples after one that changes state ---------------------------------------------------------


def test_an_evaluator_computes_samples_in_order_where_one_changes_what_others_read():
    state = collections.Counter(most=1)

    def f(p, x):
        if x > 2.0:
            state["most"] += 1
        total = p[0]
        for _ in range(30):
            total = total * 0.99 + 0.01 * x
        return total * state["most"] + p[1]

    samples = [(0.1 * k,) for k in range(9)]
    samples[5] = (3.0,)
    fast = chainrule.compile(f, lift=True, on_fallback="eager")
    p = np.array([1.0, 2.0])
    for _ in range(4):
        fast.value_and_grad(p, 0.5)
    held_out = fast.evaluator(p, samples)
    for _ in range(3):
        state["most"] = 1
        expected = np.mean([f([1.0, 2.0], *sample) for sample in samples])
        state["most"] = 1
        assert held_out() == pytest.approx(expected, rel=1e-12)
        assert state["most"] == 2


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def test_the_class_of_an_item_is_watched_where_code_asks_for_it():
    Colour.RED.weight = 1.0
    try:
        follows(
            lambda p, c: p[0] + p[1] * sum(getattr(x, "weight", 5.0) for x in type(c)),
            lambda: setattr(Colour.RED, "weight", 7.0),
            Colour.BLUE,
        )
    finally:
        del Colour.RED.weight
