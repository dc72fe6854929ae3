"""Sums, differences and products of stand-ins for floats: the base of ``standins.Detached``.

In: two operands, at least one a stand-in. Out: a stand-in for what Python would have. The native
engine has this class in C (src/native/standins.c), where two usual numbers become an instruction
without going through Python; what is not usual it leaves to ``combined`` and ``opposite`` too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from chainrule.core.backend import Value, kernels

if TYPE_CHECKING:
    from chainrule.compiler.capture.recorder import Recorder

if TYPE_CHECKING or kernels is None:

    class Number:
        """A number behind which there is a Value: ``is_data``, it depends on no other Value."""

        __slots__ = ("_recorder", "_value", "is_data", "kind")

        def __init__(
            self, recorder: Recorder, value: Value, is_data: bool = False, kind: type = float
        ) -> None:
            self._recorder = recorder
            self._value = value
            self.is_data = is_data
            #: float or np.float64; float32 and its like round their own arithmetic: static in it
            self.kind = kind if kind is float or issubclass(kind, np.floating) else float

        def combined(self, name: str, other: Any) -> Any:
            """The operator of this name, without underscores."""
            raise NotImplementedError

        def opposite(self) -> Any:
            """``-self``."""
            raise NotImplementedError

        def __add__(self, other: Any) -> Any:
            return self.combined("add", other)

        def __radd__(self, other: Any) -> Any:
            return self.combined("radd", other)

        def __sub__(self, other: Any) -> Any:
            return self.combined("sub", other)

        def __rsub__(self, other: Any) -> Any:
            return self.combined("rsub", other)

        def __mul__(self, other: Any) -> Any:
            return self.combined("mul", other)

        def __rmul__(self, other: Any) -> Any:
            return self.combined("rmul", other)

        def __neg__(self) -> Any:
            return self.opposite()

else:
    Number = kernels.Number


def data_numbers(recorder: Recorder, values: list[Value], kind: type, made: type) -> list[Any]:
    """Stand-ins of class ``made`` for many numbers that were passed, of one kind."""
    if kernels is not None and kind in (float, np.float64):
        found: list[Any] = kernels.stand_ins(recorder, values, kind)
        return found
    return [made(recorder, v, True, kind) for v in values]
