"""What a generated program can name at some point: variables, their types, and bounds of integers.

The writers of expressions and statements ask a ``Scope`` for something of a type, and every integer
comes with the interval that it is known to lie in. So an index is in range when it is written, and
most programs run without an error.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Type:
    """The type of an expression.

    ``kind`` is one of: value, float, int, bool, str (scalars); values, floats, ints, bools, strs
    (sequences of at least ``length`` items, exactly so when ``fixed``); matrix and table (rows
    of values, and of ints); rows (lists of ints of any length); varray, vmatrix, farray, iarray,
    barray (numpy arrays). ``low`` and ``high`` bound ints, and the ints inside sequences.
    """

    kind: str
    length: int = 0
    width: int = 0
    low: int = -1000
    high: int = 1000
    fixed: bool = True
    mutable: bool = False


@dataclass(frozen=True)
class Int:
    """An integer expression and its bounds."""

    text: str
    low: int
    high: int


@dataclass(frozen=True)
class Name:
    """Something that can be written down to get an object: a variable, or ``p["w"]``."""

    text: str
    type: Type
    assignable: bool = False
    weight: float = 2.0  # how often it is chosen: arguments and loop variables more than globals


@dataclass(frozen=True)
class Helper:
    """A function that a program can call: its name as written, its arguments and its result."""

    text: str
    arguments: tuple[tuple[str, Type], ...]
    keywords: tuple[tuple[str, Type], ...]
    result: Type


@dataclass
class Scope:
    """The names of one function while it is being written."""

    rng: random.Random
    names: list[Name] = field(default_factory=list)
    helpers: list[Helper] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    focus: bool = False  # integers and parameters only: small programs with many paths
    effects: bool = True  # whether prints and appends to the log may be written here
    loops: int = 0

    def of(self, *kinds: str) -> list[Name]:
        """The names whose type is one of these kinds."""
        return [name for name in self.names if name.type.kind in kinds]

    def add(
        self, text: str, type_: Type, assignable: bool = False, weight: float | None = None
    ) -> Name:
        """A new name; what belongs to a loop is chosen most often."""
        if weight is None:
            weight = 5.0 if self.loops else 2.0
        name = Name(text, type_, assignable, weight)
        self.names.append(name)
        return name

    def choose(self, names: Sequence[Name]) -> Name:
        """One of some names."""
        return self.rng.choices(names, [name.weight for name in names])[0]

    def fresh(self, *choices: str) -> str:
        """A variable name that is not used yet in this function."""
        free = [choice for choice in choices if choice not in self.used]
        name = self.rng.choice(free) if free else f"{choices[0]}{len(self.used)}"
        self.used.add(name)
        return name

    @contextmanager
    def block(self, loop: bool = False) -> Iterator[None]:
        """Names that are added inside are gone afterwards: a branch may not have been taken."""
        before = len(self.names)
        self.loops += loop
        yield
        self.loops -= loop
        del self.names[before:]

    def pick(self, options: Sequence[tuple[float, str]]) -> str:
        """One of some weighted words."""
        weights, words = zip(*options, strict=True)
        return self.rng.choices(words, weights)[0]


def item(type_: Type) -> Type:
    """The type of an element of a sequence."""
    kinds = {
        "values": "value",
        "varray": "value",
        "floats": "float",
        "farray": "float",
        "ints": "int",
        "iarray": "int",
        "bools": "bool",
        "barray": "bool",
        "strs": "str",
    }
    if type_.kind == "matrix":
        return Type("values", type_.width)
    if type_.kind == "vmatrix":
        return Type("varray", type_.width)
    if type_.kind == "table":
        return replace(type_, kind="ints", length=type_.width)
    if type_.kind == "rows":
        return Type("ints", 0, low=type_.low, high=type_.high, fixed=False)
    return replace(type_, kind=kinds[type_.kind], length=0)


def literal(rng: random.Random, kind: str, special: float = 0.4) -> str:
    """A float as text: often one of a few special ones, so that equalities hold sometimes."""
    if kind == "float" and rng.random() < special:
        return rng.choice(["0.0", "1.0", "0.5", "-1.0", "2.0"])
    return repr(round(rng.uniform(-1.5, 1.5), 3))
