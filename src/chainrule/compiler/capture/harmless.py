"""Whether a function names only what is known to do nothing unseen with a stand-in of a container.

In: the Python functions that a recording may run. Out: whether every global name, builtin and
module in their code is one of those known here. Stand-ins refuse what they do not know, but C code
can ask for a type or an identity without their being told: ``map(type, ds)``, ``id(d)``.
"""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from chainrule.compiler.capture.known import module_of
from chainrule.compiler.capture.rewriting import only_calls
from chainrule.core.backend import Value

_MODULES = frozenset("math numpy collections itertools random bisect chainrule".split())
_BUILTINS = frozenset(
    "abs all any bool bytes chr complex dict divmod enumerate filter float frozenset getattr "
    "hasattr int isinstance len list map max min next ord pow range reversed round set "
    "slice sorted str sum tuple zip".split()
)
_ONLY_CALLED = ("type", "isinstance", "hasattr", "getattr")  # which hooks see there
_UNSEEN = frozenset(("IMPORT_NAME", "LOAD_NAME", "STORE_GLOBAL", "LOAD_BUILD_CLASS"))


def names_only_known(functions: Iterable[types.FunctionType]) -> bool:
    """Whether all that these functions name is known."""
    functions = list(functions)
    codes = {f.__code__ for f in functions}
    return all(
        all(_is_known(x, codes) for x in _named(f))
        and all(only_calls(f.__code__, name) for name in _ONLY_CALLED)
        and not any(step.opname in _UNSEEN for step in _steps(f.__code__))
        for f in functions
    )


def _named(function: types.FunctionType) -> Iterator[Any]:
    """What a function's code has without its arguments."""
    for step in _steps(function.__code__):
        if step.opname == "LOAD_GLOBAL":
            name = step.argval
            found = function.__globals__.get(name, getattr(builtins, name, None))
            if name not in _ONLY_CALLED or found is not getattr(builtins, name):
                yield found
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it is empty as yet
            yield cell.cell_contents
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()


def _steps(code: types.CodeType) -> Iterator[dis.Instruction]:
    yield from dis.get_instructions(code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _steps(constant)


def _is_known(x: Any, codes: set[types.CodeType]) -> bool:
    if isinstance(x, types.FunctionType) and x.__code__ in codes:
        return True
    if isinstance(x, types.ModuleType):
        return x.__name__.split(".")[0] in _MODULES
    if x is Value or (isinstance(x, type) and issubclass(x, BaseException)):
        return True
    if isinstance(x, type | types.BuiltinFunctionType) and x.__module__ == "builtins":
        return x.__name__ in _BUILTINS
    if callable(x):
        return module_of(x).split(".")[0] in _MODULES or not _is_of_library(x)
    return True


def _is_of_library(x: Any) -> bool:
    """Whether calling it runs other code than the user's own classes and objects have."""
    return not isinstance(x, type) and not isinstance(
        type(x).__dict__.get("__call__"), types.FunctionType
    )
