"""``explore(v)``: the backward pass as a page to step through, in one HTML file.

The file stands alone: no request leaves it, and its Content-Security-Policy lets nothing run but
the one script, named by its hash. What came from outside reaches the page as escaped text in the
drawing and as JSON that the script puts into text nodes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import asdict, fields
from functools import cached_property
from importlib import resources
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.core.backend import Value, topological_order

if TYPE_CHECKING:
    from chainrule.see.drawing.picture import Picture
    from chainrule.see.page.frames import Frame

__all__ = ["explore", "Page"]

#: larger graphs are collapsed and stepped through box by box
LIMIT = 200
_NOTEBOOK_HEIGHT = 720


def explore(v: Value, *, limit: int = LIMIT) -> Page:
    """A page that steps through the backward pass of ``v``: forward, sort, backward.

    >>> from chainrule import Value, explore
    >>> a, b = Value(2.0, label="a"), Value(3.0, label="b")
    >>> explore(a * b + a)
    Page(4 nodes, 4 edges, 20 frames)

    Notebooks show it by themselves; ``.save("page.html")`` writes one file that needs nothing
    else. Graphs of more than ``limit`` nodes are collapsed. No ``.grad`` is changed.
    """
    from chainrule.see.drawing.picture import make_picture
    from chainrule.see.explanation import explain
    from chainrule.see.page.frames import make_frames

    if not isinstance(v, Value):
        raise TypeError(f"explore takes a Value, not a {type(v).__name__}")
    explanation = explain(v)
    nodes = explanation.nodes
    names, grads = [node.name for node in nodes], [node.grad for node in nodes]
    kinds = [node.kind for node in nodes]
    picture = make_picture(topological_order(v), names, limit, grads, kinds)
    return Page(picture, make_frames(explanation, picture))


class Page:
    """A self-contained HTML page: see ``explore``."""

    def __init__(self, picture: Picture, frames: list[Frame]) -> None:
        self.picture = picture
        self.frames = frames

    @cached_property
    def html(self) -> str:
        """The whole file."""
        style, script = _asset("page.css"), _asset("page.js")
        policy = (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
            "base-uri 'none'; form-action 'none'"
        )
        name = self.picture.name
        parts = {
            "policy": policy,
            "style": style,
            "script": script,
            "title": html.escape(f"The backward pass of {name}"),
            "name": html.escape(name),
            "summary": html.escape(self.picture.summary),
            "note": html.escape(_collapsed_note(self.picture)),
            "sideways": self._svg("LR"),
            "downwards": self._svg("TB"),
            "data": _json(self._data()),
        }
        # One pass over the template: what is filled in is never searched for further places.
        return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to a file, whose name gets ``.html`` unless it has a suffix."""
        file = Path(path)
        if not file.suffix:
            file = file.with_suffix(".html")
        if file.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"cannot save {file.name!r}: the name must end in .html")
        file.write_text(self.html, encoding="utf-8")
        return file

    def _repr_html_(self) -> str:
        title = html.escape(f"The backward pass of {self.picture.name}")
        return (
            f'<iframe sandbox="allow-scripts" title="{title}" width="100%"'
            f' height="{_NOTEBOOK_HEIGHT}" style="border:0" srcdoc="{html.escape(self.html)}">'
            "</iframe>"
        )

    def __repr__(self) -> str:
        return f"Page({self.picture.summary}, {len(self.frames):,} frames)"

    def _data(self) -> dict[str, Any]:
        return {
            "boxes": [
                {"name": box.title, "kind": box.kind, "grad": box.grad}
                for box in self.picture.boxes
            ],
            "wires": [[wire.source, wire.target] for wire in self.picture.wires],
            "frames": [_without_defaults(frame) for frame in self.frames],
        }

    def _svg(self, rankdir: str) -> str:
        from chainrule.see.drawing.layout import coordinate
        from chainrule.see.drawing.svg import SvgDrawing, letters

        room = max((letters(frame.total) for frame in self.frames), default=0)
        drawing = SvgDrawing(self.picture, rankdir, grad_room=room)
        width, height = coordinate(drawing.width), coordinate(drawing.height)
        direction = "from left to right" if rankdir == "LR" else "from top to bottom"
        label = html.escape(f"{self.picture.title}, {direction}")
        return "\n".join(
            [
                f'<svg class="graph" id="graph-{rankdir}" role="group" aria-label="{label}"'
                f' width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
                *drawing.elements(),
                "</svg>",
            ]
        )


def _collapsed_note(picture: Picture) -> str:
    if not picture.is_collapsed:
        return ""
    return (
        f"{picture.summary}: each step here stands for many. "
        "explain(v).steps has every one of them."
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _json(data: Any) -> str:
    """JSON that no text inside it can end early: ``</script>`` and ``<!--`` have no ``<`` left."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _without_defaults(frame: Frame) -> dict[str, Any]:
    default = {field.name: field.default for field in fields(frame)}
    return {key: value for key, value in asdict(frame).items() if value != default[key]}
