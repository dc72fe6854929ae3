"""Samples that lie in arrays, one after the other.

In: the arguments of a call, some of them stacked: of these each sample has what ``array[k]`` is. Or
a list of samples, whose numbers are copied into arrays. Out: ``Stacks`` or a ``Batch``: the
arguments of sample k, and ``Source``s: which numbers of the arrays go where among the inputs of a
recording.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Protocol

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.lift.program import Addresses
from chainrule.core.backend import Value, kernels
from chainrule.trees import (
    FLOAT,
    INT,
    VALUE,
    Array,
    Branch,
    Node,
    Number,
    Numbers,
    leaves,
    map_leaves,
)

Rows = range | Addresses  # of samples


@dataclass(frozen=True, eq=False)
class Source:
    """An array that has a row for each sample: ``count`` numbers, for the inputs from ``first``."""

    array: Array
    first: int  # among the floats of a call, or among its integers
    count: int


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the numbers of samples are."""

    floats: tuple[Source, ...]
    integers: tuple[Source, ...]


class Samples(Protocol):
    """Samples with one structure, so that a recording for one of them may serve all."""

    count: int

    def arguments(self, k: int) -> tuple[Any, ...]:
        """The arguments of a call with sample k."""

    def several(self, some: Rows) -> Iterator[tuple[Any, ...]]:
        """The arguments of calls with some of them."""

    def layout(self, call: Call) -> Layout | None:
        """Where their numbers are; ``call``: with one of them. None: each is a call of its own."""


#: arguments as a function is recorded with them, which may be in another order or in tuples
Arrange = Callable[[tuple[Any, ...]], tuple[Any, ...]]


class Stacks:
    """Arguments of which some are stacked: each array in them has an axis of samples."""

    def __init__(
        self,
        arguments: Sequence[Any],
        axes: Sequence[int | None],
        arrange: Arrange | None = None,
    ) -> None:
        """``axes``: of each argument, the axis along which its arrays are stacked, or None.

        ``arrange``: of a derivative, which is differentiated by what comes first.
        """
        self._arrange = arrange
        self.stacked = [axis is not None for axis in axes]
        self._trees = [
            x if axis is None else _with_axis_first(x, axis, f"argument {place}")
            for place, (x, axis) in enumerate(zip(arguments, axes, strict=True))
        ]
        self._pairs = [*zip(self._trees, self.stacked, strict=True)]
        self._are_arrays = all(type(tree) is np.ndarray for tree, is_one in self._pairs if is_one)
        self.count = self._count()

    def _count(self) -> int:
        """How many samples there are; ValueError where arrays have different numbers of them."""
        found: dict[int, str] = {}
        for place, (tree, stacked) in enumerate(zip(self._trees, self.stacked, strict=True)):
            for path, array in leaves(tree, f"argument {place}") if stacked else ():
                found.setdefault(len(array), path)
        if not found:
            raise ValueError(
                "no argument is stacked: in_axes says which are, as in in_axes=(None, 0)"
            )
        if len(found) > 1:
            (first, one), (second, other) = list(found.items())[:2]
            raise ValueError(f"{one} holds {first} samples and {other} holds {second}")
        (count,) = found
        if not count:
            raise ValueError(f"there are no samples: {found[0]} is empty")
        return count

    def arguments(self, k: int) -> tuple[Any, ...]:
        """The arguments of a call with sample k."""
        given: tuple[Any, ...] = tuple(
            [tree[k] if stacked else tree for tree, stacked in self._pairs]
            if self._are_arrays
            else [
                map_leaves(lambda array: array[k], tree, records=True) if stacked else tree
                for tree, stacked in self._pairs
            ]
        )
        return given if self._arrange is None else self._arrange(given)

    def several(self, some: Rows) -> Iterator[tuple[Any, ...]]:
        """The arguments of calls with some of them; arrays go through themselves the quickest."""
        if not (self._are_arrays and self._arrange is None and isinstance(some, range)):
            return map(self.arguments, some)
        rows = slice(some.start, some.stop)
        return zip(*[x[rows] if is_one else repeat(x) for x, is_one in self._pairs], strict=False)

    def layout(self, call: Call) -> Layout | None:
        """Where their numbers are; None where integers or truths of few bits are among them.

        A recording holds for one such array only. Nor is one of a derivative for numbers that are
        not finite: where all samples share such a number, each is a call of its own.
        """
        places = tuple(range(len(self._trees)))
        if self._arrange is not None:
            places = self._arrange(places)
            if not all(np.isfinite(x).all() for x in self._shared_floats()):
                return None
        rows: dict[Number, list[Source]] = {FLOAT: [], INT: []}
        at = {FLOAT: 0, INT: 0}
        for place, node in _in_order(places, call.structure[0]):
            tree, stacked = self._trees[place], self.stacked[place]
            arrays = iter([array for _, array in leaves(tree, "")] if stacked else [])
            for leaf in _nodes(node):
                kind, count = _size(leaf)
                if stacked:
                    array = next(arrays)
                    if kind is None:
                        return None
                    rows[kind].append(Source(array, at[kind], count))
                if kind is not None:
                    at[kind] += count
        return Layout(tuple(rows[FLOAT]), tuple(rows[INT]))

    def _shared_floats(self) -> Iterator[Any]:
        for tree, stacked in zip(self._trees, self.stacked, strict=True):
            for _, leaf in () if stacked else leaves(tree, ""):
                if isinstance(leaf, (float, np.floating, np.ndarray)):
                    yield leaf


