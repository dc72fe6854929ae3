"""How the first call grows with the program: seconds and memory, as tables and a picture.

    python benchmarks/growth.py now.json                   measure, each in a fresh process
    python benchmarks/growth.py now.json --before old.json beside figures of an earlier version
    python benchmarks/growth.py now.json --picture P.svg   draw what was measured

GPTs as ``chainrule train`` compiles them: the large ones from recordings at small sizes; a mixture
and an option likewise, by ``sizes=``; a bundle adjustment as it is recorded. What is in the file
already is not measured again. Seconds are processor time, memory is the most that the process had.
"""

import argparse
import json
import math
from pathlib import Path

from harness import fresh_process, machine, title
from recording import (
    EACH,
    EXAMPLES,
    LARGEST,
    VOCABULARY,
    WORDS,
    first_call,
    from_small_sizes,
    instructions,
)

from chainrule.gpt import Config, model
from chainrule.gpt.charts import COLOURS, FAINT, INK, PAPER, escape

WIDTHS, LAYERS, BLOCKS = (16, 32, 64, 128), (1, 2, 4), (16, 32, 64, 128)
GPTS = [("gpt", w, n, b) for w in WIDTHS for n in LAYERS for b in BLOCKS]
OTHERS = [(name, most // k) for name, most in LARGEST.items() for k in (25, 5, 1)]


def measured(name, *sizes):
    """[seconds, bytes]"""
    small = name not in EXAMPLES
    if name == "gpt":
        width, layers, block = sizes
        config = Config(width=width, layers=layers, block=block)
        small = block * config.parameter_count(VOCABULARY) < model.LARGE
    _, seconds, peak, _ = (first_call if small else from_small_sizes)(name, sizes)
    return [seconds, peak]


def count_of(name, *sizes):
    """About how many instructions a program has."""
    return instructions(*sizes) if name == "gpt" else EACH[name] * sizes[0]


def key(job):
    return " ".join(map(str, job))


def cell(found):
    return "" if found is None else f"{found[0]:.1f} s, {found[1] / 1e6:,.0f} MB"


def markdown(now, before):
    """A table of the GPTs, and one of the others."""
    title("GPTs: width and layers down, blocks across; before → now")
    print("| | " + " | ".join(f"block {b}" for b in BLOCKS) + " |")
    print("|---" * (len(BLOCKS) + 1) + "|")
    for width in WIDTHS:
        for layers in LAYERS:
            jobs = [key(("gpt", width, layers, block)) for block in BLOCKS]
            cells = [
                " → ".join(filter(None, [cell(x.get(j)) for x in (before, now)])) for j in jobs
            ]
            print(f"| width {width}, layers {layers} | " + " | ".join(cells) + " |")
    title("Other programs")
    print("| | before | now |\n|---|---|---|")
    for name, count in OTHERS:
        cells = [cell(x.get(key((name, count)))) for x in (before, now)]
        print(f"| {name}, {count:,} {WORDS[name]} | " + " | ".join(cells) + " |")


# --- the picture ----------------------------------------------------------------------------------

PANEL, TALL, MARGIN = 330, 300, 62


def text(x, y, words, anchor="middle"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


class Panel:
    """Logarithmic axes: instructions across, seconds or MB upwards."""

    def __init__(self, left, y_powers, heading):
        self.left, self.x_powers, self.y_powers = left, (4, 9), y_powers
        self.parts = [text(left + PANEL / 2, 40, heading)]
        for power in range(self.x_powers[0], self.x_powers[1] + 1):
            x, _ = self.place(10**power, 10 ** y_powers[0])
            self._line(x, 50, x, 50 + TALL)
            self.parts.append(text(x, 68 + TALL, f"10{'⁰¹²³⁴⁵⁶⁷⁸⁹'[power]}"))
        for power in range(y_powers[0], y_powers[1] + 1):
            _, y = self.place(10 ** self.x_powers[0], 10.0**power)
            self._line(left, y, left + PANEL, y)
            self.parts.append(text(left - 6, y + 4, f"{10.0**power:,g}", "end"))
        self.parts.append(text(left + PANEL / 2, 88 + TALL, "instructions"))

    def _line(self, x, y, x_end, y_end):
        at = f'x1="{x:.1f}" y1="{y:.1f}" x2="{x_end:.1f}" y2="{y_end:.1f}"'
        self.parts.append(f'<line {at} stroke="{FAINT}"/>')

    def place(self, x, y):
        spans = (self.x_powers, self.y_powers)
        across, up = (
            (math.log10(v) - a) / (b - a) for v, (a, b) in zip((x, y), spans, strict=True)
        )
        return self.left + PANEL * across, 50 + TALL * (1 - up)

    def dot(self, x, y, colour, filled, words):
        at, up = self.place(x, y)
        look = f'fill="{colour if filled else PAPER}" stroke="{colour}" stroke-width="1.5"'
        shown = f"<title>{escape(words)}</title>"
        self.parts.append(f'<circle cx="{at:.1f}" cy="{up:.1f}" r="4" {look}>{shown}</circle>')


def picture(now, before):
    heading = "The first call: seconds and MB by instructions"
    panels = [
        Panel(MARGIN, (-1, 3), "seconds of processor time"),
        Panel(2 * MARGIN + PANEL, (1, 4), "MB at most"),
    ]
    colours = dict(zip(("gpt", *LARGEST), COLOURS, strict=False))
    for figures, filled in ((before, False), (now, True)):
        for job in [*GPTS, *OTHERS]:
            found = figures.get(key(job))
            if found is not None:
                words = f"{key(job)}: {cell(found)}" + ("" if filled else ", before")
                for panel, number in zip(panels, (found[0], found[1] / 1e6), strict=True):
                    panel.dot(count_of(*job), number, colours[job[0]], filled, words)
    width, height = 2 * (MARGIN + PANEL) + 20, TALL + 130
    parts = [x for panel in panels for x in panel.parts]
    for k, (name, colour) in enumerate(colours.items()):
        x = MARGIN + 110 * k
        parts.append(f'<circle cx="{x}" cy="{height - 19}" r="5" fill="{colour}"/>')
        parts.append(text(x + 10, height - 15, name, "start"))
    parts.append(text(width - 20, height - 15, "filled: now; hollow: before", "end"))
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="12" '
            f'font-family="system-ui, sans-serif" fill="{INK}">',
            f"<title>{heading}</title>",
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("figures", type=Path, help="a JSON file: read, completed and written")
    parser.add_argument("--before", type=Path, help="such a file of an earlier version")
    parser.add_argument("--most", type=float, default=1e9, help="instructions of a program")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    now = json.loads(options.figures.read_text()) if options.figures.exists() else {}
    before = json.loads(options.before.read_text()) if options.before else {}
    print(machine())
    for job in [*OTHERS, *GPTS]:
        if key(job) not in now and count_of(*job) <= options.most:
            now[key(job)] = fresh_process(measured, *job)
            print(f"{key(job)}: {cell(now[key(job)])}", flush=True)
            options.figures.write_text(json.dumps(now))
    markdown(now, before)
    if options.picture:
        options.picture.write_text(picture(now, before))


if __name__ == "__main__":
    main()
