"""Functions that keep numbers outside: replayed, and what they leave there is what eager leaves."""

import collections
import dataclasses
import threading
import types

import numpy as np
import pytest
from compile_twins import eager_because, same

import chainrule
from chainrule import FallbackError, Value, exp, log, tanh

N, TOTAL, FLAG, BEST, LOSSES = 0, 0.0, False, None, []
TABLE = {"calls": 0, "mean": 0.0}


class Tracker:
    def __init__(self):
        self.calls, self.mean = 0, 0.0

    def update(self, number):
        self.calls += 1
        self.mean += (number - self.mean) / self.calls


@pytest.fixture(autouse=True)
def fresh():
    global N, TOTAL, FLAG, BEST
    N, TOTAL, FLAG, BEST = 0, 0.0, False, None
    LOSSES.clear()
    TABLE.update(calls=0, mean=0.0)


def reset():
    global N, TOTAL, FLAG, BEST
    N, TOTAL, FLAG, BEST = 0, 0.0, False, None
    LOSSES.clear()
    TABLE.clear()
    TABLE.update(calls=0, mean=0.0)


def outside():
    return N, TOTAL, FLAG, BEST, list(LOSSES), dict(TABLE)


def of_calls(f, calls=12, argument=lambda k: [0.3 + 0.1 * k, -0.5]):
    """A script: plain calls and gradients of a function, with all that it left outside."""

    def script(compile):
        reset()
        fast = compile(f)
        for k in range(calls):
            yield fast.value_and_grad(argument(k)), outside()
            yield fast(argument(k)), outside()

    return script


def replays(f, eager=2, **options):
    """All but the first calls of each kind are replayed, with eager's effects."""
    for lift in (True, False):
        ran = same(of_calls(f), lift=lift, **options)
        assert ran.replayed >= 24 - eager, ran.functions[0].report()


def test_a_counter():
    def f(w):
        global N
        N += 1
        return w[0] * w[1] * (1 - N / 100)

    replays(f)


def test_a_running_mean_in_a_dict():
    def f(w):
        loss = (w[0] * w[1]) ** 2
        TABLE["calls"] += 1
        TABLE["mean"] += (loss.data - TABLE["mean"]) / TABLE["calls"] if TABLE["calls"] else 0.0
        return loss - TABLE["mean"]

    def values(compile):
        reset()
        fast = compile(f)
        for k in range(12):
            w = [Value(0.3 + 0.1 * k), Value(-0.5)]
            loss = fast(w)
            loss.backward()
            yield loss, [x.grad for x in w], outside()

    assert same(values).replayed >= 10


def test_a_list_of_losses():
    def f(w):
        loss = w[0] * w[1]
        LOSSES.append(loss.data if isinstance(loss, Value) else loss)
        LOSSES.append((len(w), "step", None))
        return loss

    replays(f)


def test_types_are_kept_and_may_change():
    def f(w):
        global N, TOTAL, FLAG, BEST
        FLAG = not FLAG
        N = N * 2 + 1 if FLAG else N
        TOTAL = TOTAL - 0.5
        BEST = N / 2
        return w[0] * N + w[1]

    replays(f, eager=4)


def test_helpers_see_what_was_changed_before_them():
    def count():
        global N
        N += 2
        return N

    def f(w):
        return w[0] * count() - w[1] * count() + N

    replays(f)


def test_a_branch_that_changes_other_numbers():
    def f(w):
        global N, TOTAL
        N += 1
        if w[0] > 0.9:
            TOTAL += 1.5
            LOSSES.append(N)
            return w[0] * 2
        return w[1] * N

    replays(f, eager=4)


def test_enclosing_functions_and_objects():
    def script(compile):
        count, tracker, history = 0, Tracker(), []

        def f(w):
            nonlocal count
            count += 1
            loss = w[0] * w[1]
            tracker.update(count * 0.5)
            history.append(count)
            return loss * tracker.mean

        fast = compile(f)
        for k in range(12):
            yield fast.value_and_grad([0.3, 0.1 * k]), count, vars(tracker), list(history)

    assert same(script).replayed >= 11


