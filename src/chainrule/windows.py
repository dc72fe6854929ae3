"""Windows over one long row of tokens: the samples of a model that learns from a whole text.

In: an array of token numbers, and how many tokens the model reads at a time. Out: ``Windows``, a
sequence of all samples that the text has, one at every place, none of them stored. Training reads
them at random places, which follow from the seed alone: a run that goes on reads what it would have
read.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class Windows(Sequence[tuple[list[int]]]):
    """Every stretch of ``length`` tokens of an array, as samples for ``train`` and ``trainer``.

    Sample k is ``(tokens[k : k + length],)``, a list of integers. Where ``train`` reads lists of
    samples in their order, it reads these at random places (nanoGPT's random crops): the n-th
    sample of a run is ``windows[place]``, and ``windows.places(n, 1)`` tells the place.
    The array is not copied.

    >>> import chainrule
    >>> windows = chainrule.Windows([3, 1, 4, 1, 5, 9], length=4)
    >>> len(windows), windows[2]
    (3, ([4, 1, 5, 9],))
    >>> windows.places(first=0, count=8).tolist()
    [0, 1, 0, 0, 1, 0, 1, 2]
    """

    def __init__(self, tokens: Any, length: int, seed: int = 0) -> None:
        self.tokens = np.asarray(tokens)
        if self.tokens.ndim != 1 or self.tokens.dtype.kind not in "iu":
            raise TypeError("Windows takes one row of integers: a list, or an array of one axis")
        self.length, self.seed = operator.index(length), operator.index(seed)
        if not 1 <= self.length <= len(self.tokens):
            raise ValueError(
                f"windows of {self.length} tokens cannot be read from {len(self.tokens)} tokens"
            )

    def __len__(self) -> int:
        return len(self.tokens) - self.length + 1

    @overload
    def __getitem__(self, place: int) -> tuple[list[int]]: ...

    @overload
    def __getitem__(self, place: slice) -> list[tuple[list[int]]]: ...

    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return [self[k] for k in range(*place.indices(len(self)))]
        k = operator.index(place)
        k += len(self) if k < 0 else 0
        if not 0 <= k < len(self):
            raise IndexError(f"there is no window {place} among {len(self)}")
        return (self.tokens[k : k + self.length].tolist(),)

    def rows(self, places: Integers) -> Integers:
        """The windows at some places, a row for each."""
        found = self.tokens[places[:, None] + np.arange(self.length)]
        if found.dtype == np.uint64 and int(found.max(initial=0)) >= 2**63:
            raise OverflowError(f"a token of Windows is {found.max()}, which 64 bits do not hold")
        made: Integers = found.astype(np.int64)
        return made

    def places(self, first: int, count: int) -> Integers:
        """Where the samples number ``first`` and on of a run are read, at random."""
        numbers = np.arange(first, first + count, dtype=np.uint64)
        seed = np.array([self.seed & (1 << 64) - 1], np.uint64)
        return (_mixed(numbers + _mixed(seed)) % np.uint64(len(self))).astype(np.int64)

    def __repr__(self) -> str:
        return f"<{len(self):,} windows of {self.length} tokens>"


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """A random number for each number: the generator SplitMix64, at its n-th step."""
    z = (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
