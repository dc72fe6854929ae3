"""The random numbers that all code shares: whether some were drawn, and as if none had been.

In: nothing. Out: ``RandomStates``, those of Python's and numpy's generators at some time. To ask
for these takes longer than to run a small function, so that whether they have changed is seen by
the memory that they are in, where that is known to hold them.
"""

from __future__ import annotations

import _random
import array
import ctypes
import functools
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

_PYTHON: Any = random.getstate.__self__  # type: ignore[attr-defined]
_NUMPY: Any = np.random.get_state.__self__  # type: ignore[attr-defined]
_NUMBERS = 624  # of 32 bits that either generator has, and beside them how many were drawn
_HEADER = object.__basicsize__


@dataclass(frozen=True)
class RandomStates:
    """Those of some time."""

    memory: Any  # that holds them; None where it is not known to
    python: Any
    numpy: Any

    def changed(self) -> bool:
        """Whether random numbers have been drawn since."""
        if self.memory is not None:
            return bool(_memory() != self.memory)
        before = self.python, _comparable(self.numpy)
        return bool((random.getstate(), _comparable(_numpys_state())) != before)

    def restore(self) -> None:
        """Let the next numbers be what they would have been."""
        if self.changed():
            random.setstate(self.python)
            np.random.set_state(self.numpy)  # noqa: NPY002


_last = RandomStates(None, None, None)


def random_states() -> RandomStates:
    """Those of now."""
    global _last
    memory, known = _memory(), _last
    if memory is not None and known.memory == memory:
        return known
    found = RandomStates(memory, random.getstate(), _numpys_state())
    if memory is not None and not found.changed():  # by another thread meanwhile
        _last = found
    return found


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Put Python's and numpy's random states back afterwards."""
    states = random_states()
    try:
        yield
    finally:
        states.restore()


def _has_usual_bits() -> bool:
    """Whether numpy's generator is the one that it has unless somebody sets another."""
    return type(_NUMPY._bit_generator) is np.random.MT19937


def _numpys_state() -> Any:
    get: Any = np.random.get_state
    return get(legacy=_has_usual_bits())


def _comparable(state: Any) -> Any:
    return str(state) if isinstance(state, dict) else (state[1].tobytes(), state[2:])


# --- in memory ------------------------------------------------------------------------------------


def _memory() -> Any:
    """The memory that all of both states is in; None where it is not known to be."""
    if not (_has_usual_bits() and _is_known()):
        return None
    return _pythons(_PYTHON), _PYTHON.gauss_next, _numpys(_NUMPY), _bits(_NUMPY)


def _pythons(generator: Any) -> bytes:
    return ctypes.string_at(id(generator) + _HEADER, _random.Random.__basicsize__ - _HEADER)


def _numpys(generator: Any) -> bytes:
    """Where numpy has the second of two numbers that it made at once."""
    kind = np.random.RandomState
    return ctypes.string_at(id(generator) + _HEADER, kind.__basicsize__ - _HEADER)


def _bits(generator: Any) -> bytes:
    address = generator._bit_generator.ctypes.state_address
    return ctypes.string_at(address, 4 * (_NUMBERS + 1))


@functools.cache
def _is_known() -> bool:
    """Whether Python and numpy keep the states of their generators there."""
    if sys.implementation.name != "cpython" or type(_NUMPY) is not np.random.RandomState:
        return False
    python, numpy = random.Random(1), np.random.RandomState(1)
    kept = []
    for _ in range(2):
        *numbers, drawn = python.getstate()[1]
        state: Any = numpy.get_state()
        if not _holds(_pythons(python), array.array("I", numbers).tobytes(), drawn):
            return False
        if not _holds(_bits(numpy), state[1].tobytes(), state[2]):
            return False
        python.random()
        numpy.standard_normal()  # which makes two
        kept.append(_numpys(numpy))
    return kept[0] != kept[1]


def _holds(memory: bytes, numbers: bytes, drawn: int) -> bool:
    """Whether the state of a generator is in there: its numbers, and how many were drawn."""
    count = drawn.to_bytes(4, sys.byteorder)
    return numbers + count in memory or count + numbers in memory
