"""SVG to PNG, by resvg: a renderer that needs no system library and has wheels everywhere."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_SCALE = 2.0  # for screens with fine pixels
_LARGEST = 16_000  # pixels to a side
_ONE_LETTER = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16">'
    '<text x="2" y="12" font-family="monospace">{}</text></svg>'
)


def render_png(svg: str) -> bytes:
    """The bytes of a PNG. ImportError without resvg-py, RuntimeError where there are no fonts."""
    resvg = _resvg()
    if not _has_fonts():
        raise RuntimeError(
            "PNG needs a font, and none is installed on this machine: install one "
            "(on Debian, fonts-dejavu-core) or save the drawing as .svg"
        )
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    side = max(map(float, size.groups())) if size else 1.0
    return bytes(resvg.svg_to_bytes(svg_string=svg, zoom=min(_SCALE, _LARGEST / side)))


def _resvg() -> Any:
    try:
        import resvg_py
    except ImportError as error:
        raise ImportError(
            "PNG needs the package resvg-py: pip install resvg-py "
            "(.svg, .dot and .mmd need nothing)"
        ) from error
    return resvg_py


@cache
def _has_fonts() -> bool:
    resvg = _resvg()
    letter, nothing = (resvg.svg_to_bytes(svg_string=_ONE_LETTER.format(c)) for c in "x ")
    return bool(letter != nothing)
