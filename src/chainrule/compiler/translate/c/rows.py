"""The op table's rows as C: a row's rules write themselves down, as they do in every engine.

In: rows, and pieces of text as their operands. Out: an expression, and the helper functions that it
calls: ``exp(x)`` is the C library's, ``sigmoid(x)`` a function made of the row's formula, and
``1.0 - y * y``, the derivative of tanh, is short enough to be written where it is needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chainrule.compiler.translate.c.languages import ATOM, COMPARISON, PRODUCT, SUM, Language
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.core import ops
from chainrule.core.ops import Op

SHORT = 44  # characters of a derivative that is written where it is needed
LONG = 72  # characters of an expression that is not repeated

CHEAP = ("fabs(", "abs(", "floor(", "div(")  # calls that may be repeated
#: names of local variables
LOCAL = re.compile(r"(\w|sum|max|min|found|step_?)\d*$")
#: what C99's math.h has
LIBRARY = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1"
    " fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10"
    " log1p log2 logb lrint lround modf nan nearbyint nextafter pow remainder remquo rint round"
    " scalbln scalbn sin sinh sqrt tan tanh tgamma trunc gamma j0 j1 jn y0 y1 yn drem significand"
    " isfinite isinf isnan signbit finite exp10 pow10 scalb sincos signgam abs labs div exit"
    " main".split()
)
KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for goto if"
    " inline int long register restrict return short signed sizeof static struct switch typedef"
    " union unsigned void volatile while and and_eq asm bitand bitor bool catch class compl"
    " const_cast delete dynamic_cast explicit export false friend mutable namespace new not not_eq"
    " operator or or_eq private protected public reinterpret_cast static_cast template this throw"
    " true try typeid typename using virtual wchar_t xor xor_eq nullptr constexpr decltype noexcept"
    " static_assert thread_local alignas alignof char8_t char16_t char32_t concept requires"
    " consteval constinit co_await co_return co_yield int32_t int64_t None True False".split()
)


@dataclass(eq=False)
class Functions:
    """The helper functions of a source: ``written`` by what they compute, in order."""

    language: Language
    taken: set[str]  # names that are something else
    written: dict[Any, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def number(self, x: float) -> Piece:
        """A plain number."""
        return Piece(*self.language.number(float(x)), self)

    def name(self, text: str, other: str) -> str:
        """A name for a function: this text, or another where it is taken."""
        text = re.sub(r"\W", "_", text)
        found, k = text, 1
        while found in LIBRARY or found in KEYWORDS or found in self.taken or LOCAL.match(found):
            found, k = (other if k == 1 else f"{other}{k}"), k + 1
        self.taken.add(found)
        return found

    def plain(self, text: str, name: str, *arguments: Piece) -> Piece:
        """A call of a helper with this text, in which ``{}`` is its name."""
        if text not in self.written:
            self.written[text] = self.name(name, f"{name}_"), ()
            self.texts.append(text.replace("{}", self.written[text][0]))
        return self.call(self.written[text][0], *arguments)

    def call(self, name: str, *arguments: Piece) -> Piece:
        """A call."""
        return self.piece(f"{name}({', '.join(x.text for x in arguments)})", ATOM, *arguments)

    def piece(self, text: str, level: int, *parts: Piece) -> Piece:
        """A piece of some parts; under a name of its own where it is long, inside a helper."""
        lets = next((p.lets for p in parts if p.lets is not None), None)
        costly = text.endswith(")") and text[0].isalpha() and not text.startswith(CHEAP)
        if lets is not None and level > COMPARISON and (len(text) > LONG or costly):
            lets.append((f"t{len(lets) + 1}", text))
            return Piece(lets[-1][0], ATOM, self, lets)
        return Piece(text, level, self, lets)

    # --- rows -------------------------------------------------------------------------------------

    def value(self, op: Op, xs: Sequence[Any], parameters: Sequence[float]) -> Piece:
        """An operation on pieces."""
        if op is ops.pow:
            return self._power(xs[0], parameters[0])
        if op is ops.add:
            return xs[0] + xs[1]  # type: ignore[no-any-return]
        if op is ops.mul:
            return xs[0] * xs[1]  # type: ignore[no-any-return]
        scalar = getattr(op.forward, "scalar", None)
        if scalar is not None:
            if scalar.__name__ not in LIBRARY or getattr(math, scalar.__name__) is not scalar:
                raise Untranslatable(f"C has no {scalar.__name__}")
            return self.call(self.language.library + scalar.__name__, *xs)
        if op is ops.abs:
            return self.call(self.language.size, *xs)
        return self._helper((op, *parameters), op.name, op.forward, xs, parameters, ())

    def slope(self, op: Op, k: int, parameters: Sequence[float]) -> Slope:
        """The derivative of an operation by its operand ``k``."""
        rule = op.partials[k]
        probe = [Piece(f"@{i}@", ATOM, self) for i in range(op.arity + 1)]
        known = len(self.texts), dict(self.written), set(self.taken)
        found = self._traced(op, rule, probe, parameters)
        del self.texts[known[0] :]  # only what is written calls helpers
        self.written, self.taken = known[1], known[2]
        used = {int(i) for i in re.findall(r"@(\d+)@", found.text)}
        number = float(found.text) if not used and _is_number(found.text) else None
        if len(found.text) <= SHORT:
            return Slope(used, number, lambda pieces: self._traced(op, rule, pieces, parameters))
        name = f"d_{op.name}" if len(op.differentiable) == 1 else f"d_{op.name}_{'abc'[k]}"

        def apply(pieces: Sequence[Any]) -> Piece:
            return self._helper((op, k, *parameters), name, rule, pieces, parameters, ("y",))

        return Slope(used, number, apply)

    def _traced(
        self, op: Op, rule: Callable[..., Any], pieces: Sequence[Any], parameters: Sequence[float]
    ) -> Piece:
        try:
            return self._piece(rule(*pieces, *parameters))
        except Untranslatable:
            raise
        except Exception as error:  # opaque: it takes numbers only
            raise Untranslatable(f"C has no {op.name}: it is no formula") from error

    def _helper(
        self,
        key: tuple[Any, ...],
        name: str,
        rule: Callable[..., Any],
        xs: Sequence[Any],
        parameters: Sequence[float],
        before: tuple[str, ...],
    ) -> Piece:
        """A call of the helper function that a rule is; it takes what the rule needs only."""
        if key not in self.written:
            lets: list[tuple[str, str]] = []
            count = len(xs) - len(before)
            letters = [*before, *(["x"] if count == 1 else "abcdef"[:count])]
            pieces = [Piece(letter, ATOM, self, lets) for letter in letters]
            found = self._traced(key[0], rule, pieces, parameters)
            body = " ".join([found.text, *[text for _, text in lets]])
            used = [i for i, x in enumerate(letters) if re.search(rf"\b{x}\b", body)]
            suffix = "".join(f"_{re.sub(r'[^0-9a-z]', '_', f'{p:g}')}" for p in parameters)
            own = self.name(name + suffix, f"{name}{suffix}_value")
            given = [letters[i] for i in used] or letters[:1]
            self.texts.append(self.language.function(own, given, lets, found.text))
            self.written[key] = own, tuple(used) or (0,)
        own, used_ = self.written[key]
        return self.call(own, *[xs[i] for i in used_])

    def _power(self, x: Piece, p: float) -> Piece:
        """``x**p``; the powers that everybody uses need no pow."""
        one = self.number(1.0)
        if p in (2.0, 3.0):
            if re.fullmatch(r"\w+", x.text):
                return x * x if p == 2.0 else x * x * x
            names = {2.0: ("square", "x * x"), 3.0: ("cube", "x * x * x")}
            name, text = names[p]
            return self.plain(self.language.function("{}", ["x"], (), text), name, x)
        if p == 1.0:
            return x
        if p == 0.0:
            return one
        if p in (-1.0, -2.0, -0.5):
            return one / self._power(x, -p)
        if p == 0.5:
            return self.call(f"{self.language.library}sqrt", x)
        return self.call(f"{self.language.library}pow", x, self.number(p))

    def _piece(self, x: Any) -> Piece:
        return x if isinstance(x, Piece) else self.number(float(x))


@dataclass(frozen=True)
class Slope:
    """A derivative: which of y and the operands it needs, its number if it is one, its text."""

    used: set[int]
    number: float | None
    text: Callable[[Sequence[Any]], Piece]


@dataclass(frozen=True, eq=False)
class Piece:
    """A piece of an expression that behaves like a number, or like a condition."""

    text: str
    level: int
    functions: Functions
    lets: list[tuple[str, str]] | None = None

    def at(self, level: int) -> str:
        """Its text, in brackets where something that binds tighter is needed."""
        return f"({self.text})" if self.level < level else self.text

    def _binary(self, left: Any, symbol: str, right: Any) -> Piece:
        a, b = self.functions._piece(left), self.functions._piece(right)
        make = self.functions.piece
        if symbol == "*":
            if a.text == "1.0":
                return b
            if b.text == "1.0":
                return a
            if a.text == "-1.0":
                return -b
            if b.text == "-1.0":
                return -a
            return make(f"{a.at(PRODUCT)} * {b.at(ATOM)}", PRODUCT, a, b)
        if symbol == "/":
            return make(*self.functions.language.quotient(a.at(PRODUCT), b.at(ATOM)), a, b)
        if b.text == "0.0":
            return a
        if a.text == "0.0":
            return b if symbol == "+" else -b
        if b.text.startswith("-") and b.level >= PRODUCT:
            symbol, word = {"+": "-", "-": "+"}[symbol], b.text[1:]
        else:
            word = b.at(PRODUCT)  # a + (b + c) is rounded otherwise than a + b + c
        return make(f"{a.at(SUM)} {symbol} {word}", SUM, a, b)

    def __add__(self, other: Any) -> Piece:
        return self._binary(self, "+", other)

    def __radd__(self, other: Any) -> Piece:
        return self._binary(other, "+", self)

    def __sub__(self, other: Any) -> Piece:
        return self._binary(self, "-", other)

    def __rsub__(self, other: Any) -> Piece:
        return self._binary(other, "-", self)

    def __mul__(self, other: Any) -> Piece:
        return self._binary(self, "*", other)

    def __rmul__(self, other: Any) -> Piece:
        return self._binary(other, "*", self)

    def __truediv__(self, other: Any) -> Piece:
        return self._binary(self, "/", other)

    def __rtruediv__(self, other: Any) -> Piece:
        return self._binary(other, "/", self)

    def __neg__(self) -> Piece:
        if self.text.startswith("-") and self.level >= PRODUCT:
            level = ATOM if re.fullmatch(r"-[\w.]+", self.text) else PRODUCT
            return self.functions.piece(self.text[1:], level, self)
        return self.functions.piece(f"-{self.at(PRODUCT)}", PRODUCT, self)

    def __abs__(self) -> Piece:
        return self.functions.call(self.functions.language.size, self)

    def _compare(self, symbol: str, other: Any) -> Piece:
        right = self.functions._piece(other)
        return self.functions.piece(
            f"{self.at(SUM)} {symbol} {right.at(SUM)}", COMPARISON, self, right
        )

    def __lt__(self, other: Any) -> Piece:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Piece:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Piece:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Piece:
        return self._compare(">=", other)

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise Untranslatable("a rule branches in Python; rows branch through where() only")

    def choose(self, a: Any, b: Any) -> Piece:
        """``a`` where this condition holds, else ``b``."""
        one, other = self.functions._piece(a), self.functions._piece(b)
        text = self.functions.language.choice(self.text, one.text, other.text)
        return self.functions.piece(text, ATOM, self, one, other)

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Any:
        given = [x for x in (*operands, *parameters) if isinstance(x, Piece)]
        functions = given[0].functions
        if op is ops._where:
            (condition,) = parameters
            if isinstance(condition, Piece):
                return condition.choose(*operands)
            return functions._piece(operands[0] if condition else operands[1])
        return functions.value(op, [functions._piece(x) for x in operands], parameters)


def _is_number(text: str) -> bool:
    return re.fullmatch(r"-?[0-9.]+(e[-+]?\d+)?", text) is not None
