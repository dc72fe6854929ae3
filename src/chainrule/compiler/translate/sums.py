"""Sums over axes as ``einsum`` or ``sum``, and maxima.

In: the axes of a sum and its body, a product of expressions. Out: a ``Term``. Factors that the sum
does not run over are multiplied where that takes the fewest multiplications; a ragged sum is masked
unless one of its factors is 0 beyond the end.
"""

from __future__ import annotations

import itertools
import math
import string
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Axis,
    Expression,
    Product,
    Ref,
    add,
    moved,
    walk,
)
from chainrule.compiler.translate.convolutions import convolved
from chainrule.compiler.translate.terms import ATOM, Term, Untranslatable
from chainrule.compiler.translate.views import axes_of, reshaped

if TYPE_CHECKING:
    from chainrule.compiler.translate.expressions import Writer


FEW = 4  # terms that are written one by one where they have no sum


def size_of(axes: Sequence[Axis] | set[Axis]) -> int:
    """How many numbers an array over these axes has."""
    return math.prod(axis.count for axis in axes)


def summed(writer: Writer, axes: tuple[Axis, ...], body: Expression) -> Term:
    """A sum over axes."""
    few = size_of(axes) <= FEW and all(axis.length is None for axis in axes)
    if few and any(_mixes(x, axis) for x in walk(body) for axis in axes):
        return _one_by_one(writer, axes, body)
    convolution = convolved(writer, axes, body)
    if convolution is not None:
        return convolution
    try:
        return _summed(writer, axes, body)
    except Untranslatable:
        if not few:
            raise
        return _one_by_one(writer, axes, body)


def _one_by_one(writer: Writer, axes: tuple[Axis, ...], body: Expression) -> Term:
    """A sum written term by term."""
    every = itertools.product(*[range(axis.count) for axis in axes])
    at = [dict(zip(axes, map(AffineIndex, point), strict=True)) for point in every]
    return writer.value(add([moved(body, places) for places in at]))


def _summed(writer: Writer, axes: tuple[Axis, ...], body: Expression) -> Term:
    number, over, under = 1.0, [body], list[Expression]()
    if isinstance(body, Product):
        number, over, under = body.number, list(body.over), list(body.under)
    factors = [writer.value(x) for x in over]
    divisors: list[Term] = []
    for x in under:
        term = writer.masked(writer.value(x), "1.0")
        if set(term.axes) & set(axes):
            factors.append(writer.multiplied(1.0, [], [term]))
        else:
            divisors.append(term)
    inside = [term for term in factors if set(term.axes) & set(axes)]
    outside = [term for term in factors if not set(term.axes) & set(axes)]
    for axis in axes:
        if axis.length is None or any(axis in term.zero for term in inside):
            continue
        for _, other in axis.length.parts:
            writer.rank(other)
        mask = writer.scope.mask(axis, writer.order)
        home = [k for k, term in enumerate(inside) if set(mask.axes) <= set(term.axes)]
        if home:
            inside[home[0]] = writer.masked(inside[home[0]], "0.0", [axis])
        else:
            inside.append(writer.scope.numbers(mask))
    inside, outside = _pulled_in(writer, inside, outside, axes)
    alone = [axis for axis in axes if not any(axis in term.axes for term in inside)]
    number *= size_of(alone)  # the same term so many times
    rest = [axis for axis in axes if axis not in alone]
    terms = [*outside, *([contracted(writer, inside, rest)] if inside else [])]
    if number == 1.0 and len(terms) == 1 and not divisors:
        return terms[0]
    return writer.multiplied(number, terms, divisors)


def _mixes(x: Expression, axis: Axis) -> bool:
    """Whether an axis chooses an array and an index in it too: no view has both."""
    if not isinstance(x, Ref) or len(x.arrays) == 1:
        return False
    first, *rest = ([] if place is None else axes_of(place) for place in x.places)
    return axis in first and any(axis in other for other in rest)


def _pulled_in(
    writer: Writer, inside: list[Term], outside: list[Term], axes: Sequence[Axis]
) -> tuple[list[Term], list[Term]]:
    """Multiply what the sum does not run over into a factor that is smaller than the sum."""
    kept = []
    inside = list(inside)
    for term in outside:
        total = size_of({axis for factor in inside for axis in factor.axes} - set(axes))
        homes = [
            k
            for k, factor in enumerate(inside)
            if set(term.axes) <= set(factor.axes) and size_of(factor.axes) < total
        ]
        if homes and len(inside) > 1 and term.axes:
            inside[homes[0]] = writer.multiplied(1.0, [inside[homes[0]], term])
        else:
            kept.append(term)
    return inside, kept


def contracted(writer: Writer, factors: list[Term], axes: Sequence[Axis]) -> Term:
    """The product of factors, summed over axes that each occur in at least one of them."""
    if len(factors) > 2:  # those whose axes another one has are multiplied first
        factors = sorted(factors, key=lambda term: -len(term.axes))
        made: list[Term] = []
        for k, term in enumerate(factors):
            left = len(made) + len(factors) - k
            homes = [i for i, other in enumerate(made) if set(term.axes) <= set(other.axes)]
            if homes and left > 2:
                made[homes[0]] = writer.multiplied(1.0, [made[homes[0]], term])
            else:
                made.append(term)
        factors = made
    if len({frozenset(term.axes) for term in factors}) > 1:
        return _einsum(writer, factors, axes)
    body = factors[0] if len(factors) == 1 else writer.multiplied(1.0, factors)
    kept = tuple([axis for axis in body.axes if axis not in axes])
    places = [k for k, axis in enumerate(body.axes) if axis in axes]
    where = _axis_text(places, len(body.axes)) if kept else ""
    writer.seen.append(kept)
    return Term(f"{writer.np}.sum({body.code}{where})", kept, zero=body.zero - set(axes))


