"""The programs that compile is measured on, each a plain function of Values.

A program is called as ``loss(params, *sample)`` and differentiated by ``params``. A contestant
passes it the trees of arrays in its own way: as nested lists of its number class, or as they are.
Eager mode has Values in the first argument only. In a product they come first, so that the order of
``backward()``, and with it every bit, is the same where the data are Values too.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scalar_gpt


@dataclass(frozen=True)
class Program:
    """A loss and what it is called with, trees of arrays, floats and integers.

    The calls take the samples in turn, for no training script meets the same one twice in a row.
    """

    loss: Callable[..., Any]
    params: Any
    samples: tuple[tuple[Any, ...], ...] = ((),)


def nested(tree, number):
    """A tree of arrays as the program reads it: lists in place of arrays, numbers by ``number``."""
    if isinstance(tree, dict):
        return {name: nested(item, number) for name, item in tree.items()}
    if isinstance(tree, list | tuple):
        return [nested(item, number) for item in tree]
    if isinstance(tree, np.ndarray):
        return nested(tree.tolist(), number)
    return tree if isinstance(tree, int) else number(tree)


def flat(tree):
    """The numbers of a tree of lists or arrays, in order."""
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, list | tuple):
        return [x for item in tree for x in flat(item)]
    return tree.ravel().tolist() if isinstance(tree, np.ndarray) and tree.ndim else [tree]


# --- microgpt -------------------------------------------------------------------------------------


def gpt(letters, names=8):
    weights = {name: np.array(rows) for name, rows in scalar_gpt.parameters(float).items()}
    rng, end = random.Random(letters), scalar_gpt.VOCABULARY - 1
    samples = [[end, *[rng.randrange(end) for _ in range(letters)], end] for _ in range(names)]
    return Program(scalar_gpt.loss, weights, tuple((tokens,) for tokens in samples))


# --- micrograd's network on two moons -------------------------------------------------------------


def moons_loss(layers, points, labels):
    """Max-margin loss and a little weight decay, as in micrograd's demonstration."""
    losses = []
    for x, label in zip(points, labels, strict=True):
        for depth, layer in enumerate(layers):
            x = [
                sum((w * v for w, v in zip(row, x, strict=True)), bias)
                for row, bias in zip(layer["w"], layer["b"], strict=True)
            ]
            if depth < len(layers) - 1:
                x = [v.relu() for v in x]
        losses.append((1 + x[0] * -label).relu())
    decay = sum(p * p for layer in layers for row in [*layer["w"], layer["b"]] for p in row)
    return sum(losses) * (1.0 / len(losses)) + decay * 1e-4


