"""The reason why a call runs eagerly names the user's line, and says what to write instead."""

import array
import builtins
import collections
import datetime
import inspect
import itertools
import json
import math
import random
import statistics
import threading
import warnings
from datetime import timedelta
from pathlib import Path
from random import gauss

import numpy as np
import pytest
from scipy import stats

import chainrule

RNG = np.random.default_rng(1)
RAND = np.random.rand
QUEUE = collections.deque([1.0])
COUNT = itertools.count()
PATH = Path("missing")


def line_with(text):
    """Where a mark of this file is, as messages write it."""
    lines = Path(__file__).read_text().splitlines()
    found = [k for k, line in enumerate(lines, 1) if line.endswith(f"# {text}")]
    return f"test_compile_reasons.py:{found[0]}"


def reason(function, *arguments):
    fast = chainrule.compile(function, on_fallback="eager")
    fast.value_and_grad(*arguments)
    return next(x for x in fast.report().splitlines() if "eager because" in x)


def drawn_by_name(p, x):
    scale = 2.0
    return p * random.random() * scale  # by name


def drawn_by_an_imported_name(p, x):
    scale = 2.0
    return p * gauss(0.0, 1.0) * scale  # by an imported name


def drawn_by_a_generator(p, x):
    scale = 2.0
    return p * RNG.normal() * scale  # by a generator


def drawn_from_numpy(p, x):
    scale = 2.0
    return p * RAND() * scale  # from numpy


class Noisy:
    def __init__(self):
        self.generator = np.random.default_rng(0)

    def attribute(self, p, x):
        scale = 2.0
        return p * self.generator.normal() * scale  # by an attribute


@pytest.mark.parametrize(
    ("function", "mark"),
    [
        (drawn_by_name, "by name"),
        (drawn_by_an_imported_name, "by an imported name"),
        (drawn_by_a_generator, "by a generator"),
        (drawn_from_numpy, "from numpy"),
        (Noisy().attribute, "by an attribute"),
    ],
)
def test_a_drawn_number_names_the_line_and_what_to_draw_from_instead(function, mark):
    found = reason(function, 2.0, 3)
    assert f"at {line_with(mark)}; take the numbers of chainrule.random and pass a key" in found


def of_a_distribution(p, x):
    scale = 2.0
    return p * stats.norm.cdf(x) * scale  # of a distribution


def test_code_of_a_package_that_may_draw_numbers_is_not_told_to_draw_others():
    assert reason(of_a_distribution, 2.0, 0.5).strip() == (
        "eager because it calls code of scipy, which is not known to be pure, at "
        f"{line_with('of a distribution')}; write it with functions of chainrule, as normal_cdf, "
        "or make an operation of it by @chainrule.operation(opaque=True) (1 times)"
    )


def of_the_mean(p, x):
    scale = 2.0
    return p * statistics.mean([x, 1.0]) * scale  # of the mean


def test_an_error_while_recording_is_told_with_the_line():
    assert reason(of_the_mean, 2.0, 0.5).strip() == (
        "eager because it calls statistics.mean, which fails on what stands for numbers while it "
        f"is recorded, at {line_with('of the mean')}; write it with operators and functions of "
        "chainrule, or pass its result as an argument (1 times)"
    )


SAMPLES = array.array("d", [1.0, 2.0])


def of_an_array(p):
    return p * SAMPLES[0]  # of an array


def test_what_cannot_be_watched_has_its_article():
    found, line = reason(of_an_array, 2.0), line_with("of an array")
    assert f"it reaches an array, which cannot be watched completely, at {line}" in found


def test_what_the_caller_puts_in_the_place_of_a_function_is_followed(monkeypatch):
    """No recording puts the original back, and none says that the function changes it."""
    sqrt, largest = math.sqrt, max

    def f(p, x):
        return p * math.sqrt(x)

    fast = chainrule.compile(f, on_fallback="raise", lift=True)
    assert fast.value_and_grad(0.5, 4.0) == (1.0, 2.0)
    monkeypatch.setattr(math, "sqrt", mine := lambda x: sqrt(x) + 1.0)
    monkeypatch.setattr(math, "exp", unused := lambda x: x)
    monkeypatch.setattr(builtins, "max", other := lambda *xs, **options: largest(*xs, **options))
    for _ in range(3):
        assert fast.value_and_grad(0.5, 4.0) == (1.5, 3.0)
    assert (math.sqrt, math.exp, max) == (mine, unused, other)
    monkeypatch.undo()
    for _ in range(3):
        assert fast.value_and_grad(0.5, 4.0) == (1.0, 2.0)
    assert math.sqrt is sqrt


def warned(function, calls):
    fast = chainrule.compile(function)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for arguments in calls:
            fast.value_and_grad(*arguments)
    return [str(x.message) for x in caught]


def by_its_name(p, name):
    scale = 2.0
    return getattr(chainrule, name)(p) * scale  # by its name


def test_names_that_are_asked_for_in_one_line_are_told_once():
    calls = [(0.5, ("exp", "tanh", "relu")[k % 3]) for k in range(60)]
    assert warned(by_its_name, calls) == [
        "by_its_name runs eagerly: asking the module chainrule for a name that is in no code at "
        f"{line_with('by its name')}"
    ]


