"""What samples share is computed once: before all of them, and differentiated once, after them.

In: a recording, and which of its inputs samples have of their own. Out: a ``Split``: the recording
of one sample, to which the numbers that depend on shared inputs alone are inputs too, and a
``Hoisted``, which computes these numbers and carries their adjoints, added up over all samples, to
the inputs. It runs on the tape: its numbers have the very bits of eager's, as inputs have.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.recordings import (
    CONSTANT,
    FIRST_RULE,
    INPUT,
    Ints,
    Output,
    Recording,
)
from chainrule.compiler.capture.selection import Gather, Selection
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.tape import FINE, executor
from chainrule.core import ops
from chainrule.trees import Floats, map_leaves

#: Slopes beyond it might overflow for one sample where their sum over samples does not
LARGEST = 1e100
Mask = npt.NDArray[np.bool_]


class Hoisted:
    """The numbers that all samples share, on the tape.

    Its recording ends with their sum, each times a weight, and the weights are its last inputs:
    with the adjoints as weights, the gradient of the sum is what they pass on.
    """

    def __init__(self, recording: Recording, positions: Ints) -> None:
        """``positions``: of the numbers, those with a weight first."""
        self.recording, self._positions = recording, positions
        outputs = recording.outputs
        self._root = outputs[0].position if outputs else None
        self._tape = executor(recording)
        self._inputs = np.zeros(recording.inputs)
        self._slopes = np.zeros(recording.inputs)
        #: no two alike, so that infinite slopes do not cancel
        self._trial = np.random.default_rng(0).uniform(1.0, 2.0, recording.inputs)

    def numbers(self, inputs: Floats) -> Floats | None:
        """The numbers for these inputs; None where eager would raise, or a branch is another.

        Also where one of them or a slope is not finite: eager's rules for these hold for a sample,
        not for the sum over all.
        """
        count = len(inputs)
        self._inputs[:count] = inputs
        if self._swept(self._trial[count:]) is None:
            return None
        found = np.empty(len(self._positions))
        self._tape.numbers(self._positions, found)
        return found if found.dot(found) < np.inf else None  # not for NaN either

    def gradient(self, adjoints: Floats) -> Floats | None:
        """What adjoints of the numbers pass on to the inputs; None where it is not finite."""
        return self._swept(adjoints)

    def _swept(self, weights: Floats) -> Floats | None:
        inputs, slopes = self._inputs, self._slopes
        count = len(inputs) - len(weights)
        inputs[count:] = weights
        try:
            if self._tape.run(inputs)[0] != FINE:
                return None
            if self._root is not None:
                self._tape.sweep(self._root, 1.0, slopes)
        except Exception:  # of an operation of the user's own: eager raises it, if it comes to it
            return None
        found = slopes[:count]
        return found if found.dot(found) < LARGEST**2 else None


@dataclass(frozen=True, eq=False)
class Split:
    """A recording in two parts: what each sample computes, and before it what all share.

    The shared numbers are inputs ``first`` up to ``last`` of ``each``, those to differentiate by up
    to ``middle``.
    """

    each: Recording
    hoisted: Hoisted | None = None
    first: int = 0
    middle: int = 0
    last: int = 0
    arrays: tuple[int, ...] = ()  # where among the shared numbers those of another kind begin

    def moved(self, places: Any) -> Any:
        """Where inputs of the whole recording are among those of ``each``."""
        return np.where(places < self.first, places, places + (self.last - self.first))

    def moved_one(self, place: int) -> int:
        """The same for one of them, at every map: an array of one would take longer than that."""
        return place if place < self.first else place + self.last - self.first

    def inputs(self, whole: Floats) -> Floats | None:
        """The inputs of ``each``; ``whole``: those of the whole recording. None: not for these."""
        if self.hoisted is None:
            return whole
        shared = self.hoisted.numbers(whole)
        if shared is None:
            return None
        made: Floats = np.concatenate([whole[: self.first], shared, whole[self.first :]])
        return made

    def gradient(self, adjoints: Floats, count: int) -> Floats | None:
        """The gradient by the first ``count`` inputs; ``adjoints``: by those and what is shared."""
        own, shared = adjoints[:count], adjoints[count:]
        if self.hoisted is None or not len(shared):
            return own
        more = self.hoisted.gradient(shared)
        return None if more is None else own + more[:count]


def split(recording: Recording, private: Addresses, first: int, parameters: int) -> Split:
    """A recording in two parts.

    ``private``: the inputs that samples have of their own. ``first``: where shared numbers go among
    the inputs. ``parameters``: how many inputs, the first ones, are differentiated by.
    """
    shared = _shared(recording, private)
    rules = recording.codes >= FIRST_RULE
    hoisted = shared & rules
    if not hoisted.any():
        return Split(recording)
    carried = np.flatnonzero(hoisted & _read(recording, ~shared))
    varies = _reached(recording, np.arange(parameters))[carried]
    order = np.lexsort((carried, recording.codes[carried], ~varies))
    carried, varies = carried[order], varies[order]
    codes = recording.codes[carried]
    starts = np.flatnonzero(np.diff(codes, prepend=-1) | np.diff(varies, prepend=False))
    weighted = int(varies.sum())
    return Split(
        _each(recording, shared, carried, first),
        _hoisted(recording, hoisted, carried, weighted),
        first,
        first + weighted,
        first + len(carried),
        tuple((first + starts).tolist()),
    )


# --- which instructions ---------------------------------------------------------------------------


def _shared(recording: Recording, private: Addresses) -> Mask:
    """Per instruction: whether it depends on shared inputs alone.

    What is returned does not count: each sample returns its own. What integers select does not
    either.
    """
    own = np.zeros(len(recording), np.bool_)
    own[private] = True
    returned = np.array([x.position for x in recording.outputs], np.int64)
    own[returned[returned >= recording.inputs]] = True
    own[recording.selection.places // 3] = True
    return ~_reached(recording, np.flatnonzero(own))


def _reached(recording: Recording, positions: Addresses) -> Mask:
    """Per instruction: whether it is one of these or depends on one."""
    found = np.zeros(len(recording), np.bool_)
    found[positions] = True
    marks: list[bool] = found.tolist()
    for i, operands in enumerate(recording.operands.tolist()):
        marks[i] = marks[i] or any(p >= 0 and marks[p] for p in operands)
    return np.array(marks, np.bool_)


def _read(recording: Recording, by: Mask) -> Mask:
    """Per instruction: whether some instructions read it, or integers may select it."""
    found = np.zeros(len(recording) + 1, np.bool_)
    found[recording.operands[by]] = True
    for gather in recording.selection.gathers:
        found[gather.candidates] = True
    return found[:-1]


# --- the two recordings ---------------------------------------------------------------------------


def _each(recording: Recording, shared: Mask, carried: Addresses, first: int) -> Recording:
    """What a sample computes: all but the hoisted instructions, which it has as inputs."""
    inputs, count = recording.inputs, len(carried)
    kept = ~shared | (recording.codes == CONSTANT)
    kept[:inputs] = False
    rest = np.flatnonzero(kept)
    sources = np.concatenate([np.arange(first), carried, np.arange(first, inputs), rest])
    to = np.full(len(recording) + 1, -1, np.int32)  # the last one is for no operand
    to[sources] = np.arange(len(sources), dtype=np.int32)
    made = _taken(recording, sources, inputs + count, to)
    selection = recording.selection
    places = selection.places
    return replace(
        made,
        guards=_guards(recording, to, kept),
        result=map_leaves(
            lambda x: x.moved(lambda p: int(to[p])) if hasattr(x, "moved") else x,
            recording.result,
            records=True,
        ),
        selection=Selection(
            selection.program,
            tuple([Gather(to[g.candidates], g.index) for g in selection.gathers]),
            (3 * to[places // 3] + places % 3).astype(np.int32),
            selection.owners,
            selection.numbers,
        ),
    )


def _hoisted(recording: Recording, hoisted: Mask, carried: Addresses, weighted: int) -> Hoisted:
    """What all samples share: the hoisted instructions, then the weighted sum of their results."""
    inputs = recording.inputs
    kept = hoisted | (recording.codes == CONSTANT)
    kept[:inputs] = False
    sources = np.concatenate(
        [np.arange(inputs), np.zeros(weighted, np.int64), np.flatnonzero(kept)]
    )
    to = np.full(len(recording) + 1, -1, np.int32)
    to[:inputs] = np.arange(inputs, dtype=np.int32)
    to[np.flatnonzero(kept)] = np.arange(inputs + weighted, len(sources), dtype=np.int32)
    made = _taken(recording, sources, inputs + weighted, to)
    positions = to[carried]
    rules = tuple(dict.fromkeys([*recording.rules, ops.mul, ops.add]))
    times, plus = (FIRST_RULE + rules.index(rule) for rule in (ops.mul, ops.add))
    begin = len(sources)
    codes = [times] * weighted + [plus] * max(0, weighted - 1)
    operands = [[int(p), inputs + k, -1] for k, p in enumerate(positions[:weighted])]
    total = begin
    for k in range(1, weighted):
        operands.append([total, begin + k, -1])
        total = begin + weighted + k - 1
    more = len(codes)
    whole = Recording(
        inputs=made.inputs,
        codes=np.concatenate([made.codes, np.array(codes, np.int32)]),
        operands=np.concatenate([made.operands, np.array(operands, np.int32).reshape(-1, 3)]),
        constants=np.concatenate([made.constants, np.zeros((more, made.constants.shape[1]))]),
        number=np.concatenate([made.number, np.zeros(more, np.bool_)]),
        rules=rules,
        unflagged=np.concatenate([made.unflagged, np.ones(more, np.bool_)]),
        guards=_guards(recording, to, kept),
        result=Output(total, True) if weighted else None,
    )
    return Hoisted(whole, positions)


def _taken(recording: Recording, sources: Addresses, inputs: int, to: Ints) -> Recording:
    """Some instructions, of which the first ``inputs`` are inputs now; ``to``: where each is."""
    codes, operands = recording.codes[sources], to[recording.operands[sources]]
    constants, number = recording.constants[sources], recording.number[sources]
    unflagged = recording.unflagged[sources]
    codes[:inputs], operands[:inputs], constants[:inputs] = INPUT, -1, 0.0
    number[:inputs], unflagged[:inputs] = False, False
    rules = recording.rules
    return Recording(inputs, codes, operands, constants, number, rules, unflagged, (), None)


def _guards(recording: Recording, to: Ints, kept: Mask) -> Any:
    """The guards on some instructions."""
    return tuple(
        [replace(g, position=int(to[g.position])) for g in recording.guards if kept[g.position]]
    )