def test_a_call_that_raises_leaves_what_eager_leaves():
    def f(w):
        global N
        N += 1
        LOSSES.append(N)
        root = log(w[0])
        N += 10
        return root * w[1]

    def script(compile):
        reset()
        fast = compile(f)
        for k in range(20):
            try:
                yield fast.value_and_grad([0.5 if k % 3 else -0.5, 1.0]), outside()
            except ValueError as error:
                yield str(error), outside()

    assert same(script).replayed >= 10


def test_others_may_change_them_between_calls():
    def f(w):
        global N
        N += 1
        return w[0] * N

    def script(compile):
        global N
        reset()
        fast = compile(f)
        for k in range(20):
            if k == 4:
                N = 0.25
            elif k == 8:
                N = 2**53
            elif k == 9:
                N = Value(2.0)
            elif k == 12:
                N = 7
            elif k == 14:
                N = np.float64(1.5)
            elif k == 16:
                N = True
            yield fast.value_and_grad([0.5]), N, type(N).__name__

    assert same(script).replayed >= 8


def test_the_object_may_be_another_one_at_every_call():
    def script(compile):
        tracker, table = Tracker(), {"n": 0}

        def f(w):
            tracker.update(w[0].data if isinstance(w[0], Value) else w[0])
            table["n"] += 1
            return w[0] * tracker.mean + len(table)

        fast = compile(f)
        for k in range(24):
            if k % 5 == 4:
                tracker = Tracker()
            if k % 7 == 6:
                table[str(k)] = k
            yield fast.value_and_grad([0.5 + k]), vars(tracker), dict(table)

    assert same(script).replayed >= 10


def test_a_class_that_begins_to_look():
    def script(compile):
        class Box:
            def __init__(self):
                self.n = 0

        box = Box()

        def f(w):
            box.n += 1
            return w[0] * box.n

        fast = compile(f)
        for k in range(20):
            if k == 8:
                Box.__setattr__ = lambda self, name, x: object.__setattr__(self, name, x + 1)
            if k == 14:
                del Box.__setattr__
                Box.n = property(lambda self: 3, lambda self, x: None)
            yield fast.value_and_grad([0.5]), box.__dict__["n"]

    same(script)


ALIASED = {"n": 0}
VIEW = types.MappingProxyType(ALIASED)
OTHER = ALIASED


def test_another_name_for_a_dict_is_the_same_dict():
    def f(w):
        ALIASED["n"] += 1
        OTHER["n"] += 1
        return w[0] * ALIASED["n"] - OTHER["n"]

    def script(compile):
        ALIASED["n"] = 0
        fast = compile(f)
        for _ in range(8):
            yield fast.value_and_grad([0.5]), dict(ALIASED)

    assert same(script).replayed >= 7


def test_what_is_reached_in_another_way_too_runs_eagerly():
    def of(read):
        def f(w):
            ALIASED["n"] += 1
            return w[0] * read()["n"]

        def script(compile):
            ALIASED["n"] = 0
            fast = compile(f)
            for _ in range(8):
                yield fast.value_and_grad([0.5]), dict(ALIASED)

        return script

    held = [ALIASED]
    eager_because("not by names alone", of(lambda: VIEW))
    eager_because("not by names alone", of(lambda: held[0]))


def test_an_argument_that_is_what_the_function_changes():
    def f(w, table):
        TABLE["calls"] += 1
        return w[0] * table["calls"] + table["mean"]

    def script(compile):
        reset()
        fast = compile(f)
        for k in range(12):
            argument = TABLE if k % 3 == 2 else {"calls": 5, "mean": 0.5}
            yield fast.value_and_grad([0.5], argument), outside()
            yield fast([0.5], argument), outside()

    assert same(script).replayed >= 10


