"""The programs of benchmarks/idioms.py run, eagerly and compiled, and a difference is found."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import chainrule

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if not BENCHMARKS.exists():
    pytest.skip("there are no benchmarks here", allow_module_level=True)
sys.path.append(str(BENCHMARKS))  # last: both folders have a programs.py

import idioms  # noqa: E402
from idiom_programs import FIELDS, entries, entry_named  # noqa: E402
from idiom_programs.registry import Field  # noqa: E402

HANDFUL = [
    "language.bigram.zip",
    "language.padded.break",
    "networks.chosen_function.by_token",
    "attention.all_positions.heads",
    "attention.last_position.cache",
    "numerics.gauss.pivoting",
    "simulation.pid.saturation",
    "finance.bond.curve",
    "statistics.ragged.groups",
    "geometry.graph.springs",
    "objects.state_outside.learning_rate",
    "functions.tokens.automaton",
]


@pytest.mark.filterwarnings(
    "ignore:Bitwise inversion:DeprecationWarning"
)  # of a bool, from 3.12 on
@pytest.mark.parametrize("field", FIELDS)
def test_every_entry_runs_eagerly_in_both_ways_with_the_same_result(field):
    for entry in entries([field]).values():
        outcomes = []
        for way in (idioms.eager_of, idioms.backward_of):
            entry.reset()
            call = way(entry.function)
            outcomes.append([call(*arguments) for arguments in entry.calls(2)])
        for result, expected in zip(*reversed(outcomes), strict=True):
            assert idioms.difference(result, expected, same_types=False) is None, entry.name
    assert len(entries([field])) >= (12 if field in ("attention", "lengths") else 20)


def test_the_calls_of_an_entry_differ_from_each_other_and_are_always_the_same():
    calls = entry_named("language.bigram.zip").calls(3)
    again = entry_named("language.bigram.zip").calls(3)
    for (table, tokens), (same_table, same_tokens) in zip(calls, again, strict=True):
        assert (table == same_table).all()
        assert tokens == same_tokens
    assert (calls[0][0] != calls[1][0]).any()
    assert calls[0][1] != calls[1][1]


@pytest.mark.parametrize("name", HANDFUL)
def test_compiled_calls_agree_with_eager_ones(name):
    entry = entry_named(name)
    outcomes = []
    for call in (
        idioms.eager_of(entry.function),
        chainrule.compile(entry.function).value_and_grad,
    ):
        entry.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", chainrule.FallbackWarning)
            outcomes.append([idioms.outcome(call, arguments) for arguments in entry.calls(12)])
    for expected, result in zip(*outcomes, strict=True):
        assert idioms.difference(result, expected, same_types=True) is None


@pytest.mark.parametrize(
    ("result", "words"),
    [
        ((2.0, [1.0, 3.0000001]), r"gradient\[1\] is 3.0000001 instead of 3.0"),
        ((2.0000001, [1.0, 3.0]), r"value\[0\] is 2.0000001 instead of 2.0"),
        ((2.0, [1.0, float("nan")]), r"gradient\[1\] is nan instead of 3.0"),
        ((2.0, [1.0]), "the gradient has 1 numbers instead of 2"),
        ((2.0, (1.0, 3.0)), "the gradient is tuple instead of list"),
        (ValueError("log"), r"ValueError\('log'\) instead of \(2.0, \[1.0, 3.0\]\)"),
    ],
)
def test_a_wrong_result_is_a_difference(result, words):
    expected = (2.0, [1.0, 3.0])
    assert re.fullmatch(words, idioms.difference(result, expected, same_types=True))
    assert idioms.difference(expected, expected, same_types=True) is None


class Late:
    """A compiler whose results are wrong after 200 calls."""

    def __init__(self, function):
        self.eager, self.calls = idioms.eager_of(function), 0

    def value_and_grad(self, *arguments):
        self.calls += 1
        value, gradient = self.eager(*arguments)
        return value * (1.0 + 1e-6 * (self.calls > 200)), gradient

    def report(self):
        return "1 replayed, 1 eager; 1 recordings"


def test_a_result_that_is_wrong_in_the_long_run_alone_is_found(monkeypatch):
    monkeypatch.setattr(idioms.chainrule, "compile", Late)
    monkeypatch.setattr(idioms, "LONG_CALLS", 300)
    row = idioms.measure(entry_named("functions.rosenbrock.of_one"), 50, 10.0)
    assert row["differences"] == 100
    assert re.match(r"compiled, call 200: value\[0\]", row["difference"])


def test_what_the_last_bits_of_the_parameters_decide_is_rounding():
    def difference_of_large_numbers(rng):
        while True:
            yield (float(rng.uniform(1.0, 2.0)),)

    idiom = Field("made_up").idiom(difference_of_large_numbers)

    @idiom.spelling
    def difference_of_large_numbers_first(x):
        return (x * 1e6) ** 2 - (x * 1e6 + 1e-3) ** 2

    (entry,) = idiom.field.entries
    eager = idioms.eager_of(entry.function)
    value, gradient = idioms.compact(eager(*entry.calls(1)[0]))
    for error, expected in ((1e-7, True), (1e-1, False)):
        wrong = [value * (1.0 + error), gradient]
        assert idioms.is_rounding(entry, eager, 0, wrong, [value, gradient]) is expected


def run(*arguments):
    command = [sys.executable, str(BENCHMARKS / "idioms.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_command_prints_a_row_and_writes_all_figures_and_the_page(tmp_path):
    figures, page = tmp_path / "figures.json", tmp_path / "page.md"
    done = run("--only", "of_one$", "--calls", "4", "--json", figures, "--markdown", page)
    assert done.returncode == 0, done.stderr
    assert "functions.rosenbrock.of_one" in done.stdout
    assert "different from eager: none" in done.stdout
    (row,) = json.loads(figures.read_text())
    assert row["compiled"]["calls"] == 4
    assert row["differences"] == 0
    assert len(row["long"]["compiled"]) == len(row["long"]["eager"]) == idioms.LONG_CALLS
    assert "| `rosenbrock.of_one` | " in page.read_text()


def test_a_pattern_that_no_entry_has_is_an_error_that_says_so():
    done = run("--only", "nothing like it")
    assert done.returncode == 2
    assert "no entry's name matches 'nothing like it'" in done.stderr
