"""Optimisers: from gradients to better parameters.

``SGD``, ``Adam`` and ``AdamW`` take either a list of Values, whose gradients ``backward()`` left in
``.grad`` (``step()``, ``zero_grad()``), or a tree of dicts, lists and numpy arrays, whose gradients
come as a tree of the same shape (``step(grads)``); both are changed in place. Over Values, Adam's
update is microgpt's to the last bit; over arrays it is the same formula with ``g * g`` and
``sqrt``, which vectorise, in the arrays' own float64 or float32. A learning rate is a number or a
schedule: any function of the step, such as ``linear``, ``cosine`` and ``warmup`` make.
"""

from __future__ import annotations

import contextlib
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from chainrule.core.backend import Value
from chainrule.trees import Array, is_record, leaves

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Schedule",
    "constant",
    "linear",
    "cosine",
    "warmup",
    "clip_gradients",
]

Schedule = Callable[[int], float]

# The C engine brings the same updates as kernels. They are looked up at every step, so that tests
# can switch them off and compare.
_engine = importlib.import_module("chainrule.core.backend")


# --- learning rates -----------------------------------------------------------------------------


def constant(lr: float) -> Schedule:
    """The same learning rate at every step.

    >>> from chainrule import optim
    >>> optim.constant(0.1)(7)
    0.1
    """
    return _Constant(lr)


def linear(lr: float, steps: int) -> Schedule:
    """From ``lr`` down to 0 in a straight line: ``lr * (1 - step / steps)``.

    >>> from chainrule import optim
    >>> rate = optim.linear(0.5, steps=100)
    >>> rate(0), rate(50), rate(100), rate(101)
    (0.5, 0.25, 0.0, 0.0)
    """
    _positive(steps, "steps")
    return _Linear(lr, steps)


def cosine(lr: float, steps: int) -> Schedule:
    """From ``lr`` down to 0 along half a cosine: slowly, quickly, slowly.

    >>> from chainrule import optim
    >>> rate = optim.cosine(0.5, steps=100)
    >>> rate(0), round(rate(50), 15), rate(100)
    (0.5, 0.25, 0.0)
    """
    _positive(steps, "steps")
    return lambda step: lr * 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))


def warmup(schedule: Schedule | float, steps: int) -> Schedule:
    """Rise to the schedule during the first steps: ``schedule(step) * (step + 1) / steps``.

    >>> from chainrule import optim
    >>> rate = optim.warmup(0.8, steps=4)
    >>> [rate(step) for step in range(6)]
    [0.2, 0.4, 0.6000000000000001, 0.8, 0.8, 0.8]
    """
    _positive(steps, "steps")
    rate = _schedule(schedule)
    return lambda step: rate(step) * min(1.0, (step + 1) / steps)


@dataclass(frozen=True)
class _Constant:
    lr: float

    def __call__(self, step: int) -> float:
        return self.lr

    def every(self, steps: Array) -> Array:
        """The rates of many steps at once, to the same bits."""
        return np.full(len(steps), self.lr)


@dataclass(frozen=True)
class _Linear:
    lr: float
    steps: float

    def __call__(self, step: int) -> float:
        return self.lr * (1 - min(step, self.steps) / self.steps)

    def every(self, steps: Array) -> Array:
        """The rates of many steps at once, to the same bits."""
        found: Array = self.lr * (1 - np.minimum(steps, self.steps) / self.steps)
        return found


def rates(schedule: Schedule, first: int, count: int) -> Array:
    """The learning rates of steps; fewer where the schedule raises."""
    last = first + count
    if isinstance(schedule, _Linear):  # integers must be floats without rounding
        last += schedule.steps if type(schedule.steps) is int else 2**53
    many = schedule if isinstance(schedule, _Constant | _Linear) else None
    if many is not None and type(many.lr) is float and last < 2**53:
        return many.every(np.arange(first, first + count))
    found: list[float] = []
    with contextlib.suppress(Exception):
        for step in range(first, first + count):
            found.append(float(schedule(step)))
    return np.array(found)


