"""Calls that are alike but for the lengths of their lists and arrays.

In: the keys of calls. Out: their ``outline``, which such calls have in common; the ``Places`` of a
shorter call's numbers among those of a longer one; and the ``Growth`` from one call to another, by
which calls of further lengths are made. Lengths of numbers in the first argument stay: these are
the parameters, and the gradient is theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call, flatten_call
from chainrule.compiler.lift.program import Addresses
from chainrule.trees import (
    FLOAT,
    INT,
    OBJECTS,
    STRIDES,
    TRUTH,
    VALUE,
    Branch,
    List,
    Node,
    Numbers,
    Text,
    Tuple,
    node,
)

Path = tuple[int, ...]  # to a list or an axis: which item of each container it is in
_ANY = -1  # in a path: whichever item of a list
_RAGGED = -1  # a length: of several lists in one place, which differ


@node
class Several(Node):
    """So many of one thing: a list or tuple of any length, a text, an array of any shape."""

    kind: type[Node]
    item: Node
    axes: int

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({self.item!r}...)"


def outline(structure: Node, only_integers: bool = False) -> Node:
    """The structure without lengths; ``only_integers``: without those of integers and texts."""
    if isinstance(structure, Branch):
        made = {item: outline(item, only_integers) for item in structure.kinds}
        shapes = set(made.values())
        if isinstance(structure, List | Tuple) and structure.kinds == {INT}:
            return Several(type(structure), INT, 1)
        if isinstance(structure, List) and len(shapes) == 1 and not only_integers:
            (shape,) = shapes
            if shape is not VALUE:
                return Several(List, shape, 1)
        return structure.map(made.__getitem__)
    if isinstance(structure, Numbers) and structure.shape:
        stays = only_integers and structure.kind is FLOAT
        return structure if stays else Several(Numbers, structure.kind, len(structure.shape))
    return Several(Text, INT, 1) if isinstance(structure, Text) else structure


def outline_of(key: Any, has_parameters: bool = True) -> Any:
    """The key of a call without lengths; ``has_parameters``: its first argument are these."""
    differentiate, structures, named, others = key
    shapes = tuple([outline(s, has_parameters and k == 0) for k, s in enumerate(structures)])
    kinds = tuple(sorted({kind for _, kind in others}))
    return differentiate, shapes, tuple([(name, outline(s)) for name, s in named]), kinds


def has_lengths(shape: Any) -> bool:
    """Whether an outline stands for calls of several lengths."""
    _, structures, named, _ = shape
    return any(map(_holds_several, [*structures, *[s for _, s in named]]))


def _holds_several(structure: Node) -> bool:
    if isinstance(structure, Branch):
        return any(map(_holds_several, structure.kinds))
    return isinstance(structure, Several)


def _parts(key: Any) -> Iterator[tuple[Path, Node, Node]]:
    """Each argument: where it is, its structure and its outline."""
    _, structures, named, _ = key
    for k, structure in enumerate((*structures, *[s for _, s in named])):
        yield (k,), structure, outline(structure, k == 0 and bool(structures))


def _items(
    path: Path, structure: Branch, shape: Node, each: bool = True
) -> Iterator[tuple[Path, Node, Node]]:
    """The same of what is in a container; of a list only what differs, unless ``each``."""
    if isinstance(shape, Several):
        inside = (*path, _ANY)
        for item in structure.items if each else dict.fromkeys(structure.items):
            yield inside, item, shape.item
        return
    assert isinstance(shape, Branch)
    for k, pair in enumerate(zip(structure.items, shape.items, strict=True)):
        yield (*path, k), *pair


# --- lengths, and how they grow -------------------------------------------------------------------


def lengths_of(key: Any) -> dict[Path, int]:
    """How long the lists of a call are, and the axes of its arrays, each by its path."""
    found: dict[Path, int] = {}
    for part in _parts(key):
        _add_lengths(*part, found)
    return found


def _add_lengths(path: Path, structure: Node, shape: Node, found: dict[Path, int]) -> None:
    if structure is shape:
        return  # it is its own outline: nothing in it has a length, as in most parameters

    def add(path: Path, length: int) -> None:
        known = found.setdefault(path, length)
        found[path] = length if known == length else _RAGGED

    if isinstance(structure, Branch):
        if isinstance(shape, Several):
            add(path, len(structure.items))
        for part in _items(path, structure, shape, each=False):
            _add_lengths(*part, found)
    elif isinstance(structure, Numbers) and isinstance(shape, Several):
        for axis, length in enumerate(structure.shape):
            add((*path, axis), length)
    elif isinstance(structure, Text):
        add(path, structure.length)


def are_within(a: Any, b: Any) -> bool:
    """Whether no list of a call is longer than in another of the same outline."""
    here, there = lengths_of(a), lengths_of(b)
    if _RAGGED in here.values() or _RAGGED in there.values():
        return Places.of(a, b) is not None
    return _is_within(here, there)


def _is_within(here: Mapping[Path, int], there: Mapping[Path, int]) -> bool:
    return all(n <= there.get(p, 0) for p, n in here.items())


def apart(lengths: Mapping[Path, int], growth: Growth) -> dict[Path, int]:
    """The same, no two of the growing lists as long as each other, or with one item more.

    Where they are, what is computed from the one length is what is computed from the other, in
    this call or in that with an item less in each list: once, and in most calls it is so twice.
    """
    made, taken = dict(lengths), set[int]()
    for path in sorted(growth.units, key=lengths.__getitem__):
        while not taken.isdisjoint((made[path] - 1, made[path], made[path] + 1)):
            made[path] += 1
        taken.add(made[path])
    return made


@dataclass(frozen=True)
class Growth:
    """By how many items each list grows in one step from a call to a longer one."""

    units: Mapping[Path, int]

    @classmethod
    def of_integers(cls, key: Any) -> Growth | None:
        """One more in each list of integers; None where there is none."""
        units: dict[Path, int] = {}
        for part in _parts(key):
            _add_integers(*part, units)
        return cls(units) if units else None

    @classmethod
    def between(cls, a: Any, b: Any) -> Growth | None:
        """From one call to another of the same outline; None where neither is the shorter one."""
        here, there = lengths_of(a), lengths_of(b)
        more = {p: there.get(p, 0) - n for p, n in here.items() if there.get(p) != n}
        if not more or here.keys() != there.keys():
            return None
        if any(_RAGGED in (here[p], there[p]) for p in more):
            return None
        if min(more.values()) < 0 < max(more.values()):
            return None
        common = math.gcd(*more.values())
        return cls({p: abs(n) // common for p, n in more.items()})

    @classmethod
    def independent(cls, keys: Sequence[Any]) -> Growth | None:
        """Of lists some of which are longer in one call and others in another; None: of none.

        Each is as likely to have one item more.
        """
        lengths = [lengths_of(key) for key in keys]
        if any(_RAGGED in each.values() or each.keys() != lengths[0].keys() for each in lengths):
            return None
        differ = [p for p in lengths[0] if len({each[p] for each in lengths}) > 1]
        if all(_is_within(a, b) or _is_within(b, a) for a, b in combinations(lengths, 2)):
            return None
        return cls(dict.fromkeys(differ, 1))

    def steps(self, key: Any) -> int:
        """How many steps the shortest of the growing lists of a call could be cut by."""
        lengths = lengths_of(key)
        return min([lengths[p] // unit for p, unit in self.units.items()], default=0)

    def resized(self, call: Call, steps: int) -> Call | None:
        """The call with so many steps more (or less); None where a list would be empty, or is."""
        lengths = lengths_of(call.key)
        if _RAGGED in [lengths[p] for p in self.units]:
            return None
        wanted = {p: lengths[p] + steps * unit for p, unit in self.units.items()}
        return with_lengths(call, wanted) if min(wanted.values(), default=0) > 0 else None


def _add_integers(path: Path, structure: Node, shape: Node, units: dict[Path, int]) -> None:
    """The lists, tuples, texts and rows of integers in a structure."""
    if isinstance(shape, Several) and shape.item is INT and shape.axes == 1:
        units[path if isinstance(structure, Branch | Text) else (*path, 0)] = 1
    elif isinstance(structure, Branch):
        for part in _items(path, structure, shape, each=False):
            _add_integers(*part, units)


class _IsAnother(Exception):
    """A list has other items than it had."""


def with_lengths(call: Call, wanted: Mapping[Path, int]) -> Call | None:
    """The same call with lists of other lengths: what it has more are its own items again.

    None where it has none, where lists in one place are to have several lengths, and where another
    thread has changed one since the call was flattened.
    """
    lengths = lengths_of(call.key)
    if any(n == _RAGGED or (n and not lengths[p]) for p, n in wanted.items()):
        return None
    originals = [*call.arguments, *call.keywords.values()]
    pairs = zip(_parts(call.key), originals, strict=True)
    try:
        made = [_resized(*part, x, wanted) for part, x in pairs]
    except _IsAnother:
        return None
    count = len(call.arguments)
    keywords = dict(zip(call.keywords, made[count:], strict=True))
    return flatten_call(tuple(made[:count]), keywords, bool(call.key[0]), call.texts)


def _resized(path: Path, structure: Node, shape: Node, x: Any, wanted: Mapping[Path, int]) -> Any:
    if isinstance(structure, Branch):
        items, children = list(_items(path, structure, shape)), list(structure.children(x))
        if len(items) != len(children):
            raise _IsAnother
        parts = list(zip(items, children, strict=True))
        if isinstance(shape, Several):
            parts = [parts[k % len(parts)] for k in range(wanted.get(path, len(parts)))]
        made = [_resized(*part, item, wanted) for part, item in parts]
        if isinstance(x, np.ndarray) and x.ndim > 1:
            return np.stack(made)
        if isinstance(x, np.ndarray):
            array = np.empty(len(made), object)
            array[:] = made
            return array
        return structure.build(made, x)
    if isinstance(structure, Numbers) and isinstance(shape, Several):
        axes = [
            np.arange(wanted.get((*path, axis), length)) % length
            for axis, length in enumerate(structure.shape)
        ]
        return x[np.ix_(*axes)]
    if isinstance(structure, Text):
        count = wanted.get(path, len(x))
        return (x * (1 + count // len(x)))[:count]
    return x


def vary_independently(keys: Sequence[Any]) -> bool:
    """Whether lists of some calls grow independently, or those in one place have many lengths."""
    ragged = any(_RAGGED in lengths_of(key).values() for key in keys)
    return ragged or Growth.independent(keys) is not None


# --- a shorter call among a longer one ------------------------------------------------------------


class _IsLonger(Exception):
    """A list is longer than in the other call."""


@dataclass(frozen=True, eq=False)
class Places:
    """Where the floats and integers of a call are among those of a longer one."""

    floats: Addresses
    integers: Addresses
    all_floats: int  # of the longer call
    all_integers: int

    @classmethod
    def of(cls, short: Any, long: Any) -> Places | None:
        """For the keys of two calls of one outline; None where the first has longer lists."""
        found = _Walk()
        pairs = zip(_parts(short), _parts(long), strict=True)
        try:
            for (_, mine, _), (_, theirs, _) in pairs:
                found.add(mine, theirs)
        except _IsLonger:
            return None
        if not found.same_kinds(short[3], long[3]):
            return None
        return cls(
            np.array(found.floats, np.int64),
            np.array(found.integers, np.int64),
            found.all_floats,
            found.all_integers,
        )

    @property
    def floats_stay(self) -> bool:
        """Whether every float is where it is in the longer call, and there are no more."""
        return len(self.floats) == self.all_floats

    def slots(self, numbers: int) -> Addresses:
        """Of the integers, and of ``numbers`` computed from them, which are the first ones."""
        rest = np.arange(self.all_integers, self.all_integers + numbers)
        return np.concatenate([self.integers, rest])

    def among(self, inputs: int, numbers: int) -> Addresses | None:
        """Of all inputs of a recording; None where only integers move."""
        if self.floats_stay:
            return None
        captured = inputs - len(self.floats) - len(self.integers) - numbers
        return np.concatenate(
            [
                self.floats,
                self.all_floats + np.arange(captured),
                self.all_floats + captured + self.slots(numbers),
            ]
        )


class _Walk:
    """Goes through two structures side by side."""

    def __init__(self) -> None:
        self.floats: list[int] = []
        self.integers: list[int] = []
        self.all_floats = self.all_integers = 0
        self._leaves: list[int] = []  # of the shorter call, among those of the longer one
        self._all_leaves = 0

    def add(self, short: Node | None, long: Node) -> None:
        """Count what is in the longer call, and note it where the shorter one has it too."""
        if isinstance(long, Branch):
            items = short.items if isinstance(short, Branch) else ()
            if len(items) > len(long.items):
                raise _IsLonger
            if long.items and long.kinds == {FLOAT}:
                self._add_row(len(items), len(long.items))
                return
            for a, b in zip_longest(items, long.items):
                self.add(a, b)
        elif long is FLOAT or long is VALUE:
            self._add_row(int(short is not None), 1)
        elif long is INT or long is TRUTH:
            self._add_integers(short, np.arange(1))
        elif isinstance(long, Text):
            count = short.length if isinstance(short, Text) else 0
            if count > long.length:
                raise _IsLonger
            self._add_integers(short, np.arange(long.length)[:count], long.length)
        elif isinstance(long, Numbers):
            every = np.arange(math.prod(long.shape)).reshape(long.shape)
            shape = short.shape if isinstance(short, Numbers) else long.shape
            if any(a > b for a, b in zip(shape, long.shape, strict=True)):
                raise _IsLonger
            mine = every[tuple([slice(n) for n in shape])].ravel()
            if long.kind is not FLOAT:
                self._add_integers(short, mine, every.size)
            else:
                self._add_array(short, mine, every.size)
        elif short is not None and short is not long:
            raise _IsLonger  # the same thing once more, which is another one here

    def _add_array(self, short: Node | None, mine: Addresses, size: int) -> None:
        if short is not None:
            self.floats += (self.all_floats + mine).tolist()
            self._leaves.append(self._all_leaves)
        self.all_floats += size
        self._all_leaves += 1

    def _add_row(self, count: int, most: int) -> None:
        """The first of so many floats that are leaves each."""
        self.floats += range(self.all_floats, self.all_floats + count)
        self._leaves += range(self._all_leaves, self._all_leaves + count)
        self.all_floats += most
        self._all_leaves += most

    def _add_integers(self, short: Node | None, mine: Addresses, size: int = 1) -> None:
        if short is not None:
            self.integers += (self.all_integers + mine).tolist()
        self.all_integers += size

    def same_kinds(self, short: Any, long: Any) -> bool:
        """Whether each number has the type it has in the longer call (see ``Flat.narrow``).

        And whether the same arrays are no plain ones, in the same way.
        """
        if not (short or long):
            return True
        layouts = [{x for x in each if _is_of_layout(x[1])} for each in (short, long)]
        if layouts[0] != layouts[1]:
            return False
        mine, theirs = (
            dict([x for x in each if not _is_of_layout(x[1])]) for each in (short, long)
        )
        floats = enumerate(self._leaves)
        integers = [(-1 - k, -1 - place) for k, place in enumerate(self.integers)]
        return all(mine.get(a) == theirs.get(b) for a, b in (*floats, *integers))


def _is_of_layout(kind: str) -> bool:
    return kind.startswith((STRIDES, OBJECTS))


# --- in which order -------------------------------------------------------------------------------


def births_of(key: Any, growth: Growth) -> tuple[Addresses, Addresses]:
    """Of each float and each integer of a call: in which step it came in, or -1: in all calls."""
    floats: list[Addresses] = []
    integers: list[Addresses] = []
    for part in _parts(key):
        _add_births(*part, growth, -1, (floats, integers))
    nothing = np.zeros(0, np.int64)
    return np.concatenate([nothing, *floats]), np.concatenate([nothing, *integers])


def _add_births(
    path: Path,
    structure: Node,
    shape: Node,
    growth: Growth,
    born: int,
    to: tuple[list[Addresses], list[Addresses]],
) -> None:
    floats, integers = to
    unit = growth.units.get(path) if born < 0 else None
    if isinstance(structure, Branch):
        for k, part in enumerate(_items(path, structure, shape)):
            _add_births(*part, growth, born if unit is None else k // unit, to)
    elif structure is FLOAT or structure is VALUE:
        floats.append(np.array([born]))
    elif structure is INT or structure is TRUTH:
        integers.append(np.array([born]))
    elif isinstance(structure, Text):
        steps = np.arange(structure.length)
        integers.append(np.full(structure.length, born) if unit is None else steps // unit)
    elif isinstance(structure, Numbers):
        steps = np.full(structure.shape, born)
        for axis, length in enumerate(structure.shape):
            each = growth.units.get((*path, axis))
            if each is not None and born < 0:
                along = [-1 if k == axis else 1 for k in range(len(structure.shape))]
                steps = np.maximum(steps, (np.arange(length) // each).reshape(along))
        (floats if structure.kind is FLOAT else integers).append(steps.ravel())
