"""A C file and its header for one recorded call.

In: the ``Bodies`` of both passes in C, and the names of the arguments. Out: two texts: functions of
plain arrays that need nothing but math.h, and their declarations.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence

from chainrule.compiler.capture.selection import Selection
from chainrule.compiler.translate.c.bodies import Bodies
from chainrule.compiler.translate.c.integers import HELPERS, IntegerCode
from chainrule.compiler.translate.c.languages import commented
from chainrule.compiler.translate.c.names import Names, Parameter

WIDTH = 92
#: what the functions return, in the order of their numbers
STATUS = {
    "OK": "value and derivatives are computed",
    "OTHER_BRANCH": "a branch goes another way than in the example: results are NAN",
    "BAD_INTEGER": "an integer is no index, or too large: results are NAN",
    "UNSURE": "computed; a comparison or jump was so close that rounding decided",
    "UNDEFINED": "computed; a result is not finite",
}

FILL = """static void fill(double *x, int count, double number) {
    for (int k = 0; k < count; k++) {
        x[k] = number;
    }
}"""
FINITE = """static int all_finite(const double *x, int count) {
    for (int k = 0; k < count; k++) {
        if (!isfinite(x[k])) {
            return 0;
        }
    }
    return 1;
}"""
RESTRICT = """#ifdef __cplusplus
#define RESTRICT
#else
#define RESTRICT restrict
#endif"""
NOTES = {
    "chain": "a slope times an adjoint; 0 on either side passes nothing on, not even to infinity",
    "near": "whether two computed numbers are so close that rounding decides which is larger",
    "near_a_jump": "whether a computed number is so close to an integer that rounding decides",
    "larger": "the larger of two numbers, the first of equals; nan if one is",
    "smaller": "the smaller of two numbers, the first of equals; nan if one is",
}


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
        """``scalar``: its first number has a gradient; else all numbers have a Jacobian."""
        self.names, self.bodies, self.selection = names, bodies, selection
        self.summary, self.differentiable, self.scalar = list(summary), differentiable, scalar
        self.upper, self.work = names.name.upper(), f"{names.name}_work"
        self.count = len(bodies.outputs)
        first = names.first
        self.arrays: list[tuple[str, tuple[int, ...]]] = []  # of the gradient
        for leaf, member in zip(first.leaves, first.members, strict=True) if first else ():
            text = f"grad->{member}" if first and first.kind else "grad" if leaf.shape else "*grad"
            self.arrays.append((text, leaf.shape))
        self.size = sum(math.prod(shape) for _, shape in self.arrays)
        self.kind = first.kind if first is not None and first.kind else "double"  # of the gradient
        self.statics: list[str] = []
        self.calls: dict[str, list[tuple[str, bool]]] = {}  # and whether they return a status

    # --- the header -------------------------------------------------------------------------------

    def header(self) -> str:
        """The declarations."""
        upper = self.upper
        lines = [_block([*self.summary, "", *self._usage()])]
        lines += [f"#ifndef {upper}_H", f"#define {upper}_H", "", "#include <stdint.h>", ""]
        lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
        lines += ["/* what the functions return */", "enum {"]
        for k, (word, meaning) in enumerate(STATUS.items()):
            lines += [f"    /* {meaning} */"]
            lines += [f"    {upper}_{word} = {k}{',' * (k < len(STATUS) - 1)}"]
        lines += ["};", ""]
        for p in self.names.parameters:
            if p.kind:
                lines += _structure(p)
        lines += self._memory()
        for comment, declaration in self._declarations():
            lines += [f"/* {comment} */", f"{declaration};", ""]
        lines += ["#ifdef __cplusplus", "}", "#endif", "", f"#endif /* {upper}_H */", ""]
        return "\n".join(lines)

    def _usage(self) -> list[str]:
        lines = [f"  {p.words}" for p in self.names.parameters]
        return [
            "Arguments:",
            *lines,
            "",
            "Arrays are flat, the last index moving fastest. All memory is the caller's: nothing "
            "is allocated, there is no global state, and calls with work memory of their own may "
            "run at the same time.",
            "",
            "Numbers follow IEEE rules: where Python raises, as for log(-1), results are nan or "
            "infinite. Sums are not added in Python's order: results agree to rounding.",
        ]

    def _memory(self) -> list[str]:
        """The type of work memory."""
        lines = ["/* memory that a call computes in; it need not be cleared */", "typedef struct {"]
        if self.bodies.gathers:
            lines.append(f"    int64_t chosen[{len(self.bodies.gathers)}];")
        members = [x for adjoints in (False, True) for x in self.bodies.members(adjoints)]
        lines += _packed([f"{name}{_extent(sizes)}" for name, sizes in members])
        if self.bodies.storage.is_unsure or not members:
            lines.append("    int unsure;")
        return [*lines, f"}} {self.work};", ""]

    def _declarations(self) -> list[tuple[str, str]]:
        """What a caller calls: a comment, and a declaration."""
        given = [p.declared() for p in self.names.parameters]
        given += [f"{self.work} *work", "double *value"]
        name, several = self.names.name, f"value: {self.count} numbers" if self.count > 1 else ""
        made = [(several or "the value", _head(f"int {name}_value", given))]
        if not self.differentiable or self.names.first is None:
            return made
        first = self.names.first.name
        if self.scalar:
            number = "value[0]" if self.count > 1 else "the value"
            comment = f"{number}, and its derivative by each number of {first}"
            given = [*given, f"{self.kind} *grad"]
            return [*made, (comment, _head(f"int {name}_value_and_grad", given))]
        comment = (
            f"{several or 'the value'}; jacobian: for each, its derivative by the {self.size} "
        )
        given = [*given, "double *jacobian"]
        return [*made, (f"{comment}numbers of {first}", _head(f"int {name}_jacobian", given))]

    # --- the source -------------------------------------------------------------------------------

    def source(self, header: str) -> str:
        """The functions; ``header``: the name of the file to include."""
        bodies = self.bodies
        self.statics, self.calls = [], {"integers": [], "forward": [], "backward": []}
        integers = self._integers()
        if integers:
            body = [f"    {line}" for line in integers]
            self._static("integers", [body], "whether the integers are like those of the example")
        self._static("forward", bodies.forward, "every number, in order")
        if self.differentiable:
            note = "the adjoint of every number: the derivative of the result by it, in reverse"
            self._static("backward", [b for b in bodies.backward if b], note)
            self._clearing()
        public = [self._public(head) for _, head in self._declarations()]
        rest = code_of([*self.statics, *public])
        helpers = bodies.helpers(rest)
        rest += "\n".join(helpers)
        helpers = [*_called({**HELPERS, "fill": FILL, "all_finite": FINITE}, rest), *helpers]
        helpers = [_noted(text) for text in helpers]
        tables = [
            bodies.language.table(name, numbers, kind)
            for (kind, numbers), name in bodies.storage.tables.items()
            if re.search(rf"\b{name}\b", rest)
        ]
        includes = f'#include "{header}"\n\n#include <math.h>'
        parts = [f"{_block([f'See {header}.'])}\n{includes}", RESTRICT, *tables, *helpers]
        return "\n\n".join([*parts, *self.statics, *public]) + "\n"

    def _integers(self) -> list[str]:
        """The body of the function that looks at integers."""
        bodies, words = self.bodies, list[str]()
        for _, stretch in bodies.reading.arena.integers:
            stored = bodies.storage.stored[stretch]
            places = [str(k) for k in range(stored.size)] if stored.sizes else [None]
            words += [bodies.storage.text(stretch, place) for place in places]
        numbers: list[str] = []
        for stretch in bodies.numbers:
            stored = bodies.storage.stored[stretch]
            places = [str(k) for k in range(stored.size)] if stored.sizes else [None]
            numbers += [bodies.storage.text(stretch, place) for place in places]
        other, bad = (f"{self.upper}_{word}" for word in ("OTHER_BRANCH", "BAD_INTEGER"))
        code = IntegerCode(self.selection, words, other, bad)
        nodes = self.selection.numbers
        return code.written(bodies.gathers, list(zip(numbers, nodes, strict=True)))

    def _static(self, word: str, parts: Sequence[Sequence[str]], note: str) -> None:
        """A static function, or several, that take what they use; and the calls of them."""
        for k, part in enumerate(parts, 1):
            body = list(part)
            text, returns = code_of(body), any(x.strip().startswith("return ") for x in body)
            if returns:
                body.append(f"    return {self.upper}_OK;")
            given = [(p.declared(), p.name) for p in self.names.parameters if _uses(text, p.name)]
            for name, kind in (("work", self.work), ("grad", self.kind)):
                if _uses(text, name):
                    given.append((f"{kind} *RESTRICT {name}", name))
            own = word if len(parts) == 1 else f"{word}{k}"
            head = _head(f"static {'int' if returns else 'void'} {own}", [x for x, _ in given])
            comment = f"/* {note} */\n" if k == 1 else ""
            self.statics.append("\n".join([f"{comment}{head} {{", *body, "}"]))
            self.calls[word].append((f"{own}({', '.join(x for _, x in given)})", returns))

    def _clearing(self) -> None:
        """Functions that clear adjoints, and that fill or look through a gradient."""
        adjoints = [(f"work->{name}", sizes) for name, sizes in self.bodies.members(True)]
        if adjoints:
            head = f"static void clear_adjoints({self.work} *work) {{"
            lines = [f"    {_filled(*array, '0.0')}" for array in adjoints]
            self.statics.append("\n".join([head, *lines, "}"]))
        if len(self.arrays) > 1:
            head = f"static void fill_grad({self.kind} *grad, double number) {{"
            lines = [f"    {_filled(*array, 'number')}" for array in self.arrays]
            self.statics.append("\n".join([head, *lines, "}"]))
        if len(self.arrays) > 1 and self.scalar:
            tests = "\n        && ".join(_tested(*array) for array in self.arrays)
            head = f"static int is_finite_grad(const {self.kind} *grad) {{"
            self.statics.append(f"{head}\n    return {tests};\n}}")

    def _filled_grad(self, number: str) -> list[str]:
        if len(self.arrays) > 1:
            return [f"fill_grad(grad, {number});"]
        return [_filled(*array, number) for array in self.arrays]

    def _public(self, head: str) -> str:
        """A function that a caller calls."""
        bodies, upper = self.bodies, self.upper
        is_grad, is_jacobian = "_value_and_grad(" in head, "_jacobian(" in head
        lost = ["*value = NAN;" if self.count == 1 else f"fill(value, {self.count}, NAN);"]
        lost += self._filled_grad("NAN") if is_grad else []
        lost += [f"fill(jacobian, {self.count * self.size}, NAN);"] if is_jacobian else []
        body: list[str] = []
        steps = [*self.calls["integers"], *self.calls["forward"]]
        for call, returns in steps:
            body.append(f"status = {call};" if returns else f"{call};")
            if returns:
                body += [f"if (status != {upper}_OK) {{", *_in(lost), "    return status;", "}"]
        if any(returns for _, returns in steps):
            body.insert(0, "int status;")
        for k, output in enumerate(bodies.outputs):
            place = "*value" if self.count == 1 else f"value[{k}]"
            body.append(f"{place} = {bodies.text(output)};")
        if is_grad:
            seed = bodies.seeded(0)
            body += self._backward([] if seed is None else [f"{seed} = 1.0;"])
        if is_jacobian:
            body += self._rows()
        tests = ["isfinite(*value)" if self.count == 1 else f"all_finite(value, {self.count})"]
        if is_grad:
            several = len(self.arrays) > 1
            tests += ["is_finite_grad(grad)"] if several else [_tested(*a) for a in self.arrays]
        if is_jacobian:
            tests.append(f"all_finite(jacobian, {self.count * self.size})")
        test = tests[0] if len(tests) == 1 else f"({' && '.join(tests)})"
        body += [f"if (!{test}) {{", f"    return {upper}_UNDEFINED;", "}"]
        unsure = f"work->unsure ? {upper}_UNSURE : {upper}_OK"
        body.append(f"return {unsure if bodies.storage.is_unsure else f'{upper}_OK'};")
        text = code_of(body)
        unused = [p.name for p in self.names.parameters if not _uses(text, p.name)]
        unused += [] if _uses(text, "work") else ["work"]
        first = body[:1] if body[0] == "int status;" else []
        body = [*first, *[f"(void){word};" for word in unused], *body[len(first) :]]
        return "\n".join([f"{head} {{", *_in(body), "}"])

    def _backward(self, seed: Sequence[str]) -> list[str]:
        """A backward pass into ``grad``."""
        cleared = ["clear_adjoints(work);"] if self.bodies.members(True) else []
        calls = [f"{call};" for call, _ in self.calls["backward"]] if seed else []
        return [*cleared, *self._filled_grad("0.0"), *seed, *calls]

    def _rows(self) -> list[str]:
        """The rows of a Jacobian, one backward pass each."""
        seeds = [self.bodies.seeded(k) for k in range(self.count)]
        chosen: list[str] = []
        for k, seed in enumerate(seeds):
            if seed is not None:
                chosen += [f"case {k}:", f"    {seed} = 1.0;", "    break;"]
        cast = f"({self.kind} *)" if self.kind != "double" else ""
        lines = [f"{self.kind} *grad = {cast}(jacobian + {self.size} * row);"]
        if chosen:
            lines += self._backward(["switch (row) {", *chosen, "default:", "    break;", "}"])
        else:
            lines += self._backward([])
        return [f"for (int row = 0; row < {self.count}; row++) {{", *_in(lines), "}"]


