"""From a recording to a graph of sums, maxima and elementwise operations.

In: a ``Recording`` and its operands that depend on integers. Out: a ``Graph``: left-leaning chains
of additions are n-ary sums of products and plain terms, chains of Python's max are n-ary maxima, an
operand that depends on an integer is a gather. ``0 + x`` stays a sum of one term, so that the first
position of a sequence has the structure of the others. Every node has a signature, a hash of its
structure that leaves out all numbers, so that equal structures are found in this recording and in
others. In a loop in time, the results of earlier iterations count as leaves, and so does what
depends on none, so that all iterations have equal signatures.

A native kernel does the work; ``canonicalise_in_python`` gives the same to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.capture.recordings import Ints, Recording
from chainrule.compiler.lift.annotations import ADD, MAX, MIN, MUL, PAIR, Annotations
from chainrule.compiler.lift.graph import (
    CONSTANT,
    EXTREME,
    GATHER,
    INPUT,
    OUTSIDE,
    RULE,
    SUM,
    Given,
    Graph,
    NotLiftable,
)
from chainrule.compiler.lift.hashing import MASK, mix, mix_set
from chainrule.compiler.lift.time_loop import Loop
from chainrule.core.backend import kernels
from chainrule.core.interrupts import safe_point

__all__ = [
    "CONSTANT",
    "EXTREME",
    "GATHER",
    "INPUT",
    "RULE",
    "SUM",
    "Graph",
    "NotLiftable",
    "canonicalise",
    "canonicalise_in_python",
]

_ARRAYS: tuple[tuple[str, Any, tuple[int, ...]], ...] = (  # of a Graph, as the kernel returns them
    ("kinds", np.int8, (-1,)),
    ("product_at", np.int32, (-1,)),
    ("products", np.int32, (-1, 2)),
    ("plain_at", np.int32, (-1,)),
    ("plains", np.int32, (-1,)),
    ("origin", np.int32, (-1,)),
    ("at", np.int32, (-1,)),
    ("gathers", np.int32, (-1,)),
    ("signature", np.uint64, (-1,)),
    ("level", np.int32, (-1,)),
)


def canonicalise(
    recording: Recording,
    classes: Any = None,
    *,
    keep_dead: bool = True,
    loops: tuple[Loop, ...] = (),
) -> Graph:
    """The canonical graph of a recording.

    ``classes``: a small integer per input; inputs of different classes have different signatures.
    Without ``keep_dead``, instructions that no output, guard or gather depends on have no nodes.
    ``loops``: its loops in time, in order.
    """
    if kernels is None:
        return canonicalise_in_python(recording, classes, keep_dead=keep_dead, loops=loops)
    notes = Annotations(recording, classes, keep_dead, loops)
    safe_point()
    made = kernels.canonicalise(
        recording.inputs,
        recording.codes,
        recording.operands,
        recording.constants,
        recording.number,
        notes.roles,
        notes.identities.tobytes(),
        notes.classes,
        notes.wanted,
        notes.places,
        notes.order,
        notes.first,
        notes.candidate_at,
        notes.candidates,
        notes.begins,
        notes.iterations,
        notes.tokens.tobytes(),
        notes.keep_dead,
    )
    arrays: dict[str, Any] = {
        name: np.frombuffer(row, kind).reshape(shape)
        for (name, kind, shape), row in zip(_ARRAYS, made, strict=True)
    }
    return Graph(
        recording.inputs,
        **arrays,
        **notes.repeated,
        given=Given.of(recording),
        rules=recording.rules,
    )


def canonicalise_in_python(
    recording: Recording,
    classes: Any = None,
    *,
    keep_dead: bool = True,
    loops: tuple[Loop, ...] = (),
) -> Graph:
    """The same without the kernel: its oracle, and what the reference engine uses."""
    notes = Annotations(recording, classes, keep_dead, loops)
    return _Builder(recording, notes).build()


class _Builder:
    """Builds the graph, instruction by instruction.

    An addition, a product or a maximum that is used once gets no node at first: its terms are kept
    in ``waiting`` for the instruction that uses it, which absorbs them or has the node made.
    """

    def __init__(self, recording: Recording, notes: Annotations) -> None:
        self.recording = recording
        self.notes = notes
        self.codes = recording.codes.tolist()
        self.operands = recording.operands.tolist()
        self.constants = recording.constants.tolist()
        self.bits = recording.constants.view(np.uint64).tolist()
        self.number = recording.number.tolist()
        self.roles = notes.roles.tolist()
        self.identities = notes.identities.tolist()
        self.begins = notes.begins.tolist()
        self.iterations = notes.iterations.tolist()
        self.tokens = notes.tokens.tolist()
        bounds, rows = notes.candidate_at.tolist(), notes.candidates.tolist()
        self.dynamic = {
            place: (number, rows[begin:end])
            for place, number, (begin, end) in zip(
                notes.places.tolist(), notes.order.tolist(), bounds, strict=True
            )
        }
        self.first = dict(zip(notes.places.tolist(), notes.first.tolist(), strict=True))
        self.gathered: dict[int, int] = {}  # nodes, by the first place that selects the same
        self.live = [True] * len(recording) if notes.keep_dead else self._live()
        self.uses = self._count_uses()
        self.known: dict[Any, int] = {}  # nodes by operation and operands, to make each only once
        self.waiting: dict[int, list[tuple[int, int]]] = {}  # terms: products, or (node, -1)
        self.at = [-1] * len(recording)
        self.kinds: list[int] = []
        self.origin: list[int] = []
        self.places: list[int] = []
        self.products: list[tuple[tuple[int, int], ...]] = []
        self.plains: list[tuple[int, ...]] = []
        self.signature: list[int] = []
        self.level: list[int] = []
        self.moving: list[bool] = []  # depends on an earlier iteration of its loop

    def _operands_of(self, i: int) -> list[int]:
        """The instructions that i may use."""
        found: list[int] = []
        for j, operand in enumerate(self.operands[i]):
            if operand >= 0:
                found += self.dynamic.get(3 * i + j, (-1, [operand]))[1]
        return found

    def _live(self) -> list[bool]:
        live = [False] * len(self.codes)
        for position in self.notes.wanted.tolist():
            live[position] = True
        for i in range(len(live) - 1, self.recording.inputs - 1, -1):
            if live[i]:
                for p in self._operands_of(i):
                    live[p] = True
        return [i < self.recording.inputs or alive for i, alive in enumerate(live)]

    def _count_uses(self) -> list[int]:
        """How often each is used; outputs, guards and candidates of gathers count twice."""
        uses = [0] * len(self.codes)
        for i, alive in enumerate(self.live):
            if alive:
                for j, operand in enumerate(self.operands[i]):
                    if 3 * i + j in self.dynamic:
                        for candidate in self.dynamic[3 * i + j][1]:
                            uses[candidate] += 2
                    elif operand >= 0:
                        uses[operand] += 1
        for position in self.notes.wanted.tolist():
            uses[position] += 2
        return uses

    def build(self) -> Graph:
        for i, code in enumerate(self.codes):
            if not self.live[i]:
                continue
            if code == INPUT:
                self.at[i] = self._add(i, INPUT)
            elif code == CONSTANT:
                self.at[i] = self._add(i, CONSTANT)
            else:
                self._instruction(i, self.roles[code][0])
        return self._graph()

    def _graph(self) -> Graph:
        kinds, origin = np.array(self.kinds, np.int8), np.array(self.origin, np.int32)
        return Graph(
            inputs=self.recording.inputs,
            kinds=kinds,
            given=Given.of(self.recording),
            product_at=_starts(self.products),
            products=np.array([p for row in self.products for p in row], np.int32).reshape(-1, 2),
            plain_at=_starts(self.plains),
            plains=np.array([p for row in self.plains for p in row], np.int32),
            origin=origin,
            at=np.array(self.at, np.int32),
            gathers=np.array([place for place in self.places if place >= 0], np.int32),
            signature=np.array(self.signature, np.uint64),
            level=np.array(self.level, np.int32),
            rules=self.recording.rules,
            **self.notes.repeated,
        )

    # --- nodes ------------------------------------------------------------------------------------

    def _add(
        self,
        i: int,
        kind: int,
        plains: tuple[int, ...] = (),
        products: tuple[tuple[int, int], ...] = (),
        place: int = -1,
    ) -> int:
        self.kinds.append(kind)
        self.origin.append(i)
        self.places.append(place)
        self.products.append(products)
        self.plains.append(plains)
        self.signature.append(self._signature(i, kind, plains, products))
        used = [*plains, *[p for pair in products for p in pair]]
        below = [0 if self._is_leaf(i, p) else self.level[p] for p in used]
        self.level.append(1 + max(below, default=-1))
        self.moving.append(any(self._moves(i, p) for p in used))
        return len(self.kinds) - 1

    def _is_leaf(self, i: int, node: int) -> bool:
        """Whether a node is a result of another iteration than that of instruction i."""
        if not self.iterations or not self.iterations[i]:
            return False
        origin = self.origin[node]
        return bool(self.iterations[origin] != self.iterations[i] and self.tokens[origin] != 0)

    def _seen(self, i: int, node: int) -> int:
        """The signature of a node as it counts for instruction i."""
        if self._is_leaf(i, node):
            return int(self.tokens[self.origin[node]])
        begin = self.begins[i] if self.begins else 0
        outside = begin and self.begins[self.origin[node]] != begin and self.kinds[node] > CONSTANT
        return OUTSIDE if outside else self.signature[node]

    def _moves(self, i: int, node: int) -> bool:
        """Whether the result of instruction i differs between iterations because of a node."""
        if not self.iterations or not self.iterations[i]:
            return False
        return self._is_leaf(i, node) or self.moving[node]

    def _signature(
        self, i: int, kind: int, plains: tuple[int, ...], products: tuple[tuple[int, int], ...]
    ) -> int:
        h, code = mix(0, kind + 1), self.codes[i]
        below = [self._seen(i, p) for p in plains]
        if kind == INPUT:
            return mix(h, int(self.notes.classes[i]) & MASK)
        if kind == RULE:
            h = mix(mix(h, self.identities[code]), self.number[i])
            for x in [*self.bits[i][: self.roles[code][1]], *below]:
                h = mix(h, x)
            return h
        if kind == SUM:
            pairs = {
                mix(mix(mix(0, PAIR + 1), self._seen(i, a)), self._seen(i, b)) for a, b in products
            }
            h = mix_set(mix_set(h, pairs), set(below))
            return mix(h, len(plains) if products else MASK)
        if kind == EXTREME:
            h = mix(h, self.identities[code])
        return h if kind == CONSTANT else mix_set(h, set(below))

    def _operand(self, i: int, j: int) -> int:
        """The node of operand j of instruction i."""
        if 3 * i + j not in self.dynamic:
            return self._node(self.operands[i][j])
        first = self.first[3 * i + j]
        if first not in self.gathered:
            place, rows = self.dynamic[3 * i + j]
            # Candidates count as used twice, so none of them is waiting.
            candidates = tuple([self.at[row] for row in rows])
            self.gathered[first] = self._add(i, GATHER, candidates, place=place)
        return self.gathered[first]

    def _node(self, i: int) -> int:
        if self.at[i] < 0:
            self.at[i] = self._settle(i, self.waiting.pop(i))
        return self.at[i]

    def _wait(self, i: int, terms: list[tuple[int, int]]) -> None:
        if self.uses[i] == 1:
            self.waiting[i] = terms
        else:
            self.at[i] = self._settle(i, terms)

    def _settle(self, i: int, terms: list[tuple[int, int]]) -> int:
        """The node of an addition, a product or a maximum."""
        role = self.roles[self.codes[i]][0]
        if role == MUL:
            return self._add(i, RULE, terms[0])
        plains = tuple([a for a, b in terms if b < 0])
        products = tuple([(a, b) for a, b in terms if b >= 0])
        return self._add(i, SUM if role == ADD else EXTREME, plains, products)

    # --- instructions -----------------------------------------------------------------------------

    def _instruction(self, i: int, role: int) -> None:
        number = self.number[i]
        if role == ADD and not (number and self.constants[i][0] != 0.0):
            self._sum(i)
            return
        if role == MUL and not number:
            self._wait(i, [(self._operand(i, 0), self._operand(i, 1))])
            return
        if role in (MAX, MIN) and self._extreme(i, -np.inf if role == MAX else np.inf):
            return
        count = sum(p >= 0 for p in self.operands[i])
        plains = tuple([self._operand(i, j) for j in range(count)])
        if role == MUL or (self.tokens and self.tokens[i]):
            # Products are not shared between users, nor are results that other iterations read.
            self.at[i] = self._add(i, RULE, plains)
            return
        numbers = tuple(self.bits[i][: max(number, self.roles[self.codes[i]][1])])
        moving = any(self._moves(i, p) for p in plains)
        key = (self.codes[i], number, numbers, plains, self.iterations[i] if moving else 0)
        if key not in self.known:
            self.known[key] = self._add(i, RULE, plains)
        self.at[i] = self.known[key]

    def _waits(self, i: int, j: int) -> int:
        """The code of operand j of instruction i if it is waiting, else INPUT, which never is."""
        source = self.operands[i][j]
        waits = 3 * i + j not in self.dynamic and source in self.waiting
        return int(self.codes[source]) if waits else INPUT

    def _sum(self, i: int) -> None:
        """Start a sum, or extend the one on the left."""
        terms: list[tuple[int, int]] = []
        operands = range(1 if self.number[i] else 2)
        if len(operands) == 2 and self._waits(i, 0) == self.codes[i]:
            terms, operands = self.waiting.pop(self.operands[i][0]), range(1, 2)
        for j in operands:
            if self.roles[self._waits(i, j)][0] == MUL:
                terms += self.waiting.pop(self.operands[i][j])
            else:
                terms.append((self._operand(i, j), -1))
        self._wait(i, terms)

    def _extreme(self, i: int, start: float) -> bool:
        """Start a chain of Python's max or min from its identity, or extend one."""
        left, right = self.operands[i][:2]
        if right < 0:
            return False
        fixed = 3 * i + 1 not in self.dynamic
        if fixed and self.codes[right] == CONSTANT and self.constants[right][0] == start:
            self._wait(i, [(self._operand(i, 0), -1)])
            return True
        if self._waits(i, 0) != self.codes[i]:
            return False
        terms = self.waiting.pop(left)
        self._wait(i, [*terms, (self._operand(i, 1), -1)])
        return True


def _starts(rows: list[Any]) -> Ints:
    return np.cumsum([0, *map(len, rows)], dtype=np.int32)
