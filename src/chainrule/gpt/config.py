"""What a GPT looks like and how it is trained: one flat list of choices, and four presets.

``microgpt`` is Karpathy's script, ``course`` the earlier variant that the courses about it teach,
``book`` the larger model over whole words of the TypeScript book, and ``shakespeare`` nanoGPT's
model of characters for a computer without a GPU, which reads a whole text in windows.
"""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass
from reprlib import repr as shown  # long ones are cut
from typing import Any

from chainrule import optim
from chainrule.gpt.errors import GPTError

TOKENS = ("char", "word")
ACTIVATIONS = ("relu", "squared relu")
SCHEDULES = ("constant", "linear", "cosine")
ENGINES = ("eager", "compiled", "jax")
DTYPES = ("float64", "float32", "bfloat16")
LARGEST = 1_000_000  # of any size: far beyond what scalars can do, far below what would overflow
MOST_STEPS = 10**12
ATTENTION = 3  # what a pair of positions takes, softmax included, for each number of the width
#: What checkpoints of earlier versions do not say, as it was then.
BEFORE = {"log_softmax": False, "weight_decay": 0.0, "clip": 0.0, "stream": False, "dropout": 0.0}


@dataclass(frozen=True)
class Config:
    """The shape of a GPT and its training; the defaults are microgpt's.

    >>> from chainrule import gpt
    >>> gpt.Config.preset("course").block
    8
    >>> gpt.Config(layers=2, width=32).parameter_count(vocabulary=27)
    26816
    """

    # the model
    layers: int = 1
    width: int = 16
    heads: int = 4
    block: int = 16  #: the longest sequence it can read; longer documents are cut
    tokens: str = "char"
    activation: str = "relu"
    std: float = 0.08  #: the spread of the initial weights
    zero_projections: bool = False  #: start with every layer passing its input through
    #: the loss by log-softmax, which no score is too large for; microgpt takes the logarithm of the
    #: softmax, which ends training where a probability rounds to 0
    log_softmax: bool = True
    # its training
    stream: bool = False  #: read windows at random places of one text, not one line after the other
    steps: int = 1000
    batch: int = 1
    learning_rate: float = 0.01
    schedule: str = "linear"
    beta1: float = 0.85
    beta2: float = 0.99
    weight_decay: float = 0.0  #: of AdamW: each step shrinks every weight by lr times this
    clip: float = 0.0  #: the largest norm of a step's gradient; 0: any
    #: the share of the numbers that training sets to 0, another share at every step: of embeddings,
    #: and of what each attention and MLP adds to them
    dropout: float = 0.0
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "block", "steps", "batch"):
            number, most = getattr(self, name), MOST_STEPS if name == "steps" else LARGEST
            if type(number) is not int or not 1 <= number <= most:
                raise GPTError(
                    f"{name} must be a whole number from 1 to {most}, not {shown(number)}"
                )
        if type(self.seed) is not int:
            raise GPTError(f"seed must be a whole number, not {shown(self.seed)}")
        if self.width % self.heads:
            raise GPTError(
                f"a width of {self.width} cannot be shared by {self.heads} heads: "
                "it must be a multiple of them"
            )
        for name, choices in (
            ("tokens", TOKENS),
            ("activation", ACTIVATIONS),
            ("schedule", SCHEDULES),
        ):
            if getattr(self, name) not in choices:
                raise GPTError(f"{name} must be one of {choices}, not {shown(getattr(self, name))}")
        for name in ("zero_projections", "log_softmax", "stream"):
            if type(getattr(self, name)) is not bool:
                raise GPTError(f"{name} must be a bool, not {shown(getattr(self, name))}")
        for name in ("std", "learning_rate", "beta1", "beta2", "weight_decay", "clip", "dropout"):
            number = getattr(self, name)
            if type(number) not in (int, float) or not 0 <= number <= sys.float_info.max:
                raise GPTError(f"{name} must be a number from 0 on, not {shown(number)}")
        if not self.dropout < 1:
            raise GPTError(f"dropout must be less than 1, not {self.dropout}")
        if not (self.beta1 < 1 and self.beta2 < 1):
            raise GPTError(f"both betas must be less than 1, not {self.beta1} and {self.beta2}")

    @staticmethod
    def preset(name: str) -> Config:
        """One of ``PRESETS`` by its name."""
        if name not in PRESETS:
            raise GPTError(f"there is no preset {name!r}; there are {', '.join(PRESETS)}")
        return PRESETS[name]

    def replace(self, **changes: Any) -> Config:
        """The same configuration with some choices changed."""
        return dataclasses.replace(self, **changes)

    def shapes(self, vocabulary: int) -> dict[str, tuple[int, int]]:
        """Every weight matrix by its name, as (rows, columns), in the order of their creation."""
        width = self.width
        shapes = {
            "token_embedding": (vocabulary, width),
            "position_embedding": (self.block, width),
            "head": (vocabulary, width),
        }
        for layer in range(self.layers):
            for name in ("query", "key", "value", "output"):
                shapes[f"layers.{layer}.attention.{name}"] = (width, width)
            shapes[f"layers.{layer}.mlp.widen"] = (4 * width, width)
            shapes[f"layers.{layer}.mlp.narrow"] = (width, 4 * width)
        return shapes

    def parameter_count(self, vocabulary: int) -> int:
        """How many numbers training changes."""
        return sum(rows * columns for rows, columns in self.shapes(vocabulary).values())

    def work(self, shapes: dict[str, tuple[int, int]], positions: Any) -> Any:
        """About how much there is to compute for so many positions of a document, in products.

        ``shapes``: of the model's weights. Embeddings are only looked up; what attention compares
        and gathers grows with the square of the positions.
        """
        read = sum(
            rows * columns
            for name, (rows, columns) in shapes.items()
            if name not in ("token_embedding", "position_embedding")
        )
        return positions * read + ATTENTION * positions**2 * self.width * self.layers

    def learning_rates(self) -> optim.Schedule:
        """The learning rate of every step."""
        if self.schedule == "linear":
            return optim.linear(self.learning_rate, self.steps)
        if self.schedule == "cosine":
            return optim.cosine(self.learning_rate, self.steps)
        return optim.constant(self.learning_rate)

    def suitable_rate(self) -> float:
        """A learning rate for this width, given that of a narrow model.

        A step moves what a layer adds by about the width times the rate: beyond a width of 32 the
        rate falls with it, as far as 0.001.

        >>> from chainrule import gpt
        >>> gpt.Config(width=128).suitable_rate()
        0.0025
        """
        rate = self.learning_rate * min(1.0, 32 / self.width)
        return max(rate, min(self.learning_rate, 0.001))

    def smaller_rate(self) -> float:
        """A learning rate to try where this one was too large.

        >>> from chainrule import gpt
        >>> gpt.Config(learning_rate=1e300).smaller_rate(), gpt.Config().smaller_rate()
        (0.01, 0.0025)
        """
        usual = self.replace(learning_rate=Config.learning_rate).suitable_rate()
        return min(usual, self.learning_rate / 4)

    def to_dict(self) -> dict[str, Any]:
        """All choices, for a checkpoint."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_dict(choices: Any) -> Config:
        """The configuration that ``to_dict`` gave, here or in an earlier version, all checked."""
        names = {field.name for field in dataclasses.fields(Config)}
        if not isinstance(choices, dict) or {*choices, *BEFORE} != names:
            raise GPTError("the configuration does not hold the expected fields")
        return Config(**{**BEFORE, **choices})


PRESETS: dict[str, Config] = {
    "microgpt": Config(),
    "course": Config(
        block=8,
        activation="squared relu",
        std=0.02,
        zero_projections=True,
        steps=500,
        schedule="cosine",
        beta1=0.9,
        beta2=0.95,
    ),
    "book": Config(layers=2, width=32, tokens="word", steps=5000),
    "shakespeare": Config(
        layers=4,
        width=128,
        block=64,
        std=0.02,
        stream=True,
        steps=2000,
        batch=12,
        learning_rate=0.001,
        schedule="cosine",
        beta1=0.9,
        weight_decay=0.1,
        clip=1.0,
    ),
}
