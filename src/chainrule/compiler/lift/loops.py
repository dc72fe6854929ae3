"""Finds the loops in time of a recording.

In: a ``Recording``. Out: its ``Loop``s, in order. Only recurrences are loops in time: where
iterations do not need each other, or only to add up a sum, all of them together become one array
instruction, and there is nothing to re-roll. What an integer selects, as a row of an embedding, is
done before or after a loop for all iterations at once, never in the recurrence itself.
"""

from __future__ import annotations

import functools
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from chainrule.compiler.capture.recordings import FIRST_RULE, Recording
from chainrule.compiler.lift.hashing import Hashes, scrambled
from chainrule.compiler.lift.periods import (
    best,
    between_equal_windows,
    between_uses,
    signatures,
)
from chainrule.compiler.lift.time_loop import Loop, Positions, Selected, Truths, fixed_operands
from chainrule.core import ops

__all__ = ["Loop", "find_loops"]

FEWEST = 8  # iterations of a loop
FEWEST_OF_KNOWN = 3  # where a longer call has such a loop
SHORTEST = 64  # instructions that a loop covers: fewer are not worth it
SMALLEST_SHARE = 16  # a loop covers at least one instruction in so many
REFINED = 4  # searches for a longer period where the operations alone have a shorter one
SAMPLE = 64  # operands whose users are looked at
LONGEST_PATH = 1_000  # in one iteration

_REDUCTIONS = (ops.add, ops.first_max, ops.first_min)


def find_loops(recording: Recording, periods: Collection[int] = ()) -> tuple[Loop, ...]:
    """The loops in time of a recording; ``periods``: those of a longer call, whose loops it has."""
    if len(recording) - recording.inputs < SHORTEST:
        return ()
    found = _Search(recording, periods).loops(recording.inputs, len(recording))
    return tuple(sorted(found, key=lambda loop: loop.start))


class _Stretch(NamedTuple):
    """Instructions ``start`` up to ``stop`` repeat with this period."""

    period: int
    start: int
    stop: int


