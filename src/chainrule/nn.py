"""Neural networks one scalar at a time: micrograd's modules, and the functions of a GPT.

``Neuron``, ``Layer`` and ``MLP`` are micrograd's, with its constructors, its ``repr`` and its
graphs. The functions below them (``softmax``, ``rmsnorm``, ``cross_entropy``, ...) take plain
vectors: a list of Values or numbers gives a list, a numpy array gives an array, and rows
of rows are taken row by row. No logit is too large for ``softmax`` or ``cross_entropy``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from operator import add, mul
from typing import Any

import numpy as np

from chainrule.core.backend import Value
from chainrule.core.backend import linear as matrix_times_vector
from chainrule.core.functions import exp, log, relu

__all__ = [
    "Module",
    "Neuron",
    "Layer",
    "MLP",
    "linear",
    "softmax",
    "log_softmax",
    "rmsnorm",
    "layernorm",
    "cross_entropy",
    "mse",
    "hinge",
]

Number = Value | float


class Module:
    """Something with parameters.

    A subclass says what its parameters are; ``zero_grad`` and the optimisers need no more.

    >>> from chainrule import Value, nn
    >>> class Line(nn.Module):
    ...     def __init__(self):
    ...         self.slope, self.height = Value(2.0), Value(1.0)
    ...     def __call__(self, x):
    ...         return self.slope * x + self.height
    ...     def parameters(self):
    ...         return [self.slope, self.height]
    >>> line = Line()
    >>> line(3.0).backward()
    >>> [p.grad for p in line.parameters()]
    [3.0, 1.0]
    >>> line.zero_grad()
    >>> [p.grad for p in line.parameters()]
    [0.0, 0.0]
    """

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to zero."""
        for p in self.parameters():
            p.grad = 0.0

    def parameters(self) -> list[Value]:
        """Every number that training may change."""
        return []


class Neuron(Module):
    """A weighted sum of its inputs plus a bias, through relu unless ``nonlin=False``.

    >>> from chainrule import nn
    >>> neuron = nn.Neuron(2)
    >>> neuron
    ReLUNeuron(2)
    >>> len(neuron.parameters())
    3
    """

    def __init__(self, nin: int, nonlin: bool = True) -> None:
        self.w = [Value(random.uniform(-1, 1)) for _ in range(nin)]
        self.b = Value(0)
        self.nonlin = nonlin

    def __call__(self, x: Sequence[Number]) -> Value:
        """``relu(b + w·x)``, or without the relu."""
        if len(x) != len(self.w):
            raise ValueError(f"a neuron with {len(self.w)} inputs was given {len(x)}")
        act = sum((wi * xi for wi, xi in zip(self.w, x, strict=True)), self.b)
        return _relu(act) if self.nonlin else act

    def parameters(self) -> list[Value]:
        """The weights, then the bias."""
        return [*self.w, self.b]

    def __repr__(self) -> str:
        return f"{'ReLU' if self.nonlin else 'Linear'}Neuron({len(self.w)})"


class Layer(Module):
    """Some neurons that see the same inputs; a layer of one neuron returns its output alone.

    >>> from chainrule import nn
    >>> nn.Layer(3, 2, nonlin=False)
    Layer of [LinearNeuron(3), LinearNeuron(3)]
    """

    def __init__(self, nin: int, nout: int, **kwargs: Any) -> None:
        self.neurons = [Neuron(nin, **kwargs) for _ in range(nout)]

    def __call__(self, x: Sequence[Number]) -> Any:
        """The output of every neuron, in a list unless there is only one."""
        out = [neuron(x) for neuron in self.neurons]
        return out[0] if len(out) == 1 else out

    def parameters(self) -> list[Value]:
        """The parameters of every neuron."""
        return [p for neuron in self.neurons for p in neuron.parameters()]

    def __repr__(self) -> str:
        return f"Layer of [{', '.join(map(str, self.neurons))}]"


class MLP(Module):
    """Layers one after the other, relu between them, the last one linear.

    >>> from chainrule import nn
    >>> model = nn.MLP(2, [2, 1])
    >>> model
    MLP of [Layer of [ReLUNeuron(2), ReLUNeuron(2)], Layer of [LinearNeuron(2)]]
    >>> score = model([1.0, -2.0])
    >>> score.backward()
    >>> len(model.parameters())
    9
    """

    def __init__(self, nin: int, nouts: Sequence[int]) -> None:
        sizes = [nin, *nouts]
        self.layers = [
            Layer(sizes[i], sizes[i + 1], nonlin=i != len(nouts) - 1) for i in range(len(nouts))
        ]

    def __call__(self, x: Any) -> Any:
        """What the last layer returns."""
        for layer in self.layers:
            x = layer(x if _is_vector(x) else [x])
        return x

    def parameters(self) -> list[Value]:
        """The parameters of every layer."""
        return [p for layer in self.layers for p in layer.parameters()]

    def __repr__(self) -> str:
        return f"MLP of [{', '.join(map(str, self.layers))}]"


