"""Small programs as data: what every engine, right or wrong, is asked to compute.

A ``Graph`` is a list of steps over named inputs. ``truth`` runs it on chainrule's own engine,
``small_graphs`` lists every graph of up to five nodes, the smallest first, and ``random_graphs``
gives larger ones in which much is shared.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from chainrule.core import functions
from chainrule.core.backend import Value, topological_order
from chainrule.see.names import compact

_LETTERS = "abcdefgh"
_SIGNS = {"add": "+", "mul": "*"}
LARGEST = 5  # nodes


@dataclass(frozen=True)
class Step:
    """``name = op(arguments)``; an argument is a node's name or a plain number."""

    name: str
    op: str
    arguments: tuple[str | float, ...]

    def __str__(self) -> str:
        words = [x if isinstance(x, str) else compact(x) for x in self.arguments]
        sign = {**_SIGNS, "pow": "**", "sub": "-", "truediv": "/"}.get(self.op)
        if sign is not None:
            return f"{self.name} = {f' {sign} '.join(words)}"
        call = f"-{words[0]}" if self.op == "neg" else f"{self.op}({', '.join(words)})"
        return f"{self.name} = {call}"


@dataclass(frozen=True)
class Truth:
    """What is right: the number and the gradient of every node, by its name."""

    data: Mapping[str, float]
    grads: Mapping[str, float]


@dataclass(frozen=True)
class Graph:
    """Inputs, steps; the last step's node is the output."""

    inputs: tuple[tuple[str, float], ...]
    steps: tuple[Step, ...]

    @property
    def output(self) -> str:
        """The name of the last node."""
        return self.steps[-1].name

    @property
    def names(self) -> list[str]:
        """All nodes, inputs first."""
        return [*(name for name, _ in self.inputs), *(step.name for step in self.steps)]

    @property
    def shares(self) -> bool:
        """Whether some node is used more than once."""
        used = [x for step in self.steps for x in step.arguments if isinstance(x, str)]
        return len(used) > len(set(used))

    def __str__(self) -> str:
        return "; ".join(map(str, self.steps))

    def build(self, number: Callable[[float], Any], apply: Callable[..., Any]) -> dict[str, Any]:
        """Every node by its name, made by whichever engine."""
        nodes = {name: number(x) for name, x in self.inputs}
        for step in self.steps:
            operands = [nodes[x] if isinstance(x, str) else x for x in step.arguments]
            nodes[step.name] = apply(step.op, *operands)
        return nodes

    @cached_property
    def truth(self) -> Truth:
        """What chainrule computes."""
        nodes = self.build(Value, apply)
        output = nodes[self.output]
        order = topological_order(output)
        for v in order:
            v.grad = 0.0
        output.backward()
        return Truth(
            {name: v.data for name, v in nodes.items()}, {name: v.grad for name, v in nodes.items()}
        )


def apply(op: str, *xs: Any) -> Any:
    """One operation on chainrule's own engine."""
    if op in ("add", "mul", "pow", "sub", "truediv", "neg"):
        return getattr(operator, op)(*xs)
    return getattr(functions, op)(*xs)


def graph(text: str, **inputs: float) -> Graph:
    """A graph from text: ``graph("c = a * b; L = c + a", a=2.0, b=3.0)``.

    >>> str(graph("c = a * b; L = tanh(c)", a=2.0, b=3.0))
    'c = a * b; L = tanh(c)'
    """
    signs = {"+": "add", "*": "mul", "**": "pow", "-": "sub", "/": "truediv"}
    steps = []
    for line in text.split("; "):
        name, _, right = line.partition(" = ")
        words = right.split()
        if len(words) == 3:
            op, arguments = signs[words[1]], [words[0], words[2]]
        elif right.startswith("-"):
            op, arguments = "neg", [right[1:]]
        else:
            op, _, inside = right.partition("(")
            arguments = inside.rstrip(")").split(", ")
        known: list[str | float] = [w if w[0].isalpha() else float(w) for w in arguments]
        steps.append(Step(name, op, tuple(known)))
    return Graph(tuple(inputs.items()), tuple(steps))


def small_graphs(*values: float) -> Iterator[Graph]:
    """Every way to combine one or two inputs by + and *, the smallest graphs first."""
    for nodes in range(2, LARGEST + 1):
        for leaves in range(1, min(nodes, 3)):
            inputs = tuple(zip(_LETTERS[:leaves], values, strict=False))
            for steps in _of_size(leaves, nodes - leaves):
                yield Graph(inputs, steps)


def _of_size(leaves: int, operations: int) -> Iterator[tuple[Step, ...]]:
    """Programs in which everything is used."""
    names = [_LETTERS[: leaves + i] for i in range(operations)]
    for lines in product(*(product(known, _SIGNS, known) for known in names)):
        read = {name for left, _, right in lines for name in (left, right)}
        if len(read) == leaves + operations - 1:
            yield tuple(
                Step(_LETTERS[leaves + i], op, (left, right))
                for i, (left, op, right) in enumerate(lines)
            )


def trees(*values: float) -> Iterator[Graph]:
    """Graphs in which everything is used once: chains and pairs of up to four inputs."""
    for leaves in range(2, len(values) + 1):
        inputs = tuple(zip(_LETTERS, values[:leaves], strict=False))
        made = _LETTERS[leaves:]
        for ops in product(_SIGNS, repeat=leaves - 1):
            left = "a"
            chain = []
            for name, op, right in zip(made, ops, _LETTERS[1:leaves], strict=False):
                chain.append(Step(name, op, (left, right)))
                left = name
            yield Graph(inputs, tuple(chain))
            if leaves == 4:
                first, second = Step("e", ops[0], ("a", "b")), Step("f", ops[1], ("c", "d"))
                yield Graph(inputs, (first, second, Step("g", ops[2], ("e", "f"))))


def random_graphs(count: int, operations: int, seed: int = 0) -> Iterator[Graph]:
    """Larger graphs of + and *, in which nodes are shared at several depths."""
    rng = random.Random(seed)
    for _ in range(count):
        inputs = tuple((name, rng.choice((-1.5, 0.5, 1.25, 2.0))) for name in "abc")
        known = ["a", "b", "c"]
        steps = []
        for i in range(operations):
            recent = known[-4:]
            arguments = (rng.choice(recent), rng.choice(known))
            op = "mul" if i % 3 == 1 else "add"
            steps.append(Step(f"v{i + 1}", op, arguments))
            known.append(f"v{i + 1}")
        yield Graph(inputs, tuple(steps))
