"""Samples that do not all run on the same machine code.

In: samples, of which some are calls of another shape than the others, such as lists of another
length. Out: ``Families``: for each piece of machine code the samples that it serves, packed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.training.packing import ODD, PackedSamples
from chainrule.trees import Floats
from chainrule.windows import Windows

MOST = 32  # pieces of machine code that the samples of one run may need


class Families:
    """Packed samples by the machine code that serves them."""

    def __init__(
        self,
        dispatch: Dispatch,
        params: Any,
        samples: list[tuple[Any, ...]] | Windows,
        key: Floats | None,
        memory: int,
    ) -> None:
        """Arguments: those of ``PackedSamples``."""
        self._arguments = (dispatch, params, samples, key, memory)
        self.first = PackedSamples(*self._arguments)
        self._others: list[PackedSamples] = []
        self._refused: set[int] = set()  # samples that no code serves

    @property
    def every(self) -> list[PackedSamples]:
        """The families, in the order in which they were found."""
        return [self.first, *self._others]

    def forget(self) -> None:
        """Look at every sample again."""
        self.first.forget()
        self._others.clear()
        self._refused.clear()

    def of(self, wanted: Addresses) -> Addresses:
        """The family of each sample, -1 where no code serves it."""
        if not self._others:
            self.first.look_at(wanted)
            fits = self.first.fit_of[wanted]
            if (fits >= 0).all():
                return np.zeros(len(wanted), np.int64)
        found = self._found(wanted)
        missing = wanted[found < 0]
        if self._refused:
            missing = missing[~np.isin(missing, list(self._refused))]
        if not len(missing):
            return found
        self.first.look_at(wanted)
        if self.first.structures.windowed:
            return self._found(wanted)
        left = np.unique(wanted[self.first.fit_of[wanted] == ODD])
        for other in self._others:
            other.look_at(left)
            left = left[other.fit_of[left] < 0]
        for k in left.tolist():
            if (self._found(np.array([k])) >= 0).any():
                continue
            if not self._begin(k, left):
                self._refused.add(k)
        return self._found(wanted)

    def _begin(self, k: int, left: Addresses) -> bool:
        """Begin a family with a sample; the others that run on its code are in it too."""
        if len(self._others) + 1 >= MOST:
            return False
        made = PackedSamples(*self._arguments)
        if made.kind_of(k) is None or made.machine is None:
            return False
        made.look_at(left)
        if made.fit_of[k] < 0 or made.machine.dtype != self._dtype:
            return False
        self._others.append(made)
        return True

    @property
    def _dtype(self) -> str | None:
        return self.first.machine.dtype if self.first.machine is not None else None

    def _found(self, wanted: Addresses) -> Addresses:
        found = np.where(self.first.fit_of[wanted] >= 0, 0, -1)
        for k, other in enumerate(self._others, 1):
            found = np.where((found < 0) & (other.fit_of[wanted] >= 0), k, found)
        return found
