"""Formulas as an array program: the inverse of ``columns``.

In: the ``Formulas`` of a function at some size, and how many inputs its first argument has. Out: a
``Made``: the ``Program``, and what integers select in it. Columns of addresses are computed by
numpy, a whole instruction at a time; no number has an object of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.integers import IntegerProgram
from chainrule.compiler.capture.selection import Gather, Selection
from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
    Axis,
    Number,
    Ref,
    Select,
    Table,
)
from chainrule.compiler.lift.exactness import mark_exact
from chainrule.compiler.lift.graph import EXTREME, GATHER, NotLiftable
from chainrule.compiler.lift.program import COPY, Addresses, Instruction, Program, address_type
from chainrule.compiler.lift.program import Terms as Column
from chainrule.compiler.sizes.columns import Formula, Read, Terms
from chainrule.compiler.sizes.unified import Sized

ALWAYS = -(1 << 40)  # how much shorter a list may be for something to be there


@dataclass(frozen=True, eq=False)
class Made:
    """A program, what integers select in it, and the addresses of its results."""

    program: Program
    selection: Selection
    outputs: tuple[int, ...]


def program_of(sized: Sized, first: int, integers: Sequence[bool]) -> Made:
    """The program of some formulas.

    ``first``: how many inputs the first argument has, which all samples share; ``integers``: which
    arrays of inputs are integers.
    """
    return _Emitter(sized, first, integers).made()


class Points:
    """All points of some axes, in order: of what shorter calls do not have the last.

    ``late``: for each point the number of items that a list must at least have, less those it has.
    """

    def __init__(self, axes: Sequence[Axis], grows: dict[Axis, int]) -> None:
        self.axes = tuple(axes)
        self.shape = tuple([axis.count for axis in axes])
        if not all(count > 0 for count in self.shape):
            raise NotLiftable("an axis is empty at these sizes")
        self._rank = {axis: k for k, axis in enumerate(self.axes)}
        self._mask: npt.NDArray[np.bool_] | None = None
        late: Addresses = np.full((1,) * len(axes), ALWAYS, np.int64)
        for axis in self.axes:
            inside = self._along(axis)
            end: Addresses | int = axis.count
            if axis.length is not None:
                end = self.index(axis.length)
                held = inside < end
                self._mask = held if self._mask is None else self._mask & held
                if int(np.max(end)) > axis.count:
                    raise NotLiftable("an axis is longer than it may be at these sizes")
            if grows.get(axis, 0) < 0:
                raise NotLiftable("a shorter list has more of something")
            if axis in grows:
                late = np.maximum(late, -((end - 1 - inside) // grows[axis]))
        self.late = late
        if self._mask is not None:
            self._mask = np.broadcast_to(self._mask, self.shape)

    def _along(self, axis: Axis) -> Addresses:
        k = self._rank[axis]
        shape = [1] * len(self.axes)
        shape[k] = axis.count
        return np.arange(axis.count).reshape(shape)

    def index(self, place: AffineIndex) -> Addresses:
        """An index at every point, in as few dimensions as it moves along."""
        found: Addresses = np.full((1,) * len(self.axes), place.constant, np.int64)
        for times, axis in place.parts:
            found = found + times * self._along(axis)
        return found

    def row(self, x: Addresses) -> Addresses:
        """Something that is known for every point, in a row."""
        found = np.broadcast_to(x, self.shape)
        return found.ravel() if self._mask is None else found[self._mask]

    @property
    def is_in_order(self) -> bool:
        """Whether what shorter calls do not have comes last anyway."""
        return all(count == 1 for count in self.late.shape[1:])

    def table(self, start: int, kind: Any) -> tuple[Addresses, int]:
        """The address of each point where the first is at ``start``, and how many there are.

        -1 beyond the end of a ragged axis. ``kind``: the type of the addresses.
        """
        count = math.prod(self.shape) if self._mask is None else int(self._mask.sum())
        addresses: Addresses = np.arange(start, start + count, dtype=kind)
        if not self.is_in_order:
            order = np.argsort(self.row(self.late), kind="stable")
            moved = np.empty_like(addresses)
            moved[order] = addresses
            addresses = moved
        if self._mask is None:
            return addresses.reshape(self.shape), count
        found: Addresses = np.full(self.shape, -1, kind)
        found[self._mask] = addresses
        return found, count


class _Emitter:
    """Makes the instructions one after the other."""

    def __init__(self, sized: Sized, first: int, integers: Sequence[bool]) -> None:
        self.formulas, self.grows = sized.formulas, sized.grows
        self.tables: dict[Array, Addresses] = {}
        self.slots: dict[Array, Addresses] = {}  # of arrays of integers: which each is
        numbers = list(_numbers(self.formulas.formulas))
        self.constants = np.array([x for some in numbers for x in some], np.float64)
        sizes = [math.prod([axis.count for axis in x.axes]) for x in self.formulas.inputs]
        self.inputs = sum(sizes)
        self.shared = self.inputs + len(self.constants)
        results = [math.prod([a.count for a in x.axes]) for x in self.formulas.formulas]
        self.kind: Any = address_type(self.shared + sum(results))
        self.private = np.arange(first, self.inputs)
        self._next_number = self.inputs  # the address of the next constant
        at = slot = 0
        for array, size, is_integer in zip(self.formulas.inputs, sizes, integers, strict=True):
            shape = [axis.count for axis in array.axes]
            start = at if at < first else self.shared + at - first
            table: Addresses = np.arange(start, start + size, dtype=self.kind)
            self.tables[array] = table.reshape(shape)
            at += size
            if is_integer:
                self.slots[array] = (slot + np.arange(size)).reshape(shape)
                slot += size
        self.selection = _Selecting(slot)
        self.end = self.shared + len(self.private)  # of what has an address

    def made(self) -> Made:
        instructions = []
        for k, formula in enumerate(self.formulas.formulas):
            instructions.append(self._instruction(k, formula))
        address: Addresses = np.arange(self.end, dtype=self.kind)
        address[self.private] = self.shared + np.arange(len(self.private))
        program = Program(
            self.inputs,
            self.private,
            self.constants,
            self.end,
            instructions,
            address,
            np.zeros(0, np.int64),
            np.zeros(0),
            arranged=True,
        )
        mark_exact(program)
        point = Points((), {})
        outputs = [int(self._read(ref, point)[0]) for ref in self.formulas.outputs]
        return Made(program, self.selection.selection(), tuple(outputs))

    def _instruction(self, k: int, formula: Formula) -> Instruction:
        points, start = Points(formula.axes, self.grows), self.end
        table, count = points.table(start, self.kind)
        self.tables[formula.array] = table
        self.end += count
        key = (COPY + k if formula.is_copy else k,)
        made = Instruction(key, formula.kind, start, count, formula.rule, formula.parameters)
        order = None if points.is_in_order else np.argsort(points.row(table))
        if formula.kind == GATHER:
            (ref,) = formula.operands
            assert isinstance(ref, Ref)
            self._gather(made, ref, points, order)
            return made
        columns = [self._read(x, points) for x in formula.operands]
        columns = columns if order is None else [c[order] for c in columns]
        if formula.has_number:
            *columns, made.number = columns
        made.operands = columns
        made.products, made.plains = (
            self._sum([x for x in formula.terms if x.what == what], formula, table, made)
            for what in ("products", "plains")
        )
        return made

    # --- sums -------------------------------------------------------------------------------------

    def _sum(
        self, parts: Sequence[Terms], formula: Formula, table: Addresses, made: Instruction
    ) -> Column | None:
        """The terms of sums; ``table``: the addresses of the results."""
        if not parts:
            return None
        rows, in_order = [], len(parts) == 1
        for part in parts:
            points = Points((*formula.axes, *part.axes), self.grows)
            inner = (1,) * len(part.axes)
            owners = points.row(table.reshape((*table.shape, *inner)))
            columns = [self._read(x, points) for x in part.columns]
            rows.append((owners, columns, points))
            in_order &= points.is_in_order
        owners, columns, points = rows[0]
        if not in_order:
            owners = np.concatenate([x for x, _, _ in rows])
            columns = [np.concatenate(some) for some in zip(*[x for _, x, _ in rows], strict=True)]
            late = np.concatenate([p.row(p.late) for _, _, p in rows])
            order = np.lexsort((owners, late))
            owners, columns = owners[order], [c[order] for c in columns]
        follows = bool((np.diff(owners) >= 0).all())
        made.reordered |= not follows
        counts = np.bincount(owners - made.start, minlength=made.count)
        each = int(counts[0]) if follows and (counts == counts[0]).all() else 0
        if made.kind == EXTREME and not follows:
            raise NotLiftable("the terms of a maximum grow with a list")
        return Column(owners, tuple(columns), each)

    # --- columns ----------------------------------------------------------------------------------

    def _read(self, x: Read, points: Points) -> Addresses:
        """A column: the address that is read at every point."""
        if isinstance(x, Number):
            self._next_number += 1
            return points.row(np.full((1,) * len(points.shape), self._next_number - 1, self.kind))
        if isinstance(x.arrays[0], Table):
            size = len(x.arrays[0].values)
            table = self._next_number + np.arange(size, dtype=self.kind)
            self._next_number += size
        else:
            tables = [self.tables[array] for array in x.arrays]
            table = tables[0] if len(tables) == 1 else np.stack(tables)
        return _looked_up(table, [self._index(place, points) for place in x.places], points)

    @staticmethod
    def _index(place: object, points: Points) -> Addresses:
        assert isinstance(place, AffineIndex)
        return points.index(place)

    def _gather(self, made: Instruction, ref: Ref, points: Points, order: Addresses | None) -> None:
        """What integers select: the candidates of each result, and which integers decide."""
        tables = [self.tables[array] for array in ref.arrays]
        table = tables[0] if len(tables) == 1 else np.stack(tables)
        fixed, moving, slots = [], [], []
        for k, place in enumerate(ref.places):
            if isinstance(place, Select):
                indices = [self._index(i, points) for i in place.at]
                slots.append(_looked_up(self.slots[place.integers], indices, points))
                moving.append(k)
            else:
                fixed.append(points.row(self._index(place, points)))
        sizes = [table.shape[k] for k in moving]
        rest = [table.shape[k] for k in range(table.ndim) if k not in moving]
        rows = np.moveaxis(table, moving, range(-len(moving), 0)).reshape(*rest, -1)
        where: Addresses = np.stack([*fixed, *slots])
        if order is not None:
            where = where[:, order]
        for row, size in zip(where, rest, strict=False):
            if row.min() < 0 or row.max() >= size:
                raise NotLiftable("an index is beyond the end of its array at these sizes")
        kinds, which = _distinct(where[: len(fixed)])
        tables = rows[tuple(kinds)].reshape(-1, rows.shape[-1])
        made.slots = where[len(fixed) :].max(axis=0)
        made.places = self.selection.places(tables, which, where[len(fixed) :], sizes)
        made.candidates = np.unique(tables)
        if made.candidates[0] < 0:
            raise NotLiftable("an integer selects from a ragged array")


def _numbers(formulas: Sequence[Formula]) -> Iterator[Sequence[float]]:
    """The plain numbers of formulas, in the order in which their columns are read."""
    for formula in formulas:
        products = [x for x in formula.terms if x.what == "products"]
        plains = [x for x in formula.terms if x.what == "plains"]
        inside = [x for terms in (*products, *plains) for x in terms.columns]
        for x in (*formula.operands, *inside):
            if isinstance(x, Number):
                yield (x.value,)
            elif isinstance(x.arrays[0], Table):
                yield x.arrays[0].values


def _looked_up(table: Addresses, indices: Sequence[Addresses], points: Points) -> Addresses:
    """The entries of a table at these indices, in a row."""
    held = np.ones((1,) * len(points.shape), np.bool_)
    inside = []
    for index, size in zip(indices, table.shape, strict=True):
        held = held & (index >= 0) & (index < size)
        inside.append(np.clip(index, 0, size - 1))
    found = table[tuple(inside)] if inside else np.full((1,) * len(points.shape), table[()])
    if not held.all():
        found = np.where(held, found, -1)
    row = points.row(found)
    if found.min() < 0 and row.min() < 0:
        raise NotLiftable("an index is beyond the end of its array at these sizes")
    return row


def _distinct(columns: Addresses) -> tuple[Addresses, Addresses]:
    """The distinct columns of a table, and which of them each column is."""
    if not len(columns):
        return np.zeros((0, 1), np.int64), np.zeros(columns.shape[1], np.int64)
    found, which = np.unique(columns, axis=1, return_inverse=True)
    return found, which.ravel()


class _Selecting:
    """What integers select, while gathers are made."""

    def __init__(self, arguments: int) -> None:
        self.arguments = arguments
        self._gathers: list[Gather] = []
        self._owners: list[Addresses] = []
        self._constants: dict[int, int] = {}
        self._steps: list[tuple[str, tuple[tuple[str, int], ...]]] = []

    def places(
        self, tables: Addresses, which: Addresses, slots: Addresses, sizes: Sequence[int]
    ) -> Addresses:
        """The gathers of one instruction; equal ones are one, and share their candidates.

        ``which``: for each result, the row of ``tables`` that it is selected from.
        """
        distinct, owners = _distinct(np.vstack([which[None, :], slots]))
        first = len(self._gathers)
        candidates = list(tables.astype(np.int32))
        nodes: dict[tuple[int, ...], int] = {}
        for k, *integers in distinct.T.tolist():
            key = tuple(integers)
            if key not in nodes:
                nodes[key] = self._node(key, sizes)
            self._gathers.append(Gather(candidates[k], nodes[key]))
        at = sum(map(len, self._owners))
        self._owners.append(first + owners)
        return at + np.arange(len(self._owners[-1]))

    def _node(self, integers: Sequence[int], sizes: Sequence[int]) -> int:
        """The node of an index: an integer, or several joined; steps are numbered from -1."""
        if len(integers) == 1:
            return integers[0]
        node = None
        for integer, size in zip(integers, sizes, strict=True):
            inside = self._step("wrap", ("argument", integer), ("constant", self._constant(size)))
            if node is None:
                node = inside
                continue
            times = self._step("mul", ("step", node), ("constant", self._constant(size)))
            node = self._step("add", ("step", times), ("step", inside))
        assert node is not None
        return -1 - node

    def _constant(self, number: int) -> int:
        return self._constants.setdefault(number, len(self._constants))

    def _step(self, name: str, *operands: tuple[str, int]) -> int:
        self._steps.append((name, operands))
        return len(self._steps) - 1

    def selection(self) -> Selection:
        """All of them."""
        first = self.arguments + len(self._constants)  # step
        begins = {"argument": 0, "constant": self.arguments, "step": first}
        steps = [(name, tuple([begins[kind] + k for kind, k in xs])) for name, xs in self._steps]
        program = IntegerProgram(self.arguments, tuple(self._constants), tuple(steps), ())
        gathers = [
            Gather(x.candidates, first - 1 - x.index) if x.index < 0 else x for x in self._gathers
        ]
        owners = np.array([*itertools.chain(*[x.tolist() for x in self._owners])], np.int32)
        return Selection(program, tuple(gathers), np.arange(len(owners), dtype=np.int32), owners)
