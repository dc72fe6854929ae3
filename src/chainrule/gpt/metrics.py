"""metrics.csv: one line per step, written as training goes, cut back when it resumes.

A killed run may leave lines beyond its last checkpoint, and a torn one at the end; both go.
"""

from __future__ import annotations

import csv
import math
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, overload

from chainrule.files import append_to, write_atomically
from chainrule.gpt.errors import GPTError

FILE = "metrics.csv"
COLUMNS = ("step", "loss", "learning_rate", "validation_loss")


@dataclass(frozen=True)
class Row:
    """What is known after a step; the validation loss only where it was measured.

    >>> from chainrule import gpt
    >>> gpt.Row(step=1, loss=3.25, learning_rate=0.01).line()
    '1,3.25,0.01,\\n'
    """

    step: int
    loss: float
    learning_rate: float
    validation_loss: float | None = None

    def line(self) -> str:
        """The row as a line of the file, numbers to the last bit."""
        validation = "" if self.validation_loss is None else repr(self.validation_loss)
        return f"{self.step},{self.loss!r},{self.learning_rate!r},{validation}\n"


class Rows(Sequence[Row]):
    """The rows of steps that follow each other, in little memory: runs take millions of steps.

    >>> from chainrule import gpt
    >>> rows = gpt.train(gpt.Run.start(["ada"], gpt.Config(width=4, heads=1, block=4, steps=3)))
    >>> len(rows), rows[-1].step, len(rows.losses)
    (3, 3, 3)
    """

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._first = 1
        #: the numbers of all rows, and the validation losses by their steps
        self.losses, self.rates = array("d"), array("d")
        self.validations: dict[int, float] = {}
        self.extend(rows)

    def extend(self, rows: Iterable[Row]) -> None:
        """Add rows, of the steps that come next."""
        for row in rows:
            if not self.losses:
                self._first = row.step
            elif row.step != self._first + len(self):
                raise ValueError(f"step {row.step} does not follow step {self.steps[-1]}")
            self.losses.append(row.loss)
            self.rates.append(row.learning_rate)
            if row.validation_loss is not None:
                self.validations[row.step] = row.validation_loss

    @property
    def steps(self) -> range:
        """The steps that they are of."""
        return range(self._first, self._first + len(self))

    def __len__(self) -> int:
        return len(self.losses)

    @overload
    def __getitem__(self, k: int) -> Row: ...

    @overload
    def __getitem__(self, k: slice) -> list[Row]: ...

    def __getitem__(self, k: int | slice) -> Any:
        if isinstance(k, slice):
            return [self[i] for i in range(*k.indices(len(self)))]
        step = self.steps[k]
        return Row(step, self.losses[k], self.rates[k], self.validations.get(step))

    def __iter__(self) -> Iterator[Row]:
        for step, loss, rate in zip(self.steps, self.losses, self.rates, strict=True):
            yield Row(step, loss, rate, self.validations.get(step))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<rows of {len(self)} steps>"


def _row(cells: list[str]) -> Row | None:
    try:
        step, loss, rate, validation = cells
        row = Row(int(step), float(loss), float(rate), float(validation) if validation else None)
    except ValueError:
        return None
    return row if math.isfinite(row.loss) else None


def rows_of(directory: str | Path, last: int | None = None) -> Iterator[Row]:
    """The rows of a run's metrics.csv in order of steps, up to the first that makes no sense.

    They are read one at a time; those after step ``last`` are not.
    """
    path, before = Path(directory) / FILE, None
    try:
        with open(path, encoding="utf-8", newline="") as file:
            # A killed run may have torn its last line.
            lines = csv.reader(line for line in file if line.endswith("\n"))
            if tuple(next(lines, ())) != COLUMNS:
                raise GPTError(f"{str(path)!r} is not a metrics file: its first line is another")
            for cells in lines:
                row = _row(cells)
                if row is None or before not in (None, row.step - 1):
                    break
                if last is not None and row.step > last:
                    break
                yield row
                before = row.step
    except (FileNotFoundError, NotADirectoryError):
        raise GPTError(f"there is no {FILE} in {str(directory)!r}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise GPTError(f"cannot read {str(path)!r}: {error}") from None


def read(directory: str | Path) -> Rows:
    """The rows of a run's metrics.csv, as far as they make sense."""
    return Rows(rows_of(directory))


class Writer:
    """Appends rows; ``flush`` puts them on the disk before the checkpoint that counts on them."""

    def __init__(self, directory: Path, rows: Iterable[Row] = ()) -> None:
        path = directory / FILE
        write_atomically(path, chain([",".join(COLUMNS) + "\n"], (row.line() for row in rows)))
        self._file = append_to(path)

    def append(self, rows: Iterable[Row]) -> None:
        """Add rows."""
        self._file.write("".join([row.line() for row in rows]))

    def flush(self) -> None:
        """Wait until every row is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write what is left."""
        self._file.close()
