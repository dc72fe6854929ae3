"""Calls of a function that is known to run eagerly: in C, counted, and looked at again in time."""

import math
import threading
import warnings

import numpy as np
import pytest

import chainrule
from chainrule import FallbackError, FallbackWarning, Value
from chainrule.compiler.runtime.costs import allowance
from chainrule.compiler.runtime.notices import MOST_UNSERVED
from chainrule.compiler.runtime.resting import LONGEST_REST

pytestmark = pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
native = pytest.mark.skipif(chainrule.engine != "native", reason="C runs them")


@pytest.fixture(autouse=True)
def usual_allowance():
    before = allowance.left
    allowance.left = 0.3
    yield
    allowance.left = before


class Counter:
    """Calls of a function, in a slot: which no recording can repeat."""

    __slots__ = ("calls",)

    def __init__(self):
        self.calls = 0

    def __call__(self, x, *more):
        self.calls += 1
        return sum((v * v for v in x), 0.0) * float(len(more) + 1)


def counting(counter, **options):
    def f(x, *more):
        return counter(x, *more)

    return chainrule.compile(f, **options)


def counted(fast):
    counts = fast.dispatch.counts
    return counts.calls, counts.replayed, counts.eager


def test_every_call_runs_the_function_once_and_is_counted():
    counter = Counter()
    fast = counting(counter)
    for k in range(1, 300):
        assert fast.value_and_grad([float(k), 1.0]) == (k * k + 1.0, [2.0 * k, 2.0])
        assert counter.calls == k
    assert counted(fast) == (299, 0, 299)
    assert "299 eager" in fast.report()


@native
def test_most_of_them_are_run_by_the_gate(monkeypatch):
    counter = Counter()
    fast = counting(counter)
    for _ in range(200):
        fast.value_and_grad([1.0, 2.0])
    assert fast.dispatch.gate.resting > 0
    slow = []
    monkeypatch.setattr(fast.dispatch, "rests", lambda: slow.append(1) or False)
    fast.value_and_grad([1.0, 2.0])
    fast([Value(1.0), 2.0])
    assert slow == []


def test_plain_calls_and_derivatives_rest_too():
    counter = Counter()
    fast = counting(counter)
    jacobian = chainrule.jacobian(fast)
    for k in range(1, 200):
        x = Value(float(k))
        y = fast([x])
        y.backward()
        assert (y.data, x.grad) == (k * k, 2.0 * k)
        assert jacobian([float(k)]).tolist() == [2.0 * k]
    assert counter.calls == 2 * 199
    assert counted(fast) == (199, 0, 199)


def test_a_function_that_returns_nothing_is_called_once():
    calls = []

    def f(x):
        calls.append(len(calls))

    fast = chainrule.compile(f)
    for _ in range(200):
        assert fast([1.0]) is None
    assert len(calls) == 200


def test_wrong_results_are_errors_every_time():
    log = []

    def f(x):
        log.append(1)
        return [x] if len(log) > 100 else x * x

    fast = chainrule.compile(f)
    for _ in range(100):
        assert fast.value_and_grad(3.0) == (9.0, 6.0)
    for _ in range(10):
        with pytest.raises(TypeError, match="value_and_grad takes a function that returns one"):
            fast.value_and_grad(3.0)
    with pytest.raises(TypeError, match="takes the argument to differentiate by first"):
        fast.value_and_grad()
    assert len(log) == 110


def test_errors_of_the_function_come_through():
    log = []

    def f(x):
        log.append(1)
        if len(log) % 3 == 0:
            raise KeyError(len(log))
        return x * x

    fast = chainrule.compile(f)
    for k in range(1, 200):
        if k % 3 == 0:
            with pytest.raises(KeyError, match=str(k)):
                fast.value_and_grad(3.0)
        else:
            assert fast.value_and_grad(3.0) == (9.0, 6.0)
    assert fast.dispatch.counts.calls == 199


