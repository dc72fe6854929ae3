"""A ``Recording``: one run of a function as flat arrays, and what it returned.

``recorder`` makes it, ``differentiation`` makes others of it; the tape and ``lift`` take it from
there. Instruction 0..inputs-1 are the inputs. ``str(recording)`` prints it, an instruction per
line; ``recording.verify()`` checks it.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.selection import Selection
from chainrule.core import ops
from chainrule.core.ops import Op
from chainrule.trees import Floats, Leaf, field_names, is_named_tuple, is_record, map_leaves

Ints = npt.NDArray[np.int32]

SHOWN = 16  # items of an array that a recording prints
#: instruction codes below the rules: an input, a constant
INPUT, CONSTANT = 0, 1
_PIECE = 1 << 20  # operands
FIRST_RULE = 2
PINNED = "it holds for another number"  # one of two recordings, by what its guards say


@dataclass(frozen=True)
class Guard:
    """A branch that the recording took: instruction ``position`` must give ``expected`` again."""

    position: int
    expected: float
    line: str


@dataclass(frozen=True, eq=False)
class Recording:
    """One run of a function as flat arrays.

    ``codes[i]`` is INPUT, CONSTANT or FIRST_RULE + the position of its rule in ``rules``;
    ``operands[i]`` up to three earlier positions (-1: none); ``constants[i]`` its numbers: the
    constant, a plain number in the place of the second operand (``number[i]``), or the rule's
    static parameters. They have one column, or two where some rule has two parameters.
    ``unflagged[i]``: made where undefined values were allowed. ``selection``: what the integers
    passed decide: operands, numbers, and whether this recording holds at all.
    ``shed``: of a recording whose instructions were let go, how many there were, else 0.
    """

    inputs: int
    codes: Ints
    operands: Ints
    constants: Floats
    number: npt.NDArray[np.bool_]
    rules: tuple[Op, ...]
    unflagged: npt.NDArray[np.bool_]
    guards: tuple[Guard, ...]
    result: Any = field(repr=False)  # the returned tree, an Output in place of each number
    selection: Selection = field(repr=False, default_factory=Selection)
    shed: int = 0
    changes: tuple[Any, ...] = ()  # what becomes of containers that were passed; see ``handing``

    @classmethod
    def empty(
        cls, result: Any, inputs: int = 0, selection: Selection | None = None, shed: int = 0
    ) -> Recording:
        """One without instructions, where something else computes the numbers of the result."""
        nothing, none = np.zeros(0, np.int32), np.zeros(0, np.bool_)
        rows = nothing, np.zeros((0, 3), np.int32), np.zeros((0, 1)), none
        return cls(inputs, *rows, (), none, (), result, selection or Selection(), shed)

    def __len__(self) -> int:
        return self.shed or len(self.codes)

    def __str__(self) -> str:
        lines = [f"{len(self)} instructions, {self.inputs} inputs, {len(self.guards)} guards"]
        if self.shed:
            return "\n".join([*lines, "not kept, for machine code serves: they are recorded again"])
        guards = {g.position: g for g in self.guards}
        for i in range(self.inputs, len(self)):
            lines.append(f"%{i} = {self.describe(i)}")
            if i in guards:
                lines.append(f"    guard %{i} == {guards[i].expected:g}  ({guards[i].line})")
        lines += [f"{x.place}: {x.how} {x.keys} = {x.items}" for x in self.changes]
        return "\n".join([*lines, f"return {self.result}"])

    @property
    def returned(self) -> tuple[list[Any], Any]:
        """All that the function hands to its caller: what it stored, and what it returned."""
        return [change.items for change in self.changes], self.result

    @functools.cached_property
    def hands_back(self) -> bool:
        """Whether it returns containers that were passed, or one twice, or changes some."""
        return bool(self.changes) or _is_handed(self.result)

    @functools.cached_property
    def outputs(self) -> list[Output]:
        """The numbers that the function stored and returned, in order, those in arrays too."""
        found: list[Output] = []
        map_leaves(lambda x: found.extend(outputs_in(x)), self.returned, records=True)
        return found

    @property
    def wanted(self) -> list[int]:
        """The instructions whose results are used outside: guards, and what is returned."""
        return [x.position for x in self.guards] + [x.position for x in self.outputs]

    def describe(self, i: int) -> str:
        """One instruction as text."""
        code = int(self.codes[i])
        if code < FIRST_RULE:
            return "input" if code == INPUT else f"constant {self.constants[i, 0]:g}"
        rule = self.rules[code - FIRST_RULE]
        words = [f"%{p}" for p in self.operands[i] if p >= 0]
        numbers = len(rule.parameters) + bool(self.number[i])
        words += [f"{c:g}" for c in self.constants[i, :numbers]]
        return f"{rule.name} {' '.join(words)}"

    def _pinned(self) -> set[int]:
        """The constants that a guard says something must be equal to."""
        found: set[int] = set()
        for k in [g.position for g in self.guards if g.expected]:
            if self.codes[k] >= FIRST_RULE and self.rules[self.codes[k] - FIRST_RULE] is ops.equal:
                operands = [p for p in self.operands[k].tolist() if p >= 0]
                found.update(p for p in operands if self.codes[p] == CONSTANT)
        return found

    def differs(self, other: Recording) -> str | None:
        """Why another recording is not this one again, in words, or None."""
        if len(self) != len(other) or self.rules != other.rules:
            return "it does other operations"
        for name in ("codes", "number", "unflagged"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not theirs and not np.array_equal(mine, theirs):
                return "it does other operations"
        if [(g.position, g.expected) for g in self.guards] != [
            (g.position, g.expected) for g in other.guards
        ]:
            return "a branch goes the other way"
        if not _same_result(self.result, other.result):
            return "it returns something else"
        if not _same_result(self.changes, other.changes):
            return "it changes something else"
        if self.constants.shape != other.constants.shape:
            return "it does other operations"
        changed = np.zeros(0, np.int64)
        if self.constants is not other.constants:
            bits = self.constants.view(np.int64) != other.constants.view(np.int64)
            changed = np.flatnonzero(bits.any(axis=1))
        if len(changed) and not self._pinned().isdisjoint(changed.tolist()):
            return PINNED
        if len(changed):
            return f"a number in it changes by itself: {self.describe(int(changed[0]))}"
        if self.operands is not other.operands and not np.array_equal(
            self.operands, other.operands
        ):
            return "it uses other operands"
        return None

    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """What grows with the number of instructions."""
        return self.codes, self.operands, self.constants, self.number, self.unflagged

    @property
    def nbytes(self) -> int:
        """The memory of its instructions."""
        return sum(row.nbytes for row in self.arrays)

    def without_instructions(self) -> Recording:
        """All that a call on machine code asks of a recording."""
        codes, operands, constants, number, unflagged = (row[:0].copy() for row in self.arrays)
        return replace(
            self,
            codes=codes,
            operands=operands,
            constants=constants,
            number=number,
            unflagged=unflagged,
            shed=len(self),
        )

    def fingerprint(self) -> tuple[Any, ...]:
        """Equal for a recording and the same recorded again; kept in place of the instructions.

        Which operands integers select makes no difference, as that is for each call to say.
        """
        selection = self.selection
        chosen = (selection.places, selection.owners, *[g.candidates for g in selection.gathers])
        rows = [row for row in self.arrays if row is not self.operands]
        sums = [zlib.crc32(np.ascontiguousarray(row).data) for row in (*rows, *chosen)]
        sums.append(_checksum_without(self.operands, selection.places))
        guards = [(g.position, g.expected) for g in self.guards]
        return len(self), self.inputs, self.rules, *sums, guards, str((self.result, self.changes))

    def verify(self) -> None:
        """Raise AssertionError unless every array fits the others."""
        n = len(self)
        assert self.operands.shape == (n, 3)
        most = max([1, *[len(rule.parameters) for rule in self.rules]])
        assert len(self.constants) == n
        assert most <= self.constants.shape[1] <= 2
        assert self.number.shape == self.unflagged.shape == (n,)
        assert ((self.codes >= 0) & (self.codes < FIRST_RULE + len(self.rules))).all()
        inside = all(0 <= x.position < n for x in self.outputs)
        assert inside, "a result lies outside the recording"
        assert (self.codes[: self.inputs] == INPUT).all()
        assert (self.codes[self.inputs :] != INPUT).all()
        positions = np.arange(n, dtype=np.int32)[:, None]
        assert (self.operands < positions).all(), "an operand comes after its use"
        for i in np.flatnonzero(self.codes >= FIRST_RULE):
            rule = self.rules[self.codes[i] - FIRST_RULE]
            given = int((self.operands[i] >= 0).sum()) + int(self.number[i])
            assert given == rule.arity, self.describe(int(i))
        assert all(self.inputs <= g.position < n for g in self.guards)


def _checksum_without(operands: Ints, places: Ints) -> int:
    """The checksum of all operands but those in some places; in pieces, for there may be many."""
    flat, apart, total = operands.reshape(-1), np.sort(places), 0
    for start in range(0, len(flat), _PIECE):
        piece = flat[start : start + _PIECE].copy()
        first, end = np.searchsorted(apart, (start, start + _PIECE))
        piece[apart[first:end] - start] = -1
        total = zlib.crc32(piece.data, total)
    return total


def _is_handed(tree: Any) -> bool:
    kind = type(tree)
    if kind is dict or kind is list or kind is tuple:
        return any(map(_is_handed, tree.values() if kind is dict else tree))
    if getattr(kind, "is_handed", False):
        return True
    items: Any = ()
    if is_named_tuple(tree):
        items = tree
    elif is_record(tree):
        items = [getattr(tree, name) for name in field_names(kind)]
    return any(map(_is_handed, items))


def two_columns(constants: Floats) -> Floats:
    """The constants of instructions, two each."""
    return np.pad(constants, ((0, 0), (0, 2 - constants.shape[1])))


def as_needed(constants: Floats, rules: Sequence[Op]) -> Floats:
    """The constants of instructions, two each only where some rule has two parameters."""
    needs_two = any(len(rule.parameters) > 1 for rule in rules)
    return constants if needs_two else np.ascontiguousarray(constants[:, :1])


def _same_result(a: object, b: object) -> bool:
    try:
        return bool(a == b) or repr(a) == repr(b)
    except Exception:  # an object of the user's own
        return False


@dataclass(frozen=True)
class Output(Leaf):
    """The place of a number in what the function returned; ``is_numpys``: it is a np.float64.

    ``is_integer``: it is a whole number, and an integer of Python's.
    """

    position: int
    is_value: bool
    is_numpys: bool = False
    is_integer: bool = False

    def moved(self, to: Callable[[int], int]) -> Output:
        """The same with its instruction elsewhere."""
        return replace(self, position=to(self.position))

    def plain(self, number: float) -> Any:
        """The number, of the type that the function returned."""
        if self.is_integer:
            return int(number)
        return np.float64(number) if self.is_numpys else number

    def __repr__(self) -> str:
        if self.is_integer:
            return f"int(%{self.position})"
        return f"%{self.position}" + ("" if self.is_value else ".data")


@dataclass(frozen=True, eq=False)
class ArrayOutput(Leaf):
    """An array in what the function returned: ``fixed`` numbers, and in some places computed ones.

    ``sparse``: the numbers are those of a sparse matrix.
    """

    shape: tuple[int, ...]
    fixed: Floats  # all numbers in a row, 0 where one is computed
    places: npt.NDArray[np.int64]  # in that row
    positions: Ints  # of the instructions that compute these
    is_value: bool = False
    sparse: Any = None

    @classmethod
    def of(cls, items: Sequence[Any], shape: tuple[int, ...], sparse: Any = None) -> ArrayOutput:
        """The array of these items, each an ``Output`` or a number."""
        computed = [k for k, x in enumerate(items) if isinstance(x, Output)]
        return cls(
            shape,
            np.array([0.0 if isinstance(x, Output) else x for x in items], np.float64),
            np.array(computed, np.int64),
            np.array([items[k].position for k in computed], np.int32),
            any(items[k].is_value for k in computed),
            sparse,
        )

    @property
    def items(self) -> list[Any]:
        """All of its items, each an ``Output`` or a number."""
        found: list[Any] = self.fixed.tolist()
        for place, position in zip(self.places.tolist(), self.positions.tolist(), strict=True):
            found[place] = Output(position, self.is_value)
        return found

    def moved(self, to: Callable[[int], int]) -> ArrayOutput:
        """The same with its instructions elsewhere."""
        return replace(self, positions=np.array([to(p) for p in self.positions.tolist()], np.int32))

    def filled(self, numbers: Floats) -> Any:
        """The array with these numbers in the places of the computed ones."""
        row = self.fixed.copy()
        row[self.places] = numbers
        return row.reshape(self.shape) if self.sparse is None else self.sparse.filled(row)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayOutput) and self._contents == other._contents

    def __hash__(self) -> int:
        return hash(self._contents)

    @property
    def _contents(self) -> tuple[Any, ...]:
        rows = self.fixed.tobytes(), self.places.tobytes(), self.positions.tobytes()
        return self.shape, *rows, self.is_value, self.sparse

    def __repr__(self) -> str:
        extent = "×".join(map(str, self.shape)) if self.sparse is None else str(self.sparse)
        words = [f"{x:g}" if isinstance(x, float) else repr(x) for x in self.items[:SHOWN]]
        more = ["…"] if len(self.fixed) > SHOWN else []
        return f"[{extent}: {', '.join([*words, *more])}]"


def outputs_in(leaf: Any) -> list[Output]:
    """The numbers in a leaf of what a function returned."""
    if isinstance(leaf, Output):
        return [leaf]
    if isinstance(leaf, ArrayOutput):
        return [Output(p, leaf.is_value) for p in leaf.positions.tolist()]
    return []
