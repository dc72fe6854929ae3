"""Functions that keep numbers outside, eagerly and compiled, beside the same without them.

    python benchmarks/kept.py            # a network of two layers; --hidden 48 for a larger one

A counter of calls, a rate that follows from it, a list of losses and a running mean, around the
same loss: what a call of ``value_and_grad`` takes, and what keeping the numbers adds to a replay.
"""

import argparse

import numpy as np
from harness import WHOLE, figure, machine, ratio, repeated, table, take_turns, title

import chainrule
from chainrule import dot, tanh

US = 1e6
CALLS = 50  # in one turn
WARM = 20

steps, history = 0, []


class Tracker:
    """Counts calls and keeps a running mean, as loggers do."""

    def __init__(self):
        self.calls, self.mean = 0, 0.0

    def update(self, number):
        self.calls += 1
        self.mean += (number - self.mean) / self.calls


tracker = Tracker()


def loss(p, x, y):
    hidden = [tanh(dot(row, x) + b) for row, b in zip(p["w1"], p["b1"], strict=True)]
    hidden = [tanh(dot(row, hidden) + b) for row, b in zip(p["w2"], p["b2"], strict=True)]
    return (dot(p["w3"], hidden) - y) ** 2


def counted(p, x, y):
    global steps
    steps += 1
    return loss(p, x, y)


def scheduled(p, x, y):
    global steps
    steps += 1
    return loss(p, x, y) * (0.1 * (1 - steps / 1e9))


def logged(p, x, y):
    value = loss(p, x, y)
    history.append(value.data)
    return value


def tracked(p, x, y):
    value = loss(p, x, y)
    tracker.update(value.data)
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hidden", type=int, default=16, help="units of each layer")
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    rng, n = np.random.default_rng(0), options.hidden
    shapes = {"w1": (n, 8), "b1": n, "w2": (n, n), "b2": n, "w3": n}
    p = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    x, y = rng.normal(size=8).tolist(), 0.3
    print(machine())
    title(f"value_and_grad of a network with two layers of {n} units, in µs")
    rows = []
    for f in (loss, counted, scheduled, logged, tracked):
        eager, fast = chainrule.value_and_grad(f), chainrule.compile(f)
        for _ in range(WARM):
            fast.value_and_grad(p, x, y)
        both = {
            "eager": repeated(lambda eager=eager: eager(p, x, y), CALLS),
            "compiled": repeated(lambda fast=fast: fast.value_and_grad(p, x, y), CALLS),
        }
        found = {name: phases[WHOLE] for name, phases in take_turns(both, options.repeats).items()}
        times = [figure(found[name], US, 1) for name in both]
        rows.append([f.__name__, *times, ratio(found["eager"], found["compiled"])])
        history.clear()
    table(["", "eager", "compiled", "times as fast"], rows)


if __name__ == "__main__":
    main()
