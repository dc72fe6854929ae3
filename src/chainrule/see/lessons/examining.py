"""``check_file(path)``: a learner's engine through every trap, safely.

A file comes in; out comes a ``Check``: one finding per trap. The file runs in a process of its own
with a limit on time and memory. A trap in which that process hangs or dies is a finding, and the
next one starts with a new process.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chainrule.see.lessons import operations, passes
from chainrule.see.lessons.traps import TRAPS, Finding, Row
from chainrule.see.lessons.worker import LOADING

SECONDS = 10.0  # of computing, for one trap or for loading the file
_PATIENCE = 12  # times as long by the clock on the wall: the machine may be busy, or it sleeps
LAST_STEP = 11
_MOST_RESTARTS = 4  # hanging in more traps than this is one finding too many to wait for
_WHOLE = 6  # without --step: everything about one class; what is missing later is not wrong

_WITH_TRAPS = (operations, passes)  # importing them adds their traps to the list


@dataclass(frozen=True)
class Check:
    """What the traps found, in the order of the course."""

    file: str
    step: int | None  # the step of the course that was asked for
    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """What is wrong, and what is missing although the step needs it; the first thing first."""
        return tuple(f for f in self.findings if f.status == "wrong" or self._needed(f))

    @property
    def advice(self) -> tuple[Finding, ...]:
        """What could be better."""
        return tuple(f for f in self.findings if f.status == "advice")

    @property
    def later(self) -> tuple[Finding, ...]:
        """What is not there yet, and need not be."""
        return tuple(f for f in self.findings if f.status == "missing" and not self._needed(f))

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.wrong

    def _needed(self, finding: Finding) -> bool:
        if finding.status != "missing":
            return False
        return finding.trap == "loading" or _step_of(finding.trap) <= (self.step or _WHOLE)

    def __str__(self) -> str:
        from chainrule.see.lessons.printing import check_parts
        from chainrule.see.tables import as_text

        return as_text(*check_parts(self))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from chainrule.see.lessons.printing import check_parts
        from chainrule.see.tables import PAGE_WIDTH, notebook_html

        return notebook_html(*check_parts(self, PAGE_WIDTH))


def _step_of(trap: str) -> int:
    return next((one.step for one in TRAPS if one.name == trap), 0)


def check_file(path: str | Path, step: int | None = None, seconds: float = SECONDS) -> Check:
    """Run the engine in a file through every trap up to a step of the course, or through all.

    The file holds a class with ``data``, ``grad``, ``+``, ``*`` and ``backward``, in any of the
    dialects of the texts. Nothing that it does can harm the caller: it runs in another process,
    ``seconds`` of computing at most for each trap.
    """
    file = Path(path).resolve()
    if not file.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    if step is not None and not 1 <= step <= LAST_STEP:
        raise ValueError(f"the steps of the course are 1 to {LAST_STEP}, not {step}")
    last = LAST_STEP if step is None else step
    found: list[Finding] = []
    first = 0
    for _ in range(_MOST_RESTARTS + 1):
        findings, stopped, died = _run(file, last, first, seconds)
        found += findings
        if stopped is None:
            break
        found.append(_stopped(stopped, died, seconds))
        first = stopped + 1
        if stopped == LOADING:
            break
    return Check(Path(path).name, step, tuple(found))


def _stopped(number: int, died: bool, seconds: float) -> Finding:
    """What there is to say about a trap in which the process hung or died."""
    name = "loading" if number == LOADING else TRAPS[number].name
    if died:
        why = "Python itself ended: too deep a recursion, or no memory left."
        return Finding(name, "wrong", "code that runs", why, error="the process died")
    why = f"It had not finished after {seconds:g} seconds of computing."
    idea = "an end"
    if name == "doubling":
        why += " With n additions of a node to itself there are 2ⁿ paths: visit each node once."
        return Finding(
            name, "wrong", "a visited set: every node is sorted once", why, lesson="no_visited"
        )
    return Finding(name, "wrong", idea, why, error="timeout")


def _run(
    file: Path, last: int, first: int, seconds: float
) -> tuple[list[Finding], int | None, bool]:
    """One process: what it found, the trap in which it stopped if it did, and whether it died."""
    with tempfile.TemporaryDirectory() as folder:
        findings, errors = Path(folder) / "findings", Path(folder) / "errors"
        findings.touch()
        words = [sys.executable, "-m", "chainrule.see.lessons.worker"]
        with errors.open("wb") as stream:
            process = subprocess.Popen(
                [*words, str(file), str(findings), str(last), str(first), str(seconds)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stream,
                cwd=folder,
                env={**os.environ, "PYTHONPATH": _search_path()},
            )
            hung = _wait(process, findings, max(60.0, _PATIENCE * seconds))
        hung = hung or process.returncode == -getattr(signal, "SIGVTALRM", math.inf)
        lines = [json.loads(line) for line in _whole_lines(findings)]
        if not lines:
            said = errors.read_text(encoding="utf-8", errors="replace").strip()[-500:]
            raise RuntimeError(f"the process that checks could not start: {said}")
    found = [_finding(line["finding"]) for line in lines if "finding" in line]
    begun = [line["begins"] for line in lines if "begins" in line]
    if not hung and process.returncode == 0:
        return found, None, False
    return found, begun[-1] if begun else LOADING, not hung


def _search_path() -> str:
    """Where the new process finds this very package first."""
    own = Path(__file__).parents[3]
    return os.pathsep.join(filter(None, (str(own), os.environ.get("PYTHONPATH", ""))))


def _wait(process: subprocess.Popen[bytes], findings: Path, seconds: float) -> bool:
    """Wait as long as something new is found in time; True where the process hung."""
    size, since = -1, time.monotonic()
    while True:
        try:
            process.wait(0.1)
            return False
        except subprocess.TimeoutExpired:
            now = findings.stat().st_size
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > seconds:
                process.kill()
                process.wait()
                return True


def _whole_lines(file: Path) -> list[str]:
    text = file.read_text(encoding="utf-8")
    return [line for line in text[: text.rfind("\n") + 1].splitlines() if line]


def _finding(fields: dict[str, Any]) -> Finding:
    rows = tuple(Row(**row) for row in fields.pop("rows"))
    return replace(Finding(**fields), rows=rows)
