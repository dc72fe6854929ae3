"""The commands about GPTs: train, sample, inspect, compare.

Each reads its options, calls ``chainrule.gpt`` and prints.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count as count_up
from pathlib import Path
from typing import Any, Literal

from cyclopts import App
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

from chainrule import gpt
from chainrule.cli.reporting import Output, examples, file_named, reported, say
from chainrule.core.text import visible
from chainrule.files import write_atomically
from chainrule.gpt import charts, checkpoints, metrics
from chainrule.gpt.data import BUNDLED, load
from chainrule.gpt.metrics import Row

INTERRUPTED = 128  # plus the number of the signal is what a shell reports, and so do we
MOMENT = 0.05  # seconds: what is shown does not change more often
SMOOTH = 50  # single documents vary a lot: the loss shown is the mean of this many steps


def register(app: App) -> None:
    """Add the commands to the command line."""
    for command, *lines in (
        (train, "chainrule train", "chainrule train notes.txt --steps 500 --output runs/notes"),
        (sample, "chainrule sample runs/1", "chainrule sample runs/1 --prefix an --count 5"),
        (inspect, "chainrule inspect runs/1", "chainrule inspect runs/1 --text anna"),
        (
            compare,
            "chainrule compare runs/1 runs/2",
            "chainrule compare runs/1 runs/2 --output both.svg",
        ),
    ):
        usage = "Usage: chainrule train [FILE] [OPTIONS]" if command is train else None
        app.command(command, usage=usage, help_epilogue=examples(*lines))


# --- train --------------------------------------------------------------------------------------


@reported
def train(
    file: Path | None = None,
    /,
    *,
    preset: Literal["microgpt", "course", "book"] | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    block: int | None = None,
    tokens: Literal["char", "word"] | None = None,
    steps: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    seed: int | None = None,
    dtype: Literal["float64", "float32"] | None = None,
    validation: float | None = None,
    output: Output | None = None,
    resume: Path | None = None,
    save_every: int = 100,
    samples: int = 20,
    engine: Literal["auto", "eager", "compiled"] = "auto",
) -> None:
    """Train a GPT and print new documents of its own making.

    Without a FILE it learns first names and invents new ones.
    Ctrl-C saves and stops; --resume DIR goes on as if nothing had happened.

    Parameters
    ----------
    file
        Text to learn from: UTF-8, one document per line. Documents longer than the block are cut.
    preset
        The model and its training: microgpt (the default), course or book.
    layers
        How many layers the model has (1; book: 2).
    width
        How many numbers stand for a token (16; book: 32); a multiple of the heads.
    heads
        How many attention heads share them (4).
    block
        The longest sequence the model reads, in tokens (16; course: 8).
    tokens
        Whether a token is a character (the default) or a word (book).
    steps
        How many steps to train (1000; course: 500, book: 5000).
    batch
        Documents per step (1).
    lr
        The learning rate at the start (0.01).
    seed
        The seed of all random numbers (42); the same seed gives the same model.
    dtype
        The numbers to compute with (float64); float32 only with --engine compiled.
    validation
        The share of documents held out to measure the validation loss (0.1).
    output
        The folder to write; runs/1, runs/2, ... if none is given.
    resume
        Continue the run in this folder. Only --steps may change.
    save_every
        Steps between two checkpoints.
    samples
        How many new documents to print at the end.
    engine
        eager; compiled (machine code, its losses agree to rounding); or auto: whichever is quicker.
    """
    if samples < 0:
        raise gpt.GPTError(f"--samples must be at least 0, not {samples}")
    if save_every < 1:
        raise gpt.GPTError(f"--save-every must be at least 1, not {save_every}")
    model_options = {
        "layers": layers,
        "width": width,
        "heads": heads,
        "block": block,
        "tokens": tokens,
        "batch": batch,
        "learning_rate": lr,
        "seed": seed,
    }
    if resume is not None:
        fixed: dict[str, Any] = {
            **model_options,
            "preset": preset,
            "validation": validation,
            "output": output,
            "engine": None if engine == "auto" else engine,
            "dtype": dtype,
        }
        gpt.load(resume)  # before anything is written next to what may not be a run
        with gpt.RunFolder(resume if resume.is_dir() else resume.parent) as folder:
            run = _resumed(resume, file, steps, fixed)
            _train(run, folder, save_every, samples)
    else:
        options = model_options | {"steps": steps}
        changes = {name: option for name, option in options.items() if option is not None}
        config = gpt.Config.preset(preset or "microgpt").replace(**changes)
        share = 0.1 if validation is None else validation
        run = _started(file, config, share, engine, dtype or "float64")
        with _run_folder(output) as folder:
            _train(run, folder, save_every, samples)


def _started(
    file: Path | None, config: gpt.Config, validation: float, engine: str, dtype: str
) -> gpt.Run:
    if file is None and config.tokens == "word":
        raise gpt.GPTError(
            "a model of words needs a FILE of sentences: the bundled names are single words"
        )
    documents, source = load(file)
    return gpt.Run.start(
        documents, config, validation=validation, source=source, engine=engine, dtype=dtype
    )


def _resumed(
    directory: Path, file: Path | None, steps: int | None, fixed: dict[str, Any]
) -> gpt.Run:
    checkpoint = gpt.load(directory)
    same = {"engine": checkpoint.engine, "dtype": checkpoint.dtype}
    given = [n for n, option in fixed.items() if option is not None and option != same.get(n)]
    if given:
        option = {"learning_rate": "lr"}.get(given[0], given[0])
        raise gpt.GPTError(f"--{option} cannot change a run that is resumed")
    if file is None and checkpoint.source != BUNDLED:
        file = Path(checkpoint.source)
        if not os.path.isfile(file):  # a device or a pipe is no text to go on with
            raise gpt.GPTError(
                f"the run was started on {checkpoint.source!r}, which is not here: "
                f"name the file as well, chainrule train FILE --resume {directory}"
            )
    documents, source = load(file)
    return gpt.Run.resume(checkpoint, documents, source, steps)


def _run_folder(output: Path | None) -> gpt.RunFolder:
    if output is None:
        for number in count_up(1):
            folder = Path("runs") / str(number)
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
            return gpt.RunFolder(folder)
    assert output is not None
    made = gpt.RunFolder(output)
    if (output / checkpoints.FILE).exists():
        made.release()
        raise gpt.GPTError(
            f"there is a run in {str(output)!r} already: continue it with --resume {output}, "
            "or give another --output"
        )
    return made


def _train(run: gpt.Run, folder: gpt.RunFolder, save_every: int, samples: int) -> None:
    console = Console()
    config, data = run.config, run.data
    documents = len(data.training) + len(data.validation)
    say(
        console,
        f"{_some(documents, 'document')} from {data.source}, {len(data.validation):,} of them held "
        f"out; {_some(run.tokenizer.size, 'token')}",
    )
    say(
        console,
        f"{_some(len(run.model.parameters()), 'parameter')}: {_some(config.layers, 'layer')}, "
        f"width {config.width}, {_some(config.heads, 'head')}, block {config.block}; "
        f"{run.engine.name}{'' if run.engine.dtype == 'float64' else f', {run.engine.dtype}'}",
    )
    if run.step == config.steps:
        say(console, f"step {run.step} was the last one; --steps with a larger number goes on")
    elif run.step:
        say(console, f"continuing after step {run.step} of {config.steps}")
    began = time.perf_counter()
    with stopping() as signals, _progress(console, run) as report:
        rows = gpt.train(
            run, folder, save_every=save_every, report=report, stop=lambda: bool(signals)
        )
    seconds = time.perf_counter() - began
    if run.step < config.steps:
        say(
            console,
            f"stopped after step {run.step} of {config.steps}; "
            f"continue with: chainrule train --resume {folder.path}",
        )
        raise SystemExit(INTERRUPTED + signals[0])
    if rows:
        say(console, f"{_losses(rows)} ({seconds:.1f} s)")
    say(console, f"saved in {folder.path}: {checkpoints.FILE}, {metrics.FILE}, loss.svg")
    if samples:
        _print_new_documents(console, run, samples)


def _some(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number:,} {thing}s"


def _losses(rows: list[Row]) -> str:
    recent = [row.loss for row in rows[-SMOOTH:]]
    text = f"loss {statistics.fmean(recent):.4f} (mean of the last {len(recent)} steps)"
    if rows[-1].validation_loss is not None:
        text += f", validation loss {rows[-1].validation_loss:.4f}"
    return text


def _print_new_documents(console: Console, run: gpt.Run, samples: int) -> None:
    known = {*run.data.training, *run.data.validation}
    thing = "new name" if run.data.source == BUNDLED else "new document"
    none = "not" if samples == 1 else "none of them"
    say(console)
    say(console, f"{_some(samples, thing)}, {none} in the data:", style="bold")
    found = 0
    for text in gpt.new_documents(run.model, run.tokenizer, run.rng, known, samples):
        say(console, text)
        found += 1
    if found < samples:
        say(console, f"(only {found}: the model mostly repeats what it has read)")


@contextmanager
def _progress(console: Console, run: gpt.Run) -> Iterator[Callable[[Row], None]]:
    """Show how far training is: a bar in a terminal, ten lines elsewhere."""
    recent: deque[float] = deque(maxlen=SMOOTH)
    # Compiled steps come many at a time: one point for each such lot.
    times: deque[tuple[int, float]] = deque([(run.step, time.perf_counter())], maxlen=SMOOTH)
    total = run.config.steps

    def note(row: Row) -> bool:
        """Take notice of a step; whether enough time has passed to show something new."""
        recent.append(row.loss)
        now, (_, before) = time.perf_counter(), times[-1]
        later = now - before > MOMENT or len(times) == 1
        if later:
            times.append((row.step, now))
        else:
            times[-1] = (row.step, before)
        return later or row.step == total

    def figures() -> tuple[float, float]:
        (first, begun), (last, now) = times[0], times[-1]
        return statistics.fmean(recent), (last - first) / max(now - begun, 1e-9)

    if run.step == total:
        yield lambda row: None
        return
    if not console.is_terminal:

        def print_line(row: Row) -> None:
            note(row)
            if row.step * 10 // total > (row.step - 1) * 10 // total:
                loss, speed = figures()
                say(console, f"step {row.step}/{total}  loss {loss:.4f}  {speed:.1f} steps/s")

        yield print_line
        return

    with Progress(
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]}"),
        TextColumn("{task.fields[speed]} steps/s"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        console=console,
        expand=True,
        refresh_per_second=5,
    ) as progress:
        task = progress.add_task("", total=total, completed=run.step, loss="-", speed="-")

        def update(row: Row) -> None:
            if note(row):
                loss, speed = figures()
                progress.update(task, completed=row.step, loss=f"{loss:.4f}", speed=f"{speed:.1f}")

        yield update


@contextmanager
def stopping() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM instead of being interrupted anywhere; a second one interrupts."""
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may have handlers
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- sample -------------------------------------------------------------------------------------