def _schedule(lr: Schedule | float) -> Schedule:
    return lr if callable(lr) else constant(float(lr))


def _positive(number: float, name: str) -> None:
    if not number > 0:
        raise ValueError(f"{name} must be positive, not {number}")


def _fraction(number: float, name: str) -> None:
    if not 0 <= number < 1:
        raise ValueError(f"{name} must be at least 0 and less than 1, not {number}")


# --- parameters ---------------------------------------------------------------------------------


def _checked_array(path: str, leaf: Any) -> Array:
    if isinstance(leaf, np.ndarray) and leaf.dtype in (np.float64, np.float32):
        if not leaf.flags.writeable:
            raise ValueError(f"{path} is a read-only array; parameters change in place")
        return leaf
    kind = f"an array of {leaf.dtype}" if isinstance(leaf, np.ndarray) else type(leaf).__name__
    raise TypeError(f"{path} must be a Value or an array of float64 or float32, not {kind}")


class _Values:
    """Parameters that are Values: one flat vector of numbers, scattered over objects."""

    dtype = np.dtype(np.float64)

    def __init__(self, values: list[Value]) -> None:
        self.values = values
        self.size = len(values)

    def square(self, numbers: Array) -> Array:
        return _power(numbers, 2.0)

    def root(self, numbers: Array) -> Array:
        return _power(numbers, 0.5)

    def grads(self, grads: Any) -> list[Array]:
        if grads is not None:
            raise TypeError("the gradients of Values are in their .grad: call step() without any")
        return [np.array([p.grad for p in self.values])]

    def read(self) -> list[Array]:
        return [np.array([p.data for p in self.values])]

    def write(self, numbers: Sequence[Array]) -> None:
        for p, number in zip(self.values, numbers[0].tolist(), strict=True):
            p.data = number

    def parts(self) -> list[slice]:
        return [slice(0, self.size)]


class _Arrays:
    """Parameters that are arrays, anywhere in a tree of dicts, lists and tuples."""

    def __init__(self, arrays: dict[str, Array]) -> None:
        self.arrays = arrays
        self.sizes = [a.size for a in arrays.values()]
        self.size = sum(self.sizes)
        kinds = {a.dtype for a in arrays.values()}
        if len(kinds) > 1:
            raise TypeError("the arrays must be all of float64 or all of float32")
        self.dtype = kinds.pop()

    def square(self, numbers: Array) -> Array:
        return numbers * numbers

    def root(self, numbers: Array) -> Array:
        return np.sqrt(numbers)

    def grads(self, grads: Any) -> list[Array]:
        if grads is None:
            raise TypeError("parameters that are arrays need step(grads)")
        given = dict(leaves(grads, "params"))
        if given.keys() != self.arrays.keys():
            odd = sorted(given.keys() ^ self.arrays.keys())[0]
            raise ValueError(f"the gradients are not shaped like the parameters: see {odd}")
        for (path, array), size in zip(self.arrays.items(), self.sizes, strict=True):
            if array.size != size:  # its moments, and those of what follows, are elsewhere
                raise ValueError(
                    f"{path} was resized: it has {array.size} numbers, and had {size} when the "
                    "optimiser was made for it; make another one"
                )
            if np.shape(given[path]) != array.shape:
                raise ValueError(
                    f"the gradient of {path} has shape {np.shape(given[path])}, not {array.shape}"
                )
        with np.errstate(
            over="ignore"
        ):  # of float32: the update that it makes infinite is reported
            return [
                np.ascontiguousarray(given[path], dtype=array.dtype)
                for path, array in self.arrays.items()
            ]

    def read(self) -> list[Array]:
        return [a.flatten() for a in self.arrays.values()]

    def write(self, numbers: Sequence[Array]) -> None:
        for array, new in zip(self.arrays.values(), numbers, strict=True):
            array[...] = new.reshape(array.shape)

    def parts(self) -> list[slice]:
        parts, start = [], 0
        for array in self.arrays.values():
            parts.append(slice(start, start + array.size))
            start += array.size
        return parts


