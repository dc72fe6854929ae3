"""What a function does besides returning, chance and time: as often as eager does it."""

import sys
import time
from collections import Counter

import numpy as np
import pytest
from compile_twins import (
    by_numbers,
    numbers,
    same,
)

import chainrule
from chainrule import Value, vsum, where

COUNT = 0


TOTAL = 0.0


LAST = None


def test_a_global_counter_counts_calls():
    def f(x):
        global COUNT
        COUNT += 1
        return x * 2

    def script(compile):
        global COUNT
        COUNT = 0
        fast = compile(f)
        x = Value(3.0)
        for _ in range(5):
            yield fast(x), COUNT

    assert same(script).replayed


def test_a_global_total_of_data_adds_up():
    def f(x):
        global TOTAL
        TOTAL += x.data
        return x * 2

    def script(compile):
        global TOTAL
        TOTAL = 0.0
        fast = compile(f)
        x = Value(3.0)
        for number in (1.0, 2.0, 3.0):
            x.data = number
            yield fast(x), TOTAL

    same(script)


def test_a_global_that_keeps_the_last_result_keeps_it():
    def f(x):
        global LAST
        LAST = x * 2
        return LAST + 1

    def script(compile):
        global LAST
        LAST = None
        fast = compile(f)
        x = Value(3.0)
        for number in (1.0, 2.0, 3.0):
            x.data = number
            yield fast(x), LAST, LAST.op

    same(script)


def test_a_counter_in_an_enclosing_function_counts_calls():
    def script(compile):
        count, total = 0, 0.0

        def f(x):
            nonlocal count, total
            count += 1
            total += x.data
            return x * count

        fast = compile(f)
        x = Value(3.0)
        for number in (1.0, 2.0, 3.0):
            x.data = number
            yield fast(x), count, total

    same(script)


class Slotted:
    __slots__ = ("beta", "weight")

    def __init__(self, beta, weight):
        self.beta, self.weight = beta, weight


class Settings:
    beta = 0.0


def growing_containers():
    import collections
    import types as kinds

    history, table = [], {}
    seen, queue, box = set(), collections.deque(), kinds.SimpleNamespace(count=0, last=None)
    slotted, counts, tally = Slotted(0, None), np.zeros(3), Counter()
    default, rows = collections.defaultdict(list), [[], []]
    push = history.append

    def namespace(x):
        box.count += 1
        box.last = x.data

    def in_slots(x):
        slotted.beta += 1
        slotted.weight = x.data

    def counted(x):
        counts[1] += 1

    def setting(x):
        helper_with_memory.calls = getattr(helper_with_memory, "calls", 0) + 1

    def helper_with_memory(x):
        return x

    def generator(x):
        next(numbered)

    numbered = iter(range(100))
    return {
        "list": (lambda x: history.append(x.data), lambda: list(history)),
        "list of constants": (lambda x: history.append(1), lambda: list(history)),
        "list of values": (lambda x: history.append(x * 2), lambda: list(history)),
        "slice of a list": (lambda x: history.__setitem__(slice(0, 0), [7]), lambda: list(history)),
        "list in a list": (lambda x: rows[1].append(x.data), lambda: rows),
        "bound append": (lambda x: push(x.data), lambda: list(history)),
        "dict": (lambda x: table.update(last=x.data), lambda: dict(table)),
        "count in a dict": (lambda x: table.update(n=table.get("n", 0) + 1), lambda: dict(table)),
        "set": (lambda x: seen.add(len(seen)), lambda: sorted(seen)),
        "deque": (lambda x: queue.append(x.data), lambda: list(queue)),
        "deque of constants": (lambda x: queue.append(1), lambda: list(queue)),
        "namespace": (namespace, lambda: (box.count, box.last)),
        "slots": (in_slots, lambda: (slotted.beta, slotted.weight)),
        "array": (counted, lambda: counts.copy()),
        "Counter": (lambda x: tally.update("a"), lambda: dict(tally)),
        "defaultdict": (lambda x: default["a"].append(1), lambda: dict(default)),
        "defaultdict read": (lambda x: default["b"], lambda: dict(default)),
        "attribute of a function": (setting, lambda: helper_with_memory.calls),
        "iterator": (generator, lambda: next(numbered)),
        "attribute of a class": (
            lambda x: setattr(Settings, "beta", Settings.beta + 1),
            lambda: Settings.beta,
        ),
    }


