"""A translation is compared with eager mode before anybody gets it.

In: the function that was translated, its source as a function, and the recorded call. Out: nothing
where value and gradient agree, for this call, for other numbers and for other integers; else an
``Untranslatable``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, eager_arguments
from chainrule.compiler.capture.undisturbed import plain_modes
from chainrule.compiler.runtime.decisions import resized, runs_of, split
from chainrule.compiler.runtime.results import as_floats, gradient_up_to, has_extras
from chainrule.compiler.translate.dialects import TYPES
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.core.backend import Value, no_grad
from chainrule.derivatives.transforms import differentiating
from chainrule.trees import Flat, Floats, map_leaves

CLOSE = 1e-9
STEPS = (1e-5, 1e-7)  # of a finite difference: on a long one, many a relu bends, which is right to
ROUGHLY = 1e-6  # and to the rounding of the two values
ROUNDING = 1e-12

#: the value of a translated function and its gradient by the first argument, if the dialect has one
Evaluate = Callable[[tuple[Any, ...]], tuple[Any, Any]]


def check(
    function: Callable[..., Any], evaluate: Evaluate, call: Call, specialised: bool = False
) -> None:
    """Compare a translation with the function itself; ``specialised``: it says where it holds."""
    for k, other in enumerate(calls_like(call)):
        try:
            result, slopes = eager(function, other)
        except Exception:
            if k == 0:
                raise
            continue  # out of a domain, or an index out of range
        arguments = passed_arguments(other)
        try:
            found, gradient = evaluate(arguments)
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            raise Untranslatable(f"its source fails with {text} (please report this)") from error
        if specialised:
            found, holds = found
            if not holds and k > 0:
                continue
        compare(numbers_of(result), numbers_of(_in_order(result, found)), "value")
        if gradient is not None and slopes is not None:
            compare(slopes, numbers_of(_in_order(arguments[0], gradient)), "gradient")


def check_forward(
    function: Callable[..., Any], evaluate: Evaluate, call: Call, specialised: bool = False
) -> None:
    """Compare the values of one call and, where there is a gradient, a derivative along a line.

    The function only runs forward, and keeps no graph: a large call takes time rather than memory.
    """

    def along(step: float) -> Call:
        chance = random.Random(len(call.floats))
        return call.nudged(lambda x: x + step * chance.gauss(0.0, 1.0), (), data=False)

    result = forward(function, call)
    arguments = passed_arguments(call)
    found, gradient = evaluate(arguments)
    if specialised:
        found, holds = found
        if not holds:
            raise Untranslatable("its branches are others than those of the example")
    compare(numbers_of(result), numbers_of(_in_order(result, found)), "value")
    if gradient is None:
        return
    ends = np.zeros((2, call.size))
    for end, row in zip((along(1.0), call), ends, strict=True):
        end.write(row)
    slopes = numbers_of(_in_order(arguments[0], gradient))
    direction = (ends[0] - ends[1])[: call.first]
    scale, slope = float(np.abs(slopes) @ np.abs(direction)), slopes @ direction
    for step in STEPS:
        above, below = (float(_first(forward(function, along(s)))[0]) for s in (step, -step))
        measured = (above - below) / (2 * step)
        limit = ROUGHLY * max(1.0, scale, abs(measured)) + ROUNDING * abs(above) / step
        if abs(slope - measured) <= limit:
            return
    raise Untranslatable("its derivative differs from eager's (please report this)")


def forward(function: Callable[..., Any], call: Call) -> Any:
    """What a call returns, without a graph."""
    with plain_modes(), no_grad():
        arguments, keywords = eager_arguments(
            call,
            lambda x: Value(float(getattr(x, "data", x))),
            lambda items: list(map(Value, items)),
        )
        return as_floats(function(*arguments, **keywords))


def _first(result: Any) -> Floats:
    return numbers_of(result[0] if has_extras(result) else result)[:1]


def calls_like(call: Call) -> Iterator[Call]:
    """The call itself, then others of its structure."""
    chance, many = random.Random(len(call.floats)), np.random.default_rng(len(call.floats))

    def nudge(x: Any) -> Any:
        def step() -> Any:
            return many.uniform(-1.0, 1.0, x.shape) if is_array else chance.uniform(-1.0, 1.0)

        is_array = isinstance(x, np.ndarray)
        return x * (1.0 + 0.02 * step()) + 1e-3 * step()

    yield replace(call, copied=True)
    yield call.nudged(nudge, ())
    if call.ints:
        for _ in range(2):
            yield _with_integers(call, chance.sample(call.ints, len(call.ints)))
        yield _with_integers(call, [max(0, i - 1) for i in call.ints])


def _with_integers(call: Call, integers: Sequence[int]) -> Call:
    """The same call with other integers, in lists too."""
    _, runs = runs_of(call.key)
    return replace(resized(call, split(runs, integers)), copied=True)


def passed_arguments(call: Call) -> tuple[Any, ...]:
    """A call's arguments as plain numbers in the lists and arrays they came in, keywords last."""
    arguments, keywords = eager_arguments(call, lambda x: float(getattr(x, "data", x)))
    return (*arguments, *keywords.values())


