"""Objects with methods, and functions, as arguments: compiled calls equal eager ones."""

import abc
import copy
import functools
import sys
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import chainrule
from chainrule import Value, exp, tanh, value_and_grad


class Policy:
    scale = 2.0

    def __init__(self, gain, kind="tanh"):
        self.gain, self.kind = gain, kind

    def __call__(self, z):
        return tanh(self.gain * z) if self.kind == "tanh" else self.act(z)

    def act(self, z):
        return self.gain * self.scale * z


class Shifted(Policy):
    def __call__(self, z):
        return super().__call__(z) + self.shift

    @property
    def shift(self):
        return self.gain / 2

    @staticmethod
    def half(x):
        return x / 2

    @classmethod
    def named(cls):
        return len(cls.__name__)


@pytest.fixture
def patching(monkeypatch):
    return monkeypatch.setattr


def alike(function, arguments, **options):
    """Whether compiled calls with these arguments, made anew for each, equal eager ones."""
    fast, eager = (
        chainrule.compile(function, on_fallback="eager", **options),
        value_and_grad(function),
    )
    for k in range(12):
        got, expected = (
            call([0.5 + k, 0.3], *arguments(k)) for call in (fast.value_and_grad, eager)
        )
        assert got[0] == pytest.approx(expected[0], rel=1e-12)
        assert got[1] == pytest.approx(expected[1], rel=1e-12)
    return fast


def is_replayed(fast):
    counts = fast.dispatch.counts
    return counts.replayed == counts.calls


def reasons(fast):
    return " ".join(fast.dispatch.notices.reasons)


@pytest.mark.parametrize("lift", [None, True, False])
def test_methods_are_part_of_the_recording(lift):
    fast = alike(lambda w, p: p(w[0]) * w[1], lambda k: [Policy(0.1 * k)], lift=lift)
    assert is_replayed(fast)
    assert fast.dispatch.counts.traces == 1