class Batch:
    """Samples from a list, with one structure; the first argument is for all of them."""

    def __init__(self, params: Any, samples: list[tuple[Any, ...]], floats: Array, ints: Array):
        self._params, self._samples = params, samples
        self._floats, self._ints = floats, ints
        self.count = len(samples)

    @classmethod
    def of(cls, params: Any, samples: list[tuple[Any, ...]]) -> Batch | None:
        """Some samples; None where their structures differ, or are not plain."""
        first = flatten_call(samples[0], {}, differentiate=False)
        if first.comes_again or first.refused is not None or first.values or first.roots:
            return None
        floats = np.empty((len(samples), first.size))
        ints = np.empty((len(samples), len(first.ints)), np.int64)
        if kernels is not None:
            found = kernels.sample_numbers(samples, np.ndarray, np.float64, floats, ints)
            return cls(params, samples, floats, ints) if found == len(samples) else None
        for k, sample in enumerate(samples):
            call = flatten_call(sample, {}, differentiate=False)
            if call.key != first.key:
                return None
            call.write(floats[k])
            try:
                ints[k] = call.ints
            except OverflowError:
                return None
        return cls(params, samples, floats, ints)

    def arguments(self, k: int) -> tuple[Any, ...]:
        """The arguments of a call with sample k."""
        return (self._params, *self._samples[k])

    def several(self, some: Rows) -> Iterator[tuple[Any, ...]]:
        """The arguments of calls with some of them."""
        return map(self.arguments, some)

    def layout(self, call: Call) -> Layout:
        """Where their numbers are."""
        floats = Source(self._floats, call.first, self._floats.shape[1])
        ints = Source(self._ints, 0, self._ints.shape[1])
        return Layout((floats,), (ints,) if ints.count else ())


def _in_order(places: Any, nodes: Sequence[Node]) -> Iterator[tuple[int, Node]]:
    """Arguments by their place, and their structures; ``places``: as they are arranged."""
    for place, node in zip(places, nodes, strict=True):
        if isinstance(place, tuple):
            assert isinstance(node, Branch)
            yield from _in_order(place, node.items)
        else:
            yield place, node


def _nodes(node: Node) -> Iterator[Node]:
    """The leaves of a structure, in order."""
    if isinstance(node, Branch):
        for item in node.items:
            yield from _nodes(item)
    else:
        yield node


def _size(leaf: Node) -> tuple[Number | None, int]:
    """Whether a leaf is floats or integers, and how many; None: it is no number."""
    if isinstance(leaf, Numbers):
        return leaf.kind, math.prod(leaf.shape)
    if leaf is FLOAT or leaf is VALUE:
        return FLOAT, 1
    return (INT, 1) if leaf is INT else (None, 0)


def _with_axis_first(tree: Any, axis: int, path: str) -> Any:
    """A stacked argument with the axis of samples first; an error names what is no such array."""
    if type(tree) is np.ndarray:
        return _stack(tree, axis, path)
    paths = iter([where for where, _ in leaves(tree, path)])
    return map_leaves(lambda leaf: _stack(leaf, axis, next(paths)), tree, records=True)


def _stack(leaf: Any, axis: int, path: str) -> Array:
    if type(leaf) is not np.ndarray:
        if isinstance(leaf, np.ma.MaskedArray):
            raise TypeError(f"{path} is a masked array: fill what is masked, or leave it out")
        if isinstance(leaf, Value):
            raise TypeError(f"{path} is a Value: map takes numbers, in arrays")
        raise TypeError(
            f"{path} is a {type(leaf).__name__}, not an array of samples: stack them with "
            "np.array, or say None in in_axes to pass the argument to every sample"
        )
    if leaf.dtype.kind not in "fiub":
        what = "objects" if leaf.dtype == object else str(leaf.dtype)
        raise TypeError(f"{path} is an array of {what}, not of numbers")
    if not -leaf.ndim <= axis < leaf.ndim:
        raise ValueError(f"{path} has {leaf.ndim} axes, so that none is axis {axis}")
    return np.moveaxis(leaf, axis, 0)
