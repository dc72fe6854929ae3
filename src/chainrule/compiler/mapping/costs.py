"""How much there is to do for samples one by one, and in lanes: whichever is less is done.

In: machine code, or how a function runs, by its ``Dispatch``. Out: ``costs`` of a sample, by itself
and as a vector of samples, counted from the walks of the code; and up to how many samples of a
batch or map are sooner done one by one than lanes are prepared for them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from chainrule.compiler.codegen.walks import Walk
from chainrule.compiler.lift.alignment import ITERATIONS
from chainrule.compiler.lift.graph import EXTREME, GATHER
from chainrule.compiler.lift.program import Instruction
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.machine import Fit, MachineCode

# How many times as long something takes as one operation on a vector of one sample, which lies in
# the cache nearby; fitted to measured steps of recurrent networks, perceptrons and transformers.
LANES = 1.2  # an operation on a vector of samples: they have more memory
FAR, NEAR = 1.1, 3 << 18  # times all that, where numbers and adjoints fill more than so many bytes
ELEMENTARY = 12.0  # an elementary function, where others like it run meanwhile
WAITING = 29.0  # and of one sample: few run at a time, and each step waits for the one before
TURN, TURN_LANES = 10.0, 22.0  # what a walk waits for in each turn of a loop in time
ONCE, ONCE_LANES = 3.5, 3.2  # a product whose gradient goes to memory, not to a register
BY_LANE = 4.8  # a number that every lane has at another place
SAMPLE, LANE = 100.0, 60.0  # what every sample takes besides, and every lane, even an empty one
#: operations of the op table that take no longer than one on vectors
QUICK = {"add", "mul", "detach", "where", "abs", "relu", "leaky_relu", "maximum", "minimum", "clip"}
QUICK |= {"less", "less_equal", "equal"}
#: a call that the gate answers takes as long as so many of these operations, and preparing lanes
CALL, PREPARE = 1800.0, 400_000.0
TAPE = 24.0  # an instruction on a tape


def saved(dispatch: Dispatch) -> float | None:
    """How much less there is to do for a sample in lanes than for it as a call, once all is ready.

    None where that is not known: its gate has answered no call so far, and no batch went in lanes.
    """
    variant, work = dispatch.gate.answered, dispatch.lane_work
    if variant is None:
        return None if work is None else CALL + work
    if variant.binding is None:
        return CALL + TAPE * len(variant.recording)
    machine = variant.binding.machine
    alone, together = costs(machine, variant.binding.fit)
    return max(CALL, CALL + alone - together / machine.width)


def most_alone(dispatch: Dispatch) -> int | None:
    """Up to how many samples had better be calls one after the other; None: that is not known."""
    variant = dispatch.gate.answered
    fit = None if variant is None or variant.binding is None else variant.binding.fit
    if fit is not None and fit.most_alone is not None:
        return int(fit.most_alone)
    each = saved(dispatch)
    found = None if each is None else int(PREPARE / each)
    if fit is not None:
        fit.most_alone = found
    return found


def costs(machine: MachineCode, fit: Fit) -> tuple[float, float]:
    """How much there is to do for a sample by itself, and for a vector of samples like it.

    By itself its vectors lie along its own loops, if these are long enough, in a loop in time too:
    its turns come one after the other, but what a turn does is as wide as anything else. A vector
    of samples takes the same time however many of its lanes are empty.
    """
    if fit.costs is None:
        fit.costs = _counted(machine, fit)
    return fit.costs


def _counted(machine: MachineCode, fit: Fit) -> tuple[float, float]:
    if machine.program.steps is not None:
        return 1.0, float(machine.width)  # its commands are no walks: they are not counted
    alone = SAMPLE
    together = machine.width * (LANE + BY_LANE * len(fit.private))
    for walk, points in _walked(machine, fit):
        instruction, vectors = machine.program.instructions[walk.instruction], float(points)
        loops = [*walk.space.middle, *walk.space.loops]
        longest = max([x.count for x in loops if set(map(abs, x.strides)) & {1}], default=1)
        if instruction.kind != EXTREME:  # its gradient goes to one term after the other
            vectors *= _vectors(longest, machine.width) / longest
        if instruction.loop is not None:
            turns = _turns(machine, fit, instruction.loop)
            alone += TURN * turns
            together += TURN_LANES * turns
        if instruction.kind in (GATHER, EXTREME):
            alone += vectors
            together += points * machine.width * BY_LANE
        elif walk.what == "out" and _is_elementary(instruction):
            alone += vectors * WAITING
            together += points * ELEMENTARY
        else:
            once = walk.what == "products" and any(walk.shared) and points <= _used(walk, points)
            alone += vectors * (ONCE if once else 1.0)
            together += points * (ONCE_LANES if once else LANES)
    own = np.count_nonzero(fit.active[machine.program.shared :])
    held = 2 * own * machine.width * np.dtype(machine.dtype).itemsize
    return alone, together * (FAR if held > NEAR else 1.0)


def _walked(machine: MachineCode, fit: Fit) -> Iterator[tuple[Walk, int]]:
    """Each walk that there is something to do for, once, and how many points a sample has there."""
    seen: set[tuple[int, str]] = set()
    for walk in machine.code.machine.walks:
        key = walk.instruction, walk.what
        if walk.what in ("guards", ITERATIONS) or key in seen:
            continue
        points = fit.points[key][0]
        if walk.chosen is None or walk.steps or walk.core:
            seen.add(key)
        else:
            points = int(np.searchsorted(walk.chosen, points))
        yield walk, points


def _vectors(count: int, width: int) -> int:
    """How many vectors so many neighbours are: whole ones, and narrower ones for what is left."""
    return count // width + (count % width).bit_count()


def _turns(machine: MachineCode, fit: Fit, number: int) -> int:
    loop = machine.program.loops[number]
    points = fit.points.get((loop.first, ITERATIONS))
    return loop.count if points is None else points[0]


def _is_elementary(instruction: Instruction) -> bool:
    """Whether it is more than one or two operations of the processor."""
    return instruction.rule is not None and instruction.rule.name not in QUICK


def _used(walk: Walk, points: int) -> int:
    """How many parameters the first points of a walk read."""
    shared = [c[:points] for c, s in zip(walk.columns, walk.shared, strict=True) if s]
    return max(len(np.unique(column)) for column in shared)
