"""The inner loop of training: steps of a compiled function in machine code.

In: a function whose samples run lifted, its parameters, and an optimiser of them. Out: an
``InnerLoop``, which works out what each sample selects, many at a time, and lets ``steps`` take as
many whole steps as it is asked for. What it cannot take it leaves to Python, one step at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from chainrule import optim
from chainrule.compiler import steps
from chainrule.compiler.inputs import Call, take_apart
from chainrule.compiler.lanes import Arrangement
from chainrule.compiler.lengths import Family, runs_of, slots_among
from chainrule.compiler.lifted import Fit, Lifted, aligned
from chainrule.compiler.program import Addresses, Program
from chainrule.compiler.variants import Variant

Floats = npt.NDArray[Any]
AT_ONCE = 4096  # samples in one call of the loop
MEMORY = 1 << 27  # bytes: for samples that have been taken apart
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

    ``fit_of[k]`` is the place in ``fits`` of what sample k fits (or UNKNOWN, or ODD). Row
    ``row_of[k]`` of ``gathers`` is what its gathers select, that of ``own`` the numbers it has of
    its own. There are rows for so many samples as fit into some memory; then they are worked out
    anew.
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

    def _kind(self, k: int) -> Any:
        """What samples that are taken apart alike have in common."""
        lengths = _lengths(self.samples[k])
        return self.call(k).key if lengths is None else lengths

    def _ids(self, members: list[int]) -> Addresses:
        """The integers of samples of one kind, a row for each."""
        if _lengths(self.samples[members[0]]) is None:
            return np.array([self.call(k).ints for k in members], np.int64)
        return np.array([list(chain(*self.samples[k])) for k in members], np.int64)

    def _numbers(self, members: list[int], ids: Addresses) -> Floats:
        """The numbers that samples of one kind have of their own, in the order of the inputs."""
        size = self.call(members[0]).size
        made = np.empty((len(members), size + ids.shape[1]))
        if size:
            for row, k in zip(made, members, strict=True):
                self.call(k).write(row[:size])
        made[:, size:] = ids
        return made

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
        self.row_of = np.full(len(self.samples), -1, np.int64)
        self._used = 0  # rows
        self.gathers: Addresses = np.empty((0, 1), np.int64)
        self.own: Floats = np.empty((0, 1))
        self._open: tuple[Addresses, Floats] = self.gathers, self.own

    def reconsider(self) -> None:
        """Look again at samples that ran otherwise, if something has been learnt since."""
        learnt = 0
        for variant, _ in self._variants.values():
            indexing = variant.indexing if variant.family is None else variant.family.indexing
            learnt += len(indexing.ids)
        if learnt != self._learnt:
            self._learnt = learnt
            self.fit_of[self.fit_of == ODD] = UNKNOWN

    def arranged(self, chosen: Addresses, batch: int) -> Arrangement:
        """Samples that have been looked at in lanes, so many a step."""
        assert self.lifted is not None
        return Arrangement(self.lifted, self.fits, self.fit_of, chosen, batch)

    def _take_rows(self, members: Addresses) -> Addresses:
        """Rows for samples that have none, as they are where a sample leaves something open."""
        need = self._used + len(members)
        if need > len(self.gathers):
            more = max(need, 2 * len(self.gathers))
            gathers = np.empty((more, self.gathers.shape[1]), np.int64)
            own = np.empty((more, self.own.shape[1]), self.own.dtype)
            gathers[: self._used] = self.gathers[: self._used]
            own[: self._used] = self.own[: self._used]
            self.gathers, self.own = gathers, own
        rows = np.arange(self._used, need)
        self.gathers[rows], self.own[rows] = self._open
        self.row_of[members], self._used = rows, need
        return rows

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
                self.gathers = np.empty((0, max(1, len(program.places))), np.int64)
                self.own = np.empty((0, len(program.private)), variant.lifted.dtype)
                # What a short sample leaves open is as good as anything.
                numbers = np.ones(len(program.private))
                numbers[variant.fit.private] = self._numbers([k], self._ids([k]))[0]
                self._open = _some_choice(program), numbers
            self._variants[key] = (variant, len(self.fits))
            self.fits.append(variant.fit)
        return self._variants[key]

    def look_at(self, wanted: Addresses) -> None:
        """Work out what some samples select."""
        if self.gathers[: self._used].nbytes + self.own[: self._used].nbytes > MEMORY:
            self.row_of[:], self._used = -1, 0
            self.fit_of[self.fit_of >= 0] = UNKNOWN
            self._calls.clear()
        alike: dict[Any, list[int]] = {}
        for k in np.unique(wanted[self.fit_of[wanted] == UNKNOWN]).tolist():
            alike.setdefault(self._kind(k), []).append(k)
        for members in alike.values():
            try:
                ids = self._ids(members)
            except OverflowError:  # too large for machine code
                self.fit_of[members] = ODD
                continue
            found = self.first_of(members[0])
            if found is None:
                self.fit_of[members] = ODD
                continue
            variant, fit = found
            rows = self._take_rows(np.array(members))
            self.own[np.ix_(rows, self.fits[fit].private)] = self._numbers(members, ids)
            if not self._together(variant, members, ids):
                self._one_by_one(variant, members)
            known = self.fit_of[members] == UNKNOWN
            self.fit_of[np.array(members)[known]] = fit

    def _together(self, variant: Variant, members: list[int], ids: Addresses) -> bool:
        """By the family's tables, all at once; whether that was possible."""
        lifted, fit = variant.lifted, variant.fit
        family, slots = variant.family, variant.slots
        if family is None or slots is None or lifted is None or fit is None:
            return False
        choices = family.choices()
        if choices is None:
            return False
        made, known = choices.rows(fit, slots, ids)
        if not known.all():
            self._teach(family, members[0], slots, ids, known)
            choices = family.choices()
            if choices is None:
                return False
            made, known = choices.rows(fit, slots, ids)
        good = (made >= 0).all(axis=1) & known.all(axis=1)
        if fit is not family.lifted.fit and family.proved is None:
            good &= (ids >= 0).all(axis=1)  # a negative one counts from the end
        rows = np.array(members)
        if good.all():
            self.gathers[np.ix_(self.row_of[rows], fit.gathers)] = made
        else:
            self.gathers[np.ix_(self.row_of[rows[good]], fit.gathers)] = made[good]
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
            alike: dict[Any, list[int]] = {}
            for k in range(len(self.samples)):
                alike.setdefault(self._kind(k), []).append(k)
            found: dict[int, list[Addresses]] = {}
            for members in alike.values():
                slots = slots_among(runs_of(self.call(members[0]))[1], family.runs)
                table = self._ids(members)
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
                self.gathers[self.row_of[k], fit.gathers] = gathered


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

    def run(self, first_step: int, count: int, ahead: int = 0) -> npt.NDArray[np.float64]:
        """Take up to ``count`` steps in place; the loss of each step taken.

        Samples are taken apart for up to ``ahead`` steps: more at once take less time.
        """
        with self._source.lock:
            return self._run(first_step, count, max(ahead, count))

    def _run(self, first_step: int, count: int, ahead: int) -> npt.NDArray[np.float64]:
        if not self._source.fresh():
            self._samples.forget()
        count, ahead = (min(n, max(1, AT_ONCE // self._batch)) for n in (count, ahead))
        self._samples.reconsider()
        first, batch = first_step * self._batch, self._batch
        chosen = np.arange(first, first + ahead * batch) % len(self._samples.samples)
        if (self._samples.fit_of[chosen[: count * batch]] == UNKNOWN).any():
            self._samples.look_at(chosen)
        chosen = chosen[: count * batch]
        odd = np.flatnonzero(self._samples.fit_of[chosen] < 0)
        count = min(count, int(odd[0]) // batch if len(odd) else count)
        count = len(self._learning_rates(first_step, count))
        if not count or self._samples.lifted is None:
            return np.zeros(0)
        return self._take(self._samples.lifted, chosen[: count * batch], first_step, count)

    def _take(
        self, lifted: Lifted, chosen: Addresses, first_step: int, count: int
    ) -> npt.NDArray[np.float64]:
        dtype, samples = np.dtype(lifted.dtype), self._samples
        made = samples.arranged(chosen, self._batch)
        code, program, lanes = made.code, made.program, made.lanes
        gathers = made.gathers(samples.gathers, samples.row_of)
        own = made.own(samples.own, samples.row_of)
        seeds = (made.groups.counted / self._batch).astype(dtype)
        constants, counts = made.constants.astype(dtype), made.counts
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
            reverse=code.reverse,
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
            fits=steps.words(made.fits),
            starts=steps.words(made.groups.starts),
            rates=steps.words(rates),
            losses=steps.words(losses),
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


def _lengths(sample: tuple[Any, ...]) -> tuple[int, ...] | None:
    """Those of a sample that is nothing but lists of integers, each another list."""
    for x in sample:
        if type(x) is not list or set(map(type, x)) != {int}:
            return None
    if len(sample) > 1 and len(set(map(id, sample))) < len(sample):
        return None
    return tuple(map(len, sample))


def _some_choice(program: Program) -> Addresses:
    """Something that each gather may select."""
    found = [np.zeros(0, np.int64)]
    for instruction in program.instructions:
        if instruction.candidates is not None:
            found.append(np.full(instruction.count, instruction.candidates[0]))
    choice = np.concatenate(found)
    return choice if len(choice) else np.zeros(1, np.int64)


def mean_of(prepared: Prepared, parameters: Floats) -> tuple[float, Floats, list[int]] | None:
    """What samples add to the mean value of all, and to its gradient by the parameters.

    These come in one row. At the end: which samples do not run on the code of the others, and are
    left out. None where too few are left, or something is not finite.
    """
    count, size = len(prepared.samples), len(parameters)
    prepared.look_at(np.arange(count))
    lifted, chosen = prepared.lifted, np.flatnonzero(prepared.fit_of >= 0)
    if lifted is None or len(chosen) < 2:
        return None
    made = prepared.arranged(chosen, len(chosen))
    code, groups = made.code, made.groups
    gathers = made.gathers(prepared.gathers, prepared.row_of)
    own = made.own(prepared.own, prepared.row_of)
    constants, counts = made.constants, made.counts
    root = (made.root - made.program.shared) * made.lanes
    lifted.current = None
    code.shared[:size] = parameters
    value, gradient = 0.0, np.zeros(size)
    for g, fit in enumerate(made.fits.tolist()):
        code.shared[made.program.inputs :] = constants[fit]
        code.gathers[:] = gathers[g].ravel()
        code.own[: own[g].size] = own[g].ravel()
        code.seeds[:] = groups.counted[g] / count
        trips = steps.words(counts[fit])
        if not code.run(trips) or not code.sweep(trips):
            code.seeds[:] = 1.0
            return None
        value += float(code.own[root : root + made.lanes] @ code.seeds)
        gradient += code.shared_adjoints[:size]
    code.seeds[:] = 1.0
    return value, gradient, np.flatnonzero(prepared.fit_of < 0).tolist()
