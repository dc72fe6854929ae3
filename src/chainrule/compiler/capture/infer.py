"""Which operands follow the integer arguments.

Plain list indexing, ``wte[token]``, cannot be overloaded, so a recording holds the element that was
selected, not the index. In: recordings of the same function with other integers. They align
instruction for instruction, and the operands that differ are functions of one integer (or of two,
``M[i][j]``). Out: ``Indexing``, which predicts those operands for integers of which every (slot,
integer) pair has been seen in a recording, and every combination of those that belong together.
Others are recorded first: sampling is no proof.
"""

from __future__ import annotations

import itertools
from typing import Protocol

import numpy as np

from chainrule.compiler.capture.recorder import Ints, Recording


def misaligned(a: Recording, b: Recording) -> str | None:
    """Why two recordings are not the same instructions but for operands, or None."""
    if len(a) != len(b) or a.rules != b.rules or not np.array_equal(a.codes, b.codes):
        return "it does other operations"
    if a.slots != b.slots:
        return "other integers select"
    if not np.array_equal(a.number, b.number) or not np.array_equal(a.unflagged, b.unflagged):
        return "it does other operations"
    if [(g.position, g.expected) for g in a.guards] != [(g.position, g.expected) for g in b.guards]:
        return "a branch goes the other way"
    if not _same_result(a.result, b.result):
        return "it returns something else"
    different = np.flatnonzero(
        (a.constants.view(np.int64) != b.constants.view(np.int64)).any(axis=1)
    )
    if len(different):
        return f"a number in it changes by itself: {a.describe(int(different[0]))}"
    return None


def _same_result(a: object, b: object) -> bool:
    try:
        return bool(a == b) or repr(a) == repr(b)
    except Exception:  # an object of the user's own
        return False


class Seen(Protocol):
    """A recording whose making showed which integers selected what."""

    @property
    def recording(self) -> Recording:
        """What was recorded."""

    def slots_of(self, position: int, /) -> set[int]:
        """The integers that selected an instruction's Value."""


