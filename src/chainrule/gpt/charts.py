"""Small pictures as SVG text: loss curves, attention maps, histograms, bars.

Each function takes plain numbers and returns a whole picture, readable without any other file.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from chainrule.core.text import visible
from chainrule.gpt.curve import Curve
from chainrule.gpt.metrics import Row

COLOURS = (
    *("#1f6feb", "#d1570a", "#1a7f37", "#8250df"),
    *("#bf3989", "#7d4e00", "#0a7ea4", "#57606a"),
)
MOST_POINTS = 600  # of a curve, whatever the number of steps: there are no more pixels
MOST_CIRCLES = 60
INK, FAINT, PAPER = "#24292f", "#d0d7de", "#ffffff"

Point = tuple[float, float]


def escape(words: str) -> str:
    """Text for an SVG."""
    return html.escape(visible(words))


def _text(
    x: float, y: float, words: str, anchor: str = "start", size: int = 12, extra: str = ""
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"{extra}>'
        f"{escape(words)}</text>"
    )


def _picture(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
            f'width="{width:.0f}" height="{height:.0f}" font-family="system-ui, sans-serif" '
            f'fill="{INK}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def ticks(low: float, high: float, count: int = 6) -> list[float]:
    """Round numbers from low to high, about ``count`` of them.

    >>> from chainrule.gpt.charts import ticks
    >>> ticks(0, 1000)
    [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]
    """
    rough = (high - low) / max(count - 1, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


class _Axes:
    """A frame that maps numbers to places."""

    def __init__(
        self, x: tuple[float, float], y: tuple[float, float], width: float, height: float
    ) -> None:
        self.x_range, self.y_range = _widened(x), _widened(y)
        self.width, self.height = width, height
        self.left, self.top = 52.0, 34.0
        self.right, self.bottom = width - 16.0, height - 40.0

    def place(self, x: float, y: float) -> Point:
        (x0, x1), (y0, y1) = self.x_range, self.y_range
        return (
            self.left + (x - x0) / (x1 - x0) * (self.right - self.left),
            self.bottom - (y - y0) / (y1 - y0) * (self.bottom - self.top),
        )

    def frame(self, title: str, x_name: str) -> list[str]:
        parts = [_text(self.left, 20, title, size=14)]
        for y in ticks(*self.y_range):
            _, at = self.place(self.x_range[0], y)
            parts.append(
                f'<line x1="{self.left}" x2="{self.right}" y1="{at:.1f}" y2="{at:.1f}" '
                f'stroke="{FAINT}"/>'
            )
            parts.append(_text(self.left - 6, at + 4, f"{y:g}", "end"))
        for x in ticks(*self.x_range):
            at, _ = self.place(x, self.y_range[0])
            parts.append(_text(at, self.bottom + 16, f"{x:g}", "middle"))
        parts.append(_text((self.left + self.right) / 2, self.bottom + 33, x_name, "middle"))
        return parts

    def line(self, points: Sequence[Point], colour: str, width: float, opacity: float = 1) -> str:
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.place(*p) for p in points))
        return (
            f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            f'stroke-opacity="{opacity:g}"/>'
        )


def _widened(span: tuple[float, float]) -> tuple[float, float]:
    low, high = span
    some = max(0.5, abs(low) / 8)  # adding less to a large number would not change it
    return span if high > low else (low - some, high + some)


def smoothed(curve: Curve, reach: int) -> list[Point]:
    """The end of each stretch, and the mean loss there of up to ``reach`` steps.

    >>> from chainrule import gpt
    >>> from chainrule.gpt.charts import smoothed
    >>> from chainrule.gpt.curve import Curve
    >>> smoothed(Curve(gpt.Row(k, [4.0, 2.0, 0.0][k], 0.1) for k in range(3)), reach=2)
    [(0.0, 4.0), (1.0, 3.0), (2.0, 1.0)]
    """
    stretches = curve.stretches()
    counts = np.append(0, stretches["last"] - curve.steps[0] + 1)
    sums = np.append(0.0, np.cumsum(stretches["sum"]))
    begins = np.searchsorted(counts, np.maximum(counts[1:] - reach, 0))
    means = (sums[1:] - sums[begins]) / (counts[1:] - counts[begins])
    return list(zip(stretches["last"].astype(float).tolist(), means.tolist(), strict=True))


def losses(runs: Mapping[str, Curve | Iterable[Row]], title: str = "loss") -> str:
    """The loss curves of some runs: every step faint, the running mean bold, validation as dots."""
    curves = {n: rows if isinstance(rows, Curve) else Curve(rows) for n, rows in runs.items()}
    known = {name: curve for name, curve in curves.items() if len(curve)}
    low = min([float(c.stretches()["low"].min()) for c in known.values()], default=0.0)
    high = max([float(c.stretches()["high"].max()) for c in known.values()], default=1.0)
    last = max([curve.steps[-1] for curve in known.values()], default=1)
    axes = _Axes((0, last), (min(low, 0.0) if low < 1 else low, high), 720, 400)
    parts = axes.frame(title, "step")
    for curve, colour in zip(known.values(), COLOURS * len(known), strict=False):
        parts.append(axes.line(_extremes(curve), colour, 1, 0.25))
        parts.append(axes.line(_some(smoothed(curve, max(1, len(curve) // 20))), colour, 2))
        for step, loss in _some(list(curve.validations.items()), MOST_CIRCLES):
            x, y = axes.place(step, min(max(loss, axes.y_range[0]), high))
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{PAPER}" '
                f'stroke="{colour}" stroke-width="2">'
                f"<title>validation loss {loss:.4f}</title></circle>"
            )
    for i, (name, colour) in enumerate(zip(known, COLOURS * len(known), strict=False)):
        if name:
            y = axes.top + 14 + 18 * i
            parts.append(
                f'<rect x="{axes.right - 12:.1f}" y="{y - 10:.1f}" width="12" height="12" '
                f'fill="{colour}"/>'
            )
            parts.append(_text(axes.right - 18, y, name, "end"))
    if any(curve.validations for curve in known.values()):
        note = "circles: validation loss"
        parts.append(_text(axes.right, 20, note, "end"))
    return _picture(axes.width, axes.height, title, parts)


def _extremes(curve: Curve) -> list[Point]:
    """A curve of at most so many points that looks like all of it: the ends of each stretch."""
    stretches = curve.stretches()
    each = math.ceil(len(stretches) / MOST_POINTS)
    each = 1 if each == 2 else each  # all of them are no more than two of each two
    points: list[Point] = []
    for first in range(0, len(stretches), each):
        some = stretches[first : first + each]
        low, high = some[some["low"].argmin()], some[some["high"].argmax()]
        found = {(int(low["low_step"]), float(low["low"]))}
        found.add((int(high["high_step"]), float(high["high"])))
        points += [(float(step), loss) for step, loss in sorted(found)]
    return points


def _some(points: Sequence[Point], most: int = MOST_POINTS) -> Sequence[Point]:
    """The points, or so many of them: as far from each other as they can be, the last included."""
    each = math.ceil(len(points) / most)
    return points[::-1][::each][::-1] if each > 1 else points


def histograms(samples: Mapping[str, Sequence[float]], title: str) -> str:
    """One histogram per name, each over its own range, two in a row."""
    cell_width, cell_height, columns = 350.0, 130.0, 2
    parts = [_text(16, 24, title, size=14)]
    for index, (name, numbers) in enumerate(samples.items()):
        left = 16 + (index % columns) * cell_width
        top = 40 + (index // columns) * cell_height
        low, high = _widened((min(numbers), max(numbers)))
        bins = min(40, max(8, round(2 * math.sqrt(len(numbers)))))
        counts = [0] * bins
        for number in numbers:
            counts[min(int((number - low) / (high - low) * bins), bins - 1)] += 1
        parts.append(_text(left, top + 14, f"{name} ({len(numbers)})"))
        wide, tall, floor = (cell_width - 24) / bins, cell_height - 52, top + cell_height - 28
        for i, count in enumerate(counts):
            if count:
                height = max(1.0, tall * count / max(counts))
                parts.append(
                    f'<rect x="{left + i * wide:.1f}" y="{floor - height:.1f}" '
                    f'width="{wide - 0.5:.1f}" height="{height:.1f}" fill="{COLOURS[0]}"/>'
                )
        parts.append(_text(left, floor + 14, f"{low:.3g}", size=11))
        parts.append(_text(left + bins * wide, floor + 14, f"{high:.3g}", "end", 11))
    rows = math.ceil(len(samples) / columns)
    return _picture(16 + columns * cell_width, 48 + rows * cell_height, title, parts)


def attention(
    maps: Mapping[str, Sequence[Sequence[float]]], tokens: Sequence[str], title: str
) -> str:
    """One map per head: a row for the token that looks, a column for the token looked at."""
    cell, gap, label, columns = 22.0, 40.0, 34.0, min(4, max(1, len(maps)))
    size = cell * len(tokens)
    wide, tall = size + label + gap, size + label + gap
    parts = [_text(16, 24, title, size=14)]
    for index, (name, rows) in enumerate(maps.items()):
        left = 16 + label + (index % columns) * wide
        top = 44 + label + (index // columns) * tall
        parts.append(_text(left, top - 22, name))
        for j, token in enumerate(tokens):
            parts.append(_text(left + (j + 0.5) * cell, top - 5, token[:3], "middle", 11))
            parts.append(_text(left - 5, top + (j + 0.7) * cell, token[:5], "end", 11))
        for i, row in enumerate(rows):
            for j, share in enumerate(row):
                parts.append(
                    f'<rect x="{left + j * cell:.1f}" y="{top + i * cell:.1f}" '
                    f'width="{cell - 1:.0f}" height="{cell - 1:.0f}" fill="{COLOURS[0]}" '
                    f'fill-opacity="{share:.3f}" stroke="{FAINT}" stroke-width="0.5">'
                    f"<title>{escape(tokens[i])} → {escape(tokens[j])}: {share:.3f}</title></rect>"
                )
    height = 44 + label + math.ceil(len(maps) / columns) * tall
    return _picture(max(360.0, 32 + columns * wide), height, title, parts)


def probabilities(
    columns: Sequence[tuple[str, float, Sequence[tuple[str, float]]]], title: str
) -> str:
    """Along a document: the chance each token had, and below it what was likely instead.

    Every column is (token, its probability, the likeliest tokens with theirs).
    """
    wide, tall = 64.0, 160.0
    floor = 44 + tall
    parts = [_text(16, 24, title, size=14)]
    for i, (token, chance, likeliest) in enumerate(columns):
        middle = 16 + (i + 0.5) * wide
        height = max(1.0, tall * chance)
        parts.append(
            f'<rect x="{middle - 18:.1f}" y="{floor - height:.1f}" width="36" '
            f'height="{height:.1f}" fill="{COLOURS[0]}"/>'
        )
        parts.append(_text(middle, floor - height - 4, f"{chance:.2f}", "middle", 11))
        bold = ' font-weight="bold"'
        parts.append(_text(middle, floor + 18, token[:8], "middle", 14, bold))
        for k, (other, likely) in enumerate(likeliest):
            words = f"{other[:6]} {likely:.2f}"
            parts.append(_text(middle, floor + 38 + 15 * k, words, "middle", 11))
    deepest = max((len(likeliest) for _, _, likeliest in columns), default=0)
    width = max(360.0, 32 + wide * len(columns))
    return _picture(width, floor + 40 + 15 * deepest, title, parts)
