"""Formulas as expressions of array source.

In: an ``Expression`` in index notation, the axes of its line, and the ``Scope`` of arrays. Out: a
``Term``: views of arrays, elementwise operations over common axes, and sums (``sums``). Ragged axes
are padded: what an undefined or infinite number could come of is masked first, so that no
``0 * inf`` gets into a derivative.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

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
)
from chainrule.compiler.translate import sums
from chainrule.compiler.translate.scope import Scope, Stored
from chainrule.compiler.translate.terms import (
    ATOM,
    POWER,
    PRODUCT,
    SUM,
    Term,
    Untranslatable,
    number_code,
)
from chainrule.compiler.translate.views import Known, Viewer
from chainrule.core import ops

#: functions that are finite, with their derivatives, wherever their operand is
SAFE = frozenset(
    "tanh sin cos atan abs relu leaky_relu sigmoid softplus silu gelu gelu_tanh erf erfc asinh "
    "maximum minimum clip".split()
)
#: those of them that give 0 for 0
ODD = frozenset("tanh sin atan abs relu leaky_relu silu gelu gelu_tanh erf asinh".split())
COMPARISONS = {"<": "<", "≤": "<=", "==": "=="}


class Writer:
    """Writes the expressions of one line; ``order`` is the order of the axes in its arrays."""

    in_loop = False  # arrays are read one iteration at a time

    def __init__(
        self,
        scope: Scope,
        order: Sequence[Axis],
        letters: Mapping[Axis, str],
        detached: bool = False,
    ) -> None:
        self.scope, self.dialect, self.order = scope, scope.dialect, list(order)
        self.letters = letters  # as the formula has them
        self.np = scope.dialect.module
        self.detached = detached  # no derivative is asked for
        self.seen: list[tuple[Axis, ...]] = []  # the axes of what it read and contracted
        self.viewer = Viewer(scope.dialect, scope.helpers, self.rank, self._chosen)

    # --- axes -------------------------------------------------------------------------------------

    def rank(self, axis: Axis) -> int:
        """Where an axis comes among the others; a new one comes last."""
        if axis not in self.order:
            self.order.append(axis)
        return self.order.index(axis)

    def union(self, terms: Iterable[Term]) -> tuple[Axis, ...]:
        """The axes of some terms, in order."""
        return tuple(sorted({axis for term in terms for axis in term.axes}, key=self.rank))

    def full(self, term: Term, axes: Sequence[Axis]) -> str:
        """A term with all of these axes."""
        if set(term.axes) == set(axes):
            return term.ordered(axes).code
        shape = ", ".join(str(axis.count) for axis in axes)
        whole = f"({shape}{',' * (len(axes) == 1)})"
        return f"{self.np}.broadcast_to({self.scope.tensor(term).aligned(axes)}, {whole})"

    def masked(self, term: Term, fill: str, axes: Sequence[Axis] | None = None) -> Term:
        """With something else beyond the ends of (some of) its ragged axes."""
        for axis in term.ragged if axes is None else axes:
            for _, other in axis.length.parts if axis.length is not None else ():
                self.rank(other)
            mask = self.scope.mask(axis, self.order)
            every = self.union([mask, term])
            code = f"{self.np}.where({mask.aligned(every)}, {term.aligned(every)}, {fill})"
            term = Term(code, every, ATOM, term.zero - {axis})
        return term

    # --- expressions ------------------------------------------------------------------------------

    def value(self, x: Expression) -> Term:
        """An expression as a term."""
        match x:
            case Number(value):
                return Term(number_code(value), (), ATOM if value >= 0 else SUM, plain=True)
            case Ref():
                term = self.ref(x)
                self.seen.append(term.axes)
                return term
            case Sum(terms, constant):
                return self.add(terms, constant)
            case Product(number, over, under):
                return self.multiply(number, [self.value(y) for y in over], under)
            case Power(base, Number(exponent)):
                return self._power(self.value(base), exponent)
            case Power(base, exponent):
                a, b = (self.masked(self.value(y), "1.0") for y in (base, exponent))
                every = self.union([a, b])
                code = f"{a.aligned(every, ATOM)} ** {b.aligned(every, ATOM)}"
                return Term(code, every, POWER)
            case Reduce(symbol, axes, body):
                for axis in axes:
                    self.rank(axis)
                if symbol == "Σ":
                    return sums.summed(self, axes, body)
                return sums.extreme(self, symbol, axes, self.value(body))
            case Call(name, within):
                return self._call(name, within)

    def add(self, terms: Sequence[Expression], constant: float = 0.0) -> Term:
        """A sum of terms; what is subtracted comes last."""
        made: list[tuple[bool, Term]] = []
        for x in terms:
            minus = isinstance(x, Product) and x.number < 0
            if isinstance(x, Product) and minus:
                x = replace(x, number=-x.number)
            made.append((minus, self.value(x)))
        return self.added(made, constant)

    def added(self, made: list[tuple[bool, Term]], constant: float = 0.0) -> Term:
        """The sum of terms with signs."""
        every = self.union(term for _, term in made)
        made = sorted(made, key=lambda pair: pair[0])
        words = [(minus, term.aligned(every, PRODUCT)) for minus, term in made]
        if constant:
            number = (constant < 0, number_code(abs(constant)))
            words.insert(0 if words[0][0] and constant > 0 else len(words), number)
        code = ("-" if words[0][0] else "") + words[0][1]
        code += "".join((" - " if minus else " + ") + word for minus, word in words[1:])
        zeros = [term.zero for _, term in made]
        zero = frozenset[Axis]() if constant else frozenset.intersection(*zeros)
        return Term(code, every, SUM, zero)

    def multiply(self, number: float, over: list[Term], under: Sequence[Expression] = ()) -> Term:
        """A product of a number and terms, divided by expressions."""
        if number == 1.0 and len(over) == 1 and not under:
            return over[0]
        below = [self.masked(self.value(x), "1.0") for x in under]
        return self.multiplied(number, over, below)

    def multiplied(self, number: float, over: list[Term], below: Sequence[Term] = ()) -> Term:
        """A product, divided by terms that are nowhere 0."""
        every = self.union([*over, *below])
        over = sorted(over, key=lambda term: len(term.axes))  # what is multiplied stays small
        words = [t.aligned(every, PRODUCT if k == 0 else POWER) for k, t in enumerate(over)]
        divisors = [term.aligned(every, POWER) for term in below]
        size, sign = abs(number), "-" if number < 0 else ""
        parts = round(1 / size) if size and math.isfinite(size) else 0
        if 1 < parts < 1e6 and 1.0 / parts == size:
            divisors.append(number_code(float(parts)))
        elif size != 1.0:
            words.insert(0, number_code(size))
        code = " / ".join([" * ".join(words) if words else "1.0", *divisors])
        zero = frozenset[Axis]().union(*[term.zero for term in over])
        return Term(sign + code, every, SUM if sign else PRODUCT, zero)

    def _power(self, base: Term, exponent: float) -> Term:
        whole = exponent == int(exponent) if math.isfinite(exponent) else False
        if not (whole and exponent > 0):
            base = self.masked(base, "1.0")
        if exponent == -0.5 and self.dialect.rsqrt:
            return Term(f"{self.dialect.rsqrt}({base.code})", base.axes)
        if exponent == 0.5:
            return Term(f"{self.np}.sqrt({base.code})", base.axes)
        if exponent == -1.0:
            return self.multiplied(1.0, [], [base])
        word = str(int(exponent)) if whole else number_code(exponent)
        if whole and exponent < 0:  # integers have no such power in numpy
            word = f"{exponent:.1f}"
        zero = base.zero if whole and exponent > 0 else frozenset[Axis]()
        return Term(f"{base.bracketed(ATOM)} ** {word}", base.axes, POWER, zero)

    def _call(self, name: str, within: tuple[Expression, ...]) -> Term:
        if name == ".data":
            before, self.detached = self.detached, True
            term = self.value(within[0])
            self.detached = before
            return (
                replace(term, code=self.dialect.detach.format(term.code), level=ATOM)
                if self.dialect.gradients
                else term
            )
        if name == "where":
            return self._where(*within)
        if name in COMPARISONS:
            truth = self.truth(Call(name, within))
            one = self.scope.tensor(Term("1.0", plain=True))
            return Term(f"{self.np}.where({truth.code}, {one.code}, 0.0)", truth.axes)
        terms = [self.value(x) for x in within]
        if name in ("max", "min"):
            word = self._function("larger" if name == "max" else "smaller")
            made = terms[0]
            for term in terms[1:]:
                every = self.union([made, term])
                made = Term(f"{word}({made.aligned(every)}, {term.aligned(every)})", every)
            return made
        zero = terms[0].zero if name in ODD else frozenset[Axis]()
        if name == "exp":  # exp(-inf) is 0, and so is its derivative
            terms = [self.masked(terms[0], f"-{self.np}.inf")]
            zero = frozenset(terms[0].ragged)
        elif name not in SAFE:
            terms = [self.masked(term, "0.5" if name == "atanh" else "1.0") for term in terms]
        every = self.union(terms)
        row = ops.TABLE.get(name) or ops.BLOCKS.get(name)
        count = len(terms) if row is None else row.arity  # parameters come after the operands
        terms = [*map(self.scope.tensor, terms[:count]), *terms[count:]]
        inside = ", ".join(term.aligned(every) for term in terms)
        return Term(f"{self._function(name)}({inside})", every, ATOM, zero)

    def _function(self, name: str) -> str:
        """The function's name in this dialect."""
        word = self.dialect.functions.get(name)
        if word is None:
            raise Untranslatable(f"{self.dialect.name} source has no {name}")
        if word in self.dialect.helpers:
            self.scope.helpers.add(word)
        return word

    def truth(self, x: Expression) -> Term:
        """A condition: a comparison, or a number that is positive where it holds."""
        if isinstance(x, Call) and x.name in COMPARISONS:
            a, b = (self.value(y) for y in x.operands)
            every = self.union([a, b])
            code = f"{a.aligned(every, SUM)} {COMPARISONS[x.name]} {b.aligned(every, SUM)}"
            return Term(code, every, SUM)
        term = self.value(x)
        return Term(f"{term.bracketed(SUM)} > 0", term.axes, SUM)

    def _where(self, condition: Expression, a: Expression, b: Expression) -> Term:
        if isinstance(condition, Number):
            return self.value(a if condition.value else b)
        terms = [self.truth(condition), self.scope.tensor(self.value(a)), self.value(b)]
        every = self.union(terms)
        code = f"{self.np}.where({', '.join(term.aligned(every) for term in terms)})"
        return Term(code, every, ATOM, terms[1].zero & terms[2].zero)

    # --- references -------------------------------------------------------------------------------

    def ref(self, x: Ref) -> Term:
        """The numbers of an array, or of several that are stacked."""
        if x.joined or None in x.places:
            raise Untranslatable("an index has no formula")
        places = [place for place in x.places if place is not None]
        if len(x.arrays) == 1:
            return self._array(x, places)
        which = places[0]
        if isinstance(which, AffineIndex) and not which.parts:
            return self.ref(Ref((x.arrays[which.constant],), tuple(places[1:])))
        stored = [self.scope.find(array) for array in x.arrays]
        first = stored[0]
        if any(other.offset for other in stored):
            raise Untranslatable("arrays of different kinds are read together")
        codes = [self._turned(other) for other in stored]
        if all(other.turns == first.turns for other in stored):
            codes, turns = [self._number(other) for other in stored], first.turns
        else:
            turns = tuple(range(len(first.turns)))
        sizes = [first.sizes[first.turns.index(k)] for k in turns]
        code = f"{self.np}.stack([{', '.join(codes)}])"
        own = [which, *[places[1 + k] for k in turns]]
        return self.viewer.view(code, [len(x.arrays), *sizes], own)

    def _array(self, x: Ref, places: list[Known]) -> Term:
        (array,) = x.arrays
        constant = tuple([p.constant for p in places if isinstance(p, AffineIndex) and not p.parts])
        if array not in self.scope.stored and array in self.scope.pieces:
            piece = self.scope.pieces[array].get(constant)
            if piece is not None and len(constant) == len(places):
                return Term(piece)
        if array in self.scope.lasts and isinstance(places[0], AffineIndex):
            count, last = self.scope.lasts[array]
            if not places[0].parts and places[0].constant == count - 1:
                return self._read(last, places[1:])
        stored = self.scope.find(array)
        if stored.offset and isinstance(places[0], AffineIndex):
            first = replace(places[0], constant=places[0].constant + stored.offset)
            places = [first, *places[1:]]
        term = self._read(stored, places)
        return self.scope.numbers(term) if stored.integers else term

    def _read(self, stored: Stored, places: Sequence[Known]) -> Term:
        own = [places[k] for k in stored.turns]
        term = self.viewer.view(stored.code, stored.sizes, own)
        zero = [own[k] for k in stored.zero]
        return replace(
            term,
            zero=frozenset(
                place.plain
                for place in zero
                if isinstance(place, AffineIndex)
                and place.plain is not None
                and place.plain.length is not None
            ),
        )

    def _chosen(self, place: Select) -> Term:
        """The integers that choose an index."""
        stored = self.scope.stored.get(place.integers)
        if not place.exact or None in place.at or stored is None or not stored.integers:
            raise Untranslatable("an index is computed from integers")
        return self._read(stored, [index for index in place.at if index is not None])

    def _number(self, stored: Stored) -> str:
        """An array as numbers, also if it is one of integers."""
        return self.scope.numbers(Term(stored.code)).code if stored.integers else stored.code

    def _turned(self, stored: Stored) -> str:
        """An array with its dimensions as the formula has them."""
        back = tuple([stored.turns.index(k) for k in range(len(stored.turns))])
        if back == tuple(range(len(back))):
            return self._number(stored)
        return f"{stored.code}.transpose{back}"
