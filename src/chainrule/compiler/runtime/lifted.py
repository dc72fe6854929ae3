"""The lifted path: recordings as an array program in machine code.

In: a recording and what its operands do with integers. Out: a ``Lifted``, the machine code, and a
``Fit`` for each recording it serves: the one it was made of, and those of shorter arguments that do
the first part of everything it does. It answers only where every number is finite; anything else,
and every question of branches and undefined values, is for the tape.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.infer import Indexing
from chainrule.compiler.capture.recorder import Ints, Recording
from chainrule.compiler.codegen import emit, jit
from chainrule.compiler.lift.canonical import GATHER, Graph, NotLiftable, canonicalise
from chainrule.compiler.lift.grouping import group, grouped
from chainrule.compiler.lift.loops import Loop, find_loops
from chainrule.compiler.lift.ordering import Beside, Pieces, is_regular
from chainrule.compiler.lift.program import Addresses, Instruction, Program
from chainrule.trees import Floats

FEW_SHAPES = 100  # array instructions: no need to look for loops in time
Points = dict[tuple[int, str], tuple[int, int]]  # of a walk: how many here, and at most
LOOPS = True  # whether loops in time are lifted as loops


@dataclass(frozen=True, eq=False)
class Source:
    """A recording to lift: what its integers do, its result, and the inputs not shared."""

    recording: Recording
    indexing: Indexing
    root: int
    private: Addresses
    slots: Addresses  # its integers, among those of the longest arguments
    arrays: tuple[int, ...] = ()  # where among its inputs an array begins

    def program(self, like: Program | None = None, loops: bool = True) -> Program:
        """Its array program, with loops in time where it has some, unless ``like`` has none."""
        if like is not None and like.arranged:
            return self._program(None, (), self.beside(like))
        loops = loops and LOOPS and (like is None or bool(like.loops))
        flat, reason = None, NotLiftable()
        if like is None or not like.loops:
            try:
                flat = self._program(like, ())
            except NotLiftable as error:
                reason = error
            if flat is not None and (not loops or len(flat.instructions) <= FEW_SHAPES):
                return flat
        found = find_loops(self.recording, self.indexing.places) if loops else ()
        try:
            if found:
                return self._program(like, found)
        except NotLiftable as error:
            reason = error
        if flat is None:
            raise reason
        return flat

    def arranged(self, shorter: Source, plain: Program) -> Program:
        """Its program with what a shorter recording does in front, where ``plain`` is its own."""
        graph = shorter.graph
        pieces = Pieces.of(shorter.beside(plain), graph, grouped(graph), len(self.slots))
        made = self._program(None, (), pieces)
        if not is_regular(made, plain):
            raise NotLiftable("another length differs in irregular places")
        return made

    @functools.cached_property
    def graph(self) -> Graph:
        """Its canonical graph without loops in time."""
        return self._graph(())

    def _graph(self, loops: tuple[Loop, ...]) -> Graph:
        """Its canonical graph, private inputs apart from those that are shared."""
        classes = np.zeros(self.recording.inputs, np.int8)
        classes[self.private] = 1
        return canonicalise(self.recording, self.indexing, classes, loops=loops)

    def inputs_in(self, longer: Program) -> Addresses:
        """The address in a longer program of each input."""
        found = np.arange(self.recording.inputs)
        fixed = len(found) - len(self.slots)
        found[fixed:] = fixed + self.slots
        own = np.full(longer.inputs, -1)
        own[longer.private] = longer.shared + np.arange(len(longer.private))
        found[self.private] = own[found[self.private]]
        return found

    @functools.cached_property
    def selecting(self) -> Addresses:
        """For each operand that follows an integer: which of the longest arguments', or -1."""
        owners = [self.indexing.owner(p) for p in range(len(self.indexing.places))]
        found = np.array([-1 if k is None else self.slots[k] for k in owners], np.int64)
        if (found < 0).any():  # not seen, but perhaps only one can be
            slots = self.slots[list(self.indexing.base.slots)]
            follows = np.array([self.indexing.follows(k) for k in range(len(slots))])
            alone = follows.sum(axis=0) == 1
            found = np.where((found < 0) & alone, slots[follows.argmax(axis=0)], found)
        return found

    def beside(self, longer: Program) -> Beside:
        """What finds it in a longer program."""
        return Beside(longer, self.inputs_in(longer), self.selecting)

    def _program(
        self,
        like: Program | None,
        loops: tuple[Loop, ...],
        arranged: Pieces | Beside | None = None,
    ) -> Program:
        made = group(
            self._graph(loops) if loops else self.graph,
            self.recording,
            self.private,
            self.arrays,
            like,
            slots=self.selecting,
            arranged=arranged,
        )
        if made.address[self.root] < 0 or (made.guards < 0).any():
            raise NotLiftable("an output was absorbed into a sum")
        return made


