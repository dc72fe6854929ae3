"""How an idiom is written down: a stream of calls, and the same function in several spellings.

A module of this package is a field. In it a generator over a seeded stream of random numbers yields
the arguments of one call after another, as in real use: parameters drift as in training, tokens and
lengths differ. Its spellings are functions of these arguments, named after it::

    FIELD = Field("sequences")

    @FIELD.idiom
    def bigram(rng):
        while True:
            yield rng.normal(size=(27, 27)), rng.integers(27, size=8).tolist()

    @bigram.spelling
    def bigram_zip(table, tokens): ...
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Entry:
    """One spelling of one idiom. The gradient is that by the first argument."""

    name: str  # field.idiom.spelling
    function: Callable[..., Any]
    stream: Callable[[np.random.Generator], Iterator[tuple]]
    adapt: Callable[..., tuple] | None  # from the idiom's arguments to those of this spelling
    idiom: "Idiom"

    def calls(self, count, seed=0):
        """The arguments of so many calls, always the same ones."""
        return list(islice(self.stream_of_calls(seed), count))

    def stream_of_calls(self, seed=0):
        """The arguments of these calls, one after the other, without end."""
        calls = self.stream(np.random.default_rng(seed))
        return calls if self.adapt is None else itertools.starmap(self.adapt, calls)

    def reset(self):
        """Bring back what the function changes outside of itself."""
        if self.idiom.restore is not None:
            self.idiom.restore()


@dataclass
class Idiom:
    """A stream of calls, and the functions that take them."""

    field: "Field"
    name: str
    stream: Callable[[np.random.Generator], Iterator[tuple]]
    restore: Callable[[], None] | None = None

    def spelling(self, function=None, *, adapt=None):
        """Add a function to the idiom; ``adapt`` makes its arguments from the idiom's."""
        if function is None:
            return lambda function: self.spelling(function, adapt=adapt)
        prefix, spelling = self.name + "_", function.__name__
        if not spelling.startswith(prefix):
            raise ValueError(f"a spelling of {self.name} is named {prefix}…, not {spelling}")
        name = f"{self.field.name}.{self.name}.{spelling.removeprefix(prefix)}"
        self.field.entries.append(Entry(name, function, self.stream, adapt, self))
        return function

    def reset(self, function):
        """The function that brings back what the spellings change outside of themselves."""
        self.restore = function
        return function


@dataclass
class Field:
    """A module's entries."""

    name: str
    entries: list[Entry] = field(default_factory=list)

    def idiom(self, stream):
        return Idiom(self, stream.__name__, stream)


def drifting(rng, tree, scale=0.03):
    """The tree of parameters again and again, each time changed a little, as training does."""
    while True:
        yield tree
        tree = moved(rng, tree, scale)


def moved(rng, tree, scale):
    if isinstance(tree, dict):
        return {key: moved(rng, item, scale) for key, item in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(moved(rng, item, scale) for item in tree)
    if isinstance(tree, np.ndarray):
        return tree + scale * rng.normal(size=tree.shape)
    return tree + scale * float(rng.normal())


def nested_lists(tree):
    """The same with lists instead of arrays."""
    if isinstance(tree, dict):
        return {key: nested_lists(item) for key, item in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(nested_lists, tree))
    return tree.tolist() if isinstance(tree, np.ndarray) else tree


def as_lists(*arguments):
    """An ``adapt`` for functions that were written for lists of numbers."""
    return tuple(map(nested_lists, arguments))
