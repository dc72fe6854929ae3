"""Experiments that try to break chainrule, with as many trials as one likes.

    python tests/reliability/experiments.py                      all of them, with their full counts
    python tests/reliability/experiments.py kills --count 20     one of them, less
    python tests/reliability/experiments.py --list               their names and counts

Whatever is found is printed with what it takes to see it again, and makes the exit status 1. So
does a crash, or a trial that does not end in time: then the stack is printed.
"""

from __future__ import annotations

import argparse
import collections
import faulthandler
import importlib
import signal
import sys
import time
from pathlib import Path

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(_TESTS), str(_TESTS / "gpt")]

import chainrule  # noqa: E402

#: name of the experiment: its module, which has COUNT, THINGS and trials(count, seed)
EXPERIMENTS = {
    "expressions": "hostile_expressions",
    "pages": "hostile_pages",
    "mutated": "mutated_checkpoints",
    "forged": "forged_checkpoints",
    "calls": "wrong_calls",
    "threads": "many_threads",
    "signals": "random_signals",
    "kills": "killed_runs",
}
LONGEST = 300.0  # seconds for one trial, on a busy machine


def run(name: str, count: int | None, seed: int) -> int:
    """One experiment; the number of trials that found something."""
    experiment = importlib.import_module(EXPERIMENTS[name])
    count = experiment.COUNT if count is None else count
    kinds: collections.Counter[str] = collections.Counter()
    done, found, began = 0, 0, time.monotonic()
    terminal, shown = sys.stderr.isatty(), began
    faulthandler.dump_traceback_later(LONGEST, exit=True, file=sys.__stderr__)
    for outcome in experiment.trials(count, seed):
        faulthandler.dump_traceback_later(LONGEST, exit=True, file=sys.__stderr__)
        done += outcome.number
        kinds[outcome.kind] += outcome.number or 1
        if outcome.found:
            found += 1
            print(f"--- {name}: {outcome.found}", flush=True)
        if time.monotonic() - shown > (0.5 if terminal else 60.0):
            shown = time.monotonic()
            start, end = ("\r", "") if terminal else ("", "\n")
            print(f"{start}{name}: {done:,} of {count:,}", end=end, file=sys.stderr, flush=True)
    faulthandler.cancel_dump_traceback_later()
    if terminal:
        print(end="\r", file=sys.stderr)
    version = sys.version.split()[0]
    print(
        f"{name}: {done:,} {experiment.THINGS} in {time.monotonic() - began:.0f} s, "
        f"seed {seed}, Python {version}, {chainrule.engine} engine: {found} found"
    )
    for kind, number in kinds.most_common():
        print(f"  {number:8,} {kind}", flush=True)
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run, and say what was found."""
    parser = argparse.ArgumentParser(description="Experiments that try to break chainrule.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(EXPERIMENTS))
    parser.add_argument("--count", type=int, help="of trials; each experiment has its own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--list", action="store_true", help="the names and their full counts")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(EXPERIMENTS)
    if unknown:
        parser.error(
            f"there is no experiment {min(unknown)!r}: choose from {', '.join(EXPERIMENTS)}"
        )
    if options.list:
        for name, module in EXPERIMENTS.items():
            experiment = importlib.import_module(module)
            print(f"{name:12} {experiment.COUNT:8,} {experiment.THINGS}")
        return 0
    faulthandler.enable()
    # A job in the background may ignore Ctrl-C, and so would everything that is interrupted here.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    found = [run(name, options.count, options.seed) for name in options.names or EXPERIMENTS]
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
