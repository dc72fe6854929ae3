"""One program for all lengths of the integers a function is passed.

Calls that differ only in how many integers their lists hold are a ``Family``. The machine code of
its longest member serves a shorter one if that does the first part of everything the longest does,
which is checked on recordings of the shorter one, never guessed. What an integer in a place selects
is learnt on the longest, for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.infer import Indexing
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.lifted import Fit, Lifted
from chainrule.trees import INT, Again, Branch, List, Node, Numbers, Tuple, node, unflatten

BEYOND = 2**63  # no array has such integers
Runs = tuple[tuple[int, bool], ...]  # of integers, in order: how many, and whether it is a list


@node
class Integers(Node):
    """A list, tuple or array of integers, of any length."""

    kind: type[Node]

    def __repr__(self) -> str:
        return f"{self.kind.__name__}(int...)"


def _shortened(structure: Node, runs: list[tuple[int, bool]]) -> Node:
    """The structure without the lengths of lists of integers, which go to ``runs``."""
    if isinstance(structure, (List, Tuple)) and set(structure.items) == {INT}:
        runs.append((len(structure.items), True))
        return Integers(type(structure))
    if isinstance(structure, Branch):
        return structure.map(lambda part: _shortened(part, runs))
    if isinstance(structure, Numbers) and structure.kind is INT:
        is_list = len(structure.shape) == 1
        runs.append((math.prod(structure.shape), is_list))
        return Integers(Numbers) if is_list else structure
    if structure is INT:
        runs.append((1, False))
    return structure


def runs_of(call: Call) -> tuple[Any, Runs]:
    """The structure of a call with the lengths of its lists of integers taken out, and these."""
    runs: list[tuple[int, bool]] = []
    structures, named = call.structure
    shape = tuple([_shortened(s, runs) for s in structures])
    names = tuple([(name, _shortened(s, runs)) for name, s in named.items()])
    return (call.key[0], shape, names, call.key[3]), tuple(runs)


def resized(call: Call, ids: Sequence[Sequence[int]]) -> Call:
    """The same call with other integers: a row for each run, of any length where it is a list."""
    rows = iter(ids)
    containers: list[Any] = []  # made so far, for one that comes again

    def leaf(structure: Node, original: Any) -> Any:
        if structure is INT:
            return int(next(rows)[0])
        if isinstance(structure, Again):
            return containers[structure.number]
        if isinstance(structure, Numbers) and structure.kind is INT:
            return np.array(next(rows), original.dtype).reshape(original.shape)
        if not isinstance(structure, Integers):
            return original
        if structure.kind is Numbers:
            return np.array(next(rows), original.dtype)
        row = [int(i) for i in next(rows)]
        if structure.kind is Tuple:
            return tuple(row)
        containers.append(row)
        return row

    def branch(structure: Branch, items: list[Any], original: Any) -> Any:
        built = structure.build(items, original)
        if structure.is_mutable:
            containers.append(built)
        return built

    def build(structure: Node, original: Any) -> Any:
        return unflatten(_shortened(structure, []), leaf, original, branch)

    structures, named = call.structure
    arguments = tuple([build(*pair) for pair in zip(structures, call.arguments, strict=True)])
    keywords = {name: build(part, call.keywords[name]) for name, part in named.items()}
    return flatten_call(arguments, keywords, call.key[0])


def split(runs: Runs, ids: Sequence[int]) -> list[list[int]]:
    """The integers of a call, a row for each run."""
    rows, at = [], 0
    for count, _ in runs:
        rows.append(list(ids[at : at + count]))
        at += count
    return rows


def slots_among(runs: Runs, longest: Runs) -> Addresses | None:
    """Where the integers of a call are among those of the longest; None where it is not longer."""
    slots: list[int] = []
    at = 0
    for (count, _), (most, _) in zip(runs, longest, strict=True):
        if count > most:
            return None
        slots += range(at, at + count)
        at += most
    return np.array(slots, np.int64)


def shorter(runs: Runs, ids: Sequence[int], less: int) -> list[list[int]] | None:
    """The integers with so many less in each list, or None where one would be empty."""
    rows = split(runs, ids)
    if not any(is_list for _, is_list in runs):
        return None
    if any(is_list and count <= less for count, is_list in runs):
        return None
    return [row[:-less] if is_list else row for row, (_, is_list) in zip(rows, runs, strict=True)]


@dataclass(eq=False)
class Family:
    """Calls alike but for the lengths of their lists of integers, and the code of the longest."""

    runs: Runs
    lifted: Lifted
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
            whole = None if positions is None else self.lifted.fit.gathered(positions)
            fit.choices[ids] = None if whole is None else self._at(fit, whole, ids)
        return fit.choices[ids]

    def _at(self, fit: Fit, whole: Addresses, ids: tuple[int, ...]) -> Addresses | None:
        """What the longest call selects, for a shorter one: only what exists there."""
        chosen = whole[fit.gathers]
        if fit is not self.lifted.fit and min(ids) < 0:
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
    tables: dict[bool, Any] = field(default_factory=dict)  # made of them; see samples.py

    @classmethod
    def of(cls, family: Family) -> Choices | None:
        """The tables of what has been learnt."""
        indexing, lifted = family.indexing, family.lifted
        fit = lifted.fit
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
