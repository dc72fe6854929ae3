"""A program of a size that was never recorded is compared with the function before it answers.

In: a variant, what it was made of, and a call. Out: nothing where they agree, else
``Untranslatable``. The function runs once more, recorded, of which nothing is kept: that takes
time, but no memory. What it computes is compared by marks (``meaning``), whatever the numbers are.
That comes first, while there is no machine code yet, so that memory for the one is not needed
beside memory for the other. Then machine code gives the same value, and the same derivative along a
random direction a little way off the call, where no factor of 0 hides anything from this
comparison. A small call is compared in full too, with its gradient.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.runtime.variants import Path, Variant
from chainrule.compiler.runtime.verification import are_close
from chainrule.compiler.sizes.meaning import Meaning
from chainrule.compiler.translate.checking import eager, numbers_of
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.trees import Floats

SMALL = 100_000  # numbers and terms: a call of so many is compared in full
CLOSE = {"float64": 1e-9, "float32": 1e-3}  # of a derivative along a direction
ROUNDING = {"float64": 1e-12, "float32": 1e-5}  # of the value that it is a derivative of


@dataclass(frozen=True, eq=False)
class Forward:
    """What the function itself gave, run forward."""

    call: Call
    values: Floats
    direction: Floats
    slope: float | None  # the derivative along the direction; None: it asks for its graph
    failed: Call | None  # where the function raised


def run_forward(tracer: Tracer, captured: CapturedState, meaning: Meaning, call: Call) -> Forward:
    """Compare what the function computes with its program; Untranslatable unless it is the same."""
    nudged = _nudged(call)
    try:
        return _run_forward(tracer, captured, meaning, nudged)
    except Untranslatable:
        raise
    except (Exception, Unrecordable):  # out of a domain
        return replace(_run_forward(tracer, captured, meaning, call), failed=nudged)


def _run_forward(tracer: Tracer, captured: CapturedState, meaning: Meaning, call: Call) -> Forward:
    numbers = np.zeros(call.size)
    call.write(numbers)
    chance = np.random.default_rng(zlib.crc32(numbers.tobytes()))  # another one each time
    direction = chance.uniform(-1.0, 1.0, call.first)
    direction += np.copysign(0.5, direction)
    seen = meaning.seen(tracer, captured, call, direction)
    meaning.check(seen)
    return Forward(call, seen.values, direction, seen.slope, None)


def check(tracer: Tracer, variant: Variant, call: Call, work: int, forward: Forward) -> None:
    """Compare machine code with the function itself; ``work``: how many numbers it computes."""
    checked = _Check(tracer, variant)
    if work <= SMALL:
        checked.in_full(call)
    checked.along(forward)


@dataclass(frozen=True, eq=False)
class _Check:
    """What is compared at calls."""

    tracer: Tracer
    variant: Variant

    def along(self, forward: Forward) -> None:
        """Compare the values of a call, and its derivative along a direction."""
        assert self.variant.machine is not None
        call = forward.call
        differentiate, dtype = bool(call.key[0]), self.variant.machine.dtype
        if forward.failed is not None:  # machine code is to answer such a call all the same
            _answer(self.variant, forward.failed, differentiate)
        values, gradient = _answer(self.variant, call, differentiate)
        if forward.slope is None:
            self.in_full(call)
            return
        _same(forward.values, values, self.variant, "value")
        if differentiate:
            limit = CLOSE[dtype] * float(np.linalg.norm(gradient))
            limit += ROUNDING[dtype] * max(1.0, abs(float(values[0])))
            if not abs(float(gradient @ forward.direction) - forward.slope) <= limit:
                raise Untranslatable("its derivative differs from eager's (please report this)")

    def in_full(self, call: Call) -> None:
        """Compare the values of a call, and its gradient."""
        result, slopes = eager(self.tracer.function, call)
        values, gradient = _answer(self.variant, call, slopes is not None)
        _same(numbers_of(result), values, self.variant, "value")
        if slopes is not None:
            _same(slopes, gradient, self.variant, "gradient")


def _nudged(call: Call) -> Call:
    """The call with all of its numbers a little off."""
    chance, many = random.Random(2), np.random.default_rng(2)

    def nudge(x: Any) -> Any:
        def step() -> Any:
            return many.uniform(-1.0, 1.0, x.shape) if is_array else chance.uniform(-1.0, 1.0)

        is_array = isinstance(x, np.ndarray)
        return x * (1.0 + 0.02 * step()) + 1e-3 * step()

    return call.nudged(nudge, ())


def _answer(variant: Variant, call: Call, differentiate: bool) -> tuple[Floats, Floats]:
    """What machine code returns, and the gradient by the first argument."""
    run = variant.run(call, variant.binding)
    if run is None or run.path is not Path.MACHINE:
        raise Untranslatable("a number is not finite, or an integer is no index")
    outputs = variant.recording.outputs
    values = run.numbers([x.position for x in outputs])
    if not differentiate:
        return values, np.zeros(0)
    slopes = run.sweep(outputs[0].position)
    if slopes is None:
        raise Untranslatable("a derivative is not finite")
    return values, slopes[: call.first].copy()


def _same(wanted: Floats, found: Floats, variant: Variant, what: str) -> None:
    assert variant.machine is not None
    dtype = variant.machine.dtype
    if wanted.shape != found.shape or not are_close(found, wanted, dtype):
        raise Untranslatable(f"its {what} differs from eager's (please report this)")
