"""From a recording to a graph of sums, maxima and elementwise operations.

In: a ``Recording`` and what its operands do with integers. Out: a ``Graph``: left-leaning chains of
additions are n-ary sums of products and plain terms, chains of Python's max are n-ary maxima, an
operand that follows an integer is a gather. ``0 + x`` stays a sum of one term, so that the first
position of a sequence is made like the others. Every node has a signature, a hash of its structure
that no number in it takes part in, so that what is computed alike can be found in this recording
and in others. In a loop in time, what an earlier iteration made counts as a leaf, and so does what
does not depend on one, so that all iterations are alike.

The work is done by a native kernel; ``canonicalise_in_python`` is the same to the last bit.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recorder import (
    FIRST_RULE,
    Ints,
    Output,
    Recording,
)
from chainrule.compiler.lift.loops import Loop
from chainrule.core import ops
from chainrule.core.backend import kernels
from chainrule.core.ops import Op
from chainrule.trees import Floats, map_leaves

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.int8]
Hashes = npt.NDArray[np.uint64]

#: the kinds of nodes; the first two are a recording's codes too
INPUT, CONSTANT, RULE, SUM, EXTREME, GATHER = range(6)
_WORDS = ("input", "constant", "rule", "sum", "extreme", "gather")

#: what the rules with a part of their own are here, the same numbers in the kernel
_PLAIN, _ADD, _MUL, _MAX, _MIN = range(5)
_ROLES = {ops.add: _ADD, ops.mul: _MUL, ops.first_max: _MAX, ops.first_min: _MIN}


class NotLiftable(Exception):
    """The recording has no structure to lift, or one this compiler does not know."""


@dataclass(frozen=True, eq=False)
class Graph:
    """The canonical nodes, operands before users, as flat arrays.

    The products of node k are ``products[product_at[k]:product_at[k + 1]]``, and so for ``plains``:
    the plain terms of a sum, what a maximum (or minimum) is of, the operands of a rule in order,
    the nodes a gather may select. Equal signatures: the same operation on operands of equal
    signatures, where sums, maxima and gathers take the *set* of their terms' signatures.
    ``loops``: to an instruction in a loop, what another iteration of it made has the signature and
    the level of a leaf. To one that iterations pass something on through, all that was made from
    outside of the loop alone has one signature.
    """

    inputs: int
    kinds: Bytes
    codes: Ints  # the recording's code of a rule or an extreme, else 0
    number: npt.NDArray[np.bool_]  # a plain number stands in the second operand's place
    constants: Floats  # as in the recording: the constant, the number, the static parameters
    product_at: Longs
    products: Ints
    plain_at: Longs
    plains: Ints
    origin: Ints  # recorded instruction; a gather has that of its user
    at: Ints  # node of each recorded instruction, -1 where it was absorbed
    places: Ints  # of a gather: which of selection.places, else -1
    signature: Hashes
    level: Ints  # 0 of inputs and constants, else one more than the highest operand's
    rules: tuple[Op, ...] = field(default=(), repr=False)  # the recording's
    loops: tuple[Loop, ...] = ()  # in which instructions of the recording lie, in order
    begins: Ints = field(default_factory=lambda: np.zeros(0, np.int32), repr=False)
    iterations: Ints = field(default_factory=lambda: np.zeros(0, np.int32), repr=False)
    tokens: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64), repr=False)

    def __len__(self) -> int:
        return len(self.kinds)

    def __str__(self) -> str:
        return "\n".join(f"#{i} = {self.describe(i)}" for i in range(len(self)))

    def describe(self, i: int) -> str:
        """One node as text."""
        kind, code = int(self.kinds[i]), int(self.codes[i])
        words = [self.rules[code - FIRST_RULE].name if code else _WORDS[kind]]
        words += [
            f"#{a}*#{b}" for a, b in self.products[self.product_at[i] : self.product_at[i + 1]]
        ]
        words += [f"#{p}" for p in self.plains[self.plain_at[i] : self.plain_at[i + 1]]]
        numbers = int(self.number[i]) or int(kind == CONSTANT)
        if kind == RULE:
            numbers += len(self.rules[code - FIRST_RULE].parameters)
        words += [f"{c:g}" for c in self.constants[i, :numbers]]
        return " ".join(words)

    def verify(self) -> None:
        """Raise AssertionError unless every array fits the others."""
        n, kinds = len(self), self.kinds
        for row in (self.codes, self.number, self.origin, self.places, self.signature, self.level):
            assert row.shape == (n,)
        assert self.constants.shape == (n, 2)
        products, plains = np.diff(self.product_at), np.diff(self.plain_at)
        for counts, flat in ((products, self.products), (plains, self.plains)):
            assert counts.shape == (n,)
            assert (counts >= 0).all()
            assert counts.sum() == len(flat)
        assert self.product_at[0] == self.plain_at[0] == 0
        assert ((kinds >= INPUT) & (kinds <= GATHER)).all()
        assert (kinds[: self.inputs] == INPUT).all()
        assert (kinds[self.inputs :] != INPUT).all()
        assert ((products + plains > 0) == (kinds >= RULE)).all(), "operands of a leaf"
        assert not products[kinds != SUM].any()
        assert (plains[kinds == RULE] <= 3).all()
        coded = (kinds == RULE) | (kinds == EXTREME)
        assert ((self.codes >= FIRST_RULE) == coded).all()
        assert not self.codes[~coded].any()
        assert not self.number[kinds != RULE].any()
        assert ((self.places >= 0) == (kinds == GATHER)).all()
        users = np.concatenate(
            [np.repeat(np.arange(n), products).repeat(2), np.repeat(np.arange(n), plains)]
        )
        used = np.concatenate([self.products.ravel(), self.plains])
        assert ((used >= 0) & (used < users)).all(), "an operand comes after its use"
        assert (self.origin[used] <= self.origin[users]).all()
        level = np.zeros(n, np.int64)
        np.maximum.at(level, users, np.where(self._is_leaf(used, users), 0, self.level[used]) + 1)
        assert (level == self.level).all()
        assert ((self.at >= -1) & (self.at < n)).all()
        assert ((self.origin >= 0) & (self.origin < len(self.at))).all()
        own = kinds != GATHER
        assert (self.at[self.origin[own]] == np.flatnonzero(own)).all()
        _, first, shape = np.unique(self.signature, return_index=True, return_inverse=True)
        structure: list[Any] = [kinds, self.codes, self.number]
        for kept in structure if self.loops else [*structure, self.level]:
            assert (kept == kept[first][shape]).all(), "one signature, two structures"

    def seen(self, used: Ints, users: Longs) -> Hashes:
        """The signatures of operands as their users see them."""
        if not self.loops:
            return self.signature[used]
        leaves = self.tokens[self.origin[used]]
        here = self.begins[self.origin[users]]
        outside = (here != 0) & (self.begins[self.origin[used]] != here)
        outside &= self.kinds[used] > CONSTANT
        seen = np.where(outside, np.uint64(_OUTSIDE), self.signature[used])
        return np.where(self._is_leaf(used, users), leaves, seen)

    def _is_leaf(self, used: Ints, users: Longs) -> npt.NDArray[np.bool_]:
        """Where an operand counts as a leaf because another iteration made it."""
        if not self.loops:
            return np.zeros(len(used), np.bool_)
        one, other = self.iterations[self.origin[used]], self.iterations[self.origin[users]]
        found: npt.NDArray[np.bool_] = (other != 0) & (one != other)
        found &= self.tokens[self.origin[used]] != 0
        return found


_ARRAYS: tuple[tuple[str, Any, tuple[int, ...]], ...] = (  # of a Graph, as the kernel makes them
    ("kinds", np.int8, (-1,)),
    ("codes", np.int32, (-1,)),
    ("number", np.bool_, (-1,)),
    ("constants", np.float64, (-1, 2)),
    ("product_at", np.int64, (-1,)),
    ("products", np.int32, (-1, 2)),
    ("plain_at", np.int64, (-1,)),
    ("plains", np.int32, (-1,)),
    ("origin", np.int32, (-1,)),
    ("at", np.int32, (-1,)),
    ("places", np.int32, (-1,)),
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
    Without ``keep_dead`` there are no nodes for what no output, guard or gather depends on.
    ``loops``: its loops in time, in order.
    """
    if kernels is None:
        return canonicalise_in_python(recording, classes, keep_dead=keep_dead, loops=loops)
    around = _Surroundings(recording, classes, keep_dead, loops)
    made = kernels.canonicalise(
        recording.inputs,
        recording.codes,
        recording.operands,
        recording.constants,
        recording.number,
        around.roles,
        around.identities.tobytes(),
        around.classes,
        around.wanted,
        around.places,
        around.order,
        around.candidate_at,
        around.candidates,
        around.begins,
        around.iterations,
        around.tokens.tobytes(),
        around.keep_dead,
    )
    arrays: dict[str, Any] = {
        name: np.frombuffer(row, kind).reshape(shape)
        for (name, kind, shape), row in zip(_ARRAYS, made, strict=True)
    }
    return Graph(recording.inputs, **arrays, **around.repeated, rules=recording.rules)


