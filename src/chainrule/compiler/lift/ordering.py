"""Reorders a program so that what a shorter call computes is a prefix of every instruction.

Machine code serves a shorter call if the call does a prefix of every instruction. That fails where
nodes of one shape come from several places of a function, such as the queries of all positions and
then the keys of all positions: the short call's queries are followed by the long call's other
queries, not by keys. In: the groups of a shorter recording and the program of a longer one. Out:
``Beside``, which finds each node's image in the longer program by operation and operands, and
``Pieces``, instructions split or reordered so that nodes with an image come first. Both are only a
proposal: the programs are compared column by column afterwards.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.graph import (
    CONSTANT,
    EXTREME,
    GATHER,
    INPUT,
    RULE,
    Graph,
    NotLiftable,
)
from chainrule.compiler.lift.hashing import Hashes, scrambled
from chainrule.compiler.lift.program import Addresses, Group, Instruction, Key, Program, ranges
from chainrule.compiler.lift.strides import iteration_space

FEW_PIECES = 4  # at most so many growing sums become an instruction each
MOST = 400  # instructions that the longer program is split into

_NUMBER = -2  # the image of a constant: any constant


@dataclass(frozen=True, eq=False)
class Beside:
    """The program of a longer call, and where a shorter one's inputs and integers are in it."""

    longer: Program
    inputs: Addresses  # the address of each input
    slots: Addresses  # per operand that depends on an integer: which of the longer call's, or -1

    def groups(self, graph: Graph, groups: list[Group]) -> list[Group]:
        """The nodes by the instructions of the longer program, in its order."""
        image = self.images(graph, groups)
        nodes = np.concatenate([np.zeros(0, np.int64), *(g.nodes for g in groups)])
        nodes = nodes[np.argsort(image[nodes], kind="stable")]
        made = [i for i in self.longer.instructions if not i.is_copy]
        parts = np.split(nodes, np.searchsorted(image[nodes], [i.start for i in made])[1:])
        if not all(map(len, parts)):
            raise NotLiftable("another length lacks an operation")
        return [
            Group(i.key, part, 0, self._orders(graph, i, part, image) if i.reordered else None)
            for i, part in zip(made, parts, strict=True)
        ]

    def images(self, graph: Graph, groups: list[Group]) -> Addresses:
        """The address of every node in the longer program; NotLiftable where one has none."""
        made = np.full(len(graph), _NUMBER, np.int64)
        inputs = graph.kinds == INPUT
        made[inputs] = self.inputs[graph.origin[inputs]]
        there: dict[int, list[Instruction]] = {}
        for instruction in self.longer.instructions:
            there.setdefault(instruction.key[0], []).append(instruction)
        here: dict[int, list[Addresses]] = {}
        for group in groups:
            here.setdefault(group.key[0], []).append(group.nodes)
        for shape, parts in here.items():
            nodes = np.concatenate(parts)
            nodes = nodes[np.lexsort((nodes, graph.origin[nodes]))]
            chosen = there.get(shape, [])
            found = self._matched(graph, nodes, chosen, made) if chosen else None
            if found is None or (found < 0).any():
                raise NotLiftable("another length does other operations")
            made[nodes] = np.concatenate([i.out for i in chosen])[found]
        return made

    def _matched(
        self, graph: Graph, nodes: Addresses, there: list[Instruction], image: Addresses
    ) -> Addresses:
        """For each node, which result of some instructions has the same operands; -1: none."""
        kind = graph.kinds[nodes[0]]
        if kind == GATHER:
            slots, others = self.slots[graph.places_of(nodes)], _joined([i.slots for i in there])
            if (slots < 0).any() or (others < 0).any():  # in order
                slots, others = np.zeros_like(slots), np.zeros_like(others)
            return _found(_hash(slots), _hash(others))
        if kind == RULE:
            at = graph.plain_at[nodes]
            operands = range(len(there[0].operands))
            return _found(
                _hash(*[image[graph.plains[at + j]] for j in operands]),
                _hash(*[self._seen(_joined([i.operands[j] for i in there])) for j in operands]),
            )
        mine = _Sums.of(_terms_of(graph, nodes, image), len(nodes), every=False)
        theirs = _Sums.joined([self._sums(i) for i in there])
        found = _found(mine.whole, theirs.whole)
        # Sums that grow have more terms in the longer program: match them by their first terms.
        rest = np.flatnonzero(found < 0)
        left = np.flatnonzero(~np.isin(theirs.owners, found))
        if len(rest) and len(left):
            heads = np.zeros(len(nodes), np.uint64)
            heads[mine.owners[::-1]] = mine.heads[::-1]  # a product, where there is one
            again = _found(heads[rest], theirs.heads[left])
            found[rest] = np.where(again < 0, -1, theirs.owners[left[again]])
        return found

    def _orders(
        self, graph: Graph, i: Instruction, nodes: Addresses, image: Addresses
    ) -> tuple[Addresses, Addresses]:
        """The order of the terms of sums in the longer program."""
        made = [np.zeros(0, np.int64)] * 2
        here = _terms_of(graph, nodes, image)
        for k, ((columns, owners), terms) in enumerate(
            zip(here, (i.products, i.plains), strict=True)
        ):
            if terms is None:
                continue
            place = _found(
                _hash(image[nodes][owners], _sum_of(columns)),
                _hash(terms.owners, _sum_of([self._seen(c) for c in terms.columns])),
            )
            if (place < 0).any():
                raise NotLiftable("another length adds up something else")
            made[k] = np.argsort(place)
        return made[0], made[1]

    def _seen(self, column: Addresses) -> Addresses:
        """Addresses of the longer program, copies replaced by their sources."""
        return self._origin[column]

    @functools.cached_property
    def _origin(self) -> Addresses:
        """Per address of the longer program: itself, or what it is a copy of."""
        made = np.arange(self.longer.size)
        made[self.longer.inputs : self.longer.shared] = _NUMBER
        for i in self.longer.instructions:
            if i.is_copy and i.plains is not None:
                made[i.out] = made[i.plains.columns[0]]
        return made

    def _sums(self, i: Instruction) -> _Sums:
        parts = [
            ([self._seen(c) for c in terms.columns], terms.owners - i.start)
            for terms in (i.products, i.plains)
            if terms is not None
        ]
        return _Sums.of(parts, i.count, every=i.reordered)


