"""A recording ready to run, and what is known of calls with one structure of arguments."""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from chainrule.compiler.capture.infer import Indexing
from chainrule.compiler.capture.recorder import Recording
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.families import Family
from chainrule.compiler.runtime.lifted import Fit, Lifted
from chainrule.compiler.runtime.tape import FINE, Executor, executor
from chainrule.core.backend import Value
from chainrule.trees import Floats


@dataclass(eq=False)
class Variant:
    """A recording ready to run, and for which integers it holds."""

    recording: Recording
    captured: tuple[Value, ...]
    static: dict[int, int]
    indexing: Indexing
    indexed: tuple[int, ...]
    numeric: frozenset[int]
    inputs: Floats
    grads: Floats
    lifted: Lifted | None = None
    fit: Fit | None = None
    family: Family | None = None  # whose code it runs on, if it is not its own
    slots: Addresses | None = None  # its integers among those of the family's longest
    not_lifted: str | None = None
    ran_lifted: bool = False
    _ids: Sequence[int] = ()  # of the last call

    @functools.cached_property
    def executor(self) -> Executor:
        """What runs the recording itself."""
        return executor(self.recording)

    def run(self, ids: Sequence[int]) -> int | None:
        """Compute this call: by the array program where it can, else by the tape.

        None where it is not known what these integers select.
        """
        lifted, fit = self.lifted, self.fit
        self.ran_lifted, self._ids = False, ids
        if lifted is not None and fit is not None:
            gathered = self.gathered(ids)
            if gathered is not None:
                self.ran_lifted = lifted.run(fit, gathered, self.inputs)
                if self.ran_lifted:
                    return FINE
        return self._run_tape(ids)

    def gathered(self, ids: Sequence[int]) -> Addresses | None:
        """The addresses that the gathers of the lifted program select, if that is known."""
        fit = self.fit
        if fit is None:
            return None
        if self.family is not None and self.slots is not None:
            return self.family.gathered(fit, self.slots, tuple(ids))
        positions = self.indexing.predict(self.index_ids(ids))
        return None if positions is None else fit.gathered(positions)

    def _run_tape(self, ids: Sequence[int]) -> int | None:
        positions = self.indexing.predict(self.index_ids(ids))
        if positions is None:
            return None
        if len(positions):
            self.executor.point(self.indexing.places, positions)
        return self.executor.run(self.inputs)[0]

    def number(self, position: int) -> float:
        """The number an instruction gave in this call."""
        found = (
            self.lifted.number(position) if self.lifted is not None and self.ran_lifted else None
        )
        return self.executor.number(position) if found is None else found

    def sweep(self, root: int) -> Floats | None:
        """The derivative of an instruction by every input; None where only eager can tell."""
        if self.lifted is not None and self.ran_lifted:
            if self.lifted.sweep(self.grads):
                return self.grads
            if self._run_tape(self._ids) != FINE:
                return None
            # Something infinite: the tape knows the rules for it
        self.executor.sweep(root, 1.0, self.grads)
        return self.grads

    def serves(self, ids: Sequence[int]) -> bool:
        """Whether its static integers are these."""
        return all(ids[slot] == number for slot, number in self.static.items())

    def index_ids(self, ids: Sequence[int]) -> tuple[int, ...]:
        """The integers that select operands."""
        return tuple([ids[slot] for slot in self.indexed])


@dataclass(eq=False)
class Structure:
    """What is known of calls with one structure of arguments."""

    variants: list[Variant] = field(default_factory=list)
    recordings: int = 0
    numbers_follow: bool = False  # integers select plain numbers, so each variant is for its own
    blocked: str | None = None  # why such calls run eagerly


@dataclass
class Counts:
    """What ``report()`` tells."""

    calls: int = 0
    replayed: int = 0
    eager: int = 0
    traces: int = 0
    recording_seconds: float = 0.0
    lifting_seconds: float = 0.0
    checking_seconds: float = 0.0


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
