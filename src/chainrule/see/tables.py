"""Renderables of rich as plain text and as HTML, and a table that fits its width.

What is made once of texts, tables and headings is printed in colour on a terminal, as plain text by
``str`` and as HTML in notebooks.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import NamedTuple, TypeAlias

from rich.box import Box
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

WIDTH = 80
_NARROWEST = 6  # a column that may be squeezed still keeps this much
_LINES = Box("    \n    \n ─  \n" + "    \n" * 5)

Row: TypeAlias = list[RenderableType]


def heading(title: str, words: str = "") -> RenderableType:
    """A line of its own, blank lines around it."""
    return Padding(Text.assemble((title, "bold cyan"), f": {words}" if words else ""), (1, 0, 1, 0))


def as_text(*parts: RenderableType, width: int = WIDTH) -> str:
    """The parts as plain text, no line longer than ``width`` and none with trailing blanks."""
    lines = io.StringIO()
    console = Console(
        file=lines,
        width=width,
        color_system=None,
        force_terminal=False,
        force_jupyter=False,
        legacy_windows=False,
    )
    for part in parts:
        console.print(part, markup=False, highlight=False, emoji=False)
    return "\n".join(line.rstrip() for line in lines.getvalue().rstrip().splitlines())


class Column(NamedTuple):
    """A column, and how many characters it keeps, if it needs them, where room is short."""

    title: str
    least: int = WIDTH


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[RenderableType]], width: int
) -> RenderableType:
    """A table that fits: what room there is goes to the columns from left to right."""
    cells = [[Text(c) if isinstance(c, str) else c for c in row] for row in rows]
    wanted = [
        max([cell_len(column.title), *(_natural_width(row[i]) for row in cells)])
        for i, column in enumerate(columns)
    ]
    widths = [min(column.least, want) for column, want in zip(columns, wanted, strict=True)]
    spare = width - sum(widths) - 2 * (len(widths) - 1)
    flexible = [i for i, column in enumerate(columns) if column.least < WIDTH]
    while spare < 0 and any(widths[i] > _NARROWEST for i in flexible):
        widths[max(flexible, key=lambda i: widths[i])] -= 1
        spare += 1
    for i, want in enumerate(wanted):
        more = min(max(spare, 0), want - widths[i])
        widths[i] += more
        spare -= more
    made = Table(
        box=_LINES, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold"
    )
    for column, column_width in zip(columns, widths, strict=True):
        made.add_column(column.title, width=column_width, overflow="fold")
    for row in cells:
        made.add_row(*row)
    return made


def _natural_width(cell: RenderableType) -> int:
    if isinstance(cell, Group):
        return max(map(_natural_width, cell.renderables))
    if isinstance(cell, Padding):
        return cell.left + _natural_width(cell.renderable)
    assert isinstance(cell, Text)
    return max(map(cell_len, cell.plain.splitlines()), default=0)


# --- HTML -----------------------------------------------------------------------------------------

#: how many characters a table made for HTML may be wide; the browser folds what does not fit
PAGE_WIDTH = 160

# Notebooks have a style of their own for tables (aligned to the right, striped): the doubled class
# outranks it. Colours are those of the surrounding page, so that light and dark both work.
_STYLE = """
.cr.chainrule-tables { font-family: system-ui, sans-serif; font-size: .9rem; line-height: 1.45;
  max-width: 60rem; overflow-x: auto; text-align: left; color: inherit }
.cr.chainrule-tables h4 { margin: 1.2em 0 .4em; font-size: 1em; font-weight: normal }
.cr.chainrule-tables table { border-collapse: collapse; margin: 0; font-size: inherit; border: 0 }
.cr.chainrule-tables table :is(thead, tbody) tr { background: none }
.cr.chainrule-tables :is(td, th) { padding: .2em .8em .2em 0; text-align: left;
  vertical-align: top; border: 0; background: none; color: inherit; max-width: none }
.cr.chainrule-tables thead th { border-bottom: 1px solid currentColor; font-weight: 600 }
.cr.chainrule-tables thead + tbody tr.first td { border-top: 1px solid rgba(128, 128, 128, .3) }
.cr.chainrule-tables :is(td, .indent, pre) { font-family: ui-monospace, monospace;
  font-size: .95em; white-space: pre-wrap }
.cr.chainrule-tables pre { margin: .4em 0; background: none; color: inherit; border: 0; padding: 0 }
.cr.chainrule-tables .aside { opacity: .7 }
.cr.chainrule-tables .good { color: #2da44e }
.cr.chainrule-tables .bad { color: #e5484d }
.cr.chainrule-tables .indent { padding-left: 1.2em }
"""


def preformatted_html(text: str) -> str:
    """Text that has its own lines and columns, for notebooks."""
    return (
        f'<div class="cr chainrule-tables"><style>{_STYLE}</style><pre>{escape(text)}</pre></div>'
    )


def notebook_html(*parts: RenderableType) -> str:
    """The parts as one ``<div>`` with its style: what notebooks show and pages contain."""
    return f'<div class="cr chainrule-tables"><style>{_STYLE}</style>{as_html(*parts)}</div>'


def as_html(*parts: RenderableType) -> str:
    """The parts as HTML, every text escaped."""
    return "".join(map(_markup, parts))


def _markup(part: RenderableType) -> str:
    if isinstance(part, Text):
        return _text(part)
    if isinstance(part, Group):
        return "".join(f"<div>{_markup(inner)}</div>" for inner in part.renderables)
    if isinstance(part, Padding):
        inside = _markup(part.renderable)
        return f"<h4>{inside}</h4>" if part.top else f'<div class="indent">{inside}</div>'
    if isinstance(part, Syntax):
        return f"<pre>{escape(part.code)}</pre>"
    if isinstance(part, Table):
        rows = zip(*(column.cells for column in part.columns), strict=True)
        body = "".join(map(_row, rows))
        titles = [f'<th scope="col">{escape(str(column.header))}</th>' for column in part.columns]
        head = f"<thead><tr>{''.join(titles)}</tr></thead>" if part.show_header else ""
        return f"<table>{head}<tbody>{body}</tbody></table>"
    return escape(str(part))


def _row(cells: Sequence[RenderableType]) -> str:
    columns = [_markup(cell) for cell in cells]
    kind = ' class="first"' if columns[0] else ""
    return f"<tr{kind}>{''.join(f'<td>{column}</td>' for column in columns)}</tr>"


def _text(text: Text) -> str:
    """A text, bold and dim as they are; colours belong to the page around it."""
    pieces, done = [], 0
    for start, end, style in sorted(text.spans):
        pieces += [_styled(text.plain[done:start], ""), _styled(text.plain[start:end], str(style))]
        done = end
    return _styled("".join([*pieces, _styled(text.plain[done:], "")]), str(text.style), False)


def _styled(text: str, style: str, plain: bool = True) -> str:
    text = escape(text) if plain else text
    for word, kind in (("dim", "aside"), ("green", "good"), ("red", "bad")):
        if word in style and text:
            text = f'<span class="{kind}">{text}</span>'
    return f"<strong>{text}</strong>" if "bold" in style and text else text
