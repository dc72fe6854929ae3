"""What the core refuses, in the words that users read, and what it does in rarely used modes."""

import copy
import importlib
import operator
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
        (lambda a: chainrule.dot([a], [a, a]), ValueError, "one length, got 1 and 2"),
        (lambda a: Value(1.0, label=3), TypeError, "a label must be a str"),
        (lambda a: a.__init__(2.0), TypeError, "already built"),
        (lambda a: ops.div(Fraction(1), Fraction(0)), ZeroDivisionError, r"Fraction\(1, 0\)"),
    ],
    ids="clip parameters operands op symbol dot label built division".split(),
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


def test_a_second_ctrl_c_does_not_wait():
    steps = []

    def work():
        with Held():
            signal.raise_signal(signal.SIGINT)
            steps.append("held")
            signal.raise_signal(signal.SIGINT)
            steps.append("never")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert steps == ["held"]


@pytest.mark.parametrize(
    "attempt",
    [
        lambda a: pow(a, 2, 3),
        lambda a: pow(2, a, 3),  # before 3.14 Python does not ask a
        lambda a: "x" - a,
        lambda a: "x" / a,
        lambda a: "x" ** a,
        chainrule.topological_order,
    ],
    ids="modulo,modulo on the left,minus,over,power,order".split(","),
)
def test_what_is_no_number_is_a_type_error(attempt):
    assert Value(2.0).__rpow__(2, 3) is NotImplemented
    with pytest.raises(TypeError):
        attempt("x" if attempt is chainrule.topological_order else Value(2.0))


class Reflected(Value):
    """Asked first where it stands on the right."""

    def __radd__(self, other):
        return super().__radd__(other)

    def __rmul__(self, other):
        return super().__rmul__(other)


def test_operands_stay_in_order_where_a_subclass_is_asked_first():
    a, b = Value(2.0), Reflected(3.0)
    for y, data in ((a + b, 5.0), (a * b, 6.0)):
        assert y.data == data
        assert y.children == (a, b)


class ByNumber(Value):
    def __eq__(self, other):
        return self.data == other.data

    __hash__ = Value.__hash__


def test_not_equal_is_the_opposite_of_ones_own_equal():
    assert operator.ne(ByNumber(2.0), ByNumber(2.0)) is False
    assert ByNumber(2.0) != ByNumber(3.0)
    assert +ByNumber(2.0) == ByNumber(2.0)


# --- the same while a function is recorded --------------------------------------------------------


def hashed(x):
    return x[0] * {x[0]: 2.0, x[1]: 3.0}[x[1]]


def identical(x):
    return x[0] * (2.0 if x[0] == x[1] else 3.0)


def equal_numbers(x):
    return x[0] * (2.0 if x[0] == 1.5 else 3.0)


def undefined(x):
    try:
        return (x[0] - 5.0).log() * x[1]
    except ValueError:
        return x[1] * 7.0


def detached(x):
    return Value(x[0].data) * x[1]


def made_by_hand(x):
    return Value(x[0].data ** 2, (x[0],), (2.0 * x[0].data,), op="square") * x[1]


def swept(x):
    y = x[0] * x[1]
    y.zero_grad()
    return y


USES = [hashed, identical, equal_numbers, undefined, detached, made_by_hand, swept]


@pytest.mark.filterwarnings("ignore::chainrule.FallbackWarning")
@pytest.mark.parametrize("f", USES, ids=lambda f: f.__name__)
def test_identity_errors_and_custom_operations_mean_the_same_compiled(f):
    fast, eager = chainrule.compile(f), chainrule.value_and_grad(f)
    for x in ([1.5, 2.0], [9.0, 2.0], [-1.0, 0.5]):
        assert fast.value_and_grad(x) == eager(x)