SumTerms = tuple[
    list[Addresses], Addresses
]  # the columns of some terms, and the sums they belong to


def _terms_of(graph: Graph, nodes: Addresses, numbers: Addresses) -> tuple[SumTerms, SumTerms]:
    """The products of some sums, and their plain terms, with numbers instead of nodes."""
    made = []
    for ends, table in (
        (graph.product_at, graph.products),
        (graph.plain_at, graph.plains[:, None]),
    ):
        counts = np.diff(ends)[nodes]
        chosen = table[ranges(ends[nodes], counts)]
        owners = np.repeat(np.arange(len(nodes)), counts)
        made.append(([numbers[column] for column in chosen.T], owners))
    return made[0], made[1]


class _Sums(NamedTuple):
    """Hashes of some sums: of all terms of each; and of its first term, or each that may be."""

    whole: Hashes
    heads: Hashes
    owners: Addresses  # of the heads

    @classmethod
    def of(cls, parts: Sequence[SumTerms], count: int, every: bool) -> _Sums:
        """``every``: the terms may have been reordered, so any may have been the first."""
        whole, heads, owners = np.zeros(count, np.uint64), [], []
        for columns, of in parts:
            terms = _hash(_sum_of(columns), np.full(len(of), len(columns)))
            np.add.at(whole, of, terms)
            chosen = slice(None) if every else np.unique(of, return_index=True)[1]
            heads.append(terms[chosen])
            owners.append(of[chosen])
        return cls(whole, np.concatenate(heads), np.concatenate(owners))

    @classmethod
    def joined(cls, some: Sequence[_Sums]) -> _Sums:
        """Those of several instructions."""
        before = np.cumsum([0, *(len(x.whole) for x in some)])
        return cls(
            np.concatenate([x.whole for x in some]),
            np.concatenate([x.heads for x in some]),
            np.concatenate([x.owners + n for x, n in zip(some, before[:-1], strict=True)]),
        )


