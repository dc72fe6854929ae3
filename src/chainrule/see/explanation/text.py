"""An explanation as text: rich renderables, plain in ``str``, in colour on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from chainrule.see.explanation.corners import meaning
from chainrule.see.explanation.model import (
    STAGE_NAMES,
    TABLE_LIMIT,
    BackwardStep,
    Contribution,
    Explanation,
    ForwardStep,
    Node,
    SortStep,
)
from chainrule.see.explanation.paths import MOST_COUNTED, Paths
from chainrule.see.explanation.summary import Ends, Summary, summarise
from chainrule.see.names import (
    NUMBERS,
    attribute,
    bracketed,
    chain,
    compact,
    counted,
    listing,
    quoted,
    short,
)
from chainrule.see.tables import WIDTH, Column, Row, heading, table

STAGES = ("forward", "sort", "backward", "result")
_MOST_PATHS = 4  # of one input, in the result
_MOST_OPERATIONS = 12
_PLURALS = {"input": "inputs", "weight": "weights", "data": "data", "constant": "constants"}
_MOST_LISTED = 20  # paths, when they are all there is to show

T = TypeVar("T")


def sections(
    explanation: Explanation, stages: Sequence[str] = STAGES, width: int = WIDTH
) -> list[RenderableType]:
    """The stages asked for, each a heading and a table; a summary where the graph is big."""
    root = explanation.root
    summary = summarise(explanation) if len(explanation.nodes) > TABLE_LIMIT else None
    parts: list[RenderableType] = [_title(explanation)]
    if summary:
        parts += [_gap(), _numbers(summary)]
    if "forward" in stages:
        parts += [heading(STAGE_NAMES["forward"], "how each value was computed, inputs first")]
        parts += [_computed(summary.forward if summary else _named(explanation))]
    if "sort" in stages:
        parts += [heading(STAGE_NAMES["sort"], "topological sort: every node after its inputs")]
        parts += [_sort_table(explanation, summary.sort if summary else explanation.sort, width)]
    if "backward" in stages:
        rule = (
            f"input.grad += local gradient × node.grad, starting with {attribute(root.name)} = 1.0"
        )
        parts += [
            heading(
                STAGE_NAMES["backward"], f"propagate gradients, from {root.name} back to the inputs"
            )
        ]
        parts += [Text(rule), _gap()]
        steps = summary.backward if summary else explanation.backward
        parts += [_backward_table(explanation, steps, width)]
    if "result" in stages:
        parts += [heading("Result"), _extremes(summary) if summary else _result(explanation)]
    return parts


def _gap() -> Text:
    return Text("")


def _title(explanation: Explanation) -> Text:
    root, nodes = explanation.root, explanation.nodes
    operations = sum(node.kind == "operation" for node in nodes)
    return Text.assemble(
        "The backward pass of ",
        (f"{root.name} = {compact(root.data)}", "bold"),
        f": {counted(len(nodes), 'node')}, {counted(operations, 'operation')}",
    )


# --- stage 0 ------------------------------------------------------------------------------------


def _named(explanation: Explanation) -> list[ForwardStep]:
    """Every step but those of plain numbers, which need no line of their own."""
    nodes = explanation.nodes
    return [step for step in explanation.forward if nodes[step.node].kind not in NUMBERS]


def _computed(steps: Sequence[ForwardStep] | Ends[ForwardStep]) -> RenderableType:
    def write(step: ForwardStep) -> list[Row]:
        name, equals, rest = step.words.partition(" = ")
        return [[Text.assemble((name, "bold"), equals, rest)]]

    lines = [line for (line,) in _rows(steps, write, lambda gap: [gap], "more operation")]
    return Padding(Group(*lines), (0, 0, 0, 2))


# --- stage 1 ------------------------------------------------------------------------------------


def _rows(
    steps: Sequence[T] | Ends[T],
    write: Callable[[T], list[Row]],
    gap: Callable[[Text], Row],
    noun: str = "more step",
) -> list[Row]:
    """The rows of all steps; where the middle was left out, a row that says so."""
    if not isinstance(steps, Ends):
        return [row for step in steps for row in write(step)]
    left_out = gap(Text(f"… {counted(steps.left_out, noun)} …", "dim"))
    return [*_rows(steps.first, write, gap), left_out, *_rows(steps.last, write, gap)]


def _sort_table(
    explanation: Explanation, steps: Sequence[SortStep] | Ends[SortStep], width: int
) -> RenderableType:
    nodes = explanation.nodes

    def write(step: SortStep) -> list[Row]:
        popped = "(start)"
        if step.popped is not None:
            popped = f"({nodes[step.popped[0]].name}, {step.popped[1]})"
        number = str(step.step) if step.step else ""
        stack = listing(
            step.stack, lambda entry: f"({nodes[entry[0]].name},{entry[1]})", width // 2
        )
        done = listing(step.sorted_nodes, lambda i: nodes[i].name, width // 2)
        return [[number, popped, _lines(step.words, _STYLES[step.action]), stack, done]]

    columns = [Column("Step"), Column("Pop", 12), Column("What happens", 26)]
    columns += [Column("Stack after", 14), Column("Sorted nodes", 12)]
    rows = _rows(steps, write, lambda gap: ["", "", gap, "", ""])
    return table(columns, rows, width)


_STYLES = {"start": "", "explore": "cyan", "skip": "yellow", "done": "green"}


def _lines(words: Sequence[str], style: str) -> RenderableType:
    """The words of a step: the first line, what follows from it indented, the last in colour."""
    first, *others = words
    if not others:
        return Text(first, style)
    indented = [Text(line) for line in others]
    indented[-1].style = style
    return Group(Text(first), *(Padding(line, (0, 0, 0, 1)) for line in indented))


# --- stage 2 ------------------------------------------------------------------------------------


def _backward_table(
    explanation: Explanation, steps: Sequence[BackwardStep] | Ends[BackwardStep], width: int
) -> RenderableType:
    nodes = explanation.nodes

    def write(step: BackwardStep) -> list[Row]:
        node = nodes[step.node]
        head: Row = [str(step.step), str(step.node), Text(node.name, "bold"), short(step.grad)]
        if node.kind != "operation":
            return [[*head, "", Text("leaf, skip", "dim")]]
        if not step.contributions:
            return [[*head, "", Text("grad is 0: nothing to pass on", "yellow")]]
        rows: list[Row] = [
            ["", "", "", "", _derivative(node, nodes[c.child], c), _added(c)]
            for c in step.contributions
        ]
        rows[0][:4] = head
        return rows

    columns = [Column("Step"), Column("i"), Column("Node", 8), Column(".grad")]
    columns += [Column("Local gradient", 14), Column("What happens", 24)]
    rows = _rows(steps, write, lambda gap: ["", "", "", "", "", gap])
    return table(columns, rows, width)


def _added(c: Contribution) -> RenderableType:
    return Text(c.words) if not c.corner else Group(Text(c.words), Text(c.corner, "yellow"))


def _derivative(node: Node, child: Node, c: Contribution) -> str:
    """One local gradient: ``∂c/∂a = b = 3.0``, ``∂f/∂e = 1.0, as e > 0``."""
    formula = "" if c.formula in ("", compact(c.local_grad)) else f"{c.formula} = "
    because = f", as {c.because}" if c.because else ""
    return f"∂{quoted(node.name)}/∂{quoted(child.name)} = {formula}{short(c.local_grad)}{because}"


# --- the result ---------------------------------------------------------------------------------


def _result(explanation: Explanation) -> RenderableType:
    """Every named gradient and what it means: the inputs with their paths, then what lies between.

    The root is the last of them.
    """
    nodes = explanation.nodes
    inputs = [node for node in nodes if node.kind in ("input", "weight")]
    parts: list[RenderableType] = []
    if not inputs:
        parts.append(Text("  no inputs: every leaf is a constant", "dim"))
    shown = [*inputs, *(node for node in nodes if node.kind == "operation")]
    widest = max(cell_len(_grad_text(node)) for node in shown)
    for node in shown:
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_column(min_width=min(widest, 30))
        line.add_row(Text(_grad_text(node), "bold"), Text(meaning(nodes, node.index), "dim"))
        parts.append(Padding(line, (0, 0, 0, 2)))
        if node.kind == "operation":
            continue
        paths = explanation.paths(node.name, limit=_MOST_PATHS)
        if paths.count > 1:
            parts.append(Padding(_path_rows(paths, _MOST_PATHS), (0, 0, 0, 6)))
    return Group(*parts)


def _grad_text(node: Node) -> str:
    return f"{attribute(node.name)} = {short(node.grad)}"


def paths_section(paths: Paths) -> RenderableType:
    """Why one gradient is what it is."""
    lead = "path leads" if paths.count == 1 else "paths lead"
    many = _amount(paths.count)
    title = Text.assemble(
        ("why ", ""),
        (f"{attribute(paths.name)} is {short(paths.gradient)}", "bold"),
        f": {many} {lead} from {paths.root} to {paths.name}",
    )
    if paths.listed and not paths.listed[0].local_grads:
        return Text(f"{attribute(paths.name)} is 1.0: it is the output itself")
    if not paths.count:
        return Text(
            f"{attribute(paths.name)} is 0.0: no path leads from {paths.root} to {paths.name}"
        )
    return Group(title, _gap(), Padding(_path_rows(paths, _MOST_LISTED), (0, 0, 0, 2)))


def _amount(count: int) -> str:
    """A number of paths: exact while it can be read, then a power of ten."""
    if count < 10**15:
        return f"{count:,}"
    if count >= MOST_COUNTED // 10:
        return "more than 10^999"
    digits = str(count)
    return f"{digits[0]}.{digits[1:3]}·10^{len(digits) - 1}"


def _path_rows(paths: Paths, most: int) -> Table:
    """A row per path, its product beside it, and the sum below."""
    table = Table.grid(padding=(0, 1, 0, 0))
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify, overflow="fold")
    shown = paths.listed[:most]
    for path in shown:
        way = Text(f"{chain(path.names, ' → ')} ")
        factors = chain([short(path.local_grads[0]), *map(bracketed, path.local_grads[1:])], " × ")
        table.add_row(way, factors, f"= {short(path.product)}")
    rest = paths.count - len(shown)
    if rest:
        others = paths.gradient - sum(path.product for path in shown)
        table.add_row(f"… {_amount(rest)} more", "together", f"≈ {short(others)}", style="dim")
    if paths.count > 1:
        table.add_row("", "sum", Text(f"= {short(paths.gradient)}", "bold"))
    return table


# --- big graphs ---------------------------------------------------------------------------------


def _numbers(summary: Summary) -> Table:
    """The graph in numbers, where there are too many nodes for tables."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for kind, count in summary.leaves:
        table.add_row(f"  {_PLURALS[kind]}", f"{count:,}")
    for op, count in summary.operations[:_MOST_OPERATIONS]:
        table.add_row(Text(f"  {op}"), f"{count:,}")
    others = summary.operations[_MOST_OPERATIONS:]
    if others:
        table.add_row(f"  {len(others)} others", f"{sum(count for _, count in others):,}")
    table.add_row("  edges", f"{summary.edges:,}")
    table.add_row("  depth", f"{summary.depth:,}")
    return table


def _extremes(summary: Summary) -> RenderableType:
    """The largest and smallest gradients of a big graph."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for title, nodes in (("largest", summary.largest), ("smallest, not 0", summary.smallest)):
        for node in nodes:
            what = f"{attribute(node.name)} = {short(node.grad)}"
            table.add_row(f"  {title}", Text(what), Text(node.op or node.kind, "dim"))
            title = ""
    table.add_row("  exactly 0", f"{summary.zero:,} of {summary.nodes:,}")
    if summary.nonfinite:
        table.add_row(
            "  inf or nan", Text(f"{summary.nonfinite:,}", "bold red"), "see find_nonfinite"
        )
    return table
