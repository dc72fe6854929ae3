"""Loops in time: stretches of a recording that do the same again and again.

In: a ``Recording`` and the operands in it that follow integers. Out: its ``Loop``s, in order. Every
iteration has the operations of the one before it, and every operand moves on by the same number of
instructions each time: by 0 (a parameter, or what was made before the loop), by the loop's period
(what this iteration made, or an earlier one carried over), or by another step (streamed: an input
for each iteration). Only recurrences are loops in time: where iterations do not need each other, or
only to add up a sum, all of them make one array instruction, and nothing has to be re-rolled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recorder import (
    CONSTANT,
    FIRST_RULE,
    Ints,
    Output,
    Recording,
)
from chainrule.core import ops
from chainrule.trees import map_leaves

Positions = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]
Hashes = npt.NDArray[np.uint64]

FEWEST = 8  # iterations of a loop
SHORTEST = 64  # instructions that a loop covers: less is not worth it
SMALLEST_SHARE = 16  # and no less than one instruction of so many
WINDOW = 16  # instructions in a row that are compared to find a period
CANDIDATES = 8  # periods that are tried, from each of the two ways to find them
REFINED = 4  # searches for a longer period where the operations alone have a shorter one
SAMPLE = 64  # operands whose users are looked at
LONGEST_PATH = 1_000  # in one iteration
LAGS = 8  # an operand may be used so often in one iteration

_REDUCTIONS = (ops.add, ops.first_max, ops.first_min)


@dataclass(frozen=True, eq=False)
class Loop:
    """Instructions ``start + k * period + i``: iteration ``k`` of ``count``, ``i < period``.

    Operand ``j`` of it is that of iteration 0 plus ``k * deltas[i, j]`` (0 where there is none).
    What comes from an earlier iteration has the period as its delta, and in iteration 0 lies before
    ``start``, where the instruction would be if there were iterations -1, -2 and so on; ``reach``
    is how many of these it takes. ``carried`` are the ``i`` whose results later iterations read,
    ``guards`` those whose results are branches, ``chains`` the additions of one sum over all
    iterations.
    """

    start: int
    period: int
    count: int
    deltas: Positions = field(repr=False)
    reach: int
    carried: tuple[int, ...] = ()
    guards: tuple[int, ...] = ()
    chains: tuple[int, ...] = ()

    @property
    def stop(self) -> int:
        """Where the epilogue begins."""
        return self.start + self.period * self.count

    def __str__(self) -> str:
        text = (
            f"%{self.start}..%{self.stop - 1}: {self.count} iterations of {self.period} "
            f"instructions, {len(self.carried)} carried over {self.reach} iteration"
        )
        text += "" if self.reach == 1 else "s"
        return text + (f", {len(self.guards)} guards" if self.guards else "")

    def describe(self, recording: Recording) -> str:
        """The body as text: ``%3@k-1`` is instruction 3 of the iteration before."""
        lines = [f"for k in range({self.count}):  # {self}"]
        for i in range(self.period):
            at = self.start + i
            code = int(recording.codes[at])
            if code == CONSTANT:
                lines.append(f"    %{i}@k = constant {recording.constants[at, 0]:g} ...")
                continue
            rule = recording.rules[code - FIRST_RULE]
            words = [self._operand(recording, i, j) for j in range(3)]
            if recording.number[at]:
                words.append(f"{recording.constants[at, 0]:g}")
            words += [f"{c:g}" for c in recording.constants[at, : len(rule.parameters)]]
            lines.append(f"    %{i}@k = {rule.name} {' '.join(filter(None, words))}")
            if i in self.guards:
                lines.append(f"    guard %{i}@k")
        return "\n".join(lines)

    def _operand(self, recording: Recording, i: int, j: int) -> str:
        p, delta = int(recording.operands[self.start + i, j]), int(self.deltas[i, j])
        if p < 0:
            return ""
        if delta == self.period and p + delta * (self.count - 1) >= self.start:
            iteration, slot = divmod(p - self.start, self.period)
            return f"%{slot}@k{iteration if iteration else ''}"
        return f"%{p}{f'{delta:+}k' if delta else ''}"

    def recurrent(self, recording: Recording) -> Truths:
        """Per ``i``: whether it lies on the way from an earlier iteration to a later one."""
        first = recording.operands[self.start : self.start + self.period].astype(np.int64)
        inside = (first >= 0) & (self.deltas == self.period)
        inside &= first + (self.count - 1) * self.period >= self.start
        target, _ = np.nonzero(inside)
        source = (first[inside] - self.start) % self.period
        kept = ~np.isin(source, self.chains)
        source, target = source[kept], target[kept]
        return fed(source, target, self.period) & fed(target, source, self.period)

    def unrolled(self, recording: Recording) -> Positions:
        """The operands of all iterations from those of the first: [count, period, 3]."""
        first = recording.operands[self.start : self.start + self.period].astype(np.int64)
        return first + np.arange(self.count)[:, None, None] * self.deltas

    def verify(self, recording: Recording, places: Ints | None = None) -> None:
        """Raise AssertionError unless everything that a loop promises holds."""
        assert self.start >= recording.inputs
        assert self.period >= 1
        assert self.count >= 2
        assert self.stop <= len(recording)
        assert self.deltas.shape == (self.period, 3)
        part = slice(self.start, self.stop)
        shape = (self.count, self.period)
        for name in ("codes", "number", "unflagged"):
            each = getattr(recording, name)[part].reshape(shape)
            assert (each == each[0]).all(), f"the iterations differ in their {name}"
        bits = recording.constants[part].view(np.int64).reshape(*shape, 2)
        static = _with_parameters(recording)[recording.codes[part].reshape(shape)[0]]
        assert (bits[:, static] == bits[0, static]).all(), "a static parameter differs"
        operands = recording.operands[part].reshape(*shape, 3)
        assert (operands == self.unrolled(recording)).all(), "an operand moves irregularly"
        there = operands[0] >= 0
        assert (operands[:, ~there] < 0).all()
        assert not self.deltas[~there].any()
        inside = there & (self.deltas == self.period)
        inside &= operands[-1] >= self.start  # else streamed from before the loop by this step
        assert (operands[:, there & ~inside] < self.start).all(), "the loop makes what it streams"
        carried = inside & (operands[0] < self.start)
        iterations, slots = np.divmod(operands[0][carried] - self.start, self.period)
        assert self.reach == -int(iterations.min(initial=0))
        assert self.carried == tuple(np.unique(slots).tolist())
        guards = [(g.position - self.start, g.expected) for g in recording.guards]
        found = sorted(g for g in guards if 0 <= g[0] < self.stop - self.start)
        body = [g for g in found if g[0] < self.period]
        assert self.guards == tuple(dict.fromkeys(i for i, _ in body))
        again = [(i + k * self.period, x) for k in range(self.count) for i, x in body]
        assert found == again, "the guards do not repeat"
        if places is not None:
            at = np.asarray(places) // 3
            assert not ((at >= self.start) & (at < self.stop)).any(), "an operand follows integers"


def find_loops(recording: Recording, places: Ints | None = None) -> tuple[Loop, ...]:
    """The loops in time of a recording, in order; ``places`` are operands that follow integers."""
    if len(recording) - recording.inputs < SHORTEST:
        return ()
    found = _Search(recording, places).loops(recording.inputs, len(recording))
    return tuple(sorted(found, key=lambda loop: loop.start))


class _Stretch(NamedTuple):
    """Instructions ``start`` up to ``stop`` repeat with this period."""

    period: int
    start: int
    stop: int


class _Search:
    def __init__(self, recording: Recording, places: Ints | None) -> None:
        self.recording = recording
        self.shortest = max(SHORTEST, (len(recording) - recording.inputs) // SMALLEST_SHARE)
        self.signatures = _signatures(recording, places)
        columns = [np.ascontiguousarray(column) for column in recording.operands.T]
        self.columns = [column for column in columns if (column >= 0).any()]
        self.uses = np.bincount(recording.operands.ravel() + 1, minlength=len(recording) + 1)[1:]
        more = [g.position for g in recording.guards] + _outputs(recording.result)
        np.add.at(self.uses, np.array(more, np.int64), 1)

    def loops(self, low: int, high: int) -> list[Loop]:
        """The longest loops from ``low`` up to ``high``, and those in what they leave."""
        if high - low < self.shortest:
            return []
        found = sorted(self._repeated(low, high), key=lambda s: s.start - s.stop)
        chosen: list[Loop] = []
        for stretch in found:
            # What repeats every 18 instructions repeats every 36, too.
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
        """Stretches that repeat, of any period."""
        longest = (high - low) // FEWEST
        waiting = _best(_between_equal_windows(self.signatures[low:high]), longest)
        waiting += _best(self._between_users(low, high), longest)
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
                    # The same operations on operands of another pattern: the next layer.
                    waiting += _best(_between_equal_windows(self._refined(start, stop)), longest)
                    refined += 1
        return found

    # --- which periods to try ---------------------------------------------------------------------

    def _refined(self, start: int, stop: int) -> Hashes:
        """Signatures that tell how far away an operand is, unless it was made near ``start``."""
        signatures = self.signatures[start:stop].copy()
        at = np.arange(start, stop, dtype=np.int32)
        inside = start + (stop - start) // FEWEST
        for k, column in enumerate(self.columns):
            part = column[start:stop]
            signatures += _mixed(np.where(part >= inside, at - part, 0) * 4 + k)
        return signatures

    def _between_users(self, low: int, high: int) -> Positions:
        """The same between the users of one operand: in each iteration a parameter is used again.

        Windows of equal neurons tell one neuron from the next, their weights one step in time.
        """
        operands = self.recording.operands[low:high].ravel()
        size = len(self.recording) + 1  # the last for operands that are not there: -1
        uses = np.bincount(operands + 1, minlength=size)[1:]
        user = np.repeat(np.arange(low, high, dtype=np.int32), 3)
        first, last = np.zeros(size, np.int32), np.zeros(size, np.int32)
        first[operands[::-1]], last[operands] = user[::-1], user
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
        users = np.flatnonzero(chosen[operands])
        users = users[np.argsort(operands[users], kind="stable")]
        return _periods_of_users(operands[users], user[users].astype(np.int64))

    # --- where a period holds ---------------------------------------------------------------------

    def equal(self, period: int, low: int, high: int) -> list[tuple[int, int]]:
        """Where the operations repeat with this period, long enough for a loop."""
        same = self.signatures[low + period : high] == self.signatures[low : high - period]
        runs = _runs(same, max(FEWEST * period, self.shortest) - period)
        return [(low + a, low + b + period) for a, b in runs]

    def stretches(self, period: int, start: int, stop: int) -> list[_Stretch]:
        """Where in such a stretch the operands move on steadily, too."""
        steady = np.ones(stop - start - 2 * period, np.bool_)
        for column in self.columns:
            delta = column[start + period : stop] - column[start : stop - period]
            steady &= delta[period:] == delta[:-period]
        runs = _runs(steady, max(FEWEST * period, self.shortest) - 2 * period)
        return [_Stretch(period, start + a, start + b + 2 * period) for a, b in runs]

    # --- from a stretch to a loop -----------------------------------------------------------------

    def loop(self, stretch: _Stretch) -> Loop | None:
        """The loop of a stretch, its iterations cut where least is carried over."""
        period, low, high = stretch
        operands = self.recording.operands
        last = operands[high - period : high].astype(np.int64)
        deltas = last - operands[high - 2 * period : high - period]
        # What is not carried must be there before the loop begins.
        low = max(low, _latest(last, deltas, period) + 1)
        if high - low < FEWEST * period:
            return None
        first = operands[low : low + period].astype(np.int64)
        low = max(low, _latest(first, operands[low + period :][:period] - first, period) + 1)
        room = high - low - max(FEWEST * period, self.shortest)
        if room < 0:
            return None
        inside = (last >= low) & (deltas == period)
        lives = (np.arange(high - period, high)[:, None] - last)[inside]
        makers = last[inside]
        crossings = _crossings(makers % period, lives, period)
        starts = np.arange(low, low + min(period, room + 1))
        crossed = crossings[starts % period]
        starts = starts[crossed == crossed.min()]
        if len(starts) > 1:  # where numbers of fewest kinds are: a whole layer, and no part of one
            kinds = np.zeros(period, np.int64)
            codes = self.recording.codes[makers]
            for code in np.unique(codes):
                here = codes == code
                kinds += _crossings(makers[here] % period, lives[here], period) > 0
            starts = starts[np.argsort(kinds[starts % period], kind="stable")]
        start = int(starts[0])
        return self._made(start, period, (high - start) // period)

    def _made(self, start: int, period: int, count: int) -> Loop | None:
        """A loop, unless its iterations could be done all at once."""
        first = self.recording.operands[start : start + period].astype(np.int64)
        deltas = self.recording.operands[start + period : start + 2 * period] - first
        inside = (first >= 0) & (deltas == period) & (first + (count - 1) * period >= start)
        carried = inside & (first < start)
        chain = self._chains(start, period, count, first, inside)
        if not carried.any() or not self._recurs(period, first - start, inside, chain):
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
        )

    def _adds(self, start: int, period: int) -> Truths:
        """Where the additions are."""
        adds = [k for k, rule in enumerate(self.recording.rules) if rule is ops.add]
        codes = self.recording.codes[start : start + period]
        return np.isin(codes, np.array(adds, np.int32) + FIRST_RULE)

    def _recurs(self, period: int, first: Positions, inside: Truths, chain: Truths) -> bool:
        """Whether a number depends on itself in an earlier iteration, other than as a sum."""
        target, _ = np.nonzero(inside)
        source = first[inside] % period
        kept = ~chain[source]
        return _cyclic(source[kept], target[kept], period)

    def _chains(
        self, start: int, period: int, count: int, first: Positions, inside: Truths
    ) -> Truths:
        """Where a sum goes on: additions, each used by the next one only, as its first operand.

        Or one maximum over all iterations, likewise.
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
        for _ in range(period.bit_length()):  # so must be all additions that follow
            chain &= chain[follower]
            follower = follower[follower]
        return chain


