"""The steps of a scheduled program as commands: which kernel runs over which rows of addresses.

In: a ``Program`` with ``steps``. Out: ``Commands``: the ``Kernel``s to emit, and a table of
integers that the machine code reads. A row is a run of points along which every column of addresses
moves by a constant stride; a kernel is for rows of one operation whose strides are alike. So the
machine code grows with the number of operations, and only the table with the number of steps. The
table:

- how many commands there are, and the sizes of the program (``SIZES``);
- per command, in order: its kernel, how many rows, and where in the table they begin;
- the rows: a length (unless each is one point), an address per column, and, in a kernel for any
  strides, a stride per column. Addresses of each sample's own numbers count from the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chainrule.compiler.lift.graph import EXTREME, GATHER, SUM, NotLiftable
from chainrule.compiler.lift.program import Addresses, Instruction, Program, Terms

MOST_PATTERNS = 4  # of strides of one instruction that get a kernel of their own
FEW = 32  # points that get no kernel for themselves
RARE = 16  # a pattern of strides that fewer than one point in so many has gets none

#: where the table says how many commands there are, how many numbers of each sample's own, how many
#: that samples share, the address of the result, how many inputs there are, how many derivatives by
#: a sample's own inputs, and how many operands that integers select; the commands come after these
COUNT, OWN, SHARED, ROOT, INPUTS, DERIVATIVES, PLACES, SIZES = range(8)

#: how the rows of a kernel are walked
VECTORS, STRIDED, POINTS = "vectors", "strided", "points"


@dataclass(frozen=True)
class Kernel:
    """One loop nest of machine code: an operation (or part of it) over rows of one form."""

    instruction: int  # the first that does this operation
    part: (
        str  # "out": results and operands; "products", "scaled", "plains": terms; "fill"; "gather"
    )
    shared: tuple[bool, ...]  # per column
    constant: tuple[bool, ...]  # per column: it reads constants only
    walk: str
    strides: tuple[int, ...] = ()  # of a kernel of vectors: 0 or 1 per column

    @property
    def words(self) -> int:
        """How many integers a row has."""
        columns = len(self.shared)
        return {VECTORS: columns + 1, STRIDED: 2 * columns + 1, POINTS: columns}[self.walk]


@dataclass
class Commands:
    """Kernels, and the table of commands for them."""

    kernels: list[Kernel] = field(default_factory=list)
    table: Addresses = field(default_factory=lambda: np.zeros(1, np.int64))
    rows: int = 0
    points: int = 0  # of all rows
    alike: list[int] = field(default_factory=list)  # per instruction: the first that is like it

    def of_kernels(self, truths: list[bool]) -> set[int]:
        """Kernels' instructions that stand for one of which something is true."""
        return {self.alike[k] for k, truth in enumerate(truths) if truth}


@dataclass
class _Rows:
    """The rows of one kernel, in the order of the steps they belong to."""

    kernel: Kernel
    steps: Addresses
    words: Addresses  # [row, word]


def commands(program: Program, root: int = 0) -> Commands:
    """The commands of a program, in the order of its steps; ``root``: the address of the result."""
    made = _Builder(program)
    for k, instruction in enumerate(program.instructions):
        made.add(k, instruction)
    return made.commands(root)


