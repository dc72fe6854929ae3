"""Samples of different lengths side by side, one in each lane.

In: the program of the longest calls, and the fits of shorter ones. Out: a ``Mixed``: machine code
for lanes of any of these lengths, from the padded program (see ``lift.padding``). All lanes walk as
far as the longest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.padding import Padded
from chainrule.compiler.runtime.machine import Fit, Kernel, MachineCode, trip_counts
from chainrule.trees import Floats


class Mixed:
    """A program whose lanes may be of any of these lengths; NotLiftable where that cannot be."""

    def __init__(self, machine: MachineCode, fits: Sequence[Fit]) -> None:
        self.machine, self._padded = machine, Padded(machine.program, fits)
        self.program, self.size, self.to = (
            self._padded.program,
            self._padded.size,
            self._padded.to,
        )
        self.root = int(self.to[machine.root])
        self._kernels: dict[int, Kernel] = {}
        self._rows: dict[Fit, Floats] = {}
        self._trips: dict[tuple[Fit, int], npt.NDArray[np.int64]] = {}
        self.fits = _in_order(fits)  # shortest first

    def serves(self, fits: Sequence[Fit]) -> bool:
        """Whether these lengths, too, can be in its lanes, from now on."""
        new = [fit for fit in dict.fromkeys(fits) if fit not in self.fits]
        if not all(map(self._padded.covers, new)):
            return False
        try:
            if new:
                self._padded.check_branches(new)
                self.fits = _in_order([*self.fits, *new])
                for lanes in self._kernels:
                    for fit in new:
                        self.trips(fit, lanes)
        except NotLiftable:
            return False
        return True

    def kernel(self, lanes: int) -> Kernel:
        """The machine code for so many samples at once."""
        if lanes not in self._kernels:
            varying = self.machine.varying | {
                (k, "products")
                for k in self._padded.factors
                if (k, "plains") in self.machine.varying
            }
            made = Kernel(self.machine, self.program, self.root, varying, lanes, many=True)
            self._kernels[lanes] = made
            self.machine.built += 1
            for fit in self.fits:
                self.trips(fit, lanes)
        return self._kernels[lanes]

    # --- samples ----------------------------------------------------------------------------------

    def numbers(self, fit: Fit) -> Floats:
        """What each sample of this length has of its own, after its inputs."""
        if fit not in self._rows:
            self._rows[fit] = self._padded.numbers(fit)
        return self._rows[fit]

    def trips(self, fit: Fit, lanes: int) -> npt.NDArray[np.int64]:
        """How far the walks go if this is the longest of the lanes."""
        if (fit, lanes) not in self._trips:
            active = np.ones(self.program.size, np.bool_)
            active[self.to[~fit.active]] = False
            machine = self._kernels[lanes].machine
            counts = trip_counts(machine, self._padded.points(fit), active)
            if counts is None:
                raise NotLiftable("another length does not fit the lanes")
            self._trips[fit, lanes] = counts
        return self._trips[fit, lanes]


def _in_order(fits: Sequence[Fit]) -> tuple[Fit, ...]:
    """Shortest first, and those as long as each other in the order in which they came.

    NotLiftable where of two fits neither does all that the other does.
    """
    keys = sorted(fits[0].points)
    table = {fit: np.array([fit.points[key][0] for key in keys]) for fit in fits}
    made = sorted(fits, key=lambda fit: int(table[fit].sum()))
    if any((table[a] > table[b]).any() for a, b in pairwise(made)):
        raise NotLiftable("lengths that are longer in one list and shorter in another")
    return tuple(made)
