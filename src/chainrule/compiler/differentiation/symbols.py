"""A recording under construction: instructions are appended to it, also by the op table's rows.

In: a ``Recording``. Out: one with the same instructions first, guards and integers as they were,
and more after them. A number is a ``Term``: the position of an instruction, or a float that is
known already. A ``Symbol`` is a Term that the op table's partials compute with, as with Values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.recordings import (
    CONSTANT,
    FIRST_RULE,
    INPUT,
    Guard,
    Recording,
    as_needed,
    two_columns,
)
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.core import ops
from chainrule.core.operations import Opaque
from chainrule.core.ops import Op
from chainrule.trees import map_leaves

Term = int | float  # the position of an instruction, or a number


class Extension:
    """A recording, and what is appended to it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self.codes: list[int] = recording.codes.tolist()
        self.operands: list[Sequence[int]] = recording.operands.tolist()
        self.constants: list[Sequence[float]] = two_columns(recording.constants).tolist()
        self.number: list[bool] = recording.number.tolist()
        self.rules = list(recording.rules)
        self._code = {rule: FIRST_RULE + k for k, rule in enumerate(self.rules)}
        self._add, self._mul = self._code_of(ops.add), self._code_of(ops.mul)
        self._known: dict[Any, int] = {}  # instructions that were appended once and are shared
        self._slopes: dict[int, list[tuple[int, Term]]] = {}

    def __len__(self) -> int:
        return len(self.codes)

    def _code_of(self, rule: Op) -> int:
        code = self._code.get(rule)
        if code is None:
            code = self._code[rule] = FIRST_RULE + len(self.rules)
            self.rules.append(rule)
        return code

    def _append(
        self, code: int, operands: Sequence[int], constants: Sequence[float], number: bool
    ) -> int:
        self.codes.append(code)
        self.operands.append(operands)
        self.constants.append(constants)
        self.number.append(number)
        return len(self.codes) - 1

    # --- numbers ----------------------------------------------------------------------------------

    def add(self, a: Term, b: Term) -> Term:
        """The sum of two terms."""
        if type(a) is float:
            if type(b) is float:
                return a + b
            a, b = b, a
        if type(b) is float:
            return a if b == 0.0 else self._append(self._add, (int(a), -1, -1), (b, 0.0), True)
        return self._append(self._add, (int(a), int(b), -1), (0.0, 0.0), False)

    def multiply(self, a: Term, b: Term) -> Term:
        """The product of two terms, all of whose numbers are finite."""
        if type(a) is float:
            if type(b) is float:
                return a * b
            a, b = b, a
        if type(b) is float:
            if b == 1.0:
                return a
            if b == 0.0:
                return 0.0
            return self._append(self._mul, (int(a), -1, -1), (b, 0.0), True)
        return self._append(self._mul, (int(a), int(b), -1), (0.0, 0.0), False)

    def apply(self, rule: Op, operands: Sequence[Term], parameters: Sequence[float]) -> Term:
        """Any operation; one of the same operands is appended only once."""
        if all(type(x) is float for x in operands):
            return float(rule.forward(*operands, *parameters))
        if rule is ops.add:
            return self.add(*operands)
        if rule is ops.mul:
            return self.multiply(*operands)
        if rule is ops.pow and parameters[0] in (0.0, 1.0):
            return operands[0] if parameters[0] else 1.0
        # 0 is an instruction, 0.0 a number, and -0.0 another
        key = (rule, *[(type(x), x, math.copysign(1.0, x)) for x in (*operands, *parameters)])
        if key not in self._known:
            positions = [self._position(x) for x in operands]
            self._known[key] = self._append(
                self._code_of(rule),
                (*positions, -1, -1, -1)[:3],
                (*parameters, 0.0, 0.0)[:2],
                False,
            )
        return self._known[key]

    def _position(self, term: Term) -> int:
        """The instruction of a term: that of a number is a constant."""
        if type(term) is not float:
            return int(term)
        key = CONSTANT, term, math.copysign(1.0, term)
        if key not in self._known:
            self._known[key] = self._append(CONSTANT, (-1, -1, -1), (term, 0.0), False)
        return self._known[key]

    # --- local derivatives ------------------------------------------------------------------------

    def slopes(self, i: int) -> list[tuple[int, Term]]:
        """For instruction ``i``: its operands that carry a gradient, and the derivative by each.

        A derivative that is always 0 is left out. All derivatives of a recording share them.
        """
        found = self._slopes.get(i)
        if found is None:
            found = self._slopes[i] = self._slopes_of(i)
        return found

    def _slopes_of(self, i: int) -> list[tuple[int, Term]]:
        code, operands = self.codes[i], self.operands[i]
        if code < FIRST_RULE:
            return []
        a, b, _ = operands
        if code == self._add:
            return [(a, 1.0)] if b < 0 else [(a, 1.0), (b, 1.0)]
        if code == self._mul:
            return [(a, self.constants[i][0])] if b < 0 else [(a, b), (b, a)]
        rule = self.rules[code - FIRST_RULE]
        if not rule.differentiable:
            return []
        xs: list[Any] = [Symbol(self, p) for p in operands if p >= 0]
        if self.number[i]:
            xs.append(self.constants[i][0])
        parameters = self.constants[i][: len(rule.parameters)]
        found = []
        for k in rule.differentiable:
            if operands[k] >= 0:
                slope = _term(_slope(rule, k, Symbol(self, i), *xs, *parameters))
                if type(slope) is not float or slope != 0.0:
                    found.append((operands[k], slope))
        return found

    # --- the whole --------------------------------------------------------------------------------

    def finish(self, result: Any, wanted: Sequence[int]) -> Recording:
        """The recording that returns ``result``, without what none of ``wanted`` needs.

        ``result`` is a function of the new position of each instruction.
        """
        base, count = len(self._recording), len(self)
        needed = [False] * count
        stack = [p for p in wanted if p >= base]
        for p in stack:
            needed[p] = True
        while stack:
            for p in self.operands[stack.pop()]:
                if p >= base and not needed[p]:
                    needed[p] = True
                    stack.append(p)
        kept = [*range(base), *[i for i in range(base, count) if needed[i]]]
        at = np.full(count + 1, -1, np.int32)  # the last is for no operand, which is -1
        at[kept] = np.arange(len(kept))
        old = self._recording
        unflagged = np.zeros(len(kept), np.bool_)
        unflagged[:base] = old.unflagged
        constants = np.array(self.constants, np.float64).reshape(-1, 2)
        return Recording(
            inputs=old.inputs,
            codes=np.array(self.codes, np.int32)[kept],
            operands=at[np.array(self.operands, np.int32)[kept]],
            constants=as_needed(constants[kept], self.rules),
            number=np.array(self.number, np.bool_)[kept],
            rules=tuple(self.rules),
            unflagged=unflagged,
            guards=old.guards,
            result=result(at),
            selection=old.selection,
        )