@pytest.mark.parametrize("name", growing_containers())
def test_what_a_function_changes_outside_is_changed_once_per_call(name):
    def script(compile):
        Settings.beta = 0.0
        change, read = growing_containers()[name]

        def f(x):
            change(x)
            return x * 2

        fast = compile(f)
        x = Value(3.0)
        for number in (1.0, 2.0, 3.0):
            x.data = number
            yield fast(x), read()

    same(script)


def test_a_change_that_the_function_undoes_is_no_change():
    stack = []

    def script(compile):
        stack.clear()

        def f(x):
            stack.append(x * 2)
            return stack.pop() + 1

        fast = compile(f)
        x = Value(3.0)
        for number in (1.0, 2.0, 3.0):
            x.data = number
            yield fast(x), len(stack)

    same(script)


@pytest.mark.parametrize(
    "change",
    [
        lambda xs: xs.append(xs[0]),
        lambda xs: xs.pop(),
        lambda xs: xs.reverse(),
        lambda xs: xs.sort(),
        lambda xs: xs.clear() or xs.append(Value(1.0)),
        lambda xs: xs.__setitem__(0, xs[0] * 2),
    ],
)
def test_a_list_that_the_function_changes_is_changed_for_the_caller(change):
    def f(xs):
        change(xs)
        return vsum(x * (i + 1) for i, x in enumerate(xs))

    def script(compile):
        fast = compile(f)
        for _ in range(3):
            xs = numbers(3.0, 1.0, 2.0)
            yield fast(xs), len(xs), [x.data for x in xs]

    same(script)


def test_a_cache_that_is_passed_in_is_filled_for_the_caller():
    def f(x, keys, named):
        keys.append(x * 2)
        named["last"] = x * 3
        return vsum(keys) + named["last"]

    def script(compile):
        fast = compile(f)
        keys, named = [], {}
        x = Value(1.0)
        for number in (1.0, 2.0, 3.0):
            x.data = number
            yield fast(x, keys, named), len(keys), sorted(named)

    same(script)


def test_a_dict_that_the_function_changes_is_changed_for_the_caller():
    def f(named):
        named["y"] = named.pop("x") * 2
        return named["y"] + 1

    def script(compile):
        fast = compile(f)
        for number in (1.0, 2.0, 3.0):
            named = {"x": Value(number)}
            yield fast(named), sorted(named)

    same(script)


def test_printing_happens_at_eager_calls_only_as_often_as_eager_prints(capsys):
    def f(x):
        print("value", x.data)
        return x * 2

    def script(compile):
        fast = compile(f)
        capsys.readouterr()
        for number in (1.0, 2.0):
            yield fast(Value(number)), capsys.readouterr().out

    same(script)


def test_labels_given_inside_do_no_harm():
    def f(x):
        y = x * 2
        y.label = "y"
        return y + 1

    same(by_numbers(f, (1.0,), (2.0,), (3.0,)))


def chances():
    import random
    import secrets
    import uuid

    own, generator = random.Random(5), np.random.default_rng(5)
    legacy = np.random.RandomState(5)
    coins = iter([True, False, True, True, False, False, True, False, True, True] * 50)
    return {
        "random": (lambda x: x * random.random(), True),
        "gauss": (lambda x: x + random.gauss(0, 1), True),
        "randrange": (lambda x: [x, x * 2, x * 3][random.randrange(3)] * 2, True),
        "coin": (lambda x: x * 2 if random.random() < 0.5 else x * 3, True),
        "dropout": (lambda x: vsum([x * i for i in range(4) if random.random() < 0.5] + [x]), True),
        "choice": (lambda x: x * random.choice([2.0, 3.0]), True),
        "shuffle": (lambda x: x * random.sample(range(5), 5)[0] + x, True),
        "own generator": (lambda x: x * own.random(), True),
        "coin of its own generator": (lambda x: x * 2 if own.random() < 0.5 else x * 3, True),
        "numpy": (lambda x: x * np.random.rand(), True),  # noqa: NPY002
        "numpy coin": (lambda x: x * 2 if np.random.rand() < 0.5 else x * 3, True),  # noqa: NPY002
        "numpy generator": (lambda x: x * generator.random(), True),
        "numpy generator coin": (lambda x: x * 2 if generator.random() < 0.5 else x * 3, True),
        "numpy legacy": (lambda x: x * 2 if legacy.rand() < 0.5 else x * 3, True),
        "iterator": (lambda x: x * 2 if next(coins) else x * 3, True),
        "time": (lambda x: x * time.perf_counter(), False),
        "clock": (lambda x: x + time.time_ns(), False),
        "secrets": (lambda x: x * secrets.randbelow(10**9), False),
        "uuid": (lambda x: x * uuid.uuid4().int, False),
        "new generator": (lambda x: x * np.random.default_rng().random(), False),
    }


