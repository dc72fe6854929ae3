"""Random scalar programs as plain data, to be run over any number-like class.

`random_program(rng, family)` draws one from a seeded `random.Random` (fast); `programs(family)` is
the hypothesis strategy over the same generator. `run(program, leaves, functions)` interprets a
program over whatever the leaves are: chainrule Values, the literal seeds' class, floats, autograd
boxes, mpmath numbers; `functions` names the functions of that number system (number_systems.py).
A candidate instruction is accepted only when its operands, known as floats meanwhile, are safe.
"""

import math
import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import strategies as st
from number_systems import FLOATS


@dataclass(frozen=True)
class Node:
    """An operand: an input or an earlier result."""

    index: int


@dataclass(frozen=True)
class Const:
    """An operand: a plain int or float; on the left it makes the operator a reflected one."""

    number: float


@dataclass(frozen=True)
class Instruction:
    op: str
    operands: tuple[Node | Const, ...]
    parameters: tuple[float, ...] = ()  # static: an exponent, a slope, bounds, a condition


@dataclass(frozen=True)
class Program:
    inputs: tuple[float, ...]
    instructions: tuple[Instruction, ...]


OPERATORS: dict[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
    "/=": operator.itruediv,
    "**": operator.pow,
    "power": operator.pow,
    "neg": operator.neg,
    "sum": lambda *terms: sum(terms),
}


def execute(
    instruction: Instruction, values: list[Any], functions: Mapping[str, Any], touch: Any = None
) -> Any:
    """One instruction over the values so far. `touch` sees every number read and every result."""
    function = OPERATORS.get(instruction.op) or functions[instruction.op]
    operands = [values[o.index] if isinstance(o, Node) else o.number for o in instruction.operands]
    if touch is None:
        return function(*operands, *instruction.parameters)
    return touch(function(*map(touch, operands), *instruction.parameters))


def run(
    program: Program, leaves: Any, functions: Mapping[str, Any], touch: Any = None
) -> list[Any]:
    """All values: the leaves first, then one per instruction; the last one is the output."""
    values = list(leaves)
    for instruction in program.instructions:
        values.append(execute(instruction, values, functions, touch))
    return values


@dataclass(frozen=True)
class Rule:
    """How one kind of instruction is drawn: operands, parameters, which of them are safe."""

    arity: int
    safe: Callable[..., bool]
    parameters: Callable[[Random], tuple[float, ...]] = lambda rng: ()
    constants: bool = False  # one of the operands may be a plain number


@dataclass(frozen=True)
class Family:
    rules: Mapping[str, Rule]
    largest: float  # bound on the size of every intermediate result
    inputs: tuple[float, float]


def anything(*numbers: float) -> bool:
    return True


def seed_power(x: float, p: float) -> bool:
    return (p >= 0 or abs(x) > 0.05) and (p == int(p) or x > 0.01) and (p != 0 or x != 0)


def smooth_power(x: float, p: float) -> bool:
    return abs(x) > 0.1 and (p == int(p) or x > 0.1)


def one_of(*choices: float) -> Callable[[Random], tuple[float, ...]]:
    return lambda rng: (rng.choice(choices),)


def bounds(rng: Random) -> tuple[float, float]:
    low = round(rng.uniform(-3.0, 1.0), 2)
    return low, low + round(rng.uniform(0.5, 3.0), 2)


EXPONENTS = one_of(2, 3, -1, -2, 4, 1, 0, 0.5, -0.5, 1.5, 2.0, 3.0)

SEED_OPS = Family(
    rules={
        "+": Rule(2, anything, constants=True),
        "-": Rule(2, anything, constants=True),
        "*": Rule(2, anything, constants=True),
        "/": Rule(2, lambda a, b: abs(b) > 0.05, constants=True),
        "+=": Rule(2, anything, constants=True),
        "-=": Rule(2, anything, constants=True),
        "*=": Rule(2, anything, constants=True),
        "/=": Rule(2, lambda a, b: abs(b) > 0.05, constants=True),
        "**": Rule(1, seed_power, EXPONENTS),
        "neg": Rule(1, anything),
        "sum": Rule(4, anything),
        "exp": Rule(1, lambda x: x < 4.6),
        "log": Rule(1, lambda x: x > 0.01),
        "relu": Rule(1, anything),
        "tanh": Rule(1, anything),
    },
    largest=100.0,
    inputs=(-3.0, 3.0),
)


def within(limit: float) -> Callable[..., bool]:
    return lambda x, *rest: abs(x) < limit


def away_from_zero(x: float, *rest: float) -> bool:
    return abs(x) > 0.05


def apart(a: float, b: float) -> bool:
    return abs(a - b) > 0.05


def between_integers(x: float) -> bool:
    return 0.05 < x % 1.0 < 0.95


def divisible(a: float, b: float) -> bool:
    return abs(b) > 0.3 and between_integers(a / b)


