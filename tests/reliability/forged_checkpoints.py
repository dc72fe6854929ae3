"""Forged checkpoints whose checksum fits: each command uses them, or refuses in one clear line."""

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from forging import attempt, forgeries, prepare, write
from trials import Outcome

from chainrule.gpt import checkpoints

COUNT = 760  # all that there are
THINGS = "forged checkpoints, each with three commands"


def trials(count: int, seed: int) -> Iterator[Outcome]:
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            forged = list(forgeries(*prepare(folder)))
            random.Random(f"forged {seed}").shuffle(forged)
            for name, metadata, tensors in forged[:count]:
                yield Outcome(*_tried(Path(folder), name, metadata, tensors))
        finally:
            os.chdir(here)


def _tried(folder: Path, name: str, metadata: dict[str, str], tensors: object) -> tuple[str, str]:
    run = folder / "forged"
    codes, found = [], []
    for command in ("sample", "inspect", "train"):
        shutil.copytree(folder / "run", run)
        write(run / checkpoints.FILE, metadata, tensors)
        options = ["--count", 2, "--seed", 1] if command == "sample" else []
        where = ["--resume", run, "--samples", 1] if command == "train" else [run, *options]
        try:
            code, errors = attempt([command, *where])
        except Exception as error:
            code, errors = -1, repr(error)
        if code not in (0, 1) or errors.count("\n") != code:
            found.append(f"{name}, {command}: exit code {code}, {errors!r}")
        codes.append(code)
        shutil.rmtree(run)
    kind = "used by all" if not any(codes) else "refused by all" if all(codes) else "used by some"
    return kind, "; ".join(found)
