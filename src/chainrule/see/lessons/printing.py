"""Lessons as text: rich renderables, plain in ``str``, in colour on a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.text import Text

from chainrule.see.lessons.comparing import Comparison, Lesson, smallest
from chainrule.see.lessons.examining import Check
from chainrule.see.lessons.exercises import exercises
from chainrule.see.lessons.mistakes import MISTAKES
from chainrule.see.lessons.traps import TRAPS, Finding
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
            Text("The whole program, ready to run:"),
            Text(""),
            Syntax(lesson.script, "python", background_color="default", theme="ansi_dark"),
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
    return [*parts, Text(""), *mistakes_parts(width)]


def mistakes_parts(width: int = WIDTH) -> list[RenderableType]:
    """The broken engines, each on the smallest graph that shows it."""
    rows: list[Row] = []
    for mistake in MISTAKES.values():
        lesson = smallest(mistake.name)
        case = next(case for case in lesson.cases if case.wrong)
        numbers = f"{attribute(case.name)} {short(case.expected)}"
        got = Text(short(case.got), "bold red")
        name = Text(mistake.name, "bold")
        rows.append([name, mistake.title, lesson.program.replace("; ", "\n"), numbers, got])
    columns = [Column("Name"), Column("Mistake", 24), Column("Shows on", 10), Column("Right")]
    parts: list[RenderableType] = [
        Text("Engines broken on purpose, on the smallest graph", "bold cyan")
    ]
    parts += [Text(""), table([*columns, Column("Broken")], rows, width), Text("")]
    parts.append(Text("chainrule lessons NAME shows one of them with its code;"))
    parts.append(
        Text('chainrule lessons "c = a*b; L = c + a" a=2 b=3 runs your own on all of them;')
    )
    parts.append(Text("chainrule lessons check my_value.py tries an engine of yours."))
    return parts


# --- a learner's own engine -----------------------------------------------------------------------

_VERDICTS = {
    "right": ("right", "green"),
    "wrong": ("WRONG", "bold red"),
    "advice": ("note", "yellow"),
    "missing": ("not yet", "dim"),
}


def check_parts(check: Check, width: int = WIDTH) -> list[RenderableType]:
    """What the traps found: a line for each, then what to look at first."""
    titles = {one.name: (one.step, one.title) for one in TRAPS}
    rows: list[Row] = []
    for finding in check.findings:
        step, title = titles.get(finding.trap, (0, "The file can be loaded"))
        word, colour = _VERDICTS[finding.status]
        if finding.status == "missing" and finding in check.wrong:
            word, colour = "MISSING", "bold red"
        rows.append([Text(word, colour), str(step or ""), Text(title, "dim" * (colour == "dim"))])
    what = f"{check.file}" + (f", step {check.step} of the course" if check.step else "")
    parts: list[RenderableType] = [Text(what, "bold"), Text("")]
    parts.append(
        table([Column("Verdict"), Column("Step"), Column("What was tried", 30)], rows, width)
    )
    if check.wrong:
        parts += [Text(""), *_finding_parts(check.wrong[0], width)]
        if len(check.wrong) > 1:
            parts += [Text(""), Text("Mend this first: the rest may be right then too.", "dim")]
        return parts
    parts += [Text(""), Text("Everything that was tried is right.", "bold green")]
    for note in check.advice:
        parts += [Text(""), *_finding_parts(note, width)]
    return parts


def _finding_parts(finding: Finding, width: int) -> list[RenderableType]:
    """One finding: the missing idea, the graph, the numbers side by side, the right line."""
    lead = "A note" if finding.status == "advice" else "What is missing"
    parts: list[RenderableType] = [
        Text.assemble((f"{lead}: ", "bold"), (finding.idea, "bold yellow"))
    ]
    parts += [_indented(Text(finding.why))] if finding.why else []
    parts += [_indented(Text(finding.error, "red"))] if finding.error else []
    if finding.program:
        given = ", ".join(f"{name} = {compact(x)}" for name, x in finding.inputs.items())
        where = "The smallest graph on which it shows" if finding.rows else "On this graph"
        parts += [Text(""), Text(f"{where}, with {given}:")]
        parts.append(_indented(*map(Text, finding.program.split("; "))))
    if finding.rows:
        rows: list[Row] = []
        for row in finding.rows:
            yours = "none" if row.yours is None else short(row.yours)
            mark = Text("← look here", "bold red") if row.wrong else Text("")
            mine = Text(yours, "bold red" if row.wrong else "green")
            rows.append([row.name, short(row.data), short(row.right), mine, mark])
        names = ("Node", "Value", f"Right {finding.column}", "Yours", "")
        parts += [Text(""), _indented(table([Column(name) for name in names], rows, width - 2))]
    if finding.right:
        parts += [Text(""), Text("The line that would be right:")]
        code = Syntax(finding.right, "python", background_color="default", theme="ansi_dark")
        parts.append(_indented(code))
    see = [f"chainrule lessons {finding.lesson}"] if finding.lesson else []
    if finding.program and finding.column == ".grad" and finding.status == "wrong":
        given = " ".join(f"{name}={compact(x)}" for name, x in finding.inputs.items())
        stage = " --stage sort" if finding.trap == "sorting" else ""
        see.append(f'chainrule explain "{finding.program}" {given}{stage}')
    if see:
        parts += [Text(""), Text("To see it:", "dim"), _indented(*(Text(line) for line in see))]
    return parts