def canonicalise_in_python(
    recording: Recording,
    classes: Any = None,
    *,
    keep_dead: bool = True,
    loops: tuple[Loop, ...] = (),
) -> Graph:
    """The same without the kernel: its oracle, and the way of the reference engine."""
    around = _Surroundings(recording, classes, keep_dead, loops)
    return _Builder(recording, around).build()


class _Surroundings:
    """What the builder and the kernel need beside the recording, as arrays."""

    def __init__(
        self,
        recording: Recording,
        classes: Any,
        keep_dead: bool,
        loops: tuple[Loop, ...],
    ) -> None:
        self.keep_dead = keep_dead
        self.classes: Bytes = (
            np.zeros(recording.inputs, np.int8) if classes is None else np.array(classes, np.int8)
        )
        if self.classes.shape != (recording.inputs,):
            raise ValueError(f"{self.classes.shape} classes for {recording.inputs} inputs")
        # Per code: its role, its static parameters, its name as a number.
        rules = recording.rules
        self.roles = np.array(
            [(0, 0)] * FIRST_RULE + [(_ROLES.get(r, _PLAIN), len(r.parameters)) for r in rules],
            np.int32,
        )
        self.identities = np.array([0] * FIRST_RULE + [_identity(r.name) for r in rules], np.uint64)
        # What is used from outside.
        wanted = [guard.position for guard in recording.guards]
        map_leaves(
            lambda x: wanted.append(x.position) if isinstance(x, Output) else None,
            recording.result,
        )
        self.wanted: Ints = np.array(wanted, np.int32)
        # Per instruction: where its loop begins, if iterations pass something on through it, else
        # 0; a number for each iteration of each loop, else 0; a leaf's signature where another
        # iteration's users take it for one, else 0.
        count = len(recording) if loops else 0
        self.begins: Ints = np.zeros(count, np.int32)
        self.iterations: Ints = np.zeros(count, np.int32)
        self.tokens: Hashes = np.zeros(count, np.uint64)
        for loop in loops:
            self._repeat(recording, loop)
        self.repeated: dict[str, Any] = {
            "loops": loops,
            "begins": self.begins,
            "iterations": self.iterations,
            "tokens": self.tokens,
        }
        # The operands that follow integers, in the order of the recording, and what each may be.
        selection = recording.selection
        order = np.argsort(selection.places)
        self.order: Ints = order.astype(np.int32)
        self.places: Ints = np.ascontiguousarray(selection.places[order], np.int32)
        table = np.stack(selection.rows(recording.operands), axis=1)[order]
        table.sort(axis=1)
        new = np.ones(table.shape, np.bool_)
        new[:, 1:] = table[:, 1:] != table[:, :-1]
        self.candidates: Ints = table[new]
        self.candidate_at: Ints = np.zeros(len(order) + 1, np.int32)
        self.candidate_at[1:] = np.cumsum(new.sum(axis=1))

    def _repeat(self, recording: Recording, loop: Loop) -> None:
        """Take in a loop; what enters or leaves it, or is not used once there, is a node."""
        shape = (loop.count, loop.period)
        at = np.arange(loop.start, loop.stop).reshape(shape)
        recurrent = loop.recurrent(recording)
        self.begins[at[:, recurrent]] = loop.start
        self.iterations[at] = self.iterations.max() + 1 + np.arange(loop.count)[:, None]
        carried = np.setdiff1d(loop.carried, loop.chains).astype(np.int64)
        uses = np.bincount(recording.operands.ravel() + 1, minlength=len(recording) + 1)[1:]
        pinned = (uses[at] != 1).any(axis=0)
        pinned[list(loop.chains)] = False
        pinned[carried] = True
        before = (carried - loop.period * np.arange(1, loop.reach + 1)[:, None]).ravel()
        before = loop.start + before
        read = np.unique(recording.operands[loop.start : loop.stop])
        read = read[(read >= 0) & (read < loop.start)]
        self.wanted = np.concatenate(
            [self.wanted, at[:, pinned].ravel(), before[before >= 0], read], dtype=np.int32
        )
        carried = carried[recurrent[carried]]
        codes = recording.codes[loop.start + carried].tolist()
        leaf = _mix(0, _LEAF + 1)
        tokens = [_mix(leaf, int(self.identities[code])) for code in codes]
        for k in range(-loop.reach, loop.count):
            places = loop.start + k * loop.period + carried
            there = places >= 0
            self.tokens[places[there]] = np.array(tokens, np.uint64)[there]


