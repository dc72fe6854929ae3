"""Whole programs from a seed: globals, classes, helpers, a function ``f``, and calls of it.

``program(seed)`` gives a ``Program``: source text, and for every call what happens before it (a
global is changed, say) and its arguments, all as text. So a program can be printed, run in as many
fresh worlds as wanted, and made smaller.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from fuzz_classes import PASSED, classes_of
from fuzz_scope import Helper, Scope, Type, literal
from fuzz_statements import VALUE, Statements, indent
from fuzz_subjects import subject_of, written

FEW = 12  # calls of derivatives, which take longer
HASHABLE = ("value", "int", "float", "bool")
CACHES = ("lru_cache", "lru_cache(maxsize=None)", "lru_cache(maxsize=2)", "cache")
HEADER = """\
import bisect
import dataclasses
import enum
import functools
import heapq
import itertools
import math
import random
from collections import Counter, defaultdict, deque, namedtuple
from types import SimpleNamespace

import numpy as np

import chainrule
from chainrule import Value, exp, log, maximum, minimum, relu, sigmoid, sin, sqrt, tanh, vsum

LOG = []
STATE = {"calls": 0}


@chainrule.operation(partials=lambda y, x: 1.0 / (1.0 + abs(x)) ** 2)
def squash(x):
    return x / (1.0 + abs(x))


@chainrule.operation(partials=[lambda y, a, b: b * sin(a), lambda y, a, b: 1.0 - a.cos()])
def blend(a, b):
    return b * (1.0 - a.cos())


def _called(x):
    return 0.5 * math.atan(x)