def plain_arguments(call: Call) -> tuple[Any, ...]:
    """A call's arguments as plain numbers and arrays, keywords last."""
    return tuple(map(_as_arrays, passed_arguments(call)))


def with_arrays(made: Callable[..., Any], evaluate: Evaluate) -> Evaluate:
    """Evaluates a source with arrays for lists of numbers, unless it tells these apart itself."""
    convert = _as_numbers if TYPES in made.__globals__ else _as_arrays
    return lambda arguments: evaluate(tuple(map(convert, arguments)))


def _as_numbers(x: Any) -> Any:
    """Arrays of objects as arrays of numbers."""

    def number(leaf: Any) -> Any:
        is_objects = isinstance(leaf, np.ndarray) and leaf.dtype == object
        return leaf.astype(np.float64) if is_objects else leaf

    return map_leaves(number, x, True)


def _as_arrays(x: Any) -> Any:
    """Lists of numbers, and arrays of objects, as arrays of numbers; JAX takes these sooner."""
    if isinstance(x, np.ndarray):
        return x.astype(np.float64) if x.dtype == object else x
    if isinstance(x, dict):
        return {key: _as_arrays(item) for key, item in x.items()}
    if type(x) is tuple:
        return tuple(map(_as_arrays, x))
    if type(x) is not list:
        return x
    items = [_as_arrays(item) for item in x]
    if not all(isinstance(item, int | float | np.ndarray) for item in items):
        return items
    kinds = {(np.shape(item), np.asarray(item).dtype) for item in items}
    return np.array(items) if len(kinds) == 1 else items


def run_on_values(function: Callable[..., Any], call: Call) -> tuple[Any, list[Value]]:
    """What a call returns eagerly, and the Values in its first argument."""
    inputs: list[Value] = []

    def value(x: Any) -> Value:
        inputs.append(Value(float(getattr(x, "data", x))))
        return inputs[-1]

    def values(items: list[float]) -> list[Value]:
        made = list(map(Value, items))
        inputs.extend(made)
        return made

    with plain_modes(), differentiating(inputs):
        arguments, keywords = eager_arguments(call, value, values)
        return function(*arguments, **keywords), inputs


def eager(function: Callable[..., Any], call: Call) -> tuple[Any, Floats | None]:
    """What a call returns, and its gradient by the first argument; None where it has none."""
    result, inputs = run_on_values(function, call)
    first = result[0] if has_extras(result) else result
    slopes = gradient_up_to(first, inputs) if isinstance(first, Value) else None
    return as_floats(result), slopes


def numbers_of(tree: Any) -> Floats:
    """The numbers of a tree, in order."""

    def number(x: Any) -> Any:
        if isinstance(x, bool | np.bool_):
            return float(x)  # in sources it is a number
        return np.asarray(x) if hasattr(x, "__array__") else x

    flat = Flat()
    flat.add(map_leaves(number, tree, True), True)
    found = [np.ravel(np.asarray(x, np.float64)) for x in flat.floats]
    return np.concatenate([np.zeros(0), *found])


def _in_order(like: Any, tree: Any) -> Any:
    """A tree with the items of its dicts in the order of another's: JAX sorts them."""
    if isinstance(like, dict):
        return {key: _in_order(item, tree[key]) for key, item in like.items()}
    if type(like) in (list, tuple) and isinstance(tree, list | tuple):
        return [_in_order(*pair) for pair in zip(like, tree, strict=True)]
    return tree


def compare(wanted: Floats, found: Floats, what: str) -> None:
    """Untranslatable unless two rows of numbers are the same but for rounding."""
    if wanted.shape != found.shape:
        raise Untranslatable(f"its {what} has another shape than eager's (please report this)")
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0, where=np.isfinite(wanted))))
    if not np.allclose(found, wanted, rtol=0.0, atol=CLOSE * scale, equal_nan=True):
        raise Untranslatable(f"its {what} differs from eager's (please report this)")
