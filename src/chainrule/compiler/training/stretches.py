"""Addresses that gathers select side by side, such as the row of a matrix that a token selects.

In: of each gather of a program whether it selects the neighbour of what the one before it selects,
whatever the integers are. Out: ``Stretches`` of the row of addresses that a sample has: only the
first of each is packed, and the loop of training, which counts on from there, reads a tenth.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.program import Addresses

FEWEST = 4  # addresses in a stretch, on average, that are worth counting
AHEAD = 8  # addresses that the loop writes at a time, maybe after the last


@dataclass(frozen=True, eq=False)
class Stretches:
    """How the addresses of all gathers are in a shorter row: the first of each stretch."""

    starts: Addresses  # which gather is the first of each stretch
    count: int  # gathers

    @classmethod
    def single(cls, count: int) -> Stretches:
        """Each gather by itself: rows are as long as there are gathers."""
        return cls(np.arange(count), count)

    @classmethod
    def of(cls, count: int, gathers: Addresses, follows: npt.NDArray[np.bool_]) -> Stretches:
        """Those that one kind of samples has; ``gathers``: which of ``count`` theirs are."""
        starts = np.ones(count, np.bool_)
        starts[gathers] = ~(follows & _are_beside(gathers))
        found = cls(np.flatnonzero(starts), count)
        return found if len(found.starts) * FEWEST <= count else cls.single(count)

    @property
    def are_single(self) -> bool:
        """Whether each gather is by itself."""
        return len(self.starts) == self.count

    @functools.cached_property
    def lengths(self) -> Addresses:
        """How many gathers each has."""
        return np.diff(self.starts, append=self.count)

    @functools.cached_property
    def _place(self) -> Addresses:
        """Of each gather: its stretch, where it is the first one, or -1."""
        found = np.full(self.count, -1)
        found[self.starts] = np.arange(len(self.starts))
        return found

    def places(
        self, gathers: Addresses, follows: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.int64] | None:
        """Where the gathers of a kind of samples go in a row, -1 for those that only count on.

        None where one of these selects something else than that, or is not there.
        """
        found: npt.NDArray[np.int64] = self._place[gathers]
        counted = follows & _are_beside(gathers)
        are_whole = self.lengths[found[found >= 0]].sum() == len(gathers)
        return found if are_whole and counted[found < 0].all() else None

    def expanded(self, rows: npt.NDArray[Any]) -> Addresses:
        """The addresses of all gathers; ``rows``: those of the stretches, in the last axis."""
        if self.are_single:
            return rows
        steps = np.arange(self.count) - np.repeat(self.starts, self.lengths)
        made: Addresses = np.repeat(rows, self.lengths, axis=-1) + steps
        return made


def _are_beside(gathers: Addresses) -> npt.NDArray[np.bool_]:
    """Of each gather: whether it comes right after the one before it."""
    found: npt.NDArray[np.bool_] = np.diff(gathers, prepend=-2) == 1
    return found