@reported
def sample(
    directory: Path,
    /,
    *,
    count: int = 20,
    temperature: float = 0.5,
    top_k: int | None = None,
    top_p: float | None = None,
    prefix: str = "",
    seed: int | None = None,
) -> None:
    """Print new documents of a trained model, one per line.

    Parameters
    ----------
    directory
        The folder of a run, or a checkpoint file.
    count
        How many documents.
    temperature
        Near 0: the likeliest only; 1: as the model sees it; above: wilder.
    top_k
        Choose among the k likeliest tokens only.
    top_p
        Choose among the likeliest tokens that together reach this probability.
    prefix
        What every document begins with.
    seed
        The same seed gives the same documents.
    """
    if count < 0:
        raise gpt.GPTError(f"--count must be at least 0, not {count}")
    checkpoint = gpt.load(directory)
    choice = gpt.Choice(temperature, top_k, top_p)
    model, rng, console = checkpoint.model(), random.Random(seed), Console()
    for text in gpt.documents(model, checkpoint.tokenizer, rng, count, choice, prefix):
        say(console, text)


# --- inspect ------------------------------------------------------------------------------------


@reported
def inspect(
    directory: Path,
    /,
    *,
    text: str | None = None,
    seed: int | None = None,
    likeliest: int = 5,
    output: Output | None = None,
) -> None:
    """Look inside a trained model while it reads one document.

    Prints its parameters and what it expected at each place, and writes
    attention.svg, probabilities.svg, activations.svg and gradients.svg.

    Parameters
    ----------
    directory
        The folder of a run, or a checkpoint file.
    text
        The document to read; a new one of the model's own if none is given.
    seed
        The seed of that new document (0).
    likeliest
        How many of the likeliest tokens to show at each place.
    output
        The folder for the pictures; DIRECTORY/inspect if none is given.
    """
    checkpoint = gpt.load(directory)
    model, tokenizer, console = checkpoint.model(), checkpoint.tokenizer, Console()
    if text is None:
        text = gpt.generate(model, tokenizer, random.Random(seed or 0))
    elif seed is not None:
        raise gpt.GPTError("--seed is for a new document: there is none with --text")
    seen = gpt.inspect(model, tokenizer, text, likeliest)
    parent = directory if directory.is_dir() else directory.parent
    paths = seen.save(output if output is not None else parent / "inspect")

    total = sum(rows * columns for rows, columns in (m.shape for m in seen.matrices))
    say(console, f"step {checkpoint.step} of {checkpoint.config.steps}, {total:,} parameters")
    table = Table("weights", *map(_right, ("shape", "mean", "std", "min", "max", "|gradient|")))
    for m in seen.matrices:
        numbers = (m.mean, m.std, m.smallest, m.largest, m.gradient_norm)
        shape = f"{m.shape[0]}×{m.shape[1]}"
        table.add_row(m.name.replace("layers.", ""), shape, *(f"{x:.3g}" for x in numbers))
    console.print(table)
    say(console)
    say(console, f"{seen.document!r}: loss {seen.loss:.4f}")
    table = Table("token", _right("probability"), "expected")
    for p in seen.predictions:
        others = "  ".join(f"{name} {chance:.2f}" for name, chance in p.likeliest)
        table.add_row(_plain(p.token), f"{p.probability:.3f}", _plain(others))
    console.print(table)
    for path in paths:
        say(console, f"wrote {path}")


