"""The argument that a function is differentiated by, as one vector of numbers.

A function's first argument comes in: a number, an array, a rectangular sequence of numbers, or
dicts, lists, tuples and dataclasses of those. Out goes an ``Argument``: the tree with a ``Block``
at each of its leaves, and all the numbers in one row. So a transform thinks of one vector only.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.core import errors
from chainrule.core.backend import Value, kernels, modes
from chainrule.trees import (
    Array,
    Leaf,
    build_record,
    field_names,
    is_named_tuple,
    is_record,
    map_leaves,
)


class Block:
    """One number, array or rectangular sequence of an argument, and where its numbers are."""

    def __init__(self, original: Any, shape: tuple[int, ...], start: int) -> None:
        self.original, self.shape, self.start = original, shape, start

    @property
    def stop(self) -> int:
        """The position after its last number."""
        return self.start + math.prod(self.shape)

    @property
    def is_number(self) -> bool:
        """Whether it was a plain number, and its derivative is to be one too."""
        return not self.shape and not isinstance(self.original, np.ndarray)


@dataclass(frozen=True)
class Argument:
    """An argument in two halves: its tree, a Block at every leaf, and its numbers in a row."""

    tree: Any
    numbers: list[Value | float]
    names: list[str]

    @property
    def has_values(self) -> bool:
        """Whether there are Values in it, so that derivatives are to be Values too."""
        return any(isinstance(x, Value) for x in self.numbers)

    def map(self, function: Callable[[Block], Any]) -> Any:
        """The tree with ``function`` applied to every Block."""
        return map_leaves(function, self.tree, records=True)

    def filled(self, values: Sequence[Any]) -> Any:
        """The argument as it came, with Values for numbers: arrays stay arrays, lists lists."""

        def fill(block: Block) -> Any:
            part = values[block.start : block.stop]
            if isinstance(block.original, np.ndarray):
                return array_of(part, block.shape, object)
            return _refilled(block.original, iter(part))

        return self.map(fill)

    def like(self, row: Sequence[Any]) -> Any:
        """A number for each of the argument's, in its own containers."""

        def fill(block: Block) -> Any:
            part = row[block.start : block.stop]
            if isinstance(block.original, np.ndarray):
                return _array_like(block.shape, part)
            return _refilled(block.original, iter(part))

        return self.map(fill)

    def results(self, matrix: Array, shape: tuple[int, ...] = ()) -> Any:
        """The columns of ``matrix`` in this tree, each block as an array ``shape + its shape``."""

        def cut(block: Block) -> Any:
            part = matrix[..., block.start : block.stop].reshape(shape + block.shape)
            return part.item() if block.is_number and not shape else part

        return self.map(cut)


def flatten_argument(argument: Any, name: str = "x", several: bool = False) -> Argument:
    """Read the numbers out of an argument; a TypeError names the place of what is not one.

    ``several``: it is a tuple of arguments, each of which has a derivative of its own.
    """
    numbers: list[Value | float] = []
    names: list[str] = []

    def walk(x: Any, path: str) -> Any:
        start, shape = len(numbers), _shape(x)
        if shape is not None:
            for place, number in _places(x, path):
                numbers.append(_checked_number(number, place))
                names.append(place)
            return Block(x, shape, start)
        if isinstance(x, Mapping):
            return {key: walk(item, f"{path}[{key!r}]") for key, item in x.items()}
        if is_record(x):
            fields = [(name, getattr(x, name)) for name in field_names(x)]
            return build_record(type(x), [walk(item, f"{path}.{name}") for name, item in fields])
        return _like(x, [walk(item, f"{path}[{i}]") for i, item in enumerate(x)])

    if several:
        trees = [walk(item, f"{name}[{i}]") for i, item in enumerate(argument)]
        return Argument(tuple(trees), numbers, names)
    return Argument(walk(argument, name), numbers, names)


def flatten_results(result: Any) -> Argument:
    """What a function returned, in the same two halves; its items may be anything."""
    items: list[Any] = []

    def walk(x: Any) -> Any:
        start, shape = len(items), _shape(x)
        if shape is not None:
            items.extend(item for _, item in _places(x, ""))
            return Block(x, shape, start)
        if isinstance(x, Mapping):
            return {key: walk(item) for key, item in x.items()}
        if is_record(x):
            return build_record(type(x), [walk(getattr(x, name)) for name in field_names(x)])
        return _like(x, [walk(item) for item in x])

    return Argument(walk(result), items, [])


# --- the usual arguments, natively ----------------------------------------------------------------


