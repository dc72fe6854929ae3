"""Formulas as loops compute them best: what is moved out of a sum, and what is worth keeping.

In: expressions of index notation. Out: the same numbers with less work: a factor that does not
depend on a sum's index is multiplied once, after the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Axis,
    Call,
    Expression,
    Number,
    Power,
    Product,
    Reduce,
    Ref,
    Select,
    Sum,
    multiply,
    walk,
)

#: computed again backward rather than kept
CHEAP = frozenset(
    "< ≤ == max min where .data relu leaky_relu abs maximum minimum clip ramp sign floor ceil trunc"
    " round".split()
)


@dataclass(eq=False)
class TableAxis(Axis):
    """An axis over the terms of irregular sums: from ``starts[k]`` up to ``starts[k + 1]``."""

    starts: str = ""
    at: AffineIndex = field(default_factory=lambda: AffineIndex(0))


def hoisted(x: Expression) -> Expression:
    """The same with factors moved out of sums over axes that they do not depend on."""
    match x:
        case Reduce("Σ", axes, body):
            body = hoisted(body)
            if isinstance(body, Product):
                free = [
                    [y for y in side if not depends(y, axes)] for side in (body.over, body.under)
                ]
                if free[0] or free[1]:
                    over = [y for y in body.over if y not in free[0]]
                    under = tuple([y for y in body.under if y not in free[1]])
                    if over or under:
                        inner = multiply(*over, Product(1.0, (), under))
                        rest = Product(body.number, tuple(free[0]), tuple(free[1]))
                        return multiply(rest, Reduce("Σ", axes, inner))
            return Reduce("Σ", axes, body)
        case Reduce(symbol, axes, body):
            return Reduce(symbol, axes, hoisted(body))
        case Sum(terms, constant):
            return Sum(tuple(map(hoisted, terms)), constant)
        case Product(number, over, under):
            return Product(number, tuple(map(hoisted, over)), tuple(map(hoisted, under)))
        case Power(base, exponent):
            return Power(hoisted(base), hoisted(exponent))
        case Call(name, within):
            return Call(name, tuple(map(hoisted, within)))
    return x


def depends(x: Expression, axes: tuple[Axis, ...]) -> bool:
    """Whether an index in it moves along one of these axes."""
    for y in walk(x):
        for place in y.places if isinstance(y, Ref) else ():
            parts = place.at if isinstance(place, Select) else (place,)
            for part in parts:
                if isinstance(part, AffineIndex) and any(a in axes for _, a in part.parts):
                    return True
        for axis in y.axes if isinstance(y, Reduce) else ():
            if axis.length is not None and any(a in axes for _, a in axis.length.parts):
                return True
    return False


def is_costly(x: Expression) -> bool:
    """Whether it is kept for the backward pass rather than computed again."""
    match x:
        case Reduce():
            return True
        case Power(_, Number(p)):
            return p not in (2.0, 3.0, -1.0, -2.0)
        case Power():
            return True
        case Call(name):
            return name not in CHEAP
    return False
