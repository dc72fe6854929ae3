"""A C file and its header for one recorded call.

In: the ``Bodies`` of both passes in C, and the names of the arguments. Out: two texts: functions of
plain arrays that need nothing but math.h, and their declarations.
"""

from __future__ import annotations

import math
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.formulas.notation import Number, Ref
from chainrule.compiler.formulas.reading import size_text
from chainrule.compiler.translate.c.bodies import Bodies, Leaf
from chainrule.compiler.translate.c.integers import HELPERS, IntegerCode
from chainrule.compiler.translate.c.languages import C, Language, commented
from chainrule.compiler.translate.c.rows import KEYWORDS, LIBRARY
from chainrule.compiler.translate.terms import Untranslatable

#: what the functions return, in the order of their numbers
STATUS = {
    "OK": "value and derivatives are computed",
    "OTHER_BRANCH": "a branch goes another way than in the example; the results are NAN",
    "BAD_INTEGER": "an integer is no index of a list, or too large; the results are NAN",
    "UNSURE": "computed, but so close to a tie or a jump that rounding decided",
    "UNDEFINED": "computed, but a result is not finite",
}
OWN = ("work", "value", "grad", "jacobian", "forward", "backward", "integers", "fill", "status")
WIDTH = 92


def identifier(text: str) -> str:
    """A name that C and C++ accept, for one that Python accepts."""
    made = ""
    for letter in unicodedata.normalize("NFKC", text):
        if letter.isascii():
            made += letter if letter.isalnum() else "_"
        else:  # Greek letters by their names
            word = unicodedata.name(letter, "").rpartition(" ")[2].lower()
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
                word = re.match(r"\w+", named.path)
                assert word is not None
                by_parameter[word[0]].append(named)
        for k, (word, leaves) in enumerate(by_parameter.items()):
            own = _fresh(identifier(word), taken)
            kind, members = "", [own]
            if len(leaves) > 1 or (leaves and leaves[0].path != word):
                kind, inside = f"{self.name}_{own}", {*KEYWORDS}
                short = [_without(word, leaf.name) for leaf in leaves]
                members = [_fresh(identifier(text), inside) for text in short]
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


def _without(word: str, name: str) -> str:
    """A leaf's name without that of its parameter, where something is left."""
    rest = name.removeprefix(word).lstrip(".")
    return rest if rest and rest != name else name


def _fresh(name: str, taken: set[str]) -> str:
    found, k = name, 1
    while found in taken:
        found, k = (f"{name}_" if k == 1 else f"{name}_{k}"), k + 1
    taken.add(found)
    return found


