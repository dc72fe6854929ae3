"""Random functions as source text, with a world of globals around them.

`random_source(rng, weights)` writes a program: branches on Values, on `.data` and on integers,
loops, indexing, helpers, and globals that `change` changes between the calls. It is executed twice,
so that the eager and the compiled function have each a world of their own.
"""

import random
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from compile_twins import floats, outcome, plain

from chainrule import Value

HEADER = """\
import math
import random
from chainrule import (Value, clip, dot, exp, log, maximum, minimum, no_grad, nonfinite, sqrt, tanh,
                       vsum, where)

SCALE = 1.5
SHIFT = -0.5
LIMIT = 0.25
COUNT = 0
TABLE = [0.5, -1.0, 2.0, 0.5, 1.25]
REMAP = [0, 1, 2, 3, 1]
GRID = [[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]
CONFIG = {"rate": 0.3, "inner": {"beta": 0.9}, "mode": "a"}
WEIGHTS = [Value(0.5), Value(-0.75), Value(1.25)]
LOG = []


class Box:
    gamma = 0.7

    def __init__(self):
        self.beta = 0.4
        self.weight = Value(0.3)

    def scaled(self, x):
        return x * self.beta + self.gamma


BOX = Box()
"""

#: how often each kind of statement is written; `wild` adds what only eager can do
TAME = {
    "assign": 8,
    "data": 4,
    "branch": 4,
    "loop": 3,
    "while": 1,
    "pick": 4,
    "reduce": 3,
    "where": 2,
    "extreme": 3,
    "helper": 2,
    "outside": 3,
    "return": 0.5,
    "no_grad": 0.3,
    "caught": 0.5,
    "undefined": 0.5,
    "integer": 2,
}
WILD = TAME | {
    "leak": 0.7,
    "log": 0.4,
    "count": 0.3,
    "chance": 0.2,
    "raise": 0.4,
    "store": 0.3,
    "grid": 0.5,
    "nonfinite": 0.3,
    "swallow": 0.2,
}


