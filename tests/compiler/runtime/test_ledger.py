"""When recordings and machine code are made, what is told of it, and what is kept."""

import dis
import itertools
import math
import os
import random
import subprocess
import sys
import threading
import time
import warnings
import weakref

import numpy as np
import pytest
from compile_view import View

import chainrule
from chainrule import Value
from chainrule.compiler.capture import disassembly
from chainrule.compiler.runtime import building, ledger, notices, resting
from chainrule.compiler.runtime.costs import BUILD, EAGER, RECORD, Cost, allowance
from chainrule.compiler.runtime.fast_path import FastPath
from chainrule.compiler.runtime.ledger import Ledger
from chainrule.compiler.runtime.memory import Memory, _limit, memory, size
from chainrule.compiler.runtime.variants import Path


def native_costs():
    """In plain Python eager calls take so long that everything is recorded and built at once."""
    if chainrule.engine != "native":
        pytest.skip("these are the costs of the native engine")


@pytest.fixture
def no_allowance():
    native_costs()
    allowance.left = 0.0


@pytest.fixture
def usual_allowance():
    native_costs()
    allowance.left = 0.3


def scaled(y, a, s):
    terms = [y * a]
    terms.append(s)
    return sum(terms)


def steps(p, signs):
    """A path of its own for each row of signs: 2**n of them.

    A function that changes a list is called on one side only: both sides cannot be computed.
    """
    y = p[0]
    for s in signs:
        y = scaled(y, p[1], s) if s > 0 else (y - s).tanh()
    return y


def signs(rng, count=12):
    return [rng.choice([-1.0, 1.0]) for _ in range(count)]


def check(fast, f, *arguments):
    value, grads = fast.value_and_grad(*arguments)
    wanted, wanted_grads = chainrule.value_and_grad(f)(*arguments)
    assert math.isclose(value, wanted, rel_tol=1e-12)
    assert grads == pytest.approx(wanted_grads, rel=1e-12)


# --- the ledger alone -----------------------------------------------------------------------------


def test_what_is_not_earned_is_not_afforded(no_allowance):
    book = Ledger()
    book.instructions = 1000
    assert not book.affords_recording()
    calls = 0
    while not book.affords_recording():
        book.ran_eagerly()
        calls += 1
    assert 0.5 * calls * EAGER.of(1000) <= RECORD.of(1000)


def test_a_large_function_is_recorded_and_built_at_once(no_allowance):
    book = Ledger()
    book.instructions = 3_000_000
    assert book.affords_recording()
    book.recorded(3_000_000)
    assert book.affords_building(3_000_000)


def test_a_fast_path_that_tries_more_in_vain_than_it_saves_is_given_up(no_allowance):
    book = Ledger()
    book.instructions = 2500
    for _ in range(1000):  # one call of four is answered by the first of its variants
        book.replayed(2500, quickly=True)
        assert not book.declined(3)
    given_up = [book.declined(17) for _ in range(200)]  # and now none is, by any of 17
    assert True in given_up
    assert book.rests
    assert given_up.index(True) * 17 * 0.5 * 2500 * ledger.REPLAY.each < 2.5 * (
        resting.DECLINED * EAGER.of(2500)
    )


def test_the_allowance_is_for_all_functions_together(usual_allowance):
    spent = 0
    while True:
        book = Ledger()
        if not book.affords_recording():
            break
        book.recorded(100)
        book.checked(100, 0.0)
        spent += 1
    own = ledger.CALLS * EAGER.of(100)  # what each may owe by itself
    each = ledger.FINDING + RECORD.of(100)
    assert spent * (each - own) == pytest.approx(0.3, abs=0.01)
    assert 0.0 <= allowance.left < each


def test_while_calls_may_go_other_ways_the_allowance_is_not_for_machine_code(usual_allowance):
    book = Ledger()
    book.recorded(300, goes_other_ways=True)
    assert not book.affords_building(300, cost=0.2)
    book.replayed(300, ledger.SETTLED - 1, quickly=True)
    assert not book.affords_building(300, cost=0.2)
    book.replayed(300, quickly=True)
    assert book.affords_building(300, cost=0.2)