def test_arrays_records_extras_and_out():
    log = []

    def f(p, scale):
        log.append(1)
        y = (p["w"] * p["w"]).sum() * scale
        return y, {"y": y, "n": 3, "all": [y, (y, "text")]}

    fast, w = chainrule.compile(f), np.arange(4.0).reshape(2, 2)
    out = {"w": np.zeros((2, 2))}
    for k in range(200):
        into = out if k % 2 else None
        (value, extras), gradient = fast.value_and_grad({"w": w}, 2.0, out=into)
        assert (value, extras) == (28.0, {"y": 28.0, "n": 3, "all": [28.0, (28.0, "text")]})
        assert (gradient["w"] == 4.0 * w).all()
        assert type(value) is float
        assert (into is None) is (gradient is not out)
    with pytest.raises(ValueError, match="out must have the structure"):
        fast.value_and_grad({"w": w}, 2.0, out={"w": np.zeros(3)})
    with pytest.raises(TypeError, match="out holds arrays of floats"):
        fast.value_and_grad({"w": w}, 2.0, out={"w": np.zeros((2, 2), int)})
    assert len(log) == 202


def test_bound_calls():
    log = []

    def f(w):
        log.append(1)
        return (w * w).sum()

    w = np.ones(3)
    call = chainrule.compile(f).bound(w)
    for k in range(200):
        w[:] = float(k)
        assert call() == 3.0 * k * k
        assert (call.gradient == 2.0 * k).all()
    assert len(log) == 200


def test_keywords():
    log = []

    def f(x, power=2):
        log.append([1])
        return x**power

    fast = chainrule.compile(f)
    for _ in range(100):
        assert fast.value_and_grad(3.0, power=3) == (27.0, 27.0)
        assert fast.value_and_grad(3.0) == (9.0, 6.0)
    assert counted(fast) == (200, 0, 200)


def test_inside_another_transform_it_is_differentiated_again():
    log = []

    def f(x):
        log.append(1)
        return x**3

    fast = chainrule.compile(f)
    for _ in range(100):
        fast.value_and_grad(2.0)
    assert chainrule.grad(lambda x: fast(x) * x)(2.0) == 32.0
    assert chainrule.grad(lambda x: fast.value_and_grad(x)[1])(2.0) == 12.0
    assert chainrule.hessian(fast)(2.0) == 12.0
    whole = chainrule.compile(lambda x: fast(x) * 2.0)
    assert [whole.value_and_grad(2.0) for _ in range(5)] == [(16.0, 24.0)] * 5


def test_a_method_rests_with_its_instance():
    class Model:
        def __init__(self, scale):
            self.scale, self.calls = scale, 0

        @chainrule.compile
        def loss(self, x):
            self.calls += 1
            return x * x * self.scale

    models = [Model(2.0), Model(3.0)]
    for _ in range(100):
        assert [m.loss.value_and_grad(3.0) for m in models] == [(18.0, 12.0), (27.0, 18.0)]
    assert [m.calls for m in models] == [100, 100]


def test_values_around_are_seen_while_it_rests():
    log, w = [], 2.0

    def f(x):
        log.append(1)
        return x * x * w

    fast = chainrule.compile(f)
    for _ in range(100):
        assert fast.value_and_grad(3.0) == (18.0, 12.0)
    w = Value(2.0)
    value, slope = fast.value_and_grad(3.0)
    assert isinstance(slope, Value)
    slope.backward()
    assert (value.data, slope.data, w.grad) == (18.0, 12.0, 6.0)


@native
def test_what_can_be_recorded_again_is():
    def branch(x, way):
        return x * way.weight if isinstance(way, Opaque) else x * x * way

    fast = chainrule.compile(branch)
    opaque = Opaque()
    for _ in range(500):
        assert fast.value_and_grad(3.0, opaque) == (15.0, 5.0)
    calls = fast.dispatch.counts.eager
    for _ in range(4 * LONGEST_REST):
        assert fast.value_and_grad(3.0, 2.0) == (18.0, 12.0)
    counts = fast.dispatch.counts
    assert counts.eager - calls <= 2 * LONGEST_REST + 2
    assert counts.replayed > LONGEST_REST


