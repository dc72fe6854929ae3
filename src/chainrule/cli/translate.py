"""The command that writes source: translate.

A function of the user's own file, recorded with the example that the file has for it, comes out as
JAX, torch, numpy or C source, or as formulas. What cannot be translated ends as one line and exit
code 2.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter
from rich.console import Console
from rich.syntax import Syntax

from chainrule.cli.reporting import Output, examples, file_named, reported
from chainrule.files import write_atomically
from chainrule.see.expressions import ExpressionError


def register(app: App) -> None:
    """Add the command to the command line."""
    app.command(
        translate,
        name="translate",
        usage="Usage: chainrule translate FILE.py:FUNCTION [OPTIONS]",
        help_epilogue=examples(
            "chainrule translate model.py:loss",
            "chainrule translate model.py:loss --to jax -o loss_jax.py",
            "chainrule translate model.py:loss --to jax --any-size --example of_sizes",
            "chainrule translate model.py:loss --to torch -o loss_torch.py",
            "chainrule translate model.py:loss --to c -o loss.c",
            "chainrule translate model.py:loss --to formulas --example small",
        ),
    )


@reported
def translate(
    function: Annotated[str, Parameter(help="A file and a function in it, as in model.py:loss.")],
    /,
    *,
    to: Literal["numpy", "jax", "torch", "c", "formulas"] = "numpy",
    example: str = "example",
    any_size: Annotated[bool, Parameter(negative=())] = False,
    specialise: Annotated[bool, Parameter(negative=())] = False,
    lengths: Annotated[bool, Parameter(negative=())] = False,
    output: Output | None = None,
) -> int:
    """Write a function of scalars as readable array source.

    The file has an example of the function's arguments, a tuple, which
    is also the structure of all calls that the source is for.

    Parameters
    ----------
    to
        The language: numpy, JAX, torch or C source, or formulas in index notation.
        C is printed with its header first, and written as two files.
    example
        The name of the example in the file: a tuple of arguments, or a
        function that returns one.
    any_size
        Write source for arrays of any size; the parameters of the example,
        which is a function, are the sizes.
    specialise
        Translate the branches that the example takes; the function then
        returns beside its result whether they are the right ones.
    lengths
        For shorter lists than the longest of the example too: the function takes
        them padded, and how many of their items count.
    output
        The file to write, instead of printing.
    """
    from chainrule.compiler.api import CompiledFunction, TranslationError
    from chainrule.compiler.translate import function as translation
    from chainrule.compiler.translate.c.function import CSource, translate_to_c
    from chainrule.compiler.translate.dialects import DIALECTS
    from chainrule.compiler.translate.ways import translated

    file, _, name = function.rpartition(":")
    if not file or not name:
        raise ExpressionError(f"name a file and a function, as in model.py:loss, not {function!r}")
    module = _loaded(Path(file))
    chosen = _found(module, name, "function")
    if not callable(chosen):
        raise ExpressionError(f"{name!r} of {file} is no function, but a {type(chosen).__name__}")
    if isinstance(chosen, CompiledFunction):
        chosen = chosen.dispatch.function
    arguments = _found(module, example, "example (a tuple of arguments)")
    if any_size and (to not in DIALECTS or not callable(arguments)):
        raise ExpressionError(
            f"any size needs numpy, JAX or torch, and {example} as a function of sizes"
        )
    if not any_size:
        arguments = arguments() if callable(arguments) else arguments
        arguments = arguments if isinstance(arguments, tuple) else (arguments,)
    model: CSource | None = None
    try:
        if lengths and to not in DIALECTS:
            raise TranslationError("--lengths is for numpy, JAX and torch")
        if to == "c":
            model = translate_to_c(chosen, arguments, {})
            source = f"{model.header}\n{model.source}"
        elif to == "formulas":
            source = translation.formulas(chosen, arguments, {}) + "\n"
        elif any_size:
            source = translated(chosen, to, (), {}, specialise, arguments, lengths).source
        else:
            source = translated(chosen, to, arguments, {}, specialise, lengths=lengths).source
    except TranslationError as error:
        raise ExpressionError(str(error)) from None
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise ExpressionError(f"{name} raises with this example: {what}") from error
    if output is not None:
        suffix = {"formulas": ".txt", "c": ".c"}.get(to, ".py")
        path = file_named(output, suffix)
        if model is not None:
            model.save(path)
        else:
            write_atomically(path, source)
        return 0
    console = Console()
    if console.is_terminal and to != "formulas":
        language = "c" if to == "c" else "python"
        console.print(Syntax(source, language, theme="ansi_dark", background_color="default"))
    else:
        sys.stdout.write(source)
    return 0


def _loaded(path: Path) -> ModuleType:
    """The module that a file is."""
    if not path.is_file():
        raise ExpressionError(f"there is no file {str(path)!r}")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ExpressionError(f"{path.name!r} is no Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent))  # it may import its neighbours
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ExpressionError(f"{path.name} raises {type(error).__name__}: {error}") from error
    return module


def _found(module: ModuleType, name: str, what: str) -> Any:
    if not hasattr(module, name):
        raise ExpressionError(f"{module.__name__}.py has no {what} named {name!r}")
    return getattr(module, name)
