"""Points in the plane, each of one of two kinds: moons, circles, a spiral, or a table of your own.

Out comes a ``Dataset``: coordinates scaled to mean 0 and standard deviation 1, which is where a
network's first weights can do something with them, and a target of -1 or 1 for each point.
"""

from __future__ import annotations

import csv
import io
import math
import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from chainrule.play.settings import Given, PlayError, choice, real, text, whole

SHAPES = ("moons", "circles", "spiral", "csv")
MOST_POINTS = 400
LONGEST_TABLE = 100_000  # characters


@dataclass(frozen=True, eq=False)
class Dataset:
    """Points and their targets; ``kinds`` says what -1 and 1 stand for."""

    points: npt.NDArray[np.float64]
    targets: npt.NDArray[np.float64]
    kinds: tuple[str, str]

    @property
    def reach(self) -> float:
        """How far from the middle the picture goes: all points lie in it."""
        return float(max(2.2, np.abs(self.points).max() * 1.08))


def make(given: Given) -> Dataset:
    """The data that a page asks for."""
    shape = choice(given, "data", SHAPES)
    if shape == "csv":
        return read_table(text(given, "table", LONGEST_TABLE))
    count = whole(given, "points", 10, MOST_POINTS)
    noise = real(given, "noise", 0.0, 1.0)
    rng = random.Random(whole(given, "seed", 0, 10**9))
    places = {"moons": _moon, "circles": _circle, "spiral": _spiral}[shape]
    found, targets = [], []
    for i in range(count):
        side = i % 2
        x, y = places(side, rng.random())
        found.append([x + rng.gauss(0, noise), y + rng.gauss(0, noise)])
        targets.append(1.0 if side else -1.0)
    return Dataset(_scaled(np.array(found)), np.array(targets), ("-1", "1"))


def _moon(side: int, share: float) -> tuple[float, float]:
    angle = math.pi * share
    if side:
        return 1 - math.cos(angle), 0.5 - math.sin(angle)
    return math.cos(angle), math.sin(angle)


def _circle(side: int, share: float) -> tuple[float, float]:
    angle = 2 * math.pi * share
    radius = 0.4 if side else 1.0
    return radius * math.cos(angle), radius * math.sin(angle)


def _spiral(side: int, share: float) -> tuple[float, float]:
    radius = 0.1 + 0.9 * share
    angle = 3.2 * math.pi * share + math.pi * side
    return radius * math.cos(angle), radius * math.sin(angle)


def _scaled(points: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    spread = points.std(axis=0)
    scaled: npt.NDArray[np.float64] = (points - points.mean(axis=0)) / np.where(spread, spread, 1)
    return scaled


def read_table(table: str) -> Dataset:
    """A table of two coordinates and a kind per line; a first line of names is skipped.

    >>> from chainrule.play.datasets import read_table
    >>> read_table("x,y,kind\\n0,1,cat\\n2,3,dog\\n").kinds
    ('cat', 'dog')
    """
    rows = [row for row in csv.reader(io.StringIO(table), delimiter=_delimiter(table)) if row]
    if rows and len(rows[0]) >= 2 and _number(rows[0][0]) is None and _number(rows[0][1]) is None:
        rows = rows[1:]
    if len(rows) < 2:
        raise PlayError("the table is empty: each line is x, y, kind, as in 0.5, -1.2, red")
    if len(rows) > MOST_POINTS:
        raise PlayError(f"the table has {len(rows):,} lines; at most {MOST_POINTS} are used here")
    points, words = [], []
    for place, row in enumerate(rows, 1):
        cells = [cell.strip() for cell in row]
        if len(cells) != 3:
            raise PlayError(f"line {place} of the data has {len(cells)} cells instead of 3")
        x, y = _number(cells[0]), _number(cells[1])
        if x is None or y is None:
            raise PlayError(
                f"line {place} of the data: {row[0 if x is None else 1]!r} is no number"
            )
        points.append([x, y])
        words.append(cells[2])
    kinds = list(dict.fromkeys(words))
    if len(kinds) != 2:
        raise PlayError(f"the third cell must say which of two kinds; here are {len(kinds)}")
    first, second = sorted(kinds)
    targets = np.array([1.0 if word == second else -1.0 for word in words])
    return Dataset(_scaled(np.array(points)), targets, (first[:20], second[:20]))


def _delimiter(table: str) -> str:
    first = table.lstrip().partition("\n")[0]
    return max(",;\t", key=first.count)


def _number(cell: str) -> float | None:
    try:
        number = float(cell)
    except ValueError:
        return None
    return number if abs(number) < 1e100 else None
