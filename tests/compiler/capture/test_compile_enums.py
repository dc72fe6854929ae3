"""Items of enums of integers beside integer arguments: constants, as the integers that they are."""

# ruff: noqa: SIM300 - which side of a comparison an item is on counts here

import enum
import random

import numpy as np
import pytest
from compile_twins import assert_eagers_outcome, outcome, recordings

import chainrule
from chainrule import tanh

pytestmark = pytest.mark.usefixtures("unchecked")


class Kind(enum.IntEnum):
    CALL = 0
    PUT = 1
    BOTH = 2


class Mixed(int, enum.Enum):
    CALL = 0
    PUT = 1


class Side(enum.IntFlag):
    BUY = 1
    SELL = 2


class Opposite(enum.IntEnum):
    """Equal to what it is not."""

    CALL = 0
    PUT = 1

    def __eq__(self, other):
        return int(self) != int(other)

    __hash__ = int.__hash__


class Doubling:
    """Adds its integer twice."""

    def __add__(self, other):
        return int(self) * 2 + int(other)

    __radd__ = __add__


class Doubled(Doubling, enum.IntEnum):
    PUT = 1


RATES = {Kind.CALL: 0.5, Kind.PUT: 1.5, Kind.BOTH: -1.0}
NEXT = {(Kind.CALL, 0): 2, (Kind.CALL, 1): 0, (Kind.PUT, 0): 1, (Kind.PUT, 1): 2}


def compared(f, low=0, high=3, count=60, kinds=list, **options):
    """The function compiled, after calls with all kinds of integers that gave eager's results."""
    rng = random.Random(f.__name__)
    fast = chainrule.compile(f, on_fallback="eager", **options)
    eager = chainrule.value_and_grad(f)
    for _ in range(count):
        p = [rng.uniform(0.2, 2) for _ in range(3)]
        arguments = p, kinds([rng.randrange(low, high) for _ in range(5)])
        assert_eagers_outcome(fast, eager, *arguments)
    return fast


def is_static(fast):
    return "an integer is static" in fast.report()


def as_number(p, ks):
    return sum(
        p[0] * (k == Kind.CALL) + p[1] * (Kind.PUT != k) + p[2] * (k < Kind.BOTH) for k in ks
    )


def in_arithmetic(p, ks):
    total = p[0]
    for k in ks:
        total = total + p[0] * (k + Kind.PUT) + p[1] * (Kind.BOTH - k) + p[2] * (k * Kind.BOTH)
        total = total + p[0] * (k | Kind.PUT) + p[1] * (Kind.BOTH ^ k) + (k % Kind.BOTH) * p[2]
        total = total + divmod(k, Kind.BOTH)[0] * p[0]
    return total


def in_shifts(p, ks):
    return sum(p[0] * (Kind.PUT << k) + p[1] * (k >> Kind.PUT) + p[2] for k in ks)


def in_divisions(p, ks):
    return sum(p[0] * (k / Kind.BOTH) + p[1] * (Kind.BOTH / (k + 1)) + p[2] for k in ks)


def in_powers(p, ks):
    return sum(p[0] * k**Kind.BOTH + p[1] * Kind.BOTH**k + p[2] for k in ks)


def in_memberships(p, ks):
    inside = [(k in (Kind.CALL, Kind.BOTH)) + (k not in {Kind.PUT}) + (k in RATES) for k in ks]
    return p[0] * sum(inside) + p[1] * (Kind.PUT in ks) + p[2] * ks.count(Kind.PUT)


def as_keys(p, ks):
    return sum(p[0] * RATES[k] + p[1] * RATES.get(k, 0.25) for k in ks)


def in_tuples_as_keys(p, ks):
    total, state = p[0], 0
    for k in ks:
        state = NEXT.get((state, k), Kind.PUT + 0)
        total = total + p[state]
    return total


