"""How fast eager mode is: the native engine beside the reference, the seeds' class and its peers.

    python benchmarks/eager.py            everything, a few minutes
    python benchmarks/eager.py --quick    fewer repeats and shorter chains
    python benchmarks/eager.py step peers some sections; --help lists them

What each section prints is described in the README beside this file.
"""

import argparse
import sys
from array import array

import eager_calls
import mlp
import scalar_gpt
import seed_value
from harness import (
    WHOLE,
    Laps,
    figure,
    fresh_process,
    machine,
    ratio,
    resident_bytes,
    table,
    take_turns,
    title,
    whole,
)
from operations import operations

from chainrule.core import value as reference

try:
    from chainrule import _native
    from chainrule.core import native
except ImportError:
    sys.exit("the native engine was not built: install chainrule with a C compiler")

MS = 1e3
SLAB_BYTES = 1 << 18  # what src/native asks the system for at a time

CLASSES = {
    "the seeds' class": seed_value.Value,
    "reference engine": reference.Value,
    "native engine": native.Value,
}

# --- a training step ------------------------------------------------------------------------------


class NativeAdam(scalar_gpt.PythonAdam):
    """The same update by the C kernel."""

    def __init__(self, params):
        super().__init__(params)
        self.m, self.v = array("d", self.m), array("d", self.v)

    def step(self):
        self.t += 1
        biases = 1 - self.beta1**self.t, 1 - self.beta2**self.t
        settings = self.lr, self.beta1, self.beta2, self.eps, *biases, 0.0
        _native.adam(self.params, self.m, self.v, *settings)
        for p in self.params:
            p.grad = 0.0


class Trainer:
    """One contestant: a model of its own, and a training step measured in phases."""

    def __init__(self, cls, adam=scalar_gpt.PythonAdam, linear=scalar_gpt.plain_linear):
        self.weights = scalar_gpt.parameters(cls)
        self.params = scalar_gpt.flat(self.weights)
        self.optimiser = adam(self.params)
        self.linear = linear
        self.losses = []

    def step(self):
        laps = Laps()
        loss = scalar_gpt.loss(self.weights, scalar_gpt.TOKENS, self.linear)
        laps("forward")
        loss.backward()
        laps("backward")
        self.optimiser.step()
        laps("optimiser")
        self.losses.append(loss.data)
        del loss
        laps("free")
        return laps.seconds

    def bits(self):
        """Everything that training has computed, to the last bit."""
        return [x.hex() for x in (*self.losses, *[p.data for p in self.params])]


def check_equal(trainers):
    first, *others = trainers
    for name in others:
        if trainers[name].bits() != trainers[first].bits():
            sys.exit(f"{name!r} and {first!r} do not compute the same bits")


def step(quick):
    repeats, checked = (5, 3) if quick else (40, 5)
    seeds, slow, fast = CLASSES
    trainers = {
        seeds: Trainer(seed_value.Value),
        slow: Trainer(reference.Value),
        fast: Trainer(native.Value),
        "native, native Adam": Trainer(native.Value, NativeAdam),
        "native, native Adam, linear": Trainer(native.Value, NativeAdam, native.linear),
    }
    for _ in range(checked):
        for trainer in trainers.values():
            trainer.step()
    check_equal(trainers)

    # The same script over plain floats makes no graph: it shows what the interpreter itself takes.
    floats, weights = "plain floats", scalar_gpt.parameters(float)
    functions = scalar_gpt.FLOATS
    contestants = {name: trainer.step for name, trainer in trainers.items()}
    contestants[floats] = whole(
        lambda: scalar_gpt.loss(weights, scalar_gpt.TOKENS, functions=functions), "forward"
    )
    best = take_turns(contestants, repeats)
    check_equal(trainers)

    before = _native.allocation_counts()[0]
    end = scalar_gpt.loss(trainers[fast].weights, scalar_gpt.TOKENS)
    nodes = _native.allocation_counts()[0] - before
    del end
    title(
        f"A microgpt-like training step, milliseconds (width {scalar_gpt.WIDTH}, "
        f"{len(scalar_gpt.TOKENS) - 1} positions, {nodes:,} nodes; minima of {repeats} repeats; "
        f"losses and parameters bit-identical over {checked + repeats} steps)"
    )
    phases = ["forward", "backward", "optimiser", "free", WHOLE]
    rows = []
    for name in trainers:
        times = [figure(best[name][phase], MS) for phase in phases]
        ratios = [ratio(best[other][WHOLE], best[name][WHOLE]) for other in (seeds, slow)]
        rows.append([name, *times, *ratios])
    rows.append([floats, figure(best[floats]["forward"], MS), *[""] * 6])
    table(["", *phases, "vs seeds", "vs reference"], rows)
    share = ratio(best[fast]["forward"], best[floats]["forward"])
    print(f"\nThe native forward pass takes {share} what plain floats take.")


