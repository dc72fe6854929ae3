"""Machine code of a size that was never recorded is compared with eager mode before it answers.

In: a variant and a call. Out: nothing where they agree, else ``Untranslatable``. A small call is
compared in full, with its gradient. Of a large one the function only runs forward, and keeps no
graph: that takes time, but no memory. Its value is compared for the call; and its value and the
derivative along a random direction a little way off, where no factor of 0 hides anything.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.runtime.results import as_floats
from chainrule.compiler.runtime.variants import Path, Variant
from chainrule.compiler.runtime.verification import Eager, are_close, carried
from chainrule.compiler.translate.checking import eager, forward, numbers_of
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.trees import Floats

SMALL = 100_000  # numbers and terms: a call of so many is compared in full
CLOSE = {"float64": 1e-9, "float32": 1e-3}  # of a derivative along a direction
ROUNDING = {"float64": 1e-12, "float32": 1e-5}  # of the value that it is a derivative of


def check(function: Callable[..., Any], variant: Variant, call: Call, answers: bool) -> None:
    """Compare the first answer of machine code with the function itself.

    Code that ``answers`` other lengths already was compared at a call itself: a shorter one on it
    is compared a little way off only.
    """
    machine = variant.machine
    assert machine is not None
    if machine.program.work <= SMALL:
        _compare_in_full(function, variant, call)
        return
    if not answers:
        wanted = numbers_of(forward(function, call))
        _same(wanted, _answer(variant, call, False)[0], variant, "value")
    try:
        _compare_along(function, variant, _nudged(call))
    except Untranslatable:
        raise
    except Exception:  # out of a domain
        _compare_along(function, variant, call)


def _compare_along(function: Callable[..., Any], variant: Variant, call: Call) -> None:
    """Compare the values of a call, and its derivative along a random direction."""
    assert variant.machine is not None
    differentiate, dtype = bool(call.key[0]), variant.machine.dtype
    values, gradient = _answer(variant, call, differentiate)
    seed = zlib.crc32(values.tobytes())  # another direction for other numbers
    wanted = carried(function, call, Eager(call, variant), seed, differentiate)
    if wanted is None:  # it asks for its graph
        _compare_in_full(function, variant, call)
        return
    _same(numbers_of(as_floats(wanted.result)), values, variant, "value")
    if differentiate:
        limit = CLOSE[dtype] * float(np.linalg.norm(gradient))
        limit += ROUNDING[dtype] * max(1.0, abs(float(values[0])))
        if not abs(float(gradient @ wanted.direction) - wanted.slope) <= limit:
            raise Untranslatable("its derivative differs from eager's (please report this)")


def _compare_in_full(function: Callable[..., Any], variant: Variant, call: Call) -> None:
    result, slopes = eager(function, call)
    values, gradient = _answer(variant, call, slopes is not None)
    _same(numbers_of(result), values, variant, "value")
    if slopes is not None:
        _same(slopes, gradient, variant, "gradient")


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