def under_an_item(p, ks):
    totals = [0.0] * 3
    for k in ks:
        totals[k] = totals[k] + p[k]
        totals[Kind.CALL] = totals[Kind.CALL] * 0.5
    return sum(x * x for x in totals) + totals[Kind.PUT]


def of_another_enum(p, ks):
    return sum(p[0] * (k == Mixed.CALL) + p[1] * (Mixed.PUT + k) for k in ks) + p[2]


@pytest.mark.parametrize(
    "f",
    [
        *(as_number, in_arithmetic, in_divisions, in_powers, in_memberships, as_keys),
        *(in_tuples_as_keys, under_an_item, of_another_enum, in_shifts),
    ],
)
def test_one_recording_answers_all_integers(f):
    assert recordings(compared(f)) == 1


@pytest.mark.parametrize("f", [as_number, in_arithmetic, in_divisions, as_keys, under_an_item])
@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8, np.bool_])
def test_items_beside_numpys_integers_give_eagers_numbers_and_types(f, dtype):
    fast = compared(f, kinds=lambda ks: np.array(ks, dtype), high=2)
    assert dtype is not np.int64 or recordings(fast) == 1


def test_an_array_of_integers_is_compared_with_an_item_at_once():
    def f(p, ks):
        return p[0] * (ks == Kind.PUT).sum() + p[1] * (ks + Kind.PUT).sum() + p[2]

    assert recordings(compared(f, kinds=np.array)) == 1


def test_a_narrow_array_beside_an_item_has_the_type_that_numpy_gives_it():
    def f(p, ks):
        return p[0] * (ks - Kind.BOTH).sum() + p[1] * ((ks + Kind.PUT).dtype == np.int64)

    compared(f, kinds=lambda ks: np.array(ks, np.uint8))


def in_branches(p, ks):
    total = p[0]
    for k in ks:
        if k == Kind.CALL:
            total = total + p[1]
        elif Kind.BOTH == k:
            total = tanh(total * p[2])
        else:
            total = total - p[0]
    return total


def test_both_sides_of_branches_by_items_are_computed():
    assert recordings(compared(in_branches, count=200)) <= 6


def by_match(p, ks):
    match ks[0]:
        case Kind.CALL:
            return p[0] * p[1]
        case Kind.PUT:
            return p[1] - p[2]
        case _:
            return p[0] + p[2]


def test_a_match_has_a_recording_for_each_case():
    assert recordings(compared(by_match, high=6)) == 3


def flags(p, ks):
    return sum(p[0] * (k | Side.SELL) + p[1] * isinstance(Side.BUY | k, Side) for k in ks) + p[2]


def opposites(p, ks):
    total = p[2]
    for k in ks:
        total = total + p[0] * (k == Opposite.CALL) + p[1] * (Opposite.PUT == k)
    return total


def doubled(p, ks):
    return sum(p[0] * (k + Doubled.PUT) + p[1] * (Doubled.PUT + k) + p[2] for k in ks)


def looked_up_by_value(p, ks):
    return sum(p[0] * (Kind(k) is Kind.CALL) + p[1] * len(Kind(k).name) for k in ks) + p[2]


def largest(p, ks):
    return sum(p[0] * max(k, Kind.PUT) + p[1] * isinstance(max(k, Kind.PUT), Kind) for k in ks)


@pytest.mark.parametrize("f", [flags, opposites, doubled, looked_up_by_value, largest])
def test_what_a_class_may_do_in_its_own_way_is_left_to_it(f):
    compared(f)


@pytest.mark.parametrize("f", [flags, opposites, doubled, looked_up_by_value])
def test_beside_items_of_a_class_with_methods_of_its_own_an_integer_is_static(f):
    assert is_static(compared(f, count=4))


@pytest.mark.parametrize("f", [looked_up_by_value, as_keys, in_tuples_as_keys])
def test_what_is_no_item_raises_what_eager_raises(f):
    compared(f, low=-2, high=5)


