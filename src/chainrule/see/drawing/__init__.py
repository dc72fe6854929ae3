"""``draw(v)``: the graph of a Value as a picture, without any program but Python.

A ``Drawing`` is an SVG, graphviz and Mermaid text, and a PNG on request; notebooks show it by
themselves. Graphs too large to look at are collapsed, and the picture says so.
"""

from __future__ import annotations

from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.core.backend import Value, topological_order
from chainrule.core.errors import caller_frame
from chainrule.files import write_atomically
from chainrule.see.names import naming

if TYPE_CHECKING:
    from chainrule.see.drawing.picture import Picture

__all__ = ["draw", "draw_dot", "Drawing"]

#: the end of a file's name, by what the file holds
ENDINGS = {"svg": ".svg", "png": ".png", "dot": ".dot", "mermaid": ".mmd"}
#: what a file holds, by the end of its name
SUFFIXES = {suffix: kind for kind, suffix in ENDINGS.items()} | {".gv": "dot"}


def draw(
    v: Value, format: str = "svg", rankdir: str = "LR", *, limit: int | None = None
) -> Drawing:
    """Draw the graph of a Value: a box of label, data and grad per node, a circle per operation.

    >>> from chainrule import Value, draw
    >>> a, b = Value(2.0, label="a"), Value(3.0, label="b")
    >>> picture = draw(a * b + a)
    >>> picture
    Drawing(4 nodes, 4 edges)
    >>> picture.svg.startswith("<svg")
    True

    ``format`` is "svg", "png", "dot" or "mermaid": what notebooks show (the last two as an SVG
    too) and what ``save`` writes when the name has no suffix. ``rankdir`` is "LR", from left to
    right, or "TB", from top to bottom. A graph of more than ``limit`` nodes (100 unless you say
    otherwise) is collapsed: a dot product, a layer and the like become one box each.
    """
    from chainrule.see.drawing.picture import FULL_LIMIT, make_picture

    if not isinstance(v, Value):
        raise TypeError(f"draw takes a Value, not a {type(v).__name__}")
    if format not in ENDINGS:
        raise ValueError(f"format must be one of {', '.join(ENDINGS)}, not {format!r}")
    if rankdir not in ("LR", "TB"):
        raise ValueError(f'rankdir must be "LR" or "TB", not {rankdir!r}')
    order = topological_order(v)
    called = naming(order, caller_frame())
    most = FULL_LIMIT if limit is None else limit
    picture = make_picture(order, called.names, most, kinds=called.kinds)
    return Drawing(picture, format, rankdir)


draw_dot = draw


class Drawing:
    """The picture of a graph: see ``draw``."""

    def __init__(self, picture: Picture, format: str, rankdir: str) -> None:
        self.picture = picture
        self.format = format
        self.rankdir = rankdir

    @cached_property
    def svg(self) -> str:
        """The drawing as an SVG document."""
        from chainrule.see.drawing.svg import write_svg

        return write_svg(self.picture, self.rankdir)

    @cached_property
    def dot(self) -> str:
        """The drawing in graphviz's language."""
        from chainrule.see.drawing.markup import write_dot

        return write_dot(self.picture, self.rankdir)

    @cached_property
    def mermaid(self) -> str:
        """The drawing in Mermaid's language."""
        from chainrule.see.drawing.markup import write_mermaid

        return write_mermaid(self.picture, self.rankdir)

    @property
    def source(self) -> str:
        """The dot text, as the ``graphviz`` package calls it."""
        return self.dot

    @cached_property
    def png(self) -> bytes:
        """The drawing as the bytes of a PNG, two pixels to each of the SVG's."""
        from chainrule.see.drawing.pixels import render_png

        return render_png(self.svg)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the drawing to a file: ``.svg``, ``.png``, ``.dot`` (or ``.gv``), ``.mmd``.

        A name without a suffix gets that of the drawing's ``format``.
        """
        file = Path(path)
        if not file.suffix:
            file = file.with_suffix(ENDINGS[self.format])
        kind = SUFFIXES.get(file.suffix.lower())
        if kind is None:
            known = ", ".join(SUFFIXES)
            raise ValueError(f"cannot save {file.name!r}: the name must end in one of {known}")
        write_atomically(file, getattr(self, kind))
        return file

    def render(self, filename: str | PathLike[str] = "graph") -> str:
        """Write ``filename.svg`` (or the like), under the name the ``graphviz`` package uses."""
        return str(self.save(f"{Path(filename)}{ENDINGS[self.format]}"))

    def __repr__(self) -> str:
        return f"Drawing({self.picture.summary})"

    def _repr_html_(self) -> str | None:
        from chainrule.see.drawing.svg import notebook_html

        return None if self.format == "png" else notebook_html(self.svg)

    def _repr_svg_(self) -> str | None:
        return None if self.format == "png" else self.svg

    def _repr_png_(self) -> bytes | None:
        return self.png if self.format == "png" else None
