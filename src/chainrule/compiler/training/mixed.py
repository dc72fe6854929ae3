"""Samples of different lengths side by side, one in each lane.

In: the program of the longest calls, and the fits of shorter ones. Out: a ``Mixed``: the same
program, in which what differs from length to length is a number that each sample has of its own:
constants such as one over the length, and a factor of each term of a sum that a shorter call adds
up less of, one or zero. All lanes walk as far as the longest of them. What a shorter one computes
beyond its end goes nowhere, and no gradient comes back from there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.alignment import Points
from chainrule.compiler.lift.canonical import SUM, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Program, Terms
from chainrule.compiler.runtime.machine import Fit, Kernel, MachineCode, trip_counts
from chainrule.trees import Floats


@dataclass(frozen=True, eq=False)
class _Factors:
    """The factors of the terms of a sum that is shorter in some lanes."""

    instruction: Instruction
    what: str  # which of its terms
    other: Addresses  # what is multiplied by them
    constants: Addresses | None  # the constants in whose place they are; None: in that of ones
    start: int  # among what is new

    def __len__(self) -> int:
        return len(self.other)

    def of(self, fit: Fit, k: int) -> Floats:
        """The factors in a lane of this length: zero for terms that are missing in its sums."""
        numbers = np.ones(len(self)) if self.constants is None else fit.constants[self.constants]
        return np.where(_missing(fit.points, k, self.what, self.instruction), 0.0, numbers)


class Mixed:
    """A program whose lanes may be of any of these lengths; NotLiftable where that cannot be."""

    def __init__(self, machine: MachineCode, fits: Collection[Fit]) -> None:
        program = machine.program
        if program.loops:
            raise NotLiftable("loops in time have their lengths in their code")
        _check_branches(program, fits)
        self.machine = machine
        self._constants = np.flatnonzero(
            np.any([_differ(fit.constants, program.constants) for fit in fits], axis=0)
        )
        self.size = len(self._constants)
        self._factors: dict[int, _Factors] = {}
        for k in sorted({k for fit in fits for k in _cut_sums(program, fit)}):
            self._factors[k] = made = _factors_of(program, k, self.size)
            self.size += len(made)
        self.to = self._moves(program)
        self.program = self._changed(program)
        self.root = int(self.to[machine.root])
        self._kernels: dict[int, Kernel] = {}
        self._rows: dict[Fit, Floats] = {}
        self._trips: dict[tuple[Fit, int], npt.NDArray[np.int64]] = {}
        self.fits = _in_order(fits)  # shortest first

    def serves(self, fits: Sequence[Fit]) -> bool:
        """Whether these lengths, too, can be in its lanes, from now on."""
        new = set(fits) - set(self.fits)
        program = self.machine.program
        for fit in new:
            differ = np.flatnonzero(_differ(fit.constants, program.constants))
            if not set(differ.tolist()) <= set(self._constants.tolist()):
                return False
            if not set(_cut_sums(program, fit)) <= set(self._factors):
                return False
        try:
            if new:
                _check_branches(program, new)
                self.fits = _in_order({*self.fits, *new})
                for lanes in self._kernels:
                    for fit in new:
                        self.trips(fit, lanes)
        except NotLiftable:
            return False
        return True

    # --- the program ------------------------------------------------------------------------------

    def _moves(self, program: Program) -> Addresses:
        """Where everything goes: what is new lies after the inputs that samples have."""
        first = program.shared + len(program.private)
        to = np.arange(program.size)
        to[first:] += self.size
        to[program.inputs + self._constants] = first + np.arange(len(self._constants))
        return to

    def _changed(self, program: Program) -> Program:
        changed = [self._instruction(k, x) for k, x in enumerate(program.instructions)]
        return replace(
            program,
            private=np.concatenate([program.private, np.full(self.size, -1)]),
            fixed=self.size,
            size=program.size + self.size,
            instructions=changed,
            address=np.where(program.address >= 0, self.to[program.address], -1),
            guards=self.to[program.guards],
        )

    def _instruction(self, k: int, old: Instruction) -> Instruction:
        to = self.to
        made = replace(
            old,
            start=int(to[old.start]),
            operands=[to[c] for c in old.operands],
            number=None if old.number is None else to[old.number],
            products=self._terms(old.products),
            plains=self._terms(old.plains),
            candidates=None if old.candidates is None else to[old.candidates],
        )
        if k in self._factors:
            new, before = self._factors[k], self.machine.program
            first = before.shared + len(before.private) + new.start
            terms = made.plains if new.what == "plains" else made.products
            assert terms is not None
            columns = (to[new.other], first + np.arange(len(new)))
            made.products, made.plains = Terms(terms.owners, columns, terms.each), None
        return made

    def _terms(self, old: Terms | None) -> Terms | None:
        if old is None:
            return None
        columns = tuple([self.to[c] for c in old.columns])
        return Terms(self.to[old.owners], columns, old.each)

    def _points(self, fit: Fit) -> Points:
        """Those of a fit, for this program."""
        made = dict(fit.points)
        for k, new in self._factors.items():
            made[k, "products"] = fit.points[k, new.what]
        return made

    def kernel(self, lanes: int) -> Kernel:
        """The machine code for so many samples at once."""
        if lanes not in self._kernels:
            varying = self.machine.varying | {
                (k, "products") for k in self._factors if (k, "plains") in self.machine.varying
            }
            self._kernels[lanes] = Kernel(self.machine, self.program, self.root, varying, lanes)
            for fit in self.fits:
                self.trips(fit, lanes)
        return self._kernels[lanes]

    # --- samples ----------------------------------------------------------------------------------

    def numbers(self, fit: Fit) -> Floats:
        """What each sample of this length has of its own, after its inputs."""
        if fit not in self._rows:
            parts = [new.of(fit, k) for k, new in self._factors.items()]
            self._rows[fit] = np.concatenate([fit.constants[self._constants], *parts])
        return self._rows[fit]

    def trips(self, fit: Fit, lanes: int) -> npt.NDArray[np.int64]:
        """How far the walks go if this is the longest of the lanes."""
        if (fit, lanes) not in self._trips:
            active = np.ones(self.program.size, np.bool_)
            active[self.to[~fit.active]] = False
            machine = self._kernels[lanes].machine
            counts = trip_counts(machine, self._points(fit), active)
            if counts is None:
                raise NotLiftable("another length does not fit the lanes")
            self._trips[fit, lanes] = counts
        return self._trips[fit, lanes]


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


def _cut_sums(program: Program, fit: Fit) -> list[int]:
    """The instructions whose sums have fewer terms in a shorter call."""
    return [
        k
        for k, instruction in enumerate(program.instructions)
        if any(_missing(fit.points, k, what, instruction).any() for what in ("products", "plains"))
    ]


def _factors_of(program: Program, k: int, start: int) -> _Factors:
    """The factors of a sum, in the place of constants where it has a column of them."""
    instruction = program.instructions[k]
    products, plains = instruction.products, instruction.plains
    if instruction.kind != SUM:
        raise NotLiftable("a shorter length has a maximum over less")
    if products is None and plains is not None:
        return _Factors(instruction, "plains", plains.columns[0], None, start)
    if products is not None and plains is None:
        for column, other in (products.columns, products.columns[::-1]):
            if ((column >= program.inputs) & (column < program.shared)).all():
                return _Factors(instruction, "products", other, column - program.inputs, start)
    raise NotLiftable("a shorter length has fewer products in a sum")


def _check_branches(program: Program, fits: Collection[Fit]) -> None:
    """What a shorter call does not decide on must not decide for it."""
    branches = len(program.instructions), "guards"
    if any(fit.points[branches][0] != len(program.guards) for fit in fits):
        raise NotLiftable("a shorter length has fewer branches")


def _in_order(fits: Collection[Fit]) -> tuple[Fit, ...]:
    """Shortest first; NotLiftable where of two fits neither does all that the other does."""
    keys = sorted(next(iter(fits)).points)
    table = {fit: np.array([fit.points[key][0] for key in keys]) for fit in fits}
    made = sorted(fits, key=lambda fit: int(table[fit].sum()))
    if any((table[a] > table[b]).any() for a, b in pairwise(made)):
        raise NotLiftable("lengths that are longer in one list and shorter in another")
    return tuple(made)
