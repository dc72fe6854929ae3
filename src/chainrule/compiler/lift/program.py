"""The array program: instructions over a flat arena of numbers.

The arena holds the numbers that all samples share (inputs, constants), then each sample's own
(inputs, results). An operand of an instruction is a column of addresses, one for each of its
results; the terms of its sums are columns too. ``str(program)`` prints it, an instruction per line;
``program.verify()`` checks the order; ``interpreter.run`` is its meaning.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM, NotLiftable
from chainrule.core.ops import Op

Addresses = npt.NDArray[np.int64]  # or of int32, where ``address_type`` says so
PART = 1 << 16  # addresses that are looked at together
NARROW = 1 << 26  # addresses that fit into 32 bits, also times the lanes of machine code


def address_type(size: int) -> type[np.signedinteger[Any]]:
    """The integers for addresses below ``size``: very many of them are kept."""
    return np.int32 if size < NARROW else np.int64


def moved(addresses: npt.NDArray[np.signedinteger[Any]], to: Addresses) -> Addresses:
    """``to`` of each address, and -1 of -1.

    In pieces: what is computed of millions at once is memory that the system has to clear first.
    """
    found: Addresses = np.empty(len(addresses), to.dtype)
    for k in range(0, len(addresses), PART):
        some = addresses[k : k + PART]
        found[k : k + PART] = np.where(some < 0, -1, to[some])
    return found


def distinct(addresses: Addresses) -> Addresses:
    """The different ones, in order: ``np.unique`` in linear time, as addresses lie close."""
    if len(addresses) < 2 or (np.diff(addresses) > 0).all():
        return addresses
    low, high = int(addresses.min()), int(addresses.max())
    if high - low > 8 * len(addresses):
        return np.unique(addresses)
    seen = np.zeros(high - low + 1, np.bool_)
    seen[addresses - low] = True
    return np.flatnonzero(seen) + low


Key = tuple[int, ...]  # a shape, and the number of terms where that separates sums of one shape
SHORT = 4  # sums of at most so many terms are added up elementwise in a program with steps
COPY = 1 << 97  # above any shape; added once for copies of some terms, twice for all of them


#: permutations of the products and of the plain terms of some sums; None: sum after sum
Orders = tuple[Addresses, Addresses] | None


class Group(NamedTuple):
    """Nodes of one shape and stage, in the order of the recording unless they were reordered."""

    key: Key
    nodes: Addresses
    stage: int
    orders: Orders = None  # of the terms of its sums


@dataclass
class Terms:
    """The terms of sums in one row: those of the first sum, then of the second, and so on.

    Unless they were reordered so that the terms of shorter calls come first.
    """

    owners: Addresses  # the sum that each term belongs to
    columns: tuple[Addresses, ...]  # one of plain terms, two of products, three of scaled ones
    each: int  # how many terms every sum has; 0 where that differs or the terms are reordered

    def __len__(self) -> int:
        return len(self.owners)

    def side_by_side(self) -> Terms:
        """The terms sum after sum, whatever their order is here."""
        if self.each:
            return self
        order = np.argsort(self.owners, kind="stable")
        _, counts = np.unique(self.owners, return_counts=True)
        each = int(counts[0]) if (counts == counts[0]).all() else 0
        return Terms(self.owners[order], tuple([c[order] for c in self.columns]), each)

    def row(self, k: int, count: int) -> Terms:
        """The terms of iteration ``k`` of ``count``."""
        columns = tuple([c.reshape(count, -1)[k] for c in self.columns])
        return Terms(self.owners.reshape(count, -1)[k], columns, self.each)


@dataclass
class Instruction:
    """One operation on many numbers; the results have addresses from ``start``."""

    key: Key
    kind: int
    start: int
    count: int
    rule: Op | None = None
    parameters: tuple[float, ...] = ()
    operands: list[Addresses] = field(default_factory=list)
    number: Addresses | None = None  # addresses of the plain numbers that are second operands
    products: Terms | None = None
    plains: Terms | None = None
    scaled: Terms | None = None  # products of two factors and a plain number, which comes first
    places: Addresses | None = None  # gather: which of the operands that depend on integers
    slots: Addresses | None = None  # gather: the integer that was seen to select, or -1
    candidates: Addresses | None = None  # gather: every address that it may select
    loop: int | None = None  # the loop in time that does a slice of it in each iteration
    ends: int | None = None  # the loop in time whose last iteration it copies
    reordered: bool = False  # the terms of its sums are not sum after sum
    is_exact: bool = False  # what it reads has the very bits that eager's has, in float64

    @property
    def out(self) -> Addresses:
        """The addresses of the results."""
        return np.arange(self.start, self.start + self.count)

    @property
    def is_copy(self) -> bool:
        """Whether it copies the terms of a maximum so that they are regular."""
        return self.key[0] >= COPY

    @property
    def columns(self) -> list[Addresses]:
        """The operands of a rule, including plain numbers."""
        return self.operands if self.number is None else [*self.operands, self.number]

    @property
    def reads(self) -> list[Addresses]:
        """Every column that it reads, for a gather all that it may select."""
        columns = list(self.columns) if self.candidates is None else [self.candidates]
        for terms in self.sums:
            columns += list(terms.columns)
        return columns

    @property
    def all_columns(self) -> list[npt.NDArray[Any]]:
        """All of its arrays."""
        rows: list[npt.NDArray[Any]] = list(self.operands)
        rows += [column for t in self.sums for column in (t.owners, *t.columns)]
        return rows + [
            x for x in (self.number, self.places, self.slots, self.candidates) if x is not None
        ]

    @property
    def sums(self) -> list[Terms]:
        """The terms of its sums."""
        return [t for t in (self.products, self.scaled, self.plains) if t is not None]

    @property
    def is_short(self) -> bool:
        """Whether all of its sums have the same few terms."""
        each = [terms.each for terms in self.sums]
        return all(each) and sum(each) <= SHORT

    @property
    def name(self) -> str:
        """The rule's name, or its kind."""
        kinds = {SUM: "sum", EXTREME: "extreme", GATHER: "gather"}
        return self.rule.name if self.rule is not None else kinds[self.kind]

    def row(self, k: int, count: int) -> Instruction:
        """The slice of it that iteration ``k`` of ``count`` does."""
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

    def part(self, first: int, last: int) -> Instruction:
        """Results ``first`` up to ``last``, of a program with steps."""
        here = slice(first, last)
        return replace(
            self,
            start=self.start + first,
            count=last - first,
            operands=[c[here] for c in self.operands],
            number=None if self.number is None else self.number[here],
            products=_between(self.products, self.start + first, self.start + last),
            plains=_between(self.plains, self.start + first, self.start + last),
            scaled=_between(self.scaled, self.start + first, self.start + last),
        )

    def verify(self) -> None:
        """Raise AssertionError unless its columns fit each other."""
        assert self.count > 0
        assert self.reads, "it reads nothing"
        if self.kind == GATHER:
            assert self.places is not None
            assert len(self.places) == self.count
        assert all(len(column) == self.count for column in self.columns)
        for terms in self.sums:
            assert all(len(column) == len(terms) for column in terms.columns)
            owners = terms.owners - self.start
            assert ((owners >= 0) & (owners < self.count)).all()
            if not self.reordered:
                assert (np.diff(owners) >= 0).all(), "terms are not sum after sum"
                each = np.bincount(owners, minlength=self.count)
                assert (each == terms.each).all() == bool(terms.each)

    def __str__(self) -> str:
        kinds = (self.products, "products"), (self.scaled, "scaled"), (self.plains, "terms")
        sizes = [f"{len(terms)} {word}" for terms, word in kinds if terms]
        return f"[{self.start}:{self.start + self.count}] = {self.name} {' '.join(sizes)}"


