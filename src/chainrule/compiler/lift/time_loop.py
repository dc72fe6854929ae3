"""A loop in time: iterations of a recording of which each needs results of the one before.

``loops`` finds them. Every iteration has the operations of the one before it, and every operand
moves on by the same number of instructions each time: by 0 (a parameter, or a result from before
the loop), by the loop's period (a result of this iteration, or carried over from an earlier one),
or by another step (streamed: an input for each iteration). ``loop.describe(recording)`` prints the
body, ``loop.verify(recording)`` checks everything that is promised here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Ints, Recording

Positions = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Loop:
    """Instructions ``start + k * period + i``: iteration ``k`` of ``count``, ``i < period``.

    Operand ``j`` of it is that of iteration 0 plus ``k * deltas[i, j]`` (0 where there is none).
    An operand from an earlier iteration has the period as its delta; in iteration 0 it lies before
    ``start``, where iterations -1, -2 and so on would be, and ``reach`` is how many of these are
    needed. ``carried`` are the ``i`` whose results later iterations read, ``guards`` those whose
    results decide branches, ``chains`` the additions of one sum over all iterations.
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
        """Per ``i``: whether it lies on a path from an earlier iteration to a later one."""
        first = recording.operands[self.start : self.start + self.period].astype(np.int64)
        inside = (first >= 0) & (self.deltas == self.period)
        inside &= first + (self.count - 1) * self.period >= self.start
        target, _ = np.nonzero(inside)
        source = (first[inside] - self.start) % self.period
        kept = ~np.isin(source, self.chains)
        source, target = source[kept], target[kept]
        return after_cycles(source, target, self.period) & after_cycles(target, source, self.period)

    def unrolled(self, recording: Recording) -> Positions:
        """The operands of all iterations from those of the first: [count, period, 3]."""
        first = recording.operands[self.start : self.start + self.period].astype(np.int64)
        return first + np.arange(self.count)[:, None, None] * self.deltas

    def verify(self, recording: Recording, places: Ints | None = None) -> None:
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
        bits = recording.constants[part].view(np.int64).reshape(*shape, 2)
        static = has_parameters(recording)[recording.codes[part].reshape(shape)[0]]
        assert (bits[:, static] == bits[0, static]).all(), "a static parameter differs"
        operands = recording.operands[part].reshape(*shape, 3)
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
        if places is not None:
            at = np.asarray(places) // 3
            assert not ((at >= self.start) & (at < self.stop)).any(), (
                "an operand depends on integers"
            )


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
