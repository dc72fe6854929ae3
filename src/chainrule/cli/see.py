"""The commands that show a graph: explain, draw, explore, check, nudge, lessons.

Each evaluates an expression such as ``relu(a*b + d)`` for values such as ``a=2`` and shows what the
backward pass makes of it. What is wrong with an expression ends as one line on standard error, a
caret under the place, and the exit code 2.
"""

from __future__ import annotations

import math
import re
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal, Protocol

from cyclopts import App, Parameter
from rich.console import Console, RenderableType
from rich.text import Text

from chainrule.cli.reporting import Output, complain, examples, file_named, reported
from chainrule.core.backend import Value
from chainrule.derivatives.backward import gradients
from chainrule.files import write_atomically
from chainrule.see.explanation import Explanation
from chainrule.see.explanation import explain as explained
from chainrule.see.explanation.text import STAGES, paths_section, sections
from chainrule.see.expressions import ExpressionError, evaluate
from chainrule.see.names import compact, printable, short
from chainrule.see.tables import PAGE_WIDTH, Column, as_text, notebook_html, table

WIDEST = 100  # a table is not easier to read for being wider than this

Expression = Annotated[
    str,
    Parameter(
        allow_leading_hyphen=True,
        help='For example "relu(a*b + d)", or several statements: "c = a*b; L = c + a".',
    ),
]
Inputs = Annotated[str, Parameter(help="The inputs, as in a=2 b=-3 d=10.")]

_EXAMPLES = {
    "explain": (
        'chainrule explain "relu(a*b + d)" a=2 b=-3 d=10',
        'chainrule explain "c = a*b; L = c + a" a=2 b=3 --stage backward',
        'chainrule explain "tanh(x)**2 + x" x=0.5 --paths x',
        'chainrule explain "log(p)" p=0.5 -o log.html',
    ),
    "draw": (
        'chainrule draw "relu(a*b + d)" a=2 b=-3 d=10 -o graph.svg',
        'chainrule draw "a + a" a=3 --rankdir TB -o sum.png',
        'chainrule draw "tanh(a*b)" a=1 b=2 --format mermaid',
    ),
    "explore": (
        'chainrule explore "relu(a*b + d)" a=2 b=-3 d=10 -o page.html --open',
        'chainrule explore "c = a*b; L = c + a" a=2 b=3',
    ),
    "check": (
        'chainrule check "x**3 + sin(x)" x=0.7',
        'chainrule check "exp(a*b) / (1 + exp(a*b))" a=0.3 b=-2',
    ),
    "nudge": (
        'chainrule nudge "relu(a*b + d)" a=2 b=-3 d=10',
        'chainrule nudge "abs(x)" x=0 --by -0.01',
    ),
    "lessons": (
        "chainrule lessons",
        "chainrule lessons overwrite",
        'chainrule lessons "c = a*b; L = c + a" a=2 b=3',
        "chainrule lessons check my_value.py",
        "chainrule lessons check --step 5 my_value.py",
    ),
}


def register(app: App) -> None:
    """Add the commands to the command line."""
    for command in (explain, draw, explore, check, nudge, lessons):
        name = command.__name__
        if command is lessons:
            usage = "chainrule lessons [NAME | EXPRESSION INPUT=NUMBER ... | check FILE]"
        else:
            usage = f"chainrule {name} EXPRESSION [INPUT=NUMBER ...] [OPTIONS]"
        app.command(
            command, name=name, usage=f"Usage: {usage}", help_epilogue=examples(*_EXAMPLES[name])
        )


def show(make: Callable[[int], list[RenderableType]]) -> None:
    """Print: in colour and as wide as useful on a terminal, plain and 80 wide anywhere else."""
    console = Console()
    if console.is_terminal:
        for part in make(min(console.width, WIDEST)):
            console.print(part, highlight=False, width=min(console.width, WIDEST))
    else:
        print(as_text(*make(80)))


# --- the commands ---------------------------------------------------------------------------------


@reported
def explain(
    expression: Expression,
    /,
    *values: Inputs,
    stage: Annotated[
        list[Literal["forward", "sort", "backward", "result"]] | None, Parameter(negative=())
    ] = None,
    paths: str | None = None,
    output: Output | None = None,
) -> int:
    """Show the backward pass of an expression, step by step.

    Stage 0 computes the values, stage 1 sorts the graph, stage 2
    propagates the gradients.

    Parameters
    ----------
    stage
        Show only this stage; may be given several times.
    paths
        Show what each path from the output to this input contributes to its gradient.
    output
        Write the tables to this file instead, as a page.
    """
    _, inputs, result = evaluate(expression, values)
    explanation = explained(result)
    chosen = _node_named(explanation, paths, inputs) if paths is not None else None

    def parts(width: int) -> list[RenderableType]:
        shown: list[RenderableType] = []
        if stage or chosen is None:
            shown += sections(explanation, stage or STAGES, width)
        if chosen is not None:
            shown += [*([Text("")] if shown else []), paths_section(explanation.paths(chosen))]
        return shown

    if output is None:
        show(parts)
    else:
        file = file_named(output, ".html", ".htm")
        write_atomically(file, _page(notebook_html(*parts(PAGE_WIDTH))))
        print(f"wrote {file}")
    return 0


