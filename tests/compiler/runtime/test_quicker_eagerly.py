"""Calls that eager mode answers, because replays are slower by the clock or compare too much."""

import math
import warnings

import numpy as np
import pytest

import chainrule
from chainrule import FallbackWarning
from chainrule.compiler.capture import captured
from chainrule.compiler.runtime import dispatch, ledger
from chainrule.compiler.runtime.ledger import allowance
from chainrule.compiler.runtime.variants import Path

native = pytest.mark.skipif(chainrule.engine != "native", reason="the gate in C times them")


@pytest.fixture(autouse=True)
def usual_allowance():
    before = allowance.left
    allowance.left = 0.3
    yield
    allowance.left = before


def polynomial(x):
    return x * x * 0.1 + x.tanh() / 3.0


def clock_says(monkeypatch, cached, eager):
    """What the medians of each trial are, the cached calls' first."""
    found = []

    def median(times):
        found.append(len(times))
        return (cached, eager)[(len(found) - 1) % 2]

    monkeypatch.setattr(dispatch, "median", median)
    return found


def answers(fast, count):
    """The paths of so many calls, and whether all of them have eager's bits."""
    eager, paths = chainrule.value_and_grad(polynomial), []
    for k in range(count):
        x = 0.01 * k - 3.0
        assert fast.value_and_grad(x) == eager(x)
        paths.append(fast.dispatch.last)
    return paths


@native
def test_eager_mode_answers_for_a_while_where_the_clock_says_it_is_quicker(monkeypatch):
    timed = clock_says(monkeypatch, cached=2.0, eager=1.0)
    fast = chainrule.compile(polynomial)
    paths = answers(fast, 3 * dispatch.FIRST_TRIAL)
    assert timed == [dispatch.TIMES] * 2
    assert paths.count(Path.TAPE) >= dispatch.FIRST_TRIAL - 1
    assert set(paths[-64:]) == {Path.EAGER}
    assert "eager ones are quicker than replays" in fast.report()
    counts = fast.dispatch.counts
    assert counts.calls == counts.eager + counts.replayed == 3 * dispatch.FIRST_TRIAL


@native
def test_nobody_is_warned_of_what_is_quicker(monkeypatch):
    clock_says(monkeypatch, cached=2.0, eager=1.0)
    fast = chainrule.compile(polynomial)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers(fast, 3_000)


@native
def test_replays_are_tried_again_in_time(monkeypatch):
    clock_says(monkeypatch, cached=2.0, eager=1.0)
    fast = chainrule.compile(polynomial)
    answers(fast, 2 * dispatch.FIRST_TRIAL)
    clock_says(monkeypatch, cached=1.0, eager=1.0)
    paths = answers(fast, ledger.LONGEST_REFUSAL + 2 * dispatch.FIRST_TRIAL)
    assert set(paths[-64:]) == {Path.TAPE}
    assert "eager ones are quicker" not in fast.report()


@native
def test_cached_calls_that_are_not_slower_go_on(monkeypatch):
    clock_says(monkeypatch, cached=1.2, eager=1.0)
    fast = chainrule.compile(polynomial)
    paths = answers(fast, 3_000)
    trials = 4  # after 128, 256, 512 and 1,024 cached calls
    assert paths.count(Path.EAGER) <= trials * (dispatch.TIMES + 1)
    assert fast.dispatch.counts.traces == 1


@native
def test_machine_code_is_never_timed(monkeypatch):
    """The clock must not decide which of two roundings a caller gets."""
    timed = clock_says(monkeypatch, cached=2.0, eager=1.0)

    def squares(x):
        return sum((a * b).tanh() for a in x for b in x)

    fast, x = chainrule.compile(squares, lift=True), [0.1 * k for k in range(20)]
    for _ in range(1_000):
        fast.value_and_grad(x)
    assert fast.dispatch.last is Path.MACHINE
    assert not timed


@native
def test_an_error_in_a_call_that_is_timed_is_raised(monkeypatch):
    clock_says(monkeypatch, cached=1.0, eager=1.0)
    fast = chainrule.compile(lambda x: chainrule.log(x) * 2.0)
    for k in range(600):
        if k % 3:
            assert fast.value_and_grad(2.0) == (math.log(2.0) * 2.0, 1.0)
        else:
            with pytest.raises(ValueError, match="log"):
                fast.value_and_grad(-1.0)


TABLE = np.linspace(0.0, 1.0, 5_000).reshape(1_000, 5)


def looked_up(p, rows):
    return sum((p[0] * TABLE[r, 2] + p[1]) ** 2 for r in rows)


def test_what_would_take_longer_to_compare_than_to_run_is_not_recorded(monkeypatch):
    monkeypatch.setattr(captured, "EACH_BYTE", 1e-6)
    fast, eager = chainrule.compile(looked_up), chainrule.value_and_grad(looked_up)
    rng = np.random.default_rng(0)
    samples = [rng.integers(0, 1_000, 4).tolist() for _ in range(50)]
    with pytest.warns(FallbackWarning, match="MB of arrays that it reads from outside"):
        found = [fast.value_and_grad([0.5, 2.0], rows) for rows in samples]
    assert found == [eager([0.5, 2.0], rows) for rows in samples]
    assert fast.dispatch.counts.traces == 0
    assert "pass it the rows that it needs" in fast.report()


def test_what_takes_little_to_compare_is_recorded():
    fast = chainrule.compile(looked_up)
    for r in range(20):
        fast.value_and_grad([0.5, 2.0], [r, 3, 999 - r])
    assert fast.dispatch.counts.traces == 1
    assert fast.dispatch.counts.replayed
