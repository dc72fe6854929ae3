"""Whether the steps of a run are worth what it costs to begin them in machine code.

In: the samples that a run of so many steps reads. Out: a ``Worth``: yes; no, and its samples are
calls like any others, but that it is known how many will come; or that is not known before the
first of them ran eagerly, which tells how much a call computes.

All of it goes by counting, never by a clock: what the function computes, and how many structures
the samples have, each of which is a recording. The same runs give the same bits every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chainrule.compiler.capture.arguments import Call
from chainrule.compiler.runtime.building import SMALL
from chainrule.compiler.runtime.calls import sized_value_and_grad, value_and_grad
from chainrule.compiler.runtime.costs import (
    BUILD,
    EAGER,
    JOIN,
    QUICK_REPLAY,
    RECORD,
    STEP,
    TRACING,
    Cost,
)
from chainrule.compiler.runtime.dispatch import Dispatch
from chainrule.compiler.runtime.ledger import Run
from chainrule.compiler.runtime.lengths import outline_of
from chainrule.compiler.training.packing import PackedSamples
from chainrule.compiler.training.steps import Steps

LOOKING = 1e-3  # seconds that it takes to look at samples and to prepare steps of known code
SIZES = (100, 1_000, 10_000, 100_000)  # instructions of a call, while nobody knows how many it has


def is_weighed(dispatch: Dispatch, steps: Steps) -> bool:
    """Whether a run has to be worth it.

    Not if nobody knows how long it will be, if machine code was asked for or an eager call is an
    error, or where nothing is recorded for each structure.
    """
    options, unlimited = dispatch.options, dispatch.ledger.is_endless
    asked = options.lift is True or options.sizes is not None or dispatch.notices.raises
    return steps.most is not None and not asked and not unlimited


def is_short(dispatch: Dispatch, steps: Steps) -> bool:
    """Whether even looking at the samples of a run takes longer than to call the function."""
    size = dispatch.ledger.instructions
    if steps.most is None or size is None:
        return False
    return 0.5 * steps.most * steps.batch * EAGER.of(size) < LOOKING


class Worth:
    """What it costs to begin a run, against what its steps take eagerly."""

    def __init__(
        self,
        dispatch: Dispatch,
        samples: PackedSamples,
        taken: int,
        steps: Steps,
        can_be: bool,
    ) -> None:
        """``taken``: the steps of the optimiser so far; ``can_be``: in machine code."""
        assert steps.most is not None
        self._dispatch, self._ledger = dispatch, dispatch.ledger
        self._steps, self._can_be = steps.most, can_be
        self._calls = self._left = steps.most * steps.batch
        self._missing: list[Missing] = []
        self._numbers: list[int] = []
        self._size: int | None = None  # instructions of the first call
        #: whether its steps are worth machine code; None: nobody knows
        self.answer: bool | None = False
        if self._calls:
            chosen = samples.choose_all(taken, steps)
            structures = samples.structures
            every = structures.first_of_each(chosen)
            self._numbers = [_numbers(structures.call(k)) for k in every]
            self._missing = list(_missing(dispatch, samples, [structures.leader(chosen), *every]))
            self._first = _numbers(structures.call(int(chosen[0])))
            if can_be:
                self._decide([size / self._first for size in SIZES])
                self.answer = self.answer or None

    def decide(self) -> bool | None:
        """The answer, between two steps."""
        if self.answer is None and self._size is not None:
            each = self._size / self._first
            built = [missing.is_code(each) for missing in self._missing if missing.is_built]
            if built and not any(built):
                self.answer = False
            else:
                self._decide([each])
        return self.answer

    def call(self, arguments: tuple[Any, ...]) -> Any:
        """The loss of a sample and its gradient; the first one eagerly, to see how much a call is.

        The others are recorded where that pays, if each structure has its share of the calls.
        """
        self._left -= 1
        if self._size is not None:
            # Most structures come in the first half; what is recorded later serves fewer calls.
            alike = min(self._calls, 2 * self._left) / len(self._numbers)
            run = Run(self._left, alike, self._is_left)
            with self._ledger.trains(self._size, run):
                return value_and_grad(self._dispatch, arguments, {})
        result, self._size = sized_value_and_grad(self._dispatch, arguments)
        if self._ledger.instructions is None:
            self._ledger.instructions = self._size or None
        return result

    @property
    def _is_left(self) -> bool:
        """Whether steps are calls though machine code is worth it, or there is none for them."""
        return bool(self.answer) or not self._can_be

    def _decide(self, each: list[float]) -> None:
        """``each``: instructions for every number that a sample has; all of them must pay."""
        short = max(map(self._short, each))
        self.answer = self._ledger.affords_training(short, max(map(self._longer, each)))
        if self.answer:
            self._ledger.begins_training(short)

    def _short(self, each: float) -> float:
        """Seconds that it costs beyond half of the time that the steps take eagerly."""
        return self._cost(each) - 0.5 * self._take(EAGER, each)

    def _longer(self, each: float) -> float:
        """Seconds that it costs beyond what the run takes otherwise: eagerly, or on the tape."""
        recorded = sum([missing.recording(each) for missing in self._missing])
        on_tape = recorded + self._take(QUICK_REPLAY, each)
        return self._cost(each) - self._steps * STEP - min(self._take(EAGER, each), on_tape)

    def _cost(self, each: float) -> float:
        return sum([missing.cost(each) for missing in self._missing])

    def _take(self, cost: Cost, each: float) -> float:
        """Seconds for all calls."""
        taken = sum([cost.of(int(each * numbers)) for numbers in self._numbers])
        return self._calls * taken / len(self._numbers)


@dataclass(frozen=True)
class Missing:
    """What there is to be made for the calls of one structure."""

    numbers: int  # that such a sample has
    is_recorded: bool
    joins: bool  # the code of a longer one
    is_built: bool

    def recording(self, each: float) -> float:
        """Seconds for that alone; ``each``: as below."""
        return RECORD.of(int(each * self.numbers)) if self.is_recorded else 0.0

    def cost(self, each: float) -> float:
        """Seconds; ``each``: instructions for every number."""
        size = int(each * self.numbers)
        cost = self.recording(each)
        if self.joins:
            cost = TRACING * cost + JOIN.of(size)
        built = 4.0 * BUILD.of(size)  # for a call and for whole steps, which are larger
        return cost + built if self.is_code(each) else cost

    def is_code(self, each: float) -> bool:
        """Whether something is built that is machine code; what is small stays on the tape."""
        return self.is_built and int(each * self.numbers) >= SMALL


def _missing(dispatch: Dispatch, samples: PackedSamples, every: list[int]) -> Iterator[Missing]:
    """What is to be made for samples of different structures, the longest first."""
    lifts, met = dispatch.options.lift is not False, set[Any]()
    is_known = dispatch.captured is not None and dispatch.is_fresh()
    for k in dict.fromkeys(every):
        call, joins = samples.structures.call(k), False
        if is_known:
            whole = samples.whole(k)
            structure = dispatch.structure_of(whole)
            if structure.blocked is not None:
                continue
            if structure.variants:
                waits = all(variant.waits for variant in structure.variants)
                yield Missing(_numbers(call), False, False, lifts and waits)
                continue
            joins = dispatch.may_join(whole)
        shape = outline_of(call.key, has_parameters=False)
        joins = joins or shape in met
        met.add(shape)
        yield Missing(_numbers(call), True, joins, lifts and not joins)


def _numbers(call: Call) -> int:
    """How many numbers a sample has, about which a call of it is as long."""
    return 1 + call.size + len(call.ints)
