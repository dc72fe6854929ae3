"""Whole training steps: what ``fast.train`` takes per step, Adam included.

    python benchmarks/train.py                 all sections; --quick: fewer repeats
    python benchmarks/train.py steps loops     some sections: steps, cold, loops
    python benchmarks/train.py --names FILE    documents, one per line (else the bundled names)

The model is chainrule.gpt's, the names come in their shuffled order, with all their lengths.
"""

import argparse
import os
import random
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from harness import WHOLE, clock, figure, machine, ratio, repeated, table, take_turns, title
from programs import PROGRAMS, flat

import chainrule
from chainrule import gpt, optim

US = 1e6
NAMES = 1000  # of the file
CHECKED = 30  # steps whose losses are compared with those of eager mode


@dataclass(frozen=True)
class Task:
    """A model and how it is trained."""

    width: int
    batch: int
    dtype: str

    @property
    def config(self):
        return gpt.Config(width=self.width, batch=self.batch, steps=10**6)

    def __str__(self):
        return f"width {self.width}, {self.dtype}, {self.batch} per step"


TASKS = [
    Task(width=16, batch=1, dtype="float64"),
    Task(width=16, batch=16, dtype="float64"),
    Task(width=16, batch=16, dtype="float32"),
    Task(width=64, batch=16, dtype="float32"),
]

# --- contestants ----------------------------------------------------------------------------------
# A contestant is made for a task and documents. ``advance(steps)`` trains on, in order, and returns
# the losses.


def started(task, names):
    """A run of the package, for its weights, tokens and document order."""
    return gpt.Run.start(names, task.config, validation=0.0)


class Eager:
    """A graph per name, on the engine in use, and its Adam."""

    def __init__(self, task, names):
        self.run = started(task, names)

    def advance(self, steps):
        return [self.run.advance().loss for _ in range(steps)]


def loss_of(config):
    def loss(weights, tokens):
        return gpt.GPT.of(config, weights).loss(tokens)

    return loss


class Train:
    """``fast.train``."""

    def __init__(self, task, names):
        run = started(task, names)
        self.task = task
        self.function = chainrule.compile(loss_of(task.config), dtype=task.dtype)
        self.samples = [(run.tokenizer.encode(name),) for name in run.data.training[:NAMES]]
        self.params = {name: a.astype(task.dtype) for name, a in run.model.arrays().items()}
        config = task.config
        betas = (config.beta1, config.beta2)
        self.optimiser = optim.Adam(self.params, lr=config.learning_rates(), betas=betas)

    def advance(self, steps):
        batch = self.task.batch
        losses = self.function.train(self.params, self.samples, self.optimiser, steps, batch=batch)
        return losses.tolist()


class Loop(Train):
    """The same, with the loop in Python."""

    def advance(self, steps):
        losses, batch, samples = [], self.task.batch, self.samples
        for _ in range(steps):
            first = self.optimiser.steps * batch
            chosen = [samples[(first + i) % len(samples)] for i in range(batch)]
            if batch == 1:
                value, grads = self.function.value_and_grad(self.params, *chosen[0])
            else:
                value, grads = self.function.batch_value_and_grad(self.params, chosen)
            self.optimiser.step(grads)
            losses.append(value)
        return losses