def _parameters(params: Any) -> _Values | _Arrays:
    if not isinstance(params, (dict, list, tuple, np.ndarray, Value)) and not is_record(params):
        params = list(params)  # a generator, for one
    found = dict(leaves(params, "params"))
    if not found:
        raise ValueError("an optimiser needs parameters, got none")
    if any(isinstance(leaf, Value) for leaf in found.values()):
        for path, leaf in found.items():
            if not isinstance(leaf, Value):
                raise TypeError(f"{path} is a {type(leaf).__name__} among Values")
        if len({id(leaf) for leaf in found.values()}) < len(found):
            raise ValueError("a Value appears twice among the parameters")
        return _Values(list(found.values()))
    return _Arrays({path: _checked_array(path, leaf) for path, leaf in found.items()})


def clip_gradients(params: Any, max_norm: float) -> float:
    """Scale the gradients down together so that their norm is at most ``max_norm``.

    ``params`` are Values, whose ``.grad`` is scaled, or a tree of gradient arrays, scaled in place.
    Returns the norm they had.

    >>> from chainrule import Value, optim
    >>> a, b = Value(1.0), Value(1.0)
    >>> a.grad, b.grad = 3.0, 4.0
    >>> optim.clip_gradients([a, b], max_norm=1.0)
    5.0
    >>> a.grad, b.grad
    (0.6000000000000001, 0.8)
    """
    _positive(max_norm, "max_norm")
    found = _parameters(params)
    if isinstance(found, _Values):
        norm = math.hypot(*[p.grad for p in found.values])
    else:
        norm = gradient_norm(found.arrays)
    if not math.isfinite(norm):
        raise ValueError(f"the norm of the gradients is {norm}: there is nothing to clip to")
    if norm > max_norm:
        scale = max_norm / norm
        if isinstance(found, _Values):
            for p in found.values:
                p.grad *= scale
        else:
            for array in found.arrays.values():
                array *= scale
    return norm


def gradient_norm(grads: Any) -> float:
    """The norm of all numbers of a tree of arrays together; squares that overflow do no harm."""
    norms = []
    for _, leaf in leaves(grads, "params"):
        array = np.asarray(leaf, np.float64)
        largest = float(np.abs(array).max(initial=0.0))
        if not math.isfinite(largest):
            return largest
        scale = largest if largest > 1e100 or 0 < largest < 1e-100 else 1.0
        norms.append(scale * float(np.linalg.norm(array / scale)))
    return math.hypot(*norms)


# --- optimisers ---------------------------------------------------------------------------------


