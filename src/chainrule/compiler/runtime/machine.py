"""Machine code of an array program, and how recorded calls run on it.

In: a ``RecordedCall`` and its array program. Out: a ``MachineCode``, and a ``Fit`` for each call it
serves: the one it was built from, and shorter ones that are a prefix of it. It answers only where
every number is finite; anything else, and every question of branches and undefined values, is for
the tape.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import Ints
from chainrule.compiler.codegen import emit, jit
from chainrule.compiler.codegen.instructions import columns_of as columns_walked
from chainrule.compiler.lift.alignment import Points, Prefix, RecordedCall, columns_of
from chainrule.compiler.lift.canonical import GATHER, NotLiftable
from chainrule.compiler.lift.placement import placed
from chainrule.compiler.lift.program import PART, Addresses, Program
from chainrule.compiler.lift.smaller import Smaller
from chainrule.compiler.runtime.heap import is_large
from chainrule.compiler.runtime.rows import Rows
from chainrule.core.interrupts import safe_point
from chainrule.trees import Floats

OBJECTS = 20_000  # bytes of the Python objects of machine code, measured
NUMBER = 40  # bytes of a number that is a Python object, and of its place
MOST_SINGLE = float(np.finfo(np.float32).max)


def beyond(dtype: str, numbers: Floats) -> npt.NDArray[np.bool_]:
    """Which numbers are finite and would not be in this type; an operation may hide it later."""
    if dtype == "float64":
        return np.zeros(np.shape(numbers), np.bool_)
    sizes = np.abs(numbers)
    return (sizes > MOST_SINGLE) & (sizes < np.inf)


def trip_counts(
    machine: emit.Machine, points: Points, active: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64] | None:
    """How far each walk of the machine code goes for so many points; None where it cannot."""
    if machine.table is not None:
        return machine.table
    counts = np.zeros(max(1, len(machine.walks)), np.int64)
    for (k, _), (short, long) in points.items():
        if short != long and k in machine.stripped:
            return None
    for walk in machine.walks:
        short, long = points[walk.instruction, walk.what]
        if not short and walk.instruction in machine.optional:
            continue
        if walk.steps or walk.iterations > 1:
            continue  # of one iteration, in which all lengths do the same; see ``Prefix``
        count = walk.count(short)
        if not count or (short != long and not walk.varies):
            return None
        counts[walk.slot] = count
    for walk, targets in machine.stores:
        short, _ = points[walk.instruction, walk.what]
        if walk.chosen is not None:
            short = int(np.searchsorted(walk.chosen, short))
        left = targets[short:]
        left = left[active[left]]
        if len(left) and not np.isin(left, targets[:short]).all():
            return None
    return counts


def repeats_alike(prefix: Prefix) -> bool:
    """Whether what code of the longer program has of loops in time holds for a prefix of it.

    That is, their constants, and which of the results need not be checked to be finite.
    """
    program = prefix.longer
    differ = prefix.constants.view(np.int64) != program.constants.view(np.int64)
    for loop in program.loops:
        for instruction in program.instructions[loop.first : loop.last]:
            for column in instruction.reads:
                constant = column[(column >= program.inputs) & (column < program.shared)]
                if differ[constant - program.inputs].any():
                    return False
    here, there = emit.watched(prefix.program), emit.watched(program)
    return all(long or not short for short, long in zip(here, there, strict=True))


@dataclass(eq=False)
class Fit:
    """How one recording uses the machine code."""

    positions: Ints  # the recorded instructions that integers may select or that are returned
    addresses: Ints  # and where their numbers are; -1 where one was absorbed
    constants: Floats
    counts: npt.NDArray[np.int64]  # run-time trip counts
    inputs: Addresses  # its inputs that each sample has of its own
    private: Addresses  # and where they go among each sample's own numbers
    places: Addresses  # the operands that follow integers, one for each gather
    gathers: Addresses  # which gather of the machine code that is
    choosers: Addresses  # and which row of ``allowed`` tells what it may select
    allowed: npt.NDArray[np.bool_]  # the machine code's
    known: int  # how many operands followed integers then
    points: Points  # of each walk, here and in the machine code
    used: npt.NDArray[np.uint8]  # what of the arena it uses, a bit for each number
    among: Addresses | slice  # all of its inputs among those of the machine code
    rows: Rows | None = None  # what its walks read, where rows are data

    def __post_init__(self) -> None:
        self.counts_at = int(self.counts.ctypes.data)
        self.decided: Any = None  # what integers select, once training asks; see families.Decided
        self.costs: tuple[float, float] | None = None  # once they are asked for; see mapping.costs
        self.most_alone: int | None = None  # likewise

    @property
    def nbytes(self) -> int:
        """Its memory."""
        arrays = [x for x in vars(self).values() if isinstance(x, np.ndarray)]
        rows = 0 if self.rows is None else self.rows.nbytes
        return rows + sum(x.nbytes for x in arrays if x is not self.allowed)

    def at(self, positions: Ints | Sequence[int]) -> Addresses:
        """The addresses of some recorded instructions; -1 where one was absorbed."""
        place = np.searchsorted(self.positions, positions)
        place = np.minimum(place, len(self.positions) - 1)
        found: Addresses = np.where(
            self.positions[place] == positions, self.addresses[place], np.int64(-1)
        )
        return found

    def may_select(self, choosers: Addresses | int, addresses: Addresses) -> npt.NDArray[np.bool_]:
        """Whether gathers may select what is there."""
        is_used = (self.used[addresses >> 3] >> (7 - (addresses & 7))) & 1
        found: npt.NDArray[np.bool_] = self.allowed[choosers, addresses] & is_used.astype(np.bool_)
        return found

    @property
    def active(self) -> npt.NDArray[np.bool_]:
        """Of each number of the arena, whether it uses it."""
        found = np.unpackbits(self.used, count=self.allowed.shape[1] - 1)
        return found.view(np.bool_)

    def gathered(self, positions: Ints) -> Addresses | None:
        """The addresses that gathers select for these operands; None where the code cannot.

        A candidate may come too late in it, or no gradient was meant to reach it.
        """
        if len(positions) != self.known:
            return None
        found = self.at(positions[self.places])
        return found if self.may_select(self.choosers, found).all() else None


class MachineCode:
    """An array program compiled for one recorded call, and for shorter ones like it."""

    def __init__(
        self,
        call: RecordedCall,
        program: Program,
        dtype: str = "float64",
        contract: bool = True,
        varying: Collection[tuple[int, str]] = (),
        optional: Collection[int] = (),
        lanes: int = 1,
        smaller: Smaller | None = None,
    ) -> None:
        """``varying``: walks that shorter calls cut; ``optional``: instructions they may lack.

        ``smaller``: a shorter call that is no prefix, for code of which the rows are data.
        ``lanes``: how many samples ``code`` computes at once; ``run`` and what follows need one.
        """
        self.dtype, self.contract = dtype, contract
        #: what it was built from, without its graph; None where that is too large to be kept
        self.source = None if is_large(len(call.recording)) else replace(call)
        self.lengths: tuple[RecordedCall, ...] = ()  # shorter calls that it was built with
        self.width = jit.vector_width() * (2 if dtype == "float32" else 1)
        safe_point()
        #: the program as it was lifted, and as the code computes it
        self.lifted, self._placement = program, placed(program, in_order=smaller is not None)
        self.lifted_root = int(program.address[call.root])
        self.program = self._placement.program
        self.varying, self.optional = set(varying), set(optional)
        self.root = int(self.program.address[call.root])
        self.differentiates = call.differentiates
        self._returned = self.program.address[call.returned]
        self._smaller = None if smaller is None else smaller.placed(self._placement.to)
        self._kernels: dict[tuple[int, bool], Kernel] = {}
        self.built = 0  # kernels, those of ``mixed`` too
        self._measured = (0, 0), 0  # how many kernels and lengths, and the bytes of it all
        safe_point()
        self.code = self.kernel(lanes)
        safe_point()
        self._allowed = self._selectable()
        fit = self.fit_of(call, self._prefix(call, itself=True))
        if fit is None:
            raise NotLiftable("its own loops do not fit it")
        self.fit = fit
        self.current: Fit | None = None
        self.mixed: Any = None  # the program for lanes of several lengths, once there is one
        self.unmixed: set[Fit] = set()  # lengths for which there is none
        self.in_batches: set[Fit] = set()  # lengths for which code for batches was looked for

    @property
    def in_rows(self) -> bool:
        """Whether its rows are data, and another in every call."""
        return self._smaller is not None

    def _selectable(self) -> npt.NDArray[np.bool_]:
        """What each gather may select, a row for each; never the last address, which is -1."""
        chosen = [i.candidates for i in self.program.instructions if i.candidates is not None]
        allowed = np.zeros((len(chosen), self.program.size + 1), np.bool_)
        for row, candidates in zip(allowed, chosen, strict=True):
            row[candidates] = True
        return allowed

    def fit_for(self, call: RecordedCall) -> Fit | None:
        """How a shorter call can use this code, or None."""
        try:
            return self.fit_of(call, self._prefix(call))
        except NotLiftable:
            return None

    def _prefix(self, call: RecordedCall, itself: bool = False) -> Prefix:
        kind = Prefix if self._smaller is None else Smaller
        return kind(call, self.lifted, itself)

    def others(self, k: int, what: str) -> list[Addresses] | None:
        """The columns of the shorter call that it was made with, where rows are data."""
        assert self._smaller is not None
        here = self._smaller[k]
        return None if here is None else columns_walked(here, what)

    def fit_of(self, call: RecordedCall, prefix: Prefix) -> Fit | None:
        """How a call that is such a prefix of the program can use this code, or None."""
        safe_point()
        program, to = self.program, self._placement.after(prefix.to)
        if to[prefix.program.address[call.root]] != self.root:
            return None
        if call.derives and not self.derives:
            return None
        if program.loops and not repeats_alike(prefix):
            return None
        if any(what == "each" and (k, what) not in self.varying for k, what in prefix.varying()):
            return None
        here = prefix.program
        active = np.zeros(program.size, np.bool_)
        for k in range(0, len(to), PART):
            some = to[k : k + PART]
            active[some[some >= 0]] = True
        points = prefix.points()
        rows = None
        if isinstance(prefix, Smaller):
            roots = int(here.address[call.root]), self.root
            rows = Rows(self.code.machine, program, roots, prefix, self._placement.to)
            counts = rows.numbers(self.code.machine)
        else:
            counts = trip_counts(self.code.machine, points, active)
        order_kept = all(self._placement.keeps(*key, short) for key, (short, _) in points.items())
        if counts is None or not order_kept:
            return None
        n = len(here.guards)
        guards = to[here.guards]
        if not np.array_equal(guards, program.guards[:n]) or not np.array_equal(
            here.expected, program.expected[:n]
        ):
            return None
        selected = {id(x.candidates): x.candidates for x in call.recording.selection.gathers}
        positions = np.unique(
            np.concatenate([np.array([0, *call.returned], np.int32), *selected.values()])
        )
        found = here.address[positions]
        addresses = np.where(found >= 0, to[found], -1)
        addresses = self.code.machine.place(addresses, program.size).astype(np.int32)
        gathers: list[Addresses] = []
        choosers: list[Addresses] = []
        at = 0
        for k, long_one in enumerate(program.instructions):
            if long_one.kind == GATHER:
                count, _ = points[k, "out"]
                choosers.append(np.full(count, len(gathers)))
                gathers.append(at + np.arange(count))
                at += long_one.count
        nothing = np.zeros(0, np.int64)
        own = here.shared + np.arange(len(here.private))
        return Fit(
            positions,
            addresses,
            prefix.constants,
            counts,
            here.private,
            to[own].astype(np.int64) - program.shared,
            here.places,
            np.concatenate([nothing, *gathers]),
            np.concatenate([nothing, *choosers]),
            self._allowed,
            len(call.recording.selection.places),
            points,
            np.packbits(active),
            slice(call.recording.inputs) if call.among is None else call.among,
            rows,
        )

    @property
    def nbytes(self) -> int:
        """The memory of its programs, arenas and code."""
        made = len(self._kernels), len(self.lengths)
        if self._measured[0] != made:  # it is asked for whenever something is recorded
            self._measured = made, self._measure()
        return self._measured[1]

    def _measure(self) -> int:
        calls = self.lengths if self.source is None else (self.source, *self.lengths)
        arrays = [*self.program.columns, *self.lifted.columns, self._allowed, self._placement.to]
        arrays += self._placement.orders.values()
        arrays += [c for i in self._smaller or () if i is not None for c in i.all_columns]
        places = [(call.private, call.slots, call.among, call.births) for call in calls]
        arrays += [x for each in places for x in each if x is not None]
        objects = OBJECTS + NUMBER * sum(len(call.arrays) for call in calls)
        for kernel in self._kernels.values():
            arrays += kernel.machine.columns
            objects += kernel.nbytes
        return objects + _bytes_of(arrays) + sum(call.recording.nbytes for call in self.lengths)

    @property
    def from_cache(self) -> list[bool]:
        """Of each module of its machine code: whether it was read from the cache."""
        return [kernel.library.is_cached for kernel in self._kernels.values()]

    def kernel(self, batch: int, many: bool = False) -> Kernel:
        """The machine code for so many samples at once; see ``Kernel`` for ``many``."""
        if (batch, many) not in self._kernels:
            root = self.root if self.differentiates else None
            made = Kernel(self, self.program, root, self.varying, batch, many, self._returned)
            self._kernels[batch, many] = made
            self.built += 1
        return self._kernels[batch, many]

    # --- one sample -------------------------------------------------------------------------------

    def run(self, fit: Fit, gathered: Addresses, inputs: Floats) -> bool:
        """Compute every number; False if one is not finite or a guard goes the other way."""
        code = self.code
        if self.dtype != "float64" and beyond(self.dtype, inputs).any():
            return False
        if self.current is not fit:
            self.settle(fit)
        code.shared[fit.among] = inputs
        code.own[fit.private] = inputs[fit.inputs]
        code.gathers[fit.gathers] = gathered
        return code.run(fit.counts_at)

    def settle(self, fit: Fit) -> None:
        """Let the code compute what fits."""
        self.code.shared[self.program.inputs :] = fit.constants
        self.current = fit

    @functools.cached_property
    def work(self) -> int:
        """How many numbers it computes or adds up, for one sample."""
        return self.program.work

    @functools.cached_property
    def reads_private(self) -> bool:
        """Whether it reads any input that a sample has of its own."""
        first = self.program.shared
        last = first + len(self.program.private)
        return any(
            bool(((column >= first) & (column < last)).any())
            for instruction in self.program.instructions
            for _, column in columns_of(instruction)
        ) or any(
            bool(((i.candidates >= first) & (i.candidates < last)).any())
            for i in self.program.instructions
            if i.candidates is not None
        )

    @property
    def derives(self) -> bool:
        """Whether it has derivatives by inputs after the first argument's, as by Values there."""
        return not self.program.fixed

    def sweep(self, out: Floats) -> bool:
        """The derivative of the root by every input, 0 by data; False if one is not finite."""
        fit, code = self.current, self.code
        assert fit is not None
        if not code.sweep(fit.counts_at):
            return False
        out[:] = code.shared_adjoints[fit.among]
        out[fit.inputs] = code.adjoints[fit.private] if self.derives else 0.0
        return True

    def numbers(self, positions: Sequence[int]) -> Floats | None:
        """The numbers of recorded instructions, None if one was absorbed."""
        assert self.current is not None
        addresses = self.current.at(positions)
        if (addresses < 0).any():
            return None
        shared, code = self.program.shared, self.code
        found = np.empty(len(addresses))
        own = addresses >= shared
        found[~own] = code.shared[addresses[~own]]
        found[own] = code.own[addresses[own] - shared]
        return found

    def number(self, position: int) -> float | None:
        """The number of a recorded instruction, None if it was absorbed."""
        assert self.current is not None
        address = int(self.current.at([position])[0])
        if address < 0:
            return None
        shared = self.program.shared
        code = self.code
        return float(code.shared[address] if address < shared else code.own[address - shared])


