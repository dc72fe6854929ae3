"""Which samples go through the machine code together, a lane for each.

In: packed samples, and how many make a step. Out: an ``Arrangement``, which has the code to run,
and of some samples ``Groups``: what each group of them reads. Samples go one by one, or several of
one length at a time, or of any length, whichever is the least work.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.codegen.walks import Walk
from chainrule.compiler.lift.alignment import ITERATIONS
from chainrule.compiler.lift.canonical import NotLiftable
from chainrule.compiler.lift.graph import EXTREME, GATHER
from chainrule.compiler.lift.program import Addresses, Instruction, Program
from chainrule.compiler.runtime.machine import Fit, Kernel, MachineCode
from chainrule.compiler.training.mixed import Mixed
from chainrule.compiler.training.packing import PackedSamples
from chainrule.compiler.training.stretches import Stretches
from chainrule.trees import Floats

FEWEST = 4  # samples in a step for which it is worth filling lanes

# How many times as long something takes as one operation on a vector of one sample, which lies in
# the cache nearby; fitted to measured steps of recurrent networks, perceptrons and transformers.
LANES = 1.2  # an operation on a vector of samples: they have more memory
FAR, NEAR = 1.1, 3 << 18  # times all that, where numbers and adjoints fill more than so many bytes
ELEMENTARY = 12.0  # an elementary function, where others like it run meanwhile
WAITING = 29.0  # and of one sample: few run at a time, and each step waits for the one before
TURN, TURN_LANES = 10.0, 22.0  # what a walk waits for in each turn of a loop in time
ONCE, ONCE_LANES = 3.5, 3.2  # a product whose gradient goes to memory, not to a register
BY_LANE = 4.8  # a number that every lane has at another place
SAMPLE, LANE = 100.0, 60.0  # what every sample takes besides, and every lane, even an empty one
#: operations of the op table that take no longer than one on vectors
QUICK = {"add", "mul", "detach", "where", "abs", "relu", "leaky_relu", "maximum", "minimum", "clip"}
QUICK |= {"less", "less_equal", "equal"}

#: from the fits of samples, in order, how many make a step, and the lanes, to groups
Way = Callable[[Addresses, int, int], "Grouping"]


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
        self, samples: PackedSamples, chosen: Addresses, batch: int, alone: bool = True
    ) -> None:
        """``chosen``: samples that have been looked at, in order, so many a step.

        ``alone``: all samples of these steps are among them; if not, they go one by one.
        """
        assert samples.machine is not None
        machine, fits, fit_of = samples.machine, samples.fits, samples.fit_of
        self._samples, self.batch, self._width = samples, batch, machine.width
        options: list[tuple[Way, Mixed | None]] = [(_one_by_one, None)]
        if batch >= FEWEST and alone:
            options.append((_alike, None))
            mixed = _mixed_for(machine, fits) if len(fits) > 1 else None
            if mixed is not None:
                options.append((_sorted, mixed))
        if len(options) > 1:
            costs = np.array([_costs(machine, fit) for fit in fits])[fit_of[chosen]]

            def work(option: tuple[Way, Mixed | None]) -> float:
                way, mixed = option
                mine = costs[:, 0] if way is _one_by_one else costs[:, 1]
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
        return way(here, self.batch, self._width)

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
        """Where the code has each address of the program, if that is elsewhere."""
        return self._mixed.to if self._mixed is not None else None

    @functools.cached_property
    def extra(self) -> npt.NDArray[Any] | None:
        """The numbers that lanes of several lengths need besides, a row for each fit."""
        if self._mixed is None:
            return None
        rows = np.stack([self._mixed.numbers(fit) for fit in self._fits])
        return rows.astype(self._samples.own.dtype)


@dataclass(frozen=True)
class Rows:
    """What groups of samples that run on one code read: rows, and which of them is a group's."""

    gathers: Addresses
    own: npt.NDArray[Any]
    seeds: npt.NDArray[Any]
    of_group: Addresses
    stretches: Stretches | None = None  # what the rows of ``gathers`` are the beginnings of


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
        """What the groups read; samples that go one by one, as they are, are read where they are.

        ``keys``: of random numbers, a row for each sample, in order.
        """
        samples, batch = self._samples, self._made.batch
        if self._made.lanes == 1 and keys is None:
            seeds = self._made.equal_seeds(len(samples.own))
            rows = samples.row_of[self.members[:, 0]]
            stretches = None if samples.stretches.are_single else samples.stretches
            return Rows(samples.gathered, samples.own, seeds, rows, stretches)
        seeds = (self.counted / batch).astype(samples.own.dtype)
        return Rows(self.gathers(), self.own(keys), seeds, np.arange(len(self.members)))

    def gathers(self) -> Addresses:
        """What gathers select, [group, lane, gather]."""
        samples, moves = self._samples, self._made.moves
        made = samples.stretches.expanded(samples.gathered[samples.row_of[self.members]])
        return made if moves is None else moves[made]

    def own(self, keys: Floats | None = None) -> npt.NDArray[Any]:
        """The numbers that samples have of their own, [group, number, lane].

        ``keys``: of random numbers, a row for each sample, in order.
        """
        rows = self._samples.own[self._samples.row_of[self.members]]
        if keys is not None:
            columns = self._samples.key_columns()[self._samples.fit_of[self.members]]
            np.put_along_axis(rows, columns, keys[self._places].astype(rows.dtype), axis=2)
        made = rows.transpose(0, 2, 1)
        if self._made.extra is not None:
            more = self._made.extra[self._samples.fit_of[self.members]].transpose(0, 2, 1)
            made = np.concatenate([made, more], axis=1)
        return np.ascontiguousarray(made)


