"""Kinds of samples: those of one structure and path, which run on the same code alike.

In: a variant that a sample ran on, and its binding to machine code. Out: ``Kind``, which tells for
rows of integers what such samples decide and select; ``Table``, all kinds as C reads them.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.decisions import Decided, Decisions
from chainrule.compiler.runtime.variants import Binding, Variant
from chainrule.compiler.training.structures import Kept


@dataclass(frozen=True, eq=False)
class Kind:
    """What samples of one structure and path run on, and the place of its fit among all."""

    variant: Variant
    binding: Binding
    place: int
    numbers: int  # that a sample brings along, before its integers
    gathers: Addresses  # where in a row what its gathers select goes, or -1; see ``Stretches``

    @property
    def decided(self) -> Decided:
        """What tells what samples decide."""
        return Decided.of(self.variant.recording.selection, self.binding.fit)

    def decide(self, ids: Addresses) -> Decisions:
        """What samples decide, a row of integers for each; integers beyond floats are no path."""
        made = self.decided.rows(ids)
        numbers = ids[:, sorted(self.variant.numeric)]
        beyond = (numbers < -EXACT) | (numbers > EXACT)
        return replace(made, known=made.known & ~beyond.any(axis=1))

    @functools.cached_property
    def native(self) -> tuple[Any, ...] | None:
        """What C reads of it; None where there is more to see to, or no C that decides."""
        fit = self.binding.fit
        decider = self.decided.decider
        if decider is None or self.variant.uses_math or self.numbers:
            return None
        numeric = np.array(sorted(self.variant.numeric), np.int64)
        return decider, fit.private, self.gathers, numeric, self.place


@dataclass(frozen=True, eq=False)
class Table:
    """The kinds of samples that are lists of integers, as C reads them."""

    shapes: Addresses  # the lengths of the lists, a row for each shape
    kinds: list[list[tuple[Any, ...]]]  # of each shape
    kept: Kept
    numbers: Addresses  # which row the shapes of what is kept are, -1 for none
    met: tuple[int, int]  # how many kinds and structures there were

    @classmethod
    def of(
        cls,
        plain: dict[tuple[int, ...], Any],
        alike: dict[Any, list[Kind]],
        kept: Kept,
        met: tuple[int, int],
    ) -> Table:
        """``plain``: structures by their shapes; ``alike``: the kinds of each, in order."""
        places, found = dict[tuple[int, ...], int](), []
        for shape, key in plain.items():
            kinds = [kind.native for kind in alike.get(key, ())]
            rows = [row for row in kinds if row is not None]
            if rows and len(rows) == len(kinds):
                places[shape] = len(places)
                found.append(rows)
        numbers = [places.get(shape, -1) for shape in kept.shapes]
        return cls(np.array([*places], np.int64), found, kept, np.array(numbers, np.int64), met)
