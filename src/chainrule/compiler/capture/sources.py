"""The source of a function, as far as it is known to be the source of the very code that runs.

In: a function and its code. Out: its definition as a syntax tree that compiles to the same code;
and code again, for a changed tree. A file that was edited since does not compile to the same.
"""

from __future__ import annotations
import __future__

import ast
import builtins
import inspect
import linecache
import types
from collections.abc import Iterable, Iterator
from typing import Any

from chainrule.compiler.capture.captured import content_of, unreplaced

_OUTER = "__chainrule_outer__"
_FUTURE = 0
for _name in __future__.all_feature_names:
    _FUTURE |= getattr(__future__, _name).compiler_flag


def source_of(code: types.CodeType) -> ast.FunctionDef | None:
    """The definition of a function, as its file has it now."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    if not lines:
        return None
    block = inspect.getblock(lines)
    nested = block[0][:1].isspace()
    tree = ast.parse("if 1:\n" * nested + "".join(block))
    node: Any = tree.body[0]
    if nested and isinstance(node, ast.If):
        node = node.body[0]
    if not isinstance(node, ast.FunctionDef):
        return None
    ast.increment_lineno(node, code.co_firstlineno - 1 - nested)
    node.decorator_list = []
    return node


def imported(
    function: types.FunctionType, tree: ast.FunctionDef, code: types.CodeType
) -> list[str] | None:
    """Names that must be imported for the source to be this code; None where it is not.

    Python calls ``module.f()`` in another way if an import in the same file made the name.
    """
    names = {name: resolve(function, (name,)) for name in code.co_names}
    modules = [name for name, x in names.items() if isinstance(x, types.ModuleType)]
    module = function.__module__
    others = [name for name, x in names.items() if getattr(x, "__module__", module) != module]
    for imported in ([], modules, [*modules, *others]):
        if _is_same(compiled(tree, code, imported), code):
            return imported
    return None


def compiled(
    node: ast.FunctionDef, code: types.CodeType, imported: Iterable[str]
) -> types.CodeType | None:
    """The code of a definition that stands where the function's own stands."""
    outer = definition(_OUTER, code.co_freevars, [node])
    imports: list[ast.stmt] = [ast.Import([ast.alias(name)]) for name in imported]
    module = ast.fix_missing_locations(ast.Module([*imports, outer], []))
    flags = code.co_flags & _FUTURE
    whole = compile(module, code.co_filename, "exec", flags, dont_inherit=True)
    inner = next(_codes(whole))
    return next((x for x in _codes(inner) if x.co_name == node.name), None)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    return (x for x in code.co_consts if isinstance(x, types.CodeType))


def _is_same(a: types.CodeType | None, b: types.CodeType) -> bool:
    """Whether two code objects do the same."""
    if a is None:
        return False
    names = ("co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars")
    if any(getattr(a, name) != getattr(b, name) for name in names):
        return False
    if (a.co_flags ^ b.co_flags) & ~inspect.CO_NESTED or len(a.co_consts) != len(b.co_consts):
        return False
    for x, y in zip(a.co_consts, b.co_consts, strict=True):
        if isinstance(x, types.CodeType) and isinstance(y, types.CodeType):
            if not _is_same(x, y):
                return False
        elif type(x) is not type(y) or repr(x) != repr(y):
            return False
    return True


def resolve(function: types.FunctionType, chain: tuple[str, ...]) -> Any:
    """What ``name`` or ``module.name`` is outside the function."""
    name, *rest = chain
    code = function.__code__
    if name in code.co_freevars:
        place = code.co_freevars.index(name)
        found = content_of((function.__closure__ or ())[place])
    else:
        found = function.__globals__.get(name, vars(builtins).get(name))
    if rest:
        found = getattr(found, rest[0], None) if isinstance(found, types.ModuleType) else None
    return unreplaced(found)


def definition(name: str, names: Iterable[str], body: list[ast.stmt]) -> ast.FunctionDef:
    """``def name(names): body``."""
    arguments = ast.arguments([], [ast.arg(n) for n in names], None, [], [], None, [])
    made = ast.FunctionDef(name, arguments, body, [])
    if "type_params" in ast.FunctionDef._fields:
        made.type_params = []  # type: ignore[attr-defined, unused-ignore]
    return made
