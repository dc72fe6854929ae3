"""The inner loop of training: steps of a compiled function in machine code.

In: a function whose samples run lifted, its parameters, and an optimiser of them. Out: an
``InnerLoop``, which works out what each sample selects, many at a time, and lets ``steps`` take as
many whole steps as it is asked for. What it cannot take it leaves to Python, one step at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from chainrule import optim
from chainrule.compiler import steps
from chainrule.compiler.inputs import Call, take_apart
from chainrule.compiler.lengths import Family, runs_of, slots_among
from chainrule.compiler.lifted import Fit, Lifted, aligned
from chainrule.compiler.program import Addresses
from chainrule.compiler.variants import Variant

Floats = npt.NDArray[Any]
AT_ONCE = 4096  # samples in one call of the loop
UNKNOWN, ODD = -1, -2  # a sample not looked at yet, one that runs otherwise


class Source(Protocol):
    """What is needed of the compiled function."""

    lock: Any  #: held while its machine code runs

    def ready(self, call: Call) -> Variant | None:
        """The variant that has just computed a call."""

    def arrays(self) -> list[Floats]:
        """The arrays that the function reaches by itself."""

    def fresh(self) -> bool:
        """Whether what the function reaches is as it was."""

    def teach(self, family: Family, call: Call, ids: Sequence[int]) -> bool:
        """Record the longest call of a family with these integers."""


class Prepared:
    """Samples as the machine code wants them, worked out when they are needed.

    ``fit_of[k]`` is the place in ``fits`` of what sample k fits (or UNKNOWN, or ODD);
    ``gathers[k]`` is what its gathers select, ``own[k]`` the numbers it has of its own.
    """

    def __init__(self, source: Source, params: Any, samples: Sequence[tuple[Any, ...]]) -> None:
        self.source = source
        self.params, self.samples = params, samples
        self._calls: dict[int, Call] = {}
        self.forget()

    def call(self, k: int) -> Call:
        """Sample k taken apart."""
        if k not in self._calls:
            self._calls[k] = take_apart(self.samples[k], {}, differentiate=False)
        return self._calls[k]

    def longest(self) -> int:
        """The sample with the longest lists."""
        sizes = [sum([len(x) for x in s if hasattr(x, "__len__")]) for s in self.samples]
        return max(range(len(sizes)), key=sizes.__getitem__)

    def forget(self) -> None:
        """Look at every sample again."""
        self.fit_of = np.full(len(self.samples), UNKNOWN, np.int64)
        self.fits: list[Fit] = []
        self._variants: dict[Any, tuple[Variant, int]] = {}  # by the structure of a sample
        self.lifted: Lifted | None = None
        self._integers: dict[int, Addresses] | None = None
        self._learnt = 0

    def reconsider(self) -> None:
        """Look again at samples that ran otherwise, if something has been learnt since."""
        learnt = 0
        for variant, _ in self._variants.values():
            indexing = variant.indexing if variant.family is None else variant.family.indexing
            learnt += len(indexing.ids)
        if learnt != self._learnt:
            self._learnt = learnt
            self.fit_of[self.fit_of == ODD] = UNKNOWN

    # --- samples ----------------------------------------------------------------------------------

    def _whole(self, k: int) -> Call:
        return take_apart((self.params, *self.samples[k]), {}, differentiate=True)

    def first_of(self, k: int) -> tuple[Variant, int] | None:
        """The variant of samples like this one; None where it is not of the others' code."""
        key = self.call(k).key
        if key not in self._variants:
            variant = self.source.ready(self._whole(k))
            if variant is None or variant.lifted is None or variant.fit is None:
                return None
            if variant.static or variant.lifted.root < variant.lifted.program.shared:
                return None
            if len(variant.captured) or (self.lifted or variant.lifted) is not variant.lifted:
                return None
            if self.lifted is None:
                self.lifted = variant.lifted
                program = variant.lifted.program
                shape = len(self.samples), max(1, len(program.places))
                self.gathers = np.zeros(shape, np.int64)
                shape = len(self.samples), len(program.private)
                self.own = np.zeros(shape, variant.lifted.dtype)
            self._variants[key] = (variant, len(self.fits))
            self.fits.append(variant.fit)
        return self._variants[key]

    def look_at(self, wanted: Addresses) -> None:
        """Work out what some samples select."""
        alike: dict[Any, list[int]] = {}
        for k in np.unique(wanted[self.fit_of[wanted] == UNKNOWN]).tolist():
            alike.setdefault(self.call(k).key, []).append(k)
        for members in alike.values():
            found = self.first_of(members[0])
            if found is None:
                self.fit_of[members] = ODD
                continue
            variant, fit = found
            for k in members:
                self.own[k, self.fits[fit].private] = self._own_numbers(self.call(k))
            if not self._together(variant, members):
                self._one_by_one(variant, members)
            known = self.fit_of[members] == UNKNOWN
            self.fit_of[np.array(members)[known]] = fit

    @staticmethod
    def _own_numbers(call: Call) -> Floats:
        """The numbers that a sample has of its own, in the order of the recording's inputs."""
        made = np.empty(call.size + len(call.ints))
        call.write(made[: call.size])
        made[call.size :] = call.ints
        return made

    def _together(self, variant: Variant, members: list[int]) -> bool:
        """By the family's tables, all at once; whether that was possible."""
        lifted, fit = variant.lifted, variant.fit
        family, slots = variant.family, variant.slots
        if family is None or slots is None or lifted is None or fit is None:
            return False
        ids = np.array([self.call(k).ints for k in members], np.int64)
        choices = family.choices()
        if choices is None:
            return False
        _, known = choices.rows(slots, ids)
        if not known.all():
            self._teach(family, members[0], slots, ids, known)
            choices = family.choices()
            if choices is None:
                return False
        made, known = choices.rows(slots, ids)
        made = made[:, fit.gathers]
        good = (made >= 0).all(axis=1) & known.all(axis=1)
        good &= fit.allowed[fit.choosers, np.maximum(made, 0)].all(axis=1)
        if fit is not family.lifted.fit and family.proved is None:
            good &= (ids >= 0).all(axis=1)  # a negative one counts from the end
        rows = np.array(members)
        self.gathers[np.ix_(rows[good], fit.gathers)] = made[good]
        if not good.all():
            self._one_by_one(variant, rows[~good].tolist())
        return True

    def _teach(self, family: Family, k: int, slots: Addresses, ids: Addresses, known: Any) -> None:
        """Record the longest call until every integer of these samples was seen in its place.

        Places that are free in such a recording are filled with integers of samples to come.
        """
        choices = family.choices()
        later = self._all_integers(family)
        missing: dict[int, list[int]] = {}
        for slot, wanted in later.items():
            if choices is not None and slot in choices.slots:
                wanted = np.setdiff1d(wanted, choices.slots[slot][0])
            missing[slot] = wanted.tolist()
        most = 0
        for c, slot in enumerate(slots.tolist()):
            now = np.unique(ids[~known[:, c], c]).tolist()
            most = max(most, len(now))
            missing[slot] = now + [i for i in missing[slot] if i not in now]
        call = self._whole(k)
        for row in range(most):
            chosen = list(family.base)
            for slot, left in missing.items():
                if row < len(left):
                    chosen[slot] = left[row]
            self.source.teach(family, call, chosen)

    def _all_integers(self, family: Family) -> dict[int, Addresses]:
        """The integers of all samples, by their places in the longest."""
        if self._integers is None:
            alike: dict[Any, list[Call]] = {}
            for call in map(self.call, range(len(self.samples))):
                alike.setdefault(call.key, []).append(call)
            found: dict[int, list[Addresses]] = {}
            for calls in alike.values():
                slots = slots_among(runs_of(calls[0])[1], family.runs)
                table = np.array([call.ints for call in calls], np.int64)
                for c, slot in enumerate(() if slots is None else slots.tolist()):
                    found.setdefault(slot, []).append(np.unique(table[:, c]))
            self._integers = {k: np.unique(np.concatenate(v)) for k, v in found.items()}
        return self._integers

    def _one_by_one(self, variant: Variant, members: list[int]) -> None:
        fit = variant.fit
        assert fit is not None
        for k in members:
            gathered = variant.gathered(self.call(k).ints)
            if gathered is None and self.source.ready(self._whole(k)) is variant:
                gathered = variant.gathered(self.call(k).ints)
            if gathered is None:
                self.fit_of[k] = ODD
            else:
                self.gathers[k, fit.gathers] = gathered


