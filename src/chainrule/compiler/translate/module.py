"""A whole module of source for one recorded call.

In: a ``Reading`` of its array program and the names of its inputs. Out: the text of a module with
one function over the same nested arguments; chainrule is not needed to run it.
"""

from __future__ import annotations

import keyword
import re
import textwrap
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.compiler.capture.recordings import Output
from chainrule.compiler.formulas.input_names import Named
from chainrule.compiler.formulas.notation import Array, Ref, Select, walk
from chainrule.compiler.formulas.reading import Reading, size_text
from chainrule.compiler.formulas.translation import Line
from chainrule.compiler.translate.dialects import NEEDED, TYPES, Dialect
from chainrule.compiler.translate.expressions import Writer
from chainrule.compiler.translate.integers import IntegerCode
from chainrule.compiler.translate.lengths import ARGUMENT, Lengths, length_lines, of_known_length
from chainrule.compiler.translate.lines import Lines, only_detached
from chainrule.compiler.translate.loops import written_loop
from chainrule.compiler.translate.rolling import Loop, sections
from chainrule.compiler.translate.scope import Scope, Stored
from chainrule.compiler.translate.sums import size_of
from chainrule.compiler.translate.tables import laid_end_to_end
from chainrule.compiler.translate.terms import (
    ATOM,
    Term,
    Untranslatable,
    indented,
    number_code,
)


@dataclass(frozen=True)
class Signature:
    """How the function that is written is called, and what its module says about it."""

    name: str
    parameters: tuple[str, ...]
    inputs: tuple[Named, ...]
    result: Any  # the returned tree, an Output in place of each number
    specialised: bool = False  # it returns whether the recorded branches were the right ones
    expected: tuple[tuple[str, str], ...] = ()  # what must be as in the example: code, and value
    kinds: tuple[tuple[str, str], ...] = ()  # likewise, where the function may ask for types
    summary: tuple[str, ...] = ()  # lines of the module's docstring
    lengths: Lengths | None = None  # that its lists may have, if these are padded

    @property
    def conditions(self) -> list[Sequence[tuple[str, str]]]:
        """What the source looks at before it reads its arguments, a line for each: types first.

        A list that is padded is passed as an array.
        """
        padded = () if self.lengths is None else self.lengths.padded
        skipped = {f"{TYPES}({path})" for path in padded}
        kinds = [pair for pair in self.kinds if pair[0] not in skipped]
        return [pairs for pairs in (kinds, self.expected) if pairs]


@dataclass(frozen=True)
class Source:
    """The text of a module in its parts."""

    docstring: str
    imports: tuple[str, ...]
    constants: tuple[str, ...]
    helpers: tuple[str, ...]
    head: str
    unpacking: tuple[str, ...]  # the lines that read the arguments
    body: tuple[str, ...]  # all others, in blocks: comments, and what they stand above

    @property
    def text(self) -> str:
        """The whole module."""
        lines = [*self.unpacking, *self.body]
        parts = [self.docstring, "\n".join(self.imports)]
        parts += ["\n".join(self.constants)] if self.constants else []
        text = "\n\n".join(parts) + "\n"
        for helper in self.helpers:
            text += f"\n{helper.rstrip()}\n"
        function = "\n".join([self.head, *[indented(block) for block in lines]])
        return f"{text}\n\n{function}\n"


