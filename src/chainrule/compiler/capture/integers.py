"""What a recorded function computes from the integers it was passed: a program of its own.

In: the integer arguments of a call. Out: an ``IntegerProgram``, recorded beside the numbers: its
steps, the guards that the recorded path took (``if n >= 3``), and the results that the numbers
need: the index of each gather, and integers used as numbers. It is evaluated before the numbers
are. An integer is *traced* as long as only steps are done with it; whatever else Python does with
one makes it *static*: a guard that it is this integer again. There is no third case.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from chainrule.compiler.capture.draws import Drawn, Draws
from chainrule.compiler.capture.progress import report_progress
from chainrule.core import errors

ORDERED = "it goes through a set in the order of its hashes: go through sorted(...) of it"
TEXT = ", of a text"  # after a line: a character of a text is static
ITEMS = ", which goes through a container"  # after a line: how many items there are is static
BEYOND = 2**63
EXACT = 2**53  # integers up to here are floats without rounding


def wrap(index: int, count: int) -> int:
    """A list's index counted from the beginning."""
    if not -count <= index < count:
        raise IndexError
    return index + count if index < 0 else index


def choose(index: int, *items: Any) -> Any:
    """One of some integers."""
    return items[index]


def count(x: int, *items: int) -> int:
    """How many of some integers are equal to one."""
    return items.count(x)


def hashed(*items: int) -> tuple[int, ...]:
    """Some integers in the order in which a set has them."""
    return tuple(set(items))


#: what a step may do, by name; each is Python's own meaning
STEPS: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in (
        *("add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lshift", "rshift"),
        *("neg", "invert", "abs", "lt", "le", "eq", "ne", "gt", "ge", "pow"),
    )
} | {
    "wrap": wrap,
    "choose": choose,
    "count": count,
    "read": lambda table, index: table[index],
    "find": lambda table, key: table.get(key, len(table)),
    "max": max,
    "min": min,
    "int": int,
    "bool": bool,
    "seeded": lambda draws, seed: draws.again(seed),
    "item": operator.getitem,
    "hashed": hashed,
}
#: those that raise for some integers
PARTIAL = frozenset(
    ("wrap", "choose", "read", "item", "floordiv", "mod", "lshift", "rshift", "pow")
)
_SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "mod": "%",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "gt": ">",
    "ge": ">=",
    "pow": "**",
}
#: names of the special methods, and of the steps they are
METHODS = {
    **{name: name for name in ("add", "sub", "mul", "floordiv", "mod", "xor", "lshift", "rshift")},
    "and": "and_",
    "or": "or_",
}
#: steps whose results may be far larger than their operands: at most so many bits
_BITS: dict[str, Callable[[int, int], int]] = {
    "mul": lambda a, b: a.bit_length() + b.bit_length(),
    "lshift": lambda a, b: a.bit_length() + b,
    "pow": lambda a, b: a.bit_length() * b,
}
MANY = 4096  # steps, after which the line is noted that asks for so many
MOST_BITS = 2**16  # beyond them a step might take for ever
COMPARISONS = ("lt", "le", "eq", "ne", "gt", "ge")


_BY_IDENTITY = (tuple, dict, Draws, Drawn)  # constants: one is not looked for among the others


def _bits(step: str, a: Any, b: Any) -> int:
    """How many bits a result may have; 0 where it is no integer."""
    return _BITS[step](a, b) if isinstance(a, int) and isinstance(b, int) else 0


@dataclass(frozen=True)
class IntegerGuard:
    """What the recorded path depends on: a node's value, or only its truth."""

    node: int
    expected: Any
    truth: bool
    line: str

    def holds(self, values: Sequence[Any]) -> bool:
        """Whether it is as it was."""
        found = values[self.node]
        return bool(found) is self.expected if self.truth else bool(found == self.expected)


@dataclass(frozen=True, eq=False)
class IntegerProgram:
    """Nodes ``0 .. arguments-1`` are the integers passed; then come the constants, then steps."""

    arguments: int
    constants: tuple[Any, ...]
    steps: tuple[tuple[str, tuple[int, ...]], ...]
    guards: tuple[IntegerGuard, ...]
    bounded: bool = False  # some are numpy's, which have 64 bits

    def __len__(self) -> int:
        return self.arguments + len(self.constants) + len(self.steps)

    def __str__(self) -> str:
        lines = [f"{self.arguments} integers, {len(self.steps)} steps, {len(self.guards)} guards"]
        first = self.arguments + len(self.constants)
        for k, (name, operands) in enumerate(self.steps, first):
            words = [self._word(i) for i in operands]
            symbol = _SYMBOLS.get(name)
            text = f" {symbol} ".join(words) if symbol else f"{name}({', '.join(words)})"
            lines.append(f"i{k} = {text}")
        for guard in self.guards:
            what = "truth of " if guard.truth else ""
            word = self._word(guard.node)
            lines.append(f"    guard {what}{word} == {guard.expected}  ({guard.line})")
        return "\n".join(lines)

    def _word(self, node: int) -> str:
        k = node - self.arguments
        if 0 <= k < len(self.constants):
            text = repr(self.constants[k])
            return text if len(text) < 40 else text[:36] + " ..."
        return f"i{node}"

    @property
    def names(self) -> frozenset[str]:
        """What is done with integers, by name."""
        return frozenset([name for name, _ in self.steps])

    def last_arguments(self) -> list[int]:
        """For each node: the last argument that it depends on, or -1."""
        found = [*range(self.arguments), *[-1] * len(self.constants)]
        for _, operands in self.steps:
            found.append(max([found[i] for i in operands]))
        return found

    def evaluate(self, integers: Sequence[int]) -> list[Any] | None:
        """The value of every node for these arguments; None where the path is another one.

        A step that raises (an index out of range, a division by zero) would raise in the function
        too: that is another path.
        """
        values = [*integers, *self.constants]
        if self.steps:
            try:
                for name, operands in self.steps:
                    xs = [values[i] for i in operands]
                    if name in _BITS and _bits(name, *xs) > MOST_BITS:
                        return None
                    found = STEPS[name](*xs)
                    if self.bounded and type(found) is int and not -BEYOND <= found < BEYOND:
                        return None
                    values.append(found)
            except (ArithmeticError, LookupError, ValueError, TypeError):
                return None
        for guard in self.guards:
            if not guard.holds(values):
                return None
        return values


