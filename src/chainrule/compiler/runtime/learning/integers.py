"""For which integers a recording holds, and what they select in it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from chainrule.compiler.capture.arguments import Call, as_float
from chainrule.compiler.capture.infer import Indexing, misaligned
from chainrule.compiler.capture.recorder import Ints
from chainrule.compiler.capture.tracing import Trace

#: What a recording with other integers shows: one more case, something else, or that a plain
#: number depends on integers, so that what was learnt of single ones does not hold.
LEARNT, OTHER, NUMBERS = "learnt", "other", "numbers"


@dataclass(eq=False)
class Integers:
    """For which integers a recording holds, and what they select in it."""

    static: dict[int, int]
    indexed: tuple[int, ...]  # those that select operands
    indexing: Indexing
    numeric: frozenset[int]  # those used as numbers

    @classmethod
    def of(cls, call: Call, made: Trace) -> Integers:
        """What one recording shows."""
        static = {slot: call.ints[slot] for slot in made.static}
        indexed = tuple(sorted(made.indexed - set(static)))
        base = tuple([call.ints[slot] for slot in indexed])
        return cls(static, indexed, Indexing(made.recording, base), made.numeric)

    def serves(self, ids: Sequence[int]) -> bool:
        """Whether its static integers are these."""
        return all(ids[slot] == number for slot, number in self.static.items())

    def beyond_floats(self, ids: Sequence[int]) -> bool:
        """Whether one that is used as a number is too large for a float."""
        return any(as_float(ids[slot]) != as_float(ids[slot]) for slot in self.numeric)

    def index_ids(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The integers that select operands."""
        return tuple([ids[slot] for slot in self.indexed])

    @property
    def places(self) -> Ints:
        """The operands that depend on integers."""
        return self.indexing.places

    def operands(self, ids: Sequence[int]) -> Ints | None:
        """What stands in ``places`` for these integers, or None where that is not known."""
        return self.indexing.predict(self.index_ids(ids))

    def make_static(self, ids: Sequence[int]) -> None:
        """Let the recording hold for these integers only."""
        self.static.update({slot: ids[slot] for slot in self.indexed})
        self.indexed, self.indexing = (), Indexing(self.indexing.base, ())

    def learn(self, call: Call, made: Trace) -> str:
        """Take in another recording, if it is the same one with other integers."""
        if not self.serves(call.ints) or set(made.static) != set(self.static):
            return OTHER
        if set(self.indexed) != made.indexed - set(made.static):
            return OTHER
        return self.add(made, call.ints)

    def add(self, made: Trace, ids: Sequence[int]) -> str:
        """Take in a recording of the same use of integers."""
        difference = misaligned(self.indexing.base, made.recording)
        if difference is None:
            self.indexing.learn(made.recording, self.index_ids(ids))
            return LEARNT
        return NUMBERS if difference.startswith("a number") else OTHER


def other_integers(slots: tuple[int, ...], ids: Sequence[int]) -> list[list[int]]:
    """Integers to try in these slots, so that what follows one is told from what follows another.

    Others in every slot; then, for each binary digit of a slot's number, others where it is 1: any
    two slots differ in one of these. Last the same integer everywhere.
    """
    chance = random.Random(len(ids))
    top = max(ids[slot] for slot in slots)
    different, used, most = list(ids), set(), max(top, 1)
    for slot in slots:
        if ids[slot] >= 0:
            for _ in range(20):  # two slots with one integer get two, to be told apart
                different[slot] = (ids[slot] + chance.randint(1, most)) % (most + 1)
                if (ids[slot], different[slot]) not in used:
                    break
            used.add((ids[slot], different[slot]))
    tries = [different]
    for digit in range((len(slots) - 1).bit_length()):
        mixed = list(ids)
        for k, slot in enumerate(slots):
            if k >> digit & 1:
                mixed[slot] = different[slot]
        tries.append(mixed)
    alike = list(ids)
    for slot in slots:
        alike[slot] = ids[slots[0]]
    return [*tries, alike]