class Indexing:
    """The operands of one recording that follow its integers, learnt from several."""

    def __init__(self, base: Recording, ids: tuple[int, ...]) -> None:
        self.base = base
        self.ids: list[tuple[int, ...]] = [ids]  # of each recording seen
        self.places: Ints = np.zeros(0, np.int32)  # 3 * instruction + operand, where any differ
        self.rows: list[Ints] = [np.zeros(0, np.int32)]  # what each recording has in these places
        self._slots: list[tuple[int, ...]] = [(k,) for k in range(len(ids))]
        self._follows = np.ones((len(ids), 0), np.bool_)  # slot k may explain place p
        self._seen: list[dict[tuple[int, ...], int]] = [{} for _ in self._slots]
        self._answers: dict[tuple[int, ...], Ints | None] = {}
        self._joint: set[tuple[int, ...]] = set()  # slots whose combinations count
        # The combinations in the recordings, of those and of the slots that no operand follows.
        self._together: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
        self._owners: dict[int, int] = {}  # the slot that was seen to select a place
        self._meet(base)
        self._confirm(tuple(range(len(ids))))
        self._note(0)

    def _note(self, row: int) -> None:
        """Remember which recording showed which integer in which slot."""
        for slot, seen in zip(self._slots, self._seen, strict=True):
            seen.setdefault(tuple([self.ids[row][k] for k in slot]), row)

    def learn(self, recording: Recording, ids: tuple[int, ...]) -> None:
        """Take in an aligned recording made with other integers."""
        before = self.base.operands.ravel()
        after = recording.operands.ravel()
        new = np.setdiff1d(np.flatnonzero(before != after).astype(np.int32), self.places)
        if len(new):
            self.places = np.concatenate([self.places, new])
            self.rows = [np.concatenate([row, before[new]]) for row in self.rows]
        self.ids.append(ids)
        self._meet(recording)
        self._answers.clear()
        self.rows.append(after[self.places])
        self._solve()

    def _meet(self, recording: Recording) -> None:
        """Take in which integers a recording says belong together."""
        place = dict(zip(recording.slots, range(len(self.ids[0])), strict=False))
        for slots in recording.together:
            joint = tuple(sorted(place[slot] for slot in slots if slot in place))
            if len(joint) > 1:
                self._joint.add(joint)

    def _confirm(self, silent: tuple[int, ...]) -> None:
        """Remember the combinations that the recordings show; ``silent``: of these slots too."""
        before, self._together = self._together, {}
        for slots in {*self._joint, silent}:
            rows = self.ids[-1:] if slots in before else self.ids
            seen = self._together[slots] = before.get(slots, set())
            seen.update(tuple([ids[k] for k in slots]) for ids in rows)

    def _solve(self) -> None:
        """Find for each place the slots that can explain it; several where no single one can."""
        count = len(self.ids[0])
        self._slots = [(k,) for k in range(count)]
        table = np.array(self.rows).reshape(len(self.rows), len(self.places))
        follows = np.array([self._explains(slot, table) for slot in self._slots])
        follows = follows.reshape(count, len(self.places))
        for p, place in enumerate(self.places.tolist()):
            owner = self._owners.get(place)
            if owner is not None and follows[owner, p]:
                follows[:, p] = False
                follows[owner, p] = True
        alone = follows.any(axis=0)
        if not alone.all():
            larger = sorted(slots for slots in self._joint if len(slots) > 2)
            for slots in (*itertools.combinations(range(count), 2), *larger):
                explained = self._explains(slots, table) & ~alone
                if explained.any():
                    self._slots.append(slots)
                    follows = np.vstack([follows, explained])
        self._follows = follows
        # An integer that selects no operand may select a plain number together with others.
        selecting = {k for k in range(count) if follows[k].any()}
        selecting.update(*[slots for slots in self._slots if slots in self._joint])
        self._confirm(tuple([k for k in range(count) if k not in selecting]))
        self._seen = [{} for _ in self._slots]
        for row in range(len(self.ids)):
            self._note(row)

    def _explains(
        self, slot: tuple[int, ...], table: Ints
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Per place: whether recordings with the same integers in these slots agree."""
        first: dict[tuple[int, ...], int] = {}
        agrees = np.ones(table.shape[1], np.bool_)
        for row, ids in enumerate(self.ids):
            start = first.setdefault(tuple([ids[k] for k in slot]), row)
            agrees &= table[row] == table[start]
        return agrees

    def settle(self, first: Seen, other: Seen) -> bool:
        """Use what two recordings saw of who selected what; whether that tells everything.

        An operand that changed from something that an integer selected to something that the same
        integer selected, and no other, follows that one. The recordings are the first two.
        """
        slots = first.recording.slots
        if not self._seen_apart(2):
            return False
        for p in range(len(self.places)):
            chosen = first.slots_of(int(self.rows[0][p])) & other.slots_of(int(self.rows[1][p]))
            if len(chosen) != 1 or not chosen.issubset(slots):
                return False
            self._owners[int(self.places[p])] = slots.index(chosen.pop())
        self._answers.clear()
        self._solve()
        return True

    def _seen_apart(self, count: int) -> bool:
        """Whether there are so many recordings, each with its own integer in every place."""
        ids = self.ids[:count]
        columns = zip(*ids, strict=True)
        return len(ids) == count and all(len(set(column)) == count for column in columns)

    def predict(self, ids: tuple[int, ...]) -> Ints | None:
        """What stands in ``places`` for these integers, or None where a recording must tell."""
        if ids not in self._answers:
            if len(self._answers) > 10_000:
                self._answers.clear()
            self._answers[ids] = self._predict(ids)
        return self._answers[ids]

    def _predict(self, ids: tuple[int, ...]) -> Ints | None:
        for slots, combinations in self._together.items():
            if tuple([ids[k] for k in slots]) not in combinations:
                return None
        rows = []
        for slot, seen in zip(self._slots, self._seen, strict=True):
            shown_by = seen.get(tuple([ids[k] for k in slot]))
            if shown_by is None:
                return None
            rows.append(self.rows[shown_by])
        answer: Ints = np.full(len(self.places), -1, np.int32)
        for follows, row in zip(self._follows, rows, strict=True):
            # Slots that could both explain a place must agree on it.
            if np.any(follows & (answer >= 0) & (answer != row)):
                return None
            answer[follows] = row[follows]
        return None if np.any(answer < 0) else answer

    @property
    def apart(self) -> bool:
        """Whether each integer has its own effect, whatever the others are."""
        return all(len(slot) == 1 for slot in self._slots) and not any(self._together)

    def owner(self, p: int) -> int | None:
        """The integer that was seen to select what stands in a place."""
        k = self._owners.get(int(self.places[p]))
        return None if k is None else self.base.slots[k]

    def follows(self, k: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Per place: whether it may follow integer k."""
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = self._follows[k]
        return found

    def seen(self, k: int) -> dict[int, int]:
        """The recording that showed each integer in place k."""
        return {ids[0]: row for ids, row in self._seen[k].items()}

    def __str__(self) -> str:
        return (
            f"{len(self.places)} operands follow integers, learnt from {len(self.ids)} recordings"
        )