class IntegerRecorder:
    """Builds the integer program of one recording."""

    def __init__(self, integers: Sequence[int], forbid: Callable[[str], None]) -> None:
        """``forbid``: ends the recording, for this reason."""
        self._forbid = forbid
        self.values: list[Any] = list(integers)  # of arguments and steps, in order
        self.arguments = len(self.values)
        self._constants: dict[Any, int] = {}  # numbered downwards from -1 until the end
        self.kept: list[Any] = []  # the constants
        self.made: list[tuple[str, tuple[int, ...]]] = []  # the steps
        self._known: dict[Any, int] = {}
        self._guards: dict[Any, IntegerGuard] = {}
        self.bounded = False  # some are numpy's

    def __len__(self) -> int:
        """How many steps there are so far."""
        return len(self.made)

    def constant(self, x: Any) -> int:
        """A number, or a table of them, that is the same in every call."""
        key = (type(x), x) if not isinstance(x, _BY_IDENTITY) else id(x)
        if key not in self._constants:
            self.kept.append(x)
            self._constants[key] = -len(self.kept)
        return self._constants[key]

    def value(self, node: int) -> Any:
        """What a node is in this recording."""
        return self.kept[-1 - node] if node < 0 else self.values[node]

    def step(self, name: str, *operands: int) -> int:
        """Record a step; raises what it raises."""
        key = (name, operands)
        if key not in self._known:
            kept, values = self.kept, self.values  # a choice may be among thousands
            given = [kept[-1 - i] if i < 0 else values[i] for i in operands]
            if name in _BITS and _bits(name, *given) > MOST_BITS:
                self._forbid("integers of more than 65,536 bits")
            try:
                value = STEPS[name](*given)
            except Exception:  # the function may catch it: that path is for these integers only
                for node in operands:
                    self.guard(node, False, errors.caller())
                raise
            is_constant = name != "read" and all(i < 0 for i in operands)  # max is a stand-in now
            if is_constant and not self._recalls(operands[0]):
                self._known[key] = self.constant(value)  # in every call
            else:
                self.made.append(key)
                self.values.append(value)
                if not len(self.made) % MANY:
                    report_progress(0)
                self._known[key] = len(self.values) - 1
        return self._known[key]

    def _recalls(self, constant: int) -> bool:
        """Whether these are calls to be made again, though their arguments are the same."""
        draws = self.value(constant)
        return isinstance(draws, Draws) and not draws.seeded

    @property
    def steps(self) -> frozenset[str]:
        """What was done with integers, by name."""
        return frozenset([name for name, _ in self.made])

    @property
    def lines(self) -> list[str]:
        """Where integers became static, or a branch depended on them."""
        return [guard.line for guard in self._guards.values()]

    def guard(self, node: int, truth: bool, line: str) -> Any:
        """Let the recording hold for this value (or truth) of a node only; returns it."""
        value = self.value(node)
        expected = bool(value) if truth else value
        if node >= 0 and (node, False) not in self._guards:
            self._guards.setdefault((node, truth), IntegerGuard(node, expected, truth, line))
        return expected

    def finish(self) -> tuple[IntegerProgram, Callable[[int], int]]:
        """The program, and where each node went in it."""
        arguments, kept = self.arguments, len(self.kept)

        def place(node: int) -> int:
            if node < 0:
                return arguments - 1 - node
            return node if node < arguments else node + kept

        steps = tuple(
            (name, tuple([i if 0 <= i < arguments else place(i) for i in operands]))
            for name, operands in self.made
        )
        guards = tuple(
            IntegerGuard(place(g.node), g.expected, g.truth, g.line) for g in self._guards.values()
        )
        constants = tuple([x.finished() if isinstance(x, Draws) else x for x in self.kept])
        program = IntegerProgram(self.arguments, constants, steps, guards, self.bounded)
        return program, place
