"""Where machine code has the numbers of a program, and in which order.

In: a ``Program`` as it was lifted. Out: a ``Placement``: the same program over other addresses, and
where everything went. Results begin on a whole vector, so that rows of them do not lie across cache
lines. And where an instruction has sums of many lengths, several of each (the heads of causal
attention: as many sums at each position), their terms are stored across: the first terms of all
sums of one length side by side, then the second ones, so that these sums are lanes of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainrule.compiler.lift.graph import RULE, SUM
from chainrule.compiler.lift.program import (
    Addresses,
    Instruction,
    Program,
    Terms,
    address_type,
    moved,
)

LINE = 16  # numbers that every instruction's results begin at a multiple of
FEWEST = 16  # results that are worth it
MOST_EACH = 4  # terms of sums that are added up elementwise
MOST_ACROSS = 16  # sums side by side: no vector has more lanes

Order = Addresses  # of points: which comes first, which second


@dataclass(frozen=True, eq=False)
class Placement:
    """A program for machine code, and where it has what the lifted program has elsewhere."""

    program: Program
    to: Addresses  # the place of each address of the lifted program
    orders: dict[tuple[int, str], Order]  # of the results or terms that have another order

    def after(self, to: Addresses) -> Addresses:
        """Where addresses go that go to these of the lifted program; -1 stays -1."""
        return moved(to, self.to)

    def keeps(self, instruction: int, what: str, points: int) -> bool:
        """Whether the first points of the lifted program are the first ones here too."""
        order = self.orders.get((instruction, what))
        return order is None or not points or int(order[:points].max()) < points


def placed(program: Program, in_order: bool = False) -> Placement:
    """The program as machine code computes it; ``in_order``: with all results in their order."""
    if program.loops or program.steps is not None:
        return Placement(program, np.arange(program.size), {})
    across = {} if in_order else _across(program)
    # between two instructions there is less than a line
    kind: Any = address_type(program.size + LINE * len(program.instructions))
    to: Addresses = np.arange(program.size, dtype=kind)
    at = len(program.private)
    starts = []
    for k, instruction in enumerate(program.instructions):
        if instruction.count >= FEWEST:
            at = -(-at // LINE) * LINE
        starts.append(program.shared + at)
        begin, end = instruction.start, instruction.start + instruction.count
        there = np.arange(starts[-1], starts[-1] + instruction.count, dtype=kind)
        if k in across:
            to[instruction.out[across[k]]] = there
        else:
            to[begin:end] = there
        at += instruction.count
    orders: dict[tuple[int, str], Order] = {(k, "out"): order for k, order in across.items()}
    instructions = [
        _moved(program, k, starts[k], to, across, orders) for k in range(len(program.instructions))
    ]
    made = replace(
        program,
        size=program.shared + at,
        instructions=instructions,
        address=moved(program.address, to),
        guards=to[program.guards],
    )
    return Placement(made, to, orders)


def _moved(
    program: Program,
    k: int,
    start: int,
    to: Addresses,
    across: dict[int, Order],
    orders: dict[tuple[int, str], Order],
) -> Instruction:
    """An instruction over the new addresses; adds the orders of its terms to ``orders``."""
    old = program.instructions[k]
    order = across.get(k)

    def at(column: Addresses, order: Order | None) -> Addresses:
        return to[column if order is None else column[order]]

    made = replace(
        old,
        start=start,
        operands=[at(c, order) for c in old.operands],
        number=None if old.number is None else at(old.number, order),
        candidates=None if old.candidates is None else to[old.candidates],
    )
    for what in ("products", "plains", "scaled"):
        terms: Terms | None = getattr(old, what)
        if terms is None:
            continue
        chosen, each = None, terms.each
        if k in across:
            chosen = np.argsort(to[terms.owners], kind="stable")
        elif (blocks := _blocks(old, terms)) is not None and _reads(program, terms, across):
            chosen, each, made.reordered = blocks.order(), 0, True
        if chosen is not None and (np.diff(chosen) != 1).any():
            orders[k, what] = chosen
        columns = tuple([at(c, chosen) for c in terms.columns])
        setattr(made, what, Terms(at(terms.owners, chosen), columns, each))
    return made


def _reads(program: Program, terms: Terms, across: dict[int, Order]) -> bool:
    """Whether these terms are stored across."""
    stored = [program.instructions[k] for k in across]
    return any(i.start <= column[0] < i.start + i.count for column in terms.columns for i in stored)


# --- sums side by side ----------------------------------------------------------------------------


def _across(program: Program) -> dict[int, Order]:
    """The instructions whose results are stored across, and the order of these."""
    whole = _Whole(program)
    links: dict[int, list[int]] = {}
    found: dict[int, Order] = {}
    for k, instruction in enumerate(program.instructions):
        for column in _elementwise(instruction):
            other = whole.of(column)
            if other is not None:
                links.setdefault(k, []).append(other)
                links.setdefault(other, []).append(k)
        for terms in instruction.sums:
            blocks = _blocks(instruction, terms)
            if blocks is None or blocks.height > MOST_ACROSS:
                continue
            for other in filter(None, map(whole.of, terms.columns)):
                found.setdefault(other, blocks.order())
    waiting = list(found)
    while waiting:  # what has as many results, one from each, is in the same order
        k = waiting.pop()
        for other in links.get(k, ()):
            if other not in found:
                found[other] = found[k]
                waiting.append(other)
    return found


class _Whole:
    """Finds the instruction whose results a column is, all of them in order."""

    def __init__(self, program: Program) -> None:
        some = enumerate(program.instructions)
        self._counts = {i.start: (k, i.count) for k, i in some if i.kind in (RULE, SUM)}

    def of(self, column: Addresses) -> int | None:
        k, count = self._counts.get(int(column[0]), (None, 0))
        if count != len(column) or int(column[-1] - column[0]) != count - 1:
            return None
        return k if bool((np.diff(column) == 1).all()) else None


def _elementwise(instruction: Instruction) -> list[Addresses]:
    """The columns of which each result reads one."""
    if instruction.kind == RULE:
        return instruction.operands
    terms = instruction.plains
    if instruction.kind != SUM or terms is None or not 0 < terms.each <= MOST_EACH:
        return []
    table = terms.columns[0].reshape(-1, terms.each)
    return [table[:, j] for j in range(terms.each)]


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Sums of many lengths: some of one length, as many of another, and so on."""

    height: int  # how many have the same length, at least
    lengths: Addresses  # of each so many sums

    def order(self) -> Order:
        """The first terms of these sums, the second ones, and so on, for each so many sums."""
        first = np.cumsum(self.height * self.lengths) - self.height * self.lengths
        parts = [
            start + np.arange(self.height * length).reshape(self.height, length).T.ravel()
            for start, length in zip(first.tolist(), self.lengths.tolist(), strict=True)
        ]
        return np.concatenate(parts)


def _blocks(instruction: Instruction, terms: Terms) -> _Blocks | None:
    """The blocks of sums of one length; None where there are no such, or all have one."""
    if terms.each or instruction.reordered:
        return None
    lengths = np.bincount(terms.owners - instruction.start, minlength=instruction.count)
    ends = np.append(np.flatnonzero(np.diff(lengths)) + 1, len(lengths))
    height = int(np.gcd.reduce(np.diff(ends, prepend=0)))
    return _Blocks(height, lengths[::height]) if height > 1 and len(ends) > 1 else None
