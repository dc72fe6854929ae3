"""Rows of a walk that are data: machine code reads them, and every call has its own.

In: the columns of an instruction in a long call and in a shorter one. Out: a ``RowTable``: the
loops that are the same in both, and what they stand in: rows, of which each call has a table in N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.graph import NotLiftable
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.lift.rows import common_space, points_of, rows_of
from chainrule.compiler.lift.strides import IterationSpace, StridedLoop


def kinds_of(columns: Sequence[Addresses], shared: int) -> Addresses:
    """Per point: a number for which of its columns are numbers that all samples share."""
    bits = [(c < shared).astype(np.int64) << n for n, c in enumerate(columns)]
    found: Addresses = np.sum(bits, axis=0)
    return found


@dataclass(eq=False)
class RowTable:
    """The points of one kind (see ``kinds_of``) of an instruction, in rows that are data."""

    kind: int
    own: int  # where the numbers of each sample's own begin
    columns: int
    space: IterationSpace  # of the longer call
    examples: tuple[Addresses, Addresses]  # the rows of the shorter call, and of the longer one
    #: columns of which code relies on it that no two rows, or points of their loops, are the same
    once: set[int] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        kind: int,
        own: int,
        longer: Sequence[Addresses],
        shorter: Sequence[Addresses],
        merge: bool,
    ) -> RowTable:
        """That of two calls; see ``common_space`` for ``merge``."""
        both = [_local(kind, own, columns) for columns in (shorter, longer)]
        if not all(len(columns[0]) for columns in both):
            raise NotLiftable("another length reads something else")
        space = common_space(both[0], both[1], merge)
        return cls(
            kind, own, len(longer), space, (rows_of(space, both[0]), rows_of(space, both[1]))
        )

    @property
    def capacity(self) -> int:
        """Rows that there is room for."""
        return max(map(len, self.examples))

    @property
    def longest(self) -> int:
        """How long a run may be."""
        return max(int(rows[:, 0].max()) for rows in self.examples)

    def relies_on(self, column: int) -> bool:
        """Whether both calls come to each address of a column once; then all others have to."""
        if not all(self.comes_once(column, rows) for rows in self.examples):
            return False
        self.once.add(column)
        return True

    @property
    def shared(self) -> list[bool]:
        """Per column: whether it has numbers that all samples share."""
        return [bool(self.kind >> n & 1) for n in range(self.columns)]

    @property
    def size(self) -> int:
        """How many numbers it takes in N: how many rows there are, and the rows."""
        return 1 + self.capacity * (1 + self.columns)

    def rows(self, columns: Sequence[Addresses]) -> Addresses:
        """The rows of a call; NotLiftable where the code does not walk so."""
        mine = _local(self.kind, self.own, columns)
        rows = rows_of(self.space, mine)
        if not self.has_room(rows) or not np.array_equal(points_of(self.space, rows), mine):
            raise NotLiftable("another length goes another way")
        return rows

    def has_room(self, rows: Addresses) -> bool:
        """Whether the code can walk such rows."""
        fits = len(rows) <= self.capacity and not (rows[:, 0] > self.longest).any()
        return fits and all(self.comes_once(column, rows) for column in self.once)

    def comes_once(self, column: int, rows: Addresses) -> bool:
        """Whether no address of a column is that of two points, but for those of sums."""
        space = self.space

        def moving(loops: Sequence[StridedLoop]) -> tuple[StridedLoop, ...]:
            return tuple(
                [StridedLoop(x.count, (x.strides[column],)) for x in loops if x.strides[column]]
            )

        run = (space.run[column],)
        lengths = space.lengths if run[0] else None
        alone = IterationSpace(space.bases, lengths, run, moving(space.loops), moving(space.middle))
        (found,) = points_of(alone, rows[:, [0, 1 + column]])
        return len(np.unique(found)) == len(found)


def _local(kind: int, own: int, columns: Sequence[Addresses]) -> list[npt.NDArray[Any]]:
    """The points of a kind, with addresses as machine code counts them."""
    chosen = kinds_of(columns, own) == kind
    return [c[chosen] - (0 if kind >> n & 1 else own) for n, c in enumerate(columns)]
