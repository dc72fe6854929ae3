"""Stand-ins and hooks in C do and note what those in Python do, whatever they are given."""

import functools
import itertools
import math
import operator
import types

import numpy as np
import pytest

import chainrule
from chainrule.compiler.capture.hooks import HOOK_PARTS
from chainrule.compiler.capture.recorder import Recorder, extreme_start
from chainrule.compiler.capture.standins import Detached, Unrecordable
from chainrule.core import ops
from chainrule.core.backend import Value, kernels, modes, nonfinite

pytestmark = pytest.mark.skipif(kernels is None, reason="the reference engine has no twins")
NAMES = ("add", "radd", "sub", "rsub", "mul", "rmul")
KINDS = (float, np.float64, np.float32)
NUMBERS = (0.0, -0.0, 1.5, -2.25, 1e308, math.inf, math.nan)
OTHERS = (0, -3, 2**53 + 1, 10**400, True, 2.0, -0.0, 1e308, math.inf, math.nan)
BESIDE = (np.float64(1.5), np.float32(0.25), np.int64(2), np.bool_(True), "2", None, [1.0], 1j)


class Recorded:
    """A recorder whose nodes become instructions, while this thread records."""

    def __init__(self, is_allowed=False):
        self.inputs = [Value(0.0), Value(0.0), Value(0.0)]
        self.recorder = Recorder()
        self.recorder.nodes = kernels.Instructions(self.inputs, [], None)
        self.is_allowed = is_allowed

    def stand_in(self, k, number, is_data=True, kind=float):
        self.inputs[k].data = number
        return Detached(self.recorder, self.inputs[k], is_data, kind)

    def outcome(self, compute):
        """What is computed, or the error, and all that was noted of it."""
        modes.recorder = self.recorder
        try:
            with nonfinite("allow" if self.is_allowed else "raise"):
                found = compute()
            said = shown(found)
        except (Exception, Unrecordable) as error:
            said = type(error), str(error)
        finally:
            modes.recorder = None
        arrays, rules, *_ = self.recorder.nodes.finish([], [], [])
        guards = [truth for _, truth, _ in self.recorder.guards]
        noted = self.recorder.unflagged, guards, self.recorder.told, len(self.recorder.settled)
        return said, tuple(map(bytes, arrays)), [rule.name for rule in rules], noted


def shown(x):
    if type(x) is Detached:
        return "stand-in", x.kind, x.is_data, np.float64(x._value._number).tobytes()
    return type(x), repr(x)


def method(x, name):
    """The operator in C."""
    return getattr(x, f"__{name}__")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_allowed", [False, True])
def test_arithmetic_beside_plain_numbers_is_that_of_python(name, kind, is_allowed):
    for number, other in itertools.product(NUMBERS, (*OTHERS, *BESIDE)):
        runs = Recorded(is_allowed), Recorded(is_allowed)
        x, y = (run.stand_in(0, number, True, kind) for run in runs)
        found = runs[0].outcome(functools.partial(method(x, name), other))
        assert found == runs[1].outcome(functools.partial(y.combined, name, other)), (number, other)


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_arithmetic_of_two_stand_ins_is_that_of_python(name):
    whichs = [(kind, is_data) for kind in KINDS for is_data in (True, False)]
    for (a, b), one, two in itertools.product(
        [(1.5, -0.25), (1e308, 1e308), (math.inf, 0.0), (0.0, -0.0)], whichs, whichs
    ):
        runs = Recorded(), Recorded()
        pairs = [
            (run.stand_in(0, a, one[1], one[0]), run.stand_in(1, b, two[1], two[0])) for run in runs
        ]
        found = runs[0].outcome(functools.partial(method(pairs[0][0], name), pairs[0][1]))
        wanted = runs[1].outcome(functools.partial(pairs[1][0].combined, name, pairs[1][1]))
        assert found == wanted, (a, b, one, two)


@pytest.mark.parametrize("kind", KINDS)
def test_the_opposite_is_that_of_python(kind):
    for number, is_data in itertools.product(NUMBERS, (True, False)):
        runs = Recorded(), Recorded()
        x, y = (run.stand_in(0, number, is_data, kind) for run in runs)
        assert runs[0].outcome(functools.partial(operator.neg, x)) == runs[1].outcome(y.opposite)


