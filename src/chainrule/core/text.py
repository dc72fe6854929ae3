"""Text from outside made harmless: labels, operation names, samples and file names come in.

Out comes text without a character that could steer a terminal, turn the order of what is read
around, break an SVG or hide. Every other letter of every script stays.
"""

from __future__ import annotations

import unicodedata

# Control characters, halves of surrogate pairs, private and unassigned code points, ends of lines
# and paragraphs, and invisible formatting (among it all that changes the direction of writing).
_HIDDEN = frozenset(("Cc", "Cs", "Co", "Cn", "Zl", "Zp", "Cf"))
_JOINERS = "\u200c\u200d"  # Persian words and many emoji need them


def visible(text: str) -> str:
    """``text`` with what is invisible or has an effect spelt out, as in a Python string.

    >>> from chainrule.core.text import visible
    >>> visible("zoë 小明\\n")
    'zoë 小明\\\\n'
    >>> print(visible("\\x1b[2J"))
    \\x1b[2J
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode()
        if unicodedata.category(c) in _HIDDEN and c not in _JOINERS
        else c
        for c in text
    )
