"""What is computed from integers, as C: indices, numbers, and whether the call is like the example.

In: an ``IntegerProgram``, and how its arguments are read. Out: the lines of a function that returns
a status. Python's integers have no limit; where one does not fit into 64 bits, C refuses the call.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from chainrule.compiler.capture.draws import DRAWN
from chainrule.compiler.capture.integers import EXACT, ORDERED, IntegerProgram
from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.translate.c.languages import C
from chainrule.compiler.translate.c.storage import ITEM
from chainrule.compiler.translate.terms import Untranslatable

_CHECKED = {"add": "sum_of", "sub": "difference", "mul": "product", "pow": "power_of"}
_CHECKED |= {"floordiv": "floor_quotient", "mod": "remainder_of", "lshift": "shifted_left"}
_CHECKED |= {"rshift": "shifted_right", "wrap": "counted"}
_SYMBOLS = {"and_": "&", "or_": "|", "xor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_SYMBOLS |= {"gt": ">", "ge": ">="}

#: in the order in which they call each other; those that a source calls are written into it
HELPERS = {
    ITEM: """/* An index counted from the beginning, as Python counts one that is negative. */
static int64_t item(int64_t index, int64_t count) {
    return index < 0 ? index + count : index;
}""",
    "counted": """static int64_t counted(int64_t index, int64_t count, int *bad) {
    if (index < -count || index >= count) {
        *bad = 1;
        return 0;
    }
    return index < 0 ? index + count : index;
}""",
    "sum_of": """static int64_t sum_of(int64_t a, int64_t b, int *bad) {
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) {
        *bad = 1;
        return 0;
    }
    return a + b;
}""",
    "difference": """static int64_t difference(int64_t a, int64_t b, int *bad) {
    if (b > 0 ? a < INT64_MIN + b : a > INT64_MAX + b) {
        *bad = 1;
        return 0;
    }
    return a - b;
}""",
    "product": """static int64_t product(int64_t a, int64_t b, int *bad) {
    if (a != 0 && b != 0) {
        if ((a == -1 && b == INT64_MIN) || (b == -1 && a == INT64_MIN)) {
            *bad = 1;
            return 0;
        }
        if (b != -1 && (a > 0 ? (b > 0 ? a > INT64_MAX / b : b < INT64_MIN / a)
                              : (b > 0 ? a < INT64_MIN / b : b < INT64_MAX / a))) {
            *bad = 1;
            return 0;
        }
    }
    return a * b;
}""",
    "power_of": """static int64_t power_of(int64_t a, int64_t b, int *bad) {
    int64_t y = 1;
    if (b < 0) {
        *bad = 1;
        return 0;
    }
    for (; b > 0 && !*bad; b--) {
        y = product(y, a, bad);
        if (y == 0 || (y == 1 && a == 1)) {
            return y;
        }
        if (a == -1) {
            return b % 2 ? -1 : 1;
        }
    }
    return y;
}""",
    "floor_quotient": """static int64_t floor_quotient(int64_t a, int64_t b, int *bad) {
    int64_t y;
    if (b == 0 || (b == -1 && a == INT64_MIN)) {
        *bad = 1;
        return 0;
    }
    y = a / b;
    return y * b != a && (a < 0) != (b < 0) ? y - 1 : y;
}""",
    "remainder_of": """static int64_t remainder_of(int64_t a, int64_t b, int *bad) {
    int64_t y;
    if (b == 0) {
        *bad = 1;
        return 0;
    }
    if (b == -1) {
        return 0;
    }
    y = a % b;
    return y != 0 && (y < 0) != (b < 0) ? y + b : y;
}""",
    "shifted_left": """static int64_t shifted_left(int64_t a, int64_t b, int *bad) {
    if (b < 0 || (b > 62 && a != 0)) {
        *bad = 1;
        return 0;
    }
    return a == 0 ? 0 : product(a, (int64_t)1 << b, bad);
}""",
    "shifted_right": """static int64_t shifted_right(int64_t a, int64_t b, int *bad) {
    if (b < 0) {
        *bad = 1;
        return 0;
    }
    b = b > 63 ? 63 : b;
    return a < 0 ? ~(~a >> b) : a >> b;
}""",
    "entry": """static int64_t entry(const int64_t *table, int64_t count, int64_t index, int *bad) {
    return table[counted(index, count, bad)];
}""",
    "number_entry": """static double number_entry(
    const double *table, int64_t count, int64_t index, int *bad) {
    return table[counted(index, count, bad)];
}""",
    "looked_up": """static int64_t looked_up(
    const int64_t *keys, const int64_t *values, int64_t count, int64_t key, int *bad) {
    for (int64_t k = 0; k < count; k++) {
        if (keys[k] == key) {
            return values[k];
        }
    }
    *bad = 1;
    return 0;
}""",
}


class IntegerCode:
    """Writes what a call's integers decide; ``arguments``: the text of each of them."""

    def __init__(
        self, selection: Selection, arguments: Sequence[str], other: str, bad: str
    ) -> None:
        self.selection, self.program = selection, selection.program
        self.arguments, self.other, self.bad = arguments, other, bad
        self.lines: list[str] = []
        self.floats: set[int] = set()
        self.first = self.program.arguments + len(self.program.constants)
        self.tables: dict[int, str] = {}

    def written(self, chosen: Sequence[int], numbers: Sequence[tuple[str, int]]) -> list[str]:
        """The body: ``chosen`` gathers go to work memory, and ``numbers``: a place and a node."""
        program, selection = self.program, self.selection
        if program.steps:
            self.lines.append(
                "int bad = 0; /* an integer that Python would refuse, or too large */"
            )
            for node, (name, operands) in enumerate(program.steps, self.first):
                self._step(node, name, operands)
            self.lines += ["if (bad) {", f"    return {self.bad};", "}"]
        self._ranges()
        for guard in program.guards:
            word = self.word(guard.node)
            if guard.truth:
                test = f"{word} == 0" if guard.expected else f"{word} != 0"
            else:
                test = f"{word} != {self._literal(guard.expected)}"
            self.lines += [f"if ({test}) {{", f"    return {self.other};", "}"]
        for k, gather in enumerate(chosen):
            found = selection.gathers[gather]
            word = f"item({self.word(found.index)}, {len(found.candidates)})"
            self.lines.append(f"work->chosen[{k}] = {word};")
        for place, node in numbers:
            if node not in self.floats:
                word, most = self.word(node), f"INT64_C({EXACT})"
                test = f"if ({word} < -{most} || {word} > {most}) {{"
                self.lines += [test, f"    return {self.bad};", "}"]
            self.lines.append(f"{place} = (double){self.word(node)};")
        used = "\n".join(self.lines)
        kept = []
        for line in self.lines:  # what only guards of the recording needed
            name = line.split(" = ")[0].split(" ")[-1].partition("[")[0]
            if line.startswith("const ") and used.count(name) == 1 and "&bad" not in line:
                continue
            kept.append(line)
            if line.startswith("const ") and used.count(name) == 1:
                kept.append(f"(void){name};")
        return kept

    def word(self, node: int) -> str:
        """A node's text."""
        if node < self.program.arguments:
            return self.arguments[node]
        if node < self.first:
            return self._literal(self.program.constants[node - self.program.arguments])
        return f"n{node}_"

    @staticmethod
    def _literal(x: object) -> str:
        if isinstance(x, bool | int):
            if not -(2**63) < int(x) < 2**63:
                raise Untranslatable("an integer of more than 64 bits")
            return str(int(x)) if abs(int(x)) < 2**31 else f"INT64_C({int(x)})"
        if isinstance(x, float):
            return C().number(x)[0]
        raise Untranslatable("an integer is looked up in tables of several kinds")

    def _ranges(self) -> None:
        """Every index must be that of an item."""
        passed = {(c, n) for n, c in self.selection.ranges if n < self.program.arguments}
        for count, group in itertools.groupby(sorted(passed), key=lambda pair: pair[0]):
            nodes = [node for _, node in group]
            while nodes:
                run = [n for k, n in enumerate(nodes) if self._follows(n, nodes[0], k)]
                nodes = [n for n in nodes if n not in run]
                if len(run) < 3:
                    for node in run:
                        self._range(self.word(node), count)
                    continue
                name, _, first = self.word(run[0]).rpartition("[")
                begin = int(first[:-1])
                self.lines.append(f"for (int k = {begin}; k < {begin + len(run)}; k++) {{")
                mine = len(self.lines)
                self._range(f"{name}[k]", count)
                self.lines[mine:] = [f"    {line}" for line in self.lines[mine:]]
                self.lines.append("}")
        for node, count in dict.fromkeys(self.selection.ranges):
            if node >= self.program.arguments:
                self._range(self.word(node), count)

    def _follows(self, node: int, first: int, k: int) -> bool:
        """Whether an argument is in the array of the first one, ``k`` items later."""
        name, _, at = self.word(first).rpartition("[")
        return self.word(node) == (f"{name}[{int(at[:-1]) + k}]" if name else self.word(first))

    def _range(self, word: str, count: int) -> None:
        test = f"if ({word} < -{count} || {word} >= {count}) {{"
        self.lines += [test, f"    return {self.bad};", "}"]

    def _step(self, node: int, name: str, operands: tuple[int, ...]) -> None:
        kind = "int64_t"
        if name == "hashed":
            raise Untranslatable(ORDERED)
        if name in ("seeded", "item"):
            raise Untranslatable(DRAWN)
        if name != "read" and self.floats.intersection(operands):
            raise Untranslatable("an integer is computed from a table of floats")
        words = [self.word(k) for k in (operands[1:] if name in ("read", "find") else operands)]
        if name in _CHECKED:
            text = f"{_CHECKED[name]}({words[0]}, {words[1]}, &bad)"
        elif name in _SYMBOLS:
            text = f"{words[0]} {_SYMBOLS[name]} {words[1]}"
        elif name == "read":
            kind, text = self._read(operands[0], words[0])
            if kind == "double":
                self.floats.add(node)
        elif name == "choose":
            table = f"choices{node}_"
            items = ", ".join(words[1:])
            self.lines.append(f"const int64_t {table}[{len(words) - 1}] = {{{items}}};")
            text = f"entry({table}, {len(words) - 1}, {words[0]}, &bad)"
        elif name in ("max", "min"):
            text, symbol = words[0], ">" if name == "max" else "<"
            for k, word in enumerate(words[1:]):
                before = f"best{node}_{k}_"
                self.lines.append(f"const int64_t {before} = {text};")
                text = f"{word} {symbol} {before} ? {word} : {before}"
        elif name == "abs":
            text = f"{words[0]} < 0 ? difference(0, {words[0]}, &bad) : {words[0]}"
        elif name == "neg":
            text = f"difference(0, {words[0]}, &bad)"
        elif name == "invert":
            text = f"~{words[0]}" if words[0][0] != "-" else f"~({words[0]})"
        elif name == "bool":
            text = f"{words[0]} != 0"
        elif name == "int":
            text = words[0]
        else:
            raise Untranslatable(f"an integer is computed by {name}")
        self.lines.append(f"const {kind} n{node}_ = {text};")

    def _read(self, constant: int, index: str) -> tuple[str, str]:
        """A table of the function's own, read at an index."""
        table = self.program.constants[constant - self.program.arguments]
        if isinstance(table, dict):
            keys, values = (self._table(f"{constant}k", list(x)) for x in (table, table.values()))
            return "int64_t", f"looked_up({keys}, {values}, {len(table)}, {index}, &bad)"
        if all(type(x) is float for x in table):
            name = self._table(f"{constant}f", list(table), "double")
            return "double", f"number_entry({name}, {len(table)}, {index}, &bad)"
        name = self._table(str(constant), list(table))
        return "int64_t", f"entry({name}, {len(table)}, {index}, &bad)"

    def _table(self, key: str, values: Sequence[object], kind: str = "int64_t") -> str:
        if any(type(x) is float for x in values) and kind != "double":
            raise Untranslatable("an integer is looked up in a table of several kinds")
        words = [self._literal(x) for x in values]
        text = f"static const {kind} {{}}[{len(words)}] = {{{', '.join(words)}}};"
        if text not in self.tables.values():
            name = f"table{len(self.tables)}_"
            self.tables[len(self.tables)] = text
            self.lines.insert(0, text.replace("{}", name, 1))
            return name
        return f"table{next(k for k, x in self.tables.items() if x == text)}_"


def is_trivial(program: IntegerProgram) -> bool:
    """Whether nothing is computed from integers: they only select."""
    return not program.steps and not program.guards
