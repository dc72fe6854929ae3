"""The structures of samples, and the integers in them.

In: samples as they are passed, or windows. Out: ``Structures``: each sample flattened when it is
asked for, a sample of each structure, and the integers of many samples at once. Samples that are
nothing but lists of integers are read in C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.arguments import Call, Texts, flatten_call
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.decisions import runs_of
from chainrule.core.backend import kernels
from chainrule.trees import Floats
from chainrule.windows import Windows

AT_ONCE = 8192  # samples that are looked at in one go
KEPT = 1 << 24  # bytes: of integers that were read to see the structures, for packing


@dataclass(frozen=True, eq=False)
class Kept:
    """What was read of samples that are lists of integers."""

    integers: npt.NDArray[np.int32]  # of each the number of its shape, then its integers
    starts: Addresses  # where these begin, -1 for a sample of which nothing is kept
    shapes: list[tuple[int, ...]]  # the lengths of the lists


NOTHING = Kept(np.zeros(0, np.int32), np.zeros(0, np.int64), [])


class Structures:
    """Samples, and what is found out about their structures.

    Of windows those that are needed next are the samples.
    """

    def __init__(
        self,
        samples: list[tuple[Any, ...]] | Windows,
        key: tuple[Floats, ...],
        texts: Texts,
    ) -> None:
        """``key``: a sample's last arguments; ``texts``: arguments whose strings are integers."""
        self.key, self.texts = key, texts
        self.samples: Sequence[tuple[Any, ...]] = samples
        if isinstance(samples, Windows):
            self.samples = _Shown(samples, samples.places(0, AT_ONCE))
        self.kept = NOTHING
        self.integers_only = False  # whether those looked at by ``first_of_each`` are such lists
        self._calls: dict[int, Call] = {}
        self._seen: tuple[Addresses, list[int]] | None = None  # the last ``first_of_each``

    @property
    def windowed(self) -> bool:
        """Whether the samples are windows, of which only those that come next are here."""
        return isinstance(self.samples, _Shown)

    def show(self, samples: list[tuple[Any, ...]]) -> None:
        """Go on with other samples."""
        self.samples, self._seen, self.kept = samples, None, NOTHING
        self.forget_calls()

    def show_windows(self, first: int, count: int) -> bool:
        """Go on with the windows number ``first`` and on; False where there are none."""
        if isinstance(self.samples, _Shown):
            self.samples.places = self.samples.windows.places(first, count)
            self.forget_calls()
        return self.windowed

    def forget_read(self) -> None:
        """Let go of the integers that were read."""
        self.kept = NOTHING

    def forget_calls(self) -> None:
        """Let go of the samples that were flattened."""
        self._calls.clear()

    def call(self, k: int) -> Call:
        """Sample k flattened."""
        if k not in self._calls:
            arguments = (*self.samples[k], *self.key)
            texts = frozenset([place - 1 for place in self.texts if isinstance(place, int)])
            self._calls[k] = flatten_call(arguments, {}, differentiate=False, texts=texts)
        return self._calls[k]

    def whole(self, params: Any, k: int) -> Call:
        """Sample k as a call of the function, flattened."""
        arguments = (params, *self.samples[k], *self.key)
        return flatten_call(arguments, {}, differentiate=True, texts=self.texts)

    # --- a sample of each structure ---------------------------------------------------------------

    def longest(self) -> int:
        """The sample with the longest lists."""
        if self.windowed:
            return 0
        if kernels is not None:
            found: int = kernels.longest_sample(self.samples)
            if found >= 0:
                return found
        sizes = [sum(map(_length, sample)) for sample in self.samples]
        return sizes.index(max(sizes))

    def first_of_each(self, chosen: Addresses) -> list[int]:
        """One sample of each structure among some, the longest first."""
        if self.windowed:
            return [0]
        if not len(chosen):
            return []
        if self._seen is None or not np.array_equal(self._seen[0], chosen):
            self._seen = chosen, self._first_of_each(chosen)
        return self._seen[1]

    def _first_of_each(self, chosen: Addresses) -> list[int]:
        first: dict[Any, int] = {}
        found, others = self._read_shapes(increasing(chosen))
        self.integers_only = not others
        every = [*found, *others]
        for place in range(0, len(every), AT_ONCE):
            for k in every[place : place + AT_ONCE]:
                first.setdefault(self.call(k).key, k)
            self.forget_calls()
        calls = {k: self.call(k) for k in first.values()}
        return sorted(calls, key=lambda k: -calls[k].size - len(calls[k].ints))

    def leader(self, chosen: Addresses) -> int:
        """The sample that is recorded first, if some will be read: the others may join its code.

        It is the longest of all, also of those that will not be read, where these have lists of
        integers, which are quick to look at.
        """
        every = self.first_of_each(chosen)
        all_seen = len(chosen) == len(self.samples)
        if self.integers_only and all_seen:
            return every[0]
        if every and not all_seen and not any(_has_integers(self.call(k)) for k in every):
            return every[0]
        return self.longest()

    def shapes(self, some: Addresses) -> tuple[list[int], list[int]]:
        """Of samples that are lists of integers the first of all lengths; and the other samples."""
        if kernels is not None:
            found: tuple[list[int], list[int]]
            found = kernels.sample_shapes(self.samples, some, len(self.samples[0]))
            return found
        lengths, _ = self.read(some)
        plain = lengths[:, 0] >= 0
        first = [int(some[plain][places[0]]) for places in _alike(lengths[plain])]
        return first, some[~plain].tolist()

    def _read_shapes(self, some: Addresses) -> tuple[list[int], list[int]]:
        """The same; what is read of them is kept for packing, so that it is done once."""
        if kernels is None:
            return self.shapes(some)
        starts = np.full(len(self.samples), -1, np.int64)
        lists = len(self.samples[0])
        first, others, read = kernels.sample_shapes(self.samples, some, lists, starts, KEPT)
        shapes = [tuple(map(len, self.samples[k])) for k in first]
        self.kept = Kept(np.frombuffer(read, np.int32), starts, shapes)
        return first, others

    # --- their integers ---------------------------------------------------------------------------

    def read(self, chosen: Addresses) -> tuple[Addresses, Addresses]:
        """The integers of samples that are lists of some, and the lengths of these lists, or -1."""
        if isinstance(self.samples, _Shown):
            windows = self.samples.windows
            rows = windows.rows(self.samples.places[chosen])
            return np.full((len(chosen), 1), windows.length), rows.ravel()
        lengths = np.full((len(chosen), max(1, len(self.samples[0]))), -1, np.int64)
        if kernels is not None:
            found = kernels.sample_integers(self.samples, chosen, lengths)
            return lengths, np.frombuffer(found, np.int64)
        ids: list[int] = []
        for row, k in zip(lengths, chosen.tolist(), strict=True):
            sample = self.samples[k]
            if len(sample) == len(row) and _is_plain(sample):
                row[:] = list(map(len, sample))
                ids += chain(*sample)
        return lengths, np.array(ids, np.int64)

    def lengths(self, k: int) -> tuple[int, ...] | None:
        """Of a sample that is lists of integers, how long these are."""
        (lengths,), _ = self.read(np.array([k]))
        return tuple(lengths.tolist()) if lengths[0] >= 0 else None

    def groups(self, chosen: Addresses) -> Iterator[tuple[list[int], Addresses | None]]:
        """Samples of one structure, and their integers, a row for each; None where one is too large
        for machine code.
        """
        lengths, ids = self.read(chosen)
        plain = lengths[:, 0] >= 0
        starts = np.concatenate([[0], np.cumsum(lengths[plain].sum(axis=1))])
        for places in _alike(lengths[plain]):
            count = starts[places[0] + 1] - starts[places[0]]
            members = chosen[plain][places].tolist()
            yield members, ids[starts[places][:, None] + np.arange(count)]
        alike: dict[Any, list[int]] = {}
        for k in chosen[~plain].tolist():
            alike.setdefault(self.call(k).key, []).append(k)
        for members in alike.values():
            try:
                yield members, np.array([self.call(k).ints for k in members], np.int64)
            except OverflowError:
                yield members, None


