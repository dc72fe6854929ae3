"""``chainrule.load``: a compiled function from the file that ``save`` wrote.

In: a file. Out: a ``LoadedFunction``, which answers the calls that it was saved for and no others.
"""

from __future__ import annotations

import os
from typing import Any

from chainrule.compiler.api import CompiledFunction
from chainrule.compiler.derived import FIRST_ORDER, CompiledDerivative
from chainrule.compiler.runtime import report
from chainrule.compiler.saving.loaded import LoadedDispatch
from chainrule.compiler.saving.plain import SaveError
from chainrule.compiler.saving.reading import SavedFunction, read
from chainrule.compiler.translate.function import Translated, TranslationError
from chainrule.derivatives.transforms import Transform

__all__ = ["LoadedFunction", "load"]


class LoadedFunction(CompiledFunction):
    """A function from a file; made by ``chainrule.load``. It is called as a compiled one is.

    ``captured`` has what the function read without being passed it, by name, as it was frozen.
    """

    def __init__(self, saved: SavedFunction, path: str) -> None:
        self.dispatch: LoadedDispatch = LoadedDispatch(saved)
        self._gate = self.dispatch.gate
        self.__name__ = self.__qualname__ = saved.name
        if saved.signature is not None:
            self.__signature__ = saved.signature
        self.captured = dict(saved.captured)
        self._path = path
        self._derivatives = {}

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """No method: what was ``self`` is in the file."""
        return self

    def _derivative(self, transform: Transform) -> CompiledDerivative | None:
        """Gradients have a backward pass; other derivatives run eagerly, on the recordings."""
        is_gradient = transform.name in FIRST_ORDER and transform.argnums == 0
        return super()._derivative(transform) if is_gradient else None

    def report(self, stage: str = "summary") -> str:
        """As that of a compiled function; with what the file has frozen. It reads all of it."""
        self.dispatch.read_all()
        lines: list[str] = [report.report(self.dispatch, stage)]
        if stage == "summary":
            saved = self.dispatch.saved
            lines.append(f"  loaded from {self._path!r}, written by chainrule {saved.writer}")
            lines += [f"  frozen: {name} = {text}" for name, text in self.captured.items()]
        return report.Report("\n".join(lines))

    def save(self, path: str | os.PathLike[str], /, *example: Any, **keywords: Any) -> None:
        """Nothing can be recorded any more: the file it came from is all there is."""
        raise SaveError(f"{self.dispatch.name} was loaded from {self._path!r}: copy that file")

    def to_numpy(self, /, *example: Any, **options: Any) -> Translated:
        """Source is translated from the function itself."""
        raise TranslationError(f"{self.dispatch.name} was loaded from a file, without its source")

    to_jax = to_torch = to_numpy


def load(path: str | os.PathLike[str], *, build: bool = False) -> LoadedFunction:
    """A function that ``save`` of a compiled function wrote, usable without its source.

    It answers the calls that it was saved for: arguments of the same structure, for which the
    guards of a recording hold. Any other call raises a ``FallbackError`` that says what is missing.
    Calls run on the tape until machine code is worth building; ``build=True`` builds it now.
    A file that is damaged, or written by a newer version, raises a ``SaveError``. Recordings are
    checked part by part when a call needs them first, and no code in a file is run: there is none.

    >>> import chainrule
    >>> chainrule.load("no such file")
    Traceback (most recent call last):
        ...
    chainrule.compiler.saving.plain.SaveError: cannot load 'no such file': there is no such file
    """
    made = LoadedFunction(read(path), os.fspath(path))
    if build:
        made.dispatch.build()
    return made
