"""An array program for recordings without equal shapes: slices of instructions, level by level.

In: a canonical ``Graph`` whose nodes have too many shapes to be grouped by them, as in triangular
loops (Cholesky), shrinking ones (binomial trees) and tables that are filled cell by cell. Out: a
``Program`` with ``steps``. Here nodes are of one *class* if they do the same operation on results
of the same operations; the number of classes does not grow with the turns of a loop. All classes
take their turns, in rounds, and a node is computed in the first round in which its operands are
there (or in the last that is early enough). What is of one class and round lies side by side in
memory: a step computes it all at once. The rounds of a table are its diagonals, those of a matrix
factorisation its columns.

Products of a sum that are scaled by a plain number, such as the -1 of ``s - a * b``, become terms
of the sum: they need no memory, and no step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import FIRST_RULE, Ints, Recording
from chainrule.compiler.lift.commands import commands
from chainrule.compiler.lift.graph import (
    CONSTANT,
    EXTREME,
    GATHER,
    INPUT,
    RULE,
    SUM,
    Graph,
    NotLiftable,
)
from chainrule.compiler.lift.hashing import Hashes, scrambled
from chainrule.compiler.lift.placed import add_operands
from chainrule.compiler.lift.program import (
    SHORT,
    Addresses,
    Instruction,
    Program,
    Terms,
    ranges,
)
from chainrule.core import ops

MOST_CLASSES = 64  # more take LLVM too long
MOST_GATHERS = 64  # times at which integers select operands; each is an instruction of its own
SHORTEST = 1.25  # runs of addresses that are shorter on average are as fast on the tape
NARROW = 8  # fewer instructions per level are as fast on the tape
SHARED, OWN = 1, 2  # where an operand lies; constants are shared too

Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class _Factors:
    """Terms of sums that have as many factors each: the sum, the factors, and a plain number."""

    owners: Addresses
    nodes: tuple[Addresses, ...]
    numbers: npt.NDArray[np.float64] | None = None  # one more factor of each term

    def chosen(self, which: Truths | Addresses | slice) -> _Factors:
        """Some of the terms."""
        numbers = None if self.numbers is None else self.numbers[which]
        return _Factors(self.owners[which], tuple([x[which] for x in self.nodes]), numbers)


def schedule(
    graph: Graph,
    recording: Recording,
    private: Addresses,
    arrays: Sequence[int] = (),
    slots: Addresses | None = None,
) -> Program:
    """The program of a graph without loops in time; the arguments are those of ``group``.

    With everything computed as early as possible, or as late: whichever makes fewer runs of
    addresses.
    """
    nodes = _Nodes(graph, recording, private)
    fewest: tuple[int, Program] | None = None
    for times in (nodes.early(), nodes.late()):
        try:
            program = _Layout(nodes, times, arrays, slots).program()
            found = commands(program)
        except NotLiftable:
            continue
        if found.rows * SHORTEST <= found.points and (fewest is None or found.rows < fewest[0]):
            fewest = found.rows, program
    if fewest is None:
        raise NotLiftable("the operands of its steps are in irregular places: no structure")
    return fewest[1]


class _Nodes:
    """What is computed: the nodes that no sum absorbs, their classes, and the terms of sums."""

    def __init__(self, graph: Graph, recording: Recording, private: Addresses) -> None:
        self.graph, self.recording, self.private = graph, recording, private
        self.computed = graph.kinds > CONSTANT
        self.terms = self._terms()
        self.position = self._classes()
        self.users, self.used = self._edges()

    # --- the terms of sums ------------------------------------------------------------------------

    def _terms(self) -> list[_Factors]:
        """Plain terms, products, scaled terms and scaled products; what they absorb goes."""
        graph = self.graph
        uses = np.bincount(graph.plains, minlength=len(graph))
        uses += np.bincount(graph.products.ravel(), minlength=len(graph))
        wanted = self.recording.wanted
        uses[graph.at[np.array(wanted, np.int64)]] += 2
        mul = [FIRST_RULE + k for k, rule in enumerate(graph.rules) if rule is ops.mul]
        once = (graph.kinds == RULE) & np.isin(graph.codes, mul) & (uses == 1)
        scales, multiplies = once & graph.number, once & ~graph.number
        operand = np.full(len(graph), -1, np.int64)  # the first one of each
        rules = graph.kinds == RULE
        operand[rules] = graph.plains[graph.plain_at[:-1][rules]]
        owners = np.repeat(np.arange(len(graph)), np.diff(graph.plain_at))
        of_sum = graph.kinds[owners] == SUM
        plain = _Factors(owners[of_sum], (graph.plains[of_sum].astype(np.int64),))
        owners = np.repeat(np.arange(len(graph)), np.diff(graph.product_at))
        pairs = _Factors(owners, (*graph.products.T.astype(np.int64),))

        (term,) = plain.nodes
        x = operand[term]
        # Only a change of sign: another number may be what keeps the product finite.
        triple = scales[term] & multiplies[x] & (graph.numbers_of(term) == -1.0)
        self.computed[term[scales[term]]] = False
        self.computed[x[triple]] = False
        scaled = _Factors(plain.owners, (x,), graph.numbers_of(term))
        triples = scaled.chosen(triple)
        scaled = scaled.chosen(scales[term] & ~triple)
        (product,) = triples.nodes
        second = graph.plains[graph.plain_at[product] + 1].astype(np.int64)
        triples = _Factors(triples.owners, (operand[product], second), triples.numbers)

        left, right = pairs.nodes
        swap = scales[right] & ~scales[left]
        left, right = np.where(swap, right, left), np.where(swap, left, right)
        both = scales[left]
        self.computed[left[both]] = False
        more = _Factors(pairs.owners, (operand[left], right), graph.numbers_of(left)).chosen(both)
        joined = np.argsort(np.concatenate([triples.owners, more.owners]), kind="stable")
        assert triples.numbers is not None
        assert more.numbers is not None
        together = _Factors(
            np.concatenate([triples.owners, more.owners])[joined],
            tuple(
                [np.concatenate(ab)[joined] for ab in zip(triples.nodes, more.nodes, strict=True)]
            ),
            np.concatenate([triples.numbers, more.numbers])[joined],
        )
        return [plain.chosen(~scales[term]), pairs.chosen(~both), scaled, together]

    # --- rounds -----------------------------------------------------------------------------------

    def early(self) -> Addresses:
        """When each node is computed, as early as possible: a round, then the class's turn in it.

        Each round computes some of every class, in the order of classes. So operations that some
        nodes need and others do not, as at the edges of a table, do not set these apart.
        """
        waits = self.position[self.used] >= self.position[self.users]
        rounds = self._rounds(self.users, self.used, waits, self.graph.level)
        return self._times(rounds)

    def late(self) -> Addresses:
        """When each node is computed, as late as possible.

        But what integers select from inputs is selected first, all at once.
        """
        waits = self.position[self.used] >= self.position[self.users]
        rounds = self._rounds(self.used, self.users, waits, -self.graph.level)
        rounds = rounds.max(initial=0) - rounds
        rounds[(self.graph.kinds == GATHER) & (self.graph.level == 1)] = 0
        return self._times(rounds)

    def _times(self, rounds: Addresses) -> Addresses:
        """Rounds, and the turns of classes in them, as one number per node."""
        times: Addresses = rounds * (1 + self.position.max(initial=0)) + self.position
        return times

    def _rounds(self, users: Addresses, used: Addresses, waits: Truths, level: Ints) -> Addresses:
        """How many rounds must come before each node; ``waits``: whether a user waits for the next.

        With users and used exchanged, and levels negated: how many must come after it.
        """
        order = np.lexsort((users, level[users]))
        users, used, later = users[order], used[order], waits[order].astype(np.int64)
        rounds = np.zeros(len(self.graph), np.int64)
        ends = np.flatnonzero(np.diff(level[users], append=level.max(initial=0) + 1)) + 1
        starts = np.flatnonzero(np.diff(users, prepend=-1))  # of each node's operands
        at = np.searchsorted(starts, [0, *ends])
        for k in range(len(ends)):
            begin, end = int(ends[k - 1]) if k else 0, int(ends[k])
            mine = starts[at[k] : at[k + 1]]
            ready = rounds[used[begin:end]] + later[begin:end]
            rounds[users[mine]] = np.maximum.reduceat(ready, mine - begin)
        return rounds

    def _edges(self) -> tuple[Addresses, Addresses]:
        """Every computed operand of every computed node, after absorption: (users, used)."""
        graph = self.graph
        owners = np.repeat(np.arange(len(graph)), np.diff(graph.plain_at))
        kept = self.computed[owners] & (graph.kinds[owners] != SUM)
        users, used = [owners[kept]], [graph.plains[kept].astype(np.int64)]
        for terms in self.terms:
            for x in terms.nodes:
                users.append(terms.owners)
                used.append(x)
        user, operand = np.concatenate(users), np.concatenate(used)
        kept = self.computed[operand]
        return user[kept], operand[kept]

    # --- classes ----------------------------------------------------------------------------------

    def _classes(self) -> Addresses:
        """The class of every node that is computed, -1 for the others."""
        graph = self.graph
        nodes = np.flatnonzero(self.computed)
        level = graph.level[nodes]
        if not len(nodes):
            raise NotLiftable("it computes nothing")
        if int(level.max()) * NARROW > len(self.recording) - graph.inputs:
            raise NotLiftable("nearly every operation waits for the one before it")
        kinds = self._kinds()
        found, first, which = np.unique(
            self._refined(kinds)[nodes], return_index=True, return_inverse=True
        )
        if len(found) > MOST_CLASSES:
            found, first, which = np.unique(kinds[nodes], return_index=True, return_inverse=True)
        if len(found) > MOST_CLASSES:
            raise NotLiftable(f"{len(found)} kinds of operations: no structure")
        # A class comes after those whose results it used first.
        lowest = np.full(len(found), len(graph))
        np.minimum.at(lowest, which.ravel(), level)
        rank = np.empty(len(found), np.int64)
        rank[np.lexsort((first, lowest))] = np.arange(len(found))
        position = np.full(len(graph), -1, np.int64)
        position[nodes] = rank[which.ravel()]
        return position

    def _kinds(self) -> Hashes:
        """A hash per node of the operation, its parameters, and where the operands lie."""
        graph = self.graph
        basic = (graph.kinds * 4 + graph.number * 2).astype(np.int64) + graph.codes * 64
        kinds = scrambled(basic + 1)
        for k, rule in enumerate(graph.rules):
            if rule.parameters:
                here = np.flatnonzero((graph.kinds == RULE) & (graph.codes == FIRST_RULE + k))
                for column in graph.constants_of(here).T:
                    kinds[here] = scrambled(kinds[here] ^ column.view(np.uint64))
        space = np.where(graph.kinds > CONSTANT, OWN, SHARED)
        space[np.flatnonzero(graph.kinds == INPUT)[self.private]] = OWN
        counts = np.zeros(len(graph), np.int64)
        for terms in self.terms:
            counts += np.bincount(terms.owners, minlength=len(graph))
        self.short = counts <= SHORT
        long = (graph.kinds == SUM) & ~self.short
        kinds[long] += scrambled(np.array([1 << 45]))
        return self._with_operands(kinds, space.astype(np.uint64))

    def _refined(self, kinds: Hashes) -> Hashes:
        """The same, and the operations that compute the operands."""
        return self._with_operands(kinds.copy(), kinds)

    def _with_operands(self, kinds: Hashes, seen: Hashes) -> Hashes:
        """Add what is seen of the operands of rules and short sums to a hash per node."""
        graph = self.graph
        for k, terms in enumerate(self.terms):
            some = terms.chosen(self.short[terms.owners])
            each = np.bincount(some.owners, minlength=len(graph))
            rank = np.arange(len(some.owners)) - np.repeat(np.cumsum(each) - each, each)
            words = scrambled(rank + (1 << 40 + k))
            for x in some.nodes:
                words = scrambled(words + seen[x])
            np.add.at(kinds, some.owners, words)
        rules = np.flatnonzero(graph.kinds == RULE)
        arity = np.diff(graph.plain_at)[rules]
        for j in range(3):
            here = rules[arity > j]
            operand = graph.plains[graph.plain_at[here] + j]
            kinds[here] += scrambled(seen[operand] + np.uint64((1 << 46) + j))
        return kinds


class _Layout:
    """Assigns an address to every node and columns to every instruction."""

    def __init__(
        self, nodes: _Nodes, times: Addresses, arrays: Sequence[int], slots: Addresses | None
    ) -> None:
        """``times``: when each node is computed."""
        self.nodes, self.times = nodes, times
        self.graph, self.recording, self.private = nodes.graph, nodes.recording, nodes.private
        self.arrays, self.slots, self.terms = arrays, slots, list(nodes.terms)
        self.constants: list[npt.NDArray[np.float64]] = []
        self.used = self.graph.inputs  # shared addresses assigned so far
        self.address = np.full(len(self.graph), -1, np.int64)

    def _slices(self) -> tuple[Addresses, Addresses, Addresses]:
        """The nodes class by class, where each class ends, and its slices by time.

        A slice is (class, first, last, time), counted in its class. What integers select is a class
        for each time: it may select only what was computed before.
        """
        nodes = np.flatnonzero(self.nodes.computed)
        position, time = self.nodes.position[nodes], self.times[nodes]
        gathers = self.graph.kinds[nodes] == GATHER
        order = np.lexsort((nodes, time, position))
        nodes, position, time, gathers = (x[order] for x in (nodes, position, time, gathers))
        change = np.diff(position, prepend=-1) != 0
        moves = np.diff(time, prepend=-1) != 0
        which = np.cumsum(change | (gathers & moves)) - 1
        if len(np.unique(which[gathers])) > MOST_GATHERS:
            raise NotLiftable("integers select operands at too many times")
        ends = np.searchsorted(which, np.arange(1 + which.max(initial=-1) + 1))
        starts = np.flatnonzero(change | moves)
        stops = np.append(starts[1:], len(nodes))
        begin = ends[which[starts]]
        slices = np.stack([which[starts], starts - begin, stops - begin, time[starts]], axis=1)
        return nodes, ends, slices

    def program(self) -> Program:
        graph, recording = self.graph, self.recording
        nodes, ends, slices = self._slices()
        self._place_leaves()
        members = [nodes[a:b] for a, b in pairwise(ends.tolist())]
        numbers = [self._numbers(some) for some in members]
        position = np.full(len(graph), -1, np.int64)
        position[nodes] = np.arange(len(nodes))
        for k, terms in enumerate(self.terms):
            terms = _Factors(position[terms.owners], terms.nodes, terms.numbers)
            self.terms[k] = terms.chosen(np.argsort(terms.owners, kind="stable"))
        scales = [self._scales(*some) for some in zip(members, ends, strict=False)]
        first = self.used + len(self.private)
        inputs = np.flatnonzero(graph.kinds == INPUT)
        self.address[inputs[self.private]] = self.used + np.arange(len(self.private))
        self.address[nodes] = first + np.arange(len(nodes))
        begins = first + np.append(ends[slices[:, 0]] + slices[:, 1], len(nodes))
        self.stretches = np.unique([0, *self.arrays, *range(graph.inputs, first + 1), *begins])
        made = [
            self._instruction(some, int(first + at), number, scale, first)
            for some, at, number, scale in zip(members, ends, numbers, scales, strict=False)
        ]
        address = np.where(graph.at >= 0, self.address[graph.at], -1)
        positions = np.array([g.position for g in recording.guards], np.int64)
        return Program(
            graph.inputs,
            self.private,
            np.concatenate([np.zeros(0), *self.constants]),
            int(first + len(nodes)),
            made,
            address,
            address[positions],
            np.array([g.expected for g in recording.guards], np.float64),
            steps=slices[np.argsort(slices[:, 3], kind="stable")][:, :3],
        )

    # --- addresses --------------------------------------------------------------------------------

    def _place_leaves(self) -> None:
        """Addresses for inputs that all samples share, and for constants."""
        graph = self.graph
        inputs = np.flatnonzero(graph.kinds == INPUT)
        self.address[inputs] = graph.origin[inputs]
        leaves = np.flatnonzero(graph.kinds == CONSTANT)
        self.address[leaves] = self._constants(graph.numbers_of(leaves))

    def _constants(self, numbers: npt.NDArray[np.float64]) -> Addresses:
        """Addresses for some constants: one if they are all the same."""
        bits = numbers.view(np.int64)
        if len(bits) and (bits == bits[0]).all():
            self.constants.append(numbers[:1])
            self.used += 1
            return np.full(len(numbers), self.used - 1)
        self.constants.append(numbers)
        self.used += len(numbers)
        return np.arange(self.used - len(numbers), self.used)

    def _numbers(self, nodes: Addresses) -> Addresses | None:
        """Addresses of the plain numbers that are second operands."""
        if not self.graph.has_number(nodes[0]):
            return None
        return self._constants(self.graph.numbers_of(nodes))

    def _scales(
        self, nodes: Addresses, start: int
    ) -> tuple[list[_Factors], list[Addresses | None]] | None:
        """The terms of the sums in a class, and the addresses of their plain numbers."""
        if self.graph.kinds[nodes[0]] != SUM:
            return None
        ends = [start, start + len(nodes)]
        found = [t.chosen(slice(*np.searchsorted(t.owners, ends))) for t in self.terms]
        return found, [None if t.numbers is None else self._constants(t.numbers) for t in found]

    # --- instructions -----------------------------------------------------------------------------

    def _instruction(
        self,
        nodes: Addresses,
        start: int,
        number: Addresses | None,
        scales: tuple[list[_Factors], list[Addresses | None]] | None,
        origin: int,
    ) -> Instruction:
        graph, kind = self.graph, int(self.graph.kinds[nodes[0]])
        made = Instruction((start,), kind, start, len(nodes))
        add_operands(made, self, nodes, number)
        if kind == EXTREME:
            counts = np.diff(graph.plain_at)[nodes]
            owners = np.repeat(np.arange(start, start + len(nodes)), counts)
            made.plains = _rows(
                owners,
                [self.address[graph.plains[ranges(graph.plain_at[nodes], counts)]]],
                len(nodes),
            )
        elif scales is not None:
            self._sum(made, *scales, origin)
        return made

    def _sum(
        self,
        made: Instruction,
        terms: list[_Factors],
        scales: list[Addresses | None],
        origin: int,
    ) -> None:
        """Plain terms, pairs of factors (one of which may be a plain number), and triples."""
        plain, pairs, scaled, triples = [
            [t.owners + origin, *([] if c is None else [c]), *[self.address[x] for x in t.nodes]]
            for t, c in zip(terms, scales, strict=True)
        ]
        joined = [np.concatenate(ab) for ab in zip(pairs, scaled, strict=True)]
        order = np.argsort(joined[0], kind="stable")
        joined = [column[order] for column in joined]
        made.plains = _rows(plain[0], plain[1:], made.count)
        made.products = _rows(joined[0], joined[1:], made.count)
        made.scaled = _rows(triples[0], triples[1:], made.count)


def _rows(owners: Addresses, columns: list[Addresses], count: int) -> Terms | None:
    """Terms of sums, sum after sum."""
    if not len(owners):
        return None
    each = np.unique(owners, return_counts=True)[1]
    regular = len(each) == count and bool((each == each[0]).all())
    return Terms(owners, tuple(columns), int(each[0]) if regular else 0)
