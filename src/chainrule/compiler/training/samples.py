"""Samples as the machine code wants them.

In: samples of training, or of a batch. Out: a ``Prepared``: for each sample which fit of the code
it runs with, the numbers it has of its own, and its integers; and ``Tables`` of what integers
select, by which the rows that gathers read are made, many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.lift.program import Addresses, Program
from chainrule.compiler.runtime.families import Choices, Family, runs_of, slots_among
from chainrule.compiler.runtime.lifted import Fit, Lifted
from chainrule.compiler.runtime.variants import Variant
from chainrule.core.backend import kernels
from chainrule.trees import Array

UNKNOWN, ODD = -1, -2  # a sample not looked at yet, one that runs otherwise
MEMORY = 1 << 27  # bytes: for samples that have been flattened
NONE = np.iinfo(np.int64).min  # in the place of an integer that a shorter sample does not have
SPARSE = 4  # a table has at most so many rows for each integer that is known


class Source(Protocol):
    """What is needed of the compiled function."""

    lock: Any  #: held while its machine code runs

    def ready(self, call: Call) -> Variant | None:
        """The variant that has just computed a call."""

    def arrays(self) -> list[Array]:
        """The arrays that the function reaches by itself."""

    def fresh(self) -> bool:
        """Whether what the function reaches is as it was."""

    def teach(self, family: Family, call: Call, ids: Sequence[int]) -> bool:
        """Record the longest call of a family with these integers."""


class Prepared:
    """Samples as the machine code wants them, worked out when they are needed.

    ``fit_of[k]`` is the place in ``fits`` of what sample k fits (or UNKNOWN, or ODD). Row
    ``row_of[k]`` of ``ids`` are its integers, in the places they have in the longest sample, that
    of ``own`` the numbers it has of its own. There are rows for so many samples as fit into some
    memory; then they are worked out anew.
    """

    def __init__(self, source: Source, params: Any, samples: list[tuple[Any, ...]]) -> None:
        self.source = source
        self.params, self.samples = params, samples
        self._calls: dict[int, Call] = {}
        self.forget()

    def call(self, k: int) -> Call:
        """Sample k, flattened."""
        if k not in self._calls:
            self._calls[k] = flatten_call(self.samples[k], {}, differentiate=False)
        return self._calls[k]

    def longest(self) -> int:
        """The sample with the longest lists."""
        sizes = [sum([len(x) for x in s if hasattr(x, "__len__")]) for s in self.samples]
        return max(range(len(sizes)), key=sizes.__getitem__)

    def forget(self) -> None:
        """Look at every sample again."""
        self.fits: list[Fit] = []
        self._variants: dict[Any, tuple[Variant, int]] = {}  # by the structure of a sample
        self._family: Family | None = None
        self.lifted: Lifted | None = None
        self._integers: dict[int, Addresses] | None = None
        self._learnt = 0
        self.fit_of = np.full(len(self.samples), UNKNOWN, np.int64)
        self.row_of = np.full(len(self.samples), -1, np.int64)
        self._forget_rows()

    def _forget_rows(self) -> None:
        self.fit_of[self.fit_of >= 0] = UNKNOWN
        self.row_of[:] = -1
        self._used = 0  # rows
        self._explicit: dict[int, Addresses] = {}  # what samples select that tables do not tell
        self._calls.clear()

    def reconsider(self) -> None:
        """Look again at samples that ran otherwise, if something has been learnt since."""
        learnt = 0
        for variant, _ in self._variants.values():
            indexing = variant.indexing if variant.family is None else variant.family.indexing
            learnt += len(indexing.ids)
        if learnt != self._learnt:
            self._learnt = learnt
            self.fit_of[self.fit_of == ODD] = UNKNOWN

    # --- kinds of samples -------------------------------------------------------------------------

    def _whole(self, k: int) -> Call:
        return flatten_call((self.params, *self.samples[k]), {}, differentiate=True)

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
                self._begin(variant, variant.lifted, variant.fit, k)
            self._variants[key] = (variant, len(self.fits))
            self.fits.append(variant.fit)
        return self._variants[key]

    def _begin(self, variant: Variant, lifted: Lifted, fit: Fit, k: int) -> None:
        """Prepare samples for this code."""
        self.lifted, self._family = lifted, variant.family
        slots = 0 if variant.family is None else len(variant.family.base)
        self.ids = np.empty((0, slots), np.int64)
        self.own = np.empty((0, len(lifted.program.private)), lifted.dtype)
        # What a short sample leaves open is as good as anything.
        self._open = np.ones(len(lifted.program.private))
        ((_, ids),) = self._kinds(np.array([k]))
        self._open[fit.private] = self._numbers([k], ids)[0]

    def _kinds(self, chosen: Addresses) -> Iterator[tuple[list[int], Addresses]]:
        """Samples that have one structure, and their integers, a row for each."""
        lengths, ids = self._read(chosen)
        plain = lengths[:, 0] >= 0
        starts = np.concatenate([[0], np.cumsum(lengths[plain].sum(axis=1))])
        kinds: dict[tuple[int, ...], list[int]] = {}
        for place, row in enumerate(lengths[plain].tolist()):
            kinds.setdefault(tuple(row), []).append(place)
        for each, places in kinds.items():
            members = chosen[plain][places].tolist()
            yield members, ids[starts[places][:, None] + np.arange(sum(each))]
        alike: dict[Any, list[int]] = {}
        for k in chosen[~plain].tolist():
            alike.setdefault(self.call(k).key, []).append(k)
        for members in alike.values():
            try:
                rows = np.array([self.call(k).ints for k in members], np.int64)
            except OverflowError:  # too large for machine code
                self.fit_of[members] = ODD
                continue
            yield members, rows

    def _read(self, chosen: Addresses) -> tuple[Addresses, Addresses]:
        """The integers of samples that are lists of some, and the lengths of these lists, or -1."""
        lengths = np.full((len(chosen), max(1, len(self.samples[0]))), -1, np.int64)
        if kernels is not None:
            found = kernels.sample_integers(self.samples, chosen, lengths)
            return lengths, np.frombuffer(found, np.int64)
        ids: list[int] = []
        for row, k in zip(lengths, chosen.tolist(), strict=True):
            sample = self.samples[k]
            if len(sample) == len(row) and _is_plain(sample):
                row[:] = list(map(len, sample))
                ids += chain(*sample)
        return lengths, np.array(ids, np.int64)

    def _numbers(self, members: list[int], ids: Addresses) -> Array:
        """The numbers that samples of one kind have of their own, in the order of the inputs."""
        size = self.call(members[0]).size
        made = np.empty((len(members), size + ids.shape[1]))
        if size:
            for row, k in zip(made, members, strict=True):
                self.call(k).write(row[:size])
        made[:, size:] = ids
        return made

    # --- what they select -------------------------------------------------------------------------

    def look_at(self, wanted: Addresses) -> None:
        """Work out what some samples select."""
        if (
            self.lifted is not None
            and self._used * (self.ids.shape[1] + len(self._open)) * 8 > MEMORY
        ):
            self._forget_rows()
        unknown = np.unique(wanted[self.fit_of[wanted] == UNKNOWN])
        for members, ids in self._kinds(unknown):
            found = self.first_of(members[0])
            if found is None:
                self.fit_of[members] = ODD
                continue
            variant, fit = found
            chosen = np.array(members)
            rows = self._take_rows(chosen)
            self.own[np.ix_(rows, self.fits[fit].private)] = self._numbers(members, ids)
            known = self._known(variant, self.fits[fit], members, ids)
            if known.any():
                assert variant.slots is not None
                self.ids[np.ix_(rows[known], variant.slots)] = ids[known]
            self._one_by_one(variant, self.fits[fit], chosen[~known].tolist())
            self.fit_of[chosen[self.fit_of[chosen] == UNKNOWN]] = fit

    def _take_rows(self, members: Addresses) -> Addresses:
        """Rows for samples that have none, with nothing in them."""
        need = self._used + len(members)
        if need > len(self.ids):
            more = max(need, 2 * len(self.ids))
            ids = np.empty((more, self.ids.shape[1]), np.int64)
            own = np.empty((more, self.own.shape[1]), self.own.dtype)
            ids[: self._used], own[: self._used] = self.ids[: self._used], self.own[: self._used]
            self.ids, self.own = ids, own
        rows = np.arange(self._used, need)
        self.ids[rows], self.own[rows] = NONE, self._open
        self.row_of[members], self._used = rows, need
        return rows

    def _known(
        self, variant: Variant, fit: Fit, members: list[int], ids: Addresses
    ) -> npt.NDArray[np.bool_]:
        """Of which samples tables tell what they select."""
        family, slots = variant.family, variant.slots
        nothing = np.zeros(len(members), np.bool_)
        choices = None if family is None else family.choices()
        if family is None or slots is None or choices is None or family is not self._family:
            return nothing
        good, known = choices.check(fit, slots, ids)
        if not known.all():
            self._teach(family, members[0], slots, ids, known)
            choices = family.choices()
            if choices is None:
                return nothing
            good, known = choices.check(fit, slots, ids)
        if fit is not family.lifted.fit and family.proved is None:
            good &= (ids >= 0).all(axis=1)  # a negative one counts from the end
        return good if self.tables(None) is not None else nothing

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
            found: dict[int, list[Addresses]] = {}
            for members, ids in self._kinds(np.arange(len(self.samples))):
                slots = slots_among(runs_of(self.call(members[0]))[1], family.runs)
                for c, slot in enumerate(() if slots is None else slots.tolist()):
                    found.setdefault(slot, []).append(np.unique(ids[:, c]))
            self._integers = {k: np.unique(np.concatenate(v)) for k, v in found.items()}
        return self._integers

    def _one_by_one(self, variant: Variant, fit: Fit, members: list[int]) -> None:
        for k in members:
            gathered = variant.gathered(self.call(k).ints)
            if gathered is None and self.source.ready(self._whole(k)) is variant:
                gathered = variant.gathered(self.call(k).ints)
            if gathered is None or variant.fit is not fit:  # it may have been lifted anew
                self.fit_of[k] = ODD
            else:
                self._explicit[k] = gathered

    # --- for the code -----------------------------------------------------------------------------

    def tables(self, to: Addresses | None) -> Tables | None:
        """What integers select; ``to``: where the code has each address of the program."""
        assert self.lifted is not None
        choices = None if self._family is None else self._family.choices()
        if self._family is None or choices is None:
            return None
        mixed = to is not None
        known: tuple[Addresses | None, Tables | None] = choices.tables.get(mixed, (None, None))
        if mixed not in choices.tables or known[0] is not to:
            made = Tables.of(choices, len(self._family.base), self.lifted.program, to)
            known = choices.tables[mixed] = to, made
        return known[1]

    def gathers(self, members: Addresses, to: Addresses | None) -> Addresses:
        """What the gathers of some samples select, a row for each."""
        assert self.lifted is not None
        flat, tables = members.ravel(), self.tables(to)
        default = _some_choice(self.lifted.program)
        default = default if to is None else to[default]
        if tables is None:
            made = np.tile(default, (len(flat), 1))
        else:
            made = tables.rows(self.ids[self.row_of[flat]], default)
        if self._explicit:
            for row, k in zip(made, flat.tolist(), strict=True):
                if k in self._explicit:
                    found = self._explicit[k]
                    row[self.fits[self.fit_of[k]].gathers] = found if to is None else to[found]
        return made.reshape(*members.shape, -1)


@dataclass(frozen=True, eq=False)
class Tables:
    """What each integer in each place of the longest sample selects.

    ``places``: for each place the first integer, how many, how many gathers follow it, and where
    in ``positions`` (the gathers) and ``addresses`` (a row for each integer) theirs begin.
    """

    places: Addresses
    positions: Addresses
    addresses: Addresses

    @classmethod
    def of(
        cls, choices: Choices, slots: int, program: Program, to: Addresses | None
    ) -> Tables | None:
        """Those of some choices; None where two integers decide on one, or are far apart."""
        places = np.zeros((slots, 5), np.int64)
        positions, addresses = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        default, size = _some_choice(program), 0
        for slot, (seen, followers, found) in choices.slots.items():
            first, count = int(seen[0]), int(seen[-1] - seen[0]) + 1
            if count > SPARSE * len(seen) + 64:
                return None
            rows = np.tile(default[followers], (count, 1))
            rows[seen - first] = np.where(found < 0, rows[seen - first], found)
            places[slot] = first, count, len(followers), sum(map(len, positions)), size
            positions.append(followers)
            addresses.append((rows if to is None else to[rows]).ravel())
            size += rows.size
        joined = np.concatenate(positions)
        if len(np.unique(joined)) < len(joined):
            return None
        return cls(places, joined, np.concatenate(addresses))

    def rows(self, ids: Addresses, default: Addresses) -> Addresses:
        """The addresses for each row of integers."""
        made = np.empty((len(ids), len(default)), np.int64)
        if kernels is not None:
            kernels.select_rows(made, default, ids, self.places, self.positions, self.addresses)
            return made
        made[:] = default
        for slot, (first, count, width, at, start) in enumerate(self.places.tolist()):
            there = np.flatnonzero(ids[:, slot] != NONE)
            table = self.addresses[start : start + count * width].reshape(count, width)
            made[np.ix_(there, self.positions[at : at + width])] = table[ids[there, slot] - first]
        return made


def _is_plain(sample: tuple[Any, ...]) -> bool:
    """Whether a sample is nothing but lists of integers, each another list."""
    for x in sample:
        if type(x) is not list or set(map(type, x)) != {int}:
            return False
        if not -(1 << 63) <= min(x) <= max(x) < 1 << 63:
            return False
    return len(set(map(id, sample))) == len(sample)


def _some_choice(program: Program) -> Addresses:
    """Something that each gather may select."""
    found = [np.zeros(0, np.int64)]
    for instruction in program.instructions:
        if instruction.candidates is not None:
            found.append(np.full(instruction.count, instruction.candidates[0]))
    choice = np.concatenate(found)
    return choice if len(choice) else np.zeros(1, np.int64)
