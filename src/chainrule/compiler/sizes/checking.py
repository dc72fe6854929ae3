"""Machine code of a size that was never recorded is compared with eager mode before it answers.

In: a variant and a call. Out: nothing where they agree, else ``Untranslatable``. A small call is
compared in full, with its gradient. Of a large one the function only runs forward, and keeps no
graph: that takes time, but no memory. Its value is compared for the call and a little way off,
where no factor of 0 hides anything; and there a derivative along a line, by a finite difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.runtime.variants import Path, Variant
from chainrule.compiler.runtime.verification import are_close
from chainrule.compiler.translate.checking import eager, forward, numbers_of
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.trees import Floats

SMALL = 100_000  # numbers and terms: a call of so many is compared in full
STEP = 1e-7  # along the line: short, because a relu may bend on the way
CLOSE = {"float64": 1e-6, "float32": 1e-2}  # of a derivative by a finite difference
ROUNDING = 1e-12  # of the values that it is the difference of


def check(function: Callable[..., Any], variant: Variant, call: Call, answers: bool) -> None:
    """Compare the first answer of machine code with the function itself.

    Code that ``answers`` other lengths already was checked with its derivative: a shorter call on
    it is compared by its value, and its derivative with differences of the code's own values.
    """
    machine = variant.machine
    assert machine is not None
    if machine.program.work <= SMALL:
        _compare_in_full(function, variant, call)
        return
    if not answers:
        _compare_values(function, variant, call)
    nearby = _nudged(call)
    try:
        above = _compare_values(function, variant, _along(nearby, STEP))
    except Untranslatable:
        raise
    except Exception:  # out of a domain
        nearby, above = call, _compare_values(function, variant, _along(call, STEP))
    if not call.key[0]:
        return
    _, gradient = _answer(variant, nearby, True)
    ends = [_along(nearby, step) for step in (STEP, -STEP)]
    if not answers:
        below = numbers_of(forward(function, ends[1]))
    elif machine.dtype == "float64":
        above, below = (_answer(variant, end, False)[0] for end in ends)
    else:
        return  # single precision has no such differences
    moves = _numbers(ends[0])[: call.first] - _numbers(ends[1])[: call.first]
    limit = CLOSE[machine.dtype] * float(np.abs(gradient) @ np.abs(moves))
    limit += ROUNDING * max(1.0, abs(float(above[0])))
    if not abs(float(above[0] - below[0]) - gradient @ moves) <= limit:
        raise Untranslatable("its derivative differs from eager's (please report this)")


def _compare_in_full(function: Callable[..., Any], variant: Variant, call: Call) -> None:
    result, slopes = eager(function, call)
    values, gradient = _answer(variant, call, slopes is not None)
    _same(numbers_of(result), values, variant, "value")
    if slopes is not None:
        _same(slopes, gradient, variant, "gradient")


def _compare_values(function: Callable[..., Any], variant: Variant, call: Call) -> Floats:
    """Compare the values of a call; returns eager's."""
    wanted = numbers_of(forward(function, call))
    _same(wanted, _answer(variant, call, False)[0], variant, "value")
    return wanted


def _nudged(call: Call) -> Call:
    """The call with all of its numbers a little off."""
    chance, many = random.Random(2), np.random.default_rng(2)

    def nudge(x: Any) -> Any:
        def step() -> Any:
            return many.uniform(-1.0, 1.0, x.shape) if is_array else chance.uniform(-1.0, 1.0)

        is_array = isinstance(x, np.ndarray)
        return x * (1.0 + 0.02 * step()) + 1e-3 * step()

    return call.nudged(nudge, ())


def _along(call: Call, step: float) -> Call:
    """The call some way along a line: the first argument's numbers move."""
    chance, many = random.Random(1), np.random.default_rng(1)

    def nudge(x: Any) -> Any:
        if isinstance(x, np.ndarray):
            return x + step * many.normal(size=x.shape)
        return x + step * chance.gauss(0.0, 1.0)

    return call.nudged(nudge, (), data=False)


def _numbers(call: Call) -> Floats:
    row = np.empty(call.size)
    call.write(row)
    return row


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