ALL_OPS = Family(
    rules={
        **{name: SEED_OPS.rules[name] for name in ("+", "-", "*", "+=", "-=", "*=", "neg", "sum")},
        "/": Rule(2, lambda a, b: abs(b) > 0.2, constants=True),
        "/=": Rule(2, lambda a, b: abs(b) > 0.2, constants=True),
        "**": Rule(1, smooth_power, EXPONENTS),
        "power": Rule(2, lambda a, b: 0.1 < a < 10 and abs(b) < 4, constants=True),
        **{
            name: Rule(1, within(2.5))
            for name in ("exp", "expm1", "tanh", "gelu", "gelu_tanh", "sinh", "cosh")
        },
        **{name: Rule(1, within(2.0)) for name in ("erf", "erfc")},
        **{
            name: Rule(1, within(5.0))
            for name in ("sigmoid", "softplus", "silu", "sin", "cos", "atan", "asinh")
        },
        **{name: Rule(1, within(0.9)) for name in ("asin", "acos", "atanh")},
        **{name: Rule(1, lambda x: x > 0.1) for name in ("log", "log2", "log10", "sqrt")},
        "log1p": Rule(1, lambda x: x > -0.7),
        "acosh": Rule(1, lambda x: x > 1.2),
        "tan": Rule(1, lambda x: abs(math.cos(x)) > 0.3),
        "relu": Rule(1, away_from_zero),
        "abs": Rule(1, away_from_zero),
        "leaky_relu": Rule(1, away_from_zero, one_of(0.01, 0.1, 0.25)),
        "clip": Rule(1, lambda x, low, high: apart(x, low) and apart(x, high), bounds),
        "maximum": Rule(2, apart, constants=True),
        "minimum": Rule(2, apart, constants=True),
        "where": Rule(2, anything, one_of(False, True)),
        "atan2": Rule(2, lambda a, b: abs(a) > 0.1, constants=True),
        "hypot": Rule(2, lambda a, b: a * a + b * b > 0.1, constants=True),
        **{name: Rule(1, between_integers) for name in ("floor", "ceil", "trunc")},
        "round": Rule(1, lambda x: between_integers(x + 0.5)),
        "sign": Rule(1, away_from_zero),
        **{name: Rule(2, divisible, constants=True) for name in ("mod", "floor_divide")},
        **{name: Rule(1, lambda x: x > 0.2) for name in ("lgamma", "digamma")},
        "polygamma": Rule(1, lambda x, order: x > 0.5, one_of(1, 2)),
        **{name: Rule(1, within(2.5)) for name in ("normal_pdf", "normal_cdf")},
        "normal_quantile": Rule(1, lambda p: 0.05 < p < 0.95),
        "log1mexp": Rule(1, lambda x: x > 0.1),
        "safe_sqrt": Rule(1, lambda x: x < -0.1 or x > 0.1),
        "ramp": Rule(1, lambda x: apart(x, 0.0) and apart(x, 1.0)),
    },
    largest=30.0,
    inputs=(-2.0, 2.0),
)


def random_number(rng: Random) -> float:
    """A constant as people write them: often a small int."""
    return rng.randint(-3, 5) if rng.random() < 0.5 else round(rng.uniform(-3.0, 3.0), 3)


def random_instruction(
    rng: Random, family: Family, values: list[float]
) -> tuple[Instruction, float] | None:
    """A candidate with its value, or None where it is not safe."""
    op = rng.choice(list(family.rules))
    rule = family.rules[op]
    count = rng.randint(1, rule.arity) if op == "sum" else rule.arity
    operands: list[Node | Const] = [Node(rng.randrange(len(values))) for _ in range(count)]
    if count == 2 and rng.random() < 0.15:
        operands[1] = operands[0]  # a + a: two edges to one node
    if rule.constants and rng.random() < 0.35:
        place = 1 if op.endswith("=") else rng.randrange(2)  # x += 2, never 2 += x
        operands[place] = Const(random_number(rng))
    instruction = Instruction(op, tuple(operands), rule.parameters(rng))
    numbers = [values[o.index] if isinstance(o, Node) else o.number for o in operands]
    if not rule.safe(*numbers, *instruction.parameters):
        return None
    value = execute(instruction, values, FLOATS)
    if not math.isfinite(value) or abs(value) > family.largest:
        return None
    return instruction, float(value)


def random_program(rng: Random, family: Family, inputs: int = 4, instructions: int = 20) -> Program:
    """At most so many inputs and instructions; the output adds up whatever nothing else uses."""
    low, high = family.inputs
    leaves = [
        round(rng.uniform(low, high), rng.choice((1, 3, 17))) for _ in range(rng.randint(1, inputs))
    ]
    values = list(leaves)
    accepted: list[Instruction] = []
    for _ in range(rng.randint(2, instructions)):
        for _attempt in range(20):
            candidate = random_instruction(rng, family, values)
            if candidate is not None:
                accepted.append(candidate[0])
                values.append(candidate[1])
                break
    used = {o.index for i in accepted for o in i.operands if isinstance(o, Node)}
    sinks = tuple(Node(i) for i in range(len(leaves), len(values)) if i not in used)
    accepted.append(Instruction("sum", sinks or (Node(0),)))
    return Program(tuple(leaves), tuple(accepted))


def programs(family: Family, inputs: int = 3, instructions: int = 10) -> st.SearchStrategy[Program]:
    """The same programs drawn by hypothesis, which shrinks them."""
    return st.randoms(use_true_random=False).map(
        lambda rng: random_program(rng, family, inputs, instructions)
    )


def count(ci: int, soak: int) -> int:
    """How many seeded programs a test runs under the profile in use."""
    return soak if os.environ.get("HYPOTHESIS_PROFILE") == "soak" else ci
