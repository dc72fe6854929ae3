"""Index notation: the expressions in which people read an array program, and their text.

In: expressions over arrays whose indices are affine in axes. Out: text such as
``Σ_j W1[i,j]·x[t,j] + b1[i]``. Axes get their letters last, by family: t and u count positions or
samples, h groups, c members of a set of arrays, and i, j, k anything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

FAMILIES = {"time": "tuvw", "unit": "ijklmn", "group": "hgof", "set": "cdab"}
INDICES = "tuijklmnhgc"  # letters that are no names of arrays
SUPERSCRIPTS = {2.0: "²", 3.0: "³"}


@dataclass(eq=False)
class Axis:
    """A dimension of an array, or the index of a sum."""

    count: int  # the greatest length where it is ragged
    family: str = "unit"
    length: AffineIndex | None = None  # in terms of other axes, where it is ragged


@dataclass(frozen=True)
class AffineIndex:
    """An index into an array: a constant plus multiples of axes, such as ``4h+j``."""

    constant: int
    parts: tuple[tuple[int, Axis], ...] = ()

    @property
    def plain(self) -> Axis | None:
        """The axis, if the index is just that."""
        alone = not self.constant and len(self.parts) == 1 and self.parts[0][0] == 1
        return self.parts[0][1] if alone else None

    @classmethod
    def along(cls, axis: Axis) -> AffineIndex:
        """The index that is just an axis."""
        return cls(0, ((1, axis),))

    def substitute(self, places: Mapping[Axis, AffineIndex]) -> AffineIndex:
        """With axes replaced by indices."""
        constant, found = self.constant, dict[Axis, int]()
        for times, axis in self.parts:
            other = places.get(axis, AffineIndex.along(axis))
            constant += times * other.constant
            for more, inner in other.parts:
                found[inner] = found.get(inner, 0) + times * more
        return AffineIndex(
            constant, tuple([(times, axis) for axis, times in found.items() if times])
        )

    def text(self, letters: Mapping[Axis, str]) -> str:
        """As ``4h+j``."""
        made = ""
        for times, axis in sorted(self.parts, key=lambda part: part[0] < 0):
            sign = "-" if times < 0 else "+" if made else ""
            made += sign + (str(abs(times)) if abs(times) != 1 else "") + letters[axis]
        if made.startswith("-"):  # 6-i rather than -i+6
            return (str(self.constant) if self.constant else "") + made
        return (
            made + f"{self.constant:+d}" if made and self.constant else made or str(self.constant)
        )


@dataclass(eq=False)
class Array:
    """A named array that formulas read."""

    name: str
    axes: tuple[Axis, ...] = ()


@dataclass(eq=False)
class Several(Array):
    """Integers of several arguments, of which nobody knows which is where."""


@dataclass(eq=False)
class Table(Array):
    """Plain numbers of the program, an array of their own."""

    values: tuple[float, ...] = ()


@dataclass(frozen=True)
class Select:
    """An index that an integer argument decides; ``exact``: it is that integer."""

    integers: Array
    at: tuple[AffineIndex | None, ...]
    exact: bool = True


Place = AffineIndex | Select | None


# --- expressions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Number:
    """A plain number."""

    value: float


@dataclass(frozen=True)
class Ref:
    """A number in an array, or in one of several; None for an index that has no formula."""

    arrays: tuple[Array, ...]
    places: tuple[Place, ...]
    joined: bool = False  # the arrays are concatenated, not stacked


@dataclass(frozen=True)
class Sum:
    """The sum of some terms and a number."""

    terms: tuple[Expression, ...]
    constant: float = 0.0


@dataclass(frozen=True)
class Product:
    """A number times the factors ``over``, divided by those ``under``."""

    number: float
    over: tuple[Expression, ...]
    under: tuple[Expression, ...] = ()


@dataclass(frozen=True)
class Power:
    """A base and its exponent."""

    base: Expression
    exponent: Expression


@dataclass(frozen=True)
class Reduce:
    """A sum or a maximum over axes."""

    symbol: str
    axes: tuple[Axis, ...]
    body: Expression


@dataclass(frozen=True)
class Call:
    """A function by name, a comparison, or ``.data``."""

    name: str
    operands: tuple[Expression, ...]


Expression = Number | Ref | Sum | Product | Power | Reduce | Call


def add(terms: list[Expression], constant: float = 0.0) -> Expression:
    """A sum; sums among its terms are flattened."""
    opened: list[Expression] = []
    for term in terms:
        if isinstance(term, Sum):
            opened += term.terms
            constant += term.constant
        elif isinstance(term, Number):
            constant += term.value
        else:
            opened.append(term)
    if len(opened) == 1 and constant == 0.0:
        return opened[0]
    return Sum(tuple(opened), constant) if opened else Number(constant)


def multiply(*factors: Expression) -> Expression:
    """A product; products among its factors are flattened, and a repeated factor is a square."""
    number, over, under = 1.0, list[Expression](), list[Expression]()
    for factor in factors:
        if isinstance(factor, Number):
            number *= factor.value
        elif isinstance(factor, Product):
            number *= factor.number
            over += factor.over
            under += factor.under
        elif over and factor == over[-1]:
            over[-1] = power(factor, 2.0)
        else:
            over.append(factor)
    if number == 1.0 and len(over) == 1 and not under:
        return over[0]
    return Product(number, tuple(over), tuple(under)) if over or under else Number(number)


def power(base: Expression, exponent: float) -> Expression:
    """A power; to the -1 it is a quotient."""
    if exponent == -1.0:
        return Product(1.0, (), (base,))
    return Power(base, Number(exponent))


def detached(x: Expression) -> Expression:
    """``x.data``; a number times it stays in front."""
    if isinstance(x, Product) and len(x.over) == 1 and not x.under:
        return multiply(Number(x.number), detached(x.over[0]))
    return x if isinstance(x, Call) and x.name == ".data" else Call(".data", (x,))


def reduced(symbol: str, axes: tuple[Axis, ...], body: Expression) -> Expression:
    """A sum or a maximum; a constant factor is moved in front of a sum."""
    if symbol == "Σ" and isinstance(body, Product) and body.number != 1.0 and body.over:
        inside = multiply(*body.over, Product(1.0, (), body.under))
        return multiply(Number(body.number), Reduce(symbol, axes, inside))
    return Reduce(symbol, axes, body)


def operands(x: Expression) -> tuple[Expression, ...]:
    """The direct operands of an expression."""
    match x:
        case Sum(terms):
            return terms
        case Product(_, over, under):
            return (*over, *under)
        case Power(base, exponent):
            return (base, exponent)
        case Reduce(_, _, body):
            return (body,)
        case Call(_, within):
            return within
    return ()


def walk(x: Expression) -> Iterator[Expression]:
    """An expression and all of its subexpressions, in reading order."""
    yield x
    for within in operands(x):
        yield from walk(within)


def is_open(x: Expression) -> bool:
    """Whether an index in it has no formula."""
    return any(isinstance(y, Ref) and None in y.places for y in walk(x))


def is_complete(x: Expression) -> bool:
    """Whether every index in it is known, those that integers decide too."""
    refs = [y for y in walk(x) if isinstance(y, Ref)]
    places = [place for ref in refs for place in ref.places]
    return not any(ref.joined for ref in refs) and all(
        place is not None
        and not (
            isinstance(place, Select)
            and (None in place.at or not place.exact or isinstance(place.integers, Several))
        )
        for place in places
    )


def covers(x: Expression, axis: Axis) -> bool:
    """Whether an axis indexes an array that is read over its full length."""
    found: list[tuple[Place, int]] = []
    for y in walk(x):
        if isinstance(y, Ref):
            sizes = [len(y.arrays)] * (len(y.arrays) > 1) + [a.count for a in y.arrays[0].axes]
            found += zip(y.places, sizes, strict=False)
            for place in y.places:
                if isinstance(place, Select):
                    along = [a.count for a in place.integers.axes]
                    found += zip(place.at, along, strict=False)
    return any(
        isinstance(place, AffineIndex) and place.plain is axis and axis.count == size
        for place, size in found
    )


def rebuilt(
    x: Expression, change: Callable[[Ref], Expression], axes: Mapping[Axis, Axis] | None = None
) -> Expression:
    """The expression with each reference replaced, and perhaps other axes to sum over."""

    def each(some: tuple[Expression, ...]) -> list[Expression]:
        return [rebuilt(y, change, axes) for y in some]

    match x:
        case Ref():
            return change(x)
        case Sum(terms, constant):
            return add(each(terms), constant)
        case Product(number, over, under):
            below = [power(y, -1.0) for y in each(under)]
            return multiply(Number(number), *each(over), *below)
        case Power(base, exponent):
            return Power(*each((base, exponent)))
        case Reduce(symbol, some, body):
            chosen = tuple([(axes or {}).get(axis, axis) for axis in some])
            return reduced(symbol, chosen, *each((body,)))
        case Call(".data", within):
            return detached(*each(within))
        case Call(name, within):
            return Call(name, tuple(each(within)))
    return x


def moved(x: Expression, places: Mapping[Axis, AffineIndex]) -> Expression:
    """The expression with axes replaced by indices; the axes of its sums are renamed."""
    own: dict[Axis, Axis] = {}
    there = dict(places)
    for inner in walk(x):
        for axis in inner.axes if isinstance(inner, Reduce) else ():
            length = None if axis.length is None else axis.length.substitute(there)
            own[axis] = replace(axis, length=length)
            there[axis] = AffineIndex.along(own[axis])

    def move(place: Place) -> Place:
        match place:
            case AffineIndex():
                return place.substitute(there)
            case Select(_, at):
                inside = [None if i is None else i.substitute(there) for i in at]
                return replace(place, at=tuple(inside))
        return None

    return rebuilt(x, lambda ref: replace(ref, places=tuple(map(move, ref.places))), own)


# --- text -----------------------------------------------------------------------------------------


@dataclass(eq=False)
class Letters:
    """The letters of the axes of one formula."""

    taken: Collection[str]
    given: dict[Axis, str] = field(default_factory=dict)

    def of(self, axes: tuple[Axis, ...], x: Expression) -> Letters:
        """These letters, after giving some to a formula with these axes on its left."""
        used = set(self.taken)
        for axis in axes:
            self._give(axis, used)
        self._within(x, used)
        return self

    def _within(self, x: Expression, used: set[str]) -> None:
        """Letters for the sums in a formula; sums beside each other may share them."""
        if isinstance(x, Reduce):
            used = set(used)
            for axis in x.axes:
                self._give(axis, used)
        for y in operands(x):
            self._within(y, used)

    def _give(self, axis: Axis, used: set[str]) -> None:
        """A letter of the axis's family, or another free one."""
        if axis not in self.given:
            several = (f"{letter}{n}" for n in range(1, 100) for letter in "ijk")
            choices = (*FAMILIES[axis.family], *FAMILIES["unit"], *several)
            self.given[axis] = next(letter for letter in choices if letter not in used)
        used.add(self.given[axis])

    def bounded(self, axis: Axis, body: Expression | None = None) -> str:
        """An axis with its bound, where no array in the body shows it: ``u≤t``, ``j<4``."""
        letter = self.given[axis]
        if axis.length is not None:
            last = AffineIndex(axis.length.constant - 1, axis.length.parts)
            if last.constant <= 0:
                return f"{letter}≤{last.text(self.given)}"
            return f"{letter}<{axis.length.text(self.given)}"
        return letter if body is None or covers(body, axis) else f"{letter}<{axis.count}"


