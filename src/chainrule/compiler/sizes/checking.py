"""Machine code of a size that was never recorded is compared with eager mode before it answers.

In: a variant and a call. Out: nothing where they agree, else ``Untranslatable``. A small call is
compared in full, with its gradient. Of a large one the function runs forward only, on both sides of
the call along a line, and keeps no graph: that takes time, but no memory. It gives two values and a
derivative along that line.
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
STEP = 1e-5  # along the line
CLOSE = {"float64": 1e-6, "float32": 1e-2}  # of a derivative by a finite difference


def check(function: Callable[..., Any], variant: Variant, call: Call) -> None:
    """Compare the first answer of machine code with the function itself."""
    machine = variant.machine
    assert machine is not None
    dtype = machine.dtype
    if machine.program.work <= SMALL:
        result, slopes = eager(function, call)
        values, gradient = _answer(variant, call, slopes is not None)
        _same(numbers_of(result), values, dtype, "value")
        if slopes is not None:
            _same(slopes, gradient, dtype, "gradient")
        return
    ends = [_along(call, step) for step in (STEP, -STEP)]
    wanted = []
    for end in ends:
        wanted.append(numbers_of(forward(function, end)))
        _same(wanted[-1], _answer(variant, end, False)[0], dtype, "value")
    if not call.key[0]:
        return
    _, gradient = _answer(variant, call, True)
    above, below = (_numbers(end)[: call.first] for end in ends)
    difference, slope = wanted[0][0] - wanted[1][0], gradient @ (above - below)
    scale = float(np.abs(gradient) @ np.abs(above - below)) + 1e-7 * STEP
    if not abs(difference - slope) <= CLOSE[dtype] * scale + 1e-12 * abs(wanted[0][0]):
        raise Untranslatable("its derivative differs from eager's (please report this)")


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


def _same(wanted: Floats, found: Floats, dtype: str, what: str) -> None:
    if wanted.shape != found.shape or not are_close(found, wanted, dtype):
        raise Untranslatable(f"its {what} differs from eager's (please report this)")
