"""First results are compared: a recording's with eager's, machine code's with the tape's.

In: a variant and the call it was built from. Out: nothing where they agree; else an
``Unrecordable``, or False, and the slower path stays.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, eager_arguments
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.recordings import ArrayOutput, Output
from chainrule.compiler.capture.standins import Unrecordable
from chainrule.compiler.capture.tracing import nudged, plain_modes
from chainrule.compiler.runtime.results import (
    gradient_up_to,
    root_of,
    run_eagerly,
    value_places,
)
from chainrule.compiler.runtime.variants import Binding, Path, Run, Variant
from chainrule.core import errors
from chainrule.core.backend import Value
from chainrule.derivatives.transforms import differentiating
from chainrule.trees import Floats, map_leaves


def check_against_eager(
    function: Callable[..., Any], captured: CapturedState, variant: Variant, call: Call
) -> None:
    """Compare the first result with an eager run, there and a little way off."""
    _check_result(function, variant, call)
    chance = random.Random(len(variant.recording))
    # A factor of 0 hides what it multiplies: it is moved too, unless a branch asks for it.
    for from_zero in (1e-3, 0.0):

        def nudge(x: float, from_zero: float = from_zero) -> float:
            step = chance.uniform(-1.0, 1.0)
            return x * (1.0 + 1e-3 * step) if x else from_zero * abs(step)

        with nudged(captured.values, nudge):
            try:
                if _check_result(function, variant, call.nudged(nudge, captured.place)):
                    return
            except Exception:
                continue  # out of a domain


def _check_result(function: Callable[..., Any], variant: Variant, call: Call) -> bool:
    """Compare one result with eager's; False if the recording does not hold for this call."""
    run, root = variant.run(call, None), root_of(variant.recording.result)
    if run is None or run.path is Path.EAGER:
        return False
    if variant.is_derivative:
        _check_derivative(function, run, variant, call)
        return True
    inputs: list[Value] = []
    with plain_modes(), differentiating(inputs if call.key[0] else []):
        result = run_eagerly(function, call, inputs)
    _compare_numbers(run, variant.recording.result, result)
    if root is None:
        return True
    y = result[0] if isinstance(result, tuple) else result
    passed = [v for v in call.values if not any(v is x for x in inputs)]
    inputs += [*passed, *variant.captured]
    wanted, swept = gradient_up_to(y, inputs), run.sweep(root.position)
    assert swept is not None
    places = value_places(call, len(variant.captured))
    own = len(inputs) - len(passed) - len(variant.captured)
    found = swept[[*range(own), *places[len(places) - len(inputs) + own :]]]
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    if not np.isfinite(scale):
        scale = 1.0
    agree = np.allclose(found, wanted, rtol=0.0, atol=1e-9 * scale, equal_nan=True)
    if not agree:
        raise Unrecordable(_DIFFERS)
    return True


def _check_derivative(function: Callable[..., Any], run: Run, variant: Variant, call: Call) -> None:
    """All that a derivative returns, with what eager returns, which are numbers too."""
    arguments: Sequence[Any] = call.arguments
    keywords = call.keywords
    if call.copied:
        arguments, keywords = eager_arguments(call, float)
    with plain_modes():
        result = function(*arguments, **keywords)
    pairs = zip(_leaves(_filled(run, variant.recording.result)), _leaves(result), strict=True)
    try:
        agree = all(_agree(x, y) for x, y in pairs)
    except ValueError:  # another number of them
        agree = False
    if not agree:
        raise Unrecordable(_DIFFERS)


def _filled(run: Run, recorded: Any) -> Any:
    """What a run returns."""

    def read(x: Any) -> Any:
        if isinstance(x, ArrayOutput):
            return x.filled(run.numbers(x.positions.tolist()))
        return run.number(x.position) if isinstance(x, Output) else x

    return map_leaves(read, recorded, records=True)