class Aligned:
    """A program beside a longer one of which it is the first part; NotLiftable if it is not.

    ``to[a]`` is the address in the longer program of what is at ``a`` in this one.
    """

    def __init__(self, source: Source, longer: Program, itself: bool = False) -> None:
        """``itself``: the longer program is the source's own."""
        self.longer = longer
        self.program = program = longer if itself else source.program(like=longer)
        self._pairs = self._paired(program, longer)
        if program.loops != longer.loops or (program.loops and self.missing):
            raise NotLiftable("another length repeats something else")
        inputs = source.inputs_in(longer)
        self.to = np.full(program.size, -1, np.int64)
        self.to[: program.inputs] = inputs
        own = program.shared + np.arange(len(program.private))
        self.to[own] = inputs[program.private]
        for short, long in self._pairs:
            if short is not None and short.count > long.count:
                raise NotLiftable("a longer length does less of something")
            if short is not None:
                self.to[short.start : short.start + short.count] = long.out[: short.count]
        for short, long in self._pairs:
            if short is not None:
                self._match(short, long)
        if self.to[program.address[source.root]] < 0:
            raise NotLiftable("another length returns something else")

    @staticmethod
    def _paired(program: Program, longer: Program) -> list[tuple[Instruction | None, Instruction]]:
        """Each instruction of the longer program, and the same here, or None where it is not."""
        found = [i.key for i in program.instructions]
        here = dict(zip(found, program.instructions, strict=True))
        pairs = [(here.pop(long.key, None), long) for long in longer.instructions]
        # A sum over what every step makes in its own way has another shape at another length, and
        # so has what comes after it: these are the last.
        for short in reversed(here.values()):
            for k in reversed(range(len(pairs))):
                other, long = pairs[k]
                if other is None and _does_the_same(short, long):
                    pairs[k] = short, long
                    break
        chosen = [short.key for short, _ in pairs if short is not None]
        if chosen != found:
            raise NotLiftable("another length does other operations")
        return pairs

    @property
    def missing(self) -> set[int]:
        """The instructions of the longer program that are not there."""
        return {k for k, (short, _) in enumerate(self._pairs) if short is None}

    def _match(self, short: Instruction, long: Instruction) -> None:
        """Every column of the one is the beginning of the other's."""
        for (what, a), (_, b) in zip(columns_of(short), columns_of(long), strict=True):
            if len(a) > len(b):
                raise NotLiftable("a longer length does less of something")
            b = b[: len(a)]
            constants = (a >= self.program.inputs) & (a < self.program.shared) & (self.to[a] < 0)
            self.to[a[constants]] = b[constants]
            if not np.array_equal(self.to[a], b):
                raise NotLiftable(f"another length differs in the {what} of {long.name}")

    def points(self) -> Points:
        """How many points each walk has, here and in the longer program."""
        found = {}
        for k, (short, long) in enumerate(self._pairs):
            theirs = columns_of(long)
            mine = [0] * len(theirs) if short is None else [len(a) for _, a in columns_of(short)]
            for n, (what, b) in zip(mine, theirs, strict=True):
                found[k, what] = (n, len(b))
        found[len(self.longer.instructions), "guards"] = (
            len(self.program.guards),
            len(self.longer.guards),
        )
        return found

    def varying(self) -> set[tuple[int, str]]:
        """The walks that are shorter here; "each" of an instruction all of whose sums are."""
        found = {key for key, (short, long) in self.points().items() if short != long}
        found |= {
            (k, "each")
            for k, (a, b) in enumerate(self._pairs)
            if a is not None and _each(b) not in (0, _each(a))
        }
        return {(k, what) for k, what in found if k not in self.missing}

    @property
    def constants(self) -> Floats:
        """The longer program's constants as they are here."""
        made = self.longer.constants.copy()
        mine = np.arange(self.program.inputs, self.program.shared)
        used = self.to[mine] >= 0
        numbers = self.program.constants[used]
        made[self.to[mine[used]] - self.longer.inputs] = numbers
        found = made[self.to[mine[used]] - self.longer.inputs]
        if not np.array_equal(found.view(np.int64), numbers.view(np.int64)):
            raise NotLiftable("a number of the longest is several at another length")
        return made