# --- memory and long chains -----------------------------------------------------------------------


def chain(cls, length):
    x, y = cls(0.0), cls(1e-3)
    for _ in range(length):
        x = x + y
    return x


def chain_bytes(name, length):
    """Bytes per node: by what this process grew, and in the native engine's slabs."""
    chain(CLASSES[name], 1000)
    before = resident_bytes()
    end = chain(CLASSES[name], length)
    resident = None if before is None else (resident_bytes() - before) / length
    live, slabs, _ = _native.allocation_counts()
    del end
    return resident, slabs * SLAB_BYTES / live if live else None


def memory(quick):
    length = 200_000 if quick else 1_000_000
    title(f"Bytes per node (a chain of {length:,} additions, each in a fresh process)")
    sizes = {name: fresh_process(chain_bytes, name, length) for name in CLASSES}
    smallest = sizes["native engine"][0]
    rows = []
    for name, (resident, slabs) in sizes.items():
        cells = [figure(resident, digits=1), figure(slabs, digits=1)]
        rows.append([name, *cells, ratio(resident, smallest)])
    table(["", "resident", "in slabs", "vs native"], rows)


def chain_phases(name, length):
    laps = Laps()
    end = chain(CLASSES[name], length)
    laps("built")
    end.backward()
    laps("swept")
    del end
    laps("freed")
    return laps.seconds


def float_chain(length):
    return whole(lambda: chain(float, length), "built")()


def long_chain(quick):
    length, share, repeats = (1_000_000, 20, 2) if quick else (10_000_000, 200, 5)
    slow, fast, floats = "reference engine", "native engine", "plain floats"
    scales = {slow: share, fast: 1, floats: 1}
    contestants = {
        slow: lambda: fresh_process(chain_phases, slow, length // share),
        fast: lambda: fresh_process(chain_phases, fast, length),
        floats: lambda: fresh_process(float_chain, length),
    }
    best = take_turns(contestants, repeats)
    title(
        f"A chain of {length:,} additions built, swept and freed, seconds (minima of {repeats} "
        f"repeats, each in a fresh process; the reference engine's is 1/{share} as long, its "
        f"figures times {share})"
    )
    phases = ["built", "swept", "freed", WHOLE]
    rows = []
    for name, scale in scales.items():
        times = [figure(best[name].get(phase), scale) for phase in phases]
        rows.append([name, *times, ratio(best[name][WHOLE] * scale, best[fast][WHOLE])])
    table(["", *phases, "vs native"], rows)


# --- peers ----------------------------------------------------------------------------------------


def peers(quick):
    repeats = 5 if quick else 40
    contestants, missing = mlp.contestants(native, reference)
    best = take_turns({name: whole(peer) for name, peer in contestants.items()}, repeats)
    title(
        f"Loss and gradient of a small network, milliseconds ({mlp.DESCRIPTION}; gradients agree; "
        f"minima of {repeats} repeats)"
    )
    rows = []
    for name, seconds in best.items():
        time = seconds[WHOLE]
        rows.append([name, figure(time, MS, 3), ratio(time, best[mlp.NATIVE][WHOLE])])
    table(["", "ms", "vs native"], rows)
    for name in missing:
        print(f"{name} is not installed: skipped")


SECTIONS = {
    "step": step,
    "transforms": eager_calls.transforms,
    "fallback": eager_calls.fallback,
    "operations": lambda quick: operations(native, reference, quick),
    "memory": memory,
    "chain": long_chain,
    "peers": peers,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--quick", action="store_true", help="fewer repeats and shorter chains")
    options = parser.parse_args()
    if unknown := [name for name in options.sections if name not in SECTIONS]:
        parser.error(f"no section {unknown[0]!r}: there are {', '.join(SECTIONS)}")
    print(machine())
    for name in options.sections or SECTIONS:
        SECTIONS[name](options.quick)


if __name__ == "__main__":
    main()
