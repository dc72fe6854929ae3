"""Memory over a long training run, and over compiling again and again: it should stay flat.

    python benchmarks/memory.py                  both sections
    python benchmarks/memory.py steps            a million steps of the microgpt preset's model
    python benchmarks/memory.py compile          the same function compiled a hundred times

What is resident after each tenth is printed, in MB; the first tenth is the warm-up.
"""

import argparse
import gc
import random

from harness import clock, figure, machine, resident_bytes, table, title

import chainrule
from chainrule import gpt, optim
from chainrule.compiler.runtime import heap

TENTHS = 10


def model():
    """A loss, its parameters and samples, and an optimiser: microgpt's on its names."""
    config = gpt.Config(steps=10**9)
    names = gpt.names()
    random.Random(42).shuffle(names)
    run = gpt.Run.start(names, config, validation=0.0)
    samples = [(run.tokenizer.encode(name),) for name in run.data.training[:1000]]
    params = run.model.arrays()

    def loss(weights, tokens):
        return gpt.GPT.of(config, weights).loss(tokens)

    return loss, params, samples, optim.Adam(params, lr=1e-3)


def steps(count):
    loss, params, samples, optimiser = model()
    trainer = chainrule.compile(loss).trainer(params, samples, optimiser)
    for _ in range(TENTHS):
        trainer.advance(count // TENTHS)
        # Eight bytes of each loss are kept, and asked for.
        yield trainer.taken, resident_bytes() - trainer.losses.nbytes


def recompiled(count):
    loss, params, samples, _ = model()
    for done in range(1, count + 1):
        fast = chainrule.compile(loss)
        fast.trainer(params, samples[:20], optim.Adam(params, lr=0.0)).advance(10)
        del fast
        if done % (count // TENTHS) == 0:
            gc.collect()
            heap.trim()  # what was freed and is kept for later is no part of it
            yield done, resident_bytes()


SECTIONS = {"steps": (steps, 1_000_000), "compile": (recompiled, 100)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--share", type=float, default=1.0, help="of the full count")
    options = parser.parse_args()
    if unknown := [name for name in options.sections if name not in SECTIONS]:
        parser.error(f"no section {unknown[0]!r}: there are {', '.join(SECTIONS)}")
    print(machine())
    for name in options.sections or SECTIONS:
        section, count = SECTIONS[name]
        begin = clock()
        found = list(section(max(TENTHS, round(count * options.share))))
        rows = [
            [f"{done:,}", figure(resident, 1e-6, 1), f"{(resident - found[0][1]) / 1e6:+.1f}"]
            for done, resident in found
        ]
        title(f"{name}: MB resident ({clock() - begin:.0f} s)")
        table(["after", "MB", "since the first tenth"], rows)


if __name__ == "__main__":
    main()
