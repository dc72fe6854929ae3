"""Calls that eager mode answers, because replays would compare too much."""

import numpy as np
import pytest

import chainrule
from chainrule import FallbackWarning
from chainrule.compiler.capture import captured
from chainrule.compiler.runtime.ledger import allowance


@pytest.fixture(autouse=True)
def usual_allowance():
    before = allowance.left
    allowance.left = 0.3
    yield
    allowance.left = before


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


def test_who_asks_for_machine_code_has_it_whatever_is_compared(monkeypatch):
    monkeypatch.setattr(captured, "EACH_BYTE", 1e-6)
    fast = chainrule.compile(looked_up, lift=True)
    fast.value_and_grad([0.5, 2.0], [1, 2, 3])
    assert fast.dispatch.counts.traces == 1


def test_plain_calls_are_recorded_once_they_have_earned_it(monkeypatch):
    """They have no graph, by which it could be told how much there is to compute."""
    monkeypatch.setattr(captured, "EACH_BYTE", 1e-8)
    fast = chainrule.compile(lambda x: sum(TABLE[k % 1_000, 2] * x for k in range(2_000)))
    assert [fast(0.5) for _ in range(100)] == pytest.approx([500.0] * 100)
    assert fast.dispatch.counts.traces == 1
