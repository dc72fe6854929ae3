"""A ``Picture`` as text for other programs: graphviz's dot and Mermaid, for markdown.

Both keep the lecture's form: a record of label, data and grad, and a circle per operation.
"""

from __future__ import annotations

import re

from chainrule.see.drawing.picture import Box, Picture

_WORD = re.compile(r"[A-Za-z0-9 .…,→×]")


def write_dot(picture: Picture, rankdir: str = "LR") -> str:
    """The picture in graphviz's language."""
    lines = ["digraph {", f"\tgraph [rankdir={rankdir}]"]
    for box in picture.boxes:
        fields = " | ".join(_dot_field(field) for field in _fields(box))
        lines.append(f'\tn{box.number} [label="{{ {fields} }}" shape=record]')
        if box.op:
            lines.append(f'\tn{box.number}op [label="{_dot_string(box.op)}"]')
            lines.append(f"\tn{box.number}op -> n{box.number}")
    for wire in picture.wires:
        end = "op" if picture.boxes[wire.target].op else ""
        note = f' [label="{wire.edges:,}"]' if wire.edges > 1 else ""
        lines.append(f"\tn{wire.source} -> n{wire.target}{end}{note}")
    if picture.is_collapsed:
        lines.append(f'\tlabel="{picture.summary}"')
    return "\n".join([*lines, "}\n"])


def write_mermaid(picture: Picture, rankdir: str = "LR") -> str:
    """The picture in Mermaid's language, which markdown on GitHub and elsewhere draws."""
    lines = [f"flowchart {rankdir}"]
    if picture.is_collapsed:
        lines.append(f"  %% {picture.summary}")
    for box in picture.boxes:
        text = " | ".join(_mermaid(field) for field in _fields(box))
        lines.append(f'  n{box.number}["{text}"]')
        if box.op:
            lines.append(f'  n{box.number}op(("{_mermaid(box.op)}"))')
            lines.append(f"  n{box.number}op --> n{box.number}")
    for wire in picture.wires:
        end = "op" if picture.boxes[wire.target].op else ""
        arrow = f'-- "{wire.edges:,}" -->' if wire.edges > 1 else "-->"
        lines.append(f"  n{wire.source} {arrow} n{wire.target}{end}")
    return "\n".join([*lines, ""])


def _fields(box: Box) -> list[str]:
    fields = [box.title]
    if box.is_group:
        fields.append(box.size)
    if not box.is_number:
        fields.append(f"data {box.data}")
    return [*fields, f"grad {box.grad}"]


def _dot_string(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _dot_field(text: str) -> str:
    # In a record label these shape the record, and a backslash makes them letters again.
    return re.sub(r'([\\{}|<>"])', r"\\\1", text)


def _mermaid(text: str) -> str:
    """Everything but letters and digits as a character code: no markdown, no HTML, no quotes."""
    return "".join(c if _WORD.match(c) else f"#{ord(c)};" for c in text)
