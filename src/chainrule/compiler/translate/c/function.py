"""``to_c``: a function of Values as C source, value and derivatives.

In: a function and example arguments. Out: a ``CSource``. Before anybody gets it, the same loops are
run in Python and compared with eager mode, with the example, with other numbers and other integers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.compiler.capture.arguments import flatten_call
from chainrule.compiler.capture.recordings import ArrayOutput, Output
from chainrule.compiler.formulas.decoding import Choice
from chainrule.compiler.formulas.reading import Reading
from chainrule.compiler.lift.alignment import RecordedCall
from chainrule.compiler.lift.graph import NotLiftable
from chainrule.compiler.lift.program import Program
from chainrule.compiler.runtime.results import root_of
from chainrule.compiler.translate.c.bodies import Bodies, Leaf
from chainrule.compiler.translate.c.checking import check
from chainrule.compiler.translate.c.languages import C, Language, Python
from chainrule.compiler.translate.c.mirror import Mirror, mirrored
from chainrule.compiler.translate.c.module import Module
from chainrule.compiler.translate.c.names import Names
from chainrule.compiler.translate.c.tape import taped
from chainrule.compiler.translate.function import (
    PARTS,
    Recorded,
    clear_lines,
    in_double,
    recorded_call,
    signature_of,
)
from chainrule.compiler.translate.module import Signature
from chainrule.compiler.translate.terms import Untranslatable
from chainrule.files import write_atomically
from chainrule.trees import map_leaves

TAPE = 20_000  # operations without structure that are written one by one


class CSource:
    """A function as C: ``source`` and ``header`` are the texts of its two files.

    ``save("model.c")`` writes both, the header beside it as ``model.h``. Nothing but a C99 compiler
    and math.h is needed to use them.
    """

    def __init__(self, name: str, module: Module) -> None:
        self.__name__, self._module = name, module
        self.source, self.header = module.source(f"{name}.h"), module.header()

    def __repr__(self) -> str:
        return f"<{self.__name__} in c, {len(self.source.splitlines())} lines>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the source to a file that ends in .c, and the header beside it."""
        file = Path(path)
        if file.suffix != ".c":
            raise ValueError(f"C source is saved to a file that ends in .c, not {file.name!r}")
        write_atomically(file.with_suffix(".h"), self.header)
        write_atomically(file, self._module.source(f"{file.stem}.h"))


def translate_to_c(
    function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> CSource:
    """The function as C source, recorded with these arguments and checked with them."""
    arguments = tuple(map(in_double, arguments))
    keywords = {name: in_double(x) for name, x in keywords.items()}
    with clear_lines(function, arguments, "C source"):
        recorded = recorded_call(function, flatten_call(arguments, keywords, True))
        return _translated(function, recorded)


def _translated(function: Callable[..., Any], recorded: Recorded) -> CSource:
    recording = recorded.recording
    if not recording.outputs:
        raise Untranslatable("it returns no number that it computes")
    signature = signature_of(function, recorded, True)
    found: list[tuple[CSource, Program]] = []
    reasons: list[str] = []
    for program in _programs(recorded):
        try:
            found.append((_written(program, recorded, signature), program))
        except Untranslatable as reason:
            reasons.append(str(reason))
        if found and program.loops:
            break
    if not found:
        raise Untranslatable(reasons[-1])
    source, program = min(found, key=lambda pair: len(pair[0].source.splitlines()))
    check(function, recorded.call, _mirror(program, recorded, signature), signature)
    return source


def _programs(recorded: Recorded) -> Iterator[Program]:
    """The array programs of a recording: without and with loops in time; else the tape."""
    recording = recorded.recording
    call = RecordedCall.of(recorded.call, recording, recording.outputs[0].position, margins=False)
    lifted = False
    for with_loops in (False, True):
        try:
            made = call.without_steps(with_loops)
        except NotLiftable:
            continue
        if made is not None:
            lifted = True
            yield made
    if not lifted:
        if len(recording) - recording.inputs > TAPE:
            raise Untranslatable(
                f"its {len(recording) - recording.inputs:,} operations have no structure: too many "
                "to write one by one"
            )
        yield taped(recording)


def _items(recorded: Recorded, program: Program) -> tuple[list[int | float], list[bool]]:
    """What is returned, in order: an address, or a number that is always the same.

    And whether it is differentiated: a Value, and the only one if the others are extras.
    """
    found: list[int | float] = []
    values: list[bool] = []
    alone = root_of(recorded.recording.result) is not None

    def leaf(x: Any) -> Any:
        for item in x.items if isinstance(x, ArrayOutput) else [x]:
            if isinstance(item, Output):
                found.append(int(program.address[item.position]))
                values.append(item.is_value and not (alone and values))
            elif isinstance(item, bool | int | float | np.number):
                found.append(float(item))
                values.append(False)
        return x

    map_leaves(leaf, recorded.recording.result, records=True)
    return found, values


def _bodies(
    program: Program, recorded: Recorded, signature: Signature, language: Language
) -> tuple[Bodies, Names, list[Leaf]]:
    names = Names(signature.name, signature.parameters, signature.inputs)
    leaves = names.leaves(signature.inputs, language)
    items, values = _items(recorded, program)
    addresses = [x for x in items if isinstance(x, int)]
    reading = Reading(
        program,
        signature.inputs,
        Choice(recorded.recording),
        addresses[0],
        addresses[1:],
        PARTS,
        True,
    )
    branch = f"{names.name.upper()}_OTHER_BRANCH" if isinstance(language, C) else "1"
    bodies = Bodies(
        reading, recorded.recording, leaves, language, names.reserved, items, values, branch
    )
    read = bodies.read_from()
    for stretch, named in zip(reading.arena.stretches, signature.inputs, strict=False):
        if not named.path and stretch in read:
            raise Untranslatable(f"it reads {named.name} from outside: pass it as an argument")
    return bodies, names, leaves


def _written(program: Program, recorded: Recorded, signature: Signature) -> CSource:
    bodies, names, _ = _bodies(program, recorded, signature, C())
    result = recorded.recording.result
    differentiable = any(x.is_value for x in recorded.recording.outputs)
    scalar = root_of(result) is not None
    selection = recorded.recording.selection
    summary = _summary(signature)
    module = Module(names, bodies, selection, summary, differentiable, scalar)
    return CSource(names.name, module)


def _summary(signature: Signature) -> list[str]:
    """What the header says first."""
    lines = [x for x in signature.summary if not x.startswith("Each line")]
    lines[0] = lines[0].replace("written as arrays by chainrule", "written in C by chainrule")
    fixed = [f"{found} is {wanted}" for found, wanted in signature.expected]
    lines += ["It is for arguments of the structure of the example: these lengths, no others."]
    if fixed:
        lines.append("In the example " + ", ".join(fixed) + ".")
    return lines


def _mirror(program: Program, recorded: Recorded, signature: Signature) -> Mirror:
    bodies, _, leaves = _bodies(program, recorded, signature, Python())
    return mirrored(bodies, leaves, recorded.recording.selection)