called = chainrule.operation(
    _called, name="called", partials=lambda y, x: 0.5 / (1.0 + x * x), opaque=True
)
"""


@dataclass(frozen=True)
class Call:
    """One call: statements to execute first, and the arguments as the text of a tuple."""

    before: str
    arguments: str

    def with_argument(self, text: str) -> Call:
        """The same call with one more argument."""
        return Call(self.before, f"(*{self.arguments}, {text})")


@dataclass(frozen=True)
class Program:
    """Source that defines ``f``, its calls, and how they are made.

    ``mode`` is value_and_grad, call, values (a plain call of Values), batch, train, one of the
    derivatives jacobian, hessian and hvp, or one of ``fuzz_ways``.
    """

    seed: int
    source: str
    calls: tuple[Call, ...]
    mode: str = "value_and_grad"
    options: dict[str, object] = field(default_factory=dict)

    @property
    def eager_source(self) -> str:
        """The source without compiled helpers."""
        return self.source.replace("@chainrule.compile\n", "")


class World:
    """The globals, parameters and data of one program."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.n = rng.randint(3, 5)  # how many tokens there are, and rows of parameters
        self.k = rng.randint(2, 3)  # columns
        self.lines: list[str] = []  # module level
        self.globals = Scope(rng)
        self.events: list[str] = []
        self.data: list[tuple[str, Type, str]] = []  # name, type, way to make one
        self.parameters: list[tuple[str, Type]] = []
        self.layout = ""
        self.focus = False
        self.word = rng.choice(
            [2, 3, 4, 5, 5, 6]
        )  # how many integers a list has whose length stays

    # --- literals ---------------------------------------------------------------------------------

    def number(self) -> str:
        """A float that is a parameter."""
        return repr(round(self.rng.uniform(-1.2, 1.2), 4))

    def numbers(self, count: int) -> str:
        """A list of them."""
        return f"[{', '.join(self.number() for _ in range(count))}]"

    def grid(self) -> str:
        """A matrix of them."""
        return f"[{', '.join(self.numbers(self.k) for _ in range(self.n))}]"

    def ints(self, count: int, high: int) -> str:
        """Integers from 0 to high."""
        return f"[{', '.join(str(self.rng.randint(0, high)) for _ in range(count))}]"

    def bools(self, count: int) -> str:
        """True and False."""
        return f"[{', '.join(str(self.rng.random() < 0.5) for _ in range(count))}]"

    def floats(self, count: int) -> str:
        """Data."""
        return f"[{', '.join(literal(self.rng, 'float') for _ in range(count))}]"

    def adjacency(self) -> str:
        """For each node the nodes beside it."""
        rows = []
        for _ in range(self.n):
            rows.append(str(sorted(self.rng.sample(range(self.n), self.rng.randint(0, 3)))))
        return f"[{', '.join(rows)}]"

    # --- module level -----------------------------------------------------------------------------

    def add_globals(self) -> None:
        """Tables, flags and settings, and how they may change between calls."""
        rng, n, scope = self.rng, self.n, self.globals
        top = n - 1

        def table(name: str, text: str, kind: str, event: str, **bounds: int) -> None:
            if rng.random() < 0.2 and text.startswith("[") and "[[" not in text:
                text, event = (
                    f"({text[1:-1]},)",
                    f"{name} = {text}",
                )  # a tuple: replaced, not changed
            elif rng.random() < 0.1 and text.startswith("[") and kind == "floats":
                text, kind = f"np.array({text})", "farray"
            self.lines.append(f"{name} = {text}")
            length = bounds.pop("length", n)
            scope.add(name, Type(kind, length, **bounds))
            self.events.append(event)

        i, j = rng.randint(0, top), rng.randint(0, top)
        choices = {
            "FLAG": (self.ints(n, 1), "ints", f"FLAG[{i}] = 1 - FLAG[{i}]", {"low": 0, "high": 1}),
            "EOS": (self.bools(n), "bools", f"EOS[{i}] = not EOS[{i}]", {}),
            "REMAP": (self.ints(n, top), "ints", f"REMAP[{i}] = {j}", {"low": 0, "high": top}),
            "RISK": (self.floats(n), "floats", f"RISK[{i}] = {self.number()}", {}),
            "T": (
                f"[{', '.join(self.ints(n, top) for _ in range(n))}]",
                "table",
                f"T[{i}][{j}] = {rng.randint(0, top)}",
                {"low": 0, "high": top, "width": n},
            ),
            "NEIGHBOURS": (
                self.adjacency(),
                "rows",
                f"NEIGHBOURS[{i}] = [{j}]",
                {"low": 0, "high": top},
            ),
        }
        for name in rng.sample(list(choices), rng.randint(1, 4)):
            text, kind, event, bounds = choices[name]
            table(name, text, kind, event, **bounds)
        if rng.random() < 0.4:
            self.lines.append(f"SCALE = {self.number()}")
            scope.add("SCALE", Type("float"))
            self.events.append(f"SCALE = {self.number()}")
        if rng.random() < 0.4:
            self.lines.append(f"LIMIT = {rng.randint(1, 3)}")
            scope.add("LIMIT", Type("int", low=0, high=4))
            self.events.append(f"LIMIT = {rng.randint(0, 4)}")
        if rng.random() < 0.3:
            self.lines.append(f"MASK = np.array({self.bools(n)})")
            scope.add("MASK", Type("barray", n))
            self.events.append(f"MASK[{i}] = not MASK[{i}]")
        if rng.random() < 0.3:
            self.lines.append(f"SLOTS = np.array({self.ints(n, top)})")
            scope.add("SLOTS", Type("iarray", n, low=0, high=top))
            self.events.append(f"SLOTS[{i}] = {j}")
        if rng.random() < 0.3:
            kind = rng.choice(
                [
                    "{{'rate': {}, 'depth': {}}}",
                    "type('Config', (), {{'rate': {}, 'depth': {}}})()",
                    "SimpleNamespace(rate={}, depth={})",
                ]
            )
            self.lines.append(f"CONFIG = {kind.format(self.number(), rng.randint(0, 2))}")
            rate, depth = ("CONFIG.rate", "CONFIG.depth")
            if kind.startswith("{{"):
                rate, depth = ("CONFIG['rate']", "CONFIG['depth']")
            scope.add(rate, Type("float"))
            scope.add(depth, Type("int", low=0, high=3))
            self.events += [f"{rate} = {self.number()}", f"{depth} = {rng.randint(0, 3)}"]
        if rng.random() < 0.12:
            self.lines.append(f"BIAS = Value({self.number()})")
            scope.add("BIAS", Type("value"))
            self.events.append(f"BIAS.data = {self.number()}")

    def add_parameters(self, arrays: bool) -> None:
        """The type of the first argument ``p``, and how its parts are reached."""
        rng, n, k = self.rng, self.n, self.k
        vector = "varray" if arrays or (not self.focus and rng.random() < 0.3) else "values"
        matrix = "vmatrix" if vector == "varray" else "matrix"
        self.array = vector == "varray"
        w, m, b = Type(vector, n), Type(matrix, n, k), Type("value")
        layouts = [(4, "dict"), (2, "vector"), (1, "tuple"), (1, "named"), (0.7, "nested")]
        layouts += [(0.4, "dataclass"), (0.5, "matrix"), (0.5, "number"), (0.5, "mixed")]
        if arrays:
            layouts = layouts[:2]
        elif self.focus:
            layouts = [(3, "vector"), (2, "matrix"), (2, "dict"), (1, "nested")]
        self.layout = self.globals.pick(layouts)
        if self.layout == "named":
            self.lines.append('Params = namedtuple("Params", "w m b")')
        if self.layout == "dataclass":
            frozen = "(frozen=True)" if rng.random() < 0.5 else ""
            self.lines += [f"@dataclasses.dataclass{frozen}", "class Params:"]
            self.lines += indent(["w: object", "m: object", "b: float"])
        self.parameters = {
            "dict": [('p["w"]', w), ('p["m"]', m)] + ([] if arrays else [('p["b"]', b)]),
            "vector": [("p", w)],
            "tuple": [("p[0]", w), ("p[1]", b)],
            "named": [("p.w", w), ("p.m", m), ("p.b", b)],
            "nested": [('p["layers"][0]["w"]', w), ('p["layers"][1]["w"]', w), ('p["out"]', b)],
            "dataclass": [("p.w", w), ("p.m", m), ("p.b", b)],
            "matrix": [("p", m)],
            "number": [("p", b)],
            "mixed": [("p[0]", b), ("p[1]", w), ("p[2]", b)],
        }[self.layout]

    def parameter_text(self) -> str:
        """New parameters, as text."""

        def vector() -> str:
            text = self.numbers(self.n)
            return f"np.array({text})" if self.array else text

        grid = f"np.array({self.grid()})" if self.array else self.grid()
        b = self.number()
        if self.layout == "dict":
            has_b = any(text == 'p["b"]' for text, _ in self.parameters)
            return f'{{"w": {vector()}, "m": {grid}' + (f', "b": {b}}}' if has_b else "}")
        return {
            "vector": vector(),
            "tuple": f"({vector()}, {b})",
            "named": f"Params({vector()}, {grid}, {b})",
            "nested": f'{{"layers": [{{"w": {vector()}}}, {{"w": {vector()}}}], "out": {b}}}',
            "dataclass": f"Params({vector()}, {grid}, {b})",
            "matrix": grid,
            "number": b,
            "mixed": f"[{b}, {vector()}, {self.number()}]",
        }[self.layout]

    def add_data(self, count: int) -> None:
        """The arguments after the first: names, types, and how to make them."""
        rng, n = self.rng, self.n
        top = n - 1
        shortest = rng.choice([0, 1, 1, 2])
        every = {
            "tokens": Type("ints", shortest, low=0, high=top, fixed=False, mutable=True),
            "ys": Type("ints", self.word, low=0, high=top, mutable=True),
            "index": Type("int", low=0, high=top),
            "offset": Type("int", low=-n, high=top),
            "flag": Type("bool"),
            "size": Type("int", low=0, high=4),
            "x": Type("float"),
            "y": Type("float"),
            "xs": Type("floats", n, mutable=True),
            "series": Type("floats", 1, fixed=False, mutable=True),
            "arr": Type("farray", n, mutable=True),
            "mask": Type("bools", n),
            "keep": Type("barray", n),
            "slots": Type("iarray", 2, low=0, high=top),
            "mode": Type("str"),
            "edges": Type("rows", n, low=0, high=top),
            "config": Type("config"),
            "word": Type("str"),
            "level": Type("float"),
            "narrow": Type("float"),
            "place": Type("int", low=0, high=top),
            "ids": Type("iarray", n, low=0, high=top),
            "sample": Type("sample"),
            "point": Type("floats", 2),
        }
        weights = [5, 2, 4, 1, 1.5, 2, 3, 1.5, 2, 1, 1.5, 1.2, 0.8, 0.7, 1, 0.8, 0.7]
        weights += [1, 1, 0.4, 1, 0.8, 0.7, 0.5]
        if self.focus:
            weights = [3, 6, 4, 1, 0.5, 2, *[0.0] * 5, 1, *[0.0] * 3, 1, 0.0]
            weights += [0.5, 0.0, 0.0, 1, 0.5, 0.0, 0.0]
        chosen: list[str] = []
        while len(chosen) < count:
            name = rng.choices(list(every), weights)[0]
            if name not in chosen:
                chosen.append(name)
        self.data = [(name, every[name], name) for name in chosen]
        if rng.random() < 0.07 and "xs" in chosen:
            self.data.append(("zs", every["xs"], "zs"))  # sometimes the same list as xs

    def data_text(self, name: str) -> str:
        """A new argument of this name, as text."""
        rng, n = self.rng, self.n
        top = n - 1
        if name == "tokens":
            t = next(t for known, t, _ in self.data if known == "tokens")
            return self.ints(rng.randint(t.length, rng.choice([3, 6])) if t.length < 4 else 4, top)
        if name == "series":
            return self.floats(rng.randint(1, 4))
        if name == "config":
            return f"SimpleNamespace(gain={literal(rng, 'float')}, steps={rng.randint(0, 3)})"
        if name == "sample":
            text = f"'x': {literal(rng, 'float')}, 'y': {rng.randint(0, top)}"
            return f"{{{text}, 'ids': {self.ints(2, top)}}}"
        makers = {
            "ys": lambda: self.ints(self.word, top),
            "index": lambda: str(rng.randint(0, top)),
            "offset": lambda: str(rng.randint(-n, top)),
            "flag": lambda: str(rng.random() < 0.5),
            "size": lambda: str(rng.randint(0, 4)),
            "x": lambda: literal(rng, "float"),
            "y": lambda: literal(rng, "float"),
            "xs": lambda: self.floats(n),
            "zs": lambda: self.floats(n),
            "arr": lambda: f"np.array({self.floats(n)})",
            "mask": lambda: self.bools(n),
            "keep": lambda: f"np.array({self.bools(n)})",
            "slots": lambda: f"np.array({self.ints(2, top)})",
            "mode": lambda: repr(rng.choice(["tanh", "relu", "linear"])),
            "edges": self.adjacency,
            "word": lambda: repr(
                rng.choice(
                    ["abba", "rail", "lara", "a", "ball", "".join(rng.choices("abilr", k=4))]
                )
            ),
            "level": lambda: f"np.float64({literal(rng, 'float')})",
            "narrow": lambda: f"np.float32({literal(rng, 'float')})",
            "place": lambda: f"np.int64({rng.randint(0, top)})",
            "ids": lambda: f"np.array({self.ints(n, top)})",
            "point": lambda: f"({literal(rng, 'float')}, {literal(rng, 'float')})",
        }
        return makers[name]()

    def arguments_text(self, parameters: str | None) -> str:
        """The arguments of one call; without parameters, of one sample."""
        texts = [self.data_text(name) for name, _, _ in self.data]
        names = [name for name, _, _ in self.data]
        head = [] if parameters is None else [parameters]
        if "zs" in names and self.rng.random() < 0.4:
            shared = texts[names.index("xs")]
            same = [
                "s" if name in ("xs", "zs") else t for name, t in zip(names, texts, strict=True)
            ]
            return f"(lambda s: ({', '.join([*head, *same])},))({shared})"
        return f"({', '.join([*head, *texts])},)" if head or texts else "()"

    # --- functions --------------------------------------------------------------------------------

    def argument_scope(self, scope: Scope) -> None:
        """The arguments of ``f`` as names."""
        for text, type_ in self.parameters:
            scope.add(text, type_, weight=3.0)
        for name, type_, _ in self.data:
            if type_.kind == "config":
                scope.add("config.gain", Type("float"), weight=3.0)
                scope.add("config.steps", Type("int", low=0, high=3), weight=3.0)
            elif type_.kind == "sample":
                label = Type("int", low=0, high=self.n - 1)
                scope.add("sample['x']", Type("float"), weight=3.0)
                scope.add("sample['y']", label, weight=3.0)
                scope.add("sample['ids']", replace(label, kind="ints", length=2), weight=3.0)
            else:
                scope.add(name, type_, weight=6.0)
            if type_.kind == "ints" and type_.length:
                element = Type("int", low=type_.low, high=type_.high)
                for i in {0, -1, type_.length - 1}:
                    scope.add(f"{name}[{i}]", element, weight=3.0)

    def inner_scope(self, helpers: list[Helper], reserved: set[str]) -> Scope:
        """A scope with the globals in it."""
        known = [replace(name, weight=1.0) for name in self.globals.names]
        scope = Scope(self.rng, known, list(helpers), set(reserved))
        scope.focus = self.focus
        scope.effects = not self.focus and self.rng.random() < 0.25
        return scope


