"""Training in several threads: the same bits as in one."""

import ctypes
import threading
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from test_compile_batches import by_hand, copied
from test_compile_lifted import flat, normal

import chainrule
from chainrule import log, sigmoid, sqrt, tanh
from chainrule.compiler.mapping import costs
from chainrule.compiler.training import crew, driver, lanes, machine_loop, step_code
from chainrule.compiler.training.lanes import _dealt
from chainrule.compiler.training.machine_loop import Pace
from chainrule.optim import Adam

pytest.importorskip("llvmlite")


def neuron(p, x, y):
    hidden = [tanh(w * x + b) for w, b in zip(p["w"], p["b"], strict=True)]
    return (log(sum(v * h for v, h in zip(p["v"], hidden, strict=True)) + 4.0) - y) ** 2


NEURON = {"w": normal(1, 7), "b": normal(2, 7), "v": normal(3, 7, scale=0.2)}
POINTS = [(float(x), float(x * x)) for x in normal(4, 100)]


@pytest.fixture(params=[step_code.SMALL, 0], ids=["parameters of their own", "shared parameters"])
def threaded(monkeypatch, request):
    """All threads take part in every step; a list of how many did."""
    used: list[int] = []
    take = step_code.take

    def counted(dtype: str, shares: Any, **fields: int) -> int:
        used.append(len(shares))
        return take(dtype, shares, **fields)

    monkeypatch.setattr(machine_loop, "WORK", 0)
    monkeypatch.setattr(step_code, "SMALL", request.param)
    monkeypatch.setattr(Pace, "quickest", lambda self, most: most)
    monkeypatch.setattr(step_code, "take", counted)
    return used


def trained(
    fast: Any, batch: int, threads: int, points: Any = POINTS, clip: float | None = None
) -> tuple[Any, ...]:
    """The bits of losses and parameters after some steps, or the error."""
    moved = copied(NEURON)
    optimiser, error = Adam(moved, lr=0.01), None
    losses = np.zeros(0)
    try:
        losses = fast.train(moved, points, optimiser, 9, batch, threads=threads, clip=clip)
    except ValueError as raised:
        error = str(raised)
    return losses.tobytes(), flat(moved).tobytes(), optimiser.steps, error


@pytest.mark.parametrize("batch", [1, 3, 16, 64, 75])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_threads_train_to_the_same_bits(batch, dtype, threaded):
    fast = chainrule.compile(neuron, dtype=dtype, lift=True)
    found = [trained(fast, batch, threads) for threads in (1, 2, 3, 8)]
    assert found == found[:1] * 4
    assert max(threaded) > 1 or batch < 64
    hand = copied(NEURON)
    losses = by_hand(neuron, hand, POINTS, Adam(hand, lr=0.01), 9, batch)
    tolerance = 1e-9 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(np.frombuffer(found[0][0]), losses, rtol=tolerance)


@pytest.mark.parametrize("parts", range(1, step_code.PARTS + 1))
def test_any_number_of_parts_is_added_up_to_the_same_bits(parts, threaded, monkeypatch):
    monkeypatch.setattr(step_code, "most_parts", lambda parameters, batch: parts)
    fast = chainrule.compile(neuron, lift=True)
    found = [trained(fast, 75, threads) for threads in (1, 2, 3, 4, 5, 8)]
    assert found == found[:1] * 6
    assert max(threaded) == parts
    hand = copied(NEURON)
    losses = by_hand(neuron, hand, POINTS, Adam(hand, lr=0.01), 9, 75)
    np.testing.assert_allclose(np.frombuffer(found[0][0]), losses, rtol=1e-9)


def test_threads_clip_to_the_same_bits(threaded):
    fast = chainrule.compile(neuron, lift=True)
    found = [trained(fast, 64, threads, clip=0.1) for threads in (1, 2, 3)]
    assert found == found[:1] * 3
    assert found[0] != trained(fast, 64, 1)
    assert max(threaded) > 1


@pytest.mark.parametrize("place", [0, 5, 31])
def test_threads_stop_before_the_step_that_raises(threaded, place):
    def roots(p, x, y):
        return sum(sqrt(w * w * x) for w in (*p["w"], *p["b"], *p["v"])) * y

    points = [(1.0 + k, 0.5) for k in range(100)]
    points[2 * 32 + place] = (-1.0, 0.5)
    fast = chainrule.compile(roots, lift=True)
    found = [trained(fast, 32, threads, points) for threads in (1, 2, 4)]
    assert found == found[:1] * 3
    steps, error = found[0][2:]
    assert steps == 2
    assert "sqrt" in error
    assert max(threaded) > 1


