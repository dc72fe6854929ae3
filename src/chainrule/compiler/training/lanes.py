"""Which samples go through the machine code together, a lane for each.

In: packed samples, and how many make a step. Out: an ``Arrangement``, which has the code to run,
and of some samples ``Groups``: what each group of them reads. Samples go one by one, or several of
one length at a time, or of any length, whichever is the least work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.program import Addresses, Program
from chainrule.compiler.mapping.costs import costs
from chainrule.compiler.runtime.machine import Fit, Kernel, MachineCode
from chainrule.compiler.training.mixed import Mixed
from chainrule.compiler.training.packing import PackedSamples
from chainrule.compiler.training.stretches import Stretches
from chainrule.trees import Floats

FEWEST = 4  # samples in a step for which it is worth filling lanes

#: from the fits of samples, in order, how many make a step, the lanes, and the parts of a step that
#: threads share, to groups
Way = Callable[[Addresses, int, int, int], "Grouping"]


@dataclass(frozen=True)
class Grouping:
    """Samples by groups: ``starts[s]`` is the first group of step s."""

    members: Addresses  # a row for each group, the longest first
    counted: npt.NDArray[np.bool_]  # lanes left over repeat samples in turn, and do not count
    starts: Addresses

    def work(self, costs: Floats) -> float:
        """How much there is to do; ``costs``: of each sample, that of a group is its longest's."""
        return float(costs[self.members[:, 0]].sum())


class Arrangement:
    """How samples go through the machine code: several at a time or one by one, and which code.

    It is decided once, by the work of some samples, and holds for all: how many steps are taken in
    one call makes no difference to a single bit. NotLiftable where no code serves all that fits.
    """

    def __init__(
        self,
        samples: PackedSamples,
        chosen: Addresses,
        batch: int,
        alone: bool = True,
        parts: int = 1,
    ) -> None:
        """``chosen``: samples that have been looked at, in order, so many a step.

        ``alone``: all samples of these steps are among them; if not, they go one by one.
        ``parts``: of a step, between threads.
        """
        assert samples.machine is not None
        machine, fits, fit_of = samples.machine, samples.fits, samples.fit_of
        self._samples, self.batch, self._width = samples, batch, machine.width
        self._parts = parts
        options: list[tuple[Way, Mixed | None]] = [(_one_by_one, None)]
        if batch >= FEWEST and alone:
            options.append((_alike, None))
            mixed = _mixed_for(machine, fits) if len(fits) > 1 else None
            if mixed is not None:
                options.append((_sorted, mixed))
        if len(options) > 1:
            each = np.array([costs(machine, fit) for fit in fits])[fit_of[chosen]]

            def work(option: tuple[Way, Mixed | None]) -> float:
                way, mixed = option
                mine = each[:, 0] if way is _one_by_one else each[:, 1]
                return self._grouped(way, mixed, chosen).work(mine)

            options.sort(key=work)
        self.machine, self._fits = machine, tuple(fits)
        self._seeds = np.zeros((0, 1))
        for option in options:
            self._way, self._mixed = option
            self.lanes = 1 if self._way is _one_by_one else machine.width
            try:
                self.code, self.counts = self._kernel()
                break
            except NotLiftable:
                if self._mixed is not None:
                    machine.mixed, machine.unmixed = None, set(self._mixed.fits)
                if option is options[-1]:
                    raise
        code = self._mixed or machine
        self.program: Program = code.program
        self.root: int = code.root
        self.work, self.constants = self.program.work, self._constants()

    def serves(self) -> bool:
        """Whether it was made for all that samples have been found to fit."""
        return len(self._fits) == len(self._samples.fits)

    def groups(self, chosen: Addresses) -> Groups:
        """Samples that have been looked at, in order, as they go through the code."""
        return Groups(self, self._samples, self._grouped(self._way, self._mixed, chosen), chosen)

    def equal_seeds(self, count: int) -> npt.NDArray[Any]:
        """The seeds of so many samples that go one by one."""
        if len(self._seeds) < count:
            self._seeds = np.full((count, 1), 1 / self.batch, self._samples.own.dtype)
        return self._seeds

    def _grouped(self, way: Way, mixed: Mixed | None, chosen: Addresses) -> Grouping:
        here = self._samples.fit_of[chosen]
        if mixed is not None:  # by their lengths
            here = np.array([mixed.fits.index(fit) for fit in self._samples.fits])[here]
        return way(here, self.batch, self._width, self._parts)

    def _constants(self) -> npt.NDArray[Any]:
        if self._mixed is not None:
            return np.stack([self.program.constants] * len(self._fits))
        return np.stack([fit.constants for fit in self._fits])

    def _kernel(self) -> tuple[Kernel, npt.NDArray[np.int64]]:
        """The code, and its own trip counts for each fit; NotLiftable where it does not fit one."""
        if self._mixed is not None:
            code = self._mixed.kernel(self.lanes)
            return code, np.stack([self._mixed.trips(fit, self.lanes) for fit in self._fits])
        code = self.machine.kernel(self.lanes, many=self.batch > 1)
        return code, np.stack([code.counts(fit) for fit in self._fits])

    @functools.cached_property
    def moves(self) -> Addresses | None:
        """Where the code has each address of the program; None where gathers read it there."""
        if self._mixed is None:
            return None
        found = (i.candidates for i in self.machine.program.instructions)
        every = [c for c in found if c is not None]
        return self._mixed.to if any((self._mixed.to[c] != c).any() for c in every) else None

    @functools.cached_property
    def extra(self) -> npt.NDArray[Any] | None:
        """The numbers that lanes of several lengths need besides, a row for each fit."""
        if self._mixed is None:
            return None
        rows = np.stack([self._mixed.numbers(fit) for fit in self._fits])
        return rows.astype(self._samples.own.dtype)