@reported
def draw(
    expression: Expression,
    /,
    *values: Inputs,
    output: Output | None = None,
    format: Literal["svg", "png", "dot", "mermaid"] | None = None,
    rankdir: Literal["LR", "TB"] = "LR",
) -> int:
    """Draw the graph of an expression, with its data and gradients.

    Parameters
    ----------
    output
        The file to write; without it the picture goes to standard output, as text.
    format
        What to write; taken from the file's name where there is one, else svg.
    rankdir
        Left to right (LR) or top to bottom (TB).
    """
    from chainrule.see.drawing import ENDINGS, SUFFIXES
    from chainrule.see.drawing import draw as drawn

    _, _, result = evaluate(expression, values)
    result.backward()
    named = SUFFIXES.get(output.suffix.lower()) if output else None
    if format and named and format != named:
        complain(f"--format {format} does not fit the file's name, {output}")
        return 2
    kind = format or named or "svg"
    drawing = drawn(result, format=kind, rankdir=rankdir)
    if output is not None:
        _save(drawing, file_named(output, ENDINGS[kind], *SUFFIXES))
    elif kind == "png":
        complain("a PNG cannot go to the terminal: name a file with -o graph.png")
        return 2
    else:
        print(getattr(drawing, kind).rstrip("\n"))
    return 0


@reported
def explore(
    expression: Expression,
    /,
    *values: Inputs,
    output: Output = Path("explore.html"),
    open: bool = False,
) -> int:
    """Write a page that plays the forward and the backward pass of an expression.

    The page is one file that needs no network: step, play, scrub, click on a node.

    Parameters
    ----------
    output
        The file to write.
    open
        Open it in the browser.
    """
    from chainrule.see.page import explore as explored

    _, _, result = evaluate(expression, values)
    written = _save(explored(result), file_named(output, ".html", ".htm"))
    if open:
        webbrowser.open(written.resolve().as_uri())
    return 0


@reported
def check(
    expression: Expression,
    /,
    *values: Inputs,
    tolerance: float = 1e-6,
) -> int:
    """Compare the gradients of an expression with finite differences.

    Exits with 0 if they agree, with 1 if one of them is wrong, with 3 if
    the differences are not good enough to tell. At a corner, as of abs at
    0, there is nothing to compare with, and that counts as agreement.

    Parameters
    ----------
    tolerance
        The largest relative error that counts as agreement.
    """
    from chainrule.derivatives.checking import GradientError, check_gradients, verdict

    parsed, inputs, output = evaluate(expression, values)
    if not inputs:
        raise ExpressionError("there is nothing to check: give the inputs as values, such as a=2")
    if not tolerance > 0:
        raise ExpressionError(f"--tolerance must be more than 0, not {tolerance}")

    def f(*xs: Value) -> Value:
        return parsed(**dict(zip(inputs, xs, strict=True)))

    try:
        report = check_gradients(f, *inputs.values(), tolerance=tolerance)
    except GradientError as error:
        report = error.report
    rows: list[list[RenderableType]] = []
    for name, row in zip(inputs, report.inputs, strict=True):
        said = re.sub(r" at \S+:\d+$", "", verdict(row, report))  # the line is this package's own
        colour = "bold red" if row in report.wrong else "green" if said == "agrees" else "yellow"
        numbers = [short(row.value), f"{row.backward:.10g}", f"{row.difference:.10g}"]
        rows.append([printable(name), *numbers, f"{row.relative_error:.1e}", Text(said, colour)])
    titles = ("Input", "Value", "backward()", "Differences", "Error")
    columns = [*map(Column, titles), Column("Verdict", 10)]
    show(
        lambda width: [
            Text(f"{printable(output.label or parsed.text, 60)} = {short(output.data)}"),
            Text(""),
            table(columns, rows, width),
        ]
    )
    return 1 if report.wrong else 3 if report.undecided else 0


