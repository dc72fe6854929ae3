"""An explanation as HTML for notebooks: the same tables, every text escaped, no scripts.

Colours are taken from the surrounding page, so that light and dark both work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TypeVar

from chainrule.see.explanation import TABLE_LIMIT, BackwardStep, Explanation, ForwardStep, SortStep
from chainrule.see.explanation_summary import Ends, Summary, summarise
from chainrule.see.explanation_text import derivative_text, meaning
from chainrule.see.names import attribute, compact, counted, listing, short

T = TypeVar("T")

_STYLE = """
.chainrule-explanation { font-family: system-ui, sans-serif; font-size: .9rem; line-height: 1.45;
  max-width: 60rem; overflow-x: auto }
.chainrule-explanation h4 { margin: 1.2em 0 .4em; font-size: 1em }
.chainrule-explanation table { border-collapse: collapse; margin: 0; font-size: inherit }
.chainrule-explanation :is(td, th) { padding: .2em .8em .2em 0; text-align: left;
  vertical-align: top; border: 0; background: none; color: inherit }
.chainrule-explanation thead th { border-bottom: 1px solid currentColor; font-weight: 600 }
.chainrule-explanation tr.first td { border-top: 1px solid rgba(128, 128, 128, .3) }
.chainrule-explanation :is(code, td.number) { font-family: ui-monospace, monospace;
  font-size: .95em; background: none; color: inherit; white-space: pre-wrap }
.chainrule-explanation .aside { opacity: .7 }
.chainrule-explanation .indent { padding-left: 1.2em }
"""


def as_html(explanation: Explanation) -> str:
    """The whole explanation as one ``<div>``."""
    root = explanation.root
    summary = summarise(explanation) if len(explanation.nodes) > TABLE_LIMIT else None
    title = f"The backward pass of <strong>{_code(f'{root.name} = {compact(root.data)}')}</strong>"
    start = f"input.grad += local gradient × node.grad, starting with {attribute(root.name)} = 1.0"
    named = (
        [s for s in explanation.forward if explanation.nodes[s.node].kind != "constant"]
        if not summary
        else []
    )
    parts = [
        f"<p>{title}: {counted(len(explanation.nodes), 'node')}</p>",
        _numbers(summary) if summary else "",
        "<h4>Stage 0: how each value was computed, inputs first</h4>",
        _computed(summary.forward if summary else named),
        "<h4>Stage 1: topological sort: every node after its inputs</h4>",
        _sorted(explanation, summary.sort if summary else explanation.sort),
        f"<h4>Stage 2: propagate gradients, from {escape(root.name)} back to the inputs</h4>",
        f"<p>{_code(start)}</p>",
        _propagated(explanation, summary.backward if summary else explanation.backward),
        "<h4>Result</h4>",
        _extremes(summary) if summary else _result(explanation),
    ]
    return f'<div class="chainrule-explanation"><style>{_STYLE}</style>{"".join(parts)}</div>'


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _table(headings: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f'<th scope="col">{escape(heading)}</th>' for heading in headings)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _row(cells: Iterable[str], kind: str = "") -> str:
    opening = f'<tr class="{kind}">' if kind else "<tr>"
    return f"{opening}{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _rows(steps: Sequence[T] | Ends[T], write: Callable[[T], str], columns: int) -> list[str]:
    """A row per step; where the middle was left out, a row that says so."""
    if not isinstance(steps, Ends):
        return list(map(write, steps))
    words = f"… {counted(steps.left_out, 'more step')} …"
    gap = f'<tr class="first aside"><td colspan="{columns}">{words}</td></tr>'
    return [*map(write, steps.first), gap, *map(write, steps.last)]


def _computed(steps: Sequence[ForwardStep] | Ends[ForwardStep]) -> str:
    rows = _rows(steps, lambda step: _row([_code(step.words)]), 1)
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _sorted(explanation: Explanation, steps: Sequence[SortStep] | Ends[SortStep]) -> str:
    nodes = explanation.nodes

    def write(step: SortStep) -> str:
        popped = "(start)"
        if step.popped is not None:
            popped = f"({nodes[step.popped[0]].name}, {step.popped[1]})"
        first, *others = map(escape, step.words)
        happens = first + "".join(f'<div class="indent">{line}</div>' for line in others)
        stack = listing(step.stack, lambda entry: f"({nodes[entry[0]].name},{entry[1]})", 80)
        done = listing(step.sorted_nodes, lambda i: nodes[i].name, 80)
        number = str(step.step) if step.step else ""
        return _row([number, _code(popped), happens, _code(stack), _code(done)], "first")

    headings = ("Step", "Pop", "What happens", "Stack after", "Sorted nodes")
    return _table(headings, _rows(steps, write, len(headings)))


def _propagated(
    explanation: Explanation, steps: Sequence[BackwardStep] | Ends[BackwardStep]
) -> str:
    nodes = explanation.nodes

    def write(step: BackwardStep) -> str:
        node = nodes[step.node]
        head = [str(step.step), str(step.node), _code(node.name), _code(short(step.grad))]
        if not step.contributions:
            return _row([*head, "", f'<span class="aside">{escape(step.words)}</span>'], "first")
        rows: list[str] = []
        for c in step.contributions:
            slope = derivative_text(node, nodes[c.child], c)
            rows.append(_row([*head, _code(slope), _code(c.words)], "" if rows else "first"))
            head = [""] * len(head)
        return "".join(rows)

    headings = ("Step", "i", "Node", ".grad", "Local gradient", "What happens")
    return _table(headings, _rows(steps, write, len(headings)))


def _result(explanation: Explanation) -> str:
    rows = []
    for node in explanation.nodes:
        if node.kind != "input":
            continue
        grad = _code(f"{attribute(node.name)} = {short(node.grad)}")
        cells = [f"<strong>{grad}</strong>", escape(meaning(node, explanation.root))]
        paths = explanation.paths(node.name, limit=4)
        if paths.count > 1:
            cells[1] += f"<pre>{escape(str(paths))}</pre>"
        rows.append(_row(cells, "first"))
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _numbers(summary: Summary) -> str:
    facts = [("inputs", summary.inputs), ("constants", summary.constants), *summary.operations]
    facts += [("edges", summary.edges), ("depth", summary.depth)]
    rows = [_row([_code(name), f"{number:,}"]) for name, number in facts]
    return f"<table><tbody>{''.join(rows)}</tbody></table>"


def _extremes(summary: Summary) -> str:
    rows = []
    for title, nodes in (("largest", summary.largest), ("smallest, not 0", summary.smallest)):
        for node in nodes:
            grad = f"{attribute(node.name)} = {short(node.grad)}"
            rows.append(_row([title, _code(grad), _code(node.op or node.kind)]))
    rows.append(_row(["exactly 0", f"{summary.zero:,} of {summary.nodes:,}", ""]))
    if summary.nonfinite:
        rows.append(_row(["inf or nan", f"{summary.nonfinite:,}", "see find_nonfinite"]))
    return f"<table><tbody>{''.join(rows)}</tbody></table>"
