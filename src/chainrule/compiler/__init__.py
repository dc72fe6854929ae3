"""From a scalar program to machine code, in the order that data flows.

``capture`` records a call, ``lift`` finds the arrays in the recording, ``formulas`` writes them in
index notation, ``codegen`` makes machine code of them, ``runtime`` answers calls, ``training``
takes whole steps, ``translate`` writes source, ``saving`` writes files and reads them, and ``api``
and ``loading`` have what users call.
In: a function of Values. Out: a ``CompiledFunction``, whose results are eager's or it does not run
compiled. To print each stage: ``fast.report()``. ``runtime.verification`` compares with eager.
"""

from chainrule.compiler.api import (
    CompiledFunction,
    FallbackError,
    FallbackWarning,
    TranslationError,
    compile,
)
from chainrule.compiler.loading import LoadedFunction, load
from chainrule.compiler.saving.plain import SaveError

__all__ = [
    "CompiledFunction",
    "FallbackError",
    "FallbackWarning",
    "LoadedFunction",
    "SaveError",
    "TranslationError",
    "compile",
    "load",
]
