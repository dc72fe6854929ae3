"""The formulas of several recordings as one, for any size.

In: the ``Formulas`` of one function at several sizes, which are the same but for integers and plain
numbers. Out: ``Unified``, whose ``at`` gives the formulas at a size that was not recorded: each
number that differs follows the simplest law of the sizes that all recordings agree with.
A number that no size explains is an ``Untranslatable``, with the formula where it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.formulas.notation import (
    AffineIndex,
    Array,
    Axis,
    Number,
    Place,
    Ref,
    Select,
    Table,
)
from chainrule.compiler.lift.graph import NotLiftable
from chainrule.compiler.runtime.decisions import Runs
from chainrule.compiler.sizes.columns import Formula, Formulas, Read, Terms
from chainrule.compiler.translate.sizes.arguments import Dimension, dimensions
from chainrule.compiler.translate.sizes.laws import Polynomial, Scaled, Sizes, integer, real
from chainrule.compiler.translate.sizes.numbers import Different
from chainrule.compiler.translate.terms import Untranslatable

Point = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Sized:
    """Formulas at one size; ``grows``: by how much axes grow with each item of a list of integers.

    Of a ragged axis it is what is added to its length.
    """

    formulas: Formulas
    grows: dict[Axis, int]


class Unified:
    """The formulas of a function for any size."""

    def __init__(
        self, sizes: Sizes, found: Sequence[Formulas], inputs: Sequence[Sequence[Named]]
    ) -> None:
        self.sizes, self.found = sizes, found
        self.inputs = tuple(inputs[0])  # of the first recording
        self.dimensions: list[list[Dimension]] = dimensions(inputs, sizes)
        self._integers: dict[tuple[int, ...], Polynomial | None] = {}
        self._reals: dict[tuple[float, ...], Scaled | None] = {}
        self.length = self._length()
        self.at(sizes.points[0])  # which explains every number, or raises

    def _length(self) -> int | None:
        """The size that the lengths of integer lists depend on, and nothing else, if it is one."""
        lists, others = set[int](), set[int]()
        for named, dims in zip(self.inputs, self.dimensions, strict=True):
            used = {
                k
                for dimension in dims
                for _, monomial in (() if dimension.law is None else dimension.law.terms)
                for k, e in enumerate(monomial)
                if e
            }
            (lists if named.integers and len(dims) == 1 else others).update(used)
        return min(lists) if len(lists) == 1 and not lists & others else None

    def runs(self, point: Point) -> Runs:
        """How many integers each array of them has, and whether it is a list."""
        found = []
        for named, dims in zip(self.inputs, self.dimensions, strict=True):
            if named.integers:
                laws = [(x.size, x.law) for x in dims]
                sizes = dict(enumerate(point))
                counts = [size if law is None else int(law.at(sizes)) for size, law in laws]
                found.append((math.prod(counts), len(dims) == 1))
        return tuple(found)

    def point(self, inputs: Sequence[Named]) -> Point | None:
        """The sizes of arguments of these shapes; None where no sizes give them."""
        shapes = [named.shape for named in inputs]
        kinds = [(named.path, len(named.shape), named.integers) for named in inputs]
        if kinds != [(x.path, len(x.shape), x.integers) for x in self.inputs]:
            return None
        found: dict[int, int] = {}
        rows = [
            pair
            for shape, dims in zip(shapes, self.dimensions, strict=True)
            for pair in zip(shape, dims, strict=True)
        ]
        for count, dimension in rows:
            solved = None if dimension.law is None else dimension.law.solved
            if solved is not None:
                k, times, constant = solved
                size = (count - constant) / times
                if size.denominator != 1:
                    return None
                found.setdefault(k, int(size))
        if len(found) < len(self.sizes.names):
            return None
        for count, dimension in rows:
            law = dimension.law
            if count != (dimension.size if law is None else law.at(found)):
                return None
        return tuple([found[k] for k in range(len(found))])

    def at(self, point: Point) -> Sized:
        """The formulas at these sizes; NotLiftable where a number would be no integer."""
        return _At(self, point).sized()

    def integer(self, values: tuple[int, ...], point: Point, where: Callable[[], str]) -> int:
        """An integer at other sizes; ``values``: what it is in the recordings."""
        if values.count(values[0]) == len(values):
            return values[0]
        if values not in self._integers:
            self._integers[values] = integer(values, self.sizes)
        law = self._integers[values]
        if law is None:
            raise Untranslatable(_unexplained(values, self.sizes, where()))
        found = law.at(dict(enumerate(point)))
        if found.denominator != 1:
            raise NotLiftable(f"{law.code} is no whole number at these sizes")
        return int(found)

    def real(self, values: tuple[float, ...], point: Point, where: Callable[[], str]) -> float:
        """A plain number at other sizes."""
        if values.count(values[0]) == len(values):
            return values[0]
        if values not in self._reals:
            self._reals[values] = real(values, self.sizes)
        law = self._reals[values]
        if law is None:
            raise Untranslatable(_unexplained(values, self.sizes, where()))
        return law.at(point)


def _unexplained(values: Sequence[float], sizes: Sizes, formula: str) -> str:
    shown = [f"{x:.6g} at {sizes.text(k)}" for k, x in enumerate(values[:3])]
    return f"no size explains the number that is {', '.join(shown)}: {formula}"


@dataclass
class _Recorded:
    """One recording while it is walked: the new array or axis of each of its own."""

    formulas: Formulas
    arrays: dict[Array, int] = field(default_factory=dict)
    axes: dict[Axis, int] = field(default_factory=dict)


class _At:
    """Walks the formulas of all recordings at once, and makes those of another size."""

    def __init__(self, unified: Unified, point: Point) -> None:
        self.unified, self.point = unified, point
        self.recorded = [_Recorded(x) for x in unified.found]
        self.arrays: list[Array] = []
        self.axes: list[Axis] = []
        self.grows: dict[Axis, int] = {}
        self.formula: Formula | None = None  # the first recording's, for messages

    def sized(self) -> Sized:
        found = [x.formulas for x in self.recorded]
        self._same([len(x.formulas) for x in found], "the number of its formulas")
        self._same([len(x.outputs) for x in found], "the number of its results")
        inputs = tuple([self._array(some) for some in zip(*[x.inputs for x in found], strict=True)])
        made = [self._formula(some) for some in zip(*[x.formulas for x in found], strict=True)]
        outputs = [self._ref(some) for some in zip(*[x.outputs for x in found], strict=True)]
        return Sized(Formulas(inputs, tuple(made), tuple(outputs)), self.grows)

    # --- what must be the same --------------------------------------------------------------------

    def _same(self, values: Sequence[Any], what: str = "") -> None:
        if any(x != values[0] for x in values):
            raise Different(what or self._where())

    def _where(self) -> str:
        return "its arguments" if self.formula is None else str(self.formula)

    # --- numbers ----------------------------------------------------------------------------------

    def _integer(self, values: Sequence[int]) -> int:
        return self.unified.integer(tuple(values), self.point, self._where)

    def _real(self, values: Sequence[float]) -> float:
        return self.unified.real(tuple(values), self.point, self._where)

    def _growth(self, values: Sequence[int]) -> int:
        """How much more it is than where lists are shorter by one."""
        k = self.unified.length
        if k is None:
            return 0
        before = (*self.point[:k], self.point[k] - 1, *self.point[k + 1 :])
        try:
            less = self.unified.integer(tuple(values), before, self._where)
        except NotLiftable:
            return 0
        return self._integer(values) - less

    # --- arrays and axes --------------------------------------------------------------------------

    def _axes(self, rows: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
        self._same([len(row) for row in rows])
        made = []
        for some in zip(*rows, strict=True):
            self._same([axis.length is None for axis in some])
            counts = [axis.count for axis in some]
            lengths = [axis.length for axis in some if axis.length is not None]
            length = self._index(lengths) if lengths else None
            axis = Axis(self._integer(counts), some[0].family, length)
            grows = self._growth([x.constant for x in lengths] if lengths else counts)
            if grows:
                self.grows[axis] = grows
            for one, old in zip(self.recorded, some, strict=True):
                one.axes[old] = len(self.axes)
            self.axes.append(axis)
            made.append(axis)
        return tuple(made)

    def _array(self, some: Sequence[Array]) -> Array:
        made = Array(some[0].name, self._axes([array.axes for array in some]))
        for one, old in zip(self.recorded, some, strict=True):
            one.arrays[old] = len(self.arrays)
        self.arrays.append(made)
        return made

    def _known(self, some: Sequence[Array]) -> Array:
        """The new array of those that recordings have."""
        if isinstance(some[0], Table):
            tables = [x for x in some if isinstance(x, Table)]
            self._same([len(x.values) for x in tables] + [len(tables[0].values)])
            self._same([len(tables), len(some)])
            rows = zip(*[x.values for x in tables], strict=True)
            values = tuple([self._real(row) for row in rows])
            return Table(some[0].name, (Axis(len(values)),), values)
        places = [one.arrays.get(old) for one, old in zip(self.recorded, some, strict=True)]
        self._same(places)
        if places[0] is None:
            raise Different(self._where())
        return self.arrays[places[0]]

    # --- references -------------------------------------------------------------------------------

    def _index(self, some: Sequence[AffineIndex]) -> AffineIndex:
        self._same([len(x.parts) for x in some])
        parts = []
        for same in zip(*[x.parts for x in some], strict=True):
            axes = [one.axes.get(axis) for one, (_, axis) in zip(self.recorded, same, strict=True)]
            self._same(axes)
            if axes[0] is None:
                raise Different(self._where())
            parts.append((self._integer([times for times, _ in same]), self.axes[axes[0]]))
        constant = self._integer([x.constant for x in some])
        return AffineIndex(constant, tuple([part for part in parts if part[0]]))

    def _place(self, some: Sequence[Place]) -> Place:
        self._same([type(place) for place in some])
        if isinstance(some[0], AffineIndex):
            return self._index([x for x in some if isinstance(x, AffineIndex)])
        selects = [x for x in some if isinstance(x, Select)]
        if len(selects) < len(some):
            raise Different(self._where())
        self._same([len(x.at) for x in selects])
        rows = zip(*[x.at for x in selects], strict=True)
        at = [self._index([x for x in row if x is not None]) for row in rows]
        return Select(self._known([x.integers for x in selects]), tuple(at))

    def _ref(self, some: Sequence[Ref]) -> Ref:
        self._same([(len(x.arrays), len(x.places)) for x in some])
        arrays = [self._known(same) for same in zip(*[x.arrays for x in some], strict=True)]
        places = [self._place(same) for same in zip(*[x.places for x in some], strict=True)]
        return Ref(tuple(arrays), tuple(places))

    def _read(self, some: Sequence[Read]) -> Read:
        self._same([type(x) for x in some])
        if isinstance(some[0], Number):
            return Number(self._real([x.value for x in some if isinstance(x, Number)]))
        return self._ref([x for x in some if isinstance(x, Ref)])

    def _reads(self, rows: Sequence[tuple[Read, ...]]) -> tuple[Read, ...]:
        self._same([len(row) for row in rows])
        return tuple([self._read(some) for some in zip(*rows, strict=True)])

    # --- formulas ---------------------------------------------------------------------------------

    def _formula(self, some: Sequence[Formula]) -> Formula:
        self.formula = some[0]
        fixed = [(x.kind, x.rule, len(x.parameters), x.has_number, x.is_copy) for x in some]
        self._same(fixed)
        array = self._array([x.array for x in some])
        parameters = [self._real(row) for row in zip(*[x.parameters for x in some], strict=True)]
        operands = self._reads([x.operands for x in some])
        self._same([len(x.terms) for x in some])
        terms = [self._terms(same) for same in zip(*[x.terms for x in some], strict=True)]
        kind, rule, _, has_number, is_copy = fixed[0]
        return Formula(
            kind, rule, tuple(parameters), array, operands, has_number, tuple(terms), is_copy
        )

    def _terms(self, some: Sequence[Terms]) -> Terms:
        self._same([x.what for x in some])
        axes = self._axes([x.axes for x in some])
        return Terms(some[0].what, axes, self._reads([x.columns for x in some]))
