"""The command bench: how fast each of chainrule's ways to a gradient is on this machine.

They take turns and keep the minimum of their turns; what is said about speed are ratios of these
minima. Each must find the loss of eager mode before it is timed. benchmarks/ in the repository
compares with other libraries.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import cycle
from statistics import fmean
from time import get_clock_info, perf_counter, process_time
from typing import Any

from cyclopts import App
from rich import box
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chainrule import gpt, optim
from chainrule.cli.reporting import examples
from chainrule.compiler import compile
from chainrule.core.backend import engine

# Processor time leaves out what other programs took meanwhile, where it is fine enough.
clock = process_time if get_clock_info("process_time").resolution < 1e-6 else perf_counter

TURN = 0.02  # seconds: shorter calls are repeated until a turn takes about as long
BUDGET = {"quick": 3.0, "full": 15.0}  # seconds for all turns together
DECADE = 3  # the length of a bar for a factor of ten
SECTIONS = {"gradient": "loss and gradient", "step": "training step, with Adam"}

NAMES = ["michael", "barbara", "richard", "charles"]  # eight positions: each predicts the next
STEPS = 400 if find_spec("llvmlite") else 20  # of training in one call: the names come in turn
CONFIG = gpt.Config()

#: makes so many calls; the last loss, and the seconds of one call
Run = Callable[[int], tuple[float, float]]


def register(app: App) -> None:
    """Add the command to the command line."""
    app.command(bench, help_epilogue=examples("chainrule bench", "chainrule bench --quick"))


def bench(*, quick: bool = False) -> None:
    """Measure how fast gradients are on this machine.

    A GPT like microgpt's reads names of seven letters, and each of chainrule's
    ways computes its loss and the gradient by all 4,192 weights: the reference
    engine, the native engine, the tape, compiled code and whole training steps.
    This takes about half a minute.

    Parameters
    ----------
    quick
        Fewer turns: some ten seconds, and rougher figures.
    """
    console = Console()
    console.print(Text(f"chainrule{_version()}, {machine()}", overflow="fold"))
    entries = measure(console, BUDGET["quick" if quick else "full"])
    console.print(table(entries))
    notes = [
        "first: until the first result, where something is built for it; each: per name",
        f"speed: how many fit into one of the reference engine; {'━' * DECADE} is a factor of ten",
        *[f"{e.name}: {e.problem}" for e in entries if e.problem is not None],
    ]
    console.print(Text("\n".join(notes)))


def _version() -> str:
    with suppress(PackageNotFoundError):
        return f" {version('chainrule')}"
    return ""


def machine() -> str:
    """What this runs on."""
    name = platform.processor() or platform.machine()
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if "model name" in line]
        name = models[0] if models else name
    return f"Python {platform.python_version()}, {name}, {os.cpu_count()} cores"


# --- the ways to a gradient -----------------------------------------------------------------------


def samples() -> list[list[int]]:
    """The names as numbers, each between two marks of its ends."""
    return [[26, *[ord(c) - ord("a") for c in name], 26] for name in NAMES]


def model() -> gpt.GPT:
    """The model that all of them compute the loss of."""
    return gpt.GPT(CONFIG, 27, random.Random(1))


def loss(weights: Any, tokens: Any) -> Any:
    """The model's loss as a function of its weights."""
    return gpt.GPT.of(CONFIG, weights).loss(tokens)


def timed(call: Callable[[], float]) -> Run:
    """The function called in this process."""

    def run(count: int) -> tuple[float, float]:
        began = clock()
        for _ in range(count):
            found = call()
        return found, (clock() - began) / count

    return run


def eager(with_adam: bool = False) -> Run:
    """Build the graph and walk it backwards."""
    gpt_model, turn = model(), cycle(samples())
    optimiser = optim.Adam(gpt_model.parameters(), lr=0.0)

    def call() -> float:
        found = gpt_model.loss(next(turn))
        found.backward()
        if with_adam:
            optimiser.step()
            optimiser.zero_grad()
        return found.data

    return timed(call)


def other_engine(name: str) -> Run:
    """The same on the engine that this process does not use: in a process of its own."""
    code = "import sys; from chainrule.cli import bench; print(*bench.eager()(int(sys.argv[1])))"

    def run(count: int) -> tuple[float, float]:
        command = [sys.executable, "-c", code, str(count)]
        environment = os.environ | {"CHAINRULE_ENGINE": name}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found, seconds = map(float, done.stdout.split())
        return found, seconds

    return run


def compiled(lift: bool) -> Run:
    """The function compiled: on the tape, or to machine code."""
    function = compile(loss, on_fallback="raise", lift=lift)
    arrays, turn = model().arrays(), cycle(samples())
    return timed(lambda: float(function.value_and_grad(arrays, next(turn))[0]))