class Module:
    """The source of one program while it is written."""

    def __init__(
        self,
        reading: Reading,
        signature: Signature,
        dialect: Dialect,
        names: Collection[str] = (),
    ) -> None:
        """``names``: what arrays may not be called."""
        self.reading, self.signature, self.dialect = reading, signature, dialect
        reserved = {"np", "jnp", "jax", "lax", "math", "dtype", signature.name}
        reserved |= {*dialect.helpers, *dialect.functions, *names, dialect.module}
        for word in signature.parameters:
            if word in reserved:
                raise Untranslatable(f"an argument has the name {word}, which its source needs")
        self.scope = Scope(dialect, {*reserved, *signature.parameters})
        self.unpacking = self._inputs()
        self.computed = self._computed()
        if signature.lengths is not None:
            self.computed += length_lines(signature.lengths, self.scope, reading.arena.added)
        self.sections = sections(reading)
        every = [line for section in self.sections for line in section.lines]
        taken = reading.name_results(every, others=names) | {line.array.name for line in every}
        self.scope.detached = only_detached(reading, every)
        self.scope.taken |= taken
        self.lines = Lines(reading, self.scope, taken)

    # --- arguments --------------------------------------------------------------------------------

    def _inputs(self) -> list[str]:
        """Name the arrays of the arguments; the lines that read them."""
        arena, lines = self.reading.arena, list[str]()
        for pairs in self.signature.conditions:
            self.scope.helpers.add("expect")
            if any(found.startswith(f"{TYPES}(") for found, _ in pairs):
                self.scope.helpers.add(TYPES)
            words = [f"({found}, {wanted})" for found, wanted in pairs]
            lines.append(f"expect({', '.join(words)})")
        used = _used(self.reading.lines) | self.reading.read_by_address
        used |= {arena.at(k) for k in (self.reading.root, *self.reading.others) if k is not None}
        for stretch, named in zip(
            arena.stretches[: arena.numbers], self.signature.inputs, strict=False
        ):
            if not named.path and stretch in used:
                raise Untranslatable(f"it reads {named.name} from outside: pass it as an argument")
            if not named.path:
                continue
            name = re.sub(r"\W+", "_", stretch.name).strip("_") or "x"
            if keyword.iskeyword(name) or name[0].isdigit():
                name = f"p_{name}"
            name = name if name == named.path else self.scope.fresh(name)
            stretch.name = name
            self.scope.stored[stretch] = Stored.plain(name, named.shape, named.integers)
            shape = "".join(f", {count}" for count in named.shape)
            kind = "integers" if named.integers else "array"
            self.scope.like = self.scope.like or ("" if named.integers else name)
            lines.append(f"{name} = {kind}({named.path}{shape})")
            self.scope.helpers.add(kind)
            if self.signature.lengths is not None and named.path in self.signature.lengths.padded:
                lines.append(f"{name} = within({name}, {ARGUMENT})")
                self.scope.helpers.add("within")
        return lines

    def _computed(self) -> list[str]:
        """The lines that compute numbers from integers."""
        arena, lines = self.reading.arena, list[str]()
        assert arena.choice is not None
        selection = arena.choice.selection
        passed = [self.scope.stored[stretch] for _, stretch in arena.integers]
        self.scope.integers = IntegerCode(selection.program, passed, self.scope)
        used, at = _used(self.reading.lines) | self.reading.read_by_address, 0
        for stretch in arena.stretches[len(self.signature.inputs) : arena.numbers]:
            nodes = selection.numbers[at : at + size_of(stretch.axes)]
            at += len(nodes)
            if stretch not in used:
                continue
            name = self.scope.fresh(re.sub(r"\W+", "_", stretch.name).strip("_"))
            term = self.scope.numbers(Term(self.scope.integers.code(nodes)))
            code, sizes = term.code, [axis.count for axis in stretch.axes]
            if len(sizes) != 1:
                code = term.bracketed(ATOM)
                code += f".reshape({', '.join(map(str, sizes))})" if sizes else "[0]"
            lines += [f"# {name} = {stretch.name}", f"{name} = {code}"]
            stretch.name = name
            self.scope.stored[stretch] = Stored.plain(name, sizes)
        return lines

    # --- text -------------------------------------------------------------------------------------

    def source(self) -> Source:
        """The whole module."""
        for section in self.sections:
            if isinstance(section, Loop):
                written_loop(self.lines, section, self.sections)
            else:
                self.lines.straight(section.line)
        returned = self._returned(self.signature.result)
        if self.signature.specialised:
            self.lines.blocks += ["# whether the branches are those of the example", self._valid()]
            returned = f"{returned}, valid"
        body = [*self._type(), *self.computed, *self.lines.blocks, f"return {returned}"]
        for old, new in self.dialect.methods.items():
            body = [block.replace(f".{old}(", f".{new}(") for block in body]
        constants = self.scope.constants()
        named = {*self.scope.helpers, *[NEEDED[x] for x in self.scope.helpers if x in NEEDED]}
        helpers = [self.dialect.helpers[name] for name in sorted(named)]
        words = [f"{x.path} {size_text(x.shape)}".rstrip() for x in self.signature.inputs]
        return Source(
            self.docstring(words),
            tuple(self._imports([*self.unpacking, *body, *constants, *helpers])),
            tuple(constants),
            tuple(helpers),
            f"def {self.signature.name}({', '.join(self.signature.parameters)}):",
            tuple(self.unpacking),
            tuple(body),
        )

    def _valid(self) -> str:
        """The line that compares every guard with what it was in the recording."""
        program, np_ = self.reading.program, self.dialect.module
        words = []
        if len(program.guards):
            code = laid_end_to_end(self.reading, self.scope, program.guards)
            wanted = program.expected
            same = (wanted == wanted[0]).all()
            number = number_code(wanted[0]) if same else self.scope.table(wanted)
            words.append(f"{np_}.all({code} == {number})")
        assert self.reading.arena.choice is not None
        guards = self.reading.arena.choice.selection.program.guards
        for truth in (False, True):
            mine = [guard for guard in guards if guard.truth is truth]
            if mine:
                assert self.scope.integers is not None
                code = self.scope.integers.code([guard.node for guard in mine])
                code = f"(({code} != 0) * 1)" if truth else code
                wanted = np.array([int(guard.expected) for guard in mine], np.int64)
                words.append(f"{np_}.all({code} == {self.scope.table(wanted)})")
        return f"valid = {' & '.join(words) or True}"

    def _imports(self, parts: Sequence[str]) -> list[str]:
        """Those that something needs."""
        return [
            line
            for line in self.dialect.imports
            if re.search(rf"(?<![\w.]){line.split()[-1]}\.", "\n".join(parts))
        ]

    def _type(self) -> list[str]:
        """What type plain numbers of tables get."""
        if not self.scope.casts:
            return []
        named = next(x for x in self.signature.inputs if not x.integers)
        return [f"dtype = jnp.result_type({named.path})"]

    def docstring(self, words: Sequence[str]) -> str:
        """The module's; ``words``: its arguments and their sizes."""
        lines = list(self.signature.summary)
        lines += ["", *textwrap.wrap("Arguments: " + ", ".join(words), 96, subsequent_indent="  ")]
        return '"""' + "\n".join(lines).replace("\\", "\\\\") + '\n"""'

    def _returned(self, tree: Any) -> str:
        """What the function returns, as text."""
        if isinstance(tree, Output):
            code = self._output(tree)
            return code if self.signature.lengths is None else of_known_length(code, self.scope)
        if isinstance(tree, dict):
            inside = [f"{key!r}: {self._returned(item)}" for key, item in tree.items()]
            return f"{{{', '.join(inside)}}}"
        if type(tree) in (list, tuple):
            inside = [self._returned(item) for item in tree]
            if isinstance(tree, list):
                return f"[{', '.join(inside)}]"
            return f"({', '.join(inside)}{',' * (len(inside) == 1)})"
        if tree is None or isinstance(tree, bool | int | float | str):
            return repr(tree)
        raise Untranslatable(f"it returns a {type(tree).__name__}")

    def _output(self, output: Output) -> str:
        address = int(self.reading.program.address[output.position])
        array = self.reading.arena.at(address)
        if array.name == "result" and not array.axes:
            return "result"
        found = self.reading.formulas.ref(self.reading.arena.see(np.array([address])), [])
        return Writer(self.scope, [], {}).value(found).code


def _used(lines: Sequence[Line]) -> set[Array]:
    """The arrays that lines read."""
    found: set[Array] = set()
    for line in lines:
        for x in walk(line.value) if line.kept and line.value is not None else ():
            if isinstance(x, Ref):
                found.update(x.arrays)
                found.update(p.integers for p in x.places if isinstance(p, Select))
    return found
