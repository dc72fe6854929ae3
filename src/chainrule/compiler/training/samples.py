"""Samples as they are passed: checked, copied, and read in turn.

In: what users pass, tuples of the arguments after the first, or ``Windows``. Out: a list that
nobody else changes, or the windows, and which of them the steps of a run read.
"""

from __future__ import annotations

import copy
import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from chainrule import random
from chainrule.core.backend import Value, kernels
from chainrule.trees import Floats, leaves
from chainrule.windows import Windows

Sample = tuple[Any, ...]

PLAIN = {int, float, str, bool, type(None)}  # types of what cannot change
_WITHOUT = (Value, np.generic, bytes, range, complex)  # and what else holds no array


def read_next(
    samples: list[Sample] | Windows, first: int, count: int, key: Floats | None = None
) -> list[Sample]:
    """The samples number ``first`` and on of a run, each with a key of its own if there is one."""
    if isinstance(samples, Windows):
        found = [samples[place] for place in samples.places(first, count).tolist()]
    else:
        found = [samples[(first + i) % len(samples)] for i in range(count)]
    if key is None:
        return found
    keys = random.numbered(key, first, count)
    return [(*sample, own) for sample, own in zip(found, keys, strict=True)]


def checked_key(key: Any) -> Floats | None:
    """A key as an array that nobody else changes."""
    if key is None:
        return None
    random.fold_in(key, 0)  # a clear error if it is none
    return np.array(key, np.float64)


def checked_samples(samples: Iterable[Sample], asking: str) -> list[Sample] | Windows:
    """The samples, if they are some; ``asking``: who needs them, for the message."""
    if isinstance(samples, Windows):
        return samples
    found = list(samples)
    if not found:
        raise ValueError(f"{asking} needs at least one sample")
    for place, sample in enumerate(found if set(map(type, found)) != {tuple} else ()):
        if not isinstance(sample, tuple):
            raise TypeError(
                "a sample is a tuple of the arguments after the first: "
                f"samples[{place}] is a {type(sample).__name__}"
            )
    return found


def copies_of(
    samples: list[Sample],
    params: Any,
    is_own: Callable[[Any], bool],
    first: int = 0,
    count: int | None = None,
) -> list[Sample]:
    """The samples as they are now: what becomes of the user's is not seen.

    What the function has by itself, as ``is_own`` says, stays: it may ask whether it has that.
    ``count``: only so many will be read, number ``first`` and on; the others stay as they are.
    """
    read: Iterable[int] = range(len(samples))
    if count is not None and count < len(samples):
        read = [n % len(samples) for n in range(first, first + count)]
    kept = [leaf for _, leaf in leaves(params, "params") if isinstance(leaf, np.ndarray)]
    copied, made = _Copies(kept, is_own), list(samples)
    for k in read:
        made[k] = tuple([copied(x) for x in samples[k]])
    return made


class _Copies:
    """Samples as they are now, but for what is a parameter; what is one object stays one."""

    def __init__(self, kept: list[Any], is_own: Callable[[Any], bool]) -> None:
        self._kept, self._is_own = kept, is_own
        self._made: dict[int, Any] = {}

    def __call__(self, x: Any) -> Any:
        kind = type(x)
        if kind in PLAIN:
            return x
        if id(x) in self._made:
            return self._made[id(x)]
        if isinstance(x, tuple) and (kind is tuple or hasattr(x, "_fields")):
            items = [self(item) for item in x]
            # One in which nothing can change may be a constant that the function asks for.
            return x if all(map(operator.is_, x, items)) else tuple.__new__(kind, items)
        made = x if self._is_own(x) else self._copied(x, kind)
        self._made[id(x)] = made
        return made

    def _copied(self, x: Any, kind: type) -> Any:
        if kind is list:
            made: Any = self._made.setdefault(id(x), [])
            made.extend(x if PLAIN.issuperset(map(type, x)) else [self(item) for item in x])
        elif kind is dict or kind is OrderedDict:
            made = self._made.setdefault(id(x), kind())
            made.update({key: self(item) for key, item in x.items()})
            if kind is OrderedDict:
                vars(made).update(vars(x))
        elif isinstance(x, np.ndarray) and not any(np.may_share_memory(x, a) for a in self._kept):
            made = x.copy("K")
            made.flags.writeable = x.flags.writeable
        elif kind is SimpleNamespace:
            made = self._made.setdefault(id(x), SimpleNamespace())
            vars(made).update({key: self(item) for key, item in vars(x).items()})
        elif kind in (set, deque):
            made = self._made[id(x)] = copy.copy(x)
            if kind is deque:
                made.extend([self(made.popleft()) for _ in range(len(made))])
        elif is_dataclass(x):
            made = self._made[id(x)] = copy.copy(x)
            for name in [field.name for field in fields(kind) if hasattr(x, field.name)]:
                object.__setattr__(made, name, self(getattr(x, name)))
        else:
            made = x
        return made


def may_hold(items: Iterable[Any], arrays: Sequence[Any]) -> bool:
    """Whether some things may hold the memory of arrays, however deep inside.

    All of a kind are looked at together: samples are many, and each takes a few instructions.
    """
    items = list(items)
    if kernels is not None:
        ends = [byte_bounds(a) for a in arrays if a.size]
        found: bool | None = kernels.holds_memory(items, np.array(ends, np.int64), np.ndarray)
        if found is not None:
            return found
    for kind in set(map(type, items)) - PLAIN:
        mine: list[Any] = [x for x in items if type(x) is kind]
        inside: Iterable[Any] = ()
        if issubclass(kind, np.ndarray):
            if any(np.may_share_memory(x, a) for x in mine for a in arrays):
                return True
            inside = chain.from_iterable(x.ravel().tolist() for x in mine if x.dtype == object)
        elif issubclass(kind, Mapping):
            inside = chain.from_iterable(x.values() for x in mine)
        elif issubclass(kind, list | tuple | deque | set | frozenset):
            inside = chain.from_iterable(mine)
        elif issubclass(kind, Enum):
            inside = [x.value for x in mine]
        elif is_dataclass(kind):
            names = [field.name for field in fields(kind)]
            inside = [getattr(x, name, None) for x in mine for name in names]
        elif kind is SimpleNamespace:
            inside = chain.from_iterable(vars(x).values() for x in mine)
        elif not issubclass(kind, _WITHOUT):
            return True  # it cannot be looked into
        if may_hold(inside, arrays):
            return True
    return False
