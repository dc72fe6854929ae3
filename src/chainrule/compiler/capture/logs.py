"""What was put into a container under keys that are known only when the recording runs.

In: entries, each a key, a value and whether it counts, in the order in which they were made. Out:
steps of the integer program that tell what a dict, a set or a list would hold after them: where a
key was stored last, which keys are new, how many there are. A side of a branch makes entries that
count where its test holds: so the logs of both sides are one log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.compiler.capture.traced import Traced

if TYPE_CHECKING:
    from chainrule.compiler.capture.integers import IntegerRecorder
    from chainrule.compiler.capture.recorder import Recorder

_PARTS = 3  # parts of a key that is a tuple


@dataclass(frozen=True, eq=False)
class Entry:
    """Something that was stored."""

    key: Any  # as the function passed it
    node: int  # an integer that is the same for equal keys, and for no others
    value: Any
    counts: int | None = None  # the node of a truth: whether it was stored; None: in any case


@dataclass(frozen=True, eq=False)
class Log:
    """Entries in their order."""

    entries: tuple[Entry, ...] = ()

    def __len__(self) -> int:
        return len(self.entries)

    def with_entry(self, entry: Entry) -> Log:
        """One more; what was stored under the same key right before is stored over."""
        last = self.entries[-1] if self.entries else None
        if last is not None and (last.node, last.counts) == (entry.node, entry.counts):
            return Log((*self.entries[:-1], replace(entry, key=last.key)))
        return Log((*self.entries, entry))

    def with_item(self, entry: Entry) -> Log:
        """One more, beside those that are there."""
        return Log((*self.entries, entry))

    def merged(self, test: Traced, other: Log) -> Log:
        """This log where a test holds, else another one."""
        integers, same = test._recorder.integers, 0
        holds = test if isinstance(test.value, bool) else test.step("bool")
        for a, b in zip(self.entries, other.entries, strict=False):
            if a is not b:
                break
            same += 1
        made = list(self.entries[:same])
        for log, node in ((self, holds.node), (other, holds.step("eq", False).node)):
            for entry in log.entries[same:]:
                both = node if entry.counts is None else integers.step("and_", entry.counts, node)
                made.append(replace(entry, counts=both))
        return Log(tuple(made))

    # --- what it says -----------------------------------------------------------------------------

    def having(self, integers: IntegerRecorder, node: int) -> list[int]:
        """For each entry, the node of a truth: whether it counts and has this key."""
        found = []
        for entry in self.entries:
            truth = integers.step("eq", entry.node, node)
            if entry.counts is not None:
                truth = integers.step("and_", truth, entry.counts)
            found.append(truth)
        return found

    def new(self, integers: IntegerRecorder) -> list[int]:
        """For each entry, the node of a truth: whether it counts and is the first of its key."""
        found, no = [], integers.constant(False)
        for k, entry in enumerate(self.entries):
            before = Log(self.entries[:k])
            truth = integers.step("eq", before.number(integers, entry.node), integers.constant(0))
            if entry.counts is not None:
                truth = integers.step("and_", truth, entry.counts)
            found.append(truth)
        return found or [no]

    def number(self, integers: IntegerRecorder, node: int) -> int:
        """The node of the number of entries that count and have this key."""
        if not self.entries:
            return integers.constant(0)
        if all(entry.counts is None for entry in self.entries):
            return integers.step("count", node, *[entry.node for entry in self.entries])
        return total(integers, self.having(integers, node))


def total(integers: IntegerRecorder, truths: Sequence[int]) -> int:
    """The node of the number of truths that hold."""
    return running(integers, truths)[-1]


def running(integers: IntegerRecorder, truths: Sequence[int]) -> list[int]:
    """For each truth, the node of how many hold up to it."""
    found = [integers.constant(0)]
    for truth in truths:
        found.append(integers.step("add", found[-1], truth))
    return found[1:]


def last(integers: IntegerRecorder, truths: Sequence[int]) -> int:
    """The node of the place, counted from 1, of the last truth that holds; 0 where none does."""
    numbered = [
        integers.step("mul", truth, integers.constant(k)) for k, truth in enumerate(truths, 1)
    ]
    return integers.step("max", integers.constant(0), *numbered)


def places(integers: IntegerRecorder, truths: Sequence[int], count: int) -> list[int]:
    """The nodes of the places of the truths that hold, where there are so many of them."""
    counts, found = running(integers, truths), []
    place = integers.constant(0)
    for k in range(count):  # as many have counted no more than k before
        among = integers.step("count", integers.constant(k), *counts)
        place = integers.step("add", place, among)
        found.append(place)
    return found


def node_of(recorder: Recorder, key: Any) -> int | None:
    """One integer for a key: an integer, or a tuple of a few of them; None for any other key."""
    integers = recorder.integers
    if type(key) is int:
        return integers.constant(key)
    if type(key) is Traced and sort_of(key) is not None:
        return key.node
    if sort_of(key) is None:
        return None
    made, *rest = [
        _natural(integers, part.node if type(part) is Traced else integers.constant(part))
        for part in key
    ]
    for node in rest:
        made = _pair(integers, made, node)
    return made


def sort_of(key: Any) -> Any:
    """What kind of key this is: keys of two kinds have integers that do not go together."""
    kind = key.__class__
    if type(key) in (int, Traced):
        return kind if kind in (int, np.int64) else None
    if type(key) is tuple and 2 <= len(key) <= _PARTS:
        return len(key) if all(sort_of(part) is int for part in key) else None
    return None


def _natural(integers: IntegerRecorder, node: int) -> int:
    """An integer as one that is not negative: 0, -1, 1, -2, 2 ..."""
    double = integers.step("mul", node, integers.constant(2))
    other = integers.step("sub", integers.constant(-1), double)
    return integers.step("max", double, other)


def _pair(integers: IntegerRecorder, a: int, b: int) -> int:
    """One natural number for two, by Cantor's diagonals."""
    both = integers.step("add", a, b)
    following = integers.step("add", both, integers.constant(1))
    product = integers.step("mul", both, following)
    return integers.step("add", integers.step("rshift", product, integers.constant(1)), b)