class Jax:
    """One jitted step of loss, gradient and Adam, compiled anew for every length."""

    def __init__(self, task, names):
        import tensors

        jax, jnp = tensors.jax, tensors.jnp
        run, config = started(task, names), task.config
        short = {
            "wte": "token_embedding",
            "wpe": "position_embedding",
            "lm_head": "head",
            "wq": "layers.0.attention.query",
            "wk": "layers.0.attention.key",
            "wv": "layers.0.attention.value",
            "wo": "layers.0.attention.output",
            "up": "layers.0.mlp.widen",
            "down": "layers.0.mlp.narrow",
        }
        arrays = run.model.arrays()
        weights = {name: jnp.asarray(arrays[long]) for name, long in short.items()}
        zeros = jax.tree_util.tree_map(jnp.zeros_like, weights)
        beta1, beta2 = config.beta1, config.beta2

        def step(state, t, tokens):
            weights, m, v = state
            loss, grads = jax.value_and_grad(tensors.gpt_loss)(weights, tokens)
            rate = config.learning_rate * (1 - t / config.steps)
            each = jax.tree_util.tree_map
            m = each(lambda m, g: beta1 * m + (1 - beta1) * g, m, grads)
            v = each(lambda v, g: beta2 * v + (1 - beta2) * g * g, v, grads)
            bias1, bias2 = 1 - beta1 ** (t + 1), 1 - beta2 ** (t + 1)
            weights = each(
                lambda p, m, v: p - rate * (m / bias1) / (jnp.sqrt(v / bias2) + 1e-8), weights, m, v
            )
            return (weights, m, v), loss

        self.step = jax.jit(step, donate_argnums=0)
        self.state, self.time = (weights, zeros, jax.tree_util.tree_map(jnp.copy, zeros)), count()
        encoded = [run.tokenizer.encode(name) for name in run.data.training[:NAMES]]
        longest = config.block + 1
        self.samples = [jnp.asarray(tokens[:longest]) for tokens in encoded]

    def advance(self, steps):
        losses = []
        for t in islice(self.time, steps):
            tokens = self.samples[t % len(self.samples)]
            self.state, loss = self.step(self.state, float(t), tokens)
            losses.append(loss)
        return [float(loss) for loss in losses]


@dataclass(frozen=True)
class Contestant:
    """Who takes part, with how many steps in a turn, and at most how many turns."""

    make: Any
    steps: int
    turns: int | None = None


def contestants(task):
    once = NAMES // task.batch  # every name comes once
    found = {
        "eager": Contestant(Eager, 3, 2),
        "loop": Contestant(Loop, min(once, 200)),
        "train": Contestant(Train, 10 * once if task.width < 64 else 4 * once),
        "train, each name once": Contestant(Train, once),
    }
    if find_spec("jax") and task.batch == 1 and task.dtype == "float64":
        found["JAX"] = Contestant(Jax, once)
    return found


# --- steps ----------------------------------------------------------------------------------------


def compiles(dtype):
    try:
        chainrule.compile(lambda x: x * 2, dtype=dtype)
    except ValueError:
        return False
    return True


def agree(task, names):
    """The losses of all contestants are those of eager mode."""
    steps = CHECKED if task.width < 64 else 2
    tolerance = 1e-9 if task.dtype == "float64" else 1e-3
    wanted = Eager(task, names).advance(steps)
    for name, contestant in contestants(task).items():
        found = contestant.make(task, names).advance(steps)
        if not np.allclose(found, wanted, rtol=0, atol=tolerance):
            sys.exit(f"{task}: {name!r} does not train to the losses of eager mode")