@pytest.mark.parametrize("rule", [ops.first_max, ops.first_min])
@pytest.mark.parametrize("kinds", [KINDS[:1] * 3, KINDS[1:2] * 3, KINDS[2:] * 3, KINDS])
@pytest.mark.parametrize("is_data", [(True,) * 3, (False,) * 3, (True, False, True)])
def test_max_and_min_of_stand_ins_are_what_the_recorder_says(rule, kinds, is_data):
    start, chosen = extreme_start(rule), 0
    for numbers in [(1.5,), (2.5, 1.5, 2.5), (-0.0, 0.0), (math.inf, 1.0), (math.nan, 1.0)]:
        runs = Recorded(), Recorded()
        items, others = (
            [run.stand_in(k, x, is_data[k], kinds[k]) for k, x in enumerate(numbers)]
            for run in runs
        )
        found = runs[0].outcome(lambda items=items: kernels.choose(items, rule, start))
        if found[0] != shown(None):
            chosen += 1
            extreme = functools.partial(runs[1].recorder.extreme, others, rule)
            assert found == runs[1].outcome(extreme), numbers
    assert chosen == (1 if kinds is KINDS else 0 if kinds[0] is np.float32 else 3), (
        "the rest is asked"
    )


def test_only_stand_ins_of_one_recorder_are_chosen_from():
    run, other = Recorded(), Recorded()
    x, y, start = run.stand_in(0, 1.5), other.stand_in(0, 2.5), extreme_start(ops.first_max)
    for items in ([], [1.0, 2.0], [x, 1.0], [x, y], [run.inputs[0]]):
        found = run.outcome(lambda items=items: kernels.choose(items, ops.first_max, start))
        assert found[0] == shown(None)
    assert run.outcome(lambda: kernels.choose([x], ops.add, start))[0] == shown(None)
    assert kernels.choose([x], ops.first_max, start) is None, "nobody records"


@pytest.mark.parametrize("is_data", [True, False])
def test_a_stand_in_beside_a_value_is_what_the_recorder_says(is_data):
    def by_recorder(run, x):
        w, recorder = run.inputs[1], run.recorder
        found = [w + recorder.operand(x), w + recorder.negated(x), w * recorder.operand(x)]
        return found

    runs = Recorded(), Recorded()
    xs = [run.stand_in(0, 1.5, is_data) for run in runs]
    w = runs[0].inputs[1]
    _, arrays, rules, noted = runs[0].outcome(lambda: [w + xs[0], w - xs[0], w * xs[0]])
    _, wanted, wanted_rules, wanted_noted = runs[1].outcome(lambda: by_recorder(runs[1], xs[1]))
    assert (rules, noted) == (wanted_rules, wanted_noted)
    assert arrays == wanted


class Simple:
    item = 1.0


STATES = {
    "usual": {},
    "told": {"told": True},
    "texts": {"texts": True},
    "watched": {"is_watched": True},
    "known": {"is_known": True},
    "either": {"either": {1: None}},
    "simple": {"simple": {Simple}},
}
READS = "data append extend index get count dtype fromkeys format item _item __class__ T".split()
THINGS = [
    lambda: Value(1.0),
    list,
    dict,
    tuple,
    lambda: np.zeros(2),
    lambda: np.array([Value(1.0)]),
    lambda: Simple(),
    lambda: Simple,
    lambda: dict,
    lambda: Value,
    lambda: math,
    lambda: "text",
    lambda: 1.5,
    lambda: types.SimpleNamespace(data=1),
]


