"""A recording ready to run, and what is known of calls with one structure of arguments."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chainrule.compiler.capture.recorder import Floats, Ints, Recording
from chainrule.compiler.lift.program import Addresses
from chainrule.compiler.runtime.families import Family
from chainrule.compiler.runtime.lifted import Fit, Lifted
from chainrule.compiler.runtime.tape import FINE, Executor, executor
from chainrule.core.backend import Value

DECISIONS = 10_000  # of one variant that are kept


@dataclass(eq=False)
class Variant:
    """A recording ready to run, and for which integers it holds."""

    recording: Recording
    captured: tuple[Value, ...]
    numeric: frozenset[int]
    inputs: Floats
    grads: Floats
    lifted: Lifted | None = None
    fit: Fit | None = None
    family: Family | None = None  # whose code it runs on, if it is not its own
    slots: Addresses | None = None  # its integers among those of the family's longest
    not_lifted: str | None = None
    ran_lifted: bool = False
    _ids: Sequence[int] = ()  # of the last call
    _decided: dict[tuple[int, ...], Any] = field(default_factory=dict)

    @functools.cached_property
    def executor(self) -> Executor:
        """What runs the recording itself."""
        return executor(self.recording)

    def run(self, ids: Sequence[int]) -> int | None:
        """Compute this call: by the array program where it can, else by the tape.

        None where it is not known what these integers select.
        """
        lifted, fit = self.lifted, self.fit
        self.ran_lifted, self._ids = False, ids
        if lifted is not None and fit is not None:
            gathered = self.gathered(ids)
            if gathered is not None:
                self.ran_lifted = lifted.run(fit, gathered, self.inputs)
                if self.ran_lifted:
                    return FINE
        return self._run_tape(ids)

    def gathered(self, ids: Sequence[int]) -> Addresses | None:
        """The addresses that the gathers of the lifted program select, if that is known."""
        fit = self.fit
        if fit is None:
            return None
        decided = self.decide(ids)
        return None if decided is None else fit.gathered(decided[0])

    def _run_tape(self, ids: Sequence[int]) -> int | None:
        decided = self.decide(ids)
        if decided is None:
            return None
        if len(decided[0]):
            self.executor.point(self.recording.selection.places, decided[0])
        return self.executor.run(self.inputs)[0]

    def number(self, position: int) -> float:
        """The number an instruction gave in this call."""
        found = (
            self.lifted.number(position) if self.lifted is not None and self.ran_lifted else None
        )
        return self.executor.number(position) if found is None else found

    def sweep(self, root: int) -> Floats | None:
        """The derivative of an instruction by every input; None where only eager can tell."""
        if self.lifted is not None and self.ran_lifted:
            if self.lifted.sweep(self.grads):
                return self.grads
            if self._run_tape(self._ids) != FINE:
                return None
            # Something infinite: the tape knows the rules for it
        self.executor.sweep(root, 1.0, self.grads)
        return self.grads

    def decide(self, ids: Sequence[int]) -> tuple[Ints, list[float]] | None:
        """What these integers select, and the numbers computed from them; None: another path."""
        key = tuple(ids)
        if key not in self._decided:
            if len(self._decided) > DECISIONS:
                self._decided.clear()
            self._decided[key] = self.recording.selection.decide(key)
        found: tuple[Ints, list[float]] | None = self._decided[key]
        return found


@dataclass(eq=False)
class Structure:
    """What is known of calls with one structure of arguments."""

    variants: list[Variant] = field(default_factory=list)
    recordings: int = 0
    blocked: str | None = None  # why such calls run eagerly


@dataclass
class Counts:
    """What ``report()`` tells."""

    calls: int = 0
    replayed: int = 0
    eager: int = 0
    traces: int = 0
    recording_seconds: float = 0.0
    lifting_seconds: float = 0.0
    checking_seconds: float = 0.0
