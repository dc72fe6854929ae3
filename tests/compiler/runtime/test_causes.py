"""Why a function has several recordings, or runs eagerly: what warnings and reports say of it."""

import datetime
import enum
import functools
import heapq
import random
import re
import types
import warnings
from pathlib import Path

import numpy as np
import pytest

import chainrule
from chainrule import FallbackWarning, optim
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.progress import report_progress
from chainrule.compiler.capture.tracing import trace
from chainrule.compiler.capture.walking import survey
from chainrule.compiler.runtime import notices
from chainrule.compiler.runtime.ledger import allowance

native = pytest.mark.skipif(chainrule.engine != "native", reason="what calls cost is native's")


class Color(enum.Enum):
    RED = 1
    BLUE = 2
    GREEN = 3
    GREY = 4
    PINK = 5


def scaled(p, data):
    return p * 2.0


def causes(samples, function=scaled):
    """The line of a report that says which argument differs, of calls with each of some samples."""
    fast = chainrule.compile(function, on_fallback="raise")
    for sample in samples:
        fast.value_and_grad(2.0, sample)
    lines = fast.report().splitlines()
    return [line.strip() for line in lines if "kinds of calls are recorded" in line]


def with_lines(text):
    """A message with the place of the line of this file that ends with a mark, for {mark}."""
    lines = Path(__file__).read_text().splitlines()
    for mark in re.findall(r"{(.*?)}", text):
        (line,) = [k for k, x in enumerate(lines, 1) if x.endswith(f"  # {mark}")]
        text = text.replace(f"{{{mark}}}", f"test_causes.py:{line}")
    return text


BRANCH = "; write where(condition, a, b) to compute both sides"
DAY = datetime.date(2024, 1, 1)
LENGTHS = [[0.5] * n for n in range(1, 6)]


@pytest.mark.parametrize(
    ("samples", "cause"),
    [
        (LENGTHS, "argument 'data' has another length in most calls; pad it to one length"),
        (
            [[[0.5], [0.5] * n] for n in range(1, 6)],
            "an item of argument 'data' has another length in most calls; pad it",
        ),
        (
            [types.SimpleNamespace(a=1.0, b=x) for x in LENGTHS],
            "argument 'data.b' has another length in most calls; pad it",
        ),
        (
            [np.zeros((2, n)) for n in range(1, 6)],
            "argument 'data' has another shape in most calls; pad it",
        ),
        (
            [{f"k{n}": 1.0} for n in range(5)],
            "argument 'data' has other keys in most calls; pass a list",
        ),
        (
            [DAY + datetime.timedelta(n) for n in range(5)],
            "argument 'data' is another date in most calls; pass a number, as its toordinal()",
        ),
        (
            [np.array([2**63 + n], np.uint64) for n in range(5)],
            "argument 'data' is another array of uint64 in most calls; pass it as an array of "
            "int64 or float64, or as a list of bools",
        ),
        (
            [*Color],
            "argument 'data' is another Color in most calls; pass a number that stands for it",
        ),
    ],
)
def test_a_report_says_which_argument_differs_and_what_to_pass_instead(samples, cause):
    (line,) = causes(samples)
    assert line.startswith(f"5 kinds of calls are recorded: {cause}")


def test_a_report_is_silent_about_arguments_where_recordings_are_few():
    assert causes(LENGTHS[:3]) == []


def branchy(p, x):
    total = p * 0.0
    for item in x:
        total = total + (p if item > 0.0 else p * p)  # a branch
    return total


def test_a_report_says_once_what_to_write_instead_of_a_branch():
    fast = chainrule.compile(branchy, lift=False)
    for signs in range(6):
        fast.value_and_grad(2.0, [1.0 if signs >> k & 1 else -1.0 for k in range(3)])
    lines = Path(__file__).read_text().splitlines()
    line = next(k for k, text in enumerate(lines, 1) if text.endswith("# a branch"))
    (found,) = [x for x in fast.report().splitlines() if "one case only" in x]
    assert found.endswith(
        f"a branch at test_causes.py:{line}; write where(condition, a, b) to compute both sides"
    )


