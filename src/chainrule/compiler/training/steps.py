"""What the steps of a training run have in common, besides the function and the optimiser."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from chainrule.trees import Floats

#: Called with how many kinds of samples have been recorded, and how many there will be.
Progress = Callable[[int, int], Any]


def unnoticed(done: int, total: int) -> None:
    """A ``Progress`` that tells nobody."""


@dataclass(frozen=True)
class Steps:
    """How samples become steps: so many each, and the norm that a gradient may have."""

    batch: int = 1
    clip: float | None = None
    most: int | None = None  # how many steps will be taken; None: nobody knows
    progress: Progress = unnoticed
    #: of random numbers: the function gets ``random.fold_in(key, n)`` after the n-th sample's own
    key: Floats | None = None
