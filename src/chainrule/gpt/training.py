"""Training: read some documents, measure the loss, move every parameter a little, again and again.

A ``Run`` is everything that training changes and needs. ``train`` takes it to its last step and
keeps the folder it is given up to date: checkpoint.safetensors and that of the best model so far,
metrics.csv and loss.svg. A run that was stopped anywhere goes on from its checkpoint to the same
numbers, bit for bit.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chainrule.core.backend import no_grad
from chainrule.core.interrupts import Held, Stopped, stoppable
from chainrule.files import FolderLock, remove_partial_files, write_atomically
from chainrule.gpt import charts, checkpoints, engines, metrics, room
from chainrule.gpt.checkpoints import Arrays, Checkpoint, Intervals
from chainrule.gpt.config import Config
from chainrule.gpt.curve import Curve
from chainrule.gpt.data import BUNDLED, Data
from chainrule.gpt.devices import Devices, LostProcessError
from chainrule.gpt.engines import Engine, Progress, unnoticed, validation_interval
from chainrule.gpt.errors import GPTError, UndefinedError, computing
from chainrule.gpt.metrics import Row, Rows
from chainrule.gpt.model import GPT
from chainrule.gpt.tokenizer import KINDS, Tokenizer
from chainrule.optim import Adam
from chainrule.windows import Windows

LOSS_PICTURE = "loss.svg"
BEYOND = 10  # times the loss of guessing: no run comes back from there
SAVE_SECONDS = 10.0  # between two checkpoints
LOOKED_AT = 2  # documents that tell whether a model is of use
#: What may change when a run goes on: its training, not its model.
CHANGEABLE = ("learning_rate", "batch", "schedule", "weight_decay", "clip", "dropout")


@dataclass
class Run:
    """A training run between two steps.

    >>> from chainrule import gpt
    >>> run = gpt.Run.start(["ada", "bob", "eve"], gpt.Config(width=4, heads=1))
    >>> row = run.advance()
    >>> run.step, row.step
    (1, 1)
    """

    config: Config
    tokenizer: Tokenizer
    data: Data
    engine: Engine
    rng: random.Random
    validation: float  #: the share of the data that is held out
    #: how often it is saved and validated, where that was asked
    intervals: Intervals = field(default_factory=Intervals)
    seconds: float = 0.0  #: that its steps have taken here, and nothing else
    validating: bool = False  #: whether the validation loss is computed just now
    validation_seconds: float = 0.0  #: that all of them have taken here
    _held_out: dict[int | None, list[list[int]]] = field(default_factory=dict, repr=False)

    @property
    def model(self) -> GPT:
        """The model, with the weights of the last step."""
        return self.engine.model

    @property
    def optimizer(self) -> Adam:
        """The optimiser of the model's weights."""
        return self.engine.optimizer

    @property
    def step(self) -> int:
        """How many steps have been taken."""
        return self.engine.optimizer.steps

    @staticmethod
    def start(
        documents: Sequence[str],
        config: Config | None = None,
        *,
        validation: float = 0.1,
        source: str = BUNDLED,
        tokenizer: Tokenizer | None = None,
        weights: Arrays | None = None,
        engine: str = "eager",
        dtype: str = "float64",
        devices: Devices | None = None,
        model: type[GPT] = GPT,
    ) -> Run:
        """A run at step 0, from random weights or (to fine-tune) from a checkpoint's.

        The engine is ``"eager"``, ``"compiled"``, or ``"auto"``: whichever takes less time; or
        ``"jax"``, on all ``devices`` that JAX has or on those that are asked for.
        ``model`` may be a class of your own, derived from ``gpt.GPT``. Where the configuration has
        ``stream=True`` the documents are the lines of one text.

        >>> from chainrule import gpt
        >>> run = gpt.Run.start(["ada", "bob", "eve"], gpt.Config(width=4, heads=1, steps=2))
        >>> [row.step for row in gpt.train(run)]
        [1, 2]
        """
        config = config or Config()
        rng = random.Random(config.seed)
        data = Data.split(documents, rng, validation, source, config.stream)
        tokenizer = tokenizer or KINDS[config.tokens].of(documents)
        if tokenizer.size < 2:
            raise GPTError("the documents hold no tokens")
        room.check(config, model.shapes(config, tokenizer.size), tokenizer, data, engine)
        made = model(config, tokenizer.size, rng)
        if weights is not None:
            made.load_arrays(weights)
        chosen = engines.make(engine, made, tokenizer, data, dtype, devices)
        return Run(config, tokenizer, data, chosen, rng, validation)

    @staticmethod
    def resume(
        checkpoint: Checkpoint,
        documents: Sequence[str],
        source: str,
        steps: int | None = None,
        *,
        model: type[GPT] = GPT,
        devices: Devices | None = None,
        **changes: Any,
    ) -> Run:
        """The run that a checkpoint was saved from; the documents must be the same.

        It goes on with the engine it had; JAX on any number of ``devices``. With another number
        of steps it ends there, and the learning rates are stretched to it. ``changes`` are others
        of its training: ``learning_rate``, ``batch``, ``schedule``, ``weight_decay``, ``clip`` and
        ``dropout``.
        """
        fixed = sorted(changes.keys() - {*CHANGEABLE})
        if fixed:
            raise GPTError(f"{fixed[0]} cannot change in a run that is resumed")
        config = checkpoint.config.replace(**changes)
        if steps is not None:
            if steps < checkpoint.step:
                raise GPTError(f"the run is at step {checkpoint.step} already: beyond {steps}")
            config = config.replace(steps=steps)
        checkpoint = dataclasses.replace(checkpoint, config=config)
        rng = random.Random(config.seed)
        data = Data.split(documents, rng, checkpoint.validation, source, config.stream)
        if data.fingerprint != checkpoint.fingerprint:
            raise GPTError(
                f"the documents have changed since the run was started on {checkpoint.source!r}"
                if source == checkpoint.source
                else f"the run was started on other documents: those of {checkpoint.source!r}"
            )
        rng.setstate(checkpoint.rng)
        made, tokenizer = checkpoint.model(model), checkpoint.tokenizer
        name, dtype = checkpoint.engine, checkpoint.dtype
        engine = engines.make(name, made, tokenizer, data, dtype, devices)
        engine.optimizer.load_state_dict(checkpoint.optimizer)
        return Run(
            config, tokenizer, data, engine, rng, checkpoint.validation, checkpoint.intervals
        )

    def checkpoint(self) -> Checkpoint:
        """The state of the run, to be saved."""
        return Checkpoint(
            self.config,
            self.tokenizer,
            self.step,
            self.engine.weights(),
            self.optimizer.state_dict(),
            self.rng.getstate(),
            self.data.source,
            self.validation,
            self.data.fingerprint,
            self.engine.name,
            self.engine.dtype,
            checkpoints.name_of(self.engine.kind),
            self.intervals,
        )

    def prepare(self, progress: Progress = unnoticed) -> None:
        """Record and compile what training needs, if it is compiled; ``train`` does it first.

        ``progress(done, total)`` is called for each length of documents.
        """
        with self._computing():
            self.engine.prepare(self.held_out, progress)

    def advance(self) -> Row:
        """One step."""
        return self.take_steps(1)[0]

    def take_steps(self, most: int) -> list[Row]:
        """At least one step and at most ``most``, as many as the engine takes at once."""
        first = self.step
        began = time.perf_counter()
        with self._computing():
            losses = self.engine.advance(most)
        self.seconds += time.perf_counter() - began
        rate = self.optimizer.schedule
        return [Row(step + 1, loss, rate(step)) for step, loss in enumerate(losses, first)]

    @cached_property
    def held_out(self) -> list[list[int]]:
        """The tokens of what is held out, documents or windows, as far as it is looked at."""
        return self._first_held_out(self.engine.most_held_out)

    def validation_loss(self, limit: int | None = None) -> float | None:
        """The mean loss of what is held out, or of the first ``limit`` of it; None without any.

        By the eager engine it is that of the first 50 documents, by the compiled one that of all.
        """
        documents = self.held_out if limit is None else self._first_held_out(limit)
        if not documents:
            return None
        began, self.validating = time.perf_counter(), True
        try:
            with self._computing():
                return self.engine.loss(documents)
        finally:
            self.validating = False
            self.validation_seconds += time.perf_counter() - began

    def _first_held_out(self, limit: int | None) -> list[list[int]]:
        """Kept, so that engines know it again."""
        if limit not in self._held_out:
            found = self.data.held_out(self.tokenizer, self.config.block, limit)
            self._held_out = {limit: found}
        return self._held_out[limit]

    @property
    def is_first(self) -> bool:
        """Whether this process keeps the files of the run: the first of those that share it."""
        return self.engine.mesh is None or self.engine.mesh.is_first

    def decided(self, here: bool, anyone: bool = False) -> bool:
        """What all processes of a run do alike: as the first one finds, or as any of them does."""
        if self.engine.mesh is None:
            return here
        found = self.engine.mesh.gathered(here)
        return bool(max(found) if anyone else found[0])

    def _computing(self) -> AbstractContextManager[None]:
        place = f"training broke down at step {self.step + 1}"
        return computing(place, "; a smaller learning rate may help")


