"""Random numbers of a key: the same key gives the same numbers, wherever and however often.

A key is two numbers, an array that is passed to a function like other data. Numbers do not follow
from those before them: each is computed from the key and a counter. So a compiled function repeats
them in machine code, with the bits that eager mode finds, and a new key makes new numbers without
a new recording. The names are those of ``jax.random``.

>>> from chainrule import random
>>> key = random.key(42)
>>> random.uniform(key, 0) == random.uniform(key, 0), round(random.uniform(key, 1), 6)
(True, 0.472048)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.core import errors, randomness
from chainrule.core.functions import _call
from chainrule.core.randomness import WORDS
from chainrule.trees import Floats

# Streams of random bits, apart from that of ``uniform`` and ``dropout``: for the words of new keys.
LOW, HIGH = (1.0, 2.0), (3.0, 4.0)

__all__ = ["dropout", "fold_in", "key", "off", "split", "uniform"]


def key(seed: int) -> Floats:
    """The key of a seed, any integer.

    >>> from chainrule import random
    >>> random.key(7)
    array([7., 0.])
    """
    number = operator.index(seed)
    return np.array([number % WORDS, number // WORDS % WORDS], np.float64)


def off() -> Floats:
    """The key with which ``dropout`` keeps everything, to the last bit: for evaluation.

    >>> from chainrule import random
    >>> random.dropout([1.5, 2.5], 0.5, random.off())
    [1.5, 2.5]
    """
    return np.full(2, randomness.OFF)


def fold_in(key: Any, number: Any) -> Any:
    """Another key, made from a key and a whole number, from 0 to 2**48 - 1.

    >>> from chainrule import random
    >>> key = random.key(0)
    >>> random.fold_in(key, 1).tolist() != random.fold_in(key, 2).tolist()
    True
    """
    a, b = _words(key)
    low = number
    if type(number) is int:
        high, low = divmod(_checked(number, WORDS**2), WORDS)
        if high:
            a, b = _folded(a, b, high, HIGH)
    made = _folded(a, b, low, LOW)
    return np.array(made) if all(type(word) is float for word in made) else made


def _folded(a: Any, b: Any, number: Any, streams: tuple[float, float]) -> list[Any]:
    return [_call(randomness.bits, (a, b, number), (stream,)) for stream in streams]


def numbered(key: Floats, first: int, count: int) -> Floats:
    """``fold_in`` of so many numbers from ``first`` on, a row for each."""
    made = np.tile(np.asarray(key, np.float64), (count, 1))
    high, low = divmod(np.arange(first, first + count), WORDS)
    for number, streams, rows in ((high, HIGH, high > 0), (low, LOW, low >= 0)):
        words = (*made[rows].T, number[rows].astype(np.float64))
        made[rows] = np.stack([randomness.bits.forward(*words, s) for s in streams], axis=1)
    return made


def split(key: Any, count: int = 2) -> Floats:
    """So many keys, a row for each: for the samples of ``map``, say.

    >>> from chainrule import random
    >>> random.split(random.key(0), 3).shape
    (3, 2)
    """
    return np.stack([fold_in(key, k) for k in range(operator.index(count))])


def uniform(key: Any, counter: Any) -> Any:
    """The random number of a key that has this counter: from 0 to less than 1, a multiple of 2⁻²⁴.

    >>> from chainrule import random
    >>> key = random.key(0)
    >>> all(0 <= random.uniform(key, k) < 1 for k in range(1000))
    True
    """
    a, b = _words(key)
    if type(counter) is int:
        _checked(counter, WORDS)
    return _call(randomness.bits, (a, b, counter), (0.0,)) * (1.0 / WORDS)


def dropout(xs: Sequence[Any], rate: float, key: Any) -> list[Any]:
    """Each of some numbers set to 0 by the chance ``rate``, or else divided by ``1 - rate``.

    So the mean of each stays as it is. Number k of the list has the counter k.

    >>> from chainrule import random
    >>> random.dropout([1.0] * 8, 0.5, random.key(3))
    [2.0, 0.0, 2.0, 2.0, 2.0, 0.0, 2.0, 0.0]
    """
    rate = errors.real(rate, "the rate of dropout")
    if not 0.0 <= rate < 1.0:
        raise ValueError(f"the rate of dropout must be from 0 to less than 1, not {rate}")
    a, b = _words(key)
    if len(xs) > WORDS:
        raise ValueError(f"dropout takes at most {WORDS} numbers at a time, not {len(xs)}")
    if rate == 0.0:
        return list(xs)
    return [x * _call(randomness.keep, (a, b, float(k)), (rate,)) for k, x in enumerate(xs)]


def _words(key: Any) -> tuple[Any, Any]:
    """The two words of a key."""
    if key.shape == (2,) if isinstance(key, np.ndarray) else _is_pair(key):
        a, b = key
        return a, b
    raise TypeError(
        "a key is two numbers, as chainrule.random.key(seed) makes them, "
        f"not {errors.describe(key)}"
    )


def _is_pair(key: Any) -> bool:
    return isinstance(key, (list, tuple)) and len(key) == 2


def _checked(number: int, limit: int) -> int:
    if not 0 <= number < limit:
        raise ValueError(f"a counter must be from 0 to {limit - 1}, not {number}")
    return number
