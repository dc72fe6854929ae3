"""Calls that differ only in how many integers their lists hold: a family.

In: a call. Out: its structure without these lengths, and the same call with others. The machine
code of the longest call of a family serves a shorter one if that is a prefix of it, which is
checked on recordings of the shorter one, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.machine import Fit, MachineCode
from chainrule.trees import INT, Branch, List, Node, Numbers, Tuple, node, unflatten

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

    def leaf(structure: Node, original: Any) -> Any:
        if structure is INT:
            return int(next(rows)[0])
        if isinstance(structure, Numbers) and structure.kind is INT:
            return np.array(next(rows), original.dtype).reshape(original.shape)
        if not isinstance(structure, Integers):
            return original
        if structure.kind is Numbers:
            return np.array(next(rows), original.dtype)
        row = [int(i) for i in next(rows)]
        return tuple(row) if structure.kind is Tuple else row

    def build(structure: Node, original: Any) -> Any:
        return unflatten(_shortened(structure, []), leaf, original)

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
    machine: MachineCode
    choices: Choices | None  # what any integer selects, where each decides by itself


@dataclass(frozen=True, eq=False)
class Choices:
    """Tables of what the gathers of a recording select.

    For each slot: the gathers of the machine code whose index it is, and the addresses they
    select, a row for each integer from ``-count`` on; -1 where a list has no such item.
    """

    slots: dict[int, tuple[int, Addresses, Addresses]]
    tables: dict[bool, Any] = field(default_factory=dict)  # built from them; see samples.py

    @classmethod
    def of(cls, selection: Selection, fit: Fit, slots: Addresses) -> Choices | None:
        """The tables of one recording; ``slots``: its integers among those of the longest."""
        if fit.tables is None:
            fit.tables = (cls._of(selection, fit, slots) if selection.is_direct else None,)
        made: Choices | None = fit.tables[0]
        return made

    @classmethod
    def _of(cls, selection: Selection, fit: Fit, slots: Addresses) -> Choices:
        found: dict[int, list[tuple[int, Addresses]]] = {}
        for place, position, chooser in zip(
            fit.places.tolist(), fit.gathers.tolist(), fit.choosers.tolist(), strict=True
        ):
            gather = selection.gathers[selection.owners[place]]
            addresses = fit.address[gather.candidates]
            addresses = np.where(fit.allowed[chooser, addresses], addresses, -1)
            found.setdefault(int(slots[gather.index]), []).append((position, addresses))
        made = {}
        for slot, columns in found.items():
            count = max(len(addresses) for _, addresses in columns)
            table = np.full((2 * count, len(columns)), -1, np.int64)
            for k, (_, addresses) in enumerate(columns):
                n = len(addresses)
                table[count : count + n, k] = table[count - n : count, k] = addresses
            made[slot] = count, np.array([position for position, _ in columns]), table
        return cls(made)

    def told(self, longer: Choices, ids: Addresses, slots: Addresses) -> npt.NDArray[np.bool_]:
        """Of which calls (rows of integers) the tables of a longer call tell what they select."""
        good = np.full(len(ids), self.agrees(longer))
        for column, slot in enumerate(slots.tolist()):
            if slot in self.slots:
                count, _, table = self.slots[slot]
                place = ids[:, column] + count
                inside = (place >= 0) & (place < len(table))
                if count != longer.slots.get(slot, (-1,))[0]:
                    inside &= ids[:, column] >= 0  # a negative one counts from another end
                good &= inside
                good &= (table[np.where(inside, place, 0)] >= 0).all(axis=1)
        return good

    def agrees(self, longer: Choices) -> bool:
        """Whether what is selected here is what the longer call's tables say."""
        for slot, (count, positions, table) in self.slots.items():
            if slot not in longer.slots:
                return False
            most, there, theirs = longer.slots[slot]
            place = {p: k for k, p in enumerate(there.tolist())}
            if count > most or not all(p in place for p in positions.tolist()):
                return False
            columns = [place[p] for p in positions.tolist()]
            rows = np.r_[most : most + count]
            if not np.array_equal(theirs[np.ix_(rows, columns)], table[count:]):
                return False
        return True
