"""``chainrule train`` killed at random moments, and resumed: the same end, bit for bit.

A run is killed, resumed and killed again until it ends by itself. Then its checkpoint, its metrics
(every loss) and its picture must be the bytes of a run that nobody disturbed.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from trials import Outcome

from chainrule import gpt
from chainrule.cli import app
from chainrule.files import LOCK
from chainrule.gpt import checkpoints

COUNT = 285
THINGS = "kills"
FILES = (checkpoints.FILE, "metrics.csv", "loss.svg")
WORDS = ["abca", "bccab", "cab", "dabcad", "acdb", "bb", "d", "abab", "dcba", "aab"]
_SMALL = "--width 4 --heads 2 --block 6 --seed 5 --samples 0".split()
#: what distinguishes the runs: who computes, and how often they save
RUNS = {
    "eager": ["--engine", "eager", "--steps", "120", "--save-every", "3"],
    "compiled": ["--engine", "compiled", "--steps", "400", "--save-every", "7"],
    "float32": [
        "--engine",
        "compiled",
        "--dtype",
        "float32",
        "--steps",
        "400",
        "--save-every",
        "5",
    ],
    "dropout": [
        "--engine",
        "compiled",
        "--dropout",
        "0.2",
        "--batch",
        "3",
        "--steps",
        "400",
        "--save-every",
        "6",
    ],
}


class Life:
    """A process that runs ``chainrule train``, until it ends or is killed.

    Most are forked from this one, which has imported everything: that takes less time than a new
    interpreter, and the kills fall into training. The others are the command as users start it.
    """

    def __init__(self, log: Path, *arguments: object, fork: bool) -> None:
        self.log = log
        self.status: int | None = None
        self.process: subprocess.Popen[bytes] | None = None
        words = ["train", *map(str, arguments)]
        with log.open("wb") as output:
            if fork:
                self.pid = os.fork()
                if self.pid == 0:
                    _run_here(words, output.fileno())
            else:
                command = [sys.executable, "-m", "chainrule", *words]
                self.process = subprocess.Popen(command, stdout=output, stderr=output)
                self.pid = self.process.pid

    def ended(self, wait: bool = False) -> bool:
        """Whether the process has ended, after which it has a status."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                if self.process is not None:
                    self.process.returncode = self.status  # it need not be waited for again
        return self.status is not None

    def wait_for_training(self, folder: Path) -> None:
        """Until it holds the folder, or has ended; those killed before left their locks."""
        lock = folder / LOCK
        while not self.ended():
            with suppress(FileNotFoundError):
                if lock.read_text().startswith(f"{self.pid} "):
                    return
            time.sleep(0.001)

    def kill(self) -> bool:
        """SIGKILL; whether that was what ended it."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
        self.ended(wait=True)
        return self.status == -signal.SIGKILL


def _run_here(words: list[str], output: int) -> NoReturn:
    """The command in a forked process, which it ends."""
    status = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        app(words)
    except SystemExit as exit_:
        status = exit_.code if isinstance(exit_.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


class Kind:
    """One kind of run: its command, and what it leaves when nobody disturbs it."""

    def __init__(self, name: str, scratch: Path, text: Path) -> None:
        self.name, self.scratch = name, scratch
        self.command = [text, *_SMALL, *RUNS[name]]
        self.number = 0
        self.next_run()
        life = self.go_on(fork=False)
        life.wait_for_training(self.folder)
        began = time.monotonic()
        life.ended(wait=True)
        self.training = time.monotonic() - began
        if life.status != 0:
            raise RuntimeError(f"the run to compare with failed: {life.log.read_text()}")
        self.whole = {file: (self.folder / file).read_bytes() for file in FILES}
        self.next_run()

    def next_run(self) -> None:
        self.number += 1
        self.folder = self.scratch / f"{self.name} {self.number}"

    def go_on(self, fork: bool) -> Life:
        """The run's next life: resumed, if there is something to resume."""
        log = self.scratch / f"{self.name}.log"
        if (self.folder / checkpoints.FILE).exists():
            save_every = RUNS[self.name][-2:]
            return Life(log, "--resume", self.folder, "--samples", 0, *save_every, fork=fork)
        return Life(log, *self.command, "--output", self.folder, fork=fork)

    def wrong(self, life: Life) -> str:
        """What is wrong with a run that ended by itself."""
        life.ended(wait=True)
        if life.status != 0:
            return f"{self.folder.name}: status {life.status}: {life.log.read_text()[-2000:]}"
        for file, wanted in self.whole.items():
            if (self.folder / file).read_bytes() != wanted:
                return f"{self.folder.name}: {file} differs from the run that was not killed"
        left = [path.name for path in self.folder.iterdir() if path.name.startswith(".")]
        return f"{self.folder.name}: {left} were left" if left else ""


def trials(count: int, seed: int) -> Iterator[Outcome]:
    rng = random.Random(f"kills {seed}")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text = scratch / "words.txt"
        text.write_text("\n".join(WORDS))
        kinds = []
        for name in list(RUNS)[: max(1, count // len(RUNS))]:
            kinds.append(Kind(name, scratch, text))
            yield Outcome(f"{name}: run that is not killed", number=0)
        killed = 0
        while killed < count:
            kind = kinds[killed % len(kinds)]
            fork = rng.random() < 0.9
            life = kind.go_on(fork)
            if fork:
                life.wait_for_training(kind.folder)
                time.sleep(rng.uniform(0, 0.5 * kind.training))
            else:
                time.sleep(rng.uniform(0, 2.0))  # which may be while it starts
            if life.kill():
                killed += 1
                start = "forked" if fork else "command"
                yield Outcome(f"{kind.name}: killed ({start})", _unsound(kind.folder))
            else:  # it had ended before
                yield Outcome(f"{kind.name}: run ended and compared", kind.wrong(life), 0)
                kind.next_run()
        for kind in kinds:
            found = kind.wrong(kind.go_on(fork=True))
            yield Outcome(f"{kind.name}: run ended and compared", found, 0)


def _unsound(folder: Path) -> str:
    """What is wrong with the files that a killed run left."""
    if not (folder / checkpoints.FILE).exists():
        return ""
    try:
        step = gpt.load(folder).step
        rows = (folder / "metrics.csv").read_text().splitlines()
    except (gpt.GPTError, OSError) as error:
        return f"{folder.name}: {error}"
    if len(rows) - 1 < step:
        return (
            f"{folder.name}: the checkpoint is at step {step}, the metrics have {len(rows)} lines"
        )
    return ""
