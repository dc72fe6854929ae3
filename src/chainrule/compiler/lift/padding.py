"""The program of the longest call, in which numbers say what a shorter one leaves out.

In: the program of the longest calls, and how much of it shorter ones do. Out: a ``Padded``: the
same program, in which what differs from length to length is a number that each sample has of its
own: constants such as one over the length, and a factor of each term of a sum that a shorter call
adds up less of, one or zero. What a shorter call computes beyond its end goes nowhere, and no
gradient comes back from there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.alignment import Points
from chainrule.compiler.lift.graph import RULE, SUM, NotLiftable
from chainrule.compiler.lift.program import COPY, Addresses, Instruction, Program, Terms
from chainrule.core import ops
from chainrule.trees import Floats


class Length(Protocol):
    """A shorter call in the program of a longer one."""

    @property
    def points(self) -> Points:
        """How many points each walk has, here and in the longer program."""

    @property
    def constants(self) -> Floats:
        """The longer program's constants as they are here."""


@dataclass(frozen=True, eq=False)
class _Factors:
    """The factors of the terms of a sum that is shorter in some lanes."""

    instruction: Instruction
    what: str  # which of its terms
    other: Addresses  # what is multiplied by them
    constants: Addresses | None  # the constants in whose place they are; None: in that of ones
    start: int  # among what is new
    inserted: bool = False  # another instruction does it, before this one

    def __len__(self) -> int:
        return len(self.other)

    def of(self, length: Length, k: int) -> Floats:
        """The factors in a call of this length: zero for terms that are missing in its sums."""
        numbers = np.ones(len(self)) if self.constants is None else length.constants[self.constants]
        return np.where(_missing(length.points, k, self.what, self.instruction), 0.0, numbers)


class Padded:
    """A program for calls of any of these lengths; NotLiftable where that cannot be.

    ``inserting``: it may get further instructions, for sums whose terms are products already.
    """

    def __init__(
        self, program: Program, lengths: Collection[Length], inserting: bool = False
    ) -> None:
        if program.loops and inserting:
            raise NotLiftable("loops in time have their lengths in their code")
        if any(instruction.ends is not None for instruction in program.instructions):
            raise NotLiftable("what the last iteration gave is read, which is another in each lane")
        self.before = program
        self.check_branches(lengths)
        self._constants = np.flatnonzero(
            np.any([_differ(x.constants, program.constants) for x in lengths], axis=0)
        )
        self.size = len(self._constants)  #: how many numbers are new
        self.factors: dict[int, _Factors] = {}
        for k in sorted({k for x in lengths for k in _cut_sums(program, x)}):
            self.factors[k] = made = _factors_of(program, k, self.size, inserting)
            self.size += len(made)
        self.first = program.shared + len(program.private)  #: the address of the first of them
        self.to = self._moves()  #: where everything goes
        self.program = self._changed()

    def covers(self, length: Length) -> bool:
        """Whether another length, too, needs no more numbers of its own than there are."""
        differ = np.flatnonzero(_differ(length.constants, self.before.constants))
        if not set(differ.tolist()) <= set(self._constants.tolist()):
            return False
        return set(_cut_sums(self.before, length)) <= set(self.factors)

    def check_branches(self, lengths: Collection[Length]) -> None:
        """What a shorter call does not decide on must not decide for it."""
        program = self.before
        branches = len(program.instructions), "guards"
        if any(length.points[branches][0] != len(program.guards) for length in lengths):
            raise NotLiftable("a shorter length has fewer branches")

    def numbers(self, length: Length) -> Floats:
        """What each sample of this length has of its own, after its inputs."""
        parts = [new.of(length, k) for k, new in self.factors.items()]
        return np.concatenate([length.constants[self._constants], *parts])

    def points(self, length: Length) -> Points:
        """Those of a length, for the new program."""
        made = dict(length.points)
        for k, new in self.factors.items():
            made[k, "products"] = length.points[k, new.what]
        return made

    # --- the program ------------------------------------------------------------------------------

    def _moves(self) -> Addresses:
        """Where everything goes: what is new lies after the inputs that samples have."""
        program = self.before
        to = np.arange(program.size)
        to[self.first :] += self.size
        to[program.inputs + self._constants] = self.first + np.arange(len(self._constants))
        return to

    def _changed(self) -> Program:
        made = moved(self.before, self.to)
        size, inserted = made.size + self.size, dict[int, Instruction]()
        for k, new in self.factors.items():
            instruction = made.instructions[k]
            terms = instruction.plains if new.what == "plains" else instruction.products
            assert terms is not None
            columns: tuple[Addresses, ...] = (
                self.to[new.other],
                self.first + new.start + np.arange(len(new)),
            )
            if new.inserted:
                inserted[k] = _before(k, size, columns, terms)
                columns = (*terms.columns[:-1], inserted[k].out)
                size += len(new)
            made_of = Terms(terms.owners, columns, terms.each)
            instruction.products = made_of if len(columns) == 2 else None
            instruction.plains = None if len(columns) == 2 else made_of
        order = [x for k, i in enumerate(made.instructions) for x in (inserted.get(k), i)]
        return replace(
            made,
            private=np.concatenate([made.private, np.full(self.size, -1)]),
            fixed=made.fixed + self.size,
            size=size,
            instructions=[x for x in order if x is not None],
        )