def usual_values(x: Any) -> tuple[Any, list[Value]] | None:
    """An argument of plain numbers, containers and arrays with Values in it, and these; or None.

    It is what ``flatten_argument`` and ``filled`` give, in a hundredth of the time.
    """
    if usual is None or modes.recorder is not None:
        return None
    found: tuple[Any, list[Value]] | None = usual.with_values(x)
    return found


def usual_like(x: Any, row: list[Any]) -> Any:
    """A number for each of such an argument's, in its own containers: what ``like`` gives."""
    assert usual is not None
    return usual.with_numbers(x, row)


def _with_values(array: Array, leaves: list[Value]) -> Array | None:
    """An array of Values, which go into the row too; None where it does not hold numbers."""
    if array.dtype.kind not in "fiu":
        return None
    found = usual_values(array.astype(np.float64).ravel().tolist())
    assert found is not None
    leaves += found[1]
    return array_of(found[1], array.shape, object)


def _with_numbers(array: Array, row: list[Any], at: int) -> Array:
    return _array_like(array.shape, row[at : at + array.size])


def _array_like(shape: tuple[int, ...], items: Sequence[Any]) -> Array:
    kinds = set(map(type, items))
    dtype = object if any(issubclass(kind, Value) for kind in kinds) else np.float64
    return array_of(items, shape, dtype)


#: what looks into the usual arguments; None on the reference engine
usual = (
    None
    if kernels is None
    else kernels.Arguments(
        np.ndarray,
        np.empty,
        (np.float64, np.float32, np.int64),
        Leaf,
        dataclasses.fields(Argument)[0]._field_type,  # type: ignore[attr-defined]
        _with_values,
        _with_numbers,
    )
)


# --- any argument ---------------------------------------------------------------------------------


def _shape(x: Any) -> tuple[int, ...] | None:
    """The shape of a number, an array or a rectangular sequence; None for a tree of several."""
    if isinstance(x, np.ndarray):
        shape: tuple[int, ...] = x.shape
        return shape
    if isinstance(x, Mapping) or is_named_tuple(x) or is_record(x):
        return None
    if not is_sequence(x):
        return ()
    # A list of arrays is a tree: its arrays stay arrays, and need not be of one shape.
    return stacked([None if isinstance(item, np.ndarray) else _shape(item) for item in x])


def stacked(shapes: Sequence[tuple[int, ...] | None]) -> tuple[int, ...] | None:
    """The shape of a sequence whose items have these; None where they differ or are unknown."""
    inner = shapes[0] if shapes else ()
    if inner is None or any(shape != inner for shape in shapes):
        return None
    return (len(shapes), *inner)


def _places(x: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every number of an array or nested sequences, and its place: ``x[1][2]``."""
    if isinstance(x, np.ndarray):
        for index in np.ndindex(x.shape):
            yield path + "".join(f"[{i}]" for i in index), x[index]
    elif is_sequence(x):
        for i, item in enumerate(x):
            yield from _places(item, f"{path}[{i}]")
    else:
        yield path, x


def is_number(x: object) -> bool:
    """Whether ``x`` is something to differentiate with respect to, or to differentiate."""
    # A bool is a Real to Python, but as an argument or a result it is a slip of the pen.
    return isinstance(x, Value) or (errors.is_real(x) and not isinstance(x, (bool, np.bool_)))


def _checked_number(x: Any, path: str) -> Value | float:
    if is_number(x):
        # While a compiled function is recorded, a number may stand for those of other calls.
        return x if isinstance(x, Value) or modes.recorder is not None else float(x)
    raise TypeError(
        f"{path} is {errors.describe(x)}, and there is no derivative with respect to that: pass "
        "numbers, Values, or arrays, lists, tuples, dicts and dataclasses of them, and what is not "
        "to be differentiated as a further argument"
    )


def is_sequence(x: object) -> bool:
    """Whether ``x`` is a sequence of things, which a text is not."""
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes, bytearray))


def _like(original: Any, items: list[Any]) -> Any:
    """The items in the container they came in."""
    if is_named_tuple(original):
        return type(original)(*items)
    return tuple(items) if isinstance(original, tuple) else items


def _refilled(original: Any, values: Iterator[Any]) -> Any:
    if not is_sequence(original):
        return next(values)
    return _like(original, [_refilled(item, values) for item in original])


def array_of(items: Sequence[Any], shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of these items, in this shape; Values are not looked into."""
    if dtype is np.float64 and modes.recorder is not None:
        recorded: Array = modes.recorder.array(items, shape)
        return recorded
    if dtype is object:  # which is quicker than to assign what numpy takes for sequences first
        return np.fromiter(items, object, len(items)).reshape(shape)
    array = np.empty(len(items), dtype)
    array[:] = items
    return array.reshape(shape)
