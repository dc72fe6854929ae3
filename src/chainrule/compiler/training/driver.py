"""Whole steps of training over a compiled function: sample, loss, gradient, update, in place.

In: a function, arrays, samples and an optimiser of those arrays. Out: the losses. A ``Training``
takes the steps: natively, as many at a time as the function's inner loop can, else one by one in
Python. Whatever happens, parameters and moments are those after a whole number of steps.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from chainrule.core.backend import Value, modes
from chainrule.core.interrupts import Held
from chainrule.optim import Optimizer
from chainrule.trees import Floats, leaves

Sample = tuple[Any, ...]
#: Called with the losses so far and the number of steps taken; returns True to stop.
Callback = Callable[[Floats, int], Any]

TURN = 0.1  # seconds that a Ctrl-C may have to wait for steps in native code


class Function(Protocol):
    """What is needed of a compiled function."""

    def value_and_grad(self, *arguments: Any) -> Any:
        """The loss of one sample and its gradient."""

    def batch_value_and_grad(self, params: Any, samples: Sequence[Sample]) -> Any:
        """The mean loss of some samples and its gradient."""

    def inner_loop(
        self, params: Any, samples: Sequence[Sample], optimiser: Optimizer, batch: int
    ) -> InnerLoop | None:
        """Steps in machine code, where there can be some."""


class InnerLoop(Protocol):
    """Steps in machine code."""

    def run(self, first_step: int, count: int, ahead: int = 0) -> Floats:
        """Take up to ``count`` steps in place; the loss of each step taken.

        If all goes well ``ahead`` are taken in the end: samples may be prepared for so many.
        Step ``s`` reads samples ``s * batch`` and on, cycling, with the learning rate and biases of
        ``optimiser.steps == s``; counting the steps is left to the caller. It stops before a step
        that it cannot take whole, or that would leave anything that is not finite: the caller takes
        that one in Python, where it succeeds or raises. Between two calls everything may change.
        """


def train(
    function: Function,
    params: Any,
    samples: Iterable[Sample],
    optimiser: Optimizer,
    steps: int,
    batch: int = 1,
    callback: Callback | None = None,
    every: int = 100,
) -> Floats:
    """``CompiledFunction.train``; see there."""
    steps, every = _count(steps, "steps", 0), _count(every, "every", 1)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function, not a {type(callback).__name__}")
    if callback is not None:  # which may change them, here and there
        kept = [leaf for _, leaf in leaves(params, "params") if isinstance(leaf, np.ndarray)]
        originals, copies = _checked_samples(samples), dict[int, Any]()  # the former stay alive
        samples = [tuple([_copied(x, kept, copies) for x in sample]) for sample in originals]
    training = Training(function, params, samples, optimiser, batch)
    every = every if callback is not None else max(1, steps)
    while training.taken < steps:
        next_call = (training.taken // every + 1) * every
        training.advance(min(next_call, steps) - training.taken)
        if callback is not None and training.taken in (next_call, steps):
            answer = callback(training.losses, optimiser.steps)
            _check_params(params, optimiser)
            if isinstance(answer, (bool, np.bool_)) and answer:
                break
    return training.losses.copy()


class Training:
    """A function, its parameters, samples and optimiser, ready to take steps."""

    def __init__(
        self,
        function: Function,
        params: Any,
        samples: Iterable[Sample],
        optimiser: Optimizer,
        batch: int = 1,
    ) -> None:
        if modes.recorder is not None:
            modes.recorder.forbid("train of a compiled function")
        self._function = function
        self._params = params
        self._samples = _checked_samples(samples)
        self._batch = _count(batch, "batch", 1)
        self._optimiser = optimiser
        _check_params(params, optimiser)
        self._native = function.inner_loop(params, self._samples, optimiser, self._batch)
        self._at_once = 4  # steps in one call of the inner loop; it learns how many take a TURN
        self._losses = np.empty(64)
        self.taken = 0

    @property
    def losses(self) -> Floats:
        """The loss of every step taken, not to be changed."""
        losses = self._losses[: self.taken]
        losses.flags.writeable = False
        return losses

    def advance(self, most: int) -> None:
        """Take at least one step and at most ``most``, for about ``TURN`` seconds.

        An error leaves the parameters and moments of the last step that went well.
        """
        end, deadline = self.taken + most, time.perf_counter() + TURN
        while True:
            if self._native is None or not self._natively(end - self.taken):
                with Held():
                    self._step()
            if self.taken >= end or time.perf_counter() > deadline:
                return

    def _natively(self, most: int) -> bool:
        """Let the inner loop take some steps; whether it took all that it was asked for."""
        assert self._native is not None
        count = min(most, self._at_once)
        began = time.perf_counter()
        with Held(firm=True):
            losses = self._native.run(self._optimiser.steps, count, most)
            self._optimiser.steps += len(losses)
            self._note(losses)
        seconds = time.perf_counter() - began
        if seconds > TURN:
            self._at_once = max(1, self._at_once // 2)
        elif len(losses) == self._at_once and seconds < TURN / 2:
            self._at_once *= 8 if seconds < TURN / 16 else 2
        return len(losses) == count

    def _step(self) -> None:
        """One step in Python."""
        step, samples = self._optimiser.steps, self._samples
        first = step * self._batch
        chosen = [samples[(first + i) % len(samples)] for i in range(self._batch)]
        if self._batch == 1:
            value, grads = self._function.value_and_grad(self._params, *chosen[0])
            loss = float(value[0] if isinstance(value, tuple) else value)
        else:
            loss, grads = self._function.batch_value_and_grad(self._params, chosen)
        if not math.isfinite(loss):
            raise FloatingPointError(_broken(f"the loss is {loss}", step))
        for path, grad in leaves(grads, "params"):
            if not np.isfinite(grad).all():
                raise FloatingPointError(_broken(f"the gradient of {path} is not finite", step))
        with Held(firm=True):
            self._update(loss, grads)

    def _update(self, loss: float, grads: Any) -> None:
        optimiser, taken, steps = self._optimiser, self.taken, self._optimiser.steps
        kind = type(optimiser).__name__
        moments = {f"{kind}'s {name}": getattr(optimiser, name) for name in optimiser.moments}
        arrays = {**optimiser.arrays, **moments}
        before = [array.copy() for array in arrays.values()]
        try:
            optimiser.step(grads)
            for name, array in arrays.items():
                if not np.isfinite(array).all():
                    raise OverflowError(_broken(f"the update of {name} overflows", steps))
            self._note(np.array([loss]))
        except BaseException:
            for array, old in zip(arrays.values(), before, strict=True):
                array[...] = old
            optimiser.steps, self.taken = steps, taken
            raise

    def _note(self, losses: Floats) -> None:
        taken = self.taken + len(losses)
        while taken > len(self._losses):
            self._losses = np.concatenate([self._losses, np.empty_like(self._losses)])
        self._losses[self.taken : taken] = losses
        self.taken = taken


def _broken(what: str, step: int) -> str:
    """The message of a step that is not taken."""
    return f"{what} at step {step + 1}; the parameters are those after step {step}"


# --- arguments ------------------------------------------------------------------------------------


def _count(number: Any, name: str, least: int) -> int:
    try:
        count = operator.index(number)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not a {type(number).__name__}") from None
    if count < least:
        raise ValueError(f"{name} must be at least {least}, not {count}")
    return count


def _checked_samples(samples: Iterable[Sample]) -> list[Sample]:
    found = list(samples)
    if not found:
        raise ValueError("train needs at least one sample")
    for place, sample in enumerate(found):
        if not isinstance(sample, tuple):
            raise TypeError(
                "a sample is a tuple of the arguments after the first: "
                f"samples[{place}] is a {type(sample).__name__}"
            )
    return found


def _copied(x: Any, kept: list[Any], copies: dict[int, Any]) -> Any:
    """A sample as it is now, but for what is a parameter; what is one object stays one."""
    kind = type(x)
    if id(x) in copies:
        return copies[id(x)]
    if kind is tuple:
        return tuple([_copied(item, kept, copies) for item in x])
    if kind is list:
        made: Any = copies.setdefault(id(x), [])
        made.extend([_copied(item, kept, copies) for item in x])
    elif kind is dict:
        made = copies.setdefault(id(x), {})
        made.update({key: _copied(item, kept, copies) for key, item in x.items()})
    elif isinstance(x, np.ndarray) and not any(np.may_share_memory(x, a) for a in kept):
        made = copies[id(x)] = x.copy()
    else:
        made = x
    return made


def _check_params(params: Any, optimiser: Any) -> None:
    """The parameters must be arrays that can change, and those of the optimiser."""
    found = dict(leaves(params, "params"))
    for path, leaf in found.items():
        if isinstance(leaf, Value):
            raise TypeError(f"{path} is a Value: train changes arrays in place, so pass arrays")
        if not isinstance(leaf, np.ndarray):
            raise TypeError(
                f"{path} is a {type(leaf).__name__}, which cannot change in place: make it an array"
            )
        if leaf.dtype not in (np.float64, np.float32):
            raise TypeError(f"{path} is an array of {leaf.dtype}, not of float64 or float32")
        if not leaf.flags.writeable:
            raise ValueError(f"{path} is a read-only array; parameters change in place")
    if not isinstance(optimiser, Optimizer):
        raise TypeError(f"train takes an optimiser of chainrule.optim, not {optimiser!r}")
    moved = optimiser.arrays
    for path in found.keys() | moved.keys():
        if found.get(path) is not moved.get(path):
            raise ValueError(
                f"the optimiser was not made for these parameters: it moves another {path}"
                if path in moved
                else f"the optimiser was not made for these parameters: it does not move {path}"
            )