def test_a_thread_that_cannot_start_is_done_without(threaded, monkeypatch):
    fast = chainrule.compile(neuron, lift=True)
    wanted = trained(fast, 64, 1)
    start, started = threading.Thread.start, []

    def second_fails(thread: threading.Thread) -> None:
        started.append(thread)
        if len(started) % 2 == 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(crew, "_idle", [])
    monkeypatch.setattr(threading.Thread, "start", second_fails)
    assert trained(fast, 64, 4) == wanted
    assert len(started) > 1


@pytest.mark.parametrize(("one", "two", "best", "others"), [(1.0, 0.6, 2, 3), (1.0, 1.5, 1, 4)])
def test_threads_are_used_where_they_are_quicker(one, two, best, others):
    pace, chosen = Pace(), []
    assert pace.quickest(1) == 1
    for turn in range(70):
        chosen.append(pace.quickest(2))
        slow = 10.0 if turn < 2 or turn % 7 == 0 else 1.0  # whatever else runs
        pace.note(chosen[-1], slow * (one if chosen[-1] == 1 else two))
    assert chosen[:6] == [2, 1, 2, 1, 2, 1]
    assert chosen[6:].count(best) == 64 - others
    assert chosen[6:].count(3 - best) == others  # to see whether that has changed


def test_one_thread_is_seldom_tried_where_more_stay_quicker():
    pace, chosen = Pace(), []
    for _ in range(1000):
        chosen.append(pace.quickest(2))
        pace.note(chosen[-1], 1.0 if chosen[-1] == 1 else 0.6)
    assert chosen[6:].count(1) == 10
    for _ in range(20):  # the other core is taken
        chosen.append(pace.quickest(2))
        pace.note(chosen[-1], 1.0 if chosen[-1] == 1 else 2.0)
    assert chosen[1000:].count(1) >= 16


def test_threads_are_not_woken_for_a_call_that_is_soon_over(monkeypatch):
    """A step is shared where it is one of many: to wake a thread takes as long as several."""
    used: list[int] = []
    take = step_code.take

    def counted(dtype: str, shares: Any, **fields: int) -> int:
        used.append(len(shares))
        return take(dtype, shares, **fields)

    monkeypatch.setattr(Pace, "quickest", lambda self, most: most)
    monkeypatch.setattr(step_code, "take", counted)
    mine = copied(NEURON)
    fast = chainrule.compile(neuron, lift=True)
    trainer = fast.trainer(mine, POINTS * 10, Adam(mine, lr=0.0), batch=512, threads=2)
    (made,) = trainer._native._made
    work = made.work * made.lanes * -(-512 // made.lanes)
    monkeypatch.setattr(machine_loop, "WORK", work)
    monkeypatch.setattr(machine_loop, "CALLS", 3)
    monkeypatch.setattr(driver, "TURN", 1e9)  # whatever else runs
    trainer._at_once = 8
    trainer.advance(2)
    trainer.advance(3)
    monkeypatch.setattr(machine_loop, "WORK", work + 1)
    trainer.advance(8)
    assert used == [1, 2, 1]


def test_threads_are_used_again_when_cores_are_free_again():
    pace, chosen = Pace(), []
    for turn in range(100):
        chosen.append(pace.quickest(2))
        busy = turn < 30
        pace.note(chosen[-1], 1.0 if chosen[-1] == 1 else 2.0 if busy else 0.6)
    assert chosen[6:30].count(1) >= 22
    assert chosen[70:].count(2) >= 28


@pytest.mark.parametrize("samples", [3, 5, 12, 13, 30, 80, 112])
@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_threads_have_as_many_groups_as_each_other(samples, threads, monkeypatch):
    """Twelve in eight parts are six for each of two threads, not four for one of them."""
    computed: dict[int, int] = {}  # by where the numbers of a thread's groups are

    @ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_void_p] * 4)
    def forward(shared: int, own: int, gathers: int, counts: int) -> float:
        computed[own] = computed.get(own, 0) + 1
        return 0.0

    @ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 7)
    def reverse(*arguments: int) -> None:
        pass

    take = step_code.take
    fakes = {
        name: ctypes.cast(fake, ctypes.c_void_p).value
        for name, fake in (("forward", forward), ("reverse", reverse))
    }

    def counted(dtype: str, shares: Any, **fields: int) -> int:
        every = [replace(s, codes=[{**code, **fakes} for code in s.codes]) for s in shares]
        return take(dtype, every, **fields)

    monkeypatch.setattr(machine_loop, "WORK", 0)
    monkeypatch.setattr(Pace, "quickest", lambda self, most: most)
    monkeypatch.setattr(step_code, "take", counted)
    if samples < 32:
        monkeypatch.setattr(step_code, "most_parts", lambda parameters, batch: step_code.PARTS)
    monkeypatch.setattr(lanes, "FEWEST", 1 << 30)  # each a group
    mine = copied(NEURON)
    fast = chainrule.compile(neuron, lift=True)
    points = (POINTS * 2)[:samples]
    trainer = fast.trainer(mine, points, Adam(mine, lr=0.0), batch=samples, threads=threads)
    trainer.advance(1)
    assert sum(computed.values()) == samples
    assert len(computed) == min(samples, threads)
    parts = min(samples, trainer._native._parts)
    assert max(computed.values()) - min(computed.values()) <= samples // parts + 1
    if parts % threads == 0:  # whatever is left over
        assert max(computed.values()) - min(computed.values()) <= 1


