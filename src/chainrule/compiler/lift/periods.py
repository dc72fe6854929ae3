"""Which periods a recording may repeat with.

In: a stretch of instructions, as hashes of their operations or as the users of their operands. Out:
per distance, a score: how many instructions lie between two that are alike and this far apart. The
loops in time have periods among the highest scores; ``loops`` tries these.
"""

from __future__ import annotations

import numpy as np

from chainrule.compiler.capture.recordings import FIRST_RULE, Ints, Recording
from chainrule.compiler.lift.hashing import GOLDEN, MASK, Hashes, scrambled
from chainrule.compiler.lift.time_loop import Positions, has_parameters
from chainrule.core import ops

WINDOW = 16  # consecutive instructions that are compared to find a period
CANDIDATES = 8  # periods that are tried, from each of the two ways to find them
LAGS = 8  # an operand may be used this often in one iteration


def best(score: Positions, longest: int) -> list[int]:
    """The distances with the highest scores."""
    score = score[: longest + 1]
    best = np.argsort(-score, kind="stable")[:CANDIDATES]
    return [int(p) for p in best if score[p] > 0]


def between_equal_windows(hashes: Hashes) -> Positions:
    """The scores of equal windows of instructions, by their distance."""
    width, factor = 1, GOLDEN
    while width < WINDOW:
        before = hashes
        hashes = before[:-width] * np.uint64(factor)
        hashes += before[width:]
        width, factor = 2 * width, factor * factor & MASK
    # Sixteen bits sort fastest; the whole hashes are compared afterwards.
    order = np.argsort((hashes >> np.uint64(48)).astype(np.uint16), kind="stable")
    hashes = hashes[order]
    equal = np.flatnonzero(hashes[1:] == hashes[:-1])
    del hashes
    return _lengths(order[equal + 1] - order[equal])


def _lengths(gaps: Positions) -> Positions:
    """Per length of a gap: how many instructions all gaps of this length cover."""
    count = np.bincount(gaps)
    return count * np.arange(len(count))


def between_uses(operands: Ints, users: Positions) -> Positions:
    """The scores of uses of one operand, by their distance.

    Of consecutive uses, of every second one and so on, since an iteration may use an operand
    several times. ``users`` are in order for each operand.
    """
    total = np.zeros(0, np.int64)
    for lag in range(1, LAGS + 1):
        fresh = operands[lag:] == operands[:-lag]
        for part in range(1, lag // 2 + 1):  # a shorter period was counted already
            if lag % part == 0:
                steps = users[part:] - users[:-part]
                after = steps[lag - part :] if part < lag else steps
                fresh &= steps[: len(after)] != after
        gaps = _lengths((users[lag:] - users[:-lag])[fresh]) // lag
        shorter, longer = sorted((total, gaps), key=len)
        longer[: len(shorter)] += shorter
        total = longer
    return total


def signatures(recording: Recording, places: Ints | None) -> Hashes:
    """A hash per instruction of what it must have in common with the one a period later."""
    rules = FIRST_RULE + len(recording.rules)
    kinds = recording.codes * 4
    kinds += recording.number.view(np.int8) * np.int8(2) + recording.unflagged
    signatures: Hashes = scrambled(np.arange(1, 4 * rules + 1))[kinds]
    static = np.flatnonzero(has_parameters(recording)[recording.codes])
    for column in recording.constants.T:
        signatures[static] = scrambled(signatures[static] ^ column[static].view(np.uint64))
    adds = [k for k, rule in enumerate(recording.rules) if rule is ops.add]
    begins = recording.number & (recording.constants[:, 0] == 0.0)  # if it is an addition
    at = np.flatnonzero(begins)
    at = at[np.isin(recording.codes[at], np.array(adds, np.int32) + FIRST_RULE)]
    signatures[at] += np.uint64(GOLDEN)
    if recording.guards:
        guards = np.array([g.position for g in recording.guards], np.int64)
        expected = np.array([g.expected for g in recording.guards])
        np.add.at(signatures, guards, scrambled(expected.view(np.uint64) + np.uint64(1)))
    if places is not None and len(places):  # an operand that depends on an integer does so again
        at, operand = np.divmod(np.asarray(places, np.int64), 3)
        np.add.at(signatures, at, scrambled(operand + (1 << 40)))
    return signatures