@reported
def nudge(
    expression: Expression,
    /,
    *values: Inputs,
    by: float = 0.001,
) -> int:
    """Move each input a little and see what the result does.

    f(x), f(x + h) and their quotient, beside the gradient that backward()
    gives: the oldest way to see what a gradient means.

    Parameters
    ----------
    by
        How far to move, h.
    """
    parsed, inputs, result = evaluate(expression, values)
    if not inputs:
        raise ExpressionError("there is nothing to nudge: give the inputs as values, such as a=2")
    if by == 0.0 or not math.isfinite(by):
        raise ExpressionError(f"--by must be a number other than 0, not {by}")
    slopes = gradients(result, list(inputs.values()))
    rows: list[list[RenderableType]] = []
    for (name, leaf), slope in zip(inputs.items(), slopes, strict=True):
        moved = {n: Value(v.data + by * (n == name)) for n, v in inputs.items()}
        step = moved[name].data - leaf.data  # h as it was rounded
        try:
            after = parsed(**moved).data
            told = [
                f"{after:.9g}",
                f"{(after - result.data) / step:.6g}" if step else "h is too small",
            ]
        except (ValueError, ArithmeticError):
            told = ["undefined", ""]
        rows.append(
            [printable(name), short(leaf.data), f"{moved[name].data:.9g}", *told, short(slope)]
        )
    f = printable(result.label or "f", 12)
    titles = ("Input", "x", "x + h", f"{f}(x + h)", "Quotient", "backward()")
    said = (
        f"{printable(parsed.text, 60)} = {result.data:.9g}, each input moved by h = {compact(by)}"
    )
    show(
        lambda width: [
            Text(said),
            Text(""),
            table([Column(title) for title in titles], rows, width),
            Text(""),
            Text(f"Quotient: ({f}(x + h) - {f}(x)) / h", "dim"),
        ]
    )
    return 0


@reported
def lessons(
    lesson: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *values: str,
    step: int | None = None,
) -> int:
    """Run the classic mistakes of a backward pass, or check your own engine.

    Without arguments: the exercises of the texts, which ask before they
    answer (on a terminal), and all mistakes.
    With the name of a mistake: that one, with its code.
    With an expression and values: your own graph on every broken engine.
    With check and a Python file: the file's own class through every trap;
    exits with 0 if all is right, with 1 if not.

    Parameters
    ----------
    lesson
        The name of a mistake, an expression, or the word check.
    values
        The inputs of the expression, as in a=2 b=3; after check, a file.
    step
        With check: only what the course has built up to this step, 1 to 11.
    """
    from chainrule.see.lessons import MISTAKES, check_file, compare, smallest
    from chainrule.see.lessons.printing import (
        check_parts,
        comparison_parts,
        lesson_part,
        mistakes_parts,
        overview_parts,
    )

    if lesson == "check":
        if len(values) != 1:
            raise ExpressionError("check takes one file: chainrule lessons check my_value.py")
        try:
            checked = check_file(values[0], step)
        except (ValueError, FileNotFoundError) as error:
            raise ExpressionError(_reason(error, values[0])) from None
        show(lambda width: check_parts(checked, width))
        return 0 if checked.ok else 1
    if step is not None:
        raise ExpressionError("--step is for check: chainrule lessons check --step 2 my_value.py")
    if lesson is None:
        if sys.stdin.isatty() and sys.stdout.isatty():
            _ask()
            show(mistakes_parts)
        else:
            show(overview_parts)
    elif lesson in MISTAKES:
        show(lambda width: [lesson_part(smallest(lesson))])
    elif lesson.isidentifier() and not values:
        try:
            smallest(lesson)
        except ValueError as error:
            raise ExpressionError(str(error)) from None
    else:
        _, _, output = evaluate(lesson, values)
        try:
            comparison = compare(output)
        except ValueError as error:
            raise ExpressionError(str(error)) from None
        show(lambda width: comparison_parts(comparison, width))
    return 0


def _ask() -> None:
    """The exercises, as questions on the terminal."""
    from chainrule.see.lessons.asking import ask
    from chainrule.see.lessons.exercises import exercises

    console = Console()

    def read(question: str) -> str | None:
        try:
            return input(question)
        except EOFError:
            return None

    def write(part: RenderableType) -> None:
        console.print(part, highlight=False)

    right, given = ask(exercises, read, write)
    if given:
        write(Text(f"\n{right} of {given} right", "bold"))
    write(Text(""))


def _reason(error: Exception, file: str) -> str:
    return f"there is no file {file!r}" if isinstance(error, FileNotFoundError) else str(error)


class _Savable(Protocol):
    def save(self, path: Path) -> Path: ...


def _save(made: _Savable, path: Path) -> Path:
    """Write a picture or a page and say where."""
    try:
        written = made.save(path)
    except ImportError as error:  # no renderer
        raise ExpressionError(str(error)) from None
    print(f"wrote {written}")
    return written


def _node_named(explanation: Explanation, name: str, inputs: dict[str, Value]) -> Value:
    """The node that ``--paths`` asks for."""
    for node, value in zip(explanation.nodes, explanation.values, strict=True):
        if name in (node.name, value.label):
            return value
    raise ExpressionError(f"--paths: there is no {name!r}; the inputs are {', '.join(inputs)}")


def _page(tables: str) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width"><title>chainrule explain</title>'
        "<style>:root { color-scheme: light dark } body { margin: 2rem auto; max-width: 60rem; "
        "padding: 0 1rem }</style></head><body>"
        f"{tables}</body></html>\n"
    )