def test_whether_something_is_an_item_is_asked_of_the_enum():
    def f(p, ks):
        inside = sum(Kind.PUT in holder for holder in ({Kind.PUT: 1}, [Kind.CALL], (1, 2), Kind))
        return p[0] * inside + p[1] * sum(ks)

    compared(f)


def test_an_object_that_is_compared_with_an_item_gets_the_item_itself():
    class Asking:
        def __eq__(self, other):
            return isinstance(other, Kind)

        __hash__ = None

    asking = [Asking(), 3]

    def f(p, ks):
        return p[0] * (Kind.PUT in [*asking, *ks]) + p[1] * sum(ks)

    compared(f)


def test_a_class_that_is_changed_between_calls_is_asked_again():
    class Changing(enum.IntEnum):
        CALL = 0
        PUT = 1

    def f(p, ks):
        return sum(p[0] * (k == Changing.PUT) + p[1] * (k + Changing.PUT) for k in ks) + p[2]

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    arguments = [0.5, 1.5, 2.5], [0, 1, 1]
    for _ in range(4):
        assert fast.value_and_grad(*arguments) == eager(*arguments)
    before = eager(*arguments)
    Changing.__eq__ = lambda self, other: int(self) != other
    assert eager(*arguments) != before
    assert fast.value_and_grad(*arguments) == eager(*arguments)
    del Changing.__eq__
    Changing.__radd__ = lambda self, other: 10 * other
    assert eager(*arguments) != before
    assert fast.value_and_grad(*arguments) == eager(*arguments)


def test_an_item_that_is_another_one_at_the_next_call_is_read_again():
    class Settings:
        kind = Kind.CALL

    def f(p, ks):
        return sum(p[0] * (k == Settings.kind) + p[1] * (k in (Settings.kind,)) for k in ks) + p[2]

    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    results = []
    for kind in (Kind.CALL, Kind.PUT, Kind.PUT, Kind.CALL, 1):
        Settings.kind = kind
        results.append(fast.value_and_grad([0.5, 1.5, 2.5], [0, 1, 1, 2]))
        assert results[-1] == eager([0.5, 1.5, 2.5], [0, 1, 1, 2])
    assert results[0] != results[1]


def by_key(p, ks, table, item):
    return sum(p[0] * table[k] + p[1] for k in ks)


def by_pair(p, ks, table, item):
    return sum(p[0] * table[k, k] + p[1] for k in ks)


def by_membership(p, ks, table, item):
    return sum(p[0] * (k in (item, 7)) + p[1] for k in ks)


def by_item(p, ks, table, item):
    return sum(p[0] * (k == item) + p[1] for k in ks)


@pytest.mark.parametrize("of_base", [False, True])
@pytest.mark.parametrize("f", [by_key, by_pair, by_membership, by_item])
def test_a_class_of_which_only_items_are_reached_is_watched_as_well(f, of_base):
    class Base:
        pass

    class Changing(Base, enum.IntEnum):
        CALL = 0
        PUT = 1

    table = {Changing.CALL: 0.5, Changing.PUT: 1.5}
    pairs = {(item, item): number for item, number in table.items()}
    item, table = Changing.PUT, pairs if f is by_pair else table

    def loss(p, ks):
        return f(p, ks, table, item)

    fast, eager = chainrule.compile(loss, on_fallback="eager"), chainrule.value_and_grad(loss)
    calls = [([0.5, 1.5], [(n >> j) & 1 for j in range(4)]) for n in range(16)]
    before = [eager(*call) for call in calls]
    assert [fast.value_and_grad(*call) for call in calls] == before
    assert recordings(fast) == 1
    (Base if of_base else Changing).__eq__ = lambda self, other: False
    after = [outcome(eager, *call) for call in calls]
    assert after != before
    assert [outcome(fast.value_and_grad, *call) for call in calls] == after