class _Builder:
    def __init__(self, program: Program) -> None:
        assert program.steps is not None
        self.program = program
        self.rows: list[_Rows] = []
        self.points = 0
        steps = program.steps
        starts = np.array([i.start for i in program.instructions], np.int64)
        #: per address, counted from the first result: the step that computes it
        first = program.shared + len(program.private)
        when = np.zeros(program.size - first + 1, np.int64)
        begin = starts[steps[:, 0]] + steps[:, 1] - first
        order = np.argsort(begin, kind="stable")
        sizes = (steps[:, 2] - steps[:, 1])[order]
        when[:-1] = np.repeat(order, sizes)
        self._when, self._first = when, first
        known: dict[object, int] = {}
        #: per instruction: the first that does the same operation
        self.alike = [
            known.setdefault(_operation(i), k) for k, i in enumerate(program.instructions)
        ]

    def when(self, addresses: Addresses) -> Addresses:
        """The step that computes each of these results."""
        return self._when[addresses - self._first]

    def add(self, k: int, instruction: Instruction) -> None:
        """All rows of an instruction."""
        out = instruction.out
        steps = self.when(out)
        if instruction.kind == GATHER:
            self._gather(k, instruction, steps)
        elif instruction.kind == EXTREME:
            assert instruction.plains is not None
            self._fill(k, out, steps)
            owners, (column,) = instruction.plains.owners, instruction.plains.columns
            self._points(k, "plains", [owners, column], self.when(owners))
        elif instruction.kind != SUM:
            self._runs(k, "out", [out, *instruction.columns], steps)
        elif instruction.is_short:
            columns = [c for terms in instruction.sums for c in _by_rank(terms)]
            self._runs(k, "out", [out, *columns], steps)
        else:
            self._fill(k, out, steps)
            for part in ("products", "scaled", "plains"):
                terms = getattr(instruction, part)
                if terms is not None:
                    self._terms(k, part, terms)

    # --- rows -------------------------------------------------------------------------------------

    def _fill(self, k: int, out: Addresses, steps: Addresses) -> None:
        """A row for each step, over its results."""
        self._rows(k, "fill", [out], _runs([out], steps), steps, (False,))

    def _gather(self, k: int, instruction: Instruction, steps: Addresses) -> None:
        """A row: how many, the first result, and which of all gathers that is."""
        earlier = self.program.instructions[:k]
        first = sum(i.count for i in earlier if i.kind == GATHER)
        start = instruction.start - self.program.shared
        assert instruction.candidates is not None
        shared = instruction.candidates < self.program.shared
        if shared.any() != shared.all():
            raise NotLiftable("an integer selects among shared and private numbers")
        spaces = (False, bool(shared.all()))
        kernel = Kernel(self.alike[k], "gather", spaces, (False, False), VECTORS, (1, 1))
        row = np.array([[instruction.count, start, first]])
        self.rows.append(_Rows(kernel, steps[:1], row))

    def _points(self, k: int, part: str, columns: list[Addresses], steps: Addresses) -> None:
        """A row for each point, in order."""
        for chosen, shared in self._by_space(columns):
            some = [c[chosen] for c in columns]
            each = np.arange(len(some[0]))
            found = each, np.ones_like(each), np.zeros((len(columns), len(each)), np.int64)
            self._rows(k, part, some, found, steps[chosen], shared)

    def _runs(self, k: int, part: str, columns: list[Addresses], steps: Addresses) -> None:
        """Rows along the points in their order."""
        for chosen, shared in self._by_space(columns):
            some, when = [c[chosen] for c in columns], steps[chosen]
            self._rows(k, part, some, _runs(some, when), when, shared)

    def _terms(self, k: int, part: str, terms: Terms) -> None:
        """Rows along the terms of a sum, or along the sums of a step, whichever are fewer."""
        columns = [terms.owners, *terms.columns]
        steps = self.when(terms.owners)
        rank = _rank(terms.owners)
        for chosen, shared in self._by_space(columns):
            along = [c[chosen] for c in columns]
            when = steps[chosen]
            order = np.lexsort((along[0], rank[chosen], when))
            across = [c[order] for c in along]
            one, other = _runs(along, when), _runs(across, when[order])
            count = int(steps.max()) + 1
            fewer = np.bincount(when[order][other[0]], minlength=count)
            better = fewer < np.bincount(when[one[0]], minlength=count)
            for points, found, use in ((along, one, ~better), (across, other, better)):
                at = when if points is along else when[order]
                kept = use[at[found[0]]]
                starts, lengths, strides = found
                some = starts[kept], lengths[kept], strides[:, kept]
                if kept.any():
                    self._rows(k, part, points, some, at, shared)

    def _by_space(
        self, columns: list[Addresses]
    ) -> list[tuple[npt.NDArray[np.bool_] | slice, tuple[bool, ...]]]:
        """The points by which of their columns are shared."""
        bits = np.stack([c < self.program.shared for c in columns])
        if (bits == bits[:, :1]).all():
            return [(slice(None), tuple(bits[:, 0].tolist()))]
        kinds = (bits.astype(np.int64) << np.arange(len(bits))[:, None]).sum(axis=0)
        return [
            (kinds == kind, tuple([bool(kind >> j & 1) for j in range(len(bits))]))
            for kind in np.unique(kinds).tolist()
        ]

    def _rows(
        self,
        k: int,
        part: str,
        columns: list[Addresses],
        found: tuple[Addresses, Addresses, Addresses],
        steps: Addresses,
        shared: tuple[bool, ...],
    ) -> None:
        """Runs of points become rows of kernels, by their strides."""
        program = self.program
        starts, lengths, strides = found
        self.points += int(lengths.sum())
        constant = tuple(
            [
                bool(s and (c[starts] >= program.inputs).all())
                for c, s in zip(columns, shared, strict=True)
            ]
        )
        local = [
            c[starts] - (0 if s else program.shared) for c, s in zip(columns, shared, strict=True)
        ]
        words = np.stack([lengths, *local, *strides], axis=1)
        single = lengths == 1
        simple = ((strides == 0) | (strides == 1)).all(axis=0) & ~single
        pattern = np.where(simple, 1 + (strides << np.arange(len(strides))[:, None]).sum(axis=0), 0)
        pattern[single] = -1
        kinds, inverse = np.unique(pattern, return_inverse=True)
        inverse = inverse.ravel()
        sizes = np.bincount(inverse, lengths)
        often = [i for i in np.argsort(-sizes).tolist() if kinds[i] > 0][:MOST_PATTERNS]
        often = [i for i in often if sizes[i] >= max(FEW, sizes.sum() / RARE)]
        width = len(columns) + 1
        for i in often:
            here = inverse == i
            moves = tuple(strides[:, here][:, 0].tolist())
            kernel = Kernel(self.alike[k], part, shared, constant, VECTORS, moves)
            self._append(kernel, steps[starts[here]], words[here, :width])
        rest = ~np.isin(inverse, often)
        alone = rest & single
        if alone.sum() > FEW or not (rest & ~single).any():
            rest &= ~single
        else:
            alone[:] = False  # a kernel of their own does not pay
        if rest.any():
            kernel = Kernel(self.alike[k], part, shared, constant, STRIDED)
            self._append(kernel, steps[starts[rest]], words[rest])
        if alone.any():
            kernel = Kernel(self.alike[k], part, shared, constant, POINTS)
            self._append(kernel, steps[starts[alone]], words[alone, 1:width])

    def _append(self, kernel: Kernel, steps: Addresses, words: Addresses) -> None:
        order = np.argsort(steps, kind="stable")
        self.rows.append(_Rows(kernel, steps[order], words[order]))

    # --- the table --------------------------------------------------------------------------------

    def commands(self, root: int) -> Commands:
        """All rows, and the commands that run them."""
        found: dict[Kernel, int] = {}
        lists: list[Addresses] = []  # step, kernel, rows, where in the flat rows they begin
        flat: list[Addresses] = []
        at = rows = 0
        # What fills the results of sums comes before what adds to them.
        for part in sorted(self.rows, key=lambda x: x.kernel.part != "fill"):
            number = found.setdefault(part.kernel, len(found))
            starts = np.flatnonzero(np.diff(part.steps, prepend=-1))
            counts = np.diff(np.append(starts, len(part.steps)))
            begin = at + starts * part.kernel.words
            kernels = np.full(len(starts), number)
            lists.append(np.stack([part.steps[starts], kernels, counts, begin], axis=1))
            flat.append(part.words.ravel())
            at += part.words.size
            rows += len(part.words)
        table = np.concatenate(lists)
        table = table[np.lexsort((table[:, 1], table[:, 0]))][:, 1:]
        table[:, 2] += SIZES + table.size
        program = self.program
        sizes = np.zeros(SIZES, np.int64)
        sizes[COUNT], sizes[INPUTS], sizes[PLACES] = len(table), program.inputs, len(program.places)
        sizes[OWN], sizes[SHARED] = program.size - program.shared, program.shared
        sizes[ROOT] = root - (0 if root < program.shared else program.shared)
        sizes[DERIVATIVES] = len(program.private) - program.fixed
        whole = np.concatenate([sizes, table.ravel(), *flat])
        return Commands(
            list(found), np.ascontiguousarray(whole, np.int64), rows, self.points, self.alike
        )


