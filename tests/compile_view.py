"""What tests see of a compiled function beyond its public methods."""

from __future__ import annotations

from typing import Any

from chainrule.compiler.runtime.variants import Path


class View:
    """The variants of a compiled function, and what the last call did."""

    def __init__(self, compiled: Any) -> None:
        self.dispatch = compiled.dispatch

    @property
    def structures(self) -> list[Any]:
        """Those of the arguments, the last called at the end."""
        return list(self.dispatch.structures.values())

    @property
    def variants(self) -> list[Any]:
        """All variants."""
        return [variant for structure in self.structures for variant in structure.variants]

    @property
    def variant(self) -> Any:
        """The variant of the last call, where all calls have one structure."""
        (structure,) = self.structures
        return structure.variants[0]

    @property
    def latest(self) -> Any:
        """The variant of the last call."""
        return self.structures[-1].variants[0]

    @property
    def ran_machine_code(self) -> bool:
        """Whether machine code answered the last call."""
        return self.dispatch.last is Path.MACHINE

    @property
    def fast_path(self) -> Any:
        """The cached calls, if there are any."""
        return self.dispatch.fast_path

    def forget_fast_path(self) -> None:
        """Let the next call take the slow path."""
        self.dispatch.fast_path = None

    @property
    def eager_calls(self) -> int:
        """How many calls ran eagerly."""
        return int(self.dispatch.counts.eager)
