"""SVG to PNG, by resvg: a renderer that needs no system library and has wheels everywhere.

The fonts come with this package, so that a drawing needs none of the system's and looks the same on
every machine.
"""

from __future__ import annotations

import re
from importlib import resources

#: The characters in fonts/, as ranges; tools/make_fonts.py cuts the files down to these.
CHARACTERS = [
    (0x20, 0x7E),
    (0xA0, 0x17F),  # Latin
    (0x300, 0x36F),  # accents
    (0x370, 0x3FF),  # Greek
    (0x400, 0x45F),  # Cyrillic
    (0x1D62, 0x1D6A),  # ᵢ and its kind
    (0x2010, 0x2040),  # dashes, quotation marks, …, ′
    (0x2070, 0x209C),  # superscripts and subscripts
    (0x2102, 0x2126),  # letters of mathematics
    (0x2190, 0x21D5),  # arrows
    (0x2200, 0x22FF),  # mathematics
    (0x25A0, 0x25CF),  # shapes
    (0xFFFD, 0xFFFD),
]
_SCALE = 2.0  # for screens with fine pixels
_LARGEST = 16_000  # pixels to a side


def render_png(svg: str) -> bytes:
    """The bytes of a PNG. ImportError without resvg-py."""
    try:
        import resvg_py
    except ImportError as error:
        raise ImportError(
            "PNG needs the package resvg-py: pip install resvg-py "
            "(.svg, .dot and .mmd need nothing)"
        ) from error
    size = re.search(r'width="([\d.]+)" height="([\d.]+)"', svg)
    side = max(map(float, size.groups())) if size else 1.0
    with resources.as_file(resources.files(__package__) / "fonts") as fonts:
        return resvg_py.svg_to_bytes(
            svg_string=svg,
            zoom=min(_SCALE, _LARGEST / side),
            font_dirs=[str(fonts)],
            skip_system_fonts=_has_every_character(svg),
        )


def _has_every_character(text: str) -> bool:
    """Whether the fonts here suffice; labels in other scripts are drawn with the system's."""
    return all(
        any(first <= ord(letter) <= last for first, last in CHARACTERS)
        for letter in set(text) - {"\n", "\t"}
    )
