"""Run a learner's file through the traps, in a process of its own: ``python -m ...worker``.

The arguments are the file, where to write the findings, the last step of the course to try, the
number of the first trap, and how many seconds of computing each may take. A finding is one line of
JSON, written as soon as it is there: when this process is stopped or dies, whoever started it knows
in which trap, and can go on with the next.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

from chainrule.see.lessons import operations, passes
from chainrule.see.lessons.dialects import Engine, NoEngine
from chainrule.see.lessons.traps import TRAPS, Finding, describe, spring

MEMORY = 3 * 2**30  # bytes; a learner's graph needs far less
_NAME = "learners_file"
LOADING = -1  # the place of what happens before the first trap

_WITH_TRAPS = (operations, passes)  # importing them adds their traps to the list


def main(file: str, findings: str, last_step: int, first: int, seconds: float) -> None:
    """Try one trap after the other."""
    _limit_memory()
    with open(findings, "a", encoding="utf-8") as out:
        _begin(out, LOADING, seconds)
        try:
            engine = Engine(_load(Path(file)))
        except NoEngine as error:
            _write(out, Finding("loading", "missing", str(error)))
            return
        except BaseException as error:
            _write(
                out,
                Finding("loading", "wrong", "a file that can be imported", error=describe(error)),
            )
            return
        for number, one in enumerate(TRAPS):
            if number >= first and one.step <= last_step:
                _begin(out, number, seconds)
                _write(out, spring(one, engine))


def _load(file: Path) -> ModuleType:
    """The learner's module; it is not ``__main__``, so a guarded main does not run."""
    sys.path.append(str(file.parent))  # last: a learner's random.py must not hide Python's
    spec = importlib.util.spec_from_file_location(_NAME, file)
    if spec is None or spec.loader is None:
        raise NoEngine(f"{file.name} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_NAME] = module
    spec.loader.exec_module(module)
    return module


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _begin(out: TextIO, number: int, seconds: float) -> None:
    """Note where we are; from here on, computing for too long ends the process.

    The clock is the process's own: on a busy machine a right engine must not seem to hang.
    """
    _line(out, {"begins": number})
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)


def _write(out: TextIO, finding: Finding) -> None:
    _line(out, {"finding": asdict(finding)})


def _line(out: TextIO, thing: dict[str, Any]) -> None:
    out.write(json.dumps(thing) + "\n")
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
