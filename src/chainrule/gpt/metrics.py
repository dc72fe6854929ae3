"""metrics.csv: one line per step, written as training goes, cut back when it resumes.

A killed run may leave lines beyond its last checkpoint, and a torn one at the end; both go.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

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


def _row(cells: list[str]) -> Row | None:
    try:
        step, loss, rate, validation = cells
        row = Row(int(step), float(loss), float(rate), float(validation) if validation else None)
    except ValueError:
        return None
    return row if math.isfinite(row.loss) else None


def read(directory: str | Path) -> list[Row]:
    """The rows of a run's metrics.csv, in order of steps, up to the first that makes no sense."""
    path = Path(directory) / FILE
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise GPTError(f"there is no {FILE} in {str(directory)!r}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise GPTError(f"cannot read {str(path)!r}: {error}") from None
    complete = text[: text.rfind("\n") + 1]  # a killed run may have torn its last line
    lines = list(csv.reader(io.StringIO(complete)))
    if not lines or tuple(lines[0]) != COLUMNS:
        raise GPTError(f"{str(path)!r} is not a metrics file: its first line is another")
    rows: list[Row] = []
    for cells in lines[1:]:
        row = _row(cells)
        if row is None or (rows and row.step != rows[-1].step + 1):
            break
        rows.append(row)
    return rows


class Writer:
    """Appends rows; ``flush`` puts them on the disk before the checkpoint that counts on them."""

    def __init__(self, directory: Path, rows: Iterable[Row] = ()) -> None:
        path = directory / FILE
        lines = [",".join(COLUMNS) + "\n", *(row.line() for row in rows)]
        write_atomically(path, "".join(lines))
        self._file = append_to(path)

    def append(self, row: Row) -> None:
        """Add one row."""
        self._file.write(row.line())

    def flush(self) -> None:
        """Wait until every row is on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write what is left."""
        self._file.close()
