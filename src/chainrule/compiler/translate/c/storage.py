"""Where the arrays of formulas are in the source: arguments, work memory, tables.

In: arrays, and indices that are affine in axes or selected by integers. Out: the text of one number
of an array, ``work->f[48 * t + 16 * c + i]``, and of its adjoint: the derivative of the result by
it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from chainrule.compiler.formulas.notation import AffineIndex, Array, Axis, Place, Ref, Select, Table
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.translate.c.languages import Language
from chainrule.compiler.translate.terms import Untranslatable

ITEM = "item"  # the helper that counts an index from the beginning


@dataclass(eq=False)
class Stored:
    """One array in the source: how its numbers and its adjoints are reached."""

    value: str
    adjoint: str
    sizes: tuple[int, ...]
    offset: int = 0  # added to its first index: iterations before the first of a loop
    by_value: bool = False  # a parameter that is a number, not a pointer
    adjoint_pointer: bool = False  # the adjoint of a single number is behind a pointer

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.sizes)


@dataclass(eq=False)
class Tabled(Array):
    """Numbers whose places follow no rule: the array each is in, and where."""

    owners: tuple[Array, ...] = ()
    which: Addresses = field(default_factory=lambda: np.zeros(0, np.int64))
    places: Addresses = field(default_factory=lambda: np.zeros(0, np.int64))
    #: for numbers that integers select: before the places of its candidates, and the choice
    begins: Addresses | None = None
    chosen: Addresses | None = None


class Storage:
    """All arrays of a source."""

    def __init__(self, language: Language, taken: set[str]) -> None:
        self.language = language
        self.stored: dict[Array, Stored] = {}
        self.tables: dict[tuple[str, tuple[float, ...]], str] = {}
        self.sets: dict[tuple[Array, ...], str] = {}  # those that the function at hand uses
        self.adjoint_sets: dict[tuple[Array, ...], str] = {}
        self.taken, self.parameters = taken, frozenset(taken)
        self.active: set[Array] = set()  # that the differentiated argument has a part in
        self.adjoints: dict[Array, None] = {}  # of these, whose adjoints are used
        self.items = False  # whether an index is counted from the end
        self.is_unsure = False  # whether anything is noted

    def fresh(self, name: str) -> str:
        """A name that nothing has."""
        name = re.sub(r"\W+", "_", name).strip("_") or "x"
        found, k = name, 2
        while found in self.taken:
            found, k = f"{name}{k}", k + 1
        self.taken.add(found)
        return found

    def work(self, array: Array, sizes: tuple[int, ...], offset: int = 0) -> None:
        """Give an array a place in work memory."""
        before, adjoint = self.language.work, self.fresh(f"d_{array.name}")
        self.stored[array] = Stored(f"{before}{array.name}", f"{before}{adjoint}", sizes, offset)

    def unsure(self) -> str:
        """Where it is noted that rounding may have decided something."""
        self.is_unsure = True
        return f"{self.language.work}unsure{self.language.scalar}"

    def table(self, values: Sequence[float] | Addresses, kind: str) -> str:
        """The name of a table of numbers."""
        key = kind, tuple(values.tolist() if isinstance(values, np.ndarray) else values)
        if key not in self.tables:
            self.tables[key] = self.fresh("NUMBERS" if kind == "double" else "PLACES")
        return self.tables[key]

    # --- indices ----------------------------------------------------------------------------------

    def index(
        self, places: Sequence[Place], array: Array, letters: Mapping[Axis, str]
    ) -> str | None:
        """The flat index of a number in an array; None where there is only one."""
        stored = self.stored[array]
        if not stored.sizes:
            return None
        constant, parts, words = 0, dict[Axis, int](), list[str]()
        for k, place in enumerate(places):
            stride = math.prod(stored.sizes[k + 1 :])
            if isinstance(place, Select):
                word = self._selected(place, stored.sizes[k], letters)
                words.append(word if stride == 1 else f"{stride} * {word}")
                continue
            assert isinstance(place, AffineIndex)
            constant += stride * (place.constant + (stored.offset if k == 0 else 0))
            for times, axis in place.parts:
                parts[axis] = parts.get(axis, 0) + stride * times
        return affine(constant, parts, words, letters)

    def _selected(self, place: Select, count: int, letters: Mapping[Axis, str]) -> str:
        inside = [x for x in place.at if x is not None]
        if len(inside) < len(place.at) or place.integers not in self.stored:
            raise Untranslatable("integers of several arguments select a number")
        integer = self.text(place.integers, self.index(inside, place.integers, letters))
        self.items = True
        return f"{ITEM}({integer}, {count})"

    # --- numbers ----------------------------------------------------------------------------------

    def text(self, array: Array, index: str | None, adjoint: bool = False) -> str:
        """One number of an array, or its adjoint."""
        stored = self.stored[array]
        name = stored.adjoint if adjoint else stored.value
        if index is not None:
            return f"{name}[{index}]"
        if adjoint and stored.adjoint_pointer and not self.language.scalar:
            return f"*{name}"
        return name + self.language.scalar

    def place(self, ref: Ref, letters: Mapping[Axis, str], adjoint: bool = False) -> str:
        """What a reference reads, or its adjoint."""
        arrays, places = ref.arrays, list(ref.places)
        if isinstance(arrays[0], Tabled):
            return self._tabled(ref, arrays[0], letters, adjoint)
        if isinstance(arrays[0], Table):
            (place,) = places
            assert isinstance(place, AffineIndex)
            text = affine(place.constant, {a: k for k, a in place.parts}, [], letters)
            return f"{self.table(arrays[0].values, 'double')}[{text}]"
        if len(arrays) == 1:
            return self._one(arrays[0], places, letters, adjoint)
        which = places.pop(0)
        assert isinstance(which, AffineIndex)
        if not which.parts:
            return self._one(arrays[which.constant], places, letters, adjoint)
        index = self.index(places, arrays[0], letters)
        return f"{self._member(ref, letters, adjoint)}[{'0' if index is None else index}]"

    def has_adjoint(self, ref: Ref, letters: Mapping[Axis, str]) -> str | None:
        """The condition under which a number of one of several arrays has an adjoint."""
        arrays = ref.arrays[0].owners if isinstance(ref.arrays[0], Tabled) else ref.arrays
        if all(a in self.active for a in arrays):
            return None
        return self._member(ref, letters, True)

    def _member(self, ref: Ref, letters: Mapping[Axis, str], adjoint: bool) -> str:
        """The array that a reference to one of several reads."""
        place, array = ref.places[0], ref.arrays[0]
        assert isinstance(place, AffineIndex)
        at = affine(place.constant, {a: k for k, a in place.parts}, [], letters)
        if not isinstance(array, Tabled):
            return f"{self.set(ref.arrays, adjoint)}[{at}]"
        which = self._looked_up(array.which, self._chosen(array, at))
        return f"{self.set(array.owners, adjoint)}[{which}]"

    def _one(
        self, array: Array, places: list[Place], letters: Mapping[Axis, str], adjoint: bool
    ) -> str:
        if adjoint:
            self.adjoints[array] = None
        return self.text(array, self.index(places, array, letters), adjoint)

    def set(self, arrays: tuple[Array, ...], adjoint: bool) -> str:
        """The name of a table of arrays."""
        sets = self.adjoint_sets if adjoint else self.sets
        if adjoint:
            self.adjoints.update(dict.fromkeys([a for a in arrays if a in self.active]))
        if arrays not in sets:
            names = "_".join(re.sub(r"\W+", "_", a.name).strip("_") for a in arrays[:4])
            names = names if names and len(names) <= 24 else "arrays"
            sets[arrays] = self.fresh(f"d_{names}" if adjoint else names)
        return sets[arrays]

    def _tabled(self, ref: Ref, array: Tabled, letters: Mapping[Axis, str], adjoint: bool) -> str:
        (place,) = ref.places
        assert isinstance(place, AffineIndex)
        at = affine(place.constant, {a: k for k, a in place.parts}, [], letters)
        index = self._looked_up(array.places, self._chosen(array, at))
        if len(array.owners) > 1:
            return f"{self._member(ref, letters, adjoint)}[{index}]"
        (owner,) = array.owners
        if isinstance(owner, Table):
            return f"{self.table(owner.values, 'double')}[{index}]"
        if adjoint:
            self.adjoints[owner] = None
        return self.text(owner, index if self.stored[owner].sizes else None, adjoint)

    def _chosen(self, array: Tabled, at: str) -> str:
        """Where among all candidates the one is that integers select."""
        if array.begins is None:
            return at
        assert array.chosen is not None
        chosen = self.text(CHOSEN, self._looked_up(array.chosen, at))
        return f"{self._looked_up(array.begins, at)} + {chosen}"

    def _looked_up(self, values: Addresses, at: str) -> str:
        """One number of a table; where they are equally spaced no table is needed."""
        step = int(values[1] - values[0]) if len(values) > 1 else 0
        first = int(values[0])
        if (values == first + step * np.arange(len(values))).all():
            if step == 0:
                return str(first)
            word = at if step == 1 else f"{step} * ({at})"
            return (
                word if first == 0 else f"{word} + {first}" if first > 0 else f"{word} - {-first}"
            )
        return f"{self.table(values, 'int')}[{at}]"

    def declare_sets(self) -> None:
        """Write the tables of arrays that a function uses, at its beginning."""
        for sets, adjoint in ((self.sets, False), (self.adjoint_sets, True)):
            for arrays, name in sets.items():
                self.language.pointers(
                    name, [self._pointer(a, adjoint) for a in arrays], constant=not adjoint
                )
            sets.clear()

    def _pointer(self, array: Array, adjoint: bool) -> str:
        if adjoint and array not in self.active:
            return self.language.nothing
        if isinstance(array, Table):
            return self.table(array.values, "double")
        stored = self.stored[array]
        name = stored.adjoint if adjoint else stored.value
        if stored.sizes or self.language.scalar or (adjoint and stored.adjoint_pointer):
            return name
        return f"&{name}"


CHOSEN = Array("chosen")  # what integers select, computed before anything else


def affine(
    constant: int, parts: Mapping[Axis, int], words: Sequence[str], letters: Mapping[Axis, str]
) -> str:
    """An index as text: ``16 * t + i``."""
    made = " + ".join(words)
    for axis, times in sorted(parts.items(), key=lambda part: part[1] < 0):
        if times:
            word = letters[axis] if abs(times) == 1 else f"{abs(times)} * {letters[axis]}"
            if made:
                made += f" + {word}" if times > 0 else f" - {word}"
            elif times > 0:
                made = word
            else:  # 6 - i rather than -i + 6
                made, constant = f"{constant} - {word}", 0
    if not made:
        return str(constant)
    if constant:
        made += f" + {constant}" if constant > 0 else f" - {-constant}"
    return made