def trip_counts(
    machine: emit.Machine, points: Points, active: npt.NDArray[np.bool_]
) -> npt.NDArray[np.int64] | None:
    """How far each walk of the machine code goes for so many points; None where it cannot."""
    counts = np.zeros(max(1, len(machine.walks)), np.int64)
    for walk in machine.walks:
        short, long = points[walk.instruction, walk.what]
        if not short and walk.instruction in machine.optional:
            continue
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


def beginning(shorter: Source, longer: Source, program: Program) -> tuple[Aligned, Program]:
    """A shorter recording beside a longer one's program, or beside that program arranged for it."""
    try:
        return Aligned(shorter, program), program
    except NotLiftable:
        arranged = longer.arranged(shorter, program)
        return Aligned(shorter, arranged), arranged


def _does_the_same(a: Instruction, b: Instruction) -> bool:
    """Whether two instructions are of one kind."""
    alike = (a.kind, a.rule, a.parameters, a.reordered) == (
        b.kind,
        b.rule,
        b.parameters,
        b.reordered,
    )
    return alike and [w for w, _ in columns_of(a)] == [w for w, _ in columns_of(b)]


def _each(instruction: Instruction) -> int:
    """How many plain terms each sum has, where all have as many."""
    return 0 if instruction.plains is None else instruction.plains.each


def columns_of(instruction: Instruction) -> list[tuple[str, Addresses]]:
    """The columns of an instruction, each with the name of the walk it belongs to."""
    found = [("out", instruction.out)]
    found += [("out", column) for column in instruction.columns]
    for what, terms in (("products", instruction.products), ("plains", instruction.plains)):
        if terms is not None:
            found += [(what, column) for column in (terms.owners, *terms.columns)]
    return found


@dataclass(eq=False)
class Fit:
    """How one recording uses the machine code."""

    address: Addresses  # of each recorded instruction
    constants: Floats
    counts: npt.NDArray[np.int64]  # run-time trip counts
    inputs: Addresses  # its inputs that each sample has of its own
    private: Addresses  # and where they go among each sample's own numbers
    places: Addresses  # the operands that follow integers, one for each gather
    gathers: Addresses  # which gather of the machine code that is
    choosers: Addresses  # and which row of ``allowed`` tells what it may select
    allowed: npt.NDArray[np.bool_]
    known: int  # how many operands followed integers then
    points: Points  # of each walk, here and in the machine code
    active: npt.NDArray[np.bool_]  # what of the arena it uses

    def __post_init__(self) -> None:
        self.counts_at = int(self.counts.ctypes.data)
        #: by the integers of a call: what its family knows that gathers select, and from how many
        self.choices: dict[tuple[int, ...], Addresses | None] = {}
        self.learnt = 0
        self.tables: Any = None  # whose tables of choices these are, and they, by slot

    def gathered(self, positions: Ints) -> Addresses | None:
        """The addresses that gathers select for these operands; None where the code cannot.

        Integers learnt after it was built may select what comes too late in it, or what no gradient
        was meant to reach, or show that another operand follows an integer.
        """
        if len(positions) != self.known:
            return None
        found = self.address[positions[self.places]]
        return found if self.allowed[self.choosers, found].all() else None