def number_text(x: float) -> str:
    """A number in few digits."""
    return f"{x:.6g}"


def place_text(place: Place, letters: Letters) -> str:
    """An index as it is written between brackets."""
    match place:
        case AffineIndex():
            return place.text(letters.given)
        case Select(integers, at, exact):
            inside = "…" if None in at else ",".join(i.text(letters.given) for i in at if i)
            chosen = f"{integers.name}[{inside}]" if at else integers.name
            return chosen if exact else f"#{chosen}"
    return "…"


def _reference(x: Ref, letters: Letters) -> str:
    places = list(x.places)
    name = x.arrays[0].name
    if len(x.arrays) > 1:
        names = [a.name for a in x.arrays]
        names = names if len(names) <= 4 else [*names[:2], "…", names[-1]]
        name = "{" + ",".join(names) + "}"
        if places and not x.joined and places[0] is not None:
            name += f"_{place_text(places.pop(0), letters)}"
    if not places:
        return name
    inside = "…" if None in places else ",".join(place_text(p, letters) for p in places)
    return f"{name}[{inside}]"


def text(x: Expression, letters: Letters, level: int = 0) -> str:
    """An expression as text, in brackets where its context binds tighter.

    Levels: 0 a whole formula, 1 a term, 2 a factor, 3 the operand of a power or of ``.data``.
    """
    own, made = _text(x, letters)
    return f"({made})" if own < level else made


