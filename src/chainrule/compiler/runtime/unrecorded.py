"""Calls that are never recorded: what their array programs come from.

The pipeline asks a ``Formulas`` for a variant before it records a call. Out: an ``Unrecorded``,
whose machine code was checked against eager mode, or None: then the call is recorded as usual.
``compiler.sizes`` makes such programs; it is passed in, because it stands on the runtime.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.runtime.counts import Counts
from chainrule.compiler.runtime.machine import MachineCode
from chainrule.compiler.runtime.variants import Variant


@dataclass(frozen=True, eq=False)
class Unrecorded:
    """A variant that was never recorded, and code whose calls join its own when they come again."""

    variant: Variant
    superseded: frozenset[MachineCode] = frozenset()


class Formulas(Protocol):
    """Variants of one function while its captured state stays the same."""

    @property
    def refusals(self) -> list[str]:
        """Why calls are recorded all the same, in words."""

    def serve(self, call: Call) -> Unrecorded | None:
        """A variant for a call; None where it has to be recorded."""

    def forget(self, machine: MachineCode | None) -> None:
        """Let no further call join this code."""

    def __str__(self) -> str: ...


class Source(Protocol):
    """What a user passes as ``sizes``."""

    def of(
        self, tracer: Tracer, captured: CapturedState, dtype: str, contract: bool, counts: Counts
    ) -> Formulas:
        """The variants of a function."""