def _leaves(tree: Any) -> list[Any]:
    found: list[Any] = []
    map_leaves(found.append, tree, records=True)
    return found


def _agree(x: Any, y: Any) -> bool:
    """Whether two numbers, arrays or sparse matrices agree to rounding."""
    if hasattr(y, "toarray"):
        if x.shape != y.shape:
            return False
        difference, size = np.abs((x - y).data), np.abs(y.data)
    elif isinstance(y, np.ndarray) or (errors.is_real(y) and not isinstance(y, bool)):
        if np.shape(x) != np.shape(y):
            return False
        difference, size = np.abs(np.subtract(x, y)), np.abs(y)
    else:
        return bool(x is y or x == y)
    scale = max(1.0, float(np.max(size, initial=0.0)))
    return bool(np.max(difference, initial=0.0) <= 1e-9 * scale)


_DIFFERS = "the replay does not give eager's result"


def _compare_numbers(run: Run, recorded: Any, eager: Any) -> None:
    """All that the function returned, with what it returns eagerly."""
    found: list[Any] = []
    wanted: list[Any] = []
    map_leaves(lambda x: _add_items(x, found), recorded)
    map_leaves(lambda x: _add_items(x, wanted), eager)
    if len(found) != len(wanted):
        raise Unrecordable(_DIFFERS)
    for x, y in zip(found, wanted, strict=True):
        if isinstance(y, Value) is not (isinstance(x, Output) and x.is_value):
            raise Unrecordable("eager gives no Value" if isinstance(x, Output) else _DIFFERS)
        if isinstance(x, Output):
            number = y.data if isinstance(y, Value) else y
            same = errors.is_real(number) and np.isclose(
                run.number(x.position), number, rtol=1e-9, atol=1e-12, equal_nan=True
            )
        else:
            same = x is y or x == y or (x != x and y != y)
        if not same:
            raise Unrecordable(_DIFFERS)


def _add_items(leaf: Any, found: list[Any]) -> None:
    """Note a leaf; of an array its shape and its items."""
    if isinstance(leaf, ArrayOutput):
        found += [leaf.shape, *leaf.items]
    elif isinstance(leaf, np.ndarray):
        found += [leaf.shape, *leaf.ravel().tolist()]
    else:
        found.append(leaf)


@dataclass(frozen=True, eq=False)
class Expected:
    """What the tape gave for a call: all numbers that are returned, and the gradient if any."""

    values: Floats
    gradient: Floats


def on_tape(variant: Variant, call: Call) -> Expected | None:
    """The tape's result for a call; None where it has none."""
    run = variant.run(call, None)
    if run is None or run.path is Path.EAGER:
        return None
    return _results(run, variant)


def _results(run: Run, variant: Variant) -> Expected | None:
    """What a run gave; None where a derivative is not finite."""
    recording = variant.recording
    values, root = run.numbers([x.position for x in recording.outputs]), root_of(recording.result)
    swept = np.zeros(0) if root is None else run.sweep(root.position)
    return None if swept is None else Expected(values, swept.copy())


def agrees(variant: Variant, call: Call, binding: Binding, expected: Expected) -> bool:
    """Whether machine code gives the tape's result, where it gives one."""
    run = variant.run(call, binding)
    if run is None or run.path is not Path.MACHINE:
        return True
    results = _results(run, variant)
    if results is None:
        return True
    found = np.concatenate([results.values, results.gradient])
    wanted = np.concatenate([expected.values, expected.gradient])
    return are_close(found, wanted, binding.machine.dtype)


def are_close(found: Floats, wanted: Floats, dtype: str) -> bool:
    """Whether machine code's numbers are the tape's to rounding."""
    if not np.isfinite(wanted).all() or not np.isfinite(found).all():
        return bool(np.array_equal(found, wanted, equal_nan=True))
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    error = float(np.max(np.abs(found - wanted), initial=0.0))
    return error <= (1e-9 if dtype == "float64" else 1e-3) * scale