# --- functions of vectors -----------------------------------------------------------------------


def linear(x: Any, weights: Any, bias: Any = None) -> Any:
    """A matrix times a vector, ``[dot(row, x) for row in weights]``, plus a bias if there is one.

    >>> from chainrule import Value, nn
    >>> weights = [[Value(3.0), Value(4.0)], [Value(5.0), Value(6.0)]]
    >>> [y.data for y in nn.linear([1.0, 2.0], weights, bias=[0.5, 0.25])]
    [11.5, 17.25]
    """

    def one(row: list[Number]) -> list[Number]:
        y: list[Number] = [*matrix_times_vector(row, matrix)]
        return y if offsets is None else [a + b for a, b in zip(y, offsets, strict=True)]

    matrix = [_elements(row, "a row of the weights") for row in weights]
    width = len(_first_row(x))
    for row in matrix:
        if len(row) != width:
            raise ValueError(f"linear: {width} inputs need rows of {width} weights, got {len(row)}")
    offsets = None if bias is None else _elements(bias, "the bias")
    if offsets is not None and len(offsets) != len(matrix):
        raise ValueError(f"linear: {len(matrix)} outputs need as many biases, got {len(offsets)}")
    return _by_rows(one, x, "linear")


def softmax(logits: Any) -> Any:
    """Probabilities in proportion to ``exp(logit)``; they add up to 1.

    The largest logit is subtracted first, so that no exponential overflows.

    >>> from chainrule import Value, nn
    >>> [p.data for p in nn.softmax([Value(1000.0), Value(1000.0)])]
    [0.5, 0.5]
    """

    def one(row: list[Number]) -> list[Number]:
        exps = [_exp(x) for x in _less_largest(row)]
        total = sum(exps)
        return [e / total for e in exps]

    return _by_rows(one, logits, "softmax")


def log_softmax(logits: Any) -> Any:
    """The logarithms of ``softmax``, without the underflow of taking them one after the other.

    >>> from chainrule import Value, nn
    >>> [p.data for p in nn.log_softmax([Value(0.0), Value(-2000.0)])]
    [0.0, -2000.0]
    """

    def one(row: list[Number]) -> list[Number]:
        shifted = _less_largest(row)
        log_total = log(sum(_exp(x) for x in shifted))
        return [x - log_total for x in shifted]

    return _by_rows(one, logits, "log_softmax")


def rmsnorm(x: Any, eps: float = 1e-5) -> Any:
    """The vector scaled so that the mean of its squares is 1 (but for ``eps``).

    >>> from chainrule import Value, nn
    >>> [round(y.data, 3) for y in nn.rmsnorm([Value(3.0), Value(4.0)])]
    [0.849, 1.131]
    """

    def one(row: list[Number]) -> list[Number]:
        mean_square = sum(xi * xi for xi in row) / len(row)
        scale = (mean_square + eps) ** -0.5
        return [xi * scale for xi in row]

    return _by_rows(one, x, "rmsnorm")


