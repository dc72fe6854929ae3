"""The loss curve of a run in little memory, however many steps it has.

In: the rows of its steps, one after the other. Out: what is drawn and told of them: the lowest, the
highest and the sum of each stretch of steps, the last losses, the validation losses. Of a short run
each step is a stretch of its own; whenever there are too many, each two become one.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from chainrule.gpt.metrics import Row

RECENT = 50  # single documents vary a lot: the loss told is the mean of this many steps
MOST = 8192  # stretches, a power of two: far more than a picture has pixels

#: What is kept of a stretch: its last step, where the lowest and the highest loss are, and the sum.
STRETCH = np.dtype(
    [
        ("last", "i8"),
        ("low_step", "i8"),
        ("low", "f8"),
        ("high_step", "i8"),
        ("high", "f8"),
        ("sum", "f8"),
    ]
)
Stretches = npt.NDArray[np.void]


class Curve:
    """Steps that follow each other, as far as they are drawn and told.

    >>> from chainrule import gpt
    >>> from chainrule.gpt.curve import Curve
    >>> curve = Curve(gpt.Row(step, 1 / step, 0.01) for step in range(1, 100_001))
    >>> len(curve), curve.steps[-1], len(curve.stretches()) < 10_000
    (100000, 100000, True)
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._first, self._count = 1, 0
        self.recent: deque[float] = deque(maxlen=RECENT)  #: the losses of the last steps
        self.validations: dict[int, float] = {}  #: by their steps; of very many, every other one
        self.best: tuple[int, float] | None = None  #: the step of the lowest of all, and that
        self._each = 1  # steps in a stretch
        self._complete: Stretches = np.empty(0, STRETCH)
        self._pending, self._full = array("d"), MOST // 2  # the losses after these; so many at most
        self.extend(rows)

    def extend(self, rows: Iterable[Row]) -> None:
        """Add rows, of the steps that come next."""
        for row in rows:
            if not self._count:
                self._first = row.step
            elif row.step != self._first + self._count:
                raise ValueError(f"step {row.step} does not follow step {self.steps[-1]}")
            self._count += 1
            self._pending.append(row.loss)
            self.recent.append(row.loss)
            if row.validation_loss is not None:
                self.validated(row.step, row.validation_loss)
            if len(self._pending) == self._full:
                self._reduce()

    def validated(self, step: int, loss: float) -> None:
        """The last step has this validation loss."""
        self.validations[step] = loss
        if self.best is None or loss < self.best[1]:
            self.best = step, loss
        if len(self.validations) > MOST:
            self.validations = dict(list(self.validations.items())[::-2][::-1])

    def _reduce(self) -> None:
        """Make stretches of what is pending; all numbers are powers of two, so nothing is left."""
        self._complete = self.stretches()
        del self._pending[:]
        if len(self._complete) == MOST:
            self._complete = _paired(self._complete)
            self._each *= 2
            self._full = max(self._full, self._each)

    def stretches(self) -> Stretches:
        """All of them in their order; the last one may be shorter."""
        losses, step = np.array(self._pending), self._first + self._count - len(self._pending)
        whole = len(losses) // self._each * self._each
        parts = [self._complete, _reduced(losses[:whole].reshape(-1, self._each), step)]
        if whole < len(losses):
            parts.append(_reduced(losses[whole:].reshape(1, -1), step + whole))
        return np.concatenate(parts)

    @property
    def steps(self) -> range:
        """The steps that it is of."""
        return range(self._first, self._first + self._count)

    def __len__(self) -> int:
        return self._count


def _reduced(losses: npt.NDArray[np.float64], first: int) -> Stretches:
    """One stretch for each row of losses; the first of them is that of step ``first``."""
    count, each = losses.shape
    made = np.empty(count, STRETCH)
    rows, begins = np.arange(count), first + each * np.arange(count)
    made["last"], made["sum"] = begins + each - 1, losses.sum(axis=1)
    for name, places in (("low", losses.argmin(axis=1)), ("high", losses.argmax(axis=1))):
        made[name], made[f"{name}_step"] = losses[rows, places], begins + places
    return made


def _paired(stretches: Stretches) -> Stretches:
    """Each two as one."""
    one, other = stretches[::2], stretches[1::2]
    made = other.copy()
    made["sum"] += one["sum"]
    for name, first in (
        ("low", one["low"] <= other["low"]),
        ("high", one["high"] >= other["high"]),
    ):
        for field in (name, f"{name}_step"):
            made[field] = np.where(first, one[field], other[field])
    return made
