"""Lessons as text: rich renderables, plain in ``str``, in colour on a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from chainrule.see.lessons.comparing import Comparison, Lesson, smallest
from chainrule.see.lessons.exercises import exercises
from chainrule.see.lessons.mistakes import MISTAKES
from chainrule.see.names import attribute, compact, printable, short
from chainrule.see.tables import WIDTH, Column, Row, as_text, table


def lesson_text(lesson: Lesson) -> str:
    """One lesson as plain text."""
    return as_text(lesson_part(lesson))


def comparison_text(comparison: Comparison) -> str:
    """A comparison as plain text."""
    return as_text(*comparison_parts(comparison))


def _indented(*parts: RenderableType, by: int = 2) -> RenderableType:
    return Padding(Group(*parts), (0, 0, 0, by))


def lesson_part(lesson: Lesson) -> RenderableType:
    """One mistake: what, why, where it shows, and its code."""
    mistake = lesson.mistake
    cases = [Text(str(case), "red" if case.wrong else "green") for case in lesson.cases]
    return Group(
        Text.assemble((mistake.name, "bold cyan"), f": {mistake.title}"),
        _indented(
            Text(""),
            Text(mistake.why),
            Text(f"Seen in {mistake.seen}.", "dim"),
            Text(""),
            Text(f"The smallest graph on which it shows: {lesson.program}"),
            _indented(*cases),
            Text(""),
            Syntax(mistake.code, "python", background_color="default", theme="ansi_dark"),
        ),
    )


def comparison_parts(comparison: Comparison, width: int = WIDTH) -> list[RenderableType]:
    """Both numbers side by side, for every engine, and why."""
    rows: list[Row] = []
    for lesson in comparison.lessons:
        name = Text(lesson.mistake.name, "bold")
        if not lesson.wrong:
            hint = lesson.note or f"right here, wrong on {smallest(lesson.mistake.name).program}"
            rows.append([name, "", "", "", Text(hint, "dim")])
        why: RenderableType = lesson.mistake.why
        for case in lesson.cases if lesson.wrong else ():
            got = Text(short(case.got), "bold red" if case.wrong else "green")
            rows.append([name, attribute(case.name), short(case.expected), got, why])
            name, why = Text(""), ""
    columns = [Column("Engine"), Column("Gradient", 10), Column("Right"), Column("Broken")]
    title = Text.assemble("On every broken engine: ", (printable(comparison.program, 50), "bold"))
    return [title, Text(""), table([*columns, Column("Why", 24)], rows, width)]


def overview_parts(width: int = WIDTH) -> list[RenderableType]:
    """Everything there is: the exercises, then the broken engines, each where it shows first."""
    parts: list[RenderableType] = [Text("The exercises of the texts", "bold cyan")]
    for exercise in exercises:
        inputs = ", ".join(f"{name} = {compact(x)}" for name, x in exercise.inputs.items())
        head = [Text(exercise.title, "bold"), Text(f"{exercise.program}   with {inputs}")]
        lines = [Text(line, "green") for line in exercise.lines()]
        parts += [Text(""), _indented(*head, _indented(*lines))]
    rows: list[Row] = []
    for mistake in MISTAKES.values():
        lesson = smallest(mistake.name)
        case = next(case for case in lesson.cases if case.wrong)
        numbers = f"{attribute(case.name)} {short(case.expected)}"
        got = Text(short(case.got), "bold red")
        name = Text(mistake.name, "bold")
        rows.append([name, mistake.title, lesson.program.replace("; ", "\n"), numbers, got])
    columns = [Column("Name"), Column("Mistake", 24), Column("Shows on", 10), Column("Right")]
    parts += [Text(""), Text("Engines broken on purpose, on the smallest graph", "bold cyan")]
    parts += [Text(""), table([*columns, Column("Broken")], rows, width), Text("")]
    parts.append(Text("chainrule lessons NAME shows one of them with its code;"))
    parts.append(
        Text('chainrule lessons "c = a*b; L = c + a" a=2 b=3 runs your own on all of them.')
    )
    return parts
