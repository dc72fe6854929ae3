"""A GPT, one scalar at a time. Read it from top to bottom.

The model reads a document token by token. For each token it makes a vector of ``width`` numbers,
lets that vector gather what it needs from the tokens before it (attention) and think about what it
gathered (the MLP), layer after layer, and turns the result into one score per possible next token.
Training makes the score of the token that really came next as large as it can.

Everything is a Value or a list of them, so every step can be followed with a finger, and
``loss.backward()`` finds how each of the weights should change. The arithmetic is microgpt's,
operation for operation: with ``log_softmax=False``, the same weights give the same losses to the
last bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from chainrule.core.backend import Value, dot, linear
from chainrule.gpt.config import Config
from chainrule.gpt.errors import GPTError
from chainrule.nn import Module, log_softmax, rmsnorm, softmax
from chainrule.random import dropout, fold_in, key

# Weights times positions: a larger model is not recorded, but made from recordings of small ones.
LARGE = 1_000_000

Vector = list[Value]
Matrix = list[Vector]

#: called with a name and the numbers found there; ``inspection`` looks into the model this way
Note = Callable[[str, Sequence[Value]], None]


def ignore(name: str, numbers: Sequence[Value]) -> None:
    """A Note that takes no notice."""


class Cache:
    """What attention remembers of the tokens read so far: per layer, a key and a value of each.

    With it a new token costs one pass wherever it stands: nothing is computed twice. ``chance`` is
    the key of the random numbers that dropout needs while the model is trained; else it is None.

    >>> from chainrule import gpt
    >>> model = gpt.GPT(gpt.Config(width=4, heads=1), vocabulary=3)
    >>> cache = model.new_cache()
    >>> logits = [model.logits(token, cache) for token in (2, 0)]
    >>> len(cache), len(logits[-1])
    (2, 3)
    """

    chance: Any = None  # also of a cache that is filled otherwise

    def __init__(self, layers: int, chance: Any = None) -> None:
        self.keys: list[Matrix] = [[] for _ in range(layers)]
        self.values: list[Matrix] = [[] for _ in range(layers)]
        self.chance = chance

    def __len__(self) -> int:
        return len(self.keys[0])

    def shares(self, matches: Vector) -> Vector:
        """How much attention each token gets that matches so well: more than 0, together 1."""
        found: Vector = softmax(matches)
        return found


class GPT(Module):
    """A GPT over a vocabulary of tokens, numbered from 0.

    A model of your own is a class derived from this one: another ``mlp`` or ``attention``, say, or
    other weights, of which ``shapes`` then tells.

    >>> import random
    >>> from chainrule import gpt
    >>> config = gpt.Config(width=8, heads=2, block=4)
    >>> model = gpt.GPT(config, vocabulary=5, rng=random.Random(1))
    >>> len(model.parameters())
    880
    >>> loss = model.loss([4, 0, 1, 4])
    >>> loss.backward()
    >>> 1.4 < loss.data < 1.8
    True
    """

    def __init__(self, config: Config, vocabulary: int, rng: random.Random | None = None) -> None:
        """Every weight starts as a random number near zero."""
        rng = rng or random.Random(config.seed)
        self.config = config
        self.vocabulary = vocabulary
        self.weights: dict[str, Matrix] = {}
        for name, (rows, columns) in self.shapes(config, vocabulary).items():
            projects_back = name.endswith(("attention.output", "mlp.narrow"))
            std = 0.0 if projects_back and config.zero_projections else config.std
            self.weights[name] = [
                [Value(rng.gauss(0, std)) for _ in range(columns)] for _ in range(rows)
            ]

    @staticmethod
    def shapes(config: Config, vocabulary: int) -> dict[str, tuple[int, int]]:
        """Every weight matrix by its name, as (rows, columns), in the order of their creation."""
        return config.shapes(vocabulary)

    @classmethod
    def of(cls, config: Config, weights: dict[str, Matrix]) -> Self:
        """The model that has these weights, matrices by their names."""
        model = cls.__new__(cls)
        model.config, model.weights = config, weights
        model.vocabulary = len(weights["token_embedding"])
        return model

    def parameters(self) -> list[Value]:
        """Every weight, matrix by matrix and row by row."""
        return [p for matrix in self.weights.values() for row in matrix for p in row]

    def new_cache(self, chance: Any = None) -> Cache:
        """The memory of a document of which nothing has been read."""
        return Cache(self.config.layers, chance)

    # --- reading one token ----------------------------------------------------------------------

    def logits(self, token: int, cache: Cache, note: Note = ignore) -> Vector:
        """Read one more token; score every token as the one that may come next."""
        position = len(cache)
        if position >= self.config.block:
            raise GPTError(f"this model reads at most {self.config.block} tokens at a time")

        # What the token is, and where it stands.
        what = self.weights["token_embedding"][token]
        where = self.weights["position_embedding"][position]
        return self.scores(what, where, cache, note)

    def scores(self, what: Vector, where: Vector, cache: Cache, note: Note = ignore) -> Vector:
        """The logits after a token, from its own embedding and that of its position."""
        drop = self.dropout(cache)
        x = drop(rmsnorm([t + p for t, p in zip(what, where, strict=True)]), 0)
        note("embedding", x)

        # Each layer adds something to x and leaves the rest as it was: the way from the loss back
        # to the embedding stays open, however many layers there are.
        for layer in range(self.config.layers):
            x = add(drop(self.attention(rmsnorm(x), layer, cache, note), 2 * layer + 1), x)
            note(f"layers.{layer}.attention", x)
            x = add(drop(self.mlp(rmsnorm(x), layer, note), 2 * layer + 2), x)
            note(f"layers.{layer}.mlp", x)

        logits = linear(x, self.weights["head"])
        note("logits", logits)
        return logits

    def dropout(self, cache: Cache) -> Callable[[Vector, int], Vector]:
        """What sets some numbers of a vector to 0 while the model is trained, others each time.

        No number can rely on another one being there, so that each must be useful by itself. The
        second argument tells the vectors of a token apart.
        """
        if cache.chance is None or not self.config.dropout:
            return lambda x, place: x
        chance, rate = fold_in(cache.chance, len(cache)), self.config.dropout
        return lambda x, place: dropout(x, rate, fold_in(chance, place))

    def attention(self, x: Vector, layer: int, cache: Cache, note: Note = ignore) -> Vector:
        """Gather from the tokens read so far, this one included, what matters for this one.

        The query says what this token looks for, the key of a token what it offers, the value what
        it gives when it is chosen. Several heads look for several things at once, each in its own
        part of the vectors.
        """
        name = f"layers.{layer}.attention"
        query = linear(x, self.weights[f"{name}.query"])
        keys, values = cache.keys[layer], cache.values[layer]
        keys.append(linear(x, self.weights[f"{name}.key"]))
        values.append(linear(x, self.weights[f"{name}.value"]))

        size = self.config.width // self.config.heads
        gathered: Vector = []
        for head in range(self.config.heads):
            part = slice(head * size, (head + 1) * size)
            matches = [dot(query[part], key[part]) / size**0.5 for key in keys]
            shares = cache.shares(matches)  # how much of this token's attention each token gets
            note(f"{name}.head.{head}", shares)
            for j in range(part.start, part.stop):
                gathered.append(dot(shares, [value[j] for value in values]))
        return linear(gathered, self.weights[f"{name}.output"])

    def mlp(self, x: Vector, layer: int, note: Note = ignore) -> Vector:
        """Think about it: widen the vector, keep what is positive, narrow it again."""
        hidden: list[Any] = linear(x, self.weights[f"layers.{layer}.mlp.widen"])
        hidden = [h.relu() for h in hidden]
        if self.config.activation == "squared relu":
            hidden = [h**2 for h in hidden]
        note(f"layers.{layer}.mlp.hidden", hidden)
        return linear(hidden, self.weights[f"layers.{layer}.mlp.narrow"])

    # --- reading a document ---------------------------------------------------------------------

    def loss(self, tokens: Sequence[int], note: Note = ignore, chance: Any = None) -> Value:
        """How badly the model predicts a document: the mean of ``-log p(next token)``.

        A document longer than the model's block is cut. ``chance``, a key of ``chainrule.random``,
        is for dropout; without it nothing is dropped.
        """
        losses = self.losses(tokens, note, chance)
        total: Any = sum(losses)
        mean: Value = (1 / len(losses)) * total
        return mean

    def losses(self, tokens: Sequence[int], note: Note = ignore, chance: Any = None) -> list[Value]:
        """That of each position: ``-log p(next token)``."""
        n = min(self.config.block, len(tokens) - 1)
        if n < 1:
            raise GPTError("a loss needs at least two tokens: one to read, one to predict")
        cache = self.new_cache(chance)
        losses = []
        for position in range(n):
            logits, target = self.logits(tokens[position], cache, note), tokens[position + 1]
            if self.config.log_softmax:
                losses.append(-log_softmax(logits)[target])
            else:
                losses.append(-softmax(logits)[target].log())
        return losses

    # --- as arrays, for checkpoints -------------------------------------------------------------

    def arrays(self) -> dict[str, npt.NDArray[np.float64]]:
        """The weights as plain numbers."""
        return {
            name: np.array([[p.data for p in row] for row in matrix])
            for name, matrix in self.weights.items()
        }

    def load_arrays(self, arrays: dict[str, npt.NDArray[np.float64]]) -> None:
        """Take over weights that ``arrays`` gave; all of them or, if one does not fit, none."""
        for name, shape in self.shapes(self.config, self.vocabulary).items():
            if name not in arrays or arrays[name].shape != shape:
                found = arrays[name].shape if name in arrays else "missing"
                raise GPTError(f"the weights {name!r} must have shape {shape}, not {found}")
        for name, matrix in self.weights.items():
            for row, numbers in zip(matrix, arrays[name].tolist(), strict=True):
                for p, number in zip(row, numbers, strict=True):
                    p.data = number


def is_large(model: GPT) -> bool:
    """Whether a model is not recorded at its own size, but made from recordings of small ones."""
    config = model.config
    work = config.block * config.parameter_count(model.vocabulary)
    return type(model) is GPT and not config.dropout and work >= LARGE


def run_key(config: Config) -> Any:
    """The key of a run's random numbers, where there is dropout; document n folds in n."""
    return fold_in(key(config.seed), 0) if config.dropout else None


def add(a: Vector, b: Vector) -> Vector:
    """Two vectors, element by element."""
    return [x + y for x, y in zip(a, b, strict=True)]
