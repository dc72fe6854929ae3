"""Documents side by side: one compiled step of the model reads the next token of many at once.

In: a model, a beginning, and random numbers for each document. Out: the tokens of each, or None
where only the scalar model can tell: see ``Choice.tokens``. A step takes what attention remembers
as arrays and gives what is to be added to them. They have a slot for every position, whether it has
been read or not, so one recording serves all positions and each document may be at another.
"""

from __future__ import annotations

import functools
from importlib.util import find_spec
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.core.backend import engine as scalar_engine
from chainrule.gpt.choice import Choice, Floats
from chainrule.gpt.config import Config
from chainrule.gpt.model import GPT, Cache, Vector

HIDDEN = -1e30  # added to a match: the exponential of what is left is 0
FEWEST, MOST = 8, 1024  # documents at a time
MOST_BYTES = 1 << 25  # that they remember together
MOST_SLOTS = 1 << 19  # numbers that one document remembers: a step that reads more is not recorded
KEPT = 4  # compiled steps, of as many configurations

# The scalar model takes about so many seconds per weight to read a token; a compiled step takes so
# many to be made, per weight and beside that.
READING_SECONDS = {"native": 30e-9, "reference": 4e-6}
COMPILING_SECONDS = {"native": 15e-6, "reference": 200e-6}
COMPILING_ANYTHING = 0.25

Arrays = dict[str, npt.NDArray[np.float64]]
Places = npt.NDArray[np.int64]


class Slots(Cache):
    """A cache with a slot for every position: ``hidden`` is 0 for each that has been read.

    What has not is hidden from attention: exactly 0 is added for it wherever something is added up.
    """

    def __init__(self, keys: Any, values: Any, hidden: Any) -> None:
        self.keys = [list(rows) for rows in keys]
        self.values = [list(rows) for rows in values]
        self.hidden = hidden

    def shares(self, matches: Vector) -> Vector:
        """How much attention each token gets: none where nothing has been read."""
        *slots, own = matches
        return super().shares([*[m + h for m, h in zip(slots, self.hidden, strict=True)], own])


class Step:
    """The compiled step of all models with one configuration."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._read = 0  # tokens that might have been read by it, before it was made
        self._pays = False

    @functools.cached_property
    def _compiled(self) -> Any:
        from chainrule.compiler import compile

        config = self._config

        def step(weights: Any, what: Any, where: Any, keys: Any, values: Any, hidden: Any) -> Any:
            cache = Slots(keys, values, hidden)
            logits = GPT.of(config, weights).scores(what, where, cache)
            news = [[rows[-1] for rows in memory] for memory in (cache.keys, cache.values)]
            return np.array(logits), np.array(news)

        return compile(step, lift=True)

    def pays(self, model: GPT, tokens: int) -> bool:
        """Whether to make it for so many tokens more: it takes no longer than all of them would."""
        config = model.config
        if self._pays or find_spec("llvmlite") is None or self.room(1).size > MOST_SLOTS:
            return self._pays
        weights = config.parameter_count(model.vocabulary)
        weights -= (model.vocabulary + config.block) * config.width  # embeddings are only looked up
        self._read += tokens
        compiling = COMPILING_ANYTHING + COMPILING_SECONDS[scalar_engine] * weights
        self._pays = self._read * READING_SECONDS[scalar_engine] * weights > compiling
        return self._pays

    def read(
        self, weights: Arrays, tokens: Places, positions: Places, remembered: Floats
    ) -> tuple[Floats, Floats]:
        """Let each document read a token: the logits after it, and what to remember of it.

        ``remembered``: of each document the keys and the values, of each layer a row for every
        slot; those from its position on are hidden.
        """
        if len(tokens) == 1:  # twice, or machine code for single documents would be built for it
            two = np.zeros(2, np.int64)
            logits, news = self.read(weights, tokens[two], positions[two], remembered[two])
            return logits[:1], news[:1]
        slots = np.arange(remembered.shape[3])
        logits, news = self._compiled.map(
            weights,
            weights["token_embedding"][tokens],
            weights["position_embedding"][positions],
            remembered[:, 0],
            remembered[:, 1],
            np.where(slots < positions[:, None], 0.0, HIDDEN),
        )
        return logits, news

    def documents(
        self, model: GPT, choice: Choice, beginning: list[int], chances: Floats
    ) -> list[list[int] | None]:
        """New documents, a row of random numbers for each: their tokens without the marks.

        ``beginning``: what each is to read first, the mark of the beginning included.
        """
        self._pays = True  # from now on
        config, weights = model.config, model.arrays()
        count, block, (bos, *prefix) = len(chances), config.block, beginning
        lanes = min(count, MOST, max(FEWEST, MOST_BYTES // self.room(1).nbytes))
        remembered = self.room(lanes)
        tokens = np.zeros((count, block + 1), np.int64)  # of all documents, the marks included
        tokens[:, : len(beginning)] = beginning
        found: list[list[int] | None] = [None] * count
        # In each lane is a document, and so many of its tokens have been read.
        document, position, begun = np.arange(lanes), np.zeros(lanes, np.int64), lanes
        while len(document):
            logits, news = self.read(weights, tokens[document, position], position, remembered)
            draws = position >= len(prefix)
            chance = chances[document, np.maximum(position - len(prefix), 0)]
            chosen, certain = choice.tokens(logits, chance)
            tokens[document[draws], position[draws] + 1] = chosen[draws]
            ends = draws & (~certain | (chosen == bos) | (position + 1 == block))
            for lane in np.flatnonzero(ends & certain).tolist():
                last = position[lane] + (1 if chosen[lane] == bos else 2)
                found[document[lane]] = tokens[document[lane], 1:last].tolist()
            goes_on, free = np.flatnonzero(~ends), np.flatnonzero(ends)
            remembered[goes_on, :, :, position[goes_on]] = news[goes_on]
            position[goes_on] += 1
            # Documents that have not begun take the lanes of those that have ended.
            again = free[: count - begun]
            document[again] = begun + np.arange(len(again))
            position[again], remembered[again] = 0, 0.0
            begun += len(again)
            if len(again) < len(free):
                stay = np.sort(np.concatenate([goes_on, again]))
                document, position, remembered = document[stay], position[stay], remembered[stay]
        return found

    def room(self, count: int) -> Floats:
        """What so many documents remember before they begin."""
        config = self._config
        slots = max(1, config.block - 1)  # nobody comes after the last token
        return np.zeros((count, 2, config.layers, slots, config.width))


@functools.lru_cache(KEPT)
def step_of(config: Config) -> Step:
    """The compiled step for models of this configuration, kept for the next time."""
    return Step(config)