class InnerLoop:
    """Takes steps of ``batch`` samples each, in order, starting over at the end."""

    def __init__(
        self,
        source: Source,
        params: Any,
        samples: Sequence[tuple[Any, ...]],
        optimiser: optim.Optimizer,
        batch: int,
    ) -> None:
        self._source = source
        self._samples = Prepared(source, params, samples)
        self._optimiser, self._batch = optimiser, batch
        self._arrays = list(optimiser.arrays.values())
        self._size = sum(a.size for a in self._arrays)

    def _alone(self) -> bool:
        """Whether nothing else has the memory of a parameter."""
        others = self._source.arrays()
        others += [x for s in self._samples.samples for x in s if isinstance(x, np.ndarray)]
        for k, a in enumerate(self._arrays):
            if any(np.may_share_memory(a, b) for b in (*self._arrays[:k], *others)):
                return False
        return True

    def start(self) -> bool:
        """Make code for the longest sample; whether it runs lifted."""
        samples = self._samples
        if (
            samples.first_of(samples.longest()) is None
            or samples.lifted is None
            or not self._alone()
        ):
            return False
        # Numbers of another type would be rounded once in a while, not after each step.
        single = samples.lifted.dtype == "float32"
        return single or all(a.dtype == np.float64 for a in self._arrays)

    # --- steps ------------------------------------------------------------------------------------

    def run(self, first_step: int, count: int) -> npt.NDArray[np.float64]:
        """Take up to ``count`` steps in place; the loss of each step taken."""
        with self._source.lock:
            return self._run(first_step, count)

    def _run(self, first_step: int, count: int) -> npt.NDArray[np.float64]:
        if not self._source.fresh():
            self._samples.forget()
        count = min(count, max(1, AT_ONCE // self._batch))
        self._samples.reconsider()
        first, batch = first_step * self._batch, self._batch
        chosen = np.arange(first, first + count * batch) % len(self._samples.samples)
        self._samples.look_at(chosen)
        odd = np.flatnonzero(self._samples.fit_of[chosen] < 0)
        count = min(count, int(odd[0]) // batch if len(odd) else count)
        count = len(self._learning_rates(first_step, count))
        if not count or self._samples.lifted is None:
            return np.zeros(0)
        return self._take(self._samples.lifted, chosen[: count * batch], first_step, count)

    def _take(
        self, lifted: Lifted, chosen: Addresses, first_step: int, count: int
    ) -> npt.NDArray[np.float64]:
        dtype, program = np.dtype(lifted.dtype), lifted.program
        lanes = _lanes(lifted, self._samples.fit_of[chosen], self._batch)
        code = lifted.kernel(lanes)
        groups = _Groups(self._samples.fit_of[chosen], self._batch, lanes)
        members = chosen[groups.members]
        # Innermost the lanes: [group, number, lane].
        gathers = np.ascontiguousarray(self._samples.gathers[members].transpose(0, 2, 1))
        own = np.ascontiguousarray(self._samples.own[members].transpose(0, 2, 1))
        seeds = (groups.counts / self._batch).astype(dtype)
        fits = np.ascontiguousarray(self._samples.fit_of[members[:, 0]])
        constants = np.stack([f.constants for f in self._samples.fits]).astype(dtype)
        counts = np.stack([f.counts for f in self._samples.fits])
        rates = self._rates(first_step, count).astype(dtype)
        moments = [self._moment(name, dtype) for name in (*self._optimiser.moments, "", "")]
        at = 0
        for array in self._arrays:
            code.shared[at : at + array.size] = array.ravel()
            at += array.size
        total, losses = aligned(program.shared, dtype), np.zeros(count)
        kind = "sgd" if isinstance(self._optimiser, optim.SGD) else "adam"
        update = steps.update(kind, self._size, lifted.dtype)
        done = steps.take(
            lifted.dtype,
            forward=code.forward,
            backward=code.backward,
            update=update.address("update"),
            shared=steps.words(code.shared),
            own=steps.words(code.own),
            shared_adjoints=steps.words(code.shared_adjoints),
            adjoints=steps.words(code.adjoints),
            total=steps.words(total),
            first_moment=steps.words(moments[0]),
            second_moment=steps.words(moments[1]),
            constants=steps.words(constants),
            counts=steps.words(counts),
            gathers=steps.words(gathers),
            samples=steps.words(own),
            seeds=steps.words(seeds),
            fits=steps.words(fits),
            starts=steps.words(groups.starts),
            rates=steps.words(rates),
            losses=steps.words(losses),
            steps=count,
            inputs=program.inputs,
            constant_bytes=constants.shape[1] * dtype.itemsize,
            count_words=counts.shape[1],
            gather_words=gathers.shape[1] * lanes,
            sample_bytes=own.shape[1] * lanes * dtype.itemsize,
            lanes=lanes,
            root=lifted.root - program.shared,
            gradient_bytes=self._size * dtype.itemsize,
        )
        lifted.current = None  # the constants there are another recording's now
        if not all(np.isfinite(row).all() for row in (code.shared[: self._size], *moments)):
            return np.zeros(0)  # nothing has been written: Python finds the step
        self._write(code.shared, moments)
        return losses[:done]

    def _moment(self, name: str, dtype: np.dtype[Any]) -> Floats:
        made: Floats = aligned(self._size, dtype)
        if name:
            made[:] = getattr(self._optimiser, name)
        return made

    def _write(self, shared: Floats, moments: list[Floats]) -> None:
        """Put parameters and moments where they belong."""
        at = 0
        for array in self._arrays:
            array[...] = shared[at : at + array.size].reshape(array.shape)
            at += array.size
        for name, moment in zip(self._optimiser.moments, moments, strict=False):
            getattr(self._optimiser, name)[:] = moment

    def _learning_rates(self, first_step: int, count: int) -> list[float]:
        """Of so many steps, or of fewer where the schedule raises: Python meets its error."""
        found: list[float] = []
        try:
            for step in range(first_step, first_step + count):
                found.append(float(self._optimiser.schedule(step)))
        except Exception:
            return found
        return found

    def _rates(self, first_step: int, count: int) -> Floats:
        """What the updates read, a row for each step."""
        optimiser, rates = self._optimiser, np.zeros((count, steps.RATES))
        lr = np.array(self._learning_rates(first_step, count))
        rates[:, 2] = 1.0 - lr * optimiser.weight_decay
        if isinstance(optimiser, optim.SGD):
            rates[:, 0], rates[:, 1] = lr, optimiser.momentum
        elif isinstance(optimiser, optim.Adam):
            (beta1, beta2), t = optimiser.betas, np.arange(first_step + 1, first_step + count + 1)
            rates[:, 0], rates[:, 6] = lr / (1 - beta1**t), 1 / (1 - beta2**t)
            rates[:, 1], rates[:, 3] = beta1, 1 - beta1
            rates[:, 4], rates[:, 5], rates[:, 7] = beta2, 1 - beta2, optimiser.eps
        return rates


def _lanes(lifted: Lifted, fits: Addresses, batch: int) -> int:
    """How many samples go through the code at once.

    As many as a vector has, if those of one fit fill most of it: that takes about half as long as
    so many one after the other.
    """
    if batch < 4:
        return 1
    width, groups = lifted.width, 0
    for at in range(0, len(fits), batch):
        _, counts = np.unique(fits[at : at + batch], return_counts=True)
        groups += int((-(-counts // width)).sum())
    return width if groups * width < 2 * len(fits) else 1


class _Groups:
    """The samples of each step, those of one fit together, so many at a time.

    ``members[g]`` are the samples of group g, ``counts[g]`` 1 for each that counts (a lane left
    over repeats one and counts nothing), ``starts[s]`` the first group of step s.
    """

    def __init__(self, fits: Addresses, batch: int, lanes: int) -> None:
        if lanes == 1:
            self.members = np.arange(len(fits))[:, None]
            self.counts = np.ones((len(fits), 1))
            self.starts = np.arange(0, len(fits) + 1, batch)
            return
        members, counts, starts = [], [], [0]
        for at in range(0, len(fits), batch):
            here = fits[at : at + batch]
            for fit in np.unique(here):
                alike = at + np.flatnonzero(here == fit)
                for k in range(0, len(alike), lanes):
                    some = alike[k : k + lanes]
                    members.append(np.resize(some, lanes))
                    counts.append(np.arange(lanes) < len(some))
            starts.append(len(members))
        self.members, self.counts = np.array(members), np.array(counts, np.float64)
        self.starts = np.array(starts, np.int64)


def mean_of(prepared: Prepared, parameters: Floats) -> tuple[float, Floats] | None:
    """The mean value of all samples and its gradient by the parameters, which come in one row.

    None where one does not run on the code of the others, or something is not finite.
    """
    count, size = len(prepared.samples), len(parameters)
    prepared.look_at(np.arange(count))
    lifted = prepared.lifted
    if lifted is None or (prepared.fit_of < 0).any():
        return None
    lanes = _lanes(lifted, prepared.fit_of, count)
    code, root = lifted.kernel(lanes), (lifted.root - lifted.program.shared) * lanes
    groups = _Groups(prepared.fit_of, count, lanes)
    lifted.current = None
    code.shared[:size] = parameters
    value, gradient = 0.0, np.zeros(size)
    for members, counts in zip(groups.members, groups.counts, strict=True):
        fit = prepared.fits[prepared.fit_of[members[0]]]
        code.shared[lifted.program.inputs :] = fit.constants
        code.gathers[:] = prepared.gathers[members].T.ravel()
        code.own[: prepared.own.shape[1] * lanes] = prepared.own[members].T.ravel()
        code.seeds[:] = counts / count
        if not code.run(fit) or not code.sweep(fit):
            code.seeds[:] = 1.0
            return None
        value += float(code.own[root : root + lanes] @ code.seeds)
        gradient += code.shared_adjoints[:size]
    code.seeds[:] = 1.0
    return value, gradient