def test_texts_and_classes_of_objects_are_static():
    fast = alike(
        lambda w, p: p(w[0]) * w[1],
        lambda k: [(Policy, Shifted)[k % 2](0.1 * k, ("tanh", "linear")[k // 2 % 2])],
    )
    assert is_replayed(fast)


def test_class_methods_properties_and_super():
    def f(w, p):
        return w[0] * p.half(p.shift) + p.named() * p(w[1])

    assert is_replayed(alike(f, lambda k: [Shifted(0.1 * k)]))


def test_objects_in_lists_and_in_objects():
    class Book:
        def __init__(self, policies):
            self.policies, self.first = policies, policies[0]

        def total(self, z):
            return sum(p(z) for p in self.policies) + self.first.gain

    fast = alike(lambda w, book: book.total(w[0]), lambda k: [Book([Policy(0.1 * k), Policy(0.2)])])
    assert is_replayed(fast)


def test_an_attribute_that_shadows_a_constant_of_the_class():
    def policy(k):
        made = Policy(0.1 * k, "linear")
        if k % 3 == 0:
            made.scale = float(k)
        return [made]

    assert is_replayed(alike(lambda w, p: p(w[0]), policy))


def test_a_method_that_is_replaced_between_calls(patching):
    f = chainrule.compile(lambda w, p: p.act(w))
    assert f.value_and_grad(2.0, Policy(3.0)) == (12.0, 6.0)
    patching(Policy, "act", lambda self, z: self.gain * z)
    assert f.value_and_grad(2.0, Policy(3.0)) == (6.0, 3.0)
    patching(Policy, "scale", 7.0)
    patching(Policy, "act", lambda self, z: self.scale * z)
    assert f.value_and_grad(2.0, Policy(3.0)) == (14.0, 7.0)
    for _ in range(3):
        assert f.value_and_grad(2.0, Policy(3.0)) == (14.0, 7.0)
    patching(Policy, "scale", 8.0)
    assert f.value_and_grad(2.0, Policy(3.0)) == (16.0, 8.0)


def test_a_class_that_is_no_longer_pure_runs_eagerly_and_others_go_on(patching):
    called = []

    class Other:
        def act(self, z):
            return z * 5.0

    f = chainrule.compile(lambda w, p: p.act(w), on_fallback="eager")
    assert f.value_and_grad(2.0, Policy(3.0)) == (12.0, 6.0)
    patching(Policy, "act", lambda self, z: (called.append(z), z)[1])
    for _ in range(4):
        assert f.value_and_grad(2.0, Policy(3.0)) == (2.0, 1.0)
        assert f.value_and_grad(2.0, Other()) == (10.0, 5.0)
    assert len(called) == 4


class Counting:
    calls = 0

    def __init__(self, x):
        self.x, self.seen = x, 0

    def mine(self):
        self.seen += 1
        return self.x * self.seen

    def everybodys(self):
        type(self).calls += 1
        return self.x * type(self).calls


@pytest.mark.parametrize("name", ["mine", "everybodys"])
def test_what_a_method_changes_is_changed_once_for_each_call(name):
    Counting.calls = 0
    f = chainrule.compile(lambda w, c: w * getattr(c, name)(), on_fallback="eager")
    counter = Counting(2.0)
    assert [f.value_and_grad(1.0, counter)[0] for _ in range(4)] == [2.0, 4.0, 6.0, 8.0]
    assert (counter.seen, Counting.calls) == ((4, 0) if name == "mine" else (0, 4))
    assert "it changes" in reasons(f)


def test_a_property_that_is_kept_in_the_object():
    class Kept:
        def __init__(self, x):
            self.x = x

        @functools.cached_property
        def twice(self):
            return self.x * 2

    f = chainrule.compile(lambda w, o: w * o.twice, on_fallback="eager")
    kept = Kept(1.5)
    assert f.value_and_grad(2.0, kept) == (6.0, 3.0)
    assert vars(kept)["twice"] == 3.0
    kept.twice = 5.0
    assert f.value_and_grad(2.0, kept) == (10.0, 5.0)


GLOBAL = Policy(1.5)
SPACE, PAIR = SimpleNamespace(gain=1.5), namedtuple("Pair", "gain")(1.5)
BY_OBJECT = {GLOBAL: 7.0}


@dataclass
class Record:
    gain: float


@dataclass(eq=False)
class Unequal:
    gain: float


RECORD, UNEQUAL = Record(1.5), Unequal(1.5)


@pytest.mark.parametrize(
    ("ask", "known"),
    [
        (lambda p: p is GLOBAL, GLOBAL),
        (lambda p: p == GLOBAL, GLOBAL),
        (lambda p: p in [GLOBAL], GLOBAL),
        (lambda p: BY_OBJECT.get(p, 0.0) > 0, GLOBAL),
        (lambda p: p is SPACE, SPACE),
        (lambda p: p is RECORD, RECORD),
        (lambda p: p == UNEQUAL, UNEQUAL),
        (lambda p: p is PAIR, PAIR),
    ],
)
def test_an_object_that_the_function_also_has_by_itself_is_told_from_others(ask, known):
    def made(k):
        if k % 3 == 2:
            return [known]
        return [known._replace(gain=k)] if known is PAIR else [type(known)(gain=0.1 * k)]

    alike(lambda w, p: w[0] * p.gain * (2 if ask(p) else 3), made)


@pytest.mark.parametrize("kind", [Policy, Unequal, Record])
@pytest.mark.parametrize(
    "ask", [lambda p, q: p is q, lambda p, q: p == q, lambda p, q: p in [q], lambda p, q: p != q]
)
def test_whether_two_objects_are_one(ask, kind):
    def made(k):
        p = kind(0.1 * k)
        return [p, p if k % 3 == 2 else kind(0.1 * k)]

    alike(lambda w, p, q: w[0] * p.gain * (2 if ask(p, q) else 3), made)


def test_hashes_of_objects_are_left_to_eager():
    f = chainrule.compile(lambda w, p: w * (hash(p) % 7), on_fallback="eager")
    for _ in range(3):
        p = Policy(1.0)
        assert f.value_and_grad(2.0, p) == (2.0 * (hash(p) % 7), float(hash(p) % 7))
    assert "hash of an object" in reasons(f)


def test_a_text_with_an_address_is_left_to_eager():
    f = chainrule.compile(lambda w, p: (w * p.gain, str(p)), on_fallback="eager")
    for _ in range(3):
        p = Policy(1.0)
        assert f.value_and_grad(2.0, p)[0] == (2.0, str(p))


def test_keys_of_dicts_that_may_change_are_not_taken_for_what_they_were():
    f = chainrule.compile(
        lambda w, d: sum(w * p.gain * x for p, x in d.items()), on_fallback="eager"
    )
    policy = Policy(0.0)
    for k in range(4):
        policy.gain = float(k)
        assert f.value_and_grad(2.0, {policy: 3.0}) == (6.0 * k, 3.0 * k)
    assert "type dict with a Policy for a key" in reasons(f)


class Watching:
    def __init__(self):
        self.x = 2.0

    def __getattr__(self, name):
        return 3.0


class Slotted:
    __slots__ = ("x",)

    def __init__(self):
        self.x = 2.0


class Finished:
    ended = 0

    def __init__(self):
        self.x = 2.0

    def __del__(self):
        Finished.ended += 1


class Printing:
    def __init__(self):
        self.x = 2.0

    def show(self):
        print(self.x)


class Logged:
    def __init__(self):
        self.x, self.log = 2.0, object()


class Itself:
    def __init__(self):
        self.x, self.me = 2.0, self


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Watching, "Watching cannot be followed"),
        (Slotted, "Slotted cannot be followed"),
        (Finished, "Finished cannot be followed"),
        (Printing, "it calls print, which is not known to be pure, at test_compile_objects.py"),
        (Logged, "Logged, whose attribute 'log' is a object, cannot be followed"),
        (Itself, "Itself, whose attribute 'me' is a Itself, which refers to itself, cannot"),
    ],
)
def test_what_cannot_be_watched_is_refused_with_its_reason(kind, reason):
    f = chainrule.compile(lambda w, o: w * o.x, on_fallback="eager")
    assert [f.value_and_grad(3.0, kind()) for _ in range(3)] == [(6.0, 2.0)] * 3
    assert reason in reasons(f)