def test_recordings_that_nothing_replays_are_made_ever_more_rarely(no_allowance):
    book, made = Ledger(), []
    book.instructions = 100
    for k in range(200_000):
        if book.affords_recording():
            book.recorded(100)
            book.checked(100, 0.0)
            made.append(k)
        book.ran_eagerly()
    gaps = [b - a for a, b in itertools.pairwise(made)]
    assert max(gaps[:3]) < min(gaps[-3:])
    assert len(made) * RECORD.of(100) < 0.1 * 200_000 * EAGER.of(100)


@pytest.mark.parametrize("size", [1_000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("of_numbers", [True, False])
def test_eager_calls_earn_a_recording_of_any_size(no_allowance, size, of_numbers):
    book = Ledger()
    book.instructions = size
    book.ran_eagerly(10_000)
    assert book.affords_recording(of_numbers=of_numbers)


@pytest.mark.parametrize("part", [0.1, 1.0])
def test_replays_that_pay_for_them_make_them_as_cheap_again(part, no_allowance):
    book = Ledger()
    for _ in range(5):
        book.recorded(100)
        book.checked(100, 0.0)
    paying = 5 * RECORD.of(100) / (ledger.COMING * EAGER.of(100))
    book.replayed(100, math.ceil(part * paying), quickly=True)
    book.missed(1)
    book._balance = 0.0
    for _ in range(5_000):
        book.ran_eagerly()
    assert book.affords_recording() == (part == 1.0)


@pytest.mark.parametrize("instructions", [10, 100, 10_000])
def test_looking_in_vain_takes_a_small_part_of_eager_time(instructions, no_allowance):
    book, lookups, calls = Ledger(), 0, 100_000
    book.instructions = instructions
    for _ in range(calls):
        if not book.rests:
            lookups += 1
            book.missed(1)
        book.ran_eagerly()
    spent = (lookups - resting.LOOKS) * ledger.REPLAY.fixed
    assert 0.0 < spent <= resting.LOOKING * calls * EAGER.of(instructions)


def test_replays_outside_the_fast_path_do_not_end_a_rest(no_allowance):
    book = Ledger()
    book.instructions = 100
    for _ in range(3):
        book.refused()
    assert book.longest_rest == 64
    book.replayed(100, tried=20)
    assert book.longest_rest >= 64


def test_a_function_with_more_paths_than_its_fast_path_pays_for_runs_at_eagers_speed(
    usual_allowance,
):
    def f(p, x):
        hits = [a for a in p if a > 0.3]
        count = sum(1 for v in x if v > 0)
        return (sum(hits) / len(hits) if hits else p[0]) * (count + 1) + p[len(hits) % 5]

    fast, rng = chainrule.compile(f, on_fallback="eager"), np.random.default_rng(0)
    learnt = []
    learn = FastPath.learn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FastPath, "learn", lambda *x: learnt.append(0) or learn(*x))
        for _ in range(10_000):
            fast.value_and_grad(rng.normal(size=5).tolist(), rng.normal(size=5).tolist())
    assert len(learnt) < 200


def test_building_is_afforded_after_enough_replays(no_allowance):
    book, calls = Ledger(), 0
    book.recorded(1_000)
    book.checked(1_000, 0.0)
    while not book.affords_building(1_000):
        book.replayed(1_000, quickly=True)
        calls += 1
    assert 0.5 < calls * EAGER.of(1_000) / (BUILD.of(1_000) + RECORD.of(1_000)) < 1.0


def test_what_takes_far_longer_than_estimated_costs_what_it_took(no_allowance):
    usual, slow = Ledger(), Ledger()
    usual.built(1_000, 2.0 * BUILD.of(1_000))
    slow.built(1_000, 10.0 * BUILD.of(1_000))
    assert usual._balance == -BUILD.of(1_000)
    assert slow._balance == -10.0 * BUILD.of(1_000)


def test_lifting_that_was_put_off_costs_its_estimate_or_what_it_took_if_that_is_far_more(
    no_allowance,
):
    usual, slow = Ledger(), Ledger()
    usual.put_off(0.05, 0.2)
    slow.put_off(0.05, 1.0)
    assert usual._balance == -0.05
    assert slow._balance == -1.0


def test_what_may_be_owed_for_building_is_by_what_eager_calls_take_not_by_both_sides(no_allowance):
    book, sides = Ledger(), int(8_000 * ledger.SIDES)
    book.recorded(sides, of_sides=True)
    book._balance, owed = 0.0, ledger.CALLS * EAGER.of(8_000)
    assert book.affords_building(sides, 0.99 * owed)
    assert not book.affords_building(sides, 1.01 * owed)


def test_a_function_that_was_refused_is_searched_more_and_more_rarely(no_allowance):
    book, searched = Ledger(), 0
    for _ in range(20_000):
        if not book.rests:
            searched += 1
            book.refused()
        book.ran_eagerly()
    assert 4 < searched < 12


# --- functions ------------------------------------------------------------------------------------


def test_a_function_whose_paths_never_repeat_runs_eagerly_and_says_so(usual_allowance):
    rng, fast = random.Random(1), chainrule.compile(steps)

    def call_it():
        for _ in range(3_000):
            check(fast, steps, [0.5, 0.9], signs(rng))

    with pytest.warns(chainrule.FallbackWarning, match="hold for one case each") as told:
        call_it()
    assert len(told) == 1
    assert "where(condition, a, b)" in str(told[0].message)
    counts = fast.dispatch.counts
    assert counts.calls == 3_000
    assert counts.traces < 100
    assert counts.eager > 2_800


def test_what_llvm_would_take_is_known_before_it_begins(usual_allowance, monkeypatch):
    def loss(w, xs):
        return sum((chainrule.tanh(w[0] * x + w[1]) - w[2]) ** 2 for x in xs)

    xs = [0.1 * k for k in range(100)]
    monkeypatch.setattr(building, "LLVM", Cost(10.0, 0.0))
    waiting = chainrule.compile(loss)
    for k in range(5):
        check(waiting, loss, [0.1 * k, 0.5, 0.9], xs)
    assert waiting.dispatch.last is Path.TAPE
    (structure,) = waiting.dispatch.structures.values()
    (variant,) = structure.variants
    assert (variant.waits, variant.build_cost) == (True, 10.0)
    assert "until machine code pays" in waiting.report()
    monkeypatch.undo()
    allowance.left = 0.3
    quick = chainrule.compile(loss)
    check(quick, loss, [0.1, 0.5, 0.9], xs)
    assert quick.dispatch.last is Path.MACHINE


def test_machine_code_of_another_path_tells_what_ones_own_would_take(usual_allowance, monkeypatch):
    def loss(p, xs):
        y = sum(chainrule.tanh(p[0] * x + p[1]) for x in xs)
        return scaled(y, p[1], 1.0) if p[0] > 0 else (y - p[1]).tanh()

    lifted, lift = [], building.machine_code
    monkeypatch.setattr(building, "LLVM", Cost(2.0, 0.0))
    monkeypatch.setattr(building, "machine_code", lambda *x: lifted.append(0) or lift(*x))
    fast, xs = chainrule.compile(loss), [0.01 * k for k in range(200)]
    for k in range(400):
        allowance.left = 0.3
        check(fast, loss, [0.5 if k < 100 or k % 2 else -0.5, 0.1], xs)
    (structure,) = fast.dispatch.structures.values()
    assert [variant.build_cost for variant in structure.variants] == [2.0, 2.0]
    assert len(lifted) == 1


def test_comparisons_make_machine_code_dearer_before_anything_is_lifted(usual_allowance):
    def smooth(p, xs):
        return sum(chainrule.tanh(p[0] * x - p[1]) for x in xs)

    def compared(p, xs):
        total = p[1]
        for x in xs:
            total = total + where(p[0] * x - p[1] > total * 0.1, p[0] * x, p[1] * x)
        return total

    where, found = chainrule.where, []
    for f in (smooth, compared):
        fast = chainrule.compile(f, lift=False)
        check(fast, f, [0.5, 0.3], [0.01 * k for k in range(200)])
        (structure,) = fast.dispatch.structures.values()
        (variant,) = structure.variants
        found.append(variant.building_takes / BUILD.of(len(variant.recording)))
    assert found[0] == 1.0
    assert found[1] > 1.05


def test_with_raise_it_raises_when_it_would_tell(usual_allowance):
    rng, fast = random.Random(1), chainrule.compile(steps, on_fallback="raise")

    def call_it():
        for _ in range(3_000):
            fast.value_and_grad([0.5, 0.9], signs(rng))

    with pytest.raises(chainrule.FallbackError, match="hold for one case each"):
        call_it()
    assert fast.dispatch.counts.traces >= 1


def test_it_is_recorded_again_once_calls_have_become_regular(no_allowance):
    rng, fast = random.Random(2), chainrule.compile(steps, on_fallback="eager")
    for _ in range(3_000):
        fast.value_and_grad([0.5, 0.9], signs(rng))
    same = signs(rng)
    for _ in range(30_000):
        fast.value_and_grad([rng.random(), 0.9], same)
        if fast.dispatch.last is not Path.EAGER:
            break
    check(fast, steps, [0.25, 0.75], same)
    assert fast.dispatch.last is Path.TAPE


def test_a_first_call_that_is_not_worth_it_runs_eagerly(no_allowance):
    def f(x):
        return x * x + 1.0

    fast = chainrule.compile(f)
    assert fast.value_and_grad(3.0) == (10.0, 6.0)
    assert fast(3.0) == 10.0
    assert fast.dispatch.counts.traces == 0
    assert "eager" in fast.report()
    for k in range(20_000):
        assert fast.value_and_grad(float(k)) == (k * k + 1.0, 2.0 * k)
    assert fast.dispatch.last is Path.TAPE
    assert fast.dispatch.counts.traces == 1


def test_machine_code_takes_over_when_it_pays(no_allowance):
    def f(x):
        return sum(a * b.tanh() for a in x for b in x)

    fast, x = chainrule.compile(f), [0.1 * k for k in range(20)]
    paths = []
    for _ in range(20_000):
        value, _ = fast.value_and_grad(x)
        paths.append(fast.dispatch.last)
        if fast.dispatch.last is Path.MACHINE:
            break
    assert [p for k, p in enumerate(paths) if k == 0 or p is not paths[k - 1]] == [
        Path.EAGER,
        Path.TAPE,
        Path.MACHINE,
    ]
    check(fast, f, x)
    assert value == pytest.approx(chainrule.value_and_grad(f)(x)[0], rel=1e-12)
    assert View(fast).variant.machine is not None


def test_the_same_calls_take_the_same_paths():
    native_costs()

    def taken():
        allowance.left = 0.02
        rng, fast = random.Random(5), chainrule.compile(steps, on_fallback="eager")
        found = []
        for _ in range(2_000):
            fast.value_and_grad([rng.random(), 0.9], signs(rng, 4))
            found.append(fast.dispatch.last)
        return found

    first = taken()
    assert first == taken()
    assert len(set(first)) == 2


def test_lift_true_and_long_training_build_at_once(no_allowance):
    def f(x):
        return sum(a * b.tanh() for a in x for b in x)

    x = [0.1 * k for k in range(20)]
    forced = chainrule.compile(f, lift=True)
    while forced.dispatch.last is not Path.MACHINE:
        forced.value_and_grad(x)
        assert forced.dispatch.last is not Path.TAPE

    params = np.array(x)
    trained = chainrule.compile(lambda p, t: f(p) * t)
    losses = trained.train(params, [(1.0,), (0.5,)], chainrule.optim.SGD(params, lr=1e-6), 20_000)
    assert len(losses) == 20_000
    assert any(v.machine is not None for v in View(trained).variants)


def test_where_a_replay_takes_longer_than_eager_calls_run_eagerly(usual_allowance):
    def small(x, names):
        return x * len(names)

    def large(x, names):
        return sum(x * k for k in range(2_000)) * len(names)

    for f, path in ((small, Path.EAGER), (large, Path.MACHINE)):
        fast = chainrule.compile(f)  # bytes are for the slow path
        for _ in range(30):
            assert fast.value_and_grad(2.0, b"ab") == pytest.approx(
                chainrule.value_and_grad(f)(2.0, b"ab")
            )
        assert fast.dispatch.last is path


def test_errors_are_the_functions_own_while_it_rests(no_allowance):
    def f(x):
        return (x - 2.0).log()

    fast = chainrule.compile(f)
    for _ in range(3):
        with pytest.raises(ValueError, match="log needs x > 0") as found:
            fast.value_and_grad(2.0)
        with pytest.raises(ValueError, match="log needs x > 0") as wanted:
            chainrule.value_and_grad(f)(2.0)
        assert str(found.value) == str(wanted.value)


def test_values_are_values_while_it_rests(no_allowance):
    fast, x = chainrule.compile(lambda a: a * a), Value(3.0)
    fast(x).backward()
    assert x.grad == 6.0


def test_the_user_is_told_once_what_takes_so_long(monkeypatch):
    monkeypatch.setattr(notices, "LONG", 0.001)
    rng, fast = random.Random(3), chainrule.compile(steps)

    def call_it():
        for _ in range(12):
            fast.value_and_grad([0.5, 0.9], signs(rng))

    with pytest.warns(chainrule.FallbackWarning, match="is slow to compile") as told:
        call_it()
    (message,) = [str(x.message) for x in told if "building one call took" not in str(x.message)]
    assert "a branch at test_ledger.py" in message
    assert "where(condition, a, b)" in message


# --- memory ---------------------------------------------------------------------------------------


def lists(x, ts):
    return sum(x[0] * t + x[1] for t in ts)


@pytest.fixture
def little_memory(monkeypatch):
    monkeypatch.setattr(memory, "limit", 400_000)


def test_the_least_recently_used_goes(little_memory):
    fast = chainrule.compile(lists, lift=False)
    for n in range(1, 60):
        check(fast, lists, [1.0, 2.0], [0.5] * n)
        fast.value_and_grad([1.0, 2.0], [0.25])  # always in use
    kept = View(fast).variants
    assert sum(map(size, kept)) <= 400_000
    lengths = sorted(v.recording.inputs - 2 for v in kept)
    assert lengths[0] == 1
    assert lengths[-1] == 59
    assert len(lengths) < 30
    for n in (5, 59, 1):  # what was forgotten is recorded again
        check(fast, lists, [1.0, 2.0], [0.5] * n)


def test_functions_share_it(little_memory):
    first, second = (chainrule.compile(lists, lift=False) for _ in range(2))
    check(first, lists, [1.0, 2.0], [0.5] * 40)
    for n in range(1, 60):
        check(second, lists, [1.0, 2.0], [0.5] * n)
    assert not View(first).variants
    assert not View(first).fast_path.plans
    check(first, lists, [1.0, 2.0], [0.5] * 40)
    assert len(View(first).variants) == 1


def test_machine_code_goes_with_all_that_runs_on_it(monkeypatch):
    def loss(p, tokens):
        return sum(p[t] * p[t].tanh() for t in tokens) / len(tokens)

    fast, p = chainrule.compile(loss, lift=True), [0.1 * k for k in range(8)]
    for n in (12, 8, 5):
        check(fast, loss, p, [k % 8 for k in range(n)])
    assert len({id(v.machine) for v in View(fast).variants}) == 1
    monkeypatch.setattr(memory, "limit", 1)
    other = chainrule.compile(lists)
    check(other, lists, [1.0, 2.0], [0.5])
    assert not View(fast).variants
    monkeypatch.setattr(memory, "limit", 10**9)
    for n in (12, 8, 5):
        check(fast, loss, p, [k % 8 for k in range(n)])
    assert View(fast).ran_machine_code


def picks(p, tokens):
    return sum(p[t] * p[t].tanh() for t in tokens) / len(tokens)


def test_shorter_calls_go_one_by_one_though_the_newest_runs_on_their_code(monkeypatch):
    fast, p = chainrule.compile(picks, lift=True), [0.1 * k for k in range(8)]
    for n in (20, 8, 9, 10):
        check(fast, picks, p, [k % 8 for k in range(n)])
    (longest,) = [v for v in View(fast).variants if v.is_own]
    shorter = [v for v in View(fast).variants if not v.is_own]
    monkeypatch.setattr(memory, "limit", size(longest) + 2 * size(shorter[0]))
    check(fast, picks, p, [k % 8 for k in range(11)])
    kept = View(fast).variants
    assert longest in kept
    assert shorter[-1] not in kept
    assert sum(map(size, kept)) <= memory.limit


def test_calls_whose_code_is_superseded_join_the_longer_one_without_another_recording():
    native_costs()
    fast, p = chainrule.compile(picks, lift=True), [0.1 * k for k in range(8)]
    for n in (6, 40):
        for _ in range(3):
            check(fast, picks, p, [k % 8 for k in range(n)])
    short, *_, long = sorted(View(fast).variants, key=lambda v: len(v.recording))
    assert short.machine is None
    recorded = fast.dispatch.counts.traces
    check(fast, picks, p, [k % 8 for k in range(6)])
    assert short.machine is long.machine
    assert fast.dispatch.counts.traces == recorded


def test_machine_code_counts_with_all_of_its_arrays_and_its_library():
    fast, p = chainrule.compile(picks, lift=True), [0.1 * k for k in range(8)]
    check(fast, picks, p, [k % 8 for k in range(20)])
    code = View(fast).variants[0].machine
    parts = code.lifted.nbytes, code.code.library.nbytes, code.code.own.nbytes
    assert code.nbytes > sum(parts) + len(code.code.machine.text)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_machine_code_stays_near_the_limit():
    """In a process of its own: how much of it is in use depends on all that ran before."""
    program = """
import math, sys, chainrule
from chainrule.compiler.runtime.ledger import allowance
allowance.left = math.inf
def used():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
def f(p, xs):
    return sum((p[0] * x + p[1]).tanh() * p[2] for x in xs)
fast = chainrule.compile(f, lift=True, on_fallback="eager")
for n in range(600, 680):
    fast.value_and_grad([1.0, 0.2, 0.3], [0.01 * k for k in range(n)])
    before = used() if n == 600 else before
print(used() - before)
"""
    environment = {**os.environ, "CHAINRULE_CACHE_MB": "8"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert float(done.stdout) < 16  # 29, where each engine kept what had made its code


def test_what_another_thread_uses_stays(little_memory):
    book = Memory(1)
    fast = chainrule.compile(lists, lift=False)
    check(fast, lists, [1.0, 2.0], [0.5])
    owner = fast.dispatch._pipeline
    kept = owner.kept()

    class Held:
        def acquire(self, blocking=True):
            return False

    owner.lock, lock = Held(), owner.lock
    try:
        assert book._forget(owner, kept[0]) == 0
    finally:
        owner.lock = lock
    assert owner.kept() == kept


def test_threads_may_record_different_functions_at_the_same_time():
    class Function:
        """As much of a pipeline as is needed; kept alive by the thread that records."""

        def kept(self):
            return []

    book, raised = Memory(10**9), []
    fast = chainrule.compile(lists, lift=False)
    check(fast, lists, [1.0, 2.0], [0.5])
    variant = View(fast).variant

    def record():
        mine = []
        try:
            for _ in range(300):
                mine.append(Function())
                book.add(mine[-1], variant)
        except RuntimeError as error:
            raised.append(error)

    threads = [threading.Thread(target=record) for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not raised
    assert book.now == 1200


def test_no_callback_runs_when_a_function_dies():
    """Python drops what is raised there, and so would drop a Ctrl-C."""
    fast = chainrule.compile(lists, lift=False)
    check(fast, lists, [1.0, 2.0], [0.5])
    owner = fast.dispatch._pipeline
    held = weakref.getweakrefs(owner)
    assert held
    assert all(reference.__callback__ is None for reference in held)


def test_tapes_are_freed_where_machine_code_serves():
    fast = chainrule.compile(lambda x: sum(a * a.tanh() for a in x), lift=True)
    x = [0.1 * k for k in range(40)]
    fast.value_and_grad(x)
    variant = View(fast).variant
    assert variant.machine is not None
    assert "executor" not in vars(variant)
    x[3] = math.inf  # machine code leaves that to the tape
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fast.value_and_grad(x)


@pytest.mark.parametrize("text", ["", "many", "0", "-1", "nan"])
def test_a_bad_limit_is_one_clear_line(text):
    with pytest.raises(ImportError, match="CHAINRULE_CACHE_MB is a number of megabytes above 0"):
        _limit(text)


def test_the_limit_is_in_megabytes():
    assert _limit(None) == 512_000_000
    assert _limit("0.5") == 500_000


def rosenbrock(x):
    return sum(100 * (b - a**2) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(x))


@pytest.mark.parametrize("name", ["jacobian", "hessian", "hvp"])
def test_an_eager_derivative_earns_what_it_takes(no_allowance, name):
    """No Value comes out of it whose graph would tell: that of the function does."""
    x = np.linspace(-1.0, 1.0, 100)
    arguments = (x, x) if name == "hvp" else (x,)
    f = (lambda x: [y * y - y for y in x]) if name == "jacobian" else rosenbrock
    derivative = getattr(chainrule, name)(chainrule.compile(f))
    for _ in range(100 if name == "jacobian" else 6):
        derivative(*arguments)
    assert derivative.dispatch.counts.replayed


def test_a_function_of_many_numbers_earns_by_them_where_it_returns_a_plain_one(no_allowance):
    def spread(xs):
        mean = sum(xs) / len(xs)
        return sum((x - mean) ** 2 for x in xs) / len(xs)

    fast, xs = chainrule.compile(spread), [0.1 * k for k in range(2000)]
    for _ in range(1_500):
        assert fast(xs) == pytest.approx(spread(xs), rel=1e-12)
    assert fast.dispatch.counts.replayed > 50


def test_many_replays_earn_machine_code_of_any_size(no_allowance):
    book = Ledger()
    book.instructions = 2_000
    cost = 0.5  # more than fifty calls and all that can be earned otherwise
    book.replayed(2_000, 40_000, quickly=True, nodes=2_000)
    assert book.affords_building(2_000, cost)
    book.built(2_000, 0.0, cost)
    assert not book.affords_building(2_000, ledger.MOST_PUT_BY)


def test_what_is_put_by_waits_until_calls_are_steady(no_allowance):
    book = Ledger()
    book.instructions = 2_000
    for _ in range(100):
        book.replayed(2_000, 200, quickly=True)
        book.missed(1)
    assert not book.affords_building(2_000, 0.3)
    book.replayed(2_000, ledger.STEADY, quickly=True)
    assert book.affords_building(2_000, 0.3)


def test_recordings_with_more_instructions_than_eager_calls_have_nodes_put_little_by(no_allowance):
    book = Ledger()
    book.replayed(20_000, 1_000, quickly=True, nodes=100)
    assert not book.affords_building(100, 0.1 + 3 * ledger.CALLS * EAGER.of(20_000))


def test_who_asks_for_machine_code_does_not_wait(no_allowance):
    fast = chainrule.compile(lambda x: sum(a * b for a in x for b in x), lift=True)
    assert fast.value_and_grad([1.0, 2.0]) == (9.0, [6.0, 6.0])
    assert fast.dispatch.last is Path.MACHINE


def test_recordings_of_plain_numbers_are_to_be_earned_longer(no_allowance):
    book = Ledger()
    book.instructions = 10_000
    while not book.affords_recording():
        book.ran_eagerly()
    assert not book.affords_recording(of_numbers=True)


# --- what is looked for before a recording --------------------------------------------------------


def test_what_a_function_reaches_is_looked_for_once_a_recording_is_worth_it(no_allowance):
    fast = chainrule.compile(lambda x: x[0] * x[1] + x[0])
    fast.value_and_grad([1.0, 2.0])
    assert fast.dispatch.captured is None
    calls = 1
    while not fast.dispatch.counts.traces:
        fast.value_and_grad([1.0, 2.0])
        calls += 1
    assert fast.dispatch.captured is not None
    assert 50 < calls < 20_000


def test_who_cannot_be_recorded_is_told_so_once_a_recording_were_worth_it(no_allowance):
    fast = chainrule.compile(lambda x: x[0] * random.random() ** 0.0)
    with pytest.warns(chainrule.FallbackWarning, match="random"):
        assert {fast.value_and_grad([3.0])[0] for _ in range(20_000)} == {3.0}


def test_who_raises_where_nothing_can_be_recorded_does_so_at_the_first_call(no_allowance):
    fast = chainrule.compile(lambda x: x[0] * time.time(), on_fallback="raise")
    with pytest.raises(chainrule.FallbackError, match="time"):
        fast.value_and_grad([3.0])


def test_the_instructions_of_code_are_read_once(monkeypatch):
    read, get_instructions = [], dis.get_instructions

    def counted(code, **options):
        read.append(code)
        return get_instructions(code, **options)

    monkeypatch.setattr(disassembly.dis, "get_instructions", counted)
    fast = chainrule.compile(steps)
    fast.dispatch._refreshed()
    mine = [code for code in read if code is steps.__code__]
    assert len(mine) <= 2  # by two modules


def test_few_instructions_are_kept():
    for k in range(3 * disassembly.KEPT):
        scope = {}
        exec(f"def made(): return {k}", scope)
        assert disassembly.global_names(scope["made"].__code__) == set()
    assert len(disassembly._kept) <= disassembly.KEPT
