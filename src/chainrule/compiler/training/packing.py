"""Packed samples: rows of numbers and addresses for machine code.

In: samples of training, or of a batch. Out: ``PackedSamples``: for each sample which fit of the
code it runs with, the numbers it has of its own, and its integers; and ``Tables`` of what integers
select, by which the rows that gathers read are made, many at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.capture.integers import EXACT
from chainrule.compiler.lift.program import Addresses, Program
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.families import Choices, Family
from chainrule.compiler.runtime.machine import Fit, MachineCode
from chainrule.compiler.runtime.variants import Binding, Run, Variant
from chainrule.core.backend import kernels
from chainrule.trees import Array

UNKNOWN, ODD = -1, -2  # a sample not looked at yet, one that runs otherwise
MEMORY = 1 << 27  # bytes: for packed samples
NONE = np.iinfo(np.int64).min  # in the place of an integer that a shorter sample does not have


@dataclass(frozen=True, eq=False)
class Kind:
    """What samples of one structure run on, and the place of its fit among all."""

    variant: Variant
    binding: Binding
    place: int


class PackedSamples:
    """Samples packed for machine code when they are needed.

    ``fit_of[k]`` is the place in ``fits`` of what sample k fits (or UNKNOWN, or ODD). Row
    ``row_of[k]`` of ``ids`` are its integers, in the places they have in the longest sample, that
    of ``own`` the numbers it has of its own. There are rows for so many samples as fit into some
    memory; then they are worked out anew.
    """

    def __init__(self, dispatch: Dispatch, params: Any, samples: list[tuple[Any, ...]]) -> None:
        self._dispatch = dispatch
        self.params, self.samples = params, samples
        self._calls: dict[int, Call] = {}
        self.forget()

    def call(self, k: int) -> Call:
        """Sample k flattened."""
        if k not in self._calls:
            self._calls[k] = flatten_call(self.samples[k], {}, differentiate=False)
        return self._calls[k]

    def longest(self) -> int:
        """The sample with the longest lists."""
        sizes = [sum(map(_length, sample)) for sample in self.samples]
        return max(range(len(sizes)), key=sizes.__getitem__)

    def forget(self) -> None:
        """Look at every sample again."""
        self.fits: list[Fit] = []
        self._kinds_met: dict[Any, Kind] = {}  # by the structure of a sample
        self._family: Family | None = None
        self.machine: MachineCode | None = None
        self.fit_of = np.full(len(self.samples), UNKNOWN, np.int64)
        self.row_of = np.full(len(self.samples), -1, np.int64)
        self._forget_rows()

    def _forget_rows(self) -> None:
        self.fit_of[self.fit_of >= 0] = UNKNOWN
        self.row_of[:] = -1
        self._used = 0  # rows
        self._explicit: dict[int, Addresses] = {}  # what samples select that tables do not tell
        self._calls.clear()

    # --- kinds of samples -------------------------------------------------------------------------

    def _whole(self, k: int) -> Call:
        return flatten_call((self.params, *self.samples[k]), {}, differentiate=True)

    def _run(self, k: int) -> Run:
        """Compute a sample as a call of its own."""
        with self._dispatch.lock:
            return self._dispatch.run(self._whole(k), at_once=True)

    def kind_of(self, k: int) -> Kind | None:
        """What samples like this one run on; None where it is not the others' code."""
        key = self.call(k).key
        if key not in self._kinds_met:
            variant = self._run(k).variant
            if variant is None or variant.binding is None:
                return None
            machine = variant.binding.machine
            if machine.root < machine.program.shared:
                return None
            if len(variant.captured) or (self.machine or machine) is not machine:
                return None
            if self.machine is None:
                self._begin(variant, variant.binding, k)
            self._kinds_met[key] = Kind(variant, variant.binding, len(self.fits))
            self.fits.append(variant.binding.fit)
        return self._kinds_met[key]

    def _begin(self, variant: Variant, binding: Binding, k: int) -> None:
        """Pack samples for this code."""
        machine, family = binding.machine, binding.family
        self.machine, self._family = machine, family
        slots = 0 if family is None else sum(n for n, _ in family.runs)
        self.ids = np.empty((0, slots), np.int64)
        self.own = np.empty((0, len(machine.program.private)), machine.dtype)
        # What a short sample leaves open is as good as anything.
        self._open = np.ones(len(machine.program.private))
        ((_, ids),) = self._kinds(np.array([k]))
        self._open[binding.fit.private] = self._numbers(variant, [k], ids)[0]

    def _kinds(self, chosen: Addresses) -> Iterator[tuple[list[int], Addresses]]:
        """Samples of one structure, and their integers, a row for each."""
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

    def _numbers(self, variant: Variant, members: list[int], ids: Addresses) -> Array:
        """The numbers that samples of one kind have of their own, in the order of the inputs."""
        size, stop = self.call(members[0]).size, self.call(members[0]).size + ids.shape[1]
        computed = len(variant.recording.selection.numbers)
        made = np.empty((len(members), stop + computed))
        if size:
            for row, k in zip(made, members, strict=True):
                self.call(k).write(row[:size])
        made[:, size:stop] = ids
        if computed:
            for row, integers in zip(made, ids.tolist(), strict=True):
                decided = variant.decide(integers)
                row[stop:] = 0.0 if decided is None else decided[1]  # another path: not run so
        return made

    # --- what they select -------------------------------------------------------------------------

    def look_at(self, wanted: Addresses) -> None:
        """Work out what some samples select."""
        if (
            self.machine is not None
            and self._used * (self.ids.shape[1] + len(self._open)) * 8 > MEMORY
        ):
            self._forget_rows()
        unknown = np.unique(wanted[self.fit_of[wanted] == UNKNOWN])
        for members, ids in self._kinds(unknown):
            kind = self.kind_of(members[0])
            if kind is None:
                self.fit_of[members] = ODD
                continue
            chosen, binding = np.array(members), kind.binding
            rows = self._take_rows(chosen)
            numbers = self._numbers(kind.variant, members, ids)
            self.own[np.ix_(rows, binding.fit.private)] = numbers
            if kind.variant.uses_math:
                self.fit_of[chosen[~np.isfinite(numbers).all(axis=1)]] = ODD
            known = self._known(kind, ids)
            if known.any():
                assert binding.slots is not None
                self.ids[np.ix_(rows[known], binding.slots)] = ids[known]
            self._one_by_one(kind, chosen[~known].tolist())
            beyond = np.abs(ids[:, sorted(kind.variant.numeric)]) > EXACT
            self.fit_of[chosen[beyond.any(axis=1)]] = ODD  # not numbers without rounding
            self.fit_of[chosen[self.fit_of[chosen] == UNKNOWN]] = kind.place

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

    def _known(self, kind: Kind, ids: Addresses) -> npt.NDArray[np.bool_]:
        """Of which samples tables tell what they select."""
        binding, selection = kind.binding, kind.variant.recording.selection
        family, slots = binding.family, binding.slots
        nothing = np.zeros(len(ids), np.bool_)
        if family is None or slots is None or family is not self._family:
            return nothing
        own = Choices.of(selection, binding.fit, slots)
        if own is None or family.choices is None or self.tables(None) is None:
            return nothing
        return own.told(family.choices, ids, slots)

    def _one_by_one(self, kind: Kind, members: list[int]) -> None:
        variant, binding = kind.variant, kind.binding
        for k in members:
            gathered = variant.gathered(binding, self.call(k).ints)
            if gathered is None or variant.binding is not binding:  # it may have been built anew
                self.fit_of[k] = ODD
            else:
                self._explicit[k] = gathered

    # --- for the code -----------------------------------------------------------------------------

    def tables(self, to: Addresses | None) -> Tables | None:
        """What integers select; ``to``: where the code has each address of the program."""
        assert self.machine is not None
        choices = None if self._family is None else self._family.choices
        if self._family is None or choices is None:
            return None
        mixed = to is not None
        known: tuple[Addresses | None, Tables | None] = choices.tables.get(mixed, (None, None))
        if mixed not in choices.tables or known[0] is not to:
            slots = sum(n for n, _ in self._family.runs)
            made = Tables.of(choices, slots, self.machine.program, to)
            known = choices.tables[mixed] = to, made
        return known[1]

    def gathers(self, members: Addresses, to: Addresses | None) -> Addresses:
        """What the gathers of some samples select, a row for each."""
        assert self.machine is not None
        flat, tables = members.ravel(), self.tables(to)
        default = _some_choice(self.machine.program)
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
        """Those of some choices; None where two integers decide on one."""
        places = np.zeros((slots, 5), np.int64)
        positions, addresses = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        default, size = _some_choice(program), 0
        for slot, (most, followers, found) in choices.slots.items():
            first, count = -most, len(found)
            rows = np.where(found < 0, default[followers], found)
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


def _length(x: Any) -> int:
    return 0 if isinstance(x, np.ndarray) and not x.ndim else len(x) if hasattr(x, "__len__") else 0


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
