"""The exercises as questions: a number is asked for, and only then told.

``read`` asks for one line and gives None at the end of the input; ``write`` prints. A wrong answer
is told what it would have been the answer to, then every path and what it contributes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from rich.console import RenderableType
from rich.text import Text

from chainrule.core.backend import Value
from chainrule.see.explanation import Explanation, explain
from chainrule.see.explanation.text import paths_section
from chainrule.see.expressions import parse
from chainrule.see.lessons.exercises import Exercise
from chainrule.see.names import compact, short

Read = Callable[[str], str | None]
Write = Callable[[RenderableType], None]


def ask(exercises: Sequence[Exercise], read: Read, write: Write) -> tuple[int, int]:
    """Ask for every gradient; how many answers were right at once, and how many were given."""
    right = given = 0
    write(Text("What will backward() leave in each .grad? Enter skips, q ends.", "dim"))
    for number, exercise in enumerate(exercises, 1):
        inputs = ", ".join(f"{name} = {compact(x)}" for name, x in exercise.inputs.items())
        write(Text(""))
        write(Text(f"{number}. {exercise.title}", "bold"))
        write(Text(f"   {exercise.program}   with {inputs}"))
        explanation = _explained(exercise)
        for name in exercise.expected:
            answer = _number(f"   {name}.grad = ", read, write)
            if answer == "end":
                return right, given
            if isinstance(answer, float):
                given += 1
                right += _judge(explanation, name, answer, write)
            else:
                write(Text(f"   {name}.grad is {_gradient(explanation, name)}", "dim"))
    return right, given


def _explained(exercise: Exercise) -> Explanation:
    leaves = {name: Value(x, label=name) for name, x in exercise.inputs.items()}
    return explain(parse(exercise.program, leaves)(**leaves))


def _gradient(explanation: Explanation, name: str) -> str:
    return short(explanation.nodes[explanation.index_of(name)].grad)


def _number(question: str, read: Read, write: Write) -> float | str:
    """An answer: a number (``1/2`` is one too), "" for none, "end" to stop."""
    while True:
        line = read(question)
        if line is None or line.strip().lower() in ("q", "quit", "exit"):
            return "end"
        if not line.strip():
            return ""
        try:
            return float(Fraction(line.strip().replace(",", ".")))
        except (ValueError, ZeroDivisionError, OverflowError):
            write(Text("   a number, please: 4, -0.5 or 1/2", "yellow"))


def _judge(explanation: Explanation, name: str, answer: float, write: Write) -> bool:
    """Say whether it is right; where it is not, what was overlooked, and all the paths."""
    paths = explanation.paths(name)
    grad = paths.gradient
    if abs(answer - grad) <= 1e-3 * max(1.0, abs(grad)):
        write(Text("   right", "green"))
        return True
    products = [path.product for path in paths.listed]
    hint = "not quite"
    if answer == -grad:
        hint = "the size is right, the sign is not"
    elif len(products) > 1 and any(abs(answer - x) < 1e-9 for x in products):
        hint = f"that is what one path gives; there are {len(products)}, and they add up"
    elif explanation.nodes[explanation.index_of(name)].data == answer:
        hint = "that is its data: the gradient says how fast the result moves with it"
    write(Text(f"   {hint}", "bold red"))
    write(paths_section(paths))
    return False