def layernorm(x: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    """The vector moved and scaled to mean 0 and variance 1 (but for ``eps``).

    Then multiplied by ``weight`` and moved by ``bias``, element by element, where they are given.

    >>> from chainrule import Value, nn
    >>> [round(y.data, 3) for y in nn.layernorm([Value(1.0), Value(3.0)])]
    [-1.0, 1.0]
    """

    def one(row: list[Number]) -> list[Number]:
        mean = sum(row) / len(row)
        centred = [xi - mean for xi in row]
        variance = sum(c * c for c in centred) / len(row)
        scale = (variance + eps) ** -0.5
        y = [c * scale for c in centred]
        for given, name, apply in ((weight, "weight", mul), (bias, "bias", add)):
            if given is not None:
                numbers = _elements(given, f"layernorm's {name}")
                if len(numbers) != len(y):
                    raise ValueError(
                        f"layernorm: a vector of {len(y)} needs a {name} of {len(y)}, "
                        f"got {len(numbers)}"
                    )
                y = [apply(a, b) for a, b in zip(y, numbers, strict=True)]
        return y

    return _by_rows(one, x, "layernorm")


# --- losses -------------------------------------------------------------------------------------


def cross_entropy(logits: Any, target: Any) -> Any:
    """How surprised the model is: minus the log-probability it gave to the target, an index.

    For rows of logits and a list of targets, the mean over the rows.

    >>> from chainrule import Value, nn
    >>> loss = nn.cross_entropy([Value(2.0), Value(1.0), Value(0.0)], 0)
    >>> round(loss.data, 6)
    0.407606
    """
    if _is_rows(logits):
        if len(logits) != len(target):
            raise ValueError(
                f"cross_entropy: {len(logits)} rows need as many targets, got {len(target)}"
            )
        losses = [cross_entropy(row, t) for row, t in zip(logits, target, strict=True)]
        return sum(losses) / len(losses)
    row = _elements(logits, "the logits of cross_entropy")
    shifted = _less_largest(row)
    return log(sum(_exp(x) for x in shifted)) - _chosen(shifted, target)


def mse(predictions: Any, targets: Any) -> Any:
    """The mean squared error.

    >>> from chainrule import Value, nn
    >>> nn.mse([Value(1.0), Value(2.0)], [1.0, 4.0]).data
    2.0
    """
    pairs = _pairs(predictions, targets, "mse", "targets")
    return sum((p - t) ** 2 for p, t in pairs) / len(pairs)


def hinge(scores: Any, labels: Any) -> Any:
    """The mean of ``relu(1 - label·score)``, labels being -1 or 1: the loss of micrograd's demo.

    >>> from chainrule import Value, nn
    >>> nn.hinge([Value(0.5), Value(2.0)], [1, 1]).data
    0.25
    """
    pairs = _pairs(scores, labels, "hinge", "labels")
    return sum(_relu(1 + -label * score) for score, label in pairs) / len(pairs)


# --- what the functions share -------------------------------------------------------------------


def _data(x: Number) -> float:
    return x.data if isinstance(x, Value) else x


# The methods of a Value are a good deal faster than the functions, which take anything.
_PLAIN_NUMBERS = (int, float, np.generic)


def _exp(x: Any) -> Any:
    return exp(float(x)) if isinstance(x, _PLAIN_NUMBERS) else x.exp()


def _relu(x: Any) -> Any:
    return relu(float(x)) if isinstance(x, _PLAIN_NUMBERS) else x.relu()


def _less_largest(row: list[Number]) -> list[Any]:
    """The logits less the largest, so that no exponential overflows."""
    largest = max(_data(x) for x in row)
    return [x - largest for x in row]


def _chosen(row: list[Number], target: Any) -> Number:
    if type(target) is int and not 0 <= target < len(row):
        raise IndexError(f"cross_entropy: target {target} is not one of {len(row)} classes")
    chosen: Number = row[target]
    return chosen


def _is_vector(x: Any) -> bool:
    return isinstance(x, (list, tuple, np.ndarray))


def _is_rows(x: Any) -> bool:
    return _is_vector(x) and len(x) > 0 and _is_vector(x[0])


def _first_row(x: Any) -> Any:
    while _is_rows(x):
        x = x[0]
    return _elements(x, "the input of linear")


def _elements(x: Any, name: str) -> list[Number]:
    if not _is_vector(x):
        raise TypeError(f"{name} must be a list or an array, not a {type(x).__name__}")
    if len(x) == 0:
        raise ValueError(f"{name} is empty")
    return x.tolist() if isinstance(x, np.ndarray) else list(x)


def _by_rows(function: Callable[[list[Number]], list[Number]], x: Any, name: str) -> Any:
    """``function`` of a vector, or of every row in nested rows; arrays stay arrays."""
    if _is_rows(x):
        result: Any = [_by_rows(function, row, name) for row in x]
    else:
        result = function(_elements(x, f"the input of {name}"))
    if not isinstance(x, np.ndarray):
        return result
    dtype = object if any(isinstance(y, Value) for y in _flat(result)) else float
    return np.array(result, dtype=dtype)


def _flat(x: Any) -> Iterator[Any]:
    """The numbers of nested lists and arrays; a number alone counts as a vector of one."""
    if not _is_vector(x):
        yield x
        return
    for element in x:
        yield from _flat(element)


def _pairs(a: Any, b: Any, name: str, second: str) -> list[tuple[Any, Any]]:
    left, right = list(_flat(a)), list(_flat(b))
    if len(left) != len(right):
        raise ValueError(f"{name}: {len(left)} numbers need as many {second}, got {len(right)}")
    if not left:
        raise ValueError(f"{name} of nothing is undefined")
    return list(zip(left, right, strict=True))