def test_nested_arguments_of_any_depth_run():
    deep = []
    for _ in range(5000):
        deep = [deep]
    f = chainrule.compile(lambda w, x: w * 2, on_fallback="eager")
    assert f.value_and_grad(3.0, deep) == (6.0, 2.0)
    assert "nested too deeply" in reasons(f)


def test_other_objects_of_a_refused_type_say_what_to_pass():
    class Series:
        __slots__ = ("values",)

    f = chainrule.compile(lambda w, x: w * 2, on_fallback="eager")
    f.value_and_grad(1.0, Series())
    f.value_and_grad(1.0, {1.5, 2.5})
    assert "to_numpy()" in reasons(f)
    assert "pass a list of what is in it" in reasons(f)


@dataclass
class Option:
    strike: float
    rate: float = 0.1

    def payoff(self, spot):
        return max(spot - self.strike, 0.0) * self.rate


@dataclass(frozen=True)
class Point:
    x: float
    y: float

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)


def test_dataclasses_with_methods():
    def f(w, option, a, b):
        return option.payoff(w[0]) + w[1] * (a + b).x

    fast = alike(f, lambda k: [Option(0.2 * k), Point(0.1 * k, 1.0), Point(2.0, 0.3)])
    assert is_replayed(fast)


def test_a_dataclass_with_methods_to_differentiate_by():
    def f(option, spot):
        return option.payoff(spot) ** 2

    fast, eager = chainrule.compile(f), value_and_grad(f)
    for k in range(5):
        option = Option(1.0 + k, 0.5)
        assert fast.value_and_grad(option, 9.0) == eager(option, 9.0)
    assert is_replayed(fast)


def test_attributes_beside_the_fields_of_a_dataclass():
    @dataclass
    class Square:
        side: float

        def __post_init__(self):
            self.area = self.side**2

        def both(self):
            return self.area + self.side

    fast = alike(lambda w, s: w[0] * s.both(), lambda k: [Square(0.1 * k)])
    assert is_replayed(fast)


def test_an_object_to_differentiate_by_raises_what_eager_raises():
    f = lambda p: p.gain * 2  # noqa: E731
    messages = []
    for call in (chainrule.compile(f, on_fallback="eager").value_and_grad, value_and_grad(f)):
        with pytest.raises(TypeError) as raised:
            call(Policy(1.0))
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_a_model_of_values_as_an_argument():
    class Model:
        def __init__(self):
            self.w, self.b = Value(2.0), Value(1.0)
            self.all = [self.w, self.b]

        def __call__(self, x):
            return self.w * x + self.b * self.all[0]

    def f(model, x):
        return model(x) ** 2

    fast, one, other = chainrule.compile(f), Model(), Model()
    for k in range(5):
        fast(one, 1.5 + k).backward()
        f(other, 1.5 + k).backward()
    assert [v.grad for v in one.all] == pytest.approx([v.grad for v in other.all])
    assert is_replayed(fast)


def test_abstract_classes_and_values_in_classes():
    class Payoff(abc.ABC):
        bias = Value(0.5)

        def __init__(self, strike):
            self.strike = strike

        @abc.abstractmethod
        def of(self, spot): ...

    class Call(Payoff):
        def of(self, spot):
            return (spot - self.strike) * self.bias

    def f(w, payoff):
        return payoff.of(w) if isinstance(payoff, Payoff) else w

    fast = chainrule.compile(f)
    for k in range(4):
        Payoff.bias.data = 0.5 + k
        assert fast.value_and_grad(3.0, Call(1.0)) == value_and_grad(f)(3.0, Call(1.0))


def doubled(z):
    return z * FACTOR


FACTOR = 2.0