def told(function, samples):
    fast = chainrule.compile(function)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for sample in samples:
            fast.value_and_grad(2.0, sample)
    return [str(x.message) for x in caught if x.category is FallbackWarning]


def test_calls_of_other_lengths_that_run_eagerly_are_told_which_argument_it_is(monkeypatch):
    monkeypatch.setattr(allowance, "left", 0.05)
    samples = [[0.5] * n for n in range(1, 400)]
    (message,) = told(lambda p, data: sum(p * x for x in data), samples)
    assert "argument 'data' has another length in most calls; pad it to one length" in message


OPERATIONS = {0: lambda a, b: a + b, 1: lambda a, b: a * b, 2: lambda a, b: chainrule.tanh(a - b)}


def by_token(p, program):
    s = p
    for k, t in enumerate(program):
        t = int(f"{t}")  # by an integer
        s = OPERATIONS[t](s, p * k)
    return s


def of_frequent(p, tokens):
    found = [p * t for t in tokens if t > 5]  # filtered
    return sum(v * v for v in found) / len(found) if found else p


STATIC = (
    "; use it in arithmetic, comparisons and subscripts only, and as a key where code does no more "
    "than to store, read, count and go through, or pass what it selects"
)


@native
@pytest.mark.parametrize(
    ("function", "most", "shortest", "why"),
    [
        (by_token, 3, 1, "an integer is static at {by an integer}" + STATIC),
        (of_frequent, 27, 2, "a branch depends on integers at {filtered}" + BRANCH),
    ],
)
def test_few_lengths_are_not_told_where_a_line_has_each_call_recorded(
    function, most, shortest, why, monkeypatch
):
    monkeypatch.setattr(allowance, "left", 0.3)
    chance = random.Random(0)
    lengths = [chance.randrange(shortest, 2 * shortest + 6) for _ in range(3000)]
    samples = [[chance.randrange(most) for _ in range(n)] for n in lengths]
    (message,) = told(function, samples)
    told_why = with_lines(why)
    assert message == (
        f"{function.__name__} runs eagerly: its recordings hold for one case each, and served few "
        f"calls: {told_why}"
    )


def largest_by_key(p, data):
    place = max(range(len(data)), key=lambda k: abs(p * data[k]))  # by a key
    return p * data[place]


def largest_of_a_heap(p, data):
    return heapq.nlargest(2, [p * x for x in data])[1]  # of a heap


def sorted_by_numpy(p, data):
    return np.sort(np.array([p * x for x in data]))[1]  # by numpy


def place_of_largest(p, data):
    found = [p * x for x in data]
    return sum(found) * 2.0, int(np.argmax([x.data for x in found]))  # a place


def whether_larger(p, data):
    found = [p * x for x in data]
    return sum(found) * 2.0, found[0].data > found[1].data  # a truth


def of_one_side(p, data):
    total = p * 0.0
    for x in data:
        total = total + (p if p * x > 1.0 else p * p)  # a side
    return total


CALLED = (
    ", in what is called there; each order of the numbers has a recording of its own: choose among "
    "the numbers themselves, one by one, with max(...), min(...) or where(...), if that will do"
)
RETURNED = (
    ", where it is returned; return a number of it, float(...), or where(..., 1.0, 0.0) of a truth"
)


@native
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (largest_by_key, "a branch at {by a key}" + CALLED),
        (largest_of_a_heap, "a branch at {of a heap}" + CALLED),
        (sorted_by_numpy, "a branch at {by numpy}" + CALLED),
        (place_of_largest, "a branch at {a place}" + CALLED),
        (whether_larger, "a branch at {a truth}" + RETURNED),
        (of_one_side, "a branch at {a side}" + BRANCH),
    ],
)
def test_only_what_a_line_branches_by_itself_is_to_be_written_as_where(function, why):
    chance = random.Random(0)
    fast = chainrule.compile(function, on_fallback="raise", lift=False)
    for _ in range(3):
        fast.value_and_grad(2.0, [chance.uniform(-1.0, 1.0) for _ in range(5)])
    found = [x for x in fast.report().splitlines() if "one case only" in x]
    assert found[0].partition(" for one case only: ")[2] == with_lines(why)


