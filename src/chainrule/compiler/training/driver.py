"""Whole steps of training over a compiled function: sample, loss, gradient, update, in place.

In: a function, arrays, samples and an optimiser of those arrays. Out: a ``Trainer``, which takes
steps: natively, as many at a time as the function's inner loop can, else one by one in Python.
Whatever happens, parameters and moments are those after a whole number of steps.
"""

from __future__ import annotations

import math
import operator
import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from chainrule.compiler.training.samples import (
    Sample,
    checked_key,
    checked_samples,
    copies_of,
    read_next,
)
from chainrule.compiler.training.steps import Progress, Steps, unnoticed
from chainrule.compiler.training.watching import Watched
from chainrule.core.backend import Value, modes
from chainrule.core.interrupts import Held
from chainrule.optim import Optimizer, gradient_norm
from chainrule.trees import Array, Floats, arrays_in, leaves, map_leaves
from chainrule.windows import Windows

#: Called with the losses so far and the number of steps taken; returns True to stop.
Callback = Callable[[Floats, int], Any]

TURN = 0.1  # seconds that a Ctrl-C may have to wait for steps in native code


class Function(Protocol):
    """What is needed of a compiled function."""

    def value_and_grad(self, *arguments: Any) -> Any:
        """The loss of one sample and its gradient."""

    def owns(self, steps: Steps) -> Callable[[Any], bool]:
        """Whether something that is passed is what the function reaches by itself."""

    def inner_loop(
        self, params: Any, samples: list[Sample] | Windows, optimiser: Optimizer, steps: Steps
    ) -> InnerLoop | None:
        """Steps in machine code, where there can be some."""


