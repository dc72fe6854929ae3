"""Pieces of source: an expression as text, and the axes of the array that it gives.

In: terms over some axes each. Out: the same over common axes, transposed and with ``None`` where an
axis is missing, in brackets where their context binds tighter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from chainrule.compiler.formulas.notation import Axis

SUM, PRODUCT, POWER, ATOM = range(4)  # how tightly an expression binds


Places = npt.NDArray[np.int64]


class Untranslatable(Exception):
    """A program that has no array source, and why."""


@dataclass(frozen=True)
class Term:
    """An expression: its text, the axes of its array, how tightly it binds.

    ``zero``: the ragged axes beyond whose ends it is 0; beyond the ends of others stands anything,
    as long as it is finite.
    """

    code: str
    axes: tuple[Axis, ...] = ()
    level: int = ATOM
    zero: frozenset[Axis] = frozenset()
    plain: bool = False  # a number of Python's
    unsplit: str = ""  # where the text reshapes an array: that array,
    splits: tuple[tuple[Axis, ...], ...] = ()  # and what became of its dimensions

    def bracketed(self, level: int) -> str:
        """Its text, where something that binds so tightly is needed."""
        return f"({self.code})" if self.level < level else self.code

    @property
    def ragged(self) -> list[Axis]:
        """Its ragged axes."""
        return [axis for axis in self.axes if axis.length is not None]

    def ordered(self, order: Sequence[Axis]) -> Term:
        """With its axes in this order."""
        axes = tuple([axis for axis in order if axis in self.axes])
        if axes == self.axes:
            return self
        turns = tuple([self.axes.index(axis) for axis in axes])
        word = "T" if len(turns) == 2 else f"transpose{turns}"
        return replace(self, code=f"{self.bracketed(ATOM)}.{word}", axes=axes, level=ATOM)

    def aligned(self, order: Sequence[Axis], level: int = SUM) -> str:
        """Its text where it meets arrays over all of these axes."""
        term = self.ordered(order)
        if not term.axes:
            return term.bracketed(level)
        first = list(order).index(term.axes[0])
        marks = [":" if axis in term.axes else "None" for axis in order[first:]]
        if "None" not in marks:
            return term.bracketed(level)
        if marks[-1] == "None" and len(term.axes) > 1:  # [..., None] where these come last
            count = len(marks) - 1 - max(k for k, mark in enumerate(marks) if mark == ":")
            if marks.count("None") == count:
                marks = ["...", *["None"] * count]
        while marks[-1] == ":":
            marks.pop()
        return f"{term.bracketed(ATOM)}[{', '.join(marks)}]"


def number_code(x: float) -> str:
    """A number that Python reads back exactly."""
    if x != x:
        return 'float("nan")'
    if x in (float("inf"), float("-inf")):
        return f'float("{x}")'
    return f"{x:.1f}" if x == int(x) and abs(x) < 1e15 else repr(float(x))


def indented(block: str) -> str:
    """A block, one level further in."""
    return "\n".join("    " + line if line else line for line in block.splitlines())
