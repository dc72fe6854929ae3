"""The laboratory for networks: two-dimensional points, and an MLP that learns to tell them apart.

The network is plain scalar code. Called with arrays of parameters it is compiled and trained; with
Values it is the graph that a page shows; with whole grids of points it paints what each neuron
sees. It is the same function each time.
"""

from __future__ import annotations

import base64
import math
import random
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np

from chainrule.compiler import compile
from chainrule.core.backend import Value, topological_order
from chainrule.core.functions import relu, tanh
from chainrule.core.ops import Op
from chainrule.optim import SGD, Adam, Optimizer, constant
from chainrule.play import datasets
from chainrule.play.lab import TURN, Lab
from chainrule.play.settings import Given, PlayError, choice, numbers, real, whole
from chainrule.see.explanation import explain_with
from chainrule.see.page import page_of

Number = Any  # a Value, a float, or an array of floats: a whole grid at once
Layer = dict[str, Any]  # "w", a row of weights for each neuron, and "b"

MOST_LAYERS, MOST_NEURONS = 3, 8
SIDE = 48  # points of a picture, across and down; those of single neurons have half as many
DRAWN = 800  # nodes; the graph of one point is shown whole up to here
_SMALLEST_CALL = 16  # steps
#: for numbers and Values, and for the arrays of a picture
ACTIVATIONS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tanh": (tanh, np.tanh),
    "relu": (relu, lambda x: np.maximum(x, 0.0)),
}


def neurons(
    layers: Sequence[Layer],
    point: Sequence[Number],
    activation: Callable[[Number], Number],
    squash: Callable[[Number], Number],
) -> list[list[Number]]:
    """What every neuron says about a point, layer by layer; the last one is the answer."""
    found: list[list[Number]] = []
    x = point
    for depth, layer in enumerate(layers, 1):
        function = squash if depth == len(layers) else activation
        x = [
            function(sum((w * xi for w, xi in zip(row, x, strict=True)), b))
            for row, b in zip(layer["w"], layer["b"], strict=True)
        ]
        found.append(x)
    return found


def point_loss(answer: Number, target: Number) -> Number:
    """How wrong an answer is: the square of its distance from the target, -1 or 1."""
    return (answer - target) ** 2


def make_loss(activation: str) -> Callable[[Any, Any, Any], Any]:
    """The mean loss over some points, as a function of the parameters."""
    function = ACTIVATIONS[activation][0]

    def loss(layers: Any, points: Any, targets: Any) -> Any:
        total = 0.0
        for point, target in zip(points, targets, strict=True):
            answer = neurons(layers, point, function, tanh)[-1][0]
            total = total + point_loss(answer, target)
        return total / len(points)

    return loss


