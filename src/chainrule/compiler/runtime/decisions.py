"""The integers of calls: in runs, exchanged for others, and what they decide.

In: a call. Out: its ``Runs`` of integers, and the same call with other ones; for many calls at a
time the ``Decisions`` of their integers, as machine code reads them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.integer_code import ANOTHER_PATH, BEYOND_BITS, KNOWN, decider
from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.machine import Fit
from chainrule.trees import (
    FLOAT,
    INT,
    TRUTH,
    Branch,
    Floats,
    List,
    Node,
    Number,
    Numbers,
    Text,
    Tuple,
    node,
    unflatten,
)

Runs = tuple[tuple[int, bool], ...]  # of integers, in order: how many, and whether it is a list


@node
class Integers(Node):
    """A list, tuple or array of integers, or a text, of any length."""

    kind: type[Node]
    items: Number

    def __repr__(self) -> str:
        return f"{self.kind.__name__}(int...)"


def _shortened(structure: Node, runs: list[tuple[int, bool]]) -> Node:
    """The structure without the lengths of lists of integers, which go to ``runs``."""
    if isinstance(structure, (List, Tuple)) and set(structure.items) == {INT}:
        runs.append((len(structure.items), True))
        return Integers(type(structure), INT)
    if isinstance(structure, Branch):
        return structure.map(lambda part: _shortened(part, runs))
    if isinstance(structure, Numbers) and structure.kind is not FLOAT:
        is_list = len(structure.shape) == 1
        runs.append((math.prod(structure.shape), is_list))
        return Integers(Numbers, structure.kind) if is_list else structure
    if isinstance(structure, Text):
        runs.append((structure.length, True))
        return Integers(Text, INT)
    if structure is INT or structure is TRUTH:
        runs.append((1, False))
    return structure


def runs_of(key: Any) -> tuple[Any, Runs]:
    """The key of a call with the lengths of its lists of integers taken out, and these."""
    differentiate, structures, named, others = key
    runs: list[tuple[int, bool]] = []
    shape = tuple([_shortened(s, runs) for s in structures])
    names = tuple([(name, _shortened(s, runs)) for name, s in named])
    return (differentiate, shape, names, others), tuple(runs)


def resized(call: Call, ids: Sequence[Sequence[int]]) -> Call:
    """The same call with other integers: a row for each run, of any length where it is a list."""
    rows = iter(ids)

    def leaf(structure: Node, original: Any) -> Any:
        if structure is INT:
            return int(next(rows)[0])
        if structure is TRUTH:
            return bool(next(rows)[0])
        if isinstance(structure, Numbers) and structure.kind is not FLOAT:
            return np.array(next(rows)).astype(original.dtype).reshape(original.shape)
        if not isinstance(structure, Integers):
            return original
        if structure.kind is Numbers:
            return np.array(next(rows)).astype(original.dtype)
        row = [int(i) for i in next(rows)]
        if structure.kind is Text:
            return "".join(map(chr, row))
        return tuple(row) if structure.kind is Tuple else row

    def build(structure: Node, original: Any) -> Any:
        return unflatten(_shortened(structure, []), leaf, original)

    structures, named = call.structure
    arguments = tuple([build(*pair) for pair in zip(structures, call.arguments, strict=True)])
    keywords = {name: build(part, call.keywords[name]) for name, part in named.items()}
    return flatten_call(arguments, keywords, call.key[0], call.texts)


def split(runs: Runs, ids: Sequence[int]) -> list[list[int]]:
    """The integers of a call, a row for each run."""
    rows, at = [], 0
    for count, _ in runs:
        rows.append(list(ids[at : at + count]))
        at += count
    return rows


def slots_among(runs: Runs, longest: Runs, numbers: int = 0) -> Addresses | None:
    """Where the integers of a call are among those of the longest; None where it is not longer.

    After them come ``numbers``, computed from integers, which are the first of the longest's.
    """
    slots: list[int] = []
    at = 0
    for (count, _), (most, _) in zip(runs, longest, strict=True):
        if count > most:
            return None
        slots += range(at, at + count)
        at += most
    return np.array([*slots, *range(at, at + numbers)], np.int64)


def decider_of(selection: Selection, fit: Fit) -> Any:
    """What tells in C which addresses the gathers of machine code select; None where it cannot."""
    return _decider(selection, _tables(selection, fit))


def _decider(selection: Selection, gathers: list[tuple[int, Addresses]]) -> Any:
    return decider(selection.program, gathers, selection.numbers, selection.ranges)


def _tables(selection: Selection, fit: Fit) -> list[tuple[int, Addresses]]:
    """What the gathers of machine code choose from: the integer that chooses, and the addresses.

    -1 is nothing that may be chosen.
    """
    tables: dict[tuple[int, int], Addresses] = {}
    gathers = []
    for place, chooser in zip(fit.places.tolist(), fit.choosers.tolist(), strict=True):
        gather = selection.gathers[selection.owners[place]]
        key = id(gather.candidates), chooser
        if key not in tables:
            addresses = fit.at(gather.candidates)
            tables[key] = np.where(fit.may_select(chooser, addresses), addresses, -1)
        gathers.append((gather.index, tables[key]))
    return gathers


def _follow(gathers: list[tuple[int, Addresses]]) -> npt.NDArray[np.bool_]:
    """Of each gather: whether it selects the address after what the one before it selects.

    That is so whatever the integers are, and neither selects anything where the other does not.
    """
    seen: dict[tuple[int, int], bool] = {}
    found = np.zeros(len(gathers), np.bool_)
    for k, ((index, table), (after, other)) in enumerate(pairwise(gathers), 1):
        pair = id(table), id(other)
        if pair not in seen:
            next_ones = np.where(table < 0, -1, table + 1)
            seen[pair] = np.array_equal(next_ones, other)
        found[k] = index == after and seen[pair]
    return found


@dataclass(frozen=True, eq=False)
class Decisions:
    """What many calls decide, a row for each: ``known``, or they take another path."""

    known: npt.NDArray[np.bool_]
    gathered: Addresses  # the addresses that the gathers of machine code select
    numbers: Floats  # computed from integers

    def only(self, rows: npt.NDArray[np.bool_]) -> Decisions:
        """Those of some calls."""
        return Decisions(self.known[rows], self.gathered[rows], self.numbers[rows])


class Decided:
    """Tells for many calls of one variant at a time what their integers decide."""

    def __init__(self, selection: Selection, fit: Fit) -> None:
        self._selection, self._fit = selection, fit
        gathers = _tables(selection, fit)
        #: does it in C; None where it cannot
        self.decider = _decider(selection, gathers)
        #: of each gather: whether it selects the address after what the one before it selects
        self.follows = _follow(gathers)

    @classmethod
    def of(cls, selection: Selection, fit: Fit) -> Decided:
        """That of a fit, which keeps it."""
        if fit.decided is None:
            fit.decided = cls(selection, fit)
        made: Decided = fit.decided
        return made

    def rows(self, ids: Addresses) -> Decisions:
        """For each row of integers."""
        count, fit = len(ids), self._fit
        gathered = np.zeros((count, len(fit.places)), np.int64)
        numbers = np.zeros((count, len(self._selection.numbers)))
        found = np.full(count, BEYOND_BITS, np.int64)
        if self.decider is not None:
            ids = np.ascontiguousarray(ids)
            self.decider.decide_rows(ids, gathered, numbers, found)
        for k in np.flatnonzero(found == BEYOND_BITS).tolist():
            decided = self._selection.decide(ids[k].tolist())
            chosen = None if decided is None else fit.gathered(decided[0])
            found[k] = ANOTHER_PATH if chosen is None else KNOWN
            if decided is not None and chosen is not None:
                gathered[k], numbers[k] = chosen, decided[1]
        return Decisions(found == KNOWN, gathered, numbers)
