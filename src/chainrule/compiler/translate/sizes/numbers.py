"""The plain numbers of formulas that depend on sizes, and which sizes the formulas are for.

In: the modules of several recordings, whose lines are the same but for numbers, sizes and indices.
Out: the same modules, with a reference in the place of each number that differs: ``x / T`` where
one has ``x / 16`` and the other ``x / 17``. From then on their text differs in integers only. And
conditions such as ``B - T ≥ 0``: no index is beyond the end of its array, no axis is empty. A slice
beyond the end would be a shorter one, silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
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
    add,
    multiply,
    power,
)
from chainrule.compiler.formulas.translation import Line
from chainrule.compiler.translate.module import Module
from chainrule.compiler.translate.rolling import Loop
from chainrule.compiler.translate.scope import Stored
from chainrule.compiler.translate.sizes.laws import Factor, Polynomial, Sizes, integer, real
from chainrule.compiler.translate.terms import Untranslatable

Row = Sequence[Expression]  # one for each recording


class Different(Untranslatable):
    """Recordings that are not of one structure."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"its formulas have another structure at other sizes; larger sizes may be alike: {what}"
        )


def explain_numbers(modules: Sequence[Module], sizes: Sizes) -> list[Polynomial]:
    """Replace the numbers that sizes explain, in place; what must not be negative."""
    if len({len(module.sections) for module in modules}) > 1:
        counts = ", ".join(f"{len(m.sections)} at {sizes.text(k)}" for k, m in enumerate(modules))
        raise Different(f"the number of lines ({counts})")
    explain = _Explain(modules, sizes)
    for some in zip(*[module.sections for module in modules], strict=True):
        rows = [section.lines for section in some]
        if len({len(row) for row in rows}) > 1:
            raise Different(f"a loop of {rows[0][0].array.name}")
        for lines in zip(*rows, strict=True):
            explain.line(lines)
        loops = [section for section in some if isinstance(section, Loop)]
        cumulated = [x.cumulated for x in loops if x.cumulated is not None]
        if cumulated and len(cumulated) < len(modules):
            raise Different(f"a loop of {rows[0][0].array.name}")
        if cumulated:
            terms = explain.each([x.terms for x in cumulated])
            for loop, old, new in zip(loops, cumulated, terms, strict=True):
                loop.cumulated = replace(old, terms=new)
        for refs in zip(*[loop.starts.values() for loop in loops], strict=True):
            explain.each(refs)
    return list(explain.conditions)


