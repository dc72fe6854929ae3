"""The operations of a recording as JSON, and back.

A row of the op table is its name. An operation of the user's own is the formulas that were read
from it: their steps are operators, rows, and other such operations. An opaque one has a Python
body, which no file holds.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from chainrule.compiler.saving.plain import (
    SaveError,
    count,
    damaged,
    decode,
    encode,
    fields,
    items,
    texts,
)
from chainrule.core import ops
from chainrule.core.operations import MOST_OPERANDS, MOST_PARAMETERS, Formula, from_formulas
from chainrule.core.ops import Op

#: what the steps of a formula may do beside rows, and how many operands each takes
_FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "add": (operator.add, 2),
    "sub": (operator.sub, 2),
    "mul": (operator.mul, 2),
    "neg": (operator.neg, 1),
    "lt": (operator.lt, 2),
    "le": (operator.le, 2),
    "gt": (operator.gt, 2),
    "ge": (operator.ge, 2),
    "div": (ops.div, 2),
    "where": (ops.where, 3),
}
_NAMES = {function: name for name, (function, _) in _FUNCTIONS.items()}
_DEEP = 16  # operations inside operations


def encode_rule(rule: Op) -> Any:
    """An operation, or a ``SaveError`` where it is opaque."""
    if ops.TABLE.get(rule.name) is rule or ops.BLOCKS.get(rule.name) is rule:
        return rule.name
    formulas = [rule.forward, *rule.partials]
    if not all(isinstance(formula, Formula) for formula in formulas):
        raise SaveError(
            f"its operation {rule.name!r} is opaque: a file holds formulas, not Python code"
        )
    return {
        "name": rule.name,
        "parameters": list(rule.parameters),
        "defaults": [encode(x, "a default") for x in rule.defaults],
        "formulas": [_encode_formula(formula) for formula in formulas],
    }


def _encode_formula(formula: Any) -> Any:
    steps = [
        [_encode_function(function), [_encode_operand(x) for x in operands]]
        for function, operands in formula.steps
    ]
    return {"steps": steps, "result": _encode_operand(formula.result)}


def _encode_function(function: Any) -> Any:
    if isinstance(function, Op):
        return {"operation": encode_rule(function)}
    if function not in _NAMES:
        raise SaveError(f"an operation of its own uses {function!r}, which a file cannot hold")
    return _NAMES[function]


def _encode_operand(operand: tuple[int, Any]) -> Any:
    place, constant = operand
    return place if place >= 0 else {"constant": encode(constant, "a formula")}


# --- back -----------------------------------------------------------------------------------------


def decode_rule(x: Any, depth: int = 0) -> Op:
    """The operation again."""
    if isinstance(x, str):
        found = ops.TABLE.get(x) or ops.BLOCKS.get(x)
        if found is None:
            raise SaveError(f"it uses the operation {x[:80]!r}, which is not known here")
        return found
    name, words, given, rules = fields(x, name=str, parameters=list, defaults=list, formulas=list)
    parameters, defaults = texts(words), [decode(item) for item in given]
    arity = len(rules) - 1
    fits = (
        depth < _DEEP
        and name.isidentifier()
        and name not in ops.TABLE
        and name not in ops.BLOCKS
        and 1 <= arity <= MOST_OPERANDS
        and len(defaults) <= len(parameters) <= MOST_PARAMETERS
        and all(map(str.isidentifier, parameters))
        and all(type(x) is float for x in defaults)
    )
    if not fits:
        raise damaged("an operation is not what an operation can be")
    inputs = arity + len(parameters)
    forward, *partials = [
        _decode_formula(rule, inputs + (k > 0), depth) for k, rule in enumerate(rules)
    ]
    return from_formulas(name, forward, tuple(partials), tuple(parameters), tuple(defaults))


def _decode_formula(x: Any, inputs: int, depth: int) -> Formula:
    steps, result = fields(x, steps=list, result=(int, dict))
    made: list[Any] = []
    for step in steps:
        if len(items(step)) != 2:
            raise damaged("a step of a formula is incomplete")
        known = inputs + len(made)
        operands = tuple([_decode_operand(operand, known) for operand in items(step[1])])
        made.append((_decode_function(step[0], len(operands), depth), operands))
    return Formula.of(inputs, tuple(made), _decode_operand(result, inputs + len(made)))


def _decode_function(x: Any, operands: int, depth: int) -> Any:
    if isinstance(x, dict):
        (inner,) = fields(x, operation=(str, dict))
        rule = decode_rule(inner, depth + 1)
        least = rule.arity + len(rule.parameters) - len(rule.defaults)
        if not least <= operands <= rule.arity + len(rule.parameters):
            raise damaged("a step of a formula has other operands than it should")
        return rule
    function, arity = _FUNCTIONS.get(x, (None, -1)) if isinstance(x, str) else (None, -1)
    if operands != arity:
        raise damaged("a step of a formula is not known here")
    return function


def _decode_operand(x: Any, known: int) -> tuple[int, Any]:
    if type(x) is int:
        return count(x, known), None
    (constant,) = fields(x, constant=(bool, dict))
    number = decode(constant)
    if type(number) not in (bool, float):
        raise damaged("a formula holds something that is no number")
    return -1, number
