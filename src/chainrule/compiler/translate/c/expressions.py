"""The value of a formula, and its derivatives, as statements.

In: an expression of index notation. Out, forward: loops that compute its number; backward: loops
that add its derivative by each number it reads, times the adjoint of its result, to that number's
adjoint. What is costly and needed again backward is kept in work memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

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
    Sum,
    Table,
    operands,
)
from chainrule.compiler.translate.c.hoisting import TableAxis, depends, is_costly
from chainrule.compiler.translate.c.languages import ATOM, Language
from chainrule.compiler.translate.c.rows import Functions, Piece
from chainrule.compiler.translate.c.storage import Storage, Tabled, affine
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.core import ops, rounding
from chainrule.core.ops import Op

LONG = 40  # characters of a factor that gets a name
COMPARISONS = {"<": ops.less, "≤": ops.less_equal, "==": ops.equal}
WORDS = {"max": ops.first_max, "min": ops.first_min, "where": ops.select, **COMPARISONS}
#: of what jumps where its operand is an integer: that operand, made of the others
JUMPS: dict[Op, Callable[..., Piece]] = {
    rounding.floor: lambda x: x,
    rounding.ceil: lambda x: x,
    rounding.trunc: lambda x: x,
    rounding.round: lambda x: x - 0.5,
    rounding.mod: lambda a, b: a / b,
    rounding.floor_divide: lambda a, b: a / b,
}


@dataclass(eq=False)
class Kept:
    """Numbers within a formula that are kept for the backward pass."""

    array: Array
    axes: tuple[Axis, ...]

    @property
    def ref(self) -> Ref:
        """The one that a loop is at."""
        return Ref((self.array,), tuple([AffineIndex.along(axis) for axis in self.axes]))


class Writer:
    """Writes one formula after the other; ``kept`` is what backward formulas asked for."""

    def __init__(
        self,
        language: Language,
        functions: Functions,
        storage: Storage,
        rules: dict[str, Op],
        exact: set[Array],
        steep: bool,
    ) -> None:
        self.language, self.functions, self.storage = language, functions, storage
        self.rules, self.exact = rules, exact
        self.steep = steep  # a derivative may be infinite where the function is defined
        self.letters: dict[Axis, str] = {}
        self.around: list[Axis] = []  # the loops at hand, outermost first
        self.kept: dict[tuple[Array, Expression], Kept] = {}
        self.line: Array | None = None  # the array that the formula at hand defines
        self.whole: tuple[Expression, Ref] | None = None  # the formula, and where its value is
        self.backward = False
        self.locals: set[str] = set()  # names of the function at hand

    # --- loops ------------------------------------------------------------------------------------

    @contextmanager
    def loops(self, axes: Sequence[Axis]) -> Iterator[None]:
        """Loops over some axes."""
        if not axes:
            yield
            return
        axis, *rest = axes
        first, last = "0", str(axis.count)
        if isinstance(axis, TableAxis):
            at = self._index(axis.at)
            first, last = f"{axis.starts}[{at}]", f"{axis.starts}[{self._index(axis.at, 1)}]"
        elif axis.length is not None:
            last = self._index(axis.length)
        self.around.append(axis)
        with self.language.loop(self.letters[axis], first, last), self.loops(rest):
            yield
        self.around.pop()

    def _index(self, index: AffineIndex, more: int = 0) -> str:
        parts = {axis: times for times, axis in index.parts}
        return affine(index.constant + more, parts, [], self.letters)

    def name(self, word: str) -> str:
        """A name of a local variable."""
        used = {*self.locals, *self.letters.values(), *self.storage.parameters}
        several = (f"{word}{k}" for k in itertools.count(2))
        name = next(x for x in itertools.chain([word], several) if x not in used)
        self.locals.add(name)
        return name

    def named(self, x: Piece, word: str = "x") -> Piece:
        """A piece that may be repeated."""
        if len(x.text) <= LONG and (x.level == ATOM and "(" not in x.text):
            return x
        name = self.name(word)
        self.language.constant(name, x.text)
        return Piece(name, ATOM, self.functions)

    # --- values -----------------------------------------------------------------------------------

    def value(self, x: Expression) -> Piece:
        """The number that an expression has, after what must be computed before it."""
        if self.backward and self.whole is not None and x == self.whole[0]:
            return self.read(self.whole[1])
        if is_costly(x):
            assert self.line is not None
            key = self.line, x
            if self.backward and key not in self.kept:
                self.kept[key] = self._keep(x)
            if key in self.kept:
                place = self.storage.place(self.kept[key].ref, self.letters)
                found = Piece(place, ATOM, self.functions)
                if not self.backward:
                    value = self._value(x)
                    self.language.assign(place, value.text)
                    found = value if value.text in self.locals else found
                return found
        return self._value(x)

    def _keep(self, x: Expression) -> Kept:
        """Work memory for a number in the loops at hand."""
        assert self.line is not None
        word = "sum" if isinstance(x, Reduce) and x.symbol == "Σ" else "power"
        if isinstance(x, (Reduce, Call)) and word == "power":
            word = x.symbol if isinstance(x, Reduce) else x.name
        axes = [axis for axis in self.around if depends(x, (axis,))]
        for axis in axes:
            if isinstance(axis, TableAxis):  # whose numbers are those of all sums
                axes = [axis]
        array = Array(self.storage.fresh(f"{self.line.name}_{word}"), tuple(axes))
        self.storage.work(array, tuple([axis.count for axis in axes]))
        return Kept(array, array.axes)

    def read(self, ref: Ref) -> Piece:
        """A number of an array."""
        return Piece(self.storage.place(ref, self.letters), ATOM, self.functions)

    def _value(self, x: Expression) -> Piece:
        match x:
            case Number(value):
                return self.functions.number(value)
            case Ref():
                return self.read(x)
            case Sum(terms, constant):
                return self._sum(terms, constant)
            case Product(number, over, under):
                return self._product(number, [*map(self.value, over)], [*map(self.value, under)])
            case Power(base, Number(p)):
                return self.functions.value(ops.pow, [self.value(base)], (p,))
            case Power(base, exponent):
                pieces = [self.value(base), self.value(exponent)]
                return self.functions.value(ops.power, pieces, ())
            case Reduce("Σ", axes, body):
                name = self.name("sum")
                self.language.variable(name, "0.0")
                with self.loops(axes):
                    self.language.add(name, self.value(body).text)
                return Piece(name, ATOM, self.functions)
            case Reduce(symbol, axes, body):
                name = self.name(symbol)
                infinite = float("-inf") if symbol == "max" else float("inf")
                self.language.variable(name, self.language.number(infinite)[0])
                best = Piece(name, ATOM, self.functions)
                with self.loops(axes):
                    self.language.assign(name, self._better(symbol, best, self.value(body)).text)
                return best
            case Call(".data", (within,)):
                return self.value(within)
            case Call(name, within):
                return self._call(name, within)
        raise AssertionError(x)

    def _better(self, symbol: str, best: Piece, x: Piece) -> Piece:
        """The larger or smaller of two numbers, the first of equals, nan if one is."""
        a, b = (Piece(letter, ATOM, self.functions) for letter in "ab")
        first = (a >= b if symbol == "max" else a <= b).choose(a, b)
        text = Piece("a != a", 0, self.functions).choose(a, first).text
        helper = self.language.function("{}", ["a", "b"], (), text)
        return self.functions.plain(helper, "larger" if symbol == "max" else "smaller", best, x)

    def _sum(self, terms: Sequence[Expression], constant: float) -> Piece:
        """Terms that are added first, then those that are subtracted."""
        pieces = [self.value(term) for term in terms]
        pieces.sort(key=lambda p: p.text.startswith("-"))
        if constant > 0.0 and pieces[0].text.startswith("-"):
            pieces, constant = [self.functions.number(constant), *pieces], 0.0
        total = pieces[0]
        for piece in pieces[1:]:
            total = total + piece
        return total + constant if constant else total

    def _product(self, number: float, over: Sequence[Piece], under: Sequence[Piece]) -> Piece:
        made: Piece | None = None if number == 1.0 and over else self.functions.number(number)
        for factor in over:
            made = factor if made is None else made * factor
        assert made is not None
        for factor in under:
            made = made / factor
        return made

    def operation(self, name: str, within: Sequence[Expression]) -> tuple[Op, int, list[float]]:
        """The row of a call, how many of its operands are numbers, and its parameters."""
        op = WORDS.get(name) or self.rules.get(name) or ops.TABLE.get(name)
        if op is None:
            raise Untranslatable(f"C has no {name}")
        numbers = [x.value for x in within[op.arity :] if isinstance(x, Number)]
        return op, op.arity, numbers

    def _call(self, name: str, within: Sequence[Expression]) -> Piece:
        if name in ("max", "min") and len(within) > 2:
            best = self.value(within[0])
            for x in within[1:]:
                best = self._better(name, best, self.value(x))
            return best
        if name == "where":
            condition, a, b = within
            return self._condition(condition).choose(self.value(a), self.value(b))
        if name in COMPARISONS:
            return self._condition(Call(name, tuple(within))).choose(1.0, 0.0)
        op, count, parameters = self.operation(name, within)
        xs = [self.value(x) for x in within[:count]]
        if op in JUMPS and not self.backward and not all(map(self.is_exact, within[:count])):
            self._near_a_jump(JUMPS[op](*xs))
        elif op is rounding.sign and not self.backward and not self.is_exact(within[0]):
            self._unsure(abs(xs[0]) <= 1e-9)
        return self.functions.value(op, xs, parameters)

    def _condition(self, x: Expression) -> Piece:
        """A comparison, or any number that stands for one."""
        if not (isinstance(x, Call) and x.name in COMPARISONS):
            return self.value(x) > 0.0
        a, b = [self.value(y) for y in x.operands]
        if not self.backward and not all(map(self.is_exact, x.operands)):
            a, b = self.named(a), self.named(b)
            self._near(a, b)
        found: Piece = a < b if x.name == "<" else a <= b if x.name == "≤" else a == b
        return found

    # --- what rounding may decide -----------------------------------------------------------------

    def is_exact(self, x: Expression) -> bool:
        """Whether it has the very bits that Python has: passed numbers, or selected from such."""
        match x:
            case Number():
                return True
            case Ref(arrays):
                owners = arrays[0].owners if isinstance(arrays[0], Tabled) else arrays
                return all(isinstance(a, Table) or a in self.exact for a in owners)
            case Call("<" | "≤" | "==" | "where" | "max" | "min" | "abs" | ".data", within):
                return all(map(self.is_exact, within))
            case Reduce("max" | "min", _, body):
                return self.is_exact(body)
        return False

    def _unsure(self, truth: Piece) -> None:
        self.language.either(self.storage.unsure(), truth.text)

    def _near(self, a: Piece, b: Piece) -> None:
        """Note two computed numbers so close that Python may find the other one larger."""
        one, other = (Piece(letter, ATOM, self.functions) for letter in "ab")
        size = abs(one) + abs(other)
        margin = (size > 1e-3).choose(size, 1e-3) * 1e-9
        text = (abs(one - other) <= margin).choose(1.0, 0.0).text
        helper = self.language.function("{}", ["a", "b"], (), text)
        self._unsure(self.functions.plain(helper, "near", a, b) > 0.0)

    def _near_a_jump(self, x: Piece) -> None:
        """Note a computed number so close to an integer that Python may find it beyond."""
        letter = Piece("x", ATOM, self.functions)
        whole = self.functions.call(f"{self.language.library}floor", letter + 0.5)
        size = abs(letter)
        text = (abs(letter - whole) <= (size > 1.0).choose(size, 1.0) * 1e-9).choose(1.0, 0.0).text
        helper = self.language.function("{}", ["x"], (), text)
        self._unsure(self.functions.plain(helper, "near_a_jump", x) > 0.0)

    # --- derivatives ------------------------------------------------------------------------------

    def is_active(self, x: Expression) -> bool:
        """Whether a derivative goes through it to the differentiated argument."""
        match x:
            case Ref(arrays):
                owners = arrays[0].owners if isinstance(arrays[0], Tabled) else arrays
                return any(a in self.storage.active for a in owners)
            case Call(".data" | "<" | "≤" | "=="):
                return False
            case Call("where", (_, a, b)):
                return self.is_active(a) or self.is_active(b)
        return any(map(self.is_active, operands(x)))

    def passed_on(self, x: Expression) -> Iterator[Array]:
        """The arrays that derivatives go to."""
        match x:
            case Ref(arrays):
                owners = arrays[0].owners if isinstance(arrays[0], Tabled) else arrays
                yield from [a for a in owners if a in self.storage.active]
            case _ if self.is_active(x):
                for y in operands(x):
                    yield from self.passed_on(y)

    def times(self, slope: Piece, g: Piece) -> Piece:
        """A slope times an adjoint; a zero on either side passes nothing on."""
        if not self.steep:
            over = re.fullmatch(r"1\.0 / ([^/* ]+|\(.*\))", slope.text)
            if over is not None:
                return g / Piece(over[1], ATOM, self.functions)
            return slope * g
        a, b = (Piece(letter, ATOM, self.functions) for letter in ("slope", "g"))
        zero = self.language.either_zero
        text = Piece(zero, 0, self.functions).choose(0.0, a * b).text
        helper = self.language.function("{}", ["slope", "g"], (), text)
        return self.functions.plain(helper, "chain", slope, g)

    def push(self, x: Expression, g: Piece) -> None:
        """Add an expression's derivatives, times the adjoint ``g`` of it, to adjoints."""
        if not self.is_active(x):
            return
        match x:
            case Ref():
                self._add(x, g)
            case Sum(terms):
                g = self.named(g, "g") if len(terms) > 1 else g
                for term in terms:
                    self.push(term, g)
            case Product():
                self._push_product(x, g)
            case Power(base, Number(p)):
                self._push_power(x, base, p, g)
            case Power(base, exponent):
                self._push_call(x, ops.power, (base, exponent), (), g)
            case Reduce("Σ", axes, body):
                g = self.named(g, "g")
                with self.loops(axes):
                    self.push(body, g)
            case Reduce():
                self._push_extreme(x, g)
            case Call("max" | "min" as symbol, within) if len(within) > 2:
                inner = Call(symbol, within[:-1])
                self._push_call(x, WORDS[symbol], (inner, within[-1]), (), g)
            case Call("where", (condition, a, b)):
                g, test = self.named(g, "g"), self._condition(condition)
                other = self.language.neither.format(f"({test.text})")
                for branch, truth in ((a, test.text), (b, other)):
                    if self.is_active(branch):
                        with self.language.when(truth):
                            self.push(branch, g)
            case Call(name, within):
                op, count, parameters = self.operation(name, within)
                self._push_call(x, op, within[:count], parameters, g)

    def _add(self, ref: Ref, g: Piece) -> None:
        text = self.storage.place(ref, self.letters, adjoint=True)
        condition = self.storage.has_adjoint(ref, self.letters)
        if condition is None:
            self.language.add(text, g.text)
            return
        with self.language.when(condition):
            self.language.add(text, g.text)

    def _push_product(self, x: Product, g: Piece) -> None:
        factors = [*x.over, *x.under]
        active = [k for k, factor in enumerate(factors) if self.is_active(factor)]
        needed = list(range(len(factors)))
        if len(active) == 1 and active[0] < len(x.over):
            needed = [k for k in needed if k != active[0]]
        pieces = {k: self.named(self.value(factors[k])) for k in needed}
        several = len(active) > 1
        g = self.named(g, "g") if several else g
        count = len(x.over)
        below = [pieces[k] for k in range(count, len(factors))]
        for k in active:
            others = [pieces[j] for j in range(count) if j != k]
            under = below if k < count else [*below, pieces[k]]
            number = x.number if k < count else -x.number
            if not others and not under:
                slope = number * g if number != 1.0 else g
            elif self.steep:
                slope = self.times(self._product(number, others, under), g)
            else:
                slope = self._product(number, [g, *others], under)
            self.push(factors[k], slope)

    def _push_power(self, x: Power, base: Expression, p: float, g: Piece) -> None:
        if p < 0.0 and p not in (-1.0, -2.0):  # y / x rather than another pow; x is not 0
            y, at = self.value(x), self.named(self.value(base))
            self.push(base, self.times(p * y / at, g))
            return
        self._push_call(x, ops.pow, (base,), (p,), g)

    def _push_call(
        self,
        x: Expression,
        op: Op,
        within: Sequence[Expression],
        parameters: Sequence[float],
        g: Piece,
    ) -> None:
        """The derivatives of an operation, by the row's own rules."""
        active = [k for k in op.differentiable if self.is_active(within[k])]
        slopes = {k: self.functions.slope(op, k, parameters) for k in active}
        slopes = {k: slope for k, slope in slopes.items() if slope.number != 0.0}
        used = {i for slope in slopes.values() for i in slope.used}
        unused = Piece("0.0", ATOM, self.functions)
        y = self.named(self.value(x), "y") if 0 in used else unused
        xs = [self.named(self.value(z)) if k in used else unused for k, z in enumerate(within, 1)]
        g = self.named(g, "g") if len(slopes) > 1 else g
        for k, slope in slopes.items():
            text = slope.text([y, *xs])
            self.push(within[k], text * g if slope.number is not None else self.times(text, g))

    def _push_extreme(self, x: Reduce, g: Piece) -> None:
        """The first of the equal numbers that are the largest gets it all."""
        best, g = self.named(self.value(x)), self.named(g, "g")
        found = self.name("found")
        self.language.variable(found, "0", "int")
        with self.loops(x.axes):
            condition = self.language.both.format(
                self.language.neither.format(found), f"{self.value(x.body).at(1)} == {best.text}"
            )
            with self.language.when(condition):
                self.language.assign(found, "1")
                self.push(x.body, g)