class Lifted:
    """An array program compiled for one recording, and for shorter ones like it."""

    def __init__(
        self,
        source: Source,
        shorter: Source | None = None,
        dtype: str = "float64",
        contract: bool = True,
        shortest: Callable[[], Source | None] | None = None,
    ) -> None:
        """``shortest``: makes another recording, where a shorter one lacks some instructions."""
        self.dtype, self.contract, self._shortest = dtype, contract, shortest
        self.width = jit.vector_width() * (2 if dtype == "float32" else 1)
        program = source.program()
        try:
            self._build(source, shorter, program)
        except NotLiftable:
            if not program.loops:
                raise
            self._build(source, shorter, source.program(loops=False))

    def _build(self, source: Source, shorter: Source | None, program: Program) -> None:
        """Machine code that a shorter recording can use, too; if that cannot be, for its own."""
        if shorter is not None and not program.loops:
            try:
                less, arranged = beginning(shorter, source, program)
                varying, optional = less.varying(), less.missing
                if optional:
                    least = self._least(arranged)
                    varying, optional = varying | least.varying(), optional | least.missing
                self._make(source, arranged, varying, optional)
                if self._fit(shorter, less) is not None:
                    return
            except NotLiftable:
                pass
        self._make(source, program, set(), set())

    def _least(self, program: Program) -> Aligned:
        """The shortest recording beside the program: what it lacks may be missing."""
        shortest = None if self._shortest is None else self._shortest()
        if shortest is None:
            raise NotLiftable("another length lacks an operation")
        return Aligned(shortest, program)

    def _make(
        self,
        source: Source,
        program: Program,
        varying: set[tuple[int, str]],
        optional: set[int],
    ) -> None:
        self.program, self.varying, self.optional = program, varying, optional
        self.root = int(program.address[source.root])
        self._kernels: dict[int, Kernel] = {}
        self.code = self.kernel(1)
        self._allowed = self._selectable()
        fit = self._fit(source, Aligned(source, program, itself=True))
        if fit is None:
            raise NotLiftable("its own loops do not fit it")
        self.fit = fit
        self.current: Fit | None = None
        self.mixed: Any = None  # the program for lanes of several lengths, once there is one
        self.unmixed: set[Fit] = set()  # lengths for which there is none

    def _selectable(self) -> npt.NDArray[np.bool_]:
        """What each gather may select, a row for each; never the last address, which is -1."""
        chosen = [i.candidates for i in self.program.instructions if i.candidates is not None]
        allowed = np.zeros((len(chosen), self.program.size + 1), np.bool_)
        for row, candidates in zip(allowed, chosen, strict=True):
            row[candidates] = True
        return allowed

    def fitted(self, source: Source) -> Fit | None:
        """How a recording of shorter arguments can use this code, or None."""
        try:
            return self._fit(source, Aligned(source, self.program))
        except NotLiftable:
            return None

    def _fit(self, source: Source, aligned: Aligned) -> Fit | None:
        program = self.program
        if aligned.to[aligned.program.address[source.root]] != self.root:
            return None
        if program.loops and aligned.constants.tobytes() != program.constants.tobytes():
            return None  # loops have them in their code
        if any(what == "each" and (k, what) not in self.varying for k, what in aligned.varying()):
            return None
        here = aligned.program
        active = np.zeros(program.size, np.bool_)
        active[aligned.to[aligned.to >= 0]] = True
        points = aligned.points()
        counts = trip_counts(self.code.machine, points, active)
        if counts is None:
            return None
        n = len(here.guards)
        guards = aligned.to[here.guards]
        if not np.array_equal(guards, program.guards[:n]) or not np.array_equal(
            here.expected, program.expected[:n]
        ):
            return None
        address = np.where(here.address >= 0, aligned.to[here.address], -1)
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
            address,
            aligned.constants,
            counts,
            here.private,
            aligned.to[own] - program.shared,
            here.places,
            np.concatenate([nothing, *gathers]),
            np.concatenate([nothing, *choosers]),
            self._allowed & np.append(active, False),
            len(source.indexing.places),
            points,
            active,
        )

    def kernel(self, batch: int) -> Kernel:
        """The machine code for so many samples at once."""
        if batch not in self._kernels:
            self._kernels[batch] = Kernel(self, self.program, self.root, self.varying, batch)
        return self._kernels[batch]

    # --- one sample -------------------------------------------------------------------------------

    def run(self, fit: Fit, gathered: Addresses, inputs: Floats) -> bool:
        """Compute every number; False if one is not finite or a guard goes the other way."""
        code = self.code
        if self.current is not fit:
            self.settle(fit)
        with np.errstate(over="ignore"):  # of float32: then a number is not finite
            code.shared[: len(inputs)] = inputs
            code.own[fit.private] = inputs[fit.inputs]
        code.gathers[fit.gathers] = gathered
        return code.run(fit.counts_at)

    def settle(self, fit: Fit) -> None:
        """Let the code compute what fits."""
        self.code.shared[self.program.inputs :] = fit.constants
        self.current = fit

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

    def sweep(self, out: Floats) -> bool:
        """The derivative of the root by every input; False if one is not finite."""
        fit, code = self.current, self.code
        assert fit is not None
        if not code.sweep(fit.counts_at):
            return False
        out[:] = code.shared_adjoints[: len(out)]
        out[fit.inputs] = code.adjoints[fit.private]
        return True

    def number(self, position: int) -> float | None:
        """The number of a recorded instruction, None if it was absorbed."""
        assert self.current is not None
        address = int(self.current.address[position])
        if address < 0:
            return None
        shared = self.program.shared
        code = self.code
        return float(code.shared[address] if address < shared else code.own[address - shared])


