"""What calls wait for that run eagerly: one answer for all reasons, and the gate is told of it."""

from types import SimpleNamespace

import pytest

import chainrule
from chainrule.compiler.runtime import resting
from chainrule.compiler.runtime.costs import allowance
from chainrule.compiler.runtime.counts import Counts
from chainrule.compiler.runtime.fast_path import ClosedGate
from chainrule.compiler.runtime.ledger import IN_VAIN, Ledger
from chainrule.compiler.runtime.notices import MOST_UNSERVED, Notices
from chainrule.compiler.runtime.waiting import LONGEST_COUNT, Until, Wait, Waiting

native = pytest.mark.skipif(chainrule.engine != "native", reason="costs of the native engine")
RECORDED = SimpleNamespace(is_spread=False)  # a pipeline
SPREAD = SimpleNamespace(is_spread=True)


@pytest.fixture(autouse=True)
def no_allowance(monkeypatch):
    monkeypatch.setattr(allowance, "left", 0.0)


class Function:
    """What a dispatch has of one function."""

    def __init__(self, on_fallback="eager", asked=False, size=1000):
        self.gate, self.ledger, self.counts = ClosedGate(), Ledger(), Counts()
        self.notices = Notices("f", on_fallback)
        self.ledger.instructions = size
        self.waiting = Waiting(
            self.gate, self.gate, self.ledger, self.counts, self.notices, asked=asked
        )


def test_a_function_that_owes_nothing_waits_for_nothing():
    f = Function()
    assert f.waiting.now(RECORDED) is None


def test_what_was_refused_waits_for_twice_as_many_calls_each_time():
    f = Function()
    f.ledger.refused()
    assert f.waiting.now(RECORDED) == Wait(Until.OVER, 1)
    f.ledger.refused()
    assert f.waiting.now(RECORDED) == Wait(Until.OVER, 8)
    f.ledger.ran_eagerly(8)
    assert f.waiting.now(RECORDED) is None


@native
def test_a_first_recording_is_waited_for_only_by_calls_that_will_show_their_size():
    f = Function()
    wait = f.waiting.now(None, has_graph=True)
    assert wait.until is Until.RECORDABLE
    assert f.waiting.now(None) is None
    f.ledger.ran_eagerly(wait.calls)
    assert f.waiting.now(None, has_graph=True) is None


@native
def test_who_asks_for_machine_code_does_not_wait_for_the_first_recording():
    assert Function(asked=True).waiting.now(None, has_graph=True) is None


def test_what_raises_where_it_cannot_be_recorded_never_waits():
    f = Function(on_fallback="raise")
    f.ledger.refused()
    assert f.waiting.now(RECORDED) is None


def test_a_call_that_is_due_is_looked_at_whatever_the_others_wait_for():
    f = Function()
    f.ledger.refused()
    f.gate.is_due = True
    assert f.waiting.now(RECORDED) is None


def test_the_gate_runs_the_calls_after_this_one_and_none_after_they_were_looked_at():
    f = Function()
    f.ledger.refused()
    f.ledger.refused()
    f.waiting.begin(f.waiting.now(RECORDED), RECORDED, True)
    assert f.gate.resting == 7
    assert not f.waiting.end(RECORDED)
    assert f.gate.resting == 0


def test_no_more_calls_are_waited_for_than_until_the_user_is_told():
    f = Function()
    for _ in range(4):
        f.ledger.refused()
    f.waiting.begin(f.waiting.now(RECORDED), RECORDED, True)
    assert f.gate.resting == MOST_UNSERVED - 1
    f.notices.tell_of_unserved()
    f.waiting.begin(f.waiting.now(RECORDED), RECORDED, True)
    assert f.gate.resting == 511


def test_while_nobody_knows_how_much_a_call_computes_the_next_one_may_tell():
    f = Function(size=None)
    f.ledger.refused()
    f.ledger.refused()
    f.waiting.begin(f.waiting.now(RECORDED), RECORDED, True)
    assert f.gate.resting == 0
    f.ledger.failed(5)
    f.waiting.begin(f.waiting.now(RECORDED), RECORDED, True)
    assert f.gate.resting == 4


def test_of_calls_that_make_no_graph_none_tells_how_much_it_computes():
    f = Function(size=None)
    f.ledger.refused()
    f.ledger.refused()
    f.waiting.begin(f.waiting.now(RECORDED), RECORDED, False)
    assert f.gate.resting == 7


def test_calls_that_the_gate_ran_are_counted_once_and_end_the_wait():
    f = Function()
    f.ledger.refused()
    f.ledger.refused()
    f.gate.take_rested = iter([8, 0]).__next__
    f.gate.failed = 3
    assert f.waiting.enter(RECORDED)
    assert not f.waiting.enter(RECORDED)
    assert (f.counts.calls, f.counts.eager, f.gate.failed) == (8, 8, 0)
    assert f.notices.until_told == MOST_UNSERVED - 8


@native
def test_where_lengths_vary_independently_calls_wait_for_others_alike():
    f = Function()
    while f.ledger._unused < IN_VAIN:
        f.ledger.recorded(1000)
    f.waiting.enter(SPREAD)
    assert f.gate.due == f.ledger.calls_due > 0
    f.ledger.ran_eagerly(10**5)
    f.gate.path, f.counts.calls = object(), 1
    assert f.waiting.now(SPREAD) == Wait(Until.DUE, LONGEST_COUNT)
    call, structure = SimpleNamespace(key=(True,), values=(), ints=[]), SimpleNamespace(variants=[])
    assert not f.waiting.may_record(call, structure, SPREAD, is_due=False)
    assert f.waiting.may_record(call, structure, SPREAD, is_due=True)
    f.waiting.enter(RECORDED)
    assert f.waiting.now(RECORDED) is None, "its lengths grow together after all"


@native
def test_a_fast_path_that_tries_in_vain_is_given_up_and_its_calls_wait():
    f = Function()
    f.gate.path, f.gate.tried = object(), 3 * resting.DECLINED * 1000
    f.waiting.enter(RECORDED)
    assert f.gate.path is None
    assert f.waiting.now(RECORDED) == Wait(Until.OVER, 1)
