"""The columns of every instruction as formulas.

In: a ``Program`` and the names of its inputs. Out: a ``Formula`` for each instruction: the axes of
its results, and for each of its columns the array that it reads and the indices there, affine in
these axes. Nothing is inlined, so that ``programs`` can turn each formula back into its
instruction, at any size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from chainrule.compiler.formulas.decoding import Arena, Basis, Choice
from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
    Axis,
    Call,
    Expression,
    Letters,
    Number,
    Ref,
    add,
    is_complete,
    multiply,
    reduced,
    text,
)
from chainrule.compiler.formulas.translation import FEW, Columns, Part, applied
from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM, NotLiftable
from chainrule.compiler.lift.program import Instruction, Program
from chainrule.core import ops

PARTS = 64  # a sum has at most so many, each with a formula of its own

Read = Ref | Number  # what a column reads


@dataclass(frozen=True, eq=False)
class Terms:
    """Some terms of sums: what they are, the axes they are summed over, and their columns."""

    what: str  # "products" or "plains"
    axes: tuple[Axis, ...]
    columns: tuple[Read, ...]


@dataclass(frozen=True, eq=False)
class Formula:
    """One instruction: its results, and what its columns read."""

    kind: int
    rule: ops.Op | None
    parameters: tuple[float, ...]
    array: Array  # of the results
    operands: tuple[Read, ...] = ()
    has_number: bool = False  # its last operand is a plain number
    terms: tuple[Terms, ...] = ()
    is_copy: bool = False  # it copies the terms of a maximum so that they are regular

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of its results."""
        return self.array.axes

    @property
    def columns(self) -> list[Read]:
        """All that it reads."""
        return [*self.operands, *[x for terms in self.terms for x in terms.columns]]

    @property
    def value(self) -> Expression:
        """Its right side, for people."""
        word = {SUM: "Σ", EXTREME: "max" if self.rule is ops.first_max else "min"}.get(self.kind)
        if word is None:
            xs: list[Expression] = list(self.operands)
            return xs[0] if self.rule is None else applied(self.rule, xs, self.parameters)
        parts = [
            reduced(word, x.axes, multiply(*x.columns)) if x.axes else multiply(*x.columns)
            for x in self.terms
        ]
        if self.kind == SUM:
            return add(parts)
        return parts[0] if len(parts) == 1 else Call(word, tuple(parts))

    def __str__(self) -> str:
        letters = Letters(()).of(self.axes, self.value)
        at = ",".join(letters.bounded(axis) for axis in self.axes)
        size = "×".join(f"≤{a.count}" if a.length else str(a.count) for a in self.axes)
        left = self.array.name + (f"[{at}]" if at else "")
        return f"{left} = {text(self.value, letters)}" + (f"  [{size}]" if size else "")


@dataclass(frozen=True, eq=False)
class Formulas:
    """All of a program: its arrays of inputs, its formulas in order, and where its results are."""

    inputs: tuple[Array, ...]
    formulas: tuple[Formula, ...]
    outputs: tuple[Ref, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.formulas))


def formulas_of(
    program: Program, inputs: Sequence[Named], choice: Choice, outputs: Sequence[int]
) -> Formulas:
    """The formulas of a program, or NotLiftable; ``outputs``: addresses of its results."""
    if program.loops or program.steps is not None or len(program.guards):
        raise NotLiftable("it has loops in time, steps or branches")
    arena = Arena(program, inputs, choice, through=False)
    columns = Columns(program, arena, PARTS)
    found = [_Reader(columns, x) for x in program.instructions]
    for k, reader in enumerate(found):
        reader.array.name = f"x{k}"
    made = tuple([reader.formula() for reader in found])
    places = []
    for address in outputs:
        array = arena.at(address)
        at = [AffineIndex(int(c[address - array.start])) for c in array.coordinates]
        places.append(Ref((array,), tuple(at)))
    return Formulas(tuple(arena.stretches[: arena.numbers]), made, tuple(places))


class _Reader:
    """Reads the columns of one instruction."""

    def __init__(self, columns: Columns, instruction: Instruction) -> None:
        self.columns, self.instruction = columns, instruction
        self.array = columns.arena.results[instruction.start]

    def formula(self) -> Formula:
        """The formula, or NotLiftable."""
        one, basis = self.instruction, self.columns.basis(self.instruction)
        try:
            if one.kind == GATHER:
                reads = [self.columns.ref(self.columns.arena.gathered(one), basis)]
            else:
                reads = [self.columns.ref(self.columns.arena.see(c), basis) for c in one.columns]
            operands = tuple(map(self._known, reads))
            terms = tuple([x for part in self._parts() for x in self._terms(*part, basis)])
        except ValueError as reason:
            raise NotLiftable(f"{one}: {reason}") from None
        return Formula(
            one.kind,
            one.rule,
            one.parameters,
            self.array,
            operands,
            one.number is not None,
            terms,
            one.is_copy,
        )

    def _parts(self) -> Iterator[tuple[str, Part]]:
        one = self.instruction
        if one.scaled is not None:
            raise ValueError("a sum of scaled products")
        for what, terms in (("products", one.products), ("plains", one.plains)):
            for part in () if terms is None else self.columns.parts(one, terms):
                yield what, part

    def _terms(self, what: str, part: Part, basis: Basis) -> list[Terms]:
        """One part of sums, or each of its terms where they are few and have nothing in common."""
        if part.each != 1:
            axes, reads = self.columns.inside(part, basis)
            if all(map(is_complete, reads)) or not 1 < part.each <= FEW:
                return [Terms(what, axes, tuple(map(self._known, reads)))]
        made = []
        for k in range(part.each):
            seen = [self.columns.arena.see(c[part.first + k]) for c in part.columns]
            reads = [self.columns.ref(x, basis) for x in seen]
            made.append(Terms(what, (), tuple(map(self._known, reads))))
        return made

    def _known(self, x: Expression) -> Read:
        if not isinstance(x, Ref | Number) or not is_complete(x):
            raise ValueError("its places follow no formula")
        return x