class Guess:
    def __call__(self, p, k):
        if p > 1.0:
            return p * 2.0, k == 1  # in a method
        return p * 3.0, k == 1  # in another place


def counted(p, k):
    return p * 2.0, k + 1  # an integer of numpy's


@pytest.mark.parametrize(
    ("function", "kind", "lines"),
    [
        (Guess(), int, "{in a method} or {in another place}"),
        (counted, np.int64, "{an integer of numpy's}"),
    ],
)
def test_an_integer_that_is_returned_is_told_with_the_line_of_the_return(function, kind, lines):
    fast = chainrule.compile(function, on_fallback="raise", lift=False)
    for k in range(3):
        fast.value_and_grad(2.0, kind(k))
    where = with_lines(lines).replace(" or test_causes.py:", " or ")
    assert f"one case only: an integer is static at {where}{RETURNED}" in fast.report()


@functools.lru_cache
def weight(k):
    return 1.0 / (1.0 + k * k)


def by_weight(p, k):
    return (p * weight(k) - 1.0) ** 2  # of few


@native
def test_recordings_for_few_integers_are_not_called_a_path_of_each_call(monkeypatch):
    monkeypatch.setattr(allowance, "left", 0.3)
    chance = random.Random(0)
    (message,) = told(by_weight, [chance.randrange(6) for _ in range(3000)])
    assert message == (
        "by_weight runs eagerly: its recordings hold for one case each, and served few calls: "
        + with_lines("an integer is static at {of few}")
        + STATIC
    )


def test_what_is_to_be_returned_instead_of_an_integer_serves_all_calls():
    fast = chainrule.compile(lambda p, k: (p * k, float(k == 1)), on_fallback="raise", lift=False)
    for k in range(5):
        assert fast.value_and_grad(2.0, k)[0] == (2.0 * k, float(k == 1))
    assert "5 calls: 5 replayed, 0 eager; 1 recordings" in fast.report()


def test_long_recordings_of_other_lengths_are_told_once(monkeypatch):
    monkeypatch.setattr(notices, "LONG", 0.0)
    message = told(scaled, LENGTHS)[-1]
    assert message.startswith("scaled is slow to compile: 4 recordings took ")
    assert "so far: argument 'data' has another length in most calls; pad it" in message


def test_lengths_that_share_machine_code_need_no_padding(monkeypatch):
    monkeypatch.setattr(notices, "LONG", 0.0)
    p = np.array([0.3, -0.2])
    fast = chainrule.compile(lambda p, data: sum((p[0] * x + p[1]).tanh() for x in data), lift=True)
    samples = [([0.1 * k for k in range(n)],) for n in range(40, 20, -2)]
    optimizer = chainrule.optim.Adam(p)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fast.train(p, samples, optimizer, 40, batch=2)
    variants = [v for s in fast.dispatch.structures.values() for v in s.variants]
    machines = {id(v.machine) for v in variants if v.machine is not None}
    assert len(variants) > len(machines) > 0, "they share code"
    assert not [str(x.message) for x in caught if "length" in str(x.message)]


BIG = np.zeros((100, 500))


def reads_a_big_array(p, k):
    return p * BIG[k, 3]


def shuffles(p, seed):
    order = [1.0, 2.0, 3.0]
    random.Random(seed).shuffle(order)
    return p * order[0]


@native
@pytest.mark.parametrize(
    ("function", "why"),
    [
        (reads_a_big_array, "400,000 bytes of arrays that it reads by itself are compared"),
        (shuffles, "a replay calls functions of Python's"),
    ],
)
def test_a_report_says_why_eager_calls_are_quicker(function, why, monkeypatch):
    monkeypatch.setattr(allowance, "left", 0.3)
    fast = chainrule.compile(function)
    for k in range(100):
        fast.value_and_grad(2.0, k)
    assert f"  eager as that is quicker: {why}" in fast.report()


def with_a_place(p, data):
    found = [p * x for x in data]
    return sum(found) * 2.0, 1 if found[0].data > 0.0 else 0


