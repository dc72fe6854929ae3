"""Random lives of a graph, told to both engines at once.

A `World` is a pool of Values of one engine. An `Action` is plain data; `World.do` carries it out and
answers in plain data: the result or the error. `live` draws actions and demands the same answer, and
the same numbers in the whole pool, from both engines after each. Looking at `.children` turns the
native engine's inline numbers into nodes, so the comparison after each action does not look: a look
is an action of its own, at random moments.
"""

import copy
import math
import operator
import pickle
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from random import Random
from typing import Any

import numpy as np
from native_engines import ENGINES, NATIVE, Engine, bits, graph
from native_tapes import linearize

import chainrule
from chainrule.core import ops

TAME = [0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 0.1, 1.7, -0.3, 3.25]
WILD = [
    *TAME,
    -0.0,
    math.inf,
    -math.inf,
    math.nan,
    1e308,
    -1e308,
    1e-308,
    5e-324,
    710.0,
    -745.2,
    1e16,
]
BINARY = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
    "+=": operator.iadd,
    "*=": operator.imul,
}
COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
ROWS = [name for name in ops.TABLE if name not in ("add", "mul", "pow", "power")]


@dataclass(frozen=True)
class Action:
    name: str
    arguments: tuple[Any, ...] = ()
    mode: str = ""  # grad off, nonfinite allowed or debug on, for this action


def subclasses(Value: Any) -> list[Any]:
    class Free(Value):
        pass

    class Slotted(Value):
        __slots__ = ("extra",)

    class Bare(Value):
        __slots__ = ()

    return [Value, Free, Slotted, Bare]


class World:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.classes = subclasses(engine.Value)
        self.pool: list[Any] = [engine.Value(x) for x in (2.0, -0.5)]

    # --- carrying out ---------------------------------------------------------------------------

    def do(self, action: Action) -> Any:
        with self.mode(action.mode):
            try:
                return getattr(self, action.name)(*action.arguments)
            except Exception as error:
                return type(error).__name__, str(error)

    @contextmanager
    def mode(self, name: str) -> Any:
        modes = self.engine.modes
        if name:
            setattr(modes, name, name != "grad")
        try:
            yield
        finally:
            modes.grad, modes.allow_nonfinite, modes.debug = True, False, False

    def numbers(self) -> list[Any]:
        return [(bits(v.data), bits(v.grad), v.label) for v in self.pool]

    def everything(self) -> Any:
        return graph(self.engine, *self.pool)

    def operand(self, x: Any) -> Any:
        """A place in the pool, or a number."""
        return self.pool[x[0]] if isinstance(x, tuple) else x

    def add(self, v: Any) -> str:
        if not isinstance(v, self.engine.Value):
            return f"not a Value: {v!r}"
        self.pool.append(v)
        return "made"

    # --- making nodes ---------------------------------------------------------------------------

    def leaf(self, kind: int, x: Any, label: str) -> Any:
        return self.add(self.classes[kind](x, label=label))

    def binary(self, symbol: str, a: Any, b: Any) -> Any:
        return self.add(BINARY[symbol](self.operand(a), self.operand(b)))

    def negate(self, i: int) -> Any:
        return self.add(-self.pool[i])

    def row(self, name: str, operands: tuple[Any, ...], parameters: tuple[float, ...]) -> Any:
        return self.add(self.engine.function(name)(*map(self.operand, operands), *parameters))

    def custom(self, kind: int, y: float, children: tuple[int, ...], slopes: Any, op: str) -> Any:
        nodes = tuple(self.pool[i] for i in children)
        return self.add(self.classes[kind](y, nodes, slopes, op=op))

    def named(self, y: float, children: tuple[int, ...], symbol: str) -> Any:
        return self.add(self.engine.Value(y, [self.pool[i] for i in children], symbol))

    def vsum(self, xs: tuple[Any, ...]) -> Any:
        return self.add(self.engine.vsum(map(self.operand, xs)))

    def dot(self, xs: tuple[Any, ...], ys: tuple[Any, ...]) -> Any:
        return self.add(self.engine.dot([*map(self.operand, xs)], [*map(self.operand, ys)]))

    def linear(self, xs: tuple[Any, ...], w: tuple[tuple[Any, ...], ...]) -> Any:
        rows = [[self.operand(x) for x in row] for row in w]
        return [self.add(y) for y in self.engine.linear([self.operand(x) for x in xs], rows)]

    def shallow(self, i: int) -> Any:
        return self.add(copy.copy(self.pool[i]))

    def duplicate(self, i: int, protocol: int) -> Any:
        v = self.pool[i]
        exact = all(type(u) is chainrule.Value for u in self.engine.topological_order(v))
        if self.engine is NATIVE and exact and protocol:  # pickle finds Value under chainrule
            return self.add(pickle.loads(pickle.dumps(v, protocol)))
        return self.add(copy.deepcopy(v))

    def forget(self, i: int) -> Any:
        self.pool[i] = self.engine.Value(1.0)

    # --- gradients ------------------------------------------------------------------------------

    def gradients(self, i: int, others: tuple[int, ...], up_to: bool) -> Any:
        return [bits(g) for g in self.pool[i]._gradients([self.pool[j] for j in others], up_to)]

    def backward(self, i: int, gradient: float) -> Any:
        self.pool[i].backward(gradient)

    def zero_grad(self, i: int) -> Any:
        self.pool[i].zero_grad()

    def step(self, i: int) -> Any:
        self.pool[i]._backward()

    def set_grad(self, i: int, x: Any) -> Any:
        self.pool[i].grad = x

    def add_grad(self, i: int, x: Any) -> Any:
        self.pool[i].grad += x

    def set_child_grad(self, i: int, j: int, x: float) -> Any:
        self.pool[i].children[j].grad = x

    def set_data(self, i: int, x: Any) -> Any:
        self.pool[i].data = x

    def set_label(self, i: int, text: Any) -> Any:
        self.pool[i].label = text

    # --- looking --------------------------------------------------------------------------------

    def look(self, i: int) -> Any:
        v = self.pool[i]
        identity = [id(c) for c in v.children]
        assert identity == [id(c) for c in v._prev], "children keep their identity"
        return graph(self.engine, *v.children)

    def look_aside(self, i: int) -> Any:
        v = self.pool[i]
        return v.op, [bits(g) for g in v.local_grads], [bits(p) for p in v._parameters]

    def sort(self, i: int) -> Any:
        return graph(self.engine, self.pool[i])

    def show(self, i: int, spec: str) -> Any:
        return repr(self.pool[i]), format(self.pool[i], spec), bool(self.pool[i])

    def compare(self, symbol: str, i: int, b: Any) -> Any:
        return COMPARISONS[symbol](self.pool[i], self.operand(b))

    def linearize(self, i: int) -> Any:
        """Only the native engine has it; here it must leave no trace."""
        if self.engine is NATIVE:
            try:
                linearize(self.pool[i])
            except TypeError as error:
                assert "tape" in str(error)  # custom operations


