"""One text of several that differ in integers.

In: the ``Source`` of each recording, of the same structure, and their sizes. Out: one ``Source`` in
which every integer that differs is an expression of the sizes. Constants of the module that depend
on sizes move into the function. Comments are unified too: above a line stands its formula.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from chainrule.compiler.formulas.reading import WIDTH
from chainrule.compiler.translate.module import Source
from chainrule.compiler.translate.sizes.laws import Polynomial, Sizes, integer, real
from chainrule.compiler.translate.sizes.numbers import Different
from chainrule.compiler.translate.terms import Untranslatable

NUMBER = r"\d+\.\d*(?:e[+-]?\d+)?|\d+(?:e[+-]?\d+)?"
TOKEN = re.compile(rf'"[^"]*"|[^\W\d]\w*|{NUMBER}|\s+|.')
BEFORE, AFTER = "([,:=", ")],:"  # between these an expression needs no brackets


@dataclass(eq=False)
class Unifier:
    """Unifies lines; remembers the laws of the integers that it replaced."""

    sizes: Sizes
    laws: dict[Polynomial, None] = field(default_factory=dict)

    def source(self, sources: Sequence[Source], unpacking: Sequence[str]) -> Source:
        """One source; ``unpacking`` are the lines that read the arguments and their sizes."""
        first = sources[0]
        for what in ("imports", "helpers", "head"):
            if len({getattr(source, what) for source in sources}) > 1:
                raise Different(f"its {what}")
        fixed: list[str] = []
        moved: list[str] = []
        for constant in self._zip([source.constants for source in sources]):
            made = self.block(constant)
            (fixed if made == constant[0] else moved).append(made)
        body = [self.block(blocks) for blocks in self._zip([x.body for x in sources])]
        return replace(
            first, constants=tuple(fixed), unpacking=tuple(unpacking), body=(*moved, *body)
        )

    def slices(self, body: Sequence[str], integers: Mapping[str, Polynomial]) -> list[Polynomial]:
        """What must not be negative, so that no slice of integers ends beyond their end.

        ``integers``: the length of each such array.
        """
        found: dict[Polynomial, None] = {}
        known = {law.code: law for law in self.laws}
        for name, length in integers.items():
            for line in body:
                for end in re.findall(rf"\b{name}\[[^][:,]*:([^][:,]+)\]", line):
                    if end in known:
                        points = [dict(enumerate(point)) for point in self.sizes.points]
                        left = [int(length.at(p) - known[end].at(p)) for p in points]
                        law = None if len(set(left)) == 1 else integer(left, self.sizes)
                        found.update({} if law is None else {law: None})
        return list(found)

    def _zip(self, rows: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
        if len({len(row) for row in rows}) > 1:
            raise Different("the number of its lines")
        return list(zip(*rows, strict=True))

    def block(self, blocks: Sequence[str]) -> str:
        """A block of lines."""
        rows = [_lines(block) for block in blocks]
        made = []
        for lines in self._zip(rows):
            made.append(self._line(lines))
        return "\n".join(made)

    def _line(self, lines: Sequence[str]) -> str:
        first = lines[0]
        if len(set(lines)) == 1 and not first.lstrip().startswith("#"):
            return first
        if first.lstrip().startswith("#"):
            indent = first[: first.index("#")]
            words = self._comment([line.lstrip("# ") for line in lines])
            return textwrap.fill(
                words, WIDTH, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}#     "
            )
        rows = [TOKEN.findall(line) for line in lines]
        name = first.partition(" = ")[0].strip()
        if name.startswith(("PLACES", "NUMBERS")):
            raise Untranslatable(
                f"a table of {'places' if name.startswith('P') else 'numbers'} depends on sizes "
                f"({', '.join(_short(line) for line in lines[:2])}): only formulas are for any size"
            )
        if len({len(row) for row in rows}) > 1:
            raise Different(_both(lines))
        made = ""
        for k, tokens in enumerate(zip(*rows, strict=True)):
            if len(set(tokens)) == 1:
                made += tokens[0]
                continue
            if not all(re.fullmatch(NUMBER, token) for token in tokens):
                raise Different(_both(lines))
            word = self._number(tokens, lines)
            around = "".join(rows[0][:k]).rstrip()[-1:], "".join(rows[0][k + 1 :]).lstrip()[:1]
            free = around[0] in BEFORE and around[1] in AFTER
            made += word if free or word.isidentifier() else f"({word})"
        return made

    def _number(self, tokens: Sequence[str], lines: Sequence[str]) -> str:
        if all(token.isdigit() for token in tokens):
            law = integer([int(token) for token in tokens], self.sizes)
            if law is not None:
                self.laws[law] = None
                return law.code
        else:
            found = real([float(token) for token in tokens], self.sizes)
            if found is not None:
                return found.code
        shown = [f"{token} at {self.sizes.text(k)}" for k, token in enumerate(tokens[:3])]
        raise Untranslatable(f"no size explains a number that is {', '.join(shown)}: {lines[0]}")

    def _comment(self, lines: Sequence[str]) -> str:
        """A formula; a number in it that no size explains is left out."""
        rows = [TOKEN.findall(line) for line in lines]
        if len({len(row) for row in rows}) > 1:
            return f"{lines[0]}  (at {self.sizes.text(0)})"
        made = ""
        for k, tokens in enumerate(zip(*rows, strict=True)):
            if len(set(tokens)) == 1:
                made += tokens[0]
                continue
            law = None
            if all(token.isdigit() for token in tokens):
                law = integer([int(token) for token in tokens], self.sizes)
            if law is None:
                made += "…"
                continue
            word = re.sub(r" ([*/+-]+) ", r"\1", law.code).replace("//", "/").replace("*", "·")
            after = rows[0][k + 1][:1] if k + 1 < len(rows[0]) else ""
            around = "".join(rows[0][:k]).rstrip()[-1:] in "[,×<≤" and not after.isalpha()
            made += word if around or word.isidentifier() else f"({word})"
            made += "·" if after.isalpha() else ""
        return made


def _lines(block: str) -> list[str]:
    """The lines of a block; a comment over several lines is one."""
    made: list[str] = []
    for line in block.splitlines():
        if line.lstrip().startswith("#     ") and made and made[-1].lstrip().startswith("#"):
            made[-1] += " " + line.lstrip("# ")
        else:
            made.append(line)
    return made


def _both(lines: Sequence[str]) -> str:
    other = next(line for line in lines if line != lines[0])
    return f"{lines[0].strip()} / {other.strip()}"


def _short(line: str) -> str:
    return textwrap.shorten(line, 40, placeholder="...")


def divisors(laws: Sequence[Polynomial]) -> list[tuple[str, int]]:
    """What must be a multiple of what, so that every integer is one: expressions and numbers."""
    found: dict[tuple[str, int], None] = {}
    for law in laws:
        below = math.lcm(*[c.denominator for c, _ in law.terms])
        if below > 1:
            above = Polynomial(law.names, tuple([(c * below, m) for c, m in law.terms]))
            used = [k for k in range(len(law.names)) if any(m[k] for _, m in law.terms)]
            points = itertools.product(range(below), repeat=len(used))
            if any(above.at(dict(zip(used, point, strict=True))) % below for point in points):
                found[above.code, below] = None
    return list(found)