class _Shown(Sequence[tuple[Any, ...]]):
    """The windows at some places, which change."""

    def __init__(self, windows: Windows, places: Addresses) -> None:
        self.windows, self.places = windows, places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, k: Any) -> Any:
        return self.windows[int(self.places[k])]


def increasing(places: Addresses) -> Addresses:
    """Places in order, each once."""
    return places if (places[1:] > places[:-1]).all() else np.unique(places)


def _alike(rows: Addresses) -> list[Addresses]:
    """The places of equal rows, in the order in which each comes first."""
    order = np.lexsort(rows.T)
    ends = np.flatnonzero((rows[order[1:]] != rows[order[:-1]]).any(axis=1)) + 1
    return sorted(np.split(order, ends), key=lambda places: int(places[0])) if len(rows) else []


def _has_integers(call: Call) -> bool:
    """Whether there are lists of integers in a sample."""
    return any(is_list for _, is_list in runs_of(call.key)[1])


def _length(x: Any) -> int:
    return 0 if isinstance(x, np.ndarray) and not x.ndim else len(x) if hasattr(x, "__len__") else 0


def _is_plain(sample: tuple[Any, ...]) -> bool:
    """Whether a sample is nothing but lists of integers, each another list."""
    for x in sample:
        if type(x) is not list or set(map(type, x)) != {int}:
            return False
        if not -(1 << 63) <= min(x) <= max(x) < 1 << 63:
            return False
    return len(set(map(id, sample))) == len(sample)
