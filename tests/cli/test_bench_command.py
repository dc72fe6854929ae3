"""The command bench: who takes part, and a table that fits."""

import gc
import math
import re

import pytest
from rich.console import Console

import chainrule
from chainrule.cli import app, bench
from chainrule.cli.bench import Entry

OWN = ["reference engine", "native engine", "tape", "compiled", "train, float64"]


@pytest.fixture(scope="module", autouse=True)
def frozen_again():
    """What the session has collected: bench lets it go."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command with as few turns as there can be; returns what it prints."""
    monkeypatch.setattr(bench, "BUDGET", {"quick": 0.0, "full": 0.0})
    monkeypatch.setattr(bench, "TURN", 1e-6)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            app(["bench", *arguments])
        captured = capsys.readouterr()
        assert end.value.code == 0
        assert captured.err == ""
        return captured.out

    return run


def enter(monkeypatch, *entered):
    monkeypatch.setattr(bench, "everybody", lambda: iter(entered))


def test_the_model_is_microgpts_size():
    assert len(bench.model().parameters()) == 4192
    assert {len(tokens) for tokens in bench.samples()} == {9}


def taking_part():
    """Those that can be prepared in no time: recording takes the reference engine a while."""
    return [e for e in bench.everybody() if chainrule.engine == "native" or not e.builds]


@pytest.mark.parametrize("entry", taking_part(), ids=lambda e: f"{e.section}: {e.name}")
def test_every_way_finds_the_loss(entry):
    losses = bench.losses()
    entry.prepare(sum(losses) / len(losses) if entry.mean else losses[0])
    assert entry.problem is None
    entry.turn()
    assert 0 < entry.seconds < math.inf


@pytest.mark.parametrize("entry", taking_part()[:2], ids=lambda e: e.name)
def test_they_go_through_the_names_in_turn(entry):
    """In another process too, where every run begins with the first name."""
    losses = bench.losses()
    run = entry.make()
    elsewhere = entry.name != f"{chainrule.engine} engine"
    counts = range(1, len(losses) + 2) if elsewhere else [1] * (len(losses) + 1)
    found = [run(count)[0] for count in counts]
    assert found == pytest.approx([*losses, losses[0]], rel=1e-9)


def test_the_table_has_everybody_and_fits_into_80_columns(run, monkeypatch):
    enter(monkeypatch, *taking_part())
    text = run("--quick")
    lines = text.splitlines()
    assert all(len(line.rstrip()) <= 80 for line in lines), text
    assert "\x1b" not in text, "what is piped is plain text"
    assert re.match(r"chainrule.*, Python 3\.", lines[0])
    for name in OWN if chainrule.engine == "native" else OWN[:1]:
        (row, *_) = [line for line in lines if line.strip().startswith(name)]
        assert re.search(r"[\d.]+ (s|ms|µs|ns) +[\d,.]+× +━+", row), row
    assert re.search(r"reference engine +[\d.]+ m?s +1\.0× +━ *$", text, re.MULTILINE)


class Clock:
    """Time that only passes where a call takes some."""

    now = 0.0

    def __call__(self):
        return self.now


def counter(loss=2.0, seconds=0.0):
    """Something that takes its time."""

    def make():
        def call():
            bench.clock.now += seconds
            return loss

        return bench.timed(call)

    return make


@pytest.fixture
def simple(monkeypatch):
    """A model whose loss is 2, so that others can take part."""
    monkeypatch.setattr(bench, "losses", lambda: [2.0] * 4)
    monkeypatch.setattr(bench, "clock", Clock())


def test_ratios_are_those_of_the_minima(simple, monkeypatch, run):
    enter(
        monkeypatch,
        Entry("slow", counter(seconds=0.02)),
        Entry("quick", counter(seconds=0.002)),
        Entry("lots", counter(seconds=0.002), names=10, section="step"),
    )
    text = run()
    speeds = {
        name: float(re.search(rf"{name} +[\d.]+ [mµ]s +([\d,.]+)×", text)[1].replace(",", ""))
        for name in ("slow", "quick", "lots")
    }
    assert speeds == {"slow": 1.0, "quick": 10.0, "lots": 100.0}


def test_who_fails_or_finds_something_else_is_named_and_left_out(simple, monkeypatch, run):
    def broken():
        raise RuntimeError("no such device\nand more")

    enter(
        monkeypatch,
        Entry("good", counter(seconds=1.0)),
        Entry("wrong", counter(loss=2.1)),
        Entry("broken", broken),
        Entry("nan", counter(loss=float("nan"))),
    )
    text = run()
    assert "wrong: ValueError: its loss is 2.1, not 2.0\n" in text
    assert "broken: RuntimeError: no such device\n" in text
    assert "nan: ValueError: its loss is nan, not 2.0\n" in text
    assert len(re.findall("━ *$", text, re.MULTILINE)) == 1


def test_slow_ones_take_fewer_turns(simple):
    entries = [
        Entry("slow", counter(seconds=1.0), most_turns=2),
        Entry("quick", counter(seconds=0.1)),
    ]
    for entry in entries:
        entry.prepare(2.0)
    bench.take_turns(entries, 0.5, lambda text: None)
    assert entries[0].turns == 2
    assert entries[1].turns > 2


def test_a_terminal_gets_colours_unless_it_wants_none(simple, monkeypatch):
    enter(monkeypatch, Entry("good", counter(seconds=1.0)))
    entries = bench.measure(Console(quiet=True), 0.0)
    for colour in (True, False):
        console = Console(force_terminal=True, no_color=not colour, width=80, color_system="256")
        with console.capture() as captured:
            console.print(bench.table(entries))
        assert ("\x1b[32m" in captured.get()) == colour


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5, "2.50 s"),
        (0.25, "250 ms"),
        (0.0123, "12.3 ms"),
        (9.876e-6, "9.88 µs"),
        (4e-7, "400 ns"),
        (0.0, "0 ns"),
    ],
)
def test_durations_read_well(seconds, text):
    assert bench.duration(seconds) == text


def test_help_says_what_it_does(capsys):
    with pytest.raises(SystemExit):
        app(["bench", "--help"])
    text = capsys.readouterr().out
    assert "--quick" in text
    assert "training steps" in text
    assert all(len(line) <= 80 for line in text.splitlines())
