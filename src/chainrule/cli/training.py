"""The command train: options, the run's folder, what is shown meanwhile, and how it ends.

Training itself runs in a thread of its own; this one answers Ctrl-C and keeps the terminal up to
date, whatever the other is busy with.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count as count_up
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from chainrule import gpt
from chainrule.cli.devices import chosen, leave_lost, spare_folder
from chainrule.cli.display import MOMENT, Lines, Terminal
from chainrule.cli.reporting import Output, reported, say, say_pieces
from chainrule.gpt import checkpoints, metrics, room
from chainrule.gpt.curve import Curve
from chainrule.gpt.data import BUNDLED, load
from chainrule.gpt.devices import LostProcessError, is_first_process
from chainrule.gpt.training import is_unvalidated, resuming, train_summarised

INTERRUPTED = 128  # plus the number of the signal is what a shell reports, and so do we
PASSAGE = 25  # tokens that a stream's model writes for each sample that is asked for


@reported
def train(
    file: Path | None = None,
    /,
    *,
    preset: Literal["microgpt", "course", "book", "shakespeare"] | None = None,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    block: int | None = None,
    tokens: Literal["char", "word"] | None = None,
    stream: bool | None = None,
    steps: int | None = None,
    batch: int | None = None,
    lr: float | None = None,
    schedule: Literal["constant", "linear", "cosine"] | None = None,
    weight_decay: float | None = None,
    clip: float | None = None,
    dropout: float | None = None,
    seed: int | None = None,
    dtype: Literal["float64", "float32", "bfloat16"] | None = None,
    validation: float | None = None,
    validate_every: int | None = None,
    model: str | None = None,
    output: Output | None = None,
    resume: Path | None = None,
    save_every: int | None = None,
    save_seconds: float | None = None,
    samples: int = 20,
    engine: Literal["auto", "eager", "compiled", "jax"] = "auto",
    devices: str | None = None,
    shard: Literal["params"] | None = None,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Train a GPT and print new text of its own making.

    Without a FILE it learns first names and invents new ones.
    Ctrl-C saves and stops; --resume DIR goes on as if nothing had happened.

    Parameters
    ----------
    file
        Text to learn from, in UTF-8: one document per line, or with --stream a whole text.
    preset
        The model and its training: microgpt (the default), course, book or shakespeare.
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
    stream
        Read the file as one text, in windows of a block at random places: for books and
        plays. Without it each line is a document of its own, read from its beginning up
        to the block: for names and short lines. The end of a text is held out.
    steps
        How many steps to train (1000; course: 500, book: 5000).
    batch
        Documents or windows per step (1).
    lr
        The learning rate at the start (0.01; beyond a width of 32 less, as far as 0.001).
    schedule
        How the learning rate falls: linear, cosine (course) or constant.
    weight_decay
        Each step shrinks every weight by the learning rate times this (0).
    clip
        The largest norm of a step's gradient; a larger one is scaled down (0: never).
    dropout
        The share of numbers inside the model that a step sets to 0, from 0 to less than 1 (0):
        for a text that is small for the model.
    seed
        The seed of all random numbers (42); the same seed gives the same model.
    dtype
        The numbers to compute with (float64); float32 with --engine compiled or jax; bfloat16
        with --engine jax, which keeps the weights in float32.
    validation
        The share of the text held out to measure the validation loss (0.1).
    validate_every
        Steps between two validations (250, or a hundredth of all steps if that is more).
    model
        A model class of your own, FILE.py:CLASS, derived from chainrule.gpt.GPT.
    output
        The folder to write; runs/1, runs/2, ... if none is given.
    resume
        Continue the run in this folder. --steps, --lr, --batch, --schedule, --weight-decay,
        --clip, --dropout, --validate-every, --save-every and --save-seconds may change.
    save_every
        Steps between two checkpoints, besides those that --save-seconds asks for.
    save_seconds
        Seconds between two checkpoints (10).
    samples
        How many new documents to print at the end; of a stream, 25 tokens for each.
    engine
        eager; compiled (machine code, its losses agree to rounding); or auto: whichever is
        quicker. jax: on GPUs, TPUs or many machines, each step shared by all of them.
    devices
        With --engine jax: how many devices of this machine share a batch, or all (the default).
    shard
        With --engine jax: params gives each device a part of the weights, to save memory.
    coordinator
        With --engine jax, started once on each machine: HOST:PORT of process 0, or auto, with
        which JAX finds the others itself (Slurm, Open MPI, Kubernetes, TPUs).
    processes
        How many processes train together; with --coordinator HOST:PORT.
    process
        Which of them this is, counted from 0.
    """
    for name, number, least in (
        ("--samples", samples, 0),
        ("--save-every", save_every, 1),
        ("--validate-every", validate_every, 1),
        ("--save-seconds", save_seconds, 0),
    ):
        if number is not None and not number >= least:
            raise gpt.GPTError(f"{name} must be at least {least}, not {number}")
    fixed: dict[str, Any] = {
        "layers": layers,
        "width": width,
        "heads": heads,
        "block": block,
        "tokens": tokens,
        "stream": stream,
        "seed": seed,
    }
    free = {
        "batch": batch,
        "learning_rate": lr,
        "schedule": schedule,
        "weight_decay": weight_decay,
        "clip": clip,
        "dropout": dropout,
    }
    kind = gpt.GPT if model is None else model_class(model)
    intervals = {
        "save_every": save_every,
        "save_seconds": save_seconds,
        "validate_every": validate_every,
    }
    if resume is not None:
        fixed |= {
            "preset": preset,
            "validation": validation,
            "output": output,
            "engine": None if engine == "auto" else engine,
            "dtype": dtype,
        }
        known = gpt.load(resume)  # before anything is written next to what may not be a run
        places = chosen(known.engine, devices, shard, coordinator, processes, process)
        with ExitStack() as stack:
            if places is None or is_first_process():
                path = resume if resume.is_dir() else resume.parent
                folder = stack.enter_context(gpt.RunFolder(path))
            else:
                folder = spare_folder(stack)
            run = _resumed(resume, file, steps, _given(free), fixed, kind, places)
            _train(run, folder, intervals, samples)
    else:
        places = chosen(engine, devices, shard, coordinator, processes, process)
        changes = _given(fixed | free | {"steps": steps})
        config = gpt.Config.preset(preset or "microgpt").replace(**changes)
        if lr is None:
            config = config.replace(learning_rate=config.suitable_rate())
        share = 0.1 if validation is None else validation
        run = _started(file, config, share, engine, dtype or "float64", kind, places)
        with ExitStack() as stack:
            made = _run_folder(output) if run.is_first else None
            folder = stack.enter_context(made) if made else spare_folder(stack)
            _train(run, folder, intervals, samples)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: option for name, option in options.items() if option is not None}