class Opaque:
    weight = 5.0


@native
def test_cached_calls_that_never_answer_are_not_tried_every_time():
    def f(x, n):
        return sum((x**k for k in range(n)), 0.0) * math.factorial(n)

    fast = chainrule.compile(f, on_fallback="eager")
    for k in range(400):
        n = 1 + k % 97
        value, slope = fast.value_and_grad(0.5, n)
        expected = chainrule.value_and_grad(lambda x, n=n: f(x, n))(0.5)
        assert math.isclose(value, expected[0], rel_tol=1e-12)
        assert math.isclose(slope, expected[1], rel_tol=1e-12)
    replayed = fast.dispatch.counts.replayed
    for _ in range(6 * LONGEST_REST):
        fast.value_and_grad(0.5, 3)
    assert fast.dispatch.counts.replayed > replayed + LONGEST_REST


@pytest.mark.parametrize("argument", [{1, 2}, 3.0])
def test_raise_raises_every_time(argument):
    log = [0]

    def f(x, y):
        log[0] += 1
        return x * x

    fast = chainrule.compile(f, on_fallback="raise")
    for _ in range(20):
        with pytest.raises(FallbackError):
            fast.value_and_grad(3.0, argument)


def test_the_user_is_told_once():
    counter = Counter()
    fast = counting(counter)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3 * MOST_UNSERVED):
            fast.value_and_grad([1.0], {1})
            fast.value_and_grad([1.0])
    messages = {str(w.message) for w in caught if issubclass(w.category, FallbackWarning)}
    assert len(caught) == len(messages) >= 1


