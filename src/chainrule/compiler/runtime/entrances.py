"""What users call, up to where Python code has to look at a call.

In: the arguments. Out: what a function's gate answers, in C, without Python; all other calls go on
to the methods of ``CompiledFunction`` and ``CompiledDerivative``, of which these are the bases.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

from chainrule.core.backend import kernels


class Wanted(enum.IntEnum):
    """What a call gives, as in src/native/entrance.c."""

    VALUE = 0  # what the function returns
    WHOLE = 1  # likewise of a derivative that is no gradient
    VALUE_AND_GRADIENT = 2
    GRADIENT = 3
    BESIDE = 4  # either, where the function has to return something beside its value


class SlowDerivedEntrance:
    """A derivative's calls without the C one: Python looks at all of them."""

    _gate: Any  # that answers calls; None: none does
    _wanted: int

    def __call__(self, /, *arguments: Any, **keywords: Any) -> Any:
        """What the function, or the derivative, gives."""
        return self._unanswered(arguments, keywords)

    def _unanswered(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The same, where the gate has no answer."""
        raise NotImplementedError


class SlowEntrance(SlowDerivedEntrance):
    """A function's calls, likewise."""

    _named: Any  # see ``keywords.named``

    def value_and_grad(self, /, *arguments: Any, out: Any = None, **keywords: Any) -> Any:
        """The value and its gradient by the first argument, in that argument's structure.

        ``out``, an array for each array of the first argument in the same structure, receives the
        gradient in place; an argument of the function with that name is passed by position. If the
        function returns ``(value, extras)``, so does this.
        """
        return self._differentiate(arguments, keywords, out, None)

    def _differentiate(
        self, arguments: tuple[Any, ...], keywords: dict[str, Any], out: Any, answer: Any
    ) -> Any:
        """The same, where the gate has no answer, or one whose gradient is not in ``out`` yet."""
        raise NotImplementedError


if TYPE_CHECKING:
    Entrance = SlowEntrance
    DerivedEntrance = SlowDerivedEntrance
else:
    Entrance = SlowEntrance if kernels is None else kernels.Entrance
    DerivedEntrance = SlowDerivedEntrance if kernels is None else kernels.DerivedEntrance
