"""The canonical graph: sums, maxima, gathers and elementwise operations.

``canonical`` builds it from a recording, ``grouping`` turns it into an array program.
``str(graph)`` prints it, a node per line; ``graph.verify()`` checks it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import FIRST_RULE, Ints, Recording
from chainrule.compiler.lift.hashing import Hashes, mix
from chainrule.compiler.lift.time_loop import Loop
from chainrule.core.ops import Op
from chainrule.trees import Floats

Longs = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.int8]

#: the kinds of nodes; the first two are a recording's codes too
INPUT, CONSTANT, RULE, SUM, EXTREME, GATHER = range(6)
_WORDS = ("input", "constant", "rule", "sum", "extreme", "gather")

FEW = 2.0  # recorded instructions for a node: few of them are needed
MANY = 2  # instructions for one that has a constant: it pays to keep these only
OUTSIDE = mix(0, 9)  # signature of everything that does not depend on another iteration


class NotLiftable(Exception):
    """The recording has no structure to lift, or one that this compiler does not support."""


@dataclass(frozen=True, eq=False)
class Given:
    """What a graph reads of its recording: its very arrays, or a part of them."""

    codes: Ints
    number: npt.NDArray[np.bool_]
    constants: Floats
    places: Ints | None = None  # the only rows that have constants, in order; None: all of them

    @classmethod
    def of(cls, recording: Recording) -> Given:
        """That of a recording."""
        return cls(recording.codes, recording.number, recording.constants)

    def chosen(self, rows: Ints) -> Given:
        """Some of it, in memory of its own."""
        return Given(self.codes[rows], self.number[rows], self.constants[rows])

    def without_zeros(self) -> Given:
        """The same, which keeps no constants of 0: most instructions have none."""
        there = np.flatnonzero(self.constants.view(np.int64).any(axis=1))
        if self.places is not None or MANY * len(there) > len(self.constants):
            return self
        constants = np.zeros((len(there) + 1, self.constants.shape[1]))
        np.take(self.constants, there, axis=0, out=constants[1:], mode="clip")
        places = np.full(len(there) + 1, -1, np.int32)  # the first stands for all of the others
        places[1:] = there
        return replace(self, constants=constants, places=places)

    def constants_of(self, rows: Any) -> Floats:
        """The constants of some rows."""
        if self.places is None:
            found: Floats = self.constants[rows]
            return found
        at = np.searchsorted(self.places, rows, side="right") - 1
        return np.where((self.places[at] == rows)[..., None], self.constants[at], 0.0)


@dataclass(frozen=True, eq=False)
class Graph:
    """The canonical nodes, operands before users, as flat arrays.

    The products of node k are ``products[product_at[k]:product_at[k + 1]]``. ``plains`` likewise:
    the plain terms of a sum, the terms of a maximum (or minimum), the operands of a rule in order,
    the nodes that a gather may select. Equal signatures mean the same operation on operands of
    equal signatures; for sums, maxima and gathers the *set* of the terms' signatures counts. To an
    instruction in a loop in time, a result of another iteration has the signature and level of a
    leaf; to an instruction on a recurrence, everything computed outside of the loop has one
    signature.
    """

    inputs: int
    kinds: Bytes
    given: Given  # at the place of its instruction, unless ``rows`` says where
    product_at: Ints
    products: Ints
    plain_at: Ints
    plains: Ints
    origin: Ints  # recorded instruction; a gather has that of its user
    at: Ints  # node of each recorded instruction, -1 where it was absorbed
    gathers: Ints  # of each gather, in order: its index in indexing.places
    signature: Hashes
    level: Ints  # 0 for inputs and constants, else one more than the highest operand's
    rules: tuple[Op, ...] = field(default=(), repr=False)  # the recording's
    loops: tuple[Loop, ...] = ()  # the recording's loops in time, in order
    begins: Ints = field(default_factory=lambda: np.zeros(0, np.int32), repr=False)
    iterations: Ints = field(default_factory=lambda: np.zeros(0, np.int32), repr=False)
    tokens: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64), repr=False)
    rows: Ints | None = None  # of each node, in what is given of the recording

    def __len__(self) -> int:
        return len(self.kinds)

    def without_recording(self) -> Graph:
        """The same, not holding arrays of the recording where few of their rows are needed."""
        if self.rows is not None:
            return self
        if len(self.at) < FEW * len(self):
            return replace(self, given=self.given.without_zeros())
        rows = np.arange(len(self), dtype=np.int32)
        return replace(self, given=self.given.chosen(self.origin).without_zeros(), rows=rows)

    @property
    def _rows(self) -> Ints:
        return self.origin if self.rows is None else self.rows

    def constants_of(self, nodes: Any) -> Floats:
        """The numbers of rules and constants: the constant, plain number or static parameters."""
        return self.given.constants_of(self._rows[nodes])

    def numbers_of(self, nodes: Any) -> Floats:
        """The first of these: the constant or plain number."""
        return np.array(self.constants_of(nodes)[..., 0])

    def code_of(self, node: int) -> int:
        """The recording's code of a rule or an extreme, else 0."""
        coded = self.kinds[node] in (RULE, EXTREME)
        return int(self.given.codes[self._rows[node]]) if coded else 0

    def has_number(self, node: int) -> bool:
        """Whether its second operand is a plain number."""
        return bool(self.kinds[node] == RULE and self.given.number[self._rows[node]])

    @property
    def codes(self) -> Ints:
        """``code_of`` every node."""
        coded = (self.kinds == RULE) | (self.kinds == EXTREME)
        return np.where(coded, self.given.codes[self._rows], 0).astype(np.int32)

    @property
    def number(self) -> npt.NDArray[np.bool_]:
        """Whether the second operand of each is a plain number."""
        found: npt.NDArray[np.bool_] = self.given.number[self._rows] & (self.kinds == RULE)
        return found

    def places_of(self, nodes: Any) -> Longs:
        """Of some gathers, their indices in indexing.places."""
        found: Longs = self.gathers[np.searchsorted(self._gathers, nodes)].astype(np.int64)
        return found

    @functools.cached_property
    def _gathers(self) -> Longs:
        return np.flatnonzero(self.kinds == GATHER)

    def __str__(self) -> str:
        return "\n".join(f"#{i} = {self.describe(i)}" for i in range(len(self)))

    def describe(self, i: int) -> str:
        """One node as text."""
        kind, code = int(self.kinds[i]), self.code_of(i)
        words = [self.rules[code - FIRST_RULE].name if code else _WORDS[kind]]
        words += [
            f"#{a}*#{b}" for a, b in self.products[self.product_at[i] : self.product_at[i + 1]]
        ]
        words += [f"#{p}" for p in self.plains[self.plain_at[i] : self.plain_at[i + 1]]]
        numbers = int(self.has_number(i)) or int(kind == CONSTANT)
        if kind == RULE:
            numbers += len(self.rules[code - FIRST_RULE].parameters)
        words += [f"{c:g}" for c in self.constants_of(i)[:numbers]]
        return " ".join(words)

    def verify(self) -> None:
        """Raise AssertionError unless every array fits the others."""
        n, kinds = len(self), self.kinds
        for row in (self.origin, self.signature, self.level):
            assert row.shape == (n,)
        given = len(self.at) if self.rows is None else n
        assert self.given.codes.shape == self.given.number.shape == (given,)
        places = self.given.places
        assert len(self.given.constants) == (given if places is None else len(places))
        assert places is None or (places[0] == -1 and places[-1] < given)
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
        assert self.gathers.shape == ((kinds == GATHER).sum(),)
        assert (self.gathers >= 0).all()
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
        """The signatures of operands as they count for their users."""
        if not self.loops:
            return self.signature[used]
        leaves = self.tokens[self.origin[used]]
        here = self.begins[self.origin[users]]
        outside = (here != 0) & (self.begins[self.origin[used]] != here)
        outside &= self.kinds[used] > CONSTANT
        seen = np.where(outside, np.uint64(OUTSIDE), self.signature[used])
        return np.where(self._is_leaf(used, users), leaves, seen)

    def _is_leaf(self, used: Ints, users: Longs) -> npt.NDArray[np.bool_]:
        """Where an operand counts as a leaf because it is a result of another iteration."""
        if not self.loops:
            return np.zeros(len(used), np.bool_)
        one, other = self.iterations[self.origin[used]], self.iterations[self.origin[users]]
        found: npt.NDArray[np.bool_] = (other != 0) & (one != other)
        found &= self.tokens[self.origin[used]] != 0
        return found
