"""Lists of any length: one source for the longest, which shorter ones are padded to.

In: a recorded call, and the same call with shorter lists. Out: the array program of the longest, in
which numbers that depend on the length say what a shorter one leaves out (``lift.padding``), and
the lines of source that compute these numbers. That a shorter call does nothing else is compared,
recording by recording; a length that was not recorded has no numbers, and its result is nan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.integers import IntegerProgram
from chainrule.compiler.capture.recordings import Recording
from chainrule.compiler.formulas.decoding import Stretch
from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.lift.alignment import Points, Prefix, RecordedCall, prefix_of
from chainrule.compiler.lift.graph import SUM, NotLiftable
from chainrule.compiler.lift.padding import Padded, moved
from chainrule.compiler.lift.program import COPY, Addresses, Instruction, Program, Terms
from chainrule.compiler.translate.scope import Scope, Stored
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.trees import Floats

ARGUMENT = "length"


@dataclass(frozen=True, eq=False)
class ByLength:
    """An array of the source whose numbers depend on the length: a row for each length."""

    name: str
    rows: Floats
    start: int  # its address in the program

    @property
    def named(self) -> Named:
        """As an input of the program."""
        count = self.rows.shape[1]
        return Named(self.name, (count,) if count > 1 or self.is_mask else ())

    @property
    def is_mask(self) -> bool:
        """Whether it says what there is: ones, and zeros at shorter lengths."""
        return bool(
            np.isin(self.rows, (0.0, 1.0)).all() and (np.diff(self.rows, axis=0) >= 0).all()
        )


@dataclass(frozen=True, eq=False)
class Lengths:
    """What a source for lists of any length has besides that of the longest."""

    counts: tuple[int, ...]  # the lengths it is for, shortest first
    padded: tuple[str, ...]  # the arguments that are padded
    arrays: tuple[ByLength, ...] = ()

    def __str__(self) -> str:
        first, last = self.counts[0], self.counts[-1]
        every = list(self.counts) == list(range(first, last + 1))
        return f"{first} to {last}" if every else ", ".join(map(str, self.counts))


# --- the program ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Shorter:
    """A shorter call: its recording, its result, and its inputs."""

    count: int
    call: Call
    recording: Recording
    root: int
    inputs: Sequence[Named]


@dataclass(frozen=True)
class _Length:
    points: Points
    constants: Floats


def padded_program(
    longest: Shorter, others: Sequence[Shorter], names: Sequence[str]
) -> tuple[Program, Lengths]:
    """The program of the longest call for all of them; NotLiftable where one is no part of it.

    ``names``: of the arguments that are padded.
    """
    source = RecordedCall.of(longest.call, longest.recording, longest.root, margins=False)
    program = source.without_steps(loops=False)
    assert program is not None
    calls = [_among(other, longest) for other in others]
    found = [Prefix(source, program, itself=True)]
    for k, (other, call) in enumerate(zip(others, calls, strict=True)):
        try:
            if k == 0:
                _, program = prefix_of(call, source, program)
                found = [Prefix(source, program, itself=True)]
            found.append(Prefix(call, program))
            _check_integers(call, found[-1], source.recording)
        except NotLiftable as reason:
            raise NotLiftable(
                f"with {other.count} items instead of {longest.count} {reason}"
            ) from None
    lengths = [_Length(x.points(), x.constants) for x in reversed(found)]
    padded = Padded(program, lengths, inserting=True)
    rows = np.stack([padded.numbers(x) for x in lengths])
    arrays, to = _arrays(padded, rows)
    made = moved(padded.program, to)
    pairs = zip((source, *calls), found, strict=True)
    ends = [padded.to[x.to[x.program.address[call.returned]]] for call, x in pairs]
    made = _ends_chosen(made, source, np.stack(ends[::-1]), arrays)
    counts = sorted(x.count for x in (longest, *others))
    return made, Lengths(tuple(counts), tuple(names), tuple(arrays))


def _ends_chosen(
    program: Program, call: RecordedCall, ends: Addresses, arrays: list[ByLength]
) -> Program:
    """The program with what is returned chosen by the length, where another number is the last.

    ``ends``: where each length returns what, a row for each.
    """
    if (ends == ends[-1]).all():
        return program
    if len({*call.returned}) > 1:
        raise NotLiftable(
            "shorter lists have other numbers as their last ones, and it returns several"
        )
    places, which = np.unique(ends[:, 0], return_inverse=True)
    chosen = ByLength("last", np.eye(len(places))[which.ravel()], program.size)
    start = program.size + len(places)
    terms = Terms(
        np.full(len(places), start), (places, np.arange(program.size, start)), len(places)
    )
    last = Instruction((5 * COPY,), SUM, start, 1, products=terms)
    address = program.address.copy()
    address[call.returned] = start
    arrays.append(chosen)
    instructions = [*program.instructions, last]
    return replace(program, instructions=instructions, address=address, size=start + 1)


def _among(other: Shorter, longest: Shorter) -> RecordedCall:
    """A shorter call, which knows where its inputs are among the longest's."""
    places: list[int] = []
    at = 0
    for mine, theirs in zip(other.inputs, longest.inputs, strict=True):
        if mine.name != theirs.name or mine.shape[1:] != theirs.shape[1:]:
            raise NotLiftable("another length has other arguments")
        places += range(at, at + mine.size)
        at += theirs.size
    integers = sum(x.size for x in longest.inputs if x.integers)
    places += range(at, at + len(other.recording.selection.numbers))
    among = np.array(places, np.int64)
    own = sum(x.size for x in other.inputs if x.integers) + len(other.recording.selection.numbers)
    slots = among[len(among) - own :] - (at - integers)
    made = RecordedCall.of(other.call, other.recording, other.root, slots, margins=False)
    return replace(made, among=among)


