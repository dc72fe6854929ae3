"""The command bench: how fast each way to a gradient is on this machine.

The contestants take turns in one process and keep the minimum of their turns; what is said about
speed are ratios of these minima. Each must find the reference engine's loss before it is timed.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from time import get_clock_info, perf_counter, process_time

from cyclopts import App
from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chainrule.cli.contestants import (
    Call,
    Contestant,
    contestants,
    loss,
    samples,
    version_of,
    weights,
)
from chainrule.core.value import Value

# Processor time leaves out what other programs took meanwhile, where it is fine enough.
clock = process_time if get_clock_info("process_time").resolution < 1e-6 else perf_counter

TURN = 0.02  # seconds: shorter calls are repeated until a turn takes about as long
BUDGET = {"quick": 3.0, "full": 15.0}  # seconds for all turns together
DECADE = 3  # the length of a bar for a factor of ten

SECTIONS = {
    "gradient": "loss and gradient",
    "step": "training step, with Adam",
}


def register(app: App) -> None:
    """Add the command to the command line."""
    app.command(bench)


def bench(*, quick: bool = False) -> None:
    """Measure how fast gradients are on this machine.

    A GPT like microgpt's reads names of seven letters, and everybody computes its
    loss and the gradient by all 4,192 weights: the engines, the tape, compiled
    code, whole training steps, and those peers that are installed (micrograd,
    autograd, jax, torch). This takes about half a minute.

    Parameters
    ----------
    quick
        Fewer turns: some ten seconds, and rougher figures.
    """
    console = Console()
    console.print(Text(machine(), overflow="fold"))
    entries = measure(console, BUDGET["quick" if quick else "full"])
    console.print(table(entries))
    bar = "━" * DECADE
    notes = [
        "first: until the first result, where something is built for it; each: per name",
        f"speed: how many fit into one of the reference engine; {bar} is a factor of ten",
        *[f"{e.contestant.name}: {e.problem}" for e in entries if e.problem is not None],
    ]
    console.print(Text("\n".join(notes)))


def machine() -> str:
    """One line on what this runs on."""
    name = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            models = [line.partition(":")[2].strip() for line in file if "model name" in line]
        name = models[0] if models else name
    except OSError:
        pass
    python = platform.python_version()
    own = version_of("chainrule")
    return f"chainrule{own}, Python {python}, {name}, {os.cpu_count()} cores"


# --- measuring ------------------------------------------------------------------------------------


@dataclass
class Entry:
    """A contestant and what was found out about it."""

    contestant: Contestant
    call: Call | None = None
    first: float = 0.0  # seconds until the first result
    calls: int = 1  # in a turn
    turns: int = 0
    seconds: float = math.inf  # per name
    problem: str | None = None  # why it could not take part

    def prepare(self, wanted: float) -> None:
        """Build it, compare its first result, and see how long a call takes."""
        try:
            began = clock()
            call = self.contestant.make()
            found = call()
            self.first = clock() - began
            if not math.isclose(found, wanted, rel_tol=self.contestant.tolerance):
                raise ValueError(f"its loss is {found!r}, not {wanted!r}")
            seconds = self.first
            for _ in samples() if self.contestant.builds else ():  # each name may need something
                began = clock()
                call()
                seconds = clock() - began
            self.calls = max(1, round(TURN / max(seconds, 1e-6)))
        except Exception as error:  # a peer of another version, a platform without LLVM: go on
            reason = str(error).strip().partition("\n")[0]
            self.problem = f"{type(error).__name__}: {reason}" if reason else type(error).__name__
        else:
            self.call = call

    def turn(self) -> None:
        """Measure some calls; the best counts."""
        assert self.call is not None
        began = clock()
        for _ in range(self.calls):
            self.call()
        seconds = (clock() - began) / self.calls / self.contestant.names
        self.seconds = min(self.seconds, seconds)
        self.turns += 1


def measure(console: Console, budget: float) -> list[Entry]:
    """Let everybody take turns until the time is up."""
    entries = [Entry(contestant) for contestant in contestants()]
    values = {name: [[Value(x) for x in row] for row in rows] for name, rows in weights().items()}
    losses = [float(loss(values, tokens).data) for tokens in samples()]
    with console.status("measuring") as status, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of peers are of no use here
        for entry in entries:
            status.update(f"preparing {entry.contestant.name}")
            entry.prepare(fmean(losses) if entry.contestant.mean else losses[0])
        take_turns([entry for entry in entries if entry.problem is None], budget, status.update)
    return entries


def take_turns(entries: list[Entry], budget: float, show: Callable[[str], None]) -> None:
    """Everybody once, then once more, and so on; at least once."""
    gc.collect()
    gc.freeze()
    deadline = perf_counter() + budget
    try:
        while True:
            for entry in entries:
                most = entry.contestant.turns
                if most is None or entry.turns < most:
                    show(f"measuring {entry.contestant.name}")
                    gc.collect()  # nobody pays for another's garbage
                    entry.turn()
            if perf_counter() > deadline:
                return
    finally:
        gc.unfreeze()


# --- the table ------------------------------------------------------------------------------------


def table(entries: list[Entry]) -> Table:
    """All figures, the two sections one below the other."""
    right = ("first", "each", "speed")
    found = Table("", *[Column(name, justify="right") for name in right], "", box=box.SIMPLE)
    slowest = entries[0].seconds
    for section, title in SECTIONS.items():
        rows = [e for e in entries if e.contestant.section == section and e.problem is None]
        if not rows:
            continue
        found.add_section()
        found.add_row(Text(title, style="bold"))
        for entry in rows:
            speed = slowest / entry.seconds
            first = f"{entry.first:.2f} s" if entry.contestant.builds else ""
            bar = "━" * max(1, round(1 + DECADE * math.log10(max(speed, 1.0))))
            own = entry.contestant.own
            cells = (first, duration(entry.seconds), f"{speed:,.{1 if speed < 10 else 0}f}×")
            found.add_row(
                f"  {entry.contestant.name}", *cells, Text(bar, "green" if own else "blue")
            )
    return found


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best, three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            number = seconds / size
            digits = 0 if number >= 100 else 1 if number >= 10 else 2
            return f"{number:.{digits}f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
