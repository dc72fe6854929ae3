"""Random numbers as arithmetic: building blocks of recordings, functions of a key and a counter.

In: the two words of a key and a counter, whole numbers below 2²⁴. Out: 24 bits that look random, or
the factor of dropout. Nothing is remembered from one call to the next, so a recording repeats them
like any other operation, and every engine finds the same bits: all numbers on the way are whole and
at most 2²⁴, which float32 holds exactly too, so that no rounding takes place.
"""

from __future__ import annotations

import math
from typing import Any

from chainrule.core.ops import BLOCKS, Op, no_gradient, where
from chainrule.core.rounding import raw_floor

WORDS = 1 << 24  # so many numbers has a word of a key, and a counter
HALF = 1 << 12  # and a half of one
ROUNDS = 12  # from ten on no statistics tell the bits from random ones
OFF = -1.0  # the first word of the key that leaves everything as it is

# Odd numbers without a pattern, so that rounds, and streams, differ.
_ROUND, _STREAM = 2531, 1657


def _halves(x: Any) -> tuple[Any, Any]:
    """A word in two halves, the higher one first."""
    high = raw_floor(x * (1.0 / HALF))
    return high, x - high * float(HALF)


def _scrambled(a: Any, b: Any, counter: Any, stream: Any) -> Any:
    """The counter after some rounds of a Feistel network, whose function is the middle of a square.

    In a round one half of the counter, moved by a quarter of the key, is squared. The middle bits
    of the square are added to the other half, and the halves change places. Every step can be
    undone, so that no two counters of a key have the same bits.
    """
    key = [part - HALF for word in (a, b) for part in reversed(_halves(raw_floor(word)))]
    x, y = _halves(raw_floor(counter))
    for r in range(ROUNDS):
        t = x + key[r % 4]  # from -4096 to 4095: its square is exact in float32
        moved = raw_floor(t * t * (1.0 / 64)) + ((_ROUND + _STREAM * stream) * (r + 1.0) + y)
        x, y = _halves(moved)[1], x
    return x * float(HALF) + y


def _fast(a: int, b: int, counter: int, stream: int) -> float:
    """The same by Python's integers."""
    key = [part - HALF for word in (a, b) for part in (word % HALF, word // HALF)]
    x, y = divmod(counter, HALF)
    for r in range(ROUNDS):
        t = x + key[r & 3]
        x, y = (t * t // 64 + (_ROUND + _STREAM * stream) * (r + 1) + y) % HALF, x
    return float(x * HALF + y)


def _known(found: Any, b: Any, counter: Any) -> Any:
    """What was found, or nan where there is no such key or counter."""
    limit = float(2 * WORDS)  # a key that is checked a little way off is one too
    for x in (b, counter):
        found = where(x >= 0.0, where(x < limit, found, math.nan), math.nan)
    return found


def _bits(a: Any, b: Any, counter: Any, stream: Any = 0.0) -> Any:
    plain = type(a) is type(b) is type(counter) is float
    if plain and 0.0 <= a < WORDS and 0.0 <= b < WORDS and 0.0 <= counter < WORDS:
        return _fast(int(a), int(b), int(counter), int(stream))
    limit = float(2 * WORDS)
    found = where(a < limit, _scrambled(a, b, counter, stream), math.nan)
    off = OFF if stream > 0.0 else math.nan  # a key made from it is off too
    return where(a < 0.0, off, _known(found, b, counter))


def _keep(a: Any, b: Any, counter: Any, rate: Any) -> Any:
    found = _bits(a, b, counter)
    kept = where(found >= rate * WORDS, 1.0 / (1.0 - rate), 0.0)
    return where(a < 0.0, 1.0, where(found >= 0.0, kept, math.nan))


def _block(name: str, formula: str, forward: Any, parameter: str) -> Op:
    made = Op(
        name, name, formula, forward, (no_gradient,) * 3, (parameter,),
        domain="a key of chainrule.random, and a counter from 0 to 2**24 - 1",
        pole=lambda *_: ValueError,
        example=(1.0, 2.0, 3.0),
    )  # fmt: skip
    return BLOCKS.setdefault(name, made)


bits = _block("random_bits", "24 random bits of a key and a counter", _bits, "stream")
keep = _block("random_keep", "0 by a chance, else what makes the mean 1", _keep, "rate")
