"""Batches beside single samples: what many at a time take per sample, in every way to ask for it.

    python benchmarks/batches.py                all models; --quick: fewer repeats
    python benchmarks/batches.py RNN MLP        those whose names contain one of these
    python benchmarks/batches.py --default      functions as they are compiled by default
    python benchmarks/batches.py --differing    samples of ever other paths and lengths

Processor time of one thread. A ratio above 1 says that a batch is slower than its samples one by
one; these are marked and counted.
"""

import argparse
import os
import random
import time
import warnings

os.environ.setdefault("CHAINRULE_THREADS", "1")

import numpy as np
from batch_models import differing, models
from harness import WHOLE, figure, machine, repeated, table, take_turns, title

import chainrule
from chainrule import optim

US = 1e6
SIZES = (2, 4, 8, 16, 64)
PASSES = 8  # over all samples in one call of ``advance``
NOISE = 1.05  # a ratio up to here is no difference


def steps(compiled, params, samples):
    """Training steps with Adam, by how many samples each has; all samples ``PASSES`` times."""
    turns = {}
    for size in (1, *SIZES):
        mine = {key: array.copy() for key, array in params.items()}
        trainer = compiled().trainer(mine, samples, optim.Adam(mine, lr=0.0), batch=size)
        count = PASSES * len(samples) // size
        turns[size] = lambda trainer=trainer, count=count: trainer.advance(count)
    return turns, PASSES * len(samples)


def batches(compiled, params, samples):
    """``batch_value_and_grad``, and calls of ``value_and_grad``."""
    function = compiled()

    def calls():
        for sample in samples:
            function.value_and_grad(params, *sample)

    def in_batches(size):
        parts = [samples[k : k + size] for k in range(0, len(samples), size)]

        def turn():  # which keeps no result, as ``calls`` keeps none
            for part in parts:
                function.batch_value_and_grad(params, part)

        return turn

    return {1: calls} | {size: in_batches(size) for size in SIZES}, len(samples)


def maps(compiled, params, samples):
    """``map_value_and_grad``, and calls whose results are stacked as it stacks them."""
    function = compiled()
    stacks = [np.array(column) for column in zip(*samples, strict=True)]

    def calls(size):
        for first in range(0, len(samples), size):
            rows = zip(*[x[first : first + size] for x in stacks], strict=True)
            found = [function.value_and_grad(params, *row) for row in rows]
            np.array([value for value, _ in found])
            for key in params:
                np.stack([slopes[key] for _, slopes in found])

    def mapped(size):
        for first in range(0, len(samples), size):
            function.map_value_and_grad(params, *[x[first : first + size] for x in stacks])

    single = {-size: lambda size=size: calls(size) for size in SIZES}
    return single | {size: lambda size=size: mapped(size) for size in SIZES}, len(samples)


def differing_batches(loss, sample, size, count=200):
    """Seconds for so many batches by eager calls and by the function compiled by default.

    Of all of them, and of the last third; and how many recordings there were.
    """
    chance, fast = random.Random(0), chainrule.compile(loss)
    plain, found = chainrule.value_and_grad(loss), np.zeros((count, 2))
    for k in range(count):
        params = [chance.gauss(0, 1) for _ in range(8)]
        samples = [sample(chance) for _ in range(size)]
        began = time.process_time()
        for each in samples:
            plain(params, *each)
        between = time.process_time()
        fast.batch_value_and_grad(params, samples)
        found[k] = between - began, time.process_time() - between
    return found.sum(axis=0), found[-count // 3 :].sum(axis=0), fast.dispatch.counts.traces


def show_differing(names):
    """What batches cost whose samples are recordings of their own; all in one process."""
    warnings.simplefilter("ignore", chainrule.FallbackWarning)
    rows = []
    for name, (loss, sample) in differing().items():
        if names and not any(part in name for part in names):
            continue
        for size in (1, 8, 16, 64):
            whole, last, recordings = differing_batches(loss, sample, size)
            ratio = last[1] / last[0]
            mine = [*[f"{1e3 * x:.1f}" for x in whole], f"{ratio:.2f}", str(recordings)]
            rows.append([f"{name}, {size} at a time", *mine])
    title("200 batches whose samples differ: milliseconds, and the last third in times eager")
    table(["", "eager", "batches", "last third", "recordings"], rows)


WAYS = {"train": steps, "batch_value_and_grad": batches, "map_value_and_grad": maps}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help="of models, or parts of names")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--default", action="store_true", help="without lift=True")
    parser.add_argument("--differing", action="store_true", help="samples that all differ")
    options = parser.parse_args()
    print(machine())
    if options.differing:
        show_differing(options.names)
        return
    rows, slower = [], 0
    for name, (loss, params, samples) in models().items():
        if options.names and not any(part in name for part in options.names):
            continue
        for dtype in ("float64", "float32"):
            mine = {key: array.astype(dtype) for key, array in params.items()}

            def compiled(loss=loss, dtype=dtype):
                lift = {} if options.default else {"lift": True}
                return chainrule.compile(loss, dtype=dtype, **lift)

            for way, make in WAYS.items():
                if make is maps and ("mixed" in name or "tokens" in name):
                    continue  # an array has one length; rows of tokens are other calls than lists
                turns, count = make(compiled, mine, samples)
                for turn in 4 * [*turns.values()]:
                    turn()  # nothing is left to build
                timed = {key: repeated(turn, 1) for key, turn in turns.items()}
                best = take_turns(timed, 10 if options.quick else 40)
                each = {key: found[WHOLE] / count for key, found in best.items()}
                single = [each.get(-size, each.get(1)) for size in SIZES]
                cells = [f"{figure(max(single), US, 2)}"]
                for size, one in zip(SIZES, single, strict=True):
                    is_slower = each[size] > NOISE * one
                    slower += is_slower
                    cells.append(f"{figure(each[size], US, 2)}{'!' if is_slower else ' '}")
                rows.append([f"{name}, {dtype}: {way}", *cells])
    title("Batches: microseconds per sample, one by one and so many at a time (! slower)")
    table(["", "one by one", *[str(size) + " " for size in SIZES]], rows)
    print(f"\n{slower} of {len(rows) * len(SIZES)} are slower than single samples")


if __name__ == "__main__":
    main()
