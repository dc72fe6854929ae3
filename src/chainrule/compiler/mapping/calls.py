"""``map``: a compiled function over stacked arguments, from the arguments to what is returned.

In: the arguments as the user gave them, and which of them are stacked. Out: values and gradients in
the function's own structure, with one more axis in front, or their sum or mean over all samples.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import holds_values, like_first
from chainrule.compiler.capture.undisturbed import is_internal
from chainrule.compiler.mapping.alone import are_few, one_by_one, stay_in_lanes, were_calls
from chainrule.compiler.mapping.blocks import thread_count
from chainrule.compiler.mapping.costs import most_alone
from chainrule.compiler.mapping.prepared import Asked, answer, prepare
from chainrule.compiler.mapping.results import Places, Results
from chainrule.compiler.mapping.rounds import Rounds
from chainrule.compiler.mapping.stacks import Arrange, Stacks
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.core.backend import modes
from chainrule.derivatives import transforms
from chainrule.trees import Dict, Floats, Node, Numbers, map_leaves, unflatten

Axes = int | Sequence[int | None] | None
REDUCTIONS = (None, "sum", "mean")


def map_calls(
    dispatch: Dispatch,
    arguments: Sequence[Any],
    in_axes: Axes,
    reduce: str | None,
    threads: int | None,
    differentiate: bool,
) -> Any:
    """``CompiledFunction.map`` and ``map_value_and_grad``; see there."""
    if reduce not in REDUCTIONS:
        raise ValueError(f'reduce is "sum", "mean" or None, not {reduce!r}')
    if threads is not None:
        threads = thread_count(threads)
    _refuse_nesting()
    axes = _axes(in_axes, len(arguments))
    asked = Asked.of(arguments, axes, reduce is None, differentiate)
    few = asked is not None and are_few(dispatch, asked)
    if asked is not None and few:
        cached = one_by_one(dispatch, asked)
        if cached is not None:
            return _of_few(*cached, arguments[0], reduce)
    count = threads or thread_count(None)
    if asked is not None and not few:
        found = answer(dispatch, asked, count)
        if found is not None:
            results, prepared = found
            return _finished(results, prepared.first, arguments[0], reduce)
    if asked is None:  # else there are none
        _refuse_values(arguments)
    stacks = Stacks(arguments, axes)
    rounds = Rounds(dispatch, stacks, differentiate, reduce is None, count)
    rounds.refuse_other_trees()
    results = rounds.run(alone=few)
    if asked is not None and few:
        if not dispatch.waits():
            were_calls(dispatch, asked, rounds.call)
    elif asked is not None:
        prepare(dispatch, asked, rounds)
        if rounds.used_lanes and len(asked.stacked[0]) <= (most_alone(dispatch) or 0):
            stay_in_lanes(dispatch, asked)
    return _finished(results, rounds.call.structure[0][0], stacks.arguments(0)[0], reduce)


def _of_few(
    values: Floats, gradients: Floats, first: Node, argument: Any, reduce: str | None
) -> Any:
    """What ``map`` returns of few samples, a row for each."""
    if reduce is None:
        return values, _stacked_gradient(first, argument, gradients)
    scale = len(values) if reduce == "mean" else 1
    return float(values.sum()) / scale, like_first(first, argument, gradients.sum(axis=0) / scale)


def _finished(results: Results, first: Node, argument: Any, reduce: str | None) -> Any:
    """What ``map`` returns; ``first``: the structure of the first argument, ``argument``: it."""
    if reduce is not None:
        return reduced(results, first, argument, reduce == "mean")
    values = _stacked_values(results)
    if results.gradients is None:
        return values
    return values, _stacked_gradient(first, argument, results.gradients)


def _refuse_nesting() -> None:
    if modes.recorder is not None:
        modes.recorder.forbid("map of a compiled function")
    if transforms.is_nested() or is_internal():
        raise TypeError("map gives numbers, which cannot be differentiated again")


def _refuse_values(arguments: Sequence[Any]) -> None:
    if any(map(holds_values, arguments)):
        raise TypeError("map takes numbers and gives numbers: an argument holds Values")


def map_derivative(
    dispatch: Dispatch,
    arguments: Sequence[Any],
    arrange: Arrange,
    in_axes: Axes,
    shared: int,
    threads: int | None,
    gradient: bool,
) -> Any:
    """``CompiledDerivative.map``: all that a derivative returns, for each sample.

    ``arrange``: the arguments as it is recorded with them. ``shared``: how many of them are for all
    samples, where ``in_axes`` does not say. ``gradient``: the function is not the derivative
    itself, but has a gradient; then values and gradients.
    """
    count = thread_count(threads)
    _refuse_nesting()
    _refuse_values(arguments)
    samples = Stacks(arguments, _axes(in_axes, len(arguments), shared), arrange)
    rounds = Rounds(dispatch, samples, gradient, True, count, derivative=not gradient)
    results = rounds.run()
    return _finished(results, rounds.call.structure[0][0], samples.arguments(0)[0], None)


def _axes(in_axes: Axes, count: int, shared: int = 1) -> list[int | None]:
    """The axis of each argument; the first ones are ``shared`` where nobody says otherwise."""
    if in_axes is None:
        return [*[None] * shared, *[0] * count][:count]
    if isinstance(in_axes, (int, np.integer)):
        return [operator.index(in_axes)] * count
    if not isinstance(in_axes, (tuple, list)):
        raise TypeError(f"in_axes has an axis or None for each argument: got {in_axes!r}")
    if len(in_axes) != count:
        raise ValueError(f"in_axes has {len(in_axes)} entries for {count} arguments")
    for axis in in_axes:
        if axis is not None and not isinstance(axis, (int, np.integer)):
            raise TypeError(f"in_axes has an axis or None for each argument: got {axis!r}")
    return [None if axis is None else operator.index(axis) for axis in in_axes]


def _stacked_values(results: Results) -> Any:
    """What the function returns, with an array of all samples for each number or array."""
    values = results.values
    assert values is not None
    if results.template == 0:  # a number alone
        return values[:, 0].copy()

    def stacked(place: int | Places) -> Floats:
        return place.of(values) if isinstance(place, Places) else values[:, place].copy()

    return map_leaves(stacked, results.template)


def _stacked_gradient(first: Node, argument: Any, gradients: Floats) -> Any:
    """The gradients in the structure of the first argument, each with an axis of samples first."""
    if type(argument) is dict and isinstance(first, Dict):
        found = _of_arrays(first, argument, gradients)
        if found is not None:
            return found
    place = 0

    def make(node: Node, _: Any) -> Any:
        nonlocal place
        start, shape = place, node.shape if isinstance(node, Numbers) else ()
        place += math.prod(shape)
        return gradients[:, start:place].reshape(len(gradients), *shape)

    return unflatten(first, make, argument)


def _of_arrays(first: Dict, argument: dict[Any, Any], gradients: Floats) -> Any:
    """The same for a dict of arrays, which is quicker; None where there are others."""
    made, place, count = dict[Any, Any](), 0, len(gradients)
    for name, node in zip(argument, first.items, strict=True):
        if not isinstance(node, Numbers):
            return None
        end = place + math.prod(node.shape)
        made[name] = gradients[:, place:end].reshape(count, *node.shape)
        place = end
    return made


def reduced(results: Results, first: Node, argument: Any, mean: bool) -> Any:
    """The sum or the mean over all samples; ``first`` and ``argument`` as above."""
    scale = results.count if mean else 1
    value = results.value / scale
    if results.gradient is None:
        return value
    return value, like_first(first, argument, results.gradient / scale)
