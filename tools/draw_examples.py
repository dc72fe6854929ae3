"""Draw the pictures of docs/examples.md from what the scripts in examples/ compute.

python tools/draw_examples.py [NAME ...]    writes docs/examples/NAME.svg, by default all of them

The numbers come from optimisers and machine code, which may round the last digit differently on
another processor. So nothing checks that the files are the same to the last character; the numbers
themselves are checked by tests/test_examples.py.
"""

import math
import sys
from pathlib import Path

import numpy as np

import chainrule
from chainrule.gpt.charts import ticks

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "examples"
sys.path.insert(0, str(ROOT / "examples"))

INK, FAINT, BLUE, ORANGE, GREEN = "#24292f", "#d0d7de", "#1f6feb", "#d1570a", "#1a7f37"


class Panel:
    """One frame with axes, at some place of a picture; numbers become places in it."""

    def __init__(self, left, width, x, y, title, x_name, height=260):
        self.left, self.right, self.top, self.bottom = left, left + width, 40, 40 + height
        self.x, self.y = x, y
        self.parts = [text(left, 24, title, size=14)]
        for number in ticks(*y):
            _, at = self.place(x[0], number)
            self.parts.append(path(f"M{left} {at:.1f}H{self.right}", FAINT, 1))
            self.parts.append(text(left - 6, at + 4, f"{number:g}", "end"))
        for number in ticks(*x):
            at, _ = self.place(number, y[0])
            self.parts.append(text(at, self.bottom + 18, f"{number:g}", "middle"))
        self.parts.append(text((left + self.right) / 2, self.bottom + 38, x_name, "middle"))

    def place(self, x, y):
        across = (x - self.x[0]) / (self.x[1] - self.x[0])
        up = (y - self.y[0]) / (self.y[1] - self.y[0])
        return (
            self.left + across * (self.right - self.left),
            self.bottom - up * (self.bottom - self.top),
        )

    def line(self, points, colour, width=2, extra=""):
        places = " ".join("{:.1f} {:.1f}".format(*self.place(*point)) for point in points)
        self.parts.append(path(f"M{places}", colour, width, extra))

    def dots(self, points, colour, radius=3, extra=""):
        for point in points:
            x, y = self.place(*point)
            self.parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"{extra}/>'
            )

    def rings(self, points, colour, radius=4):
        self.dots(points, "none", radius, f' stroke="{colour}" stroke-width="1.5"')

    def name(self, x, y, words, colour, anchor="start"):
        at, height = self.place(x, y)
        self.parts.append(text(at, height, words, anchor, fill=colour))


def text(x, y, words, anchor="start", size=12, fill=INK):
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'fill="{fill}">{words}</text>'
    )


def path(steps, colour, width=2, extra=""):
    return f'<path d="{steps}" fill="none" stroke="{colour}" stroke-width="{width}"{extra}/>'


def picture(title, *panels):
    width, height = panels[-1].right + 24, panels[0].bottom + 52
    parts = [part for panel in panels for part in panel.parts]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="system-ui, sans-serif">'
        f'<title>{title}</title><rect width="100%" height="100%" fill="#ffffff"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


# --- one function for each example ----------------------------------------------------------------


def greeks():
    import greeks as example

    spots, strike = np.linspace(60, 160, 51), 110.0
    found = [example.greeks([s, 0.2, 0.03, 0.75], strike) for s in spots.tolist()]
    panels = []
    for k, (name, top) in enumerate({"delta": 1.0, "gamma": 0.03}.items()):
        panel = Panel(56 + 350 * k, 280, (60, 160), (0, top), name, "spot price")
        rows = list(zip(spots, [f[name] for f in found], strict=True))
        panel.line(rows, BLUE)
        known = [(s, example.closed_forms([s, 0.2, 0.03, 0.75], strike)[name]) for s in spots[::5]]
        panel.rings(known, ORANGE)
        panels.append(panel)
    panels[0].name(64, 0.93, "line: differentiated", BLUE)
    panels[0].name(64, 0.85, "rings: closed form", ORANGE)
    return picture("Delta and gamma of a call, beside their closed forms", *panels)