def _sum_of(columns: Sequence[Addresses]) -> Addresses:
    """A hash of each term, whatever the order of its factors."""
    made = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        made += _hash(column)
    return made.view(np.int64)


def _hash(*columns: Addresses) -> Hashes:
    made = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        made = scrambled(made * np.uint64(3) + column.astype(np.uint64) + np.uint64(11))
    return made


def _joined(columns: list[Addresses | None]) -> Addresses:
    return np.concatenate([c for c in columns if c is not None])


def _found(mine: Hashes, theirs: Hashes) -> Addresses:
    """Where each of mine is among theirs, or -1; the second of two equals is at the second."""
    mine, theirs = scrambled(mine + _occurrence(mine)), scrambled(theirs + _occurrence(theirs))
    order = np.argsort(theirs)
    at = np.minimum(np.searchsorted(theirs[order], mine), len(theirs) - 1)
    return np.where(theirs[order[at]] == mine, order[at], -1)


def _occurrence(keys: Hashes) -> Hashes:
    """Per key: how many equal keys come before it."""
    order = np.argsort(keys, kind="stable")
    new = np.append(True, keys[order][1:] != keys[order][:-1])
    made = np.zeros(len(keys), np.uint64)
    made[order] = np.arange(len(keys)) - np.flatnonzero(new)[np.cumsum(new) - 1]
    return made


@dataclass(frozen=True, eq=False)
class Pieces:
    """How the instructions of a program are split and reordered."""

    plain: Program
    members: dict[Key, list[Addresses]]
    reordered: frozenset[Key]  # instructions whose sums have reordered terms too
    births: Addresses  # per address of the plain program: the last integer it depends on

    @classmethod
    def of(cls, beside: Beside, graph: Graph, groups: list[Group], born: Addresses) -> Pieces:
        """A reordering that puts the shorter recording first; NotLiftable if it changes nothing.

        ``born``: of the longer call's integers and what is computed from them, the last needed.
        """
        plain = beside.longer
        image = beside.images(graph, groups)
        done = np.flatnonzero(graph.kinds > CONSTANT)
        present = np.zeros(plain.size, np.bool_)
        present[image[done]] = True
        terms = np.zeros((plain.size, 2), np.int64)
        terms[image[done], 0] = np.diff(graph.product_at)[done]
        terms[image[done], 1] = np.diff(graph.plain_at)[done]
        grows = np.zeros(plain.size, np.bool_)
        for i in plain.instructions:
            grows[i.out] = _grows(i, present[i.out], terms[i.out])
        births = _births(plain, grows, born)
        members: dict[Key, list[Addresses]] = {}
        reordered: set[Key] = set()
        for i in plain.instructions:
            if i.is_copy:
                continue
            few = i.count <= FEW_PIECES and bool(grows[i.out].any())
            pieces = _arranged(present[i.out], births[i.out], grows[i.out] & few)
            if len(pieces) > 1 or (np.diff(pieces[0]) != 1).any():
                members[i.key] = pieces
            if grows[i.out].any() and _is_reordered(i, births, few):
                reordered.add(i.key)
        if not members and not reordered:
            raise NotLiftable("another length differs")
        if len(plain.instructions) + sum(map(len, members.values())) > MOST:
            raise NotLiftable("another length differs in too many places")
        return cls(plain, members, frozenset(reordered), births)

    def groups(self, graph: Graph, groups: list[Group]) -> list[Group]:
        """The groups of the longer recording itself, split and reordered."""
        births = np.full(len(graph), -1, np.int64)
        inputs = np.flatnonzero(graph.kinds == INPUT)
        own = inputs[self.plain.private]
        births[own] = self.births[self.plain.shared + np.arange(len(own))]
        starts = {i.key: i.start for i in self.plain.instructions}
        for g in groups:
            births[g.nodes] = self.births[starts[g.key] + np.arange(len(g.nodes))]
        made: list[Group] = []
        for g in groups:
            pieces = self.members.get(g.key, [np.arange(len(g.nodes))])
            for k, members in enumerate(pieces):
                key = (*g.key, ~k) if len(pieces) > 1 else g.key
                nodes, orders = g.nodes[members], None
                if g.key in self.reordered:
                    products, plains = _terms_of(graph, nodes, births)
                    orders = (_in_order(products[0]), _in_order(plains[0]))
                made.append(Group(key, nodes, g.stage, orders))
        return made


