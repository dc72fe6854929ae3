"""The inner loop of training: steps of a compiled function in machine code.

In: a function whose samples run on machine code, its parameters, and an optimiser of them. Out: a
``MachineLoop``, which takes as many whole steps as it is asked for. What it cannot take it leaves
to Python, one step at a time.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from chainrule import optim
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.machine import Kernel, MachineCode, cache_aligned
from chainrule.compiler.training import step_code
from chainrule.compiler.training.lanes import Arrangement
from chainrule.compiler.training.packing import UNKNOWN, PackedSamples
from chainrule.trees import Array, Floats

AT_ONCE = 4096  # samples in one call of the loop
WORK = 1_000_000  # numbers that a step computes, for which threads are worth waiting for
TRY_AGAIN = 16  # turns until it is seen again whether more threads, or fewer, are quicker


class MachineLoop:
    """Takes steps of ``batch`` samples each, in order, starting over at the end."""

    def __init__(
        self,
        dispatch: Dispatch,
        params: Any,
        samples: list[tuple[Any, ...]],
        optimiser: optim.Optimizer,
        batch: int,
        threads: int,
    ) -> None:
        self._dispatch = dispatch
        self._samples = PackedSamples(dispatch, params, samples)
        self._optimiser, self._batch = optimiser, batch
        self._arrays: list[Array] = flatten_call((params,), {}, differentiate=True).floats
        self._size = sum(a.size for a in self._arrays)
        #: where in the optimiser's moments the parameters are, in the order of the machine code
        self._places = np.zeros(0, np.int64)
        self._threads = threads
        self._pace: dict[int, float] = {}  # seconds of a step with so many threads
        self._turns = 0
        self._copies: tuple[Kernel, list[list[Array]]] | None = None  # for the other threads

    def _alone(self) -> bool:
        """Whether nothing else has the memory of a parameter."""
        others = self._dispatch.captured_arrays()
        others += [x for s in self._samples.samples for x in s if isinstance(x, np.ndarray)]
        for k, a in enumerate(self._arrays):
            if any(np.may_share_memory(a, b) for b in (*self._arrays[:k], *others)):
                return False
        return True

    def _find_places(self) -> bool:
        """Find the parameters among the optimiser's; whether they are the same arrays."""
        theirs = list(self._optimiser.arrays.values())
        starts = np.cumsum([0, *[a.size for a in theirs]])
        place = {id(a): k for k, a in enumerate(theirs)}
        if sorted(map(id, self._arrays)) != sorted(place) or len(place) < len(theirs):
            return False
        found = [place[id(a)] for a in self._arrays]
        self._places = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in found])
        return True

    def start(self) -> bool:
        """Make code for the longest sample; whether it runs machine."""
        samples = self._samples
        if not self._find_places() or samples.kind_of(samples.longest()) is None:
            return False
        if samples.machine is None or not self._alone():
            return False
        # Numbers of another type would be rounded once in a while, not after each step.
        single = samples.machine.dtype == "float32"
        return single or all(a.dtype == np.float64 for a in self._arrays)

    # --- steps ------------------------------------------------------------------------------------

    def run(self, first_step: int, count: int, ahead: int = 0) -> Floats:
        """Take up to ``count`` steps in place; the loss of each step taken.

        Samples are packed for up to ``ahead`` steps: more at once take less time.
        """
        with self._dispatch.lock:
            return self._run(first_step, count, max(ahead, count))

    def _run(self, first_step: int, count: int, ahead: int) -> Floats:
        if not self._dispatch.is_fresh():
            self._samples.forget()
        count, ahead = (min(n, max(1, AT_ONCE // self._batch)) for n in (count, ahead))
        first, batch = first_step * self._batch, self._batch
        chosen = np.arange(first, first + ahead * batch) % len(self._samples.samples)
        if (self._samples.fit_of[chosen[: count * batch]] == UNKNOWN).any():
            self._samples.look_at(chosen)
        chosen = chosen[: count * batch]
        odd = np.flatnonzero(self._samples.fit_of[chosen] < 0)
        count = min(count, int(odd[0]) // batch if len(odd) else count)
        rates = self._rates(first_step, count)
        count = len(rates)
        if not count or self._samples.machine is None:
            return np.zeros(0)
        return self._take(self._samples.machine, chosen[: count * batch], rates)

    def _take(self, machine: MachineCode, chosen: Addresses, rates: Array) -> Floats:
        """Take a step for each row of rates."""
        count = len(rates)
        dtype, samples = np.dtype(machine.dtype), self._samples
        made = Arrangement(samples, chosen, self._batch)
        code, program, lanes = made.code, made.program, made.lanes
        gathers, own = made.gathers(), made.own()
        seeds = (made.groups.counted / self._batch).astype(dtype)
        constants, counts = made.constants.astype(dtype), made.counts
        with np.errstate(over="ignore"):  # the update that it makes infinite is reported
            rates = rates.astype(dtype)
        moments = [self._moment(name, dtype) for name in (*self._optimiser.moments, "", "")]
        at = 0
        for array in self._arrays:
            code.shared[at : at + array.size] = array.ravel()
            at += array.size
        threads = self._quickest(self._most_threads(made))
        arenas, began = self._arenas(code, threads), time.perf_counter()
        part = -(-(program.shared * dtype.itemsize + 128) // 64) * 64
        parts = cache_aligned(part * step_code.PARTS, np.uint8)
        total, losses = cache_aligned(program.shared, dtype), np.zeros(count)
        part_losses = np.zeros(step_code.PARTS, dtype)
        kind = "sgd" if isinstance(self._optimiser, optim.SGD) else "adam"
        update = step_code.update(kind, self._size, machine.dtype)
        done = step_code.take(
            machine.dtype,
            arenas,
            forward=code.forward,
            reverse=code.reverse,
            update=update.address("update"),
            parameters=step_code.words(code.shared),
            parts=step_code.words(parts),
            part_losses=step_code.words(part_losses),
            part_bytes=part,
            total=step_code.words(total),
            first_moment=step_code.words(moments[0]),
            second_moment=step_code.words(moments[1]),
            constants=step_code.words(constants),
            counts=step_code.words(counts),
            gathers=step_code.words(gathers),
            samples=step_code.words(own),
            seeds=step_code.words(seeds),
            fits=step_code.words(made.fits),
            starts=step_code.words(made.groups.starts),
            rates=step_code.words(rates),
            losses=step_code.words(losses),
            steps=count,
            inputs=program.inputs,
            constant_bytes=constants.shape[1] * dtype.itemsize,
            count_words=counts.shape[1],
            gather_words=gathers[0].size,
            sample_bytes=own.shape[1] * lanes * dtype.itemsize,
            lanes=lanes,
            root=made.root - program.shared,
            gradient_bytes=self._size * dtype.itemsize,
        )
        self._pace[threads] = (time.perf_counter() - began) / count
        machine.current = None  # the constants there are another recording's now
        if not all(np.isfinite(row).all() for row in (code.shared[: self._size], *moments)):
            return np.zeros(0)  # nothing has been written: Python finds the step
        self._write(code.shared, moments)
        return losses[:done]

    def _most_threads(self, made: Arrangement) -> int:
        """How many threads can share the groups of a step."""
        each = int(np.diff(made.groups.starts).max(initial=1))
        if made.program.work * made.lanes * each < WORK or not step_code.rest():
            return 1
        return min(self._threads, each, step_code.PARTS)

    def _quickest(self, most: int) -> int:
        """One thread or all of them: they wait for each other, in vain where cores are busy.

        The clock decides; it does not show in the results.
        """
        if most == 1:
            return 1
        self._turns += 1
        if most not in self._pace or 1 not in self._pace:
            return 1 if most in self._pace else most
        best, other = sorted((most, 1), key=self._pace.__getitem__)
        return other if self._turns % TRY_AGAIN == 0 else best

    def _arenas(self, code: Kernel, threads: int) -> list[dict[str, int]]:
        """The memory of each thread: the code's own for the first."""
        if self._copies is None or self._copies[0] is not code:
            self._copies = code, []
        copies = self._copies[1]
        own = (code.shared, code.own, code.shared_adjoints, code.adjoints)
        while len(copies) < threads - 1:
            copies.append([cache_aligned(len(x), x.dtype) for x in own])
        names = ("shared", "own", "shared_adjoints", "adjoints")
        rows = [own, *copies[: threads - 1]]
        return [dict(zip(names, map(step_code.words, row), strict=True)) for row in rows]

    def _moment(self, name: str, dtype: np.dtype[Any]) -> Array:
        made: Array = cache_aligned(self._size, dtype)
        if name:
            made[:] = getattr(self._optimiser, name)[self._places]
        return made

    def _write(self, shared: Array, moments: list[Array]) -> None:
        """Put parameters and moments where they belong."""
        at = 0
        for array in self._arrays:
            array[...] = shared[at : at + array.size].reshape(array.shape)
            at += array.size
        for name, moment in zip(self._optimiser.moments, moments, strict=False):
            getattr(self._optimiser, name)[self._places] = moment

    def _learning_rates(self, first_step: int, count: int) -> list[float]:
        """Of so many steps, or of fewer where the schedule raises: Python meets its error."""
        found: list[float] = []
        try:
            for step in range(first_step, first_step + count):
                found.append(float(self._optimiser.schedule(step)))
        except Exception:
            return found
        return found

    def _rates(self, first_step: int, count: int) -> Array:
        """What the updates read, a row for each step."""
        lr = np.array(self._learning_rates(first_step, count))
        count = len(lr)
        optimiser, rates = self._optimiser, np.zeros((count, step_code.RATES))
        rates[:, 2] = 1.0 - lr * optimiser.weight_decay
        if isinstance(optimiser, optim.SGD):
            rates[:, 0], rates[:, 1] = lr, optimiser.momentum
        elif isinstance(optimiser, optim.Adam):
            (beta1, beta2), t = optimiser.betas, np.arange(first_step + 1, first_step + count + 1)
            with np.errstate(over="ignore"):
                rates[:, 0], rates[:, 6] = lr / (1 - beta1**t), 1 / (1 - beta2**t)
            rates[:, 1], rates[:, 3] = beta1, 1 - beta1
            rates[:, 4], rates[:, 5], rates[:, 7] = beta2, 1 - beta2, optimiser.eps
        return rates


def machine_loop(
    dispatch: Dispatch,
    params: Any,
    samples: list[tuple[Any, ...]],
    optimiser: optim.Optimizer,
    batch: int,
    threads: int,
) -> MachineLoop | None:
    """Steps in machine code, where there is some for the longest sample and for the optimiser."""
    if dispatch.options.lift is False:
        return None
    if type(optimiser) not in (optim.SGD, optim.Adam, optim.AdamW):
        return None
    loop = MachineLoop(dispatch, params, samples, optimiser, batch, threads)
    return loop if loop.start() else None
