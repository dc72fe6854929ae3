"""A ``Picture`` as SVG text, as in the lecture: boxes of label, data and grad, and circles.

The sizes of boxes come from the length of their text, so that no font needs to be read. Everything
that came from outside is escaped. Elements carry ``data-node``, ``data-edge``, ``data-from`` and
``data-to``, by which the page and the tests find them.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from chainrule.see.drawing.layout import (
    MARGIN,
    OP_RADIUS,
    Place,
    Ranks,
    Size,
    arrange,
    coordinate,
    rank_boxes,
)
from chainrule.see.drawing.picture import Box, Picture, Wire
from chainrule.see.names import printable

# The width of a letter, by kind of text, generous enough for the usual fonts.
_NAME, _NUMBER, _TITLE = 8.0, 7.3, 7.6
_PAD = 10.0
_CAPTION = 34.0  # room for "data" and "grad" before a number
_CELL_HEIGHT = 42.0
_HEADER = 26.0
_ROW = 19.0
_LINE = 17.0
_GROUP_HEAD = 27.0  # besides the lines of the title
_LONGEST_LINE = 26  # letters of a collapsed box's title
_CARD = 4.0  # how far the cards behind a box for several stand out

_LIGHT = """
.cr-paper{fill:#fcfbf8;stroke:#e4e1d8}
.cr-edge,.cr-link{fill:none;stroke:#8b8f9b;stroke-width:1.5;stroke-linecap:round;stroke-linejoin:round}
.cr-bundle1{stroke-width:1.75}
.cr-bundle2{stroke-width:2.25}
.cr-bundle3{stroke-width:2.75}
.cr-body,.cr-card{fill:#fff}
.cr-frame{fill:none}
.cr-frame,.cr-card{stroke:#c9c6bc}
.cr-head{fill:#efede6}
.cr-rule{stroke:#e4e1d8}
.cr-circle{fill:#2a3040}
.cr-input .cr-head{fill:#dcebfa}
.cr-input .cr-frame,.cr-input .cr-card{stroke:#a9c6e3}
.cr-output .cr-head{fill:#2a3040}
.cr-output .cr-frame{stroke:#2a3040}
.cr-weight .cr-head{fill:#e2f0dc}
.cr-weight .cr-frame,.cr-weight .cr-card{stroke:#a8cc9a}
.cr-data .cr-head{fill:#f3e6d3}
.cr-data .cr-frame,.cr-data .cr-card{stroke:#d8bd93}
.cr-constant .cr-frame{stroke-dasharray:3 3}
.cr-name,.cr-number,.cr-op{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,
"DejaVu Sans Mono","Liberation Mono",monospace}
.cr-title,.cr-caption,.cr-note{font-family:system-ui,"Segoe UI",Roboto,"Helvetica Neue",
"DejaVu Sans",sans-serif}
.cr-name,.cr-number,.cr-title{fill:#1d2230}
.cr-name,.cr-op{font-size:13px;font-weight:600}
.cr-title{font-size:12.5px;font-weight:600}
.cr-number{font-size:12px}
.cr-caption{font-size:10px;letter-spacing:.02em}
.cr-note{font-size:11px}
.cr-caption,.cr-note{fill:#6b6f7b}
.cr-op{fill:#fff}
.cr-input .cr-name,.cr-input .cr-title{fill:#174a7c}
.cr-weight .cr-name,.cr-weight .cr-title{fill:#2c5a1c}
.cr-data .cr-name,.cr-data .cr-title{fill:#6b4a14}
.cr-output .cr-name,.cr-output .cr-title{fill:#fff}
.cr-output .cr-note{fill:#b9bfcc}
.cr-grad{fill:#b23a1e}
"""
_DARK = """
.cr-paper{fill:#14171e;stroke:#2a2f3b}
.cr-edge,.cr-link{stroke:#757c8c}
.cr-body,.cr-card{fill:#1c212b}
.cr-frame,.cr-card{stroke:#3d4453}
.cr-head{fill:#282e3a}
.cr-rule{stroke:#323947}
.cr-circle{fill:#d9dde6}
.cr-input .cr-head{fill:#1b3a59}
.cr-input .cr-frame,.cr-input .cr-card{stroke:#35608b}
.cr-weight .cr-head{fill:#23401a}
.cr-weight .cr-frame,.cr-weight .cr-card{stroke:#4d7d3c}
.cr-data .cr-head{fill:#44351c}
.cr-data .cr-frame,.cr-data .cr-card{stroke:#7d6336}
.cr-output .cr-head{fill:#d9dde6}
.cr-output .cr-frame{stroke:#d9dde6}
.cr-name,.cr-number,.cr-title{fill:#e9e7e2}
.cr-caption,.cr-note{fill:#9aa0ad}
.cr-op{fill:#14171e}
.cr-input .cr-name,.cr-input .cr-title{fill:#b5d6f7}
.cr-weight .cr-name,.cr-weight .cr-title{fill:#c3e6b4}
.cr-data .cr-name,.cr-data .cr-title{fill:#ecd2a4}
.cr-output .cr-name,.cr-output .cr-title{fill:#14171e}
.cr-output .cr-note{fill:#4a5162}
.cr-grad{fill:#ff9f80}
"""
#: light colours, and dark ones where the viewer prefers them
STYLE = f"{_LIGHT}@media (prefers-color-scheme:dark){{{_DARK}}}\n"

# A notebook's theme can differ from the system's: Jupyter, VS Code and marimo say which it is.
_DARK_THEMES = ':is([data-jp-theme-light="false"],.vscode-dark,.dark,[data-theme="dark"])'
_ANY_THEME = ":is([data-jp-theme-light],.vscode-light,.vscode-dark,.light,.dark,[data-theme])"
_NO_THEME = f":root:not({_ANY_THEME}):not(:has({_ANY_THEME}))"
_NOTEBOOK_STYLE = f"""
.cr-notebook svg{{max-width:100%;height:auto}}
.cr-notebook{{{_LIGHT}}}
{_DARK_THEMES} .cr-notebook{{{_DARK}}}
@media (prefers-color-scheme:dark){{{_NO_THEME} .cr-notebook{{{_DARK}}}}}
"""


def write_svg(picture: Picture, rankdir: str = "LR") -> str:
    """The picture as one SVG document."""
    drawing = SvgDrawing(picture, rankdir)
    width, height = coordinate(drawing.width), coordinate(drawing.height)
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" role="img"'
            f" aria-label={quoteattr(f'{picture.title}: {picture.summary}')}"
            f' width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
            f"<title>{escape(picture.title)}</title>",
            f"<desc>{escape(in_words(picture))}</desc>",
            f"<style>{STYLE}</style>",
            '<rect class="cr-paper" x=".5" y=".5" rx="12"'
            f' width="{coordinate(drawing.width - 1)}" height="{coordinate(drawing.height - 1)}"/>',
            *drawing.elements(),
            "</svg>\n",
        ]
    )


def notebook_html(svg: str) -> str:
    """A drawing for a notebook's cell: as wide as the cell at most, in the notebook's theme."""
    inside = svg.replace(f"<style>{STYLE}</style>", "")
    return f'<div class="cr-notebook"><style>{_NOTEBOOK_STYLE}</style>{inside}</div>'


def in_words(picture: Picture, most: int = 40) -> str:
    """The drawing for those who cannot see it."""
    sentences = [f"{picture.summary}.", *(f"{box.description}." for box in picture.boxes[:most])]
    if len(picture.boxes) > most:
        sentences.append(f"And {len(picture.boxes) - most} more.")
    return " ".join(sentences)


class SvgDrawing:
    """The elements of a drawing. ``data_room`` and ``grad_room`` keep letters free for changes."""

    def __init__(
        self, picture: Picture, rankdir: str, data_room: int = 0, grad_room: int = 0
    ) -> None:
        self.picture = picture
        self.sideways = rankdir == "LR"
        self._rooms = data_room, grad_room
        ranks = rank_boxes(picture)
        self._columns = self._measure_columns(ranks)
        self._rank = ranks.rank
        sizes = [self._size(box) for box in picture.boxes]
        self._sizes = sizes
        self.layout = arrange(picture, ranks, sizes, rankdir)
        along, across = self.layout.along, self.layout.across
        self.width, self.height = (along, across) if self.sideways else (across, along)
        if picture.is_collapsed:
            self.width = max(self.width, 2 * MARGIN + _TITLE * len(picture.summary))
            self.height += _LINE

    def elements(self) -> Iterator[str]:
        """Wires first, so that boxes lie on top of them."""
        yield '<g class="cr-edges">'
        for number, (wire, path) in enumerate(
            zip(self.picture.wires, self.layout.paths, strict=True)
        ):
            yield self._wire(number, wire, path)
        yield "</g>"
        for box, place in zip(self.picture.boxes, self.layout.places, strict=True):
            yield self._box(box, place)
        if self.picture.is_collapsed:
            yield _text("cr-note", MARGIN, self.height - 14, self.picture.summary)

    # --- sizes ------------------------------------------------------------------------------------

    def _measure_columns(self, ranks: Ranks) -> dict[int, tuple[float, float]]:
        """The widths of data and grad in each rank: numbers line up below one another."""
        columns: dict[int, tuple[float, float]] = {}
        for box, rank in zip(self.picture.boxes, ranks.rank, strict=True):
            if not box.is_group:
                widest_data, widest_grad = columns.get(rank, (0.0, 0.0))
                _, data, grad = self._cells(box)
                columns[rank] = max(widest_data, data), max(widest_grad, grad)
        return columns

    def _cells(self, box: Box) -> tuple[float, float, float]:
        data_room, grad_room = self._rooms
        data = 0.0 if box.is_number else max(4, data_room, letters(box.data)) * _NUMBER
        grad = max(4, grad_room, letters(box.grad)) * _NUMBER
        name = max(2, letters(box.title)) * _NAME
        return name + 2 * _PAD, data + 2 * _PAD if data else 0.0, grad + 2 * _PAD

    def _size(self, box: Box) -> Size:
        if box.is_group:
            lines = _title_lines(box)
            width = 2 * _PAD + max(
                max(map(letters, [*lines, box.size])) * _TITLE,
                _CAPTION + max(letters(box.data), letters(box.grad)) * _NUMBER,
            )
            height = _GROUP_HEAD + _LINE * len(lines) + 2 * _ROW + 6
            return Size(width, height) if self.sideways else Size(height, width)
        op_width = op_height = 0.0
        if box.op:
            op_height = 2 * OP_RADIUS
            op_width = max(op_height, letters(_op_text(box)) * _NAME + 18)
        name, data, grad = self._cells(box)
        if self.sideways:
            data, grad = self._columns[self._rank[box.number]]
            width = name + grad + (data if not box.is_number else 0.0)
            return Size(width, _CELL_HEIGHT, op_width, op_height)
        width = max(name, data + _CAPTION - 4, grad + _CAPTION - 4)
        rows = 1 if box.is_number else 2
        return Size(_HEADER + rows * _ROW + 6, width, op_height, op_width)

    # --- elements ---------------------------------------------------------------------------------

    def _wire(self, number: int, wire: Wire, path: str) -> str:
        source, target = self.picture.boxes[wire.source], self.picture.boxes[wire.target]
        bundle = f" cr-bundle{min(3, len(str(wire.edges)))}" if wire.edges > 1 else ""
        words = f"{source.title} → {target.title}"
        if wire.edges > 1:
            words += f": {wire.edges:,} edges"
        return (
            f'<path class="cr-edge{bundle}" data-edge="{number}" data-from="{wire.source}"'
            f' data-to="{wire.target}" data-operand="{wire.operand}"'
            f' data-edges="{wire.edges}" d="{path}"><title>{escape(words)}</title></path>'
        )

    def _box(self, box: Box, place: Place) -> str:
        size = self._sizes[box.number]
        if self.sideways:
            x, y = place.start, place.middle - size.across / 2
            width, height = size.along, size.across
        else:
            x, y = place.middle - size.across / 2, place.start
            width, height = size.across, size.along
        group = " cr-group" if box.is_group else ""
        parts = [
            f'<g class="cr-node cr-{box.kind}{group}" data-node="{box.number}"'
            f' data-nodes="{len(box.nodes)}">',
            f"<title>{escape(box.description)}</title>",
        ]
        if box.op:
            parts += self._operation(box, place, size)
        if box.is_group:
            parts += self._group(box, x, y, width, height)
        elif self.sideways:
            parts += self._cells_in_a_row(box, x, y, width, height)
        else:
            parts += self._cells_in_a_stack(box, x, y, width, height)
        return "".join([*parts, "</g>"])

    def _operation(self, box: Box, place: Place, size: Size) -> list[str]:
        if self.sideways:
            x, y = place.op_start, place.middle - size.op_across / 2
            width, height = size.op_along, size.op_across
            link = (
                f"M{coordinate(place.op_end)},{coordinate(place.middle)}H{coordinate(place.start)}"
            )
        else:
            x, y = place.middle - size.op_across / 2, place.op_start
            width, height = size.op_across, size.op_along
            link = (
                f"M{coordinate(place.middle)},{coordinate(place.op_end)}V{coordinate(place.start)}"
            )
        return [
            f'<path class="cr-link" data-of="{box.number}" d="{link}"/>',
            _rect("cr-circle", x, y, width, height, OP_RADIUS),
            _text("cr-op", x + width / 2, y + height / 2 + 4.5, _op_text(box), anchor="middle"),
        ]

    def _cells_in_a_row(
        self, box: Box, x: float, y: float, width: float, height: float
    ) -> list[str]:
        """label | data | grad"""
        data, grad = self._columns[self._rank[box.number]]
        name = width - grad - (data if not box.is_number else 0.0)
        parts = [
            _rect("cr-body", x, y, width, height, 8),
            _left_rounded("cr-head", x, y, name, height, 8),
            _rect("cr-frame", x, y, width, height, 8),
            _text("cr-name", x + name / 2, y + height / 2 + 4.5, box.title, anchor="middle"),
        ]
        x += name
        if not box.is_number:
            parts += _captioned("data", x, y, box.data)
            x += data
            parts.append(_rule(x, y + 8, x, y + height - 8))
        return [*parts, *_captioned("grad", x, y, box.grad)]

    def _cells_in_a_stack(
        self, box: Box, x: float, y: float, width: float, height: float
    ) -> list[str]:
        """The same from top to bottom."""
        parts = [
            _rect("cr-body", x, y, width, height, 8),
            _top_rounded("cr-head", x, y, width, _HEADER, 8),
            _rect("cr-frame", x, y, width, height, 8),
            _text("cr-name", x + width / 2, y + 17.5, box.title, anchor="middle"),
        ]
        y += _HEADER
        if not box.is_number:
            parts += _row("data", x, y, width, box.data)
            y += _ROW
        return [*parts, *_row("grad", x, y, width, box.grad)]

    def _group(self, box: Box, x: float, y: float, width: float, height: float) -> list[str]:
        cards = range(min(2, box.copies - 1), 0, -1)
        parts = [_rect("cr-card", x + k * _CARD, y + k * _CARD, width, height, 8) for k in cards]
        lines = _title_lines(box)
        head = _GROUP_HEAD + _LINE * len(lines)
        parts.append(_rect("cr-body", x, y, width, height, 8))
        parts.append(_top_rounded("cr-head", x, y, width, head, 8))
        parts.append(_rect("cr-frame", x, y, width, height, 8))
        for k, line in enumerate(lines):
            parts.append(_text("cr-title", x + _PAD, y + 18 + k * _LINE, line))
        parts.append(_text("cr-note", x + _PAD, y + head - 8, box.size))
        parts += _row("data", x, y + head, width, box.data)
        return [*parts, *_row("grad", x, y + head + _ROW, width, box.grad)]


def letters(text: str) -> int:
    """How wide a text is, in letters: Chinese and emoji take two, accents none."""
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def _op_text(box: Box) -> str:
    return printable(box.op, 16)


def _title_lines(box: Box) -> list[str]:
    return textwrap.wrap(box.title, _LONGEST_LINE, break_long_words=True) or [""]


def _text(kind: str, x: float, y: float, text: str, anchor: str = "") -> str:
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    place = f'x="{coordinate(x)}" y="{coordinate(y)}"'
    return f'<text class="{kind}" {place}{anchored}>{escape(text)}</text>'


def _captioned(caption: str, x: float, y: float, number: str) -> list[str]:
    return [
        _text("cr-caption", x + _PAD, y + 15, caption),
        _text(f"cr-number cr-{caption}", x + _PAD, y + 31.5, number),
    ]


def _row(caption: str, x: float, y: float, width: float, number: str) -> list[str]:
    return [
        _text("cr-caption", x + _PAD, y + 15, caption),
        _text(f"cr-number cr-{caption}", x + width - _PAD, y + 15, number, anchor="end"),
    ]


def _rect(kind: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    return (
        f'<rect class="{kind}" x="{coordinate(x)}" y="{coordinate(y)}"'
        f' width="{coordinate(width)}" height="{coordinate(height)}" rx="{coordinate(radius)}"/>'
    )


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = [coordinate(c) for c in (x1, y1, x2, y2)]
    return '<line class="cr-rule" x1="{}" y1="{}" x2="{}" y2="{}"/>'.format(*ends)


def _left_rounded(kind: str, x: float, y: float, width: float, height: float, r: float) -> str:
    right, bottom = coordinate(x + width), coordinate(y + height)
    left, top = coordinate(x), coordinate(y)
    return (
        f'<path class="{kind}" d="M{right},{top}H{coordinate(x + r)}A{r},{r} 0 0 0 {left},'
        f"{coordinate(y + r)}V{coordinate(y + height - r)}A{r},{r} 0 0 0 {coordinate(x + r)},"
        f'{bottom}H{right}Z"/>'
    )


def _top_rounded(kind: str, x: float, y: float, width: float, height: float, r: float) -> str:
    right, bottom = coordinate(x + width), coordinate(y + height)
    left, top = coordinate(x), coordinate(y)
    return (
        f'<path class="{kind}" d="M{left},{bottom}V{coordinate(y + r)}A{r},{r} 0 0 1 '
        f"{coordinate(x + r)},{top}H{coordinate(x + width - r)}A{r},{r} 0 0 1 {right},"
        f'{coordinate(y + r)}V{bottom}Z"/>'
    )