def train(
    run: Run,
    directory: str | Path | RunFolder | None = None,
    *,
    save_every: int | None = None,
    save_seconds: float | None = None,
    validate_every: int | None = None,
    report: Callable[[Row], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = unnoticed,
) -> Rows:
    """Take a run to its last step, or to the first after which ``stop()`` holds.

    In the folder, if one is given, the metrics are those of this run from its first step on, and
    the checkpoint is at most ``save_seconds`` (10) or ``save_every`` steps old; another one,
    ``best.safetensors``, is that of the lowest validation loss. The validation loss is measured
    every ``validate_every`` steps (250; of more than 25,000 a hundredth) and at the end. The run
    keeps these intervals until others are given. A validation that is stopped, also by Ctrl-C, is
    the first thing that is done when the run goes on in its folder.
    While it runs, no other process can train there. Returns the rows of the steps taken here.
    If training breaks down, the folder has the state after the last step that went well, or if its
    weights are of no use already, the last checkpoint before.

    >>> from chainrule import gpt
    >>> config = gpt.Config(width=4, heads=1, block=4, steps=30, learning_rate=0.05)
    >>> rows = gpt.train(gpt.Run.start(["ada"], config))
    >>> rows[-1].loss < rows[0].loss
    True
    """
    rows = Rows()

    def note(row: Row) -> None:
        rows.extend([row])
        if report:
            report(row)

    train_summarised(
        run,
        directory,
        save_every=save_every,
        save_seconds=save_seconds,
        validate_every=validate_every,
        report=note,
        stop=stop,
        progress=progress,
    )
    return rows


def train_summarised(
    run: Run,
    directory: str | Path | RunFolder | None = None,
    *,
    save_every: int | None = None,
    save_seconds: float | None = None,
    validate_every: int | None = None,
    report: Callable[[Row], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    progress: Progress = unnoticed,
) -> Curve:
    """As ``train``, in memory that does not grow with the steps.

    Returns the curve of the run, with the steps before that the folder knows of.
    """
    if min(save_every or 1, validate_every or 1) < 1 or 0 in (save_every, validate_every):
        raise GPTError("the steps between two checkpoints or validations must be at least 1")
    run.intervals = run.intervals.changed(
        save_every=save_every, save_seconds=save_seconds, validate_every=validate_every
    )
    curve = Curve()
    with ExitStack() as stack:
        folder = directory
        if folder is not None and not run.is_first:  # the same steps, for files that nobody reads
            folder = stack.enter_context(TemporaryDirectory())
        if folder is not None and not isinstance(folder, RunFolder):
            folder = stack.enter_context(RunFolder(folder))
        files = stack.enter_context(_Files(run, folder.path, curve)) if folder else None
        try:
            _take_all_steps(run, files, curve, report, stop, progress)
        except LostProcessError as error:
            if folder is None or not run.is_first:
                raise
            raise LostProcessError(
                f"{error}: the last checkpoint goes on with chainrule train --resume {folder.path}"
            ) from None
        except UndefinedError as error:
            if files is None:
                raise
            way = _way_on(run, files)
            files.draw()
            raise UndefinedError(f"{error}: {way}") from error
        if files:
            files.save(run)
            files.draw()
    return curve


def _take_all_steps(
    run: Run,
    files: _Files | None,
    curve: Curve,
    report: Callable[[Row], None] | None,
    stop: Callable[[], bool],
    progress: Progress,
) -> None:
    """Validate what was left to be validated, and take steps until all are taken or it stops."""
    last, save_every, validate_every = run.config.steps, run.intervals.save_every, _validating(run)
    save_seconds = run.intervals.save_seconds
    save_seconds = SAVE_SECONDS if save_seconds is None else save_seconds
    if run.decided(stop(), anyone=True):
        return

    try:
        if run.step < last:
            with _stoppable(run, stop):
                run.prepare(progress)
        if run.decided(files is not None and is_unvalidated(run, curve)):
            with Held() as held, _stoppable(run, lambda: stop() or held.waits):
                loss = run.validation_loss()
                if files and loss is not None:
                    files.validated(run, loss)
    except Stopped:
        return
    saved_at, stopped = time.monotonic(), False
    while run.step < last and not run.decided(stopped or stop(), anyone=True):
        intervals = (save_every, validate_every) if files else (validate_every,)
        events = [last, *(run.step // n * n + n for n in intervals if n)]
        with Held() as held:  # Ctrl-C comes when a step and its row are complete
            taken = run.take_steps(min(events) - run.step)
            if _is_due(run):
                try:
                    with _stoppable(run, lambda: stop() or held.waits):
                        loss = run.validation_loss()
                    taken[-1] = dataclasses.replace(taken[-1], validation_loss=loss)
                except Stopped:  # the steps are complete without it
                    stopped = True
            curve.extend(taken)
            if files:
                files.append(run, taken)
                due = run.decided(time.monotonic() - saved_at > save_seconds)
                if due or (save_every and run.step % save_every == 0):
                    files.save(run)
                    saved_at = time.monotonic()
        if report:
            for row in taken:
                report(row)


def _stoppable(run: Run, stop: Callable[[], bool]) -> AbstractContextManager[None]:
    """What may end by ``Stopped``; what several processes compute together goes on to its end."""
    mesh = run.engine.mesh
    return stoppable(stop) if mesh is None or mesh.processes == 1 else nullcontext()


def _validating(run: Run) -> int:
    """The steps between two validations."""
    return run.intervals.validate_every or validation_interval(run.config.steps)


def _is_due(run: Run) -> bool:
    """Whether the last step is one that is validated."""
    return run.step % _validating(run) == 0 or run.step == run.config.steps


def is_unvalidated(run: Run, curve: Curve) -> bool:
    """Whether the last step has yet to be validated: somebody stopped while it was."""
    is_known = len(curve) > 0 and curve.steps[-1] == run.step
    is_left = is_known and _is_due(run) and run.step not in curve.validations
    return is_left and bool(run.held_out)


def _way_on(run: Run, files: _Files) -> str:
    """What to do about a run that broke down; its state is saved if it is of use.

    The step before may have left weights that are finite, and useless: the same command would end
    at the same place.
    """
    options = f"--lr {run.config.smaller_rate():.2g}{'' if run.config.clip else ' --clip 1'}"
    path, sound = files.path, _is_sound(run, run.model)
    kept = None if sound else _sound(run, path / checkpoints.FILE)
    if kept is None:
        files.save(run)
    else:
        files.writer.flush()
    found = "the state" if sound else "the weights"
    found += f" after step {run.step} {'is saved' if sound else 'are of no use'}"

    def command(from_: Path, checkpoint: Checkpoint | None) -> str:
        more = checkpoint is not None and checkpoint.config.steps != run.config.steps
        steps = f" --steps {run.config.steps}" if more else ""
        return f"{resuming(run, from_)}{steps} {options}"

    best = _sound(run, path / checkpoints.BEST)
    if best is not None:
        best_file = path / checkpoints.BEST
        return f"{found}; go on from the best model with {command(best_file, best)}"
    if sound or kept is not None:
        place = "" if kept is None else f" after step {kept.step}"
        return f"{found}; go on{place} with {command(path, kept)}, or begin again with that"
    return f"{found}, nor is any checkpoint; begin again with {options}"


def resuming(run: Run, path: Path) -> str:
    """The command that goes on with a run."""
    command, kind = f"chainrule train --resume {path}", run.engine.kind
    file = getattr(sys.modules.get(kind.__module__), "__file__", None)
    if kind is not GPT and file is not None:
        command += f" --model {os.path.relpath(file)}:{kind.__qualname__}"
    return command


def _sound(run: Run, path: Path) -> Checkpoint | None:
    """The checkpoint in this file, if it is there and of use."""
    try:
        found = checkpoints.load(path)
        return found if _is_sound(run, found.model(run.engine.kind)) else None
    except GPTError:
        return None


def _is_sound(run: Run, model: GPT) -> bool:
    """Whether the loss of what comes next is a number that training can come back from."""
    config, data, first = run.config, run.data, run.step * run.config.batch
    samples = data.samples(run.tokenizer, config.block, config.seed)
    if isinstance(samples, Windows):
        some = [samples[place][0] for place in samples.places(first, LOOKED_AT).tolist()]
    else:
        some = [samples[k % len(samples)] for k in range(first, first + LOOKED_AT)]
    try:
        with no_grad():
            losses = [model.loss(tokens).data for tokens in some]
    except (ValueError, ArithmeticError):
        return False
    return statistics.fmean(losses) < BEYOND * math.log(run.tokenizer.size)


class RunFolder(FolderLock):
    """The folder of a run, made where there is none and kept for one process at a time.

    ``train`` takes one of its own when it is given a path. Who loads a checkpoint to go on with it
    takes the folder first, so that nobody trains further in between.

    >>> import tempfile
    >>> from chainrule import gpt
    >>> run = gpt.Run.start(["ada", "bob"], gpt.Config(width=4, heads=1, block=4, steps=2))
    >>> with tempfile.TemporaryDirectory() as path, gpt.RunFolder(path) as folder:
    ...     _ = gpt.train(run, folder)
    ...     gpt.load(folder.path)
    Checkpoint(step 2 of 2, 248 parameters)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        super().__init__(self.path)
        remove_partial_files(self.path)


class _Files(AbstractContextManager["_Files"]):
    """What a run writes: metrics.csv as it goes, checkpoints, at the end the picture."""

    def __init__(self, run: Run, path: Path, curve: Curve) -> None:
        self.path, self.curve = path, curve
        self.writer = metrics.Writer(path, self._before(run.step))
        self.best = math.inf if curve.best is None else curve.best[1]
        self.saved = -1
        if run.decided(not (path / checkpoints.FILE).exists()):
            self.save(run)

    def _before(self, step: int) -> Iterator[Row]:
        """The rows that the folder has of earlier steps; the curve goes on after them."""
        if (self.path / metrics.FILE).exists():
            for row in metrics.rows_of(self.path, step):
                self.curve.extend([row])
                yield row
        if len(self.curve) and self.curve.steps[-1] < step:
            raise GPTError(
                f"{str(self.path / metrics.FILE)!r} ends with step {self.curve.steps[-1]}, the "
                f"checkpoint is that of step {step}: move the file away to go on without it"
            )

    def append(self, run: Run, rows: list[Row]) -> None:
        """Add the rows of the last steps; keep the model if none was better."""
        self.writer.append(rows)
        self._compare(run, rows[-1].validation_loss)

    def validated(self, run: Run, loss: float) -> None:
        """The last step, which has its row already, was validated after all."""
        if len(self.curve):
            self.writer.close()
            rows = metrics.rows_of(self.path, run.step)
            self.writer = metrics.Writer(
                self.path,
                (
                    dataclasses.replace(row, validation_loss=loss) if row.step == run.step else row
                    for row in rows
                ),
            )
            self.curve.validated(run.step, loss)
        self._compare(run, loss)

    def _compare(self, run: Run, loss: float | None) -> None:
        if loss is not None and run.decided(loss < self.best):
            self.writer.flush()
            checkpoints.save(run.checkpoint(), self.path, checkpoints.BEST)
            self.best = loss

    def save(self, run: Run) -> None:
        """First the metrics, then the checkpoint: it never knows of steps that they do not hold."""
        if self.saved != run.step:
            self.writer.flush()
            checkpoints.save(run.checkpoint(), self.path)
            self.saved = run.step

    def draw(self) -> None:
        write_atomically(self.path / LOSS_PICTURE, charts.losses({"": self.curve}))

    def __exit__(self, *exception: object) -> None:
        self.writer.close()
