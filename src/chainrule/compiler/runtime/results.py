"""What a compiled function gives back: numbers in the user's trees, gradients, one big node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, eager_arguments, holds_values
from chainrule.compiler.capture.recordings import FIRST_RULE, ArrayOutput, Output, Recording
from chainrule.core.backend import Value, kernels, nonfinite, topological_order, vsum
from chainrule.derivatives.arguments import is_number
from chainrule.derivatives.backward import recording
from chainrule.trees import Floats, children, field_names, is_record, map_leaves

NUMERIC = (float, np.ndarray, Value)


def as_floats(tree: Any) -> Any:
    """Values as their numbers."""
    return map_leaves(lambda x: x.data if isinstance(x, Value) else x, tree)


def array_of_values(numbers: Floats) -> Any:
    """An array of Values, one for each number."""
    made = np.empty(numbers.shape, object)
    made.reshape(-1)[:] = list(map(Value, numbers.ravel().tolist()))
    return made


def has_extras(result: Any) -> bool:
    """Whether a function returned a value and extras, which are only passed on."""
    return type(result) is tuple and len(result) == 2


def root_of(result: Any) -> Output | None:
    """The Value that a function returned, alone or first of a pair."""
    first = result[0] if has_extras(result) else result
    return first if isinstance(first, Output) and first.is_value else None


def has_no_graph(call: Call, captured: tuple[Value, ...]) -> bool:
    """Whether no Values are around, so that those which a call returns are numbers, no more."""
    return not (call.key[0] or call.values or captured)


def lifted_of(recording: Recording, call: Call, captured: tuple[Value, ...]) -> Recording:
    """What machine code is built from: several Values that have no graph are numbers in it."""
    has_graph = root_of(recording.result) is not None or not has_no_graph(call, captured)
    return recording if has_graph else as_numbers(recording)


def as_numbers(recording: Recording) -> Recording:
    """The same recording, which returns numbers in the places of Values."""

    def number(leaf: Any) -> Any:
        is_number = isinstance(leaf, (Output, ArrayOutput))
        return replace(leaf, is_value=False) if is_number else leaf

    stored, result = map_leaves(number, recording.returned, records=True)
    changes = [replace(x, items=items) for x, items in zip(recording.changes, stored, strict=True)]
    return replace(recording, result=result, changes=tuple(changes))


def wanted_of(recording: Recording) -> Output | None:
    """What machine code is built for: the Value to differentiate, or the first of numbers alone.

    None where there are several Values, which have a graph.
    """
    root, outputs = root_of(recording.result), recording.outputs
    if root is not None or not outputs or any(x.is_value for x in outputs):
        return root
    return outputs[0]


def first_of(result: Any) -> Any:
    """The value of what a function returned: itself, or the first of a pair."""
    first = result[0] if has_extras(result) else result
    return float(first) if is_number(first) and not isinstance(first, Value) else first


def carriers(recording: Recording, root: int) -> set[int]:
    """The instructions through which a gradient may go from ``root``, whatever is selected."""
    selected = {p for gather in recording.selection.gathers for p in gather.candidates.tolist()}
    found = {root} | selected
    stack = list(found)
    while stack:
        i = stack.pop()
        code = int(recording.codes[i])
        rule = recording.rules[code - FIRST_RULE] if code >= FIRST_RULE else None
        for k in () if rule is None else rule.differentiable:
            p = int(recording.operands[i, k])
            if p >= 0 and p not in found:
                found.add(p)
                stack.append(p)
    return found


def value_places(call: Call, captured: int) -> list[int]:
    """Where the Values among the inputs are."""
    places, at = [], 0
    for x, size in zip(call.floats, call.sizes, strict=True):
        if isinstance(x, Value):
            places.append(at)
        at += size
    return places + list(range(at, at + captured))


def arguments_with(call: Call, inputs: list[Value]) -> tuple[Any, Any]:
    """The user's own objects, but for Values in the first argument, which go into ``inputs``."""

    def value(x: Any) -> Value:
        inputs.append(x if isinstance(x, Value) else Value(x))
        return inputs[-1]

    def values(items: list[float]) -> list[Value]:
        made = list(map(Value, items))
        inputs.extend(made)
        return made

    return eager_arguments(call, value, values)


def compiled_node(y: float, name: str, children: tuple[Value, ...], slopes: Floats) -> Value:
    """One operation over all the Values involved."""
    if kernels is not None:
        node: Value = kernels.compiled_node(y, name, children, slopes)
        return node
    return Value(y, children, slopes.tolist(), op=name)


def gradient_up_to(y: Value, xs: list[Value]) -> Floats:
    """dy/dx where no way leads through another x: what one operation over ``xs`` passes on."""
    return np.array(y._gradients(xs, True), np.float64)


def numeric_leaves(tree: Any) -> list[Any]:
    """The numbers and arrays of a tree, in order."""
    return [x for _, x in _numbers(tree, ())]


def nodes_of(tree: Any) -> int:
    """How many nodes the graphs of all Values of a tree have together."""
    leaves = [x for x in numeric_leaves(tree) if type(x) is not float]
    arrays = [np.asarray(x, object).ravel().tolist() for x in leaves]
    values = [x for row in arrays for x in row if isinstance(x, Value)]
    if len(values) > 1:
        with recording(), nonfinite("allow"):
            values = [vsum(values)]
    return len(topological_order(values[0])) if values else 0


def _numbers(tree: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """The numbers and arrays of a tree, each with the keys that lead to it."""
    if type(tree) is float:
        yield path, tree
        return
    items = children(tree)
    if items is None and is_record(tree):
        items = [(name, getattr(tree, name)) for name in field_names(tree)]
    if items is not None:
        for key, item in items:
            yield from _numbers(item, (*path, key))
    elif isinstance(tree, NUMERIC):
        yield path, tree


def fill(out: Any, grads: Any) -> Any:
    """Copy the gradient into the arrays of ``out``, if it was given."""
    if out is None or out is grads:
        return grads
    if kernels is not None and kernels.fill(out, grads, np.ndarray):
        return out
    targets, sources = dict(_numbers(out, ())), dict(_numbers(grads, ()))
    if targets.keys() != sources.keys() or any(
        np.shape(x) != np.shape(sources[path]) for path, x in targets.items()
    ):
        raise ValueError(
            "out must have the structure of the first argument (an argument of the function that "
            "is named out is passed by position)"
        )
    for target in targets.values():
        if not isinstance(target, np.ndarray):
            raise TypeError(
                "out holds arrays; a plain float cannot be filled in place (an argument of the "
                "function that is named out is passed by position)"
            )
        if target.dtype.kind != "f":
            raise TypeError(f"out holds arrays of floats, not of {target.dtype}")
        if not target.flags.writeable:
            raise ValueError("out holds an array that is read-only")
    if any(map(holds_values, sources.values())):
        raise TypeError(
            "out cannot take this gradient: the function uses a Value from outside, or was passed "
            "one, and so its derivative consists of Values; call it without out"
        )
    for path, target in targets.items():
        target[...] = sources[path]
    return out
