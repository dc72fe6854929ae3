"""The inner loop of training: steps of a compiled function in machine code.

In: a function whose samples run on machine code, its parameters, and an optimiser of them. Out: a
``MachineLoop``, which takes as many whole steps as it is asked for. What it cannot take it leaves
to Python, one step at a time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from chainrule import optim, random
from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.training import step_code, updates
from chainrule.compiler.training.families import Families
from chainrule.compiler.training.lanes import Arrangement, Groups
from chainrule.compiler.training.memory import Memory
from chainrule.compiler.training.packing import MEMORY, READ_ONCE, PackedSamples
from chainrule.compiler.training.samples import may_hold
from chainrule.compiler.training.steps import Steps
from chainrule.compiler.training.watching import Watched
from chainrule.trees import Array, Floats
from chainrule.windows import Windows

MOST_RATE = 1e3  # a larger one may make something of moments that are almost 0
WORK = 30_000  # numbers that a step computes, in 3 microseconds or so: threads meet in one
CALLS = 30  # times as many in a call, for which threads are worth waking
TRIES = 3  # turns, each with one thread and with all, of which the middle one counts
TRY_AGAIN = 16  # turns until it is seen again whether more threads, or fewer, are quicker
AT_LAST = 128  # the same where more were quicker each time: then one alone is what costs


class MachineLoop:
    """Takes steps of ``batch`` samples each, in order, starting over at the end."""

    def __init__(
        self,
        dispatch: Dispatch,
        params: Any,
        samples: list[tuple[Any, ...]] | Windows,
        optimiser: optim.Optimizer,
        steps: Steps,
        threads: int,
    ) -> None:
        self._dispatch = dispatch
        once = steps.most is not None and steps.most * steps.batch <= len(samples)
        memory = READ_ONCE if once else MEMORY
        self._families = Families(dispatch, params, samples, steps.key, memory)
        self._samples = self._families.first
        self._optimiser, self._steps = optimiser, steps
        self._batch = steps.batch
        call = flatten_call((params,), {}, differentiate=True)
        self._params, self._structure, self._arrays = params, call.key, call.floats
        self._watched = Watched(params)
        self._captured: list[Array] | None = None  # the arrays that ``_is_alone`` is about
        self._passes: bool | None = None  # whether samples hold the memory of a parameter
        self._is_alone = False
        self._size = sum(a.size for a in self._arrays)
        self._parts = step_code.most_parts(self._size, steps.batch)
        #: where in the optimiser's moments the parameters are, in the order of the machine code
        self._places: Addresses | slice = slice(0)
        self._threads = threads
        self._pace = Pace()
        self._made: list[Arrangement] = []  # one for each of ``families``
        self._state: Any = None  # the captured state that they were recorded with
        self._memory: Memory | None = None

    def _alone(self) -> bool:
        """Whether nothing else has the memory of a parameter or of a moment.

        What is captured may be others at any time, what is passed stays the same.
        """
        captured = self._dispatch.captured_arrays()
        if self._captured is None or [*map(id, self._captured)] != [*map(id, captured)]:
            self._captured = captured
            moments = [getattr(self._optimiser, name) for name in self._optimiser.moments]
            mine = [*self._arrays, *moments]
            if self._passes is None:
                structures = self._samples.structures
                plain = structures.windowed or structures.integers_only
                self._passes = not plain and may_hold(self._samples.samples, mine)
            pairs = ((a, b) for k, a in enumerate(mine) for b in (*mine[:k], *captured))
            self._is_alone = not (self._passes or any(np.may_share_memory(*x) for x in pairs))
        return self._is_alone

    def _find_places(self) -> bool:
        """Find the parameters among the optimiser's; whether they are the same arrays."""
        theirs = list(self._optimiser.arrays.values())
        starts = np.cumsum([0, *[a.size for a in theirs]])
        place = {id(a): k for k, a in enumerate(theirs)}
        if sorted(map(id, self._arrays)) != sorted(place) or len(place) < len(theirs):
            return False
        found = [place[id(a)] for a in self._arrays]
        self._places = np.concatenate([np.arange(starts[k], starts[k + 1]) for k in found])
        if found == sorted(found):
            self._places = slice(0, self._size)
        return True

    @property
    def samples(self) -> PackedSamples:
        """The samples, packed for the code of the longest."""
        return self._samples

    def start(self) -> bool:
        """Make code for the longest sample and then for all that will be read; whether it runs."""
        samples = self._samples
        if not self._find_places():
            return False
        chosen = samples.choose_all(self._optimiser.steps, self._steps)
        if not samples.prepare(chosen, self._steps.progress) or not self._alone():
            return False
        assert samples.machine is not None
        # Numbers of another type would be rounded once in a while, not after each step.
        single = samples.machine.dtype == "float32"
        if not (single or all(a.dtype == np.float64 for a in self._arrays)):
            kind = next(a.dtype for a in self._arrays if a.dtype != np.float64)
            self._dispatch.notices.trains_in_python(
                f"its parameters are {kind} and it computes in float64; compile it with "
                "dtype='float32', or pass float64"
            )
            return False
        with self._dispatch.lock:
            try:
                self._decide()
            except NotLiftable:
                return False
        return True

    def begin(self) -> bool:
        """It was started."""
        return True

    # --- steps ------------------------------------------------------------------------------------

    def run(self, first_step: int, count: int) -> Floats:
        """Take up to ``count`` steps in place; the loss of each step taken."""
        with self._dispatch.lock:
            try:
                return self._run(first_step, count)
            except NotLiftable:  # samples of a kind that has come since do not fit the code
                return np.zeros(0)

    def _run(self, first_step: int, count: int) -> Floats:
        if not self._watched.same(self._params):
            call = flatten_call((self._params,), {}, differentiate=True)
            if call.key != self._structure:
                return np.zeros(0)  # a dict in another order, say
        # Any call may have found another captured state since, and be fresh again.
        if self._state is not self._dispatch.captured or not self._dispatch.is_fresh():
            self._families.forget()
            self._made = []
        if not self._made:
            self._decide()
        if self._samples.machine is None:
            self._families.of(self._samples.choose(first_step * self._batch, self._batch))
            self._state = self._dispatch.captured
        if self._samples.machine is None or not self._alone():
            return np.zeros(0)
        rates = self._rates(first_step, count)
        while len(rates):
            losses = self._take(first_step, rates)
            if losses is not None:
                return losses
            rates = rates[: len(rates) // 2]  # until Python meets the step that goes wrong
        return np.zeros(0)

    def _decide(self) -> None:
        """Look at all samples, and decide by the first of them how they go through the code.

        So the code of a sample depends on the samples alone, not on the step at which a run began.
        Where the number of steps is known, and it may be small, those that come next decide.
        """
        samples, batch = self._samples, self._batch
        self._state = self._dispatch.captured
        if self._steps.most is not None or samples.structures.windowed:
            return
        every = np.arange(len(samples.samples))
        for some in np.array_split(every, -(-len(every) // samples.at_once)):
            self._families.of(some)
        self._state = self._dispatch.captured
        if samples.machine is None:
            return  # it cannot be recorded any more
        steps = max(1, min(samples.at_once, len(every)) // batch)
        first = samples.choose(0, steps * batch)
        self._arrange(first, self._families.of(first))

    def _arrange(self, chosen: Addresses, family: Addresses) -> None:
        """Decide how samples go through the code of their family, -1 for none."""
        every = self._families.every
        alone = len(every) == 1 and bool((family == 0).all())
        self._made = [
            Arrangement(one, chosen[family == k], self._batch, alone, self._parts)
            for k, one in enumerate(every)
        ]

    def _take(self, first_step: int, rates: Array) -> Floats | None:
        """Take a step for each row of rates, or fewer; None where something would not be finite.

        Samples are packed for some of the steps at a time, so that they stay in the cache.
        """
        losses, taken = np.zeros(len(rates)), 0
        memory: Memory | None = None
        parameters = np.zeros(0)  # as they are between two parts: a new sample may run the code
        while taken < len(rates):
            count = min(len(rates) - taken, max(1, self._samples.in_one_call // self._batch))
            try:
                chosen, family = self._next(first_step + taken, count)
            except Exception:
                if memory is None:
                    raise
                break  # the steps before it were taken: the next call meets the error
            here = len(chosen) // self._batch
            if not here or not self._alone():
                break
            ready = self._ready(chosen, family)
            if memory is None:
                memory = ready
                self._read(memory)
            elif memory is not ready:
                break  # samples of another kind have come, with other code
            else:
                memory.parameters[:] = parameters
            some = slice(taken, taken + here)
            keys = None
            if self._steps.key is not None:
                first = (first_step + taken) * self._batch
                keys = random.numbered(self._steps.key, first, len(chosen))
            done = self._step(memory, chosen, family, rates[some], losses[some], keys)
            parameters, taken = memory.parameters.copy(), taken + done
            if done < count:
                break
        if memory is None:
            return losses[:0]
        memory.parameters[:] = parameters
        if not memory.is_finite():
            return None  # nothing has been written
        self._write(memory)
        return losses[:taken]

    def _next(self, step: int, count: int) -> tuple[Addresses, Addresses]:
        """The samples of so many steps and their families, up to one that no code serves."""
        chosen = self._samples.choose(step * self._batch, count * self._batch)
        family = self._families.of(chosen)
        odd = np.flatnonzero(family < 0)
        end = int(odd[0]) // self._batch * self._batch if len(odd) else len(chosen)
        return chosen[:end], family[:end]

    def _ready(self, chosen: Addresses, family: Addresses) -> Memory:
        """The memory for steps with all kinds of samples that were met."""
        every = self._families.every
        if len(self._made) != len(every) or not all(made.serves() for made in self._made):
            self._arrange(chosen, family)
        if self._memory is None or self._memory.made != self._made:
            kind = "sgd" if isinstance(self._optimiser, optim.SGD) else "adam"
            clipped = bool(self._steps.clip)
            self._memory = Memory(self._made, self._size, self._parts, kind, clipped)
        return self._memory

    def _step(
        self,
        memory: Memory,
        chosen: Addresses,
        family: Addresses,
        rates: Array,
        losses: Floats,
        keys: Floats | None,
    ) -> int:
        """Take a step for each row of rates in memory; returns how many, and writes their losses.

        ``family``: of each sample; ``keys``: of its random numbers, if it has some.
        """
        groups, rows = [], []
        for k, made in enumerate(memory.made):
            mine = slice(None) if len(memory.made) == 1 else family == k
            groups.append(made.groups(chosen[mine]))
            rows.append(groups[-1].rows(keys if keys is None else keys[mine]))
        which, row, fits, starts = _in_turn(groups, family, self._batch)
        with np.errstate(over="ignore"):  # the update that it makes infinite is reported
            rates = rates.astype(memory.dtype)
        threads = self._pace.quickest(self._most_threads(starts))
        began = time.perf_counter()
        done = step_code.take(
            memory.dtype_name,
            memory.shares(threads, rows),
            **memory.fields,
            which=step_code.words(which),
            rows=step_code.words(row),
            fits=step_code.words(fits),
            starts=step_code.words(starts),
            rates=step_code.words(rates),
            losses=step_code.words(losses),
            steps=len(rates),
        )
        self._pace.note(threads, (time.perf_counter() - began) / len(rates))
        for made in memory.made:
            made.machine.current = None  # the constants there are another recording's now
        return done

    def _most_threads(self, starts: Addresses) -> int:
        """How many threads can share the groups of a step."""
        if self._threads == 1:
            return 1
        each = int(np.diff(starts).max(initial=1))
        work = each * max(made.work * made.lanes for made in self._made)
        steps = len(starts) - 1
        if work < WORK or work * steps < CALLS * WORK or not step_code.rest():
            return 1
        return min(self._threads, each, self._parts)

    def _read(self, memory: Memory) -> None:
        """Copy parameters and moments to where the code has them."""
        at = 0
        for array in self._arrays:
            memory.parameters[at : at + array.size] = array.ravel()
            at += array.size
        for name, moment in zip(self._optimiser.moments, memory.moments, strict=True):
            moment[:] = getattr(self._optimiser, name)[self._places]

    def _write(self, memory: Memory) -> None:
        """Put parameters and moments where they belong."""
        at = 0
        for array in self._arrays:
            array[...] = memory.parameters[at : at + array.size].reshape(array.shape)
            at += array.size
        for name, moment in zip(self._optimiser.moments, memory.moments, strict=True):
            getattr(self._optimiser, name)[self._places] = moment

    def _rates(self, first_step: int, count: int) -> Array:
        """What the updates read, a row for each step."""
        lr = optim.rates(self._optimiser.schedule, first_step, count)
        count = len(lr)  # fewer where the schedule raises: Python meets its error
        optimiser, row = self._optimiser, [0.0] * updates.RATES
        row[updates.CLIP] = self._steps.clip or 0.0
        if isinstance(optimiser, optim.SGD):
            row[1] = optimiser.momentum
        elif isinstance(optimiser, optim.Adam):
            beta1, beta2 = optimiser.betas
            row[1], row[3], row[4], row[5] = beta1, 1 - beta1, beta2, 1 - beta2
            row[7] = optimiser.eps
        rates = np.empty((count, updates.RATES))
        rates[:] = row
        rates[:, 2] = 1.0 - lr * optimiser.weight_decay
        rates[:, 0] = lr
        if isinstance(optimiser, optim.Adam):
            t = np.arange(first_step + 1, first_step + count + 1)
            with np.errstate(over="ignore"):
                rates[:, 0], rates[:, 6] = lr / (1 - beta1**t), 1 / (1 - beta2**t)
        self._limit_moments(rates)
        return rates

    def _limit_moments(self, rates: Array) -> None:
        """Write into the rates of steps below which moments are as good as 0; 0 where none are.

        A first moment is, beside its parameter, where it moves that by far less than its last bit,
        now and later: unless the parameter decays faster than the moment. Beside a parameter that
        is almost 0 every one counts. A second moment is where its root is too small to change
        ``eps``.
        """
        assert self._samples.machine is not None
        optimiser, dtype = self._optimiser, self._samples.machine.dtype
        shows = (np.abs(rates[:, 0]) >= MOST_RATE) | (rates[:, 2] < rates[:, 1])
        if isinstance(optimiser, optim.Adam):
            least = optimiser.eps * (1 - optimiser.betas[1]) ** 0.5
            shows |= least <= updates.LEAST_EPS[dtype]
        numbers = np.finfo(dtype)
        rates[:, updates.LEAST] = np.where(shows, 0.0, numbers.tiny / numbers.eps)
        rates[:, updates.LEAST_SQUARE] = np.where(shows, 0.0, numbers.tiny)


class Pace:
    """How long steps take with one thread and with more: these wait in vain where cores are busy.

    The clock decides; it does not show in the results. One turn says little, since something else
    may run meanwhile, and the first ones wait for memory: the middle one of several counts.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, deque[float]] = {}  # of a step, by the number of threads
        self._turns, self._next, self._patience = 0, TRY_AGAIN, TRY_AGAIN

    def note(self, threads: int, seconds: float) -> None:
        """A turn in which each step took so long."""
        self._seconds.setdefault(threads, deque(maxlen=TRIES)).append(seconds)

    def quickest(self, most: int) -> int:
        """With how many threads the next turn goes: one, or as many as there can be."""
        if most == 1:
            return 1
        self._turns += 1
        all_of_them, alone = (self._seconds.get(n, ()) for n in (most, 1))
        if min(len(all_of_them), len(alone)) < TRIES:
            return most if len(all_of_them) <= len(alone) else 1
        best, other = (most, 1) if median(all_of_them) <= median(alone) else (1, most)
        if best == 1:
            self._patience = TRY_AGAIN
        if self._turns < self._next:
            return best
        self._next = self._turns + self._patience
        self._patience = min(2 * self._patience, AT_LAST)
        return other


def _in_turn(
    groups: Sequence[Groups], family: Addresses, batch: int
) -> tuple[Addresses, Addresses, Addresses, Addresses]:
    """Of each group in the order of the steps: its code, its row and its fit; where steps start."""
    if len(groups) == 1:
        (only,) = groups
        count = len(only.fits)
        return np.zeros(count, np.int64), np.arange(count), only.fits, only.starts
    places, fits = np.empty(len(family), np.int64), np.empty(len(family), np.int64)
    for k, some in enumerate(groups):
        mine = np.flatnonzero(family == k)
        places[mine], fits[mine] = np.arange(len(mine)), some.fits
    return family, places, fits, np.arange(0, len(family) + 1, batch)


def machine_loop(
    dispatch: Dispatch,
    params: Any,
    samples: list[tuple[Any, ...]] | Windows,
    optimiser: optim.Optimizer,
    steps: Steps,
    threads: int,
) -> MachineLoop | None:
    """Steps in machine code, to be started; None where there is none for the optimiser."""
    if dispatch.options.lift is False:
        return None
    if type(optimiser) not in (optim.SGD, optim.Adam, optim.AdamW):
        return None
    if steps.clip is not None and not steps.clip > updates.LEAST_CLIP[dispatch.options.dtype]:
        return None
    return MachineLoop(dispatch, params, samples, optimiser, steps, threads)
