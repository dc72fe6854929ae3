"""A recorded call as an array program, alone and as a prefix of a longer call's.

In: a ``RecordedCall``: a recording, and what its operands do with integers. Out: its array program,
and, for a call with shorter lists, a ``Prefix``: where all that it computes is in the
program of the longer call, so that one machine code serves both.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.lift.canonical import Graph, NotLiftable, canonicalise
from chainrule.compiler.lift.endings import copied_by, with_endings
from chainrule.compiler.lift.exactness import mark_exact
from chainrule.compiler.lift.grouping import SPARE, group, group_count, grouped
from chainrule.compiler.lift.loops import Loop, find_loops
from chainrule.compiler.lift.margins import with_margins
from chainrule.compiler.lift.nearness import slope_squared
from chainrule.compiler.lift.ordering import Beside, Pieces, is_regular
from chainrule.compiler.lift.powers import has_few, with_powers_alike
from chainrule.compiler.lift.program import Addresses, Instruction, Program, address_type
from chainrule.compiler.lift.schedule import schedule
from chainrule.core import ops
from chainrule.core.backend import Value
from chainrule.core.interrupts import safe_point
from chainrule.trees import Floats

FEW_SHAPES = 100  # array instructions: no need to look for loops in time
LONG = 1 << 14  # recorded instructions in each on average: likewise, up to ``MANY_SHAPES``
ALONE = 4 * SPARE  # shapes that need no others like them where there is no backward pass
MANY_SHAPES = 200  # array instructions: steps take less time, and so does LLVM
Points = dict[tuple[int, str], tuple[int, int]]  # of a walk: how many here, and at most
ITERATIONS = "iterations"  # names those of a loop in time, among the walks
LOOPS = True  # whether loops in time are lifted as loops


@dataclass(frozen=True)
class Layout:
    """Where a call's numbers are among the inputs: how many are the first argument's, and so on."""

    first: int
    sizes: tuple[int, ...]  # of each number or array
    integers: int  # they are the last inputs, but for numbers computed from them


@dataclass(frozen=True, eq=False)
class RecordedCall:
    """A recording to lift: what its integers do, its result, and the inputs not shared."""

    recording: Recording
    root: int
    private: Addresses
    slots: Addresses  # its integers and what is computed from them, among those of the longest
    arrays: tuple[int, ...] = ()  # where among its inputs an array begins
    among: Addresses | None = None  # its inputs among those of the longest, where others move too
    births: Addresses | None = None  # of its private inputs: in which step of growth they came
    margins: bool = True  # for machine code, which tells where rounding may decide something
    derives: bool = True  # by its private inputs, too; not if these are data

    @classmethod
    def of(
        cls,
        call: Call,
        recording: Recording,
        root: int,
        slots: Addresses | None = None,
        margins: bool = True,
    ) -> RecordedCall:
        """A call and its recording; ``slots``: as above, where a longer call's are others."""
        layout = Layout(call.first, tuple(call.sizes), len(call.ints))
        made = cls.laid_out(layout, recording, root, slots)
        ends = np.cumsum([0, *call.sizes])
        later = [x for x, end in zip(call.floats, ends[1:], strict=True) if end > call.first]
        return replace(made, margins=margins, derives=any(isinstance(x, Value) for x in later))

    @classmethod
    def laid_out(
        cls, layout: Layout, recording: Recording, root: int, slots: Addresses | None = None
    ) -> RecordedCall:
        """The recording of a call without Values whose numbers lie so; ``slots`` as above."""
        integers = np.arange(layout.integers + len(recording.selection.numbers))
        first = recording.inputs - len(integers)
        size = sum(layout.sizes)
        private = np.concatenate([np.arange(layout.first, size), first + integers])
        arrays = (*np.cumsum([0, *layout.sizes]).tolist(), first)
        own = integers if slots is None else slots
        return cls(recording, root, private, own, arrays, derives=False)

    @property
    def layout(self) -> Layout:
        """Where the call's numbers are."""
        *ends, _ = self.arrays
        size = ends[-1]
        first = min([size, *self.private.tolist()[:1]])
        integers = len(self.slots) - len(self.recording.selection.numbers)
        return Layout(first, tuple(np.diff(ends).tolist()), integers)

    @property
    def returned(self) -> list[int]:
        """The result, and what else the function returned."""
        return [self.root, *[x.position for x in self.recording.outputs]]

    @property
    def differentiates(self) -> bool:
        """Whether the result is differentiated, and not numbers alone are wanted."""
        outputs = self.recording.outputs
        return not outputs or any(x.is_value for x in outputs)

    def program(self, like: Program | None = None, loops: bool = True) -> Program:
        """Its array program, with loops in time where it has some, unless ``like`` has none.

        In steps where it has too few equal shapes, and no loops.
        """
        if like is not None and like.steps is not None:
            raise NotLiftable("steps are those of one length")
        if like is not None and like.arranged:
            return self._program(None, (), self.beside(like))
        if like is not None and like.loops:
            return self._repeated(like)
        loops = loops and LOOPS and like is None
        flat, reason = None, NotLiftable()
        try:
            flat = self._program(like, ())
        except NotLiftable as error:
            reason = error
        if flat is not None and (not loops or self._needs_no_loops(len(flat.instructions))):
            return flat
        if self.recording.shed:
            raise reason  # loops and steps are found in its instructions
        found = find_loops(self.lifted) if loops else ()
        if flat is not None and len(flat.instructions) <= MANY_SHAPES and self._select_in(found):
            return flat  # few shapes: quicker than a loop, at all lengths
        try:
            if found:
                return self._program(None, found)
        except NotLiftable as error:
            reason = error
        if like is None and (flat is None or len(flat.instructions) > MANY_SHAPES):
            try:
                return self._in_steps()
            except NotLiftable:
                pass
        if flat is None:
            raise reason
        return flat

    def in_loops(self) -> Program | None:
        """Its program with loops in time, even where it needs none; None where there is none."""
        try:
            return None if self.recording.shed or not LOOPS else self.without_steps(loops=True)
        except NotLiftable:
            return None

    def _repeated(self, like: Program) -> Program:
        """Its program with loops in time, and copies of their last iterations as there are."""
        if self.recording.shed:
            raise NotLiftable("its instructions are not kept")
        periods = {loop.period for loop in like.loops}
        made = self._program(like, find_loops(self.lifted, periods))
        return self.ended(made, like.sorts) if like.ended else made

    def ended(self, program: Program, sorts: bool = True) -> Program:
        """Its program, such that the number of iterations of its loops may be known late.

        ``sorts``: sums may be reordered.
        """
        return with_endings(program, self.returned, sorts)

    def _select_in(self, loops: tuple[Loop, ...]) -> bool:
        """Whether integers select operands in one of these loops."""
        users = self.recording.selection.places // 3
        return any(((users >= x.start) & (users < x.stop)).any() for x in loops)

    def _needs_no_loops(self, shapes: int) -> bool:
        """Whether so many array instructions are few, for as much as they do."""
        is_long = len(self.recording) >= LONG * shapes
        return shapes <= (MANY_SHAPES if is_long else FEW_SHAPES)

    def straight(self, limit: int) -> Program:
        """Its array program whatever its shapes, with so many instructions at most.

        For machine code whose lanes are samples: an instruction of one number is a vector too.
        """
        made = group(
            self.graph,
            self.lifted,
            self.private,
            self.arrays,
            limit=limit,
            slots=self.selecting,
            structured=False,
        )
        return self._placed(made)

    def without_steps(self, loops: bool) -> Program | None:
        """Its array program without steps: with loops in time, or without; None: it has none."""
        found = find_loops(self.lifted) if loops else ()
        return None if loops and not found else self._program(None, found)

    def arranged(self, shorter: RecordedCall, plain: Program) -> Program:
        """Its program with what a shorter recording does in front, where ``plain`` is its own."""
        graph = shorter.graph
        born = self.births
        if born is None:
            born = np.array(self.recording.selection.born, np.int64)
        pieces = Pieces.of(shorter.beside(plain), graph, grouped(graph), born)
        made = self._program(None, (), pieces)
        if not is_regular(made, plain):
            raise NotLiftable("another length differs in irregular places")
        return made

    @functools.cached_property
    def lifted(self) -> Recording:
        """What its programs are made of: positions are the recording's, and more at the end."""
        safe_point()
        return with_margins(self.recording) if self.margins else self.recording

    @functools.cached_property
    def graph(self) -> Graph:
        """Its canonical graph without loops in time."""
        return self._graph(())

    def without_instructions(self) -> RecordedCall | None:
        """The same with its graph alone, where that makes a program without loops and steps."""
        try:
            shapes = group_count(self.graph)
        except NotLiftable:
            return None
        if LOOPS and not self._needs_no_loops(shapes):
            return None
        made = replace(self, recording=self.recording.without_instructions())
        made.__dict__["graph"] = self.graph.without_recording()
        return made

    def forget_graph(self) -> None:
        """Free the graph, until a program is made of it again."""
        self.__dict__.pop("graph", None)
        self.__dict__.pop("lifted", None)

    def _graph(self, loops: tuple[Loop, ...]) -> Graph:
        """Its canonical graph, private inputs apart from those that are shared."""
        classes = np.zeros(self.recording.inputs, np.int8)
        classes[self.private] = 1
        lifted = self.lifted
        safe_point()
        return canonicalise(lifted, classes, loops=loops)

    def inputs_in(self, longer: Program) -> Addresses:
        """The address in a longer program of each input."""
        found = np.arange(self.recording.inputs) if self.among is None else self.among.copy()
        fixed = len(found) - len(self.slots)
        if self.among is None:
            found[fixed:] = fixed + self.slots
        if len(found) and found.max() >= longer.inputs:
            raise NotLiftable("a longer length computes fewer numbers")
        own = np.full(longer.inputs, -1)
        own[longer.private] = longer.shared + np.arange(len(longer.private))
        found[self.private] = own[found[self.private]]
        return found

    @functools.cached_property
    def selecting(self) -> Addresses:
        """For each operand that integers select: the last of them, in the longest call, or -1."""
        slots = self.recording.selection.slots
        return np.array([-1 if k < 0 else self.slots[k] for k in slots], np.int64)

    def beside(self, longer: Program) -> Beside:
        """What finds it in a longer program."""
        return Beside(longer, self.inputs_in(longer), self.selecting)

    def _program(
        self,
        like: Program | None,
        loops: tuple[Loop, ...],
        arranged: Pieces | Beside | None = None,
    ) -> Program:
        given, read = self.recording.selection.places, self.lifted.selection.places
        if loops and len(read) > len(given):
            raise NotLiftable("what an integer selects is measured in a later loop")
        graph = self._graph(loops) if loops else self.graph
        safe_point()
        made = group(
            graph,
            self.lifted,
            self.private,
            self.arrays,
            like,
            slots=self.selecting,
            arranged=arranged,
            spare=SPARE if self.differentiates else ALONE,
        )
        return self._placed(made)

    def _in_steps(self) -> Program:
        """Its program in steps."""
        recording = with_powers_alike(self.recording)
        if recording is not self.recording:
            other = replace(self, recording=recording)
            if has_few(self.lifted, slope_squared(ops.pow, 0)):  # in margins, which are the same
                other.__dict__["lifted"] = with_powers_alike(self.lifted)
            return other._in_steps()
        safe_point()
        made = schedule(self.graph, self.lifted, self.private, self.arrays, self.selecting)
        return self._placed(made)

    def _placed(self, made: Program) -> Program:
        """A program of this call, if its result and its guards have addresses."""
        if (made.address[self.returned] < 0).any() or (made.guards < 0).any():
            raise NotLiftable("an output was absorbed into a sum")
        safe_point()
        mark_exact(made)
        made.fixed = 0 if self.derives else len(made.private)
        return made