@pytest.mark.parametrize("name", [name for name, (_, repeats) in chances().items() if repeats])
def test_chance_inside_the_function_is_eagers_chance(name):
    """From the same seed the compiled function draws what eager draws, call for call."""
    import random

    def script(compile):
        f = chances()[name][0]
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002
        fast = compile(f)
        x = Value(3.0)
        for _ in range(12):
            yield fast(x)
        yield random.random(), np.random.rand()  # noqa: NPY002

    ran = same(script)
    assert len(set(map(str, ran.results[:12]))) > 1
    assert ran.replayed == 0


@pytest.mark.parametrize("name", [name for name, (_, repeats) in chances().items() if not repeats])
def test_what_differs_by_itself_is_never_frozen(name):
    fast = chainrule.compile(chances()[name][0], on_fallback="eager")
    x = Value(3.0)
    assert len({fast(x).data for _ in range(5)}) == 5
    assert "eager because it" in fast.report()


def test_recording_leaves_random_states_alone():
    import random

    def script(compile):
        random.seed(3)
        np.random.seed(3)  # noqa: NPY002
        fast = compile(lambda x, t: where(x > 0, x * t, -x))
        x = Value(1.0)
        for number, t in [(1.0, 2), (-1.0, 3), (2.0, 4)]:
            x.data = number
            yield fast(x, t), random.random(), np.random.rand()  # noqa: NPY002

    same(script)


def test_what_a_function_prints_is_printed_at_every_call(capsys):
    def f(x):
        print("called")
        return x * 2

    def script(compile):
        fast = compile(f)
        capsys.readouterr()
        for number in (1.0, 2.0, 3.0):
            yield fast(Value(number)), capsys.readouterr().out

    same(script)


@pytest.mark.parametrize(
    "write",
    [
        lambda: print("called", file=sys.stderr),
        lambda: sys.stdout.write("called\n"),
        lambda: sys.stderr.write("called\n"),
        lambda: print("called", end="", flush=True),
        lambda: sys.stdout.writelines(["called\n"]),
    ],
)
def test_what_a_function_writes_is_written_at_every_call(write, capsys):
    def f(x):
        write()
        return x * 2

    def script(compile):
        fast = compile(f)
        capsys.readouterr()
        for number in (1.0, 2.0, 3.0):
            yield fast(Value(number)), list(capsys.readouterr())

    same(script)


def test_what_a_function_warns_of_is_warned_of_at_every_call():
    import warnings

    def f(x):
        warnings.warn("called", UserWarning, stacklevel=1)
        return x * 2

    def script(compile):
        fast = compile(f)
        for number in (1.0, 2.0, 3.0):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                yield fast(Value(number)), 1
            yield len(seen)

    same(script)


def test_what_a_function_logs_is_logged_at_every_call(caplog):
    import logging

    log = logging.getLogger("chainrule.traps")

    def f(x):
        log.warning("called")
        return x * 2

    def script(compile):
        fast = compile(f)
        caplog.clear()
        for number in (1.0, 2.0, 3.0):
            yield fast(Value(number)), len(caplog.records)

    same(script)


def test_what_a_function_writes_to_a_file_is_written_once_per_call(tmp_path):
    def script(compile):
        path = tmp_path / "log.txt"
        path.write_text("")

        def f(x):
            with path.open("a") as file:
                file.write("called\n")
            return x * 2

        fast = compile(f)
        for number in (1.0, 2.0, 3.0):
            yield fast(Value(number)), path.read_text()

    same(script)


def test_an_interrupt_while_recording_leaves_nothing_behind():
    box = {"raise": True, "seen": []}

    def f(x):
        box["seen"].append(x.data)
        if box["raise"]:
            raise KeyboardInterrupt
        return max(x, x * 2)

    before = max, min
    stdout = sys.stdout
    fast = chainrule.compile(f, on_fallback="eager")
    with pytest.raises(KeyboardInterrupt):
        fast(Value(1.0))
    assert (max, min) == before
    assert sys.stdout is stdout
    assert type(Value(1.0).data) is float
    assert all(type(x) is float for x in box["seen"]), "no stand-in stays"
    box["raise"] = False
    assert fast(Value(1.0)).data == 2.0