class _Explain:
    """Goes through the same expression of all modules at once."""

    def __init__(self, modules: Sequence[Module], sizes: Sizes) -> None:
        self.modules, self.sizes = modules, sizes
        self.known: list[dict[Factor, Array]] = [{} for _ in modules]
        self.formula = ""
        self.conditions: dict[Polynomial, None] = {}

    def line(self, lines: Sequence[Line]) -> None:
        self.formula = self.modules[0].lines.formula(lines[0])
        values = [line.value for line in lines if line.value is not None]
        if not values:
            return
        if len(values) < len(lines):
            raise Different(self.formula)
        self._not_empty([line.axes for line in lines])
        for line, value in zip(lines, self.each(values), strict=True):
            line.value = value

    def each(self, xs: Row) -> list[Expression]:
        """The expressions, one for each module, with references to what depends on sizes."""
        match xs[0]:
            case Number():
                numbers = [x.value for x in xs if isinstance(x, Number)]
                return self._same(xs, numbers) or self._number(numbers)
            case Sum(terms):
                sums = [x for x in xs if isinstance(x, Sum) and len(x.terms) == len(terms)]
                inside = self._all([x.terms for x in sums], xs)
                constants = [x.constant for x in sums]
                if len(set(constants)) == 1:
                    return [replace(x, terms=y) for x, y in zip(sums, inside, strict=True)]
                more = self._number(constants)
                return [add([*y, z]) for y, z in zip(inside, more, strict=True)]
            case Product(_, over, under):
                shape = (len(over), len(under))
                products = [
                    x for x in xs if isinstance(x, Product) and (len(x.over), len(x.under)) == shape
                ]
                above = self._all([x.over for x in products], xs)
                below = self._all([x.under for x in products], xs)
                numbers = [x.number for x in products]
                same = len(set(numbers)) == 1
                made: list[Expression] = [
                    Product(x if same else 1.0, a, b)
                    for x, a, b in zip(numbers, above, below, strict=True)
                ]
                return made if same else list(map(multiply, self._number(numbers), made))
            case Power():
                powers = [x for x in xs if isinstance(x, Power)]
                parts = self._all([(x.base, x.exponent) for x in powers], xs)
                return [Power(*x) for x in parts]
            case Reduce(symbol, axes):
                found = [x for x in xs if isinstance(x, Reduce) and x.symbol == symbol]
                found = [x for x in found if len(x.axes) == len(axes)]
                self._not_empty([x.axes for x in found])
                bodies = self._all([(x.body,) for x in found], xs)
                return [replace(x, body=y) for x, (y,) in zip(found, bodies, strict=True)]
            case Call(name):
                calls = [x for x in xs if isinstance(x, Call) and x.name == name]
                within = self._all([x.operands for x in calls], xs)
                return [Call(name, x) for x in within]
            case Ref(arrays, places):
                refs = [x for x in xs if isinstance(x, Ref)]
                kinds = {(len(x.arrays), len(x.places)) for x in refs}
                if len(refs) < len(xs) or kinds != {(len(arrays), len(places))}:
                    raise Different(self.formula)
                self._inside(refs)
                return list(xs)

    # --- which sizes are allowed ------------------------------------------------------------------

    def _not_negative(self, values: Sequence[int]) -> None:
        """Something that is not negative in any recording must not be with other sizes either."""
        if len(set(values)) == 1 or min(values) < 0:
            return
        law = integer(values, self.sizes)
        if law is None:
            raise Untranslatable(f"no size explains the range of an index: {self.formula}")
        self.conditions[law] = None

    def _not_empty(self, rows: Sequence[tuple[Axis, ...]]) -> None:
        if len({len(axes) for axes in rows}) > 1:
            raise Different(self.formula)
        for axes in zip(*rows, strict=True):
            self._not_negative([axis.count - 1 for axis in axes])

    def _inside(self, refs: Sequence[Ref]) -> None:
        """No index is beyond the end of its array."""
        rows = [_indices(ref) for ref in refs]
        if len({len(row) for row in rows}) > 1:
            raise Different(self.formula)
        for pairs in zip(*rows, strict=True):
            ends = [_range(index) for index, _ in pairs]
            self._not_negative([low for low, _ in ends])
            self._not_negative(
                [size - 1 - high for (_, high), (_, size) in zip(ends, pairs, strict=True)]
            )

    # --- numbers ----------------------------------------------------------------------------------

    def _same(self, xs: Row, numbers: Sequence[float]) -> list[Expression]:
        if len(numbers) < len(xs):
            raise Different(self.formula)
        return list(xs) if len(set(numbers)) == 1 else []

    def _all(self, rows: Sequence[tuple[Expression, ...]], xs: Row) -> list[tuple[Expression, ...]]:
        """The operands of all modules' expressions."""
        if len(rows) < len(xs) or len({len(row) for row in rows}) > 1:
            raise Different(self.formula)
        columns = [self.each(column) for column in zip(*rows, strict=True)]
        return [tuple([column[k] for column in columns]) for k in range(len(rows))]

    def _number(self, values: Sequence[float]) -> list[Expression]:
        """A number that differs, as an expression of the sizes."""
        law = real(values, self.sizes)
        if law is None:
            shown = [f"{x:.6g} at {self.sizes.text(k)}" for k, x in enumerate(values)]
            raise Untranslatable(
                f"no size explains the number that is {', '.join(shown[:3])}; pass it as an "
                f"argument: {self.formula}"
            )
        made: list[Expression] = []
        for k in range(len(self.modules)):
            refs = [(self._ref(k, factor), factor.below) for factor in law.factors]
            factors = [power(ref, -1.0) if below else ref for ref, below in refs]
            made.append(add([multiply(Number(law.number), *factors)], law.constant))
        return made

    def _ref(self, k: int, factor: Factor) -> Ref:
        """A reference to what depends on sizes, in one of the modules."""
        plain = replace(factor, below=False)
        array = self.known[k].get(plain)
        if array is None:
            array = self.known[k][plain] = Array(factor.text)
            self.modules[k].scope.stored[array] = Stored.plain(factor.code, ())
        return Ref((array,), ())


def _indices(ref: Ref) -> list[tuple[AffineIndex, int]]:
    """The indices of a reference, each with the size of what it indexes."""
    several = [len(ref.arrays)] * (len(ref.arrays) > 1)
    found: list[tuple[AffineIndex, int]] = []
    for place, size in zip(
        ref.places, [*several, *[axis.count for axis in ref.arrays[0].axes]], strict=False
    ):
        if isinstance(place, Select):
            inside = zip(place.at, place.integers.axes, strict=False)
            found += [(index, axis.count) for index, axis in inside if index is not None]
        elif place is not None:
            found.append((place, size))
    return found


def _range(index: AffineIndex) -> tuple[int, int]:
    """The smallest and the largest that an index is."""
    ends = [times * (axis.count - 1) for times, axis in index.parts]
    low, high = (sum(change(0, end) for end in ends) for change in (min, max))
    return index.constant + low, index.constant + high