@dataclass(frozen=True)
class Rows:
    """What groups of samples that run on one code read: tables, and which rows of them are lanes'.

    The loop of ``step_code`` takes from these what the arenas of a group are filled with.
    """

    own: npt.NDArray[Any]  # numbers, a row for each sample
    gathers: Addresses  # likewise, the beginnings of stretches of addresses
    members: Addresses  # which of these rows, [group, lane]
    fits: Addresses | None  # and which rows of the ``extra`` of their arrangement
    seeds: npt.NDArray[Any]  # [group, lane]
    stretches: Stretches


class Groups:
    """Samples in lanes, group after group, and what each group reads."""

    def __init__(
        self, made: Arrangement, samples: PackedSamples, grouping: Grouping, chosen: Addresses
    ) -> None:
        self._made, self._samples = made, samples
        self._places = grouping.members
        self.members = chosen[grouping.members]
        self.counted, self.starts = grouping.counted, grouping.starts
        #: the fit of each group, a row of the arrangement's ``constants`` and ``counts``
        self.fits = np.ascontiguousarray(samples.fit_of[self.members[:, 0]])

    def rows(self, keys: Floats | None) -> Rows:
        """What the groups read, where it is, but for random numbers.

        ``keys``: of these, a row for each sample, in order.
        """
        samples, made = self._samples, self._made
        own, gathers = samples.own, samples.gathered
        members = np.ascontiguousarray(samples.row_of[self.members])
        seeds = made.equal_seeds(len(members))
        if made.lanes > 1:
            seeds = np.ascontiguousarray(self.counted / made.batch, own.dtype)
        fits = None
        if made.extra is not None:
            fits = np.ascontiguousarray(samples.fit_of[self.members])
        if keys is not None:
            places, chosen = self._places.ravel(), self.members.ravel()
            own, gathers = own[members.ravel()], gathers[members.ravel()]
            columns = samples.key_columns()[samples.fit_of[chosen]]
            np.put_along_axis(own, columns, keys[places].astype(own.dtype), axis=1)
            members = np.arange(members.size).reshape(members.shape)
        return Rows(own, gathers, members, fits, seeds, samples.stretches)

    def gathers(self) -> Addresses:
        """What gathers select, [group, lane, gather]."""
        samples, moves = self._samples, self._made.moves
        made = samples.stretches.expanded(samples.gathered[samples.row_of[self.members]])
        return made if moves is None else moves[made]

    def own(self) -> npt.NDArray[Any]:
        """The numbers that samples have of their own, [group, number, lane]."""
        made = self._samples.own[self._samples.row_of[self.members]].transpose(0, 2, 1)
        if self._made.extra is not None:
            more = self._made.extra[self._samples.fit_of[self.members]].transpose(0, 2, 1)
            made = np.concatenate([made, more], axis=1)
        return np.ascontiguousarray(made)


