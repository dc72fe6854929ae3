"""The first tab: an expression as it is typed, in; its page, or where it is wrong, out."""

from __future__ import annotations

from typing import Any

from chainrule.core.backend import topological_order
from chainrule.play.settings import Given, text
from chainrule.see.expressions import LONGEST, ExpressionError, parse, parse_values
from chainrule.see.page import explore

#: what a name is worth of which nothing has been said: small, different, allowed in log and sqrt
FIRST_VALUES = (2.0, 3.0, 0.5, 4.0, 1.5, 5.0, 2.5)
LONGEST_VALUES = 4_000  # characters


def draw(given: Given) -> dict[str, Any]:
    """The page of an expression; names without a value are given one.

    >>> from chainrule.play.formulas import draw
    >>> drawn = draw({"text": "a*b + 1", "values": "b=-3"})
    >>> drawn["values"], drawn["result"]
    ('b=-3 a=3', -8.0)
    >>> draw({"text": "a*/b", "values": ""})["column"]
    2
    """
    typed, values = text(given, "text", 10 * LONGEST), text(given, "values", LONGEST_VALUES)
    try:
        numbers = parse_values(values.replace(",", " ").split())
    except ExpressionError as error:
        return {"error": error.message, "column": error.column, "where": "values"}
    indent = len(typed) - len(typed.lstrip())
    try:
        expression = parse(typed, numbers)
        used = {name: number for name, number in numbers.items() if name in expression.inputs}
        missing = [name for name in expression.inputs if name not in numbers]
        for place, name in enumerate(missing, len(used)):
            used[name] = FIRST_VALUES[place % len(FIRST_VALUES)]
        result = expression(**used)
    except ExpressionError as error:
        return {"error": error.message, "column": error.column + indent, "where": "text"}
    return {
        "page": explore(result).html,
        "values": " ".join(f"{name}={_plain(number)}" for name, number in used.items()),
        "result": result.data,
        "nodes": len(topological_order(result)),
    }


def _plain(number: float) -> str:
    return repr(number).removesuffix(".0")
