"""A loop in time: iterations of a recording of which each needs results of the one before.

``loops`` finds them. Every iteration has the operations of the one before it, and every operand
moves on by the same number of instructions each time: by 0 (a parameter, or a result from before
the loop), by the loop's period (a result of this iteration, or carried over from an earlier one),
or by another step (streamed: an input for each iteration). An operand that an integer selects is
selected in every iteration, among what is there before the loop or what the iteration itself made.
``loop.describe(recording)`` prints the body, ``loop.verify(recording)`` checks everything that is
promised here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Ints, Recording

Positions = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


def fixed_operands(recording: Recording) -> Ints:
    """The operands, -1 where an integer selects one."""
    places = recording.selection.places
    if not len(places):
        return recording.operands
    operands = recording.operands.copy()
    operands.ravel()[places] = -1
    return operands


class Selected:
    """What the integers of a recording may select."""

    def __init__(self, recording: Recording) -> None:
        selection = recording.selection
        tables = {id(gather.candidates): gather.candidates for gather in selection.gathers}
        self.tables = list(tables.values())  #: the candidates of gathers, each table once
        which = {key: k for k, key in enumerate(tables)}
        of_gather = np.array([which[id(x.candidates)] for x in selection.gathers], np.int64)
        self._user = selection.places.astype(np.int64) // 3
        self._table = of_gather[selection.owners]
        self._first = np.array([table.min() for table in self.tables], np.int64)
        self._last = np.array([table.max() for table in self.tables], np.int64)

    def edges(self, start: int, period: int, count: int) -> Positions | None:
        """In a loop: from what an iteration makes to those of its instructions that select it.

        None where an instruction may select among several iterations.
        """
        here = (self._user >= start) & (self._user < start + period * count)
        user, table = self._user[here], self._table[here]
        inside = self._last[table] >= start
        user, table = user[inside], table[inside]
        begin = user - (user - start) % period
        if (self._first[table] < begin).any() or (self._last[table] >= begin + period).any():
            return None
        found = [np.zeros((0, 2), np.int64)]
        for t, u in {(t, (u - start) % period) for t, u in zip(table, user, strict=True)}:
            source = np.unique((self.tables[t] - start) % period)
            found.append(np.stack([source, np.full(len(source), u)], axis=1))
        return np.unique(np.concatenate(found), axis=0)


@dataclass(frozen=True, eq=False)
class Loop:
    """Instructions ``start + k * period + i``: iteration ``k`` of ``count``, ``i < period``.

    Operand ``j`` of it is that of iteration 0 plus ``k * deltas[i, j]`` (0 where there is none).
    An operand from an earlier iteration has the period as its delta; in iteration 0 it lies before
    ``start``, where iterations -1, -2 and so on would be, and ``reach`` is how many of these are
    needed. ``carried`` are the ``i`` whose results later iterations read, ``guards`` those whose
    results decide branches, ``chains`` the additions of one sum over all iterations. ``selects``
    are pairs of an ``i`` and one that may select its result.
    """

    start: int
    period: int
    count: int
    deltas: Positions = field(repr=False)
    reach: int
    carried: tuple[int, ...] = ()
    guards: tuple[int, ...] = ()
    chains: tuple[int, ...] = ()
    selects: Positions = field(default_factory=lambda: np.zeros((0, 2), np.int64), repr=False)

    @property
    def stop(self) -> int:
        """The first instruction after the loop."""
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
        operands = fixed_operands(recording)
        for i in range(self.period):
            at = self.start + i
            code = int(recording.codes[at])
            if code == CONSTANT:
                lines.append(f"    %{i}@k = constant {recording.constants[at, 0]:g} ...")
                continue
            rule = recording.rules[code - FIRST_RULE]
            words = [self._operand(operands, i, j) for j in range(3)]
            words += ["selected"] * int((operands[at] != recording.operands[at]).sum())
            if recording.number[at]:
                words.append(f"{recording.constants[at, 0]:g}")
            words += [f"{c:g}" for c in recording.constants[at, : len(rule.parameters)]]
            lines.append(f"    %{i}@k = {rule.name} {' '.join(filter(None, words))}")
            if i in self.guards:
                lines.append(f"    guard %{i}@k")
        return "\n".join(lines)

    def _operand(self, operands: Ints, i: int, j: int) -> str:
        p, delta = int(operands[self.start + i, j]), int(self.deltas[i, j])
        if p < 0:
            return ""
        if delta == self.period and p + delta * (self.count - 1) >= self.start:
            iteration, slot = divmod(p - self.start, self.period)
            return f"%{slot}@k{iteration if iteration else ''}"
        return f"%{p}{f'{delta:+}k' if delta else ''}"

    def recurrent(self, recording: Recording) -> Truths:
        """Per ``i``: whether it lies on a path from an earlier iteration to a later one."""
        first = self._first(recording)
        inside = (first >= 0) & (self.deltas == self.period)
        inside &= first + (self.count - 1) * self.period >= self.start
        target, _ = np.nonzero(inside)
        source = np.concatenate([(first[inside] - self.start) % self.period, self.selects[:, 0]])
        target = np.concatenate([target, self.selects[:, 1]])
        kept = ~np.isin(source, self.chains)
        source, target = source[kept], target[kept]
        return after_cycles(source, target, self.period) & after_cycles(target, source, self.period)

    def _first(self, recording: Recording) -> Positions:
        """The operands of the first iteration, without those that integers select."""
        first = recording.operands[self.start : self.start + self.period].astype(np.int64)
        places = recording.selection.places.astype(np.int64) - 3 * self.start
        first.ravel()[places[(places >= 0) & (places < first.size)]] = -1
        return first

    def unrolled(self, recording: Recording) -> Positions:
        """The operands of all iterations from those of the first: [count, period, 3]."""
        first = self._first(recording)
        return first + np.arange(self.count)[:, None, None] * self.deltas

    def verify(self, recording: Recording) -> None:
        """Raise AssertionError unless the recording repeats as described here."""
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
        bits = recording.constants[part].view(np.int64).reshape(*shape, -1)
        static = has_parameters(recording)[recording.codes[part].reshape(shape)[0]]
        assert (bits[:, static] == bits[0, static]).all(), "a static parameter differs"
        operands = fixed_operands(recording)[part].reshape(*shape, 3)
        assert (operands == self.unrolled(recording)).all(), "an operand moves irregularly"
        there = operands[0] >= 0
        assert (operands[:, ~there] < 0).all()
        assert not self.deltas[~there].any()
        inside = there & (self.deltas == self.period)
        inside &= operands[-1] >= self.start  # else streamed with this step
        assert (operands[:, there & ~inside] < self.start).all(), (
            "the loop computes what it streams"
        )
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
        edges = Selected(recording).edges(self.start, self.period, self.count)
        assert edges is not None, "an integer selects among several iterations"
        assert np.array_equal(edges, self.selects)


def after_cycles(sources: Positions, targets: Positions, size: int) -> Truths:
    """Per node of a directed graph: whether it is on a cycle or reached from one."""
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


def has_parameters(recording: Recording) -> Truths:
    """Per code: whether its numbers are static parameters."""
    return np.array([False] * FIRST_RULE + [bool(rule.parameters) for rule in recording.rules])