def _text(x: Expression, letters: Letters) -> tuple[int, str]:
    """An expression as text, and how tightly it binds."""
    match x:
        case Number(value):
            return (3 if value >= 0 else 0), number_text(value)
        case Ref():
            return 3, _reference(x, letters)
        case Sum():
            return 0, _sum(x, letters)
        case Product():
            return 1, _product(x, letters)
        case Power(base, Number(value)):
            raised = SUPERSCRIPTS.get(value, f"**{number_text(value)}")
            return 2, text(base, letters, 3) + raised
        case Power(base, exponent):
            return 2, f"{text(base, letters, 3)}**{text(exponent, letters, 3)}"
        case Reduce(symbol, axes, body):
            bounds = [letters.bounded(axis, body) for axis in axes]
            joint = "" if all(len(b) == 1 for b in bounds) else ","
            return 1, f"{symbol}_{joint.join(bounds)} {text(body, letters, 1)}"
        case Call(".data", (within,)):
            return 3, text(within, letters, 3) + ".data"
        case Call("<" | "≤" | "==" as symbol, (a, b)):
            return -1, f"{text(a, letters)} {symbol} {text(b, letters)}"
        case Call(name, within):
            return 3, f"{name}({', '.join(text(y, letters, -1) for y in within)})"


def _sum(x: Sum, letters: Letters) -> str:
    words: list[tuple[bool, str]] = []
    for term in x.terms:
        negative = isinstance(term, Product) and term.number < 0
        plain = multiply(Number(-1.0), term) if negative else term
        words.append((negative, text(plain, letters, 1)))
    if x.constant:
        words.append((x.constant < 0, number_text(abs(x.constant))))
    if words[0][0]:  # one that is added comes first
        words.sort(key=lambda word: word[0])
    first = ("-" if words[0][0] else "") + words[0][1]
    return first + "".join((" - " if minus else " + ") + word for minus, word in words[1:])


def _product(x: Product, letters: Letters) -> str:
    size = abs(x.number)
    parts = round(1 / size) if size and math.isfinite(size) else 0
    below = [text(y, letters, 2) for y in x.under]
    if 1 < parts < 1e6 and 1.0 / parts == size:
        below.append(str(parts))
        size = 1.0
    over = sorted(x.over, key=lambda y: isinstance(y, Reduce))
    last = len(over) - 1 if not x.under else -1  # there a sum needs no brackets
    factors = [text(y, letters, 1 if k == last else 2) for k, y in enumerate(over)]
    if size != 1.0 or not factors:
        factors.insert(0, number_text(size))
    return ("-" if x.number < 0 else "") + " / ".join(["·".join(factors), *below])
