"""Formulas in words, from the op table: what was computed and what each derivative is.

A ``Word`` is a piece of formula that behaves like a number. Evaluating a row's own partial
derivative over Words gives its text, so an operation added to the table explains itself. A Word
carries its number too, which decides the choices of ``where``: relu's derivative is ``1``,
*because* ``e > 0``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from chainrule.core import ops
from chainrule.core.operations import Opaque
from chainrule.core.ops import Op
from chainrule.core.text import visible
from chainrule.see.names import compact, quoted

# How tightly a formula's outermost operator binds.
_SUM, _PRODUCT, _SIGN, _POWER, _ATOM = range(5)


@dataclass(frozen=True)
class Comparison:
    """A condition that held: ``left`` relates to ``right`` in one of these ways."""

    left: str
    right: str
    relations: frozenset[str]  # of "<", "=", ">"; empty where a nan is involved
    tie: bool = False  # both sides are the same number: on either side the choice may differ

    def __str__(self) -> str:
        sign = _SIGNS.get(self.relations, "is not comparable with")
        return f"{self.left} {sign} {self.right}"


_SIGNS = {
    frozenset("<"): "<",
    frozenset("<="): "≤",
    frozenset(">"): ">",
    frozenset(">="): "≥",
    frozenset("="): "=",
    frozenset("<>"): "≠",
}


@dataclass(frozen=True)
class Condition:
    """What comparing two Words gives; ``where`` chooses by it."""

    holds: bool
    left: str
    right: str
    relations: frozenset[str]
    comparable: bool
    tie: bool

    def reason(self) -> Comparison:
        """What is known once the choice is made."""
        if not self.comparable:
            return Comparison(self.left, self.right, frozenset())
        relations = self.relations if self.holds else frozenset("<=>") - self.relations
        return Comparison(self.left, self.right, relations, self.tie)

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Word:
        condition = parameters[0]
        chosen = word(operands[0] if condition.holds else operands[1])
        return Word(
            chosen.text, chosen.binding, chosen.value, (condition.reason(), *chosen.reasons)
        )


@dataclass(frozen=True)
class Word:
    """A formula with its number."""

    text: str
    binding: int
    value: float
    reasons: tuple[Comparison, ...] = ()

    def within(self, binding: int) -> str:
        """The text, in brackets if it binds less tightly than that."""
        return self.text if self.binding >= binding else f"({self.text})"

    def __add__(self, other: Any) -> Word:
        return _join(self, "+", word(other), _SUM, self.value + word(other).value)

    def __radd__(self, other: Any) -> Word:
        return word(other) + self

    def __sub__(self, other: Any) -> Word:
        return _join(self, "-", word(other), _SUM, self.value - word(other).value)

    def __rsub__(self, other: Any) -> Word:
        return word(other) - self

    def __mul__(self, other: Any) -> Word:
        right = word(other)
        value = self.value * right.value
        if self.text == "1":
            return right._because(self)
        if right.text == "1":
            return self._because(right)
        if self.text == "-1":
            return (-right)._because(self)
        if self.text == right.text and self.binding == _ATOM:
            return Word(f"{self.text}²", _POWER, value, self.reasons)
        return _join(self, "*", right, _PRODUCT, value)

    def __rmul__(self, other: Any) -> Word:
        return word(other) * self

    def __truediv__(self, other: Any) -> Word:
        right = word(other)
        return _join(self, "/", right, _PRODUCT, ops.div(self.value, right.value))

    def __rtruediv__(self, other: Any) -> Word:
        return word(other) / self

    def __neg__(self) -> Word:
        return Word(f"-{self.within(_SIGN)}", _SIGN, -self.value, self.reasons)

    def __abs__(self) -> Word:
        return Word(f"|{self.text}|", _ATOM, abs(self.value), self.reasons)

    def __lt__(self, other: Any) -> Condition:
        return self._compare(other, "<", self.value < word(other).value)

    def __le__(self, other: Any) -> Condition:
        return self._compare(other, "<=", self.value <= word(other).value)

    def __gt__(self, other: Any) -> Condition:
        return self._compare(other, ">", self.value > word(other).value)

    def __ge__(self, other: Any) -> Condition:
        return self._compare(other, ">=", self.value >= word(other).value)

    def _compare(self, other: Any, relations: str, holds: bool) -> Condition:
        right = word(other)
        comparable = self.value == self.value and right.value == right.value
        tie = self.value == right.value
        return Condition(holds, self.text, right.text, frozenset(relations), comparable, tie)

    def _because(self, other: Word) -> Word:
        return Word(self.text, self.binding, self.value, (*other.reasons, *self.reasons))

    @staticmethod
    def _apply_op(op: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Word:
        if op is ops._where:  # a condition that is no comparison of operands: known beforehand
            return word(operands[0] if parameters[0] else operands[1])
        xs = [word(x) for x in operands]
        written = write(op, xs, tuple(float(p) for p in parameters))
        if op.symbol == "**":  # a derivative such as 2 * x**1 reads better as 2 * x
            exponent = xs[1].value if len(xs) == 2 else float(parameters[0])
            if exponent in (0.0, 1.0):
                return (xs[0] if exponent else word(1.0))._because(written)
        return written


def word(x: Any) -> Word:
    """``x`` as a Word; numbers are their own text."""
    if isinstance(x, Word):
        return x
    number = float(x)
    text = compact(number)
    return Word(text, _SIGN if text.startswith("-") else _ATOM, number)


def name_word(name: str, value: float) -> Word:
    """The Word of a node."""
    return Word(quoted(name), _ATOM, value)


def _join(left: Word, sign: str, right: Word, binding: int, value: float) -> Word:
    # The right operand is bracketed where Python would need it: a - (b - c), but a + b + c.
    tighter = binding if sign in "+*" else binding + 1
    if right.text.startswith("-"):
        tighter = _ATOM
    text = f"{left.within(binding)} {sign} {right.within(tighter)}"
    return Word(text, binding, value, (*left.reasons, *right.reasons))


def write(op: Op, xs: Sequence[Word], parameters: tuple[float, ...], times: str = "*") -> Word:
    """The call of a row as people write it, ``a * b``, ``x**2``, ``tanh(x)``, with its number."""
    value = float(op.forward(*[x.value for x in xs], *parameters))
    reasons = tuple(reason for x in xs for reason in x.reasons)
    if op.symbol in ("+", "*"):
        sign, binding = ("+", _SUM) if op.symbol == "+" else (times, _PRODUCT)
        return _join(xs[0], sign, xs[1], binding, value)
    if op.symbol == "**":
        exponent = xs[1] if len(xs) == 2 else word(parameters[0])
        text = f"{xs[0].within(_ATOM)}**{exponent.within(_SIGN)}"
        return Word(text, _POWER, value, reasons)
    arguments = [x.text for x in xs]
    if op is ops._where:
        arguments.insert(0, str(bool(parameters[0])))
    else:
        arguments += [compact(p) for p in parameters]
    return Word(f"{op.name}({', '.join(arguments)})", _ATOM, value, reasons)


def formula(rule: Op | str, xs: Sequence[Word], parameters: tuple[float, ...], times: str) -> str:
    """The call that made a node; ``rule`` is its row, or the name of a custom operation."""
    if isinstance(rule, Op):
        return write(rule, xs, parameters, times).text
    return f"{visible(rule) or 'custom'}({', '.join(x.text for x in xs)})"


def derivatives(
    rule: Op | str, y: Word, xs: Sequence[Word], parameters: tuple[float, ...]
) -> list[tuple[str, str]]:
    """Each partial derivative of a node: its formula, and why it is that one.

    >>> from chainrule.core import ops; from chainrule.see import words
    >>> e, f = words.name_word("e", 4.0), words.name_word("f", 4.0)
    >>> words.derivatives(ops.relu, f, [e], ())
    [('1', 'e > 0')]
    >>> words.derivatives(ops.tanh, f, [e], ())
    [('1 - f²', '')]
    """
    if not isinstance(rule, Op):
        return [("", "")] * len(xs)
    partials = _partials(rule, y, xs, parameters)
    return [("", "") if p is None else (p.text, _because(p.reasons)) for p in partials]


def _partials(
    rule: Op, y: Word, xs: Sequence[Word], parameters: tuple[float, ...]
) -> list[Word | None]:
    """The partial derivatives as Words; None for what is no formula."""
    return [
        None if isinstance(partial, Opaque) else word(partial(y, *xs, *parameters))
        for partial in rule.partials
    ]


def _because(reasons: Iterable[Comparison]) -> str:
    """The reasons, those about one pair as one: ``x ≤ 0`` and ``x < 0`` is ``x < 0``."""
    merged: dict[tuple[str, str], frozenset[str]] = {}
    for reason in reasons:
        pair = (reason.left, reason.right)
        merged[pair] = merged.get(pair, reason.relations) & reason.relations
    return " and ".join(str(Comparison(*pair, relations)) for pair, relations in merged.items())


def at_a_tie(rule: Op | str, y: float, xs: Sequence[float], parameters: tuple[float, ...]) -> bool:
    """Whether a derivative was chosen by comparing two equal numbers, as relu's is at 0."""
    if not isinstance(rule, Op):
        return False
    operands = [word(x) for x in xs]
    partials = _partials(rule, word(y), operands, parameters)
    return any(reason.tie for p in partials if p is not None for reason in p.reasons)


def is_stale(rule: Op | str, y: float, xs: Sequence[float], parameters: tuple[float, ...]) -> bool:
    """Whether a node's number is no longer that of its operands: somebody has set ``.data``."""
    if not isinstance(rule, Op):
        return False
    again = float(rule.forward(*xs, *parameters))
    return again != y and (again == again or y == y)