def implied_volatility():
    import implied_volatility as example

    volatilities = [0.28, 0.24, 0.21, 0.2, 0.22]
    quotes = example.quotes_at(volatilities, 100.0)
    found = [
        example.implied_volatility(float(quote), 100.0, strike)
        for quote, strike in zip(quotes, example.STRIKES, strict=False)
    ]
    _, slopes = chainrule.compile(example.average).value_and_grad(quotes)
    smile = Panel(56, 280, (75, 125), (0.18, 0.3), "the smile of five quotes", "strike")
    smile.line(list(zip(example.STRIKES, found, strict=True)), BLUE)
    smile.dots(zip(example.STRIKES, found, strict=True), BLUE, 4)
    smile.rings(zip(example.STRIKES, volatilities, strict=True), ORANGE, 7)
    smile.name(92, 0.285, "dots: implied by the price", BLUE)
    smile.name(92, 0.276, "rings: behind the quote", ORANGE)
    bars = Panel(406, 280, (75, 125), (0.0, 0.03), "what a quote moves the mean by", "strike")
    for strike, slope in zip(example.STRIKES, slopes[:5], strict=True):
        bars.line([(strike, 0.0), (strike, slope)], GREEN, 14)
    return picture("A smile of implied volatilities, and its derivatives", smile, bars)


def calibration():
    import calibration as example

    quotes = [example.price(list(example.TRUE), *bond) for bond in example.BONDS]
    found, years = example.fit(quotes), np.linspace(0.25, 20, 80)
    panel = Panel(56, 560, (0, 20), (0.02, 0.05), "a yield curve from seven bonds", "years")
    curves = {"start": ([0.03, 0, 0, 1.0], FAINT), "true": (example.TRUE, ORANGE)}
    for _, (p, colour) in curves.items():
        panel.line([(t, example.rate(list(p), t)) for t in years], colour, 5)
    panel.line([(t, example.rate(list(found), t)) for t in years], BLUE, 1.5)
    panel.dots([(t, example.rate(list(found), float(t))) for _, t in example.BONDS], BLUE, 4)
    panel.name(12, 0.0275, "grey: the guess to start from", "#6e7781")
    panel.name(12, 0.0255, "orange: the curve behind the prices", ORANGE)
    panel.name(12, 0.0235, "blue: the curve found, with the bonds", BLUE)
    return picture("A yield curve fitted to bond prices", panel)


def asian_option():
    import asian_option as example

    return example.picture(np.random.default_rng(0).normal(size=(100_000, example.STEPS)))


def kalman():
    import kalman as example

    positions = example.measured(400)
    found = example.fit(positions)
    fast = chainrule.compile(example.unlikelihood)
    x, y = (0.04, 0.24), (0.35, 0.65)
    panel = Panel(
        56,
        560,
        x,
        y,
        "the darker, the more likely the measurements",
        "how much the velocity wanders",
    )
    columns, rows = 28, 13
    across = np.linspace(*x, columns, endpoint=False) + (x[1] - x[0]) / columns / 2
    up = np.linspace(*y, rows, endpoint=False) + (y[1] - y[0]) / rows / 2
    grid = np.log(np.stack(np.meshgrid(across, up), axis=-1).reshape(-1, 2))
    values = fast.map(grid, positions, in_axes=(0, None))
    height = values - values.min()
    cells = []
    for (a, b), over in zip(np.exp(grid), height, strict=True):
        left, top = panel.place(a - 0.1 / columns, b + 0.15 / rows)
        shade = min(1.0, math.sqrt(over / 40.0))
        colour = "#" + "".join(f"{round(c + (255 - c) * shade):02x}" for c in (31, 111, 235))
        cells.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="20.3" height="20.3" fill="{colour}"/>'
        )
    panel.parts = [*cells, *[p for p in panel.parts if FAINT not in p]]
    panel.rings([found], ORANGE, 7)
    panel.name(found[0] + 0.006, found[1] + 0.012, "found", INK)
    panel.dots([example.TRUE], INK, 4)
    panel.name(example.TRUE[0] - 0.004, example.TRUE[1] + 0.012, "true", INK, "end")
    panel.parts.append(text(panel.left - 44, 32, "noise"))
    return picture("The likelihood of a Kalman filter over its two parameters", panel)


