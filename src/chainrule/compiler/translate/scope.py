"""What a source knows while it is written: arrays and their names, masks, tables, helpers.

In: arrays of formulas as lines define them. Out: for an array, a ``Stored``: the text that reads it
and in which order its dimensions lie; and the constants that the module begins with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from chainrule.compiler.formulas.notation import Array, Axis, Table
from chainrule.compiler.translate.dialects import Dialect
from chainrule.compiler.translate.terms import (
    ATOM,
    POWER,
    PRODUCT,
    Term,
    Untranslatable,
    number_code,
)

if TYPE_CHECKING:
    from chainrule.compiler.translate.integers import IntegerCode

LONGEST_TABLE = 10_000  # numbers that are written into a source


@dataclass(frozen=True, eq=False)
class Stored:
    """An array that the source has a name for.

    ``turns``: which dimension of the formula's array each of its own is. ``zero``: its own that are
    ragged, and 0 beyond the end. ``offset``: how many of time come before 0.
    """

    code: str
    sizes: tuple[int, ...]
    turns: tuple[int, ...]
    zero: frozenset[int] = frozenset()
    offset: int = 0
    integers: bool = False

    @classmethod
    def plain(cls, code: str, sizes: Sequence[int], integers: bool = False) -> Stored:
        """One whose dimensions lie as the formula has them."""
        return cls(code, tuple(sizes), tuple(range(len(sizes))), integers=integers)

    @classmethod
    def of(cls, code: str, axes: Sequence[Axis], term: Term) -> Stored:
        """One that was computed as a term; ``axes`` are the formula's."""
        turns = tuple([list(axes).index(axis) for axis in term.axes])
        zero = frozenset(k for k, axis in enumerate(term.axes) if axis in term.zero)
        return cls(code, tuple([axis.count for axis in term.axes]), turns, zero)


@dataclass(eq=False)
class Scope:
    """Everything that has a name in a source."""

    dialect: Dialect
    taken: set[str]
    stored: dict[Array, Stored] = field(default_factory=dict)
    #: numbers of an array that were computed one by one, by their place
    pieces: dict[Array, dict[tuple[int, ...], str]] = field(default_factory=dict)
    #: the last of a loop's results, where they are carried: how many there are, and its name
    lasts: dict[Array, tuple[int, Stored]] = field(default_factory=dict)
    masks: dict[tuple[object, ...], tuple[str, str]] = field(default_factory=dict)
    tables: dict[tuple[object, ...], str] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    casts: bool = False  # numbers of tables get the type of the parameters
    like: str = ""  # an array of the arguments, for its type and device
    integers: IntegerCode | None = None  # writes what is computed from the integers passed
    detached: set[Array] = field(default_factory=set)  # of which nobody asks for the derivative

    def fresh(self, wanted: str) -> str:
        """A name that nothing else has."""
        name, k = wanted, 1
        while name in self.taken:
            k += 1
            name = f"{wanted}{k}"
        self.taken.add(name)
        return name

    def find(self, array: Array) -> Stored:
        """Where an array is."""
        if isinstance(array, Table):
            return Stored.plain(self.table(np.array(array.values)), [len(array.values)])
        found = self.stored.get(array)
        if found is None:
            raise Untranslatable(f"{array.name or 'an array'} is read before all of it is computed")
        return found

    def table(self, values: np.typing.NDArray[np.generic], name: str = "") -> str:
        """Plain numbers, as a constant of the module, under this name if it is new."""
        if values.size > LONGEST_TABLE:
            raise Untranslatable(f"it has a table of {values.size:,} numbers")
        key = (values.dtype.kind, values.shape, values.tobytes())
        if key not in self.tables:
            name = name or ("NUMBERS" if values.dtype.kind == "f" else "PLACES")
            self.tables[key] = self.fresh(name)
        template = self.dialect.table if values.dtype.kind == "f" else self.dialect.places
        self.casts |= "dtype" in template
        return template.format(self.tables[key], self.like)

    def numbers(self, term: Term) -> Term:
        """Integers or truths as numbers."""
        template = self.dialect.numbers
        level = PRODUCT if "*" in template else ATOM
        return replace(term, code=template.format(term.bracketed(POWER), self.like), level=level)

    def tensor(self, term: Term) -> Term:
        """A term where an array is needed, also if it is a number of Python's."""
        if not term.plain or self.dialect.number == "{0}":
            return term
        return Term(self.dialect.number.format(term.code, self.like))

    def filled(self, count: int, number: float) -> str:
        """The same number so many times."""
        integers, word = isinstance(number, int), str(number)
        kind = ", dtype=torch.int64" if integers else ""
        word = word if integers else number_code(number)
        return self.dialect.filled.format(count, self.like, word, kind)

    def mask(self, axis: Axis, order: Sequence[Axis]) -> Term:
        """Whether an index lies before the end of a ragged axis, over the axes that decide it."""
        assert axis.length is not None
        parts = sorted(axis.length.parts, key=lambda part: list(order).index(part[1]))
        sizes = tuple([(times, other.count) for times, other in parts])
        key = (axis.count, axis.length.constant, sizes)
        if key not in self.masks:
            module, words = self.dialect.constants, list[str]()
            for k, (times, count) in enumerate(sizes):
                counted = f"{module}.arange({count})[:, {', '.join(['None'] * (len(sizes) - k))}]"
                words.append(counted if times == 1 else f"{times} * {counted}")
            right = " + ".join(words).replace("+ -", "- ")
            constant = axis.length.constant
            is_causal = constant == 1 and len(sizes) == 1 and sizes[0][0] == 1
            if is_causal:
                code = f"{module}.arange({axis.count}) <= {right}"
            else:
                right += f" {'-' if constant < 0 else '+'} {abs(constant)}" if constant else ""
                code = f"{module}.arange({axis.count}) < {right}"
            self.masks[key] = (self.fresh("CAUSAL" if is_causal else "INSIDE"), code)
        code = self.dialect.truths.format(self.masks[key][0], self.like)
        return Term(code, (*[other for _, other in parts], axis))

    def constants(self) -> list[str]:
        """The lines that define masks and tables."""
        lines = [f"{name} = {code}" for name, code in self.masks.values()]
        for (kind, shape, raw), name in self.tables.items():
            assert isinstance(raw, bytes)
            assert isinstance(shape, tuple)
            values = np.frombuffer(raw, np.float64 if kind == "f" else np.int64).reshape(shape)
            template = self.dialect.floats if kind == "f" else self.dialect.integers
            lines.append(f"{name} = {template.format(_literal(values))}")
        return lines


def _literal(values: np.typing.NDArray[np.generic]) -> str:
    """Numbers as nested lists that Python reads back exactly."""
    if values.ndim == 0:
        x = values.item()
        return number_code(x) if isinstance(x, float) else str(x)
    return f"[{', '.join(_literal(np.asarray(row)) for row in values)}]"