def helper(world: World, number: int, helpers: list[Helper]) -> tuple[list[str], Helper]:
    """A function beside ``f``: its lines, and how it is called."""
    rng = world.rng
    vector = "varray" if world.array else "values"
    kinds = [
        ("v", Type("value")),
        ("t", Type("int", low=0, high=world.n - 1)),
        ("scale", Type("float")),
        ("ws", Type(vector, world.n)),
        ("ts", Type("ints", 0, low=0, high=world.n - 1, fixed=False)),
        ("on", Type("bool")),
    ]
    gives_int = rng.random() < 0.25
    count = rng.randint(1, 3)
    arguments = rng.sample(kinds[1:2] + kinds[4:] if gives_int else kinds, min(count, 3))
    if not gives_int and not any(t.kind in ("value", vector) for _, t in arguments):
        arguments.insert(0, kinds[0])
    keywords = [("gain", Type("float"))] if rng.random() < 0.3 else []
    name = rng.choice(["score", "step", "combine", "mix", "cell", "lookup", "encode"]) + str(number)
    scope = world.inner_scope(helpers, {text for text, _ in arguments} | {"gain", "total"})
    for text, type_ in [*arguments, *keywords]:
        scope.add(text, type_, weight=6.0)
    signature = [text for text, _ in arguments] + [f"{k}={world.number()}" for k, _ in keywords]
    style = scope.pick([(5, "plain"), (1.5, "closure"), (2, "method"), (0.7, "compiled")])
    prefix: list[str] = []
    called = name
    if style == "method":
        class_name = name.capitalize()
        prefix = [f"class {class_name}:", f"    bias = {world.number()}", ""]
        table = world.ints(world.n, world.n - 1)
        prefix += indent(["def __init__(self, power):", "    self.power = power"])
        prefix += indent([f"    self.table = {table}", ""])
        scope.add("self.power", Type("int", low=0, high=3))
        scope.add("self.table", Type("ints", world.n, low=0, high=world.n - 1))
        scope.add("self.bias", Type("float"))
        called = f"{name}_model.{rng.choice(['apply', '__call__', 'forward'])}"
    writer = Statements(scope, "total")
    writer.constants = gives_int
    if gives_int:
        scope.effects = False
        result = writer.int(2)
        lines = [f"return {result.text}"]
        bounds = Type("int", low=result.low, high=result.high)
    else:
        lines = [f"total = {writer.value(1)}"]
        if rng.random() < 0.3:
            scope.add("total", VALUE)
        lines += writer.body(rng.randint(1, 3), 1) if rng.random() < 0.7 else []
        lines.append(f"return {rng.choice(['total', 'tanh(total)', '0.5 * total'])}")
        bounds = VALUE
    method = called.rpartition(".")[2]
    if style == "method":
        head = f"def {method}({', '.join(['self', *signature])}):"
        text = [*prefix, *indent([head, *indent(lines)]), "", ""]
        text += [f"{name}_model = {name.capitalize()}({rng.randint(0, 3)})"]
        world.events += [f"{name}_model.power = {rng.randint(0, 3)}"]
        world.events += [f"{name.capitalize()}.bias = {world.number()}"]
        world.events += [f"{name}_model.table[0] = {rng.randint(0, world.n - 1)}"]
        if method == "__call__":
            called = f"{name}_model"
    elif style == "closure":
        constant = rng.choice([world.number(), str(rng.randint(1, 2))])
        body = [f"def inner({', '.join(signature)}):", *indent(lines)]
        if not gives_int:
            body[-1] = "    return total * factor"
        text = [f"def make_{name}(factor):", *indent([*body, "", "return inner"]), "", ""]
        text += [f"{name} = make_{name}({constant})"]
    else:
        text = [f"def {name}({', '.join(signature)}):", *indent(lines)]
        if style == "compiled" and not gives_int:
            text.insert(0, "@chainrule.compile")
    return text, Helper(called, tuple(arguments), tuple(keywords), bounds)


