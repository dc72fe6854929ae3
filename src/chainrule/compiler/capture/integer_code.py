"""The integer program of a recording as flat arrays, which C evaluates.

In: an ``IntegerProgram``, what its gathers may select, and which nodes are numbers. Out: a native
``Decider`` (src/native/integers.c) that gives exactly what ``IntegerProgram.evaluate`` gives, or
says that an integer does not fit into 64 bits; None without the native engine, or where a
constant does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.draws import Drawn, Draws
from chainrule.compiler.capture.integers import BEYOND, IntegerProgram
from chainrule.core.backend import kernels

KNOWN, ANOTHER_PATH, BEYOND_BITS = range(3)  # what a Decider says of a call
_KINDS = (
    *("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift"),
    *("neg", "invert", "abs", "lt", "le", "eq", "ne", "gt", "ge", "pow", "wrap", "int", "bool"),
    *("read", "read float", "look up", "find", "choose", "max", "min", "count", "seeded", "item"),
    "hashed",
    *("guard truth", "guard equal", "guard range"),
)
_CODES = {name: code for code, name in enumerate(_KINDS)}

Table = npt.NDArray[Any]  # what a gather may select; below zero: nothing


class _NotFlat(Exception):
    """Something that has no place in arrays of 64 bits."""


def decider(
    program: IntegerProgram,
    gathers: Sequence[tuple[int, Table]],
    numbers: Sequence[int],
    ranges: Iterable[tuple[int, int]] = (),
    owners: Any = slice(None),
) -> Any:
    """The Decider of a program; of each gather the node of its index, and its candidates.

    ``ranges``: nodes that must be the index of one of so many items, gathered or not. ``owners``:
    which gathers are decided, in order, any of them several times.
    """
    if kernels is None:
        return None
    try:
        return _Encoder(program).made(gathers, numbers, ranges, owners)
    except _NotFlat:
        return None


class _Encoder:
    """Puts a program into arrays."""

    def __init__(self, program: IntegerProgram) -> None:
        self._program = program
        self._first = program.arguments + len(program.constants)
        self._pool: list[int] = []
        self._floats: list[float] = []
        self._tables: dict[int, tuple[str, int, int]] = {}  # of constants: kind, start, count
        self._is_float: set[int] = set()  # nodes
        self._draws: list[tuple[Any, int]] = []  # from a seed to random numbers; where these begin
        self._drawn = 0  # random numbers, and members of sets, in all
        self._ordered: dict[int, int] = {}  # nodes that order members of sets: where they begin
        #: nodes: what they draw, where it begins, and which of ``_draws`` it is
        self._seeded: dict[int, tuple[Draws, int, int]] = {}

    def made(
        self,
        gathers: Sequence[tuple[int, Table]],
        numbers: Sequence[int],
        ranges: Iterable[tuple[int, int]],
        owners: Any,
    ) -> Any:
        assert kernels is not None
        program = self._program
        constants = [0 if isinstance(x, _NO_NUMBERS) else _fitting(x) for x in program.constants]
        guards: dict[int, list[Any]] = {}
        for guard in program.guards:
            guards.setdefault(guard.node, []).append(guard)
        steps: list[tuple[int, ...]] = []
        for node in range(self._first):
            steps += [_guard(guard) for guard in guards.get(node, ())]
        for node, (name, operands) in enumerate(program.steps, self._first):
            if name == "seeded":
                self._seed(node, *operands)
        self._order()
        for node, (name, operands) in enumerate(program.steps, self._first):
            steps.append(self._step(node, name, operands))
            steps += [_guard(guard) for guard in guards.get(node, ())]
        checked = dict.fromkeys(ranges)
        steps += [(_CODES["guard range"], node, count, 0, 0) for node, count in checked]
        starts, candidates = _joined([table for _, table in gathers])
        rows = [(index, starts[id(table)], len(table)) for index, table in gathers]
        return kernels.Decider(
            program.arguments,
            _words(constants),
            _words(steps),
            _words(self._pool),
            np.array(self._floats, np.float64),
            np.ascontiguousarray(_words(rows).reshape(-1, 3)[owners]).ravel(),
            candidates,
            _words([(node, node in self._is_float) for node in numbers]),
            tuple(self._draws),
            self._drawn,
        )

    def _order(self) -> None:
        """Give the members of sets their places, after all random numbers."""
        self._draws.append((None, self._drawn))  # where these end
        for node, (name, operands) in enumerate(self._program.steps, self._first):
            if name == "hashed":
                self._ordered[node] = self._drawn
                self._drawn += len(operands)

    def _step(self, node: int, name: str, operands: tuple[int, ...]) -> tuple[int, ...]:
        program = self._program
        if name == "read":
            kind, start, count = self._table(operands[0])
            if kind == "read float":
                self._is_float.add(node)
            return _CODES[kind], node, operands[1], start, count
        if name == "find":
            _, start, count = self._table(operands[0])
            return _CODES[name], node, operands[1], start, count
        if name == "seeded":
            return _CODES[name], node, operands[1], self._seeded[node][2], 0
        if name == "hashed":
            self._pool += operands
            start = len(self._pool) - len(operands)
            return _CODES[name], node, self._ordered[node], start, len(operands)
        if name == "item":
            place = program.constants[operands[1] - program.arguments]
            if operands[0] in self._ordered:
                return _CODES[name], node, operands[0], self._ordered[operands[0]] + place, 0
            draws, start, _ = self._seeded[operands[0]]
            if draws.kinds[place] is float:
                self._is_float.add(node)
            return _CODES[name], node, operands[0], start + place, 0
        if self._is_float.intersection(operands):
            raise _NotFlat
        if name in ("choose", "max", "min", "count"):
            nodes = operands[1:] if name in ("choose", "count") else operands
            self._pool += nodes
            return _CODES[name], node, operands[0], len(self._pool) - len(nodes), len(nodes)
        return _CODES[name], node, operands[0], operands[-1], 0

    def _seed(self, node: int, constant: int, _: int) -> None:
        """Random numbers, of which there are as many for every seed."""
        draws = self._program.constants[constant - self._program.arguments]
        self._seeded[node] = draws, self._drawn, len(self._draws)
        self._draws.append((draws.again, self._drawn))
        self._drawn += len(draws.kinds)

    def _table(self, constant: int) -> tuple[str, int, int]:
        """Where a table went; one that comes again went there before."""
        if constant not in self._tables:
            table = self._program.constants[constant - self._program.arguments]
            start, kind = len(self._pool), "read"
            if isinstance(table, dict):
                kind = "look up"
                keys = sorted(table)
                self._pool += [_fitting(key) for key in keys]
                self._pool += [_fitting(table[key]) for key in keys]
            elif {float}.issuperset(map(type, table)):
                start, kind = len(self._floats), "read float"
                self._floats += table
            else:
                self._pool += _all_fitting(table)
            self._tables[constant] = kind, start, len(table)
        return self._tables[constant]


_NO_NUMBERS = (tuple, dict, Draws, Drawn)


def _fitting(x: Any) -> int:
    """An integer or bool that fits into 64 bits."""
    if not isinstance(x, int) or not -BEYOND <= x < BEYOND:
        raise _NotFlat
    return int(x)


def _all_fitting(table: Sequence[Any]) -> Sequence[int]:
    """Integers that all fit, at once where they are plain ones: a table may be long."""
    if {int}.issuperset(map(type, table)) and min(table) >= -BEYOND and max(table) < BEYOND:
        return table
    return [*map(_fitting, table)]


def _guard(guard: Any) -> tuple[int, ...]:
    name = "guard truth" if guard.truth else "guard equal"
    return _CODES[name], guard.node, _fitting(guard.expected), 0, 0


def _words(rows: Sequence[Any]) -> npt.NDArray[np.int64]:
    return np.array(rows, np.int64)


def _joined(tables: Sequence[Table]) -> tuple[dict[int, int], npt.NDArray[np.int64]]:
    """All candidates in one row, and where each table begins, by its id."""
    distinct = {id(table): table for table in tables}
    starts, at = {}, 0
    for key, table in distinct.items():
        starts[key] = at
        at += len(table)
    nothing = np.zeros(0, np.int64)
    return starts, np.concatenate([nothing, *distinct.values()]).astype(np.int64)
