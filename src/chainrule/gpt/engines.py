"""Two ways to take the steps of a training run, over the same scalar model.

``Eager`` builds the graph of every document and walks it backwards; the parameters are the model's
Values. ``Compiled`` records the model's loss as a function of arrays and lets ``compile`` take
whole steps in place; it agrees with eager to rounding, and with itself to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

import numpy.typing as npt

from chainrule.core.backend import engine as scalar_engine
from chainrule.core.backend import no_grad
from chainrule.gpt.config import DTYPES, ENGINES, Config
from chainrule.gpt.data import Data
from chainrule.gpt.errors import GPTError
from chainrule.gpt.model import GPT
from chainrule.gpt.tokenizer import Tokenizer
from chainrule.optim import Adam

if TYPE_CHECKING:
    from chainrule.compiler.training.driver import Trainer

# Eager mode takes about so many seconds per weight and position. Recording and compiling take about
# as long as so many documents, and some seconds more whatever the model.
EAGER_SECONDS = {"native": 80e-9, "reference": 10e-6}
COMPILING_DOCUMENTS, COMPILING_SECONDS = 400, 0.5

TURN = 0.1  # seconds of steps between two looks at what else is to be done

Tokens = Sequence[int]


class Engine(Protocol):
    """What a run needs of either."""

    name: str
    dtype: str
    optimizer: Adam

    def advance(self, most: int) -> list[float]:
        """Take at least one step and at most ``most``; their losses. The model follows."""

    def loss(self, documents: Sequence[Tokens]) -> float:
        """The mean loss of some documents."""


def make(name: str, model: GPT, tokenizer: Tokenizer, data: Data, dtype: str = "float64") -> Engine:
    """The engine of this name, or for ``"auto"`` the one that takes less time in all."""
    if dtype not in DTYPES:
        raise GPTError(f"the dtype must be one of {DTYPES}, not {dtype!r}")
    if name == "auto":
        name = "eager" if dtype == "float64" and not _worth_compiling(model, data) else "compiled"
    if name not in ENGINES:
        raise GPTError(f"the engine must be one of {ENGINES}, not {name!r}")
    if name == "compiled":
        return Compiled(model, tokenizer, data, dtype)
    if dtype != "float64":
        raise GPTError(f"--dtype {dtype} needs --engine compiled; eager computes in float64")
    return Eager(model, tokenizer, data)


def _worth_compiling(model: GPT, data: Data) -> bool:
    if find_spec("llvmlite") is None:
        return False
    config, some = model.config, data.training[:1000]
    weights = config.parameter_count(model.vocabulary)
    weights -= (model.vocabulary + config.block) * config.width  # embeddings are only looked up
    positions = sum(min(len(text) + 1, config.block) for text in some) / len(some)
    each = EAGER_SECONDS[scalar_engine] * weights * positions
    documents = config.steps * config.batch
    return (documents - COMPILING_DOCUMENTS) * each > COMPILING_SECONDS


def _adam(params: Any, config: Config) -> Adam:
    return Adam(params, lr=config.learning_rates(), betas=(config.beta1, config.beta2))


class Eager:
    """Build the graph of each document in turn and walk it backwards."""

    name, dtype = "eager", "float64"

    def __init__(self, model: GPT, tokenizer: Tokenizer, data: Data) -> None:
        self._model, self._tokenizer, self._data = model, tokenizer, data
        self.optimizer = _adam(model.parameters(), model.config)

    def advance(self, most: int) -> list[float]:
        """Take one step."""
        texts = self._data.batch(self.optimizer.steps, self._model.config.batch)
        self.optimizer.zero_grad()
        most = self._model.config.block + 1  # what the model would cut is not split either
        loss = self.backward([self._tokenizer.encode(text, most) for text in texts])
        self.optimizer.step()
        return [loss]

    def backward(self, documents: Sequence[Tokens]) -> float:
        """The mean loss of some documents; its gradients are added to the parameters' ``.grad``."""
        losses = []
        for tokens in documents:
            loss = self._model.loss(tokens)
            loss.backward(1 / len(documents))
            losses.append(loss.data)
        return sum(losses) / len(losses)

    def loss(self, documents: Sequence[Tokens]) -> float:
        """The mean loss of some documents."""
        with no_grad():
            losses = [self._model.loss(tokens).data for tokens in documents]
        return sum(losses) / len(losses)


class Compiled:
    """The loss as one compiled function of the weights, which are arrays."""

    name = "compiled"

    def __init__(self, model: GPT, tokenizer: Tokenizer, data: Data, dtype: str) -> None:
        from chainrule.compiler import compile

        config = model.config

        def loss(weights: Any, tokens: Any) -> Any:
            return GPT.of(config, weights).loss(tokens)

        self._function = compile(loss, dtype=dtype, lift=True)
        self.dtype = dtype
        self._model, self._tokenizer, self._data = model, tokenizer, data
        self._weights: dict[str, npt.NDArray[Any]] = {
            name: array.astype(dtype) for name, array in model.arrays().items()
        }
        model.load_arrays(self._weights)  # with the precision that they have from now on
        self.optimizer = _adam(self._weights, config)
        self._trainer: Trainer | None = None

    def _sample(self, tokens: Tokens) -> tuple[list[int]]:
        """A document as the function takes it, without what the model would cut."""
        return (list(tokens[: self._model.config.block + 1]),)

    def _prepared(self) -> Trainer:
        """The loop; made when it is needed, and when the optimiser has its state."""
        if self._trainer is None:
            config = self._model.config
            texts = self._data.training[: config.steps * config.batch]
            most = config.block + 1
            samples = [self._sample(self._tokenizer.encode(text, most)) for text in texts]
            # A run that is resumed must compute as it would have, to the last bit. So whichever
            # step comes first, what is recorded first is the same.
            with suppress(ValueError, ArithmeticError):  # it comes again where it counts
                longest = max(samples, key=lambda sample: len(sample[0]))
                self._function.value_and_grad(self._weights, *longest)
            self._trainer = self._function.trainer(
                self._weights, samples, self.optimizer, config.batch
            )
        return self._trainer

    def advance(self, most: int) -> list[float]:
        """Take some steps, for about a tenth of a second."""
        try:
            losses: list[float] = self._prepared().advance(most, seconds=TURN).tolist()
        finally:
            self._model.load_arrays(self._weights)
        return losses

    def loss(self, documents: Sequence[Tokens]) -> float:
        """The mean loss of some documents."""
        self._prepared()
        samples = [self._sample(tokens) for tokens in documents]
        # The gradient is thrown away, but what computes it is there already.
        return float(self._function.batch_value_and_grad(self._weights, samples)[0])