class Optimizer:
    """What the optimisers share: parameters, the learning rate, the number of steps taken."""

    #: the names of the flat arrays that remember earlier gradients
    moments: tuple[str, ...] = ()

    weight_decay = 0.0

    def __init__(self, params: Any, lr: Schedule | float) -> None:
        if not callable(lr) and not lr >= 0:
            raise ValueError(f"the learning rate must be at least 0, not {lr}")
        self._params = _parameters(params)
        self.schedule = _schedule(lr)
        self.steps = 0
        for name in self.moments:
            setattr(self, name, np.zeros(self._params.size, self._params.dtype))

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return self.schedule(self.steps)

    @property
    def arrays(self) -> dict[str, Array]:
        """The arrays that it moves, by their places: ``params['w']``; none where it has Values."""
        return dict(self._params.arrays) if isinstance(self._params, _Arrays) else {}

    def zero_grad(self) -> None:
        """Set the gradient of every parameter to zero (for parameters that are Values)."""
        if isinstance(self._params, _Values):
            for p in self._params.values:
                p.grad = 0.0

    def step(self, grads: Any = None) -> None:
        """Move every parameter once, against its gradient."""
        kernels, params = _engine.kernels, self._params
        gradients = None
        if kernels is None or isinstance(params, _Arrays) or grads is not None:
            gradients = params.grads(grads)
        if kernels is None:
            self._plain_step(gradients or [])
        elif isinstance(params, _Values):
            self._kernel_values(kernels, params.values)
        else:
            arrays = params.arrays.values()
            for array, grad, part in zip(arrays, gradients or [], params.parts(), strict=True):
                # A kernel walks memory in order; an array that does not is updated as a copy.
                flat = np.ascontiguousarray(array).reshape(-1)
                self._kernel_array(kernels, flat, grad.reshape(-1), part)
                if not array.flags.c_contiguous:
                    array[...] = flat.reshape(array.shape)
        self.steps += 1

    def _plain_step(self, gradients: Sequence[Array]) -> None:
        numbers, moved = self._params.read(), []
        kept = {name: getattr(self, name).copy() for name in self.moments}
        with np.errstate(over="ignore", invalid="ignore"):  # as the kernels, which cannot warn
            for p, grad, part in zip(numbers, gradients, self._params.parts(), strict=True):
                parts = {name: kept[name][part] for name in self.moments}
                moved.append(self._update(p, grad.reshape(-1), **parts))
        # Nothing has changed until here: an error above leaves the optimiser as it was.
        self._params.write(moved)
        for name, moment in kept.items():
            getattr(self, name)[...] = moment

    def _set_decay(self, weight_decay: float) -> None:
        if not weight_decay >= 0:
            raise ValueError(f"weight_decay must be at least 0, not {weight_decay}")
        self.weight_decay = float(weight_decay)

    def _decayed(self, p: Array, lr: float) -> Array:
        return p - lr * self.weight_decay * p if self.weight_decay else p

    def _update(self, p: Array, g: Array, **moments: Array) -> Array:
        raise NotImplementedError

    def _kernel_values(self, kernels: Any, values: list[Value]) -> None:
        raise NotImplementedError

    def _kernel_array(self, kernels: Any, p: Array, grad: Array, part: slice) -> None:
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """Everything the next step depends on but the parameters: copies, safe to keep.

        >>> from chainrule import Value, optim
        >>> sorted(optim.Adam([Value(1.0)]).state_dict())
        ['m', 'steps', 'v']
        """
        state: dict[str, Any] = {"steps": self.steps}
        return state | {name: getattr(self, name).copy() for name in self.moments}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where ``state_dict()`` left off, bit for bit."""
        wanted = {"steps", *self.moments}
        if state.keys() != wanted:
            raise ValueError(f"the state holds {sorted(state)}, not {sorted(wanted)}")
        loaded = {name: np.array(state[name], self._params.dtype) for name in self.moments}
        for name, moment in loaded.items():
            if moment.shape != (self._params.size,):
                raise ValueError(
                    f"{name} has shape {moment.shape}; {self._params.size} parameters need "
                    f"({self._params.size},)"
                )
        self.steps = int(state["steps"])
        for name, moment in loaded.items():
            setattr(self, name, moment)


class SGD(Optimizer):
    """Gradient descent: ``velocity = momentum * velocity + g``, then ``p -= lr * velocity``.

    Weight decay is decoupled: ``p -= lr * weight_decay * p`` before the update.

    >>> from chainrule import Value, optim
    >>> x = Value(4.0)
    >>> optimizer = optim.SGD([x], lr=0.1)
    >>> for _ in range(50):
    ...     optimizer.zero_grad()
    ...     loss = (x - 3) ** 2
    ...     loss.backward()
    ...     optimizer.step()
    >>> round(x.data, 3)
    3.0
    """

    moments = ("velocity",)
    velocity: Array

    def __init__(
        self,
        params: Any,
        lr: Schedule | float = 0.01,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
    ) -> None:
        _fraction(momentum, "momentum")
        super().__init__(params, lr)
        self._set_decay(weight_decay)
        self.momentum = float(momentum)

    def _update(self, p: Array, g: Array, **moments: Array) -> Array:
        velocity = moments["velocity"]
        lr = self.lr
        velocity[...] = self.momentum * velocity + g
        return self._decayed(p, lr) - lr * velocity

    def _kernel_values(self, kernels: Any, values: list[Value]) -> None:
        kernels.sgd(values, self.velocity, self.lr, self.momentum, self.weight_decay)

    def _kernel_array(self, kernels: Any, p: Array, grad: Array, part: slice) -> None:
        velocity = self.velocity[part]
        kernels.sgd_array(p, grad, velocity, self.lr, self.momentum, self.weight_decay)


class Adam(Optimizer):
    """Adam, as microgpt writes it; a parameter's step adapts to the size of its gradients.

    >>> import numpy as np
    >>> from chainrule import optim
    >>> params = {"w": np.array([1.0, -2.0]), "b": [np.array(0.5)]}
    >>> optimizer = optim.Adam(params, lr=0.1)
    >>> optimizer.step({"w": np.array([10.0, -0.1]), "b": [np.array(0.0)]})
    >>> params["w"].round(6).tolist(), params["b"][0].item()
    ([0.9, -1.9], 0.5)
    """

    moments = ("m", "v")
    m: Array
    v: Array

    def __init__(
        self,
        params: Any,
        lr: Schedule | float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.betas = (float(betas[0]), float(betas[1]))
        _fraction(self.betas[0], "the first beta")
        _fraction(self.betas[1], "the second beta")
        _positive(eps, "eps")
        self.eps = float(eps)
        super().__init__(params, lr)

    def _settings(self) -> tuple[float, ...]:
        """All that a kernel needs besides arrays."""
        return (self.lr, *self.betas, self.eps, *self._biases(), self.weight_decay)

    def _biases(self) -> tuple[float, float]:
        """What the moments, which start at zero, still lack of full weight."""
        t = self.steps + 1
        return 1 - self.betas[0] ** t, 1 - self.betas[1] ** t

    def _update(self, p: Array, g: Array, **moments: Array) -> Array:
        m, v = moments["m"], moments["v"]
        (beta1, beta2), (bias1, bias2), lr = self.betas, self._biases(), self.lr
        m[...] = beta1 * m + (1 - beta1) * g
        v[...] = beta2 * v + (1 - beta2) * self._params.square(g)
        m_hat = m / bias1
        v_hat = v / bias2
        return self._decayed(p, lr) - lr * m_hat / (self._params.root(v_hat) + self.eps)

    def _kernel_values(self, kernels: Any, values: list[Value]) -> None:
        kernels.adam(values, self.m, self.v, *self._settings())
        if not np.isfinite(self.v).all():
            grads = np.array([p.grad for p in values])
            _power(grads[np.isfinite(grads)], 2.0)  # raises if a finite gradient is to blame

    def _kernel_array(self, kernels: Any, p: Array, grad: Array, part: slice) -> None:
        kernels.adam_array(p, grad, self.m[part], self.v[part], *self._settings())


class AdamW(Adam):
    """Adam with decoupled weight decay: ``p -= lr * weight_decay * p`` before the update.

    >>> from chainrule import Value, optim
    >>> p = Value(1.0)
    >>> optim.AdamW([p], lr=0.1, weight_decay=0.5).step()
    >>> p.data
    0.95
    """

    def __init__(
        self,
        params: Any,
        lr: Schedule | float = 0.001,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, lr, betas, eps)
        self._set_decay(weight_decay)


def _power(numbers: Array, exponent: float) -> Array:
    # Python's ** is the C library's pow; numpy's squares and roots differ from it in the last bit.
    try:
        return np.array(list(map(pow, numbers.tolist(), repeat(exponent))))
    except OverflowError:
        worst = max(map(abs, numbers.tolist()))
        raise OverflowError(
            f"a gradient of {worst} is too large for Adam, which squares it: see clip_gradients"
        ) from None