def test_functions_as_arguments(patching):
    f = chainrule.compile(lambda w, activation: activation(w) * 3, on_fallback="eager")
    for activation in (tanh, exp, doubled, tanh, doubled):
        expected = value_and_grad(lambda w, a: a(w) * 3)(0.5, activation)
        assert f.value_and_grad(0.5, activation) == expected
    assert f.value_and_grad(0.5, lambda z: z * 4) == (6.0, 12.0)
    patching(sys.modules[__name__], "FACTOR", 5.0)
    assert f.value_and_grad(0.5, doubled) == (7.5, 15.0)


def test_a_new_function_for_every_call_runs():
    f = chainrule.compile(lambda w, g: g(w), on_fallback="eager")
    for k in range(100):
        assert f.value_and_grad(2.0, lambda z, k=k: z * k) == (2.0 * k, float(k))
    assert "all the time" in reasons(f)
    assert f.dispatch.counts.traces < 30


def test_objects_in_samples_and_beside_stacked_arguments():
    class Noise:
        def __init__(self, g):
            self.g = g

        def on(self, x):
            return x * self.g

    def f(p, x, noise):
        return (noise.on(p["w"][0]) * x - 1.0) ** 2

    fast, eager = chainrule.compile(f), value_and_grad(f)
    params = {"w": np.array([0.3])}
    samples = [(0.1 * k, Noise(0.5 + k)) for k in range(8)]
    mean = np.mean([eager(params, *sample)[0] for sample in samples])
    assert fast.batch_value_and_grad(params, samples)[0] == pytest.approx(mean)
    noise, rows = Noise(0.5), np.linspace(0.0, 1.0, 50)
    for _ in range(2):
        values = fast.map(params, rows, noise, in_axes=(None, 0, None))
        assert values[7] == pytest.approx(eager(params, float(rows[7]), noise)[0])
        noise.g = 2.0


def test_files_do_not_hold_the_code_of_what_was_passed(tmp_path):
    f = chainrule.compile(lambda w, p: p(w))
    with pytest.raises(chainrule.SaveError, match="whose code is not part of a file"):
        f.save(tmp_path / "f.safetensors", 0.5, Policy(1.0))


def test_an_object_to_differentiate_by_is_refused_as_eager_refuses_it():
    f = chainrule.compile(lambda o: o.x * 2, on_fallback="eager")
    with pytest.raises(TypeError, match="is a Itself, and there is no derivative with respect"):
        f.value_and_grad(Itself())
    assert "not everything in its first argument is a number" in reasons(f)


@dataclass
class Pair:
    x: float
    y: float = 2.0


def given_attributes(**attributes):
    made = object.__new__(Pair)
    vars(made).update(attributes)
    return made


def in_their_order(pair, s):
    total = 0.0
    for x in pair.__dict__.values():
        total = total * 2 + x
    return total * s


def by_their_name(pair, s):
    return s * (2.0 if "y" in pair.__dict__ else 3.0)


def of_a_copy(pair, s):
    return in_their_order(copy.copy(pair), s)


def weighed(numbers, s):
    total = 0.0
    for x in numbers:
        total = total * 2 + x
    return total * s


def by_its_state(pair, s):
    return weighed(pair.__getstate__().values(), s)


def by_its_parts(pair, s):
    return weighed(pair.__reduce_ex__(2)[2].values(), s)


def by_the_state_of_a_base(pair, s):
    return weighed(super(Pair, pair).__getstate__().values(), s)


def by_the_descriptor(pair, s):
    return weighed(Pair.__dict__["__dict__"].__get__(pair).values(), s)


def by_the_names_that_it_gives(pair, s):
    return weighed([getattr(pair, name) for name in pair.__dir__() if name in "xy"], s)


def by_asking_object(pair, s):
    return weighed(object.__getattribute__(pair, "__dict__").values(), s)


def without_one(pair, s):
    del pair.y
    return pair.y * s


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    "f",
    [
        *(in_their_order, by_their_name, of_a_copy, without_one, by_its_state, by_its_parts),
        *(by_the_state_of_a_base, by_the_descriptor, by_the_names_that_it_gives),
        by_asking_object,
    ],
)
def test_a_dataclass_may_have_its_attributes_in_any_order_or_from_its_class(f):
    fast = chainrule.compile(f, on_fallback="eager")
    for k in range(3):
        for attributes in ({"x": 1.0, "y": 3.0}, {"y": 3.0, "x": 1.0}, {"x": 1.0}):
            outcomes = []
            for g in (f, fast):
                pair = given_attributes(**attributes)
                try:
                    outcomes.append((g(pair, 1.5 + k), [*vars(pair).items()]))
                except AttributeError as error:
                    outcomes.append(str(error))
            assert outcomes[1] == outcomes[0]