def test_a_list_that_is_read_too_runs_eagerly():
    def f(w):
        LOSSES.append(0.5)
        return w[0] * len(LOSSES)

    eager_because(
        "'LOSSES', to which it appends, in another way at test_compile_kept.py", of_calls(f)
    )


def test_a_value_that_is_kept_runs_eagerly():
    def f(w):
        global BEST
        BEST = w[0] * 2
        return BEST

    eager_because("'BEST'", of_calls(f))


def test_a_counter_that_is_deleted_on_the_way():
    def f(w):
        global N
        count = N + 1
        del N
        N = count
        return w[0] * N

    eager_because("'?N'?", of_calls(f))


@dataclasses.dataclass
class Point:
    n: int = 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: collections.Counter(n=0),
        lambda: collections.defaultdict(int),
        lambda: {"n": 0, "m": 1.5},
        collections.Counter,
    ],
)
def test_kinds_of_dicts(make):
    def script(compile):
        table = make()

        def f(w):
            table["n"] += 1
            return w[0] * table["n"] + sum(table.values())

        fast = compile(f)
        for k in range(12):
            if k == 7:
                table.clear()
                table["n"] = 3
            yield fast.value_and_grad([0.5]), type(table).__name__, dict(table)

    assert same(script).replayed >= 8


@pytest.mark.parametrize("kind", [Point, types.SimpleNamespace, collections.OrderedDict])
def test_kinds_of_objects(kind):
    def script(compile):
        point = kind(n=0)

        def f(w):
            if kind is collections.OrderedDict:
                point["n"] += 1
                return w[0] * point["n"]
            point.n += 1
            return w[0] * point.n

        fast = compile(f)
        for _ in range(8):
            yield fast.value_and_grad([0.5]), repr(point)

    same(script)


class Meter:
    def __init__(self):
        self.losses, self.calls, self.table = [], 0, {"n": 0}

    def log(self, x):
        self.losses.append((self.calls, x))
        self.calls += 1
        self.table["n"] -= 1


def test_lists_and_dicts_in_objects():
    def script(compile):
        meter, table = Meter(), {"losses": [], "steps": []}

        def f(w):
            meter.log(w[0].data)
            table["losses"].append(w[1].data)
            table["steps"].append(meter.calls)
            return w[0] * meter.calls + meter.table["n"]

        fast = compile(f)
        for k in range(24):
            if k == 9:
                meter.losses = []
            elif k == 13:
                meter = Meter()
            elif k == 17:
                meter.__dict__ = {"losses": [], "calls": 100, "table": {"n": 5}}
            yield fast.value_and_grad([0.5 * k, 1.0]), vars(meter), dict(table)

    assert same(script).replayed >= 12


def test_a_list_in_an_object_that_is_elsewhere_too():
    def script(compile):
        meter, others = Meter(), []

        def f(w):
            meter.log(1.0)
            return w[0] * meter.calls + sum(map(len, others))

        fast = compile(f)
        for k in range(16):
            if k == 8:
                others.append(meter.losses)
            yield fast.value_and_grad([0.5]), vars(meter)

    eager_because("'losses', which it reaches not by names alone", script)


def test_extras_and_keywords():
    def f(w, scale=2.0):
        global N
        N += 1
        return w[0] * scale, {"n": w[1].data * 2, "scale": scale}

    def script(compile):
        reset()
        fast = compile(f)
        for k in range(12):
            yield fast.value_and_grad([0.3 * k, 0.5], scale=float(k)), outside()
            yield fast.value_and_grad([0.3 * k, 0.5]), outside()

    assert same(script).replayed >= 20