@dataclass(frozen=True)
class Repeat:
    """A loop in time: ``count`` iterations, each doing a slice of instructions ``first:last``.

    They read results of up to ``reach`` iterations before; those of iterations -1, -2 and so on
    have the addresses in front of an instruction's results.
    """

    count: int
    first: int
    last: int
    reach: int
    period: int = 0  # recorded instructions in each


@dataclass
class Program:
    """An array program over one arena."""

    inputs: int
    private: Addresses  # the inputs of which each sample has its own
    constants: npt.NDArray[np.float64]
    size: int
    instructions: list[Instruction]
    address: Addresses  # of each recorded instruction, -1 where it was absorbed
    guards: Addresses
    expected: npt.NDArray[np.float64]
    loops: tuple[Repeat, ...] = ()
    fixed: int = 0  # how many of the private inputs, the last ones, need no derivative
    needed: int | None = None  # how many inputs, the first ones, need one where they are shared
    arranged: bool = False  # reordered so that a shorter call is a prefix of it
    ended: bool = False  # likewise, with copies of the last iterations of loops in time
    sorts: bool = False  # likewise, and what a sum has the fewest terms of comes first
    #: (instruction, first, last): the slices of results in the order in which they are computed;
    #: None: whole instructions, in their order
    steps: Addresses | None = None

    def __str__(self) -> str:
        lines = [("    " if i.loop is not None else "") + str(i) for i in self.instructions]
        if self.steps is not None:
            lines.insert(0, f"in {len(self.steps)} steps:")
        for loop in reversed(self.loops):
            lines.insert(loop.first, f"{loop.count} times:")
        return "\n".join(lines)

    @property
    def shared(self) -> int:
        """Where the shared numbers end: inputs, with gaps for the private ones, and constants."""
        return self.inputs + len(self.constants)

    @property
    def nbytes(self) -> int:
        """The memory of its columns."""
        return sum(column.nbytes for column in self.columns)

    @property
    def columns(self) -> list[npt.NDArray[Any]]:
        """All of its arrays."""
        rows: list[npt.NDArray[Any]] = [
            self.private,
            self.constants,
            self.address,
            self.guards,
            self.expected,
        ]
        return rows + [column for i in self.instructions for column in i.all_columns]

    @property
    def work(self) -> int:
        """How many numbers it computes or adds up, for one sample."""
        return sum(i.count + sum(map(len, i.sums)) for i in self.instructions)

    @property
    def places(self) -> Addresses:
        """The operands that depend on integers, in the order of the gathers."""
        found = [i.places for i in self.instructions if i.places is not None]
        return np.concatenate([np.zeros(0, np.int64), *found])

    def verify(self) -> None:
        """Raise AssertionError unless every number is computed once, and before it is read."""
        assert ((self.address >= -1) & (self.address < self.size)).all()
        assert len(self.guards) == len(self.expected)
        assert (np.diff(self.private) > 0).all()
        assert ((self.private >= 0) & (self.private < self.inputs)).all()
        first = self.shared + len(self.private)
        written = np.zeros(self.size, np.int64)
        for instruction in self.instructions:
            instruction.verify()
            assert instruction.start >= first, "a result has the address of an input"
            written[instruction.out] += 1
            read = np.concatenate(instruction.reads)
            assert ((read >= 0) & (read < self.size)).all()
            assert not np.isin(read, self.private).any(), "a private input is read as a shared one"
            if instruction.candidates is not None:
                before = (read < first) | (written[read] > 0)
                late = self.steps is None and not before.all()
                assert not late, "a gather comes before what it may select"
        assert (written <= 1).all(), "two instructions write one address"
        assert self.loops or written[first:].all(), "an address is not written"
        try:
            self.check_order()
        except NotLiftable as error:
            raise AssertionError(str(error)) from None

    def _check_steps(self, steps: Addresses) -> None:
        """NotLiftable unless every number is computed in an earlier step than it is read in."""
        starts = np.array([i.start for i in self.instructions])
        when = np.full(self.size, -1, np.int64)
        sizes = steps[:, 2] - steps[:, 1]
        when[ranges(starts[steps[:, 0]] + steps[:, 1], sizes)] = np.arange(len(steps)).repeat(sizes)
        for instruction in self.instructions:
            now = when[instruction.out]
            assert (now >= 0).all(), "a result has no step"
            readers = [(column, now) for column in instruction.columns]
            for terms in instruction.sums:
                readers += [(column, when[terms.owners]) for column in terms.columns]
            if instruction.candidates is not None:
                readers.append((instruction.candidates, np.full(1, now.min())))
            if any((when[column] >= step).any() for column, step in readers):
                raise NotLiftable("a step reads what comes later")

    def check_order(self) -> None:
        """NotLiftable unless every number is computed before it is read."""
        if self.steps is not None:
            self._check_steps(self.steps)
            return
        made = np.full(self.size, -1, np.int64)  # by which instruction
        when = np.zeros(self.size, np.int64)  # in which iteration of its loop
        for k, instruction in enumerate(self.instructions):
            made[instruction.out] = k
            if instruction.loop is not None:
                count = self.loops[instruction.loop].count
                when[instruction.out] = np.arange(count).repeat(instruction.count // count)
        for k, instruction in enumerate(self.instructions):
            for column in instruction.reads if instruction.candidates is None else ():
                late = made[column] >= k
                if instruction.loop is not None:
                    loop = self.loops[instruction.loop]
                    now = np.arange(loop.count).repeat(len(column) // loop.count)
                    same = (made[column] >= loop.first) & (made[column] < loop.last)
                    late = np.where(same & (when[column] != now), when[column] > now, late)
                results = column[column >= self.shared + len(self.private)]
                if late.any() or (made[results] < 0).any():
                    raise NotLiftable("a loop reads what comes later")


def _between(terms: Terms | None, first: int, last: int) -> Terms | None:
    """The terms of the sums at these addresses."""
    if terms is None:
        return None
    here = slice(*np.searchsorted(terms.owners, [first, last]))
    if here.start == here.stop:
        return None
    return replace(
        terms, owners=terms.owners[here], columns=tuple([c[here] for c in terms.columns])
    )


def ranges(starts: npt.NDArray[Any], counts: npt.NDArray[Any]) -> Addresses:
    """starts[0], starts[0] + 1, ... (counts[0] of them), starts[1], ..."""
    ends = np.cumsum(counts)
    return np.repeat(starts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)


class Makers:
    """Which instruction of a program makes the number at an address: results lie side by side."""

    def __init__(self, program: Program) -> None:
        starts = np.array([i.start for i in program.instructions], np.int64)
        self._order = np.argsort(starts, kind="stable")
        self._starts = starts[self._order]
        counts = np.array([i.count for i in program.instructions], np.int64)
        self._ends = self._starts + counts[self._order]

    def one(self, addresses: Addresses) -> int | None:
        """The instruction that makes all of these numbers; -1: none; None: several do."""
        if not len(addresses) or addresses.max() < self._starts[0]:
            return -1
        low, high = self.all(np.array([addresses.min(), addresses.max()])).tolist()
        if low == high >= 0:
            return int(low)
        if low != high or (self.all(addresses) >= 0).any():
            return None
        return -1

    def all(self, addresses: Addresses) -> Addresses:
        """The instruction that makes each number, or -1."""
        place = np.searchsorted(self._starts, addresses, side="right") - 1
        inside = (place >= 0) & (addresses < self._ends[place])
        return np.where(inside, self._order[place], -1)
