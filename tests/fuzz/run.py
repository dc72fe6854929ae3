"""The differential fuzzer: random programs, compiled calls against eager ones.

    python tests/fuzz/run.py --programs 2000 --seed 0 --jobs 2

Program number i has the seed ``--seed`` + i. Each difference is made smaller and written as a
script of its own into ``--found``. The exit status is 1 if there was any. ``--show SEED`` prints a
program. With ``--unchecked`` no recording is compared with a second one, nor with eager's first
result: that finds what those comparisons refuse, and would not where its first result is the same.
With ``--both`` both sides of branches are computed from the first recording on, and not only where
calls go many ways. With ``--large`` every recording counts as a large one, of which no tape is made
and no instruction kept once machine code was compared with the function itself.

Programs run in worker processes, many in one process for speed. A worker that crashes or does not
answer is replaced, and the program that it was at counts as a crash.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_compare import differences
from fuzz_programs import program
from fuzz_shrink import script, shrunk, signature

from chainrule.compiler.capture import tracing
from chainrule.compiler.capture.tracing import compare_errors
from chainrule.compiler.runtime import branching, heap, pipeline, texts

PER_WORKER = 150  # programs, before a fresh process: memory of compiled code adds up


class TooLong(BaseException):
    """A program took longer than its time; no ``except Exception`` catches this."""


def limited(seconds: float) -> None:
    """Raise TooLong after so many seconds of computing; 0 for never.

    The time that other processes take does not count: a busy machine finds no other differences.
    """

    def late(*_: Any) -> None:
        signal.setitimer(signal.ITIMER_PROF, 1.0)  # again, should it have been swallowed
        raise TooLong

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)


def examine(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """One program: its outcome as a record that can be written as JSON."""
    began = time.monotonic()
    record: dict[str, Any] = {"seed": seed, "kind": "same"}
    try:
        limited(options.limit)
        written = program(seed)
        found = differences(written, options.strict)
        limited(0)
        if found:
            record |= {"kind": found[0].kind, "signature": " ".join(signature(found))}
            record |= {"text": str(found[0]), "mode": written.mode}
            small = written
            try:
                limited(2 * options.shrink + options.limit)
                small = shrunk(written, options.strict, options.shrink)
            except TooLong:
                pass
            try:
                limited(options.limit)
                found = differences(small, options.strict) or found
            except TooLong:
                pass
            record["script"] = script(small, found)
    except TooLong:
        record |= {"kind": "too long"}
    except Exception as error:
        record |= {"kind": "broken", "text": f"{type(error).__name__}: {error}"}
    finally:
        limited(0)
    record["seconds"] = time.monotonic() - began
    return record


def work(options: argparse.Namespace) -> None:
    """A worker: seeds come by standard input, records go to standard output."""
    channel = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever programs print past sys.stdout
    texts.FEW = texts.FEW_MASKS = 0  # the first of some texts is traced
    if options.both:
        branching.WAYS = 0
        branching.static_often = lambda *_: True  # and loops have run-time ends
    if options.large:
        heap.LARGE = 0
    if options.unchecked:
        pipeline.check_against_eager = lambda *_: None  # type: ignore[assignment]
        tracing.confirm = lambda f, state, call, *_, **__: compare_errors(f, state, call)  # type: ignore[assignment]
    for line in sys.stdin:
        channel.write(json.dumps(examine(int(line), options)) + "\n")


class Worker:
    """A process that examines one program after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.process: subprocess.Popen[str] | None = None
        self.done = 0

    def start(self) -> subprocess.Popen[str]:
        """The running process, or a new one."""
        if self.process is None or self.process.poll() is not None or self.done >= PER_WORKER:
            self.stop()
            self.done = 0
            command = [sys.executable, __file__, "--worker", f"--limit={self.options.limit}"]
            command += [f"--shrink={self.options.shrink}"] + ["--strict"] * self.options.strict
            command += [f"--{x}" for x in ("unchecked", "both", "large") if vars(self.options)[x]]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        return self.process

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def examine(self, seed: int) -> dict[str, Any]:
        """The record of one program, whatever happens to the process."""
        process = self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        # By the clock, for one that waits forever: generous, the machine may be busy.
        timer = threading.Timer(20 * (self.options.limit + self.options.shrink), process.kill)
        timer.start()
        line = ""
        try:
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except OSError:
            pass
        finally:
            timer.cancel()
        self.done += 1
        if not line:
            status = process.wait()
            return {"seed": seed, "kind": "crash", "text": f"exit status {status}", "seconds": 0.0}
        record: dict[str, Any] = json.loads(line)
        return record


def run(seeds: list[int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """The records of all programs; differences are reported as they are found."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for seed in seeds:
        waiting.put(seed)
    records: list[dict[str, Any]] = []
    stop = threading.Event()

    def serve() -> None:
        worker = Worker(options)
        while not stop.is_set():
            try:
                seed = waiting.get_nowait()
            except queue.Empty:
                break
            record = worker.examine(seed)
            records.append(record)
            if record["kind"] != "same":
                report(record, options)
            if options.first and record["kind"] not in ("same", "too long"):
                stop.set()
        worker.stop()

    threads = [threading.Thread(target=serve) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return records


def report(record: dict[str, Any], options: argparse.Namespace) -> None:
    """One difference, as it is found."""
    print(f"--- seed {record['seed']}: {record.get('text', record['kind'])}", flush=True)
    if "script" not in record:
        return
    if options.found is not None:
        options.found.mkdir(parents=True, exist_ok=True)
        path = options.found / f"{record['kind']}_{record['seed']}.py"
        path.write_text(record["script"])
        print(f"    {path}", flush=True)
    else:
        print(record["script"], flush=True)


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--limit", type=float, default=20.0, help="seconds of computing for one program"
    )
    parser.add_argument("--shrink", type=float, default=15.0, help="seconds to make one smaller")
    parser.add_argument("--found", type=Path, help="folder for reproducers; printed without it")
    parser.add_argument("--strict", action="store_true", help="a list is not an array")
    parser.add_argument("--unchecked", action="store_true", help="first results are not compared")
    parser.add_argument("--large", action="store_true", help="every recording counts as large")
    parser.add_argument("--both", action="store_true", help="both sides of branches are computed")
    parser.add_argument("--first", action="store_true", help="stop at the first difference")
    parser.add_argument("--show", type=int, metavar="SEED", help="print the program of this seed")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main() -> int:
    """Run, and say what was found."""
    options = parsed()
    if options.worker:
        work(options)
        return 0
    if options.show is not None:
        print(script(program(options.show), []))
        return 0
    began = time.monotonic()
    records = run(list(range(options.seed, options.seed + options.programs)), options)
    taken = time.monotonic() - began
    kinds = collections.Counter(record["kind"] for record in records)
    groups = collections.Counter(r["signature"] for r in records if "signature" in r)
    print(f"{len(records)} programs in {taken:.0f} s, {len(records) / taken:.1f} a second")
    for kind, count in kinds.most_common():
        print(f"  {count:6} {kind}")
    for group, count in groups.most_common():
        print(f"    {count:6} {group}")
    return 0 if set(kinds) <= {"same", "too long"} else 1


if __name__ == "__main__":
    sys.exit(main())
