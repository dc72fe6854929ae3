"""The source of a function, as a tree: found by its code, and checked to be that of this code.

In: a function's code. Out: a module with its definition, which compiles to the same code, or None.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
import types

from chainrule.compiler.capture.templates import copied

_PARTS = (
    *("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_exceptiontable"),
    *("co_argcount", "co_kwonlyargcount", "co_posonlyargcount"),
)
_FUTURE = 0x1FE0000  # flags of ``from __future__`` among those of a code


Function = ast.FunctionDef | ast.Lambda


def definition(code: types.CodeType) -> tuple[ast.Module, Function] | None:
    """A module with the function's definition, and the definition; None where it is not found."""
    try:
        candidates = _lambdas(code) if code.co_name == "<lambda>" else _definition(code)
        found = [x for x in candidates if _is_same(compiled(x[0], code), code)]
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None
    return found[0] if found else None


def _definition(code: types.CodeType) -> list[tuple[ast.Module, Function]]:
    """A module with the function's definition, if it is found."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    if not lines:
        return []
    text = "".join(inspect.getblock(lines))
    module = ast.parse(f"if 1:\n{text}" if text[0] in " \t" else f"\n{text}")
    ast.increment_lineno(module, code.co_firstlineno - 2)
    first = module.body[0].body[0] if text[0] in " \t" else module.body[0]  # type: ignore[attr-defined]
    if not isinstance(first, ast.FunctionDef) or first.name != code.co_name:
        return []
    first.decorator_list = []
    return [(_around(first, code), first)]


def _lambdas(code: types.CodeType) -> list[tuple[ast.Module, Function]]:
    """A module with each lambda of its line: which one it is, its code tells."""
    known = _lambdas_of("".join(linecache.getlines(code.co_filename)))
    found = [copied(x) for x in known if x.lineno == code.co_firstlineno]
    return [(_around(ast.copy_location(ast.Return(x), x), code), x) for x in found]


@functools.lru_cache(maxsize=4)
def _lambdas_of(text: str) -> list[ast.Lambda]:
    """All lambdas of a file."""
    return [x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.Lambda)]


def _around(first: ast.stmt, code: types.CodeType) -> ast.Module:
    """A module with a definition inside a function that has its free variables."""
    outer = ast.parse("def outer(): pass").body[0]
    assert isinstance(outer, ast.FunctionDef)
    names = [ast.Name(name, ast.Store()) for name in code.co_freevars]
    outer.body = [ast.Assign([name], ast.Constant(None)) for name in names] + [first]
    module = ast.Module([outer], [])
    if imported := _imported(code):  # calls of a module's functions have code of their own
        module.body.insert(0, ast.Import([ast.alias(name) for name in imported]))
    return ast.fix_missing_locations(module)


def _imported(code: types.CodeType) -> list[str]:
    """Names that the code uses and its file imports."""
    words: set[str] = set()
    inside = 0  # parentheses
    for line in linecache.getlines(code.co_filename):
        if inside or line.startswith(("import ", "from ")):
            inside += line.count("(") - line.count(")")
            words.update(re.findall(r"\w+", line.partition("import")[2] or line))
    return sorted(words.intersection(_global_names(code)))


def _global_names(code: types.CodeType) -> set[str]:
    inner = [x for x in code.co_consts if isinstance(x, types.CodeType)]
    return set(code.co_names).union(*map(_global_names, inner))


def compiled(module: ast.Module, like: types.CodeType) -> types.CodeType | None:
    """The code of the definition in a module."""
    flags = like.co_flags & _FUTURE
    made = compile(module, like.co_filename, "exec", flags=flags, dont_inherit=True)
    outer = next(x for x in made.co_consts if isinstance(x, types.CodeType))
    codes = [x for x in outer.co_consts if isinstance(x, types.CodeType)]
    return next((x for x in codes if x.co_name == like.co_name), None)


def _is_same(a: types.CodeType | None, b: types.CodeType) -> bool:
    """Whether two codes do the same, wherever they are from."""
    if a is None or len(a.co_consts) != len(b.co_consts):
        return False
    if (a.co_flags ^ b.co_flags) & ~inspect.CO_NESTED:
        return False
    if any(getattr(a, part) != getattr(b, part) for part in _PARTS):
        return False
    for x, y in zip(a.co_consts, b.co_consts, strict=True):
        if isinstance(y, types.CodeType):
            if not isinstance(x, types.CodeType) or not _is_same(x, y):
                return False
        elif type(x) is not type(y) or repr(x) != repr(y):
            return False
    return True
