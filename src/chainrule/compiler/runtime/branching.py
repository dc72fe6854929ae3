"""Which way a call is recorded: through one side of its branches, through both, or in any turns.

In: a call that no variant of its structure serves, and what makes one. Out: a ``Variant``. Where
calls go many ways, both sides of branches are recorded (``capture.sides``), and where that is not
enough, turns of loops as well (``capture.turns``). ``tracer`` is how recordings are made by now.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.capture.captured import CapturedState
from chainrule.compiler.capture.forks import TURNS
from chainrule.compiler.capture.random_states import random_states_kept
from chainrule.compiler.capture.sides import deciding_lines
from chainrule.compiler.capture.standins import Followed, Unrecordable
from chainrule.compiler.capture.tracing import Tracer
from chainrule.compiler.runtime.variants import (
    Structure,
    Variant,
    branches,
    branches_often,
    goes_both_ways,
    is_for_other_exponents,
    static_files,
    static_often,
)

WAYS = 3  # through branches, before both sides of them are computed
MANY_BRANCHES = 8  # in one recording: the second way through them is enough
FEW_BRANCHES = 2  # that may be left where loops have run-time ends
FAILURES = 3  # to compute both sides

Make = Callable[[], Variant]  # a variant of the call, by the tracer in use


class Branching:
    """How calls of one function are recorded while its captured state stays the same."""

    def __init__(
        self,
        tracer: Tracer,
        captured: CapturedState,
        keeps_bits: bool,
        on_change: Callable[[Tracer], None],
    ) -> None:
        """``keeps_bits``: branches are guards, always; ``on_change`` is told of another tracer."""
        self.tracer, self._captured, self._keeps_bits = tracer, captured, keeps_bits
        self._on_change = on_change
        #: lines of loops over ``range``, and of calls of one of several functions, by function
        self._deciding: dict[Any, tuple[set[str], set[str]]] = {}
        self._failures = 0  # attempts to compute both sides of branches

    def variant(
        self, structure: Structure, others: list[Variant], call: Call, make: Make
    ) -> Variant:
        """A variant for a call that those of its structure do not serve.

        ``others``: where there are none, those of calls whose lists have other lengths.
        """
        powers = any(is_for_other_exponents(v, call.ints) for v in structure.variants)
        if powers and type(self.tracer) is Tracer and not self.tracer.powers:
            self._use(replace(self.tracer, powers=True))
        with random_states_kept():
            variant = self._with_both_sides(structure.variants, others, make)
        if variant is not None:
            return variant
        with random_states_kept():
            variant = self._of_any_turns(structure, make)
            return self._of_one_side(structure, make) if variant is None else variant

    def _use(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self._on_change(tracer)

    def _of_one_side(self, structure: Structure, make: Make) -> Variant:
        """A variant that takes one side of branches; if that is refused, perhaps one of both."""
        try:
            return make()
        except Followed:
            variant = self._of_both_sides(structure.variants, make)
            if variant is None:
                raise
            return variant

    def _with_both_sides(
        self, found: list[Variant], others: list[Variant], make: Make
    ) -> Variant | None:
        """A variant that computes both sides of branches where calls go many ways, else None.

        At other lengths they do where one branch was gone through both ways.
        """
        if not found and goes_both_ways(others, MANY_BRANCHES):
            found = others
        is_one_of_many = bool(found) and branches(found[0]) >= MANY_BRANCHES
        if len(found) < WAYS and not is_one_of_many:
            return None
        if not branches_often(found) and not any(self._are_static_often(found)):
            return None
        return self._of_both_sides(found, make)

    def _of_both_sides(self, found: list[Variant], make: Make) -> Variant | None:
        """Such a variant; None where it is not asked for, or cannot be made."""
        plain, given_up = self.tracer, self._failures >= FAILURES
        if type(plain) is not Tracer or plain.both or self._keeps_bits or given_up:
            return None
        self._use(replace(plain, both=True))
        if not self._are_static_often(found)[0]:
            self._captured.plain_sites.add(TURNS)
        variant = None
        try:
            variant = self._attempt(make)
        finally:
            if variant is None:
                self._use(plain)
        return variant

    def _of_any_turns(self, structure: Structure, make: Make) -> Variant | None:
        """One for other numbers of turns, where both sides of branches were not enough; or None."""
        sites = self._captured.plain_sites
        if not structure.sides or TURNS not in sites or self._failures >= FAILURES:
            return None
        if any(v.binding is not None and not v.is_own for v in structure.variants):
            return None  # shorter calls share the code of longer ones
        before = min(map(branches, structure.variants), default=0)
        sites.remove(TURNS)
        try:
            variant = self._attempt(make)
        except BaseException:  # Ctrl-C
            sites.add(TURNS)
            raise
        if variant is None:
            sites.add(TURNS)
        elif branches(variant) > max(FEW_BRANCHES, before / 2):  # its turns are guards all the same
            self._failures = FAILURES
            sites.add(TURNS)
        return variant

    def _attempt(self, make: Make) -> Variant | None:
        try:
            return make()
        except (Exception, Unrecordable):
            self._captured.restore()
            self._failures += 1
            return None

    def _are_static_often(self, variants: list[Variant]) -> tuple[bool, bool]:
        """Whether most recordings are for one number of turns of a loop that could have any, and
        whether most are for one choice of the functions that are called.
        """
        files, loops, calls = static_files(variants), set[str](), set[str]()
        for f in self._captured.functions:
            if os.path.basename(f.__code__.co_filename) in files:
                if f not in self._deciding:
                    self._deciding[f] = deciding_lines(f.__code__)
                counting, choosing = self._deciding[f]
                loops, calls = loops | counting, calls | choosing
        return static_often(variants, loops), static_often(variants, calls)
