"""The first and the last iteration of a rolled loop, where they look different from the others.

In: a loop of one line such as ``x[t] = x[t-1]·b[t]``, the line that it begins with
(``spot·b[0]``), and the lines that read it (``x[17]·b[18]``). Out: the same loop with one iteration
more in front or at the end, so that these lines read nothing but the loop; and a loop that only
adds, or only multiplies exponentials, as a cumulative sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
    Axis,
    Call,
    Expression,
    Number,
    Place,
    Product,
    Ref,
    Select,
    Sum,
    add,
    moved,
    multiply,
    walk,
)
from chainrule.compiler.formulas.translation import Line


@dataclass(frozen=True)
class Chain:
    """``array[t] = array[t-1] ∘ rest[t]``, a sum or a product."""

    array: Array
    kind: type[Sum] | type[Product]
    rest: tuple[Expression, ...]

    @property
    def time(self) -> Axis:
        """The axis that it goes along."""
        return self.array.axes[0]

    @classmethod
    def of(cls, array: Array, value: Expression) -> Chain | None:
        """The chain that a line of a loop is, or None."""
        kind, parts = _parts(value)
        places = [AffineIndex.along(axis) for axis in array.axes[1:]]
        before = Ref((array,), (AffineIndex(-1, ((1, array.axes[0]),)), *places))
        if kind is None or parts.count(before) != 1:
            return None
        rest = [part for part in parts if part != before]
        reads = [x for part in rest for x in walk(part) if isinstance(x, Ref)]
        if not rest or any(array in ref.arrays for ref in reads):
            return None
        return cls(array, kind, tuple(rest))

    def at(self, time: int, axes: Mapping[Axis, AffineIndex]) -> list[Expression] | None:
        """What is added or multiplied at one time; None where that lies outside of an array."""
        found = [moved(part, {self.time: AffineIndex(time), **axes}) for part in self.rest]
        for part in found:
            for x in walk(part):
                for place, size in _indices(x) if isinstance(x, Ref) else ():
                    if not place.parts and not 0 <= place.constant < size:
                        return None
        return found


def _parts(x: Expression) -> tuple[type[Sum] | type[Product] | None, list[Expression]]:
    if isinstance(x, Sum) and not x.constant:
        return Sum, list(x.terms)
    if isinstance(x, Product) and x.number == 1.0 and not x.under:
        return Product, list(x.over)
    return None, []


def _indices(x: Ref) -> list[tuple[AffineIndex, int]]:
    if len(x.arrays) > 1:
        return []
    pairs = zip(x.places, x.arrays[0].axes, strict=False)
    return [(place, axis.count) for place, axis in pairs if isinstance(place, AffineIndex)]


def _without(parts: list[Expression], some: list[Expression]) -> list[Expression] | None:
    left = list(parts)
    for x in some:
        if x not in left:
            return None
        left.remove(x)
    return left


def one_more_before(chain: Chain, begin: Line) -> Ref | None:
    """What a chain begins with, if the line before its first does one more step; else None."""
    if begin.value is None:
        return None
    kind, parts = _parts(begin.value)
    pairs = list(zip(chain.array.axes[1:], begin.axes, strict=True))
    there = chain.at(-1, {mine: AffineIndex.along(other) for mine, other in pairs})
    left = None if there is None or kind is not chain.kind else _without(parts, there)
    if left is None or len(left) != 1 or not isinstance(left[0], Ref):
        return None
    back = moved(left[0], {other: AffineIndex.along(mine) for mine, other in pairs})
    return back if isinstance(back, Ref) else None


def later(value: Expression, array: Array) -> list[Ref]:
    """The references of a line of a loop, with time counted from one iteration before."""
    time = array.axes[0]

    def shift(index: AffineIndex) -> AffineIndex:
        back = sum(times for times, axis in index.parts if axis is time)
        return replace(index, constant=index.constant - back)

    def place(x: Place) -> Place:
        if isinstance(x, Select):
            return replace(x, at=tuple([None if i is None else shift(i) for i in x.at]))
        return None if x is None else shift(x)

    return [
        x if array in x.arrays else replace(x, places=tuple(map(place, x.places)))
        for x in walk(value)
        if isinstance(x, Ref)
    ]


def one_more_after(chain: Chain, x: Expression) -> Expression:
    """A product that goes on with the last of a chain, as one with an iteration more."""
    if chain.kind is not Product or not isinstance(x, Product) or x.under:
        return x
    count = chain.time.count
    for last in x.over:
        if not isinstance(last, Ref) or last.arrays != (chain.array,):
            continue
        places = [place for place in last.places if isinstance(place, AffineIndex)]
        if places[0] != AffineIndex(count - 1) or len(places) < len(last.places):
            continue
        there = chain.at(count, dict(zip(chain.array.axes[1:], places[1:], strict=True)))
        left = None if there is None else _without(list(x.over), [last, *there])
        if left is not None:
            following = replace(last, places=(AffineIndex(count), *last.places[1:]))
            return multiply(Number(x.number), following, *left)
    return x


@dataclass(frozen=True)
class Cumulated:
    """A loop as a cumulative sum of ``terms``; ``exponential``: of exponents."""

    terms: Expression
    exponential: bool


def cumulated(line: Line, lines: Mapping[Array, Line]) -> Cumulated | None:
    """The only line of a loop as a cumulative sum, if it is one; ``lines`` define other arrays.

    Exponentials that the line reads are written into it.
    """
    chain = None if line.value is None else Chain.of(line.array, line.value)
    if chain is None or any(axis.length is not None for axis in line.axes):
        return None
    if chain.kind is Sum:
        return Cumulated(add(list(chain.rest)), False)
    exponents = [_exponent(factor, lines) for factor in chain.rest]
    found = [x for x in exponents if x is not None]
    if len(found) < len(exponents):
        return None
    before = AffineIndex(-1, ((1, chain.time),))
    rest = [AffineIndex.along(axis) for axis in line.axes[1:]]
    factors = [Call("exp", (x,)) for x in found]
    line.value = multiply(Ref((line.array,), (before, *rest)), *factors)
    return Cumulated(add(found), True)


def _exponent(x: Expression, lines: Mapping[Array, Line]) -> Expression | None:
    """What a factor is the exponential of."""
    if isinstance(x, Ref) and len(x.arrays) == 1 and x.arrays[0] in lines:
        line = lines[x.arrays[0]]
        places = [place for place in x.places if isinstance(place, AffineIndex)]
        if line.value is None or len(places) < len(x.places):
            return None
        x = moved(line.value, dict(zip(line.axes, places, strict=True)))
    return x.operands[0] if isinstance(x, Call) and x.name == "exp" else None