# --- drawing ------------------------------------------------------------------------------------


def number(rng: Random, stock: list[float]) -> Any:
    x = rng.choice(stock) if rng.random() < 0.6 else rng.uniform(-3.0, 3.0)
    draw = rng.random()
    if draw < 0.7 or not math.isfinite(x):
        return x
    if draw < 0.8:
        return int(x) if abs(x) < 1e18 else x
    if draw < 0.85:
        return np.float64(x)
    if draw < 0.9:
        return np.int64(x) if abs(x) < 1e18 else x
    return Fraction(x) if draw < 0.95 else x > 0


def action(rng: Random, size: int, stock: list[float]) -> Action:
    def place() -> int:
        return (
            size - 1 - rng.randrange(size) * rng.randrange(size) // size
        )  # recent ones more often

    def operand() -> Any:
        return number(rng, stock) if rng.random() < 0.2 else (place(),)

    def operands(count: int) -> tuple[Any, ...]:
        return tuple(operand() for _ in range(count))

    def label() -> str:
        return rng.choice(["", "", "a", "weight", "é"])

    name = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    mode = rng.choice(["grad", "allow_nonfinite", "debug"]) if rng.random() < 0.15 else ""
    width = rng.randint(0, 4)
    children = tuple(place() for _ in range(rng.choice([1, 1, 2, 2, 3, 5])))
    slopes = tuple(float(number(rng, stock)) for _ in children)
    kind = rng.choice([0, 0, 0, 1, 2, 3])
    arguments: dict[str, Any] = {
        "leaf": lambda: (kind, number(rng, stock), label()),
        "binary": lambda: _binary(rng, place, operand),
        "negate": lambda: (place(),),
        "row": lambda: _row(rng, (place(),), operand),
        "custom": lambda: (
            kind,
            float(number(rng, stock)),
            children,
            slopes,
            rng.choice(["mine", "", "+"]),
        ),
        "named": lambda: (
            float(number(rng, stock)),
            children[:2],
            rng.choice(
                ["+", "*", "**2", "**", "tanh", "relu", "maximum", "atan2", "erf", "**-0.5", "clip"]
            ),
        ),
        "vsum": lambda: (operands(width),),
        "dot": lambda: (operands(width), operands(width if rng.random() < 0.9 else 3)),
        "linear": lambda: (
            operands(width),
            tuple(operands(width) for _ in range(rng.randint(0, 3))),
        ),
        "duplicate": lambda: (place(), rng.choice([0, 2, 5])),
        "backward": lambda: (
            place(),
            rng.choice([1.0, 1.0, 1, -2.5, 0.0, -0.0, number(rng, stock)]),
        ),
        "gradients": lambda: (place(), children, rng.random() < 0.5),
        "set_grad": lambda: (place(), number(rng, stock)),
        "add_grad": lambda: (place(), number(rng, stock)),
        "set_child_grad": lambda: (place(), rng.randint(0, 1), float(number(rng, stock))),
        "set_data": lambda: (place(), number(rng, stock)),
        "set_label": lambda: (place(), rng.choice(["", "x", "y" * 40, None])),
        "show": lambda: (place(), rng.choice(["", ".4f", "8.2e"])),
        "compare": lambda: (rng.choice(list(COMPARISONS)), place(), operand()),
    }
    return Action(name, arguments.get(name, lambda: (place(),))(), mode)


