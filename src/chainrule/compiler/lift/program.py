"""The array program: instructions over a flat arena of numbers.

The arena holds what all samples share (inputs, constants), then what each has of its own (inputs,
results). An operand of an instruction is a column of addresses, one for each of its results; the
terms of its sums are columns, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM
from chainrule.core.ops import Op

Addresses = npt.NDArray[np.int64]
Key = tuple[int, ...]  # a shape, and the length where sums of one shape are apart
COPY = 1 << 97  # more than any shape: added once, or twice, for copies of some, or all, terms


#: of products and of plain terms: which of them comes first, second, ...; None: sum by sum
Orders = tuple[Addresses, Addresses] | None


class Group(NamedTuple):
    """Nodes of one shape and stage, in the order of the recording unless they were arranged."""

    key: Key
    nodes: Addresses
    stage: int
    orders: Orders = None  # of the terms of its sums


@dataclass
class Terms:
    """The terms of sums, all in one row: those of the first sum, of the second, and so on.

    Or in another order, which was arranged so that those of shorter calls come first.
    """

    owners: Addresses  # the sum that each term belongs to
    columns: tuple[Addresses, ...]  # one of plain terms, two of products
    each: int  # how many terms every sum has; 0 where they differ, or are not side by side

    def __len__(self) -> int:
        return len(self.owners)

    def side_by_side(self) -> Terms:
        """The terms of the first sum, of the second, and so on, however they are arranged."""
        if self.each:
            return self
        order = np.argsort(self.owners, kind="stable")
        _, counts = np.unique(self.owners, return_counts=True)
        each = int(counts[0]) if (counts == counts[0]).all() else 0
        return Terms(self.owners[order], tuple([c[order] for c in self.columns]), each)

    def row(self, k: int, count: int) -> Terms:
        """The terms of one iteration of so many."""
        columns = tuple([c.reshape(count, -1)[k] for c in self.columns])
        return Terms(self.owners.reshape(count, -1)[k], columns, self.each)


@dataclass
class Instruction:
    """One operation over many numbers: results go to ``start`` and on."""

    key: Key
    kind: int
    start: int
    count: int
    rule: Op | None = None
    parameters: tuple[float, ...] = ()
    operands: list[Addresses] = field(default_factory=list)
    number: Addresses | None = None  # where the plain numbers in the second place are
    products: Terms | None = None
    plains: Terms | None = None
    places: Addresses | None = None  # gather: which operand, of those that follow integers
    slots: Addresses | None = None  # gather: the integer that was seen to select, or -1
    candidates: Addresses | None = None  # gather: all of what it may select from
    loop: int | None = None  # of which it is done a slice in each iteration
    reordered: bool = False  # the terms of its sums are not sum by sum, but as they were arranged

    @property
    def out(self) -> Addresses:
        """The addresses of the results."""
        return np.arange(self.start, self.start + self.count)

    @property
    def is_copy(self) -> bool:
        """Whether it copies the terms of a maximum to where they are one loop."""
        return self.key[0] >= COPY

    @property
    def columns(self) -> list[Addresses]:
        """The operands of a rule, plain numbers among them."""
        return self.operands if self.number is None else [*self.operands, self.number]

    @property
    def name(self) -> str:
        """The rule's name, or what kind it is."""
        kinds = {SUM: "sum", EXTREME: "extreme", GATHER: "gather"}
        return self.rule.name if self.rule is not None else kinds[self.kind]

    def row(self, k: int, count: int) -> Instruction:
        """What it does in one iteration of so many."""
        each = self.count // count
        return replace(
            self,
            start=self.start + k * each,
            count=each,
            operands=[c.reshape(count, -1)[k] for c in self.operands],
            number=None if self.number is None else self.number.reshape(count, -1)[k],
            products=None if self.products is None else self.products.row(k, count),
            plains=None if self.plains is None else self.plains.row(k, count),
        )

    def __str__(self) -> str:
        sizes = [
            f"{len(t)} {w}" for t, w in ((self.products, "products"), (self.plains, "terms")) if t
        ]
        return f"[{self.start}:{self.start + self.count}] = {self.name} {' '.join(sizes)}"


@dataclass(frozen=True)
class Repeat:
    """Instructions ``first`` up to ``last`` are done ``count`` times, a slice of each in turn.

    They read what up to ``reach`` iterations before made; of iterations -1, -2 and so on it lies in
    front of an instruction's results.
    """

    count: int
    first: int
    last: int
    reach: int


@dataclass
class Program:
    """An array program over one arena."""

    inputs: int
    private: Addresses  # the inputs that each sample has of its own
    constants: npt.NDArray[np.float64]
    size: int
    instructions: list[Instruction]
    address: Addresses  # of each recorded instruction, -1 where it was absorbed
    guards: Addresses
    expected: npt.NDArray[np.float64]
    loops: tuple[Repeat, ...] = ()
    fixed: int = 0  # the last of the private inputs, of which no derivative is wanted
    arranged: bool = False  # so that shorter calls do the first part of it

    def __str__(self) -> str:
        lines = [("    " if i.loop is not None else "") + str(i) for i in self.instructions]
        for loop in reversed(self.loops):
            lines.insert(loop.first, f"{loop.count} times:")
        return "\n".join(lines)

    @property
    def shared(self) -> int:
        """Where what all samples share ends: inputs, with holes for the private ones; constants."""
        return self.inputs + len(self.constants)

    @property
    def places(self) -> Addresses:
        """The operands that follow integers, in the order in which gathers read them."""
        found = [i.places for i in self.instructions if i.places is not None]
        return np.concatenate([np.zeros(0, np.int64), *found])


def ranges(starts: Addresses, counts: Addresses) -> Addresses:
    """starts[0], starts[0] + 1, ... (counts[0] of them), starts[1], ..."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
