"""The two languages that loops are written in: C, and Python to check them with.

In: pieces of expressions and statements. Out: their text. The same writer writes the source that a
user gets and the Python that is run and compared with eager mode before the user gets it; whatever
differs between the two languages is here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

COMPARISON, SUM, PRODUCT, ATOM = range(4)  # how tightly an expression binds
LINE = 100  # characters
BREAKS = (" + ", " - ", " * ", " / ", " ? ", " : ", " = ")  # where a long line may end


class Language:
    """What C and Python have in common."""

    end = ""
    nothing = ""  # no array
    scalar = ""  # the index of an array that is a single number

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    # --- expressions ------------------------------------------------------------------------------

    def number(self, x: float) -> tuple[str, int]:
        """A number that is read back exactly, and how tightly its text binds."""
        if x != x:
            return self.nan, ATOM
        if math.isinf(x):
            return (self.infinity, ATOM) if x > 0 else (f"-{self.infinity}", PRODUCT)
        text = f"{x:.1f}" if x == int(x) and abs(x) < 1e15 else repr(float(x))
        return text, PRODUCT if text.startswith("-") else ATOM

    nan = infinity = ""

    def quotient(self, a: str, b: str) -> tuple[str, int]:
        """``a / b`` by IEEE rules."""
        raise NotImplementedError

    def choice(self, condition: str, a: str, b: str) -> str:
        """``a`` where the condition holds, else ``b``."""
        raise NotImplementedError

    # --- statements -------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        """One line."""
        self.lines.append("    " * self.depth + text if text else "")

    def assign(self, place: str, text: str) -> None:
        """``place = text``."""
        self.emit(f"{place} = {text}{self.end}")

    def add(self, place: str, text: str) -> None:
        """``place += text``."""
        if text.startswith("-") and " + " not in text and " - " not in text:
            self.emit(f"{place} -= {text[1:]}{self.end}")
        else:
            self.emit(f"{place} += {text}{self.end}")

    def either(self, place: str, truth: str) -> None:
        """Remember in ``place`` that something was true once."""
        self.emit(f"{place} |= {truth}{self.end}")

    def constant(self, name: str, text: str) -> None:
        """A new name for a number."""
        raise NotImplementedError

    def variable(self, name: str, text: str, kind: str = "double") -> None:
        """A new variable."""
        raise NotImplementedError

    def table(self, name: str, values: Sequence[float | int], kind: str) -> str:
        """The definition of a table of numbers."""
        raise NotImplementedError

    def pointers(self, name: str, places: Sequence[str], constant: bool) -> None:
        """A table of arrays."""
        raise NotImplementedError

    def function(
        self, name: str, parameters: Sequence[str], lets: Sequence[tuple[str, str]], result: str
    ) -> str:
        """A helper function of numbers."""
        raise NotImplementedError

    def comment(self, text: str) -> None:
        """A comment on the lines that follow."""
        raise NotImplementedError

    @contextmanager
    def loop(self, name: str, first: str, last: str, backwards: bool = False) -> Iterator[None]:
        """A loop around what is written inside, from ``first`` up to below ``last``."""
        self.open_loop(name, first, last, backwards)
        self.depth += 1
        yield
        self.depth -= 1
        self.close()

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """A branch around what is written inside."""
        self.open_branch(condition)
        self.depth += 1
        yield
        self.depth -= 1
        self.close()

    def open_loop(self, name: str, first: str, last: str, backwards: bool) -> None:
        """The first line of a loop."""
        raise NotImplementedError

    def open_branch(self, condition: str) -> None:
        """The first line of a branch."""
        raise NotImplementedError

    def close(self) -> None:
        """The last line of a loop or branch."""
        raise NotImplementedError

    both, neither, either_zero = "", "", ""  # templates of conditions
    work = ""  # before the names of arrays in work memory
    size, library = "", ""  # the absolute value; what stands before a function of the C library


class C(Language):
    """C99."""

    def emit(self, text: str) -> None:
        """One statement, in as many lines as it needs."""
        line = "    " * self.depth + text
        while len(line) > LINE and not text.startswith("/*"):
            at = max(line.rfind(symbol, 4 * self.depth + 8, LINE) for symbol in BREAKS)
            if at < 0:
                break
            self.lines.append(line[:at])
            line = "    " * (self.depth + 1) + line[at + 1 :]
        self.lines.append(line if text else "")

    end = ";"
    nothing = "0"
    nan, infinity = "NAN", "INFINITY"
    both, neither = "{} && {}", "!{}"
    either_zero = "slope == 0.0 || g == 0.0"
    work = "work->"
    size = "fabs"

    def quotient(self, a: str, b: str) -> tuple[str, int]:
        """C follows IEEE rules."""
        return f"{a} / {b}", PRODUCT

    def choice(self, condition: str, a: str, b: str) -> str:
        """The conditional operator."""
        return f"({condition} ? {a} : {b})"

    def constant(self, name: str, text: str) -> None:
        """A constant of a block."""
        self.emit(f"const double {name} = {text};")

    def variable(self, name: str, text: str, kind: str = "double") -> None:
        """A variable of a block."""
        self.emit(f"{kind} {name} = {text};")

    def table(self, name: str, values: Sequence[float | int], kind: str) -> str:
        """A constant of the file."""
        words = [self.number(x)[0] if kind == "double" else str(x) for x in values]
        rows, row = list[str](), "   "
        for word in words:
            if len(row) + len(word) + 2 > LINE:
                rows.append(row)
                row = "   "
            row += f" {word},"
        return "\n".join([f"static const {kind} {name}[{len(words)}] = {{", *rows, row, "};"])

    def pointers(self, name: str, places: Sequence[str], constant: bool) -> None:
        """An array of pointers."""
        kind = "const double *const" if constant else "double *const"
        self.emit(f"{kind} {name}[{len(places)}] = {{{', '.join(places)}}};")

    def function(
        self, name: str, parameters: Sequence[str], lets: Sequence[tuple[str, str]], result: str
    ) -> str:
        """A static function."""
        given = ", ".join(f"double {p}" for p in parameters)
        lines = [f"static double {name}({given}) {{"]
        lines += [f"    const double {let} = {text};" for let, text in lets]
        return "\n".join([*lines, f"    return {result};", "}"])

    def comment(self, text: str) -> None:
        """One or several lines."""
        for line in text.splitlines():
            self.emit(f"/* {commented(line)} */")

    def open_loop(self, name: str, first: str, last: str, backwards: bool) -> None:
        """A for loop."""
        if backwards:
            self.emit(f"for (int {name} = {last} - 1; {name} >= {first}; {name}--) {{")
        else:
            self.emit(f"for (int {name} = {first}; {name} < {last}; {name}++) {{")

    def open_branch(self, condition: str) -> None:
        """An if."""
        self.emit(f"if ({condition}) {{")

    def close(self) -> None:
        """The end of a block."""
        self.emit("}")


class Python(Language):
    """Python over flat lists."""

    nothing = "None"
    scalar = "[0]"
    nan, infinity = "NAN", "INFINITY"
    both, neither = "({} and {})", "(not {})"
    either_zero = "slope == 0.0 or g == 0.0"
    work = "work_"
    size = "abs"
    library = "libm_"

    def quotient(self, a: str, b: str) -> tuple[str, int]:
        """Python raises where IEEE has a number."""
        return f"div({a}, {b})", ATOM

    def choice(self, condition: str, a: str, b: str) -> str:
        """The conditional expression."""
        return f"({a} if {condition} else {b})"

    def constant(self, name: str, text: str) -> None:
        """A variable."""
        self.emit(f"{name} = {text}")

    def variable(self, name: str, text: str, kind: str = "double") -> None:
        """A variable."""
        self.emit(f"{name} = {text}")

    def table(self, name: str, values: Sequence[float | int], kind: str) -> str:
        """A list."""
        words = [self.number(x)[0] if kind == "double" else str(x) for x in values]
        return f"{name} = [{', '.join(words)}]"

    def pointers(self, name: str, places: Sequence[str], constant: bool) -> None:
        """A list of lists."""
        self.emit(f"{name} = [{', '.join(places)}]")

    def function(
        self, name: str, parameters: Sequence[str], lets: Sequence[tuple[str, str]], result: str
    ) -> str:
        """A function."""
        lines = [f"def {name}({', '.join(parameters)}):"]
        lines += [f"    {let} = {text}" for let, text in lets]
        return "\n".join([*lines, f"    return {result}"])

    def comment(self, text: str) -> None:
        """Nobody reads it."""

    def open_loop(self, name: str, first: str, last: str, backwards: bool) -> None:
        """A for loop."""
        counted = f"range({first}, {last})"
        self.emit(f"for {name} in {f'reversed({counted})' if backwards else counted}:")

    def open_branch(self, condition: str) -> None:
        """An if."""
        self.emit(f"if {condition}:")

    def close(self) -> None:
        """A block that may be empty."""
        self.emit("    pass")


def commented(text: str) -> str:
    """Text that may stand in a comment of C, whatever names it has."""
    return text.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").rstrip("\\")