def moons(count=100, sizes=(2, 16, 16, 1)):
    rng = np.random.default_rng(1)
    layers = [
        {"w": rng.uniform(-1, 1, (fan_out, fan_in)), "b": np.zeros(fan_out)}
        for fan_in, fan_out in pairwise(sizes)
    ]
    angles = np.linspace(0, math.pi, count // 2)
    upper = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    lower = np.stack([1 - np.cos(angles), 0.5 - np.sin(angles)], axis=1)
    points = np.concatenate([upper, lower]) + rng.normal(0, 0.1, (2 * len(angles), 2))
    labels = np.repeat([-1.0, 1.0], len(angles))
    return Program(moons_loss, layers, ((points, labels),))


# --- a Gaussian mixture ---------------------------------------------------------------------------


def log_sum_exp(terms):
    top = max(v.data for v in terms)
    return sum((v - top).exp() for v in terms).log() + top


def mixture_loss(params, points):
    """The mean negative log likelihood; diagonal covariances, up to a constant."""
    precisions = [[(-s).exp() for s in row] for row in params["log_scale"]]
    weights = [
        logit - sum(row) for logit, row in zip(params["logit"], params["log_scale"], strict=True)
    ]
    total = 0
    for point in points:
        terms = []
        for weight, mean, precision in zip(weights, params["mean"], precisions, strict=True):
            scaled = [(m - x) * p for m, x, p in zip(mean, point, precision, strict=True)]
            terms.append(weight - sum(z * z for z in scaled) * 0.5)
        total = total + log_sum_exp(terms)
    return log_sum_exp(params["logit"]) - total * (1.0 / len(points))


def mixture(count=100, components=5, dimensions=3):
    rng = np.random.default_rng(2)
    params = {
        "logit": rng.normal(0, 0.5, components),
        "mean": rng.normal(0, 1.5, (components, dimensions)),
        "log_scale": rng.normal(0, 0.3, (components, dimensions)),
    }
    return Program(mixture_loss, params, ((rng.normal(0, 1.5, (count, dimensions)),),))


# --- a Monte-Carlo option -------------------------------------------------------------------------

STRIKE = 100.0


def option_loss(params, normals):
    """The price of an Asian call over one year; its gradient are the Greeks."""
    spot, rate, volatility = params["spot"], params["rate"], params["volatility"]
    steps = len(normals[0])
    drift = (rate - volatility * volatility * 0.5) * (1.0 / steps)
    spread = volatility * math.sqrt(1.0 / steps)
    total = 0
    for path in normals:
        price, prices = spot, 0
        for normal in path:
            price = price * (spread * normal + drift).exp()
            prices = prices + price
        total = total + (prices * (1.0 / steps) - STRIKE).relu()
    return total * (1.0 / len(normals)) * (-rate).exp()


def option(paths=200, steps=20):
    normals = np.random.default_rng(3).normal(size=(paths, steps))
    params = {"spot": 100.0, "rate": 0.05, "volatility": 0.2}
    return Program(option_loss, params, ((normals,),))


# --- a small convolution --------------------------------------------------------------------------

SIZE, FILTERS, KERNEL, CLASSES = 12, 4, 3, 10


def convolution_loss(params, image, target):
    """Convolve, relu, mean over 2×2, a dense layer, cross-entropy."""
    features, steps = [], range(KERNEL)
    for kernel, bias in zip(params["kernel"], params["bias"], strict=True):
        span = range(SIZE - KERNEL + 1)
        map_ = [
            [
                sum((kernel[i][j] * image[y + i][x + j] for i in steps for j in steps), bias).relu()
                for x in span
            ]
            for y in span
        ]
        features += [
            (map_[y][x] + map_[y][x + 1] + map_[y + 1][x] + map_[y + 1][x + 1]) * 0.25
            for y in span[::2]
            for x in span[::2]
        ]
    logits = [sum(w * v for w, v in zip(row, features, strict=True)) for row in params["dense"]]
    return log_sum_exp(logits) - logits[target]


def convolution():
    rng = np.random.default_rng(4)
    pooled = (SIZE - KERNEL + 1) // 2
    params = {
        "kernel": rng.normal(0, 0.3, (FILTERS, KERNEL, KERNEL)),
        "bias": rng.normal(0, 0.1, FILTERS),
        "dense": rng.normal(0, 0.2, (CLASSES, FILTERS * pooled**2)),
    }
    samples = [(rng.normal(size=(SIZE, SIZE)), target) for target in (3, 7, 0, 9)]
    return Program(convolution_loss, params, tuple(samples))


# --- Rosenbrock's valley, and three recurrences ---------------------------------------------------


def rosenbrock_loss(x):
    return sum((b - a * a) ** 2 * 100 + (1 - a) ** 2 for a, b in pairwise(x))


def rosenbrock(size=200):
    return Program(rosenbrock_loss, np.random.default_rng(5).normal(0, 1, size))


LORENZ_STEPS, LORENZ_STEP = 1_000, 0.01


def lorenz_loss(params):
    """Euler's method; where the trajectory ends."""
    x, y, z = params["start"]
    for _ in range(LORENZ_STEPS):
        dx = params["sigma"] * (y - x)
        dy = x * (params["rho"] - z) - y
        dz = x * y - params["beta"] * z
        x, y, z = x + dx * LORENZ_STEP, y + dy * LORENZ_STEP, z + dz * LORENZ_STEP
    return x + y + z


def lorenz():
    params = {"start": np.array([1.0, 2.0, 20.0]), "sigma": 10.0, "rho": 28.0, "beta": 8.0 / 3.0}
    return Program(lorenz_loss, params)


PENDULUM_STEPS, PENDULUM_STEP = 1_000, 0.01


def kicked(params, angle, speed):
    force = params["gravity"] * angle.sin() + params["friction"] * speed
    return speed - force * (PENDULUM_STEP / 2)


def pendulum_loss(params):
    """Leapfrog with friction; how far from upright it ends."""
    angle, speed = params["angle"], params["speed"]
    for _ in range(PENDULUM_STEPS):
        speed = kicked(params, angle, speed)
        angle = angle + speed * PENDULUM_STEP
        speed = kicked(params, angle, speed)
    return 1 + angle.cos() + speed * speed * 0.5


def pendulum():
    params = {"angle": 1.0, "speed": 0.5, "gravity": 9.81, "friction": 0.1}
    return Program(pendulum_loss, params)


def rnn_loss(params, xs):
    """The mean squared error of predicting a sequence's next number."""
    state, total = params["start"], 0
    for x, target in pairwise(xs):
        state = [
            (sum((w * h for w, h in zip(row, state, strict=True)), bias) + w_in * x).tanh()
            for row, w_in, bias in zip(params["w"], params["w_in"], params["bias"], strict=True)
        ]
        error = sum(w * h for w, h in zip(params["w_out"], state, strict=True)) - target
        total = total + error * error
    return total * (1.0 / (len(xs) - 1))


def rnn(steps=200, width=16):
    rng = np.random.default_rng(6)
    params = {
        "start": np.zeros(width),
        "w": rng.normal(0, 0.25, (width, width)),
        "w_in": rng.normal(0, 0.5, width),
        "bias": rng.normal(0, 0.1, width),
        "w_out": rng.normal(0, 0.3, width),
    }
    return Program(rnn_loss, params, ((np.sin(0.3 * np.arange(steps + 1)),),))


# --- a graph without any structure ----------------------------------------------------------------

NODES, OPEN = 5_000, 24


def random_graph():
    """Operations on earlier positions; every result is used, ``OPEN`` of them at the end."""
    rng = random.Random(7)
    unused, operations = list(range(OPEN)), []
    for position in range(OPEN, NODES):
        slot = rng.randrange(OPEN)
        kind = rng.choice(["add", "add", "mul", "mul", "tanh", "sin", "sigmoid"])
        operations.append((kind, unused[slot], rng.randrange(position)))
        unused[slot] = position
    return operations, unused


OPERATIONS, LAST = random_graph()


def irregular_loss(params):
    nodes = list(params)
    for kind, i, j in OPERATIONS:
        a, b = nodes[i], nodes[j]
        if kind == "add":
            nodes.append(a + b)
        elif kind == "mul":
            nodes.append(a * b)
        else:
            nodes.append(getattr(a, kind)())
    return sum(nodes[i].tanh() for i in LAST)


def irregular():
    return Program(irregular_loss, np.random.default_rng(7).uniform(-1, 1, OPEN))


PROGRAMS = {
    "gpt-8": lambda: gpt(7),  # a name of seven letters has eight positions: each predicts the next
    "gpt-16": lambda: gpt(15),
    "moons": moons,
    "mixture": mixture,
    "option": option,
    "convolution": convolution,
    "rosenbrock": rosenbrock,
    "lorenz": lorenz,
    "pendulum": pendulum,
    "rnn": rnn,
    "irregular": irregular,
}
