"""What the arguments of a function are called in C.

In: the inputs of a recorded call and the names of its parameters. Out: a ``Parameter`` for each
argument that has numbers, a number, an array or a structure of several, and how each is read.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.formulas.reading import size_text
from chainrule.compiler.translate.c.bodies import Leaf
from chainrule.compiler.translate.c.integers import HELPERS
from chainrule.compiler.translate.c.languages import C, Language
from chainrule.compiler.translate.c.rows import KEYWORDS, LIBRARY

#: names that the source has for things of its own
OWN = (
    *("work", "value", "grad", "jacobian", "forward", "backward", "integers", "fill", "status"),
    *("all_finite", "clear_adjoints", "fill_grad", "is_finite_grad", "row", "RESTRICT", "k", "bad"),
)


def identifier(text: str) -> str:
    """A name that C and C++ accept, for one that Python accepts."""
    made = ""
    for letter in unicodedata.normalize("NFKC", text):
        if letter.isascii():
            made += letter if letter.isalnum() else "_"
        else:  # Greek letters by their names
            word = unicodedata.name(letter, "").rpartition(" ")[2].lower()
            word = "lambda" if word == "lamda" else word
            made += word if word.isascii() and word.isalpha() else f"u{ord(letter):x}"
    made = re.sub(r"_+", "_", made).strip("_") or "x"
    return f"p_{made}" if made[0].isdigit() else made


@dataclass(frozen=True)
class Parameter:
    """A parameter of the C functions: a number, an array, or a structure of several."""

    name: str
    leaves: tuple[Named, ...]
    members: tuple[str, ...]  # of a structure, in the order of the leaves
    kind: str  # the structure's type, or nothing

    def declared(self, constant: bool = True) -> str:
        """As a parameter."""
        const = "const " if constant else ""
        if self.kind:
            return f"{const}{self.kind} *{self.name}"
        (leaf,) = self.leaves
        number = "int64_t" if leaf.integers else "double"
        return f"{const}{number} *{self.name}" if leaf.shape else f"{number} {self.name}"

    @property
    def words(self) -> str:
        """What it is, for the header."""
        if self.kind:
            return f"{self.name}: a structure of {len(self.leaves)} arrays"
        (leaf,) = self.leaves
        number = "integers" if leaf.integers else "numbers"
        if not leaf.shape:
            return f"{self.name}: one {number[:-1]}"
        return f"{self.name}: {math.prod(leaf.shape)} {number} {size_text(leaf.shape)}"


class Names:
    """The names of the arguments in C: parameters, members of structures, leaves in order."""

    def __init__(self, name: str, parameters: Sequence[str], inputs: Sequence[Named]) -> None:
        self.name = identifier(name)
        if self.name in KEYWORDS or self.name in LIBRARY or self.name in OWN:
            self.name += "_"
        taken = {*OWN, *KEYWORDS, *LIBRARY, self.name}
        self.parameters: list[Parameter] = []
        self.first: Parameter | None = None
        self.at: dict[int, tuple[Parameter, str]] = {}  # by the id of a leaf
        by_parameter: dict[str, list[Named]] = {word: [] for word in parameters}
        for named in inputs:
            if named.path:
                start = re.match(r"\w+", named.path)
                assert start is not None
                by_parameter[start[0]].append(named)
        for k, (word, leaves) in enumerate(by_parameter.items()):
            own = _fresh(identifier(word), taken)
            kind, members = "", [own] if leaves else []
            if len(leaves) > 1 or (leaves and leaves[0].path != word):
                kind, inside = f"{self.name}_{identifier(word)}", {*KEYWORDS}
                members = [_fresh(_member(word, leaf.path), inside) for leaf in leaves]
            made = Parameter(own, tuple(leaves), tuple(members), kind)
            if leaves:
                self.parameters.append(made)
            if k == 0:
                self.first = made
            for leaf, member in zip(leaves, members, strict=True):
                self.at[id(leaf)] = made, member

    def leaves(self, inputs: Sequence[Named], language: Language) -> list[Leaf]:
        """All inputs, as a language reads them."""
        found = []
        for k, named in enumerate(inputs):
            if not named.path:
                found.append(Leaf(named.name, f"outside{k}", "", named.shape, False, False, False))
                continue
            parameter, member = self.at[id(named)]
            alone = not parameter.kind
            active = parameter is self.first and not named.integers
            if isinstance(language, C):
                value = parameter.name if alone else f"{parameter.name}->{member}"
                adjoint = "grad" if alone else f"grad->{member}"
            else:
                value, adjoint = f"in_{k}", f"d_in_{k}"
            by_value = alone and not named.shape
            found.append(Leaf(member, value, adjoint, named.shape, by_value, active, by_value))
        return found

    @property
    def reserved(self) -> set[str]:
        """Names that nothing else may have."""
        return {*OWN, *KEYWORDS, *LIBRARY, *HELPERS, *[p.name for p in self.parameters]}


def _member(word: str, path: str) -> str:
    """The name of a leaf within its parameter: ``layers[0]["W"]`` is ``layers_0_W``."""
    name = identifier(path.removeprefix(word))
    return identifier(path) if name.startswith("p_") else name


def _fresh(name: str, taken: set[str]) -> str:
    found, k = name, 1
    while found in taken:
        found, k = (f"{name}_" if k == 1 else f"{name}_{k}"), k + 1
    taken.add(found)
    return found