def _right(title: str) -> Column:
    return Column(title, justify="right")


def _plain(text: str) -> Text:
    return Text(visible(text))


# --- compare ------------------------------------------------------------------------------------


@reported
def compare(first: Path, second: Path, /, *, output: Output = Path("compare.svg")) -> None:
    """Draw the loss curves of two runs in one picture.

    Parameters
    ----------
    first
        The folder of a run.
    second
        The folder of another.
    output
        The picture to write.
    """
    file = file_named(output, ".svg")
    if first.resolve() == second.resolve():
        raise gpt.GPTError("a run can only be compared with another one")
    runs = {str(path): metrics.read(path) for path in (first, second)}
    for name, rows in runs.items():
        if not rows:
            raise gpt.GPTError(f"the run in {name!r} has no steps yet")
    write_atomically(file, charts.losses(runs))
    console = Console()
    table = Table("run", *map(_right, ("steps", "loss", "validation loss", "best")))
    for name, rows in runs.items():
        validations = [r.validation_loss for r in rows if r.validation_loss is not None]
        recent = [row.loss for row in rows[-SMOOTH:]]
        table.add_row(
            _plain(name),
            f"{rows[-1].step}",
            f"{statistics.fmean(recent):.4f}",
            f"{validations[-1]:.4f}" if validations else "-",
            f"{min(validations):.4f}" if validations else "-",
        )
    console.print(table)
    say(console, f"loss: the mean of the last {SMOOTH} steps; best: the lowest validation loss")
    say(console, f"wrote {file}")