class Module:
    """The two texts while they are written."""

    def __init__(
        self,
        names: Names,
        bodies: Bodies,
        selection: Selection,
        summary: Sequence[str],
        differentiable: bool,
        scalar: bool,
    ) -> None:
        """``scalar``: it returns one number, whose gradient is wanted, not a Jacobian."""
        self.names, self.bodies, self.selection = names, bodies, selection
        self.summary, self.differentiable, self.scalar = list(summary), differentiable, scalar
        self.upper = names.name.upper()
        self.used = {p.name: p for p in names.parameters}
        self.integers = self._integers()

    # --- parts ------------------------------------------------------------------------------------

    def _integers(self) -> list[str]:
        """The body of the function that looks at integers."""
        selection, bodies = self.selection, self.bodies
        arena = bodies.reading.arena
        words: list[str] = []
        for _, stretch in arena.integers:
            stored = bodies.storage.stored[stretch]
            if stored.sizes:
                words += [f"{stored.value}[{k}]" for k in range(stored.size)]
            else:
                words.append(stored.value)
        numbers: list[tuple[str, int]] = []
        at = 0
        for stretch in bodies.numbers:
            stored = bodies.storage.stored[stretch]
            for k in range(stored.size):
                place = bodies.storage.text(stretch, str(k) if stored.sizes else None)
                numbers.append((place, selection.numbers[at]))
                at += 1
        code = IntegerCode(
            selection, words, f"{self.upper}_OTHER_BRANCH", f"{self.upper}_BAD_INTEGER"
        )
        return code.written(bodies.gathers, numbers)

    def _arguments(self, *bodies: Sequence[str]) -> list[Parameter]:
        """The parameters that some lines use."""
        text = "\n".join(line for body in bodies for line in body)
        return [p for p in self.names.parameters if re.search(rf"\b{p.name}\b", text)]

    @property
    def _work(self) -> str:
        return f"{self.names.name}_work"

    def _static(self, name: str, kind: str, body: Sequence[str], restrict: bool) -> tuple[str, str]:
        """A static function that takes what its body uses, and the call of it."""
        text, given, passed = "\n".join(body), list[str](), list[str]()
        for p in self._arguments(body):
            given.append(p.declared())
            passed.append(p.name)
        pointers = {"work": f"{self._work} *", "grad": f"{self._grad_kind} *"}
        for word, type_ in pointers.items():
            if re.search(rf"\b{word}\b", text):
                given.append(f"{type_}{'RESTRICT ' if restrict else ''}{word}")
                passed.append(word)
        head = f"static {kind} {name}({', '.join(given) or 'void'}) {{"
        if len(head) > 100:
            space = "\n" + " " * (len(f"static {kind} {name}("))
            head = f"static {kind} {name}({f',{space}'.join(given)}) {{"
        return "\n".join([head, *body, "}"]), f"{name}({', '.join(passed)})"

    @property
    def _grad_kind(self) -> str:
        first = self.names.first
        return first.kind if first is not None and first.kind else "double"

    # --- the header -------------------------------------------------------------------------------

    def header(self) -> str:
        """The declarations."""
        name, upper = self.names.name, self.upper
        lines = [_block(self.summary + ["", *self._usage()])]
        lines += [f"#ifndef {upper}_H", f"#define {upper}_H", "", "#include <stdint.h>", ""]
        lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
        lines += ["/* what the functions return */", "enum {"]
        for k, (word, meaning) in enumerate(STATUS.items()):
            comma = "," if k < len(STATUS) - 1 else ""
            text = f"    {upper}_{word} = {k}{comma}"
            lines.append(f"{text:<{len(upper) + 23}} /* {meaning} */")
        lines += ["};", ""]
        for p in self.names.parameters:
            if p.kind:
                lines += self._structure(p)
        lines += self._memory()
        for declaration in self._declarations():
            lines += [f"{declaration};", ""]
        lines += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {upper}_H */", ""]
        assert name
        return "\n".join(lines)

    def _usage(self) -> list[str]:
        lines = [f"{p.words}" for p in self.names.parameters]
        lines += [
            "Arrays are flat, the last index moving fastest. All memory is the caller's; nothing is"
            " allocated, and calls with different work memory may run at the same time.",
            "",
            "Numbers follow IEEE rules: where Python raises for an undefined number, such as log(-1),"
            " results are nan or infinite.",
        ]
        return lines

    def _structure(self, p: Parameter) -> list[str]:
        """The type of an argument that is several arrays."""
        lines = ["typedef struct {"]
        for leaf, member in zip(p.leaves, p.members, strict=True):
            number = "int64_t" if leaf.integers else "double"
            lines.append(f"    {number} {member}{_extent(leaf.shape)};")
        return [*lines, f"}} {p.kind};", ""]

    def _memory(self) -> list[str]:
        """The type of work memory."""
        lines = ["/* memory that a call computes in; its contents need no care */", "typedef struct {"]
        if self.bodies.gathers:
            lines.append(f"    int64_t chosen[{len(self.bodies.gathers)}];")
        members = [x for adjoints in (False, True) for x in self.bodies.members(adjoints)]
        lines += _packed([f"{name}{_extent(sizes)}" for name, sizes in members])
        if self.bodies.storage.is_unsure or not members:
            lines.append("    int unsure;")
        return [*lines, f"}} {self._work};", ""]

    def _declarations(self) -> list[str]:
        given = ", ".join(p.declared() for p in self.names.parameters)
        given += ", " * bool(given)
        name, count = self.names.name, len(self.bodies.outputs)
        several = "" if count == 1 else f" {count} numbers"
        made = [
            f"/* the value{several and ': ' + several} */\n"
            f"int {name}_value({given}{self._work} *work, double *value)"
        ]
        if self.differentiable and self.scalar:
            assert self.names.first is not None
            made.append(
                f"/* the value, and its derivative by each number of {self.names.first.name} */\n"
                f"int {name}_value_and_grad({given}{self._work} *work, double *value,\n"
                f"    {self._grad_kind} *grad)"
            )
        elif self.differentiable:
            size = sum(math.prod(x.shape) for x in self.names.first.leaves) if self.names.first else 0
            made.append(
                f"/* {count} numbers, and the derivative of each: {count} rows of {size} */\n"
                f"int {name}_jacobian({given}{self._work} *work, double *value, double *jacobian)"
            )
        return made

    # --- the source -------------------------------------------------------------------------------

    def source(self, header: str) -> str:
        """The functions; ``header``: the name of the file to include."""
        bodies = self.bodies
        functions, calls = list[str](), dict[str, str]()
        if self.integers:
            body = [f"    {line}" for line in self.integers] + [f"    return {self.upper}_OK;"]
            text, calls["integers"] = self._static("integers", "int", body, False)
            functions.append("/* whether the integers are like those of the example */\n" + text)
        body = [*bodies.forward, f"    return {self.upper}_OK;"]
        if not self._returns(bodies.forward):
            body = list(bodies.forward)
        kind = "int" if self._returns(bodies.forward) else "void"
        text, calls["forward"] = self._static("forward", kind, body, True)
        functions.append("/* every number, in order */\n" + text)
        if self.differentiable and bodies.backward:
            text, calls["backward"] = self._static("backward", "void", bodies.backward, True)
            note = "/* the adjoint of every number: the derivative of the result by it, in reverse */"
            functions.append(f"{note}\n{text}")
        public = self._public(calls)
        everything = "\n".join([*functions, *public])
        helpers = bodies.helpers(everything)
        fill = "static void fill(double *x, int count, double number) {\n"
        fill += "    for (int k = 0; k < count; k++) {\n        x[k] = number;\n    }\n}"
        if re.search(r"\bfill\(", everything):
            helpers.insert(0, fill)
        helpers = [*_called(everything + "\n".join(helpers)), *helpers]
        if re.search(r"\bchain\(", "\n".join(helpers)):
            k = next(k for k, x in enumerate(helpers) if " chain(" in x)
            helpers[k] = "/* a slope times an adjoint; 0 on either side passes nothing on */\n" + helpers[k]
        rest = "\n".join([everything, *helpers])
        tables = [
            bodies.language.table(name, numbers, kind)
            for (kind, numbers), name in bodies.storage.tables.items()
            if re.search(rf"\b{name}\b", rest)
        ]
        parts = [_block([f"{header[:-2]}.c: see {header}."]) + f'\n#include "{header}"']
        parts[0] += "\n\n#include <math.h>"
        if "RESTRICT" in rest:
            parts.append(
                "#ifdef __cplusplus\n#define RESTRICT\n#else\n#define RESTRICT restrict\n#endif"
            )
        return "\n\n".join([*parts, *tables, *helpers, *functions, *public]) + "\n"

    @staticmethod
    def _returns(body: Sequence[str]) -> bool:
        return any(line.strip().startswith("return ") for line in body)

    def _public(self, calls: dict[str, str]) -> list[str]:
        """The functions that a caller calls."""
        bodies, count, upper = self.bodies, len(self.bodies.outputs), self.upper
        heads = [text.partition("*/\n")[2] for text in self._declarations()]
        steps = [calls[k] for k in ("integers", "forward") if k in calls]
        failing = [k for k in ("integers", "forward") if k in calls]
        failing = [k for k in failing if k == "integers" or self._returns(bodies.forward)]
        values = []
        for k, output in enumerate(bodies.outputs):
            text = "NAN" if output is None else bodies.text(output)
            if isinstance(output, Number):
                text = bodies.language.number(output.value)[0]
            values.append(f"value[{k}] = {text};" if count > 1 else f"*value = {text};")
        first = self.names.first
        adjoints = [
            f"fill({text}, {math.prod(sizes)}, 0.0);" if sizes else f"{text} = 0.0;"
            for text, sizes in [(f"work->{n}", s) for n, s in bodies.members(True)]
        ]
        made = []
        for head in heads:
            is_value, is_grad = "_value(" in head, "_value_and_grad(" in head
            lost = ["fill(value, %d, NAN);" % count if count > 1 else "*value = NAN;"]
            finite = "isfinite(*value)" if count == 1 else ""
            body = ["int status;"] if failing else []
            size = sum(math.prod(x.shape) for x in first.leaves) if first is not None else 0
            if is_grad:
                lost += self._each_gradient("NAN")
            elif not is_value:
                lost.append(f"fill(jacobian, {count * size}, NAN);")
            for k, step in zip([k for k in ("integers", "forward") if k in calls], steps, strict=True):
                if k not in failing:
                    body.append(f"{step};")
                    continue
                body += [f"status = {step};", f"if (status != {upper}_OK) {{"]
                body += [f"    {line}" for line in lost] + ["    return status;", "}"]
            body += values
            if is_grad:
                output = bodies.outputs[0]
                body += [*adjoints, *self._each_gradient("0.0")]
                seed = None if output is None else bodies.seeded(output)
                if seed is not None and "backward" in calls:
                    body += [f"{seed} = 1.0;", f"{calls['backward']};"]
                elif seed is not None:
                    body.append(f"{seed} = 1.0;")
            elif not is_value:
                body += self._rows(calls, adjoints, size)
            body += self._status(count, size, is_value, is_grad, finite)
            text = "\n".join(body)
            unused = [
                p.name for p in self.names.parameters if not re.search(rf"\b{p.name}\b", text)
            ]
            unused += [] if re.search(r"\bwork\b", text) else ["work"]
            body = [*[f"(void){word};" for word in unused], *body]
            body.sort(key=lambda line: not line.startswith("int "))
            made.append("\n".join([f"{head} {{", *[f"    {line}" for line in body], "}"]))
        return made

    def _each_gradient(self, number: str) -> list[str]:
        """Every array of the gradient filled with a number."""
        first = self.names.first
        if first is None:
            return []
        if not first.kind:
            (leaf,) = first.leaves
            size = math.prod(leaf.shape)
            return [f"fill(grad, {size}, {number});" if leaf.shape else f"*grad = {number};"]
        made = []
        for leaf, member in zip(first.leaves, first.members, strict=True):
            size = math.prod(leaf.shape)
            text = f"grad->{member}"
            made.append(f"fill({text}, {size}, {number});" if leaf.shape else f"{text} = {number};")
        return made

    def _rows(self, calls: dict[str, str], adjoints: list[str], size: int) -> list[str]:
        """The rows of a Jacobian, one backward pass each."""
        bodies, lines = self.bodies, list[str]()
        assert self.names.first is not None
        lines.append(f"for (int row = 0; row < {len(bodies.outputs)}; row++) {{")
        kind = self._grad_kind
        cast = f"({kind} *)" if kind != "double" else ""
        inside = [f"{kind} *grad = {cast}(jacobian + {size} * row);", *adjoints]
        inside += self._each_gradient("0.0")
        inside.append("switch (row) {")
        for k, output in enumerate(bodies.outputs):
            seed = None if output is None else bodies.seeded(output)
            if seed is not None:
                inside += [f"case {k}:", f"    {seed} = 1.0;", "    break;"]
        inside += ["default:", "    break;", "}"]
        if "backward" in calls:
            inside.append(f"{calls['backward']};")
        return [*lines, *[f"    {line}" for line in inside], "}"]

    def _status(
        self, count: int, size: int, is_value: bool, is_grad: bool, finite: str
    ) -> list[str]:
        """What is said of numbers that were computed."""
        lines = []
        undefined = [f"    return {self.upper}_UNDEFINED;", "}"]
        if finite:
            lines += [f"if (!{finite}) {{", *undefined]
        else:
            lines += [f"for (int k = 0; k < {count}; k++) {{", "    if (!isfinite(value[k])) {"]
            lines += [f"        return {self.upper}_UNDEFINED;", "    }", "}"]
        first = self.names.first
        arrays: list[tuple[str, int]] = []
        if is_grad and first is not None:
            for leaf, member in zip(first.leaves, first.members, strict=True):
                text = f"grad->{member}" if first.kind else "grad"
                text = text if leaf.shape else f"&{text}" if first.kind else text
                arrays.append((text, math.prod(leaf.shape)))
        elif not is_value:
            arrays.append(("jacobian", count * size))
        for text, n in arrays:
            if n:
                lines += [f"if (!finite({text}, {n})) {{", *undefined]
        if self.bodies.storage.is_unsure:
            lines.append(f"return work->unsure ? {self.upper}_UNSURE : {self.upper}_OK;")
        else:
            lines.append(f"return {self.upper}_OK;")
        return lines