class Writer:
    """Writes one random function, statement by statement."""

    def __init__(self, rng: random.Random, weights: dict[str, float]) -> None:
        self.rng, self.weights = rng, weights
        self.lines: list[str] = []
        self.depth = 1
        self.values: list[str] = []
        self.numbers: list[str] = []
        self.lists: list[str] = []
        self.helpers: list[str] = []
        self.made = 0
        self.in_helper = False

    def write(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, letter: str) -> str:
        self.made += 1
        return f"{letter}{self.made}"

    # --- expressions ---

    def value(self) -> str:
        return self.rng.choice(self.values)

    def number(self) -> str:
        choices = ["0.5", "2", "-1.5", "1", "0.1", "SCALE", "SHIFT", 'CONFIG["rate"]']
        choices += ['CONFIG["inner"]["beta"]', "BOX.beta", "Box.gamma"]
        if self.numbers:
            choices += [self.rng.choice(self.numbers)] * 6
        return self.rng.choice(choices)

    def operand(self) -> str:
        return self.value() if self.rng.random() < 0.6 else self.number()

    def index(self) -> str:
        """An index below three."""
        choices = ["i", "j", "ids[0]", "ids[-1]", "REMAP[i]", "REMAP[j]", "i % 3", "(i + j) % 3"]
        choices += ["len(ids) % 3", "-1", "0", "REMAP[ids[0]] % 3", "2 - i", "-i - 1"]
        return self.rng.choice(choices)

    def condition(self) -> str:
        a, b = self.value(), self.operand()
        sign = self.rng.choice(("<", ">", "<=", ">="))
        choices = [f"{a} {sign} {b}"] * 3
        choices += [f"{a}.data {sign} {self.number()}", f"{self.number()} {sign} {a}"]
        choices += [f"i {self.rng.choice(('==', '<', '>'))} {self.rng.randrange(3)}", "flag"]
        choices += [f"{a} {sign} {b} and j > 0", f"not {a} {sign} {b}", "i == j", "name == 'a'"]
        choices += ["ids[0] in (0, 2)", f"-1 < {a} < 1", 'CONFIG["mode"] == "a"']
        choices += [f"{a}.data > LIMIT", f"len(ids) > {self.rng.randrange(1, 4)}"]
        return self.rng.choice(choices)

    def expression(self) -> str:
        a, b, c = self.value(), self.operand(), self.operand()
        return self.rng.choice(
            [
                f"{a} * {b}",
                f"{a} + {b}",
                f"{b} - {a}",
                f"{a} - {b} * 0.5",
                f"({a} * {b} + {c}).tanh()",
                f"tanh({a} + {b})",
                f"({a} * {a} + 1) ** -0.5 * {b}",
                f"exp(clip({a}, -2, 2)) * {b}",
                f"{a} / ({self.value()} * {self.value()} + 1)",
                f"({a} * 0.5).sin() + {b}",
                f"{a}.relu() + {b} * 0.1",
                f"maximum({a}, {b})",
                f"minimum({b}, {a}) * 0.5",
                f"sqrt({a} * {a} + 0.1)",
                f"{a} * label",
                f"({a} + label) / (label * label + 1)",
                f"({a} > {b}) * {self.value()} + {a}",
                f"BOX.scaled({a}) * BOX.weight",
                f"{a} ** 2 - {a}",
                f"Value({self.number()}) * {a}",
                f"abs({a}) + {b}",
            ]
        )

    # --- statements ---

    def target(self) -> str:
        """A variable to assign: often one that exists, so that branches and loops matter."""
        return self.rng.choice(self.values) if self.rng.random() < 0.4 else self.fresh("v")

    def assign(self, expression: str) -> None:
        name = self.target()
        self.write(f"{name} = {expression}")
        if name not in self.values:
            self.values.append(name)

    def block(self, statements: int) -> None:
        """An indented block; what it defines is not defined afterwards."""
        kept = list(self.values), list(self.numbers), list(self.lists)
        self.depth += 1
        for _ in range(statements):
            self.statement()
        self.depth -= 1
        self.values, self.numbers, self.lists = kept

    def statement(self) -> None:
        kinds = dict(self.weights)
        if self.depth > 3:
            for kind in ("branch", "loop", "while", "no_grad", "caught"):
                kinds.pop(kind, None)
        if self.in_helper:
            for kind in ("return", "pick", "integer", "grid", "store"):
                kinds.pop(kind, None)
        kind = self.rng.choices(list(kinds), list(kinds.values()))[0]
        getattr(self, f"_{kind}")()

    def _assign(self) -> None:
        self.assign(self.expression())

    def _data(self) -> None:
        a, b = self.value(), self.value()
        name = self.fresh("d")
        number = self.number()
        expressions = [f"{a}.data", f"{a}.data + {number}", f"{a}.data * {b}.data", f"-{a}.data"]
        expressions += [f"{a}.data - {b}.data", f"abs({a}.data)", f"{a}.data / 2", f"{a}.data ** 2"]
        expressions += [f"max({a}.data, {b}.data)", f"min({a}.data, {number})"]
        expressions += [f"max(v.data for v in {self.rng.choice(self.lists)})"] if self.lists else []
        self.write(f"{name} = {self.rng.choice(expressions)}")
        self.numbers.append(name)

    def _branch(self) -> None:
        self.write(f"if {self.condition()}:")
        self.block(self.rng.randint(1, 2))
        if self.rng.random() < 0.5:
            self.write("else:")
            self.block(self.rng.randint(1, 2))

    def _loop(self) -> None:
        self.made += 1
        k = f"k{self.made}"
        if self.in_helper:
            self.write(f"for {k} in range({self.rng.randint(1, 3)}):")
        elif self.lists and self.rng.random() < 0.4:
            self.write(f"for {k} in {self.rng.choice(self.lists)}:")
            self.values.append(k)
            self.block(self.rng.randint(1, 2))
            self.values.remove(k)
            return
        elif self.rng.random() < 0.5:
            self.write(f"for {k} in ids:")
            self.write(f"    {self.value()} = p[{k}] * {self.number()} + {self.value()}")
        else:
            bound = self.rng.choice(["i", "j", "i + 1", "len(ids)", "2", "3"])
            self.write(f"for {k} in range({bound}):")
        self.block(1)

    def _while(self) -> None:
        a = self.value()
        name = self.fresh("n")
        self.write(f"{name} = 0")
        self.write(f"while {a} < {self.number()} and {name} < 4:")
        self.write(f"    {a} = {a} * 0.5 + 0.75")
        self.write(f"    {name} += 1")

    def _pick(self) -> None:
        sequence = self.rng.choice(["p", "WEIGHTS", *self.lists])
        self.assign(f"{sequence}[{self.index()}] * {self.operand()}")

    def _reduce(self) -> None:
        sequence = self.rng.choice(
            ["WEIGHTS", *(() if self.in_helper else ("p", "xs")), *self.lists]
        )
        if self.rng.random() < 0.4:
            name = self.fresh("l")
            self.write(f"{name} = [x * {self.operand()} + {self.number()} for x in {sequence}]")
            self.lists.append(name)
            return
        a = self.operand()
        self.assign(
            self.rng.choice(
                [
                    f"sum({sequence}) * 0.3",
                    f"vsum({sequence}[1:]) + {a}",
                    f"vsum(x * {a} for x in {sequence})",
                    f"dot({sequence}, {sequence})",
                    f"sum(x * k for k, x in enumerate({sequence}))",
                    f"vsum(x for x in {sequence} if x > {self.number()})",
                ]
            )
        )

    def _extreme(self) -> None:
        sequence = self.rng.choice(
            ["WEIGHTS", *(() if self.in_helper else ("p", "xs")), *self.lists]
        )
        a, b = self.value(), self.operand()
        self.assign(
            self.rng.choice(
                [
                    f"max({sequence}) * {b}",
                    f"min({sequence}) + {b}",
                    f"max({a}, {b}) + {a}",
                    f"max({sequence}, key=lambda x: x.data * x.data) * 1.5",
                    f"sorted({sequence})[1] * {b}",
                    f"{sequence}[max(range(3), key=lambda k: {sequence}[k].data)] + {a}",
                ]
            )
        )

    def _where(self) -> None:
        a, b = self.value(), self.operand()
        sign = self.rng.choice(("<", ">", "<=", ">="))
        condition = self.rng.choice([f"{a} {sign} {b}", f"{a}.data {sign} {self.number()}"])
        self.assign(f"where({condition}, {self.value()}, {self.operand()}) * {a}")

    def _helper(self) -> None:
        if self.helpers:
            self.assign(f"{self.rng.choice(self.helpers)}({self.value()}, {self.value()})")
        else:
            self._assign()

    def _outside(self) -> None:
        self.assign(f"{self.value()} * {self.number()} + WEIGHTS[{self.rng.randrange(3)}]")

    def _return(self) -> None:
        self.write(f"if {self.condition()}:")
        self.write(f"    return {self.expression()}")

    def _no_grad(self) -> None:
        self.write("with no_grad():")
        self.block(1)

    def _nonfinite(self) -> None:
        name = self.fresh("v")
        self.write("with nonfinite('allow'):")
        self.write(f"    {name} = log({self.value()})")
        self.write(f"if {name}.data > -3:")
        self.write(f"    {self.value()} = {name} * 0.5")

    def _caught(self) -> None:
        self.write("try:")
        self.depth += 1
        self.write(f"{self.value()} = log({self.value()}) * 0.5")
        self.depth -= 1
        self.write("except (ValueError, ZeroDivisionError):")
        self.depth += 1
        self.write(f"{self.value()} = {self.expression()}")
        self.depth -= 1

    def _undefined(self) -> None:
        a = self.value()
        self.assign(
            self.rng.choice(
                [f"log({a} + 1.5)", f"{self.operand()} / ({a} - 0.5)", f"{a} * 3e200 * {a}"]
            )
        )

    def _integer(self) -> None:
        a = self.value()
        self.assign(
            self.rng.choice(
                [
                    f"{a} * TABLE[i]",
                    f"{a} * TABLE[REMAP[j]]",
                    f"{a} * (i + 1) + j",
                    f"{a} * (i - j)",
                    f"{a} * sum(ids)",
                    f"{a} * len(set(ids))",
                    f"{a} + (i % 2)",
                    f"{a} * float(j)",
                    f"{a} ** (i + 1) * 0.5",
                    f"{a} * max(ids) - min(ids)",
                ]
            )
        )

    # --- what only eager can do, or what must be refused ---

    def _leak(self) -> None:
        a = self.value()
        leaks = [
            f"float({a}.data)",
            f"round({a}.data, 2)",
            f"int({a}.data * 3)",
            f"math.sin({a}.data)",
        ]
        leaks += [f"len(f'{{{a}.data:.2f}}')", f"({a}.data // 1)", f"hash({a}.data) % 7"]
        self.assign(f"{a} * {self.rng.choice(leaks)}")

    def _log(self) -> None:
        self.write(f"LOG.append({self.rng.choice([self.value() + '.data', '1', self.number()])})")

    def _count(self) -> None:
        self.write("CONFIG['calls'] = CONFIG.get('calls', 0) + 1")

    def _chance(self) -> None:
        a = self.value()
        self.assign(
            self.rng.choice(
                [f"{a} * random.random()", f"{a} * 2 if random.random() < 0.5 else {a} * 3"]
            )
        )

    def _raise(self) -> None:
        self.write(f"if {self.condition()} and {self.value()} > 1.5:")
        self.write("    raise RuntimeError('own error')")

    def _store(self) -> None:
        name = self.fresh("l")
        self.write(f"{name} = list(p)")
        self.write(f"{name}[{self.index()}] = {self.expression()}")
        self.assign(f"{name}[{self.index()}] * {self.operand()}")

    def _grid(self) -> None:
        self.assign(f"{self.value()} * GRID[i][j]")

    def _swallow(self) -> None:
        a = self.value()
        self.write("try:")
        self.write(f"    {a} = {a} * math.cos({a}.data)")
        self.write("except:")
        self.write(f"    {a} = {a} * 7")

    # --- the whole ---

    def helper(self, name: str) -> None:
        self.in_helper, self.values, self.numbers, self.lists = True, ["x", "y"], [], []
        self.lines.append(f"def {name}(x, y):")
        kept = self.weights
        self.weights = {k: w for k, w in kept.items() if k not in ("undefined", "helper")}
        body = len(self.lines)
        for _ in range(self.rng.randint(1, 3)):
            self.statement()
        self.weights = kept
        self.lines[body:] = [self._without_arguments(line) for line in self.lines[body:]]
        self.write(f"return {self.value()} * 0.5 + y")
        self.lines.append("")
        self.in_helper = False

    @staticmethod
    def _without_arguments(line: str) -> str:
        """A helper knows none of the function's own arguments."""
        for word, instead in (
            (r"\bi\b", "1"),
            (r"\bj\b", "2"),
            (r"\bids\b", "REMAP"),
            (r"\bflag\b", "True"),
            (r"\bname\b", "'a'"),
            (r"\blabel\b", "2"),
        ):
            line = re.sub(word, instead, line)
        return line

    def program(self) -> str:
        for k in range(self.rng.randint(0, 2)):
            self.helper(f"helper{k}")
            self.helpers.append(f"helper{k}")
        self.values, self.numbers, self.lists = ["a", "b"], [], []
        self.lines.append("def f(p, xs, ids, i, j, label, flag=True, name='a'):")
        self.write("a, b = p[0] * xs[0], p[1] + xs[-1]")
        for _ in range(self.rng.randint(3, 9)):
            self.statement()
        extras = "{" + ", ".join(f"'{n}': {n}" for n in self.numbers[:3]) + "}"
        result = f"{self.value()} * 0.7 + {self.value()}"
        self.write(f"return {result}, {extras}" if self.rng.random() < 0.3 else f"return {result}")
        return HEADER + "\n\n" + "\n".join(self.lines) + "\n"


