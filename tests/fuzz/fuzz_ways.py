"""The other public ways to call a compiled function, each beside what it means eagerly.

``value_and_grad(out=...)``, ``bound``, plain calls between those of ``value_and_grad``, and
``map_value_and_grad``. Each way gives a pair of functions over the same arguments, the eager one
and the compiled one, whose results have the same structure.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.trees import map_leaves

Function = Callable[..., Any]


def interleaved(f: Function, slow: Function, fast: Any, seed: int) -> tuple[Function, Function]:
    """Now the value alone, now with the gradient."""

    def turns(plain: Function, with_gradient: Function) -> Function:
        rng = random.Random(seed)
        return lambda *arguments: rng.choice([plain, with_gradient])(*arguments)

    return turns(f, slow), turns(fast, fast.value_and_grad)


def into_arrays(f: Function, slow: Function, fast: Any, seed: int) -> tuple[Function, Function]:
    """The gradient goes into arrays that hold what was there before."""
    kept: dict[str, Any] = {}

    def value_and_grad(params: Any, *data: Any) -> Any:
        shapes = repr(map_leaves(np.shape, params))
        if shapes not in kept:
            kept[shapes] = map_leaves(lambda part: np.full(np.shape(part), 7.5), params)
        out = kept[shapes]
        value, gradient = fast.value_and_grad(params, *data, out=out)
        if gradient is not out:
            raise AssertionError("the gradient is not what was passed as out")
        return value, copy.deepcopy(out)

    return slow, value_and_grad


def bound(f: Function, slow: Function, fast: Any, seed: int) -> tuple[Function, Function]:
    """The arguments of one bound call are changed in place, for as long as they can be."""
    calls: list[Any] = []

    def value_and_grad(*arguments: Any) -> Any:
        if not calls or not fits(calls[0].arguments, arguments):
            calls[:] = [fast.bound(*copy.deepcopy(arguments))]
        else:
            refill(calls[0].arguments, arguments)
        value = calls[0]()
        return value, copy.deepcopy(calls[0].gradient)

    return slow, value_and_grad


def fits(old: Any, new: Any) -> bool:
    """Whether an object can be made equal to another one by changing what it holds."""
    if type(old) is not type(new):
        return False
    if isinstance(old, np.ndarray):
        return bool(old.shape == new.shape and old.dtype == new.dtype)
    if isinstance(old, dict):
        return list(old) == list(new) and all(fits_in(old, key, new[key]) for key in old)
    if isinstance(old, list):
        return len(old) == len(new) and all(fits_in(old, k, new[k]) for k in range(len(old)))
    if isinstance(old, tuple):
        return len(old) == len(new) and all(map(fits, old, new))
    return bool(old == new)


def fits_in(holder: Any, key: Any, new: Any) -> bool:
    """Whether an item can be: where it is replaced, only its type matters."""
    old = holder[key]
    if isinstance(old, (dict, list, tuple, np.ndarray)):
        return fits(old, new)
    return type(old) is type(new)


def refill(old: Any, new: Any) -> None:
    """Change an object in place so that it is equal to another one, which it fits."""
    if isinstance(old, np.ndarray):
        old[...] = new
    elif isinstance(old, (dict, list, tuple)):
        for key in old if isinstance(old, dict) else range(len(old)):
            if isinstance(old[key], (dict, list, tuple, np.ndarray)):
                refill(old[key], new[key])
            elif not isinstance(old, tuple):
                old[key] = new[key]


def mapped(f: Function, slow: Function, fast: Any, seed: int) -> tuple[Function, Function]:
    """All samples at once, stacked; in some programs their sum or mean."""
    reduce = random.Random(seed).choice([None, None, "sum", "mean"])

    def stacks(samples: list[Any]) -> list[Any]:
        return [np.array(column) for column in zip(*samples, strict=True)]

    def eager(params: Any, samples: list[Any]) -> Any:
        columns = stacks(samples)
        each = [slow(params, *(column[k] for column in columns)) for k in range(len(samples))]
        values, gradients = np.array([value for value, _ in each]), [g for _, g in each]
        if reduce is None:
            return values, together(np.array, gradients)
        total = np.sum if reduce == "sum" else np.mean
        return float(total(values)), together(lambda parts: total(parts, axis=0), gradients)

    def compiled(params: Any, samples: list[Any]) -> Any:
        return fast.map_value_and_grad(params, *stacks(samples), reduce=reduce)

    return eager, compiled


def together(combine: Function, trees: list[Any]) -> Any:
    """Trees of one structure as one: what ``combine`` makes of the numbers at each place."""
    first = trees[0]
    if isinstance(first, dict):
        parts = {key: together(combine, [tree[key] for tree in trees]) for key in first}
        return type(first)(parts)
    if isinstance(first, (list, tuple)):
        columns = zip(*trees, strict=True)
        return type(first)(together(combine, list(parts)) for parts in columns)
    return combine(trees)


WAYS = {"interleaved": interleaved, "out": into_arrays, "bound": bound, "map": mapped}