def program(seed: int) -> Program:
    """The program of a seed: the same one every time."""
    subject = subject_of(seed)
    if subject is not None:
        about = written(seed, subject)
        made = tuple(Call(before, arguments) for before, arguments in about.calls)
        return Program(seed, f"{HEADER}{about.source}", made, about.mode, about.options)
    return any_program(seed)


def any_program(seed: int) -> Program:
    """Statements at random."""
    rng = random.Random(f"chainrule fuzz {seed}")
    world = World(rng)
    mode = rng.choices(
        ["value_and_grad", "call", "values", "batch", "train"], [12, 2, 1, 1.5, 1.5]
    )[0]
    world.focus = rng.random() < 0.5
    world.add_globals()
    world.add_parameters(arrays=mode == "train")
    often = [0, 8, 4, 1, 0] if world.focus else [0.3, 4, 5, 3, 1]
    world.add_data(rng.choices([0, 1, 2, 3, 4], often)[0])
    blocks = [HEADER.rstrip().splitlines() + world.lines]
    helpers: list[Helper] = []
    for number in range(rng.choice([0, 0, 1] if world.focus else [0, 1, 1, 2, 2, 3])):
        lines, made = helper(world, number, helpers)
        if lines[0].startswith("def ") and all(t.kind in HASHABLE for _, t in made.arguments):
            apart = random.Random(f"cache {seed} {number}")
            lines[:0] = [f"@functools.{apart.choice(CACHES)}"] * (apart.random() < 0.15)
        blocks.append(lines)
        helpers.append(made)
    scope = world.inner_scope(helpers, {"p", *(name for name, _, _ in world.data)})
    world.argument_scope(scope)
    extras = mode in ("value_and_grad", "call") and rng.random() < 0.12
    accumulator = rng.choice(["total", "s", "loss", "acc"])
    scope.used.add(accumulator)
    writer = Statements(scope, accumulator, extras)
    body = [f"{accumulator} = {rng.choice([writer.value(0), '0.0', writer.value(1)])}"]
    if rng.random() < 0.3:
        scope.add(accumulator, VALUE, weight=0.5)
    if world.focus and rng.random() < 0.8:
        body += writer.over_tokens()
    body += writer.body(rng.choice([0, 0, 0, 1, 2] if world.focus else [1, 2, 3, 3, 4, 5, 6]))
    result = rng.choice([accumulator, f"tanh({accumulator})", f"{accumulator} + {writer.value(0)}"])
    # In some programs a factor passed as data hides the result of the first calls, which is the one
    # that the compiler compares with eager's. It is drawn apart: other programs stay as they are.
    masked = mode not in ("batch", "train") and random.Random(f"masked {seed}").random() < 0.25
    # Likewise some programs are passed an object, or a function, as their last argument.
    last = random.Random(f"object {seed}")
    passed = last.choice(PASSED) if mode not in ("batch", "train") and last.random() < 0.2 else None
    if passed is not None:
        for text in last.sample(passed[2], last.randint(1, 2)):
            body += text.format(A=accumulator, K=last.randint(0, 2)).splitlines()
    body.append(writer.returned(f"({result}) * shown" if masked else result))
    signature = ["p", *(name for name, _, _ in world.data), *(["shown"] if masked else [])]
    signature += [] if passed is None else [passed[0]]
    blocks.append([f"def f({', '.join(signature)}):", *indent(body)])
    words = "\n".join(line for lines in blocks for line in lines)
    words += " ".join(() if passed is None else passed[1])
    for definition, events in classes_of(words):
        blocks.insert(1, definition.splitlines())
        world.events += events
    source = "\n\n\n".join("\n".join(lines) for lines in blocks) + "\n"
    options: dict[str, object] = {}
    lift = rng.choices([None, True, False], [7, 1, 2])[0]  # machine code takes seconds to build
    if lift is not None:
        options["lift"] = lift
    made = calls(world, mode)
    if masked:
        hidden = len(made) // 3 + 1
        made = [call.with_argument("0.0" if i < hidden else "1.0") for i, call in enumerate(made)]
    if passed is not None:
        made = [call.with_argument(_object_text(last, passed[1])) for call in made]
    apart = random.Random(f"derivative {seed}")
    if mode == "value_and_grad" and apart.random() < 0.1:
        mode, made = apart.choice(["jacobian", "hessian", "hvp"]), made[:FEW]
    if mode == "value_and_grad" and random.Random(f"turns {seed}").random() < 0.05:
        mode = "interleaved"
    return Program(seed, source, tuple(made), mode, options)


