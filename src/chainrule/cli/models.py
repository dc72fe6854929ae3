"""The commands about GPTs: sample, inspect, compare; and train, which is in ``training``.

Each reads its options, calls ``chainrule.gpt`` and prints.
"""

from __future__ import annotations

import random
import statistics
from pathlib import Path

from cyclopts import App
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from chainrule import gpt
from chainrule.cli.reporting import Output, examples, file_named, reported, say, say_all
from chainrule.cli.training import model_class, train
from chainrule.core.text import visible
from chainrule.files import write_atomically
from chainrule.gpt import charts, metrics
from chainrule.gpt.curve import RECENT, Curve


def register(app: App) -> None:
    """Add the commands to the command line."""
    for command, *lines in (
        (
            train,
            "chainrule train",
            "chainrule train notes.txt --steps 500 --output runs/notes",
            "chainrule train book.txt --stream --block 32 --batch 8 --clip 1",
        ),
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
    model: str | None = None,
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
    model
        The class of the model, FILE.py:CLASS, if it was trained with one of your own.
    """
    if count < 0:
        raise gpt.GPTError(f"--count must be at least 0, not {count}")
    checkpoint = gpt.load(directory)
    choice = gpt.Choice(temperature, top_k, top_p)
    made, rng = _model(checkpoint, model), random.Random(seed)
    say_all(gpt.documents(made, checkpoint.tokenizer, rng, count, choice, prefix))


def _model(checkpoint: gpt.Checkpoint, place: str | None) -> gpt.GPT:
    return checkpoint.model(gpt.GPT if place is None else model_class(place))


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
    model: str | None = None,
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
    model
        The class of the model, FILE.py:CLASS, if it was trained with one of your own.
    """
    checkpoint = gpt.load(directory)
    made, tokenizer, console = _model(checkpoint, model), checkpoint.tokenizer, Console()
    if text is None:
        text = gpt.generate(made, tokenizer, random.Random(seed or 0))
    elif seed is not None:
        raise gpt.GPTError("--seed is for a new document: there is none with --text")
    seen = gpt.inspect(made, tokenizer, text, likeliest)
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
def compare(
    first: Path, second: Path, /, *more: Path, output: Output = Path("compare.svg")
) -> None:
    """Draw the loss curves of two runs, or of more, in one picture.

    Parameters
    ----------
    first
        The folder of a run.
    second
        The folder of another.
    more
        Folders of more runs.
    output
        The picture to write.
    """
    file, folders = file_named(output, ".svg"), (first, second, *more)
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise gpt.GPTError("a run can only be compared with another one")
    runs = {str(path): Curve(metrics.rows_of(path)) for path in folders}
    for name, curve in runs.items():
        if not len(curve):
            raise gpt.GPTError(f"the run in {name!r} has no steps yet")
    write_atomically(file, charts.losses(runs))
    console = Console()
    table = Table("run", *map(_right, ("steps", "loss", "validation loss", "best")))
    for name, curve in runs.items():
        last = list(curve.validations.values())[-1:]
        table.add_row(
            _plain(name),
            f"{curve.steps[-1]}",
            f"{statistics.fmean(curve.recent):.4f}",
            f"{last[0]:.4f}" if last else "-",
            f"{curve.best[1]:.4f}" if curve.best else "-",
        )
    console.print(table)
    say(console, f"loss: the mean of the last {RECENT} steps; best: the lowest validation loss")
    say(console, f"wrote {file}")