class Prefix:
    """A call's program as a prefix of a longer one's; NotLiftable if it is not one.

    ``to[a]`` is the address in the longer program of what is at ``a`` in this one.
    """

    def __init__(self, call: RecordedCall, longer: Program, itself: bool = False) -> None:
        """``itself``: the longer program is the call's own."""
        safe_point()
        self.longer = longer
        self.program = program = longer if itself else call.program(like=longer)
        self._pairs = self._paired(program, longer)
        self._check_loops()
        inputs = call.inputs_in(longer)
        self.to: Addresses = np.full(program.size, -1, address_type(longer.size))
        self.to[: program.inputs] = inputs
        own = program.shared + np.arange(len(program.private))
        self.to[own] = inputs[program.private]
        for short, long in self._pairs:
            if short is not None and short.count > long.count:
                raise NotLiftable("a longer length does less of something")
            if short is not None:
                self.to[short.start : short.start + short.count] = long.out[: short.count]
        for short, long in self._pairs:
            if short is None:
                continue
            if long.ends is None:
                self._match(short, long)
            elif copied_by(short, program) != copied_by(long, longer) or short.count != long.count:
                raise NotLiftable("another length ends with something else")
        if (self.to[program.address[call.returned]] < 0).any():
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

    def _check_loops(self) -> None:
        """The same instructions are in the same loops, whose iterations may be fewer here."""
        here, there = self.program, self.longer
        alike = here.loops == there.loops
        if there.ended:
            bodies = ([replace(x, count=0) for x in program.loops] for program in (here, there))
            alike = next(bodies) == next(bodies)
        if not alike:
            raise NotLiftable("another length repeats something else")
        if not here.loops:
            return
        for short, long in self._pairs:
            if short is None or (short.loop, short.ends) != (long.loop, long.ends):
                raise NotLiftable("another length repeats something else")
            if long.loop is None:
                continue
            turns, most = here.loops[long.loop].count, there.loops[long.loop].count
            for (_, a), (_, b) in zip(columns_of(short), columns_of(long), strict=True):
                if len(a) * most != len(b) * turns:
                    raise NotLiftable("another length does less in each iteration")

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

    def gathers(self) -> list[tuple[Addresses, Addresses]]:
        """The operands that depend on integers, of each gather here and in the longer program."""
        found = [(a.places, b.places) for a, b in self._pairs if a is not None]
        return [(a, b[: len(a)]) for a, b in found if a is not None and b is not None]

    def points(self) -> Points:
        """How many points each walk has, here and in the longer program."""
        found = {}
        for k, (short, long) in enumerate(self._pairs):
            theirs = columns_of(long)
            mine = [0] * len(theirs) if short is None else [len(a) for _, a in columns_of(short)]
            for n, (what, b) in zip(mine, theirs, strict=True):
                found[k, what] = (n, len(b))
        for short_loop, long_loop in zip(self.program.loops, self.longer.loops, strict=True):
            found[long_loop.first, ITERATIONS] = (short_loop.count, long_loop.count)
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