def test_a_generator_that_changes_is_told_once():
    assert warned(drawn_by_a_generator, [(2.0, 3)] * 3000) == [
        "drawn_by_a_generator runs eagerly: it changes the state of a random generator at "
        f"{line_with('by a generator')}; take the numbers of chainrule.random and pass a key, or "
        "pass a seed and make the generator of it inside"
    ]


class Timestamp(datetime.datetime):
    """As that of pandas."""


OR_ITS_HOUR = "pass a number, as its timestamp(), or those that are read of it, as its hour"


@pytest.mark.parametrize(
    ("time", "instead"),
    [
        (datetime.datetime(2024, 1, 2, 3), OR_ITS_HOUR),
        (Timestamp(2024, 1, 2, 3), OR_ITS_HOUR),
        (datetime.time(3), "pass the numbers that are read of it, as its hour"),
        (np.datetime64("2024-01-02"), "pass a number, as x.astype(float) of it"),
        (np.timedelta64(3, "s"), "pass a number, as x / np.timedelta64(1, 's') of it"),
    ],
)
def test_a_time_is_told_with_the_number_to_pass_instead(time, instead):
    assert reason(lambda p, x: p * 2.0, 2.0, time).strip() == (
        f"eager because an argument of type {type(time).__name__} cannot be followed: {instead} "
        "(1 times)"
    )


def writes_json(p, x):
    scale = 2.0
    return p * len(json.dumps({"x": 3})) * scale  # writes json


def starts_a_thread(p, x):
    scale = 2.0
    threading.Thread(target=int).start()  # starts a thread
    return p * scale


def reads_a_file(p, x):
    scale = 2.0
    return p * (PATH.exists() or len(PATH.read_text())) * scale  # reads a file


@pytest.mark.parametrize(
    ("function", "mark"), [(writes_json, "writes json"), (starts_a_thread, "starts a thread")]
)
def test_what_a_library_does_is_told_with_the_line_that_calls_the_library(function, mark):
    assert f"at {line_with(mark)} (" in reason(function, 2.0, 3)


def test_reading_a_file_names_the_line():
    fast = chainrule.compile(reads_a_file, on_fallback="eager")
    with pytest.raises(FileNotFoundError):
        fast.value_and_grad(2.0, 3)
    assert (
        f"it may ask a path for what is in files, at {line_with('reads a file')}" in fast.report()
    )


def uses_a_queue(p, x):
    scale = 2.0
    return p * QUEUE[0] * scale  # uses a queue


def counts_on(p, x):
    scale = 2.0
    return p * next(COUNT) * scale  # counts on


def test_what_cannot_be_watched_is_told_with_what_to_pass_instead():
    line = line_with("uses a queue")
    assert f"{line}; pass it, or a list of its items, as an argument" in reason(
        uses_a_queue, 2.0, 3
    )
    assert f"{line_with('counts on')}; pass what it gives next" in reason(counts_on, 2.0, 3)


def by_module(p, days):
    day = datetime.date(2024, 1, 1) + datetime.timedelta(days=days)
    return p * (1.0 + day.weekday())


def by_imported_name(p, days):
    day = datetime.date(2024, 1, 1) + timedelta(days)
    return p * (1.0 + day.weekday())


def by_product(p, days):
    day = datetime.date(2024, 1, 1) + days * timedelta(1)
    return p * (1.0 + day.weekday())


@pytest.mark.parametrize("function", [by_module, by_imported_name, by_product])
def test_an_integer_that_becomes_a_span_of_time_is_static_there(function):
    fast = chainrule.compile(function, on_fallback="raise", lift=False)
    for days in (0, 1, 2, 0, 1, 9):
        assert fast.value_and_grad(2.0, days) == chainrule.value_and_grad(function)(2.0, days)
    line = inspect.getsourcelines(function)[1] + 1
    assert f"an integer is static at test_compile_reasons.py:{line}" in fast.report()


def labelled(p, label):
    return p * (2.0 if label.startswith("a") else 1.0)  # looks at a text


def test_a_text_that_is_static_is_called_a_text():
    fast = chainrule.compile(labelled, on_fallback="eager")
    for k in range(12):
        fast.value_and_grad(2.0, f"a{k:02}")
    found = fast.report()
    assert f"a text is static at {line_with('looks at a text')}" in found
    assert "an integer is static" not in found


def test_parameters_that_a_plain_call_reads_as_numbers_do_not_change_by_themselves():
    def rounded(p):
        return round(p[0] * 2)  # read as a number

    def narrow(p, x):
        return p[0] * x  # rounded to float32

    for function, mark, *arguments in (
        (rounded, "read as a number", [0.3]),
        (narrow, "rounded to float32", [0.5], np.float32(0.1)),
    ):
        fast = chainrule.compile(function, on_fallback="eager", lift=True)
        wanted = function(*arguments)
        assert fast(*arguments) == wanted
        assert type(fast(*arguments)) is type(wanted)
        told = fast.report()
        assert f"these numbers only, which Python reads at {line_with(mark)}" in told


def test_a_default_that_reading_stores_names_the_line_and_what_to_read_it_by():
    costs = collections.defaultdict(float, {1: 0.5})

    def f(p, k):
        scale = 2.0
        return p * costs[k] * scale  # by a default

    line = line_with("by a default")
    assert f"an object at {line}; read it by get(key, default), which stores nothing" in reason(
        f, 2.0, 5
    )
