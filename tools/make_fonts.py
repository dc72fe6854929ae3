"""Cuts the DejaVu fonts down to the characters that drawings use.

Run it with the folder of the full fonts (Debian: /usr/share/fonts/truetype/dejavu) after changing
CHARACTERS in see/drawing/pixels.py. It needs fonttools, which nothing else does.
"""

import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

from chainrule.see.drawing.pixels import CHARACTERS

TARGET = Path(__file__).parents[1] / "src" / "chainrule" / "see" / "drawing" / "fonts"
FACES = ["DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSansMono-Bold"]
LICENSE = 13  # the number of the licence's text among a font's names
ABOUT = "The fonts in this folder are DejaVu 2.37, cut down to the characters that drawings use."


def main(source: Path) -> None:
    for face in FACES:
        font = TTFont(source / f"{face}.ttf", recalcTimestamp=False)
        options = subset.Options(hinting=False, layout_features=[], name_IDs=["*"])
        options.drop_tables += ["FFTM"]
        subsetter = subset.Subsetter(options)
        subsetter.populate(
            unicodes=[n for first, last in CHARACTERS for n in range(first, last + 1)]
        )
        subsetter.subset(font)
        font.save(TARGET / f"{face}.ttf")
    licence = str(font["name"].getDebugName(LICENSE)).replace("\r\n", "\n").rstrip()
    (TARGET / "LICENSE").write_text(f"{ABOUT}\n\n{licence}\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
