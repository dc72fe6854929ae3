"""What is computed from integers, as source: indices such as ``tokens[t] + 1``, and numbers.

In: nodes of an ``IntegerProgram``, many at a time. Out: the text of one array with a number for
each node: nodes that do the same to different integers are one expression over arrays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from chainrule.compiler.capture.draws import DRAWN
from chainrule.compiler.capture.integers import ORDERED, IntegerProgram
from chainrule.compiler.translate.scope import Scope, Stored
from chainrule.compiler.translate.terms import Untranslatable

SEVERAL = 64  # integers that are computed in different ways, one by one

_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and_": "&",
    "or_": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
_COMPARISONS = {"lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}


class IntegerCode:
    """Writes nodes of one program; ``arguments``: the arrays of the integers passed, in order."""

    def __init__(self, program: IntegerProgram, arguments: Sequence[Stored], scope: Scope) -> None:
        self.program, self.scope, self.np = program, scope, scope.dialect.module
        self.arguments = list(arguments)
        self.sizes = [int(np.prod(x.sizes, dtype=np.int64)) for x in arguments]
        self.first = program.arguments + len(program.constants)  # step

    def code(self, nodes: Sequence[int]) -> str:
        """An array with a number for each node."""
        if all(node < self.program.arguments for node in nodes):
            return self._passed(nodes)
        if all(self.program.arguments <= node < self.first for node in nodes):
            return self._constant(nodes)
        if all(node >= self.first for node in nodes):
            steps = [self.program.steps[node - self.first] for node in nodes]
            if len({(name, len(operands)) for name, operands in steps}) == 1:
                return self._step(steps[0][0], [operands for _, operands in steps])
        different = list(dict.fromkeys(nodes))
        if len(different) < len(nodes):
            places = np.array([different.index(node) for node in nodes], np.int64)
            return f"{self.code(different)}[{self.scope.table(places)}]"
        if len(nodes) > SEVERAL:
            raise Untranslatable("many integers are computed in different ways")
        return f"{self.np}.concatenate([{', '.join(self.code([node]) for node in nodes)}])"

    def _passed(self, nodes: Sequence[int]) -> str:
        ends = np.cumsum(self.sizes)
        found = {int(np.searchsorted(ends, node, side="right")) for node in nodes}
        words = []
        for k in sorted(found):
            several = len(self.arguments[k].sizes) != 1
            words.append(self.arguments[k].code + (".reshape(-1)" if several else ""))
        starts, at = dict[int, int](), 0
        for k in sorted(found):
            starts[k] = at - int(ends[k] - self.sizes[k])
            at += self.sizes[k]
        places = [node + starts[int(np.searchsorted(ends, node, side="right"))] for node in nodes]
        code = words[0] if len(words) == 1 else f"{self.np}.concatenate([{', '.join(words)}])"
        if places == list(range(at)):
            return code
        if places == list(range(places[0], places[0] + len(places))):
            return f"{code}[{places[0]}:{places[-1] + 1}]"
        return f"{code}[{self.scope.table(np.array(places, np.int64))}]"

    def _constant(self, nodes: Sequence[int]) -> str:
        values = [self.program.constants[node - self.program.arguments] for node in nodes]
        if not all(isinstance(x, int | float) for x in values):
            raise Untranslatable("an integer is looked up in a dict or in tables of several kinds")
        kind = np.float64 if any(isinstance(x, float) for x in values) else np.int64
        if max(abs(x) for x in values) >= 2**31:
            raise Untranslatable("an integer of more than 32 bits")
        if len(values) == 1 or len(set(values)) > 1:
            return self.scope.table(np.array(values, kind))
        return self.scope.filled(len(values), values[0])

    def _step(self, name: str, operands: Sequence[tuple[int, ...]]) -> str:
        if name == "hashed":
            raise Untranslatable(ORDERED)
        if name in ("seeded", "item"):
            raise Untranslatable(DRAWN)
        columns = list(zip(*operands, strict=True))
        if name == "read":
            return self._read(columns[0], self.code(columns[1]))
        words = [self._operand(column) for column in columns]
        if name == "pow" and not words[1].isdigit():  # another case than this one, where it is not
            words[1] = f"{words[1]}.clip(0)"
        if name in _OPERATORS:
            return f"({words[0]} {_OPERATORS[name]} {words[1]})"
        if name in _COMPARISONS:
            return f"(({words[0]} {_COMPARISONS[name]} {words[1]}) * 1)"
        if name in ("max", "min"):
            if self.scope.dialect.number != "{0}":  # arrays only
                words = list(map(self.code, columns))
            made = words[0]
            for word in words[1:]:
                made = f"{self.np}.{name}imum({made}, {word})"
            return made
        if name == "wrap":
            self.scope.helpers.add("inside")
            return f"inside({words[0]}, {words[1]})"
        unary = {"neg": "(-{})", "invert": "(~{})", "int": "{}", "bool": "(({} != 0) * 1)"}
        unary["abs"] = f"{self.np}.abs({{}})"
        if name not in unary:
            raise Untranslatable(f"an integer is computed by {name}")
        return unary[name].format(words[0])

    def _operand(self, nodes: Sequence[int]) -> str:
        """An operand: a plain number where all nodes are the same constant."""
        k = nodes[0] - self.program.arguments
        if len(set(nodes)) == 1 and 0 <= k < len(self.program.constants):
            value = self.program.constants[k]
            if type(value) is int and abs(value) < 2**31:
                return str(value) if value >= 0 else f"({value})"
        return self.code(nodes)

    def _read(self, tables: Sequence[int], index: str) -> str:
        first, *others = [self.program.constants[node - self.program.arguments] for node in tables]
        if not isinstance(first, tuple) or any(table != first for table in others):
            raise Untranslatable("an integer is looked up in a dict or in several tables")
        kind = np.float64 if any(isinstance(x, float) for x in first) else np.int64
        code = self.scope.table(np.array(first, kind))
        if self.scope.dialect.clamps:
            return f"jnp.take({code}, {index})"
        return f"{code}[{index}]"