_FINITE = """static int finite(const double *x, int count) {
    for (int k = 0; k < count; k++) {
        if (!isfinite(x[k])) {
            return 0;
        }
    }
    return 1;
}"""


def _called(text: str) -> list[str]:
    """The helpers of integers, and finite, that some lines call."""
    needed, rest = list[str](), text
    for name, helper in reversed(HELPERS.items()):
        if re.search(rf"\b{name}\(", rest):
            needed.insert(0, helper)
            rest += helper
    return [*needed, *([_FINITE] if re.search(r"\bfinite\(", text) else [])]


def _extent(shape: Sequence[int]) -> str:
    return f"[{' * '.join(map(str, shape))}]" if shape else ""


def _packed(members: Sequence[str]) -> list[str]:
    """Members of a structure, as many in a line as fit."""
    if not members:
        return []
    wrapped = textwrap.wrap(
        ", ".join(x.replace(" ", "\0") for x in members), WIDTH, break_long_words=False
    )
    return [f"    double {row.rstrip(',')};".replace("\0", " ") for row in wrapped]


def _block(lines: Sequence[str]) -> str:
    """A comment of several lines."""
    made = ["/*"]
    for line in lines:
        for row in textwrap.wrap(commented(line), WIDTH, subsequent_indent="  ") or [""]:
            made.append(f" * {row}".rstrip())
    return "\n".join([*made, " */", ""])


def refuse_outside(bodies: Bodies, inputs: Sequence[Named]) -> None:
    """Refuse what reads Values that are no arguments."""
    arena = bodies.reading.arena
    used = set[object]()
    for unit in bodies.units:
        used.update(a for x in _walked(unit.value) for a in x)
    for output in bodies.outputs:
        if isinstance(output, Ref):
            used.update(output.arrays)
    for stretch, named in zip(arena.stretches, inputs, strict=False):
        if not named.path and stretch in used:
            raise Untranslatable(f"it reads {named.name} from outside: pass it as an argument")


def _walked(x: object) -> list[tuple[object, ...]]:
    from chainrule.compiler.formulas.notation import walk

    found: list[tuple[object, ...]] = []
    for y in walk(x):  # type: ignore[arg-type]
        if isinstance(y, Ref):
            found.append(getattr(y.arrays[0], "owners", y.arrays))
    return found
