"""What a terminal, or a file, shows of training while it runs.

In: notes of one thread, which records and takes steps. Out: lines, or one line that changes, which
another thread brings up to date.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from chainrule import gpt
from chainrule.cli.reporting import say
from chainrule.gpt.curve import RECENT
from chainrule.gpt.metrics import Row
from chainrule.gpt.training import BEYOND

MOMENT = 0.05  # seconds: what is shown does not change more often
STRETCH = 2.0  # seconds of steps: of these the speed is shown
LOT = 10  # steps whose mean loss is compared with that of guessing
RISEN = 3  # times the lowest loss, and ``BEYOND`` that of guessing: no run comes back from there


class Watch:
    """Tells when the loss has left any sensible range: far above that of guessing, and risen."""

    def __init__(self, vocabulary: int) -> None:
        self.guessing = math.log(vocabulary)  #: the loss of a model that knows nothing
        self._lowest = math.inf
        self._lot: list[float] = []

    def note(self, loss: float) -> float | None:
        """Take notice of a step; the mean loss of the last ones if it has left that range."""
        self._lot.append(loss)
        if len(self._lot) < LOT and self._lowest < math.inf:
            return None
        mean, self._lot = statistics.fmean(self._lot), []  # the first step is a lot of its own
        self._lowest = min(self._lowest, mean)
        return mean if mean > max(BEYOND * self.guessing, RISEN * self._lowest) else None


class Display:
    """How far training is. One thread takes notes, the other shows them."""

    def __init__(self, console: Console, run: gpt.Run) -> None:
        self.console, self.run, self.first, self.total = console, run, run.step, run.config.steps
        self.taken = 0  #: steps, since it began
        self.recorded: tuple[int, int] | None = None  #: kinds of samples, and how many there are
        self._recent: deque[float] = deque(maxlen=RECENT)
        # The step after some lot of them, and the seconds that all steps have taken until then.
        self._times: deque[tuple[int, float]] = deque([(run.step, run.seconds)])
        self._built = False
        self._watch: Watch | None = Watch(run.tokenizer.size)
        self._warning = ""  # that is to be told

    def recording(self, done: int, total: int) -> None:
        """Take notice of a kind of samples that is recorded next."""
        self.recorded = done, total

    def note(self, row: Row) -> None:
        """Take notice of a step, when all of its lot have been taken."""
        self._recent.append(row.loss)
        self.taken = row.step - self.first
        if self._watch is not None and (mean := self._watch.note(row.loss)) is not None:
            self._warning = _advice(self.run.config, mean, self._watch.guessing)
            self._watch = None  # once is enough
        now = self.run.seconds
        if now == self._times[-1][1]:
            return
        if self._built and len(self._times) > 1 and now - self._times[-2][1] < MOMENT:
            self._times.pop()
        self._times.append((self.run.step, now))
        if not self._built and len(self._times) > 2:
            self._times.popleft()  # in the first lot something may still be built
            self._built = True
        while len(self._times) > 2 and now - self._times[1][1] > STRETCH:
            self._times.popleft()

    def loss(self) -> float:
        """The mean of the last steps."""
        return statistics.fmean(tuple(self._recent))

    def speed(self) -> str:
        """The steps per second of the last stretch, of the time that went into steps.

        Of slow steps the seconds that each takes. Validations are not counted.
        """
        times = tuple(self._times)
        (first, began), (last, now) = times[0], times[-1]
        if now <= began:
            return "- steps/s"
        pace = (last - first) / (now - began)
        return f"{pace:.1f} steps/s" if pace >= 1 else f"{1 / pace:.1f} s/step"

    def warn(self) -> None:
        """Tell what has to be told."""
        text, self._warning = self._warning, ""
        if text:
            self.say(text)

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


def _advice(config: gpt.Config, loss: float, guessing: float) -> str:
    clip = "" if config.clip else " --clip 1"
    return (
        f"the loss has risen to {loss:.3g}, that of guessing is {guessing:.2f}: Ctrl-C stops; "
        f"begin again with a smaller learning rate, such as --lr {config.smaller_rate():.2g}{clip}"
    )


class Lines(Display):
    """Ten lines, for files and pipes."""

    def note(self, row: Row) -> None:
        """Print every tenth of all steps."""
        super().note(row)
        self.warn()
        if row.step * 10 // self.total > (row.step - 1) * 10 // self.total:
            text = f"step {row.step}/{self.total}  loss {self.loss():.4f}  {self.speed()}"
            say(self.console, text)

    def recording(self, done: int, total: int) -> None:
        """Say once what is coming."""
        if self.recorded is None:
            say(self.console, f"recording {total} length{'s' if total > 1 else ''} of samples")
        super().recording(done, total)


class Clock(ProgressColumn):
    """The time since it began, also when all is recorded and something is still being compiled."""

    def render(self, task: Task) -> Text:
        """The time as of now: it moves whenever the line is drawn."""
        seconds = int(task.elapsed or 0)
        return Text(f"{seconds // 60}:{seconds % 60:02}", "progress.elapsed")


class Terminal(Display):
    """A line that changes: first what is recorded, then a bar of steps."""

    def __init__(self, console: Console, run: gpt.Run) -> None:
        super().__init__(console, run)
        self._bar: Progress | None = None
        self._steps = False

    def show(self) -> None:
        """Bring the line up to date."""
        self.warn()
        if self.taken and not self._steps:
            self.close()
            self._steps = True
            self._open(
                BarColumn(bar_width=None),
                MofNCompleteColumn(),
                TextColumn("loss {task.fields[loss]}"),
                TextColumn("{task.fields[speed]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("{task.fields[now]}"),
            )
        if self._steps:
            now = "left, validating" if self.run.validating else "left"
            figures = {"loss": f"{self.loss():.4f}", "speed": self.speed(), "now": now}
            self._update(self.first + self.taken, self.total, "", **figures)
        elif self.recorded is not None:
            done, total = self.recorded
            if self._bar is None:
                self._open(TextColumn("{task.description}"), BarColumn(bar_width=None), Clock())
            text = f"recording length {min(done + 1, total)} of {total}"
            text = self.run.engine.doing or ("compiling" if done == total else text)
            self._update(done, total, text)

    def _open(self, *columns: ProgressColumn) -> None:
        self._bar = Progress(
            *columns,
            console=self.console,
            expand=True,
            refresh_per_second=5,
            transient=not self._steps,
        )
        self._bar.add_task("", total=None, loss="-", speed="", now="")

    def _update(self, done: int, total: int, text: str, **fields: Any) -> None:
        if self._bar is not None:
            task = self._bar.task_ids[0]
            self._bar.update(task, completed=done, total=total, description=text, **fields)
            self._bar.start()  # there is something to be shown now

    def close(self) -> None:
        """Leave the line as it is."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
