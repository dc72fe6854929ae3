"""An extension of griffe, which reads docstrings for the API reference: it fences their examples.

In: a docstring with examples as Python's console shows them. Out: the same with each example in a
code block, as Markdown would take ``>>>`` for a quotation.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


def fenced(text: str) -> str:
    """The text of a docstring, in which every example is a code block."""
    return _EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)


class DoctestBlocks(griffe.Extension):
    """Calls ``fenced`` on every docstring."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)