def _grows(
    i: Instruction, present: npt.NDArray[np.bool_], terms: Addresses
) -> npt.NDArray[np.bool_]:
    """The sums of an instruction that have more terms than in a shorter call."""
    found = np.zeros(i.count, np.bool_)
    for k, more in enumerate((i.products, i.plains)):
        if more is not None:
            counts = np.bincount(more.owners - i.start, minlength=i.count)
            found |= present & (terms[:, k] != counts)
    return found | (~present & found[present].all()) if found.any() else found


def _births(program: Program, grows: npt.NDArray[np.bool_], born: Addresses) -> Addresses:
    """Per number: the last integer it depends on; of a growing sum, that of its first term."""
    births = np.full(program.size, -1, np.int64)
    end = program.shared + len(program.private)
    births[end - len(born) : end] = born
    for i in program.instructions:
        if i.slots is not None:
            births[i.out] = i.slots
        for column in i.operands:
            births[i.out] = np.maximum(births[i.out], births[column])
        first, last = np.full(i.count, len(born)), births[i.out]
        for terms in (i.products, i.plains):
            if terms is not None:
                each = _latest([births[c] for c in terms.columns])
                owners = terms.owners - i.start
                np.maximum.at(last, owners, each)
                np.minimum.at(first, owners, each)
        births[i.out] = np.where(grows[i.out], first, last)
    return births


def _latest(births: Sequence[Addresses]) -> Addresses:
    """The last integer that each term depends on through any of its factors."""
    return np.maximum(births[0], births[-1])


def _in_order(births: Sequence[Addresses]) -> Addresses:
    return np.argsort(_latest(births), kind="stable")


def _is_reordered(i: Instruction, births: Addresses, few: bool) -> bool:
    """Whether the terms of growing sums have to be reordered."""
    wanted = i.count > 1 and not few
    for terms in (i.products, i.plains):
        if terms is None:
            continue
        each = _latest([births[c] for c in terms.columns])
        broken = (np.diff(each) < 0) & (np.diff(terms.owners) == 0)
        if broken.any() and i.kind == EXTREME:
            raise NotLiftable("another length differs in an extreme")  # the first of equals counts
        wanted = wanted or bool(broken.any())
    return wanted


def is_regular(arranged: Program, plain: Program) -> bool:
    """Whether the reordered program has about as few rows of loops as the plain one."""
    return _rows(arranged) <= 2 * _rows(plain) + 8


def _rows(program: Program) -> int:
    """How many rows the iteration spaces of all columns have."""
    found = 0
    for i in program.instructions:
        columns = [[i.out, *i.columns]]
        columns += [[t.owners, *t.columns] for t in (i.products, i.plains) if t is not None]
        found += sum(iteration_space(c).rows for c in columns)
    return found


def _arranged(
    present: npt.NDArray[np.bool_], births: Addresses, ends: npt.NDArray[np.bool_]
) -> list[Addresses]:
    """Members of an instruction by birth, split where a shorter call's are not a prefix."""
    made = []
    for order in (np.arange(len(births)), np.argsort(births, kind="stable")):
        there = present[order]
        cuts = (there[1:] & ~there[:-1]) | ends[order][:-1]
        made.append(np.split(order, np.flatnonzero(cuts) + 1))
    return min(made, key=len)
