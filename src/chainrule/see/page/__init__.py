"""``explore(v)``: the backward pass as a live page, in one HTML file.

The file stands alone: no request leaves it, and its Content-Security-Policy lets nothing run but
the one script, named by its hash. What came from outside reaches the page as JSON that the script
puts into text nodes. The page computes its numbers itself, by rules generated from the op table.
"""

from __future__ import annotations

import html
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.core.backend import Value
from chainrule.files import write_atomically
from chainrule.see.page.assembly import Markup, assemble, asset

if TYPE_CHECKING:
    from chainrule.see.drawing.picture import Picture
    from chainrule.see.explanation import Explanation

__all__ = ["explore", "Page"]

#: larger graphs are collapsed; their boxes open
LIMIT = 200
_NOTEBOOK_HEIGHT = 760
#: what computes, which needs no document; then what shows it. Joined in this order
ENGINE = ("numbers", "maths", "words", "graph", "view", "film", "broken", "paths")
SCREEN = (
    *("elements", "layout", "drawing", "page", "window", "inputs", "tabs", "predict", "nudge"),
    *("paths-tab", "broken-tab", "weights", "inside", "address", "gif", "export", "controls"),
)


def explore(v: Value, *, limit: int = LIMIT) -> Page:
    """A page that steps through the backward pass of ``v``, and lets its inputs be moved.

    >>> from chainrule import Value, explore
    >>> a, b = Value(2.0, label="a"), Value(3.0, label="b")
    >>> explore(a * b + a)
    Page(4 nodes, 4 edges)

    Notebooks show it by themselves; ``.save("page.html")`` writes one file that needs nothing
    else. Graphs of more than ``limit`` nodes are collapsed. No ``.grad`` is changed.
    """
    from chainrule.see.explanation import explain

    if not isinstance(v, Value):
        raise TypeError(f"explore takes a Value, not a {type(v).__name__}")
    return page_of(explain(v), limit)


def page_of(explanation: Explanation, limit: int = LIMIT) -> Page:
    """The page of a backward pass that is explained already."""
    from chainrule.see.drawing.picture import make_picture

    nodes = explanation.nodes
    names, grads = [node.name for node in nodes], [node.grad for node in nodes]
    kinds = [node.kind for node in nodes]
    picture = make_picture(list(explanation.values), names, limit, grads, kinds)
    return Page(explanation, picture)


class Page:
    """A self-contained HTML page: see ``explore``."""

    def __init__(self, explanation: Explanation, picture: Picture) -> None:
        self.explanation = explanation
        self.picture = picture

    @cached_property
    def html(self) -> str:
        """The whole file."""
        rules, data = self.program
        parts = [rules, *(asset("see.page", f"script/{name}.js") for name in (*ENGINE, *SCREEN))]
        name = self.picture.name
        return assemble(
            asset("see.page", "page.html"),
            style=[asset("see.page", "base.css"), asset("see.page", "page.css")],
            script=parts,
            data=data,
            title=f"The backward pass of {name}",
            name=name,
            summary=self.picture.summary,
            note=_collapsed_note(self.picture),
            still=Markup(self._still()),
        )

    @cached_property
    def program(self) -> tuple[str, dict[str, Any]]:
        """What the page computes with: the rules as JavaScript, and the data as plain lists."""
        from chainrule.see.page.data import graph_data
        from chainrule.see.page.stories import stories
        from chainrule.see.page.views import make_views

        rules, graph = graph_data(self.explanation)
        views = make_views(self.explanation, self.picture)
        return rules, {"graph": graph, "views": views, "mistakes": stories()}

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file, whose name gets ``.html`` unless it has a suffix."""
        file = Path(path)
        if not file.suffix:
            file = file.with_suffix(".html")
        if file.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"cannot save {file.name!r}: the name must end in .html")
        write_atomically(file, self.html)
        return file

    def _repr_html_(self) -> str:
        title = html.escape(f"The backward pass of {self.picture.name}")
        return (
            f'<iframe sandbox="allow-scripts allow-downloads" title="{title}" width="100%"'
            f' height="{_NOTEBOOK_HEIGHT}" style="border:0" srcdoc="{html.escape(self.html)}">'
            "</iframe>"
        )

    def __repr__(self) -> str:
        return f"Page({self.picture.summary})"

    def _still(self) -> str:
        """The drawing for those without scripts, unless it would be larger than all the rest."""
        from chainrule.see.drawing.layout import coordinate
        from chainrule.see.drawing.svg import SvgDrawing

        if len(self.picture.boxes) > LIMIT:
            return ""
        drawing = SvgDrawing(self.picture, "LR")
        width, height = coordinate(drawing.width), coordinate(drawing.height)
        label = html.escape(self.picture.title)
        return "\n".join(
            [
                f'<svg class="still" role="img" aria-label="{label}"'
                f' width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
                *drawing.elements(),
                "</svg>",
            ]
        )


def _collapsed_note(picture: Picture) -> str:
    if not picture.is_collapsed:
        return ""
    return (
        f"{picture.summary}: each step here stands for many. Choose a box and open it to see them."
    )
