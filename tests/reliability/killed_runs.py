"""``chainrule train`` killed at random moments (SIGKILL), and resumed: the end is the same, bit for bit.

A run is killed, resumed and killed again until it ends by itself. Then its checkpoint, its metrics
(every loss) and its picture must be the bytes of a run that nobody disturbed.
"""

import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trials import Outcome

from chainrule import gpt
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
    "float32": ["--engine", "compiled", "--dtype", "float32", "--steps", "400", "--save-every", "1"],
}


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "chainrule", "train", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )


class Kind:
    """One kind of run: its command, and what it leaves when nobody disturbs it."""

    def __init__(self, name: str, scratch: Path, text: Path) -> None:
        self.name, self.scratch = name, scratch
        self.command = [text, *_SMALL, *RUNS[name]]
        self.save_every = RUNS[name][-2:]
        whole = scratch / f"{name} whole"
        process = start(*self.command, "--output", whole)
        self.training = _time_in(process, whole)
        self.whole = {file: (whole / file).read_bytes() for file in FILES}
        self.number = 0
        self.next_run()

    def next_run(self) -> None:
        self.number += 1
        self.folder = self.scratch / f"{self.name} {self.number}"

    def go_on(self) -> subprocess.Popen[str]:
        """The run's next life: resumed, if there is something to resume."""
        if (self.folder / checkpoints.FILE).exists():
            return start("--resume", self.folder, "--samples", 0, *self.save_every)
        return start(*self.command, "--output", self.folder)

    def wrong(self, process: subprocess.Popen[str]) -> str:
        """What is wrong with a run that ended by itself."""
        output = process.communicate()[0]
        if process.returncode != 0:
            return f"{self.folder.name}: exit status {process.returncode}: {output[-2000:]}"
        for file, wanted in self.whole.items():
            if (self.folder / file).read_bytes() != wanted:
                return f"{self.folder.name}: {file} differs from the run that was not killed"
        left = [path.name for path in self.folder.iterdir() if path.name.startswith(".")]
        return f"{self.folder.name}: {left} were left" if left else ""


def _wait_for_training(process: subprocess.Popen[str], folder: Path) -> None:
    """Until the process holds the folder, or has ended; those killed before left their locks."""
    lock = folder / LOCK
    while process.poll() is None:
        with suppress(FileNotFoundError):
            if lock.read_text().startswith(f"{process.pid} "):
                return
        time.sleep(0.001)


def _time_in(process: subprocess.Popen[str], folder: Path) -> float:
    """How long an undisturbed run holds its folder."""
    _wait_for_training(process, folder)
    began = time.monotonic()
    output = process.communicate()[0]
    if process.returncode != 0:
        raise RuntimeError(f"the run to compare with failed: {output}")
    return time.monotonic() - began


def trials(count: int, seed: int) -> Iterator[Outcome]:
    rng = random.Random(f"kills {seed}")
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        text = scratch / "words.txt"
        text.write_text("\n".join(WORDS))
        names = list(RUNS)[: max(1, count // 3)]
        kinds = [Kind(name, scratch, text) for name in names]
        killed = 0
        while killed < count:
            kind = kinds[killed % len(kinds)]
            process = kind.go_on()
            if rng.random() < 0.9:  # else while it starts
                _wait_for_training(process, kind.folder)
                time.sleep(rng.uniform(0, 0.5 * kind.training))
            else:
                time.sleep(rng.uniform(0, 1.0))
            process.send_signal(signal.SIGKILL)
            process.wait()
            if process.returncode != -signal.SIGKILL:  # it had ended before
                found = kind.wrong(process)
                kind.next_run()
                yield Outcome(f"{kind.name}: run ended and compared", found, 0)
                continue
            process.communicate()
            killed += 1
            yield Outcome(f"{kind.name}: killed", _unsound(kind.folder))
        for kind in kinds:
            yield Outcome(f"{kind.name}: run ended and compared", kind.wrong(kind.go_on()), 0)


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
        return f"{folder.name}: the checkpoint is at step {step}, the metrics have {len(rows)} lines"
    return ""