def noted_by(hook, state, make, *given):
    """What a hook gives, and what the recorder knows afterwards."""
    recorder, x = Recorder(), make()
    recorder.nodes = kernels.Instructions([], [], None)
    for name, to in state.items():
        if name == "is_watched":
            recorder.watched.add(id(x))
        elif name == "is_known":
            recorder.selector.known.add(id(x))
        else:
            setattr(recorder, name, to.copy() if isinstance(to, dict | set) else to)
    modes.recorder = recorder
    try:
        found = hook(x, *given)
        said = "itself" if found is x else type(found)
    except (Exception, Unrecordable) as error:
        said = type(error)
    finally:
        modes.recorder = None
    noted = recorder.told, recorder.tells, recorder.simple, len(recorder.asked)
    return said, noted, len(recorder.stores_into), recorder.selector._observed


@pytest.mark.parametrize("state", STATES)
def test_an_attribute_that_is_read_is_noted_as_in_python(state):
    for make, name in itertools.product(THINGS, READS):
        found = noted_by(kernels.asked, STATES[state], make, name)
        assert found == noted_by(HOOK_PARTS[0], STATES[state], make, name), (make(), name)


def test_items_are_read_as_in_python():
    rows = np.arange(4.0).reshape(2, 2)
    containers = [[1, 2.5], (1, 2.5), {"a": 1, 0: 2}, "text", rows, rows[0], 1.5]
    keys = [0, -1, 7, "a", slice(1), (0, 1), (0, slice(1)), True, None, 0.0, (True, 0), np.int64(0)]
    for xs, key in itertools.product(containers, keys):
        found = [
            noted_by(hook, {}, lambda xs=xs: xs, key) for hook in (kernels.read, HOOK_PARTS[1])
        ]
        assert found[0] == found[1], (xs, key)


def test_what_is_called_is_replaced_as_in_python():
    for f in (int, float, len, max, print, math.exp, np.exp, Simple, [].append, [], lambda x: x):
        recorder = Recorder()
        recorder.nodes = kernels.Instructions([], [], None)
        modes.recorder = recorder
        try:
            found = kernels.called(f), HOOK_PARTS[2](f)
        finally:
            modes.recorder = None
        assert found[0] is found[1], f
        assert kernels.called(f) is f


# --- arrays that are gone through -----------------------------------------------------------------


def outcome_of(do):
    try:
        return do()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("strict", [False, True])
def test_zip_of_arrays_is_that_of_python(strict):
    rows = [np.arange(6.0), np.arange(6.0).reshape(3, 2), np.array([Value(1.0), None], object)]
    others = [*rows, rows[0][::-2], np.zeros(0), np.array(1.0), [1, 2], "ab", 3]
    for given in itertools.chain([()], *[itertools.product(others, repeat=n) for n in (1, 2)]):
        found, wanted = (
            outcome_of(lambda f=f, given=given: [*map(repr, f(*given, strict=strict))])
            for f in (kernels.zip_items, zip)
        )
        assert found == wanted, given
    assert type(kernels.zip_items(rows[0])) is zip


def test_the_items_of_an_array_are_those_it_has_when_they_are_asked_for():
    for go_through in (iter, kernels.items):
        xs = np.arange(3.0)
        items = go_through(xs)
        xs[1] = 7.0
        assert [next(items), next(items), xs.fill(8.0), next(items)] == [0.0, 7.0, None, 8.0]
        assert next(items, None) is None
        assert next(items, None) is None, "it has ended for good"
        assert items.__class__ is type(iter(xs))
    for x in ([1.0], Value(1.0), None):
        with pytest.raises(TypeError, match="the items of an array"):
            kernels.items(x)
    assert outcome_of(lambda: kernels.items(np.array(1.0))) == outcome_of(
        lambda: iter(np.array(1.0))
    )


def test_what_code_that_may_catch_errors_computes_is_recorded_in_c(monkeypatch):
    asked, combined = [], Detached.combined

    def noted(self, name, other):
        asked.append(name)
        return combined(self, name, other)

    def f(a, x):
        try:
            y = a[5]
        except IndexError:
            y = x
        for _ in range(10):
            y = y * 0.5 + a[0] - x
        return y

    monkeypatch.setattr(Detached, "combined", noted)
    fast = chainrule.compile(f)
    assert fast([0.5, 2.0], 3.0) == f([0.5, 2.0], 3.0)
    assert fast.dispatch.counts.replayed == 1
    assert not asked