def moved(program: Program, to: Addresses) -> Program:
    """The program with everything at another address."""

    def terms(old: Terms | None) -> Terms | None:
        if old is None:
            return None
        return Terms(to[old.owners], tuple([to[c] for c in old.columns]), old.each)

    def instruction(old: Instruction) -> Instruction:
        return replace(
            old,
            start=int(to[old.start]),
            operands=[to[c] for c in old.operands],
            number=None if old.number is None else to[old.number],
            products=terms(old.products),
            plains=terms(old.plains),
            scaled=terms(old.scaled),
            candidates=None if old.candidates is None else to[old.candidates],
        )

    return replace(
        program,
        instructions=[instruction(old) for old in program.instructions],
        address=np.where(program.address >= 0, to[program.address], -1),
        guards=to[program.guards],
    )


def _differ(a: Floats, b: Floats) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = a.view(np.int64) != b.view(np.int64)
    return found


def _missing(points: Points, k: int, what: str, instruction: Instruction) -> Any:
    """A truth per term: whether a shorter call has its sum, but without the term."""
    terms = instruction.plains if what == "plains" else instruction.products
    if terms is None:
        return np.zeros(0, np.bool_)
    (sums, _), (count, _) = points[k, "out"], points[k, what]
    return (np.arange(len(terms)) >= count) & (terms.owners < instruction.start + sums)


def _cut_sums(program: Program, length: Length) -> Sequence[int]:
    """The instructions whose sums have fewer terms in a shorter call."""
    points = length.points
    return [
        k
        for k, instruction in enumerate(program.instructions)
        if any(_missing(points, k, what, instruction).any() for what in ("products", "plains"))
    ]


def _before(k: int, start: int, columns: tuple[Addresses, ...], terms: Terms) -> Instruction:
    """The instruction before instruction ``k`` that leaves terms out.

    Those of a sum are multiplied by zero; in the place of a term of a maximum comes its first one,
    which is there at every length.
    """
    key, count = (3 * COPY + k,), len(terms)  # a shape of its own
    if len(terms.columns) == 2:
        return Instruction(key, RULE, start, count, ops.mul, operands=[*columns])
    _, first, which = np.unique(terms.owners, return_index=True, return_inverse=True)
    other, factors = columns
    operands = [factors, other, other[first][which]]
    return Instruction(key, RULE, start, count, ops.TABLE["where"], operands=operands)


def _factors_of(program: Program, k: int, start: int, inserting: bool) -> _Factors:
    """The factors of a sum, in the place of constants where it has a column of them."""
    instruction = program.instructions[k]
    products, plains = instruction.products, instruction.plains
    if instruction.kind != SUM:
        if not inserting or plains is None or products is not None:
            raise NotLiftable("a shorter length has a maximum over less")
        return _Factors(instruction, "plains", plains.columns[0], None, start, True)
    if products is None and plains is not None:
        return _Factors(instruction, "plains", plains.columns[0], None, start)
    if products is not None and plains is None:
        for column, other in (products.columns, products.columns[::-1]):
            if ((column >= program.inputs) & (column < program.shared)).all():
                return _Factors(instruction, "products", other, column - program.inputs, start)
        if inserting:
            return _Factors(instruction, "products", products.columns[1], None, start, True)
    raise NotLiftable("a shorter length has fewer products in a sum")
