"""Training: read some documents, measure the loss, move every parameter a little, again and again.

A ``Run`` is everything that training changes and needs. ``train`` takes it to its last step and
keeps the folder it is given up to date: checkpoint.safetensors, metrics.csv and loss.svg. A run
that was stopped anywhere goes on from its checkpoint to the same numbers, bit for bit.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from chainrule.core.interrupts import Held
from chainrule.files import FolderLock, remove_partial_files, write_atomically
from chainrule.gpt import charts, checkpoints, engines, metrics
from chainrule.gpt.checkpoints import Arrays, Checkpoint
from chainrule.gpt.config import Config
from chainrule.gpt.data import BUNDLED, Data
from chainrule.gpt.engines import Engine
from chainrule.gpt.errors import GPTError, computing
from chainrule.gpt.metrics import Row
from chainrule.gpt.model import GPT
from chainrule.gpt.tokenizer import KINDS, Tokenizer
from chainrule.optim import Adam

LOSS_PICTURE = "loss.svg"


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
    model: GPT
    engine: Engine
    rng: random.Random
    validation: float  #: the share of documents held out

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
    ) -> Run:
        """A run at step 0, from random weights or (to fine-tune) from a checkpoint's.

        The engine is ``"eager"``, ``"compiled"``, or ``"auto"``: whichever takes less time.

        >>> from chainrule import gpt
        >>> run = gpt.Run.start(["ada", "bob", "eve"], gpt.Config(width=4, heads=1, steps=2))
        >>> [row.step for row in gpt.train(run)]
        [1, 2]
        """
        config = config or Config()
        rng = random.Random(config.seed)
        data = Data.split(documents, rng, validation, source)
        tokenizer = tokenizer or KINDS[config.tokens].of(documents)
        if tokenizer.size < 2:
            raise GPTError("the documents hold no tokens")
        model = GPT(config, tokenizer.size, rng)
        if weights is not None:
            model.load_arrays(weights)
        chosen = engines.make(engine, model, tokenizer, data, dtype)
        return Run(config, tokenizer, data, model, chosen, rng, validation)

    @staticmethod
    def resume(
        checkpoint: Checkpoint, documents: Sequence[str], source: str, steps: int | None = None
    ) -> Run:
        """The run that a checkpoint was saved from; the documents must be the same.

        It goes on with the engine it had. With another number of steps it ends there, and the
        learning rates are stretched to it.
        """
        config = checkpoint.config
        if steps is not None:
            if steps < checkpoint.step:
                raise GPTError(f"the run is at step {checkpoint.step} already: beyond {steps}")
            config = config.replace(steps=steps)
            checkpoint = dataclasses.replace(checkpoint, config=config)
        rng = random.Random(config.seed)
        data = Data.split(documents, rng, checkpoint.validation, source)
        if data.fingerprint != checkpoint.fingerprint:
            raise GPTError(
                f"the documents have changed since the run was started on {checkpoint.source!r}"
                if source == checkpoint.source
                else f"the run was started on other documents: those of {checkpoint.source!r}"
            )
        rng.setstate(checkpoint.rng)
        model, tokenizer = checkpoint.model(), checkpoint.tokenizer
        engine = engines.make(checkpoint.engine, model, tokenizer, data, checkpoint.dtype)
        engine.optimizer.load_state_dict(checkpoint.optimizer)
        return Run(config, tokenizer, data, model, engine, rng, checkpoint.validation)

    def checkpoint(self) -> Checkpoint:
        """The state of the run, to be saved."""
        return Checkpoint(
            self.config,
            self.tokenizer,
            self.step,
            self.model.arrays(),
            self.optimizer.state_dict(),
            self.rng.getstate(),
            self.data.source,
            self.validation,
            self.data.fingerprint,
            self.engine.name,
            self.engine.dtype,
        )

    def advance(self) -> Row:
        """One step."""
        return self.take_steps(1)[0]

    def take_steps(self, most: int) -> list[Row]:
        """At least one step and at most ``most``, as many as the engine takes at once."""
        first = self.step
        with self._computing():
            losses = self.engine.advance(most)
        rate = self.optimizer.schedule
        return [Row(step + 1, loss, rate(step)) for step, loss in enumerate(losses, first)]

    def validation_loss(self, limit: int = 50) -> float | None:
        """The mean loss of the first ``limit`` documents held out, if there are any."""
        documents = self.data.validation[:limit]
        if not documents:
            return None
        most = self.config.block + 1
        with self._computing():
            return self.engine.loss([self.tokenizer.encode(text, most) for text in documents])

    def _computing(self) -> AbstractContextManager[None]:
        place = f"training broke down at step {self.step + 1}"
        return computing(place, "; a smaller learning rate may help")


def train(
    run: Run,
    directory: str | Path | RunFolder | None = None,
    *,
    save_every: int = 100,
    validate_every: int = 250,
    report: Callable[[Row], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Row]:
    """Take a run to its last step, or to the first after which ``stop()`` holds.

    In the folder, if one is given, the metrics are those of this run from its first step on, and
    the checkpoint is at most ``save_every`` steps old. While it runs, no other process can train
    there. Returns the rows of the steps taken here.

    >>> from chainrule import gpt
    >>> config = gpt.Config(width=4, heads=1, block=4, steps=30, learning_rate=0.05)
    >>> rows = gpt.train(gpt.Run.start(["ada"], config))
    >>> rows[-1].loss < rows[0].loss
    True
    """
    if save_every < 1 or validate_every < 1:
        raise GPTError("the steps between two checkpoints or validations must be at least 1")
    rows: list[Row] = []
    with ExitStack() as stack:
        folder = directory
        if folder is not None and not isinstance(folder, RunFolder):
            folder = stack.enter_context(RunFolder(folder))
        files = stack.enter_context(_Files(run, folder.path)) if folder else None
        while run.step < run.config.steps and not stop():
            intervals = (save_every, validate_every) if files else (validate_every,)
            events = [run.config.steps, *(run.step // n * n + n for n in intervals)]
            with Held():  # Ctrl-C comes when a step and its row are complete
                taken = run.take_steps(min(events) - run.step)
                if run.step % validate_every == 0 or run.step == run.config.steps:
                    loss = run.validation_loss()
                    taken[-1] = dataclasses.replace(taken[-1], validation_loss=loss)
                rows += taken
                if files:
                    files.append(taken)
                    if run.step % save_every == 0:
                        files.save(run)
            if report:
                for row in taken:
                    report(row)
        if files:
            files.save(run)
            files.draw(rows)
    return rows


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
    """What a run writes: metrics.csv as it goes, the checkpoint, at the end the picture."""

    def __init__(self, run: Run, path: Path) -> None:
        self.path = path
        self.before: list[Row] = []
        if (path / metrics.FILE).exists():
            self.before = [row for row in metrics.read(path) if row.step <= run.step]
        self.writer = metrics.Writer(path, self.before)
        self.saved = -1
        if not (path / checkpoints.FILE).exists():
            self.save(run)

    def append(self, rows: list[Row]) -> None:
        for row in rows:
            self.writer.append(row)

    def save(self, run: Run) -> None:
        """First the metrics, then the checkpoint: it never knows of steps that they do not hold."""
        if self.saved != run.step:
            self.writer.flush()
            checkpoints.save(run.checkpoint(), self.path)
            self.saved = run.step

    def draw(self, rows: list[Row]) -> None:
        write_atomically(self.path / LOSS_PICTURE, charts.losses({"": [*self.before, *rows]}))

    def __exit__(self, *exception: object) -> None:
        self.writer.close()