class Symbol:
    """A term that rows of the op table compute with: what they do is appended."""

    __slots__ = ("extension", "term")

    def __init__(self, extension: Extension, term: Term) -> None:
        self.extension, self.term = extension, term

    @staticmethod
    def _apply_op(rule: Op, operands: Sequence[Any], parameters: Sequence[Any]) -> Any:
        """The op table's way in."""
        symbols = [x for x in (*operands, *parameters) if isinstance(x, Symbol)]
        extension = symbols[0].extension
        terms = [_term(x) for x in operands]
        if rule.name == "where":  # its condition is a parameter
            (condition,) = parameters
            if not isinstance(condition, Symbol):
                return operands[0] if condition else operands[1]
            if type(condition.term) is float:
                return operands[0] if condition.term > 0 else operands[1]
            rule, terms, parameters = ops.select, [condition.term, *terms], ()
        return Symbol(extension, extension.apply(rule, terms, [float(x) for x in parameters]))

    def _with(self, rule: Op, *operands: Any, parameters: Sequence[float] = ()) -> Any:
        return self._apply_op(rule, operands, parameters)

    def __add__(self, other: Any) -> Any:
        return self._with(ops.add, self, other)

    def __mul__(self, other: Any) -> Any:
        return self._with(ops.mul, self, other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self * -1.0

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __truediv__(self, other: Any) -> Any:
        return self * (other**-1.0)

    def __rtruediv__(self, other: Any) -> Any:
        return self**-1.0 * other

    def __pow__(self, exponent: Any) -> Any:
        if isinstance(exponent, Symbol):
            return self._with(ops.power, self, exponent)
        return self._with(ops.pow, self, parameters=(float(exponent),))

    def __rpow__(self, base: float) -> Any:
        return self._with(ops.power, base, self)

    def __abs__(self) -> Any:
        return self._with(ops.abs, self)

    def __bool__(self) -> bool:
        raise TypeError("a recorded number is neither true nor false")

    def __lt__(self, other: Any) -> Any:
        return self._with(ops.less, self, other)

    def __le__(self, other: Any) -> Any:
        return self._with(ops.less_equal, self, other)

    def __gt__(self, other: Any) -> Any:
        return self._with(ops.less, other, self)

    def __ge__(self, other: Any) -> Any:
        return self._with(ops.less_equal, other, self)


def _slope(rule: Op, k: int, *numbers: Any) -> Any:
    """The derivative of a rule by operand ``k``, over Symbols; refused if it takes floats only."""
    partial = rule.partials[k]
    if not isinstance(partial, Opaque):
        try:
            return partial(*numbers)
        except (TypeError, AttributeError):  # of an operation of the user's own
            pass
    raise Unrecordable(f"the derivative of {rule.name} is no formula")


def _term(x: Any) -> Term:
    return x.term if isinstance(x, Symbol) else float(x)


def with_inputs(recording: Recording, at: int, count: int) -> Recording:
    """The same recording with ``count`` more inputs, which it does not read, from ``at`` on."""

    def moved(positions: Any) -> Any:
        return np.where(positions >= at, positions + count, positions)

    def output(x: Any) -> Any:
        return x.moved(lambda p: int(moved(p))) if hasattr(x, "moved") else x

    def inserted(rows: Any, fill: Any) -> Any:
        return np.insert(rows, [at] * count, fill, axis=0)

    return Recording(
        inputs=recording.inputs + count,
        codes=inserted(recording.codes, INPUT),
        operands=inserted(moved(recording.operands).astype(np.int32), -1),
        constants=inserted(recording.constants, 0.0),
        number=inserted(recording.number, False),
        rules=recording.rules,
        unflagged=inserted(recording.unflagged, False),
        guards=tuple([Guard(int(moved(g.position)), g.expected, g.line) for g in recording.guards]),
        result=map_leaves(output, recording.result),
        selection=recording.selection,
    )