def with_a_share(p, data):
    found = [p * x for x in data]
    return sum(found) * 2.0, 1.0 if found[0].data > 0.0 else 0.0


@native
def test_an_integer_that_is_returned_beside_the_value_is_told_as_what_takes_long(monkeypatch):
    monkeypatch.setattr(allowance, "left", 0.3)
    reports = []
    for function in (with_a_place, with_a_share):
        fast = chainrule.compile(function)
        for _ in range(100):
            fast.value_and_grad(2.0, [0.5, 1.0])
        reports.append(fast.report())
    assert reports[0].splitlines()[-1] == (
        "  eager as that is quicker: its results are put together in Python, for one is of type "
        "int; return floats"
    )
    assert "eager as that is quicker" not in reports[1]


@native
def test_a_report_says_that_a_function_is_not_recorded_yet(monkeypatch):
    monkeypatch.setattr(allowance, "left", 0.0)
    fast = chainrule.compile(scaled)
    fast.value_and_grad(2.0, [1.0])
    assert "eager until its calls have taken as long as recording one" in fast.report()


def test_what_somebody_shows_while_it_is_recorded_is_not_told_as_well(monkeypatch):
    monkeypatch.setattr(notices, "LONG", 0.0)
    fast, weights = chainrule.compile(chooses, lift=True), {"w": np.ones(4)}
    samples = [([1, 2, 3] * n,) for n in range(1, 8)]
    shown = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast.trainer(
            weights, samples, optim.Adam(weights), progress=lambda *counts: shown.append(counts)
        )
    assert shown[-1] == (7, 7)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        chainrule.compile(chooses, lift=True).train(weights, samples, optim.Adam(weights), 7)
    assert "chooses is slow to compile" in str(caught[-1].message)


def chooses(weights, tokens):
    return sum(weights["w"][t] * weights["w"][t + 0] for t in tokens)


def test_one_recording_that_takes_long_in_few_operations_is_told(monkeypatch):
    monkeypatch.setattr(notices, "LONG", 0.0)
    with pytest.warns(chainrule.FallbackWarning) as caught:
        chainrule.compile(scaled).value_and_grad(2.0, LENGTHS[0])
    (warning,) = caught
    assert str(warning.message).startswith("scaled is slow to compile: recording and building one")
    assert warning.filename == __file__


TABLE = tuple(7 * k % 3 for k in range(5_000))


def looks_up(p, at):
    return p[TABLE[at]] * p[TABLE[at + 1]]  # a large table


def counts_up(p, n):
    for k in range(5_000):
        n = n * 3 + k  # many integers
        n = n % 1_000
    return p[n % 3] ** 2


@pytest.mark.parametrize(
    ("function", "line"), [(looks_up, "a large table"), (counts_up, "many integers")]
)
def test_what_takes_long_beside_operations_is_told_with_its_line(function, line, monkeypatch):
    told = notices.Notices("loss", "warn")
    call = flatten_call(([0.5, 1.5, 2.5], 7), {}, differentiate=True)
    with told.recording():
        trace(function, survey(function), call)
        monkeypatch.setattr(notices, "LONG", 0.0)
        with pytest.warns(chainrule.FallbackWarning) as caught:
            report_progress()
    assert re.sub(r"\d+\.\d s", "1.0 s", str(caught[0].message)) == with_lines(
        "loss is slow to compile: recording and building one call took 1.0 s so far, among others "
        f"at {{{line}}}"
    )


def test_what_takes_long_after_recording_is_told_before_it_goes_on_with_a_line(monkeypatch):
    told = notices.Notices("loss", "warn")
    with told.recording():
        report_progress(65_536)  # many operations
        monkeypatch.setattr(notices, "LONG", 0.0)
        with pytest.warns(chainrule.FallbackWarning) as caught:
            report_progress()
    assert re.sub(r"\d+\.\d s", "1.0 s", str(caught[0].message)) == with_lines(
        "loss is slow to compile: recording and building one call took 1.0 s so far, among others "
        "at {many operations}"
    )