def _costs(machine: MachineCode, fit: Fit) -> tuple[float, float]:
    """How much there is to do for a sample by itself, and for a vector of samples like it.

    By itself its vectors lie along its own loops, if these are long enough, in a loop in time too:
    its turns come one after the other, but what a turn does is as wide as anything else. A vector
    of samples takes the same time however many of its lanes are empty.
    """
    if fit.costs is None:
        fit.costs = _counted(machine, fit)
    return fit.costs


def _counted(machine: MachineCode, fit: Fit) -> tuple[float, float]:
    if machine.program.steps is not None:
        return 1.0, float(machine.width)  # its commands are no walks: they are not counted
    alone = SAMPLE
    together = machine.width * (LANE + BY_LANE * len(fit.private))
    for walk, points in _walked(machine, fit):
        instruction, vectors = machine.program.instructions[walk.instruction], float(points)
        loops = [*walk.space.middle, *walk.space.loops]
        longest = max([x.count for x in loops if set(map(abs, x.strides)) & {1}], default=1)
        if instruction.kind != EXTREME:  # its gradient goes to one term after the other
            vectors *= _vectors(longest, machine.width) / longest
        if instruction.loop is not None:
            turns = _turns(machine, fit, instruction.loop)
            alone += TURN * turns
            together += TURN_LANES * turns
        if instruction.kind in (GATHER, EXTREME):
            alone += vectors
            together += points * machine.width * BY_LANE
        elif walk.what == "out" and _is_elementary(instruction):
            alone += vectors * WAITING
            together += points * ELEMENTARY
        else:
            once = walk.what == "products" and any(walk.shared) and points <= _used(walk, points)
            alone += vectors * (ONCE if once else 1.0)
            together += points * (ONCE_LANES if once else LANES)
    own = np.count_nonzero(fit.active[machine.program.shared :])
    held = 2 * own * machine.width * np.dtype(machine.dtype).itemsize
    return alone, together * (FAR if held > NEAR else 1.0)


def _walked(machine: MachineCode, fit: Fit) -> Iterator[tuple[Walk, int]]:
    """Each walk that there is something to do for, once, and how many points a sample has there."""
    seen: set[tuple[int, str]] = set()
    for walk in machine.code.machine.walks:
        key = walk.instruction, walk.what
        if walk.what in ("guards", ITERATIONS) or key in seen:
            continue
        points = fit.points[key][0]
        if walk.chosen is None or walk.steps or walk.core:
            seen.add(key)
        else:
            points = int(np.searchsorted(walk.chosen, points))
        yield walk, points


def _vectors(count: int, width: int) -> int:
    """How many vectors so many neighbours are: whole ones, and narrower ones for what is left."""
    return count // width + (count % width).bit_count()


def _turns(machine: MachineCode, fit: Fit, number: int) -> int:
    loop = machine.program.loops[number]
    points = fit.points.get((loop.first, ITERATIONS))
    return loop.count if points is None else points[0]


def _is_elementary(instruction: Instruction) -> bool:
    """Whether it is more than one or two operations of the processor."""
    return instruction.rule is not None and instruction.rule.name not in QUICK


def _used(walk: Walk, points: int) -> int:
    """How many parameters the first points of a walk read."""
    shared = [c[:points] for c, s in zip(walk.columns, walk.shared, strict=True) if s]
    return max(len(np.unique(column)) for column in shared)


def _mixed_for(machine: MachineCode, fits: list[Fit]) -> Mixed | None:
    """The program for lanes of all these lengths, if there can be one."""
    if machine.in_rows:
        return None  # a row is the same in all lanes
    known: Mixed | None = machine.mixed
    if known is not None and known.serves(fits):
        return known
    wanted = {*fits, *(() if known is None else known.fits)}
    if wanted <= machine.unmixed:
        return None
    try:
        machine.mixed = Mixed(machine, wanted)
    except NotLiftable:
        machine.unmixed = wanted
        return None
    return _mixed_for(machine, fits)


def _one_by_one(fit_of: Addresses, batch: int, lanes: int) -> Grouping:
    members = np.arange(len(fit_of))[:, None]
    starts = np.arange(0, len(fit_of) + 1, batch)
    return Grouping(members, np.ones(members.shape, np.bool_), starts)


def _alike(fit_of: Addresses, batch: int, lanes: int) -> Grouping:
    """In each step those of one fit together."""
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


def _sorted(rank: Addresses, batch: int, lanes: int) -> Grouping:
    """In each step the longest together, and so on."""
    steps, groups = len(rank) // batch, -(-batch // lanes)
    order = np.argsort(-rank.reshape(steps, batch), axis=1, kind="stable")
    places = np.arange(groups * lanes)
    last = batch - (groups - 1) * lanes  # samples in the last group
    read = places - np.maximum(places - (batch - last), 0) // last * last
    members = order[:, read] + batch * np.arange(steps)[:, None]
    counted = np.broadcast_to(places < batch, members.shape)
    return Grouping(
        members.reshape(-1, lanes),
        counted.reshape(-1, lanes),
        np.arange(0, steps * groups + 1, groups),
    )