def _axis_text(places: list[int], count: int) -> str:
    if places == list(range(count - len(places), count)):
        places = [place - count for place in places]
    return f", {places[0]}" if len(places) == 1 else f", ({', '.join(map(str, places))})"


def _einsum(writer: Writer, factors: list[Term], axes: Sequence[Axis]) -> Term:
    every = {axis for term in factors for axis in term.axes}
    free = sorted(every - set(axes), key=writer.rank)
    if (
        len(factors) == 2
    ):  # the order in which a product of matrices comes out: what both have first
        both = [axis for axis in free if all(axis in term.axes for term in factors)]
        sides = [[a for a in free if a in term.axes and a not in both] for term in factors]
        sides.sort(key=lambda side: min(map(writer.rank, side), default=len(writer.order)))
        writer.seen.append((*both, *sides[0], *sides[1]))
        first = {axis: k for k, axis in enumerate(sides[0])}
        factors = sorted(factors, key=lambda term: not any(axis in first for axis in term.axes))
    letters = _letters([*free, *axes], writer.letters)
    runs = _side_by_side(factors, axes)
    within = {axis for run in runs for axis in run[1:]}  # the first stands for all of them
    words = ["".join(letters[a] for a in term.axes if a not in within) for term in factors]
    made = "".join(letters[axis] for axis in free)
    inside = ", ".join(_flattened(term, runs) for term in factors)
    zero = frozenset[Axis]().union(*[term.zero for term in factors]) - set(axes)
    code = f'{writer.np}.einsum("{",".join(words)}->{made}", {inside})'
    return Term(code, tuple(free), zero=frozenset(zero))


def _side_by_side(factors: Sequence[Term], axes: Sequence[Axis]) -> list[list[Axis]]:
    """Axes of a sum that follow each other in every factor that has one of them.

    They are summed as one: a product of matrices rather than of arrays of more dimensions.
    """
    plain = [axis for axis in axes if axis.length is None]
    orders = [(set(term.axes), set(itertools.pairwise(term.axes))) for term in factors]
    after = {
        one: two
        for one, two in itertools.permutations(plain, 2)
        if all((one, two) in pairs or not {one, two} & found for found, pairs in orders)
    }
    runs = []
    for axis in plain:
        if axis in after and axis not in after.values():
            run = [axis]
            while run[-1] in after:
                run.append(after[run[-1]])
            runs.append(run)
    return runs


def _flattened(term: Term, runs: Sequence[Sequence[Axis]]) -> str:
    """A factor with one dimension in place of each run that it has."""
    mine = [run for run in runs if run[0] in term.axes]
    if not mine:
        return term.code
    if term.code == reshaped(term.unsplit, term.axes) and {*term.splits} == {*map(tuple, mine)}:
        return term.unsplit
    within = {axis for run in mine for axis in run[1:]}
    sizes = {run[0]: size_of(run) for run in mine}
    counts = [sizes.get(axis, axis.count) for axis in term.axes if axis not in within]
    return f"{term.bracketed(ATOM)}.reshape({', '.join(map(str, counts))})"


def _letters(axes: Sequence[Axis], known: Mapping[Axis, str]) -> dict[Axis, str]:
    """A letter for each axis, that of the formula if it has one."""
    given: dict[Axis, str] = {}
    for axis in axes:
        choices = known.get(axis, "i")[:1] + string.ascii_letters
        given[axis] = next(letter for letter in choices if letter not in given.values())
    return given


def extreme(writer: Writer, symbol: str, axes: tuple[Axis, ...], body: Term) -> Term:
    """The largest or smallest over axes, the first of equals."""
    fill = f"-{writer.np}.inf" if symbol == "max" else f"{writer.np}.inf"
    ragged = [axis for axis in axes if axis.length is not None and axis in body.axes]
    body = writer.masked(body, fill, ragged)
    kept = tuple([axis for axis in body.axes if axis not in axes])
    running = [axis for axis in body.axes if axis in axes]
    body = body.ordered([*kept, *running])
    code = body.code
    plain = writer.detached or not writer.dialect.gradients
    if len(running) > 1 and not plain:  # one axis, so that the first of equals is known
        code = f"{body.bracketed(3)}.reshape({', '.join(str(a.count) for a in kept)}, -1)"
        code = code.replace("reshape(, ", "reshape(")
        running = running[:1]
    if not running:
        return body
    writer.seen.append(kept)
    if plain:
        word = writer.dialect.functions[symbol]
        where = _axis_text(list(range(len(kept), len(body.axes))), len(body.axes)) if kept else ""
    else:
        word = writer.dialect.functions[f"first_{symbol}"]
        writer.scope.helpers.add(word)
        where = ", -1"
    return Term(f"{word}({code}{where})", kept, zero=body.zero - set(axes))