class NetworkLab(Lab):
    """A network in training."""

    actions: ClassVar = ("start", "rate", "weight")

    def __init__(self) -> None:
        super().__init__()
        self.data: datasets.Dataset | None = None
        self.version = 0

    # --- what is asked ----------------------------------------------------------------------------

    def _start(self, given: Given) -> dict[str, Any]:
        """New data and a new network."""
        data = datasets.make(given)
        hidden = numbers(given, "hidden", MOST_LAYERS, 1, MOST_NEURONS)
        activation = choice(given, "activation", tuple(ACTIVATIONS))
        optimiser = choice(given, "optimiser", ("adam", "sgd"))
        rate = real(given, "rate", 1e-6, 10.0)
        seed = whole(given, "seed", 0, 10**9)
        self._begin()
        self.data, self.activation = data, activation
        self.layers = _first_layers([2, *hidden, 1], seed)
        self.optimiser: Optimizer = (Adam if optimiser == "adam" else SGD)(self.layers, lr=rate)
        self.loss = compile(make_loss(activation), on_fallback="eager", lift=True)
        self.one_loss = compile(make_loss(activation), on_fallback="eager")
        self.samples = [(data.points, data.targets)]
        self._at_once = _SMALLEST_CALL
        axis = np.linspace(-data.reach, data.reach, SIDE)
        self.grid = np.meshgrid(axis, -axis)
        self.version += 1
        points = [[*map(_rounded, p), t] for p, t in zip(data.points, data.targets, strict=True)]
        return {
            "version": self.version,
            "points": points,
            "reach": data.reach,
            "kinds": data.kinds,
            "parameters": sum(a.size for layer in self.layers for a in layer.values()),
        }

    def _rate(self, given: Given) -> dict[str, Any]:
        """Another learning rate from here on."""
        self._started()
        self.optimiser.schedule = constant(real(given, "rate", 1e-6, 10.0))
        return {}

    def _weight(self, given: Given) -> dict[str, Any]:
        """Why a weight's gradient is what it is: each point's part of it, and the graph of one."""
        data = self._started()
        layer = whole(given, "layer", 0, len(self.layers) - 1)
        name = choice(given, "of", ("w", "b"))
        array = self.layers[layer][name]
        row = whole(given, "row", 0, len(array) - 1)
        place = (row, whole(given, "column", 0, array.shape[1] - 1)) if name == "w" else (row,)
        parts = [
            float(
                self.one_loss.value_and_grad(self.layers, p[None], t[None])[1][layer][name][place]
            )
            for p, t in zip(data.points, data.targets, strict=True)
        ]
        chosen = int(np.argmax(np.abs(parts)))
        if given.get("point") is not None:
            chosen = whole(given, "point", 0, len(parts) - 1)
        page, node, called = self._graph(chosen, layer, name, place)
        return {
            "page": page,
            "node": node,
            "name": called,
            "point": chosen,
            "parts": parts,
            "value": float(array[place]),
            "grad": float(self._gradients()[layer][name][place]),
            "step": self.optimiser.steps,
        }

    def _graph(
        self, point: int, layer: int, name: str, place: tuple[int, ...]
    ) -> tuple[str, int, str]:
        """The page of one point's loss, and where in it the weight is."""
        assert self.data is not None
        model = {
            f"layer{depth}.{key}": _values(array.tolist())
            for depth, arrays in enumerate(self.layers, 1)
            for key, array in arrays.items()
        }
        layers = [
            {key: model[f"layer{depth}.{key}"] for key in ("w", "b")}
            for depth in range(1, len(self.layers) + 1)
        ]
        xs = [Value(float(x), label=f"x{i}") for i, x in enumerate(self.data.points[point], 1)]
        target = Value(float(self.data.targets[point]), label="target")
        found = neurons(layers, xs, ACTIVATIONS[self.activation][0], tanh)
        for depth, row in enumerate(found, 1):
            for i, value in enumerate(row):
                value.label = "answer" if depth == len(found) else f"h{depth}[{i}]"
        loss = point_loss(found[-1][0], target)
        loss.label = "loss"
        weight = layers[layer][name]
        for i in place:
            weight = weight[i]
        explanation = explain_with(depending_on(weight, loss), model)
        node = next(i for i, v in enumerate(explanation.values) if v is weight)
        return page_of(explanation, DRAWN).html, node, explanation.nodes[node].name

    def _started(self) -> datasets.Dataset:
        if self.data is None:
            raise PlayError("there is no network yet")
        return self.data

    # --- training ---------------------------------------------------------------------------------

    def _losses(self, most: int) -> list[float]:
        self._started()
        losses: list[float] = []
        deadline = time.perf_counter() + TURN
        while len(losses) < most:
            began = time.perf_counter()
            steps = min(self._at_once, most - len(losses))
            losses += self.loss.train(
                self.layers, self.samples, self.optimiser, steps=steps
            ).tolist()
            now = time.perf_counter()
            if now - began < TURN / 4:
                self._at_once = min(self._at_once * 2, 4096)
            elif now - began > TURN:
                self._at_once = max(self._at_once // 2, 1)
            if now > deadline:
                break
        return losses

    def _gradients(self) -> Any:
        data = self._started()
        return self.loss.value_and_grad(self.layers, data.points, data.targets)[1]

    # --- how it stands ----------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything that the page shows, as of now."""
        if self.data is None:
            return {"version": 0}
        data = self.data
        try:
            loss, gradients = self.loss.value_and_grad(self.layers, data.points, data.targets)
        except ArithmeticError as error:  # the weights have grown too large to compute with
            self.running, self.trouble = False, str(error)
            loss, gradients = None, map_arrays(np.zeros_like, self.layers)
        plain = map_arrays(np.ndarray.tolist, self.layers)
        paint = ACTIVATIONS[self.activation][1]
        with np.errstate(all="ignore"):
            painted = neurons(plain, self.grid, paint, np.tanh)
            answers = neurons(plain, list(data.points.T), paint, np.tanh)
        right = float(((answers[-1][0] > 0) == (data.targets > 0)).mean())
        return {
            "version": self.version,
            "running": self.running,
            "trouble": self.trouble,
            "step": self.optimiser.steps,
            "rate": self.rate,
            "loss": loss,
            "right": right,
            "curve": self.curve.data(),
            "layers": [
                {
                    "w": _digits(layer["w"].tolist()),
                    "b": _digits(layer["b"].tolist()),
                    "w_grad": _digits(gradient["w"].tolist()),
                    "b_grad": _digits(gradient["b"].tolist()),
                }
                for layer, gradient in zip(self.layers, gradients, strict=True)
            ],
            "flow": [
                _rounded(float(np.abs(np.append(g["w"].ravel(), g["b"])).mean())) for g in gradients
            ],
            "neurons": [[_picture(image[::2, ::2]) for image in row] for row in painted[:-1]],
            "answer": _picture(painted[-1][0]),
        }


def depending_on(leaf: Value, result: Value) -> Value:
    """The graph of ``result`` without what does not depend on a leaf, which enters as numbers.

    Data, local gradients and the leaf's gradient are those of the whole graph, to the last bit.

    >>> from chainrule import Value, topological_order
    >>> from chainrule.play.network import depending_on
    >>> w, x = Value(2.0), Value(3.0)
    >>> result = w * x + (x * 4 + x).tanh()
    >>> part = depending_on(w, result)
    >>> len(topological_order(result)), len(topological_order(part))
    (8, 5)
    >>> part.backward()
    >>> part.data == result.data, w.grad
    (True, 3.0)
    """
    again = {id(leaf): leaf}  # what depends on it, computed once more
    for v in topological_order(result):
        if not any(id(child) in again for child in v.children):
            continue
        op = v._rule
        assert isinstance(op, Op)
        operands = [again[id(child)] if id(child) in again else _cut(child) for child in v.children]
        again[id(v)] = made = Value._apply_op(op, operands, v._parameters)
        made.label = v.label
    return again[id(result)]


def _cut(v: Value) -> Value:
    return Value(v.data, label=v.label) if v.children else v


def _first_layers(sizes: Sequence[int], seed: int) -> list[Layer]:
    """Random weights, small enough that no neuron is saturated; biases of 0."""
    rng = random.Random(seed)
    return [
        {
            "w": np.array([[rng.gauss(0, 1 / math.sqrt(n)) for _ in range(n)] for _ in range(m)]),
            "b": np.zeros(m),
        }
        for n, m in pairwise(sizes)
    ]


def map_arrays(function: Callable[[Any], Any], layers: Sequence[Layer]) -> list[Layer]:
    """A function of every array of some layers."""
    return [{key: function(array) for key, array in layer.items()} for layer in layers]


def _values(numbers: Any) -> Any:
    """Nested lists of numbers as Values."""
    return [_values(x) for x in numbers] if isinstance(numbers, list) else Value(numbers)


def _picture(image: Any) -> dict[str, Any]:
    """An image in bytes: 0 is the most negative number, 255 the most positive, 128 is zero."""
    image = np.nan_to_num(image)
    most = max(1.0, float(np.abs(image).max()))
    levels = np.rint(128 + image / most * 127).astype(np.uint8)
    pixels = base64.b64encode(levels.tobytes()).decode()
    return {"side": len(image), "most": _rounded(most), "pixels": pixels}


def _rounded(x: float) -> float:
    """Few digits, as these numbers are sent many times a second."""
    return float(f"{x:.5g}")


def _digits(numbers: Any) -> Any:
    return [_digits(x) for x in numbers] if isinstance(numbers, list) else _rounded(numbers)