def model_class(place: str) -> type[gpt.GPT]:
    """The class that ``FILE.py:CLASS`` names; the file is run, as by ``python FILE.py``."""
    file, _, name = place.rpartition(":")
    if not file or not name.isidentifier():
        raise gpt.GPTError(f"--model takes FILE.py:CLASS, not {place!r}")
    path = Path(file)
    if not path.is_file():
        raise gpt.GPTError(f"there is no file {file!r}")
    # Its name is that of no other module, and what a checkpoint calls the class by.
    spec = importlib.util.spec_from_file_location(path.name, path)
    if spec is None or spec.loader is None:
        raise gpt.GPTError(f"{file!r} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.name] = module  # where its classes say that they are from
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[path.name]
        raise gpt.GPTError(f"{file!r} cannot be run: {type(error).__name__}: {error}") from error
    found = getattr(module, name, None)
    if not (isinstance(found, type) and issubclass(found, gpt.GPT)):
        raise gpt.GPTError(f"{file!r} has no class {name} that is derived from chainrule.gpt.GPT")
    return found


def _started(
    file: Path | None,
    config: gpt.Config,
    validation: float,
    engine: str,
    dtype: str,
    model: type[gpt.GPT],
    devices: gpt.Devices | None,
) -> gpt.Run:
    if file is None and config.tokens == "word":
        raise gpt.GPTError(
            "a model of words needs a FILE of sentences: the bundled names are single words"
        )
    if file is None and config.stream:
        raise gpt.GPTError(
            "a stream needs a FILE, one long text: the bundled names are single words"
        )
    documents, source = load(file, config.stream)
    return gpt.Run.start(
        documents,
        config,
        validation=validation,
        source=source,
        engine=engine,
        dtype=dtype,
        devices=devices,
        model=model,
    )


def _resumed(
    directory: Path,
    file: Path | None,
    steps: int | None,
    changes: dict[str, Any],
    fixed: dict[str, Any],
    model: type[gpt.GPT],
    devices: gpt.Devices | None,
) -> gpt.Run:
    checkpoint = gpt.load(directory)
    same = checkpoint.config.to_dict() | {"engine": checkpoint.engine, "dtype": checkpoint.dtype}
    given = [n for n, option in fixed.items() if option is not None and option != same.get(n)]
    if given:
        raise gpt.GPTError(f"--{given[0]} cannot change a run that is resumed")
    if file is None and checkpoint.source != BUNDLED:
        file = Path(checkpoint.source)
        if not os.path.isfile(file):  # a device or a pipe is no text to go on with
            raise gpt.GPTError(
                f"the run was started on {checkpoint.source!r}, which is not here: "
                f"name the file as well, chainrule train FILE --resume {directory}"
            )
    documents, source = load(file, checkpoint.config.stream)
    return gpt.Run.resume(
        checkpoint, documents, source, steps, model=model, devices=devices, **changes
    )


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


# --- a run ----------------------------------------------------------------------------------------


def _train(run: gpt.Run, folder: gpt.RunFolder, intervals: dict[str, Any], samples: int) -> None:
    console, config = Console(quiet=not run.is_first), run.config
    _describe(console, run)
    if run.step == config.steps:
        say(console, f"step {run.step} was the last one; --steps with a larger number goes on")
    elif run.step:
        say(console, f"continuing after step {run.step} of {config.steps}")
    began, before = time.perf_counter(), run.step
    curve = _in_background(console, run, folder, intervals)
    seconds = time.perf_counter() - began
    if run.step > before or run.validation_seconds:
        share = run.validation_seconds
        of_them = f", {share:.1f} of them validation" if share > seconds / 10 else ""
        say(console, f"{_losses(curve)} ({seconds:.1f} s{of_them})")
    names = [checkpoints.FILE, metrics.FILE, "loss.svg"]
    if (folder.path / checkpoints.BEST).exists():
        names.insert(1, checkpoints.BEST)
    say(console, f"saved in {folder.path}: {', '.join(names)}")
    if samples and config.stream:
        say(console)
        say(console, f"{PASSAGE * samples} new tokens:", style="bold")
        pieces = gpt.pieces(run.model, run.tokenizer, run.rng, PASSAGE * samples)
        if run.is_first:
            say_pieces(pieces)
    elif samples:
        _print_new_documents(console, run, samples)


def _describe(console: Console, run: gpt.Run) -> None:
    """What is learned from, by which model, and what is left out."""
    config, data = run.config, run.data
    held_out, tokens = len(data.validation), _some(run.tokenizer.size, "token")
    if data.stream:
        windows = len(data.held_out(run.tokenizer, config.block))
        characters = sum(map(len, (*data.training, *data.validation)))
        say(
            console,
            f"one text of {characters:,} characters from {data.source}, "
            f"{_end_held_out(sum(map(len, data.validation)), windows)}; {tokens}",
        )
    else:
        documents = len(data.training) + held_out
        say(
            console,
            f"{_some(documents, 'document')} from {data.source}, "
            f"{f'{held_out:,} of them' if held_out else 'nothing'} held out; {tokens}",
        )
    say(
        console,
        f"{_some(config_size(run), 'parameter')}: {_some(config.layers, 'layer')}, "
        f"width {config.width}, {_some(config.heads, 'head')}, block {config.block}; "
        f"{run.engine.name}{'' if run.engine.dtype == 'float64' else f', {run.engine.dtype}'}"
        f"{'' if run.engine.mesh is None else f', {run.engine.mesh}'}",
    )
    shapes = run.engine.kind.shapes(config, run.tokenizer.size)
    if scarce := room.warning(config, shapes, run.tokenizer, data, run.engine.name):
        say(console, scarce)
    if config.learning_rate < gpt.Config().learning_rate:
        say(console, f"learning rate {config.learning_rate:g} at the start (--lr changes it)")
    seen, every = len(run.held_out), len(data.held_out(run.tokenizer, config.block))
    if seen < every:
        say(
            console,
            f"the validation loss is that of {seen} of these {every:,} (--engine compiled: of all)",
        )
    longer, beyond, longest = data.lost(run.tokenizer, config.block)
    if longer:
        say(
            console,
            f"{_some(longer, 'document')} {'is' if longer == 1 else 'are'} longer than the block: "
            f"{_some(beyond, 'token')} beyond it {'is' if beyond == 1 else 'are'} not read "
            f"(--block {longest} reads all, --stream reads the text in windows)",
        )


def _end_held_out(characters: int, windows: int) -> str:
    if not characters:
        return "nothing held out"
    found = f"the last {characters:,} held out"
    return f"{found} ({_some(windows, 'window')})" if windows else f"{found}: less than a block"


def config_size(run: gpt.Run) -> int:
    """How many numbers the model has."""
    shapes = run.engine.kind.shapes(run.config, run.tokenizer.size)
    return sum(rows * columns for rows, columns in shapes.values())


def _some(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number:,} {thing}s"


def _losses(curve: Curve) -> str:
    text = f"loss {statistics.fmean(curve.recent):.4f} "
    text += f"(mean of the last {len(curve.recent)} steps)"
    last = curve.validations.get(curve.steps[-1])
    if last is not None and curve.best is not None:
        text += f", validation loss {last:.4f}"
        step, best = curve.best
        if best < last:
            text += f" (best {best:.4f} at step {step})"
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


# --- in the background ----------------------------------------------------------------------------


def _in_background(
    console: Console, run: gpt.Run, folder: gpt.RunFolder, intervals: dict[str, Any]
) -> Curve:
    """Train in a thread, and answer Ctrl-C here; the loss curve, if the run came to its end."""
    display = Terminal(console, run) if console.is_terminal else Lines(console, run)
    found: list[Curve] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            found.append(
                train_summarised(
                    run,
                    folder,
                    **intervals,
                    report=display.note,
                    stop=lambda: bool(signals),
                    progress=display.recording,
                )
            )
        except BaseException as error:
            errors.append(error)

    thread, answered = threading.Thread(target=work, daemon=True), 0
    with stopping() as signals, display:
        thread.start()
        while thread.is_alive():
            thread.join(MOMENT)
            display.show()
            if len(signals) > answered:
                answered = len(signals)
                if display.taken and answered == 1:
                    display.say("stopping after this step; Ctrl-C again stops at once")
                else:
                    display.close()
                    _leave(console, run, folder, signals[0])
    if errors:
        if isinstance(errors[0], LostProcessError):
            leave_lost(errors[0])
        raise errors[0]
    if run.step < run.config.steps or signals:
        is_left = is_unvalidated(run, found[0])
        of, before = f" of {run.config.steps}", ", before its validation" if is_left else ""
        if run.step == run.config.steps and not is_left:  # what would come now are samples
            say(console, f"stopped after the last step, {run.step}; the run is complete")
        else:
            go_on = resuming(run, folder.path)
            say(console, f"stopped after step {run.step}{of}{before}; continue with: {go_on}")
        raise SystemExit(INTERRUPTED + signals[0])
    return found[0]


def _leave(console: Console, run: gpt.Run, folder: gpt.RunFolder, number: int) -> None:
    """End at once, whatever the other thread is doing: the last checkpoint is complete."""
    try:
        step = gpt.load(folder.path).step
        say(
            console,
            f"stopped at once, at the checkpoint of step {step}; "
            f"continue with: {resuming(run, folder.path)}",
        )
    except gpt.GPTError:
        say(console, "stopped before the first checkpoint")
    folder.release()
    sys.stdout.flush()
    os._exit(INTERRUPTED + number)


@contextmanager
def stopping() -> Iterator[list[int]]:
    """Collect Ctrl-C and SIGTERM instead of being interrupted anywhere."""
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        received.append(number)

    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread may have handlers
        return
    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
