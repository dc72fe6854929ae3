"""Whole training steps: what ``fast.train`` takes per step, Adam included.

    python benchmarks/train.py                 all sections; --quick: fewer repeats
    python benchmarks/train.py steps loops     some: steps, calls, cores, cold, loops
    python benchmarks/train.py --names FILE    documents, one per line (else the bundled names)

The model is chainrule.gpt's, the names come in their shuffled order, with all their lengths. One
thread, but for the section ``cores``.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from time import perf_counter
from typing import Any

os.environ.setdefault("CHAINRULE_THREADS", "1")

import batch_models
import numpy as np
import train_peers
from harness import WHOLE, clock, figure, machine, ratio, repeated, table, take_turns, title
from programs import PROGRAMS, flat

import chainrule
from chainrule import gpt, optim

US = 1e6
NAMES = 4000  # of the file
ALL = 32_000  # at most, where each comes once
CALL = 0.03  # seconds that a thread takes for a call of ``cores``
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


def peer(kind):
    """A contestant of ``train_peers``."""
    return lambda task, names: kind(task, started(task, names), NAMES)


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

    most = NAMES

    def __init__(self, task, names):
        run = started(task, names)
        self.task = task
        self.function = chainrule.compile(loss_of(task.config), dtype=task.dtype, lift=True)
        self.samples = [(run.tokenizer.encode(name),) for name in run.data.training[: self.most]]
        self.params = {name: a.astype(task.dtype) for name, a in run.model.arrays().items()}
        config = task.config
        betas = (config.beta1, config.beta2)
        self.optimiser = optim.Adam(self.params, lr=config.learning_rates(), betas=betas)

    def advance(self, steps):
        batch = self.task.batch
        losses = self.function.train(self.params, self.samples, self.optimiser, steps, batch=batch)
        return losses.tolist()


class Once(Train):
    """The same over all names, in calls that read each of them once: those of the first step too.

    What was recorded is kept between two calls, but no packed sample.
    """

    most = ALL

    def advance(self, steps):
        self.optimiser.steps = 0
        return super().advance(steps)


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


@dataclass(frozen=True)
class Contestant:
    """Who takes part, with how many steps in a turn, and at most how many turns."""

    make: Any
    steps: int
    turns: int | None = None


def contestants(task, names):
    once = NAMES // task.batch  # every name comes once
    found = {
        "eager": Contestant(Eager, 3, 2),
        "loop": Contestant(Loop, min(once, 200)),
        "train": Contestant(Train, 10 * once if task.width < 64 else 2 * once),
        "train, each name once": Contestant(Once, min(names, ALL) // task.batch),
    }
    if find_spec("jax"):
        if task.batch == 1:
            found["JAX, a call each step"] = Contestant(peer(train_peers.Jax), 1000)
        found["JAX, lax.scan"] = Contestant(peer(train_peers.JaxScan), min(once, 1000), 3)
    if which("gcc"):
        found["C by hand"] = Contestant(peer(train_peers.HandWritten), once)
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
    for name, contestant in contestants(task, len(names)).items():
        found = contestant.make(task, names).advance(steps)
        if not np.allclose(found, wanted, rtol=0, atol=tolerance):
            sys.exit(f"{task}: {name!r} does not train to the losses of eager mode")


def measure(task, names, quick):
    """Seconds per step of everybody, and until the first step of those who build something."""
    agree(task, names)
    turns, first = {}, {}
    for name, contestant in contestants(task, len(names)).items():
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


# --- calls, cores ------------------------------------------------------------------------


def calls_section(names, quick):
    """What a call takes besides its steps."""
    task, repeats = TASKS[0], 100 if quick else 500
    prepared = Train(task, names)
    function, arguments = prepared.function, (prepared.params, prepared.samples, prepared.optimiser)
    trainer = function.trainer(*arguments)
    trainer.advance(NAMES)
    made = {
        "trainer.advance(1)": lambda: trainer.advance(1),
        "trainer.advance(10)": lambda: trainer.advance(10),
        "train(steps=10)": lambda: function.train(*arguments, 10),
        "train(steps=10, callback=...)": lambda: function.train(
            *arguments, 10, callback=lambda losses, step: None
        ),
    }
    best = take_turns({name: repeated(f, 1) for name, f in made.items()}, repeats)
    step = take_turns({"": timed(trainer, NAMES)}, 5)[""][WHOLE]
    rows = []
    for name, seconds in best.items():
        count = 1 if name.endswith("(1)") else 10
        besides = seconds[WHOLE] - count * step
        rows.append([name, figure(seconds[WHOLE], US, 0), figure(besides, US, 0)])
    title(
        f"Calls over {NAMES:,} names, microseconds: with their steps, and besides them "
        f"({step * US:.1f} each); minima of {repeats}"
    )
    table(["", "call", "besides"], rows)


def on_cores(names):
    """Name, loss, parameters, samples, samples in a step and type of numbers."""
    for width, dtype, batch in ((16, "float32", 64), (64, "float32", 64), (64, "float32", 256)):
        task = Task(width, batch, dtype)
        one = Train(task, names)
        yield str(task), loss_of(task.config), one.params, one.samples, batch, dtype
    for name, (loss, params, samples) in batch_models.models(count=1024).items():
        for dtype in ("float64", "float32"):
            mine = {key: array.astype(dtype) for key, array in params.items()}
            yield f"{name}, {dtype}, 64 per step", loss, mine, samples, 64, dtype


def cores_section(names, quick):
    """Large steps, many in a call, with one thread and with two, in wall time."""
    rows = []
    for name, loss, params, samples, batch, dtype in on_cores(names):
        seconds, losses = {}, {}
        steps, trainers = len(samples) // batch, {}
        for threads in (1, 2):
            mine = {key: array.copy() for key, array in params.items()}
            function = chainrule.compile(loss, dtype=dtype, lift=True)
            trainers[threads] = function.trainer(
                mine, samples, optim.Adam(mine, lr=1e-3), batch=batch, threads=threads
            )
            losses[threads] = trainers[threads].advance(16 * steps).copy()
        begin = time.perf_counter()
        trainers[1].advance(steps)
        steps = max(2, round(CALL * steps / (time.perf_counter() - begin)))
        for _ in range(20 if quick else 100):
            for threads, trainer in trainers.items():
                begin = time.perf_counter()
                trainer.advance(steps)
                now = (time.perf_counter() - begin) / steps / batch
                seconds[threads] = min(now, seconds.get(threads, now))
        if not (losses[1] == losses[2]).all():
            sys.exit(f"{name}: threads do not train to the same bits")
        cells = [figure(seconds[n], US, 3) for n in (1, 2)]
        rows.append([name, *cells, ratio(seconds[1], seconds[2])])
    title("Cores: microseconds per sample, wall time, minima; the losses have the same bits")
    table(["", "one thread", "two", "quicker"], rows)


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


def of_arrays(loss):
    """The loss of such parameters: a program calls methods of numbers, which arrays do not have."""

    def numbers(tree):
        if isinstance(tree, dict):
            return {name: numbers(item) for name, item in tree.items()}
        return tree if np.ndim(tree) else tree[()]

    return lambda params, *sample: loss(numbers(params), *sample)


def loops_section(names, quick):
    rows = []
    for name in LOOPS:
        program = PROGRAMS[name]()
        params = as_arrays(program.params)
        begin = clock()
        fast = chainrule.compile(of_arrays(program.loss))
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


SECTIONS = {
    "steps": steps_section,
    "calls": calls_section,
    "cores": cores_section,
    "cold": cold_section,
    "loops": loops_section,
}


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