@pytest.mark.parametrize("groups", [1, 3, 4, 8, 16, 30, 64])
@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_every_thread_has_long_groups_and_short_ones(groups, parts):
    """Groups come longest first; a thread takes every second part, or every fourth."""
    order = _dealt(groups, parts)
    assert sorted(order.tolist()) == list(range(groups))
    count = min(groups, parts)
    bounds = [groups // count * part + min(part, groups % count) for part in range(count + 1)]
    work = [sum(groups - order[a:b]) for a, b in pairwise(bounds)]
    for threads in (2, 4):
        if groups % count == 0 and count % (2 * threads) == 0:
            shares = [sum(work[thread::threads]) for thread in range(threads)]
            assert max(shares) == min(shares)
        elif groups >= 4 * threads and count >= threads:
            shares = [sum(work[thread::threads]) for thread in range(threads)]
            assert max(shares) < 1.2 * min(shares)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("lengths", ["equal", "mixed"])
def test_threads_fill_lanes_with_tokens_to_the_same_bits(dtype, lengths, threaded, monkeypatch):
    """Each fills those of its groups: numbers, addresses of rows, factors of what is shorter."""
    monkeypatch.setattr(costs, "LANE", 0.0)
    monkeypatch.setattr(costs, "BY_LANE", 0.0)

    def read(p, tokens):
        total = 0.0
        for token in tokens:
            row = p["w"][token]
            total = total + tanh(sum(a * b for a, b in zip(row, p["v"], strict=True))) ** 2
        return total * (1.0 / len(tokens))

    params = {"w": normal(1, 5, 9), "v": normal(2, 9)}
    chance = np.random.default_rng(3)
    sizes = chance.integers(2, 7, 128) if lengths == "mixed" else np.full(128, 4)
    samples = [(chance.integers(0, 5, n).tolist(),) for n in sizes]
    found = []
    for threads in (1, 2, 3, 4):
        mine = copied(params)
        fast = chainrule.compile(read, dtype=dtype, lift=True)
        trainer = fast.trainer(mine, samples, Adam(mine, lr=0.01), batch=64, threads=threads)
        found.append((trainer.advance(6).tobytes(), flat(mine).tobytes()))
        assert trainer._native._made[0].lanes > 1
    assert found == found[:1] * 4
    assert max(threaded) > 1
    hand = copied(params)
    losses = by_hand(read, hand, samples, Adam(hand, lr=0.01), 6, 64)
    tolerance = 1e-9 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(np.frombuffer(found[0][0]), losses, rtol=tolerance)


def gated(p, xs):
    """A gated recurrence, which becomes a loop in time."""
    state, total = [0.0] * 6, 0.0
    for x, target in pairwise(xs):
        joined = [*state, x]
        keep, reset = (
            [sigmoid(sum(w * a for w, a in zip(row, joined, strict=True))) for row in p[name]]
            for name in ("z", "r")
        )
        left = [*[r * s for r, s in zip(reset, state, strict=True)], x]
        fresh = [tanh(sum(w * a for w, a in zip(row, left, strict=True))) for row in p["w"]]
        state = [k * s + (1 - k) * f for k, s, f in zip(keep, state, fresh, strict=True)]
        total = total + (sum(v * s for v, s in zip(p["v"], state, strict=True)) - target) ** 2
    return total


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lengths_of_a_gated_recurrence_share_lanes_to_the_same_bits(dtype, threaded):
    """Lanes go on to the end of the longest; what is beyond their own counts for nothing."""
    params = {name: normal(k, 6, 7) for k, name in enumerate("zrw")} | {"v": normal(3, 6)}
    chance = np.random.default_rng(4)
    samples = [(chance.normal(size=n),) for n in chance.integers(5, 18, 96)]
    found = []
    fast = chainrule.compile(gated, dtype=dtype, lift=True, on_fallback="eager")
    for threads in (1, 2, 3, 4):
        mine = copied(params)
        trainer = fast.trainer(mine, samples, Adam(mine, lr=0.01), batch=64, threads=threads)
        found.append((trainer.advance(6).tobytes(), flat(mine).tobytes()))
        (made,) = trainer._native._made
        assert made.machine.program.loops
        assert made.lanes > 1
        assert len(made._fits) > 8
    assert found == found[:1] * 4
    assert max(threaded) > 1
    hand = copied(params)
    losses = by_hand(gated, hand, samples, Adam(hand, lr=0.01), 6, 64)
    tolerance = 1e-11 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(np.frombuffer(found[0][0]), losses, rtol=tolerance)
