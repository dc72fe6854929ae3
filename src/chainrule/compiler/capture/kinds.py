"""Whether it can matter that ``max`` of a Value and a number gave a Value while it was recorded.

In: the instructions of a recording, and which of them are a Value or a number in eager mode. Out:
``Observed`` where that could be seen; then the function is recorded again, by branches.

What is computed from a Value that was passed or captured is a Value in eager mode too. Anything
else may be a plain number there, which is another result, has other attributes, and beside a number
of few bits another rounding.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from chainrule.compiler.capture.reading import Observed
from chainrule.compiler.capture.recordings import CONSTANT, FIRST_RULE, Ints
from chainrule.core import ops
from chainrule.core.ops import Op

_LEVELS = 8  # looked for among all instructions; then it is worth it to sort them


@dataclass
class Kinds:
    """Some instructions, and what is known of them in eager mode.

    ``values``: which of the inputs are Values. ``numbers``: instructions that are numbers.
    ``merged``: those that stand for the one or the other of two. ``gathers``: by instruction, the
    candidates of the gathers among its operands, which are none of its ``operands``.
    """

    codes: Ints
    operands: Ints
    rules: Sequence[Op]
    values: Sequence[bool]
    numbers: Iterable[int]
    merged: frozenset[int]
    gathers: Mapping[int, frozenset[int]]
    _is_value: dict[int, bool] = field(default_factory=dict)

    def check(self, either: Collection[int], narrow: frozenset[int], seen: Collection[int]) -> None:
        """Refuse what would tell whether one of ``either`` is a Value.

        ``narrow``: instructions that are numbers of few bits. ``seen``: what is returned, or of
        which an attribute was read.
        """
        found = new = frozenset(either)
        self._is_value.update(dict.fromkeys([*found, *self.numbers], False))
        levels = itertools.count()
        while new:
            users = self._users(new, next(levels) >= _LEVELS)
            if narrow and any(not narrow.isdisjoint(self._all_parts(i)) for i in users):
                raise Observed
            new = frozenset([i for i in users if i not in found and not self._certain(i)])
            found |= new
        if not found.isdisjoint(seen):
            raise Observed

    def _users(self, some: frozenset[int], is_deep: bool) -> list[int]:
        """The instructions that have one of these for an operand."""
        if is_deep:
            order, starts = self._sorted
            rows = np.concatenate([order[starts[i] : starts[i + 1]] for i in some]).tolist()
        else:
            mask = np.zeros(len(self.operands) + 1, np.bool_)  # the last one for no operand
            mask[list(some)] = True
            rows = np.flatnonzero(mask[self.operands].any(axis=1)).tolist()
        chosen = [i for i, candidates in self.gathers.items() if not some.isdisjoint(candidates)]
        return [*rows, *chosen]

    @functools.cached_property
    def _sorted(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The instructions by their operands, and where those of each operand begin."""
        flat = self.operands.ravel()
        order = np.argsort(flat)
        return order // 3, np.searchsorted(flat[order], np.arange(len(self.operands) + 1))

    def _parts(self, i: int) -> list[int]:
        """The operands that decide what an instruction is."""
        first = 1 if i in self.merged else 0  # its condition does not
        return [p for p in self.operands[i, first:].tolist() if p >= 0]

    def _all_parts(self, i: int) -> list[int]:
        return [*self._parts(i), *self.gathers.get(i, ())]

    def _certain(self, i: int) -> bool:
        """Whether it is a Value in eager mode, whatever the numbers; of a gather, not known."""
        known, stack = self._is_value, [i]
        while stack:
            at = stack[-1]
            if at < len(self.values):
                known[at] = self.values[at]
            if at in known:
                stack.pop()
                continue
            needs_all, parts = self._rule_of(at)
            answers = [known[p] for p in parts if p in known]
            is_decided = (not all(answers)) if needs_all else any(answers)
            if is_decided or len(answers) == len(parts):
                is_empty = not parts or (needs_all and at in self.gathers)
                known[at] = not is_empty and (is_decided is not needs_all)
                stack.pop()
            else:
                stack.append(next(p for p in parts if p not in known))
        return known[i]

    def _rule_of(self, i: int) -> tuple[bool, list[int]]:
        """Whether an instruction is a Value if all of some others are, or if any is; and which.

        A number in a max is none of them: if the function passed it, it is known what that means,
        else it is where the max begins.
        """
        code, parts = int(self.codes[i]), self._parts(i)
        rule = None if code < FIRST_RULE else self.rules[code - FIRST_RULE]
        if rule is ops.first_max or rule is ops.first_min:
            return True, [p for p in parts if self.codes[p] != CONSTANT]
        return i in self.merged, parts
