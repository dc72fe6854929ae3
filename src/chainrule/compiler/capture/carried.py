"""What a recorded run computes besides its recording: its numbers, and a derivative of them.

In: the Values that a run is differentiated by. Out: ``Carried``, with which machine code can be
compared where the run was, so that the function need not run there once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.core.backend import Value, kernels
from chainrule.trees import Floats


@dataclass(frozen=True, eq=False)
class Carried:
    """The numbers that a run returned, and their derivatives along one random direction."""

    call: Call  # what the run was passed,
    captured: list[float] | None  # and the numbers of captured Values; None: as they are
    numbers: dict[int, float]  # by the instructions that gave them
    slopes: dict[int, float]
    direction: Floats  # for each input of the recording that is a Value
    places: list[int]  # where these are among all inputs

    def agrees(
        self, positions: Sequence[int], values: Floats, root: int | None, gradient: Floats
    ) -> bool:
        """Whether other numbers, and the gradient of the root among them, are these to rounding."""
        if not self.numbers.keys() >= set(positions):
            return False
        wanted = np.array([self.numbers[p] for p in positions], np.float64)
        if not np.isclose(values, wanted, rtol=1e-9, atol=1e-12).all():
            return False
        if root is None:
            return True
        found = gradient[self.places]
        scale = max(1.0, float(np.max(np.abs(found), initial=0.0)))
        difference = abs(float(found @ self.direction) - self.slopes[root])
        return bool(difference <= 1e-9 * scale)


def places_of_values(call: Call, captured: int) -> list[int]:
    """Where the Values are among the inputs of a recording, in order."""
    first = call.first if call.key[0] else 0  # which are Values here, whatever was passed
    places, at = list(range(first)), 0
    for x, size in zip(call.floats, call.sizes, strict=True):
        if at >= first and isinstance(x, Value):
            places.append(at)
        at += size
    return places + list(range(at, at + captured))


def random_direction(count: int, seed: int | list[int]) -> Floats:
    """A direction none of whose components hides a derivative: each is between 0.5 and 1.5."""
    direction = np.random.default_rng(seed).uniform(-1.0, 1.0, count)
    direction += np.copysign(0.5, direction)
    return direction


@contextmanager
def carrying(values: list[Value], direction: Floats | None) -> Iterator[None]:
    """Let Values have their components of a direction for gradients, for a while."""
    if direction is None:
        yield
        return
    assert kernels is not None
    grads = direction.copy()
    kernels.swap_grads(values, grads)
    try:
        yield
    finally:
        kernels.swap_grads(values, grads)