def test_batches_training_maps_and_derivatives_count_as_eager_does():
    def f(w, x):
        global N
        N += 1
        return exp(-w[0] * x) * N

    def counted(run):
        reset()
        run()
        return N

    fast = chainrule.compile(f, on_fallback="eager")
    for _ in range(5):
        fast.value_and_grad([0.5], 1.0)
    samples = [(0.5,), (1.0,), (1.5,)]
    assert counted(lambda: fast.batch_value_and_grad([0.5], samples)) == 3
    w = np.array([0.5])
    optimiser = chainrule.optim.SGD(w, lr=0.1)
    assert counted(lambda: fast.train(w, samples, optimiser, steps=4)) == 4
    assert counted(lambda: fast.map([0.5], np.array([0.5, 1.0]))) == 2
    assert counted(lambda: chainrule.grad(fast)([0.5], 1.0)) == 1
    eager = counted(lambda: chainrule.jacobian(f)([0.5], 1.0))
    assert counted(lambda: chainrule.jacobian(fast)([0.5], 1.0)) == eager


def test_a_compiled_helper_counts_too():
    @chainrule.compile
    def helper(x):
        global N
        N += 1
        return x * N

    def f(w):
        return helper(w[0]) + helper(w[1]) * N

    replays(f)


def test_nobody_sees_numbers_of_a_recording_and_no_update_is_lost():
    seen, done = set(), []

    def f(w):
        global N
        N += 1
        TABLE["calls"] += 1
        LOSSES.append(N)
        return w[0] * w[1]

    fast = chainrule.compile(f, on_fallback="eager")

    def work():
        for k in range(300):
            assert fast.value_and_grad([float(k), 2.0]) == (2.0 * k, [2.0, float(k)])

    def watch():
        while not done:
            seen.update({type(N), type(TABLE["calls"]), *map(type, LOSSES[-3:])})

    threads = [threading.Thread(target=work) for _ in range(4)]
    watcher = threading.Thread(target=watch)
    for thread in (*threads, watcher):
        thread.start()
    for thread in threads:
        thread.join()
    done.append(True)
    watcher.join()
    assert N == TABLE["calls"] == len(LOSSES) == 1200
    assert seen <= {int}


def test_on_fallback_raise_does_not_mind_a_counter():
    def f(w):
        global N
        N += 1
        return w[0] * 2

    fast = chainrule.compile(f, on_fallback="raise")
    for k in range(5):
        assert fast.value_and_grad([float(k)]) == (2.0 * k, [2.0])
    assert N == 5

    def g(w):
        TABLE["calls"] = [w[0]]
        return w[0] * 2

    fast = chainrule.compile(g, on_fallback="raise")
    fast.value_and_grad([1.0])
    for _ in range(3):
        with pytest.raises(FallbackError, match="'calls', which holds a list"):
            fast.value_and_grad([1.0])


def test_reports_of_every_stage():
    def f(w, x):
        global N
        N += 1
        return sum(tanh(w[0] * v) for v in x)

    fast = chainrule.compile(f, lift=True)
    for _ in range(4):
        fast.value_and_grad([0.5], [1.0, 2.0, 3.0, 4.0])
    assert "4 calls: 3 replayed, 1 eager" in fast.report()
    assert "lifted" in repr(fast)
    for stage in ("recorded", "integers", "lifted"):
        assert fast.report(stage=stage)


def test_a_number_that_follows_from_integers_is_returned_beside_a_value():
    def f(w, t):
        number = max(3, t[0])
        return w[number % 4] * 2, float(number)

    def script(compile):
        fast = compile(f)
        for k in (32, 22, 6, 38, 1):
            yield fast.value_and_grad([1.0, 2.0, 3.0, 4.0], [k])
            yield fast([1.0, 2.0, 3.0, 4.0], [k])

    for lift in (True, False):
        assert same(script, lift=lift).replayed


def test_an_object_that_answers_for_every_name_is_watched():
    class Anything:
        def __init__(self):
            self.n = 0

        def __getattr__(self, name):
            return 7

    def script(compile):
        x = Anything()

        def f(w):
            x.n += 1
            return w[0] * x.n + x.other

        fast = compile(f)
        for _ in range(5):
            yield fast.value_and_grad([0.5]), x.n

    same(script)
