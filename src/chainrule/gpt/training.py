"""Training: read some documents, measure the loss, move every parameter a little, again and again.

A ``Run`` is everything that training changes and needs. ``train`` takes it to its last step and
keeps the folder it is given up to date: checkpoint.safetensors, metrics.csv and loss.svg. A run
that was stopped anywhere goes on from its checkpoint to the same numbers, bit for bit.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chainrule.engine import no_grad
from chainrule.gpt import charts, checkpoints, metrics
from chainrule.gpt.checkpoints import Arrays, Checkpoint
from chainrule.gpt.config import Config
from chainrule.gpt.data import BUNDLED, Data
from chainrule.gpt.errors import GPTError
from chainrule.gpt.metrics import Row
from chainrule.gpt.model import GPT
from chainrule.gpt.tokenizer import KINDS, Tokenizer
from chainrule.optim import Adam

LOSS_PICTURE = "loss.svg"

#: The mean loss of some documents; its gradients are added to the parameters' ``.grad``.
LossAndGradients = Callable[[GPT, Sequence[Sequence[int]]], float]


def eager(model: GPT, batch: Sequence[Sequence[int]]) -> float:
    """Build the graph of each document in turn and walk it backwards."""
    losses = []
    for tokens in batch:
        loss = model.loss(tokens)
        loss.backward(1 / len(batch))
        losses.append(loss.data)
    return sum(losses) / len(losses)


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
    optimizer: Adam
    rng: random.Random
    validation: float  #: the share of documents held out
    step: int = 0

    @staticmethod
    def start(
        documents: Sequence[str],
        config: Config | None = None,
        *,
        validation: float = 0.1,
        source: str = BUNDLED,
        tokenizer: Tokenizer | None = None,
        weights: Arrays | None = None,
    ) -> Run:
        """A run at step 0, from random weights or (to fine-tune) from a checkpoint's.

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
        return Run(config, tokenizer, data, model, _optimizer(model, config), rng, validation)

    @staticmethod
    def resume(
        checkpoint: Checkpoint, documents: Sequence[str], source: str, steps: int | None = None
    ) -> Run:
        """The run that a checkpoint was made of; the documents must be the same.

        With another number of steps it ends there, and the learning rates are stretched to it.
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
        model = checkpoint.model()
        optimizer = _optimizer(model, config)
        optimizer.load_state_dict(checkpoint.optimizer)
        return Run(
            config,
            checkpoint.tokenizer,
            data,
            model,
            optimizer,
            rng,
            checkpoint.validation,
            checkpoint.step,
        )

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
        )

    def advance(self, loss_and_gradients: LossAndGradients = eager) -> Row:
        """One step."""
        documents = self.data.batch(self.step, self.config.batch)
        batch = [self.tokenizer.encode(text) for text in documents]
        rate = self.optimizer.lr
        self.optimizer.zero_grad()
        try:
            loss = loss_and_gradients(self.model, batch)
            self.optimizer.step()
        except GPTError:
            raise
        except (ValueError, ArithmeticError) as error:
            raise GPTError(
                f"training broke down at step {self.step + 1} ({error}); "
                "a smaller learning rate may help"
            ) from error
        self.step += 1
        return Row(self.step, loss, rate)

    def validation_loss(self, limit: int = 50) -> float | None:
        """The mean loss of the first ``limit`` documents held out, if there are any."""
        documents = self.data.validation[:limit]
        if not documents:
            return None
        with no_grad():
            losses = [self.model.loss(self.tokenizer.encode(text)).data for text in documents]
        return sum(losses) / len(losses)


def _optimizer(model: GPT, config: Config) -> Adam:
    betas = (config.beta1, config.beta2)
    return Adam(model.parameters(), lr=config.learning_rates(), betas=betas)


def train(
    run: Run,
    directory: str | Path | None = None,
    *,
    save_every: int = 100,
    validate_every: int = 250,
    report: Callable[[Row], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    loss_and_gradients: LossAndGradients = eager,
) -> list[Row]:
    """Take a run to its last step, or to the first after which ``stop()`` holds.

    In the folder, if one is given, the metrics are those of this run from its first step on, and
    the checkpoint is at most ``save_every`` steps old. Returns the rows of the steps taken here.

    >>> from chainrule import gpt
    >>> config = gpt.Config(width=4, heads=1, block=4, steps=30, learning_rate=0.05)
    >>> rows = gpt.train(gpt.Run.start(["ada"], config))
    >>> rows[-1].loss < rows[0].loss
    True
    """
    if save_every < 1 or validate_every < 1:
        raise GPTError("the steps between two checkpoints or validations must be at least 1")
    folder = _Folder(run, Path(directory)) if directory is not None else None
    rows: list[Row] = []
    try:
        while run.step < run.config.steps and not stop():
            row = run.advance(loss_and_gradients)
            last = run.step == run.config.steps
            if last or run.step % validate_every == 0:
                row = Row(row.step, row.loss, row.learning_rate, run.validation_loss())
            rows.append(row)
            if folder:
                folder.writer.append(row)
                if run.step % save_every == 0:
                    folder.save(run)
            if report:
                report(row)
        if folder:
            folder.save(run)
            folder.draw(rows)
    finally:
        if folder:
            folder.writer.close()
    return rows


class _Folder:
    """The files of a run."""

    def __init__(self, run: Run, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.before: list[Row] = []
        if (path / metrics.FILE).exists():
            self.before = [row for row in metrics.read(path) if row.step <= run.step]
        self.writer = metrics.Writer(path, self.before)
        self.saved = -1
        if not (path / checkpoints.FILE).exists():
            self.save(run)

    def save(self, run: Run) -> None:
        """First the metrics, then the checkpoint: it never knows of steps that they do not hold."""
        if self.saved != run.step:
            self.writer.flush()
            checkpoints.save(run.checkpoint(), self.path)
            self.saved = run.step

    def draw(self, rows: list[Row]) -> None:
        picture = charts.losses({"": [*self.before, *rows]}).encode()
        checkpoints.write_atomically(self.path / LOSS_PICTURE, picture)
