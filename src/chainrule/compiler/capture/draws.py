"""What a generator of random numbers is asked for, made again with another seed.

In: how the generator is made, the calls of its methods in their order, and a seed. Out: all numbers
that these calls give, in a row. ``generators`` has what stands for a generator while a function is
recorded; a replay makes the generator itself, of the seed of its call, and asks it for the same.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RANDOM, DEFAULT_RNG = random.Random, np.random.default_rng
#: why there is no source for a function
DRAWN = "it draws random numbers from a seed, or calls a function with a cache: pass these instead"
_METHODS = vars(RANDOM)
_KNOWN = dict(_METHODS)


@dataclass(frozen=True)
class Ask:
    """A call of a method, with what it is passed."""

    method: str
    arguments: tuple[Any, ...] = ()
    keywords: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        named = [f"{name}={x!r}" for name, x in self.keywords]
        return f"{self.method}({', '.join([*map(repr, self.arguments), *named])})"

    def of(self, generator: Any, times: int) -> list[Any]:
        """What it gives, so many times in a row."""
        method, keywords = getattr(generator, self.method), dict(self.keywords)
        if self.method == "shuffle":
            orders = [list(range(*self.arguments)) for _ in range(times)]
            for order in orders:
                method(order)
            return orders
        if keywords:
            return [method(*self.arguments, **keywords) for _ in range(times)]
        return [method(*self.arguments) for _ in range(times)]


class Drawn(list[Any]):
    """The numbers that a generator gave, in a row: a node of an integer program."""


class Draws:
    """A generator and what it is asked for. ``asks`` grows while the function is recorded."""

    seeded = True  # the numbers depend on the seed alone

    def __init__(self, make: Callable[..., Any]) -> None:
        self.make = make
        self.asks: list[Ask] = []
        self.kinds: list[type] = []  # of the numbers, in a row

    def finished(self) -> Draws:
        """The same, which what recorded it does not reach."""
        made = Draws(self.make)
        made.asks, made.kinds = list(self.asks), list(self.kinds)
        return made

    @property
    def called(self) -> int:
        """How many functions of Python's are called to make them again, the generator's too."""
        return len(self.asks) + 4

    def note(self, ask: Ask, row: Sequence[Any]) -> None:
        """One more call, which gave these numbers."""
        self.asks.append(ask)
        self.kinds += map(type, row)

    @staticmethod
    def are_known() -> bool:
        """Whether ``random.Random`` still has the methods of Python's library."""
        return _METHODS == _KNOWN

    def generator(self, seed: int) -> Any:
        """A generator of this seed, that was asked for nothing yet."""
        if self.make is RANDOM and not self.are_known():
            raise LookupError
        return self.make(seed)

    def again(self, seed: int) -> Drawn:
        """All numbers for this seed; raises where they are not of the kinds that were recorded."""
        generator, found = self.generator(seed), Drawn()
        for ask, times in self._rounds:
            results = ask.of(generator, times)
            kind = type(results[0])
            if kind is int or (kind is float and all(map(math.isfinite, results))):
                found += results  # whose types are compared below
            else:
                found += row_of(results)
        if list(map(type, found)) != self.kinds:
            raise LookupError
        return found

    @functools.cached_property
    def _rounds(self) -> list[tuple[Ask, int]]:
        """What it is asked, and how often in a row; not while that still grows."""
        rounds = [list(same) for _, same in itertools.groupby(self.asks, str)]
        return [(same[0], len(same)) for same in rounds]

    def __repr__(self) -> str:
        return f"{self.make.__name__}: {', '.join(map(str, self.asks))}"


def row_of(result: Any) -> list[Any]:
    """The numbers of what a method gave, in order; ValueError for anything else."""
    kind = type(result)
    if kind is float or kind is np.float64:
        if not math.isfinite(result):
            raise ValueError
        return [float(result)]
    if kind is int or kind is np.int64:
        return [int(result)]
    if kind is list:
        return [item for x in result for item in row_of(x)]
    if kind is np.ndarray and result.dtype in (np.float64, np.int64):
        if not np.isfinite(result).all():
            raise ValueError
        row: list[Any] = result.ravel().tolist()
        return row
    raise ValueError