# --- pieces of text -------------------------------------------------------------------------------


def _uses(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None


def _in(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _filled(text: str, shape: Sequence[int], number: str) -> str:
    """A statement that fills an array with a number."""
    return f"fill({text}, {math.prod(shape)}, {number});" if shape else f"{text} = {number};"


def _tested(text: str, shape: Sequence[int]) -> str:
    """Whether every number of an array is finite."""
    return f"all_finite({text}, {math.prod(shape)})" if shape else f"isfinite({text})"


def _head(start: str, given: Sequence[str]) -> str:
    """The head of a function, in several lines where it is long."""
    head = f"{start}({', '.join(given) or 'void'})"
    if len(head) <= 98:
        return head
    return f"{start}(\n    " + ",\n    ".join(given) + ")"


def _structure(p: Parameter) -> list[str]:
    """The type of an argument that is several arrays."""
    lines = ["typedef struct {"]
    for leaf, member in zip(p.leaves, p.members, strict=True):
        number = "int64_t" if leaf.integers else "double"
        lines.append(f"    {number} {member}{_extent(leaf.shape)};")
    return [*lines, f"}} {p.kind};", ""]


def _called(helpers: dict[str, str], text: str) -> list[str]:
    """The helpers that some lines call, and those that these call in turn."""
    needed, rest = list[str](), text
    for name, helper in reversed(helpers.items()):
        if re.search(rf"\b{name}\(", rest):
            needed.insert(0, helper)
            rest += code_of([helper])
    return needed


def _noted(text: str) -> str:
    """A helper function with a comment, where its name does not say what it does."""
    match = re.search(r"(\w+)\(", text)
    note = NOTES.get(match[1]) if match is not None else None
    return f"/* {note} */\n{text}" if note else text


def code_of(lines: Sequence[str]) -> str:
    """Lines without their comments."""
    return re.sub(r"/\*.*?\*/", "", "\n".join(lines), flags=re.DOTALL)


def _extent(shape: Sequence[int]) -> str:
    return f"[{' * '.join(map(str, shape))}]" if shape else ""


def _packed(members: Sequence[str]) -> list[str]:
    """Members of a structure, as many in a line as fit."""
    together = ", ".join(x.replace(" ", "\0") for x in members)
    wrapped = textwrap.wrap(together, WIDTH, break_long_words=False) if members else []
    return [f"    double {row.rstrip(',')};".replace("\0", " ") for row in wrapped]


def _block(lines: Sequence[str]) -> str:
    """A comment of several lines."""
    made = ["/*"]
    for line in lines:
        deep = "    " if line.startswith("  ") else ""
        rows = textwrap.wrap(commented(line), WIDTH, subsequent_indent=deep) or [""]
        made += [f" * {row}".rstrip() for row in rows if row or made[-1] != " *"]
    return "\n".join([*made, " */", ""])
