"""What a function's bytecode says of it, without running it.

In: a code object; those of the functions inside it are looked into too. Out: the names that it
reads and where, and whether it asks for something that a recording must know of, such as ``is``.
"""

from __future__ import annotations

import dis
import itertools
import pathlib
import sys
import sysconfig
import types
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from chainrule.core.backend import Value

_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_ATTR", "LOAD_METHOD", "IMPORT_NAME")
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "IMPORT_NAME")
_STORES = ("STORE_ATTR", "DELETE_ATTR")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM", *_STORES)
_LIBRARY = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
_COLLECTIONS = (list, tuple, dict, set, frozenset)
KEPT = 64  # code objects whose instructions are kept
#: by its id, the code itself and its instructions, the last asked for at the end; each step of its
#: use is one of the dict's own, so that threads need no lock
_kept: dict[int, tuple[types.CodeType, list[dis.Instruction]]] = {}
#: builtins over a generator that Python's compiler writes out as loops, as ``dis`` shows them
_WRITTEN_OUT = {text for f in (all, any, list, set, tuple) for text in (f.__name__, repr(f))}


def nested(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of a function, and of the functions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from nested(constant)


def is_of_library(code: types.CodeType) -> bool:
    """Whether code is of Python's library or of an installed package, not the user's own."""
    return is_in_library(code.co_filename)


def is_in_library(file: str) -> bool:
    """Whether a file is of Python's library or of an installed package."""
    return file.startswith(_LIBRARY)


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    """The instructions of one code object; a survey asks for them a dozen times."""
    kept = _kept.pop(id(code), None) or (code, list(dis.get_instructions(code)))
    for oldest in list(_kept)[: max(0, len(_kept) - KEPT + 1)]:
        _kept.pop(oldest, None)  # another thread may have been quicker
    _kept[id(code)] = kept
    return kept[1]


def _steps(code: types.CodeType) -> list[dis.Instruction]:
    """The instructions of one code object that do something."""
    return [s for s in _instructions(code) if s.opname not in ("CACHE", "EXTENDED_ARG")]


def _has(code: types.CodeType, operation: str) -> bool:
    return any(s.opname == operation for c in nested(code) for s in _instructions(c))


def operations(code: types.CodeType) -> set[str]:
    """What the instructions of a function, and of those inside it, are called."""
    return {step.opname for inner in nested(code) for step in _instructions(inner)}


def makes_sets(code: types.CodeType) -> bool:
    """Whether there is a set, whose order depends on hashes."""
    return _has(code, "BUILD_SET")


def writes(code: types.CodeType) -> bool:
    """Whether something is put into a text, by an f-string or a percent sign."""
    formats = _has(code, "FORMAT_VALUE") or _has(code, "FORMAT_SIMPLE")
    formats = formats or _has(code, "FORMAT_WITH_SPEC")
    return formats or any("%" in text for text in texts(code))


def matches_classes(code: types.CodeType) -> bool:
    """Whether there is a ``case`` of a class."""
    return _has(code, "MATCH_CLASS")


def matches(code: types.CodeType) -> bool:
    """Whether there is a ``case`` of a class, a sequence or a mapping."""
    return any(_has(code, f"MATCH_{what}") for what in ("CLASS", "SEQUENCE", "MAPPING"))


def catching(code: types.CodeType) -> Iterator[types.CodeType]:
    """Those of a function and the functions inside it that have an ``except`` or ``with``."""
    for inner in nested(code):
        if any(step.opname == "PUSH_EXC_INFO" for step in _instructions(inner)):
            yield inner


def raises_callers(code: types.CodeType) -> bool:
    """Whether a bare ``raise`` stands outside all handlers: it raises what a caller has caught."""
    return any(
        step.opname == "RAISE_VARARGS" and step.arg == 0 and not _is_in_handler(inner, step.offset)
        for inner in nested(code)
        for step in _instructions(inner)
    )


def _is_in_handler(code: types.CodeType, offset: int) -> bool:
    """Whether an instruction is part of an ``except`` or ``finally`` that handles an error."""
    names = {step.offset: step.opname for step in _instructions(code)}
    table, at = list(_handlers(code)), offset

    def handler(place: int) -> int | None:
        return next((target for start, end, target in table if start <= place < end), None)

    while (target := handler(at)) is not None:
        if names[target] == "COPY":  # the end of a handler whose own code raises
            return True
        # The beginning of a handler is that of the ``try`` or ``with`` around the instruction.
        ending = handler(target) if names[target] == "PUSH_EXC_INFO" else target
        if ending is None:
            return False
        at = ending
    return False


def _handlers(code: types.CodeType) -> Iterator[tuple[int, int, int]]:
    """From where to where each handler is in force, and where it begins: in bytes of the code."""
    numbers, number = [], 0
    for byte in code.co_exceptiontable:
        number = number << 6 | byte & 63
        if not byte & 64:
            numbers.append(number)
            number = 0
    for start, length, target in zip(numbers[::4], numbers[1::4], numbers[2::4], strict=True):
        yield 2 * start, 2 * (start + length), 2 * target


def global_names(code: types.CodeType) -> set[str]:
    """The names that a function and those inside it look up in globals, or import."""
    steps = (step for inner in nested(code) for step in _instructions(inner))
    return {step.argval for step in steps if step.opname in _GLOBALS}


class Import(NamedTuple):
    """An import in the body of a function: ``from ..name import first, second``."""

    name: str
    level: int  # how many dots
    wanted: tuple[str, ...]


def imports(code: types.CodeType) -> Iterator[Import]:
    """What a function and those inside it import; the two constants before say from where."""
    for inner in nested(code):
        steps = _steps(inner)
        for k, step in enumerate(steps):
            if step.opname == "IMPORT_NAME":
                level, wanted = (before.argval for before in steps[k - 2 : k])
                yield Import(str(step.argval), int(level), tuple(wanted or ()))


def names(code: types.CodeType) -> set[str]:
    """Every global or attribute name in a function and the functions inside it."""
    return matched_names(code).union(*[inner.co_names for inner in nested(code)])


def matched_names(code: types.CodeType) -> set[str]:
    """The attributes that a ``case`` of a class asks for by keywords."""
    found = set[str]()
    for inner in nested(code):
        steps = _steps(inner)
        for before, step in itertools.pairwise(steps):
            if step.opname == "MATCH_CLASS":
                found.update(before.argval)
    return found


def attributes(code: types.CodeType) -> set[str]:
    """The attributes that a function and those inside it ask for, store or delete."""
    tuples = [x for inner in nested(code) for x in inner.co_consts if type(x) is tuple]
    found = {x for items in tuples for x in items if type(x) is str}
    steps = (step for inner in nested(code) for step in dis.get_instructions(inner))
    return found | {step.argval for step in steps if step.opname in _ATTRIBUTES}


def stored(code: types.CodeType) -> set[str]:
    """The attributes that a function and those inside it store or delete."""
    steps = (step for inner in nested(code) for step in dis.get_instructions(inner))
    return {step.argval for step in steps if step.opname in _STORES}


def texts(code: types.CodeType) -> set[str]:
    """The texts in a function and those inside it, also in tuples."""
    constants = [x for inner in nested(code) for x in inner.co_consts]
    items = [y for x in constants for y in (x if type(x) is tuple else (x,))]
    return {x for x in items if type(x) is str}


def asks_by_texts(code: types.CodeType, names: Collection[str]) -> bool:
    """Whether calls of ``getattr`` and its like, by these names, seem to have texts for names."""
    asked, given = 0, 0
    for inner in nested(code):
        steps = [s for s in _steps(inner) if s.opname not in ("PRECALL", "KW_NAMES", "PUSH_NULL")]
        for k, step in enumerate(steps):
            asked += step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in names
            if step.opname == "CALL" and step.argval in (2, 3) and k >= 2:
                given += isinstance(steps[k - step.argval + 1].argval, str)
    return asked <= given


#: instructions on a name of the functions around, beside what loads it
_OTHER_CELLS = ("STORE_DEREF", "DELETE_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF")


def chains(code: types.CodeType, module: str, in_cell: bool = False) -> set[tuple[str, ...]] | None:
    """The attributes that code reads from a global name, or stores there in the end.

    None where it hands the object on. ``in_cell``: from a name of the functions around it.
    """
    found: set[tuple[str, ...]] = set()
    loads = ("LOAD_DEREF",) if in_cell else ("LOAD_GLOBAL", "LOAD_NAME")
    for inner in nested(code):
        steps = _steps(inner)
        for k, step in enumerate(steps):
            if step.opname == "IMPORT_NAME" and f"{step.argval}.".startswith(f"{module}."):
                return None
            if in_cell and step.opname in _OTHER_CELLS and step.argval == module:
                return None
            if step.opname not in loads or step.argval != module:
                continue
            chain = []
            for after in steps[k + 1 :]:
                if after.opname not in ("LOAD_ATTR", "LOAD_METHOD", *_STORES):
                    break
                chain.append(str(after.argval))
                if after.opname in _STORES:
                    break
            if not chain:
                return None
            found.add(tuple(chain))
    return found


def only_calls_free(code: types.CodeType, name: str) -> bool:
    """Whether code does nothing with a name of the functions around but to call it at once.

    The arguments may not have branches in them: the height of the stack shows what is called.
    """
    for inner in nested(code):
        steps = _steps(inner)
        if any(step.opname in _OTHER_CELLS and step.argval == name for step in steps):
            return False
        reads = [k for k, s in enumerate(steps) if s.opname == "LOAD_DEREF" and s.argval == name]
        if not all(_is_called(steps, k) for k in reads):
            return False
    return True


def _is_called(steps: list[dis.Instruction], k: int) -> bool:
    """Whether what an instruction loads is the function of the call that takes it."""
    newer = sys.version_info >= (3, 13)  # the callable comes before self or NULL
    null = steps[k + 1 if newer else k - 1].opname if k + newer else ""
    if null != "PUSH_NULL":
        return False
    height = 0  # of what is above it
    for step in steps[k + 1 :]:
        if step.opname == "CALL" and height == (step.arg or 0) + newer:
            return True
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return False
        if step.opname in ("PRECALL", "KW_NAMES"):
            continue
        if step.opname == "CALL":
            height -= (step.arg or 0) + 1
        else:
            argument = step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
            height += dis.stack_effect(step.opcode, argument, jump=False)
        if height <= 0:
            return False
    return False


def place(code: types.CodeType, names: set[str]) -> str:
    """The first line that reads one of these names, to end a message with.

    That of the function if none does.
    """
    line = next(_lines(code, names), code.co_firstlineno)
    return f", at {_position(code, line)}"


def first_read(codes: Iterable[types.CodeType], names: Collection[str]) -> str | None:
    """The first line of some code, in words, that reads one of these names; None if none does."""
    found = (_position(code, line) for code in codes for line in _lines(code, names))
    return next(found, None)


def _position(code: types.CodeType, line: int) -> str:
    return f"{pathlib.Path(code.co_filename).name}:{line}"


def _lines(code: types.CodeType, names: Collection[str]) -> Iterator[int]:
    for inner in nested(code):
        for step in _instructions(inner):
            line = step.positions.lineno if step.positions is not None else None
            if step.opname in _READS and step.argval in names and line is not None:
                yield line


def asks_is_true(code: types.CodeType) -> bool:
    """Whether there is an ``is True``, which a comparison's stand-in cannot hear."""
    return any(map(_asks_is_true, nested(code)))


def _asks_is_true(code: types.CodeType) -> bool:
    lines: dict[Any, set[str]] = {}
    before: dis.Instruction | None = None
    for step in _instructions(code):
        where = step.positions.lineno if step.positions is not None else None
        # From Python 3.14 on, all() of a generator is a loop, after asking whether it is that all.
        if step.opname == "IS_OP" and not _is_a_builtin(before):
            lines.setdefault(where, set()).add("is")
        if isinstance(step.argval, bool):
            lines.setdefault(where, set()).add("truth")
        before = step
    return any(found == {"is", "truth"} for found in lines.values())


def _is_a_builtin(step: dis.Instruction | None) -> bool:
    """Whether an instruction loads a function that Python's compiler knows, not the user's code."""
    return (
        step is not None and step.opname == "LOAD_COMMON_CONSTANT" and step.argrepr in _WRITTEN_OUT
    )


def asks_identity(code: types.CodeType, namespace: dict[str, Any], by: Collection[str]) -> bool:
    """Whether there is an ``is``, ``in`` or set that may tell one Value, or list, from another.

    ``by``: which of them, as names of instructions; ``namespace``: the function's globals.
    """
    return any(_asks_identity(inner, namespace, by) for inner in nested(code))


def _asks_identity(code: types.CodeType, namespace: dict[str, Any], by: Collection[str]) -> bool:
    steps = _steps(code)
    for k, step in enumerate(steps):
        if step.opname not in by:
            continue
        if step.opname == "BUILD_SET":
            return True
        left, right = steps[k - 2], steps[k - 1]
        if right.opname == "LOAD_GLOBAL":
            x = namespace.get(right.argval)
            inside = x if step.opname == "CONTAINS_OP" and isinstance(x, _COLLECTIONS) else (x,)
            if any(isinstance(item, (Value, list, tuple, np.ndarray)) for item in inside):
                return True
        elif "CONST" not in right.opname:
            simple = right.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_NAME"))
            if not (simple and "CONST" in left.opname):
                return True
    return False