def test_threads():
    log, found = [], []

    def f(x):
        log.append([1])
        return x * x

    fast = chainrule.compile(f)

    def calls(k):
        found.append(all(fast.value_and_grad(float(k)) == (k * k, 2.0 * k) for _ in range(200)))

    threads = [threading.Thread(target=calls, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4
    assert len(log) == 800
    assert counted(fast) == (800, 0, 800)


@native
def test_calls_that_raise_rest_too(monkeypatch):
    def f(x, n):
        total = 0.0
        for k in range(40):
            total = total + chainrule.log(x[0] - 0.01 * k) * x[1]
        return total * n

    fast = chainrule.compile(f)
    for k in range(60):  # recorded, and then answered by the fast path
        fast.value_and_grad([2.0 + k, 1.0], 1.0)
    assert fast.dispatch.counts.replayed > 0
    slowly, kept = [], chainrule.compiler.api.calls.unanswered_value_and_grad
    monkeypatch.setattr(
        chainrule.compiler.api.calls,
        "unanswered_value_and_grad",
        lambda *arguments: slowly.append(1) or kept(*arguments),
    )
    for k in range(400):
        with pytest.raises(ValueError, match="log"):
            fast.value_and_grad([-1.0 - k, 1.0], 1.0)
    assert len(slowly) < 60
    assert fast.dispatch.counts.calls == 460
    assert fast.value_and_grad([3.0, 1.0], 1.0)[0] == pytest.approx(f([3.0, 1.0], 1.0))


# --- calls that end in an error -------------------------------------------------------------------


def rejecting(x, limit):
    total = sum((v * v for v in x), 0.0)
    if limit > 0:
        raise ValueError(f"over {limit}")
    return total


def raised(call, *arguments):
    with pytest.raises(ValueError, match="over") as caught:
        call(*arguments)
    return str(caught.value), [entry.name for entry in caught.traceback][1:]


@native
@pytest.mark.parametrize("plain", [False, True])
def test_calls_that_keep_raising_are_run_by_the_gate(monkeypatch, plain):
    fast = chainrule.compile(rejecting)
    call = fast if plain else fast.value_and_grad
    for _ in range(300):
        raised(call, [1.0, 2.0], 3.0)
    slow, look = [], fast.dispatch.rests
    monkeypatch.setattr(fast.dispatch, "rests", lambda *a, **k: slow.append(1) or look(*a, **k))
    for _ in range(4 * LONGEST_REST):
        raised(call, [1.0, 2.0], 3.0)
    assert len(slow) <= 8
    assert counted(fast) == (300 + 4 * LONGEST_REST, 0, 300 + 4 * LONGEST_REST)


def test_the_errors_of_resting_calls_are_eagers():
    fast = chainrule.compile(rejecting).value_and_grad
    for k in range(1, 200):
        text, frames = raised(fast, [1.0], k)
        assert text == f"over {k}"
        assert frames[-1] == "rejecting"
    if chainrule.engine == "native":  # no frames of the library's own
        assert frames == ["rejecting"]


@native
def test_calls_that_no_longer_raise_are_recorded():
    fast = chainrule.compile(rejecting)
    for _ in range(500):
        raised(fast.value_and_grad, [1.0, 2.0], 3.0)
    for _ in range(4 * LONGEST_REST):
        assert fast.value_and_grad([1.0, 2.0], 0.0) == (5.0, [2.0, 4.0])
    assert fast.dispatch.counts.replayed > LONGEST_REST


@native
def test_calls_between_those_that_raise_are_replayed():
    fast = chainrule.compile(rejecting)
    for _ in range(100):
        assert fast.value_and_grad([1.0, 2.0], 0.0) == (5.0, [2.0, 4.0])
    for k in range(1000):
        if k % 2:
            raised(fast.value_and_grad, [1.0, 2.0], 3.0)
        else:
            assert fast.value_and_grad([1.0, 2.0], 0.0) == (5.0, [2.0, 4.0])
    calls, replayed, eager = counted(fast)
    assert calls == replayed + eager == 1100
    assert replayed > 500


@native
def test_recordings_that_end_in_an_error_are_paid_for():
    fast = chainrule.compile(rejecting)
    for n in range(1, 200):  # each of another structure
        raised(fast.value_and_grad, [1.0] * n, 3.0)
    assert fast.dispatch.counts.traces <= 10


# --- functions that change what they read ---------------------------------------------------------


@native
def test_a_function_that_changes_what_it_reads_is_recorded_a_few_times_only():
    mean, log = [0.0], []

    def averaging(x):
        y = x * x
        mean[0] = 0.9 * mean[0] + 0.1 * y.data
        return y

    def noting(x):
        if x > 2.0:
            log.append(x.data)
            raise ValueError("over")
        return x * x + len(log) * 0.0

    fast = chainrule.compile(averaging)
    for _ in range(1000):
        assert fast.value_and_grad(3.0) == (9.0, 6.0)
    assert mean[0] == pytest.approx(9.0)
    assert fast.dispatch.counts.traces <= 8
    fast = chainrule.compile(noting)
    for k in range(1000):
        if k % 10 == 0:
            raised(fast.value_and_grad, 3.0)
        else:
            assert fast.value_and_grad(1.0) == (1.0, 2.0)
    assert log == [3.0] * 100
    assert fast.dispatch.counts.traces <= 12


@native
def test_a_table_that_calls_fill_is_waited_for():
    table = {}

    def f(x, n):
        if n not in table:
            table[n] = [n * 0.5]
        return sum((a * table[n][0] for a in x), 0.0)

    fast = chainrule.compile(f, on_fallback="eager")
    for k in range(2000):
        n = k % 12
        assert fast.value_and_grad([2.0] * 20, n)[1] == [n * 0.5] * 20
    assert fast.dispatch.counts.replayed > 500


@native
def test_the_user_is_told_of_what_others_change_too_often():
    scale = {"k": [1.0]}
    fast = chainrule.compile(lambda x: x * scale["k"][0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(600):
            scale["k"][0] = float(k)
            assert fast.value_and_grad(2.0) == (2.0 * k, float(k))
    messages = [str(w.message) for w in caught]
    assert ["changes" in message for message in messages] == [True]