def random_source(rng: random.Random, weights: dict[str, float]) -> str:
    """The text of a random program: its world and the function `f`."""
    return Writer(rng, weights).program()


INTEGERS = """\
from chainrule import Value, vsum

DISTANCES = [[float(abs(i - j)) for j in range(4)] for i in range(4)]
TABLE = [1.0, 2.0, 1.0, 2.0]
REMAP = [0, 1, 1, 3]
KINDS = [0, 1, 0, 2]
RAGGED = [[1.0], [2.0, 0.5], [1.0], [0.5]]
MATRIX = [[Value(0.1 * (4 * i + j)) for j in range(4)] for i in range(4)]
SHARED = [[MATRIX[0][1]] * 4 for _ in range(4)]
SHARED[2][3] = MATRIX[3][3]


def f(p, a, b, c):
    m = list(p)
    v = p[0] * 1.5
"""


def random_integer_source(rng: random.Random) -> str:
    """The text of a function `f(p, a, b, c)` in which three integers below four meet in lists."""
    lines = []
    for _ in range(rng.randint(1, 4)):
        i, j, k = (rng.choice("abc") for _ in range(3))
        lines.append(
            rng.choice(
                [
                    f"m[{i}] = v * 2",
                    f"m[{i}] = m[{i}] + v",
                    f"m[{i}] = m[{j}] + 1",
                    f"m[{i}], m[{j}] = m[{j}], m[{i}]",
                    f"m.insert({i}, m.pop({j}))",
                    f"m = m[{i}:] + m[:{i}]",
                    f"v = v + m[{j}]",
                    f"v = v + m[-{i} - 1]",
                    f"v = v + m[REMAP[{i}]]",
                    f"v = v + p[{i}] * p[{j}]",
                    f"v = v + MATRIX[{i}][{j}]",
                    f"row = MATRIX[{i}]; v = v * row[{j}] + row[{k}]",
                    f"v = v + [x * 2 for x in MATRIX[{i}]][{j}]",
                    f"v = v + vsum(m[{i}:{j}])",
                    f"v = v + vsum(m[n] for n in range({i}, {j}))",
                    f"v = v * DISTANCES[{i}][{j}] + 1",
                    f"v = v + sum(DISTANCES[{i}][:{j}])",
                    f"v = v * TABLE[{i}]",
                    f"v = v + [TABLE, REMAP][{i} % 2][{j}]",
                    f"v = v + len({{{i}, {j}}})",
                    f"v = v * [p[{i}], p[{j}]][{k} > 1]",
                    f"v = v * {i} - {j}",
                    f"v = v * 2 if {i} == {j} else v + {k}",
                    f"v = v * SHARED[{i}][{j}]",
                    f"row = list(SHARED[{i}]); v = v + row[{j}] * p[{k}]",
                    f"n = REMAP[{i}]; v = v * p[{j}] + SHARED[n][{j}]",
                    f"rows = [SHARED[{i}], SHARED[{j}]]; row = rows[1]; v = v * row[{k}]",
                    f"v = v + vsum(row[{i}] * p[{j}] for row in SHARED)",
                    f"v = v * p[{k}] if KINDS[{i}] == KINDS[{j}] else v + p[{k}]",
                    f"v = v * p[{i}] if len(RAGGED[{i}]) < len(RAGGED[{j}]) else v + p[{j}]",
                    f"v = v + (p[{i}] if p[{i}] is p[{j}] else p[{k}] * 2)",
                    f"v = v + p[{i}] if p[{j}] in m[:2] else v - p[{j}]",
                ]
            )
        )
    return INTEGERS + "".join(f"    {line}\n" for line in lines) + "    return v * 2 + m[-1]\n"