def prefix_of(
    shorter: RecordedCall, longer: RecordedCall, program: Program
) -> tuple[Prefix, Program]:
    """A shorter call as a prefix of a longer one's program, rearranged for it if need be."""
    try:
        return Prefix(shorter, program), program
    except NotLiftable:
        arranged = longer.arranged(shorter, program)
        return Prefix(shorter, arranged), arranged


def cut_likewise(
    program: Program, varying: Collection[tuple[int, str]], optional: Collection[int]
) -> set[tuple[int, str]]:
    """Walks that lengths between the shortest and the longest may cut, and these two do not.

    The last step of a recurrence does less than the others, and at another length another step is
    the last: what it may lack (``optional``) is cut as those are that do the same.
    """
    instructions = program.instructions

    def form(k: int) -> tuple[object, ...]:
        one = instructions[k]
        sizes = tuple([(what, len(column)) for what, column in columns_of(one)])
        return one.kind, one.rule, one.parameters, one.reordered, sizes

    cut: dict[tuple[object, ...], set[str]] = {}
    for k, what in varying:
        if k < len(instructions):
            cut.setdefault(form(k), set()).add(what)
    return {(k, what) for k in optional for what in cut.get(form(k), ())}


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
    for what in ("products", "scaled", "plains"):
        terms = getattr(instruction, what)
        if terms is not None:
            found += [(what, column) for column in (terms.owners, *terms.columns)]
    return found
