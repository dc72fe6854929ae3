"""A number as an expression of sizes.

In: what a number is in each of several recordings, and the sizes of these. Out: the simplest
``Law`` that all recordings agree with, such as ``4 * D + 1`` or ``0.5 / T ** 0.5``. Every law has
fewer unknowns than there are recordings. None fits: None. Two equally simple ones fit: an
``Untranslatable``, because nothing says which one holds.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from chainrule.compiler.translate.terms import Untranslatable, number_code

SMALL = 64  # the largest denominator of a coefficient
CLOSE = 1e-12  # relative: a number computed in another order differs by rounding

Monomial = tuple[int, ...]  # an exponent for each size


@dataclass(frozen=True)
class Sizes:
    """The names of the sizes, and what they are in each recording."""

    names: tuple[str, ...]
    points: tuple[tuple[int, ...], ...]

    def text(self, k: int) -> str:
        """The sizes of one recording."""
        return point_text(self.names, self.points[k])


def point_text(names: Sequence[str], point: Sequence[int]) -> str:
    """Sizes in words, for messages."""
    return ", ".join(f"{name}={size}" for name, size in zip(names, point, strict=True))


# --- integers -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Polynomial:
    """A sum of products of sizes, with rational coefficients; a whole number at allowed sizes."""

    names: tuple[str, ...]
    terms: tuple[tuple[Fraction, Monomial], ...]

    @property
    def code(self) -> str:
        """As Python."""
        below = math.lcm(*[c.denominator for c, _ in self.terms])
        words = ""
        for coefficient, monomial in self.terms:
            times = coefficient * below
            factors = [n if e == 1 else f"{n} ** {e}" for n, e in self._powers(monomial)]
            if abs(times) != 1 or not factors:
                factors.insert(0, str(abs(times)))
            sign = (" - " if times < 0 else " + ") if words else ("-" if times < 0 else "")
            words += sign + " * ".join(factors)
        several = len(self.terms) > 1 or "*" in words or words.startswith("-")
        return (
            words if below == 1 else f"({words}) // {below}" if several else f"{words} // {below}"
        )

    def _powers(self, monomial: Monomial) -> list[tuple[str, int]]:
        return [(n, e) for n, e in zip(self.names, monomial, strict=True) if e]

    def at(self, sizes: Mapping[int, int]) -> Fraction:
        """What it is where some sizes are these, and the others 0."""
        found = [
            c * math.prod([sizes.get(k, 0) ** e for k, e in enumerate(m)]) for c, m in self.terms
        ]
        return sum(found, Fraction(0))

    @property
    def solved(self) -> tuple[int, Fraction, Fraction] | None:
        """Which size it depends on, and (a, b) of ``a * size + b``; None where it is not that."""
        found = dict.fromkeys([m for _, m in self.terms if any(m)])
        if len(found) != 1 or sum(next(iter(found))) != 1:
            return None
        (monomial,) = found
        constant = sum((c for c, m in self.terms if not any(m)), Fraction(0))
        return monomial.index(1), self.terms[0][0], constant


def integer(values: Sequence[int], sizes: Sizes) -> Polynomial | None:
    """An integer that differs between recordings, as a polynomial in the sizes."""
    return _rational([Fraction(x) for x in values], sizes)


def _rational(values: Sequence[Fraction], sizes: Sizes) -> Polynomial | None:
    for level in _families(len(sizes.names)):
        found: dict[tuple[tuple[Fraction, Monomial], ...], None] = {}
        for family in level:
            if len(family) >= len(set(sizes.points)):
                continue
            coefficients = _solved(family, values, sizes)
            if coefficients is not None:
                terms = [x for x in zip(coefficients, family, strict=True) if x[0]]
                found[tuple(terms)] = None
        laws = [Polynomial(sizes.names, terms) for terms in found]
        if len(laws) > 1:
            raise Untranslatable(_ambiguous(values, laws[0].code, laws[1].code))
        if laws:
            return laws[0]
    return None


def _families(count: int) -> Iterator[list[tuple[Monomial, ...]]]:
    """Sets of monomials, the simplest first; those of one level are equally simple."""

    def of(*which: int) -> Monomial:
        return tuple([which.count(k) for k in range(count)])

    one, every = of(), range(count)
    pairs = list(itertools.combinations(every, 2))
    yield [(of(i), one) for i in every]
    yield [*[(of(i, j), one) for i, j in pairs], *[(of(i), of(j), one) for i, j in pairs]]
    yield [(of(i, i), of(i), one) for i in every]
    yield [(of(i, j), of(k), one) for i, j in pairs for k in (i, j)]
    yield [(of(*x), one) for x in itertools.combinations(every, 3)]
    yield [(of(i, j), of(i), of(j), one) for i, j in pairs]


def _solved(
    family: Sequence[Monomial], values: Sequence[Fraction], sizes: Sizes
) -> list[Fraction] | None:
    """The coefficients with which all recordings agree; None where there are none, or several."""
    rows = []
    for point, value in zip(sizes.points, values, strict=True):
        powers = [math.prod(map(pow, point, monomial)) for monomial in family]
        rows.append([*map(Fraction, powers), value])
    for column in range(len(family)):
        pivot = next((k for k in range(column, len(rows)) if rows[k][column]), None)
        if pivot is None:
            return None
        rows[column], rows[pivot] = rows[pivot], rows[column]
        rows[column] = [x / rows[column][column] for x in rows[column]]
        for k, row in enumerate(rows):
            if k != column and row[column]:
                rows[k] = [x - row[column] * y for x, y in zip(row, rows[column], strict=True)]
    found = [row[-1] for row in rows[: len(family)]]
    fits = not any(row[-1] for row in rows[len(family) :])
    return found if fits and all(x.denominator <= SMALL for x in found) else None


def _ambiguous(values: Sequence[object], one: str, other: str) -> str:
    shown = ", ".join(map(str, values))
    return f"a number ({shown}) may be {one} or {other}: record sizes that tell them apart"


# --- plain numbers --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Factor:
    """A part of a number: its Python, how a formula has it, and whether it is divided by.

    ``at``: what the number is multiplied by at some sizes.
    """

    code: str
    text: str
    at: Callable[[Sequence[int]], float] = field(compare=False)
    below: bool = False


@dataclass(frozen=True)
class Scaled:
    """A number times factors that depend on sizes, and perhaps another number added."""

    number: float
    factors: tuple[Factor, ...]
    constant: float = 0.0

    @property
    def code(self) -> str:
        """As Python."""
        over = [factor.code for factor in self.factors if not factor.below]
        under = [factor.code for factor in self.factors if factor.below]
        if self.number != 1.0 or not over:
            over.insert(0, number_code(self.number))
        words = " / ".join([" * ".join(over), *under])
        if not self.constant:
            return words
        return f"{words} {'-' if self.constant < 0 else '+'} {number_code(abs(self.constant))}"

    def at(self, point: Sequence[int]) -> float:
        """What it is at these sizes."""
        return self.number * math.prod([x.at(point) for x in self.factors]) + self.constant


def real(values: Sequence[float], sizes: Sizes) -> Scaled | None:
    """A number that differs between recordings, as an expression of the sizes."""
    if not all(map(math.isfinite, values)):
        return None
    if (same := _same(values)) is not None:
        return Scaled(same, ())
    whole = [Fraction(x).limit_denominator(SMALL) for x in values]
    if all(float(a) == b for a, b in zip(whole, values, strict=True)):
        law = _rational(whole, sizes)
        if law is not None:
            return _scaled(law)
    for shifted in (False, True):
        for level in _products(sizes, shifted):
            fits = []
            for factors, known in level:
                number = _same([x / y for x, y in zip(values, known, strict=True) if y])
                if number is not None and all(known):
                    fits.append(Scaled(number, factors))
            if len(fits) > 1:
                raise Untranslatable(_ambiguous(values, fits[0].code, fits[1].code))
            if fits:
                return fits[0]
    return _with_constant(values, sizes)


def _scaled(law: Polynomial) -> Scaled:
    if len(law.terms) > 1:
        below = math.lcm(*[c.denominator for c, _ in law.terms])
        whole = Polynomial(law.names, tuple([(c * below, m) for c, m in law.terms]))
        code = f"({whole.code})"
        value = Factor(
            code, code.replace(" * ", "·"), lambda p: float(whole.at(dict(enumerate(p))))
        )
        return Scaled(1.0 / below, (value,))
    ((coefficient, monomial),) = law.terms
    factors = [
        Factor(name, name, operator.itemgetter(k))
        for k, (name, e) in enumerate(zip(law.names, monomial, strict=True))
        for _ in range(e)
    ]
    return Scaled(float(coefficient), tuple(factors))


#: functions of one size: Python, a formula's text, the function, whether it is divided by
_Function = tuple[str, str, Callable[[float], float], bool]
_FUNCTIONS: tuple[_Function, ...] = (
    ("{}", "{}", lambda s: s, False),
    ("{}", "{}", lambda s: 1.0 / s, True),
    ("{} ** 0.5", "√{}", lambda s: s**0.5, False),
    ("{} ** 0.5", "√{}", lambda s: s**-0.5, True),
    ("{} ** 2", "{}²", lambda s: s * s, False),
    ("{} ** 2", "{}²", lambda s: s**-2.0, True),
    ("{} ** 1.5", "{}^1.5", lambda s: s**1.5, False),
    ("{} ** 1.5", "{}^1.5", lambda s: s**-1.5, True),
    ("math.log({})", "log({})", lambda s: math.log(s) if s > 0 else 0.0, False),
    ("math.log({})", "log({})", lambda s: 1 / math.log(s) if s > 1 else 0.0, True),
)


def _of_size(function: Callable[[float], float], k: int, shift: int, point: Sequence[int]) -> float:
    """A function of one of the sizes, or of that with one more or less."""
    return function(float(point[k] + shift))


def _products(
    sizes: Sizes, shifted: bool
) -> Iterator[list[tuple[tuple[Factor, ...], list[float]]]]:
    """Products of functions of one size, of two and of three, and what they are."""
    alone: list[list[tuple[Factor, list[float]]]] = []
    for k, name in enumerate(sizes.names):
        bases = [(name, 0)]
        for shift in (-1, 1) if shifted else ():
            bases.append((f"({name} {'-' if shift < 0 else '+'} 1)", shift))
        mine = []
        for word, shift in bases:
            for code, text, function, below in _FUNCTIONS:
                if all(p[k] + shift for p in sizes.points):
                    inner = word.strip("()") if "(" in code else word
                    made = code.format(inner)
                    made = f"({made})" if "**" in made else made
                    value = functools.partial(_of_size, function, k, shift)
                    factor = Factor(made, text.format(inner), value, below)
                    mine.append((factor, list(map(value, sizes.points))))
        alone.append(mine)
    for count in (1, 2, 3):
        for some in itertools.combinations(alone, count):
            yield [
                (
                    tuple([factor for factor, _ in chosen]),
                    list(map(math.prod, zip(*[known for _, known in chosen], strict=True))),
                )
                for chosen in itertools.product(*some)
            ]


def _same(values: Sequence[float]) -> float | None:
    """The number that all of these are but for rounding; a simple fraction is taken exactly."""
    first = values[0] if values else 0.0
    if not first or any(abs(x - first) > CLOSE * abs(first) for x in values):
        return None
    simple = float(Fraction(first).limit_denominator(SMALL))
    return simple if abs(simple - first) <= CLOSE * abs(first) else first


def _with_constant(values: Sequence[float], sizes: Sizes) -> Scaled | None:
    """A number times a function of one size, and another number added."""
    fits = []
    for level in _products(sizes, False):
        for factors, known in level if len(level) == len(_FUNCTIONS) else ():
            at = next((k for k, x in enumerate(known) if x != known[0]), None)
            if at is None or len(set(known)) < 3:
                continue
            number = (values[at] - values[0]) / (known[at] - known[0])
            constant = values[0] - number * known[0]
            there = [number * x + constant for x in known]
            limit = CLOSE * max(map(abs, values))
            if all(abs(x - y) <= limit for x, y in zip(there, values, strict=True)):
                fits.append(Scaled(number, factors, constant))
    if len(fits) > 1:
        raise Untranslatable(_ambiguous(values, fits[0].code, fits[1].code))
    return fits[0] if fits else None