def _object_text(rng: random.Random, ways: tuple[str, ...]) -> str:
    return rng.choice(ways).format(F=literal(rng, "float"), K=rng.randint(0, 2))


def calls(world: World, mode: str) -> list[Call]:
    """What is done with ``f``."""
    rng = world.rng
    frozen = rng.random() < 0.4  # the parameters stay; often the same arguments come back
    often = 0.0 if rng.random() < 0.5 else 0.03 if world.focus else 0.15  # a global changes
    made: list[Call] = []
    parameters = world.parameter_text()
    seen: list[str] = []
    count = rng.choice([30, 60, 100]) if world.focus else rng.randint(10, 30)
    for _ in range(rng.randint(2, 4) if mode in ("batch", "train") else count):
        if not frozen and rng.random() < 0.5:
            parameters = world.parameter_text()
        event = rng.choice(world.events) if world.events and rng.random() < often else ""
        if mode in ("batch", "train"):
            samples = [world.arguments_text(None) for _ in range(rng.randint(2, 8))]
            arguments = f"({parameters}, [{', '.join(samples)}])"
        else:
            arguments = world.arguments_text(parameters)
            if seen and frozen and rng.random() < 0.2:
                arguments = rng.choice(seen)
        seen.append(arguments)
        made.append(Call(event, arguments))
    return made
