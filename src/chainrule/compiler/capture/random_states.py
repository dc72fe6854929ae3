"""The random numbers that all code shares: whether some were drawn, and as if none had been.

In: nothing. Out: ``RandomStates``, those of Python's and numpy's generators at some time. To read
these costs more than to run a small function, so that whether they have changed is seen by the
memory that they are in, where that is known to hold them.
"""

from __future__ import annotations

import _random
import array
import ctypes
import functools
import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_PYTHON: Any = random.getstate.__self__  # type: ignore[attr-defined]
_NUMPY: Any = np.random.get_state.__self__  # type: ignore[attr-defined]
_LARGE = 624 * 4  # bytes of the numbers of either, beside which is how many were drawn
_COUNT = 4  # the bytes of that


class RandomStates:
    """Those of now."""

    def __init__(self) -> None:
        self._python, self._numpy = random.getstate(), _numpys_state()
        self._python_memory = _memory_of(_PYTHON)
        self._numpy_memory = self._known_memory()

    def _known_memory(self) -> bytes | None:
        """The memory with numpy's state in it; None where it does not tell all."""
        if isinstance(self._numpy, dict) or self._numpy[3]:
            return None  # another generator, or a number is kept beside: to take it changes nothing
        found = _numpys_memory()
        count = None if found is None else int.from_bytes(found[_LARGE:], sys.byteorder)
        is_it = found is not None and found[:_LARGE] == self._numpy[1].tobytes()
        return found if is_it and count == self._numpy[2] else None

    def changed(self) -> bool:
        """Whether random numbers have been drawn since."""
        if self._python_memory is None:
            is_same = random.getstate() == self._python
        else:
            is_same = _memory_of(_PYTHON) == self._python_memory
            is_same = is_same and bool(_PYTHON.gauss_next == self._python[2])
        if not is_same:
            return True
        if self._numpy_memory is not None:
            return _numpys_memory() != self._numpy_memory
        return _comparable(_numpys_state()) != _comparable(self._numpy)

    def restore(self) -> None:
        """Let the next numbers be what they would have been."""
        if self.changed():
            random.setstate(self._python)
            np.random.set_state(self._numpy)  # noqa: NPY002


_kept = threading.local()


def random_states() -> RandomStates:
    """Those of now, as they were found for ``random_states_kept`` where nothing was drawn since."""
    kept: RandomStates | None = getattr(_kept, "states", None)
    return RandomStates() if kept is None or kept.changed() else kept


@contextmanager
def random_states_kept() -> Iterator[None]:
    """Put Python's and numpy's random states back afterwards."""
    before, states = getattr(_kept, "states", None), random_states()
    _kept.states = states
    try:
        yield
    finally:
        _kept.states = before
        states.restore()


def _memory_of(generator: Any) -> bytes | None:
    """The memory of one of Python's generators; None where it is not known to hold its state."""
    if not _is_known():
        return None
    size = object.__basicsize__
    return ctypes.string_at(id(generator) + size, _random.Random.__basicsize__ - size)


@functools.cache
def _is_known() -> bool:
    """Whether this Python keeps the state of a generator in the object itself."""
    if sys.implementation.name != "cpython":
        return False
    generator, size = random.Random(1), object.__basicsize__
    for _ in range(2):
        *numbers, count = generator.getstate()[1]
        memory = ctypes.string_at(id(generator) + size, _random.Random.__basicsize__ - size)
        both = array.array("I", numbers).tobytes(), count.to_bytes(_COUNT, sys.byteorder)
        if b"".join(both) not in memory and b"".join(reversed(both)) not in memory:
            return False
        generator.random()
    return True


def _has_usual_bits() -> bool:
    """Whether numpy's generator is the one that it has unless somebody sets another."""
    return type(_NUMPY._bit_generator) is np.random.MT19937


def _numpys_state() -> Any:
    get: Any = np.random.get_state
    return get(legacy=_has_usual_bits())


def _comparable(state: Any) -> Any:
    return str(state) if isinstance(state, dict) else (state[1].tobytes(), state[2:])


def _numpys_memory() -> bytes | None:
    """Where numpy's usual generator has its state; None where it has another."""
    if not _has_usual_bits():
        return None
    return ctypes.string_at(_NUMPY._bit_generator.ctypes.state_address, _LARGE + _COUNT)
