"""What a terminal, or a file, shows of training while it runs.

In: notes of one thread, which records and takes steps. Out: lines, or one line that changes, which
another thread brings up to date.
"""

from __future__ import annotations

import statistics
import time
from collections import deque
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from chainrule import gpt
from chainrule.cli.reporting import say
from chainrule.gpt.metrics import Row

MOMENT = 0.05  # seconds: what is shown does not change more often
STRETCH = 2.0  # seconds: of these the speed is shown
SMOOTH = 50  # single documents vary a lot: the loss shown is the mean of this many steps


class Display:
    """How far training is. One thread takes notes, the other shows them."""

    def __init__(self, console: Console, run: gpt.Run) -> None:
        self.console, self.first, self.total = console, run.step, run.config.steps
        self.engine = run.engine
        self.taken = 0  #: steps, since it began
        self.recorded: tuple[int, int] | None = None  #: kinds of samples, and how many there are
        self._began = time.perf_counter()  # with the steps, when all is recorded
        self._recent: deque[float] = deque(maxlen=SMOOTH)
        # Compiled steps come many at a time: one point for each such lot.
        self._times: deque[tuple[int, float]] = deque()
        self._before = "-"  # the speed before a validation

    def recording(self, done: int, total: int) -> None:
        """Take notice of a kind of samples that is recorded next."""
        self.recorded, self._began = (done, total), time.perf_counter()

    def note(self, row: Row) -> None:
        """Take notice of a step."""
        now = time.perf_counter()
        self._recent.append(row.loss)
        if not self._times:
            self._times.append((self.first, self._began))
        if row.validation_loss is not None:  # which took time, but no steps
            self._before = self.speed()
            self._times.clear()
            self._times.append((row.step, now))
        elif len(self._times) > 1 and now - self._times[-2][1] < MOMENT:
            self._times[-1] = (row.step, now)
        else:
            self._times.append((row.step, now))
            while len(self._times) > 2 and now - self._times[1][1] > STRETCH:
                self._times.popleft()
        self.taken = row.step - self.first

    def loss(self) -> float:
        """The mean of the last steps."""
        return statistics.fmean(tuple(self._recent))

    def speed(self) -> str:
        """The steps per second of the last stretch."""
        times = tuple(self._times)
        if len(times) < 2:
            return self._before
        (first, began), (last, now) = times[0], times[-1]
        return f"{(last - first) / max(now - began, 1e-9):.1f}"

    def say(self, text: str) -> None:
        """Print a line."""
        say(self.console, text)

    def show(self) -> None:
        """Bring what is shown up to date."""

    def close(self) -> None:
        """Show nothing more."""

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *exception: object) -> None:
        self.show()
        self.close()


class Lines(Display):
    """Ten lines, for files and pipes."""

    def note(self, row: Row) -> None:
        """Print every tenth of all steps."""
        super().note(row)
        if row.step * 10 // self.total > (row.step - 1) * 10 // self.total:
            speed = self.speed()
            text = f"step {row.step}/{self.total}  loss {self.loss():.4f}  {speed} steps/s"
            say(self.console, text)

    def recording(self, done: int, total: int) -> None:
        """Say once what is coming."""
        if self.recorded is None:
            say(self.console, f"recording {total} length{'s' if total > 1 else ''} of samples")
        super().recording(done, total)


class Terminal(Display):
    """A line that changes: first what is recorded, then a bar of steps."""

    def __init__(self, console: Console, run: gpt.Run) -> None:
        super().__init__(console, run)
        self._bar: Progress | None = None
        self._steps = False

    def show(self) -> None:
        """Bring the line up to date."""
        if self.taken and not self._steps:
            self.close()
            self._steps = True
            self._open(
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]}"),
                TextColumn("{task.fields[speed]} steps/s"),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
            )
        if self._steps:
            figures = {"loss": f"{self.loss():.4f}", "speed": self.speed()}
            self._update(self.first + self.taken, self.total, "", **figures)
        elif self.recorded is not None:
            done, total = self.recorded
            if self._bar is None:
                seconds = TimeElapsedColumn()
                self._open(TextColumn("{task.description}"), BarColumn(bar_width=None), seconds)
            text = f"recording length {min(done + 1, total)} of {total}"
            text = self.engine.doing or ("compiling" if done == total else text)
            self._update(done, total, text)

    def _open(self, *columns: ProgressColumn) -> None:
        self._bar = Progress(
            *columns,
            console=self.console,
            expand=True,
            refresh_per_second=5,
            transient=not self._steps,
        )
        self._bar.start()
        self._bar.add_task("", total=None, loss="-", speed="-")

    def _update(self, done: int, total: int, text: str, **fields: Any) -> None:
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=done, total=total, description=text, **fields)

    def close(self) -> None:
        """Leave the line as it is."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