class Kernel:
    """The machine code for so many samples at once, and its arenas."""

    def __init__(
        self,
        machine: MachineCode,
        program: Program,
        root: int | None,
        varying: set[tuple[int, str]],
        batch: int,
        many: bool = False,
        returned: Addresses | None = None,
    ) -> None:
        """``many``: for one sample after the other with the same parameters; ``pack`` comes before
        the first of them, and ``reverse`` adds to the gradient. ``returned``: the only addresses
        that are read where there is no ``root``.
        """
        self.batch, self.many = batch, many
        self._counts: WeakKeyDictionary[Fit, npt.NDArray[np.int64] | None] = WeakKeyDictionary()
        self.machine = emit.machine(
            program,
            root,
            machine.width,
            varying,
            batch,
            machine.dtype,
            machine.contract,
            machine.optional,
            many,
            returned,
            machine.others if machine.in_rows else None,
        )
        self.machine.forget_columns()
        self.library = jit.library(self.machine.text)
        own = (program.size - program.shared + self.machine.scratch) * batch
        number = np.dtype(machine.dtype)
        self.shared, self.shared_adjoints = (
            cache_aligned(program.shared, number) for _ in range(2)
        )
        self.own, self.adjoints = (cache_aligned(own, number) for _ in range(2))
        self.shared[program.inputs :] = program.constants
        self.seeds = np.ones(batch, number)
        self.gathers = np.zeros(max(1, len(program.places)) * batch, np.int64)
        real = ctypes.c_double if machine.dtype == "float64" else ctypes.c_float
        pointer = ctypes.c_void_p
        self.forward, self.backward, self.reverse = map(
            self.library.address, ("forward", "backward", "reverse")
        )
        self.check = self.library.address("check") if batch > 1 else 0
        self.pack = self.library.address("pack") if many else 0
        self._forward = ctypes.CFUNCTYPE(real, *[pointer] * 4)(self.forward)
        self._backward = ctypes.CFUNCTYPE(real, *[pointer] * 7)(self.backward)
        self._pack = ctypes.CFUNCTYPE(None, *[pointer] * 2)(self.pack) if many else None
        self._p, self._v, self._q, self._d, self._s, self._g = (
            a.ctypes.data
            for a in (
                self.shared,
                self.own,
                self.shared_adjoints,
                self.adjoints,
                self.seeds,
                self.gathers,
            )
        )

    @property
    def nbytes(self) -> int:
        """Its memory."""
        arenas = self.shared, self.own, self.shared_adjoints, self.adjoints, self.gathers
        return sum(x.nbytes for x in arenas) + len(self.machine.text) + self.library.nbytes

    def counts(self, fit: Fit) -> npt.NDArray[np.int64]:
        """How far its walks go for a fit; NotLiftable where it cannot do what fits other kernels.

        Walks have their own order in each kernel, so that counts of one mean nothing to another.
        """
        if fit not in self._counts:
            rows = fit.rows
            self._counts[fit] = (
                trip_counts(self.machine, fit.points, fit.active)
                if rows is None
                else rows.numbers(self.machine)
            )
        found = self._counts[fit]
        if found is None:
            raise NotLiftable("another length does not fit this kernel")
        return found

    def parts(self, fit: Fit, integers: Addresses) -> tuple[Any, ...]:
        """What a Plan needs: what keeps the code, where it is, and what it works on.

        ``integers``: where those of a call go among its own numbers.
        """
        numbers = (self.shared, self.own, self.shared_adjoints, self.adjoints, self.seeds)
        arenas = (*numbers, self.gathers, fit.counts, fit.gathers, integers)
        return self, self.forward, self.backward, arenas

    def run(self, counts_at: int) -> bool:
        """Forward; False where a number is not finite or a guard does not hold."""
        if self._pack is not None:
            self._pack(self._p, self._v)
        flag: float = self._forward(self._p, self._v, self._g, counts_at)
        return flag - flag == 0.0

    def sweep(self, counts_at: int) -> bool:
        """Backward; False where a derivative is not finite."""
        if self.many:
            self.shared_adjoints.fill(0.0)
        flag: float = self._backward(
            self._p, self._v, self._q, self._d, self._s, self._g, counts_at
        )
        return flag - flag == 0.0


def _bytes_of(arrays: Iterable[npt.NDArray[Any]]) -> int:
    """The memory of some arrays, which may share it."""
    sizes: dict[int, int] = {}
    for array in arrays:
        whole = array.base if isinstance(array.base, np.ndarray) else array
        sizes[id(whole)] = whole.nbytes
    return sum(sizes.values())


def cache_aligned(size: int, dtype: npt.DTypeLike = np.float64) -> Any:
    """Zeros on a cache line, with another line after them."""
    raw = np.zeros(size * np.dtype(dtype).itemsize + 128, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * np.dtype(dtype).itemsize].view(dtype)
