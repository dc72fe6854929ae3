"""Functions that carry a state from call to call: caches that grow, recurrent networks, filters.

    python benchmarks/inference.py                # --calls 10000 for more of them
    python benchmarks/inference.py --only cache

For each program: microseconds of an eager call, and of the last third of the compiled ones (the
medians), the seconds of all calls both ways, and how many recordings there are. Processor time;
every program in a fresh process, and what both gave must be the same.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
import warnings

from harness import machine, table, title
from inference_programs import PROGRAMS

import chainrule


def timed(function):
    """The function, and a list of the seconds that each call of it took."""
    taken = []

    def call(*arguments):
        started = time.thread_time()
        result = function(*arguments)
        taken.append(time.thread_time() - started)
        return result

    return call, taken


def close(a, b):
    if isinstance(a, list):
        return len(a) == len(b) and all(map(close, a, b))
    return abs(a - b) <= 1e-9 * max(1.0, abs(b))


def measured(name, calls):
    function, loop = PROGRAMS[name]
    eager, seconds = timed(function)
    wanted = loop(eager, calls)
    fast = chainrule.compile(function)
    compiled, taken = timed(fast)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = loop(compiled, calls)
    assert close(found, wanted), name
    first = fast.report().splitlines()[1]
    return [
        f"{1e6 * statistics.median(seconds):.1f}",
        f"{1e6 * statistics.median(taken[-len(taken) // 3 :]):.1f}",
        f"{sum(seconds):.2f}",
        f"{sum(taken):.2f}",
        first.partition("; ")[2].split(" ")[0],
        "; ".join(str(x.message).partition(": ")[2] for x in told)[:60],
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=int, default=5000)
    parser.add_argument("--only", default="", help="programs whose names have this in them")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measured(options.one, options.calls)))
        return
    print(machine())
    rows = []
    for name in PROGRAMS:
        if options.only in name:
            command = [sys.executable, __file__, "--one", name, "--calls", str(options.calls)]
            found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rows.append([name, *json.loads(found)])
    title(f"{options.calls} plain calls, each with the state that the one before it left")
    head = ["", "eager, µs", "compiled, µs", "eager, s", "compiled, s", "recordings", "told"]
    table(head, rows)


if __name__ == "__main__":
    main()
