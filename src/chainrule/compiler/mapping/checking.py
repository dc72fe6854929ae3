"""Machine code for lanes is compared with the tape before it is used.

In: a ``LaneCode`` and a call that its variant serves. Out: what is wrong with it, or None. Every
lane gets numbers of its own, the call's and others ever farther away from them, so that a lane that
reads another's numbers, or a gradient that is 0 at this call, does not go unseen.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.mapping.lane_code import Arenas, LaneCode
from chainrule.compiler.mapping.loop_code import address
from chainrule.compiler.runtime.results import root_of
from chainrule.compiler.runtime.tape import FINE
from chainrule.compiler.runtime.variants import Variant
from chainrule.compiler.runtime.verification import are_close
from chainrule.trees import Floats


@dataclass(frozen=True, eq=False)
class Sample:
    """The inputs of a call, and what the tape gives for them."""

    inputs: Floats
    values: Floats
    gradient: Floats


def sample_of(variant: Variant, call: Call, inputs: Floats | None = None) -> Sample | None:
    """A call, or the same with other inputs, on the tape; None where it has no finite result."""
    if inputs is None:
        if variant.run(call, None) is None:
            return None
        inputs = variant.inputs.copy()
    variant.inputs[:] = inputs
    if variant.run_tape(call.ints) != FINE:
        return None
    recording, first = variant.recording, call.first if call.key[0] else 0
    values = np.array([variant.executor.number(x.position) for x in recording.outputs])
    gradient, root = np.zeros(0), root_of(recording.result)
    if first and root is not None:
        variant.executor.sweep(root.position, 1.0, variant.grads)
        gradient = variant.grads[:first].copy()
    if not (np.isfinite(values).all() and np.isfinite(gradient).all()):
        return None
    return Sample(inputs, values, gradient)


def difference(code: LaneCode, call: Call, sample: Sample) -> str | None:
    """What is wrong if the lanes do not give the tape's results; ``sample``: the call's."""
    decided = code.recording.selection.decide(call.ints)
    gathered = None if decided is None else code.machine.fit.gathered(decided[0])
    if gathered is None:
        return "an integer selects what the code computes later"
    for samples in (_beside(code, call, sample), [sample] * code.lanes):
        found = _computed(code, gathered, samples)
        if found is not None:
            wanted = [np.concatenate([x.values for x in samples])]
            wanted.append(np.sum([x.gradient for x in samples], axis=0))
            right = are_close(found, np.concatenate(wanted), code.machine.dtype)
            return None if right else "its result differs (please report this)"
    return f"its result is not finite in {code.machine.dtype}"


def _beside(code: LaneCode, call: Call, sample: Sample) -> list[Sample]:
    """A sample for each lane: this one, and others ever farther away, where they are defined."""
    chance = random.Random(len(code.variant.recording))
    found, own = [sample], code.varied
    for lane in range(1, code.lanes):
        inputs, far = sample.inputs.copy(), 2.0 ** (lane + 1 - code.lanes)
        inputs[own] *= [1.0 + far * chance.uniform(-1.0, 1.0) for _ in own]
        found.append(sample_of(code.variant, call, inputs) or sample)
    return found


def _computed(code: LaneCode, gathered: Addresses, samples: list[Sample]) -> Floats | None:
    """The values of all lanes, and the sum of their gradients; None where something is not finite.

    For values and gradients in rows it is the same code.
    """
    lanes, arenas = code.lanes, Arenas(code)
    found = [code.with_shared(x.inputs) for x in samples]
    inputs = [x for x in found if x is not None]
    if len(inputs) < len(found):
        return None
    code.share(inputs[0])
    code.fill_lanes(arenas, np.stack(inputs, axis=1))
    arenas.gathers.reshape(lanes, -1)[:, code.machine.fit.gathers] = gathered
    rows, flags = np.arange(lanes), np.ones(lanes)
    values = np.zeros((lanes, len(code.outputs)))
    arenas.set(
        shared=address(code.shared),
        **dict.fromkeys(("sources", "source_count", "places", "gathered", "gather_bytes"), 0),
        **dict.fromkeys(("gradients", "gradient_count"), 0),
        rows=address(rows),
        values=address(values),
        flags=address(flags),
        groups=1,
        output_count=len(code.outputs),
        own_total_count=len(arenas.own_total),
        shared_total_count=len(arenas.shared_total),
    )
    code.compute(arenas)
    if flags.any():
        return None
    gradient = code.gradient(arenas.totals[1])
    return None if gradient is None else np.concatenate([values.ravel(), gradient])
