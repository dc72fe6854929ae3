"""What integers select in the longest call of a family, as tables for all of its calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainrule.compiler.capture.infer import Indexing
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.families import Runs
from chainrule.compiler.runtime.machine import Fit, MachineCode

BEYOND = 2**63  # no array has such integers


@dataclass(eq=False)
class Family:
    """Calls alike but for the lengths of their lists of integers, and the code of the longest."""

    runs: Runs
    machine: MachineCode
    indexing: Indexing  # what the integers of the longest select
    indexed: tuple[int, ...]  # those of its integers that select
    base: tuple[int, ...]  # the integers it was first recorded with
    read: Any  # the containers that its integers read from
    proved: Choices | None = None  # what any integer selects, where that is certain
    _choices: Choices | None = None

    def padded(self, slots: Addresses, ids: Sequence[int]) -> tuple[int, ...]:
        """The integers of the longest call that begins with these."""
        made = list(self.base)
        for slot, i in zip(slots.tolist(), ids, strict=True):
            made[slot] = i
        return tuple(made)

    def gathered(self, fit: Fit, slots: Addresses, ids: tuple[int, ...]) -> Addresses | None:
        """What the gathers of a member select for its integers; None where it is not known."""
        if fit.learnt != len(self.indexing.ids) or len(fit.choices) > 10_000:
            fit.choices.clear()
            fit.learnt = len(self.indexing.ids)
        if ids not in fit.choices and not all(-BEYOND < i < BEYOND for i in ids):
            fit.choices[ids] = None
        if ids not in fit.choices and self.proved is not None:
            fit.choices[ids] = self.proved.row(fit, slots, ids)
        if ids not in fit.choices:
            whole_ids = self.padded(slots, ids)
            positions = self.indexing.predict(tuple([whole_ids[k] for k in self.indexed]))
            whole = None if positions is None else self.machine.fit.gathered(positions)
            fit.choices[ids] = None if whole is None else self._at(fit, whole, ids)
        return fit.choices[ids]

    def _at(self, fit: Fit, whole: Addresses, ids: tuple[int, ...]) -> Addresses | None:
        """What the longest call selects, for a shorter one: only what exists there."""
        chosen = whole[fit.gathers]
        if fit is not self.machine.fit and min(ids) < 0:
            return None  # counted from the end, which is elsewhere
        return chosen if fit.allowed[fit.choosers, chosen].all() else None

    def other_integers(self, slots: Addresses, ids: Sequence[int]) -> list[int]:
        """Others in every place, such as have been seen there."""
        place = {slot: k for k, slot in enumerate(self.indexed)}
        made = []
        for slot, i in zip(slots.tolist(), ids, strict=True):
            k = place.get(slot)
            seen = [] if k is None else [row[k] for row in self.indexing.ids]
            made.append(next((x for x in seen if x != i), i))
        return made

    def choices(self) -> Choices | None:
        """What each integer in each place selects, as tables; None where several decide."""
        if self.proved is not None:
            return self.proved
        if self._choices is None or self._choices.learnt != len(self.indexing.ids):
            self._choices = Choices.of(self)
        return self._choices


@dataclass(frozen=True, eq=False)
class Choices:
    """Tables of what the gathers of the longest call select.

    For each slot: the integers seen there, the gathers that follow it, and the addresses they
    select, a row for each integer.
    """

    learnt: int
    slots: dict[int, tuple[Addresses, Addresses, Addresses]]
    tables: dict[bool, Any] = field(default_factory=dict)  # made of them; see training

    @classmethod
    def of(cls, family: Family) -> Choices | None:
        """The tables of what has been learnt."""
        indexing, fit = family.indexing, family.machine.fit
        if fit.known != len(indexing.places) or not indexing.apart:
            return None
        slots = {}
        for k, slot in enumerate(family.indexed):
            followers = np.flatnonzero(indexing.follows(k)[fit.places])
            seen = indexing.seen(k)
            ids = np.array(sorted(seen), np.int64)
            rows = np.stack([indexing.rows[seen[i]] for i in ids.tolist()])
            found = fit.address[rows[:, fit.places[followers]]]
            found[~fit.allowed[fit.choosers[followers], found]] = -1
            slots[slot] = (ids, followers, found)
        return cls(len(indexing.ids), slots)

    def check(self, fit: Fit, slots: Addresses, ids: Addresses) -> tuple[Any, Any]:
        """Of which calls all is known that they select, and which integers are known at all."""
        known = np.ones(ids.shape, np.bool_)
        good = np.ones(len(ids), np.bool_)
        told = np.zeros(len(fit.gathers), np.bool_)
        for column, slot in enumerate(slots.tolist()):
            if slot not in self.slots:
                continue
            seen, here, _, allowed = self._at(fit, slot)
            place = np.minimum(np.searchsorted(seen, ids[:, column]), len(seen) - 1)
            known[:, column] = seen[place] == ids[:, column]
            good &= known[:, column] & allowed[place]
            told[here] = True
        return good & bool(told.all()), known

    def row(self, fit: Fit, slots: Addresses, ids: Sequence[int]) -> Addresses | None:
        """What the gathers of a fit select for a call; None where that is not known."""
        made = np.full(len(fit.gathers), -1, np.int64)
        for slot, i in zip(slots.tolist(), ids, strict=True):
            if slot in self.slots:
                seen, here, addresses, _ = self._at(fit, slot)
                place = int(np.searchsorted(seen, i))
                if place == len(seen) or seen[place] != i:
                    return None
                before, chosen = made[here], addresses[place]
                # Two slots that explain it must agree.
                made[here] = np.where((before == -1) | (before == chosen), chosen, -2)
        return made if (made >= 0).all() else None

    def _at(self, fit: Fit, slot: int) -> tuple[Addresses, Addresses, Addresses, Any]:
        """For a fit: integers seen in a slot, the gathers that follow it, what these select.

        -1 for what they may not; at last for each integer whether they may select all of it.
        """
        if fit.tables is None or fit.tables[0] is not self:
            fit.tables = self, {}
        if slot not in fit.tables[1]:
            seen, followers, addresses = self.slots[slot]
            place = np.searchsorted(fit.gathers, followers)
            there = place < len(fit.gathers)
            there[there] = fit.gathers[place[there]] == followers[there]
            here, found = place[there], addresses[:, there]
            allowed = (found >= 0) & fit.allowed[fit.choosers[here], np.maximum(found, 0)]
            found = np.where(allowed, found, -1)
            fit.tables[1][slot] = seen, here, found, allowed.all(axis=1)
        found_here: tuple[Addresses, Addresses, Addresses, Any] = fit.tables[1][slot]
        return found_here
