"""What building the canonical graph needs beside the recording, as flat arrays.

In: a ``Recording``, its operands that depend on integers, the classes of its inputs, its loops in
time. Out: ``Annotations``, which the native kernel and the builder in Python read alike.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np

from chainrule.compiler.capture.recordings import FIRST_RULE, Ints, Recording
from chainrule.compiler.lift.graph import Bytes
from chainrule.compiler.lift.hashing import Hashes, mix
from chainrule.compiler.lift.time_loop import Loop
from chainrule.core import ops

#: the roles of rules; the native kernel has the same numbers
PLAIN, ADD, MUL, MAX, MIN = range(5)
_ROLES = {ops.add: ADD, ops.mul: MUL, ops.first_max: MAX, ops.first_min: MIN}

PAIR, LEAF = 6, 7  # hashed like kinds: a product in a sum, the result of another iteration


class Annotations:
    """Per code, input and instruction: what the kernel has to know of it."""

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
            [(0, 0)] * FIRST_RULE + [(_ROLES.get(r, PLAIN), len(r.parameters)) for r in rules],
            np.int32,
        )
        self.identities = np.array([0] * FIRST_RULE + [_identity(r.name) for r in rules], np.uint64)
        # Instructions whose results are used outside of the recording.
        self.wanted: Ints = np.array(recording.wanted, np.int32)
        # Per instruction, 0 where it does not apply: the start of its loop, if it is on a
        # recurrence; a number for each iteration of each loop; the signature of a leaf, if other
        # iterations read its result.
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
        # The operands that depend on integers, in the order of the recording, and their candidates.
        selection = recording.selection
        order = np.argsort(selection.places)
        self.order: Ints = order.astype(np.int32)
        self.places: Ints = np.ascontiguousarray(selection.places[order], np.int32)
        self.first = self._first_of_each(selection.owners[order])
        owners, of_gather = np.unique(selection.owners[order], return_inverse=True)
        tables: dict[int, tuple[int, int]] = {}  # of each table: where its candidates are
        rows, end, bounds = [np.zeros(0, np.int32)], 0, []
        for k in owners.tolist():
            table = selection.gathers[k].candidates
            if id(table) not in tables:
                rows.append(np.unique(table))
                tables[id(table)] = end, end + len(rows[-1])
                end += len(rows[-1])
            bounds.append(tables[id(table)])
        self.candidates: Ints = np.concatenate(rows)
        ranges = np.array(bounds, np.int32).reshape(-1, 2)[of_gather.ravel()]
        self.candidate_at: Ints = np.ascontiguousarray(ranges)  # begin and end for each place

    def _first_of_each(self, owners: Ints) -> Ints:
        """Of each of ``places`` the first one that selects the same: both read one node.

        In a loop in time, those of one iteration.
        """
        if not len(owners):
            return np.zeros(0, np.int32)
        keys = [np.asarray(owners, np.int64)]
        if len(self.iterations):
            users = self.places // 3
            keys += [self.iterations[users].astype(np.int64), self.begins[users].astype(np.int64)]
        _, first, which = np.unique(np.stack(keys), axis=1, return_index=True, return_inverse=True)
        found: Ints = first[which.ravel()].astype(np.int32)
        return found

    def _repeat(self, recording: Recording, loop: Loop) -> None:
        """Add a loop; what enters or leaves it, or is not used exactly once, must be a node."""
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
        leaf = mix(0, LEAF + 1)
        tokens = [mix(leaf, int(self.identities[code])) for code in codes]
        for k in range(-loop.reach, loop.count):
            places = loop.start + k * loop.period + carried
            there = places >= 0
            self.tokens[places[there]] = np.array(tokens, np.uint64)[there]


@cache
def _identity(name: str) -> int:
    """A hash of a rule's name, the same in every process."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
