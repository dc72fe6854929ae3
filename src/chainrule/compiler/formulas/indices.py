"""What a call's integers mean in formulas: joined indices split, computed numbers named.

In: an ``IntegerProgram``. Out: for a gather, the integers that its index is joined from; for the
numbers that the program computes, names such as ``neg(ys)``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.capture.integers import IntegerProgram
from chainrule.compiler.capture.selection import Gather
from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.lift.program import Addresses

SHOWN = 4  # numbers that are named one by one
LONG = 40  # characters: what computes a number is not shown


@dataclass(frozen=True)
class IndexPart:
    """One of the integers that are joined to a gather's index, ``i * count + j`` for ``[i, j]``.

    ``argument`` is the only one that it depends on (-1 where there are several), ``itself`` whether
    it is that argument, which lies below ``count``.
    """

    argument: int
    itself: bool
    count: int


class Integers:
    """An integer program, read for formulas.

    ``sources``, for each node: the only argument it depends on, or -1.
    """

    def __init__(self, program: IntegerProgram) -> None:
        self.program = program
        self.first = program.arguments + len(program.constants)  # step
        nothing = -2
        self.sources = [*range(program.arguments), *[nothing] * len(program.constants)]
        for _, operands in program.steps:
            found = {self.sources[i] for i in operands} - {nothing}
            self.sources.append(-1 if len(found) > 1 else max(found, default=nothing))

    def parts(self, gather: Gather) -> tuple[IndexPart, ...]:
        """The integers that a gather's index is joined from, the outermost first."""
        return self._split(gather.index, len(gather.candidates))

    def _split(self, node: int, count: int) -> tuple[IndexPart, ...]:
        known = self.program.arguments
        name, operands = self._step(node)
        if name == "wrap":
            return self._split(operands[0], count)
        if name == "add":
            (times, scaled), (within, inner) = map(self._step, operands)
            if (times, within) == ("mul", "wrap") and scaled[1] == inner[1]:
                inside = self.program.constants[inner[1] - known]
                begins = known <= scaled[0] < self.first  # with zero
                outer = () if begins else self._split(scaled[0], count // inside)
                return *outer, *self._split(inner[0], inside)
        return (IndexPart(self.sources[node], node < known, count),)

    def _step(self, node: int) -> tuple[str, tuple[int, ...]]:
        """What computes a node; nothing for arguments and constants."""
        return self.program.steps[node - self.first] if node >= self.first else ("", ())

    def names(self, nodes: Sequence[int], integers: Sequence[Named]) -> list[Named]:
        """Names for numbers that are computed from these integers.

        Where the same is computed of every item of an array, it is an array too.
        """
        items = [(x, place) for x in integers for place in np.ndindex(x.shape)]
        words = self._words([x.name for x, _ in items])
        exact = self._words([f"{x.name}{list(place) if place else ''}" for x, place in items])
        found: list[Named] = []
        for word, group in itertools.groupby(nodes, words.__getitem__):
            mine = list(group)
            used = [self.sources[node] for node in mine]
            array = items[used[0]][0] if used[0] >= 0 else None
            if array is not None and used == [i for i, (x, _) in enumerate(items) if x is array]:
                found.append(Named(word, array.shape))
            elif len(used) > SHOWN and min(used) > -1 and used == [*range(used[0], used[-1] + 1)]:
                first = used[0] - next(i for i, (x, _) in enumerate(items) if x is array)
                found.append(Named(f"{word}[{first}:{first + len(used)}]", (len(used),)))
            else:
                found += [Named(exact[node], ()) for node in mine]
        return found

    def _draws(self, constant: int) -> str:
        """The name of what makes a generator of random numbers, or what is said of caches."""
        draws = self.program.constants[constant - self.program.arguments]
        return str(draws.make.__name__) if draws.seeded else "cached"

    def _words(self, arguments: list[str]) -> list[str]:
        """Each node as text; a long one is only said to be computed."""
        words = [*arguments]
        words += [str(c) if isinstance(c, int | float) else "table" for c in self.program.constants]
        for name, operands in self.program.steps:
            if name == "seeded":
                words.append(f"{self._draws(operands[0])}({words[operands[1]]})")
                continue
            word = f"{name}({', '.join([words[i] for i in operands[:4]])})"
            if name == "item":
                word = f"{words[operands[0]]}[{words[operands[1]]}]"
            words.append(word if len(word) <= LONG and len(operands) <= 4 else "computed")
        return words


def deciding(
    parts: Sequence[tuple[IndexPart, ...]], ids: Addresses, rows: Addresses
) -> tuple[Addresses, bool] | None:
    """The arguments that decide a coordinate of gathers, and whether it equals them.

    ``rows[k, g]`` is the coordinate where gather g has index ``ids[k]``, joined from ``parts[g]``.
    None where several integers decide it.
    """
    shapes = {tuple([part.count for part in other]) for other in parts}
    if {len(shape) for shape in shapes} == {1}:
        digits: Sequence[Addresses] = [ids]
    elif len(shapes) == 1:
        digits = np.unravel_index(ids, shapes.pop())
    else:
        return None
    for k, digit in enumerate(digits):
        mine = [other[k] for other in parts]
        _, first, inverse = np.unique(digit, return_index=True, return_inverse=True)
        if (rows == rows[first][inverse]).all() and all(part.argument >= 0 for part in mine):
            exact = bool((rows == digit[:, None]).all()) and all(part.itself for part in mine)
            return np.array([part.argument for part in mine], np.int64), exact
    return None