def _check_integers(call: RecordedCall, prefix: Prefix, longest: Recording) -> None:
    """Integers must select the same at every length, and numbers be computed from them alike."""
    known: dict[Any, int] = {}
    mine, theirs = call.recording.selection, longest.selection
    here = _meanings(mine.program, call.slots, known)
    there = _meanings(theirs.program, np.arange(theirs.program.arguments), known)
    numbers = theirs.numbers[: len(mine.numbers)]
    if [here[k] for k in mine.numbers] != [there[k] for k in numbers]:
        raise NotLiftable("another length computes other numbers from integers")
    candidates: dict[tuple[int, int], bool] = {}
    for short, long in prefix.gathers():
        for a, b in zip(mine.owners[short].tolist(), theirs.owners[long].tolist(), strict=True):
            one, other = mine.gathers[a], theirs.gathers[b]
            pair = id(one.candidates), id(other.candidates)
            if pair not in candidates:
                found = prefix.program.address[one.candidates]
                images = np.where(found >= 0, prefix.to[found], -1)
                wanted = prefix.longer.address[other.candidates]
                candidates[pair] = np.array_equal(images, wanted)
            if here[one.index] != there[other.index] or not candidates[pair]:
                raise NotLiftable("another length selects something else by its integers")


def _meanings(program: IntegerProgram, slots: Addresses, known: dict[Any, int]) -> list[int]:
    """A number for each node of an integer program, the same for what is computed alike."""

    def number(key: Any) -> int:
        return known.setdefault(key, len(known))

    found = [number(("argument", int(slots[k]))) for k in range(program.arguments)]
    found += [number((type(x).__name__, repr(x))) for x in program.constants]
    for name, operands in program.steps:
        found.append(number((name, tuple([found[k] for k in operands]))))
    return found


def _arrays(padded: Padded, rows: Floats) -> tuple[list[ByLength], Addresses]:
    """The numbers that depend on the length as arrays, and where each address goes for that.

    Numbers that are the same at every length are there once.
    """
    to = np.arange(padded.program.size)
    made: dict[bytes, ByLength] = {}
    constants = padded.size - sum(map(len, padded.factors.values()))
    stretches = [("scale", slice(0, constants))] if constants else []
    stretches += [("keep", slice(x.start, x.start + len(x))) for x in padded.factors.values()]
    for name, here in stretches:
        columns, places = rows[:, here], np.arange(here.stop - here.start)
        if name == "scale":
            columns, places = np.unique(columns, axis=1, return_inverse=True)
        array = ByLength(name, columns, padded.first + here.start)
        array = made.setdefault(columns.tobytes(), array)
        to[padded.first + here.start : padded.first + here.stop] = array.start + places.ravel()
    return list(made.values()), to


# --- source ---------------------------------------------------------------------------------------


def length_lines(lengths: Lengths, scope: Scope, stretches: Sequence[Stretch]) -> list[str]:
    """The lines that compute what depends on the length, and the names of these arrays."""
    lines = []
    table = scope.table(np.array(lengths.counts, np.int64), "LENGTHS")
    if table.partition(".")[0] != "LENGTHS":
        raise Untranslatable("an argument has the name LENGTHS, which its source needs")
    for array, stretch in zip(lengths.arrays, stretches, strict=True):
        stretch.name = scope.fresh(array.name)
        shape = array.named.shape
        scope.stored[stretch] = Stored.plain(stretch.name, shape)
        if array.is_mask:
            scope.helpers.add("kept")
            least = [lengths.counts[int(np.argmax(column))] for column in array.rows.T]
            table = scope.table(np.array(least, np.int64), "LEAST")
            code = scope.dialect.kept.format(ARGUMENT, table, scope.like)
            scope.casts |= "dtype" in code
            words = f"1 for what a list of this {ARGUMENT} has, 0 for what it lacks"
        else:
            scope.helpers.add("by_length")
            rows = array.rows if shape else array.rows[:, 0]
            code = f"by_length({scope.table(rows, array.name.upper())}, {ARGUMENT})"
            words = f"what it is at this {ARGUMENT}"
        index = "[k]" if shape else ""
        lines += [f"# {stretch.name}{index}: {words}", f"{stretch.name} = {code}"]
    return lines


def of_known_length(code: str, scope: Scope) -> str:
    """A result, or nan where the source is not for the length that was passed."""
    scope.helpers.add("known")
    return f"known({code}, {ARGUMENT})"