class _Search:
    def __init__(self, recording: Recording, periods: Collection[int]) -> None:
        self.recording, self.periods = recording, periods
        self.fewest = FEWEST_OF_KNOWN if periods else FEWEST
        self.shortest = max(SHORTEST, (len(recording) - recording.inputs) // SMALLEST_SHARE)
        self.signatures = signatures(recording, recording.selection.places)
        self.operands = fixed_operands(recording)
        used = [column for column in self.operands.T if (column >= 0).any()]
        self.columns = [np.ascontiguousarray(column) for column in used]

    @functools.cached_property
    def uses(self) -> Positions:
        """How often each instruction is used, and wanted."""
        size = len(self.recording) + 1
        uses = sum([np.bincount(column + 1, minlength=size)[1:] for column in self.columns])
        found = np.zeros(size - 1, np.int64) + uses
        np.add.at(found, np.array(self.recording.wanted, np.int64), 1)
        for candidates in self.selected.tables:
            found[candidates] += 2
        return found

    @functools.cached_property
    def selected(self) -> Selected:
        """What integers may select."""
        return Selected(self.recording)

    def loops(self, low: int, high: int) -> list[Loop]:
        """The longest loops in ``low:high``, and those in the gaps between them."""
        if high - low < self.shortest:
            return []
        found = sorted(self._repeated(low, high), key=lambda s: s.start - s.stop)
        chosen: list[Loop] = []
        for stretch in found:
            # What repeats every 18 instructions repeats every 36 too.
            same = [s for s in found if _covers(s, stretch)]
            for s in sorted([*same, stretch]):
                if any(s.start < loop.stop and loop.start < s.stop for loop in chosen):
                    continue
                if (loop := self.loop(s)) is not None:
                    chosen.append(loop)
                    break
        if not chosen:
            return []
        chosen.sort(key=lambda loop: loop.start)
        ends = [low, *[end for loop in chosen for end in (loop.start, loop.stop)], high]
        for k in range(0, len(ends), 2):
            chosen += self.loops(ends[k], ends[k + 1])
        return chosen

    def _repeated(self, low: int, high: int) -> list[_Stretch]:
        """Stretches that repeat with any period."""
        if self.periods:
            runs = [(x, *run) for x in self.periods for run in self.equal(x, low, high)]
            return [stretch for run in runs for stretch in self.stretches(*run)]
        longest = (high - low) // FEWEST
        waiting = best(between_equal_windows(self.signatures[low:high]), longest)
        waiting += best(self._between_users(low, high), longest)
        found: list[_Stretch] = []
        tried: set[int] = set()
        refined = 0
        for period in waiting:  # which grows
            if period in tried:
                continue
            tried.add(period)
            for start, stop in self.equal(period, low, high):
                stretches = self.stretches(period, start, stop)
                found += stretches
                covered = sum(s.stop - s.start for s in stretches)
                if 2 * covered < stop - start and refined < REFINED:
                    # The same operations with another pattern of operands, such as the next layer.
                    waiting += best(between_equal_windows(self._refined(start, stop)), longest)
                    refined += 1
        return found

    # --- which periods to try ---------------------------------------------------------------------

    def _refined(self, start: int, stop: int) -> Hashes:
        """Signatures that include how far back an operand is, unless it is near ``start``."""
        signatures = self.signatures[start:stop].copy()
        at = np.arange(start, stop, dtype=np.int32)
        inside = start + (stop - start) // FEWEST
        for k, column in enumerate(self.columns):
            part = column[start:stop]
            signatures += scrambled(np.where(part >= inside, at - part, 0) * 4 + k)
        return signatures

    def _between_users(self, low: int, high: int) -> Positions:
        """The scores of periods by the users of an operand: each iteration uses a parameter again.

        Equal windows find the period of one neuron; uses of its weights that of a step in time.
        """
        size = len(self.recording) + 1  # the last for operands that are not there: -1
        at = np.arange(low, high, dtype=np.int32)
        uses, last = np.zeros(size - 1, np.int32), np.zeros(size, np.int32)
        first = np.full(size, size, np.int32)
        for column in self.columns:
            part = column[low:high]
            uses += np.bincount(part + 1, minlength=size)[1:]
            here = np.full(size, size, np.int32)
            here[part[::-1]] = at[::-1]
            np.minimum(first, here, out=first)
            here.fill(0)
            here[part] = at
            np.maximum(last, here, out=last)
        popular = (uses >= FEWEST) & (uses <= (high - low) // 4)
        popular &= (last - first)[:-1] >= self.shortest * 3 // 4
        rare = np.flatnonzero(popular)
        rare = rare[np.argsort(uses[rare], kind="stable")]
        step = max(1, 2 * len(rare) // SAMPLE)
        sample = np.unique(np.concatenate([rare[: SAMPLE // 2], rare[::step]]))
        sample = sample[np.argsort(uses[sample], kind="stable")]
        sample = sample[np.cumsum(uses[sample]) <= high - low]
        chosen = np.zeros(size, np.bool_)
        chosen[sample] = True
        found = [np.flatnonzero(chosen[column[low:high]]) for column in self.columns]
        operands = np.concatenate(
            [column[low + users] for column, users in zip(self.columns, found, strict=True)]
        )
        users = low + np.concatenate(found)
        order = np.lexsort((users, operands))
        return between_uses(operands[order], users[order])

    # --- where a period holds ---------------------------------------------------------------------

    def equal(self, period: int, low: int, high: int) -> list[tuple[int, int]]:
        """Where the operations repeat with this period, long enough for a loop."""
        same = self.signatures[low + period : high] == self.signatures[low : high - period]
        runs = _runs(same, max(self.fewest * period, self.shortest) - period)
        return [(low + a, low + b + period) for a, b in runs]

    def stretches(self, period: int, start: int, stop: int) -> list[_Stretch]:
        """Where in such a stretch the operands move by constant steps too."""
        steady = np.ones(stop - start - 2 * period, np.bool_)
        for column in self.columns:
            delta = column[start + period : stop] - column[start : stop - period]
            steady &= delta[period:] == delta[:-period]
        runs = _runs(steady, max(self.fewest * period, self.shortest) - 2 * period)
        return [_Stretch(period, start + a, start + b + 2 * period) for a, b in runs]

    # --- from a stretch to a loop -----------------------------------------------------------------

    def loop(self, stretch: _Stretch) -> Loop | None:
        """The loop of a stretch, its iterations cut where the fewest numbers are carried over."""
        period, low, high = stretch
        operands = self.operands
        last = operands[high - period : high].astype(np.int64)
        deltas = last - operands[high - 2 * period : high - period]
        # Operands that are not carried must be computed before the loop.
        low = max(low, _latest(last, deltas, period) + 1)
        if high - low < self.fewest * period:
            return None
        first = operands[low : low + period].astype(np.int64)
        low = max(low, _latest(first, operands[low + period :][:period] - first, period) + 1)
        room = high - low - max(self.fewest * period, self.shortest)
        if room < 0:
            return None
        inside = (last >= low) & (deltas == period)
        lives = (np.arange(high - period, high)[:, None] - last)[inside]
        makers = last[inside]
        crossings = _crossings(makers % period, lives, period)
        starts = np.arange(low, low + min(period, room + 1))
        crossed = crossings[starts % period]
        starts = starts[crossed == crossed.min()]
        counts, left = np.divmod(high - starts, period)
        if len(self.recording.selection.places):
            # And so that the least is left after them: at another length other iterations are last.
            order = np.lexsort((left, -counts))
        else:  # and the fewest kinds of them: a whole layer, not part of one
            kinds = np.zeros(period, np.int64)
            codes = self.recording.codes[makers]
            for code in np.unique(codes):
                here = codes == code
                kinds += _crossings(makers[here] % period, lives[here], period) > 0
            order = np.argsort(kinds[starts % period], kind="stable")
        return self._made(int(starts[order[0]]), period, int(counts[order[0]]))

    def _made(self, start: int, period: int, count: int) -> Loop | None:
        """The loop, unless its iterations are independent and can be done all at once."""
        first = self.operands[start : start + period].astype(np.int64)
        deltas = self.operands[start + period : start + 2 * period] - first
        edges = self.selected.edges(start, period, count)
        if edges is None:
            return None
        inside = (first >= 0) & (deltas == period) & (first + (count - 1) * period >= start)
        carried = inside & (first < start)
        chain = self._chains(start, period, count, first, inside)
        if not carried.any() or not self._recurs(period, first - start, inside, chain, edges):
            return None
        iterations, slots = np.divmod(first[carried] - start, period)
        guards = {g.position - start for g in self.recording.guards}
        return Loop(
            start,
            period,
            count,
            deltas,
            -int(iterations.min()),
            tuple(np.unique(slots).tolist()),
            tuple(sorted(g for g in guards if 0 <= g < period)),
            tuple(np.flatnonzero(chain & self._adds(start, period)).tolist()),
            edges,
        )

    def _adds(self, start: int, period: int) -> Truths:
        """Where the additions are."""
        adds = [k for k, rule in enumerate(self.recording.rules) if rule is ops.add]
        codes = self.recording.codes[start : start + period]
        return np.isin(codes, np.array(adds, np.int32) + FIRST_RULE)

    def _recurs(
        self, period: int, first: Positions, inside: Truths, chain: Truths, edges: Positions
    ) -> bool:
        """Whether a number depends on itself in an earlier iteration, other than by a sum."""
        target, _ = np.nonzero(inside)
        source = np.concatenate([first[inside] % period, edges[:, 0]])
        target = np.concatenate([target, edges[:, 1]])
        kept = ~chain[source]
        return _cyclic(source[kept], target[kept], period)

    def _chains(
        self, start: int, period: int, count: int, first: Positions, inside: Truths
    ) -> Truths:
        """The additions of one sum over all iterations: each is the first operand of the next only.

        Or of one maximum.
        """
        codes = self.recording.codes[start : start + period]
        rules = [k for k, rule in enumerate(self.recording.rules) if rule in _REDUCTIONS]
        target, column = np.nonzero(inside)
        source = (first[inside] - start) % period
        uses = self.uses[start : start + (count - 1) * period].reshape(count - 1, period)
        adds = np.isin(codes, np.array(rules, np.int32) + FIRST_RULE)
        chain: Truths = adds & (uses == 1).all(axis=0)
        chain &= ~self.recording.number[start : start + period]
        follower = np.full(period, -1)
        follower[source[column == 0]] = target[column == 0]
        chain &= (follower >= 0) & (codes[follower] == codes)
        for _ in range(period.bit_length()):  # the following additions must be links too
            chain &= chain[follower]
            follower = follower[follower]
        return chain


def _covers(shorter: _Stretch, longer: _Stretch) -> bool:
    """Whether a stretch of a shorter period contains the other, except for its ends."""
    both = min(shorter.stop, longer.stop) - max(shorter.start, longer.start)
    return shorter.period < longer.period and both >= longer.stop - longer.start - 2 * longer.period


def _runs(truths: Truths, shortest: int) -> list[tuple[int, int]]:
    """Runs of true entries, as (start, stop)."""
    if len(truths) < shortest:
        return []
    breaks = np.concatenate([[-1], np.flatnonzero(~truths), [len(truths)]])
    long = np.flatnonzero(np.diff(breaks) > shortest)
    return [(int(breaks[k]) + 1, int(breaks[k + 1])) for k in long]


def _crossings(makers: Positions, lives: Positions, period: int) -> Positions:
    """Per position modulo the period: how many live numbers cross a boundary before it.

    ``makers`` are the instructions that an iteration reads of itself and earlier ones, modulo the
    period, and ``lives`` how many instructions ago they were.
    """
    longest = np.zeros(period, np.int64)
    np.maximum.at(longest, makers, lives)
    whole, rest = np.divmod(longest, period)
    steps = np.zeros(2 * period + 1, np.int64)
    at = np.arange(period)
    np.add.at(steps, at + 1, 1)
    np.add.at(steps, at + 1 + rest, -1)
    crossed = np.cumsum(steps)[: 2 * period]
    return crossed[:period] + crossed[period:] + int(whole.sum())


def _latest(operands: Positions, deltas: Positions, period: int) -> int:
    """The position of the last operand that is not carried."""
    return int(operands[(operands >= 0) & (deltas != period)].max(initial=-1))


def _cyclic(sources: Positions, targets: Positions, size: int) -> bool:
    """Whether a directed graph has a cycle, or a path longer than ``LONGEST_PATH``."""
    order = np.argsort(sources, kind="stable")
    starts = np.searchsorted(sources[order], np.arange(size + 1))
    targets = targets[order]
    waiting = np.bincount(targets, minlength=size)
    free, left = np.flatnonzero(waiting == 0), size
    for _ in range(LONGEST_PATH):
        left -= len(free)
        if not len(free):
            return left > 0
        counts = starts[free + 1] - starts[free]
        shift = np.repeat(starts[free] - np.cumsum(counts) + counts, counts)
        reached = targets[shift + np.arange(len(shift))]
        np.subtract.at(waiting, reached, 1)
        free = np.unique(reached[waiting[reached] == 0])
    return True