def training(batch: int, dtype: str) -> Run:
    """Whole steps, Adam included; a learning rate of 0 keeps the losses what they were."""
    function = compile(loss, dtype=dtype, on_fallback="raise")
    arrays = {name: array.astype(dtype) for name, array in model().arrays().items()}
    optimiser = optim.Adam(arrays, lr=0.0)
    each = [(tokens,) for tokens in samples()]
    return timed(lambda: float(function.train(arrays, each, optimiser, STEPS, batch=batch)[0]))


@dataclass
class Entry:
    """One row: a way to the gradient, and what was found out about it."""

    name: str
    make: Callable[[], Run]
    section: str = "gradient"
    builds: bool = False  # the first call takes much longer than the others
    names: int = 1  # that a call goes through
    mean: bool = False  # the first loss it returns is the mean of all names
    tolerance: float = 1e-9
    most_turns: int | None = None  # that are enough
    run: Run | None = None
    first: float = 0.0  # seconds until the first result
    calls: int = 1  # in a turn
    turns: int = 0
    seconds: float = math.inf  # per name
    problem: str | None = None  # why it could not take part

    def prepare(self, wanted: float) -> None:
        """Build it, compare its first result, and see how long a call takes."""
        try:
            began = clock()
            self.run = self.make()
            found, seconds = self.run(1)
            self.first = clock() - began
            if not math.isclose(found, wanted, rel_tol=self.tolerance):
                raise ValueError(f"its loss is {found!r}, not {wanted!r}")
            for _ in samples() if self.builds else ():  # each name may need something
                _, seconds = self.run(1)
            self.calls = max(1, round(TURN / max(seconds, 1e-6)))
        except Exception as error:  # such as a platform without LLVM: go on without it
            reason = str(error).strip().partition("\n")[0]
            self.problem = f"{type(error).__name__}: {reason}" if reason else type(error).__name__

    def turn(self) -> None:
        """Measure some calls; the best counts."""
        assert self.run is not None
        self.seconds = min(self.seconds, self.run(self.calls)[1] / self.names)
        self.turns += 1


def everybody() -> Iterator[Entry]:
    """All that can take part here, in the order of the table."""
    native = engine == "native"
    slow = partial(other_engine, "reference") if native else eager
    yield Entry("reference engine", slow, most_turns=3)
    if native:
        yield Entry("native engine", eager)
        yield Entry("tape", partial(compiled, lift=False), builds=True)
    if find_spec("llvmlite") is not None:
        yield Entry("compiled", partial(compiled, lift=True), builds=True)
    if native:
        yield Entry("native engine", partial(eager, with_adam=True), "step")
    for batch, dtype in ((1, "float64"), (16, "float64"), (16, "float32")):
        yield Entry(
            "train" + (f", {batch} a step" if batch > 1 else "") + f", {dtype}",
            partial(training, batch, dtype),
            "step",
            builds=True,
            names=batch * STEPS,
            mean=batch > 1,
            tolerance=1e-4 if dtype == "float32" else 1e-9,
        )


# --- measuring ------------------------------------------------------------------------------------


def losses() -> list[float]:
    """What eager mode computes for each name."""
    gpt_model = model()
    return [gpt_model.loss(tokens).data for tokens in samples()]


def measure(console: Console, budget: float) -> list[Entry]:
    """Let everybody take turns until the time is up."""
    entries, wanted = list(everybody()), losses()
    with console.status("measuring") as status:
        for entry in entries:
            status.update(f"preparing {entry.name}")
            entry.prepare(fmean(wanted) if entry.mean else wanted[0])
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
                if entry.most_turns is None or entry.turns < entry.most_turns:
                    show(f"measuring {entry.name}")
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
        rows = [entry for entry in entries if entry.section == section and entry.problem is None]
        if not rows:
            continue
        found.add_section()
        found.add_row(Text(title, style="bold"))
        for entry in rows:
            speed = slowest / entry.seconds
            first = f"{entry.first:.2f} s" if entry.builds else ""
            bar = "━" * max(1, round(1 + DECADE * math.log10(max(speed, 1.0))))
            cells = (first, duration(entry.seconds), f"{speed:,.{1 if speed < 10 else 0}f}×")
            found.add_row(f"  {entry.name}", *cells, Text(bar, "green"))
    return found


def duration(seconds: float) -> str:
    """Seconds in the unit that reads best, three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            number = seconds / size
            digits = 0 if number >= 100 else 1 if number >= 10 else 2
            return f"{number:.{digits}f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
