"""Integer programs as JSON, and back: what a recording computes from the integers it is passed."""

from __future__ import annotations

from typing import Any

from chainrule.compiler.capture.draws import Draws
from chainrule.compiler.capture.integers import STEPS, IntegerGuard, IntegerProgram
from chainrule.compiler.saving.plain import (
    SaveError,
    count,
    counts,
    damaged,
    decode,
    encode,
    fields,
    items,
    readable,
)

MOST_ARGUMENTS = 2**28
_ONE = ("neg", "invert", "abs", "int", "bool")
_SAVED = STEPS.keys() - {"seeded", "item", "hashed"}
_SEVERAL = ("choose", "max", "min", "count")  # any number of operands, from one


def encode_program(program: IntegerProgram) -> Any:
    """The JSON of an integer program."""
    where = "a table of integers"
    if any(name == "hashed" for name, _ in program.steps):  # other versions may have another
        raise SaveError("it goes through a set in its order, which a file cannot hold")
    return {
        "arguments": program.arguments,
        "constants": [_encode_constant(x, where) for x in program.constants],
        "steps": [[name, list(operands)] for name, operands in program.steps],
        "guards": [
            [g.node, encode(g.expected, "a guard"), g.truth, g.line] for g in program.guards
        ],
        "bounded": program.bounded,
    }


def _encode_constant(x: Any, where: str) -> Any:
    if isinstance(x, Draws):  # other versions of Python and numpy may draw others
        what = "draws random numbers from a seed" if x.seeded else "calls a function with a cache"
        raise SaveError(f"it {what}, which a file cannot hold")
    if isinstance(x, dict):
        return {"table": [[encode(key, where), encode(item, where)] for key, item in x.items()]}
    return encode(x, where)


def decode_program(x: Any) -> tuple[IntegerProgram, set[int]]:
    """The program again, and its nodes that are integers, not tables of them."""
    arguments, given, rows, conditions, bounded = fields(
        x, arguments=int, constants=list, steps=list, guards=list, bounded=bool
    )
    constants = tuple([_decode_constant(item) for item in given])
    plain = set(range(count(arguments, MOST_ARGUMENTS)))
    plain |= {arguments + k for k, c in enumerate(constants) if not isinstance(c, (tuple, dict))}
    tables = set(range(arguments, arguments + len(constants))) - plain
    steps = []
    for node, row in enumerate(rows, arguments + len(constants)):
        if len(items(row)) != 2 or not isinstance(row[0], str) or row[0] not in _SAVED:
            raise damaged("a step of integers is not known here")
        name, operands = row[0], tuple(counts(row[1], node))
        looks = name in ("read", "find")
        numbers = operands[1:] if looks else operands
        expected = 1 if name in _ONE else 2
        fits = len(operands) >= 1 if name in _SEVERAL else len(operands) == expected
        if name == "choose":
            fits = len(operands) >= 2
        if looks:
            fits = fits and operands[0] in tables
        if name == "find":
            fits = fits and isinstance(constants[operands[0] - arguments], dict)
        if not fits or not plain.issuperset(numbers):
            raise damaged("a step of integers has other operands than it should")
        steps.append((name, operands))
        plain.add(node)
    guards = []
    for row in conditions:
        if len(items(row)) != 4 or type(row[2]) is not bool or type(row[3]) is not str:
            raise damaged("a guard on integers is incomplete")
        expected = decode(row[1])
        if count(row[0]) not in plain or type(expected) not in (
            (bool,) if row[2] else (bool, int, float)
        ):
            raise damaged("a guard on integers is on something that is not there")
        guards.append(IntegerGuard(row[0], expected, row[2], *readable([row[3]])))
    return IntegerProgram(arguments, constants, tuple(steps), tuple(guards), bounded), plain


def _decode_constant(x: Any) -> Any:
    if isinstance(x, dict) and x.keys() == {"table"}:
        pairs = [(decode(a), decode(b)) for a, b in map(_pair, items(x["table"]))]
        numbers = [number for pair in pairs for number in pair]
        made: Any = dict(pairs)
    else:
        made = decode(x)
        numbers = list(made) if isinstance(made, tuple) else [made]
    if any(type(number) not in (bool, int, float) for number in numbers):
        raise damaged("a constant of integers is no number")
    return made


def _pair(x: Any) -> tuple[Any, Any]:
    if len(items(x)) != 2:
        raise damaged("a table of integers is incomplete")
    return x[0], x[1]