def _operation(instruction: Instruction) -> object:
    """What instructions have in common that run on the same kernels."""
    sums = (instruction.products, instruction.scaled, instruction.plains)
    short = instruction.is_short
    terms = tuple([t.each for t in sums if t is not None]) if short else ()
    kinds = tuple([t is not None for t in sums]) if short else ()
    rule = id(instruction.rule), instruction.parameters, len(instruction.operands)
    return instruction.kind, rule, short, terms, kinds


def _by_rank(terms: Terms) -> list[Addresses]:
    """The columns of the first term of each sum, then those of the second, and so on."""
    return [c.reshape(-1, terms.each)[:, j] for j in range(terms.each) for c in terms.columns]


def _rank(owners: Addresses) -> Addresses:
    """Which term of its sum each is."""
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    counts = np.diff(np.append(starts, len(owners)))
    return np.arange(len(owners)) - np.repeat(starts, counts)


def _runs(columns: list[Addresses], steps: Addresses) -> tuple[Addresses, Addresses, Addresses]:
    """Runs of points of one step with constant strides: starts, lengths, strides [column, run]."""
    count = len(steps)
    table = np.stack(columns)
    moves = np.diff(table, axis=1)
    inside = np.diff(steps) == 0  # between two points of one step
    same = np.zeros(count, np.bool_)  # the move before this point equals the one before that
    if count > 2:
        same[2:] = (moves[:, 1:] == moves[:, :-1]).all(axis=0) & inside[1:] & inside[:-1]
    # A point belongs to the run before it if that has three points, or to the one after it.
    joins = np.zeros(count, np.bool_)  # it continues the run of the point before it
    joins[2:] = same[2:]
    begins = np.zeros(count, np.bool_)  # the second point of a run of three
    begins[1:-1] = same[2:] & ~same[1:-1]
    # Its first point may be the last of another run.
    taken = np.zeros(count, np.bool_)
    taken[1:] = same[:-1]
    joins |= begins & ~taken
    starts = np.flatnonzero(~joins)
    lengths = np.diff(np.append(starts, count))
    strides = np.zeros((len(columns), len(starts)), np.int64)
    several = lengths > 1
    strides[:, several] = moves[:, starts[several]]
    return starts, lengths, strides
