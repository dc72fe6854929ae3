"""Derivatives by finite differences that know how good they are.

A function of one number comes in, undefined (None) at some points perhaps; out comes its slope at
one point with an uncertainty, or None where a corner or a jump leaves none, or where the function
changes faster than neighbouring floats can show.
Nothing here knows about Values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

# Steps are powers of two: they leave no rounding error of their own in most x + h.
_COARSE = 2.0**-6
_LEVELS = 12
_FINE = 2.0**-22
_ROUNDING = 2.0**-50  # of one difference, in units of the function's size over the step


class Line:
    """A function along a line through ``x``: its value by the offset, None where undefined.

    ``noise`` is how far a value may be off by rounding inside the function.
    """

    def __init__(
        self, x: float, at_x: float, at: Callable[[float], float | None], noise: float
    ) -> None:
        self.x = x
        self.at_x = at_x
        self.noise = noise
        self._at = at
        self._known: dict[float, float | None] = {0.0: at_x}

    @property
    def typical(self) -> float:
        """A slope of ordinary size, next to which a tiny one is as good as 0."""
        return abs(self.at_x) / max(abs(self.x), 1.0)

    @cached_property
    def fine(self) -> float | None:
        """A tiny step over which the function behaves as one with a slope does, on some side.

        A step that is tiny for ``x`` can be huge for the function: sin(1e10) turns many times
        within a millionth of its argument. None where even neighbouring floats are too far apart.
        """
        step = first = _FINE * (abs(self.x) or 1.0)
        while step >= max(4 * math.ulp(self.x), first * 2.0**-40):
            if any(self._settles_down(step, side) for side in (0, 1, -1)):
                return step
            step /= 16
        return None

    def _settles_down(self, step: float, side: int) -> bool:
        """Whether the slopes over three ever smaller steps agree, or vanish as at a minimum."""
        found = [self.slope(wide * step, side) for wide in (16, 4, 1)]
        wide, middle, fine = (f or (math.nan, 0.0) for f in found)
        error = wide[1] + middle[1] + fine[1]
        spread = max(abs(wide[0] - fine[0]), abs(middle[0] - fine[0]))
        ends = [self.at(16 * step * sign) or 0.0 for sign in (-1, 1)]
        if spread and self.noise > 1e-3 * max(abs(self.at_x), *map(abs, ends)):
            return False  # rounding hides whatever there is
        if spread <= 4 * error + 1e-2 * abs(fine[0]):
            return True
        # x**3 at 0: the slopes shrink with the step, every time by more than chance would have it
        return abs(middle[0]) < 0.3 * abs(wide[0]) and abs(fine[0]) < 0.3 * abs(middle[0])

    def at(self, offset: float) -> float | None:
        """The value at ``x + offset``."""
        if offset not in self._known:
            self._known[offset] = self._at(offset)
        return self._known[offset]

    def slope(self, step: float, side: int) -> tuple[float, float] | None:
        """The finite difference over ``step`` and its rounding error; ``side`` 0 is central."""
        right, left = step * (side >= 0), -step * (side <= 0)
        above, below = self.at(right), self.at(left)
        width = (self.x + right) - (self.x + left)
        if above is None or below is None or width == 0.0:
            return None
        size = max(abs(above), abs(below))
        return (above - below) / width, (_ROUNDING * size + self.noise) / width

    def gap(self, step: float) -> tuple[float, float] | None:
        """How far the slopes of the two sides are apart, and the rounding error of that."""
        above, below = self.slope(step, 1), self.slope(step, -1)
        if above is None or below is None:
            return None
        return abs(above[0] - below[0]), above[1] + below[1]


@dataclass(frozen=True)
class Estimate:
    """A derivative by differences, and how far it may be off."""

    slope: float
    uncertainty: float
    side: int = 0

    def tells_little(self, backward: float) -> bool:
        """Whether even a quite different ``backward`` would agree."""
        return self.uncertainty > 0.1 * max(abs(backward), abs(self.slope))

    def relative_error(self, backward: float, tolerance: float) -> float:
        """At most ``tolerance`` if ``backward`` is within it, or within the uncertainty."""
        if not math.isfinite(backward):
            return math.inf
        error = abs(backward - self.slope)
        size = max(abs(backward), abs(self.slope), self.uncertainty / tolerance)
        return error / size if error else 0.0


def _extrapolated(line: Line, start: float, side: int) -> Iterator[Estimate]:
    """Ridders' method: halve the step, and extrapolate from all steps so far to a step of 0.

    A central difference is off by even powers of the step, a one-sided one by all powers. How much
    the last extrapolation changed is how far the result may be off.
    """
    base = 2.0 if side else 4.0
    previous: list[float] = []
    for level in range(_LEVELS):
        found = line.slope(start * 2.0**-level, side)
        if found is None:
            previous = []
            continue
        slopes, rounding = [found[0]], found[1]
        best = None
        for k, older in enumerate(previous[:6]):
            slope = slopes[k] + (slopes[k] - older) / (base ** (k + 1) - 1)
            error = 4 * max(abs(slope - slopes[k]), abs(slope - older)) + rounding
            slopes.append(slope)
            if best is None or error < best.uncertainty:
                best = Estimate(slope, error, side)
        previous = slopes
        if best is not None:
            yield best


def best_estimate(line: Line, backward: float, tolerance: float) -> Estimate | None:
    """The best estimate of the slope; the search ends early once one settles the matter."""
    starts = {max(abs(line.x), 1.0), min(abs(line.x) or 2.0**-16, 1.0)}
    if line.fine is not None and line.fine < _FINE * (abs(line.x) or 1.0):
        starts = {16 * line.fine / _COARSE}
    for side in (0, 1, -1):
        # The slope over a tiny step is rough, but it cannot miss what is only near x.
        rough = _rough(line, side)
        estimates = []
        for start in sorted(starts, reverse=True):
            for estimate in _extrapolated(line, _COARSE * start, side):
                if rough is not None and not _consistent(estimate, rough):
                    continue
                if _settles(estimate, backward, tolerance, line.typical):
                    return estimate
                estimates.append(estimate)
        if rough is not None:
            estimates.append(rough)
        if estimates:
            return min(estimates, key=lambda estimate: estimate.uncertainty)
    return None


def _rough(line: Line, side: int) -> Estimate | None:
    step = line.fine or _FINE * (abs(line.x) or 1.0)
    wide, fine = line.slope(16 * step, side), line.slope(step, side)
    if wide is None or fine is None:
        return None
    return Estimate(fine[0], 2 * abs(fine[0] - wide[0]) + 8 * fine[1] + 1e-3 * abs(fine[0]), side)


def _consistent(one: Estimate, other: Estimate) -> bool:
    return abs(one.slope - other.slope) <= one.uncertainty + other.uncertainty


def _settles(estimate: Estimate, backward: float, tolerance: float, typical: float) -> bool:
    """Whether ``backward`` agrees with an estimate that is itself good enough to tell."""
    size = max(abs(backward), abs(estimate.slope), 1e-3 * typical)
    agrees = abs(backward - estimate.slope) <= 0.5 * tolerance * size
    return agrees and estimate.uncertainty <= 0.5 * tolerance * size


def near_a_corner(line: Line) -> float | None:
    """The step at which the two sides keep their distance; None at a smooth point: it shrinks."""
    step = _steps(line)[-1]
    wide, fine = line.gap(16 * step), line.gap(step)
    if wide is None or fine is None or fine[0] <= 64 * fine[1]:
        return None
    return step if 0.5 * wide[0] < fine[0] < 2.0 * wide[0] else None


def wrong_by_a_corner(line: Line, backward: float, estimate: Estimate) -> float | None:
    """The step at which there is no derivative to compare with: a corner, a jump or a pole."""
    if not math.isfinite(backward):
        return _grows(line, estimate.side)
    size = max(abs(backward), abs(estimate.slope))
    for step in _steps(line):
        wide, fine = line.gap(16 * step), line.gap(step)
        if wide is None or fine is None or 64 * fine[1] > 0.1 * size:
            continue  # so close that rounding hides everything
        return step if fine[0] > 64 * fine[1] and fine[0] > 0.5 * wide[0] else None
    return None


def _steps(line: Line) -> list[float]:
    """Tiny steps at which to look for a corner, the smaller first."""
    usual = _FINE * (abs(line.x) or 1.0)
    if line.fine is not None and line.fine < usual:
        return [line.fine]
    return sorted({usual, _FINE * max(abs(line.x), 1.0)})


def _grows(line: Line, side: int) -> float | None:
    """The step at which slopes still grow: they have no limit, as for a square root at 0."""
    step = _FINE * (abs(line.x) or 1.0)
    wide, fine = line.slope(16 * step, side), line.slope(step, side)
    if wide is None or fine is None:
        return None
    return step if abs(fine[0]) > 1.1 * abs(wide[0]) else None


def telling_step(line: Line, backward: float, estimate: Estimate) -> float:
    """A step over which the plain difference already shows by how much ``backward`` is wrong."""
    steps = [2.0**-14 * scale for scale in (max(abs(line.x), 1.0), abs(line.x) or 1.0)]
    if line.fine is not None and line.fine < _FINE * (abs(line.x) or 1.0):
        steps = [line.fine]
    for step in steps:
        found = line.slope(step, estimate.side)
        if found is not None:
            apart = abs(found[0] - estimate.slope)
            if apart <= 0.1 * abs(backward - estimate.slope):
                return step
    return steps[-1]