@cache
def _identity(name: str) -> int:
    """A rule's name as a number, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


# --- signatures -----------------------------------------------------------------------------------

_MASK = (1 << 64) - 1
_PAIR, _LEAF = 6, 7  # after the kinds: a product in a sum, what another iteration made


def _mix(h: int, x: int) -> int:
    """The hash of what ``h`` is the hash of and then ``x`` (splitmix64)."""
    z = (h * 0x9E3779B97F4A7C15 + x) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


_OUTSIDE = _mix(0, 9)  # what does not depend on another iteration


def _mix_set(h: int, found: set[int]) -> int:
    h = _mix(h, len(found))
    for x in sorted(found):
        h = _mix(h, x)
    return h


# --- the graph, node by node ----------------------------------------------------------------------


class _Builder:
    """Takes the instructions in turn.

    An addition, a product or a maximum that is used once has no node at first: its terms wait for
    the instruction that uses it, which takes them over or has the node made.
    """

    def __init__(self, recording: Recording, around: _Surroundings) -> None:
        self.recording = recording
        self.around = around
        self.codes = recording.codes.tolist()
        self.operands = recording.operands.tolist()
        self.constants = recording.constants.tolist()
        self.bits = recording.constants.view(np.uint64).tolist()
        self.number = recording.number.tolist()
        self.roles = around.roles.tolist()
        self.identities = around.identities.tolist()
        self.begins = around.begins.tolist()
        self.iterations = around.iterations.tolist()
        self.tokens = around.tokens.tolist()
        bounds, rows = around.candidate_at.tolist(), around.candidates.tolist()
        self.dynamic = {
            place: (number, rows[bounds[k] : bounds[k + 1]])
            for k, (place, number) in enumerate(
                zip(around.places.tolist(), around.order.tolist(), strict=True)
            )
        }
        self.live = [True] * len(recording) if around.keep_dead else self._live()
        self.uses = self._count_uses()
        self.known: dict[Any, int] = {}  # the same operation on the same operands is one node
        self.waiting: dict[int, list[tuple[int, int]]] = {}  # terms: products, or (node, -1)
        self.at = [-1] * len(recording)
        self.kinds: list[int] = []
        self.origin: list[int] = []
        self.places: list[int] = []
        self.products: list[tuple[tuple[int, int], ...]] = []
        self.plains: list[tuple[int, ...]] = []
        self.signature: list[int] = []
        self.level: list[int] = []
        self.moving: list[bool] = []  # computed from what an earlier iteration of its loop made

    def _operands_of(self, i: int) -> list[int]:
        """The instructions that i may use."""
        found: list[int] = []
        for j, operand in enumerate(self.operands[i]):
            if operand >= 0:
                found += self.dynamic.get(3 * i + j, (-1, [operand]))[1]
        return found

    def _live(self) -> list[bool]:
        live = [False] * len(self.codes)
        for position in self.around.wanted.tolist():
            live[position] = True
        for i in range(len(live) - 1, self.recording.inputs - 1, -1):
            if live[i]:
                for p in self._operands_of(i):
                    live[p] = True
        return [i < self.recording.inputs or alive for i, alive in enumerate(live)]

    def _count_uses(self) -> list[int]:
        """How often each is an operand; twice for an output, a guard, a candidate."""
        uses = [0] * len(self.codes)
        for i, alive in enumerate(self.live):
            if alive:
                for j, operand in enumerate(self.operands[i]):
                    if 3 * i + j in self.dynamic:
                        for candidate in self.dynamic[3 * i + j][1]:
                            uses[candidate] += 2
                    elif operand >= 0:
                        uses[operand] += 1
        for position in self.around.wanted.tolist():
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
        coded = (kinds == RULE) | (kinds == EXTREME)
        valued = (kinds == RULE) | (kinds == CONSTANT)
        return Graph(
            inputs=self.recording.inputs,
            kinds=kinds,
            codes=np.where(coded, self.recording.codes[origin], 0).astype(np.int32),
            number=self.recording.number[origin] & (kinds == RULE),
            constants=np.where(valued[:, None], self.recording.constants[origin], 0.0),
            product_at=_starts(self.products),
            products=np.array([p for row in self.products for p in row], np.int32).reshape(-1, 2),
            plain_at=_starts(self.plains),
            plains=np.array([p for row in self.plains for p in row], np.int32),
            origin=origin,
            at=np.array(self.at, np.int32),
            places=np.array(self.places, np.int32),
            signature=np.array(self.signature, np.uint64),
            level=np.array(self.level, np.int32),
            rules=self.recording.rules,
            **self.around.repeated,
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
        """Whether a node is to instruction i what another iteration made."""
        if not self.iterations or not self.iterations[i]:
            return False
        origin = self.origin[node]
        return bool(self.iterations[origin] != self.iterations[i] and self.tokens[origin] != 0)

    def _seen(self, i: int, node: int) -> int:
        """The signature of a node as instruction i sees it."""
        if self._is_leaf(i, node):
            return int(self.tokens[self.origin[node]])
        begin = self.begins[i] if self.begins else 0
        outside = begin and self.begins[self.origin[node]] != begin and self.kinds[node] > CONSTANT
        return _OUTSIDE if outside else self.signature[node]

    def _moves(self, i: int, node: int) -> bool:
        """Whether a node makes what instruction i makes of it differ between iterations."""
        if not self.iterations or not self.iterations[i]:
            return False
        return self._is_leaf(i, node) or self.moving[node]

    def _signature(
        self, i: int, kind: int, plains: tuple[int, ...], products: tuple[tuple[int, int], ...]
    ) -> int:
        h, code = _mix(0, kind + 1), self.codes[i]
        below = [self._seen(i, p) for p in plains]
        if kind == INPUT:
            return _mix(h, int(self.around.classes[i]) & _MASK)
        if kind == RULE:
            h = _mix(_mix(h, self.identities[code]), self.number[i])
            for x in [*self.bits[i][: self.roles[code][1]], *below]:
                h = _mix(h, x)
            return h
        if kind == SUM:
            pairs = {
                _mix(_mix(_mix(0, _PAIR + 1), self._seen(i, a)), self._seen(i, b))
                for a, b in products
            }
            h = _mix_set(_mix_set(h, pairs), set(below))
            return _mix(h, len(plains) if products else _MASK)
        if kind == EXTREME:
            h = _mix(h, self.identities[code])
        return h if kind == CONSTANT else _mix_set(h, set(below))

    def _operand(self, i: int, j: int) -> int:
        """The node of operand j of instruction i."""
        if 3 * i + j not in self.dynamic:
            return self._node(self.operands[i][j])
        place, rows = self.dynamic[3 * i + j]
        # Candidates count as used twice: none of them waits.
        return self._add(i, GATHER, tuple([self.at[row] for row in rows]), place=place)

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
        if role == _MUL:
            return self._add(i, RULE, terms[0])
        plains = tuple([a for a, b in terms if b < 0])
        products = tuple([(a, b) for a, b in terms if b >= 0])
        return self._add(i, SUM if role == _ADD else EXTREME, plains, products)

    # --- instructions -----------------------------------------------------------------------------

    def _instruction(self, i: int, role: int) -> None:
        number = self.number[i]
        if role == _ADD and not (number and self.constants[i][0] != 0.0):
            self._sum(i)
            return
        if role == _MUL and not number:
            self._wait(i, [(self._operand(i, 0), self._operand(i, 1))])
            return
        if role in (_MAX, _MIN) and self._extreme(i, -np.inf if role == _MAX else np.inf):
            return
        count = sum(p >= 0 for p in self.operands[i])
        plains = tuple([self._operand(i, j) for j in range(count)])
        if role == _MUL or (self.tokens and self.tokens[i]):
            # Each is its own, with a number or without; and so is what iterations pass on.
            self.at[i] = self._add(i, RULE, plains)
            return
        numbers = tuple(self.bits[i][: max(number, self.roles[self.codes[i]][1])])
        moving = any(self._moves(i, p) for p in plains)
        key = (self.codes[i], number, numbers, plains, self.iterations[i] if moving else 0)
        if key not in self.known:
            self.known[key] = self._add(i, RULE, plains)
        self.at[i] = self.known[key]

    def _waits(self, i: int, j: int) -> int:
        """The code of operand j of instruction i if that waits, else INPUT, which never does."""
        source = self.operands[i][j]
        waits = 3 * i + j not in self.dynamic and source in self.waiting
        return int(self.codes[source]) if waits else INPUT

    def _sum(self, i: int) -> None:
        """Start a sum, or go on with the one on the left."""
        terms: list[tuple[int, int]] = []
        operands = range(1 if self.number[i] else 2)
        if len(operands) == 2 and self._waits(i, 0) == self.codes[i]:
            terms, operands = self.waiting.pop(self.operands[i][0]), range(1, 2)
        for j in operands:
            if self.roles[self._waits(i, j)][0] == _MUL:
                terms += self.waiting.pop(self.operands[i][j])
            else:
                terms.append((self._operand(i, j), -1))
        self._wait(i, terms)

    def _extreme(self, i: int, start: float) -> bool:
        """Start a chain of Python's max or min from its identity, or go on with one."""
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


def _starts(rows: list[Any]) -> Longs:
    return np.cumsum([0, *map(len, rows)], dtype=np.int64)
