"""From a scalar program to something that runs without Python: record → infer → execute."""

from chainrule.compiler.api import CompiledFunction, FallbackError, FallbackWarning, compile

__all__ = ["CompiledFunction", "FallbackError", "FallbackWarning", "compile"]
