"""What the benchmarks share: taking turns, tables, a fresh process.

Machines are noisy. So the contestants of a comparison take turns in one process, every figure is
the minimum over its turns, in processor time, and what is said about speed is a ratio of minima.
"""

import gc
import math
import multiprocessing
import os
import random
from concurrent.futures import ProcessPoolExecutor
from textwrap import fill

from chainrule.cli.bench import clock
from chainrule.cli.bench import machine as machine

WHOLE = "whole"


class Laps:
    """A stopwatch: ``laps("forward")`` ends the phase of that name and begins the next."""

    def __init__(self):
        self.seconds = {}
        self._begin = clock()

    def __call__(self, phase):
        self.seconds[phase] = clock() - self._begin
        self._begin = clock()


def take_turns(contestants, repeats):
    """Let every contestant run once, ``repeats`` times over; the minimum seconds of each phase.

    A contestant is a function that returns the seconds of its phases by name; one more phase,
    ``WHOLE``, is their sum. The order changes every time, so that nobody always follows the one
    that empties the caches. What existed before is hidden from the garbage collector, and nobody
    pays for another's garbage.
    """
    best = {name: {} for name in contestants}
    order, rng = list(contestants), random.Random(0)
    gc.collect()
    gc.freeze()
    try:
        for _ in range(repeats):
            rng.shuffle(order)
            for name in order:
                gc.collect()
                seconds = contestants[name]()
                for phase, time in (*seconds.items(), (WHOLE, sum(seconds.values()))):
                    best[name][phase] = min(time, best[name].get(phase, math.inf))
    finally:
        gc.unfreeze()
    return best


def whole(function, phase="call"):
    """A contestant of one phase: the call of ``function``."""

    def turn():
        laps = Laps()
        function()
        laps(phase)
        return laps.seconds

    return turn


def repeated(function, calls, phase="call"):
    """A contestant of one phase: a call of ``function``, as the mean of so many."""

    def turn():
        begin = clock()
        for _ in range(calls):
            function()
        return {phase: (clock() - begin) / calls}

    return turn


def fresh_process(function, *args):
    """``function(*args)``, in a process that has done nothing else."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(function, *args).result()


def resident_bytes():
    """The memory this process occupies now; None where the system does not tell."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None


def title(text):
    print(f"\n{fill(text, 100)}\n")


def table(headers, rows):
    """Print rows of texts, the first column to the left and the others to the right."""
    lines = [headers, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headers))]
    for line in lines:
        cells = [line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]
        print("   ".join(cells).rstrip())


def figure(number, scale=1.0, digits=2, suffix=""):
    """A number as a cell; nothing where there is none."""
    return "" if number is None else f"{number * scale:,.{digits}f}{suffix}"


def ratio(slower, faster):
    """How many times ``faster`` fits into ``slower``, as a cell."""
    return "" if slower is None or faster is None else f"{slower / faster:,.2f}×"
