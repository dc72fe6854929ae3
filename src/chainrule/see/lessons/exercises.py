"""The worked examples of the texts this package follows, with the numbers they print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from chainrule.core.backend import Value, topological_order
from chainrule.see.expressions import parse
from chainrule.see.names import compact, short


@dataclass(frozen=True)
class Exercise:
    """A small program and the gradients it must have."""

    title: str
    program: str
    inputs: Mapping[str, float]
    expected: Mapping[str, float]

    def run(self) -> dict[str, float]:
        """The gradients that ``backward()`` gives, by name."""
        leaves = {name: Value(x, label=name) for name, x in self.inputs.items()}
        output = parse(self.program, leaves)(**leaves)
        output.backward()
        return {v.label: v.grad for v in topological_order(output) if v.label}

    def lines(self) -> list[str]:
        """``a.grad: expected 4, got 4.0``, one line per gradient."""
        got = self.run()
        return [
            f"{name}.grad: expected {compact(grad)}, got {short(got[name])}"
            for name, grad in self.expected.items()
        ]


exercises = (
    Exercise(
        "One input, two paths (the C# chapter's exercise)",
        "c = a*b; L = c + a",
        {"a": 2.0, "b": 3.0},
        {"a": 4.0, "b": 2.0},
    ),
    Exercise(
        "The relu walkthrough (the course's four steps)",
        "c = a*b; e = c + d; f = relu(e)",
        {"a": 2.0, "b": -3.0, "d": 10.0},
        {"a": -3.0, "b": 2.0, "c": 1.0, "d": 1.0, "e": 1.0, "f": 1.0},
    ),
    Exercise(
        "a + a (why it is +=)",
        "b = a + a",
        {"a": 3.0},
        {"a": 2.0},
    ),
    Exercise(
        "Shared variables (micrograd's second bug example)",
        "d = a*b; e = a + b; f = d*e",
        {"a": -2.0, "b": 3.0},
        {"a": -3.0, "b": -8.0, "d": 1.0, "e": -6.0, "f": 1.0},
    ),
    Exercise(
        "The tanh neuron (micrograd's lecture)",
        "n = x1*w1 + x2*w2 + b; o = tanh(n)",
        {"x1": 2.0, "x2": 0.0, "w1": -3.0, "w2": 1.0, "b": 6.8813735870195432},
        {"x1": -1.5, "w1": 1.0, "x2": 0.5, "w2": 0.0, "b": 0.5, "n": 0.5, "o": 1.0},
    ),
)