def _mixed_for(machine: MachineCode, fits: list[Fit]) -> Mixed | None:
    """The program for lanes of all these lengths, if there can be one."""
    if machine.in_rows:
        return None  # a row is the same in all lanes
    known: Mixed | None = machine.mixed
    if known is not None and known.serves(fits):
        return known
    wanted = list(dict.fromkeys([*fits, *(() if known is None else known.fits)]))
    if machine.unmixed.issuperset(wanted):
        return None
    try:
        machine.mixed = Mixed(machine, wanted)
    except NotLiftable:
        machine.unmixed = set(wanted)
        return None
    return _mixed_for(machine, fits)


def _one_by_one(fit_of: Addresses, batch: int, lanes: int, parts: int) -> Grouping:
    members = np.arange(len(fit_of))[:, None]
    starts = np.arange(0, len(fit_of) + 1, batch)
    return Grouping(members, np.ones(members.shape, np.bool_), starts)


def _alike(fit_of: Addresses, batch: int, lanes: int, parts: int) -> Grouping:
    """In each step those of one fit together."""
    if len(fit_of) % batch == 0 and not fit_of.any():
        return _all_alike(len(fit_of), batch, lanes)
    places = np.arange(len(fit_of))
    kinds = places // batch * (fit_of.max() + 1) + fit_of
    order = np.argsort(kinds, kind="stable")
    _, starts, counts = np.unique(kinds[order], return_index=True, return_counts=True)
    first = np.flatnonzero((places - np.repeat(starts, counts)) % lanes == 0)  # of each group
    sizes, lane = np.diff(first, append=len(fit_of))[:, None], np.arange(lanes)
    members = order[first[:, None] + lane % sizes]
    counted = lane < sizes
    steps = np.arange(len(fit_of) // batch + 1)
    return Grouping(members, counted, np.searchsorted(members[:, 0] // batch, steps))


@functools.lru_cache(8)
def _all_alike(count: int, batch: int, lanes: int) -> Grouping:
    """The same where there is one fit: as many samples in each group as there are lanes."""
    return _sorted(np.zeros(count, np.int64), batch, lanes, 1)


def _sorted(rank: Addresses, batch: int, lanes: int, parts: int) -> Grouping:
    """In each step the longest together, and so on; each part has some long ones and some short."""
    steps, groups = len(rank) // batch, -(-batch // lanes)
    order = _longest_first(rank.reshape(steps, batch))
    places = (_dealt(groups, parts)[:, None] * lanes + np.arange(lanes)).ravel()
    last = batch - (groups - 1) * lanes  # samples in the last group
    read = places - np.maximum(places - (batch - last), 0) // last * last
    members = order[:, read] + batch * np.arange(steps)[:, None]
    counted = np.broadcast_to(places < batch, members.shape)
    return Grouping(
        members.reshape(-1, lanes),
        counted.reshape(-1, lanes),
        np.arange(0, steps * groups + 1, groups),
    )


def _longest_first(rank: Addresses) -> Addresses:
    """The places of each row in the order of their ranks, the highest first, else as they are.

    Numbers of rank and place are sorted by themselves, a few times as quickly as places by ranks.
    """
    batch = rank.shape[1]
    keys = (rank.max(initial=0) - rank) * batch + np.arange(batch)
    if keys.size and keys.max() < 2**31:
        keys = keys.astype(np.int32)
    keys.sort(axis=1)
    order: Addresses = (keys % batch).astype(np.int64)
    return order


@functools.cache
def _dealt(groups: int, parts: int) -> Addresses:
    """Groups, of which the first have the most work, in an order in which all parts have as much.

    The parts are stretches of these, the first ones longer by one where they do not come out even.
    So have all threads, of which each takes every second part, or every fourth, whatever their
    number: the first half of the parts is dealt to as it comes and the other half the other way
    round, and each time the other way than before.
    """
    parts = min(groups, parts)
    each, left = divmod(groups, parts)
    room = [each + (part < left) for part in range(parts)]
    half = -(-parts // 2)
    turn = [*range(half), *reversed(range(half, parts))]
    hands: list[list[int]] = [[] for _ in range(parts)]
    while sum(map(len, hands)) < groups:
        for part in turn:
            if len(hands[part]) < room[part]:
                hands[part].append(sum(map(len, hands)))
        turn.reverse()
    return np.array([group for hand in hands for group in hand])
