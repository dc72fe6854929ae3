"""Which numbers of a recording of ``value_and_grad`` are Values in a plain call too.

In: a recording, and what functions gave in it that give Values of plain numbers too. Out: a
``Certain``: what is computed from those is a Value in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from chainrule.compiler.capture.recordings import FIRST_RULE, Recording

#: operations that may give a number of a Value, or one of several that are given
_NUMBERS = frozenset(("detach", "select", "first_max", "first_min"))


class Certain:
    """The numbers of a recording that are Values, whatever is passed."""

    def __init__(self, made: Recording, given: Iterable[int]) -> None:
        """``given``: the positions of what such functions gave."""
        self._known = {p: True for p in given if made.codes[p] >= FIRST_RULE}
        self._are_none = not self._known
        self._codes, self._operands = made.codes, made.operands
        self._passes = [rule.name not in _NUMBERS for rule in made.rules]
        if self._are_none:
            return
        selection = made.selection
        self._tables = [gather.candidates for gather in selection.gathers]
        self._owners = dict(zip(selection.places.tolist(), selection.owners.tolist(), strict=True))

    def are_all(self, positions: Collection[int]) -> bool:
        """Whether all of some numbers are."""
        return all(map(self.is_one, positions))

    def is_one(self, position: int) -> bool:
        """Whether a number is."""
        if self._are_none:
            return False
        known, stack = self._known, [position]
        while stack:
            at = stack[-1]
            if at not in known:
                unknown = self._look(at)
                if unknown:
                    stack += unknown
                    continue
            stack.pop()
        return known[position]

    def _look(self, at: int) -> list[int]:
        """Find out whether an instruction is one, or say of which others that has to be known."""
        code = int(self._codes[at])
        if code < FIRST_RULE or not self._passes[code - FIRST_RULE]:
            self._known[at] = False
            return []
        for place, operand in enumerate(self._operands[at].tolist(), 3 * at):
            owner = self._owners.get(place)
            if operand < 0 and owner is None:
                continue
            parts = [operand] if owner is None else np.unique(self._tables[owner]).tolist()
            unknown = [p for p in parts if p not in self._known]
            if unknown:
                return unknown
            if all(self._known[p] for p in parts):
                self._known[at] = True
                return []
        self._known[at] = False
        return []