def _covers(shorter: _Stretch, longer: _Stretch) -> bool:
    """Whether a stretch of a shorter period has the other one in it, but for its ends."""
    both = min(shorter.stop, longer.stop) - max(shorter.start, longer.start)
    return shorter.period < longer.period and both >= longer.stop - longer.start - 2 * longer.period


def _runs(truths: Truths, shortest: int) -> list[tuple[int, int]]:
    """The stretches where all is true, as (start, stop)."""
    if len(truths) < shortest:
        return []
    breaks = np.concatenate([[-1], np.flatnonzero(~truths), [len(truths)]])
    long = np.flatnonzero(np.diff(breaks) > shortest)
    return [(int(breaks[k]) + 1, int(breaks[k + 1])) for k in long]


def _crossings(makers: Positions, lives: Positions, period: int) -> Positions:
    """Per position modulo the period: how many numbers would cross a boundary before it.

    ``makers`` are what an iteration reads of itself and earlier ones, modulo the period, and
    ``lives`` how long ago that was made.
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
    """The last operand that is not carried."""
    return int(operands[(operands >= 0) & (deltas != period)].max(initial=-1))


def _best(score: Positions, longest: int) -> list[int]:
    """The distances of the highest scores."""
    score = score[: longest + 1]
    best = np.argsort(-score, kind="stable")[:CANDIDATES]
    return [int(p) for p in best if score[p] > 0]


def _between_equal_windows(hashes: Hashes) -> Positions:
    """Per distance: how many instructions lie between equal windows that are so far apart."""
    width, factor = 1, 0x9E3779B97F4A7C15
    while width < WINDOW:
        hashes = hashes[:-width] * np.uint64(factor) + hashes[width:]
        width, factor = 2 * width, factor * factor & 0xFFFFFFFFFFFFFFFF
    # Sixteen bits sort fastest; windows that are equal in these by chance are told apart.
    order = np.argsort((hashes >> np.uint64(48)).astype(np.uint16), kind="stable")
    ordered = hashes[order]
    return _lengths(np.diff(order)[ordered[1:] == ordered[:-1]])


def _lengths(gaps: Positions) -> Positions:
    """Per length of a gap: how much all gaps of this length cover."""
    count = np.bincount(gaps)
    return count * np.arange(len(count))


def _periods_of_users(operands: Ints, users: Positions) -> Positions:
    """Per distance: how much lies between two uses of an operand, or between every second one...

    An operand may be used several times in an iteration. ``users`` are in order for each operand.
    """
    total = np.zeros(0, np.int64)
    for lag in range(1, LAGS + 1):
        fresh = operands[lag:] == operands[:-lag]
        for part in range(1, lag // 2 + 1):  # a period of fewer uses has been counted already
            if lag % part == 0:
                steps = users[part:] - users[:-part]
                after = steps[lag - part :] if part < lag else steps
                fresh &= steps[: len(after)] != after
        gaps = _lengths((users[lag:] - users[:-lag])[fresh]) // lag
        shorter, longer = sorted((total, gaps), key=len)
        longer[: len(shorter)] += shorter
        total = longer
    return total


def _cyclic(sources: Positions, targets: Positions, size: int) -> bool:
    """Whether these edges make a circle, or a path so long that it might as well."""
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


def fed(sources: Positions, targets: Positions, size: int) -> Truths:
    """What these edges come to from a circle, and the circles themselves."""
    order = np.argsort(sources, kind="stable")
    starts = np.searchsorted(sources[order], np.arange(size + 1))
    targets = targets[order]
    waiting = np.bincount(targets, minlength=size)
    free = np.flatnonzero(waiting == 0)
    while len(free):
        counts = starts[free + 1] - starts[free]
        shift = np.repeat(starts[free] - np.cumsum(counts) + counts, counts)
        reached = targets[shift + np.arange(len(shift))]
        np.subtract.at(waiting, reached, 1)
        free = np.unique(reached[waiting[reached] == 0])
    return waiting > 0


def _outputs(result: object) -> list[int]:
    found: list[int] = []
    map_leaves(lambda x: found.append(x.position) if isinstance(x, Output) else None, result)
    return found


def _with_parameters(recording: Recording) -> Truths:
    """Per code: whether its numbers are static."""
    return np.array([False] * FIRST_RULE + [bool(rule.parameters) for rule in recording.rules])


def _mixed(hashes: Any) -> Hashes:
    """Numbers in, numbers without any pattern out."""
    x: Hashes = np.asarray(hashes).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))


def _signatures(recording: Recording, places: Ints | None) -> Hashes:
    """What an instruction and the one a period later must have in common, as a number each."""
    rules = FIRST_RULE + len(recording.rules)
    kinds = recording.codes * 4 + recording.number * 2 + recording.unflagged
    signatures: Hashes = _mixed(np.arange(1, 4 * rules + 1))[kinds]
    static = np.flatnonzero(_with_parameters(recording)[recording.codes])
    for column in recording.constants.T:
        signatures[static] = _mixed(signatures[static] ^ column[static].view(np.uint64))
    adds = [k for k, rule in enumerate(recording.rules) if rule is ops.add]
    begins = recording.number & (recording.constants[:, 0] == 0.0)  # of sums, if they are additions
    at = np.flatnonzero(begins)
    at = at[np.isin(recording.codes[at], np.array(adds, np.int32) + FIRST_RULE)]
    signatures[at] += np.uint64(0x9E3779B97F4A7C15)
    if recording.guards:
        guards = np.array([g.position for g in recording.guards], np.int64)
        expected = np.array([g.expected for g in recording.guards])
        np.add.at(signatures, guards, _mixed(expected.view(np.uint64) + np.uint64(1)))
    if places is not None and len(places):
        at = np.unique(np.asarray(places, np.int64) // 3)
        signatures[at] += _mixed(at + (1 << 40))  # like no other
    return signatures