def run_source(source: str, name: str) -> dict[str, Any]:
    """The namespace of a program."""
    namespace: dict[str, Any] = {"__name__": name}
    exec(compile(source, f"{name}.py", "exec"), namespace)
    return namespace


def change(rng: random.Random, *worlds: dict[str, Any]) -> str:
    """Change something that the programs read, in every world alike."""
    kind = rng.choice(
        "nothing nothing nothing SCALE SHIFT LIMIT TABLE REMAP CONFIG inner mode weight data beta "
        "gamma helper box".split()
    )
    number, place = round(rng.uniform(-1.5, 1.5), 2), rng.randrange(3)
    for world in worlds:
        if kind in ("SCALE", "SHIFT", "LIMIT"):
            world[kind] = number
        elif kind == "TABLE":
            world["TABLE"][place] = number
        elif kind == "REMAP":
            world["REMAP"][place] = (world["REMAP"][place] + 1) % 3
        elif kind == "CONFIG":
            world["CONFIG"]["rate"] = number
        elif kind == "inner":
            world["CONFIG"]["inner"]["beta"] = number
        elif kind == "mode":
            world["CONFIG"]["mode"] = "b" if world["CONFIG"]["mode"] == "a" else "a"
        elif kind == "weight":
            world["WEIGHTS"][place] = Value(number)
        elif kind == "data":
            for k, weight in enumerate(world["WEIGHTS"]):
                weight.data = number * (k + 1) / 2
        elif kind == "beta":
            world["BOX"].beta = number
        elif kind == "gamma":
            world["Box"].gamma = number
        elif kind == "box":
            world["BOX"].weight = Value(number)
        elif kind == "helper" and "helper0" in world:
            world["helper0"] = run_source("def helper(x, y):\n    return x * y - 0.5\n", "other")[
                "helper"
            ]
    return kind


