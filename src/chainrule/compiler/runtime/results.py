"""What a compiled function gives back: numbers in the user's nests, gradients, one big node."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.recorder import Floats, Output, map_leaves
from chainrule.core import errors
from chainrule.core.backend import Value, kernels

NUMERIC = (float, np.ndarray)


def forget(kept: dict[int, Any], key: int) -> None:
    """Let an entry go, if it is still there."""
    kept.pop(key, None)


def as_floats(nest: Any) -> Any:
    """Values as their numbers."""
    return map_leaves(lambda x: x.data if isinstance(x, Value) else x, nest)


def root_of(result: Any) -> Output | None:
    """The Value that a function returned, alone or first of a pair."""
    first = result[0] if type(result) is tuple and len(result) == 2 else result
    return first if isinstance(first, Output) and first.is_value else None


def first_of(result: Any) -> Any:
    """The value of what a function returned: itself, or the first of a pair."""
    first = result[0] if type(result) is tuple and len(result) == 2 else result
    return float(first) if errors.is_real(first) else first


def not_scalar(name: str) -> TypeError:
    """The error of differentiating what is not one number."""
    return TypeError(f"{name} must return one Value, or (Value, extras), to be differentiated")


def value_places(call: Call, captured: int) -> list[int]:
    """Where the Values among the inputs are."""
    places, at = [], 0
    for x, size in zip(call.floats, call.sizes, strict=True):
        if isinstance(x, Value):
            places.append(at)
        at += size
    return places + list(range(at, at + captured))


def compiled_node(y: float, name: str, children: tuple[Value, ...], slopes: Floats) -> Value:
    """One operation over all the Values involved."""
    if kernels is not None:
        node: Value = kernels.compiled_node(y, name, children, slopes)
        return node
    return Value(y, children, slopes.tolist(), op=name)


def gradient_without_trace(y: Value, xs: list[Value]) -> Floats:
    """dy/dx for each x as ``backward()`` finds it, leaving every gradient as it was."""
    return np.array(y._gradients(xs, False), np.float64)


def gradient_up_to(y: Value, xs: list[Value]) -> Floats:
    """dy/dx where no way leads through another x: what one operation over ``xs`` passes on."""
    return np.array(y._gradients(xs, True), np.float64)


def numeric_leaves(nest: Any) -> list[Any]:
    """The numbers and arrays of a nest, in order."""
    found: list[Any] = []
    map_leaves(lambda x: found.append(x) if isinstance(x, NUMERIC) else None, nest)
    return found


def fill(out: Any, grads: Any) -> Any:
    """Copy the gradient into the arrays of ``out``, if it was given."""
    if out is None:
        return grads
    targets, sources = numeric_leaves(out), numeric_leaves(grads)
    if len(targets) != len(sources) or any(
        np.shape(a) != np.shape(b) for a, b in zip(targets, sources, strict=True)
    ):
        raise ValueError("out must have the structure of the first argument")
    for target, source in zip(targets, sources, strict=True):
        if not isinstance(target, np.ndarray):
            raise TypeError("out holds arrays; a plain float cannot be filled in place")
        target[...] = source
    return out