def swing_up():
    import swing_up as example

    states = example.simulate(list(example.swing_up()))
    way = Panel(56, 280, (-1.25, 1.25), (-1.16, 1.16), "every second moment of the way up", "")
    way.parts = way.parts[:1]
    for k in range(0, example.STEPS, 2):
        tip = (math.sin(states[k][0]), -math.cos(states[k][0]))
        fade = f' stroke-opacity="{0.15 + 0.85 * k / example.STEPS:.2f}"'
        way.line([(0, 0), tip], BLUE, 1.5, fade)
        way.dots([tip], BLUE, 3, f' fill-opacity="{0.15 + 0.85 * k / example.STEPS:.2f}"')
    times = [(k + 1) * example.STEP for k in range(example.STEPS)]
    torque = Panel(406, 280, (0, 4), (-4.4, 4.4), "torque: gravity's is up to 9.81", "seconds")
    torque.line([(t, s[2]) for t, s in zip(times, states, strict=True)], ORANGE)
    return picture("A pendulum that swings itself up", way, torque)


def bundle_adjustment():
    import bundle_adjustment as example

    true = example.scene()
    first, rest = true[: example.FIXED], true[example.FIXED :]
    guess = rest + np.random.default_rng(2).normal(0, 0.1, rest.shape)
    found, _, _ = example.adjust(guess, first, example.photographs(true))
    points = [row[-example.POINTS * example.POINT :].reshape(-1, 3) for row in (rest, guess, found)]
    panel = Panel(56, 420, (-1.3, 1.3), (-1.3, 1.3), "forty points, from the front", "x", 420)
    for before, after in zip(points[1], points[2], strict=True):
        panel.line([before[:2], after[:2]], FAINT, 2)
    panel.dots(points[1][:, :2], "#8c959f", 3)
    panel.rings(points[0][:, :2], ORANGE, 6)
    panel.dots(points[2][:, :2], BLUE, 3)
    for k, (words, colour) in enumerate(
        {"the guess": "#6e7781", "where they are": ORANGE, "found from six cameras": BLUE}.items()
    ):
        panel.parts.append(text(500, 70 + 20 * k, words, fill=colour))
    panel.right += 190
    return picture("Points found by bundle adjustment", panel)


def mixture():
    import mixture as example

    points = example.sample(20_000)
    found = example.fit(points)
    panel = Panel(
        56, 560, (-5, 4.5), (-4.5, 4.5), "20,000 points, a twentieth of them drawn", "", 420
    )
    drawn = "".join("M{:.0f} {:.0f}h0".format(*panel.place(*point)) for point in points[::20])
    panel.parts.append(path(drawn, "#8c959f", 3, ' stroke-linecap="round" stroke-opacity="0.6"'))
    turns = np.linspace(0, 2 * math.pi, 73)
    for (_, mean, _), (weight, *m, s0, s1), colour in zip(
        example.CLOUDS, found, (BLUE, ORANGE, GREEN), strict=True
    ):
        for wide in (1, 2):
            ring = np.column_stack([np.cos(turns) * s0, np.sin(turns) * s1]) * wide + m
            panel.line(ring, colour, 2)
        panel.dots([mean], INK, 4)
        panel.name(m[0], m[1] + 2 * s1 + 0.15, f"{weight:.1%}", colour, "middle")
    return picture("Three clouds of points and the Gaussians found in them", panel)


EXAMPLES = (
    *(greeks, implied_volatility, calibration, asian_option),
    *(kalman, swing_up, bundle_adjustment, mixture),
)


def main():
    wanted = sys.argv[1:] or [function.__name__ for function in EXAMPLES]
    functions = {function.__name__: function for function in EXAMPLES}
    unknown = [name for name in wanted if name not in functions]
    if unknown:
        print(f"there is no example {unknown[0]!r}: {', '.join(functions)}", file=sys.stderr)
        return 2
    FOLDER.mkdir(exist_ok=True)
    for name in wanted:
        file = FOLDER / f"{name}.svg"
        file.write_text(functions[name](), encoding="utf-8")
        print(f"wrote {file.relative_to(ROOT)}: {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