class Kernel:
    """The machine code for so many samples at once, and its arenas."""

    def __init__(
        self,
        lifted: Lifted,
        program: Program,
        root: int,
        varying: set[tuple[int, str]],
        batch: int,
    ) -> None:
        self.batch = batch
        self.machine = emit.machine(
            program,
            root,
            lifted.width,
            varying,
            batch,
            lifted.dtype,
            lifted.contract,
            lifted.optional,
        )
        self._library = jit.Library(self.machine.text)
        own = (program.size - program.shared + self.machine.scratch) * batch
        number = np.dtype(lifted.dtype)
        self.shared, self.shared_adjoints = (aligned(program.shared, number) for _ in range(2))
        self.own, self.adjoints = (aligned(own, number) for _ in range(2))
        self.shared[program.inputs :] = program.constants
        self.seeds = np.ones(batch, number)
        self.gathers = np.zeros(max(1, len(program.places)) * batch, np.int64)
        real = ctypes.c_double if lifted.dtype == "float64" else ctypes.c_float
        pointer = ctypes.c_void_p
        self.forward, self.backward, self.reverse = map(
            self._library.address, ("forward", "backward", "reverse")
        )
        self._forward = ctypes.CFUNCTYPE(real, *[pointer] * 4)(self.forward)
        self._backward = ctypes.CFUNCTYPE(real, *[pointer] * 7)(self.backward)
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

    def parts(self, fit: Fit, integers: Addresses) -> tuple[Any, ...]:
        """What a Plan needs: what keeps the code, where it is, and what it works on.

        ``integers``: where those of a call go among its own numbers.
        """
        numbers = (self.shared, self.own, self.shared_adjoints, self.adjoints, self.seeds)
        arenas = (*numbers, self.gathers, fit.counts, fit.gathers, integers)
        return self, self.forward, self.backward, arenas

    def run(self, counts_at: int) -> bool:
        """Forward; False where a number is not finite or a guard does not hold."""
        flag: float = self._forward(self._p, self._v, self._g, counts_at)
        return flag - flag == 0.0

    def sweep(self, counts_at: int) -> bool:
        """Backward; False where a derivative is not finite."""
        flag: float = self._backward(
            self._p, self._v, self._q, self._d, self._s, self._g, counts_at
        )
        return flag - flag == 0.0


def aligned(size: int, dtype: npt.DTypeLike = np.float64) -> Any:
    """Zeros on a cache line, with another line after them."""
    raw = np.zeros(size * np.dtype(dtype).itemsize + 128, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size * np.dtype(dtype).itemsize].view(dtype)
