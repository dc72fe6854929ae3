"""What the integers of a recording select: gathers and numbers.

In: an integer program, the operands that it selects, and the numbers that are computed by it. Out:
for the integers of a call, these operands and numbers, or that the recording is not for them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.draws import Draws
from chainrule.compiler.capture.integer_code import ANOTHER_PATH, BEYOND_BITS, decider
from chainrule.compiler.capture.integers import EXACT, IntegerProgram

Ints = npt.NDArray[np.int32]
EACH_PLACE, EACH_ITEM = 32, 240  # bytes, of which a decider's row has 24 and 40


@dataclass(frozen=True, eq=False, slots=True)
class Gather:
    """An operand that an integer selects: ``candidates[index]``, counted as Python does."""

    candidates: Ints  # positions in the recording
    index: int  # a node of the integer program

    def __repr__(self) -> str:
        return f"Gather(item i{self.index} of {len(self.candidates)})"


@dataclass(frozen=True, eq=False)
class Selection:
    """What the integers of a call decide in a recording.

    ``places[k]`` (3 * instruction + operand) is what gather ``owners[k]`` selects. ``numbers`` are
    the nodes of the integer program that are the recording's last inputs.
    """

    program: IntegerProgram = field(default_factory=lambda: IntegerProgram(0, (), (), ()))
    gathers: tuple[Gather, ...] = ()
    places: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    owners: Ints = field(default_factory=lambda: np.zeros(0, np.int32))
    numbers: tuple[int, ...] = ()

    def __str__(self) -> str:
        lines = [str(self.program)]
        lines += [
            f"gather {k}: item i{gather.index} of {len(gather.candidates)}"
            for k, gather in enumerate(self.gathers)
        ]
        return "\n".join(lines)

    def summary(self) -> str:
        """What integers do here, in a few words."""
        words = [f"{len(self.places)} operands selected by integers"]
        if self.program.steps:
            words.append(f"{len(self.program.steps)} steps computed from integers")
        static = sum(not g.truth for g in self.program.guards)
        if self.program.guards:
            words.append(f"{len(self.program.guards)} guards on integers")
        if static:
            words.append(f"{static} of them static")
        return ", ".join(words)

    @functools.cached_property
    def called(self) -> int:
        """How many functions of Python's a call of the recording has to call."""
        return sum(x.called for x in self.program.constants if isinstance(x, Draws))

    @functools.cached_property
    def nbytes(self) -> int:
        """Its memory, and that of its decider: rows in C, and Python objects."""
        tables = {id(g.candidates): g.candidates.nbytes for g in self.gathers}
        items = len(self.gathers) + len(self.program.steps) + len(self.program.guards)
        return EACH_PLACE * len(self.places) + EACH_ITEM * items + 3 * sum(tables.values())

    @property
    def slots(self) -> list[int]:
        """For each operand in ``places``: the last argument that its index depends on, or -1."""
        last = self.program.last_arguments()
        indices = [last[g.index] for g in self.gathers]
        return [indices[k] for k in self.owners.tolist()]

    @property
    def born(self) -> list[int]:
        """For each argument, then each number: the last argument that it depends on, or -1."""
        last = self.program.last_arguments()
        return [*range(self.program.arguments), *[last[node] for node in self.numbers]]

    def rows(self, operands: Ints) -> list[Ints]:
        """What may stand in ``places``: what was recorded, then every candidate."""
        recorded = operands.ravel()[self.places]
        most = max([len(g.candidates) for g in self.gathers], default=0)
        table = np.empty((most, len(self.gathers)), np.int32)
        for k, gather in enumerate(self.gathers):
            count = len(gather.candidates)
            table[:count, k], table[count:, k] = gather.candidates, gather.candidates[-1]
        return [recorded, *table[:, self.owners]]

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Nodes that must be the index of one of so many items."""
        return [(gather.index, len(gather.candidates)) for gather in self.gathers]

    @functools.cached_property
    def decider(self) -> Any:
        """What tells in C which operands are in ``places``, and the numbers; None: it cannot."""
        indices = [(gather.index, gather.candidates) for gather in self.gathers]
        return decider(self.program, indices, self.numbers, self.ranges, self.owners)

    def forget_decider(self) -> None:
        """Free that, until it is asked again."""
        self.__dict__.pop("decider", None)

    def decide(self, integers: Sequence[int]) -> tuple[Ints, list[float]] | None:
        """The operands in ``places`` and the numbers for these integers; None: another path."""
        if self.decider is not None:
            selected, computed = np.empty(len(self.places), np.int64), np.empty(len(self.numbers))
            found = self.decider.decide(integers, selected, computed)
            if found != BEYOND_BITS:
                if found == ANOTHER_PATH:
                    return None
                return selected.astype(np.int32), computed.tolist()
        values = self.program.evaluate(integers)
        if values is None:
            return None
        try:
            chosen = [g.candidates[int(values[g.index])] for g in self.gathers]
        except (IndexError, OverflowError, ValueError):
            return None
        numbers = []
        for node in self.numbers:
            number = values[node]
            if not isinstance(number, (int, float)):
                return None
            if type(number) is not float and not -EXACT <= number <= EXACT:
                return None
            numbers.append(float(number))
        return np.array(chosen, np.int32)[self.owners], numbers