def _binary(rng: Random, place: Any, operand: Any) -> tuple[Any, ...]:
    symbol = rng.choice(list(BINARY))
    a, b = (place(),), operand()
    if rng.random() < 0.15:
        b = a
    return (symbol, b, a) if rng.random() < 0.3 and not symbol.endswith("=") else (symbol, a, b)


def _row(rng: Random, first: Any, operand: Any) -> tuple[Any, ...]:
    hot = ["exp", "log", "relu", "abs", "tanh", "sigmoid", "sqrt", "sin", "cos", "maximum"]
    row = ops.TABLE[rng.choice(hot) if rng.random() < 0.5 else rng.choice(ROWS)]
    operands = (first, *(operand() for _ in range(row.arity - 1)))
    if row.arity == 2 and rng.random() < 0.3:
        operands = operands[::-1]
        if not any(isinstance(x, tuple) for x in operands):
            operands = (first, first)
    parameters = {
        "clip": (-0.5, 1.5),
        "leaky_relu": (0.1,),
        "where": (float(rng.random() < 0.5),),
    }.get(row.name, ())
    return row.name, operands, parameters


#: how often each action comes
WEIGHTS = {
    "leaf": 4,
    "binary": 30,
    "negate": 2,
    "row": 16,
    "custom": 4,
    "named": 2,
    "vsum": 2,
    "dot": 2,
    "linear": 1,
    "shallow": 2,
    "duplicate": 1,
    "forget": 4,
    "backward": 14,
    "gradients": 6,
    "zero_grad": 3,
    "step": 4,
    "set_grad": 4,
    "add_grad": 2,
    "set_child_grad": 2,
    "set_data": 4,
    "set_label": 2,
    "look": 4,
    "look_aside": 3,
    "sort": 2,
    "show": 2,
    "compare": 2,
    "linearize": 2,
}


def live(rng: Random, actions: int, stock: list[float]) -> dict[str, int]:
    """One life; how often each action came."""
    worlds = [World(engine) for engine in ENGINES]
    seen: dict[str, int] = {}
    told: list[Action] = []
    for _ in range(actions):
        now = action(rng, len(worlds[0].pool), stock)
        told.append(now)
        agree([world.do(now) for world in worlds], told)
        agree([world.numbers() for world in worlds], told)
        seen[now.name] = seen.get(now.name, 0) + 1
    agree([world.everything() for world in worlds], told)
    return seen


def agree(answers: list[Any], told: list[Action]) -> None:
    expected, actual = answers
    if actual == expected:
        return
    if isinstance(actual, list) and isinstance(expected, list) and len(actual) == len(expected):
        differing = [pair for pair in zip(expected, actual, strict=True) if pair[0] != pair[1]]
        expected, actual = differing[0]
    actions = "\n".join(f"  {i}: {a.name}{a.arguments} {a.mode}" for i, a in enumerate(told))
    raise AssertionError(
        f"reference: {expected!r:.1000}\nnative:    {actual!r:.1000}\nafter\n{actions}"
    )
