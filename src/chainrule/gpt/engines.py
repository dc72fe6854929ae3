"""Three ways to take the steps of a training run, over the same scalar model.

``Eager`` builds the graph of every document and walks it backwards; the parameters are the model's
Values. ``Compiled`` records the model's loss as a function of arrays and lets ``compile`` take
whole steps in place; it agrees with eager to rounding, and with itself to the last bit. The third,
``parallel.Jax``, takes them on the devices of one or more machines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from chainrule import random
from chainrule.core.backend import engine as scalar_engine
from chainrule.core.backend import no_grad
from chainrule.core.interrupts import safe_point
from chainrule.gpt.config import DTYPES, ENGINES, Config
from chainrule.gpt.data import Data
from chainrule.gpt.devices import Devices, Mesh
from chainrule.gpt.errors import GPTError
from chainrule.gpt.model import GPT, is_large, run_key
from chainrule.gpt.parallel import Jax
from chainrule.gpt.tokenizer import Tokenizer
from chainrule.optim import AdamW, clip_gradients
from chainrule.windows import Windows

if TYPE_CHECKING:
    from chainrule.compiler.training.driver import Trainer
    from chainrule.compiler.training.evaluation import Evaluator

# Eager mode takes about so many seconds per product, and per number that may be
# dropped; a validation, which has no backward pass, takes this part of it.
EAGER_SECONDS = {"native": 100e-9, "reference": 10e-6}
DROPPING_SECONDS = {"native": 8e-6, "reference": 80e-6}
FORWARD = 1 / 6
# To import the compiler and to build machine code takes some seconds whatever the model, and for
# each length of documents as long as so many eager steps. Large models have more code, and each
# length is computed once, to be compared.
COMPILING_SECONDS, COMPILING_STEPS = 1.0, 6.0
LARGE_SECONDS, LARGE_STEPS = 4.0, 1.5
MOST_EAGER = 10_000_000  # products of a document: the graph of more takes gigabytes
MOST_HELD_OUT = 50  # documents that eager mode validates on
SOME = 1000  # documents that are looked at to tell how long all of them are

CHARACTERS = 128  # a vocabulary of so many tokens is small

TURN = 0.1  # seconds of steps between two looks at what else is to be done

Tokens = Sequence[int]
Arrays = dict[str, npt.NDArray[np.float64]]
#: Called with how many lengths of documents have been recorded, and how many there are.
Progress = Callable[[int, int], Any]


def validation_interval(steps: int) -> int:
    """The steps between two validations of a run of so many, where nothing else is asked for."""
    return max(250, steps // 100)


def unnoticed(done: int, total: int) -> None:
    """A ``Progress`` that tells nobody."""


class Engine(Protocol):
    """What a run needs of each."""

    name: str
    dtype: str
    kind: type[GPT]
    most_held_out: int | None  #: of the documents held out so many are looked at; None: all

    @property
    def doing(self) -> str:
        """What is prepared just now, in words, where that takes long; any thread may ask."""

    @property
    def mesh(self) -> Mesh | None:
        """The devices and processes that share the work; None: this process alone."""

    @property
    def optimizer(self) -> AdamW:
        """The optimiser of the weights."""

    @property
    def model(self) -> GPT:
        """The model, with the weights of the last step."""

    def weights(self) -> Arrays:
        """The weights as they are now, copied."""

    def prepare(self, held_out: Sequence[Tokens], progress: Progress) -> None:
        """Do all that has to be done once, before the first step."""

    def advance(self, most: int) -> list[float]:
        """Take at least one step and at most ``most``; their losses. The model follows."""

    def loss(self, documents: Sequence[Tokens]) -> float:
        """The mean loss of some documents."""


def make(
    name: str,
    model: GPT,
    tokenizer: Tokenizer,
    data: Data,
    dtype: str = "float64",
    devices: Devices | None = None,
) -> Engine:
    """The engine of this name, or for ``"auto"`` the one that takes less time in all."""
    if dtype not in DTYPES:
        raise GPTError(f"the dtype must be one of {DTYPES}, not {dtype!r}")
    if name == "auto":
        name = (
            "eager"
            if dtype == "float64" and not _worth_compiling(model, tokenizer, data)
            else "compiled"
        )
    if name not in ENGINES:
        raise GPTError(f"the engine must be one of {ENGINES}, not {name!r}")
    if name == "jax" and model.config.dropout and dtype == "bfloat16":
        raise GPTError("dropout needs --dtype float32 or float64: bfloat16 rounds its counters")
    if name == "jax":
        return Jax(model, tokenizer, data, dtype, devices or Devices())
    if devices is not None:
        raise GPTError(f"devices are for --engine jax, not for {name}")
    if dtype == "bfloat16":
        raise GPTError(f"--dtype {dtype} needs --engine jax")
    if name == "compiled":
        return Compiled(model, tokenizer, data, dtype)
    if dtype != "float64":
        raise GPTError(f"--dtype {dtype} needs --engine compiled or jax; eager computes in float64")
    return Eager(model, tokenizer, data)


def _worth_compiling(model: GPT, tokenizer: Tokenizer, data: Data) -> bool:
    """Whether eager steps and validations would take longer than it takes to compile."""
    if find_spec("llvmlite") is None:
        return False
    config = model.config
    shapes = model.shapes(config, model.vocabulary)
    documents = config.steps * config.batch
    training = _positions(data.training[: min(SOME, documents)], tokenizer, config, data.stream)
    held_out = _positions(data.validation[:SOME], tokenizer, config, data.stream)
    both = np.unique(np.concatenate([training, held_out]))
    if config.work(shapes, int(both[-1])) > MOST_EAGER:
        return True

    def seconds(positions: npt.NDArray[np.int64]) -> Any:
        """Of an eager step over a document for each."""
        found = EAGER_SECONDS[scalar_engine] * config.work(shapes, positions)
        if config.dropout:
            numbers = positions * config.width * (2 * config.layers + 1)
            found = found + DROPPING_SECONDS[scalar_engine] * numbers
        return found

    eager = documents * seconds(training).mean()
    if len(held_out):
        validations = 1 + config.steps // validation_interval(config.steps)
        looked_at = min(MOST_HELD_OUT, len(data.validation)) * validations
        eager += FORWARD * looked_at * seconds(held_out).mean()
    lengths = seconds(both).sum()
    if is_large(model):
        return bool(eager > LARGE_SECONDS + LARGE_STEPS * lengths)
    return bool(eager > COMPILING_SECONDS + COMPILING_STEPS * lengths)


def _positions(
    texts: Sequence[str], tokenizer: Tokenizer, config: Config, stream: bool
) -> npt.NDArray[np.int64]:
    """How many positions of each text the model reads."""
    if stream:
        return np.full(min(1, len(texts)), config.block)
    return np.array([tokenizer.positions(text, config.block) for text in texts], np.int64)


def _adam(params: Any, config: Config) -> AdamW:
    betas = (config.beta1, config.beta2)
    rates = config.learning_rates()
    return AdamW(params, lr=rates, betas=betas, weight_decay=config.weight_decay)


class Eager:
    """Build the graph of each document in turn and walk it backwards."""

    name, dtype, doing = "eager", "float64", ""
    mesh: Mesh | None = None
    most_held_out: int | None = (
        MOST_HELD_OUT  # more of them would take longer than the steps in between
    )

    def __init__(self, model: GPT, tokenizer: Tokenizer, data: Data) -> None:
        self.model, self._tokenizer, self._data = model, tokenizer, data
        self.kind = type(model)
        self.optimizer = _adam(model.parameters(), model.config)
        self._windows: Windows | None = None

    def prepare(self, held_out: Sequence[Tokens], progress: Progress) -> None:
        """There is nothing to prepare."""

    def weights(self) -> Arrays:
        """The weights as they are now, copied."""
        return self.model.arrays()

    def advance(self, most: int) -> list[float]:
        """Take one step."""
        self.optimizer.zero_grad()
        loss = self.backward(self._next(), self._chances())
        if self.model.config.clip:
            clip_gradients(self.model.parameters(), self.model.config.clip)
        self.optimizer.step()
        return [loss]

    def _next(self) -> Sequence[Tokens]:
        """What the next step reads."""
        config, step = self.model.config, self.optimizer.steps
        if not self._data.stream:
            most = config.block + 1  # what the model would cut is not split either
            texts = self._data.batch(step, config.batch)
            return [self._tokenizer.encode(text, most) for text in texts]
        if self._windows is None:
            made = self._data.samples(self._tokenizer, config.block, config.seed)
            assert isinstance(made, Windows)
            self._windows = made
        places = self._windows.places(step * config.batch, config.batch)
        return [self._windows[place][0] for place in places.tolist()]

    def _chances(self) -> list[dict[str, Any]]:
        """The keys of the random numbers that the next step's documents need, if they need any."""
        config = self.model.config
        key, first = run_key(config), self.optimizer.steps * config.batch
        numbers = range(first, first + config.batch)
        return [{} if key is None else {"chance": random.fold_in(key, n)} for n in numbers]

    def backward(self, documents: Sequence[Tokens], chances: Sequence[dict[str, Any]]) -> float:
        """The mean loss of some documents; its gradients are added to the parameters' ``.grad``."""
        losses = []
        for tokens, chance in zip(documents, chances, strict=True):
            loss = self.model.loss(tokens, **chance)
            loss.backward(1 / len(documents))
            losses.append(loss.data)
        return sum(losses) / len(losses)

    def loss(self, documents: Sequence[Tokens]) -> float:
        """The mean loss of some documents."""
        with no_grad():
            losses = []
            for tokens in documents:
                safe_point()
                losses.append(self.model.loss(tokens).data)
        return sum(losses) / len(losses)