def measure(task, names, quick):
    """Seconds per step of everybody, and until the first step of those who build something."""
    agree(task, names)
    turns, first = {}, {}
    for name, contestant in contestants(task).items():
        begin = clock()
        running = contestant.make(task, names)
        running.advance(1)
        first[name] = clock() - begin
        if contestant.turns is None:
            running.advance(NAMES // task.batch)  # every name was seen: nothing is left to build
        turns[name] = limited(timed(running, contestant.steps), contestant.turns)
    best = take_turns(turns, 5 if quick else 30)
    return {name: seconds[WHOLE] for name, seconds in best.items()}, first


def timed(contestant, steps):
    def turn():
        begin = clock()
        contestant.advance(steps)
        return {"step": (clock() - begin) / steps}

    return turn


def limited(turn, most):
    """A turn that is repeated so many times at most; then the best counts again."""
    seen = []

    def some():
        if most is None or len(seen) < most:
            seen.append(turn())
        return min(seen, key=lambda seconds: seconds["step"])

    return some


def steps_section(names, quick):
    rows = []
    for task in TASKS:
        if not compiles(task.dtype):
            print(f"{task}: not compiled in {task.dtype}: skipped")
            continue
        best, first = measure(task, names, quick)
        for name, seconds in best.items():
            rows.append(
                [
                    f"{task}: {name}",
                    figure(seconds, US, 1),
                    figure(seconds / task.batch, US, 2),
                    ratio(seconds, best["train"]),
                    figure(first[name], digits=2),
                ]
            )
    title(
        "Training steps, microseconds: loss, gradient and Adam, names as they come; seconds until "
        f"the first step is done (minima of {5 if quick else 30} turns)"
    )
    table(["", "per step", "per name", "against train", "first, s"], rows)


# --- a cold process -------------------------------------------------------------------------------

COLD = """
import time
began = time.perf_counter()
import chainrule
from chainrule import gpt, optim
imported = time.perf_counter()
config = gpt.Config()
run = gpt.Run.start(gpt.names(), config, validation=0.0)
weights = run.model.arrays()
samples = [(run.tokenizer.encode(name),) for name in run.data.training[:1000]]
optimiser = optim.Adam(weights, lr=config.learning_rates(), betas=(config.beta1, config.beta2))
ready = time.perf_counter()
fast = chainrule.compile(lambda weights, tokens: gpt.GPT.of(config, weights).loss(tokens))
fast.train(weights, samples, optimiser, 1)
done = time.perf_counter()
fast.train(weights, samples, optimiser, 999)
print(imported - began, ready - imported, done - ready, time.perf_counter() - done)
"""


def cold_section(names, quick):
    parts = ("start Python", "import", "names, weights", "first step", "until then", "999 more")
    best = None
    for _ in range(3 if quick else 10):
        begin = perf_counter()
        process = subprocess.run(
            [sys.executable, "-c", COLD], capture_output=True, text=True, check=True
        )
        whole = perf_counter() - begin
        imports, data, first, more = map(float, process.stdout.split())
        start = whole - imports - data - first - more
        figures = (start, imports, data, first, start + imports + data + first, more)
        best = figures if best is None else tuple(map(min, best, figures))
    title(
        "A cold process, seconds of wall time: until the first step of a width 16 model is done, "
        f"and the 999 after it (minima of {3 if quick else 10} processes)"
    )
    table(["", "seconds"], [[n, figure(s, digits=3)] for n, s in zip(parts, best, strict=True)])


# --- loops ----------------------------------------------------------------------------------------

LOOPS = ("rnn", "lorenz", "pendulum")


def as_arrays(tree):
    """The parameters of a program, numbers as arrays too, so that they can change in place."""
    if isinstance(tree, dict):
        return {name: as_arrays(item) for name, item in tree.items()}
    return np.array(tree, np.float64)


def loops_section(names, quick):
    rows = []
    for name in LOOPS:
        program = PROGRAMS[name]()
        params = as_arrays(program.params)
        begin = clock()
        fast = chainrule.compile(program.loss)
        value, grads = fast.value_and_grad(params, *program.samples[0])
        first = clock() - begin
        optimiser = optim.Adam(params, lr=0.0)
        samples, sample = list(program.samples), program.samples[0]
        turns = {
            "call": repeated(lambda f=fast, p=params, s=sample: f.value_and_grad(p, *s), 20),
            "train": timed(Trained(fast, params, samples, optimiser), 50),
        }
        if find_spec("jax"):
            import tensors

            peer = tensors.JaxJit(program)
            wanted, slopes = peer.result()
            if not (np.isclose(value, wanted) and np.allclose(flat(grads), slopes, rtol=1e-6)):
                sys.exit(f"{name}: JAX does not find the loss and gradient")
            turns["JAX"] = repeated(peer, 20)
        best = take_turns(turns, 5 if quick else 30)
        seconds = {n: found[WHOLE] for n, found in best.items()}
        path = fast.report().splitlines()[0].partition(": ")[2]
        cells = [figure(seconds.get(n), US, 1) for n in ("call", "train", "JAX")]
        rows.append([name, path, *cells, figure(first, digits=3)])
    title("Loops: microseconds per call and per training step; seconds until the first result")
    table(["", "path", "call", "train", "JAX", "first, s"], rows)


class Trained:
    """A program that trains."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def advance(self, steps):
        return self.function.train(*self.arguments, steps)


SECTIONS = {"steps": steps_section, "cold": cold_section, "loops": loops_section}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="section", help=", ".join(SECTIONS))
    parser.add_argument("--names", type=Path, help="documents, one per line")
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    options = parser.parse_args()
    if unknown := [name for name in options.sections if name not in SECTIONS]:
        parser.error(f"no section {unknown[0]!r}: there are {', '.join(SECTIONS)}")
    names = gpt.read_documents(options.names) if options.names else gpt.names()
    random.Random(42).shuffle(names)
    print(machine())
    print(f"{len(names):,} names, {os.cpu_count()} cores, engine {chainrule.engine}")
    for section in options.sections or SECTIONS:
        SECTIONS[section](names, options.quick)


if __name__ == "__main__":
    main()