def state(world: dict[str, Any]) -> Any:
    """What a program may have changed."""
    names = ("SCALE", "COUNT", "TABLE", "REMAP", "CONFIG", "LOG", "WEIGHTS")
    return plain([world[name] for name in names] + [vars(world["BOX"]), world["Box"].gamma])


@dataclass(frozen=True)
class Arguments:
    """One call's arguments; `p` and `xs` are numbers, to be made Values of each world's own."""

    p: list[float]
    xs: list[float]
    rest: tuple[Any, ...]
    named: dict[str, Any]
    borrowed: tuple[int, ...]  # places of p that hold one of the world's own weights


def random_integer(rng: random.Random) -> int:
    """Mostly below three, sometimes negative or out of range."""
    return rng.randrange(3) if rng.random() < 0.93 else rng.choice((-1, -2, 3, 4, -7))


def random_arguments(rng: random.Random) -> Arguments:
    ids = [random_integer(rng) for _ in range(rng.choice((1, 2, 2, 3)))]
    named = {}
    if rng.random() < 0.2:
        named["flag"] = rng.random() < 0.5
    if rng.random() < 0.2:
        named["name"] = rng.choice("ab")
    if rng.random() < 0.5:
        named = dict(reversed(named.items()))
    return Arguments(
        [round(rng.uniform(-2, 2), 3) for _ in range(3)],
        [round(rng.uniform(-2, 2), 3) for _ in range(rng.choice((3, 3, 3, 2)))],
        (ids, random_integer(rng), random_integer(rng), rng.choice((1, -1, 2, 0))),
        named,
        tuple(k for k in range(3) if rng.random() < 0.05),
    )


def call_with_arrays(world: dict[str, Any], arguments: Arguments) -> Any:
    """(value, gradients by p), or the error."""
    p, xs = np.array(arguments.p), np.array(arguments.xs)
    return outcome(world["f"].value_and_grad, p, xs, *arguments.rest, **arguments.named)


def call_with_values(world: dict[str, Any], arguments: Arguments) -> Any:
    """(value, gradients of everything involved), or the error."""
    p, xs = [[Value(x) for x in numbers] for numbers in (arguments.p, arguments.xs)]
    for place in arguments.borrowed:
        p[place] = world["WEIGHTS"][(place + len(arguments.borrowed)) % 3]
    result = outcome(world["f"], p, xs, *arguments.rest, **arguments.named)
    if isinstance(result, tuple) and isinstance(result[0], str):
        return result
    loss = result[0] if isinstance(result, tuple) else result
    if not isinstance(loss, Value):
        return result
    involved = [*p, *xs, *world["WEIGHTS"], world["BOX"].weight]
    loss.backward()
    grads = np.array([v.grad for v in involved])
    for v in involved:
        v.grad = 0.0
    return floats(result), grads