def _examples(config: Config, vocabulary: int, dtype: str) -> Callable[..., Any]:
    """Makes small arguments of the loss: heads of ``size`` numbers, so many tokens, and so on.

    A small vocabulary is the same in all of them: one size less takes fewer recordings.
    """

    def example(size: int = 3, tokens: int = 5, block: int = 9, vocabulary: int = 7) -> Any:
        chance = np.random.default_rng(0)
        small = config.replace(width=config.heads * size, block=block)
        weights = {
            name: chance.normal(0.0, 0.3, shape).astype(dtype)
            for name, shape in small.shapes(vocabulary).items()
        }
        return weights, chance.integers(0, vocabulary, tokens).tolist()

    if vocabulary > CHARACTERS:
        return example
    return lambda size=3, tokens=5, block=9: example(size, tokens, block, vocabulary)


class Compiled:
    """The loss as one compiled function of the weights, which are arrays."""

    name = "compiled"
    mesh: Mesh | None = None
    most_held_out: int | None = None

    def __init__(self, model: GPT, tokenizer: Tokenizer, data: Data, dtype: str) -> None:
        from chainrule.compiler import compile

        config, kind = model.config, type(model)

        def loss(weights: Any, tokens: Any) -> Any:
            return kind.of(config, weights).loss(tokens)

        def loss_by_chance(weights: Any, tokens: Any, chance: Any) -> Any:
            return kind.of(config, weights).loss(tokens, chance=chance)

        def loss_at_any_size(weights: Any, tokens: Any) -> Any:
            width, block = len(weights["head"][0]), len(weights["position_embedding"])
            return GPT.of(config.replace(width=width, block=block), weights).loss(tokens)

        function, sizes = loss_by_chance if config.dropout else loss, None
        if is_large(model):
            function, sizes = loss_at_any_size, _examples(config, model.vocabulary, dtype)
        self._function = compile(function, dtype=dtype, lift=True, sizes=sizes)
        self.dtype, self.kind = dtype, kind
        self._model, self._tokenizer, self._data = model, tokenizer, data
        self._weights: dict[str, npt.NDArray[Any]] = {
            name: array.astype(dtype) for name, array in model.arrays().items()
        }
        self._behind = True  # whether the model's Values are not those of the arrays
        self.optimizer = _adam(self._weights, config)
        self._trainer: Trainer | None = None
        self._evaluated: tuple[Sequence[Tokens], Evaluator] | None = None

    @property
    def doing(self) -> str:
        """What is prepared just now, in words, where that takes long."""
        words: str = self._function.dispatch.doing
        return words

    @property
    def model(self) -> GPT:
        """The model, with the weights of the last step."""
        if self._behind:
            self._model.load_arrays(self._weights)
            self._behind = False
        return self._model

    def weights(self) -> Arrays:
        """The weights as they are now, copied."""
        return {name: array.astype(np.float64) for name, array in self._weights.items()}

    def prepare(self, held_out: Sequence[Tokens], progress: Progress) -> None:
        """Record all that the steps and validations need, and compile what the steps need.

        A run that is resumed must compute as it would have, to the last bit: so all of it is made
        now, in the same order whichever step comes first. The longest document of all comes first,
        held out or not: its code serves all others.
        """
        if self._trainer is not None:
            return
        config = self._model.config
        samples: Any = self._data.samples(
            self._tokenizer, config.block, config.seed, config.steps * config.batch
        )
        if isinstance(samples, Windows):
            known = {samples.length}
        else:
            known = {*map(len, samples)}
            samples = [(tokens,) for tokens in samples]
        # Documents that are held out have lengths of their own.
        more = {len(sample[0]): sample for sample in self._held_out(held_out)}
        own = sorted(more.keys() - known, reverse=True)
        total, longer = len(own) + len(known), sum(n > max(known) for n in own[:1])

        def record(places: range) -> None:
            for place in places:
                self._function.evaluator(self._weights, [more[own[place]]])
                progress(place + 1 if place < longer else len(known) + place + 1, total)

        progress(0, total)
        record(range(longer))
        self._trainer = self._function.trainer(
            self._weights,
            samples,
            self.optimizer,
            config.batch,
            clip=config.clip or None,
            key=run_key(config),
            progress=lambda done, _: progress(longer + done, total),
        )
        record(range(longer, len(own)))

    def _held_out(self, documents: Sequence[Tokens]) -> list[tuple[Any, ...]]:
        """Samples of the function that the steps run too, but nothing of them is dropped."""
        off = (random.off(),) if self._model.config.dropout else ()
        most = self._model.config.block + 1  # the model cuts what is longer
        return [(list(tokens[:most]), *off) for tokens in documents]

    def advance(self, most: int) -> list[float]:
        """Take some steps, for about a tenth of a second."""
        if self._trainer is None:
            self.prepare((), unnoticed)
        assert self._trainer is not None
        self._behind = True
        if not self._trainer.taken:
            most = (
                1  # some of the code is built in the first call: whoever measures can leave it out
            )
        losses: list[float] = self._trainer.advance(most, seconds=TURN).tolist()
        self._trainer.forget_losses()  # the run has them in its metrics
        return losses

    def loss(self, documents: Sequence[Tokens]) -> float:
        """The mean loss of some documents; of the same list again, what was prepared is kept.

        The code for it is built when it is first wanted: the first steps do not wait for it.
        """
        self.prepare(documents, unnoticed)
        if self._evaluated is None or self._evaluated[0] is not documents:
            made = self._function.evaluator(self._weights, self._held_out(documents))
            self._evaluated = documents, made
        return self._evaluated[1]()