class InnerLoop(Protocol):
    """Steps in machine code."""

    def begin(self) -> bool:
        """Make what the next steps need, between two of them, which may take long; or False."""

    def run(self, first_step: int, count: int) -> Floats:
        """Take up to ``count`` steps in place; the loss of each step taken.

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
    clip: float | None = None,
    key: Any = None,
) -> Floats:
    """``CompiledFunction.train``; see there."""
    steps, every = _count(steps, "steps", 0), _count(every, "every", 1)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function, not a {type(callback).__name__}")
    if callback is None:
        every = max(1, steps)
    trainer = Trainer(
        function, params, samples, optimiser, batch, clip,
        key=key, most=steps, alone=callback is None,
    )  # fmt: skip
    while trainer.taken < steps:
        next_call = (trainer.taken // every + 1) * every
        trainer.advance(min(next_call, steps) - trainer.taken)
        if callback is not None:
            answer = callback(trainer.losses, optimiser.steps)
            if isinstance(answer, (bool, np.bool_)) and answer:
                break
    _check_params(params, optimiser)
    return trainer.losses.copy()


class Trainer:
    """A function, its parameters, samples and optimiser, prepared to take steps.

    Made by ``CompiledFunction.trainer``; see there.
    """

    def __init__(
        self,
        function: Function,
        params: Any,
        samples: Iterable[Sample],
        optimizer: Optimizer,
        batch: int = 1,
        clip: float | None = None,
        progress: Progress = unnoticed,
        *,
        key: Any = None,
        most: int | None = None,
        alone: bool = False,
    ) -> None:
        """``most``: of the steps that will be taken; ``alone``: nothing can change meanwhile."""
        if modes.recorder is not None:
            modes.recorder.forbid("train of a compiled function")
        self._function = function
        self.params = params  #: the arrays, which every step changes in place
        self.optimizer = optimizer  #: the optimiser of these arrays
        self._steps = Steps(
            _count(batch, "batch", 1), _limit(clip), most, progress, checked_key(key)
        )
        self._samples = checked_samples(samples, "train")
        self._checked: tuple[Any, Watched, Watched] | None = None
        self._check()
        if not (alone or isinstance(self._samples, Windows)):
            first = optimizer.steps * self._steps.batch
            count = None if most is None else most * self._steps.batch
            is_own = function.owns(self._steps)
            self._samples = copies_of(self._samples, params, is_own, first, count)
        self._native = function.inner_loop(params, self._samples, optimizer, self._steps)
        self._at_once = 4  # steps in one call of the inner loop; it learns how many take a TURN
        self._losses = np.empty(64)
        self.taken = 0  #: how many steps this trainer has taken
        self._forgotten = 0  # of these the losses are not kept

    @property
    def losses(self) -> Floats:
        """The loss of every step taken since they were forgotten, not to be changed."""
        losses = self._losses[: self.taken - self._forgotten]
        losses.flags.writeable = False
        return losses

    def advance(self, steps: int = 1, seconds: float | None = None) -> Floats:
        """Take so many steps, or fewer if ``seconds`` have passed before; their losses.

        At least one step is taken. An error or Ctrl-C leaves parameters and moments as they were
        after the last step that went well, and ``losses`` has that of each.
        """
        first = self.taken
        end = first + _count(steps, "steps", 1)
        self._check()
        deadline = math.inf if seconds is None else time.perf_counter() + seconds
        while True:
            native = self._native is not None and self._native.begin()  # Ctrl-C does not wait
            if not native or not self._natively(end - self.taken):
                with Held():
                    self._step()
            if self.taken >= end or time.perf_counter() > deadline:
                return self.losses[first - self._forgotten :]

    def forget_losses(self) -> None:
        """Keep no loss of the steps so far: for a run of very many, whose losses are elsewhere."""
        self._losses, self._forgotten = np.empty(64), self.taken

    def _check(self) -> None:
        """The parameters must be arrays that can change, and those of the optimiser."""
        if self._checked is not None:
            optimizer, params, moved = self._checked
            same = optimizer is self.optimizer and params.same(self.params)
            if same and moved.same(self.optimizer.arrays):
                return
        _check_params(self.params, self.optimizer)
        self._checked = self.optimizer, Watched(self.params), Watched(self.optimizer.arrays)

    def state_dict(self) -> dict[str, Any]:
        """All that the next steps depend on, and the losses so far: copies, to be kept.

        ``"params"`` has each array by its path, ``"optimizer"`` the optimiser's state.
        """
        arrays = {path: array.copy() for path, array in leaves(self.params, "params")}
        return {
            "params": arrays,
            "optimizer": self.optimizer.state_dict(),
            "losses": self.losses.copy(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where ``state_dict()`` was taken, to the same bits; arrays keep their place.

        All of it or, if something does not fit, nothing.
        """
        self._check()
        wanted = {"params", "optimizer", "losses"}
        if state.keys() != wanted:
            raise ValueError(f"the state holds {sorted(state)}, not {sorted(wanted)}")
        given, arrays = state["params"], dict(leaves(self.params, "params"))
        for path in given.keys() ^ arrays.keys():
            raise ValueError(f"the state is not of these parameters: see {path}")
        for path, array in arrays.items():
            if np.shape(given[path]) != array.shape:
                found = np.shape(given[path])
                raise ValueError(f"the state of {path} has shape {found}, not {array.shape}")
        losses = np.array(state["losses"], np.float64).reshape(-1)
        self.optimizer.load_state_dict(state["optimizer"])
        for path, array in arrays.items():
            array[...] = given[path]
        self._losses, self.taken, self._forgotten = np.empty(64), 0, 0
        self._note(losses)

    def _natively(self, most: int) -> bool:
        """Let the inner loop take some steps; whether it took any."""
        assert self._native is not None
        count = min(most, self._at_once)
        began = time.perf_counter()
        with Held(firm=True):
            losses = self._native.run(self.optimizer.steps, count)
            self.optimizer.steps += len(losses)
            self._note(losses)
        seconds = time.perf_counter() - began
        if seconds > TURN:
            self._at_once = max(1, self._at_once // 2)
        elif len(losses) == self._at_once and seconds < TURN / 2:
            self._at_once *= 8 if seconds < TURN / 16 else 2
        return len(losses) > 0

    def _step(self) -> None:
        """One step in Python."""
        step, batch = self.optimizer.steps, self._steps.batch
        loss, grads = self._mean(read_next(self._samples, step * batch, batch, self._steps.key))
        if not math.isfinite(loss):
            raise FloatingPointError(_broken(f"the loss is {loss}", step))
        arrays = arrays_in(grads)  # is quicker than the leaves with their paths
        for path, grad in () if arrays and _are_finite(arrays) else leaves(grads, "params"):
            if not np.isfinite(grad).all():
                raise FloatingPointError(_broken(f"the gradient of {path} is not finite", step))
        if self._steps.clip is not None:
            norm = gradient_norm(grads)
            if norm > self._steps.clip:
                scale = self._steps.clip / norm
                grads = map_leaves(lambda grad: grad * scale, grads, records=True)
        with Held(firm=True):
            self._update(loss, grads)

    def _mean(self, chosen: list[Sample]) -> tuple[float, Any]:
        """The mean loss of some samples and its gradient, one by one.

        Batches would be computed in another way after some calls: a run that is resumed has made
        fewer of them, and must come to the same bits.
        """
        mean, sums, count = 0.0, None, len(chosen)
        for sample in chosen:
            value, grads = self._function.value_and_grad(self.params, *sample)
            mean += float(value[0] if isinstance(value, tuple) else value) / count
            if count == 1:
                return mean, grads
            parts = map_leaves(lambda grad: np.array(grad / count), grads, records=True)
            if sums is None:
                sums = parts
                continue
            for (_, a), (_, part) in zip(leaves(sums, ""), leaves(parts, ""), strict=True):
                a += part
        return mean, sums

    def _update(self, loss: float, grads: Any) -> None:
        optimiser, taken, steps = self.optimizer, self.taken, self.optimizer.steps
        moments = [getattr(optimiser, name) for name in optimiser.moments]
        arrays = [*optimiser.arrays.values(), *moments]
        before = [array.copy() for array in arrays]
        try:
            optimiser.step(grads)
            for place, array in enumerate(() if _are_finite(arrays) else arrays):
                if not np.isfinite(array).all():
                    names = [f"{type(optimiser).__name__}'s {name}" for name in optimiser.moments]
                    name = [*optimiser.arrays, *names][place]
                    raise OverflowError(_broken(f"the update of {name} overflows", steps))
            self._note(np.array([loss]))
        except BaseException:
            for array, old in zip(arrays, before, strict=True):
                array[...] = old
            optimiser.steps, self.taken = steps, taken
            raise

    def _note(self, losses: Floats) -> None:
        first = self.taken - self._forgotten
        while first + len(losses) > len(self._losses):
            self._losses = np.concatenate([self._losses, np.empty_like(self._losses)])
        self._losses[first : first + len(losses)] = losses
        self.taken += len(losses)


def _are_finite(arrays: list[Array]) -> bool:
    """Whether all numbers are, as the sums of their squares tell sooner; False: perhaps not."""
    return all(math.isfinite(np.vdot(array, array)) for array in arrays)


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


def _limit(clip: float | None) -> float | None:
    if clip is None:
        return None
    if not 0 < clip < math.inf:
        raise ValueError(f"clip must be a positive number, the largest norm, not {clip}")
    return float(clip)


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
