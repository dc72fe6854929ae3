"""64-bit hashes (splitmix64) of structure: for Python integers, and for arrays of them.

The native kernel has the same function: signatures are equal to the last bit.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
_ROUNDS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def mix(h: int, x: int) -> int:
    """The hash of a sequence whose hash so far is ``h``, continued by ``x``."""
    z = (h * GOLDEN + x) & MASK
    for shift, factor in _ROUNDS:
        z = ((z ^ (z >> shift)) * factor) & MASK
    return z ^ (z >> 31)


def mix_set(h: int, found: set[int]) -> int:
    """The same, continued by the members of a set."""
    h = mix(h, len(found))
    for x in sorted(found):
        h = mix(h, x)
    return h


def scrambled(numbers: npt.ArrayLike) -> Hashes:
    """A hash of each number."""
    x: Hashes = np.asarray(numbers).astype(np.uint64)
    for shift, factor in _ROUNDS:
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
