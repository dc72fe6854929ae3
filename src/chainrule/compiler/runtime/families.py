"""Which calls share machine code: those alike but for the lengths of their lists.

In: the key of a call. Out: ``Lengths``: how its lists grow from call to call, and the ``Family`` of
calls whose code it may use. The machine code of the longest call serves a shorter one if that is a
prefix of it, which is checked on a recording of the shorter one, never guessed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.lengths import (
    Growth,
    Path,
    Places,
    apart,
    are_within,
    births_of,
    lengths_of,
    with_lengths,
)
from chainrule.compiler.runtime.machine import Fit, MachineCode

KEYS = 8  # of calls of one outline, the oldest goes
MOST_COMBINED = 16  # times as many combinations of items as in a call that came
CODES = 4  # of one outline: calls that are no prefix of each other; the oldest goes
VAIN = 3  # times that code which was to serve other lengths served none


def placed_among(call: RecordedCall, places: Places) -> RecordedCall:
    """A recorded call that knows where its inputs are among those of a longer one."""
    numbers = len(call.recording.selection.numbers)
    among = places.among(call.recording.inputs, numbers)
    return replace(call, slots=places.slots(numbers), among=among)


@dataclass(frozen=True, eq=False)
class Family:
    """Calls alike but for the lengths of their lists, and the code of the longest."""

    key: Any  # of the longest call
    machine: MachineCode

    def fit_for(self, call: Call, recording: Recording, root: int) -> Fit | None:
        """How a recorded call can use its code, or None."""
        places = Places.of(call.key, self.key)
        if places is None:
            return None
        return self.machine.fit_for(placed_among(RecordedCall.of(call, recording, root), places))

    def serves(self, other: Family) -> bool:
        """Whether its code can do what that of other calls does."""
        places, longest = Places.of(other.key, self.key), other.machine.source
        if places is None or longest is None:
            return places is not None  # if so, such calls get code of their own again
        return self.machine.fit_for(placed_among(longest, places)) is not None


@dataclass(eq=False)
class SharedCode:
    """What is known of calls with one outline."""

    families: list[Family] = field(default_factory=list)
    #: code for one length each, as long as a call uses it, and the key of that
    single: WeakKeyDictionary[MachineCode, Any] = field(default_factory=WeakKeyDictionary)
    keys: dict[Any, None] = field(default_factory=dict)  # of such calls, the last at the end
    largest: dict[Path, int] = field(default_factory=dict)  # of each list, in any call so far
    vain: int = 0  # times that code was to serve other lengths, and served none
    longest: int = 0  # steps of growth in such a call

    def meet(self, key: Any) -> None:
        """Know of one more call."""
        self.keys.pop(key, None)
        self.keys[key] = None
        while len(self.keys) > KEYS:
            del self.keys[next(iter(self.keys))]
        for path, length in lengths_of(key).items():
            self.largest[path] = max(self.largest.get(path, length), length)

    def may_grow(self, steps: int) -> bool:
        """Whether lists that have grown for so many steps are worth another try."""
        return self.vain < VAIN or steps >= 2 * self.longest

    def add(
        self, made: Family, growth: Growth | None, surely: bool = False
    ) -> frozenset[MachineCode]:
        """Know of new code; which of the other is superseded: it serves all calls of that.

        ``growth``: that of lists which it was to serve; ``surely``: which do grow so.
        """
        if not made.machine.varying:
            if growth is not None:
                self.vain += VAIN if surely else 1
                self.longest = max(self.longest, growth.steps(made.key))
            self.single[made.machine] = made.key
            for machine in list(self.single)[:-CODES]:
                del self.single[machine]
            return frozenset()
        alone = [Family(key, machine) for machine, key in list(self.single.items())]
        served = {old.machine for old in (*self.families, *alone) if made.serves(old)}
        self.families[:] = [made, *[x for x in self.families if x.machine not in served]][:CODES]
        for machine in served:
            self.single.pop(machine, None)
        return frozenset(served)


@dataclass(frozen=True, eq=False)
class Lengths:
    """A call that passes lists: the code there is for such calls, and how their lists grow."""

    key: Any
    known: SharedCode

    @property
    def is_served(self) -> bool:
        """Whether there is code of a call that is not shorter."""
        return any(are_within(self.key, old.key) for old in self.known.families)

    @functools.cached_property
    def growth(self) -> Growth | None:
        """How lists grow from one call to another, if they do.

        Those of integers are taken to have any length. Those of numbers grow as they were seen to.
        """
        if self.independent is not None:
            return self.independent
        for key in reversed(self.known.keys):
            seen = Growth.between(key, self.key)
            if seen is not None and self._is_of_numbers(seen):
                if self.known.may_grow(seen.steps(self.key)):
                    return seen
                break
        return Growth.of_integers(self.key)

    @functools.cached_property
    def independent(self) -> Growth | None:
        """The same of lists that grow independently, if they were seen to."""
        found = Growth.independent(list(self.known.keys))
        may_grow = found is not None and self.known.may_grow(found.steps(self.key))
        return found if may_grow else None

    @property
    def grows_by_numbers(self) -> bool:
        """Whether it is lists of numbers that were seen to grow."""
        return self.growth is not None and self._is_of_numbers(self.growth)

    @property
    def tries_rows(self) -> bool:
        """Whether code whose rows are data is worth a try: where there are other lengths.

        Code for one length is quicker.
        """
        growth = self.growth
        several = len(self.known.keys) > 1
        return several and growth is not None and self.known.may_grow(growth.steps(self.key))

    def _is_of_numbers(self, growth: Growth) -> bool:
        plain = Growth.of_integers(self.key)
        return plain is None or not growth.units.keys() <= plain.units.keys()

    def births(self, recording: Recording, first: int) -> Addresses | None:
        """Of the private inputs, those after the ``first``: in which step of growth they came.

        None where only lists of integers grow.
        """
        if self.growth is None or not self.grows_by_numbers:
            return None
        floats, integers = births_of(self.key, self.growth)
        last = np.array(recording.selection.born[len(integers) :], np.int64)
        numbers = np.where(last < 0, -1, integers[last]) if len(integers) else last
        return np.concatenate([floats[first:], integers, numbers])

    def _largest(self, growth: Growth) -> dict[Path, int] | None:
        """Of each list the largest length, in all calls or at least in the last ones.

        None where that may be far more to do than any of these: a function of two lists may do
        something for each pair.
        """
        lasts = [lengths_of(key) for key in self.known.keys]
        recent = {path: max(each[path] for each in lasts) for path in lasts[0]}
        pairs = max(_combinations(growth, each) for each in lasts)
        for largest in (self.known.largest, recent):
            wanted = apart(self._with_room(largest, growth), growth)
            if _combinations(growth, wanted) <= MOST_COMBINED * pairs:
                return wanted
        return None

    def _with_room(self, largest: Mapping[Path, int], growth: Growth) -> dict[Path, int]:
        """Half as many again of what is longer than in all code there is, so that few are built."""
        made, served = dict(largest), [lengths_of(old.key) for old in self.known.families]
        for path in growth.units if served else ():
            if largest[path] > max(each[path] for each in served):
                made[path] += made[path] // 2
        return made

    def longest(self, call: Call) -> Call | None:
        """The call with lists as long as the longest that were seen; None: it has those."""
        if self.independent is not None:
            wanted = self._largest(self.independent)
            return None if wanted in (None, lengths_of(self.key)) else with_lengths(call, wanted)
        others = [k for k in self.known.keys if k != self.key and are_within(self.key, k)]
        lengths = [lengths_of(key) for key in others]
        longest = max(lengths, key=lambda each: sum(each.values()), default=None)
        return None if longest is None else with_lengths(call, longest)


def _combinations(growth: Growth, lengths: Mapping[Path, int]) -> int:
    """In how many ways one item can be taken of each growing list."""
    return math.prod(lengths[path] for path in growth.units)
