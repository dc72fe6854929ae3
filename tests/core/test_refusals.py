"""What the core refuses, in the words that users read, and what it does in rarely used modes."""

import copy
import importlib
import signal
import sys
import threading
from fractions import Fraction

import pytest

import chainrule
from chainrule import Value, clip
from chainrule.core import backend, ops
from chainrule.core.interrupts import Held
from chainrule.core.text import visible


@pytest.mark.parametrize(
    ("attempt", "error", "words"),
    [
        (lambda a: clip(a, 2.0, 1.0), ValueError, "clip needs low <= high, got 2.0 and 1.0"),
        (lambda a: a.clip(0.0, 1.0, 2.0), TypeError, r"clip\(x, .*\) got 3 parameters"),
        (lambda a: a.hypot(), TypeError, "hypot takes 2 operands, got 1"),
        (lambda a: Value(1.0, (a,), (1.0,), op=3), TypeError, "op must be a str, not a int"),
        (lambda a: Value(1.0, (a,), "**two"), TypeError, r"\*\*two"),
        (lambda a: Value(1.0, label=3), TypeError, "a label must be a str"),
        (lambda a: a.__init__(2.0), TypeError, "already built"),
        (lambda a: ops.div(Fraction(1), Fraction(0)), ZeroDivisionError, r"Fraction\(1, 0\)"),
    ],
    ids="clip parameters operands op symbol label built division".split(),
)
def test_a_wrong_use_is_refused_in_words(attempt, error, words):
    a = Value(0.5)
    with pytest.raises(error, match=words):
        attempt(a)
    (a * a).backward()  # and a is as it was
    assert a.grad == 1.0


def test_division_of_plain_numbers_by_zero_follows_ieee_rules():
    assert ops.div(1, 0) == float("inf")
    assert ops.div(-1.0, 0.0) == float("-inf")


@pytest.mark.parametrize("operation", ["erf", "tanh"])  # a row in Python, and one in C
def test_no_grad_leaves_no_graph_and_debug_says_where(operation):
    a = Value(0.5)
    with chainrule.no_grad():
        y = getattr(a, operation)()
    assert y.children == ()
    assert y.op == ""
    with chainrule.debug():
        z = getattr(a, operation)()
    assert "test_refusals.py" in z._location
    assert z.data == y.data


class Slotted(Value):
    __slots__ = ("extra",)


def test_a_copy_has_what_is_in_the_slots():
    a = Slotted(2.0)
    a.extra = [1, 2]
    for other in (copy.copy(a), copy.deepcopy(a)):
        assert (other.data, other.extra) == (2.0, [1, 2])
    assert copy.copy(a).extra is a.extra
    assert copy.deepcopy(a).extra is not a.extra


# --- the choice of an engine ----------------------------------------------------------------------


def test_an_unknown_engine_is_refused():
    with pytest.raises(ImportError, match="must be 'native' or 'reference', not 'fast'"):
        backend._choose("fast")


def test_a_free_threaded_python_has_the_reference_engine(monkeypatch):
    monkeypatch.setattr(sys, "version", f"{sys.version} free-threading build")
    with pytest.raises(ImportError, match="free-threaded Python"):
        backend._choose("native")
    name, module, kernels = backend._choose("")
    assert (name, module.__name__, kernels) == ("reference", "chainrule.core.reference", None)


def test_without_the_extension_there_is_the_reference_engine(monkeypatch):
    imported = importlib.import_module

    def without(name, *arguments):
        if name == "chainrule._native":
            raise ModuleNotFoundError(name)
        return imported(name, *arguments)

    monkeypatch.setattr(importlib, "import_module", without)
    assert backend._choose("")[0] == "reference"
    with pytest.raises(ImportError, match="the native engine was not built here"):
        backend._choose("native")


# --- small things ---------------------------------------------------------------------------------


def test_ctrl_c_is_held_in_the_main_thread_only():
    seen = []

    def other():
        before = signal.getsignal(signal.SIGINT)
        with Held():
            seen.append(signal.getsignal(signal.SIGINT) is before)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [True]


def test_a_process_that_ignores_ctrl_c_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Held():
            signal.raise_signal(signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("firm", [False, True])
def test_a_held_ctrl_c_comes_at_the_end(firm):
    steps = []

    def work():
        with Held(firm):
            signal.raise_signal(signal.SIGINT)
            steps.append("went on")
            if firm:
                signal.raise_signal(signal.SIGINT)
                steps.append("and on")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["went on", "and on"][: 1 + firm]


def test_letters_stay_and_controls_are_spelt_out():
    assert visible("zoë\x1b[2J\u202e") == "zoë\\x1b[2J\\u202e"
