"""The smallest GPT that learns something: one head, one layer, one word.

It is written over any engine: ``number`` makes numbers, ``apply`` combines them, attention and
softmax are the learner's own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

_WORD = (0, 1, 2, 1, 0)  # the tokens of "abcba"
_WIDTH = 4
_TOKENS = 3


class TinyGPT:
    """A GPT of 100 weights that learns to continue one word."""

    def __init__(
        self,
        number: Callable[[float], Any],
        apply: Callable[..., Any],
        attention: Callable[..., Any],
        softmax: Callable[..., Any],
    ) -> None:
        rng = random.Random(3)

        def matrix(rows: int, columns: int) -> list[list[Any]]:
            return [[number(rng.gauss(0.0, 0.5)) for _ in range(columns)] for _ in range(rows)]

        self.number, self.apply = number, apply
        self.attention, self.softmax = attention, softmax
        self.token, self.place = matrix(_TOKENS, _WIDTH), matrix(len(_WORD), _WIDTH)
        self.query, self.key, self.value, self.output = (matrix(_WIDTH, _WIDTH) for _ in range(4))
        self.head = matrix(_TOKENS, _WIDTH)
        matrices = (self.token, self.place, self.query, self.key, self.value, self.output)
        self.parameters = [p for m in (*matrices, self.head) for row in m for p in row]

    def loss(self) -> Any:
        """How unlikely the model finds the word: the mean of -log of each next token's share."""
        keys: list[list[Any]] = []
        values: list[list[Any]] = []
        total = self.number(0.0)
        for place, (token, following) in enumerate(pairwise(_WORD)):
            x = self._plus(self.token[token], self.place[place])
            keys.append(self._times(self.key, x))
            values.append(self._times(self.value, x))
            gathered = self.attention(self._times(self.query, x), keys, values)
            x = self._plus(x, self._times(self.output, gathered))
            share = self.softmax(self._times(self.head, x))[following]
            scale = self.number(-1.0 / (len(_WORD) - 1))
            total = self.apply("add", total, self.apply("mul", self.apply("log", share), scale))
        return total

    def _plus(self, xs: list[Any], ys: list[Any]) -> list[Any]:
        return [self.apply("add", x, y) for x, y in zip(xs, ys, strict=True)]

    def _times(self, matrix: list[list[Any]], x: list[Any]) -> list[Any]:
        def dot(row: list[Any]) -> Any:
            first, *rest = (self.apply("mul", w, c) for w, c in zip(row, x, strict=True))
            for product in rest:
                first = self.apply("add", first, product)
            return first

        return [dot(row) for row in matrix]
